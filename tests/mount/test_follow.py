"""Mounts that follow a file while another process writes it. What a frame must be is told by its
number and generation (grow.c), so that every byte that was read can be checked whenever it was read.

SPARSEFS_FOLLOW_SECONDS=300 pytest test_follow.py -k full_speed   for minutes instead of seconds"""
import json
import os
import signal
import subprocess
import sys
import threading
import time

import h5py
import numpy as np
import pytest

from conftest import BUILD

GROW = BUILD / "tests/mount/grow"
SPARSECTL = BUILD / "sparsectl"
SECONDS = float(os.environ.get("SPARSEFS_FOLLOW_SECONDS", 8))
SIDE = 32
BYTES = SIDE * SIDE * 2
READERS = 4
WAIT = 30  # seconds, for what happens within one on an idle machine


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

    def __init__(self, mount, seed, datasets=("plain", "tall")):
        super().__init__()
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
                check_frame(file.read(BYTES + 1), number)
            self.reads += 1
        if n:
            with open(self.mount / name / "stack.raw", "rb", buffering=0) as stack:
                check_frame(os.pread(stack.fileno(), BYTES, (n - 1) * BYTES), n - 1)
        return n


def read_for(mount, seconds, stop=None):
    readers = [Reader(mount, seed) for seed in range(READERS)]
    for reader in readers:
        reader.start()
    end = time.monotonic() + seconds
    while time.monotonic() < end and not any(r.failure for r in readers) and not (stop and stop()):
        time.sleep(0.05)
    for reader in readers:
        reader.stops.set()
    for reader in readers:
        reader.join(WAIT)
        assert not reader.is_alive(), "a reader hangs"
    for reader in readers:
        if reader.failure:
            raise reader.failure
        assert reader.reads > 20, "nothing was read"
    return readers


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
    read_for(mount, SECONDS)
    assert writer.process.poll() is None, writer.process.stderr.read()
    assert frames_of(mount, "plain") > 100
