"""A short run of the model test (model.py) in each way of mounting; model.py itself runs for long. And
what it found, in fewer words."""
import concurrent.futures
import contextlib
import ctypes
import errno
import mmap
import multiprocessing
import os
import random
import threading
import time

import h5py
import numpy as np
import pytest

import model
from conftest import START_SECONDS

SECONDS = 5
LIBC = ctypes.CDLL(None, use_errno=True)
LIBC.mmap.restype = ctypes.c_void_p
LIBC.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t] + [ctypes.c_int] * 3 + [ctypes.c_long]
LIBC.munmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t]
LIBC.msync.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
MS_SYNC = 4


@pytest.mark.parametrize("options", [(), ("direct_io",), ("sparsify", "cache_size=256K"),
                                     ("commit_interval=1", "threads=8")], ids=lambda o: ",".join(o) or "default")
def test_processes(tmp_path, options):
    assert model.run(tmp_path, 1, SECONDS, rounds=2, workers=4, options=options) > 0


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


@pytest.fixture
def points(mounts, tmp_path):
    """The folder of a sparse dataset of 9 frames; all elements of frame 3 are defined."""
    path = tmp_path / "a.h5"
    model.make_file(path)
    folder = mounts(path, "rw", expect_log=True) / "points"
    (folder / "frames/3.raw").write_bytes(b"ab" * 2400)
    return folder


def end_while_another_begins(path, begin):
    """Truncates and closes a file. The kernel tells that it was closed for good when another thread has
    opened it, or waits in doing so: a map keeps it until then."""
    fd = os.open(path, os.O_RDWR | os.O_TRUNC)
    area = LIBC.mmap(None, mmap.PAGESIZE, mmap.PROT_READ, mmap.MAP_PRIVATE, fd, 0)
    assert area != ctypes.c_void_p(-1).value
    os.close(fd)
    thread = None

    def run():
        nonlocal thread
        thread = threading.get_native_id()
        return begin(path)

    with concurrent.futures.ThreadPoolExecutor(1) as pool:
        done = pool.submit(run)
        try:
            deadline = time.monotonic() + START_SECONDS
            while not done.done() and not is_asleep_in_a_call(thread):
                assert time.monotonic() < deadline
                time.sleep(0.001)
        finally:
            LIBC.munmap(area, mmap.PAGESIZE)
        return done.result()


def is_asleep_in_a_call(thread):
    """A call that names a file at a folder; the interpreter's locks do not."""
    words = open(f"/proc/self/task/{thread}/syscall").read().split() if thread else []
    return words[1:2] == [hex(-100 & 2**64 - 1)] or words[1:2] == [hex(-100 & 2**32 - 1)]


@pytest.mark.parametrize("flags", [os.O_TRUNC, 0], ids=["truncating", "not truncating"])
def test_a_truncation_comes_before_the_selection_of_the_next(points, flags):
    """Who opens N.defined when another one has truncated and closed it defines elements without
    values, however late the kernel tells that it was closed for good."""
    selection = (points / "frames/3.defined").read_bytes()

    def begin(path):
        fd = os.open(path, os.O_WRONLY | flags)
        try:
            os.write(fd, selection)
        finally:
            os.close(fd)

    path = points / "frames/3.defined"
    end_while_another_begins(path, begin)
    assert path.read_bytes() == selection
    assert (points / "frames/3.raw").read_bytes() == bytes(4800)


def test_what_is_refused_leaves_the_truncation_before_it(points):
    """That of another one, who has closed the file."""
    path = points / "npy/000003.npy"

    def begin(path):
        fd = os.open(path, os.O_WRONLY)
        try:
            with model.refused(errno.EINVAL):
                os.write(fd, b"no header at all")
        finally:
            os.close(fd)

    end_while_another_begins(path, begin)
    assert (points / "frames/3.raw").read_bytes() == bytes(4800)


def test_truncating_a_selection_by_name_counts_at_once(points):
    """Also while others have it open for writing."""
    path = points / "frames/3.defined"
    with open(points / "frames/3.raw", "rb", buffering=0) as raw, open(path, "r+b", buffering=0):
        assert os.pread(raw.fileno(), 4800, 0) == b"ab" * 2400
        with concurrent.futures.ThreadPoolExecutor(1) as another:
            another.submit(os.truncate, path, 0).result()
        assert os.pread(raw.fileno(), 4800, 0) == bytes(4800)
        assert (points / "npy/000003.npy").read_bytes()[-4800:] == bytes(4800)


PATIENCE = 5  # seconds that who looks at a file waits for who closes it at most (staged_waits.c)


def is_in_pread(thread, fd, at):
    """Whether a thread of ours sleeps in it: then the system knows the arguments of its call."""
    call = open(f"/proc/self/task/{thread}/syscall").read().split() if thread else []
    return call[1:2] == [hex(fd)] and call[4:5] == [hex(at)]


def test_more_wait_for_a_close_than_can_be_served(mounts, tmp_path):
    """They do not take the threads from others, of which the last close is one."""
    path = tmp_path / "a.h5"
    model.make_file(path)
    folder = mounts(path, "rw,threads=2") / "points"
    page, content = mmap.PAGESIZE, b"ab" * 2400
    stack = bytearray(9 * content)
    other = folder.parent / "one/frames/0.raw"
    for frame in range(9):
        (folder / f"frames/{frame}.raw").write_bytes(content)
    stack[3 * 4800:4 * 4800] = bytes(4800)
    with contextlib.ExitStack() as opened:
        views = {name: opened.enter_context(open(folder / name, "rb", buffering=0)).fileno()
                 for name in ("frames/3.raw", "stack.raw", "stack.npy")}
        for fd in views.values():
            os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_RANDOM)
        wanted = {"frames/3.raw": bytes(4800), "stack.raw": bytes(stack)}
        wanted["stack.npy"] = os.pread(views["stack.npy"], 128, 0) + wanted["stack.raw"]
        os.posix_fadvise(views["stack.npy"], 0, 0, os.POSIX_FADV_DONTNEED)
        (folder / "frames/3.raw").write_bytes(content)
        parts = [(name, at) for name in views for at in range(0, len(wanted[name]), page)]
        assert len(parts) > 20
        fd = os.open(folder / "frames/3.defined", os.O_WRONLY | os.O_TRUNC)
        another = os.dup(fd)
        os.close(fd)  # as far as anybody knows that was the last one
        threads = {}

        def read(name, at):
            threads[name, at] = threading.get_native_id()
            return os.pread(views[name], page, at)

        with concurrent.futures.ThreadPoolExecutor(len(parts)) as pool:
            began = time.monotonic()
            found = {(name, at): pool.submit(read, name, at) for name, at in parts}
            try:
                for (name, at), part in found.items():
                    while not part.done() and not is_in_pread(threads.get((name, at)), views[name], at):
                        assert time.monotonic() < began + START_SECONDS
                        time.sleep(0.001)
                assert other.read_bytes() == b"\xff" * 6300
                answered = [part for part in found if found[part].done()]
                assert not answered or time.monotonic() > began + PATIENCE
            finally:
                os.close(another)
        for name, at in parts:
            assert os.pread(views[name], page, at) == wanted[name][at:at + page], (name, at)


def read_on_and_on(folder, views, done):
    fds = [os.open(folder / view, os.O_RDONLY) for view in views]
    while not done.is_set():
        for fd, view in zip(fds, views):
            os.pread(fd, 4096, 0)
            (folder / view).read_bytes()


@pytest.mark.parametrize("options", ["rw", "rw,threads=2,commit_interval=1"])
def test_closing_a_truncated_selection_beside_readers(mounts, tmp_path, options):
    """Neither does closing wait for who waits for it, nor do they leave what was there before in the
    kernel's pages."""
    path = tmp_path / "a.h5"
    model.make_file(path)
    folder = mounts(path, options) / "points"
    views = ["frames/3.raw", "raw/000003.raw", "npy/000003.npy", "values/000003.values", "stack.raw"]
    context = multiprocessing.get_context("fork")
    done = context.Event()
    readers = [context.Process(target=read_on_and_on, args=(folder, views, done)) for _ in range(3)]
    (folder / "frames/3.raw").write_bytes(b"ab" * 2400)
    for reader in readers:
        reader.start()
    try:
        with contextlib.ExitStack() as opened:
            fds = [opened.enter_context(open(folder / view, "rb", buffering=0)).fileno()
                   for view in ("frames/3.raw", "raw/000003.raw", "npy/000003.npy")]
            for number in range(200):
                (folder / "frames/3.raw").write_bytes(b"ab" * 2400)
                os.close(os.open(folder / "frames/3.defined", os.O_WRONLY | os.O_TRUNC))
                for fd in fds:
                    assert not any(os.pread(fd, 4096, os.fstat(fd).st_size - 4096)), (number, fd)
                assert (folder / "values/000003.values").read_bytes() == b"", number
                assert not any((folder / "stack.raw").read_bytes()[3 * 4800:4 * 4800]), number
    finally:
        done.set()
        for reader in readers:
            reader.join()


def store_through_map(path, offset, content, how):
    """What writes the pages back is the call that `how` names; Python's own maps keep a descriptor,
    closing which does."""
    fd = os.open(path, os.O_RDWR)
    area = LIBC.mmap(None, len(content), mmap.PROT_READ | mmap.PROT_WRITE, mmap.MAP_SHARED, fd, offset)
    assert area != ctypes.c_void_p(-1).value
    if how == "munmap":
        os.close(fd)
    ctypes.memmove(area, content, len(content))
    if how == "msync":
        assert LIBC.msync(area, len(content), MS_SYNC) == 0
    elif how == "close":
        os.close(fd)
    elif how == "munmap":
        assert LIBC.munmap(area, len(content)) == 0
        return lambda: None

    def end():
        LIBC.munmap(area, len(content))
        if how == "msync":
            os.close(fd)

    return end


@pytest.mark.parametrize("how", ["close", "munmap", "msync"])
def test_stores_through_a_map_are_seen_through_all_views(mounts, tmp_path, how):
    """When the call has returned that writes them back, by who has the other view open already, with
    pages of it, and by who opens it."""
    path = tmp_path / "a.h5"
    page = mmap.PAGESIZE
    with h5py.File(path, "w") as file:
        file["data"] = np.zeros((4, 4 * page), "u1")
    folder = mounts(path, "rw,frame_rank=1") / "data"
    stack = folder / "stack.raw"
    chance = np.random.default_rng(1)
    with contextlib.ExitStack() as opened:
        files = {view: opened.enter_context(open(view, "rb", buffering=0)) for view in
                 [stack, *folder.glob("frames/*.raw"), *folder.glob("npy/*.npy")]}
        for number in range(3000):
            frame, first = int(chance.integers(4)), int(chance.integers(4)) * page
            mapped = [(folder / f"frames/{frame}.raw", first), (stack, frame * 4 * page + first)]
            chance.shuffle(mapped)
            others = [mapped[1], (folder / f"npy/{frame:06d}.npy", 128 + first)]
            content = bytes([1 + number % 255]) * page
            end = store_through_map(*mapped[0], content, how)
            try:
                for view, at in others:
                    assert os.pread(files[view].fileno(), page, at) == content, (number, view)
                    with open(view, "rb", buffering=0) as file:
                        assert os.pread(file.fileno(), page, at) == content, (number, view)
            finally:
                end()


def keep_writing(path, done):
    with open(path, "r+b", buffering=0) as file:
        while not done.is_set():
            os.pwrite(file.fileno(), os.urandom(64), 256)


@pytest.mark.parametrize("written", ["stack.raw", "stack.npy"])
def test_writing_a_stack_beside_others_who_write_other_frames(mounts, tmp_path, written):
    """They keep the kernel busy with what it is told of the stack, and that is no reason to tell it
    later of the frame that is written through it."""
    path = tmp_path / "a.h5"
    model.make_file(path)
    folder = mounts(path, "rw") / "entry/together"
    size = 20 * 33 * 4
    context = multiprocessing.get_context("fork")
    done = context.Event()
    writers = [context.Process(target=keep_writing, args=(folder / f"frames/{frame}.raw", done))
               for frame in (5, 6)]
    for writer in writers:
        writer.start()
    try:
        with contextlib.ExitStack() as opened:
            stack = opened.enter_context(open(folder / written, "r+b", buffering=0)).fileno()
            views = [opened.enter_context(open(folder / view, "rb", buffering=0)).fileno()
                     for view in ("frames/2.raw", "npy/000002.npy", "tiff/000002.tif")]
            head = os.fstat(stack).st_size - 8 * size
            for number in range(2000):
                for fd in views:
                    os.pread(fd, os.fstat(fd).st_size, 0)
                content = bytes([1 + number % 255]) * 32
                os.pwrite(stack, content, head + 2 * size + 64)
                for fd in views:
                    at = os.fstat(fd).st_size - size + 64
                    assert os.pread(fd, 32, at) == content, (number, fd)
    finally:
        done.set()
        for writer in writers:
            writer.join()


def keep_setting_times(path, done):
    while not done.is_set():
        os.utime(path, (random.randrange(10**9),) * 2)


@pytest.mark.parametrize("touched", ["frames/3.raw", "tiff/000003.tif"])
def test_writing_beside_one_who_sets_times(points, touched):
    """That changes nothing of what others wait for: a write is answered when the other views show it."""
    context = multiprocessing.get_context("fork")
    done = context.Event()
    other = context.Process(target=keep_setting_times, args=(points / touched, done))
    other.start()
    try:
        with open(points / "tiff/000003.tif", "r+b", buffering=0) as tiff, \
                open(points / "frames/3.raw", "rb", buffering=0) as raw:
            for number in range(2000):
                content = bytes([1 + number % 255]) * 4800
                os.pwrite(tiff.fileno(), content, os.fstat(tiff.fileno()).st_size - 4800)
                assert os.pread(raw.fileno(), 4800, 0) == content, number
    finally:
        done.set()
        other.join()


@pytest.mark.parametrize("name", ["points", "entry/large"])
def test_punching_parts_beside_a_reader(mounts, tmp_path, name):
    """The kernel clears what is punched in its own pages, which a reader may just have brought in:
    what is cut in part is zero there, too, and to everybody else."""
    path = tmp_path / "a.h5"
    model.make_file(path)
    folder = mounts(path, "rw") / name
    file = folder / "frames/0.raw"
    content = np.random.default_rng(1).integers(1, 256, file.stat().st_size).astype("u1")
    file.write_bytes(content.tobytes())
    done = threading.Event()

    def read():
        while not done.is_set():
            file.read_bytes()

    readers = [threading.Thread(target=read) for _ in range(3)]
    for reader in readers:
        reader.start()
    fd = os.open(file, os.O_RDWR)
    try:
        for number in range(600):
            model.fallocate(fd, model.FALLOC_FL_PUNCH_HOLE, 4 * number + 1, 1)
            content[4 * number + 1] = 0
            model.same(file.read_bytes(), content.tobytes(), file)
    finally:
        os.close(fd)
        done.set()
        for reader in readers:
            reader.join()
    model.same((folder / "npy/000000.npy").read_bytes()[-len(content):], content.tobytes(), "npy")


def test_punching_parts_where_holes_are_not_zero(mounts, tmp_path):
    """There nothing changes, though the kernel clears its own pages, until it is told."""
    path = tmp_path / "a.h5"
    model.make_file(path)
    file = mounts(path, "rw") / "entry/together/frames/0.raw"
    content = np.random.default_rng(1).integers(1, 256, file.stat().st_size).astype("u1").tobytes()
    file.write_bytes(content)
    with open(file, "r+b", buffering=0) as opened:
        for number in range(100):
            opened.read()
            model.fallocate(opened.fileno(), model.FALLOC_FL_PUNCH_HOLE, 4 * number + 1, 1)
    deadline = time.monotonic() + START_SECONDS
    while file.read_bytes() != content:
        assert time.monotonic() < deadline
