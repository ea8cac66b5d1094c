"""Virtual datasets, against h5py: all that is mapped, where it is mapped to, and what is missing."""
import concurrent.futures
import contextlib
import errno
import itertools
import json
import os
import pathlib
import subprocess
import time

import h5py
import numpy as np
import pytest

import files
import sparse_files
from conftest import BUILD, START_SECONDS

UNLIMITED = h5py.h5s.UNLIMITED


def write(path, data, name="d", **options):
    with h5py.File(path, "a", libver="latest") as f:
        f.create_dataset(name, data=data, **options)


def make_virtual(path, layout, name="v", fill=11):
    with h5py.File(path, "a", libver="latest") as f:
        f.create_virtual_dataset(name, layout, fillvalue=fill)


def space_of(shape, start, stride, count, block, max_shape=None):
    space = h5py.h5s.create_simple(shape, max_shape)
    space.select_hyperslab(start, count, stride, block)
    return space


def make_mapped(path, shape, mappings, name="v", dtype="<u4", max_shape=None, fill=11):
    """mappings: (space in the virtual dataset, file, dataset, space in the source)."""
    plist = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
    plist.set_layout(h5py.h5d.VIRTUAL)
    plist.set_fill_value(np.array(fill, dtype))
    for shown, file, dataset, source in mappings:
        plist.set_virtual(shown, file.encode(), dataset.encode(), source)
    with h5py.File(path, "a", libver="latest") as f:
        h5py.h5d.create(f.id, name.encode(), h5py.h5t.py_create(np.dtype(dtype)),
                        h5py.h5s.create_simple(shape, max_shape), plist)


def read_all(path, name="v"):
    with h5py.File(path) as f:
        return f[name][()]


def check(mount, content, name="v", seed=1):
    """Every frame in every face, the whole, and pieces of both read here and there."""
    root, random = mount / name, np.random.default_rng(seed)
    frames = content if content.ndim > 2 else content[np.newaxis]
    whole = content.tobytes()
    assert len(os.listdir(root / "frames")) >= len(frames)
    order = random.permutation(len(frames))
    for i in order:
        assert (root / f"frames/{i}.raw").read_bytes() == frames[i].tobytes(), i
        assert np.array_equal(np.load(root / f"npy/{i:06}.npy"), frames[i])
    assert (root / "stack.raw").read_bytes() == whole
    files_of = [("stack.raw", whole), (f"frames/{order[0]}.raw", frames[order[0]].tobytes())]
    for file, expected in files_of:
        fd = os.open(root / file, os.O_RDONLY)
        for _ in range(30):
            at, n = random.integers(0, len(expected) + 1, 2)
            assert os.pread(fd, n, at) == expected[at:at + n]
        os.close(fd)


def stats(mount):
    return json.loads((mount / ".sparsefs/stats.json").read_text())


def decoded(mount):
    counters = stats(mount)
    return counters["chunks_decoded"] if "chunks_decoded" in counters \
        else counters["cache"]["chunks_decoded"]


def sources_of(mount, name="v"):
    described = json.loads((mount / name / "dataset.json").read_text())
    return [(s["file"], s["dataset"], s["state"]) for s in described["sources"]]


def make_interleaved(folder, frames=24, sources=4, side=(13, 17), **options):
    data = files.integers((frames, *side), "<u4")
    layout = h5py.VirtualLayout(data.shape, "<u4")
    for i in range(sources):
        part = data[i::sources]
        write(folder / f"s{i}.h5", part, **({"chunks": (1, *side)} | options))
        layout[i::sources] = h5py.VirtualSource(f"s{i}.h5", "d", part.shape)
    make_virtual(folder / "v.h5", layout)
    return data


@pytest.mark.parametrize("options", [
    {}, {"compression": "gzip"}, {"compression": "gzip", "shuffle": True, "fletcher32": True},
    {"chunks": (5, 4, 17), "compression": "gzip"}, {"scaleoffset": 0}, {"chunks": None}],
    ids=["plain", "gzip", "all", "cut", "library", "contiguous"])
@pytest.mark.parametrize("how", ["ro", "direct_io", "cache_size=64K", "rw"])
def test_interleaved(mounts, tmp_path, options, how):
    data = make_interleaved(tmp_path, **options)
    mount = mounts(tmp_path / "v.h5", how)
    check(mount, data)
    assert sources_of(mount) == [(f"s{i}.h5", "d", "ok") for i in range(4)]
    assert not os.access(mount / "v/frames/0.raw", os.W_OK) or os.geteuid() == 0
    with pytest.raises(OSError):
        (mount / "v/frames/0.raw").write_bytes(b"1")


def test_no_chunk_is_decoded_twice(mounts, tmp_path):
    """From the last frame on: nothing is read ahead then."""
    data = make_interleaved(tmp_path, compression="gzip")
    mount = mounts(tmp_path / "v.h5", "direct_io")
    for i in reversed(range(len(data))):
        fd = os.open(mount / f"v/frames/{i}.raw", os.O_RDONLY)
        content = b"".join(iter(lambda: os.read(fd, 100), b""))
        os.close(fd)
        assert content == data[i].tobytes()
        assert decoded(mount) == len(data) - i
    assert (mount / "v/stack.raw").read_bytes() == data.tobytes()
    assert decoded(mount) == len(data)


def make_one_after_the_other(folder, sources=4, frames=4, side=(500, 600)):
    data = np.random.default_rng(1).integers(0, 9, (sources * frames, *side)).astype("<u4")
    layout = h5py.VirtualLayout(data.shape, "<u4")
    for i in range(sources):
        there = slice(i * frames, (i + 1) * frames)
        write(folder / f"s{i}.h5", data[there], chunks=(1, *side), compression="gzip")
        layout[there] = h5py.VirtualSource(f"s{i}.h5", "d", data[there].shape)
    make_virtual(folder / "v.h5", layout)
    return data


@pytest.mark.parametrize("is_nested", [False, True])
def test_reading_ahead_leads_from_source_to_source(mounts, tmp_path, is_nested):
    """Frames in order: what comes next is decoded ahead, also where it is the first of another file,
    and once."""
    data = make_one_after_the_other(tmp_path)
    path = tmp_path / "v.h5"
    if is_nested:
        layout = h5py.VirtualLayout(data.shape, "<u4")
        layout[...] = h5py.VirtualSource("v.h5", "v", data.shape)
        path = tmp_path / "outer.h5"
        make_virtual(path, layout)
    mount = mounts(path, "ro,direct_io,workers=2")
    for i in range(4):
        assert (mount / f"v/frames/{i}.raw").read_bytes() == data[i].tobytes()
    deadline = time.monotonic() + START_SECONDS
    while decoded(mount) < 5:  # a worker must have been idle
        assert time.monotonic() < deadline
        assert (mount / "v/frames/3.raw").read_bytes() == data[3].tobytes()
    for i in range(4, 16):
        assert (mount / f"v/frames/{i}.raw").read_bytes() == data[i].tobytes()
    assert decoded(mount) == 16


def is_open(mount, path):
    """By the mount."""
    folder = f"/proc/{mount.process.pid}/fd"
    for fd in os.listdir(folder):
        with contextlib.suppress(FileNotFoundError):
            if os.readlink(f"{folder}/{fd}") == str(path):
                return True
    return False


def test_sources_behind_a_missing_one_are_opened_ahead(mounts, tmp_path):
    """Frames of the second one begin with a part of a file that is not there."""
    data = files.integers((16, 512, 512), "<u4")
    layout = h5py.VirtualLayout(data.shape, "<u4")
    write(tmp_path / "s0.h5", data[:8], chunks=(1, 512, 512), compression="gzip")
    write(tmp_path / "s1.h5", data[8:], chunks=(1, 512, 512), compression="gzip")
    layout[:8] = h5py.VirtualSource("s0.h5", "d", data[:8].shape)
    layout[8:, :10] = h5py.VirtualSource("missing.h5", "d", (8, 10, 512))
    layout[8:, 10:] = h5py.VirtualSource("s1.h5", "d", data[8:].shape)[:, 10:]
    make_virtual(tmp_path / "v.h5", layout)
    mount = mounts(tmp_path / "v.h5", "ro,direct_io,workers=2,missing=fill", expect_log=True)
    deadline = time.monotonic() + START_SECONDS
    while not is_open(mount, tmp_path / "s1.h5"):
        assert time.monotonic() < deadline
        for i in range(8):
            assert (mount / f"v/frames/{i}.raw").read_bytes() == data[i].tobytes()


def test_few_sources_that_fail_are_tried_at_once(mounts, tmp_path):
    """Many are missing in the frame behind the one that is read, before a good one. A read looks ahead twice."""
    most, n, shape = 2 * 4, 40, (2, 512, 512)
    data = files.integers((1, 100, 512), "<u4")
    write(tmp_path / "s.h5", data, chunks=(1, 100, 512), compression="gzip")
    mappings = [(space_of(shape, (1, i, 0), (1, 1, 1), (1, 1, 1), (1, 1, 512)), "missing.h5", f"d{i}",
                 h5py.h5s.create_simple((1, 512))) for i in range(n)]
    good = space_of(shape, (1, 400, 0), (1, 1, 1), (1, 1, 1), data.shape)
    make_mapped(tmp_path / "v.h5", shape, [*mappings, (good, "s.h5", "d", h5py.h5s.create_simple(data.shape))])
    mount = mounts(tmp_path / "v.h5", "ro,direct_io,workers=2")
    deadline, reads = time.monotonic() + START_SECONDS, 0
    with open(mount / "v/frames/0.raw", "rb", buffering=0) as f:
        while not is_open(mount, tmp_path / "s.h5"):
            assert time.monotonic() < deadline
            assert os.pread(f.fileno(), 4096, 0) == np.full(1024, 11, "<u4").tobytes()
            reads += 1
    assert reads >= n / most


def test_what_is_left_out_is_not_read_ahead(mounts, tmp_path):
    """Every tenth frame, several of which are read at once: the others are never decoded."""
    data = files.integers((640, 128, 128), "<u4")
    write(tmp_path / "s.h5", data, chunks=(1, 128, 128), compression="gzip")
    layout = h5py.VirtualLayout((64, 128, 128), "<u4")
    layout[...] = h5py.VirtualSource("s.h5", "d", data.shape)[::10]
    make_virtual(tmp_path / "v.h5", layout)
    mount = mounts(tmp_path / "v.h5", "ro,direct_io,workers=2")
    for i in range(64):
        assert (mount / f"v/frames/{i}.raw").read_bytes() == data[10 * i].tobytes()
    assert decoded(mount) == 64


def test_large_chunks_of_sources_are_not_read_ahead(mounts, tmp_path):
    """They would take more of the cache than its share for that."""
    data = files.integers((16, 512, 512), "<u4")
    write(tmp_path / "s.h5", data, chunks=(4, 512, 512), compression="gzip")
    layout = h5py.VirtualLayout(data.shape, "<u4")
    layout[...] = h5py.VirtualSource("s.h5", "d", data.shape)
    make_virtual(tmp_path / "v.h5", layout)
    mount = mounts(tmp_path / "v.h5", "ro,direct_io,workers=2,cache_size=24M")
    for i in range(16):
        for _ in range(3):
            assert (mount / f"v/frames/{i}.raw").read_bytes() == data[i].tobytes()
            assert decoded(mount) == i // 4 + 1


def test_modules_with_gaps(mounts, tmp_path):
    """Modules of a detector, each in a file of its own, one frame or several to a chunk."""
    frames, height, width = 7, 20, 33
    shown = np.full((frames, 2 * height + 5, 3 * width + 6), 11, "<u4")
    layout = h5py.VirtualLayout(shown.shape, "<u4")
    for y, x in np.ndindex(2, 3):
        name, part = f"m{y}{x}.h5", files.integers((frames, height, width), "<u4") + y * 100 + x
        write(tmp_path / name, part, chunks=(1 + x, height, width), compression="gzip")
        there = np.s_[:, y * (height + 5):y * (height + 5) + height, x * (width + 3):x * (width + 3) + width]
        layout[there] = h5py.VirtualSource(name, "d", part.shape)
        shown[there] = part
    make_virtual(tmp_path / "v.h5", layout)
    mount = mounts(tmp_path / "v.h5", "ro")
    assert np.array_equal(read_all(tmp_path / "v.h5"), shown)
    check(mount, shown)
    assert decoded(mount) == 2 * (7 + 4 + 3)


def test_large_modules_are_read_by_several_threads(mounts, tmp_path):
    side = 500
    layout, shown = h5py.VirtualLayout((2, 2 * side, 2 * side), "<u4"), None
    shown = np.zeros((2, 2 * side, 2 * side), "<u4")
    for y, x in np.ndindex(2, 2):
        part = np.random.default_rng(y * 2 + x).integers(0, 99, (2, side, side)).astype("<u4")
        write(tmp_path / f"m{y}{x}.h5", part, chunks=(1, 250, 500), compression="gzip")
        there = np.s_[:, y * side:(y + 1) * side, x * side:(x + 1) * side]
        layout[there] = h5py.VirtualSource(f"m{y}{x}.h5", "d", part.shape)
        shown[there] = part
    make_virtual(tmp_path / "v.h5", layout)
    mount = mounts(tmp_path / "v.h5", "direct_io")
    for i in range(2):
        fd = os.open(mount / f"v/frames/{i}.raw", os.O_RDONLY)
        assert os.pread(fd, shown[i].nbytes, 0) == shown[i].tobytes()
        os.close(fd)
    assert decoded(mount) == 16
    check(mount, shown)


def test_parts_of_frames(mounts, tmp_path):
    """Regions of interest, strides within the frame, axes that come and go, overlaps."""
    data = files.integers((6, 30, 40), "<u4")
    write(tmp_path / "s.h5", data, chunks=(2, 7, 9), compression="gzip")
    write(tmp_path / "s.h5", data[0, 0], name="line")
    source = h5py.VirtualSource("s.h5", "d", data.shape)
    path = tmp_path / "v.h5"
    cases = {}
    for name, shape, pairs in (
            ("roi", (6, 9, 11), [(np.s_[...], np.s_[:, 5:14, 3:14])]),
            ("stride", (3, 15, 13), [(np.s_[...], np.s_[1::2, ::2, 1::3])]),
            ("spread", (12, 60, 40), [(np.s_[::2, ::2, :], np.s_[...])]),
            ("plane", (6, 40), [(np.s_[...], np.s_[:, 7, :])]),
            ("column", (6, 30), [(np.s_[...], np.s_[:, :, 7])]),
            ("row", (30,), [(np.s_[...], np.s_[3, :, 7])]),
            ("four", (2, 6, 30, 40), [(np.s_[1], np.s_[...]), (np.s_[0, :, 5:9], np.s_[:, 1:5])]),
            ("overlap", (6, 30, 40), [(np.s_[...], np.s_[...]), (np.s_[:, 3:9, 4:6], np.s_[:, 1:7, 1:3]),
                                      (np.s_[2], np.s_[5]), (np.s_[2, 3:5, 1:30:2], np.s_[1, 0:2, 0:15])]),
            ("one element", (3, 4, 5), [(np.s_[1, 2, 3], np.s_[1, 2, 3])]),
            ("nothing", (3, 4, 5), [])):
        layout, expected = h5py.VirtualLayout(shape, "<u4"), np.full(shape, 11, "<u4")
        for there, here in pairs:
            layout[there] = source[here]
            expected[there] = data[here]
        make_virtual(path, layout, name)
        cases[name] = expected
    for options in ("ro", "direct_io,cache_size=64K"):
        mount = mounts(path, options)
        for name, expected in cases.items():
            if name != "nothing":
                assert np.array_equal(read_all(path, name), expected), name
            check(mount, expected, name)


@pytest.mark.parametrize("options", ["ro", "ro,hdf5=inside", "rw"])
def test_what_libhdf5_must_read(mounts, tmp_path, options):
    """Another byte order, points, selections that are reshaped: with the same answers."""
    data = files.integers((4, 6, 8), "<u4")
    write(tmp_path / "s.h5", data, chunks=(1, 6, 8), compression="gzip")
    write(tmp_path / "big.h5", data.astype(">u4"), chunks=(1, 6, 8), compression="gzip")
    path = tmp_path / "v.h5"
    layout = h5py.VirtualLayout((5, 6, 8), "<u4")
    layout[:4] = h5py.VirtualSource("big.h5", "d", data.shape)
    layout[4] = h5py.VirtualSource("s.h5", "d", data.shape)[0]
    make_virtual(path, layout, "order")
    layout = h5py.VirtualLayout((4, 48), "<u4")
    layout[...] = h5py.VirtualSource("s.h5", "d", data.shape)
    make_virtual(path, layout, "reshaped")
    layout = h5py.VirtualLayout((4, 6, 8), "<u4")
    layout[:, [0, 2, 3], :] = h5py.VirtualSource("s.h5", "d", data.shape)[:, :3, :]
    make_virtual(path, layout, "irregular")
    layout = h5py.VirtualLayout((6, 6, 8), "<u4")
    layout[:4] = h5py.VirtualSource("big.h5", "d", data.shape)
    layout[4:] = h5py.VirtualSource("none.h5", "d", (2, 6, 8))
    make_virtual(path, layout, "partly")
    expected = {name: read_all(path, name) for name in ("order", "reshaped", "irregular")}
    mount = mounts(path, options, expect_log=True)
    for name, content in expected.items():
        check(mount, content, name)
    assert (mount / "partly/frames/3.raw").read_bytes() == data[3].tobytes()
    with pytest.raises(OSError) as raised:
        (mount / "partly/frames/4.raw").read_bytes()
    assert raised.value.errno == errno.EIO
    assert (mount / "partly/frames/2.raw").read_bytes() == data[2].tobytes()


def make_converted(folder, n):
    """Of n sources of the other byte order."""
    data = files.integers((n, 5), "<u4")
    layout = h5py.VirtualLayout(data.shape, "<u4")
    for i in range(n):
        write(folder / f"s{i}.h5", data[i].astype(">u4"))
        layout[i] = h5py.VirtualSource(f"s{i}.h5", "d", (5,))
    make_virtual(folder / "v.h5", layout)
    return data


@pytest.mark.parametrize("options", ["ro", "ro,hdf5=inside", "rw"])
def test_many_sources_that_libhdf5_must_read(mounts, tmp_path, options):
    """More than sparsefs itself keeps open: those are not the ones that libhdf5 opens."""
    data = make_converted(tmp_path, 100)
    mount = mounts(tmp_path / "v.h5", options)
    for _ in range(2):
        assert (mount / "v/stack.raw").read_bytes() == data.tobytes()


def test_more_sources_than_a_worker_may_have_open(mounts, tmp_path):
    """They are no fill value."""
    data = make_converted(tmp_path, 260)
    mount = mounts(tmp_path / "v.h5", "ro", expect_log=True)
    with pytest.raises(OSError) as raised:
        (mount / "v/stack.raw").read_bytes()
    assert raised.value.errno == errno.EIO
    assert "Too many open files" in mount.log()
    mount.unmount()
    mount = mounts(tmp_path / "v.h5", "ro,hdf5=inside")
    assert (mount / "v/stack.raw").read_bytes() == data.tobytes()


def test_sources_of_sources(mounts, tmp_path):
    data = files.integers((8, 9, 10), "<u4")
    path = tmp_path / "v.h5"
    write(path, data, chunks=(1, 9, 10), compression="gzip")
    layout = h5py.VirtualLayout((4, 9, 10), "<u4")
    layout[...] = h5py.VirtualSource(".", "d", data.shape)[::2]
    make_virtual(path, layout, "even")
    layout = h5py.VirtualLayout((2, 9, 10), "<u4")
    layout[...] = h5py.VirtualSource(".", "even", (4, 9, 10))[1::2]
    make_virtual(path, layout, "fourth")
    for name, expected, source in (("a", data[2::4], ("v.h5", "fourth")), ("b", data[2::4], ("a.h5", "v"))):
        layout = h5py.VirtualLayout((2, 9, 10), "<u4")
        layout[...] = h5py.VirtualSource(*source, (2, 9, 10))
        make_virtual(tmp_path / f"{name}.h5", layout)
        mount = mounts(tmp_path / f"{name}.h5", "ro")
        check(mount, expected)
        assert decoded(mount) == 2
    mount = mounts(path, "ro")
    for name, expected in ("even", data[::2]), ("fourth", data[2::4]):
        check(mount, expected, name)


@pytest.mark.parametrize("options", ["rw,direct_io", "rw"])
def test_what_is_written_is_shown(mounts, tmp_path, options):
    data = files.integers((8, 9, 10), "<u4")
    path = tmp_path / "v.h5"
    write(path, data, chunks=(1, 9, 10), compression="gzip")
    layout = h5py.VirtualLayout((4, 9, 10), "<u4")
    layout[...] = h5py.VirtualSource(".", "d", data.shape)[1::2]
    make_virtual(path, layout)
    mount = mounts(path, options)
    check(mount, data[1::2])
    for i in range(4):
        data[2 * i + 1] += 5
        (mount / f"d/frames/{2 * i + 1}.raw").write_bytes(data[2 * i + 1].tobytes())
        assert (mount / f"v/frames/{i}.raw").read_bytes() == data[2 * i + 1].tobytes()
    check(mount, data[1::2])


def write_while_open(source, shown, shape):
    """What is written to the source is seen through descriptors and maps of the views that show it, and by their
    times; what was asked for once is asked for again after each change."""
    stack = np.memmap(shown / "stack.raw", "<u4", "r", shape=shape)
    fds = [os.open(shown / name, os.O_RDONLY) for name in ("frames/1.raw", "npy/000001.npy", "stack.raw")]
    names = [shown / name for name in ("frames/1.raw", "raw/000001.raw", "stack.raw", "stack.npy")]
    n = shape[1] * shape[2] * 4
    try:
        for value in 5, 6, 7:
            assert stack[1, 0, 0] != value
            for fd in fds:
                os.pread(fd, 1 << 20, 0)
            times = [os.stat(name).st_mtime_ns for name in names]
            (source / "frames/1.raw").write_bytes(np.full(shape[1:], value, "<u4").tobytes())
            assert set(stack[1].ravel().tolist()) == {value}
            for fd, at in zip(fds, (0, os.fstat(fds[1]).st_size - n, n)):
                assert set(np.frombuffer(os.pread(fd, n, at), "<u4").tolist()) == {value}
            assert all(os.stat(name).st_mtime_ns > time for name, time in zip(names, times))
    finally:
        del stack
        for fd in fds:
            os.close(fd)


def test_what_is_written_is_shown_by_what_is_open(mounts, tmp_path):
    data = files.integers((4, 32, 33), "<u4")
    path = tmp_path / "v.h5"
    for name in "d", "data_000001":
        write(path, data, name=name, chunks=(1, 32, 33))
    layout = h5py.VirtualLayout(data.shape, "<u4")
    layout[...] = h5py.VirtualSource(".", "d", data.shape)
    make_virtual(path, layout)
    mount = mounts(path, "rw")
    write_while_open(mount / "d", mount / "v", data.shape)
    write_while_open(mount / "data_000001", mount / "data", data.shape)


def test_frames_far_from_each_other_are_shown_as_they_are_written(mounts, tmp_path):
    """Nobody looks at all frames between the first and the last that somebody has looked at."""
    path, far = tmp_path / "v.h5", (1 << 34) - 1
    write(path, np.ones((2, 8, 9), "<u4"), chunks=(1, 8, 9))
    one, shape = (1, 8, 9), (far + 1, 8, 9)
    step = (1, 1, 1)
    make_mapped(path, shape, [(space_of(shape, (at, 0, 0), step, one, step), ".", "d",
                               space_of((2, 8, 9), (n, 0, 0), step, one, step)) for n, at in enumerate((0, far))])
    mount = mounts(path, "rw")
    shown = [mount / f"v/{name}" for name in ("frames/0.raw", f"frames/{far}.raw", f"raw/{far}.raw")]
    fds = [os.open(name, os.O_RDONLY) for name in shown]
    maps = [np.memmap(name, "<u4", "r") for name in shown]
    try:
        for value in 5, 6, 7:
            assert not any((each == value).any() for each in maps)
            times = [os.stat(name).st_mtime_ns for name in shown]
            for n in range(2):
                (mount / f"d/frames/{n}.raw").write_bytes(np.full(72, value, "<u4").tobytes())
            expected = np.full(72, value, "<u4").tobytes()
            assert all(each.tobytes() == expected for each in maps)
            assert all(os.pread(fd, 288, 0) == expected for fd in fds)
            assert all(os.stat(name).st_mtime_ns > time for name, time in zip(shown, times))
            assert all(name.read_bytes() == expected for name in shown)
    finally:
        del maps
        for fd in fds:
            os.close(fd)


def circle(folder):
    for name, other in (("a.h5", "b.h5"), ("b.h5", "c.h5"), ("c.h5", "a.h5")):
        layout = h5py.VirtualLayout((2, 3, 4), "<u4")
        layout[...] = h5py.VirtualSource(other, "v", (2, 3, 4))
        make_virtual(folder / name, layout)
    return folder / "a.h5"


def self_circle(folder):
    layout = h5py.VirtualLayout((2, 3, 4), "<u4")
    layout[...] = h5py.VirtualSource(".", "v", (2, 3, 4))
    make_virtual(folder / "a.h5", layout)
    return folder / "a.h5"


def mixed_circle(folder):
    """Datasets that libhdf5 must read, which would follow them until its stack is full."""
    for name, other, dtype in (("a.h5", "b.h5", "<u4"), ("b.h5", "a.h5", ">u4")):
        layout = h5py.VirtualLayout((2, 3, 4), dtype)
        layout[...] = h5py.VirtualSource(other, "v", (2, 3, 4))
        make_virtual(folder / name, layout)
    return folder / "a.h5"


def irregular_circle(folder):
    layout = h5py.VirtualLayout((2, 3, 4), "<u4")
    layout[:, [0, 2], :] = h5py.VirtualSource(".", "v", (2, 3, 4))[:, :2, :]
    make_virtual(folder / "a.h5", layout)
    return folder / "a.h5"


@pytest.mark.parametrize("make", [circle, self_circle, mixed_circle, irregular_circle])
@pytest.mark.parametrize("options", ["ro", "rw", "missing=fill"])
def test_circles_are_errors(mounts, tmp_path, make, options):
    mount = mounts(make(tmp_path), options, expect_log=True)
    for file in "frames/0.raw", "stack.raw", "npy/000001.npy":
        with pytest.raises(OSError) as raised:
            (mount / "v" / file).read_bytes()
        assert raised.value.errno == errno.EIO
    assert "in a circle" in mount.log()
    assert mount.log().count("in a circle") <= 3


def test_a_part_of_itself_is_no_circle(mounts, tmp_path):
    data = files.integers((2, 3, 4), "<u4")
    path = tmp_path / "v.h5"
    write(path, data)
    layout = h5py.VirtualLayout((4, 3, 4), "<u4")
    layout[:2] = h5py.VirtualSource(".", "d", (2, 3, 4))
    layout[2:] = h5py.VirtualSource(".", "v", (4, 3, 4))[:2]
    make_virtual(path, layout)
    mount = mounts(path, "ro")
    assert (mount / "v/stack.raw").read_bytes() == data.tobytes() * 2


@pytest.fixture
def broken(tmp_path):
    """Frames 0 and 1 are there, 2 and 3 not in their source, and so on."""
    data = files.integers((4, 5, 6), "<u4")
    write(tmp_path / "good.h5", data, chunks=(1, 5, 6), compression="gzip")
    write(tmp_path / "short.h5", data[:1], chunks=(1, 5, 6))
    (tmp_path / "bad.h5").write_bytes(b"no HDF5 file" * 100)
    (tmp_path / "folder.h5").mkdir()
    os.mkfifo(tmp_path / "pipe.h5")
    layout = h5py.VirtualLayout((16, 5, 6), "<u4")
    for i, (file, dataset) in enumerate((("good.h5", "d"), ("short.h5", "d"), ("gone.h5", "d"), ("good.h5", "e"),
                                         ("bad.h5", "d"), ("folder.h5", "d"), ("pipe.h5", "d"),
                                         ("/dev/null", "d"))):
        layout[2 * i:2 * i + 2] = h5py.VirtualSource(file, dataset, (4, 5, 6))[:2]
    make_virtual(tmp_path / "v.h5", layout)
    return tmp_path / "v.h5", data


def test_what_is_missing_is_told(mounts, broken):
    path, data = broken
    mount = mounts(path, expect_log=True)
    good = {0: data[0], 1: data[1], 2: data[0]}
    for again in range(2):
        for i in range(16):
            if i in good:
                assert (mount / f"v/frames/{i}.raw").read_bytes() == good[i].tobytes()
                continue
            with pytest.raises(OSError) as raised:
                (mount / f"v/frames/{i}.raw").read_bytes()
            assert raised.value.errno == errno.EIO, i
    assert sources_of(mount) == [
        ("good.h5", "d", "ok"), ("short.h5", "d", "too short"), ("gone.h5", "d", "missing"),
        ("good.h5", "e", "missing"), ("bad.h5", "d", "unreadable"), ("folder.h5", "d", "unreadable"),
        ("pipe.h5", "d", "unreadable"), ("/dev/null", "d", "refused")]
    described = json.loads((mount / "v/dataset.json").read_text())
    assert described["source_count"] == 8
    log = mount.log()
    for name in "short.h5", "gone.h5", "bad.h5", "folder.h5", "pipe.h5", "/dev/null":
        assert len([line for line in log.splitlines() if f"in {name}" in line]) == 1, (name, log)


def test_what_is_missing_can_be_the_fill_value(mounts, broken):
    path, data = broken
    mount = mounts(path, "missing=fill,external_files=/", expect_log=True)
    expected = np.full((16, 5, 6), 11, "<u4")
    expected[:2] = data[:2]
    expected[2] = data[0]
    check(mount, expected)
    assert sources_of(mount)[1:3] == [("short.h5", "d", "too short"), ("gone.h5", "d", "missing")]
    assert "gone.h5" not in mount.log()
    # But not what is refused: nobody knows what is there.
    mount = mounts(path, "missing=fill", expect_log=True)
    with pytest.raises(OSError) as raised:
        (mount / "v/frames/14.raw").read_bytes()
    assert raised.value.errno == errno.EIO
    assert (mount / "v/frames/12.raw").read_bytes() == expected[12].tobytes()


def make_pointed(folder):
    """Strings and sequences of two files, and of a third one that has too few; scalars; virtual of virtual ones."""
    string, sequence = h5py.special_dtype(vlen=bytes), h5py.special_dtype(vlen=np.dtype("<i4"))
    for name in "a.h5", "b.h5", "few.h5":
        with h5py.File(folder / name, "w") as f:
            n = 2 if name == "few.h5" else 3
            f.create_dataset("s", (n,), string)[:] = [f"{name} {i}".encode() for i in range(n)]
            lists = f.create_dataset("l", (n,), sequence)
            for i in range(n):
                lists[i] = np.arange(i + 1)
            f.create_dataset("one", (), string)[()] = name.encode()
    for name, sources in ("good", "ab"), ("short", ("a", "few")), ("scalar", "a"):
        for member, dtype in ("s", string), ("l", sequence):
            layout = h5py.VirtualLayout((3 * len(sources),), dtype)
            for i, source in enumerate(sources):
                # One maps all of its sources, the others a part of more.
                layout[3 * i:3 * i + 3] = h5py.VirtualSource(f"{source}.h5", member, (3,)) if name == "good" else \
                    h5py.VirtualSource(f"{source}.h5", member, (4,))[:3]
            with h5py.File(folder / "v.h5", "a", libver="latest") as f:
                f.create_virtual_dataset(name + "_" + member, layout)
    plist = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
    plist.set_layout(h5py.h5d.VIRTUAL)
    scalar = h5py.h5s.create(h5py.h5s.SCALAR)
    plist.set_virtual(scalar, b"b.h5", b"one", scalar)
    with h5py.File(folder / "v.h5", "a", libver="latest") as f:
        h5py.h5d.create(f.id, b"one", h5py.h5t.py_create(string, logical=True), scalar, plist)
        for name, source in ("again", "good_l"), ("circle", "other"), ("other", "circle"):
            layout = h5py.VirtualLayout((6,), sequence)
            layout[:] = h5py.VirtualSource(".", source, (6,))
            f.create_virtual_dataset(name, layout)
    return folder / "v.h5"


def refused(path):
    with pytest.raises(OSError) as raised:
        path.read_bytes()
    return raised.value.errno == errno.EIO


def sequences_of(root):
    offsets, values = np.load(str(root / "offsets.npy")), np.load(str(root / "values.npy"))
    return [values[a:b].tolist() for a, b in zip(offsets[:-1], offsets[1:])]


@pytest.mark.parametrize("options", [("ro",), ("rw",), ("ro", "hdf5=inside")])
def test_elements_of_variable_length(mounts, tmp_path, options):
    """libhdf5 reads them, and would show nothing for what is missing: that is told as of all others."""
    mount = mounts(make_pointed(tmp_path), *options, expect_log=True)
    texts = [f"{name} {i}" for name in ("a.h5", "b.h5") for i in range(3)]
    assert (mount / "good_s/lines.txt").read_text().splitlines() == texts
    assert (mount / "good_s/value.txt").read_text() == " ".join(f'"{text}"' for text in texts) + "\n"
    assert sequences_of(mount / "good_l") == sequences_of(mount / "again") == 2 * [[0], [0, 1], [0, 1, 2]]
    assert (mount / "one/value.txt").read_text().strip() == "b.h5"
    for name in "short_s/value.txt", "short_s/lines.txt", "short_l/value.txt", "short_l/values.npy", \
            "circle/value.txt", "circle/offsets.npy":
        assert refused(mount / name), name
    for name in "short_s", "short_l":  # said by who reads them, before anybody asks for their sources
        assert f"/{name}: the source {name[-1]} in few.h5 has not all that is mapped" in mount.log()
    assert sources_of(mount, "short_l") == [("a.h5", "l", "ok"), ("few.h5", "l", "too short")]
    mount.unmount()
    (tmp_path / "b.h5").unlink()
    mount = mounts(tmp_path / "v.h5", *options, expect_log=True)
    for name in "good_s/value.txt", "good_l/offsets.npy", "again/values.npy", "one/value.txt":
        assert refused(mount / name), name
    assert sources_of(mount, "good_s") == [("a.h5", "s", "ok"), ("b.h5", "s", "missing")]
    assert (mount / "scalar_s/lines.txt").read_text().splitlines() == texts[:3]
    assert "in b.h5 does not exist" in mount.log()
    mount.unmount()
    mount = mounts(tmp_path / "v.h5", *options, "missing=fill", expect_log=True)
    assert (mount / "good_s/lines.txt").read_text() == "".join(text + "\n" for text in texts[:3]) + 3 * "\n"
    assert refused(mount / "short_l/values.npy")  # libhdf5 would take what lies behind the source for sequences
    assert (mount / "one/value.txt").read_text().strip() == ""
    assert "in b.h5 does not exist" not in mount.log()


@pytest.mark.parametrize("options", [("ro",), ("rw",), (), ("rw", "hdf5=inside")])
def test_sources_of_sources_of_another_datatype(mounts, tmp_path, options):
    """Which libhdf5 opens, each as the file is that leads to it, also for writing."""
    data = np.arange(20).reshape(5, 2, 2)
    write(tmp_path / "s.h5", data.astype("<i4"))
    for name, source, dtype in ("a", "s.h5", "<i8"), ("b", "a.h5", "<f4"), ("v", "b.h5", "<f8"):
        layout = h5py.VirtualLayout(data.shape, dtype)
        layout[...] = h5py.VirtualSource(source, "d" if name == "a" else "v", data.shape)
        make_virtual(tmp_path / (name + ".h5"), layout)
    assert (read_all(tmp_path / "v.h5") == data).all()
    check(mounts(tmp_path / "v.h5", *options), data.astype("<f8"))


@pytest.mark.parametrize("option", ["ro", "rw", "missing=fill"])
def test_short_sources_of_another_datatype(mounts, tmp_path, option):
    """libhdf5 converts them, and takes what lies behind a source for its elements."""
    data = np.arange(12, dtype="<i4").reshape(3, 2, 2)
    with h5py.File(tmp_path / "s.h5", "w") as f:
        f["d"] = data
        f["behind"] = np.full(100, 777, "<i4")
    for name, source in ("v", "s.h5"), ("of_virtual", "v.h5"):
        layout = h5py.VirtualLayout((4, 2, 2), "<i8" if name == "v" else "<f8")
        layout[...] = h5py.VirtualSource(source, "d" if name == "v" else "v", (5, 2, 2))[:4]
        make_virtual(tmp_path / (name + ".h5"), layout)
    mount = mounts(tmp_path / "v.h5", option, expect_log=True)
    for frame in range(3):
        assert (mount / f"v/frames/{frame}.raw").read_bytes() == data[frame].astype("<i8").tobytes()
    assert refused(mount / "v/frames/3.raw") and refused(mount / "v/stack.raw")
    assert "/v: the source d in s.h5 has not all that is mapped" in mount.log()
    mount.unmount()
    mount = mounts(tmp_path / "of_virtual.h5", option, expect_log=True)
    for frame in range(3):
        assert (mount / f"v/frames/{frame}.raw").read_bytes() == data[frame].astype("<f8").tobytes()
    assert refused(mount / "v/frames/3.raw")


def test_a_source_may_come_later(mounts, tmp_path):
    data = make_interleaved(tmp_path, compression="gzip")
    (tmp_path / "s1.h5").rename(tmp_path / "away.h5")
    mount = mounts(tmp_path / "v.h5", "direct_io", expect_log=True)
    with pytest.raises(OSError):
        (mount / "v/frames/1.raw").read_bytes()
    (tmp_path / "away.h5").rename(tmp_path / "s1.h5")
    check(mount, data)


def test_names(mounts, tmp_path):
    """Absolute ones, that have moved, in folders, over links, with percent signs, through external links."""
    data = files.integers((7, 2, 3, 4), "<u4")
    here, other = tmp_path / "here", tmp_path / "other"
    here.mkdir()
    other.mkdir()
    (here / "sub").mkdir()
    names = [str(other / "a.h5"), "/nowhere/b.h5", "sub/c.h5", "../other/d.h5", "100%%.h5", "link.h5"]
    for name, place in zip(names, (other / "a.h5", here / "b.h5", here / "sub/c.h5", other / "d.h5",
                                   here / "100%.h5", other / "target.h5")):
        write(place, data[names.index(name)])
    (here / "link.h5").symlink_to("../other/target.h5")
    write(other / "linked.h5", data[6], name="x/y")
    path = here / "v.h5"
    with h5py.File(path, "w") as f:
        f["group/out"] = h5py.ExternalLink("../other/linked.h5", "/x")
        f["group/soft"] = h5py.SoftLink("/group/out/y")
    layout = h5py.VirtualLayout(data.shape, "<u4")
    for i, name in enumerate(names):
        layout[i] = h5py.VirtualSource(name, "d", data.shape[1:])
    layout[6] = h5py.VirtualSource(".", "group/out/y", data.shape[1:])
    make_virtual(path, layout)
    allowed = f"external_files={other}"
    check(mounts(path, allowed), data)
    # A virtual dataset that is found by a link finds what lies where it really is, too.
    (tmp_path / "v.h5").symlink_to("here/v.h5")
    check(mounts(tmp_path / "v.h5", allowed), data)
    # All that leads out is refused, and told.
    mount = mounts(path, "external_links", expect_log=True)
    for i in range(7):
        if i in (1, 2, 4):
            assert (mount / f"v/frames/{i}.raw").read_bytes() == data[i].tobytes()
            continue
        with pytest.raises(OSError) as raised:
            (mount / f"v/frames/{i}.raw").read_bytes()
        assert raised.value.errno == errno.EIO, i
        name = names[i] if i < 6 else "this file"
        assert f"in {name} is refused: it leads out of the folder" in mount.log(), i
    assert [state for _, _, state in sources_of(mount)] == ["refused", "ok", "ok", "refused", "ok", "refused",
                                                            "refused"]
    # And what a variable says.
    (here / "b.h5").rename(other / "b.h5")
    check(mounts(path, environment={"HDF5_VDS_PREFIX": "/none:${ORIGIN}/../other"}), data)


@pytest.mark.parametrize("how", ["ro", "follow=0.1"])
def test_what_leads_out_is_refused_to_libhdf5(mounts, tmp_path, how):
    """A selection that is not regular, another datatype, and all of a file that is followed."""
    data = files.integers((3, 4), "<u4")
    (tmp_path / "in").mkdir()
    write(tmp_path / "out.h5", data)
    write(tmp_path / "in/beside.h5", data)
    os.symlink("../out.h5", tmp_path / "in/link.h5")
    path = tmp_path / "in/v.h5"
    odd = h5py.h5s.create_simple((3, 4))
    odd.select_hyperslab((0, 0), (1, 1), op=h5py.h5s.SELECT_SET)
    odd.select_hyperslab((2, 1), (1, 2), op=h5py.h5s.SELECT_OR)
    some = space_of((3, 4), (0, 0), (1, 1), (1, 3), (1, 1))
    whole = h5py.h5s.create_simple((3, 4))
    names = [str(tmp_path / "out.h5"), "../out.h5", "link.h5", "beside.h5", str(tmp_path / "in/beside.h5")]
    for i, name in enumerate(names):
        make_mapped(path, (3, 4), [(odd, name, "d", some)], name=f"odd{i}")
        make_mapped(path, (3, 4), [(whole, name, "d", whole)], name=f"type{i}", dtype="<u8")
    mount = mounts(path, how, expect_log=True)
    for i, name in enumerate(names):
        for kind in "odd", "type":
            if "beside" in name:
                check(mount, read_all(path, f"{kind}{i}"), f"{kind}{i}")
                continue
            with pytest.raises(OSError) as raised:
                (mount / f"{kind}{i}/stack.raw").read_bytes()
            assert raised.value.errno == errno.EIO
    assert "it leads out of the folder of the HDF5 file" in mount.log()
    mount.unmount()
    mount = mounts(path, how, f"external_files={tmp_path}", expect_log=True)
    for i in range(len(names)):
        check(mount, read_all(path, f"odd{i}"), f"odd{i}")
        check(mount, read_all(path, f"type{i}"), f"type{i}")


def test_many_files_are_not_all_open(mounts, tmp_path):
    n = 80
    data = files.integers((n, 2, 3), "<u4")
    layout = h5py.VirtualLayout(data.shape, "<u4")
    for i in range(n):
        write(tmp_path / f"s{i}.h5", data[i])
        layout[i] = h5py.VirtualSource(f"s{i}.h5", "d", (2, 3))
    make_virtual(tmp_path / "v.h5", layout)
    mount = mounts(tmp_path / "v.h5", "direct_io")
    check(mount, data)
    described = json.loads((mount / "v/dataset.json").read_text())
    assert described["source_count"] == n == len(described["sources"])
    def some(seed):
        for i in np.random.default_rng(seed).integers(0, n, 50):
            with open(mount / f"v/frames/{i}.raw", "rb", buffering=0) as file:
                assert file.read() == data[i].tobytes()

    with concurrent.futures.ThreadPoolExecutor(8) as threads:
        list(threads.map(some, range(8)))
    opened = [os.readlink(fd) for fd in pathlib.Path(f"/proc/{mount.process.pid}/fd").iterdir()]
    assert 0 < len([name for name in opened if name.startswith(str(tmp_path / "s"))]) <= 64


@pytest.mark.parametrize("leads", ["to itself", "there and back", "to the first"])
def test_many_files_that_lead_on_are_not_all_open(mounts, tmp_path, leads):
    """What an external link leads to is in the file in which it ends: that may be the one with the link, or that of the
    virtual dataset. What is closed with a file is opened again."""
    n = 80
    data = files.integers((n, 2, 3), "<u4")
    layout = h5py.VirtualLayout(data.shape, "<u4")
    for i in range(n):
        name = f"s{i}.h5"
        write(tmp_path / ("v.h5" if leads == "to the first" else name), data[i], name=f"real{i}/d")
        with h5py.File(tmp_path / name, "a") as f:
            f["out"] = h5py.ExternalLink({"to itself": name, "there and back": f"t{i % 8}.h5",
                                          "to the first": "v.h5"}[leads], f"real{i}")
        with h5py.File(tmp_path / f"t{i % 8}.h5", "a") as f:
            f[f"real{i}"] = h5py.ExternalLink(name, f"real{i}")
        layout[i] = h5py.VirtualSource(name, "out/d", (2, 3))
    make_virtual(tmp_path / "v.h5", layout)
    mount = mounts(tmp_path / "v.h5", "direct_io")
    for _ in range(3):
        assert (mount / "v/stack.raw").read_bytes() == data.tobytes()
    for i in np.random.default_rng(1).integers(0, n, 50):
        assert (mount / f"v/frames/{i}.raw").read_bytes() == data[i].tobytes()
    opened = [os.readlink(fd) for fd in pathlib.Path(f"/proc/{mount.process.pid}/fd").iterdir()]
    assert len([name for name in opened if pathlib.Path(name).name[0] in "st" and name.endswith(".h5")]) <= 64
    mount.unmount()


@pytest.mark.parametrize("frames", [1, 3])
def test_numbered_sources(mounts, tmp_path, frames):
    data = files.integers((5 * frames, 4, 6), "<u4")
    for i in range(5):
        write(tmp_path / f"s_{i}.h5", data[i * frames:(i + 1) * frames], name=f"d{i}",
              chunks=(1, 4, 6), compression="gzip")
    shape, most = (5 * frames, 4, 6), (UNLIMITED, 4, 6)
    shown = space_of(shape, (0, 0, 0), (frames, 1, 1), (UNLIMITED, 1, 1), (frames, 4, 6), most)
    source = space_of((frames, 4, 6), (0, 0, 0), (1, 1, 1), (1, 1, 1), (frames, 4, 6))
    path = tmp_path / "v.h5"
    make_mapped(path, shape, [(shown, "s_%b.h5", "d%b", source)], max_shape=most)
    # Another dataset is longer: what is not there yet is the fill value.
    shape = (5 * frames + 4, 4, 6)
    last = space_of(shape, (5 * frames + 3, 0, 0), (1, 1, 1), (1, 1, 1), (1, 4, 6), most)
    shown = space_of(shape, (0, 0, 0), (frames, 1, 1), (UNLIMITED, 1, 1), (frames, 4, 6), most)
    first = space_of((frames, 4, 6), (0, 0, 0), (1, 1, 1), (1, 1, 1), (1, 4, 6))
    make_mapped(path, shape, [(shown, "s_%b.h5", "d%b", source), (last, "s_0.h5", "d0", first)],
                name="long", max_shape=most)
    mount = mounts(path, expect_log=True)  # of the first that is not there, by libhdf5
    assert np.array_equal(read_all(path), data)
    check(mount, data)
    check(mount, read_all(path, "long"), "long")
    assert sources_of(mount) == [("s_%b.h5", "d%b", "numbered")]


def test_unlimited_mappings(mounts, tmp_path):
    """Interleaved, of sources of different lengths; and along another axis."""
    data = [files.integers((n, 4, 6), "<u4") for n in (5, 3)]
    most, path = (UNLIMITED, 4, 6), tmp_path / "v.h5"
    for i in range(2):
        write(tmp_path / f"s{i}.h5", data[i], chunks=(2, 4, 6), maxshape=(None, 4, 6), compression="gzip")
    whole = space_of((5, 4, 6), (0, 0, 0), (1, 1, 1), (UNLIMITED, 1, 1), (1, 4, 6), most)
    make_mapped(path, (10, 4, 6), [
        (space_of((10, 4, 6), (i, 0, 0), (2, 1, 1), (UNLIMITED, 1, 1), (1, 4, 6), most), f"s{i}.h5", "d", whole)
        for i in range(2)], max_shape=most)
    blocks = space_of((5, 4, 6), (1, 0, 0), (1, 1, 1), (1, 1, 1), (UNLIMITED, 4, 6), most)
    make_mapped(path, (10, 4, 6), [
        (space_of((10, 4, 6), (0, 0, 0), (3, 1, 1), (UNLIMITED, 1, 1), (2, 4, 6), most), "s0.h5", "d", blocks)],
        name="blocks", max_shape=most)
    mount = mounts(path)
    for name in "v", "blocks":
        check(mount, read_all(path, name), name)
    assert sources_of(mount)[0] == ("s0.h5", "d", "ok")


# Of each source: its dims when all of it was mapped, and now.
RESIZED = [
    ((4, 4, 6), (7, 4, 6)), ((1, 4, 6), (5, 4, 6)), ((4, 6), (5, 6)), ((4, 1, 4, 6), (4, 1, 4, 6)),
    ((1, 4, 4, 6), (3, 4, 4, 6)), ((4, 1, 4, 6), (5, 1, 4, 6)), ((4, 24), (6, 24)), ((1, 1, 1), (2, 3, 4)),
    ((4, 4, 6), (4, 4, 9)), ((4, 4, 6), (4, 5, 6)), ((4, 4, 6), (2, 9, 6)), ((4, 6, 1), (4, 6, 2))]


@pytest.mark.parametrize("options", ["ro", "rw,direct_io"])
def test_all_of_sources_that_have_grown(mounts, tmp_path, options):
    """Their first elements are shown, in their order."""
    path, contents = tmp_path / "v.h5", {}
    for k, (before, after) in enumerate(RESIZED):
        n, file = np.prod(before, dtype=int), "." if k % 2 else "s.h5"
        block = (n // 24, 4, 6) if n >= 24 else (1, 1, 1)
        data, shape = files.integers(after, "<u4"), (block[0] + 2, 4, 6)
        write(path if file == "." else tmp_path / file, data, f"d{k}", chunks=(1, *after[1:]), compression="gzip")
        shown = space_of(shape, (1, 0, 0), (1, 1, 1), (1, 1, 1), block)
        make_mapped(path, shape, [(shown, file, f"d{k}", h5py.h5s.create_simple(before))], f"v{k}")
        contents[f"v{k}"] = content = np.full(shape, 11, "<u4")
        content[1:1 + block[0], :block[1], :block[2]] = data.ravel()[:n].reshape(block)
    with h5py.File(path) as f:
        for name, content in contents.items():
            assert all(np.array_equal(f[name][i], content[i]) for i in range(len(content)))
    mount = mounts(path, options)
    for name, content in contents.items():
        check(mount, content, name)


def test_where_one_source_has_grown_libhdf5_reads_none(mounts, tmp_path):
    """All chunks are decoded here."""
    data = [files.integers((2, 8, 9 if i == 1 else 8), "<u4") for i in range(3)]
    layout = h5py.VirtualLayout((6, 8, 8), "<u4")
    for i in range(3):
        write(tmp_path / f"s{i}.h5", data[i], chunks=(1, *data[i].shape[1:]), compression="gzip")
        layout[2 * i:2 * i + 2] = h5py.VirtualSource(f"s{i}.h5", "d", (2, 8, 8))
    make_virtual(tmp_path / "v.h5", layout)
    mount = mounts(tmp_path / "v.h5", "ro")
    for i in (3, 2, 4, 0):
        assert (mount / f"v/frames/{i}.raw").read_bytes() == data[i // 2].ravel()[i % 2 * 64:][:64].tobytes()
    assert (mount / "v/stack.raw").read_bytes() == b"".join(part.ravel()[:128].tobytes() for part in data)
    assert decoded(mount) == 6


@pytest.mark.parametrize("options", ["ro", "missing=fill"])
def test_all_of_a_source_that_has_shrunk(mounts, tmp_path, options):
    path, data = tmp_path / "v.h5", files.integers((2, 4, 6), "<u4")
    write(path, data, chunks=(1, 4, 6))
    make_mapped(path, (4, 4, 6), [(h5py.h5s.create_simple((4, 4, 6)), ".", "d", h5py.h5s.create_simple((4, 4, 6)))])
    mount = mounts(path, options, expect_log=True)
    with h5py.File(path) as f:
        assert all(np.array_equal(f["v"][i], data[i]) for i in range(2))
    for i in range(2):
        assert (mount / f"v/frames/{i}.raw").read_bytes() == data[i].tobytes()
    if options == "missing=fill":
        assert (mount / "v/frames/2.raw").read_bytes() == np.full((4, 6), 11, "<u4").tobytes()
    else:
        assert is_refused(mount / "v/frames/2.raw")
    assert sources_of(mount) == [(".", "d", "too short")]


def test_numbered_sources_that_have_grown(mounts, tmp_path):
    path, data = tmp_path / "v.h5", files.integers((3, 5, 4, 6), "<u4")
    for i, n in enumerate((2, 5, 3)):
        write(path, data[i, :n], name=f"d{i}", chunks=(1, 4, 6))
    most = (UNLIMITED, 4, 6)
    shown = space_of((6, 4, 6), (0, 0, 0), (2, 1, 1), (UNLIMITED, 1, 1), (2, 4, 6), most)
    make_mapped(path, (6, 4, 6), [(shown, ".", "d%b", h5py.h5s.create_simple((2, 4, 6)))], max_shape=most)
    assert np.array_equal(read_all(path), data[:, :2].reshape(6, 4, 6))
    check(mounts(path), read_all(path))


def random_axis(random, n):
    """A regular selection of n elements, and its end."""
    block = int(random.choice([i for i in range(1, n + 1) if n % i == 0]))
    count, gap, start = n // block, int(random.integers(0, 3)), int(random.integers(0, 4))
    return start, block + gap, count, block, start + (count - 1) * (block + gap) + block


def random_slab(random, sizes, shape=None):
    """Of these sizes, in dims (None: chosen) in which it lies."""
    for _ in range(1000):
        axes = [random_axis(random, n) for n in sizes]
        if shape is None:
            shape = [axis[4] + int(random.integers(0, 3)) for axis in axes]
        if all(axis[4] <= dim for axis, dim in zip(axes, shape)):
            return shape, tuple(zip(*axes))[:4]
    return None, None


@pytest.mark.parametrize("seed", range(12))
def test_random_mappings(mounts, tmp_path, seed):
    """Regular selections of all ranks, one over the other, of sources of all kinds."""
    random = np.random.default_rng(seed)
    path, names = tmp_path / "v.h5", []
    for n in range(6):
        rank = int(random.integers(1, 5))
        shape = [int(random.integers(4, 14)) for _ in range(rank)]
        mappings = []
        for k in range(int(random.integers(1, 6))):
            sizes = [int(random.integers(1, max(dim // 2, 2))) for dim in shape]
            _, there = random_slab(random, sizes, shape)
            if there is None:
                continue
            # On the other side axes of one element may be added or left out.
            other = [size for size in sizes if size > 1 or random.random() < 0.5] or [1]
            while random.random() < 0.3 and len(other) < 5:
                other.insert(int(random.integers(0, len(other) + 1)), 1)
            source_shape, here = random_slab(random, other)
            file, data = f"s{int(random.integers(0, 3))}.h5", files.integers(tuple(source_shape), "<u4")
            chunks = tuple(int(random.integers(1, dim + 1)) for dim in source_shape)
            options = [{}, {"chunks": chunks}, {"chunks": chunks, "compression": "gzip"},
                       {"chunks": chunks, "compression": "gzip", "shuffle": True}][int(random.integers(0, 4))]
            write(tmp_path / file, data, name=f"{n}{k}", **options)
            mappings.append((space_of(tuple(shape), *there), file, f"{n}{k}", space_of(tuple(source_shape), *here)))
        make_mapped(path, tuple(shape), mappings, name=str(n))
        names.append(str(n))
    expected = {}
    with h5py.File(path) as f:
        for name in names:
            # Not what libhdf5 reads: it counts elements twice where mappings overlap, and may leave
            # gaps as they were.
            plist, expected[name] = f[name].id.get_create_plist(), np.full(f[name].shape, 11, "<u4")
            for i in range(plist.get_virtual_count()):
                selected = indices_of(plist.get_virtual_vspace(i), f[name].shape)
                expected[name][np.ix_(*selected)] = shown_by(plist, i, tmp_path).reshape(
                    [len(i) for i in selected])
    mount = mounts(path, ["ro", "direct_io", "rw", "cache_size=64K"][seed % 4])
    for name in names:
        check(mount, expected[name], name, seed)


def indices_of(space, shape):
    if space.get_select_type() == h5py.h5s.SEL_ALL:
        return [np.arange(dim) for dim in shape]
    return [np.concatenate([np.arange(first + k * stride, first + k * stride + block) for k in range(count)])
            for first, stride, count, block in zip(*space.get_regular_hyperslab())]


def shown_by(plist, i, folder):
    with h5py.File(folder / plist.get_virtual_filename(i)) as source:
        data = source[plist.get_virtual_dsetname(i)][()]
    indices = indices_of(plist.get_virtual_srcspace(i), data.shape)
    return data[np.ix_(*indices)]


def united(shape, boxes):
    """Of boxes: (start, count)."""
    space = h5py.h5s.create_simple(shape)
    for i, (start, count) in enumerate(boxes):
        space.select_hyperslab(start, count, op=h5py.h5s.SELECT_OR if i else h5py.h5s.SELECT_SET)
    return space


def space_of_list(shape, indices):
    """Of a list of indices along each axis."""
    return united(shape, [(corner, (1,) * len(shape)) for corner in itertools.product(*indices)])


def some_of(random, dim, n, is_list):
    first = int(random.integers(0, dim - n + 1))
    return sorted(random.choice(dim, n, replace=False).tolist()) if is_list else list(range(first, first + n))


@pytest.mark.parametrize("seed", range(12))
def test_lists_of_indices(mounts, tmp_path, seed):
    """As h5py selects them by layout[[0, 3, 5]], along any axis, on one side or on both, along the same axis or
    others, in squares, too."""
    random = np.random.default_rng(seed)
    path, expected = tmp_path / "v.h5", {}
    for n in range(12):
        rank = int(random.integers(1, 4))
        sizes = [int(random.integers(1, 5)) for _ in range(rank)] if n % 3 else [3] * rank
        shape = tuple(size + int(random.integers(0, 4)) for size in sizes)
        source_shape = tuple(size + int(random.integers(0, 4)) for size in sizes)
        shown_axis, source_axis = (int(random.integers(-1, rank)) for _ in range(2))
        there = [some_of(random, dim, size, i == shown_axis) for i, (dim, size) in enumerate(zip(shape, sizes))]
        here = [some_of(random, dim, size, i == source_axis)
                for i, (dim, size) in enumerate(zip(source_shape, sizes))]
        data = files.integers(source_shape, "<u4")
        write(tmp_path / "s.h5", data, name=str(n))
        make_mapped(path, shape, [(space_of_list(shape, there), "s.h5", str(n), space_of_list(source_shape, here))],
                    name=str(n))
        expected[str(n)] = np.full(shape, 11, "<u4")
        expected[str(n)][np.ix_(*there)] = data[np.ix_(*here)]
        assert np.array_equal(read_all(path, str(n)), expected[str(n)])
    mount = mounts(path, ["ro", "direct_io", "rw", "cache_size=64K"][seed % 4])
    for name, content in expected.items():
        check(mount, content, name, seed)


def is_refused(path):
    try:
        path.read_bytes()
    except OSError as error:
        assert error.errno == errno.EIO
        return True
    return False


def refused_frames(mount, name, n):
    return [i for i in range(n) if is_refused(mount / f"{name}/frames/{i}.raw")]


@pytest.mark.parametrize("how", ["ro", "rw", "ro,hdf5=inside"])
def test_what_is_missing_of_lists(mounts, tmp_path, how):
    """Of a list of frames those are refused that are not there, and no others."""
    data = files.integers((8, 4, 6), "<u4")
    path = tmp_path / "v.h5"
    write(tmp_path / "good.h5", data)
    write(tmp_path / "short.h5", data[:4])
    for name in "gone", "short":
        layout = h5py.VirtualLayout((8, 4, 6), "<u4")
        layout[[0, 3, 6]] = h5py.VirtualSource(f"{name}.h5", "d", data.shape)[[1, 3, 7]]
        layout[[1, 2, 5, 7]] = h5py.VirtualSource("good.h5", "d", data.shape)[4:8]
        make_virtual(path, layout, name)
    mount = mounts(path, how, expect_log=True)
    assert refused_frames(mount, "gone", 8) == [0, 3, 6] and refused_frames(mount, "short", 8) == [6]
    for i, k in {0: 1, 3: 3, 1: 4, 2: 5, 5: 6, 7: 7}.items():
        assert i in (0, 3) or (mount / f"gone/frames/{i}.raw").read_bytes() == data[k].tobytes()
        assert (mount / f"short/frames/{i}.raw").read_bytes() == data[k].tobytes()
    assert sources_of(mount, "gone") == [("gone.h5", "d", "missing"), ("good.h5", "d", "ok")]
    assert sources_of(mount, "short") == [("short.h5", "d", "too short"), ("good.h5", "d", "ok")]


@pytest.mark.parametrize("how", ["ro", "rw", "ro,hdf5=inside", "ro,missing=fill"])
def test_what_is_missing_where_libhdf5_reads(mounts, tmp_path, how):
    """Selections that are neither regular nor a list along one axis, or not of the same form: all that may be
    of a source that is not there is refused, and never silently the fill value, or what is behind its end."""
    data = files.integers((8, 4, 6), "<u4")
    path = tmp_path / "v.h5"
    write(tmp_path / "good.h5", data)
    write(tmp_path / "short.h5", data[:3])
    write(tmp_path / "short.h5", data, name="behind")  # which is what libhdf5 would read
    corners = [((0, 0, 0), (2, 2, 3)), ((1, 2, 3), (2, 2, 3))]
    for name in "good", "gone", "short":
        make_mapped(path, (8, 4, 6), [
            (united(data.shape, corners), f"{name}.h5", "d",
             united(data.shape, [((start[0] + 1, *start[1:]), count) for start, count in corners])),
            (space_of((8, 4, 6), (4, 0, 0), (1, 1, 1), (1, 1, 1), (4, 4, 6)), "good.h5", "d",
             space_of((8, 4, 6), (0, 0, 0), (1, 1, 1), (1, 1, 1), (4, 4, 6)))], name=name)
        layout = h5py.VirtualLayout((8, 24), "<u4")
        layout[...] = h5py.VirtualSource(f"{name}.h5", "d", data.shape)
        make_virtual(path, layout, f"{name}_reshaped")
        layout = h5py.VirtualLayout((8, 12), "<u4")
        layout[:4] = h5py.VirtualSource(f"{name}.h5", "d", data.shape)[2:6, :2, :]
        make_virtual(path, layout, f"{name}_part")
    expected = {name: read_all(path, name) for name in ("good", "good_reshaped", "good_part")}
    mount = mounts(path, how, expect_log=True)
    for name, content in expected.items():
        check(mount, content, name)
    is_filled = "fill" in how
    assert refused_frames(mount, "gone", 8) == ([] if is_filled else [0, 1, 2])
    assert refused_frames(mount, "short", 8) == [0, 1, 2]
    for name in "gone", "short":
        for i in 3, 4, 7:
            assert (mount / f"{name}/frames/{i}.raw").read_bytes() == expected["good"][i].tobytes()
        for kind in "reshaped", "part":
            stack = mount / f"{name}_{kind}/stack.raw"
            is_read = is_filled and (name, kind) != ("short", "part")
            assert is_refused(stack) is not is_read, (name, kind)
            assert not is_read or set(np.fromfile(stack, "<u4")) == {11}
    assert sources_of(mount, "short")[0] == ("short.h5", "d", "too short")
    assert sources_of(mount, "short_part") == [("short.h5", "d", "too short")]
    assert sources_of(mount, "gone_part") == [("gone.h5", "d", "missing")]


def test_thousands_of_mappings(mounts, tmp_path):
    n = 3000
    data = files.integers((n, 2, 3), "<u2")
    write(tmp_path / "s.h5", data, chunks=(100, 2, 3), compression="gzip")
    layout = h5py.VirtualLayout(data.shape, "<u2")
    source = h5py.VirtualSource("s.h5", "d", data.shape)
    for i in range(n):
        layout[i] = source[n - 1 - i]
    make_virtual(tmp_path / "v.h5", layout)
    mount = mounts(tmp_path / "v.h5")
    assert (mount / "v/stack.raw").read_bytes() == data[::-1].tobytes()
    for i in 0, 1, 1234, n - 1:
        assert (mount / f"v/frames/{i}.raw").read_bytes() == data[n - 1 - i].tobytes()
    assert decoded(mount) == 30


def test_sparse_sources(mounts, tmp_path):
    """Undefined elements are the source's fill value."""
    data = np.where(np.random.default_rng(3).random((6, 20, 30)) < 0.05, 7, 0).astype("<u2")
    write(tmp_path / "dense.h5", data, chunks=(1, 20, 30), compression="gzip")
    done = subprocess.run([BUILD / "sparsectl", "import", tmp_path / "dense.h5:/d", tmp_path / "s.h5"],
                          capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    layout = h5py.VirtualLayout((6, 20, 30), "<u2")
    layout[...] = h5py.VirtualSource("s.h5", "d", data.shape)
    make_virtual(tmp_path / "v.h5", layout)
    mount = mounts(tmp_path / "v.h5")
    check(mount, data)
    assert json.loads((mount / "v/dataset.json").read_text())["defined_elements"] == data.size


def test_names_of_files_that_are_too_long(mounts, tmp_path):
    """No path of Linux has more than 4,095 bytes."""
    path, data = tmp_path / "v.h5", files.integers((1, 2, 3), "<u4")
    write(tmp_path / "s.h5", data)
    space = h5py.h5s.create_simple(data.shape)
    for name, steps in ("v", 2045), ("w", 2046):
        make_mapped(path, data.shape, [(space, "./" * steps + "/s.h5", "d", space)], name)
    mount = mounts(path, expect_log=True)
    assert (mount / "v/stack.raw").read_bytes() == data.tobytes()
    with pytest.raises(OSError) as raised:
        (mount / "w/stack.raw").read_bytes()
    assert raised.value.errno == errno.EIO


def test_paths_of_sources_that_are_too_long(mounts, tmp_path):
    """They lead to the dataset, by a group that is in itself."""
    path, data = tmp_path / "v.h5", files.integers((1, 2, 3), "<u4")
    write(path, data)
    space = h5py.h5s.create_simple(data.shape)
    with h5py.File(path, "a") as f:
        f["a"] = f["/"]
    for name, parts in ("v", 60_000), ("w", 66_000):
        make_mapped(path, data.shape, [(space, ".", "a/" * parts + "d", space)], name)
    mount = mounts(path, expect_log=True)
    assert (mount / "v/stack.raw").read_bytes() == data.tobytes()
    with pytest.raises(OSError) as raised:
        (mount / "w/stack.raw").read_bytes()
    assert raised.value.errno == errno.EIO
    assert "is refused: the path of the dataset has more than 128 KiB" in mount.log()
    assert sources_of(mount, "w")[0][2] == "refused"


def make_levels(path, levels, mappings, shape=(8, 1024, 1024)):
    """Virtual datasets of each other: the second frame of each has all of these mappings, only the last of
    which is read; all ways through them are mappings**levels."""
    with h5py.File(path, "a", libver="latest") as f:
        f.create_dataset(str(levels), shape, "u1")
    for level in reversed(range(levels)):
        frames = [(0, 1), (2, 6), *[(1, 1)] * mappings]
        shown = [space_of(shape, (first, 0, 0), (1, 1, 1), (1, 1, 1), (n, *shape[1:])) for first, n in frames]
        make_mapped(path, shape, [(part, ".", str(level + 1), part) for part in shown], str(level), "u1", fill=0)


def test_very_many_ways_through_sources(mounts, tmp_path):
    """Frames in order: what is read ahead is looked for as far as it pays, and others are read meanwhile."""
    path = tmp_path / "v.h5"
    make_levels(path, 14, 50)
    data = files.integers((16, 128, 128), "<u4")
    write(path, data, chunks=(1, 128, 128), compression="gzip")
    mount = mounts(path, "ro,direct_io,workers=2")
    for i in range(8):
        reader = subprocess.Popen(["cat", mount / f"0/frames/{i}.raw"], stdout=subprocess.PIPE)
        assert reader.communicate(timeout=START_SECONDS)[0] == bytes(1 << 20), i
        assert (mount / f"d/frames/{i}.raw").read_bytes() == data[i].tobytes()


@pytest.mark.parametrize("through", [1, 2])
def test_what_cannot_be_lent_is_looked_for_once(mounts, tmp_path, through):
    """Packed values of a source are put in their places by the request that has loaded them, also where
    virtual datasets, of another rank, are between."""
    random = np.random.default_rng(5)
    defined = random.random((1, 64, 30)) < 0.01 # else it is dense in memory
    data = np.where(defined, random.integers(1, 200, defined.shape), 0).astype("<u2")
    sparse_files.make(tmp_path / "s.h5", data, defined, data.shape)
    shapes, source = [data.shape, (64, 30), (1, 1, 64, 30)], ("s.h5", "sparse")
    for i in range(through):
        layout = h5py.VirtualLayout(shapes[i + 1], "<u2")
        layout[...] = h5py.VirtualSource(*source, shapes[i])
        make_virtual(tmp_path / f"v{i}.h5", layout, fill=0)
        source = (f"v{i}.h5", "v")
    mount = mounts(tmp_path / source[0], "direct_io")
    content = data.tobytes()
    for hits in range(3):
        fd = os.open(mount / ("v/frames/0.raw" if through == 1 else "v/stack.raw"), os.O_RDONLY)
        assert os.pread(fd, 3001, 3) == content[3:3004]
        os.close(fd)
        found = json.loads((mount / ".sparsefs/stats.json").read_text())
        assert (found["cache_misses"], found["cache_hits"]) == (1, hits)


def test_text(mounts, tmp_path):
    data = np.arange(6, dtype="<u4")
    write(tmp_path / "s.h5", data)
    layout = h5py.VirtualLayout((6,), "<u4")
    layout[...] = h5py.VirtualSource("s.h5", "d", (6,))
    make_virtual(tmp_path / "v.h5", layout)
    assert (mounts(tmp_path / "v.h5") / "v/value.txt").read_text().split() == [str(i) for i in range(6)]
