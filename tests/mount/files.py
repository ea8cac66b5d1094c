"""HDF5 files of every kind that a mount must show, made with the released library."""
import collections
import ctypes
import importlib
import os

import h5py
import numpy as np

RNG = np.random.default_rng(20240607)


def integers(shape, dtype="<i4", span=1000):
    return RNG.integers(0, span, shape).astype(dtype)


def libhdf5():
    """The libhdf5 of h5py, for calls that h5py does not have; all of h5py calls it through one module."""
    package = h5py.h5d.__name__.rpartition(".")[0]
    return ctypes.CDLL(importlib.import_module(package + ".defs").__file__)


def open_with_any_type(path, create=False):
    """From 1.14.4 on libhdf5 has to be told to take numbers of which less than half are bits."""
    fapl = h5py.h5p.create(h5py.h5p.FILE_ACCESS)
    # libhdf5 1.10.6 closes sources of virtual datasets while they are in use, if the file is closed so.
    fapl.set_fclose_degree(h5py.h5f.CLOSE_WEAK)
    relax = getattr(libhdf5(), "H5Pset_relax_file_integrity_checks", None)
    if relax:
        relax.argtypes = (ctypes.c_int64, ctypes.c_uint64)
        assert relax(fapl.id, 1) >= 0
    name = os.fsencode(path)
    return h5py.File(h5py.h5f.create(name, h5py.h5f.ACC_TRUNC, fapl=fapl) if create
                     else h5py.h5f.open(name, h5py.h5f.ACC_RDONLY, fapl=fapl))


Chunk = collections.namedtuple("Chunk", "chunk_offset filter_mask byte_offset size")


def stored_chunks(dataset):
    """All chunks, as get_chunk_info of h5py 3 says; h5py 2 does not have it."""
    library, space = libhdf5(), dataset.id.get_space()
    handles = ctypes.c_int64(dataset.id.id), ctypes.c_int64(space.id)
    n, found = ctypes.c_uint64(), []
    assert library.H5Dget_num_chunks(*handles, ctypes.byref(n)) >= 0
    for index in range(n.value):
        start, mask = (ctypes.c_uint64 * len(dataset.shape))(), ctypes.c_uint()
        address, size = ctypes.c_uint64(), ctypes.c_uint64()
        assert library.H5Dget_chunk_info(*handles, ctypes.c_uint64(index), start, ctypes.byref(mask),
                                         ctypes.byref(address), ctypes.byref(size)) >= 0
        found.append(Chunk(tuple(start), mask.value, address.value, size.value))
    return found


def decode_selection(encoded):
    """In seven bytes stands, as the last four, how long the extent after them is; then the kind of the
    selection. libhdf5 1.10.6 takes 0, "none", for "all"."""
    space = h5py.h5s.decode(encoded)
    at = 7 + int.from_bytes(encoded[3:7], "little")
    if encoded[at:at + 4] == bytes(4):
        space.select_none()
    return space


def create(parent, name, space, type_id, dcpl=None):
    return h5py.Dataset(h5py.h5d.create(parent.id, name.encode(), type_id, space, dcpl))


def make_types(path):
    """Fixed-size datatypes of every class and byte order."""
    with open_with_any_type(path, create=True) as f:
        for order in "<>":
            for code in ("i1", "u1", "i2", "u2", "i4", "u4", "i8", "u8", "f2", "f4", "f8"):
                data = integers((3, 4, 5), order + code, 100)
                name = code + ("le" if order == "<" else "be")
                f.create_dataset(name, data=data)
        f["float16 values"] = np.array([0, 1.5, -2, np.inf, np.nan, 6e-8], "f2")
        f["doubles"] = np.array([[0.1, -1e300], [np.nan, -np.inf]])
        f["longdouble"] = np.array([1, 2.5], np.longdouble)
        f["bool"] = np.array([[True, False], [False, True]])
        f["complex"] = np.array([1 + 2j, 3 - 4j], "c8")
        f["complex128"] = np.array([[1 + 2j, 3 - 4j]] * 3, ">c16")
        colours = h5py.enum_dtype({"RED": 0, "GREEN": -1, "BLUE": 42}, basetype=">i2")
        f.create_dataset("enum", data=np.array([[0, -1], [42, 7]], ">i2"), dtype=colours)
        f["strings"] = np.array([b"one", b"two three", b""], "S10")
        f["opaque"] = np.array([b"\x01\x02\x03", b"\xff\xfe\xfd"], "V3")
        f["compound"] = np.array(
            [(1, 2.5, b"x", [[1, 2], [3, 4]]), (-3, np.nan, b"yz", [[5, 6], [7, 8]])],
            np.dtype({"names": ["a", "b's", "t", "m"],
                      "formats": ["<i2", ">f8", "S3", ("<u4", (2, 2))],
                      "offsets": [2, 8, 17, 20], "itemsize": 40}))
        f["nested"] = np.zeros(2, [("inner", [("r", "<f4"), ("i", "<f4")]), ("flag", "?")])
        f.create_dataset("array type", data=integers((2, 3, 4), "<u2"),
                         dtype=None)
        array = h5py.h5t.array_create(h5py.h5t.STD_I16BE, (3, 2))
        d = create(f, "array elements", h5py.h5s.create_simple((4, 2, 2)), array)
        d.id.write(h5py.h5s.ALL, h5py.h5s.ALL, integers((4, 2, 2, 3, 2), ">i2"), array)
        for name, padding in (("space padded", h5py.h5t.STR_SPACEPAD),
                              ("null padded", h5py.h5t.STR_NULLPAD)):
            string = h5py.h5t.C_S1.copy()
            string.set_size(8)
            string.set_strpad(padding)
            d = create(f, name, h5py.h5s.create(h5py.h5s.SCALAR), string)
            filler = b" " if padding == h5py.h5t.STR_SPACEPAD else b"\0"
            d.id.write(h5py.h5s.ALL, h5py.h5s.ALL, np.array(b"word".ljust(8, filler), "S8"), string)
        odd = h5py.h5t.STD_I32LE.copy()
        odd.set_size(3)
        d = create(f, "three-byte integers", h5py.h5s.create_simple((2, 5, 7)), odd)
        for base in ("I32LE", "U32LE", "I16BE", "U64BE", "I8LE"):
            for bits, offset in ((17, 4), (5, 0), (3, 2)):
                stored = getattr(h5py.h5t, f"STD_{base}").copy()
                if bits + offset > 8 * stored.get_size():
                    continue
                stored.set_precision(bits)
                stored.set_offset(offset)
                for name, options in (("plain", {}), ("gzip", dict(compression="gzip")),
                                      ("N-bit", None)):
                    plist = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
                    if options is None or options:
                        plist.set_chunk((1, 3, 4))
                        plist.set_filter(h5py.h5z.FILTER_NBIT if options is None else
                                         h5py.h5z.FILTER_DEFLATE, 0, () if options is None else (1,))
                    d = create(f, f"{name} {base} of {bits} bits at {offset}",
                               h5py.h5s.create_simple((2, 5, 7)), stored, plist)
                    span = min(1 << (bits - 1), 100)
                    low = -span if base[0] == "I" else 0
                    d[...] = RNG.integers(low, span, (2, 5, 7))
        bits = h5py.h5t.decode(bytes.fromhex("0300 14010000 02000000 0000 1000"))  # h5py 2 has no names
        create(f, "bitfield", h5py.h5s.create_simple((3, 3)), bits)
        f["scalar"] = np.int32(-7)
        f["scalar float"] = 2.5
        f["scalar string"] = np.bytes_(b"a\xc3\xa9\nb")
        f["named type"] = np.dtype("<u2")


def make_pointers(path):
    """Variable-length and reference datatypes: only text can show them."""
    with h5py.File(path, "w") as f:
        f["target"] = integers((4, 5))
        f["string"] = "caf\xe9"
        f.create_dataset("strings", data=np.array(["a", "b b", "", "\xfc\u4e2d\"\\"], object),
                         dtype=h5py.string_dtype())
        f.create_dataset("grid", data=np.array([["1", "2"], ["3", "4"]], object),
                         dtype=h5py.string_dtype())
        d = f.create_dataset("ragged", (3,), h5py.vlen_dtype("i4"))
        d[0], d[1], d[2] = [1, 2, 3], [], [4]
        refs = f.create_dataset("references", (3,), h5py.ref_dtype)
        refs[0], refs[1] = f["target"].ref, f.ref
        regions = f.create_dataset("regions", (2,), h5py.regionref_dtype)
        regions[0] = f["target"].regionref[1:3, 2:4]
        f.create_dataset("mixed", (2,), [("n", "i4"), ("s", h5py.string_dtype())])
        f["mixed"][0] = (5, "five")
        f.create_dataset("stack of strings", (3, 2, 2), h5py.string_dtype())
        f.attrs["reference"] = f["target"].ref
        f.attrs["ragged"] = "word"


def make_layouts(path):
    """Compact, contiguous, chunked with every filter at hand, external, virtual."""
    folder = path.parent
    with h5py.File(path, "w") as f:
        data = integers((7, 30, 41), "<u2")
        f.create_dataset("contiguous", data=data)
        f.create_dataset("contiguous, never written", (3, 4, 5), "f8", fillvalue=1.5)
        f.create_dataset("large contiguous", data=integers((6, 500, 700), ">u4"))
        compact = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
        compact.set_layout(h5py.h5d.COMPACT)
        d = create(f, "compact", h5py.h5s.create_simple((4, 5, 6)), h5py.h5t.STD_I32BE, compact)
        d[...] = integers((4, 5, 6))
        pipelines = {
            "plain": {}, "gzip": dict(compression="gzip", compression_opts=1),
            "gzip 9": dict(compression="gzip", compression_opts=9),
            "shuffle": dict(shuffle=True), "fletcher32": dict(fletcher32=True),
            "shuffle gzip": dict(shuffle=True, compression="gzip"),
            "all three": dict(shuffle=True, compression="gzip", fletcher32=True),
            "szip": dict(compression="szip"), "scaleoffset": dict(scaleoffset=0),
        }
        for name, options in pipelines.items():
            for chunks in ((1, 30, 41), (2, 8, 16), (7, 30, 41), (3, 1, 5)):
                f.create_dataset(f"{name} {chunks}", data=data, chunks=chunks, **options)
        f.create_dataset("chunks with holes", (9, 20, 20), ">i4", chunks=(2, 7, 9), fillvalue=-5,
                         compression="gzip")[4:6, 3:11, 5:6] = 77
        f.create_dataset("plain chunks with holes", (9, 20, 20), "<f4", chunks=(1, 20, 20),
                         fillvalue=np.nan)[5] = 3
        f.create_dataset("no chunk at all", (3, 8, 8), "u1", chunks=(1, 8, 8), fillvalue=9)
        f.create_dataset("chunk larger than the dataset", data=integers((2, 3, 4)),
                         maxshape=(None, None, None), chunks=(5, 6, 7), compression="gzip")
        f.create_dataset("large plain chunks", data=integers((3, 900, 800), "<u2"),
                         chunks=(2, 800, 500))
        partial = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
        partial.set_chunk((2, 8, 16))
        partial.set_deflate(4)
        d = create(f, "masked", h5py.h5s.create_simple((4, 8, 16)), h5py.h5t.STD_U16LE, partial)
        d[...] = integers((4, 8, 16), "<u2")
        d.id.write_direct_chunk((2, 0, 0), integers((2, 8, 16), "<u2").tobytes(), 1)

        external = integers((5, 6, 7), "<i2")
        (folder / "external 1.bin").write_bytes(b"skip" + external.tobytes()[:100])
        (folder / "external 2.bin").write_bytes(external.tobytes()[100:])
        plist = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
        plist.set_external(b"external 1.bin", 4, 100)
        plist.set_external(b"external 2.bin", 0, len(external.tobytes()) - 100)
        create(f, "external", h5py.h5s.create_simple((5, 6, 7)), h5py.h5t.STD_I16LE, plist)

    sources = []
    for n in range(3):
        with h5py.File(folder / f"source{n}.h5", "w") as s:
            s.create_dataset("d", data=integers((4, 12, 13), "<u4"), chunks=(1, 12, 13),
                             compression="gzip")
        sources.append(f"source{n}.h5")
    layout = h5py.VirtualLayout((16, 12, 13), "<u4")
    for n, name in enumerate(sources):
        layout[4 * n:4 * n + 4] = h5py.VirtualSource(name, "d", (4, 12, 13))
    layout[12:16] = h5py.VirtualSource("missing.h5", "d", (4, 12, 13))
    with h5py.File(path, "a", libver="latest") as f:
        f.create_virtual_dataset("virtual", layout, fillvalue=11)
    return folder


def make_unshown(path):
    """What has no frames, in every dataspace and layout: dataset.json alone, or with a text."""
    (path.parent / "short.bin").write_bytes(bytes(10))
    with h5py.File(path, "w") as f:
        f["target"] = integers((4, 5))
        for name, dtype in (("string", h5py.string_dtype()), ("sequence", h5py.vlen_dtype("f4")),
                            ("reference", h5py.ref_dtype), ("region", h5py.regionref_dtype),
                            ("compound", [("n", "i4"), ("r", h5py.ref_dtype)])):
            f.create_dataset(f"{name} null", dtype=dtype, data=h5py.Empty(np.dtype(dtype)))
            f.create_dataset(f"{name} scalar", (), dtype)
            f.create_dataset(f"{name} empty", (0, 3), dtype)
            f.create_dataset(f"{name} chunked", (3, 4, 5), dtype, chunks=(1, 4, 2), maxshape=(None, 4, 5))
            f.create_dataset(f"{name} gzip", (300,), dtype, chunks=(100,), compression="gzip")
            f.create_dataset(f"{name} too many", (2**19,), dtype, chunks=(1024,))
        f["committed"] = h5py.string_dtype()
        f.create_dataset("of committed type", (3,), f["committed"])
        many = f.create_dataset("many references", (8000,), h5py.ref_dtype)
        many[...] = [f["target"].ref] * 8000
        f.create_dataset("many strings", data=np.array(["line %d" % i for i in range(6000)], object),
                         dtype=h5py.string_dtype())
        f.create_dataset("time", data=np.zeros(3, "V8"))
        f.create_dataset("external, cut short", (3, 4), "u1", external=[("short.bin", 0, 12)])
        f["dangling"] = h5py.SoftLink("/nowhere")
        f["outside"] = h5py.ExternalLink("nothing.h5", "/")


def make_shapes(path):
    """Ranks 0 to 32, empty and null dataspaces."""
    with h5py.File(path, "w") as f:
        for rank in range(1, 33):
            shape = tuple(2 if axis in (0, rank // 2, rank - 1) else 1 for axis in range(rank))
            f.create_dataset(f"rank {rank}", data=integers(shape, "<u1"))
            f.create_dataset(f"chunked {rank}", data=integers(shape, ">u2"), chunks=(1,) * rank,
                             compression="gzip")
        f.create_dataset("no frames", (0, 4, 5), "i4", maxshape=(None, 4, 5), chunks=(1, 4, 5))
        f.create_dataset("empty frames", (3, 0, 5), "i4")
        f.create_dataset("empty line", (0,), "f8")
        f["null"] = h5py.Empty(np.dtype("f4"))
        f["line"] = np.arange(5000, dtype="<i8")
        f["image"] = integers((64, 100), ">i2")
        f["image of floats"] = RNG.random((33, 65), "f4")


def make_groups(path, **options):
    """Groups of both kinds, links of every kind, awkward names, attributes."""
    with h5py.File(path, "w", **options) as f:
        a = f.create_group("a")
        a["data"] = integers((3, 4, 5))
        f["hard"] = a["data"]
        f["again"] = a
        a["up"] = a
        b = f.create_group("a/b")
        b["to a"] = a
        b["to root"] = f["/"]
        f["soft"] = h5py.SoftLink("/a/data")
        b["relative"] = h5py.SoftLink("../nowhere")
        b["down"] = h5py.SoftLink("c/data")
        b["absolute"] = h5py.SoftLink("/a/b/./c//data")
        b["root"] = h5py.SoftLink("/")
        f.create_group("a/b/c")["data"] = integers((2, 2))
        f["dangling"] = h5py.SoftLink("/not/there")
        f["outside"] = h5py.ExternalLink("other.h5", "/there")
        f[".sparsefs"] = integers((2, 2))
        for name in ("..", "a%2Fb", "100%", "%~x", " leading", "caf\xe9", "a\nb", "x" * 255,
                     "y" * 256, "y" * 257, "frames", "dataset.json"):
            f.create_dataset(name, data=integers((2, 3)))
        many = f.create_group("many")
        for n in range(300):
            many.create_group(f"g{n:04d}")
        f.attrs["text"] = "some text"
        f.attrs["number"] = 42
        f.attrs["float"] = np.float32(0.1)
        f.attrs["list"] = [1, 2, 3]
        f.attrs["matrix"] = np.eye(2)
        f.attrs["fixed"] = np.bytes_(b"fixed")
        f.attrs["empty"] = h5py.Empty(np.dtype("i4"))
        f.attrs["yes"] = True
        f.attrs["strings"] = ["a", "b"]
        f.attrs["n" * 250] = 1
        f.attrs["n" * 251] = 2
        for n in range(60):  # more than fit in the object header: dense storage where it exists
            a.attrs[f"attribute {n:02d}"] = n
        a["data"].attrs["units"] = "counts"
        f["committed"] = np.dtype("f8")
