/* Sources of virtual datasets, in more files than stay open: what happens while one is closed. */
#include "support.h"

#include <hdf5.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

#include "dataset/private.h"
#include "dataset/virtual_sources.h"

#define FILES 70 /* more than stay open */

static struct {
    struct sfs_file *file;
    struct sfs_encoded type;
    struct sfs_dataset *first; /* the source that is closed first; then NULL */
    struct sfs_file *of;       /* its file, while it is being closed, */
    bool is_gone;              /* which was closed meanwhile */
} test;

void __real_sfs_discard(struct sfs_file *file);
void __wrap_sfs_discard(struct sfs_file *file);
void __wrap_sfs_discard(struct sfs_file *file)
{
    test.is_gone |= file == test.of;
    __real_sfs_discard(file);
}

static struct source *open_source(unsigned i, struct sfs_dataset **dataset)
{
    char file[16];
    snprintf(file, sizeof(file), "s%u.h5", i);
    const struct source_name name = {file, "d", sfs_root(test.file)};
    struct source *source = source_create(test.file->sources, test.file, "/v", &test.type, &name);
    assert_non_null(source);
    assert_int_equal(source_get(source, false, dataset), 0);
    return source;
}

/* Each is closed before the next one is opened; those in other files than the first. */
static void open_others(void)
{
    for (unsigned i = 1; i < FILES; i++) {
        struct sfs_dataset *dataset;
        struct source *source = open_source(i, &dataset);
        source_put(source);
        source_destroy(source);
    }
}

void __real_sfs_dataset_close(struct sfs_dataset *dataset);
void __wrap_sfs_dataset_close(struct sfs_dataset *dataset);
void __wrap_sfs_dataset_close(struct sfs_dataset *dataset)
{
    if (dataset && dataset == test.first) {
        test.first = NULL;
        test.of = dataset->file;
        open_others();
        test.of = NULL;
        if (test.is_gone)
            return;
    }
    __real_sfs_dataset_close(dataset);
}

static void make_file(const char *name)
{
    hid_t file = H5Fcreate(name, H5F_ACC_TRUNC, H5P_DEFAULT, H5P_DEFAULT);
    hid_t space = H5Screate(H5S_SCALAR);
    H5Dclose(H5Dcreate2(file, "d", H5T_STD_U32LE, space, H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT));
    H5Sclose(space);
    assert_true(H5Fclose(file) >= 0);
}

static void a_file_stays_while_a_source_in_it_is_closed(void **state)
{
    (void)state;
    struct sfs_dataset *dataset;
    void *type;
    make_file("v.h5");
    for (unsigned i = 0; i < FILES; i++) {
        char name[16];
        snprintf(name, sizeof(name), "s%u.h5", i);
        make_file(name);
    }
    assert_int_equal(sfs_open("v.h5", NULL, &test.file), 0);
    pthread_mutex_lock(&test.file->lock);
    assert_int_equal(file_make_sources(test.file), 0);
    pthread_mutex_unlock(&test.file->lock);
    assert_int_equal(sfs_type_encode("<u4", &type, &test.type.n), 0);
    test.type.bytes = type;
    struct source *first = open_source(0, &dataset);
    test.first = dataset;
    source_put(first);
    source_destroy(first);
    assert_false(test.is_gone);
    open_others(); /* now it is closed like others */
    sfs_discard(test.file);
    free(type);
}

TEST_MAIN(cmocka_unit_test(a_file_stays_while_a_source_in_it_is_closed))
