"""A short run of the model test (model.py) in each way of mounting; model.py itself runs for long. And
what it found, in fewer words."""
import errno
import os
import threading
import time

import numpy as np
import pytest

import model

SECONDS = 5


@pytest.mark.parametrize("options", [(), ("direct_io",), ("sparsify", "cache_size=256K"),
                                     ("commit_interval=1", "threads=8")], ids=lambda o: ",".join(o) or "default")
def test_processes(tmp_path, options):
    assert model.run(tmp_path, 1, SECONDS, rounds=2, workers=4, options=options) > 100


@pytest.mark.parametrize("view", ["frames/3.raw", "stack.raw", "values/000003.values", "csr/data.raw"])
@pytest.mark.parametrize("decodable", [True, False])
def test_looking_at_a_frame_whose_selection_is_being_written(mounts, tmp_path, view, decodable):
    """cp truncates N.defined first and writes it then: who looks at the frame between does not make
    the elements lose their values that stay defined."""
    path = tmp_path / "a.h5"
    model.make_file(path)
    folder = mounts(path, "rw", expect_log=not decodable) / "points"
    content = np.arange(2400, dtype="<u2").tobytes()
    (folder / "frames/3.raw").write_bytes(content)
    selection = (folder / "frames/3.defined").read_bytes()
    fd = os.open(folder / "frames/3.defined", os.O_WRONLY | os.O_TRUNC)
    try:
        (folder / view).read_bytes()
        os.write(fd, selection if decodable else b"anything")
        if not decodable:
            with model.refused(errno.EINVAL):
                os.fsync(fd)
    finally:
        os.close(fd)
    assert (folder / "frames/3.raw").read_bytes() == content
    assert (folder / "frames/3.defined").read_bytes() == selection


def test_reading_after_a_truncated_selection_was_closed(mounts, tmp_path):
    """Also from a file that was open and read before, when the truncation was not applied yet."""
    path = tmp_path / "a.h5"
    model.make_file(path)
    folder = mounts(path, "rw") / "points"
    with open(folder / "frames/3.raw", "rb", buffering=0) as raw:
        for _ in range(50):
            (folder / "frames/3.raw").write_bytes(b"ab" * 2400)
            with open(folder / "frames/3.defined", "wb", buffering=0):
                assert os.pread(raw.fileno(), 4800, 0) == b"ab" * 2400
            assert os.pread(raw.fileno(), 4800, 0) == bytes(4800)


@pytest.mark.parametrize("name", ["points", "entry/together"])
def test_punching_parts_beside_a_reader(mounts, tmp_path, name):
    """Of what is punched in part nothing changes, though the kernel clears it in its own pages, which
    a reader may just have brought in."""
    path = tmp_path / "a.h5"
    model.make_file(path)
    file = mounts(path, "rw") / name / "frames/0.raw"
    content = np.random.default_rng(1).integers(1, 256, file.stat().st_size).astype("u1").tobytes()
    file.write_bytes(content)
    done = threading.Event()

    def read():
        while not done.is_set():
            file.read_bytes()

    readers = [threading.Thread(target=read) for _ in range(3)]
    for reader in readers:
        reader.start()
    fd = os.open(file, os.O_RDWR)
    try:
        for number in range(1000):
            model.fallocate(fd, model.FALLOC_FL_PUNCH_HOLE, 4 * (number % 600) + 1, 1)
            time.sleep(0.002)
            model.same(file.read_bytes(), content, file)
    finally:
        os.close(fd)
        done.set()
        for reader in readers:
            reader.join()
