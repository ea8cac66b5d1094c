/* The chunk cache over a layout whose elements are known by computation and whose callbacks count
 * and can be made to wait or to fail. Stored bytes come from a real store. */
#include "support.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cache/cache.h"
#include "common/box.h"
#include "common/clock.h"
#include "common/cpu_limit.h"
#include "common/memory_pool.h"
#include "layout/layout.h"
#include "store/store.h"

#define KIB ((size_t)1 << 10)
#define MIB ((size_t)1 << 20)

#define STORE_BYTES (8 * MIB)

/* A dataset of which element p, in row-major order, has the value value_at(seed, p). */
struct source {
    struct layout layout; /* must be first */
    struct sfs_dataset_info info;
    uint32_t fill;
    uint32_t seed;
    size_t stored_bytes;
    unsigned absent_one_in; /* of so many chunks one does not exist; 0: all do */
    atomic_uint lookups, decodes;
    atomic_int fail_lookup, fail_decode; /* errors to return */
    int (*while_decoding)(struct source *source);
    struct cache *cache; /* for while_decoding */
    unsigned wanted_hits;
};

static uint32_t value_at(uint32_t seed, uint64_t position)
{
    uint64_t z = (position + 1) * 0x9e3779b97f4a7c15u ^ seed * 0xbf58476d1ce4e5b9u;
    return (uint32_t)(z >> 29) | 1;
}

static bool exists(const struct source *source, const uint64_t *scaled)
{
    uint64_t sum = 0;
    for (int i = 0; i < source->layout.rank; i++)
        sum = sum * 31 + scaled[i];
    return source->absent_one_in == 0 || sum % source->absent_one_in != 0;
}

static int lookup(struct layout *layout, const uint64_t *scaled, struct chunk_record *record)
{
    struct source *source = (struct source *)layout;
    atomic_fetch_add(&source->lookups, 1);
    record->exists = exists(source, scaled);
    record->address = 64 * scaled[0] % 4096;
    record->size = source->stored_bytes;
    record->filter_mask[0] = 7;
    return atomic_load(&source->fail_lookup);
}

/* What the byte at an address of the store is. */
static unsigned char stored_byte(uint64_t address)
{
    return (unsigned char)(address * 7 + (address >> 8));
}

/* The chunk's elements; a failure to hand over the right bytes shows as -EPROTO. */
static int decode(struct layout *layout, const struct decoding *chunk)
{
    const struct chunk_record *record = chunk->record;
    struct source *source = (struct source *)layout;
    atomic_fetch_add(&source->decodes, 1);
    if (source->while_decoding && source->while_decoding(source) != 0)
        return -EPROTO;
    for (size_t i = 0; i < source->stored_bytes; i++)
        if (((const unsigned char *)chunk->stored)[i] != stored_byte(record->address + i))
            return -EPROTO;
    void *scratch = layout->scratch_bytes ? pool_get(chunk->pool, layout->scratch_bytes) : NULL;
    if (scratch)
        memset(scratch, 0xA5, layout->scratch_bytes);
    pool_put(chunk->pool, scratch, layout->scratch_bytes);
    if (record->filter_mask[0] != 7)
        return -EPROTO;

    if (form_new_elements(layout, chunk->form, chunk->pool) < 0)
        return -ENOMEM;
    uint32_t *element = chunk->form->elements;
    uint64_t n = layout->chunk_bytes / sizeof(*element), stride[SFS_MAX_RANK], step = 1;
    for (int i = layout->rank - 1; i >= 0; i--) {
        stride[i] = step;
        step *= layout->dims[i];
    }
    for (uint64_t k = 0; k < n; k++) {
        uint64_t position = 0, rest = k;
        for (int i = layout->rank - 1; i >= 0; i--) {
            position += (chunk->scaled[i] * layout->chunk_dims[i] + rest % layout->chunk_dims[i]) *
                        stride[i];
            rest /= layout->chunk_dims[i];
        }
        element[k] = value_at(source->seed, position);
    }
    return atomic_load(&source->fail_decode);
}

static size_t decode_bytes(const struct layout *layout, const struct chunk_record *record,
                           unsigned parts)
{
    (void)record, (void)parts;
    return pool_block_size(layout->chunk_bytes) +
           (layout->scratch_bytes ? pool_block_size(layout->scratch_bytes) : 0);
}

static const struct layout_ops counted_ops = {
    .lookup = lookup, .decode_bytes = decode_bytes, .decode = decode};
static const struct layout_ops plain_ops = {.lookup = lookup};

static struct store *store;

static int make_store(void **state)
{
    (void)state;
    log_quietly();
    unsigned char *bytes = allocate(STORE_BYTES);
    for (size_t i = 0; i < STORE_BYTES; i++)
        bytes[i] = stored_byte(i);
    int fd = open("store", O_CREAT | O_TRUNC | O_WRONLY, 0600);
    bool good = write(fd, bytes, STORE_BYTES) == (ssize_t)STORE_BYTES;
    close(fd);
    free(bytes);
    return good ? store_open("store", &store) : -1;
}

static int close_store(void **state)
{
    (void)state;
    store_close(store);
    return 0;
}

static struct source *make_source(int rank, const uint64_t *dims, const uint64_t *chunk_dims)
{
    struct source *source = calloc(1, sizeof(*source));
    assert_non_null(source);
    source->seed = (uint32_t)random_next();
    source->fill = (uint32_t)random_next() & ~1u;
    source->info.fill = &source->fill;
    source->layout = (struct layout){.ops = &counted_ops,
                                     .store = store,
                                     .info = &source->info,
                                     .path = "/counted",
                                     .rank = rank,
                                     .element_size = sizeof(uint32_t),
                                     .chunk_bytes = sizeof(uint32_t)};
    for (int i = 0; i < rank; i++) {
        source->layout.dims[i] = dims[i];
        source->layout.chunk_dims[i] = chunk_dims[i];
        source->layout.chunk_bytes *= chunk_dims[i];
    }
    return source;
}

/* n chunks of so many bytes behind each other. */
static struct source *make_row(uint64_t chunks, size_t chunk_bytes)
{
    uint64_t per_chunk = chunk_bytes / sizeof(uint32_t);
    return make_source(1, &(uint64_t){chunks * per_chunk}, &per_chunk);
}

static enum sfs_policy policy; /* of the caches that are made */

static struct cache *make_cache(size_t limit)
{
    struct cache *cache;
    assert_int_equal(cache_create(limit, 2, &cache), 0);
    cache_set_policy(cache, policy);
    return cache;
}

static struct cache_dataset *open_source(struct cache *cache, struct source *source)
{
    struct cache_dataset *dataset;
    source->cache = cache;
    assert_int_equal(cache_open_dataset(cache, &source->layout, &dataset), 0);
    return dataset;
}

static struct sfs_statistics statistics_of(struct cache *cache)
{
    struct sfs_statistics statistics = {0};
    cache_statistics(cache, &statistics);
    return statistics;
}

static uint32_t expected_at(const struct source *source, const uint64_t *at)
{
    uint64_t position = 0, scaled[SFS_MAX_RANK];
    for (int i = 0; i < source->layout.rank; i++) {
        position = position * source->layout.dims[i] + at[i];
        scaled[i] = at[i] / source->layout.chunk_dims[i];
    }
    return exists(source, scaled) ? value_at(source->seed, position) : source->fill;
}

/* Whether elements read from a box are what they must be. */
static bool box_is_right(const struct source *source, const struct box *box,
                         const uint32_t *elements)
{
    uint64_t at[SFS_MAX_RANK], n = box_elements(box);
    memcpy(at, box->start, sizeof(at));
    for (uint64_t k = 0; k < n; k++) {
        if (elements[k] != expected_at(source, at))
            return false;
        for (int i = box->rank - 1; i >= 0; i--) {
            if (++at[i] < box->start[i] + box->count[i])
                break;
            at[i] = box->start[i];
        }
    }
    return true;
}

static struct box random_box(const struct source *source, uint64_t most)
{
    struct box box = {.rank = source->layout.rank};
    for (int i = 0; i < box.rank; i++) {
        uint64_t dim = source->layout.dims[i], limit = dim < most ? dim : most;
        box.count[i] = random_between(1, limit);
        box.start[i] = random_below(dim - box.count[i] + 1);
    }
    return box;
}

/* Reads one box into a buffer without a spare byte and compares. */
static bool read_is_right(struct cache_dataset *dataset, const struct source *source,
                          const struct box *box)
{
    uint32_t *buffer = malloc(box_elements(box) * sizeof(*buffer));
    bool right =
        buffer && cache_read(dataset, box, buffer) == 0 && box_is_right(source, box, buffer);
    free(buffer);
    return right;
}

static struct box one_element(uint64_t at)
{
    return (struct box){.rank = 1, .start = {at}, .count = {1}};
}

/* ---- Threads: each runs `work` and counts what is wrong; cmocka's asserts are not for them ----
 */

struct worker {
    pthread_t thread;
    void (*work)(struct worker *worker);
    struct cache *cache;
    struct cache_dataset *datasets[4];
    struct source *sources[4];
    unsigned n_datasets, rounds;
    uint64_t seed;
    int error; /* of the last read */
    unsigned wrong;
    pthread_barrier_t *start;
};

static void *run_worker(void *argument)
{
    struct worker *worker = argument;
    random_seed(worker->seed);
    pthread_barrier_wait(worker->start);
    worker->work(worker);
    return NULL;
}

/* Starts n copies of a worker, at once. */
static void start_workers(struct worker *workers, unsigned n, struct worker pattern)
{
    pthread_barrier_t *start = allocate(sizeof(*start));
    pthread_barrier_init(start, NULL, n);
    for (unsigned i = 0; i < n; i++) {
        workers[i] = pattern;
        workers[i].seed = random_next();
        workers[i].start = start;
        start_thread(&workers[i].thread, run_worker, &workers[i]);
    }
}

static void join_workers(struct worker *workers, unsigned n)
{
    for (unsigned i = 0; i < n; i++)
        pthread_join(workers[i].thread, NULL);
    pthread_barrier_destroy(workers[0].start);
    free(workers[0].start);
}

static void run_workers(struct worker *workers, unsigned n, struct worker pattern)
{
    start_workers(workers, n, pattern);
    join_workers(workers, n);
}

static void read_element_0(struct worker *worker)
{
    uint32_t value = 0;
    struct box box = one_element(0);
    worker->error = cache_read(worker->datasets[0], &box, &value);
    worker->wrong = !worker->error && value != expected_at(worker->sources[0], box.start);
}

static void read_at_random(struct worker *worker)
{
    for (unsigned round = 0; round < worker->rounds; round++) {
        unsigned i = (unsigned)random_below(worker->n_datasets);
        struct box box = random_box(worker->sources[i], random_below(8) ? 300 : 100000);
        worker->wrong += !read_is_right(worker->datasets[i], worker->sources[i], &box);
    }
}

/* Whether a box of a chunk from which nothing was lent is read from it; it is returned. */
static bool held_is_right(const struct source *source, struct chunk *chunk, const struct box *box)
{
    uint32_t *elements = allocate(box_elements(box) * sizeof(*elements));
    int error = cache_read_held(chunk, box, elements);
    bool is_right = error == -EAGAIN || (!error && box_is_right(source, box, elements));
    cache_return(chunk);
    free(elements);
    return is_right;
}

/* Lends one element after the other and looks at it for a while. */
static void lend_at_random(struct worker *worker)
{
    for (unsigned round = 0; round < worker->rounds; round++) {
        unsigned i = (unsigned)random_below(worker->n_datasets);
        struct box box = random_box(worker->sources[i], 50);
        const void *bytes;
        struct chunk *chunk;
        int lent = cache_lend(worker->datasets[i], &box, &bytes, &chunk);
        worker->wrong += lent < 0;
        if (lent == 0 && chunk)
            worker->wrong += !held_is_right(worker->sources[i], chunk, &box);
        if (lent <= 0)
            continue;
        for (int looks = 0; looks < 4; looks++) {
            worker->wrong += !box_is_right(worker->sources[i], &box, bytes);
            sched_yield();
        }
        cache_return(chunk);
    }
}

static unsigned all_wrong(const struct worker *workers, unsigned n)
{
    unsigned wrong = 0;
    for (unsigned i = 0; i < n; i++)
        wrong += workers[i].wrong;
    return wrong;
}

/* ---- Tests ---- */

static void boxes_of_every_rank_are_read(void **state)
{
    (void)state;
    for (int round = 0; round < 60; round++) {
        uint64_t dims[4], chunk_dims[4];
        int rank = (int)random_between(1, 4);
        for (int i = 0; i < rank; i++) {
            dims[i] = random_between(1, 14);
            chunk_dims[i] = random_between(1, 16); /* edges, and chunks larger than the dims */
        }
        struct source *source = make_source(rank, dims, chunk_dims);
        source->absent_one_in = (unsigned)random_below(4);
        source->stored_bytes = random_below(1000);
        source->layout.scratch_bytes = random_below(1000);
        struct cache *cache = make_cache(random_below(2) ? 1000 : MIB);
        struct cache_dataset *dataset = open_source(cache, source);
        for (int k = 0; k < 50; k++) {
            struct box box = random_box(source, 20);
            assert_true(read_is_right(dataset, source, &box));
        }
        cache_close_dataset(dataset);
        cache_destroy(cache);
        free(source);
    }
}

static void an_empty_box_reads_nothing(void **state)
{
    (void)state;
    struct source *source = make_row(4, KIB);
    struct cache *cache = make_cache(MIB);
    struct cache_dataset *dataset = open_source(cache, source);
    struct box box = {.rank = 1, .start = {3}, .count = {0}};
    assert_int_equal(cache_read(dataset, &box, NULL), 0);
    assert_int_equal(source->lookups, 0);
    cache_close_dataset(dataset);
    cache_destroy(cache);
    free(source);
}

static void a_chunk_is_found_and_decoded_once_while_it_stays(void **state)
{
    (void)state;
    struct source *source = make_row(10, 64 * KIB);
    struct cache *cache = make_cache(8 * MIB);
    struct cache_dataset *dataset = open_source(cache, source);
    for (uint64_t k = 0; k < 1000; k++) {
        struct box box = random_box(source, 100000);
        assert_true(read_is_right(dataset, source, &box));
    }
    assert_int_equal(source->decodes, 10);
    assert_int_equal(source->lookups, 10);
    struct sfs_statistics statistics = statistics_of(cache);
    assert_int_equal(statistics.cache_limit, 8 * MIB);
    assert_int_equal(statistics.cache_misses, 10);
    assert_int_equal(statistics.cache_chunks, 10);
    assert_int_equal(statistics.chunks_decoded, 10);
    assert_int_equal(statistics.cache_evictions, 0);
    assert_in_range(statistics.cache_bytes, 640 * KIB, 660 * KIB);
    cache_close_dataset(dataset);
    cache_destroy(cache);
    free(source);
}

static void the_chunk_used_longest_ago_goes_first(void **state)
{
    (void)state;
    struct source *source = make_row(4, 16 * KIB);
    struct cache *cache = make_cache(3 * 16 * KIB + 2 * KIB);
    struct cache_dataset *dataset = open_source(cache, source);
    const uint64_t order[] = {0, 1, 2, 0, 3, 0, 2, 3, 1}; /* 3 evicts 1; then 1 evicts 0 */
    for (size_t i = 0; i < COUNT(order); i++) {
        struct box box = one_element(order[i] * 4 * KIB);
        assert_true(read_is_right(dataset, source, &box));
    }
    assert_int_equal(source->decodes, 5);
    assert_int_equal(statistics_of(cache).cache_evictions, 2);
    cache_close_dataset(dataset);
    cache_destroy(cache);
    free(source);
}

/* ---- Policies: a cache for 32 chunks ---- */

#define HOT 8 /* chunks, the first ones */

struct scanned {
    struct source *source;
    struct cache *cache;
    struct cache_dataset *dataset;
};

static struct scanned open_scanned(enum sfs_policy chosen)
{
    struct scanned scanned = {.source = make_row(2000, 16 * KIB)};
    policy = chosen;
    scanned.cache = make_cache(33 * 16 * KIB);
    policy = SFS_POLICY_DEFAULT;
    scanned.dataset = open_source(scanned.cache, scanned.source);
    return scanned;
}

static void close_scanned(struct scanned *scanned)
{
    cache_close_dataset(scanned->dataset);
    cache_destroy(scanned->cache);
    free(scanned->source);
}

/* Reads chunks from first on, each in so many pieces; returns how many had to be decoded. */
static unsigned scan(struct scanned *scanned, uint64_t first, uint64_t n, unsigned pieces)
{
    unsigned before = scanned->source->decodes;
    for (uint64_t i = first; i < first + n; i++) {
        for (unsigned k = 0; k < pieces; k++) {
            struct box box = one_element(i * 4 * KIB + k);
            assert_true(read_is_right(scanned->dataset, scanned->source, &box));
        }
    }
    return scanned->source->decodes - before;
}

static void what_was_wanted_again_outlives_a_scan(void **state)
{
    (void)state;
    for (enum sfs_policy i = SFS_POLICY_DEFAULT; i <= SFS_POLICY_S3_FIFO; i++) {
        struct scanned scanned = open_scanned(i);
        scan(&scanned, 0, HOT, 4);
        scan(&scanned, 100, 40, 1);
        scan(&scanned, 0, HOT, 4);
        unsigned scanned_chunks = scan(&scanned, 200, 1000, 1);
        assert_int_equal(scanned_chunks, 1000);
        assert_int_equal(scan(&scanned, 0, HOT, 1), i == SFS_POLICY_LRU ? HOT : 0);
        close_scanned(&scanned);
    }
}

static void many_uses_in_a_row_are_one(void **state)
{
    (void)state;
    struct scanned scanned = open_scanned(SFS_POLICY_2Q);
    scan(&scanned, 0, HOT, 1);
    scan(&scanned, 100, 40, 1);
    scan(&scanned, 0, HOT, 1);
    scan(&scanned, 200, 1000, 16);
    assert_int_equal(scan(&scanned, 0, HOT, 1), 0);
    close_scanned(&scanned);
}

static void what_does_not_come_back_makes_room(void **state)
{
    (void)state;
    struct scanned scanned = open_scanned(SFS_POLICY_2Q);
    for (int i = 0; i < 2; i++) { /* most of the cache has been wanted again */
        scan(&scanned, 0, 24, 1);
        scan(&scanned, 100 + 100 * i, 40, 1);
    }
    assert_true(scan(&scanned, 0, 24, 1) < 16);
    for (int i = 0; i < 10; i++) /* and is not any more */
        scan(&scanned, 1000, 24, 1);
    assert_int_equal(scan(&scanned, 1000, 24, 1), 0);
    cache_set_limit(scanned.cache, 17 * 16 * KIB);
    for (int i = 0; i < 10; i++)
        scan(&scanned, 1200, 12, 1);
    assert_int_equal(scan(&scanned, 1200, 12, 1), 0);
    close_scanned(&scanned);
}

/* Nothing is known of chunks of a dataset that was closed. */
static void a_new_dataset_has_no_past(void **state)
{
    (void)state;
    struct scanned scanned = open_scanned(SFS_POLICY_2Q);
    scan(&scanned, 0, 64, 1);
    cache_close_dataset(scanned.dataset);
    scanned.dataset = open_source(scanned.cache, scanned.source);
    scan(&scanned, 0, HOT, 1); /* would be among the ones wanted again */
    scan(&scanned, 200, 100, 1);
    assert_int_equal(scan(&scanned, 0, HOT, 1), HOT);
    close_scanned(&scanned);
}

/* Decoding takes until all the others have found the chunk being loaded. */
static int wait_for_the_others(struct source *source)
{
    while (statistics_of(source->cache).cache_hits < source->wanted_hits &&
           atomic_load(&source->decodes) == 1)
        sched_yield();
    return 0;
}

static void readers_that_meet_in_a_cold_chunk_decode_it_once(void **state)
{
    (void)state;
    enum { READERS = 16 };
    struct worker workers[READERS];
    for (int round = 0; round < 20; round++) {
        struct source *source = make_row(1, 100 * KIB);
        struct cache *cache = make_cache(MIB);
        struct cache_dataset *dataset = open_source(cache, source);
        source->while_decoding = wait_for_the_others;
        source->wanted_hits = READERS - 1;
        run_workers(
            workers, READERS,
            (struct worker){.work = read_element_0, .datasets = {dataset}, .sources = {source}});
        assert_int_equal(all_wrong(workers, READERS), 0);
        for (int i = 0; i < READERS; i++)
            assert_int_equal(workers[i].error, 0);
        assert_int_equal(source->decodes, 1);
        assert_int_equal(source->lookups, 1);
        cache_close_dataset(dataset);
        cache_destroy(cache);
        free(source);
    }
}

/* All of the memory is lent, so that all readers miss and wait for room before one of them loads.
 */
static void readers_that_wait_for_room_for_one_chunk_decode_it_once(void **state)
{
    (void)state;
    struct worker workers[8];
    for (int round = 0; round < 30; round++) {
        struct source *source = make_row(1, 100 * KIB), *lent = make_row(1, 100 * KIB);
        struct cache *cache = make_cache(128 * KIB + KIB / 4);
        struct cache_dataset *dataset = open_source(cache, source),
                             *other = open_source(cache, lent);
        struct box box = one_element(0);
        const void *bytes;
        struct chunk *chunk;
        assert_int_equal(cache_lend(other, &box, &bytes, &chunk), 1);
        start_workers(
            workers, COUNT(workers),
            (struct worker){.work = read_element_0, .datasets = {dataset}, .sources = {source}});
        for (int i = 0; i < 1000; i++)
            sched_yield();
        assert_int_equal(source->decodes, 0);
        cache_return(chunk);
        join_workers(workers, COUNT(workers));
        assert_int_equal(all_wrong(workers, COUNT(workers)), 0);
        assert_int_equal(source->decodes, 1);
        assert_int_equal(statistics_of(cache).cache_chunks, 1);
        cache_close_dataset(other);
        cache_close_dataset(dataset);
        cache_destroy(cache);
        free(lent);
        free(source);
    }
}

static void an_error_reaches_all_who_wait_and_the_next_reader_tries_again(void **state)
{
    (void)state;
    enum { READERS = 16 };
    struct worker workers[READERS];
    struct source *source = make_row(1, 100 * KIB);
    struct cache *cache = make_cache(MIB);
    struct cache_dataset *dataset = open_source(cache, source);
    source->while_decoding = wait_for_the_others;
    source->wanted_hits = READERS - 1;
    atomic_store(&source->fail_decode, -EIO);
    run_workers(
        workers, READERS,
        (struct worker){.work = read_element_0, .datasets = {dataset}, .sources = {source}});
    for (int i = 0; i < READERS; i++)
        assert_int_equal(workers[i].error, -EIO);
    assert_int_equal(source->decodes, 1);
    assert_int_equal(statistics_of(cache).cache_chunks, 0);

    source->while_decoding = NULL;
    struct box box = one_element(0);
    uint32_t value;
    assert_int_equal(cache_read(dataset, &box, &value), -EIO);
    atomic_store(&source->fail_decode, 0);
    atomic_store(&source->fail_lookup, -ENOMEM);
    assert_int_equal(cache_read(dataset, &box, &value), -ENOMEM);
    atomic_store(&source->fail_lookup, 0);
    assert_true(read_is_right(dataset, source, &box));
    assert_int_equal(source->decodes, 3);
    cache_close_dataset(dataset);
    cache_destroy(cache);
    free(source);
}

/* The next decoding goes well. */
static int give_up_once(struct source *source)
{
    (void)wait_for_the_others(source);
    atomic_store(&source->fail_decode, atomic_load(&source->decodes) == 1 ? -EINTR : 0);
    return 0;
}

static void who_gives_up_does_not_do_so_for_others(void **state)
{
    (void)state;
    enum { READERS = 16 };
    struct worker workers[READERS];
    int given_up = 0;
    struct source *source = make_row(1, 100 * KIB);
    struct cache *cache = make_cache(MIB);
    struct cache_dataset *dataset = open_source(cache, source);
    source->while_decoding = give_up_once;
    source->wanted_hits = READERS - 1;
    run_workers(
        workers, READERS,
        (struct worker){.work = read_element_0, .datasets = {dataset}, .sources = {source}});
    assert_int_equal(all_wrong(workers, READERS), 0);
    for (int i = 0; i < READERS; i++) {
        assert_true(workers[i].error == 0 || workers[i].error == -EINTR);
        given_up += workers[i].error == -EINTR;
    }
    assert_int_equal(given_up, 1);
    assert_int_equal(source->decodes, 2);
    cache_close_dataset(dataset);
    cache_destroy(cache);
    free(source);
}

/* ---- While a chunk is decoded for long ---- */

#define LONG_NANOS 60000000000u /* only where something is wrong it takes as long */

static atomic_bool has_begun, may_end, has_given_up;

static int wait_until_it_may_end(struct source *source)
{
    const uint64_t until = clock_now() + LONG_NANOS;
    (void)source;
    atomic_store(&has_begun, true);
    while (!atomic_load(&may_end) && clock_now() < until)
        sched_yield();
    atomic_store(&has_given_up, !atomic_load(&may_end));
    return 0;
}

/* Begins to read the first element of a source by another thread, which is decoding its chunk then. */
static struct worker *begin_long_decoding(struct cache_dataset *dataset, struct source *source)
{
    struct worker *worker = calloc(1, sizeof(*worker));
    assert_non_null(worker);
    atomic_store(&has_begun, false);
    atomic_store(&may_end, false);
    source->while_decoding = wait_until_it_may_end;
    start_workers(
        worker, 1,
        (struct worker){.work = read_element_0, .datasets = {dataset}, .sources = {source}});
    while (!atomic_load(&has_begun))
        sched_yield();
    return worker;
}

static void end_long_decoding(struct worker *worker)
{
    assert_false(atomic_load(&has_given_up));
    atomic_store(&may_end, true);
    join_workers(worker, 1);
    assert_false(atomic_load(&has_given_up));
    assert_int_equal(worker->error, 0);
    assert_int_equal(all_wrong(worker, 1), 0);
    free(worker);
}

static void small_chunks_do_not_wait_for_a_large_one(void **state)
{
    (void)state;
    const size_t large[] = {900 * KIB, 4 * MIB};
    for (size_t i = 0; i < COUNT(large); i++) {
        struct source *slow = make_row(1, large[i]), *source = make_row(100, 20 * KIB);
        struct cache *cache = make_cache(MIB);
        struct cache_dataset *slowly = open_source(cache, slow),
                             *dataset = open_source(cache, source);
        struct worker *worker = begin_long_decoding(slowly, slow);
        for (uint64_t chunk = 0; chunk < 100; chunk++) { /* more than their share together */
            struct box box = one_element(chunk * 20 * KIB / sizeof(uint32_t));
            assert_true(read_is_right(dataset, source, &box));
        }
        assert_true(statistics_of(cache).cache_bytes < large[i] + MIB / 4 + 100 * KIB);
        end_long_decoding(worker);
        cache_close_dataset(slowly);
        cache_close_dataset(dataset);
        cache_destroy(cache);
        free(slow);
        free(source);
    }
}

static bool says_yes(void *context)
{
    (void)context;
    return true;
}

/* For the chunk itself, and for memory. */
static void waiting_is_interrupted(void **state)
{
    (void)state;
    struct source *slow = make_row(2, 4 * MIB), *source = make_row(8, 300 * KIB);
    struct cache *cache = make_cache(MIB);
    struct cache_dataset *slowly = open_source(cache, slow), *dataset = open_source(cache, source);
    const uint64_t per_chunk = MIB;
    const struct box boxes[] = {one_element(0), one_element(per_chunk)};
    uint32_t value;
    struct worker *worker = begin_long_decoding(slowly, slow);
    sfs_set_interrupt(says_yes, NULL);
    for (size_t i = 0; i < COUNT(boxes); i++)
        assert_int_equal(cache_read(slowly, &boxes[i], &value), -EINTR);
    struct box all = {.rank = 1, .count = {source->layout.dims[0]}};
    uint32_t *values = allocate(source->layout.dims[0] * sizeof(*values));
    assert_int_equal(cache_read(dataset, &all, values), -EINTR);
    all = one_element(0);
    assert_int_equal(cache_read(dataset, &all, &value), -EINTR);
    void *scratch;
    assert_int_equal(cache_scratch(cache, 300 * KIB, &scratch), -EINTR);
    assert_null(scratch);
    assert_int_equal(slow->decodes, 1);
    assert_int_equal(source->decodes, 0);
    sfs_set_interrupt(NULL, NULL);
    end_long_decoding(worker);
    slow->while_decoding = NULL;
    for (size_t i = 0; i < COUNT(boxes); i++)
        assert_true(read_is_right(slowly, slow, &boxes[i]));
    assert_true(read_is_right(dataset, source, &all));
    free(values);
    cache_close_dataset(slowly);
    cache_close_dataset(dataset);
    cache_destroy(cache);
    free(slow);
    free(source);
}

static int work_without_end(struct source *source)
{
    int error = 0;
    const uint64_t until = clock_now() + LONG_NANOS;
    while (!error && clock_now() < until)
        error = cpu_limit_check(MIB);
    atomic_store(&source->fail_decode, error);
    return 0;
}

static void decoding_is_limited(void **state)
{
    (void)state;
    struct source *source = make_row(1, 100 * KIB);
    struct cache *cache = make_cache(MIB);
    struct cache_dataset *dataset = open_source(cache, source);
    struct box box = one_element(0);
    uint32_t value;
    source->while_decoding = work_without_end;
    cpu_limit_set(0.01);
    assert_int_equal(cache_read(dataset, &box, &value), -EIO);
    assert_int_equal(source->fail_decode, -ETIMEDOUT);
    sfs_set_interrupt(says_yes, NULL);
    assert_int_equal(cache_read(dataset, &box, &value), -EINTR);
    sfs_set_interrupt(NULL, NULL);
    cpu_limit_set(0);
    source->while_decoding = NULL;
    atomic_store(&source->fail_decode, 0);
    assert_true(read_is_right(dataset, source, &box));
    cache_close_dataset(dataset);
    cache_destroy(cache);
    free(source);
}

static void stored_bytes_beyond_the_store_are_an_error(void **state)
{
    (void)state;
    struct source *source = make_row(1, KIB);
    struct cache *cache = make_cache(16 * MIB);
    struct cache_dataset *dataset = open_source(cache, source);
    struct box box = one_element(0);
    uint32_t value;
    source->stored_bytes = STORE_BYTES + 1;
    assert_int_equal(cache_read(dataset, &box, &value), -EIO);
    assert_int_equal(source->decodes, 0);
    source->stored_bytes = 1000;
    assert_true(read_is_right(dataset, source, &box));
    cache_close_dataset(dataset);
    cache_destroy(cache);
    free(source);
}

/* ---- The limit ---- */

struct sampler {
    pthread_t thread;
    struct cache *cache;
    atomic_bool stop;
    uint64_t most;
};

static void *sample(void *argument)
{
    struct sampler *sampler = argument;
    do {
        uint64_t bytes = statistics_of(sampler->cache).cache_bytes;
        if (bytes > sampler->most)
            sampler->most = bytes;
    } while (!atomic_load(&sampler->stop));
    return NULL;
}

/* Random reads of several datasets, of which each has ten times the limit, from 8 threads. */
static void check_limit(size_t limit, unsigned n, const size_t *chunk_bytes, unsigned rounds,
                        void (*work)(struct worker *worker), bool with_working_space)
{
    struct worker workers[8], pattern = {.work = work, .n_datasets = n, .rounds = rounds};
    struct sampler sampler = {.cache = make_cache(limit)};
    for (unsigned i = 0; i < n; i++) {
        pattern.sources[i] = make_row(10 * limit / chunk_bytes[i], chunk_bytes[i]);
        if (with_working_space) {
            pattern.sources[i]->stored_bytes = chunk_bytes[i] / 3 + 5;
            pattern.sources[i]->layout.scratch_bytes = chunk_bytes[i] + 4;
        }
        pattern.sources[i]->absent_one_in = i % 2 ? 3 : 0;
        pattern.datasets[i] = open_source(sampler.cache, pattern.sources[i]);
    }
    start_thread(&sampler.thread, sample, &sampler);
    run_workers(workers, COUNT(workers), pattern);
    atomic_store(&sampler.stop, true);
    pthread_join(sampler.thread, NULL);

    assert_int_equal(all_wrong(workers, COUNT(workers)), 0);
    assert_in_range(sampler.most, limit / 4, limit);
    for (unsigned i = 0; i < n; i++) {
        cache_close_dataset(pattern.datasets[i]);
        free(pattern.sources[i]);
    }
    assert_int_equal(statistics_of(sampler.cache).cache_chunks, 0);
    cache_destroy(sampler.cache);
}

static void the_limit_holds_with_small_chunks(void **state)
{
    (void)state;
    check_limit(256 * KIB, 1, (size_t[]){4 * KIB}, 300, read_at_random, false);
    check_limit(256 * KIB, 2, (size_t[]){1 * KIB, 10 * KIB}, 300, read_at_random, true);
}

static void the_limit_holds_with_large_chunks(void **state)
{
    (void)state;
    check_limit(4 * MIB, 1, (size_t[]){256 * KIB}, 100, read_at_random, false);
    check_limit(4 * MIB, 2, (size_t[]){256 * KIB, 300 * KIB}, 100, read_at_random, true);
}

static void the_limit_holds_with_chunks_of_all_sizes(void **state)
{
    (void)state;
    check_limit(2 * MIB, 4, (size_t[]){1 * KIB, 8 * KIB, 100 * KIB, 500 * KIB}, 150, read_at_random,
                true);
}

static void the_limit_holds_by_every_policy(void **state)
{
    (void)state;
    for (policy = SFS_POLICY_LRU; policy <= SFS_POLICY_S3_FIFO; policy++) {
        check_limit(256 * KIB, 2, (size_t[]){1 * KIB, 10 * KIB}, 300, read_at_random, true);
        check_limit(2 * MIB, 4, (size_t[]){4 * KIB, 70 * KIB, 100 * KIB, 130 * KIB}, 60,
                    lend_at_random, true);
    }
    policy = SFS_POLICY_DEFAULT;
}

static void lent_bytes_stay_while_others_are_evicted(void **state)
{
    (void)state;
    check_limit(2 * MIB, 4, (size_t[]){4 * KIB, 70 * KIB, 100 * KIB, 130 * KIB}, 200,
                lend_at_random, true);
}

/* Used blocks that wait for chunks of one size must make room for those of another. */
static void memory_kept_for_reuse_counts(void **state)
{
    (void)state;
    enum { LIMIT = 4 << 20 };
    struct source *large = make_row(3, MIB), *small = make_row(2000, 8 * KIB);
    struct cache *cache = make_cache(LIMIT);
    struct cache_dataset *dataset = open_source(cache, large);
    struct box all = {.rank = 1, .count = {large->layout.dims[0]}};
    assert_true(read_is_right(dataset, large, &all));
    cache_close_dataset(dataset);
    dataset = open_source(cache, small);
    for (uint64_t k = 0; k < 2000; k++) {
        struct box box = one_element(k * 2 * KIB);
        assert_true(read_is_right(dataset, small, &box));
        assert_in_range(statistics_of(cache).cache_bytes, 0, LIMIT);
    }
    assert_in_range(statistics_of(cache).cache_bytes, LIMIT - 64 * KIB, LIMIT);
    cache_close_dataset(dataset);
    cache_destroy(cache);
    free(small);
    free(large);
}

static void the_limit_can_be_changed(void **state)
{
    (void)state;
    struct source *source = make_row(64, 64 * KIB);
    struct cache *cache = make_cache(8 * MIB);
    struct cache_dataset *dataset = open_source(cache, source);
    struct box all = {.rank = 1, .count = {source->layout.dims[0]}};
    assert_true(read_is_right(dataset, source, &all));
    assert_in_range(statistics_of(cache).cache_bytes, 4 * MIB, 8 * MIB);
    cache_set_limit(cache, MIB);
    assert_int_equal(cache_limit(cache), MIB);
    assert_int_equal(statistics_of(cache).cache_limit, MIB);
    assert_in_range(statistics_of(cache).cache_bytes, 512 * KIB, MIB);
    assert_true(read_is_right(dataset, source, &all));
    assert_in_range(statistics_of(cache).cache_bytes, 0, MIB);
    cache_set_limit(cache, 8 * MIB);
    assert_true(read_is_right(dataset, source, &all));
    int decodes = source->decodes;
    assert_true(read_is_right(dataset, source, &all));
    assert_int_equal(source->decodes, decodes);
    cache_close_dataset(dataset);
    cache_destroy(cache);
    free(source);
}

static void absent_chunks_read_as_fill_and_do_not_pile_up(void **state)
{
    (void)state;
    enum { LIMIT = 64 << 10 };
    struct source *source = make_row(100000, 64);
    struct cache *cache = make_cache(LIMIT);
    struct cache_dataset *dataset = open_source(cache, source);
    source->absent_one_in = 1;
    for (uint64_t k = 0; k < 100000; k++) {
        struct box box = one_element(k * 16 + k % 16);
        assert_true(read_is_right(dataset, source, &box));
        assert_in_range(statistics_of(cache).cache_bytes, 0, LIMIT);
    }
    assert_int_equal(source->decodes, 0);
    assert_int_equal(source->lookups, 100000);
    cache_close_dataset(dataset);
    cache_destroy(cache);
    free(source);
}

static void a_chunk_larger_than_the_cache_stays_while_nothing_else_is_wanted(void **state)
{
    (void)state;
    struct source *source = make_row(2, MIB), *other = make_row(2, 4 * KIB);
    source->stored_bytes = 300 * KIB;
    struct cache *cache = make_cache(64 * KIB);
    struct cache_dataset *dataset = open_source(cache, source);
    struct cache_dataset *other_dataset = open_source(cache, other);
    for (int k = 0; k < 200; k++) {
        struct box box = {.rank = 1, .start = {random_below(1000)}, .count = {1000}};
        assert_true(read_is_right(dataset, source, &box));
    }
    assert_int_equal(source->decodes, 1);

    struct box first = one_element(0), second = one_element(256 * KIB);
    assert_true(read_is_right(other_dataset, other, &first)); /* takes its place */
    assert_in_range(statistics_of(cache).cache_bytes, 4 * KIB, 64 * KIB);
    assert_true(read_is_right(dataset, source, &second));
    assert_true(read_is_right(dataset, source, &first));
    assert_int_equal(source->decodes, 3);
    cache_close_dataset(other_dataset);
    cache_close_dataset(dataset);
    assert_in_range(statistics_of(cache).cache_bytes, 0, 64 * KIB);
    cache_destroy(cache);
    free(other);
    free(source);
}

/* Of which only one fits at a time: all readers must get their turn. */
static void many_readers_of_chunks_larger_than_the_cache_all_finish(void **state)
{
    (void)state;
    struct worker workers[8];
    struct worker pattern = {.work = read_at_random, .n_datasets = 2, .rounds = 20};
    struct cache *cache = make_cache(100 * KIB);
    for (unsigned i = 0; i < 2; i++) {
        pattern.sources[i] = make_row(4, (i + 1) * 200 * KIB);
        pattern.datasets[i] = open_source(cache, pattern.sources[i]);
    }
    run_workers(workers, COUNT(workers), pattern);
    assert_int_equal(all_wrong(workers, COUNT(workers)), 0);
    for (unsigned i = 0; i < 2; i++) {
        cache_close_dataset(pattern.datasets[i]);
        free(pattern.sources[i]);
    }
    cache_destroy(cache);
}

/* ---- Lending, and chunks that are stored as they are ---- */

static void lent_is_what_lies_in_one_chunk_without_a_gap(void **state)
{
    (void)state;
    const uint64_t dims[] = {10, 12, 8}, chunk_dims[] = {2, 5, 4};
    struct source *source = make_source(3, dims, chunk_dims);
    source->absent_one_in = 4;
    struct cache *cache = make_cache(MIB);
    struct cache_dataset *dataset = open_source(cache, source);
    unsigned times = 0, held = 0;
    for (int round = 0; round < 20000; round++) {
        struct box box = random_box(source, 5);
        uint64_t scaled[3], count[3], start[3], where;
        bool one_chunk = true;
        for (int i = 0; i < 3; i++) {
            scaled[i] = box.start[i] / chunk_dims[i];
            start[i] = box.start[i] % chunk_dims[i];
            count[i] = box.count[i];
            one_chunk &= start[i] + count[i] <= chunk_dims[i];
        }
        bool lendable = one_chunk && exists(source, scaled) &&
                        box_is_contiguous(3, count, chunk_dims, start, &where);
        const void *bytes;
        struct chunk *chunk;
        assert_int_equal(cache_lend(dataset, &box, &bytes, &chunk), lendable);
        if (!lendable) {
            held += chunk != NULL;
            assert_true(!chunk || held_is_right(source, chunk, &box));
            continue;
        }
        assert_true(box_is_right(source, &box, bytes));
        cache_return(chunk);
        times++;
    }
    assert_true(times > 100 && held > 10);
    cache_close_dataset(dataset);
    cache_destroy(cache);
    free(source);
}

static void what_is_returned_last_goes(void **state)
{
    (void)state;
    struct source *source = make_row(3, KIB);
    struct cache *cache = make_cache(MIB);
    struct cache_dataset *dataset = open_source(cache, source);
    struct box box = one_element(0);
    const void *bytes, *again;
    struct chunk *chunk, *other;
    for (uint64_t i = 0; i < 3; i++) {
        assert_int_equal(cache_lend(dataset, &box, &bytes, &chunk), 1);
        cache_return_last(chunk);
        assert_int_equal(statistics_of(cache).cache_chunks, 0);
    }
    assert_int_equal(statistics_of(cache).chunks_decoded, 3);

    /* It stays for others. */
    assert_int_equal(cache_lend(dataset, &box, &bytes, &chunk), 1);
    assert_int_equal(cache_lend(dataset, &box, &again, &other), 1);
    assert_ptr_equal(bytes, again);
    cache_return_last(chunk);
    assert_int_equal(statistics_of(cache).cache_chunks, 1);
    assert_true(box_is_right(source, &box, again));
    cache_return_last(other);
    assert_int_equal(statistics_of(cache).cache_chunks, 0);
    assert_int_equal(statistics_of(cache).chunks_decoded, 4);
    cache_close_dataset(dataset);
    cache_destroy(cache);
    free(source);
}

static void lending_hands_on_errors(void **state)
{
    (void)state;
    struct source *source = make_row(1, KIB);
    struct cache *cache = make_cache(MIB);
    struct cache_dataset *dataset = open_source(cache, source);
    struct box box = one_element(0);
    const void *bytes;
    struct chunk *chunk;
    atomic_store(&source->fail_decode, -EIO);
    assert_int_equal(cache_lend(dataset, &box, &bytes, &chunk), -EIO);
    cache_close_dataset(dataset);
    assert_int_equal(statistics_of(cache).cache_bytes, 0);
    cache_destroy(cache);
    free(source);
}

/* Without a decode callback: small chunks are read whole, of large ones only what is wanted. */
static void plain_chunks_are_read_from_the_store(void **state)
{
    (void)state;
    for (int large = 0; large < 2; large++) {
        struct source *source = make_row(2, large ? 2 * MIB : MIB);
        source->layout.ops = &plain_ops;
        struct cache *cache = make_cache(16 * MIB);
        struct cache_dataset *dataset = open_source(cache, source);
        uint64_t reads, bytes, reads_before, bytes_before;
        store_counters(store, &reads_before, &bytes_before);
        for (int round = 0; round < 300; round++) {
            struct box box = {.rank = 1, .start = {random_below(100000)}, .count = {25}};
            unsigned char buffer[100];
            assert_int_equal(cache_read(dataset, &box, buffer), 0);
            for (size_t i = 0; i < sizeof(buffer); i++)
                assert_int_equal(buffer[i], stored_byte(4 * box.start[0] + i));
        }
        store_counters(store, &reads, &bytes);
        assert_int_equal(reads - reads_before, large ? 300 : 1);
        assert_int_equal(bytes - bytes_before, large ? 300 * 100 : MIB);
        cache_close_dataset(dataset);
        cache_destroy(cache);
        free(source);
    }
}

/* ---- Closing ---- */

static void closing_a_dataset_gives_its_memory_back(void **state)
{
    (void)state;
    struct source *source = make_row(100, 8 * KIB), *other = make_row(1, 8 * KIB);
    source->absent_one_in = 3;
    struct cache *cache = make_cache(MIB);
    struct cache_dataset *dataset = open_source(cache, source);
    struct cache_dataset *other_dataset = open_source(cache, other);
    struct box all = {.rank = 1, .count = {source->layout.dims[0]}}, first = one_element(0);
    assert_true(read_is_right(other_dataset, other, &first));
    uint64_t before = statistics_of(cache).cache_bytes;
    assert_true(read_is_right(dataset, source, &all));
    cache_close_dataset(dataset);
    assert_int_equal(statistics_of(cache).cache_bytes, before);
    assert_int_equal(statistics_of(cache).cache_chunks, 1);
    assert_true(read_is_right(other_dataset, other, &first));
    assert_int_equal(other->decodes, 1);
    cache_close_dataset(other_dataset);
    assert_int_equal(statistics_of(cache).cache_bytes, 0);
    cache_close_dataset(NULL);
    cache_destroy(cache);
    cache_destroy(NULL);
    free(other);
    free(source);
}

/* More blocks than are kept for reuse; beside them an area may have been prepared, and be left of
 * one. */
static void a_dataset_of_many_large_chunks_can_be_closed(void **state)
{
    (void)state;
    const uint64_t prepared = 2 * 16 * MIB;
    struct source *source = make_row(200, 65 * KIB);
    struct cache *cache = make_cache(64 * MIB);
    for (int round = 0; round < 3; round++) {
        struct cache_dataset *dataset = open_source(cache, source);
        for (uint64_t k = 0; k < 200; k++) {
            struct box box = one_element(k * source->layout.chunk_dims[0]);
            assert_true(read_is_right(dataset, source, &box));
        }
        assert_in_range(statistics_of(cache).cache_bytes, 200 * 128 * KIB, 64 * MIB);
        cache_close_dataset(dataset);
        assert_in_range(statistics_of(cache).cache_bytes, 0, 100 * 128 * KIB + prepared);
    }
    cache_destroy(cache);
    free(source);
}

/* Every thread opens, reads and closes a dataset of its own, whose chunks the others evict. */
static void open_read_close(struct worker *worker)
{
    for (unsigned round = 0; round < worker->rounds; round++) {
        struct source *source = calloc(1, sizeof(*source));
        if (!source) {
            worker->wrong++;
            return;
        }
        *source = *worker->sources[0];
        source->info.fill = &source->fill;
        source->layout.info = &source->info;
        struct cache_dataset *dataset;
        if (cache_open_dataset(worker->cache, &source->layout, &dataset) == 0) {
            for (int k = 0; k < 3; k++) {
                struct box box = random_box(source, 100);
                worker->wrong += !read_is_right(dataset, source, &box);
            }
            cache_close_dataset(dataset);
        } else {
            worker->wrong++;
        }
        free(source);
    }
}

static void datasets_can_be_closed_while_others_evict_their_chunks(void **state)
{
    (void)state;
    struct worker workers[8];
    struct source *source = make_row(10, 66 * KIB);
    struct cache *cache = make_cache(300 * KIB);
    run_workers(workers, COUNT(workers),
                (struct worker){
                    .work = open_read_close, .cache = cache, .sources = {source}, .rounds = 400});
    assert_int_equal(all_wrong(workers, COUNT(workers)), 0);
    assert_int_equal(statistics_of(cache).cache_chunks, 0);
    cache_destroy(cache);
    free(source);
}

/* ---- Flushing beside writers, who here write from within the flush ---- */

#define FLUSH_CHUNKS 100

static struct flushed {
    struct cache_dataset *dataset;
    uint64_t rewritten; /* chunk that is changed again while the first one is being written */
    bool goes_on;       /* every chunk that is written makes another one dirty */
    uint64_t next;
    unsigned char during; /* what is written to a chunk while it is being encoded; 0: nothing */
    int refused;          /* the error of the next insertion */
    unsigned char stored[FLUSH_CHUNKS]; /* the last value, 0: never */
} flushed;

static int find_nothing(struct layout *layout, const uint64_t *scaled, struct chunk_record *record)
{
    (void)layout, (void)scaled;
    *record = (struct chunk_record){0};
    return 0;
}

static size_t few_bytes(const struct layout *layout, const struct cache_form *form)
{
    (void)layout, (void)form;
    return 1;
}

static int write_one(uint64_t chunk, unsigned char value)
{
    struct runs all = {0};
    assert_int_equal(runs_append(&all, 0, 1), 0);
    int error = cache_write(flushed.dataset, &chunk, &all, &value, true);
    runs_free(&all);
    return error;
}

static int encode_one(struct layout *layout, const uint64_t *scaled, const struct cache_form *form,
                      struct pool *pool, struct encoded *encoded)
{
    (void)layout;
    encoded->bytes = pool_get(pool, 1);
    encoded->n = encoded->room = 1;
    memcpy(encoded->bytes, form->values, 1);
    if (scaled[0] == 0 && flushed.rewritten)
        assert_int_equal(write_one(flushed.rewritten, 9), 0);
    if (flushed.during) {
        unsigned char value = flushed.during;
        flushed.during = 0;
        assert_int_equal(write_one(scaled[0], value), 0);
    }
    if (flushed.goes_on && flushed.next < FLUSH_CHUNKS)
        assert_int_equal(write_one(flushed.next++, 1), 0);
    return 0;
}

static int keep_one(struct layout *layout, const uint64_t *scaled, const struct encoded *encoded,
                    struct chunk_record *record)
{
    (void)layout;
    int error = flushed.refused;
    flushed.refused = 0;
    if (error)
        return error;
    memcpy(&flushed.stored[scaled[0]], encoded->bytes, 1);
    record->exists = true;
    return 0;
}

static const struct layout_ops flush_ops = {.lookup = find_nothing,
                                            .decode_bytes = decode_bytes,
                                            .decode = decode,
                                            .is_sparse = true,
                                            .encode_bytes = few_bytes,
                                            .encode = encode_one,
                                            .insert = keep_one};

/* With n_workers 0 all is done in order, and here. */
static struct cache *open_flushed_with(struct layout *layout, size_t limit, unsigned n_workers)
{
    static char zero;
    static const struct sfs_dataset_info info = {.fill = &zero};
    struct cache *cache;
    *layout = (struct layout){.ops = &flush_ops,
                              .info = &info,
                              .rank = 1,
                              .dims = {FLUSH_CHUNKS},
                              .chunk_dims = {1},
                              .element_size = 1,
                              .chunk_bytes = 1};
    memset(&flushed, 0, sizeof(flushed));
    assert_int_equal(cache_create(limit, n_workers, &cache), 0);
    assert_int_equal(cache_open_dataset(cache, layout, &flushed.dataset), 0);
    return cache;
}

static struct cache *open_flushed(struct layout *layout)
{
    return open_flushed_with(layout, MIB, 0);
}

static void close_flushed(struct cache *cache)
{
    cache_close_dataset(flushed.dataset);
    cache_destroy(cache);
}

static void a_chunk_changed_again_is_in_the_flush_all_the_same(void **state)
{
    (void)state;
    struct layout layout;
    struct cache *cache = open_flushed(&layout);
    flushed.rewritten = 1;
    for (uint64_t chunk = 0; chunk < 3; chunk++)
        assert_int_equal(write_one(chunk, 5), 0);
    assert_int_equal(cache_flush(cache, NULL), 0);
    assert_int_equal(flushed.stored[0], 5);
    assert_int_equal(flushed.stored[1], 9); /* what it was before is in it, too */
    assert_int_equal(flushed.stored[2], 5);
    close_flushed(cache);
}

static void a_flush_leaves_what_is_changed_meanwhile(void **state)
{
    (void)state;
    struct layout layout;
    struct cache *cache = open_flushed(&layout);
    flushed.goes_on = true;
    flushed.next = 1;
    assert_int_equal(write_one(0, 1), 0);
    assert_int_equal(cache_flush(cache, NULL), 0);
    assert_int_equal(flushed.stored[0], 1);
    assert_int_equal(flushed.stored[1], 0);
    assert_int_equal(cache_flush(cache, NULL), 0);
    assert_int_equal(flushed.stored[1], 1);
    assert_int_equal(flushed.stored[2], 0);
    close_flushed(cache);
}

static void a_chunk_changed_while_it_is_encoded_stays_dirty(void **state)
{
    (void)state;
    struct layout layout;
    struct cache *cache = open_flushed(&layout);
    unsigned char value = 0;
    struct box box = one_element(0);
    assert_int_equal(write_one(0, 5), 0);
    flushed.during = 6;
    assert_int_equal(cache_flush(cache, NULL), 0);
    assert_int_equal(flushed.stored[0], 5);
    assert_int_equal(statistics_of(cache).chunks_encoded, 1);
    assert_int_equal(statistics_of(cache).cache_dirty_bytes > 0, true);
    assert_int_equal(cache_read(flushed.dataset, &box, &value), 0);
    assert_int_equal(value, 6);
    assert_int_equal(cache_flush(cache, NULL), 0);
    assert_int_equal(flushed.stored[0], 6);
    assert_int_equal(statistics_of(cache).cache_dirty_bytes, 0);
    close_flushed(cache);
}

/* The change that was refused is in the new one, which is dirty since then. */
static void a_chunk_changed_while_it_is_refused_is_written_later(void **state)
{
    (void)state;
    struct layout layout;
    struct cache *cache = open_flushed(&layout);
    for (uint64_t chunk = 0; chunk < 3; chunk++)
        assert_int_equal(write_one(chunk, 5), 0);
    flushed.during = 6;
    flushed.refused = -ENOSPC;
    assert_int_equal(cache_flush(cache, NULL), -ENOSPC);
    assert_int_equal(flushed.stored[0], 0);
    flushed.refused = -ENOSPC; /* that one again: it comes first */
    assert_int_equal(cache_flush(cache, NULL), -ENOSPC);
    assert_int_equal(flushed.stored[1], 0);
    assert_int_equal(cache_flush(cache, NULL), 0);
    assert_int_equal(flushed.stored[0], 6);
    assert_int_equal(flushed.stored[1], 5);
    assert_int_equal(flushed.stored[2], 5);
    assert_int_equal(statistics_of(cache).cache_dirty_bytes, 0);
    close_flushed(cache);
}

/* ---- Threads that encode ---- */

static struct {
    pthread_t writer;
    atomic_uint by_writer, by_others;
    atomic_bool waits, is_in; /* the first encoding waits until it is told not to */
} encoded_by;

static int note_and_encode(struct layout *layout, const uint64_t *scaled,
                           const struct cache_form *form, struct pool *pool,
                           struct encoded *encoded)
{
    if (pthread_equal(pthread_self(), encoded_by.writer))
        atomic_fetch_add(&encoded_by.by_writer, 1);
    else
        atomic_fetch_add(&encoded_by.by_others, 1);
    atomic_store(&encoded_by.is_in, true);
    while (atomic_load(&encoded_by.waits))
        sched_yield();
    return encode_one(layout, scaled, form, pool, encoded);
}

static struct cache *open_noted(struct layout *layout, struct layout_ops *ops)
{
    struct cache *cache = open_flushed_with(layout, 16 * KIB, 1);
    *ops = flush_ops;
    ops->encode = note_and_encode;
    layout->ops = ops;
    encoded_by.writer = pthread_self();
    atomic_store(&encoded_by.by_writer, 0);
    atomic_store(&encoded_by.by_others, 0);
    atomic_store(&encoded_by.is_in, false);
    return cache;
}

static void who_writes_does_not_encode(void **state)
{
    (void)state;
    struct layout layout;
    struct layout_ops ops;
    struct cache *cache = open_noted(&layout, &ops);
    for (int times = 0; times < 20; times++)
        for (uint64_t chunk = 0; chunk < FLUSH_CHUNKS; chunk++)
            assert_int_equal(write_one(chunk, (unsigned char)(times + 1)), 0);
    assert_int_equal(encoded_by.by_writer, 0);
    assert_true(encoded_by.by_others > FLUSH_CHUNKS);
    assert_int_equal(cache_flush(cache, NULL), 0);
    for (uint64_t chunk = 0; chunk < FLUSH_CHUNKS; chunk++)
        assert_int_equal(flushed.stored[chunk], 20);
    close_flushed(cache);
}

static void a_write_does_not_wait_for_the_encoding_of_its_chunk(void **state)
{
    (void)state;
    struct layout layout;
    struct layout_ops ops;
    struct cache *cache = open_noted(&layout, &ops);
    struct box box = one_element(0);
    unsigned char value = 0;
    atomic_store(&encoded_by.waits, true);
    for (uint64_t chunk = 0; !atomic_load(&encoded_by.is_in); chunk = (chunk + 1) % 25)
        assert_int_equal(write_one(chunk, 1), 0);
    assert_int_equal(write_one(0, 2), 0); /* chunk 0 was dirty first */
    assert_int_equal(cache_erase_box(flushed.dataset, &box), 0);
    assert_int_equal(write_one(0, 3), 0);
    assert_int_equal(cache_read(flushed.dataset, &box, &value), 0);
    assert_int_equal(value, 3);
    assert_int_equal(flushed.stored[0], 0);
    atomic_store(&encoded_by.waits, false);
    assert_int_equal(cache_flush(cache, NULL), 0);
    assert_int_equal(flushed.stored[0], 3);
    close_flushed(cache);
}

static int all_tests(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(boxes_of_every_rank_are_read),
        cmocka_unit_test(an_empty_box_reads_nothing),
        cmocka_unit_test(a_chunk_is_found_and_decoded_once_while_it_stays),
        cmocka_unit_test(the_chunk_used_longest_ago_goes_first),
        cmocka_unit_test(what_was_wanted_again_outlives_a_scan),
        cmocka_unit_test(many_uses_in_a_row_are_one),
        cmocka_unit_test(what_does_not_come_back_makes_room),
        cmocka_unit_test(a_new_dataset_has_no_past),
        cmocka_unit_test(readers_that_meet_in_a_cold_chunk_decode_it_once),
        cmocka_unit_test(readers_that_wait_for_room_for_one_chunk_decode_it_once),
        cmocka_unit_test(an_error_reaches_all_who_wait_and_the_next_reader_tries_again),
        cmocka_unit_test(who_gives_up_does_not_do_so_for_others),
        cmocka_unit_test(stored_bytes_beyond_the_store_are_an_error),
        cmocka_unit_test(the_limit_holds_with_small_chunks),
        cmocka_unit_test(the_limit_holds_with_large_chunks),
        cmocka_unit_test(the_limit_holds_with_chunks_of_all_sizes),
        cmocka_unit_test(the_limit_holds_by_every_policy),
        cmocka_unit_test(lent_bytes_stay_while_others_are_evicted),
        cmocka_unit_test(memory_kept_for_reuse_counts),
        cmocka_unit_test(the_limit_can_be_changed),
        cmocka_unit_test(small_chunks_do_not_wait_for_a_large_one),
        cmocka_unit_test(waiting_is_interrupted),
        cmocka_unit_test(decoding_is_limited),
        cmocka_unit_test(absent_chunks_read_as_fill_and_do_not_pile_up),
        cmocka_unit_test(a_chunk_larger_than_the_cache_stays_while_nothing_else_is_wanted),
        cmocka_unit_test(many_readers_of_chunks_larger_than_the_cache_all_finish),
        cmocka_unit_test(lent_is_what_lies_in_one_chunk_without_a_gap),
        cmocka_unit_test(what_is_returned_last_goes),
        cmocka_unit_test(lending_hands_on_errors),
        cmocka_unit_test(plain_chunks_are_read_from_the_store),
        cmocka_unit_test(closing_a_dataset_gives_its_memory_back),
        cmocka_unit_test(a_dataset_of_many_large_chunks_can_be_closed),
        cmocka_unit_test(datasets_can_be_closed_while_others_evict_their_chunks),
        cmocka_unit_test(a_chunk_changed_again_is_in_the_flush_all_the_same),
        cmocka_unit_test(a_flush_leaves_what_is_changed_meanwhile),
        cmocka_unit_test(a_chunk_changed_while_it_is_encoded_stays_dirty),
        cmocka_unit_test(a_chunk_changed_while_it_is_refused_is_written_later),
        cmocka_unit_test(who_writes_does_not_encode),
        cmocka_unit_test(a_write_does_not_wait_for_the_encoding_of_its_chunk),
    };
    return cmocka_run_group_tests(tests, make_store, close_store);
}

int main(void)
{
    return in_temporary_directory(all_tests);
}
