/* The fixed array (HDF5 file format specification, section VII.C): a header and one data block with
 * an element for every chunk of the max dims, row-major. A block of more elements than a page has
 * is paged, and a bitmap in it says which pages were ever written:
 *
 *   header -> prefix | elements | checksum
 *   header -> prefix, bitmap, checksum | page: elements, checksum | page | ...
 *
 * A block without pages and a bitmap are kept in memory. */
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>

#include "index/private.h"
#include "store/store.h"

#define HEADER "fixed array header"

/* Of a new data block. It is not written as a whole, but the file becomes that long, and there are
 * file systems with files of no more than 16 TiB. */
#define MOST_BLOCK_BYTES ((uint64_t)8 << 40)

static const struct block_kind header_kind = {HEADER, "FAHD", 1};
static const struct block_kind block_kind = {"fixed array data block", "FADB", 1};
static const struct block_kind page_kind = {"fixed array page", NULL, 0};

struct fixed_array {
    uint64_t n;             /* elements */
    size_t element;         /* bytes of one */
    uint64_t page_elements; /* of all pages but the last */
    uint64_t n_pages;       /* 0: not paged */
    uint64_t block_address; /* of the data block; NO_ADDRESS: nothing was ever stored */
    struct block *block;    /* paged: up to the first page; else all of it */
    size_t elements_at;     /* in the block: of the elements, or of the bitmap */
};

static int count_elements(const struct index *index, uint64_t *n, struct why *why)
{
    *n = 1;
    for (int i = 0; i < index->rank; i++) {
        if (index->max_chunks[i] == SFS_UNLIMITED)
            return why_damaged(why, HEADER " at address %" PRIu64 ": axis %d is unlimited",
                               index->address, i);
        if (__builtin_mul_overflow(*n, index->max_chunks[i], n))
            return why_damaged(why,
                               HEADER " at address %" PRIu64 ": the max dims are of more "
                                      "than 2^64 chunks",
                               index->address);
    }
    return 0;
}

static size_t header_bytes(const struct superblock *superblock)
{
    return INDEX_BEGIN_BYTES + 2 + superblock->length_size + superblock->offset_size +
           CHECKSUM_BYTES;
}

static int read_header(struct index *index, struct fixed_array *array, struct why *why)
{
    const struct superblock *superblock = index->superblock;
    size_t size = header_bytes(superblock);
    const struct block_place place = {&header_kind, index->address, size, size};
    struct block *block;
    struct cursor c;
    int error = block_read(index->store, &place, &block, why);
    if (error)
        return error;
    error = index_begin_header(index, block, index->format.form, &c, why);
    size_t element = (size_t)cursor_uint(&c, 1);
    unsigned page_bits = (unsigned)cursor_uint(&c, 1);
    uint64_t n = cursor_uint(&c, superblock->length_size);
    array->block_address = superblock_address(superblock, &c);
    block_put(block);
    if (error)
        return error;
    if (element != array->element)
        return why_damaged(why, HEADER " at address %" PRIu64 ": element size %zu, not %zu",
                           index->address, element, array->element);
    if (n != array->n)
        return why_damaged(why,
                           HEADER " at address %" PRIu64 ": %" PRIu64 " elements, not %" PRIu64,
                           index->address, n, array->n);
    if (page_bits < 1 || page_bits > 31)
        return why_damaged(why, HEADER " at address %" PRIu64 ": page bits %u", index->address,
                           page_bits);
    if (c.failed)
        return why_damaged(why, HEADER " at address %" PRIu64 ": address of its data block",
                           index->address);
    array->page_elements = (uint64_t)1 << page_bits;
    return 0;
}

static uint64_t page_bytes(const struct fixed_array *array)
{
    return array->page_elements * array->element + CHECKSUM_BYTES;
}

/* Bytes of the data block, and of it those that precede its pages; false: they exceed 64 bits. */
static bool measure_block(const struct index *index, struct fixed_array *array, uint64_t *size,
                          uint64_t *whole)
{
    uint64_t elements, sums;
    array->elements_at = INDEX_BEGIN_BYTES + index->superblock->offset_size;
    array->n_pages =
        array->n > array->page_elements ? (array->n - 1) / array->page_elements + 1 : 0;
    if (__builtin_mul_overflow(array->n, (uint64_t)array->element, &elements))
        return false;
    *size = array->elements_at + CHECKSUM_BYTES;
    if (array->n_pages > 0)
        *size += (array->n_pages - 1) / 8 + 1;
    sums = *size + array->n_pages * CHECKSUM_BYTES;
    if (__builtin_add_overflow(sums, elements, whole))
        return false;
    if (array->n_pages == 0)
        *size = *whole;
    return true;
}

/* Reads the data block, or what of it comes before its pages. */
static int read_block(struct index *index, struct fixed_array *array, struct why *why)
{
    uint64_t size, whole;
    if (array->n > store_size(index->store) || !measure_block(index, array, &size, &whole))
        return why_damaged(
            why, "%s at address %" PRIu64 ": %" PRIu64 " elements are more than the file can hold",
            block_kind.name, array->block_address, array->n);
    int error = structure_within(index->store, block_kind.name, array->block_address, whole, why);
    if (!error)
        error = block_read(index->store,
                           &(struct block_place){&block_kind, array->block_address, size, size},
                           &array->block, why);
    struct cursor c;
    if (!error)
        error = index_begin_block(index, array->block, &c, why);
    return error;
}

static int fixed_array_open(struct index *index, const struct layout_message *layout,
                            struct why *why)
{
    struct fixed_array *array = calloc(1, sizeof(*array));
    if (!array)
        return -ENOMEM;
    index->kind = array;
    array->element = chunk_record_element(&index->format, index->superblock);
    array->block_address = NO_ADDRESS;
    array->page_elements = (uint64_t)1
                           << layout->page_bits; /* the header, if there is one, knows */
    int error = count_elements(index, &array->n, why);
    if (error || index->address == NO_ADDRESS)
        return error;
    error = read_header(index, array, why);
    if (error || array->block_address == NO_ADDRESS)
        return error;
    return read_block(index, array, why);
}

static void fixed_array_close(struct index *index)
{
    struct fixed_array *array = index->kind;
    block_put(array->block);
    free(array);
}

static bool page_is_set(const struct fixed_array *array, uint64_t page)
{
    return (array->block->bytes[array->elements_at + page / 8] & 0x80 >> page % 8) != 0;
}

/* All pages but the last have as many elements. */
static uint64_t elements_in(const struct fixed_array *array, uint64_t page)
{
    uint64_t left = array->n - page * array->page_elements;
    return left < array->page_elements ? left : array->page_elements;
}

static struct block_place place_of(const struct fixed_array *array, uint64_t page)
{
    uint64_t size = elements_in(array, page) * array->element + CHECKSUM_BYTES;
    uint64_t address = array->block_address + array->block->n + page * page_bytes(array);
    return (struct block_place){&page_kind, address, size, size};
}

/* The page's elements are the first bytes of the block. */
static int get_page(struct index *index, uint64_t page, struct block **block, struct why *why)
{
    const struct block_place place = place_of(index->kind, page);
    return block_get(index, &place, block, why);
}

/* It is less than the number of elements, which is one of 64 bits. */
static uint64_t number_of(const struct index *index, const uint64_t *scaled)
{
    uint64_t i = 0;
    (void)index_own_number(index, scaled, &i);
    return i;
}

static int fixed_array_lookup(struct index *index, const uint64_t *scaled,
                              struct chunk_record *record, struct why *why)
{
    const struct fixed_array *array = index->kind;
    if (array->block_address == NO_ADDRESS)
        return 0;
    uint64_t i = number_of(index, scaled);
    if (array->n_pages == 0)
        return index_element(index, array->block, array->elements_at + (size_t)i * array->element,
                             record, why);

    uint64_t page = i / array->page_elements;
    if (!page_is_set(array, page))
        return 0;
    struct block *block;
    int error = get_page(index, page, &block, why);
    if (error)
        return error;
    error = index_element(index, block, (size_t)(i % array->page_elements) * array->element, record,
                          why);
    block_put(block);
    return error;
}

/* An iteration over the elements from number `first` to before number `end`. */
struct walk {
    struct index *index;
    uint64_t first, end;
    index_each_function each;
    void *context;
    uint64_t steps; /* index_step */
    struct why *why;
};

static void set_range(struct walk *walk, const struct index_range *range)
{
    const struct index *index = walk->index;
    uint64_t last[SFS_MAX_RANK] = {0};
    for (int axis = 0; axis < index->rank; axis++)
        last[axis] = range->last[axis] < index->max_chunks[axis] ? range->last[axis]
                                                                 : index->max_chunks[axis] - 1;
    walk->first =
        range->behind ? number_of(index, range->behind) + 1 : number_of(index, range->first);
    walk->end = number_of(index, last) + 1;
}

/* Those of the n elements at `at` of a block, of which the first is number first of the array. */
static int each_element(struct walk *walk, const struct block *block, size_t at, uint64_t first,
                        uint64_t n)
{
    const struct index *index = walk->index;
    const struct fixed_array *array = index->kind;
    int result = 0;
    uint64_t begin = walk->first > first ? walk->first - first : 0;
    if (walk->end < first + n)
        n = walk->end > first ? walk->end - first : 0;
    for (uint64_t i = begin; !result && i < n; i++) {
        struct chunk_record record = {0};
        result = index_step(&walk->steps);
        if (!result)
            result =
                index_element(index, block, at + (size_t)i * array->element, &record, walk->why);
        if (result || !record.exists)
            continue;
        uint64_t scaled[SFS_MAX_RANK];
        index_coordinates(index, first + i, scaled);
        result = walk->each(walk->context, scaled, &record);
    }
    return result;
}

static int fixed_array_iterate(struct index *index, const struct index_range *range,
                               index_each_function each, void *context, struct why *why)
{
    const struct fixed_array *array = index->kind;
    struct walk walk = {index, 0, array->n, each, context, 0, why};
    if (range)
        set_range(&walk, range);
    if (array->block_address == NO_ADDRESS || walk.first >= walk.end)
        return 0;
    if (array->n_pages == 0)
        return each_element(&walk, array->block, array->elements_at, 0, array->n);
    int result = 0;
    for (uint64_t page = walk.first / array->page_elements;
         !result && page <= (walk.end - 1) / array->page_elements; page++) {
        result = index_step(&walk.steps);
        if (result)
            break;
        if (!page_is_set(array, page))
            continue;
        struct block *block;
        result = get_page(index, page, &block, why);
        if (result)
            break;
        result = each_element(&walk, block, 0, page * array->page_elements,
                              (block->n - CHECKSUM_BYTES) / array->element);
        block_put(block);
    }
    return result;
}

static int fixed_array_each_block(struct index *index, index_block_function each, void *context,
                                  struct why *why)
{
    struct fixed_array array = *(const struct fixed_array *)index->kind;
    uint64_t size, whole;
    (void)why;
    int result = each(context, HEADER, index->address, header_bytes(index->superblock));
    if (result || array.block_address == NO_ADDRESS || !measure_block(index, &array, &size, &whole))
        return result;
    return each(context, block_kind.name, array.block_address, whole);
}

/* ---- Writing ---- */

enum { PAGES, DATA_BLOCK }; /* heights of changed blocks */

static void fixed_array_encode_header(const struct index *index, struct output *output)
{
    const struct fixed_array *array = index->kind;
    index_put_begin(index, &header_kind, index->format.form, output);
    output_uint(output, array->element, 1);
    output_uint(output, floor_log2(array->page_elements), 1);
    output_uint(output, array->n, index->superblock->length_size);
    superblock_put_address(index->superblock, output, array->block_address);
}

static void fixed_array_tell(const struct index *index, struct layout_message *layout)
{
    layout->page_bits = floor_log2(((const struct fixed_array *)index->kind)->page_elements);
}

static int fixed_array_make_header(struct index *index, struct why *why)
{
    if (index->address != NO_ADDRESS)
        return 0;
    return header_allocate(index, &header_kind, header_bytes(index->superblock), why);
}

static int make_block(struct index *index, struct fixed_array *array, struct why *why)
{
    uint64_t size, whole;
    struct block *block;
    if (array->block_address != NO_ADDRESS)
        return 0;
    if (!measure_block(index, array, &size, &whole))
        return why_refused(why, -EFBIG, "%s: its bytes exceed 64 bits", block_kind.name);
    int error = block_allocate(index, (struct block_place){&block_kind, 0, size, size}, whole,
                               DATA_BLOCK, &block, why);
    if (error)
        return error;
    index_put_begin_block(index, block);
    if (array->n_pages == 0)
        index_put_no_elements(index, block, array->elements_at, array->n);
    array->block = block;
    array->block_address = block->address;
    index->changes.header = true;
    return 0;
}

/* A page that was never written is made without reading what lies there. */
static int make_page(struct index *index, struct fixed_array *array, uint64_t page,
                     struct block **block, struct why *why)
{
    const struct block_place place = place_of(array, page);
    int error = block_change(index, array->block, DATA_BLOCK, why);
    if (!error)
        error = block_make_changed(index, &place, PAGES, block, why);
    if (error)
        return error;
    index_put_no_elements(index, *block, 0, elements_in(array, page));
    array->block->bytes[array->elements_at + page / 8] |= (unsigned char)(0x80 >> page % 8);
    return 0;
}

/* Writes element i into the data block or into a page, which are there. */
static int put_element(struct index *index, uint64_t i, struct block *page,
                       const struct chunk_record *record, struct why *why)
{
    struct fixed_array *array = index->kind;
    struct block *block = page ? page : array->block;
    size_t at = page ? (size_t)(i % array->page_elements) * array->element
                     : array->elements_at + (size_t)i * array->element;
    int error = block_change(index, block, page ? PAGES : DATA_BLOCK, why);
    return error ? error : index_put_element(index, block, at, record, why);
}

/* The data block is made at once for all elements, wherever the first chunk is. */
static bool can_make_block(const struct index *index)
{
    struct fixed_array array = *(const struct fixed_array *)index->kind;
    uint64_t size, whole;
    return measure_block(index, &array, &size, &whole) && whole <= MOST_BLOCK_BYTES &&
           size <= MOST_PAGE_BYTES;
}

/* Its block and page are there, or can be made. */
static bool has_page(const struct index *index, uint64_t number)
{
    const struct fixed_array *array = index->kind;
    if (array->block_address == NO_ADDRESS && !can_make_block(index))
        return false;
    if (array->n <= array->page_elements)
        return true;
    return array->page_elements <= MOST_PAGE_BYTES / array->element ||
           (array->block_address != NO_ADDRESS &&
            page_is_set(array, number / array->page_elements));
}

static bool fixed_array_can_hold(const struct index *index, const uint64_t *scaled)
{
    const struct fixed_array *array = index->kind;
    uint64_t number = number_of(index, scaled);
    return number < index_most_elements(index) && array->n <= index_most_length(index) &&
           has_page(index, number);
}

static int fixed_array_insert(struct index *index, const uint64_t *scaled,
                              const struct chunk_record *record, struct why *why)
{
    struct fixed_array *array = index->kind;
    uint64_t i = number_of(index, scaled);
    if (!fixed_array_can_hold(index, scaled))
        return why_refused(why, -EFBIG, "fixed array: it has no room for element %" PRIu64, i);
    int error = fixed_array_make_header(index, why);
    if (!error)
        error = make_block(index, array, why);
    if (error)
        return error;
    struct block *block = NULL;
    if (array->n_pages > 0) {
        uint64_t page = i / array->page_elements;
        error = page_is_set(array, page) ? get_page(index, page, &block, why)
                                         : make_page(index, array, page, &block, why);
    }
    if (!error)
        error = put_element(index, i, block, record, why);
    block_put(block);
    return error;
}

static int fixed_array_remove(struct index *index, const uint64_t *scaled, struct why *why)
{
    struct fixed_array *array = index->kind;
    uint64_t i = number_of(index, scaled);
    if (array->block_address == NO_ADDRESS)
        return 0;
    struct block *block = NULL;
    if (array->n_pages > 0) {
        uint64_t page = i / array->page_elements;
        if (!page_is_set(array, page))
            return 0;
        int error = get_page(index, page, &block, why);
        if (error)
            return error;
    }
    int error = put_element(index, i, block, NULL, why);
    block_put(block);
    return error;
}

static size_t fixed_array_kept(const struct index *index)
{
    const struct fixed_array *array = index->kind;
    return array->block ? array->block->n : 0;
}

const struct index_ops index_fixed_array = {
    .open = fixed_array_open,
    .close = fixed_array_close,
    .lookup = fixed_array_lookup,
    .iterate = fixed_array_iterate,
    .each_block = fixed_array_each_block,
    .can_hold = fixed_array_can_hold,
    .insert = fixed_array_insert,
    .remove = fixed_array_remove,
    .make_header = fixed_array_make_header,
    .encode_header = fixed_array_encode_header,
    .tell = fixed_array_tell,
    .kept = fixed_array_kept,
};
