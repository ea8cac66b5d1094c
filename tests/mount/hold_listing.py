"""hold_listing.py DIRECTORY: lists it into memory that is not there until this process is killed, as that of a mapped
file whose file system does not answer: userfaultfd(2). Says so, by a line, when the kernel waits for it. Ends with 77
where this cannot be had."""
import ctypes
import fcntl
import mmap
import os
import platform
import struct
import sys
import threading

LIBC = ctypes.CDLL(None, use_errno=True)
NUMBERS = {"x86_64": (323, 217), "aarch64": (282, 61)}  # of userfaultfd and getdents64
UFFDIO_API, UFFDIO_REGISTER = 0xC018AA3F, 0xC020AA00  # linux/userfaultfd.h
N = 1 << 16


def list_into(number, directory, address):
    fd = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    while LIBC.syscall(number, fd, ctypes.c_void_p(address), ctypes.c_size_t(N)) > 0:
        pass
    os.close(fd)


def main(directory):
    if platform.machine() not in NUMBERS:
        sys.exit(77)
    faults, getdents = NUMBERS[platform.machine()]
    fd = LIBC.syscall(faults, os.O_CLOEXEC)
    if fd < 0:
        sys.exit(77)
    plain = ctypes.create_string_buffer(N)
    for _ in range(3):  # the kernel keeps it
        list_into(getdents, directory, ctypes.addressof(plain))
    fcntl.ioctl(fd, UFFDIO_API, struct.pack("=QQQ", 0xAA, 0, 0))
    memory = mmap.mmap(-1, N)
    address = ctypes.addressof(ctypes.c_char.from_buffer(memory))
    fcntl.ioctl(fd, UFFDIO_REGISTER, struct.pack("=QQQQ", address, N, 1, 0))
    threading.Thread(target=list_into, args=(getdents, directory, address), daemon=True).start()
    os.read(fd, 32)
    print("held", flush=True)
    threading.Event().wait()


main(sys.argv[1])
