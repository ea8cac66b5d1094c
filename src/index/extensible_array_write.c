/* Writing the extensible array: blocks are made when the first of their elements is set. Each is
 * complete before the block above it points to it. */
#include <errno.h>
#include <inttypes.h>
#include <string.h>

#include "index/extensible_array.h"
#include "store/store.h"

enum { DATA_BLOCKS, SUPER_BLOCKS, INDEX_BLOCK }; /* heights of changed blocks */

void earray_encode_header(const struct index *index, struct output *output)
{
    const struct extensible_array *array = index->kind;
    unsigned length_size = index->superblock->length_size;
    index_put_begin(index, &earray_header_kind, index->format.form, output);
    output_uint(output, array->element, 1);
    output_uint(output, array->max_bits, 1);
    output_uint(output, array->in_index_block, 1);
    output_uint(output, array->first_elements, 1);
    output_uint(output, array->first_blocks, 1);
    output_uint(output, array->page_bits, 1);
    output_uint(output, array->super_blocks, length_size);
    output_uint(output, array->super_block_bytes, length_size);
    output_uint(output, array->data_blocks, length_size);
    output_uint(output, array->data_block_bytes, length_size);
    output_uint(output, array->max_set, length_size);
    output_uint(output, array->realised, length_size);
    superblock_put_address(index->superblock, output, array->block_address);
}

/* ---- Making blocks ---- */

static void put_address(const struct index *index, struct block *block, size_t at, uint64_t address)
{
    struct output output = output_over(block->bytes + at, block->n - at);
    superblock_put_address(index->superblock, &output, address);
}

int earray_make_header(struct index *index, struct why *why)
{
    if (index->address != NO_ADDRESS)
        return 0;
    int error = earray_derive(index, index->kind, why);
    if (error)
        return error;
    return header_allocate(index, &earray_header_kind, earray_header_bytes(index->superblock), why);
}

static int make_index_block(struct index *index, struct extensible_array *array, struct why *why)
{
    struct block *block;
    if (array->block_address != NO_ADDRESS)
        return 0;
    const struct block_place place = {&earray_index_block_kind, 0, array->block_bytes,
                                      array->block_bytes};
    int error = block_allocate(index, place, array->block_bytes, INDEX_BLOCK, &block, why);
    if (error)
        return error;
    index_put_begin_block(index, block);
    index_put_no_elements(index, block, array->elements_at, array->in_index_block);
    memset(block->bytes + array->data_blocks_at, 0xff,
           array->block_bytes - CHECKSUM_BYTES - array->data_blocks_at);
    array->block = block;
    array->block_address = block->address;
    array->realised += array->in_index_block;
    index->changes.header = true;
    return 0;
}

static int make_super_block(struct index *index, struct extensible_array *array, unsigned u,
                            struct block **super, struct why *why)
{
    uint64_t bytes = earray_super_block_bytes(index, u);
    const struct block_place place = {&earray_super_block_kind, 0, bytes, bytes};
    int error = block_change(index, array->block, INDEX_BLOCK, why);
    if (!error)
        error = block_allocate(index, place, bytes, SUPER_BLOCKS, super, why);
    if (error)
        return error;
    struct output output = index_put_begin_block(index, *super);
    output_uint(&output, earray_first_element(array, u), (unsigned)array->offset_bytes);
    size_t addresses_at = earray_data_block_at(index, u, 0);
    memset((*super)->bytes + addresses_at, 0xff, (*super)->n - CHECKSUM_BYTES - addresses_at);
    put_address(index, array->block, earray_super_block_at(index, u), (*super)->address);
    array->super_blocks++;
    array->super_block_bytes += bytes;
    index->changes.header = true;
    return 0;
}

/* The way to an element that is not in the index block. */
struct way {
    struct index *index;
    struct earray_place place;
    struct block *super; /* the super block; NULL for the first few data blocks, which have none */
    bool make;           /* what is missing on it */
    struct why *why;
};

/* Its data block, whose pages come into being one by one. */
static int make_data_block(const struct way *way, uint64_t *address)
{
    struct index *index = way->index;
    struct extensible_array *array = index->kind;
    unsigned u = way->place.super;
    uint64_t t = way->place.block;
    uint64_t n = earray_elements_per_block(array, u), bytes = earray_data_block_bytes(index, u);
    uint64_t n_pages = earray_pages_per_block(array, u);
    uint64_t whole = bytes + n_pages * earray_page_bytes(array);
    struct block_place place = {&earray_data_block_kind, 0, bytes, bytes};
    struct block *above = way->super ? way->super : array->block, *block;
    int error = block_change(index, above, way->super ? SUPER_BLOCKS : INDEX_BLOCK, way->why);
    if (!error)
        error = block_allocate(index, place, whole, DATA_BLOCKS, &block, way->why);
    if (error)
        return error;
    struct output output = index_put_begin_block(index, block);
    output_uint(&output, earray_data_block_offset(array, u, t), (unsigned)array->offset_bytes);
    if (n_pages == 0)
        index_put_no_elements(index, block, earray_behind_offset(index, array), n);
    *address = block->address;
    put_address(index, above, earray_data_block_at(index, u, t), block->address);
    block_put(block);
    array->data_blocks++;
    array->data_block_bytes += whole;
    array->realised += n;
    index->changes.header = true;
    return 0;
}

/* A page that was never written is made without reading what lies there. */
static int make_page(const struct way *way, uint64_t data_block, struct block **page)
{
    struct index *index = way->index;
    const struct extensible_array *array = index->kind;
    uint64_t bytes = earray_page_bytes(array);
    struct block_place place = {&earray_page_kind, 0, bytes, bytes};
    int error = earray_page_address(index, data_block, way->place.page, &place.address, way->why);
    if (!error)
        error = block_change(index, way->super, SUPER_BLOCKS, way->why);
    if (!error)
        error = block_make_changed(index, &place, DATA_BLOCKS, page, way->why);
    if (!error)
        index_put_no_elements(index, *page, 0, array->page_elements);
    return error;
}

/* ---- Finding an element's place ---- */

/* The page of an element, of a data block that is there; NULL if it is not there and must not be
 * made. */
static int reach_page(const struct way *way, uint64_t data_block, struct block **page)
{
    const struct earray_place *place = &way->place;
    unsigned char mask;
    size_t at = earray_page_bit(way->index, place->super, place->block, place->page, &mask);
    *page = NULL;
    if ((way->super->bytes[at] & mask) != 0)
        return earray_get_page(way->index, data_block, place->page, page, way->why);
    int error = way->make ? make_page(way, data_block, page) : 0;
    if (!error && *page)
        way->super->bytes[at] |= mask;
    return error;
}

/* The block or page in which an element stands, and where in it. */
static int reach_in_data_block(const struct way *way, struct block **block, size_t *at)
{
    struct index *index = way->index;
    const struct extensible_array *array = index->kind;
    const struct earray_place *place = &way->place;
    uint64_t address;
    int error = earray_address_in(index, way->super ? way->super : array->block,
                                  earray_data_block_at(index, place->super, place->block), &address,
                                  way->why);
    if (!error && address == NO_ADDRESS && way->make)
        error = make_data_block(way, &address);
    if (error || address == NO_ADDRESS)
        return error;
    if (earray_pages_per_block(array, place->super) > 0) {
        *at = (size_t)place->page_element * array->element;
        return reach_page(way, address, block);
    }
    *at = earray_behind_offset(index, array) + (size_t)place->element * array->element;
    return earray_get_data_block(index, place->super, address, block, way->why);
}

/* The same for any element; what is missing is made, or *block is NULL. The index block is there.
 */
static int reach(struct index *index, uint64_t number, bool make, struct block **block, size_t *at,
                 struct why *why)
{
    struct extensible_array *array = index->kind;
    *block = NULL;
    if (number < array->in_index_block) {
        *block = block_use(array->block);
        *at = array->elements_at + (size_t)number * array->element;
        return 0;
    }
    struct way way = {index, earray_place(array, number), NULL, make, why};
    unsigned u = way.place.super;
    if (u >= array->n_direct) {
        int error = earray_get_super_block(index, u, &way.super, why);
        if (!error && !way.super && make)
            error = make_super_block(index, array, u, &way.super, why);
        if (error || !way.super)
            return error;
    }
    int error = reach_in_data_block(&way, block, at);
    block_put(way.super);
    return error;
}

/* ---- Setting an element ---- */

/* record NULL: to that of a chunk that does not exist. */
static int set_element(struct index *index, uint64_t number, const struct chunk_record *record,
                       struct why *why)
{
    struct extensible_array *array = index->kind;
    struct block *block;
    size_t at = 0;
    int error = reach(index, number, record != NULL, &block, &at, why);
    if (error || !block)
        return error;
    error =
        block_change(index, block, number < array->in_index_block ? INDEX_BLOCK : DATA_BLOCKS, why);
    if (!error)
        error = index_put_element(index, block, at, record, why);
    block_put(block);
    return error;
}

bool earray_can_hold(const struct index *index, const uint64_t *scaled)
{
    const struct extensible_array *array = index->kind;
    uint64_t number;
    return index_own_number(index, scaled, &number) && number < index_most_elements(index) &&
           number >> array->max_bits == 0;
}

int earray_insert(struct index *index, const uint64_t *scaled, const struct chunk_record *record,
                  struct why *why)
{
    struct extensible_array *array = index->kind;
    uint64_t number = 0;
    if (!earray_can_hold(index, scaled))
        return why_refused(why, -EFBIG,
                           "extensible array at address %" PRIu64
                           ": a chunk's number exceeds what it can hold",
                           index->address);
    (void)index_own_number(index, scaled, &number);
    int error = earray_make_header(index, why);
    if (!error)
        error = make_index_block(index, array, why);
    if (!error)
        error = set_element(index, number, record, why);
    if (!error && number >= array->max_set) {
        array->max_set = number + 1;
        index->changes.header = true;
    }
    return error;
}

int earray_remove(struct index *index, const uint64_t *scaled, struct why *why)
{
    const struct extensible_array *array = index->kind;
    uint64_t number;
    if (array->block_address == NO_ADDRESS || !index_own_number(index, scaled, &number) ||
        number >= array->max_set)
        return 0;
    return set_element(index, number, NULL, why);
}
