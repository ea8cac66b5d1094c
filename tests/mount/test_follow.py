"""Mounts that follow a file while another process writes it. What a frame must be is told by its
number and generation (grow.c), so that every byte that was read can be checked whenever it was read.

SPARSEFS_FOLLOW_SECONDS=300 pytest -rP test_follow.py   for minutes instead of seconds, with figures"""
import concurrent.futures
import contextlib
import errno
import fcntl
import itertools
import json
import math
import os
import re
import shutil
import socket
import subprocess
import sys
import threading
import time

import h5py
import numpy as np
import pytest

import silent_fuse
from conftest import BUILD, START_SECONDS, is_mounted
from test_worker import workers

GROW = BUILD / "tests/mount/grow"
SPARSECTL = BUILD / "sparsectl"
SECONDS = float(os.environ.get("SPARSEFS_FOLLOW_SECONDS", 8))
SIDE = 32
BYTES = SIDE * SIDE * 2
READERS = 4
WAIT = 300  # seconds, for what happens within one on an idle machine


def expected(number, generation):
    i = np.arange(SIDE * SIDE, dtype=np.int64)
    values = (7 * number + 13 * generation + 31 * i) % 251
    values[values % 3 == 0] = 0
    values[0], values[1] = (number + 1) % 65536, generation % 65536
    return values.astype("<u2")


def check_frame(content, number, may_be_erased=True):
    assert len(content) == BYTES
    frame = np.frombuffer(content, "<u2")
    if not frame.any():
        assert may_be_erased and number % 5 == 4, f"frame {number} is empty"
        return 0
    generation = int(frame[1])
    assert generation > 0 and (frame == expected(number, generation)).all(), \
        f"frame {number} is torn: generation {generation}, {np.flatnonzero(frame != expected(number, generation))[:8]}"
    return generation


class Reader(threading.Thread):
    """Reads frames that are there, above all the last ones, and counts them; never may there be
    fewer than before, nor a frame that is older than it was."""

    may_be_empty = False

    def __init__(self, mount, seed, datasets=("plain", "tall")):
        super().__init__(daemon=True)
        self.mount, self.datasets = mount, datasets
        self.random = np.random.default_rng(seed)
        self.failure = None
        self.reads = self.last = 0
        self.stops = threading.Event()

    def run(self):
        frames = dict.fromkeys(self.datasets, 0)
        try:
            while not self.stops.is_set():
                for name in self.datasets:
                    frames[name] = self.look(name, frames[name])
                self.last = min(frames.values())
        except BaseException as failure:  # told by the thread that waits
            self.failure = failure

    def count(self, name):
        way = self.random.integers(20)
        if way == 2:
            os.statvfs(self.mount.root)
        if way == 0:
            return json.loads((self.mount / name / "dataset.json").read_text())["frames"]
        if way == 1:
            return sum(n.endswith(".raw") for n in os.listdir(self.mount / name / "frames"))
        return os.stat(self.mount / name / "stack.raw").st_size // BYTES

    def look(self, name, before):
        n = self.count(name)
        assert n >= before, f"{name}: {n} frames, {before} before"
        for _ in range(5 if n else 0):
            back = int(self.random.integers(1, 60))
            number = n - back if n >= back else n - 1
            with open(self.mount / name / f"frames/{number}.raw", "rb", buffering=0) as file:
                self.check(file.read(BYTES + 1), number)
            self.reads += 1
        if n:
            with open(self.mount / name / "stack.raw", "rb", buffering=0) as stack:
                self.check(os.pread(stack.fileno(), BYTES, (n - 1) * BYTES), n - 1)
        return n

    def check(self, content, number):
        if not self.may_be_empty or any(content):
            check_frame(content, number)


def read_for(seconds, readers, enough):
    """Lets them read so long, and until that is enough."""
    for reader in readers:
        reader.start()
    end = time.monotonic() + seconds
    try:
        wait_for(lambda: any(r.failure for r in readers) or
                 (time.monotonic() >= end and all(r.reads > 0 for r in readers) and enough()), seconds + WAIT)
    finally:
        for reader in readers:
            reader.stops.set()
    for reader in readers:
        reader.join(WAIT)
        assert not reader.is_alive(), "a reader hangs"
    for reader in readers:
        if reader.failure:
            raise reader.failure
    print(f"{sum(r.reads for r in readers)} frames read and checked, of {[r.last for r in readers]}")


def readers_of(mount):
    return [Reader(mount, seed) for seed in range(READERS)]


def wait_for(condition, seconds=WAIT):
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "it does not come"
        time.sleep(0.02)


def frames_of(mount, name):
    return os.stat(mount / name / "stack.raw").st_size // BYTES


class Grow:
    """A running writer; `committed` is what it has said last."""

    def __init__(self, path, *arguments):
        self.process = subprocess.Popen([GROW, path, *map(str, arguments)], text=True,
                                        stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        self.committed = 0
        self.thread = threading.Thread(target=self.listen)
        self.thread.start()

    def listen(self):
        for line in self.process.stdout:
            self.committed = int(line)

    def wait(self, seconds=600):
        assert self.process.wait(seconds) == 0, self.process.stderr.read()
        self.thread.join()

    def kill(self):
        self.process.kill()
        self.process.wait()
        self.thread.join()


@pytest.fixture
def grow():
    running = []

    def start(*arguments):
        running.append(Grow(*arguments))
        return running[-1]

    yield start
    for writer in running:
        writer.kill()


def make(path):
    """A file with no frames yet."""
    subprocess.run([GROW, path, "0"], check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    return path


@pytest.mark.parametrize("options", ["follow=0.2", "follow=0.2,direct_io", "follow=0.05,cache_size=64K"])
def test_library_at_full_speed(tmp_path, mounts, grow, options):
    path = make(tmp_path / "a.h5")
    mount = mounts(path, options)
    writer = grow(path, 1 << 20, 3)
    read_for(SECONDS, readers_of(mount), lambda: frames_of(mount, "plain") > 100)
    assert writer.process.poll() is None, writer.process.stderr.read()


def test_everything_that_was_committed_comes(tmp_path, mounts, grow):
    path = make(tmp_path / "a.h5")
    mount = mounts(path, "follow=0.1")
    assert frames_of(mount, "plain") == 0 and not os.listdir(mount / "plain/frames")
    writer = grow(path, 300, 1)
    read_for(0, readers_of(mount), lambda: writer.process.poll() is not None and writer.committed == 300)
    writer.wait()
    wait_for(lambda: frames_of(mount, "tall") == 300)
    for name in ("plain", "tall"):
        assert len(os.listdir(mount / name / "raw")) == 300
        assert os.stat(mount / name / "npy/000299.npy").st_size == 128 + BYTES
        for number in range(300):
            check_frame((mount / name / f"frames/{number}.raw").read_bytes(), number)
        generations = [check_frame((mount / name / f"raw/{n:06}.raw").read_bytes(), n) for n in range(300)]
        assert max(generations) > 1


@pytest.mark.parametrize("seconds", [0.2, 1.5])
def test_every_commit_is_seen(tmp_path, mounts, grow, seconds):
    path = make(tmp_path / "a.h5")
    mount = mounts(path, f"follow={seconds}")
    writer = grow(path, 12, 1, 300_000)
    while writer.process.poll() is None:
        committed = writer.committed
        wait_for(lambda: frames_of(mount, "plain") >= committed)
        time.sleep(0.05)
    writer.wait()


def test_readers_that_keep_a_file_open(tmp_path, mounts, grow):
    """What `tail -f` does: fstat, and read on where it has stopped."""
    path = make(tmp_path / "a.h5")
    mount = mounts(path, "follow=0.1")
    with open(mount / "plain/stack.raw", "rb", buffering=0) as stack:
        writer = grow(path, 60, 2, 20_000)
        content = b""
        deadline = time.monotonic() + WAIT
        while len(content) < 60 * BYTES:
            assert time.monotonic() < deadline
            if os.fstat(stack.fileno()).st_size > len(content):
                content += stack.read(1 << 20)
            time.sleep(0.02)
    for number in range(60):
        check_frame(content[number * BYTES:(number + 1) * BYTES], number)
    writer.wait()


def test_a_frame_that_is_written_again(tmp_path, mounts):
    """A file that stays open, a mapping of it after a stat, and the selection show the new content."""
    path = make(tmp_path / "a.h5")
    subprocess.run([GROW, path, "3"], check=True, capture_output=True)
    writer = mounts(path, "rw,commit_interval=0", log="warning")
    mount = mounts(path, "follow=0.1")
    with open(mount / "plain/frames/1.raw", "rb", buffering=0) as frame:
        before = frame.read(BYTES)
        check_frame(before, 1)
        mapped = np.memmap(mount / "plain/frames/1.raw", "<u2", mode="r")
        for generation in range(5, 12):
            content = expected(1, generation).tobytes()
            with open(writer / "plain/frames/1.raw", "r+b", buffering=0) as file:
                file.write(content)
                assert os.pread(frame.fileno(), BYTES, 0) != content, "not committed"
                os.fsync(file.fileno())
            wait_for(lambda: (mount / "plain/raw/000001.raw").read_bytes() == content)
            if generation % 2:
                os.stat(mount / "plain/frames/1.raw")
            else:
                os.fstat(frame.fileno())
            assert mapped.tobytes() == content
            assert os.pread(frame.fileno(), BYTES, 0) == content
        with open(writer / "plain/frames/1.raw", "r+b", buffering=0) as file:
            file.truncate(0)
            os.fsync(file.fileno())
        wait_for(lambda: not any(os.pread(frame.fileno(), BYTES, 0)))
        wait_for(lambda: json.loads((mount / "plain/dataset.json").read_text())
                 == json.loads((writer / "plain/dataset.json").read_text()))
        assert os.stat(mount / "plain/frames/1.raw").st_blocks == 0


def test_a_file_from_a_host_whose_clock_is_ahead(tmp_path, mounts):
    """The kernel's pages are old for each state, also before our clock has come to the file's time."""
    path = tmp_path / "a.h5"

    def commit(value):
        with h5py.File(path, "a") as file:
            file.require_dataset("c", (4, 64, 64), "<i4")[...] = value
        os.utime(path, (time.time() + 1000,) * 2)

    def shown(name):
        return set(np.fromfile(mount / "c" / name, "<i4").tolist())

    commit(1)
    mount = mounts(path, "follow=0.1")
    assert shown("stack.raw") == shown("frames/1.raw") == {1}
    for value in range(2, 5):
        before = os.stat(mount / "c/stack.raw").st_mtime_ns
        commit(value)
        wait_for(lambda: shown("stack.raw") == {value}, 10)
        assert shown("frames/1.raw") == {value}
        assert os.stat(mount / "c/stack.raw").st_mtime_ns > before


def test_a_change_within_the_second_of_the_last(tmp_path, mounts):
    """On file systems whose times have seconds only."""
    path = tmp_path / "a.h5"
    with h5py.File(path, "w") as file:
        file["c"] = np.full((4, 64, 64), 1, "<i4")
        at = file["c"].id.get_offset()
    second = (int(time.time()),) * 2
    os.utime(path, second)
    mount = mounts(path, "follow=0.1")

    def shown():
        return set(np.fromfile(mount / "c/stack.raw", "<i4").tolist())

    assert shown() == {1}
    with open(path, "r+b", buffering=0) as file:
        file.seek(at)
        file.write(np.full((4, 64, 64), 2, "<i4").tobytes())
    os.utime(path, second)
    wait_for(lambda: shown() == {2}, 10)


def test_a_mount_that_writes(tmp_path, mounts):
    """Frames come one by one from cp; some are written again while they are read."""
    path = make(tmp_path / "a.h5")
    writer = mounts(path, "rw,commit_interval=1", log="warning")
    mount = mounts(path, "follow=0.1")
    stops = threading.Event()
    failure = []

    def write():
        try:
            number = 0
            while not stops.is_set():
                for name in ("plain", "tall"):
                    (writer / name / f"frames/{number}.raw").write_bytes(expected(number, 1).tobytes())
                again = number // 2
                (writer / "plain" / f"frames/{again}.raw").write_bytes(expected(again, number + 2).tobytes())
                number += 1
                os.sync() if number % 50 == 0 else None
                if number % 3 == 0:
                    fd = os.open(writer / "plain", os.O_RDONLY)
                    os.fsync(fd)
                    os.close(fd)
        except BaseException as error:
            failure.append(error)

    thread = threading.Thread(target=write)
    thread.start()
    try:
        # write_bytes truncates first: between that and the writing a commit may come.
        Reader.may_be_empty = True
        read_for(SECONDS / 2, readers_of(mount), lambda: failure or frames_of(mount, "plain") > 3)
    finally:
        Reader.may_be_empty = False
        stops.set()
        thread.join()
    assert not failure


ROWS, COLUMNS = 64, 512
WHOLE = np.arange(1, ROWS * COLUMNS + 1, dtype="<u2").tobytes()
HALF = WHOLE[:len(WHOLE) // 2]


def make_frames(path, kind):
    """A dataset that grows, and one to write to so that there is something to commit."""
    frames, rows = {"sparse": (1, 16), "sparse, frames share chunks": (5, 16), "dense": (1, 16)}[kind]
    if kind == "dense":
        with h5py.File(path, "w") as file:
            file.create_dataset("data", (0, ROWS, COLUMNS), "<u2", maxshape=(None, ROWS, COLUMNS),
                                chunks=(frames, rows, COLUMNS), compression=1)
    else:
        subprocess.run([SPARSECTL, "create", path, "/data", "--dims", f"0,{ROWS},{COLUMNS}", "--maxdims",
                        f"inf,{ROWS},{COLUMNS}", "--chunk", f"{frames},{rows},{COLUMNS}", "--dtype", "uint16",
                        "--filter", "values:deflate=1"], check=True)
    subprocess.run([SPARSECTL, "create", path, "/other", "--dims", "1,64", "--dtype", "uint64"], check=True)
    return path


class Watched:
    """A mount that writes, and one that follows it."""

    def __init__(self, mounts, path, options):
        self.writer = mounts(path, "rw," + options, log="warning")
        self.watcher = mounts(path, "follow=0.05", log="warning")
        self.number = 0

    def commits(self):
        return json.loads((self.writer / ".sparsefs/stats.json").read_text())["store_commits"]

    def write_elsewhere(self, sync=False):
        """And waits until a commit has brought it to the watcher."""
        before = self.commits()
        self.number += 1
        number = self.number.to_bytes(8, "little")
        with open(self.writer / "other/frames/0.raw", "r+b", buffering=0) as file:
            file.write(number)
            if sync:
                os.fsync(file.fileno())
        wait_for(lambda: self.commits() > before)
        wait_for(lambda: (self.watcher / "other/frames/0.raw").read_bytes()[:8] == number)

    def wait_for_commit(self):
        """Of two that come by time one has begun after this."""
        self.write_elsewhere()
        self.write_elsewhere()

    def sync(self, name=""):
        fd = os.open(self.writer / name, os.O_RDONLY)
        os.fsync(fd)
        os.close(fd)

    def frame(self, number):
        return self.writer / f"data/frames/{number}.raw"

    def look(self):
        """The frames that the watcher shows."""
        folder = self.watcher / "data/frames"
        return [(folder / f"{i}.raw").read_bytes() for i in range(sum(n.endswith(".raw") for n in os.listdir(folder)))]


KINDS = ["sparse", "sparse, frames share chunks", "dense"]
INTERVAL = 4  # seconds
LEFT_OUT = 11 * INTERVAL  # for as long at least: the twelfth commit by time has a frame that is open as it is


def is_seen_when_it_is_closed(watched, commit, number, left_out):
    """A frame: commits come between its making, the halves of its writing, and its end. False: the machine is so
    slow that it may have been seen before that."""
    before = time.monotonic()
    with open(watched.frame(number), "wb", buffering=0) as file:
        shown = []
        for half in b"", HALF:
            file.write(half)
            commit(watched)
            shown.append(watched.look())
        in_time = time.monotonic() - before < left_out
        assert shown == [[WHOLE] * number] * 2 or not in_time
        assert watched.frame(number).read_bytes() == HALF + bytes(len(WHOLE) - len(HALF))
        file.write(WHOLE[len(HALF):])
    commit(watched)
    wait_for(lambda: watched.look() == [WHOLE] * (number + 1))
    return in_time


def see_frames_when_they_are_closed(watched, commit, n, left_out=math.inf):
    watched.frame(0).write_bytes(WHOLE)
    watched.sync()
    wait_for(lambda: watched.look() == [WHOLE])
    numbers = itertools.count(1)
    for _ in range(n):
        while not is_seen_when_it_is_closed(watched, commit, next(numbers), left_out):
            pass


def unmount_and_check(watched, path):
    watched.watcher.unmount()
    watched.writer.unmount()
    assert subprocess.run([SPARSECTL, "check", path], stdout=subprocess.DEVNULL).returncode == 0


@pytest.mark.parametrize("kind", KINDS)
def test_a_frame_is_seen_when_it_is_closed(tmp_path, mounts, kind):
    def commit(watched):
        watched.write_elsewhere(sync=True)
        watched.sync()

    path = make_frames(tmp_path / "a.h5", kind)
    watched = Watched(mounts, path, "commit_interval=0")
    see_frames_when_they_are_closed(watched, commit, 3)
    unmount_and_check(watched, path)


def test_frames_that_are_closed_are_seen_after_a_while(tmp_path, mounts):
    """Commits by time: three files wait for theirs together."""
    paths = [make_frames(tmp_path / f"{i}.h5", kind) for i, kind in enumerate(KINDS)]
    watched = [Watched(mounts, path, f"commit_interval={INTERVAL}") for path in paths]
    with concurrent.futures.ThreadPoolExecutor(len(paths)) as threads:
        list(threads.map(lambda one: see_frames_when_they_are_closed(one, Watched.wait_for_commit, 1, LEFT_OUT),
                         watched))
    for one, path in zip(watched, paths):
        unmount_and_check(one, path)


@pytest.mark.parametrize("kind", KINDS)
def test_a_frame_that_is_synced_before_it_is_whole(tmp_path, mounts, kind):
    """What fsync has promised is there, as it is then, and nothing of the others that are open."""
    watched = Watched(mounts, make_frames(tmp_path / "a.h5", kind), "commit_interval=0")
    with open(watched.frame(0), "wb", buffering=0) as first, open(watched.frame(1), "wb", buffering=0) as second:
        first.write(HALF)
        second.write(HALF)
        os.fsync(second.fileno())
        half = HALF + bytes(len(WHOLE) - len(HALF))
        wait_for(lambda: watched.look() == [bytes(len(WHOLE)), half])
        first.write(WHOLE[len(HALF):])
        second.write(WHOLE[len(HALF):])
        watched.sync()
        wait_for(lambda: watched.look() == [bytes(len(WHOLE)), WHOLE])
    watched.sync()
    wait_for(lambda: watched.look() == [WHOLE, WHOLE])


def test_frames_that_are_closed_out_of_order(tmp_path, mounts):
    """A commit by time leaves out what lies behind one that is open still; one that somebody has asked
    for does not, as it has to hold all that was closed."""
    watched = Watched(mounts, make_frames(tmp_path / "a.h5", "sparse"), f"commit_interval={INTERVAL}")
    for number in itertools.count(step=2):
        before = time.monotonic()
        with open(watched.frame(number), "wb", buffering=0) as first:
            first.write(HALF)
            watched.frame(number + 1).write_bytes(WHOLE)
            watched.wait_for_commit()
            shown = [watched.look()]
            watched.sync()
            wait_for(lambda: watched.look()[number + 1:] == [WHOLE])
            shown.append(watched.look())
            in_time = time.monotonic() - before < LEFT_OUT
            whole = [WHOLE] * number
            assert shown == [whole, [*whole, bytes(len(WHOLE)), WHOLE]] or not in_time
            first.write(WHOLE[len(HALF):])
        watched.wait_for_commit()
        assert watched.look() == [WHOLE] * (number + 2)
        if in_time:
            return


def test_an_empty_frame_that_is_there(tmp_path, mounts):
    """It is written for the first time, too."""
    path = tmp_path / "a.h5"
    subprocess.run([SPARSECTL, "create", path, "/data", "--dims", f"4,{ROWS},{COLUMNS}", "--chunk",
                    f"2,16,{COLUMNS}", "--dtype", "uint16"], check=True)
    subprocess.run([SPARSECTL, "create", path, "/other", "--dims", "1,64", "--dtype", "uint64"], check=True)
    watched = Watched(mounts, path, f"commit_interval={INTERVAL}")
    frames = [bytes(len(WHOLE))] * 4
    for number in 2, 1, 3, 0:
        before = time.monotonic()
        with open(watched.frame(number), "r+b", buffering=0) as file:
            file.write(HALF)
            watched.wait_for_commit()
            shown = watched.look()
            in_time = time.monotonic() - before < LEFT_OUT
            assert shown == frames or not in_time
            file.write(WHOLE[len(HALF):])
        frames[number] = WHOLE
        watched.wait_for_commit()
        assert watched.look() == frames
        if in_time:
            return
    pytest.skip("commits take too long here")


@pytest.mark.parametrize("options", ["commit_interval=1", "commit_interval=1,cache_size=256K"])
def test_a_frame_that_stays_open(tmp_path, mounts, options):
    """It is committed in the end; where there is no room for it in the cache, earlier."""
    watched = Watched(mounts, make_frames(tmp_path / "a.h5", "sparse"), options)
    with open(watched.frame(0), "wb", buffering=0) as file:
        file.write(HALF)
        wait_for(lambda: watched.look() == [HALF + bytes(len(WHOLE) - len(HALF))])
        file.write(WHOLE[len(HALF):])
    watched.wait_for_commit()
    assert watched.look() == [WHOLE]


def test_a_writer_that_is_killed(tmp_path, mounts, grow):
    """Again and again, wherever it is; what it said was committed is there, also before the next
    writer repairs what was left."""
    path = make(tmp_path / "a.h5")
    mount = mounts(path, "follow=0.05", log="warning")
    random = np.random.default_rng(1)
    for i in range(12):
        writer = grow(path, 1 << 20, 1)
        end = time.monotonic() + float(random.uniform(0.2, 0.8))
        read_for_less = [Reader(mount, int(random.integers(1 << 30))) for _ in range(2)]
        for reader in read_for_less:
            reader.start()
        time.sleep(max(0, end - time.monotonic()))
        if i % 4 == 3:
            wait_for(lambda: writer.committed > 0)
        writer.kill()
        for reader in read_for_less:
            reader.stops.set()
            reader.join(WAIT)
            if reader.failure:
                raise reader.failure
        committed = writer.committed
        wait_for(lambda: frames_of(mount, "plain") >= committed)
        with open(mount / "plain/stack.raw", "rb") as stack:
            for number in range(frames_of(mount, "plain")):
                check_frame(stack.read(BYTES), number)


SWMR_WRITER = """
import sys, time
import h5py, numpy as np
sys.path.insert(0, sys.argv[3])
from test_follow import expected, SIDE
path, frames = sys.argv[1], int(sys.argv[2])
with h5py.File(path, "w", libver="latest") as file:
    made = [file.create_dataset("plain", (0, SIDE, SIDE), "<u2", maxshape=(None, SIDE, SIDE),
                                chunks=(1, SIDE, SIDE), compression="gzip"),
            file.create_dataset("tall", (0, SIDE, SIDE), "<u2", maxshape=(None, SIDE, SIDE),
                                chunks=(4, SIDE // 2, SIDE // 2), compression="gzip", shuffle=True)]
    file.create_dataset("bare", (0, SIDE, SIDE), "<u2", maxshape=(None, SIDE, SIDE), chunks=(1, SIDE, SIDE))
    file.attrs["note"] = "growing"
    file.swmr_mode = True
    made.append(file["bare"])
    print("ready", flush=True)
    for number in range(frames):
        for dataset in made:
            dataset.resize(number + 1, 0)
            dataset[number] = expected(number, 1).reshape(SIDE, SIDE)
            dataset.flush()
        if number % 20 == 19:
            print(number + 1, flush=True)
            time.sleep(0.02)
"""


@pytest.fixture
def swmr(tmp_path):
    """A writer in libhdf5's SWMR mode."""
    processes = []

    def start(path, frames):
        environment = os.environ | {"HDF5_USE_FILE_LOCKING": "TRUE"}
        here = os.path.dirname(__file__)
        process = subprocess.Popen([sys.executable, "-c", SWMR_WRITER, path, str(frames), here],
                                   stdout=subprocess.PIPE, text=True, env=environment)
        processes.append(process)
        assert process.stdout.readline() == "ready\n"
        threading.Thread(target=process.stdout.read).start()
        return process

    yield start
    for process in processes:
        process.kill()
        process.wait()


class SwmrReader(Reader):
    """A frame of such a file can be seen before its elements: SWMR is no transaction."""

    def look(self, name, before):
        n = self.count(name)
        assert n >= before
        for _ in range(5 if n > 1 else 0):
            number = int(self.random.integers(max(0, n - 30), n - 1))
            content = (self.mount / name / f"frames/{number}.raw").read_bytes()
            check_frame(content, number, may_be_erased=False)
            self.reads += 1
        return n


def test_swmr(tmp_path, mounts, swmr):
    path = tmp_path / "swmr.h5"
    writer = swmr(path, 1 << 20)
    mount = mounts(path, "follow=0.2")
    readers = [SwmrReader(mount, seed, ("plain", "tall", "bare")) for seed in range(READERS)]
    read_for(SECONDS, readers, lambda: all(r.reads > 20 for r in readers) and frames_of(mount, "plain") > 50)
    assert writer.poll() is None


def test_swmr_writer_that_ends(tmp_path, mounts, swmr):
    """The mark in the superblock goes; what was written last comes all the same."""
    path = tmp_path / "swmr.h5"
    writer = swmr(path, 200)
    mount = mounts(path, "follow=0.1")
    assert writer.wait(WAIT) == 0
    wait_for(lambda: frames_of(mount, "bare") == 200)
    for name in ("plain", "tall", "bare"):
        for number in range(200):
            check_frame((mount / name / f"frames/{number}.raw").read_bytes(), number, False)
    # Then a writer of ours.
    grown = subprocess.run([GROW, path, "0"], capture_output=True, text=True)
    assert grown.returncode == 0, grown.stderr


def test_space_that_is_used_again_after_a_swmr_writer(tmp_path, mounts):
    """Chunks were located while it ran; an ordinary program has removed them before the next look."""
    path = tmp_path / "swmr.h5"
    with h5py.File(path, "w", libver="latest") as file:
        dataset = file.create_dataset("d", (20, 64, 64), "<i4", maxshape=(None, 64, 64), chunks=(1, 64, 64))
        file.swmr_mode = True
        dataset[...] = 7
        dataset.flush()
        mount = mounts(path, "follow=100", expect_log=True)
        assert set(np.fromfile(mount / "d/frames/0.raw", "<i4")) == {7}
    with contextlib.ExitStack() as frames:
        opened = [frames.enter_context(open(mount / f"d/frames/{number}.raw", "rb", 0)) for number in (1, 10, 19)]
        with h5py.File(path, "r+", libver="latest") as file:
            del file["d"]
            file["first"] = "where the header of the other was"
            file.create_dataset("e", data=np.full((40, 64, 64), 9, "<i4"), chunks=(1, 64, 64))
            file.flush()
            with pytest.raises(OSError) as refused:
                opened[0].read(BYTES)
            assert refused.value.errno == errno.EBUSY
        for frame in opened:
            with pytest.raises(OSError) as gone:
                frame.read(BYTES)
            assert gone.value.errno == errno.ESTALE
    assert (mount / "e/frames/1.raw").read_bytes() == np.full((64, 64), 9, "<i4").tobytes()


def test_chunks_that_become_more_than_a_number_can_say(tmp_path, mounts):
    """Those that were found before are not taken for others."""
    path, shape, far = tmp_path / "swmr.h5", (1 << 44, 4096, 1), (1 << 32) - 2
    with h5py.File(path, "w", libver="latest") as file:
        dataset = file.create_dataset("d", shape, "<u2", maxshape=(None, None, None), chunks=(1, 256, 1))
        dataset[0] = 7
        file.swmr_mode = True
        mount = mounts(path, "follow=0.1")
        frames = mount / "d/frames"
        for number in range(far, far - 1000, -50):
            assert not any((frames / f"{number}.raw").read_bytes())
        dataset.resize((1 << 60, *shape[1:]))
        dataset.flush()
        wait_for(lambda: json.loads((mount / "d/dataset.json").read_text())["dims"][0] == 1 << 60)
        assert (frames / "0.raw").read_bytes() == np.full(4096, 7, "<u2").tobytes()


@pytest.mark.parametrize("version, is_read", [("latest", True), ("earliest", False)])
def test_a_lock_without_a_mark(tmp_path, mounts, run, version, is_read):
    """Between the two a writer in SWMR mode has ended, but not closed the file; where there are no marks
    the lock is all that tells of a writer."""
    path = tmp_path / "a.h5"
    (tmp_path / "mnt").mkdir()
    with h5py.File(path, "w", libver=version) as file:
        file["x"] = [1, 2, 3]
    with open(path) as locked:
        fcntl.flock(locked, fcntl.LOCK_EX)
        if is_read:
            assert (mounts(path, "follow=0.1") / "x/value.txt").read_text().split() == ["1", "2", "3"]
        else:
            done = run("-o", "follow", path, tmp_path / "mnt")
            assert done.returncode == 32 and "SWMR" in done.stderr


def test_what_is_made_later(tmp_path, mounts):
    """Groups, datasets, attributes; and what is removed."""
    path = make(tmp_path / "a.h5")
    writer = mounts(path, "rw", log="warning")
    mount = mounts(path, "follow=0.1")
    assert set(os.listdir(mount.root)) == {"plain", "tall", ".sparsefs"}
    assert not (mount / "run").exists()
    (writer / "run").mkdir()
    os.sync()
    fd = os.open(writer.root, os.O_RDONLY)
    os.fsync(fd)
    wait_for(lambda: (mount / "run").is_dir())
    assert set(os.listdir(mount.root)) == {"plain", "run", "tall", ".sparsefs"}
    (writer / "run").rmdir()
    os.fsync(fd)
    wait_for(lambda: not (mount / "run").exists())
    os.close(fd)
    writer.unmount()
    with h5py.File(path, "r+", libver="latest") as file:
        file.attrs["note"] = "later"
        file["run/dense"] = np.arange(6, dtype="<i4").reshape(2, 3)
    wait_for(lambda: (mount / "run/dense").is_dir())
    assert (mount / "run/dense/stack.raw").read_bytes() == np.arange(6, dtype="<i4").tobytes()
    assert os.getxattr(mount.root, "user.note") == b"later"


def test_a_file_that_is_replaced(tmp_path, mounts):
    path = make(tmp_path / "a.h5")
    subprocess.run([GROW, path, "5"], check=True, capture_output=True)
    other = make(tmp_path / "b.h5")
    mount = mounts(path, "follow=0.1", expect_log=True, log="warning")
    frame = (mount / "plain/frames/1.raw").read_bytes()
    check_frame(frame, 1)
    os.rename(other, path)
    wait_for(lambda: "no longer there" in mount.log())
    with pytest.raises(OSError):  # what comes before a frame is not read ahead
        (mount / "plain/frames/0.raw").read_bytes()
    time.sleep(1)
    assert mount.process.poll() is None
    assert mount.log().count("no longer there") == 1 and len(mount.log().splitlines()) <= 4, mount.log()


CHANGED = [  # dims, and how they are stored, before and after
    ((4, 8, 8), {}, {"chunks": (1, 8, 8)}), ((4, 8, 8), {"chunks": (1, 8, 8)}, {}),
    ((4, 8, 8), {"chunks": (2, 4, 8)}, {"chunks": (2, 8, 4)}),
    ((4, 8, 8), {"chunks": (1, 8, 8), "shuffle": True}, {"chunks": (1, 8, 8), "fletcher32": True}),
    ((8, 8, 8), {}, {})]


@pytest.mark.parametrize("dims, before, after", CHANGED)
def test_a_dataset_that_becomes_another_one(tmp_path, mounts, dims, before, after):
    """What is open is not read as if its elements were where they were before."""
    data, paths = np.arange(512, dtype="<u2").reshape(8, 8, 8), [tmp_path / "a.h5", tmp_path / "b.h5"]
    addresses = set()
    for i, (n, how) in enumerate([(4, before), (dims[0], after)]):
        with h5py.File(paths[i], "w") as file:
            file.create_dataset("d", data=data[:n] + i, **how)
            addresses.add(h5py.h5o.get_info(file["d"].id).addr)
    assert len(addresses) == 1
    mount = mounts(paths[0], "follow=0.1", expect_log=True)
    with open(mount / "d/frames/0.raw", "rb", buffering=0) as frame:
        assert frame.read() == data[0].tobytes()
        with open(paths[0], "r+b", buffering=0) as file:
            file.write(paths[1].read_bytes())
            file.truncate()
        wait_for(lambda: "cannot be followed any more" in mount.log())
        for number in range(dims[0]):
            with contextlib.suppress(OSError):
                assert (mount / f"d/frames/{number}.raw").read_bytes() == (data[number] + 1).tobytes()


FRAMES = np.arange(512).reshape(8, 8, 8)


def external(name):
    return {"external": [(name, 0, 4096)], "data": None, "shape": (8, 8, 8)}


REPLACED = {  # how the dataset is made, before and after
    "datatype": ({"dtype": "<i4"}, {"dtype": "<f4"}),
    "byte order": ({"dtype": "<i4", "chunks": (1, 8, 8)}, {"dtype": ">i4", "chunks": (1, 8, 8)}),
    "fill value": ({"dtype": "<i4", "chunks": (1, 8, 8), "data": None, "shape": (8, 8, 8), "fillvalue": 5},
                   {"dtype": "<i4", "chunks": (1, 8, 8), "data": None, "shape": (8, 8, 8), "fillvalue": 9}),
    "strings": ({"dtype": h5py.string_dtype(), "data": FRAMES.astype(str).astype("S")}, {"dtype": "V16", "data": None,
                "shape": (8, 8, 8)}),
    "files": ({"dtype": "<i4", **external("a.raw")}, {"dtype": "<i4", **external("b.raw")}),
    "space": ({"data": h5py.Empty("<i4")}, {"data": 7, "dtype": "<i4"}),
    "most": ({"dtype": "<i4", "chunks": (1, 8, 8), "maxshape": (None, 8, 8)},
             {"dtype": "<i4", "chunks": (1, 8, 8), "maxshape": (None, 8, None)})}


def create(file, how={}):
    file.create_dataset("d", **{"data": FRAMES, **how})
    file.flush()
    return h5py.h5o.get_info(file["d"].id).addr


@pytest.mark.parametrize("kind", REPLACED)
def test_a_dataset_that_another_one_replaces(tmp_path, mounts, kind):
    """At the same address: what is open is not read as if it were the one before."""
    before, after = REPLACED[kind]
    for name in "ab":
        (tmp_path / f"{name}.raw").write_bytes((FRAMES + ord(name)).astype("<i4").tobytes())
        (tmp_path / f"{name}.raw").chmod(0o644)
    path = tmp_path / "a.h5"
    with h5py.File(path, "w") as file:
        address = create(file, before)
    mount = mounts(path, "follow=0.1", expect_log=True)
    shown = next(name for name in ("stack.raw", "value.txt", "values/0.txt") if (mount / "d" / name).exists())
    assert (mount / "d" / shown).read_bytes() or kind == "space"
    with open(mount / "d" / shown, "rb", buffering=0) as held:
        with h5py.File(path, "r+") as file:
            del file["d"]
            assert create(file, after) == address
        wait_for(lambda: "cannot be followed any more" in mount.log())
        for _ in range(2):
            if kind != "space" and shown != "value.txt":  # a text stays for who has it open
                with pytest.raises(OSError, match="Stale"):
                    os.pread(held.fileno(), 1 << 20, 0)
            wait_for(lambda: is_readable(mount / "d/dataset.json") and is_as_libhdf5_has_it(mount, path))
    assert is_as_libhdf5_has_it(mount, path)


def is_as_libhdf5_has_it(mount, path):
    """Of the dataset by its name."""
    with h5py.File(path, "r") as file:
        dataset = file["d"]
        described = json.loads((mount / "d/dataset.json").read_text())
        return described["dims"] == list(dataset.shape) and (dataset.ndim == 0 or is_readable(mount / "d/stack.raw") and
                                                             (mount / "d/stack.raw").read_bytes() ==
                                                             dataset[()].tobytes())


OTHERS = {  # datasets by how they are made; None: groups
    "chunks": ({}, {"chunks": (1, 8, 8), "data": FRAMES + 1}), "group": ({}, None), "dataset": (None, {})}


def create_any(file, how):
    if how is not None:
        return create(file, how)
    file.create_group("d")["sub"] = 1
    file.flush()
    return h5py.h5o.get_info(file["d"].id).addr


def is_shown(mount, how):
    path = mount / "d" / ("stack.raw" if how is not None else "sub/value.txt")
    content = b"1\n" if how is None else how.get("data", FRAMES).tobytes()
    return is_readable(path) and path.read_bytes() == content


@pytest.mark.parametrize("is_held", [False, True])
@pytest.mark.parametrize("kind", OTHERS)
def test_a_name_that_becomes_that_of_another_object(tmp_path, mounts, kind, is_held):
    """By its name it is found, while who has the one before open is told that it is gone."""
    before, after = OTHERS[kind]
    path = tmp_path / "a.h5"
    with h5py.File(path, "w") as file:
        address = create_any(file, before)
    mount = mounts(path, "follow=0.1", expect_log=True)
    assert is_shown(mount, before)
    with contextlib.ExitStack() as stack:
        held = stack.enter_context(open(mount / "d/stack.raw", "rb", buffering=0)) if is_held and before == {} else None
        with h5py.File(path, "r+") as file:
            del file["d"]
            assert create_any(file, after) == address
        wait_for(lambda: is_shown(mount, after))
        if held:
            with pytest.raises(OSError, match="Stale"):
                os.pread(held.fileno(), 64, 0)
        assert is_shown(mount, after)


def test_a_dataset_that_is_made_again_and_again(tmp_path, mounts):
    path = tmp_path / "a.h5"
    with h5py.File(path, "w") as file:
        create(file, {})
    mount = mounts(path, "follow=0.1", expect_log=True)
    for n in [4, 2, 7, 8, 1, 3]:
        with h5py.File(path, "r+") as file:
            del file["d"]
            create(file, {"data": FRAMES[:n] * n})
        wait_for(lambda n=n: (mount / "d/stack.raw").stat().st_size == FRAMES[:n].nbytes)
        for _ in range(20):
            assert (mount / "d/stack.raw").read_bytes() == (FRAMES[:n] * n).tobytes()


def make_external(file, name, dims, most):
    dcpl = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
    dcpl.set_external(b"a.raw", 0, 1 << 12)
    h5py.h5d.create(file.id, name, h5py.h5t.STD_I32LE, h5py.h5s.create_simple(most, most), dcpl)
    file[name].id.set_extent(dims)


def set_dims(path, name, dims):
    with h5py.File(path, "r+") as file:
        file[name].id.set_extent(dims)


def test_other_rows_of_external_data(tmp_path, mounts):
    data = np.arange(800, dtype="<i4")
    data.tofile(tmp_path / "a.raw")
    (tmp_path / "a.raw").chmod(0o644)
    path = tmp_path / "a.h5"
    with h5py.File(path, "w") as file:
        make_external(file, b"d", (40, 10), (40, 20))
    mount = mounts(path, "follow=0.1", expect_log=True)
    with open(mount / "d/stack.raw", "rb", buffering=0) as held:
        assert held.read(1600) == data[:400].tobytes()
        set_dims(path, "d", (40, 20))
        wait_for(lambda: "cannot be followed any more" in mount.log())
        with pytest.raises(OSError, match="Stale"):
            os.pread(held.fileno(), 1600, 0)


def make_kinds(path):
    """Datasets of many kinds; those of them that can grow."""
    (path.parent / "a.raw").write_bytes(bytes(1 << 16))
    compound = np.dtype([("a", "<i2"), ("b", ">f8", (2,)), ("c", "S3")], align=True)
    with h5py.File(path, "w") as file:
        file["type"], file["record"] = np.dtype("<i4"), compound
        more = {"maxshape": (None, 4, 4), "chunks": (1, 4, 4), "shape": (3, 4, 4)}
        grow = {
            "plain": {"dtype": "<u2"}, "committed": {"dtype": file["type"]}, "records": {"dtype": file["record"]},
            "compound": {"dtype": compound}, "enum": {"dtype": h5py.enum_dtype({"a": 1, "b": 2}, "<i2")},
            "boolean": {"dtype": bool}, "strings": {"dtype": h5py.string_dtype()}, "complex": {"dtype": "<c8"},
            "sequences": {"dtype": h5py.vlen_dtype("<f4")}, "references": {"dtype": h5py.ref_dtype},
            "filled": {"dtype": "<i4", "fillvalue": 7}, "packed": {"dtype": "<i4", "compression": "gzip",
                                                                   "shuffle": True, "fletcher32": True},
            "scaled": {"dtype": "<i4", "scaleoffset": 4}}
        for name, how in grow.items():
            file.create_dataset(name, **more, **how)
        file.create_dataset("contiguous", data=np.zeros((3, 4, 4), "<i4"))
        file.create_dataset("late", shape=(3, 4, 4), dtype="<i4")
        file.create_dataset("scalar", data=3)
        file.create_dataset("word", data="abc")
        file.create_dataset("null", data=h5py.Empty("<i4"))
        make_external(file, b"external", (3, 4, 4), (64, 4, 4))
        layout = h5py.VirtualLayout((3, 4, 4), "<u2")
        layout[...] = h5py.VirtualSource(file["plain"])[:3]
        file.create_virtual_dataset("virtual", layout)
        dcpl = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
        dcpl.set_layout(h5py.h5d.COMPACT)
        h5py.h5d.create(file.id, b"compact", h5py.h5t.STD_I32LE, h5py.h5s.create_simple((3, 4, 4)), dcpl)
        return [*grow, "external"], sorted(name for name in file if isinstance(file[name], h5py.Dataset))


def dims_of(mount, name):
    return json.loads((mount / name / "dataset.json").read_text())["dims"]


@pytest.mark.parametrize("version", ["earliest", "latest"])
def test_datasets_of_all_kinds_stay_the_same(tmp_path, mounts, version):
    """Whatever is committed, and whoever libhdf5's process is, they are not taken for others."""
    path = tmp_path / "a.h5"
    grow, names = make_kinds(path)
    mount = mounts(path, "follow=0.1", expect_log=True)
    with contextlib.ExitStack() as stack:
        for name in names:
            stack.enter_context(open(mount / name / "dataset.json"))
            shown = next(s for s in ("stack.raw", "value.txt", "values") if (mount / name / s).exists())
            if shown != "values":
                stack.enter_context(open(mount / name / shown, "rb")).read(1)
        for n in range(4, 8):
            with h5py.File(path, "r+", libver=version) as file:
                for name in grow:
                    file[name].id.set_extent((n if n < 7 else 2, 4, 4))
                file["late"][:] = n
                file["type"].attrs["n"] = n
                file["new%d" % n] = n
            wait_for(lambda n=n: (mount / f"new{n}").is_dir())
            wait_for(lambda n=n: dims_of(mount, "scaled")[0] == (n if n < 7 else 2))
            if n == 5:
                for pid in workers(mount):
                    os.kill(pid, 9)
        for name in grow:
            assert dims_of(mount, name)[0] == 2
    assert "followed" not in mount.log(), mount.log()


def is_readable(path):
    try:
        path.read_bytes()
    except OSError:
        return False
    return True


def test_a_file_that_is_cut(tmp_path, mounts):
    path = make(tmp_path / "a.h5")
    subprocess.run([GROW, path, "50"], check=True, capture_output=True)
    whole = path.read_bytes()
    mount = mounts(path, "follow=0.1", expect_log=True, log="warning")
    check_frame((mount / "plain/frames/0.raw").read_bytes(), 0)
    os.truncate(path, 3000)
    wait_for(lambda: mount.log())
    for number in range(50):
        with pytest.raises(OSError):
            (mount / f"plain/frames/{number}.raw").read_bytes()
    assert mount.process.poll() is None
    with open(path, "r+b") as file:  # and it comes back
        file.write(whole)
    wait_for(lambda: is_readable(mount / "plain/frames/49.raw"))
    for number in range(50):
        check_frame((mount / f"plain/frames/{number}.raw").read_bytes(), number)
    assert len(mount.log().splitlines()) < 10, mount.log()


@pytest.mark.parametrize("kind", ["dense", "filtered", "sparse"])
def test_what_is_left_of_a_file_that_is_cut(tmp_path, mounts, kind):
    """The last chunk in the file loses its end; every other frame stays what it was, also for who has
    it open, and comes back with the file."""
    path, frames = tmp_path / "a.h5", 20
    array = np.arange(1, frames * 32 * 32 + 1, dtype="<u2").reshape(frames, 32, 32)
    with h5py.File(path if kind != "sparse" else tmp_path / "source.h5", "w", libver="latest") as file:
        file.create_dataset("d", data=array, chunks=(1, 32, 32),
                            compression="gzip" if kind == "filtered" else None)
    if kind == "sparse":
        subprocess.run([SPARSECTL, "import", "--undefined", "none", f"{tmp_path}/source.h5:/d", f"{path}:/d"],
                       check=True, capture_output=True)
    whole = path.read_bytes()
    mount = mounts(path, "follow=0.1", expect_log=True, log="warning")
    files = [open(mount / f"d/frames/{number}.raw", "rb", buffering=0) for number in range(frames)]
    os.truncate(path, len(whole) - 100)
    wait_for(lambda: "it was cut short" in mount.log())
    gone = 0
    for number, file in enumerate(files):
        try:
            content = os.pread(file.fileno(), 4096, 0)
        except OSError as error:
            assert error.errno == errno.EIO
            gone += 1
        else:
            assert content == array[number].tobytes()
            assert (mount / f"d/frames/{number}.raw").read_bytes() == content
    assert gone == 1 and mount.log().count("it was cut short") == 1, mount.log()
    with open(path, "r+b") as file:
        file.write(whole)
    wait_for(lambda: is_readable(mount / f"d/frames/{frames - 1}.raw") and
             all(is_readable(mount / f"d/frames/{number}.raw") for number in range(frames)))
    for number, file in enumerate(files):
        assert os.pread(file.fileno(), 4096, 0) == array[number].tobytes()
        file.close()


def test_there_is_no_image_of_what_is_followed(tmp_path, mounts):
    control = mounts(make(tmp_path / "a.h5"), "follow") / ".sparsefs"
    assert sorted(os.listdir(control)) == ["cache_size", "log", "pid", "stats.json"]
    for name in ("pid", "stats.json"):
        assert (control / name).read_bytes()
    with pytest.raises(FileNotFoundError):
        open(control / "image.h5", "rb")


@pytest.mark.parametrize("options, says", [
    ("follow,rw", "not together with rw"), ("rw,follow=3", "not together with rw"),
    ("follow=0", "seconds"), ("follow=soon", "seconds")])
def test_options_that_are_refused(tmp_path, run, options, says):
    path = make(tmp_path / "a.h5")
    (tmp_path / "mnt").mkdir()
    done = run("-o", options, path, tmp_path / "mnt")
    assert done.returncode == 1 and says in done.stderr


def test_images_are_refused(tmp_path, run):
    (tmp_path / "mnt").mkdir()
    done = run("-o", "follow", "-", tmp_path / "mnt", input="")
    assert done.returncode == 1 and "does not grow" in done.stderr
    subprocess.run(["gzip", make(tmp_path / "a.h5")], check=True)
    done = run("-o", "follow", tmp_path / "a.h5.gz", tmp_path / "mnt")
    assert done.returncode == 1 and "does not grow" in done.stderr


def test_an_ordinary_writer_of_libhdf5(tmp_path, mounts, run):
    """Such a file is half written as long as it is open."""
    path = tmp_path / "a.h5"
    (tmp_path / "mnt").mkdir()
    with h5py.File(path, "w", libver="latest") as file:
        file["x"] = [1, 2, 3]
        file.flush()
        done = run("-o", "follow", path, tmp_path / "mnt")
        assert done.returncode == 32 and "SWMR" in done.stderr
    mount = mounts(path, "follow=0.1")
    assert (mount / "x/value.txt").read_text().split() == ["1", "2", "3"]


# ---- Another host ----

SFTP_SERVER = "/usr/lib/openssh/sftp-server"


@pytest.fixture
def far(tmp_path):
    """far(options) gives a folder, and the same as another host has it: through sshfs, which knows
    nothing of what is in this host's caches and keeps attributes and contents in its own."""
    if not shutil.which("sshfs") or not os.path.exists(SFTP_SERVER):
        pytest.skip("sshfs or sftp-server is not installed")
    here, there = tmp_path / "here", tmp_path / "there"
    running = []

    def start(options):
        here.mkdir()
        there.mkdir()
        ours, theirs = socket.socketpair()
        running.append(subprocess.Popen([SFTP_SERVER], stdin=theirs, stdout=theirs))
        running.append(subprocess.Popen(["sshfs", "-f", "-o", f"passive,{options}", f"host:{here}", there],
                                        stdin=ours, stdout=ours))
        ours.close()
        theirs.close()
        wait_for(lambda: is_mounted(there) or running[-1].poll() is not None)
        assert is_mounted(there)
        return here, there

    yield start
    if is_mounted(there):
        subprocess.run(["fusermount3", "-u", "-z", there], check=True)
    for process in running:
        process.wait(WAIT)


FAR = ["dir_cache=no", "dcache_timeout=20", "dcache_timeout=20,attr_timeout=3,entry_timeout=3",
       "kernel_cache", "auto_cache", "kernel_cache,attr_timeout=3,entry_timeout=3"]


@pytest.mark.parametrize("options", FAR)
def test_on_another_host(tmp_path, far, mounts, grow, options):
    """Whole frames of one commit, new ones as they come, and no word of damage."""
    here, there = far(options)
    path = make(here / "a.h5")
    mount = mounts(there / "a.h5", "follow=0.2")
    writer = grow(path, 1 << 20, 3, 30_000)
    readers = readers_of(mount)
    read_for(SECONDS / 2, readers, lambda: all(reader.last > 30 for reader in readers))
    assert writer.process.poll() is None, writer.process.stderr.read()
    committed = writer.committed
    wait_for(lambda: frames_of(mount, "tall") >= committed)


def test_everything_comes_to_another_host(tmp_path, far, mounts, grow):
    """The writer ends, and another one comes, which is a mount."""
    here, there = far("kernel_cache,dcache_timeout=20")
    path = make(here / "a.h5")
    mount = mounts(there / "a.h5", "follow=0.1")
    writer = grow(path, 60, 1, 20_000)
    writer.wait()
    wait_for(lambda: frames_of(mount, "tall") == 60)
    for name in ("plain", "tall"):
        for number in range(60):
            check_frame((mount / name / f"frames/{number}.raw").read_bytes(), number)
    writer = mounts(path, "rw", log="warning")
    for generation in range(5, 12):
        content = expected(1, generation).tobytes()
        with open(writer / "plain/frames/1.raw", "r+b", buffering=0) as file:
            file.write(content)
            os.fsync(file.fileno())
        wait_for(lambda: (mount / "plain/frames/1.raw").read_bytes() == content)
    done = sparsectl("repack", there / "a.h5", there / "copy.h5")
    assert done.returncode == 0, done.stderr
    assert check_copy(here / "copy.h5", ["plain"], 1, tmp_path) == 60


def sparsectl(*arguments):
    return subprocess.run([SPARSECTL, *map(str, arguments)], capture_output=True, text=True, timeout=WAIT)


class Pausing:
    """A writer that makes pauses of so many microseconds after each commit, in which a command has the
    time for one state of the file; twice as long ones, if that has not."""

    def __init__(self, grow, path, commit, pause, frames):
        self.arguments, self.grow, self.pause, self.frames = (path, 1 << 20, commit), grow, pause, frames
        self.start()

    def start(self):
        self.writer = self.grow(*self.arguments, self.pause)
        wait_for(lambda: self.writer.committed > self.frames)

    def run(self, *arguments):
        """Gives also the frames committed before."""
        while True:
            before = self.writer.committed
            done = sparsectl(*arguments)
            assert self.writer.process.poll() is None
            if not TOO_OFTEN.search(done.stderr):
                return before, done
            self.writer.kill()
            self.pause *= 2
            self.start()


TOO_OFTEN = re.compile("committed to (so|too) often")


def test_sparsectl_beside_a_writer(tmp_path, grow):
    path = make(tmp_path / "a.h5")
    pausing = Pausing(grow, path, 5, 20_000, 30)
    for i in range(4):
        _, done = pausing.run("check", path)
        assert done.returncode == 0 and "sound" in done.stdout, (done.stdout, done.stderr)
        _, done = pausing.run("info", f"{path}:/tall", "--json")
        assert done.returncode == 0, done.stderr
        assert json.loads(done.stdout)
        _, done = pausing.run("dump", f"{path}:/plain", "--frame", i)
        assert done.returncode == 0, done.stderr
        frame = np.zeros((SIDE, SIDE), "<u2")
        for line in done.stdout.splitlines():
            if line and line[0].isdigit():
                at = [int(word) for word in line.replace(",", " ").split()]
                frame[at[-3], at[-2]] = at[-1]
        check_frame(frame.tobytes(), i)
        _, done = pausing.run("export", f"{path}:/plain", f"{tmp_path}/out{i}.h5")
        assert done.returncode == 0, done.stderr
        with h5py.File(tmp_path / f"out{i}.h5") as out:
            frames = out["plain"][()]
        assert len(frames) >= 30
        for number, frame in enumerate(frames):
            check_frame(frame.tobytes(), number)
    done = sparsectl("create", path, "/new", "--dims", "3", "--dtype", "u1")
    assert done.returncode == 1 and "another program has it open" in done.stderr


def frames_in(path, name, tmp_path):
    """Of a dataset that h5py cannot read if it is sparse."""
    if sparsectl("info", f"{path}:/{name}", "--json").stdout.count('"sparse"'):
        dense = tmp_path / "dense.h5"
        dense.unlink(missing_ok=True)
        done = sparsectl("export", f"{path}:/{name}", dense)
        assert done.returncode == 0, done.stderr
        path = dense
    with h5py.File(path) as file:
        return file[name][()]


def check_copy(path, names, commit, tmp_path):
    """Of one commit: so many frames as it has, and of the same generations in both datasets. Gives the
    number of frames."""
    copies = [frames_in(path, name, tmp_path) for name in names]
    generations = [[check_frame(frame.tobytes(), number) for number, frame in enumerate(frames)]
                   for frames in copies]
    assert len(copies[0]) % commit == 0
    assert all(g == generations[0] for g in generations)
    return len(copies[0])


COPIES = {"export": (["export", "{}:/plain"], ["plain"]), "import": (["import", "{}:/tall"], ["tall"]),
          "import all": (["import", "--all", "{}"], ["plain", "tall"]),
          "repack": (["repack", "{}"], ["plain", "tall"])}


def copying(kind, path, out):
    arguments, names = COPIES[kind]
    return [*(a.format(path) for a in arguments), out], names


def copy(kind, path, out):
    arguments, names = copying(kind, path, out)
    return sparsectl(*arguments), names


@pytest.mark.parametrize("kind, is_large", [*((kind, False) for kind in COPIES), ("export", True),
                                            ("import", True), ("import all", True)])
def test_copies_beside_a_writer(tmp_path, grow, kind, is_large):
    """With pauses in which a copy can be made; but commits come while one is, too. What is large is
    not copied as a whole before."""
    path = tmp_path / "a.h5"
    if is_large:
        with h5py.File(path, "w", libver="latest") as file:
            hole = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
            hole.set_alloc_time(h5py.h5d.ALLOC_TIME_EARLY)
            hole.set_fill_time(h5py.h5d.FILL_TIME_NEVER)
            h5py.h5d.create(file.id, b"hole", h5py.h5t.STD_U8LE, h5py.h5s.create_simple((11 << 27,)), hole)
        assert os.stat(path).st_size > 1 << 30 and os.stat(path).st_blocks < 1000
    make(path)
    pausing = Pausing(grow, path, 3, 500_000 if is_large else 100_000, 10)
    for i in range(3 if is_large else 8):
        arguments, names = copying(kind, path, tmp_path / f"out{i}.h5")
        before, done = pausing.run(*arguments)
        assert done.returncode == 0 and not done.stderr, done.stderr
        copied = check_copy(tmp_path / f"out{i}.h5", names, 3, tmp_path)
        assert before <= copied
        wait_for(lambda: copied <= pausing.writer.committed)
        if kind == "import all":
            assert done.stdout.split() == ["/plain", "/tall"]


@pytest.mark.parametrize("kind", COPIES)
def test_copies_beside_a_writer_at_full_speed(tmp_path, grow, kind):
    """A copy of one commit, or it is said that there is none, and nothing is left. Nor does it look
    damaged then."""
    path = make(tmp_path / "a.h5")
    writer = grow(path, 1 << 20, 3)
    wait_for(lambda: writer.committed > 30)
    out = tmp_path / "out" / "copy.h5"
    out.parent.mkdir()
    for _ in range(3):
        done, names = copy(kind, path, out)
        if done.returncode == 0:
            check_copy(out, names, 3, tmp_path)
            out.unlink()
        else:
            assert done.returncode == 1 and not done.stdout
            assert TOO_OFTEN.search(done.stderr) and len(done.stderr.splitlines()) == 1
        assert not list(out.parent.iterdir())
        done = sparsectl("check", path)
        assert done.returncode in (0, 2), done.stdout
        assert done.stdout.endswith("sound, 0 faults\n") if done.returncode == 0 else not done.stdout
    assert writer.process.poll() is None


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may mount a small disk")
def test_a_copy_beside_a_writer_to_a_full_disk(tmp_path, grow):
    """The bytes of one commit are put there first."""
    path, disk = make(tmp_path / "a.h5"), tmp_path / "disk"
    writer = grow(path, 300, 100, 3_600_000_000)
    wait_for(lambda: writer.committed > 0)
    disk.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", disk], check=True)
    try:
        done = sparsectl("repack", path, disk / "copy.h5")
        assert done.returncode == 1 and "No space left on device" in done.stderr, (done.returncode, done.stderr)
        assert not list(disk.iterdir())
    finally:
        subprocess.run(["umount", disk], check=True)


def test_copies_of_what_lies_in_other_files(tmp_path, mounts):
    """Files beside the one that is written are found, though its image is elsewhere."""
    path, layout = tmp_path / "a.h5", h5py.VirtualLayout((4, 5, 6), "<u4")
    content = np.arange(120, dtype="<u4").reshape(4, 5, 6)
    with h5py.File(tmp_path / "source.h5", "w") as file:
        file["d"] = content
    layout[...] = h5py.VirtualSource("source.h5", "d", (4, 5, 6))
    with h5py.File(path, "w", libver="latest") as file:
        file.create_virtual_dataset("virtual", layout, fillvalue=11)
    mounts(path, "rw")
    done = sparsectl("export", f"{path}:/virtual", tmp_path / "out.h5")
    assert done.returncode == 0, done.stderr
    with h5py.File(tmp_path / "out.h5") as file:
        assert (file["virtual"][()] == content).all()


@pytest.mark.parametrize("kind", [*COPIES, "image"])
def test_copies_beside_a_mount_at_full_speed(tmp_path, mounts, kind):
    """They are made from its image, also if the file is mounted elsewhere, too."""
    path = make(tmp_path / "a.h5")
    subprocess.run([GROW, path, "60"], check=True, capture_output=True)
    mounts(path, "follow=0.1", log="warning")
    writer = mounts(path, "rw,commit_interval=0", log="warning")
    stops = threading.Event()

    def write():
        folder = os.open(writer.root, os.O_RDONLY)
        for generation in range(5, 1 << 20):
            for name in ("plain", "tall"):
                (writer / name / "frames/0.raw").write_bytes(expected(0, generation).tobytes())
            os.fsync(folder)
            if stops.is_set():
                break
        os.close(folder)

    thread = threading.Thread(target=write)
    thread.start()
    try:
        for i in range(3):
            out = tmp_path / f"out{i}.h5"
            if kind == "image":
                with open(out, "wb") as file:
                    subprocess.run([SPARSECTL, "image", path], stdout=file, check=True)
                names = ["plain", "tall"]
            else:
                done, names = copy(kind, path, out)
                assert done.returncode == 0 and not done.stderr, done.stderr
            assert check_copy(out, names, 1, tmp_path) == 60
    finally:
        stops.set()
        thread.join()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root has two users")
@pytest.mark.parametrize("kind", ["image", "repack"])
@pytest.mark.parametrize("user, is_seen, said",
                         [(65534, True, None), (65534, False, "does not answer within 10 s"),
                          (65533, True, "may not write that file")], ids=["owner", "alone", "stranger"])
def test_images_of_mounts_that_only_say_to_be_of_the_file(tmp_path, mounts, kind, user, is_seen, said):
    """FUSEs of another user call themselves mounts of it: those of a stranger are not asked, those of a user who may
    write the file not for ever, and whoever asks a true one need not wait for them."""
    path = make(tmp_path / "a.h5")
    subprocess.run([GROW, path, "2"], check=True, capture_output=True)
    os.chown(path, 65534, 65534)
    out, errors = tmp_path / "out.h5", tmp_path / "errors"
    with contextlib.ExitStack() as stack:
        for i in range(4):
            stack.enter_context(silent_fuse.silent(tmp_path / f"forged{i}", path, "fuse.sparsefs", user))
        writer = mounts(path, "rw,commit_interval=0", log="warning")
        (writer / "plain/frames/0.raw").write_bytes(expected(0, 7).tobytes())
        subprocess.run(["sync", writer.root], check=True)
        command = [SPARSECTL, "image", path] if kind == "image" else [SPARSECTL, "repack", path, out]
        if not is_seen:
            command = ["unshare", "-m", "sh", "-c", 'umount -i -l "$0" && exec "$@"', writer.root, *command]
        with open(out if kind == "image" else os.devnull, "wb") as output, open(errors, "wb") as error:
            done = subprocess.Popen(command, stdout=output, stderr=error)
        deadline = time.monotonic() + START_SECONDS
        while done.poll() is None and time.monotonic() < deadline:
            time.sleep(0.01)
        has_image = is_seen or kind == "repack"  # which reads it beside its writer
        assert done.returncode == (0 if has_image else 1), errors.read_text()
    lines = [line for line in errors.read_text().splitlines() if "/forged" in line]
    assert len(lines) == (4 if said else 0) and all(said in line for line in lines), lines
    if has_image:
        assert (mounts(out) / "plain/frames/0.raw").read_bytes() == expected(0, 7).tobytes()
