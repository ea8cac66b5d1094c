/* What libhdf5's process says of datatypes is not believed: after a file has taken it over it says
 * whatever it likes of a file that is sound. Its answers come from here, all else of it is its own. */
#include "support.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include <hdf5.h>

#include "hdf5/local.h"
#include "sparsefs/sparsefs.h"

#define PATH "lies.h5"
#define N    4096

static const struct sfs_options apart = {.hdf5_worker = true};
static const struct sfs_options apart_to_write = {.hdf5_worker = true, .writable = true};

/* In memory that the processes share, as they are forked from one that is there already. */
static struct lies {
    bool all_equal;    /* of two datatypes */
    size_t size;       /* of an element, in a description; 0: the truth */
    size_t asked_size; /* the same when only that is asked for */
    bool no_pointers;  /* in a description */
    bool long_strings; /* a datatype of a header is one of these */
} * lies;

int __real_local_dataset_open(struct hdf5 *hdf5, uint64_t address, struct sfs_dataset_info *info,
                              struct hdf5_storage *storage);
int __real_local_type_of_message(const void *message, size_t n, void **type, size_t *type_n);
int __real_local_type_describe(const void *type, size_t n, struct sfs_type *description);
int __real_local_type_size(const void *type, size_t n, size_t *size);
bool __real_local_type_equal(const void *a, size_t a_n, const void *b, size_t b_n);

int __wrap_local_dataset_open(struct hdf5 *hdf5, uint64_t address, struct sfs_dataset_info *info,
                              struct hdf5_storage *storage);
int __wrap_local_type_of_message(const void *message, size_t n, void **type, size_t *type_n);
int __wrap_local_type_describe(const void *type, size_t n, struct sfs_type *description);
int __wrap_local_type_size(const void *type, size_t n, size_t *size);
bool __wrap_local_type_equal(const void *a, size_t a_n, const void *b, size_t b_n);

static void lie_about(struct sfs_type *type)
{
    if (lies->size) {
        type->size = lies->size;
        type->class = SFS_OPAQUE;
    }
    if (lies->no_pointers) {
        char *description = type->description;
        type->description = NULL;
        hdf5_type_free(type);
        *type = (struct sfs_type){
            .class = SFS_OPAQUE, .size = lies->size ? lies->size : 8, .description = description};
    }
}

int __wrap_local_dataset_open(struct hdf5 *hdf5, uint64_t address, struct sfs_dataset_info *info,
                              struct hdf5_storage *storage)
{
    int error = __real_local_dataset_open(hdf5, address, info, storage);
    if (error)
        return error;
    lie_about(&info->type);
    if (lies->no_pointers) {
        info->fill = calloc(1, info->type.size);
        info->fill_json = info->fill_json ? info->fill_json : strdup("0");
    }
    return 0;
}

int __wrap_local_type_of_message(const void *message, size_t n, void **type, size_t *type_n)
{
    if (!lies->long_strings)
        return __real_local_type_of_message(message, n, type, type_n);
    hid_t string = H5Tcopy(H5T_C_S1);
    H5Tset_size(string, 200000);
    *type_n = 0;
    H5Tencode(string, NULL, type_n);
    *type = malloc(*type_n);
    H5Tencode(string, *type, type_n);
    H5Tclose(string);
    return 0;
}

int __wrap_local_type_describe(const void *type, size_t n, struct sfs_type *description)
{
    int error = __real_local_type_describe(type, n, description);
    if (!error)
        lie_about(description);
    return error;
}

int __wrap_local_type_size(const void *type, size_t n, size_t *size)
{
    int error = __real_local_type_size(type, n, size);
    if (lies->asked_size)
        *size = lies->asked_size;
    return error;
}

bool __wrap_local_type_equal(const void *a, size_t a_n, const void *b, size_t b_n)
{
    return lies->all_equal || __real_local_type_equal(a, a_n, b, b_n);
}

/* ---- Files ---- */

static void add_virtual(hid_t file, const char *name, hid_t type, const char *source)
{
    hid_t space = H5Screate_simple(1, (hsize_t[]){N}, NULL);
    hid_t dcpl = H5Pcreate(H5P_DATASET_CREATE);
    assert_true(H5Pset_virtual(dcpl, space, ".", source, space) >= 0);
    hid_t dataset = H5Dcreate2(file, name, type, space, H5P_DEFAULT, dcpl, H5P_DEFAULT);
    assert_true(dataset >= 0);
    H5Dclose(dataset);
    H5Pclose(dcpl);
    H5Sclose(space);
}

/* Numbers, strings of variable length, and what shows them as bytes. */
static void make_file(void)
{
    uint64_t *values = allocate(N * sizeof(*values));
    const char **strings = allocate(N * sizeof(*strings));
    for (size_t i = 0; i < N; i++) {
        values[i] = 0x4141414141414141;
        strings[i] = "AAAAAAAA";
    }
    hid_t file = H5Fcreate(PATH, H5F_ACC_TRUNC, H5P_DEFAULT, H5P_DEFAULT);
    hid_t space = H5Screate_simple(1, (hsize_t[]){N}, NULL);
    hid_t string = H5Tcopy(H5T_C_S1);
    H5Tset_size(string, H5T_VARIABLE);
    hid_t numbers =
        H5Dcreate2(file, "numbers", H5T_STD_U64LE, space, H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT);
    hid_t texts = H5Dcreate2(file, "texts", string, space, H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT);
    assert_true(H5Dwrite(numbers, H5T_NATIVE_UINT64, H5S_ALL, H5S_ALL, H5P_DEFAULT, values) >= 0);
    assert_true(H5Dwrite(texts, string, H5S_ALL, H5S_ALL, H5P_DEFAULT, strings) >= 0);
    H5Dclose(numbers);
    H5Dclose(texts);
    H5Sclose(space);
    add_virtual(file, "numbers as bytes", H5T_STD_U8LE, "numbers");
    add_virtual(file, "texts as bytes", H5T_STD_U8LE, "texts");
    H5Tclose(string);
    assert_true(H5Fclose(file) >= 0);
    free(values);
    free(strings);
}

static struct sfs_dataset *add_sparse(struct sfs_file *file, uint64_t fill)
{
    struct sfs_dataset *dataset;
    struct sfs_dataset_create create = {
        .rank = 1, .dims = {N}, .max_dims = {N}, .chunk_dims = {N}, .fill = &fill};
    void *type;
    assert_int_equal(sfs_type_encode("<u8", &type, &create.type.n), 0);
    create.type.bytes = type;
    assert_int_equal(sfs_dataset_create(file, "/sparse", &create, &dataset), 0);
    free(type);
    return dataset;
}

static void make_sparse(uint64_t fill)
{
    struct sfs_file *file;
    assert_int_equal(sfs_open(PATH, &apart_to_write, &file), 0);
    sfs_dataset_close(add_sparse(file, fill));
    assert_int_equal(sfs_close(file), 0);
}

/* Opens a dataset, or does not. */
static int open_dataset(struct sfs_file *file, const char *name, struct sfs_dataset **dataset)
{
    uint64_t address;
    int error = sfs_find(file, sfs_root(file), name, &address);
    return error ? error : sfs_dataset_open(file, address, name, dataset);
}

static int look_at(const char *name)
{
    struct sfs_file *file;
    struct sfs_dataset *dataset;
    assert_int_equal(sfs_open(PATH, &apart, &file), 0);
    int error = open_dataset(file, name, &dataset);
    if (!error)
        sfs_dataset_close(dataset);
    sfs_close(file);
    return error;
}

/* Reads all of a dataset of bytes. What is written behind them ends the test. */
static int read_bytes(const char *name, unsigned char *values)
{
    struct sfs_file *file;
    struct sfs_dataset *dataset;
    unsigned char *buffer = allocate(N);
    const struct sfs_slab slab = {.rank = 1, .count = {N}};
    memset(buffer, 0, N);
    assert_int_equal(sfs_open(PATH, &apart, &file), 0);
    int error = open_dataset(file, name, &dataset);
    if (!error) {
        error = sfs_read(dataset, &slab, 0, buffer, N);
        sfs_dataset_close(dataset);
    }
    sfs_close(file);
    memcpy(values, buffer, N);
    free(buffer);
    return error;
}

static int begin(void **state)
{
    (void)state;
    *lies = (struct lies){0};
    make_file();
    return 0;
}

/* ---- Tests ---- */

/* libhdf5 converts what has another datatype: 0x4141414141414141 is more than a byte holds. */
static void test_sources_of_another_datatype(void **state)
{
    (void)state;
    unsigned char values[N];
    assert_int_equal(read_bytes("numbers as bytes", values), 0);
    assert_int_equal(values[0], 255);
    lies->all_equal = true;
    assert_int_equal(read_bytes("numbers as bytes", values), 0);
    for (size_t i = 0; i < N; i++)
        assert_int_equal(values[i], 255);
}

static void test_sources_with_pointers(void **state)
{
    (void)state;
    unsigned char values[N];
    lies->all_equal = true;
    assert_true(read_bytes("texts as bytes", values) < 0);
}

static void test_elements_of_another_size(void **state)
{
    (void)state;
    static const size_t sizes[] = {1, 7, 9, 65536};
    assert_int_equal(look_at("numbers"), 0);
    for (size_t i = 0; i < COUNT(sizes); i++) {
        lies->size = sizes[i];
        assert_int_equal(look_at("numbers"), -EIO);
    }
}

static void test_pointers_that_are_none(void **state)
{
    (void)state;
    assert_int_equal(look_at("texts"), 0);
    lies->no_pointers = true;
    assert_int_equal(look_at("texts"), -EIO);
}

static void test_headers_of_sparse_datasets(void **state)
{
    (void)state;
    make_sparse(0);
    assert_int_equal(look_at("sparse"), 0);
    lies->size = 1;
    assert_int_equal(look_at("sparse"), -EIO);
    lies->size = 4096;
    assert_int_equal(look_at("sparse"), -EIO);
    *lies = (struct lies){.long_strings = true};
    assert_int_equal(look_at("sparse"), -EIO);
}

static void test_fill_values_of_sparse_datasets(void **state)
{
    (void)state;
    make_sparse(7);
    assert_int_equal(look_at("sparse"), 0);
    lies->size = 65536;
    assert_int_equal(look_at("sparse"), -EIO);
}

/* Which a program makes room by, and a description. */
static void test_datatypes_of_programs(void **state)
{
    (void)state;
    void *bytes;
    size_t size;
    struct sfs_type type;
    struct sfs_encoded encoded;
    assert_int_equal(sfs_type_encode("<u8", &bytes, &encoded.n), 0);
    encoded.bytes = bytes;
    assert_int_equal(sfs_type_size(&encoded, &size), 0);
    assert_int_equal(size, 8);
    lies->asked_size = 1;
    assert_int_equal(sfs_type_size(&encoded, &size), -EIO);
    assert_int_equal(sfs_type_describe(&encoded, &type), 0);
    sfs_type_free(&type);
    lies->size = 1;
    assert_int_equal(sfs_type_describe(&encoded, &type), -EIO);
    free(bytes);
}

static int all_tests(void)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_sources_of_another_datatype, begin, end_test),
        cmocka_unit_test_setup_teardown(test_sources_with_pointers, begin, end_test),
        cmocka_unit_test_setup_teardown(test_elements_of_another_size, begin, end_test),
        cmocka_unit_test_setup_teardown(test_pointers_that_are_none, begin, end_test),
        cmocka_unit_test_setup_teardown(test_headers_of_sparse_datasets, begin, end_test),
        cmocka_unit_test_setup_teardown(test_fill_values_of_sparse_datasets, begin, end_test),
        cmocka_unit_test_setup_teardown(test_datatypes_of_programs, begin, end_test),
    };
    lies = mmap(NULL, sizeof(*lies), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (lies == MAP_FAILED)
        return 1;
    log_quietly();
    if (sfs_start_hdf5_workers(0, 0) < 0)
        return 1;
    return cmocka_run_group_tests(tests, NULL, NULL);
}

int main(void)
{
    return in_temporary_directory(all_tests);
}
