"""Starting and ending, what mount options do, listings, attributes, many readers at once."""
import concurrent.futures
import contextlib
import ctypes
import errno
import fcntl
import json
import os
import pathlib
import re
import shutil
import signal
import stat
import subprocess
import termios
import time

import h5py
import numpy as np
import pytest

import files
from conftest import BUILD, SPARSEFS, START_SECONDS, is_mounted, stop, unmount, wait_for_end, wait_until

MOST_UNUSED_NODES = 16384  # src/fs/node.h
GETDENTS64 = {"x86_64": 217, "aarch64": 61, "riscv64": 61}  # syscall numbers


@pytest.fixture
def small(tmp_path):
    path = tmp_path / "small.h5"
    with h5py.File(path, "w") as f:
        f["d"] = files.integers((5, 6, 7), "<u2")
        f["d"].attrs["units"] = "counts"
    return path


@pytest.fixture
def daemons(tmp_path):
    """daemons(path, *arguments) starts one as a user does: it returns when the mount works."""
    mountpoints = []

    def start(path, *arguments):
        mountpoint = tmp_path / f"daemon{len(mountpoints)}"
        mountpoint.mkdir()
        mountpoints.append(mountpoint)
        subprocess.run([SPARSEFS, *arguments, path, mountpoint], check=True, timeout=START_SECONDS)
        return mountpoint

    yield start
    for mountpoint in mountpoints:
        if is_mounted(mountpoint):
            pid = int((mountpoint / ".sparsefs/pid").read_text())
            subprocess.run(["umount", "-i", "-l", mountpoint], check=True)
            wait_for_end(pid)


def ignored(pid):
    """The signals that a process ignores."""
    line = re.search(r"SigIgn:\t(\w+)", pathlib.Path(f"/proc/{pid}/status").read_text())
    return {number for number in range(1, 65) if int(line[1], 16) >> (number - 1) & 1}


@pytest.mark.parametrize("how", [signal.SIG_DFL, signal.SIG_IGN])
def test_who_starts_it_may_ignore_the_ends_of_children(small, tmp_path, how):
    """Its own are waited for all the same: else others could have their numbers when it ends them."""
    mountpoint = tmp_path / "m"
    mountpoint.mkdir()
    nothing = tmp_path / "nothing.h5"
    nothing.write_bytes(bytes(10000))
    started = {"preexec_fn": lambda: signal.signal(signal.SIGCHLD, how), "timeout": START_SECONDS}
    failed = subprocess.run([SPARSEFS, nothing, mountpoint], stderr=subprocess.PIPE, text=True, **started)
    assert failed.returncode == 32 and "nothing.h5" in failed.stderr  # what the child has found out
    subprocess.run([SPARSEFS, small, mountpoint], check=True, **started)
    try:
        pid = int((mountpoint / ".sparsefs/pid").read_text())
        assert os.getxattr(mountpoint / "d", "user.units")  # by libhdf5's process
        family = [pid, *map(int, pathlib.Path(f"/proc/{pid}/task/{pid}/children").read_text().split())]
        assert len(family) > 1
        names = {pathlib.Path(f"/proc/{one}/comm").read_text().strip() for one in family}
        assert "sparsefs-hdf5z" in names
        for one in family:
            if pathlib.Path(f"/proc/{one}/comm").read_text().strip() in ("sparsefs", "sparsefs-hdf5z"):
                assert signal.SIGCHLD not in ignored(one)
    finally:
        subprocess.run(["umount", "-i", mountpoint], check=True)
        wait_for_end(pid)


def test_daemon_works_when_the_command_returns(daemons, small):
    for _ in range(5):
        mountpoint = daemons(small)
        assert sorted(os.listdir(mountpoint)) == [".sparsefs", "d"]
        pid = int((mountpoint / ".sparsefs/pid").read_text())
        assert os.readlink(f"/proc/{pid}/cwd") == "/"
        for fd in (0, 1, 2):
            assert os.readlink(f"/proc/{pid}/fd/{fd}") == "/dev/null"
        unmount(mountpoint)
        wait_for_end(pid)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_signals_end_it_cleanly(mounts, small, number):
    mount = mounts(small)
    (mount / "d/frames/1.raw").read_bytes()
    mount.process.send_signal(number)
    assert mount.wait() == 0
    assert not is_mounted(mount.root)


def test_signal_while_files_are_open(daemons, small):
    mountpoint = daemons(small)
    pid = int((mountpoint / ".sparsefs/pid").read_text())
    frame = os.open(mountpoint / "d/frames/1.raw", os.O_RDONLY)
    os.kill(pid, signal.SIGTERM)
    wait_for_end(pid)
    assert not is_mounted(mountpoint)
    with pytest.raises(OSError):
        os.stat(frame)
        os.read(frame, 1)
    with contextlib.suppress(OSError):  # libfuse before 3.11 lets the daemon hear of it
        os.close(frame)


@contextlib.contextmanager
def again_and_again(actions):
    """Each in a process of its own, until the mount is gone."""
    children = []
    for action in actions:
        pid = os.fork()
        if pid == 0:
            try:
                while True:
                    action()
            finally:
                os._exit(0)
        children.append(pid)
    try:
        yield
    finally:
        for pid in children:
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)


@pytest.mark.parametrize("times", range(20))
def test_signal_while_it_is_read_and_written(mounts, small, times):
    """Readers of one view wait for the daemon with its pages locked, which those who write the other
    views want to have invalidated: none of their requests may get lost when the signal comes."""
    mount = mounts(small, "rw,threads=8")

    def read():
        (mount / "d/stack.raw").read_bytes()

    def write(number):
        with open(mount / f"d/frames/{number}.raw", "r+b", buffering=0) as frame:
            frame.write(bytes(84))

    with again_and_again([read] * 4 + [lambda n=n: write(n) for n in range(4)]):
        time.sleep(0.02 + 0.002 * times)
        mount.process.send_signal(signal.SIGTERM)
        assert mount.wait() == 0


def test_signal_while_many_sync(mounts, tmp_path):
    """Some of them waits for its commit at any time: none of those that begin after the signal is waited for."""
    with h5py.File(tmp_path / "some.h5", "w", libver="latest") as file:
        file.create_dataset("d", data=np.zeros((16, 64, 64), "u2"), chunks=(1, 64, 64))
    mount = mounts(tmp_path / "some.h5", "rw", expect_log=True)
    done = tmp_path / "done"

    def write_and_sync(number):
        with open(mount / f"d/frames/{number}.raw", "r+b", buffering=0) as frame, open(done, "ab", buffering=0) as log:
            while True:
                os.pwrite(frame.fileno(), os.urandom(8192), 0)
                os.fsync(frame.fileno())
                log.write(b".")

    with again_and_again([lambda n=n: write_and_sync(n) for n in range(16)]):
        wait_until(lambda: done.exists() and done.stat().st_size > 100)
        mount.process.send_signal(signal.SIGTERM)
        assert mount.wait() == 0


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize("whole_group", [True, False])
def test_interrupted_start(mounts, tmp_path, small, number, whole_group):
    """The file to be mounted lies on a mount that does not answer. The signal may come as soon as
    there is a child, which must not be left alone."""
    slow = mounts(small)
    os.stat(slow / ".sparsefs")  # kept by the kernel
    path = next(p for p in slow.root.rglob("stack.raw"))
    os.stat(path)
    (tmp_path / "never").mkdir()
    stop(slow.process.pid)
    try:
        process = subprocess.Popen([SPARSEFS, path, tmp_path / "never"], start_new_session=True)
        children = pathlib.Path(f"/proc/{process.pid}/task/{process.pid}/children")
        while not children.read_text(): # or it has ended, and there is no such file
            time.sleep(0.001)
        child = int(children.read_text())
        (os.killpg if whole_group else os.kill)(process.pid, number)
        assert process.wait(START_SECONDS) == 8
        wait_for_end(child)
    finally:
        os.kill(slow.process.pid, signal.SIGCONT)
    assert not is_mounted(tmp_path / "never")


def test_busy_mount_stays(daemons, small):
    mountpoint = daemons(small)
    with open(mountpoint / "d/frames/1.raw", "rb") as frame:
        failed = subprocess.run(["umount", "-i", mountpoint], capture_output=True, text=True)
        assert failed.returncode == 32 and "busy" in failed.stderr
        assert len(frame.read()) == 84


def sparsectl_filters():
    return subprocess.run([BUILD / "sparsectl", "--version"], check=True, text=True,
                          stdout=subprocess.PIPE).stdout.splitlines()[1]


def test_help_and_version(run):
    for option in ("-h", "--help"):
        shown = run(option)
        assert shown.returncode == 0 and shown.stdout.startswith("usage: sparsefs")
        for name in ("frame_rank", "first", "cache_size", "direct_io", "external_links", "threads",
                     "workers", "commit_interval", "sparsify", "--log"):
            assert name in shown.stdout
    for option in ("-V", "--version"):
        shown = run(option)
        assert shown.returncode == 0 and "libfuse 3" in shown.stdout and "HDF5 1" in shown.stdout
        first, second = shown.stdout.splitlines()
        assert first.startswith("sparsefs ")
        assert second == sparsectl_filters()


def test_mount_table_entry(mounts, tmp_path, small):
    odd = tmp_path / "a b,c\\d.h5"
    shutil.copy(small, odd)
    mount = mounts(odd)
    fields = [line.split(" ") for line in open("/proc/self/mountinfo") if str(mount.root) in line]
    end = fields[0].index("-")
    assert fields[0][end + 1] == "fuse.sparsefs"
    source = fields[0][end + 2].encode().decode("unicode_escape")
    assert source == str(odd)
    assert "ro" in fields[0][5].split(",")
    assert (mount / "d/stack.raw").stat().st_size == 5 * 6 * 7 * 2


def test_nothing_can_be_changed(mounts, small):
    mount = mounts(small)
    frame = mount / "d/frames/0.raw"
    for attempt in (lambda: open(frame, "r+b"), lambda: open(mount / "new", "w"),
                    lambda: os.mkdir(mount / "new"), lambda: os.unlink(frame),
                    lambda: os.rename(frame, mount / "d/frames/9.raw"),
                    lambda: os.truncate(frame, 0), lambda: os.chmod(frame, 0o600),
                    lambda: os.utime(frame), lambda: os.symlink("x", mount / "link"),
                    lambda: os.link(frame, mount / "link"),
                    lambda: os.setxattr(mount / "d", "user.x", b"y")):
        with pytest.raises(OSError, match="Read-only"):
            attempt()


def test_mode_owner_and_times_are_the_files(mounts, small):
    os.chmod(small, 0o640)
    os.utime(small, ns=(10**18 + 1, 10**18 + 2))
    if os.getuid() == 0:
        os.chown(small, 123, 456)
    original = small.stat()
    mount = mounts(small)
    for name, mode in (("d", 0o550), ("d/frames/0.raw", 0o440), (".", 0o550), ("d/frames", 0o550)):
        st = (mount / name).stat()
        assert stat.S_IMODE(st.st_mode) == mode, name
        assert (st.st_uid, st.st_gid) == (original.st_uid, original.st_gid)
        assert st.st_mtime_ns == original.st_mtime_ns
    group = 8 if os.getuid() == 0 else os.getgid()  # who cannot look into it sees nothing
    shown = mounts(small, f"uid=7,gid={group},umask=027")
    st = (shown / "d/frames/0.raw").stat()
    assert (st.st_uid, st.st_gid, stat.S_IMODE(st.st_mode)) == (7, group, 0o440)
    assert stat.S_IMODE((shown / "d").stat().st_mode) == 0o550


@pytest.mark.skipif(os.getuid() != 0 or not shutil.which("setpriv"), reason="needs root")
def test_other_users(mounts, tmp_path, small):
    tmp_path.chmod(0o755)
    for folder in tmp_path.parents:
        if folder.stat().st_uid == 0 and not folder.stat().st_mode & 0o001:
            folder.chmod(0o711)
    small.chmod(0o640)

    def as_nobody(path):
        return subprocess.run(["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups",
                               "cat", path], capture_output=True).returncode

    alone = mounts(small)
    assert as_nobody(alone / "d/frames/0.raw") != 0
    shared = mounts(small, "allow_other")
    assert as_nobody(shared / "d/frames/0.raw") != 0  # as the file's mode says
    small.chmod(0o644)
    opened = mounts(small, "allow_other")
    assert as_nobody(opened / "d/frames/0.raw") == 0


def test_statfs(mounts, small):
    mount = mounts(small)
    below, shown = os.statvfs(small), os.statvfs(mount.root)
    assert (shown.f_blocks, shown.f_frsize) == (below.f_blocks, below.f_frsize)
    assert shown.f_namemax == 255 and shown.f_flag & os.ST_RDONLY


def test_unknown_attributes(mounts, small):
    mount = mounts(small)
    for name in ("security.capability", "user.nothing", "trusted.x"):
        with pytest.raises(OSError) as error:
            os.getxattr(mount / "d/frames/0.raw", name)
        assert error.value.errno == 61  # ENODATA
    assert os.getxattr(mount / "d", "user.units") == b"counts"
    assert subprocess.run(["getfattr", "-d", mount / "d"], capture_output=True, text=True,
                          check=True).stdout.count("units") == 1


def test_statistics_count(mounts, small):
    mount = mounts(small, "cache_size=1M")

    def statistics():
        return json.loads((mount / ".sparsefs/stats.json").read_text())

    before = statistics()
    assert before["cache_limit"] == 1 << 20
    (mount / "d/frames/2.raw").read_bytes()
    after = statistics()
    assert after["store_bytes_read"] > before["store_bytes_read"]
    assert after["cache_misses"] == before["cache_misses"] + 1


def test_the_size_of_the_cache_is_changed(mounts, tmp_path):
    """By a number as the option takes it; what makes no sense changes nothing."""
    path = tmp_path / "a.h5"
    with h5py.File(path, "w") as f:
        f.create_dataset("d", data=np.arange(64 * 65536, dtype="<u4").reshape(64, 256, 256), chunks=(1, 256, 256),
                         compression="gzip")
    mount = mounts(path, "rw,cache_size=64M,direct_io")
    size = mount / ".sparsefs/cache_size"

    def statistics():
        return json.loads((mount / ".sparsefs/stats.json").read_text())

    for number in range(64):
        (mount / f"d/frames/{number}.raw").read_bytes()
    assert size.read_text() == f"{64 << 20}\n" and statistics()["cache_chunks"] == 64
    subprocess.run(["sh", "-c", 'echo 2M > "$0"', size], check=True)
    assert size.read_text() == f"{2 << 20}\n" and size.stat().st_size == 8
    assert statistics()["cache_limit"] == 2 << 20
    wait_until(lambda: 0 < statistics()["cache_bytes"] <= 2 << 20)  # memory that is just prepared goes a little later
    for bad in ("\n", "0", "-1", "abc", "2MB", "2 M", "1e6", "2M\n\n", "2M\0", "9" * 40, " 2M"):
        with open(size, "wb", buffering=0) as file, pytest.raises(OSError) as refused:
            file.write(bad.encode())
        assert refused.value.errno == errno.EINVAL
    assert size.read_text() == f"{2 << 20}\n"
    for number in range(64):
        frame = np.frombuffer((mount / f"d/frames/{number}.raw").read_bytes(), "<u4")
        assert frame[0] == number * 65536 and frame[-1] == (number + 1) * 65536 - 1
    assert statistics()["cache_bytes"] <= 2 << 20
    size.write_text("1G")
    assert statistics()["cache_limit"] == 1 << 30
    assert statistics()["lock"] == "exclusive" and size.stat().st_mode & 0o777 == 0o644
    with pytest.raises(OSError):
        os.truncate(size, 3)


def test_it_is_changed_where_nothing_else_is(mounts, small):
    """Without a lock on the file, and not by a mount that the kernel takes for read-only."""
    shared, fixed = mounts(small, "default"), mounts(small, "ro")
    (shared / ".sparsefs/cache_size").write_text("3M\n")
    assert json.loads((shared / ".sparsefs/stats.json").read_text())["cache_limit"] == 3 << 20
    assert json.loads((shared / ".sparsefs/stats.json").read_text())["lock"] == "shared"
    with pytest.raises(OSError) as refused:
        (fixed / ".sparsefs/cache_size").write_text("3M\n")
    assert refused.value.errno in (errno.EROFS, errno.EACCES)
    assert (fixed / ".sparsefs/cache_size").stat().st_mode & 0o222 == 0


def test_second_reading_asks_nothing(mounts, small):
    """Read-only mounts keep the kernel's page cache."""
    mount = mounts(small)
    frame = mount / "d/frames/3.raw"

    def pieces():
        s = json.loads((mount / ".sparsefs/stats.json").read_text())
        return s["cache_hits"] + s["cache_misses"]

    first = frame.read_bytes()
    before = pieces()
    assert frame.read_bytes() == first and pieces() == before


def test_large_directories(mounts, tmp_path):
    """100,000 frames: every name once, in order, with the right size; no chunk is read."""
    path = tmp_path / "many.h5"
    with h5py.File(path, "w") as f:
        f.create_dataset("d", (100000, 4, 3), "<u2", chunks=(1, 4, 3))
    mount = mounts(path)
    listed = subprocess.run(["ls", "-U", mount / "d/raw"], capture_output=True, text=True,
                            check=True).stdout.split()
    assert listed == [f"{n:06d}.raw" for n in range(100000)]
    sizes = [entry.stat().st_size for entry in os.scandir(mount / "d/npy")]
    assert sizes == [128 + 24] * 100000
    assert len(os.listdir(mount / "d/frames")) == 200000
    with os.scandir(mount / "d/frames") as entries:
        assert next(entries).name == "0.raw"
    statistics = json.loads((mount / ".sparsefs/stats.json").read_text())
    assert statistics["cache_misses"] == 0


def test_large_group(mounts, tmp_path):
    path = tmp_path / "groups.h5"
    with h5py.File(path, "w", libver="latest") as f:
        for n in range(20000):
            f.create_group(f"group {n}")
    mount = mounts(path)
    assert set(os.listdir(mount.root)) == {f"group {n}" for n in range(20000)} | {".sparsefs"}
    assert (mount / "group 19999").is_dir() and not (mount / "group 20000").exists()


@pytest.mark.parametrize("is_folder", [False, True])
def test_quotas_hold_in_a_mount_by_root(mounts, tmp_path, is_folder):
    """No thread may exceed them (CAP_SYS_RESOURCE); the other rights stay."""
    bit, own = 1 << 24, pathlib.Path("/proc/self/status").read_text()
    if not int(re.search(r"CapEff:\s*(\w+)", own)[1], 16) & bit:
        pytest.skip("this user has not got it")
    folder = tmp_path / "folder"
    folder.mkdir()
    with h5py.File(folder / "a.h5", "w", libver="latest") as f:
        f["data"] = np.arange(24, dtype="<u2").reshape(2, 3, 4)
    mount = mounts(folder if is_folder else folder / "a.h5", "default")
    (mount / ("a.h5/data" if is_folder else "data") / "frames/0.raw").write_bytes(bytes(24))
    threads = list(pathlib.Path(f"/proc/{mount.process.pid}/task").iterdir())
    assert threads
    for status in [(thread / "status").read_text() for thread in threads]:
        for rights in ("CapPrm", "CapEff"):
            before, now = (int(re.search(rights + r":\s*(\w+)", text)[1], 16) for text in (own, status))
            assert now == before & ~bit


def resident_bytes(mount):
    status = pathlib.Path(f"/proc/{mount.process.pid}/status").read_text()
    return 1024 * int(re.search(r"VmRSS:\s*(\d+)", status)[1])


def test_what_the_kernel_forgets_is_forgotten(mounts, tmp_path):
    """Diamonds of hard links: each of a level's names leads to the one group with all of the next."""
    path = tmp_path / "diamond.h5"
    width, levels = 140, 2
    with h5py.File(path, "w", libver="latest") as f:
        above = f
        for _ in range(levels):
            below = above.create_group("n0")
            for i in range(1, width):
                above[f"n{i}"] = below
            above = below
    mount = mounts(path)

    def nodes():
        return json.loads((mount / ".sparsefs/stats.json").read_text())["nodes"]

    def walk():
        found = subprocess.run(["find", mount.root, "-maxdepth", str(levels), "-name", "n*", "-printf", "%i\n"],
                               capture_output=True, check=True).stdout
        assert found.count(b"\n") == width + width ** 2 > MOST_UNUSED_NODES + levels + 2

    assert nodes() == 1
    walk()
    assert nodes() > width ** 2
    working_directory = mount / "n1/n2"
    held = os.open(working_directory, os.O_RDONLY)
    try:
        number = os.stat(held).st_ino
        # The kernel drops all names of a file system that it mounts anew, if that is by mount(2).
        remounted = subprocess.run(["mount", "-i", "-o", "remount,ro", mount.root],
                                   env=os.environ | {"LIBMOUNT_FORCE_MOUNT2": "always"},
                                   capture_output=True, text=True)
        if remounted.returncode != 0:
            pytest.skip(f"cannot make the kernel forget: {remounted.stderr}")
        deadline = time.monotonic() + START_SECONDS  # FORGETs come when the kernel likes
        while nodes() > MOST_UNUSED_NODES + levels + 2:
            assert time.monotonic() < deadline, f"{nodes()} nodes are left"
            time.sleep(0.01)
        assert os.stat(held).st_ino == os.stat(working_directory).st_ino == number
        assert os.listdir(held) == []
    finally:
        os.close(held)
    walk()


def test_listings_are_shared(mounts, tmp_path):
    path = tmp_path / "links.h5"
    n = 20000
    with h5py.File(path, "w", libver="latest") as f:
        target = f.create_group("g/target")
        for i in range(n - 1):
            f["g"][f"link number {i}"] = target
    mount = mounts(path)
    handles = [os.open(mount / "g", os.O_RDONLY)]
    before = resident_bytes(mount)
    try:
        handles += [os.open(mount / "g", os.O_RDONLY) for _ in range(50)]
        grown = resident_bytes(mount) - before
        assert len(os.listdir(handles[-1])) == n
    finally:
        for handle in handles:
            os.close(handle)
    assert grown < n * 40 * 5  # five listings and not fifty; of an entry the name alone takes 18


def test_a_directory_that_is_read_again(mounts, tmp_path):
    """From its beginning (rewinddir, in os.listdir) it is read as it is by then; a reading that goes
    on finds all that was there all the time, and once."""
    path = tmp_path / "groups.h5"
    with h5py.File(path, "w", libver="latest") as f:
        for i in range(5000):
            f.create_group(f"g/{i:04}")
    mount = mounts(path, "rw")
    group = mount / "g"
    all_the_time = {f"{i:04}" for i in range(100, 5000)}
    held = os.open(group, os.O_RDONLY)
    try:
        assert len(os.listdir(held)) == 5000
        with os.scandir(group) as entries:
            found = [next(entries).name]
            for i in range(100):
                (group / f"{i:04}").rmdir()
                (group / f"new {i}").mkdir()
            found += [entry.name for entry in entries]
        assert all_the_time <= set(found) and len(found) == len(set(found))
        expected = all_the_time | {f"new {i}" for i in range(100)}
        assert set(os.listdir(held)) == expected and set(os.listdir(group)) == expected
    finally:
        os.close(held)


class Entry(ctypes.Structure):
    _fields_ = [("ino", ctypes.c_uint64), ("offset", ctypes.c_int64), ("length", ctypes.c_uint16),
                ("type", ctypes.c_uint8)]


def read_entries(directory, room):
    """The next entries of an open directory, with the offsets behind them, in one getdents64(2)."""
    buffer = ctypes.create_string_buffer(room)
    n = ctypes.CDLL(None, use_errno=True).syscall(ctypes.c_long(GETDENTS64[os.uname().machine]),
                                                  directory, buffer, room)
    if n < 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    entries, at = [], 0
    while at < n:
        entry = Entry.from_buffer(buffer, at)
        name = buffer[at + Entry.type.offset + 1:at + entry.length].split(b"\0")[0]
        entries.append((os.fsdecode(name), entry.offset))
        at += entry.length
    return entries


def read_to_end(directory, room):
    found = []
    while entries := read_entries(directory, room):
        found += entries
    return found


def test_offsets_hold_while_links_come_and_go(mounts, tmp_path):
    """Who goes on finds all that was there all the time, once, also when others have listed the
    directory as it is by then, and when he goes back to an offset of long ago."""
    path = tmp_path / "groups.h5"
    with h5py.File(path, "w", libver="latest") as f:
        for i in range(1000):
            f.create_group(f"g/{i:04}")
    group = mounts(path, "rw") / "g"
    assert len(os.listdir(group)) == 1000  # which the kernel keeps
    directories = [os.open(group, os.O_RDONLY) for _ in range(3)]
    try:
        found = [[entry for _ in range(5 * i + 1) for entry in read_entries(directory, 2000)]
                 for i, directory in enumerate(directories)]
        remembered = found[2][50][1]
        for i in range(0, 200, 2):
            (group / f"{i:04}").rmdir()
        for i in range(5):
            (group / f"!{i}").mkdir()  # before all others, by name
        now = {f"!{i}" for i in range(5)} | {f"{i:04}" for i in range(1000)
                                             if i % 2 == 1 or i >= 200}
        assert set(os.listdir(group)) == now
        for i in range(2):
            names = [name for name, _ in found[i] + read_to_end(directories[i], 1000)]
            assert {f"{k:04}" for k in range(200, 1000)} <= set(names)
            assert {f"{k:04}" for k in range(1, 200, 2)} <= set(names)
            assert len(names) == len(set(names))
        os.lseek(directories[2], remembered, os.SEEK_SET)
        behind = [name for name, _ in read_to_end(directories[2], 700)]
        before = {name for name, _ in found[2][:51]} & now
        assert set(behind) == now - before and len(behind) == len(set(behind))
        os.lseek(directories[2], 0, os.SEEK_SET)
        again = [name for name, _ in read_to_end(directories[2], 4096)]
        assert set(again) == now | {".", ".."} and len(again) == len(set(again))
    finally:
        for directory in directories:
            os.close(directory)


def test_many_links_in_small_pieces(mounts, tmp_path):
    """As many requests as there can be for one listing, of links that change meanwhile."""
    path = tmp_path / "links.h5"
    n = 20000
    with h5py.File(path, "w", libver="latest") as f:
        f.create_group("g/a")
        for i in range(n - 2):
            f.id.links.create_hard(b"g/link %d" % i, f.id, b"g/a")
        f.create_group("g/z")
    mount = mounts(path, "rw")
    directory = os.open(mount / "g", os.O_RDONLY)
    try:
        found = read_entries(directory, 4096)
        (mount / "g/z").rmdir()
        found += read_to_end(directory, 4096)
    finally:
        os.close(directory)
    names = [name for name, _ in found]
    assert set(names) == {".", "..", "a"} | {f"link {i}" for i in range(n - 2)}
    assert len(names) == n + 1


def answers(mount):
    """How many requests the daemon has answered, and a few writes more."""
    lines = pathlib.Path(f"/proc/{mount.process.pid}/io").read_text().splitlines()
    return int(dict(line.split(": ") for line in lines)["syscw"])


def test_requests_of_a_walk(mounts, tmp_path):
    """Directories are read in two requests, of which the second finds the end, without being
    opened and closed besides; and names that were listed are not looked up."""
    path = tmp_path / "tree.h5"
    with h5py.File(path, "w", libver="latest") as f:
        for i in range(200):
            f.create_group(f"{i}/a")
    mount = mounts(path)
    before = answers(mount)
    found = [directory for directory, _, _ in os.walk(mount.root)]
    assert len(found) == 1 + 1 + 200 * 2
    assert answers(mount) - before < 2 * len(found) + 50


def test_more_attributes_than_can_be_listed(mounts, tmp_path):
    """Linux lists 64 KiB of names; of more it gives none, which programs that copy complain of."""
    path = tmp_path / "attributes.h5"
    names = [f"{n:04d} {'x' * 95}" for n in range(1500)]
    with h5py.File(path, "w", libver="latest") as f:
        f["d"] = 1
        for n, name in enumerate(names):
            f["d"].attrs[name] = n
    mount = mounts(path)
    listed = os.listxattr(mount / "d")
    assert 65536 - 106 < sum(len(name) + 1 for name in listed) <= 65536
    assert set(listed) < {f"user.{name}" for name in names}
    for n in 0, 1499:
        assert os.getxattr(mount / "d", f"user.{names[n]}") == str(n).encode()
    assert len(json.loads((mount / "d/dataset.json").read_text())["attributes"]) == 1500


def test_many_attributes(mounts, tmp_path):
    path = tmp_path / "attributes.h5"
    lengths = {"fits": ("x", 65536), "long": ("x", 70000), "umlauts": ("\xfc", 40000)}
    with h5py.File(path, "w", libver="latest") as f:
        f["d"] = 1
        for n in range(1000):
            f["d"].attrs[f"a{n}"] = n
        for name, (character, n) in lengths.items():
            f["d"].attrs[name] = character * n
    mount = mounts(path)
    names = os.listxattr(mount / "d")
    assert len(names) == 1003
    assert all(os.getxattr(mount / "d", name) == name[len("user.a"):].encode() for name in names
               if name[len("user."):] not in lengths)
    for name, (character, n) in lengths.items():
        shown = os.getxattr(mount / "d", f"user.{name}").decode()
        text = character * n
        assert len(shown.encode()) <= 65536
        if name != "fits":
            assert shown.endswith(" ... (shortened)") and len(shown.encode()) > 65530
            assert text.startswith(shown[:-len(" ... (shortened)")])
        else:
            assert shown == text
        described = json.loads((mount / "d/dataset.json").read_text())
        assert described["attributes"][name] == text
    subprocess.run(["getfattr", "-R", "-d", mount.root], check=True, stdout=subprocess.DEVNULL)


@pytest.mark.parametrize("options", [("cache_size=256K",), ("direct_io", "cache_size=1M"), ()])
def test_many_readers_at_once(mounts, tmp_path, options):
    """Frames, stacks, listings and texts read by many threads agree with h5py, over a cache that is
    too small for the chunks."""
    path = tmp_path / "readers.h5"
    data = {"gzip": files.integers((30, 100, 120), "<u4"), "plain": files.integers((30, 50, 60)),
            "tiles": files.integers((30, 90, 110), ">u2"), "szip": files.integers((30, 64, 64))}
    with h5py.File(path, "w") as f:
        f.create_dataset("gzip", data=data["gzip"], chunks=(1, 100, 120), compression="gzip")
        f["plain"] = data["plain"]
        f.create_dataset("tiles", data=data["tiles"], chunks=(4, 32, 32), compression="gzip",
                         shuffle=True, fletcher32=True)
        f.create_dataset("szip", data=data["szip"], chunks=(2, 64, 64), compression="szip")
    mount = mounts(path, *options, "threads=8")

    def read(seed):
        random = np.random.default_rng(seed)
        for _ in range(60):
            name = str(random.choice(list(data)))
            n = int(random.integers(30))
            what = random.integers(4)
            if what == 0:
                assert (mount / name / "frames" / f"{n}.raw").read_bytes() == data[name][n].tobytes()
            elif what == 1:
                content = data[name].tobytes()
                offset = int(random.integers(len(content)))
                with open(mount / name / "stack.raw", "rb", buffering=0) as stack:
                    stack.seek(offset)
                    assert stack.read(10000) == content[offset:offset + 10000]
            elif what == 2:
                assert (np.load(mount / name / "npy" / f"{n:06d}.npy") == data[name][n]).all()
            else:
                assert len(os.listdir(mount / name / "raw")) == 30
                assert json.loads((mount / name / "dataset.json").read_text())["frames"] == 30
        return True

    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        assert all(pool.map(read, range(8)))
    statistics = json.loads((mount / ".sparsefs/stats.json").read_text())
    assert statistics["cache_bytes"] <= statistics["cache_limit"]


def test_memory_stays_within_the_limit(mounts, tmp_path):
    """Streaming 20 times the cache's size; peak memory is the cache and what a process needs."""
    path = tmp_path / "stream.h5"
    with h5py.File(path, "w") as f:
        d = f.create_dataset("d", (80, 1024, 1024), "u2", chunks=(1, 1024, 1024),
                             compression="gzip", compression_opts=1)
        for n in range(80):
            d[n] = np.full((1024, 1024), n, "u2")  # h5py 2 would write one by one
    mount = mounts(path, "direct_io,cache_size=8M")
    for n in range(80):
        assert (mount / "d/frames" / f"{n}.raw").read_bytes() == bytes([n, 0]) * 2**20
    status = pathlib.Path(f"/proc/{mount.process.pid}/status").read_text()
    peak = int(status.split("VmHWM:")[1].split()[0]) << 10
    statistics = json.loads((mount / ".sparsefs/stats.json").read_text())
    assert statistics["cache_bytes"] <= 8 << 20 and statistics["cache_evictions"] > 60
    if "Sanitizer" not in os.environ.get("SPARSEFS_BUILD", "") and "build-" not in str(SPARSEFS):
        assert peak < (8 << 20) + (64 << 20)


def test_texts_that_nobody_reads_are_given_back(mounts, tmp_path):
    path = tmp_path / "texts.h5"
    with h5py.File(path, "w") as f:
        for n in range(40):
            f.create_dataset(f"d{n}", data=np.full(60000, b"x" * 63, "S64"), chunks=(60000,),
                             compression=1)
    mount = mounts(path, "cache_size=8M")

    def resident_kib():
        status = pathlib.Path(f"/proc/{mount.process.pid}/status").read_text()
        return int(re.search(r"VmRSS:\s+(\d+)", status).group(1))

    def read(numbers):
        for n in numbers:
            assert len((mount / f"d{n}/value.txt").read_bytes()) == 60000 * 66
        return resident_kib()

    before = read(range(10))
    assert read(range(10, 40)) < before + 60 * 1024  # of 120 MB


def test_mapped_frames_of_a_large_stack(mounts, tmp_path):
    path = tmp_path / "stack.h5"
    data = files.integers((50, 300, 200), "<u2")
    with h5py.File(path, "w") as f:
        f.create_dataset("d", data=data, chunks=(1, 300, 200), compression="gzip")
    mount = mounts(path)
    stack = np.memmap(mount / "d/stack.raw", "<u2", "r", shape=data.shape)
    order = np.random.default_rng(1).permutation(50)
    for n in order:
        assert (stack[n, 100:200, 50:60] == data[n, 100:200, 50:60]).all()
    del stack


def test_messages_are_shown_in_the_mount(mounts, tmp_path):
    """All of them, whatever goes to the log, and no more than a thousand."""
    with h5py.File(tmp_path / "a.h5", "w") as f:
        for n in range(1200):
            f[f"link {n}"] = h5py.ExternalLink(f"/elsewhere\n/{n:04}.h5", "/")
        f["inside"] = h5py.ExternalLink("missing.h5", "/")
    mount = mounts(tmp_path / "a.h5", "ro", log="error")
    log = mount / ".sparsefs/log"

    def lines():
        """But for what is said of the kernel when the mount has answered, sooner or later."""
        return [line for line in log.read_text().splitlines() if "read_ahead_kb" not in line]

    before = lines()
    os.readlink(mount / "inside")
    line = r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ (error|warning|info): "
    assert lines()[:-1] == before
    assert re.fullmatch(line + ".*leads nowhere: missing.h5.*", lines()[-1])
    for n in range(1200):
        os.readlink(mount / f"link {n}")
    assert len(log.read_text().splitlines()) == 1000
    assert len(log.read_bytes()) == log.stat().st_size
    for n, text in zip(range(1199, -1, -1), reversed(lines())):
        assert re.match(line, text) and f"/elsewhere?/{n:04}.h5: -o external_links" in text
    assert mount.log() == ""


def test_failures_show_no_control_characters(small, tmp_path):
    full = tmp_path / "a\x1b]0;b\x07\nc/mnt"
    (full / "in").mkdir(parents=True)
    for arguments in ([tmp_path / "none\x1b]0;b\x07\n", tmp_path], [small, full]):
        done = subprocess.run([SPARSEFS, *arguments], capture_output=True, timeout=START_SECONDS, check=False)
        assert done.returncode != 0 and b"?]0;b??" in done.stderr
        assert done.stderr.count(b"\n") == 1 and b"\x1b" not in done.stderr and b"\x07" not in done.stderr


@pytest.mark.parametrize("of_folder", [False, True])
def test_who_reads_does_not_fill_the_log(mounts, tmp_path, of_folder):
    """By one damaged chunk, again and again, or by many."""
    (tmp_path / "in").mkdir()
    with h5py.File(tmp_path / "in/a.h5", "w") as f:
        d = f.create_dataset("d", data=np.arange(1000 * 16, dtype="u2").reshape(1000, 4, 4), chunks=(1, 4, 4),
                             compression="gzip")
        places = [d.id.get_chunk_info(n) for n in range(1000)]
    with open(tmp_path / "in/a.h5", "r+b") as f:
        for place in places:
            f.seek(place.byte_offset)
            f.write(bytes(place.size))
    mount = mounts(tmp_path / "in" if of_folder else tmp_path / "in/a.h5", "ro", expect_log=True)
    frames = mount / ("a.h5/d/frames" if of_folder else "d/frames")

    def fail(n):
        with pytest.raises(OSError):
            (frames / f"{n}.raw").read_bytes()

    for _ in range(1000):
        fail(0)
    lines = (mount / ".sparsefs/log").read_text().splitlines()
    said = [line for line in lines if "/d" in line and "a.h5" in line]
    assert 0 < len(said) < 500
    assert re.search(r"error: .*a\.h5.*", said[0])
    for n in range(1, 1000):
        fail(n)
    lines = (mount / ".sparsefs/log").read_text().splitlines()
    assert len(lines) > 900  # all of them
    n = 0
    while len(mount.log().splitlines()) < 900 and "lines of the log were left out" not in mount.log():
        fail(n)
        n = (n + 1) % 1000


@pytest.mark.skipif(os.geteuid() != 0, reason="users' mounts are made by fusermount3")
@pytest.mark.parametrize("folder", ["mnt", "a/mnt"], ids=["itself", "above"])
def test_a_mount_point_that_is_exchanged(small, tmp_path, folder):
    """While the file is opened (here read from a pipe), and while it is mounted, whoever owns the mount point, or a
    directory above it, puts a link in its place. What was looked at is mounted on, and unmounted in the end."""
    mountpoint, victim = tmp_path / folder, tmp_path / "victim"
    mountpoint.mkdir(parents=True)
    exchanged, renamed = tmp_path / pathlib.Path(folder).parts[0], tmp_path / "renamed"
    (victim / "mnt").mkdir(parents=True)
    leads_to = victim if folder != "mnt" else victim / "mnt"
    (victim / "mnt/passwd").write_text("root's")
    content = small.read_bytes()
    process = subprocess.Popen([SPARSEFS, "-f", "-o", "ro", "-", mountpoint], stdin=subprocess.PIPE,
                               stderr=subprocess.PIPE)
    mounted = renamed / mountpoint.relative_to(exchanged)
    try:
        process.stdin.write(content[:100])
        process.stdin.flush()
        waiting = ctypes.c_int(1)
        while waiting.value:  # until it is read
            assert process.poll() is None
            fcntl.ioctl(process.stdin, termios.FIONREAD, waiting)
        exchanged.rename(renamed)
        exchanged.symlink_to(leads_to)
        process.stdin.write(content[100:])
        process.stdin.close()
        wait_until(lambda: is_mounted(mounted) or is_mounted(victim / "mnt") or process.poll() is not None)
        assert is_mounted(mounted) and not is_mounted(victim / "mnt")
        assert (mounted / "d").is_dir()
        subprocess.run(["mount", "-t", "tmpfs", "none", victim / "mnt"], check=True)
        process.send_signal(signal.SIGTERM)
        assert process.wait(START_SECONDS) == 0
        assert is_mounted(victim / "mnt") and not is_mounted(mounted)
    finally:
        process.kill()
        process.wait()
        for path in mounted, victim / "mnt":
            while is_mounted(path):
                subprocess.run(["umount", "-i", "-l", path], check=True)


@pytest.mark.skipif(os.geteuid() != 0, reason="users' mounts are made by fusermount3")
def test_a_mount_point_that_is_itself_mounted(mounts, small, tmp_path):
    """Below it: that stays."""
    mountpoint = tmp_path / "mnt0"
    mountpoint.mkdir()

    def types():
        with open("/proc/self/mountinfo") as table:
            return [line.split(" - ")[1].split()[0] for line in table if line.split()[4] == str(mountpoint)]

    subprocess.run(["mount", "-t", "tmpfs", "none", mountpoint], check=True)
    try:
        mount = mounts(small, "ro")
        wait_until(lambda: types() == ["tmpfs", "fuse.sparsefs"])
        assert (mountpoint / "d").is_dir()
        mount.process.send_signal(signal.SIGTERM)
        assert mount.wait() == 0 and types() == ["tmpfs"]
    finally:
        while types():
            subprocess.run(["umount", "-i", "-l", mountpoint], check=True)


@pytest.mark.skipif(os.geteuid() != 0, reason="looks into the kernel's own file system of FUSE")
def test_more_readings_are_under_way_than_the_kernel_has_by_itself(mounts, small, tmp_path):
    """The kernel lets all wait behind as many as it has under way: 12, if nothing is said."""
    control = tmp_path / "control"
    control.mkdir()
    mount = mounts(small, "ro")
    subprocess.run(["mount", "-t", "fusectl", "none", control], check=True)
    try:
        connection = control / str(os.minor(os.stat(mount.root).st_dev))
        assert int((connection / "max_background").read_text()) == 128
        assert int((connection / "congestion_threshold").read_text()) == 96
    finally:
        subprocess.run(["umount", control], check=True)
