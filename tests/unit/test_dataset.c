/* Reading datasets of every layout, against what H5Dread gives for the same elements. */
#include "support.h"

#include <errno.h>
#include <hdf5.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>

#include "dataset/virtual_dataset.h"
#include "dataset/virtual_part.h"
#include "sparsefs/sparsefs.h"

#define MAX_RANK 4

/* ---- Making datasets ---- */

/* How a dataset is made; what is not said is left to chance. */
struct recipe {
    const char *name;
    H5D_layout_t layout;
    const char *filters; /* s shuffle, d deflate, f fletcher32, o scale-offset, n n-bit */
    H5D_alloc_time_t allocation;
    bool latest;           /* newest file format: other chunk indexes */
    bool unfiltered_edges; /* chunks that reach over the edge are stored without filters */
    int unlimited;         /* so many axes can grow: 1 extensible array, 2 version 2 B-tree */
    bool untouched;        /* nothing is written */
};

static const struct recipe recipes[] = {
    {"compact", H5D_COMPACT},
    {"contiguous late", H5D_CONTIGUOUS, "", H5D_ALLOC_TIME_LATE},
    {"contiguous early", H5D_CONTIGUOUS, "", H5D_ALLOC_TIME_EARLY},
    {"contiguous late untouched", H5D_CONTIGUOUS, "", H5D_ALLOC_TIME_LATE, .untouched = true},
    {"contiguous early untouched", H5D_CONTIGUOUS, "", H5D_ALLOC_TIME_EARLY, .untouched = true},
    {"chunked", H5D_CHUNKED, "", H5D_ALLOC_TIME_INCR},
    {"chunked early", H5D_CHUNKED, "", H5D_ALLOC_TIME_EARLY},
    {"chunked late", H5D_CHUNKED, "", H5D_ALLOC_TIME_LATE},
    {"chunked untouched", H5D_CHUNKED, "", H5D_ALLOC_TIME_INCR, .untouched = true},
    {"chunked early untouched", H5D_CHUNKED, "d", H5D_ALLOC_TIME_EARLY, .untouched = true},
    {"chunked growing", H5D_CHUNKED, "", H5D_ALLOC_TIME_INCR, .unlimited = 4},
    {"deflate", H5D_CHUNKED, "d", H5D_ALLOC_TIME_INCR},
    {"shuffle", H5D_CHUNKED, "s", H5D_ALLOC_TIME_INCR},
    {"shuffle deflate fletcher32", H5D_CHUNKED, "sdf", H5D_ALLOC_TIME_INCR, .unlimited = 1},
    {"fletcher32 deflate", H5D_CHUNKED, "fd", H5D_ALLOC_TIME_EARLY},
    {"two deflates", H5D_CHUNKED, "dd", H5D_ALLOC_TIME_INCR},
    {"scale-offset", H5D_CHUNKED, "o", H5D_ALLOC_TIME_INCR},
    {"n-bit", H5D_CHUNKED, "n", H5D_ALLOC_TIME_INCR},
    {"latest fixed array", H5D_CHUNKED, "sd", H5D_ALLOC_TIME_INCR, true},
    {"latest implicit", H5D_CHUNKED, "", H5D_ALLOC_TIME_EARLY, true},
    {"latest extensible array", H5D_CHUNKED, "d", H5D_ALLOC_TIME_INCR, true, .unlimited = 1},
    {"latest version 2 B-tree", H5D_CHUNKED, "d", H5D_ALLOC_TIME_INCR, true, .unlimited = 2},
    {"latest plain", H5D_CHUNKED, "", H5D_ALLOC_TIME_INCR, true, .unlimited = 2},
    {"latest unfiltered edges", H5D_CHUNKED, "sdf", H5D_ALLOC_TIME_INCR, true, true},
    {"unfiltered edges, shuffle", H5D_CHUNKED, "s", H5D_ALLOC_TIME_INCR, true, true, 1},
    {"unfiltered edges, deflate", H5D_CHUNKED, "d", H5D_ALLOC_TIME_INCR, true, true, 2},
    {"unfiltered edges, fletcher32", H5D_CHUNKED, "f", H5D_ALLOC_TIME_INCR, true, true, 1},
    {"unfiltered edges, nbit", H5D_CHUNKED, "n", H5D_ALLOC_TIME_INCR, true, true},
    {"latest growing unfiltered edges", H5D_CHUNKED, "d", H5D_ALLOC_TIME_INCR, true, true, 1},
};

/* A compound of 37 bytes. */
static hid_t make_compound(void)
{
    hid_t type = H5Tcreate(H5T_COMPOUND, 37);
    hid_t string = H5Tcopy(H5T_C_S1);
    H5Tset_size(string, 20);
    H5Tinsert(type, "x", 0, H5T_IEEE_F64BE);
    H5Tinsert(type, "n", 9, H5T_STD_I16LE);
    H5Tinsert(type, "words", 13, string);
    H5Tinsert(type, "last", 33, H5T_STD_U32LE);
    H5Tclose(string);
    return type;
}

static hid_t random_type(const struct recipe *recipe)
{
    const hsize_t five = 5;
    unsigned choice = (unsigned)random_below(7);
    if (recipe->filters && strpbrk(recipe->filters, "on"))
        choice = choice % 2; /* these filters work on integers */
    switch (choice) {
    case 0:
        return H5Tcopy(H5T_STD_U16BE);
    case 1:
        return H5Tcopy(H5T_STD_I32LE);
    case 2:
        return H5Tcopy(H5T_STD_U8LE);
    case 3:
        return H5Tcopy(H5T_IEEE_F64LE);
    case 4:
        return H5Tarray_create2(H5T_STD_I16LE, 1, &five);
    case 5:
        return H5Tcreate(H5T_OPAQUE, 3);
    default:
        return make_compound();
    }
}

struct shape {
    int rank;
    hsize_t dims[MAX_RANK], max_dims[MAX_RANK], chunk_dims[MAX_RANK];
};

static struct shape random_shape(const struct recipe *recipe)
{
    struct shape shape = {.rank = (int)random_between(1, MAX_RANK)};
    if (shape.rank < recipe->unlimited && recipe->unlimited <= 2)
        shape.rank = recipe->unlimited;
    for (int i = 0; i < shape.rank; i++) {
        uint64_t most = shape.rank == 1 ? 300 : shape.rank == 2 ? 30 : 9;
        if (recipe->layout == H5D_COMPACT && most < 100)
            most = 5; /* 64 KiB is all that it can have */
        shape.dims[i] = random_between(1, most);
        bool grows = i < recipe->unlimited;
        shape.max_dims[i] = grows ? H5S_UNLIMITED : shape.dims[i];
        shape.chunk_dims[i] = random_between(1, shape.dims[i] + (grows ? 5 : 0));
    }
    return shape;
}

static hid_t make_dcpl(const struct recipe *recipe, const struct shape *shape, hid_t type,
                       bool with_fill)
{
    hid_t dcpl = H5Pcreate(H5P_DATASET_CREATE);
    assert_true(H5Pset_layout(dcpl, recipe->layout) >= 0);
    if (recipe->layout == H5D_CHUNKED)
        assert_true(H5Pset_chunk(dcpl, shape->rank, shape->chunk_dims) >= 0);
    if (recipe->layout != H5D_COMPACT)
        assert_true(H5Pset_alloc_time(dcpl, recipe->allocation) >= 0);
    for (const char *filter = recipe->filters; filter && *filter; filter++)
        assert_true((*filter == 's'   ? H5Pset_shuffle(dcpl)
                     : *filter == 'd' ? H5Pset_deflate(dcpl, 4)
                     : *filter == 'f' ? H5Pset_fletcher32(dcpl)
                     : *filter == 'n' ? H5Pset_nbit(dcpl)
                                      : H5Pset_scaleoffset(dcpl, H5Z_SO_INT, 0)) >= 0);
    if (recipe->unfiltered_edges)
        assert_true(H5Pset_chunk_opts(dcpl, H5D_CHUNK_DONT_FILTER_PARTIAL_CHUNKS) >= 0);
    if (with_fill) {
        unsigned char fill[64];
        random_fill(fill, sizeof(fill));
        assert_true(H5Pset_fill_value(dcpl, type, fill) >= 0);
    }
    return dcpl;
}

/* Writes random elements to a few random boxes, so that some chunks stay without. */
static void write_somewhere(hid_t dataset, hid_t type, const struct shape *shape)
{
    for (int times = (int)random_between(1, 4); times > 0; times--) {
        hsize_t start[MAX_RANK], count[MAX_RANK], n = 1;
        for (int i = 0; i < shape->rank; i++) {
            count[i] = random_between(1, shape->dims[i]);
            start[i] = random_below(shape->dims[i] - count[i] + 1);
            n *= count[i];
        }
        hid_t file_space = H5Dget_space(dataset);
        hid_t memory_space = H5Screate_simple(1, &n, NULL);
        H5Sselect_hyperslab(file_space, H5S_SELECT_SET, start, NULL, count, NULL);
        unsigned char *elements = allocate(n * H5Tget_size(type));
        for (size_t i = 0; i < n * H5Tget_size(type); i++)
            elements[i] = (unsigned char)random_below(20);
        assert_true(H5Dwrite(dataset, type, memory_space, file_space, H5P_DEFAULT, elements) >= 0);
        free(elements);
        H5Sclose(memory_space);
        H5Sclose(file_space);
    }
}

static hid_t create_file(const char *path, bool latest)
{
    hid_t fapl = H5Pcreate(H5P_FILE_ACCESS);
    if (latest)
        H5Pset_libver_bounds(fapl, H5F_LIBVER_LATEST, H5F_LIBVER_LATEST);
    hid_t file = H5Fcreate(path, H5F_ACC_TRUNC, H5P_DEFAULT, fapl);
    assert_true(file >= 0);
    H5Pclose(fapl);
    return file;
}

static void make_dataset(const struct recipe *recipe)
{
    hid_t file = create_file("data.h5", recipe->latest);
    struct shape shape = random_shape(recipe);
    hid_t type = random_type(recipe);
    hid_t space = H5Screate_simple(shape.rank, shape.dims, shape.max_dims);
    hid_t dcpl = make_dcpl(recipe, &shape, type, random_below(2));
    hid_t dataset = H5Dcreate2(file, "data", type, space, H5P_DEFAULT, dcpl, H5P_DEFAULT);
    assert_true(dataset >= 0);
    if (!recipe->untouched)
        write_somewhere(dataset, type, &shape);
    for (int i = 0; i < shape.rank; i++)
        if (shape.max_dims[i] == H5S_UNLIMITED && random_below(2))
            shape.dims[i] += random_between(1, 7);
    if (recipe->unlimited)
        assert_true(H5Dset_extent(dataset, shape.dims) >= 0);
    H5Dclose(dataset);
    H5Pclose(dcpl);
    H5Sclose(space);
    H5Tclose(type);
    H5Fclose(file);
}

/* ---- Comparing ---- */

/* A dataset, and all its elements as libhdf5 reads them. */
struct pair {
    struct sfs_file *file;
    struct sfs_dataset *dataset;
    const struct sfs_dataset_info *info;
    unsigned char *expected;
};

static unsigned char *read_all(const char *path, const char *name)
{
    hid_t file = H5Fopen(path, H5F_ACC_RDONLY, H5P_DEFAULT);
    hid_t dataset = H5Dopen2(file, name, H5P_DEFAULT);
    assert_true(dataset >= 0);
    hid_t type = H5Dget_type(dataset), space = H5Dget_space(dataset);
    unsigned char *elements =
        allocate((size_t)H5Sget_simple_extent_npoints(space) * H5Tget_size(type));
    assert_true(H5Dread(dataset, type, H5S_ALL, H5S_ALL, H5P_DEFAULT, elements) >= 0);
    H5Sclose(space);
    H5Tclose(type);
    H5Dclose(dataset);
    H5Fclose(file);
    return elements;
}

static struct pair open_pair(const char *path, const char *name, size_t cache_size)
{
    struct pair pair = {.expected = read_all(path, name)};
    struct sfs_link link;
    assert_int_equal(sfs_open(path, &(struct sfs_options){.cache_size = cache_size}, &pair.file),
                     0);
    assert_int_equal(sfs_lookup(pair.file, sfs_root(pair.file), name, &link), 0);
    assert_int_equal(sfs_dataset_open(pair.file, link.address, name, &pair.dataset), 0);
    pair.info = sfs_dataset_info(pair.dataset);
    sfs_link_free(&link);
    return pair;
}

static void close_pair(struct pair *pair)
{
    sfs_dataset_close(pair->dataset);
    sfs_close(pair->file);
    free(pair->expected);
}

static struct sfs_slab random_slab(const struct sfs_dataset_info *info)
{
    struct sfs_slab slab = {.rank = info->rank ? info->rank : 1};
    if (info->rank == 0)
        slab.count[0] = 1;
    bool whole = random_below(3) == 0;
    for (int i = 0; i < info->rank; i++) {
        slab.count[i] = whole ? info->dims[i] : random_between(random_below(20) > 0, info->dims[i]);
        slab.start[i] = random_below(info->dims[i] - slab.count[i] + 1);
    }
    return slab;
}

/* The dense view of a slab, element by element. */
static unsigned char *expected_view(const struct pair *pair, const struct sfs_slab *slab, size_t *n)
{
    size_t size = pair->info->type.size;
    uint64_t elements = 1;
    for (int i = 0; i < slab->rank; i++)
        elements *= slab->count[i];
    unsigned char *view = allocate(elements * size);
    for (uint64_t k = 0; k < elements; k++) {
        uint64_t rest = k, position = 0, stride = 1;
        for (int i = slab->rank - 1; i >= 0; i--) {
            position += (slab->start[i] + rest % slab->count[i]) * stride;
            rest /= slab->count[i];
            stride *= pair->info->rank ? pair->info->dims[i] : 1;
        }
        memcpy(view + k * size, pair->expected + position * size, size);
    }
    *n = elements * size;
    return view;
}

/* Random byte ranges of random slabs, read into buffers without a spare byte, and lent. Returns how
 * often bytes were lent. */
static unsigned compare(const struct pair *pair, int slabs)
{
    unsigned lent = 0;
    for (; slabs > 0; slabs--) {
        struct sfs_slab slab = random_slab(pair->info);
        size_t size;
        unsigned char *view = expected_view(pair, &slab, &size);
        for (int ranges = 0; ranges < 6; ranges++) {
            uint64_t offset = ranges ? random_below(size + 1) : 0;
            size_t n = ranges ? random_below(size - offset + 1) : size;
            unsigned char *buffer = allocate(n);
            assert_int_equal(sfs_read(pair->dataset, &slab, offset, buffer, n), 0);
            assert_memory_equal(buffer, view + offset, n);
            free(buffer);

            struct sfs_loan loan;
            int error = -1;
            if (sfs_lend(pair->dataset, &slab, offset, n, &loan, &error)) {
                assert_memory_equal(loan.bytes, view + offset, n);
                sfs_return(pair->dataset, &loan);
                lent++;
            }
            assert_int_equal(error, 0);

            buffer = allocate(n);
            bool is_lent = sfs_lend_or_read(pair->dataset, &slab, offset, n, buffer, &loan, &error);
            assert_int_equal(error, 0);
            assert_memory_equal(is_lent ? loan.bytes : buffer, view + offset, n);
            if (is_lent)
                sfs_return(pair->dataset, &loan);
            free(buffer);
        }
        free(view);
    }
    return lent;
}

static void every_layout_reads_as_libhdf5_reads_it(void **state)
{
    (void)state;
    for (size_t r = 0; r < COUNT(recipes); r++) {
        unsigned lent = 0;
        for (int round = 0; round < 8; round++) {
            make_dataset(&recipes[r]);
            struct pair pair = open_pair("data.h5", "data", random_below(2) ? 2000 : 0);
            lent += compare(&pair, 20);
            close_pair(&pair);
        }
        if (lent == 0 && !recipes[r].untouched)
            fail_msg("nothing of '%s' was lent", recipes[r].name);
    }
}

static void a_scalar_is_one_element(void **state)
{
    (void)state;
    for (int layout = 0; layout < 2; layout++) {
        hid_t file = create_file("scalar.h5", false);
        hid_t space = H5Screate(H5S_SCALAR), type = make_compound();
        hid_t dcpl = H5Pcreate(H5P_DATASET_CREATE);
        H5Pset_layout(dcpl, layout ? H5D_COMPACT : H5D_CONTIGUOUS);
        hid_t dataset = H5Dcreate2(file, "scalar", type, space, H5P_DEFAULT, dcpl, H5P_DEFAULT);
        unsigned char element[37];
        random_fill(element, sizeof(element));
        H5Dwrite(dataset, type, H5S_ALL, H5S_ALL, H5P_DEFAULT, element);
        H5Dclose(dataset);
        H5Pclose(dcpl);
        H5Tclose(type);
        H5Sclose(space);
        H5Fclose(file);

        struct pair pair = open_pair("scalar.h5", "scalar", 0);
        assert_int_equal(pair.info->space, SFS_SPACE_SCALAR);
        assert_int_equal(pair.info->rank, 0);
        assert_int_equal(pair.info->elements, 1);
        compare(&pair, 20);
        close_pair(&pair);
    }
}

static void a_null_dataspace_has_nothing_to_read(void **state)
{
    (void)state;
    hid_t file = create_file("null.h5", false);
    hid_t space = H5Screate(H5S_NULL);
    H5Dclose(H5Dcreate2(file, "null", H5T_STD_I32LE, space, H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT));
    H5Sclose(space);
    H5Fclose(file);

    struct pair pair = open_pair("null.h5", "null", 0);
    assert_int_equal(pair.info->space, SFS_SPACE_NULL);
    assert_int_equal(pair.info->elements, 0);
    struct sfs_slab one = {.rank = 1, .count = {1}}, none = {.rank = 1};
    char byte;
    assert_int_equal(sfs_read(pair.dataset, &one, 0, &byte, 1), -EINVAL);
    assert_int_equal(sfs_read(pair.dataset, &none, 0, &byte, 0), 0);
    close_pair(&pair);
}

static void dims_of_0_have_nothing_to_read(void **state)
{
    (void)state;
    for (int chunked = 0; chunked < 2; chunked++) {
        hid_t file = create_file("empty.h5", false);
        const hsize_t dims[] = {4, 0}, max_dims[] = {4, H5S_UNLIMITED}, chunk_dims[] = {2, 3};
        hid_t space = H5Screate_simple(2, dims, chunked ? max_dims : NULL);
        hid_t dcpl = H5Pcreate(H5P_DATASET_CREATE);
        if (chunked)
            H5Pset_chunk(dcpl, 2, chunk_dims);
        H5Dclose(H5Dcreate2(file, "empty", H5T_STD_I32LE, space, H5P_DEFAULT, dcpl, H5P_DEFAULT));
        H5Pclose(dcpl);
        H5Sclose(space);
        H5Fclose(file);

        struct pair pair = open_pair("empty.h5", "empty", 0);
        struct sfs_slab all = {.rank = 2, .count = {4, 0}}, one = {.rank = 2, .count = {1, 1}};
        char byte;
        assert_int_equal(sfs_read(pair.dataset, &all, 0, &byte, 0), 0);
        assert_int_equal(sfs_read(pair.dataset, &all, 0, &byte, 1), -EINVAL);
        assert_int_equal(sfs_read(pair.dataset, &one, 0, &byte, 1), -EINVAL);
        close_pair(&pair);
    }
}

/* Virtual and external storage, which libhdf5 reads. */
static void elements_in_other_files_are_read(void **state)
{
    (void)state;
    const hsize_t dims[] = {6, 10}, row[] = {1, 10};
    unsigned char bytes[6 * 10 * 2];
    random_fill(bytes, sizeof(bytes));
    hid_t file = create_file("outside.h5", true), space = H5Screate_simple(2, dims, NULL);
    hid_t dcpl = H5Pcreate(H5P_DATASET_CREATE);
    H5Pset_external(dcpl, "outside.raw", 0, sizeof(bytes));
    hid_t dataset =
        H5Dcreate2(file, "external", H5T_STD_U16BE, space, H5P_DEFAULT, dcpl, H5P_DEFAULT);
    assert_true(H5Dwrite(dataset, H5T_STD_U16BE, H5S_ALL, H5S_ALL, H5P_DEFAULT, bytes) >= 0);
    H5Dclose(dataset);
    H5Pclose(dcpl);

    hid_t source = create_file("source.h5", false);
    dataset =
        H5Dcreate2(source, "rows", H5T_STD_U16BE, space, H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT);
    H5Dwrite(dataset, H5T_STD_U16BE, H5S_ALL, H5S_ALL, H5P_DEFAULT, bytes);
    H5Dclose(dataset);
    H5Fclose(source);
    dcpl = H5Pcreate(H5P_DATASET_CREATE);
    for (hsize_t i = 0; i < 6; i += 2) { /* every second row; the others are fill values */
        hid_t from = H5Screate_simple(2, dims, NULL);
        const hsize_t start[] = {i, 0};
        H5Sselect_hyperslab(from, H5S_SELECT_SET, start, NULL, row, NULL);
        H5Sselect_hyperslab(space, H5S_SELECT_SET, start, NULL, row, NULL);
        assert_true(H5Pset_virtual(dcpl, space, "source.h5", "rows", from) >= 0);
        H5Sclose(from);
    }
    dataset = H5Dcreate2(file, "virtual", H5T_STD_U16BE, space, H5P_DEFAULT, dcpl, H5P_DEFAULT);
    assert_true(dataset >= 0);
    H5Dclose(dataset);
    H5Pclose(dcpl);
    H5Sclose(space);
    H5Fclose(file);

    static const struct {
        const char *name;
        enum sfs_layout layout;
    } cases[] = {{"external", SFS_EXTERNAL}, {"virtual", SFS_VIRTUAL}};
    for (size_t i = 0; i < COUNT(cases); i++) {
        struct pair pair = open_pair("outside.h5", cases[i].name, 0);
        assert_int_equal(pair.info->layout, cases[i].layout);
        assert_true(compare(&pair, 30) > 0);
        close_pair(&pair);
    }
}

#define RAW_ROWS    40
#define RAW_COLUMNS 13

/* Two datasets in files that each has parts of; "broken" lacks its second one. */
static void make_raw_datasets(void)
{
    static const char *const names[] = {"raw_a", "raw_b", "broken"};
    const hsize_t dims[] = {RAW_ROWS, RAW_COLUMNS};
    const size_t bytes = (size_t)RAW_ROWS * RAW_COLUMNS * 2;
    hid_t file = create_file("raw.h5", true), space = H5Screate_simple(2, dims, NULL);
    for (size_t i = 0; i < COUNT(names); i++) {
        const char *second = i == 2 ? "missing.raw" : "second.raw";
        hid_t dcpl = H5Pcreate(H5P_DATASET_CREATE);
        H5Pset_external(dcpl, "first.raw", (off_t)(i * bytes), bytes / 2 + 6);
        H5Pset_external(dcpl, second, (off_t)(i * bytes + 1), bytes / 2 - 6);
        H5Dclose(H5Dcreate2(file, names[i], H5T_STD_U16LE, space, H5P_DEFAULT, dcpl, H5P_DEFAULT));
        H5Pclose(dcpl);
    }
    fclose(fopen("first.raw", "w"));
    fclose(fopen("second.raw", "w"));
    H5Sclose(space);
    H5Fclose(file);
}

static struct sfs_dataset *raw_dataset(struct sfs_file *file, const char *name)
{
    struct sfs_dataset *dataset = NULL;
    uint64_t address;
    assert_int_equal(sfs_find(file, sfs_root(file), name, &address), 0);
    assert_int_equal(sfs_dataset_open(file, address, name, &dataset), 0);
    return dataset;
}

static void random_values(struct sfs_dataset *dataset, uint16_t *model)
{
    uint16_t values[RAW_ROWS * RAW_COLUMNS];
    struct sfs_interval interval[RAW_COLUMNS + 1];
    struct sfs_defined defined = {.interval = interval};
    struct sfs_slab slab = {2, {random_below(RAW_ROWS)}, {1, RAW_COLUMNS}};
    random_fill(values, sizeof(values));
    for (uint64_t at = random_below(3); at < RAW_COLUMNS; at += 2 + random_below(3)) {
        interval[defined.n++] = (struct sfs_interval){at, defined.elements};
        model[slab.start[0] * RAW_COLUMNS + at] = values[defined.elements++];
    }
    interval[defined.n] = (struct sfs_interval){0, defined.elements};
    assert_int_equal(sfs_write_values(dataset, &slab, &defined, values), 0);
}

/* Slabs of both in one call. */
static void random_slabs(struct sfs_dataset *const *datasets,
                         uint16_t (*models)[RAW_ROWS * RAW_COLUMNS])
{
    uint16_t values[2][RAW_ROWS * RAW_COLUMNS];
    struct sfs_slab slabs[2];
    struct sfs_io io[2];
    random_fill(values, sizeof(values));
    for (size_t i = 0; i < 2; i++) {
        struct sfs_slab *slab = &slabs[i];
        *slab = (struct sfs_slab){.rank = 2};
        slab->start[0] = random_below(RAW_ROWS);
        slab->start[1] = random_below(RAW_COLUMNS);
        slab->count[0] = random_below(RAW_ROWS - slab->start[0] + 1);
        slab->count[1] = random_below(RAW_COLUMNS - slab->start[1] + 1);
        for (uint64_t y = 0; y < slab->count[0]; y++)
            memcpy(&models[i][(slab->start[0] + y) * RAW_COLUMNS + slab->start[1]],
                   &values[i][y * slab->count[1]], slab->count[1] * 2);
        io[i] = (struct sfs_io){.dataset = datasets[i], .slab = slab, .from = values[i]};
    }
    assert_int_equal(sfs_write_many(io, 2), 0);
}

static void elements_in_other_files_are_written(void **state)
{
    (void)state;
    static const char *const names[] = {"raw_a", "raw_b"};
    struct sfs_options options = {.writable = true};
    struct sfs_dataset *datasets[2];
    uint16_t models[2][RAW_ROWS * RAW_COLUMNS] = {0}, there[RAW_ROWS * RAW_COLUMNS];
    const struct sfs_slab all = {2, {0}, {RAW_ROWS, RAW_COLUMNS}};
    struct sfs_file *file;
    make_raw_datasets();
    assert_int_equal(sfs_open("raw.h5", &options, &file), 0);
    for (size_t i = 0; i < 2; i++)
        datasets[i] = raw_dataset(file, names[i]);
    for (int round = 0; round < 60; round++) {
        random_slabs(datasets, models);
        random_values(datasets[0], models[0]);
        for (size_t i = 0; i < 2; i++) {
            assert_int_equal(sfs_read(datasets[i], &all, 0, there, sizeof(there)), 0);
            assert_memory_equal(there, models[i], sizeof(there));
        }
    }
    assert_int_equal(sfs_erase_range(datasets[1], &all, 3, 200), 0);
    memset(&models[1][3], 0, 200 * sizeof(models[1][0]));
    for (size_t i = 0; i < 2; i++)
        sfs_dataset_close(datasets[i]);
    assert_int_equal(sfs_close(file), 0);
    for (size_t i = 0; i < 2; i++) {
        void *expected = read_all("raw.h5", names[i]);
        assert_memory_equal(expected, models[i], sizeof(models[i]));
        free(expected);
    }
}

/* One of two files is missing: what concerns it changes neither, nor what else is in the call. */
static void elements_in_other_files_are_written_all_or_not(void **state)
{
    (void)state;
    struct sfs_options options = {.writable = true};
    const struct sfs_slab all = {2, {0}, {RAW_ROWS, RAW_COLUMNS}}, row = {2, {3}, {1, RAW_COLUMNS}};
    uint16_t values[RAW_ROWS * RAW_COLUMNS], there[RAW_ROWS * RAW_COLUMNS];
    struct sfs_file *file;
    random_fill(values, sizeof(values));
    make_raw_datasets();
    log_quietly();
    assert_int_equal(sfs_open("raw.h5", &options, &file), 0);
    struct sfs_dataset *broken = raw_dataset(file, "broken"), *sound = raw_dataset(file, "raw_a");
    const struct sfs_io io[] = {{.dataset = sound, .slab = &all, .from = values},
                                {.dataset = broken, .slab = &all, .from = values}};
    assert_int_equal(sfs_write(broken, &all, values), -EIO);
    assert_int_equal(sfs_write_many(io, 2), -EIO);
    assert_int_equal(sfs_erase_range(broken, &all, 0, 300), -EIO);
    struct stat st;
    assert_true(stat("first.raw", &st) == 0 && st.st_size == 0);
    assert_int_equal(sfs_read(sound, &all, 0, there, sizeof(there)), 0);
    for (size_t i = 0; i < COUNT(there); i++)
        assert_int_equal(there[i], 0);
    assert_int_equal(sfs_write(broken, &row, values), 0);
    sfs_dataset_close(broken);
    sfs_dataset_close(sound);
    assert_int_equal(sfs_close(file), 0);
}

/* ---- Descriptions ---- */

static void datasets_are_described(void **state)
{
    (void)state;
    hid_t file = create_file("info.h5", false);
    const hsize_t dims[] = {5, 7}, max_dims[] = {H5S_UNLIMITED, 9}, chunk_dims[] = {2, 8};
    const uint16_t fill = 0x1234;
    hid_t space = H5Screate_simple(2, dims, max_dims), dcpl = H5Pcreate(H5P_DATASET_CREATE);
    H5Pset_chunk(dcpl, 2, chunk_dims);
    H5Pset_shuffle(dcpl);
    H5Pset_deflate(dcpl, 7);
    H5Pset_fill_value(dcpl, H5T_NATIVE_UINT16, &fill);
    H5Dclose(H5Dcreate2(file, "data", H5T_STD_U16BE, space, H5P_DEFAULT, dcpl, H5P_DEFAULT));
    H5Pclose(dcpl);
    H5Sclose(space);
    H5Fclose(file);

    struct pair pair = open_pair("info.h5", "data", 0);
    const struct sfs_dataset_info *info = pair.info;
    assert_int_equal(info->space, SFS_SPACE_SIMPLE);
    assert_int_equal(info->rank, 2);
    assert_int_equal(info->dims[0], 5);
    assert_int_equal(info->dims[1], 7);
    assert_int_equal(info->max_dims[0], SFS_UNLIMITED);
    assert_int_equal(info->max_dims[1], 9);
    assert_int_equal(info->elements, 35);
    assert_int_equal(info->type.class, SFS_INTEGER);
    assert_int_equal(info->type.size, 2);
    assert_true(info->type.big_endian && !info->type.is_signed && !info->type.has_pointers);
    assert_string_equal(info->type.description, "16-bit big-endian unsigned integer");
    assert_memory_equal(info->fill, "\x12\x34", 2); /* as in the file */
    assert_false(info->fill_is_zero);
    assert_string_equal(info->fill_json, "4660");
    assert_int_equal(info->layout, SFS_CHUNKED);
    assert_int_equal(info->chunk_dims[0], 2);
    assert_int_equal(info->chunk_dims[1], 8);
    assert_int_equal(info->n_filters, 2);
    assert_int_equal(info->filters[0].id, H5Z_FILTER_SHUFFLE);
    assert_int_equal(info->filters[0].n_values, 1);
    assert_int_equal(info->filters[0].values[0], 2);
    assert_int_equal(info->filters[1].id, H5Z_FILTER_DEFLATE);
    assert_int_equal(info->filters[1].values[0], 7);
    close_pair(&pair);
}

static void an_open_dataset_is_opened_once(void **state)
{
    (void)state;
    make_dataset(&recipes[5]);
    struct pair pair = open_pair("data.h5", "data", 0);
    struct sfs_link link;
    struct sfs_dataset *again;
    assert_int_equal(sfs_lookup(pair.file, sfs_root(pair.file), "data", &link), 0);
    assert_int_equal(sfs_dataset_open(pair.file, link.address, "again", &again), 0);
    assert_ptr_equal(again, pair.dataset);
    sfs_dataset_close(again);
    compare(&pair, 3);
    sfs_link_free(&link);
    close_pair(&pair);
    sfs_dataset_close(NULL);
}

/* More datasets than are kept open for nobody. */
static void many_datasets_can_be_opened_one_after_the_other(void **state)
{
    (void)state;
    enum { DATASETS = 600 };
    hid_t file = create_file("many.h5", false), space = H5Screate(H5S_SCALAR);
    for (int i = 0; i < DATASETS; i++) {
        char name[16];
        snprintf(name, sizeof(name), "%04d", i);
        hid_t dataset =
            H5Dcreate2(file, name, H5T_STD_I32LE, space, H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT);
        H5Dwrite(dataset, H5T_NATIVE_INT, H5S_ALL, H5S_ALL, H5P_DEFAULT, &i);
        H5Dclose(dataset);
    }
    H5Sclose(space);
    H5Fclose(file);

    struct sfs_file *opened;
    struct sfs_links links;
    struct sfs_slab slab = {.rank = 1, .count = {1}};
    assert_int_equal(sfs_open("many.h5", NULL, &opened), 0);
    assert_int_equal(sfs_list(opened, sfs_root(opened), &links), 0);
    assert_int_equal(links.n, DATASETS);
    for (int32_t i = 0; i < 3 * DATASETS; i++) {
        struct sfs_dataset *dataset;
        int32_t value = -1, k = i < DATASETS ? i : (int32_t)random_below(DATASETS);
        assert_int_equal(sfs_dataset_open(opened, links.link[k].address, "d", &dataset), 0);
        assert_int_equal(sfs_read(dataset, &slab, 0, &value, 4), 0);
        assert_int_equal(value, k);
        sfs_dataset_close(dataset);
    }
    sfs_links_free(&links);
    sfs_close(opened);
}

/* ---- Errors ---- */

static void slabs_and_ranges_out_of_bounds_are_refused(void **state)
{
    (void)state;
    const hsize_t dims[] = {4, 6};
    hid_t file = create_file("bounds.h5", false), space = H5Screate_simple(2, dims, NULL);
    H5Dclose(H5Dcreate2(file, "d", H5T_STD_I32LE, space, H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT));
    H5Sclose(space);
    H5Fclose(file);

    struct pair pair = open_pair("bounds.h5", "d", 0);
    static const struct {
        struct sfs_slab slab;
        uint64_t offset;
        size_t n;
    } wrong[] = {
        {{2, {0, 0}, {5, 6}}, 0, 1},
        {{2, {0, 0}, {4, 7}}, 0, 1},
        {{2, {4, 0}, {1, 6}}, 0, 1},
        {{2, {5, 0}, {0, 6}}, 0, 0},
        {{2, {1, 0}, {UINT64_MAX, 1}}, 0, 1},
        {{2, {UINT64_MAX, 0}, {1, 1}}, 0, 1},
        {{1, {0}, {4}}, 0, 1},
        {{3, {0}, {4, 6, 1}}, 0, 1},
        {{0, {0}, {0}}, 0, 0},
        {{2, {0, 0}, {4, 6}}, 0, 97},
        {{2, {0, 0}, {4, 6}}, 96, 1},
        {{2, {0, 0}, {4, 6}}, 97, 0},
        {{2, {0, 0}, {4, 6}}, UINT64_MAX, 2},
        {{2, {0, 0}, {4, 6}}, 1, SIZE_MAX},
        {{2, {0, 0}, {4, 0}}, 0, 1},
    };
    char buffer[200];
    struct sfs_loan loan;
    int error;
    for (size_t i = 0; i < COUNT(wrong); i++) {
        assert_int_equal(
            sfs_read(pair.dataset, &wrong[i].slab, wrong[i].offset, buffer, wrong[i].n), -EINVAL);
        assert_false(
            sfs_lend(pair.dataset, &wrong[i].slab, wrong[i].offset, wrong[i].n, &loan, &error));
        assert_int_equal(error, -EINVAL);
    }
    struct sfs_slab all = {2, {0, 0}, {4, 6}};
    assert_int_equal(sfs_read(pair.dataset, &all, 0, buffer, 96), 0);
    assert_int_equal(sfs_read(pair.dataset, &all, 96, buffer, 0), 0);
    close_pair(&pair);
}

static void pointers_are_not_read(void **state)
{
    (void)state;
    hid_t file = create_file("pointers.h5", false), space = H5Screate(H5S_SCALAR);
    hid_t string = H5Tcopy(H5T_C_S1), compound = H5Tcreate(H5T_COMPOUND, 24);
    H5Tset_size(string, H5T_VARIABLE);
    H5Tinsert(compound, "n", 0, H5T_STD_I64LE);
    H5Tinsert(compound, "s", 8, string);
    hid_t types[] = {string, H5T_STD_REF_OBJ, compound, H5Tvlen_create(H5T_STD_I8LE)};
    for (size_t i = 0; i < COUNT(types); i++) {
        char name[] = {(char)('0' + i), '\0'};
        H5Dclose(H5Dcreate2(file, name, types[i], space, H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT));
    }
    H5Tclose(types[3]);
    H5Tclose(compound);
    H5Tclose(string);
    H5Sclose(space);
    H5Fclose(file);

    struct sfs_file *opened;
    assert_int_equal(sfs_open("pointers.h5", NULL, &opened), 0);
    for (size_t i = 0; i < COUNT(types); i++) {
        char name[] = {(char)('0' + i), '\0'}, buffer[32];
        uint64_t address;
        struct sfs_dataset *dataset;
        struct sfs_slab slab = {.rank = 1, .count = {1}};
        struct sfs_loan loan;
        int error;
        assert_int_equal(sfs_find(opened, sfs_root(opened), name, &address), 0);
        assert_int_equal(sfs_dataset_open(opened, address, name, &dataset), 0);
        assert_true(sfs_dataset_info(dataset)->type.has_pointers);
        assert_null(sfs_dataset_info(dataset)->fill);
        assert_int_equal(sfs_read(dataset, &slab, 0, buffer, 1), -EOPNOTSUPP);
        assert_false(sfs_lend(dataset, &slab, 0, 1, &loan, &error));
        assert_int_equal(error, -EOPNOTSUPP);
        sfs_dataset_close(dataset);
    }
    sfs_close(opened);
}

static void what_is_no_dataset_is_not_opened(void **state)
{
    (void)state;
    make_dataset(&recipes[5]);
    struct sfs_file *file;
    struct sfs_dataset *dataset;
    log_quietly();
    assert_int_equal(sfs_open("data.h5", NULL, &file), 0);
    unsigned before = log_errors();
    assert_int_equal(sfs_dataset_open(file, sfs_root(file), "/", &dataset), -EIO);
    assert_int_equal(sfs_dataset_open(file, 12345678, "nowhere", &dataset), -EIO);
    assert_int_equal(sfs_dataset_open(file, UINT64_MAX, "nowhere", &dataset), -EIO);
    assert_int_equal(log_errors(), before + 3);
    sfs_close(file);
}

/* A flipped byte in a chunk behind a checksum: that chunk fails, with one line, the others do not.
 */
static void damaged_chunks_are_errors_of_their_own(void **state)
{
    (void)state;
    const hsize_t dims = 4000, chunk_dims = 1000;
    hid_t file = create_file("damaged.h5", false), space = H5Screate_simple(1, &dims, NULL);
    hid_t dcpl = H5Pcreate(H5P_DATASET_CREATE);
    H5Pset_chunk(dcpl, 1, &chunk_dims);
    H5Pset_deflate(dcpl, 6);
    H5Pset_fletcher32(dcpl);
    hid_t dataset = H5Dcreate2(file, "d", H5T_STD_U8LE, space, H5P_DEFAULT, dcpl, H5P_DEFAULT);
    unsigned char bytes[4000];
    random_fill(bytes, sizeof(bytes));
    H5Dwrite(dataset, H5T_STD_U8LE, H5S_ALL, H5S_ALL, H5P_DEFAULT, bytes);
    H5Dflush(dataset);
    haddr_t address;
    unsigned mask;
    hsize_t size, start = 2000;
    assert_true(H5Dget_chunk_info_by_coord(dataset, &start, &mask, &address, &size) >= 0);
    H5Dclose(dataset);
    H5Pclose(dcpl);
    H5Sclose(space);
    H5Fclose(file);
    FILE *raw = fopen("damaged.h5", "r+");
    fseek(raw, (long)address + 100, SEEK_SET);
    int byte = fgetc(raw);
    fseek(raw, -1, SEEK_CUR);
    fputc(byte ^ 0x10, raw);
    fclose(raw);

    struct sfs_file *opened;
    struct sfs_dataset *dense;
    uint64_t object;
    unsigned char got[4000];
    struct sfs_slab all = {.rank = 1, .count = {4000}};
    log_quietly();
    assert_int_equal(sfs_open("damaged.h5", NULL, &opened), 0);
    assert_int_equal(sfs_find(opened, sfs_root(opened), "d", &object), 0);
    assert_int_equal(sfs_dataset_open(opened, object, "/d", &dense), 0);
    unsigned before = log_errors();
    assert_int_equal(sfs_read(dense, &all, 0, got, 4000), -EIO);
    assert_int_equal(log_errors(), before + 1);
    assert_int_equal(sfs_read(dense, &all, 0, got, 2000), 0);
    assert_int_equal(sfs_read(dense, &all, 3000, got + 3000, 1000), 0);
    assert_memory_equal(got, bytes, 2000);
    assert_memory_equal(got + 3000, bytes + 3000, 1000);
    struct sfs_loan loan;
    int error = 0;
    assert_false(sfs_lend(dense, &all, 2500, 10, &loan, &error));
    assert_int_equal(error, -EIO);
    sfs_dataset_close(dense);
    sfs_close(opened);
}

/* ---- Threads ---- */

struct reader {
    pthread_t thread;
    const struct pair *pair;
    uint64_t seed;
    unsigned wrong;
};

static void *read_everything(void *argument)
{
    struct reader *reader = argument;
    const struct sfs_dataset_info *info = reader->pair->info;
    random_seed(reader->seed);
    struct sfs_slab slab = {.rank = info->rank};
    memcpy(slab.count, info->dims, sizeof(slab.count));
    size_t size = info->elements * info->type.size;
    unsigned char *buffer = malloc(size);
    for (int round = 0; round < 30 && buffer; round++) {
        uint64_t offset = random_below(size);
        size_t n = random_between(1, size - offset);
        reader->wrong += sfs_read(reader->pair->dataset, &slab, offset, buffer, n) != 0 ||
                         memcmp(buffer, reader->pair->expected + offset, n) != 0;
    }
    free(buffer);
    return NULL;
}

static void many_threads_read_one_dataset(void **state)
{
    (void)state;
    for (size_t r = 5; r < COUNT(recipes); r++) {
        make_dataset(&recipes[r]);
        struct pair pair = open_pair("data.h5", "data", random_below(2) ? 3000 : 0);
        struct reader readers[6];
        for (size_t i = 0; i < COUNT(readers); i++) {
            readers[i] = (struct reader){.pair = &pair, .seed = random_next()};
            start_thread(&readers[i].thread, read_everything, &readers[i]);
        }
        unsigned wrong = 0;
        for (size_t i = 0; i < COUNT(readers); i++) {
            pthread_join(readers[i].thread, NULL);
            wrong += readers[i].wrong;
        }
        assert_int_equal(wrong, 0);
        close_pair(&pair);
    }
}

/* ---- Virtual datasets of numbered sources ---- */

#define BLOCKS (MAPPING_MOST_BLOCKS + 500)

/* Numbered sources of one element each: its number. */
static void make_numbered(uint16_t n)
{
    const hsize_t zero = 0, one = 1, none = H5S_UNLIMITED, dims = n;
    hid_t whole = H5Screate_simple(1, &dims, &none), part = H5Screate_simple(1, &one, NULL);
    hid_t dcpl = H5Pcreate(H5P_DATASET_CREATE);
    hid_t file = H5Fcreate("numbered.h5", H5F_ACC_TRUNC, H5P_DEFAULT, H5P_DEFAULT);
    for (uint16_t i = 0; i < n; i++) {
        char name[16];
        snprintf(name, sizeof(name), "s%u", i);
        hid_t source =
            H5Dcreate2(file, name, H5T_STD_U16LE, part, H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT);
        H5Dwrite(source, H5T_NATIVE_UINT16, H5S_ALL, H5S_ALL, H5P_DEFAULT, &i);
        H5Dclose(source);
    }
    H5Sselect_hyperslab(whole, H5S_SELECT_SET, &zero, &one, &none, &one);
    assert_true(H5Pset_virtual(dcpl, whole, ".", "/s%b", part) >= 0);
    H5Sselect_all(whole);
    H5Dclose(H5Dcreate2(file, "v", H5T_STD_U16LE, whole, H5P_DEFAULT, dcpl, H5P_DEFAULT));
    H5Pclose(dcpl);
    H5Sclose(part);
    H5Sclose(whole);
    assert_true(H5Fclose(file) >= 0);
}

static struct sfs_dataset *open_numbered(uint16_t n, struct sfs_file **file)
{
    struct sfs_dataset *dataset;
    uint64_t address;
    make_numbered(n);
    assert_int_equal(sfs_open("numbered.h5", NULL, file), 0);
    assert_int_equal(sfs_find(*file, sfs_root(*file), "/v", &address), 0);
    assert_int_equal(sfs_dataset_open(*file, address, "/v", &dataset), 0);
    return dataset;
}

#define FEW_BLOCKS 400 /* more datasets than are kept open unused */

static void sources_in_the_file_itself_are_closed_with_it(void **state)
{
    (void)state;
    struct sfs_file *file;
    struct sfs_dataset *dataset = open_numbered(FEW_BLOCKS, &file);
    struct sfs_slab all = {.rank = 1, .count = {FEW_BLOCKS}};
    uint16_t values[FEW_BLOCKS];
    assert_int_equal(sfs_read(dataset, &all, 0, values, sizeof(values)), 0);
    assert_int_equal(values[FEW_BLOCKS - 1], FEW_BLOCKS - 1);
    sfs_dataset_close(dataset);
    assert_int_equal(sfs_close(file), 0);
}

static void numbered_sources_are_not_all_kept(void **state)
{
    (void)state;
    struct sfs_file *file;
    struct sfs_dataset *dataset = open_numbered(BLOCKS, &file);
    static uint16_t values[BLOCKS];
    for (int round = 0; round < 2; round++) {
        struct sfs_slab all = {.rank = 1, .count = {BLOCKS}};
        memset(values, 255, sizeof(values));
        assert_int_equal(sfs_read(dataset, &all, 0, values, sizeof(values)), 0);
        for (size_t i = 0; i < BLOCKS; i++)
            assert_int_equal(values[i], i);
        assert_int_equal(dataset->virtual->n_blocks, MAPPING_MOST_BLOCKS);
        assert_int_equal(HASH_COUNT(dataset->virtual->known), MAPPING_MOST_BLOCKS);
    }
    sfs_dataset_close(dataset);
    sfs_discard(file);
}

static bool is_known(const struct virtual *virtual, const char *name)
{
    const struct known *known;
    char key[32];
    snprintf(key, sizeof(key), ".\n/%s", name);
    HASH_FIND_STR(virtual->known, key, known);
    return known;
}

static bool never(struct cache_dataset *cache, const uint64_t *scaled)
{
    (void)cache, (void)scaled;
    return false;
}

/* In a thread of its own, and all sources can be opened. */
static void *look_ahead(void *data)
{
    const struct sfs_dataset *dataset = data;
    for (uint64_t i = 0; i < BLOCKS; i++) {
        const struct box one = {.rank = 1, .start = {i}, .count = {1}};
        (void)virtual_visit(dataset->virtual, &one, SIZE_MAX, never);
    }
    return NULL;
}

/* Who drops a virtual dataset holds the lock of its file, and waits for those that read ahead for it. */
static void who_looks_ahead_waits_for_no_lock_of_the_file(void **state)
{
    (void)state;
    struct sfs_file *file;
    struct sfs_dataset *dataset = open_numbered(BLOCKS, &file);
    struct sfs_slab most = {.rank = 1, .count = {MAPPING_MOST_BLOCKS}};
    static uint16_t values[MAPPING_MOST_BLOCKS];
    struct timespec deadline;
    pthread_t thread;
    assert_int_equal(sfs_read(dataset, &most, 0, values, sizeof(values)), 0);
    assert_int_equal(dataset->virtual->n_blocks, MAPPING_MOST_BLOCKS);
    pthread_mutex_lock(&file->lock);
    start_thread(&thread, look_ahead, dataset);
    clock_gettime(CLOCK_REALTIME, &deadline);
    deadline.tv_sec += 60;
    int error = pthread_timedjoin_np(thread, NULL, &deadline);
    pthread_mutex_unlock(&file->lock);
    if (error)
        pthread_join(thread, NULL);
    assert_int_equal(error, 0);
    assert_int_equal(dataset->virtual->n_blocks, MAPPING_MOST_BLOCKS);
    assert_true(is_known(dataset->virtual, "s0"));
    sfs_dataset_close(dataset);
    sfs_discard(file);
}

/* There are too many numbered blocks, all in use: of what is looked at ahead a user goes meanwhile. */
static void who_looks_ahead_lets_no_source_go(void **state)
{
    (void)state;
    struct sfs_file *file;
    struct sfs_dataset *dataset = open_numbered(MAPPING_MOST_BLOCKS + 1, &file);
    struct virtual *virtual = dataset->virtual;
    const struct mapping *mapping = &virtual->mapping[0];
    static struct known *known[MAPPING_MOST_BLOCKS + 1];
    struct sfs_slab first = {.rank = 1, .count = {1}};
    struct virtual_part part;
    struct call call;
    uint16_t value;
    assert_int_equal(sfs_read(dataset, &first, 0, &value, sizeof(value)), 0);
    for (uint64_t i = 0; i < COUNT(known); i++)
        assert_int_equal(mapping_numbered(virtual, mapping, i, &known[i]), 0);
    assert_true(part_try_begin(&part, virtual, mapping, 0, &call));
    mapping_let_go(virtual, known[0]);
    part_try_end(&part, &call);
    assert_true(is_known(virtual, "s0"));
    assert_int_equal(virtual->n_blocks, COUNT(known));
    for (uint64_t i = 1; i < COUNT(known); i++) /* who comes next does */
        mapping_let_go(virtual, known[i]);
    assert_false(is_known(virtual, "s0"));
    assert_int_equal(virtual->n_blocks, MAPPING_MOST_BLOCKS);
    sfs_dataset_close(dataset);
    sfs_discard(file);
}

/* Virtual datasets without sources, whose names would be a part again and again, of so many bytes, and a number. */
static void make_long(unsigned n, const char *part_of_name, size_t bytes)
{
    const hsize_t zero = 0, one = 1, none = H5S_UNLIMITED, last = BLOCKS, dims = BLOCKS + 1;
    hid_t numbered = H5Screate_simple(1, &dims, &none), end = H5Screate_simple(1, &dims, &none);
    hid_t part = H5Screate_simple(1, &one, NULL), file = create_file("long.h5", false);
    static char source[200000];
    size_t at = 0;
    while (at + strlen(part_of_name) < bytes)
        at += (size_t)snprintf(source + at, sizeof(source) - at, "%s", part_of_name);
    strcpy(source + at, "%b");
    H5Sselect_hyperslab(numbered, H5S_SELECT_SET, &zero, &one, &none, &one);
    H5Sselect_hyperslab(end, H5S_SELECT_SET, &last, &one, &one, &one);
    for (unsigned i = 0; i < n; i++) {
        hid_t dcpl = H5Pcreate(H5P_DATASET_CREATE);
        char name[16];
        snprintf(name, sizeof(name), "v%u", i);
        assert_true(H5Pset_virtual(dcpl, numbered, ".", source, part) >= 0);
        assert_true(H5Pset_virtual(dcpl, end, ".", "x", part) >= 0); /* which makes it so long */
        H5Dclose(H5Dcreate2(file, name, H5T_STD_U16LE, end, H5P_DEFAULT, dcpl, H5P_DEFAULT));
        H5Pclose(dcpl);
    }
    H5Sclose(part);
    H5Sclose(numbered);
    H5Sclose(end);
    assert_true(H5Fclose(file) >= 0);
}

static size_t bytes_of_blocks(const struct virtual *virtual)
{
    const struct known *known, *next;
    size_t n = 0;
    HASH_ITER (hh, virtual->known, known, next) {
        n += 2 * strlen(known->key);
    }
    return n;
}

static void long_names_of_numbered_sources_are_not_all_kept(void **state)
{
    (void)state;
    enum { READ = 100, DATASETS = 8 };
    struct sfs_file *file;
    struct sfs_dataset *dataset[DATASETS];
    size_t all = 0;
    make_long(DATASETS, "a", 60000);
    assert_int_equal(sfs_open("long.h5", NULL, &file), 0);
    for (unsigned i = 0; i < DATASETS; i++) {
        struct sfs_slab some = {.rank = 1, .count = {READ}};
        uint16_t values[READ];
        uint64_t address;
        char name[16];
        snprintf(name, sizeof(name), "/v%u", i);
        assert_int_equal(sfs_find(file, sfs_root(file), name, &address), 0);
        assert_int_equal(sfs_dataset_open(file, address, name, &dataset[i]), 0);
        assert_int_equal(sfs_read(dataset[i], &some, 0, values, sizeof(values)), 0);
        assert_int_equal(values[READ - 1], 0);
        size_t n = bytes_of_blocks(dataset[i]->virtual);
        assert_true(n <= MAPPING_MOST_BYTES);
        assert_true(n > MAPPING_MOST_BYTES / 2 || i > 0);
        all += n;
    }
    assert_true(all <= MAPPING_MOST_IDLE_BYTES);
    for (unsigned i = 0; i < DATASETS; i++)
        sfs_dataset_close(dataset[i]);
    sfs_discard(file);
}

static void names_of_numbered_sources_that_are_too_long_are_refused(void **state)
{
    (void)state;
    struct sfs_file *file;
    struct sfs_dataset *dataset;
    struct sfs_slab first = {.rank = 1, .count = {1}}, later = {1, {BLOCKS - 1}, {1}};
    uint16_t value;
    uint64_t address;
    unsigned before = log_errors();
    make_long(1, "%b", 100000);
    assert_int_equal(sfs_open("long.h5", NULL, &file), 0);
    assert_int_equal(sfs_find(file, sfs_root(file), "/v0", &address), 0);
    assert_int_equal(sfs_dataset_open(file, address, "/v0", &dataset), 0);
    assert_int_equal(sfs_read(dataset, &first, 0, &value, sizeof(value)), 0);
    for (int round = 0; round < 2; round++) /* each number has four digits */
        assert_int_equal(sfs_read(dataset, &later, 0, &value, sizeof(value)), -EIO);
    assert_int_equal(log_errors(), before + 1);
    sfs_dataset_close(dataset);
    sfs_discard(file);
}

/* ---- What is kept of unused datasets ---- */

#define LONG_NAME ((size_t)3 << 20)

static void name_files(hid_t dcpl, hid_t space)
{
    char name[3000];
    (void)space;
    for (int i = 0; i < 1000; i++) {
        snprintf(name, sizeof(name), "%02999d", i);
        assert_true(H5Pset_external(dcpl, name, 0, 4) >= 0);
    }
}

static void name_source(hid_t dcpl, hid_t space)
{
    char *name = malloc(LONG_NAME + 1);
    memset(name, 'a', LONG_NAME);
    name[LONG_NAME] = '\0';
    assert_true(H5Pset_virtual(dcpl, space, ".", name, space) >= 0);
    free(name);
}

static void datasets_with_long_names_are_not_all_kept(void **state)
{
    (void)state;
    enum { DATASETS = 8 };
    void (*const set[])(hid_t, hid_t) = {name_files, name_source};
    for (size_t kind = 0; kind < COUNT(set); kind++) {
        const hsize_t dims = 1000;
        hid_t made = create_file("names.h5", false), space = H5Screate_simple(1, &dims, NULL);
        hid_t dcpl = H5Pcreate(H5P_DATASET_CREATE);
        struct sfs_file *file;
        struct sfs_links links;
        set[kind](dcpl, space);
        for (int i = 0; i < DATASETS; i++) {
            char name[16];
            snprintf(name, sizeof(name), "%d", i);
            H5Dclose(H5Dcreate2(made, name, H5T_STD_I32LE, space, H5P_DEFAULT, dcpl, H5P_DEFAULT));
        }
        H5Pclose(dcpl);
        H5Sclose(space);
        assert_true(H5Fclose(made) >= 0);

        assert_int_equal(sfs_open("names.h5", NULL, &file), 0);
        assert_int_equal(sfs_list(file, sfs_root(file), &links), 0);
        assert_int_equal(links.n, DATASETS);
        for (size_t i = 0; i < links.n; i++) {
            struct sfs_dataset *dataset;
            assert_int_equal(sfs_dataset_open(file, links.link[i].address, "d", &dataset), 0);
            sfs_dataset_close(dataset);
            assert_in_range(file->n_unused, 1, 2);
        }
        sfs_links_free(&links);
        sfs_discard(file);
    }
}

TEST_MAIN(cmocka_unit_test(every_layout_reads_as_libhdf5_reads_it),
          cmocka_unit_test(a_scalar_is_one_element),
          cmocka_unit_test(a_null_dataspace_has_nothing_to_read),
          cmocka_unit_test(dims_of_0_have_nothing_to_read),
          cmocka_unit_test(elements_in_other_files_are_read),
          cmocka_unit_test(elements_in_other_files_are_written),
          cmocka_unit_test(elements_in_other_files_are_written_all_or_not),
          cmocka_unit_test(datasets_are_described),
          cmocka_unit_test(an_open_dataset_is_opened_once),
          cmocka_unit_test(many_datasets_can_be_opened_one_after_the_other),
          cmocka_unit_test(slabs_and_ranges_out_of_bounds_are_refused),
          cmocka_unit_test(pointers_are_not_read),
          cmocka_unit_test(what_is_no_dataset_is_not_opened),
          cmocka_unit_test(damaged_chunks_are_errors_of_their_own),
          cmocka_unit_test(many_threads_read_one_dataset),
          cmocka_unit_test(sources_in_the_file_itself_are_closed_with_it),
          cmocka_unit_test(numbered_sources_are_not_all_kept),
          cmocka_unit_test(who_looks_ahead_waits_for_no_lock_of_the_file),
          cmocka_unit_test(who_looks_ahead_lets_no_source_go),
          cmocka_unit_test(long_names_of_numbered_sources_are_not_all_kept),
          cmocka_unit_test(names_of_numbered_sources_that_are_too_long_are_refused),
          cmocka_unit_test(datasets_with_long_names_are_not_all_kept))
