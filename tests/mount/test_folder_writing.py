"""Writing to the HDF5 files of a folder that is mounted: each is written as in a mount of its own."""
import concurrent.futures
import errno
import json
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import threading
import time

import h5py
import numpy as np
import pytest

from conftest import BUILD, FINDS_SPARSEFS, SPARSEFS, START_SECONDS, is_mounted, let_in, state_of, wait_until
from test_worker import failing_forks, file_for_libhdf5, workers

FRAMES, SIDE = 4, 16
# What has no w in its mode the kernel refuses to ordinary users, before the daemon is asked.
REFUSED = (errno.EROFS, errno.EACCES, errno.EPERM) if os.geteuid() else (errno.EROFS,)


def value_of(seed):
    return np.full((SIDE, SIDE), seed % 65535 + 1, "<u2").tobytes()


def make_sparse(path, frames=FRAMES):
    subprocess.run([BUILD / "sparsectl", "create", path, "/data", "--dims", f"{frames},{SIDE},{SIDE}", "--maxdims",
                    f"inf,{SIDE},{SIDE}", "--chunk", f"1,{SIDE},{SIDE}", "--dtype", "<u2"], check=True)
    return path


def make_dense(path, frames=FRAMES):
    with h5py.File(str(path), "w", libver="latest") as f:
        f.create_dataset("data", (frames, SIDE, SIDE), "<u2", chunks=(1, SIDE, SIDE), compression="gzip",
                         maxshape=(None, SIDE, SIDE))
    return path


def frame(mount, name, number=0):
    return (mount / f"{name}/data/frames/{number}.raw").read_bytes()


def write(mount, name, seed, number=0):
    (mount / f"{name}/data/frames/{number}.raw").write_bytes(value_of(seed))


def stats(mount):
    return json.loads((mount / ".sparsefs/stats.json").read_text())


def sync(path):
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def refusal(action, *arguments):
    with pytest.raises(OSError) as refused:
        action(*arguments)
    return refused.value.errno


def others_read(path):
    """As h5py does, in a process of its own."""
    return subprocess.run([sys.executable, "-c", "import h5py, sys; h5py.File(sys.argv[1], 'r')['/']", str(path)],
                          capture_output=True, check=False).returncode == 0


def neighbours(path):
    return sorted(p.name for p in path.parent.iterdir() if p.name.startswith(path.name))


def dense_frames(path):
    with h5py.File(str(path), "r") as f:
        return f["data"][...]


def sparse_frames(mounts, path):
    mount = mounts(path)
    return np.fromfile(mount / "data/stack.raw", "<u2").reshape(-1, SIDE, SIDE)


@pytest.fixture
def folder(tmp_path):
    path = tmp_path / "folder"
    path.mkdir()
    return path


def test_whatever_a_file_takes(mounts, folder):
    """As in a mount of it: bytes, truncations, holes, selections, new frames, files of programs, groups, times."""
    (folder / "sub").mkdir()
    path = make_sparse(folder / "sub/run.h5")
    mount = mounts(folder, "default")
    data = mount / "sub/run.h5/data"
    rng = np.random.default_rng(5)
    frames = rng.integers(1, 60000, (6, SIDE, SIDE)).astype("<u2")
    (data / "frames/0.raw").write_bytes(frames[0].tobytes())
    np.save(data / "npy/000001.npy", frames[1])
    (data / "frames/.2.raw.tmp").write_bytes(frames[2].tobytes())
    assert os.listdir(data / "frames").count(".2.raw.tmp") == 1
    os.replace(data / "frames/.2.raw.tmp", data / "frames/2.raw")
    (data / "frames/3.raw").write_bytes(frames[3].tobytes())
    os.truncate(data / "frames/3.raw", SIDE * 2)
    frames[3][1:] = 0
    shutil.copy(data / "frames/0.raw", data / "frames/4.raw")
    frames[4] = frames[0]
    (data / "frames/5.defined").write_bytes((data / "frames/3.defined").read_bytes())
    frames[5] = 0
    with open(data / "frames/4.raw", "r+b") as f:
        f.seek(2 * SIDE * 3)
        f.write(frames[5][0].tobytes())
        os.fsync(f.fileno())
    frames[4][3] = 0
    os.mkdir(mount / "sub/run.h5/group")
    os.mkdir(mount / "sub/run.h5/group/inner")
    os.mkdir(mount / "sub/run.h5/gone")
    os.rmdir(mount / "sub/run.h5/gone")
    os.utime(data / "frames/1.raw", (1000, 2000))
    assert os.stat(data / "frames/1.raw").st_mtime == 2000
    subprocess.run(["fallocate", "--punch-hole", "--offset", "0", "--length", str(2 * SIDE), data / "frames/1.raw"],
                   check=True)
    frames[1][0] = 0
    assert (data / "stack.raw").read_bytes() == frames.tobytes()
    assert sorted(os.listdir(mount / "sub/run.h5")) == ["data", "group"]
    mount.unmount()
    assert os.listdir(folder / "sub") == ["run.h5"]
    assert np.array_equal(sparse_frames(mounts, path), frames)
    with h5py.File(str(path), "r") as f:
        assert sorted(f["group"]) == ["inner"]


def test_in_the_root_of_the_folder(mounts, folder):
    """A group in the root group, by names of the folder and of the file."""
    make_dense(folder / "a.h5")
    mount = mounts(folder, "default")
    os.mkdir(mount / "a.h5/group")
    assert refusal(os.mkdir, mount / "a.h5/group") == errno.EEXIST
    assert refusal(os.rmdir, mount / "a.h5/data") == errno.EPERM
    sync(mount / "a.h5")
    os.mkdir(mount / "a.h5/group/.sparsefs")
    os.mkdir(mount / "a.h5/.sparsefs")
    os.rmdir(mount / "a.h5/.sparsefs")
    mount.unmount()
    with h5py.File(str(folder / "a.h5"), "r") as f:
        assert sorted(f) == ["data", "group"] and list(f["group"]) == [".sparsefs"]


def test_all_else_is_read_only(mounts, folder):
    path = make_dense(folder / "a.h5")
    path.chmod(0o644)
    (folder / "notes").write_text("x")
    (folder / "sub").mkdir()
    os.symlink("notes", folder / "link")
    before = path.read_bytes()
    mount = mounts(folder, "default")
    for action in (lambda: open(mount / "notes", "r+b"), lambda: open(mount / "new", "wb"),
                   lambda: os.mkdir(mount / "d"), lambda: os.mkdir(mount / "sub/d"), lambda: os.unlink(mount / "notes"),
                   lambda: os.rename(mount / "notes", mount / "n"), lambda: os.rename(mount / "a.h5", mount / "b.h5"),
                   lambda: os.chmod(mount / "notes", 0o600), lambda: os.utime(mount / "sub", (1, 1)),
                   lambda: os.rmdir(mount / "a.h5"), lambda: os.rmdir(mount / "sub"), lambda: os.unlink(mount / "link"),
                   lambda: os.symlink("x", mount / "l"), lambda: os.truncate(mount / "notes", 0),
                   lambda: os.mknod(mount / "node"), lambda: os.setxattr(mount / "notes", "user.a", b"x"),
                   lambda: open(mount / ".sparsefs/pid", "r+b"), lambda: os.mkdir(mount / ".sparsefs/d")):
        assert refusal(action) in REFUSED
    assert "make, change and remove files in the folder itself" in mount.log()
    assert refusal(os.link, mount / "notes", mount / "sub/notes") in (errno.EXDEV, *REFUSED)
    assert os.stat(mount / "a.h5").st_mode & 0o777 == 0o755
    for name in ("notes", "sub", ""):
        assert os.stat(mount / name).st_mode & 0o222 == 0
    assert stats(mount)["read_only"] == 0 and stats(mount)["lock"] == "none"
    mount.unmount()
    assert path.read_bytes() == before and sorted(os.listdir(folder)) == ["a.h5", "link", "notes", "sub"]


def test_rw_is_refused(run, folder, tmp_path):
    """No file is open from the start on."""
    (tmp_path / "mnt").mkdir()
    refused = run("-f", "-o", "rw", folder, tmp_path / "mnt")
    assert refused.returncode == 1 and "leave out rw" in refused.stderr


# ---- Locks ----


def test_looking_shuts_nobody_out(mounts, folder):
    paths = [make_dense(folder / "dense.h5"), make_sparse(folder / "sparse.h5")]
    before = [path.read_bytes() for path in paths]
    mount, other = mounts(folder, "default"), mounts(folder, "default")
    for path in paths:
        assert frame(mount, path.name) == frame(other, path.name) == bytes(2 * SIDE * SIDE)
        assert others_read(path)
    assert stats(mount)["lock"] == "shared"
    mount.unmount()
    other.unmount()
    assert [path.read_bytes() for path in paths] == before
    assert sorted(os.listdir(folder)) == ["dense.h5", "sparse.h5"]


@pytest.mark.parametrize("make", [make_dense, make_sparse])
def test_who_writes_has_that_file_alone(mounts, folder, make):
    """And gives it back when nothing is written any more."""
    path, next_to_it = make(folder / "a.h5"), make(folder / "b.h5")
    mount = mounts(folder, "default", "commit_interval=1")
    with open(mount / "a.h5/data/frames/2.raw", "r+b") as opened:
        assert stats(mount)["lock"] == "exclusive"
        opened.write(value_of(7))
        opened.flush()
        os.fsync(opened.fileno())
        assert stats(mount)["store_commits"] > 0
        assert not others_read(path) and others_read(next_to_it)
    wait_until(lambda: stats(mount)["lock"] == "shared")
    assert neighbours(path) == ["a.h5"] and others_read(path)
    assert frame(mounts(folder, "ro"), "a.h5", 2) == value_of(7)


def test_a_file_that_others_have_open(mounts, folder):
    make_sparse(folder / "a.h5")
    make_sparse(folder / "b.h5")
    mount = mounts(folder, "default", expect_log=True)
    other = mounts(folder / "a.h5", "ro")
    assert refusal(write, mount, "a.h5", 1) == errno.EBUSY
    assert refusal(os.mkdir, mount / "a.h5/group") == errno.EBUSY
    assert refusal(os.truncate, mount / "a.h5/data/frames/1.raw", 0) == errno.EBUSY
    assert f"a.h5: another program has it open: sparsefs (process {other.process.pid})" in mount.log()
    write(mount, "b.h5", 2)
    other.unmount()
    write(mount, "a.h5", 1)
    sync(mount.root)
    assert (frame(mount, "a.h5"), frame(mount, "b.h5")) == (value_of(1), value_of(2))


def test_two_mounts_of_a_folder(mounts, folder):
    """Each writes another file."""
    for name in "ab":
        make_sparse(folder / f"{name}.h5")
    one, two = mounts(folder, "default", expect_log=True), mounts(folder, "default", expect_log=True)
    write(one, "a.h5", 1)
    write(two, "b.h5", 2)
    assert refusal(frame, one, "b.h5") == refusal(frame, two, "a.h5") == errno.EBUSY
    one.unmount()
    two.unmount()
    mount = mounts(folder)
    assert (frame(mount, "a.h5"), frame(mount, "b.h5")) == (value_of(1), value_of(2))


# ---- More files than are open ----


def test_many_files_in_turn(mounts, folder):
    """Some with fsync, most without: all are as they were written."""
    n = 60
    for i in range(n):
        (make_dense if i % 2 else make_sparse)(folder / f"{i}.h5", 2)
    mount = mounts(folder, "default", "max_open=4")
    for i in range(n):
        write(mount, f"{i}.h5", i)
        assert stats(mount)["files_open"] <= 4
        if i % 7 == 0:
            sync(mount / f"{i}.h5/data/frames/0.raw")
    for i in range(0, n, 3):
        write(mount, f"{i}.h5", i + 1000, 1)
        assert frame(mount, f"{i}.h5") == value_of(i)
    mount.unmount()
    assert sorted(os.listdir(folder)) == sorted(f"{i}.h5" for i in range(n))
    sparse = mounts(folder)
    for i in range(n):
        expected = [value_of(i), value_of(i + 1000) if i % 3 == 0 else bytes(2 * SIDE * SIDE)]
        if i % 2:
            assert dense_frames(folder / f"{i}.h5").tobytes() == b"".join(expected)
        else:
            assert [frame(sparse, f"{i}.h5", k) for k in range(2)] == expected


def test_many_writers_and_readers(mounts, folder):
    """Of more files than can be open, at once; some over and over."""
    n, rounds = 12, 6
    for i in range(n):
        (make_dense if i % 2 else make_sparse)(folder / f"{i}.h5", rounds)
    mount = mounts(folder, "default", "max_open=5,commit_interval=1")

    def work(i):
        for k in range(rounds):
            write(mount, f"{i}.h5", i * 100 + k, k)
            if (i + k) % 3 == 0:
                sync(mount / f"{i}.h5/data/frames/{k}.raw")
            assert frame(mount, f"{i}.h5", k) == value_of(i * 100 + k)
            assert frame(mount, f"{(i + 5) % n}.h5", 0) in (bytes(2 * SIDE * SIDE), value_of((i + 5) % n * 100))

    with concurrent.futures.ThreadPoolExecutor(4) as pool:
        list(pool.map(work, range(n)))
    sync(mount.root)
    mount.unmount()
    mount = mounts(folder)
    for i in range(n):
        assert [frame(mount, f"{i}.h5", k) for k in range(rounds)] == [value_of(i * 100 + k) for k in range(rounds)]


def test_two_processes_write_two_files(mounts, folder):
    code = """
import os, sys
for k in range(int(sys.argv[3])):
    with open(f"{sys.argv[1]}/data/frames/{k}.raw", "wb") as f:
        f.write(bytes([int(sys.argv[2]), k]) * 256)
        f.flush()
        os.fsync(f.fileno())
"""
    n = 20
    for i in range(3):
        make_sparse(folder / f"{i}.h5", n)
    mount = mounts(folder, "default", "max_open=2")
    writers = [subprocess.Popen([sys.executable, "-c", code, mount / f"{i}.h5", str(i + 1), str(n)]) for i in range(2)]
    reads = 0
    while any(w.poll() is None for w in writers) or not reads:
        try:
            assert frame(mount, "2.h5") == bytes(2 * SIDE * SIDE)
            reads += 1
        except OSError as error:  # both of the two are being written
            assert error.errno == errno.ENFILE
            reads += 1
    assert [w.wait() for w in writers] == [0, 0]
    mount.process.kill()
    mount.wait()
    mount.umount("-l")
    mount.process.returncode = 0
    mount.expect_log = True
    again = mounts(folder, expect_log=True)
    for i in range(2):
        assert [frame(again, f"{i}.h5", k) for k in range(n)] == [bytes([i + 1, k]) * 256 for k in range(n)]


def test_what_is_in_use_stays_open(mounts, folder):
    """Handles and temporary files; what is written stays as it is through them."""
    for i in range(3):
        make_sparse(folder / f"{i}.h5")
    mount = mounts(folder, "default", "max_open=2", expect_log=True)
    temporary = mount / "1.h5/data/frames/.tmp"
    temporary.write_bytes(value_of(11))
    with open(mount / "0.h5/data/frames/0.raw", "r+b", buffering=0) as f:
        f.write(value_of(10))
        assert refusal(frame, mount, "2.h5") == errno.ENFILE
        assert "max_open" in mount.log()
        f.seek(0)
        f.write(value_of(12))
        os.fsync(f.fileno())
    wait_until(lambda: can(frame, mount, "2.h5"))
    os.rename(temporary, mount / "1.h5/data/frames/1.raw")
    wait_until(lambda: can(frame, mount, "0.h5"))
    assert (frame(mount, "0.h5"), frame(mount, "1.h5", 1)) == (value_of(12), value_of(11))
    wait_until(lambda: can(frame, mount, "2.h5"))


OPEN = """
import os, sys
user, flags = int(sys.argv[1]), int(sys.argv[2])
os.setgroups([])
os.setgid(user)
os.setuid(user)
opened = []
try:
    for path in sys.argv[3:]:
        opened.append(os.open(path, flags))
    print(len(opened), 0, flush=True)
except OSError as error:
    print(len(opened), error.errno, flush=True)
sys.stdin.read()
"""


class Opener:
    """A user who opens a name in each of some files, and keeps it open until he is told to close."""

    def __init__(self, user, mount, files, name="0.raw", flags=os.O_RDONLY):
        paths = [mount / f"{i}.h5/data/frames/{name}" for i in files]
        self.process = subprocess.Popen([sys.executable, "-c", OPEN, str(user), str(flags), *paths], text=True,
                                        stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        self.opened, self.errno = map(int, self.process.stdout.readline().split())

    def close(self):
        self.process.communicate()


@pytest.fixture
def openers(mounts):
    """Makes such users, none of whom outlives the test."""
    made = []

    def make(*arguments, **how):
        made.append(Opener(*arguments, **how))
        return made[-1]

    yield make
    for opener in made:
        opener.process.kill()
        opener.close()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root has several users")
@pytest.mark.parametrize("leaves", [False, True])
def test_nobody_keeps_others_from_all_files(mounts, openers, folder, leaves):
    """By what he has open, or (leaves) by temporary files that no process has open: alone each user has max_open
    files, root too, of many users nobody has more than is left."""
    n, users = 9, (61231, 61232, 61233, 61234, 61235)
    for i in range(n):
        make_dense(folder / f"{i}.h5", 1).chmod(0o666)
    let_in(folder)
    mount = mounts(folder, "default", "max_open=2", "allow_other", expect_log=True)
    how = {"name": "x.tmp", "flags": os.O_RDWR | os.O_CREAT} if leaves else {}
    opened = []

    def opens(user, *files, **how):
        opened.append(openers(user, mount, files, **how))
        if leaves:
            opened[-1].close()
        return opened[-1].opened, opened[-1].errno

    assert opens(users[0], 0, 1, 2, **how) == (2, errno.ENFILE)
    assert f"user {users[0]} has 2 HDF5 files in use" in mount.log() and "max_open" in mount.log()
    if leaves:
        assert opens(users[0], 0, 1) == (2, 0)  # he goes on in those
    assert frame(mount, "8.h5") == bytes(2 * SIDE * SIDE)
    how["name"] = "y.tmp" if leaves else "0.raw"
    assert opens(users[1], 0, 1, **how) == (2, 0)  # in files that are open already, too
    how["name"] = "z.tmp" if leaves else "0.raw"
    assert opens(users[2], 2, 3, **how) == (2, 0)
    assert opens(users[3], 4, 5, **how) == (1, errno.ENFILE)
    assert opens(users[4], 5, **how) == (1, 0)
    write(mount, "8.h5", 5)
    sync(mount / "8.h5")
    assert stats(mount)["files_open"] == 7
    while opened:
        opened.pop().close()
    for i in range(n) if leaves else []:
        for path in (mount / f"{i}.h5/data/frames").glob("*.tmp"):
            path.unlink()
    wait_until(lambda: [can(frame, mount, f"{i}.h5") for i in range(n)] == [True] * n and
               stats(mount)["files_open"] <= 2)
    assert opens(users[4], 0, 1) == (2, 0) and frame(mount, "8.h5") == value_of(5)
    opened.pop().close()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root has several users")
@pytest.mark.parametrize("end", ["becomes a frame", "is removed", "is replaced"])
def test_who_reads_a_temporary_file_keeps_its_maker_from_none(mounts, openers, folder, end):
    """It counts for who made it as long as it has a name; then for those who have it open."""
    maker, reader = 61231, 61232
    for i in range(3):
        make_dense(folder / f"{i}.h5", 1).chmod(0o666)
    let_in(folder)
    mount = mounts(folder, "default", "max_open=1", "allow_other", expect_log=True)
    openers(maker, mount, [0], name="x.tmp", flags=os.O_RDWR | os.O_CREAT).close()
    temporary = mount / "0.h5/data/frames/x.tmp"
    temporary.write_bytes(value_of(5))
    reading = openers(reader, mount, [0], name="x.tmp")
    assert (reading.opened, reading.errno) == (1, 0)
    refused = openers(maker, mount, [1])
    assert (refused.opened, refused.errno) == (0, errno.ENFILE)
    if end == "becomes a frame":
        temporary.rename(temporary.with_name("0.raw"))
        assert frame(mount, "0.h5") == value_of(5)
    elif end == "is removed":
        temporary.unlink()
    else:
        other = temporary.with_name("y.tmp")
        other.write_bytes(b"of root")
        other.rename(temporary)
    makers = openers(maker, mount, [1])
    assert (makers.opened, makers.errno) == (1, 0)
    refused = openers(reader, mount, [2])
    assert (refused.opened, refused.errno) == (0, errno.ENFILE)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root has several users")
def test_who_opens_files_of_csr_keeps_nobody_else_from_files(mounts, openers, folder):
    """What waits there counts for who has written last, and only while nobody has any of them open."""
    one, other = 61231, 61232
    for i in range(4):
        make_sparse(folder / f"{i}.h5").chmod(0o666)
    let_in(folder)
    mount = mounts(folder, "default", "max_open=1", "allow_other", expect_log=True)

    def opens(user, i, what="indptr", flags=os.O_RDWR):
        opener = openers(user, mount, [i], name=f"../csr/{what}.raw", flags=flags)
        assert opener.opened == 1 or opener.errno == errno.ENFILE
        return opener if opener.opened else None

    def may_open(user, i):
        opener = opens(user, i)
        if opener:
            opener.close()
        return opener is not None

    def overwrites(user, what):
        opener = opens(user, 0, what, os.O_WRONLY | os.O_TRUNC)
        assert opener
        opener.close()

    begins, follows = opens(one, 0), opens(other, 0, "data")
    assert begins and follows and not may_open(one, 1)
    begins.close()
    wait_until(lambda: may_open(one, 1))
    assert not may_open(other, 2)
    overwrites(one, "indptr")
    wait_until(lambda: may_open(one, 1))
    follows.close()  # who has written nothing
    wait_until(lambda: may_open(other, 2))
    assert not may_open(one, 1)
    overwrites(other, "data")
    wait_until(lambda: may_open(one, 1))
    assert not may_open(other, 2)
    for what in ("indptr", "indices", "data"):  # nothing waits any more
        array = np.zeros(FRAMES + 1 if what == "indptr" else 0, "<i8")
        (mount / f"0.h5/data/csr/{what}.raw").write_bytes(array.tobytes())
    wait_until(lambda: may_open(one, 1) and may_open(other, 2))


def end_file(folder, how):
    """0.h5 is removed, replaced (by 2.h5), or renamed."""
    if how == "replaced":
        (folder / "2.h5").rename(folder / "0.h5")
    elif how == "renamed":
        (folder / "0.h5").rename(folder / "other.h5")
    else:
        (folder / "0.h5").unlink()


def is_open_and_deleted(mount, name):
    return any(os.path.realpath(fd).endswith(f"{name} (deleted)")
               for fd in pathlib.Path(f"/proc/{mount.process.pid}/fd").iterdir())


@pytest.mark.skipif(os.geteuid() != 0, reason="only root has several users")
@pytest.mark.parametrize("how", ["removed", "replaced", "renamed"])
def test_temporary_files_in_a_file_that_is_gone(mounts, openers, folder, how):
    """Nobody could remove them: they are lost, and keep nobody from other files. Who has one open reads on; after
    him the file is closed."""
    maker = 61231
    for i in range(3):
        make_dense(folder / f"{i}.h5", 1).chmod(0o666)
    let_in(folder)
    mount = mounts(folder, "default", "max_open=1", "commit_interval=1", "allow_other", expect_log=True)
    openers(maker, mount, [0], name="x.tmp", flags=os.O_RDWR | os.O_CREAT).close()
    temporary = mount / "0.h5/data/frames/x.tmp"
    temporary.write_bytes(value_of(5))

    def may_open():
        opener = openers(maker, mount, [1])
        opener.close()
        assert opener.opened == 1 or opener.errno == errno.ENFILE
        return opener.opened == 1

    assert not may_open()
    with open(temporary, "rb", buffering=0) as reading:
        if how != "renamed":
            end_file(folder, how)
            wait_until(may_open)
        assert reading.read(1000) == value_of(5)
    if how == "renamed":
        end_file(folder, how)
        wait_until(lambda: not temporary.exists())  # which the kernel has to hear before it forgets what was there
        wait_until(may_open)
    assert "renamed: 1 temporary file, renamed to no frame: 0.h5/data: x.tmp (512 bytes)" in mount.log()
    wait_until(lambda: not temporary.exists() and not is_open_and_deleted(mount, "0.h5"))


@pytest.mark.skipif(os.geteuid() != 0, reason="only root has several users")
@pytest.mark.parametrize("how", ["removed", "removed while it is open", "replaced", "renamed"])
def test_what_waits_of_csr_in_a_file_that_is_gone(mounts, openers, folder, how):
    """Nobody could reach it: it is lost, unless somebody has it open, and keeps its writer from no other file."""
    writer = 61231
    for i in range(3):
        make_sparse(folder / f"{i}.h5").chmod(0o666)
    let_in(folder)
    mount = mounts(folder, "default", "max_open=1", "commit_interval=1", "allow_other", expect_log=True)
    openers(writer, mount, [0], name="../csr/indptr.raw", flags=os.O_WRONLY | os.O_TRUNC).close()
    waits = mount / "0.h5/data/csr/indptr.raw"

    def may_open():
        opener = openers(writer, mount, [1])
        opener.close()
        assert opener.opened == 1 or opener.errno == errno.ENFILE
        return opener.opened == 1

    wait_until(lambda: waits.stat().st_size == 0)
    assert not may_open() and "files of csr that wait" in mount.log()
    if how == "removed while it is open":
        with open(waits, "r+b", buffering=0) as opened:
            end_file(folder, how)
            time.sleep(2.5)  # it is looked for what is lost
            assert opened.read(1) == b"" and "lost" not in mount.log()
    else:
        end_file(folder, how)
    if how == "renamed":
        wait_until(lambda: not waits.exists())  # which the kernel has to hear before it forgets what was there
    wait_until(may_open)
    assert "renamed, and what was written is lost, as it did not fit the other files of csr: csr/indptr.raw" \
        in mount.log()
    wait_until(lambda: not is_open_and_deleted(mount, "0.h5"))


def test_temporary_files_in_a_file_that_is_renamed(mounts, folder):
    """Who has their directory goes on."""
    make_dense(folder / "a.h5", 1)
    mount = mounts(folder, "default", "commit_interval=1", expect_log=True)
    temporary = mount / "a.h5/data/frames/x.tmp"
    temporary.write_bytes(value_of(5))
    at = os.open(temporary.parent, os.O_PATH)
    (folder / "a.h5").rename(folder / "b.h5")
    wait_until(lambda: not temporary.exists())
    time.sleep(2.5)  # it is looked for what is lost
    os.rename("x.tmp", "0.raw", src_dir_fd=at, dst_dir_fd=at)
    os.close(at)
    assert "lost" not in mount.log()
    wait_until(lambda: can(frame, mount, "b.h5"))
    assert frame(mount, "b.h5") == value_of(5)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root gives away")
@pytest.mark.parametrize("is_open", [False, True])
def test_a_directory_of_other_owners_stays_what_it_is(mounts, folder, is_open):
    """Files in it go on as they are, as nothing of them was changed."""
    (folder / "sub").mkdir(mode=0o775)
    make_dense(folder / "sub/a.h5", 1)
    let_in(folder)
    mount = mounts(folder, "default", "allow_other", "commit_interval=1")
    temporary = mount / "sub/a.h5/data/frames/x.tmp"
    with open(temporary, "wb", buffering=0) as file:
        file.write(value_of(5))
        if not is_open:
            file.close()
        os.chown(folder / "sub", 1234, 1235)
        wait_until(lambda: (os.stat(mount / "sub").st_uid, os.stat(mount / "sub").st_gid) == (1234, 1235))
        time.sleep(2.5)  # it is looked for what is lost
        os.mkdir(mount / "sub/a.h5/group")
        temporary.rename(temporary.with_name("0.raw"))
    assert frame(mount, "sub/a.h5") == value_of(5)


ASK = """
import os, sys
print("asks", flush=True)
os.getxattr(sys.argv[1], "user.number")
"""


@pytest.mark.skipif(os.geteuid() != 0, reason="only root has several users")
def test_requests_that_take_long_keep_nobody_else_from_files(mounts, openers, folder):
    """They count for who makes them, although nothing is open by them."""
    user, other = 61231, 61232
    for i in range(4):
        with h5py.File(make_dense(folder / f"{i}.h5", 1), "r+") as file:
            file["data"].attrs["number"] = i
        (folder / f"{i}.h5").chmod(0o644)
    let_in(folder)
    mount = mounts(folder, "default", "max_open=1", "hdf5_timeout=600", "allow_other", expect_log=True)
    os.stat(mount / "0.h5/data")
    for worker in workers(mount):
        os.kill(worker, signal.SIGSTOP)
    asking = []
    ends = threading.Timer(START_SECONDS, lambda: [process.kill() for process in asking])
    ends.start()
    try:
        for i in range(2):
            asking.append(subprocess.Popen([sys.executable, "-c", ASK, mount / f"{i}.h5/data"], user=user, group=user,
                                           extra_groups=[], cwd="/", stdout=subprocess.PIPE, stderr=subprocess.DEVNULL))
            assert asking[i].stdout.readline() == b"asks\n"
            wait_until(lambda: state_of(asking[i].pid) == "S")
            time.sleep(.5)  # the longer the more surely it is asked
        for who, files in (other, [2]), (0, [3]):
            opener = openers(who, mount, files)
            assert (opener.opened, opener.errno) == (1, 0)
            assert [process.poll() for process in asking] == [None, None]
        assert stats(mount)["files_open"] == 3
    finally:
        ends.cancel()
        for process in asking:
            process.kill()
            process.communicate()


def can(action, *arguments):
    try:
        action(*arguments)
    except OSError:
        return False
    return True


def test_by_inodes_of_files_that_were_closed(mounts, folder):
    """The kernel knows the inodes: they are of the same frames when the file was written and closed."""
    for i in range(3):
        make_sparse(folder / f"{i}.h5")
    mount = mounts(folder, "default", "max_open=1")
    inside = [os.open(mount / f"{i}.h5/data", os.O_PATH) for i in range(3)]
    for k in range(3):
        for i, at in enumerate(inside):
            with os.fdopen(os.open(f"frames/{k}.raw", os.O_WRONLY | os.O_TRUNC, dir_fd=at), "wb") as f:
                f.write(value_of(10 * i + k))
    for i, at in enumerate(inside):
        with os.fdopen(os.open("stack.raw", os.O_RDONLY, dir_fd=at), "rb") as f:
            assert f.read() == b"".join(value_of(10 * i + k) for k in range(3)) + bytes(2 * SIDE * SIDE)
        os.close(at)


def test_a_temporary_file_of_another_file(mounts, folder):
    """Names are renamed in one file; mv copies."""
    for name in "ab":
        make_sparse(folder / f"{name}.h5")
    mount = mounts(folder, "default")
    source = mount / "a.h5/data/frames/.tmp"
    source.write_bytes(value_of(5))
    assert refusal(os.rename, source, mount / "b.h5/data/frames/0.raw") == errno.EXDEV
    assert refusal(os.rename, source, mount / "tmp") in (errno.EXDEV, *REFUSED)
    subprocess.run(["mv", source, mount / f"b.h5/data/frames/{FRAMES}.raw"], check=True)
    assert frame(mount, "b.h5", FRAMES) == value_of(5)
    assert ".tmp" not in os.listdir(mount / "a.h5/data/frames")


# ---- What others do ----


def test_a_file_that_is_replaced(mounts, folder):
    """Nothing is written to what has its name by then, and its writer is told."""
    make_sparse(folder / "a.h5")
    make_dense(folder / "new")
    mount = mounts(folder, "default", "commit_interval=0", expect_log=True)
    f = os.open(mount / "a.h5/data/frames/0.raw", os.O_RDWR)
    os.write(f, value_of(3))
    os.fsync(f)
    os.pwrite(f, value_of(4), 0)
    os.rename(folder / "new", folder / "a.h5")
    before = (folder / "a.h5").read_bytes()
    assert refusal(os.fsync, f) == errno.ESTALE
    assert "removed or replaced" in mount.log()
    os.close(f)
    wait_until(lambda: frame(mount, "a.h5") == bytes(2 * SIDE * SIDE))
    assert (folder / "a.h5").read_bytes() == before and "a.h5.journal" not in os.listdir(folder)
    write(mount, "a.h5", 9, 1)
    sync(mount / "a.h5")
    assert dense_frames_of_mount(mount, "a.h5")[1].tobytes() == value_of(9)
    mount.umount()
    assert mount.wait() == 2 and "is lost" in mount.log()
    mount.process.returncode = 0
    assert dense_frames(folder / "a.h5")[1].tobytes() == value_of(9)


def dense_frames_of_mount(mount, name):
    return np.fromfile(mount / f"{name}/data/stack.raw", "<u2").reshape(-1, SIDE, SIDE)


def test_a_file_that_is_renamed(mounts, folder):
    """What was written goes with it."""
    make_sparse(folder / "a.h5")
    (folder / "sub").mkdir()
    mount = mounts(folder, "default", "commit_interval=0", expect_log=True)
    f = os.open(mount / "a.h5/data/frames/0.raw", os.O_RDWR)
    os.write(f, value_of(3))
    os.rename(folder / "a.h5", folder / "sub/b.h5")
    os.fsync(f)
    os.close(f)
    mount.unmount()
    assert sorted(p.name for p in folder.rglob("*")) == ["b.h5", "sub"]
    assert frame(mounts(folder), "sub/b.h5") == value_of(3)


def test_changed_by_others_while_it_is_closed(mounts, folder):
    """By an inode of before nothing is written."""
    for name in "ab":
        make_dense(folder / f"{name}.h5")
    mount = mounts(folder, "default", "max_open=1")
    write(mount, "a.h5", 1)
    at = os.open(mount / "a.h5/data", os.O_PATH)
    assert frame(mount, "b.h5") == bytes(2 * SIDE * SIDE)
    with h5py.File(str(folder / "a.h5"), "a") as f:
        del f["data"]
        f["other"] = np.arange(3 * SIDE * SIDE, dtype="<u2").reshape(3, SIDE, SIDE)
    with pytest.raises(OSError) as stale:
        os.open("frames/0.raw", os.O_WRONLY, dir_fd=at)
    assert stale.value.errno in (errno.ESTALE, errno.ENOENT)
    os.close(at)
    wait_until(lambda: (mount / "a.h5/other").is_dir())
    (mount / "a.h5/other/frames/1.raw").write_bytes(value_of(6))
    mount.unmount()
    with h5py.File(str(folder / "a.h5"), "r") as f:
        assert f["other"][1].tobytes() == value_of(6) and f["other"][2, 0, 0] == 2 * SIDE * SIDE


def test_changed_by_others_while_it_is_open(mounts, folder):
    """By a program that knows no locks: nothing is written before it was opened again."""
    path = make_sparse(folder / "a.h5")
    mount = mounts(folder, "default", "commit_interval=1", expect_log=True)
    assert frame(mount, "a.h5") == bytes(2 * SIDE * SIDE)
    with open(path, "ab") as f:
        f.write(bytes(100))
    assert refusal(write, mount, "a.h5", 1) in (errno.EBUSY, errno.ESTALE)
    wait_until(lambda: can(write, mount, "a.h5", 1))
    assert frame(mount, "a.h5") == value_of(1)


def test_other_names(mounts, folder):
    """A file that was renamed is written by its new name, and one with two names by both."""
    make_sparse(folder / "a.h5")
    (folder / "done").mkdir()
    mount = mounts(folder, "default", expect_log=True)
    write(mount, "a.h5", 1)
    os.rename(folder / "a.h5", folder / "done/a.h5")
    wait_until(lambda: can(write, mount, "done/a.h5", 2, 1))
    assert (frame(mount, "done/a.h5"), frame(mount, "done/a.h5", 1)) == (value_of(1), value_of(2))
    os.link(folder / "done/a.h5", folder / "b.h5")
    for k in range(2, 4):
        wait_until(lambda: can(write, mount, ("b.h5", "done/a.h5")[k % 2], k + 1, k))
    mount.unmount()
    assert [frame(mounts(folder), "b.h5", k) for k in range(4)] == [value_of(k + 1) for k in range(4)]


def test_a_file_that_is_removed(mounts, folder):
    """It is closed soon when all was committed: its blocks are free then."""
    make_sparse(folder / "a.h5")
    mount = mounts(folder, "default", "commit_interval=1", expect_log=True)
    write(mount, "a.h5", 1)
    sync(mount / "a.h5")
    os.unlink(folder / "a.h5")
    wait_until(lambda: not (mount / "a.h5").exists() and stats(mount)["files_open"] == 0)


def test_times_are_those_of_the_file(mounts, folder):
    """However many files come and go: what was set for a frame is shown of that alone."""
    make_dense(folder / "template", 1)
    mount = mounts(folder, "default", "max_open=2", expect_log=True)
    for i in range(12):
        path = folder / f"{i}.h5"
        shutil.copy(folder / "template", path)
        os.utime(path, (3000, 3000))
        wait_until((mount / path.name).is_dir)
        view = mount / f"{i}.h5/data/frames/0.raw"
        assert os.stat(view).st_mtime == 3000
        view.write_bytes(value_of(i))
        os.utime(view, (1000, 2000))
        assert os.stat(view).st_mtime == 2000
        sync(mount / path.name)
        os.unlink(path)
        wait_until(lambda: not (mount / path.name).exists())


def test_changed_by_others_and_closed(mounts, folder):
    """The same, and then it is closed: what was known of it counts for nothing."""
    path = make_dense(folder / "a.h5")
    make_dense(folder / "b.h5")
    mount = mounts(folder, "default", "max_open=1", environment={"HDF5_USE_FILE_LOCKING": "FALSE"}, expect_log=True)
    write(mount, "a.h5", 1)
    at = os.open(mount / "a.h5/data", os.O_PATH)
    assert frame(mount, "b.h5") == bytes(2 * SIDE * SIDE)
    assert frame(mount, "a.h5") == value_of(1)  # open again, as it was left
    with open(path, "ab") as f:
        f.write(bytes(8))
    assert frame(mount, "b.h5") == bytes(2 * SIDE * SIDE)
    with pytest.raises(OSError) as stale:
        os.open("frames/0.raw", os.O_WRONLY, dir_fd=at)
    os.close(at)
    assert stale.value.errno == errno.ESTALE
    wait_until(lambda: can(write, mount, "a.h5", 2, 1))
    assert (frame(mount, "a.h5"), frame(mount, "a.h5", 1)) == (value_of(1), value_of(2))


def test_a_directory_that_becomes_a_link(mounts, folder):
    """Somebody who may write in the folder must not lead the daemon out of it."""
    secret = folder.parent / "secret"
    secret.mkdir()
    (folder / "sub").mkdir()
    make_sparse(folder / "sub/a.h5")
    os.link(folder / "sub/a.h5", secret / "a.h5")
    shutil.copy(folder / "sub/a.h5", secret / "b.h5")
    before = (secret / "b.h5").read_bytes()
    mount = mounts(folder, "default", "max_open=1", expect_log=True)
    f = os.open(mount / "sub/a.h5/data/frames/0.raw", os.O_RDWR)
    os.rename(folder / "sub", folder / "was")
    (folder / "sub").symlink_to(secret)
    os.write(f, value_of(1))
    os.fsync(f)
    assert (folder / "was/a.h5.journal").exists() and sorted(os.listdir(secret)) == ["a.h5", "b.h5"]
    os.close(f)
    wait_until((mount / "sub").is_symlink)
    wait_until(lambda: can(write, mount, "was/a.h5", 2, 1) or sorted(os.listdir(secret)) != ["a.h5", "b.h5"])
    mount.unmount()
    assert (secret / "b.h5").read_bytes() == before and sorted(os.listdir(secret)) == ["a.h5", "b.h5"]
    assert os.listdir(folder / "was") == ["a.h5"]
    assert frame(mounts(folder), "was/a.h5", 0) == value_of(1)


# ---- What cannot be written ----


def test_files_of_others(mounts, folder):
    """Without permission to write, or in a folder in which no journal can be made: they are read."""
    if os.geteuid():
        pytest.skip("only root can give files to others")
    user = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"]
    for above in [folder, *folder.parents]:
        if above != above.parent and not os.stat(above).st_mode & 0o001:
            above.chmod(0o755)
    (folder / "closed").mkdir()
    for name in ("mine.h5", "others.h5", "closed/mine.h5"):
        make_dense(folder / name)
        if "mine" in name:
            os.chown(folder / name, 65534, 65534)
    os.chown(folder, 65534, 65534)
    mountpoint = folder.parent / "mnt"
    mountpoint.mkdir()
    os.chown(mountpoint, 65534, 65534)
    if subprocess.run([*user, "test", "-x", SPARSEFS], check=False).returncode or not shutil.which("fusermount3") or \
            subprocess.run([*user, SPARSEFS, folder, mountpoint], check=False, capture_output=True).returncode:
        pytest.skip("no such user can mount here")
    code = """
import os, stat, sys
root = sys.argv[1]
def refused(name, flags=os.O_WRONLY):
    try:
        os.close(os.open(f"{root}/{name}/data/frames/0.raw", flags))
    except OSError as error:
        return error.errno
for name in ("mine.h5", "others.h5", "closed/mine.h5"):
    with open(f"{root}/{name}/data/frames/0.raw", "rb") as f:
        assert f.read() == bytes(512)
with open(f"{root}/mine.h5/data/frames/0.raw", "r+b") as f:
    f.write(b"ab" * 256)
    f.flush()
    os.fsync(f.fileno())
assert refused("others.h5") in (13, 30) and refused("closed/mine.h5") in (13, 30)
assert not os.stat(f"{root}/closed/mine.h5/data/frames/0.raw").st_mode & 0o222
"""
    try:
        subprocess.run([*user, sys.executable, "-c", code, mountpoint], check=True)
        log = subprocess.run([*user, "cat", mountpoint / ".sparsefs/log"], check=True, stdout=subprocess.PIPE,
                             universal_newlines=True).stdout
    finally:
        subprocess.run(["umount", "-i", "-l", mountpoint], check=True)
    assert "no journal can be made in its directory" in log
    wait_until(lambda: not is_mounted(mountpoint) and neighbours(folder / "mine.h5") == ["mine.h5"])
    assert dense_frames(folder / "mine.h5")[0].tobytes() == b"ab" * 256


@pytest.fixture(scope="module")
def settled(tmp_path_factory):
    """A folder that no test changes, of files of a while ago that can only be read, and others: what libhdf5 says of
    such ones is kept, and that they cannot be opened."""
    path = tmp_path_factory.mktemp("settled")
    for name, strategy in ("paged", h5py.h5f.FSPACE_STRATEGY_PAGE), ("persistent", h5py.h5f.FSPACE_STRATEGY_FSM_AGGR):
        creation = h5py.h5p.create(h5py.h5p.FILE_CREATE)
        creation.set_file_space_strategy(strategy, True, 1)
        with h5py.File(h5py.h5f.create(bytes(path / f"{name}.h5"), fcpl=creation)) as f:
            f["contiguous"] = np.full((FRAMES, SIDE, SIDE), 3, "<u2")
            f["contiguous"].attrs.update({f"number{i}": i for i in range(2)})
            f.create_dataset("data", data=f["contiguous"], chunks=(1, SIDE, SIDE))
            f["text"] = ["some", "words"]
    make_dense(path / "other.h5")
    changed = max(p.stat().st_ctime for p in path.iterdir())
    wait_until(lambda: time.time() > changed + 4)
    return path


@pytest.mark.parametrize("name", ["paged.h5", "persistent.h5"])
def test_what_can_only_be_read_is_closed_and_opened_again(mounts, settled, name):
    """It stays so, and all of it can be read."""
    before = (settled / name).read_bytes()
    mount = mounts(settled, "default", "max_open=1", expect_log=True)
    for i in range(2):
        assert os.listdir(mount / name) and frame(mount, "other.h5") == bytes(2 * SIDE * SIDE)
        assert os.getxattr(mount / name / "contiguous", f"user.number{i}") == str(i).encode()
        assert "words" in (mount / name / "text/value.txt").read_text()
        assert refusal(os.mkdir, mount / name / "group") in (errno.EROFS, errno.EACCES)  # the kernel refuses users
        for dataset in "contiguous", "data":
            view = mount / name / dataset / "frames/1.raw"
            assert refusal(view.write_bytes, value_of(i)) in REFUSED
            assert view.read_bytes() == value_of(2)
        sync(mount / name)
    mount.unmount()
    assert "can only be read" in mount.log() and "nothing can be changed" not in mount.log()
    assert (settled / name).read_bytes() == before


@pytest.mark.parametrize("mode", ["default", "ro"])
@pytest.mark.parametrize("forks", ["ff", "kkkk"])
def test_want_of_processes_is_no_fault_of_a_file(mounts, settled, mode, forks):
    """One that cannot be opened without libhdf5 can be as soon as there is a process for it."""
    mount = mounts(settled, mode, environment=failing_forks(forks), expect_log=True)
    for _ in range(2):
        assert refusal(os.listdir, mount / "paged.h5") == errno.EIO
    assert frame(mount, "paged.h5", 1) == value_of(2)
    assert os.getxattr(mount / "paged.h5/contiguous", "user.number1") == b"1"
    for reason in "paged.h5: cannot open as HDF5", "temporarily unavailable" if "f" in forks else "Killed":
        assert reason in mount.log()


@pytest.mark.parametrize("forks", ["f", "kk"])
def test_want_of_processes_does_not_keep_a_file_from_being_written(mounts, folder, forks):
    """Opened while there is none it would only be read for as long as it is open."""
    with file_for_libhdf5(folder / "a.h5") as f:
        f["data"] = np.zeros((FRAMES, SIDE, SIDE), "<u2")
    mount = mounts(folder, "default", environment=failing_forks(forks), expect_log=True)
    assert refusal(os.listdir, mount / "a.h5") == errno.EIO
    os.mkdir(mount / "a.h5/group")
    write(mount, "a.h5", 5)
    mount.unmount()
    assert "cannot open as HDF5" in mount.log() and "only for reading" not in mount.log()
    assert frame(mounts(folder), "a.h5") == value_of(5)


def test_modes(mounts, folder):
    """Write bits are shown of what can be written."""
    make_dense(folder / "a.h5").chmod(0o640)
    make_dense(folder / "b.h5").chmod(0o440)
    mount = mounts(folder, "default", expect_log=os.geteuid() != 0)  # that b.h5 is open only for reading
    assert os.stat(mount / "a.h5").st_mode & 0o777 == 0o750 and os.stat(mount / "b.h5").st_mode & 0o777 == 0o550
    assert os.stat(mount / "a.h5/data/frames/0.raw").st_mode & 0o777 == 0o640
    assert os.stat(mount / "b.h5/data/frames/0.raw").st_mode & 0o777 == 0o440
    mount.unmount()
    mount = mounts(folder, "default", "umask=027")
    assert os.stat(mount / "a.h5").st_mode & 0o777 == 0o750
    assert os.stat(mount / "a.h5/data/frames/0.raw").st_mode & 0o777 == 0o640
    mount.unmount()
    mount = mounts(folder, "ro")
    assert os.stat(mount / "a.h5").st_mode & 0o777 == 0o550
    assert os.stat(mount / "a.h5/data/frames/0.raw").st_mode & 0o777 == 0o440


def test_strict(mounts, folder):
    make_sparse(folder / "a.h5")
    mount = mounts(folder, "default", "strict")
    assert refusal(os.utime, mount / "a.h5/data/frames/0.raw", (1, 1)) == errno.EPERM
    assert refusal(os.chmod, mount / "a.h5", 0o700) == errno.EPERM
    mount.unmount()
    mount = mounts(folder, "default")
    os.utime(mount / "a.h5/data/frames/0.raw", (1, 1))
    os.chmod(mount / "a.h5/data/frames/0.raw", 0o700)


def test_the_staging_area_is_one(mounts, folder):
    """Its limit is the mount's."""
    for name in "ab":
        make_sparse(folder / f"{name}.h5")
    mount = mounts(folder, "default", "staging_size=4K", expect_log=True)
    (mount / "a.h5/data/frames/.tmp").write_bytes(bytes(1500))
    assert refusal((mount / "b.h5/data/frames/.tmp").write_bytes, bytes(3000)) == errno.ENOSPC
    mount.unmount()
    assert "lost with the mount" in mount.log() and "a.h5/data: .tmp (1500 bytes)" in mount.log()


# ---- Ends ----


def test_fsync_of_any_directory(mounts, folder):
    for i in range(3):
        make_sparse(folder / f"{i}.h5")
    (folder / "sub").mkdir()
    mount = mounts(folder, "default", "commit_interval=0")
    for i in range(3):
        write(mount, f"{i}.h5", i)
    commits = stats(mount)["store_commits"]
    sync(mount / "1.h5/data/frames")
    assert stats(mount)["store_commits"] == commits + 1
    sync(mount / "sub")
    assert stats(mount)["store_commits"] == commits + 3
    mount.process.kill()
    mount.wait()
    mount.umount("-l")
    mount.process.returncode = 0
    again = mounts(folder, expect_log=True)
    assert [frame(again, f"{i}.h5") for i in range(3)] == [value_of(i) for i in range(3)]


@pytest.mark.parametrize("end", ["umount", "SIGTERM", "umount.sparsefs"])
def test_all_is_committed_at_the_end(mounts, folder, end):
    for i in range(5):
        make_sparse(folder / f"{i}.h5")
    mount = mounts(folder, "default", "commit_interval=0")
    for i in range(5):
        write(mount, f"{i}.h5", i)
    if end == "umount":
        mount.unmount()
    elif end == "SIGTERM":
        mount.process.send_signal(signal.SIGTERM)
        assert mount.wait() == 0
    else:
        helper = pathlib.Path(__file__).parents[2] / "mount-helpers/umount.sparsefs"
        subprocess.run([helper, mount.root], check=True, env=FINDS_SPARSEFS)
        assert mount.wait() == 0
    assert sorted(os.listdir(folder)) == [f"{i}.h5" for i in range(5)]
    again = mounts(folder)
    assert [frame(again, f"{i}.h5") for i in range(5)] == [value_of(i) for i in range(5)]


def test_killed(mounts, folder):
    """Each file is as it was committed last, and the next who opens it for writing recovers it."""
    for i in range(4):
        make_sparse(folder / f"{i}.h5")
    mount = mounts(folder, "default", "commit_interval=0,max_open=3")
    for k in range(3):
        for i in range(4):
            write(mount, f"{i}.h5", 10 * i + k, k)
            if k < 2:
                sync(mount / f"{i}.h5/data/frames/{k}.raw")
    sync(mount / "3.h5")
    write(mount, "3.h5", 1, 3)
    mount.process.kill()
    mount.wait()
    mount.umount("-l")
    mount.process.returncode = 0
    assert "3.h5.journal" in os.listdir(folder)
    again = mounts(folder, "default", expect_log=True)
    for i in range(4):
        assert [frame(again, f"{i}.h5", k) for k in range(2)] == [value_of(10 * i + k) for k in range(2)]
        assert frame(again, f"{i}.h5", 2) in ([bytes(2 * SIDE * SIDE)] if i < 3 else []) + [value_of(10 * i + 2)]
        assert f"{i}.h5.journal" not in os.listdir(folder)
        write(again, f"{i}.h5", 50 + i, 3)
    again.unmount()
    assert sorted(os.listdir(folder)) == [f"{i}.h5" for i in range(4)]
    again = mounts(folder)
    assert [frame(again, f"{i}.h5", 3) for i in range(4)] == [value_of(50 + i) for i in range(4)]


@pytest.fixture
def disk(folder):
    """A small one, below the folder."""
    path = folder / "disk"
    path.mkdir()
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=2M", "tmpfs", path], check=False).returncode:
        pytest.skip("no disk can be mounted here")
    yield path
    subprocess.run(["umount", "-l", path], check=True)


def fill(disk):
    """Removing what this returns makes room again."""
    with open(disk / "filler", "wb", buffering=0) as f, pytest.raises(OSError):
        while True:
            f.write(bytes(4096))
    return disk / "filler"


NOISE = np.random.default_rng(1).integers(1, 60000, (40, SIDE, SIDE)).astype("<u2")


def write_noise(mount, name):
    for k, frame_of_noise in enumerate(NOISE):
        (mount / f"{name}/data/frames/{k}.raw").write_bytes(frame_of_noise.tobytes())


def test_a_full_disk(disk, mounts):
    """The error of a commit is told, the file stays open with what was written, and all is there when there is
    room again."""
    for i in range(3):
        make_sparse(disk / f"{i}.h5", 1)
    mount = mounts(disk, "default", "max_open=2", "commit_interval=0", expect_log=True)
    filler = fill(disk)
    write_noise(mount, "0.h5")
    assert refusal(sync, mount / "0.h5") == errno.ENOSPC
    for i in (1, 2, 1, 2):
        assert frame(mount, f"{i}.h5") == bytes(2 * SIDE * SIDE)
    assert "could not be committed, and it stays open" in mount.log()
    assert refusal(sync, mount.root) == errno.ENOSPC
    assert (mount / "0.h5/data/stack.raw").read_bytes() == NOISE.tobytes()
    filler.unlink()
    sync(mount.root)
    wait_until(lambda: can(frame, mount, "1.h5") and can(frame, mount, "2.h5"))
    mount.unmount()
    assert np.array_equal(sparse_frames_of(disk / "0.h5"), NOISE)


WRITE_NOISE = f"""
import sys
for k in range({len(NOISE)}):
    with open(f"{{sys.argv[1]}}/data/frames/{{k}}.raw", "wb") as f:
        f.write(sys.stdin.buffer.read({NOISE[0].nbytes}))
"""


@pytest.mark.skipif(os.geteuid() != 0, reason="only root has several users")
def test_a_full_disk_keeps_nobody_else_from_files(disk, mounts, openers):
    """Files with changes that cannot be committed count for who has made them, whoever owns them, and not for root. Who
    opens another one tries no more than one of them again."""
    owner, other, writer = 61234, 61235, 61236
    for i in range(6):
        os.chown(make_sparse(disk / f"{i}.h5", 1), *([owner] * 2 if i > 0 else [0] * 2))
        (disk / f"{i}.h5").chmod(0o666 if i < 2 else 0o644)
    let_in(disk)
    mount = mounts(disk, "default", "max_open=2", "commit_interval=0", "allow_other", expect_log=True)
    filler = fill(disk)
    for i in range(2):
        subprocess.run([sys.executable, "-c", WRITE_NOISE, mount / f"{i}.h5"], input=NOISE.tobytes(), user=writer,
                       group=writer, extra_groups=[], cwd="/", check=True)
    write_noise(mount, "2.h5")
    for i in range(3):
        assert refusal(sync, mount / f"{i}.h5") == errno.ENOSPC
    stays = "could not be committed, and it stays open"
    for user, files, opened in ((other, [3, 4], (2, 0)), (owner, [5], (1, 0)), (0, [5, 3], (2, 0)),
                                (writer, [3], (0, errno.ENFILE))):
        if user in (owner, writer):
            time.sleep(1.1)  # for so long none is tried again
        before = mount.log().count(stays)
        opener = openers(user, mount, files)
        assert (opener.opened, opener.errno) == opened
        assert user != owner or mount.log().count(stays) <= before + 1
        opener.close()
    assert stays in mount.log()
    assert f"user {writer} has 2 HDF5 files in use" in mount.log()
    filler.unlink()
    sync(mount.root)
    mount.unmount()
    assert all(np.array_equal(sparse_frames_of(disk / f"{i}.h5"), NOISE) for i in range(3))


def test_a_full_disk_while_others_are_opened(disk, mounts):
    """fsync of the folder is the error also while somebody tries to close the file that has it."""
    for i in range(4):
        make_sparse(disk / f"{i}.h5", 1)
    mount = mounts(disk, "default", "max_open=2", "commit_interval=0", expect_log=True)
    filler = fill(disk)
    write_noise(mount, "0.h5")
    assert refusal(sync, mount / "0.h5") == errno.ENOSPC
    ends = threading.Event()

    def open_others():
        while not ends.is_set():
            for i in (1, 2, 3):
                can(frame, mount, f"{i}.h5")

    reader = threading.Thread(target=open_others)
    reader.start()
    try:
        until = time.monotonic() + 4
        while time.monotonic() < until:
            assert refusal(sync, mount.root) == errno.ENOSPC
    finally:
        ends.set()
        reader.join()
        filler.unlink()
    sync(mount.root)
    mount.unmount()
    assert np.array_equal(sparse_frames_of(disk / "0.h5"), NOISE)


def test_no_error_of_another_file(disk, mounts, folder):
    """What one cannot store is told to those who write it, also if they did not ask; others are committed."""
    make_sparse(disk / "full.h5", 1)
    make_sparse(folder / "other.h5", 1)
    mount = mounts(folder, "default", "commit_interval=1", expect_log=True)
    filler = fill(disk)
    one = os.open(mount / "disk/full.h5/data/frames/0.raw", os.O_RDWR)
    other = os.open(mount / "other.h5/data/frames/0.raw", os.O_RDWR)
    write_noise(mount, "disk/full.h5")
    write_noise(mount, "other.h5")
    os.fsync(other)
    wait_until(lambda: "full.h5: what was written could not be committed" in mount.log())
    os.fsync(other)
    os.close(other)
    with pytest.raises(OSError) as failed:
        os.close(one)
    assert failed.value.errno == errno.ENOSPC
    filler.unlink()
    sync(mount / "disk")
    mount.unmount()
    for path in (disk / "full.h5", folder / "other.h5"):
        assert np.array_equal(sparse_frames_of(path), NOISE)


def test_what_is_lost_is_told(disk, mounts):
    """What cannot be committed when the mount ends."""
    make_sparse(disk / "full.h5", 1)
    mount = mounts(disk, "default", "commit_interval=0", expect_log=True)
    filler = fill(disk)
    write_noise(mount, "full.h5")
    wait_until(mount.umount)
    assert mount.wait() == 2 and "full.h5: what was written last could not be committed, and is lost" in mount.log()
    mount.process.returncode = 0
    filler.unlink()
    assert frame(mounts(disk), "full.h5") == bytes(2 * SIDE * SIDE)


def sparse_frames_of(path):
    subprocess.run([BUILD / "sparsectl", "export", f"{path}:/data", f"{path}.dense:/data"], check=True)
    with h5py.File(f"{path}.dense", "r") as f:
        return f["data"][...]
