/* A dataset by its path, or the test fails. */
#ifndef TESTS_UNIT_OPENED_H
#define TESTS_UNIT_OPENED_H

#include "support.h"

#include "sparsefs/sparsefs.h"

/* The caller closes it. */
static inline struct sfs_dataset *open_dataset(struct sfs_file *file, const char *path)
{
    struct sfs_dataset *dataset;
    uint64_t address;
    assert_int_equal(sfs_find(file, sfs_root(file), path, &address), 0);
    assert_int_equal(sfs_dataset_open(file, address, path, &dataset), 0);
    return dataset;
}

#endif
