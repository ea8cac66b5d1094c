/* Sparse datasets through the public interface: what is written is read back, from this process and
 * from the file, whatever the index, the filters and the order of writing. */
#include "slab.h"

#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <syslog.h>
#include <unistd.h>

#include "common/result_limit.h"
#include "selection/selection.h"
#include "sparsefs/sparsefs.h"

#define PATH "sparse.h5"

/* A plain model of a dataset: all elements, and which are defined. */
struct model {
    int rank;
    uint64_t dims[SFS_MAX_RANK];
    uint64_t n;
    uint16_t *value;
    bool *defined;
};

static void model_init(struct model *model, int rank, const uint64_t *dims)
{
    model->rank = rank;
    model->n = 1;
    for (int i = 0; i < rank; i++)
        model->n *= model->dims[i] = dims[i];
    model->value = allocate(model->n * sizeof(*model->value));
    model->defined = allocate(model->n * sizeof(*model->defined));
    memset(model->defined, 0, model->n * sizeof(*model->defined));
}

static void model_free(struct model *model)
{
    free(model->value);
    free(model->defined);
}

#define FILL 7

static struct sfs_encoded uint16_type(void)
{
    static void *bytes;
    static size_t n;
    if (!bytes)
        assert_int_equal(sfs_type_encode("uint16", &bytes, &n), 0);
    return (struct sfs_encoded){bytes, n};
}

static struct sfs_slab random_slab(const struct model *model)
{
    struct sfs_slab slab = {.rank = model->rank};
    for (int i = 0; i < model->rank; i++) {
        slab.start[i] = random_below(model->dims[i]);
        slab.count[i] = 1 + random_below(model->dims[i] - slab.start[i]);
    }
    return slab;
}

/* The position in the dataset of the k-th element of a slab. */
static uint64_t position(const struct model *model, const struct sfs_slab *slab, uint64_t k)
{
    uint64_t result = 0, stride = 1;
    for (int i = model->rank - 1; i >= 0; i--) {
        result += (slab->start[i] + k % slab->count[i]) * stride;
        k /= slab->count[i];
        stride *= model->dims[i];
    }
    return result;
}

static void write_slab(struct sfs_dataset *dataset, struct model *model)
{
    struct sfs_slab slab = random_slab(model);
    uint64_t n = elements_of(&slab);
    uint16_t *values = allocate(n * sizeof(*values));
    for (uint64_t k = 0; k < n; k++) {
        uint64_t at = position(model, &slab, k);
        values[k] = model->value[at] = (uint16_t)random_below(9);
        model->defined[at] = true;
    }
    assert_int_equal(sfs_write(dataset, &slab, values), 0);
    free(values);
}

static void write_some(struct sfs_dataset *dataset, struct model *model)
{
    struct sfs_slab slab = random_slab(model);
    uint64_t n = elements_of(&slab);
    uint16_t *values = allocate(n * sizeof(*values));
    struct sfs_interval *interval = allocate((n + 1) * sizeof(*interval));
    struct sfs_defined defined = {.interval = interval};
    for (uint64_t k = random_below(3); k < n;) {
        uint64_t length = 1 + random_below(4);
        interval[defined.n++] = (struct sfs_interval){k, defined.elements};
        for (; length > 0 && k < n; length--, k++) {
            uint64_t at = position(model, &slab, k);
            values[defined.elements++] = model->value[at] = (uint16_t)random_below(60000);
            model->defined[at] = true;
        }
        k += 1 + random_below(12);
    }
    interval[defined.n] = (struct sfs_interval){0, defined.elements};
    assert_int_equal(sfs_write_values(dataset, &slab, &defined, values), 0);
    free(values);
    free(interval);
}

static void erase_slab(struct sfs_dataset *dataset, struct model *model)
{
    struct sfs_slab slab = random_slab(model);
    for (uint64_t k = 0; k < elements_of(&slab); k++)
        model->defined[position(model, &slab, k)] = false;
    assert_int_equal(sfs_erase(dataset, &slab), 0);
}

/* The selection of what is defined, in a dataspace of the axes behind the first ones of one
 * element.
 */
static void check_encoded(struct sfs_dataset *dataset, const struct sfs_slab *slab,
                          const struct sfs_defined *defined)
{
    int outer = 0;
    while (outer < slab->rank - 1 && slab->count[outer] == 1)
        outer++;
    void *encoded;
    size_t n;
    struct selection selection;
    const char *why = "";
    assert_int_equal(sfs_encode_defined(dataset, slab, slab->rank - outer, &encoded, &n), 0);
    assert_int_equal(selection_decode(&(struct sfs_encoded){encoded, n}, slab->rank - outer,
                                      slab->count + outer, SIZE_MAX, &selection, &why),
                     0);
    assert_int_equal(selection.runs.elements, defined->elements);
    assert_int_equal(selection.runs.n, defined->n);
    if (defined->n > 0)
        assert_memory_equal(selection.runs.entries, defined->interval,
                            defined->n * sizeof(*defined->interval));
    selection_free(&selection);
    free(encoded);
}

static void check_slab(struct sfs_dataset *dataset, const struct model *model,
                       const struct sfs_slab *slab)
{
    uint64_t n = elements_of(slab), counted, k = 0;
    uint16_t *values = allocate(n * sizeof(*values));
    struct sfs_defined defined;
    assert_int_equal(sfs_read(dataset, slab, 0, values, n * sizeof(*values)), 0);
    assert_int_equal(sfs_get_defined(dataset, slab, &defined), 0);
    for (size_t i = 0; i < defined.n; i++) {
        uint64_t length = defined.interval[i + 1].index - defined.interval[i].index;
        for (; k < defined.interval[i].first; k++)
            assert_false(model->defined[position(model, slab, k)]);
        for (uint64_t end = k + length; k < end; k++)
            assert_true(model->defined[position(model, slab, k)]);
    }
    for (; k < n; k++)
        assert_false(model->defined[position(model, slab, k)]);
    for (k = 0; k < n; k++) {
        uint64_t at = position(model, slab, k);
        assert_int_equal(values[k], model->defined[at] ? model->value[at] : FILL);
    }
    assert_int_equal(sfs_count_defined(dataset, slab, &counted), 0);
    assert_int_equal(counted, defined.elements);
    uint16_t *packed = allocate((defined.elements + 1) * sizeof(*packed));
    uint64_t first = random_below(defined.elements + 1);
    assert_int_equal(
        sfs_read_values(dataset, slab, &defined, first, defined.elements - first, packed), 0);
    uint64_t index = 0;
    for (k = 0; k < n; k++)
        if (model->defined[position(model, slab, k)] && index++ >= first)
            assert_int_equal(packed[index - 1 - first], values[k]);
    free(packed);
    free(values);
    check_encoded(dataset, slab, &defined);
    sfs_defined_free(&defined);
}

static void check_all(struct sfs_dataset *dataset, const struct model *model)
{
    struct sfs_slab all = {.rank = model->rank};
    memcpy(all.count, model->dims, sizeof(all.count));
    check_slab(dataset, model, &all);
    for (int i = 0; i < 5; i++) {
        struct sfs_slab slab = random_slab(model);
        check_slab(dataset, model, &slab);
    }
    all.start[0] = random_below(model->dims[0]); /* as a mount reads it */
    all.count[0] = 1;
    check_slab(dataset, model, &all);
}

static struct sfs_file *open_again(struct sfs_file *file, struct sfs_dataset **dataset,
                                   bool writable, size_t cache_size)
{
    struct sfs_options options = {.writable = writable, .cache_size = cache_size};
    uint64_t address;
    sfs_dataset_close(*dataset);
    assert_int_equal(sfs_close(file), 0);
    assert_int_equal(sfs_open(PATH, &options, &file), 0);
    assert_int_equal(sfs_find(file, sfs_root(file), "/group/sparse", &address), 0);
    assert_int_equal(sfs_dataset_open(file, address, "/group/sparse", dataset), 0);
    return file;
}

struct kind {
    int rank;
    uint64_t dims[3], max_dims[3], chunk_dims[3];
};

static const struct kind kinds[] = {
    {1, {50}, {50}, {50}},                                  /* single chunk */
    {2, {30, 40}, {30, 40}, {8, 16}},                       /* fixed array */
    {3, {9, 20, 31}, {SFS_UNLIMITED, 20, 31}, {1, 20, 31}}, /* frames */
    {3, {9, 20, 31}, {SFS_UNLIMITED, 20, 31}, {2, 7, 8}},   /* tiles */
    {3, {9, 24, 31}, {SFS_UNLIMITED, 24, 31}, {1, 8, 31}},  /* bands of frames */
    {2, {30, 40}, {30, SFS_UNLIMITED}, {7, 8}},             /* not the first axis */
    {2, {50, 60}, {SFS_UNLIMITED, SFS_UNLIMITED}, {7, 9}},  /* B-tree */
    {3, {4, 5, 6}, {4, 5, 6}, {1, 1, 1}},                   /* chunks of one element */
};

static const unsigned four = 4, two = 2, one = 1, eight = 8;
static const struct sfs_filter deflate = {.id = 1, .n_values = 1, .values = &four};
static const struct sfs_filter shuffled[] = {
    {.id = 2, .n_values = 1, .values = &two}, {.id = 1, .n_values = 1, .values = &one}, {.id = 3}};
static const struct sfs_filter selection_filters[] = {{.id = 2, .n_values = 1, .values = &eight},
                                                      {.id = 1, .n_values = 1, .values = &four}};

static void set_filters(struct sfs_dataset_create *create, int which)
{
    if (which & 1) {
        create->n_filters[0] = 2;
        create->filters[0] = selection_filters;
    }
    if (which & 2) {
        create->n_filters[1] = 3;
        create->filters[1] = shuffled;
    }
    if (which & 4) {
        create->n_filters[1] = 1;
        create->filters[1] = &deflate;
    }
    create->version_1_selections = which & 8;
}

static struct sfs_file *create(const struct kind *kind, int filters, size_t cache_size,
                               struct sfs_dataset **dataset)
{
    uint16_t fill = FILL;
    struct sfs_options options = {.replace = true, .cache_size = cache_size};
    struct sfs_dataset_create create = {.rank = kind->rank, .type = uint16_type(), .fill = &fill};
    struct sfs_file *file;
    memcpy(create.dims, kind->dims, sizeof(kind->dims));
    memcpy(create.max_dims, kind->max_dims, sizeof(kind->max_dims));
    memcpy(create.chunk_dims, kind->chunk_dims, sizeof(kind->chunk_dims));
    set_filters(&create, filters);
    assert_int_equal(sfs_create(PATH, &options, &file), 0);
    assert_int_equal(sfs_dataset_create(file, "/group/sparse", &create, dataset), 0);
    return file;
}

static void what_is_written_is_read_back(void **state)
{
    (void)state;
    for (size_t k = 0; k < sizeof(kinds) / sizeof(*kinds); k++) {
        for (int filters = 0; filters < 16; filters++) {
            struct model model;
            struct sfs_dataset *dataset;
            size_t cache_size = random_below(2) ? 0 : 20000;
            struct sfs_file *file = create(&kinds[k], filters, cache_size, &dataset);
            model_init(&model, kinds[k].rank, kinds[k].dims);
            check_all(dataset, &model);
            for (int round = 0; round < 12; round++) {
                switch (random_below(5)) {
                case 0:
                    write_slab(dataset, &model);
                    break;
                case 1:
                    erase_slab(dataset, &model);
                    break;
                case 2:
                    assert_int_equal(sfs_flush(file), 0);
                    break;
                case 3:
                    file = open_again(file, &dataset, true, cache_size);
                    break;
                default:
                    write_some(dataset, &model);
                }
                check_all(dataset, &model);
            }
            file = open_again(file, &dataset, false, 0);
            check_all(dataset, &model);
            sfs_dataset_close(dataset);
            assert_int_equal(sfs_close(file), 0);
            model_free(&model);
        }
    }
}

/* With several chunks in each frame. */
static const struct sfs_slab frame_of_bands = {.rank = 3, .count = {1, 24, 31}};

static struct sfs_file *create_bands(struct sfs_dataset **dataset, struct model *model)
{
    static const struct kind bands = {3, {2, 24, 31}, {2, 24, 31}, {1, 8, 31}};
    struct sfs_file *file = create(&bands, 0, 0, dataset);
    model_init(model, bands.rank, bands.dims);
    for (int i = 0; i < 40; i++)
        write_some(*dataset, model);
    assert_int_equal(sfs_flush(file), 0);
    return file;
}

static atomic_uint lines;

static void count_line(int level, const char *line)
{
    (void)level;
    (void)line;
    atomic_fetch_add(&lines, 1);
}

/* Several threads decode the chunks of a frame; of one that is damaged one line tells. */
static void damage_is_told_once(void **state)
{
    (void)state;
    struct sfs_dataset *dataset;
    struct sfs_chunk_info info;
    struct sfs_defined defined;
    struct model model;
    void *encoded;
    size_t n;
    struct sfs_file *file = create_bands(&dataset, &model);
    const uint64_t middle[] = {0, 8, 0};
    assert_int_equal(sfs_chunk_info(dataset, middle, &info), 0);
    int fd = open(PATH, O_RDWR);
    assert_int_equal(pwrite(fd, "damaged", 7, (off_t)info.address + 20), 7);
    close(fd);
    for (int i = 0; i < 2; i++) {
        file = open_again(file, &dataset, false, 0);
        sfs_set_log(count_line, LOG_ERR);
        atomic_store(&lines, 0);
        assert_int_equal(i ? sfs_get_defined(dataset, &frame_of_bands, &defined)
                           : sfs_encode_defined(dataset, &frame_of_bands, 2, &encoded, &n),
                         -EIO);
        assert_int_equal(atomic_load(&lines), 1);
        sfs_set_log(NULL, LOG_ERR);
    }
    sfs_dataset_close(dataset);
    assert_int_equal(sfs_close(file), 0);
    model_free(&model);
}

struct asked {
    size_t bytes[3];
    size_t n;
};

static bool note_asked(void *context, size_t n)
{
    struct asked *asked = context;
    assert_true(asked->n < 3);
    asked->bytes[asked->n++] = n;
    return true;
}

/* What bands of a frame would take is given back before its runs are found: of chunks that were changed the index does
 * not know how much of them is defined. */
static void what_was_not_encoded_takes_nothing(void **state)
{
    (void)state;
    struct sfs_dataset *dataset;
    struct sfs_defined defined;
    struct asked asked = {0};
    struct model model;
    void *encoded;
    size_t n;
    struct sfs_file *file = create_bands(&dataset, &model);
    assert_int_equal(sfs_erase(dataset, &(struct sfs_slab){3, {0, 0, 0}, {1, 2, 31}}), 0);
    result_limit_begin(note_asked, &asked);
    assert_int_equal(sfs_encode_defined(dataset, &frame_of_bands, 2, &encoded, &n), 0);
    result_limit_end();
    assert_int_equal(asked.n, 3);
    assert_int_equal(asked.bytes[1], 0);
    assert_true(asked.bytes[0] > asked.bytes[2] && asked.bytes[2] >= n);
    free(encoded);
    assert_int_equal(sfs_get_defined(dataset, &frame_of_bands, &defined), 0);
    check_encoded(dataset, &frame_of_bands, &defined);
    sfs_defined_free(&defined);
    sfs_dataset_close(dataset);
    assert_int_equal(sfs_close(file), 0);
    model_free(&model);
}

TEST_MAIN(cmocka_unit_test(what_is_written_is_read_back), cmocka_unit_test(damage_is_told_once),
          cmocka_unit_test(what_was_not_encoded_takes_nothing))
