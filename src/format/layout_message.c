/* Decoding and encoding the layout message of sparse datasets: a common beginning, then the
 * composition (which sections there are), the index and its address in one of two orders; or, as
 * the RFC's version 22 has it in its section 3.1.2, the composition before the beginning of dims.
 */
#include "format/layout_message.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>

#include "common/box.h"
#include "format/output.h"

#define VERSION          5
#define CLASS            4
#define UNFILTERED_EDGES 0x01 /* flags */
#define SINGLE_FILTERED  0x02

#define KNOWN_TYPES (LAYOUT_SPARSE | LAYOUT_VARIABLE_LENGTH)

#define STORAGE_TYPE_CHUNKED 0 /* of sectioned storage */

/* What the prototype reserves however many there are: bytes for the numbers of metadata sections,
 * and for the stored size of a single chunk. */
#define RESERVED_NUMBERS    3
#define RESERVED_SIZE_BYTES 8

static int damaged(const struct message *message, const char *field, uint64_t value,
                   struct why *why)
{
    return why_damaged(why, "data layout message at address %" PRIu64 ": %s %" PRIu64,
                       message->address, field, value);
}

bool layout_message_is_structured(const struct message *message)
{
    return message->type == MESSAGE_LAYOUT && message->size >= 2 && message->data[0] == VERSION &&
           message->data[1] == CLASS;
}

/* Flags and chunk dims. */
static int decode_dims(const struct message *message, struct cursor *c, struct layout_message *l,
                       struct why *why)
{
    unsigned flags = (unsigned)cursor_uint(c, 1);
    int n_dims = (int)cursor_uint(c, 1);
    unsigned width = (unsigned)cursor_uint(c, 1);
    if (flags & ~(unsigned)(UNFILTERED_EDGES | SINGLE_FILTERED))
        return damaged(message, "flags", flags, why);
    if (n_dims < 2 || n_dims > SFS_MAX_RANK + 1)
        return damaged(message, "dimensionality", (uint64_t)n_dims, why);
    if (width < 1 || width > 8)
        return damaged(message, "dimension size encoded length", width, why);
    l->unfiltered_edges = (flags & UNFILTERED_EDGES) != 0;
    l->single_filtered = (flags & SINGLE_FILTERED) != 0;
    l->rank = n_dims - 1;
    for (int i = 0; i < n_dims; i++) {
        uint64_t dim = cursor_uint(c, width);
        if (c->failed)
            return damaged(message, "too short for dimensionality", (uint64_t)n_dims, why);
        if (dim < 1 || dim > UINT32_MAX)
            return damaged(message, i < l->rank ? "chunk dimension" : "element size", dim, why);
        *(i < l->rank ? &l->chunk_dims[i] : &l->element_size) = dim;
    }
    return 0;
}

/* Up to the type of chunks. */
static int decode_type(const struct message *message, struct cursor *c, struct layout_message *l,
                       struct why *why)
{
    cursor_skip(c, 2); /* version, class */
    uint64_t property_version = cursor_uint(c, 1);
    l->type = (unsigned)cursor_uint(c, 2);
    if (property_version != 0)
        return damaged(message, "structured chunk property version", property_version, why);
    if (l->type & ~(unsigned)KNOWN_TYPES)
        return why_unsupported(
            why, "data layout message at address %" PRIu64 ": structured chunk type 0x%04x",
            message->address, l->type);
    return 0;
}

/* Which sections chunks have, with those that are not stored. */
struct composition {
    int first, n;
    unsigned offset_size;
};

/* That of sparse data, of sparse data of variable length, of dense data of variable length. */
static const struct composition compositions[] = {
    {.n = MAX_SECTIONS - 1}, {.n = MAX_SECTIONS}, {.first = 1, .n = MAX_SECTIONS}};

/* Sections that are metadata: all, but for the values where these have no variable-length data. */
static int n_metadata_of(int first, int n_sections)
{
    return n_sections == MAX_SECTIONS ? n_sections - first : 1;
}

/* Number of sections, numbers of those that are metadata. False if these bytes are no such. */
static bool decode_sections(struct cursor *c, struct composition *composition)
{
    int n_sections = (int)cursor_uint(c, 1), n_metadata = (int)cursor_uint(c, 1);
    size_t kind = 0, n = sizeof(compositions) / sizeof(*compositions);
    while (kind < n &&
           (n_sections != compositions[kind].n - compositions[kind].first ||
            n_metadata != n_metadata_of(compositions[kind].first, compositions[kind].n)))
        kind++;
    if (c->failed || kind == n)
        return false;
    for (int i = 0; i < n_metadata; i++)
        if (cursor_uint(c, 1) != (uint64_t)i)
            return false;
    composition->first = compositions[kind].first;
    composition->n = compositions[kind].n;
    return !c->failed;
}

/* The widths in bytes that the drawings of the RFC give the offset size. */
static const unsigned char offset_size_widths[] = {1, 4, 8};

/* Offset size in so many bytes; false if these are no such. */
static bool decode_offset_size(struct cursor *c, unsigned width, unsigned *offset_size)
{
    *offset_size = (unsigned)cursor_uint(c, width);
    return !c->failed && (*offset_size == 4 || *offset_size == 8);
}

/* Offset size and sections. */
static bool decode_composition(struct cursor *c, unsigned offset_size_width,
                               struct composition *composition)
{
    return decode_offset_size(c, offset_size_width, &composition->offset_size) &&
           decode_sections(c, composition);
}

static void set_composition(struct layout_message *l, const struct composition *composition)
{
    l->first_section = composition->first;
    l->n_sections = composition->n;
    l->offset_size = composition->offset_size;
}

uint64_t layout_message_chunk_bytes(const struct layout_message *l)
{
    uint64_t bytes;
    return box_product(l->chunk_dims, l->rank, l->element_size, &bytes) ? bytes : UINT64_MAX;
}

/* The single chunk's address may also be all ones but one: "index created, nothing written". */
static uint64_t decode_address(const struct superblock *superblock, struct cursor *c, bool single)
{
    struct cursor ahead = *c;
    uint64_t raw = cursor_uint(&ahead, superblock->offset_size);
    uint64_t address = superblock_address(superblock, c);
    if (single && raw == (UINT64_MAX >> (64 - 8 * superblock->offset_size)) - 1) {
        *c = ahead;
        return NO_ADDRESS;
    }
    return address;
}

/* Index kind, its parameters, its address; false if they are no such. */
static bool decode_index(const struct superblock *superblock, struct cursor *c,
                         struct layout_message *l)
{
    l->index = (enum chunk_index_kind)cursor_uint(c, 1);
    switch (l->index) {
    case INDEX_SINGLE:
        l->single.size = cursor_uint(c, chunk_record_size_bytes(l->n_sections, l->offset_size,
                                                                layout_message_chunk_bytes(l)));
        chunk_record_decode_sections(l->first_section, l->n_sections, l->single_filtered, c,
                                     &l->single);
        break;
    case INDEX_FIXED_ARRAY:
        l->page_bits = (unsigned)cursor_uint(c, 1);
        break;
    case INDEX_EXTENSIBLE_ARRAY:
        l->max_bits = (unsigned)cursor_uint(c, 1);
        l->index_block_elements = (unsigned)cursor_uint(c, 1);
        l->super_block_min_blocks = (unsigned)cursor_uint(c, 1);
        l->data_block_min_elements = (unsigned)cursor_uint(c, 1);
        l->data_page_bits = (unsigned)cursor_uint(c, 1);
        break;
    case INDEX_BTREE2:
        l->node_bytes = (unsigned)cursor_uint(c, 4);
        l->split_percent = (unsigned)cursor_uint(c, 1);
        l->merge_percent = (unsigned)cursor_uint(c, 1);
        break;
    default:
        return false;
    }
    l->address = decode_address(superblock, c, l->index == INDEX_SINGLE);
    if (l->index == INDEX_SINGLE) {
        l->single.exists = l->address != NO_ADDRESS;
        l->single.address = l->address;
    }
    return !c->failed;
}

static bool decode_prototype_order(const struct superblock *superblock, struct cursor c,
                                   struct layout_message *l)
{
    struct composition composition;
    l->offset_size_width = 1;
    if (!decode_composition(&c, 1, &composition))
        return false;
    set_composition(l, &composition);
    return decode_index(superblock, &c, l);
}

/* The composition stands behind the index, whose single chunk cannot be read without it: the
 * possible ones are tried. So are the widths of the offset size. */
static bool decode_rfc22_order(const struct superblock *superblock, struct cursor c,
                               const struct layout_message *begin, struct layout_message *l)
{
    for (size_t kind = 0; kind < sizeof(compositions) / sizeof(*compositions); kind++)
        for (unsigned offset_size = 8; offset_size >= 4; offset_size -= 4)
            for (size_t w = 0; w < sizeof(offset_size_widths); w++) {
                struct cursor at = c;
                struct composition wanted = compositions[kind], found;
                wanted.offset_size = offset_size;
                *l = *begin;
                l->order = SFS_LAYOUT_MESSAGE_22;
                l->offset_size_width = offset_size_widths[w];
                set_composition(l, &wanted);
                if (decode_index(superblock, &at, l) &&
                    decode_composition(&at, offset_size_widths[w], &found) &&
                    found.first == wanted.first && found.n == wanted.n &&
                    found.offset_size == offset_size)
                    return true;
            }
    return false;
}

/* The other design of the RFC's version 22 (section 3.1.2), "sectioned storage": type of storage,
 * sections, offset size, dims, index. */
static bool decode_sectioned(const struct superblock *superblock, const struct message *message,
                             struct cursor c, const struct layout_message *begin,
                             struct layout_message *l)
{
    if (cursor_uint(&c, 1) != STORAGE_TYPE_CHUNKED)
        return false;
    for (size_t w = 0; w < sizeof(offset_size_widths); w++) {
        struct why why;
        struct cursor at = c;
        struct composition composition;
        *l = *begin;
        l->order = SFS_LAYOUT_MESSAGE_SECTIONED;
        l->offset_size_width = offset_size_widths[w];
        if (!decode_sections(&at, &composition) ||
            !decode_offset_size(&at, offset_size_widths[w], &composition.offset_size))
            continue;
        set_composition(l, &composition);
        if (decode_dims(message, &at, l, &why) == 0 && decode_index(superblock, &at, l))
            return true;
    }
    return false;
}

/* Whether it is sectioned storage of a type that is reserved. What follows is told by that type, but
 * sections and offset size come before it, and these are those of data of its own type. */
static bool is_reserved_storage(struct cursor c, const struct layout_message *l, unsigned *storage)
{
    *storage = (unsigned)cursor_uint(&c, 1);
    for (size_t w = 0; w < sizeof(offset_size_widths) && *storage != STORAGE_TYPE_CHUNKED; w++) {
        struct cursor at = c;
        struct composition composition;
        if (!decode_sections(&at, &composition) ||
            !decode_offset_size(&at, offset_size_widths[w], &composition.offset_size))
            continue;
        return l->type == ((composition.first == 0 ? LAYOUT_SPARSE : 0U) |
                           (composition.n == MAX_SECTIONS ? LAYOUT_VARIABLE_LENGTH : 0U));
    }
    return false;
}

/* The rest behind the type, in whichever order it makes sense. */
static int decode_orders(const struct superblock *superblock, const struct message *message,
                         struct cursor c, struct layout_message *l, struct why *why)
{
    const struct layout_message begin = *l;
    struct layout_message with_dims = *l;
    struct cursor behind_dims = c;
    int error = decode_dims(message, &behind_dims, &with_dims, why);
    *l = with_dims;
    if (!error && (decode_prototype_order(superblock, behind_dims, l) ||
                   decode_rfc22_order(superblock, behind_dims, &with_dims, l)))
        return 0;
    if (decode_sectioned(superblock, message, c, &begin, l))
        return 0;
    unsigned storage;
    if (is_reserved_storage(c, &begin, &storage))
        return why_unsupported(why,
                               "data layout message at address %" PRIu64 ": type of storage %u",
                               message->address, storage);
    return error ? error
                 : why_damaged(why,
                               "data layout message at address %" PRIu64
                               ": no sections and chunk index",
                               message->address);
}

static int check_index(const struct message *message, const struct layout_message *l,
                       struct why *why)
{
    switch (l->index) {
    case INDEX_FIXED_ARRAY:
        if (l->page_bits < 1 || l->page_bits > 31)
            return damaged(message, "page bits", l->page_bits, why);
        return 0;
    case INDEX_EXTENSIBLE_ARRAY:
        if (l->max_bits < 1 || l->max_bits > 32)
            return damaged(message, "bits of the extensible array", l->max_bits, why);
        if (l->index_block_elements < 1 || l->super_block_min_blocks < 1 ||
            l->data_block_min_elements < 1 || l->data_page_bits < 1)
            return damaged(message, "parameter of the extensible array", 0, why);
        return 0;
    case INDEX_BTREE2:
        if (l->split_percent < 1 || l->split_percent > 100)
            return damaged(message, "split percent", l->split_percent, why);
        if (l->merge_percent < 1 || l->merge_percent > 100)
            return damaged(message, "merge percent", l->merge_percent, why);
        return 0;
    default:
        return 0;
    }
}

int layout_message_decode(const struct superblock *superblock, const struct message *message,
                          struct layout_message *layout, struct why *why)
{
    struct cursor c = cursor_over(message->data, message->size);
    if (message->flags & MESSAGE_SHARED || !layout_message_is_structured(message))
        return why_damaged(
            why, "data layout message at address %" PRIu64 " is not one of structured chunks",
            message->address);
    struct layout_message l = {0};
    int error = decode_type(message, &c, &l, why);
    if (!error)
        error = decode_orders(superblock, message, c, &l, why);
    if (error)
        return error;
    if (l.first_section > 0 && (l.type & LAYOUT_SPARSE) != 0)
        return damaged(message, "no section for selections, but structured chunk type", l.type,
                       why);
    error = check_index(message, &l, why);
    if (error)
        return error;
    *layout = l;
    return 0;
}

bool layout_message_is_rfc(const struct layout_message *layout)
{
    return layout->n_sections == MAX_SECTIONS ? layout->order != SFS_LAYOUT_MESSAGE_PROTOTYPE
                                              : layout->type == LAYOUT_SPARSE;
}

int layout_message_records(const struct layout_message *layout, bool filtered,
                           struct chunk_record_format *format, struct why *why)
{
    struct chunk_record_format f = {
        .form = filtered ? CHUNK_STRUCTURED_FILTERED : CHUNK_STRUCTURED,
        .rank = layout->rank,
        .first_section = layout->first_section,
        .n_sections = layout->n_sections,
    };
    if (!box_product(layout->chunk_dims, layout->rank, layout->element_size, &f.chunk_bytes))
        return why_damaged(why, "data layout message: the bytes of a chunk exceed 63 bits");
    f.chunk_elements = f.chunk_bytes / layout->element_size;
    f.size_bytes = chunk_record_size_bytes(layout->n_sections, layout->offset_size, f.chunk_bytes);
    *format = f;
    return 0;
}

/* Signature, version, type, checksum, and as many pointers as an internal node has: an address, the
 * number of records in a node and that of all under it. */
size_t layout_message_least_node(const struct superblock *superblock, size_t record)
{
    return 4 + 1 + 1 + 4 + LEAST_NODE_RECORDS * record +
           (LEAST_NODE_RECORDS + 1) * (size_t)(superblock->offset_size + 2 + 8);
}

/* ---- Encoding ---- */

static unsigned dim_width(const struct layout_message *l)
{
    uint64_t largest = l->element_size;
    for (int i = 0; i < l->rank; i++)
        if (l->chunk_dims[i] > largest)
            largest = l->chunk_dims[i];
    return (floor_log2(largest) + 8) / 8;
}

static unsigned stored_size_width(const struct layout_message *l)
{
    return chunk_record_size_bytes(l->n_sections, l->offset_size, layout_message_chunk_bytes(l));
}

/* Bytes of the index's parameters, if a stored size takes size_width of them. */
static size_t parameter_bytes(const struct layout_message *l, unsigned size_width)
{
    size_t n_sections = (size_t)(l->n_sections - l->first_section);
    switch (l->index) {
    case INDEX_SINGLE:
        return size_width + 8 * (n_sections - 1) + (l->single_filtered ? 12 * n_sections : 0);
    case INDEX_FIXED_ARRAY:
        return 1;
    case INDEX_EXTENSIBLE_ARRAY:
        return 5;
    case INDEX_BTREE2:
        return 6;
    }
    return 0;
}

/* Bytes of all but parameters and section numbers: what precedes the dims, the dims, the rest of
 * the composition, index kind, address. */
static size_t constant_bytes(const struct superblock *superblock, const struct layout_message *l)
{
    return 8 + (l->order == SFS_LAYOUT_MESSAGE_SECTIONED) + (size_t)(l->rank + 1) * dim_width(l) +
           l->offset_size_width + 2 + 1 + superblock->offset_size;
}

static void encode_type(const struct layout_message *l, struct output *output)
{
    output_uint(output, VERSION, 1);
    output_uint(output, CLASS, 1);
    output_uint(output, 0, 1); /* structured chunk property version */
    output_uint(output, l->type, 2);
}

/* Flags and dims. */
static void encode_dims(const struct layout_message *l, struct output *output)
{
    unsigned width = dim_width(l);
    output_uint(output,
                (l->unfiltered_edges ? UNFILTERED_EDGES : 0) |
                    (l->single_filtered ? SINGLE_FILTERED : 0),
                1);
    output_uint(output, (uint64_t)l->rank + 1, 1);
    output_uint(output, width, 1);
    for (int i = 0; i < l->rank; i++)
        output_uint(output, l->chunk_dims[i], width);
    output_uint(output, l->element_size, width);
}

static void encode_sections(const struct layout_message *l, struct output *output)
{
    int n_metadata = n_metadata_of(l->first_section, l->n_sections);
    output_uint(output, (uint64_t)(l->n_sections - l->first_section), 1);
    output_uint(output, (uint64_t)n_metadata, 1);
    for (int i = 0; i < n_metadata; i++)
        output_uint(output, (uint64_t)i, 1);
}

static void encode_composition(const struct layout_message *l, struct output *output)
{
    output_uint(output, l->offset_size, l->offset_size_width);
    encode_sections(l, output);
}

static void encode_index(const struct superblock *superblock, const struct layout_message *l,
                         struct output *output)
{
    static const struct chunk_record nothing = {0};
    const struct chunk_record *single = l->single.exists ? &l->single : &nothing;
    output_uint(output, l->index, 1);
    switch (l->index) {
    case INDEX_SINGLE:
        output_uint(output, single->size, stored_size_width(l));
        chunk_record_encode_sections(l->first_section, l->n_sections, l->single_filtered, output,
                                     single);
        break;
    case INDEX_FIXED_ARRAY:
        output_uint(output, l->page_bits, 1);
        break;
    case INDEX_EXTENSIBLE_ARRAY:
        output_uint(output, l->max_bits, 1);
        output_uint(output, l->index_block_elements, 1);
        output_uint(output, l->super_block_min_blocks, 1);
        output_uint(output, l->data_block_min_elements, 1);
        output_uint(output, l->data_page_bits, 1);
        break;
    case INDEX_BTREE2:
        output_uint(output, l->node_bytes, 4);
        output_uint(output, l->split_percent, 1);
        output_uint(output, l->merge_percent, 1);
        break;
    }
    superblock_put_address(superblock, output, l->address);
}

/* What a layout in memory may say that the file cannot. */
static int check_widths(const struct superblock *superblock, const struct layout_message *l,
                        struct why *why)
{
    if (l->index == INDEX_SINGLE && l->single.exists) {
        struct chunk_record_format format;
        int error = layout_message_records(l, l->single_filtered, &format, why);
        return error ? error : chunk_record_fits(&format, superblock, &l->single, why);
    }
    if (!superblock_address_fits(superblock, l->address))
        return why_refused(why, -EFBIG,
                           "chunk index at address %" PRIu64
                           ": the addresses of this file have only %u bytes",
                           l->address, superblock->offset_size);
    return 0;
}

static void encode(const struct superblock *superblock, const struct layout_message *l,
                   struct output *output)
{
    encode_type(l, output);
    switch (l->order) {
    case SFS_LAYOUT_MESSAGE_PROTOTYPE:
        encode_dims(l, output);
        encode_composition(l, output);
        encode_index(superblock, l, output);
        break;
    case SFS_LAYOUT_MESSAGE_22:
        encode_dims(l, output);
        encode_index(superblock, l, output);
        encode_composition(l, output);
        break;
    case SFS_LAYOUT_MESSAGE_SECTIONED:
        output_uint(output, STORAGE_TYPE_CHUNKED, 1);
        encode_sections(l, output);
        output_uint(output, l->offset_size, l->offset_size_width);
        encode_dims(l, output);
        encode_index(superblock, l, output);
        break;
    }
}

/* The orders have nothing that tells which it is. With the first of two sections for metadata, as
 * in sparse datasets, sectioned storage has a dimension of 0 in the other orders. */
static int check_order(const struct superblock *superblock, const struct layout_message *l,
                       const unsigned char *bytes, size_t n, struct why *why)
{
    const struct message message = {.type = MESSAGE_LAYOUT, .data = bytes, .size = n};
    struct layout_message again;
    struct why unused;
    if (l->order != SFS_LAYOUT_MESSAGE_SECTIONED ||
        (layout_message_decode(superblock, &message, &again, &unused) == 0 &&
         again.order == l->order && again.rank == l->rank))
        return 0;
    return why_refused(why, -EFBIG,
                       "data layout message: its fields would mean something else in another "
                       "order");
}

int layout_message_encode_over(const struct superblock *superblock, const struct layout_message *l,
                               unsigned char *bytes, size_t n, struct why *why)
{
    size_t needed = constant_bytes(superblock, l) + parameter_bytes(l, stored_size_width(l)) +
                    (size_t)n_metadata_of(l->first_section, l->n_sections);
    int error = check_widths(superblock, l, why);
    if (error)
        return error;
    if (needed > n)
        return why_refused(why, -EFBIG, "data layout message: its %zu bytes have no room for %zu",
                           n, needed);
    struct output output = output_over(bytes, n);
    encode(superblock, l, &output);
    output_zeros(&output, output.left);
    return check_order(superblock, l, bytes, n, why);
}

int layout_message_encode(const struct superblock *superblock, const struct layout_message *layout,
                          unsigned char **out, size_t *n, struct why *why)
{
    size_t size = constant_bytes(superblock, layout) +
                  parameter_bytes(layout, RESERVED_SIZE_BYTES) + RESERVED_NUMBERS;
    unsigned char *bytes = malloc(size);
    if (!bytes)
        return -ENOMEM;
    int error = layout_message_encode_over(superblock, layout, bytes, size, why);
    if (error) {
        free(bytes);
        return error;
    }
    *out = bytes;
    *n = size;
    return 0;
}
