/* New sparse datasets: what can be made, what is refused and why, and what released libhdf5 and its
 * tools make of the file. */
#include "opened.h"

#include <errno.h>
#include <hdf5.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <syslog.h>

#include "sparsefs/hdf5.h"
#include "sparsefs/sparsefs.h"

#define PATH "create.h5"

static char last_line[1000];

static void keep_line(int level, const char *line)
{
    if (level <= LOG_ERR)
        snprintf(last_line, sizeof(last_line), "%s", line);
}

static struct sfs_encoded encode(hid_t type)
{
    static unsigned char bytes[1000];
    size_t n = sizeof(bytes);
    assert_true(H5Tencode(type, bytes, &n) >= 0);
    return (struct sfs_encoded){bytes, n};
}

static struct sfs_file *create_file(void)
{
    struct sfs_options options = {.replace = true};
    struct sfs_file *file = NULL;
    sfs_set_log(keep_line, LOG_DEBUG);
    assert_int_equal(sfs_create(PATH, &options, &file), 0);
    return file;
}

static struct sfs_file *open_file(bool writable)
{
    struct sfs_options options = {.writable = writable};
    struct sfs_file *file = NULL;
    assert_int_equal(sfs_open(PATH, &options, &file), 0);
    return file;
}

/* ---- Creation properties ---- */

static const struct {
    enum sfs_allocation ours;
    H5D_alloc_time_t theirs;
} allocations[] = {{SFS_ALLOCATION_INCREMENTAL, H5D_ALLOC_TIME_INCR},
                   {SFS_ALLOCATION_EARLY, H5D_ALLOC_TIME_EARLY},
                   {SFS_ALLOCATION_LATE, H5D_ALLOC_TIME_LATE}};
static const struct {
    enum sfs_fill_time ours;
    H5D_fill_time_t theirs;
} fill_times[] = {{SFS_FILL_IF_SET, H5D_FILL_TIME_IFSET},
                  {SFS_FILL_ALLOCATED, H5D_FILL_TIME_ALLOC},
                  {SFS_FILL_NEVER, H5D_FILL_TIME_NEVER}};

static hid_t properties(int i)
{
    hid_t dcpl = H5Pcreate(H5P_DATASET_CREATE);
    assert_true(H5Pset_chunk(dcpl, 2, (hsize_t[]){4, 3}) >= 0);
    assert_true(H5Pset_chunk_opts(dcpl, i % 2 ? H5D_CHUNK_DONT_FILTER_PARTIAL_CHUNKS : 0) >= 0);
    assert_true(H5Pset_alloc_time(dcpl, allocations[i].theirs) >= 0);
    assert_true(H5Pset_fill_time(dcpl, fill_times[i].theirs) >= 0);
    return dcpl;
}

static void check_info(struct sfs_file *file, const char *path, int i)
{
    struct sfs_dataset *dataset;
    uint64_t address;
    assert_int_equal(sfs_find(file, sfs_root(file), path, &address), 0);
    assert_int_equal(sfs_dataset_open(file, address, path, &dataset), 0);
    const struct sfs_dataset_info *info = sfs_dataset_info(dataset);
    assert_int_equal(info->unfiltered_edges, i % 2);
    assert_int_equal(info->allocation, allocations[i].ours);
    assert_int_equal(info->fill_time, fill_times[i].ours);
    sfs_dataset_close(dataset);
}

/* What libhdf5 says of a dense dataset that was made with them. */
static void check_dense(int i)
{
    unsigned options;
    H5D_alloc_time_t allocation;
    H5D_fill_time_t fill_time;
    hid_t file = H5Fopen(PATH, H5F_ACC_RDONLY, H5P_DEFAULT);
    hid_t dataset = H5Dopen2(file, "/dense", H5P_DEFAULT);
    hid_t dcpl = H5Dget_create_plist(dataset);
    assert_true(H5Pget_chunk_opts(dcpl, &options) >= 0);
    assert_true(H5Pget_alloc_time(dcpl, &allocation) >= 0);
    assert_true(H5Pget_fill_time(dcpl, &fill_time) >= 0);
    assert_int_equal(options, i % 2 ? H5D_CHUNK_DONT_FILTER_PARTIAL_CHUNKS : 0);
    assert_int_equal(allocation, allocations[i].theirs);
    assert_int_equal(fill_time, fill_times[i].theirs);
    assert_int_equal(H5Dget_storage_size(dataset) > 0, allocation == H5D_ALLOC_TIME_EARLY);
    H5Pclose(dcpl);
    H5Dclose(dataset);
    H5Fclose(file);
}

static void creation_properties_are_those_of_libhdf5(void **state)
{
    (void)state;
    for (int i = 0; i < (int)COUNT(allocations); i++) {
        struct sfs_file *file = create_file();
        struct sfs_dataset *dataset;
        struct sfs_dataset_create create = {.rank = 2,
                                            .dims = {8, 10},
                                            .max_dims = {8, 10},
                                            .chunk_dims = {4, 3},
                                            .type = encode(H5T_STD_I32LE),
                                            .is_dense = true,
                                            .unfiltered_edges = i % 2,
                                            .allocation = allocations[i].ours,
                                            .fill_time = fill_times[i].ours};
        assert_int_equal(sfs_dataset_create(file, "/dense", &create, &dataset), 0);
        sfs_dataset_close(dataset);
        hid_t dcpl = properties(i), space = H5Screate_simple(2, (hsize_t[]){8, 10}, NULL);
        assert_int_equal(
            sfs_h5_create(file, "/sparse", H5T_STD_I32LE, space, dcpl, H5P_DEFAULT, &dataset), 0);
        sfs_dataset_close(dataset);
        check_info(file, "sparse", i);
        assert_int_equal(sfs_close(file), 0);
        file = open_file(false);
        check_info(file, "dense", i);
        check_info(file, "sparse", i);
        sfs_discard(file);
        check_dense(i);
        H5Pclose(dcpl);
        H5Sclose(space);
    }
}

/* ---- Refusals ---- */

static struct sfs_dataset_create plain(void)
{
    return (struct sfs_dataset_create){.rank = 2,
                                       .dims = {8, 9},
                                       .max_dims = {8, SFS_UNLIMITED},
                                       .chunk_dims = {4, 3},
                                       .type = encode(H5T_STD_I32LE)};
}

/* The call fails so, says why in these words, and leaves nothing behind. */
static void check_refused(struct sfs_file *file, const char *path,
                          const struct sfs_dataset_create *create, int error, const char *words)
{
    struct sfs_dataset *dataset = NULL;
    struct sfs_links links;
    last_line[0] = '\0';
    assert_int_equal(sfs_dataset_create(file, path, create, &dataset), error);
    assert_null(dataset);
    if (!strstr(last_line, words))
        fail_msg("\"%s\" is not in \"%s\"", words, last_line);
    assert_int_equal(sfs_list(file, sfs_root(file), &links), 0);
    assert_int_equal(links.n, 0);
    sfs_links_free(&links);
}

static void dims_that_cannot_be_are_refused(void **state)
{
    (void)state;
    struct sfs_file *file = create_file();
    struct sfs_dataset_create create = plain();
    create.rank = 0;
    check_refused(file, "/x", &create, -EINVAL, "rank");
    create.rank = SFS_MAX_RANK + 1;
    check_refused(file, "/x", &create, -EINVAL, "rank");
    create = plain();
    create.max_dims[0] = 7;
    check_refused(file, "/x", &create, -EINVAL, "exceeds the largest");
    create = plain();
    create.chunk_dims[1] = 0;
    check_refused(file, "/x", &create, -EINVAL, "chunk dim");
    create = plain();
    create.chunk_dims[0] = 9;
    check_refused(file, "/x", &create, -EINVAL, "chunk dim");
    create = plain();
    create.dims[0] = create.max_dims[0] = create.dims[1] = UINT64_C(1) << 40;
    check_refused(file, "/x", &create, -EINVAL, "63 bits");
    create = plain();
    create.max_dims[0] = SFS_UNLIMITED;
    create.chunk_dims[0] = create.chunk_dims[1] = UINT32_MAX;
    create.max_dims[1] = SFS_UNLIMITED;
    check_refused(file, "/x", &create, -EFBIG, "63 bits");
    create = plain();
    create.allocation = (enum sfs_allocation)3;
    check_refused(file, "/x", &create, -EINVAL, "time of allocation");
    create = plain();
    create.fill_time = (enum sfs_fill_time) - 1;
    check_refused(file, "/x", &create, -EINVAL, "time of allocation or of filling");
    create = plain();
    create.index.kind = (enum sfs_index_kind)6;
    check_refused(file, "/x", &create, -EINVAL, "chunk index 6 is not known");
    create = plain();
    create.layout_message = (enum sfs_layout_message)3;
    check_refused(file, "/x", &create, -EINVAL, "layout message 3 is not known");
    sfs_discard(file);
}

static void paths_that_cannot_be_are_refused(void **state)
{
    (void)state;
    static const char *const paths[] = {"x", "", "/", "/a//b", "/./x", "/x/"};
    struct sfs_file *file = create_file();
    struct sfs_dataset_create create = plain();
    struct sfs_dataset *dataset = NULL, *other = NULL;
    for (size_t i = 0; i < COUNT(paths); i++)
        check_refused(file, paths[i], &create, -EINVAL, "path");
    assert_int_equal(sfs_dataset_create(file, "/x", &create, &dataset), 0);
    assert_int_equal(sfs_dataset_create(file, "/x", &create, &other), -EEXIST);
    assert_true(sfs_dataset_create(file, "/x/y", &create, &other) < 0);
    sfs_dataset_close(dataset);
    assert_int_equal(sfs_close(file), 0);
    file = open_file(false);
    assert_int_equal(sfs_dataset_create(file, "/y", &create, &other), -EROFS);
    assert_int_equal(sfs_close(file), 0);
}

static void check_type_refused(struct sfs_file *file, hid_t type, bool is_dense, const char *why)
{
    struct sfs_dataset_create create = plain();
    create.type = encode(type);
    create.is_dense = is_dense;
    check_refused(file, "/x", &create, -EOPNOTSUPP, why);
}

static void datatypes_with_pointers_are_refused(void **state)
{
    (void)state;
    struct sfs_file *file = create_file();
    struct sfs_dataset_create create = plain();
    const hsize_t many = 65537, half = 256;
    hid_t string = H5Tcopy(H5T_C_S1), sequence = H5Tvlen_create(H5T_NATIVE_INT);
    hid_t compound = H5Tcreate(H5T_COMPOUND, 40);
    H5Tset_size(string, H5T_VARIABLE);
    H5Tinsert(compound, "a", 0, sequence);
    hid_t inner = H5Tvlen_create(H5T_STD_REF_OBJ), array = H5Tarray_create2(string, 1, &many);
    hid_t leads = H5Tarray_create2(H5T_STD_REF_OBJ, 1, &many),
          row = H5Tarray_create2(compound, 1, &half);
    hid_t rows = H5Tarray_create2(row, 1, (hsize_t[]){257});
    check_type_refused(file, rows, true, "arrays of compounds");
    check_type_refused(file, leads, true, "references");
    check_type_refused(file, inner, true, "references");
    check_type_refused(file, H5T_STD_REF_OBJ, true, "references");
    check_type_refused(file, H5T_STD_REF_DSETREG, true, "references");
    check_type_refused(file, array, false, "more than 65536 parts");
    check_type_refused(file, rows, false, "more than 65536 parts");
    check_type_refused(file, leads, false, "more than 65536 parts");
    create.type = encode(string);
    create.fill = "0123456789abcdef";
    check_refused(file, "/x", &create, -EOPNOTSUPP, "no fill value");
    create.fill = NULL;
    create.fill_time = SFS_FILL_NEVER;
    check_refused(file, "/x", &create, -EINVAL, "fill time cannot be never");
    create.fill_time = SFS_FILL_IF_SET;
    create.type = (struct sfs_encoded){"nonsense", 8};
    check_refused(file, "/x", &create, -EINVAL, "");
    const hid_t types[] = {rows, row, leads, array, inner, compound, sequence, string};
    for (size_t i = 0; i < COUNT(types); i++)
        H5Tclose(types[i]);
    sfs_discard(file);
}

static void filters_that_cannot_be_run_are_refused(void **state)
{
    (void)state;
    struct sfs_file *file = create_file();
    const unsigned level = 1;
    const struct sfs_filter unknown = {.id = 32100};
    struct sfs_filter many[40];
    for (size_t i = 0; i < COUNT(many); i++)
        many[i] = (struct sfs_filter){.id = 1, .n_values = 1, .values = &level};
    for (int section = 0; section < 2; section++) {
        struct sfs_dataset_create create = plain();
        create.n_filters[section] = 1;
        create.filters[section] = &unknown;
        check_refused(file, "/x", &create, -EOPNOTSUPP, "filter");
        create.n_filters[section] = COUNT(many);
        create.filters[section] = many;
        check_refused(file, "/x", &create, -EINVAL, "too many filters");
    }
    sfs_discard(file);
}

/* They are left out of every chunk, and reading needs none of them. */
static void optional_filters_need_not_be_there(void **state)
{
    (void)state;
    struct sfs_file *file = create_file();
    const struct sfs_filter unknown = {.id = 32100, .optional = true};
    const char *const paths[] = {"/of selections", "/of values", "/dense"};
    for (int i = 0; i < 3; i++) {
        struct sfs_dataset_create create = plain();
        struct sfs_slab slab = {.rank = create.rank};
        struct sfs_dataset *dataset;
        int32_t values[4] = {5, 6, 7, 8}, found[4] = {0};
        create.is_dense = i == 2;
        create.n_filters[i > 0] = 1;
        create.filters[i > 0] = &unknown;
        for (int axis = 0; axis < create.rank; axis++)
            slab.count[axis] = axis == create.rank - 1 ? 4 : 1;
        assert_int_equal(sfs_dataset_create(file, paths[i], &create, &dataset), 0);
        assert_int_equal(sfs_write(dataset, &slab, values), 0);
        assert_int_equal(sfs_flush(file), 0);
        assert_int_equal(sfs_read(dataset, &slab, 0, found, sizeof(found)), 0);
        assert_memory_equal(found, values, sizeof(values));
        sfs_dataset_close(dataset);
    }
    assert_int_equal(sfs_close(file), 0);
}

/* ---- What can be made ---- */

/* Some elements of one chunk are written, and found again in the file. */
static void check_elements(hid_t type, enum sfs_type_class class)
{
    size_t size = H5Tget_size(type);
    char *written = allocate(3 * size), *read = allocate(8 * size), *fill = allocate(size);
    struct sfs_file *file = create_file();
    struct sfs_dataset *dataset = NULL;
    struct sfs_dataset_create create = {
        .rank = 1, .dims = {8}, .max_dims = {SFS_UNLIMITED}, .chunk_dims = {5}};
    struct sfs_slab slab = {.rank = 1, .start = {3}, .count = {3}}, all = {.rank = 1, .count = {8}};
    random_fill(written, 3 * size);
    memset(fill, 1, size);
    create.type = encode(type);
    create.fill = fill;
    assert_int_equal(sfs_dataset_create(file, "/a/b/x", &create, &dataset), 0);
    assert_int_equal(sfs_write(dataset, &slab, written), 0);
    sfs_dataset_close(dataset);
    assert_int_equal(sfs_close(file), 0);

    file = open_file(false);
    dataset = open_dataset(file, "/a/b/x");
    const struct sfs_dataset_info *info = sfs_dataset_info(dataset);
    assert_int_equal(info->type.class, class);
    assert_int_equal(info->type.size, size);
    hid_t decoded = H5Tdecode(info->encoded_type.bytes);
    assert_true(H5Tequal(decoded, type) > 0);
    H5Tclose(decoded);
    assert_int_equal(sfs_read(dataset, &all, 0, read, 8 * size), 0);
    for (size_t i = 0; i < 8; i++)
        assert_memory_equal(read + i * size, i < 3 || i > 5 ? fill : written + (i - 3) * size,
                            size);
    sfs_dataset_close(dataset);
    assert_int_equal(sfs_close(file), 0);
    free(fill);
    free(read);
    free(written);
}

static void elements_are_of_every_fixed_size(void **state)
{
    (void)state;
    const hsize_t dims[] = {2, 3};
    const hid_t numbers[] = {H5T_STD_I8LE,  H5T_STD_U8BE,  H5T_STD_I16BE, H5T_STD_U16LE,
                             H5T_STD_I32LE, H5T_STD_U32BE, H5T_STD_I64BE, H5T_STD_U64LE};
    const hid_t floats[] = {H5T_IEEE_F32LE, H5T_IEEE_F64BE};
    for (size_t i = 0; i < COUNT(numbers); i++)
        check_elements(numbers[i], SFS_INTEGER);
    for (size_t i = 0; i < COUNT(floats); i++)
        check_elements(floats[i], SFS_FLOAT);
    check_elements(H5T_STD_B32BE, SFS_BITFIELD);
    hid_t string = H5Tcopy(H5T_C_S1), opaque = H5Tcreate(H5T_OPAQUE, 13);
    hid_t compound = H5Tcreate(H5T_COMPOUND, 30), array = H5Tarray_create2(H5T_STD_I16LE, 2, dims);
    hid_t enumeration = H5Tenum_create(H5T_STD_I16BE);
    H5Tset_size(string, 11);
    H5Tset_tag(opaque, "what it is");
    H5Tinsert(compound, "a", 1, array);
    H5Tinsert(compound, "b", 17, H5T_IEEE_F64LE);
    H5Tenum_insert(enumeration, "ON", (const int16_t[]){256});
    check_elements(string, SFS_STRING);
    check_elements(opaque, SFS_OPAQUE);
    check_elements(compound, SFS_COMPOUND);
    check_elements(array, SFS_ARRAY);
    check_elements(enumeration, SFS_ENUM);
    H5Tclose(enumeration);
    H5Tclose(array);
    H5Tclose(compound);
    H5Tclose(opaque);
    H5Tclose(string);
}

static void datasets_have_1_to_32_dimensions(void **state)
{
    (void)state;
    for (int rank = 1; rank <= SFS_MAX_RANK; rank++)
        for (int unlimited = 0; unlimited < 3; unlimited++) {
            struct sfs_file *file = create_file();
            struct sfs_dataset *dataset = NULL;
            struct sfs_dataset_create create = {.rank = rank, .type = encode(H5T_STD_I32LE)};
            struct sfs_slab all = {.rank = rank}, slab = {.rank = rank};
            int32_t values[512], read[512];
            uint64_t n = 1, elements;
            for (int i = 0; i < rank; i++) {
                create.dims[i] = rank - i <= 8 ? 2 : 1;
                create.max_dims[i] = i < unlimited ? SFS_UNLIMITED : create.dims[i];
                create.chunk_dims[i] = 1 + random_below(create.dims[i]);
                all.count[i] = create.dims[i];
                slab.count[i] = 1 + random_below(create.dims[i]);
                slab.start[i] = create.dims[i] - slab.count[i];
                n *= slab.count[i];
            }
            for (int i = 0; i < 512; i++)
                values[i] = i + 1;
            assert_int_equal(sfs_dataset_create(file, "/x", &create, &dataset), 0);
            assert_int_equal(sfs_write(dataset, &slab, values), 0);
            sfs_dataset_close(dataset);
            assert_int_equal(sfs_close(file), 0);
            file = open_file(false);
            dataset = open_dataset(file, "/x");
            assert_int_equal(sfs_read(dataset, &slab, 0, read, n * sizeof(*read)), 0);
            assert_memory_equal(read, values, n * sizeof(*read));
            assert_int_equal(sfs_count_defined(dataset, &all, &elements), 0);
            assert_int_equal(elements, n);
            sfs_dataset_close(dataset);
            assert_int_equal(sfs_close(file), 0);
        }
}

/* ---- Our files and released libhdf5 ---- */

static void write_row(struct sfs_dataset *dataset, uint64_t row)
{
    struct sfs_slab slab = {.rank = 2, .start = {row}, .count = {1, 9}};
    const int32_t values[9] = {1, 2, 3};
    assert_int_equal(sfs_write(dataset, &slab, values), 0);
}

static herr_t ignore_name(hid_t group, const char *name, const H5L_info_t *info, void *context)
{
    (void)group, (void)name, (void)info;
    ++*(int *)context;
    return 0;
}

/* libhdf5 lists the sparse dataset and reads all others. */
static void check_with_libhdf5(int rows)
{
    int32_t values[8][9];
    int names = 0;
    H5O_info_t info;
    hid_t file = H5Fopen(PATH, H5F_ACC_RDONLY, H5P_DEFAULT);
    assert_true(file >= 0);
    assert_true(H5Lvisit(file, H5_INDEX_NAME, H5_ITER_INC, ignore_name, &names) >= 0);
    assert_int_equal(names, 4); /* group, group/sparse, group/empty, dense */
    assert_true(H5Oget_info_by_name(file, "/group/empty", &info, H5P_DEFAULT) >= 0);
    assert_int_equal(info.type, H5O_TYPE_GROUP);
    hid_t dense = H5Dopen2(file, "/dense", H5P_DEFAULT);
    assert_true(H5Dread(dense, H5T_NATIVE_INT32, H5S_ALL, H5S_ALL, H5P_DEFAULT, values) >= 0);
    for (int i = 0; i < rows; i++)
        assert_int_equal(values[i][2], 3);
    H5Dclose(dense);
    H5Fclose(file);
}

/* What h5ls prints of all objects, or NULL if there is no h5ls. */
static char *h5ls(void)
{
    if (system("command -v h5ls >/dev/null") != 0)
        return NULL;
    FILE *pipe = popen("h5ls -r " PATH " 2>&1", "r");
    char *text = calloc(1, 10000);
    assert_non_null(pipe);
    assert_non_null(text);
    size_t n = fread(text, 1, 9999, pipe);
    assert_true(n > 0);
    assert_int_equal(pclose(pipe), 0);
    return text;
}

static void released_libhdf5_reads_the_rest_of_the_file(void **state)
{
    (void)state;
    struct sfs_file *file = create_file();
    struct sfs_dataset *sparse = NULL, *dense = NULL;
    struct sfs_dataset_create create = plain();
    assert_int_equal(sfs_dataset_create(file, "/group/sparse", &create, &sparse), 0);
    create.is_dense = true;
    assert_int_equal(sfs_dataset_create(file, "/dense", &create, &dense), 0);
    assert_int_equal(sfs_group_create(file, "/group/empty"), 0);
    for (int row = 0; row < 8; row++) {
        write_row(sparse, (uint64_t)row);
        write_row(dense, (uint64_t)row);
        sfs_dataset_close(sparse);
        sfs_dataset_close(dense);
        assert_int_equal(sfs_close(file), 0);
        check_with_libhdf5(row + 1);
        char *listed = h5ls();
        if (listed) {
            assert_non_null(strstr(listed, "/group/sparse"));
            assert_non_null(strstr(listed, "/dense"));
            assert_non_null(strstr(listed, "/group/empty"));
        }
        free(listed);
        file = open_file(true);
        sparse = open_dataset(file, "/group/sparse");
        dense = open_dataset(file, "/dense");
    }
    sfs_dataset_close(sparse);
    sfs_dataset_close(dense);
    assert_int_equal(sfs_close(file), 0);
}

static bool has_group(struct sfs_file *file, const char *path)
{
    uint64_t address;
    return sfs_find(file, sfs_root(file), path, &address) == 0;
}

static void only_empty_groups_are_removed(void **state)
{
    (void)state;
    struct sfs_file *file = create_file();
    struct sfs_dataset *dataset = NULL;
    struct sfs_dataset_create create = plain();
    log_quietly();
    assert_int_equal(sfs_dataset_create(file, "/full/sparse", &create, &dataset), 0);
    sfs_dataset_close(dataset);
    create.is_dense = true;
    assert_int_equal(sfs_dataset_create(file, "/dense", &create, &dataset), 0);
    sfs_dataset_close(dataset);
    assert_int_equal(sfs_group_create(file, "/empty/inner"), 0);
    assert_int_equal(sfs_close(file), 0);
    hid_t other = H5Fopen(PATH, H5F_ACC_RDWR, H5P_DEFAULT);
    assert_true(H5Lcreate_soft("/empty/inner", other, "link", H5P_DEFAULT, H5P_DEFAULT) >= 0);
    H5Fclose(other);
    file = open_file(true);
    const struct {
        const char *path;
        int error;
    } refused[] = {
        {"/full", -ENOTEMPTY},    {"/empty", -ENOTEMPTY},    {"/full/sparse", -ENOTDIR},
        {"/dense", -ENOTDIR},     {"/link", -ENOTDIR},       {"/none", -ENOENT},
        {"/none/inner", -ENOENT}, {"/dense/inner", -ENOENT}, {"/", -EINVAL},
        {"empty/inner", -EINVAL}, {"/empty/", -EINVAL},      {"", -EINVAL},
    };
    for (size_t i = 0; i < COUNT(refused); i++)
        assert_int_equal(sfs_group_remove(file, refused[i].path), refused[i].error);
    assert_int_equal(sfs_group_remove(file, "/empty/inner"), 0);
    assert_false(has_group(file, "/empty/inner"));
    assert_int_equal(sfs_group_remove(file, "/empty/inner"), -ENOENT);
    assert_int_equal(sfs_group_remove(file, "/empty"), 0);
    assert_int_equal(sfs_group_create(file, "/empty"), 0); /* where the old one was, perhaps */
    assert_true(has_group(file, "/empty"));
    assert_int_equal(sfs_group_remove(file, "/empty"), 0);
    assert_int_equal(sfs_close(file), 0);

    file = open_file(false);
    assert_false(has_group(file, "/empty"));
    assert_true(has_group(file, "/full"));
    assert_int_equal(sfs_group_remove(file, "/full"), -EROFS);
    assert_int_equal(sfs_close(file), 0);
}

static int without_messages(void **state)
{
    (void)state;
    return H5Eset_auto2(H5E_DEFAULT, NULL, NULL) < 0;
}

static int all_tests(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(creation_properties_are_those_of_libhdf5),
        cmocka_unit_test(dims_that_cannot_be_are_refused),
        cmocka_unit_test(paths_that_cannot_be_are_refused),
        cmocka_unit_test(datatypes_with_pointers_are_refused),
        cmocka_unit_test(filters_that_cannot_be_run_are_refused),
        cmocka_unit_test(optional_filters_need_not_be_there),
        cmocka_unit_test(elements_are_of_every_fixed_size),
        cmocka_unit_test(datasets_have_1_to_32_dimensions),
        cmocka_unit_test(released_libhdf5_reads_the_rest_of_the_file),
        cmocka_unit_test(only_empty_groups_are_removed),
    };
    return cmocka_run_group_tests(tests, without_messages, NULL);
}

int main(void)
{
    return in_temporary_directory(all_tests);
}
