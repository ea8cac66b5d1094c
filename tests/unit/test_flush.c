/* Flushing while others work: the disk, or who encodes chunks, is made to stand still, by the
 * linker's wrap, in the middle of a commit, and who waits for that is counted; and after libhdf5 has failed. */
#include "opened.h"

#include <errno.h>
#include <hdf5.h>
#include <pthread.h>
#include <semaphore.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cache/private.h"
#include "dataset/private.h"
#include "filter/filter.h"
#include "sparsefs/sparsefs.h"

#define PATH    "flush.h5"
#define ROWS    64
#define COLUMNS 32
#define THREADS 8

/* ---- What stands still ---- */

static atomic_bool hold, hold_encoding, hold_change;
static atomic_int encode_error; /* of all that is encoded */
static sem_t reached, released;

static void stand_still(atomic_bool *once)
{
    if (atomic_exchange(once, false)) {
        sem_post(&reached);
        sem_wait(&released);
    }
}

int __real_fdatasync(int fd);
int __wrap_fdatasync(int fd);

__attribute__((visibility("default"))) int __wrap_fdatasync(int fd)
{
    stand_still(&hold);
    return __real_fdatasync(fd);
}

int __real_filter_encode(struct filter_pipeline *pipeline, const void *in, size_t size,
                         void *scratch, void *out, size_t *out_size);
int __wrap_filter_encode(struct filter_pipeline *pipeline, const void *in, size_t size,
                         void *scratch, void *out, size_t *out_size);

__attribute__((visibility("default"))) int __wrap_filter_encode(struct filter_pipeline *pipeline,
                                                                const void *in, size_t size,
                                                                void *scratch, void *out,
                                                                size_t *out_size)
{
    stand_still(&hold_encoding);
    int error = atomic_load(&encode_error);
    if (error)
        return error;
    return __real_filter_encode(pipeline, in, size, scratch, out, out_size);
}

int __real_cache_write(struct cache_dataset *dataset, const uint64_t *scaled,
                       const struct runs *positions, const void *values, bool whole);
int __wrap_cache_write(struct cache_dataset *dataset, const uint64_t *scaled,
                       const struct runs *positions, const void *values, bool whole);

__attribute__((visibility("default"))) int __wrap_cache_write(struct cache_dataset *dataset,
                                                              const uint64_t *scaled,
                                                              const struct runs *positions,
                                                              const void *values, bool whole)
{
    int error = __real_cache_write(dataset, scaled, positions, values, whole);
    stand_still(&hold_change);
    return error;
}

/* ---- What fails ---- */

static uint64_t refused_rows; /* the next change to so many fails */

int __real_hdf5_set_extent(struct hdf5 *hdf5, uint64_t address, const uint64_t *dims);
int __wrap_hdf5_set_extent(struct hdf5 *hdf5, uint64_t address, const uint64_t *dims);

__attribute__((visibility("default"))) int
__wrap_hdf5_set_extent(struct hdf5 *hdf5, uint64_t address, const uint64_t *dims)
{
    if (dims[0] != refused_rows)
        return __real_hdf5_set_extent(hdf5, address, dims);
    refused_rows = 0;
    return -ENOMEM;
}

static int place_error;

int __real_hdf5_place(struct hdf5 *hdf5, uint64_t dataset, uint64_t *address, uint64_t n,
                      const void *element);
int __wrap_hdf5_place(struct hdf5 *hdf5, uint64_t dataset, uint64_t *address, uint64_t n,
                      const void *element);

__attribute__((visibility("default"))) int __wrap_hdf5_place(struct hdf5 *hdf5, uint64_t of,
                                                             uint64_t *address, uint64_t n,
                                                             const void *element)
{
    return place_error ? place_error : __real_hdf5_place(hdf5, of, address, n, element);
}

/* ---- The file ---- */

static struct sfs_file *file;
static struct sfs_dataset *dataset;

static _Atomic(pthread_cond_t *) watched; /* for which who waits is counted */
static atomic_int waiting;

int __real_pthread_cond_wait(pthread_cond_t *condition, pthread_mutex_t *mutex);
int __wrap_pthread_cond_wait(pthread_cond_t *condition, pthread_mutex_t *mutex);

__attribute__((visibility("default"))) int __wrap_pthread_cond_wait(pthread_cond_t *condition,
                                                                    pthread_mutex_t *mutex)
{
    if (condition == atomic_load(&watched))
        atomic_fetch_add(&waiting, 1);
    return __real_pthread_cond_wait(condition, mutex);
}

static struct sfs_slab row(uint64_t i)
{
    return (struct sfs_slab){.rank = 2, .start = {i}, .count = {1, COLUMNS}};
}

static int write_row(uint64_t i, uint16_t value)
{
    uint16_t values[COLUMNS];
    struct sfs_slab slab = row(i);
    for (int k = 0; k < COLUMNS; k++)
        values[k] = value;
    return sfs_write(dataset, &slab, values);
}

static uint16_t read_row(struct sfs_dataset *of, uint64_t i)
{
    uint16_t values[COLUMNS];
    struct sfs_slab slab = row(i);
    assert_int_equal(sfs_read(of, &slab, 0, values, sizeof(values)), 0);
    for (int k = 1; k < COLUMNS; k++)
        assert_int_equal(values[k], values[0]);
    return values[0];
}

static bool has_unfiltered_edges; /* the next one that is made */

static struct sfs_dataset *make_dataset(const char *path, uint64_t rows, uint64_t max_rows,
                                        uint64_t chunk_rows, uint64_t chunk_columns)
{
    const unsigned element_bytes = 2;
    const struct sfs_filter shuffle = {
        .id = 2, .name = "shuffle", .n_values = 1, .values = &element_bytes};
    struct sfs_dataset_create create = {.rank = 2,
                                        .dims = {rows, COLUMNS},
                                        .max_dims = {max_rows, COLUMNS},
                                        .chunk_dims = {chunk_rows, chunk_columns},
                                        .unfiltered_edges = has_unfiltered_edges,
                                        .n_filters = {0, 1},
                                        .filters = {NULL, &shuffle}};
    struct sfs_dataset *made;
    void *type;
    assert_int_equal(sfs_type_encode("uint16", &type, &create.type.n), 0);
    create.type.bytes = type;
    assert_int_equal(sfs_dataset_create(file, path, &create, &made), 0);
    free(type);
    return made;
}

static void create_file(uint64_t rows, uint64_t max_rows, uint64_t chunk_rows,
                        uint64_t chunk_columns)
{
    struct sfs_options options = {.replace = true};
    assert_int_equal(sfs_create(PATH, &options, &file), 0);
    dataset = make_dataset("/x", rows, max_rows, chunk_rows, chunk_columns);
}

static void make_file(void)
{
    create_file(ROWS, ROWS, 1, 32);
    for (uint64_t i = 0; i < ROWS; i++)
        assert_int_equal(write_row(i, 1), 0);
    assert_int_equal(sfs_flush(file), 0);
}

static void close_file(void)
{
    sfs_dataset_close(dataset);
    assert_int_equal(sfs_close(file), 0);
}

static uint64_t commits(void)
{
    struct sfs_statistics statistics;
    sfs_statistics(file, &statistics);
    return statistics.store_commits;
}

static void *flush(void *context)
{
    (void)context;
    return (void *)(intptr_t)sfs_flush(file);
}

/* Starts a thread, which stands still once. */
static void start_still(pthread_t *thread, void *(*function)(void *context), void *context,
                        atomic_bool *where)
{
    sem_init(&reached, 0, 0);
    sem_init(&released, 0, 0);
    atomic_store(where, true);
    start_thread(thread, function, context);
    sem_wait(&reached);
}

static pthread_t begin_flush(atomic_bool *where)
{
    pthread_t thread;
    start_still(&thread, flush, NULL, where);
    return thread;
}

static void join(pthread_t thread)
{
    void *error;
    pthread_join(thread, &error);
    assert_null(error);
}

/* ---- Tests ---- */

static void *write_and_flush(void *context)
{
    uint64_t i = (uintptr_t)context;
    int error = write_row(i, (uint16_t)(100 + i));
    return (void *)(intptr_t)(error ? error : sfs_flush(file));
}

static void those_who_wait_for_a_commit_share_the_next(void **state)
{
    (void)state;
    pthread_t first, threads[THREADS];
    make_file();
    uint64_t before = commits();
    assert_int_equal(write_row(60, 9), 0);
    first = begin_flush(&hold);
    atomic_store(&waiting, 0);
    atomic_store(&watched, &file->flushing.ended_one);
    for (uintptr_t i = 0; i < THREADS; i++)
        start_thread(&threads[i], write_and_flush, (void *)i);
    while (atomic_load(&waiting) < THREADS)
        usleep(1000);
    sem_post(&released);
    join(first);
    for (int i = 0; i < THREADS; i++)
        join(threads[i]);
    atomic_store(&watched, NULL);
    assert_int_equal(commits() - before, 2);
    sfs_dataset_close(dataset);
    sfs_discard(file); /* what was flushed is there without it */

    uint64_t address;
    assert_int_equal(sfs_open(PATH, NULL, &file), 0);
    assert_int_equal(sfs_find(file, sfs_root(file), "/x", &address), 0);
    assert_int_equal(sfs_dataset_open(file, address, "/x", &dataset), 0);
    for (uint64_t i = 0; i < THREADS; i++)
        assert_int_equal(read_row(dataset, i), 100 + i);
    assert_int_equal(read_row(dataset, 60), 9);
    close_file();
}

static void others_read_write_and_open_while_the_disk_is_busy(void **state)
{
    (void)state;
    struct sfs_dataset *again;
    struct sfs_links links;
    make_file();
    close_file();
    struct sfs_options options = {.writable = true};
    uint64_t address;
    assert_int_equal(sfs_open(PATH, &options, &file), 0);
    assert_int_equal(sfs_find(file, sfs_root(file), "/x", &address), 0);
    assert_int_equal(sfs_dataset_open(file, address, "/x", &dataset), 0);
    assert_int_equal(write_row(0, 5), 0);
    alarm(300); /* ends the test if one of these waits */
    pthread_t thread = begin_flush(&hold);
    assert_int_equal(read_row(dataset, 0), 5);
    assert_int_equal(read_row(dataset, 1), 1); /* which was not read before */
    assert_int_equal(write_row(2, 6), 0);
    assert_int_equal(write_row(0, 7), 0);
    assert_int_equal(read_row(dataset, 2), 6);
    assert_int_equal(sfs_dataset_open(file, address, "/x", &again), 0);
    assert_int_equal(read_row(again, 0), 7);
    sfs_dataset_close(again);
    assert_int_equal(sfs_list(file, sfs_root(file), &links), 0);
    assert_int_equal(links.n, 1);
    sfs_links_free(&links);
    sem_post(&released);
    join(thread);
    alarm(0);
    sfs_dataset_close(dataset);
    sfs_discard(file);
    assert_int_equal(sfs_open(PATH, &options, &file), 0);
    assert_int_equal(sfs_dataset_open(file, address, "/x", &dataset), 0);
    assert_int_equal(read_row(dataset, 0), 5); /* as it was when the flush began */
    assert_int_equal(read_row(dataset, 2), 1);
    close_file();
}

static void a_flush_of_nothing_commits_nothing(void **state)
{
    (void)state;
    make_file();
    uint64_t before = commits();
    for (int i = 0; i < 3; i++)
        assert_int_equal(sfs_flush(file), 0);
    assert_int_equal(commits(), before);
    close_file();
}

/* ---- What is unfinished ---- */

#define COPY  "flush_copy.h5"
#define STEPS 1500

struct expected {
    uint16_t value[ROWS], committed[ROWS]; /* 0: nothing was written */
    struct sfs_unfinished *unfinished[ROWS];
    uint64_t rows, committed_rows, finished_rows;
};

static void make_growing(uint64_t rows_of_chunk)
{
    create_file(0, SFS_UNLIMITED, rows_of_chunk, 20);
    assert_int_equal(sfs_flush(file), 0);
}

/* What a reader finds in the file as it is on the disk now. */
static void check_committed_of(const char *path, const struct expected *expected)
{
    struct sfs_file *copy;
    uint64_t dims[2];
    assert_int_equal(system("cp " PATH " " COPY), 0);
    assert_int_equal(sfs_open(COPY, NULL, &copy), 0);
    struct sfs_dataset *of = open_dataset(copy, path);
    sfs_dataset_dims(of, dims);
    assert_int_equal(dims[0], expected->committed_rows);
    for (uint64_t i = 0; i < dims[0]; i++)
        assert_int_equal(read_row(of, i), expected->committed[i]);
    sfs_dataset_close(of);
    assert_int_equal(sfs_close(copy), 0);
}

static void check_committed(const struct expected *expected)
{
    check_committed_of("/x", expected);
}

static void flush_and_check(struct expected *expected, bool keeps_promises)
{
    uint64_t end = expected->rows;
    assert_int_equal(keeps_promises ? sfs_flush(file) : sfs_flush_finished(file), 0);
    for (uint64_t i = ROWS; i-- > expected->committed_rows;)
        end = expected->unfinished[i] && i < end ? i : end;
    if (keeps_promises && end < expected->finished_rows)
        end = expected->finished_rows;
    for (uint64_t i = 0; i < end; i++)
        if (!expected->unfinished[i])
            expected->committed[i] = expected->value[i];
    expected->committed_rows = end;
    check_committed(expected);
}

static void step(struct expected *expected)
{
    uint64_t i = random_below(expected->rows + 3), dims[] = {i + 1, COLUMNS};
    struct sfs_slab slab = row(i);
    i = i < ROWS ? i : ROWS - 1;
    slab.start[0] = i;
    dims[0] = i + 1;
    switch (random_below(8)) {
    case 0:
        if (!expected->unfinished[i] && !expected->committed[i])
            assert_int_equal(sfs_begin_unfinished(dataset, &slab, &expected->unfinished[i]), 0);
        break;
    case 1:
    case 2:
        if (!expected->unfinished[i] || i >= expected->rows)
            break;
        sfs_end_unfinished(expected->unfinished[i]);
        expected->unfinished[i] = NULL;
        if (expected->finished_rows <= i)
            expected->finished_rows = i + 1;
        break;
    case 3:
        flush_and_check(expected, random_below(2));
        break;
    case 4:
        assert_int_equal(sfs_extend(dataset, dims), 0);
        expected->rows = dims[0] > expected->rows ? dims[0] : expected->rows;
        break;
    default:
        if (i >= expected->rows)
            break;
        expected->value[i] = (uint16_t)(1 + random_below(60000));
        assert_int_equal(write_row(i, expected->value[i]), 0);
    }
}

static void what_is_unfinished_is_left_out(void **state)
{
    (void)state;
    for (uint64_t rows_of_chunk = 1; rows_of_chunk <= 5; rows_of_chunk += 2) {
        struct expected expected = {0};
        make_growing(rows_of_chunk);
        for (int i = 0; i < STEPS; i++)
            step(&expected);
        for (int i = 0; i < ROWS; i++) {
            sfs_end_unfinished(expected.unfinished[i]);
            expected.unfinished[i] = NULL;
        }
        flush_and_check(&expected, false);
        assert_int_equal(expected.committed_rows, expected.rows);
        close_file();
    }
}

/* One dataset is being flushed while another one is opened, and grows: with dataset, the first. */
static void what_is_unfinished_is_left_out_of_a_commit_under_way(void **state)
{
    (void)state;
    struct expected expected = {0};
    struct sfs_options options = {.writable = true};
    struct sfs_unfinished *unfinished;
    struct sfs_slab slab = row(0);
    make_growing(1);
    sfs_dataset_close(make_dataset("/y", 0, SFS_UNLIMITED, 1, 20));
    close_file();
    assert_int_equal(sfs_open(PATH, &options, &file), 0);
    struct sfs_dataset *first = open_dataset(file, "/x");
    assert_int_equal(sfs_extend(first, (uint64_t[]){1, COLUMNS}), 0);
    dataset = first;
    assert_int_equal(write_row(0, 7), 0);

    alarm(300);
    pthread_t thread = begin_flush(&hold_encoding);
    dataset = open_dataset(file, "/y");
    assert_int_equal(sfs_begin_unfinished(dataset, &slab, &unfinished), 0);
    assert_int_equal(sfs_extend(dataset, (uint64_t[]){1, COLUMNS}), 0);
    assert_int_equal(write_row(0, 9), 0);
    sem_post(&released);
    join(thread);
    alarm(0);
    check_committed_of("/y", &expected);
    expected.committed_rows = 1;
    expected.committed[0] = 7;
    check_committed_of("/x", &expected);

    sfs_end_unfinished(unfinished);
    assert_int_equal(sfs_flush(file), 0);
    expected.committed[0] = 9;
    check_committed_of("/y", &expected);
    sfs_dataset_close(first);
    close_file();
}

static void *flush_dataset(void *context)
{
    (void)context;
    return (void *)(intptr_t)sfs_flush_dataset(dataset, false);
}

static void *store_chunk(void *context)
{
    struct sfs_chunk_info *info = context;
    return (void *)(intptr_t)sfs_chunk_info(dataset, (uint64_t[]){0, 0}, info);
}

static void what_a_commit_leaves_out_is_stored_for_others(void **state)
{
    (void)state;
    for (int i = 0; i < 2; i++) {
        struct sfs_slab second = row(1);
        struct sfs_unfinished *unfinished;
        struct sfs_chunk_info info;
        pthread_t other;
        create_file(2, 2, 2, COLUMNS);
        assert_int_equal(write_row(0, 7), 0);
        assert_int_equal(sfs_begin_unfinished(dataset, &second, &unfinished), 0);
        assert_int_equal(write_row(1, 9), 0);
        alarm(300);
        pthread_t thread = begin_flush(&hold_encoding);
        atomic_store(&waiting, 0);
        atomic_store(&watched, &file->cache->changed);
        start_thread(&other, i == 0 ? flush_dataset : store_chunk, &info);
        while (atomic_load(&waiting) == 0)
            usleep(1000);
        sem_post(&released);
        join(thread);
        join(other);
        alarm(0);
        atomic_store(&watched, NULL);
        assert_int_equal(file->cache->n_dirty, 0);
        assert_int_equal(sfs_chunk_info(dataset, (uint64_t[]){0, 0}, &info), 0);
        assert_int_equal(info.unfiltered_size[1] / (2 * COLUMNS * sizeof(uint16_t)), 1);
        sfs_end_unfinished(unfinished);
        close_file();
    }
}

/* Writes a row by the chunk of another one, whose chunks are whole rows. */
static void write_row_as(uint64_t from, uint64_t to)
{
    unsigned char sections[2][1000];
    struct sfs_chunk_info info;
    assert_int_equal(sfs_chunk_info(dataset, (uint64_t[]){from, 0}, &info), 0);
    assert_true(info.section_size[0] <= 1000 && info.section_size[1] <= 1000);
    assert_int_equal(
        sfs_read_chunk(dataset, &info, (void *[SFS_SECTIONS]){sections[0], sections[1]}), 0);
    info.start[0] = to;
    assert_int_equal(
        sfs_write_chunk(dataset, &info, (const void *[SFS_SECTIONS]){sections[0], sections[1]}), 0);
}

/* Ready chunks go into the index at once: the dims that a running commit has must not be smaller. */
static void ready_chunks_are_within_the_dims_of_a_commit_under_way(void **state)
{
    (void)state;
    struct expected expected = {.committed = {7, 8, 7}, .committed_rows = 3};
    create_file(0, SFS_UNLIMITED, 1, COLUMNS);
    assert_int_equal(sfs_extend(dataset, (uint64_t[]){2, COLUMNS}), 0);
    assert_int_equal(write_row(0, 7), 0);
    assert_int_equal(sfs_flush(file), 0);
    assert_int_equal(write_row(1, 8), 0);
    alarm(300);
    pthread_t thread = begin_flush(&hold_encoding);
    assert_int_equal(sfs_extend(dataset, (uint64_t[]){3, COLUMNS}), 0);
    write_row_as(0, 2);
    sem_post(&released);
    join(thread);
    alarm(0);
    check_committed(&expected);
    close_file();
}

static size_t n_dirty(void)
{
    pthread_mutex_lock(&file->cache->lock);
    size_t n = file->cache->n_dirty;
    pthread_mutex_unlock(&file->cache->lock);
    return n;
}

static void *add_a_row(void *rows)
{
    uint64_t dims[] = {*(const uint64_t *)rows + 1, COLUMNS};
    return (void *)(intptr_t)sfs_extend(dataset, dims);
}

/* What reaches over an edge is stored without filters: by the dims that are committed with it. */
static void a_commit_while_an_edge_moves_has_chunks_as_its_dims_say(void **state)
{
    (void)state;
    uint64_t rows = 7;
    struct sfs_options options = {.replace = true};
    pthread_t extends, flushes;
    assert_int_equal(sfs_create(PATH, &options, &file), 0);
    has_unfiltered_edges = true;
    dataset = make_dataset("/x", rows, SFS_UNLIMITED, 8, COLUMNS);
    has_unfiltered_edges = false;
    for (uint64_t i = 0; i < rows; i++)
        assert_int_equal(write_row(i, (uint16_t)(i + 1)), 0);
    assert_int_equal(sfs_flush(file), 0);

    alarm(300);
    start_still(&extends, add_a_row, &rows, &hold_change);
    atomic_store(&waiting, 0);
    atomic_store(&watched, &file->flushing.ended_one);
    start_thread(&flushes, flush, NULL);
    while (n_dirty() > 0 && atomic_load(&waiting) == 0)
        usleep(1000);
    sem_post(&released);
    join(extends);
    join(flushes);
    alarm(0);
    atomic_store(&watched, NULL);
    close_file();
    assert_int_equal(sfs_open(PATH, NULL, &file), 0);
    dataset = open_dataset(file, "/x");
    for (uint64_t i = 0; i < rows; i++)
        assert_int_equal(read_row(dataset, i), i + 1);
    close_file();
}

static void make_dense_file(unsigned n_others, hsize_t chunk_rows)
{
    const hsize_t dims[] = {1, COLUMNS}, most[] = {H5S_UNLIMITED, COLUMNS};
    const hsize_t chunk_dims[] = {chunk_rows, COLUMNS};
    char name[16];
    hid_t made = H5Fcreate(PATH, H5F_ACC_TRUNC, H5P_DEFAULT, H5P_DEFAULT);
    hid_t chunked = H5Pcreate(H5P_DATASET_CREATE), space = H5Screate_simple(2, dims, most);
    assert_true(made >= 0 && space >= 0 && H5Pset_chunk(chunked, 2, chunk_dims) >= 0);
    for (unsigned i = 0; i <= n_others; i++) {
        snprintf(name, sizeof(name), i == 0 ? "/x" : "/%u", i);
        hid_t one =
            H5Dcreate2(made, name, H5T_NATIVE_USHORT, space, H5P_DEFAULT, chunked, H5P_DEFAULT);
        assert_true(one >= 0 && H5Dclose(one) >= 0);
    }
    assert_true(H5Sclose(space) >= 0 && H5Pclose(chunked) >= 0 && H5Fclose(made) >= 0);
}

/* Where a commit cannot have other dims, these are committed although something in them is unfinished. */
static void what_is_behind_unfinished_rows_is_committed(bool is_dense)
{
    struct expected expected = {.committed_rows = 40};
    struct sfs_options options = {.writable = true};
    struct sfs_unfinished *unfinished;
    struct sfs_slab slab = row(20);
    if (is_dense) {
        make_dense_file(0, 2);
        assert_int_equal(sfs_open(PATH, &options, &file), 0);
        dataset = open_dataset(file, "/x");
    } else {
        has_unfiltered_edges = true;
        create_file(0, SFS_UNLIMITED, 2, COLUMNS);
        has_unfiltered_edges = false;
    }
    assert_int_equal(sfs_set_extent(dataset, (uint64_t[]){40, COLUMNS}), 0);
    assert_int_equal(sfs_flush(file), 0);
    assert_int_equal(sfs_begin_unfinished(dataset, &slab, &unfinished), 0);
    assert_int_equal(write_row(20, 5), 0);
    assert_int_equal(write_row(30, 7), 0);
    assert_int_equal(sfs_flush(file), 0);
    expected.committed[20] = is_dense ? 5 : 0;
    expected.committed[30] = 7;
    check_committed(&expected);
    sfs_end_unfinished(unfinished);
    assert_int_equal(sfs_flush(file), 0);
    expected.committed[20] = 5;
    check_committed(&expected);
    close_file();
}

static void what_is_unfinished_keeps_nothing_behind_it_where_dims_cannot_be_cut(void **state)
{
    (void)state;
    what_is_behind_unfinished_rows_is_committed(false);
    what_is_behind_unfinished_rows_is_committed(true);
}

/* What was finished, stored and committed behind smaller dims does not count when the dataset grows again. */
static void what_is_unfinished_is_left_out_where_others_were_cut_off(bool is_dense, bool flushes)
{
    struct expected expected = {.committed_rows = 10};
    struct sfs_options options = {.writable = true};
    struct sfs_unfinished *unfinished;
    struct sfs_slab last = row(ROWS - 1), tenth = row(10);
    if (is_dense) {
        make_dense_file(0, 1);
        assert_int_equal(sfs_open(PATH, &options, &file), 0);
        dataset = open_dataset(file, "/x");
    } else {
        make_growing(1);
    }
    assert_int_equal(sfs_begin_unfinished(dataset, &last, &unfinished), 0);
    assert_int_equal(sfs_extend(dataset, (uint64_t[]){ROWS, COLUMNS}), 0);
    assert_int_equal(write_row(ROWS - 1, 5), 0);
    sfs_end_unfinished(unfinished);
    assert_int_equal(sfs_flush(file), 0);
    assert_int_equal(sfs_set_extent(dataset, (uint64_t[]){1, COLUMNS}), 0);
    if (flushes)
        assert_int_equal(sfs_flush(file), 0);
    assert_int_equal(sfs_begin_unfinished(dataset, &tenth, &unfinished), 0);
    assert_int_equal(sfs_extend(dataset, (uint64_t[]){11, COLUMNS}), 0);
    assert_int_equal(write_row(10, 7), 0);
    assert_int_equal(sfs_flush(file), 0);
    check_committed(&expected);
    sfs_end_unfinished(unfinished);
    assert_int_equal(sfs_flush(file), 0);
    expected.committed_rows = 11;
    expected.committed[10] = 7;
    check_committed(&expected);
    close_file();
}

static void smaller_dims_promise_less(void **state)
{
    (void)state;
    for (int i = 0; i < 4; i++)
        what_is_unfinished_is_left_out_where_others_were_cut_off(i / 2, i % 2);
}

/* More datasets are closed meanwhile than are kept that nobody uses. */
static void a_commit_keeps_what_it_will_put_back(void **state)
{
    (void)state;
    enum { OTHERS = 300 };
    struct sfs_options options = {.writable = true};
    struct sfs_unfinished *unfinished;
    struct sfs_slab slab = row(1);
    char name[16];
    uint64_t dims[2];
    make_dense_file(OTHERS, 1);
    assert_int_equal(sfs_open(PATH, &options, &file), 0);
    dataset = open_dataset(file, "/x");
    assert_int_equal(sfs_begin_unfinished(dataset, &slab, &unfinished), 0);
    assert_int_equal(sfs_extend(dataset, (uint64_t[]){7, COLUMNS}), 0);

    alarm(300);
    pthread_t thread = begin_flush(&hold);
    sfs_end_unfinished(unfinished);
    sfs_dataset_close(dataset);
    for (unsigned i = 1; i <= OTHERS; i++) {
        snprintf(name, sizeof(name), "/%u", i);
        sfs_dataset_close(open_dataset(file, name));
    }
    dataset = open_dataset(file, "/x");
    sfs_dataset_dims(dataset, dims);
    sem_post(&released);
    join(thread);
    alarm(0);
    assert_int_equal(dims[0], 7);
    close_file();
}

/* libhdf5 has fewer rows then, and takes no chunks beyond them. */
static void dims_that_could_not_be_put_back_are_before_chunks_are_stored(void **state)
{
    (void)state;
    struct expected expected = {.committed_rows = 1};
    struct sfs_options options = {.writable = true};
    struct sfs_unfinished *unfinished[2];
    make_dense_file(0, 1);
    assert_int_equal(sfs_open(PATH, &options, &file), 0);
    dataset = open_dataset(file, "/x");
    assert_int_equal(sfs_extend(dataset, (uint64_t[]){3, COLUMNS}), 0);
    for (uint64_t i = 0; i < 2; i++) {
        struct sfs_slab slab = row(i + 1);
        assert_int_equal(sfs_begin_unfinished(dataset, &slab, &unfinished[i]), 0);
        expected.committed[i + 1] = (uint16_t)(7 + i);
        assert_int_equal(write_row(i + 1, expected.committed[i + 1]), 0);
    }
    refused_rows = 3;
    assert_int_equal(sfs_flush(file), 0);
    assert_int_equal(refused_rows, 0);
    check_committed(&expected);
    for (int i = 0; i < 2; i++)
        sfs_end_unfinished(unfinished[i]);
    assert_int_equal(sfs_flush(file), 0);
    expected.committed_rows = 3;
    check_committed(&expected);
    close_file();
}

/* ---- What cannot be encoded ---- */

/* In the file it has what was cut off. */
static void smaller_dims_are_not_committed_without_the_chunk_that_is_cut(void **state)
{
    (void)state;
    struct expected expected = {.committed_rows = 8};
    struct sfs_options options = {.writable = true};
    log_quietly();
    create_file(8, SFS_UNLIMITED, 4, COLUMNS);
    for (uint64_t i = 0; i < 8; i++) {
        expected.committed[i] = (uint16_t)(i + 1);
        assert_int_equal(write_row(i, expected.committed[i]), 0);
    }
    assert_int_equal(sfs_flush(file), 0);
    atomic_store(&encode_error, -ENOMEM);
    assert_int_equal(sfs_set_extent(dataset, (uint64_t[]){2, COLUMNS}), 0);
    assert_int_equal(sfs_flush(file), -ENOMEM);
    check_committed(&expected);
    atomic_store(&encode_error, 0);
    assert_int_equal(sfs_flush(file), 0);
    expected.committed_rows = 2;
    check_committed(&expected);

    atomic_store(&encode_error, -ENOMEM); /* of a chunk that was not cut since */
    assert_int_equal(write_row(0, 9), 0);
    assert_int_equal(sfs_extend(dataset, (uint64_t[]){3, COLUMNS}), 0);
    assert_int_equal(sfs_flush(file), -ENOMEM);
    expected.committed_rows = 3;
    expected.committed[2] = 0;
    check_committed(&expected);
    atomic_store(&encode_error, 0);
    close_file();
    assert_int_equal(sfs_open(PATH, &options, &file), 0);
    dataset = open_dataset(file, "/x");
    assert_int_equal(sfs_extend(dataset, (uint64_t[]){8, COLUMNS}), 0);
    assert_int_equal(read_row(dataset, 0), 9);
    assert_int_equal(read_row(dataset, 1), 2);
    for (uint64_t i = 2; i < 8; i++)
        assert_int_equal(read_row(dataset, i), 0);

    atomic_store(&encode_error,
                 -ENOMEM); /* of a chunk that was not cut, while others go as a whole */
    assert_int_equal(write_row(0, 10), 0);
    assert_int_equal(sfs_set_extent(dataset, (uint64_t[]){4, COLUMNS}), 0);
    assert_int_equal(sfs_flush(file), -ENOMEM);
    expected.committed_rows = 4;
    expected.committed[0] = 9;
    expected.committed[3] = 0;
    check_committed(&expected);
    atomic_store(&encode_error, 0);
    close_file();
}

/* ---- What gets no place ---- */

static uint64_t bytes_of_file(void)
{
    struct stat st;
    assert_int_equal(stat(PATH, &st), 0);
    return (uint64_t)st.st_size;
}

static void what_libhdf5_does_not_place_takes_no_space(void **state)
{
    (void)state;
    enum { MANY_ROWS = 1 << 14, FAILURES = 10 };
    const hsize_t dims[] = {MANY_ROWS, COLUMNS};
    struct sfs_options options = {.writable = true};
    hid_t made = H5Fcreate(PATH, H5F_ACC_TRUNC, H5P_DEFAULT, H5P_DEFAULT);
    hid_t space = H5Screate_simple(2, dims, NULL);
    hid_t late =
        H5Dcreate2(made, "x", H5T_NATIVE_USHORT, space, H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT);
    assert_true(late >= 0 && H5Dclose(late) >= 0 && H5Sclose(space) >= 0 && H5Fclose(made) >= 0);
    log_quietly();
    assert_int_equal(sfs_open(PATH, &options, &file), 0);
    dataset = open_dataset(file, "/x");
    place_error = -EIO;
    for (int i = 0; i < FAILURES; i++)
        assert_true(write_row(0, 7) == -EIO || sfs_flush(file) == -EIO);
    place_error = 0;
    assert_int_equal(write_row(0, 7), 0);
    assert_int_equal(sfs_flush(file), 0);
    assert_int_equal(read_row(dataset, 0), 7);
    close_file();
    assert_true(bytes_of_file() < 2 * sizeof(uint16_t) * MANY_ROWS * COLUMNS);
}

TEST_MAIN(cmocka_unit_test(those_who_wait_for_a_commit_share_the_next),
          cmocka_unit_test(a_commit_keeps_what_it_will_put_back),
          cmocka_unit_test(others_read_write_and_open_while_the_disk_is_busy),
          cmocka_unit_test(a_flush_of_nothing_commits_nothing),
          cmocka_unit_test(dims_that_could_not_be_put_back_are_before_chunks_are_stored),
          cmocka_unit_test(smaller_dims_are_not_committed_without_the_chunk_that_is_cut),
          cmocka_unit_test(what_libhdf5_does_not_place_takes_no_space),
          cmocka_unit_test(what_is_unfinished_is_left_out),
          cmocka_unit_test(what_is_unfinished_is_left_out_of_a_commit_under_way),
          cmocka_unit_test(smaller_dims_promise_less),
          cmocka_unit_test(what_is_unfinished_keeps_nothing_behind_it_where_dims_cannot_be_cut),
          cmocka_unit_test(what_a_commit_leaves_out_is_stored_for_others),
          cmocka_unit_test(ready_chunks_are_within_the_dims_of_a_commit_under_way),
          cmocka_unit_test(a_commit_while_an_edge_moves_has_chunks_as_its_dims_say))
