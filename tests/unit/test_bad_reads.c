/* A file that is written, on a disk of which some reads fail: what failed is reported, and when the
 * disk is well all is as it was. libhdf5, which takes half of what it wanted to read for the whole,
 * opens the file again then; reads fail in the midst of that, too.
 *
 * And virtual datasets whose sources cannot be opened or read, for want of descriptors, too, or of
 * a system call: that is not the fill value. */
#include "support.h"

#include <errno.h>
#include <fcntl.h>
#include <hdf5.h>
#include <limits.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <stdarg.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "sparsefs/sparsefs.h"

#define PATH     "bad_reads.h5"
#define FRESH    "fresh.h5"
#define FRAMES   5
#define SIDE     16
#define ELEMENTS ((size_t)FRAMES * SIDE * SIDE)

/* ---- The disk ---- */

enum call { READ, OPEN, LOOK };

static enum call bad_call;
static atomic_long until_bad; /* such calls that succeed before one that does not */
static atomic_bool stays_bad; /* nor does any later one */

static bool is_bad(enum call call)
{
    if (call != bad_call)
        return false;
    long left = atomic_fetch_sub(&until_bad, 1);
    return left == 0 || (left < 0 && atomic_load(&stays_bad));
}

ssize_t __real_pread64(int fd, void *buffer, size_t n, off_t offset);
ssize_t __wrap_pread64(int fd, void *buffer, size_t n, off_t offset);

ssize_t __wrap_pread64(int fd, void *buffer, size_t n, off_t offset)
{
    if (is_bad(READ)) {
        errno = EIO;
        return -1;
    }
    return __real_pread64(fd, buffer, n, offset);
}

int __real_openat64(int folder, const char *path, int flags, ...);
int __wrap_openat64(int folder, const char *path, int flags, ...);

int __wrap_openat64(int folder, const char *path, int flags, ...)
{
    va_list arguments;
    va_start(arguments, flags);
    mode_t mode = flags & (O_CREAT | O_TMPFILE) ? va_arg(arguments, mode_t) : 0;
    va_end(arguments);
    if (is_bad(OPEN)) {
        errno = EMFILE;
        return -1;
    }
    return __real_openat64(folder, path, flags, mode);
}

/* Linux before 4.11 has no such call, and some containers shut it off. */
int __real_statx(int fd, const char *path, int flags, unsigned mask, struct statx *st);
int __wrap_statx(int fd, const char *path, int flags, unsigned mask, struct statx *st);

int __wrap_statx(int fd, const char *path, int flags, unsigned mask, struct statx *st)
{
    if (is_bad(LOOK)) {
        errno = ENOSYS;
        return -1;
    }
    return __real_statx(fd, path, flags, mask, st);
}

/* The n-th read from now on fails, and then (stays) all. */
static void fail_read(long n, bool stays)
{
    atomic_store(&stays_bad, stays);
    atomic_store(&until_bad, n);
}

static bool has_failed(void)
{
    return atomic_load(&until_bad) < 0;
}

static void be_well(void)
{
    fail_read(LONG_MAX, false);
}

/* ---- The file ---- */

static const char *const paths[] = {"/chunked", "/contiguous", "/sparse"};

static void fill(uint16_t *values, size_t which)
{
    for (size_t i = 0; i < ELEMENTS; i++)
        values[i] = (uint16_t)(i * (which + 3));
}

static void make_dense(hid_t file, size_t which, bool is_chunked)
{
    const hsize_t dims[] = {FRAMES, SIDE, SIDE}, chunk[] = {1, SIDE, SIDE};
    const hsize_t most[] = {H5S_UNLIMITED, SIDE, SIDE};
    uint16_t values[ELEMENTS];
    hid_t dcpl = H5Pcreate(H5P_DATASET_CREATE);
    hid_t space = H5Screate_simple(3, dims, is_chunked ? most : dims);
    if (is_chunked)
        assert_true(H5Pset_chunk(dcpl, 3, chunk) >= 0 && H5Pset_deflate(dcpl, 1) >= 0);
    hid_t dataset =
        H5Dcreate2(file, paths[which], H5T_STD_U16LE, space, H5P_DEFAULT, dcpl, H5P_DEFAULT);
    fill(values, which);
    assert_true(H5Dwrite(dataset, H5T_NATIVE_UINT16, H5S_ALL, H5S_ALL, H5P_DEFAULT, values) >= 0);
    H5Dclose(dataset);
    H5Sclose(space);
    H5Pclose(dcpl);
}

static struct sfs_file *open_writable(void)
{
    struct sfs_options options = {.writable = true, .cache_size = 1 << 20, .workers = 1};
    struct sfs_file *file;
    assert_int_equal(sfs_open(PATH, &options, &file), 0);
    return file;
}

static int create_sparse(struct sfs_file *file, const char *path, struct sfs_dataset **dataset)
{
    struct sfs_dataset_create create = {.rank = 3,
                                        .dims = {FRAMES, SIDE, SIDE},
                                        .max_dims = {FRAMES, SIDE, SIDE},
                                        .chunk_dims = {1, SIDE, SIDE}};
    void *type;
    assert_int_equal(sfs_type_encode("<u2", &type, &create.type.n), 0);
    create.type.bytes = type;
    int error = sfs_dataset_create(file, path, &create, dataset);
    free(type);
    return error;
}

static void make_sparse(size_t which)
{
    struct sfs_slab all = {.rank = 3, .count = {FRAMES, SIDE, SIDE}};
    struct sfs_file *file = open_writable();
    struct sfs_dataset *dataset;
    uint16_t values[ELEMENTS];
    assert_int_equal(create_sparse(file, paths[which], &dataset), 0);
    fill(values, which);
    assert_int_equal(sfs_write(dataset, &all, values), 0);
    sfs_dataset_close(dataset);
    assert_int_equal(sfs_close(file), 0);
}

static void make_file(bool latest)
{
    hid_t fapl = H5Pcreate(H5P_FILE_ACCESS);
    if (latest)
        H5Pset_libver_bounds(fapl, H5F_LIBVER_LATEST, H5F_LIBVER_LATEST);
    hid_t file = H5Fcreate(PATH, H5F_ACC_TRUNC, H5P_DEFAULT, fapl);
    make_dense(file, 0, true);
    make_dense(file, 1, false);
    H5Pclose(fapl);
    assert_true(H5Fclose(file) >= 0);
    make_sparse(2);
}

static void copy_fresh(void)
{
    static char bytes[1 << 20];
    FILE *from = fopen(FRESH, "r"), *to = fopen(PATH, "w");
    assert_true(from && to);
    size_t n = fread(bytes, 1, sizeof(bytes), from);
    assert_in_range(n, 1, sizeof(bytes) - 1);
    assert_int_equal(fwrite(bytes, 1, n, to), n);
    fclose(from);
    assert_int_equal(fclose(to), 0);
}

/* ---- Tests ---- */

static int read_all(struct sfs_file *file, size_t which, uint16_t *values)
{
    struct sfs_slab all = {.rank = 3, .count = {FRAMES, SIDE, SIDE}};
    struct sfs_dataset *dataset;
    uint64_t address;
    int error = sfs_find(file, sfs_root(file), paths[which], &address);
    if (!error)
        error = sfs_dataset_open(file, address, paths[which], &dataset);
    if (error)
        return error;
    error = sfs_read(dataset, &all, 0, values, ELEMENTS * sizeof(*values));
    sfs_dataset_close(dataset);
    return error;
}

/* Either it is an error, or right. */
static int look(struct sfs_file *file, size_t which)
{
    uint16_t values[ELEMENTS], expected[ELEMENTS];
    int error = read_all(file, which, values);
    fill(expected, which);
    if (!error)
        assert_memory_equal(values, expected, sizeof(values));
    return error;
}

static void look_at_all(struct sfs_file *file)
{
    for (size_t i = 0; i < COUNT(paths); i++)
        assert_int_equal(look(file, i), 0);
}

/* What is written after it is in the file, and in the right place. */
static void write_one(struct sfs_file *file)
{
    const uint16_t value = 3; /* as it is, of the first dataset */
    struct sfs_slab one = {.rank = 3, .start = {0, 0, 1}, .count = {1, 1, 1}};
    struct sfs_dataset *dataset;
    uint64_t address;
    assert_int_equal(sfs_find(file, sfs_root(file), paths[0], &address), 0);
    assert_int_equal(sfs_dataset_open(file, address, paths[0], &dataset), 0);
    assert_int_equal(sfs_write(dataset, &one, &value), 0);
    sfs_dataset_close(dataset);
}

/* The first-th read fails, and then the second-th, or all from that on. Whether the second was
 * reached; *more: the first was. */
static bool fail_two(long first, long second, bool stays, bool *more)
{
    struct sfs_dataset *dataset;
    uint64_t address;
    copy_fresh();
    struct sfs_file *file = open_writable();
    size_t which = (size_t)(first + second) % COUNT(paths);
    fail_read(first, false);
    for (size_t i = 0; i < COUNT(paths); i++)
        (void)look(file, (which + i) % COUNT(paths));
    *more = has_failed();
    fail_read(second, stays);
    for (size_t i = 0; i < COUNT(paths); i++)
        (void)look(file, i);
    int made = sfs_group_create(file, "/group/of/groups");
    if (create_sparse(file, "/new", &dataset) == 0)
        sfs_dataset_close(dataset);
    (void)sfs_flush(file);
    bool reached = has_failed();
    be_well();
    look_at_all(file);
    assert_int_equal(sfs_flush(file), 0);
    write_one(file);
    look_at_all(file);
    assert_int_equal(sfs_close(file), 0);
    file = open_writable();
    look_at_all(file);
    if (!made)
        assert_int_equal(sfs_find(file, sfs_root(file), "/group/of/groups", &address), 0);
    assert_int_equal(sfs_close(file), 0);
    return reached;
}

static void a_read_that_fails_leaves_nothing_behind(void **state)
{
    (void)state;
    log_quietly();
    for (int i = 0; i < 4; i++) {
        bool more = true, latest = i & 1, stays = i & 2;
        be_well();
        make_file(latest);
        assert_int_equal(rename(PATH, FRESH), 0);
        for (long first = 0; more; first += stays ? 5 : 1)
            for (long second = 0; fail_two(first, second, stays, &more) && more; second++)
                ;
    }
}

/* ---- The check ---- */

struct findings {
    unsigned n; /* that are not sound */
    char last[4096];
};

static void keep_finding(void *context, enum sfs_finding finding, const char *line)
{
    struct findings *findings = context;
    assert_false(strncmp(line, PATH, strlen(PATH)) == 0);
    if (finding == SFS_SOUND)
        return;
    findings->n++;
    snprintf(findings->last, sizeof(findings->last), "%s", line);
}

/* The n-th read fails. Whether it was reached. */
static bool check_badly(long n, struct findings *findings)
{
    struct sfs_file *file;
    *findings = (struct findings){0};
    assert_int_equal(sfs_open(PATH, NULL, &file), 0);
    fail_read(n, false);
    assert_int_equal(sfs_check(file, keep_finding, findings), 0);
    bool reached = has_failed();
    be_well();
    sfs_discard(file);
    return reached;
}

static void what_the_check_cannot_read_is_a_finding_that_says_why(void **state)
{
    (void)state;
    struct findings findings;
    unsigned chunks = 0, headers = 0;
    log_quietly();
    be_well();
    make_file(true);
    unsigned errors = log_errors();
    for (long n = 0; check_badly(n, &findings); n++) {
        bool says = strstr(findings.last, ": Input/output error");
        bool is_chunk = says && strstr(findings.last, "/sparse: chunk (") == findings.last;
        headers += says && strstr(findings.last, "object header at address");
        chunks += is_chunk;
        if (is_chunk) /* not in the log */
            assert_true(findings.n == 1 && log_errors() == errors);
        errors = log_errors();
    }
    assert_int_equal(findings.n, 0);
    assert_int_equal(chunks, FRAMES);
    assert_true(headers > 0);
}

/* ---- Virtual datasets ---- */

#define MAPPINGS 600 /* more than are looked at between two questions */
#define SOURCES  2
#define WIDTH    6

/* Of the other byte order, so that libhdf5 has to read them, and of the same. */
static void make_virtual(bool is_converted)
{
    const hsize_t dims[] = {SOURCES, WIDTH}, width = WIDTH;
    const uint16_t nothing = 99;
    hid_t whole = H5Screate_simple(2, dims, NULL), row = H5Screate_simple(1, &width, NULL);
    hid_t dcpl = H5Pcreate(H5P_DATASET_CREATE), fapl = H5Pcreate(H5P_FILE_ACCESS);
    hid_t type = is_converted ? H5T_STD_U16BE : H5T_STD_U16LE;
    H5Pset_libver_bounds(fapl, H5F_LIBVER_LATEST, H5F_LIBVER_LATEST);
    H5Pset_fill_value(dcpl, H5T_NATIVE_UINT16, &nothing);
    for (hsize_t i = 0; i < SOURCES; i++) {
        const hsize_t start[] = {i, 0}, count[] = {1, WIDTH};
        uint16_t values[WIDTH];
        char name[] = "source0.h5";
        name[6] = (char)('0' + i);
        for (size_t k = 0; k < WIDTH; k++)
            values[k] = (uint16_t)(i * WIDTH + k + 1);
        hid_t file = H5Fcreate(name, H5F_ACC_TRUNC, H5P_DEFAULT, fapl);
        hid_t dataset = H5Dcreate2(file, "s", type, row, H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT);
        assert_true(H5Dwrite(dataset, H5T_NATIVE_UINT16, H5S_ALL, H5S_ALL, H5P_DEFAULT, values) >=
                    0);
        H5Dclose(dataset);
        H5Fclose(file);
        H5Sselect_hyperslab(whole, H5S_SELECT_SET, start, NULL, count, NULL);
        assert_true(H5Pset_virtual(dcpl, whole, name, "s", row) >= 0);
    }
    H5Sselect_all(whole);
    hid_t file = H5Fcreate(PATH, H5F_ACC_TRUNC, H5P_DEFAULT, fapl);
    H5Dclose(H5Dcreate2(file, "v", H5T_STD_U16LE, whole, H5P_DEFAULT, dcpl, H5P_DEFAULT));
    H5Pclose(dcpl);
    H5Pclose(fapl);
    H5Sclose(row);
    H5Sclose(whole);
    assert_true(H5Fclose(file) >= 0);
}

/* Either it is an error, or right. */
static int look_at_virtual(struct sfs_dataset *dataset)
{
    struct sfs_slab all = {.rank = 2, .count = {SOURCES, WIDTH}};
    uint16_t values[SOURCES * WIDTH];
    int error = sfs_read(dataset, &all, 0, values, sizeof(values));
    for (size_t i = 0; i < SOURCES * WIDTH && !error; i++)
        assert_int_equal(values[i], i + 1);
    return error;
}

/* The n-th call of a kind fails, or all from that on. Whether it was reached. */
static bool fail_in_sources(enum call call, long n, bool stays, const struct sfs_options *options)
{
    struct sfs_file *file;
    struct sfs_dataset *dataset;
    uint64_t address;
    assert_int_equal(sfs_open(PATH, options, &file), 0);
    assert_int_equal(sfs_find(file, sfs_root(file), "/v", &address), 0);
    assert_int_equal(sfs_dataset_open(file, address, "/v", &dataset), 0);
    bad_call = call;
    fail_read(n, stays);
    int error = look_at_virtual(dataset);
    bool reached = has_failed();
    be_well();
    if (stays && n == 0)
        assert_int_equal(error, -EIO);
    assert_int_equal(look_at_virtual(dataset), 0);
    sfs_dataset_close(dataset);
    assert_int_equal(sfs_close(file), 0);
    bad_call = READ;
    return reached;
}

/* Nor with the option by which sources that are missing are. */
static void sources_that_cannot_be_read_are_no_fill_value(void **state)
{
    (void)state;
    log_quietly();
    be_well();
    for (int i = 0; i < 16; i++) {
        struct sfs_options options = {
            .writable = i & 1, .fill_missing = i & 2, .cache_size = 1 << 20, .workers = 1};
        bool stays = i & 4;
        make_virtual(i & 8);
        for (enum call call = READ; call <= LOOK; call++) {
            long n = 0;
            while (fail_in_sources(call, n, stays, &options))
                n++;
            assert_in_range(n, 1, 1000);
        }
    }
}

/* That many questions are answered with no. */
static bool is_wanted_no_more(void *context)
{
    unsigned *left = context;
    return *left == 0 || (--*left, false);
}

/* Of so many parts that it is asked for while they are looked at. */
static void make_patched(void)
{
    const hsize_t dims = MAPPINGS, one = 1;
    hid_t whole = H5Screate_simple(1, &dims, NULL), part = H5Screate_simple(1, &one, NULL);
    hid_t dcpl = H5Pcreate(H5P_DATASET_CREATE);
    for (hsize_t i = 0; i < dims; i++) {
        H5Sselect_hyperslab(whole, H5S_SELECT_SET, &i, NULL, &one, NULL);
        assert_true(H5Pset_virtual(dcpl, whole, "nowhere.h5", "s", part) >= 0);
    }
    H5Sselect_all(whole);
    hid_t file = H5Fcreate(PATH, H5F_ACC_TRUNC, H5P_DEFAULT, H5P_DEFAULT);
    H5Dclose(H5Dcreate2(file, "v", H5T_STD_U16LE, whole, H5P_DEFAULT, dcpl, H5P_DEFAULT));
    H5Pclose(dcpl);
    H5Sclose(part);
    H5Sclose(whole);
    assert_true(H5Fclose(file) >= 0);
}

static void a_check_that_is_interrupted_finds_nothing(void **state)
{
    (void)state;
    struct findings findings = {0};
    struct sfs_file *file;
    unsigned n = 0, interrupted = 0;
    be_well();
    make_patched();
    for (int error = -EINTR; error; n++) {
        unsigned left = n;
        assert_int_equal(sfs_open(PATH, NULL, &file), 0);
        sfs_set_interrupt(is_wanted_no_more, &left);
        error = sfs_check(file, keep_finding, &findings);
        sfs_set_interrupt(NULL, NULL);
        assert_true(error == 0 || error == -EINTR);
        assert_int_equal(findings.n, 0);
        interrupted += error == -EINTR;
        sfs_discard(file);
    }
    assert_true(interrupted > 0);
}

/* While its parts are taken, each of which may take long. */
static void opening_that_is_interrupted_ends(void **state)
{
    (void)state;
    struct sfs_file *file;
    struct sfs_dataset *dataset;
    unsigned left = MAPPINGS / 2;
    uint64_t address;
    be_well();
    make_patched();
    assert_int_equal(sfs_open(PATH, NULL, &file), 0);
    assert_int_equal(sfs_find(file, sfs_root(file), "/v", &address), 0);
    sfs_set_interrupt(is_wanted_no_more, &left);
    int error = sfs_dataset_open(file, address, "/v", &dataset);
    sfs_set_interrupt(NULL, NULL);
    assert_int_equal(error, -EINTR);
    assert_int_equal(sfs_dataset_open(file, address, "/v", &dataset), 0);
    sfs_dataset_close(dataset);
    sfs_discard(file);
}

/* The path of a source has so many parts, only the last of which is not there. */
static void looking_for_a_source_that_is_interrupted_ends(void **state)
{
    (void)state;
    enum { PARTS = 5000 };
    const hsize_t dims = 1;
    struct sfs_slab all = {.rank = 1, .count = {1}};
    struct sfs_file *file;
    struct sfs_dataset *dataset;
    unsigned left = PARTS / 2;
    uint64_t address;
    uint16_t value;
    char path[2 * PARTS + 2], *end = path;
    for (int i = 0; i < PARTS; i++)
        end = stpcpy(end, "a/");
    strcpy(end, "x");
    be_well();
    hid_t space = H5Screate_simple(1, &dims, NULL), dcpl = H5Pcreate(H5P_DATASET_CREATE);
    hid_t made = H5Fcreate(PATH, H5F_ACC_TRUNC, H5P_DEFAULT, H5P_DEFAULT);
    assert_true(H5Lcreate_hard(made, "/", made, "a", H5P_DEFAULT, H5P_DEFAULT) >= 0);
    assert_true(H5Pset_virtual(dcpl, space, ".", path, space) >= 0);
    H5Dclose(H5Dcreate2(made, "v", H5T_STD_U16LE, space, H5P_DEFAULT, dcpl, H5P_DEFAULT));
    H5Pclose(dcpl);
    H5Sclose(space);
    assert_true(H5Fclose(made) >= 0);

    assert_int_equal(sfs_open(PATH, NULL, &file), 0);
    assert_int_equal(sfs_find(file, sfs_root(file), "/v", &address), 0);
    assert_int_equal(sfs_dataset_open(file, address, "/v", &dataset), 0);
    sfs_set_interrupt(is_wanted_no_more, &left);
    int error = sfs_read(dataset, &all, 0, &value, sizeof(value));
    sfs_set_interrupt(NULL, NULL);
    assert_int_equal(error, -EINTR);
    log_quietly();
    assert_int_equal(sfs_read(dataset, &all, 0, &value, sizeof(value)), -EIO);
    sfs_dataset_close(dataset);
    sfs_discard(file);
}

#define NUMBERED 4000

/* Of pairs that are in so many files, none of which is there: the first element, or it and the last. */
static void make_numbered(hid_t type, bool with_last)
{
    const hsize_t zero[2] = {0}, one[] = {1, 1}, pair[] = {1, 2}, all[] = {NUMBERED, 2};
    const hsize_t none[] = {H5S_UNLIMITED, 2}, blocks[] = {H5S_UNLIMITED, 1}, n = with_last ? 2 : 1;
    const hsize_t last_pair[] = {NUMBERED - 1, 0}, last[] = {NUMBERED - 1, 1};
    hid_t dcpl[] = {H5Pcreate(H5P_DATASET_CREATE), H5Pcreate(H5P_DATASET_CREATE)};
    hid_t numbered = H5Screate_simple(2, all, none), end = H5Screate_simple(2, all, none);
    hid_t part = H5Screate_simple(2, pair, NULL), shown = H5Screate_simple(1, &n, NULL);
    hid_t file = H5Fcreate(PATH, H5F_ACC_TRUNC, H5P_DEFAULT, H5P_DEFAULT);
    H5Sselect_hyperslab(numbered, H5S_SELECT_SET, zero, one, blocks, pair);
    H5Sselect_hyperslab(end, H5S_SELECT_SET, last_pair, NULL, one, pair);
    assert_true(H5Pset_virtual(dcpl[0], numbered, "gone%b.h5", "s", part) >= 0);
    assert_true(H5Pset_virtual(dcpl[0], end, "gone.h5", "s", part) >= 0);
    H5Dclose(H5Dcreate2(file, "b", type, end, H5P_DEFAULT, dcpl[0], H5P_DEFAULT));
    H5Sselect_hyperslab(end, H5S_SELECT_SET, zero, NULL, one, NULL);
    if (with_last)
        H5Sselect_hyperslab(end, H5S_SELECT_OR, last, NULL, one, NULL);
    assert_true(H5Pset_virtual(dcpl[1], shown, ".", "b", end) >= 0);
    H5Dclose(H5Dcreate2(file, "a", type, shown, H5P_DEFAULT, dcpl[1], H5P_DEFAULT));
    H5Sclose(shown);
    H5Sclose(part);
    H5Sclose(end);
    H5Sclose(numbered);
    H5Pclose(dcpl[0]);
    H5Pclose(dcpl[1]);
    assert_true(H5Fclose(file) >= 0);
}

/* How often it was asked, and what became of it. */
static unsigned ask_for_sources(bool as_text, unsigned left, int *error)
{
    const unsigned most = left;
    struct sfs_file *file;
    struct sfs_dataset *dataset;
    struct sfs_sources sources;
    char *text;
    size_t n;
    uint64_t address;
    assert_int_equal(sfs_open(PATH, NULL, &file), 0);
    assert_int_equal(sfs_find(file, sfs_root(file), "/a", &address), 0);
    assert_int_equal(sfs_dataset_open(file, address, "/a", &dataset), 0);
    sfs_set_interrupt(is_wanted_no_more, &left);
    *error = as_text ? sfs_text(dataset, 1 << 20, &text, &n)
                     : sfs_virtual_sources(dataset, 10, &sources);
    sfs_set_interrupt(NULL, NULL);
    if (!*error && as_text)
        free(text);
    else if (!*error)
        sfs_sources_free(&sources);
    sfs_dataset_close(dataset);
    sfs_discard(file);
    return most - left;
}

/* Of a source that is virtual, and of which libhdf5 would follow each: after each it can end. */
static void looking_for_many_missing_sources_is_interrupted(void **state)
{
    (void)state;
    hid_t string = H5Tcopy(H5T_C_S1);
    int error;
    log_quietly();
    be_well();
    assert_true(H5Tset_size(string, H5T_VARIABLE) >= 0);
    for (int as_text = 0; as_text < 2; as_text++) {
        make_numbered(as_text ? string : H5T_STD_U16LE, !as_text);
        unsigned asked = ask_for_sources(as_text, UINT_MAX, &error);
        assert_int_equal(error, 0);
        assert_true(asked >= (as_text ? 1 : 2) * NUMBERED); /* the others are looked at once more */
        for (unsigned left = 0; left < asked; left += NUMBERED / 4) {
            assert_int_equal(ask_for_sources(as_text, left, &error), left);
            assert_int_equal(error, -EINTR);
        }
    }
    H5Tclose(string);
}

/* Overwrites n bytes of the second source; keeps them. */
static void spoil(uint64_t address, char *kept, size_t n)
{
    static const char zeros[512];
    int fd = open("source1.h5", O_RDWR);
    assert_true(n <= sizeof(zeros));
    assert_int_equal(pread(fd, kept, n, (off_t)address), n);
    assert_int_equal(pwrite(fd, zeros, n, (off_t)address), n);
    close(fd);
}

static void mend(uint64_t address, const char *kept, size_t n)
{
    int fd = open("source1.h5", O_RDWR);
    assert_int_equal(pwrite(fd, kept, n, (off_t)address), n);
    close(fd);
}

/* Of a source that stays bad the log has what is wrong when it is read first, and then nothing. */
static void read_spoilt(uint64_t address, size_t n)
{
    struct sfs_file *file;
    struct sfs_dataset *dataset;
    uint64_t virtual;
    char kept[512];
    spoil(address, kept, n);
    assert_int_equal(sfs_open(PATH, NULL, &file), 0);
    assert_int_equal(sfs_find(file, sfs_root(file), "/v", &virtual), 0);
    assert_int_equal(sfs_dataset_open(file, virtual, "/v", &dataset), 0);
    unsigned errors = log_errors();
    assert_int_equal(look_at_virtual(dataset), -EIO);
    assert_int_equal(log_errors(), errors + 2); /* what is wrong; whose source it is */
    for (int i = 0; i < 3; i++)
        assert_int_equal(look_at_virtual(dataset), -EIO);
    assert_int_equal(log_errors(), errors + 2);
    mend(address, kept, n);
    sfs_dataset_close(dataset);
    assert_int_equal(sfs_close(file), 0);
}

static void what_is_wrong_with_a_source_is_logged_once(void **state)
{
    (void)state;
    struct sfs_file *source;
    uint64_t address;
    log_quietly();
    be_well();
    make_virtual(false);
    assert_int_equal(sfs_open("source1.h5", NULL, &source), 0);
    assert_int_equal(sfs_find(source, sfs_root(source), "/s", &address), 0);
    sfs_discard(source);
    read_spoilt(0, 64);       /* no HDF5 file */
    read_spoilt(address, 64); /* no object */
}

/* The disk is at fault, not the file. */
static void what_cannot_be_read_is_not_called_damaged(void **state)
{
    (void)state;
    struct sfs_recovery recovery;
    bool fails = true;
    log_quietly();
    be_well();
    bad_call = READ;
    make_file(false);
    for (long n = 0; fails; n++) {
        fail_read(n, true);
        int error = sfs_recover(PATH, &recovery);
        fails = has_failed();
        be_well();
        if (error || !fails) /* what only says where a commit is may be missing */
            assert_int_equal(error, fails ? -EIO : 0);
    }
}

TEST_MAIN(cmocka_unit_test(a_read_that_fails_leaves_nothing_behind),
          cmocka_unit_test(what_cannot_be_read_is_not_called_damaged),
          cmocka_unit_test(what_the_check_cannot_read_is_a_finding_that_says_why),
          cmocka_unit_test(what_is_wrong_with_a_source_is_logged_once),
          cmocka_unit_test(sources_that_cannot_be_read_are_no_fill_value),
          cmocka_unit_test(a_check_that_is_interrupted_finds_nothing),
          cmocka_unit_test(opening_that_is_interrupted_ends),
          cmocka_unit_test(looking_for_a_source_that_is_interrupted_ends),
          cmocka_unit_test(looking_for_many_missing_sources_is_interrupted))
