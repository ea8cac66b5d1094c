"""HDF5 files with sparse datasets (structured chunk storage), written byte by byte: the released
library cannot make them. Chunks are found through a single-chunk or a fixed-array index."""
import functools
import itertools
import math
import struct
import zlib

import h5py
import numpy as np

UNDEFINED = 2**64 - 1
NEVER_PAGED = 30  # page bits of a fixed array
DEFLATE = 1

# A complete file: dataset x of five 32-bit integers, of which 1 to 3 are 1, 5 and 7.
SMALLEST = bytes.fromhex("""
    894844460d0a1a0a 0308080000000000 00000000ffffffff ffffffff1c010000
    0000000030000000 00000000952473c0 4f48445202002c02 1200000000ffffff
    ffffffffffffffff ffffffffff0a0200 010000060c000001 0001786700000000
    000000e4542d914f 48445202005b0114 0000020101010500 0000000000000500
    000000000000030c 0001100800000400 0000000020000502 0001030b08290000
    0504000000000201 050408020100014f 0043000000000000 00cd000000000000
    0000000000000000 00810b0841010008 1800000001010100 0000000005000000
    0000000005000000 0000000002000000 0100000000000000 1000000001000000
    0100000001000000 030000009bf20893 0100000005000000 07000000""")


def lookup3(data):
    """Bob Jenkins' hash, the checksum of everything."""
    mask = 0xFFFFFFFF
    a = b = c = (0xDEADBEEF + len(data)) & mask
    if not data:
        return c

    def rotate(x, k):
        return (x << k | x >> (32 - k)) & mask

    words = np.frombuffer(data + bytes(-len(data) % 12), "<u4").tolist()
    for i in range(0, len(words) - 3, 3):
        a, b, c = (a + words[i]) & mask, (b + words[i + 1]) & mask, (c + words[i + 2]) & mask
        a = ((a - c) & mask) ^ rotate(c, 4)
        c = (c + b) & mask
        b = ((b - a) & mask) ^ rotate(a, 6)
        a = (a + c) & mask
        c = ((c - b) & mask) ^ rotate(b, 8)
        b = (b + a) & mask
        a = ((a - c) & mask) ^ rotate(c, 16)
        c = (c + b) & mask
        b = ((b - a) & mask) ^ rotate(a, 19)
        a = (a + c) & mask
        c = ((c - b) & mask) ^ rotate(b, 4)
        b = (b + a) & mask
    a, b, c = (a + words[-3]) & mask, (b + words[-2]) & mask, (c + words[-1]) & mask
    for first, second, third in ((14, 11, 25), (16, 4, 14)):
        c = ((c ^ b) - rotate(b, first)) & mask
        a = ((a ^ c) - rotate(c, second)) & mask
        b = ((b ^ a) - rotate(a, third)) & mask
    return ((c ^ b) - rotate(b, 24)) & mask


@functools.lru_cache(64)
def summed(data):
    return data + struct.pack("<I", lookup3(data))


def packed(*numbers):
    return struct.pack(f"<{len(numbers)}Q", *numbers)


def message(kind, data, flags=0):
    return struct.pack("<BHB", kind, len(data), flags) + data


def object_header(*messages):
    body = b"".join(messages)
    return summed(b"OHDR\2\2" + struct.pack("<I", len(body)) + body)


def root_header(links):
    return object_header(
        message(2, b"\0\0" + packed(UNDEFINED, UNDEFINED)), message(10, b"\0\0", 1),
        *(message(6, b"\1\0" + bytes([len(name)]) + name.encode() + packed(address))
          for name, address in links))


def encoded_selection(mask):
    """What H5Sencode gives for the elements of a chunk, with its checksum: ALL or a list of blocks."""
    rank = mask.ndim
    begin = struct.pack("<BBBI", 1, 0, 8, 8 + 16 * rank) + bytes([1, rank, 1, 0, 0, 0, 0, 0]) \
        + packed(*mask.shape) + packed(*mask.shape)
    if mask.all():
        return summed(begin + struct.pack("<IIII", 3, 1, 0, 0))
    rows = np.pad(mask.reshape(-1, mask.shape[-1]).astype("i1"), ((0, 0), (1, 1)))
    change = np.diff(rows, axis=1)
    row, first = np.nonzero(change == 1)
    last = np.nonzero(change == -1)[1] - 1
    above = np.stack(np.unravel_index(row, mask.shape[:-1]), 1) if rank > 1 else np.zeros((len(row), 0))
    blocks = np.concatenate([above, first[:, None], above, last[:, None]], 1).astype("<u4").tobytes()
    return summed(begin + struct.pack("<IIIIII", 2, 1, 0, 8 + len(blocks), rank, len(first)) + blocks)


def encoded_type(dtype):
    return h5py.h5t.py_create(np.dtype(dtype), logical=True).encode()[2:]


def attribute(name, number):
    kind = encoded_type("<i8")
    space = b"\2\0\0\0"
    return message(12, struct.pack("<BBHHHB", 3, 0, len(name) + 1, len(kind), len(space), 0)
                   + name.encode() + b"\0" + kind + space + struct.pack("<q", number))


class File:
    """An HDF5 file in memory, to which datasets are added; save() ends it."""

    def __init__(self, *names):
        self.names = names
        self.links = []
        self.content = bytearray(48 + len(root_header([(name, 0) for name in names])))

    def append(self, data):
        address = len(self.content)
        self.content += data
        return address

    def save(self, path):
        assert [name for name, _ in self.links] == list(self.names)
        root = root_header(self.links)
        self.content[48:48 + len(root)] = root
        self.content[:48] = summed(b"\x89HDF\r\n\x1a\n\3\10\10\0"
                                   + packed(0, UNDEFINED, len(self.content), 48))
        path.write_bytes(self.content)

    def add(self, name, array, defined, chunks, *, fill=None, maxshape=None, deflate=(0, 0),
            attributes=(), outside=None, offset_size_width=None):
        """A sparse dataset of the elements of `array` where `defined`, an array of truth values, says
        so. deflate: levels for both sections, 0 for none. outside: more elements, which are defined
        at places behind the end of the dataset, in the padded shape. offset_size_width: the layout
        message is in the order of version 22, with an offset size in so many bytes."""
        item = array.dtype.itemsize
        maxshape = maxshape or array.shape
        grid = [-(-n // c) for n, c in zip(maxshape, chunks)]
        is_single = array.shape == tuple(chunks) == tuple(maxshape)
        grown = [(0, g * c - n) for n, g, c in zip(array.shape, grid, chunks)]
        array, mask = np.pad(array, grown), np.pad(defined, grown)
        if outside is not None:
            mask |= outside
        csl = min(8, 1 + ((math.prod(chunks) * item).bit_length() - 1 + 8) // 8)
        filtered = any(deflate)
        entries = []
        for place in itertools.product(*map(range, grid)):
            part = tuple(slice(p * c, p * c + c) for p, c in zip(place, chunks))
            entries.append(self.add_chunk(array[part], mask[part], csl, deflate))
        size = max(1, max(n.bit_length() for n in (*chunks, item)) + 7) // 8
        layout = bytes([5, 4, 0, 0, 0, 2 if filtered and is_single else 0, len(chunks) + 1, size]) \
            + b"".join(n.to_bytes(size, "little") for n in (*chunks, item))
        composition = (8).to_bytes(offset_size_width or 1, "little") + bytes([2, 1, 0])
        if is_single:
            index = b"\1" + entries[0][8:] + entries[0][:8]
        else:
            index = bytes([3, NEVER_PAGED]) + packed(self.add_array(entries, 2 + filtered))
        layout += index + composition if offset_size_width else composition + index
        filters = bytes([1, sum(level > 0 for level in deflate)])
        for section, level in enumerate(deflate):
            if level:
                filters += struct.pack("<BBHHHHI", section, 1, 10, DEFLATE, 1, 1, level)
        value = b"" if fill is None else np.array(fill, array.dtype).tobytes()
        header = object_header(
            message(1, bytes([2, len(chunks), 1, 1]) + packed(*defined.shape) + packed(*maxshape)),
            message(3, encoded_type(array.dtype), 1),
            message(5, b"\3\x2b" + struct.pack("<I", item) + value if value else b"\3\x0b", 1),
            *([message(0x19, filters, 1)] if filtered else []),
            message(8, layout + bytes(16)),
            message(0x15, b"\0\0" + packed(UNDEFINED, UNDEFINED)),
            *(attribute(*pair) for pair in attributes))
        self.links.append((name, self.append(header)))

    def add_chunk(self, values, mask, csl, deflate):
        """Its entry in an index."""
        if not mask.any():
            rest = csl + 8 + (24 if any(deflate) else 0)
            return packed(UNDEFINED) + bytes(rest)
        plain = [encoded_selection(mask), values[mask].tobytes()]
        stored = [zlib.compress(s, level) if level else s for s, level in zip(plain, deflate)]
        address = self.append(b"".join(stored))
        entry = packed(address) + sum(map(len, stored)).to_bytes(csl, "little") \
            + packed(len(stored[0]))
        return entry + packed(*map(len, plain)) + bytes(8) if any(deflate) else entry

    def add_ragged(self, name, arrays, defined, chunks, kind, *, form, deflate=(0, 0, 0), change=None):
        """A sparse dataset of elements of variable length, in three sections: `arrays` is an object array of
        what numpy.asarray makes of each sequence, or bytes, `kind` the datatype. form: "set", the prototype's
        global heap collections, or "rfc", offsets and lengths. change(section number, bytes): what is stored
        instead, before checksums and filters."""
        grid = [-(-n // c) for n, c in zip(arrays.shape, chunks)]
        mask = np.zeros([g * c for g, c in zip(grid, chunks)], bool)
        mask[tuple(map(slice, defined.shape))] = defined
        all_of_it = np.full(mask.shape, None, object)
        all_of_it[tuple(map(slice, arrays.shape))] = arrays
        entries = []
        for place in itertools.product(*map(range, grid)):
            part = tuple(slice(p * c, p * c + c) for p, c in zip(place, chunks))
            entries.append(self.add_ragged_chunk(all_of_it[part], mask[part], form, deflate,
                                                 change or (lambda _, section: section)))
        rank, filtered = len(chunks), any(deflate)
        layout = bytes([5, 4, 0, 0, 0, 0, rank + 1, 4]) + struct.pack(f"<{rank + 1}I", *chunks, 16) \
            + bytes([8, 3, 3, 0, 1, 2, 3, NEVER_PAGED]) + packed(self.add_array(entries, 2 + filtered))
        filters = bytes([1, sum(level > 0 for level in deflate)])
        for section, level in enumerate(deflate):
            if level:
                filters += struct.pack("<BBHHHHI", section, 1, 10, DEFLATE, 1, 1, level)
        encoded = kind.encode()[2:]  # strings have the size of a pointer in memory
        header = object_header(
            message(1, bytes([2, rank, 1, 1]) + packed(*arrays.shape) + packed(*arrays.shape)),
            message(3, encoded[:4] + struct.pack("<I", 16) + encoded[8:], 1), message(5, b"\3\x0b", 1),
            *([message(0x19, filters, 1)] if filtered else []), message(8, layout))
        self.links.append((name, self.append(header)))

    def add_ragged_chunk(self, arrays, mask, form, deflate, change):
        if not mask.any():
            return packed(UNDEFINED) + bytes(8 + 16 + (36 if any(deflate) else 0))
        sequences = [one if isinstance(one, bytes) else np.asarray(one).tobytes() for one in arrays[mask]]
        lengths = [len(one) for one in arrays[mask]]
        values, heap = (heap_set if form == "set" else heap_of_offsets)(sequences, lengths)
        plain = [encoded_selection(mask)]
        for number, section in ((1, values), (2, heap)):
            section = change(number, section)
            plain.append(summed(section) if section else b"")
        stored = [zlib.compress(s, level) if level and s else s for s, level in zip(plain, deflate)]
        address = self.append(b"".join(stored))
        entry = packed(address, sum(map(len, stored)), len(stored[0]), len(stored[0]) + len(stored[1]))
        return entry + packed(*map(len, plain)) + bytes(12) if any(deflate) else entry

    def add_array(self, entries, client):
        """A fixed array; the address of its header."""
        header = len(self.content)
        block = header + 28
        self.append(summed(b"FAHD" + bytes([1, client, len(entries[0]), NEVER_PAGED])
                           + packed(len(entries), block)))
        self.append(summed(b"FADB" + bytes([1, client]) + packed(header) + b"".join(entries)))
        return header


PER_COLLECTION = 7


def heap_set(sequences, lengths):
    """Sections 1 and 2 as the prototype of 2026 has them: objects of each collection in another order than their
    numbers, and what has no bytes is nothing."""
    values, collections = [], []
    for i, (sequence, length) in enumerate(zip(sequences, lengths)):
        slot, number = i // PER_COLLECTION, PER_COLLECTION - i % PER_COLLECTION
        values.append(struct.pack("<IHHQ", length, slot, number, 0) if length else bytes(16))
        if slot == len(collections):
            collections.append(b"")
        if length:
            collections[slot] += struct.pack("<HHIQ", number, 1, 0, len(sequence)) + sequence \
                + bytes(-len(sequence) % 8)
    # As libhdf5 has them there may be free space behind: an object of number 0, or less than its head takes.
    rests = [b"", struct.pack("<HHIQ", 0, 0, 0, 40) + bytes(24), bytes(8)]
    collections = [one + rests[i % 3] if one else b"" for i, one in enumerate(collections)]
    images = [b"GCOL\1\0\0\0" + packed(16 + len(one)) + one if one else b"" for one in collections]
    if not any(images):
        return b"".join(values), b""
    at = 12 + 16 * len(images)
    directory = b""
    for image in images:
        directory += packed(at, len(image)) if image else bytes(16)
        at += len(image)
    return b"".join(values), b"HGLS\1\0\0\0" + struct.pack("<I", len(images)) + directory + b"".join(images)


def heap_of_offsets(sequences, lengths):
    """The same as the RFC has them, with a few unused bytes before the first sequence."""
    values, at = [], 4 + 3
    for sequence in sequences:
        values.append(packed(at if sequence else 0, len(sequence)))
        at += len(sequence)
    if not any(lengths):
        return b"".join(values), b""
    return b"".join(values), struct.pack("<I", 3) + b"???" + b"".join(sequences)


def make(path, array, defined, chunks, **options):
    """A file with one sparse dataset, /sparse."""
    file = File("sparse")
    file.add("sparse", array, defined, chunks, **options)
    file.save(path)


def make_variable_length(path):
    """Three elements of variable-length integers: [10, 20], one that is nothing, and an undefined one;
    three sections, as the HDF5 prototype of 2026 has them."""
    file = File("sparse")
    mask = np.array([True, True, False])
    sections = [encoded_selection(mask),
                summed(bytes.fromhex("02000000 00000100 0000000000000000") + bytes(16)),
                summed(bytes.fromhex("48474c53 01000000 01000000 1c00000000000000 2800000000000000"
                                     "47434f4c 01000000 2800000000000000 0100010000000000"
                                     "0800000000000000 0a00000014000000"))]
    chunk = file.append(b"".join(sections))
    offset, offsets = 0, []
    for section in sections[:-1]:
        offset += len(section)
        offsets.append(offset)
    layout = bytes.fromhex("0504000000000201 0310 08030300010201") \
        + packed(sum(map(len, sections)), *offsets, chunk)
    kind = h5py.h5t.vlen_create(h5py.h5t.STD_I32LE).encode()[2:]
    header = object_header(message(1, b"\2\1\1\1" + packed(3, 3)), message(3, kind, 1),
                           message(5, b"\3\x0b", 1), message(8, layout))
    file.links.append(("sparse", file.append(header)))
    file.save(path)
