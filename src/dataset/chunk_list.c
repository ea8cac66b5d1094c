/* Lists of chunks, by which work is in proportion to what is stored, not to the dims. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "cache/cache.h"
#include "chunk/chunks_of_box.h"
#include "common/growing_array.h"
#include "common/interrupt.h"
#include "dataset/private.h"

#define FEW_CHUNKS 64 /* that are looked up one by one */

int chunk_list_add(struct chunk_list *list, int rank, const uint64_t *scaled)
{
    size_t n = (size_t)rank;
    uint64_t *grown = room_for_one(list->scaled, list->n, &list->capacity, n * sizeof(*grown));
    if (!grown)
        return -ENOMEM;
    list->scaled = grown;
    memcpy(list->scaled + list->n++ * n, scaled, n * sizeof(*scaled));
    return 0;
}

/* ---- What may be defined in a box ---- */

struct filling {
    struct chunk_list *list;
    int rank;
};

static int add_stored(void *context, const uint64_t *scaled, const struct chunk_record *record)
{
    const struct filling *filling = context;
    (void)record;
    return chunk_list_add(filling->list, filling->rank, scaled);
}

static bool touches(const struct layout *layout, const struct box *box, const uint64_t *scaled)
{
    for (int i = 0; i < layout->rank; i++)
        if (scaled[i] < box->start[i] / layout->chunk_dims[i] ||
            scaled[i] > (box->start[i] + box->count[i] - 1) / layout->chunk_dims[i])
            return false;
    return true;
}

/* Listed before the stored chunks: a chunk that is stored meanwhile must not be missed. */
static int add_changed(struct sfs_dataset *dataset, const struct box *box, struct chunk_list *list)
{
    const struct layout *layout = &dataset->layout;
    uint64_t *scaled;
    size_t n;
    int error = cache_changed(dataset->cache, &scaled, &n);
    for (size_t i = 0; i < n && !error; i++) {
        const uint64_t *at = scaled + i * (size_t)layout->rank;
        if (touches(layout, box, at))
            error = chunk_list_add(list, layout->rank, at);
    }
    free(scaled);
    return error;
}

static int compare(const void *a, const void *b, void *rank)
{
    const uint64_t *left = a, *right = b;
    for (int i = 0; i < *(const int *)rank; i++)
        if (left[i] != right[i])
            return left[i] < right[i] ? -1 : 1;
    return 0;
}

/* Sorts, and removes duplicates. */
static void sort(struct chunk_list *list, int rank)
{
    size_t bytes = (size_t)rank * sizeof(*list->scaled), n = 0;
    if (list->n == 0)
        return;
    qsort_r(list->scaled, list->n, bytes, compare, &rank);
    for (size_t i = 0; i < list->n; i++) {
        const uint64_t *at = list->scaled + i * (size_t)rank;
        if (n == 0 || compare(list->scaled + (n - 1) * (size_t)rank, at, &rank) != 0)
            memmove(list->scaled + n++ * (size_t)rank, at, bytes);
    }
    list->n = n;
}

int chunk_list_fill(struct chunk_list *list, struct sfs_dataset *dataset, const struct box *box)
{
    struct layout *layout = &dataset->layout;
    struct filling filling = {list, layout->rank};
    struct piece piece;
    int error = 0;
    *list = (struct chunk_list){0};
    uint64_t possible = piece_number(layout, box);
    if (possible == 0)
        return 0;
    if (possible <= FEW_CHUNKS) {
        for (bool more = piece_first(layout, box, &piece); more && !error;
             more = piece_next(layout, box, &piece))
            error = chunk_list_add(list, layout->rank, piece.scaled);
        return error;
    }
    error = add_changed(dataset, box, list);
    if (!error)
        error = layout_each_chunk(layout, box, add_stored, &filling);
    sort(list, layout->rank);
    return error;
}
