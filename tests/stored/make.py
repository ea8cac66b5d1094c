#!/usr/bin/python3
"""Makes the files of this folder: sparse datasets in each order and encoding that a layout message can have, and with
each index and numbers of it, and description.json, which says of each how it is stored and what is defined in it.

make.py DIRECTORY BUILD writes them there. Files that are here already stay as they are: newer versions read them."""
import json
import os
import pathlib
import subprocess
import sys
import tempfile

import numpy as np

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "mount"))
import sparse_reader  # noqa: E402

SHAPE = (7, 6, 10)
INDEXES = {
    "single": ("7,6,10", "7,6,10", ()),
    "fixed": ("9,6,10", "1,6,5", ("--index", "fixed-array,page-bits=3")),
    "extensible": ("inf,6,10", "1,6,5", ("--index", "extensible-array,page-bits=2,max-bits=16,index-block=3,"
                                                   "data-block=1,super-block=2")),
    "tree": ("inf,6,10", "1,2,5", ("--index", "btree,node-size=320,split=90,merge=30", "--alloc-time", "early")),
    "filtered": ("inf,6,inf", "1,6,4", ("--filter", "selection:deflate=1", "--filter", "values:shuffle",
                                        "--filter", "values:deflate=6", "--unfiltered-edges", "--fill-time", "never")),
}
ORDERS = {"prototype": ("prototype", "prototype"), "prototype-rfc": ("prototype", "rfc"),
          "22": ("22", "rfc"), "22-prototype": ("22", "prototype"), "sectioned": ("sectioned", "rfc")}


def values(seed):
    i = np.arange(np.prod(SHAPE), dtype="u8").reshape(SHAPE)
    return ((i * 2654435761 + seed * 97) % 65521).astype("<u2")


def defined(seed):
    """Short runs."""
    i = np.arange(np.prod(SHAPE)).reshape(SHAPE)
    return (i * (seed % 5 + 3) // 7 + seed) % 6 < 2


def main(folder, build):
    path, described = folder / "encodings.h5", {}
    for group, (order, encoding) in ORDERS.items():
        for name, (maxdims, chunk, options) in INDEXES.items():
            subprocess.run([build / "sparsectl", "create", "--dims", "7,6,10", "--maxdims", maxdims, "--chunk", chunk,
                            "--dtype", "uint16", "--layout-message", order, "--encoding", encoding, *options, path,
                            f"/{group}/{name}"], check=True)
    with tempfile.TemporaryDirectory() as root:
        mount = subprocess.Popen([build / "sparsefs", "-f", "-o", "rw", path, root])
        while not os.path.ismount(root):
            assert mount.poll() is None
        for seed, dataset in enumerate(f"{group}/{name}" for group in ORDERS for name in INDEXES):
            array, mask = values(seed).reshape(SHAPE[0], -1), defined(seed).reshape(SHAPE[0], -1)
            for frame in range(SHAPE[0]):
                fd = os.open(f"{root}/{dataset}/raw/{frame:06}.raw", os.O_RDWR)
                for at in np.nonzero(mask[frame])[0]:
                    os.pwrite(fd, array[frame, at].tobytes(), 2 * int(at))
                os.close(fd)
            at = np.nonzero(mask.reshape(SHAPE))
            described[dataset] = {"defined": [[*map(int, place), int(values(seed)[place])] for place in zip(*at)]}
        subprocess.run(["umount", root], check=True)
        assert mount.wait() == 0
    file = sparse_reader.File(path)
    for name, description in described.items():
        dataset = file[name]
        description |= {"layout_message": dataset.order, "encoding": dataset.encoding, "index": dataset.index.kind,
                        "numbers": dataset.index.numbers, "chunk_dims": dataset.chunk_dims,
                        "filters": {str(k): v for k, v in dataset.filters.items()}, "alloc_time": dataset.allocation,
                        "fill_time": dataset.fill_time, "unfiltered_edges": dataset.unfiltered_edges}
    lines = [f"{json.dumps(name)}: {json.dumps(one)}" for name, one in described.items()]
    (folder / "description.json").write_text("{" + ",\n".join(lines) + "}\n")


if __name__ == "__main__":
    main(pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2]))
