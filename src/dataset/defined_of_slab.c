/* The defined elements of a slab of a dataset, and their values. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "cache/cache.h"
#include "chunk/chunks_of_box.h"
#include "common/box.h"
#include "common/growing_array.h"
#include "common/interrupt.h"
#include "common/search.h"
#include "common/size.h"
#include "common/thread_pool.h"
#include "dataset/private.h"
#include "layout/sparse.h"
#include "selection/selection.h"

/* Slabs that touch more chunks than this are counted by walking the index once. */
#define FEW_CHUNKS 64

/* Chunks whose selections are decoded at once. */
#define AHEAD 8

/* Pieces, between two looks at whether anybody still waits for them. */
#define LOOK_EVERY 65536

/* A piece, two copies to sort it, and a run. */
#define BYTES_FOR_PIECE (3 * sizeof(struct runs_piece) + sizeof(struct sfs_interval))

/* Elements that are read at once to pick the defined ones from, in bytes. */
#define WINDOW_BYTES ((size_t)128 << 10)

void sfs_defined_free(struct sfs_defined *defined)
{
    if (!defined)
        return;
    free(defined->interval);
    *defined = (struct sfs_defined){0};
}

/* ---- Joining the selections of chunks ---- */

struct pieces {
    struct runs_piece *piece;
    size_t n, capacity;
};

/* What is defined in a box: of pieces that lie in it without a gap in runs, of others in pieces. */
struct joining {
    struct sfs_dataset *dataset;
    const struct box *box;
    struct runs *runs;
    struct pieces pieces;
    size_t taken; /* bytes, of all that are taken */
    size_t
        n_looked; /* pieces and runs that were gone through, which can be many more than there are in the end */
    struct piece ahead[AHEAD];
    size_t n_ahead;
};

/* Chunks of a few bytes can be of millions of runs, and of one run can be as many pieces. Whether there is memory for
 * what there is now, and for making runs of pieces. */
static int take_memory(struct joining *joining)
{
    const struct sfs_dataset *dataset = joining->dataset;
    const size_t needs =
        size_sum(size_product(joining->runs->capacity, sizeof(struct sfs_interval)),
                 size_product(joining->pieces.capacity, BYTES_FOR_PIECE));
    return selection_memory_take(dataset, "a selection", needs, &joining->taken);
}

static int look(struct joining *joining)
{
    return ++joining->n_looked % LOOK_EVERY ? 0 : interrupt_check();
}

static int add_piece(struct joining *joining, uint64_t first, uint64_t length)
{
    struct pieces *pieces = &joining->pieces;
    const size_t capacity = pieces->capacity;
    struct runs_piece *grown =
        room_for_one(pieces->piece, pieces->n, &pieces->capacity, sizeof(*grown));
    if (!grown)
        return -ENOMEM;
    pieces->piece = grown;
    pieces->piece[pieces->n++] = (struct runs_piece){first, length};
    int error = pieces->capacity > capacity ? take_memory(joining) : 0;
    return error ? error : look(joining);
}

/* Adds what is defined in one piece of the box, as positions in the box. */
static int add_defined(struct joining *joining, const struct piece *piece,
                       const struct runs *defined)
{
    const struct layout *layout = &joining->dataset->layout;
    const struct box *box = joining->box;
    struct runs_box_walk walk;
    struct run run;
    uint64_t offset, row_length = piece->count[layout->rank - 1];
    int error = 0;
    runs_box_walk_begin(&walk, defined, layout->rank, layout->chunk_dims, piece->in_chunk,
                        piece->count);
    while (!error && runs_box_walk_some(&walk, &run, &offset)) {
        if (run.first == run.last)
            error = interrupt_check();
        for (uint64_t left = run.last - run.first; left > 0 && !error;) {
            uint64_t in_row = row_length - offset % row_length;
            uint64_t n = left < in_row ? left : in_row;
            error = add_piece(
                joining,
                box_translate(layout->rank, piece->count, offset, box->count, piece->in_box), n);
            offset += n;
            left -= n;
        }
    }
    return error;
}

/* The piece lies in the box without a gap, from position `place` on: its positions come in order.
 */
static int append_defined(struct joining *joining, const struct piece *piece, uint64_t place,
                          const struct runs *defined)
{
    const struct layout *layout = &joining->dataset->layout;
    struct runs *runs = joining->runs;
    uint64_t offset, first, elements;
    struct run run;
    int error = 0;
    if (box_is_contiguous(layout->rank, piece->count, layout->chunk_dims, piece->in_chunk,
                          &first) &&
        box_product(piece->count, layout->rank, 1, &elements))
        return runs_append_part(runs, defined, first, first + elements, place);
    struct runs_box_walk walk;
    runs_box_walk_begin(&walk, defined, layout->rank, layout->chunk_dims, piece->in_chunk,
                        piece->count);
    while (!error && runs_box_walk_some(&walk, &run, &offset)) {
        if (run.first == run.last) {
            error = interrupt_check();
            continue;
        }
        const size_t capacity = runs->capacity;
        error = runs_append(runs, place + offset, place + offset + (run.last - run.first));
        if (!error && runs->capacity > capacity)
            error = take_memory(joining);
        if (!error)
            error = look(joining);
    }
    return error;
}

/* Loads the selection of a chunk into the cache. */
static int load_ahead(void *context, size_t i)
{
    struct joining *joining = context;
    const struct cache_form *form;
    struct chunk *chunk;
    int error =
        cache_pin(joining->dataset->cache, joining->ahead[i].scaled, PART_DEFINED, &form, &chunk);
    if (!error)
        cache_return(chunk);
    return error;
}

static int join_piece(struct joining *joining, const struct piece *piece)
{
    const struct layout *layout = &joining->dataset->layout;
    const struct box *box = joining->box;
    const struct cache_form *form;
    struct chunk *chunk;
    int error = cache_pin(joining->dataset->cache, piece->scaled, PART_DEFINED, &form, &chunk);
    if (error)
        return error;
    uint64_t place;
    if (!form)
        error = 0;
    else if (box_is_contiguous(layout->rank, piece->count, box->count, piece->in_box, &place))
        error = append_defined(joining, piece, place, &form->defined);
    else
        error = add_defined(joining, piece, &form->defined);
    cache_return(chunk);
    return error ? error : take_memory(joining);
}

/* Batches of chunks are decoded by all workers, then joined sequentially. */
static int join_ahead(struct joining *joining)
{
    int error = interrupt_check();
    if (joining->n_ahead > 1 && !error)
        error = workers_each(cache_workers(joining->dataset->file->cache), joining->n_ahead,
                             load_ahead, joining);
    for (size_t i = 0; i < joining->n_ahead && !error; i++) {
        error = i > 0 ? interrupt_check() : 0;
        if (!error)
            error = join_piece(joining, &joining->ahead[i]);
    }
    joining->n_ahead = 0;
    return error;
}

static int sparse_defined(struct sfs_dataset *dataset, const struct box *box, struct runs *runs)
{
    const struct layout *layout = &dataset->layout;
    struct joining joining = {.dataset = dataset, .box = box, .runs = runs};
    struct pieces *pieces = &joining.pieces;
    struct chunk_list list;
    int error = chunk_list_fill(&list, dataset, box);
    for (size_t i = 0; i < list.n && !error; i++) {
        piece_at(layout, box, list.scaled + i * (size_t)layout->rank,
                 &joining.ahead[joining.n_ahead++]);
        if (joining.n_ahead == AHEAD)
            error = join_ahead(&joining);
    }
    if (!error)
        error = join_ahead(&joining);
    chunk_list_free(&list);
    struct runs others = {0};
    if (!error && pieces->n > 0)
        error = runs_of_pieces(pieces->piece, pieces->n, box_elements(box), &others);
    if (!error && pieces->n > 0)
        error = runs_union(runs, &others, runs);
    runs_free(&others);
    free(pieces->piece);
    selection_memory_give_back(joining.taken);
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
    return dataset_has_undefined(dataset) ? sparse_defined(dataset, &box, runs)
                                          : runs_append(runs, 0, elements);
}

int dataset_describe(struct runs *runs, struct sfs_defined *defined)
{
    int error = runs_reserve(runs, runs->n + 1); /* the index of the end must exist even if there
                                                  * are no runs */
    if (error) {
        runs_free(runs);
        return error;
    }
    runs->entries[runs->n] = (struct sfs_interval){0, runs->elements};
    *defined = (struct sfs_defined){runs->n, runs->entries, runs->elements};
    return 0;
}

static int get_defined_once(struct sfs_dataset *dataset, const struct sfs_slab *slab,
                            struct sfs_defined *defined)
{
    USING(dataset);
    struct runs runs;
    int error = dataset_defined(dataset, slab, &runs);
    if (!error)
        return dataset_describe(&runs, defined);
    runs_free(&runs);
    return error;
}

int sfs_get_defined(struct sfs_dataset *dataset, const struct sfs_slab *slab,
                    struct sfs_defined *defined)
{
    return FOLLOWING(dataset->file, get_defined_once(dataset, slab, defined));
}

/* ---- Counting ---- */

struct count {
    const struct layout *layout;
    const struct box *box;
    struct sfs_dataset *dataset;
    uint64_t elements;
    struct changed_chunk *changed; /* chunks that are dirty while the index is walked */
};

struct changed_chunk {
    UT_hash_handle hh;
    uint64_t scaled[];
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

/* Counts the defined elements of a chunk inside of the box that cuts it. */
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

/* Counts a chunk by the number in its record. */
static int count_known(struct count *count, const uint64_t *scaled, uint64_t elements)
{
    if (!is_inside(count->layout, count->box, scaled))
        return elements > 0 ? count_in_part(count, scaled) : 0;
    count->elements += elements;
    return 0;
}

static int count_stored(void *context, const uint64_t *scaled, const struct chunk_record *record)
{
    struct count *count = context;
    struct changed_chunk *changed;
    HASH_FIND(hh, count->changed, scaled, (size_t)count->layout->rank * sizeof(*scaled), changed);
    if (changed)
        return 0;
    if (!is_inside(count->layout, count->box, scaled))
        return count_in_part(count, scaled);
    count->elements += count->layout->ops->defined_count(count->layout, record);
    return 0;
}

/* Dirty chunks are counted as they are in the cache. */
static int count_few(struct count *count)
{
    struct layout *layout = &count->dataset->layout;
    struct piece piece;
    int error = 0;
    for (bool more = piece_first(layout, count->box, &piece); more && !error;
         more = piece_next(layout, count->box, &piece)) {
        struct chunk_record record;
        uint64_t elements;
        bool known = cache_defined_count(count->dataset->cache, piece.scaled, &elements);
        if (!known)
            error = layout->ops->lookup(layout, piece.scaled, &record);
        if (!error && !known)
            elements = record.exists ? layout->ops->defined_count(layout, &record) : 0;
        if (!error)
            error = count_known(count, piece.scaled, elements);
    }
    return error;
}

static void free_changed(struct count *count)
{
    struct changed_chunk *changed, *next;
    HASH_ITER (hh, count->changed, changed, next) {
        HASH_DEL(count->changed, changed);
        free(changed);
    }
}

static int note_changed(struct count *count, const uint64_t *scaled)
{
    size_t bytes = (size_t)count->layout->rank * sizeof(*scaled);
    struct changed_chunk *changed = malloc(sizeof(*changed) + bytes);
    if (!changed)
        return -ENOMEM;
    memcpy(changed->scaled, scaled, bytes);
    HASH_ADD(hh, count->changed, scaled, bytes, changed);
    if (!hash_failed())
        return 0;
    free(changed);
    return -ENOMEM;
}

/* Counts and notes the dirty chunks. One that is stored before it is counted is left to the walk of
 * the index. */
static int count_changed(struct count *count)
{
    uint64_t *scaled, elements;
    size_t n, rank = (size_t)count->layout->rank;
    int error = cache_changed(count->dataset->cache, &scaled, &n);
    for (size_t i = 0; i < n && !error; i++) {
        const uint64_t *at = scaled + i * rank;
        if (!cache_defined_count(count->dataset->cache, at, &elements))
            continue;
        error = note_changed(count, at);
        if (!error)
            error = count_known(count, at, elements);
    }
    free(scaled);
    return error;
}

static int count_all(struct count *count)
{
    int error = count_changed(count);
    if (!error)
        error = layout_each_chunk(&count->dataset->layout, count->box, count_stored, count);
    free_changed(count);
    return error;
}

static int count_defined_once(struct sfs_dataset *dataset, const struct sfs_slab *slab,
                              uint64_t *elements)
{
    USING(dataset);
    struct box box;
    int error = dataset_box(dataset, slab, &box);
    if (error)
        return error;
    if (!dataset_has_undefined(dataset))
        return box_product(box.count, box.rank, 1, elements) ? 0 : -EINVAL;

    struct count count = {.layout = &dataset->layout, .box = &box, .dataset = dataset};
    error =
        piece_number(&dataset->layout, &box) <= FEW_CHUNKS ? count_few(&count) : count_all(&count);
    if (!error)
        *elements = count.elements;
    return error;
}

int sfs_count_defined(struct sfs_dataset *dataset, const struct sfs_slab *slab, uint64_t *elements)
{
    return FOLLOWING(dataset->file, count_defined_once(dataset, slab, elements));
}

/* ---- Values ---- */

/* Values of defined elements, some of those in their order. */
struct some_values {
    const struct sfs_defined *of;
    uint64_t first, n;
};

/* Room for consecutive elements of a box. */
struct window {
    char *bytes;
    uint64_t elements;
};

/* Reads one window of elements and copies the values that lie in it, the first ones, as many as do;
 * returns their number, or an error. */
static int64_t read_window(struct sfs_dataset *dataset, const struct box *box,
                           const struct some_values *values, const struct window *window, char *to)
{
    uint64_t first = values->first, last = first + values->n;
    const struct sfs_interval *interval = values->of->interval;
    size_t size = dataset->layout.element_size, i = search_interval(interval, values->of->n, first);
    uint64_t begin = interval[i].first + (first - interval[i].index), end = begin;
    uint64_t taken = first;
    for (size_t k = i; taken < last && k < values->of->n; k++) { /* how far it reaches */
        uint64_t from = interval[k].first + (taken - interval[k].index);
        uint64_t n = interval[k + 1].index - taken;
        if (n > last - taken)
            n = last - taken;
        if (from - begin >= window->elements)
            break;
        if (n > window->elements - (from - begin))
            n = window->elements - (from - begin);
        taken += n;
        end = from + n;
    }
    int error = dataset_read_elements(dataset, box, begin, end - begin, window->bytes);
    if (error)
        return error;
    for (uint64_t value = first; value < taken; i++) {
        uint64_t from = interval[i].first + (value - interval[i].index);
        uint64_t n = interval[i + 1].index - value;
        if (n > taken - value)
            n = taken - value;
        memcpy(to, window->bytes + (from - begin) * size, n * size);
        to += n * size;
        value += n;
    }
    return (int64_t)(taken - first);
}

uint64_t dataset_position_of(const struct sfs_defined *defined, uint64_t n)
{
    const struct sfs_interval *interval =
        &defined->interval[search_interval(defined->interval, defined->n, n)];
    return interval->first + (n - interval->index);
}

/* Gathers values, of which there are some, chunk by chunk where the pieces of the box are
 * intervals of it and of their chunks, as where frames are chunks. 1; 0: they are not, some values may
 * have been read; or an error. */
static int gather_in_order(struct sfs_dataset *dataset, const struct box *box,
                           const struct some_values *values, char *to)
{
    const struct layout *layout = &dataset->layout;
    const struct runs runs = dataset_runs_of(values->of);
    uint64_t begin = dataset_position_of(values->of, values->first),
             end = dataset_position_of(values->of, values->first + values->n - 1) + 1;
    uint64_t place, in_chunk, length;
    struct piece piece;
    int error = 0;
    if (!dataset->sparse || piece_number(layout, box) > values->n)
        return 0;
    for (bool more = piece_first(layout, box, &piece); more && !error;
         more = piece_next(layout, box, &piece)) {
        if (!box_is_contiguous(layout->rank, piece.count, box->count, piece.in_box, &place) ||
            !box_is_contiguous(layout->rank, piece.count, layout->chunk_dims, piece.in_chunk,
                               &in_chunk) ||
            !box_product(piece.count, layout->rank, 1, &length))
            return 0;
        uint64_t from = place > begin ? place : begin;
        uint64_t last = place + length < end ? place + length : end;
        if (from >= last)
            continue;
        struct runs part = {0};
        error = interrupt_check();
        if (!error)
            error = runs_append_part(&part, &runs, from, last, in_chunk + (from - place));
        if (!error && part.elements > 0)
            error = cache_gather(dataset->cache, piece.scaled, &part, to, false);
        to += (size_t)part.elements * layout->element_size;
        runs_free(&part);
    }
    return error ? error : 1;
}

static int read_values_once(struct sfs_dataset *dataset, const struct sfs_slab *slab,
                            const struct sfs_defined *defined, uint64_t first, uint64_t n,
                            void *buffer)
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
    struct some_values left = {defined, first, n};
    int done = n > 0 ? gather_in_order(dataset, &box, &left, buffer) : 1;
    if (done != 0)
        return done < 0 ? done : 0;
    size_t size = dataset->layout.element_size;
    struct window window = {.elements = size < WINDOW_BYTES ? WINDOW_BYTES / size : 1};
    window.bytes = malloc(window.elements * size);
    if (!window.bytes)
        return -ENOMEM;
    for (char *to = buffer; left.n > 0;) {
        int64_t got = read_window(dataset, &box, &left, &window, to);
        if (got < 0) {
            error = (int)got;
            break;
        }
        left.first += (uint64_t)got;
        left.n -= (uint64_t)got;
        to += (size_t)got * size;
    }
    free(window.bytes);
    return error;
}

int sfs_read_values(struct sfs_dataset *dataset, const struct sfs_slab *slab,
                    const struct sfs_defined *defined, uint64_t first, uint64_t n, void *buffer)
{
    return FOLLOWING(dataset->file, read_values_once(dataset, slab, defined, first, n, buffer));
}
