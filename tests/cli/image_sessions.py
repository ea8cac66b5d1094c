"""The library's images from Python: a sparse dataset of an image is overwritten in many sessions, each of which opens,
changes and closes an image in memory.

    image_sessions.py FILE DATASET SESSIONS    replaces the file; prints the size after each session
"""
import ctypes
import os
import pathlib
import random
import sys

BUILD = pathlib.Path(os.environ.get("SPARSEFS_BUILD", pathlib.Path(__file__).resolve().parents[2] / "build"))
RANK, WRITABLE = 32, 1  # SFS_MAX_RANK, SFS_IMAGE_WRITABLE
DEBUG = 7  # of syslog: why nothing is unused


class Slab(ctypes.Structure):
    _fields_ = [("rank", ctypes.c_int), ("start", ctypes.c_uint64 * RANK), ("count", ctypes.c_uint64 * RANK)]


class Library:
    def __init__(self):
        self.functions = ctypes.CDLL(BUILD / "src/libsparsefs.so")
        self.functions.sfs_set_log(None, DEBUG)
        self.functions.sfs_root.restype = self.functions.sfs_get_image.restype = ctypes.c_int64

    def call(self, name, *arguments):
        result = getattr(self.functions, name)(*arguments)
        assert result >= 0, f"{name}: {result}"
        return result


def overwrite(library, dataset, rows, columns, order):
    """Each row has other elements than before, of which there are more or fewer."""
    for row in range(rows):
        n = order.randrange(1, columns + 1)
        slab = Slab(2, (ctypes.c_uint64 * RANK)(row), (ctypes.c_uint64 * RANK)(1, columns))
        library.call("sfs_erase", dataset, ctypes.byref(slab))
        slab.count[1] = n
        library.call("sfs_write", dataset, ctypes.byref(slab), (ctypes.c_uint16 * n)(*range(row, row + n)))


def session(library, image, name, shape, order):
    """The image after it."""
    file, dataset, address = ctypes.c_void_p(), ctypes.c_void_p(), ctypes.c_uint64()
    library.call("sfs_open_image", image, ctypes.c_size_t(len(image)), WRITABLE, None, ctypes.byref(file))
    root = ctypes.c_uint64(library.functions.sfs_root(file))
    library.call("sfs_find", file, root, name, ctypes.byref(address))
    library.call("sfs_dataset_open", file, address, name, ctypes.byref(dataset))
    overwrite(library, dataset, *shape, order)
    library.functions.sfs_dataset_close(dataset)
    library.call("sfs_flush", file)
    n = library.call("sfs_get_image", file, None, ctypes.c_size_t(0))
    changed = ctypes.create_string_buffer(n)
    library.call("sfs_get_image", file, changed, ctypes.c_size_t(n))
    library.call("sfs_close", file)
    return changed.raw


def sessions(path, name, shape, n, seed=1):
    """Sizes after each; the file has the last image then."""
    library, order, sizes = Library(), random.Random(seed), []
    image = pathlib.Path(path).read_bytes()
    for _ in range(n):
        image = session(library, image, name.encode(), shape, order)
        sizes.append(len(image))
    pathlib.Path(path).write_bytes(image)
    return sizes


if __name__ == "__main__":
    rows, columns = map(int, sys.argv[4:6])
    print(*sessions(sys.argv[1], sys.argv[2], (rows, columns), int(sys.argv[3])))
