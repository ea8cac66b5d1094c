"""Reads sparse datasets of elements with parts of variable length anywhere: compounds, arrays and sequences of strings,
sequences and references, as the HDF Group's RFC "Shared Chunk Cache" has them ("Encoded Format of Variable Length
Data"), on top of sequences_reader.py. Shares no code with src/."""
import struct

import numpy as np

import sequences_reader
from sequences_reader import Bytes

INTEGER, FLOAT = 0, 1
COMPOUND, REFERENCE, ENUMERATION, SEQUENCE, ARRAY = 6, 7, 8, 9, 10


class Plain:
    """All else: its bytes. number: the NumPy datatype of a number of the machine."""

    def __init__(self, size, number=None):
        self.size, self.number = size, number

    def value(self, element, take):
        return element.take(self.size).hex()


class Compound:
    """Where a member has another size than the datatype message says, as a reference, all behind it is moved."""

    def __init__(self, size, members):
        self.members, moved = [], 0
        for offset, said, kind in sorted(members, key=lambda member: member[0]):
            self.members.append((offset + moved, kind))
            moved += kind.size - said
        self.size = size + moved

    def value(self, element, take):
        values, at = [], 0
        for offset, kind in self.members:
            element.take(offset - at)
            values.append(kind.value(element, take))
            at = offset + kind.size
        element.take(self.size - at)
        return values


class Array:
    def __init__(self, dims, base):
        self.n, self.dims, self.base = int(np.prod(dims)), dims, base
        self.size = self.n * base.size

    def value(self, element, take):
        return [self.base.value(element, take) for _ in range(self.n)]


class Sequence:
    size = 16

    def __init__(self, base, is_string):
        self.base, self.is_string = base, is_string

    def value(self, element, take):
        return take(self, element)


class Reference(Sequence):
    """{"to": an address}, of a region also {"selection": what is selected}; None: nowhere."""

    def __init__(self, is_region):
        super().__init__(None, True)
        self.is_region = is_region

    def value(self, element, take):
        data = bytes.fromhex(take(self, element))
        if not data:
            return None
        assert len(data) > 8 if self.is_region else len(data) == 8
        to = {"to": int.from_bytes(data[:8], "little")}
        return {**to, "selection": data[8:].hex()} if self.is_region else to


def flat(kind, fields):
    """A sequence in a sequence: how many, and these."""
    n = fields.uint(8)
    if kind.is_string:
        return fields.take(n).hex()
    return [kind.base.value(fields, flat) for _ in range(n)]


def datatype(fields):
    """A datatype message of version 1, 2 or 3 (HDF5 File Format Specification, IV.A.2.d)."""
    head, bits, size = fields.uint(), fields.uint(3), fields.uint(4)
    version, kind = head >> 4, head & 15
    if kind == COMPOUND:
        return Compound(size, [member(fields, version, size) for _ in range(bits & 0xffff)])
    if kind == ARRAY:
        rank = fields.uint()
        fields.take(3 * (version < 3))
        dims = fields.uints(rank, 4)
        fields.take(4 * rank * (version < 3))
        said = int.from_bytes(fields.data[fields.at + 4:fields.at + 8], "little")
        assert size == np.prod(dims) * said
        return Array(dims, datatype(fields))
    if kind == REFERENCE:
        assert size == (12 if bits & 15 else 8)
        return Reference(bits & 15 == 1)
    if kind == ENUMERATION:
        assert datatype(fields).size == size
        for _ in range(bits & 0xffff):
            name(fields, version)
        fields.take((bits & 0xffff) * size)
        return Plain(size)
    if kind == SEQUENCE:
        assert size == 16
        return Sequence(datatype(fields), bits & 15 == 1)
    rest = fields.take({INTEGER: 4, FLOAT: 12, 3: 0, 4: 4, 5: bits & 0xff}[kind])
    number = None
    if kind == INTEGER and rest == bytes([0, 0, *(8 * size).to_bytes(2, "little")]):
        number = np.dtype(f"{'<>'[bits & 1]}{'ui'[bits >> 3 & 1]}{size}")
    elif kind == FLOAT and rest[:4] == bytes([0, 0, *(8 * size).to_bytes(2, "little")]) and size in (2, 4, 8):
        number = np.dtype(f"{'<>'[bits & 1]}f{size}")
    return Plain(size, number)


def name(fields, version):
    start = fields.at
    while fields.uint():
        pass
    if version < 3:
        fields.take(-(fields.at - start) % 8)


def member(fields, version, size):
    name(fields, version)
    offset = fields.uint(4 if version < 3 else (size.bit_length() + 7) // 8)
    fields.take(28 * (version == 1))
    said = int.from_bytes(fields.data[fields.at + 4:fields.at + 8], "little")
    return offset, said, datatype(fields)


class Dataset(sequences_reader.Dataset):
    """values: {coordinates: a value}, of what is defined, or of all elements in dense chunks that are stored: of
    compounds, arrays and sequences lists, of all else the bytes in hexadecimal digits."""

    def take_datatype(self, data):
        self.values = {}
        self.kind = datatype(Bytes(data))
        self.element_size = self.kind.size

    def take_chunk(self, scaled, record):
        sections = self.sections_of(record)
        heap, used = sections[2], 0

        def outer(kind, element):
            nonlocal used
            offset, n = struct.unpack("<QQ", element.take(16))
            assert (offset == 0) if n == 0 else 4 <= offset <= offset + n <= len(heap)
            used += n
            fields, values = Bytes(heap[offset:offset + n]), []
            if kind.is_string:
                return fields.data.hex()
            while fields.at < n:
                values.append(kind.base.value(fields, flat))
            return values

        elements = Bytes(sections[1])
        for position in self.positions_of(sections):
            place = tuple(s * c + p for s, c, p in zip(scaled, self.chunk_dims, position))
            assert place not in self.values
            value = self.kind.value(elements, outer)
            if all(p < d for p, d in zip(place, self.dims)):
                self.values[place] = value
            else:
                assert self.first
        assert elements.at == len(sections[1])
        self.end_chunk(scaled, record, sections, used)
