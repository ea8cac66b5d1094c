/* A file of hard links in which one object has 2^levels paths. */
#ifndef TESTS_UNIT_DIAMOND_H
#define TESTS_UNIT_DIAMOND_H

#include "support.h"

#include <hdf5.h>

/* Every level is a group with the links a and b to the next; the last has a dataset, d. */
static inline void make_diamond(const char *path, unsigned levels)
{
    hid_t fapl = H5Pcreate(H5P_FILE_ACCESS), space = H5Screate(H5S_SCALAR);
    H5Pset_libver_bounds(fapl, H5F_LIBVER_LATEST, H5F_LIBVER_LATEST);
    hid_t above = H5Fcreate(path, H5F_ACC_TRUNC, H5P_DEFAULT, fapl), file = above;
    for (unsigned i = 0; i < levels; i++) {
        hid_t group = H5Gcreate2(above, "a", H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT);
        assert_true(H5Lcreate_hard(above, "a", above, "b", H5P_DEFAULT, H5P_DEFAULT) >= 0);
        if (above != file)
            H5Gclose(above);
        above = group;
    }
    H5Dclose(H5Dcreate2(above, "d", H5T_STD_I32LE, space, H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT));
    H5Gclose(above);
    H5Sclose(space);
    H5Pclose(fapl);
    assert_true(H5Fclose(file) >= 0);
}

#endif
