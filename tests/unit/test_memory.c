/* What happens when memory runs out: the n-th allocation of our code fails, for every n. Every call
 * must succeed or return -ENOMEM, and under the address sanitizer nothing may leak. The linker puts
 * __wrap_malloc and so on between our libraries, but not libhdf5, and the real ones. */
#include "support.h"

#include <errno.h>
#include <hdf5.h>
#include <malloc.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <sys/mman.h>
#include <unistd.h>
#include <zlib.h>

#include "common/load_stdin_or_gzip.h"
#include "filter/filter.h"
#include "format/section_heap.h"
#include "hdf5/hdf5.h"
#include "index_files.h"
#include "selection/selection.h"
#include "sparsefs/sparsefs.h"
#include "store/store.h"
#include "view/view.h"

/* Allocations until one fails; beyond 0 none does. Those smaller than `smallest` do not count. */
static atomic_long until_failure = -1;
static atomic_size_t smallest;

static bool fails(size_t n)
{
    return n >= atomic_load(&smallest) && atomic_fetch_sub(&until_failure, 1) == 0;
}

/* Bytes that our code has, and the most that it has had since `most_used` was set. */
static atomic_llong used, most_used;

static void count_bytes(size_t n)
{
    long long now = atomic_fetch_add(&used, (long long)n) + (long long)n;
    long long most = atomic_load(&most_used);
    while (now > most && !atomic_compare_exchange_weak(&most_used, &most, now))
        ;
}

static void *count(void *memory)
{
    count_bytes(malloc_usable_size(memory));
    return memory;
}

static void uncount(size_t n)
{
    atomic_fetch_sub(&used, (long long)n);
}

#define WRAPPED __attribute__((visibility("default")))

void *__real_malloc(size_t n);
void *__real_calloc(size_t n, size_t size);
void *__real_realloc(void *memory, size_t n);
void *__real_reallocarray(void *memory, size_t n, size_t size);
char *__real_strdup(const char *string);
void __real_free(void *memory);
void *__wrap_malloc(size_t n);
void *__wrap_calloc(size_t n, size_t size);
void *__wrap_realloc(void *memory, size_t n);
void *__wrap_reallocarray(void *memory, size_t n, size_t size);
char *__wrap_strdup(const char *string);
void __wrap_free(void *memory);

WRAPPED void *__wrap_malloc(size_t n)
{
    return fails(n) ? NULL : count(__real_malloc(n));
}

WRAPPED void *__wrap_calloc(size_t n, size_t size)
{
    return fails(n * size) ? NULL : count(__real_calloc(n, size));
}

/* As if it were always copied. */
WRAPPED void *__wrap_realloc(void *memory, size_t n)
{
    size_t old = malloc_usable_size(memory);
    void *grown = fails(n) ? NULL : count(__real_realloc(memory, n));
    if (grown)
        uncount(old);
    return grown;
}

WRAPPED void *__wrap_reallocarray(void *memory, size_t n, size_t size)
{
    size_t old = malloc_usable_size(memory);
    void *grown = fails(n * size) ? NULL : count(__real_reallocarray(memory, n, size));
    if (grown)
        uncount(old);
    return grown;
}

WRAPPED char *__wrap_strdup(const char *string)
{
    return fails(strlen(string) + 1) ? NULL : count(__real_strdup(string));
}

WRAPPED void __wrap_free(void *memory)
{
    uncount(malloc_usable_size(memory));
    __real_free(memory);
}

/* Large blocks of the pool. */
void *__real_mmap64(void *address, size_t n, int protection, int flags, int fd, off_t offset);
int __real_munmap(void *address, size_t n);
void *__wrap_mmap64(void *address, size_t n, int protection, int flags, int fd, off_t offset);
int __wrap_munmap(void *address, size_t n);

WRAPPED void *__wrap_mmap64(void *address, size_t n, int protection, int flags, int fd,
                            off_t offset)
{
    void *memory = __real_mmap64(address, n, protection, flags, fd, offset);
    if (memory != MAP_FAILED)
        count_bytes(n);
    return memory;
}

WRAPPED int __wrap_munmap(void *address, size_t n)
{
    uncount(n);
    return __real_munmap(address, n);
}

/* ---- The file ---- */

#define CHUNKS  250 /* so many rows of two: enough for the cache's hash table to grow */
#define ELEMENT 100 /* bytes: an element read in part needs memory */

static void add_dataset(hid_t file, const char *name, hid_t type, hid_t dcpl, const void *elements)
{
    const hsize_t dims[] = {CHUNKS, 3};
    hid_t space = H5Screate_simple(2, dims, NULL);
    hid_t dataset = H5Dcreate2(file, name, type, space, H5P_DEFAULT, dcpl, H5P_DEFAULT);
    assert_true(dataset >= 0);
    assert_true(H5Dwrite(dataset, type, H5S_ALL, H5S_ALL, H5P_DEFAULT, elements) >= 0);
    H5Dclose(dataset);
    H5Sclose(space);
}

static void add_attribute(hid_t object, const char *name)
{
    const hsize_t dim = 3;
    hid_t space = H5Screate_simple(1, &dim, NULL);
    hid_t attribute = H5Acreate2(object, name, H5T_STD_I32BE, space, H5P_DEFAULT, H5P_DEFAULT);
    H5Awrite(attribute, H5T_NATIVE_INT, (int[]){1, 2, 3});
    H5Aclose(attribute);
    H5Sclose(space);
}

static unsigned char elements[CHUNKS * 3 * ELEMENT];

static int make_file(void **state)
{
    (void)state;
    log_quietly();
    for (size_t i = 0; i < sizeof(elements); i++)
        elements[i] = (unsigned char)random_below(30);
    hid_t file = H5Fcreate("memory.h5", H5F_ACC_TRUNC, H5P_DEFAULT, H5P_DEFAULT);
    const hsize_t chunk_dims[] = {1, 2}, five = 5;
    hid_t dcpl = H5Pcreate(H5P_DATASET_CREATE), compound = H5Tcreate(H5T_COMPOUND, ELEMENT);
    hid_t array = H5Tarray_create2(H5T_STD_U16LE, 1, &five);
    H5Tinsert(compound, "a", 0, H5T_STD_I32LE);
    H5Tinsert(compound, "b", 50, array);
    add_dataset(file, "contiguous", compound, H5P_DEFAULT, elements);
    H5Pset_chunk(dcpl, 2, chunk_dims);
    H5Pset_shuffle(dcpl);
    H5Pset_deflate(dcpl, 1);
    H5Pset_fletcher32(dcpl);
    add_dataset(file, "deflate", H5T_STD_U16BE, dcpl, elements);
    H5Premove_filter(dcpl, H5Z_FILTER_ALL);
    H5Pset_nbit(dcpl);
    add_dataset(file, "library", H5T_STD_I32LE, dcpl, elements);
    add_attribute(file, "one");
    add_attribute(file, "two");
    H5Lcreate_soft("deflate", file, "soft", H5P_DEFAULT, H5P_DEFAULT);
    H5Lcreate_external("other.h5", "/there", file, "external", H5P_DEFAULT, H5P_DEFAULT);
    for (int i = 0; i < 40; i++) { /* for a list that grows */
        char name[8];
        snprintf(name, sizeof(name), "g%d", i);
        H5Gclose(H5Gcreate2(file, name, H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT));
    }
    H5Tclose(array);
    H5Tclose(compound);
    H5Pclose(dcpl);
    return H5Fclose(file) < 0;
}

/* ---- What is done while memory runs out: each returns the first error and frees all it has ----
 */

static int list(struct sfs_file *file)
{
    struct sfs_links links;
    int error = sfs_list(file, sfs_root(file), &links);
    if (error)
        return error;
    assert_int_equal(links.n, 45);
    sfs_links_free(&links);
    return 0;
}

static int look_up(struct sfs_file *file)
{
    static const char *const names[] = {"deflate", "soft", "external", "g7"};
    uint64_t address;
    int error = sfs_find(file, sfs_root(file), "soft", &address);
    for (size_t i = 0; i < COUNT(names) && !error; i++) {
        struct sfs_link link;
        error = sfs_lookup(file, sfs_root(file), names[i], &link);
        if (!error) {
            assert_string_equal(link.name, names[i]);
            assert_int_equal(link.target != NULL, link.type != SFS_LINK_HARD);
            assert_int_equal(link.target_file != NULL, link.type == SFS_LINK_EXTERNAL);
            sfs_link_free(&link);
        }
    }
    return error;
}

static int read_attributes(struct sfs_file *file)
{
    struct sfs_attributes attributes;
    int error = sfs_attributes(file, sfs_root(file), &attributes);
    if (error)
        return error;
    assert_int_equal(attributes.n, 2);
    for (size_t i = 0; i < 2; i++) {
        assert_string_equal(attributes.attribute[i].text, "[1, 2, 3]");
        assert_string_equal(attributes.attribute[i].json, "[1, 2, 3]");
    }
    sfs_attributes_free(&attributes);
    return 0;
}

static int read_text(struct sfs_file *file, const char *name)
{
    uint64_t address;
    struct sfs_dataset *dataset;
    char *text;
    size_t n;
    int error = sfs_find(file, sfs_root(file), name, &address);
    if (!error)
        error = sfs_dataset_open(file, address, name, &dataset);
    if (error)
        return error;
    error = sfs_text(dataset, SIZE_MAX, &text, &n);
    if (!error)
        free(text);
    sfs_dataset_close(dataset);
    return error;
}

/* Reads a dataset from the middle of an element to the middle of another, and lends a part. */
static int read_dataset(struct sfs_file *file, const char *name)
{
    static unsigned char buffer[sizeof(elements)];
    uint64_t address;
    struct sfs_dataset *dataset;
    int error = sfs_find(file, sfs_root(file), name, &address);
    if (!error)
        error = sfs_dataset_open(file, address, name, &dataset);
    if (error)
        return error;
    size_t size = sfs_dataset_info(dataset)->type.size, n = CHUNKS * 3 * size - 2;
    struct sfs_slab slab = {.rank = 2, .count = {CHUNKS, 3}};
    struct sfs_loan loan;
    memset(buffer, 0xEE, sizeof(buffer));
    error = sfs_read(dataset, &slab, 1, buffer, n);
    if (!error)
        assert_memory_equal(buffer, elements + 1, n);
    if (!error && sfs_lend(dataset, &slab, 3 * size, size, &loan, &error)) {
        assert_memory_equal(loan.bytes, elements + 3 * size, size);
        sfs_return(dataset, &loan);
    }
    sfs_dataset_close(dataset);
    return error;
}

static int read_views(struct sfs_file *file, const char *name)
{
    struct views *views;
    uint64_t address;
    int error = sfs_find(file, sfs_root(file), name, &address);
    if (!error)
        error = views_open(file, address, name, 1, &views);
    if (error)
        return error;
    for (enum view_kind kind = 0; kind < VIEW_KINDS && !error; kind++) {
        char buffer[100];
        struct view_part part;
        uint64_t bytes;
        if (!view_exists(views, kind))
            continue;
        error = view_size(views, kind, 1, &bytes);
        if (!error)
            error = view_read(views, kind, 1, &(struct view_room){0, sizeof(buffer), buffer, false},
                              &part);
        if (!error)
            view_return(views, &part);
        if (!error && view_seek(views, kind, 1, 0, false, &bytes) == -ENOMEM)
            error = -ENOMEM;
    }
    views_close(views);
    return error;
}

static int do_everything(void)
{
    struct sfs_file *file;
    int error = sfs_open("memory.h5", &(struct sfs_options){.cache_size = 1000000}, &file);
    if (error)
        return error;
    error = list(file);
    if (!error)
        error = look_up(file);
    if (!error)
        error = read_attributes(file);
    static const char *const names[] = {"contiguous", "deflate", "library"};
    for (size_t i = 0; i < COUNT(names) && !error; i++) {
        error = read_dataset(file, names[i]);
        if (!error)
            error = read_text(file, names[i]);
        if (!error)
            error = read_views(file, names[i]);
    }
    sfs_close(file);
    return error;
}

static void make_sparse(uint64_t chunk_rows)
{
    void *type;
    struct sfs_file *file;
    struct sfs_dataset *dataset;
    struct sfs_dataset_create create = {
        .rank = 2, .dims = {40, 50}, .max_dims = {40, 50}, .chunk_dims = {chunk_rows, 20}};
    assert_int_equal(sfs_type_encode("<i4", &type, &create.type.n), 0);
    create.type.bytes = type;
    assert_int_equal(sfs_create("sparse.h5", &(struct sfs_options){.replace = true}, &file), 0);
    assert_int_equal(sfs_dataset_create(file, "/d", &create, &dataset), 0);
    for (uint64_t row = 0; row < 40; row += 1 + row % 3) {
        struct sfs_slab slab = {.rank = 2, .start = {row, row}, .count = {1, 5}};
        assert_int_equal(sfs_write(dataset, &slab, elements), 0);
    }
    sfs_dataset_close(dataset);
    assert_int_equal(sfs_close(file), 0);
    free(type);
}

static int view_sparse(void)
{
    struct sfs_file *file;
    int error = sfs_open("sparse.h5", NULL, &file);
    if (error)
        return error;
    error = read_views(file, "d");
    if (!error)
        error = read_text(file, "d");
    sfs_close(file);
    return error;
}

static void add_number(hid_t file, const char *name, const char *attribute, int number)
{
    hid_t dataset = H5Dopen2(file, name, H5P_DEFAULT), space = H5Screate(H5S_SCALAR);
    hid_t made = H5Acreate2(dataset, attribute, H5T_STD_I32LE, space, H5P_DEFAULT, H5P_DEFAULT);
    assert_true(H5Awrite(made, H5T_NATIVE_INT, &number) >= 0);
    H5Aclose(made);
    H5Sclose(space);
    H5Dclose(dataset);
}

/* A series of one member in the file, one that is missing, and one in another file. */
static void make_series(void)
{
    hid_t file = H5Fcreate("series.h5", H5F_ACC_TRUNC, H5P_DEFAULT, H5P_DEFAULT);
    hid_t other = H5Fcreate("series_3.h5", H5F_ACC_TRUNC, H5P_DEFAULT, H5P_DEFAULT);
    add_dataset(file, "data_000001", H5T_STD_U16BE, H5P_DEFAULT, elements);
    add_dataset(other, "d", H5T_STD_U16BE, H5P_DEFAULT, elements);
    add_number(other, "d", "image_nr_low", CHUNKS + 11);
    H5Lcreate_external("series_2.h5", "/d", file, "data_000002", H5P_DEFAULT, H5P_DEFAULT);
    H5Lcreate_external("series_3.h5", "/d", file, "data_000003", H5P_DEFAULT, H5P_DEFAULT);
    assert_true(H5Fclose(other) >= 0 && H5Fclose(file) >= 0);
}

#define CBF_SIDE 4

static char cbf[1 << 13];
static size_t cbf_n;

static void add_beside(hid_t file, const char *path, hid_t type, int rank)
{
    const hsize_t dims[] = {CBF_SIDE, CBF_SIDE};
    hid_t space = H5Screate_simple(rank, dims, NULL), links = H5Pcreate(H5P_LINK_CREATE);
    H5Pset_create_intermediate_group(links, 1);
    hid_t dataset = H5Dcreate2(file, path, type, space, links, H5P_DEFAULT, H5P_DEFAULT);
    assert_true(H5Dwrite(dataset, type, H5S_ALL, H5S_ALL, H5P_DEFAULT, elements) >= 0);
    H5Dclose(dataset);
    H5Pclose(links);
    H5Sclose(space);
}

/* An image, and what stands beside it. */
static void make_detector(void)
{
    hid_t file = H5Fcreate("detector.h5", H5F_ACC_TRUNC, H5P_DEFAULT, H5P_DEFAULT);
    hid_t class = H5Tcopy(H5T_C_S1), space = H5Screate(H5S_SCALAR);
    H5Tset_size(class, strlen("NXdetector"));
    add_beside(file, "entry/data/data", H5T_STD_U16LE, 2);
    add_beside(file, "entry/instrument/eiger/pixel_mask", H5T_STD_U32LE, 2);
    add_beside(file, "entry/instrument/eiger/distance", H5T_STD_I32LE, 0);
    add_beside(file, "entry/instrument/beam/incident_wavelength", H5T_STD_U8LE, 0);
    add_beside(file, "entry/sample/goniometer/omega", H5T_STD_U8LE, 0);
    hid_t group = H5Gopen2(file, "entry/instrument/eiger", H5P_DEFAULT);
    hid_t attribute = H5Acreate2(group, "NX_class", class, space, H5P_DEFAULT, H5P_DEFAULT);
    assert_true(H5Awrite(attribute, class, "NXdetector") >= 0);
    H5Aclose(attribute);
    H5Gclose(group);
    H5Sclose(space);
    H5Tclose(class);
    assert_true(H5Fclose(file) >= 0);
}

static int read_cbf(struct views *views)
{
    static char bytes[sizeof(cbf)];
    const struct view_room room = {0, sizeof(bytes), bytes, true};
    struct view_part part;
    int error = view_read(views, VIEW_CBF, 0, &room, &part);
    if (error)
        return error;
    if (cbf_n == 0) /* the first time */
        memcpy(cbf, part.bytes, cbf_n = part.n);
    assert_int_equal(part.n, cbf_n);
    assert_memory_equal(part.bytes, cbf, cbf_n);
    view_return(views, &part);
    return 0;
}

/* Again, too, after an error. */
static int view_cbf(void)
{
    static const char path[] = "/entry/data/data";
    struct sfs_file *file;
    struct views *views;
    uint64_t address;
    int error = sfs_open("detector.h5", NULL, &file);
    if (error)
        return error;
    error = sfs_find(file, sfs_root(file), path, &address);
    if (!error)
        error = views_open(file, address, path, 2, &views);
    if (!error) {
        error = read_cbf(views);
        assert_int_equal(error ? read_cbf(views) : 0, 0);
        views_close(views);
    }
    sfs_close(file);
    return error;
}

static int view_series(void)
{
    struct sfs_file *file;
    struct sfs_links links;
    const struct sfs_options options = {.cache_size = 1000000, .fill_missing = true};
    int error = sfs_open("series.h5", &options, &file);
    if (error)
        return error;
    error = sfs_list(file, sfs_root(file), &links);
    if (!error) {
        assert_int_equal(links.n, 4);
        assert_string_equal(links.link[0].name, "data");
        sfs_links_free(&links);
        error = read_views(file, "data");
    }
    if (!error)
        error = read_text(file, "data");
    sfs_close(file);
    return error;
}

static uint64_t bytes_when_all_is_read;

/* The same without giving up: after a failure all is well again, and no memory is thought used that
 * is not. */
static int go_on_after_failures(void)
{
    struct sfs_file *file;
    int error = sfs_open("memory.h5", NULL, &file);
    if (error)
        return error;
    int (*const steps[])(struct sfs_file *) = {list, look_up, read_attributes};
    for (size_t i = 0; i < COUNT(steps); i++) {
        error = steps[i](file);
        if (error && error != -ENOMEM)
            break;
        if (error)
            assert_int_equal(steps[i](file), 0);
    }
    error = read_dataset(file, "deflate");
    if (error == -ENOMEM)
        assert_int_equal(error = read_dataset(file, "deflate"), 0);
    struct sfs_statistics statistics;
    sfs_statistics(file, &statistics);
    if (bytes_when_all_is_read == 0)
        bytes_when_all_is_read = statistics.cache_bytes;
    else if (!error)
        assert_int_equal(statistics.cache_bytes, bytes_when_all_is_read);
    sfs_close(file);
    return error;
}

/* Runs something with the n-th allocation failing, for n = 1, 2, ... until none fails. From the
 * 400th on, only some: one chunk is like the other. Returns how many there are. */
static long check(int (*run)(void), size_t smallest_that_fails)
{
    long n = 0;
    bool reached;
    atomic_store(&smallest, smallest_that_fails);
    do {
        atomic_store(&until_failure, n);
        int error = run();
        reached = atomic_load(&until_failure) < 0;
        atomic_store(&until_failure, -1);
        if (error != 0 && error != -ENOMEM)
            fail_msg("allocation %ld fails: error %d", n + 1, error);
        if (!reached)
            assert_int_equal(error, 0);
        n += n < 400 ? 1 : (long)random_between(1, 40);
    } while (reached);
    return n;
}

static void every_failed_allocation_is_an_error_of_its_call(void **state)
{
    (void)state;
    assert_true(check(do_everything, 0) > 100);
}

/* With chunks that lie in a frame, and that span some. */
static void every_failed_allocation_for_a_sparse_view_is_an_error(void **state)
{
    (void)state;
    for (uint64_t chunk_rows = 1; chunk_rows <= 3; chunk_rows += 2) {
        make_sparse(chunk_rows);
        assert_true(check(view_sparse, 0) > 50);
    }
}

/* None leaves out a line of the header, or the mask. */
static void every_failed_allocation_for_a_cbf_file_is_an_error(void **state)
{
    (void)state;
    make_detector();
    assert_int_equal(view_cbf(), 0);
    assert_non_null(strstr(cbf, "# Detector_distance"));
    assert_non_null(strstr(cbf, "# Wavelength"));
    assert_non_null(strstr(cbf, "# Start_angle"));
    assert_true(check(view_cbf, 0) > 100);
}

/* Growing hash tables and lists, and buffers. */
static void every_failed_allocation_for_a_series_is_an_error(void **state)
{
    (void)state;
    make_series();
    assert_true(check(view_series, 0) > 100);
}

static void every_failed_large_allocation_is_an_error_of_its_call(void **state)
{
    (void)state;
    assert_true(check(do_everything, 600) > 5);
}

static void after_a_failed_allocation_the_same_call_succeeds(void **state)
{
    (void)state;
    assert_int_equal(go_on_after_failures(), 0);
    assert_true(bytes_when_all_is_read > 0);
    assert_true(check(go_on_after_failures, 0) > 100);
}

/* Points out of order, blocks out of order, tall blocks, a regular selection, and algebra. */
static int select_all_sorts(void)
{
    static const unsigned char points[] = {1, 0, 8, 20, 0, 0, 0, 2, 2, 0, 1, 9, 0, 0, 0, 0, 0, 0,
                                           0, 9, 0, 0,  0, 0, 0, 0, 0, 1, 0, 0, 0, 2, 0, 0, 0, 2,
                                           2, 0, 0, 0,  3, 0, 5, 0, 1, 0, 2, 0, 3, 0, 2, 0, 3, 0};
    const uint64_t dims[] = {9, 9};
    struct selection selection = {0};
    struct runs runs = {0}, result = {0};
    void *encoded = NULL;
    const char *why;
    size_t n;
    int error = selection_decode(&(struct sfs_encoded){points, sizeof(points)}, 2, dims, 1000,
                                 &selection, &why);
    for (uint64_t row = 0; row < 9 && !error; row++) /* columns 0, 4, 6 to 8, but not together */
        for (uint64_t column = 0; column < 9 && !error; column++)
            if (column == 4 || (column == 0 && row % 4 < 2) || (column > 5 && row % 3 > 0))
                error = runs_append(&runs, row * 9 + column, row * 9 + column + 1);
    if (!error)
        error = runs_union(&runs, &selection.runs, &result);
    if (!error)
        error = runs_intersection(&result, &runs, &result);
    if (!error)
        error = runs_difference(&result, &selection.runs, &result);
    if (!error)
        error = runs_clip(&runs, 3, 70, &result);
    selection_free(&selection);
    if (!error)
        error = selection_encode(2, dims, NULL, &runs, SELECTION_SMALLEST, &encoded, &n);
    if (!error)
        error =
            selection_decode(&(struct sfs_encoded){encoded, n}, 2, dims, 1000, &selection, &why);
    selection_free(&selection);
    free(encoded);
    runs_free(&result);
    runs_free(&runs);
    return error;
}

static void every_failed_allocation_for_a_selection_is_an_error(void **state)
{
    (void)state;
    assert_int_equal(select_all_sorts(), 0);
    assert_true(check(select_all_sorts, 0) > 12);
}

/* ---- Writing ---- */

/* Bytes, space and commits, with pages of committed bytes and extents in the middle. */
static int change_store(struct store *store)
{
    char bytes[9000] = {1};
    uint64_t a, b;
    int error = store_allocate(store, 60000, &a);
    for (int i = 0; i < 3 && !error; i++) {
        error = store_write(store, a + 5000, bytes, sizeof(bytes));
        if (!error)
            error = store_free(store, a + 20000 + 2000 * (uint64_t)i, 1000);
        if (!error)
            error = store_allocate(store, 300, &b);
        if (!error)
            error = store_free(store, b + 100, 100);
        if (!error)
            error = store_commit(store);
    }
    return error;
}

static int write_store(void)
{
    struct store *store;
    int error = store_create("written", true, &store);
    if (error)
        return error;
    error = change_store(store);
    if (error == -ENOMEM) /* and all is well again */
        assert_int_equal(change_store(store), 0);
    store_close(store);
    return error;
}

static int convert_elements(void)
{
    void *type = NULL, *wide = NULL;
    size_t n, wide_n;
    char element[8] = {0}, background[8], *json;
    int error = hdf5_type_of_name("u2", &type, &n);
    if (!error)
        error = hdf5_type_of_name("f8", &wide, &wide_n);
    if (!error)
        error = hdf5_element_parse(type, n, "77", element);
    if (!error)
        error = hdf5_convert(&(struct sfs_encoded){type, n}, &(struct sfs_encoded){wide, wide_n}, 1,
                             element, background);
    if (!error)
        error = hdf5_element_json(NULL, wide, wide_n, element, &json);
    if (!error) {
        assert_string_equal(json, "77");
        free(json);
    }
    free(type);
    free(wide);
    return error;
}

static int make_datasets(struct hdf5 *hdf5, void *type, size_t type_size)
{
    static const uint64_t dims[] = {100}, chunk_dims[] = {10}, start[] = {5};
    static const char values[200];
    struct hdf5_create wanted = {.rank = 1,
                                 .dims = dims,
                                 .chunk_dims = chunk_dims,
                                 .type = type,
                                 .type_size = type_size,
                                 .selection_version_1 = true};
    struct sfs_attributes attributes;
    uint64_t address;
    int error = hdf5_create_group(hdf5, "/a/b");
    for (int i = 0; i < 3 && !error; i++) {
        static const char *const paths[] = {"/a/x", "/a/y", "/z"};
        error = hdf5_create_dataset(hdf5, paths[i], &wanted, &address);
        if (!error)
            error = hdf5_write(hdf5, address, start, chunk_dims, values);
        if (!error)
            error = hdf5_reopen(hdf5);
        wanted.attributes_from = hdf5;
        wanted.attributes_of = address;
    }
    if (!error)
        error = hdf5_attributes(hdf5, address, &attributes);
    if (!error)
        sfs_attributes_free(&attributes);
    return error;
}

static int write_hdf5(void)
{
    struct store *store;
    struct hdf5 *hdf5;
    void *type = NULL;
    size_t n;
    int error = hdf5_type_of_name("u2", &type, &n);
    if (!error)
        error = store_create("written.h5", true, &store);
    if (error) {
        free(type);
        return error;
    }
    error = hdf5_create(store, &hdf5);
    if (!error) {
        error = make_datasets(hdf5, type, n);
        if (!error)
            error = hdf5_flush(hdf5);
        if (!error)
            error = store_commit(store);
        hdf5_close(hdf5);
    }
    store_close(store);
    free(type);
    return error;
}

/* A store in memory, with a snapshot that must hold back space and keep pages. One that is given up
 * for want of memory is no error of the commit. */
static int snapshot_image(void)
{
    static const unsigned char bytes[20000];
    unsigned char found[20000];
    struct store_image how = {.name = "image", .writable = true, .increment = 1000};
    struct store_snapshot *snapshot;
    struct store *store;
    uint64_t address, again;
    int error = store_open_image(NULL, 0, &how, &store);
    if (error)
        return error;
    error = store_allocate(store, sizeof(bytes), &address);
    if (!error)
        error = store_write(store, address, bytes, sizeof(bytes));
    if (!error)
        error = store_commit(store);
    if (!error)
        error = store_snapshot_open(store, &snapshot);
    if (!error) {
        error = store_free(store, address + 5000, 5000);
        if (!error)
            error = store_free(store, address + 12000, 100);
        if (!error)
            error = store_write(store, address, bytes + 1, 4000);
        if (!error)
            error = store_commit(store);
        if (!error)
            error = store_allocate(store, 5000, &again);
        if (!error)
            error = store_snapshot_read(snapshot, 0, found, sizeof(found));
        if (!error && again < sizeof(bytes)) /* one that is given up needs nothing */
            fail_msg("space that a snapshot needs was given away");
        store_snapshot_close(snapshot);
    }
    store_close(store);
    return error == -ESTALE ? -ENOMEM : error;
}

/* The image of a file is opened and changed. */
static int change_image(void)
{
    static unsigned char bytes[1 << 20];
    struct sfs_image_options image = {.name = "changed", .backing_path = "changed.h5"};
    struct sfs_options options = {.workers = 1, .image = &image};
    struct sfs_file *file;
    unlink("changed.h5");
    int error = sfs_open("memory.h5", &options, &file);
    if (error)
        return error;
    int64_t n = sfs_get_image(file, bytes, sizeof(bytes));
    sfs_close(file);
    if (n < 0)
        return (int)n;
    error = sfs_open_image(bytes, (size_t)n, SFS_IMAGE_WRITABLE, &options, &file);
    if (error)
        return error;
    error = sfs_group_create(file, "/new");
    int closed = sfs_close(file);
    return error ? error : closed;
}

/* A store in memory whose backing file is written after a failure, too, and again. */
static int write_back_image(void)
{
    static const unsigned char bytes[3000];
    struct store_image how = {.name = "image", .writable = true, .backing = "backing"};
    struct store *store;
    uint64_t address;
    unlink("backing");
    int error = store_open_image(NULL, 0, &how, &store);
    if (error)
        return error;
    error = store_allocate(store, sizeof(bytes), &address);
    if (!error)
        error = store_write(store, address, bytes, sizeof(bytes));
    for (int i = 0; i < 3 && !error; i++) {
        error = store_commit(store);
        if (error == -ENOMEM && store_commit(store) != 0)
            fail_msg("the backing file is not written any more");
        if (!error)
            error = store_write(store, address + (uint64_t)i, "x", 1);
    }
    store_close(store);
    return error;
}

static void every_failed_allocation_for_an_image_is_an_error(void **state)
{
    (void)state;
    assert_true(check(snapshot_image, 0) > 15);
    assert_true(check(change_image, 0) > 15);
    assert_true(check(write_back_image, 0) > 15);
}

static void every_failed_allocation_while_writing_is_an_error(void **state)
{
    (void)state;
    assert_true(check(write_store, 0) > 20);
    assert_true(check(convert_elements, 0) > 5);
    assert_true(check(write_hdf5, 0) > 15);
}

/* ---- Filters ---- */

/* Sections through our own filters, and through scale-offset, which runs in libhdf5. */
static int filter_sections(void)
{
    static const unsigned level = 1, size = 2;
    static const unsigned scale[20] = {2, 0, 500, 0, 2};
    static const struct sfs_filter filters[] = {
        {.id = FILTER_FLETCHER32},
        {.id = FILTER_SHUFFLE, .n_values = 1, .values = &size},
        {.id = FILTER_DEFLATE, .n_values = 1, .values = &level},
        {.id = 6, .n_values = COUNT(scale), .values = scale},
        {.id = FILTER_FLETCHER32},
    };
    static const struct {
        size_t first, n;
    } pipelines[] = {{0, 3}, {3, 2}, {1, 1}};
    int error = 0;
    for (size_t p = 0; p < COUNT(pipelines) && !error; p++) {
        struct filter_pipeline pipeline = {pipelines[p].n, &filters[pipelines[p].first]};
        unsigned char back[1000], scratch[3000];
        void *stored;
        size_t n;
        assert_true(filters_scratch(&pipeline, 1000) <= sizeof(scratch));
        error = filters_encode(&pipeline, elements, 1000, &stored, &n);
        if (error)
            break;
        assert_int_equal(pipeline.mask, 0);
        error = filters_decode(&pipeline, stored, n, scratch, back, 1000);
        if (!error)
            assert_memory_equal(back, elements, 1000);
        free(stored);
    }
    return error;
}

static void *filter_sections_in_a_thread(void *error)
{
    *(int *)error = filter_sections();
    return NULL;
}

/* A new thread has no compressor yet. */
static int filter_sections_anew(void)
{
    pthread_t thread;
    int error;
    start_thread(&thread, filter_sections_in_a_thread, &error);
    pthread_join(thread, NULL);
    return error;
}

static void every_failed_allocation_for_a_section_is_an_error(void **state)
{
    (void)state;
    assert_int_equal(filter_sections_anew(), 0);
    assert_true(check(filter_sections_anew, 0) > 8);
}

/* ---- Heaps of chunks ---- */

#define FEW 1024 /* bytes: structures of a fixed size */

/* A set of collections as the prototype stores it, with one of as many empty objects. */
static unsigned char *make_set(size_t objects, size_t *n)
{
    static const unsigned char head[] = "HGLS\1\0\0\0\1\0\0\0\x1c\0\0\0\0\0\0";
    uint64_t bytes = 16 + 16 * (uint64_t)objects;
    *n = 28 + (size_t)bytes;
    unsigned char *set = __real_calloc(1, *n);
    memcpy(set, head, sizeof(head));
    memcpy(set + 20, &bytes, sizeof(bytes));
    memcpy(set + 28, "GCOL\1\0\0", 8);
    memcpy(set + 36, &bytes, sizeof(bytes));
    for (size_t i = 0; i < objects; i++) {
        uint16_t number = (uint16_t)(i + 1);
        memcpy(set + 44 + 16 * i, &number, sizeof(number));
    }
    return set;
}

/* The most that our code takes while it looks at a heap. */
static size_t used_by_heap(const void *bytes, size_t n)
{
    struct heap *heap;
    struct why why;
    long long before = atomic_load(&used);
    atomic_store(&most_used, before);
    assert_int_equal(heap_open(bytes, n, &heap, &why), 0);
    heap_close(heap);
    return (size_t)(atomic_load(&most_used) - before);
}

static void a_heap_takes_what_is_said_of_it(void **state)
{
    (void)state;
    static const unsigned char plain[100000];
    double most = 0;
    for (size_t objects = 1; objects < UINT16_MAX; objects += 1 + objects / 50) {
        size_t n;
        unsigned char *set = make_set(objects, &n);
        size_t taken = n + used_by_heap(set, n);
        assert_true(taken <= heap_most_bytes(set, n) + 4096);
        if (objects > 10000 && (double)taken > most * (double)n)
            most = (double)taken / (double)n;
        __real_free(set);
    }
    assert_true(most > 4); /* no less is said */
    assert_true(used_by_heap(plain, sizeof(plain)) <= FEW);
    assert_int_equal(heap_most_bytes(plain, sizeof(plain)), sizeof(plain));
    assert_int_equal(heap_most_bytes(NULL, 0), 0);
}

#define HEAP_BYTES                                                                                 \
    ((size_t)32 << 20) /* of strings, in one chunk; the pool has a mapping for it alone, */
#define ALIGNED                                                                                    \
    ((size_t)4 << 20) /* with so much around it for a moment, and one for small blocks */

static void make_strings(void)
{
    struct sfs_options options = {.replace = true};
    struct sfs_dataset_create create = {
        .rank = 1, .dims = {4}, .max_dims = {4}, .chunk_dims = {4}, .n_filters = {0}};
    struct sfs_slab slab = {.rank = 1, .count = {4}};
    static char text[HEAP_BYTES / 4];
    struct sfs_sequence sequences[4];
    struct sfs_file *file;
    struct sfs_dataset *dataset;
    void *type;
    memset(text, 'x', sizeof(text));
    for (int i = 0; i < 4; i++)
        sequences[i] = (struct sfs_sequence){.elements = text, .n = sizeof(text)};
    assert_int_equal(sfs_type_encode("str", &type, &create.type.n), 0);
    create.type.bytes = type;
    assert_int_equal(sfs_create("strings.h5", &options, &file), 0);
    assert_int_equal(sfs_dataset_create(file, "/x", &create, &dataset), 0);
    assert_int_equal(sfs_write(dataset, &slab, sequences), 0);
    free(type);
    sfs_dataset_close(dataset);
    assert_int_equal(sfs_close(file), 0);
}

/* Reads lengths of all strings; the most that our code takes for it, to *taken. */
static int read_lengths(size_t chunk_memory, size_t *taken)
{
    struct sfs_options options = {.cache_size = 1000, .chunk_memory = chunk_memory, .workers = 1};
    struct sfs_file *file;
    struct sfs_dataset *dataset;
    uint64_t address;
    char *lengths;
    size_t n;
    assert_int_equal(sfs_open("strings.h5", &options, &file), 0);
    assert_int_equal(sfs_find(file, sfs_root(file), "/x", &address), 0);
    assert_int_equal(sfs_dataset_open(file, address, "/x", &dataset), 0);
    long long before = atomic_load(&used);
    atomic_store(&most_used, before);
    int error = sfs_read_parts(dataset, SFS_LENGTHS, 0, 4, SIZE_MAX, &lengths, &n);
    *taken = (size_t)(atomic_load(&most_used) - before);
    if (!error) {
        assert_int_equal(n, 4 * sizeof(uint64_t));
        free(lengths);
    }
    sfs_dataset_close(dataset);
    assert_int_equal(sfs_close(file), 0);
    return error;
}

/* The least chunk_memory with which a chunk can be read is what is really taken, and not a multiple
 * of its size. */
static void a_chunk_with_a_heap_fits_in_the_memory_that_it_takes(void **state)
{
    (void)state;
    size_t low = HEAP_BYTES / 2, high = 8 * HEAP_BYTES, taken;
    make_strings();
    log_quietly();
    assert_int_equal(read_lengths(low, &taken), -EIO);
    assert_true(taken <= low);
    while (high - low > HEAP_BYTES / 64) {
        size_t middle = low + (high - low) / 2;
        if (read_lengths(middle, &taken))
            low = middle;
        else
            high = middle;
    }
    assert_int_equal(read_lengths(high, &taken), 0);
    assert_true(taken <= high + ALIGNED);
    assert_true(taken > HEAP_BYTES); /* all of it is counted */
    assert_true(high < 3 * HEAP_BYTES);
}

/* ---- A sparse dataset ---- */

#define SPARSE_ROWS  40
#define MOST_SECONDS 120 /* until what failed once succeeds */

struct sparse_file {
    struct sfs_file *file;
    struct sfs_dataset *dataset;
    bool is_dense;
    int first_error;
    time_t since; /* of it */
    uint16_t model[SPARSE_ROWS][30];
};

static int create_sparse_over(struct sparse_file *sparse, size_t cache_size)
{
    const unsigned level = 1;
    const struct sfs_filter deflate = {.id = 1, .n_values = 1, .values = &level};
    struct sfs_options options = {.replace = true, .cache_size = cache_size};
    struct sfs_dataset_create create = {.rank = 2,
                                        .dims = {SPARSE_ROWS, 30},
                                        .max_dims = {SFS_UNLIMITED, 30},
                                        .chunk_dims = {3, 8},
                                        .n_filters = {1, 1},
                                        .filters = {&deflate, &deflate},
                                        .is_dense = sparse->is_dense};
    void *type = NULL;
    int error = sfs_type_encode("<u2", &type, &create.type.n);
    create.type.bytes = type;
    if (!error)
        error = sfs_create("sparse.h5", &options, &sparse->file);
    if (!error)
        error = sfs_dataset_create(sparse->file, "/x", &create, &sparse->dataset);
    free(type);
    if (error) {
        sfs_discard(sparse->file);
        sparse->file = NULL;
    }
    return error;
}

static int create_sparse(struct sparse_file *sparse)
{
    return create_sparse_over(sparse, 9000);
}

/* Whether something failed for want of memory and is to be done again. What an encoder could not store is an error of
 * all that need room until something can be stored. */
static bool failed(struct sparse_file *sparse, int error)
{
    if (error != 0 && error != -ENOMEM)
        fail_msg("%d", error);
    if (error && !sparse->first_error)
        sparse->since = time(NULL);
    if (error && time(NULL) - sparse->since > MOST_SECONDS)
        fail_msg("it goes on to fail");
    if (error)
        sparse->first_error = error;
    return error != 0;
}

static void change_rows(struct sparse_file *sparse, uint64_t first, uint64_t rows, bool erases)
{
    struct sfs_slab slab = {.rank = 2, .start = {first, 5}, .count = {rows, 20}};
    uint16_t values[SPARSE_ROWS * 20];
    for (uint64_t k = 0; k < rows * 20; k++) {
        values[k] = (uint16_t)(first * 1000 + k * 7);
        sparse->model[first + k / 20][5 + k % 20] = erases ? 0 : values[k];
    }
    while (failed(sparse, erases ? sfs_erase(sparse->dataset, &slab)
                                 : sfs_write(sparse->dataset, &slab, values)))
        ;
}

static void check_sparse(struct sparse_file *sparse)
{
    uint16_t values[SPARSE_ROWS][30];
    struct sfs_slab all = {.rank = 2, .count = {SPARSE_ROWS, 30}};
    struct sfs_defined defined = {.n = 0};
    while (failed(sparse, sfs_read(sparse->dataset, &all, 0, values, sizeof(values))))
        ;
    assert_memory_equal(values, sparse->model, sizeof(values));
    while (failed(sparse, sfs_get_defined(sparse->dataset, &all, &defined)))
        ;
    sfs_defined_free(&defined);
}

static void copy_chunk(struct sparse_file *sparse)
{
    const uint64_t start[] = {3, 8};
    char bytes[2][1000];
    struct sfs_chunk_info info;
    while (failed(sparse, sfs_chunk_info(sparse->dataset, start, &info)))
        ;
    while (failed(sparse, sfs_read_chunk(sparse->dataset, &info,
                                         (void *const[SFS_SECTIONS]){bytes[0], bytes[1]})))
        ;
    while (failed(sparse, sfs_write_chunk(sparse->dataset, &info,
                                          (const void *const[SFS_SECTIONS]){bytes[0], bytes[1]})))
        ;
}

/* A call that fails changes nothing, or can be repeated; in the end all is as it would be without a
 * failure. */
static int write_sparse(void)
{
    struct sparse_file sparse = {.first_error = 0};
    const uint64_t fewer[] = {SPARSE_ROWS / 2, 30}, all[] = {SPARSE_ROWS, 30};
    while (failed(&sparse, create_sparse(&sparse)))
        ;
    change_rows(&sparse, 0, SPARSE_ROWS, false);
    change_rows(&sparse, 7, 6, true);
    while (failed(&sparse, sfs_flush(sparse.file)))
        ;
    check_sparse(&sparse);
    copy_chunk(&sparse);
    change_rows(&sparse, 2, 9, false);
    while (failed(&sparse, sfs_set_extent(sparse.dataset, fewer)))
        ;
    while (failed(&sparse, sfs_set_extent(sparse.dataset, all)))
        ;
    memset(sparse.model[SPARSE_ROWS / 2], 0, sizeof(sparse.model) / 2);
    check_sparse(&sparse);
    while (failed(&sparse, sfs_flush(sparse.file)))
        ;
    sfs_dataset_close(sparse.dataset);
    sfs_discard(sparse.file);

    uint64_t address;
    while (failed(&sparse, sfs_open("sparse.h5", NULL, &sparse.file)))
        ;
    while (failed(&sparse, sfs_find(sparse.file, sfs_root(sparse.file), "/x", &address)))
        ;
    while (failed(&sparse, sfs_dataset_open(sparse.file, address, "/x", &sparse.dataset)))
        ;
    check_sparse(&sparse);
    sfs_dataset_close(sparse.dataset);
    sfs_discard(sparse.file);
    return sparse.first_error;
}

/* The same of a dense dataset, whose chunks libhdf5 puts into the file. */
static int write_dense(void)
{
    struct sparse_file dense = {.is_dense = true};
    uint64_t address;
    while (failed(&dense, create_sparse(&dense)))
        ;
    for (uint64_t row = 0; row < SPARSE_ROWS; row += 5)
        change_rows(&dense, row, 1 + row % 4, false);
    while (failed(&dense, sfs_flush(dense.file)))
        ;
    check_sparse(&dense);
    change_rows(&dense, 2, 9, false);
    while (failed(&dense, sfs_flush(dense.file)))
        ;
    sfs_dataset_close(dense.dataset);
    sfs_discard(dense.file);
    while (failed(&dense, sfs_open("sparse.h5", NULL, &dense.file)))
        ;
    while (failed(&dense, sfs_find(dense.file, sfs_root(dense.file), "/x", &address)))
        ;
    while (failed(&dense, sfs_dataset_open(dense.file, address, "/x", &dense.dataset)))
        ;
    check_sparse(&dense);
    sfs_dataset_close(dense.dataset);
    sfs_discard(dense.file);
    return dense.first_error;
}

static void a_failed_allocation_leaves_a_dense_dataset_as_it_should_be(void **state)
{
    (void)state;
    assert_int_equal(write_dense(), 0);
    assert_true(check(write_dense, 0) > 200);
}

static void a_failed_allocation_leaves_a_sparse_dataset_as_it_should_be(void **state)
{
    (void)state;
    assert_int_equal(write_sparse(), 0);
    assert_true(check(write_sparse, 0) > 300);
}

static void fill_sparse(struct sparse_file *sparse, uint16_t value)
{
    const struct sfs_slab all = {.rank = 2, .count = {SPARSE_ROWS, 30}};
    uint16_t values[SPARSE_ROWS * 30];
    for (size_t i = 0; i < COUNT(values); i++)
        values[i] = value;
    assert_int_equal(sfs_write(sparse->dataset, &all, values), 0);
}

/* Rows of 1 are stored, and of 2 in memory, when the k-th allocation fails; returns whether the dims are smaller. */
static bool shrink_without_memory(long k)
{
    struct sparse_file sparse = {.first_error = 0};
    const uint64_t fewer[] = {SPARSE_ROWS / 2, 30}, all[] = {SPARSE_ROWS, 30};
    const struct sfs_slab slab = {.rank = 2, .count = {SPARSE_ROWS, 30}};
    uint16_t values[SPARSE_ROWS][30];
    assert_int_equal(create_sparse_over(&sparse, 1 << 20), 0);
    fill_sparse(&sparse, 1);
    assert_int_equal(sfs_flush(sparse.file), 0);
    fill_sparse(&sparse, 2);
    atomic_store(&until_failure, k);
    int error = sfs_set_extent(sparse.dataset, fewer);
    atomic_store(&until_failure, -1);
    assert_true(error == 0 || error == -ENOMEM);
    assert_int_equal(sfs_dataset_info(sparse.dataset)->dims[0],
                     error ? SPARSE_ROWS : SPARSE_ROWS / 2);
    assert_int_equal(sfs_set_extent(sparse.dataset, all), 0);
    assert_int_equal(sfs_read(sparse.dataset, &slab, 0, values, sizeof(values)), 0);
    for (int i = 0; i < SPARSE_ROWS; i++)
        for (int j = 0; j < 30; j++)
            assert_true(values[i][j] == 2 || (i >= SPARSE_ROWS / 2 && values[i][j] == 0));
    if (!error)
        assert_int_equal(values[SPARSE_ROWS / 2][0], 0);
    sfs_dataset_close(sparse.dataset);
    sfs_discard(sparse.file);
    return error == 0;
}

static void what_cannot_be_cut_off_does_not_become_older(void **state)
{
    (void)state;
    long k = 0;
    for (int in_a_row = 0; in_a_row < 50; k++) /* some failures are no error */
        in_a_row = shrink_without_memory(k) ? in_a_row + 1 : 0;
    assert_true(k > 60);
}

/* The same through views. */
static int write_views(void)
{
    struct sparse_file sparse = {.first_error = 0};
    unsigned char bytes[500];
    size_t written, n;
    uint64_t size;
    void *encoded = NULL;
    struct views *views = NULL;
    for (size_t i = 0; i < sizeof(bytes); i++)
        bytes[i] = i < 100 || i > 300 ? (unsigned char)i : 0;
    while (failed(&sparse, create_sparse(&sparse)))
        ;
    while (failed(&sparse,
                  views_open(sparse.file, sfs_dataset_address(sparse.dataset), "/x", 1, &views)))
        ;
    for (int sparsify = 0; sparsify < 2; sparsify++)
        while (failed(&sparse, view_write(views, VIEW_STACK_RAW, 0,
                                          &(struct view_bytes){121, bytes, sizeof(bytes), sparsify},
                                          &written)))
            ;
    memcpy((char *)sparse.model + 121, bytes, sizeof(bytes));
    while (failed(&sparse, view_size(views, VIEW_CSR_DATA, 0, &size)))
        ;
    while (failed(&sparse, view_punch(views, VIEW_STACK_RAW, 0, 140, 10)))
        ;
    memset((char *)sparse.model + 140, 0, 10);
    while (failed(&sparse, view_zero(views, VIEW_STACK_RAW, 0, 161, 30, false)))
        ;
    memset((char *)sparse.model + 161, 0, 30);
    struct sfs_slab row = {.rank = 2, .start = {2}, .count = {1, 30}};
    while (failed(&sparse, sfs_encode_defined(sparse.dataset, &row, 1, &encoded, &n)))
        ;
    while (failed(&sparse, view_set_defined(views, 3, encoded, n)))
        ;
    for (int k = 0; k < 30; k++) /* what frame 2 has not, goes */
        if (!sparse.model[2][k])
            sparse.model[3][k] = 0;
    while (failed(&sparse, view_write(views, VIEW_RAW, SPARSE_ROWS + 1,
                                      &(struct view_bytes){1, bytes, 7, false},
                                      &written))) /* which has no frame left behind */
        assert_int_equal(views_frames(views), SPARSE_ROWS);
    while (failed(&sparse, views_extend(views, SPARSE_ROWS + 2)))
        ;
    while (failed(&sparse, view_size(views, VIEW_STACK_NPY, 0, &size)))
        ;
    assert_true(size > (SPARSE_ROWS + 2) * 60);
    check_sparse(&sparse);
    free(encoded);
    views_close(views);
    sfs_dataset_close(sparse.dataset);
    sfs_discard(sparse.file);
    return sparse.first_error;
}

static void a_failed_allocation_leaves_views_as_they_should_be(void **state)
{
    (void)state;
    assert_int_equal(write_views(), 0);
    assert_true(check(write_views, 0) > 100);
}

/* ---- zlib ---- */

/* Which of its calls has no memory. */
static enum { NO_CALL, BEGIN, INFLATE } zlib_fails;
static unsigned zlib_calls;

int __real_inflateInit2_(z_streamp stream, int bits, const char *version, int size);
int __wrap_inflateInit2_(z_streamp stream, int bits, const char *version, int size);
int __real_inflate(z_streamp stream, int flush);
int __wrap_inflate(z_streamp stream, int flush);

WRAPPED int __wrap_inflateInit2_(z_streamp stream, int bits, const char *version, int size)
{
    zlib_calls++;
    return zlib_fails == BEGIN ? Z_MEM_ERROR : __real_inflateInit2_(stream, bits, version, size);
}

WRAPPED int __wrap_inflate(z_streamp stream, int flush)
{
    zlib_calls++;
    return zlib_fails == INFLATE ? Z_MEM_ERROR : __real_inflate(stream, flush);
}

static size_t put(unsigned char *to, uint64_t value, size_t n)
{
    for (size_t i = 0; i < n; i++)
        to[i] = (unsigned char)(value >> 8 * i);
    return n;
}

/* What the two headers of a member have in common, and its name. */
static size_t put_facts(unsigned char *to, const char *name, size_t packed, size_t n, bool is_entry)
{
    size_t at =
        put(to, 20, 2) + put(to + 2, 0, 2) + put(to + 4, 8, 2); /* version, flags, deflate */
    at += put(to + at, 0x210000, 4);
    at += put(to + at, 0, 4); /* a wrong checksum */
    at += put(to + at, packed, 4);
    at += put(to + at, n, 4);
    at += put(to + at, strlen(name), 2);
    size_t rest = is_entry ? 16 : 2; /* zeros: the member begins at 0 */
    memset(to + at, 0, rest);
    memcpy(to + at + rest, name, strlen(name));
    return at + rest + strlen(name);
}

/* An archive of one member, which is compressed. */
static size_t make_zip(unsigned char *zip)
{
    static const char name[] = "shape.npy";
    const unsigned char bytes[300] = {1, 2, 3};
    z_stream stream = {.next_in = (unsigned char *)bytes, .avail_in = sizeof(bytes)};
    unsigned char packed[400];
    stream.next_out = packed;
    stream.avail_out = sizeof(packed);
    assert_int_equal(deflateInit2(&stream, 6, Z_DEFLATED, -MAX_WBITS, 8, Z_DEFAULT_STRATEGY), Z_OK);
    assert_int_equal(deflate(&stream, Z_FINISH), Z_STREAM_END);
    size_t n = (size_t)stream.total_out, at = put(zip, 0x04034b50, 4);
    deflateEnd(&stream);
    at += put_facts(zip + at, name, n, sizeof(bytes), false);
    memcpy(zip + at, packed, n);
    size_t directory = at += n;
    at += put(zip + at, 0x02014b50, 4);
    at += put(zip + at, 20, 2);
    at += put_facts(zip + at, name, n, sizeof(bytes), true);
    size_t directory_n = at - directory;
    at += put(zip + at, 0x06054b50, 4);
    at += put(zip + at, 0, 4);
    at += put(zip + at, 1, 2) + put(zip + at + 2, 1, 2);
    at += put(zip + at, directory_n, 4);
    at += put(zip + at, directory, 4);
    return at + put(zip + at, 0, 2);
}

/* It says nothing about the file. */
static void an_archive_that_is_read_without_memory_is_not_damaged(void **state)
{
    (void)state;
    static unsigned char zip[1000];
    struct sparse_file sparse = {.first_error = 0};
    struct views *views;
    assert_int_equal(create_sparse(&sparse), 0);
    assert_int_equal(views_open(sparse.file, sfs_dataset_address(sparse.dataset), "/x", 1, &views),
                     0);
    const struct view_content content = {
        .bytes = (const char *)zip, .n = make_zip(zip), .most_kept = 1 << 20};
    for (int fails = NO_CALL; fails <= INFLATE; fails++) {
        zlib_calls = 0;
        zlib_fails = fails;
        int error = view_put(views, VIEW_NPZ, 0, &content);
        zlib_fails = NO_CALL;
        assert_int_equal(zlib_calls, fails == BEGIN ? 1 : 2);
        assert_int_equal(error, fails ? -ENOMEM : -EINVAL);
    }
    views_close(views);
    sfs_dataset_close(sparse.dataset);
    sfs_discard(sparse.file);
}

/* Of compressed files, which are read into memory, the log has why they cannot be. */
static void a_compressed_file_that_is_read_without_memory_is_logged(void **state)
{
    (void)state;
    struct loaded loaded;
    FILE *file = fopen("packed.gz", "w");
    assert_true(file && fwrite("\x1f\x8b\x08\0\0\0\0\0\0\0", 10, 1, file) == 1 &&
                fclose(file) == 0);
    for (int fails = BEGIN; fails <= INFLATE; fails++) {
        unsigned errors = log_errors();
        zlib_fails = fails;
        assert_int_equal(load_image("packed.gz", SIZE_MAX, "", &loaded), -ENOMEM);
        zlib_fails = NO_CALL;
        assert_int_equal(log_errors(), errors + 1);
    }
}

/* ---- An index ---- */

static uint64_t index_header;

static int count_chunk(void *context, const uint64_t *scaled, const struct chunk_record *record)
{
    (void)scaled, (void)record;
    ++*(int *)context;
    return 0;
}

static int read_index(void)
{
    struct opened opened;
    struct why why;
    int n = 0;
    int error = open_index("index.h5", index_header, &opened, &why);
    if (error)
        return error;
    error = index_iterate(opened.index, count_chunk, &n, &why);
    assert_true(error || n > 0);
    close_index(&opened);
    return error;
}

static void reading_an_index_fails_for_want_of_memory(void **state)
{
    (void)state;
    static const struct grid grids[] = {
        {"fixed array", false, 1, {3000}, {3000}, {1}},
        {"extensible array", true, 1, {3000}, {H5S_UNLIMITED}, {1}},
        {"B-tree", false, 2, {3000, 200}, {H5S_UNLIMITED, H5S_UNLIMITED}, {1, 1}},
    };
    for (size_t i = 0; i < COUNT(grids); i++) {
        hsize_t positions[400];
        size_t n = COUNT(positions) / (size_t)grids[i].rank;
        for (size_t k = 0; k < COUNT(positions); k++)
            positions[k] = k / (size_t)grids[i].rank;
        make_dense("index.h5", &grids[i], positions, n);
        index_header = header_of("index.h5", "x");
        assert_true(check(read_index, 0) > 10);
    }
}

static uint64_t write_max_dims[2];

/* Inserts, or removes, with another try if memory was short; what was there before is still there.
 * *error remembers the failure. */
static void change_chunk(struct index *index, uint64_t i, bool insert, int *error)
{
    struct why why = {""};
    const uint64_t scaled[] = {i / 20, i % 20};
    const struct chunk_record record = {.exists = true, .address = i, .size = 9};
    for (int tries = 0; tries < 2; tries++) {
        int failed =
            insert ? index_insert(index, scaled, &record, &why) : index_remove(index, scaled, &why);
        struct chunk_record found;
        if (failed) {
            assert_int_equal(failed, -ENOMEM);
            assert_int_equal(tries, 0);
            *error = failed;
        }
        if (index_lookup(index, scaled, &found, &why) != 0) {
            *error = -ENOMEM;
            assert_int_equal(index_lookup(index, scaled, &found, &why), 0);
        }
        assert_int_equal(found.exists, insert == !failed);
        if (!failed)
            break;
    }
}

static int write_chunks(struct index *index)
{
    enum { N = 1500 };
    struct why why = {""};
    int error = 0, n = 0;
    for (uint64_t i = 0; i < N; i++)
        change_chunk(index, i * 7 % N, true, &error);
    for (uint64_t i = 0; i < N; i += 3)
        change_chunk(index, i, false, &error);
    if (index_flush(index, &why) != 0) {
        error = -ENOMEM;
        assert_int_equal(index_flush(index, &why), 0);
    }
    if (index_iterate(index, count_chunk, &n, &why) != 0) {
        error = -ENOMEM;
        n = 0;
        assert_int_equal(index_iterate(index, count_chunk, &n, &why), 0);
    }
    assert_int_equal(n, N - N / 3);
    return error;
}

static int write_index(void)
{
    static const uint64_t dims[] = {75, 20}, chunk_dims[] = {1, 1};
    static const struct new_dataset dataset = {2, dims, write_max_dims, chunk_dims, 4, 2, false};
    struct superblock superblock = {.version = 3, .offset_size = 8, .length_size = 8};
    struct layout_message layout;
    struct chunk_record_format format;
    struct store *store;
    struct index *index;
    struct why why = {""};
    uint64_t address;
    fclose(fopen("written.bin", "w"));
    int error = store_open_writable("written.bin", &store);
    if (error)
        return error;
    error = store_allocate(store, 10000, &address);
    if (!error)
        error = layout_message_init(&dataset, &layout, &why);
    if (!error)
        error = layout_message_records(&layout, false, &format, &why);
    if (!error)
        error = index_open(store, &superblock, &layout, &format, write_max_dims, &index, &why);
    if (!error) {
        error = write_chunks(index);
        index_close(index);
    }
    store_close(store);
    return error;
}

static void an_index_survives_want_of_memory(void **state)
{
    (void)state;
    static const uint64_t max_dims[][2] = {
        {75, 20}, {SFS_UNLIMITED, 20}, {SFS_UNLIMITED, SFS_UNLIMITED}};
    for (size_t i = 0; i < COUNT(max_dims); i++) {
        memcpy(write_max_dims, max_dims[i], sizeof(write_max_dims));
        assert_true(check(write_index, 0) > 6);
    }
}

/* Turns an ordinary dataset into a sparse one. */
static int convert_header(void)
{
    static const uint64_t dims[] = {3000}, max_dims[] = {SFS_UNLIMITED}, chunk_dims[] = {1};
    static unsigned values[500]; /* which the header has no room for */
    struct sfs_filter filter = {32008, false, "large", COUNT(values), values};
    const struct section_filters filters = {.section = {{1, &filter}}};
    static const struct grid grid = {"", true, 1, {3000}, {H5S_UNLIMITED}, {1}};
    static const struct new_dataset dataset = {1, dims, max_dims, chunk_dims, 4, 2, true};
    struct superblock superblock;
    struct layout_message layout;
    struct store *store;
    struct why why = {""};
    make_dense("index.h5", &grid, NULL, 0);
    index_header = header_of("index.h5", "x");
    int error = store_open_writable("index.h5", &store);
    if (error)
        return error;
    error = superblock_read(store, &superblock, &why);
    if (!error)
        error = layout_message_init(&dataset, &layout, &why);
    if (!error)
        error = dataset_header_convert(store, &superblock, index_header, &layout, &filters, &why);
    if (!error)
        error = dataset_header_set_layout(store, &superblock, index_header, &layout, &why);
    if (!error)
        error = dataset_header_set_dims(store, &superblock, index_header, 1, dims, &why);
    store_close(store);
    return error;
}

static void converting_a_header_fails_for_want_of_memory(void **state)
{
    (void)state;
    assert_true(check(convert_header, 0) > 10);
}

static int all_tests(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_failed_allocation_is_an_error_of_its_call),
        cmocka_unit_test(every_failed_large_allocation_is_an_error_of_its_call),
        cmocka_unit_test(every_failed_allocation_for_a_sparse_view_is_an_error),
        cmocka_unit_test(every_failed_allocation_for_a_series_is_an_error),
        cmocka_unit_test(every_failed_allocation_for_a_cbf_file_is_an_error),
        cmocka_unit_test(after_a_failed_allocation_the_same_call_succeeds),
        cmocka_unit_test(every_failed_allocation_for_a_selection_is_an_error),
        cmocka_unit_test(every_failed_allocation_for_a_section_is_an_error),
        cmocka_unit_test(a_heap_takes_what_is_said_of_it),
        cmocka_unit_test(a_chunk_with_a_heap_fits_in_the_memory_that_it_takes),
        cmocka_unit_test(every_failed_allocation_while_writing_is_an_error),
        cmocka_unit_test(every_failed_allocation_for_an_image_is_an_error),
        cmocka_unit_test(an_archive_that_is_read_without_memory_is_not_damaged),
        cmocka_unit_test(a_compressed_file_that_is_read_without_memory_is_logged),
        cmocka_unit_test(reading_an_index_fails_for_want_of_memory),
        cmocka_unit_test(an_index_survives_want_of_memory),
        cmocka_unit_test(converting_a_header_fails_for_want_of_memory),
        cmocka_unit_test(a_failed_allocation_leaves_a_dense_dataset_as_it_should_be),
        cmocka_unit_test(a_failed_allocation_leaves_a_sparse_dataset_as_it_should_be),
        cmocka_unit_test(what_cannot_be_cut_off_does_not_become_older),
        cmocka_unit_test(a_failed_allocation_leaves_views_as_they_should_be),
    };
    return cmocka_run_group_tests(tests, make_file, NULL);
}

int main(void)
{
    return in_temporary_directory(all_tests);
}
