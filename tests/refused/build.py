"""Small sound files with two sparse datasets, written byte by byte: /bad, of which a refused file
has one thing wrong, and /other, which is to be read all the same. File remembers where everything
is, so that it can be changed, and repairs the checksum around a change."""
import struct
import zlib

UNDEFINED = 2**64 - 1
VALUES = 1, 5, 7  # of the elements 1 to 3 of a chunk of five


def lookup3(data):
    """Bob Jenkins' hash, the checksum of everything."""
    mask = 0xFFFFFFFF
    a = b = c = (0xDEADBEEF + len(data)) & mask

    def rotate(x, k):
        return (x << k | x >> (32 - k)) & mask

    words = [w for w, in struct.iter_unpack("<I", data + bytes(-len(data) % 12))]
    for i in range(0, len(words) - 3, 3):
        a, b, c = (a + words[i]) & mask, (b + words[i + 1]) & mask, (c + words[i + 2]) & mask
        for k1, k2, k3 in ((4, 6, 8), (16, 19, 4)):
            a = (a - c) & mask ^ rotate(c, k1)
            c = (c + b) & mask
            b = (b - a) & mask ^ rotate(a, k2)
            a = (a + c) & mask
            c = (c - b) & mask ^ rotate(b, k3)
            b = (b + a) & mask
    a, b, c = (a + words[-3]) & mask, (b + words[-2]) & mask, (c + words[-1]) & mask
    for k1, k2, k3 in ((14, 11, 25), (16, 4, 14)):
        c = ((c ^ b) - rotate(b, k1)) & mask
        a = ((a ^ c) - rotate(c, k2)) & mask
        b = ((b ^ a) - rotate(a, k3)) & mask
    return ((c ^ b) - rotate(b, 24)) & mask


def summed(data):
    return data + struct.pack("<I", lookup3(data))


def packed(*numbers):
    return struct.pack(f"<{len(numbers)}Q", *numbers)


# ---- Selections ----

def extent(*dims):
    head = struct.pack("<BBBI", 1, 0, 8, 8 + 16 * len(dims))
    return head + bytes([1, len(dims), 1, 0, 0, 0, 0, 0]) + packed(*dims) + packed(*dims)


ALL = struct.pack("<IIII", 3, 1, 0, 0)


def blocks(*pairs, n=None):
    """Intervals of one dimension, their ends included."""
    body = b"".join(struct.pack("<II", *pair) for pair in pairs)
    return struct.pack("<IIIIII", 2, 1, 0, 8 + len(body), 1, len(pairs) if n is None else n) + body


def points(*positions, n=None):
    body = b"".join(struct.pack("<I", position) for position in positions)
    n = len(positions) if n is None else n
    return struct.pack("<IIIIII", 1, 1, 0, 8 + len(body), 1, n) + body


def regular(start, stride, count, block):
    return struct.pack("<IIBBI", 2, 3, 1, 2, 1) + struct.pack("<HHHH", start, stride, count, block)


THREE = extent(5) + blocks((1, 3))


def int32(*values):
    return struct.pack(f"<{len(values)}i", *values)


# ---- Files ----

INT32 = bytes([0x10, 8, 0, 0, 4, 0, 0, 0, 0, 0, 32, 0])


def dataspace(dims, max_dims):
    return bytes([2, len(dims), 1, 1]) + packed(*dims) + packed(*max_dims)


def layout(chunk, item, index, flags=0, composition=bytes([8, 2, 1, 0])):
    """index: kind, parameters, address."""
    width = (item.bit_length() + 7) // 8
    dims = b"".join(n.to_bytes(width, "little") for n in (*chunk, item))
    return bytes([5, 4, 0, 0, 0, flags, len(chunk) + 1, width]) + dims + composition + index


def section_filters(*lists):
    """Pairs of section and filters, each an id and its parameters, or (id, name) and these."""
    out = bytes([1, len(lists)])
    for section, filters in lists:
        described = b""
        for kind, *values in filters:
            kind, name = kind if isinstance(kind, tuple) else (kind, b"")
            described += struct.pack("<H", kind) + (struct.pack("<H", len(name)) if kind >= 256 else b"")
            described += struct.pack("<HH", 0, len(values)) + name + struct.pack(f"<{len(values)}I", *values)
        out += bytes([section, len(filters)]) + struct.pack("<H", len(described)) + described
    return out


class File:
    def __init__(self):
        self.content = bytearray(48)
        self.pieces = {}  # name: address, bytes
        self.sums = []  # begin, end of what ends in a checksum

    def add(self, name, data, is_summed=False):
        address = len(self.content)
        data = summed(data) if is_summed else data
        self.pieces[name] = address, len(data)
        self.content += data
        if is_summed:
            self.sums.append((address, len(self.content)))
        return address

    def header(self, name, *messages):
        """An object header; a message is (name, type, data) and becomes a piece name.message."""
        begin = len(self.content)
        body = b""
        for message, kind, data in messages:
            self.pieces[f"{name}.{message}"] = begin + 10 + len(body) + 4, len(data)
            body += struct.pack("<BHB", kind, len(data), 0) + data
        return self.add(name, b"OHDR\2\2" + struct.pack("<I", len(body)) + body, True)

    def dataset(self, name, dims, max_dims, layout_message, *more, datatype=INT32):
        return self.header(name, ("dataspace", 1, dataspace(dims, max_dims)),
                           ("datatype", 3, datatype), ("fill", 5, b"\3\x0b"),
                           ("layout", 8, layout_message), *more)

    def end(self, bad):
        chunk = self.add("other chunk", summed(THREE) + int32(*VALUES))
        single = b"\1" + struct.pack("<H", 79) + packed(67, chunk)
        other = self.dataset("other", (5,), (5,), layout((5,), 4, single))
        root = self.header("root", ("links", 2, b"\0\0" + packed(UNDEFINED, UNDEFINED)),
                           ("group", 10, b"\0\0"),
                           *((name, 6, b"\1\0" + bytes([len(name)]) + name.encode() + packed(address))
                             for name, address in (("bad", bad), ("other", other))))
        begin = b"\x89HDF\r\n\x1a\n\3\x08\x08\0" + packed(0, UNDEFINED, len(self.content), root)
        self.content[:48] = summed(begin)
        self.sums.append((0, 48))
        self.pieces["superblock"] = 0, 48
        return self

    def put(self, name, offset, data):
        """Changes bytes of a piece; the checksum around it is repaired."""
        at = self.pieces[name][0] + offset
        self.content[at:at + len(data)] = data
        for begin, end in self.sums:
            if begin <= at < end - 4:
                self.content[begin:end] = summed(bytes(self.content[begin:end - 4]))
        return self

    def spoil(self, name, offset=-1):
        """Changes a byte and repairs nothing."""
        address, n = self.pieces[name]
        self.content[address + offset % n] ^= 0x55
        return self

    def address(self, name):
        return self.pieces[name][0]


# ---- The kinds of /bad: five 32-bit integers in a chunk, of which 1 to 3 are 1, 5 and 7 ----

def chunk_of(file, name, selection=THREE, values=int32(*VALUES)):
    """Stores a chunk without filters; address, size, offset of section 1."""
    first = summed(selection)
    address = file.add(name, first + values)
    return address, len(first) + len(values), len(first)


def entry(chunk):
    address, size, values_at = chunk
    return packed(address) + struct.pack("<H", size) + packed(values_at)


def single(item=4, datatype=INT32, **chunk):
    file = File()
    address, size, values_at = chunk_of(file, "chunk", **chunk)
    size_bytes = 1 + ((5 * item).bit_length() + 7) // 8
    index = b"\1" + size.to_bytes(size_bytes, "little") + packed(values_at, address)
    return file.end(file.dataset("bad", (5,), (5,), layout((5,), item, index), datatype=datatype))


def filtered(selection=THREE, values=int32(*VALUES), stored=None, sizes=None,
             filters=((0, [(1, 6)]), (1, [(2, 4), (1, 6)])), masks=(0, 0b01)):
    """Both sections are deflated; shuffle was left out."""
    file = File()
    plain = [summed(selection), values]
    stored = stored or [zlib.compress(section, 6) for section in plain]
    address = file.add("chunk", b"".join(stored))
    index = b"\1" + struct.pack("<H", sum(map(len, stored))) + packed(len(stored[0])) \
        + packed(*(sizes or map(len, plain))) + struct.pack("<II", *masks) + packed(address)
    return file.end(file.dataset("bad", (5,), (5,), layout((5,), 4, index, 2),
                                 ("filters", 0x19, section_filters(*filters))))


def fixed_array(page_bits=10):
    """Four chunks, of which 0 and 2 are stored; pages of 2^page_bits elements."""
    file = File()
    chunks = [entry(chunk_of(file, f"chunk {i}")) if i in (0, 2)
              else packed(UNDEFINED) + bytes(10) for i in range(4)]
    header = len(file.content)
    block = header + 28
    file.add("index", b"FAHD" + bytes([1, 2, 18, page_bits]) + packed(4, block), True)
    begin = b"FADB" + bytes([1, 2]) + packed(header)
    if 2**page_bits >= 4:
        file.add("block", begin + b"".join(chunks), True)
    else:
        file.add("block", begin + b"\xc0", True)
        file.add("page 0", b"".join(chunks[:2]), True)
        file.add("page 1", b"".join(chunks[2:]), True)
    index = bytes([3, page_bits]) + packed(header)
    return file.end(file.dataset("bad", (20,), (20,), layout((5,), 4, index)))


def extensible_array():
    """Chunks 0, 1 and 7, one in the index block, in a data block, under a super block."""
    file = File()
    nothing = packed(UNDEFINED) + bytes(10)
    chunks = [entry(chunk_of(file, f"chunk {i}")) for i in (0, 1, 7)]
    header = len(file.content)
    begin = bytes([1, 2]) + packed(header)
    file.add("index", b"EAHD" + bytes([1, 2, 18, 8, 1, 2, 2, 10])
             + packed(1, 35, 2, 55 + 91, 8, 7, header + 72), True)
    index_block = 14 + 18 + 8 * 8 + 4
    data_block = header + 72 + index_block
    super_block = data_block + 55
    file.add("index block", b"EAIB" + begin + chunks[0] + packed(data_block, UNDEFINED)
             + packed(super_block, *[UNDEFINED] * 5), True)
    file.add("data block", b"EADB" + begin + b"\0" + chunks[1] + nothing, True)
    file.add("super block", b"EASB" + begin + b"\6" + packed(super_block + 35, UNDEFINED), True)
    file.add("far block", b"EADB" + begin + b"\6" + chunks[2] + 3 * nothing, True)
    index = bytes([4, 8, 1, 2, 2, 10]) + packed(header)
    return file.end(file.dataset("bad", (40,), (UNDEFINED,), layout((5,), 4, index)))


NODE = 112  # bytes: three records in a leaf, two in an internal node


def tree():
    """Three full chunks of 2 x 2, in a leaf, in the root and in another leaf."""
    file = File()
    records = []
    for i, place in enumerate(((0, 0), (0, 1), (1, 0))):
        address, size, values_at = chunk_of(file, f"chunk {i}", extent(2, 2) + ALL, int32(1, 2, 3, 4))
        records.append(packed(address) + struct.pack("<H", size) + packed(*place, values_at))
    header = len(file.content)
    root, left, right = (header + 38 + i * NODE for i in range(3))
    file.add("index", b"BTHD\1\x0c" + struct.pack("<IHHBB", NODE, 34, 1, 100, 40) + packed(root)
             + struct.pack("<H", 1) + packed(3), True)
    for name, node in (("root node", b"BTIN\0\x0c" + records[1] + packed(left) + b"\1"
                        + packed(right) + b"\1"),
                       ("left leaf", b"BTLF\0\x0c" + records[0]),
                       ("right leaf", b"BTLF\0\x0c" + records[2])):
        file.add(name, node, True)
        file.content += bytes(NODE - len(node) - 4)
    index = bytes([5]) + struct.pack("<IBB", NODE, 100, 40) + packed(header)
    return file.end(file.dataset("bad", (4, 4), (UNDEFINED, UNDEFINED), layout((2, 2), 4, index)))


def variable_length(descriptors=2, spoiled=False, is_summed=True, heap=None):
    """Variable-length integers in three sections; elements 0 and 1 of three are defined."""
    file = File()
    kind = bytes([0x19, 0, 0, 0, 16, 0, 0, 0]) + INT32
    first = summed(extent(3) + blocks((0, 1)))
    second = bytearray(summed(bytes(16 * descriptors)) if is_summed else bytes(16 * descriptors))
    if spoiled:
        second[-1] ^= 0x55
    heap = summed(b"HGLS" + struct.pack("<II", 1, 0)) if heap is None else heap
    address = file.add("chunk", first + second + heap)
    index = b"\1" + packed(len(first + second + heap), len(first), len(first + second), address)
    message = layout((3,), 16, index, composition=bytes([8, 3, 3, 0, 1, 2]))
    return file.end(file.dataset("bad", (3,), (3,), message, datatype=kind))


def continued():
    """The messages go on in a second block, and in a third."""
    file = File()
    address, size, values_at = chunk_of(file, "chunk")
    index = b"\1" + struct.pack("<H", size) + packed(values_at, address)

    def message(kind, data):
        return struct.pack("<BHB", kind, len(data), 0) + data

    third = b"OCHK" + message(8, layout((5,), 4, index))
    third_at = file.add("third", third, True)
    second = b"OCHK" + message(3, INT32) + message(16, packed(third_at, len(third) + 4))
    second_at = file.add("second", second, True)
    header = file.header("bad", ("dataspace", 1, dataspace((5,), (5,))), ("fill", 5, b"\3\x0b"),
                         ("next", 16, packed(second_at, len(second) + 4)))
    return file.end(header)


def empty():
    """A chunk without defined elements, which is stored in no bytes."""
    file = File()
    index = b"\1" + bytes(2) + packed(0, file.add("chunk", b""))
    return file.end(file.dataset("bad", (5,), (5,), layout((5,), 4, index)))


def left_out(*masks):
    """A fixed array; the values went through a filter that nobody has and deflate, but for those
    that the mask of their chunk names."""
    file = File()
    plain = [summed(THREE), int32(*VALUES)]
    stored = plain[0], zlib.compress(plain[1], 6)
    entries = b""
    for i, mask in enumerate(masks):
        address = file.add(f"chunk {i}", b"".join(stored))
        entries += packed(address) + struct.pack("<H", sum(map(len, stored))) \
            + packed(len(stored[0]), *map(len, plain)) + struct.pack("<II", 0, mask)
    header = len(file.content)
    file.add("index", b"FAHD" + bytes([1, 3, 42, 10]) + packed(len(masks), header + 28), True)
    file.add("block", b"FADB" + bytes([1, 3]) + packed(header) + entries, True)
    dims = (5 * len(masks),)
    return file.end(file.dataset("bad", dims, dims, layout((5,), 4, bytes([3, 10]) + packed(header)),
                                 ("filters", 0x19, section_filters((1, [(300,), (1, 6)])))))


# ---- Kinds that no program is known to write, or that are only designs ----

def sectioned(offset_size_bytes, index=None):
    """The "sectioned storage" of the RFC's version 22, which drew the offset size in several widths."""
    file = File()
    address, size, values_at = chunk_of(file, "chunk")
    index = index or b"\1" + struct.pack("<H", size) + packed(values_at, address)
    begin = bytes([5, 4, 0, 1, 0, 0, 2, 1, 0]) + (8).to_bytes(offset_size_bytes, "little")
    return file.end(file.dataset("bad", (5,), (5,), begin + bytes([0, 2, 1, 5, 4]) + index))


def dense_variable_length(elements=((4, 2), (0, 0), (6, 3)), heap=b"abcde"):
    """Strings in two sections: all three elements, by offset and length, and what they lead to."""
    file = File()
    kind = bytes([0x19, 1, 0, 0, 16, 0, 0, 0, 0x13, 0, 0, 0, 1, 0, 0, 0])
    values, heap = summed(packed(*(number for element in elements for number in element))), summed(bytes(4) + heap)
    address = file.add("chunk", values + heap)
    index = b"\1" + packed(len(values + heap), len(values), address)
    message = layout((3,), 16, index, composition=bytes([8, 2, 2, 0, 1]))
    return file.end(file.dataset("bad", (3,), (3,), message, datatype=kind))


def values_first():
    """The filters of section 1 are listed before those of section 0."""
    return filtered(filters=((1, [(2, 4), (1, 6)]), (0, [(1, 6)])))


SOUND = {"single": single, "empty": empty, "filtered": filtered, "fixed_array": fixed_array,
         "pages": lambda: fixed_array(1), "extensible_array": extensible_array, "tree": tree,
         "variable_length": variable_length, "dense_variable_length": dense_variable_length, "continued": continued,
         **{f"sectioned_{width}": lambda width=width: sectioned(width) for width in (1, 4, 8)},
         "sectioned_empty": lambda: sectioned(8, bytes([3, 10]) + packed(UNDEFINED)),
         "values_first": values_first, "left_out": lambda: left_out(1, 1)}
