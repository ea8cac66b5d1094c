/* Writing structured chunks: encoding their sections, giving them space, and telling the index. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "common/log.h"
#include "common/pool.h"
#include "filter/filter.h"
#include "format/structure.h"
#include "hdf5/hdf5.h"
#include "layout/layout.h"
#include "layout/sparse.h"
#include "selection/selection.h"
#include "store/store.h"

/* A section as it is to be stored. */
struct made_section {
    void *bytes; /* from malloc; NULL: those of the caller as they are */
    const void *plain;
    size_t n, plain_n;
    uint32_t mask;
};

static const void *stored_bytes(const struct made_section *section)
{
    return section->bytes ? section->bytes : section->plain;
}

size_t sparse_encode_bytes(const struct layout *layout, const struct cache_form *form)
{
    size_t selection = 1024 + form->defined.n * (size_t)layout->rank * 8;
    return 3 * (selection + form->value_size);
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

static int apply_filters(const struct layout *layout, const uint64_t *scaled, int number,
                         struct made_section *section)
{
    const struct sparse *sparse = layout->sparse;
    size_t n = sparse->header.filters.section[number].n;
    section->n = section->plain_n;
    if (n == 0 || section->plain_n == 0 ||
        (sparse->header.layout.unfiltered_edges && sparse_is_edge(layout, scaled)))
        return 0;
    int error = filters_encode(sparse->header.filters.section[number].filters, n, section->plain,
                               section->plain_n, &section->bytes, &section->n, &section->mask);
    if (error == -EOPNOTSUPP || error == -EINVAL)
        return layout_failed(layout, scaled, UINT64_MAX, hdf5_error());
    return error;
}

static int join(const struct layout *layout, const struct made_section sections[2],
                struct pool *pool, struct encoded *encoded)
{
    encoded->n = encoded->room = sections[0].n + sections[1].n;
    encoded->bytes = pool_get(pool, encoded->room);
    if (!encoded->bytes)
        return -ENOMEM;
    char *to = encoded->bytes;
    memcpy(to, stored_bytes(&sections[0]), sections[0].n);
    if (sections[1].n > 0)
        memcpy(to + sections[0].n, stored_bytes(&sections[1]), sections[1].n);
    encoded->record = (struct chunk_record){.exists = true, .size = encoded->n};
    encoded->record.section_offset[1] = sections[0].n;
    for (int i = 0; i < 2 && layout->sparse->header.filtered; i++) {
        encoded->record.unfiltered_size[i] = sections[i].plain_n;
        encoded->record.filter_mask[i] = sections[i].mask;
    }
    return 0;
}

int sparse_encode(struct layout *layout, const uint64_t *scaled, const struct cache_form *form,
                  struct pool *pool, struct encoded *encoded)
{
    struct made_section sections[2] = {{0}};
    void *selection = NULL;
    int error = make_selection(layout, form, &selection, &sections[0].plain_n);
    sections[0].plain = selection;
    sections[1].plain = form->values;
    sections[1].plain_n = form->value_size;
    for (int i = 0; i < 2 && !error; i++)
        error = apply_filters(layout, scaled, i, &sections[i]);
    if (!error)
        error = join(layout, sections, pool, encoded);
    free(selection);
    free(sections[0].bytes);
    free(sections[1].bytes);
    return error;
}

static int index_failed(const struct layout *layout, const uint64_t *scaled, int error,
                        const struct why *why)
{
    if (error != -ENOMEM)
        layout_failed(layout, scaled, UINT64_MAX, why->text);
    return error == -EILSEQ ? -EIO : error;
}

/* Stored bytes are never overwritten: the chunk gets new space, and its old space is free after the
 * next commit. */
static int put(struct layout *layout, const uint64_t *scaled, const struct encoded *encoded,
               struct chunk_record *record)
{
    struct chunk_record made = encoded->record;
    struct why why;
    int error = store_allocate(layout->store, encoded->n, &made.address);
    if (error)
        return error;
    error = store_write(layout->store, made.address, encoded->bytes, encoded->n);
    if (!error) {
        error = index_insert(layout->sparse->index, scaled, &made, &why);
        if (error)
            error = index_failed(layout, scaled, error, &why);
    }
    if (error) {
        store_free(layout->store, made.address, encoded->n);
        return error;
    }
    if (record->exists)
        error = store_free(layout->store, record->address, record->size);
    *record = made;
    return error;
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
        if (error)
            error = index_failed(layout, scaled, error, &why);
        else
            error = store_free(layout->store, record->address, record->size);
        if (!error)
            *record = (struct chunk_record){0};
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
        error = dataset_header_set_layout(layout->store, sparse->superblock, layout->dataset,
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
