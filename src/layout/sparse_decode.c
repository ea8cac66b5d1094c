/* What of a structured chunk is decoded: its selection, its values, its variable-length data. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "common/memory_pool.h"
#include "common/size.h"
#include "filter/filter.h"
#include "format/structure.h"
#include "layout/layout.h"
#include "layout/sparse.h"
#include "selection/selection.h"

/* The most memory that the runs of a chunk's selection take. */
static size_t most_run_bytes(const struct layout *layout, const struct chunk_record *record)
{
    uint64_t most = layout->sparse->format.chunk_elements / 2 + 1,
             n = sparse_values(layout, record);
    return size_product(size_sum(size_of(n < most ? n : most), 16), sizeof(struct sfs_interval));
}

/* A section without its filters, and what undoing them takes besides. */
static size_t section_bytes(const struct sparse *sparse, const struct chunk_record *record,
                            int section, size_t *working)
{
    size_t plain = size_of(sparse_section_size(sparse, record, section));
    const struct filter_pipeline *filters = &sparse->header.filters.section[section];
    uint64_t stored = chunk_record_section_size(&sparse->format, record, section);
    *working = size_sum(filters_scratch(filters, plain), filters_besides(filters, stored, plain));
    return pool_block_size(plain);
}

static size_t larger(size_t a, size_t b)
{
    return a > b ? a : b;
}

/* Sections are decoded one after the other: the memory of the first is given back, but for the
 * selection, before the second takes its own. Values may have to be copied out of their section:
 * without the checksum behind them, or in another order. */
size_t sparse_decode_bytes(const struct layout *layout, const struct chunk_record *record,
                           unsigned parts)
{
    size_t runs = most_run_bytes(layout, record), working;
    size_t plain = section_bytes(layout->sparse, record, SELECTION, &working);
    size_t bytes = size_sum(plain, larger(working, runs));
    if (!(parts & (PART_VALUES | PART_PACKED)))
        return bytes;
    plain = section_bytes(layout->sparse, record, VALUES, &working);
    bytes = larger(bytes, size_sum(size_sum(runs, plain), larger(working, plain)));
    if (!(parts & PART_HEAP) || layout->sparse->format.n_sections <= HEAP)
        return bytes;
    size_t values = plain;
    plain = section_bytes(layout->sparse, record, HEAP, &working);
    return larger(bytes, size_sum(size_sum(size_sum(runs, values), plain), working));
}

/* A section in memory without its filters. */
struct section {
    const char *bytes; /* where it was stored, or owned */
    size_t n;
    void *owned; /* a block of the pool, of n bytes */
};

static int failed(const struct layout *layout, const struct decoding *chunk, const char *why)
{
    return layout_failed(layout, chunk->scaled, chunk->record->address, why);
}

static int filter_failed(const struct layout *layout, const struct decoding *chunk, int number,
                         int error)
{
    static const char *const damaged[] = {
        [SELECTION] = "its selection section is damaged: checksum or compressed data",
        [VALUES] = "its values section is damaged: checksum or compressed data",
        [HEAP] = "its variable-length data is damaged: checksum or compressed data"};
    if (error == -EILSEQ)
        return failed(layout, chunk, damaged[number]);
    if (error == -EOPNOTSUPP || error == -EINVAL || error == -EIO)
        return layout_library_failed(layout, chunk->scaled, chunk->record->address);
    return error;
}

/* `stored`: the bytes of the section. */
static int undo_filters(const struct layout *layout, const struct decoding *chunk, int number,
                        const void *stored, struct section *section)
{
    const struct chunk_record *record = chunk->record;
    const struct sparse *sparse = layout->sparse;
    size_t stored_size = (size_t)chunk_record_section_size(&sparse->format, record, number);
    struct filter_pipeline filters = sparse->header.filters.section[number];
    filters.mask = record->filter_mask[number];
    *section = (struct section){.bytes = stored, .n = stored_size};
    if (filters.n == 0 || stored_size == 0 || layout_is_unfiltered(layout, chunk->scaled)) {
        if (sparse->header.filtered && stored_size != record->unfiltered_size[number])
            return failed(layout, chunk, "the sizes of a section without filters differ");
        return 0;
    }

    uint64_t plain = record->unfiltered_size[number];
    if (!filter_can_make(&filters, stored_size, plain))
        return failed(layout, chunk, "unfiltered size of a section is more than it can be");
    size_t scratch_size = filters_scratch(&filters, (size_t)plain);
    void *scratch = scratch_size ? pool_get(chunk->pool, scratch_size) : NULL;
    section->n = (size_t)plain;
    section->owned = pool_get(chunk->pool, section->n);
    int error = -ENOMEM;
    if (section->owned && (scratch || scratch_size == 0))
        error = filters_decode(&filters, stored, stored_size, scratch, section->owned, section->n);
    pool_put(chunk->pool, scratch, scratch_size);
    if (error) {
        pool_put(chunk->pool, section->owned, section->n);
        section->owned = NULL;
        return filter_failed(layout, chunk, number, error);
    }
    section->bytes = section->owned;
    return 0;
}

/* A chunk of dense data has a value for each of its elements, also for those outside of the dims. */
static int define_all(const struct layout *layout, const struct decoding *chunk)
{
    uint64_t n = layout->sparse->format.chunk_elements;
    if (sparse_values(layout, chunk->record) != n)
        return failed(layout, chunk, "its values are not as many as its elements");
    chunk->form->has_defined = true;
    return runs_append(&chunk->form->defined, 0, n);
}

static int decode_selection(const struct layout *layout, const struct decoding *chunk,
                            const struct section *section)
{
    struct cache_form *form = chunk->form;
    struct selection selection;
    struct why why;
    const char *reason;
    if (layout->sparse->format.first_section > SELECTION)
        return define_all(layout, chunk);
    if (section->n == 0 && sparse_values(layout, chunk->record) == 0) {
        form->has_defined = true; /* as the RFC has a chunk without defined elements */
        return 0;
    }
    if (section->n < CHECKSUM_BYTES ||
        structure_summed("selection section", chunk->record->address,
                         (const unsigned char *)section->bytes, section->n, &why))
        return failed(layout, chunk, "the checksum of its selection section is wrong");
    const struct sfs_encoded space = {section->bytes, section->n - CHECKSUM_BYTES};
    int error = selection_decode(&space, layout->rank, layout->chunk_dims,
                                 most_run_bytes(layout, chunk->record), &selection, &reason);
    if (error == -EILSEQ)
        return failed(layout, chunk, reason);
    if (error)
        return error;
    if (selection.values != sparse_values(layout, chunk->record)) {
        selection_free(&selection);
        return failed(layout, chunk, "its selection and its values differ in number");
    }
    form->defined = selection.runs;
    form->order = selection.order;
    form->has_defined = true;
    return 0;
}

/* Whether section 1 is a number of whole values, with a right checksum if it has one. */
static int check_values(const struct layout *layout, const struct decoding *chunk,
                        const struct section *section)
{
    struct why why;
    uint64_t sum = sparse_values_checksum(layout->sparse, section->n);
    if (section->n < sum || (section->n - sum) % layout->element_size != 0)
        return failed(layout, chunk, "the size of its values is no multiple of the element size");
    if (sum > 0 && structure_summed("values section", chunk->record->address,
                                    (const unsigned char *)section->bytes, section->n, &why))
        return failed(layout, chunk, "the checksum of its values section is wrong");
    return 0;
}

/* Takes the values out of section 1, in row-major order. */
static int take_values(const struct layout *layout, const struct decoding *chunk,
                       struct section *section)
{
    struct cache_form *form = chunk->form;
    size_t size = layout->element_size;
    if (!form->order && section->owned && sparse_values_checksum(layout->sparse, section->n) == 0) {
        form->values = section->owned;
        form->value_size = section->n;
        section->owned = NULL;
        form->has_values = true;
        return 0;
    }
    size_t n = (size_t)form->defined.elements;
    char *values = n ? pool_get(chunk->pool, n * size) : NULL;
    if (n && !values)
        return -ENOMEM;
    if (!form->order && n)
        memcpy(values, section->bytes, n * size);
    for (size_t i = 0; form->order && i < n; i++)
        memcpy(values + i * size, section->bytes + form->order[i] * size, size);
    form->values = values;
    form->value_size = n * size;
    form->has_values = true;
    return 0;
}

static int decode_values(const struct layout *layout, const struct decoding *chunk,
                         const void *stored)
{
    struct section section;
    int error = undo_filters(layout, chunk, VALUES, stored, &section);
    if (error)
        return error;
    error = check_values(layout, chunk, &section);
    if (!error)
        error = take_values(layout, chunk, &section);
    pool_put(chunk->pool, section.owned, section.n);
    return error;
}

/* Of a chunk whose elements have none there may be no section. */
static int decode_heap(const struct layout *layout, const struct decoding *chunk,
                       const void *stored)
{
    struct section section;
    struct why why;
    int error = undo_filters(layout, chunk, HEAP, stored, &section);
    if (error)
        return error;
    if (section.n > 0 && (section.n < CHECKSUM_BYTES ||
                          structure_summed("variable-length data", chunk->record->address,
                                           (const unsigned char *)section.bytes, section.n, &why)))
        error = failed(layout, chunk, "the checksum of its variable-length data is wrong");
    if (!error && section.n > 0 && !section.owned) {
        section.owned = pool_get(chunk->pool, section.n);
        error = section.owned ? 0 : -ENOMEM;
        if (!error)
            memcpy(section.owned, stored, section.n);
    }
    if (error || section.n == 0) {
        pool_put(chunk->pool, section.owned, section.n);
        return error;
    }
    chunk->form->heap = section.owned;
    chunk->form->heap_size = section.n;
    return 0;
}

int sparse_decode(struct layout *layout, const struct decoding *chunk)
{
    const uint64_t *offset = chunk->record->section_offset;
    const unsigned parts = chunk->parts;
    const char *values = chunk->stored;
    int error = 0;
    if (parts & PART_DEFINED) {
        struct section section;
        error = undo_filters(layout, chunk, SELECTION, chunk->stored, &section);
        if (error)
            return error;
        error = decode_selection(layout, chunk, &section);
        pool_put(chunk->pool, section.owned, section.n);
        if (values) /* a chunk may be stored in no bytes */
            values += offset[VALUES];
    }
    if (!error && (parts & (PART_VALUES | PART_PACKED)))
        error = decode_values(layout, chunk, values);
    if (!error && (parts & PART_HEAP) && layout->sparse->format.n_sections > HEAP && chunk->stored)
        error = decode_heap(layout, chunk, values + (offset[HEAP] - offset[VALUES]));
    return error;
}
