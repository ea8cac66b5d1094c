"""Mounts without ro and rw: others may read the file until something is written, and again when
nothing was for a while."""
import errno
import fcntl
import json
import mmap
import os
import random
import signal
import subprocess
import sys

import h5py
import numpy as np
import pytest

from conftest import BUILD, Mount, is_mounted, wait_until

FRAMES, SIDE = 6, 32
SOON = ("default", "commit_interval=1")


@pytest.fixture(params=["sparse", "dense"])
def file(request, tmp_path):
    """A file with /data, of zeros; sparse or dense."""
    path = tmp_path / "run.h5"
    if request.param == "dense":
        with h5py.File(path, "w", libver="latest") as f:
            f.create_dataset("data", (FRAMES, SIDE, SIDE), "<u2", chunks=(1, SIDE, SIDE), compression="gzip")
    else:
        subprocess.run([BUILD / "sparsectl", "create", path, "/data", "--dims", f"{FRAMES},{SIDE},{SIDE}",
                        "--chunk", f"1,{SIDE},{SIDE}", "--dtype", "<u2"], check=True)
    return path


def lock_of(mount):
    return json.loads((mount / ".sparsefs/stats.json").read_text())["lock"]


def frame_of(value):
    return np.full((SIDE, SIDE), value, "<u2").tobytes()


def refused(action, *arguments):
    with pytest.raises(OSError) as refusal:
        action(*arguments)
    assert refusal.value.errno == errno.EBUSY


def others_read(path):
    """As h5py does, in a process of its own."""
    return subprocess.run([sys.executable, "-c", "import h5py, sys; h5py.File(sys.argv[1], 'r')['/']", path],
                          capture_output=True, check=False).returncode == 0


def write(mount, frame, value):
    (mount / f"data/frames/{frame}.raw").write_bytes(frame_of(value))


def neighbours(path):
    return sorted(p.name for p in path.parent.iterdir() if p.name.startswith(path.name))


def test_looking_shuts_nobody_out(mounts, file):
    before = file.read_bytes()
    mount = mounts(file, "default")
    assert (mount / "data/frames/0.raw").read_bytes() == frame_of(0)
    assert lock_of(mount) == "shared"
    assert others_read(file)
    other = mounts(file, "default")
    assert (other / "data/frames/0.raw").read_bytes() == frame_of(0)
    mount.unmount()
    other.unmount()
    assert file.read_bytes() == before and neighbours(file) == [file.name]


def test_who_writes_is_alone_and_gives_it_back(mounts, file):
    mount = mounts(file, *SOON)
    with open(mount / "data/frames/2.raw", "r+b") as opened:  # it stays for who may still write
        assert lock_of(mount) == "exclusive"
        opened.write(frame_of(7))
        opened.flush()
        os.fsync(opened.fileno())
        commits = json.loads((mount / ".sparsefs/stats.json").read_text())["store_commits"]
        assert commits > 0 and not others_read(file)
    wait_until(lambda: lock_of(mount) == "shared")
    assert neighbours(file) == [file.name]
    assert others_read(file)
    other = mounts(file, "ro")
    assert (other / "data/frames/2.raw").read_bytes() == frame_of(7)
    other.unmount()
    write(mount, 3, 8)
    assert lock_of(mount) == "exclusive"
    mount.unmount()
    mount = mounts(file, "ro")
    assert [(mount / f"data/frames/{i}.raw").read_bytes()[:2] for i in (1, 2, 3)] == [b"\0\0", b"\7\0", b"\10\0"]


def test_writing_is_refused_while_others_read(mounts, file, tmp_path):
    """Whatever changes something; and nothing is changed."""
    before = file.read_bytes()
    mount = mounts(file, "default", expect_log=True)
    other = mounts(file, "ro")
    frames = mount / "data/frames"
    listed = sorted(os.listdir(frames))
    refused(write, mount, 0, 1)
    refused(open, frames / "0.raw", "r+b")
    refused(os.truncate, frames / "0.raw", 0)
    refused(os.mkdir, mount / "group")
    refused(os.truncate, mount / "data/stack.raw", 8)
    if json.loads((mount / "data/dataset.json").read_text())["layout"] == "sparse":
        refused(os.truncate, frames / "0.defined", 0)
    assert sorted(os.listdir(frames)) == listed
    assert lock_of(mount) == "shared"
    who = f"sparsefs (process {other.process.pid}), mounted at {other.root}"
    assert f"another program has it open: {who}" in mount.log()
    other.unmount()
    assert file.read_bytes() == before and neighbours(file) == [file.name]
    write(mount, 0, 5)
    assert (frames / "0.raw").read_bytes() == frame_of(5)


def test_a_lock_that_was_refused_is_shared_again(mounts, file):
    mount = mounts(file, "default", expect_log=True)
    other = mounts(file, "ro")
    refused(write, mount, 0, 1)
    other.unmount()
    assert lock_of(mount) == "shared"
    with open(file, "rb") as writer, pytest.raises(BlockingIOError):
        fcntl.flock(writer, fcntl.LOCK_EX | fcntl.LOCK_NB)


def test_rw_has_it_from_the_start(mounts, file):
    mount = mounts(file, "rw,commit_interval=1")
    assert lock_of(mount) == "exclusive" and not others_read(file)
    write(mount, 0, 1)
    os.sync()
    mount.unmount()


def test_a_file_without_locks(mounts, file):
    mount = mounts(file, "default", environment={"HDF5_USE_FILE_LOCKING": "FALSE"})
    assert lock_of(mount) == "none"
    write(mount, 1, 3)
    assert lock_of(mount) == "none"
    assert (mount / "data/frames/1.raw").read_bytes() == frame_of(3)


def test_what_others_have_changed_is_not_written_to(mounts, tmp_path):
    """By a program that knows no locks."""
    path = tmp_path / "run.h5"
    with h5py.File(path, "w") as f:
        f["data"] = np.zeros((FRAMES, SIDE, SIDE), "<u2")
    mount = mounts(path, "default", expect_log=True)
    changed = subprocess.run(
        [sys.executable, "-c", "import h5py, sys; h5py.File(sys.argv[1], 'r+')['data'][1] = 9", path],
        env=os.environ | {"HDF5_USE_FILE_LOCKING": "FALSE"}, check=False)
    assert changed.returncode == 0
    before = path.read_bytes()
    refused(write, mount, 0, 1)
    assert "another program has changed it since it was opened" in mount.log()
    mount.unmount()
    assert path.read_bytes() == before
    mount = mounts(path, "default")
    write(mount, 0, 1)
    assert (mount / "data/frames/1.raw").read_bytes() == frame_of(9)


def test_a_file_that_was_cut_is_not_synced(mounts, file):
    """Nothing was written, but what was there is not there any more."""
    mount = mounts(file, "default", expect_log=True)
    root = os.open(mount.root, os.O_RDONLY)
    try:
        os.fsync(root)
        whole = file.read_bytes()
        os.truncate(file, len(whole) - 20)
        with pytest.raises(OSError) as refusal:
            os.fsync(root)
        assert refusal.value.errno == errno.EIO
        assert "it was cut short by another program" in mount.log()
        with open(file, "r+b") as opened:
            opened.write(whole)
        os.fsync(root)
    finally:
        os.close(root)


def test_a_map_keeps_the_lock(mounts, file):
    mount = mounts(file, *SOON)
    with open(mount / "data/frames/1.raw", "r+b") as opened:
        with mmap.mmap(opened.fileno(), 0) as mapped:
            mapped[:2] = b"\1\0"
            mapped.flush()
            commits = lambda: json.loads((mount / ".sparsefs/stats.json").read_text())["store_commits"]
            wait_until(lambda: commits() > 0)
            for i in range(3):  # through more than one round of who commits
                mapped[2 + 2 * i:4 + 2 * i] = b"\2\0"
                mapped.flush()
                os.fsync(opened.fileno())
                assert lock_of(mount) == "exclusive"
    wait_until(lambda: lock_of(mount) == "shared")
    assert (mount / "data/frames/1.raw").read_bytes()[:8] == b"\1\0\2\0\2\0\2\0"


def test_after_a_crash(mounts, tmp_path, file):
    """A journal, if one is left, is carried out when it is mounted, and everybody may read then."""
    mount = Mount(file, tmp_path / "crashed", "default")
    try:
        with open(mount / "data/frames/0.raw", "r+b") as opened:
            opened.write(frame_of(4))
            opened.flush()
            os.fsync(opened.fileno())
            mount.process.send_signal(signal.SIGKILL)
            mount.process.wait()
    except OSError:
        pass
    finally:
        if is_mounted(mount.root):
            mount.umount("-l")
    assert f"{file.name}.journal" in neighbours(file)
    mount = mounts(file, "default", expect_log=True)
    assert (mount / "data/frames/0.raw").read_bytes() == frame_of(4)
    assert lock_of(mount) == "shared" and neighbours(file) == [file.name] and others_read(file)


READER = """
import h5py, sys, os
path, at_end = sys.argv[1:]
while not os.path.exists(at_end):
    try:
        with h5py.File(path, "r") as f:
            data = f["data"][()]
            for frame in data:
                assert (frame == frame.flat[0]).all(), frame
            for i in range(len(data) - 1):
                assert data[i].flat[0] >= data[i + 1].flat[0] >= data[i].flat[0] - 1, data[:, 0, 0]
            print(data[0].flat[0])
    except OSError as error: # BlockingIOError of h5py 3
        assert "lock" in str(error), error
"""


def test_taking_turns(mounts, tmp_path):
    """h5py opens the file again and again: what it sees is whole, in order, and in the end everything.
    The mount writes whenever it may."""
    path, at_end = tmp_path / "run.h5", tmp_path / "end"
    with h5py.File(path, "w", libver="latest") as f:
        f.create_dataset("data", (FRAMES, SIDE, SIDE), "<u2", chunks=(1, SIDE, SIDE), compression="gzip")
    mount = mounts(path, *SOON, expect_log=True)
    reader = subprocess.Popen([sys.executable, "-c", READER, path, at_end], stdout=subprocess.PIPE, text=True)
    try:
        for value in range(1, 4):
            for frame in range(FRAMES):
                while True:
                    try:
                        write(mount, frame, value)
                        break
                    except OSError as refusal:
                        assert refusal.errno == errno.EBUSY
            wait_until(lambda: lock_of(mount) == "shared")
        seen = []
        wait_until(lambda: seen.append(int(reader.stdout.readline())) or seen[-1] == 3)
    finally:
        at_end.touch()
        reader.communicate()
    assert reader.returncode == 0 and seen == sorted(seen)


class Turns:
    """Two mounts and h5py take turns at random; a model says who may do what, and what is there then."""

    def __init__(self, mounts, path, is_sparse, seed):
        self.mounts, self.path, self.is_sparse = mounts, path, is_sparse
        self.random = random.Random(seed)
        self.values = [0] * FRAMES  # every element of a frame has its value
        self.running = [None, None]
        self.held = [None, None]  # a file that is open for writing: the lock stays for that long
        self.reader = None  # h5py's
        self.done = set()

    def mount(self, i):
        other = 1 - i
        if self.running[i]:
            if self.held[i]:
                self.held[i].close()
            self.running[i].unmount()
            self.running[i] = self.held[i] = None
        elif self.held[other]:
            with pytest.raises(RuntimeError):
                self.mounts(self.path, *SOON, expect_log=True)
            return "mounting is refused"
        else:
            self.running[i] = self.mounts(self.path, *SOON, expect_log=True)
        return "mounting"

    def write(self, i):
        """By anything that changes a frame; a value that nothing had before."""
        frame, value = self.random.randrange(1, FRAMES), self.random.randrange(1, 60000)
        mount = self.running[i]
        if not mount:
            return None
        way = self.random.choice(["raw", "temporary", "truncation"])

        def change():
            path = mount / f"data/frames/{frame}.raw"
            if way == "truncation":
                os.truncate(path, 0)
            elif way == "temporary":
                path.with_name(".new").write_bytes(frame_of(value))
                os.rename(path.with_name(".new"), path)
            else:
                path.write_bytes(frame_of(value))

        if not self.held[i] and (self.running[1 - i] or self.reader):
            refused(change)
            (mount / "data/frames/.new").unlink(missing_ok=True)
            return "writing is refused"
        change()
        self.held[i] = self.held[i] or open(mount / "data/frames/0.raw", "r+b")
        self.values[frame] = 0 if way == "truncation" else value
        return "writing"

    def give_back(self, i):
        if not self.held[i]:
            return None
        self.held[i].close()
        self.held[i] = None
        wait_until(lambda: lock_of(self.running[i]) == "shared")
        return "giving back"

    def read_by_h5py(self):
        if self.reader:
            self.reader.close()
            self.reader = None
        elif any(self.held):
            with pytest.raises(OSError):
                h5py.File(self.path, "r")
            return "h5py is refused"
        else:
            self.reader = h5py.File(self.path, "r")
        return "h5py reads"

    def write_by_h5py(self):
        """Who only looks at a mount keeps writers out all the same."""
        if any(self.running) or self.reader:
            if not self.reader:  # h5py opens no file twice
                with pytest.raises(OSError):
                    h5py.File(self.path, "r+")
            return "h5py may not write"
        if self.is_sparse:
            return None
        frame, value = self.random.randrange(FRAMES), self.random.randrange(1, 60000)
        with h5py.File(self.path, "r+") as f:
            f["data"][frame] = value
        self.values[frame] = value
        return "h5py writes"

    def check(self):
        expected = b"".join(map(frame_of, self.values))
        for mount, held in zip(self.running, self.held):
            if mount:
                assert (mount / "data/stack.raw").read_bytes() == expected
                assert lock_of(mount) == ("exclusive" if held else "shared")
        if self.reader and not self.is_sparse:
            assert self.reader["data"][()].tobytes() == expected

    def step(self):
        on_a_mount = [self.mount, self.write, self.write, self.give_back]
        actions = [(action, i) for action in on_a_mount for i in (0, 1)]
        action, *i = self.random.choice(actions + [*[(self.read_by_h5py,)] * 3, (self.write_by_h5py,)])
        self.done.add(action(*i))
        self.check()


@pytest.mark.parametrize("seed", [1, 2])
def test_in_turns_at_random(mounts, file, request, seed):
    turns = Turns(mounts, file, "sparse" in request.node.name, seed)
    for _ in range(150):
        turns.step()
    if turns.reader:
        turns.reader.close()
    for i in 0, 1:
        if turns.running[i]:
            turns.mount(i)
    mount = mounts(file, "ro")
    assert (mount / "data/stack.raw").read_bytes() == b"".join(map(frame_of, turns.values))
    assert turns.done >= {"mounting", "mounting is refused", "writing", "writing is refused", "giving back",
                          "h5py reads", "h5py is refused", "h5py may not write"}, turns.done
