"""smbd and nfs-ganesha as programs that one process begins and ends, each with folders and
configuration of its own, on the loopback, and clients for them that need no kernel.

The clients are those libraries that smbclient and nfs-cp use: these programs alone neither
truncate nor keep a file open."""
import contextlib
import ctypes
import ctypes.util
import os
import pathlib
import shutil
import socket
import subprocess
import time

import pytest

from conftest import START_SECONDS


def wanted(*programs, libraries=()):
    """Skips the test if one is not there. Tests install no servers where these would start."""
    missing = [p for p in programs if not shutil.which(p, path=os.environ["PATH"] + ":/usr/sbin")]
    missing += [name for name in libraries if not library(name)]
    if missing:
        pytest.skip("not installed: " + ", ".join(missing))
    if os.geteuid() != 0:
        pytest.skip("only root can serve others")


def wanted_ganesha():
    """Other releases do not start with what Ganesha configures: the 6.5 of Debian 13 was tried."""
    wanted("ganesha.nfsd", "nfs-cp", libraries=["nfs"])
    if "V4." not in (release := do("ganesha.nfsd", "-v")):
        pytest.skip("nfs-ganesha is not release 4: " + release)


def library(name):
    """Programs come without the link that ld wants, so find_library() asks ld.so's cache."""
    return ctypes.util.find_library(name)


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def do(*command):
    done = subprocess.run([str(word) for word in command], capture_output=True, text=True,
                          errors="replace", timeout=START_SECONDS)
    assert done.returncode == 0, (command, done.stdout, done.stderr)
    return done.stdout


class Server:
    """Runs from start() to stop(); may be started again."""

    def __init__(self, folder):
        self.folder = folder
        self.port = free_port()
        self.output = folder / "output"
        self.process = None
        folder.mkdir()

    def start(self):
        with open(self.output, "ab") as out:
            self.process = subprocess.Popen(self.command(), stdin=subprocess.DEVNULL, stdout=out, stderr=out,
                                            start_new_session=True)  # it may signal its group
        deadline = time.monotonic() + START_SECONDS
        while not self.answers():
            said = self.output.read_text(errors="replace")
            assert self.process.poll() is None and time.monotonic() < deadline, said
            time.sleep(0.05)
        return self

    def answers(self):
        with socket.socket() as s:
            return s.connect_ex(("127.0.0.1", self.port)) == 0

    def stop(self):
        if not self.process or self.process.poll() is not None:
            return
        self.process.terminate()
        try:
            self.process.wait(START_SECONDS)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()


class Samba(Server):
    """Everybody is user `guest` on the one share, which is called share."""

    def __init__(self, folder, root, guest="root"):
        super().__init__(folder)
        own = "\n".join(f"{name} = {folder}" for name in (
            "private dir", "lock directory", "state directory", "cache directory", "pid directory", "ncalrpc dir"))
        self.configuration = folder / "smb.conf"
        self.configuration.write_text(f"""[global]
server role = standalone server
map to guest = Bad User
guest account = {guest}
smb ports = {self.port}
bind interfaces only = yes
interfaces = 127.0.0.1
disable netbios = yes
load printers = no
log file = {folder}/log
{own}
[share]
path = {root}
guest ok = yes
read only = no
""")

    def command(self):
        return ["smbd", "-s", self.configuration, "-F", "--no-process-group"]

    def client_command(self, *commands):
        return ["smbclient", "-s", str(self.configuration), "-p", str(self.port), "-N", "//127.0.0.1/share",
                "-c", "; ".join(commands)]

    def client(self, *commands):
        """All succeed: not of every command that fails does smbclient's exit code tell."""
        said = do(*self.client_command(*commands))
        assert "NT_STATUS" not in said, (commands, said)
        return said

    def refuses(self, command):
        done = subprocess.run(self.client_command(command), capture_output=True, text=True,
                              errors="replace", timeout=START_SECONDS)
        return "NT_STATUS" in done.stdout + done.stderr

    def files(self):
        return SmbClient(self)

    def answers(self):
        """It has listened for a while before it can do anything."""
        return super().answers() and subprocess.run(
            self.client_command("ls"), capture_output=True, timeout=START_SECONDS).returncode == 0


class SmbClient:
    """What smbclient cannot: files that are open, and parts of them. Its errors have an errno."""
    calls = None
    authenticate = None

    def __init__(self, server):
        self.url = f"smb://127.0.0.1:{server.port}/share/"
        if not SmbClient.calls:
            loaded = ctypes.CDLL(library("smbclient"), use_errno=True)
            loaded.smbc_lseek.restype = ctypes.c_int64
            loaded.smbc_read.restype = loaded.smbc_write.restype = ctypes.c_ssize_t
            # Nobody: the server takes it for a guest.
            SmbClient.authenticate = ctypes.CFUNCTYPE(None, *[ctypes.c_void_p] * 8)(lambda *_: None)
            assert loaded.smbc_init(SmbClient.authenticate, 0) == 0
            SmbClient.calls = loaded

    @staticmethod
    def call(function, *arguments):
        result = getattr(SmbClient.calls, function)(*arguments)
        if result < 0:
            raise OSError(ctypes.get_errno(), f"{function}: {os.strerror(ctypes.get_errno())}")
        return result

    def do(self, what, *names):
        """smbc_WHAT(names)"""
        return self.call("smbc_" + what, *[(self.url + name).encode() for name in names])

    @contextlib.contextmanager
    def open(self, name, flags=os.O_RDWR):
        file = self.call("smbc_open", (self.url + name).encode(), flags, 0o644)
        try:
            yield SmbFile(file)
        except BaseException:
            self.calls.smbc_close(file)
            raise
        self.call("smbc_close", file)


class SmbFile:
    def __init__(self, file):
        self.file = file

    def seek(self, offset):
        SmbClient.call("smbc_lseek", self.file, ctypes.c_int64(offset), os.SEEK_SET)

    def pread(self, offset, size):
        self.seek(offset)
        buffer = ctypes.create_string_buffer(size)
        done = SmbClient.call("smbc_read", self.file, buffer, ctypes.c_size_t(size))
        return buffer.raw[:done]

    def pwrite(self, offset, content):
        self.seek(offset)
        assert SmbClient.call("smbc_write", self.file, content, ctypes.c_size_t(len(content))) == len(content)

    def truncate(self, size):
        SmbClient.call("smbc_ftruncate", self.file, ctypes.c_int64(size))


class Ganesha(Server):
    """nfs-ganesha with its VFS back end: NFS 4, and /run is what is exported."""

    def __init__(self, folder, root):
        super().__init__(folder)
        self.configuration = folder / "ganesha.conf"
        self.configuration.write_text(f"""
NFS_CORE_PARAM {{
    Protocols = 4; NFS_Port = {self.port}; Bind_addr = 127.0.0.1; Enable_NLM = false; Enable_RQUOTA = false;
}}
NFSv4 {{ Graceless = true; RecoveryRoot = {folder}; Only_Numeric_Owners = true; }}
EXPORT {{
    Export_Id = 7; Path = {root}; Pseudo = /run; Access_Type = RW; Squash = No_Root_Squash;
    SecType = sys, none; Protocols = 4; Filesystem_Id = 7.7; FSAL {{ Name = VFS; }}
}}
""")

    def command(self):
        return ["ganesha.nfsd", "-F", "-f", self.configuration, "-L", self.folder / "log",
                "-p", self.folder / "pid", "-N", "NIV_EVENT"]

    def url(self, name):
        """As nfs-ls, nfs-cat and nfs-cp want it."""
        return f"nfs://127.0.0.1/run/{name}?version=4&nfsport={self.port}"

    @contextlib.contextmanager
    def client(self, folder="", user=0):
        client = NfsClient(self.port, folder, user)
        yield client
        client.destroy()


class NfsEntry(ctypes.Structure):
    """The beginning of struct nfsdirent."""
    _fields_ = [("next", ctypes.c_void_p), ("name", ctypes.c_char_p)]


class NfsStat(ctypes.Structure):
    """struct nfs_stat_64"""
    _fields_ = [(name, ctypes.c_uint64) for name in (
        "dev ino mode nlink uid gid rdev size blksize blocks atime mtime ctime atime_nsec mtime_nsec "
        "ctime_nsec used").split()]


class NfsHandle(ctypes.Structure):
    """struct nfs_fh"""
    _fields_ = [("size", ctypes.c_int), ("bytes", ctypes.c_void_p)]


class NfsUrl(ctypes.Structure):
    """struct nfs_url"""
    _fields_ = [(name, ctypes.c_char_p) for name in ("server", "path", "file")]


class NfsClient:
    """Its root is a folder of the export, of which it keeps the handle for as long as it lives. (It does
    not outlive the server, as the kernel's would.)"""

    def __init__(self, port, folder, user):
        self.calls = ctypes.CDLL(library("nfs"))
        self.calls.nfs_init_context.restype = ctypes.c_void_p
        self.calls.nfs_get_error.restype = ctypes.c_char_p
        self.calls.nfs_readdir.restype = ctypes.POINTER(NfsEntry)
        self.calls.nfs_get_rootfh.restype = ctypes.POINTER(NfsHandle)
        self.calls.nfs_parse_url_dir.restype = ctypes.POINTER(NfsUrl)
        self.context = ctypes.c_void_p(self.calls.nfs_init_context())
        url = f"nfs://127.0.0.1/run/{folder}?version=4&nfsport={port}&uid={user}&gid={user}"
        parts = self.calls.nfs_parse_url_dir(self.context, url.encode())
        assert parts, self.calls.nfs_get_error(self.context)
        # Else each would end those before it.
        self.calls.nfs4_set_client_name(self.context, os.urandom(8).hex().encode())
        self.call("nfs_mount", parts.contents.server, parts.contents.path)

    def call(self, function, *arguments):
        """The result, or an OSError."""
        arguments = [os.fsencode(a) if isinstance(a, (str, pathlib.PurePath)) else a for a in arguments]
        result = getattr(self.calls, function)(self.context, *arguments)
        if result < 0:
            raise OSError(-result, f"{function}: {self.calls.nfs_get_error(self.context).decode()}")
        return result

    def destroy(self):
        self.calls.nfs_destroy_context(self.context)

    def handle(self):
        """That of its root, as the server made it."""
        root = self.calls.nfs_get_rootfh(self.context).contents
        return ctypes.string_at(root.bytes, root.size)

    def take_handle(self, handle):
        """From now on its root is what another client had, before the server was started again."""
        root = self.calls.nfs_get_rootfh(self.context).contents
        assert root.size == len(handle)
        ctypes.memmove(root.bytes, handle, root.size)

    def stat(self, name):
        found = NfsStat()
        self.call("nfs_stat64", "/" + name, ctypes.byref(found))
        return found

    def list(self, name):
        """The names, sorted."""
        folder = ctypes.c_void_p()
        self.call("nfs_opendir", "/" + name, ctypes.byref(folder))
        found = []
        while entry := self.calls.nfs_readdir(self.context, folder):
            found.append(entry.contents.name.decode())
        self.calls.nfs_closedir(self.context, folder)
        return sorted(set(found) - {".", ".."})

    def rename(self, old, new):
        self.call("nfs_rename", "/" + old, "/" + new)

    def do(self, what, name, *arguments):
        """nfs_WHAT(name, arguments)"""
        return self.call("nfs_" + what, "/" + name, *arguments)

    @contextlib.contextmanager
    def open(self, name, flags=os.O_RDONLY, mode=0o644):
        file = NfsFile(self, name, flags, mode)
        try:
            yield file
        except BaseException:
            with contextlib.suppress(OSError):
                file.close()
            raise
        file.close()

    def read(self, name, size=1 << 20):
        with self.open(name) as file:
            return file.pread(0, size)

    def write(self, name, content, flags=os.O_WRONLY):
        with self.open(name, flags) as file:
            file.pwrite(0, content)
            file.fsync()


class NfsFile:
    def __init__(self, client, name, flags, mode):
        self.client = client
        self.handle = ctypes.c_void_p()
        client.call("nfs_open2", "/" + name, flags, mode, ctypes.byref(self.handle))

    def pread(self, offset, size):
        buffer = ctypes.create_string_buffer(size)
        done = self.client.call("nfs_pread", self.handle, ctypes.c_uint64(offset), ctypes.c_uint64(size), buffer)
        return buffer.raw[:done]

    def pwrite(self, offset, content):
        """In pieces, as clients write: between them, and in the midst of elements, anything happens."""
        for at in range(0, len(content), 1001):
            piece = content[at:at + 1001]
            written = self.client.call("nfs_pwrite", self.handle, ctypes.c_uint64(offset + at),
                                       ctypes.c_uint64(len(piece)), piece)
            assert written == len(piece)

    def fsync(self):
        self.client.call("nfs_fsync", self.handle)

    def truncate(self, size):
        self.client.call("nfs_ftruncate", self.handle, ctypes.c_uint64(size))

    def close(self):
        self.client.call("nfs_close", self.handle)
