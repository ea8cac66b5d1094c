"""HDF5 files with old-style groups, written byte by byte: groups may share one heap of names and its nodes."""
import struct

UNDEFINED = 2**64 - 1
SOFT = 2


class File:
    """leaf_k: half as many links as a node of a group has room for."""

    def __init__(self, leaf_k):
        self.leaf_k = leaf_k
        self.bytes = bytearray(96)

    def put(self, data):
        self.bytes += bytes(-len(self.bytes) % 8)
        at = len(self.bytes)
        self.bytes += data
        return at

    def heap(self, data):
        data += bytes(-len(data) % 8)
        at = self.put(data)
        return self.put(b"HEAP\0\0\0\0" + struct.pack("<QQQ", len(data), 1, at))

    def node(self, entries):
        """Of (place of the name in the heap, address), or of (the same, None, place of a soft link's target)."""
        data = b"SNOD\1\0" + struct.pack("<H", len(entries))
        for name, address, *target in entries:
            if target:
                data += struct.pack("<QQIII12x", name, UNDEFINED, SOFT, 0, *target)
            else:
                data += struct.pack("<QQII16x", name, address, 0, 0)
        return self.put(data)

    def header(self, messages):
        body = b"".join(struct.pack("<HHB3x", kind, len(data), 0) + data for kind, data in messages)
        return self.put(struct.pack("<BBHII4x", 1, 0, len(messages), 1, len(body)) + body)

    def group(self, keys, nodes, heap):
        """At most two nodes, whose names lie between the keys."""
        tree = b"TREE\0\0" + struct.pack("<HQQQ", len(nodes), UNDEFINED, UNDEFINED, keys[0])
        tree += b"".join(struct.pack("<QQ", *pair) for pair in zip(nodes, keys[1:]))
        tree += bytes(16 * (2 - len(nodes)))
        return self.header([(0x11, struct.pack("<QQ", self.put(tree), heap))])

    def dataset(self, dims=(4,)):
        """Of bytes, none of which is stored."""
        space = struct.pack(f"<BBB5x{len(dims)}Q", 1, len(dims), 0, *dims)
        datatype = struct.pack("<BBBBIHH4x", 0x10, 0, 0, 0, 1, 0, 8)
        layout = struct.pack("<BBQQ6x", 3, 1, UNDEFINED, dims[0])
        return self.header([(1, space), (3, datatype), (5, bytes([2, 2, 2, 0, 0, 0, 0, 0])), (8, layout)])

    def save(self, path, root):
        self.bytes += bytes(8 + 2 * self.leaf_k * 40 + 64)
        self.bytes[:96] = (b"\x89HDF\r\n\x1a\n" + bytes([0, 0, 0, 0, 0, 8, 8, 0])
                           + struct.pack("<HHI", self.leaf_k, 1, 0)
                           + struct.pack("<QQQQ", 0, UNDEFINED, len(self.bytes), UNDEFINED)
                           + struct.pack("<QQII16x", 0, root, 0, 0))
        path.write_bytes(self.bytes)
        return path
