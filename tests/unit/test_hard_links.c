/* Hard links to sparse datasets: libhdf5 counts them in headers that our code changes before and after,
 * and nothing of either is lost. libhdf5 itself says how many there are. */
#include "opened.h"

#include <errno.h>
#include <hdf5.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "format/dataset_header.h"
#include "hdf5/hdf5.h"
#include "sparsefs/sparsefs.h"
#include "store/store.h"

#define PATH "links.h5"
#define MANY 24 /* links */

static const bool apart[] = {false, true};

static atomic_int left,
    failing; /* calls of hdf5_reopen: so many do what they should, then so many fail */

int __real_hdf5_reopen(struct hdf5 *hdf5);
int __wrap_hdf5_reopen(struct hdf5 *hdf5);

int __wrap_hdf5_reopen(struct hdf5 *hdf5)
{
    if (atomic_load(&failing) == 0 || atomic_fetch_sub(&left, 1) > 0)
        return __real_hdf5_reopen(hdf5);
    atomic_fetch_sub(&failing, 1);
    return -EIO;
}

/* ---- Files ---- */

static struct sfs_file *open_file(bool is_apart, bool writable)
{
    const struct sfs_options options = {.hdf5_worker = is_apart, .writable = writable};
    struct sfs_file *file = NULL;
    assert_int_equal(sfs_open(PATH, &options, &file), 0);
    return file;
}

static struct sfs_file *create_file(bool is_apart)
{
    const struct sfs_options options = {.hdf5_worker = is_apart, .replace = true};
    struct sfs_file *file = NULL;
    assert_int_equal(sfs_create(PATH, &options, &file), 0);
    return file;
}

static struct sfs_dataset *create_dataset(struct sfs_file *file, const char *path)
{
    struct sfs_dataset *dataset;
    struct sfs_dataset_create create = {
        .rank = 1, .dims = {4}, .max_dims = {SFS_UNLIMITED}, .chunk_dims = {4}};
    void *type;
    assert_int_equal(sfs_type_encode("<u8", &type, &create.type.n), 0);
    create.type.bytes = type;
    assert_int_equal(sfs_dataset_create(file, path, &create, &dataset), 0);
    free(type);
    return dataset;
}

static int make_link(struct sfs_file *file, const char *path, const char *target)
{
    char copy[64];
    snprintf(copy, sizeof(copy), "%s", target);
    return sfs_link_create(file, path, &(struct sfs_link){.type = SFS_LINK_HARD, .target = copy});
}

static void write_four(struct sfs_dataset *dataset, uint64_t start)
{
    const uint64_t values[] = {start + 1, start + 2, start + 3, start + 4};
    const struct sfs_slab slab = {.rank = 1, .start = {start}, .count = {4}};
    assert_int_equal(sfs_write(dataset, &slab, values), 0);
}

static void append_four(struct sfs_dataset *dataset)
{
    uint64_t n = sfs_dataset_info(dataset)->dims[0];
    assert_int_equal(sfs_set_extent(dataset, (uint64_t[]){n + 4}), 0);
    write_four(dataset, n);
}

/* ---- What has become of them ---- */

static void complain(void *context, enum sfs_finding finding, const char *line)
{
    (void)context;
    if (finding != SFS_SOUND)
        fail_msg("%s", line);
}

/* All n elements of the dataset are there under this name. */
static void check_elements(struct sfs_file *file, const char *path, uint64_t n)
{
    struct sfs_dataset *dataset = open_dataset(file, path);
    const struct sfs_slab slab = {.rank = 1, .count = {n}};
    uint64_t *values = allocate(n * sizeof(*values)), defined;
    assert_int_equal(sfs_dataset_info(dataset)->dims[0], n);
    assert_int_equal(sfs_count_defined(dataset, &slab, &defined), 0);
    assert_int_equal(defined, n);
    assert_int_equal(sfs_read(dataset, &slab, 0, values, n * sizeof(*values)), 0);
    for (uint64_t i = 0; i < n; i++)
        assert_int_equal(values[i], i + 1);
    free(values);
    sfs_dataset_close(dataset);
}

static void check_count(const char *path, unsigned links)
{
    H5O_info_t info;
    hid_t file = H5Fopen(PATH, H5F_ACC_RDONLY, H5P_DEFAULT);
    assert_true(file >= 0);
    assert_true(H5Oget_info_by_name2(file, path, &info, H5O_INFO_BASIC, H5P_DEFAULT) >= 0);
    assert_int_equal(info.rc, links);
    assert_true(H5Fclose(file) >= 0);
}

static void check_file(const char *const *paths, unsigned n_paths, uint64_t n)
{
    struct sfs_file *file = open_file(false, false);
    for (unsigned i = 0; i < n_paths; i++)
        check_elements(file, paths[i], n);
    assert_int_equal(sfs_check(file, complain, NULL), 0);
    assert_int_equal(sfs_close(file), 0);
    for (unsigned i = 0; i < n_paths; i++)
        check_count(paths[i], n_paths);
}

/* ---- Tests ---- */

static void what_is_written_after_a_link_is_kept(void **state)
{
    (void)state;
    static const char *const paths[] = {"/s", "/t"};
    for (size_t i = 0; i < COUNT(apart); i++) {
        struct sfs_file *file = create_file(apart[i]);
        struct sfs_dataset *dataset = create_dataset(file, "/s");
        assert_int_equal(make_link(file, "/t", "/s"), 0);
        write_four(dataset, 0);
        append_four(dataset);
        sfs_dataset_close(dataset);
        assert_int_equal(sfs_close(file), 0);
        check_file(paths, COUNT(paths), 8);
    }
}

/* A dataset as libhdf5 makes it, with an attribute, in the oldest format or the newest; some behind a
 * user block. */
static void make_ordinary(bool is_new, size_t attribute_bytes)
{
    hid_t fapl = H5Pcreate(H5P_FILE_ACCESS), dcpl = H5Pcreate(H5P_DATASET_CREATE);
    hid_t fcpl = H5Pcreate(H5P_FILE_CREATE);
    assert_true(H5Pset_userblock(fcpl, attribute_bytes % 2 ? 512 : 0) >= 0);
    assert_true(H5Pset_libver_bounds(fapl, is_new ? H5F_LIBVER_LATEST : H5F_LIBVER_EARLIEST,
                                     H5F_LIBVER_LATEST) >= 0);
    assert_true(H5Pset_chunk(dcpl, 1, (hsize_t[]){4}) >= 0);
    hid_t file = H5Fcreate(PATH, H5F_ACC_TRUNC, fcpl, fapl);
    hid_t space = H5Screate_simple(1, (hsize_t[]){4}, (hsize_t[]){H5S_UNLIMITED});
    hid_t dataset = H5Dcreate2(file, "s", H5T_STD_U64LE, space, H5P_DEFAULT, dcpl, H5P_DEFAULT);
    hid_t bytes = H5Tcreate(H5T_OPAQUE, attribute_bytes), scalar = H5Screate(H5S_SCALAR);
    hid_t attribute = H5Acreate2(dataset, "a", bytes, scalar, H5P_DEFAULT, H5P_DEFAULT);
    assert_true(attribute >= 0);
    H5Aclose(attribute);
    H5Tclose(bytes);
    H5Sclose(scalar);
    H5Sclose(space);
    H5Dclose(dataset);
    H5Pclose(dcpl);
    H5Pclose(fapl);
    H5Pclose(fcpl);
    assert_true(H5Fclose(file) >= 0);
}

static uint64_t address_of(const char *path)
{
    struct sfs_file *file = open_file(false, false);
    uint64_t address;
    assert_int_equal(sfs_find(file, sfs_root(file), path, &address), 0);
    assert_int_equal(sfs_close(file), 0);
    return address;
}

/* Makes it sparse, with a header of the version that it has. */
static void convert(void)
{
    static const uint64_t dims[] = {4}, max_dims[] = {SFS_UNLIMITED}, chunk_dims[] = {4};
    const struct new_dataset new = {1, dims, max_dims, chunk_dims, 8, 2, false};
    struct superblock superblock;
    struct layout_message layout;
    struct store *store;
    struct why why;
    uint64_t address = address_of("/s");
    assert_int_equal(store_open_writable(PATH, &store), 0);
    assert_int_equal(superblock_read(store, &superblock, &why), 0);
    address += superblock.base;
    assert_int_equal(layout_message_init(&new, &layout, &why), 0);
    assert_int_equal(dataset_header_convert(store, &superblock, address, &layout, NULL, &why), 0);
    assert_int_equal(superblock_set_end(store, &superblock, store_end(store)), 0);
    assert_int_equal(store_commit(store), 0);
    store_close(store);
}

/* Of the header: its version, and of how many blocks it is. */
static size_t blocks_of(const char *path, unsigned *version)
{
    struct superblock superblock;
    struct object_header *header;
    struct store *store;
    struct why why;
    uint64_t address = address_of(path);
    assert_int_equal(store_open(PATH, &store), 0);
    assert_int_equal(superblock_read(store, &superblock, &why), 0);
    assert_int_equal(
        object_header_read(store, &superblock, superblock.base + address, &header, &why), 0);
    size_t n = header->n_blocks;
    *version = header->version;
    object_header_free(header);
    store_close(store);
    return n;
}

/* Of which libhdf5 has known the header, with links before and after it was changed. */
static void link_and_change(bool is_apart)
{
    static const char *const paths[] = {"/s", "/t", "/u", "/g/v"};
    struct sfs_file *file = open_file(is_apart, true);
    struct sfs_dataset *dataset = open_dataset(file, "/s");
    write_four(dataset, 0);
    assert_int_equal(make_link(file, "/t", "/s"), 0);
    assert_int_equal(sfs_flush(file), 0);
    append_four(dataset);
    assert_int_equal(sfs_flush(file), 0);
    assert_int_equal(make_link(file, "/u", "/t"), 0);
    append_four(dataset);
    assert_int_equal(sfs_group_create(file, "/g"), 0);
    assert_int_equal(make_link(file, "/g/v", "/s"), 0);
    assert_int_equal(make_link(file, "/g/v", "/s"), -EIO); /* it is there */
    append_four(dataset);
    sfs_dataset_close(dataset);
    assert_int_equal(sfs_close(file), 0);
    check_file(paths, COUNT(paths), 16);
}

/* Headers with room for the count, and without, where libhdf5 puts messages into a new block. */
static void headers_of_all_kinds(void **state)
{
    (void)state;
    unsigned version, after, grown = 0, n_runs = 0;
    for (size_t bytes = 106; bytes <= 136; bytes++)
        for (size_t i = 0; i < 2 * COUNT(apart); i++) {
            make_ordinary(i & 1, bytes);
            convert();
            size_t n = blocks_of("/s", &version);
            assert_int_equal(version, i & 1 ? 2 : 1);
            link_and_change(apart[i / 2]);
            grown += blocks_of("/s", &after) > n;
            assert_int_equal(after, version);
            n_runs++;
        }
    assert_true(grown > 0 && grown < n_runs / 2); /* of the new ones */
}

/* Nobody has the dataset open, and links lead to its link. */
static void targets_that_are_not_open(void **state)
{
    (void)state;
    static const char *const paths[] = {"/s", "/t", "/u"};
    for (size_t i = 0; i < COUNT(apart); i++) {
        char target[] = "/s", nowhere[] = "/nowhere";
        struct sfs_file *file = create_file(apart[i]);
        struct sfs_dataset *dataset = create_dataset(file, "/s");
        write_four(dataset, 0);
        sfs_dataset_close(dataset);
        assert_int_equal(sfs_close(file), 0);
        file = open_file(apart[i], true);
        assert_int_equal(make_link(file, "/t", "/s"), 0);
        struct sfs_link soft = {.type = SFS_LINK_SOFT, .target = target};
        assert_int_equal(sfs_link_create(file, "/soft", &soft), 0);
        soft.target = nowhere;
        assert_int_equal(sfs_link_create(file, "/broken", &soft), 0);
        assert_int_equal(make_link(file, "/u", "/soft"), 0);
        assert_int_equal(make_link(file, "/x", "/nowhere"), -EIO);
        assert_int_equal(sfs_link_create(file, "/x", &(struct sfs_link){.type = SFS_LINK_HARD}),
                         -EIO);
        assert_int_equal(make_link(file, "/x", "/broken"), -EIO);
        assert_int_equal(make_link(file, "/x/y", "/s"), -EIO);
        assert_int_equal(sfs_group_create(file, "/g"), 0);
        assert_int_equal(make_link(file, "/h", "/g"), 0); /* of groups, as ever */
        assert_int_equal(make_link(file, "/g/root", "/"), 0);
        dataset = open_dataset(file, "/u");
        append_four(dataset);
        sfs_dataset_close(dataset);
        assert_int_equal(sfs_close(file), 0);
        check_file(paths, COUNT(paths), 8);
        check_count("/h", 2);
    }
}

/* Nor is the dataset opened then. */
static void reopening_that_fails_before_it_is_opened(void **state)
{
    (void)state;
    static const char *const paths[] = {"/s", "/t"};
    for (size_t i = 0; i < COUNT(apart); i++) {
        uint64_t address;
        struct sfs_file *file = create_file(apart[i]);
        struct sfs_dataset *dataset = create_dataset(file, "/s");
        write_four(dataset, 0);
        sfs_dataset_close(dataset);
        assert_int_equal(sfs_close(file), 0);
        file = open_file(apart[i], true);
        assert_int_equal(sfs_find(file, sfs_root(file), "/s", &address), 0);
        atomic_store(&left, 1);
        atomic_store(&failing, 2);
        assert_int_equal(make_link(file, "/t", "/s"), apart[i] ? 0 : -EIO);
        if (!apart[i])
            assert_int_equal(sfs_dataset_open(file, address, "/s", &dataset), -EIO);
        atomic_store(&failing, 0);
        dataset = open_dataset(file, "/s");
        append_four(dataset);
        sfs_dataset_close(dataset);
        assert_int_equal(sfs_close(file), 0);
        check_file(paths, COUNT(paths), 8);
    }
}

#define MOST_UNUSED 256 /* datasets that stay open */

/* The link is made, but libhdf5 does not forget the header, which would change when the dataset goes. */
static void reopening_that_fails_while_datasets_go(void **state)
{
    (void)state;
    static const char *const paths[] = {"/s", "/t"};
    static struct sfs_dataset *others[MOST_UNUSED + 1];
    for (size_t i = 0; i < COUNT(apart); i++) {
        struct sfs_file *file = create_file(apart[i]);
        struct sfs_dataset *dataset = create_dataset(file, "/s");
        for (size_t k = 0; k < COUNT(others); k++) {
            char path[16];
            snprintf(path, sizeof(path), "/d%zu", k);
            others[k] = create_dataset(file, path);
        }
        atomic_store(&left, 1);
        atomic_store(&failing, 1000);
        assert_int_equal(make_link(file, "/t", "/s"), apart[i] ? 0 : -EIO);
        write_four(dataset, 0);
        sfs_dataset_close(dataset);
        for (size_t k = 0; k < COUNT(others); k++)
            sfs_dataset_close(others[k]);
        atomic_store(&failing, 0);
        assert_int_equal(sfs_close(file), 0);
        check_file(paths, COUNT(paths), 4);
    }
}

/* libhdf5 cannot be made to forget the header at once: nothing is changed before it can. Its process has written it,
 * and need not forget it. */
static void reopening_that_fails(void **state)
{
    (void)state;
    static const char *const paths[] = {"/s", "/t"};
    struct sfs_dataset *other;
    for (size_t i = 0; i < 2 * COUNT(apart); i++) {
        bool is_apart = apart[i / 2];
        int expected = is_apart ? 0 : -EIO;
        struct sfs_file *file = create_file(is_apart);
        struct sfs_dataset *dataset = create_dataset(file, "/s");
        uint64_t address;
        sfs_dataset_close(dataset);
        sfs_dataset_close(create_dataset(file, "/other"));
        assert_int_equal(sfs_close(file), 0);
        file = open_file(is_apart, true);
        dataset = open_dataset(file, "/s");
        assert_int_equal(sfs_find(file, sfs_root(file), "/other", &address), 0);
        write_four(dataset, 0);
        atomic_store(&left, 0);
        atomic_store(&failing, 1);
        assert_int_equal(make_link(file, "/t", "/s"), -EIO); /* before it is made */
        append_four(dataset);
        assert_int_equal(sfs_flush(file), 0);
        atomic_store(&left, 1);
        atomic_store(&failing, 2);
        assert_int_equal(make_link(file, "/t", "/s"), expected); /* after it was */
        assert_int_equal(sfs_dataset_open(file, address, "/other", &other), 0);
        sfs_dataset_close(other);
        if (i % 2)
            assert_int_equal(sfs_flush(file), expected);
        else
            assert_int_equal(sfs_set_extent(dataset, (uint64_t[]){i ? 12 : 0}), expected);
        assert_int_equal(atomic_load(&failing), is_apart ? 2 : 0);
        atomic_store(&failing, 0);
        assert_int_equal(sfs_set_extent(dataset, (uint64_t[]){8}), 0);
        append_four(dataset);
        sfs_dataset_close(dataset);
        assert_int_equal(sfs_close(file), 0);
        check_file(paths, COUNT(paths), 12);
    }
}

struct linking {
    struct sfs_file *file;
    const char *prefix;
};

static void *make_links(void *argument)
{
    const struct linking *linking = argument;
    for (int i = 0; i < MANY; i++) {
        char path[16];
        snprintf(path, sizeof(path), "%s%d", linking->prefix, i);
        if (make_link(linking->file, path, "/s") < 0)
            return argument;
    }
    return NULL;
}

static void *flush_often(void *argument)
{
    for (int i = 0; i < MANY; i++)
        if (sfs_flush(argument) < 0)
            return argument;
    return NULL;
}

/* Links are made by several threads while others write, commit, and make datasets. */
static void several_threads(void **state)
{
    (void)state;
    for (size_t i = 0; i < COUNT(apart); i++) {
        struct sfs_file *file = create_file(apart[i]);
        struct sfs_dataset *dataset = create_dataset(file, "/s");
        struct linking a = {file, "/a"}, b = {file, "/b"};
        pthread_t threads[3];
        void *failed;
        write_four(dataset, 0);
        start_thread(&threads[0], make_links, &a);
        start_thread(&threads[1], make_links, &b);
        start_thread(&threads[2], flush_often, file);
        for (int k = 0; k < MANY; k++) {
            char path[16];
            append_four(dataset);
            snprintf(path, sizeof(path), "/d%d", k);
            sfs_dataset_close(create_dataset(file, path));
        }
        for (size_t k = 0; k < COUNT(threads); k++) {
            pthread_join(threads[k], &failed);
            assert_null(failed);
        }
        sfs_dataset_close(dataset);
        assert_int_equal(sfs_close(file), 0);
        check_file(NULL, 0, 0);
        file = open_file(false, false);
        check_elements(file, "/s", 4 + 4 * MANY);
        check_elements(file, "/b7", 4 + 4 * MANY);
        assert_int_equal(sfs_close(file), 0);
        check_count("/a3", 1 + 2 * MANY);
    }
}

static int all_tests(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_teardown(what_is_written_after_a_link_is_kept, end_test),
        cmocka_unit_test_teardown(headers_of_all_kinds, end_test),
        cmocka_unit_test_teardown(targets_that_are_not_open, end_test),
        cmocka_unit_test_teardown(reopening_that_fails, end_test),
        cmocka_unit_test_teardown(reopening_that_fails_before_it_is_opened, end_test),
        cmocka_unit_test_teardown(reopening_that_fails_while_datasets_go, end_test),
        cmocka_unit_test_teardown(several_threads, end_test),
    };
    log_quietly();
    if (sfs_start_hdf5_workers(0, 60) < 0)
        return 1;
    return cmocka_run_group_tests(tests, NULL, NULL);
}

int main(void)
{
    return in_temporary_directory(all_tests);
}
