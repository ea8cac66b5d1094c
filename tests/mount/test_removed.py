"""Names of frames that are removed: by programs that make them anew, and by rm."""
import errno
import os
import shutil
import time

import h5py
import numpy as np
import pytest

from model import refused
from test_temporary import NOREPLACE, renameat2
from test_writing import FRAME_BYTES, Data, data, do, new_content, sparse  # noqa: F401

PROGRAMS = {
    "tar": "tar -C {out} -cf x.tar . && tar -C {into} -xpf x.tar",
    "tar -U": "tar -C {out} -cf x.tar . && tar -C {into} -U -xpf x.tar",
    "install": "install -p {out}/* {into}",
    "install -m": "for n in 1 2; do install -m 600 {out}/$n.raw {into}/$n.raw; "
                  "touch -r {out}/$n.raw {into}/$n.raw; done",
    "mv": "cp -a {out} out2 && mv out2/* {into}",
    "cp": "cp -a --remove-destination {out}/* {into}",
    "zip": "cd {out} && zip -q ../x.zip * && unzip -qo ../x.zip -d {into}",
    "python": "python3 -c 'import os, shutil; [(os.unlink(f\"{into}/{{n}}.raw\"),"
              "shutil.copy2(f\"{out}/{{n}}.raw\", f\"{into}/{{n}}.raw\")) for n in (1, 2)]'",
}


@pytest.mark.parametrize("program", PROGRAMS)
def test_programs_that_remove_first(mounts, data, tmp_path, program):
    command = PROGRAMS[program]
    if program == "zip" and not (shutil.which("unzip") and shutil.which("zip")):
        pytest.skip("zip is not here")
    d = data.mount(mounts)
    out = tmp_path / "out"
    out.mkdir()
    for n in 1, 2:
        data.write(n * FRAME_BYTES, new_content(seed=n))
        (out / f"{n}.raw").write_bytes(new_content(seed=n))
        os.utime(out / f"{n}.raw", (1000, 1_400_000_000 + 2 * n))
    do(command.format(out=out, into=d / "frames"), cwd=tmp_path)
    data.check()
    for n in 1, 2:
        assert (d / f"raw/{n:06}.raw").stat().st_mtime == 1_400_000_000 + 2 * n
    data.check_file(mounts)


def test_another_programs_file(mounts, data, tmp_path):
    """It is taken as one that is written from its first byte on."""
    d = data.mount(mounts)
    content = np.frombuffer(new_content(), "<u2").reshape(30, 41)
    np.save(tmp_path / "000001.npy", np.asfortranarray(content.astype(">u2")))
    do(f"install {tmp_path}/000001.npy {d}/npy/000001.npy")
    data.write(FRAME_BYTES, new_content())
    data.check()


def test_a_removed_name(mounts, data):
    """Nothing else of the frame has changed, and nothing of the file; by any number with zeros it is gone."""
    d = data.mount(mounts, expect_log=True)
    before, names = data.path.read_bytes(), sorted(os.listdir(d / "frames"))
    with open(d / "frames/1.raw", "rb") as opened:
        os.unlink(d / "frames/1.raw")
        assert opened.read() == data.array[1].tobytes()
    for name in "1.raw", "0001.raw":
        for attempt in os.stat, os.unlink, open:
            with refused(errno.ENOENT):
                attempt(d / "frames" / name)
    assert sorted(os.listdir(d / "frames")) == sorted(set(names) - {"1.raw"})
    assert (d / "raw/000001.raw").read_bytes() == data.array[1].tobytes()
    assert (d / "stack.raw").read_bytes() == data.array.tobytes()
    assert (d / "frames/2.raw").read_bytes() == data.array[2].tobytes()
    data.mounted.unmount()
    assert data.path.read_bytes() == before
    assert "1 name of frames that was removed is there again with the next mount" in data.mounted.log()
    d = data.mount(mounts)
    assert sorted(os.listdir(d / "frames")) == names
    data.check()


def test_an_empty_file_is_an_erased_frame(mounts, data):
    d = data.mount(mounts)
    for n in 1, 2:
        os.unlink(d / f"frames/{n}.raw")
    fd = os.open(d / "frames/1.raw", os.O_WRONLY | os.O_CREAT | os.O_EXCL)
    with refused(errno.EEXIST):
        os.open(d / "frames/1.raw", os.O_WRONLY | os.O_CREAT | os.O_EXCL)
    os.close(fd)
    with open(d / "frames/2.raw", "wb") as f:  # half of it; of the rest nothing is left
        f.write(new_content()[:1000])
    data.erase(FRAME_BYTES // 2, 3 * FRAME_BYTES // 2)
    data.write(2 * FRAME_BYTES, new_content()[:1000])
    data.check()


def test_what_is_refused_leaves_the_frame(mounts, data):
    """Bytes that are no file of the frame: its name is there again."""
    d = data.mount(mounts, expect_log=True)
    os.unlink(d / "npy/000001.npy")
    fd = os.open(d / "npy/000001.npy", os.O_WRONLY | os.O_CREAT | os.O_EXCL)
    with refused(errno.EINVAL), open(fd, "wb") as f:
        f.write(b"this is no NumPy file" * 20)
    assert (d / "npy/000001.npy").read_bytes()[-FRAME_BYTES:] == data.array[1].tobytes()
    data.check()


def test_what_cannot_be_made_stays_removed(mounts, data):
    """As somebody else reads the file."""
    mounted = mounts(data.path, "default", expect_log=True)
    data.mounted, data.d = mounted, mounted / "sparse"
    frames = data.d / "frames"
    os.unlink(frames / "1.raw")
    with h5py.File(data.path, "r"):
        with refused(errno.EBUSY):
            os.open(frames / "1.raw", os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        assert "1.raw" not in os.listdir(frames)
    (frames / "1.raw").write_bytes(new_content())
    data.write(FRAME_BYTES, new_content())
    assert (frames / "1.raw").read_bytes() == new_content()
    data.check_file(mounts)


def test_renamed_to_a_removed_name(mounts, data):
    d = data.mount(mounts)
    (d / "frames/.x").write_bytes(new_content())
    os.unlink(d / "frames/1.raw")
    renameat2(d / "frames/.x", d / "frames/1.raw", NOREPLACE)
    data.write(FRAME_BYTES, new_content())
    data.check()
    assert "1.raw" in os.listdir(d / "frames")


def test_what_cannot_be_removed(mounts, data):
    d = data.mount(mounts, expect_log=True)
    computed = ["dataset.json", "stack.raw", "csr/data.raw", "frames"]
    for name in computed + ([] if data.is_sparse else ["frames/1.defined", "values/000001.values"]):
        with pytest.raises(OSError) as raised:
            os.unlink(d / name)
        assert raised.value.errno in [errno.EPERM, errno.EOPNOTSUPP, errno.EISDIR, errno.EACCES], name
    with refused(errno.ENOENT):
        os.unlink(d / "frames/77.raw")
    data.check()


def test_rm_of_everything(mounts, sparse):
    """As somebody does who has forgotten that it is mounted: the file is what it was."""
    d = sparse.mount(mounts, expect_log=True)
    before = sparse.path.read_bytes()
    assert os.system(f"rm -rf {d} 2>/dev/null") != 0
    assert not os.listdir(d / "frames") and (d / "stack.raw").read_bytes() == sparse.array.tobytes()
    sparse.mounted.unmount()
    assert sparse.path.read_bytes() == before


def test_no_more_than_there_is_room_for(mounts, sparse):
    d = sparse.mount(mounts, "staging_size=200", expect_log=True)
    os.unlink(d / "frames/0.raw")
    with refused(errno.ENOSPC):
        for n in 1, 2, 3:
            os.unlink(d / f"frames/{n}.raw")
    assert (d / "frames/3.raw").read_bytes() == sparse.array[3].tobytes()


def test_in_a_folder(mounts, tmp_path):
    """As long as the file is open."""
    folder = tmp_path / "runs"
    folder.mkdir()
    for name in "a.h5", "b.h5":
        with h5py.File(folder / name, "w") as f:
            f["d"] = np.arange(24, dtype="<u2").reshape(2, 3, 4)
    mount = mounts(folder, "default", "max_open=1")
    frame = mount / "a.h5/d/frames/1.raw"
    os.unlink(frame)
    assert not frame.exists()
    deadline = time.monotonic() + 300
    while not frame.exists():  # the other one closes it, as soon as the kernel has let go of it
        assert (mount / "b.h5/d/frames/1.raw").read_bytes() == np.arange(12, 24, dtype="<u2").tobytes()
        assert time.monotonic() < deadline
    os.unlink(frame)
    frame.write_bytes(bytes(24))
    mount.unmount()
    with h5py.File(folder / "a.h5") as f:
        assert not f["d"][1].any() and f["d"][0].any()


def test_strict(mounts, sparse):
    d = sparse.mount(mounts, "strict", expect_log=True)
    with refused(errno.EPERM):
        os.unlink(d / "frames/1.raw")
    sparse.check()
