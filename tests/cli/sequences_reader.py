"""Reads sparse datasets of elements of variable length, out of the bytes of a file, as the HDF Group's RFC "File
Format Changes for Enabling Sparse Storage" describes them (2.1.2, tables 6 and 7, and 3): another reader than that of
src/. Only where an object header is h5py is asked."""
import itertools
import pathlib
import struct
import sys
import zlib

import h5py
import numpy as np

sys.path.insert(0, str(pathlib.Path(__file__).parent.parent / "mount"))
from sparse_files import lookup3  # noqa: E402  the checksum

UNDEFINED = 2**64 - 1
SINGLE, FIXED_ARRAY, EXTENSIBLE_ARRAY, TREE = 1, 3, 4, 5
DEFLATE, SHUFFLE, FLETCHER32 = 1, 2, 3


class Bytes:
    """Fields, one after the other."""

    def __init__(self, data, at=0):
        self.data, self.at = data, at

    def take(self, n):
        assert self.at + n <= len(self.data)
        self.at += n
        return self.data[self.at - n:self.at]

    def uint(self, width=1):
        return int.from_bytes(self.take(width), "little")

    def uints(self, n, width=8):
        return [self.uint(width) for _ in range(n)]


def sound(data):
    """Without the checksum that it ends in."""
    assert len(data) >= 4 and lookup3(data[:-4]) == int.from_bytes(data[-4:], "little")
    return data[:-4]


# ---- The object header ----


def messages_of(content, address):
    head = Bytes(content, address)
    assert head.take(5) == b"OHDR\2"
    flags = head.uint()
    head.take(16 * bool(flags & 0x20) + 4 * bool(flags & 0x10))
    size = head.uint(1 << (flags & 3))
    sound(content[address:head.at + size + 4])
    pieces, found = [content[head.at:head.at + size]], {}
    for piece in pieces:
        fields = Bytes(piece)
        while len(piece) - fields.at >= 4 + 2 * bool(flags & 4):
            kind, size, _ = fields.uint(), fields.uint(2), fields.uint()
            fields.take(2 * bool(flags & 4))
            data = fields.take(size)
            if kind == 0x10:
                at, n = struct.unpack("<QQ", data[:16])
                block = sound(content[at:at + n])
                assert block[:4] == b"OCHK"
                pieces.append(block[4:])
            else:
                found.setdefault(kind, data)
    return found


class Dataset:
    """dims, defined (an array of booleans), elements (bytes, b"" where nothing is defined), base_size, is_string,
    chunks: (scaled coordinates, sections without filters, unused bytes, stored record)."""

    def __init__(self, path, name, order="prototype"):
        self.order = order
        with h5py.File(path, "r") as file:
            address = file.id.links.get_info(name.encode()).u
        self.content = path.read_bytes()
        messages = messages_of(self.content, address)
        space = Bytes(messages[1])
        assert space.uint() == 2
        rank, has_max = space.uint(), space.uint() & 1
        space.take(1)
        self.dims = space.uints(rank)
        self.max_dims = space.uints(rank) if has_max else self.dims
        self.take_datatype(messages[3])
        ours, other = (0x19, 0xb) if order == "prototype" else (0xb, 0x19)
        assert other not in messages
        self.is_filtered = ours in messages
        self.take_layout(messages[8])
        self.filters = self.take_filters(messages[ours]) if self.is_filtered else [[], [], []]
        self.defined = np.full(self.dims, bool(self.first))
        self.elements = np.full(self.dims, b"", object)
        self.chunks = []
        for scaled, record in self.records():
            self.take_chunk(scaled, record)

    def take_datatype(self, data):
        """Class 9: the kind in the lowest bits, then the size, then what it is of."""
        self.element_size = int.from_bytes(data[4:8], "little")
        assert data[0] & 0xf == 9 and self.element_size == 16
        self.is_string = data[1] & 0xf == 1
        self.base_size = int.from_bytes(data[12:16], "little")

    def take_filters(self, data):
        """Message 0x0019, or 0x000b of the RFC: of each section that has any, its number, and filters of two or three
        fields."""
        fields, filters = Bytes(data), [[], [], []]
        assert fields.uint() == (1 if self.order == "prototype" else 3)
        for _ in range(fields.uint()):
            section, n, _ = self.first + fields.uint(), fields.uint(), fields.uint(2)
            for _ in range(n):
                number, _, n_values = fields.uint(2), fields.uint(2), fields.uint(2)
                assert number < 256
                filters[section].append((number, fields.uints(n_values, 4)))
        return filters

    def take_layout(self, data):
        fields = Bytes(data)
        assert fields.take(3) == bytes([5, 4, 0])
        kind = fields.uint(2)  # of variable length: bit 1; sparse: bit 0
        assert kind in (2, 3)
        self.first = 3 - kind  # the section that is stored first: dense chunks have no selection
        n = 3 - self.first
        sections = bytes([n, n, *range(n)])
        if self.order == "sectioned":
            assert fields.take(4 + n) == bytes([0]) + sections + bytes([8])
        self.take_chunk_dims(fields)
        if self.order == "prototype":
            assert fields.take(3 + n) == bytes([8]) + sections
        self.take_index(fields)
        if self.order == "22":
            assert fields.take(3 + n) == bytes([8]) + sections
        assert not any(data[fields.at:])

    def take_chunk_dims(self, fields):
        assert fields.uint() & 1 == 0  # chunks at edges have filters, too
        n, width = fields.uint(), fields.uint()
        *self.chunk_dims, element_size = fields.uints(n, width)
        assert element_size == self.element_size

    def take_index(self, fields):
        self.index = fields.uint()
        if self.index == SINGLE:
            self.single = self.take_record(fields, False)
        else:
            self.parameters = fields.take({FIXED_ARRAY: 1, EXTENSIBLE_ARRAY: 5, TREE: 6}[self.index])
        self.address = fields.uint(8)

    def take_record(self, fields, has_address=True, scaled=None):
        """Address, bytes stored, where sections 1 and 2 begin, and their unfiltered sizes and masks. In trees the
        scaled coordinates stand behind the first two."""
        address = fields.uint(8) if has_address else None
        size = fields.uint(8)
        if scaled is not None:
            scaled += fields.uints(len(self.dims))
        none, n = [0] * self.first, 3 - self.first
        offsets = [*none, 0, *fields.uints(n - 1), size]
        plain = none + fields.uints(n) if self.is_filtered else None
        masks = none + fields.uints(n, 4) if self.is_filtered else [0, 0, 0]
        return address, offsets, plain, masks

    # ---- Indexes ----

    def grid(self):
        """The order of chunks in arrays: an axis without limit is the slowest."""
        dims = [d if m == UNDEFINED else m for d, m in zip(self.dims, self.max_dims)]
        counts = [-(-d // c) for d, c in zip(dims, self.chunk_dims)]
        axes = sorted(range(len(counts)), key=lambda axis: self.max_dims[axis] != UNDEFINED)
        for place in itertools.product(*(range(counts[axis]) for axis in axes)):
            yield tuple(place[axes.index(axis)] for axis in range(len(axes)))

    def block(self, address, signature, n):
        """The fields of a structure of n bytes behind its signature, before its checksum."""
        data = sound(self.content[address:address + n + 8])
        is_numbered = self.order == "prototype" and signature in (b"FAHD", b"FADB", b"EAHD")
        assert data[:4] == signature and (data[4] == is_numbered or signature == b"BTHD")
        return Bytes(data[5:])

    def records(self):
        if self.address == UNDEFINED or self.address == UNDEFINED - 1:
            return []
        if self.index == SINGLE:
            return [((0,) * len(self.dims), (self.address, *self.single[1:]))]
        if self.index == TREE:
            return self.records_of_tree()
        entries = self.fixed_array() if self.index == FIXED_ARRAY else self.extensible_array()
        return [(scaled, entry) for scaled, entry in zip(self.grid(), entries) if entry[0] != UNDEFINED]

    def record_bytes(self):
        return 32 - 8 * self.first + (36 - 12 * self.first) * self.is_filtered

    def fixed_array(self):
        head = self.block(self.address, b"FAHD", 20)
        client, size, page_bits, n, address = *head.uints(3, 1), *head.uints(2)
        assert client == 2 + self.is_filtered and size == self.record_bytes() and n <= 1 << page_bits
        fields = self.block(address, b"FADB", 10 + n * size)
        assert fields.uints(1, 1) == [client] and fields.uint(8) == self.address
        return [self.take_record(fields) for _ in range(n)]

    def extensible_array(self):
        """The index block and the data blocks that it leads to; others there are not in small files."""
        head = self.block(self.address, b"EAHD", 64)
        client, size, bits, in_index, least, super_least, page_bits = head.uints(7, 1)
        assert client == 2 + self.is_filtered and size == self.record_bytes()
        address = head.uints(7)[6]
        if address == UNDEFINED:
            return []
        n_blocks, n_super = 2 * (super_least - 1), 0
        while sum((1 << u // 2) for u in range(n_super)) < n_blocks:
            n_super += 1
        n_supers = 1 + bits - (least.bit_length() - 1) - n_super
        fields = self.block(address, b"EAIB", 10 + in_index * size + 8 * (n_blocks + n_supers))
        assert fields.uint() == client and fields.uint(8) == self.address
        entries = [self.take_record(fields) for _ in range(in_index)]
        lengths = [least << (u + 1) // 2 for u in range(n_super) for _ in range(1 << u // 2)]
        assert len(lengths) == n_blocks
        offset_bytes = (bits + 7) // 8
        for length, block in zip(lengths, fields.uints(n_blocks)):
            if block == UNDEFINED:
                entries += [(UNDEFINED,)] * length
                continue
            inner = self.block(block, b"EADB", 10 + offset_bytes + length * size)
            assert inner.uint() == client and inner.uint(8) == self.address
            assert inner.uint(offset_bytes) == len(entries) - in_index
            entries += [self.take_record(inner) for _ in range(length)]
        assert set(fields.uints(n_supers)) <= {UNDEFINED}
        return entries

    def records_of_tree(self):
        """A version 2 B-tree, of any depth: numbers of records have the widths that node sizes imply."""
        head = self.block(self.address, b"BTHD", 30)
        kind, node_size, size, depth, _, _ = head.uint(), head.uint(4), head.uint(2), head.uint(2), *head.uints(2, 1)
        root, n = head.uint(8), head.uint(2)
        assert kind == 12 + self.is_filtered and size == self.record_bytes() + 8 * len(self.dims)
        most = [(node_size - 10) // size]
        total = list(most)
        for level in range(depth):
            pointer = 8 + (most[0].bit_length() + 7) // 8 + ((total[level].bit_length() + 7) // 8 if level else 0)
            most.append((node_size - 10 - pointer) // (size + pointer))
            total.append((most[-1] + 1) * total[level] + most[-1])

        def node(address, n, level):
            head = self.content[address:address + 6]
            assert head == (b"BTIN" if level else b"BTLF") + bytes([0, kind])
            fields = Bytes(self.content, address + 6)
            here = []
            for _ in range(n):
                scaled = []
                record = self.take_record(fields, scaled=scaled)
                here.append((tuple(scaled), record))
            children = []
            for _ in range(n + 1 if level else 0):
                child, count = fields.uint(8), fields.uint((most[0].bit_length() + 7) // 8)
                if level > 1:
                    fields.take((total[level - 1].bit_length() + 7) // 8)
                children += node(child, count, level - 1)
            sound(self.content[address:fields.at + 4])
            return here + children

        return node(root, n, depth) if root != UNDEFINED else []

    # ---- Chunks ----

    def without_filters(self, number, data, mask):
        for i, (kind, values) in reversed(list(enumerate(self.filters[number]))):
            if mask >> i & 1:
                continue
            if kind == DEFLATE:
                data = zlib.decompress(data)
            elif kind == SHUFFLE:
                size = values[0]
                whole = len(data) // size * size
                shuffled = np.frombuffer(data[:whole], "u1").reshape(size, -1)
                data = shuffled.T.tobytes() + data[whole:]
            else:
                assert kind == FLETCHER32
                data = data[:-4]
        return data

    def sections_of(self, record):
        """Three, without filters and checksums."""
        address, offsets, plain, masks = record
        assert offsets == sorted(offsets)
        sections = []
        for number in range(3):
            data = self.content[address + offsets[number]:address + offsets[number + 1]]
            data = self.without_filters(number, data, masks[number]) if data else data
            assert not plain or len(data) == plain[number]
            sections.append(sound(data) if data else data)
        return sections

    def positions_of(self, sections):
        return selected(sections[0], self.chunk_dims) if self.first == 0 else all_of(self.chunk_dims)

    def end_chunk(self, scaled, record, sections, used):
        """used: bytes of its heap that elements lead to."""
        heap = sections[2]
        unused = int.from_bytes(heap[:4], "little") if heap else 0
        assert bool(heap) == (used > 0) and len(heap) == (4 + unused + used if heap else 0)
        self.chunks.append((scaled, sections, unused, record))

    def take_chunk(self, scaled, record):
        sections = self.sections_of(record)
        positions = self.positions_of(sections)
        assert len(sections[1]) == 16 * len(positions)
        heap, used = sections[2], 0
        for i, position in enumerate(positions):
            offset, n = struct.unpack_from("<QQ", sections[1], 16 * i)
            place = tuple(s * c + p for s, c, p in zip(scaled, self.chunk_dims, position))
            if self.first and any(p >= d for p, d in zip(place, self.dims)):
                assert n == 0  # a dense chunk is whole also where it reaches over the edge
                continue
            assert (offset == 0) if n == 0 else 4 <= offset <= offset + n <= len(heap)
            assert n % self.base_size == 0 and (self.first or not self.defined[place])
            self.defined[place] = True
            self.elements[place] = heap[offset:offset + n]
            used += n
        self.end_chunk(scaled, record, sections, used)


def all_of(dims):
    return list(itertools.product(*map(range, dims)))


def selected(encoded, dims):
    """Coordinates of what a selection selects, in row-major order: all, or hyperslabs in versions 1 to 3."""
    fields, mask = Bytes(encoded), np.zeros(dims, bool)
    fields.take(3)
    extent = Bytes(fields.take(fields.uint(4)))
    assert extent.uint() == 1 and extent.uint() == len(dims)
    extent.take(6)
    assert extent.uints(len(dims)) == list(dims)
    kind, version = fields.uint(4), fields.uint(4)
    if kind == 3:
        return all_of(dims)
    assert kind == 2 and version in (1, 2, 3)
    is_regular, width = version == 2, 8 if version == 2 else 4
    if version == 1:
        fields.take(8)
    elif version == 2:
        assert fields.uint() == 1
        fields.take(4)
    else:
        is_regular, width = bool(fields.uint() & 1), fields.uint()
    rank = fields.uint(4)
    assert rank == len(dims)
    if is_regular:
        axes = [fields.uints(4, width) for _ in range(rank)]
        mask[np.ix_(*([start + stride * i + k for i in range(count) for k in range(block)]
                      for start, stride, count, block in axes))] = True
    else:
        for _ in range(fields.uint(width)):
            first, last = fields.uints(rank, width), fields.uints(rank, width)
            mask[tuple(slice(a, b + 1) for a, b in zip(first, last))] = True
    assert fields.at == len(encoded)
    return [tuple(map(int, position)) for position in np.argwhere(mask)]
