/* Readers are told apart by position: a read of a box that begins in or right behind the chunks of
 * an earlier one, and ends behind them, continues that stream. */
#include "dataset/read_ahead.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "cache/cache.h"
#include "common/clock.h"
#include "common/thread_pool.h"
#include "dataset/virtual_dataset.h"
#include "layout/layout.h"
#include "store/store.h"

#define STREAMS     16        /* in all datasets together */
#define SHARE       4         /* chunks read ahead take at most this share of the cache's limit */
#define LIVE_NANOS  500000000 /* a stream not read for so long has ended */
#define AHEAD_BYTES ((size_t)8 << 20) /* of small chunks */
#define ON_THE_WAY  3                 /* memory of a chunk being decoded, in chunks */
#define MOST_WRONG  2
#define LEFT        2  /* a stream is given up when so many others have begun since */
#define SURE        16 /* sequential steps after which prefetching is resumed */

/* Chunks are numbered in row-major order. The chunks of a virtual dataset are the pieces in which
 * libhdf5 would read it: frames, if they are large. */
struct stream {
    struct sfs_dataset *dataset; /* NULL: none */
    uint64_t first, end;         /* of the last read */
    uint64_t fetched;            /* all chunks before it are, or are being, prefetched */
    uint64_t n_chunks;           /* in the dataset, at the last read */
    uint64_t last_read;          /* clock_now() */
    unsigned n_begun;            /* streams of this dataset begun since then */
    unsigned n_steps;            /* consecutive sequential reads */
};

struct ahead {
    struct workers *workers;
    struct pastime pastime;
    const struct cache *cache;
    unsigned n_threads;
    pthread_mutex_t lock; /* guards what follows, and the `ahead` of all datasets */
    pthread_cond_t ended; /* a prefetch has ended */
    unsigned running;     /* prefetches */
    struct stream stream[STREAMS];
};

static size_t most_bytes(const struct ahead *ahead)
{
    return cache_limit(ahead->cache) / SHARE;
}

/* The number of chunks along each axis, and of all. False: too many to be numbered, or none. */
static bool find_grid(const struct layout *layout, uint64_t *grid, uint64_t *n)
{
    for (int i = 0; i < layout->rank; i++)
        grid[i] =
            layout->dims[i] / layout->chunk_dims[i] + (layout->dims[i] % layout->chunk_dims[i] > 0);
    return box_product(grid, layout->rank, 1, n) && *n > 0;
}

/* ---- Fetching ---- */

/* A stream that is being continued. */
static bool is_live(const struct stream *stream, uint64_t now)
{
    return stream->n_steps > 0 && now - stream->last_read <= LIVE_NANOS;
}

static unsigned count_live(const struct ahead *ahead, uint64_t now)
{
    unsigned live = 0;
    for (size_t i = 0; i < STREAMS; i++)
        live += is_live(&ahead->stream[i], now);
    return live;
}

/* Each reader occupies a processor; a single reader waits for prefetched chunks and occupies none.
 */
static unsigned idle_threads(const struct ahead *ahead, unsigned live)
{
    if (live <= 1)
        return ahead->n_threads;
    return live < ahead->n_threads ? ahead->n_threads - live : 0;
}

/* How many chunks a stream may be ahead now. */
static uint64_t window_of(const struct ahead *ahead, const struct stream *stream, uint64_t now)
{
    size_t chunk_bytes = stream->dataset->layout.chunk_bytes;
    bool doubted = stream->dataset->ahead.wrong >= MOST_WRONG;
    unsigned live = count_live(ahead, now);
    if (!is_live(stream, now) || (doubted && stream->n_steps < SURE) ||
        chunk_bytes > most_bytes(ahead) / ON_THE_WAY || ahead->running >= idle_threads(ahead, live))
        return 0;
    size_t room = most_bytes(ahead) / live / chunk_bytes;
    size_t useful = AHEAD_BYTES / chunk_bytes;
    size_t most = useful > ahead->n_threads + 1 ? useful : ahead->n_threads + 1;
    most = most < room ? most : room;
    return stream->n_steps < 8 && most > (size_t)1 << stream->n_steps ? (size_t)1 << stream->n_steps
                                                                      : most;
}

/* How many chunks are to be prefetched for a stream. */
static uint64_t wanted_of(const struct ahead *ahead, const struct stream *stream, uint64_t now)
{
    uint64_t end = stream->end + (stream->dataset ? window_of(ahead, stream, now) : 0);
    end = end < stream->n_chunks ? end : stream->n_chunks;
    return stream->fetched < end ? end - stream->fetched : 0;
}

/* A piece of a virtual dataset. */
static struct box box_of_piece(const struct layout *layout, const uint64_t *scaled)
{
    struct box box = {.rank = layout->rank};
    for (int i = 0; i < layout->rank; i++) {
        uint64_t piece = layout->chunk_dims[i];
        box.start[i] = scaled[i] * piece;
        uint64_t left = layout->dims[i] - box.start[i];
        box.count[i] = piece < left ? piece : left;
    }
    return box;
}

/* Calls a function with a chunk, or with the chunks of the sources. Returns false if a call did. */
static bool visit(const struct ahead *ahead, struct sfs_dataset *dataset, const uint64_t *scaled,
                  virtual_visit_fn *each)
{
    if (!dataset->virtual)
        return each(dataset->cache, scaled);
    const struct box box = box_of_piece(&dataset->layout, scaled);
    return virtual_visit(dataset->virtual, &box, most_bytes(ahead) / ON_THE_WAY, each);
}

/* The coordinates of a chunk; false: its number is out of range. */
static bool find_scaled(const struct layout *layout, uint64_t number, uint64_t *scaled)
{
    uint64_t grid[SFS_MAX_RANK], n;
    if (!find_grid(layout, grid, &n) || number >= n)
        return false;
    for (int i = layout->rank; i-- > 0; number /= grid[i])
        scaled[i] = number % grid[i];
    return true;
}

/* Returns false if it could not be done without waiting. */
static bool fetch_chunk(const struct ahead *ahead, struct sfs_dataset *dataset, uint64_t number)
{
    uint64_t scaled[SFS_MAX_RANK];
    return !find_scaled(&dataset->layout, number, scaled) ||
           visit(ahead, dataset, scaled, cache_fetch);
}

static bool is_unwanted(void *context)
{
    const struct sfs_dataset *dataset = context;
    return atomic_load(&dataset->ahead.unwanted) || store_is_interrupted(dataset->file->store);
}

/* Never waits for the dataset's lock: its holder may be waiting for prefetches to end. */
static bool fetch_in_call(const struct ahead *ahead, struct sfs_dataset *dataset, uint64_t number)
{
    struct sfs_file *file = dataset->file;
    struct call file_call, call;
    bool done = false;
    if (!use_try_begin(file->follows ? &file->use : NULL, &file_call))
        return false;
    if (use_try_begin(&dataset->use, &call)) {
        sfs_set_interrupt(is_unwanted, dataset);
        done = fetch_chunk(ahead, dataset, number);
        sfs_set_interrupt(NULL, NULL);
        use_end(&call);
    }
    use_end(&file_call);
    return done;
}

/* The stream with the fewest chunks ahead of it, of those that want more. The lock is held. */
static struct stream *choose_stream(struct ahead *ahead)
{
    struct stream *chosen = NULL;
    uint64_t now = clock_now();
    for (struct stream *i = ahead->stream; i < ahead->stream + STREAMS; i++)
        if (wanted_of(ahead, i, now) > 0 &&
            (!chosen || i->fetched - i->end < chosen->fetched - chosen->end))
            chosen = i;
    return chosen;
}

static void fetch_next(void *context)
{
    struct ahead *ahead = context;
    pthread_mutex_lock(&ahead->lock);
    struct stream *stream = choose_stream(ahead);
    struct sfs_dataset *dataset = stream ? stream->dataset : NULL;
    uint64_t number = stream ? stream->fetched++ : 0;
    if (dataset) {
        dataset->ahead.running++;
        ahead->running++;
    }
    pthread_mutex_unlock(&ahead->lock);
    if (!dataset)
        return;
    bool done = fetch_in_call(ahead, dataset, number);
    pthread_mutex_lock(&ahead->lock);
    if (!done && stream->dataset == dataset && stream->fetched == number + 1)
        stream->fetched = number; /* tried again when the stream is read next */
    dataset->ahead.running--;
    ahead->running--;
    pthread_cond_broadcast(&ahead->ended);
    pthread_mutex_unlock(&ahead->lock);
}

/* ---- Readers ---- */

/* The first and the last chunk that a box touches. */
static void find_chunks(const struct layout *layout, const uint64_t *grid, const struct box *box,
                        uint64_t *first_scaled, uint64_t *first, uint64_t *last)
{
    *first = *last = 0;
    for (int i = 0; i < layout->rank; i++) {
        first_scaled[i] = box->start[i] / layout->chunk_dims[i];
        *first = *first * grid[i] + first_scaled[i];
        *last = *last * grid[i] + (box->start[i] + box->count[i] - 1) / layout->chunk_dims[i];
    }
}

/* The stream that a read of these chunks continues, or NULL. The lock is held. */
static struct stream *find_stream(struct ahead *ahead, const struct sfs_dataset *dataset,
                                  uint64_t first)
{
    for (struct stream *i = ahead->stream; i < ahead->stream + STREAMS; i++)
        if (i->dataset == dataset && first >= i->first && first <= i->end)
            return i;
    return NULL;
}

/* Begins a stream, in place of the least recently read one, ended ones first. The lock is held. */
static struct stream *begin_stream(struct ahead *ahead, struct sfs_dataset *dataset, uint64_t now)
{
    struct stream *oldest = ahead->stream;
    bool oldest_lives = is_live(oldest, now);
    for (struct stream *i = ahead->stream + 1; i < ahead->stream + STREAMS; i++) {
        bool lives = is_live(i, now);
        if (lives == oldest_lives ? i->last_read < oldest->last_read : oldest_lives) {
            oldest = i;
            oldest_lives = lives;
        }
    }
    *oldest = (struct stream){.dataset = dataset};
    return oldest;
}

/* A read began elsewhere: prefetched chunks of abandoned streams were wasted. The lock is held. */
static void count_wrong(struct ahead *ahead, struct sfs_dataset *dataset)
{
    for (struct stream *i = ahead->stream; i < ahead->stream + STREAMS; i++) {
        if (i->dataset != dataset || i->fetched <= i->end || ++i->n_begun < LEFT)
            continue;
        dataset->ahead.wrong++;
        i->n_steps = 0;
        i->fetched = i->end;
    }
}

/* A stream moves on to chunks that it has not read yet. is_lost: they had been prefetched, and
 * were evicted. The lock is held. */
static void make_step(struct stream *stream, bool is_lost)
{
    unsigned *wrong = &stream->dataset->ahead.wrong;
    if (stream->n_steps < SURE)
        stream->n_steps++;
    else if (!is_lost)
        *wrong = 0;
    *wrong += is_lost;
}

/* Whether a read is a step to a chunk that has been prefetched, and was evicted. The lock is not held while it is
 * looked for, which may take long in virtual datasets. */
static bool was_lost(struct ahead *ahead, struct sfs_dataset *dataset, uint64_t first,
                     uint64_t last, const uint64_t *first_scaled)
{
    pthread_mutex_lock(&ahead->lock);
    const struct stream *stream = find_stream(ahead, dataset, first);
    bool was_fetched = stream && last >= stream->end && first < stream->fetched;
    pthread_mutex_unlock(&ahead->lock);
    return was_fetched && !visit(ahead, dataset, first_scaled, cache_holds);
}

/* Notes a read. Returns the stream that it continues or begins. The lock is held. */
static struct stream *note_chunks(struct ahead *ahead, struct sfs_dataset *dataset, uint64_t first,
                                  uint64_t last, bool is_lost)
{
    uint64_t now = clock_now();
    struct stream *stream = find_stream(ahead, dataset, first);
    bool is_new = !stream, is_step = stream && last >= stream->end;
    if (is_step)
        make_step(stream, is_lost);
    if (is_new) {
        count_wrong(ahead, dataset);
        stream = begin_stream(ahead, dataset, now);
        stream->n_steps = first == 0; /* reads from the beginning mostly continue */
    }
    if (is_new || is_step) {
        stream->first = first;
        stream->end = last + 1;
        stream->fetched = stream->fetched > last ? stream->fetched : last + 1;
    }
    stream->last_read = now;
    stream->n_begun = 0;
    return stream;
}

/* Prefetching opens no sources, as that may have to wait: the reader opens those that it will want
 * next. */
static void open_sources(struct sfs_dataset *dataset, uint64_t number)
{
    uint64_t scaled[SFS_MAX_RANK];
    if (!dataset->virtual || !find_scaled(&dataset->layout, number, scaled))
        return;
    const struct box box = box_of_piece(&dataset->layout, scaled);
    virtual_open_sources(dataset->virtual, &box);
}

void ahead_note(struct ahead *ahead, struct sfs_dataset *dataset, const struct box *box)
{
    const struct layout *layout = &dataset->layout;
    uint64_t grid[SFS_MAX_RANK], scaled[SFS_MAX_RANK], first, last, n;
    if (!(dataset->virtual || dataset_decodes(dataset)) || box_elements(box) == 0 ||
        !find_grid(layout, grid, &n))
        return;
    find_chunks(layout, grid, box, scaled, &first, &last);
    bool is_lost = was_lost(ahead, dataset, first, last, scaled);
    pthread_mutex_lock(&ahead->lock);
    struct stream *stream = note_chunks(ahead, dataset, first, last, is_lost);
    stream->n_chunks = n;
    uint64_t wanted = wanted_of(ahead, stream, stream->last_read);
    uint64_t farthest = stream->fetched + wanted - 1;
    pthread_mutex_unlock(&ahead->lock);
    if (wanted > 0)
        open_sources(dataset, farthest);
    if (wanted > 0)
        workers_offer(ahead->workers, &ahead->pastime,
                      wanted < ahead->n_threads ? (unsigned)wanted : ahead->n_threads);
}

void ahead_forget(struct ahead *ahead, struct sfs_dataset *dataset)
{
    pthread_mutex_lock(&ahead->lock);
    for (struct stream *i = ahead->stream; i < ahead->stream + STREAMS; i++)
        if (i->dataset == dataset)
            *i = (struct stream){0};
    atomic_store(&dataset->ahead.unwanted, true);
    while (dataset->ahead.running > 0)
        pthread_cond_wait(&ahead->ended, &ahead->lock);
    atomic_store(&dataset->ahead.unwanted, false);
    pthread_mutex_unlock(&ahead->lock);
}

/* ---- Making it ---- */

int ahead_create(struct cache *cache, struct ahead **out)
{
    struct ahead *ahead = calloc(1, sizeof(*ahead));
    if (!ahead)
        return -ENOMEM;
    ahead->workers = cache_workers(cache);
    ahead->n_threads = workers_number(ahead->workers);
    ahead->cache = cache;
    ahead->pastime.run = fetch_next;
    ahead->pastime.context = ahead;
    pthread_mutex_init(&ahead->lock, NULL);
    pthread_cond_init(&ahead->ended, NULL);
    *out = ahead;
    return 0;
}

void ahead_destroy(struct ahead *ahead)
{
    if (!ahead)
        return;
    workers_cancel(ahead->workers, &ahead->pastime);
    pthread_cond_destroy(&ahead->ended);
    pthread_mutex_destroy(&ahead->lock);
    free(ahead);
}
