"""Images: a file that comes on standard input, compressed files, and the image of a mounted file that
is being written."""
import fcntl
import gzip
import json
import os
import pty
import shutil
import signal
import stat
import struct
import subprocess
import termios
import threading
import time

import h5py
import numpy as np
import pytest

from conftest import BUILD, SPARSEFS, START_SECONDS, is_mounted, unmount, wait_for_end

SPARSECTL = BUILD / "sparsectl"
DONE, USAGE, MOUNT_FAILED = 0, 1, 32
FRAMES, ROWS, COLUMNS = 6, 64, 48


def frames_of(seed=1):
    return np.random.default_rng(seed).integers(1, 60000, (FRAMES, ROWS, COLUMNS)).astype("<u2")


@pytest.fixture
def source(tmp_path):
    path = tmp_path / "run.h5"
    with h5py.File(path, "w", libver="latest") as file:
        file["entry/dense"] = frames_of()
        file.create_dataset("entry/packed", data=frames_of(2), chunks=(1, ROWS, COLUMNS), compression=1)
    return path


@pytest.fixture
def mountpoint(tmp_path):
    path = tmp_path / "mnt"
    path.mkdir()
    yield path
    if is_mounted(path):
        subprocess.run(["umount", "-i", "-l", path], check=False)


def expect_content(root):
    for frame in range(FRAMES):
        for name, seed in (("dense", 1), ("packed", 2)):
            content = (root / f"entry/{name}/frames/{frame}.raw").read_bytes()
            assert content == frames_of(seed)[frame].tobytes()


def mount_and_unmount(command, mountpoint, **more):
    """Runs a shell command that mounts in the background; looks; unmounts; the daemon ends."""
    done = subprocess.run(["bash", "-c", command], capture_output=True, text=True,
                          timeout=START_SECONDS, **more)
    assert (done.returncode, done.stdout, done.stderr) == (DONE, "", "")
    assert is_mounted(mountpoint)
    expect_content(mountpoint)
    with pytest.raises(OSError):
        (mountpoint / "entry/dense/frames/0.raw").open("r+b")
    pid = int((mountpoint / ".sparsefs/pid").read_text())
    unmount(mountpoint)
    wait_for_end(pid)


def test_an_image_on_standard_input(source, mountpoint):
    """As the manual has it; plain, compressed, from a file and from a pipe that is slow."""
    subprocess.run(["gzip", "-k", source], check=True)
    for command in (f"zcat {source}.gz | {SPARSEFS} - {mountpoint}",
                    f"{SPARSEFS} - {mountpoint} < {source}",
                    f"{SPARSEFS} - {mountpoint} < {source}.gz",
                    f"(head -c 1 {source}; sleep 0.3; tail -c +2 {source}) | {SPARSEFS} - {mountpoint}",
                    f"cat {source} | {SPARSEFS} -o rw,image_size=1M - {mountpoint}"):
        mount_and_unmount(command, mountpoint)


def test_the_owner_alone_may_read_what_came_through_a_pipe(source, mountpoint):
    done = subprocess.run(["bash", "-c", f"cat {source} | {SPARSEFS} - {mountpoint}"], check=True)
    assert done.returncode == 0
    st = (mountpoint / "entry/dense/frames/0.raw").stat()
    assert stat.S_IMODE(st.st_mode) == 0o400 and st.st_uid == os.getuid()
    assert abs(st.st_mtime - time.time()) < 600
    pid = int((mountpoint / ".sparsefs/pid").read_text())
    unmount(mountpoint)
    wait_for_end(pid)


def test_a_compressed_file(mounts, source, tmp_path):
    """Of one member, of several, of a tape with zeros behind it; with the mode and time of the file."""
    whole = source.read_bytes()
    part = len(whole) // 3
    forms = {"one": gzip.compress(whole),
             "several": b"".join(gzip.compress(whole[i:i + part]) for i in range(0, len(whole), part)),
             "zeros": gzip.compress(whole) + bytes(700000)}
    for name, content in forms.items():
        path = tmp_path / f"{name}.h5.gz"
        path.write_bytes(content)
        path.chmod(0o640)
        os.utime(path, (1e9, 1e9))
        mount = mounts(path, "rw", log="warning")
        expect_content(mount.root)
        st = (mount / "entry/dense/frames/0.raw").stat()
        assert stat.S_IMODE(st.st_mode) == 0o440 and st.st_mtime == 1e9
        assert (mount / ".sparsefs/image.h5").read_bytes() == whole
        mount.unmount()
        assert path.read_bytes() == content


def test_sparse_datasets_in_a_compressed_file(mounts, source, tmp_path):
    path, packed = tmp_path / "sparse.h5", tmp_path / "sparse.h5.gz"
    subprocess.run([SPARSECTL, "import", f"{source}:/entry/dense", f"{path}:/x"], check=True,
                   capture_output=True)
    packed.write_bytes(gzip.compress(path.read_bytes()))
    mount = mounts(packed)
    assert json.loads((mount / "x/dataset.json").read_text())["layout"] == "sparse"
    for frame in range(FRAMES):
        assert (mount / f"x/frames/{frame}.raw").read_bytes() == frames_of()[frame].tobytes()


def refused(done, code, *words):
    assert done.returncode == code, done.stderr
    assert done.stderr.startswith("sparsefs: ") and len(done.stderr.splitlines()) == 1, done.stderr
    for word in words:
        assert word in done.stderr, done.stderr


def test_what_is_refused(source, mountpoint, tmp_path):
    whole = source.read_bytes()
    packed = gzip.compress(whole)
    broken = bytearray(packed)
    broken[len(packed) // 2] ^= 0xff
    wrong_sum = bytearray(packed)
    wrong_sum[-6] ^= 1
    for content, words in ((packed[:-1], "cut short"), (packed[:len(packed) // 2], "cut short"),
                           (packed[:2], "cut short"), (bytes(broken), "damaged"),
                           (bytes(wrong_sum), "damaged"), (packed + b"more", "damaged"),
                           (packed + packed[:9], "cut short"),
                           (gzip.compress(b"no HDF5" * 99), "signature"), (gzip.compress(b""), "no bytes")):
        path = tmp_path / "bad.h5.gz"
        path.write_bytes(content)
        for command, more in (([path, mountpoint], {}), (["-", mountpoint], {"stdin": path.open()})):
            done = subprocess.run([SPARSEFS, *command], capture_output=True, text=True,
                                  timeout=START_SECONDS, **more)
            refused(done, MOUNT_FAILED, words)
    for content, words in ((b"", "no bytes"), (whole[:-1], "truncated"), (whole[:100], "-:"),
                           (b"no HDF5", "signature")):
        done = subprocess.run([SPARSEFS, "-", mountpoint], input=content, capture_output=True,
                              timeout=START_SECONDS)
        done.stderr = done.stderr.decode()
        refused(done, MOUNT_FAILED, words)
    assert not is_mounted(mountpoint)


def test_the_limit(source, mountpoint, tmp_path):
    """To the byte; what inflates without end is stopped there."""
    size = source.stat().st_size
    bomb = tmp_path / "bomb.h5.gz"
    with open(bomb, "wb") as out:
        out.write(gzip.compress(bytes(1 << 20)) * 2000)
    packed = tmp_path / "run.h5.gz"
    packed.write_bytes(gzip.compress(source.read_bytes()))
    for path, limit, fits in ((packed, size, True), (packed, size - 1, False), (bomb, 64 << 20, False)):
        done = subprocess.run([SPARSEFS, "-o", f"image_size={limit}", path, mountpoint],
                              capture_output=True, text=True, timeout=START_SECONDS)
        if not fits:
            refused(done, MOUNT_FAILED, "image_size", str(limit))
            continue
        assert done.returncode == 0, done.stderr
        expect_content(mountpoint)
        pid = int((mountpoint / ".sparsefs/pid").read_text())
        unmount(mountpoint)
        wait_for_end(pid)
    # A pipe that never ends.
    done = subprocess.run(["bash", "-c", f"yes | {SPARSEFS} -o image_size=8M - {mountpoint}"],
                          capture_output=True, text=True, timeout=START_SECONDS)
    refused(done, MOUNT_FAILED, "image_size")
    for limit, fits in ((size, True), (size - 1, False)):
        done = subprocess.run(["bash", "-c", f"cat {source} | {SPARSEFS} -o image_size={limit} - {mountpoint}"],
                              capture_output=True, text=True, timeout=START_SECONDS)
        assert (done.returncode == 0) == fits
        if fits:
            pid = int((mountpoint / ".sparsefs/pid").read_text())
            unmount(mountpoint)
            wait_for_end(pid)


def test_a_terminal_is_no_image(mountpoint):
    leader, follower = pty.openpty()
    done = subprocess.run([SPARSEFS, "-", mountpoint], stdin=follower, capture_output=True, text=True,
                          timeout=START_SECONDS)
    os.close(leader)
    os.close(follower)
    refused(done, USAGE, "terminal")


def test_interrupted_while_it_reads(mountpoint):
    process = subprocess.Popen([SPARSEFS, "-", mountpoint], stdin=subprocess.PIPE,
                               stderr=subprocess.PIPE)
    process.stdin.write(b"some bytes")
    process.stdin.flush()
    while struct.unpack("i", fcntl.ioctl(process.stdin, termios.FIONREAD, bytes(4)))[0] > 0:
        assert process.poll() is None
        time.sleep(0.001)
    process.send_signal(signal.SIGINT)
    assert process.wait(START_SECONDS) == 8
    assert not is_mounted(mountpoint)


# ---- image.h5 ----

def check(path):
    done = subprocess.run([SPARSECTL, "check", path], capture_output=True, text=True, timeout=START_SECONDS)
    assert done.returncode == 0, done.stdout + done.stderr


def create(path, *arguments):
    subprocess.run([SPARSECTL, "create", path, *arguments], check=True, timeout=START_SECONDS)


def read_frames(path, dataset, tmp_path):
    """All frames of a sparse dataset, through an export to a dense one."""
    out = tmp_path / "exported.h5"
    out.unlink(missing_ok=True)
    subprocess.run([SPARSECTL, "export", f"{path}:{dataset}", f"{out}:/x"], check=True, timeout=START_SECONDS,
                   capture_output=True)
    with h5py.File(out) as file:
        return file["x"][...]


def test_the_image_of_a_mount_that_is_read(mounts, source):
    mount = mounts(source)
    image = mount / ".sparsefs/image.h5"
    assert sorted(os.listdir(mount / ".sparsefs")) == ["cache_size", "image.h5", "log", "pid", "stats.json"]
    assert image.read_bytes() == source.read_bytes()
    assert image.stat().st_size == source.stat().st_size
    with h5py.File(image) as file: # in place
        assert (file["entry/dense"][...] == frames_of()).all()
    with pytest.raises(OSError):
        image.open("r+b")


def test_the_image_is_what_was_committed_last(mounts, tmp_path):
    path = tmp_path / "a.h5"
    create(path, "x", "--dims", "2,32,32", "--dtype", "uint16")
    before = path.read_bytes()
    mount = mounts(path, "rw,commit_interval=0")
    image = mount / ".sparsefs/image.h5"
    with open(mount / "x/frames/0.raw", "r+b", buffering=0) as frame:
        frame.write(b"\1\0" * 1024)
        assert image.read_bytes() == before
        with open(image, "rb") as old:
            os.fsync(frame.fileno())
            new = image.read_bytes()
            assert len(new) == image.stat().st_size == path.stat().st_size
            # Who has it open sees what he has opened, also by its size.
            assert old.seek(0, os.SEEK_SET) == 0 and old.read() == before
            fd = old.fileno()
            assert os.lseek(fd, 0, os.SEEK_DATA) == 0
            assert os.lseek(fd, 0, os.SEEK_HOLE) == len(before)
            assert os.pread(fd, 100, len(before) - 50) == before[-50:]
            assert os.pread(fd, 100, len(before)) == b""
    copy = tmp_path / "copy.h5"
    subprocess.run(["dd", f"if={image}", f"of={copy}", "bs=1000"], check=True, capture_output=True)
    assert copy.read_bytes() == new
    check(copy)
    assert (read_frames(copy, "/x", tmp_path)[0] == 1).all()


def test_images_while_writers_write(mounts, tmp_path):
    """Two datasets, sparse and dense, whose frames are all written with one number before each commit
    or not at all: 20 images are sound, and each is one state of that kind."""
    path = tmp_path / "a.h5"
    create(path, "x", "--dims", "8,64,64", "--chunk", "1,32,32", "--dtype", "uint16",
           "--filter", "values:deflate=1")
    with h5py.File(path, "r+", libver="latest") as file:
        file["dense"] = np.zeros((8, 64, 64), "<u2")
    mount = mounts(path, "rw,commit_interval=1")
    ended, failures, written = threading.Event(), [], [0]

    def write():
        number = 0
        try:
            while not ended.is_set():
                written.append(number)
                number = number % 60000 + 1
                content = np.full((64, 64), number, "<u2").tobytes()
                for name in ("x", "dense"):
                    for frame in range(8):
                        with open(mount / f"{name}/frames/{frame}.raw", "r+b", buffering=0) as out:
                            out.write(content)
                            if frame == 7:
                                os.fsync(out.fileno())
        except OSError as error:
            failures.append(error)

    writer = threading.Thread(target=write)
    writer.start()
    seen = set()
    try:
        while not (mount / ".sparsefs/image.h5").stat().st_size > 8 * 64 * 64 * 2:
            time.sleep(0.01)
            assert writer.is_alive(), failures
        for i in range(20):
            before = len(written)
            while len(written) < before + 2: # another number has been committed
                time.sleep(0.001)
                assert writer.is_alive(), failures
            copy = tmp_path / "copy.h5"
            if i % 3 == 0:
                shutil.copyfile(mount / ".sparsefs/image.h5", copy)
            elif i % 3 == 1:
                with open(copy, "wb") as out:
                    subprocess.run([SPARSECTL, "image", path], stdout=out, check=True, timeout=START_SECONDS)
            else: # slowly
                with open(mount / ".sparsefs/image.h5", "rb") as image, open(copy, "wb") as out:
                    while block := image.read(20000):
                        out.write(block)
                        time.sleep(0.005)
            check(copy)
            with h5py.File(copy) as file:
                dense = file["dense"][...]
            sparse = read_frames(copy, "/x", tmp_path)
            numbers = [int(n) for frames in (sparse, dense) for n in frames[:, 0, 0]]
            # A commit may come between two writes, so frames can be one number apart in their order.
            for frames in (sparse, dense):
                assert (frames.max(axis=(1, 2)) - frames.min(axis=(1, 2)) <= 1).all()
            assert all(a >= b for a, b in zip(numbers, numbers[1:])), numbers
            assert numbers[0] - numbers[-1] <= 1, numbers
            seen.add(numbers[0])
    finally:
        ended.set()
        writer.join()
    assert not failures
    assert len(seen) == 20
    mount.unmount()
    check(path)


def test_space_is_used_again_after_an_image(mounts, tmp_path):
    """Frames are rewritten with an image open, and without: the file does not grow for ever."""
    path = tmp_path / "a.h5"
    create(path, "x", "--dims", "1,256,256", "--dtype", "uint16")
    mount = mounts(path, "rw,commit_interval=0")
    random = np.random.default_rng(3)

    def rewrite(times):
        for _ in range(times):
            with open(mount / "x/frames/0.raw", "r+b", buffering=0) as out:
                out.write(random.integers(1, 65535, 65536).astype("<u2").tobytes())
                os.fsync(out.fileno())

    rewrite(5)
    size = path.stat().st_size
    with open(mount / ".sparsefs/image.h5", "rb") as image:
        rewrite(10)
        assert path.stat().st_size <= size + 2 * 131072 + 65536
        assert len(image.read()) == size
    rewrite(10)
    assert path.stat().st_size <= size + 2 * 131072 + 65536


# ---- sparsectl image ----

def image_of(path, **more):
    return subprocess.run([SPARSECTL, "image", path], capture_output=True, timeout=START_SECONDS, **more)


def test_sparsectl_image_of_a_mounted_file(mounts, tmp_path):
    path = tmp_path / "with a space, and a comma.h5"
    create(path, "x", "--dims", "2,32,32", "--dtype", "uint16")
    mount = mounts(path, "rw,commit_interval=0")
    with open(mount / "x/frames/0.raw", "r+b", buffering=0) as frame:
        frame.write(b"\1\0" * 1024)
        os.fsync(frame.fileno())
    done = image_of(path)
    assert (done.returncode, done.stderr) == (0, b"")
    copy = tmp_path / "copy.h5"
    copy.write_bytes(done.stdout)
    check(copy)
    assert (read_frames(copy, "/x", tmp_path)[0] == 1).all()
    link = tmp_path / "link.h5"
    link.symlink_to(path)
    assert image_of(link).stdout == done.stdout


def test_sparsectl_image_of_a_file_with_the_name_of_one_that_was_mounted(mounts, tmp_path, source):
    """It is not taken for the mounted one, which has another name by now."""
    path = tmp_path / "a.h5"
    create(path, "x", "--dims", "2,32,32", "--dtype", "uint16")
    mount = mounts(path, "rw,commit_interval=0", expect_log=True)
    os.rename(path, tmp_path / "moved.h5")
    path.write_bytes(source.read_bytes())
    assert image_of(path).stdout == source.read_bytes()
    with open(path) as other:
        fcntl.flock(other, fcntl.LOCK_EX)
        done = image_of(path)
    assert done.returncode == 1 and done.stdout == b"" and b"open" in done.stderr, done
    assert (mount / ".sparsefs/image.h5").stat().st_size > 0


def test_sparsectl_image_of_a_file(source):
    done = image_of(source)
    assert (done.returncode, done.stderr) == (0, b"")
    assert done.stdout == source.read_bytes()


def test_sparsectl_image_is_refused(source, tmp_path):
    leader, follower = pty.openpty()
    done = subprocess.run([SPARSECTL, "image", source], stdout=follower, stderr=subprocess.PIPE,
                          timeout=START_SECONDS)
    os.close(follower)
    os.close(leader)
    assert done.returncode == 2 and b"terminal" in done.stderr
    done = image_of(tmp_path / "missing.h5")
    assert done.returncode == 1 and b"missing.h5" in done.stderr and done.stdout == b""
    # A writer that is no mount.
    with h5py.File(source, "r+"):
        done = image_of(source)
    assert done.returncode == 1 and len(done.stderr.splitlines()) == 1 and done.stdout == b""
    with open("/dev/full", "wb") as full:
        done = subprocess.run([SPARSECTL, "image", source], stdout=full, stderr=subprocess.PIPE, timeout=START_SECONDS)
    assert done.returncode == 1 and b"No space" in done.stderr
