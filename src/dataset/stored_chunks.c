/* Stored chunks as they are: where they are, and their sections. Those of dense datasets have one,
 * which is that of the values. */
#include <errno.h>
#include <string.h>

#include "cache/cache.h"
#include "chunk/chunks_of_box.h"
#include "common/interrupt.h"
#include "common/memory_pool.h"
#include "dataset/private.h"
#include "dataset/sequences.h"
#include "layout/sparse.h"
#include "store/store.h"

static bool is_dense(const struct sfs_dataset *dataset)
{
    return dataset->info.layout == SFS_CHUNKED && !dataset->info.type.has_pointers;
}

static bool has_chunks(const struct sfs_dataset *dataset)
{
    return dataset->sparse || is_dense(dataset);
}

/* The bits of a dense dataset's filters. */
static uint32_t dense_filters(const struct layout *layout)
{
    const struct filter_pipeline filters = pipeline_of(layout->info);
    return pipeline_left_out(&filters);
}

static void describe_dense(const struct layout *layout, const struct chunk_record *record,
                           struct sfs_chunk_info *info)
{
    info->section_size[VALUES] = record->size;
    info->unfiltered_size[VALUES] = layout->chunk_bytes;
    info->filter_mask[VALUES] = record->filter_mask[0] & dense_filters(layout);
}

/* The mask of a section: which filters were left out, also of edge chunks, which have none and no
 * mask in the file. */
static void describe_chunk(const struct layout *layout, const uint64_t *scaled,
                           const struct chunk_record *record, struct sfs_chunk_info *info)
{
    bool is_unfiltered = layout_is_unfiltered(layout, scaled);
    *info = (struct sfs_chunk_info){.address = record->address, .size = record->size};
    for (int i = 0; i < layout->rank; i++)
        info->start[i] = scaled[i] * layout->chunk_dims[i];
    if (!layout->sparse) {
        describe_dense(layout, record, info);
        return;
    }
    const struct chunk_record_format *format = &layout->sparse->format;
    const struct dataset_header *header = &layout->sparse->header;
    for (int i = 0; i < format->n_sections; i++) {
        info->section_size[i] = chunk_record_section_size(format, record, i);
        info->unfiltered_size[i] =
            header->filtered ? record->unfiltered_size[i] : info->section_size[i];
        info->filter_mask[i] =
            is_unfiltered ? pipeline_left_out(&header->filters.section[i]) : record->filter_mask[i];
    }
}

static int chunk_info_once(struct sfs_dataset *dataset, const uint64_t *start,
                           struct sfs_chunk_info *info)
{
    USING(dataset);
    struct layout *layout = &dataset->layout;
    uint64_t scaled[SFS_MAX_RANK];
    struct chunk_record record = {0};
    if (!has_chunks(dataset))
        return -EOPNOTSUPP;
    for (int i = 0; i < layout->rank; i++) {
        if (start[i] >= layout->dims[i])
            return -EINVAL;
        scaled[i] = start[i] / layout->chunk_dims[i];
    }
    int error = cache_flush_chunk(dataset->cache, scaled);
    if (!error)
        error = layout->ops->lookup(layout, scaled, &record);
    if (error)
        return error;
    if (!record.exists)
        return -ENOENT;
    describe_chunk(layout, scaled, &record, info);
    return 0;
}

int sfs_chunk_info(struct sfs_dataset *dataset, const uint64_t *start, struct sfs_chunk_info *info)
{
    return FOLLOWING(dataset->file, chunk_info_once(dataset, start, info));
}

struct each_chunk {
    const struct layout *layout;
    sfs_chunk_function each;
    void *context;
    bool has_told;
};

static int tell_chunk(void *context, const uint64_t *scaled, const struct chunk_record *record)
{
    struct each_chunk *each = context;
    struct sfs_chunk_info info;
    each->has_told = true;
    describe_chunk(each->layout, scaled, record, &info);
    return each->each(each->context, &info);
}

/* libhdf5 looks up one chunk at a time. */
static int iterate_dense(struct sfs_dataset *dataset, struct each_chunk *all)
{
    struct layout *layout = &dataset->layout;
    struct box box = {.rank = layout->rank};
    struct piece piece;
    int error = 0;
    memcpy(box.count, layout->dims, sizeof(box.count));
    for (bool more = piece_first(layout, &box, &piece); more && !error;
         more = piece_next(layout, &box, &piece)) {
        struct chunk_record record = {0};
        error = layout->ops->lookup(layout, piece.scaled, &record);
        if (!error && record.exists)
            error = tell_chunk(all, piece.scaled, &record);
        if (!error)
            error = interrupt_check();
    }
    return error;
}

static int iterate_once(struct sfs_dataset *dataset, struct each_chunk *all)
{
    USING(dataset);
    if (!has_chunks(dataset))
        return -EOPNOTSUPP;
    int error = cache_flush(dataset->file->cache, dataset->cache);
    if (error)
        return error;
    return dataset->sparse ? layout_each_chunk(&dataset->layout, NULL, tell_chunk, all)
                           : iterate_dense(dataset, all);
}

int sfs_chunk_iterate(struct sfs_dataset *dataset, sfs_chunk_function each, void *context)
{
    struct each_chunk all = {&dataset->layout, each, context, false};
    unsigned tries = 0;
    int error;
    do {
        error = iterate_once(dataset, &all);
        if (all.has_told) /* it cannot be told again */
            error = follow_end_copy(dataset->file, error);
    } while (repeat_call(dataset->file, &error, &tries));
    return error;
}

/* Whether a chunk is stored as info says: address and sizes. */
static int look_again(struct sfs_dataset *dataset, const struct sfs_chunk_info *info,
                      int n_sections)
{
    struct layout *layout = &dataset->layout;
    uint64_t scaled[SFS_MAX_RANK];
    struct chunk_record record = {0};
    struct sfs_chunk_info now;
    for (int i = 0; i < layout->rank; i++)
        scaled[i] = info->start[i] / layout->chunk_dims[i];
    int error = layout->ops->lookup(layout, scaled, &record);
    if (error || !record.exists)
        return error ? error : -ESTALE;
    describe_chunk(layout, scaled, &record, &now);
    bool is_same = now.address == info->address;
    for (int i = 0; i < n_sections; i++)
        is_same = is_same && now.section_size[i] == info->section_size[i];
    return is_same ? 0 : -ESTALE;
}

/* What was read is the chunk's if it is stored there afterwards, too: in a file nothing else gets the
 * place until a commit. */
static int read_sections(struct sfs_dataset *dataset, const struct sfs_chunk_info *info,
                         void *const sections[SFS_SECTIONS])
{
    int n_sections = dataset->sparse ? dataset->sparse->format.n_sections : VALUES + 1;
    uint64_t address = info->address;
    int error = look_again(dataset, info, n_sections);
    for (int i = 0; i < n_sections && !error; i++) {
        if (sections[i])
            error = store_read(dataset->file->store, address, sections[i],
                               (size_t)info->section_size[i]);
        address += info->section_size[i];
    }
    return error ? error : look_again(dataset, info, n_sections);
}

static int read_chunk_once(struct sfs_dataset *dataset, const struct sfs_chunk_info *info,
                           void *const sections[SFS_SECTIONS])
{
    USING(dataset);
    struct sfs_chunk_info now;
    int error = sfs_chunk_info(dataset, info->start, &now);
    if (error)
        return error;
    if (!dataset->sparse || !store_allocates_over(dataset->file->store))
        return read_sections(dataset, info, sections);
    /* Chunks may be stored in place of the old bytes: none is stored meanwhile. */
    pthread_rwlock_wrlock(dataset->layout.commit_lock);
    error = read_sections(dataset, info, sections);
    pthread_rwlock_unlock(dataset->layout.commit_lock);
    return error;
}

int sfs_read_chunk(struct sfs_dataset *dataset, const struct sfs_chunk_info *info,
                   void *const sections[SFS_SECTIONS])
{
    return FOLLOWING(dataset->file, read_chunk_once(dataset, info, sections));
}

/* A section that is to be stored without filters must be given with all of them masked. */
static bool has_right_masks(const struct layout *layout, const uint64_t *scaled,
                            const struct sfs_chunk_info *info)
{
    if (!layout_is_unfiltered(layout, scaled))
        return true;
    for (int i = 0; i < layout->sparse->format.n_sections; i++) {
        uint32_t mask = pipeline_left_out(&layout->sparse->header.filters.section[i]);
        if (info->section_size[i] > 0 && (info->filter_mask[i] & mask) != mask)
            return false;
    }
    return true;
}

/* The sections as they are to be stored, and their record. */
static int join_sections(const struct sfs_dataset *dataset, const uint64_t *scaled,
                         const struct sfs_chunk_info *info,
                         const void *const sections[SFS_SECTIONS], struct pool *pool,
                         struct encoded *encoded)
{
    bool is_unfiltered = layout_is_unfiltered(&dataset->layout, scaled);
    uint64_t n;
    int n_sections = dataset->sparse->format.n_sections;
    if (!has_right_masks(&dataset->layout, scaled, info))
        return -EINVAL;
    if (__builtin_add_overflow(info->section_size[0], info->section_size[1], &n) ||
        __builtin_add_overflow(n, info->section_size[2], &n) || n > SIZE_MAX / 2 ||
        (info->section_size[0] == 0) != dataset->info.is_dense ||
        (n_sections < SFS_SECTIONS && info->section_size[2] > 0))
        return -EINVAL;
    *encoded = (struct encoded){.n = (size_t)n, .room = (size_t)n};
    encoded->bytes = pool_get(pool, encoded->room);
    if (!encoded->bytes)
        return -ENOMEM;
    struct chunk_record *record = &encoded->record;
    *record = (struct chunk_record){.exists = true, .size = n};
    char *at = encoded->bytes;
    for (int i = 0; i < n_sections; i++) {
        record->section_offset[i] = (uint64_t)(at - (char *)encoded->bytes);
        if (info->section_size[i] > 0)
            memcpy(at, sections[i], (size_t)info->section_size[i]);
        at += info->section_size[i];
    }
    for (int i = 0; i < n_sections && dataset->sparse->header.filtered; i++) {
        record->unfiltered_size[i] = info->unfiltered_size[i];
        record->filter_mask[i] = is_unfiltered ? 0 : info->filter_mask[i];
    }
    return 0;
}

/* Whether all that a chunk defines lies in the dataset. */
static int check_inside(const struct layout *layout, const uint64_t *scaled,
                        const struct runs *defined)
{
    struct runs outside;
    bool whole;
    int error = dataset_outside(layout, scaled, layout->dims, &outside, &whole);
    if (!error)
        error = runs_intersection(defined, &outside, &outside);
    if (!error && outside.elements > 0)
        error = layout_failed(layout, scaled, UINT64_MAX, "it has elements outside of the dims");
    runs_free(&outside);
    return error;
}

/* Whether they decode, and all that they define lies in the dataset. */
static int check_sections(struct sfs_dataset *dataset, const uint64_t *scaled,
                          const struct encoded *encoded, struct pool *pool)
{
    struct layout *layout = &dataset->layout;
    struct cache_form form = {0};
    const struct decoding decoding = {
        scaled, &encoded->record, PART_DEFINED | PART_VALUES | PART_HEAP, encoded->bytes, pool,
        &form};
    struct why why;
    if (chunk_record_check(&dataset->sparse->format, UINT64_MAX, 0, &encoded->record, &why) < 0)
        return -EINVAL;
    int error = layout->ops->decode(layout, &decoding);
    if (!error)
        error = sequences_check(layout, cache_chunk_limit(dataset->file->cache), scaled, UINT64_MAX,
                                &form);
    if (!error && form.defined.elements == 0)
        error = -EINVAL;
    if (!error && !dataset->info.is_dense)
        error = check_inside(layout, scaled, &form.defined);
    form_free(&form, pool);
    return error == -EIO ? -EINVAL : error;
}

/* ---- Writing chunks of dense datasets ---- */

/* Refuses a chunk that could not be read afterwards: decoding it must give a whole chunk. */
static int check_dense(struct sfs_dataset *dataset, const uint64_t *scaled,
                       const struct encoded *encoded, struct pool *pool)
{
    struct layout *layout = &dataset->layout;
    struct cache_form form = {0};
    const struct decoding decoding = {scaled, &encoded->record, PART_VALUES, encoded->bytes, pool,
                                      &form};
    if (!layout->ops->decode)
        return encoded->n == layout->chunk_bytes ? 0 : -EINVAL;
    int error = layout->ops->decode(layout, &decoding);
    form_free(&form, pool);
    return error == -EIO ? -EINVAL : error;
}

/* An edge chunk that is stored without filters: libhdf5 writes the part inside the dims. */
static int encode_edge(struct layout *layout, const uint64_t *scaled, const void *elements,
                       struct pool *pool, struct encoded *encoded)
{
    struct cache_form form = {.elements = (void *)elements, .element_size = layout->chunk_bytes};
    if (encoded->n != layout->chunk_bytes ||
        encoded->record.filter_mask[0] != dense_filters(layout))
        return -EINVAL;
    *encoded = (struct encoded){0};
    return layout->ops->encode(layout, scaled, &form, pool, encoded);
}

static int write_dense(struct sfs_dataset *dataset, const uint64_t *scaled,
                       const struct sfs_chunk_info *info, const void *bytes)
{
    struct layout *layout = &dataset->layout;
    uint64_t n = info->section_size[VALUES];
    uint32_t mask = info->filter_mask[VALUES];
    if (info->section_size[0] != 0 || info->section_size[HEAP] != 0 || n == 0 || n > UINT32_MAX ||
        (mask & ~dense_filters(layout)) || mask == UINT32_MAX || !layout_is_size(layout, n))
        return -EINVAL;
    struct encoded encoded = {.bytes = (void *)bytes,
                              .n = (size_t)n,
                              .record = {.exists = true, .size = n, .filter_mask = {mask}}};
    struct pool pool;
    pool_init(&pool, 0);
    int error = layout_check_room(layout, scaled);
    if (!error && layout_is_unfiltered(layout, scaled))
        error = encode_edge(layout, scaled, bytes, &pool, &encoded);
    else if (!error)
        error = check_dense(dataset, scaled, &encoded, &pool);
    if (!error)
        error = cache_insert(dataset->cache, scaled, &encoded);
    if (encoded.room > 0)
        pool_put(&pool, encoded.bytes, encoded.room);
    pool_destroy(&pool);
    return error;
}

static int write_sparse(struct sfs_dataset *dataset, const uint64_t *scaled,
                        const struct sfs_chunk_info *info, const void *const sections[SFS_SECTIONS])
{
    struct encoded encoded;
    struct pool pool;
    pool_init(&pool, 0); /* nothing is kept */
    int error = join_sections(dataset, scaled, info, sections, &pool, &encoded);
    if (!error) {
        error = check_sections(dataset, scaled, &encoded, &pool);
        if (!error)
            error = cache_insert(dataset->cache, scaled, &encoded);
        pool_put(&pool, encoded.bytes, encoded.room);
    }
    pool_destroy(&pool);
    return error;
}

int sfs_write_chunk(struct sfs_dataset *dataset, const struct sfs_chunk_info *info,
                    const void *const sections[SFS_SECTIONS])
{
    WRITING(dataset->file);
    CHANGING(dataset);
    struct layout *layout = &dataset->layout;
    uint64_t scaled[SFS_MAX_RANK];
    if (!has_chunks(dataset) || (dataset->info.type.has_pointers && !sequences_are_read(dataset)))
        return -EOPNOTSUPP;
    if (writing.error)
        return writing.error;
    for (int i = 0; i < layout->rank; i++) {
        if (info->start[i] >= layout->dims[i] || info->start[i] % layout->chunk_dims[i] != 0)
            return -EINVAL;
        scaled[i] = info->start[i] / layout->chunk_dims[i];
    }
    return dataset->sparse ? write_sparse(dataset, scaled, info, sections)
                           : write_dense(dataset, scaled, info, sections[VALUES]);
}
