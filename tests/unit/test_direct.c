/* Our own reader: how long it may take, where the disk is slow, and what it says of a file that is
 * written to. That it says what libhdf5 says is the affair of own_reader.c. */
#include "support.h"

#include <errno.h>
#include <hdf5.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "hdf5/own_reader.h"
#include "store/store.h"

#define PATH    "file.h5"
#define SECOND  UINT64_C(1000000000)
#define PATIENT (3600 * SECOND)
#define MEBI    ((size_t)1 << 20)

/* ---- A slow disk ---- */

static uint64_t read_nanos; /* that each read takes, */
static uint64_t passed;     /* which time has passed by that */
static unsigned reads;
static size_t longest; /* of them */

uint64_t __real_clock_now(void);
uint64_t __wrap_clock_now(void);
int __real_store_read_why(struct store *store, uint64_t address, void *buffer, size_t n,
                          struct why *why);
int __wrap_store_read_why(struct store *store, uint64_t address, void *buffer, size_t n,
                          struct why *why);

uint64_t __wrap_clock_now(void)
{
    return __real_clock_now() + passed;
}

int __wrap_store_read_why(struct store *store, uint64_t address, void *buffer, size_t n,
                          struct why *why)
{
    passed += read_nanos;
    reads++;
    longest = n > longest ? n : longest;
    return __real_store_read_why(store, address, buffer, n, why);
}

/* ---- Files ---- */

/* Groups in the old form, one with many links and one with long names. */
static void make_file(unsigned n_links, unsigned n_long)
{
    static char name[60000];
    hid_t file = H5Fcreate(PATH, H5F_ACC_TRUNC, H5P_DEFAULT, H5P_DEFAULT);
    hid_t small = H5Gcreate2(file, "small", H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT);
    hid_t many = H5Gcreate2(file, "many", H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT);
    hid_t named = H5Gcreate2(file, "named", H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT);
    assert_true(file >= 0 && small >= 0 && many >= 0 && named >= 0);
    for (unsigned i = 0; i < n_links; i++) {
        snprintf(name, sizeof(name), "%u", i);
        assert_true(H5Lcreate_soft("/small", many, name, H5P_DEFAULT, H5P_DEFAULT) >= 0);
    }
    for (unsigned i = 0; i < n_long; i++) {
        snprintf(name, sizeof(name), "%0*u", (int)sizeof(name) - 1, i);
        assert_true(H5Lcreate_soft("/small", named, name, H5P_DEFAULT, H5P_DEFAULT) >= 0);
    }
    H5Gclose(named);
    H5Gclose(many);
    H5Gclose(small);
    assert_true(H5Fclose(file) >= 0);
}

struct opened {
    struct store *store;
    struct direct *direct;
    uint64_t root;
};

static void open_file(struct opened *opened, bool may_write, uint64_t timeout)
{
    const struct store_opening how = {.writable = may_write, .is_shared = may_write};
    assert_int_equal(store_open_as(PATH, &how, &opened->store), 0);
    assert_int_equal(direct_open(opened->store, timeout, &opened->direct, &opened->root), 0);
}

static void close_file(struct opened *opened)
{
    direct_close(opened->direct);
    store_close(opened->store);
    read_nanos = 0;
}

static uint64_t address_of(struct opened *opened, const char *name)
{
    struct sfs_links links;
    uint64_t address = UINT64_MAX;
    assert_int_equal(direct_list(opened->direct, opened->root, &links), 0);
    for (size_t i = 0; i < links.n; i++)
        if (!strcmp(links.link[i].name, name))
            address = links.link[i].address;
    sfs_links_free(&links);
    assert_true(address != UINT64_MAX);
    return address;
}

static int list(struct opened *opened, uint64_t group, size_t *n)
{
    struct sfs_links links;
    int error = direct_list(opened->direct, group, &links);
    *n = links.n;
    if (!error)
        sfs_links_free(&links);
    return error;
}

static int object_type(struct opened *opened, uint64_t address)
{
    enum sfs_object_type type = SFS_DATATYPE;
    int error = direct_object_type(opened->direct, address, &type);
    assert_true(error || type == SFS_GROUP);
    return error;
}

/* ---- Time ---- */

static void it_takes_no_longer_than_it_may(void **state)
{
    (void)state;
    struct opened opened;
    size_t n;
    make_file(1000, 0);
    open_file(&opened, false, 20 * SECOND);
    uint64_t small = address_of(&opened, "small"), many = address_of(&opened, "many");
    assert_int_equal(list(&opened, many, &n), 0);
    assert_int_equal(n, 1000);
    unsigned before = log_errors();
    read_nanos = SECOND;
    /* Each call has its time, and one that needs few reads is over before it has passed. */
    for (int i = 0; i < 10; i++)
        assert_int_equal(list(&opened, small, &n), 0);
    reads = 0;
    assert_int_equal(list(&opened, many, &n), -EAGAIN);
    assert_in_range(reads, 5, 20);
    assert_int_equal(n, 0);
    /* Nobody loses that time twice, however fast the disk is then. */
    read_nanos = 0;
    reads = 0;
    assert_int_equal(list(&opened, small, &n), -EAGAIN);
    assert_int_equal(object_type(&opened, small), -EAGAIN);
    struct sfs_dataset_info info;
    struct hdf5_storage storage;
    assert_int_equal(direct_dataset_open(opened.direct, small, &info, &storage), -EAGAIN);
    assert_int_equal(reads, 0);
    assert_int_equal(log_errors(), before); /* it is none, and is said once */
    close_file(&opened);
}

static void opening_takes_no_longer_than_it_may(void **state)
{
    (void)state;
    struct store *store;
    struct direct *direct;
    uint64_t root;
    make_file(0, 0);
    assert_int_equal(store_open(PATH, &store), 0);
    read_nanos = SECOND;
    assert_int_equal(direct_open(store, 2 * SECOND, &direct, &root), -EAGAIN);
    read_nanos = 0;
    assert_int_equal(direct_open(store, 0, &direct, &root), -EAGAIN);
    assert_int_equal(direct_open(store, 3600 * SECOND, &direct, &root), 0);
    direct_close(direct);
    store_close(store);
}

/* The names of a group are read at once, which may be 64 MiB. */
static void long_reads_are_divided(void **state)
{
    (void)state;
    struct opened opened;
    size_t n;
    make_file(0, 100);
    open_file(&opened, false, PATIENT);
    uint64_t named = address_of(&opened, "named");
    longest = reads = 0;
    assert_int_equal(list(&opened, named, &n), 0);
    assert_int_equal(n, 100);
    assert_int_equal(longest, MEBI);
    assert_true(reads > 100 * 60000 / MEBI);
    close_file(&opened);
}

/* ---- Writing ---- */

static void begin_writing(struct opened *opened, struct hdf5 **hdf5)
{
    assert_int_equal(hdf5_open(opened->store, hdf5), 0);
    assert_int_equal(store_begin_writing(opened->store), 0);
}

static void end_writing(struct opened *opened, struct hdf5 *hdf5)
{
    assert_int_equal(hdf5_flush(hdf5), 0);
    assert_int_equal(store_commit(opened->store), 0);
    assert_int_equal(store_end_writing(opened->store), 0);
    hdf5_close(hdf5);
}

/* What was made lies behind what was the end. */
static void what_was_written_is_read(void **state)
{
    (void)state;
    struct opened opened;
    struct hdf5 *hdf5;
    size_t n;
    make_file(0, 0);
    open_file(&opened, true, PATIENT);
    uint64_t size = store_size(opened.store);
    begin_writing(&opened, &hdf5);
    for (int i = 0; i < 50; i++) {
        char path[20];
        snprintf(path, sizeof(path), "/new%d", i);
        assert_int_equal(hdf5_create_group(hdf5, path), 0);
    }
    end_writing(&opened, hdf5);
    uint64_t address = address_of(&opened, "new49"); /* not by the links that were kept */
    assert_true(address >= size);
    assert_int_equal(object_type(&opened, address), 0);
    assert_int_equal(list(&opened, address, &n), 0);
    assert_int_equal(n, 0);
    close_file(&opened);
}

#define ROOT_AT 64 /* in a superblock of version 0 */

static void another_root_is_none_of_ours(void **state)
{
    (void)state;
    struct opened opened;
    struct hdf5 *hdf5;
    make_file(0, 0);
    open_file(&opened, true, PATIENT);
    uint64_t small = address_of(&opened, "small"), root;
    assert_int_equal(store_read(opened.store, ROOT_AT, &root, sizeof(root)), 0);
    assert_int_equal(root, opened.root);
    assert_int_equal(object_type(&opened, small), 0);
    begin_writing(&opened, &hdf5);
    assert_int_equal(store_write(opened.store, ROOT_AT, &small, sizeof(small)), 0);
    end_writing(&opened, hdf5);
    assert_int_equal(object_type(&opened, small), -EAGAIN);
    assert_int_equal(object_type(&opened, small), -EAGAIN);
    close_file(&opened);
}

static int all_tests(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(it_takes_no_longer_than_it_may),
        cmocka_unit_test(opening_takes_no_longer_than_it_may),
        cmocka_unit_test(long_reads_are_divided),
        cmocka_unit_test(what_was_written_is_read),
        cmocka_unit_test(another_root_is_none_of_ours),
    };
    log_quietly();
    return cmocka_run_group_tests(tests, NULL, NULL);
}

int main(void)
{
    return in_temporary_directory(all_tests);
}
