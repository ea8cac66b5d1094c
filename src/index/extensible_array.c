/* The extensible array (HDF5 file format specification, section VII.D): its one unlimited axis is
 * the slowest. The first elements stand in the index block; the others in data blocks, which double
 * in size and number from super block to super block. Super blocks are numbered from 0; the first
 * few have no structure of their own, their data blocks hang on the index block:
 *
 *   header -> index block: elements | data block addresses | super block addresses
 *               -> data block: elements
 *               -> super block: bitmaps of pages | data block addresses
 *                    -> data block: elements, or prefix and pages of elements
 *
 * The index block is kept in memory, so that a lookup reads a super block and a data block at most.
 */
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>

#include "index/private.h"
#include "store/store.h"

#define HEADER    "extensible array header"
#define MOST_BITS 32 /* of an element's number, as in all datasets */

static const struct block_kind header_kind = {HEADER, "EAHD"};
static const struct block_kind index_block_kind = {"extensible array index block", "EAIB"};
static const struct block_kind super_block_kind = {"extensible array super block", "EASB"};
static const struct block_kind data_block_kind = {"extensible array data block", "EADB"};
static const struct block_kind page_kind = {"extensible array page", NULL};

struct extensible_array {
    size_t element; /* bytes of one */
    int unlimited;  /* the axis */
    unsigned max_bits;
    unsigned in_index_block; /* elements */
    unsigned first_blocks;   /* least data blocks of a super block; a power of two */
    uint64_t first_elements; /* elements of the first data block; a power of two */
    uint64_t page_elements;
    unsigned n_super;       /* super blocks that there can be */
    unsigned n_direct;      /* of them so many have their data blocks in the index block */
    size_t offset_bytes;    /* width of the offset in super and data blocks */
    uint64_t max_set;       /* no element of this number or above was ever set */
    uint64_t block_address; /* of the index block; NO_ADDRESS: nothing was ever stored */
    struct block *block;    /* the index block */
    size_t elements_at;     /* in it */
    size_t data_blocks_at;  /* in it: addresses */
    size_t super_blocks_at; /* in it: addresses */
};

/* ---- Geometry of super block u ---- */

static uint64_t blocks_of(unsigned u)
{
    return (uint64_t)1 << u / 2;
}

static uint64_t elements_per_block(const struct extensible_array *array, unsigned u)
{
    return array->first_elements << (u + 1) / 2;
}

/* Number of its first element, not counting those in the index block. */
static uint64_t first_element_of(const struct extensible_array *array, unsigned u)
{
    return array->first_elements * (((uint64_t)1 << u) - 1);
}

/* Number of its first data block among all. */
static uint64_t first_block_of(unsigned u)
{
    return ((uint64_t)1 << (u + 1) / 2) + ((uint64_t)1 << u / 2) - 2;
}

/* 0: its data blocks are not paged. */
static uint64_t pages_per_block(const struct extensible_array *array, unsigned u)
{
    uint64_t n = elements_per_block(array, u);
    return n > array->page_elements ? n / array->page_elements : 0;
}

/* ---- Opening ---- */

static int find_unlimited(const struct index *index, int *unlimited, struct why *why)
{
    int n = 0;
    for (int i = 0; i < index->rank; i++)
        if (index->max_chunks[i] == SFS_UNLIMITED) {
            *unlimited = i;
            n++;
        }
    if (n != 1)
        return why_damaged(why, HEADER " at address %" PRIu64 ": %d axes are unlimited",
                           index->address, n);
    return 0;
}

static int header_damaged(const struct index *index, const char *field, uint64_t value,
                          struct why *why)
{
    return why_damaged(why, HEADER " at address %" PRIu64 ": %s %" PRIu64, index->address, field,
                       value);
}

static bool is_power_of_two(uint64_t x)
{
    return x != 0 && (x & (x - 1)) == 0;
}

/* What the parameters of the header make of it. */
static int derive(const struct index *index, struct extensible_array *array, unsigned page_bits,
                  struct why *why)
{
    if (array->max_bits < 1 || array->max_bits > MOST_BITS)
        return header_damaged(index, "bits of the number of elements", array->max_bits, why);
    if (!is_power_of_two(array->first_elements) ||
        floor_log2(array->first_elements) > array->max_bits)
        return header_damaged(index, "least elements of a data block", array->first_elements, why);
    array->n_super = 1 + array->max_bits - floor_log2(array->first_elements);
    array->n_direct = 2 * floor_log2(array->first_blocks);
    if (array->first_blocks < 2 || !is_power_of_two(array->first_blocks) ||
        array->n_direct > array->n_super)
        return header_damaged(index, "least data blocks of a super block", array->first_blocks,
                              why);
    /* Data blocks on the index block have no bitmap, so they must not be paged. */
    if (page_bits > 31)
        return header_damaged(index, "page bits", page_bits, why);
    array->page_elements = (uint64_t)1 << page_bits;
    if (pages_per_block(array, array->n_direct - 1) != 0)
        return header_damaged(index, "page bits", page_bits, why);
    uint64_t most = array->in_index_block + first_element_of(array, array->n_super);
    if (array->max_set > most)
        return header_damaged(index, "highest element", array->max_set, why);
    array->offset_bytes = (array->max_bits + 7) / 8;
    return 0;
}

static int read_header(struct index *index, struct extensible_array *array, struct why *why)
{
    const struct superblock *superblock = index->superblock;
    unsigned length_size = superblock->length_size;
    size_t size =
        INDEX_BEGIN_BYTES + 6 + 6 * length_size + superblock->offset_size + CHECKSUM_BYTES;
    struct block *block;
    struct cursor c;
    int error = block_read(index->store, &header_kind, index->address, size, size, &block, why);
    if (error)
        return error;
    error =
        index_begin(HEADER, block->address, block->bytes, block->n, index->format.form, &c, why);
    size_t element = (size_t)cursor_uint(&c, 1);
    array->max_bits = (unsigned)cursor_uint(&c, 1);
    array->in_index_block = (unsigned)cursor_uint(&c, 1);
    array->first_elements = cursor_uint(&c, 1);
    array->first_blocks = (unsigned)cursor_uint(&c, 1);
    unsigned page_bits = (unsigned)cursor_uint(&c, 1);
    cursor_skip(&c, 4 * length_size); /* how many super and data blocks, and their bytes */
    array->max_set = cursor_uint(&c, length_size);
    cursor_skip(&c, length_size); /* how many elements have a place */
    array->block_address = superblock_address(superblock, &c);
    block_put(block);
    if (error)
        return error;
    if (c.failed)
        return header_damaged(index, "address of its index block", 0, why);
    if (element != array->element)
        return header_damaged(index, "element size", element, why);
    return derive(index, array, page_bits, why);
}

static int read_index_block(struct index *index, struct extensible_array *array, struct why *why)
{
    size_t address_bytes = index->superblock->offset_size;
    array->elements_at = INDEX_BEGIN_BYTES + address_bytes;
    array->data_blocks_at = array->elements_at + array->in_index_block * array->element;
    array->super_blocks_at = array->data_blocks_at + 2 * (array->first_blocks - 1) * address_bytes;
    size_t size = array->super_blocks_at + (array->n_super - array->n_direct) * address_bytes +
                  CHECKSUM_BYTES;
    int error = block_read(index->store, &index_block_kind, array->block_address, size, size,
                           &array->block, why);
    struct cursor c;
    if (!error)
        error = index_begin_block(index, index_block_kind.name, array->block, &c, why);
    return error;
}

static int extensible_array_open(struct index *index, const struct layout_message *layout,
                                 struct why *why)
{
    (void)layout; /* the header has all parameters, under a checksum */
    struct extensible_array *array = calloc(1, sizeof(*array));
    if (!array)
        return -ENOMEM;
    index->kind = array;
    array->element = chunk_record_element(&index->format, index->superblock);
    array->block_address = NO_ADDRESS;
    int error = find_unlimited(index, &array->unlimited, why);
    if (error || index->address == NO_ADDRESS)
        return error;
    error = read_header(index, array, why);
    if (error || array->block_address == NO_ADDRESS)
        return error;
    return read_index_block(index, array, why);
}

static void extensible_array_close(struct index *index)
{
    struct extensible_array *array = index->kind;
    block_put(array->block);
    free(array);
}

/* ---- Blocks ---- */

static int address_in(const struct index *index, const struct block *block, size_t offset,
                      uint64_t *address, struct why *why)
{
    struct cursor c = cursor_over(block->bytes, block->n);
    cursor_skip(&c, offset);
    *address = superblock_address(index->superblock, &c);
    if (c.failed)
        return why_damaged(
            why, "block of an extensible array at address %" PRIu64 ": address of a block in it",
            block->address);
    return 0;
}

/* Where in a super or data block its own part begins. */
static size_t behind_offset(const struct index *index, const struct extensible_array *array)
{
    return INDEX_BEGIN_BYTES + index->superblock->offset_size + array->offset_bytes;
}

static uint64_t bitmap_bytes(const struct extensible_array *array, unsigned u)
{
    return blocks_of(u) * ((pages_per_block(array, u) + 7) / 8);
}

/* Super block u >= n_direct; *block is NULL if it is not there. */
static int get_super_block(struct index *index, unsigned u, struct block **block, struct why *why)
{
    const struct extensible_array *array = index->kind;
    size_t address_bytes = index->superblock->offset_size;
    uint64_t address;
    *block = NULL;
    int error =
        address_in(index, array->block,
                   array->super_blocks_at + (u - array->n_direct) * address_bytes, &address, why);
    if (error || address == NO_ADDRESS)
        return error;
    uint64_t size = behind_offset(index, array) + bitmap_bytes(array, u) +
                    blocks_of(u) * address_bytes + CHECKSUM_BYTES;
    error =
        block_get(&index->cache, index->store, &super_block_kind, address, size, size, block, why);
    if (error)
        return error;
    struct cursor c;
    error = index_begin_block(index, super_block_kind.name, *block, &c, why);
    if (!error && cursor_uint(&c, (unsigned)array->offset_bytes) != first_element_of(array, u))
        error = why_damaged(why, "%s at address %" PRIu64 ": its offset is that of another",
                            super_block_kind.name, address);
    if (error) {
        block_put(*block);
        *block = NULL;
    }
    return error;
}

/* Address of data block t of super block u, whose structure is super, or NULL for the first few. */
static int data_block_address(const struct index *index, unsigned u, uint64_t t,
                              const struct block *super, uint64_t *address, struct why *why)
{
    const struct extensible_array *array = index->kind;
    size_t address_bytes = index->superblock->offset_size;
    if (!super)
        return address_in(index, array->block,
                          array->data_blocks_at + (size_t)(first_block_of(u) + t) * address_bytes,
                          address, why);
    return address_in(index, super,
                      behind_offset(index, array) + (size_t)bitmap_bytes(array, u) +
                          (size_t)t * address_bytes,
                      address, why);
}

/* Its elements begin behind_offset. */
static int get_data_block(struct index *index, unsigned u, uint64_t address, struct block **block,
                          struct why *why)
{
    const struct extensible_array *array = index->kind;
    uint64_t elements = pages_per_block(array, u) ? 0 : elements_per_block(array, u);
    uint64_t size = behind_offset(index, array) + elements * array->element + CHECKSUM_BYTES;
    struct block *found;
    struct cursor c;
    int error =
        block_get(&index->cache, index->store, &data_block_kind, address, size, size, &found, why);
    if (error)
        return error;
    error = index_begin_block(index, data_block_kind.name, found, &c, why);
    if (error) {
        block_put(found);
        return error;
    }
    *block = found;
    return 0;
}

static bool page_is_set(const struct index *index, const struct block *super, unsigned u,
                        uint64_t t, uint64_t page)
{
    const struct extensible_array *array = index->kind;
    uint64_t bit = t * pages_per_block(array, u) + page;
    return (super->bytes[behind_offset(index, array) + bit / 8] & 0x80 >> bit % 8) != 0;
}

/* A page of the data block at address. Its elements are the first bytes of the block. */
static int get_page(struct index *index, uint64_t address, uint64_t page, struct block **block,
                    struct why *why)
{
    const struct extensible_array *array = index->kind;
    uint64_t size = array->page_elements * array->element + CHECKSUM_BYTES;
    uint64_t before = behind_offset(index, array) + CHECKSUM_BYTES + page * size;
    if (__builtin_add_overflow(address, before, &address))
        return why_damaged(why, "%s: its address exceeds 64 bits", page_kind.name);
    return block_get(&index->cache, index->store, &page_kind, address, size, size, block, why);
}

/* ---- Lookup ---- */

/* False: there cannot be an element with that number. */
static bool number_of(const struct index *index, const uint64_t *scaled, uint64_t *number)
{
    const struct extensible_array *array = index->kind;
    uint64_t i = scaled[array->unlimited];
    for (int axis = 0; axis < index->rank; axis++)
        if (axis != array->unlimited && (__builtin_mul_overflow(i, index->max_chunks[axis], &i) ||
                                         __builtin_add_overflow(i, scaled[axis], &i)))
            return false;
    *number = i;
    return i < array->max_set;
}

/* Element e of data block t of super block u. */
static int look_into_data_block(struct index *index, unsigned u, uint64_t t, uint64_t e,
                                const struct block *super, struct chunk_record *record,
                                struct why *why)
{
    const struct extensible_array *array = index->kind;
    bool paged = pages_per_block(array, u) != 0;
    uint64_t address;
    int error = data_block_address(index, u, t, super, &address, why);
    if (error || address == NO_ADDRESS ||
        (paged && !page_is_set(index, super, u, t, e / array->page_elements)))
        return error;
    struct block *block;
    size_t at;
    if (paged) {
        error = get_page(index, address, e / array->page_elements, &block, why);
        at = (size_t)(e % array->page_elements) * array->element;
    } else {
        error = get_data_block(index, u, address, &block, why);
        at = behind_offset(index, array) + (size_t)e * array->element;
    }
    if (error)
        return error;
    error = index_element(index, block, at, record, why);
    block_put(block);
    return error;
}

static int extensible_array_lookup(struct index *index, const uint64_t *scaled,
                                   struct chunk_record *record, struct why *why)
{
    const struct extensible_array *array = index->kind;
    uint64_t i;
    if (array->block_address == NO_ADDRESS || !number_of(index, scaled, &i))
        return 0;
    if (i < array->in_index_block)
        return index_element(index, array->block, array->elements_at + (size_t)i * array->element,
                             record, why);
    i -= array->in_index_block;
    unsigned u = floor_log2(i / array->first_elements + 1);
    i -= first_element_of(array, u);
    struct block *super = NULL;
    if (u >= array->n_direct) {
        int error = get_super_block(index, u, &super, why);
        if (error || !super)
            return error;
    }
    uint64_t n = elements_per_block(array, u);
    int error = look_into_data_block(index, u, i / n, i % n, super, record, why);
    block_put(super);
    return error;
}

/* ---- Iteration ---- */

struct walk {
    struct index *index;
    index_each_function each;
    void *context;
    uint64_t budget; /* bytes that blocks may still have */
    struct why *why;
};

static void coordinates_of(const struct index *index, uint64_t number, uint64_t *scaled)
{
    const struct extensible_array *array = index->kind;
    for (int axis = index->rank - 1; axis >= 0; axis--) {
        if (axis == array->unlimited)
            continue;
        scaled[axis] = number % index->max_chunks[axis];
        number /= index->max_chunks[axis];
    }
    scaled[array->unlimited] = number;
}

/* n elements of a block, of which the first is number first of the array. */
static int walk_elements(struct walk *walk, const struct block *block, size_t at, uint64_t first,
                         uint64_t n)
{
    const struct extensible_array *array = walk->index->kind;
    int result = 0;
    for (uint64_t i = 0; !result && i < n && first + i < array->max_set; i++) {
        struct chunk_record record;
        result =
            index_element(walk->index, block, at + (size_t)i * array->element, &record, walk->why);
        if (result || !record.exists)
            continue;
        uint64_t scaled[SFS_MAX_RANK];
        coordinates_of(walk->index, first + i, scaled);
        result = walk->each(walk->context, scaled, &record);
    }
    return result;
}

static int walk_data_block(struct walk *walk, unsigned u, uint64_t t, const struct block *super)
{
    struct index *index = walk->index;
    const struct extensible_array *array = index->kind;
    uint64_t n_pages = pages_per_block(array, u), n = elements_per_block(array, u);
    uint64_t first = array->in_index_block + first_element_of(array, u) + t * n;
    uint64_t address;
    struct block *block;
    int result = data_block_address(index, u, t, super, &address, walk->why);
    if (result || address == NO_ADDRESS || first >= array->max_set)
        return result;
    result = get_data_block(index, u, address, &block, walk->why);
    if (result)
        return result;
    uint64_t in_pages = n_pages * (array->page_elements * array->element + CHECKSUM_BYTES);
    result =
        index_spend(data_block_kind.name, address, block->n + in_pages, &walk->budget, walk->why);
    if (!result && n_pages == 0)
        result = walk_elements(walk, block, behind_offset(index, array), first, n);
    block_put(block);
    for (uint64_t page = 0; !result && page < n_pages; page++) {
        if (!page_is_set(index, super, u, t, page))
            continue;
        result = get_page(index, address, page, &block, walk->why);
        if (result)
            break;
        result = walk_elements(walk, block, 0, first + page * array->page_elements,
                               array->page_elements);
        block_put(block);
    }
    return result;
}

static int walk_super_block(struct walk *walk, unsigned u)
{
    const struct extensible_array *array = walk->index->kind;
    struct block *super = NULL;
    int result = 0;
    if (u >= array->n_direct) {
        result = get_super_block(walk->index, u, &super, walk->why);
        if (result || !super)
            return result;
        result =
            index_spend(super_block_kind.name, super->address, super->n, &walk->budget, walk->why);
    }
    for (uint64_t t = 0; !result && t < blocks_of(u); t++)
        result = walk_data_block(walk, u, t, super);
    block_put(super);
    return result;
}

static int extensible_array_iterate(struct index *index, index_each_function each, void *context,
                                    struct why *why)
{
    const struct extensible_array *array = index->kind;
    if (array->block_address == NO_ADDRESS)
        return 0;
    struct walk walk = {index, each, context, store_size(index->store), why};
    int result = walk_elements(&walk, array->block, array->elements_at, 0, array->in_index_block);
    for (unsigned u = 0; !result && u < array->n_super; u++)
        result = walk_super_block(&walk, u);
    return result;
}

const struct index_ops index_extensible_array = {
    .open = extensible_array_open,
    .close = extensible_array_close,
    .lookup = extensible_array_lookup,
    .iterate = extensible_array_iterate,
};
