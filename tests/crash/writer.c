/* The writer that kill.py kills, and what looks at the file afterwards.
 *
 *   writer write FILE THREADS         appends rows to a dataset per thread, for ever; prints
 *                                     "THREAD ROWS" when rows are flushed
 *   writer check FILE ROWS...         whether those are there: prints how many there are */
#include <errno.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "sparsefs/sparsefs.h"

#define COLUMNS      48
#define MOST_THREADS 16
#define DENSE_ROWS   64
#define GROUP_EVERY  7 /* rows */

static struct sfs_file *file;

static void must(int error, const char *what)
{
    if (!error)
        return;
    fprintf(stderr, "%s: %s\n", what, strerror(-error));
    exit(1);
}

static uint32_t element(uint64_t thread, uint64_t row, uint64_t column)
{
    return (uint32_t)(thread << 28 | row << 8 | column);
}

static void name_set(uint64_t thread, const char *what, char *path)
{
    snprintf(path, 64, "/t%u/%s", (unsigned)thread, what);
}

static int open_set(const char *path, struct sfs_dataset **dataset)
{
    uint64_t address;
    int error = sfs_find(file, sfs_root(file), path, &address);
    return error ? error : sfs_dataset_open(file, address, path, dataset);
}

static struct sfs_slab slab_of(uint64_t row)
{
    return (struct sfs_slab){.rank = 2, .start = {row}, .count = {1, COLUMNS}};
}

static struct sfs_dataset *open_or_create(uint64_t thread, const char *what, bool dense)
{
    struct sfs_dataset_create create = {.rank = 2,
                                        .dims = {dense ? DENSE_ROWS : 0, COLUMNS},
                                        .max_dims = {SFS_UNLIMITED, COLUMNS},
                                        .chunk_dims = {dense ? 8 : 1, COLUMNS},
                                        .is_dense = dense};
    struct sfs_dataset *dataset;
    char path[64];
    void *type;
    name_set(thread, what, path);
    int error = open_set(path, &dataset);
    if (error == -ENOENT) {
        must(sfs_type_encode("uint32", &type, &create.type.n), "type");
        create.type.bytes = type;
        error = sfs_dataset_create(file, path, &create, &dataset);
        free(type);
    }
    must(error, path);
    return dataset;
}

/* ---- Writing ---- */

static void put_row(struct sfs_dataset *dataset, uint64_t thread, uint64_t at, uint64_t row)
{
    uint32_t values[COLUMNS];
    struct sfs_slab slab = slab_of(at);
    for (uint64_t i = 0; i < COLUMNS; i++)
        values[i] = element(thread, row, i);
    must(sfs_write(dataset, &slab, values), "write");
}

static void *append(void *context)
{
    uint64_t thread = (uintptr_t)context;
    struct sfs_dataset *rows = open_or_create(thread, "rows", false);
    struct sfs_dataset *last = open_or_create(thread, "last", true);
    uint64_t row = sfs_dataset_info(rows)->dims[0];
    for (row -= row > 0;; row++) { /* another thread may have flushed it before it was written */
        char line[64], path[64];
        must(sfs_set_extent(rows, (const uint64_t[]){row + 1, COLUMNS}), "extend");
        put_row(rows, thread, row, row);
        put_row(last, thread, row % DENSE_ROWS, row);
        if (row % GROUP_EVERY == 0) {
            snprintf(path, sizeof(path), "/t%u/g%u", (unsigned)thread, (unsigned)row);
            uint64_t group;
            if (sfs_find(file, sfs_root(file), path, &group) == -ENOENT)
                must(sfs_group_create(file, path), path);
        }
        must(sfs_flush(file), "flush");
        int n = snprintf(line, sizeof(line), "%u %u\n", (unsigned)thread, (unsigned)row + 1);
        if (write(STDOUT_FILENO, line, (size_t)n) != n)
            exit(1);
    }
    return NULL;
}

static void write_all(const char *path, unsigned threads)
{
    pthread_t thread[MOST_THREADS];
    struct sfs_options options = {.writable = true, .cache_size = 64 << 10};
    bool exists = access(path, F_OK) == 0;
    must((exists ? sfs_open : sfs_create)(path, &options, &file), path);
    for (uintptr_t i = 0; i < threads; i++)
        if (pthread_create(&thread[i], NULL, append, (void *)i))
            exit(1);
    pthread_join(thread[0], NULL);
}

/* ---- Checking ---- */

static void expect_row(struct sfs_dataset *dataset, uint64_t thread, uint64_t at, uint64_t row)
{
    uint32_t values[COLUMNS];
    struct sfs_slab slab = slab_of(at);
    must(sfs_read(dataset, &slab, 0, values, sizeof(values)), "read");
    for (uint64_t i = 0; i < COLUMNS; i++)
        if (values[i] != element(thread, row, i)) {
            fprintf(stderr, "thread %u row %u column %u: %#x\n", (unsigned)thread, (unsigned)row,
                    (unsigned)i, values[i]);
            exit(1);
        }
}

/* Rows that were not acknowledged may be there, the last of them undefined, and in `last` one more.
 */
static void check_thread(uint64_t thread, uint64_t rows)
{
    struct sfs_dataset *dataset;
    char path[64];
    name_set(thread, "rows", path);
    int error = open_set(path, &dataset);
    if (error == -ENOENT && rows == 0)
        return;
    must(error, path);
    uint64_t n = sfs_dataset_info(dataset)->dims[0];
    if (n < rows) {
        fprintf(stderr, "thread %u: %u rows, %u were flushed\n", (unsigned)thread, (unsigned)n,
                (unsigned)rows);
        exit(1);
    }
    for (uint64_t row = 0; row + 1 < n || row < rows; row++)
        expect_row(dataset, thread, row, row);
    sfs_dataset_close(dataset);
    name_set(thread, "last", path);
    error = open_set(path, &dataset);
    if (rows > 0)
        must(error, path);
    for (uint64_t row = n >= DENSE_ROWS ? n - DENSE_ROWS + 1 : 0; row < rows; row++)
        expect_row(dataset, thread, row % DENSE_ROWS, row);
    if (!error)
        sfs_dataset_close(dataset);
    for (uint64_t row = 0; row < rows; row += GROUP_EVERY) {
        uint64_t address;
        snprintf(path, sizeof(path), "/t%u/g%u", (unsigned)thread, (unsigned)row);
        must(sfs_find(file, sfs_root(file), path, &address), path);
    }
    printf("%u ", (unsigned)n);
}

int main(int argc, char **argv)
{
    if (argc == 4 && !strcmp(argv[1], "write") && strtoul(argv[3], NULL, 10) <= MOST_THREADS) {
        write_all(argv[2], (unsigned)strtoul(argv[3], NULL, 10));
        return 0;
    }
    if (argc < 4 || strcmp(argv[1], "check") != 0)
        return 2;
    must(sfs_open(argv[2], NULL, &file), argv[2]);
    for (int i = 3; i < argc; i++)
        check_thread((uint64_t)i - 3, strtoul(argv[i], NULL, 10));
    sfs_discard(file);
    putchar('\n');
    return 0;
}
