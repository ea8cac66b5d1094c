"""What exports a mount to other hosts: handles of files, by which a kernel's NFS server and
nfs-ganesha ask for inodes that the kernel has forgotten, and servers that run as programs."""
import ctypes
import errno
import os
import pathlib
import random
import shutil
import socket
import subprocess
import time

import h5py
import numpy as np
import pytest

from conftest import BUILD, START_SECONDS

IMAGES = np.arange(20 * 30 * 40, dtype="<u2").reshape(20, 30, 40)
libc = ctypes.CDLL(None, use_errno=True)


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


def forget():
    """The kernel forgets all inodes that nobody uses."""
    os.sync()
    pathlib.Path("/proc/sys/vm/drop_caches").write_text("2")


@pytest.fixture
def may_open_handles(tmp_path):
    try:
        forget()
    except OSError as error:
        pytest.skip(f"the kernel cannot be told to forget: {error}")


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


@pytest.mark.parametrize("options", [("rw",), ("ro",), ("ro", "follow")], ids=lambda o: ",".join(o))
def test_handles_outlive_what_the_kernel_knows(mounts, path, may_open_handles, options):
    mount = mounts(path, *options)
    paths = all_paths(mount)
    handles = {p: handle_of(p) for p in paths}
    content = {p: p.read_bytes() for p in paths if p.is_file() and p.name != "stats.json"}
    random.Random(1).shuffle(paths)
    forget()
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


def test_made_up_handles(mounts, path, may_open_handles):
    """Whatever number a client makes up is an inode that is there, or stale."""
    mount = mounts(path, "rw")
    paths = all_paths(mount)
    handles = [handle_of(p) for p in paths]
    numbers = {os.stat(p).st_ino for p in paths}
    forget()
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


def test_handles_of_another_mount(mounts, path, may_open_handles):
    """The next mount gives the same numbers to other things: handles are stale, not theirs."""
    first = mounts(path, "ro")
    handles = [handle_of(p) for p in all_paths(first) if p != first.root]
    first.unmount()
    second = mounts(path, "ro")
    all_paths(second)
    assert {look_by_handle(second, handle) for handle in handles} == {errno.ESTALE}


def test_handle_of_a_group_that_was_removed(mounts, path, may_open_handles):
    mount = mounts(path, "rw")
    handle = handle_of(mount / "empty")
    (mount / "empty").rmdir()
    (mount / "another").mkdir()
    forget()
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


# Servers. They are used where they are installed: tests do not install what serves the network.

class Server:
    def __init__(self, command, port, log):
        self.log = log
        with open(log, "ab") as out:
            self.process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=out, stderr=out,
                                            start_new_session=True)  # it may signal its group
        deadline = time.monotonic() + START_SECONDS
        while not self.answers(port):
            assert self.process.poll() is None and time.monotonic() < deadline, log.read_text(errors="replace")
            time.sleep(0.05)

    @staticmethod
    def answers(port):
        with socket.socket() as s:
            return s.connect_ex(("127.0.0.1", port)) == 0

    def stop(self):
        self.process.terminate()
        try:
            self.process.wait(START_SECONDS)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


@pytest.fixture
def serve(tmp_path):
    """serve(command, port) starts a server, which is stopped at the end, before what it serves is
    unmounted."""
    running = []

    def start(command, port):
        running.append(Server(command, port, tmp_path / "server.log"))

    yield start
    for server in running:
        server.stop()


def wanted(*programs):
    if missing := [p for p in programs if not shutil.which(p, path=os.environ["PATH"] + ":/usr/sbin")]:
        pytest.skip("not installed: " + ", ".join(missing))
    if os.geteuid() != 0:
        pytest.skip("only root can serve others")


def do(*command):
    done = subprocess.run([str(word) for word in command], capture_output=True, timeout=START_SECONDS)
    assert done.returncode == 0, (command, done.stdout, done.stderr)
    return done.stdout


def test_samba(mounts, path, tmp_path, serve):
    wanted("smbd", "smbclient")
    mount = mounts(path, "rw,allow_other")
    port = free_port()
    folder = tmp_path / "samba"
    folder.mkdir()
    own = "\n".join(f"{name} = {folder}" for name in (
        "private dir", "lock directory", "state directory", "cache directory", "pid directory",
        "ncalrpc dir"))
    (tmp_path / "smb.conf").write_text(f"""[global]
server role = standalone server
map to guest = Bad User
guest account = root
smb ports = {port}
bind interfaces only = yes
interfaces = 127.0.0.1
disable netbios = yes
load printers = no
log file = {folder}/log
{own}
[share]
path = {mount.root}
guest ok = yes
read only = no
""")
    serve(["smbd", "-s", tmp_path / "smb.conf", "-F", "--no-process-group"], port)

    def client(*commands):
        return do("smbclient", "-s", tmp_path / "smb.conf", "-p", port, "-N", "//127.0.0.1/share",
                  "-c", "; ".join(commands)).decode()

    assert "000019.tif" in client(r"cd entry\data\images\tiff", "ls")
    client(rf"get entry\data\images\stack.npy {tmp_path}/stack.npy")
    assert (np.load(tmp_path / "stack.npy") == IMAGES).all()
    frame = os.urandom(512)
    (tmp_path / "frame").write_bytes(frame)
    client(rf"put {tmp_path}/frame entry\spots\frames\1.raw",  # one that is there, and a new one
           rf"put {tmp_path}/frame entry\spots\frames\5.raw")
    for name in ("frames/1.raw", "frames/5.raw"):
        assert (mount / "entry/spots" / name).read_bytes() == frame
    assert len(list((mount / "entry/spots/raw").iterdir())) == 6


def test_nfs_ganesha(mounts, path, tmp_path, serve, may_open_handles):
    wanted("ganesha.nfsd", "nfs-ls", "nfs-cat")
    mount = mounts(path, "rw,allow_other")
    port = free_port()
    (tmp_path / "ganesha.conf").write_text(f"""
NFS_CORE_PARAM {{
    Protocols = 4; NFS_Port = {port}; Bind_addr = 127.0.0.1; Enable_NLM = false; Enable_RQUOTA = false;
}}
NFSv4 {{ Graceless = true; RecoveryRoot = {tmp_path}; }}
EXPORT {{
    Export_Id = 7; Path = {mount.root}; Pseudo = /run; Access_Type = RW; Squash = No_Root_Squash;
    SecType = sys, none; Protocols = 4; Filesystem_Id = 7.7; FSAL {{ Name = VFS; }}
}}
""")
    serve(["ganesha.nfsd", "-F", "-f", tmp_path / "ganesha.conf", "-L", tmp_path / "ganesha.log",
           "-p", tmp_path / "ganesha.pid", "-N", "NIV_EVENT"], port)

    def url(name):
        return f"nfs://127.0.0.1/run/{name}?version=4&nfsport={port}"

    listed = do("nfs-ls", url("entry/data/images/tiff")).decode().split()
    assert "000000.tif" in listed and "000019.tif" in listed
    for _ in range(2):
        for i in (0, 7, 19):
            assert do("nfs-cat", url(f"entry/data/images/frames/{i}.raw")) == IMAGES[i].tobytes()
        forget()
