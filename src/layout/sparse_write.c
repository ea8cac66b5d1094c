/* Writing structured chunks: encoding their sections, giving them space, and telling the index. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "common/log.h"
#include "common/memory_pool.h"
#include "filter/filter.h"
#include "format/structure.h"
#include "hdf5/hdf5.h"
#include "layout/layout.h"
#include "layout/sparse.h"
#include "selection/selection.h"
#include "store/store.h"

/* A section as it is to be stored. */
struct made_section {
    void *block; /* of the pool, got for room bytes; NULL: bytes are others' */
    size_t room;
    void *allocated; /* from malloc, or NULL */
    const void *bytes;
    const void *plain;
    size_t n, plain_n;
    uint32_t mask;
};

static bool is_dense(const struct layout *layout)
{
    return layout->sparse->format.first_section > 0;
}

/* Memory that the filters of a section of n bytes take, with `before` others in front of it. */
static size_t section_encode_bytes(const struct layout *layout, int number, size_t before, size_t n)
{
    const struct filter_pipeline *filters = &layout->sparse->header.filters.section[number];
    if (!filter_is_native(filters))
        return 3 * n + pool_block_size(before + n);
    return pool_block_size(before + filter_encode_bound(filters, n)) +
           pool_block_size(filter_encode_scratch(filters, n));
}

size_t sparse_encode_bytes(const struct layout *layout, const struct cache_form *form)
{
    size_t runs = form ? form->defined.n : 1;
    size_t n = form && !is_dense(layout) ? form->value_size : layout->chunk_bytes;
    size_t selection = 1024 + runs * (size_t)layout->rank * 8;
    size_t bytes = 3 * selection + section_encode_bytes(layout, 1, selection, n);
    if (layout->sparse->format.n_sections == 2 || !form)
        return bytes;
    bytes += pool_block_size(n + CHECKSUM_BYTES); /* with its checksum, then all together */
    bytes += section_encode_bytes(layout, 2, 0, form->heap_size);
    return bytes + pool_block_size(selection + n + form->heap_size);
}

/* Section 0 before its filters, with its checksum. The caller frees it. */
static int make_selection(const struct layout *layout, const struct cache_form *form, void **bytes,
                          size_t *n)
{
    const struct sparse *sparse = layout->sparse;
    bool version_1 = sparse->header.selection_version_1;
    void *encoded;
    int error = selection_encode(
        layout->rank, layout->chunk_dims, version_1 ? sparse->header.dataspace.max_dims : NULL,
        &form->defined, version_1 ? SELECTION_VERSION_1 : SELECTION_SMALLEST, &encoded, n);
    if (error)
        return error;
    *bytes = realloc(encoded, *n + CHECKSUM_BYTES);
    if (!*bytes) {
        free(encoded);
        return -ENOMEM;
    }
    *n += CHECKSUM_BYTES;
    structure_sum(*bytes, *n);
    return 0;
}

/* Filters of our own, behind `before` bytes that are left free in the block. */
static int filter_natively(struct filter_pipeline *filters, size_t before, struct pool *pool,
                           struct made_section *section)
{
    size_t scratch_n = filter_encode_scratch(filters, section->plain_n);
    void *scratch = scratch_n ? pool_get(pool, scratch_n) : NULL;
    int error = -ENOMEM;
    section->n = filter_encode_bound(filters, section->plain_n);
    section->room = before + section->n;
    section->block = pool_get(pool, section->room);
    if (section->block && (scratch || !scratch_n))
        error = filter_encode(filters, section->plain, section->plain_n, scratch,
                              (char *)section->block + before, &section->n);
    section->mask = filters->mask;
    pool_put(pool, scratch, scratch_n);
    section->bytes = section->block ? (char *)section->block + before : NULL;
    return error;
}

static int apply_filters(const struct layout *layout, const uint64_t *scaled,
                         struct filter_pipeline filters, size_t before, struct pool *pool,
                         struct made_section *section)
{
    section->n = section->plain_n;
    section->bytes = section->plain;
    if (filters.n == 0 || section->plain_n == 0)
        return 0;
    if (filter_is_native(&filters)) {
        int failed = filter_natively(&filters, before, pool, section);
        return failed == -EINVAL
                   ? layout_failed(layout, scaled, UINT64_MAX, "its filters have wrong parameters")
                   : failed;
    }
    int error = filters_encode(&filters, section->plain, section->plain_n, &section->allocated,
                               &section->n);
    section->mask = filters.mask;
    section->bytes = section->allocated;
    if (error == -EOPNOTSUPP || error == -EINVAL || error == -EIO)
        return layout_failed(layout, scaled, UINT64_MAX, hdf5_error());
    return error;
}

/* Takes over the block of section 1, if that has room for the other one, as it has for section 0.
 */
static int join(const struct layout *layout, struct made_section *sections, struct pool *pool,
                struct encoded *encoded)
{
    struct made_section *values = &sections[1];
    int n_sections = layout->sparse->format.n_sections;
    bool takes = values->block && n_sections == 2;
    encoded->n = sections[0].n + values->n + sections[2].n;
    encoded->room = takes ? values->room : encoded->n;
    encoded->bytes = takes ? values->block : pool_get(pool, encoded->room);
    if (!encoded->bytes)
        return -ENOMEM;
    encoded->record = (struct chunk_record){.exists = true, .size = encoded->n};
    char *at = encoded->bytes;
    for (int i = 0; i < n_sections; i++) {
        encoded->record.section_offset[i] = (uint64_t)(at - (char *)encoded->bytes);
        if (sections[i].n > 0 && !(takes && i == 1))
            memcpy(at, sections[i].bytes, sections[i].n);
        at += sections[i].n;
    }
    if (takes)
        values->block = NULL;
    for (int i = 0; i < n_sections && layout->sparse->header.filtered; i++) {
        encoded->record.unfiltered_size[i] = sections[i].plain_n;
        encoded->record.filter_mask[i] = sections[i].mask;
    }
    return 0;
}

/* Whether a chunk is to be stored without its filters. */
static bool is_unfiltered(const struct layout *layout, const uint64_t *scaled)
{
    if (!layout->unfiltered_edges)
        return false;
    pthread_rwlock_rdlock(layout->commit_lock); /* for the dims */
    bool is_unfiltered = layout_is_unfiltered(layout, scaled);
    pthread_rwlock_unlock(layout->commit_lock);
    return is_unfiltered;
}

/* The values of all elements of a chunk: those that are not there are empty, as their fill value. */
static void put_all_values(const struct layout *layout, const struct cache_form *form, char *values)
{
    size_t size = layout->element_size;
    memset(values, 0, layout->chunk_bytes);
    for (size_t i = 0; i < form->defined.n; i++) {
        struct run run = runs_at(&form->defined, i);
        memcpy(values + run.first * size, (const char *)form->values + run.index * size,
               (size_t)(run.last - run.first) * size);
    }
}

/* Appends the checksums to sections 1 and 2: to the values in a copy; to the heap in place, as its
 * last bytes are read by nobody else and there is one encoder per chunk. */
static int make_summed(const struct layout *layout, const struct cache_form *form,
                       struct pool *pool, void **values, struct made_section *sections)
{
    size_t n = (is_dense(layout) ? layout->chunk_bytes : form->value_size) + CHECKSUM_BYTES;
    char *summed = pool_get(pool, n);
    if (!summed)
        return -ENOMEM;
    if (is_dense(layout))
        put_all_values(layout, form, summed);
    else
        memcpy(summed, form->values, form->value_size);
    structure_sum((unsigned char *)summed, n);
    *values = summed;
    sections[1].plain = summed;
    sections[1].plain_n = n;
    if (form->heap)
        structure_sum(form->heap, form->heap_size);
    sections[2].plain = form->heap;
    sections[2].plain_n = form->heap_size;
    return 0;
}

int sparse_encode(struct layout *layout, const uint64_t *scaled, const struct cache_form *form,
                  struct pool *pool, struct encoded *encoded)
{
    struct made_section sections[MAX_SECTIONS] = {{0}};
    int n_sections = layout->sparse->format.n_sections;
    void *selection = NULL, *values = NULL;
    const struct filter_pipeline *filters = layout->sparse->header.filters.section, none = {0};
    bool unfiltered = is_unfiltered(layout, scaled);
    int error =
        is_dense(layout) ? 0 : make_selection(layout, form, &selection, &sections[0].plain_n);
    sections[0].plain = selection;
    sections[1].plain = form->values;
    sections[1].plain_n = form->value_size;
    if (!error && n_sections > 2)
        error = make_summed(layout, form, pool, &values, sections);
    for (int i = 0; i < n_sections && !error; i++)
        error = apply_filters(layout, scaled, unfiltered ? none : filters[i],
                              i == 1 ? sections[0].n : 0, pool, &sections[i]);
    if (!error)
        error = join(layout, sections, pool, encoded);
    free(selection);
    pool_put(pool, values, values ? sections[1].plain_n : 0);
    for (int i = 0; i < n_sections; i++) {
        pool_put(pool, sections[i].block, sections[i].room);
        free(sections[i].allocated);
    }
    return error;
}

static int index_failed(const struct layout *layout, const uint64_t *scaled, int error,
                        const struct why *why)
{
    if (error != -ENOMEM)
        layout_failed(layout, scaled, UINT64_MAX, why->text);
    return error;
}

static bool shares_bytes(const struct chunk_record *a, const struct chunk_record *b)
{
    return a->address < b->address + b->size && b->address < a->address + a->size;
}

static int write_stored(const struct layout *layout, const struct encoded *encoded,
                        const struct chunk_record *made)
{
    return store_write(layout->store, made->address, encoded->bytes, encoded->n);
}

/* Stored bytes of a file are never overwritten: the chunk gets new space, and its old space is free
 * after the next commit. In an image it may get its old place again: then it is written as soon as
 * nothing can fail any more. Its readers have it from the cache meanwhile, or notice that it has been
 * replaced there; those past the cache lock commit_lock. */
static int put(struct layout *layout, const uint64_t *scaled, const struct encoded *encoded,
               struct chunk_record *record)
{
    struct store *store = layout->store;
    struct chunk_record made = encoded->record;
    struct chunk_record old = record->exists ? *record : (struct chunk_record){0};
    struct why why;
    int error = store_allocate_over(store, old.address, old.size, encoded->n, &made.address);
    if (error)
        return error;
    bool in_place = shares_bytes(&made, &old);
    error = in_place ? 0 : write_stored(layout, encoded, &made);
    if (!error) {
        error = index_insert(layout->sparse->index, scaled, &made, &why);
        if (error)
            error = index_failed(layout, scaled, error, &why);
    }
    if (error) {
        store_free_except(store, made.address, made.size, old.address, old.size);
        return error;
    }
    *record = made;
    if (in_place)
        error = write_stored(layout, encoded, &made);
    int freed = store_free_except(store, old.address, old.size, made.address, made.size);
    return error ? error : freed;
}

int sparse_insert(struct layout *layout, const uint64_t *scaled, const struct encoded *encoded,
                  struct chunk_record *record)
{
    struct why why;
    int error = 0;
    pthread_rwlock_rdlock(layout->commit_lock);
    if (encoded) {
        error = put(layout, scaled, encoded, record);
    } else if (record->exists) {
        error = index_remove(layout->sparse->index, scaled, &why);
        if (error) {
            error = index_failed(layout, scaled, error, &why);
        } else {
            error = store_free(layout->store, record->address, record->size);
            *record = (struct chunk_record){0};
        }
    }
    pthread_rwlock_unlock(layout->commit_lock);
    return error;
}

int sparse_flush(struct layout *layout)
{
    struct sparse *sparse = layout->sparse;
    struct layout_message message = sparse->header.layout;
    struct why why;
    int error = index_flush(sparse->index, &why);
    if (!error && index_layout_changed(sparse->index, &message)) {
        index_layout(sparse->index, &message);
        error = dataset_header_set_layout(layout->store, sparse->superblock, sparse->address,
                                          &message, &why);
        if (!error) { /* only what has changed: readers look at the rest meanwhile */
            sparse->header.layout.address = message.address;
            sparse->header.layout.single_filtered = message.single_filtered;
            sparse->header.layout.single = message.single;
        }
    }
    if (error && error != -ENOMEM)
        log_error("%s: %s: %s", store_path(layout->store), layout->path, why.text);
    return error == -EILSEQ ? -EIO : error;
}
