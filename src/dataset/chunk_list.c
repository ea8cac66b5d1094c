/* Lists of chunks, by which work is in proportion to what is stored, not to the dims. */
#include <errno.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "cache/cache.h"
#include "chunk/chunks_of_box.h"
#include "common/growing_array.h"
#include "common/interrupt.h"
#include "common/log.h"
#include "common/size.h"
#include "dataset/private.h"

#define FEW_CHUNKS 64 /* that are looked up one by one */

/* Bytes of a list from which on it is counted. */
#define LONG_LIST ((size_t)64 << 10)

/* Coordinates that are compared between two looks at whether anybody still waits for them. */
#define LOOK_EVERY 65536

/* ---- Memory ---- */

static atomic_size_t taken_by_all; /* bytes, by selections and lists of the process */

int selection_memory_take(const struct sfs_dataset *dataset, const char *what, size_t bytes,
                          size_t *taken)
{
    const size_t most = cache_chunk_limit(dataset->file->cache);
    if (bytes <= *taken)
        return 0;
    const size_t more = bytes - *taken;
    const bool is_too_large = bytes > most;
    if (!is_too_large && atomic_fetch_add(&taken_by_all, more) <= most - more) {
        *taken = bytes;
        return 0;
    }
    if (!is_too_large)
        atomic_fetch_sub(&taken_by_all, more);
    log_error("%s: %s: %s takes up to %zu MiB of memory%s, and chunk_memory= allows "
              "no more than %zu MiB",
              sfs_path(dataset->file), dataset->path, what, bytes >> 20,
              is_too_large ? "" : " beside others", most >> 20);
    return is_too_large ? -EIO : -ENOMEM;
}

void selection_memory_give_back(size_t taken)
{
    atomic_fetch_sub(&taken_by_all, taken);
}

/* ---- Lists ---- */

/* Sorting takes as much again. */
static int count_memory(struct chunk_list *list, const struct sfs_dataset *dataset)
{
    size_t bytes =
        size_product(list->capacity, 2 * (size_t)dataset->layout.rank * sizeof(*list->scaled));
    return bytes < LONG_LIST
               ? 0
               : selection_memory_take(dataset, "a list of chunks", bytes, &list->taken);
}

int chunk_list_add(struct chunk_list *list, const struct sfs_dataset *dataset,
                   const uint64_t *scaled)
{
    size_t n = (size_t)dataset->layout.rank, capacity = list->capacity;
    uint64_t *grown = room_for_one(list->scaled, list->n, &list->capacity, n * sizeof(*grown));
    if (!grown)
        return -ENOMEM;
    list->scaled = grown;
    memcpy(list->scaled + list->n++ * n, scaled, n * sizeof(*scaled));
    return list->capacity > capacity ? count_memory(list, dataset) : 0;
}

void chunk_list_free(struct chunk_list *list)
{
    free(list->scaled);
    selection_memory_give_back(list->taken);
    *list = (struct chunk_list){0};
}

/* ---- What may be defined in a box ---- */

struct filling {
    struct chunk_list *list;
    const struct sfs_dataset *dataset;
};

static int add_stored(void *context, const uint64_t *scaled, const struct chunk_record *record)
{
    const struct filling *filling = context;
    (void)record;
    return chunk_list_add(filling->list, filling->dataset, scaled);
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
            error = chunk_list_add(list, dataset, at);
    }
    free(scaled);
    return error;
}

struct comparing {
    int rank;
    uint64_t n; /* compared so far */
};

/* Sorting goes on to its end, but is asked, so that others do not wait for it. */
static int compare(const void *a, const void *b, void *context)
{
    const uint64_t *left = a, *right = b;
    struct comparing *comparing = context;
    if (++comparing->n % LOOK_EVERY == 0)
        (void)interrupt_check();
    for (int i = 0; i < comparing->rank; i++)
        if (left[i] != right[i])
            return left[i] < right[i] ? -1 : 1;
    return 0;
}

static bool is_sorted(const struct chunk_list *list, struct comparing *comparing)
{
    size_t rank = (size_t)comparing->rank;
    for (size_t i = 1; i < list->n; i++)
        if (compare(list->scaled + (i - 1) * rank, list->scaled + i * rank, comparing) >= 0)
            return false;
    return true;
}

/* Sorts, and removes duplicates. Most indexes are in order. */
static void sort(struct chunk_list *list, int rank)
{
    struct comparing comparing = {.rank = rank};
    size_t bytes = (size_t)rank * sizeof(*list->scaled), n = 0;
    if (list->n == 0 || is_sorted(list, &comparing))
        return;
    qsort_r(list->scaled, list->n, bytes, compare, &comparing);
    for (size_t i = 0; i < list->n; i++) {
        const uint64_t *at = list->scaled + i * (size_t)rank;
        if (n == 0 || compare(list->scaled + (n - 1) * (size_t)rank, at, &comparing) != 0)
            memmove(list->scaled + n++ * (size_t)rank, at, bytes);
    }
    list->n = n;
}

int chunk_list_fill(struct chunk_list *list, struct sfs_dataset *dataset, const struct box *box)
{
    struct layout *layout = &dataset->layout;
    struct filling filling = {list, dataset};
    struct piece piece;
    int error = 0;
    *list = (struct chunk_list){0};
    uint64_t possible = piece_number(layout, box);
    if (possible == 0)
        return 0;
    if (possible <= FEW_CHUNKS) {
        for (bool more = piece_first(layout, box, &piece); more && !error;
             more = piece_next(layout, box, &piece))
            error = chunk_list_add(list, dataset, piece.scaled);
        return error;
    }
    error = add_changed(dataset, box, list);
    if (!error)
        error = layout_each_chunk(layout, box, add_stored, &filling);
    if (!error) {
        sort(list, layout->rank);
        error = interrupt_check();
    }
    return error;
}
