/* Several datasets in one call, reads that leave no trace, eviction, and how much of a file is read
 * for what is wanted: all told by counters, never by times. */
#include "opened.h"

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "sparsefs/sparsefs.h"

#define KIB ((uint64_t)1 << 10)
#define MIB ((uint64_t)1 << 20)

#define ROWS     60
#define COLUMNS  50
#define ELEMENTS (ROWS * COLUMNS)

static const unsigned level = 3;
static const struct sfs_filter deflate = {.id = 1, .n_values = 1, .values = &level};

struct shape {
    int rank;
    uint64_t dims[2], chunk_dims[2];
    bool is_dense, filtered;
};

static struct sfs_dataset *add(struct sfs_file *file, const char *path, const struct shape *shape)
{
    struct sfs_dataset *dataset = NULL;
    struct sfs_dataset_create create = {.rank = shape->rank, .is_dense = shape->is_dense};
    void *type = NULL;
    memcpy(create.dims, shape->dims, sizeof(shape->dims));
    memcpy(create.max_dims, shape->dims, sizeof(shape->dims));
    memcpy(create.chunk_dims, shape->chunk_dims, sizeof(shape->chunk_dims));
    create.n_filters[1] = shape->filtered;
    create.filters[1] = &deflate;
    assert_int_equal(sfs_type_encode("<u4", &type, &create.type.n), 0);
    create.type.bytes = type;
    assert_int_equal(sfs_dataset_create(file, path, &create, &dataset), 0);
    free(type);
    return dataset;
}

static struct sfs_file *create_file(size_t cache_size)
{
    struct sfs_options options = {.replace = true, .cache_size = cache_size, .workers = 2};
    struct sfs_file *file = NULL;
    log_quietly();
    assert_int_equal(sfs_create("many.h5", &options, &file), 0);
    return file;
}

static struct sfs_file *open_file(size_t cache_size, bool writable)
{
    struct sfs_options options = {.cache_size = cache_size, .writable = writable, .workers = 2};
    struct sfs_file *file = NULL;
    assert_int_equal(sfs_open("many.h5", &options, &file), 0);
    return file;
}

static struct sfs_statistics counters(struct sfs_file *file)
{
    struct sfs_statistics statistics;
    sfs_statistics(file, &statistics);
    return statistics;
}

/* ---- A model of several datasets ---- */

static const struct shape shapes[] = {
    {2, {ROWS, COLUMNS}, {7, 9}, false, true},   {2, {ROWS, COLUMNS}, {60, 10}, false, false},
    {2, {ROWS, COLUMNS}, {16, 16}, true, true},  {2, {ROWS, COLUMNS}, {10, 50}, true, false},
    {2, {ROWS, COLUMNS}, {60, 50}, false, true}, {2, {ROWS, COLUMNS}, {1, 50}, true, false},
};
#define DATASETS COUNT(shapes)
#define MOST     12 /* transfers in one call */

struct model {
    struct sfs_file *file;
    struct sfs_dataset *datasets[DATASETS];
    uint32_t elements[DATASETS][ELEMENTS];
};

static const char *path_of(size_t i)
{
    static char path[8];
    snprintf(path, sizeof(path), "/d%zu", i);
    return path;
}

static struct sfs_slab random_slab(void)
{
    struct sfs_slab slab = {.rank = 2};
    const uint64_t dims[] = {ROWS, COLUMNS};
    for (int i = 0; i < 2; i++) {
        slab.count[i] = random_between(0, dims[i]);
        slab.start[i] = random_below(dims[i] - slab.count[i] + 1);
    }
    return slab;
}

/* Copies a slab of a model to packed elements, or back. */
static void copy_slab(uint32_t *elements, const struct sfs_slab *slab, uint32_t *packed,
                      bool to_packed)
{
    for (uint64_t i = 0; i < slab->count[0]; i++) {
        uint32_t *row = elements + (slab->start[0] + i) * COLUMNS + slab->start[1];
        uint32_t *there = packed + i * slab->count[1];
        memcpy(to_packed ? there : row, to_packed ? row : there, slab->count[1] * sizeof(*row));
    }
}

struct batch {
    size_t n, which[MOST];
    struct sfs_io io[MOST];
    struct sfs_slab slab[MOST];
    uint32_t *packed[MOST];
};

/* Slabs, and now and then all of a dataset as a selection. */
static void fill_batch(struct batch *batch, struct model *model)
{
    batch->n = random_between(1, MOST);
    for (size_t i = 0; i < batch->n; i++) {
        size_t k = random_below(DATASETS);
        bool all = random_below(5) == 0;
        batch->slab[i] = all ? (struct sfs_slab){2, {0}, {ROWS, COLUMNS}} : random_slab();
        batch->which[i] = k;
        batch->packed[i] = allocate(batch->slab[i].count[0] * batch->slab[i].count[1] * 4);
        batch->io[i] = (struct sfs_io){.dataset = model->datasets[k],
                                       .slab = all ? NULL : &batch->slab[i],
                                       .to = batch->packed[i],
                                       .flags = random_below(3) == 0 ? SFS_SKIP_CACHE : 0};
    }
}

static void write_batch(struct model *model)
{
    struct batch batch;
    fill_batch(&batch, model);
    for (size_t i = 0; i < batch.n; i++) {
        uint64_t n = batch.slab[i].count[0] * batch.slab[i].count[1];
        for (uint64_t k = 0; k < n; k++)
            batch.packed[i][k] = (uint32_t)random_next();
        copy_slab(model->elements[batch.which[i]], &batch.slab[i], batch.packed[i], false);
    }
    assert_int_equal(sfs_write_many(batch.io, batch.n), 0);
    for (size_t i = 0; i < batch.n; i++)
        free(batch.packed[i]);
}

static void read_batch(struct model *model)
{
    struct batch batch;
    uint32_t expected[ELEMENTS];
    fill_batch(&batch, model);
    assert_int_equal(sfs_read_many(batch.io, batch.n), 0);
    for (size_t i = 0; i < batch.n; i++) {
        const struct sfs_slab *slab = &batch.slab[i];
        copy_slab(model->elements[batch.which[i]], slab, expected, true);
        assert_memory_equal(expected, batch.packed[i], slab->count[0] * slab->count[1] * 4);
        free(batch.packed[i]);
    }
}

static void open_model(struct model *model, size_t cache_size)
{
    model->file = open_file(cache_size, true);
    for (size_t i = 0; i < DATASETS; i++)
        model->datasets[i] = open_dataset(model->file, path_of(i));
}

static void close_model(struct model *model)
{
    for (size_t i = 0; i < DATASETS; i++)
        sfs_dataset_close(model->datasets[i]);
    assert_int_equal(sfs_close(model->file), 0);
}

static void several_datasets_are_as_a_model_of_them(void **state)
{
    (void)state;
    for (int round = 0; round < 6; round++) {
        size_t cache_size = (const size_t[]){8 * MIB, 20000, 40000}[round % 3];
        struct model model = {.file = create_file(cache_size)};
        for (size_t i = 0; i < DATASETS; i++)
            model.datasets[i] = add(model.file, path_of(i), &shapes[i]);
        for (int step = 0; step < 60; step++) {
            write_batch(&model);
            if (random_below(4) == 0)
                assert_int_equal(
                    sfs_flush_dataset(model.datasets[random_below(DATASETS)], random_below(2)), 0);
            if (random_below(20) == 0) {
                close_model(&model);
                open_model(&model, cache_size);
            }
            read_batch(&model);
        }
        close_model(&model);
    }
}

/* ---- What is refused ---- */

static void what_is_refused_changes_nothing(void **state)
{
    (void)state;
    struct sfs_file *file = create_file(0), *other = NULL;
    struct sfs_dataset *a = add(file, "/a", &shapes[0]), *b = add(file, "/b", &shapes[3]);
    const struct shape vast = {1, {(uint64_t)1 << 34}, {1}, false, false};
    struct sfs_dataset *large = add(file, "/large", &vast);
    struct sfs_options options = {.replace = true};
    assert_int_equal(sfs_create("other.h5", &options, &other), 0);
    struct sfs_dataset *foreign = add(other, "/a", &shapes[0]);
    const struct sfs_slab one = {2, {3, 4}, {1, 1}}, outside = {2, {ROWS, 0}, {1, 1}},
                          far = {1, {((uint64_t)1 << 34) - 1}, {1}};
    struct sfs_encoded text = {0}, number = {0};
    assert_int_equal(sfs_type_encode("S10", (void **)&text.bytes, &text.n), 0);
    assert_int_equal(sfs_type_encode("<u4", (void **)&number.bytes, &number.n), 0);
    uint32_t value = 7, *all = allocate(ELEMENTS * 16);
    memset(all, 0, ELEMENTS * 16);

    const struct {
        struct sfs_io io;
        int written, read;
    } wrong[] = {
        {{.dataset = b, .slab = &outside, .to = all}, -EINVAL, -EINVAL},
        {{.dataset = b, .slab = &one, .to = all, .flags = 2}, -EINVAL, -EINVAL},
        {{.dataset = b, .slab = &one, .type = &number, .to = all}, -EINVAL, -EINVAL},
        {{.dataset = foreign, .slab = &one, .to = all}, -EINVAL, -EINVAL},
        {{.dataset = b, .type = &text, .to = all}, -EOPNOTSUPP, -EOPNOTSUPP},
        {{.dataset = a, .type = &text, .to = all}, -EOPNOTSUPP, -EOPNOTSUPP},
        {{.dataset = large, .slab = &far, .to = all}, -EFBIG, 0},
    };
    for (size_t i = 0; i < COUNT(wrong); i++) {
        struct sfs_io list[] = {{.dataset = a, .slab = &one, .to = &value}, wrong[i].io};
        uint64_t defined = 1;
        uint32_t there = 99;
        value = 7;
        assert_int_equal(sfs_write_many(list, 2), wrong[i].written);
        assert_int_equal(sfs_count_defined(a, &one, &defined), 0);
        assert_int_equal(defined, 0);
        list[0].to = &there;
        assert_int_equal(sfs_read_many(list, 2), wrong[i].read);
        assert_int_equal(there, wrong[i].read ? 99 : 0);
    }
    assert_int_equal(sfs_write_many(NULL, 0), 0);
    assert_int_equal(sfs_read_many(NULL, 0), 0);
    sfs_dataset_close(foreign);
    sfs_close(other);
    sfs_dataset_close(large);
    sfs_dataset_close(b);
    sfs_dataset_close(a);
    assert_int_equal(sfs_close(file), 0);
    file = open_file(0, false);
    a = open_dataset(file, "/a");
    assert_int_equal(sfs_write_many(&(struct sfs_io){.dataset = a, .slab = &one, .to = &value}, 1),
                     -EROFS);
    sfs_dataset_close(a);
    sfs_close(file);
    free(all);
    free((void *)text.bytes);
    free((void *)number.bytes);
}

/* ---- What the cache keeps ---- */

/* Two datasets of 32 chunks of 4 KiB, of which each element is its position. */
static void make_two(bool is_dense, bool filtered)
{
    const struct shape shape = {1, {32 * KIB}, {KIB}, is_dense, filtered};
    struct sfs_file *file = create_file(0);
    struct sfs_dataset *a = add(file, "/a", &shape), *b = add(file, "/b", &shape);
    const struct sfs_slab all = {1, {0}, {32 * KIB}};
    uint32_t *elements = allocate(32 * KIB * 4);
    for (uint32_t i = 0; i < 32 * KIB; i++)
        elements[i] = i;
    assert_int_equal(sfs_write(a, &all, elements), 0);
    assert_int_equal(sfs_flush_dataset(a, false), 0);
    assert_int_equal(sfs_write(b, &all, elements), 0);
    free(elements);
    sfs_dataset_close(a);
    sfs_dataset_close(b);
    assert_int_equal(sfs_close(file), 0);
}

static void check_positions(const uint32_t *elements, uint64_t first, uint64_t n)
{
    for (uint64_t i = 0; i < n; i++)
        assert_int_equal(elements[i], first + i);
}

static void chunks_beside_each_other_are_read_at_once(void **state)
{
    (void)state;
    for (int kind = 0; kind < 3; kind++) {
        make_two(kind > 0, kind == 2);
        struct sfs_file *file = open_file(0, false);
        struct sfs_dataset *a = open_dataset(file, "/a"), *b = open_dataset(file, "/b");
        const struct sfs_slab all = {1, {0}, {32 * KIB}};
        uint32_t *elements[] = {allocate(32 * KIB * 4), allocate(32 * KIB * 4)};
        const struct sfs_io list[] = {
            {.dataset = a, .slab = &all, .to = elements[0], .flags = SFS_SKIP_CACHE},
            {.dataset = b, .slab = &all, .to = elements[1], .flags = SFS_SKIP_CACHE}};
        assert_int_equal(sfs_read_many(list, 2), 0); /* and the indexes have been read */
        uint64_t before = counters(file).store_reads;
        assert_int_equal(sfs_read_many(list, 2), 0);
        assert_in_range(counters(file).store_reads - before, 8, 16);
        for (int i = 0; i < 2; i++)
            check_positions(elements[i], 0, 32 * KIB);
        free(elements[0]);
        free(elements[1]);
        sfs_dataset_close(a);
        sfs_dataset_close(b);
        sfs_close(file);
    }
}

/* Chunks that are too large to be loaded together, or only all but one of them. */
static void chunks_are_decoded_once_also_without_memory(void **state)
{
    (void)state;
    make_two(false, true);
    for (size_t limit = 16 * KIB; limit <= 256 * KIB; limit += 8 * KIB) {
        struct sfs_file *file = open_file(limit, false);
        struct sfs_dataset *a = open_dataset(file, "/a");
        const struct sfs_slab all = {1, {0}, {32 * KIB}};
        uint32_t *elements = allocate(32 * KIB * 4);
        struct sfs_io skip = {.dataset = a, .slab = &all, .to = elements, .flags = SFS_SKIP_CACHE};
        assert_int_equal(sfs_read_many(&skip, 1), 0);
        check_positions(elements, 0, 32 * KIB);
        assert_int_equal(counters(file).chunks_decoded, 32);
        free(elements);
        sfs_dataset_close(a);
        sfs_close(file);
    }
}

static void a_read_that_skips_the_cache_leaves_no_trace(void **state)
{
    (void)state;
    for (int kind = 0; kind < 4; kind++) {
        make_two(kind & 1, kind & 2);
        struct sfs_file *file = open_file(0, false);
        struct sfs_dataset *a = open_dataset(file, "/a");
        const struct sfs_slab one = {1, {5 * KIB + 3}, {4}}, all = {1, {0}, {32 * KIB}};
        uint32_t *elements = allocate(32 * KIB * 4);
        assert_int_equal(sfs_read(a, &one, 0, elements, 16), 0);
        uint64_t kept = counters(file).cache_chunks, decoded = counters(file).chunks_decoded;
        assert_true(kept >= 1);
        struct sfs_io skip = {.dataset = a, .slab = &all, .to = elements, .flags = SFS_SKIP_CACHE};
        for (int i = 0; i < 3; i++) {
            assert_int_equal(sfs_read_many(&skip, 1), 0);
            check_positions(elements, 0, 32 * KIB);
            assert_int_equal(counters(file).cache_chunks, kept);
        }
        assert_int_equal(counters(file).chunks_decoded, decoded + 3 * (32 - kept));
        skip.slab = NULL; /* by a selection */
        assert_int_equal(sfs_read_many(&skip, 1), 0);
        check_positions(elements, 0, 32 * KIB);
        assert_int_equal(counters(file).cache_chunks, kept);
        skip.flags = 0;
        assert_int_equal(sfs_read_many(&skip, 1), 0);
        assert_int_equal(counters(file).cache_chunks, 32);
        free(elements);
        sfs_dataset_close(a);
        sfs_close(file);
    }
}

static void one_dataset_is_flushed_and_evicted(void **state)
{
    (void)state;
    make_two(false, true);
    struct sfs_file *file = open_file(0, true);
    struct sfs_dataset *a = open_dataset(file, "/a"), *b = open_dataset(file, "/b");
    const struct sfs_slab some = {1, {0}, {4 * KIB}};
    uint32_t *elements = allocate(4 * KIB * 4);
    for (uint32_t i = 0; i < 4 * KIB; i++)
        elements[i] = i + 9;
    assert_int_equal(sfs_write(a, &some, elements), 0);
    assert_int_equal(sfs_write(b, &some, elements), 0);
    assert_int_equal(counters(file).cache_chunks, 8);
    assert_int_equal(sfs_flush_dataset(a, false), 0);
    assert_int_equal(counters(file).cache_chunks, 8);
    assert_int_equal(counters(file).chunks_encoded, 4);
    assert_in_range(counters(file).cache_bytes_used, 8 * 4 * KIB, counters(file).cache_bytes);
    uint64_t used = counters(file).cache_bytes_used;
    assert_int_equal(sfs_flush_dataset(a, true), 0);
    assert_int_equal(counters(file).cache_chunks, 4);
    assert_in_range(counters(file).cache_bytes_used, 4 * 4 * KIB, used / 2);
    assert_true(counters(file).cache_dirty_bytes > 0);
    memset(elements, 0, 4 * KIB * 4);
    assert_int_equal(sfs_read(a, &some, 0, elements, 4 * KIB * 4), 0);
    check_positions(elements, 9, 4 * KIB);
    free(elements);
    sfs_dataset_close(a);
    sfs_dataset_close(b);
    assert_int_equal(sfs_close(file), 0);
    file = open_file(0, false); /* also where nothing can be written */
    a = open_dataset(file, "/a");
    uint32_t value;
    assert_int_equal(sfs_read(a, &some, 0, &value, 4), 0);
    assert_int_equal(sfs_flush_dataset(a, true), 0);
    assert_int_equal(counters(file).cache_chunks, 0);
    sfs_dataset_close(a);
    sfs_close(file);
}

/* ---- What is read of large chunks that are stored as they are ---- */

#define WIDE 2048 /* elements of a row; a chunk is WIDE / 2 rows of them: 8 MiB */

static const struct shape wide = {2, {WIDE, WIDE}, {WIDE / 2, WIDE}, false, false};

static uint32_t value_at(uint64_t row, uint64_t column)
{
    return (uint32_t)(row * WIDE + column + 1);
}

/* Rows of which every other 8 elements are defined, or all. */
static void write_wide(struct sfs_dataset *dataset, uint64_t row, bool all)
{
    uint32_t elements[WIDE];
    for (uint64_t i = 0; i < WIDE; i++)
        elements[i] = value_at(row, i);
    for (uint64_t i = 0; i < WIDE; i += all ? WIDE : 16) {
        const struct sfs_slab slab = {2, {row, i}, {1, all ? WIDE : 8}};
        assert_int_equal(sfs_write(dataset, &slab, elements + i), 0);
    }
}

static bool is_defined(uint64_t row, uint64_t column)
{
    return row % 2 || column % 16 < 8;
}

static void make_wide(void)
{
    struct sfs_file *file = create_file(0);
    struct sfs_dataset *dataset = add(file, "/wide", &wide);
    for (uint64_t row = 0; row < WIDE; row++)
        write_wide(dataset, row, row % 2);
    sfs_dataset_close(dataset);
    assert_int_equal(sfs_close(file), 0);
}

static void check_wide(struct sfs_dataset *dataset, const struct sfs_slab *slab)
{
    size_t n = slab->count[0] * slab->count[1];
    uint32_t *elements = allocate(n * 4);
    assert_int_equal(sfs_read(dataset, slab, 0, elements, n * 4), 0);
    for (size_t i = 0; i < n; i++) {
        uint64_t row = slab->start[0] + i / slab->count[1],
                 column = slab->start[1] + i % slab->count[1];
        assert_int_equal(elements[i], is_defined(row, column) ? value_at(row, column) : 0);
    }
    free(elements);
}

static void only_what_is_wanted_is_read(void **state)
{
    (void)state;
    make_wide();
    struct sfs_file *file = open_file(64 * MIB, false);
    struct sfs_dataset *dataset = open_dataset(file, "/wide");
    check_wide(dataset, &(struct sfs_slab){2, {3, 5}, {1, 1}}); /* and the selection */
    uint64_t selection = counters(file).store_bytes_read;
    assert_in_range(selection, 1, 3 * MIB);
    check_wide(dataset, &(struct sfs_slab){2, {3, 6}, {1, 1}});
    assert_int_equal(counters(file).store_bytes_read, selection + 4);
    check_wide(dataset, &(struct sfs_slab){2, {7, 0}, {1, WIDE}});
    assert_int_equal(counters(file).store_bytes_read, selection + 4 + WIDE * 4);
    uint64_t before = counters(file).store_reads; /* 810 pieces, less than a page apart */
    check_wide(dataset, &(struct sfs_slab){2, {100, 512}, {20, 1280}});
    assert_in_range(counters(file).store_reads - before, 1, 16);
    struct sfs_slab undefined = {2, {4, 8}, {1, 8}};
    before = counters(file).store_bytes_read;
    check_wide(dataset, &undefined);
    assert_int_equal(counters(file).store_bytes_read, before);
    sfs_dataset_close(dataset);
    sfs_close(file);
}

static void parts_are_right_while_the_chunk_changes(void **state)
{
    (void)state;
    make_wide();
    struct sfs_file *file = open_file(12 * MIB, true);
    struct sfs_dataset *dataset = open_dataset(file, "/wide");
    for (int i = 0; i < 120; i++) {
        struct sfs_slab slab = {2,
                                {random_below(WIDE - 40), random_below(WIDE - 300)},
                                {random_between(1, 40), random_between(1, 300)}};
        check_wide(dataset, &slab);
        if (i % 10 == 3)
            write_wide(dataset, random_below(WIDE / 2) * 2, false);
        if (i % 10 == 7)
            assert_int_equal(i % 20 == 7 ? sfs_flush(file) : sfs_flush_dataset(dataset, true), 0);
    }
    sfs_dataset_close(dataset);
    assert_int_equal(sfs_close(file), 0);
}

struct reader {
    pthread_t thread;
    struct sfs_dataset *dataset;
    atomic_bool *ends;
    uint64_t seed;
    unsigned wrong, reads;
};

static void *read_parts(void *argument)
{
    struct reader *reader = argument;
    uint32_t elements[4 * 600];
    random_seed(reader->seed);
    while (!atomic_load(reader->ends) || reader->reads < 20) {
        const struct sfs_slab slab = {
            2, {random_below(WIDE - 4), random_below(WIDE - 600)}, {4, 600}};
        if (sfs_read(reader->dataset, &slab, 0, elements, sizeof(elements)) < 0)
            reader->wrong++;
        for (uint64_t i = 0; i < 4 * 600; i++) {
            uint64_t row = slab.start[0] + i / 600, column = slab.start[1] + i % 600;
            uint32_t expected = is_defined(row, column) ? value_at(row, column) : 0;
            reader->wrong += elements[i] != expected;
        }
        reader->reads++;
    }
    return NULL;
}

/* The chunks are stored in other places again and again, and their old ones used for others. */
static void parts_are_right_while_others_write(void **state)
{
    (void)state;
    make_wide();
    struct sfs_file *file = open_file(40 * MIB, true);
    struct sfs_dataset *dataset = open_dataset(file, "/wide");
    atomic_bool ends = false;
    struct reader readers[3];
    for (size_t i = 0; i < COUNT(readers); i++) {
        readers[i] = (struct reader){.dataset = dataset, .ends = &ends, .seed = random_next()};
        start_thread(&readers[i].thread, read_parts, &readers[i]);
    }
    for (int i = 0; i < 12; i++) {
        write_wide(dataset, random_below(WIDE / 2) * 2, false);
        assert_int_equal(sfs_flush(file), 0);
        assert_int_equal(sfs_flush_dataset(dataset, true), 0);
    }
    atomic_store(&ends, true);
    for (size_t i = 0; i < COUNT(readers); i++) {
        pthread_join(readers[i].thread, NULL);
        assert_int_equal(readers[i].wrong, 0);
    }
    sfs_dataset_close(dataset);
    assert_int_equal(sfs_close(file), 0);
}

TEST_MAIN(cmocka_unit_test(several_datasets_are_as_a_model_of_them),
          cmocka_unit_test(what_is_refused_changes_nothing),
          cmocka_unit_test(chunks_beside_each_other_are_read_at_once),
          cmocka_unit_test(chunks_are_decoded_once_also_without_memory),
          cmocka_unit_test(a_read_that_skips_the_cache_leaves_no_trace),
          cmocka_unit_test(one_dataset_is_flushed_and_evicted),
          cmocka_unit_test(only_what_is_wanted_is_read),
          cmocka_unit_test(parts_are_right_while_the_chunk_changes),
          cmocka_unit_test(parts_are_right_while_others_write))
