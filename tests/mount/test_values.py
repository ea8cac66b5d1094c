"""What is written to values/N.values: other values for the elements of a frame that are defined."""
import errno
import mmap
import os

import numpy as np
import pytest

from conftest import wait_until
from model import refused
from test_writing import Data, do, sparse  # noqa: F401


def path_of(d, frame):
    return d / f"values/{frame:06}.values"


def give(sparse, frame, values, first=0):
    """What is to be there: these values from the first-th on."""
    mask = sparse.defined[frame].copy()
    now = sparse.array[frame][mask]
    now[first:first + len(values)] = values
    sparse.array[frame][mask] = now
    return now.tobytes()


def others(sparse, frame, seed=5):
    n = int(sparse.defined[frame].sum())
    assert n > 20
    return np.random.default_rng(seed).integers(1, 60000, n).astype("<u2")


WAYS = {
    "cp": "cp {new} {path}", "cp -a": "cp -a {new} {path}", "install": "install -m 600 {new} {path}",
    "dd": "dd if={new} of={path} bs=100 conv=notrunc status=none", "mv": "cp {new} {path}.x && mv {path}.x {path}",
    "cat": "cat {new} >{path}",
}


@pytest.mark.parametrize("way", WAYS)
def test_all_of_a_frame(mounts, sparse, tmp_path, way):
    d = sparse.mount(mounts)
    values = others(sparse, 2)
    (tmp_path / "new").write_bytes(values.tobytes())
    selection = (d / "frames/2.defined").read_bytes()
    do(WAYS[way].format(new=tmp_path / "new", path=path_of(d, 2)))
    give(sparse, 2, values)
    assert (d / "frames/2.defined").read_bytes() == selection
    sparse.check()
    sparse.check_file(mounts)


@pytest.mark.parametrize("options", [("rw",), ("rw", "direct_io")])
def test_some_of_them(mounts, sparse, options):
    """Of the first and the last one a byte alone."""
    sparse.mounted = mounts(sparse.path, *options)
    d = sparse.d = sparse.mounted / "sparse"
    new = others(sparse, 3)
    with open(path_of(d, 3), "r+b", buffering=0) as f:
        before = f.read()
        f.seek(5)
        f.write(new.tobytes()[5:21])
        os.fsync(f.fileno())
        now = before[:5] + new.tobytes()[5:21] + before[21:]
        give(sparse, 3, np.frombuffer(now, "<u2"))
        assert (d / "frames/3.raw").read_bytes() == sparse.array[3].tobytes()
    sparse.check()


def test_through_a_map(mounts, sparse):
    d = sparse.mount(mounts)
    new = others(sparse, 2)[:3]
    with open(path_of(d, 2), "r+b") as f, mmap.mmap(f.fileno(), 0) as mapped:
        mapped[4:10] = new.tobytes()
        mapped.flush()
    give(sparse, 2, new, 2)
    sparse.check()


def test_it_is_durable(mounts, sparse):
    d = sparse.mount(mounts, "commit_interval=3600")
    new = others(sparse, 2)
    with open(path_of(d, 2), "r+b") as f:
        f.write(new.tobytes())
        f.flush()
        os.fsync(f.fileno())
        image = (sparse.mounted / ".sparsefs/image.h5").read_bytes()
    copy = sparse.path.with_name("copy.h5")
    copy.write_bytes(image)
    expected = give(sparse, 2, new)
    assert path_of(mounts(copy) / "sparse", 2).read_bytes() == expected


def test_with_a_selection(mounts, sparse):
    """First where they are, then what they are."""
    d = sparse.mount(mounts)
    (d / "frames/2.defined").write_bytes((d / "frames/3.defined").read_bytes())
    path_of(d, 2).write_bytes(path_of(d, 3).read_bytes())
    sparse.array[2], sparse.defined[2] = sparse.array[3], sparse.defined[3]
    sparse.check()


def test_of_nothing(mounts, sparse):
    """An empty file is that of a frame without elements."""
    d = sparse.mount(mounts)
    os.truncate(path_of(d, 2), 0)
    path_of(d, 3).write_bytes(b"")
    sparse.erase(2 * sparse.array[0].size, 4 * sparse.array[0].size)
    sparse.check()


@pytest.mark.parametrize("change", ["more", "fewer", "an odd byte", "some of a frame of none", "a new frame"])
def test_another_number_is_refused(mounts, sparse, change):
    d = sparse.mount(mounts, expect_log=True)
    values, frame = others(sparse, 2).tobytes(), 2
    if change == "some of a frame of none":
        os.truncate(d / "frames/2.raw", 0)
        sparse.erase(2 * sparse.array[0].size, 3 * sparse.array[0].size)
    bad = {"more": values + b"xx", "fewer": values[:-2], "an odd byte": values[:-1]}.get(change, values)
    if change == "a new frame":
        frame = len(sparse.array)
        with refused(errno.EINVAL, errno.EFBIG):
            path_of(d, frame).write_bytes(bad)
        assert not path_of(d, frame).exists()
    else:
        with refused(errno.EINVAL):
            path_of(d, frame).write_bytes(bad)
        wait_until(lambda: "the values of what is defined take" in sparse.mounted.log())
    sparse.check()
    sparse.check_file(mounts)


def test_what_cannot_be_written(mounts, tmp_path):
    """Of a dense dataset they are the bytes of frames/N.raw."""
    dense = Data(tmp_path, False)
    d = dense.mount(mounts)
    with pytest.raises(OSError) as raised:
        open(d / "values/000002.values", "r+b")
    assert raised.value.errno in (errno.EPERM, errno.EACCES)
    dense.check()
