"""Sound files of structures that h5py makes of itself only for large objects, or not at all: what libhdf5 is to make is
set in property lists, by its own functions where h5py has no word for them."""
import ctypes
import os
import pathlib

import h5py
import numpy as np

EARLIEST, LATEST = h5py.h5f.LIBVER_EARLIEST, h5py.h5f.LIBVER_LATEST
DATA = np.arange(2400, dtype="<i4").reshape(60, 8, 5)
FILL_NEVER, ATTRIBUTES_IN_ORDER, EDGES_WITHOUT_FILTERS = 1, 3, 2


def library():
    """The libhdf5 that h5py has loaded."""
    for line in pathlib.Path("/proc/self/maps").read_text().splitlines():
        name = os.path.basename(line.split()[-1])
        if name.startswith("libhdf5") and "_hl" not in name and ".so" in name:
            return ctypes.CDLL(line.split()[-1])
    raise OSError("h5py has loaded no libhdf5")


def call(name, item, *arguments):
    """Numbers are unsigned, but for item, an identifier."""
    words = [word if isinstance(word, bytes) else ctypes.c_uint(word) for word in arguments]
    if getattr(library(), name)(ctypes.c_int64(item), *words) < 0:
        raise OSError(f"{name} failed")


def create(path, earliest, shared=False, chunk_tree=0, name_trees=()):
    """shared: messages of headers in two indexes, of which the first becomes a B-tree; chunk_tree, name_trees: half of
    the children of nodes."""
    access = h5py.h5p.create(h5py.h5p.FILE_ACCESS)
    access.set_libver_bounds(earliest, LATEST)
    access.set_fclose_degree(h5py.h5f.CLOSE_STRONG)
    how = h5py.h5p.create(h5py.h5p.FILE_CREATE)
    if shared:
        call("H5Pset_shared_mesg_nindexes", how.id, 2)
        call("H5Pset_shared_mesg_index", how.id, 0, 0x0F, 10)  # dataspaces, datatypes, fill values, filters
        call("H5Pset_shared_mesg_index", how.id, 1, 0x10, 10)  # attributes
        call("H5Pset_shared_mesg_phase_change", how.id, 8, 4)
    if chunk_tree:
        call("H5Pset_istore_k", how.id, chunk_tree)
    if name_trees:
        call("H5Pset_sym_k", how.id, *name_trees)
    return h5py.File(h5py.h5f.create(os.fsencode(path), h5py.h5f.ACC_TRUNC, fcpl=how, fapl=access))


def create_dataset(group, name, dims, kind=h5py.h5t.STD_I32LE, chunk=None, **calls):
    """calls: functions of the creation's property list, and their arguments."""
    plist = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
    if chunk:
        plist.set_chunk(chunk)
    for function, arguments in calls.items():
        call(function, plist.id, *arguments)
    made = h5py.h5d.create(group.id, name.encode(), kind, h5py.h5s.create_simple(dims), plist)
    return h5py.Dataset(made)


def add_links(group):
    """Heaps and B-trees of several levels."""
    for i in range(150):
        group[f"link with a long name {i:06}"] = h5py.SoftLink("/beside")
    ordered = group.create_group("ordered", track_order=True)
    for i in range(150):
        ordered[f"o{i}"] = h5py.SoftLink("/beside")


def add_attributes(group):
    """The same, of attributes, by name and by their order."""
    many = group.create_dataset("many", data=1).attrs
    for i in range(120):
        many[f"attribute{i:05}"] = i
    ordered = create_dataset(group, "ordered", (2,), H5Pset_attr_creation_order=[ATTRIBUTES_IN_ORDER]).attrs
    for i in range(30):
        ordered[f"a{i:03}"] = i


def add_huge(group):
    """Objects of heaps that lie outside of them, and behind filters."""
    attributes = group.create_dataset("attributed", data=1).attrs
    for i in range(10):
        attributes.create(f"huge{i}", np.arange(9000 + i, dtype="f8"))
        attributes[f"small{i}"] = i
    plist = h5py.h5p.create(h5py.h5p.GROUP_CREATE)
    call("H5Pset_deflate", plist.id, 6)
    deflated = h5py.Group(h5py.h5g.create(group.id, b"deflated", gcpl=plist))
    for name in [*(f"a link named {i:04}" for i in range(40)), "n" * 70000]:
        deflated[name] = h5py.SoftLink("/beside")


def add_shared(group, n=12):
    for i in range(n):
        kind = [("a", "i4"), ("b", "f8")]
        one = group.create_dataset(f"d{i}", data=np.zeros((2, 3 + i), kind), chunks=(1, 3 + i), compression="gzip",
                                   fillvalue=np.array((i, 2.5), kind))
        one.attrs["same"] = "the same text of an attribute"
        one.attrs["other"] = f"another text {i} of an attribute"


def add_few_shared(group):
    add_shared(group, 3)


def add_indexes(group):
    how = {"data": DATA, "chunks": (1, 1, 5), "maxshape": (None, None, 5)}
    group.create_dataset("tree", **how)
    group.create_dataset("filtered", compression="gzip", **how)
    create_dataset(group, "edges", (6, 8, 5), chunk=(4, 8, 5), H5Pset_chunk_opts=[EDGES_WITHOUT_FILTERS],
                   H5Pset_deflate=[1])[...] = 3
    group.create_dataset("paged", (3000, 1), "u1", chunks=(1, 1))[...] = 3
    group.create_dataset("far", (4000, 1), "u1", chunks=(1, 1), maxshape=(None, 1))[...] = 3


def add_levels(group):
    """Trees of the old format of several levels, and messages of it."""
    for i in range(30):
        group.create_group(f"subgroup{i:04}")
    group.create_dataset("chunked", (60, 2), "u1", chunks=(1, 2))[...] = 4
    commented = group.create_dataset("commented", data=1)
    for n in range(3):
        group[f"hard{n}"] = commented
    for item in group, commented:
        call("H5Oset_comment", item.id.id, b"a comment")


def add_types(group):
    group["wide"] = np.zeros(3, [(f"member{i:02}", "<u2") for i in range(60)])
    group["enumeration"] = np.array([1], h5py.enum_dtype({f"v{i}": i for i in range(60)}, "u1"))
    create_dataset(group, "bits", (3,), h5py.h5t.STD_B32LE)
    create_dataset(group, "deep", (1,), h5py.h5t.array_create(h5py.h5t.STD_U8LE, (2,) * 20))
    group["nothing"] = h5py.Empty("f8")
    group.create_dataset("scaled", data=np.arange(40).reshape(4, 10), chunks=(2, 10), scaleoffset=0)
    create_dataset(group, "nbit", (4, 10), chunk=(2, 10), H5Pset_nbit=[])[...] = np.arange(40).reshape(4, 10)
    create_dataset(group, "unfilled", (4, 10), chunk=(2, 10), H5Pset_fill_time=[FILL_NEVER])
    group.create_virtual_dataset("virtual", h5py.VirtualLayout((6, 10, 10), "<u2"))
    group.create_dataset("external", (10,), "<u2", external=[(f"raw{i}.bin", i, 5) for i in range(4)])


PARTS = {
    "heap_links": (add_links, {"earliest": LATEST}),
    "heap_attributes": (add_attributes, {"earliest": LATEST}),
    "heap_huge": (add_huge, {"earliest": LATEST}),
    "shared": (add_shared, {"earliest": LATEST, "shared": True}),
    "shared_old": (add_few_shared, {"earliest": EARLIEST, "shared": True}),
    "trees": (add_indexes, {"earliest": LATEST}),
    "levels": (add_levels, {"earliest": EARLIEST, "chunk_tree": 4, "name_trees": (2, 2)}),
    "wide_old": (add_types, {"earliest": EARLIEST}),
    "wide_new": (add_types, {"earliest": LATEST}),
}
