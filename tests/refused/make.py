#!/usr/bin/python3
"""Makes the files of this folder, each a sound one of build.py with one thing wrong, and table.txt:
for each file where it is refused, and words of the reason that is given.

  file      it cannot be opened at all
  dataset   /bad cannot be opened, all else can be read
  elements  /bad can be opened, but not all of its elements be read
  check     what is read may be wrong values, and only sparsectl check can tell
  unknown   /bad cannot be opened, as it is stored in a way that is not known: it may be sound
  missing   it may be sound, too: not all of its elements can be read for want of a filter

make.py [FOLDER] writes them there instead."""
import pathlib
import struct
import sys
import zlib

from build import (ALL, SOUND, THREE, UNDEFINED, blocks, continued, dense_variable_length, extensible_array,
                   extent, filtered, fixed_array, int32, left_out, packed, points, regular, sectioned, single,
                   summed, tree, variable_length)

refused = []


def refuse(name, where, words, file):
    refused.append((name, where, words, file))


def short(number):
    return struct.pack("<H", number)


# ---- Superblock ----
refuse("superblock_checksum", "file", "superblock", single().spoil("superblock", 20))
refuse("superblock_version", "file", "superblock", single().put("superblock", 8, b"\4"))
refuse("superblock_offset_size", "file", "superblock", single().put("superblock", 9, b"\7"))
refuse("superblock_root", "file", "", single().put("superblock", 36, packed(1 << 40)))
cut = single()
del cut.content[-1:]
refuse("cut_short", "file", "truncated", cut)

# ---- Object header ----
refuse("header_checksum", "dataset", "object header at address 127: wrong checksum",
       single().spoil("bad"))
refuse("header_signature", "dataset", "no signature OHDR", single().put("bad", 0, b"OHDX"))
refuse("header_version", "dataset", "object header at address 127: version 3",
       single().put("bad", 4, b"\3"))
refuse("header_flags", "dataset", "object header at address 127: flags", single().put("bad", 5, b"\xc2"))
refuse("header_size", "dataset", "reach beyond the end of the file",
       single().put("bad", 6, struct.pack("<I", 100000)))
refuse("header_size_absurd", "dataset", "size of block 0",
       single().put("bad", 6, struct.pack("<I", 2**32 - 1)))
refuse("message_size", "dataset", "type 0x0008", single().put("bad.layout", -3, short(2000)))
refuse("no_datatype", "dataset", "it has no datatype message", single().put("bad.datatype", -4, b"\0"))
refuse("continuation_outside", "dataset", "reach beyond the end of the file",
       continued().put("bad.next", 0, packed(1 << 40)))
refuse("continuation_undefined", "dataset", "names no continuation block",
       continued().put("bad.next", 0, packed(UNDEFINED)))
refuse("continuation_length", "dataset", "length 7", continued().put("bad.next", 8, packed(7)))
refuse("continuation_signature", "dataset", "no signature OCHK", continued().put("second", 0, b"OHCK"))
refuse("continuation_checksum", "dataset", "wrong checksum", continued().spoil("second"))
loop = continued()
address, n = loop.pieces["second"]
refuse("continuation_loop", "dataset", "part of the header twice",
       loop.put("second", n - 20, packed(address, n)))
loop = continued()
refuse("continuation_to_header", "dataset", "part of the header twice",
       loop.put("bad.next", 0, packed(*loop.pieces["bad"])))

# ---- Dataspace, datatype, fill value ----
refuse("dataspace_version", "dataset", "version", single().put("bad.dataspace", 0, b"\7"))
refuse("dataspace_rank", "dataset", "dataspace message", single().put("bad.dataspace", 1, b"\x21"))
refuse("dataspace_other_rank", "dataset", "rank 1, but the dataspace has 0",
       single().put("bad.dataspace", 0, b"\2\0\0\0"))
refuse("dataspace_dims", "dataset", "max dims less than dims", single().put("bad.dataspace", 4, packed(6)))
refuse("dataspace_null", "dataset", "dataspace", single().put("bad.dataspace", 3, b"\2"))
refuse("datatype_version", "dataset", "datatype", single().put("bad.datatype", 0, b"\xf0"))
refuse("datatype_class", "dataset", "datatype", single().put("bad.datatype", 0, b"\x1b"))
refuse("datatype_size", "dataset", "element size 4, but that of the datatype is 8",
       single().put("bad.datatype", 4, b"\x08"))
refuse("datatype_nothing", "dataset", "datatype", single().put("bad.datatype", 4, b"\0"))
refuse("datatype_cut", "dataset", "datatype: it is cut short",
       single().put("bad.datatype", 0, bytes([0x16, 1])))
refuse("datatype_bits", "dataset", "32 bits from bit 1 on, of 4 bytes",
       single().put("bad.datatype", 8, b"\1"))
refuse("datatype_float", "dataset", "a float whose parts lie outside of it",
       single(datatype=bytes([0x11, 0, 31, 0, 4, 0, 0, 0, 0, 0, 32, 0, 23, 10, 0, 23, 127, 0, 0, 0])))
refuse("datatype_enumeration", "dataset", "an enumeration of what are no integers",
       single(datatype=bytes([0x38, 0, 0, 0, 4, 0, 0, 0]) + bytes([0x13, 0, 0, 0, 4, 0, 0, 0])))
refuse("datatype_absurd", "dataset", "its elements have too many bytes",
       single(datatype=bytes([0x15, 0, 0, 0, 0, 0, 0, 0x80]), item=2**31))
refuse("fill_version", "dataset", "fill value", single().put("bad.fill", 0, b"\x09"))
refuse("fill_size", "dataset", "fill value", single().put("bad.fill", 1, b"\x2b"))

# ---- Data layout ----
refuse("layout_property_version", "dataset", "structured chunk property version",
       single().put("bad.layout", 2, b"\1"))
refuse("layout_flags", "dataset", "flags", single().put("bad.layout", 5, b"\4"))
refuse("layout_filters_flag", "dataset", "flag of filters", filtered().put("bad.filters", -4, b"\0"))
refuse("layout_dimensionality", "dataset", "dimensionality", single().put("bad.layout", 6, b"\1"))
refuse("layout_rank", "dataset", "dimensionality", single().put("bad.layout", 6, b"\x22"))
refuse("layout_dimension_size", "dataset", "dimension size encoded length",
       single().put("bad.layout", 7, b"\x09"))
refuse("layout_chunk_dim", "dataset", "chunk dimension", single().put("bad.layout", 8, b"\0"))
refuse("layout_element_size", "dataset", "element size", single().put("bad.layout", 9, b"\x05"))
refuse("layout_sections", "dataset", "no sections and chunk index", single().put("bad.layout", 11, b"\4"))
refuse("layout_metadata_sections", "dataset", "no sections and chunk index",
       single().put("bad.layout", 12, b"\3"))
refuse("layout_index", "dataset", "no sections and chunk index", single().put("bad.layout", 14, b"\2"))
refuse("layout_page_bits", "dataset", "page bits", fixed_array().put("bad.layout", 15, b"\x20"))
refuse("layout_array_bits", "dataset", "bits of the extensible array",
       extensible_array().put("bad.layout", 15, b"\x21"))
refuse("layout_array_parameter", "dataset", "parameter of the extensible array",
       extensible_array().put("bad.layout", 17, b"\0"))
refuse("layout_sectioned_offset_size", "dataset", "chunk dimension 0",
       sectioned(1).put("bad.layout", 9, b"\5"))
refuse("layout_sectioned_sections", "dataset", "chunk dimension 0",
       sectioned(1).put("bad.layout", 6, b"\4"))
refuse("layout_split_percent", "dataset", "split percent", tree().put("bad.layout", 20, b"\x65"))
refuse("single_chunk_too_small", "dataset", "smaller than the max dims",
       single().put("bad.layout", 8, b"\4"))
refuse("three_sections_of_integers", "dataset", "sections of variable-length data, but it has none",
       variable_length().put("bad.datatype", 0, bytes([0x14, 0, 0, 0, 16, 0, 0, 0, 0, 0, 128, 0])))


refuse("dense_sections_of_integers", "dataset", "sections of variable-length data, but it has none",
       dense_variable_length().put("bad.datatype", 0, bytes([0x14, 0, 0, 0, 16, 0, 0, 0, 0, 0, 128, 0])))
refuse("dense_sections_sparse", "dataset", "no section for selections, but structured chunk type 1",
       dense_variable_length().put("bad.layout", 3, b"\1"))

# ---- Kinds of structured chunks that are not known ----
refuse("layout_type", "unknown",
       "unsupported: data layout message at address 187: structured chunk type 0x0004",
       single().put("bad.layout", 3, b"\4"))
refuse("layout_type_last_bit", "unknown", "structured chunk type 0x8000",
       tree().put("bad.layout", 4, b"\x80"))
refuse("layout_sectioned_type", "unknown", "structured chunk type 0x0101",
       sectioned(1).put("bad.layout", 4, b"\1"))
for width, storage in zip((1, 4, 8), (4, 1, 255)):
    refuse(f"layout_sectioned_storage_{storage}", "unknown", f"type of storage {storage}",
           sectioned(width).put("bad.layout", 5, bytes([storage])))

# ---- Filters ----
for name, words, offset, data in (
        ("version", "section filter message", 0, b"\5"),
        ("sections", "number of sections", 1, b"\3"),
        ("section", "section", 2, b"\7"),
        ("count", "number of filters", 3, b"\x21"),
        ("bytes", "filter", 4, b"\x40")):
    refuse(f"filters_{name}", "dataset", words, filtered().put("bad.filters", offset, data))
refuse("filters_twice", "dataset", "section", filtered(filters=((1, [(1, 6)]), (1, [(1, 6)]))))

# ---- Where chunks are ----
refuse("chunk_outside", "dataset", "beyond the end of the file",
       single().put("bad.layout", 25, packed(1 << 40)))
refuse("chunk_size", "dataset", "beyond the end of the file",
       single().put("bad.layout", 15, short(0xFFFF)))
refuse("section_outside", "dataset", "offsets of its sections are out of order",
       single().put("bad.layout", 17, packed(80)))
refuse("unfiltered_size", "dataset", "unfiltered size of a section is more than it can be",
       filtered(sizes=(67, 24)))
refuse("selection_size_absurd", "dataset", "unfiltered size of a section is more than it can be",
       filtered(sizes=(1 << 50, 12)))
refuse("chunks_overlap", "check", "overlaps the chunk",
       fixed_array().put("block", 14 + 36, packed(48 + 8)))
both = fixed_array()
refuse("chunk_twice", "check", "overlaps the chunk",
       both.put("block", 14 + 36, packed(both.address("chunk 0"))))
other = single()
refuse("chunk_of_another", "check", "overlaps the chunk",
       other.put("bad.layout", 25, packed(other.address("other chunk"))))

# ---- Fixed array ----
for name, words, piece, offset, data in (
        ("signature", "no signature FAHD", "index", 0, b"XAHD"),
        ("version", "version", "index", 4, b"\2"),
        ("type", "type", "index", 5, b"\1"),
        ("element_size", "element size", "index", 6, b"\x13"),
        ("page_bits", "page bits", "index", 7, b"\x20"),
        ("elements", "elements", "index", 8, packed(5)),
        ("elements_absurd", "elements", "index", 8, packed(1 << 60)),
        ("block_address", "beyond the end of the file", "index", 16, packed(1 << 40))):
    refuse(f"fixed_array_{name}", "dataset", words, fixed_array().put(piece, offset, data))
refuse("fixed_array_checksum", "dataset", "fixed array header at address 206: wrong checksum",
       fixed_array().spoil("index"))
refuse("fixed_array_block_checksum", "dataset", "wrong checksum", fixed_array().spoil("block"))
refuse("fixed_array_block_signature", "dataset", "no signature FADB",
       fixed_array().put("block", 0, b"FADX"))
refuse("fixed_array_block_of_another", "dataset", "belongs to another array",
       fixed_array().put("block", 6, packed(48)))
refuse("fixed_array_page_checksum", "elements", "wrong checksum", fixed_array(1).spoil("page 1"))
refuse("fixed_array_bitmap_checksum", "dataset", "wrong checksum", fixed_array(1).spoil("block"))
refuse("fixed_array_chunk_outside", "elements", "beyond the end of the file",
       fixed_array().put("block", 14 + 36, packed(1 << 40)))

# ---- Extensible array ----
for name, words, offset, data in (
        ("signature", "no signature EAHD", 0, b"EAHX"),
        ("version", "version", 4, b"\2"),
        ("type", "type", 5, b"\3"),
        ("element_size", "element size", 6, b"\x11"),
        ("bits", "extensible array", 7, b"\x40"),
        ("block_elements", "extensible array", 9, b"\3"),
        ("block_address", "beyond the end of the file", 60, packed(1 << 40))):
    refuse(f"extensible_array_{name}", "dataset", words, extensible_array().put("index", offset, data))
refuse("extensible_array_checksum", "dataset", "wrong checksum", extensible_array().spoil("index"))
for piece, signature in (("data block", b"EADB"), ("super block", b"EASB"), ("far block", b"EADB")):
    name = "extensible_array_" + piece.replace(" ", "_")
    refuse(f"{name}_checksum", "elements", "wrong checksum", extensible_array().spoil(piece))
    refuse(f"{name}_signature", "elements", "no signature " + signature.decode(),
           extensible_array().put(piece, 0, b"EAXX"))
    refuse(f"{name}_of_another", "elements", "belongs to another array",
           extensible_array().put(piece, 6, packed(48)))
refuse("extensible_array_index_block_checksum", "dataset", "wrong checksum",
       extensible_array().spoil("index block"))
refuse("extensible_array_block_outside", "elements", "beyond the end of the file",
       extensible_array().put("index block", 14 + 18, packed(1 << 40)))
refuse("extensible_array_super_block_outside", "elements", "beyond the end of the file",
       extensible_array().put("index block", 14 + 18 + 16, packed(1 << 40)))
loop = extensible_array()
refuse("extensible_array_loop", "elements", "no signature EADB",
       loop.put("super block", 15, packed(loop.address("super block"))))

# ---- Version 2 B-tree ----
for name, words, offset, data in (
        ("signature", "no signature BTHD", 0, b"BTHX"),
        ("version", "version", 4, b"\2"),
        ("type", "type", 5, b"\x0d"),
        ("node_size", "node size", 6, struct.pack("<I", 16)),
        ("node_size_absurd", "node size", 6, struct.pack("<I", 2**32 - 1)),
        ("record_size", "record", 10, short(35)),
        ("depth", "version 2 B-tree", 12, short(60000)),
        ("root_address", "beyond the end of the file", 16, packed(1 << 40)),
        ("root_records", "version 2 B-tree", 24, short(9)),
        ("total", "records in and under it", 26, packed(4)),
        ("total_absurd", "version 2 B-tree", 26, packed(1 << 60))):
    refuse(f"tree_{name}", "dataset", words, tree().put("index", offset, data))
refuse("tree_checksum", "dataset", "wrong checksum", tree().spoil("index"))
refuse("tree_root_checksum", "dataset", "wrong checksum", tree().spoil("root node"))
refuse("tree_root_signature", "dataset", "no signature BTIN", tree().put("root node", 0, b"BTXX"))
refuse("tree_leaf_checksum", "elements", "wrong checksum", tree().spoil("left leaf"))
refuse("tree_leaf_signature", "elements", "no signature BTLF", tree().put("left leaf", 0, b"BTXX"))
refuse("tree_leaf_outside", "elements", "beyond the end of the file",
       tree().put("root node", 40, packed(1 << 40)))
refuse("tree_leaf_records", "dataset", "pointer to child 0", tree().put("root node", 48, b"\4"))
loop = tree()
refuse("tree_loop", "elements", "no signature BTLF",
       loop.put("root node", 40, packed(loop.address("root node"))))
twice = tree()
refuse("tree_leaf_twice", "check", "is not behind that of a node before",
       twice.put("root node", 49, packed(twice.address("left leaf"))))
refuse("tree_out_of_order", "check", "is not behind that of a node before",
       tree().put("left leaf", 16, packed(1, 1)))
refuse("tree_chunk_outside", "elements", "beyond the end of the file",
       tree().put("left leaf", 6, packed(1 << 40)))

# ---- Selections ----
refuse("selection_checksum", "elements", "the checksum of its selection section is wrong",
       single().spoil("chunk", 20))
for name, words, selection in (
        ("cut", "dims of extent", THREE[:20]),
        ("encode_version", "encode version", b"\1\7" + THREE[2:]),
        ("extent_rank", "rank of extent", extent(5, 1) + blocks((1, 3))),
        ("extent_dims", "dims of extent", extent(6) + blocks((1, 3))),
        ("kind", "kind of selection", extent(5) + struct.pack("<IIII", 9, 1, 0, 0)),
        ("version", "version of selection", extent(5) + struct.pack("<IIII", 2, 9, 0, 0)),
        ("rank", "rank of selection", extent(5) + blocks((1, 3)).replace(
            struct.pack("<II", 1, 1), struct.pack("<II", 2, 1))),
        ("out_of_bounds", "block", extent(5) + blocks((1, 5))),
        ("backwards", "block", extent(5) + blocks((3, 1))),
        ("blocks_missing", "number of blocks", extent(5) + blocks((1, 3), n=2)),
        ("blocks_absurd", "number of blocks", extent(5) + blocks((1, 3), n=2**32 - 1)),
        ("bytes_behind", "of selection", extent(5) + ALL + b"\0"),
        ("points_out_of_bounds", "point", extent(5) + points(1, 2, 5)),
        ("points_absurd", "number of points", extent(5) + points(1, 2, 3, n=2**31)),
        ("regular_overlap", "regular hyperslab", extent(5) + regular(1, 1, 2, 2)),
        ("regular_out_of_bounds", "regular hyperslab", extent(5) + regular(1, 2, 3, 1)),
        ("regular_unlimited", "regular hyperslab", extent(5) + regular(1, 1, 0xFFFF, 1)),
        ("none_with_values", "differ in number", extent(5) + struct.pack("<IIII", 0, 1, 0, 0)),
        ("of_all", "differ in number", extent(5) + ALL),
        ("blocks_overlap", "differ in number", extent(5) + blocks((1, 2), (2, 2)))):
    refuse("selection_" + name, "elements", words, single(selection=selection))

# ---- Values and filters ----
refuse("values_few", "elements", "differ in number", single(values=int32(1, 5)))
refuse("values_many", "elements", "differ in number", single(values=int32(1, 5, 7, 9)))
refuse("values_part", "elements", "no multiple of the element size", single(values=int32(1, 5, 7) + b"\0"))
refuse("values_none", "elements", "differ in number", single(values=b""))
refuse("descriptors_few", "check", "differ in number", variable_length(1))
refuse("descriptors_without_checksum", "check", "differ in number",
       variable_length(1, is_summed=False))
refuse("descriptors_checksum", "check", "the checksum of its values section is wrong",
       variable_length(spoiled=True))
refuse("heap_checksum", "check", "the checksum of its variable-length data is wrong",
       variable_length(heap=b"HGLS" + struct.pack("<III", 1, 0, 0)))
refuse("heap_short", "check", "the checksum of its variable-length data is wrong", variable_length(heap=b"HGL"))
refuse("dense_elements_few", "check", "not as many as its elements", dense_variable_length(((4, 2), (0, 0))))
refuse("dense_elements_checksum", "check", "the checksum of its values section is wrong",
       dense_variable_length().spoil("chunk", 3))
refuse("dense_heap_checksum", "check", "the checksum of its variable-length data is wrong",
       dense_variable_length().spoil("chunk", 57))
refuse("dense_outside_of_heap", "check", "", dense_variable_length(((4, 2), (0, 0), (6, 4))))
refuse("deflate_selection", "elements", "its selection section is damaged", filtered().spoil("chunk", 10))
deflated = zlib.compress(summed(THREE), 6)
refuse("deflate_values", "elements", "its values section is damaged",
       filtered().spoil("chunk", len(deflated) + 4))
refuse("deflate_short", "elements", "its values section is damaged", filtered(values=int32(1, 5), sizes=(67, 12)))
refuse("deflate_long", "elements", "its values section is damaged",
       filtered(values=int32(1, 5, 7, 9), sizes=(67, 12)))
refuse("fletcher32", "elements", "its values section is damaged",
       filtered(filters=((1, [(3,)]),), masks=(0, 0), stored=[summed(THREE), int32(1, 5, 7) + bytes(4)]))
refuse("filter_missing", "missing", "filter 300 is not available", left_out(1, 0))
refuse("filter_missing_elsewhere", "elements", "its values section is damaged",
       left_out(1, 0).spoil("chunk 0", 70))
refuse("no_filters_other_size", "elements", "the sizes of a section without filters differ",
       filtered(filters=((1, [(1, 6)]),), stored=[summed(THREE), zlib.compress(int32(1, 5, 7))],
                sizes=(66, 12), masks=(0, 0)))


def main(folder):
    for name, make in SOUND.items():
        (folder / f"sound_{name}.h5").write_bytes(make().content)
    for name, _, _, file in refused:
        (folder / f"{name}.h5").write_bytes(file.content)
    lines = [f"{name:42} {where:9} {words}".rstrip() for name, where, words, _ in refused]
    (folder / "table.txt").write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main(pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else pathlib.Path(__file__).parent))
