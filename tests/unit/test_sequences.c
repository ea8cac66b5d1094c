/* Elements of variable length of sparse datasets: what is written is there, in the cache and in the
 * file, whatever else is written, erased and cut off. */
#include "slab.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <syslog.h>

#include "cache/cache.h"
#include "dataset/sequences.h"
#include "format/structure.h"
#include "selection/selection.h"
#include "sparsefs/hdf5.h"
#include "sparsefs/sparsefs.h"

#define PATH "sequences.h5"
#define SIDE 12 /* no dim becomes larger */
#define LONG 5000

enum { DEFLATE = 1, SHUFFLE, FLETCHER32 }; /* as numbered by HDF5 */

struct kind {
    const char *type;
    size_t base_size;
    int rank;
    uint64_t dims[3], max_dims[3], chunk_dims[3];
    int filter[SFS_SECTIONS]; /* of each section; 0: none */
    bool is_dense;
};

static const struct kind kinds[] = {
    {"str", 1, 1, {12}, {12}, {12}, {0}},                                   /* single chunk */
    {"vlen:<i4", 4, 1, {12}, {12}, {12}, {0, 0, DEFLATE}},                  /* the same, filtered */
    {"vlen:f8", 8, 2, {7, 9}, {SIDE, SIDE}, {4, 5}, {DEFLATE, SHUFFLE, 0}}, /* fixed array */
    {"str", 1, 2, {7, 9}, {SIDE, SFS_UNLIMITED}, {4, 5}, {0, FLETCHER32, FLETCHER32}},
    {"vlen:S3", 3, 3, {3, 5, 5}, {SFS_UNLIMITED, SIDE, SIDE}, {1, 5, 5}, {0}}, /* extensible array
                                                                                */
    {"str", 1, 2, {7, 9}, {SFS_UNLIMITED, SFS_UNLIMITED}, {4, 5}, {DEFLATE, DEFLATE, DEFLATE}},
    {"str", 1, 1, {12}, {12}, {12}, {0}, true},
    {"vlen:<i4", 4, 1, {12}, {12}, {12}, {0, 0, DEFLATE}, true},
    {"vlen:f8", 8, 2, {7, 9}, {SIDE, SIDE}, {4, 5}, {0, SHUFFLE, 0}, true},
    {"vlen:S3", 3, 3, {3, 5, 5}, {SFS_UNLIMITED, SIDE, SIDE}, {1, 5, 5}, {0}, true},
    {"str", 1, 2, {7, 9}, {SFS_UNLIMITED, SFS_UNLIMITED}, {4, 5}, {0, DEFLATE, FLETCHER32}, true},
};

/* Elements are what a number says: see content. */
struct element {
    bool is_defined;
    size_t n; /* base elements */
    uint32_t number;
};

struct model {
    const struct kind *kind;
    uint64_t dims[3];
    struct element element[SIDE][SIDE][SIDE];
};

/* Bytes of an element: those of different numbers differ. */
static void content(uint32_t number, unsigned char *bytes, size_t n)
{
    uint32_t x = number * 2654435761U + 1;
    for (size_t i = 0; i < n; i++) {
        x = x * 1664525 + 1013904223;
        bytes[i] = (unsigned char)(1 + (x >> 24) % 255); /* strings have no zeros */
    }
}

static struct element *element_at(struct model *model, const struct sfs_slab *slab, uint64_t k)
{
    uint64_t at[3] = {0};
    for (int i = slab->rank - 1; i >= 0; i--) {
        at[i] = slab->start[i] + k % slab->count[i];
        k /= slab->count[i];
    }
    return &model->element[at[0]][at[1]][at[2]];
}

static struct sfs_slab all_of(const struct model *model)
{
    struct sfs_slab slab = {.rank = model->kind->rank};
    memcpy(slab.count, model->dims, sizeof(model->dims));
    return slab;
}

/* A new element, and its bytes, which the caller frees. */
static struct sfs_sequence new_sequence(const struct model *model, struct element *element)
{
    static uint32_t last;
    *element = (struct element){true, random_below(4) ? random_below(20) : 0, ++last};
    if (random_below(50) == 0)
        element->n = random_below(LONG);
    size_t bytes = element->n * model->kind->base_size;
    unsigned char *elements = allocate(bytes);
    content(element->number, elements, bytes);
    return (struct sfs_sequence){.elements = elements, .n = element->n};
}

static void free_sequences(struct sfs_sequence *sequences, uint64_t n)
{
    for (uint64_t i = 0; i < n; i++)
        free((void *)sequences[i].elements);
    free(sequences);
}

static void write_slab(struct sfs_dataset *dataset, struct model *model)
{
    struct sfs_slab slab = slab_within(model->kind->rank, model->dims);
    uint64_t n = elements_of(&slab);
    struct sfs_sequence *sequences = allocate(n * sizeof(*sequences));
    for (uint64_t k = 0; k < n; k++)
        sequences[k] = new_sequence(model, element_at(model, &slab, k));
    assert_int_equal(sfs_write(dataset, &slab, sequences), 0);
    free_sequences(sequences, n);
}

/* Some elements of a slab, each by itself and not adjacent to another. */
static void write_some(struct sfs_dataset *dataset, struct model *model)
{
    struct sfs_slab slab = slab_within(model->kind->rank, model->dims);
    uint64_t n = elements_of(&slab), count = 0;
    struct sfs_interval *intervals = allocate((n + 1) * sizeof(*intervals));
    struct sfs_sequence *sequences = allocate(n * sizeof(*sequences));
    for (uint64_t k = random_below(3); k < n; k += 2 + random_below(4)) {
        intervals[count] = (struct sfs_interval){k, count};
        sequences[count++] = new_sequence(model, element_at(model, &slab, k));
    }
    intervals[count] = (struct sfs_interval){0, count};
    struct sfs_defined defined = {count, intervals, count};
    assert_int_equal(sfs_write_values(dataset, &slab, &defined, sequences), 0);
    free_sequences(sequences, count);
    free(intervals);
}

static void erase_slab(struct sfs_dataset *dataset, struct model *model)
{
    struct sfs_slab slab = slab_within(model->kind->rank, model->dims);
    uint64_t n = elements_of(&slab);
    if (model->kind->is_dense) {
        assert_int_equal(sfs_erase(dataset, &slab), -EOPNOTSUPP);
        return;
    }
    for (uint64_t k = 0; k < n; k++)
        *element_at(model, &slab, k) = (struct element){0};
    assert_int_equal(sfs_erase(dataset, &slab), 0);
}

static void resize(struct sfs_dataset *dataset, struct model *model)
{
    uint64_t dims[3] = {1, 1, 1};
    for (int i = 0; i < model->kind->rank; i++) {
        uint64_t max = model->kind->max_dims[i] < SIDE ? model->kind->max_dims[i] : SIDE;
        dims[i] = random_below(5) ? random_below(max + 1) : model->dims[i];
    }
    assert_int_equal(sfs_set_extent(dataset, dims), 0);
    memcpy(model->dims, dims, sizeof(dims));
    for (uint64_t i = 0; i < SIDE; i++)
        for (uint64_t j = 0; j < SIDE; j++)
            for (uint64_t k = 0; k < SIDE; k++)
                if (i >= dims[0] || j >= dims[1] || k >= dims[2])
                    model->element[i][j][k] = (struct element){0};
}

static void check_bytes(const struct element *element, size_t base_size, const void *bytes)
{
    size_t n = element->n * base_size;
    unsigned char *wanted = allocate(n);
    content(element->number, wanted, n);
    if (n > 0)
        assert_memory_equal(bytes, wanted, n);
    free(wanted);
}

/* By all ways to read them. */
static void check_model(struct sfs_dataset *dataset, struct model *model)
{
    struct sfs_slab slab = all_of(model);
    uint64_t n = elements_of(&slab), defined = 0, counted, got;
    struct sfs_sequence *sequences;
    char *lengths, *bytes = NULL;
    size_t lengths_n, bytes_n = 0, at = 0, base_size = model->kind->base_size;
    assert_int_equal(sfs_read_sequences(dataset, NULL, &sequences, &got), 0);
    assert_int_equal(got, n);
    assert_int_equal(sfs_read_parts(dataset, SFS_LENGTHS, 0, n, SIZE_MAX, &lengths, &lengths_n), 0);
    assert_int_equal(lengths_n, n * sizeof(uint64_t));
    bool is_string = sfs_dataset_info(dataset)->type.is_string;
    if (!is_string)
        assert_int_equal(sfs_read_parts(dataset, SFS_SEQUENCES, 0, n, SIZE_MAX, &bytes, &bytes_n),
                         0);
    for (uint64_t k = 0; k < n; k++) {
        const struct element *element = element_at(model, &slab, k);
        defined += element->is_defined;
        assert_int_equal(sequences[k].n, element->n);
        assert_int_equal(((uint64_t *)(void *)lengths)[k], element->n);
        check_bytes(element, base_size, sequences[k].elements);
        if (!is_string)
            check_bytes(element, base_size, bytes + at);
        at += element->n * base_size;
    }
    assert_int_equal(bytes_n, is_string ? 0 : at);
    assert_int_equal(sfs_count_defined(dataset, &slab, &counted), 0);
    assert_int_equal(counted, model->kind->is_dense ? n : defined);
    free(sequences);
    free(lengths);
    free(bytes);
}

static struct sfs_dataset *open_dataset(struct sfs_file *file)
{
    uint64_t address;
    struct sfs_dataset *dataset = NULL;
    assert_int_equal(sfs_find(file, sfs_root(file), "/x", &address), 0);
    assert_int_equal(sfs_dataset_open(file, address, "/x", &dataset), 0);
    return dataset;
}

static struct sfs_file *create(const struct kind *kind, size_t cache_size,
                               struct sfs_dataset **dataset)
{
    const unsigned one = 1;
    struct sfs_filter filters[SFS_SECTIONS];
    struct sfs_dataset_create create = {
        .rank = kind->rank, .is_dense = kind->is_dense, .is_structured = kind->is_dense};
    struct sfs_options options = {.writable = true, .replace = true, .cache_size = cache_size};
    struct sfs_file *file = NULL;
    void *type = NULL;
    memcpy(create.dims, kind->dims, sizeof(kind->dims));
    memcpy(create.max_dims, kind->max_dims, sizeof(kind->max_dims));
    memcpy(create.chunk_dims, kind->chunk_dims, sizeof(kind->chunk_dims));
    for (int i = 0; i < SFS_SECTIONS; i++) {
        filters[i] = (struct sfs_filter){
            .id = kind->filter[i], .n_values = kind->filter[i] != FLETCHER32, .values = &one};
        create.n_filters[i] = kind->filter[i] != 0;
        create.filters[i] = &filters[i];
    }
    assert_int_equal(sfs_type_encode(kind->type, &type, &create.type.n), 0);
    create.type.bytes = type;
    assert_int_equal(sfs_create(PATH, &options, &file), 0);
    assert_int_equal(sfs_dataset_create(file, "/x", &create, dataset), 0);
    free(type);
    return file;
}

static void keep_finding(void *context, enum sfs_finding finding, const char *line)
{
    unsigned *n = context;
    n[finding]++;
    if (finding != SFS_SOUND)
        print_error("%s\n", line);
}

/* Closes the file, checks it, and opens it again. */
static void reopen(struct sfs_file **file, struct sfs_dataset **dataset, size_t cache_size)
{
    struct sfs_options options = {.writable = true, .cache_size = cache_size};
    unsigned n[SFS_UNKNOWN + 1] = {0};
    sfs_dataset_close(*dataset);
    assert_int_equal(sfs_close(*file), 0);
    assert_int_equal(sfs_open(PATH, NULL, file), 0);
    assert_int_equal(sfs_check(*file, keep_finding, n), 0);
    assert_int_equal(n[SFS_SOUND], 2);
    assert_int_equal(n[SFS_DAMAGED] + n[SFS_UNKNOWN], 0);
    assert_int_equal(sfs_close(*file), 0);
    assert_int_equal(sfs_open(PATH, &options, file), 0);
    *dataset = open_dataset(*file);
}

static void step(struct sfs_file **file, struct sfs_dataset **dataset, struct model *model,
                 size_t cache_size)
{
    switch (random_below(8)) {
    case 0:
        resize(*dataset, model);
        break;
    case 1:
    case 2:
        write_slab(*dataset, model);
        break;
    case 3:
    case 4:
        write_some(*dataset, model);
        break;
    case 5:
        erase_slab(*dataset, model);
        break;
    case 6:
        assert_int_equal(sfs_flush(*file), 0);
        break;
    default:
        if (random_below(3) == 0)
            reopen(file, dataset, cache_size);
    }
}

/* Heaps may be larger than the cache that they are in. */
static void what_is_written_is_there(void **state)
{
    (void)state;
    static const size_t cache_sizes[] = {0, 20000, 3000};
    for (size_t round = 0; round < 8 * COUNT(kinds); round++) {
        static struct model model;
        struct sfs_dataset *dataset;
        size_t cache_size = cache_sizes[round / COUNT(kinds) % COUNT(cache_sizes)];
        memset(&model, 0, sizeof(model));
        model.kind = &kinds[round % COUNT(kinds)];
        for (int i = 0; i < 3; i++)
            model.dims[i] = i < model.kind->rank ? model.kind->dims[i] : 1;
        struct sfs_file *file = create(model.kind, cache_size, &dataset);
        for (int i = 0; i < 40; i++) {
            step(&file, &dataset, &model, cache_size);
            check_model(dataset, &model);
        }
        reopen(&file, &dataset, cache_size);
        check_model(dataset, &model);
        sfs_dataset_close(dataset);
        assert_int_equal(sfs_close(file), 0);
    }
}

/* ---- The same handles given to libhdf5 ---- */

/* Elements of a buffer of hvl_t of 32-bit integers. */
static void random_elements(hvl_t *elements, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        elements[i].len = random_below(6);
        int32_t *p = elements[i].p =
            elements[i].len ? allocate(elements[i].len * sizeof(*p)) : NULL;
        for (size_t k = 0; k < elements[i].len; k++)
            p[k] = (int32_t)random_between(0, 60000) - 30000;
    }
}

static hid_t random_hyperslab(const hsize_t *dims)
{
    hid_t space = H5Screate_simple(2, dims, NULL);
    hsize_t start[2], count[2];
    for (int i = 0; i < 2; i++) {
        start[i] = random_below(dims[i]);
        count[i] = 1 + random_below(dims[i] - start[i]);
    }
    assert_true(H5Sselect_hyperslab(space, H5S_SELECT_SET, start, NULL, count, NULL) >= 0);
    return space;
}

static void check_same(const hvl_t *a, const hvl_t *b, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        assert_int_equal(a[i].len, b[i].len);
        if (a[i].len > 0)
            assert_memory_equal(a[i].p, b[i].p, a[i].len * sizeof(int32_t));
    }
}

/* 16-bit big-endian integers in the file, native ones in memory. */
static void handles_do_what_they_do_in_libhdf5(void **state)
{
    (void)state;
    const hsize_t dims[] = {9, 8}, chunk_dims[] = {4, 3};
    hid_t stored = H5Tvlen_create(H5T_STD_I16BE), memory = H5Tvlen_create(H5T_NATIVE_INT32);
    hid_t space = H5Screate_simple(2, dims, NULL), dcpl = H5Pcreate(H5P_DATASET_CREATE);
    H5Pset_chunk(dcpl, 2, chunk_dims);
    hid_t plain = H5Fcreate("plain.h5", H5F_ACC_TRUNC, H5P_DEFAULT, H5P_DEFAULT);
    hid_t referee = H5Dcreate2(plain, "x", stored, space, H5P_DEFAULT, dcpl, H5P_DEFAULT);
    struct sfs_options options = {.writable = true, .replace = true};
    struct sfs_file *file;
    struct sfs_dataset *dataset;
    assert_int_equal(sfs_create(PATH, &options, &file), 0);
    assert_int_equal(sfs_h5_create(file, "/x", stored, space, dcpl, H5P_DEFAULT, &dataset), 0);
    for (int round = 0; round < 60; round++) {
        hvl_t elements[72], got[72] = {{0}}, wanted[72] = {{0}};
        hid_t where = random_hyperslab(dims);
        random_elements(elements, 72);
        assert_int_equal(sfs_h5_write(dataset, memory, H5S_ALL, where, elements), 0);
        assert_true(H5Dwrite(referee, memory, where, where, H5P_DEFAULT, elements) >= 0);
        H5Dvlen_reclaim(memory, space, H5P_DEFAULT, elements);
        assert_int_equal(sfs_h5_read(dataset, memory, H5S_ALL, H5S_ALL, got), 0);
        assert_true(H5Dread(referee, memory, H5S_ALL, H5S_ALL, H5P_DEFAULT, wanted) >= 0);
        check_same(got, wanted, 72);
        H5Dvlen_reclaim(memory, space, H5P_DEFAULT, got);
        H5Dvlen_reclaim(memory, space, H5P_DEFAULT, wanted);
        H5Sclose(where);
    }
    const hid_t others[] = {H5T_NATIVE_INT32, space};
    char byte[72 * 16];
    assert_true(sfs_h5_write(dataset, others[0], H5S_ALL, H5S_ALL, byte) < 0);
    sfs_dataset_close(dataset);
    assert_int_equal(sfs_close(file), 0);
    H5Dclose(referee);
    H5Fclose(plain);
    H5Pclose(dcpl);
    H5Sclose(space);
    H5Tclose(memory);
    H5Tclose(stored);
}

/* Points in any order, and strings as pointers. */
static void strings_go_where_points_say(void **state)
{
    (void)state;
    const hsize_t dims[] = {10}, points[] = {7, 2, 5};
    const char *const words[] = {"seven", "two", ""};
    hid_t string = H5Tcopy(H5T_C_S1), space = H5Screate_simple(1, dims, NULL), dcpl;
    H5Tset_size(string, H5T_VARIABLE);
    dcpl = H5Pcreate(H5P_DATASET_CREATE);
    H5Pset_chunk(dcpl, 1, &(hsize_t){4});
    H5Pset_shuffle(dcpl);
    H5Pset_deflate(dcpl, 5);
    struct sfs_options options = {.writable = true, .replace = true};
    struct sfs_file *file;
    struct sfs_dataset *dataset;
    assert_int_equal(sfs_create(PATH, &options, &file), 0);
    assert_int_equal(sfs_h5_create(file, "/x", string, space, dcpl, H5P_DEFAULT, &dataset), 0);
    hid_t where = H5Scopy(space), three = H5Screate_simple(1, &(hsize_t){3}, NULL);
    H5Sselect_elements(where, H5S_SELECT_SET, 3, points);
    assert_int_equal(sfs_h5_write(dataset, string, three, where, words), 0);
    assert_int_equal(sfs_flush(file), 0);
    char *got[10] = {NULL}, *picked[3] = {NULL};
    assert_int_equal(sfs_h5_read(dataset, string, H5S_ALL, H5S_ALL, got), 0);
    for (int i = 0; i < 10; i++)
        assert_string_equal(got[i], i == 7 ? "seven" : i == 2 ? "two" : "");
    assert_int_equal(sfs_h5_read(dataset, string, three, where, picked), 0);
    for (int i = 0; i < 3; i++)
        assert_string_equal(picked[i], words[i]);
    assert_int_equal(sfs_h5_erase(dataset, where), 0);
    struct sfs_slab slab = {.rank = 1, .count = {10}};
    uint64_t defined;
    assert_int_equal(sfs_count_defined(dataset, &slab, &defined), 0);
    assert_int_equal(defined, 0);
    H5Dvlen_reclaim(string, space, H5P_DEFAULT, got);
    H5Dvlen_reclaim(string, three, H5P_DEFAULT, picked);
    sfs_dataset_close(dataset);
    assert_int_equal(sfs_close(file), 0);
    H5Sclose(where);
    H5Sclose(three);
    H5Sclose(space);
    H5Pclose(dcpl);
    H5Tclose(string);
}

static void check_filters(size_t n, const struct sfs_filter *filters, size_t n_wanted,
                          const int *wanted)
{
    assert_int_equal(n, n_wanted);
    for (size_t i = 0; i < n; i++)
        assert_int_equal(filters[i].id, wanted[i]);
}

/* Of each section its own, given by property lists. */
static void property_lists_give_the_filters_of_sections(void **state)
{
    (void)state;
    const hsize_t dims = 10, chunk = 10;
    const int deflate[] = {H5Z_FILTER_DEFLATE}, shuffled[] = {H5Z_FILTER_SHUFFLE, deflate[0]};
    hid_t stored = H5Tvlen_create(H5T_STD_I32LE), space = H5Screate_simple(1, &dims, NULL);
    hid_t dcpl[SFS_SECTIONS];
    for (int i = 0; i < SFS_SECTIONS; i++)
        dcpl[i] = H5Pcreate(H5P_DATASET_CREATE);
    H5Pset_chunk(dcpl[1], 1, &chunk);
    H5Pset_deflate(dcpl[0], 9);
    H5Pset_shuffle(dcpl[1]);
    H5Pset_deflate(dcpl[1], 1);
    H5Pset_deflate(dcpl[2], 6);
    struct sfs_options options = {.writable = true, .replace = true};
    struct sfs_file *file;
    struct sfs_dataset *dataset;
    assert_int_equal(sfs_create(PATH, &options, &file), 0);
    log_quietly();
    assert_int_equal(sfs_h5_create_sections(file, "/y", H5T_STD_I32LE, space, dcpl, &dataset),
                     -EINVAL);
    assert_int_equal(sfs_h5_create_sections(file, "/x", stored, space, dcpl, &dataset), 0);
    int32_t numbers[1000] = {1, 2, 3};
    const hvl_t element = {1000, numbers};
    hid_t where = H5Scopy(space), one = H5Screate(H5S_SCALAR);
    H5Sselect_elements(where, H5S_SELECT_SET, 1, &(hsize_t){4});
    assert_int_equal(sfs_h5_write(dataset, stored, one, where, &element), 0);
    assert_int_equal(sfs_flush(file), 0);
    const struct sfs_dataset_info *info = sfs_dataset_info(dataset);
    check_filters(info->n_selection_filters, info->selection_filters, 1, deflate);
    check_filters(info->n_filters, info->filters, 2, shuffled);
    check_filters(info->n_heap_filters, info->heap_filters, 1, deflate);
    assert_int_equal(info->selection_filters[0].values[0], 9);
    assert_int_equal(info->heap_filters[0].values[0], 6);
    struct sfs_chunk_info stored_as;
    assert_int_equal(sfs_chunk_info(dataset, (uint64_t[]){4}, &stored_as), 0);
    assert_int_equal(stored_as.unfiltered_size[2], 4 + sizeof(numbers) + 4);
    assert_true(stored_as.section_size[2] < 100 && stored_as.filter_mask[2] == 0);
    hvl_t got;
    assert_int_equal(sfs_h5_read(dataset, stored, one, where, &got), 0);
    check_same(&got, &element, 1);
    H5Dvlen_reclaim(stored, one, H5P_DEFAULT, &got);
    sfs_dataset_close(dataset);
    assert_int_equal(sfs_close(file), 0);
    for (int i = 0; i < SFS_SECTIONS; i++)
        H5Pclose(dcpl[i]);
    H5Sclose(one);
    H5Sclose(where);
    H5Sclose(space);
    H5Tclose(stored);
}

/* ---- Chunks ---- */

static const struct kind line = {"vlen:<i4", 4, 1, {12}, {12}, {6}, {0}};

static void write_at(struct sfs_dataset *dataset, uint64_t at, const int32_t *elements, uint64_t n)
{
    struct sfs_slab slab = {.rank = 1, .start = {at}, .count = {1}};
    const struct sfs_sequence sequence = {.elements = elements, .n = n};
    assert_int_equal(sfs_write(dataset, &slab, &sequence), 0);
}

struct taken {
    struct sfs_chunk_info info;
    unsigned char *sections[SFS_SECTIONS];
};

static void take(struct sfs_dataset *dataset, uint64_t at, struct taken *taken)
{
    assert_int_equal(sfs_chunk_info(dataset, &at, &taken->info), 0);
    for (int i = 0; i < SFS_SECTIONS; i++)
        taken->sections[i] = allocate(taken->info.section_size[i]);
    assert_int_equal(sfs_read_chunk(dataset, &taken->info, (void *const *)taken->sections), 0);
}

static void drop(struct taken *taken)
{
    for (int i = 0; i < SFS_SECTIONS; i++)
        free(taken->sections[i]);
}

static int put(struct sfs_dataset *dataset, const struct taken *taken)
{
    return sfs_write_chunk(dataset, &taken->info, (const void *const *)taken->sections);
}

static uint32_t unused_of(const struct taken *taken)
{
    uint32_t unused;
    memcpy(&unused, taken->sections[2], sizeof(unused));
    return unused;
}

/* What is not used stays as long as it is little, is counted, and goes when it is much. */
static void what_is_not_used_is_counted(void **state)
{
    (void)state;
    struct sfs_dataset *dataset;
    struct sfs_file *file = create(&line, 0, &dataset);
    static const int32_t elements[100] = {1, 2, 3, 4, 5};
    struct taken taken;
    write_at(dataset, 0, elements, 100);
    write_at(dataset, 1, elements, 10);
    take(dataset, 0, &taken);
    assert_int_equal(taken.info.section_size[2], 4 + 440 + 4);
    assert_int_equal(unused_of(&taken), 0);
    drop(&taken);
    write_at(dataset, 1, elements + 1, 3);
    take(dataset, 0, &taken);
    assert_int_equal(taken.info.section_size[2], 4 + 452 + 4);
    assert_int_equal(unused_of(&taken), 40);
    drop(&taken);
    write_at(dataset, 0, elements + 2, 2);
    take(dataset, 0, &taken);
    assert_int_equal(taken.info.section_size[2], 4 + 20 + 4);
    assert_int_equal(unused_of(&taken), 0);
    drop(&taken);
    write_at(dataset, 0, NULL, 0);
    write_at(dataset, 1, NULL, 0);
    take(dataset, 0, &taken);
    assert_int_equal(taken.info.section_size[2], 0);
    drop(&taken);
    sfs_dataset_close(dataset);
    assert_int_equal(sfs_close(file), 0);
}

/* As they are stored; and what they must not be. */
static void chunks_are_copied(void **state)
{
    (void)state;
    struct sfs_dataset *dataset;
    struct sfs_file *file = create(&line, 0, &dataset);
    static const int32_t elements[] = {10, 20, 30};
    struct taken taken;
    struct sfs_sequence *sequences;
    uint64_t n;
    write_at(dataset, 1, elements, 3);
    write_at(dataset, 2, elements + 1, 1);
    take(dataset, 0, &taken);
    taken.info.start[0] = 6;
    assert_int_equal(put(dataset, &taken), 0);
    assert_int_equal(sfs_read_sequences(dataset, NULL, &sequences, &n), 0);
    assert_int_equal(n, 12);
    for (uint64_t i = 0; i < n; i++)
        assert_int_equal(sequences[i].n, i % 6 == 1 ? 3 : i % 6 == 2);
    assert_memory_equal(sequences[7].elements, elements, sizeof(elements));
    free(sequences);
    for (int section = 0; section < SFS_SECTIONS; section++)
        for (size_t i = 0; i < taken.info.section_size[section]; i++) {
            unsigned char *byte = &taken.sections[section][i], was = *byte;
            *byte ^= 0x10;
            assert_int_equal(put(dataset, &taken), -EINVAL);
            *byte = was;
        }
    for (int section = 0; section < SFS_SECTIONS; section++) {
        taken.info.section_size[section] -= 4;
        assert_int_equal(put(dataset, &taken), -EINVAL);
        taken.info.section_size[section] += 4;
    }
    drop(&taken);
    sfs_dataset_close(dataset);
    assert_int_equal(sfs_close(file), 0);
}

/* The second of two sections, and the third, each with its checksum. */
static void give_sections(struct taken *taken, const void *elements, const void *heap,
                          size_t heap_n)
{
    memcpy(taken->sections[1], elements, 32);
    structure_sum(taken->sections[1], 36);
    free(taken->sections[2]);
    taken->sections[2] = allocate(heap_n + 4);
    memcpy(taken->sections[2], heap, heap_n);
    structure_sum(taken->sections[2], heap_n + 4);
    taken->info.section_size[2] = taken->info.unfiltered_size[2] = heap_n + 4;
}

/* Numbers of two sequences, 2 and 1 long, in a chunk as the prototype stores it. */
static const unsigned char set_elements[32] = {2, 0, 0, 0, 0, 0, 1, 0, [16] = 1, [22] = 2};
static const unsigned char set[] = "HGLS\1\0\0\0\1\0\0\0\x1c\0\0\0\0\0\0\0\x40\0\0\0\0\0\0\0"
                                   "GCOL\1\0\0\0\x40\0\0\0\0\0\0\0"
                                   "\1\0\1\0\0\0\0\0\x8\0\0\0\0\0\0\0\xa\0\0\0\x14\0\0\0"
                                   "\2\0\1\0\0\0\0\0\x4\0\0\0\0\0\0\0\x1e\0\0\0\0\0\0\0";

/* Elements 1 and 2 of a chunk have what the prototype would have stored. */
static struct sfs_file *create_as_the_prototype(struct sfs_dataset **dataset)
{
    struct sfs_file *file = create(&line, 0, dataset);
    struct taken taken;
    write_at(*dataset, 1, (const int32_t[]){1}, 1);
    write_at(*dataset, 2, (const int32_t[]){2}, 1);
    take(*dataset, 0, &taken);
    give_sections(&taken, set_elements, set, sizeof(set) - 1);
    assert_int_equal(put(*dataset, &taken), 0);
    drop(&taken);
    return file;
}

static void check_element(struct sfs_dataset *dataset, uint64_t at, const int32_t *elements,
                          uint64_t n)
{
    struct sfs_sequence *sequences;
    uint64_t all;
    assert_int_equal(sfs_read_sequences(dataset, NULL, &sequences, &all), 0);
    assert_int_equal(sequences[at].n, n);
    if (n > 0)
        assert_memory_equal(sequences[at].elements, elements, n * sizeof(*elements));
    free(sequences);
}

/* Writing one element keeps the others, in the other form. */
static void what_the_prototype_has_written_is_written_over(void **state)
{
    (void)state;
    const int32_t old[] = {10, 20, 30}, fresh[] = {40, 50};
    for (int erased = 0; erased < 2; erased++) {
        struct sfs_dataset *dataset;
        struct sfs_file *file = create_as_the_prototype(&dataset);
        struct sfs_slab second = {.rank = 1, .start = {2}, .count = {1}};
        check_element(dataset, 1, old, 2);
        check_element(dataset, 2, old + 2, 1);
        write_at(dataset, 4, fresh, 2);
        if (erased)
            assert_int_equal(sfs_erase(dataset, &second), 0);
        for (int stored = 0; stored < 2; stored++) {
            check_element(dataset, 1, old, 2);
            check_element(dataset, 2, old + 2, !erased);
            check_element(dataset, 4, fresh, 2);
            if (!stored)
                reopen(&file, &dataset, 0);
        }
        sfs_dataset_close(dataset);
        assert_int_equal(sfs_close(file), 0);
    }
}

/* What was flushed is there, whatever was written over it and not flushed. */
static void what_is_flushed_stays(void **state)
{
    (void)state;
    const int32_t old[] = {1, 2, 3}, fresh[] = {4, 5, 6, 7};
    struct sfs_dataset *dataset;
    struct sfs_file *file = create(&line, 3000, &dataset);
    struct sfs_options options = {.writable = true};
    write_at(dataset, 1, old, 3);
    write_at(dataset, 2, old, 2);
    assert_int_equal(sfs_flush(file), 0);
    for (uint64_t at = 0; at < 12; at++)
        write_at(dataset, at, fresh, 4);
    assert_int_equal(sfs_set_extent(dataset, &(uint64_t){2}), 0);
    sfs_dataset_close(dataset);
    sfs_discard(file);
    assert_int_equal(sfs_open(PATH, &options, &file), 0);
    dataset = open_dataset(file);
    assert_int_equal(sfs_dataset_info(dataset)->dims[0], 12);
    for (uint64_t at = 0; at < 12; at++)
        check_element(dataset, at, old, at == 1 ? 3 : at == 2 ? 2 : 0);
    sfs_dataset_close(dataset);
    assert_int_equal(sfs_close(file), 0);
}

/* An element that is unfinished is not committed, and the others of its chunk are. */
static void what_is_unfinished_is_left_out(void **state)
{
    (void)state;
    const int32_t old[] = {1, 2, 3}, fresh[] = {4, 5, 6, 7};
    struct sfs_dataset *dataset;
    struct sfs_file *file = create(&line, 0, &dataset);
    struct sfs_slab slab = {.rank = 1, .start = {3}, .count = {1}};
    struct sfs_unfinished *unfinished;
    assert_int_equal(sfs_begin_unfinished(dataset, &slab, &unfinished), 0);
    write_at(dataset, 1, old, 3);
    write_at(dataset, 3, fresh, 4);
    for (int ended = 0; ended < 2; ended++) {
        struct sfs_file *reader;
        assert_int_equal(sfs_flush(file), 0);
        struct sfs_options options = {.follow = true};
        assert_int_equal(sfs_open(PATH, &options, &reader), 0);
        struct sfs_dataset *read = open_dataset(reader);
        check_element(read, 1, old, 3);
        check_element(read, 3, fresh, ended ? 4 : 0);
        sfs_dataset_close(read);
        assert_int_equal(sfs_close(reader), 0);
        if (!ended)
            sfs_end_unfinished(unfinished);
    }
    check_element(dataset, 3, fresh, 4);
    sfs_dataset_close(dataset);
    assert_int_equal(sfs_close(file), 0);
}

/* Puts bytes into a closed file. */
static void put_bytes(uint64_t address, const void *bytes, size_t n)
{
    FILE *file = fopen(PATH, "r+b");
    assert_non_null(file);
    assert_int_equal(fseek(file, (long)address, SEEK_SET), 0);
    assert_int_equal(fwrite(bytes, 1, n, file), n);
    assert_int_equal(fclose(file), 0);
}

/* What leads out of its heap is not taken for anything: the chunk stays as it is. */
static void a_damaged_chunk_is_not_written(void **state)
{
    (void)state;
    const uint64_t wrong[][2] = {{8, 8}, {3, 4}, {UINT64_MAX, 4}, {4, UINT64_MAX}, {4, 3}, {12, 4}};
    for (size_t i = 0; i < COUNT(wrong); i++) {
        struct sfs_dataset *dataset;
        struct sfs_file *file = create(&line, 0, &dataset);
        struct sfs_options options = {.writable = true};
        struct sfs_slab slab = {.rank = 1, .start = {2}, .count = {1}};
        const int32_t elements[] = {1, 2};
        const struct sfs_sequence sequence = {.elements = elements, .n = 1};
        struct sfs_sequence *sequences;
        struct taken taken;
        uint64_t n;
        write_at(dataset, 1, elements, 2);
        take(dataset, 0, &taken);
        sfs_dataset_close(dataset);
        assert_int_equal(sfs_close(file), 0);
        memcpy(taken.sections[1], wrong[i], sizeof(wrong[i]));
        structure_sum(taken.sections[1], 20);
        put_bytes(taken.info.address + taken.info.section_size[0], taken.sections[1], 20);
        drop(&taken);
        assert_int_equal(sfs_open(PATH, &options, &file), 0);
        dataset = open_dataset(file);
        log_quietly();
        unsigned errors = log_errors();
        assert_int_equal(sfs_write(dataset, &slab, &sequence), -EIO);
        assert_true(log_errors() > errors);
        assert_int_equal(sfs_read_sequences(dataset, NULL, &sequences, &n), -EIO);
        slab.start[0] = 1;
        assert_int_equal(sfs_erase(dataset, &slab), -EIO);
        slab.start[0] = 6; /* another chunk */
        assert_int_equal(sfs_write(dataset, &slab, &sequence), 0);
        sfs_dataset_close(dataset);
        assert_int_equal(sfs_close(file), 0);
    }
}

/* A length that no memory has. */
static void absurd_lengths_are_refused(void **state)
{
    (void)state;
    struct sfs_dataset *dataset;
    struct sfs_file *file = create(&line, 0, &dataset);
    struct sfs_slab slab = {.rank = 1, .count = {1}};
    const uint64_t lengths[] = {UINT64_MAX, UINT64_MAX / 4, (uint64_t)1 << 60};
    log_quietly();
    for (size_t i = 0; i < COUNT(lengths); i++) {
        const struct sfs_sequence sequence = {.elements = "", .n = lengths[i]};
        assert_true(sfs_write(dataset, &slab, &sequence) < 0);
    }
    check_element(dataset, 0, NULL, 0);
    sfs_dataset_close(dataset);
    assert_int_equal(sfs_close(file), 0);
}

static bool count_asked(void *context)
{
    ++*(unsigned *)context;
    return false;
}

/* Many elements can lead to the same bytes: so it is counted what they lead to, before there is memory for it. */
static void what_elements_lead_to_has_a_limit(void **state)
{
    (void)state;
    enum { MANY = 1 << 18 };
    struct sfs_dataset *dataset;
    struct sfs_file *file = create(&line, 0, &dataset);
    struct selection selection = {.values = 3};
    const size_t all = (MANY + 3) * sizeof(int32_t);
    int32_t *elements = allocate(MANY * sizeof(*elements));
    struct sfs_sequence *read;
    char *bytes;
    size_t n;
    unsigned asked = 0;
    memset(elements, 1, MANY * sizeof(*elements));
    write_at(dataset, 0, elements, MANY);
    write_at(dataset, 2, elements, 3);
    assert_int_equal(runs_append(&selection.runs, 0, 3), 0);
    void *out = NULL;
    sfs_set_interrupt(count_asked, &asked);
    assert_int_equal(sequences_read_selected(dataset, &selection, all, NULL, &out), 0);
    assert_true(asked >= 2); /* once for the chunk, and for a MiB of bytes */
    sfs_set_interrupt(NULL, NULL);
    read = out;
    assert_int_equal(read[2].n, 3);
    assert_memory_equal(read[0].elements, elements, MANY * sizeof(*elements));
    free(out);
    assert_int_equal(sequences_read_selected(dataset, &selection, all - 1, NULL, &out), -EFBIG);
    assert_int_equal(sequences_read_selected(dataset, &selection, 0, NULL, &out), -EFBIG);
    assert_int_equal(sfs_read_parts(dataset, SFS_SEQUENCES, 0, 3, all, &bytes, &n), 0);
    assert_int_equal(n, all);
    free(bytes);
    assert_int_equal(sfs_read_parts(dataset, SFS_SEQUENCES, 0, 3, all - 1, &bytes, &n), -EFBIG);
    assert_int_equal(sfs_read_parts(dataset, SFS_LENGTHS, 0, 3, 23, &bytes, &n), -EFBIG);
    selection_free(&selection);
    free(elements);
    sfs_dataset_close(dataset);
    assert_int_equal(sfs_close(file), 0);
}

static void drop_line(int level, const char *said)
{
    (void)level;
    (void)said;
}

/* Many elements can be read in pieces where they are too much together. */
static void memory_of_what_elements_lead_to_is_counted(void **state)
{
    (void)state;
    enum { MANY = 1 << 18, ALL = 4 };
    const size_t size = MANY * sizeof(int32_t);
    struct sfs_dataset *dataset;
    struct sfs_file *file = create(&line, 0, &dataset);
    struct cache *cache = dataset->file->cache;
    struct selection all = {.values = ALL}, one = {.values = 1};
    int32_t *elements = allocate(size);
    size_t taken = 0, more = 0;
    void *out, *other;
    memset(elements, 1, size);
    for (uint64_t i = 0; i < ALL; i++)
        write_at(dataset, i, elements, MANY);
    assert_int_equal(runs_append(&all.runs, 0, ALL), 0);
    assert_int_equal(runs_append(&one.runs, 0, 1), 0);
    sfs_set_log(drop_line, LOG_ERR);
    cache_limit_chunks(cache, (ALL + 1) * size);
    assert_int_equal(sequences_read_selected(dataset, &all, SIZE_MAX, &taken, &out), -EFBIG);
    selection_memory_give_back(taken);
    assert_int_equal(sequences_read_selected(dataset, &all, SIZE_MAX, NULL, &out), 0);
    free(out);
    taken = 0;
    assert_int_equal(sequences_read_selected(dataset, &one, SIZE_MAX, &taken, &out), 0);
    assert_in_range(taken, size, 2 * size);
    selection_memory_give_back(taken);
    free(out);
    taken = 0;
    cache_limit_chunks(cache, 2 * ALL * size);
    assert_int_equal(sequences_read_selected(dataset, &all, SIZE_MAX, &taken, &out), 0);
    assert_in_range(taken, ALL * size, 2 * ALL * size);
    assert_int_equal(sequences_read_selected(dataset, &all, SIZE_MAX, &more, &other), -ENOMEM);
    selection_memory_give_back(more);
    selection_memory_give_back(taken);
    free(out);
    more = 0;
    assert_int_equal(sequences_read_selected(dataset, &all, SIZE_MAX, &more, &other), 0);
    const struct sfs_sequence *read = other;
    for (size_t i = 0; i < ALL; i++)
        assert_memory_equal(read[i].elements, elements, size);
    selection_memory_give_back(more);
    free(other);
    sfs_set_log(NULL, LOG_ERR);
    selection_free(&all);
    selection_free(&one);
    free(elements);
    sfs_dataset_close(dataset);
    assert_int_equal(sfs_close(file), 0);
}

TEST_MAIN(cmocka_unit_test(what_is_written_is_there),
          cmocka_unit_test(what_elements_lead_to_has_a_limit),
          cmocka_unit_test(memory_of_what_elements_lead_to_is_counted),
          cmocka_unit_test(what_the_prototype_has_written_is_written_over),
          cmocka_unit_test(what_is_flushed_stays), cmocka_unit_test(what_is_unfinished_is_left_out),
          cmocka_unit_test(a_damaged_chunk_is_not_written),
          cmocka_unit_test(absurd_lengths_are_refused),
          cmocka_unit_test(handles_do_what_they_do_in_libhdf5),
          cmocka_unit_test(strings_go_where_points_say),
          cmocka_unit_test(property_lists_give_the_filters_of_sections),
          cmocka_unit_test(what_is_not_used_is_counted), cmocka_unit_test(chunks_are_copied))
