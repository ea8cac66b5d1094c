"""Disks that are full, over quota or broken below a mount: the error reaches the call that it belongs
to, what was committed stays whole, and what was written since is there once the disk takes it. The
disks are real: a small tmpfs, a filesystem that answers with an error (failfs.c), ext4 that is shut
down."""
import concurrent.futures
import contextlib
import errno
import fcntl
import os
import pathlib
import select
import shutil
import signal
import stat
import struct
import subprocess
import sys
import time

import h5py
import numpy as np
import pytest

import files
import sparse_files
from compare import check_mount
from conftest import (BUILD, FINDS_SPARSEFS, SPARSEFS, START_SECONDS, Mount, is_mounted, state_of, stop, unmount,
                      wait_for_end, wait_until)
from silent_fuse import silent
from test_sparse import scattered

SPARSECTL = BUILD / "sparsectl"
UMOUNT = BUILD / "mount-helpers/umount.sparsefs"

FRAMES, SIDE = 6, 256
FRAME_BYTES = SIDE * SIDE * 2
GOING_DOWN = 0x8004587D  # EXT4_IOC_SHUTDOWN
NO_LOG_FLUSH = 2

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="only root may mount disks")


# ---- Disks ----


class Tmpfs:
    """It has room for two frames and a journal."""
    error = errno.ENOSPC

    def __init__(self, path):
        self.path = path
        subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64M", "tmpfs", path], check=True)

    def fail(self, **_):
        """A daemon may write meanwhile more than that leaves room for."""
        wait_until(lambda: self.resize(shutil.disk_usage(self.path).used + 2 * 4096))

    def recover(self):
        assert self.resize(64 << 20)

    def resize(self, size):
        return subprocess.run(["mount", "-o", f"remount,size={size // 1024}k", self.path]).returncode == 0

    def end(self):
        unmount(self.path)


class Failfs:
    def __init__(self, path, error):
        self.path, self.error = path, error
        path.mkdir(exist_ok=True)
        self.process = subprocess.Popen([BUILD / "tests/mount/failfs", path])
        deadline = time.monotonic() + START_SECONDS
        while not is_mounted(path):
            assert self.process.poll() is None and time.monotonic() < deadline
            time.sleep(0.01)

    def fail(self, after=0, times=None):
        """After so many more changes have succeeded; from then on, or so many times."""
        (self.path / "fail").write_text(f"{self.error} writes={after} " + (f"times={times} " if times else ""))

    def recover(self):
        (self.path / "fail").write_text("0 writes=0 ")

    def fail_reads(self, error, each=1, behind=0):
        """Those that reach behind a place, or each so many; 0: they succeed again."""
        (self.path / "fail_reads").write_text(f"{error} each={each} from={behind} ")

    def hold(self, what):
        """`changes` and syncs, or `reads`, wait from now on."""
        (self.path / "hold").write_text(what)
        self.what = what

    def wait_for_held(self, n=1):
        """Until so many do."""
        deadline = time.monotonic() + START_SECONDS
        while (self.path / "hold").stat().st_size < len(self.what) + n:
            assert time.monotonic() < deadline, "nothing is held"
            time.sleep(0.01)

    def let_go(self):
        (self.path / "hold").write_text("nothing")

    @contextlib.contextmanager
    def killed_on_error(self):
        """What it holds cannot keep a test that fails from ending."""
        try:
            yield
        except BaseException:
            self.process.kill()
            raise

    def end(self):
        unmount(self.path)
        self.process.wait(START_SECONDS)


DISKS = {"tmpfs": "tmpfs", "ENOSPC": errno.ENOSPC, "EDQUOT": errno.EDQUOT, "EIO": errno.EIO}
READ_ONLY = {"EROFS": errno.EROFS}  # as ext4 is after an error


def disks(which):
    return pytest.mark.parametrize("disk", which.values(), ids=which, indirect=True)


@pytest.fixture(params=DISKS.values(), ids=DISKS)
def disk(request, tmp_path):
    path = tmp_path / "disk"
    path.mkdir()
    disk = Tmpfs(path) if request.param == "tmpfs" else Failfs(path, request.param)
    yield disk
    disk.end()


# ---- The file on it ----


def make(path):
    made = path.parent.with_name("made.h5")
    subprocess.run([BUILD / "sparsectl", "create", made, "/data", "--dims", f"{FRAMES},{SIDE},{SIDE}",
                    "--maxdims", f"inf,{SIDE},{SIDE}", "--dtype", "uint16", "--chunk", "1,64,256"],
                   check=True)
    with h5py.File(made, "r+", libver="latest") as file:
        file.create_dataset("dense", (FRAMES, SIDE, SIDE), "<u2", chunks=(1, 64, 256))
    return pathlib.Path(shutil.copyfile(made, path))


@contextlib.contextmanager
def mounted(path, mountpoint, *options):
    """What is said about the disk is expected; the exit code is the caller's affair."""
    mount = Mount(path, mountpoint, *(options if "ro" in options else ("rw", *options)))
    try:
        yield mount
    finally:
        mount.destroy()
        assert "Sanitizer" not in mount.log() and "runtime error" not in mount.log(), mount.log()


def unlocked():
    """For looking at the file while the daemon has it open."""
    return os.environ | {"HDF5_USE_FILE_LOCKING": "FALSE"}


def check(path):
    done = subprocess.run([BUILD / "sparsectl", "check", path], capture_output=True, text=True,
                          env=unlocked())
    assert done.returncode == 0, done.stdout + done.stderr


def committed(path, tmp_path):
    """The frames that the file holds, a journal beside it included."""
    check(path)
    out = tmp_path / "exported.h5"
    out.unlink(missing_ok=True)
    subprocess.run([BUILD / "sparsectl", "export", f"{path}:/data", f"{out}:/data"], check=True,
                   env=unlocked())
    with h5py.File(out) as file:
        return file["data"][...]


def noise(seed):
    return np.random.default_rng(seed).bytes(FRAME_BYTES)


class Written:
    """The frames as they were written, as far as the mount took them."""

    def __init__(self, mount, folder="data"):
        self.folder = mount / folder / "frames"
        self.content = np.zeros((FRAMES, FRAME_BYTES), "u1")

    def write(self, frame, seed):
        """Returns the error of the writing, or 0. What was not taken may be there or not."""
        data = noise(seed)
        done = 0
        fd = os.open(self.folder / f"{frame}.raw", os.O_WRONLY)
        try:
            while done < FRAME_BYTES:
                done += os.pwrite(fd, data[done:done + 65536], done)
        except OSError as error:
            return error.errno
        finally:
            self.content[frame, :done] = np.frombuffer(data[:done], "u1")
            os.close(fd)
        return 0

    def check(self, frame, upto=FRAME_BYTES):
        found = (self.folder / f"{frame}.raw").read_bytes()
        assert found[:upto] == self.content[frame, :upto].tobytes(), f"frame {frame} is another"


def fsync(path, flags=os.O_RDONLY):
    fd = os.open(path, flags)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def fails_with(error, call, *arguments):
    with pytest.raises(OSError) as raised:
        call(*arguments)
    assert raised.value.errno == error


# ---- Tests ----


def test_what_the_disk_does_not_know_is_an_error(tmp_path):
    """Of an fsync that fails with ENOSYS the kernel says that it is done, and never asks for one again."""
    disk = Failfs(tmp_path / "disk", errno.ENOSYS)
    try:
        path = make(disk.path / "a.h5")
        with mounted(path, tmp_path / "mnt", "commit_interval=0") as mount:
            written = Written(mount)
            assert written.write(0, 10) == 0
            disk.fail()
            for place in 2 * [written.folder / "0.raw", mount.root]:
                fails_with(errno.EIO, fsync, place)
            disk.recover()
            fsync(mount.root)
            assert committed(path, tmp_path)[0].tobytes() == noise(10)
    finally:
        disk.end()


def look(folder, kinds=("raw", "defined")):
    return {name: (folder / name).read_bytes() for name in sorted(os.listdir(folder)) if name.endswith(kinds)}


def write_few(folder):
    """Frames of which little is defined."""
    for frame in range(FRAMES):
        few = np.zeros(SIDE * SIDE, "<u2")
        few[frame::50] = frame + 1
        (folder / f"frames/{frame}.raw").write_bytes(few.tobytes())
    if folder.name == "data":
        for frame in range(FRAMES):
            os.truncate(folder / f"frames/{frame}.raw", FRAME_BYTES // 2)


@disks(DISKS | READ_ONLY)
@pytest.mark.parametrize("folder", ["data", "packed"])
def test_a_frame_that_cannot_be_replaced_is_as_it_was(disk, tmp_path, folder):
    """As a whole, elements and which of them are defined, also where some of it was replaced before the disk was full:
    frames are larger than what they replace, and the cache has room for few of them."""
    path = make(disk.path / "a.h5")
    with h5py.File(path, "r+") as file:
        file.create_dataset("packed", (FRAMES, SIDE, SIDE), "<u2", chunks=(1, 64, 256), compression="gzip")
    with mounted(path, tmp_path / "mnt", "commit_interval=0", "cache_size=512K") as mount:
        frames = mount.root / folder / "frames"
        write_few(mount.root / folder)
        fsync(mount.root)
        before = look(frames)
        disk.fail()
        refused = 0
        for i in range(2 * FRAMES):
            frame, new = i % FRAMES, noise(40 + i)
            (frames / "new.tmp").write_bytes(new)
            try:
                os.rename(frames / "new.tmp", frames / f"{frame}.raw")
                before |= {name: (frames / name).read_bytes() for name in before if name.startswith(f"{frame}.")}
                assert before[f"{frame}.raw"] == new
            except OSError as error:
                assert error.errno == disk.error
                refused += 1
            assert look(frames) == before
        assert refused and "in part" not in mount.log()
        disk.recover()
        fsync(mount.root)
        assert look(frames) == before
        mount.unmount()
    check(path)


@disks(DISKS)
def test_a_selection_that_cannot_be_applied_leaves_the_frame_as_it_was(disk, tmp_path):
    """What it erases is there again: the disk is full before all that it defines has room."""
    path = make(disk.path / "a.h5")
    with mounted(path, tmp_path / "mnt", "commit_interval=0", "cache_size=128K") as mount:
        frames = mount.root / "data/frames"
        write_few(mount.root / "data")
        fsync(mount.root)
        before, space = look(frames), h5py.h5s.create_simple((SIDE, SIDE))
        space.select_hyperslab((SIDE // 8, 0), (SIDE - SIDE // 8, SIDE))  # the first chunk loses half
        disk.fail()
        refused = 0
        for frame in range(FRAMES):
            try:
                (frames / f"{frame}.defined").write_bytes(space.encode())
                before |= {name: (frames / name).read_bytes() for name in before if name.startswith(f"{frame}.")}
            except OSError as error:
                assert error.errno == disk.error
                refused += 1
            assert look(frames) == before
        assert refused and "in part" not in mount.log()
        disk.recover()
        fsync(mount.root)
        assert look(frames) == before
        mount.unmount()
    check(path)


def write_matrix(csr, rows=FRAMES):
    """All elements are others. Returns the number of the error of the last sync, or 0."""
    n = SIDE * SIDE
    for name, array in (("indptr.raw", np.arange(0, n * rows + 1, n, "<i8")),
                        ("indices.raw", np.tile(np.arange(n, dtype="<i4"), rows)),
                        ("data.raw", np.frombuffer(b"".join(noise(i) for i in range(rows)), "<u2"))):
        with open(csr / name, "wb", buffering=0) as file:
            file.write(array.tobytes())
            if name == "data.raw":
                try:
                    os.fsync(file.fileno())
                except OSError as error:
                    return error.errno
    return 0


@disks(DISKS | READ_ONLY)
@pytest.mark.parametrize("how", ["cached", "direct_io", "with new frames", "late"])
def test_a_matrix_that_cannot_be_written_leaves_all_as_it_was(disk, tmp_path, how):
    """Where there are more rows than frames, too; late: when some of them have been stored."""
    path = make(disk.path / "a.h5")
    options = ["commit_interval=0", "cache_size=512K"] + (["direct_io"] if how == "direct_io" else [])
    with mounted(path, tmp_path / "mnt", *options) as mount:
        write_few(mount.root / "data")
        fsync(mount.root)
        frames, csr = mount.root / "data/frames", mount.root / "data/csr"
        before, of_csr = look(frames), look(csr)
        disk.fail(after=30 if how == "late" else 0)
        is_enough = how in ("cached", "direct_io") and isinstance(disk, Failfs)  # a full disk has room in the file
        assert write_matrix(csr, FRAMES if is_enough else 3 * FRAMES) == disk.error
        assert look(frames) == before and "in part" not in mount.log()
        disk.recover()
        fsync(mount.root)
        assert look(frames) == before and look(csr) == of_csr
        mount.unmount()
    check(path)


def test_what_a_matrix_changed_for_a_while_is_shown_no_more(tmp_path):
    """Who reads a frame while one is taken has what it is then, until that is undone."""
    disk = Failfs(tmp_path / "disk", errno.EIO)
    try:
        path = make(disk.path / "a.h5")
        with mounted(path, tmp_path / "mnt", "commit_interval=0", "cache_size=512K") as mount, \
                concurrent.futures.ThreadPoolExecutor() as others:
            frame = mount.root / "data/frames/0.raw"
            write_few(mount.root / "data")
            fsync(mount.root)
            disk.hold("changes")
            try:
                written = others.submit(write_matrix, mount.root / "data/csr")
                disk.wait_for_held()
                deadline = time.monotonic() + START_SECONDS
                while frame.read_bytes() != noise(0):
                    assert time.monotonic() < deadline, "it is not changed"
                    with open(frame) as file:
                        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
                disk.fail()
            finally:
                disk.let_go()
            assert written.result() == disk.error
            few = np.zeros(SIDE * SIDE, "<u2")
            few[:SIDE * SIDE // 2:50] = 1
            assert frame.read_bytes() == few.tobytes()
            disk.recover()
            mount.unmount()
    finally:
        disk.end()


@pytest.mark.parametrize("folder", ["data", "dense"])
@pytest.mark.parametrize("cache", ["cache_size=256M", "cache_size=64K"])
def test_fsync(disk, tmp_path, cache, folder):
    """fsync fails until the disk takes what was written, and then nothing of it is missing."""
    path = make(disk.path / "a.h5")
    with mounted(path, tmp_path / "mnt", "commit_interval=0", cache) as mount:
        written = Written(mount, folder)
        assert written.write(0, 10) == 0
        fsync(mount.root)
        disk.fail()
        errors = [written.write(frame, 20 + frame) for frame in range(FRAMES)]
        assert set(errors) <= {0, disk.error}, errors
        whole = [frame for frame, error in enumerate(errors) if not error]
        fails_with(disk.error, fsync, written.folder / "0.raw")
        fails_with(disk.error, fsync, mount.root)
        if folder == "data":
            frames = committed(path, tmp_path)
            assert frames[0].tobytes() == noise(10) and not frames[1:].any()
        else:
            check(path)
        for frame in whole:
            written.check(frame)
        disk.recover()
        fsync(mount.root)
        for frame in range(FRAMES):
            assert written.write(frame, 30 + frame) == 0 if errors[frame] else True
        fsync(mount.root)
        mount.unmount()
        assert mount.process.returncode == 0, mount.log()
        check(path)
    with mounted(path, tmp_path / "mnt", "ro") as mount:
        for frame in range(FRAMES):
            written.check(frame)
        mount.unmount()


def test_written_synchronously(disk, tmp_path):
    """With O_SYNC the write itself says it, and succeeds when the disk does."""
    path = make(disk.path / "a.h5")
    with mounted(path, tmp_path / "mnt", "commit_interval=0") as mount:
        fd = os.open(mount / "data/frames/1.raw", os.O_WRONLY | os.O_SYNC)
        try:
            disk.fail()
            fails_with(disk.error, os.pwrite, fd, noise(1)[:65536], 0)
            disk.recover()
            assert os.pwrite(fd, noise(1)[:65536], 0) == 65536
            assert not (committed(path, tmp_path)[1].tobytes()[:65536] != noise(1)[:65536])
        finally:
            os.close(fd)
        mount.unmount()


def close_quietly(fd):
    with contextlib.suppress(OSError):
        os.close(fd)


def wait_for(mount, word):
    deadline = time.monotonic() + START_SECONDS
    while word not in mount.log():
        assert time.monotonic() < deadline, mount.log()
        time.sleep(0.05)


@pytest.mark.parametrize("end", ["close", "fsync"])
def test_in_the_background(disk, tmp_path, end):
    """A commit that nobody waits for fails: the next fsync or close of what was written says so, and
    only that; a commit later on makes all of it durable."""
    path = make(disk.path / "a.h5")
    with mounted(path, tmp_path / "mnt", "commit_interval=1") as mount:
        fsync(mount.root)
        with contextlib.ExitStack() as stack:
            fd = os.open(mount / "data/frames/2.raw", os.O_WRONLY)
            stack.callback(close_quietly, fd)
            os.pwrite(fd, noise(1), 0)
            os.fsync(fd)  # from now on the frame is committed although it is open
            disk.fail()
            assert os.pwrite(fd, noise(2), 0) == FRAME_BYTES
            wait_for(mount, f"could not be committed: {os.strerror(disk.error)}")
            if end == "close":
                fails_with(disk.error, os.close, os.dup(fd))
            else:
                fails_with(disk.error, os.fsync, fd)
                disk.recover()
                os.fsync(fd)
        disk.recover()
        fsync(mount / "data/frames/2.raw")
        os.close(os.open(mount / "data/frames/2.raw", os.O_WRONLY))
        assert committed(path, tmp_path)[2].tobytes() == noise(2)
        mount.unmount()
    check(path)


def test_unmounting(disk, tmp_path):
    """What cannot be committed at the end is lost, loudly; what had been committed is not."""
    path = make(disk.path / "a.h5")
    with mounted(path, tmp_path / "mnt", "commit_interval=0") as mount:
        written = Written(mount)
        assert written.write(0, 1) == 0
        fsync(mount.root)
        disk.fail()
        assert written.write(1, 2) == 0
        unmount(mount.root)
        assert mount.wait() != 0
        assert os.strerror(disk.error) in mount.log()
    frames = committed(path, tmp_path)
    assert frames[0].tobytes() == noise(1) and not frames[1:].any()
    disk.recover()
    with mounted(path, tmp_path / "mnt") as mount:
        frames = committed(path, tmp_path)
        assert frames[0].tobytes() == noise(1) and not frames[1:].any()
        mount.unmount()
        assert mount.process.returncode == 0, mount.log()


def test_groups_and_frames_made(disk, tmp_path):
    """What libhdf5 writes fails and is made good in the same way."""
    path = make(disk.path / "a.h5")
    with mounted(path, tmp_path / "mnt", "commit_interval=0") as mount:
        disk.fail()
        made = []
        for number in range(20):
            try:
                os.mkdir(mount / f"group {number}")
                made.append(f"group {number}")
            except OSError as error:
                assert error.errno == disk.error
        try:
            os.close(os.open(mount / f"data/frames/{FRAMES}.raw", os.O_WRONLY | os.O_CREAT))
            frames = FRAMES + 1
        except OSError as error:
            assert error.errno == disk.error
            frames = FRAMES
        fails_with(disk.error, fsync, mount.root)
        check(path)
        disk.recover()
        fsync(mount.root)
        mount.unmount()
        assert mount.process.returncode == 0, mount.log()
    check(path)
    with mounted(path, tmp_path / "mnt", "ro") as mount:
        assert set(made) <= set(os.listdir(mount.root))
        assert len([name for name in os.listdir(mount / "data/frames") if name.endswith(".raw")]) == frames
        mount.unmount()


def test_every_change_fails_once(tmp_path):
    """After the n-th change the disk is full, for every n that a commit takes: the file holds the
    state before it or after it, and the next fsync finishes it."""
    folder = tmp_path / "disk"
    folder.mkdir()
    disk = Failfs(folder, errno.ENOSPC)
    try:
        path = make(disk.path / "a.h5")
        with mounted(path, tmp_path / "mnt", "commit_interval=0") as mount:
            written = Written(mount)
            previous = bytes(FRAME_BYTES)
            for after in range(500):
                assert written.write(1, 100 + after) == 0
                os.mkdir(mount / f"group {after}")
                disk.fail(after)
                try:
                    fsync(mount.root)
                    failed = False
                except OSError as error:
                    assert error.errno == errno.ENOSPC
                    failed = True
                disk.recover()
                state = committed(path, tmp_path)[1].tobytes()
                assert state == noise(100 + after) or failed and state == previous, after
                try:
                    fsync(mount.root)
                except OSError as error:
                    pytest.fail(f"after {after} changes: {error}: {mount.log()}")
                previous = noise(100 + after)
                assert committed(path, tmp_path)[1].tobytes() == previous
                if not failed:
                    break
            assert not failed and after > 3
            mount.unmount()
            assert mount.process.returncode == 0, mount.log()
            check(path)
    finally:
        disk.end()


def test_interrupted_calls_of_the_disk_do_not_end_recovering(tmp_path):
    """Whichever call it is: some file systems say EINTR of calls that they have done."""
    folder = tmp_path / "disk"
    folder.mkdir()
    disk = Failfs(folder, errno.EINTR)
    try:
        path = make(disk.path / "a.h5")
        journal = path.with_name("a.h5.journal")
        mount = Mount(path, tmp_path / "mnt", "rw,commit_interval=0")
        (mount / "data/frames/1.raw").write_bytes(noise(1))
        fsync(mount.root)
        mount.process.kill()
        mount.umount("-l")
        mount.wait()
        left = {file: file.read_bytes() for file in (path, journal)}
        for after in range(30):
            for file, content in left.items():
                file.write_bytes(content)
            disk.fail(after, times=1)
            done = subprocess.run([SPARSECTL, "recover", path], capture_output=True, text=True, check=False,
                                  timeout=START_SECONDS)
            disk.recover()
            assert done.returncode == 0 and "replayed" in done.stdout, (after, done.stderr)
    finally:
        disk.end()


def loop_devices(image):
    """One goes when nothing of it is mounted any more."""
    return subprocess.run(["losetup", "--associated", image], check=True, capture_output=True, text=True).stdout


def test_disk_goes_away(tmp_path):
    """ext4 is shut down below the mount, as when a disk is pulled out: fsync says EIO, and after ext4
    has been mounted again the file holds what had been committed."""
    image, folder = tmp_path / "image", tmp_path / "disk"
    folder.mkdir()
    with open(image, "wb") as file:
        file.truncate(64 << 20)
    subprocess.run(["mkfs.ext4", "-q", image], check=True)
    if subprocess.run(["mount", "-o", "loop", image, folder]).returncode:
        pytest.skip("no loop devices here")
    try:
        path = make(folder / "a.h5")
        with mounted(path, tmp_path / "mnt", "commit_interval=0") as mount:
            written = Written(mount)
            assert written.write(0, 1) == 0
            fsync(mount.root)
            assert written.write(1, 2) == 0
            fd = os.open(folder, os.O_RDONLY)
            fcntl.ioctl(fd, GOING_DOWN, struct.pack("I", NO_LOG_FLUSH))
            os.close(fd)
            fails_with(errno.EIO, fsync, mount / "data/frames/1.raw")
            written.check(0)
            written.check(1)
            unmount(mount.root)
            assert mount.wait() != 0
        unmount(folder)
        # What is still mounted elsewhere, as by a process with mounts of its own, would be mounted again as it is.
        wait_until(lambda: not loop_devices(image))
        subprocess.run(["mount", "-o", "loop", image, folder], check=True)
        frames = committed(path, tmp_path)
        assert frames[0].tobytes() == noise(1) and not frames[1:].any()
    finally:
        if is_mounted(folder):
            unmount(folder)


# ---- Disks that cannot be read for a while ----


@pytest.fixture
def unreadable(tmp_path):
    disk = Failfs(tmp_path / "unreadable", errno.EIO)
    yield disk
    disk.end()


def look_at_all(folder):
    """Of what cannot be read the error is what there is to see. Returns how often."""
    errors = 0
    try:
        names = os.listdir(folder)
    except OSError:
        return 1
    for path in (folder / name for name in names):
        try:
            st = path.lstat()
            os.listxattr(path, follow_symlinks=False)
            if stat.S_ISREG(st.st_mode):
                path.read_bytes()
        except OSError:
            errors += 1
            continue
        if stat.S_ISDIR(st.st_mode):
            errors += look_at_all(path)
    return errors


def make_nested(path):
    """Groups with more in their headers than these had room for."""
    with h5py.File(path, "w") as file:
        for name in ("a", "b", "c"):
            file.create_dataset(f"x/y/{name}", data=np.ones((4, 64, 64), "u2"), chunks=(1, 64, 64))
        for n in range(40):
            file["x"].attrs[f"attribute {n}"] = np.arange(n)
            file["x/y/a"].attrs[f"attribute {n}"] = np.arange(n)


@pytest.mark.parametrize("make", [make_nested, files.make_types, files.make_layouts, files.make_groups],
                         ids=lambda f: f.__name__)
@pytest.mark.parametrize("mode", ["ro", "rw"])
def test_a_read_error_that_passes_leaves_nothing_behind(mounts, unreadable, tmp_path, make, mode):
    """Reads fail while everything is looked at for the first time, all of them or each so many; then
    everything is there."""
    sound = tmp_path / "sound"
    sound.mkdir()
    make(sound / "a.h5")
    for path in sound.iterdir():
        shutil.copyfile(path, unreadable.path / path.name)
    for each in (1, 2, 3, 4, 5, 7) if make is make_nested else (1, 3):
        mount = mounts(unreadable.path / "a.h5", mode, "missing=fill", expect_log=True)
        unreadable.fail_reads(errno.EIO, each)
        errors = look_at_all(mount.root)
        unreadable.fail_reads(0)
        assert errors > 0 or each > 2
        assert check_mount(mount.root, sound / "a.h5") > 0
        mount.unmount()


FAR = 100_000  # bytes in the midst of a file


def test_a_read_error_that_passes_hides_no_attribute_for_good(mounts, unreadable):
    """Whose text lies elsewhere in the file. What is said of a file is kept when it is closed, and as long as it
    stays the same: but not that it has a name less than there are."""
    made, folder = unreadable.path.parent / "made.h5", unreadable.path
    with h5py.File(made, "w") as file:
        file.create_group("g").attrs["text"] = "x"
        file["far"] = np.zeros(2 * FAR, "u1")
        file["g"].attrs.modify("text", "x" * 8000)
    for name in "a.h5", "b.h5":
        shutil.copyfile(made, folder / name)
    mount = mounts(folder, "max_open=1", expect_log=True)
    time.sleep(2.5)  # nothing is kept of what was changed a moment ago
    unreadable.fail_reads(errno.EIO, behind=FAR)
    with contextlib.suppress(OSError):
        assert os.listxattr(mount / "a.h5/g") == []
    unreadable.fail_reads(0)
    assert os.listxattr(mount / "b.h5/g") == ["user.text"]  # so that the other one is closed
    assert os.listxattr(mount / "a.h5/g") == ["user.text"]
    mount.unmount()


def test_a_read_error_makes_no_reference_null(unreadable, tmp_path):
    """What leads to a region lies elsewhere in the file."""
    made, source, copy = tmp_path / "made.h5", unreadable.path / "a.h5", tmp_path / "copy.h5"
    with h5py.File(made, "w") as file:
        file["x"] = np.arange(12)
        file.create_dataset("regions", (2,), h5py.regionref_dtype)[:] = 2 * [h5py.RegionReference()]
        file["far"] = np.zeros(2 * FAR, "u1")
        file["regions"][:] = [file["x"].regionref[1:3], file["x"].regionref[5:]]
        place = file["far"].id.get_offset() + 2 * FAR
    shutil.copyfile(made, source)
    unreadable.fail_reads(errno.EIO, behind=place)
    failed = subprocess.run([SPARSECTL, "repack", source, copy], capture_output=True, check=False)
    unreadable.fail_reads(0)
    assert failed.returncode == 1 and failed.stderr and not copy.exists()
    subprocess.run([SPARSECTL, "repack", source, copy], check=True)
    with h5py.File(copy) as file:
        assert [file["x"][region].tolist() for region in file["regions"]] == [[1, 2], list(range(5, 12))]


# ---- Slow disks ----


@pytest.fixture
def slow(tmp_path):
    disk = Failfs(tmp_path / "slow", errno.EIO)
    yield disk
    disk.let_go()
    disk.end()


def create_on(disk, path, frames=2):
    """The disk has no links, without which no file is made there."""
    made = disk.path.parent / "made.h5"
    subprocess.run([SPARSECTL, "create", made, "x", "--dims", f"{frames},64,64", "--dtype", "uint16"], check=True)
    shutil.copyfile(made, path)


def frame_of(path, frame, tmp_path):
    mount = Mount(path, tmp_path / "look")
    try:
        return (mount / f"x/frames/{frame}.raw").read_bytes()
    finally:
        mount.unmount()


FIRST, REPEATED = [signal.SIGTERM, signal.SIGINT, signal.SIGHUP, None], \
    [signal.SIGTERM, signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGPIPE]


@pytest.mark.parametrize("first", FIRST, ids=["TERM", "INT", "HUP", "umount"])
def test_no_signal_cuts_the_last_commit_short(mounts, slow, tmp_path, first):
    """What was written is committed when the mount ends by a signal or is unmounted, whatever comes
    while the disk is busy with that."""
    path = slow.path / "a.h5"
    create_on(slow, path)
    mount = mounts(path, "rw,commit_interval=0")
    (mount / "x/frames/1.raw").write_bytes(b"\1\2" * 4096)
    slow.hold("changes")
    if first:
        mount.process.send_signal(first)
    else:
        assert mount.umount()
    slow.wait_for_held()
    for number in REPEATED:
        mount.process.send_signal(number)
    slow.let_go()
    assert mount.wait() == 0
    assert frame_of(path, 1, tmp_path) == b"\1\2" * 4096
    subprocess.run([SPARSECTL, "check", path], check=True, capture_output=True)


@pytest.mark.parametrize("how", ["by time", "by a sync", "as it settles"])
def test_a_long_commit_does_not_hold_commits_of_other_files(mounts, tmp_path, how):
    """It takes longer than several intervals: the other files of the folder are committed meanwhile. So if nothing has
    changed since the last one, which still has to be put into the file."""
    folder = tmp_path / "folder"
    folder.mkdir()
    disk = Failfs(folder / "slow", errno.EIO)
    try:
        create_on(disk, disk.path / "a.h5")
        with h5py.File(folder / "b.h5", "w") as file:
            file["d"] = np.zeros((2, 8, 16), "u1")
            place = file["d"].id.get_offset()
        mount = mounts(folder, "default", "commit_interval=1")
        with open(mount / "slow/a.h5/x/frames/1.raw", "r+b", buffering=0) as frame, \
                concurrent.futures.ThreadPoolExecutor() as pool, disk.killed_on_error():
            frame.write(b"\1\2" * 4096)
            os.fsync(frame.fileno())  # else it is left out at first
            disk.hold("changes")
            if how != "as it settles":
                os.pwrite(frame.fileno(), b"\3\4" * 4096, 0)
            synced = pool.submit(os.fsync, frame.fileno()) if how == "by a sync" else None
            disk.wait_for_held()
            try:
                for value in (1, 2):
                    content = bytes([value]) * 128
                    pool.submit((mount / "b.h5/d/frames/0.raw").write_bytes, content).result(START_SECONDS)
                    wait_until(lambda: (folder / "b.h5").read_bytes()[place:place + 128] == content)
                assert not synced or not synced.done()
            finally:
                disk.let_go()
        assert not synced or synced.result() is None
        mount.unmount()
    finally:
        disk.let_go()
        disk.end()


def sync_folder(mount, i):
    fd = os.open(mount / f"sub{i}", os.O_RDONLY | os.O_DIRECTORY)
    return lambda: os.fsync(fd), fd


def write_synchronously(mount, i):
    fd = os.open(mount / f"slow/a.h5/x/frames/{i}.raw", os.O_WRONLY | os.O_DSYNC)
    return lambda: os.pwrite(fd, b"\5\6" * 64, 0), fd


def change(path):
    with open(path, "r+b", buffering=0) as frame:
        os.pwrite(frame.fileno(), b"abc", 0)
        return os.pread(frame.fileno(), 4, 0)


LOOK = """
import os, sys
print("looks", flush=True)
open(sys.argv[1], "rb").read(1)
"""


def begin_looking(path, how=LOOK):
    """A program that waits, for another answer than those that come at once."""
    process = subprocess.Popen([sys.executable, "-c", how, path], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    assert process.stdout.readline() == b"looks\n"
    process.stdout.close()
    status, before = pathlib.Path(f"/proc/{process.pid}/status"), None
    while before != (before := [line for line in status.read_text().splitlines() if "switches" in line]):
        time.sleep(0.3)
    return process


STAT = LOOK.replace('open(sys.argv[1], "rb").read(1)', "os.stat(sys.argv[1])")
MAKE = LOOK.replace('open(sys.argv[1], "rb").read(1)', "os.mkdir(sys.argv[1])")
WRITE = LOOK.replace('open(sys.argv[1], "rb").read(1)', "os.write(os.open(sys.argv[1], os.O_WRONLY), b'abc')")


@pytest.mark.parametrize("how, view", [(STAT, ".sparsefs/image.h5"), (LOOK, ".sparsefs/image.h5"), (MAKE, "group"),
                                       (WRITE, "large/stack.raw")], ids=["stat", "open", "mkdir", "write"])
def test_who_waits_for_a_long_commit_can_be_killed(mounts, slow, how, view):
    """For the image or its size, to make a group, or to write what is not in the cache: nothing has changed then."""
    with h5py.File(slow.path / "a.h5", "w") as file:
        file["large"] = np.ones((1 << 21,), "u1")
    mount = mounts(slow.path / "a.h5", "rw", "commit_interval=0", "cache_size=1M")
    os.mkdir(mount / "made")
    fd = os.open(mount / "made", os.O_RDONLY)  # the kernel locks it meanwhile
    with concurrent.futures.ThreadPoolExecutor() as pool, slow.killed_on_error():
        slow.hold("changes")
        synced = pool.submit(os.fsync, fd)
        slow.wait_for_held()
        waiting = begin_looking(mount / view, how)
        waiting.kill()
        assert waiting.wait(START_SECONDS) == -signal.SIGKILL
        assert not synced.done()
        slow.let_go()
        synced.result(START_SECONDS)
    os.close(fd)
    assert sorted(os.listdir(mount.root)) == [".sparsefs", "large", "made"]
    assert (mount / "large/stack.raw").read_bytes() == b"\1" * (1 << 21)
    mount.unmount()


@pytest.mark.parametrize("begin", [sync_folder, write_synchronously])
def test_who_waits_for_a_long_commit_does_not_hold_others(mounts, tmp_path, begin):
    """Many more do than there are threads: each is replaced by one, and another file is read and written meanwhile."""
    many, folder = 12, tmp_path / "folder"
    folder.mkdir()
    for i in range(many):
        (folder / f"sub{i}").mkdir()
    disk = Failfs(folder / "slow", errno.EIO)
    try:
        create_on(disk, disk.path / "a.h5", many)
        with h5py.File(folder / "b.h5", "w") as file:
            file["d"] = np.zeros((2, 8, 16), "u1")
        mount = mounts(folder, "default", "commit_interval=0", "threads=1")
        with concurrent.futures.ThreadPoolExecutor(many + 1) as pool, disk.killed_on_error():
            waits, fds = zip(*[begin(mount, i) for i in range(many)])
            with open(mount / "slow/a.h5/x/frames/0.raw", "r+b", buffering=0) as frame:
                frame.write(b"\1\2" * 4096)
                os.fsync(frame.fileno())  # else it is left out at first
                disk.hold("changes")
                os.pwrite(frame.fileno(), b"\3\4" * 4096, 0)
            tasks = pathlib.Path(f"/proc/{mount.process.pid}/task")
            before = len(list(tasks.iterdir()))
            waiting = [pool.submit(wait) for wait in waits]
            disk.wait_for_held()
            wait_until(lambda: len(list(tasks.iterdir())) >= before + many // 2)
            assert pool.submit(change, mount / "b.h5/d/frames/1.raw").result(START_SECONDS) == b"abc\0"
            assert not any(one.done() for one in waiting)
            disk.let_go()
            for one in waiting:
                one.result(START_SECONDS)
        for fd in fds:
            os.close(fd)
        mount.unmount()
    finally:
        disk.end()


def test_a_disk_that_does_not_answer_does_not_hold_others(mounts, tmp_path):
    """More read from it than there are threads: another file is read and written meanwhile."""
    many, folder = 5, tmp_path / "folder"
    folder.mkdir()
    disk = Failfs(folder / "slow", errno.EIO)
    try:
        with h5py.File(tmp_path / "made.h5", "w") as file:
            file.create_dataset("x", data=np.ones((many, 512, 512), "u2"), chunks=(1, 512, 512))
        shutil.copyfile(tmp_path / "made.h5", disk.path / "a.h5")
        with h5py.File(folder / "b.h5", "w") as file:
            file["d"] = np.zeros((2, 8, 16), "u1")
        mount = mounts(folder, "default", "threads=2")
        with concurrent.futures.ThreadPoolExecutor(many + 1) as pool, disk.killed_on_error():
            frames = [mount / f"slow/a.h5/x/frames/{i}.raw" for i in range(many)]
            assert len(frames.pop().read_bytes()) == 1 << 19  # where the others are is known then, too
            disk.hold("reads")
            reading = [pool.submit(frame.read_bytes) for frame in frames]
            disk.wait_for_held(2)
            assert pool.submit(change, mount / "b.h5/d/frames/1.raw").result(START_SECONDS) == b"abc\0"
            assert not any(one.done() for one in reading)
            disk.let_go()
            assert all(len(one.result(START_SECONDS)) == 1 << 19 for one in reading)
        mount.unmount()
    finally:
        disk.end()


def is_there(path, frame, content, tmp_path):
    """It cannot be mounted as long as it is open for writing."""
    with contextlib.suppress(RuntimeError):
        return frame_of(path, frame, tmp_path) == content
    return False


@pytest.mark.parametrize("interval", [0, 1])
def test_the_end_commits_what_is_on_disks_that_answer(mounts, tmp_path, interval):
    """One does not, whether a commit waits for it already or the end's is the first: the others' files are committed
    and closed meanwhile, and the daemon ends when it answers."""
    folder = tmp_path / "folder"
    folder.mkdir()
    disk = Failfs(folder / "slow", errno.EIO)
    try:
        create_on(disk, disk.path / "a.h5")
        shutil.copyfile(disk.path / "a.h5", folder / "b.h5")
        mount = mounts(folder, "default", f"commit_interval={interval}")
        with disk.killed_on_error():
            with open(mount / "slow/a.h5/x/frames/1.raw", "r+b", buffering=0) as frame:
                frame.write(b"\1\2" * 4096)
                os.fsync(frame.fileno())
                disk.hold("changes")
                os.pwrite(frame.fileno(), b"\3\4" * 4096, 0)
            if interval:
                disk.wait_for_held()
            (mount / "b.h5/x/frames/1.raw").write_bytes(b"\5\6" * 4096)
            mount.process.terminate()
            disk.wait_for_held()
            wait_until(lambda: is_there(folder / "b.h5", 1, b"\5\6" * 4096, tmp_path))
            assert mount.process.poll() is None
            disk.let_go()
            assert mount.wait() == 0
            assert frame_of(disk.path / "a.h5", 1, tmp_path) == b"\3\4" * 4096
    finally:
        disk.end()


SYNC = """
import os, sys
folder = os.open(sys.argv[1], os.O_RDONLY)
print("syncs", flush=True)
os.fsync(folder)
"""


def test_a_closing_that_takes_long_does_not_hold_commits_of_other_files(mounts, tmp_path):
    """It commits, as another file is wanted: what is committed by time is so meanwhile. Who syncs the folder waits for
    it, and can be killed."""
    folder = tmp_path / "folder"
    folder.mkdir()
    disk = Failfs(folder / "slow", errno.EIO)
    try:
        create_on(disk, disk.path / "a.h5")
        for name in "bc":
            with h5py.File(folder / f"{name}.h5", "w") as file:
                file["d"] = np.zeros((2, 8, 16), "u1")
                place = file["d"].id.get_offset()
        mount = mounts(folder, "default", "commit_interval=1", "max_open=2")
        with concurrent.futures.ThreadPoolExecutor() as pool, disk.killed_on_error():
            with open(mount / "slow/a.h5/x/frames/1.raw", "r+b", buffering=0) as frame:
                frame.write(b"\1\2" * 4096)
                os.fsync(frame.fileno())
                disk.hold("changes")
                os.pwrite(frame.fileno(), b"\3\4" * 4096, 0)
            with open(mount / "b.h5/d/frames/0.raw", "r+b", buffering=0) as other:
                opened = pool.submit((mount / "c.h5/d/frames/0.raw").read_bytes)
                disk.wait_for_held()
                for value in (1, 2):
                    content = bytes([value]) * 128
                    os.pwrite(other.fileno(), content, 0)
                    wait_until(lambda: (folder / "b.h5").read_bytes()[place:place + 128] == content)
                with subprocess.Popen([sys.executable, "-c", SYNC, mount.root], stdout=subprocess.PIPE) as syncing:
                    syncing.stdout.readline()
                    wait_until(lambda: state_of(syncing.pid) in "SD")
                    syncing.kill()
                    syncing.wait(START_SECONDS)
                assert not opened.done()
                disk.let_go()
                assert opened.result() == bytes(128)
        mount.unmount()
    finally:
        disk.end()


def write_selection(d, array):
    """What is left of the frame is read as that is applied."""
    fd = os.open(d / "frames/0.defined", os.O_WRONLY | os.O_TRUNC)
    space = h5py.h5s.create_simple(array.shape)
    space.select_hyperslab((5, 7), (1, 9))
    os.write(fd, space.encode())
    left = np.zeros_like(array)
    left[5, 7:16] = array[5, 7:16]
    return fd, left


def write_csr(d, array):
    fd = os.open(d / "csr/data.raw", os.O_WRONLY | os.O_TRUNC)
    os.write(fd, np.array([5, 6], "<u2").tobytes())
    for name, content in (("indptr", np.array([0, 1, 2], "<i8")), ("indices", np.array([3, 4], "<i4"))):
        (d / f"csr/{name}.raw").write_bytes(content.tobytes())
    left = np.zeros_like(array)
    left[0, 3] = 5
    return fd, left


@pytest.mark.parametrize("write, view", [(write_selection, "frames/0.raw"), (write_csr, "csr/indices.raw")],
                         ids=["selection", "csr"])
def test_who_waits_for_what_is_applied_can_be_killed(mounts, slow, tmp_path, write, view):
    """The disk does not answer meanwhile: it has to be asked for what the kernel does not read ahead. All is applied
    when it does."""
    array = np.random.default_rng(1).integers(1, 65536, (2, 512, 512), "u2")
    sparse_files.make(tmp_path / "made.h5", array, np.ones(array.shape, bool), array.shape)
    shutil.copyfile(tmp_path / "made.h5", slow.path / "a.h5")
    mount = mounts(slow.path / "a.h5", "rw", "commit_interval=0")
    fd, left = write(mount / "sparse", array[0])
    with concurrent.futures.ThreadPoolExecutor() as pool, slow.killed_on_error():
        slow.hold("reads")
        closed = pool.submit(os.close, fd)
        slow.wait_for_held()
        looker = begin_looking(mount / "sparse" / view)
        looker.kill()
        assert looker.wait(START_SECONDS) == -signal.SIGKILL
        assert not closed.done()
        slow.let_go()
        closed.result(START_SECONDS)
    assert (mount / "sparse/frames/0.raw").read_bytes() == left.tobytes()
    mount.unmount()


def test_a_sync_of_csr_that_is_killed_can_be_repeated(mounts, slow, tmp_path):
    """By another process that has the file open, too: with it go its descriptors, which closes nothing."""
    array = np.random.default_rng(1).integers(1, 65536, (300, 64, 64), "u2")
    sparse_files.make(tmp_path / "made.h5", array, np.ones(array.shape, bool), (1, 64, 64))
    shutil.copyfile(tmp_path / "made.h5", slow.path / "a.h5")
    mount = mounts(slow.path / "a.h5", "rw", "commit_interval=0", "cache_size=64K")
    data = mount / "sparse/csr/data.raw"
    fd = os.open(data, os.O_WRONLY | os.O_TRUNC)
    with open(fd, "wb", buffering=0, closefd=False) as written, slow.killed_on_error():
        written.write(array[::-1].tobytes())
        slow.hold("reads")
        with subprocess.Popen([sys.executable, "-c", f"import os; os.fsync({fd})"], pass_fds=[fd]) as syncing:
            slow.wait_for_held()
            syncing.kill()
            time.sleep(1.5)  # after a second what changes something is interrupted, too
            slow.let_go()
            assert syncing.wait(START_SECONDS) == -signal.SIGKILL
    os.fsync(fd)
    os.close(fd)
    assert data.read_bytes() == array[::-1].tobytes()
    mount.unmount()


def test_no_signal_cuts_the_last_commit_of_a_daemon_short(slow, tmp_path):
    """The same in the background, as service managers end it: by both at once."""
    path, root = slow.path / "a.h5", tmp_path / "mnt"
    create_on(slow, path)
    root.mkdir()
    subprocess.run([SPARSEFS, "-o", "rw,commit_interval=0", path, root], check=True, timeout=START_SECONDS)
    pid = int((root / ".sparsefs/pid").read_text())
    (root / "x/frames/1.raw").write_bytes(b"\1\2" * 4096)
    slow.hold("changes")
    unmount(root)
    os.kill(pid, signal.SIGTERM)
    slow.wait_for_held()
    for number in REPEATED:
        os.kill(pid, number)
    slow.let_go()
    wait_for_end(pid)
    assert frame_of(path, 1, tmp_path) == b"\1\2" * 4096


@pytest.mark.parametrize("numbers", [[signal.SIGTERM], [signal.SIGTERM] * 2, [signal.SIGHUP],
                                     [signal.SIGINT, signal.SIGHUP]], ids=str)
def test_signals_during_the_commit_of_a_command(slow, tmp_path, numbers):
    """The file is as before or as after it; after the first signal the command ends the commit."""
    path, source = slow.path / "a.h5", tmp_path / "source.h5"
    with h5py.File(source, "w") as file:
        file["d"] = np.arange(64 * 64, dtype="<u2").reshape(1, 64, 64)
    create_on(slow, path)
    names = {("x",), ("x", "y")}
    slow.hold("changes")
    process = subprocess.Popen([SPARSECTL, "import", f"{source}:/d", f"{path}:/y"],
                               stderr=subprocess.DEVNULL)
    slow.wait_for_held()
    for number in numbers:
        process.send_signal(number)
    slow.let_go()
    code = process.wait(START_SECONDS)
    subprocess.run([SPARSECTL, "recover", path], check=True, capture_output=True)
    subprocess.run([SPARSECTL, "check", path], check=True, capture_output=True)
    with h5py.File(path) as file:
        assert tuple(file) in names and (code != 0 or "y" in file)
    assert sorted(p.name for p in slow.path.iterdir() if p.name not in ("fail", "hold")) == ["a.h5"]


@contextlib.contextmanager
def invalidating(slow, tmp_path, environment=None):
    """A mount and its readers, who wait for frames of csr/data.raw that the disk does not give, the last
    of them without a thread of the daemon that listens to it, while frame 0 was written. All of them
    have pages of it locked, and that has to invalidate it as a whole. In such a cache nothing is read
    ahead."""
    path = slow.path / "a.h5"
    with h5py.File(path, "w", libver="latest") as file:
        file.create_dataset("x", (4, 64, 64), "<u2", chunks=(1, 64, 64), compression=1)
        for n in range(4):
            file["x"][n] = n + 1
    mount = Mount(path, tmp_path / "mnt", "rw,commit_interval=0,threads=3,cache_size=64K",
                  environment=environment)
    frame_bytes = 64 * 64 * 2
    readers = []
    try:
        (mount / "x/frames/0.raw").read_bytes()
        readers += [start_reader(mount / "x/csr/data.raw") for _ in range(4)]
        slow.hold("reads")
        for n in (1, 2):
            read_page(readers[n - 1], n * frame_bytes)
            slow.wait_for_held(n)
        (mount / "x/frames/0.raw").write_bytes(b"\7" * frame_bytes)
        read_page(readers[2], 3 * frame_bytes)
        slow.wait_for_held(3)
        stop(mount.process.pid)
        read_page(readers[3], 3 * frame_bytes + 4096)
        yield mount, readers
    finally:
        slow.let_go()
        mount.process.kill()
        mount.umount("-f", "-l")
        for reader in readers:
            reader.kill()


def all_failed(readers):
    return all(reader.wait(START_SECONDS) != 0 for reader in readers)


def keeper_of(pid):
    children = pathlib.Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    [keeper] = [child for child in children if pathlib.Path(f"/proc/{child}/comm").read_text() == "fuse-keeper\n"]
    return int(keeper)


def test_a_killed_daemon_ends_whoever_waits_for_it(slow, tmp_path):
    with invalidating(slow, tmp_path) as (mount, readers):
        mount.process.kill()
        slow.let_go()
        assert mount.wait() == -signal.SIGKILL
        assert all_failed(readers)
        subprocess.run([SPARSECTL, "recover", mount.path], check=True, capture_output=True) # not locked


def test_umount_ends_a_daemon_that_was_killed_with_its_keeper(slow, tmp_path):
    """Readers that nobody will answer keep the mount busy: umount.sparsefs ends them."""
    with invalidating(slow, tmp_path) as (mount, readers):
        os.kill(keeper_of(mount.process.pid), signal.SIGKILL)
        mount.process.kill()
        slow.let_go()
        done = subprocess.run([UMOUNT, "-v", mount.root], capture_output=True, text=True,
                              timeout=START_SECONDS, env=FINDS_SPARSEFS)
        assert done.returncode == 0, done.stderr
        assert "is aborted" in done.stdout and not is_mounted(mount.root)
        assert mount.wait() == -signal.SIGKILL
        assert all_failed(readers)


def preloaded(folder, source):
    """An environment in which a program's calls are these functions."""
    if not shutil.which("cc"):
        pytest.skip("cc is not installed")
    if "libasan" in subprocess.run(["ldd", SPARSEFS], capture_output=True, text=True, check=True).stdout:
        pytest.skip("nothing can be preloaded into a build with sanitizers")
    (folder / "calls.c").write_text(source)
    subprocess.run(["cc", "-shared", "-fPIC", "-o", folder / "calls.so", folder / "calls.c"], check=True)
    return {"LD_PRELOAD": str(folder / "calls.so")}


@pytest.fixture(scope="module")
def one_table(tmp_path_factory):
    """An environment in which all threads of a daemon have one table of descriptors, as they had in
    versions without a keeper: the lock lasts as long as the last thread."""
    return preloaded(tmp_path_factory.mktemp("preloaded"), """
#include <errno.h>
int unshare(int what)
{
    (void)what;
    errno = EPERM;
    return -1;
}
""")


@pytest.mark.parametrize("what", ["mount", "info", "create", "recover, of one that is in no table of mounts"])
def test_who_opens_the_file_ends_a_killed_daemon(slow, one_table, tmp_path, what):
    """It has the file locked, and cannot end while its connection is there."""
    with invalidating(slow, tmp_path, one_table) as (mount, readers):
        mount.process.kill()
        slow.let_go()
        what, *is_detached = what.split(",")
        if is_detached:
            subprocess.run(["umount", "-i", "-l", mount.root], check=True)
        if what == "mount":
            with mounted(mount.path, tmp_path / "next") as following:
                said = following.log()
                assert (following / "x/frames/1.raw").read_bytes() == b"\2\0" * 4096
                (following / "x/frames/1.raw").write_bytes(b"\5" * 8192)
        else:
            arguments = ["/y", "--dims", "3", "--dtype", "u1"] if what == "create" else []
            said = subprocess.run([SPARSECTL, what, mount.path, *arguments], check=True,
                                  capture_output=True, text=True).stderr
        assert f"sparsefs (process {mount.process.pid}) was killed and does not end: its connection " \
            "is aborted" in said
        assert mount.wait() == -signal.SIGKILL
        assert all_failed(readers)


def test_a_killed_daemon_that_waits_for_the_disk_is_named(slow, tmp_path):
    """Nothing but the disk can end it."""
    with invalidating(slow, tmp_path) as (mount, readers):
        mount.process.kill()
        done = subprocess.run([SPARSECTL, "recover", mount.path], capture_output=True, text=True)
        assert done.returncode == 1
        assert done.stderr.splitlines()[-1] == (
            f"sparsectl: {mount.path}: another program has it open: sparsefs (process "
            f"{mount.process.pid}, killed, but it has not ended), mounted at {mount.root}")
        slow.let_go()
        assert mount.wait() == -signal.SIGKILL
        assert all_failed(readers)


LOCKS = """
import ctypes, fcntl, os, sys
ctypes.CDLL(None).prctl(15, b"sparsefs")  # PR_SET_NAME
fcntl.flock(int(sys.argv[1]), fcntl.LOCK_EX)
os.pread(int(sys.argv[2]), 4096, 4096)
"""


@pytest.mark.skipif(os.getuid() != 0, reason="only root becomes another user")
@pytest.mark.parametrize("user", [0, 1000])
def test_a_killed_process_of_that_name_may_be_a_strangers(slow, tmp_path, user):
    """Only for those of root, of the file's owner and of oneself somebody waits."""
    path, page = tmp_path / "b.h5", slow.path / "page"
    with h5py.File(path, "w", libver="latest"):
        pass
    page.write_bytes(bytes(8192))
    sleeps = preloaded(tmp_path, """
#include <time.h>
#include <unistd.h>
int nanosleep(const struct timespec *time, struct timespec *left)
{
    (void)time, (void)left;
    return write(2, "it sleeps\\n", 10) == 10 ? 0 : -1;
}
""")
    with open(path, "rb") as file, open(page, "rb", buffering=0) as read:
        os.posix_fadvise(read.fileno(), 0, 0, os.POSIX_FADV_RANDOM)
        slow.hold("reads")
        fds = file.fileno(), read.fileno()
        holder = subprocess.Popen([sys.executable, "-c", LOCKS, *map(str, fds)], pass_fds=fds, user=user)
        slow.wait_for_held()
    try:
        holder.kill()
        done = subprocess.run([SPARSECTL, "recover", path], capture_output=True, text=True,
                              env={**os.environ, **sleeps})
        assert done.returncode == 1 and "killed, but it has not ended" in done.stderr
        assert ("it sleeps" in done.stderr) == (user == 0)
    finally:
        slow.let_go()
        assert holder.wait(START_SECONDS) == -signal.SIGKILL


@pytest.mark.skipif(os.getuid() != 0, reason="only root becomes another user")
@pytest.mark.parametrize("mounter, is_served", [(1000, False), (0, False), (1000, True)])
def test_no_connection_of_others_is_aborted_for_a_killed_process(slow, tmp_path, mounter, is_served):
    """It has one open, but the kernel tells its number also when it is gone, and another mount has that: of another
    user, or one that another process of the same user serves."""
    path, page = tmp_path / "b.h5", slow.path / "page"
    with h5py.File(path, "w", libver="latest"):
        pass
    os.chown(path, 1000, 1000)
    page.write_bytes(bytes(8192))
    with contextlib.ExitStack() as opened:
        opened.enter_context(silent(tmp_path / "silent", kind="fuse.sparsefs", user=mounter))
        fuse, = [int(fd) for fd in os.listdir("/proc/self/fd")
                 if os.path.exists(f"/proc/self/fd/{fd}") and os.readlink(f"/proc/self/fd/{fd}") == "/dev/fuse"]
        file, read = opened.enter_context(open(path, "rb")), opened.enter_context(open(page, "rb", buffering=0))
        os.posix_fadvise(read.fileno(), 0, 0, os.POSIX_FADV_RANDOM)
        slow.hold("reads")
        fds = file.fileno(), read.fileno(), fuse
        holder = subprocess.Popen([sys.executable, "-c", LOCKS, *map(str, fds)], pass_fds=fds, user=1000)
        file.close()
        if is_served:
            server = opened.enter_context(subprocess.Popen(["sleep", "1000"], pass_fds=[fuse], user=1000))
            opened.callback(server.kill)
        try:
            slow.wait_for_held()
            holder.kill()
            done = subprocess.run([SPARSECTL, "recover", path], capture_output=True, text=True)
            assert done.returncode == 1 and "killed, but it has not ended" in done.stderr
            ends = select.poll()
            ends.register(fuse, 0)
            is_aborted = bool(ends.poll(0))
            assert is_aborted == ("its connection is aborted" in done.stderr) == (mounter == 1000 and not is_served)
        finally:
            slow.let_go()
            assert holder.wait(START_SECONDS) == -signal.SIGKILL


def start_reader(path):
    """Has the file open when this returns; see read_page."""
    reader = subprocess.Popen([sys.executable, "-c", f"""
import os, sys
fd = os.open({str(path)!r}, os.O_RDONLY)
os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_RANDOM)
print(flush=True)
os.pread(fd, 4096, int(sys.stdin.readline()))
"""], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    assert reader.stdout.readline() == "\n"
    return reader


def read_page(reader, offset):
    """One page, without readahead; returns when the reader waits for it, who fails when that does."""
    print(offset, file=reader.stdin, flush=True)
    deadline = time.monotonic() + START_SECONDS
    syscall = pathlib.Path(f"/proc/{reader.pid}/syscall")  # its number, its arguments, ...
    while syscall.read_text().split()[3:5] != ["0x1000", hex(offset)]:
        assert time.monotonic() < deadline and reader.poll() is None, "it does not read"
        time.sleep(0.01)


def test_who_reads_a_virtual_dataset_delays_no_write(slow, mounts):
    """Its pages are locked until the disk gives its source; a WRITE that waited for them would be answered a second
    later, as opening other views would be. There are more of them than threads that invalidate."""
    path = slow.path / "a.h5"
    with h5py.File(path, "w", libver="latest") as file:
        file.create_dataset("x", (4, 64, 64), "<u2", chunks=(1, 64, 64), compression=1)
        file["x"][:] = 1
        file.create_dataset("other", (1, 64, 64), "<u2", chunks=(1, 64, 64))
        layout = h5py.VirtualLayout((4, 64, 64), "<u2")
        layout[...] = h5py.VirtualSource(".", "x", (4, 64, 64))
        file.create_virtual_dataset("v", layout)
    mount = mounts(path, "rw,commit_interval=0,cache_size=64K")
    (mount / "v/frames/0.raw").read_bytes()
    shown = mount / "other/raw/000000.raw"
    reader = start_reader(mount / "v/stack.raw")
    with open(mount / "other/frames/0.raw", "r+b", buffering=0) as other:
        other.write(b"\1" * 8192)
        shown.read_bytes()
        slow.hold("reads")
        try:
            read_page(reader, 2 * 8192)
            slow.wait_for_held()
            seconds, opening = [], []
            for _ in range(40):
                begin = time.monotonic()
                os.pwrite(other.fileno(), b"\2" * 8192, 0)
                seconds.append(time.monotonic() - begin)
            assert shown.read_bytes() == b"\2" * 8192
            assert min(seconds[:4]) < 1 and min(seconds[-4:]) < 1
            for _ in range(4):
                os.pwrite(other.fileno(), b"\2" * 8192, 0)
                begin = time.monotonic()
                with open(shown, "rb"):
                    opening.append(time.monotonic() - begin)
            assert min(opening) < 1
            begin = time.monotonic()
            with open(mount / "other/frames/0.raw", "wb"):
                pass
            assert time.monotonic() - begin < 20
            assert shown.read_bytes() == bytes(8192)
        finally:
            slow.let_go()
    assert reader.wait(START_SECONDS) == 0
    (mount / "x/frames/2.raw").write_bytes(b"\3" * 8192)
    assert (mount / "v/stack.raw").read_bytes()[2 * 8192:3 * 8192] == b"\3" * 8192


def test_a_slow_look_up_delays_nothing_that_changes(slow, mounts):
    """Nor is anything outdated seen meanwhile."""
    path = slow.path / "a.h5"
    with h5py.File(path, "w", libver="latest") as file:
        file.create_dataset("other", (1, 64, 64), "<u2", chunks=(1, 64, 64))
        file["between"] = np.random.default_rng(1).integers(0, 255, 8 << 20, "u1")
        file.create_dataset("x", (4, 64, 64), "<u2", chunks=(1, 64, 64), compression=1)
        file["x"][:] = 1
    mount = mounts(path, "rw,commit_interval=0,cache_size=64K")
    shown = mount / "other/npy/000000.npy"
    with open(mount / "other/frames/0.raw", "r+b", buffering=0) as other:
        other.write(b"\1" * 8192)
        shown.read_bytes()
        slow.hold("reads")
        try:
            looking = subprocess.Popen(["stat", mount / "x/frames/0.raw"], stdout=subprocess.DEVNULL)
            slow.wait_for_held()
            for n in range(3):
                os.pwrite(other.fileno(), bytes([n]) * 8192, 0)
                with open(shown, "rb") as file:
                    assert file.read()[-8192:] == bytes([n]) * 8192
        finally:
            slow.let_go()
    assert looking.wait(START_SECONDS) == 0


def test_who_waits_for_a_count_can_be_killed(slow, tmp_path):
    """While somebody else counts what is defined, and waits for the disk."""
    array, defined = scattered((7, 30, 41))
    sparse_files.make(slow.path / "a.h5", array, defined, (3, 8, 41))  # chunks span frames: they are read
    with mounted(slow.path / "a.h5", tmp_path / "mnt", "ro", "direct_io") as mount:
        counting, waiting = (start_reader(mount / "sparse/csr/indptr.raw") for _ in range(2))
        slow.hold("reads")
        try:
            read_page(counting, 0)
            slow.wait_for_held()
            read_page(waiting, 0)
            waiting.kill()
            waiting.wait(START_SECONDS)
        finally:
            slow.let_go()
        assert counting.wait(START_SECONDS) == 0


GROW = """
import os, sys
fd = os.open(sys.argv[1], os.O_WRONLY | os.O_CREAT)
print("looks", flush=True)
os.write(fd, bytes(30 * 41 * 4))
"""


def test_who_waits_for_a_count_to_grow_the_dataset_can_be_killed(slow, mounts):
    """And so who waits for that one, to look: the disk does not answer who counts."""
    array, defined = scattered((7, 30, 41))
    # Chunks span frames: they are read.
    sparse_files.make(slow.path / "a.h5", array, defined, (3, 8, 41), maxshape=(9, 30, 41))
    mount = mounts(slow.path / "a.h5", "rw", "direct_io", "commit_interval=0")
    size = len((mount / "sparse/frames/6.raw").read_bytes())
    counting = start_reader(mount / "sparse/csr/indptr.raw")
    slow.hold("reads")
    with slow.killed_on_error():
        read_page(counting, 0)
        slow.wait_for_held()
        growing = begin_looking(mount / "sparse/frames/7.raw", GROW)
        looking = begin_looking(mount / "sparse/frames/5.raw")
        for process in (looking, growing):
            process.kill()
            assert process.wait(START_SECONDS) == -signal.SIGKILL
        assert counting.poll() is None
        slow.let_go()
        assert counting.wait(START_SECONDS) == 0
    (mount / "sparse/frames/7.raw").write_bytes(bytes([1] * size))
    assert (mount / "sparse/frames/7.raw").read_bytes() == bytes([1] * size)
    mount.unmount()


def test_the_log_says_why_nothing_is_committed(tmp_path):
    """Of a file that is cut short, of which libhdf5's process knows nothing."""
    path = tmp_path / "a.h5"
    with h5py.File(path, "w") as f:
        f.create_dataset("n", data=np.ones((64, 64, 64), "i4"), chunks=(1, 64, 64))
    mount = Mount(path, tmp_path / "mnt", "default")
    try:
        with open(mount / "n/raw/000040.raw", "r+b", buffering=0) as frame:
            os.pread(frame.fileno(), 100, 0)
            os.truncate(path, 70000)
            os.pwrite(frame.fileno(), b"abcd", 500)
            with pytest.raises(OSError):
                os.fsync(frame.fileno())
        assert "cannot flush: Input/output error\n" in mount.log()
    finally:
        mount.destroy()
    assert mount.process.returncode == 2
