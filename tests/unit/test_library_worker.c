/* Programs with the library: files that libhdf5 sees in a process of its own, if the program asks
 * for it, and that program outlives. */
#include "support.h"

#include <dirent.h>
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <hdf5.h>

#include "sparsefs/sparsefs.h"

#define PATH "library.h5"
#define N    16

static const struct sfs_options apart = {.hdf5_worker = true};

static void make_file(void)
{
    uint16_t values[N];
    for (uint16_t i = 0; i < N; i++)
        values[i] = i;
    hid_t file = H5Fcreate(PATH, H5F_ACC_TRUNC, H5P_DEFAULT, H5P_DEFAULT);
    hid_t space = H5Screate_simple(1, (hsize_t[]){N}, NULL);
    hid_t dataset =
        H5Dcreate2(file, "d", H5T_STD_U16LE, space, H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT);
    assert_true(H5Dwrite(dataset, H5T_NATIVE_UINT16, H5S_ALL, H5S_ALL, H5P_DEFAULT, values) >= 0);
    H5Dclose(dataset);
    H5Sclose(space);
    assert_true(H5Fclose(file) >= 0);
}

/* Which children a process has; how many. */
static size_t children(pid_t pid, pid_t *child, size_t most)
{
    char path[64];
    size_t n = 0;
    long number;
    snprintf(path, sizeof(path), "/proc/%ld/task/%ld/children", (long)pid, (long)pid);
    FILE *file = fopen(path, "re");
    assert_non_null(file);
    while (n < most && fscanf(file, "%ld", &number) == 1)
        child[n++] = (pid_t)number;
    fclose(file);
    return n;
}

/* The processes that those have forked which were forked at first. */
static size_t workers(pid_t *worker, size_t most)
{
    pid_t first[8];
    size_t n = 0, n_first = children(getpid(), first, COUNT(first));
    for (size_t i = 0; i < n_first; i++)
        n += children(first[i], worker + n, most - n);
    return n;
}

static bool is_open_here(const char *name)
{
    char path[64], target[4096];
    bool is_open = false;
    for (int fd = 0; fd < 64 && !is_open; fd++) {
        snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
        ssize_t n = readlink(path, target, sizeof(target) - 1);
        target[n > 0 ? n : 0] = '\0';
        is_open = strstr(target, name) != NULL;
    }
    return is_open;
}

static void check_read(struct sfs_file *file)
{
    struct sfs_dataset *dataset;
    uint64_t address;
    uint16_t values[N];
    assert_int_equal(sfs_find(file, sfs_root(file), "d", &address), 0);
    assert_int_equal(sfs_dataset_open(file, address, "/d", &dataset), 0);
    struct sfs_slab slab = {.rank = 1, .count = {N}};
    assert_int_equal(sfs_read(dataset, &slab, 0, values, sizeof(values)), 0);
    for (uint16_t i = 0; i < N; i++)
        assert_int_equal(values[i], i);
    sfs_dataset_close(dataset);
}

/* What our own reader does not say. */
static void ask_libhdf5(struct sfs_file *file)
{
    struct sfs_attributes attributes;
    assert_int_equal(sfs_attributes(file, sfs_root(file), &attributes), 0);
    assert_int_equal(attributes.n, 0);
    sfs_attributes_free(&attributes);
}

static void test_it_is_there_if_asked_for(void **state)
{
    (void)state;
    struct sfs_file *file, *other, *inside;
    pid_t worker[8];
    make_file();
    log_quietly();
    assert_int_equal(sfs_open(PATH, &apart, &file), -EINVAL); /* none was started */
    assert_int_equal(sfs_start_hdf5_workers(0, 0), 0);
    assert_int_equal(sfs_start_hdf5_workers(0, 0), -EALREADY);
    assert_int_equal(workers(worker, COUNT(worker)), 0);

    assert_int_equal(sfs_open(PATH, NULL, &inside), 0);
    assert_int_equal(workers(worker, COUNT(worker)), 0);
    check_read(inside);
    sfs_close(inside);

    assert_int_equal(sfs_open(PATH, &apart, &file), 0);
    assert_int_equal(workers(worker, COUNT(worker)), 0); /* the file is plain */
    ask_libhdf5(file);
    assert_int_equal(workers(worker, COUNT(worker)), 1);
    assert_int_equal(sfs_open(PATH, &apart, &other), 0);
    ask_libhdf5(other);
    assert_int_equal(workers(worker, COUNT(worker)), 2); /* each has its own */
    assert_true(is_open_here(PATH));
    check_read(file);
    for (int i = 0; i < 2; i++)
        assert_int_equal(kill(worker[i], SIGKILL), 0);
    ask_libhdf5(file);
    ask_libhdf5(other);
    check_read(file);
    check_read(other);
    sfs_close(file);
    sfs_close(other);
    assert_int_equal(workers(worker, COUNT(worker)), 0);
}

#define WIDE 12 /* datasets: more than are looked at one by one */

/* Each has an attribute that is too large to be read. */
static void make_wide(void)
{
    hid_t file = H5Fcreate(PATH, H5F_ACC_TRUNC, H5P_DEFAULT, H5P_DEFAULT);
    hid_t space = H5Screate_simple(1, (hsize_t[]){N}, NULL);
    hid_t none = H5Screate_simple(2, (hsize_t[]){(hsize_t)1 << 40, 0}, NULL);
    for (int i = 0; i < WIDE; i++) {
        char name[16];
        snprintf(name, sizeof(name), "d%d", i);
        hid_t dataset =
            H5Dcreate2(file, name, H5T_STD_U16LE, space, H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT);
        hid_t attribute =
            H5Acreate2(dataset, "none", H5T_STD_U16LE, none, H5P_DEFAULT, H5P_DEFAULT);
        assert_true(attribute >= 0);
        H5Aclose(attribute);
        H5Dclose(dataset);
    }
    H5Sclose(none);
    H5Sclose(space);
    assert_true(H5Fclose(file) >= 0);
}

static void test_attributes_that_are_left_out_end_no_worker(void **state)
{
    (void)state;
    struct sfs_file *file;
    struct sfs_links links;
    pid_t worker[8], later[8];
    make_wide();
    assert_int_equal(sfs_open(PATH, &apart, &file), 0);
    ask_libhdf5(file);
    assert_int_equal(workers(worker, COUNT(worker)), 1);
    unsigned errors = log_errors();
    assert_int_equal(sfs_list(file, sfs_root(file), &links), 0);
    assert_int_equal(links.n, WIDE);
    for (size_t i = 0; i < links.n; i++) {
        struct sfs_attributes attributes;
        assert_int_equal(sfs_attributes(file, links.link[i].address, &attributes), 0);
        assert_int_equal(attributes.n, 1);
        assert_null(attributes.attribute[0].text);
        sfs_attributes_free(&attributes);
    }
    sfs_links_free(&links);
    assert_int_equal(workers(later, COUNT(later)), 1);
    assert_int_equal(later[0], worker[0]);
    assert_int_equal(log_errors(), errors);
    sfs_close(file);
}

TEST_MAIN(cmocka_unit_test(test_it_is_there_if_asked_for),
          cmocka_unit_test(test_attributes_that_are_left_out_end_no_worker))
