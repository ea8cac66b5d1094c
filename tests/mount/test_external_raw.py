"""External raw data, against h5py: what is read of it, and which files are never opened for it."""
import contextlib
import errno
import json
import os
import subprocess
import time

import h5py
import numpy as np
import pytest

import files
from conftest import BUILD, START_SECONDS, Mount, let_in
from forging_fuse import forging
from silent_fuse import silent
from test_disk_errors import Failfs
from test_folder import NOBODY

UNLIMITED = h5py.h5f.UNLIMITED


def make(path, segments, shape, dtype="<u2", name="d", fill=None, max_shape=None):
    """segments: (name, offset, size) of each."""
    plist = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
    for file, offset, size in segments:
        plist.set_external(os.fsencode(file), offset, size)
    if fill is not None:
        plist.set_fill_value(np.array(fill, dtype))
    with h5py.File(path, "a") as f:
        h5py.h5d.create(f.id, name.encode(), h5py.h5t.py_create(np.dtype(dtype), logical=True),
                        h5py.h5s.create_simple(shape, max_shape), plist)
    return path


def by_library(path, name="d"):
    with h5py.File(path) as f:
        return f[name][()]


def check(mount, content, name="d"):
    """Whole, in frames, in other views, and in pieces read here and there."""
    root, whole, random = mount / name, content.tobytes(), np.random.default_rng(1)
    assert (root / "stack.raw").read_bytes() == whole
    frames = content if content.ndim > 2 else content[np.newaxis]
    for i in random.permutation(len(frames))[:20]:
        assert (root / f"frames/{i}.raw").read_bytes() == frames[i].tobytes(), i
    assert np.array_equal(np.load(root / "stack.npy"), content)
    fd = os.open(root / "stack.raw", os.O_RDONLY)
    for _ in range(50):
        at, n = random.integers(0, len(whole) + 1, 2)
        assert os.pread(fd, n, at) == whole[at:at + n]
    os.close(fd)


def is_refused(mount, why, name="d"):
    with pytest.raises(OSError) as raised:
        (mount / name / "stack.raw").read_bytes()
    assert raised.value.errno == errno.EIO
    lines = [line for line in mount.log().splitlines() if f": /{name}: " in line]
    assert lines and all(why in line for line in lines), mount.log()


@pytest.mark.parametrize("dtype", ["<u2", ">u2", ">f8", "i1", "S5", [("a", "<u2"), ("b", ">f4")]], ids=str)
@pytest.mark.parametrize("shape", [(1000,), (30, 50), (7, 11, 13), (3, 4, 5, 6), (3,)], ids=str)
def test_types_and_shapes(mounts, tmp_path, shape, dtype):
    dtype = np.dtype(dtype)
    n = int(np.prod(shape)) * dtype.itemsize
    raw = np.random.default_rng(0).integers(1, 100, n, "u1").tobytes()
    (tmp_path / "a b.raw").write_bytes(b"head" + raw[:n // 3])
    (tmp_path / "b.raw").write_bytes(raw[n // 3:])
    path = make(tmp_path / "x.h5", [("a b.raw", 4, n // 3), ("b.raw", 0, n - n // 3)], shape, dtype)
    content = np.frombuffer(raw, dtype).reshape(shape)
    assert by_library(path).tobytes() == raw
    for how in "ro", "rw", "direct_io":
        mount = mounts(path, how)
        check(mount, content)
        assert json.loads((mount / "d/dataset.json").read_text())["layout"] == "external"
        mount.unmount()


@pytest.mark.parametrize("options", ["ro", "rw", "follow=0.2"])
def test_written_by_others(mounts, tmp_path, options):
    """In place, while nothing in the HDF5 file tells: whoever opens a view afterwards reads what is there. Also what is
    made of it, and its size."""
    shape = (9, 300, 200)
    raw, path = tmp_path / "a.raw", tmp_path / "x.h5"
    raw.write_bytes(bytes(2 * 9 * 300 * 200))
    make(path, [("a.raw", 0, UNLIMITED)], shape)
    make(path, [("a.raw", 0, UNLIMITED)], (3, 4), name="table")
    mount = mounts(path, options, "views=all")
    for value in 0, 7, 1000, 65535, 7:
        content = np.full(shape, value, "<u2")
        with open(raw, "r+b") as f:
            f.write(content.tobytes())
        check(mount, content)
        assert np.array_equal(np.load(mount / "d/npy/000008.npy"), content[8])
        table = (mount / "table/table.csv").read_text()
        assert [line.split(",")[-1] for line in table.split()[-3:]] == [str(value)] * 3
        assert (mount / "table/table.csv").stat().st_size == len(table)


SURE_SECONDS = 3.1  # after which the times of a file tell that it is as it was
DUE_SECONDS = 0.1   # after which what is unchanged is read again nevertheless


def make_tables(folder):
    """One in a file, one in some files, one in very many, and one in two by turns."""
    files_of = {"one": ["one"] * 1, "some": [f"some{i}" for i in range(20)],
                "many": [f"many{i}" for i in range(300)], "turns": ["one", "some0"] * 150}
    for name, raw in files_of.items():
        for file in raw:
            (folder / file).write_bytes(bytes(600))
        make(folder / "x.h5", [(file, 0, 600 // len(raw)) for file in raw], (30, 20), "u1", name=name)
    return folder / "x.h5", files_of


def test_what_others_do_not_write_stays_in_the_cache(mounts, tmp_path):
    path, names = make_tables(tmp_path)
    mount = mounts(path, "ro,views=all")
    time.sleep(SURE_SECONDS)

    def misses():
        return json.loads((mount / ".sparsefs/stats.json").read_text())["cache_misses"]

    for name in names:
        begin, before = time.monotonic(), misses()
        for _ in range(200):
            assert (mount / name / "frames/0.raw").read_bytes() == bytes(600)
        assert misses() - before <= 2 + (time.monotonic() - begin) / DUE_SECONDS, name


def test_written_by_others_in_many_files_or_by_mappings(mounts, tmp_path):
    """Shown a little later; the times of a file that was mapped tell nothing of what is written after they were set."""
    path, names = make_tables(tmp_path)
    mount = mounts(path, "ro,views=all")
    mapped = np.memmap(tmp_path / "one", "u1", "r+")
    for value in 1, 2:
        mapped[:] = value
        for file in names["some"][1:] + names["many"]:
            with open(tmp_path / file, "r+b") as raw:
                raw.write(bytes([value]) * 600)
        deadline = time.monotonic() + START_SECONDS
        for name in "one", "some", "many":
            at = -1 if name == "some" else 0
            while (mount / name / "frames/0.raw").read_bytes()[at] != value:
                assert time.monotonic() < deadline, name
            table = mount / name / "table.csv"
            while name != "one" and table.read_text().rstrip().split(",")[-1] != str(value):
                assert time.monotonic() < deadline, name
        time.sleep(SURE_SECONDS)


def test_a_file_that_comes_later(mounts, tmp_path):
    mount = mounts(make(tmp_path / "x.h5", [("a.raw", 0, 24)], (2, 3, 4), "u1"), "ro", expect_log=True)
    for _ in range(2):
        with pytest.raises(OSError):
            (mount / "d/stack.raw").read_bytes()
    (tmp_path / "a.raw").write_bytes(bytes(range(24)))
    assert (mount / "d/stack.raw").read_bytes() == bytes(range(24))


@pytest.mark.parametrize("cut", [0, 1, 999, 100_001, 2_500_000, 5_999_999])
@pytest.mark.parametrize("kind", ["one", "unlimited", "many", "odd"])
def test_segments_and_short_files(mounts, tmp_path, kind, cut):
    """Larger than a piece of the cache, in segments of all sizes; behind the end of a file zeros are read."""
    data = files.integers((30, 250, 400), "<u2")
    raw = data.tobytes()
    if kind in ("one", "unlimited"):
        (tmp_path / "all.raw").write_bytes(b"x" * 12345 + raw[:cut])
        segments = [("all.raw", 12345, len(raw) if kind == "one" else UNLIMITED)]
    else:
        size = 99_999 if kind == "odd" else 200_000
        segments = []
        for i, at in enumerate(range(0, len(raw), size)):
            part = raw[at:at + size]
            # One file has two segments, in the other order.
            file, offset = (f"{i}.raw", i) if i < 2 or i > 3 else ("both.raw", (3 - i) * size)
            with open(tmp_path / file, "r+b" if (tmp_path / file).exists() else "w+b") as out:
                out.seek(offset)
                out.write(part if i % 7 else part[:cut % size])
            segments.append((file, offset, len(part)))
    path = make(tmp_path / "x.h5", segments, data.shape)
    mount = mounts(path)
    check(mount, by_library(path))


def test_odd_spaces(mounts, tmp_path):
    """A scalar, nothing at all, an axis without a limit, and an empty list is no such dataset."""
    (tmp_path / "r.raw").write_bytes(bytes(range(200)))
    path = tmp_path / "x.h5"
    make(path, [("r.raw", 3, 8)], (), "<i8", "scalar")
    make(path, [("r.raw", 0, 10)], (0, 4), "<u2", "empty")
    make(path, [("r.raw", 10, UNLIMITED)], (5, 3), "<u2", "growing", max_shape=(h5py.h5s.UNLIMITED, 3))
    mount = mounts(path)
    number = by_library(path, "scalar")
    assert (mount / "scalar/value.txt").read_text() == f"{number}\n"
    assert (mount / "scalar/frames/0.raw").read_bytes() == number.tobytes()
    assert (mount / "empty/stack.raw").read_bytes() == b""
    check(mount, by_library(path, "growing"), "growing")
    assert (mount / "growing/value.txt").read_text().split() == [str(n) for n in
                                                                 by_library(path, "growing").ravel()]


def fails(error, action, *arguments):
    with pytest.raises(OSError) as raised:
        action(*arguments)
    assert raised.value.errno == error


def put(path, at, data):
    fd = os.open(path, os.O_WRONLY)
    try:
        assert os.pwrite(fd, data, at) == len(data)
        os.fsync(fd)
    finally:
        os.close(fd)


@pytest.mark.parametrize("dtype", ["<u2", ">f8", "S5", [("a", "<u2"), ("b", ">f4")]], ids=str)
@pytest.mark.parametrize("shape", [(1000,), (30, 50), (7, 11, 13), (3, 4, 5, 6)], ids=str)
def test_they_are_written(mounts, tmp_path, shape, dtype):
    """Ranges that begin and end anywhere, over the ends of segments: what h5py reads, and nothing beside it."""
    dtype, random = np.dtype(dtype), np.random.default_rng(3)
    n = int(np.prod(shape)) * dtype.itemsize
    model, at = bytearray(random.integers(1, 100, n, "u1").tobytes()), n // 3
    (tmp_path / "a b.raw").write_bytes(b"head" + model[:at] + b"tail")
    (tmp_path / "b.raw").write_bytes(model[at:] + b"end")
    path = make(tmp_path / "x.h5", [("a b.raw", 4, at), ("b.raw", 0, n - at)], shape, dtype)
    mount = mounts(path, "rw")
    for _ in range(40):
        first, last = sorted(random.integers(0, n + 1, 2))
        data = random.integers(1, 100, last - first, "u1").tobytes()
        put(mount / "d/stack.raw", first, data)
        model[first:last] = data
        assert (tmp_path / "a b.raw").read_bytes() == b"head" + model[:at] + b"tail"
        assert (tmp_path / "b.raw").read_bytes() == model[at:] + b"end"
    check(mount, np.frombuffer(bytes(model), dtype).reshape(shape))
    mount.unmount()
    assert by_library(path).tobytes() == model


@pytest.mark.parametrize("how", ["rw", "rw,direct_io", "default"])
def test_frames_of_many_segments(mounts, tmp_path, how):
    """Pieces of several MiB in 64 files and more, read before and after; what was erased is the fill value."""
    data = files.integers((30, 250, 400), "<u2")
    raw, size, segments = data.tobytes(), 70_001, []
    for i, at in enumerate(range(0, len(raw), size)):
        (tmp_path / f"{i}.raw").write_bytes(raw[at:at + size])
        segments.append((f"{i}.raw", 0, size))
    path = make(tmp_path / "x.h5", segments, data.shape, fill=9)
    mount = mounts(path, *how.split(","))
    check(mount, data)
    for i in (0, 29, 13, 14):
        data[i] = files.integers((250, 400), "<u2") + i
        (mount / f"d/frames/{i}.raw").write_bytes(data[i].tobytes())
        check(mount, data)
    os.truncate(mount / "d/frames/5.raw", 30)
    data[5].reshape(-1)[15:] = 9
    np.save(mount / "d/npy/000007.npy", data[6])
    data[7] = data[6]
    check(mount, data)
    mount.unmount()
    assert np.array_equal(by_library(path), data)


def test_files_that_are_too_short_grow(mounts, tmp_path):
    """To the last byte that is written, as with libhdf5; what lies between reads as zeros."""
    for folder in "ours", "theirs":
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "r.raw").write_bytes(b"ab")
        make(tmp_path / folder / "x.h5", [("r.raw", 1, 600)], (3, 10, 10))
    mount = mounts(tmp_path / "ours/x.h5", "rw")
    assert (mount / "d/frames/1.raw").read_bytes() == bytes(200)
    put(mount / "d/frames/1.raw", 20, b"x" * 40)
    with h5py.File(tmp_path / "theirs/x.h5", "r+") as f:
        os.chdir(tmp_path / "theirs")
        f["d"][1, 1:3] = np.frombuffer(b"x" * 40, "<u2").reshape(2, 10)
        f.flush()
    assert (tmp_path / "ours/r.raw").read_bytes() == (tmp_path / "theirs/r.raw").read_bytes()
    assert (mount / "d/frames/0.raw").read_bytes() == b"b" + bytes(199)
    (mount / "d/frames/2.raw").write_bytes(bytes(200))
    assert (tmp_path / "ours/r.raw").stat().st_size == 601


@pytest.fixture
def raw_disk(mounts, tmp_path):
    """A mount, and the disk that only the bytes of its dataset are on: 60 of them in raw.raw."""
    disk = Failfs(tmp_path / "disk", errno.ENOSPC)
    (tmp_path / "disk/raw.raw").write_bytes(bytes(range(60)))
    path = make(tmp_path / "x.h5", [(tmp_path / "disk/raw.raw", 0, 60)], (3, 2, 5))
    mount = mounts(path, "rw", f"external_files={tmp_path / 'disk'}", expect_log=True)
    yield mount, disk, tmp_path / "disk/raw.raw"
    mount.destroy()
    disk.end()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may mount disks")
def test_a_full_disk(raw_disk):
    """The error is the writer's; what was there stays, and what comes later is written."""
    mount, disk, raw = raw_disk
    disk.fail()
    fails(errno.ENOSPC, put, mount / "d/frames/1.raw", 0, b"1" * 20)
    assert "/d: chunk (0,0,0): external raw data" in mount.log() and "No space left" in mount.log()
    disk.recover()
    assert (mount / "d/frames/1.raw").read_bytes() == raw.read_bytes()[20:40] == bytes(range(20, 40))
    put(mount / "d/frames/1.raw", 0, b"1" * 20)
    assert raw.read_bytes() == bytes(range(20)) + b"1" * 20 + bytes(range(40, 60))


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may mount disks")
def test_they_are_synced(raw_disk):
    """Only a sync of the file itself can fail here: fsync tells of it, once."""
    mount, disk, _ = raw_disk
    with open(mount / "d/frames/1.raw", "r+b", buffering=0) as frame:
        disk.fail(after=1)
        frame.write(b"1" * 20)
        fails(errno.ENOSPC, os.fsync, frame.fileno())
        assert "external raw data may be lost" in mount.log()
        os.fsync(frame.fileno())
        disk.recover()
        os.pwrite(frame.fileno(), b"2", 0)
        disk.fail()
        fails(errno.ENOSPC, os.fsync, frame.fileno())
        disk.recover()
        os.fsync(frame.fileno())


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may mount disks")
@pytest.mark.parametrize("what", ["x.h5", ""])
def test_the_end_of_a_mount_tells_of_what_is_lost(tmp_path, what):
    """Of a file, or of a folder, by its exit code: here nobody but the end syncs."""
    disk = Failfs(tmp_path / "disk", errno.EIO)
    (tmp_path / "folder").mkdir()
    (tmp_path / "disk/raw.raw").write_bytes(bytes(60))
    make(tmp_path / "folder/x.h5", [(tmp_path / "disk/raw.raw", 0, 60)], (3, 2, 5))
    mount = Mount(tmp_path / "folder" / what, tmp_path / "mnt", "default",
                  f"commit_interval=0,external_files={tmp_path / 'disk'}")
    try:
        disk.fail(after=1)
        with open(mount / ("d/frames/1.raw" if what else "x.h5/d/frames/1.raw"), "r+b", buffering=0) as frame:
            os.pwrite(frame.fileno(), b"1" * 20, 0)
        assert mount.umount() and mount.wait() == 2
        assert "external raw data may be lost" in mount.log()
    finally:
        mount.destroy()
        disk.end()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may mount disks")
def test_who_wrote_what_is_lost_is_told(mounts, tmp_path):
    """Also if another one, who writes another dataset, syncs first; by its close as well. Who comes later is not."""
    disk = Failfs(tmp_path / "disk", errno.ENOSPC)
    for name, raw in ("d", tmp_path / "disk/raw.raw"), ("e", tmp_path / "sound.raw"):
        raw.write_bytes(bytes(60))
        path = make(tmp_path / "x.h5", [(raw, 0, 60)], (3, 2, 5), name=name)
    mount = mounts(path, "rw", f"external_files={tmp_path / 'disk'}", expect_log=True)
    with contextlib.ExitStack() as stack:
        first, last, other = (stack.enter_context(open(mount / name, "r+b", buffering=0))
                              for name in ("d/frames/0.raw", "d/frames/1.raw", "e/frames/1.raw"))
        disk.fail(after=2)
        os.pwrite(first.fileno(), b"1" * 20, 0)
        os.pwrite(last.fileno(), b"1" * 20, 0)
        os.pwrite(other.fileno(), b"2" * 20, 0)
        fails(errno.ENOSPC, os.fsync, other.fileno())
        disk.recover()
        with open(mount / "d/frames/2.raw", "r+b", buffering=0) as late:
            os.fsync(late.fileno())
        for _ in range(2):
            os.fsync(other.fileno())
        fails(errno.ENOSPC, os.fsync, first.fileno())
        os.fsync(first.fileno())
        fails(errno.ENOSPC, last.close)
    mount.destroy()
    disk.end()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may mount disks")
def test_many_of_them_are_synced(mounts, tmp_path):
    """Of more files than are remembered, too: the write that is one too many syncs the first, which is no error of it.
    All that write to the HDF5 file are told once."""
    disk = Failfs(tmp_path / "disk", errno.EIO)
    first = tmp_path / "disk/first.raw"
    first.write_bytes(bytes(20))
    segments = [(first, 0, 20)]
    for i in range(70):
        (tmp_path / f"{i}.raw").write_bytes(bytes(20))
        segments.append((f"{i}.raw", 0, 20))
    path = make(tmp_path / "x.h5", segments, (71, 2, 5))
    mount = mounts(path, "rw", "direct_io", f"external_files={tmp_path / 'disk'}", expect_log=True)
    disk.fail(after=1)
    fds = [os.open(mount / f"d/frames/{i}.raw", os.O_WRONLY) for i in range(71)]
    for i in range(71):
        os.write(fds[i], b"1" * 20)
    fails(errno.EIO, os.fsync, fds[64])
    os.fsync(fds[64])
    fails(errno.EIO, os.fsync, fds[0])
    os.close(fds[0])
    for i in range(1, 71):
        fails(errno.EIO, os.close, fds[i]) if i != 64 else os.close(fds[i])
    disk.recover()
    assert (mount / "d/stack.raw").read_bytes() == b"1" * 20 * 71
    mount.destroy()
    disk.end()


def test_more_can_be_written(mounts, tmp_path):
    """The last frame, and none behind it: such datasets do not grow through a mount."""
    (tmp_path / "r.raw").write_bytes(bytes(100))
    path = make(tmp_path / "x.h5", [("r.raw", 0, UNLIMITED)], (3, 2, 5), max_shape=(UNLIMITED, 2, 5))
    mount = mounts(path, "rw")
    (mount / "d/frames/2.raw").write_bytes(b"2" * 20)
    fails(errno.EFBIG, (mount / "d/frames/3.raw").write_bytes, b"3" * 20)
    assert (tmp_path / "r.raw").read_bytes() == bytes(40) + b"2" * 20 + bytes(40)


def test_refused_writes_change_nothing(mounts, tmp_path):
    """Of several files one cannot be written: none is, and it is still read."""
    raw = bytes(range(100))
    os.mkdir(tmp_path / "in")
    (tmp_path / "in/first.raw").write_bytes(raw)
    (tmp_path / "in/second.raw").write_bytes(raw)
    os.link(tmp_path / "in/second.raw", tmp_path / "in/name.raw")
    (tmp_path / "out.raw").write_bytes(raw)
    (tmp_path / "in/book.h5").write_bytes(b"\x89HDF\r\n\x1a\n" + raw)
    (tmp_path / "in/block.mat").write_bytes(bytes(1024) + b"\x89HDF\r\n\x1a\n" + raw)
    cases = {"gone": ("gone.raw", "No such file"), "out": ("../out.raw", "leads out"),
             "names": ("name.raw", "it has more names than one"), "self": ("x.h5", "it is the HDF5 file itself"),
             "journal": ("x.h5.journal", "belongs to it"), "hdf5": ("book.h5", "it is an HDF5 file"),
             "block": ("block.mat", "it is an HDF5 file")}
    path = tmp_path / "in/x.h5"
    make(path, [("first.raw", 0, 100)], (1, 50), name="sound")
    for name, (file, _) in cases.items():
        make(path, [("first.raw", 0, 20), (file, 0, 40)], (3, 2, 5), name=name)
    mount = mounts(path, "rw", expect_log=True)
    os.mkdir(mount / "group")
    fd = os.open(mount.root, os.O_RDONLY)
    os.fsync(fd)
    os.close(fd)
    assert (tmp_path / "in/x.h5.journal").exists()
    before = {file.name: file.read_bytes() for file in (tmp_path / "in").iterdir()}
    for name, (_, why) in cases.items():
        for view, at, n in ("stack.raw", 0, 60), ("stack.raw", 10, 20), ("frames/1.raw", 0, 20):
            fails(errno.EIO, put, mount / name / view, at, b"1" * n)
        fails(errno.EIO, os.truncate, mount / name / "stack.raw", 4)
        lines = [line for line in mount.log().splitlines() if f": /{name}: " in line]
        assert lines and all(why in line for line in lines), mount.log()
        (mount / name / "frames/0.raw").write_bytes(raw[:20])  # that one is in the other file
    mount.unmount()
    (tmp_path / "in/x.h5.journal").unlink(missing_ok=True)
    for file in (tmp_path / "in").iterdir():
        if file.name not in ("x.h5", "x.h5.commits"):
            assert file.read_bytes() == before[file.name], file
    assert (tmp_path / "out.raw").read_bytes() == raw


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files away")
def test_whose_files_are_written(mounts, tmp_path):
    """Of the owner of the HDF5 file, unless that is root's; by all who may write that, and have chosen the names in it;
    with allow_other by no more than the file itself."""
    raw = bytes(range(60))
    path = make(tmp_path / "x.h5", [("r.raw", 0, 60)], (3, 2, 5))

    def write(options, owner, raw_owner, mode, why, bits=0o664):
        (tmp_path / "r.raw").write_bytes(raw)
        os.chown(path, owner, owner)
        os.chmod(path, bits)
        os.chown(tmp_path / "r.raw", raw_owner, owner)
        os.chmod(tmp_path / "r.raw", mode)
        mount = mounts(path, "rw", *options, expect_log=True)
        if why:
            fails(errno.EIO, put, mount / "d/frames/1.raw", 0, b"1" * 20)
            assert why in mount.log()
            assert (tmp_path / "r.raw").read_bytes() == raw
        else:
            put(mount / "d/frames/1.raw", 0, b"1" * 20)
            assert (tmp_path / "r.raw").read_bytes() == raw[:20] + b"1" * 20 + raw[40:]
        mount.unmount()

    let_in(tmp_path)
    chosen = "who may write the HDF5 file may not write it"
    write([], 1000, 1000, 0o600, None, 0o644)
    write([], 1000, 1000, 0o600, chosen)
    write([], 1000, 1000, 0o664, None)
    write([], 1000, 0, 0o666, "it is not of the owner of the HDF5 file")
    write([], 1000, 1001, 0o666, "it is not of the owner of the HDF5 file")
    write([], 0, 1001, 0o600, None, 0o644)
    write([], 0, 1001, 0o600, chosen)
    write([], 0, 0, 0o600, chosen)
    write([], 0, 0, 0o644, chosen)
    write([], 0, 1001, 0o664, None)
    write([], 0, 0, 0o664, chosen, 0o666)
    write([], 0, 0, 0o666, None, 0o666)
    write(["allow_other"], 1000, 1000, 0o664, None)
    write(["allow_other"], 1000, 1000, 0o644, "others would write")
    write(["allow_other"], 1000, 1000, 0o646, "others would write")


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files away")
@pytest.mark.parametrize("mode, may", [(0o755, True), (0o750, False), (0o770, False)])
def test_raw_data_in_a_closed_folder_is_not_written_for_who_may_write_the_file(mounts, tmp_path, mode, may):
    folder = tmp_path / "below"
    folder.mkdir()
    raw = folder / "r.raw"
    raw.write_bytes(bytes(60))
    path = make(tmp_path / "x.h5", [("below/r.raw", 0, 60)], (3, 2, 5))
    os.chown(path, 0, 1000)
    os.chmod(path, 0o664)
    os.chmod(raw, 0o666)
    os.chmod(folder, mode)
    mount = mounts(path, "rw", expect_log=True)
    if may:
        put(mount / "d/frames/1.raw", 0, b"1" * 20)
    else:
        fails(errno.EIO, put, mount / "d/frames/1.raw", 0, b"1" * 20)
        assert "may not write it, or find it in its folder" in mount.log()
    assert (raw.read_bytes() != bytes(60)) is may


def test_missing_files(mounts, tmp_path):
    data = files.integers((4, 5, 6), "<u2")
    raw = data.tobytes()
    (tmp_path / "first.raw").write_bytes(raw[:100])
    path = make(tmp_path / "x.h5", [("first.raw", 0, 100), ("gone.raw", 0, len(raw) - 100)], data.shape,
                fill=77)
    with pytest.raises(OSError):
        by_library(path)
    mount = mounts(path, expect_log=True)
    is_refused(mount, "gone.raw cannot be read: No such file")
    # It may come later.
    (tmp_path / "gone.raw").write_bytes(raw[100:])
    check(mount, data)
    (tmp_path / "gone.raw").unlink()
    filled = mounts(path, "missing=fill")
    shown = data.ravel().copy()
    shown[50:] = 77
    check(filled, shown.reshape(data.shape))


def outside_names(folder):
    """How a name can lead out of the folder, to a file that could be read."""
    os.symlink(folder / "out/secret.raw", folder / "in/link.raw")
    os.symlink("../out/secret.raw", folder / "in/relative.raw")
    os.symlink(folder / "out", folder / "in/way")
    os.symlink("/proc/self/root", folder / "in/magic")
    (folder / "in/below").mkdir()
    return ["../out/secret.raw", str(folder / "out/secret.raw"), "link.raw", "relative.raw", "way/secret.raw",
            "below/../../out/secret.raw", f"magic{folder}/out/secret.raw"]


@pytest.fixture
def outside(tmp_path):
    (tmp_path / "in").mkdir()
    (tmp_path / "out").mkdir()
    data = files.integers((2, 3, 4), "<u2")
    (tmp_path / "out/secret.raw").write_bytes(data.tobytes())
    names = outside_names(tmp_path)
    for i, name in enumerate(names):
        make(tmp_path / "in/x.h5", [(name, 0, 48)], (2, 3, 4), name=f"d{i}")
    return tmp_path / "in/x.h5", names, data


def test_what_leads_out_is_refused(mounts, outside):
    path, names, _ = outside
    for options in ((), ("missing=fill",), ("external_links",)):
        mount = mounts(path, *options, expect_log=True)
        for i in range(len(names)):
            is_refused(mount, "is refused: it leads out of the folder of the HDF5 file (external_files=DIR",
                       f"d{i}")
        mount.unmount()


@pytest.mark.parametrize("allowed", ["out", "", "/"])
def test_what_is_allowed_besides(mounts, outside, allowed):
    """But on the way there no other mount is entered, as /proc is one."""
    path, names, data = outside
    mount = mounts(path, f"external_files={path.parents[1] / allowed}", expect_log=allowed != "/")
    for i, name in enumerate(names):
        if name.startswith("magic") and allowed != "/":
            is_refused(mount, "leads out", f"d{i}")
        else:
            check(mount, data, f"d{i}")


def test_another_folder_is_not_allowed(mounts, outside, tmp_path):
    path, names, _ = outside
    (tmp_path / "ou").mkdir()
    mount = mounts(path, f"external_files={tmp_path / 'ou'}", expect_log=True)
    for i in range(len(names)):
        is_refused(mount, "leads out", f"d{i}")


def test_what_the_environment_names(mounts, outside, tmp_path):
    """Who runs the daemon says where to look; not what lies above."""
    path, _, data = outside
    make(path, [("secret.raw", 0, 48)], (2, 3, 4), name="plain")
    make(path, [("../out/../in/x.h5", 0, 48)], (2, 3, 4), name="back")
    for prefix in (str(tmp_path / "out"), "${ORIGIN}/../out"):
        mount = mounts(path, environment={"HDF5_EXTFILE_PREFIX": prefix}, expect_log=True)
        check(mount, data, "plain")
        assert len((mount / "back/stack.raw").read_bytes()) == 48
        mount.unmount()
    make(path, [("../other.raw", 0, 48)], (2, 3, 4), name="above")
    (tmp_path / "other.raw").write_bytes(bytes(100))
    mount = mounts(path, environment={"HDF5_EXTFILE_PREFIX": str(tmp_path / "out")}, expect_log=True)
    is_refused(mount, "leads out", "above")


@pytest.mark.parametrize("what", ["file", "folder", "prefix"])
def test_a_folder_that_becomes_a_link(mounts, tmp_path, what):
    """The folder is the one that the file was in when it was opened, whatever has its name by now."""
    data = files.integers((2, 3, 4), "<u2")
    for name in "w/p", "out":
        (tmp_path / name).mkdir(parents=True)
    (tmp_path / "out/secret.raw").write_bytes(data.tobytes())
    (tmp_path / "w/p/own.raw").write_bytes(data.tobytes())
    path = tmp_path / "w/p/x.h5"
    for name in "secret", "own":
        make(path, [(f"{name}.raw", 0, 48)], (2, 3, 4), name=name)
        make(path, [(tmp_path / f"w/p/{name}.raw", 0, 48)], (2, 3, 4), name=f"{name}_absolute")
    mount = mounts(path.parents[1] if what == "folder" else path, expect_log=True,
                   environment={"HDF5_EXTFILE_PREFIX": "${ORIGIN}"} if what == "prefix" else None)
    at = os.open(mount / ("p/x.h5" if what == "folder" else "."), os.O_RDONLY | os.O_DIRECTORY)

    def read(dataset):
        fd = os.open(f"{dataset}/stack.raw", os.O_RDONLY, dir_fd=at)
        try:
            return os.read(fd, 48)
        finally:
            os.close(fd)

    try:
        fails(errno.EIO, read, "secret")
        os.rename(tmp_path / "w/p", tmp_path / "w/q")
        (tmp_path / "w/p").symlink_to("../out")
        for name in "secret", "secret_absolute":
            with pytest.raises(OSError):
                read(name)
        if what != "folder":
            assert read("own") == read("own_absolute") == data.tobytes()
    finally:
        os.close(at)


def refused_stacks(mount, *names):
    """How many cannot be read."""
    command = ["cat", *(mount / name / "stack.raw" for name in names)]
    reading = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    try:
        said = reading.communicate(timeout=60)[1]  # only what waits for good takes so long
    except subprocess.TimeoutExpired:
        reading.kill()
        mount.give_up()
    return said.count("Input/output error")


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may mount file systems")
@pytest.mark.parametrize("external", [False, True])
def test_what_does_not_answer_outside(mounts, tmp_path, external):
    """Nobody asks a file system that the file leads to, unless it is allowed."""
    for name in "in", "other":
        (tmp_path / name).mkdir()
    os.symlink("../silent", tmp_path / "in/way")
    os.symlink(tmp_path / "silent", tmp_path / "in/absolute")
    names = [str(tmp_path / "silent/x.raw"), "../silent/x.raw", "way/x.raw", "absolute/x.raw", "../silent"]
    path = tmp_path / "in/x.h5"
    for i, name in enumerate(names):
        make(path, [(name, 0, 48)], (2, 3, 4), name=f"d{i}")
    with h5py.File(path, "a", libver="latest") as f:
        f["link"] = h5py.ExternalLink(names[0], "/")
        layout = h5py.VirtualLayout((2, 3, 4), "<u2")
        layout[...] = h5py.VirtualSource(names[0], "d", (2, 3, 4))
        f.create_virtual_dataset("virtual", layout)
    with silent(tmp_path / "silent"):
        options = (f"external_files={tmp_path / 'other'}",) if external else ()
        mount = mounts(path, *options, expect_log=True)
        assert refused_stacks(mount, *(f"d{i}" for i in range(5)), "virtual") == 6
        assert os.readlink(mount / "link").startswith("external:")
        for i in range(5):
            is_refused(mount, "leads out", f"d{i}")


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may mount file systems")
@pytest.mark.parametrize("for_all", [True, False])
def test_what_another_user_has_mounted_beside_the_file(mounts, tmp_path, for_all):
    """It need not answer: nobody asks it, unless it is allowed by name. Root's is asked."""
    data, path = files.integers((2, 3, 4), "<u2"), tmp_path / "x.h5"
    names = ["forged/x.raw", str(tmp_path / "silent/x.raw"), "silent"]
    for i, name in enumerate(names):
        make(path, [(name, 0, 48)], (2, 3, 4), name=f"d{i}")
    with h5py.File(path, "a", libver="latest") as f:
        f["link"] = h5py.ExternalLink("silent/x.h5", "/")
        layout = h5py.VirtualLayout((2, 3, 4), "<u2")
        layout[...] = h5py.VirtualSource("silent/x.h5", "d", (2, 3, 4))
        f.create_virtual_dataset("virtual", layout)
    with silent(tmp_path / "silent", user=NOBODY, for_all=for_all):
        with forging(tmp_path / "forged", NOBODY, {"x.raw": data.tobytes()}):
            mount = mounts(path, expect_log=True)
            assert refused_stacks(mount, "d0", "d1", "d2", "virtual") == 4
            assert os.readlink(mount / "link").startswith("external:")
            is_refused(mount, "leads out", "d0")
            mount.unmount()
            mount = mounts(path, f"external_files={tmp_path / 'forged'}", expect_log=True)
            assert refused_stacks(mount, "d0", "d1") == 1
            mount.unmount()
        with forging(tmp_path / "forged", 0, {"x.raw": data.tobytes()}):
            mount = mounts(path, expect_log=True)
            assert refused_stacks(mount, "d0", "d1") == 1
            mount.unmount()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may mount file systems")
def test_names_of_folders_behind_other_mounts(mounts, tmp_path):
    """A folder is found by the name that it was given, whatever is passed on the way, and by its own. The daemon knows
    a file by its own only."""
    data = files.integers((2, 3, 4), "<u2")
    disks = [tmp_path / "home", tmp_path / "data"]
    for disk in disks:
        disk.mkdir()
        subprocess.run(["mount", "-t", "tmpfs", "tmpfs", disk], check=True)
    try:
        for name in "run", "more":
            (tmp_path / "data" / name).mkdir()
            (tmp_path / "home" / name).symlink_to(tmp_path / "data" / name)
            (tmp_path / "data" / name / f"{name}.raw").write_bytes(data.tobytes())
        path = tmp_path / "data/run/x.h5"
        names = [tmp_path / top / name / f"{name}.raw" for top in ("home", "data") for name in ("run", "more")]
        for i, name in enumerate(names):
            make(path, [(str(name).replace("/run", "//./run"), 0, 48)], (2, 3, 4), name=f"d{i}")
        mount = mounts(tmp_path / "home/run/x.h5", f"external_files={tmp_path / 'home/more'}", expect_log=True)
        for i in 1, 2, 3:
            check(mount, data, f"d{i}")
        is_refused(mount, "leads out", "d0")
        mount.unmount()
        for i in range(len(names)):
            target = tmp_path / f"{i}.h5"
            subprocess.run([BUILD / "sparsectl", f"--external-files={tmp_path / 'home/more'}", "import",
                            f"{tmp_path / 'home/run/x.h5'}:/d{i}", f"{target}:/d"], check=True)
            check(mounts(target), data)
    finally:
        for disk in disks:
            subprocess.run(["umount", "-l", disk], check=True)


def test_what_is_no_file(mounts, tmp_path):
    """Nothing waits for who writes to a fifo, or is read from a device."""
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "folder").mkdir()
    os.symlink("loop", tmp_path / "loop")
    os.symlink("/dev/zero", tmp_path / "device")
    path = tmp_path / "x.h5"
    for name in "pipe", "folder", "loop", "device", "/dev/zero":
        make(path, [(name, 0, 48)], (2, 3, 4), name=name.replace("/", ""))
    mount = mounts(path, "external_files=/", expect_log=True)
    for name in "pipe", "folder", "device", "devzero":
        is_refused(mount, "it is no regular file", name)
    is_refused(mount, "too many files or links", "loop")


def test_pipes_behind_virtual_datasets(mounts, tmp_path):
    """What libhdf5 has to read does not make it open one: of another datatype, scalars, text."""
    os.mkfifo(tmp_path / "pipe")
    make(tmp_path / "s.h5", [(tmp_path / "pipe", 0, 48)], (2, 3, 4))
    make(tmp_path / "s.h5", [(tmp_path / "pipe", 0, 2)], (), name="scalar")
    path = tmp_path / "x.h5"
    with h5py.File(path, "w", libver="latest") as f:
        layout = h5py.VirtualLayout((2, 3, 4), "<u4")
        layout[...] = h5py.VirtualSource("s.h5", "d", (2, 3, 4))
        f.create_virtual_dataset("other", layout)
        layout = h5py.VirtualLayout((2, 3, 4), "<u2")
        layout[...] = h5py.VirtualSource("s.h5", "d", (2, 3, 4))
        f.create_virtual_dataset("same", layout)
    plist = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
    space = h5py.h5s.create(h5py.h5s.SCALAR)
    plist.set_virtual(space, b"s.h5", b"scalar", space)
    with h5py.File(path, "a", libver="latest") as f:
        h5py.h5d.create(f.id, b"scalar", h5py.h5t.STD_U16LE, space, plist)
    mount = mounts(path, expect_log=True)
    for name in "frames/0.raw", "stack.raw":
        for dataset in "other", "same", "scalar":
            with pytest.raises(OSError):
                (mount / dataset / name).read_bytes()
    with pytest.raises(OSError):
        (mount / "scalar/value.txt").read_bytes()
    assert "where libhdf5 has to read it" in mount.log() and "no regular file" in mount.log()


def test_elements_with_pointers(mounts, tmp_path):
    """libhdf5 would read them from whatever file is named."""
    os.mkfifo(tmp_path / "pipe")
    plist = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
    plist.set_external(os.fsencode(tmp_path / "pipe"), 0, 1000)
    path = tmp_path / "x.h5"
    with h5py.File(path, "w") as f:
        h5py.h5d.create(f.id, b"d", h5py.h5t.py_create(h5py.string_dtype(), logical=True),
                        h5py.h5s.create_simple((3,)), plist)
    mount = mounts(path, expect_log=True)
    with pytest.raises(OSError) as raised:
        (mount / "d/value.txt").read_bytes()
    assert raised.value.errno == errno.EIO and "of this datatype are not read" in mount.log()


def test_files_on_the_mount(mounts, tmp_path):
    """A daemon that waited for itself would wait for good."""
    data = files.integers((2, 3, 4), "<u2")
    (tmp_path / "r.raw").write_bytes(data.tobytes())
    path = make(tmp_path / "x.h5", [("r.raw", 0, 48)], (2, 3, 4))
    os.symlink("mnt0/d", tmp_path / "way")
    names = ["mnt0/d/frames/0.raw", str(tmp_path / "mnt0/d/stack.raw"), "way/stack.raw", "mnt0/loop/stack.raw",
             "mnt0/../r.raw"]
    for i, name in enumerate(names):
        make(path, [(name, 0, 48)], (2, 3, 4), name=f"d{i}")
    make(path, [("mnt0/loop/stack.raw", 0, 48)], (2, 3, 4), name="loop")
    with h5py.File(path, "a", libver="latest") as f:
        f["link"] = h5py.ExternalLink("mnt0/.sparsefs/image.h5", "/")
        layout = h5py.VirtualLayout((2, 3, 4), "<u2")
        layout[...] = h5py.VirtualSource("mnt0/.sparsefs/image.h5", "d", (2, 3, 4))
        f.create_virtual_dataset("virtual", layout)
    mount = mounts(path, "external_files=/", expect_log=True)  # the one that the names lead to
    other = mounts(path, expect_log=True)  # one may wait for the other
    for each in mount, other:
        check(each, data)
        for name in (*(f"d{i}" for i in range(len(names))), "loop"):
            is_refused(each, "it leads into a mount of sparsefs", name)
        assert os.readlink(each / "link").startswith("external:")
        with pytest.raises(OSError):
            (each / "virtual/stack.raw").read_bytes()
        assert "an external link leads into a mount of sparsefs" in each.log()
        assert "/virtual: the source d in mnt0/.sparsefs/image.h5 is refused" in each.log()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may mount a part of a mount elsewhere")
def test_parts_of_a_mount(mounts, tmp_path):
    """What is left of a mount when its top is gone is one, too."""
    data = files.integers((2, 3, 4), "<u2")
    (tmp_path / "r.raw").write_bytes(data.tobytes())
    first = mounts(make(tmp_path / "first.h5", [("r.raw", 0, 48)], (2, 3, 4)))
    part = tmp_path / "part"
    part.mkdir()
    subprocess.run(["mount", "--bind", first / "d", part], check=True)
    try:
        assert first.umount("-l")
        assert (part / "stack.raw").read_bytes() == data.tobytes()
        path = make(tmp_path / "x.h5", [("part/stack.raw", 0, 48)], (2, 3, 4))
        mount = mounts(path, expect_log=True)
        is_refused(mount, "it leads into a mount of sparsefs")
    finally:
        subprocess.run(["umount", part], check=True)
    assert first.wait() == 0


def test_links_lead_to_files_with_raw_data(mounts, tmp_path):
    """Of a file that a link leads to, the folder of the first one counts."""
    data = files.integers((2, 3, 4), "<u2")
    (tmp_path / "run/sub").mkdir(parents=True)
    (tmp_path / "run/up.raw").write_bytes(data.tobytes())
    (tmp_path / "out.raw").write_bytes(data.tobytes())
    make(tmp_path / "run/sub/l.h5", [("../up.raw", 0, 48)], (2, 3, 4))
    make(tmp_path / "run/sub/l.h5", [("../../out.raw", 0, 48)], (2, 3, 4), name="out")
    with h5py.File(tmp_path / "run/x.h5", "w", libver="latest") as f:
        f["l"] = h5py.ExternalLink("sub/l.h5", "/")
        layout = h5py.VirtualLayout((2, 3, 4), "<u2")
        layout[...] = h5py.VirtualSource("sub/l.h5", "d", (2, 3, 4))
        f.create_virtual_dataset("v", layout)
    mount = mounts(tmp_path / "run/x.h5", expect_log=True)
    check(mount, data, "l/d")
    check(mount, data, "v")
    with pytest.raises(OSError):
        (mount / "l/out/stack.raw").read_bytes()
    assert "/out: chunk (0,0,0): external raw data in ../../out.raw is refused" in mount.log()


def test_images(mounts, tmp_path):
    """A compressed file has a folder; standard input has none."""
    data = files.integers((2, 3, 4), "<u2")
    (tmp_path / "r.raw").write_bytes(data.tobytes())
    path = make(tmp_path / "x.h5", [("r.raw", 0, 48)], (2, 3, 4))
    subprocess.run(["gzip", path], check=True)
    mount = mounts(tmp_path / "x.h5.gz")
    check(mount, data)


def test_sparsectl(outside, tmp_path):
    path, names, data = outside
    (path.parent / "beside.raw").write_bytes(data.tobytes())
    make(path, [("beside.raw", 0, 48)], (2, 3, 4), name="beside")

    def run(*arguments):
        done = subprocess.run([BUILD / "sparsectl", *arguments], capture_output=True, text=True, cwd="/",
                              check=False)
        return done.returncode, done.stdout + done.stderr

    def imported(name, *options):
        target = tmp_path / f"{name}.h5"
        target.unlink(missing_ok=True)
        code, said = run(*options, "import", f"{path}:/{name}", f"{target}:/d")
        if code:
            return said
        back = tmp_path / f"{name}.dense.h5"
        back.unlink(missing_ok=True)
        assert run("export", f"{target}:/d", f"{back}:/d")[0] == 0
        return by_library(back)

    assert np.array_equal(imported("beside"), data)
    assert "is refused: it leads out" in imported("d0")
    for option in (["--external-files", tmp_path / "out"], [f"--external-files={tmp_path / 'out'}"]):
        assert np.array_equal(imported("d0", *option), data)
    assert "No such file" in imported("beside", "--external-files", tmp_path / "nothing")
    assert run("--external-files")[0] == 2 and run("--external-files", "/")[0] == 2


@pytest.mark.skipif(os.geteuid() != 0, reason="only root has two users")
@pytest.mark.parametrize("own, other, shown, allowed", [
    ((0o644, 1000, 1000), (0o644, 1000, 1000), True, True),
    ((0o644, 1000, 1000), (0o640, 1000, 1000), False, False),
    ((0o644, 1000, 1000), (0o600, 0, 0), False, False),
    ((0o644, 1000, 1000), (0o644, 1001, 1000), False, True),
    ((0o600, 1000, 1000), (0o600, 1000, 1000), True, True),
    ((0o600, 1000, 1000), (0o600, 1001, 1001), False, False),
    ((0o640, 1000, 1000), (0o640, 1000, 1000), True, True),
    ((0o640, 1000, 1000), (0o640, 1000, 1001), False, False),
    ((0o640, 1000, 1000), (0o600, 1000, 1000), False, False),
    ((0o600, 1000, 1000), (0o640, 0, 0), False, False),
    ((0o644, 1000, 1000), (0o604, 1000, 1000), False, False),
    ((0o644, 1000, 1000), (0o604, 1000, 1001), False, False),
    ((0o640, 1000, 1000), (0o604, 1000, 1001), False, False),
    ((0o604, 1000, 1000), (0o604, 1000, 1001), False, False),
    ((0o604, 1000, 1000), (0o604, 1000, 1000), True, True),
    ((0o640, 1000, 1000), (0o644, 1000, 1001), True, True),
])
def test_allow_other_shows_no_more_than_the_owner(mounts, tmp_path, own, other, shown, allowed):
    let_in(tmp_path)
    data = files.integers((2, 3, 4), "<u2")
    (tmp_path / "r.raw").write_bytes(data.tobytes())
    with h5py.File(tmp_path / "s.h5", "w") as f:
        f["d"] = data
    path = make(tmp_path / "x.h5", [("r.raw", 0, 48)], (2, 3, 4), name="raw")
    with h5py.File(path, "a", libver="latest") as f:
        f["link"] = h5py.ExternalLink("s.h5", "/d")
        layout = h5py.VirtualLayout((2, 3, 4), "<u2")
        layout[...] = h5py.VirtualSource("s.h5", "d", (2, 3, 4))
        f.create_virtual_dataset("virtual", layout)
    for name, (mode, user, group) in (("r.raw", other), ("s.h5", other), ("x.h5", own)):
        os.chown(tmp_path / name, user, group)
        os.chmod(tmp_path / name, mode)
    for options, expected in (((), True), (("allow_other",), shown),
                              (("allow_other", f"external_files={tmp_path}"), allowed)):
        mount = mounts(path, *options, expect_log=True)
        for name in "raw", "virtual":
            if expected:
                check(mount, data, name)
            else:
                is_refused(mount, "others would see what its owner does not let them see", name)
        assert os.path.islink(mount / "link") is not expected
        state = json.loads((mount / "virtual/dataset.json").read_text())["sources"][0]["state"]
        assert state == ("ok" if expected else "refused")
        mount.unmount()
