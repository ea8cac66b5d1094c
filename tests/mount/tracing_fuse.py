"""A FUSE file system of the user nobody that calls itself a sparsefs, and tries to take over every process of his that
looks into it: tracing_fuse.py DIRECTORY ERROR [PID]. It says its pid, or PID; FSYNCDIR fails with the errno ERROR, or
is done (0).
Run by root, who mounts as fusermount3 does for a user. Prints a line of JSON for each request: its name, the uid and
the command of who has made it, and what of that process nobody could get at."""
import ctypes
import json
import os
import stat
import struct
import sys

import silent_fuse

USER = 65534
PR_SET_NAME = 15
ROOT, FOLDER, PID = 1, 2, 3  # nodes
FOUND = {b".sparsefs": FOLDER, b"pid": PID}
NAMES = {1: "LOOKUP", 3: "GETATTR", 14: "OPEN", 15: "READ", 18: "RELEASE", 20: "FSYNC", 25: "FLUSH", 26: "INIT",
         27: "OPENDIR", 29: "RELEASEDIR", 30: "FSYNCDIR"}
WITHOUT_ANSWER = {2, 36, 42}  # FORGET, INTERRUPT, BATCH_FORGET
ENOENT, ENOSYS = 2, 38
SAID = f"{sys.argv[3] if len(sys.argv) > 3 else os.getpid()}\n".encode()


def reached(pid):
    """What of another process can be had by this one. Who may open mem for writing may trace it, too."""
    found = []
    for name, flags in ("environ", os.O_RDONLY), ("mem", os.O_RDWR), ("fd/0", os.O_RDONLY), ("cwd", os.O_PATH):
        try:
            os.close(os.open(f"/proc/{pid}/{name}", flags))
            found.append(name)
        except OSError:
            pass
    return found


def attributes(node):
    mode = stat.S_IFREG | 0o444 if node == PID else stat.S_IFDIR | 0o755
    size = len(SAID) if node == PID else 0
    return struct.pack("<6Q10I", node, size, 0, 0, 0, 0, 0, 0, 0, mode, 1, USER, USER, 0, 4096, 0)


def answer(name, node, body, error):
    """The error, and what follows."""
    if name == "LOOKUP":
        found = FOUND.get(body.rstrip(b"\0"))
        return (0, struct.pack("<4Q2I", found, 0, 0, 0, 0, 0) + attributes(found)) if found else (ENOENT, b"")
    if name == "GETATTR":
        return 0, struct.pack("<Q2I", 0, 0, 0) + attributes(node)
    if name in ("OPEN", "OPENDIR"):
        return 0, struct.pack("<Q2I", 0, 0, 0)
    if name == "READ":
        return 0, SAID
    if name == "INIT":
        return 0, silent_fuse.INIT_OUT.pack(7, 31, 1 << 16, 0, 16, 12, 1 << 12, 1, 0, 0, 0)
    return (error if name == "FSYNCDIR" else 0 if name else ENOSYS), b""


def serve(fd, error):
    while True:
        request = os.read(fd, silent_fuse.REQUEST_BYTES)
        _, opcode, unique, node, uid, _, pid, _ = silent_fuse.IN_HEADER.unpack_from(request)
        if opcode in WITHOUT_ANSWER:
            continue
        name = NAMES.get(opcode)
        if name not in ("INIT", "RELEASE", "RELEASEDIR", None):
            with open(f"/proc/{pid}/comm") as comm:
                print(json.dumps([name, uid, comm.read().strip(), reached(pid)]), flush=True)
        code, body = answer(name, node, request[silent_fuse.IN_HEADER.size:], error)
        os.write(fd, silent_fuse.OUT_HEADER.pack(silent_fuse.OUT_HEADER.size + len(body), -code, unique) + body)


def main():
    path, error = os.fsencode(sys.argv[1]), int(sys.argv[2])
    fd = os.open("/dev/fuse", os.O_RDWR)
    options = f"fd={fd},rootmode=40000,user_id={USER},group_id={USER}"
    if silent_fuse.LIBC.mount(path, path, b"fuse.sparsefs", 6, options.encode()) != 0:  # nosuid, nodev
        raise OSError(ctypes.get_errno(), "mount")
    os.setgroups([])
    os.setresgid(USER, USER, USER)
    os.setresuid(USER, USER, USER)
    silent_fuse.LIBC.prctl(PR_SET_NAME, b"sparsefs", 0, 0, 0)
    print("mounted", flush=True)
    try:
        serve(fd, error)
    except OSError:  # ENODEV: unmounted
        pass


main()
