/* HDF5 files in memory: every rule of the table in docs/images.md. */
#include "opened.h"

#include <errno.h>
#include <fcntl.h>
#include <hdf5.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/xattr.h>
#include <unistd.h>

#include "dataset/private.h"
#include "sparsefs/sparsefs.h"
#include "store/store.h"

#define ROWS    64
#define COLUMNS 32

/* ---- Files ---- */

struct bytes {
    unsigned char *at;
    size_t n;
};

static struct bytes slurp(const char *path)
{
    struct stat st;
    assert_int_equal(stat(path, &st), 0);
    struct bytes bytes = {allocate((size_t)st.st_size), (size_t)st.st_size};
    FILE *in = fopen(path, "rb");
    assert_int_equal(fread(bytes.at, 1, bytes.n, in), bytes.n);
    fclose(in);
    return bytes;
}

static void spill(const char *path, const void *bytes, size_t n)
{
    FILE *out = fopen(path, "wb");
    assert_int_equal(fwrite(bytes, 1, n, out), n);
    assert_int_equal(fclose(out), 0);
}

static struct sfs_dataset *make_dataset(struct sfs_file *file, const char *path)
{
    struct sfs_dataset_create create = {
        .rank = 2, .dims = {ROWS, COLUMNS}, .max_dims = {ROWS, COLUMNS}, .chunk_dims = {1, 32}};
    struct sfs_dataset *dataset;
    void *type;
    assert_int_equal(sfs_type_encode("uint16", &type, &create.type.n), 0);
    create.type.bytes = type;
    assert_int_equal(sfs_dataset_create(file, path, &create, &dataset), 0);
    free(type);
    return dataset;
}

static int write_row(struct sfs_dataset *dataset, uint64_t i, uint16_t value)
{
    struct sfs_slab slab = {.rank = 2, .start = {i}, .count = {1, COLUMNS}};
    uint16_t values[COLUMNS];
    for (int k = 0; k < COLUMNS; k++)
        values[k] = value;
    return sfs_write(dataset, &slab, values);
}

static uint16_t read_row(struct sfs_dataset *dataset, uint64_t i)
{
    struct sfs_slab slab = {.rank = 2, .start = {i}, .count = {1, COLUMNS}};
    uint16_t values[COLUMNS];
    assert_int_equal(sfs_read(dataset, &slab, 0, values, sizeof(values)), 0);
    for (int k = 1; k < COLUMNS; k++)
        assert_int_equal(values[k], values[0]);
    return values[0];
}

/* libhdf5 makes a file with a contiguous dataset /dense, behind a user block; we add /sparse. */
/* Of B-trees: an extension of the superblock says so, or, in the old format, the superblock. */
static bool has_other_nodes;

static void make_file(const char *path, hsize_t user_block, bool latest)
{
    hsize_t dims[2] = {ROWS, COLUMNS};
    static uint16_t values[ROWS][COLUMNS];
    hid_t fcpl = H5Pcreate(H5P_FILE_CREATE), fapl = H5Pcreate(H5P_FILE_ACCESS);
    H5Pset_userblock(fcpl, user_block);
    if (has_other_nodes) {
        H5Pset_sym_k(fcpl, 3, 2);
        H5Pset_istore_k(fcpl, 4);
    }
    if (latest)
        H5Pset_libver_bounds(fapl, H5F_LIBVER_LATEST, H5F_LIBVER_LATEST);
    hid_t file = H5Fcreate(path, H5F_ACC_TRUNC, fcpl, fapl);
    hid_t space = H5Screate_simple(2, dims, NULL);
    hid_t dataset =
        H5Dcreate2(file, "dense", H5T_STD_U16LE, space, H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT);
    for (int i = 0; i < ROWS; i++)
        for (int k = 0; k < COLUMNS; k++)
            values[i][k] = (uint16_t)(1000 + i);
    assert_true(H5Dwrite(dataset, H5T_NATIVE_UINT16, H5S_ALL, H5S_ALL, H5P_DEFAULT, values) >= 0);
    H5Dclose(dataset);
    H5Sclose(space);
    assert_true(H5Fclose(file) >= 0);
    H5Pclose(fcpl);
    H5Pclose(fapl);

    struct sfs_options options = {.writable = true};
    struct sfs_file *ours;
    assert_int_equal(sfs_open(path, &options, &ours), 0);
    struct sfs_dataset *sparse = make_dataset(ours, "/sparse");
    for (uint64_t i = 0; i < ROWS; i++)
        assert_int_equal(write_row(sparse, i, (uint16_t)(2000 + i)), 0);
    sfs_dataset_close(sparse);
    assert_int_equal(sfs_close(ours), 0);
}

static void expect_content(struct sfs_file *file)
{
    struct sfs_dataset *sparse = open_dataset(file, "/sparse"),
                       *dense = open_dataset(file, "dense");
    for (uint64_t i = 0; i < ROWS; i++) {
        assert_int_equal(read_row(sparse, i), 2000 + i);
        assert_int_equal(read_row(dense, i), 1000 + i);
    }
    sfs_dataset_close(sparse);
    sfs_dataset_close(dense);
}

static void count_damage(void *context, enum sfs_finding finding, const char *line)
{
    (void)line;
    *(unsigned *)context += finding != SFS_SOUND;
}

/* The bytes are a sound file, for us and for libhdf5. */
static void expect_sound(const void *bytes, size_t n)
{
    struct sfs_file *file;
    unsigned damaged = 0;
    spill("sound.h5", bytes, n);
    hid_t id = H5Fopen("sound.h5", H5F_ACC_RDONLY, H5P_DEFAULT);
    assert_true(id >= 0);
    H5Fclose(id);
    assert_int_equal(sfs_open("sound.h5", NULL, &file), 0);
    assert_int_equal(sfs_check(file, count_damage, &damaged), 0);
    assert_int_equal(damaged, 0);
    sfs_close(file);
}

/* ---- Counting callbacks ---- */

struct counted {
    unsigned malloc, memcpy, realloc, free, copied, freed;
    unsigned operations; /* bits */
    atomic_uint fail;    /* which call fails: 'm', 'c', 'r', 'f' or 'u' */
    void *last;          /* the buffer */
    size_t size;
    bool keep; /* free only tells us, as example 6 of the document has it */
};

static void *count_malloc(size_t n, enum sfs_image_operation operation, void *user_data)
{
    struct counted *counted = user_data;
    counted->malloc++;
    assert_int_equal(operation, SFS_IMAGE_OP_OPEN);
    counted->size = n;
    return counted->last = counted->fail == 'm' ? NULL : malloc(n);
}

static void *count_memcpy(void *to, const void *from, size_t n, enum sfs_image_operation operation,
                          void *user_data)
{
    struct counted *counted = user_data;
    counted->memcpy++;
    assert_int_equal(operation, SFS_IMAGE_OP_OPEN);
    return counted->fail == 'c' ? NULL : memcpy(to, from, n);
}

static void *count_realloc(void *bytes, size_t n, enum sfs_image_operation operation,
                           void *user_data)
{
    struct counted *counted = user_data;
    counted->realloc++;
    assert_int_equal(operation, SFS_IMAGE_OP_RESIZE);
    if (counted->fail == 'r')
        return NULL;
    counted->size = n;
    return counted->last = realloc(bytes, n);
}

static int count_free(void *bytes, enum sfs_image_operation operation, void *user_data)
{
    struct counted *counted = user_data;
    counted->free++;
    assert_int_equal(operation, SFS_IMAGE_OP_CLOSE);
    counted->last = bytes;
    if (!counted->keep)
        free(bytes);
    return counted->fail == 'f' ? -1 : 0;
}

static void *count_copy(void *user_data)
{
    struct counted *counted = user_data;
    counted->copied++;
    return counted->fail == 'u' ? NULL : user_data;
}

static int count_freed(void *user_data)
{
    ((struct counted *)user_data)->freed++;
    return 0;
}

static struct sfs_image_callbacks counting(struct counted *counted)
{
    return (struct sfs_image_callbacks){count_malloc, count_memcpy, count_realloc, count_free,
                                        count_copy,   count_freed,  counted};
}

static void expect_calls(const struct counted *counted, unsigned mallocs, unsigned memcpys,
                         unsigned reallocs, unsigned frees)
{
    assert_int_equal(counted->malloc, mallocs);
    assert_int_equal(counted->memcpy, memcpys);
    assert_int_equal(counted->realloc, reallocs);
    assert_int_equal(counted->free, frees);
    assert_int_equal(counted->copied, 1);
    assert_int_equal(counted->freed, 1);
}

struct asked {
    struct sfs_image_callbacks callbacks;
    struct sfs_image_options image;
    struct sfs_options options;
};

/* For the call only: the library must keep nothing of it. */
static int open_counted(void *bytes, size_t n, unsigned flags, struct counted *counted,
                        struct sfs_file **file)
{
    struct asked *asked = allocate(sizeof(*asked));
    asked->callbacks = counting(counted);
    asked->image = (struct sfs_image_options){.name = "counted", .callbacks = &asked->callbacks};
    asked->options = (struct sfs_options){.image = &asked->image};
    int error = sfs_open_image(bytes, n, flags, &asked->options, file);
    memset(asked, 0xff, sizeof(*asked));
    free(asked);
    return error;
}

/* ---- Who owns the buffer, and who copies it ---- */

static void an_image_is_copied_once(void **state)
{
    (void)state;
    struct counted counted = {0};
    struct sfs_file *file;
    make_file("a.h5", 0, true);
    struct bytes bytes = slurp("a.h5");
    assert_int_equal(open_counted(bytes.at, bytes.n, 0, &counted, &file), 0);
    assert_int_equal(counted.size, bytes.n);
    memset(bytes.at, 0xaa, bytes.n); /* it may be discarded at once */
    free(bytes.at);
    assert_string_equal(sfs_path(file), "counted");
    assert_false(sfs_is_writable(file));
    expect_content(file);
    assert_int_equal(sfs_close(file), 0);
    expect_calls(&counted, 1, 1, 0, 1);
}

static void an_image_that_is_given_away_is_freed_and_never_copied(void **state)
{
    (void)state;
    struct counted counted = {0};
    struct sfs_file *file;
    struct bytes bytes = slurp("a.h5");
    assert_int_equal(open_counted(bytes.at, bytes.n, SFS_IMAGE_DONT_COPY, &counted, &file), 0);
    expect_content(file);
    assert_int_equal(sfs_close(file), 0);
    assert_ptr_equal(counted.last, bytes.at);
    expect_calls(&counted, 0, 0, 0, 1);

    bytes = slurp("a.h5"); /* by the C library */
    assert_int_equal(sfs_open_image(bytes.at, bytes.n, SFS_IMAGE_DONT_COPY, NULL, &file), 0);
    assert_string_equal(sfs_path(file), "image");
    expect_content(file);
    assert_int_equal(sfs_close(file), 0);
}

static void an_image_that_is_lent_is_left_alone(void **state)
{
    (void)state;
    unsigned flags = SFS_IMAGE_DONT_COPY | SFS_IMAGE_DONT_RELEASE;
    struct counted counted = {0};
    struct sfs_file *file;
    struct bytes bytes = slurp("a.h5"), before = slurp("a.h5");
    assert_int_equal(open_counted(bytes.at, bytes.n, flags, &counted, &file), 0);
    expect_content(file);
    assert_int_equal(sfs_close(file), 0);
    expect_calls(&counted, 0, 0, 0, 0);
    assert_memory_equal(bytes.at, before.at, bytes.n);
    free(bytes.at);
    free(before.at);
}

/* The bytes of a dataset that is read are those of the buffer. */
static void an_image_that_is_read_is_lent_itself(void **state)
{
    (void)state;
    struct sfs_file *file;
    struct sfs_loan loan;
    struct sfs_slab slab = {.rank = 2, .count = {ROWS, COLUMNS}};
    struct bytes bytes = slurp("a.h5");
    int error;
    struct sfs_options options = {.cache_size = 4096}; /* the dataset does not fit in it */
    assert_int_equal(sfs_open_image(bytes.at, bytes.n, SFS_IMAGE_DONT_COPY, &options, &file), 0);
    struct sfs_dataset *dense = open_dataset(file, "dense");
    assert_true(sfs_lend(dense, &slab, 0, ROWS * COLUMNS * 2, &loan, &error));
    const unsigned char *at = loan.bytes;
    assert_true(at >= bytes.at && at < bytes.at + bytes.n);
    sfs_return(dense, &loan);
    sfs_dataset_close(dense);
    assert_int_equal(sfs_close(file), 0);
}

/* ---- Writing ---- */

/* Examples 8 and 9 of the document: only datasets change, in the caller's buffer. */
static void a_lent_image_is_written_in_place_and_does_not_grow(void **state)
{
    (void)state;
    unsigned flags = SFS_IMAGE_WRITABLE | SFS_IMAGE_DONT_COPY | SFS_IMAGE_DONT_RELEASE;
    struct counted counted = {0};
    struct sfs_file *file;
    struct bytes bytes = slurp("a.h5"), before = slurp("a.h5");
    assert_int_equal(open_counted(bytes.at, bytes.n, flags, &counted, &file), 0);
    struct sfs_dataset *dense = open_dataset(file, "dense");
    for (uint64_t i = 0; i < ROWS; i++)
        assert_int_equal(write_row(dense, i, (uint16_t)(7 + i)), 0);
    sfs_dataset_close(dense);
    /* All of it or nothing, with a flush. */
    assert_memory_equal(bytes.at, before.at, bytes.n);
    assert_int_equal(sfs_flush(file), 0);
    assert_memory_not_equal(bytes.at, before.at, bytes.n);

    /* What needs more room than there is fails, and what was flushed stays. */
    log_quietly();
    struct sfs_dataset *more = make_dataset(file, "/more");
    int error = 0;
    for (uint64_t i = 0; i < ROWS && !error; i++)
        error = write_row(more, i, 3);
    if (!error)
        error = sfs_flush(file);
    assert_int_equal(error, -ENOSPC);
    sfs_dataset_close(more);
    sfs_discard(file);
    expect_calls(&counted, 0, 0, 0, 0);
    expect_sound(bytes.at, bytes.n);
    assert_int_equal(sfs_open("sound.h5", NULL, &file), 0);
    dense = open_dataset(file, "dense");
    for (uint64_t i = 0; i < ROWS; i++)
        assert_int_equal(read_row(dense, i), 7 + i);
    sfs_dataset_close(dense);
    sfs_close(file);
    free(bytes.at);
    free(before.at);
}

static void a_writable_copy_leaves_the_buffer_alone(void **state)
{
    (void)state;
    struct sfs_file *file;
    struct bytes bytes = slurp("a.h5"), before = slurp("a.h5");
    assert_int_equal(sfs_open_image(bytes.at, bytes.n, SFS_IMAGE_WRITABLE, NULL, &file), 0);
    struct sfs_dataset *more = make_dataset(file, "/more");
    assert_int_equal(write_row(more, 0, 1), 0);
    sfs_dataset_close(more);
    assert_int_equal(sfs_close(file), 0);
    assert_memory_equal(bytes.at, before.at, bytes.n);
    free(bytes.at);
    free(before.at);
}

/* Examples 6 and 10: who gave the callbacks has the buffer in the end, as long as the file. */
static void an_image_grows_and_is_handed_back(void **state)
{
    (void)state;
    struct counted counted = {.keep = true};
    struct sfs_file *file;
    struct bytes bytes = slurp("a.h5");
    assert_int_equal(
        open_counted(bytes.at, bytes.n, SFS_IMAGE_WRITABLE | SFS_IMAGE_DONT_COPY, &counted, &file),
        0);
    for (int d = 0; d < 20; d++) {
        char path[16];
        snprintf(path, sizeof(path), "/more/%d", d);
        struct sfs_dataset *more = make_dataset(file, path);
        for (uint64_t i = 0; i < ROWS; i++)
            assert_int_equal(write_row(more, i, (uint16_t)d), 0);
        sfs_dataset_close(more);
        assert_int_equal(sfs_flush(file), 0);
    }
    expect_content(file);
    assert_int_equal(sfs_close(file), 0);
    assert_int_equal(counted.malloc + counted.memcpy, 0);
    assert_true(counted.realloc > 0 && counted.realloc < 12);
    assert_int_equal(counted.free, 1);
    expect_sound(counted.last, counted.size);
    free(counted.last);
}

static void what_is_discarded_is_as_it_was_flushed(void **state)
{
    (void)state;
    struct sfs_file *file;
    struct bytes bytes = slurp("a.h5"), before = slurp("a.h5");
    struct counted counted = {.keep = true, .size = bytes.n};
    assert_int_equal(
        open_counted(bytes.at, bytes.n, SFS_IMAGE_WRITABLE | SFS_IMAGE_DONT_COPY, &counted, &file),
        0);
    struct sfs_dataset *more = make_dataset(file, "/more");
    assert_int_equal(write_row(more, 0, 1), 0);
    sfs_dataset_close(more);
    sfs_discard(file);
    assert_int_equal(counted.size, before.n);
    assert_memory_equal(counted.last, before.at, before.n);
    free(counted.last);
    free(before.at);
}

/* ---- Data that is overwritten, examples 8 and 9 of the document ---- */

#define LENT (SFS_IMAGE_WRITABLE | SFS_IMAGE_DONT_COPY | SFS_IMAGE_DONT_RELEASE)

/* The first n elements of a row, and no others. */
static int rewrite_some(struct sfs_dataset *dataset, uint64_t i, uint64_t n, uint16_t value)
{
    uint16_t values[COLUMNS];
    struct sfs_slab all = {.rank = 2, .start = {i}, .count = {1, COLUMNS}};
    struct sfs_slab some = {.rank = 2, .start = {i}, .count = {1, n}};
    for (int k = 0; k < COLUMNS; k++)
        values[k] = value;
    int error = sfs_erase(dataset, &all);
    return error ? error : sfs_write(dataset, &some, values);
}

static int add_size(void *context, const struct sfs_chunk_info *info)
{
    *(uint64_t *)context += info->size;
    return 0;
}

/* Bytes of all chunks. */
static uint64_t stored_bytes(struct sfs_dataset *dataset)
{
    uint64_t bytes = 0;
    assert_int_equal(sfs_chunk_iterate(dataset, add_size, &bytes), 0);
    return bytes;
}

/* A session on a buffer that may be moved; it is the caller's again afterwards. */
static struct sfs_file *open_buffer(struct bytes bytes, struct counted *counted)
{
    struct sfs_file *file;
    *counted = (struct counted){.keep = true, .last = bytes.at, .size = bytes.n};
    assert_int_equal(
        open_counted(bytes.at, bytes.n, SFS_IMAGE_WRITABLE | SFS_IMAGE_DONT_COPY, counted, &file),
        0);
    return file;
}

static struct bytes close_buffer(struct sfs_file *file, const struct counted *counted)
{
    assert_int_equal(sfs_close(file), 0);
    return (struct bytes){counted->last, counted->size};
}

static void expect_rows(const struct bytes *bytes, const uint16_t *values)
{
    struct sfs_file *file;
    assert_int_equal(sfs_open_image(bytes->at, bytes->n,
                                    SFS_IMAGE_DONT_COPY | SFS_IMAGE_DONT_RELEASE, NULL, &file),
                     0);
    struct sfs_dataset *sparse = open_dataset(file, "/sparse"),
                       *dense = open_dataset(file, "dense");
    for (uint64_t i = 0; i < ROWS; i++) {
        struct sfs_slab first = {.rank = 2, .start = {i}, .count = {1, 1}};
        uint16_t value;
        assert_int_equal(sfs_read(sparse, &first, 0, &value, sizeof(value)), 0);
        assert_int_equal(value, values[i]);
        assert_int_equal(read_row(dense, i), 1000 + i);
    }
    sfs_dataset_close(sparse);
    sfs_dataset_close(dense);
    sfs_close(file);
}

static void a_buffer_of_many_sessions_keeps_its_size(void **state)
{
    (void)state;
    for (int latest = 0; latest < 2; latest++) {
        make_file("sessions.h5", 0, latest);
        struct bytes bytes = slurp("sessions.h5");
        size_t n = bytes.n;
        uint16_t values[ROWS];
        for (unsigned i = 0; i < ROWS; i++)
            values[i] = (uint16_t)(2000 + i);
        for (unsigned session = 0; session < 300; session++) {
            struct counted counted;
            struct sfs_file *file = open_buffer(bytes, &counted);
            struct sfs_dataset *sparse = open_dataset(file, "/sparse");
            for (unsigned i = 0; i < 5; i++) {
                unsigned row = (session * 7 + i) % ROWS;
                values[row] = (uint16_t)(session * 5 + i);
                assert_int_equal(write_row(sparse, row, values[row]), 0);
                if (i % 2 == session % 2)
                    assert_int_equal(sfs_flush(file), 0);
            }
            sfs_dataset_close(sparse);
            bytes = close_buffer(file, &counted);
            assert_int_equal(bytes.n, n);
        }
        expect_sound(bytes.at, bytes.n);
        expect_rows(&bytes, values);
        free(bytes.at);
    }
}

/* Also what is stored several times before it is flushed, and while a snapshot is read, which shows
 * what was flushed before; and what is not flushed leaves no trace. */
static void a_lent_image_takes_as_much_as_it_had(void **state)
{
    (void)state;
    struct bytes bytes = slurp("a.h5"), before = slurp("a.h5");
    uint16_t values[ROWS], flushed[ROWS];
    struct bytes seen = {allocate(bytes.n), bytes.n};
    for (unsigned i = 0; i < ROWS; i++)
        values[i] = (uint16_t)(2000 + i);
    for (unsigned session = 0; session < 40; session++) {
        struct sfs_file *file;
        struct sfs_snapshot *snapshot;
        bool is_discarded = session % 4 == 3;
        memcpy(before.at, bytes.at, bytes.n);
        memcpy(flushed, values, sizeof(values));
        assert_int_equal(sfs_open_image(bytes.at, bytes.n, LENT, NULL, &file), 0);
        assert_int_equal(sfs_snapshot_open(file, &snapshot), 0);
        struct sfs_dataset *sparse = open_dataset(file, "/sparse");
        for (unsigned i = 0; i < 3 * ROWS; i++) {
            struct sfs_chunk_info info;
            uint64_t start[2] = {i % ROWS, 0};
            uint16_t value = (uint16_t)(session * 100 + i);
            assert_int_equal(write_row(sparse, i % ROWS, value), 0);
            assert_int_equal(sfs_chunk_info(sparse, start, &info), 0);
            if (!is_discarded)
                values[i % ROWS] = value;
        }
        sfs_dataset_close(sparse);
        assert_memory_equal(bytes.at, before.at, bytes.n);
        if (!is_discarded)
            assert_int_equal(sfs_flush(file), 0);
        assert_int_equal(sfs_snapshot_read(snapshot, 0, seen.at, seen.n), 0);
        expect_rows(&seen, flushed);
        sfs_snapshot_close(snapshot);
        if (is_discarded)
            sfs_discard(file);
        else
            assert_int_equal(sfs_close(file), 0);
        assert_int_equal(memcmp(bytes.at, before.at, bytes.n) == 0, is_discarded);
        expect_rows(&bytes, values);
    }
    expect_sound(bytes.at, bytes.n);
    free(seen.at);
    free(before.at);
    free(bytes.at);
}

/* Chunks that change their sizes, in many sessions and in a long one: all else that is stored, the
 * most that chunks have taken at the end of a session, and a third of that. */
static void a_buffer_of_changing_chunks_stays_small(void **state)
{
    (void)state;
    struct bytes bytes = slurp("a.h5");
    uint16_t values[ROWS];
    uint64_t most = 0, others = 0;
    for (unsigned i = 0; i < ROWS; i++)
        values[i] = (uint16_t)(2000 + i);
    for (unsigned session = 0; session < 400; session++) {
        struct counted counted;
        struct sfs_file *file = open_buffer(bytes, &counted);
        struct sfs_dataset *sparse = open_dataset(file, "/sparse");
        for (unsigned i = 0; i < (session == 200 ? 4000 : 20); i++) {
            unsigned row = (unsigned)random_below(ROWS);
            values[row] = (uint16_t)random_below(60000);
            assert_int_equal(rewrite_some(sparse, row, 1 + random_below(COLUMNS), values[row]), 0);
            if (random_below(8) == 0)
                assert_int_equal(sfs_flush(file), 0);
        }
        uint64_t stored = stored_bytes(sparse);
        if (session == 0)
            others = bytes.n - stored;
        most = stored > most ? stored : most;
        sfs_dataset_close(sparse);
        bytes = close_buffer(file, &counted);
        assert_in_range(bytes.n, 0, others + most + most / 3);
    }
    expect_sound(bytes.at, bytes.n);
    expect_rows(&bytes, values);
    free(bytes.at);
}

/* Shrinks every other chunk, so that their space is unused. */
static struct bytes make_holes(struct bytes bytes)
{
    struct counted counted;
    struct sfs_file *file = open_buffer(bytes, &counted);
    struct sfs_dataset *sparse = open_dataset(file, "/sparse");
    for (unsigned i = 0; i < ROWS; i++)
        assert_int_equal(rewrite_some(sparse, i, 1 + i % 2 * (COLUMNS - 1), (uint16_t)(2000 + i)),
                         0);
    sfs_dataset_close(sparse);
    return close_buffer(file, &counted);
}

/* Makes half of them larger, in a session of its own; the bytes by which the image has grown. */
static int64_t fill_holes(struct bytes *bytes)
{
    struct counted counted;
    size_t before = bytes->n;
    struct sfs_file *file = open_buffer(*bytes, &counted);
    struct sfs_dataset *sparse = open_dataset(file, "/sparse");
    for (unsigned i = 0; i < ROWS; i += 2)
        assert_int_equal(rewrite_some(sparse, i, 12, (uint16_t)(2000 + i)), 0);
    sfs_dataset_close(sparse);
    *bytes = close_buffer(file, &counted);
    return (int64_t)bytes->n - (int64_t)before;
}

/* Not even what nothing refers to. */
static void nothing_of_a_buffer_changes_before_a_flush(void **state)
{
    (void)state;
    make_file("holes.h5", 0, true);
    struct bytes bytes = make_holes(slurp("holes.h5")), before = {allocate(bytes.n), bytes.n};
    struct sfs_file *file;
    memcpy(before.at, bytes.at, bytes.n);
    assert_int_equal(sfs_open_image(bytes.at, bytes.n, LENT, NULL, &file), 0);
    struct sfs_dataset *sparse = open_dataset(file, "/sparse");
    for (unsigned i = 0; i < ROWS; i += 4) {
        struct sfs_chunk_info info;
        uint64_t start[2] = {i, 0};
        assert_int_equal(rewrite_some(sparse, i, 12, 1), 0);
        assert_int_equal(sfs_chunk_info(sparse, start, &info), 0);
        assert_true(info.address + info.size <= bytes.n);
    }
    sfs_dataset_close(sparse);
    sfs_discard(file);
    assert_memory_equal(bytes.at, before.at, bytes.n);
    free(before.at);
    free(bytes.at);
}

/* Where the layout message of the dense dataset has its address: version 3, contiguous. */
static unsigned char *find_address(const struct bytes *bytes, uint64_t address)
{
    unsigned char message[18] = {3, 1};
    uint64_t n = ROWS * COLUMNS * sizeof(uint16_t);
    memcpy(message + 2, &address, sizeof(address));
    memcpy(message + 10, &n, sizeof(n));
    unsigned char *found = memmem(bytes->at, bytes->n, message, sizeof(message));
    assert_non_null(found);
    size_t behind = (size_t)(found + 1 - bytes->at);
    assert_null(memmem(found + 1, bytes->n - behind, message, sizeof(message)));
    return found + 2;
}

/* In a file of the oldest kind, whose addresses no checksum guards. */
static void nothing_is_unused_where_structures_overlap(void **state)
{
    (void)state;
    make_file("holes.h5", 0, false);
    hid_t file = H5Fopen("holes.h5", H5F_ACC_RDONLY, H5P_DEFAULT);
    hid_t dense = H5Dopen2(file, "dense", H5P_DEFAULT);
    haddr_t address = H5Dget_offset(dense);
    H5Dclose(dense);
    H5Fclose(file);
    struct bytes bytes = make_holes(slurp("holes.h5"));
    struct bytes other = {allocate(bytes.n), bytes.n};
    memcpy(other.at, bytes.at, bytes.n);
    assert_true(fill_holes(&bytes) <= 0);
    expect_sound(bytes.at, bytes.n);

    for (int wrong = 0; wrong < 2; wrong++) {
        struct bytes damaged = {allocate(other.n), other.n};
        memcpy(damaged.at, other.at, other.n);
        uint64_t moved = wrong ? other.n - 8 : 8; /* beyond the end, or over the superblock */
        memcpy(find_address(&damaged, address), &moved, sizeof(moved));
        assert_true(fill_holes(&damaged) > 0);
        free(damaged.at);
    }
    free(other.at);
    free(bytes.at);
}

/* What libhdf5 puts into an image: no byte of it is taken for unused. */
static void add_by_libhdf5(hid_t file, unsigned kind)
{
    const char *text = "variable";
    hsize_t dims = 100, chunk = 10;
    uint32_t values[100];
    char name[16];
    snprintf(name, sizeof(name), "added%u", kind);
    hid_t space = H5Screate_simple(1, &dims, NULL), scalar = H5Screate(H5S_SCALAR);
    hid_t string = H5Tcopy(H5T_C_S1), dcpl = H5Pcreate(H5P_DATASET_CREATE);
    H5Tset_size(string, H5T_VARIABLE);
    if (kind == 1)
        H5Pset_chunk(dcpl, 1, &chunk);
    for (uint32_t i = 0; i < 100; i++)
        values[i] = 1000 * kind + i;
    hid_t dataset = H5Dcreate2(file, name, H5T_STD_U32LE, space, H5P_DEFAULT, dcpl, H5P_DEFAULT);
    assert_true(H5Dwrite(dataset, H5T_NATIVE_UINT32, H5S_ALL, H5S_ALL, H5P_DEFAULT, values) >= 0);
    for (unsigned i = 0; i < (kind == 2 ? 12 : 1); i++) {
        char attribute[16];
        snprintf(attribute, sizeof(attribute), "text%u", i);
        hid_t made = H5Acreate2(dataset, attribute, string, scalar, H5P_DEFAULT, H5P_DEFAULT);
        assert_true(H5Awrite(made, string, &text) >= 0);
        H5Aclose(made);
    }
    if (kind == 0) { /* with a symbol table, where that is the format */
        H5Gclose(H5Gcreate2(file, "old", H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT));
        for (char group[] = "old/a"; group[4] <= 't'; group[4]++)
            H5Gclose(H5Gcreate2(file, group, H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT));
    }
    for (unsigned i = 0; i < (kind == 3 ? 20 : 0); i++) {
        char group[16];
        snprintf(group, sizeof(group), "group%u", i);
        H5Gclose(H5Gcreate2(file, group, H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT));
    }
    H5Dclose(dataset);
    H5Pclose(dcpl);
    H5Tclose(string);
    H5Sclose(scalar);
    H5Sclose(space);
}

static void expect_added(hid_t file, unsigned kind)
{
    uint32_t values[100];
    char name[16], *text = NULL;
    snprintf(name, sizeof(name), "added%u", kind);
    hid_t dataset = H5Dopen2(file, name, H5P_DEFAULT);
    assert_true(H5Dread(dataset, H5T_NATIVE_UINT32, H5S_ALL, H5S_ALL, H5P_DEFAULT, values) >= 0);
    for (uint32_t i = 0; i < 100; i++)
        assert_int_equal(values[i], 1000 * kind + i);
    hid_t attribute = H5Aopen(dataset, kind == 2 ? "text11" : "text0", H5P_DEFAULT);
    hid_t type = H5Aget_type(attribute);
    assert_true(H5Aread(attribute, type, &text) >= 0);
    assert_string_equal(text, "variable");
    H5free_memory(text);
    H5Tclose(type);
    H5Aclose(attribute);
    H5Dclose(dataset);
    if (kind == 3)
        H5Gclose(H5Gopen2(file, "group19", H5P_DEFAULT));
    for (char group[] = "old/a"; kind == 0 && group[4] <= 't'; group[4]++) {
        hid_t opened = H5Gopen2(file, group, H5P_DEFAULT);
        assert_true(opened >= 0);
        H5Gclose(opened);
    }
}

/* A session of libhdf5: it finds these kinds, and adds one; 4: none. */
static struct bytes change_by_libhdf5(struct bytes bytes, unsigned first, unsigned behind,
                                      unsigned kind, bool latest)
{
    hid_t fapl = H5Pcreate(H5P_FILE_ACCESS);
    if (latest)
        H5Pset_libver_bounds(fapl, H5F_LIBVER_LATEST, H5F_LIBVER_LATEST);
    spill("others.h5", bytes.at, bytes.n);
    free(bytes.at);
    hid_t file = H5Fopen("others.h5", H5F_ACC_RDWR, fapl);
    assert_true(file >= 0);
    for (unsigned i = first; i < behind; i++)
        expect_added(file, i);
    if (kind < 4)
        add_by_libhdf5(file, kind);
    assert_true(H5Fclose(file) >= 0);
    H5Pclose(fapl);
    return slurp("others.h5");
}

/* Uses up what is unused, and more. */
static struct bytes fill_all(struct bytes bytes)
{
    struct counted counted;
    struct sfs_file *file = open_buffer(bytes, &counted);
    struct sfs_dataset *more = make_dataset(file, "/more");
    for (unsigned i = 0; i < ROWS; i++)
        assert_int_equal(rewrite_some(more, i, 1 + i % COLUMNS, 0xffff), 0);
    sfs_dataset_close(more);
    return close_buffer(file, &counted);
}

static void what_others_put_into_an_image_stays(void **state)
{
    (void)state;
    for (unsigned round = 0; round < 16; round++) {
        unsigned kind = round / 4;
        bool latest = round % 2;
        has_other_nodes = round / 2 % 2;
        make_file("others.h5", 0, latest);
        struct bytes bytes = change_by_libhdf5(slurp("others.h5"), 4, 4, kind, latest);
        bytes = make_holes(bytes);
        assert_true(fill_holes(&bytes) <= 0);
        bytes = fill_all(bytes);
        bytes = change_by_libhdf5(bytes, kind, kind + 1, 4, latest);
        expect_sound(bytes.at, bytes.n);
        free(bytes.at);
    }
    has_other_nodes = false;
}

/* Looking for unused space alone: libhdf5 is no match for such bytes. */
static void bytes_of_an_image_may_be_anything(void **state)
{
    (void)state;
    for (int latest = 0; latest < 2; latest++) {
        make_file("any.h5", 0, latest);
        struct bytes whole = make_holes(slurp("any.h5")), bytes = {allocate(whole.n), whole.n};
        for (unsigned round = 0; round < 3000; round++) {
            const struct store_image how = {.name = "any", .writable = true, .fixed = true};
            struct store *store;
            memcpy(bytes.at, whole.at, whole.n);
            for (uint64_t i = 0; i <= random_below(4); i++)
                bytes.at[random_below(bytes.n)] = (unsigned char)random_below(256);
            assert_int_equal(store_open_image(bytes.at, bytes.n, &how, &store), 0);
            unused_space_find(store);
            assert_in_range(store_end(store), 0, bytes.n);
            store_close(store);
        }
        free(bytes.at);
        free(whole.at);
    }
}

/* ---- Refusals ---- */

static void expect_refused(void *bytes, size_t n, unsigned flags, struct sfs_options *options,
                           int error)
{
    struct sfs_file *file = (struct sfs_file *)&file;
    log_quietly();
    unsigned before = log_errors();
    assert_int_equal(sfs_open_image(bytes, n, flags, options, &file), error);
    assert_ptr_equal(file, &file);
    assert_int_equal(log_errors(), before + 1);
}

static void what_cannot_be_is_refused(void **state)
{
    (void)state;
    struct counted counted = {0};
    struct sfs_image_callbacks callbacks = counting(&counted);
    struct sfs_image_options image = {.callbacks = &callbacks};
    struct sfs_options options = {.image = &image};
    struct bytes bytes = slurp("a.h5");
    expect_refused(NULL, bytes.n, 0, NULL, -EINVAL);
    expect_refused(bytes.at, 0, 0, NULL, -EINVAL);
    expect_refused(bytes.at, bytes.n, 8, NULL, -EINVAL);
    expect_refused(bytes.at, bytes.n, SFS_IMAGE_DONT_RELEASE, NULL, -EINVAL);
    expect_refused(bytes.at, bytes.n, SFS_IMAGE_DONT_RELEASE | SFS_IMAGE_WRITABLE, NULL, -EINVAL);
    callbacks.user_data_copy = NULL;
    expect_refused(bytes.at, bytes.n, 0, &options, -EINVAL);
    callbacks = counting(&counted);
    callbacks.user_data_free = NULL;
    expect_refused(bytes.at, bytes.n, 0, &options, -EINVAL);
    image.callbacks = NULL;
    image.backing_path = "new.h5";
    expect_refused(bytes.at, bytes.n, 0, &options, -EINVAL);
    image.backing_path = "a.h5";
    expect_refused(bytes.at, bytes.n, SFS_IMAGE_WRITABLE, &options, -EEXIST);
    options.replace = true; /* the document leaves no choice */
    expect_refused(bytes.at, bytes.n, SFS_IMAGE_WRITABLE, &options, -EEXIST);
    image.backing_path = NULL;
    image.name = "a.h5";
    expect_refused(bytes.at, bytes.n, 0, &options, -EEXIST);
    expect_refused(bytes.at, bytes.n, SFS_IMAGE_DONT_COPY | SFS_IMAGE_WRITABLE, &options, -EEXIST);
    assert_int_equal(counted.malloc + counted.copied, 0);
    free(bytes.at);
}

/* Unless it is the file that the bytes come from. */
static void an_image_may_have_the_name_of_its_file(void **state)
{
    (void)state;
    struct sfs_image_options image = {.name = "a.h5", .is_of_file = true};
    struct sfs_options options = {.image = &image};
    struct bytes bytes = slurp("a.h5");
    struct sfs_file *file;
    assert_int_equal(sfs_open_image(bytes.at, bytes.n, 0, &options, &file), 0);
    assert_string_equal(sfs_path(file), "a.h5");
    expect_content(file);
    assert_int_equal(sfs_close(file), 0);
    free(bytes.at);
}

/* The buffer stays the caller's. */
static void what_is_no_hdf5_is_refused(void **state)
{
    (void)state;
    static const unsigned all[] = {0, SFS_IMAGE_DONT_COPY,
                                   SFS_IMAGE_DONT_COPY | SFS_IMAGE_WRITABLE};
    struct bytes whole = slurp("a.h5");
    for (size_t i = 0; i < COUNT(all); i++) {
        struct counted counted = {0};
        struct sfs_file *file = NULL;
        unsigned char *noise = allocate(5000);
        log_quietly();
        random_fill(noise, 5000);
        assert_int_equal(open_counted(noise, 5000, all[i], &counted, &file), -EINVAL);
        expect_calls(&counted, !all[i], !all[i], 0, !all[i]);
        noise[4999]++;
        free(noise);
        unsigned char *cut = allocate(whole.n - 1);
        memcpy(cut, whole.at, whole.n - 1);
        assert_int_equal(sfs_open_image(cut, whole.n - 1, all[i], NULL, &file), -EINVAL);
        assert_memory_equal(cut, whole.at, whole.n - 1);
        free(cut);
    }
    free(whole.at);
}

static void callbacks_may_fail(void **state)
{
    (void)state;
    static const struct {
        char which;
        int error;
        unsigned mallocs, memcpys, frees, freed;
    } cases[] = {{'m', -ENOMEM, 1, 0, 0, 1}, {'c', -EIO, 1, 1, 1, 1}, {'u', -ENOMEM, 0, 0, 0, 0}};
    struct bytes bytes = slurp("a.h5");
    struct sfs_file *file;
    log_quietly();
    for (size_t i = 0; i < COUNT(cases); i++) {
        struct counted counted = {.fail = (unsigned)cases[i].which};
        unsigned errors = log_errors();
        assert_int_equal(open_counted(bytes.at, bytes.n, 0, &counted, &file), cases[i].error);
        assert_int_equal(log_errors(), errors + 1);
        assert_int_equal(counted.malloc, cases[i].mallocs);
        assert_int_equal(counted.memcpy, cases[i].memcpys);
        assert_int_equal(counted.free, cases[i].frees);
        assert_int_equal(counted.freed, cases[i].freed);
    }
    struct counted counted = {.fail = 'f'};
    assert_int_equal(open_counted(bytes.at, bytes.n, 0, &counted, &file), 0);
    assert_int_equal(sfs_close(file), -EIO);
    expect_calls(&counted, 1, 1, 0, 1);

    /* No room to grow: what was there is still there, and there may be room later. */
    counted = (struct counted){.fail = 'r'};
    assert_int_equal(open_counted(bytes.at, bytes.n, SFS_IMAGE_WRITABLE, &counted, &file), 0);
    struct sfs_dataset *more = make_dataset(file, "/more");
    int error = 0;
    for (uint64_t i = 0; i < ROWS && !error; i++)
        error = write_row(more, i, 3);
    if (!error)
        error = sfs_flush(file);
    assert_int_equal(error, -ENOMEM);
    counted.fail = 0;
    for (uint64_t i = 0; i < ROWS; i++)
        assert_int_equal(write_row(more, i, 4), 0);
    assert_int_equal(sfs_flush(file), 0);
    assert_int_equal(read_row(more, 5), 4);
    sfs_dataset_close(more);
    assert_int_equal(sfs_close(file), 0);
    free(bytes.at);
}

/* ---- New images ---- */

/* Example 7 of the document: a buffer that is large enough, and no allocation at all. */
static unsigned char fixed_buffer[1 << 20];
static size_t fixed_room = sizeof(fixed_buffer);

static void *fixed_malloc(size_t n, enum sfs_image_operation operation, void *user_data)
{
    (void)operation, (void)user_data;
    return n <= fixed_room ? fixed_buffer : NULL;
}

static void *fixed_realloc(void *bytes, size_t n, enum sfs_image_operation operation,
                           void *user_data)
{
    (void)operation;
    assert_ptr_equal(bytes, fixed_buffer);
    if (n > fixed_room)
        return NULL;
    *(size_t *)user_data = n;
    return fixed_buffer;
}

static int fixed_free(void *bytes, enum sfs_image_operation operation, void *user_data)
{
    (void)operation, (void)user_data;
    assert_ptr_equal(bytes, fixed_buffer);
    return 0;
}

static void *same_data(void *user_data)
{
    return user_data;
}

static int no_free(void *user_data)
{
    (void)user_data;
    return 0;
}

static void a_new_image_can_be_made_in_a_static_buffer(void **state)
{
    (void)state;
    size_t n = 0;
    struct sfs_image_callbacks callbacks = {
        fixed_malloc, NULL, fixed_realloc, fixed_free, same_data, no_free, &n};
    struct sfs_image_options image = {.callbacks = &callbacks, .increment = 4096};
    struct sfs_options options = {.image = &image};
    struct sfs_file *file;
    assert_int_equal(sfs_create_image(&options, &file), 0);
    assert_true(sfs_is_writable(file));
    struct sfs_dataset *dataset = make_dataset(file, "/a/b");
    for (uint64_t i = 0; i < ROWS; i++)
        assert_int_equal(write_row(dataset, i, (uint16_t)i), 0);
    sfs_dataset_close(dataset);
    assert_int_equal(sfs_close(file), 0);
    assert_true(n > 0);
    expect_sound(fixed_buffer, n);

    /* One that is too large is refused, and the file is as it was. */
    log_quietly();
    assert_int_equal(sfs_create_image(&options, &file), 0);
    dataset = make_dataset(file, "/a");
    assert_int_equal(sfs_flush(file), 0);
    int error = 0;
    for (int i = 0; i < 300 && !error; i++) {
        char path[16];
        snprintf(path, sizeof(path), "/d%d", i);
        struct sfs_dataset_create create = {
            .rank = 1, .dims = {1}, .max_dims = {1}, .chunk_dims = {1 << 18}, .is_dense = true};
        void *type;
        struct sfs_dataset *dense;
        uint16_t value = 1;
        assert_int_equal(sfs_type_encode("uint16", &type, &create.type.n), 0);
        create.type.bytes = type;
        create.max_dims[0] = SFS_UNLIMITED;
        error = sfs_dataset_create(file, path, &create, &dense);
        free(type);
        struct sfs_slab slab = {.rank = 1, .count = {1}};
        if (!error) {
            error = sfs_write(dense, &slab, &value);
            sfs_dataset_close(dense);
        }
        if (!error)
            error = sfs_flush(file);
    }
    assert_int_equal(error, -ENOMEM);
    sfs_dataset_close(dataset);
    sfs_discard(file);
    expect_sound(fixed_buffer, n);
}

/* Datasets are added, and each is flushed, to an image in the static buffer; returns its size. */
static size_t fill_fixed_buffer(size_t room, size_t increment)
{
    size_t n = 0;
    struct sfs_image_callbacks callbacks = {
        fixed_malloc, NULL, fixed_realloc, fixed_free, same_data, no_free, &n};
    struct sfs_image_options image = {.callbacks = &callbacks, .increment = increment};
    struct sfs_options options = {.image = &image};
    struct sfs_file *file;
    fixed_room = room;
    assert_int_equal(sfs_create_image(&options, &file), 0);
    for (int d = 0; d < 20; d++) {
        char path[16];
        snprintf(path, sizeof(path), "/d%d", d);
        struct sfs_dataset *dataset = make_dataset(file, path);
        for (uint64_t i = 0; i < ROWS; i++)
            assert_int_equal(write_row(dataset, i, (uint16_t)i), 0);
        sfs_dataset_close(dataset);
        assert_int_equal(sfs_flush(file), 0);
    }
    assert_int_equal(sfs_close(file), 0);
    expect_sound(fixed_buffer, n);
    fixed_room = sizeof(fixed_buffer);
    return n;
}

/* It grows by half of its size where that can be, and else by what it needs. */
static void a_buffer_that_is_large_enough_is_enough(void **state)
{
    (void)state;
    static const size_t increments[] = {0, 4096};
    for (size_t i = 0; i < COUNT(increments); i++) {
        size_t n = fill_fixed_buffer(sizeof(fixed_buffer), increments[i]);
        assert_true(n > 2 * 65536 && n < sizeof(fixed_buffer) / 2);
        for (unsigned percent = 102; percent <= 122; percent += 10)
            assert_int_equal(fill_fixed_buffer(n * percent / 100, increments[i]), n);
    }
}

static void a_backing_file_is_written_by_every_flush(void **state)
{
    (void)state;
    struct sfs_image_options image = {.backing_path = "backing.h5"};
    struct sfs_options options = {.image = &image};
    struct sfs_file *file, *other;
    unlink("backing.h5");
    assert_int_equal(sfs_create_image(&options, &file), 0);
    assert_int_equal(access("backing.h5", F_OK), -1);
    struct sfs_dataset *dataset = make_dataset(file, "/a");
    assert_int_equal(write_row(dataset, 3, 3), 0);
    assert_int_equal(sfs_flush(file), 0);
    assert_int_equal(sfs_open("backing.h5", NULL, &other), 0);
    struct sfs_dataset *seen = open_dataset(other, "/a");
    assert_int_equal(read_row(seen, 3), 3);
    sfs_dataset_close(seen);
    sfs_close(other);

    assert_int_equal(write_row(dataset, 4, 4), 0);
    sfs_dataset_close(dataset);
    assert_int_equal(sfs_close(file), 0);
    struct bytes bytes = slurp("backing.h5");
    expect_sound(bytes.at, bytes.n);
    assert_int_equal(sfs_open("backing.h5", NULL, &other), 0);
    seen = open_dataset(other, "/a");
    assert_int_equal(read_row(seen, 4), 4);
    sfs_dataset_close(seen);
    sfs_close(other);

    /* A new image may replace it if it is told so; nothing is flushed twice. */
    log_quietly();
    assert_int_equal(sfs_create_image(&options, &file), -EEXIST);
    options.replace = true;
    struct stat first, second;
    assert_int_equal(sfs_create_image(&options, &file), 0);
    assert_int_equal(sfs_flush(file), 0);
    assert_int_equal(stat("backing.h5", &first), 0);
    assert_true((size_t)first.st_size < bytes.n);
    assert_int_equal(sfs_flush(file), 0);
    assert_int_equal(stat("backing.h5", &second), 0);
    assert_int_equal(first.st_ino, second.st_ino);

    /* It cannot be written: the flush says so, and the next one tries again. */
    image.backing_path = "nowhere/backing.h5";
    assert_int_equal(sfs_create_image(&options, &other), 0);
    assert_int_equal(sfs_flush(other), -ENOENT);
    assert_int_equal(mkdir("nowhere", 0700), 0);
    assert_int_equal(sfs_flush(other), 0);
    assert_int_equal(access("nowhere/backing.h5", F_OK), 0);
    assert_int_equal(sfs_close(other), 0);
    assert_int_equal(sfs_close(file), 0);
    free(bytes.at);
}

/* An image that is opened gets a backing file with the first flush, though nothing was written. */
/* Its folder is renamed, and another file gets its name. */
static void a_backing_file_stays_in_its_folder_and_replaces_no_other(void **state)
{
    (void)state;
    struct sfs_image_options image = {.backing_path = "folder/backing.h5"};
    struct sfs_options options = {.image = &image};
    struct sfs_file *file;
    log_quietly();
    assert_int_equal(mkdir("folder", 0700), 0);
    assert_int_equal(sfs_create_image(&options, &file), 0);
    struct sfs_dataset *dataset = make_dataset(file, "/a");
    assert_int_equal(sfs_flush(file), 0);
    assert_int_equal(rename("folder", "renamed"), 0);
    assert_int_equal(write_row(dataset, 3, 3), 0);
    assert_int_equal(sfs_flush(file), 0);

    assert_int_equal(
        system("echo precious > renamed/other && mv renamed/backing.h5 renamed/kept && "
               "mv renamed/other renamed/backing.h5"),
        0);
    assert_int_equal(write_row(dataset, 4, 4), 0);
    assert_int_equal(sfs_flush(file), -EEXIST);
    struct bytes bytes = slurp("renamed/backing.h5");
    assert_memory_equal(bytes.at, "precious\n", 9);
    free(bytes.at);
    assert_int_equal(rename("renamed/kept", "renamed/backing.h5"), 0);
    sfs_dataset_close(dataset);
    assert_int_equal(sfs_close(file), 0);

    assert_int_equal(sfs_open("renamed/backing.h5", NULL, &file), 0);
    dataset = open_dataset(file, "/a");
    assert_int_equal(read_row(dataset, 3), 3);
    assert_int_equal(read_row(dataset, 4), 4);
    sfs_dataset_close(dataset);
    sfs_close(file);
}

/* Also of one that replaces another; and it keeps the one that it is given afterwards. */
static void a_backing_file_has_the_mode_that_was_asked_for(void **state)
{
    (void)state;
    struct sfs_image_options image = {.backing_path = "mode.h5"};
    struct sfs_options options = {.image = &image, .mode = 0600};
    struct sfs_file *file;
    struct stat st;
    for (int i = 0; i < 2; i++) {
        options.replace = i > 0;
        assert_int_equal(sfs_create_image(&options, &file), 0);
        assert_int_equal(sfs_flush(file), 0);
        assert_int_equal(stat("mode.h5", &st), 0);
        assert_int_equal(st.st_mode & 0777, 0600);
        assert_int_equal(chmod("mode.h5", 0644), 0);
        sfs_dataset_close(make_dataset(file, "/a"));
        assert_int_equal(sfs_close(file), 0);
        assert_int_equal(stat("mode.h5", &st), 0);
        assert_int_equal(st.st_mode & 0777, 0644);
    }
}

static void an_opened_image_has_a_backing_file(void **state)
{
    (void)state;
    struct sfs_image_options image = {.backing_path = "opened.h5"};
    struct sfs_options options = {.image = &image};
    struct sfs_file *file;
    struct bytes bytes = slurp("a.h5");
    assert_int_equal(sfs_open_image(bytes.at, bytes.n, SFS_IMAGE_WRITABLE, &options, &file), 0);
    assert_int_equal(access("opened.h5", F_OK), -1);
    assert_int_equal(sfs_close(file), 0);
    assert_int_equal(sfs_open("opened.h5", NULL, &file), 0);
    expect_content(file);
    sfs_close(file);
    free(bytes.at);
}

/* Row i of /more becomes value, with a flush of its own or by closing. */
static int change_loaded(struct sfs_file *file, bool is_new, uint16_t value)
{
    uint64_t address;
    struct sfs_dataset *dataset;
    if (is_new) {
        dataset = make_dataset(file, "/more");
    } else {
        assert_int_equal(sfs_find(file, sfs_root(file), "/more", &address), 0);
        assert_int_equal(sfs_dataset_open(file, address, "/more", &dataset), 0);
    }
    assert_int_equal(write_row(dataset, 0, value), 0);
    sfs_dataset_close(dataset);
    return sfs_flush(file);
}

static void expect_more(const char *path, uint16_t value)
{
    struct sfs_file *file;
    struct sfs_dataset *dataset;
    uint64_t address;
    assert_int_equal(sfs_open(path, NULL, &file), 0);
    expect_content(file);
    assert_int_equal(sfs_find(file, sfs_root(file), "/more", &address), 0);
    assert_int_equal(sfs_dataset_open(file, address, "/more", &dataset), 0);
    assert_int_equal(read_row(dataset, 0), value);
    sfs_dataset_close(dataset);
    sfs_close(file);
}

static void a_file_without_a_name_is_no_backing_file(void **state)
{
    (void)state;
    struct sfs_options options = {.writable = true};
    struct sfs_file *file;
    char path[32];
    log_quietly();
    make_file("nameless.h5", 0, true);
    int fd = open("nameless.h5", O_RDWR);
    assert_int_equal(unlink("nameless.h5"), 0);
    snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
    assert_int_equal(sfs_load_image(path, true, &options, &file), -ENOENT);
    assert_int_equal(sfs_load_image(path, false, &options, &file), 0);
    expect_content(file);
    assert_int_equal(sfs_close(file), 0);
    close(fd);
}

/* Read into memory, changed there, and put in its place by each flush; with its mode and user
 * block. */
static void a_file_that_is_loaded_is_its_own_backing_file(void **state)
{
    (void)state;
    struct counted counters = {0};
    struct sfs_image_callbacks callbacks = counting(&counters);
    struct sfs_image_options image = {.callbacks = &callbacks};
    struct sfs_options options = {.writable = true};
    struct sfs_file *file;
    for (int block = 0; block < 2; block++) {
        options.image = block ? &image : NULL;
        make_file("loaded.h5", block ? 512 : 0, true);
        assert_int_equal(chmod("loaded.h5", 0640), 0);
        struct bytes before = slurp("loaded.h5");
        assert_int_equal(sfs_load_image("loaded.h5", true, &options, &file), 0);
        assert_string_equal(sfs_path(file), "loaded.h5");
        expect_content(file);
        struct bytes same = slurp("loaded.h5");
        assert_int_equal(same.n, before.n);
        assert_memory_equal(same.at, before.at, same.n);
        assert_int_equal(change_loaded(file, true, 7), 0);
        expect_more("loaded.h5", 7);
        assert_int_equal(change_loaded(file, false, 8), 0);
        expect_more("loaded.h5", 8);
        assert_int_equal(sfs_close(file), 0);
        expect_more("loaded.h5", 8);
        struct stat st;
        assert_int_equal(stat("loaded.h5", &st), 0);
        assert_int_equal(st.st_mode & 0777, 0640);
        free(same.at);
        free(before.at);
    }
    assert_int_equal(counters.free, counters.malloc);
    assert_true(counters.malloc > 0);
}

static off_t size_of(const char *path)
{
    struct stat st;
    assert_int_equal(stat(path, &st), 0);
    return st.st_size;
}

/* A row of the sparse dataset, by one who loads the file, and by one who opens it. */
static void rewrite_row(uint64_t i, uint16_t value, bool is_loaded)
{
    struct sfs_options options = {.writable = true};
    struct sfs_file *file;
    int error = is_loaded ? sfs_load_image("loaded.h5", true, &options, &file)
                          : sfs_open("loaded.h5", &options, &file);
    assert_int_equal(error, 0);
    struct sfs_dataset *sparse = open_dataset(file, "/sparse");
    assert_int_equal(write_row(sparse, i % ROWS, value), 0);
    sfs_dataset_close(sparse);
    assert_int_equal(sfs_close(file), 0);
}

/* What one session frees the next one uses, where files have extended attributes. */
static void a_file_that_is_loaded_many_times_does_not_grow(void **state)
{
    (void)state;
    make_file("loaded.h5", 0, true);
    bool has_attributes = setxattr("loaded.h5", "user.sparsefs.test", "", 0, 0) == 0;
    for (uint64_t i = 0; i < 4; i++)
        rewrite_row(i, (uint16_t)i, i % 2);
    off_t before = size_of("loaded.h5");
    for (uint64_t i = 0; i < 200; i++)
        rewrite_row(i, (uint16_t)(3000 + i), i % 8 != 7);
    if (has_attributes)
        assert_in_range(size_of("loaded.h5"), 0, before);
    struct bytes bytes = slurp("loaded.h5");
    expect_sound(bytes.at, bytes.n);
    free(bytes.at);
    struct sfs_file *file;
    assert_int_equal(sfs_open("loaded.h5", NULL, &file), 0);
    struct sfs_dataset *sparse = open_dataset(file, "/sparse");
    for (uint64_t i = 0; i < ROWS; i++)
        assert_int_equal(read_row(sparse, i), 3000 + i + ROWS * ((199 - i) / ROWS));
    sfs_dataset_close(sparse);
    sfs_close(file);
}

static void a_file_that_is_loaded_without_backing_stays(void **state)
{
    (void)state;
    struct sfs_options options = {.writable = true};
    struct sfs_file *file;
    make_file("loaded.h5", 0, false);
    struct bytes before = slurp("loaded.h5");
    assert_int_equal(sfs_load_image("loaded.h5", false, &options, &file), 0);
    assert_int_equal(change_loaded(file, true, 7), 0);
    assert_int_equal(sfs_close(file), 0);
    assert_int_equal(sfs_load_image("loaded.h5", false, NULL, &file), 0);
    assert_false(sfs_is_writable(file));
    expect_content(file);
    sfs_close(file);
    struct bytes after = slurp("loaded.h5");
    assert_int_equal(after.n, before.n);
    assert_memory_equal(after.at, before.at, after.n);
    free(after.at);
    free(before.at);
}

/* Nobody's changes are lost, nor is another file replaced. */
static void a_file_that_was_changed_since_it_was_loaded_stays(void **state)
{
    (void)state;
    struct sfs_options options = {.writable = true};
    struct sfs_file *file, *other;
    make_file("loaded.h5", 0, true);
    assert_int_equal(sfs_load_image("loaded.h5", true, &options, &file), 0);
    assert_int_equal(sfs_open("loaded.h5", &options, &other), 0);
    assert_int_equal(change_loaded(other, true, 9), 0);
    assert_int_equal(change_loaded(file, true, 7), -EBUSY); /* it is being written */
    assert_int_equal(sfs_close(other), 0);
    assert_int_equal(sfs_flush(file), -EBUSY); /* it was changed */
    expect_more("loaded.h5", 9);
    assert_int_equal(rename("loaded.h5", "kept.h5"), 0);
    spill("loaded.h5", "precious", 8);
    assert_int_equal(sfs_flush(file), -EEXIST);
    assert_int_equal(sfs_close(file), -EEXIST);
    struct bytes bytes = slurp("loaded.h5");
    assert_int_equal(bytes.n, 8);
    free(bytes.at);

    struct sfs_image_options named = {.name = "x"}, backed = {.backing_path = "x.h5"};
    options.image = &named;
    assert_int_equal(sfs_load_image("kept.h5", true, &options, &file), -EINVAL);
    options.image = &backed;
    assert_int_equal(sfs_load_image("kept.h5", true, &options, &file), -EINVAL);
    assert_int_equal(sfs_load_image("kept.h5", true, NULL, &file), -EINVAL);
    assert_int_equal(sfs_load_image("loaded.h5", false, NULL, &file), -EINVAL);
    assert_int_equal(sfs_load_image("nowhere.h5", false, NULL, &file), -ENOENT);
}

static void two_images_are_two_files(void **state)
{
    (void)state;
    struct sfs_file *file[2];
    struct sfs_dataset *dataset[2];
    for (int i = 0; i < 2; i++) {
        assert_int_equal(sfs_create_image(NULL, &file[i]), 0);
        dataset[i] = make_dataset(file[i], "/a");
        assert_int_equal(write_row(dataset[i], 0, (uint16_t)(i + 1)), 0);
        assert_int_equal(sfs_flush(file[i]), 0);
    }
    for (int i = 0; i < 2; i++) {
        assert_int_equal(read_row(dataset[i], 0), i + 1);
        sfs_dataset_close(dataset[i]);
        assert_int_equal(sfs_close(file[i]), 0);
    }
}

/* ---- Images of open files ---- */

static void the_image_of_a_file_is_a_whole_file(void **state)
{
    (void)state;
    for (int latest = 0; latest < 2; latest++) {
        for (int writable = 0; writable < 2; writable++) {
            struct sfs_options options = {.writable = writable};
            struct sfs_file *file, *copy;
            make_file("b.h5", 0, latest);
            assert_int_equal(sfs_open("b.h5", &options, &file), 0);
            if (writable) { /* what was not flushed is in it, too */
                struct sfs_dataset *more = make_dataset(file, "/more");
                assert_int_equal(write_row(more, 1, 77), 0);
                sfs_dataset_close(more);
            }
            int64_t n = sfs_get_image(file, NULL, 0);
            assert_true(n > 0);
            unsigned char *image = allocate((size_t)n);
            assert_int_equal(sfs_get_image(file, image, (size_t)n - 1), -ERANGE);
            assert_int_equal(sfs_get_image(file, image, (size_t)n), n);
            assert_int_equal(sfs_close(file), 0);
            struct bytes bytes = slurp("b.h5");
            assert_int_equal(n, bytes.n);
            if (!writable)
                assert_memory_equal(image, bytes.at, bytes.n);
            expect_sound(image, (size_t)n);
            assert_int_equal(sfs_open_image(image, (size_t)n, SFS_IMAGE_DONT_COPY, NULL, &copy), 0);
            expect_content(copy);
            if (writable) {
                struct sfs_dataset *more = open_dataset(copy, "/more");
                assert_int_equal(read_row(more, 1), 77);
                sfs_dataset_close(more);
            }
            sfs_close(copy);
            free(bytes.at);
        }
    }
}

static void a_user_block_is_not_in_the_image(void **state)
{
    (void)state;
    for (int latest = 0; latest < 2; latest++) {
        struct sfs_file *file, *copy;
        make_file("user.h5", 1024, latest);
        assert_int_equal(sfs_open("user.h5", NULL, &file), 0);
        int64_t n = sfs_get_image(file, NULL, 0);
        struct bytes whole = slurp("user.h5");
        assert_int_equal(n, whole.n - 1024);
        unsigned char *image = allocate((size_t)n);
        assert_int_equal(sfs_get_image(file, image, (size_t)n), n);
        assert_memory_equal(image, "\x89HDF\r\n\x1a\n", 8);
        expect_sound(image, (size_t)n);
        assert_int_equal(sfs_open_image(image, (size_t)n, SFS_IMAGE_DONT_COPY, NULL, &copy), 0);
        expect_content(copy);
        sfs_close(copy);
        /* A snapshot has it. */
        struct sfs_snapshot *snapshot;
        assert_int_equal(sfs_snapshot_open(file, &snapshot), 0);
        assert_int_equal(sfs_snapshot_size(snapshot), whole.n);
        image = allocate(whole.n);
        assert_int_equal(sfs_snapshot_read(snapshot, 0, image, whole.n), 0);
        assert_memory_equal(image, whole.at, whole.n);
        sfs_snapshot_close(snapshot);
        sfs_close(file);
        free(image);
        free(whole.at);
    }
}

/* libhdf5 reads the image with its own driver for files in memory. */
static void libhdf5_takes_our_image(void **state)
{
    (void)state;
    struct sfs_file *file;
    uint16_t values[ROWS][COLUMNS];
    assert_int_equal(sfs_open("a.h5", NULL, &file), 0);
    size_t n = (size_t)sfs_get_image(file, NULL, 0);
    unsigned char *image = allocate(n);
    assert_int_equal(sfs_get_image(file, image, n), n);
    sfs_close(file);
    hid_t fapl = H5Pcreate(H5P_FILE_ACCESS);
    H5Pset_fapl_core(fapl, 1 << 16, false);
    assert_true(H5Pset_file_image(fapl, image, n) >= 0);
    hid_t id = H5Fopen("in memory", H5F_ACC_RDONLY, fapl);
    hid_t dataset = H5Dopen2(id, "dense", H5P_DEFAULT);
    assert_true(H5Dread(dataset, H5T_NATIVE_UINT16, H5S_ALL, H5S_ALL, H5P_DEFAULT, values) >= 0);
    assert_int_equal(values[63][31], 1063);
    H5Dclose(dataset);
    H5Fclose(id);
    H5Pclose(fapl);
    free(image);
}

/* ---- Threads ---- */

static atomic_bool enough;

struct work {
    struct sfs_file *file;
    struct sfs_dataset *dataset;
    uint64_t first;
};

static void *write_rows(void *data)
{
    const struct work *work = data;
    for (uint16_t round = 1; !atomic_load(&enough); round++) {
        for (uint64_t i = work->first; i < ROWS; i += 2)
            if (write_row(work->dataset, i, round))
                abort();
        if (sfs_flush(work->file))
            abort();
    }
    return NULL;
}

/* The stored bytes past the cache are those of one chunk, too. */
static void read_stored_row(struct sfs_dataset *dataset, uint64_t i)
{
    uint64_t start[2] = {i, 0};
    struct sfs_chunk_info info;
    uint16_t values[COLUMNS];
    int error = sfs_chunk_info(dataset, start, &info);
    if (!error)
        error = sfs_read_chunk(dataset, &info, (void *const[SFS_SECTIONS]){NULL, values});
    assert_true(error == 0 || error == -ENOENT || error == -ESTALE);
    for (int k = 1; k < COLUMNS && !error; k++)
        assert_int_equal(values[k], values[0]);
}

static void *read_rows(void *data)
{
    const struct work *work = data;
    while (!atomic_load(&enough))
        for (uint64_t i = 0; i < ROWS; i++) {
            read_row(work->dataset, i);
            read_stored_row(work->dataset, i);
        }
    return NULL;
}

/* The buffer grows and moves while others read it; images of it are taken meanwhile. */
static void an_image_is_written_and_read_by_many(void **state)
{
    (void)state;
    struct sfs_file *file, *copy;
    assert_int_equal(sfs_create_image(NULL, &file), 0);
    struct sfs_dataset *dataset = make_dataset(file, "/a");
    struct work work[2] = {{file, dataset, 0}, {file, dataset, 1}};
    pthread_t threads[4];
    for (int i = 0; i < 4; i++)
        start_thread(&threads[i], i < 2 ? write_rows : read_rows, &work[i % 2]);
    for (int i = 0; i < 20; i++) {
        size_t size = (size_t)sfs_get_image(file, NULL, 0) + (1 << 20);
        unsigned char *image = allocate(size);
        int64_t n = sfs_get_image(file, image, size);
        assert_true(n > 0);
        expect_sound(image, (size_t)n);
        assert_int_equal(sfs_open_image(image, (size_t)n, SFS_IMAGE_DONT_COPY, NULL, &copy), 0);
        struct sfs_dataset *seen = open_dataset(copy, "/a");
        for (uint64_t r = 0; r < ROWS; r++)
            read_row(seen, r);
        sfs_dataset_close(seen);
        sfs_close(copy);
    }
    atomic_store(&enough, true);
    for (int i = 0; i < 4; i++)
        pthread_join(threads[i], NULL);
    sfs_dataset_close(dataset);
    assert_int_equal(sfs_close(file), 0);
}

TEST_MAIN(cmocka_unit_test(an_image_is_copied_once),
          cmocka_unit_test(an_image_that_is_given_away_is_freed_and_never_copied),
          cmocka_unit_test(an_image_that_is_lent_is_left_alone),
          cmocka_unit_test(an_image_that_is_read_is_lent_itself),
          cmocka_unit_test(a_lent_image_is_written_in_place_and_does_not_grow),
          cmocka_unit_test(a_writable_copy_leaves_the_buffer_alone),
          cmocka_unit_test(an_image_grows_and_is_handed_back),
          cmocka_unit_test(what_is_discarded_is_as_it_was_flushed),
          cmocka_unit_test(a_buffer_of_many_sessions_keeps_its_size),
          cmocka_unit_test(a_lent_image_takes_as_much_as_it_had),
          cmocka_unit_test(a_buffer_of_changing_chunks_stays_small),
          cmocka_unit_test(nothing_of_a_buffer_changes_before_a_flush),
          cmocka_unit_test(nothing_is_unused_where_structures_overlap),
          cmocka_unit_test(what_others_put_into_an_image_stays),
          cmocka_unit_test(bytes_of_an_image_may_be_anything),
          cmocka_unit_test(what_cannot_be_is_refused),
          cmocka_unit_test(an_image_may_have_the_name_of_its_file),
          cmocka_unit_test(what_is_no_hdf5_is_refused),
          cmocka_unit_test(a_buffer_that_is_large_enough_is_enough),
          cmocka_unit_test(callbacks_may_fail),
          cmocka_unit_test(a_new_image_can_be_made_in_a_static_buffer),
          cmocka_unit_test(a_backing_file_is_written_by_every_flush),
          cmocka_unit_test(a_backing_file_stays_in_its_folder_and_replaces_no_other),
          cmocka_unit_test(a_backing_file_has_the_mode_that_was_asked_for),
          cmocka_unit_test(an_opened_image_has_a_backing_file),
          cmocka_unit_test(a_file_without_a_name_is_no_backing_file),
          cmocka_unit_test(a_file_that_is_loaded_is_its_own_backing_file),
          cmocka_unit_test(a_file_that_is_loaded_many_times_does_not_grow),
          cmocka_unit_test(a_file_that_is_loaded_without_backing_stays),
          cmocka_unit_test(a_file_that_was_changed_since_it_was_loaded_stays),
          cmocka_unit_test(two_images_are_two_files),
          cmocka_unit_test(the_image_of_a_file_is_a_whole_file),
          cmocka_unit_test(a_user_block_is_not_in_the_image),
          cmocka_unit_test(libhdf5_takes_our_image),
          cmocka_unit_test(an_image_is_written_and_read_by_many), )
