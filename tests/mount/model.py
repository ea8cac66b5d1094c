#!/usr/bin/python3
"""Several processes do random things to the datasets of one mounted file, through all views, and
compare what they see with a model: for each dataset the bytes of its frames and which elements are
defined, in memory that they share. After each round everything is compared, the file is unmounted,
checked, read with h5py, mounted again, and compared again.

    tests/mount/model.py --minutes 60 --seed 1        # the long run; --option direct_io and others

A process works on frames of its own most of the time, at times on any; a lock for each frame, which
only the model needs, makes sure that it knows which write came last. What happens in which order
depends on the machine, so that a seed repeats the operations of each process, not their interleaving.
A failure prints the seed and the last operations of all processes."""
import argparse
import collections
import contextlib
import ctypes
import errno
import faulthandler
import json
import math
import mmap
import multiprocessing
import os
import pathlib
import random
import subprocess
import sys
import tempfile
import time
import traceback

import h5py
import numpy as np

from compare import has_no_shared_maps, selected
from conftest import BUILD, Mount
from read_again import read_again

PAGE = mmap.PAGESIZE
FALLOC_FL_KEEP_SIZE, FALLOC_FL_PUNCH_HOLE, FALLOC_FL_ZERO_RANGE = 1, 2, 16
LOGGED = 40  # operations of each process that a failure shows
KEPT_OPEN = 12  # files, by each process
FRAME_VIEWS = {"frames": "{}.raw", "raw": "{:06d}.raw", "npy": "{:06d}.npy", "tiff": "{:06d}.tif"}
HANG_SECONDS = 300  # after the end of a round: only what hangs takes so long

libc = ctypes.CDLL(None, use_errno=True)
libc.fallocate.argtypes = [ctypes.c_int, ctypes.c_int, ctypes.c_long, ctypes.c_long]


def fallocate(fd, mode, offset, n):
    if libc.fallocate(fd, mode | FALLOC_FL_KEEP_SIZE, offset, n):
        raise OSError(ctypes.get_errno(), "fallocate")


@contextlib.contextmanager
def refused(*numbers):
    """The operation inside must fail with one of these errors. An ordinary user may be stopped before by
    the mode bits, which say that it cannot be."""
    try:
        yield
    except OSError as error:
        assert error.errno in numbers or (error.errno == errno.EACCES and os.geteuid() != 0), error
    else:
        raise AssertionError("nothing was refused")


# ---- The datasets ----

Kind = collections.namedtuple("Kind", "path shape most chunks dtype fill sparse filters")
KINDS = [
    Kind("points", (9, 40, 60), 14, (1, 16, 16), "<u2", 0, True, ["selection:deflate", "values:deflate=1"]),
    Kind("entry/together", (8, 20, 33), 12, (3, 20, 33), ">f4", -1.5, True, ["values:shuffle",
                                                                         "values:deflate"]),
    Kind("entry/large", (4, 300, 400), 4, (1, 100, 128), "<i4", 0, True, ["values:fletcher32"]),
    Kind("one", (70, 90), 1, (32, 32), "u1", 255, True, []),
    Kind("dense", (6, 30, 50), 10, (1, 16, 50), "<u2", 7, False, {"compression": "gzip"}),
    Kind("entry/plain", (5, 25, 41), 5, None, "<f8", 0, False, {}),
]


def make_file(path):
    with h5py.File(path, "w", libver="latest") as file:
        for kind in KINDS:
            if not kind.sparse:
                growing = {"maxshape": (None, *kind.shape[1:])} if kind.most > kind.shape[0] else {}
                data = file.create_dataset(kind.path, kind.shape, kind.dtype, chunks=kind.chunks,
                                           fillvalue=kind.fill, **growing, **kind.filters)
                data[...] = kind.fill
    for kind in KINDS:
        if kind.sparse:
            join = lambda numbers: ",".join(map(str, numbers))
            grows = len(kind.shape) == 3 and kind.most > kind.shape[0]
            most = ["--maxdims", join(("inf", *kind.shape[1:]))] if grows else []
            filters = [word for text in kind.filters for word in ("--filter", text)]
            subprocess.run([BUILD / "sparsectl", "create", path, "/" + kind.path, "--dims",
                            join(kind.shape), "--chunk", join(kind.chunks), "--dtype", kind.dtype,
                            "--fill", str(kind.fill), *most, *filters], check=True)


def shared_array(shape, dtype):
    n = max(1, math.prod(shape) * np.dtype(dtype).itemsize)
    return np.frombuffer(mmap.mmap(-1, n), dtype, math.prod(shape)).reshape(shape)


CLEARED_SECONDS = HANG_SECONDS / 2  # most often a moment; what takes longer is said before the process seems to hang


class Dataset:
    """What one dataset must contain. Positions are bytes of a frame's dense view, without a header."""

    def __init__(self, kind, sparsify):
        self.kind = kind
        self.dims = kind.shape[-2:]
        self.item = np.dtype(kind.dtype).itemsize
        self.elements = math.prod(self.dims)
        self.bytes = self.elements * self.item
        self.fill = np.frombuffer(np.array(kind.fill, kind.dtype).tobytes(), "u1")
        self.sparsify = sparsify and kind.sparse
        self.content = shared_array((kind.most, self.elements, self.item), "u1")
        self.content[...] = self.fill
        self.cleared = shared_array((kind.most,), "f8")  # until when the kernel may show zeros that are none
        self.defined = shared_array((kind.most, self.elements), "?")
        self.defined[...] = not kind.sparse
        self.count = multiprocessing.Value("q", kind.shape[0] if len(kind.shape) == 3 else 1)
        self.locks = [multiprocessing.Lock() for _ in range(kind.most)]
        self.extending = multiprocessing.RLock()

    @property
    def n(self):
        return self.count.value

    @property
    def grows(self):
        return self.kind.most > self.kind.shape[0] and len(self.kind.shape) == 3

    def flat(self, frame):
        return self.content[frame].reshape(-1)

    def touched(self, start, end):
        return slice(start // self.item, -(-end // self.item))

    def write(self, frame, start, data):
        end = start + len(data)
        if start == end:
            return
        self.flat(frame)[start:end] = np.frombuffer(data, "u1")
        self.define(frame, start, end, self.sparsify)

    def define(self, frame, start, end, sparsify):
        part = self.touched(start, end)
        self.defined[frame, part] = True
        if sparsify:
            self.defined[frame, part] = (self.content[frame, part] != self.fill).any(axis=1)

    def erase(self, frame, start, end):
        part = slice(-(-start // self.item), end // self.item)
        self.content[frame, part] = self.fill
        self.defined[frame, part] = not self.kind.sparse

    def punch(self, frame, start, end):
        """Of elements that are cut the bytes become zero, if the fill value is."""
        first, last = -(-start // self.item) * self.item, end // self.item * self.item
        for a, b in [(start, end)] if first > last else [(start, first), (last, end)]:
            if a < b and not self.fill.any():
                self.flat(frame)[a:b] = 0
                self.define(frame, a, b, self.kind.sparse)
        self.erase(frame, start, end)

    def select(self, frame, mask):
        """Just these are defined."""
        self.content[frame, ~(mask & self.defined[frame])] = self.fill
        self.defined[frame] = mask

    def values(self, frame):
        return self.content[frame, self.defined[frame]].tobytes()


    def punched(self, frame, start, end):
        """By fallocate, which lets the kernel show zeros for a moment."""
        self.punch(frame, start, end)
        if self.fill.any():
            self.cleared[frame] = time.monotonic() + CLEARED_SECONDS

    def is_cleared(self, frames):
        return any(self.cleared[frame] > time.monotonic() for frame in frames)

    def soon(self, frames, check, *arguments):
        """What holds for these frames, unless the kernel shows such zeros, and then in a moment."""
        while self.is_cleared(frames):
            try:
                check(*arguments)
                return
            except AssertionError:
                time.sleep(0.01)
        check(*arguments)


class Model:
    def __init__(self, sparsify):
        self.datasets = [Dataset(kind, sparsify) for kind in KINDS]
        self.groups = set()  # made by the processes and still there; changed by the parent alone


# ---- What a mount must show ----


def read_file(path):
    """All of it; the size that stat shows is what there is."""
    fd = os.open(path, os.O_RDONLY)
    try:
        size = os.fstat(fd).st_size
        parts = []
        while part := os.pread(fd, 1 << 20, sum(map(len, parts))):
            parts.append(part)
        content = b"".join(parts)
        assert len(content) == size, f"{path}: {len(content)} bytes, st_size {size}"
        return content
    finally:
        os.close(fd)


def same(found, wanted, what, item=1, states=None):
    """Compares bytes, and says where they differ."""
    if bytes(found) == bytes(wanted):
        return
    found, wanted = np.frombuffer(found, "u1"), np.frombuffer(wanted, "u1")
    assert len(found) == len(wanted), f"{what}: {len(found)} bytes instead of {len(wanted)}"
    wrong = np.nonzero(found != wanted)[0]
    at = int(wrong[0])
    raise AssertionError(f"{what}: {len(wrong)} of {len(wanted)} bytes differ, first {at} (element "
                         f"{at // item}), last {wrong[-1]}: {found[at:at + 8].tobytes().hex()} instead of "
                         f"{wanted[at:at + 8].tobytes().hex()}")


def check_defined(path, dataset, frame):
    found = selected(read_file(path), dataset.dims).ravel()
    wrong = np.nonzero(found != dataset.defined[frame])[0]
    if len(wrong):
        raise AssertionError(f"{path}: {len(wrong)} elements are wrongly defined or not, first "
                             f"{wrong[0]}, which is {'' if found[wrong[0]] else 'un'}defined, last {wrong[-1]}")


def check_points(path, dataset, frame):
    with np.load(str(path)) as points:
        row = np.repeat(np.arange(dataset.dims[0]), np.diff(points["indptr"]))
        found = row * dataset.dims[1] + points["indices"]
        assert (found == np.nonzero(dataset.defined[frame])[0]).all(), f"{path}: other elements are there"
        data = points["data"]  # which is little-endian
        data = data.byteswap() if np.dtype(dataset.kind.dtype).byteorder == ">" else data
        same(data.tobytes(), dataset.values(frame), path, dataset.item)


def check_view(folder, dataset, view, frame):
    path = folder / view / FRAME_VIEWS[view].format(frame)
    same(read_file(path)[-dataset.bytes:], dataset.flat(frame).tobytes(), path, dataset.item)


def check_frame(root, dataset, frame):
    """All views of one frame."""
    folder = root / dataset.kind.path
    for view in FRAME_VIEWS:
        check_view(folder, dataset, view, frame)
    if dataset.kind.sparse:
        check_defined(folder / f"frames/{frame}.defined", dataset, frame)
        path = folder / f"values/{frame:06d}.values"
        same(read_file(path), dataset.values(frame), path)
        check_points(folder / f"npz/{frame:06d}.npz", dataset, frame)


def check_csr(folder, dataset):
    n = dataset.n
    defined = dataset.defined[:n]
    index = "<i4" if dataset.elements < 2**31 else "<i8"
    same(read_file(folder / "csr/indptr.raw"),
         np.concatenate([[0], np.cumsum(defined.sum(axis=1))]).astype("<i8").tobytes(), "indptr")
    same(read_file(folder / "csr/indices.raw"), np.nonzero(defined)[1].astype(index).tobytes(), "indices")
    same(read_file(folder / "csr/data.raw"), dataset.content[:n][defined].tobytes(), "data")


def check_stack(folder, dataset):
    n = dataset.n
    wanted = dataset.content[:n].tobytes()
    same(read_file(folder / "stack.raw"), wanted, folder / "stack.raw", dataset.item)
    shape = (n, *dataset.dims) if len(dataset.kind.shape) == 3 else dataset.dims
    loaded = np.load(folder / "stack.npy")
    assert loaded.shape == shape and loaded.dtype == np.dtype(dataset.kind.dtype)
    same(loaded.tobytes(), wanted, folder / "stack.npy", dataset.item)
    described = json.loads((folder / "dataset.json").read_text())
    assert described["dims"] == list(shape), described


def check_everything(root, model):
    for dataset in model.datasets:
        folder = root / dataset.kind.path
        n = dataset.n
        listed = sorted(name for name in os.listdir(folder / "frames") if name.endswith(".raw"))
        assert listed == sorted(f"{i}.raw" for i in range(n)), f"{folder}: {listed}"
        for frame in range(n):
            dataset.soon([frame], check_frame, root, dataset, frame)
        dataset.soon(range(n), check_stack, folder, dataset)
        dataset.cleared[...] = 0
        if dataset.kind.sparse:
            check_csr(folder, dataset)
    for group in model.groups:
        assert os.listdir(root / group) is not None


def groups_in(group, datasets):
    """The paths of all groups below; what is known to be a dataset is not opened."""
    found = set()
    for name in group:
        path = f"{group.name.rstrip('/')}/{name}"
        if path not in datasets:
            assert isinstance(group[name], h5py.Group), path
            found |= {path[1:]} | groups_in(group[name], datasets)
    return found


def check_file(path, model):
    """The file without a mount: sound, and what libhdf5 can read of it as it should be."""
    done = subprocess.run([BUILD / "sparsectl", "check", path], capture_output=True, text=True)
    assert done.returncode == 0, f"sparsectl check: {done.stdout}{done.stderr}"
    with h5py.File(path) as file:
        for dataset in model.datasets:
            if not dataset.kind.sparse:
                data = file[dataset.kind.path]
                assert data.shape == (dataset.n, *dataset.dims)
                same(data[...].tobytes(), dataset.content[:dataset.n].tobytes(), dataset.kind.path)
        found = groups_in(file, {"/" + kind.path for kind in KINDS})
        assert found == model.groups | {"entry"}, found


# ---- The processes ----


class Worker:
    """One process's random operations. Each takes the locks of the frames that it touches."""

    def __init__(self, number, workers, seed, root, model, without):
        self.number, self.workers = number, workers
        self.random = random.Random(f"{seed}/{number}")
        self.noise = np.random.default_rng([seed, number])
        self.root, self.model, self.without = root, model, without
        self.log = collections.deque(maxlen=LOGGED)
        self.open_files = collections.OrderedDict()
        self.watched = {}
        self.groups = set()
        self.groups_made = 0

    # What to do it to.

    def note(self, text):
        self.log.append(f"{time.monotonic():.6f} process {self.number}: {text}")

    def pick_dataset(self, want=lambda dataset: True):
        return self.random.choice([d for d in self.model.datasets if want(d)])

    @contextlib.contextmanager
    def frame(self, dataset):
        """A frame, mostly one of those that are this process's own, locked."""
        count = dataset.n
        own = range(self.number % count, count, self.workers)
        frame = self.random.choice(own if self.random.random() < 0.9 else range(count))
        with dataset.locks[frame]:
            yield frame
            self.watch(dataset, frame)

    def path(self, dataset, view, frame):
        return self.root / dataset.kind.path / view / FRAME_VIEWS[view].format(frame)

    def pick_view(self, *views):
        return self.random.choice(views or list(FRAME_VIEWS))

    @contextlib.contextmanager
    def opened(self, path, flags=os.O_RDWR):
        """A descriptor: of its own, or one that was kept open."""
        if self.random.random() < 0.5:
            fd = os.open(path, flags)
            try:
                yield fd
            finally:
                os.close(fd)
            return
        if path not in self.open_files:
            if len(self.open_files) >= KEPT_OPEN:
                os.close(self.open_files.popitem(last=False)[1])
            self.open_files[path] = os.open(path, flags)
        self.open_files.move_to_end(path)
        yield self.open_files[path]

    def close_files(self):
        for files in self.open_files, self.watched:
            while files:
                os.close(files.popitem()[1])

    def close_like(self, path):
        """Those that are the same file: frames/7.raw and raw/000007.raw are."""
        wanted = os.stat(path)
        for other, fd in list(self.open_files.items()):
            if os.path.samestat(os.fstat(fd), wanted):
                os.close(self.open_files.pop(other))

    def watch(self, dataset, frame):
        """What was done is seen at once also by who has had the other views open, with pages of them."""
        def compare(path):
            fd = self.watched[path]
            found = os.pread(fd, os.fstat(fd).st_size, 0)[-dataset.bytes:]
            same(found, dataset.flat(frame).tobytes(), f"{path}, which was open", dataset.item)

        if self.random.random() < 0.5:
            return
        for view in FRAME_VIEWS:
            path = self.path(dataset, view, frame)
            if path not in self.watched:
                self.watched[path] = os.open(path, os.O_RDONLY)
            dataset.soon([frame], compare, path)

    def range_of(self, size):
        """A start and an end, mostly near each other."""
        start = self.random.randrange(size)
        kind = self.random.randrange(4)
        n = self.random.randint(1, [8, 300, PAGE, size][kind])
        return start, min(size, start + n)

    def data(self, dataset, start, end):
        """Noise, the fill value, or some of both."""
        noise = self.noise.integers(0, 256, end - start, "u1")
        fill = dataset.fill[np.arange(start, end) % dataset.item]
        kind = self.random.randrange(4)
        if kind == 0:
            return fill.tobytes()
        if kind == 1:
            runs = np.repeat(self.noise.random(-(-len(noise) // 32)) < 0.7, 32)[:len(noise)]
            return np.where(runs, fill, noise).tobytes()
        return noise.tobytes()

    # Operations on a view of a frame.

    def write(self):
        dataset = self.pick_dataset()
        with self.frame(dataset) as frame:
            view = self.pick_view()
            start, end = self.range_of(dataset.bytes)
            self.note(f"write {dataset.kind.path}/{view} {frame}: [{start}, {end})")
            data = self.data(dataset, start, end)
            with self.opened(self.path(dataset, view, frame)) as fd:
                head = os.fstat(fd).st_size - dataset.bytes
                assert os.pwrite(fd, data, head + start) == len(data)
            dataset.write(frame, start, data)
            if self.random.random() < 0.3:
                self.check_part(dataset, frame, start, end)

    def check_part(self, dataset, frame, start, end):
        path = self.path(dataset, self.pick_view(), frame)

        def compare():
            with self.opened(path) as fd:
                head = os.fstat(fd).st_size - dataset.bytes
                found = os.pread(fd, end - start, head + start)
            same(found, dataset.flat(frame)[start:end].tobytes(), f"{path} from {start}", dataset.item)

        dataset.soon([frame], compare)

    def copy_over(self):
        """The whole file with its header, as cp writes it; another header is refused."""
        dataset = self.pick_dataset()
        with self.frame(dataset) as frame:
            view = self.pick_view()
            self.note(f"copy over {dataset.kind.path}/{view} {frame}")
            path = self.path(dataset, view, frame)
            head = read_file(path)[:-dataset.bytes]
            data = self.data(dataset, 0, dataset.bytes)
            truncate = self.random.random() < 0.5
            with open(path, "wb" if truncate else "r+b", buffering=0) as file:
                assert file.write(head + data) == len(head + data)
            if truncate:
                dataset.erase(frame, 0, dataset.bytes)
            dataset.write(frame, 0, data)
            if head:
                with refused(errno.EINVAL), open(path, self.random.choice(["r+b", "wb"]), buffering=0) as file:
                    file.write(bytes([head[0] ^ 1]))

    def read(self):
        dataset = self.pick_dataset()
        with self.frame(dataset) as frame:
            start, end = self.range_of(dataset.bytes)
            self.note(f"read {dataset.kind.path} {frame}: [{start}, {end})")
            self.check_part(dataset, frame, start, end)

    def check(self):
        dataset = self.pick_dataset()
        with self.frame(dataset) as frame:
            self.note(f"check {dataset.kind.path} {frame}")
            dataset.soon([frame], check_frame, self.root, dataset, frame)

    def go_through(self):
        """All frames in order, as readers do of whom the next ones are decoded ahead."""
        dataset = self.pick_dataset()
        view = self.pick_view()
        self.note(f"go through {dataset.kind.path}/{view}")
        for frame in range(dataset.n):
            path = self.path(dataset, view, frame)
            with dataset.locks[frame]:
                dataset.soon([frame], lambda at=frame, of=path:
                             same(read_file(of)[-dataset.bytes:], dataset.flat(at).tobytes(), of, dataset.item))

    def glance(self):
        """A reader that waits for nobody gets all bytes of some state."""
        dataset = self.pick_dataset()
        frame = self.random.randrange(dataset.n)
        view = self.pick_view()
        self.note(f"glance {dataset.kind.path}/{view} {frame}")
        path = self.path(dataset, view, frame)
        assert len(read_file(path)) == os.stat(path).st_size

    def store(self):
        """Through a shared mapping; the pages are written as a whole."""
        dataset = self.pick_dataset()
        with self.frame(dataset) as frame:
            view = self.pick_view()
            start, end = self.range_of(dataset.bytes)
            if dataset.is_cleared([frame]):  # such zeros would be stored beside it
                dataset.soon([frame], check_view, self.root / dataset.kind.path, dataset, view, frame)
            self.note(f"store {dataset.kind.path}/{view} {frame}: [{start}, {end})")
            data = self.data(dataset, start, end)
            with self.opened(self.path(dataset, view, frame)) as fd:
                size = os.fstat(fd).st_size
                head = size - dataset.bytes
                with mmap.mmap(fd, size) as mapping:
                    same(mapping[head + start:head + end],
                         dataset.flat(frame)[start:end].tobytes(), "the mapping", dataset.item)
                    mapping[head + start:head + end] = data
                    if early := self.random.random() < 0.5:
                        mapping.flush()
                if not early:
                    os.fsync(fd)  # or other views see it soon, but who knows when
            first = max(0, (head + start) // PAGE * PAGE - head)
            last = min(dataset.bytes, -(-(head + end) // PAGE) * PAGE - head)
            dataset.write(frame, start, data)
            dataset.define(frame, first, last, dataset.sparsify)

    def truncate(self):
        dataset = self.pick_dataset()
        with self.frame(dataset) as frame:
            view = self.pick_view()
            path = self.path(dataset, view, frame)
            size = os.stat(path).st_size
            head = size - dataset.bytes
            to = self.random.choice([0, self.random.randrange(size), size - 1])
            self.note(f"truncate {dataset.kind.path}/{view} {frame} to {to}")
            before_writing = to == 0 or to < head  # then it counts when the file is written or synced
            if self.random.random() < 0.5:
                if before_writing:
                    self.close_like(path)  # or it looks like O_TRUNC of such a file
                os.truncate(path, to)
            else:
                with self.opened(path) as fd:
                    os.ftruncate(fd, to)
                    if before_writing:
                        os.fsync(fd)
            dataset.erase(frame, max(0, to - head), dataset.bytes)
            assert os.stat(path).st_size == size

    def punch(self):
        dataset = self.pick_dataset()
        with self.frame(dataset) as frame:
            view = self.pick_view()
            start, end = self.range_of(dataset.bytes)
            zero = self.random.random() < 0.3
            self.note(f"{'zero' if zero else 'punch'} {dataset.kind.path}/{view} {frame}: [{start}, {end})")
            with self.opened(self.path(dataset, view, frame)) as fd:
                head = os.fstat(fd).st_size - dataset.bytes
                fallocate(fd, FALLOC_FL_ZERO_RANGE if zero else FALLOC_FL_PUNCH_HOLE, head + start,
                          end - start)
            if zero:
                dataset.write(frame, start, bytes(end - start))
            else:
                dataset.punched(frame, start, end)

    def over_end(self):
        dataset = self.pick_dataset()
        with self.frame(dataset) as frame:
            view = self.pick_view()
            path = self.path(dataset, view, frame)
            self.note(f"write over the end of {dataset.kind.path}/{view} {frame}")
            start = dataset.bytes - self.random.randint(1, 20)
            data = self.data(dataset, start, dataset.bytes)
            with self.opened(path) as fd:
                size = os.fstat(fd).st_size
                head = size - dataset.bytes
                assert os.pwrite(fd, data + b"behind", head + start) == len(data)
                with refused(errno.EFBIG):
                    os.pwrite(fd, b"behind", size + self.random.randrange(10))
                assert os.fstat(fd).st_size == size
            dataset.write(frame, start, data)

    # Operations on what is defined.

    def random_space(self, dims):
        """A dataspace with a selection, and which elements that is."""
        space = h5py.h5s.create_simple(dims)
        mask = np.zeros(dims, bool)
        kind = self.random.choice(["all", "none", "boxes", "boxes", "points", "points"])
        if kind == "all":
            mask[...] = True
        if kind in ("none", "boxes"):
            space.select_none()
        for _ in range(self.random.randint(1, 12) if kind == "boxes" else 0):
            first = [self.random.randrange(n) for n in dims]
            count = [self.random.randint(1, n - a) for n, a in zip(dims, first)]
            space.select_hyperslab(tuple(first), (1, 1), block=tuple(count), op=h5py.h5s.SELECT_OR)
            mask[tuple(slice(a, a + c) for a, c in zip(first, count))] = True
        if kind == "points":
            points = self.noise.integers(0, dims, (self.random.randint(1, 200), 2))
            space.select_elements(points.astype("u8"))
            mask[tuple(points.T)] = True
        return space.encode(), mask.ravel()

    def write_defined(self):
        dataset = self.pick_dataset(lambda d: d.kind.sparse)
        with self.frame(dataset) as frame:
            path = self.root / dataset.kind.path / f"frames/{frame}.defined"
            encoded, mask = self.random_space(dataset.dims)
            self.note(f"write {dataset.kind.path}/frames/{frame}.defined: {mask.sum()} elements")
            fd = os.open(path, os.O_WRONLY | os.O_TRUNC)
            try:
                half = self.random.randrange(len(encoded))
                os.write(fd, encoded[:half])
                os.write(fd, encoded[half:])
                if self.random.random() < 0.5:
                    os.fsync(fd)
            finally:
                os.close(fd)
            dataset.select(frame, mask)
            check_defined(path, dataset, frame)

    def write_points(self):
        """A list of elements and values, as scipy.sparse has them, by rows or in any order."""
        dataset = self.pick_dataset(lambda d: d.kind.sparse)
        with self.frame(dataset) as frame:
            _, mask = self.random_space(dataset.dims)
            n = int(mask.sum())
            path = self.root / dataset.kind.path / f"npz/{frame:06d}.npz"
            self.note(f"write {path}: {n} elements")
            values = np.frombuffer(self.data(dataset, 0, dataset.bytes), dataset.kind.dtype)[mask]
            row, column = np.nonzero(mask.reshape(dataset.dims))
            common = {"shape": dataset.dims, "data": values}
            if self.random.random() < 0.5:
                order = self.noise.permutation(n)
                parts = {"row": row[order], "col": column[order], "format": b"coo", **common, "data": values[order]}
            else:
                ends = np.concatenate([[0], np.cumsum(np.bincount(row, minlength=dataset.dims[0]))])
                parts = {"indices": column, "indptr": ends, "format": b"csr", **common}
            self.random.choice([np.savez, np.savez_compressed])(str(path), **parts)
            dataset.erase(frame, 0, dataset.bytes)
            dataset.content[frame, mask] = np.frombuffer(values.tobytes(), "u1").reshape(n, dataset.item)
            dataset.defined[frame] = mask
            check_points(path, dataset, frame)

    def write_csr(self):
        """All frames at once, by three files in any order."""
        dataset = self.pick_dataset(lambda d: d.kind.sparse and d.bytes < 2**18)
        with dataset.extending, self.frames_between(dataset, 0, dataset.n * dataset.bytes) as frames:
            self.note(f"write {dataset.kind.path}/csr")
            masks = [self.random_space(dataset.dims)[1] for _ in frames]
            data = [np.frombuffer(self.data(dataset, 0, dataset.bytes), dataset.kind.dtype)[mask] for mask in masks]
            files = {"indptr": np.concatenate([[0], np.cumsum([mask.sum() for mask in masks])]).astype("<i8"),
                     "indices": np.concatenate([np.nonzero(mask)[0] for mask in masks]).astype("<i4"),
                     "data": np.concatenate(data).astype(dataset.kind.dtype)}  # in its byte order
            for name in self.random.sample(sorted(files), 3):
                with open(self.root / dataset.kind.path / f"csr/{name}.raw", "wb", buffering=0) as file:
                    file.write(files[name].tobytes())
                    if self.random.random() < 0.3:
                        os.fsync(file.fileno())
            for (frame, _, _), mask, values in zip(frames, masks, data):
                dataset.erase(frame, 0, dataset.bytes)
                dataset.content[frame, mask] = np.frombuffer(values.tobytes(), "u1").reshape(len(values), dataset.item)
                dataset.defined[frame] = mask
            check_csr(self.root / dataset.kind.path, dataset)

    def truncate_defined(self):
        dataset = self.pick_dataset(lambda d: d.kind.sparse)
        with self.frame(dataset) as frame:
            path = self.root / dataset.kind.path / f"frames/{frame}.defined"
            self.note(f"truncate {dataset.kind.path}/frames/{frame}.defined")
            if self.random.random() < 0.5:
                os.truncate(path, 0)
            else:
                os.close(os.open(path, os.O_WRONLY | os.O_TRUNC))
            dataset.erase(frame, 0, dataset.bytes)

    def spoil_defined(self):
        """What is not an encoded selection of these dims is refused, and changes nothing."""
        dataset = self.pick_dataset()
        with self.frame(dataset) as frame:
            path = self.root / dataset.kind.path / f"frames/{frame}.defined"
            self.note(f"spoil {dataset.kind.path}/frames/{frame}.defined")
            if not dataset.kind.sparse:
                with refused(errno.EOPNOTSUPP), open(path, "wb", buffering=0) as file:
                    file.write(b"anything")
                return
            other, _ = self.random_space((dataset.dims[0] + 1, dataset.dims[1]))
            garbage = self.random.choice([b"garbage", other, self.noise.bytes(200)])
            fd = os.open(path, os.O_WRONLY | os.O_TRUNC)
            try:
                os.write(fd, garbage)
                with refused(errno.EINVAL):
                    os.fsync(fd)
            finally:
                with contextlib.suppress(OSError):
                    os.close(fd)
            check_defined(path, dataset, frame)

    # Operations on more than a frame.

    @contextlib.contextmanager
    def frames_between(self, dataset, start, end):
        """Locks the frames that a range of the stack touches."""
        frames = range(start // dataset.bytes, -(-end // dataset.bytes))
        with contextlib.ExitStack() as stack:
            for frame in frames:
                stack.enter_context(dataset.locks[frame])
            yield [(frame, max(start, frame * dataset.bytes), min(end, (frame + 1) * dataset.bytes))
                   for frame in frames]
            for frame in frames:
                self.watch(dataset, frame)

    def stack_range(self, dataset):
        """Within a frame, or over up to three."""
        size = dataset.n * dataset.bytes
        start, end = self.range_of(size)
        return start, min(end, start + 2 * dataset.bytes)

    def write_stack(self):
        dataset = self.pick_dataset()
        view = self.random.choice(["stack.raw", "stack.npy"])
        with dataset.extending:  # the header of the one says how many frames there are
            start, end = self.stack_range(dataset)
            with self.frames_between(dataset, start, end) as parts:
                self.note(f"write {dataset.kind.path}/{view}: [{start}, {end})")
                data = self.data(dataset, start, end)
                with self.opened(self.root / dataset.kind.path / view) as fd:
                    head = os.fstat(fd).st_size - dataset.n * dataset.bytes
                    assert os.pwrite(fd, data, head + start) == len(data)
                for frame, first, last in parts:
                    dataset.write(frame, first - frame * dataset.bytes,
                                  data[first - start:last - start])

    def read_stack(self):
        dataset = self.pick_dataset()
        view = self.random.choice(["stack.raw", "stack.npy"])
        with dataset.extending:
            start, end = self.stack_range(dataset)
            with self.frames_between(dataset, start, end) as parts:
                self.note(f"read {dataset.kind.path}/{view}: [{start}, {end})")
                path = self.root / dataset.kind.path / view

                def compare():
                    with self.opened(path) as fd:
                        head = os.fstat(fd).st_size - dataset.n * dataset.bytes
                        found = os.pread(fd, end - start, head + start)
                    wanted = dataset.content.reshape(-1)[start:end].tobytes()
                    same(found, wanted, f"{path} from {start}", dataset.item)

                dataset.soon([frame for frame, _, _ in parts], compare)

    def punch_stack(self):
        dataset = self.pick_dataset()
        with dataset.extending:
            start, end = self.stack_range(dataset)
            with self.frames_between(dataset, start, end) as parts:
                self.note(f"punch {dataset.kind.path}/stack.raw: [{start}, {end})")
                with self.opened(self.root / dataset.kind.path / "stack.raw") as fd:
                    fallocate(fd, FALLOC_FL_PUNCH_HOLE, start, end - start)
                for frame, first, last in parts:
                    dataset.punched(frame, first - frame * dataset.bytes, last - frame * dataset.bytes)

    def extend(self):
        """Creates a frame past the end."""
        dataset = self.pick_dataset()
        with dataset.extending:
            frame = dataset.n + self.random.randrange(2)
            view = self.pick_view()
            path = self.path(dataset, view, frame)
            self.note(f"create {dataset.kind.path}/{view} {frame}")
            if dataset.grows and frame >= dataset.kind.most:
                return
            if not dataset.grows:
                with refused(errno.EFBIG):
                    os.close(os.open(path, os.O_WRONLY | os.O_CREAT))
                return
            os.close(os.open(path, os.O_WRONLY | os.O_CREAT))
            dataset.count.value = frame + 1
            assert os.stat(path).st_size >= dataset.bytes

    def change_groups(self):
        """Makes and removes groups, which are this process's own."""
        if self.groups and self.random.random() < 0.5:
            group = self.random.choice(sorted(self.groups))
            self.note(f"rmdir {group}")
            if any(other.startswith(group + "/") for other in self.groups):
                with refused(errno.ENOTEMPTY):
                    os.rmdir(self.root / group)
                return
            os.rmdir(self.root / group)
            self.groups.remove(group)
            return
        parent = self.random.choice(["", "entry/", *(f"{group}/" for group in sorted(self.groups))])
        group = f"{parent}group {self.number}.{self.groups_made}"
        self.groups_made += 1
        self.note(f"mkdir {group}")
        os.mkdir(self.root / group)
        self.groups.add(group)
        with refused(errno.EEXIST):
            os.mkdir(self.root / group)

    def sync(self):
        dataset = self.pick_dataset()
        folder = self.root / dataset.kind.path
        path = self.random.choice([folder / "frames/0.raw", folder / "frames", self.root])
        self.note(f"fsync {path}")
        fd = os.open(path, os.O_RDONLY)
        try:
            os.fsync(fd)
        finally:
            os.close(fd)

    def forbidden(self):
        dataset = self.pick_dataset()
        path = self.path(dataset, self.pick_view(), 0)
        self.note(f"unlink and rename {path}")
        with refused(errno.EPERM):
            os.unlink(path.parent.parent / "dataset.json")
        with refused(errno.EPERM):
            os.rename(path, path.with_name("other.raw"))
        os.chmod(path, self.random.choice([0o600, os.stat(path).st_mode & 0o7777]))
        os.utime(path, (self.random.randrange(10**9),) * 2)

    def rename_over(self):
        """A temporary file becomes the frame; another header, or a byte more, is refused."""
        dataset = self.pick_dataset()
        with self.frame(dataset) as frame:
            view = self.pick_view()
            path = self.path(dataset, view, frame)
            new = path.with_name(f".{frame}.{view}.new")
            end = self.random.choice([dataset.bytes, self.random.randrange(dataset.bytes + 1)]) // dataset.item
            self.note(f"rename over {dataset.kind.path}/{view} {frame}: {end} elements")
            head = read_file(path)[:-dataset.bytes]
            data = self.data(dataset, 0, end * dataset.item)
            new.write_bytes(head + data + bytes(dataset.bytes + 1 - len(data)))
            with refused(errno.EFBIG):
                os.rename(new, path)
            if head:
                with open(new, "r+b", buffering=0) as file:
                    file.write(bytes([head[0] ^ 1]))
                    with refused(errno.EINVAL, errno.EFBIG):
                        os.rename(new, path)
                    os.pwrite(file.fileno(), head[:1], 0)
            os.truncate(new, len(head) + len(data))
            os.rename(new, path)
            dataset.erase(frame, 0, dataset.bytes)
            dataset.write(frame, 0, data)

    OPERATIONS = {"write": 30, "copy_over": 3, "rename_over": 3, "read": 12, "check": 8, "go_through": 4, "glance": 6,
                  "store": 8, "truncate": 4, "punch": 10, "over_end": 2, "write_defined": 6, "write_points": 4,
                  "write_csr": 4,
                  "truncate_defined": 2, "spoil_defined": 1, "write_stack": 8, "read_stack": 5,
                  "punch_stack": 3, "extend": 1, "change_groups": 2, "sync": 2, "forbidden": 1,
                  "close_files": 2}

    def run(self, until, failed):
        operations = {name: weight for name, weight in self.OPERATIONS.items()
                      if name not in self.without}
        names, weights = list(operations), list(operations.values())
        count = 0
        while time.monotonic() < until and not failed.is_set():
            getattr(self, self.random.choices(names, weights)[0])()
            count += 1
        self.close_files()
        return count


def run_worker(worker, until, failed, results, log_path):
    faulthandler.enable()
    try:
        count = worker.run(until, failed)
        results.put((worker.number, count, worker.groups))
    except BaseException:
        failed.set()
        results.put((worker.number, None, traceback.format_exc()))
    finally:
        log_path.write_text("\n".join(worker.log))


class Failure(AssertionError):
    pass


def run_round(directory, root, model, seed, seconds, workers, without):
    """Lets the processes work, and gives the number of operations that they did."""
    context = multiprocessing.get_context("fork")
    failed, results = context.Event(), context.Queue()
    until = time.monotonic() + seconds
    logs = [directory / f"process{number}.log" for number in range(workers)]
    processes = []
    for number, log in enumerate(logs):
        worker = Worker(number, workers, seed, root, model, without)
        process = context.Process(target=run_worker, args=(worker, until, failed, results, log))
        process.start()
        processes.append(process)
    count, errors = 0, []
    try:
        for _ in processes:
            number, done, more = results.get(timeout=seconds + HANG_SECONDS)
            if done is None:
                errors.append(f"process {number}: {more}")
            else:
                count += done
                model.groups |= more
    except Exception as error:  # queue.Empty
        errors.append(f"a process hangs: {error!r}")
    if errors:  # or those whom a dead daemon left waiting could not even be killed
        subprocess.run(["umount", "-i", "-f", root], check=False, stderr=subprocess.DEVNULL)
    for process in processes:
        process.join(1 if errors else HANG_SECONDS)
        process.kill()
        process.join()
    if errors:
        last = sorted(line for log in logs if log.exists() for line in log.read_text().splitlines())
        raise Failure("\n".join([*errors, "last operations:", *last]))
    return count


def run(directory, seed, seconds, *, rounds=1, workers=4, options=(), without=(), environment=None):
    """Rounds of `seconds` in a file in this directory. Gives the number of operations; raises Failure."""
    path = directory / "model.h5"
    make_file(path)
    model = Model("sparsify" in options)
    count = 0
    try:
        for number in range(rounds):
            mount = Mount(path, directory / "mnt", "rw", *options, log="warning", environment=environment)
            try:
                check_everything(mount.root, model)
                unmapped = ("store",) if has_no_shared_maps(mount.root / KINDS[0].path / "stack.raw") else ()
                count += run_round(directory, mount.root, model, seed * 1000 + number, seconds, workers,
                                   (*without, *unmapped))
                check_everything(mount.root, model)
                mount.unmount()
            finally:
                mount.destroy()
            assert "Sanitizer" not in mount.log() and "runtime error" not in mount.log(), mount.log()
            check_file(path, model)
            remove_groups(path, model)
        mount = Mount(path, directory / "mnt", "ro")
        try:
            check_everything(mount.root, model)
            mount.unmount()
        finally:
            mount.destroy()
        read_again(directory)
    except BaseException as error:
        log = directory / "mnt.log"
        said = log.read_text(errors="replace")[-4000:] if log.exists() else ""
        raise Failure(f"seed {seed}, options {list(options)}, {workers} processes: {error}\n"
                      f"the daemon said: {said}") from error
    return count


def remove_groups(path, model):
    """The processes of the next round begin without groups."""
    with h5py.File(path, "r+", libver="latest") as file:
        for group in sorted(model.groups, reverse=True):
            del file[group]
    model.groups.clear()


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--minutes", type=float, default=1)
    parser.add_argument("--seed", type=int, default=int(time.time()))
    parser.add_argument("--processes", type=int, default=4)
    parser.add_argument("--round", type=float, default=20, metavar="SECONDS")
    parser.add_argument("--option", action="append", metavar="OPTION",
                        help="of the mount; without any, rounds differ in them")
    parser.add_argument("--without", action="append", default=[], choices=Worker.OPERATIONS,
                        help="leave out an operation")
    arguments = parser.parse_args()
    ways = [tuple(arguments.option)] if arguments.option else \
        [(), ("direct_io",), ("cache_size=256K",), ("sparsify",), ("commit_interval=1", "threads=8"),
         ("direct_io", "sparsify", "cache_size=256K")]
    end = time.monotonic() + 60 * arguments.minutes
    number = total = 0
    while time.monotonic() < end:
        with tempfile.TemporaryDirectory(prefix="sparsefs-model-") as directory:
            options = ways[number % len(ways)]
            seed = arguments.seed + number
            print(f"seed {seed}, options {list(options)}", flush=True)
            try:
                total += run(pathlib.Path(directory), seed, arguments.round, rounds=3,
                             workers=arguments.processes, options=options,
                             without=tuple(arguments.without))
            except Failure as failure:
                sys.exit(str(failure))
        number += 1
    print(f"{total} operations, all as the model has it")


if __name__ == "__main__":
    main()
