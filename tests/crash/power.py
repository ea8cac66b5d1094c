#!/usr/bin/python3
"""Cuts the power of an ext4 file system under a writer, again and again: what it had flushed is there
when the file system is mounted again, and the file is sound, also if it was moved just before.

    tests/crash/power.py --rounds 100 [--build build] [--seed N]

The file system lies on a loop device over a file in memory. The writer is stopped, then the file
system is shut down as by xfstests' godown: nothing that it has not given to the device gets there any
more, neither data nor its own journal. The system goes on. Now and then somebody has synced the
journal alone, and with it its mark. It needs root, loop devices and mkfs.ext4, and ends with 77
without them. What a disk may do with writes that it has taken and not flushed is not emulated here:
test_crash does that."""
import argparse
import contextlib
import ctypes
import fcntl
import os
import pathlib
import random
import shutil
import signal
import struct
import subprocess
import sys
import tempfile
import time

from kill import HANG_SECONDS, THREADS, Writer, must

SHUTDOWN = 0x8004587D  # EXT4_IOC_SHUTDOWN, linux/ext4.h
WITHOUT_LOG = struct.pack("I", 2)
CLONE_NEWNS = 0x20000  # linux/sched.h
SKIPPED = 77
MEGABYTES = 48


def keep_mounts_apart():
    """A process that makes a mount namespace, as those of libhdf5 do, has all mounts of the one that it leaves for a
    moment: a file system that is unmounted here meanwhile would not be mounted anew, and still be shut down."""
    if ctypes.CDLL(None).unshare(CLONE_NEWNS):
        sys.exit(SKIPPED)
    if subprocess.run(["mount", "--make-rprivate", "/"], capture_output=True).returncode:  # as in a chroot
        sys.exit(SKIPPED)


def mount(device, point):
    return subprocess.run(["mount", "-t", "ext4", device, point], capture_output=True,
                          text=True).returncode == 0


@contextlib.contextmanager
def disk(directory):
    """A loop device with an empty ext4 on it, and where it is to be mounted."""
    image, point = directory / "image", directory / "mount"
    point.mkdir()
    with open(image, "wb") as file:
        file.truncate(MEGABYTES << 20)
    subprocess.run(["mkfs.ext4", "-q", image], check=True)
    found = subprocess.run(["losetup", "--find", "--show", image], capture_output=True, text=True)
    device = found.stdout.strip()
    if found.returncode:
        sys.exit(SKIPPED)
    try:
        if not mount(device, point):
            sys.exit(SKIPPED)
        yield device, point
    finally:
        subprocess.run(["umount", point], capture_output=True)
        subprocess.run(["losetup", "--detach", device], check=True)


def stop(process):
    """SIGSTOP, and waits until every thread has stopped: none is inside of a sync then that would say
    that it is done though the disk is gone."""
    process.send_signal(signal.SIGSTOP)
    deadline = time.monotonic() + HANG_SECONDS
    while process.poll() is None:
        tasks = pathlib.Path(f"/proc/{process.pid}/task").iterdir()
        states = {(task / "stat").read_text().rsplit(")", 1)[1].split()[0] for task in tasks}
        if states == {"T"}:
            return
        assert time.monotonic() < deadline, states
        time.sleep(0.001)
    sys.exit("the writer has ended by itself")


def sync_all(point):
    """Its file system, and not those of the machine."""
    subprocess.run(["sync", "--file-system", point], check=True)


def sync_alone(path):
    """One file, if it is there."""
    with contextlib.suppress(FileNotFoundError), open(path, "rb") as file:
        os.fsync(file.fileno())


def cut_power(writer, device, point, synced):
    stop(writer.process)
    if synced:
        sync_alone(synced)
    fd = os.open(point, os.O_RDONLY)
    fcntl.ioctl(fd, SHUTDOWN, WITHOUT_LOG)
    os.close(fd)
    if writer.kill() is not None:
        sys.exit("the writer has ended by itself")
    subprocess.run(["umount", point], check=True)
    if not mount(device, point):
        sys.exit("the file system cannot be mounted again")


def move(chance, path, point):
    """To another name or folder, durably, while the writer goes on; where it is then."""
    to = chance.choice([name for name in (point / "cut.h5", point / "moved.h5", point / "folder/cut.h5")
                        if name != path])
    os.rename(path, to)
    for folder in {path.parent, to.parent}:
        fd = os.open(folder, os.O_RDONLY)
        os.fsync(fd)
        os.close(fd)
    return to


def run(arguments, directory):
    program, sparsectl = arguments.build / "tests/crash/writer", arguments.build / "sparsectl"
    chance = random.Random(arguments.seed)
    rows, journals, flushed, moved = [0] * THREADS, 0, 0, 0
    with disk(directory) as (device, point):
        path = point / "cut.h5"
        (point / "folder").mkdir()
        sync_all(point)  # it is there after the first cut, too
        for n in range(arguments.rounds):
            writer = Writer(program, path, rows)
            try:
                if n % 2:  # while it begins, and while it goes on, however slow the machine is
                    writer.has_flushed.wait(HANG_SECONDS)
                time.sleep(chance.choice((0.05, 0.3, 1)) * chance.random())
                # One that has not opened it yet would create another one.
                if writer.has_flushed.is_set() and chance.random() < 0.5:
                    path = move(chance, path, point)
                    moved += 1
                    time.sleep(chance.choice((0, 0.02)) * chance.random())
                journal = path.with_name(path.name + ".journal")
                cut_power(writer, device, point, journal if chance.random() < 0.5 else None)
            finally:
                writer.kill()
            journals += any(point.rglob("*.journal"))
            if not path.exists():  # before its first flush
                assert not any(rows), rows
                continue
            if chance.random() < 0.5:
                must([sparsectl, "recover", path])
            must([program, "check", path, *map(str, rows)])
            must([sparsectl, "check", path])
            if sum(rows) > 2000 or chance.random() < 0.2:  # begin with a new file
                flushed += sum(rows)
                rows[:] = [0] * THREADS
                for name in point.rglob("*.h5*"):
                    name.unlink()
                path = point / "cut.h5"
                sync_all(point)
    flushed += sum(rows)
    print(f"seed {arguments.seed}: {arguments.rounds} cuts, {flushed} rows flushed, "
          f"{journals} journals left, {moved} times moved, nothing lost")
    return flushed


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--build", type=pathlib.Path, default=pathlib.Path("build"))
    parser.add_argument("--seed", type=int, default=random.randrange(1 << 32))
    arguments = parser.parse_args()
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # as if by Ctrl-C: all is unmounted
    if os.getuid() != 0 or not shutil.which("mkfs.ext4") or not os.path.exists("/dev/loop-control"):
        sys.exit(SKIPPED)
    keep_mounts_apart()
    kernel = ["dmesg"] if shutil.which("dmesg") else ["true"]
    memory = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
    with tempfile.TemporaryDirectory(dir=memory) as directory:
        try:
            flushed = run(arguments, pathlib.Path(directory))
        except SystemExit:  # whether the device, or its file system, has failed
            said = subprocess.run(kernel, capture_output=True, text=True).stdout.splitlines()
            print(f"seed {arguments.seed}", *[line for line in said if "loop" in line][-20:], sep="\n",
                  file=sys.stderr)
            raise
        if not flushed:
            sys.exit("nothing was ever flushed: that tests nothing")


if __name__ == "__main__":
    main()
