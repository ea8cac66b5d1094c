/* What is defined in a slab of a dataset, and the values of just that. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "cache/cache.h"
#include "common/box.h"
#include "dataset/private.h"
#include "layout/piece.h"
#include "layout/sparse.h"
#include "selection/selection.h"

/* Slabs that touch more chunks than this are counted by walking the index once. */
#define FEW_CHUNKS 64

/* Elements that are read at once to pick the defined ones from, in bytes. */
#define WINDOW_BYTES ((size_t)128 << 10)

void sfs_defined_free(struct sfs_defined *defined)
{
    if (!defined)
        return;
    free(defined->interval);
    *defined = (struct sfs_defined){0};
}

/* ---- Selections of several chunks made one ---- */

struct pieces {
    struct runs_piece *piece;
    size_t n, capacity;
};

static int add_piece(struct pieces *pieces, uint64_t first, uint64_t length)
{
    if (pieces->n == pieces->capacity) {
        size_t capacity = pieces->capacity + pieces->capacity / 2 + 256;
        struct runs_piece *grown = reallocarray(pieces->piece, capacity, sizeof(*grown));
        if (!grown)
            return -ENOMEM;
        pieces->piece = grown;
        pieces->capacity = capacity;
    }
    pieces->piece[pieces->n++] = (struct runs_piece){first, length};
    return 0;
}

/* Adds what is defined in one piece of box, as positions in the box. */
static int add_defined(const struct layout *layout, const struct box *box,
                       const struct piece *piece, const struct runs *defined, struct pieces *pieces)
{
    struct runs_box_walk walk;
    struct run run;
    uint64_t offset, row_length = piece->count[layout->rank - 1];
    int error = 0;
    runs_box_walk_begin(&walk, defined, layout->rank, layout->chunk_dims, piece->in_chunk,
                        piece->count);
    while (!error && runs_box_walk(&walk, &run, &offset)) {
        for (uint64_t left = run.last - run.first; left > 0 && !error;) {
            uint64_t in_row = row_length - offset % row_length;
            uint64_t n = left < in_row ? left : in_row;
            error = add_piece(
                pieces,
                box_translate(layout->rank, piece->count, offset, box->count, piece->in_box), n);
            offset += n;
            left -= n;
        }
    }
    return error;
}

/* The piece lies in the box without a gap, from position `place` on: its positions come in order.
 */
static int append_defined(const struct layout *layout, const struct piece *piece, uint64_t place,
                          const struct runs *defined, struct runs *runs)
{
    uint64_t offset, first, elements;
    struct run run;
    int error = 0;
    if (box_is_contiguous(layout->rank, piece->count, layout->chunk_dims, piece->in_chunk,
                          &first) &&
        box_product(piece->count, layout->rank, 1, &elements)) {
        struct runs_walk walk;
        runs_walk_begin(&walk, defined, first, first + elements);
        while (!error && runs_walk(&walk, &run))
            error = runs_append(runs, place + (run.first - first), place + (run.last - first));
        return error;
    }
    struct runs_box_walk walk;
    runs_box_walk_begin(&walk, defined, layout->rank, layout->chunk_dims, piece->in_chunk,
                        piece->count);
    while (!error && runs_box_walk(&walk, &run, &offset))
        error = runs_append(runs, place + offset, place + offset + (run.last - run.first));
    return error;
}

static int sparse_defined(struct sfs_dataset *dataset, const struct box *box, struct runs *runs)
{
    const struct layout *layout = &dataset->layout;
    struct pieces pieces = {0};
    struct piece piece;
    int error = 0;
    for (bool more = piece_first(layout, box, &piece); more && !error;
         more = piece_next(layout, box, &piece)) {
        const struct cache_form *form;
        struct chunk *chunk;
        error = cache_pin(dataset->cache, piece.scaled, PART_DEFINED, &form, &chunk);
        if (error)
            break;
        uint64_t place;
        if (!form)
            error = 0;
        else if (box_is_contiguous(layout->rank, piece.count, box->count, piece.in_box, &place))
            error = append_defined(layout, &piece, place, &form->defined, runs);
        else
            error = add_defined(layout, box, &piece, &form->defined, &pieces);
        cache_return(chunk);
    }
    struct runs others = {0};
    if (!error && pieces.n > 0)
        error = runs_of_pieces(pieces.piece, pieces.n, box_elements(box), &others);
    if (!error && pieces.n > 0)
        error = runs_union(runs, &others, runs);
    runs_free(&others);
    free(pieces.piece);
    return error;
}

int dataset_defined(struct sfs_dataset *dataset, const struct sfs_slab *slab, struct runs *runs)
{
    struct box box;
    uint64_t elements;
    runs_init(runs);
    int error = dataset_box(dataset, slab, &box);
    if (!error && !box_product(box.count, box.rank, 1, &elements))
        error = -EINVAL;
    if (error)
        return error;
    return dataset->sparse ? sparse_defined(dataset, &box, runs) : runs_append(runs, 0, elements);
}

int sfs_get_defined(struct sfs_dataset *dataset, const struct sfs_slab *slab,
                    struct sfs_defined *defined)
{
    USING(dataset);
    struct runs runs;
    int error = dataset_defined(dataset, slab, &runs);
    if (!error)
        error = runs_reserve(&runs, runs.n + 1); /* room for the end even if there is nothing */
    if (error) {
        runs_free(&runs);
        return error;
    }
    runs.entries[runs.n] = (struct sfs_interval){0, runs.elements};
    *defined = (struct sfs_defined){runs.n, runs.entries, runs.elements};
    return 0;
}

/* A slab that is one chunk, as frames often are, is encoded from where its selection is. */
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
    error = selection_encode(space_rank, slab->count + slab->rank - space_rank, NULL,
                             form ? &form->defined : &nothing, SELECTION_LIBHDF5_1_10_POINTS,
                             encoded, n);
    cache_return(chunk);
    return error;
}

int sfs_encode_defined(struct sfs_dataset *dataset, const struct sfs_slab *slab, int space_rank,
                       void **encoded, size_t *n)
{
    USING(dataset);
    if (space_rank < 0 || space_rank > slab->rank)
        return -EINVAL;
    const uint64_t *dims = slab->count + slab->rank - space_rank;
    if (!dataset->sparse)
        return selection_encode_all(space_rank, dims, encoded, n);
    struct runs runs;
    bool is_done;
    int error = encode_one_chunk(dataset, slab, space_rank, encoded, n, &is_done);
    if (error || is_done)
        return error;
    error = dataset_defined(dataset, slab, &runs);
    if (!error)
        error = selection_encode(space_rank, dims, NULL, &runs, SELECTION_LIBHDF5_1_10_POINTS,
                                 encoded, n);
    runs_free(&runs);
    return error;
}

/* ---- Counting ---- */

struct count {
    const struct layout *layout;
    const struct box *box;
    struct sfs_dataset *dataset;
    uint64_t elements;
};

/* Whether all that can be defined of a chunk lies in the box: it does itself, or reaches over an
 * edge that the dataset never went beyond. */
static bool is_inside(const struct layout *layout, const struct box *box, const uint64_t *scaled)
{
    for (int i = 0; i < layout->rank; i++) {
        uint64_t start = scaled[i] * layout->chunk_dims[i];
        uint64_t end = box->start[i] + box->count[i];
        bool is_last = end == layout->dims[i] && end == layout->info->max_dims[i];
        if (start < box->start[i] || (start + layout->chunk_dims[i] > end && !is_last))
            return false;
    }
    return true;
}

/* What of a chunk that the box cuts is defined in the box. */
static int count_in_part(struct count *count, const uint64_t *scaled)
{
    const struct layout *layout = count->layout;
    struct box chunk = {.rank = layout->rank}, part;
    struct sfs_slab slab = {.rank = layout->rank};
    struct runs runs;
    for (int i = 0; i < layout->rank; i++) {
        chunk.start[i] = scaled[i] * layout->chunk_dims[i];
        chunk.count[i] = layout->chunk_dims[i];
    }
    if (!box_intersect(&chunk, count->box, &part))
        return 0;
    memcpy(slab.start, part.start, sizeof(slab.start));
    memcpy(slab.count, part.count, sizeof(slab.count));
    int error = dataset_defined(count->dataset, &slab, &runs);
    if (!error)
        count->elements += runs.elements;
    runs_free(&runs);
    return error;
}

static int count_chunk(void *context, const uint64_t *scaled, const struct chunk_record *record)
{
    struct count *count = context;
    if (!is_inside(count->layout, count->box, scaled))
        return count_in_part(count, scaled);
    count->elements += count->layout->ops->defined_count(count->layout, record);
    return 0;
}

static int count_few(struct count *count)
{
    struct layout *layout = &count->dataset->layout;
    struct piece piece;
    int error = 0;
    for (bool more = piece_first(layout, count->box, &piece); more && !error;
         more = piece_next(layout, count->box, &piece)) {
        struct chunk_record record;
        error = layout->ops->lookup(layout, piece.scaled, &record);
        if (!error && record.exists)
            error = count_chunk(count, piece.scaled, &record);
    }
    return error;
}

int sfs_count_defined(struct sfs_dataset *dataset, const struct sfs_slab *slab, uint64_t *elements)
{
    USING(dataset);
    struct box box;
    int error = dataset_box(dataset, slab, &box);
    if (error)
        return error;
    if (!dataset->sparse)
        return box_product(box.count, box.rank, 1, elements) ? 0 : -EINVAL;
    error = cache_flush(dataset->file->cache, dataset->cache); /* the index is to know it all */
    if (error)
        return error;

    struct count count = {&dataset->layout, &box, dataset, 0};
    struct piece piece;
    uint64_t chunks = piece_first(&dataset->layout, &box, &piece) ? 1 : 0;
    for (int i = 0; chunks && i < box.rank; i++)
        if (__builtin_mul_overflow(chunks, piece.last[i] - piece.first[i] + 1, &chunks))
            chunks = UINT64_MAX;
    error = chunks <= FEW_CHUNKS ? count_few(&count)
                                 : layout_each_chunk(&dataset->layout, count_chunk, &count);
    if (!error)
        *elements = count.elements;
    return error;
}

/* ---- Values ---- */

/* The interval that holds the n-th defined element. */
static size_t interval_of(const struct sfs_defined *defined, uint64_t n)
{
    size_t low = 0, high = defined->n;
    while (high - low > 1) {
        size_t middle = low + (high - low) / 2;
        if (defined->interval[middle].index <= n)
            low = middle;
        else
            high = middle;
    }
    return low;
}

/* Reads one window of elements and copies the values [first, last) that lie in it, as many as do;
 * returns their number, or an error. */
static int64_t read_window(struct sfs_dataset *dataset, const struct box *box,
                           const struct sfs_defined *defined, uint64_t first, uint64_t last,
                           char *window, uint64_t window_elements, char *to)
{
    size_t size = dataset->layout.element_size, i = interval_of(defined, first);
    const struct sfs_interval *interval = defined->interval;
    uint64_t begin = interval[i].first + (first - interval[i].index), end = begin;
    uint64_t taken = first;
    for (size_t k = i; taken < last && k < defined->n; k++) { /* how far it reaches */
        uint64_t from = interval[k].first + (taken - interval[k].index);
        uint64_t n = interval[k + 1].index - taken;
        if (n > last - taken)
            n = last - taken;
        if (from - begin >= window_elements)
            break;
        if (n > window_elements - (from - begin))
            n = window_elements - (from - begin);
        taken += n;
        end = from + n;
    }
    int error = dataset_read_elements(dataset, box, begin, end - begin, window);
    if (error)
        return error;
    for (uint64_t value = first; value < taken; i++) {
        uint64_t from = interval[i].first + (value - interval[i].index);
        uint64_t n = interval[i + 1].index - value;
        if (n > taken - value)
            n = taken - value;
        memcpy(to, window + (from - begin) * size, n * size);
        to += n * size;
        value += n;
    }
    return (int64_t)(taken - first);
}

int sfs_read_values(struct sfs_dataset *dataset, const struct sfs_slab *slab,
                    const struct sfs_defined *defined, uint64_t first, uint64_t n, void *buffer)
{
    USING(dataset);
    struct box box;
    if (dataset->info.type.has_pointers)
        return -EOPNOTSUPP;
    int error = dataset_box(dataset, slab, &box);
    if (error)
        return error;
    if (first > defined->elements || n > defined->elements - first)
        return -EINVAL;
    size_t size = dataset->layout.element_size;
    uint64_t window_elements = size < WINDOW_BYTES ? WINDOW_BYTES / size : 1;
    char *window = malloc(window_elements * size), *to = buffer;
    if (!window)
        return -ENOMEM;
    while (n > 0) {
        int64_t got =
            read_window(dataset, &box, defined, first, first + n, window, window_elements, to);
        if (got < 0) {
            error = (int)got;
            break;
        }
        first += (uint64_t)got;
        n -= (uint64_t)got;
        to += (size_t)got * size;
    }
    free(window);
    return error;
}
