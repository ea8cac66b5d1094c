/* The selection of the defined elements of a slab, encoded. If the slab consists of whole chunks
 * that are bands of its rows, several threads decode chunks and encode their points at once. */
#include <errno.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "cache/cache.h"
#include "chunk/chunks_of_box.h"
#include "common/box.h"
#include "common/result_limit.h"
#include "common/thread_pool.h"
#include "dataset/private.h"
#include "layout/sparse.h"
#include "selection/selection.h"

static const struct selection_wanted points = {SELECTION_LIBHDF5_1_10_POINTS, result_limit_take};
static const struct selection_wanted smallest = {SELECTION_SMALLEST, result_limit_take};

/* ---- One chunk ---- */

/* A slab that is one chunk, as frames often are, is encoded from the chunk's selection. */
static int encode_one_chunk(struct sfs_dataset *dataset, const struct sfs_slab *slab,
                            int space_rank, void **encoded, size_t *n, bool *is_done)
{
    const struct layout *layout = &dataset->layout;
    struct box box;
    struct piece piece;
    const struct cache_form *form;
    struct chunk *chunk;
    static const struct runs nothing;
    int error = dataset_box(dataset, slab, &box);
    *is_done =
        !error && piece_first(layout, &box, &piece) && piece_is_all(layout, &box, &piece) &&
        memcmp(box.count, layout->chunk_dims, (size_t)layout->rank * sizeof(*box.count)) == 0;
    if (!*is_done)
        return error;
    error = cache_pin(dataset->cache, piece.scaled, PART_DEFINED, &form, &chunk);
    if (error)
        return error;
    error = selection_encode_if(space_rank, slab->count + slab->rank - space_rank,
                                form ? &form->defined : &nothing, &points, encoded, n);
    cache_return(chunk);
    return error;
}

/* ---- Bands of rows ---- */

/* Chunks with more runs than this are joined before they are encoded. */
#define MOST_BANDS 64

struct band {
    uint64_t scaled[SFS_MAX_RANK]; /* the chunk */
    uint64_t index, elements;      /* points before its own, and its own, by the chunk index */
};

struct bands {
    struct sfs_dataset *dataset;
    const uint64_t *dims; /* of the slab: its last two */
    uint64_t rows;        /* of a band */
    size_t n;
    struct band band[MOST_BANDS];
    void *encoded;
    atomic_bool is_impossible; /* to encode them in bands */
};

/* Whether the box is a plane, made of chunks that are whole rows of it. */
static bool is_bands(const struct layout *layout, const struct box *box)
{
    int rank = layout->rank;
    for (int i = 0; i < rank - 2; i++)
        if (layout->chunk_dims[i] != 1 || box->count[i] != 1)
            return false;
    uint64_t rows = layout->chunk_dims[rank - 2];
    return layout->chunk_dims[rank - 1] == box->count[rank - 1] &&
           box->start[rank - 1] % layout->chunk_dims[rank - 1] == 0 &&
           box->start[rank - 2] % rows == 0 && box->count[rank - 2] % rows == 0 &&
           box->count[rank - 2] / rows <= MOST_BANDS;
}

static int find_bands(struct bands *bands, const struct box *box, uint64_t *elements)
{
    struct layout *layout = &bands->dataset->layout;
    struct piece piece;
    int error = 0;
    *elements = 0;
    for (bool more = piece_first(layout, box, &piece); more && !error;
         more = piece_next(layout, box, &piece)) {
        struct band *band = &bands->band[bands->n++];
        struct chunk_record record;
        memcpy(band->scaled, piece.scaled, sizeof(band->scaled));
        error = layout->ops->lookup(layout, piece.scaled, &record);
        band->index = *elements;
        band->elements = !error && record.exists ? layout->ops->defined_count(layout, &record) : 0;
        *elements += band->elements;
    }
    return error;
}

/* If bands cannot be used the selection is at least in the cache afterwards. */
static int put_band(void *context, size_t i)
{
    struct bands *bands = context;
    const struct band *band = &bands->band[i];
    const struct cache_form *form;
    struct chunk *chunk;
    int error = cache_pin(bands->dataset->cache, band->scaled, PART_DEFINED, &form, &chunk);
    if (error)
        return error;
    uint64_t elements = form ? form->defined.elements : 0;
    if (elements != band->elements || /* it is dirty, and the index outdated */
        (elements > 0 && !selection_points_put(bands->encoded, bands->dims, i * bands->rows,
                                               bands->rows, &form->defined, band->index)))
        atomic_store(&bands->is_impossible, true);
    cache_return(chunk);
    return 0;
}

/* *is_done: it could be encoded in bands. */
static int encode_bands(struct sfs_dataset *dataset, const struct sfs_slab *slab, int space_rank,
                        void **encoded, size_t *n, bool *is_done)
{
    struct layout *layout = &dataset->layout;
    struct bands bands = {.dataset = dataset};
    struct box box;
    uint64_t elements;
    *is_done = false;
    int error = dataset_box(dataset, slab, &box);
    if (error || space_rank != 2 || !is_bands(layout, &box))
        return error;
    bands.dims = box.count + box.rank - 2;
    bands.rows = layout->chunk_dims[box.rank - 2];
    error = find_bands(&bands, &box, &elements);
    if (!error)
        error = selection_points_begin(bands.dims, elements, result_limit_take, &bands.encoded, n);
    if (!error)
        error = workers_each(cache_workers(dataset->file->cache), bands.n, put_band, &bands);
    *is_done = !error && !atomic_load(&bands.is_impossible);
    if (*is_done) {
        *encoded = bands.encoded;
    } else {
        free(bands.encoded);
        (void)result_limit_take(0); /* it is not wanted any more, while the runs are found */
    }
    return error == -EOVERFLOW ? 0 : error;
}

/* ---- Any slab ---- */

static int encode_defined_once(struct sfs_dataset *dataset, const struct sfs_slab *slab,
                               int space_rank, void **encoded, size_t *n)
{
    USING(dataset);
    if (space_rank < 0 || space_rank > slab->rank)
        return -EINVAL;
    const uint64_t *dims = slab->count + slab->rank - space_rank;
    if (!dataset_has_undefined(dataset))
        return selection_encode_all(space_rank, dims, encoded, n);
    struct runs runs;
    bool is_done;
    int error = encode_one_chunk(dataset, slab, space_rank, encoded, n, &is_done);
    if (error || is_done)
        return error;
    error = encode_bands(dataset, slab, space_rank, encoded, n, &is_done);
    if (error || is_done)
        return error;
    error = dataset_defined(dataset, slab, &runs);
    if (!error)
        error = selection_encode_if(space_rank, dims, &runs, &points, encoded, n);
    if (error == -EOVERFLOW) /* coordinates of more than 32 bits */
        error = selection_encode_if(space_rank, dims, &runs, &smallest, encoded, n);
    runs_free(&runs);
    return error;
}

int sfs_encode_defined(struct sfs_dataset *dataset, const struct sfs_slab *slab, int space_rank,
                       void **encoded, size_t *n)
{
    void *made;
    size_t made_n;
    int error =
        FOLLOWING(dataset->file, encode_defined_once(dataset, slab, space_rank, &made, &made_n));
    if (error)
        return error;
    *encoded = made;
    *n = made_n;
    return 0;
}
