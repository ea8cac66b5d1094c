/* Free space of whole files: what is rewritten over and over, chunks of changing sizes, libhdf5's
 * objects, and what closing a file forgets. */
#include "support.h"

#include <fcntl.h>
#include <limits.h>
#include <linux/limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/xattr.h>
#include <unistd.h>

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

/* ---- From one opening to the next ---- */

#define NOTE "user.sparsefs.free"

/* The note of free space; 0 bytes: there is none. */
static size_t read_note(void *note)
{
    ssize_t n = getxattr(PATH, NOTE, note, XATTR_SIZE_MAX);
    return n > 0 ? (size_t)n : 0;
}

static void write_note(const void *note, size_t n)
{
    assert_int_equal(setxattr(PATH, NOTE, note, n, 0), 0);
}

/* Where files have no attributes, what is rewritten is lost when they are closed. */
static bool has_attributes(void)
{
    bool has = setxattr(PATH, "user.sparsefs.test", "", 0, 0) == 0;
    if (has)
        assert_int_equal(removexattr(PATH, "user.sparsefs.test"), 0);
    else
        printf("there are no extended attributes here\n");
    return has;
}

/* A file in which something is free. */
static void make_spare(void)
{
    make_file();
    for (uint64_t row = 0; row < ROWS; row++)
        rewrite_row(row, COLUMNS);
    assert_int_equal(sfs_flush(file), 0);
    for (uint64_t row = 0; row < ROWS - 1; row++)
        rewrite_row(row, 1);
    close_file();
}

static void rewrite_one(void)
{
    open_file();
    rewrite_row(random_below(ROWS), 1);
    close_file();
}

/* All elements, as they are read. */
static void read_all(uint32_t *values)
{
    struct sfs_slab all = {.rank = 2, .count = {ROWS, COLUMNS}};
    open_file();
    assert_int_equal(sfs_read(dataset, &all, 0, values, ROWS * COLUMNS * sizeof(*values)), 0);
    close_file();
}

static void rewriting_in_many_sessions_does_not_make_the_file_grow(void **state)
{
    (void)state;
    make_spare();
    uint64_t before = file_bytes();
    for (int i = 0; i < 1000; i++)
        rewrite_one();
    if (has_attributes())
        assert_in_range(file_bytes(), 0, before);
    else
        assert_in_range(file_bytes(), before, before + 1000 * 400);
}

/* While it is written there is none: who dies leaves none behind. */
static void the_note_is_there_while_nobody_writes(void **state)
{
    (void)state;
    static char note[XATTR_SIZE_MAX];
    make_spare();
    if (!has_attributes())
        return;
    assert_true(read_note(note) > 0);
    open_file();
    assert_int_equal(read_note(note), 0);
    rewrite_row(0, 1);
    assert_int_equal(sfs_flush(file), 0);
    assert_int_equal(read_note(note), 0);
    close_file();
    assert_true(read_note(note) > 0);
    assert_int_equal(sfs_open(PATH, NULL, &file), 0);
    assert_true(read_note(note) > 0);
    assert_int_equal(sfs_close(file), 0);
    struct sfs_options shared = {.writable = true, .share = true};
    assert_int_equal(sfs_open(PATH, &shared, &file), 0);
    assert_true(read_note(note) > 0);
    assert_int_equal(sfs_close(file), 0);
    assert_true(read_note(note) > 0);
}

/* Changes byte i of a note, or of the file without another time of change, or makes it another file
 * of the same bytes. */
enum damage { NOTE_BYTE, NOTE_LENGTH, FILE_TIME, FILE_BYTE, FILE_LONGER, COPY };

static void make_damage(enum damage damage, const char *note, size_t n)
{
    char changed[XATTR_SIZE_MAX];
    struct stat st;
    memcpy(changed, note, n);
    assert_int_equal(stat(PATH, &st), 0);
    if (damage == NOTE_BYTE) {
        changed[random_below(56)] ^= (char)(1 << random_below(8));
        write_note(changed, n);
    } else if (damage == NOTE_LENGTH) {
        write_note(changed, random_below(56 + 1));
    } else if (damage == COPY) {
        assert_int_equal(system("cp " PATH " copy.h5 && mv copy.h5 " PATH), 0);
    } else if (damage != FILE_TIME) {
        int fd = open(PATH, O_RDWR);
        char byte;
        off_t at =
            damage == FILE_BYTE ? 7 : st.st_size - 1; /* the last one is followed by another */
        assert_int_equal(pread(fd, &byte, 1, at), 1);
        assert_int_equal(pwrite(fd, &byte, 1, at + (damage == FILE_LONGER)), 1);
        close(fd);
    }
    st.st_mtim.tv_nsec =
        damage == FILE_TIME ? (st.st_mtim.tv_nsec + 1) % 1000000000 : st.st_mtim.tv_nsec;
    struct timespec times[] = {st.st_atim, st.st_mtim};
    if (damage != FILE_BYTE)
        assert_int_equal(utimensat(AT_FDCWD, PATH, times, 0), 0);
    if (damage == COPY)
        write_note(note, n);
}

/* Then what is rewritten is added at the end, as if there was none. */
static void a_note_of_another_state_counts_for_nothing(void **state)
{
    (void)state;
    static char note[XATTR_SIZE_MAX];
    static uint32_t before[ROWS * COLUMNS], after[ROWS * COLUMNS];
    for (int i = 0; i < 40; i++) {
        make_spare();
        if (!has_attributes())
            return;
        read_all(before);
        size_t n = read_note(note);
        assert_true(n > 0);
        make_damage((enum damage)(i % (COPY + 1)), note, n);
        uint64_t size = file_bytes();
        open_file();
        assert_int_equal(sfs_flush(file), 0);
        rewrite_row(ROWS - 1, COLUMNS);
        struct sfs_slab others = {.rank = 2, .count = {ROWS - 1, COLUMNS}};
        assert_int_equal(
            sfs_read(dataset, &others, 0, after, (ROWS - 1) * COLUMNS * sizeof(*after)), 0);
        assert_memory_equal(before, after, (ROWS - 1) * COLUMNS * sizeof(*after));
        close_file();
        assert_true(file_bytes() > size);
    }
}

/* Whatever ranges it names: those of which some is in use it cannot name in our own words. */
static void ranges_that_cannot_be_are_refused(void **state)
{
    (void)state;
    static char note[XATTR_SIZE_MAX];
    for (int i = 0; i < 6; i++) {
        make_spare();
        if (!has_attributes())
            return;
        size_t n = read_note(note);
        uint64_t size = file_bytes(), *words = (uint64_t *)(void *)note, *range = words + 7;
        assert_true(n >= 9 * sizeof(*words));
        range[0] = i == 0 ? 0 : i == 1 ? size : range[0];
        range[1] = i == 2 ? 0 : i == 3 ? size : i == 4 ? UINT64_MAX : range[1];
        if (i == 5) { /* twice the same */
            memcpy(range + 2, range, 2 * sizeof(*range));
            n = 11 * sizeof(*words);
        }
        write_note(note, n);
        open_file();
        rewrite_row(ROWS - 1, COLUMNS);
        close_file();
        assert_true(file_bytes() > size);
    }
}

TEST_MAIN(cmocka_unit_test(rewriting_in_many_sessions_does_not_make_the_file_grow),
          cmocka_unit_test(the_note_is_there_while_nobody_writes),
          cmocka_unit_test(a_note_of_another_state_counts_for_nothing),
          cmocka_unit_test(ranges_that_cannot_be_are_refused),
          cmocka_unit_test(rewriting_for_thousands_of_commits_keeps_the_file_small),
          cmocka_unit_test(erasing_all_gives_the_space_back),
          cmocka_unit_test(opening_and_closing_does_not_make_the_file_grow))
