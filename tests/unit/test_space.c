/* Free space of whole files: what is rewritten over and over, chunks of changing sizes, libhdf5's
 * objects, and what closing a file forgets. */
#include "support.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "sparsefs/sparsefs.h"

#define PATH    "space.h5"
#define ROWS    100
#define COLUMNS 1000
#define COMMITS 4000
#define PHASE   800 /* commits */

static struct sfs_file *file;
static struct sfs_dataset *dataset;

static void make_file(void)
{
    struct sfs_options options = {.replace = true};
    struct sfs_dataset_create create = {.rank = 2,
                                        .dims = {ROWS, COLUMNS},
                                        .max_dims = {SFS_UNLIMITED, COLUMNS},
                                        .chunk_dims = {1, COLUMNS}};
    void *type;
    assert_int_equal(sfs_create(PATH, &options, &file), 0);
    assert_int_equal(sfs_type_encode("uint32", &type, &create.type.n), 0);
    create.type.bytes = type;
    assert_int_equal(sfs_dataset_create(file, "/x", &create, &dataset), 0);
    create.is_dense = true;
    struct sfs_dataset *dense;
    assert_int_equal(sfs_dataset_create(file, "/dense", &create, &dense), 0);
    sfs_dataset_close(dense);
    free(type);
}

static void open_file(void)
{
    uint64_t address;
    assert_int_equal(sfs_open(PATH, &(struct sfs_options){.writable = true}, &file), 0);
    assert_int_equal(sfs_find(file, sfs_root(file), "/x", &address), 0);
    assert_int_equal(sfs_dataset_open(file, address, "/x", &dataset), 0);
}

static void close_file(void)
{
    sfs_dataset_close(dataset);
    assert_int_equal(sfs_close(file), 0);
}

/* Some of a row, and nothing else of it: its chunk gets another size. */
static void rewrite_row(uint64_t row, uint64_t most)
{
    uint32_t values[COLUMNS];
    struct sfs_slab all = {.rank = 2, .start = {row}, .count = {1, COLUMNS}};
    struct sfs_slab some = all;
    some.count[1] = 1 + random_below(most);
    random_fill(values, sizeof(values));
    assert_int_equal(sfs_erase(dataset, &all), 0);
    assert_int_equal(sfs_write(dataset, &some, values), 0);
}

static uint64_t file_bytes(void)
{
    struct stat st;
    assert_int_equal(stat(PATH, &st), 0);
    return (uint64_t)st.st_size;
}

static int add_chunk(void *context, const struct sfs_chunk_info *info)
{
    *(uint64_t *)context += info->size;
    return 0;
}

/* Chunks, and what the file had before it had any: headers. */
static uint64_t live_bytes(uint64_t headers)
{
    uint64_t bytes = headers;
    assert_int_equal(sfs_chunk_iterate(dataset, add_chunk, &bytes), 0);
    return bytes;
}

/* After thousands of commits, each of one or a few rows, in phases of larger and smaller chunks.
 * What is at the end of the file stays there until it is written again: a phase counts from when
 * every row was written in it. */
static void rewriting_for_thousands_of_commits_keeps_the_file_small(void **state)
{
    (void)state;
    double sum = 0, worst = 0;
    int n = 0, left = ROWS;
    bool is_written[ROWS] = {false};
    make_file();
    assert_int_equal(sfs_flush(file), 0);
    uint64_t headers = file_bytes();
    for (int i = 0; i < COMMITS; i++) {
        uint64_t most = i / PHASE % 2 ? COLUMNS / 4 : COLUMNS;
        if (i % PHASE == 0) {
            memset(is_written, 0, sizeof(is_written));
            left = ROWS;
        }
        for (uint64_t k = random_below(4) + 1; k > 0; k--) {
            uint64_t row = random_below(ROWS);
            rewrite_row(row, most);
            left -= !is_written[row];
            is_written[row] = true;
        }
        assert_int_equal(sfs_flush(file), 0);
        if (left > 0)
            continue;
        double ratio = (double)file_bytes() / (double)live_bytes(headers);
        sum += ratio;
        n++;
        worst = ratio > worst ? ratio : worst;
    }
    printf("%.2f times what is live, at most %.2f, after %d commits\n", sum / n, worst, n);
    assert_true(n > COMMITS / 4 && worst < 2);
    close_file();
}

static void write_all_rows(void)
{
    for (uint64_t row = 0; row < ROWS; row++)
        rewrite_row(row, 1);
    assert_int_equal(sfs_flush(file), 0);
}

/* What is at the end goes, the rest is used again. */
static void erasing_all_gives_the_space_back(void **state)
{
    (void)state;
    make_file();
    write_all_rows();
    uint64_t full = file_bytes();
    struct sfs_slab all = {.rank = 2, .count = {ROWS, COLUMNS}};
    for (int i = 0; i < 100; i++) {
        assert_int_equal(sfs_erase(dataset, &all), 0);
        assert_int_equal(sfs_flush(file), 0);
        assert_true(file_bytes() < full);
        write_all_rows();
        assert_true(file_bytes() <= full);
    }
    close_file();
}

/* What libhdf5 has freed and keeps for itself is not lost with every opening. */
static void opening_and_closing_does_not_make_the_file_grow(void **state)
{
    (void)state;
    make_file();
    close_file();
    open_file();
    close_file();
    uint64_t before = file_bytes();
    for (int i = 0; i < 1000; i++) {
        open_file();
        close_file();
    }
    assert_int_equal(file_bytes(), before);
}

/* The space of what is rewritten is forgotten when the file is closed: it grows by that, and by no
 * more. */
static void writing_and_closing_loses_only_what_was_rewritten(void **state)
{
    (void)state;
    make_file();
    for (uint64_t row = 0; row < ROWS; row++)
        rewrite_row(row, 1);
    close_file();
    uint64_t before = file_bytes();
    for (int i = 0; i < 1000; i++) {
        open_file();
        rewrite_row((uint64_t)i % ROWS, 1);
        close_file();
    }
    double lost = (double)(file_bytes() - before) / 1000;
    printf("%.1f bytes lost with every session\n", lost);
    assert_true(lost < 400);
}

TEST_MAIN(cmocka_unit_test(rewriting_for_thousands_of_commits_keeps_the_file_small),
          cmocka_unit_test(erasing_all_gives_the_space_back),
          cmocka_unit_test(opening_and_closing_does_not_make_the_file_grow),
          cmocka_unit_test(writing_and_closing_loses_only_what_was_rewritten))
