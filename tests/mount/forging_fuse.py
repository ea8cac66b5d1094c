"""A FUSE file system of a user that says of all it shows that it is root's: files, and symbolic links."""
import contextlib
import ctypes
import os
import stat
import struct
import threading

from silent_fuse import DETACH, IN_HEADER, INIT_OUT, LIBC, OUT_HEADER, REQUEST_BYTES

LOOKUP, GETATTR, READLINK, OPEN, READ, STATFS, RELEASE, INIT, OPENDIR, RELEASEDIR = 1, 3, 5, 14, 15, 17, 18, 26, 27, 29
WITHOUT_ANSWER = {2, 36, 42}  # FORGET, INTERRUPT, BATCH_FORGET
ENOENT, ENOSYS = 2, 38
ROOT = 1  # node; those of names follow


@contextlib.contextmanager
def forging(path, user, names):
    """Mounted there for all, by the user. names: their contents, or (str) where a link leads."""
    path.mkdir(exist_ok=True)
    fd = os.open("/dev/fuse", os.O_RDWR)
    options = f"fd={fd},rootmode=40000,user_id={user},group_id={user},allow_other"
    if LIBC.mount(b"forging", os.fsencode(path), b"fuse", 6, options.encode()) != 0:  # nosuid, nodev
        os.close(fd)
        raise OSError(ctypes.get_errno(), "mount", str(path))
    server = threading.Thread(target=serve, args=(fd, names))
    server.start()
    try:
        yield path
    finally:
        LIBC.umount2(os.fsencode(path), DETACH)
        server.join()
        os.close(fd)


def serve(fd, names):
    while True:
        try:
            request = os.read(fd, REQUEST_BYTES)
        except OSError:  # ENODEV: unmounted
            return
        _, opcode, unique, node, *_ = IN_HEADER.unpack_from(request)
        if opcode not in WITHOUT_ANSWER:
            code, body = answer(opcode, node, request[IN_HEADER.size:], names)
            with contextlib.suppress(FileNotFoundError):  # nobody waits any more
                os.write(fd, OUT_HEADER.pack(OUT_HEADER.size + len(body), -code, unique) + body)


def attributes(node, names):
    content = b"" if node == ROOT else list(names.values())[node - ROOT - 1]
    mode = (stat.S_IFDIR | 0o755 if node == ROOT else stat.S_IFLNK | 0o777 if isinstance(content, str)
            else stat.S_IFREG | 0o644)
    return struct.pack("<6Q10I", node, len(content), 0, 0, 0, 0, 0, 0, 0, mode, 1, 0, 0, 0, 4096, 0)


def answer(opcode, node, body, names):
    """The error, and what follows."""
    if opcode == LOOKUP:
        name = os.fsdecode(body.rstrip(b"\0"))
        if name not in names:
            return ENOENT, b""
        found = ROOT + 1 + list(names).index(name)
        return 0, struct.pack("<4Q2I", found, 0, 0, 0, 0, 0) + attributes(found, names)
    if opcode == GETATTR:
        return 0, struct.pack("<Q2I", 0, 0, 0) + attributes(node, names)
    if opcode == READLINK:
        return 0, os.fsencode(list(names.values())[node - ROOT - 1])
    if opcode in (OPEN, OPENDIR):
        return 0, struct.pack("<Q2I", 0, 0, 0)
    if opcode == READ:
        _, offset, size = struct.unpack_from("<2QI", body)
        return 0, list(names.values())[node - ROOT - 1][offset:offset + size]
    if opcode == STATFS:
        return 0, bytes(80)
    if opcode == INIT:
        return 0, INIT_OUT.pack(7, 31, 1 << 16, 0, 16, 12, 1 << 12, 1, 0, 0, 0)
    return (0 if opcode in (RELEASE, RELEASEDIR) else ENOSYS), b""
