/* A disk that is full while a dataset is written, or its dims change: the error is reported, the file keeps what
 * was flushed before, and nothing written is lost once there is room. */
#include "support.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "sparsefs/sparsefs.h"

#define PATH   "full.h5"
#define COPY   "copy.h5"
#define FRAMES 12
#define SIDE   48

static uint16_t before[FRAMES][SIDE][SIDE], after[FRAMES][SIDE][SIDE], now[FRAMES][SIDE][SIDE];

/* Files may have so many bytes; RLIM_INFINITY: any number. */
static void limit_files(rlim_t bytes)
{
    struct rlimit limit;
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &limit), 0);
    limit.rlim_cur = bytes;
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &limit), 0);
}

static bool is_full(int error)
{
    return error == -EFBIG || error == -ENOSPC;
}

static int write_frame(struct sfs_dataset *dataset, uint64_t frame, const uint16_t *values)
{
    struct sfs_slab slab = {.rank = 3, .start = {frame}, .count = {1, SIDE, SIDE}};
    return sfs_write(dataset, &slab, values);
}

static struct sfs_file *create(size_t cache_size, struct sfs_dataset **dataset)
{
    struct sfs_options options = {.replace = true, .cache_size = cache_size};
    struct sfs_dataset_create create = {.rank = 3,
                                        .dims = {FRAMES, SIDE, SIDE},
                                        .max_dims = {SFS_UNLIMITED, SIDE, SIDE},
                                        .chunk_dims = {1, SIDE, SIDE}};
    struct sfs_file *file = NULL;
    void *type = NULL;
    assert_int_equal(sfs_type_encode("<u2", &type, &create.type.n), 0);
    create.type.bytes = type;
    assert_int_equal(sfs_create(PATH, &options, &file), 0);
    assert_int_equal(sfs_dataset_create(file, "/x", &create, dataset), 0);
    free(type);
    return file;
}

static void check_frames(struct sfs_dataset *dataset, const void *expected)
{
    static uint16_t values[FRAMES][SIDE][SIDE];
    struct sfs_slab all = {.rank = 3, .count = {FRAMES, SIDE, SIDE}};
    assert_int_equal(sfs_read(dataset, &all, 0, values, sizeof(values)), 0);
    assert_memory_equal(values, expected, sizeof(values));
}

static void check_file(const char *path, const void *expected)
{
    struct sfs_file *file = NULL;
    struct sfs_dataset *dataset = NULL;
    uint64_t address;
    assert_int_equal(sfs_open(path, NULL, &file), 0);
    assert_int_equal(sfs_find(file, sfs_root(file), "/x", &address), 0);
    assert_int_equal(sfs_dataset_open(file, address, "/x", &dataset), 0);
    check_frames(dataset, expected);
    sfs_dataset_close(dataset);
    assert_int_equal(sfs_close(file), 0);
}

static void copy_file(const char *from, const char *to)
{
    char buffer[65536];
    FILE *in = fopen(from, "rb"), *out = fopen(to, "wb");
    assert_non_null(in);
    assert_non_null(out);
    for (size_t n; (n = fread(buffer, 1, sizeof(buffer), in)) > 0;)
        assert_int_equal(fwrite(buffer, 1, n, out), n);
    fclose(in);
    assert_int_equal(fclose(out), 0);
}

/* What a process that dies now leaves: a copy, as this one has the lock. A journal belongs to its
 * file by its place, so that only its absence can be copied. */
static bool check_what_a_crash_would_leave(const void *expected)
{
    if (access(PATH ".journal", F_OK) == 0)
        return false;
    copy_file(PATH, COPY);
    check_file(COPY, expected);
    return true;
}

/* The disk has room for so many bytes more than the file has; returns whether that was enough. */
static bool fill_disk(size_t cache_size, rlim_t room, int *checked)
{
    struct sfs_dataset *dataset = NULL;
    struct sfs_file *file = create(cache_size, &dataset);
    struct stat st;
    for (uint64_t i = 0; i < FRAMES; i++)
        assert_int_equal(write_frame(dataset, i, before[i][0]), 0);
    assert_int_equal(sfs_flush(file), 0);
    assert_int_equal(stat(PATH, &st), 0);

    memcpy(now, before, sizeof(now));
    limit_files((rlim_t)st.st_size + room);
    for (uint64_t i = 0; i < FRAMES; i++) {
        int refused = write_frame(dataset, i, after[i][0]); /* if the cache has no room either */
        assert_true(refused == 0 || is_full(refused));
        if (!refused)
            memcpy(now[i], after[i], sizeof(now[i]));
    }
    int error = sfs_flush(file);
    int again = error ? sfs_flush(file) : 0;
    limit_files(RLIM_INFINITY);
    assert_true(error == 0 || is_full(error));
    assert_int_equal(again, error);
    check_frames(dataset, now);
    if (error)
        *checked += check_what_a_crash_would_leave(before);

    assert_int_equal(sfs_flush(file), 0);
    check_frames(dataset, now);
    for (uint64_t i = 0; i < FRAMES; i++)
        assert_int_equal(write_frame(dataset, i, after[i][0]), 0);
    sfs_dataset_close(dataset);
    assert_int_equal(sfs_close(file), 0);
    check_file(PATH, after);
    return error == 0;
}

static void a_full_disk_loses_nothing(void **state)
{
    (void)state;
    static const size_t cache_sizes[] = {0, 30000};
    log_quietly();
    signal(SIGXFSZ, SIG_IGN);
    random_fill(before, sizeof(before));
    random_fill(after, sizeof(after));
    for (size_t i = 0; i < COUNT(cache_sizes); i++) {
        int checked = 0;
        for (rlim_t room = 0; !fill_disk(cache_sizes[i], room, &checked);)
            room += 1 + room / 2;
        assert_true(checked > 10);
    }
}

/* ---- Smaller dims ---- */

#define CHUNKS 40
#define LENGTH (1 << 14) /* elements of a chunk, larger than what is left free in the file */
#define LONG   (CHUNKS * LENGTH - 100) /* the last chunk reaches over the edge */
#define SHORT  (3 * LENGTH + 1000)

static struct sfs_file *create_long(bool edges, struct sfs_dataset **dataset)
{
    static const unsigned two = 2;
    static const struct sfs_filter shuffle = {.id = 2, .n_values = 1, .values = &two};
    struct sfs_options options = {.replace = true};
    struct sfs_dataset_create create = {.rank = 1,
                                        .dims = {LONG},
                                        .max_dims = {SFS_UNLIMITED},
                                        .chunk_dims = {LENGTH},
                                        .n_filters = {0, 1},
                                        .filters = {NULL, &shuffle},
                                        .unfiltered_edges = edges};
    struct sfs_file *file = NULL;
    void *type = NULL;
    assert_int_equal(sfs_type_encode("<u2", &type, &create.type.n), 0);
    create.type.bytes = type;
    assert_int_equal(sfs_create(PATH, &options, &file), 0);
    assert_int_equal(sfs_dataset_create(file, "/x", &create, dataset), 0);
    free(type);
    return file;
}

static void check_long(struct sfs_dataset *dataset, uint64_t n, const uint16_t *expected)
{
    struct sfs_slab all = {.rank = 1, .count = {n}};
    uint16_t *values = allocate(n * sizeof(*values));
    assert_int_equal(sfs_read(dataset, &all, 0, values, n * sizeof(*values)), 0);
    assert_memory_equal(values, expected, n * sizeof(*values));
    free(values);
}

/* The chunk that is cut needs new space, those behind it none. */
static void shrink_on_full_disk(bool edges)
{
    const uint64_t many = LONG, few = SHORT;
    struct sfs_slab all = {.rank = 1, .count = {LONG}};
    uint16_t *values = allocate(LONG * sizeof(*values));
    struct sfs_dataset *dataset = NULL;
    struct sfs_file *file = create_long(edges, &dataset);
    struct stat st;
    uint64_t address;
    for (size_t i = 0; i < LONG; i++)
        values[i] = (uint16_t)(1 + i % 60000);
    assert_int_equal(sfs_write(dataset, &all, values), 0);
    assert_int_equal(sfs_flush(file), 0);
    assert_int_equal(sfs_settle(file), 0);
    assert_int_equal(stat(PATH, &st), 0);

    limit_files((rlim_t)st.st_size);
    assert_int_equal(sfs_set_extent(dataset, &few), 0);
    check_long(dataset, SHORT, values);
    assert_true(is_full(sfs_flush(file)));
    limit_files(RLIM_INFINITY);
    assert_int_equal(sfs_flush(file), 0);
    sfs_dataset_close(dataset);
    assert_int_equal(sfs_close(file), 0);

    assert_int_equal(sfs_open(PATH, &(struct sfs_options){.writable = true}, &file), 0);
    assert_int_equal(sfs_find(file, sfs_root(file), "/x", &address), 0);
    assert_int_equal(sfs_dataset_open(file, address, "/x", &dataset), 0);
    check_long(dataset, SHORT, values);
    assert_int_equal(sfs_set_extent(dataset, &many), 0);
    memset(values + SHORT, 0, (LONG - SHORT) * sizeof(*values));
    check_long(dataset, LONG, values);
    sfs_dataset_close(dataset);
    assert_int_equal(sfs_close(file), 0);
    free(values);
}

static void what_is_cut_off_on_a_full_disk_does_not_come_back(void **state)
{
    (void)state;
    log_quietly();
    signal(SIGXFSZ, SIG_IGN);
    shrink_on_full_disk(false);
    shrink_on_full_disk(true);
}

/* ---- A dense dataset ---- */

#define ROWS      4
#define ROW_BYTES 100000 /* those of a chunk, larger than what is left free in the file */

static int write_bytes(struct sfs_dataset *dataset, uint64_t row, int value)
{
    struct sfs_slab slab = {.rank = 2, .start = {row}, .count = {1, ROW_BYTES}};
    static unsigned char bytes[ROW_BYTES];
    memset(bytes, value, sizeof(bytes));
    return sfs_write(dataset, &slab, bytes);
}

static void check_bytes(struct sfs_dataset *dataset, uint64_t row, int value)
{
    struct sfs_slab slab = {.rank = 2, .start = {row}, .count = {1, ROW_BYTES}};
    static unsigned char bytes[ROW_BYTES];
    assert_int_equal(sfs_read(dataset, &slab, 0, bytes, sizeof(bytes)), 0);
    for (size_t i = 0; i < sizeof(bytes); i++)
        assert_int_equal(bytes[i], value);
}

static int write_behind(void *dataset)
{
    assert_int_equal(write_bytes(dataset, ROWS, 9), 0);
    return -ENOSPC;
}

static struct sfs_file *create_dense(struct sfs_dataset **dataset)
{
    struct sfs_options options = {.replace = true};
    struct sfs_dataset_create create = {.rank = 2,
                                        .dims = {ROWS, ROW_BYTES},
                                        .max_dims = {SFS_UNLIMITED, ROW_BYTES},
                                        .chunk_dims = {1, ROW_BYTES},
                                        .is_dense = true};
    struct sfs_file *file = NULL;
    void *type = NULL;
    struct stat st;
    assert_int_equal(sfs_type_encode("|u1", &type, &create.type.n), 0);
    create.type.bytes = type;
    assert_int_equal(sfs_create(PATH, &options, &file), 0);
    assert_int_equal(sfs_dataset_create(file, "/x", &create, dataset), 0);
    free(type);
    for (uint64_t i = 0; i < ROWS; i++)
        assert_int_equal(write_bytes(*dataset, i, (int)i), 0);
    assert_int_equal(sfs_flush(file), 0);
    assert_int_equal(sfs_settle(file), 0);
    assert_int_equal(stat(PATH, &st), 0);
    limit_files((rlim_t)st.st_size);
    return file;
}

static void dims_of_dense_data_go_back_on_a_full_disk(void **state)
{
    (void)state;
    const uint64_t larger[] = {ROWS + 1, ROW_BYTES}, smaller[] = {ROWS, ROW_BYTES};
    struct sfs_dataset *dataset = NULL;
    log_quietly();
    signal(SIGXFSZ, SIG_IGN);
    struct sfs_file *file = create_dense(&dataset);
    for (int undoes = 1; undoes >= 0; undoes--) {
        if (undoes) {
            assert_int_equal(sfs_extend_with(dataset, larger, write_behind, dataset), -ENOSPC);
        } else {
            assert_int_equal(sfs_extend(dataset, larger), 0);
            assert_int_equal(write_bytes(dataset, ROWS, 8), 0);
            assert_int_equal(sfs_set_extent(dataset, smaller), 0);
        }
        assert_int_equal(sfs_dataset_info(dataset)->dims[0], ROWS);
        assert_int_equal(sfs_extend(dataset, larger), 0);
        check_bytes(dataset, ROWS, 0);
        assert_int_equal(sfs_set_extent(dataset, smaller), 0);
    }
    limit_files(RLIM_INFINITY);
    for (uint64_t i = 0; i < ROWS; i++)
        check_bytes(dataset, i, (int)i);
    sfs_dataset_close(dataset);
    assert_int_equal(sfs_close(file), 0);
}

TEST_MAIN(cmocka_unit_test(a_full_disk_loses_nothing),
          cmocka_unit_test(what_is_cut_off_on_a_full_disk_does_not_come_back),
          cmocka_unit_test(dims_of_dense_data_go_back_on_a_full_disk))
