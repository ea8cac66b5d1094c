/* How many elements of a sparse dataset are defined: in one frame, in all, and in which frames at
 * all. The chunk index tells it (bytes of values by the size of one) of chunks that lie in one
 * frame and hold nothing outside of the dataset; of others their selections do. */
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "common/interrupt.h"
#include "common/log.h"
#include "common/search.h"
#include "view/private.h"
#include "view/views_memory.h"

#define FEW_CHUNKS 64    /* look-ups that cost less than a walk of the index */
#define MOST_TRIES 100   /* of counting in a file that is followed and moves on */
#define LOOK_EVERY 65536 /* frames, for whether anybody still waits */

int count_is_wrong(const struct views *views, uint64_t frame)
{
    log_error("%s: %s: frame %" PRIu64
              ": the chunk index does not tell how many elements are defined",
              sfs_path(views->file), views->path, frame);
    return -EIO;
}

static int are_too_many(const struct views *views)
{
    log_error("%s: %s: there are more frames than can be counted", sfs_path(views->file),
              views->path);
    return -EFBIG;
}

struct sought {
    const struct counts *counts;
    uint64_t frame;
};

static bool is_not_before(const void *context, size_t i)
{
    const struct sought *sought = context;
    return sought->counts->frame[i].frame >= sought->frame;
}

size_t counts_find(const struct counts *counts, uint64_t frame)
{
    const struct sought sought = {counts, frame};
    return search_between(0, counts->n, is_not_before, &sought);
}

/* The lock must be held. */
static void release(struct counts *counts)
{
    if (!counts || --counts->users > 0)
        return;
    kept_memory_give_back(counts_bytes(counts));
    free(counts->frame);
    free(counts);
}

/* The same. */
static void drop(struct views *views)
{
    release(views->counts);
    views->counts = NULL;
}

void counts_put(struct views *views, const struct counts *counts)
{
    if (!counts)
        return;
    pthread_mutex_lock(&views->count_lock);
    release((struct counts *)counts);
    if (counts == views->counts && counts->users == 1 && !kept_memory_may_stay())
        drop(views);
    pthread_mutex_unlock(&views->count_lock);
}

void counts_drop(struct views *views)
{
    pthread_mutex_lock(&views->count_lock);
    drop(views);
    views->total_changes = 0;
    pthread_mutex_unlock(&views->count_lock);
}

size_t counts_bytes(const struct counts *counts)
{
    return counts ? counts->room * sizeof(*counts->frame) : 0;
}

/* ---- Counting all frames ---- */

/* While they are counted, `before` is the number of elements of one frame in one chunk. */
struct tally {
    struct views *views;
    struct counts *counts;
    bool is_sorted;
    uint64_t *cut; /* coordinates of chunks whose selections are to be read */
    size_t n_cut, cut_room;
    uint64_t steps; /* of what takes long */
};

static int reserve(struct tally *tally)
{
    struct counts *counts = tally->counts;
    void *frame = counts->frame;
    int error =
        kept_memory_grow(tally->views, &frame, counts->n, &counts->room, sizeof(*counts->frame));
    counts->frame = frame;
    return error;
}

static int go_on(struct tally *tally)
{
    return ++tally->steps % LOOK_EVERY == 0 ? interrupt_check() : 0;
}

static int add(struct tally *tally, uint64_t frame, uint64_t elements)
{
    struct counts *counts = tally->counts;
    if (elements == 0)
        return 0;
    struct frame_count *last = counts->n ? &counts->frame[counts->n - 1] : NULL;
    if (last && last->frame == frame)
        return __builtin_add_overflow(last->before, elements, &last->before)
                   ? count_is_wrong(tally->views, frame)
                   : 0;
    tally->is_sorted &= !last || last->frame < frame;
    int error = reserve(tally);
    if (error)
        return error;
    counts->frame[counts->n++] = (struct frame_count){frame, elements};
    return 0;
}

/* The number of the frame in which an element of the dataset is. */
static uint64_t frame_of(const struct views *views, const uint64_t *element)
{
    uint64_t frame = 0;
    for (int i = 0; i < views->info->rank - views->frame_rank; i++)
        frame = frame * views->dims[i] + element[i];
    return frame;
}

/* Counts the defined elements of a slab, frame by frame. */
static int add_defined(struct tally *tally, const struct sfs_slab *slab,
                       const struct sfs_defined *defined)
{
    const struct views *views = tally->views;
    int nav_rank = views->info->rank - views->frame_rank;
    uint64_t in_frame = 1; /* elements of the slab */
    for (int i = nav_rank; i < slab->rank; i++)
        in_frame *= slab->count[i];
    int error = 0;
    for (size_t i = 0; i < defined->n && !error; i++) {
        uint64_t first = defined->interval[i].first;
        uint64_t left = defined->interval[i + 1].index - defined->interval[i].index;
        while (left > 0 && !error) {
            uint64_t n = in_frame - first % in_frame, element[SFS_MAX_RANK];
            n = n < left ? n : left;
            uint64_t which = first / in_frame;
            for (int k = nav_rank - 1; k >= 0; k--) {
                element[k] = slab->start[k] + which % slab->count[k];
                which /= slab->count[k];
            }
            error = add(tally, frame_of(views, element), n);
            if (!error)
                error = go_on(tally);
            first += n;
            left -= n;
        }
    }
    return error;
}

enum place { IN_A_FRAME, IN_FRAMES, OUTSIDE };

/* Whether all that the index counts of a chunk is in one frame. The dataset may have grown since
 * its dims were taken. */
static enum place place_of(const struct views *views, const struct sfs_chunk_info *chunk)
{
    const struct sfs_dataset_info *info = views->info;
    enum place place = views->chunks_span_frames ? IN_FRAMES : IN_A_FRAME;
    for (int i = 0; i < info->rank; i++) {
        if (chunk->start[i] >= views->dims[i])
            return OUTSIDE;
        if (views->has_open_edges && views->dims[i] - chunk->start[i] < info->chunk_dims[i])
            place = IN_FRAMES;
    }
    return place;
}

static int note_cut(struct tally *tally, const uint64_t *start)
{
    size_t rank = (size_t)tally->views->info->rank;
    void *cut = tally->cut;
    int error =
        kept_memory_grow(tally->views, &cut, tally->n_cut, &tally->cut_room, rank * sizeof(*start));
    tally->cut = cut;
    if (!error)
        memcpy(tally->cut + tally->n_cut++ * rank, start, rank * sizeof(*start));
    return error;
}

static int add_chunk(void *context, const struct sfs_chunk_info *chunk)
{
    struct tally *tally = context;
    const struct views *views = tally->views;
    int error = go_on(tally);
    if (error)
        return error;
    switch (place_of(views, chunk)) {
    case IN_A_FRAME:
        return add(tally, frame_of(views, chunk->start),
                   chunk->unfiltered_size[1] / views->info->type.size);
    case IN_FRAMES:
        return note_cut(tally, chunk->start);
    default:
        return 0;
    }
}

static int add_cut(struct tally *tally, const uint64_t *start)
{
    const struct views *views = tally->views;
    const struct sfs_dataset_info *info = views->info;
    struct sfs_slab slab = {.rank = info->rank};
    struct sfs_defined defined;
    for (int i = 0; i < info->rank; i++) {
        uint64_t left = views->dims[i] - start[i];
        slab.start[i] = start[i];
        slab.count[i] = left < info->chunk_dims[i] ? left : info->chunk_dims[i];
    }
    int error = sfs_get_defined(views->dataset, &slab, &defined);
    if (error)
        return error;
    error = add_defined(tally, &slab, &defined);
    sfs_defined_free(&defined);
    return error;
}

/* First all that the index tells; reading chunks while it is walked could wait for others who wait
 * for the index. */
static int add_all(struct tally *tally)
{
    struct views *views = tally->views;
    size_t rank = (size_t)views->info->rank;
    int error = sfs_chunk_iterate(views->dataset, add_chunk, tally);
    for (size_t i = 0; i < tally->n_cut && !error; i++)
        error = add_cut(tally, tally->cut + i * rank);
    free(tally->cut);
    kept_memory_give_back(tally->cut_room * rank * sizeof(*tally->cut));
    return error;
}

static int by_frame(const void *a, const void *b)
{
    const struct frame_count *left = a, *right = b;
    return left->frame < right->frame ? -1 : left->frame > right->frame;
}

/* Of [first, middle) and [middle, end), each sorted. */
static void merge(const struct frame_count *from, size_t first, size_t middle, size_t end,
                  struct frame_count *to)
{
    size_t left = first, right = middle;
    for (size_t i = first; i < end; i++)
        to[i] = left < middle && (right == end || from[left].frame <= from[right].frame)
                    ? from[left++]
                    : from[right++];
}

/* Pieces are sorted, then merged from either array to the other; *frame is the one with the result. */
static int sort_and_merge(struct frame_count **frame, struct frame_count **spare, size_t n)
{
    int error = 0;
    for (size_t i = 0; i < n && !error; i += LOOK_EVERY) {
        qsort(*frame + i, n - i < LOOK_EVERY ? n - i : LOOK_EVERY, sizeof(**frame), by_frame);
        error = interrupt_check();
    }
    for (size_t width = LOOK_EVERY; width < n && !error; width *= 2) {
        struct frame_count *from = *frame, *to = *spare;
        for (size_t i = 0; i < n && !error; i += 2 * width) {
            size_t middle = n - i < width ? n : i + width;
            size_t end = n - middle < width ? n : middle + width;
            merge(from, i, middle, end, to);
            error = interrupt_check();
        }
        *frame = to;
        *spare = from;
    }
    return error;
}

static int sort(struct tally *tally)
{
    struct counts *counts = tally->counts;
    const size_t bytes = counts_bytes(counts);
    int error = kept_memory_take(tally->views, bytes);
    if (error)
        return error;
    struct frame_count *spare = malloc(bytes);
    error = spare ? sort_and_merge(&counts->frame, &spare, counts->n) : -ENOMEM;
    free(spare);
    kept_memory_give_back(bytes);
    return error;
}

/* There will be no more. */
static void shrink(struct counts *counts, size_t room)
{
    struct frame_count *cut = realloc(counts->frame, room * sizeof(*cut));
    if (!cut)
        return;
    kept_memory_give_back((counts->room - room) * sizeof(*cut));
    counts->frame = cut;
    counts->room = room;
}

/* One entry for each frame, and sums instead of numbers. */
static int add_up(struct tally *tally)
{
    struct counts *counts = tally->counts;
    const struct views *views = tally->views;
    int error = reserve(tally); /* room for the end */
    if (!error && !tally->is_sorted)
        error = sort(tally);
    if (error)
        return error;
    size_t n = 0;
    uint64_t sum = 0;
    for (size_t i = 0; i < counts->n; n++) {
        uint64_t frame = counts->frame[i].frame, elements = 0;
        for (; i < counts->n && counts->frame[i].frame == frame; i++)
            if (__builtin_add_overflow(elements, counts->frame[i].before, &elements))
                return count_is_wrong(views, frame);
        if (elements > views->frame_elements)
            return count_is_wrong(views, frame);
        counts->frame[n] = (struct frame_count){frame, sum};
        if (__builtin_add_overflow(sum, elements, &sum))
            return count_is_wrong(views, frame);
    }
    counts->n = n;
    counts->frame[n] = (struct frame_count){UINT64_MAX, sum};
    shrink(counts, n + 1);
    return 0;
}

static int make_counts(struct views *views, struct counts **made)
{
    struct tally tally = {.views = views, .is_sorted = true};
    if (views->frames == UINT64_MAX)
        return are_too_many(views);
    struct counts *counts = tally.counts = calloc(1, sizeof(*counts));
    if (!counts)
        return -ENOMEM;
    counts->changes = sfs_dataset_changes(views->dataset);
    counts->users = 1;
    int error = add_all(&tally);
    if (!error)
        error = add_up(&tally);
    if (error)
        release(counts);
    else
        *made = counts;
    return error;
}

/* The lock must be held. */
static bool are_kept(const struct views *views)
{
    return views->counts && is_current(views, views->counts->changes);
}

static bool take_kept(struct views *views, const struct counts **counts)
{
    pthread_mutex_lock(&views->count_lock);
    bool kept = are_kept(views);
    if (kept) {
        views->counts->users++;
        *counts = views->counts;
    }
    pthread_mutex_unlock(&views->count_lock);
    return kept;
}

/* Those that are made take the place of those that were kept. */
static int make_and_take(struct views *views, const struct counts **counts)
{
    struct counts *made = NULL;
    int error = -EAGAIN;
    for (unsigned i = 0; i < MOST_TRIES && error == -EAGAIN; i++)
        error = make_counts(views, &made);
    if (error)
        return error == -EAGAIN ? -EBUSY : error;
    pthread_mutex_lock(&views->count_lock);
    release(views->counts);
    views->counts = made;
    made->users++;
    pthread_mutex_unlock(&views->count_lock);
    *counts = made;
    return 0;
}

int counts_get(struct views *views, const struct counts **counts)
{
    if (take_kept(views, counts))
        return 0;
    int error = interrupt_lock(&views->counting);
    if (error)
        return error;
    if (!take_kept(views, counts)) /* another has made them meanwhile */
        error = make_and_take(views, counts);
    pthread_mutex_unlock(&views->counting);
    return error;
}

/* ---- One frame, and all ---- */

static bool has_counts(struct views *views)
{
    pthread_mutex_lock(&views->count_lock);
    bool has = are_kept(views);
    pthread_mutex_unlock(&views->count_lock);
    return has;
}

bool count_is_cheap(struct views *views)
{
    bool by_index = !views->chunks_span_frames && !views->has_open_edges;
    return (by_index && views->frame_chunks <= FEW_CHUNKS) || has_counts(views);
}

static int count_by_table(struct views *views, uint64_t frame, uint64_t *elements)
{
    const struct counts *counts;
    int error = counts_get(views, &counts);
    if (error)
        return error;
    size_t at = counts_find(counts, frame);
    *elements = at < counts->n && counts->frame[at].frame == frame
                    ? counts->frame[at + 1].before - counts->frame[at].before
                    : 0;
    counts_put(views, counts);
    return 0;
}

static int count_by_selection(struct views *views, uint64_t frame, uint64_t *elements)
{
    struct defined_frame *defined;
    int error = defined_get(views, frame, DEFINED_INTERVALS, &defined);
    if (error)
        return error;
    *elements = defined->defined.elements;
    defined_put(views, defined);
    return 0;
}

int count_of_frame(struct views *views, uint64_t frame, uint64_t *elements)
{
    if (has_counts(views))
        return count_by_table(views, frame, elements);
    if (views->frame_chunks > FEW_CHUNKS && views->chunks_span_frames)
        return count_by_selection(views, frame, elements);
    struct sfs_slab slab = view_frame_slab(views, frame);
    uint64_t counted;
    int error = sfs_count_defined(views->dataset, &slab, &counted);
    if (!error && counted > views->frame_elements)
        error = count_is_wrong(views, frame);
    if (!error)
        *elements = counted;
    return error;
}

static bool take_total(struct views *views, uint64_t *elements)
{
    pthread_mutex_lock(&views->count_lock);
    bool known = is_current(views, views->total_changes);
    *elements = views->total;
    pthread_mutex_unlock(&views->count_lock);
    return known;
}

static int count_total(struct views *views, uint64_t *elements)
{
    struct sfs_slab slab = view_whole_slab(views);
    uint64_t changes = sfs_dataset_changes(views->dataset);
    int error = sfs_count_defined(views->dataset, &slab, elements);
    if (error)
        return error;
    pthread_mutex_lock(&views->count_lock);
    views->total = *elements;
    views->total_changes = changes;
    pthread_mutex_unlock(&views->count_lock);
    return 0;
}

int count_of_all(struct views *views, uint64_t *elements)
{
    if (take_total(views, elements))
        return 0;
    int error = interrupt_lock(&views->counting);
    if (error)
        return error;
    if (!take_total(views, elements))
        error = count_total(views, elements);
    pthread_mutex_unlock(&views->counting);
    return error;
}

bool view_is_blank(struct views *views, uint64_t frame)
{
    LOOKING_AT(views);
    uint64_t n;
    return views->is_sparse && views->frame_chunks <= FEW_CHUNKS &&
           count_of_frame(views, frame, &n) == 0 && n == 0;
}
