"""What docs/follow.md says of inotify: a mount that follows a file gives no events for what another
process writes, since the kernel makes them where something is written through the mount; and the
file FILE.commits gives one for each commit."""
import ctypes
import os
import select
import struct
import subprocess
import time

import h5py
import numpy as np
import pytest

SECONDS = 300  # for what takes moments
CHANGES = {"modify": 0x2, "attrib": 0x4, "close_write": 0x8, "moved": 0xc0, "create": 0x100, "delete": 0x200}


class Watch:
    """Events of paths, as inotifywait has them."""

    def __init__(self, *paths):
        self.libc = ctypes.CDLL(None, use_errno=True)
        self.fd = self.libc.inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC)
        assert self.fd >= 0
        for path in paths:
            if self.libc.inotify_add_watch(self.fd, os.fsencode(path), sum(CHANGES.values())) < 0:
                raise OSError(ctypes.get_errno(), "inotify_add_watch", str(path))

    def __enter__(self):
        return self

    def __exit__(self, *_):
        os.close(self.fd)

    def events(self, seconds=0):
        """The names of the events there are, after waiting for the first one."""
        found = set()
        while select.select([self.fd], [], [], seconds)[0]:
            content, seconds = os.read(self.fd, 65536), 0
            while content:
                _, mask, _, length = struct.unpack_from("iIII", content)
                found |= {name for name, bits in CHANGES.items() if mask & bits}
                content = content[16 + length:]
        return found


def wait_for(condition):
    end = time.monotonic() + SECONDS
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.05)


@pytest.fixture
def pair(mounts, tmp_path):
    """A mount that writes a file, and one that follows it."""
    path = tmp_path / "run.h5"
    with h5py.File(path, "w", libver="latest") as f:
        f.create_dataset("d", data=np.zeros((2, 8, 9), "<u2"), maxshape=(None, 8, 9), chunks=(1, 8, 9))
    writer = mounts(path, "rw", "commit_interval=0")
    return path, writer, mounts(path, "follow=0.1")


def write(path, content):
    with open(path, "wb", buffering=0) as file:
        file.write(content)
        os.fsync(file.fileno())


def test_events_come_where_it_is_written(pair):
    path, writer, _ = pair
    with Watch(writer / "d/frames") as watch:
        write(writer / "d/frames/0.raw", b"\1" * 144)
        write(writer / "d/frames/2.raw", b"\2" * 144)
        assert {"modify", "close_write", "create"} <= watch.events(SECONDS)


def test_a_follower_has_none_and_follows_all_the_same(pair):
    path, writer, reader = pair
    watched = [reader / "d", reader / "d/frames", reader / "d/frames/0.raw", reader / "d/stack.raw",
               reader / "d/dataset.json"]
    assert (reader / "d/frames/0.raw").read_bytes() == bytes(144)
    with Watch(*watched) as watch:
        write(writer / "d/frames/0.raw", b"\1" * 144)
        write(writer / "d/frames/2.raw", b"\2" * 144)
        wait_for(lambda: (reader / "d/frames/0.raw").read_bytes() == b"\1" * 144)
        wait_for(lambda: os.path.getsize(reader / "d/stack.raw") == 3 * 144)
        assert "2.raw" in os.listdir(reader / "d/frames")
        assert watch.events() == set()


def test_the_count_of_commits_has_one_for_each(pair):
    """And what was committed is there to the next look, soon."""
    path, writer, reader = pair
    with Watch(f"{path}.commits") as watch:
        for number in range(2, 7):
            write(writer / f"d/frames/{number}.raw", bytes([number]) * 144)
            assert "modify" in watch.events(SECONDS)
            wait_for(lambda: os.path.exists(reader / f"d/frames/{number}.raw"))
            assert (reader / f"d/frames/{number}.raw").read_bytes() == bytes([number]) * 144


def test_the_file_itself_has_those_of_other_writers(mounts, tmp_path):
    """A program in SWMR mode has no such count, but it writes the file."""
    path = tmp_path / "run.h5"
    with h5py.File(path, "w", libver="latest") as f:
        data = f.create_dataset("d", data=np.zeros((2, 8, 9), "<u2"), maxshape=(None, 8, 9), chunks=(1, 8, 9))
        f.swmr_mode = True
        f.flush()
        reader = mounts(path, "follow=0.1")
        with Watch(path) as watch:
            data.resize(3, axis=0)
            data[2] = 7
            f.flush()
            assert "modify" in watch.events(SECONDS)
        wait_for(lambda: os.path.getsize(reader / "d/stack.raw") == 3 * 144)


def test_tail_follows(pair, tmp_path):
    """GNU tail asks for sizes where it does not expect events, and it expects none of FUSE."""
    path, writer, reader = pair
    seen = tmp_path / "seen"
    with open(seen, "wb") as out:
        tail = subprocess.Popen(["tail", "-s", "0.1", "-c", "+1", "-f", reader / "d/stack.raw"], stdout=out)
    try:
        expected = bytes(2 * 144)
        for number in range(2, 5):
            write(writer / f"d/frames/{number}.raw", bytes([number]) * 144)
            expected += bytes([number]) * 144
            wait_for(lambda: seen.stat().st_size == len(expected))
        assert seen.read_bytes() == expected
    finally:
        tail.kill()
        tail.wait()
