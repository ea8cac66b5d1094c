#!/usr/bin/python3
"""Malformed HDF5 files: sound small ones in which one field of one structure has one value that it
must not have, with the checksum made right again, or which end at the boundary of a structure.

    make.py FOLDER [N]      writes every N-th of them (1: all), and their names to stdout

Structures are found by their signatures and by the addresses of objects; fields as the HDF5 file
format specification has them, in messages by what looks like a number of 8, 4 or 1 bytes. Nothing
is random: the same libhdf5 makes the same files. There is no network, and no file of others."""
import collections
import functools
import pathlib
import struct
import sys
import tempfile

import h5py
import numpy as np

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "mount"))
import rare  # noqa: E402
import sparse_files  # noqa: E402

BESIDE = np.arange(600, dtype="<u2").reshape(6, 10, 10)
UNDEFINED = 2**64 - 1

# What follows signatures: the bytes of fields, in their order.
FIELDS = {
    b"TREE": [1, 1, 2, 8, 8] + [8] * 6,
    b"HEAP": [1, 3, 8, 8, 8, 8, 8],
    b"SNOD": [1, 1, 2, 8, 8, 4, 4, 8, 8, 8, 8, 4],
    b"GCOL": [1, 3, 8, 2, 2, 4, 8, 4, 4],
    b"FRHP": [1, 2, 2, 1, 4] + [8] * 12 + [2, 8, 8, 2, 2, 8, 2],
    b"FHDB": [1, 8, 4, 4],  # without a checksum that is found; else heap_block
    b"FHIB": [1, 8, 4, 8, 8, 8],
    b"BTHD": [1, 1, 4, 2, 2, 1, 1, 8, 2, 8],
    b"BTLF": [1, 1, 4, 4, 4, 8, 8],
    b"BTIN": [1, 1, 4, 4, 4, 8, 8],
    b"FSHD": [1, 1, 8, 8, 8, 8, 2, 2, 2, 2, 8, 8, 8, 8],
    b"FSSE": [1, 8, 1, 1, 1, 1],
    b"FAHD": [1, 1, 1, 1, 8, 8],
    b"FADB": [1, 1, 8, 8, 8, 8],
    b"EAHD": [1] * 8 + [8] * 7,
    b"EAIB": [1, 1, 8, 8, 8, 8],
    b"EASB": [1, 1, 8, 4, 8, 8],
    b"EADB": [1, 1, 8, 4, 8, 8],
    b"SMTB": [1, 1, 2, 4, 2, 2, 2, 8, 8],
    b"SMLI": [1, 1, 4, 4, 8],
}
WITHOUT_CHECKSUM = (b"TREE", b"HEAP", b"SNOD", b"GCOL")
SUPERBLOCKS = {  # from byte 8 on
    0: [1, 1, 1, 1, 1, 1, 1, 1, 2, 2, 4, 8, 8, 8, 8, 8, 8, 4, 4, 8, 8],
    1: [1, 1, 1, 1, 1, 1, 1, 1, 2, 2, 4, 2, 2, 8, 8, 8, 8, 8, 8, 4, 4, 8, 8],
    2: [1, 1, 1, 1, 8, 8, 8, 8],
    3: [1, 1, 1, 1, 8, 8, 8, 8],
}
CONTINUATION = 16
MOST_OF_STRUCTURE = 700  # bytes in which its checksum is looked for
HEAP_BLOCKS = [512 << n for n in range(8)]  # bytes of direct blocks of fractal heaps
MOST_OF_FIELD = 2  # files in which one field has one extreme value


# ---- Sound files ----

def begin(path, file):
    """A file with a dataset that nothing is done to, and a group for the rest. Returns the file and
    what stood in it at this time: the structures that are needed to get to that dataset."""
    file["beside"] = BESIDE
    group = file.create_group("g")
    file.flush()
    return file, group, path.read_bytes()


def add_layouts(group):
    data = np.arange(240, dtype="<i4").reshape(6, 8, 5)
    group["contiguous"] = data
    group.create_dataset("chunked", data=data, chunks=(1, 8, 5))
    group.create_dataset("filtered", data=data, chunks=(2, 4, 5), compression="gzip", shuffle=True,
                         fletcher32=True, fillvalue=7)
    plist = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
    plist.set_layout(h5py.h5d.COMPACT)
    space = h5py.h5s.create_simple((2, 3))
    h5py.h5d.create(group.id, b"compact", h5py.h5t.STD_I32LE, space, plist).write(
        h5py.h5s.ALL, h5py.h5s.ALL, np.ones((2, 3), "<i4"))


def add_indexes(group):
    """Every index that chunks may have: none, one chunk, fixed and extensible arrays, B-trees."""
    data = np.arange(240, dtype="<i4").reshape(6, 8, 5)
    group.create_dataset("implicit", data=data, chunks=(1, 8, 5))
    group.create_dataset("single", data=data, chunks=data.shape, compression="gzip")
    group.create_dataset("fixed", data=data, chunks=(1, 4, 5), compression="lzf")
    group.create_dataset("one", data=data, chunks=(1, 8, 5), maxshape=(None, 8, 5))
    group.create_dataset("two", data=data, chunks=(1, 4, 5), maxshape=(None, None, 5),
                         compression="gzip")
    grown = group.create_dataset("grown", (300, 2), "u1", chunks=(1, 2), maxshape=(None, 2))
    grown[...] = 5


def add_attributes(group):
    attrs = group.create_dataset("attributed", data=np.arange(5.)).attrs
    attrs["number"] = 1.5
    attrs["array"] = np.arange(6, dtype=">i2").reshape(2, 3)
    attrs["text"] = "variable length"
    attrs["fixed"] = np.bytes_("fixed length")
    attrs["lists"] = np.array([np.arange(2), np.arange(3)], dtype=h5py.vlen_dtype("i4"))
    attrs["compound"] = np.array((1, 2.5), dtype=[("a", "i4"), ("b", "f8")])
    attrs["enumeration"] = np.array(1, dtype=h5py.enum_dtype({"no": 0, "yes": 1}, "u1"))
    attrs["reference"] = group.ref
    attrs["empty"] = h5py.Empty(np.dtype("f4"))
    many = group.create_dataset("many", data=1).attrs
    for i in range(12):
        many[f"a{i:02}"] = i


def add_types(group):
    group["compound"] = np.zeros(4, [("x", "<f4"), ("y", "<i2", (2, 2)), ("z", "S5")])
    group["text"] = np.array([b"one", b"two"], h5py.string_dtype())
    group["lists"] = np.array([np.arange(2), np.arange(3)], dtype=h5py.vlen_dtype("i4"))
    group["enumeration"] = np.array([1, 0], dtype=h5py.enum_dtype({"no": 0, "yes": 1}, "u1"))
    group["named"] = np.dtype([("a", "<u8"), ("b", ">f8")])
    group.create_dataset("of_named", (2,), dtype=group["named"])
    references = group.create_dataset("references", (2,), dtype=h5py.ref_dtype)
    references[0] = group.ref
    regions = group.create_dataset("regions", (1,), dtype=h5py.regionref_dtype)
    regions[0] = group["compound"].regionref[1:3]
    group["opaque"] = np.array([b"abc"], "V3")
    group["bool"] = np.array([True, False])


def add_links(group):
    inner = group.create_group("inner")
    group["hard"] = inner
    group["soft"] = h5py.SoftLink("/g/inner")
    group["external"] = h5py.ExternalLink("other.h5", "/x")
    for i in range(12):
        inner.create_group(f"subgroup{i:02}")
    ordered = group.create_group("ordered", track_order=True)
    for i in range(12):
        ordered[f"n{i}"] = i


def add_elsewhere(group):
    layout = h5py.VirtualLayout((6, 10, 10), "<u2")
    layout[:3] = h5py.VirtualSource(".", "/beside", (6, 10, 10))[:3]
    group.create_virtual_dataset("virtual", layout)
    group.create_dataset("external", (10,), "<u2", external=[("raw.bin", 0, 20)])


PARTS = {"layouts": add_layouts, "indexes": add_indexes, "attributes": add_attributes,
         "types": add_types, "links": add_links, "elsewhere": add_elsewhere}
FORMATS = {"old": {}, "new": {"libver": "latest"}}


HAS_PAGES = h5py.version.version_tuple[0] >= 3  # before it had no word for the strategy


def sound_files(folder):
    """Names, bytes, and the bytes when there was only the dataset beside."""
    for kind, add in PARTS.items():
        for version, how in FORMATS.items():
            path = folder / f"{kind}_{version}.h5"
            file, group, before = begin(path, h5py.File(path, "w", **how))
            add(group)
            file.close()
            yield path.stem, path.read_bytes(), before
    for kind, (add, how) in rare.PARTS.items():
        path = folder / f"{kind}.h5"
        file, group, before = begin(path, rare.create(path, **how))
        add(group)
        file.close()
        yield path.stem, path.read_bytes(), before
    if HAS_PAGES:
        path = folder / "paged.h5"
        file, group, before = begin(path, h5py.File(path, "w", libver="latest", fs_strategy="page", fs_persist=True))
        add_layouts(group)
        del group["chunked"]
        file.close()
        yield path.stem, path.read_bytes(), before
    for i, deflate in enumerate(((0, 0), (6, 6))):
        path = folder / f"sparse{i}.h5"
        file = sparse_files.File("sparse", "other")
        array = np.arange(120, dtype="<u2").reshape(2, 6, 10)
        for name in file.names:
            file.add(name, array, array % 3 == 0, (1, 3, 10), deflate=deflate, attributes=[("a", 1)])
        file.save(path)
        yield path.stem, path.read_bytes(), None


# ---- Their structures ----

@functools.lru_cache(None)
def lookup3(data):
    return sparse_files.lookup3(data)


class Structure:
    """[begin, end) of a file, end being where its checksum stands, or None if it has none, unless that
    stands inside, at sum_at, and is taken for 0 then; fields: (place, bytes, what) of each, what being the
    same in all structures of the kind; messages: the kinds of those in a block of a header."""

    def __init__(self, kind, start, end, summed, fields, sum_at=None, messages=()):
        self.kind, self.start, self.end, self.summed, self.fields = kind, start, end, summed, fields
        self.sum_at, self.messages = sum_at, messages


def u(content, at, size):
    return int.from_bytes(content[at:at + size], "little")


def placed(start, sizes, end, what=""):
    fields = []
    for size in sizes:
        if start + size > end:
            break
        fields.append((start, size, f"{what}{len(fields)}"))
        start += size
    return fields


def body_fields(content, start, end, what, most=24):
    """What may be the fields of a message."""
    fields, at = [], start
    while at < end and len(fields) < most:
        size = 1
        number = u(content, at, 8)
        if at + 8 <= end and (number == UNDEFINED or 0 < number < 2 * len(content)) and number & 0xFFFF:
            size = 8
        elif at + 4 <= end and 0 < u(content, at, 4) < 65536 and content[at]:
            size = 4
        fields.append((at, size, f"{what}{len(fields)}"))
        at += size
    return fields


def messages(content, at, end, version, order=False):
    """The fields of messages in [at, end), and the blocks that continue them."""
    head = 8 if version == 1 else 6 if order else 4
    while at + head <= end:
        kind, size = (u(content, at, 2), u(content, at + 2, 2)) if version == 1 \
            else (content[at], u(content, at + 1, 2))
        sizes = [2, 2, 1] if version == 1 else [1, 2, 1]
        body = at + head
        if body + size > end:
            return
        fields = placed(at, sizes, body, f"message {kind}:")
        if kind:  # 0: nothing is in it
            how = content[body:min(body + 2, body + size)].hex()  # its version, and mostly what it is
            fields += body_fields(content, body, body + size, f"message {kind} {how}:")
        yield kind, size, body, fields
        at = body + size


def header_version_2(content, start):
    flags = content[start + 5]
    at = start + 6 + (16 if flags & 0x20 else 0) + (4 if flags & 0x10 else 0)
    width = 1 << (flags & 3)
    first = at + width
    end = first + u(content, at, width)
    fields = [(start + 4, 1, "version"), (start + 5, 1, "flags"), (at, width, "size")]
    blocks = [("OHDR", start, first, end)]
    while blocks:
        name, block, at, end = blocks.pop()
        kinds = []
        for kind, _, body, more in messages(content, at, end, 2, flags & 4):
            fields += more
            kinds.append(kind)
            if kind == CONTINUATION:
                place, size = u(content, body, 8), u(content, body + 8, 8)
                blocks.append(("OCHK", place, place + 4, place + size - 4))
        yield Structure(name, block, end, True, fields, messages=kinds)
        fields = []


def header_version_1(content, start):
    fields = placed(start, [1, 1, 2, 4, 4], start + 12)
    blocks = [(start, start + 16, start + 16 + u(content, start + 8, 4))]
    while blocks:
        block, at, end = blocks.pop()
        kinds = []
        for kind, _, body, more in messages(content, at, end, 1):
            fields += more
            kinds.append(kind)
            if kind == CONTINUATION:
                place, size = u(content, body, 8), u(content, body + 8, 8)
                blocks.append((place, place, place + size))
        yield Structure("header", block, end, False, fields, messages=kinds)
        fields = []


def objects(path):
    """Addresses of headers."""
    found = []
    with h5py.File(path) as file:
        found.append(h5py.h5o.get_info(file.id).addr)
        file.visititems(lambda name, item: found.append(h5py.h5o.get_info(item.id).addr))
    return sorted(set(found))


def checksum_end(content, start):
    for end in range(start + 8, min(start + MOST_OF_STRUCTURE, len(content) - 3)):
        if u(content, end, 4) and lookup3(bytes(content[start:end])) == u(content, end, 4):
            return end
    return None


def heap_block(content, start):
    """A direct block of a fractal heap: how long it is, and how its place in the heap is encoded, only the heap's
    header says, so they are looked for by its checksum."""
    kind = "FHDB"
    for width in (2, 3, 4, 5, 8):
        at = start + 13 + width
        wanted = u(content, at, 4)
        for end in (start + size for size in HEAP_BLOCKS if wanted and start + size <= len(content)):
            if lookup3(content[start:at] + bytes(4) + content[at + 4:end]) == wanted:
                fields = placed(start + 4, [1, 8, width], at) + body_fields(content, at + 4, end, "object", 90)
                return Structure(kind, start, end, True, fields, at)
    return Structure(kind, start, None, False, placed(start + 4, FIELDS[kind.encode()], len(content)))


def structures(content, headers):
    version = content[8]
    size = 44 if version >= 2 else 96
    yield Structure(f"superblock{version}", 0, size, version >= 2,
                    placed(8, SUPERBLOCKS[version], size))
    for start in headers:
        if content[start] == 1:
            yield from header_version_1(content, start)
    for start in find_all(content, b"OHDR"):
        yield from header_version_2(content, start)
    for signature, sizes in FIELDS.items():
        for start in find_all(content, signature):
            if signature == b"FHDB":
                yield heap_block(content, start)
                continue
            summed = signature not in WITHOUT_CHECKSUM
            end = checksum_end(content, start) if summed else start + 4 + sum(sizes)
            fields = placed(start + 4, sizes, end or start + 4 + sum(sizes))
            yield Structure(signature.decode(), start, end, summed and end is not None, fields)


def find_all(content, signature):
    at = content.find(signature)
    while at >= 0:
        yield at
        at = content.find(signature, at + 1)


# ---- What is wrong with them ----

def extremes(now, size, content, start, others):
    """(which of them, value), each value once."""
    top = 1 << 8 * size
    values = [0, 1, top - 1, top - 2, top >> 1, (top >> 1) - 1, (now + 1) % top, (now - 1) % top]
    if size == 8:
        values += [start, len(content), 1 << 32, *others]
    return [(values.index(value), value) for value in dict.fromkeys(values) if value != now]


def with_value(content, structure, at, size, value):
    bad = bytearray(content)
    bad[at:at + size] = value.to_bytes(size, "little")
    if structure.sum_at:
        bad[structure.sum_at:structure.sum_at + 4] = bytes(4)
    if structure.summed:
        end = structure.sum_at or structure.end
        bad[end:end + 4] = lookup3_now(bytes(bad[structure.start:structure.end]))
    return bytes(bad)


def lookup3_now(data):
    return struct.pack("<I", sparse_files.lookup3(data))


def variants(folder):
    """(name, a function that makes the bytes, whether the dataset beside is to be read). Each field has each
    extreme value in MOST_OF_FIELD of the sound files that have it."""
    made = collections.defaultdict(set)
    for name, content, before in sound_files(folder):
        headers = objects(folder / f"{name}.h5") if before else []
        found = list(structures(content, headers))
        needed = structures_on_the_way(folder / f"{name}.h5", before) if before else set()
        boundaries = sorted({structure.start for structure in found} - {0})
        for structure in found:
            harmless = bool(before) and structure.start not in needed
            others = [boundaries[0], headers[-1] if headers else boundaries[-1]]
            for at, size, what in structure.fields:
                now = u(content, at, size)
                for which, value in extremes(now, size, content, structure.start, others):
                    files = made[structure.kind, what, size, which]
                    if name in files or len(files) == MOST_OF_FIELD:
                        continue
                    files.add(name)
                    yield (f"{name}-{structure.kind}-{structure.start}+{at - structure.start}"
                           f"-{value:x}",
                           functools.partial(with_value, content, structure, at, size, value),
                           harmless)
        for cut in boundaries:
            for end in (cut, cut + 5):
                yield f"{name}-cut-{end}", functools.partial(bytes, content[:end]), False
    for path in sound_files_by_hand(folder):
        yield path


def structures_on_the_way(path, before):
    """Where those begin that lead to the dataset beside, and more that were there before others."""
    with h5py.File(path) as file:
        found = {0, *(h5py.h5o.get_info(file[name].id).addr for name in ("/", "/beside"))}
    for signature in (b"OHDR", b"OCHK", *FIELDS):
        found.update(find_all(before, signature))
    return found


# ---- What has become known of libhdf5 ----

def sound_files_by_hand(folder):
    """Of old format, as it checks least."""
    def content_of(name):
        return (folder / f"{name}.h5").read_bytes()

    def patched(name, signature, which, offset, data):
        content = bytearray(content_of(name))
        start = list(find_all(content, signature))[which]
        content[start + offset:start + offset + len(data)] = data
        return bytes(content)

    def at(name, signature, which=0):
        return struct.pack("<Q", list(find_all(content_of(name), signature))[which])

    whole = [
        ("a-tree-that-is-its-own-child", "links_old", b"TREE", -1, 32, at("links_old", b"TREE", -1)),
        ("a-tree-that-is-its-own-sibling", "links_old", b"TREE", -1, 16, at("links_old", b"TREE", -1)),
        ("levels-without-an-end", "links_old", b"TREE", -1, 5, b"\xff"),
        ("a-chunk-tree-in-place-of-one-of-names", "links_old", b"TREE", -1, 4, b"\1"),
        ("more-names-than-a-node-has", "links_old", b"SNOD", -1, 6, b"\xff\xff"),
        ("a-name-behind-its-heap", "links_old", b"SNOD", -1, 8, b"\xff\xff\xff\x7f"),
        ("a-soft-link-behind-its-heap", "links_old", b"SNOD", -1, 24, b"\2\0\0\0\0\0\0\0\xff\xff\xff\x7f"),
        ("a-heap-whose-free-list-is-a-ring", "links_old", b"HEAP", -1, 16, bytes(8)),
        ("a-heap-of-all-memory", "links_old", b"HEAP", -1, 8, b"\xff" * 8),
        ("global-heap-objects-of-no-bytes", "types_old", b"GCOL", 0, 24, bytes(8)),
        ("a-global-heap-object-behind-its-end", "types_old", b"GCOL", 0, 24, b"\xff\xff\xff\x7f"),
        ("a-global-heap-of-no-bytes", "types_old", b"GCOL", 0, 8, bytes(8)),
        ("a-chunk-of-4-GiB", "layouts_old", b"TREE", -1, 24, b"\xff\xff\xff\xff"),
        ("a-chunk-without-all-filters", "layouts_old", b"TREE", -1, 28, b"\xff\xff\xff\xff"),
    ]
    for name, base, signature, which, offset, data in whole:
        yield (f"known-{name}", functools.partial(patched, base, signature, which, offset, data), False)


def every(n, offset=0):
    """Every n-th of all, from the offset-th on, from a folder that is gone afterwards."""
    with tempfile.TemporaryDirectory() as folder:
        for i, (name, make, harmless) in enumerate(variants(pathlib.Path(folder))):
            if i % n == offset:
                yield name, make(), harmless


def main():
    folder = pathlib.Path(sys.argv[1])
    folder.mkdir(exist_ok=True)
    for name, content, _ in every(int(sys.argv[2]) if len(sys.argv) > 2 else 1):
        (folder / f"{name}.h5").write_bytes(content)
        print(name)


if __name__ == "__main__":
    main()
