"""What exports of a mount to other hosts need: handles of files, by which a kernel's NFS server and
nfs-ganesha ask for inodes that the kernel has forgotten. The servers themselves: test_servers.py."""
import ctypes
import errno
import os
import pathlib
import random
import subprocess

import h5py
import numpy as np
import pytest

from conftest import BUILD

IMAGES = np.arange(20 * 30 * 40, dtype="<u2").reshape(20, 30, 40)
libc = ctypes.CDLL(None, use_errno=True)


opens_handles = pytest.mark.skipif(os.geteuid() != 0, reason="only root opens handles and mounts anew")


class Handle(ctypes.Structure):
    """struct file_handle. Of FUSE: the inode number, its upper half first, and the generation."""
    _fields_ = [("size", ctypes.c_uint), ("kind", ctypes.c_int), ("words", ctypes.c_uint32 * 32)]


def handle_of(path):
    handle = Handle(size=128)
    mount_id = ctypes.c_int()
    if libc.name_to_handle_at(-100, os.fsencode(path), ctypes.byref(handle), ctypes.byref(mount_id), 0) < 0:
        raise OSError(ctypes.get_errno(), str(path))
    assert handle.size == 12
    return handle


def open_handle(mount, handle):
    root = os.open(mount.root, os.O_RDONLY)
    try:
        fd = libc.open_by_handle_at(root, ctypes.byref(handle), os.O_RDONLY)
        if fd < 0:
            raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
        return fd
    finally:
        os.close(root)


def look_by_handle(mount, handle):
    """0 or an errno."""
    try:
        os.close(open_handle(mount, handle))
        return 0
    except OSError as error:
        return error.errno


def forget(mount):
    """The kernel forgets all inodes of the mount that nobody uses: it does when something is mounted anew."""
    os.sync()
    subprocess.run(["mount", "-i", "-o", "remount", mount.root], check=True)


@pytest.fixture
def path(tmp_path):
    path = tmp_path / "export.h5"
    with h5py.File(path, "w") as f:
        group = f.create_group("entry/data")
        group["images"] = IMAGES
        group["name"] = "a sample"
        group["kind"] = np.dtype("<i4")
        group["same"] = group["images"]
        f.create_group("empty")
    subprocess.run([BUILD / "sparsectl", "create", path, "/entry/spots", "--dims", "3,16,16",
                    "--maxdims", "inf,16,16", "--dtype", "uint16"], check=True)
    return path



def all_paths(mount):
    found = [mount.root]
    for folder, folders, names in os.walk(mount.root):
        found += [pathlib.Path(folder, name) for name in folders + names]
    assert len(found) > 100
    return found


@opens_handles
@pytest.mark.parametrize("options", [("rw",), ("ro",), ("ro", "follow")], ids=lambda o: ",".join(o))
def test_handles_outlive_what_the_kernel_knows(mounts, path, options):
    mount = mounts(path, *options)
    paths = all_paths(mount)
    handles = {p: handle_of(p) for p in paths}
    content = {p: p.read_bytes() for p in paths if p.is_file() and p.name != "stats.json"}
    random.Random(1).shuffle(paths)
    forget(mount)
    for p in paths:
        fd = open_handle(mount, handles[p])
        try:
            if p.is_dir():  # it has its name again, and those above it
                assert os.readlink(f"/proc/self/fd/{fd}") == str(p)
                assert sorted(os.listdir(fd)) == sorted(os.listdir(p))
                assert os.stat(p).st_ino == os.fstat(fd).st_ino
            elif p in content:
                assert os.read(fd, len(content[p]) + 1) == content[p], p
        finally:
            os.close(fd)


@opens_handles
def test_made_up_handles(mounts, path):
    """Whatever number a client makes up is an inode that is there, or stale."""
    mount = mounts(path, "rw")
    paths = all_paths(mount)
    handles = [handle_of(p) for p in paths]
    numbers = {os.stat(p).st_ino for p in paths}
    forget(mount)
    chance = random.Random(2)
    found = 0
    for _ in range(20000):
        words = list(chance.choice(handles).words[:3])
        for _ in range(chance.choice((1, 1, 2, 4))):
            words[chance.randrange(2)] ^= 1 << chance.randrange(32)
        if chance.random() < .2:
            words[:2] = chance.randrange(1 << 32), chance.randrange(1 << 32)
        made_up = Handle(size=12, kind=handles[0].kind)
        made_up.words[:3] = words
        error = look_by_handle(mount, made_up)
        assert error in (0, errno.ESTALE), (words, error)
        found += error == 0
        assert error or (words[0] << 32 | words[1]) in numbers, words
    assert found > 20


@opens_handles
def test_handles_of_another_mount(mounts, path):
    """The next mount gives the same numbers to other things: handles are stale, not theirs."""
    first = mounts(path, "ro")
    handles = [handle_of(p) for p in all_paths(first) if p != first.root]
    first.unmount()
    second = mounts(path, "ro")
    all_paths(second)
    assert {look_by_handle(second, handle) for handle in handles} == {errno.ESTALE}


@opens_handles
def test_handle_of_a_group_that_was_removed(mounts, path):
    mount = mounts(path, "rw")
    handle = handle_of(mount / "empty")
    (mount / "empty").rmdir()
    (mount / "another").mkdir()
    forget(mount)
    assert look_by_handle(mount, handle) == errno.ESTALE


def test_parent_directory(mounts, path):
    """".." is listed with the number of the folder above."""
    mount = mounts(path, "ro")
    for p in all_paths(mount):
        if p.is_dir() and p != mount.root:
            listed = subprocess.run(["ls", "-aif", p], capture_output=True, text=True, check=True).stdout
            numbers = {name: int(number) for number, name in map(str.split, listed.splitlines())}
            assert numbers["."] == os.stat(p).st_ino
            assert numbers[".."] == os.stat(p.parent).st_ino
