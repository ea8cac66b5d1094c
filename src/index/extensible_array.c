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

#include "index/extensible_array.h"
#include "store/store.h"

#define MOST_BITS      32                   /* of an element's number, as in all datasets */
#define MOST_ELSEWHERE ((uint64_t)64 << 20) /* bytes; in a walk, as other programs may count */

const struct block_kind earray_header_kind = {EARRAY_HEADER, "EAHD", 1};
const struct block_kind earray_index_block_kind = {"extensible array index block", "EAIB", 0};
const struct block_kind earray_super_block_kind = {"extensible array super block", "EASB", 0};
const struct block_kind earray_data_block_kind = {"extensible array data block", "EADB", 0};
const struct block_kind earray_page_kind = {"extensible array page", NULL, 0};

/* ---- Opening ---- */

static int check_unlimited(const struct index *index, struct why *why)
{
    int n = 0;
    for (int i = 0; i < index->rank; i++)
        n += index->max_chunks[i] == SFS_UNLIMITED;
    if (n != 1)
        return why_damaged(why, EARRAY_HEADER " at address %" PRIu64 ": %d axes are unlimited",
                           index->address, n);
    return 0;
}

static int header_damaged(const struct index *index, const char *field, uint64_t value,
                          struct why *why)
{
    return why_damaged(why, EARRAY_HEADER " at address %" PRIu64 ": %s %" PRIu64, index->address,
                       field, value);
}

static bool is_power_of_two(uint64_t x)
{
    return x != 0 && (x & (x - 1)) == 0;
}

/* What follows from the parameters for the index block. */
static void lay_out_index_block(const struct index *index, struct extensible_array *array)
{
    size_t address_bytes = index->superblock->offset_size;
    array->elements_at = INDEX_BEGIN_BYTES + address_bytes;
    array->data_blocks_at = array->elements_at + array->in_index_block * array->element;
    array->super_blocks_at = array->data_blocks_at + 2 * (array->first_blocks - 1) * address_bytes;
    array->block_bytes = array->super_blocks_at +
                         (array->n_super - array->n_direct) * address_bytes + CHECKSUM_BYTES;
}

int earray_derive(const struct index *index, struct extensible_array *array, struct why *why)
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
    if (array->page_bits > 31)
        return header_damaged(index, "page bits", array->page_bits, why);
    array->page_elements = (uint64_t)1 << array->page_bits;
    if (earray_pages_per_block(array, array->n_direct - 1) != 0)
        return header_damaged(index, "page bits", array->page_bits, why);
    uint64_t most = array->in_index_block + earray_first_element(array, array->n_super);
    if (array->max_set > most)
        return header_damaged(index, "highest element", array->max_set, why);
    array->offset_bytes = (array->max_bits + 7) / 8;
    lay_out_index_block(index, array);
    return 0;
}

size_t earray_header_bytes(const struct superblock *superblock)
{
    return INDEX_BEGIN_BYTES + 6 + 6 * superblock->length_size + superblock->offset_size +
           CHECKSUM_BYTES;
}

static int read_header(struct index *index, struct extensible_array *array, struct why *why)
{
    const struct superblock *superblock = index->superblock;
    unsigned length_size = superblock->length_size;
    size_t size = earray_header_bytes(superblock);
    const struct block_place place = {&earray_header_kind, index->address, size, size};
    struct block *block;
    struct cursor c;
    int error = block_read(index->store, &place, &block, why);
    if (error)
        return error;
    error = index_begin_header(index, block, index->format.form, &c, why);
    size_t element = (size_t)cursor_uint(&c, 1);
    array->max_bits = (unsigned)cursor_uint(&c, 1);
    array->in_index_block = (unsigned)cursor_uint(&c, 1);
    array->first_elements = cursor_uint(&c, 1);
    array->first_blocks = (unsigned)cursor_uint(&c, 1);
    array->page_bits = (unsigned)cursor_uint(&c, 1);
    array->super_blocks = cursor_uint(&c, length_size);
    array->super_block_bytes = cursor_uint(&c, length_size);
    array->data_blocks = cursor_uint(&c, length_size);
    array->data_block_bytes = cursor_uint(&c, length_size);
    array->max_set = cursor_uint(&c, length_size);
    array->realised = cursor_uint(&c, length_size);
    array->block_address = superblock_address(superblock, &c);
    block_put(block);
    if (error)
        return error;
    if (c.failed)
        return header_damaged(index, "address of its index block", 0, why);
    if (element != array->element)
        return header_damaged(index, "element size", element, why);
    return earray_derive(index, array, why);
}

static int read_index_block(struct index *index, struct extensible_array *array, struct why *why)
{
    const struct block_place place = {&earray_index_block_kind, array->block_address,
                                      array->block_bytes, array->block_bytes};
    int error = block_read(index->store, &place, &array->block, why);
    struct cursor c;
    if (!error)
        error = index_begin_block(index, array->block, &c, why);
    return error;
}

static int extensible_array_open(struct index *index, const struct layout_message *layout,
                                 struct why *why)
{
    struct extensible_array *array = calloc(1, sizeof(*array));
    if (!array)
        return -ENOMEM;
    index->kind = array;
    array->element = chunk_record_element(&index->format, index->superblock);
    array->block_address = NO_ADDRESS;
    /* The header, if there is one, has all parameters, too, under a checksum. */
    array->max_bits = layout->max_bits;
    array->in_index_block = layout->index_block_elements;
    array->first_elements = layout->data_block_min_elements;
    array->first_blocks = layout->super_block_min_blocks;
    array->page_bits = layout->data_page_bits;
    int error = check_unlimited(index, why);
    if (error || index->address == NO_ADDRESS)
        return error;
    error = read_header(index, array, why);
    if (error || array->block_address == NO_ADDRESS)
        return error;
    return read_index_block(index, array, why);
}

static void extensible_array_tell(const struct index *index, struct layout_message *layout)
{
    const struct extensible_array *array = index->kind;
    layout->max_bits = array->max_bits;
    layout->index_block_elements = array->in_index_block;
    layout->data_block_min_elements = (unsigned)array->first_elements;
    layout->super_block_min_blocks = array->first_blocks;
    layout->data_page_bits = array->page_bits;
}

static void extensible_array_close(struct index *index)
{
    struct extensible_array *array = index->kind;
    block_put(array->block);
    free(array);
}

/* ---- Blocks ---- */

int earray_address_in(const struct index *index, const struct block *block, size_t at,
                      uint64_t *address, struct why *why)
{
    struct cursor c = cursor_over(block->bytes, block->n);
    cursor_skip(&c, at);
    *address = superblock_address(index->superblock, &c);
    if (c.failed)
        return why_damaged(
            why, "block of an extensible array at address %" PRIu64 ": address of a block in it",
            block->address);
    return 0;
}

uint64_t earray_super_block_bytes(const struct index *index, unsigned u)
{
    const struct extensible_array *array = index->kind;
    return earray_behind_offset(index, array) + earray_bitmap_bytes(array, u) +
           earray_blocks(u) * index->superblock->offset_size + CHECKSUM_BYTES;
}

size_t earray_super_block_at(const struct index *index, unsigned u)
{
    const struct extensible_array *array = index->kind;
    return array->super_blocks_at + (u - array->n_direct) * index->superblock->offset_size;
}

int earray_get_super_block(struct index *index, unsigned u, struct block **block, struct why *why)
{
    const struct extensible_array *array = index->kind;
    uint64_t address, size = earray_super_block_bytes(index, u);
    *block = NULL;
    int error =
        earray_address_in(index, array->block, earray_super_block_at(index, u), &address, why);
    if (error || address == NO_ADDRESS)
        return error;
    error = block_get(index, &(struct block_place){&earray_super_block_kind, address, size, size},
                      block, why);
    if (error)
        return error;
    struct cursor c;
    error = index_begin_block(index, *block, &c, why);
    if (!error && cursor_uint(&c, (unsigned)array->offset_bytes) != earray_first_element(array, u))
        error = why_damaged(why, "%s at address %" PRIu64 ": its offset is that of another",
                            earray_super_block_kind.name, address);
    if (error) {
        block_put(*block);
        *block = NULL;
    }
    return error;
}

size_t earray_data_block_at(const struct index *index, unsigned u, uint64_t t)
{
    const struct extensible_array *array = index->kind;
    size_t address_bytes = index->superblock->offset_size;
    if (u < array->n_direct)
        return array->data_blocks_at + (size_t)(earray_first_block(u) + t) * address_bytes;
    return earray_behind_offset(index, array) + (size_t)earray_bitmap_bytes(array, u) +
           (size_t)t * address_bytes;
}

/* Address of data block t of super block u, whose structure is super, or NULL for the first few. */
static int data_block_address(const struct index *index, unsigned u, uint64_t t,
                              const struct block *super, uint64_t *address, struct why *why)
{
    const struct extensible_array *array = index->kind;
    return earray_address_in(index, super ? super : array->block, earray_data_block_at(index, u, t),
                             address, why);
}

uint64_t earray_data_block_bytes(const struct index *index, unsigned u)
{
    const struct extensible_array *array = index->kind;
    uint64_t elements = earray_pages_per_block(array, u) ? 0 : earray_elements_per_block(array, u);
    return earray_behind_offset(index, array) + elements * array->element + CHECKSUM_BYTES;
}

/* libhdf5 counts the first few among all data blocks, the others within their super block. */
uint64_t earray_data_block_offset(const struct extensible_array *array, unsigned u, uint64_t t)
{
    uint64_t before = u < array->n_direct ? earray_first_block(u) + t : t;
    return earray_first_element(array, u) + before * earray_elements_per_block(array, u);
}

int earray_get_data_block(struct index *index, unsigned u, uint64_t address, struct block **block,
                          struct why *why)
{
    uint64_t size = earray_data_block_bytes(index, u);
    const struct block_place place = {&earray_data_block_kind, address, size, size};
    struct block *found;
    struct cursor c;
    int error = block_get(index, &place, &found, why);
    if (error)
        return error;
    error = index_begin_block(index, found, &c, why);
    if (error) {
        block_put(found);
        return error;
    }
    *block = found;
    return 0;
}

size_t earray_page_bit(const struct index *index, unsigned u, uint64_t t, uint64_t page,
                       unsigned char *mask)
{
    const struct extensible_array *array = index->kind;
    uint64_t bit = t * earray_pages_per_block(array, u) + page;
    *mask = (unsigned char)(0x80 >> bit % 8);
    return earray_behind_offset(index, array) + (size_t)(bit / 8);
}

static bool page_is_set(const struct index *index, const struct block *super, unsigned u,
                        uint64_t t, uint64_t page)
{
    unsigned char mask;
    size_t at = earray_page_bit(index, u, t, page, &mask);
    return (super->bytes[at] & mask) != 0;
}

int earray_page_address(const struct index *index, uint64_t data_block, uint64_t page,
                        uint64_t *address, struct why *why)
{
    const struct extensible_array *array = index->kind;
    uint64_t before =
        earray_behind_offset(index, array) + CHECKSUM_BYTES + page * earray_page_bytes(array);
    if (__builtin_add_overflow(data_block, before, address))
        return why_damaged(why, "%s: its address exceeds 64 bits", earray_page_kind.name);
    return 0;
}

int earray_get_page(struct index *index, uint64_t data_block, uint64_t page, struct block **block,
                    struct why *why)
{
    uint64_t size = earray_page_bytes(index->kind);
    struct block_place place = {&earray_page_kind, 0, size, size};
    int error = earray_page_address(index, data_block, page, &place.address, why);
    return error ? error : block_get(index, &place, block, why);
}

/* ---- Lookup ---- */

struct earray_place earray_place(const struct extensible_array *array, uint64_t number)
{
    uint64_t i = number - array->in_index_block;
    unsigned u = floor_log2(i / array->first_elements + 1);
    uint64_t n = earray_elements_per_block(array, u);
    i -= earray_first_element(array, u);
    return (struct earray_place){
        .super = u,
        .block = i / n,
        .element = i % n,
        .page = i % n / array->page_elements,
        .page_element = i % n % array->page_elements,
    };
}

static int look_into_data_block(struct index *index, const struct earray_place *place,
                                const struct block *super, struct chunk_record *record,
                                struct why *why)
{
    const struct extensible_array *array = index->kind;
    unsigned u = place->super;
    bool paged = earray_pages_per_block(array, u) != 0;
    uint64_t address;
    int error = data_block_address(index, u, place->block, super, &address, why);
    if (error || address == NO_ADDRESS ||
        (paged && !page_is_set(index, super, u, place->block, place->page)))
        return error;
    struct block *block;
    size_t at;
    if (paged) {
        error = earray_get_page(index, address, place->page, &block, why);
        at = (size_t)place->page_element * array->element;
    } else {
        error = earray_get_data_block(index, u, address, &block, why);
        at = earray_behind_offset(index, array) + (size_t)place->element * array->element;
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
    if (array->block_address == NO_ADDRESS || !index_own_number(index, scaled, &i) ||
        i >= array->max_set)
        return 0;
    if (i < array->in_index_block)
        return index_element(index, array->block, array->elements_at + (size_t)i * array->element,
                             record, why);
    struct earray_place place = earray_place(array, i);
    struct block *super = NULL;
    if (place.super >= array->n_direct) {
        int error = earray_get_super_block(index, place.super, &super, why);
        if (error || !super)
            return error;
    }
    int error = look_into_data_block(index, &place, super, record, why);
    block_put(super);
    return error;
}

/* ---- Iteration ---- */

struct walk {
    struct index *index;
    index_each_function each; /* of these one is NULL */
    index_block_function each_block;
    void *context;
    uint64_t first, end;            /* each: only elements from this number to before that */
    uint64_t budget;                /* bytes that blocks may still have, */
    uint64_t elsewhere;             /* and had that say that they are in another place */
    struct extensible_array counts; /* its statistics, of the blocks that were met */
    uint64_t steps;                 /* index_step */
    struct why *why;
};

/* Those of n elements of a block that the walk is to tell of, of which the first is number first of
 * the array. */
static int walk_elements(struct walk *walk, const struct block *block, size_t at, uint64_t first,
                         uint64_t n)
{
    const struct extensible_array *array = walk->index->kind;
    int result = 0;
    for (uint64_t i = walk->first > first ? walk->first - first : 0;
         !result && i < n && first + i < walk->end; i++) {
        struct chunk_record record = {0};
        result = index_step(&walk->steps);
        if (!result)
            result = index_element(walk->index, block, at + (size_t)i * array->element, &record,
                                   walk->why);
        if (result || !record.exists)
            continue;
        uint64_t scaled[SFS_MAX_RANK];
        index_coordinates(walk->index, first + i, scaled);
        result = walk->each(walk->context, scaled, &record);
    }
    return result;
}

/* Counts a block whose first element has the number `first`. A walk that resumes inside of a block
 * has counted it before. */
static int spend(struct walk *walk, const char *name, uint64_t address, uint64_t bytes,
                 uint64_t first)
{
    return first < walk->first ? 0 : index_spend(name, address, bytes, &walk->budget, walk->why);
}

/* Whether none of n elements is in the range. */
static bool is_passed_over(const struct walk *walk, uint64_t first, uint64_t n)
{
    return walk->each && (first >= walk->end || (walk->first > first && walk->first - first >= n));
}

/* Whether a data block says that it is where it was found. How the first few are counted makes no difference to
 * reading. */
static bool is_in_place(const struct index *index, const struct block *block, unsigned u,
                        uint64_t t)
{
    const struct extensible_array *array = index->kind;
    const size_t n = array->offset_bytes;
    struct cursor c = cursor_over(block->bytes + earray_behind_offset(index, array) - n, n);
    uint64_t all = UINT64_MAX >> (64 - 8 * n), offset = cursor_uint(&c, (unsigned)n);
    uint64_t right = earray_first_element(array, u) + t * earray_elements_per_block(array, u);
    return offset == (earray_data_block_offset(array, u, t) & all) || offset == (right & all);
}

/* A block that is in many places would have a walk without an end, where a file says that it is larger than any disk.
 * libhdf5 does not look at what it says, so that other programs may have written anything there: but for so many
 * bytes of blocks, each counts where it says that it is. */
static int spend_elsewhere(struct walk *walk, const struct block *block, uint64_t bytes, unsigned u,
                           uint64_t t)
{
    if (is_in_place(walk->index, block, u, t))
        return 0;
    if (bytes > MOST_ELSEWHERE - walk->elsewhere)
        return why_damaged(walk->why, "%s at address %" PRIu64 ": its offset is that of another",
                           earray_data_block_kind.name, block->address);
    walk->elsewhere += bytes;
    return 0;
}

static int walk_data_block(struct walk *walk, unsigned u, uint64_t t, const struct block *super)
{
    struct index *index = walk->index;
    const struct extensible_array *array = index->kind;
    uint64_t n_pages = earray_pages_per_block(array, u), n = earray_elements_per_block(array, u);
    uint64_t first = array->in_index_block + earray_first_element(array, u) + t * n;
    uint64_t address;
    struct block *block;
    int result = index_step(&walk->steps);
    if (!result)
        result = data_block_address(index, u, t, super, &address, walk->why);
    if (result || address == NO_ADDRESS || is_passed_over(walk, first, n))
        return result;
    result = earray_get_data_block(index, u, address, &block, walk->why);
    if (result)
        return result;
    uint64_t in_pages = n_pages * earray_page_bytes(array);
    result = spend_elsewhere(walk, block, block->n + in_pages, u, t);
    if (!result)
        result = spend(walk, earray_data_block_kind.name, address, block->n + in_pages, first);
    if (walk->each_block) {
        walk->counts.data_blocks++;
        walk->counts.data_block_bytes += block->n + in_pages;
        walk->counts.realised += n;
        if (!result)
            result = walk->each_block(walk->context, earray_data_block_kind.name, address,
                                      block->n + in_pages);
        block_put(block);
        return result;
    }
    if (!result && n_pages == 0)
        result = walk_elements(walk, block, earray_behind_offset(index, array), first, n);
    block_put(block);
    for (uint64_t page = 0; !result && page < n_pages; page++) {
        result = index_step(&walk->steps);
        if (result)
            break;
        if (!page_is_set(index, super, u, t, page) ||
            is_passed_over(walk, first + page * array->page_elements, array->page_elements))
            continue;
        result = earray_get_page(index, address, page, &block, walk->why);
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
    uint64_t first = array->in_index_block + earray_first_element(array, u);
    int result = 0;
    if (is_passed_over(walk, first, earray_blocks(u) * earray_elements_per_block(array, u)))
        return 0;
    if (u >= array->n_direct) {
        result = earray_get_super_block(walk->index, u, &super, walk->why);
        if (result || !super)
            return result;
        result = spend(walk, earray_super_block_kind.name, super->address, super->n, first);
        walk->counts.super_blocks++;
        walk->counts.super_block_bytes += super->n;
        if (!result && walk->each_block)
            result = walk->each_block(walk->context, earray_super_block_kind.name, super->address,
                                      super->n);
    }
    for (uint64_t t = 0; !result && t < earray_blocks(u); t++)
        result = walk_data_block(walk, u, t, super);
    block_put(super);
    return result;
}

/* The numbers of what is in a range; more than 64 bits count are behind all that there is. */
static void set_range(struct walk *walk, const struct index_range *range)
{
    struct index *index = walk->index;
    const struct extensible_array *array = index->kind;
    uint64_t last[SFS_MAX_RANK] = {0}, number;
    for (int axis = 0; axis < index->rank; axis++)
        last[axis] = range->last[axis] < index->max_chunks[axis] ? range->last[axis]
                                                                 : index->max_chunks[axis] - 1;
    if (index_own_number(index, last, &number) && number < array->max_set)
        walk->end = number + 1;
    if (!index_own_number(index, range->behind ? range->behind : range->first, &number))
        number = array->max_set;
    walk->first = range->behind ? number + 1 : number;
}

static int extensible_array_iterate(struct index *index, const struct index_range *range,
                                    index_each_function each, void *context, struct why *why)
{
    const struct extensible_array *array = index->kind;
    if (array->block_address == NO_ADDRESS)
        return 0;
    struct walk walk = {.index = index,
                        .each = each,
                        .context = context,
                        .end = array->max_set,
                        .budget = range ? *range->budget : store_size(index->store),
                        .why = why};
    if (range)
        set_range(&walk, range);
    int result = walk_elements(&walk, array->block, array->elements_at, 0, array->in_index_block);
    for (unsigned u = 0; !result && u < array->n_super; u++)
        result = walk_super_block(&walk, u);
    if (range)
        *range->budget = walk.budget;
    return result;
}

/* Whether the statistics in the header are those of what was met. */
static int check_counts(const struct index *index, const struct extensible_array *counts,
                        struct why *why)
{
    const struct extensible_array *array = index->kind;
    if (array->super_blocks != counts->super_blocks)
        return header_damaged(index, "number of super blocks", array->super_blocks, why);
    if (array->super_block_bytes != counts->super_block_bytes)
        return header_damaged(index, "bytes of super blocks", array->super_block_bytes, why);
    if (array->data_blocks != counts->data_blocks)
        return header_damaged(index, "number of data blocks", array->data_blocks, why);
    if (array->data_block_bytes != counts->data_block_bytes)
        return header_damaged(index, "bytes of data blocks", array->data_block_bytes, why);
    if (array->realised != counts->realised)
        return header_damaged(index, "number of elements", array->realised, why);
    return 0;
}

static int extensible_array_each_block(struct index *index, index_block_function each,
                                       void *context, struct why *why)
{
    const struct extensible_array *array = index->kind;
    struct walk walk = {.index = index,
                        .each_block = each,
                        .context = context,
                        .budget = store_size(index->store),
                        .why = why};
    int result =
        each(context, EARRAY_HEADER, index->address, earray_header_bytes(index->superblock));
    if (result || array->block_address == NO_ADDRESS)
        return result;
    walk.counts.realised = array->in_index_block;
    result = each(context, earray_index_block_kind.name, array->block_address, array->block_bytes);
    for (unsigned u = 0; !result && u < array->n_super; u++)
        result = walk_super_block(&walk, u);
    return result ? result : check_counts(index, &walk.counts, why);
}

static size_t extensible_array_kept(const struct index *index)
{
    const struct extensible_array *array = index->kind;
    return array->block ? array->block->n : 0;
}

const struct index_ops index_extensible_array = {
    .open = extensible_array_open,
    .close = extensible_array_close,
    .lookup = extensible_array_lookup,
    .iterate = extensible_array_iterate,
    .each_block = extensible_array_each_block,
    .can_hold = earray_can_hold,
    .insert = earray_insert,
    .remove = earray_remove,
    .make_header = earray_make_header,
    .encode_header = earray_encode_header,
    .tell = extensible_array_tell,
    .kept = extensible_array_kept,
};
