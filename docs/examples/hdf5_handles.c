/* For programs that have dataspaces, datatypes and property lists of libhdf5: the calls of the
 * sparse-data programming model as they know them.
 *
 * Output:
 *   4 elements are defined: 0.5 1.5 2.5 3.5
 *   2 are left after erasing */
#include <sparsefs/hdf5.h>
#include <stdio.h>
#include <string.h>

static void check(int error)
{
    if (error) {
        fprintf(stderr, "%s\n", strerror(-error));
        exit(1);
    }
}

int main(void)
{
    struct sfs_options options = {.replace = true};
    struct sfs_file *file;
    struct sfs_dataset *dataset;
    check(sfs_create("hdf5_handles.h5", &options, &file));
    const hsize_t dims[] = {100, 100}, chunk_dims[] = {10, 10}, four = 4;
    hid_t space = H5Screate_simple(2, dims, NULL), dcpl = H5Pcreate(H5P_DATASET_CREATE);
    H5Pset_chunk(dcpl, 2, chunk_dims);
    H5Pset_deflate(dcpl, 4);
    check(sfs_h5_create(file, "/data", H5T_IEEE_F32BE, space, dcpl, dcpl, &dataset));

    const hsize_t points[4][2] = {{99, 0}, {3, 3}, {3, 4}, {50, 50}};
    const double values[] = {3.5, 0.5, 1.5, 2.5};
    hid_t memory = H5Screate_simple(1, &four, NULL);
    H5Sselect_elements(space, H5S_SELECT_SET, 4, &points[0][0]);
    check(sfs_h5_write(dataset, H5T_NATIVE_DOUBLE, memory, space, values));

    hid_t defined;
    double packed[4];
    check(sfs_h5_get_defined(dataset, H5S_ALL, &defined));
    check(sfs_h5_read(dataset, H5T_NATIVE_DOUBLE, memory, defined, packed));
    printf("%d elements are defined: %g %g %g %g\n", (int)H5Sget_select_npoints(defined), packed[0],
           packed[1], packed[2], packed[3]);
    H5Sclose(defined);

    const hsize_t start[] = {3, 0}, count[] = {1, 100};
    H5Sselect_hyperslab(space, H5S_SELECT_SET, start, NULL, count, NULL);
    check(sfs_h5_erase(dataset, space));
    check(sfs_h5_get_defined(dataset, H5S_ALL, &defined));
    printf("%d are left after erasing\n", (int)H5Sget_select_npoints(defined));
    H5Sclose(defined);
    H5Sclose(memory);
    H5Pclose(dcpl);
    H5Sclose(space);
    sfs_dataset_close(dataset);
    check(sfs_close(file));
    return 0;
}
