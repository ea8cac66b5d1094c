/* Those who read in order are told apart by where they are: a reader of a box that begins among the
 * chunks of an earlier one, or right behind them, and ends behind them, goes on with that one's
 * stream. */
#include "dataset/ahead.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "cache/cache.h"
#include "common/clock.h"
#include "common/workers.h"
#include "dataset/virtual.h"
#include "layout/layout.h"

#define STREAMS     16        /* that are told apart, of all datasets */
#define SHARE       4         /* what is ahead takes at most this share of the cache's limit */
#define LIVE_NANOS  500000000 /* a stream that was not read for so long has stopped */
#define AHEAD_BYTES ((size_t)8 << 20) /* of small chunks */
#define ON_THE_WAY  3                 /* chunks that one takes the memory of while it is decoded */
#define MOST_WRONG  2
#define LEFT        2  /* a reader has left a stream when so many others were begun since */
#define SURE        16 /* steps in order, after which it is right to read ahead after all */

/* Chunks are numbered in row-major order. Those of a virtual dataset are the pieces in which
 * libhdf5 would read it: frames, if they are large. */
struct stream {
    struct sfs_dataset *dataset; /* NULL: none */
    uint64_t first, end;         /* what was read last */
    uint64_t fetched;            /* all before it was, or is being, read ahead */
    uint64_t n_chunks;           /* of the dataset, when it was read last */
    uint64_t last_read;          /* clock_now() */
    unsigned n_begun;            /* streams of this dataset, since it was read */
    unsigned n_steps;            /* from chunks that were read to those behind them */
};

struct ahead {
    struct workers *workers;
    struct pastime pastime;
    const struct cache *cache;
    unsigned n_threads;
    pthread_mutex_t lock; /* guards what follows, and the `ahead` of all datasets */
    pthread_cond_t ended; /* the fetching of a chunk */
    unsigned running;     /* fetchings */
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

/* A stream that somebody seems to be going on with. */
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

/* Each reader keeps a processor busy; but one who is alone waits for what is fetched for him. */
static unsigned idle_threads(const struct ahead *ahead, unsigned live)
{
    if (live <= 1)
        return ahead->n_threads;
    return live < ahead->n_threads ? ahead->n_threads - live : 0;
}

/* How many chunks may be ahead of a stream now. */
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

/* How many chunks are to be fetched for a stream. */
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

/* Calls a function with a chunk, or with those of the sources. Returns whether it always returned
 * true. */
static bool visit(const struct ahead *ahead, struct sfs_dataset *dataset, const uint64_t *scaled,
                  virtual_visit_fn *each)
{
    if (!dataset->virtual)
        return each(dataset->cache, scaled);
    const struct box box = box_of_piece(&dataset->layout, scaled);
    return virtual_visit(dataset->virtual, &box, most_bytes(ahead) / ON_THE_WAY, each);
}

/* The coordinates of a chunk; false: there is none of this number. */
static bool find_scaled(const struct layout *layout, uint64_t number, uint64_t *scaled)
{
    uint64_t grid[SFS_MAX_RANK], n;
    if (!find_grid(layout, grid, &n) || number >= n)
        return false;
    for (int i = layout->rank; i-- > 0; number /= grid[i])
        scaled[i] = number % grid[i];
    return true;
}

/* Returns false if it could not be done now. */
static bool fetch_chunk(const struct ahead *ahead, struct sfs_dataset *dataset, uint64_t number)
{
    uint64_t scaled[SFS_MAX_RANK];
    return !find_scaled(&dataset->layout, number, scaled) ||
           visit(ahead, dataset, scaled, cache_fetch);
}

/* What this has to wait for may be held by who waits until it has ended. */
static bool fetch_in_call(const struct ahead *ahead, struct sfs_dataset *dataset, uint64_t number)
{
    struct sfs_file *file = dataset->file;
    struct call file_call, call;
    bool done = false;
    if (!use_try_begin(file->follows ? &file->use : NULL, &file_call))
        return false;
    if (use_try_begin(&dataset->use, &call)) {
        done = fetch_chunk(ahead, dataset, number);
        use_end(&call);
    }
    use_end(&file_call);
    return done;
}

/* The stream that has the least ahead of what it wants. The lock is held. */
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
        stream->fetched = number; /* when the reader goes on it is tried again */
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

/* The stream that somebody who reads these goes on with, or NULL. The lock is held. */
static struct stream *find_stream(struct ahead *ahead, const struct sfs_dataset *dataset,
                                  uint64_t first)
{
    for (struct stream *i = ahead->stream; i < ahead->stream + STREAMS; i++)
        if (i->dataset == dataset && first >= i->first && first <= i->end)
            return i;
    return NULL;
}

/* Begins a stream in the place of the one that was not read for longest, of those that are not live
 * if there are such. The lock is held. */
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

/* A reader has begun elsewhere: what was fetched for those who do not go on was wrong. The lock is
 * held. */
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

/* A stream comes to what was not read yet. was_lost: it had been fetched, and is not there any
 * more. The lock is held. */
static void make_step(struct stream *stream, bool was_lost)
{
    unsigned *wrong = &stream->dataset->ahead.wrong;
    if (stream->n_steps < SURE)
        stream->n_steps++;
    else if (!was_lost)
        *wrong = 0;
    *wrong += was_lost;
}

/* Somebody reads these. Returns the stream that he goes on with or begins. The lock is held. */
static struct stream *note_chunks(struct ahead *ahead, struct sfs_dataset *dataset, uint64_t first,
                                  uint64_t last, const uint64_t *first_scaled)
{
    uint64_t now = clock_now();
    struct stream *stream = find_stream(ahead, dataset, first);
    bool is_new = !stream, is_step = stream && last >= stream->end;
    if (is_step)
        make_step(stream,
                  first < stream->fetched && !visit(ahead, dataset, first_scaled, cache_holds));
    if (is_new) {
        count_wrong(ahead, dataset);
        stream = begin_stream(ahead, dataset, now);
        stream->n_steps = first == 0; /* who begins there mostly goes on */
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

/* Fetching opens nothing, as that may have to wait: who reads does, of what is wanted next. */
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
    pthread_mutex_lock(&ahead->lock);
    struct stream *stream = note_chunks(ahead, dataset, first, last, scaled);
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
    while (dataset->ahead.running > 0)
        pthread_cond_wait(&ahead->ended, &ahead->lock);
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
