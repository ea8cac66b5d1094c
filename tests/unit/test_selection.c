/* Encoded selections against H5Sencode and H5Sdecode. */
#include "support.h"

#include <hdf5.h>
#include <stdlib.h>

#include "selection/selection.h"
#include "sparsefs/sparsefs.h"

/* Dims whose product libhdf5 can hold: small ones, at most one large one, seldom 0. */
static void random_dims(int rank, hsize_t *dims)
{
    for (int i = 0; i < rank; i++)
        dims[i] = random_below(20) == 0 ? 0 : random_between(1, rank > 8 ? 2 : 60);
    if (rank > 0 && rank <= 3 && random_below(2))
        dims[random_below((uint64_t)rank)] = random_between((uint64_t)1 << 32, (uint64_t)1 << 50);
}

static hid_t create_space(int rank, const hsize_t *dims)
{
    hid_t space = rank == 0 ? H5Screate(H5S_SCALAR) : H5Screate_simple(rank, dims, NULL);
    assert_true(space >= 0);
    return space;
}

static void encode(int rank, const hsize_t *dims, void **encoded, size_t *n)
{
    uint64_t own_dims[SFS_MAX_RANK];
    for (int i = 0; i < rank; i++)
        own_dims[i] = dims[i];
    assert_int_equal(selection_encode_all(rank, own_dims, encoded, n), 0);
}

static void all_is_encoded_as_libhdf5_does(void **state)
{
    (void)state;
    for (int round = 0; round < 3000; round++) {
        int rank = round % (SFS_MAX_RANK + 1);
        hsize_t dims[SFS_MAX_RANK];
        random_dims(rank, dims);
        hid_t space = create_space(rank, dims);
        size_t expected_n = 0, n;
        assert_true(H5Sencode(space, NULL, &expected_n) >= 0);
        void *expected = allocate(expected_n), *encoded;
        assert_true(H5Sencode(space, expected, &expected_n) >= 0);

        encode(rank, dims, &encoded, &n);
        assert_int_equal(n, expected_n);
        assert_memory_equal(encoded, expected, n);
        free(encoded);
        free(expected);
        H5Sclose(space);
    }
}

static void libhdf5_decodes_everything_selected_in_the_same_extent(void **state)
{
    (void)state;
    for (int round = 0; round < 1000; round++) {
        int rank = round % (SFS_MAX_RANK + 1);
        hsize_t dims[SFS_MAX_RANK];
        void *encoded;
        size_t n;
        random_dims(rank, dims);
        encode(rank, dims, &encoded, &n);
        hid_t decoded = H5Sdecode(encoded), space = create_space(rank, dims);
        assert_true(decoded >= 0);
        assert_int_equal(H5Sextent_equal(decoded, space), 1);
        assert_int_equal(H5Sget_select_type(decoded), H5S_SEL_ALL);
        assert_int_equal(H5Sget_select_npoints(decoded), H5Sget_simple_extent_npoints(space));
        H5Sclose(space);
        H5Sclose(decoded);
        free(encoded);
    }
}

TEST_MAIN(cmocka_unit_test(all_is_encoded_as_libhdf5_does),
          cmocka_unit_test(libhdf5_decodes_everything_selected_in_the_same_extent))
