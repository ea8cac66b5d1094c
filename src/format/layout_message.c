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

/* Bits of the structured chunk type: sparse, variable-length. They are not looked at further, as
 * drafts have numbers there, and 0 for sparse chunks: the composition tells. */
#define SPARSE_TYPE          0x01
#define VARIABLE_LENGTH_TYPE 0x02
#define KNOWN_TYPES          (SPARSE_TYPE | VARIABLE_LENGTH_TYPE)

#define STORAGE_TYPE_CHUNKED 0 /* of sectioned storage */

#define NODE_BYTES 2048 /* of B-trees */

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
    if (l.first_section > 0 && (l.type & SPARSE_TYPE) != 0)
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
    return layout->type == SPARSE_TYPE;
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

/* ---- A new layout ---- */

static int check_axis(int axis, uint64_t dim, uint64_t max_dim, uint64_t chunk_dim, struct why *why)
{
    if (chunk_dim < 1 || chunk_dim > UINT32_MAX)
        return why_refused(why, -EINVAL,
                           "chunk dimension %" PRIu64 " of axis %d is not 1 to 2^32 - 1", chunk_dim,
                           axis);
    if (dim == SFS_UNLIMITED || max_dim < dim)
        return why_refused(why, -EINVAL,
                           "dimension %" PRIu64 " of axis %d exceeds the largest, %" PRIu64, dim,
                           axis, max_dim);
    if (dim != 0 && max_dim != SFS_UNLIMITED && chunk_dim > max_dim)
        return why_refused(why, -EINVAL,
                           "chunk dimension %" PRIu64
                           " of axis %d exceeds that of the dataset, which is fixed: %" PRIu64,
                           chunk_dim, axis, max_dim);
    return 0;
}

static enum chunk_index_kind index_for(int rank, const uint64_t *dims, const uint64_t *max_dims,
                                       const uint64_t *chunk_dims)
{
    int n_unlimited = 0;
    bool single = true;
    for (int i = 0; i < rank; i++) {
        n_unlimited += max_dims[i] == SFS_UNLIMITED;
        single &= dims[i] == max_dims[i] && dims[i] == chunk_dims[i];
    }
    if (n_unlimited > 0)
        return n_unlimited > 1 ? INDEX_BTREE2 : INDEX_EXTENSIBLE_ARRAY;
    return single ? INDEX_SINGLE : INDEX_FIXED_ARRAY;
}

static void set_parameters(struct layout_message *l)
{
    switch (l->index) {
    case INDEX_SINGLE:
        break;
    case INDEX_FIXED_ARRAY:
        l->page_bits = 10;
        break;
    case INDEX_EXTENSIBLE_ARRAY:
        l->max_bits = 32;
        l->index_block_elements = 4;
        l->super_block_min_blocks = 4;
        l->data_block_min_elements = 16;
        l->data_page_bits = 10;
        break;
    case INDEX_BTREE2:
        l->node_bytes = NODE_BYTES;
        l->split_percent = 100;
        l->merge_percent = 40;
        break;
    }
}

/* An array has an element for each chunk of the max dims, of which there cannot be 2^64. */
static int check_grid(const struct layout_message *l, const uint64_t *max_dims, struct why *why)
{
    uint64_t n = 1;
    for (int i = 0; i < l->rank && l->index != INDEX_BTREE2; i++) {
        uint64_t chunk = l->chunk_dims[i];
        if (max_dims[i] != SFS_UNLIMITED &&
            __builtin_mul_overflow(n, max_dims[i] / chunk + (max_dims[i] % chunk != 0), &n))
            return why_refused(why, -EFBIG,
                               "the max dims are of more than 2^64 chunks, for which only a B-tree "
                               "has room");
    }
    return 0;
}

int layout_message_init(int rank, const uint64_t *dims, const uint64_t *max_dims,
                        const uint64_t *chunk_dims, uint64_t element_size, int n_sections,
                        bool filtered, struct layout_message *layout, struct why *why)
{
    struct layout_message l = {
        .rank = rank,
        .element_size = element_size,
        .offset_size = 8,
        .offset_size_width = 1,
        .n_sections = n_sections,
        .type = n_sections == MAX_SECTIONS ? KNOWN_TYPES : 0,
        .address = NO_ADDRESS,
        .single = {.address = NO_ADDRESS},
    };
    if (rank < 1 || rank > SFS_MAX_RANK)
        return why_refused(why, -EINVAL, "rank %d is not 1 to %d", rank, SFS_MAX_RANK);
    if (element_size < 1 || element_size > UINT32_MAX)
        return why_refused(why, -EINVAL, "element size %" PRIu64 " is not 1 to 2^32 - 1",
                           element_size);
    if (n_sections < 2 || n_sections > MAX_SECTIONS)
        return why_refused(why, -EINVAL, "chunks of %d sections", n_sections);
    for (int i = 0; i < rank; i++) {
        int error = check_axis(i, dims[i], max_dims[i], chunk_dims[i], why);
        if (error)
            return error;
        l.chunk_dims[i] = chunk_dims[i];
    }
    l.index = index_for(rank, dims, max_dims, chunk_dims);
    l.single_filtered = l.index == INDEX_SINGLE && filtered;
    set_parameters(&l);
    if (chunk_bytes(&l) == UINT64_MAX)
        return why_refused(why, -EFBIG, "the bytes of a chunk exceed 63 bits");
    *layout = l;
    return 0;
}

/* ---- What is asked for ---- */

static enum chunk_index_kind kind_of(enum sfs_index_kind kind)
{
    static const enum chunk_index_kind kinds[] = {
        [SFS_INDEX_SINGLE] = INDEX_SINGLE,
        [SFS_INDEX_FIXED_ARRAY] = INDEX_FIXED_ARRAY,
        [SFS_INDEX_EXTENSIBLE_ARRAY] = INDEX_EXTENSIBLE_ARRAY,
        [SFS_INDEX_BTREE] = INDEX_BTREE2,
    };
    return kinds[kind];
}

static int choose_kind(enum sfs_index_kind kind, const uint64_t *dims, const uint64_t *max_dims,
                       struct layout_message *l, struct why *why)
{
    static const char *const reasons[] = {
        [INDEX_SINGLE] = "a single chunk: dims, max dims and chunk dims must be the same",
        [INDEX_FIXED_ARRAY] = "a fixed array: no axis may be unlimited",
        [INDEX_EXTENSIBLE_ARRAY] = "an extensible array: one axis must be unlimited",
    };
    enum chunk_index_kind best = index_for(l->rank, dims, max_dims, l->chunk_dims);
    if (kind == SFS_INDEX_AUTOMATIC)
        return 0;
    if ((unsigned)kind > SFS_INDEX_BTREE)
        return why_refused(why, -EINVAL, "chunk index %d is not known", (int)kind);
    enum chunk_index_kind wanted = kind_of(kind);
    bool possible = wanted == best || wanted == INDEX_BTREE2 ||
                    (wanted == INDEX_FIXED_ARRAY && best == INDEX_SINGLE);
    if (!possible)
        return why_refused(why, -EINVAL, "the index cannot be %s", reasons[wanted]);
    l->index = wanted;
    set_parameters(l);
    return 0;
}

/* A number of the index, where one was asked for. */
static int choose_number(bool has, const char *name, unsigned wanted, unsigned least, unsigned most,
                         unsigned *number, struct why *why)
{
    if (wanted == 0)
        return 0;
    if (!has)
        return why_refused(why, -EINVAL, "the index has no %s", name);
    if (wanted < least || wanted > most)
        return why_refused(why, -EINVAL, "%s of the index: %u is not %u to %u", name, wanted, least,
                           most);
    *number = wanted;
    return 0;
}

static bool is_power_of_two(unsigned x)
{
    return (x & (x - 1)) == 0;
}

/* What the numbers of an extensible array must be to each other, as libhdf5 wants it. */
static int check_array(const struct layout_message *l, struct why *why)
{
    if (!is_power_of_two(l->data_block_min_elements) || !is_power_of_two(l->super_block_min_blocks))
        return why_refused(why, -EINVAL,
                           "extensible array: the least elements of a data block (%u) and data "
                           "blocks of a super block (%u) must be powers of two",
                           l->data_block_min_elements, l->super_block_min_blocks);
    uint64_t page = (uint64_t)1 << l->data_page_bits;
    uint64_t largest = (uint64_t)l->data_block_min_elements * l->super_block_min_blocks;
    if (page < largest || page < l->index_block_elements)
        return why_refused(why, -EINVAL,
                           "extensible array: pages of %" PRIu64 " elements are smaller than the "
                           "blocks without pages (%" PRIu64 ") or the index block (%u)",
                           page, largest, l->index_block_elements);
    unsigned super_blocks = 1 + l->max_bits - floor_log2(l->data_block_min_elements);
    if (l->data_page_bits > l->max_bits || floor_log2(l->data_block_min_elements) > l->max_bits ||
        2 * floor_log2(l->super_block_min_blocks) > super_blocks)
        return why_refused(why, -EINVAL,
                           "extensible array: its pages or blocks have more elements than numbers "
                           "of %u bits",
                           l->max_bits);
    return 0;
}

static int choose_array(const struct sfs_index *index, struct layout_message *l, struct why *why)
{
    bool is = l->index == INDEX_EXTENSIBLE_ARRAY;
    int error = choose_number(is || l->index == INDEX_FIXED_ARRAY, "page bits", index->page_bits, 1,
                              31, is ? &l->data_page_bits : &l->page_bits, why);
    if (!error)
        error = choose_number(is, "bits of the number of elements", index->max_bits, 1, 32,
                              &l->max_bits, why);
    if (!error)
        error = choose_number(is, "elements in the index block", index->index_block_elements, 1,
                              UINT8_MAX, &l->index_block_elements, why);
    if (!error)
        error = choose_number(is, "least elements of a data block", index->data_block_min_elements,
                              1, 128, &l->data_block_min_elements, why);
    if (!error)
        error =
            choose_number(is, "least data blocks of a super block", index->super_block_min_blocks,
                          2, 128, &l->super_block_min_blocks, why);
    return error || !is ? error : check_array(l, why);
}

/* Signature, version, type, checksum, and as many pointers as an internal node has: an address, the
 * number of records in a node and that of all under it. */
size_t layout_message_least_node(const struct superblock *superblock, size_t record)
{
    return 4 + 1 + 1 + 4 + LEAST_NODE_RECORDS * record +
           (LEAST_NODE_RECORDS + 1) * (size_t)(superblock->offset_size + 2 + 8);
}

static int choose_tree(const struct sfs_index *index, const struct superblock *superblock,
                       bool filtered, struct layout_message *l, struct why *why)
{
    bool is = l->index == INDEX_BTREE2;
    struct chunk_record_format format;
    int error = layout_message_records(l, filtered, &format, why);
    if (error)
        return error;
    size_t least = layout_message_least_node(superblock, chunk_record_in_tree(&format, superblock));
    error = choose_number(is, "bytes in a node", index->node_size, (unsigned)least, MOST_NODE_BYTES,
                          &l->node_bytes, why);
    if (!error)
        error = choose_number(is, "split percent", index->split_percent, 1, 100, &l->split_percent,
                              why);
    if (!error)
        error = choose_number(is, "merge percent", index->merge_percent, 1, 100, &l->merge_percent,
                              why);
    if (!error && is && 2 * l->merge_percent >= l->split_percent)
        error = why_refused(why, -EINVAL,
                            "B-tree: a merge percent of %u is not less than half of the split "
                            "percent, %u",
                            l->merge_percent, l->split_percent);
    return error;
}

int layout_message_choose(const struct layout_choice *choice, const struct superblock *superblock,
                          const uint64_t *dims, const uint64_t *max_dims, bool filtered,
                          struct layout_message *layout, struct why *why)
{
    struct layout_message l = *layout;
    if ((unsigned)choice->order > SFS_LAYOUT_MESSAGE_SECTIONED)
        return why_refused(why, -EINVAL, "layout message %d is not known", (int)choice->order);
    if (choice->is_dense && l.n_sections < MAX_SECTIONS)
        return why_refused(why, -EINVAL, "structured chunks of dense data of fixed size");
    l.first_section = choice->is_dense;
    int error = choose_kind(choice->index.kind, dims, max_dims, &l, why);
    if (!error)
        error = check_grid(&l, max_dims, why);
    if (!error)
        error = choose_array(&choice->index, &l, why);
    if (!error)
        error = choose_tree(&choice->index, superblock, filtered, &l, why);
    if (error)
        return error;
    l.single_filtered = l.index == INDEX_SINGLE && filtered;
    l.unfiltered_edges = choice->unfiltered_edges;
    l.order = choice->order;
    if (choice->rfc_encoding || l.order == SFS_LAYOUT_MESSAGE_SECTIONED)
        l.type = SPARSE_TYPE | (l.n_sections == MAX_SECTIONS ? VARIABLE_LENGTH_TYPE : 0);
    if (choice->is_dense)
        l.type = VARIABLE_LENGTH_TYPE;

    *layout = l;
    return 0;
}

struct sfs_index layout_message_index(const struct layout_message *l)
{
    switch (l->index) {
    case INDEX_SINGLE:
        return (struct sfs_index){.kind = SFS_INDEX_SINGLE};
    case INDEX_FIXED_ARRAY:
        return (struct sfs_index){.kind = SFS_INDEX_FIXED_ARRAY, .page_bits = l->page_bits};
    case INDEX_EXTENSIBLE_ARRAY:
        return (struct sfs_index){
            .kind = SFS_INDEX_EXTENSIBLE_ARRAY,
            .page_bits = l->data_page_bits,
            .max_bits = l->max_bits,
            .index_block_elements = l->index_block_elements,
            .data_block_min_elements = l->data_block_min_elements,
            .super_block_min_blocks = l->super_block_min_blocks,
        };
    case INDEX_BTREE2:
        break;
    }
    return (struct sfs_index){
        .kind = SFS_INDEX_BTREE,
        .node_size = l->node_bytes,
        .split_percent = l->split_percent,
        .merge_percent = l->merge_percent,
    };
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
    return chunk_record_size_bytes(l->n_sections, l->offset_size, chunk_bytes(l));
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
        output_uint(output, l->node_bytes ? l->node_bytes : NODE_BYTES, 4);
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
