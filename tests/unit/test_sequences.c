/* Elements of variable length of sparse datasets: what is written is there, in the cache and in the
 * file, whatever else is written, erased and cut off. */
#include "support.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

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
};

static const struct kind kinds[] = {
    {"str", 1, 1, {12}, {12}, {12}, {0}},                                    /* single chunk */
    {"vlen:<i4", 4, 1, {12}, {12}, {12}, {0, 0, DEFLATE}},                   /* the same, filtered */
    {"vlen:f8", 8, 2, {7, 9}, {SIDE, SIDE}, {4, 5}, {DEFLATE, SHUFFLE, 0}},  /* fixed array */
    {"str", 1, 2, {7, 9}, {SIDE, SFS_UNLIMITED}, {4, 5}, {0, FLETCHER32, FLETCHER32}},
    {"vlen:S3", 3, 3, {3, 5, 5}, {SFS_UNLIMITED, SIDE, SIDE}, {1, 5, 5}, {0}}, /* extensible array */
    {"str", 1, 2, {7, 9}, {SFS_UNLIMITED, SFS_UNLIMITED}, {4, 5}, {DEFLATE, DEFLATE, DEFLATE}},
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

static uint64_t elements_of(const struct sfs_slab *slab)
{
    uint64_t n = 1;
    for (int i = 0; i < slab->rank; i++)
        n *= slab->count[i];
    return n;
}

static struct sfs_slab random_slab(const struct model *model)
{
    struct sfs_slab slab = {.rank = model->kind->rank};
    for (int i = 0; i < slab.rank; i++) {
        slab.start[i] = random_below(model->dims[i] + 1);
        slab.count[i] = random_below(model->dims[i] - slab.start[i] + 1);
    }
    return slab;
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
    struct sfs_slab slab = random_slab(model);
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
    struct sfs_slab slab = random_slab(model);
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
    struct sfs_slab slab = random_slab(model);
    uint64_t n = elements_of(&slab);
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
        assert_int_equal(
            sfs_read_parts(dataset, SFS_SEQUENCES, 0, n, SIZE_MAX, &bytes, &bytes_n), 0);
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
    assert_int_equal(counted, defined);
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
    struct sfs_dataset_create create = {.rank = kind->rank};
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

TEST_MAIN(cmocka_unit_test(what_is_written_is_there))
