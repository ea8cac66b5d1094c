/* Reading, writing and erasing with dataspaces and datatypes: a sparse dataset of ours against an
 * ordinary chunked one of libhdf5, given the same handles. */
#include "support.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "sparsefs/hdf5.h"

#define MOST_ELEMENTS 4000
#define MOST_BYTES    32 /* of an element, in any datatype here */

/* ---- Datatypes ---- */

struct record {
    int32_t a;
    float b;
    uint16_t c[3];
};

static hid_t packed_compound(void)
{
    const hsize_t three = 3;
    hid_t array = H5Tarray_create2(H5T_STD_U16BE, 1, &three);
    hid_t type = H5Tcreate(H5T_COMPOUND, 14);
    H5Tinsert(type, "a", 0, H5T_STD_I32LE);
    H5Tinsert(type, "b", 4, H5T_IEEE_F32BE);
    H5Tinsert(type, "c", 8, array);
    H5Tclose(array);
    return type;
}

static hid_t other_order(void)
{
    hid_t type = H5Tcreate(H5T_COMPOUND, 16);
    H5Tinsert(type, "b", 0, H5T_NATIVE_DOUBLE);
    H5Tinsert(type, "a", 8, H5T_STD_I64BE);
    return type;
}

static hid_t one_member(void)
{
    hid_t type = H5Tcreate(H5T_COMPOUND, 2);
    H5Tinsert(type, "a", 0, H5T_NATIVE_SHORT);
    return type;
}

static hid_t with_another_member(void)
{
    hid_t type = packed_compound();
    H5Tset_size(type, 22);
    H5Tinsert(type, "z", 14, H5T_NATIVE_DOUBLE);
    return type;
}

static hid_t nested(void)
{
    hid_t inner = one_member(), type = H5Tcreate(H5T_COMPOUND, 6);
    H5Tinsert(type, "n", 0, inner);
    H5Tinsert(type, "i", 2, H5T_STD_I32BE);
    H5Tclose(inner);
    return type;
}

static hid_t nested_alone(void)
{
    hid_t inner = one_member(), type = H5Tcreate(H5T_COMPOUND, 2);
    H5Tinsert(type, "n", 0, inner);
    H5Tclose(inner);
    return type;
}

static hid_t array_of_compounds(void)
{
    const hsize_t two = 2;
    hid_t base = packed_compound(), type = H5Tarray_create2(base, 1, &two);
    H5Tclose(base);
    return type;
}

static hid_t int16(void)
{
    return H5Tcopy(H5T_STD_I16LE);
}
static hid_t int32(void)
{
    return H5Tcopy(H5T_STD_I32BE);
}
static hid_t uint8(void)
{
    return H5Tcopy(H5T_STD_U8LE);
}
static hid_t float64(void)
{
    return H5Tcopy(H5T_IEEE_F64LE);
}
static hid_t float32(void)
{
    return H5Tcopy(H5T_IEEE_F32BE);
}
static hid_t uint64(void)
{
    return H5Tcopy(H5T_STD_U64BE);
}

typedef hid_t (*make_type)(void);

static const struct {
    make_type file;
    make_type memory[6];
} types[] = {
    {int16, {int16, int32, uint8, float64, float32, uint64}},
    {float32, {float32, float64, int16, int32, uint64, float64}},
    {uint64, {uint64, uint8, int16, float32, float64, int32}},
    {packed_compound,
     {packed_compound, other_order, one_member, with_another_member, one_member, other_order}},
    {nested, {nested, nested_alone, nested, nested_alone, nested_alone, nested_alone}},
    {array_of_compounds,
     {array_of_compounds, array_of_compounds, array_of_compounds, array_of_compounds,
      array_of_compounds, array_of_compounds}},
};

/* ---- Selections ---- */

/* A regular pattern, or one block. */
static void select_hyperslab(hid_t space, int rank, const hsize_t *dims, H5S_seloper_t how,
                             bool one_block)
{
    hsize_t start[H5S_MAX_RANK], stride[H5S_MAX_RANK], count[H5S_MAX_RANK], block[H5S_MAX_RANK];
    for (int i = 0; i < rank; i++) {
        block[i] = 1 + random_below(dims[i] < 4 ? dims[i] : 4);
        stride[i] = block[i] + random_below(3);
        start[i] = random_below(dims[i] - block[i] + 1);
        count[i] = 1 + random_below((dims[i] - start[i] - block[i]) / stride[i] + 1);
        if (one_block)
            count[i] = 1;
    }
    assert_true(H5Sselect_hyperslab(space, how, start, stride, count, block) >= 0);
}

/* n different elements in any order. */
static void select_points(hid_t space, int rank, const hsize_t *dims, size_t n)
{
    hsize_t total = 1;
    for (int i = 0; i < rank; i++)
        total *= dims[i];
    hsize_t *order = allocate(total * sizeof(*order));
    hsize_t *points = allocate((n ? n : 1) * (size_t)rank * sizeof(*points));
    for (hsize_t i = 0; i < total; i++)
        order[i] = i;
    for (size_t k = 0; k < n; k++) {
        hsize_t other = k + random_below(total - k), at = order[other];
        order[other] = order[k];
        for (int i = rank - 1; i >= 0; i--) {
            points[k * (size_t)rank + (size_t)i] = at % dims[i];
            at /= dims[i];
        }
    }
    if (n == 0)
        H5Sselect_none(space);
    else
        assert_true(H5Sselect_elements(space, H5S_SELECT_SET, n, points) >= 0);
    free(points);
    free(order);
}

static hsize_t elements_of(int rank, const hsize_t *dims)
{
    hsize_t n = 1;
    for (int i = 0; i < rank; i++)
        n *= dims[i];
    return n;
}

/* libhdf5 1.10 takes some unions for a regular hyperslab with other elements, and then reads and
 * writes out of bounds: those are no referee. */
static bool is_sound(hid_t space, int rank)
{
    hsize_t start[H5S_MAX_RANK], stride[H5S_MAX_RANK], count[H5S_MAX_RANK], block[H5S_MAX_RANK];
    if (H5Sget_select_type(space) != H5S_SEL_HYPERSLABS || H5Sis_regular_hyperslab(space) <= 0)
        return true;
    H5Sget_regular_hyperslab(space, start, stride, count, block);
    return H5Sget_select_npoints(space) ==
           (hssize_t)(elements_of(rank, count) * elements_of(rank, block));
}

/* A dataspace with a selection of any kind, or H5S_ALL. */
static hid_t random_selection(int rank, const hsize_t *dims)
{
    unsigned kind = (unsigned)random_below(8);
    if (kind == 0)
        return H5S_ALL;
    hid_t space = H5Screate_simple(rank, dims, NULL);
    if (kind == 1) {
        H5Sselect_none(space);
    } else if (kind < 4) {
        select_points(space, rank, dims, (size_t)random_below(elements_of(rank, dims)));
    } else {
        select_hyperslab(space, rank, dims, H5S_SELECT_SET, kind > 5);
        for (uint64_t n = kind > 5 ? random_below(12) : 0; n > 0; n--)
            select_hyperslab(space, rank, dims, H5S_SELECT_OR, true);
        if (!is_sound(space, rank))
            select_hyperslab(space, rank, dims, H5S_SELECT_SET, false);
    }
    return space;
}

/* Of a chunked dataset libhdf5 1.10.6 brings elements to, and takes them from, the wrong places of
 * a buffer in which neither a regular selection nor points are selected; 1.10.8 does not. */
static bool rows_are_sound(void)
{
    unsigned major, minor, release;
    assert_true(H5get_libversion(&major, &minor, &release) >= 0);
    return major > 1 || minor > 10 || release > 6;
}

/* A dataspace of other dims with n elements selected; points are in one of the same rank:
 * libhdf5 1.10 writes out of bounds where it brings points to another rank. */
static hid_t memory_for(int dataset_rank, hsize_t n, hsize_t *elements)
{
    bool rows = n > 0 && rows_are_sound() && random_below(2);
    int rank = rows ? 1 + (int)random_below(3) : dataset_rank;
    hsize_t dims[3] = {1, 1, 1}, start[3], count[3];
    for (int i = 0; i < rank; i++)
        dims[i] = 1 + random_below(5);
    while (elements_of(rank, dims) < n)
        dims[random_below((uint64_t)rank)] += 1 + random_below(20);
    hid_t space = H5Screate_simple(rank, dims, NULL);
    *elements = elements_of(rank, dims);
    if (rows) { /* whole rows as far as they go, and a rest */
        hsize_t row = dims[rank - 1], left = n;
        H5Sselect_none(space);
        for (hsize_t at = 0; left > 0; at += row) {
            hsize_t place = at;
            for (int i = rank - 1; i >= 0; i--) {
                start[i] = place % dims[i];
                place /= dims[i];
                count[i] = 1;
            }
            count[rank - 1] = left < row ? left : row;
            H5Sselect_hyperslab(space, H5S_SELECT_OR, start, NULL, count, NULL);
            left -= count[rank - 1];
        }
    }
    if (!is_sound(space, rank)) {
        H5Sclose(space);
        return memory_for(dataset_rank, n, elements);
    }
    if (!rows)
        select_points(space, rank, dims, (size_t)n);
    assert_int_equal(H5Sget_select_npoints(space), n);
    return space;
}

/* ---- Two datasets ---- */

struct pair {
    int rank;
    hsize_t dims[3], chunk_dims[3], n;
    hid_t type, file, dense;
    hid_t space; /* all */
    size_t size;
    struct sfs_file *sparse_file;
    struct sfs_dataset *sparse;
    unsigned char defined[MOST_ELEMENTS];
};

static void make_pair(struct pair *pair, make_type type)
{
    unsigned char fill[MOST_BYTES];
    struct sfs_options options = {.replace = true, .cache_size = random_below(2) ? 0 : 20000};
    *pair = (struct pair){.rank = 1 + (int)random_below(3), .type = type()};
    for (int i = 0; i < pair->rank; i++) {
        pair->dims[i] = 1 + random_below(pair->rank == 1 ? 900 : 14);
        pair->chunk_dims[i] = 1 + random_below(pair->dims[i] < 9 ? pair->dims[i] : 9);
    }
    pair->n = elements_of(pair->rank, pair->dims);
    pair->size = H5Tget_size(pair->type);
    assert_true(pair->n <= MOST_ELEMENTS && pair->size <= MOST_BYTES);
    random_fill(fill, sizeof(fill));
    pair->space = H5Screate_simple(pair->rank, pair->dims, NULL);
    hid_t dcpl = H5Pcreate(H5P_DATASET_CREATE);
    H5Pset_chunk(dcpl, pair->rank, pair->chunk_dims);
    H5Pset_fill_value(dcpl, pair->type, fill);
    H5Pset_shuffle(dcpl);
    H5Pset_deflate(dcpl, 1);
    /* What is not allocated libhdf5 reads as the fill value in all members, also those that only
     * memory has. */
    H5Pset_alloc_time(dcpl, H5D_ALLOC_TIME_EARLY);
    H5Pset_fill_time(dcpl, H5D_FILL_TIME_ALLOC);
    pair->file = H5Fcreate("dense.h5", H5F_ACC_TRUNC, H5P_DEFAULT, H5P_DEFAULT);
    pair->dense =
        H5Dcreate2(pair->file, "x", pair->type, pair->space, H5P_DEFAULT, dcpl, H5P_DEFAULT);
    assert_true(pair->dense >= 0);
    assert_int_equal(sfs_create("sparse.h5", &options, &pair->sparse_file), 0);
    assert_int_equal(sfs_h5_create(pair->sparse_file, "/x", pair->type, pair->space, dcpl,
                                   H5P_DEFAULT, &pair->sparse),
                     0);
    H5Pclose(dcpl);
}

static void end_pair(struct pair *pair)
{
    sfs_dataset_close(pair->sparse);
    assert_int_equal(sfs_close(pair->sparse_file), 0);
    H5Sclose(pair->space);
    H5Dclose(pair->dense);
    H5Fclose(pair->file);
    H5Tclose(pair->type);
}

static void close_space(hid_t space)
{
    if (space != H5S_ALL)
        H5Sclose(space);
}

/* The elements of a selection as a map of bytes. */
static void map_of(const struct pair *pair, hid_t space, unsigned char *map)
{
    const unsigned char one = 1;
    memset(map, 0, MOST_ELEMENTS);
    assert_true(H5Dfill(&one, H5T_NATIVE_UCHAR, map, H5T_NATIVE_UCHAR,
                        space == H5S_ALL ? pair->space : space) >= 0);
}

/* Writes or reads with the same handles on both sides. */
static void transfer(struct pair *pair, bool writes, make_type memory_type)
{
    hid_t type = memory_type(), space = random_selection(pair->rank, pair->dims);
    hsize_t n = space == H5S_ALL ? pair->n : (hsize_t)H5Sget_select_npoints(space);
    hsize_t elements = pair->n;
    hid_t memory = random_below(3) ? memory_for(pair->rank, n, &elements) : H5S_ALL;
    size_t bytes = elements * H5Tget_size(type);
    unsigned char *buffer = allocate(bytes), *other = allocate(bytes), map[MOST_ELEMENTS];
    random_fill(buffer, bytes);
    memcpy(other, buffer, bytes);
    if (writes) {
        assert_true(H5Dwrite(pair->dense, type, memory, space, H5P_DEFAULT, buffer) >= 0);
        assert_int_equal(sfs_h5_write(pair->sparse, type, memory, space, buffer), 0);
        map_of(pair, space, map);
        for (hsize_t i = 0; i < pair->n; i++)
            pair->defined[i] |= map[i];
    } else {
        assert_true(H5Dread(pair->dense, type, memory, space, H5P_DEFAULT, buffer) >= 0);
        assert_int_equal(sfs_h5_read(pair->sparse, type, memory, space, other), 0);
    }
    assert_memory_equal(buffer, other, bytes);
    free(other);
    free(buffer);
    close_space(memory);
    close_space(space);
    H5Tclose(type);
}

/* Erases a selection; libhdf5 writes the fill value there. */
static void erase(struct pair *pair)
{
    unsigned char map[MOST_ELEMENTS], fill[MOST_BYTES];
    hid_t space = random_selection(pair->rank, pair->dims), dcpl = H5Dget_create_plist(pair->dense);
    unsigned char *all = allocate(pair->n * pair->size);
    H5Pget_fill_value(dcpl, pair->type, fill);
    H5Dread(pair->dense, pair->type, H5S_ALL, H5S_ALL, H5P_DEFAULT, all);
    map_of(pair, space, map);
    for (hsize_t i = 0; i < pair->n; i++)
        if (map[i]) {
            pair->defined[i] = 0;
            memcpy(all + i * pair->size, fill, pair->size);
        }
    H5Dwrite(pair->dense, pair->type, H5S_ALL, H5S_ALL, H5P_DEFAULT, all);
    assert_int_equal(sfs_h5_erase(pair->sparse, space), 0);
    free(all);
    H5Pclose(dcpl);
    close_space(space);
}

/* The points of a selection, and their positions; 0: it is of another kind. */
static hssize_t points_of(const struct pair *pair, hid_t space, hsize_t *positions)
{
    if (H5Sget_select_type(space) != H5S_SEL_POINTS)
        return 0;
    hssize_t n = H5Sget_select_elem_npoints(space);
    hsize_t *points = allocate((size_t)n * (size_t)pair->rank * sizeof(*points));
    assert_true(H5Sget_select_elem_pointlist(space, 0, (hsize_t)n, points) >= 0);
    for (hssize_t i = 0; i < n; i++) {
        positions[i] = 0;
        for (int axis = 0; axis < pair->rank; axis++)
            positions[i] = positions[i] * pair->dims[axis] + points[i * pair->rank + axis];
    }
    free(points);
    return n;
}

/* Points come back in the order in which they were asked for. */
static void check_order(const struct pair *pair, hid_t space, hid_t defined)
{
    hsize_t asked[MOST_ELEMENTS], found[MOST_ELEMENTS];
    hssize_t n = points_of(pair, space, asked), n_found = points_of(pair, defined, found), k = 0;
    for (hssize_t i = 0; i < n; i++)
        if (pair->defined[asked[i]]) {
            assert_true(k < n_found);
            assert_int_equal(found[k++], asked[i]);
        }
    assert_int_equal(k, n_found);
}

static void check_defined(struct pair *pair)
{
    unsigned char map[MOST_ELEMENTS], found[MOST_ELEMENTS];
    hsize_t dims[3];
    hid_t space = random_selection(pair->rank, pair->dims), defined = H5I_INVALID_HID;
    assert_int_equal(sfs_h5_get_defined(pair->sparse, space, &defined), 0);
    assert_int_equal(H5Sget_simple_extent_dims(defined, dims, NULL), pair->rank);
    assert_memory_equal(dims, pair->dims, (size_t)pair->rank * sizeof(*dims));
    map_of(pair, space, map);
    map_of(pair, defined, found);
    for (hsize_t i = 0; i < pair->n; i++)
        assert_int_equal(found[i], map[i] & pair->defined[i]);
    check_order(pair, space, defined);
    H5Sclose(defined);
    close_space(space);
}

static void selections_and_datatypes_mean_what_they_mean_to_libhdf5(void **state)
{
    (void)state;
    for (int round = 0; round < 60; round++) {
        struct pair pair;
        size_t which = (size_t)round % COUNT(types);
        make_pair(&pair, types[which].file);
        for (int step = 0; step < 25; step++) {
            make_type memory = types[which].memory[random_below(COUNT(types[which].memory))];
            uint64_t what = random_below(8);
            if (what < 4)
                transfer(&pair, true, memory);
            else if (what == 4)
                erase(&pair);
            else if (what == 5)
                assert_int_equal(sfs_flush(pair.sparse_file), 0);
            transfer(&pair, false, memory);
            check_defined(&pair);
        }
        end_pair(&pair);
    }
}

/* As libhdf5 does; reading such a selection, or into one, is refused. */
static void of_points_that_repeat_the_last_counts(void **state)
{
    (void)state;
    const hsize_t eight = 8, four = 4, points[] = {3, 5, 3, 6}, again[] = {0, 1, 1, 2};
    int16_t values[] = {1, 2, 3, 4}, read[8], expected[8] = {0, 0, 0, 3, 0, 2, 4, 0};
    struct sfs_options options = {.replace = true};
    struct sfs_file *file = NULL;
    struct sfs_dataset *dataset = NULL;
    hid_t space = H5Screate_simple(1, &eight, NULL), memory = H5Screate_simple(1, &four, NULL);
    hid_t dcpl = H5Pcreate(H5P_DATASET_CREATE), type = H5T_NATIVE_INT16;
    log_quietly();
    H5Pset_chunk(dcpl, 1, &four);
    H5Sselect_elements(space, H5S_SELECT_SET, 4, points);
    assert_int_equal(sfs_create("points.h5", &options, &file), 0);
    assert_int_equal(sfs_h5_create(file, "/x", type, space, dcpl, H5P_DEFAULT, &dataset), 0);
    assert_int_equal(sfs_h5_write(dataset, type, memory, space, values), 0);
    assert_int_equal(sfs_h5_read(dataset, type, H5S_ALL, H5S_ALL, read), 0);
    assert_memory_equal(read, expected, sizeof(read));
    assert_int_equal(sfs_h5_read(dataset, type, memory, space, read), -EINVAL);
    H5Sselect_elements(memory, H5S_SELECT_SET, 4, again);
    H5Sselect_none(space);
    H5Sselect_hyperslab(space, H5S_SELECT_SET, (const hsize_t[]){2}, NULL, &four, NULL);
    assert_int_equal(sfs_h5_read(dataset, type, memory, space, read), -EINVAL);
    sfs_dataset_close(dataset);
    assert_int_equal(sfs_close(file), 0);
    H5Pclose(dcpl);
    H5Sclose(memory);
    H5Sclose(space);
}

/* Also again, as in a list that libhdf5 would read; none are no list. Of a dense dataset the
 * selection comes back as it is. */
static void points_come_back_in_their_order(void **state)
{
    (void)state;
    const hsize_t dims[] = {40, 30}, chunk[] = {7, 30};
    const hsize_t points[][2] = {{39, 29}, {0, 5}, {12, 3}, {0, 5}, {12, 2}, {0, 6}};
    const hsize_t defined[][2] = {{39, 29}, {0, 5}, {0, 5}, {0, 6}};
    hsize_t found[COUNT(points)][2];
    struct sfs_options options = {.replace = true};
    struct sfs_file *file = NULL;
    struct sfs_dataset *dataset = NULL, *dense = NULL;
    hid_t space = H5Screate_simple(2, dims, NULL), result = H5I_INVALID_HID;
    hid_t dcpl = H5Pcreate(H5P_DATASET_CREATE), type = H5T_NATIVE_INT16;
    int16_t values[COUNT(defined)] = {0};
    const hsize_t four = COUNT(defined);
    hid_t memory = H5Screate_simple(1, &four, NULL);
    H5Pset_chunk(dcpl, 2, chunk);
    assert_int_equal(sfs_create("order.h5", &options, &file), 0);
    assert_int_equal(sfs_h5_create(file, "/x", type, space, dcpl, H5P_DEFAULT, &dataset), 0);
    H5Sselect_elements(space, H5S_SELECT_SET, COUNT(defined), defined[0]);
    assert_int_equal(sfs_h5_write(dataset, type, memory, space, values), 0);

    H5Sselect_elements(space, H5S_SELECT_SET, COUNT(points), points[0]);
    assert_int_equal(sfs_h5_get_defined(dataset, space, &result), 0);
    assert_int_equal(H5Sget_select_type(result), H5S_SEL_POINTS);
    assert_int_equal(H5Sget_select_elem_npoints(result), COUNT(defined));
    assert_true(H5Sget_select_elem_pointlist(result, 0, COUNT(defined), found[0]) >= 0);
    assert_memory_equal(found, defined, sizeof(defined));
    H5Sclose(result);
    H5Sselect_elements(space, H5S_SELECT_SET, 1, points[2]);
    assert_int_equal(sfs_h5_get_defined(dataset, space, &result), 0);
    assert_int_equal(H5Sget_select_npoints(result), 0);
    H5Sclose(result);

    hid_t plain = H5Fcreate("order-dense.h5", H5F_ACC_TRUNC, H5P_DEFAULT, H5P_DEFAULT);
    hid_t made = H5Dcreate2(plain, "d", type, space, H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT);
    struct sfs_file *other = NULL;
    uint64_t address;
    H5Dclose(made);
    H5Fclose(plain);
    assert_int_equal(sfs_open("order-dense.h5", NULL, &other), 0);
    assert_int_equal(sfs_find(other, sfs_root(other), "d", &address), 0);
    assert_int_equal(sfs_dataset_open(other, address, "/d", &dense), 0);
    H5Sselect_elements(space, H5S_SELECT_SET, COUNT(points), points[0]);
    assert_int_equal(sfs_h5_get_defined(dense, space, &result), 0);
    assert_int_equal(H5Sget_select_elem_npoints(result), COUNT(points));
    assert_true(H5Sget_select_elem_pointlist(result, 0, COUNT(points), found[0]) >= 0);
    assert_memory_equal(found, points, sizeof(points));
    H5Sclose(result);
    sfs_dataset_close(dense);
    assert_int_equal(sfs_close(other), 0);
    sfs_dataset_close(dataset);
    assert_int_equal(sfs_close(file), 0);
    H5Pclose(dcpl);
    H5Sclose(memory);
    H5Sclose(space);
}

static void selections_that_do_not_fit_are_refused(void **state)
{
    (void)state;
    const hsize_t eight = 8, nine = 9, four = 4;
    int16_t values[9] = {0};
    struct sfs_options options = {.replace = true};
    struct sfs_file *file = NULL;
    struct sfs_dataset *dataset = NULL;
    hid_t space = H5Screate_simple(1, &eight, NULL), other = H5Screate_simple(1, &nine, NULL);
    hid_t dcpl = H5Pcreate(H5P_DATASET_CREATE), type = H5T_NATIVE_INT16;
    log_quietly();
    H5Pset_chunk(dcpl, 1, &four);
    assert_int_equal(sfs_create("refused.h5", &options, &file), 0);
    assert_int_equal(sfs_h5_create(file, "/x", type, space, dcpl, H5P_DEFAULT, &dataset), 0);
    assert_int_equal(sfs_h5_write(dataset, type, H5S_ALL, other, values), -EINVAL);
    assert_int_equal(sfs_h5_write(dataset, type, other, space, values), -EINVAL);
    assert_int_equal(sfs_h5_read(dataset, type, other, H5S_ALL, values), -EINVAL);
    assert_int_equal(sfs_h5_erase(dataset, other), -EINVAL);
    assert_int_equal(sfs_h5_write(dataset, H5T_C_S1, space, space, values), -EOPNOTSUPP);
    H5Eset_auto2(H5E_DEFAULT, NULL, NULL);
    assert_int_equal(sfs_h5_write(dataset, space, space, space, values), -EINVAL);
    assert_int_equal(sfs_h5_write(dataset, type, type, space, values), -EINVAL);
    sfs_dataset_close(dataset);
    assert_int_equal(sfs_close(file), 0);
    H5Pclose(dcpl);
    H5Sclose(other);
    H5Sclose(space);
}

TEST_MAIN(cmocka_unit_test(selections_and_datatypes_mean_what_they_mean_to_libhdf5),
          cmocka_unit_test(of_points_that_repeat_the_last_counts),
          cmocka_unit_test(points_come_back_in_their_order),
          cmocka_unit_test(selections_that_do_not_fit_are_refused))
