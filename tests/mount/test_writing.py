"""What can be written to a mount, by the commands that people use, to sparse datasets and to dense ones;
what is refused, and how; what others see of it, and what is on disk afterwards."""
import contextlib
import ctypes
import errno
import json
import mmap
import os
import shutil
import signal
import stat
import subprocess
import threading
import time
import traceback

import h5py
import numpy as np
import pytest

import files
import sparse_files
from compare import selected
from conftest import BUILD, FINDS_SPARSEFS, START_SECONDS, TOP, Mount, counting_plugin, is_mounted, unmount, wait_until
from model import refused
from test_sparse import Expected, check_sparse, scattered

SHAPE = (5, 30, 41)
FRAME_BYTES = 30 * 41 * 2
PUNCH, ZERO, KEEP_SIZE, COLLAPSE, INSERT, UNSHARE = 2, 16, 1, 8, 32, 64  # linux/falloc.h
libc = ctypes.CDLL(None, use_errno=True)
libc.fallocate.argtypes = [ctypes.c_int, ctypes.c_int, ctypes.c_int64, ctypes.c_int64]


def shell(command, **more):
    return subprocess.run(["bash", "-c", command], capture_output=True, text=True, timeout=START_SECONDS, **more)


def do(command, **more):
    done = shell(command, **more)
    assert (done.returncode, done.stderr) == (0, ""), (command, done.stderr)
    return done.stdout


def fallocate(fd, mode, offset, n):
    if libc.fallocate(fd, mode, offset, n) < 0:
        raise OSError(ctypes.get_errno(), "fallocate")


class Data:
    """A dataset of 16-bit numbers and what must be in it."""

    def __init__(self, folder, is_sparse, fill=0, maxshape=None, chunks=(1, 8, 16)):
        self.path = folder / f"{'sparse' if is_sparse else 'dense'}{fill}.h5"
        self.is_sparse, self.fill = is_sparse, fill
        self.array, self.defined = scattered(SHAPE)
        self.array[~self.defined] = fill
        if is_sparse:
            sparse_files.make(self.path, self.array, self.defined, chunks, maxshape=maxshape,
                              deflate=(0, 6), fill=fill or None)
        else:
            self.defined[...] = True
            with h5py.File(self.path, "w") as f:
                f.create_dataset("sparse", data=self.array, chunks=chunks, fillvalue=fill,
                                 maxshape=maxshape, compression="gzip")

    def mount(self, mounts, *options, **more):
        self.mounted = mounts(self.path, "rw", *options, **more)
        self.d = self.mounted / "sparse"
        return self.d

    def write(self, offset, content):
        """Bytes from an offset in all of the dataset on."""
        flat = self.array.reshape(-1).view("u1")
        flat[offset:offset + len(content)] = np.frombuffer(content, "u1")
        self.defined.reshape(-1)[offset // 2:(offset + len(content) + 1) // 2] = True

    def erase(self, first, last):
        """Elements of all of the dataset."""
        self.array.reshape(-1)[first:last] = self.fill
        if self.is_sparse:
            self.defined.reshape(-1)[first:last] = False

    def punch(self, begin, end):
        """Bytes of all of the dataset: those of elements that are cut become zero, if the fill value is."""
        first, last = (begin + 1) // 2, end // 2
        for cut in {begin // 2, last} if self.fill == 0 else ():
            a, b = max(begin, 2 * cut), min(end, 2 * cut + 2)
            if b - a == 1:
                self.array.reshape(-1).view("u1")[a] = 0
                if self.is_sparse:
                    self.defined.reshape(-1)[cut] = self.array.reshape(-1)[cut] != 0
        self.erase(first, last)

    def check(self):
        """Through the mount."""
        if self.is_sparse:
            check_sparse(self.d, Expected(self.array, self.defined, self.fill == 0))
            return
        whole = self.array.tobytes()
        assert (self.d / "stack.raw").read_bytes() == whole
        assert np.array_equal(np.load(self.d / "stack.npy"), self.array)
        for frame in range(len(self.array)):
            content = self.array[frame].tobytes()
            assert (self.d / f"frames/{frame}.raw").read_bytes() == content
            assert np.array_equal(np.load(self.d / f"npy/{frame:06}.npy"), self.array[frame])
            assert (self.d / f"tiff/{frame:06}.tif").read_bytes()[-len(content):] == content
            assert (self.d / f"values/{frame:06}.values").read_bytes() == content

    def check_file(self, mounts):
        """After unmounting: the file is sound, and holds this."""
        self.check()
        self.mounted.unmount()
        done = subprocess.run([BUILD / "sparsectl", "check", self.path], capture_output=True, text=True)
        assert done.returncode == 0, done
        if not self.is_sparse:
            with h5py.File(self.path) as f:
                assert np.array_equal(f["sparse"][()], self.array)
        else:
            d = mounts(self.path, "ro") / "sparse"
            check_sparse(d, Expected(self.array, self.defined, self.fill == 0))


@pytest.fixture(params=["sparse", "sparse with a fill value", "dense", "dense with a fill value"])
def data(request, tmp_path):
    return Data(tmp_path, "sparse" in request.param, 7 if "fill" in request.param else 0)


@pytest.fixture
def sparse(tmp_path):
    return Data(tmp_path, True)


def new_content(n=FRAME_BYTES, seed=3):
    return np.random.default_rng(seed).integers(1, 255, n).astype("u1").tobytes()


# ---- Whole frames ----


@pytest.mark.parametrize("way", [
    "cp new {0}", "cp --sparse=always new {0}", "cat new > {0}", "dd if=new of={0} bs=100 status=none",
    "dd if=new of={0} conv=notrunc,fsync status=none", "tee {0} < new > /dev/null",
    "cp -a new {0}", "rsync -I --inplace --no-times new {0}",
    "python3 -c 'open(\"{0}\", \"r+b\").write(open(\"new\", \"rb\").read())'"])
def test_whole_frames(mounts, data, tmp_path, way):
    if way.startswith("rsync") and not shutil.which("rsync"):
        pytest.skip("rsync is not installed")
    d = data.mount(mounts)
    data.check()  # so that the kernel knows everything as it was
    for frame, view, head in ((1, "frames/1.raw", 0), (3, "raw/000003.raw", 0), (0, "npy/000000.npy", 1),
                              (4, "tiff/000004.tif", 1)):
        content = new_content(seed=frame)
        header = (d / view).read_bytes()[:-FRAME_BYTES] if head else b""
        (tmp_path / "new").write_bytes(header + content)
        if way.startswith("cp -a"):
            st = (d / view).stat()
            os.utime(tmp_path / "new", ns=(st.st_atime_ns, st.st_mtime_ns))
            done = shell(way.format(d / view), cwd=tmp_path)
            # Writing has changed the time, which cannot be set back; about nothing else is complained.
            assert all("preserving times" in line for line in done.stderr.splitlines()), done.stderr
        else:
            do(way.format(d / view), cwd=tmp_path)
        data.write(frame * FRAME_BYTES, content)
        assert (d / view).stat().st_size == len(header + content)
    data.check_file(mounts)


def test_parts_of_elements_and_of_frames(mounts, data, tmp_path):
    d = data.mount(mounts)
    data.check()
    for offset, n in ((0, 1), (101, 7), (1001, 200), (FRAME_BYTES - 3, 3), (500, 2)):
        content = new_content(n, seed=n)
        (tmp_path / "part").write_bytes(content)
        do(f"dd if={tmp_path}/part of={d}/frames/1.raw bs={n} seek={offset} oflag=seek_bytes"
           " conv=notrunc status=none")
        data.write(FRAME_BYTES + offset, content)
        with open(d / "stack.raw", "r+b", buffering=0) as stack:
            stack.seek(2 * FRAME_BYTES - 50 + offset)
            assert stack.write(content) == n
        data.write(2 * FRAME_BYTES - 50 + offset, content)
        data.check()
    data.check_file(mounts)


def test_memory_maps(mounts, data):
    d = data.mount(mounts)
    data.check()
    frame = np.memmap(d / "frames/3.raw", "<u2", "r+", shape=SHAPE[1:])
    frame[...] = np.arange(30 * 41).reshape(30, 41)
    frame.flush()
    data.write(3 * FRAME_BYTES, frame.tobytes())
    data.check()
    for name in "npy/000001.npy", "stack.npy":
        mapped = np.load(d / name, mmap_mode="r+")
        mapped += 1
        mapped.flush()
        part = mapped.tobytes()
        data.write(FRAME_BYTES if "0" in name else 0, part)
        data.check()
        del mapped
    del frame
    data.check_file(mounts)


def test_headers_stay_as_they_are(mounts, data):
    d = data.mount(mounts)
    for name in "npy/000001.npy", "tiff/000001.tif", "stack.npy":
        before = (d / name).read_bytes()
        with open(d / name, "r+b", buffering=0) as file:
            assert file.write(before[:40]) == 40
            file.seek(0)
            with refused(errno.EINVAL):
                file.write(before[:1] + b"?" + before[2:])
        assert (d / name).read_bytes() == before
    data.check_file(mounts)


def test_sparsify(mounts, tmp_path):
    for is_sparse in (True, False):
        data = Data(tmp_path, is_sparse, 7)
        d = data.mount(mounts, "sparsify")
        content = np.full(SHAPE[1:], 7, "<u2")
        content[3, 5:9] = 1
        (d / "frames/2.raw").write_bytes(content.tobytes())
        data.write(2 * FRAME_BYTES, content.tobytes())
        if is_sparse:
            data.defined[2] = content != 7
        data.check_file(mounts)


# ---- The end of a view ----


def test_the_end(mounts, data):
    d = data.mount(mounts)
    data.check()
    for name in "frames/1.raw", "npy/000001.npy", "stack.raw":
        path, size = d / name, (d / name).stat().st_size
        fd = os.open(path, os.O_RDWR)
        assert os.pwrite(fd, b"abcdef", size - 2) == 2  # a short write, up to the end
        data.write((5 if "stack" in name else 2) * FRAME_BYTES - 2, b"ab")
        for offset in (size, size + 1000):
            with refused(errno.EFBIG):
                os.pwrite(fd, b"abc", offset)
        with refused(errno.EFBIG):
            os.ftruncate(fd, size + 1)
        os.ftruncate(fd, size)
        os.close(fd)
        fd = os.open(path, os.O_WRONLY | os.O_APPEND)
        with refused(errno.EFBIG):
            os.write(fd, b"abc")
        os.close(fd)
        fd = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_TRUNC)
        with refused(errno.EFBIG):
            os.write(fd, b"abc")
        os.close(fd)
        assert path.stat().st_size == size
    done = shell(f"echo more >> {d}/frames/1.raw")
    assert "File too large" in done.stderr
    data.check_file(mounts)


# ---- Truncating and erasing ----


@pytest.mark.parametrize("way", [
    "truncate -s {1} {0}", "dd of={0} bs=1 seek={1} count=0 status=none",
    "head -c {1} {0} > copy; cp copy {0}",
    "python3 -c 'import os; os.truncate(\"{0}\", {1})'"])
def test_truncation(mounts, data, tmp_path, way):
    d = data.mount(mounts)
    data.check()
    for frame, size in ((2, 1001), (0, 0), (2, 40)):
        do(way.format(d / f"frames/{frame}.raw", size), cwd=tmp_path)
        start = frame * 1230
        if way.startswith("head"):
            data.erase(start, start + 1230)
            data.write(frame * FRAME_BYTES, (tmp_path / "copy").read_bytes())
        else:
            data.erase(start + (size + 1) // 2, start + 1230)
        assert (d / f"frames/{frame}.raw").stat().st_size == FRAME_BYTES
        data.check()
    do(way.format(d / "stack.raw", 4 * FRAME_BYTES + 100), cwd=tmp_path)
    if way.startswith("head"):
        data.erase(0, data.array.size)
        data.write(0, (tmp_path / "copy").read_bytes())
    else:
        data.erase(4 * 1230 + 50, 5 * 1230)
    data.check_file(mounts)


def test_redirection_of_nothing(mounts, data):
    d = data.mount(mounts)
    data.check()
    do(f": > {d}/frames/2.raw")
    data.erase(2 * 1230, 3 * 1230)
    data.check_file(mounts)


def test_fallocate(mounts, data):
    d = data.mount(mounts)
    data.check()
    do(f"fallocate -p -o 101 -l 200 {d}/frames/2.raw")
    data.punch(2 * FRAME_BYTES + 101, 2 * FRAME_BYTES + 301)
    data.check()
    do(f"fallocate -z -o 1001 -l 100 {d}/frames/1.raw")
    data.write(FRAME_BYTES + 1001, bytes(100))
    data.check()
    do(f"fallocate -z -n -o {FRAME_BYTES - 10} -l 10 {d}/frames/3.raw")
    data.write(4 * FRAME_BYTES - 10, bytes(10))
    data.check()
    do(f"fallocate -p -o {3 * FRAME_BYTES - 20} -l {FRAME_BYTES + 40} {d}/stack.raw")
    data.erase(3 * 1230 - 10, 4 * 1230 + 10)
    data.check()
    do(f"fallocate -p -o 0 -l 100000 {d}/npy/000004.npy")
    data.erase(4 * 1230, 5 * 1230)
    data.check()
    fd = os.open(d / "frames/1.raw", os.O_RDWR)
    fallocate(fd, 0, 0, FRAME_BYTES)
    fallocate(fd, 0, FRAME_BYTES - 1, 1)
    fallocate(fd, KEEP_SIZE, 0, FRAME_BYTES)
    os.posix_fallocate(fd, 100, FRAME_BYTES - 100)
    fallocate(fd, PUNCH | KEEP_SIZE, FRAME_BYTES, 4096)
    for mode in (0, KEEP_SIZE, ZERO, ZERO | KEEP_SIZE):
        for offset, n in ((1, FRAME_BYTES), (FRAME_BYTES, 1), (2**40, 4096)):
            with refused(errno.EFBIG):
                fallocate(fd, mode, offset, n)
    with refused(errno.EFBIG):
        os.posix_fallocate(fd, 1, FRAME_BYTES)
    for mode in (COLLAPSE, INSERT, UNSHARE):
        with refused(errno.EOPNOTSUPP):
            fallocate(fd, mode, 0, 4096)
    os.close(fd)
    data.check()
    if data.fill == 0:  # what is zero is found by reading; or it would become the fill value
        do(f"fallocate -d {d}/frames/0.raw")
        assert (d / "frames/0.raw").read_bytes() == data.array[0].tobytes()
        assert np.array_equal(np.load(d / "npy/000000.npy"), data.array[0])
        return
    data.check_file(mounts)


def test_zeroing_with_sparsify(mounts, tmp_path):
    for fill in (0, 7):
        data = Data(tmp_path, True, fill)
        d = data.mount(mounts, "sparsify")
        data.check()
        do(f"fallocate -z -o 1001 -l 100 {d}/frames/1.raw")
        data.write(FRAME_BYTES + 1001, bytes(100))
        touched = slice(1230 + 500, 1230 + 551)
        data.defined.reshape(-1)[touched] = data.array.reshape(-1)[touched] != fill
        data.check_file(mounts)


# ---- What is refused changes nothing, by what goes before it either ----


def other_headers(content, d):
    """What other programs write: a TIFF and a NumPy file that are not as they are shown."""
    shown = (d / "npy/000001.npy").read_bytes()[:-FRAME_BYTES]
    return [b"II*\0" + bytes(4) + content, b"hello", shown[:100] + b"x" + shown[101:] + content,
            shown.replace(b"<u2", b"<f4") + 2 * content]


REFUSED_WAYS = ["cp bad {0}", "cat bad > {0}", "dd if=bad of={0} bs=101 status=none", "tee {0} < bad > /dev/null",
                "dd if=bad of={0} conv=notrunc,fsync status=none",
                "python3 -c 'f = open(\"{0}\", \"r+b\", 0); f.truncate(0); f.write(open(\"bad\", \"rb\").read())'",
                "python3 -c 'f = open(\"{0}\", \"ab\", 0); f.truncate(0); f.write(b\"more\")'"]


@pytest.mark.parametrize("way", REFUSED_WAYS)
def test_a_refused_write_changes_nothing(mounts, data, tmp_path, way):
    """What may be a file of another program is refused when it is closed, of which Python says nothing there."""
    d = data.mount(mounts, expect_log=True)
    data.check()
    for bad in other_headers(new_content(), d):
        (tmp_path / "bad").write_bytes(bad)
        for name in "npy/000001.npy", "tiff/000001.tif", "stack.npy":
            if "tiff" in name and not bad.startswith(b"II"):
                continue
            is_late = bad[:6] == b"\x93NUMPY" and "stack" not in name or bad[:2] == b"II" and "tiff" in name
            assert shell(way.format(d / name), cwd=tmp_path).returncode or (is_late and "open(" in way)
            assert np.array_equal(np.load(d / "npy/000001.npy"), data.array[1])
            assert (d / "frames/1.raw").read_bytes() == data.array[1].tobytes()
    data.check_file(mounts)


@pytest.mark.parametrize("is_sparse", [True, False])
@pytest.mark.parametrize("way", [way for way in REFUSED_WAYS if "open(" not in way])
def test_a_refused_write_makes_no_frame(mounts, tmp_path, way, is_sparse):
    data = Data(tmp_path, is_sparse, maxshape=(20, 30, 41))
    d = data.mount(mounts, expect_log=True)
    data.check()
    (tmp_path / "bad").write_bytes(other_headers(new_content(), d)[0])
    names = ["npy/000009.npy", "tiff/000005.tif"] + ["frames/7.defined"] * is_sparse
    for name in names:
        assert shell(way.format(d / name), cwd=tmp_path).returncode
        assert not (d / name).exists()
        assert len(os.listdir(d / "tiff")) == 5 and (d / "stack.raw").stat().st_size == 5 * FRAME_BYTES
    data.check()
    # Those who write behind the end of a new frame, or append to it, make none either.
    for flags, offset in (os.O_APPEND, 0), (0, FRAME_BYTES):
        fd = os.open(d / "raw/000008.raw", os.O_CREAT | os.O_WRONLY | flags)
        with refused(errno.EFBIG):
            os.pwrite(fd, b"more", offset)
        os.close(fd)
    data.check_file(mounts)


def test_datasets_that_cannot_be_written(mounts, tmp_path):
    path, new = tmp_path / "file.h5", tmp_path / "new"
    array = np.arange(5 * 6 * 7, dtype="<u2").reshape(5, 6, 7)
    with h5py.File(path, "w") as f:
        twelve_bits, plist = h5py.h5t.STD_U16LE.copy(), h5py.h5p.create(h5py.h5p.DATASET_CREATE)
        twelve_bits.set_precision(12)
        plist.set_chunk((1, 6, 7))
        space = h5py.h5s.create_simple((5, 6, 7), (9, 6, 7))
        h5py.h5d.create(f.id, b"bits", twelve_bits, space, plist).write(h5py.h5s.ALL, h5py.h5s.ALL, array)
        layout = h5py.VirtualLayout((5, 6, 7), "<u2")
        layout[...] = h5py.VirtualSource(f["bits"])
        f.create_virtual_dataset("virtual", layout)
    new.write_bytes(bytes(84))
    mount = mounts(path, "rw")
    # An ordinary user is stopped before by the mode bits.
    reasons = ["Operation not permitted"] + ["Permission denied"] * (os.geteuid() != 0)
    for d in mount / "bits", mount / "virtual":
        for name in "frames/1.raw", "npy/000001.npy", "tiff/000001.tif", "stack.raw", "raw/000007.raw":
            for way in (f"cp {new} {{0}}", "> {0}", "truncate -s 10 {0}", f"dd if={new} of={{0}} bs=20",
                        "fallocate -z -o 0 -l 10 {0}"):
                done = shell(way.format(d / name))
                assert done.returncode, done.stdout
                assert "7.raw" in name or any(reason in done.stderr for reason in reasons), done.stderr
            assert not (d / name).exists() or not (d / name).stat().st_mode & 0o222
        assert len(os.listdir(d / "tiff")) == 5 and (d / "stack.raw").read_bytes() == array.tobytes()


def test_numpy_saves_what_does_not_fit(mounts, tmp_path):
    data = Data(tmp_path, True, maxshape=(20, 30, 41))
    d = data.mount(mounts, expect_log=True)
    for name in "npy/000001.npy", "npy/000014.npy", "stack.npy":
        for array in np.ones(SHAPE[1:], "f4"), np.ones((41, 30), "u2"), np.ones(SHAPE[1:], "u2", "F").T:
            with refused(errno.EINVAL):
                np.save(d / name, array)
    data.check()
    np.save(d / "npy/000001.npy", new := np.ones(SHAPE[1:], "<u2"))
    data.write(FRAME_BYTES, new.tobytes())
    data.check_file(mounts)


def test_a_truncated_file_until_it_is_written(mounts, data):
    """Its own view is empty, all others show what there is; with the first bytes of the body it counts,
    and with a refusal it is forgotten."""
    d = data.mount(mounts)
    data.check()
    other = "frames/2.raw"
    for name in "npy/000002.npy", "tiff/000002.tif":
        whole = (d / name).read_bytes()
        head, empty = whole[:-FRAME_BYTES], bytes([data.fill, 0]) * 1230
        with open(d / name, "r+b") as file, mmap.mmap(file.fileno(), 0) as mapped:
            fd = os.open(d / name, os.O_RDWR | os.O_TRUNC)
            assert os.pread(fd, 10**6, 0) == mapped[:] == (d / name).read_bytes() == head + empty
            assert (d / other).read_bytes() == data.array[2].tobytes()
            with refused(errno.EINVAL):
                os.pwrite(fd, b"x" + whole[1:], 0)
            os.close(fd)
            wait_until(lambda: mapped[:] == whole)  # the kernel has what was refused in its pages
            assert (d / name).read_bytes() == whole
            data.check()
            for how in "write", "fsync", "close":
                fd = os.open(d / name, os.O_WRONLY)
                os.ftruncate(fd, 7)
                assert mapped[:] == head + empty
                os.pwrite(fd, head, 0)
                assert (d / other).read_bytes() == data.array[2].tobytes()
                data.erase(2 * 1230, 3 * 1230)
                if how == "write":
                    os.pwrite(fd, b"abcdefg", len(head) + 101)  # which begins and ends in an element
                    data.write(2 * FRAME_BYTES + 101, b"abcdefg")
                elif how == "fsync":
                    os.fsync(fd)
                if how != "close":
                    assert (d / other).read_bytes() == data.array[2].tobytes()
                os.close(fd)
                assert mapped[len(head):] == data.array[2].tobytes()
                data.check()
                whole_frame = new_content(seed=len(how))
                (d / other).write_bytes(whole_frame)
                data.write(2 * FRAME_BYTES, whole_frame)
    fd = os.open(d / "stack.raw", os.O_RDWR | os.O_TRUNC)
    assert (d / "stack.npy").read_bytes()[-5 * FRAME_BYTES:] == data.array.tobytes()
    os.pwrite(fd, b"abc", FRAME_BYTES + 5)
    data.erase(0, data.array.size)
    data.write(FRAME_BYTES + 5, b"abc")
    data.check()
    os.close(fd)
    data.check_file(mounts)


# Opens a file, truncating it, and writes what is no file of NumPy; then what it was told.
OTHER_PROGRAM = """
import os, sys
fd = os.open(sys.argv[1], os.O_WRONLY | os.O_TRUNC)
print("truncated", flush=True)
sys.stdin.readline()
try:
    os.write(fd, b"x")
except OSError as error:
    print(error.errno, flush=True)
"""


@pytest.mark.parametrize("is_looked_at", [False, True], ids=["unused", "mapped"])
def test_an_older_descriptor_has_not_truncated(mounts, data, is_looked_at):
    """The kernel says of O_TRUNC only by which thread: it is the descriptor that was opened last. What another program
    has truncated is not applied when an older one is closed."""
    d = data.mount(mounts, expect_log=True)
    data.check()
    name = d / "npy/000002.npy"
    whole = name.read_bytes()
    old = os.open(name, os.O_RDWR)
    if is_looked_at:
        assert os.pread(old, len(whole), 0) == whole
    with open(name, "wb", buffering=0) as file:
        file.write(whole)
    data.write(2 * FRAME_BYTES, whole[-FRAME_BYTES:])
    with subprocess.Popen(["/usr/bin/python3", "-c", OTHER_PROGRAM, name], text=True, stdin=subprocess.PIPE,
                          stdout=subprocess.PIPE) as other:
        assert other.stdout.readline() == "truncated\n"
        os.close(old)
        assert (d / "frames/2.raw").read_bytes() == whole[-FRAME_BYTES:]
        answer, _ = other.communicate("\n", timeout=START_SECONDS)
    assert answer == f"{errno.EINVAL}\n"
    data.check_file(mounts)


def test_truncated_beside_an_older_descriptor(mounts, data):
    """It is applied as its own descriptor is closed."""
    d = data.mount(mounts)
    data.check()
    old = os.open(d / "npy/000002.npy", os.O_RDWR)
    os.close(os.open(d / "npy/000002.npy", os.O_WRONLY | os.O_TRUNC))
    data.erase(2 * 1230, 3 * 1230)
    data.check()
    os.close(old)
    data.check_file(mounts)


def test_a_new_frame_until_it_is_written(mounts, tmp_path):
    data = Data(tmp_path, True, 7, maxshape=(20, 30, 41))
    d = data.mount(mounts)
    head = (d / "npy/000000.npy").read_bytes()[:-FRAME_BYTES]
    fd = os.open(d / "npy/000006.npy", os.O_RDWR | os.O_CREAT | os.O_TRUNC)
    assert os.fstat(fd).st_size == (d / "npy/000006.npy").stat().st_size == len(head) + FRAME_BYTES
    assert os.pread(fd, 10**6, 0) == head + bytes([7, 0]) * 1230
    assert os.lseek(fd, 0, os.SEEK_DATA) == 0
    os.pwrite(fd, head, 0)
    assert len(os.listdir(d / "raw")) == 5 and not (d / "raw/000006.raw").exists()
    with refused(errno.EEXIST):
        open(d / "npy/000006.npy", "xb")
    # Somebody else may make it meanwhile: what he writes is not erased.
    (d / "raw/000006.raw").write_bytes(new_content())
    assert os.pread(fd, 10**6, 0) == head + new_content()
    os.close(fd)
    assert (d / "npy/000006.npy").read_bytes() == head + new_content()
    fd = os.open(d / "raw/000008.raw", os.O_WRONLY | os.O_CREAT)
    os.fsync(fd)
    assert len(os.listdir(d / "npy")) == 9
    os.close(fd)
    os.close(os.open(d / "raw/000010.raw", os.O_RDONLY | os.O_CREAT))
    assert len(os.listdir(d / "npy")) == 11
    os.close(os.open(d / "frames/11.defined", os.O_WRONLY | os.O_CREAT))
    assert len(os.listdir(d / "npy")) == 12
    (d / "frames/13.defined").write_bytes(encoded(np.ones(SHAPE[1:], bool)))
    assert len(os.listdir(d / "npy")) == 14
    defined = np.zeros((14, *SHAPE[1:]), bool)
    array = np.full(defined.shape, 7, "<u2")
    defined[:5], array[:5] = data.defined, data.array
    defined[[6, 13]] = True
    array[6] = np.frombuffer(new_content(), "<u2").reshape(30, 41)
    check_sparse(d, Expected(array, defined, False))


def test_no_room(mounts, full_disk):
    """What cannot be taken is refused, and nothing is gone, nor is there a frame that was to come."""
    mount = mounts(full_disk, "rw,cache_size=128K,commit_interval=0", expect_log=True)
    size = 128 * 128 * 2
    content = {n: new_content(size, n) for n in range(3)}
    for n in content:
        (mount / f"d/frames/{n}.raw").write_bytes(content[n])
    do(f"sync {mount.root}")
    frames = 40
    refusals = {"new": 0, "old": 0}

    def check(root):
        assert len(os.listdir(root / "d/raw")) == frames
        for n in range(frames):
            assert (root / f"d/frames/{n}.raw").read_bytes() == content.get(n, bytes(size)), n

    for attempt in range(20):
        for name in [frames, *range(3)]:
            new = new_content(size, 100 * attempt + name)
            try:
                with open(mount / f"d/raw/{name:06}.raw", "wb", 0) as file:
                    file.write(new)
            except OSError as error:
                assert error.errno == errno.ENOSPC
                refusals["new" if name == frames else "old"] += 1
                check(mount)
                continue
            content[name] = new
            frames = max(frames, name + 1)
        if all(refusals.values()):
            break
    assert all(refusals.values()), refusals
    subprocess.run(["mount", "-o", "remount,size=8m", full_disk.parent], check=True)
    mount.unmount()
    check(mounts(full_disk))


# ---- Which elements are defined ----


def encoded(mask):
    """What H5Sencode gives of a selection."""
    space = h5py.h5s.create_simple(mask.shape)
    if mask.any():
        space.select_elements(np.argwhere(mask).astype("u8"))
    else:
        space.select_none()
    return space.encode()


def mask_of(content):
    """The elements that an encoded selection of a frame has."""
    return selected(content, SHAPE[1:])


def define(data, frame, mask):
    data.array[frame][~mask] = data.fill
    data.defined[frame] = mask


@pytest.mark.parametrize("way", ["cp new {0}", "cat new > {0}", "cp --remove-destination new {0} || cp new {0}",
                                 "dd if=new of={0} bs=10 status=none", "(cat new; true) > {0}",
                                 "python3 -c 'f = open(\"{0}\", \"wb\"); f.write(open(\"new\", \"rb\").read())'"])
@pytest.mark.parametrize("fill", [0, 7])
def test_selections(mounts, tmp_path, way, fill):
    data = Data(tmp_path, True, fill)
    d = data.mount(mounts)
    data.check()
    random = np.random.default_rng(5)
    for frame, share in ((1, 0.2), (2, 0.3), (0, 0), (3, 0.02)):
        mask = random.random(SHAPE[1:]) < share
        (tmp_path / "new").write_bytes(encoded(mask))
        done = shell(way.format(d / f"frames/{frame}.defined"), cwd=tmp_path)
        assert done.returncode == 0, done.stderr
        define(data, frame, mask)
        data.check()
    data.check_file(mounts)


def test_selection_is_applied_by_fsync(mounts, sparse):
    d = sparse.mount(mounts)
    sparse.check()
    mask = np.zeros(SHAPE[1:], bool)
    mask[3:5, 7:20] = True
    new = encoded(mask)
    fd = os.open(d / "frames/2.defined", os.O_RDWR | os.O_TRUNC)
    assert os.fstat(fd).st_size == 0
    os.write(fd, new[:50])
    assert (d / "frames/2.defined").read_bytes() == new[:50]
    os.write(fd, new[50:])
    assert os.fstat(fd).st_size == len(new) == (d / "frames/2.defined").stat().st_size
    assert (d / "frames/2.raw").read_bytes() == sparse.array[2].tobytes()  # all there, still
    os.fsync(fd)
    define(sparse, 2, mask)
    sparse.check()
    os.close(fd)
    sparse.check_file(mounts)


def test_what_is_no_selection_changes_nothing(mounts, sparse):
    d = sparse.mount(mounts, expect_log=True)
    before = (d / "frames/3.defined").read_bytes()
    bad = [b"hello", before[:-1], before + b"x", encoded(np.ones((30, 42), bool)),
           encoded(np.ones((30, 41, 1), bool)), bytes(100)]
    for content in bad:
        fd = os.open(d / "frames/3.defined", os.O_WRONLY | os.O_TRUNC)
        assert os.write(fd, content) == len(content)
        with refused(errno.EINVAL):
            os.fsync(fd)
        assert (d / "frames/3.defined").read_bytes() == before
        os.lseek(fd, 0, os.SEEK_SET)
        os.write(fd, before)  # the present content is what a part of it is written into
        os.fsync(fd)
        os.close(fd)
        fd = os.open(d / "frames/3.defined", os.O_WRONLY)
        os.ftruncate(fd, 0)
        os.write(fd, content)
        with refused(errno.EINVAL):
            os.close(fd)
        assert (d / "frames/3.defined").read_bytes() == before
    done = shell(f"cp {sparse.path} {d}/frames/3.defined")
    assert done.returncode == 1 and "Invalid argument" in done.stderr
    with refused(errno.EINVAL):
        os.truncate(d / "frames/3.defined", 10)
    with open(d / "frames/3.defined", "r+b", buffering=0):  # the kernel tells a little late of the last close
        with refused(errno.EINVAL):
            os.truncate(d / "frames/3.defined", 10)
        assert (d / "frames/3.defined").read_bytes() == before
    with open(d / "frames/3.defined", "r+b", buffering=0) as file:
        file.seek(30 * 41 * 2 * 8 + 5000)
        with refused(errno.EFBIG):
            file.write(b"x")
        with refused(errno.EOPNOTSUPP):
            fallocate(file.fileno(), PUNCH | KEEP_SIZE, 0, 10)
    sparse.check_file(mounts)


def test_a_refused_selection_erases_nothing(mounts, sparse):
    """Not even if the file was truncated before, and is closed after."""
    d = sparse.mount(mounts)
    sparse.check()
    with open(d / "frames/3.defined", "wb", 0) as file:
        file.seek(30 * 41 * 2 * 8 + 5000)
        with refused(errno.EFBIG):
            file.write(b"x")
    with open(d / "frames/3.defined", "ab", 0) as file:
        os.ftruncate(file.fileno(), 0)
        with refused(errno.EFBIG):
            file.write(b"x")
    sparse.check_file(mounts)


def test_one_open_file_reads_one_selection(mounts, sparse):
    """In several requests, while the frame and its selection change."""
    d = sparse.mount(mounts)
    path, before = d / "frames/3.defined", (d / "frames/3.defined").read_bytes()
    reader, late = os.open(path, os.O_RDONLY), os.open(path, os.O_RDWR)
    first = os.pread(reader, 50, 0)
    mask = np.zeros(SHAPE[1:], bool)
    mask[3, 5:9] = mask[7, 1:30] = True
    (d / "frames/3.raw").write_bytes(new_content())
    path.write_bytes(encoded(mask))
    define(sparse, 3, mask)
    for fd, content in (reader, before), (late, path.read_bytes()):
        parts = [os.pread(fd, 10, at) for at in range(0, len(content) + 20, 10)]
        assert b"".join(parts) == content
    assert first == before[:50]
    # Who writes reads what he has written; who reads that sees it change.
    os.ftruncate(late, 0)
    os.pwrite(late, before[:60], 0)
    assert os.pread(late, 100, 0) == before[:60]
    newcomer = os.open(path, os.O_RDONLY)
    assert os.pread(newcomer, 20, 0) == before[:20]
    os.pwrite(late, before[60:], 60)
    with refused(errno.ESTALE):
        os.pread(newcomer, 20, 20)
    assert os.pread(newcomer, 10**6, 0) == before
    assert os.pread(reader, 10**6, 0) == before
    for fd in reader, late, newcomer:
        os.close(fd)
    sparse.array[3], sparse.defined[3] = 0, mask_of(before)
    sparse.array[3][mask & sparse.defined[3]] = np.frombuffer(new_content(), "<u2").reshape(30, 41)[
        mask & sparse.defined[3]]
    sparse.check_file(mounts)


def test_a_chunk_that_the_index_cannot_hold(mounts, tmp_path):
    """Writing it is refused at once, and so is a frame there: all else is committed."""
    path = tmp_path / "file.h5"
    for name, dims, chunk in (("line", 1 << 40, "16"), ("frames", "1,1,16", "1,1,16"), ("other", "16", "16")):
        do(f"{BUILD}/sparsectl create {path} /{name} --dims {dims} --chunk {chunk} --dtype uint8 "
           f"--maxdims inf{',1,16' if name == 'frames' else ''}")
    last = 16 << 32  # byte behind the last chunk
    mount = mounts(path, "rw,commit_interval=0", expect_log=True)
    with open(mount / "line/frames/0.raw", "r+b", buffering=0) as file:
        os.pwrite(file.fileno(), b"end", last - 3)
        for offset in (last, last + 12345, (1 << 40) - 3):
            with refused(errno.EFBIG):
                os.pwrite(file.fileno(), b"bad", offset)
        os.fsync(file.fileno())
    assert mount.log().count("the index has no room for it") == 3
    with refused(errno.EFBIG):
        (mount / f"frames/frames/{1 << 32}.raw").write_bytes(bytes(16))
    assert json.loads((mount / "frames/dataset.json").read_text())["frames"] == 1
    (mount / "frames/frames/0.raw").write_bytes(b"f" * 16)
    (mount / "other/frames/0.raw").write_bytes(b"o" * 16)
    do(f"sync {mount.root}")
    kill(mount)
    mount = mounts(path, expect_log=True)
    with open(mount / "line/frames/0.raw", "rb") as file:
        assert os.pread(file.fileno(), 20, last - 10) == bytes(7) + b"end" + bytes(10)
        assert os.lseek(file.fileno(), last, os.SEEK_HOLE) == last
    assert json.loads((mount / "line/dataset.json").read_text())["defined_elements"] == 3
    assert (mount / "frames/frames/0.raw").read_bytes() == b"f" * 16
    assert (mount / "other/frames/0.raw").read_bytes() == b"o" * 16


def test_a_dataset_that_cannot_be_stored_holds_back_no_other(mounts, tmp_path):
    """Its filter fails. Who has written to it is told, by the log and the counters everybody else."""
    path, refuses = tmp_path / "file.h5", tmp_path / "refuses"
    plugins = counting_plugin(tmp_path)
    refuses.write_bytes(bytes(4))

    def refuse(whether):  # never shorter: the filter has it mapped
        with open(refuses, "r+b", buffering=0) as file:
            file.write(bytes([whether]))

    for name in "bad", "good":
        subprocess.run([BUILD / "sparsectl", "create", path, f"/{name}", "--dims", "2,4,4", "--dtype", "uint8",
                        *(["--filter", "values:480"] if name == "bad" else [])], check=True,
                       env=os.environ | plugins)
    mount = mounts(path, "rw,commit_interval=0", environment=plugins | {"SPARSEFS_TEST_REFUSES": str(refuses)},
                   expect_log=True)

    def left():
        return json.loads((mount / ".sparsefs/stats.json").read_text())["chunks_left"]

    (mount / "bad/frames/0.raw").write_bytes(b"1" * 16)
    do(f"sync {mount.root}")
    assert left() == 0
    refuse(True)
    bad = open(mount / "bad/frames/0.raw", "r+b", buffering=0)
    bad.write(b"2" * 16)
    with open(mount / "good/frames/0.raw", "r+b", buffering=0) as good:
        good.write(b"3" * 16)
        for _ in range(2):
            os.fsync(good.fileno())
            assert left() == 1
            with refused(errno.EIO):
                os.fsync(bad.fileno())
    with refused(errno.EIO):
        bad.close()
    assert shell(f"sync {mount.root}").returncode == 1
    assert "/bad: " in mount.log() and "/good: " not in mount.log()
    assert (mount / "bad/frames/0.raw").read_bytes() == b"2" * 16
    watcher = mounts(path, "follow", environment=plugins)
    assert (watcher / "bad/frames/0.raw").read_bytes() == b"1" * 16
    assert (watcher / "good/frames/0.raw").read_bytes() == b"3" * 16
    watcher.unmount()
    refuse(False)
    do(f"sync {mount.root}")
    assert left() == 0
    kill(mount)
    again = mounts(path, environment=plugins, expect_log=True)
    assert (again / "bad/frames/0.raw").read_bytes() == b"2" * 16


def test_a_selection_far_behind_costs_no_memory(mounts, tmp_path):
    subprocess.run([BUILD / "sparsectl", "create", tmp_path / "large.h5", "/d", "--dims", "1,30000,30000",
                    "--chunk", "1,512,512", "--dtype", "uint8"], check=True)
    mount = mounts(tmp_path / "large.h5", "rw", "staging_size=16G", expect_log=True)

    def used():
        status = open(f"/proc/{mount.process.pid}/status").read()
        return int(status.split("VmHWM:")[1].split()[0]) << 10

    before = used()
    with open(mount / "d/frames/0.defined", "r+b", 0) as file:
        os.pwrite(file.fileno(), b"x", 1 << 32)
        assert os.fstat(file.fileno()).st_size == (1 << 32) + 1
        assert os.pread(file.fileno(), 5, (1 << 32) - 3) == bytes(3) + b"x"
        with refused(errno.EFBIG):
            os.pwrite(file.fileno(), b"x", 1 << 40)
        file.truncate(1 << 33)
        os.pwrite(file.fileno(), b"x", 1 << 32)
        with refused(errno.EINVAL):
            os.fsync(file.fileno())
    assert used() - before < 64 << 20
    mount.unmount()
    mount = mounts(tmp_path / "large.h5", "rw", "staging_size=1M", expect_log=True)
    with open(mount / "d/frames/0.defined", "r+b", 0) as file, refused(errno.ENOSPC):
        os.pwrite(file.fileno(), b"x", 1 << 32)
    assert "no room for a selection for frame 0: it would need more than staging_size=1048576" in mount.log()


@pytest.mark.parametrize("way", [": > {0}", "truncate -s 0 {0}", "cp /dev/null {0}",
                                 "python3 -c 'import os; os.truncate(\"{0}\", 0)'",
                                 "python3 -c 'open(\"{0}\", \"w\")'", "true > {0}"])
def test_erasing_a_frame(mounts, sparse, way):
    d = sparse.mount(mounts)
    for frame in (0, 2, 3):
        sparse.check()
        do(way.format(d / f"frames/{frame}.defined"))
        sparse.erase(frame * 1230, frame * 1230 + 1230)
        assert not any((d / f"frames/{frame}.raw").read_bytes())
    sparse.check_file(mounts)


def test_erasing_waits_for_the_command(mounts, sparse, tmp_path):
    """A shell truncates the file and closes it once before the command writes: values that stay
    defined are not lost, even if somebody looks at the frame meanwhile."""
    d = sparse.mount(mounts)
    sparse.check()
    mask = sparse.defined[3] & (np.arange(41) < 20)
    (tmp_path / "new").write_bytes(encoded(mask))
    do(f"(sleep 0.3; cat {tmp_path}/new) > {d}/frames/3.defined")
    define(sparse, 3, mask)
    sparse.check()
    fd = os.open(d / "frames/2.defined", os.O_WRONLY | os.O_TRUNC)
    os.close(os.dup(fd))
    assert any((d / "frames/2.raw").read_bytes())
    os.close(fd)
    assert not any((d / "frames/2.raw").read_bytes())
    sparse.erase(2 * 1230, 3 * 1230)
    sparse.check_file(mounts)


def test_selections_of_dense_datasets_are_not_supported(mounts, tmp_path):
    d = Data(tmp_path, False).mount(mounts)
    for attempt in (lambda: open(d / "frames/1.defined", "r+b"),
                    lambda: os.truncate(d / "frames/1.defined", 0)):
        with refused(errno.EOPNOTSUPP):
            attempt()


# ---- New frames ----


@pytest.mark.parametrize("is_sparse", [True, False])
def test_new_frames(mounts, tmp_path, is_sparse):
    data = Data(tmp_path, is_sparse, maxshape=(12, 30, 41))
    d = data.mount(mounts, "first=1")
    for name in "frames/6.raw", "raw/000006.raw", "npy/000009.npy":
        assert not (d / name).exists()
    before = [sorted(os.listdir(d / folder)) for folder in ("frames", "raw", "npy", "values")]
    (tmp_path / "new").write_bytes(new_content())
    do(f"cp {tmp_path}/new {d}/frames/6.raw")
    assert (d / "raw/000006.raw").read_bytes() == new_content()
    grown = [sorted(os.listdir(d / folder)) for folder in ("frames", "raw", "npy", "values")]
    assert [len(new) - len(old) for new, old in zip(grown, before)] == [2, 1, 1, 1]
    assert (d / "stack.raw").stat().st_size == 6 * FRAME_BYTES
    assert json.loads((d / "dataset.json").read_text())["dims"] == [6, 30, 41]
    do(f"touch {d}/raw/000008.raw")
    assert len(os.listdir(d / "tiff")) == 8
    header = (d / "npy/000001.npy").read_bytes()[:-FRAME_BYTES]
    (d / "npy/9.npy").write_bytes(header + new_content(seed=9))
    for name in "frames/13.raw", "raw/13.raw", f"raw/{2**34}.raw", f"raw/{2**62}.raw":
        with refused(errno.EFBIG):
            open(d / name, "wb")
    for name in "frames/0.raw", "csr/x":
        with refused(errno.EPERM):
            open(d / name, "wb")
    with refused(errno.EEXIST):
        open(d / "frames/1.raw", "xb")
    open(d / "frames/12.raw", "xb").close()
    array = np.zeros((12, 30, 41), "<u2")
    array[:5] = data.array
    for frame, seed in ((5, 3), (8, 9)):
        array[frame] = np.frombuffer(new_content(seed=seed), "<u2").reshape(30, 41)
    defined = np.zeros(array.shape, bool)
    defined[:5], defined[[5, 8]] = data.defined, True
    if is_sparse:
        check_sparse(d, Expected(array, defined, True), first=1)
    data.mounted.unmount()
    if is_sparse:
        check_sparse(mounts(data.path) / "sparse", Expected(array, defined, True))
    else:
        with h5py.File(data.path) as f:
            assert np.array_equal(f["sparse"][()], array)


def test_datasets_that_cannot_grow(mounts, data):
    d = data.mount(mounts)
    with refused(errno.EFBIG):
        open(d / "frames/5.raw", "wb")
    assert len(os.listdir(d / "raw")) == 5


def test_a_dataset_from_nothing(mounts, tmp_path):
    path = tmp_path / "new.h5"
    subprocess.run([BUILD / "sparsectl", "create", path, "/run/d", "--dims", "0,64,64", "--maxdims",
                    "inf,64,64", "--chunk", "1,16,64", "--dtype", "uint16"], check=True)
    mount = mounts(path, "rw")
    d = mount / "run/d"
    assert os.listdir(d / "frames") == [] and (d / "stack.raw").read_bytes() == b""
    for frame in range(20):
        (d / f"raw/{frame}.raw").write_bytes(bytes([frame + 1]) * 8192)
    assert (d / "stack.raw").read_bytes() == b"".join(bytes([n + 1]) * 8192 for n in range(20))
    mount.unmount()
    mount = mounts(path)
    array = np.repeat(np.arange(1, 21, dtype="<u2") * 257, 64 * 64).reshape(20, 64, 64)
    check_sparse(mount / "run/d", Expected(array, np.ones(array.shape, bool), True))


# ---- Groups ----


def test_groups(mounts, data):
    d = data.mount(mounts)
    root = data.mounted.root
    do(f"mkdir -p {root}/run/one/two '{root}/run/a%2541'")
    assert sorted(os.listdir(root / "run")) == ["a%2541", "one"]
    inode = (root / "run/one").stat().st_ino
    with refused(errno.EEXIST):
        os.mkdir(root / "run/one")
    with refused(errno.ENOTEMPTY):
        os.rmdir(root / "run/one")
    inside = os.open(root / "run/one/two", os.O_RDONLY)
    do(f"rmdir {root}/run/one/two {root}/run/one")
    with refused(errno.ESTALE, errno.ENOENT):
        os.mkdir("new", dir_fd=inside)
    with refused(errno.ESTALE, errno.ENOENT):
        os.stat("new", dir_fd=inside)
    with refused(errno.ESTALE, errno.ENOENT):
        os.listdir(inside)
    os.close(inside)
    assert os.listdir(root / "run") == ["a%2541"]
    for _ in range(20):
        os.mkdir(root / "run/one")
        assert (root / "run/one").stat().st_ino != inode
        assert os.listdir(root / "run/one") == []
        os.mkdir(root / "run/one/x")
        assert os.listdir(root / "run/one") == ["x"]
        os.rmdir(root / "run/one/x")
        os.rmdir(root / "run/one")
    os.mkdir(root / "run/one")
    for name in (d / "new", d / "frames/new", d / "csr/new", root / ".sparsefs/new"):
        with refused(errno.EPERM):
            os.mkdir(name)
    for name in (d, d / "frames", root / ".sparsefs"):
        with refused(errno.EPERM):
            os.rmdir(name)
    for name in "%2F", "a%2Fb", "x" * 255 + "y":
        with refused(errno.EINVAL, errno.ENAMETOOLONG):
            os.mkdir(root / name)
    data.check()
    data.mounted.unmount()
    with h5py.File(data.path) as f:
        assert sorted(f["run"]) == ["a%41", "one"]


def test_a_group_with_two_names(mounts, tmp_path):
    path = tmp_path / "links.h5"
    with h5py.File(path, "w", libver="latest") as f:
        f.create_group("a/g")
        f["b"] = f["a"]
        f["d"] = np.arange(60, dtype="<u2").reshape(5, 3, 4)
        f["a/d"] = f["d"]
    mount = mounts(path, "rw")
    assert os.listdir(mount / "a") == os.listdir(mount / "b") == ["d", "g"]
    os.mkdir(mount / "b/new")
    assert os.listdir(mount / "a") == ["d", "g", "new"]
    assert os.listdir(mount / "a/new") == os.listdir(mount / "a/g") == os.listdir(mount / "b/g") == []
    os.rmdir(mount / "a/g")
    assert os.listdir(mount / "a") == os.listdir(mount / "b") == ["d", "new"]
    assert not (mount / "b/g").exists()
    os.mkdir(mount / "b/g")
    assert (mount / "a/g").exists()
    # The same dataset by three paths.
    names = "d", "a/d", "b/d"
    for n in range(20):
        new = np.full((3, 4), n, "<u2").tobytes()
        (mount / names[n % 3] / "frames/2.raw").write_bytes(new)
        for name in names:
            assert (mount / name / "frames/2.raw").read_bytes() == new
            assert (mount / name / "stack.raw").read_bytes()[48:72] == new


# ---- What is refused ----


def test_names_cannot_be_changed(mounts, data):
    d = data.mount(mounts)
    frame = d / "frames/1.raw"
    for attempt in (lambda: os.unlink(d / "stack.raw"), lambda: os.rename(frame, d / "frames/2.raw"),
                    lambda: os.rename(data.mounted / "sparse", data.mounted / "new"),
                    lambda: open(data.mounted / "new", "w"), lambda: open(d / "new", "w"),
                    lambda: os.link(frame, d / "frames/new"),
                    lambda: os.rename(frame, d / "frames/new"), lambda: os.symlink("x", data.mounted / "new"),
                    lambda: os.mkfifo(data.mounted / "new"), lambda: os.mknod(data.mounted / "new"),
                    lambda: open(d / "dataset.json", "w"), lambda: open(d / "csr/raw_csr.toml", "r+b"),
                    lambda: open(data.mounted / ".sparsefs/pid", "w"), lambda: os.truncate(d / "csr/raw_csr.toml", 0)):
        with refused(errno.EPERM):
            attempt()
    for name in [] if data.is_sparse else ["indptr.raw", "data.raw"]:
        with refused(errno.EPERM):
            open(d / "csr" / name, "r+b")
        with refused(errno.EPERM):
            os.truncate(d / "csr" / name, 0)
    assert "frames" in os.listdir(d)
    data.check_file(mounts)


@pytest.mark.parametrize("strict", [True, False])
def test_attributes_can_be_set_to_what_they_are(mounts, data, strict):
    with h5py.File(data.path.with_name("other.h5"), "w") as f:
        f["d"] = np.zeros((2, 3, 4), "<u2")
        f["d"].attrs["units"] = "counts"
    d = mounts(data.path.with_name("other.h5"), "rw", *["strict"] * strict) / "d"
    frame = d / "frames/1.raw"
    st = frame.stat()
    os.chmod(frame, stat.S_IMODE(st.st_mode))
    os.chown(frame, st.st_uid, st.st_gid)
    os.utime(frame, ns=(st.st_atime_ns, st.st_mtime_ns))
    if os.geteuid() == 0:  # who does not heed that the mode of the folder has no write bits
        os.setxattr(d, "user.units", b"counts")
    others = [lambda: os.chmod(frame, 0o600), lambda: os.utime(frame, (1, 1)),
              lambda: os.utime(d / "frames", (1, 1)), lambda: os.chmod(d, 0o700)]
    owners = [lambda: os.chown(frame, 1, -1), lambda: os.chown(frame, -1, 1)]
    attributes = [lambda: os.setxattr(d, "user.units", b"volts"),
                  lambda: os.removexattr(d, "user.units")]
    if os.geteuid() == 0:
        others += owners
    else:
        attributes += owners
    for attempt in attributes + (others if strict else []):
        with refused(errno.EPERM):
            attempt()
    if not strict:
        for attempt in others:
            attempt()
    now = frame.stat()
    assert (now.st_mode, now.st_uid, now.st_gid) == (st.st_mode, st.st_uid, st.st_gid)
    assert now.st_mtime == (st.st_mtime if strict else 1)
    for path in d, frame:
        with refused(errno.ENOTSUP):
            os.setxattr(path, "user.new", b"x")
        with refused(errno.ENODATA):
            os.removexattr(path, "user.new")
    assert os.getxattr(d, "user.units") == b"counts"


@pytest.mark.parametrize("command", ["cp -a", "cp -p", "rsync -a --inplace", "rsync -aX --inplace"])
def test_copies_with_times_and_modes(mounts, sparse, tmp_path, command):
    if not shutil.which(command.split()[0]):
        pytest.skip(f"{command.split()[0]} is not here")
    d = sparse.mount(mounts)
    new = tmp_path / "2.raw"
    new.write_bytes(new_content())
    os.utime(new, ns=(1_500_000_000_123_456_789, 1_400_000_000_987_654_321))
    os.chmod(new, 0o700)
    with contextlib.suppress(OSError):
        os.setxattr(new, "user.comment", b"of the copied file")
    done = shell(f"{command} {new} {d}/frames/2.raw")
    assert done.returncode == 0 or "xattr" in done.stderr, done.stderr
    assert (d / "frames/2.raw").read_bytes() == new_content()
    for name in "frames/2.raw", "npy/000002.npy":
        assert (d / name).stat().st_mtime_ns == 1_400_000_000_987_654_321, name
    done = shell(f"rsync -ai --dry-run {new} {d}/frames/")  # it is as new
    assert ">f" not in done.stdout, done.stdout
    os.pwrite(fd := os.open(d / "frames/2.raw", os.O_WRONLY), b"xy", 0)
    os.close(fd)
    for name in "frames/2.raw", "npy/000002.npy":
        assert time.time() - 100 < (d / name).stat().st_mtime, name


def test_copies_of_selections_with_times(mounts, sparse, tmp_path):
    """They count when they are closed, after the time was set; so does a truncation to nothing."""
    d = sparse.mount(mounts)
    new = tmp_path / "1.defined"
    for content, name in (((d / "frames/1.defined").read_bytes(), "frames/2.defined"), (b"", "frames/0.raw"),
                          (b"", "frames/2.raw")):
        new.write_bytes(content)
        os.utime(new, (1000, 2000))
        do(f"cp -p {new} {d}/{name}")
        assert (d / name).stat().st_mtime == 2000
        if content:
            assert (d / name).read_bytes() == content
    do(f": > {d}/frames/0.raw")
    assert time.time() - 100 < (d / "frames/0.raw").stat().st_mtime


@pytest.mark.parametrize("program", ["tar", "rsync", "cp", "copytree"])
def test_folders_of_frames_come_back(mounts, sparse, tmp_path, program):
    """As they were copied out, with all that such programs set."""
    d = sparse.mount(mounts)
    before = {path.name: path.read_bytes() for path in (d / "frames").glob("*.raw")}
    out = tmp_path / "out"
    out.mkdir()
    do(f"cp -a {d}/frames/*.raw {out}")
    for number, path in enumerate(sorted(out.iterdir())):
        os.utime(path, (1000, 2000 + number))
        os.chmod(path, 0o640)
    for path in sorted((d / "frames").glob("*.raw")):
        os.truncate(path, 0)
    into = d / "frames"
    if program == "tar":
        do(f"tar -C {out} -cf {tmp_path}/x.tar . && tar -C {into} --overwrite -xpf {tmp_path}/x.tar")
    elif program == "rsync":
        do(f"rsync -a --inplace {out}/ {into}/")
    elif program == "cp":
        do(f"cp -a {out}/. {into}/")
    else:
        shutil.copytree(out, into, dirs_exist_ok=True)
    for number, name in enumerate(sorted(before)):
        assert (into / name).read_bytes() == before[name]
        assert (into / name).stat().st_mtime == 2000 + number


def test_modes(mounts, data):
    os.chmod(data.path, 0o640)
    d = data.mount(mounts)
    for name, mode in (("frames/1.raw", 0o640), ("npy/000001.npy", 0o640), ("stack.npy", 0o640),
                       ("values/000001.values", 0o640 if data.is_sparse else 0o440), ("dataset.json", 0o440),
                       ("..", 0o750),
                       ("frames", 0o750), (".", 0o550), ("values", 0o750 if data.is_sparse else 0o550), ("csr", 0o550),
                       ("frames/1.defined", 0o640 if data.is_sparse else 0o440)):
        assert stat.S_IMODE((d / name).stat().st_mode) == mode, name
    data.mounted.unmount()
    d = data.mount(mounts, "umask=027")
    assert stat.S_IMODE((d / "frames/1.raw").stat().st_mode) == 0o640
    assert stat.S_IMODE((d / "dataset.json").stat().st_mode) == 0o440
    assert "rw" in {line.split()[5].split(",")[0] for line in open("/proc/self/mountinfo")
                    if line.split()[4] == str(data.mounted.root)}


def test_read_only(mounts, data):
    mount = mounts(data.path, "ro")
    frame = mount / "sparse/frames/1.raw"
    assert stat.S_IMODE(frame.stat().st_mode) & 0o222 == 0
    for attempt in (lambda: open(frame, "r+b"), lambda: os.truncate(frame, 0), lambda: os.unlink(frame),
                    lambda: os.mkdir(mount / "new"), lambda: open(mount / "new", "w")):
        with refused(errno.EROFS):
            attempt()
    os.close(os.open(mount.root, os.O_RDONLY))
    do(f"sync {mount.root} {frame}")


def test_a_file_that_others_have_open(mounts, run, data, tmp_path):
    """Beside a reader the mount reads, and says so if it was to write; beside a writer there is none."""
    with h5py.File(data.path):
        mount = mounts(data.path, "rw", expect_log=True)
        assert "read-only" in mount.log() and "another program" in mount.log()
        assert mount.log().count("\n") == 1
        with refused(errno.EROFS):
            open(mount / "sparse/frames/1.raw", "r+b")
        mount.unmount()
        mount = mounts(data.path, "default", expect_log=True)
        assert mount.log() == ""
        with refused(errno.EBUSY):
            open(mount / "sparse/frames/1.raw", "r+b")
        assert "another program" in mount.log()
        mount.unmount()
    mount = mounts(data.path, "rw")
    with pytest.raises(OSError):
        h5py.File(data.path)
    (tmp_path / "second").mkdir()
    done = run("-f", data.path, tmp_path / "second")
    assert done.returncode == 32 and "another program" in done.stderr


# ---- Times ----


def test_times(mounts, data):
    os.utime(data.path, (1000, 1000))
    d = data.mount(mounts)
    times = {name: (d / name).stat().st_mtime for name in ("frames/1.raw", "frames/2.raw", "stack.raw")}
    assert set(times.values()) == {1000}
    before = time.time()
    (d / "npy/000001.npy").write_bytes((d / "npy/000002.npy").read_bytes())
    for name in "frames/1.raw", "frames/1.defined", "stack.raw", "csr/indptr.raw", "values/000001.values":
        assert before - 1 < (d / name).stat().st_mtime < time.time() + 1, name
    assert (d / "frames/2.raw").stat().st_mtime == 1000
    os.utime(d / "frames/1.raw")  # just now: it is so already
    os.utime(d / "frames/2.raw", (2000, 3000))
    for name in "frames/2.raw", "raw/000002.raw", "frames/2.defined":
        assert ((d / name).stat().st_atime, (d / name).stat().st_mtime) == (2000, 3000), name
    os.utime(d / "stack.raw", (2000, 4000))
    assert (d / "stack.raw").stat().st_mtime == 4000 and (d / "frames/0.raw").stat().st_mtime == 1000
    os.utime(d / "frames/2.raw")
    assert before - 1 < (d / "frames/2.raw").stat().st_mtime < time.time() + 1


# ---- Durability ----


def kill(mount):
    """The daemon, with all that it has not committed."""
    os.kill(mount.process.pid, signal.SIGKILL)
    mount.process.wait()
    subprocess.run(["umount", "-i", "-l", mount.root], check=True)
    mount.process.returncode = 0


def check_after_crash(mounts, data):
    """A reader looks at the file as it is, with its journal."""
    d = mounts(data.path, expect_log=True) / "sparse"
    for frame in range(5):
        assert (d / f"frames/{frame}.raw").read_bytes() == data.array[frame].tobytes(), frame


@pytest.mark.parametrize("way", [
    "cp new {1}; sync {1}", "cp new {1}; sync {0}", "cp new {1}; sync {0}/frames", "cp new {1}; sync {0}/csr",
    "dd if=new of={1} conv=fsync status=none", "dd if=new of={1} conv=fdatasync,notrunc status=none",
    "dd if=new of={1} oflag=sync conv=notrunc status=none", "dd if=new of={1} oflag=dsync status=none",
    "python3 -c 'import mmap; f = open(\"{1}\", \"r+b\"); m = mmap.mmap(f.fileno(), 0); "
    "m[:] = open(\"new\", \"rb\").read(); m.flush()'"])
def test_what_is_synced_is_durable(mounts, data, tmp_path, way):
    d = data.mount(mounts, "commit_interval=0")
    (tmp_path / "new").write_bytes(new_content())
    do(way.format(d, d / "frames/1.raw"), cwd=tmp_path)
    data.write(FRAME_BYTES, new_content())
    kill(data.mounted)
    check_after_crash(mounts, data)


SIDE = 200  # of a frame with a chunk for each element: to empty it takes longer than to close and to sync


@pytest.fixture
def small_chunks(tmp_path):
    """A folder with a file with such frames, full of ones."""
    folder = tmp_path / "folder"
    folder.mkdir()
    subprocess.run([BUILD / "sparsectl", "create", folder / "f.h5", "d", "--dtype", "u1", "--dims", f"2,{SIDE},{SIDE}",
                    "--chunk", "1,1,1"], check=True)
    return folder


@pytest.mark.parametrize("what", ["raw", "defined"])
@pytest.mark.parametrize("way", ["directory", "file", "other file", "folder", "write"])
def test_what_was_closed_is_synced(mounts, small_chunks, way, what):
    """A truncation takes effect after close(2) has returned."""
    options = "default" if way == "folder" else "rw", "commit_interval=0,direct_io"
    mount = mounts(small_chunks if way == "folder" else small_chunks / "f.h5", *options)
    d = mount / ("f.h5/d" if way == "folder" else "d")
    for frame in range(2):
        (d / f"frames/{frame}.raw").write_bytes(bytes([1]) * SIDE * SIDE)
    do(f"sync {d}")
    other = {"directory": d / "frames", "file": d / "frames/0.raw", "other file": d / "frames/1.raw",
             "folder": mount.root, "write": d / "frames/1.raw"}[way]
    fd = os.open(other, os.O_WRONLY | os.O_SYNC if way == "write" else os.O_RDONLY)
    os.close(os.open(d / f"frames/0.{what}", os.O_WRONLY | os.O_TRUNC))
    if way == "write":
        assert os.write(fd, b"\2") == 1
    else:
        os.fsync(fd)
    kill(mount)
    with contextlib.suppress(OSError):
        os.close(fd)
    d = mounts(small_chunks / "f.h5", expect_log=True) / "d"
    assert (d / "frames/0.raw").read_bytes() == bytes(SIDE * SIDE)
    assert (d / "frames/1.raw").read_bytes() == bytes([2 if way == "write" else 1]) + bytes([1]) * (SIDE * SIDE - 1)


def test_a_sync_does_not_wait_for_who_keeps_a_file_open(mounts, small_chunks):
    """A shell closes what it has passed on: what that is to become is not known yet."""
    mount = mounts(small_chunks / "f.h5", "rw,commit_interval=0")
    frame, ones = mount / "d/frames/0.raw", bytes([1]) * SIDE * SIDE
    frame.write_bytes(ones)
    fd = os.open(frame, os.O_WRONLY | os.O_TRUNC)
    os.close(os.dup(fd))
    directory = os.open(mount.root, os.O_RDONLY)
    for _ in range(2):
        os.fsync(directory)
    os.close(directory)
    assert (mount / "d/stack.raw").read_bytes()[:len(ones)] == ones
    os.fsync(fd)
    assert (mount / "d/stack.raw").read_bytes()[:len(ones)] == bytes(len(ones))
    os.close(fd)


def test_a_file_that_others_change_after_a_crash(mounts, data):
    """Its journal had been carried out: it does not keep anybody from the file, nor undo anything."""
    d = data.mount(mounts, "commit_interval=0")
    (d / "frames/1.raw").write_bytes(new_content())
    do(f"sync {d}/frames/1.raw")
    data.write(FRAME_BYTES, new_content())
    kill(data.mounted)
    journal = data.path.with_name(data.path.name + ".journal")
    assert journal.exists()
    with h5py.File(data.path, "r+") as f:
        f.attrs["other"] = np.arange(1000)
        f["others"] = np.arange(5)
    for options in "ro", "rw", "ro":
        mount = mounts(data.path, options, expect_log=True)
        assert "counts no more" in mount.log() or not journal.exists()
        assert (mount / "others/stack.raw").read_bytes() == np.arange(5).tobytes()
        for frame in range(5):
            assert (mount / f"sparse/frames/{frame}.raw").read_bytes() == data.array[frame].tobytes()
        mount.unmount()
        assert journal.exists() == (options == "ro" and "counts no more" in mount.log())


@pytest.mark.parametrize("flags", [os.O_SYNC, os.O_DSYNC])
def test_synchronous_writes_without_the_page_cache(mounts, data, flags):
    d = data.mount(mounts, "commit_interval=0,direct_io")
    fd = os.open(d / "frames/1.raw", os.O_WRONLY | flags)
    assert os.write(fd, new_content()) == FRAME_BYTES
    data.write(FRAME_BYTES, new_content())
    kill(data.mounted)
    with contextlib.suppress(OSError):
        os.close(fd)
    check_after_crash(mounts, data)


def test_only_what_is_synced(mounts, data):
    d = data.mount(mounts, "commit_interval=0")
    (d / "frames/1.raw").write_bytes(new_content())
    do(f"sync {d}")
    (d / "frames/3.raw").write_bytes(new_content(seed=4))
    data.write(FRAME_BYTES, new_content())
    kill(data.mounted)
    check_after_crash(mounts, data)


def test_commits_in_the_background(mounts, data):
    d = data.mount(mounts, "commit_interval=1")

    def write():
        with open(d / "frames/1.raw", "r+b") as frame:
            frame.write(new_content())

    def commits():
        return json.loads((data.mounted / ".sparsefs/stats.json").read_text())["store_commits"]

    write()
    data.write(FRAME_BYTES, new_content())
    # One may be under way that began before; the second has it all.
    deadline, before = time.monotonic() + START_SECONDS, commits()
    while commits() < before + 2:
        assert time.monotonic() < deadline
        write()
        time.sleep(0.05)
    kill(data.mounted)
    check_after_crash(mounts, data)


def test_the_end_of_the_daemon_commits(mounts, data):
    d = data.mount(mounts, "commit_interval=0")
    (d / "frames/1.raw").write_bytes(new_content())
    data.write(FRAME_BYTES, new_content())
    data.mounted.process.terminate()
    assert data.mounted.wait() == 0
    check_after_crash(mounts, data)


@pytest.fixture
def full_disk(tmp_path):
    """A disk with room for hardly more than the file on it."""
    if os.geteuid() != 0:
        pytest.skip("only root may mount a small disk")
    disk = tmp_path / "disk"
    disk.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=256k", "tmpfs", disk], check=True)
    path = disk / "small.h5"
    subprocess.run([BUILD / "sparsectl", "create", path, "/d", "--dims", "40,128,128", "--maxdims", "inf,128,128",
                    "--chunk", "1,128,128", "--dtype", "uint16", "--filter", "values:shuffle"], check=True)
    yield path
    subprocess.run(["umount", "-l", disk], check=True)


def test_errors_of_commits_are_told(mounts, full_disk):
    mount = mounts(full_disk, "rw,commit_interval=1", expect_log=True)
    frame = open(mount / "d/frames/39.raw", "r+b", buffering=0)
    other = open(mount / "d/frames/38.raw", "r+b", buffering=0)
    for n in range(20):
        (mount / f"d/frames/{n}.raw").write_bytes(new_content(128 * 128 * 2, n))
    deadline = time.monotonic() + START_SECONDS
    while "could not be committed" not in mount.log():
        assert time.monotonic() < deadline
        time.sleep(0.1)
    assert "No space left" in mount.log()
    with refused(errno.ENOSPC):
        frame.close()
    with refused(errno.ENOSPC):
        os.fsync(other.fileno())
    done = shell(f"sync {mount.root}")
    assert done.returncode == 1 and "No space left" in done.stderr
    helper = subprocess.run(["/bin/sh", TOP / "mount-helpers" / "umount.sparsefs", mount.root], capture_output=True,
                            text=True, timeout=START_SECONDS, env=FINDS_SPARSEFS)
    assert helper.returncode == 32 and "could not be committed" in helper.stderr
    assert is_mounted(mount.root)
    subprocess.run(["mount", "-o", "remount,size=8m", full_disk.parent], check=True)
    other.close()
    do(f"sync {mount.root}")  # nothing was lost
    kill(mount)
    again = mounts(full_disk, expect_log=True)
    for n in range(20):
        assert (again / f"d/frames/{n}.raw").read_bytes() == new_content(128 * 128 * 2, n)


def test_who_reads_does_not_keep_errors_of_commits_from_the_log(mounts, full_disk):
    """By many lines about damaged chunks, before, meanwhile and afterwards."""
    with h5py.File(full_disk, "a") as file:
        bad = file.create_dataset("bad", data=np.zeros((1000, 4, 4), "u2"), chunks=(1, 4, 4), compression="gzip")
        places = [bad.id.get_chunk_info(n) for n in range(1000)]
    with open(full_disk, "r+b") as file:
        for place in places:
            file.seek(place.byte_offset)
            file.write(bytes(place.size))
    mount = mounts(full_disk, "rw,commit_interval=1", expect_log=True)
    told = mount / ".sparsefs/log"

    def flood():
        for n in range(1000):
            with refused(errno.EIO):
                (mount / f"bad/frames/{n}.raw").read_bytes()

    flood()
    for n in range(20):
        (mount / f"d/frames/{n}.raw").write_bytes(new_content(128 * 128 * 2, n))
    deadline = time.monotonic() + START_SECONDS
    while "could not be committed" not in told.read_text():
        assert time.monotonic() < deadline
        flood()
    assert "could not be committed: No space left" in mount.log()
    subprocess.run(["mount", "-o", "remount,size=8m", full_disk.parent], check=True)
    do(f"sync {mount.root}")
    flood()
    flood()
    lines = [line for line in told.read_text().splitlines() if "lines of the log" not in line]
    losses = [line for line in lines if "could not be committed: No space left" in line]
    assert losses and len(lines) > 900
    assert lines[:len(losses)] == losses and all("/bad" in line for line in lines[len(losses):])


def test_the_daemon_says_that_the_last_commit_failed(mounts, full_disk):
    mount = mounts(full_disk, "rw,commit_interval=0", expect_log=True)
    for n in range(20):
        (mount / f"d/frames/{n}.raw").write_bytes(new_content(128 * 128 * 2, n))
    unmount(mount.root)
    assert mount.wait() == 2
    assert "could not be committed" in mount.log()
    mount.process.returncode = 0
    again = mounts(full_disk)
    assert not any((again / "d/stack.raw").read_bytes())


# ---- What others see ----


class Viewer:
    """Somebody who has looked at every view of a frame, and has it open and mapped."""

    def __init__(self, d, frame):
        self.d, self.frame = d, frame
        self.paths = [d / f"frames/{frame}.raw", d / f"npy/{frame:06}.npy", d / f"tiff/{frame:06}.tif",
                      d / "stack.raw", d / "stack.npy"]
        self.files = [open(path, "rb", buffering=0) for path in self.paths]
        self.maps = [mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ) for file in self.files]
        self.look()

    def part(self, name, content):
        if "stack" in name:
            begin = len(content) - (5 - self.frame) * FRAME_BYTES
            return content[begin:begin + FRAME_BYTES]
        return content[-FRAME_BYTES:]

    def look(self):
        """The frame as every view shows it, by a mapping and by reading."""
        seen = set()
        for path, file, mapped in zip(self.paths, self.files, self.maps):
            seen.add(self.part(path.name, bytes(mapped)))
            seen.add(self.part(path.name, os.pread(file.fileno(), len(mapped), 0)))
        return seen

    def counts(self):
        """The numbers of defined elements that everything shows, of the frame and of all."""
        d, n = self.d, self.frame
        indptr = np.fromfile(d / "csr/indptr.raw", "<i8")
        mask = files.decode_selection((d / f"frames/{n}.defined").read_bytes())
        of_frame = {(d / f"values/{n:06}.values").stat().st_size // 2,
                    len((d / f"values/{n:06}.values").read_bytes()) // 2, int(indptr[n + 1] - indptr[n]),
                    mask.get_select_npoints()}
        of_all = {int(indptr[-1]), (d / "csr/data.raw").stat().st_size // 2,
                  len((d / "csr/indices.raw").read_bytes()) // 4,
                  json.loads((d / "dataset.json").read_text())["defined_elements"]}
        return of_frame, of_all

    def close(self):
        for mapped in self.maps:
            mapped.close()
        for file in self.files:
            file.close()


@pytest.mark.parametrize("is_sparse", [True, False])
def test_every_view_shows_what_was_written(mounts, tmp_path, is_sparse):
    data = Data(tmp_path, is_sparse)
    d = data.mount(mounts)
    viewer = Viewer(d, 2)
    viewer.counts()
    writers = {name: open(d / name, "r+b", buffering=0) for name in
               ("frames/2.raw", "npy/000002.npy", "tiff/000002.tif", "stack.raw", "stack.npy")}
    offsets = {name: os.fstat(file.fileno()).st_size - FRAME_BYTES * (3 if "stack" in name else 1)
               for name, file in writers.items()}
    offsets = {name: offset for name, offset in offsets.items()}
    random = np.random.default_rng(8)
    for n in range(300):
        name = list(writers)[n % 5]
        begin = int(random.integers(0, FRAME_BYTES - 10))
        content = new_content(int(random.integers(1, FRAME_BYTES - begin)), n)
        assert os.pwrite(writers[name].fileno(), content, offsets[name] + begin) == len(content)
        data.write(2 * FRAME_BYTES + begin, content)
        assert viewer.look() == {data.array[2].tobytes()}, name
        if n % 10 == 0:
            size = int(random.integers(0, FRAME_BYTES))
            if n % 20:
                os.truncate(d / "frames/2.raw", size)
                data.erase(2 * 1230 + (size + 1) // 2, 3 * 1230)
            else:
                fallocate(writers["stack.raw"].fileno(), PUNCH | KEEP_SIZE, 2 * FRAME_BYTES + size, 100)
                data.punch(2 * FRAME_BYTES + size, 2 * FRAME_BYTES + size + 100)
            assert viewer.look() == {data.array[2].tobytes()}
        if is_sparse:
            of_frame, of_all = viewer.counts()
            assert of_frame == {data.defined[2].sum()} and of_all == {data.defined.sum()}
        if n % 50 == 49:
            mapped = np.memmap(d / "frames/2.raw", "<u2", "r+")
            mapped[n] = n
            mapped.flush()
            del mapped
            page = slice(2 * FRAME_BYTES, 3 * FRAME_BYTES)  # a mapping writes whole pages
            data.write(2 * FRAME_BYTES, data.array.tobytes()[page])
            data.array[2].reshape(-1)[n] = n
            assert viewer.look() == {data.array[2].tobytes()}
    viewer.close()
    for file in writers.values():
        file.close()
    data.check_file(mounts)


def test_who_looks_for_the_first_time_beside_a_close_does_not_keep_what_was_before(mounts, tmp_path):
    """Sizes and times of views: the kernel makes an inode only as the program goes on that has looked it up."""
    frames = 1500
    with h5py.File(tmp_path / "a.h5", "w", libver="latest") as file:
        file.create_dataset("d", (frames, 32, 32), "<u2", chunks=(1, 32, 32))
    mount = mounts(tmp_path / "a.h5", "rw")
    looks = subprocess.run([BUILD / "tests/mount/first_looks", mount / "d", str(frames)], capture_output=True,
                           text=True, timeout=START_SECONDS)
    assert (looks.returncode, looks.stdout, looks.stderr) == (0, "0\n", "")


def test_a_map_survives_that_its_file_is_copied_over(mounts, sparse, tmp_path):
    """O_TRUNC does not make the file shorter, not even for a moment."""
    d = sparse.mount(mounts)
    (tmp_path / "new").write_bytes(new_content())
    reader = subprocess.Popen(["python3", "-c", f"""
import mmap, time
f = open("{d}/frames/1.raw", "rb")
m = mmap.mmap(f.fileno(), 0, prot=mmap.PROT_READ)
print(flush=True)
end = time.monotonic() + 2
while time.monotonic() < end:
    assert len(m[:]) == {FRAME_BYTES}
"""], stdout=subprocess.PIPE)
    reader.stdout.readline()
    while reader.poll() is None:
        do(f"cp {tmp_path}/new {d}/frames/1.raw")
    assert reader.returncode == 0
    reader.stdout.close()


def writer(path, size, head, seconds, seed, kind):
    """Writes a view again and again, until the time is over; a process of its own."""
    pid = os.fork()
    if pid:
        return pid
    status = 1
    try:
        random = np.random.default_rng(seed)
        end = time.monotonic() + seconds
        with open(path, "r+b", buffering=0) as file:
            mapped = mmap.mmap(file.fileno(), 0) if kind == "map" else None
            while time.monotonic() < end:
                begin = int(random.integers(0, size - 2))
                n = int(random.integers(1, size - begin))
                if mapped:
                    mapped[head + begin:head + begin + n] = bytes([seed]) * n
                    mapped.flush()
                else:
                    os.pwrite(file.fileno(), bytes([seed]) * n, head + begin)
                if kind == "truncate":
                    os.ftruncate(file.fileno(), head + begin)
                os.pread(file.fileno(), size, 0)
        status = 0
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(status)


@pytest.mark.parametrize("kinds", [("write", "write"), ("write", "map"), ("map", "map"),
                                   ("truncate", "write"), ("truncate", "map")])
@pytest.mark.parametrize("is_sparse", [True, False])
def test_two_writers_of_one_frame(mounts, tmp_path, kinds, is_sparse):
    """Through two views at the same time, while somebody looks at a third one: nobody waits for ever,
    and in the end everybody sees the same. With as few threads as there can be."""
    options = ("threads=2",)
    data = Data(tmp_path, is_sparse)
    d = data.mount(mounts, *options)
    viewer = Viewer(d, 2)
    names = ["frames/2.raw", "npy/000002.npy"]
    heads = [0, (d / names[1]).stat().st_size - FRAME_BYTES]
    began = time.monotonic()
    pids = [writer(d / name, FRAME_BYTES, head, 2, seed, kind)
            for name, head, seed, kind in zip(names, heads, (17, 34), kinds)]
    looks = 0
    while time.monotonic() < began + 2 or looks < 4:
        viewer.look()
        (d / "frames/2.defined").read_bytes()
        looks += 1
    ends = [os.waitpid(pid, 0)[1] for pid in pids]
    assert ends == [0, 0]
    assert time.monotonic() < began + START_SECONDS
    do(f"sync {d}")
    while len(viewer.look()) > 1: # what the kernel clears by itself is seen to a little later
        assert time.monotonic() < began + START_SECONDS
    viewer.close()
    data.mounted.unmount()
    assert subprocess.run([BUILD / "sparsectl", "check", data.path], capture_output=True).returncode == 0


def test_truncation_under_a_map_that_is_being_written(mounts, data):
    """The kernel keeps the pages of the map back until the truncation is answered, and writes them after
    it: nobody waits for ever, and everybody sees the same."""
    d = data.mount(mounts)
    viewer = Viewer(d, 2)
    with open(d / "frames/2.raw", "r+b") as file, mmap.mmap(file.fileno(), 0) as mapped:
        mapped[:] = b"\1" * FRAME_BYTES
        began = time.monotonic()
        os.truncate(d / "frames/2.raw", 100)
        assert time.monotonic() < began + START_SECONDS
        mapped.flush()
        seen = viewer.look()
        assert len(seen) == 1 and seen.pop() == bytes(mapped)
        os.truncate(d / "frames/2.raw", 100)
        assert viewer.look() == {b"\1" * 100 + bytes([data.fill, 0]) * (1230 - 50)}
    viewer.close()


def test_many_writers_of_many_frames(mounts, tmp_path):
    for is_sparse in (True, False):
        data = Data(tmp_path, is_sparse, chunks=(2, 8, 16))
        d = data.mount(mounts, "commit_interval=1")

        def work(frame):
            for n in range(60):
                content = new_content(seed=100 * frame + n)
                (d / f"frames/{frame}.raw").write_bytes(content)
                assert (d / f"raw/{frame:06}.raw").read_bytes() == content
                assert (d / f"npy/{frame:06}.npy").read_bytes().endswith(content)
            data.write(frame * FRAME_BYTES, content)

        threads = [threading.Thread(target=work, args=(frame,)) for frame in range(5)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        data.check_file(mounts)


def test_direct_io(mounts, data):
    d = data.mount(mounts, "direct_io")
    (d / "frames/1.raw").write_bytes(new_content())
    data.write(FRAME_BYTES, new_content())
    os.truncate(d / "npy/000002.npy", 0)
    data.erase(2 * 1230, 3 * 1230)
    for frame in (1, 2):
        assert (d / f"raw/{frame:06}.raw").read_bytes() == data.array[frame].tobytes()
    data.mounted.unmount()
    d = data.mount(mounts)
    data.check_file(mounts)


# ---- Room for more than can be gone through ----

VAST = 8 * 10**12  # bytes of a frame, in 5 * 10^8 chunks


@pytest.fixture
def vast(mounts, tmp_path):
    path = tmp_path / "vast.h5"
    do(f"{BUILD}/sparsectl create {path} /d --dims 3,500000000000,16 --maxdims inf,500000000000,16"
       " --chunk 1,1000,16 --dtype uint8 --filter values:deflate")
    return mounts(path, "rw,threads=2")


def test_vast_frames(vast):
    """Every view and call, all by what is stored."""
    spots = {(0, 5): b"x", (1, VAST // 2): b"abc", (1, VAST - 3): b"end"}
    for (frame, offset), content in spots.items():
        with open(vast / f"d/frames/{frame}.raw", "r+b", buffering=0) as file:
            file.seek(offset)
            file.write(content)
    for _ in range(2):  # not stored yet, and stored
        do(f"ls -laR {vast.root}/d")
        assert json.loads((vast / "d/dataset.json").read_text())["defined_elements"] == 7
        assert (vast / "d/values/000001.values").read_bytes() == b"abcend"
        assert np.fromfile(vast / "d/csr/indptr.raw", "<i8").tolist() == [0, 1, 7, 7]
        with open(vast / "d/frames/1.raw", "rb") as file:
            fd = file.fileno()
            assert os.lseek(fd, 0, os.SEEK_DATA) == VAST // 2
            assert os.lseek(fd, VAST // 2, os.SEEK_HOLE) == VAST // 2 + 3
            assert os.lseek(fd, VAST // 2 + 3, os.SEEK_DATA) == VAST - 3
            assert os.pread(fd, 131072, VAST - 131072) == bytes(131069) + b"end"
            assert os.fstat(fd).st_blocks == 1
        with open(vast / "d/stack.raw", "rb") as file:
            assert os.lseek(file.fileno(), VAST, os.SEEK_DATA) == VAST + VAST // 2
        selection = (vast / "d/frames/1.defined").read_bytes()
        do(f"sync {vast.root}")
    with open(vast / "d/frames/1.raw", "r+b") as file:
        fallocate(file.fileno(), PUNCH | KEEP_SIZE, 16, VAST // 2)
        assert os.lseek(file.fileno(), 0, os.SEEK_DATA) == VAST - 3
    (vast / "d/frames/2.defined").write_bytes(selection)
    assert len((vast / "d/values/000002.values").read_bytes()) == 6
    os.truncate(vast / "d/frames/2.raw", 0)
    os.truncate(vast / "d/stack.raw", VAST)
    assert json.loads((vast / "d/dataset.json").read_text())["defined_elements"] == 1


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_work_without_an_end_is_interrupted(vast, number):
    """Its makers are killed, of whom there are more than threads; or the mount ends. Others are served
    meanwhile."""
    processes = [subprocess.Popen(["fallocate", "-z", "-o", "0", "-l", str(VAST), vast / f"d/frames/{frame}.raw"],
                                  stderr=subprocess.DEVNULL) for frame in range(3)]
    try:
        counted = 0
        while counted == 0:  # it has begun
            counted = json.loads((vast / ".sparsefs/stats.json").read_text())["chunks_encoded"]
            assert all(process.poll() is None for process in processes)
        do(f"ls {vast.root}/d/frames")
        do(f"ls -la {vast.root} {vast.root}/d {vast.root}/d/raw")  # frames/0.defined would be counted for long
        if number == signal.SIGKILL:
            for process in processes:
                process.kill()
        else:
            vast.process.terminate()
            assert vast.wait() == 0
        for process in processes:
            process.wait(START_SECONDS)
        assert number == signal.SIGTERM or (vast / "d/frames/1.raw").stat().st_size == VAST
    finally:
        for process in processes:
            process.kill()


@pytest.fixture
def large(tmp_path):
    """Two dense frames of 24 GiB, of which one chunk is stored each: what is filled is less than 64 GiB."""
    path = tmp_path / "large.h5"
    with h5py.File(path, "w", libver="latest") as file:
        d = file.create_dataset("d", (2, LARGE // 1024, 1024), "u1", chunks=(1, 256, 1024), maxshape=(None, None, None),
                                compression=9)
        d[:, -1, -1] = 7
        file["beside"] = np.arange(10)
    return path


LARGE = 24 << 30  # bytes of a frame


@pytest.mark.parametrize("ending", ["kill", "terminate", "end", "abort"])
@pytest.mark.parametrize("how", ["zero", "cut"])
def test_filling_is_interrupted(mounts, large, ending, how):
    """By a signal to who has asked for it, or to the daemon, or by unmounting. What was not filled is what it was."""
    if ending == "abort" and os.geteuid() != 0:
        pytest.skip("only root unmounts by force")
    mount = mounts(large, "rw,threads=2,cache_size=16M", expect_log=True)
    frame = mount / "d/frames/0.raw"
    command = ["fallocate", "-z", "-o", "0", "-l", str(LARGE), frame] if how == "zero" else \
        ["truncate", "-s", "8", frame]
    with subprocess.Popen(command, stderr=subprocess.DEVNULL) as process:
        while json.loads((mount / ".sparsefs/stats.json").read_text())["chunks_encoded"] == 0:  # it has begun
            assert process.poll() is None
        assert (mount / "beside/stack.raw").read_bytes() == np.arange(10).tobytes()
        if ending == "kill":
            process.kill()
        elif ending == "terminate":
            process.terminate()
        elif ending == "end":
            mount.process.terminate()
            assert mount.wait() == 0
        else:
            subprocess.run(["umount", "-i", "-f", "-l", mount.root], check=True, timeout=START_SECONDS)
            assert mount.wait() == 0
        assert process.wait(START_SECONDS) != 0
    if ending in ("kill", "terminate"):
        with open(frame, "rb") as file:
            assert os.pread(file.fileno(), 1, LARGE - 1) == b"\7"
        mount.unmount()
    do(f"{BUILD}/sparsectl check {large}")
    with h5py.File(large) as file:
        assert file["d"][:, -1, -1].tolist() == [7, 7]
        assert 0 < file["d"].id.get_storage_size() < 1 << 30


@pytest.mark.parametrize("ending", ["kill", "end"])
def test_a_sync_that_waits_for_what_was_closed_is_interrupted(mounts, tmp_path, ending):
    """A frame that shares its chunks with another is emptied, which takes long."""
    path = tmp_path / "shared.h5"
    with h5py.File(path, "w", libver="latest") as file:
        file.create_dataset("d", (2, LARGE // 1024, 1024), "u1", chunks=(2, 128, 1024), compression=9)
        file["beside"] = np.arange(10)
    mount = mounts(path, "rw,threads=2,cache_size=16M", expect_log=True)
    os.close(os.open(mount / "d/frames/0.raw", os.O_WRONLY | os.O_TRUNC))
    wait_until(lambda: json.loads((mount / ".sparsefs/stats.json").read_text())["chunks_encoded"] > 0)  # it is applied
    directory = os.open(mount.root, os.O_RDONLY)
    process = subprocess.Popen(["python3", "-c", "import os; os.fsync(0)"], stdin=directory, stderr=subprocess.DEVNULL)
    os.close(directory)
    with process:
        assert (mount / "beside/stack.raw").read_bytes() == np.arange(10).tobytes()
        if ending == "kill":
            process.kill()
        else:
            mount.process.terminate()
            assert mount.wait() == 0
        assert process.wait(START_SECONDS) != 0
    if ending == "kill":
        mount.unmount()
    assert "Interrupted system call" in mount.log()
    do(f"{BUILD}/sparsectl check {path}")


def test_a_sync_tells_what_was_lost_and_commits_the_rest(mounts, tmp_path):
    """A frame that shares its chunks with another cannot be emptied if the last one is damaged."""
    path = tmp_path / "shared.h5"
    with h5py.File(path, "w", libver="latest") as file:
        shared = file.create_dataset("d", (2, 1 << 16, 1024), "u1", chunks=(2, 128, 1024), compression=9)
        shared[:] = 7
        last = shared.id.get_chunk_info(shared.id.get_num_chunks() - 1)
        file["beside"] = np.zeros((2, 5, 2), "u1")
    with open(path, "r+b") as file:
        file.seek(last.byte_offset)
        file.write(bytes(last.size))
    mount = mounts(path, "rw,threads=2,cache_size=16M,commit_interval=0", expect_log=True)
    (mount / "beside/frames/1.raw").write_bytes(bytes(range(10)))
    os.close(os.open(mount / "d/frames/0.raw", os.O_WRONLY | os.O_TRUNC))
    wait_until(lambda: json.loads((mount / ".sparsefs/stats.json").read_text())["chunks_encoded"] > 0)  # it is applied
    directory = os.open(mount.root, os.O_RDONLY)
    with refused(errno.EIO):
        os.fsync(directory)
    os.close(directory)
    kill(mount)
    assert (mounts(path, expect_log=True) / "beside/frames/1.raw").read_bytes() == bytes(range(10))


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may hold the kernel")
@pytest.mark.parametrize("kind", ["file", "folder"])
def test_who_lists_a_directory_holds_up_nobody(mounts, tmp_path, kind):
    """He never takes what he has asked the kernel for: what others write is seen, and the mount ends."""
    folder = tmp_path / "folder"
    folder.mkdir()
    do(f"{BUILD}/sparsectl create {folder}/f.h5 d --dims 4,8,8 --maxdims inf,8,8 --chunk 1,8,8 --dtype uint16")
    mount = mounts(folder if kind == "folder" else folder / "f.h5", "default", "allow_other")
    d = mount / ("f.h5/d" if kind == "folder" else "d")
    command = ["python3", TOP / "tests/mount/hold_listing.py", d / "raw"]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as holder:
        try:
            if holder.stdout.readline() != b"held\n":
                assert holder.wait() == 77
                pytest.skip("no userfaultfd(2)")
            for frame in range(4, 40):
                (d / f"frames/{frame}.raw").write_bytes(bytes([frame]) * 128)
                assert (d / "stack.raw").stat().st_size == (frame + 1) * 128
            assert (d / "npy/000039.npy").read_bytes()[-128:] == bytes([39]) * 128
            mount.process.terminate()
            assert mount.process.wait(START_SECONDS) == 0
        finally:
            holder.kill()
    assert h5py.is_hdf5(folder / "f.h5")


# ---- A file that somebody else cuts short ----


@pytest.mark.parametrize("kind", ["dense", "sparse"])
@pytest.mark.parametrize("first", ["sync", "write"])
def test_nothing_is_committed_to_a_file_that_was_cut(mounts, tmp_path, kind, first):
    """Neither what was written nor nothing: what was committed is not there any more. What is gone reads
    as an error, not as zeros. With the file whatever was written comes back."""
    data = Data(tmp_path, kind == "sparse")
    if kind == "sparse":  # its index before its chunks
        do(f"{BUILD}/sparsectl repack {data.path} {tmp_path}/repacked.h5")
        data.path = tmp_path / "repacked.h5"
    mount = data.mount(mounts, "commit_interval=0", expect_log=True) and data.mounted
    root = os.open(mount.root, os.O_RDONLY)
    os.fsync(root)
    whole, frames = data.path.read_bytes(), range(SHAPE[0])
    os.truncate(data.path, len(whole) - 200)
    gone = 0
    for frame in frames:
        try:
            assert (data.d / f"frames/{frame}.raw").read_bytes() == data.array[frame].tobytes()
        except OSError as error:
            assert error.errno == errno.EIO
            gone += 1
    assert gone == 1
    if first == "sync":
        with refused(errno.EIO):
            os.fsync(root)
    content = bytes(range(200)) * 5
    fd = os.open(data.d / "frames/0.raw", os.O_WRONLY)
    os.pwrite(fd, content, 100)
    data.write(100, content)
    for _ in range(2):
        with refused(errno.EIO):
            os.fsync(fd)
    assert data.path.stat().st_size < len(whole)  # it can still be seen
    assert mount.log().count("it was cut short by another program") == 1, mount.log()
    with open(data.path, "r+b") as file:
        file.write(whole)
    os.fsync(fd)
    os.close(fd)
    os.fsync(root)
    os.close(root)
    data.check_file(mounts)


@pytest.mark.parametrize("way", ["rename", "header"])
def test_what_was_cut_is_not_looked_at_in_a_map(mounts, tmp_path, way):
    """Of a contiguous dataset, whose frames are read as what they become is prepared: all of the frame is
    kept for the case that it cannot be replaced, or another program's file begins with it."""
    path = tmp_path / "contiguous.h5"
    with h5py.File(path, "w") as file:
        file["d"] = np.full((4, 512, 512), 7, "u2")
    mount = mounts(path, "rw", expect_log=True)
    bytes_of_frame, d = 512 * 512 * 2, mount / "d"
    assert (d / "frames/3.raw").read_bytes() == np.full(512 * 512, 7, "u2").tobytes()
    (d / "frames/new").write_bytes(bytes(bytes_of_frame))
    with open(d / "npy/000003.npy", "r+b", 0) as npy:
        os.truncate(path, path.stat().st_size - bytes_of_frame)
        with refused(errno.EIO):
            if way == "rename":
                os.rename(d / "frames/new", d / "frames/3.raw")
            else:
                npy.write(b"\x93NUMPY\2")  # another version
    assert (d / "frames/0.raw").read_bytes() == np.full(512 * 512, 7, "u2").tobytes()
    with open(path, "r+b") as file:
        file.truncate(file.seek(0, os.SEEK_END) + bytes_of_frame)
    mount.unmount()


def test_a_cut_file_is_seen_when_the_mount_ends(tmp_path):
    data = Data(tmp_path, True)
    mount = data.mount(lambda path, *options: Mount(path, tmp_path / "mnt", *options),
                       "commit_interval=0") and data.mounted
    size = data.path.stat().st_size
    (data.d / "frames/0.raw").write_bytes(bytes(FRAME_BYTES))
    os.truncate(data.path, size - 200)
    assert mount.umount() and mount.wait() == 2
    assert data.path.stat().st_size == size - 200
    assert "could not be committed" in mount.log()


@pytest.mark.parametrize("width", [1, 4, 8])
@pytest.mark.parametrize("chunks, deflate", [((6, 5), (0, 0)), ((6, 5), (4, 4)), ((2, 5), (0, 4))])
def test_a_layout_message_keeps_its_order(mounts, tmp_path, width, chunks, deflate):
    """That of version 22 of the RFC has the index before the composition."""
    array = np.arange(30, dtype="<u2").reshape(6, 5)
    path = tmp_path / "a.h5"
    sparse_files.make(path, array, array % 3 == 0, chunks, deflate=deflate, offset_size_width=width)
    mount = mounts(path, "rw")
    assert (mount / "sparse/frames/0.raw").read_bytes() == np.where(array % 3 == 0, array, 0).tobytes()
    (mount / "sparse/frames/0.raw").write_bytes((array + 7).tobytes())
    os.truncate(mount / "sparse/frames/0.raw", 40)
    mount.unmount()
    content = path.read_bytes()
    dims = bytes([3, 1, *chunks, 2])
    at = content.index(dims, content.index(b"OHDR", content.index(b"OHDR") + 1)) + len(dims)
    kind = 1 if chunks == (6, 5) else 3
    parameters = (2 + 8 + (24 if any(deflate) else 0)) if kind == 1 else 1
    assert content[at] == kind
    behind = at + 1 + parameters + 8
    assert content[behind:behind + width + 3] == (8).to_bytes(width, "little") + bytes([2, 1, 0])
    again = mounts(path)
    assert (again / "sparse/frames/0.raw").read_bytes() == (array + 7).tobytes()[:40] + bytes(20)
