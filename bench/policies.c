/* How often the policies of the chunk cache find a chunk, in mixes of reads as they come through a
 * mount: no times, and the same numbers in every run. The cache is the product's own, over chunks
 * that are made by computation. See README.md. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cache/cache.h"
#include "common/box.h"
#include "common/memory_pool.h"
#include "layout/layout.h"

#define ELEMENTS 8192 /* of a chunk, 4 bytes each */
#define CHUNKS   256  /* that fit in the cache */
#define PIECES   8    /* in which the kernel asks for a chunk */
#define IN_CHUNK 16   /* frames, where it has several */
#define COLUMNS  4    /* chunks beside each other, where a frame is cut */
#define ROUNDS   40000
#define ENTRY    1024 /* bytes of a chunk besides its elements, at most */

/* ---- Chunks that cost nothing to read ---- */

static int lookup(struct layout *layout, const uint64_t *scaled, struct chunk_record *record)
{
    (void)layout, (void)scaled;
    *record = (struct chunk_record){.exists = true};
    return 0;
}

static size_t decode_bytes(const struct layout *layout, const struct chunk_record *record,
                           unsigned parts)
{
    (void)record, (void)parts;
    return pool_block_size(layout->chunk_bytes);
}

static int decode(struct layout *layout, const struct decoding *chunk)
{
    int error = form_new_elements(layout, chunk->form, chunk->pool);
    if (!error)
        memset(chunk->form->elements, 0, layout->chunk_bytes);
    return error;
}

static const struct layout_ops ops = {
    .lookup = lookup, .decode_bytes = decode_bytes, .decode = decode};

/* ---- Reads ---- */

struct bench {
    struct cache *cache;
    struct cache_dataset *dataset;
    uint64_t reads, random;
    bool failed;
};

static uint64_t random_below(struct bench *bench, uint64_t n)
{
    bench->random = bench->random * 6364136223846793005u + 1442695040888963407u;
    return (bench->random >> 33) % n;
}

static void read_elements(struct bench *bench, uint64_t start, uint64_t count)
{
    static uint32_t elements[ELEMENTS];
    struct box box = {.rank = 1, .start = {start}, .count = {count}};
    bench->failed |= cache_read(bench->dataset, &box, elements) != 0;
}

/* A chunk that is a frame. */
static void read_chunk(struct bench *bench, uint64_t chunk)
{
    for (uint64_t i = 0; i < PIECES; i++)
        read_elements(bench, chunk * ELEMENTS + i * (ELEMENTS / PIECES), ELEMENTS / PIECES);
    bench->reads++;
}

/* A frame that lies in COLUMNS chunks, with others. */
static void read_frame(struct bench *bench, uint64_t frame)
{
    for (uint64_t i = 0; i < COLUMNS; i++) {
        uint64_t chunk = frame / IN_CHUNK * COLUMNS + i;
        read_elements(bench, chunk * ELEMENTS + frame % IN_CHUNK * (ELEMENTS / IN_CHUNK),
                      ELEMENTS / IN_CHUNK);
        bench->reads++;
    }
}

/* ---- Mixes ---- */

static void frames_in_order(struct bench *bench)
{
    for (uint64_t i = 0; i < ROUNDS; i++)
        read_chunk(bench, i);
}

static void frames_of_shared_chunks(struct bench *bench)
{
    for (uint64_t i = 0; i < ROUNDS; i++)
        read_frame(bench, i);
}

static void again(struct bench *bench, uint64_t chunks)
{
    for (uint64_t i = 0; i < ROUNDS; i++)
        read_chunk(bench, i % chunks);
}

static void again_what_fits(struct bench *bench)
{
    again(bench, CHUNKS * 3 / 4);
}

static void again_a_little_more(struct bench *bench)
{
    again(bench, CHUNKS * 5 / 4);
}

static void again_much_more(struct bench *bench)
{
    again(bench, CHUNKS * 4);
}

static void at_random(struct bench *bench)
{
    for (uint64_t i = 0; i < ROUNDS; i++)
        read_chunk(bench, random_below(bench, CHUNKS * 4));
}

/* Some more often than others: chunk n with a probability in proportion to 1/n. */
static uint64_t favoured(struct bench *bench)
{
    return (uint64_t)pow(CHUNKS * 16, (double)random_below(bench, 1 << 30) / (1 << 30)) - 1;
}

static void with_favourites(struct bench *bench)
{
    for (uint64_t i = 0; i < ROUNDS; i++)
        read_chunk(bench, favoured(bench));
}

/* Some frames again and again (masks, references, the ones that are being looked at), while all
 * are read in order. */
static void scan_and_hot(struct bench *bench, uint64_t hot, uint64_t scanned)
{
    for (uint64_t i = 0; i < ROUNDS; i++) {
        read_chunk(bench, random_below(bench, hot));
        for (uint64_t k = 0; k < scanned; k++)
            read_chunk(bench, CHUNKS * 2 + i * scanned + k);
    }
}

static void scan_and_few_hot(struct bench *bench)
{
    scan_and_hot(bench, CHUNKS / 8, 4);
}

static void scan_and_many_hot(struct bench *bench)
{
    scan_and_hot(bench, CHUNKS / 2, 2);
}

static void scan_of_shared_chunks_and_hot(struct bench *bench)
{
    for (uint64_t i = 0; i < ROUNDS; i++) {
        read_chunk(bench, random_below(bench, CHUNKS / 2));
        read_frame(bench, CHUNKS * 2 * IN_CHUNK / COLUMNS + i);
    }
}

static void scans_between(struct bench *bench)
{
    for (uint64_t i = 0; i < ROUNDS; i += CHUNKS * 6) {
        for (uint64_t k = 0; k < CHUNKS * 4; k++)
            read_chunk(bench, random_below(bench, CHUNKS / 2));
        for (uint64_t k = 0; k < CHUNKS * 2; k++)
            read_chunk(bench, CHUNKS * 2 + i + k);
    }
}

/* To and fro, as who looks for something does. */
static void browsing(struct bench *bench)
{
    uint64_t at = ROUNDS;
    for (uint64_t i = 0; i < ROUNDS; i++) {
        at += random_below(bench, 2 * CHUNKS / 4 + 1) - CHUNKS / 4;
        read_chunk(bench, at);
    }
}

/* What is hot becomes something else now and then. */
static void moving(struct bench *bench)
{
    for (uint64_t i = 0; i < ROUNDS; i++)
        read_chunk(bench, i / (CHUNKS * 8) * CHUNKS + random_below(bench, CHUNKS * 7 / 8));
}

/* Programs that read the same frames, one some way behind the other. */
static void two_readers(struct bench *bench, uint64_t apart)
{
    for (uint64_t i = CHUNKS; i < ROUNDS; i++) {
        read_chunk(bench, i);
        read_chunk(bench, i - apart);
    }
}

static void two_readers_near(struct bench *bench)
{
    two_readers(bench, CHUNKS / 3);
}

static void two_readers_far(struct bench *bench)
{
    two_readers(bench, CHUNKS * 3 / 4);
}

/* First one way of reading, then the other. */
static void hot_then_two_readers(struct bench *bench)
{
    scan_and_hot(bench, CHUNKS / 2, 2);
    two_readers(bench, CHUNKS * 3 / 4);
}

static const struct {
    const char *name;
    void (*run)(struct bench *bench);
} mixes[] = {{"frames in order", frames_in_order},
             {"the same, 16 in 4 chunks", frames_of_shared_chunks},
             {"again and again, 3/4 of the cache", again_what_fits},
             {"again and again, 5/4 of it", again_a_little_more},
             {"again and again, 4 times it", again_much_more},
             {"at random, of 4 times it", at_random},
             {"at random, some more often", with_favourites},
             {"scan, and 1/8 of it hot", scan_and_few_hot},
             {"scan, and 1/2 of it hot", scan_and_many_hot},
             {"scan of 16 in 4, and 1/2 hot", scan_of_shared_chunks_and_hot},
             {"scans between, 1/2 of it hot", scans_between},
             {"to and fro", browsing},
             {"hot ones that change", moving},
             {"two readers, 1/3 of it apart", two_readers_near},
             {"two readers, 3/4 of it apart", two_readers_far},
             {"scan with 1/2 hot, then these", hot_then_two_readers}};

/* ---- Measuring ---- */

static void run(size_t mix, enum sfs_policy policy)
{
    static const uint32_t fill;
    struct sfs_dataset_info info = {.fill = (void *)&fill};
    struct layout layout = {.ops = &ops,
                            .info = &info,
                            .path = "/made",
                            .rank = 1,
                            .dims = {(uint64_t)1 << 40},
                            .chunk_dims = {ELEMENTS},
                            .element_size = sizeof(uint32_t),
                            .chunk_bytes = ELEMENTS * sizeof(uint32_t)};
    struct bench bench = {.random = 1};
    struct sfs_statistics statistics;
    size_t limit = (pool_block_size(layout.chunk_bytes) + ENTRY) * CHUNKS;
    if (cache_create(limit, 1, &bench.cache) < 0 ||
        cache_open_dataset(bench.cache, &layout, &bench.dataset) < 0)
        exit(1);
    cache_set_policy(bench.cache, policy);
    mixes[mix].run(&bench);
    cache_statistics(bench.cache, &statistics);
    cache_close_dataset(bench.dataset);
    cache_destroy(bench.cache);
    if (bench.failed)
        exit(1);
    double found = 100 * (1 - (double)statistics.cache_misses / (double)bench.reads);
    printf("  %6.1f", found);
}

int main(void)
{
    static const enum sfs_policy policies[] = {SFS_POLICY_LRU, SFS_POLICY_S3_FIFO, SFS_POLICY_2Q};
    printf("%% of reads that find their chunk  %8s%8s%8s\n", "LRU", "S3-FIFO", "2Q");
    for (size_t mix = 0; mix < sizeof(mixes) / sizeof(*mixes); mix++) {
        printf("%-34s", mixes[mix].name);
        for (size_t i = 0; i < sizeof(policies) / sizeof(*policies); i++)
            run(mix, policies[i]);
        putchar('\n');
    }
    return 0;
}
