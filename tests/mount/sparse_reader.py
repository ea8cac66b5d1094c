"""Reads sparse datasets (structured chunk storage) out of HDF5 files, by what the HDF Group's RFC says and its
prototype does, without libhdf5 and without anything of sparsefs: an opinion of its own on what sparsefs writes.
It is strict: every checksum, count, order and size is looked at, and what is not as it should be is an assertion.

    file = File(path)
    dataset = file["/x"]
    dataset.order, dataset.encoding, dataset.index.kind, dataset.index.numbers, dataset.chunks, dataset.elements()

Only what these tests need of all else: superblocks and object headers, links in object headers and old groups,
integers and floating-point numbers."""
import functools
import itertools
import math
import pathlib
import struct
import zlib

import numpy as np

UNDEFINED = 2**64 - 1
NEVER_WRITTEN = UNDEFINED - 1
SINGLE, FIXED, EXTENSIBLE, BTREE = 1, 3, 4, 5
DEFLATE, SHUFFLE, FLETCHER32, NBIT, SCALE_OFFSET = 1, 2, 3, 5, 6


def rotate(x, k):
    return (x << k | x >> (32 - k)) & 0xFFFFFFFF


@functools.lru_cache(4096)
def checksum(data):
    """lookup3 of Bob Jenkins, hashlittle() with 0."""
    m = 0xFFFFFFFF
    a = b = c = (0xDEADBEEF + len(data)) & m
    n, i = len(data), 0
    while n - i > 12:
        x, y, z = struct.unpack_from("<III", data, i)
        a, b, c = (a + x) & m, (b + y) & m, (c + z) & m
        a = (a - c) & m ^ rotate(c, 4)
        c = (c + b) & m
        b = (b - a) & m ^ rotate(a, 6)
        a = (a + c) & m
        c = (c - b) & m ^ rotate(b, 8)
        b = (b + a) & m
        a = (a - c) & m ^ rotate(c, 16)
        c = (c + b) & m
        b = (b - a) & m ^ rotate(a, 19)
        a = (a + c) & m
        c = (c - b) & m ^ rotate(b, 4)
        b = (b + a) & m
        i += 12
    if n == 0:
        return c
    x, y, z = struct.unpack("<III", data[i:] + bytes(12 - n + i))
    a, b, c = (a + x) & m, (b + y) & m, (c + z) & m
    c = ((c ^ b) - rotate(b, 14)) & m
    a = ((a ^ c) - rotate(c, 11)) & m
    b = ((b ^ a) - rotate(a, 25)) & m
    c = ((c ^ b) - rotate(b, 16)) & m
    a = ((a ^ c) - rotate(c, 4)) & m
    b = ((b ^ a) - rotate(a, 14)) & m
    return ((c ^ b) - rotate(b, 24)) & m


def log2(x):
    """Rounded down; of 0 it is 0."""
    return max(x, 1).bit_length() - 1


class Bytes:
    """Numbers from the front of bytes to their end."""

    def __init__(self, data):
        self.data, self.at = bytes(data), 0

    def take(self, n):
        assert 0 <= n <= len(self.data) - self.at, "too short"
        self.at += n
        return self.data[self.at - n:self.at]

    def uint(self, width):
        return int.from_bytes(self.take(width), "little")

    def uints(self, n, width):
        return [self.uint(width) for _ in range(n)]

    @property
    def left(self):
        return len(self.data) - self.at


class File:
    def __init__(self, path, strict=True):
        """strict: not as the prototype is, which writes any node size, chunks of nothing, and mixes encodings."""
        self.strict = strict
        self.bytes = pathlib.Path(path).read_bytes()
        assert self.bytes[:8] == b"\x89HDF\r\n\x1a\n" and self.bytes[8] in (0, 2, 3)
        if self.bytes[8] == 0:
            assert self.bytes[13:15] == b"\x08\x08", "addresses and lengths of 8 bytes"
            base, _, end, _, _, root = struct.unpack_from("<6Q", self.bytes, 24)
        else:
            assert self.bytes[9:11] == b"\x08\x08" and self.bytes[11] == 0, "no writer has it open"
            base, _, end, root = struct.unpack_from("<4Q", self.bytes, 12)
            self.summed(0, 48)
        assert base == 0 and end <= len(self.bytes)
        self.root = root
        self.taken = []  # ranges of what was read as one structure

    def claim(self, name, address, n):
        assert n == 0 or address + n <= len(self.bytes), f"{name} is outside of the file"
        if n:
            self.taken.append((address, address + n, name))

    def check_overlaps(self):
        for (_, end, name), (begin, _, other) in itertools.pairwise(sorted(set(self.taken))) \
                if hasattr(itertools, "pairwise") else zip(sorted(set(self.taken)), sorted(set(self.taken))[1:]):
            assert end <= begin, f"{name} and {other} lie over each other"

    def read(self, address, n):
        assert address + n <= len(self.bytes), "outside of the file"
        return self.bytes[address:address + n]

    def summed(self, address, n):
        """n bytes of which the last four are the checksum of the others, which are returned."""
        data = self.read(address, n)
        assert int.from_bytes(data[-4:], "little") == checksum(data[:-4]), f"checksum at {address}"
        return data[:-4]

    def messages(self, address):
        """Types, flags and data of all messages of an object header."""
        head = self.read(address, 6)
        if head[0] == 1:
            return self.old_messages(address)
        assert head[:5] == b"OHDR\2"
        flags, at = head[5], address + 6 + (16 if head[5] & 0x20 else 0) + (4 if head[5] & 0x10 else 0)
        width = 1 << (flags & 3)
        size = int.from_bytes(self.read(at, width), "little")
        self.summed(address, at + width + size + 4 - address)
        self.claim("object header", address, at + width + size + 4 - address)
        blocks, found = [(at + width, size)], []
        while blocks:
            at, size = blocks.pop(0)
            block, behind = Bytes(self.read(at, size)), 6 if flags & 4 else 4
            while block.left >= behind:
                kind, n, message_flags = block.uint(1), block.uint(2), block.uint(1)
                block.take(behind - 4)
                data = block.take(n)
                if kind == 0x10:
                    address, length = struct.unpack("<QQ", data)
                    assert self.summed(address, length)[:4] == b"OCHK"
                    self.claim("object header continuation", address, length)
                    blocks.append((address + 4, length - 8))
                elif kind:
                    found.append((kind, message_flags, data))
        return found

    def old_messages(self, address):
        _, _, n, _, size = struct.unpack("<BBHII", self.read(address, 12))
        blocks, found = [(address + 16, size)], []
        while blocks:
            at, size = blocks.pop(0)
            block = Bytes(self.read(at, size))
            while block.left >= 8:
                kind, n_bytes, flags = block.uint(2), block.uint(2), block.uint(1)
                block.take(3)
                found.append((kind, flags, block.take(n_bytes)))
                if kind == 0x10:
                    blocks.append(struct.unpack_from("<QQ", found[-1][2]))
        assert len(found) == n
        return [message for message in found if message[0] not in (0, 0x10)]

    def old_links(self, tree, heap):
        """Of a group with a version 1 B-tree of symbol tables."""
        names = struct.unpack("<Q", self.read(heap + 24, 8))[0]
        assert self.read(tree, 5) == b"TREE\0" and self.read(heap, 4) == b"HEAP"
        level, n = self.bytes[tree + 5], int.from_bytes(self.read(tree + 6, 2), "little")
        links = {}
        for i in range(n):
            child, = struct.unpack("<Q", self.read(tree + 32 + 16 * i, 8))
            if level:
                links |= self.old_links(child, heap)
                continue
            assert self.read(child, 4) == b"SNOD"
            for k in range(int.from_bytes(self.read(child + 6, 2), "little")):
                name, header = struct.unpack("<QQ", self.read(child + 8 + 40 * k, 16))
                end = self.bytes.index(0, names + name)
                links[self.bytes[names + name:end].decode()] = header
        return links

    def links(self, address):
        links = {}
        for kind, _, data in self.messages(address):
            if kind == 0x11:
                return self.old_links(*struct.unpack_from("<QQ", data))
            if kind != 6:
                continue
            link = Bytes(data)
            version, flags = link.uint(1), link.uint(1)
            assert version == 1
            hard = link.uint(1) == 0 if flags & 8 else True
            link.take((8 if flags & 4 else 0) + (1 if flags & 16 else 0))
            name = link.take(link.uint(1 << (flags & 3))).decode()
            if hard:
                links[name] = link.uint(8)
        return links

    def __getitem__(self, path):
        address = self.root
        for part in path.strip("/").split("/"):
            address = self.links(address)[part]
        return Dataset(self, address)


class Index:
    """Kind, numbers, and where the index is."""

    def __init__(self, message, n_sections, csl_of, filtered):
        self.kind = message.uint(1)
        self.numbers, self.record = {}, None
        if self.kind == SINGLE:
            self.record = (message.uint(csl_of(n_sections)), message.uints(n_sections - 1, 8))
            self.record += (message.uints(n_sections, 8), message.uints(n_sections, 4)) if filtered else (None, None)
        elif self.kind == FIXED:
            self.numbers = {"page_bits": message.uint(1)}
        elif self.kind == EXTENSIBLE:
            self.numbers = {name: message.uint(1) for name in (
                "max_bits", "index_block_elements", "super_block_min_blocks", "data_block_min_elements", "page_bits")}
        else:
            assert self.kind == BTREE, f"index {self.kind}"
            self.numbers = {"node_size": message.uint(4), "split_percent": message.uint(1),
                            "merge_percent": message.uint(1)}
        self.address = message.uint(8)


class Chunk:
    def __init__(self, address, size, offsets, unfiltered, masks):
        self.address, self.size, self.offsets = address, size, [0, *offsets, size]
        assert self.offsets == sorted(self.offsets), "sections are out of order"
        self.unfiltered, self.masks = unfiltered, masks


class Dataset:
    def __init__(self, file, address):
        self.file = file
        messages = file.messages(address)
        by_kind = {kind: data for kind, _, data in messages}
        assert len(by_kind) == len([kind for kind, _, _ in messages if kind != 0x0C]) + (0x0C in by_kind)
        self.read_space(Bytes(by_kind[1]))
        self.read_type(by_kind[3])
        self.read_fill(Bytes(by_kind[5]))
        self.filtered = 0x19 in by_kind or 0x0B in by_kind
        self.read_layout(by_kind[8])
        assert not (0x19 in by_kind and 0x0B in by_kind)
        self.filters_message = 0x19 if 0x19 in by_kind else 0x0B if 0x0B in by_kind else None
        self.filters = self.read_filters(Bytes(by_kind[self.filters_message])) if self.filtered else {}
        self.encoding = "rfc" if self.type & 1 else "prototype"
        assert not file.strict or self.filters_message in (None, 0x0B if self.encoding == "rfc" else 0x19)
        self.versions = set()
        self.chunks = dict(self.read_index())
        for chunk in self.chunks.values():
            file.claim("chunk", chunk.address, chunk.size)
        file.check_overlaps()

    # ---- Messages ----

    def read_space(self, message):
        version, self.rank, flags, kind = message.uints(4, 1)
        message.take(4 if version == 1 else 0)
        assert version == 1 or (version == 2 and kind == 1)
        self.dims = tuple(message.uints(self.rank, 8))
        self.max_dims = tuple(message.uints(self.rank, 8)) if flags & 1 else self.dims

    def read_type(self, data):
        kind, size = data[0] & 15, int.from_bytes(data[4:8], "little")
        order = ">" if data[1] & 1 else "<"
        assert kind in (0, 1), "only integers and floating-point numbers"
        self.dtype = np.dtype(order + ("f" if kind == 1 else "i" if data[1] & 8 else "u") + str(size))

    def read_fill(self, message):
        version, flags = message.uints(2, 1)
        if version == 2:
            flags |= message.uint(1) << 2 | message.uint(1) << 5
        assert version in (2, 3)
        self.allocation = {1: "early", 2: "late", 3: "incremental"}[flags & 3]
        self.fill_time = {0: "alloc", 1: "never", 2: "ifset"}[flags >> 2 & 3]
        self.fill = np.zeros((), self.dtype)
        size = message.uint(4) if flags & 0x20 else 0
        if size:
            self.fill = np.frombuffer(message.take(size), self.dtype)[0]

    def csl(self, n_sections):
        if n_sections == 3:
            return 8
        return min(8, 1 + (log2(self.chunk_bytes) + 8) // 8)

    def read_dims(self, message):
        flags, n, width = message.uints(3, 1)
        assert flags in (0, 1, 2) and n == self.rank + 1
        *dims, item = message.uints(n, width)
        assert all(dims) and item == self.dtype.itemsize
        self.flags, self.chunk_dims = flags, tuple(dims)
        self.chunk_bytes = math.prod(dims) * item

    @staticmethod
    def take_sections(message):
        n, n_metadata = message.uints(2, 1)
        numbers = message.uints(n_metadata, 1)
        assert (n, numbers) in ((2, [0]), (3, [0, 1, 2])), "sections"
        return n

    def layout_prototype(self, message):
        self.read_dims(message)
        assert message.uint(1) == 8
        self.n_sections = self.take_sections(message)
        self.index = Index(message, self.n_sections, self.csl, self.flags & 2)

    def layout_22(self, message):
        """The record of a single chunk wants to know the sections, which stand behind it."""
        self.read_dims(message)
        begin = message.at
        for n_sections in (2, 3):
            message.at = begin
            try:
                self.index = Index(message, n_sections, self.csl, self.flags & 2)
                assert message.uint(1) == 8
                self.n_sections = self.take_sections(message)
                assert self.n_sections == n_sections
                return
            except AssertionError:
                if n_sections == 3:
                    raise

    def layout_sectioned(self, message):
        assert message.uint(1) == 0, "type of storage"
        self.n_sections = self.take_sections(message)
        assert message.uint(1) == 8
        self.read_dims(message)
        self.index = Index(message, self.n_sections, self.csl, self.flags & 2)

    def read_layout(self, data):
        """Nothing tells which of the orders it has: all are tried, of which one alone must make sense."""
        assert data[:3] == b"\5\4\0", "version 5, class 4, property version 0"
        self.type = int.from_bytes(data[3:5], "little")
        assert self.type & ~3 == 0
        possible = []
        for name in ("prototype", "22", "sectioned"):
            message = Bytes(data)
            message.take(5)
            try:
                getattr(self, f"layout_{name}")(message)
            except AssertionError:
                continue
            assert not any(message.take(message.left)), "bytes behind the last field"
            possible.append((name, dict(self.__dict__)))
        assert len(possible) == 1, f"orders that it can have: {[name for name, _ in possible]}"
        self.order, state = possible[0]
        self.__dict__.update(state)
        self.order = possible[0][0]
        self.unfiltered_edges = bool(self.flags & 1)

    def read_filters(self, message):
        version, n = message.uints(2, 1)
        assert version == (1 if self.filters_message == 0x19 else 3)
        filters = {}
        for _ in range(n):
            section, n_filters, size = message.uint(1), message.uint(1), message.uint(2)
            assert section < self.n_sections and section not in filters and 1 <= n_filters <= 32
            described = Bytes(message.take(size))
            filters[section] = []
            for _ in range(n_filters):
                number = described.uint(2)
                name_bytes = described.uint(2) if number >= 256 else 0
                described.uint(2)
                n_values = described.uint(2)
                described.take(name_bytes)
                filters[section].append((number, described.uints(n_values, 4)))
            assert described.left == 0
        return filters

    # ---- Indexes ----

    def begin(self, data, signature, number, versions=(0, 1)):
        assert data[:4] == signature and data[4] in versions and data[5] == number, (signature, data[:6])
        self.versions.add(data[4])
        return Bytes(data[6:])

    def take_record(self, message, scaled=False):
        address, size = message.uint(8), message.uint(self.csl(self.n_sections))
        place = tuple(message.uints(self.rank, 8)) if scaled else None
        offsets = message.uints(self.n_sections - 1, 8)
        unfiltered = message.uints(self.n_sections, 8) if self.filtered else None
        masks = message.uints(self.n_sections, 4) if self.filtered else None
        if address == UNDEFINED:
            assert not scaled and size == 0 and not any(offsets), "nothing is stored, but where it is is told"
            return None, None
        return place, Chunk(address, size, offsets, unfiltered, masks)

    @property
    def element(self):
        filters = 12 * self.n_sections if self.filtered else 0
        return 8 + self.csl(self.n_sections) + 8 * (self.n_sections - 1) + filters

    def read_index(self):
        chunks = [None if m == UNDEFINED else -(-m // c) for m, c in zip(self.max_dims, self.chunk_dims)]
        if self.index.address in (UNDEFINED, NEVER_WRITTEN):
            assert self.index.kind == SINGLE or self.index.address == UNDEFINED
            return
        if self.index.kind == SINGLE:
            assert all(n == 1 for n in chunks)
            yield (0,) * self.rank, Chunk(self.index.address, *self.index.record)
        elif self.index.kind == BTREE:
            yield from self.read_tree()
        else:
            order = [i for i, n in enumerate(chunks) if n is None] + [i for i, n in enumerate(chunks) if n is not None]
            assert sum(n is None for n in chunks) == (self.index.kind == EXTENSIBLE)
            for number, chunk in self.read_fixed(chunks) if self.index.kind == FIXED else self.read_extensible():
                place, rest = [0] * self.rank, number
                for axis in reversed(order):
                    place[axis] = rest if chunks[axis] is None else rest % chunks[axis]
                    rest = 0 if chunks[axis] is None else rest // chunks[axis]
                assert rest == 0
                yield tuple(place), chunk

    def elements_of(self, data, first):
        assert len(data) % self.element == 0
        message = Bytes(data)
        for number in range(first, first + len(data) // self.element):
            _, chunk = self.take_record(message)
            if chunk:
                yield number, chunk

    def read_fixed(self, chunks):
        client = 3 if self.filtered else 2
        self.file.claim("FAHD", self.index.address, 28)
        head = self.begin(self.file.summed(self.index.address, 28), b"FAHD", client)
        size, bits, n, block = head.uint(1), head.uint(1), head.uint(8), head.uint(8)
        assert size == self.element and n == math.prod(chunks) and {"page_bits": bits} == self.index.numbers
        if block == UNDEFINED:
            return
        page, n_pages = 1 << bits, -(-n >> bits)
        if n <= page:
            self.file.claim("FADB", block, 14 + n * size + 4)
            data = self.begin(self.file.summed(block, 14 + n * size + 4), b"FADB", client)
            assert data.uint(8) == self.index.address
            yield from self.elements_of(data.take(n * size), 0)
            return
        bitmap_bytes = -(-n_pages // 8)
        self.file.claim("FADB", block, 14 + bitmap_bytes + 4 + n * size + 4 * n_pages)
        data = self.begin(self.file.summed(block, 14 + bitmap_bytes + 4), b"FADB", client)
        assert data.uint(8) == self.index.address
        bitmap, at = data.take(bitmap_bytes), block + 14 + bitmap_bytes + 4
        for k in range(n_pages):
            count = min(page, n - k * page)
            if bitmap[k // 8] & 0x80 >> k % 8:
                yield from self.elements_of(self.file.summed(at, count * size + 4), k * page)
            at += count * size + 4

    def read_extensible(self):
        """And its statistics, which are counted again."""
        client, size = 3 if self.filtered else 2, self.element
        self.file.claim("EAHD", self.index.address, 72)
        head = self.begin(self.file.summed(self.index.address, 72), b"EAHD", client)
        assert head.uint(1) == size
        bits, in_index, least, blocks, page_bits = head.uints(5, 1)
        assert self.index.numbers == {"max_bits": bits, "index_block_elements": in_index, "page_bits": page_bits,
                                      "super_block_min_blocks": blocks, "data_block_min_elements": least}
        n_super_there, super_bytes, n_data_there, data_bytes, most_set, realised, address = head.uints(7, 8)
        if address == UNDEFINED:
            assert (n_super_there, super_bytes, n_data_there, data_bytes, most_set, realised) == (0,) * 6
            return
        n_super, direct = 1 + bits - log2(least), 2 * log2(blocks)
        n_block_addresses, n_super_addresses = 2 * (blocks - 1), n_super - direct
        length = 14 + in_index * size + 8 * (n_block_addresses + n_super_addresses) + 4
        self.file.claim("EAIB", address, length)
        data = self.begin(self.file.summed(address, length), b"EAIB", client)
        assert data.uint(8) == self.index.address
        counted = {"super": [0, 0], "data": [0, 0], "realised": in_index}
        last = -1
        for number, chunk in self.elements_of(data.take(in_index * size), 0):
            last = number
            yield number, chunk
        direct_blocks, supers = iter(data.uints(n_block_addresses, 8)), iter(data.uints(n_super_addresses, 8))
        offset_width = (bits + 7) // 8
        for u in range(n_super):
            n_blocks, n_elements = 1 << u // 2, least << (u + 1) // 2
            pages = n_elements >> page_bits if n_elements > 1 << page_bits else 0
            first, bitmap = in_index + least * ((1 << u) - 1), b""
            if u < direct:
                assert pages == 0
                addresses = [next(direct_blocks) for _ in range(n_blocks)]
            else:
                at = next(supers)
                if at == UNDEFINED:
                    continue
                bitmap_bytes = n_blocks * (-(-pages // 8))
                length = 14 + offset_width + bitmap_bytes + 8 * n_blocks + 4
                self.file.claim("EASB", at, length)
                block = self.begin(self.file.summed(at, length), b"EASB", client)
                assert block.uint(8) == self.index.address
                assert block.uint(offset_width) == least * ((1 << u) - 1)
                bitmap = block.take(bitmap_bytes)
                addresses = block.uints(n_blocks, 8)
                counted["super"][0] += 1
                counted["super"][1] += length
            for t, at in enumerate(addresses):
                if at == UNDEFINED:
                    continue
                begin = 14 + offset_width + 4
                whole = begin + n_elements * size + 4 * pages
                self.file.claim("EADB", at, whole)
                counted["data"][0] += 1
                counted["data"][1] += whole
                counted["realised"] += n_elements
                block = self.begin(self.file.summed(at, begin if pages else whole), b"EADB", client)
                assert block.uint(8) == self.index.address
                place = first + t * n_elements
                if not pages:
                    block.take(offset_width)
                    for number, chunk in self.elements_of(block.take(n_elements * size), place):
                        last = number
                        yield number, chunk
                page_bytes = (size << page_bits) + 4
                for page in range(pages):
                    bit = t * pages + page
                    if bitmap[bit // 8] & 0x80 >> bit % 8:
                        data = self.file.summed(at + begin + page * page_bytes, page_bytes)
                        for number, chunk in self.elements_of(data, place + (page << page_bits)):
                            last = number
                            yield number, chunk
        assert most_set > last
        assert (n_super_there, super_bytes) == tuple(counted["super"])
        assert (n_data_there, data_bytes) == tuple(counted["data"])
        assert realised == counted["realised"]

    def read_tree(self):
        """Nodes have at least as many records as the merge percent says, but for the root."""
        kind = 13 if self.filtered else 12
        self.file.claim("BTHD", self.index.address, 38)
        head = self.begin(self.file.summed(self.index.address, 38), b"BTHD", kind)
        node_size, size, depth = head.uint(4), head.uint(2), head.uint(2)
        split, merge, root, n, total = head.uint(1), head.uint(1), head.uint(8), head.uint(2), head.uint(8)
        assert size == self.element + 8 * self.rank
        if not self.file.strict:
            self.index.numbers["node_size"] = node_size
        assert self.index.numbers == {"node_size": node_size, "split_percent": split, "merge_percent": merge}
        most = [(node_size - 10) // size]
        count_width = log2(most[0]) // 8 + 1
        cumulative, total_width = [most[0]], [0]
        for d in range(1, depth + 1):
            pointer = 8 + count_width + total_width[d - 1]
            most.append((node_size - 10 - pointer) // (size + pointer))
            cumulative.append((most[d] + 1) * cumulative[-1] + most[d])
            total_width.append(log2(cumulative[d]) // 8 + 1)
        self.depth = depth

        def walk(address, d, n, is_root=False):
            assert 1 <= n <= most[d], f"{n} records in a node of {most[d]}"
            pointer = 8 + count_width + total_width[d - 1] if d else 0
            length = 6 + n * size + ((n + 1) * pointer if d else 0) + 4
            self.file.claim("BTIN" if d else "BTLF", address, node_size)
            node = self.begin(self.file.summed(address, length), b"BTIN" if d else b"BTLF", kind,
                              (0,) if self.file.strict else (0, 1))
            records = [self.take_record(node, True) for _ in range(n)]
            children = [(node.uint(8), node.uint(count_width), node.uint(total_width[d - 1]) if d > 1 else None)
                        for _ in range(n + 1)] if d else []
            found = []
            for i in range(n + 1):
                if d:
                    child, child_n, child_total = children[i]
                    below = walk(child, d - 1, child_n)
                    assert child_total in (None, len(below))
                    found += below
                if i < n:
                    found.append(records[i])
            return found

        if root == UNDEFINED:
            assert (depth, n, total) == (0, 0, 0)
            return
        found = walk(root, depth, n, True) if n else []
        places = [place for place, _ in found]
        assert len(found) == total and all(a < b for a, b in zip(places, places[1:])), "order"
        yield from found

    # ---- Chunks ----

    def undo(self, section, data, mask, size):
        for i, (number, values) in reversed(list(enumerate(self.filters[section]))):
            if mask >> i & 1:
                continue
            if number == DEFLATE:
                data = zlib.decompress(data)
            elif number == SHUFFLE:
                n = len(data) // values[0]
                bytes_of = np.frombuffer(data[:n * values[0]], "u1").reshape(values[0], n)
                data = bytes_of.T.tobytes() + data[n * values[0]:]
            elif number == FLETCHER32:
                data = data[:-4]
            elif number == NBIT:
                data = undo_nbit(data, values, size)
            elif number == SCALE_OFFSET:
                data = undo_scale_offset(data, values, size)
            else:
                raise NotImplementedError(f"filter {number}")
        return data

    def section(self, place, number):
        """Without filters and checksum."""
        chunk = self.chunks[place]
        data = self.file.read(chunk.address + chunk.offsets[number], chunk.offsets[number + 1] - chunk.offsets[number])
        is_edge = any((p + 1) * c > d for p, c, d in zip(place, self.chunk_dims, self.dims))
        if self.filtered:
            if number in self.filters and data and not (self.unfiltered_edges and is_edge):
                data = self.undo(number, data, chunk.masks[number], chunk.unfiltered[number])
            assert len(data) == chunk.unfiltered[number]
        if number == 0 and data:
            assert int.from_bytes(data[-4:], "little") == checksum(data[:-4])
            data = data[:-4]
        return data

    def defined(self, place):
        """Coordinates within the chunk of what is defined, in the order of the values."""
        data = Bytes(self.section(place, 0))
        assert data.take(3) == b"\1\0\10"
        extent = Bytes(data.take(data.uint(4)))
        version, rank, flags = extent.uints(3, 1)
        extent.take(5 if version == 1 else 1)
        assert rank == self.rank and tuple(extent.uints(rank, 8)) == self.chunk_dims
        kind, version = data.uint(4), data.uint(4)
        blocks = list({0: self.none, 1: self.points, 2: self.hyperslab, 3: self.all_of_it}[kind](data, version))
        assert data.left == 0
        for start, end in blocks:
            assert all(0 <= s <= e < c for s, e, c in zip(start, end, self.chunk_dims))
        coordinates = [point for start, end in blocks
                       for point in itertools.product(*(range(s, e + 1) for s, e in zip(start, end)))]
        assert len(set(coordinates)) == len(coordinates), "blocks lie over each other"
        return coordinates if kind == 1 else sorted(coordinates)

    def none(self, data, version):
        assert version == 1 and data.take(8) == bytes(8)
        return []

    def all_of_it(self, data, version):
        assert version == 1 and data.take(8) == bytes(8)
        return [((0,) * self.rank, tuple(c - 1 for c in self.chunk_dims))]

    def points(self, data, version):
        width = 4 if version == 1 else data.uint(1)
        assert version in (1, 2)
        if version == 1:
            data.take(8)
        assert data.uint(4) == self.rank
        for _ in range(data.uint(width)):
            point = tuple(data.uints(self.rank, width))
            yield point, point

    def hyperslab(self, data, version):
        regular, width = False, 4
        if version == 1:
            data.take(8)
        else:
            regular = data.uint(1) & 1
            width = 8 if version == 2 else data.uint(1)
            if version == 2:
                assert regular and data.uint(4) == 4 + 32 * self.rank
        assert version in (1, 2, 3) and data.uint(4) == self.rank
        if not regular:
            for _ in range(data.uint(width)):
                yield tuple(data.uints(self.rank, width)), tuple(data.uints(self.rank, width))
            return
        axes = [data.uints(4, width) for _ in range(self.rank)]
        for which in itertools.product(*(range(count) for _, _, count, _ in axes)):
            start = tuple(first + k * stride for k, (first, stride, _, _) in zip(which, axes))
            yield start, tuple(s + block - 1 for s, (_, _, _, block) in zip(start, axes))

    def elements(self):
        """What is defined in the dataset, and its value, by coordinates."""
        found = {}
        for place in self.chunks:
            points = self.defined(place)
            values = np.frombuffer(self.section(place, 1), self.dtype)
            assert len(values) == len(points) and (points or not self.file.strict)
            for point, value in zip(points, values):
                at = tuple(p * c + i for p, c, i in zip(place, self.chunk_dims, point))
                assert all(a < d for a, d in zip(at, self.dims))
                found[at] = value
        return found


# ---- Filters that count elements: where their parameters say 0 it is as many as the section has ----


class Bits:
    """Numbers of any width, the most significant bit first."""

    def __init__(self, data):
        self.number, self.left = int.from_bytes(data, "big"), 8 * len(data)

    def take(self, width):
        self.left -= width
        assert self.left >= 0
        return self.number >> self.left & (1 << width) - 1


def undo_nbit(data, values, size):
    """Of integers: parameters are their own number, whether nothing is to be done, how many elements, and the type:
    class 1, its size, order, precision and offset."""
    n_values, nothing, n, kind, item, order, precision, offset = values
    assert n_values == len(values) and kind == 1 and n in (0, size // item)
    if nothing:
        return data
    bits = Bits(data)
    return b"".join((bits.take(precision) << offset).to_bytes(item, "big" if order else "little")
                    for _ in range(size // item))


def undo_scale_offset(data, values, size):
    """Of integers: the bits of each and the smallest come first, in 21 bytes."""
    assert len(values) == 20 and values[0] == 2 and values[3] == 0
    n, item, order = values[2], values[4], "big" if values[6] else "little"
    signed = bool(values[5])
    assert n in (0, size // item)
    width, value_bytes = int.from_bytes(data[:4], "little"), data[4]
    smallest = int.from_bytes(data[5:5 + value_bytes], "little")
    smallest -= 1 << 64 if signed and smallest >> 63 else 0
    fill = int.from_bytes(struct.pack("<2I", *values[8:10])[:item], "little", signed=signed)
    bits, out = Bits(data[21:]), []
    for _ in range(size // item):
        if width == 8 * item:
            raise NotImplementedError
        number = bits.take(width)
        is_fill = values[7] and number == (1 << width) - 1
        number = fill if is_fill else smallest + number
        out.append((number % (1 << 8 * item)).to_bytes(item, order))
    return b"".join(out)
