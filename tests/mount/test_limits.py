"""What a file can claim, and how far it is believed: memory and time of what it costs to look."""
import errno
import functools
import io
import itertools
import json
import os
import pathlib
import resource
import shutil
import signal
import struct
import subprocess
import sys
import zlib

import h5py
import numpy as np
import pytest

import sparse_files
import test_external_raw
from compare import selected
from conftest import BUILD, START_SECONDS, TOP, let_in, state_of, wait_until
from test_worker import is_sanitized

sys.path.insert(0, str(TOP / "tests/malformed"))
import drive  # noqa: E402
import make  # noqa: E402

DEFLATE, SHUFFLE, FLETCHER32, SZIP = 1, 2, 3, 4
LZF = 32000
KIB, MIB = 1 << 10, 1 << 20
SANITIZER = 64 * MIB if is_sanitized() else 0  # what one takes besides, in a program that does little


def peak(pid):
    """The most memory that a process has had, in bytes."""
    status = pathlib.Path(f"/proc/{pid}/status").read_text()
    return int(status.split("VmHWM:")[1].split()[0]) * KIB


def with_filters(file, name, data, chunks, filters):
    """A dataset whose filters stand in this order, which h5py's own keywords do not give."""
    plist = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
    plist.set_chunk(chunks)
    for number in filters:
        if number == DEFLATE:
            plist.set_filter(DEFLATE, h5py.h5z.FLAG_MANDATORY, (6,))
        elif number == SZIP:
            plist.set_szip(h5py.h5z.SZIP_NN_OPTION_MASK, 8)
        elif number == SHUFFLE:
            plist.set_shuffle()
        elif number == FLETCHER32:
            plist.set_fletcher32()
        else:
            plist.set_filter(number, h5py.h5z.FLAG_OPTIONAL)
    space = h5py.h5s.create_simple(data.shape)
    dataset = h5py.Dataset(h5py.h5d.create(file.id, name.encode(), h5py.h5t.py_create(data.dtype),
                                           space, plist))
    dataset[...] = data
    return dataset


ORDERS = [order for n in (2, 3) for order in
          itertools.product((DEFLATE, LZF, SHUFFLE, FLETCHER32), repeat=n)
          if sum(number in (DEFLATE, LZF) for number in order) > 1]
ORDERS += [(SZIP, DEFLATE), (SZIP, LZF, FLETCHER32), (SHUFFLE, SZIP, DEFLATE),
           (DEFLATE,) * 6, (FLETCHER32, LZF, SHUFFLE, DEFLATE, FLETCHER32, DEFLATE)]


def test_filters_that_compress_one_behind_the_other(mounts, tmp_path):
    """What libhdf5 has made of them, in every order."""
    path = tmp_path / "nested.h5"
    random = np.random.default_rng(1)
    kinds = {"smooth": np.arange(6000, dtype="u2").reshape(3, 40, 50) // 7,
             "noise": random.integers(0, 65536, (3, 40, 50), "u2")}
    with h5py.File(path, "w", libver="latest") as file:
        for i, order in enumerate(ORDERS):
            for kind, data in kinds.items():
                with_filters(file, f"{kind}{i}", data, (2, 30, 50), order)
    mount = mounts(path)
    with h5py.File(path) as file:
        for i in range(len(ORDERS)):
            for kind, data in kinds.items():
                assert (file[f"{kind}{i}"][...] == data).all()
                assert (mount / f"{kind}{i}/stack.raw").read_bytes() == data.tobytes(), ORDERS[i]


@functools.lru_cache
def zeros(size, times):
    """Zeros in `times` zlib streams, one in the other."""
    stream, piece = zlib.compressobj(9), bytes(16 * MIB)
    stored = b"".join(stream.compress(piece) for _ in range(size // len(piece))) + stream.flush()
    for _ in range(times - 1):
        stored = zlib.compress(stored, 9)
    return stored


def bombs(path, chunk, times):
    """A small chunk of which stored bytes make 512 MiB, and a sound one."""
    stored = zeros(512 * MIB, times)
    with h5py.File(path, "w") as file:
        data = np.arange(np.prod(chunk), dtype="u1").reshape(chunk)
        good = with_filters(file, "good", data, chunk, (DEFLATE,) * times)
        bad = with_filters(file, "bad", np.zeros(chunk, "u1"), chunk, (DEFLATE,) * times)
        bad.id.write_direct_chunk((0,) * len(chunk), stored)
        assert good.shape == bad.shape
    return data, len(stored)


@pytest.mark.parametrize("options", ["ro", "default", "ro,hdf5=inside", "default,hdf5=inside"])
def test_little_that_becomes_gigabytes(mounts, tmp_path, options):
    path = tmp_path / "bomb.h5"
    data, size = bombs(path, (1, 64, 64), 3)
    assert size < 16 * KIB
    mount = mounts(path, *options.split(","), expect_log=True)
    with pytest.raises(OSError) as error:
        (mount / "bad/frames/0.raw").read_bytes()
    assert error.value.errno == errno.EIO
    assert "/bad: chunk (0,0,0)" in mount.log() and "compressed data are damaged" in mount.log()
    assert (mount / "good/frames/0.raw").read_bytes() == data.tobytes()
    assert peak(mount.process.pid) < 128 * MIB


LARGE = (1, 4096, 32768)
BYTES = 128 * MIB


@pytest.fixture(scope="module")
def large_chunks(tmp_path_factory):
    """Files whose chunks of 128 MiB are stored in some KiB: dense, with and without values, sparse,
    and sparse with few elements, of which little has to be in memory."""
    folder = tmp_path_factory.mktemp("large")
    with h5py.File(folder / "dense.h5", "w") as file:
        for name, order in ("gzip", (DEFLATE,)), ("shuffle", (SHUFFLE, DEFLATE)):
            plist = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
            plist.set_chunk(LARGE)
            for number in order:
                plist.set_filter(number, h5py.h5z.FLAG_MANDATORY, (6,) if number == DEFLATE else ())
            kind = h5py.h5t.NATIVE_UINT8 if name == "gzip" else h5py.h5t.STD_U16LE
            shape = (2, *LARGE[1:]) if name == "gzip" else (2, 2048, 32768)
            plist.set_chunk((1, *shape[1:]))
            dataset = h5py.h5d.create(file.id, name.encode(), kind, h5py.h5s.create_simple(shape),
                                      plist)
            dataset.write_direct_chunk((0, 0, 0), zeros(BYTES, 1))
        file["small"] = np.arange(1000, dtype="u1").reshape(10, 10, 10)
    array = np.zeros(LARGE, "u1")
    sparse_files.make(folder / "sparse.h5", array, np.ones(LARGE, bool), LARGE, deflate=(0, 6))
    few = np.zeros(LARGE, bool)
    few[0, 5, 7:9] = True
    sparse_files.make(folder / "few.h5", array + 3, few, LARGE)
    return folder


VIEWS = ["frames/0.raw", "npy/000000.npy", "stack.raw", "values/000000.values", "tiff/000000.tif"]


def read(path, most=4 * MIB):
    """The first bytes of a file; the kernel reads ahead of them only a little."""
    with open(path, "rb", buffering=0) as file:
        return file.read(most)


CASES = [("dense", "gzip", 1), ("dense", "shuffle", 2), ("sparse", "sparse", 1)]


@pytest.mark.parametrize("options", ["ro", "rw"])
@pytest.mark.parametrize("case", CASES, ids=lambda case: case[1])
def test_chunks_that_claim_to_be_large(mounts, large_chunks, options, case):
    name, dataset, times = case
    path = large_chunks / f"{name}.h5"
    believed = mounts(path, options, "cache_size=16M")
    for view in VIEWS:
        assert not any(read(believed / dataset / view)[200:])
    assert peak(believed.process.pid) < times * BYTES + 64 * MIB
    believed.unmount()
    mount = mounts(path, options, "cache_size=16M", "chunk_memory=100M", expect_log=True)
    for view in VIEWS:
        with pytest.raises(OSError) as error:
            read(mount / dataset / view)
        assert error.value.errno == errno.EIO
    assert f"/{dataset}: chunk (0,0,0) at address" in mount.log()
    assert "MiB of memory, and chunk_memory= allows no more than 100 MiB" in mount.log()
    assert json.loads((mount / dataset / "dataset.json").read_text())
    if name == "dense":  # of what is not stored nothing is allocated
        assert len((mount / "small/stack.raw").read_bytes()) == 1000
        assert not any(read(mount / dataset / "frames/1.raw"))
    assert peak(mount.process.pid) < 64 * MIB
    mount.unmount()


@pytest.mark.parametrize("options", ["ro", "rw"])
def test_elements_that_are_frames(mounts, tmp_path, options):
    """Of a detector of four megapixels, as one array each."""
    frames = np.arange(2 * 2167 * 2070, dtype="<u4").reshape(2, 2167, 2070)
    with h5py.File(tmp_path / "arrays.h5", "w") as file:
        dataset = file.create_dataset("d", (2,), np.dtype(("<u4", frames.shape[1:])))
        dataset[...] = frames
    mount = mounts(tmp_path / "arrays.h5", options)
    assert (mount / "d/stack.raw").read_bytes() == frames.tobytes()


def test_few_elements_of_a_large_chunk(mounts, large_chunks, tmp_path):
    """They are read, and written one by one, in little memory; much of the chunk is not."""
    path = tmp_path / "few.h5"
    shutil.copy(large_chunks / "few.h5", path)
    mount = mounts(path, "rw", "cache_size=16M", "chunk_memory=32M", expect_log=True)
    frame = mount / "sparse/frames/0.raw"
    content = read(frame)
    assert content.count(3) == 2 and len(content) == 4 * MIB
    with open(frame, "r+b", buffering=0) as file:
        file.write(b"abc")
        os.fsync(file.fileno())
    assert read(frame)[:4] == b"abc\0"
    with open(frame, "r+b", buffering=0) as file, pytest.raises(OSError) as error:
        file.write(bytes(64 * MIB))  # some of it is taken
        file.write(b"0")
    assert error.value.errno == errno.EIO
    assert "chunk_memory= allows no more than 32 MiB" in mount.log()
    assert peak(mount.process.pid) < 112 * MIB
    assert read(frame)[:4] == bytes(4)


MEASURE = """
import resource, subprocess, sys
code = subprocess.call(sys.argv[1:], stdout=sys.stderr)
print(code, resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss)
"""


def sparsectl(*arguments):
    """Its exit code, what it says, and the most memory that it has had in bytes. (What is
    forked from here would count our own memory.)"""
    done = subprocess.run(["/usr/bin/python3", "-c", MEASURE, BUILD / "sparsectl", *arguments],
                          check=True, capture_output=True, text=True)
    code, used = map(int, done.stdout.split())
    return code, done.stderr, used * KIB


@pytest.mark.parametrize("case", CASES, ids=lambda case: case[1])
def test_sparsectl_and_large_chunks(large_chunks, tmp_path, case):
    name, dataset, times = case
    path = large_chunks / f"{name}.h5"
    target = f"{path}:/{dataset}"
    commands = {"check": [path], "import": [target, tmp_path / "imported.h5"]}
    if name == "sparse":
        commands = {"check": [path], "dump": [target], "export": [target, tmp_path / "exported.h5"]}
    else:
        del commands["check"]  # which looks only where chunks are
    for command, arguments in commands.items():
        code, errors, used = sparsectl("--chunk-memory", "100M", command, *arguments)
        assert code in (1, 2) and "chunk_memory= allows no more than 100 MiB" in errors, (command, errors)
        assert used < 64 * MIB + SANITIZER, command
    assert sparsectl("--chunk-memory=100M", "info", path)[0] == 0
    assert sparsectl("--chunk-memory=1G", "check", path)[2] < times * BYTES + 64 * MIB
    for wrong in (["--chunk-memory"], ["--chunk-memory", "much", "check"], ["--chunk-memory=0", "check"]):
        assert sparsectl(*wrong, path)[0] == 2


# ---- Few bytes that claim much ----

def many_lists(path):
    """An attribute of 3,900 lists, all of them the same 60,000 bytes: 234 MB."""
    elements, length = 3900, 60000
    with h5py.File(path, "w") as file:
        lists = np.empty(elements, object)
        for i in range(elements):
            lists[i] = np.zeros(1 if i else length, "u1")
        file.create_group("g").attrs.create("lists", lists, dtype=h5py.vlen_dtype("u1"))
        file["beside"] = make.BESIDE
    content = bytearray(path.read_bytes())
    heap = struct.pack("<Q", content.index(b"GCOL"))
    at = content.index(struct.pack("<I", length) + heap)
    content[at:at + 16 * elements] = content[at:at + 16] * elements
    path.write_bytes(content)


def links(file, group):
    """Groups with two links to the next one, 60 times; rings; soft links without an end."""
    inner = group
    for _ in range(60):
        following = inner.create_group("a")
        inner["b"] = following
        inner = following
    inner["end"] = 1
    group["self"] = group
    group["root"] = file["/"]
    group["x"] = h5py.SoftLink("/g/y")
    group["y"] = h5py.SoftLink("/g/x")
    group["z"] = h5py.SoftLink("z/z/z")
    group["long"] = h5py.SoftLink("/x" * 20000)


def names(file, group):
    group["n" * 60000] = group["m" * 255] = group["o" * 256] = 1
    group.attrs["a" * 60000] = 1


def attributes(file, group):
    for i in range(5000):
        group.attrs[f"attribute{i}"] = i


def dims(file, group):
    for name, shape, chunk in (("one", (2**62,), (4096,)), ("none", (2**63 - 1, 0), (1, 1)),
                               ("frames", (2**60, 1, 1), (512, 1, 1))):
        plist = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
        plist.set_chunk(chunk)
        space = h5py.h5s.create_simple(shape, (h5py.h5s.UNLIMITED,) * len(shape))
        h5py.h5d.create(group.id, name.encode(), h5py.h5t.STD_U8LE, space, plist)


def elements(file, group):
    """Of 1 and 2 GiB each, of which an empty dataset takes no room."""
    space = h5py.h5s.create_simple((4,))
    array = h5py.h5t.array_create(h5py.h5t.STD_U8LE, (2**15, 2**15))
    opaque = h5py.h5t.create(h5py.h5t.OPAQUE, 2**31 - 1)
    for name, kind in ("array", array), ("opaque", opaque):
        h5py.h5d.create(group.id, name.encode(), kind, space)


def circles(file, group):
    """Links and virtual datasets that lead to themselves, through the file's name, too."""
    name = pathlib.Path(file.filename).name
    group["link"] = h5py.ExternalLink(name, "/g/link")
    group["all"] = h5py.ExternalLink(name, "/")
    for dataset, source, of in (("v", ".", "/g/v"), ("x", name, "/g/y"), ("y", name, "/g/x")):
        layout = h5py.VirtualLayout((6, 10, 10), "<u2")
        layout[...] = h5py.VirtualSource(source, of, (6, 10, 10))
        group.create_virtual_dataset(dataset, layout)


CLAIMS = [links, names, attributes, dims, elements, circles]


def make_claim(path, add):
    with h5py.File(path, "w", libver="latest") as file:
        file["beside"] = make.BESIDE
        add(file, file.create_group("g"))


@pytest.mark.parametrize("mode", ["ro", "default"])
@pytest.mark.parametrize("add", CLAIMS, ids=lambda add: add.__name__)
def test_claims(tmp_path, add, mode):
    path = tmp_path / "bad.h5"
    make_claim(path, add)
    assert not drive.try_file(([(add.__name__, path.read_bytes(), True)], mode, None, None))[0][1]


@pytest.mark.parametrize("mode", ["ro", "default", "inside"])
def test_lists_that_are_all_the_same(tmp_path, mode):
    path = tmp_path / "bad.h5"
    many_lists(path)
    assert not drive.try_file(([("lists", path.read_bytes(), True)], mode, None, None))[0][1]


@pytest.mark.parametrize("options", ["ro", "default,hdf5=inside"])
def test_strings_that_claim_gigabytes(mounts, tmp_path, options):
    """They are left out without being read; others are there, whatever they are in."""
    path = tmp_path / "long.h5"
    text, lists = h5py.string_dtype(), h5py.vlen_dtype("f8")
    with h5py.File(path, "w") as file:
        group = file.create_group("g")
        group.attrs["long"] = "0123456789abc"
        group.attrs["short"] = "some"
        group.attrs["several"] = ["a", "bcd"]
        rows = np.zeros(2, [("a", "i4"), ("b", text)])
        rows["b"] = "one", "three"
        group.attrs.create("rows", rows)
        numbers = np.empty(2, object)
        numbers[:] = np.arange(2.), np.arange(3.)
        group.attrs.create("numbers", numbers, dtype=lists)
    content = path.read_bytes()
    element = struct.pack("<IQ", 14, content.index(b"GCOL"))
    element = element if element in content else struct.pack("<IQ", 13, content.index(b"GCOL"))
    assert content.count(element) == 1
    path.write_bytes(content.replace(element, struct.pack("<I", 3 << 30) + element[4:]))
    mount = mounts(path, *options.split(","), expect_log=True)
    names = [name.removeprefix("user.") for name in os.listxattr(mount / "g")]
    assert sorted(names) == ["numbers", "rows", "several", "short"]
    assert "is left out, as it is too large: long" in mount.log()
    assert os.getxattr(mount / "g", "user.short") == b"some"
    assert b"three" in os.getxattr(mount / "g", "user.rows")
    assert b"2" in os.getxattr(mount / "g", "user.numbers")
    assert peak(mount.process.pid) < 64 * MIB


def make_deep(path, levels):
    with h5py.File(path, "w", libver="latest", driver="core") as file:
        group = file.id
        for _ in range(levels):
            group = h5py.h5g.create(group, b"g")


def test_deep_groups_and_sparsectl(tmp_path):
    """As deep as paths are long: what is not looked into is said."""
    path = tmp_path / "deep.h5"
    make_deep(path, 200_000)
    code, said, used = sparsectl("check", path)
    assert code == 2 and "too many levels of groups" in said and "4096 groups" in said
    assert used < 128 * MIB + SANITIZER
    code, said, used = sparsectl("info", path)
    assert code == 1 and "Too many levels" in said and used < 128 * MIB + SANITIZER


def test_long_names_and_sparsectl(tmp_path):
    """2,000 paths of 120,000 bytes are not kept as a whole; one that is longer is not looked into."""
    path = tmp_path / "long.h5"
    with h5py.File(path, "w", libver="latest") as file:
        long = file.create_group("g" * 60_000).create_group("h" * 60_000)
        for n in range(2000):
            long.create_group(str(n))
    for command in "check", "info":
        code, said, used = sparsectl(command, path)
        assert code == 0 and used < 64 * MIB + SANITIZER
        assert command == "info" or ": sound: 2003 groups and datasets sound" in said
    with h5py.File(path, "a") as file:
        file["g" * 60_000 + "/" + "h" * 60_000].create_group("i" * 60_000)
        file.create_dataset("last", data=[1])
    code, said, used = sparsectl("check", path)
    assert code == 2 and "paths of names in it are too long to look into all" in said
    assert ": cannot tell: 2003 groups and datasets sound" in said and used < 64 * MIB + SANITIZER
    code, said, used = sparsectl("info", path)
    assert code == 1 and "File name too long" in said and used < 64 * MIB + SANITIZER


@pytest.mark.parametrize("ending", ["kill", "end"])
def test_making_room_is_interrupted(mounts, tmp_path, ending):
    """The first element of a contiguous dataset is written: all of it gets its place, with the fill value,
    however large a header says that it is."""
    path = tmp_path / "huge.h5"
    with h5py.File(path, "w") as file:
        file.create_dataset("huge", (2**13, 2**10, 2**10), "u1", fillvalue=7)
        file["beside"] = make.BESIDE
    mount = mounts(path, "rw", expect_log=True)
    with subprocess.Popen(["dd", "if=/dev/zero", f"of={mount / 'huge/frames/0.raw'}", "bs=64K", "count=1",
                           "conv=notrunc"],
                          stderr=subprocess.DEVNULL) as process:
        while path.stat().st_blocks * 512 < 4 * MIB:
            assert process.poll() is None
        if ending == "kill":
            process.kill()
        else:
            mount.process.terminate()
            assert mount.wait() == 0
        assert process.wait(START_SECONDS) != 0
    if ending == "kill":
        assert (mount / "beside/stack.raw").read_bytes() == make.BESIDE.tobytes()
        (mount / "made").mkdir()
        mount.unmount()
    with h5py.File(path) as file:
        assert file["huge"].id.get_offset() is None and (file["beside"][()] == make.BESIDE).all()
    assert path.stat().st_size < MIB


@pytest.mark.skipif(os.geteuid() != 0, reason="only root mounts a small disk")
def test_a_dataset_that_fills_the_disk_gives_it_back(mounts, tmp_path):
    """There is no room for what its header claims: what else is written can be committed all the same."""
    disk = tmp_path / "disk"
    disk.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=100M", "tmpfs", disk], check=True)
    try:
        with h5py.File(disk / "x.h5", "w") as file:
            file.create_dataset("huge", (2**20, 2**10, 2**10), "u1", fillvalue=7)
        mount = mounts(disk / "x.h5", "rw", expect_log=True)
        with pytest.raises(OSError) as error:
            with open(mount / "huge/frames/0.raw", "r+b", buffering=0) as frame:
                frame.write(bytes(100))
        assert error.value.errno == errno.ENOSPC
        (mount / "made").mkdir()
        fd = os.open(mount.root, os.O_RDONLY)
        os.fsync(fd)
        os.close(fd)
        mount.unmount()
        with h5py.File(disk / "x.h5") as file:
            assert list(file) == ["huge", "made"] and file["huge"].id.get_offset() is None
    finally:
        subprocess.run(["umount", "-l", disk], check=True)


@pytest.mark.parametrize("options", ["ro", "default"])
def test_long_readings_do_not_hold_it(mounts, tmp_path, options):
    """Chunks of a byte, of which millions are looked for in one reading: who is killed meanwhile goes,
    and SIGTERM ends the daemon, while others read."""
    path = tmp_path / "bytes.h5"
    with h5py.File(path, "w") as file:
        plist = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
        plist.set_chunk((1,))
        space = h5py.h5s.create_simple((2**62,))
        h5py.h5d.create(file.id, b"d", h5py.h5t.STD_U8LE, space, plist)
        file["beside"] = make.BESIDE
    mount = mounts(path, options)
    views = ["stack.raw", "npy/000000.npy", "values/000000.values", "csr/indptr.raw", "frames/0.defined"]
    readers = [subprocess.Popen(["cat", mount / "d" / view], stdout=subprocess.DEVNULL,
                                stderr=subprocess.DEVNULL) for view in views]
    assert (mount / "beside/stack.raw").read_bytes() == make.BESIDE.tobytes()
    readers[0].kill()
    assert readers[0].wait(START_SECONDS) == -signal.SIGKILL
    mount.process.terminate()
    assert mount.wait() == 0
    for reader in readers[1:]:
        assert reader.wait(START_SECONDS) in (0, 1)


def blocks_of(shape, blocks):
    """An encoded selection of two axes: blocks of (first row, first column, last row, last column)."""
    listed = b"".join(struct.pack("<4I", *block) for block in blocks)
    return struct.pack("<BBBI", 1, 0, 8, 40) + bytes([1, 2, 1, 0, 0, 0, 0, 0]) \
        + sparse_files.packed(*shape, *shape) \
        + struct.pack("<IIIIII", 2, 1, 0, 8 + len(listed), 2, len(blocks)) + listed


class Columns(sparse_files.File):
    """Of chunks whose selections are lists of blocks, each a column, all rows of it."""

    def __init__(self, columns, values):
        super().__init__("good", "sparse")
        self.columns, self.values = None, values
        self.add("good", make.BESIDE, np.ones(make.BESIDE.shape, bool), (1, *make.BESIDE.shape[1:]))
        self.columns = columns

    def add_chunk(self, values, mask, csl, deflate):
        if self.columns is None:
            return super().add_chunk(values, mask, csl, deflate)
        last = mask.shape[0] - 1
        selection = sparse_files.summed(
            blocks_of(mask.shape, [(0, column, last, column) for column in self.columns]))
        plain = [selection, bytes(self.values)]
        stored = [zlib.compress(section, 9) for section in plain]
        entry = sparse_files.packed(self.append(b"".join(stored))) + sum(map(len, stored)).to_bytes(csl, "little")
        return entry + sparse_files.packed(len(stored[0]), *map(len, plain)) + bytes(8)


def overlapping(path, shape, columns, values, chunks=None):
    """Not as large in memory as it claims to be."""
    file = Columns(columns, values)
    none = np.lib.stride_tricks.as_strided(np.zeros(1, "u1"), shape, (0, 0))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(np, "pad", lambda array, _: array)
        file.add("sparse", none, none, chunks or shape, deflate=(9, 9))
    file.save(path)


@pytest.mark.parametrize("options", ["ro", "default"])
def test_blocks_that_overlap_more_often_than_values_are_there(mounts, tmp_path, options):
    """2^16 times the same column of 2^16 elements, of an extent of 2^36."""
    path = tmp_path / "columns.h5"
    overlapping(path, (2**16, 2**20), [5] * 2**16, 2**16)
    assert path.stat().st_size < 64 * KIB
    mount = mounts(path, options, expect_log=True)
    with pytest.raises(OSError) as error:
        read(mount / "sparse/frames/0.raw", 64 * KIB)
    assert error.value.errno == errno.EIO
    assert "/sparse: chunk (0,0) at address" in mount.log()
    assert "blocks, which overlap too often" in mount.log()
    assert peak(mount.process.pid) < 64 * MIB + SANITIZER


def processor_ticks(pid):
    return sum(map(int, pathlib.Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[11:13]))


def begin_reading(mount, path):
    """Reads the first bytes; the daemon is busy with them when this returns."""
    before = processor_ticks(mount.process.pid)
    reader = subprocess.Popen(["dd", f"if={path}", "of=/dev/null", "bs=4K", "count=1"],
                              stderr=subprocess.DEVNULL)
    wait_until(lambda: processor_ticks(mount.process.pid) > before + os.sysconf("SC_CLK_TCK") // 10)
    return reader


def test_decoding_a_selection_is_interrupted(mounts, tmp_path):
    """As much work as is allowed, in the worst order: who waits for it has no answer when the daemon ends."""
    path = tmp_path / "columns.h5"
    columns = list(range(254, -1, -2)) * 15
    overlapping(path, (2**15, 256), columns, 2**15 * 128)
    mount = mounts(path)
    reader = begin_reading(mount, mount / "sparse/frames/0.raw")
    mount.process.terminate()
    assert mount.wait() == 0
    assert reader.wait(START_SECONDS) == 1


SLOW_ELEMENT = 4096


def slow_chunks(path, size):
    """A chunk of some hundred bytes that becomes zeros by way of 30 filters, and what is beside it."""
    plist = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
    plist.set_chunk((1, size // SLOW_ELEMENT))
    for _ in range(28):
        plist.set_filter(SHUFFLE, h5py.h5z.FLAG_MANDATORY, (SLOW_ELEMENT,))
    for _ in range(2):
        plist.set_filter(DEFLATE, h5py.h5z.FLAG_MANDATORY, (9,))
    with h5py.File(path, "w", libver="latest") as file:
        space = h5py.h5s.create_simple((1, size // SLOW_ELEMENT))
        kind = h5py.h5t.create(h5py.h5t.OPAQUE, SLOW_ELEMENT)
        kind.set_tag(b"")
        slow = h5py.h5d.create(file.id, b"slow", kind, space, plist)
        slow.write_direct_chunk((0, 0), zeros(size, 2))
        for name in ("good", "also"):
            file.create_dataset(name, data=make.BESIDE, chunks=make.BESIDE.shape, compression="gzip")


@pytest.mark.parametrize("options", ["ro", "default", "ro,cache_size=16M", "ro,threads=1"])
def test_decoding_a_chunk_does_not_hold_it(mounts, tmp_path, options):
    """Who reads something else has it before, and SIGTERM ends the daemon without an answer for who waits."""
    path = tmp_path / "slow.h5"
    slow_chunks(path, BYTES)
    assert path.stat().st_size < 64 * KIB
    mount = mounts(path, *options.split(","), "hdf5_timeout=300")
    files = [mount / "slow/stack.raw", mount / "slow/frames/0.raw"]
    readers = [begin_reading(mount, file) for file in files]
    assert (mount / "good/stack.raw").read_bytes() == make.BESIDE.tobytes()
    assert sorted(os.listdir(mount.root)) == [".sparsefs", "also", "good", "slow"]
    readers[0].kill()
    assert readers[0].wait(START_SECONDS) == -signal.SIGKILL
    assert (mount / "also/stack.raw").read_bytes() == make.BESIDE.tobytes()
    assert readers[1].poll() is None
    mount.process.terminate()
    assert mount.wait() == 0
    assert readers[1].wait(START_SECONDS) == 1


WRITE = """
import os, sys
fd = os.open(sys.argv[1], os.O_WRONLY)
with open(sys.argv[2], "rb") as content:
    os.write(fd, content.read())
print("written", flush=True)
os.close(fd)
"""


def begin_writing(mount, view, content):
    """A program that writes; the daemon is busy with that when this returns."""
    before = processor_ticks(mount.process.pid)
    writer = subprocess.Popen([sys.executable, "-c", WRITE, view, content], stdout=subprocess.PIPE,
                              stderr=subprocess.PIPE, text=True)
    wait_until(lambda: processor_ticks(mount.process.pid) > before + os.sysconf("SC_CLK_TCK") // 10)
    return writer


@pytest.mark.parametrize("options", ["rw", "rw,cache_size=16M", "rw,threads=1"])
def test_a_write_that_decodes_does_not_hold_it(mounts, tmp_path, options):
    """A part of a chunk: others are read meanwhile; a signal, and SIGTERM, end it, and nothing has changed."""
    path, content = tmp_path / "slow.h5", tmp_path / "content"
    slow_chunks(path, BYTES)
    content.write_bytes(b"x" * 4 * KIB)
    stored = path.read_bytes()
    mount = mounts(path, *options.split(","), "hdf5_timeout=300", expect_log=True)
    writer = begin_writing(mount, mount / "slow/stack.raw", content)
    assert (mount / "good/stack.raw").read_bytes() == make.BESIDE.tobytes()
    assert sorted(os.listdir(mount.root)) == [".sparsefs", "also", "good", "slow"]
    assert writer.poll() is None
    writer.kill()
    assert writer.communicate(timeout=START_SECONDS)[0] == ""
    writer = begin_writing(mount, mount / "slow/stack.raw", content)
    mount.process.terminate()
    assert mount.wait() == 0
    assert writer.communicate(timeout=START_SECONDS)[0] == "" and writer.returncode == 1
    assert path.read_bytes() == stored


CLOSE = """
import os, sys
fd = os.open(sys.argv[1], os.O_WRONLY | os.O_TRUNC)
os.write(fd, sys.stdin.buffer.read())
print("written", flush=True)
os.close(fd)
print("closed", flush=True)
"""


HANDLE = "import signal; signal.signal(signal.SIGALRM, lambda *_: print('signal', flush=True));" \
    "signal.setitimer(signal.ITIMER_REAL, 0.2, 0.2)\n"


def test_signals_that_a_program_handles_do_not_interrupt_closing(mounts, tmp_path):
    """However long it takes: close(2) cannot be repeated."""
    path, shape = tmp_path / "columns.h5", (2**16, 256)
    overlapping(path, shape, list(range(254, -1, -2)) * 15, shape[0] * 128)
    mount = mounts(path, "rw", "cache_size=4M", "hdf5_timeout=300")
    content = blocks_of(shape, [(5, 7, 5, 7)])
    program = HANDLE + CLOSE + "signal.setitimer(signal.ITIMER_REAL, 0)\n"  # a later one would end it as it exits
    done = subprocess.run([sys.executable, "-c", program, mount / "sparse/frames/0.defined"], input=content,
                          capture_output=True, timeout=START_SECONDS)
    said = done.stdout.split()
    assert done.returncode == 0, done
    assert b"signal" in said[said.index(b"written"):said.index(b"closed")], said
    assert np.flatnonzero(selected((mount / "sparse/frames/0.defined").read_bytes(), shape)).tolist() == [5 * 256 + 7]


def test_signals_do_not_prolong_waiting_for_the_last_close(mounts, tmp_path):
    """Another has truncated a frame, and has a descriptor of it open still: as a program goes on after each signal, it
    waits for that as long as one without signals."""
    path = tmp_path / "a.h5"
    with h5py.File(path, "w") as file:
        file.create_dataset("d", data=np.ones((4, 8, 8), "u2"), chunks=(1, 8, 8), maxshape=(None, 8, 8))
    mount = mounts(path, "rw")
    held = os.open(mount / "d/frames/1.raw", os.O_WRONLY | os.O_TRUNC)
    os.close(os.dup(held))
    program = HANDLE + "import sys; open(sys.argv[1], 'rb'); signal.setitimer(signal.ITIMER_REAL, 0)\n"
    done = subprocess.run([sys.executable, "-c", program, mount / "d/npy/1.npy"], capture_output=True,
                          timeout=START_SECONDS)
    os.close(held)
    assert done.returncode == 0 and b"signal" in done.stdout, done


def test_a_close_that_is_interrupted_late_is_undone(mounts, tmp_path):
    """Also of a frame that is large, of which little was defined."""
    path, side = tmp_path / "wide.h5", 40_000
    subprocess.run([BUILD / "sparsectl", "create", path, "/d", "--dtype", "u1", "--dims", f"4,{side},{side}",
                    "--chunk", "1,16,16"], check=True)
    space = h5py.h5s.create_simple((side, side))
    mount = mounts(path, "rw", "cache_size=4M", expect_log=True)
    before = blocks_of((side, side), [(5, 7, 5, 7)])
    (mount / "d/frames/0.defined").write_bytes(before)
    closer = begin_closing(mount, mount / "d/frames/0.defined", space.encode(), CLOSE)
    wait_until(lambda: json.loads((mount / ".sparsefs/stats.json").read_text())["chunks_encoded"] > 1)
    closer.kill()
    assert closer.communicate(timeout=START_SECONDS)[0] == b"" and closer.returncode == -signal.SIGKILL
    assert "frame 0: closing the file was interrupted, and what was written to it is lost" in mount.log()
    assert "in part" not in mount.log()
    defined = h5py.h5s.decode((mount / "d/frames/0.defined").read_bytes())
    assert defined.get_select_npoints() == 1 and defined.get_select_bounds() == ((5, 7), (5, 7))


def list_of_all(rows, columns, repeats=False):
    """A frame in which all is 1, as a list that is 1 MB: column after column, in an order that is none. repeats: the
    last element is named twice."""
    order = np.random.default_rng(1).permutation(columns)
    indices = np.tile(order.astype("u2"), columns)
    if repeats:
        indices[-1] = indices[-2]
    content = io.BytesIO()
    np.savez_compressed(content, format=np.array(b"csc"), shape=np.array([rows, columns]),
                        indptr=np.arange(0, rows * columns + 1, rows, dtype="u4"),
                        indices=indices, data=np.ones(rows * columns, "u1"))
    return content.getvalue()


def create_frames(path, name, side):
    subprocess.run([BUILD / "sparsectl", "create", path, name, "--dtype", "u1", "--dims", f"4,{side},{side}",
                    "--chunk", f"1,8,{side}"], check=True)


RENAME = """
import os, resource, signal, sys
signal.signal(signal.SIGQUIT, signal.SIG_DFL)  # what a shell starts in the background ignores it
resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
with open(sys.argv[1] + ".tmp", "wb") as file:
    file.write(sys.stdin.buffer.read())
print("written", flush=True)
os.rename(file.name, sys.argv[1])
print("closed", flush=True)
"""


def begin_closing(mount, view, content, how):
    """A program that has written, and closes or renames; the daemon is busy with that when this returns."""
    closer = subprocess.Popen([sys.executable, "-c", how, view], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                              stderr=subprocess.PIPE)
    closer.stdin.write(content)
    closer.stdin.close()
    closer.stdin = None  # or communicate() would flush it
    assert closer.stdout.readline() == b"written\n"
    before = processor_ticks(mount.process.pid)
    wait_until(lambda: closer.poll() is not None
               or processor_ticks(mount.process.pid) > before + os.sysconf("SC_CLK_TCK") // 10)
    assert closer.poll() is None, closer.communicate()
    return closer


@pytest.mark.parametrize("options", ["rw", "rw,threads=1"])
@pytest.mark.parametrize("how", [CLOSE, RENAME], ids=["close", "rename"])
def test_decoding_a_list_of_points_does_not_hold_it(mounts, tmp_path, options, how):
    """Other datasets are read, written and synced meanwhile; a signal, and SIGTERM, end it, and nothing has changed."""
    path, side = tmp_path / "lists.h5", 8192
    create_frames(path, "/d", side)
    create_frames(path, "/beside", 8)
    content = list_of_all(side, side)
    mount = mounts(path, *options.split(","), expect_log=True)
    ending = signal.SIGQUIT if how == RENAME else signal.SIGKILL
    for frame in range(3):  # a disk that is slow to sync may let the first ones end by themselves
        closer = begin_closing(mount, mount / f"d/npz/{frame}.npz", content, how)
        fd = os.open(mount / "beside/frames/1.raw", os.O_RDWR)
        assert os.pread(fd, 3, 0) in (bytes(3), b"abc")
        os.pwrite(fd, b"abc", 0)
        os.fsync(fd)
        os.close(fd)
        closer.send_signal(ending)
        said, _ = closer.communicate(timeout=START_SECONDS)
        if closer.returncode == -ending:
            break
    assert closer.returncode == -ending and said == b""
    closer = begin_closing(mount, mount / f"d/npz/{frame + 1}.npz", content, how)
    mount.process.terminate()
    assert mount.wait() == 0
    assert closer.communicate(timeout=START_SECONDS)[0] == b"" and closer.returncode == 1
    if how == CLOSE:
        assert "closing the file was interrupted, and what was written to it is lost" in mount.log()
    mount = mounts(path, "ro")
    assert (mount / "beside/frames/1.raw").read_bytes()[:4] == b"abc\0"
    for unchanged in frame, frame + 1:
        assert not (mount / f"d/values/{unchanged}.values").read_bytes()


CLOSE_TWICE = """
import os, sys
content = sys.stdin.buffer.read()
first, second = (os.open(sys.argv[1], os.O_WRONLY) for _ in range(2))
os.write(first, content)
os.write(second, content[:4])
try:
    os.close(first)
except OSError:
    print("written", flush=True)
os.close(second)
"""


OPEN = "import os, sys; print('opens', flush=True); os.open(sys.argv[1], os.O_WRONLY | int(sys.argv[2]))"


def begin(code, *arguments):
    """A program that says so, and waits for the daemon then."""
    process = subprocess.Popen([sys.executable, "-c", code, *map(str, arguments)], stdout=subprocess.PIPE)
    assert process.stdout.readline() == b"opens\n"
    wait_until(lambda: state_of(process.pid) in "SD")
    return process


@pytest.mark.parametrize("flags", [0, os.O_TRUNC], ids=["opened", "truncated"])
def test_who_waits_for_a_close_to_open_does_not_hold_it(mounts, tmp_path, flags):
    """What was refused is decoded again, as another descriptor is closed; as many wait for that as threads serve."""
    path, side = tmp_path / "lists.h5", 8192
    create_frames(path, "/d", side)
    create_frames(path, "/beside", 8)
    mount = mounts(path, "rw", "threads=1", expect_log=True)
    view = mount / "d/npz/0.npz"
    closer = begin_closing(mount, view, list_of_all(side, side, repeats=True), CLOSE_TWICE)
    opener = begin(OPEN, view, flags)
    assert len((mount / "beside/frames/1.raw").read_bytes()) == 64
    assert closer.poll() is None
    opener.kill()
    assert opener.wait(START_SECONDS) == -signal.SIGKILL
    opener.stdout.close()
    assert closer.poll() is None
    mount.process.terminate()
    assert mount.wait() == 0
    assert closer.communicate(timeout=START_SECONDS)[0] == b"" and closer.returncode == 1


def test_what_becomes_a_frame_is_looked_at(mounts, tmp_path):
    """However long it takes to decode it."""
    path, side = tmp_path / "lists.h5", 8192
    create_frames(path, "/d", side)
    content = list_of_all(side, side)
    mount = mounts(path, "rw", "threads=1", expect_log=True)
    closer = begin_closing(mount, mount / "d/npz/0.npz", content, RENAME)
    temporary = mount / "d/npz/0.npz.tmp"
    assert temporary.stat().st_size == len(content)
    assert temporary.read_bytes() == content
    assert closer.poll() is None
    mount.process.terminate()
    assert mount.wait() == 0
    assert closer.communicate(timeout=START_SECONDS)[0] == b"" and closer.returncode == 1


@pytest.mark.parametrize("options", ["ro", "default"])
def test_decoding_a_chunk_is_limited(mounts, tmp_path, options):
    """In processor time; libhdf5 has no time limit here."""
    path = tmp_path / "slow.h5"
    slow_chunks(path, 32 * MIB)
    mount = mounts(path, options, "hdf5=inside", "hdf5_timeout=0.05", expect_log=True)
    with pytest.raises(OSError) as error:
        read(mount / "slow/stack.raw", 4 * KIB)
    assert error.value.errno == errno.EIO
    assert "/slow: chunk (0,0) at address" in mount.log()
    assert "more than the 0.05 s of processor time that hdf5_timeout= allows" in mount.log()
    assert (mount / "good/stack.raw").read_bytes() == make.BESIDE.tobytes()
    mount.unmount()
    mount = mounts(path, options, "hdf5_timeout=300")
    assert read(mount / "slow/stack.raw", 4 * KIB) == bytes(4 * KIB)


def slow_segments(path, segments=2600):
    """External raw data of bytes: the way to each goes tens of thousands of times into a folder and out of it."""
    (path.parent / "d").mkdir()
    (path.parent / "link").symlink_to("d/../" * 810 + "d/..")
    (path.parent / "raw").write_bytes(b"x")
    test_external_raw.make(path, [("link/" * 38 + "raw", 0, 1)] * segments, (2, segments // 2), "u1")
    with h5py.File(path, "a") as file:
        file["good"] = make.BESIDE


def check_they_end(mount, readers):
    """Two of what takes long: who is killed goes, and SIGTERM ends the daemon."""
    readers[0].kill()
    assert readers[0].wait(START_SECONDS) == -signal.SIGKILL
    assert readers[1].poll() is None
    mount.process.terminate()
    assert mount.wait() == 0
    assert readers[1].wait(START_SECONDS) == 1


@pytest.mark.parametrize("options", ["ro", "default"])
def test_finding_external_files_does_not_hold_it(mounts, tmp_path, options):
    """Who is killed meanwhile goes, and SIGTERM ends the daemon without an answer for who waits."""
    path = tmp_path / "segments.h5"
    slow_segments(path)
    mount = mounts(path, options, "hdf5_timeout=300")
    readers = [begin_reading(mount, mount / view) for view in ("d/stack.raw", "d/stack.npy")]
    assert (mount / "good/stack.raw").read_bytes() == make.BESIDE.tobytes()
    check_they_end(mount, readers)


def test_finding_external_files_is_limited(mounts, tmp_path):
    """In processor time; libhdf5 has no time limit here."""
    path = tmp_path / "segments.h5"
    slow_segments(path)
    mount = mounts(path, "hdf5=inside", "hdf5_timeout=0.05", expect_log=True)
    with pytest.raises(OSError) as error:
        read(mount / "d/stack.raw", 4 * KIB)
    assert error.value.errno == errno.EIO
    assert "more than the 0.05 s of processor time that hdf5_timeout= allows" in mount.log()
    assert (mount / "good/stack.raw").read_bytes() == make.BESIDE.tobytes()


def test_filling_what_only_a_header_claims(mounts, tmp_path):
    """2^62 elements of which none is stored: cutting the file short would write them all."""
    path = tmp_path / "huge.h5"
    with h5py.File(path, "w", libver="latest") as file:
        file.create_dataset("huge", (4, 2**30, 2**30), "u1", chunks=(1, 1024, 1024), maxshape=(None, 2**30, 2**30))
        file["small"] = np.ones((3, 4, 5), "u2")
    mount = mounts(path, "rw", expect_log=True)
    for name in ("huge/stack.raw", "huge/frames/0.raw"):
        with pytest.raises(OSError) as error:
            os.truncate(mount / name, 8)
        assert error.value.errno == errno.EFBIG
    os.truncate(mount / "small/frames/1.raw", 8)
    assert "64 GiB" in mount.log()
    mount.unmount()
    with h5py.File(path) as file:
        assert file["huge"].id.get_storage_size() == 0
        assert not file["small"][1].ravel()[4:].any() and file["small"][2].all()


def test_tables_of_many_datasets(mounts, tmp_path):
    """Of 16 million frames of an element each, which a file of some KiB has, `csr/` needs a table of 256 MiB."""
    frames = 2**24
    folder = tmp_path / "folder"
    folder.mkdir()
    sparse_files.make(folder / "0.h5", np.zeros((frames, 1, 1), "u1"), np.ones((frames, 1, 1), bool),
                      (frames, 1, 1), deflate=(9, 9))
    assert (folder / "0.h5").stat().st_size < 32 * KIB
    mount = mounts(folder, "ro")
    files = []
    try:
        for i in range(6):
            if i > 0:
                shutil.copy(folder / "0.h5", folder / f"{i}.h5")
            files.append(open(mount / f"{i}.h5/sparse/csr/indices.raw", "rb", buffering=0))
            assert files[-1].read(4) == bytes(4)
            assert os.fstat(files[-1].fileno()).st_size == 4 * frames
    finally:
        for file in files:
            file.close()
    assert peak(mount.process.pid) < 1024 * MIB


def test_long_names_of_many_fields(mounts, tmp_path):
    """A field of 60,000 characters, 16,384 times: the first line of a table would have a gigabyte."""
    with h5py.File(tmp_path / "names.h5", "w") as file:
        file.create_dataset("long", (1,), [("n" * 60000, "u1", (16384,))])
        file["short"] = np.zeros(1, [("n" * 600, "u1", (16384,))])
    mount = mounts(tmp_path / "names.h5", "ro", "views=csv")
    assert os.listdir(mount / "long") == ["dataset.json"]
    assert len((mount / "short/table.csv").read_text().splitlines()[0].split(",")) == 16384
    assert peak(mount.process.pid) < 128 * MIB


def test_an_index_that_is_a_hole(mounts, tmp_path):
    """A fixed array of 32 million elements says that it is not paged: a block of half a gigabyte, of which there is
    next to nothing on the disk."""
    path = tmp_path / "hole.h5"
    sparsectl("create", path, "/x", "--dims", f"{2**25},1,1", "--chunk", "1,1,1", "--dtype", "uint8")
    mount = mounts(path, "rw")
    (mount / "x/frames/3.raw").write_bytes(b"x")
    mount.unmount()
    with open(path, "r+b") as file:
        content = file.read(MIB)
        at = content.index(b"FAHD")
        header = content[at:at + 7] + b"\x1f" + content[at + 8:at + 24]
        file.seek(at)
        file.write(sparse_files.summed(header))
    assert path.stat().st_size > 512 * MIB > 100 * 512 * path.stat().st_blocks
    mount = mounts(path, "ro", expect_log=True)
    with pytest.raises(OSError) as error:
        os.listdir(mount / "x")
    assert error.value.errno == errno.EIO
    assert "fixed array data block" in mount.log() and "too large" in mount.log()
    assert peak(mount.process.pid) < 256 * MIB + SANITIZER


def test_a_list_of_many_chunks(mounts, tmp_path):
    """Of 16,384 chunks, each of one element; their coordinates alone take more than what is allowed."""
    shape = (1, 128, 128)
    sparse_files.make(tmp_path / "many.h5", np.full(shape, 7, "u1"), np.ones(shape, bool), (1, 1, 1))
    mount = mounts(tmp_path / "many.h5", "ro", "chunk_memory=512K", expect_log=True)
    with pytest.raises(OSError) as error:
        read(mount / "sparse/frames/0.defined")
    assert error.value.errno == errno.EIO
    assert "/sparse: a list of chunks takes up to" in mount.log()
    assert read(mount / "sparse/frames/0.raw") == b"\7" * 128 * 128


class Shared(sparse_files.File):
    """A file whose chunk indexes have one block in many places, and are as long as a hole says that they can be."""

    def finish(self, path, dims, maxdims, chunks, index):
        layout = bytes([5, 4, 0, 0, 0, 0, len(chunks) + 1, 4]) \
            + b"".join(n.to_bytes(4, "little") for n in (*chunks, 1)) + bytes([8, 2, 1, 0]) + index
        self.links.append(("x", self.append(sparse_files.object_header(
            sparse_files.message(1, bytes([2, len(dims), 1, 1]) + sparse_files.packed(*dims, *maxdims)),
            sparse_files.message(3, sparse_files.encoded_type("u1"), 1), sparse_files.message(5, b"\3\x0b", 1),
            sparse_files.message(8, layout)))))
        self.save(path)
        os.truncate(path, 2**40)

    def add_tree(self, depth, node_bytes=512):
        """A version 2 B-tree whose nodes have the same child everywhere."""
        header = self.append(bytes(38))
        record, space, total_bytes = 34, node_bytes - 10, 0
        at_most = space // record  # records in and under a node
        width = (at_most.bit_length() - 1) // 8 + 1

        def records(n):
            return b"".join(sparse_files.packed(sparse_files.UNDEFINED) + bytes(2)
                            + sparse_files.packed(i, i) + bytes(8) for i in range(n))

        node = self.append(sparse_files.summed(b"BTLF\0\x0c" + records(1)).ljust(node_bytes, b"\0"))
        n = total = 1
        for _ in range(depth):
            pointer = sparse_files.packed(node) + n.to_bytes(width, "little") \
                + (total.to_bytes(total_bytes, "little") if total_bytes else b"")  # of leaves n says it
            n = (space - len(pointer)) // (record + len(pointer))
            node = self.append(sparse_files.summed(b"BTIN\0\x0c" + records(n) + pointer * (n + 1))
                               .ljust(node_bytes, b"\0"))
            at_most = (n + 1) * at_most + n
            total_bytes = (at_most.bit_length() - 1) // 8 + 1
            total = n + (n + 1) * total
        self.content[header:header + 38] = sparse_files.summed(
            b"BTHD\1\x0c" + struct.pack("<IHHBBQHQ", node_bytes, record, depth, 100, 40, node, n, total))
        return b"\5" + struct.pack("<IBBQ", node_bytes, 100, 40, header)

    def add_extensible(self, bits):
        """An extensible array whose data blocks of one size are the same, and say that they are the first."""
        header = self.append(bytes(72))
        begin = bytes([0, 2]) + sparse_files.packed(header)
        record = sparse_files.packed(sparse_files.UNDEFINED) + bytes(10)

        def first_of(u):
            return (2**u - 1).to_bytes((bits + 7) // 8, "little")

        blocks = [self.append(sparse_files.summed(b"EADB" + begin + first_of(u) + record * 2**((u + 1) // 2)))
                  for u in range(bits + 1)]
        supers = [self.append(sparse_files.summed(b"EASB" + begin + first_of(u)
                                                  + sparse_files.packed(blocks[u]) * 2**(u // 2)))
                  for u in range(2, bits + 1)]
        block = self.append(sparse_files.summed(b"EAIB" + begin + record
                                                + sparse_files.packed(blocks[0], blocks[1], *supers)))
        self.content[header:header + 72] = sparse_files.summed(
            b"EAHD" + bytes([1, 2, 18, bits, 1, 1, 2, 31])
            + sparse_files.packed(0, 0, 0, 0, 2**bits, 2**bits, block))
        return b"\4" + bytes([bits, 1, 2, 1, 31]) + sparse_files.packed(header)


@pytest.mark.parametrize("kind", ["tree", "array"])
def test_indexes_of_one_block_in_many_places(mounts, tmp_path, kind):
    """As many nodes as a terabyte has room for, of a file of some KiB, are one; or all data blocks of an array."""
    file, path, without_end = Shared("x"), tmp_path / "shared.h5", sparse_files.UNDEFINED
    if kind == "tree":
        file.finish(path, (4, 4), (without_end, without_end), (1, 1), file.add_tree(12))
        damage = "is not behind that of a node before"
    else:
        file.finish(path, (2**24,), (without_end,), (1,), file.add_extensible(24))
        damage = "its offset is that of another"
    assert 512 * path.stat().st_blocks < MIB
    checked = subprocess.run([BUILD / "sparsectl", "check", path], capture_output=True, text=True,
                             timeout=START_SECONDS)
    assert checked.returncode == 1 and damage in checked.stdout + checked.stderr
    if kind == "array":
        mount = mounts(path, "ro", expect_log=True)
        with pytest.raises(OSError) as error:
            read(mount / "x/frames/0.defined")
        assert error.value.errno == errno.EIO and damage in mount.log()


def test_headers_that_share_a_large_block(mounts, tmp_path, monkeypatch):
    """Each of 64 datasets has a header of 4 MiB, of which all but some bytes are in one block of a small file."""
    names = [f"d{i:02}" for i in range(64)]
    file = sparse_files.File(*names)
    block = sparse_files.summed(b"OCHK" + sparse_files.message(0, bytes(65535)) * 64)
    more = sparse_files.message(16, sparse_files.packed(file.append(block), len(block)))
    plain = sparse_files.object_header
    for name in names:
        with monkeypatch.context() as patch:
            patch.setattr(sparse_files, "object_header", lambda *messages: plain(*messages, more))
            file.add(name, np.ones((1, 2, 2), "u1"), np.ones((1, 2, 2), bool), (1, 2, 2))
    file.save(tmp_path / "headers.h5")
    mount = mounts(tmp_path / "headers.h5", "ro")
    for name in names:
        assert (mount / name / "frames/0.raw").read_bytes() == bytes(4 * [1])
    assert peak(mount.process.pid) < 160 * MIB + SANITIZER


def every_second(mask):
    """The encoded selection of every second element of all rows: of 120 bytes, however many there are."""
    dims = [(0, 1, 1, n) for n in mask.shape[:-1]] + [(0, 2, mask.shape[-1] // 2, 1)]
    rank = len(dims)
    return sparse_files.summed(
        struct.pack("<BBBI", 1, 0, 8, 8 + 16 * rank) + bytes([1, rank, 1, 0, 0, 0, 0, 0])
        + sparse_files.packed(*mask.shape, *mask.shape) + struct.pack("<IIBBI", 2, 3, 1, 4, rank)
        + b"".join(struct.pack("<4I", *dim) for dim in dims))


@pytest.mark.parametrize("kind", ["runs", "pieces"])
def test_selections_of_many_chunks(mounts, tmp_path, monkeypatch, kind):
    """Each is of two million runs, or of one that is as many rows of the frame: joined they would need 0.5 GiB."""
    shape, chunks = ((1, 4096, 4096), (1, 2048, 2048)) if kind == "runs" else ((1, 2**22, 2), (1, 2**22, 1))
    defined = np.ones(shape, bool)
    if kind == "runs":
        monkeypatch.setattr(sparse_files, "encoded_selection", every_second)
        defined[..., 1::2] = False
    sparse_files.make(tmp_path / "many.h5", np.full(shape, 7, "u1"), defined, chunks, deflate=(9, 9))
    assert (tmp_path / "many.h5").stat().st_size < 32 * KIB
    mount = mounts(tmp_path / "many.h5", "ro", "cache_size=16M", "chunk_memory=80M", expect_log=True)
    for view in "frames/0.defined", "csr/indices.raw", "npz/000000.npz":
        with pytest.raises(OSError) as error:
            read(mount / "sparse" / view)
        assert error.value.errno == errno.EIO
    assert "/sparse: a selection takes up to" in mount.log() and "no more than 80 MiB" in mount.log()
    assert read(mount / "sparse/frames/0.raw", KIB) == (b"\7\0" if kind == "runs" else b"\7\7") * (KIB // 2)
    assert peak(mount.process.pid) < 256 * MIB


def test_elements_that_nobody_has_stored(mounts, tmp_path):
    """Where sequences and lines begin, of more elements than a file can hold, is not sought for long."""
    path = tmp_path / "claims.h5"
    with h5py.File(path, "w", libver="latest") as file:
        for name, n in ("many", 2**58), ("some", 2**33):
            plist = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
            plist.set_chunk((4096,))
            kind = h5py.h5t.py_create(h5py.vlen_dtype("u1"), logical=True)
            h5py.h5d.create(file.id, name.encode(), kind, h5py.h5s.create_simple((n,)), plist)
    mount = mounts(path, "ro", "hdf5=inside", "hdf5_timeout=0.05", expect_log=True)
    for name in "many", "some":
        with pytest.raises(OSError) as error:
            read(mount / name / "values.npy")
        assert error.value.errno == errno.EFBIG
    assert "/some: it takes too long to find where its 8589934592 elements begin" in mount.log()
    assert "hdf5_timeout= allows" in mount.log()


def test_texts_of_open_descriptors(mounts, tmp_path):
    """Each has its own, of a size that a file decides: together they are limited."""
    path = tmp_path / "links.h5"
    with h5py.File(path, "w", libver="latest") as file:
        for i in range(4):
            file[f"g/{i}"] = h5py.ExternalLink(f"../{i}", "/" + "\1" * 60000)
    mount = mounts(path, "ro", expect_log=True)
    text, opened = mount / "g/group.json", []
    content = text.read_bytes()
    assert len(content) > MIB
    with pytest.raises(OSError) as error:
        for _ in range(300):
            opened.append(os.open(text, os.O_RDONLY))
    assert error.value.errno == errno.ENOMEM and len(opened) > 100
    assert "g: too many texts are open" in mount.log()
    for descriptor in opened:
        os.close(descriptor)
    wait_until(lambda: can_be_opened(text))
    assert text.read_bytes() == content


def many_external_links(path, n=50000):
    """Of a group g, which is h, too: all lead to one object."""
    with h5py.File(path, "w", libver="latest") as file, h5py.File(path.with_name("other.h5"), "w") as other:
        other.create_group("x")
        group = file["h"] = file.create_group("g")
        for i in range(n):
            group.id.links.create_external(b"%d" % i, b"other.h5", b"/x")


@pytest.mark.parametrize("options", [(), ("hdf5=inside",)], ids=["apart", "inside"])
def test_looking_at_many_links_does_not_hold_it(mounts, tmp_path, options):
    """For group.json each is followed: who is killed meanwhile goes, and SIGTERM ends the daemon."""
    path = tmp_path / "links.h5"
    many_external_links(path)
    mount = mounts(path, *options, "hdf5_timeout=300", expect_log=True)
    readers = [begin_reading(mount, mount / group / "group.json") for group in "gh"]
    check_they_end(mount, readers)


def test_listing_frames_that_have_no_names(mounts, tmp_path):
    """Of elements of variable length only what is defined is shown: frames/ is not there for their bytes alone."""
    path = tmp_path / "variable.h5"
    subprocess.run([BUILD / "sparsectl", "create", path, "/v", "--dtype", "str", "--dims", f"{2**34},1,1",
                    "--chunk", "1,1,1"], check=True)
    names = [set(os.listdir(mounts(path, f"views={views}") / "v")) for views in ("raw", "raw+defined")]
    assert "frames" not in names[0] and names[1] == names[0] | {"frames"}
    mount = mounts(path, "views=raw")
    assert not (mount / "v/frames").exists() and not (mount / "v/frames/00000000000.defined").exists()


HOLD_OPEN = """
import os, resource, sys
hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
os.setgroups([])
os.setgid(65534)
os.setuid(65534)
opened = 0
try:
    for opened in range(2 * 256 * 2**20 // int(sys.argv[2])):
        os.open(sys.argv[1], os.O_RDONLY)
    print(opened, 0, flush=True)
except OSError as error:
    print(opened, error.errno, flush=True)
sys.stdin.read()
"""


@pytest.mark.skipif(os.geteuid() != 0, reason="only root has two users")
def test_small_texts_of_open_descriptors(mounts, tmp_path):
    """They are counted, too. What others have open leaves who has mounted room for his own."""
    path = tmp_path / "links.h5"
    with h5py.File(path, "w", libver="latest") as file:
        file["g/0"] = h5py.ExternalLink("../0", "/" + "\1" * 10000)
    let_in(tmp_path)
    mount = mounts(path, "ro", "allow_other", expect_log=True)
    text = mount / "g/group.json"
    n = len(text.read_bytes())
    assert 32 * KIB < n < 64 * KIB
    if resource.getrlimit(resource.RLIMIT_NOFILE)[1] < 2 * 256 * MIB // n:
        pytest.skip("a program may not open so many files")
    with subprocess.Popen([sys.executable, "-c", HOLD_OPEN, text, str(n)], text=True, stdin=subprocess.PIPE,
                          stdout=subprocess.PIPE) as other:
        try:
            opened, error = map(int, other.stdout.readline().split())
            assert error == errno.ENOMEM and 190 * MIB // n <= opened <= 192 * MIB // n
            assert "g: too many texts are open: they have 192 MiB together" in mount.log()
            assert len(text.read_bytes()) == n
            assert (mount / ".sparsefs/stats.json").read_bytes()
        finally:
            other.kill()


def can_be_opened(path):
    """Descriptors are given up some time after they are closed."""
    try:
        os.close(os.open(path, os.O_RDONLY))
    except OSError:
        return False
    return True


def test_a_frame_of_many_chunks_does_not_hold_commits(mounts, tmp_path):
    """While a frame is replaced as a whole nothing is committed, for half a minute: then it is left as it was."""
    path, side = tmp_path / "a.h5", 16000
    for name, dims, chunk in ("tiny", f"2,{side},{side}", "1,1,1"), ("other", "2,8,16", "1,8,8"):
        subprocess.run([BUILD / "sparsectl", "create", path, name, "--dtype", "uint8", "--dims", dims,
                        "--chunk", chunk], check=True)
    mount = mounts(path, "rw", "commit_interval=3600", expect_log=True)
    frames, other = mount / "tiny/frames", mount / "other/frames/1.raw"
    (frames / "new.tmp").touch()
    os.truncate(frames / "new.tmp", side * side)
    with subprocess.Popen([sys.executable, "-c", "import os, sys; os.rename(*sys.argv[1:])", frames / "new.tmp",
                           frames / "0.raw"], stderr=subprocess.PIPE, text=True) as rename:
        with open(other, "r+b", buffering=0) as file:
            file.write(b"\7" * 128)
            os.fsync(file.fileno())
        _, said = rename.communicate(timeout=START_SECONDS)
    assert rename.returncode == 1 and f"[Errno {errno.ETIMEDOUT}]" in said
    assert "more than 30 s" in mount.log()
    assert (frames / "0.raw").stat().st_blocks == 0
    mount.unmount()
    mount = mounts(path)
    assert (mount / "other/frames/1.raw").read_bytes() == b"\7" * 128
    assert (mount / "tiny/frames/0.raw").stat().st_blocks == 0


RENAME_IN_TIME = """
import os, sys
try:
    os.rename(*sys.argv[1:])
except TimeoutError as error:
    sys.exit(error.errno)
"""
SYNC = "import os, sys; fd = os.open(sys.argv[1], os.O_RDONLY); print('opens', flush=True); os.fsync(fd)"


def test_a_frame_of_many_chunks_does_not_hold_commits_of_other_files(mounts, tmp_path):
    """They are in their file in the background meanwhile. Who waits for all of the folder's can be killed."""
    folder, side = tmp_path / "folder", 16000
    folder.mkdir()
    subprocess.run([BUILD / "sparsectl", "create", folder / "a.h5", "tiny", "--dtype", "uint8", "--dims",
                    f"2,{side},{side}", "--chunk", "1,1,1"], check=True)
    with h5py.File(folder / "b.h5", "w") as file:
        file["d"] = np.zeros((2, 8, 16), "u1")
        place = file["d"].id.get_offset()
    mount = mounts(folder, "default", "commit_interval=1", expect_log=True)
    frames = mount / "a.h5/tiny/frames"
    for tried in range(3):  # on a machine that is busy it may be given up meanwhile
        (frames / "new.tmp").touch()
        os.truncate(frames / "new.tmp", side * side)
        with subprocess.Popen([sys.executable, "-c", RENAME_IN_TIME, frames / "new.tmp", frames / "0.raw"]) as rename:
            for value in (2 * tried + 1, 2 * tried + 2):
                content = bytes([value]) * 128
                (mount / "b.h5/d/frames/0.raw").write_bytes(content)
                wait_until(lambda: (folder / "b.h5").read_bytes()[place:place + 128] == content
                           or rename.poll() is not None)
            with begin(SYNC, mount.root) as sync:
                sync.kill()
                has_waited = sync.wait(START_SECONDS) == -signal.SIGKILL
            if has_waited and rename.poll() is None:
                rename.kill()
                return
            assert rename.wait(START_SECONDS) == errno.ETIMEDOUT
    pytest.fail("a rename holds them, or who waits for it")


def test_a_close_that_takes_too_long_is_not_tried_again(mounts, tmp_path):
    """More bytes would not help: what was written is forgotten at once."""
    path, side = tmp_path / "a.h5", 9000
    subprocess.run([BUILD / "sparsectl", "create", path, "d", "--dtype", "u1", "--dims", f"2,{side},{side}", "--chunk",
                    "1,1,1"], check=True)
    mount = mounts(path, "rw", expect_log=True)
    fd = os.open(mount / "d/npz/0.npz", os.O_WRONLY | os.O_TRUNC)
    os.write(fd, list_of_all(side, side))
    with pytest.raises(OSError) as error:
        os.close(fd)
    assert error.value.errno == errno.ETIMEDOUT
    os.close(os.open(mount / "d/npz/0.npz", os.O_WRONLY))
    line, = mount.log().splitlines()
    assert "more than 30 s" in line
    mount.unmount()


@pytest.mark.parametrize("what", ["a new frame", "what is defined"])
def test_a_rename_that_is_killed_is_all_or_nothing(mounts, tmp_path, what):
    """Also in the midst of chunks that are very many."""
    path, side = tmp_path / "a.h5", 1600 if what == "a new frame" else 1000
    subprocess.run([BUILD / "sparsectl", "create", path, "tiny", "--dtype", "uint8", "--dims", f"1,{side},{side}",
                    "--maxdims", f"inf,{side},{side}", "--chunk", "1,1,1"], check=True)
    mount = mounts(path, "rw", "commit_interval=3600", expect_log=True)
    frames = mount / "tiny/frames"
    if what == "a new frame":
        new = frames / "1.raw"
        (frames / "new.tmp").write_bytes(b"\1" * side * side)
    else:
        new = frames / "0.defined"
        (frames / "0.raw").write_bytes(b"\1" * side * side)
        some = h5py.h5s.create_simple((side, side))
        some.select_hyperslab((0, 0), (1, 1))
        (frames / "new.tmp").write_bytes(some.encode())
    before = new.read_bytes() if new.exists() else None
    with subprocess.Popen([sys.executable, "-c", "import os, sys; os.rename(*sys.argv[1:])", frames / "new.tmp",
                           new]) as rename:
        try:
            rename.wait(2)
        except subprocess.TimeoutExpired:
            rename.kill()
    if not new.exists() or new.read_bytes() == before:
        assert sorted(os.listdir(frames)) == ["0.defined", "0.raw", "new.tmp"]
        assert (frames / "0.raw").read_bytes() == (b"\0" if what == "a new frame" else b"\1") * side * side
    else:
        assert not (frames / "new.tmp").exists()
        shown = (frames / ("1.raw" if what == "a new frame" else "0.raw")).read_bytes()
        assert shown == (b"\1" * side * side if what == "a new frame" else b"\1" + bytes(side * side - 1))
