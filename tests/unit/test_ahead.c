/* Reading ahead, seen by the number of chunks that were decoded: what comes next in order is, what
 * was never in order is not, and the bytes are right whatever others do meanwhile. */
#include "support.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "sparsefs/sparsefs.h"

#define PATH   "ahead.h5"
#define CHUNKS 200
#define SIDE   64
#define BYTES  (SIDE * SIDE * sizeof(uint32_t)) /* of a chunk */

struct opened {
    struct sfs_file *file;
    struct sfs_dataset *dataset;
};

static uint32_t expected(uint64_t chunk, size_t i)
{
    return (uint32_t)(chunk * 2654435761u + i * (chunk + 3));
}

static void make_file(bool is_dense)
{
    static const unsigned level = 1;
    static const struct sfs_filter deflate = {.id = 1, .n_values = 1, .values = &level};
    struct sfs_dataset_create create = {.rank = 3,
                                        .dims = {CHUNKS, SIDE, SIDE},
                                        .max_dims = {CHUNKS, SIDE, SIDE},
                                        .chunk_dims = {1, SIDE, SIDE},
                                        .n_filters = {0, 1},
                                        .filters = {NULL, &deflate},
                                        .is_dense = is_dense};
    struct sfs_options options = {.replace = true};
    struct opened opened;
    void *type;
    uint32_t *elements = allocate(BYTES);
    assert_int_equal(sfs_create(PATH, &options, &opened.file), 0);
    assert_int_equal(sfs_type_encode("<u4", &type, &create.type.n), 0);
    create.type.bytes = type;
    assert_int_equal(sfs_dataset_create(opened.file, "/d", &create, &opened.dataset), 0);
    for (uint64_t chunk = 0; chunk < CHUNKS; chunk++) {
        struct sfs_slab slab = {.rank = 3, .start = {chunk}, .count = {1, SIDE, SIDE}};
        for (size_t i = 0; i < SIDE * SIDE; i++)
            elements[i] = expected(chunk, i);
        assert_int_equal(sfs_write(opened.dataset, &slab, elements), 0);
    }
    sfs_dataset_close(opened.dataset);
    assert_int_equal(sfs_close(opened.file), 0);
    free(elements);
    free(type);
}

static struct opened open_file(size_t cache_size, unsigned workers)
{
    struct sfs_options options = {.cache_size = cache_size, .workers = workers};
    struct opened opened;
    uint64_t address;
    assert_int_equal(sfs_open(PATH, &options, &opened.file), 0);
    assert_int_equal(sfs_find(opened.file, sfs_root(opened.file), "d", &address), 0);
    assert_int_equal(sfs_dataset_open(opened.file, address, "/d", &opened.dataset), 0);
    return opened;
}

static void close_file(struct opened *opened)
{
    sfs_dataset_close(opened->dataset);
    assert_int_equal(sfs_close(opened->file), 0);
}

static uint64_t decoded(const struct opened *opened)
{
    struct sfs_statistics statistics;
    sfs_statistics(opened->file, &statistics);
    return statistics.chunks_decoded;
}

/* In two halves, as requests come. */
static void read_chunk(const struct opened *opened, uint64_t chunk)
{
    struct sfs_slab slab = {.rank = 3, .start = {chunk}, .count = {1, SIDE, SIDE}};
    uint32_t elements[SIDE * SIDE];
    char *bytes = (char *)elements;
    assert_int_equal(sfs_read(opened->dataset, &slab, 0, bytes, BYTES / 2), 0);
    assert_int_equal(sfs_read(opened->dataset, &slab, BYTES / 2, bytes + BYTES / 2, BYTES / 2), 0);
    for (size_t i = 0; i < SIDE * SIDE; i++)
        assert_int_equal(elements[i], expected(chunk, i));
}

static void wait_a_moment(void)
{
    nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
}

static void what_comes_next_is_read_ahead(void **state)
{
    for (int is_dense = 0; is_dense < 2; is_dense++) {
        make_file(is_dense);
        struct opened opened = open_file(0, 2);
        read_chunk(&opened, 10);
        assert_int_equal(decoded(&opened), 1); /* where the first one is says nothing */
        read_chunk(&opened, 11);
        while (decoded(&opened) < 4) { /* until a worker was idle */
            read_chunk(&opened, 11);
            wait_a_moment();
        }
        for (uint64_t chunk = 12; chunk < CHUNKS; chunk++)
            read_chunk(&opened, chunk);
        close_file(&opened);
    }
    (void)state;
}

static void who_begins_with_the_first_goes_on(void **state)
{
    (void)state;
    make_file(true);
    struct opened opened = open_file(0, 2);
    read_chunk(&opened, 0);
    while (decoded(&opened) < 2) {
        read_chunk(&opened, 0);
        wait_a_moment();
    }
    close_file(&opened);
}

static void every_chunk_is_decoded_once(void **state)
{
    (void)state;
    make_file(true);
    struct opened opened = open_file(0, 3);
    for (uint64_t chunk = 0; chunk < CHUNKS; chunk++)
        read_chunk(&opened, chunk);
    assert_int_equal(decoded(&opened), CHUNKS);
    close_file(&opened);
}

/* Of what 42 chunks take, a quarter holds ten; without a bound all would be fetched. What the reader
 * needs may have been evicted before it came to it, and is decoded once more: hence some to spare. */
static void a_share_of_the_cache_at_most(void **state)
{
    (void)state;
    make_file(true);
    struct opened opened = open_file(42 * BYTES, 2);
    for (uint64_t chunk = 0; chunk < CHUNKS / 2; chunk++)
        read_chunk(&opened, chunk);
    uint64_t before = decoded(&opened);
    for (int i = 0; i < 20; i++) {
        read_chunk(&opened, CHUNKS / 2 - 1);
        wait_a_moment();
    }
    assert_in_range(before, CHUNKS / 2, CHUNKS - 20);
    assert_in_range(decoded(&opened) - before, 0, 20);
    close_file(&opened);
}

static void nothing_is_read_ahead_of_no_order(void **state)
{
    (void)state;
    make_file(true);
    struct opened opened = open_file(0, 2);
    uint64_t chunk = 0;
    for (int i = 0; i < CHUNKS; i++, chunk = (chunk + 77) % CHUNKS)
        read_chunk(&opened, chunk);
    assert_int_equal(decoded(&opened), CHUNKS);
    close_file(&opened);
}

/* Pairs, after each of which the reader goes elsewhere. */
static void what_is_wrong_twice_is_given_up(void **state)
{
    (void)state;
    make_file(true);
    struct opened opened = open_file(0, 2);
    uint64_t before = 0;
    for (uint64_t i = 0; i < 6; i++) {
        read_chunk(&opened, 20 * i);
        read_chunk(&opened, 20 * i + 1);
        /* Four chunks ahead of the second step, two ahead of a first one; what is wrong is counted with the second
         * pair that comes after it. */
        before += 2 + (i == 0 ? 4 : i < 3 ? 2 : 0);
        while (decoded(&opened) < before) {
            read_chunk(&opened, 20 * i + 1);
            wait_a_moment();
        }
    }
    assert_int_equal(decoded(&opened), before);
    read_chunk(&opened, 150);
    for (int i = 0; i < 700; i++) { /* so long that no other stream counts as live */
        read_chunk(&opened, 151);
        wait_a_moment();
    }
    assert_int_equal(decoded(&opened), before + 2);
    for (uint64_t chunk = 152; chunk < 150 + 20; chunk++) /* it is right after all */
        read_chunk(&opened, chunk);
    while (decoded(&opened) < before + 22) {
        read_chunk(&opened, 169);
        wait_a_moment();
    }
    close_file(&opened);
}

/* ---- Many at once ---- */

struct reader {
    pthread_t thread;
    struct sfs_file *file;
    uint64_t first;
};

static void *read_and_close(void *data)
{
    const struct reader *reader = data;
    for (uint64_t first = reader->first; first < CHUNKS - 8; first += 23) {
        struct opened opened = {.file = reader->file};
        uint64_t address;
        assert_int_equal(sfs_find(opened.file, sfs_root(opened.file), "d", &address), 0);
        assert_int_equal(sfs_dataset_open(opened.file, address, "/d", &opened.dataset), 0);
        for (uint64_t chunk = first; chunk < first + 8; chunk++)
            read_chunk(&opened, chunk);
        sfs_dataset_close(opened.dataset);
    }
    return NULL;
}

/* Files are closed while something is being fetched; the cache has room for little. */
static void readers_come_and_go(void **state)
{
    (void)state;
    make_file(true);
    for (int round = 0; round < 20; round++) {
        struct sfs_options options = {.cache_size = 20 * BYTES, .workers = 3};
        struct reader readers[4];
        struct sfs_file *file;
        assert_int_equal(sfs_open(PATH, &options, &file), 0);
        for (size_t i = 0; i < COUNT(readers); i++) {
            readers[i] = (struct reader){.file = file, .first = 5 * i};
            start_thread(&readers[i].thread, read_and_close, &readers[i]);
        }
        for (size_t i = 0; i < COUNT(readers); i++)
            assert_int_equal(pthread_join(readers[i].thread, NULL), 0);
        assert_int_equal(sfs_close(file), 0);
    }
}

/* Growing and shrinking wait for nobody who reads ahead for ever, and what is behind the end is not
 * shown. */
static void the_dims_change_meanwhile(void **state)
{
    (void)state;
    make_file(false);
    struct sfs_options options = {.writable = true, .workers = 2};
    struct opened opened;
    uint64_t address, dims[3] = {CHUNKS, SIDE, SIDE};
    assert_int_equal(sfs_open(PATH, &options, &opened.file), 0);
    assert_int_equal(sfs_find(opened.file, sfs_root(opened.file), "d", &address), 0);
    assert_int_equal(sfs_dataset_open(opened.file, address, "/d", &opened.dataset), 0);
    for (uint64_t chunk = 0; chunk + 10 < CHUNKS; chunk++) {
        read_chunk(&opened, chunk);
        if (chunk % 7 == 5) {
            dims[0] = chunk + 2;
            assert_int_equal(sfs_set_extent(opened.dataset, dims), 0);
            dims[0] = CHUNKS;
            assert_int_equal(sfs_set_extent(opened.dataset, dims), 0);
            break;
        }
    }
    struct sfs_slab slab = {.rank = 3, .start = {7}, .count = {1, SIDE, SIDE}};
    uint32_t elements[SIDE * SIDE];
    read_chunk(&opened, 6);
    assert_int_equal(sfs_read(opened.dataset, &slab, 0, elements, BYTES), 0);
    for (size_t i = 0; i < SIDE * SIDE; i++)
        assert_int_equal(elements[i], 0);
    close_file(&opened);
}

TEST_MAIN(cmocka_unit_test(what_comes_next_is_read_ahead),
          cmocka_unit_test(who_begins_with_the_first_goes_on),
          cmocka_unit_test(every_chunk_is_decoded_once),
          cmocka_unit_test(a_share_of_the_cache_at_most),
          cmocka_unit_test(nothing_is_read_ahead_of_no_order),
          cmocka_unit_test(what_is_wrong_twice_is_given_up), cmocka_unit_test(readers_come_and_go),
          cmocka_unit_test(the_dims_change_meanwhile))
