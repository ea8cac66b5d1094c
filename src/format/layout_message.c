/* Decoding the layout message of sparse datasets: a common beginning, then the composition (which
 * sections there are), the index and its address in one of two orders. */
#include "format/layout_message.h"

#include <errno.h>
#include <inttypes.h>

#include "common/box.h"

#define VERSION          5
#define CLASS            4
#define UNFILTERED_EDGES 0x01 /* flags */
#define SINGLE_FILTERED  0x02

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

/* Up to and including the chunk dims. */
static int decode_begin(const struct message *message, struct cursor *c, struct layout_message *l,
                        struct why *why)
{
    cursor_skip(c, 2); /* version, class */
    uint64_t property_version = cursor_uint(c, 1);
    l->type = (unsigned)cursor_uint(c, 2);
    unsigned flags = (unsigned)cursor_uint(c, 1);
    int n_dims = (int)cursor_uint(c, 1);
    unsigned width = (unsigned)cursor_uint(c, 1);
    if (property_version != 0)
        return damaged(message, "structured chunk property version", property_version, why);
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

/* Offset size (in so many bytes), number of sections, numbers of those that are metadata. False if
 * these bytes are no composition. */
static bool decode_composition(struct cursor *c, unsigned offset_size_width, int *n_sections,
                               int *n_metadata, unsigned *offset_size)
{
    *offset_size = (unsigned)cursor_uint(c, offset_size_width);
    *n_sections = (int)cursor_uint(c, 1);
    *n_metadata = (int)cursor_uint(c, 1);
    if (c->failed || (*offset_size != 4 && *offset_size != 8) || *n_sections < 2 ||
        *n_sections > MAX_SECTIONS || *n_metadata < 1 || *n_metadata > *n_sections)
        return false;
    for (int i = 0; i < *n_metadata; i++)
        if (cursor_uint(c, 1) != (uint64_t)i)
            return false;
    return !c->failed;
}

static uint64_t chunk_bytes(const struct layout_message *l)
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
        l->single.size =
            cursor_uint(c, chunk_record_size_bytes(l->n_sections, l->offset_size, chunk_bytes(l)));
        chunk_record_decode_sections(l->n_sections, l->single_filtered, c, &l->single);
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
        cursor_skip(c, 4); /* node size */
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
                                   struct layout_message *l, int *n_metadata)
{
    return decode_composition(&c, 1, &l->n_sections, n_metadata, &l->offset_size) &&
           decode_index(superblock, &c, l);
}

/* The composition stands behind the index, whose single chunk cannot be read without it: the
 * possible ones are tried. So are the widths that the drawings of the RFC give the offset size. */
static bool decode_rfc22_order(const struct superblock *superblock, struct cursor c,
                               const struct layout_message *begin, struct layout_message *l,
                               int *n_metadata)
{
    static const unsigned char widths[] = {1, 4, 8};
    for (int n_sections = 2; n_sections <= MAX_SECTIONS; n_sections++)
        for (unsigned offset_size = 8; offset_size >= 4; offset_size -= 4)
            for (size_t w = 0; w < sizeof(widths); w++) {
                struct cursor at = c;
                int found_sections;
                unsigned found_size;
                *l = *begin;
                l->rfc22 = true;
                l->n_sections = n_sections;
                l->offset_size = offset_size;
                if (decode_index(superblock, &at, l) &&
                    decode_composition(&at, widths[w], &found_sections, n_metadata, &found_size) &&
                    found_sections == n_sections && found_size == offset_size)
                    return true;
            }
    return false;
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
    struct layout_message begin = {0};
    int error = decode_begin(message, &c, &begin, why);
    if (error)
        return error;
    int n_metadata = 0;
    struct layout_message l = begin;
    if (!decode_prototype_order(superblock, c, &l, &n_metadata) &&
        !decode_rfc22_order(superblock, c, &begin, &l, &n_metadata))
        return why_damaged(
            why, "data layout message at address %" PRIu64 ": no sections and chunk index",
            message->address);
    if (l.n_sections == 2 && n_metadata == 2)
        return why_unsupported(
            why, "data layout message at address %" PRIu64 ": dense chunks of variable-length data",
            message->address);
    if (n_metadata != (l.n_sections == 3 ? 3 : 1))
        return damaged(message, "number of metadata sections", (uint64_t)n_metadata, why);
    error = check_index(message, &l, why);
    if (error)
        return error;
    *layout = l;
    return 0;
}

int layout_message_records(const struct layout_message *layout, bool filtered,
                           struct chunk_record_format *format, struct why *why)
{
    struct chunk_record_format f = {
        .form = filtered ? CHUNK_STRUCTURED_FILTERED : CHUNK_STRUCTURED,
        .rank = layout->rank,
        .n_sections = layout->n_sections,
    };
    if (!box_product(layout->chunk_dims, layout->rank, layout->element_size, &f.chunk_bytes))
        return why_damaged(why, "data layout message: the bytes of a chunk exceed 63 bits");
    f.chunk_elements = f.chunk_bytes / layout->element_size;
    f.size_bytes = chunk_record_size_bytes(layout->n_sections, layout->offset_size, f.chunk_bytes);
    *format = f;
    return 0;
}
