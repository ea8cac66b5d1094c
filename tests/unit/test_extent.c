/* Datasets that grow and shrink: what is cut off is gone for good, and all else stays. */
#include "slab.h"

#include <errno.h>
#include <fcntl.h>
#include <hdf5.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "dataset/private.h"
#include "layout/sparse.h"
#include "sparsefs/sparsefs.h"

#define PATH "extent.h5"
#define SIDE 24 /* no dim becomes larger */
#define FILL 3

enum { DEFLATE = 1, SHUFFLE, FLETCHER32 }; /* as numbered by HDF5 */

struct kind {
    int rank;
    uint64_t dims[3], max_dims[3], chunk_dims[3];
    bool filtered, is_dense;
    int filter;       /* of both sections, alone; 0: deflate */
    bool plain_edges; /* chunks over the edge are stored without filters */
};

static const struct kind kinds[] = {
    {1, {20}, {20}, {20}, false},                                             /* single chunk */
    {2, {10, 12}, {SIDE, SIDE}, {4, 5}, false},                               /* fixed array */
    {2, {10, 12}, {SIDE, SFS_UNLIMITED}, {4, 5}, true},                       /* extensible array */
    {2, {10, 12}, {SFS_UNLIMITED, SFS_UNLIMITED}, {4, 5}, true},              /* B-tree */
    {3, {3, 9, 9}, {SFS_UNLIMITED, SIDE, SIDE}, {1, 9, 9}, false},            /* frames */
    {3, {3, 9, 9}, {SFS_UNLIMITED, SFS_UNLIMITED, SIDE}, {2, 4, SIDE}, true}, /* beyond the dims */
    {2, {10, 12}, {SIDE, SFS_UNLIMITED}, {4, 5}, true, true},
    {3, {3, 9, 9}, {SFS_UNLIMITED, SIDE, SIDE}, {1, 9, 9}, false, true},
    {2, {10, 12}, {SIDE, SIDE}, {4, 5}, true, false, SHUFFLE, true},
    {2, {10, 12}, {SIDE, SFS_UNLIMITED}, {4, 5}, true, false, FLETCHER32, true},
    {2, {10, 12}, {SFS_UNLIMITED, SFS_UNLIMITED}, {4, 5}, true, false, DEFLATE, true},
};

struct model {
    const struct kind *kind;
    uint64_t dims[3];
    int16_t value[SIDE][SIDE][SIDE];
    bool defined[SIDE][SIDE][SIDE];
};

/* A position in the model: axes that a kind has not are 0. */
static void place(const struct sfs_slab *slab, uint64_t k, uint64_t at[3])
{
    at[0] = at[1] = at[2] = 0;
    for (int i = slab->rank - 1; i >= 0; i--) {
        at[i] = slab->start[i] + k % slab->count[i];
        k /= slab->count[i];
    }
}

static void write_slab(struct sfs_dataset *dataset, struct model *model)
{
    struct sfs_slab slab = slab_within(model->kind->rank, model->dims);
    uint64_t n = elements_of(&slab), at[3];
    int16_t *values = allocate(n * sizeof(*values));
    for (uint64_t k = 0; k < n; k++) {
        place(&slab, k, at);
        values[k] = model->value[at[0]][at[1]][at[2]] = (int16_t)random_next();
        model->defined[at[0]][at[1]][at[2]] = true;
    }
    assert_int_equal(sfs_write(dataset, &slab, values), 0);
    free(values);
}

/* New dims, nearly all of them other than before; sometimes 0. */
static void resize(struct sfs_dataset *dataset, struct model *model)
{
    uint64_t dims[3] = {1, 1, 1};
    for (int i = 0; i < model->kind->rank; i++) {
        uint64_t max = model->kind->max_dims[i] < SIDE ? model->kind->max_dims[i] : SIDE;
        dims[i] = random_below(5) ? random_below(max + 1) : model->dims[i];
    }
    uint64_t known[3], before = sfs_dataset_dims(dataset, NULL);
    bool differs = memcmp(dims, model->dims, (size_t)model->kind->rank * sizeof(*dims)) != 0;
    assert_int_equal(sfs_set_extent(dataset, dims), 0);
    assert_int_equal(sfs_dataset_dims(dataset, known) != before, differs);
    assert_memory_equal(known, dims, (size_t)model->kind->rank * sizeof(*dims));
    memcpy(model->dims, dims, sizeof(dims));
    for (uint64_t i = 0; i < SIDE; i++)
        for (uint64_t j = 0; j < SIDE; j++)
            for (uint64_t k = 0; k < SIDE; k++)
                if (i >= dims[0] || j >= dims[1] || k >= dims[2])
                    model->defined[i][j][k] = false;
}

static void check_model(struct sfs_dataset *dataset, const struct model *model)
{
    struct sfs_slab slab = {.rank = model->kind->rank};
    memcpy(slab.count, model->dims, sizeof(model->dims));
    assert_memory_equal(sfs_dataset_info(dataset)->dims, model->dims,
                        (size_t)slab.rank * sizeof(uint64_t));
    uint64_t n = elements_of(&slab), at[3], defined = 0, counted;
    assert_int_equal(sfs_dataset_info(dataset)->elements, n);
    int16_t *values = allocate(n * sizeof(*values));
    assert_int_equal(sfs_read(dataset, &slab, 0, values, n * sizeof(*values)), 0);
    for (uint64_t k = 0; k < n; k++) {
        place(&slab, k, at);
        bool is_defined = model->defined[at[0]][at[1]][at[2]];
        defined += is_defined;
        assert_int_equal(values[k], is_defined ? model->value[at[0]][at[1]][at[2]] : FILL);
    }
    assert_int_equal(sfs_count_defined(dataset, &slab, &counted), 0);
    assert_int_equal(counted, model->kind->is_dense ? n : defined);
    free(values);
}

static struct sfs_dataset *open_dataset(struct sfs_file *file)
{
    uint64_t address;
    struct sfs_dataset *dataset = NULL;
    assert_int_equal(sfs_find(file, sfs_root(file), "/x", &address), 0);
    assert_int_equal(sfs_dataset_open(file, address, "/x", &dataset), 0);
    return dataset;
}

/* No call does that: the flag is put into the file. */
static struct sfs_dataset *leave_edges_plain(struct sfs_file *file, struct sfs_dataset *dataset)
{
    struct sparse *sparse = dataset->sparse;
    struct layout_message message = sparse->header.layout;
    struct sfs_options options = {.writable = true};
    struct why why;
    message.unfiltered_edges = true;
    assert_int_equal(
        dataset_header_set_layout(file->store, sparse->superblock, sparse->address, &message, &why),
        0);
    sfs_dataset_close(dataset);
    assert_int_equal(sfs_close(file), 0);
    assert_int_equal(sfs_open(PATH, &options, &file), 0);
    return open_dataset(file);
}

static int new_file(const char *path, hsize_t user_block, size_t cache_size, struct sfs_file **file)
{
    struct sfs_options options = {.writable = true, .replace = true, .cache_size = cache_size};
    if (user_block == 0)
        return sfs_create(path, &options, file);
    hid_t fcpl = H5Pcreate(H5P_FILE_CREATE);
    assert_true(H5Pset_userblock(fcpl, user_block) >= 0);
    hid_t made = H5Fcreate(path, H5F_ACC_TRUNC, fcpl, H5P_DEFAULT);
    assert_true(made >= 0);
    H5Fclose(made);
    H5Pclose(fcpl);
    return sfs_open(path, &options, file);
}

static struct sfs_file *create_behind(hsize_t user_block, const struct kind *kind,
                                      struct sfs_dataset **dataset)
{
    const int16_t fill = FILL;
    const unsigned parameter = kind->filter == SHUFFLE ? sizeof(int16_t) : 1;
    const struct sfs_filter filter = {.id = kind->filter ? kind->filter : DEFLATE,
                                      .n_values = kind->filter != FLETCHER32,
                                      .values = &parameter};
    struct sfs_dataset_create create = {
        .rank = kind->rank, .fill = &fill, .is_dense = kind->is_dense};
    struct sfs_file *file = NULL;
    void *type = NULL;
    memcpy(create.dims, kind->dims, sizeof(kind->dims));
    memcpy(create.max_dims, kind->max_dims, sizeof(kind->max_dims));
    memcpy(create.chunk_dims, kind->chunk_dims, sizeof(kind->chunk_dims));
    for (int i = 0; i < 2; i++) {
        create.n_filters[i] = kind->filtered;
        create.filters[i] = &filter;
    }
    assert_int_equal(sfs_type_encode("<i2", &type, &create.type.n), 0);
    create.type.bytes = type;
    assert_int_equal(new_file(PATH, user_block, random_below(2) ? 0 : 20000, &file), 0);
    assert_int_equal(sfs_dataset_create(file, "/x", &create, dataset), 0);
    free(type);
    if (kind->plain_edges)
        *dataset = leave_edges_plain(file, *dataset);
    return kind->plain_edges ? (*dataset)->file : file;
}

static struct sfs_file *create(const struct kind *kind, struct sfs_dataset **dataset)
{
    return create_behind(0, kind, dataset);
}

/* In files with a user block, too: addresses in them count from its end. */
static void what_is_cut_off_does_not_come_back(void **state)
{
    (void)state;
    for (size_t round = 0; round < 10 * COUNT(kinds); round++) {
        static struct model model;
        struct sfs_dataset *dataset;
        memset(&model, 0, sizeof(model));
        model.kind = &kinds[round % COUNT(kinds)];
        for (int i = 0; i < 3; i++)
            model.dims[i] = i < model.kind->rank ? model.kind->dims[i] : 1;
        hsize_t user_block = round / COUNT(kinds) % 2 * 1024;
        struct sfs_file *file = create_behind(user_block, model.kind, &dataset);
        for (int step = 0; step < 25; step++) {
            uint64_t what = random_below(6);
            if (what < 2) {
                resize(dataset, &model);
            } else if (what < 5) {
                write_slab(dataset, &model);
            } else if (random_below(2)) {
                assert_int_equal(sfs_flush(file), 0);
            } else {
                struct sfs_options options = {.writable = true};
                sfs_dataset_close(dataset);
                assert_int_equal(sfs_close(file), 0);
                assert_int_equal(sfs_open(PATH, &options, &file), 0);
                dataset = open_dataset(file);
            }
            check_model(dataset, &model);
        }
        sfs_dataset_close(dataset);
        assert_int_equal(sfs_close(file), 0);
    }
}

static int count_chunk(void *context, const struct sfs_chunk_info *info)
{
    (void)info;
    ++*(int *)context;
    return 0;
}

static void chunks_that_are_cut_off_are_deleted(void **state)
{
    (void)state;
    struct sfs_dataset *dataset;
    struct sfs_file *file = create(&kinds[1], &dataset);
    struct sfs_slab all = {.rank = 2, .count = {10, 12}};
    int16_t values[120] = {0};
    int before = 0, after = 0, again = 0;
    assert_int_equal(sfs_write(dataset, &all, values), 0);
    assert_int_equal(sfs_chunk_iterate(dataset, count_chunk, &before), 0);
    assert_int_equal(sfs_set_extent(dataset, (const uint64_t[]){4, 5}), 0);
    assert_int_equal(sfs_chunk_iterate(dataset, count_chunk, &after), 0);
    assert_int_equal(sfs_set_extent(dataset, (const uint64_t[]){10, 12}), 0);
    assert_int_equal(sfs_chunk_iterate(dataset, count_chunk, &again), 0);
    assert_int_equal(before, 9);
    assert_int_equal(after, 1);
    assert_int_equal(again, 1);
    sfs_dataset_close(dataset);
    assert_int_equal(sfs_close(file), 0);
}

/* Puts zeros over a stored chunk; the file is opened again. */
static struct sfs_dataset *damage(struct sfs_file *file, struct sfs_dataset *dataset,
                                  const uint64_t *start)
{
    static const char zeros[40];
    struct sfs_options options = {.writable = true};
    struct sfs_chunk_info info;
    assert_int_equal(sfs_chunk_info(dataset, start, &info), 0);
    assert_true(info.size > sizeof(zeros));
    sfs_dataset_close(dataset);
    assert_int_equal(sfs_close(file), 0);
    int fd = open(PATH, O_WRONLY | O_CLOEXEC);
    assert_int_equal(
        pwrite(fd, zeros, sizeof(zeros), (off_t)(info.address + info.size - sizeof(zeros))),
        sizeof(zeros));
    close(fd);
    assert_int_equal(sfs_open(PATH, &options, &file), 0);
    return open_dataset(file);
}

/* Of the two chunks that are cut one cannot be read: what was written to the other one, and behind them, stays. */
static void dims_that_cannot_shrink_lose_nothing(void **state)
{
    (void)state;
    static const struct kind kind = {2,    {10, 12}, {SIDE, SIDE}, {4, 6},
                                     true, false,    FLETCHER32,   false};
    static const struct sfs_slab all = {.rank = 2, .count = {10, 12}};
    const struct sfs_slab some[] = {{.rank = 2, .start = {4, 0}, .count = {4, 6}},
                                    {.rank = 2, .start = {8, 0}, .count = {2, 12}}};
    int16_t values[120], found[24];
    struct sfs_dataset *dataset;
    struct sfs_file *file = create(&kind, &dataset);
    for (int16_t i = 0; i < 120; i++)
        values[i] = (int16_t)(100 + i);
    assert_int_equal(sfs_write(dataset, &all, values), 0);
    assert_int_equal(sfs_flush(file), 0);
    dataset = damage(file, dataset, (const uint64_t[]){4, 6});
    file = dataset->file;
    for (size_t i = 0; i < COUNT(some); i++)
        assert_int_equal(sfs_write(dataset, &some[i], values + 30 * i), 0);
    log_quietly();
    assert_int_equal(sfs_set_extent(dataset, (const uint64_t[]){6, 12}), -EIO);
    assert_int_equal(sfs_dataset_info(dataset)->dims[0], 10);
    for (size_t i = 0; i < COUNT(some); i++) {
        assert_int_equal(sfs_read(dataset, &some[i], 0, found, sizeof(found)), 0);
        assert_memory_equal(found, values + 30 * i, sizeof(found));
    }
    assert_int_equal(sfs_set_extent(dataset, (const uint64_t[]){4, 12}),
                     0); /* it is not read for that */
    sfs_dataset_close(dataset);
    assert_int_equal(sfs_close(file), 0);
}

static void dims_beyond_the_maximum_are_refused(void **state)
{
    (void)state;
    struct sfs_dataset *dataset;
    struct sfs_file *file = create(&kinds[1], &dataset);
    assert_int_equal(sfs_set_extent(dataset, (const uint64_t[]){SIDE + 1, 12}), -EINVAL);
    assert_int_equal(sfs_dataset_info(dataset)->dims[0], 10);
    sfs_dataset_close(dataset);
    assert_int_equal(sfs_close(file), 0);
    assert_int_equal(sfs_open(PATH, NULL, &file), 0);
    dataset = open_dataset(file);
    assert_int_equal(sfs_set_extent(dataset, (const uint64_t[]){4, 5}), -EROFS);
    sfs_dataset_close(dataset);
    assert_int_equal(sfs_close(file), 0);
}

static void extending_never_shrinks(void **state)
{
    (void)state;
    struct sfs_dataset *dataset;
    struct sfs_file *file = create(&kinds[1], &dataset);
    uint64_t dims[2];
    assert_int_equal(sfs_extend(dataset, (const uint64_t[]){3, 15}), 0);
    assert_int_equal(sfs_extend(dataset, (const uint64_t[]){11, 0}), 0);
    sfs_dataset_dims(dataset, dims);
    assert_int_equal(dims[0], 11);
    assert_int_equal(dims[1], 15);
    assert_int_equal(sfs_extend(dataset, (const uint64_t[]){SIDE + 1, 0}), -EINVAL);
    sfs_dataset_close(dataset);
    assert_int_equal(sfs_close(file), 0);
}

/* What is done to an extended dataset. */
struct behind {
    struct sfs_dataset *dataset;
    int result;
};

static int write_behind(void *context)
{
    const struct behind *behind = context;
    const struct sfs_slab slab = {.rank = 2, .start = {11, 1}, .count = {1, 3}};
    const int16_t values[] = {1, 2, 3};
    uint64_t dims[2];
    sfs_dataset_dims(behind->dataset, dims);
    assert_int_equal(dims[0], 12);
    assert_int_equal(sfs_write(behind->dataset, &slab, values), 0);
    return behind->result;
}

/* The dims go back, and what was written behind the old ones does not come again. */
static void extending_for_what_fails(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof(kinds) / sizeof(*kinds); i++) {
        if (kinds[i].rank != 2)
            continue;
        struct behind behind = {.result = -ENOSPC};
        struct sfs_file *file = create(&kinds[i], &behind.dataset);
        const struct sfs_slab slab = {.rank = 2, .start = {11, 1}, .count = {1, 3}};
        const uint64_t larger[] = {12, 0};
        int16_t values[3], fill;
        uint64_t dims[2], before[2];
        memcpy(&fill, sfs_dataset_info(behind.dataset)->fill, sizeof(fill));
        sfs_dataset_dims(behind.dataset, before);
        assert_int_equal(sfs_extend_with(behind.dataset, larger, write_behind, &behind), -ENOSPC);
        sfs_dataset_dims(behind.dataset, dims);
        assert_memory_equal(dims, before, sizeof(dims));
        assert_int_equal(sfs_extend(behind.dataset, larger), 0);
        assert_int_equal(sfs_read(behind.dataset, &slab, 0, values, sizeof(values)), 0);
        for (int k = 0; k < 3; k++)
            assert_int_equal(values[k], fill);
        behind.result = 0;
        assert_int_equal(sfs_extend_with(behind.dataset, larger, write_behind, &behind), 0);
        assert_int_equal(sfs_read(behind.dataset, &slab, 0, values, sizeof(values)), 0);
        assert_int_equal(values[2], 3);
        const uint64_t too_large[] = {SIDE + 1, 0};
        if (kinds[i].max_dims[0] == SIDE)
            assert_int_equal(sfs_extend_with(behind.dataset, too_large, write_behind, &behind),
                             -EINVAL);
        sfs_dataset_close(behind.dataset);
        assert_int_equal(sfs_close(file), 0);
    }
}

static struct {
    struct sfs_dataset *dataset;
    pthread_t extender;
    int calls;
} nested;

static void *extend(void *argument)
{
    *(int *)argument = sfs_extend(nested.dataset, (const uint64_t[]){12, 12});
    return NULL;
}

/* While another thread waits until the iteration is over. */
static int read_meanwhile(void *context, const struct sfs_chunk_info *info)
{
    struct sfs_slab slab = {.rank = 2, .start = {info->start[0], info->start[1]}, .count = {1, 1}};
    int16_t value;
    uint64_t dims[2];
    if (nested.calls++ == 0) {
        start_thread(&nested.extender, extend, context);
        usleep(50000);
    }
    assert_int_equal(sfs_read(nested.dataset, &slab, 0, &value, sizeof(value)), 0);
    sfs_dataset_dims(nested.dataset, dims);
    assert_int_equal(dims[0], 10);
    return 0;
}

static void an_iteration_may_read_while_others_wait_to_extend(void **state)
{
    (void)state;
    struct sfs_file *file = create(&kinds[1], &nested.dataset);
    struct sfs_slab all = {.rank = 2, .count = {10, 12}};
    int16_t values[120] = {0};
    uint64_t dims[2];
    int extended = -1;
    assert_int_equal(sfs_write(nested.dataset, &all, values), 0);
    assert_int_equal(sfs_chunk_iterate(nested.dataset, read_meanwhile, &extended), 0);
    pthread_join(nested.extender, NULL);
    assert_int_equal(extended, 0);
    assert_int_equal(nested.calls, 9);
    sfs_dataset_dims(nested.dataset, dims);
    assert_int_equal(dims[0], 12);
    sfs_dataset_close(nested.dataset);
    assert_int_equal(sfs_close(file), 0);
}

/* A number that says whether anything has changed. */
static void every_change_is_counted(void **state)
{
    (void)state;
    struct sfs_dataset *dataset;
    struct sfs_file *file = create(&kinds[1], &dataset);
    struct sfs_slab slab = {.rank = 2, .start = {1, 1}, .count = {1, 2}};
    int16_t values[2] = {1, 2};
    uint64_t now = sfs_dataset_changes(dataset), then = now;
    assert_true(now != 0);
    assert_int_equal(sfs_read(dataset, &slab, 0, values, sizeof(values)), 0);
    assert_int_equal(sfs_flush(file), 0);
    assert_true((now = sfs_dataset_changes(dataset)) == then);
    assert_int_equal(sfs_write(dataset, &slab, values), 0);
    assert_true((now = sfs_dataset_changes(dataset)) != then);
    uint64_t step = now - then;
    then = now;
    /* One change, though of parts of elements, of several boxes, and of some that become undefined. */
    const struct sfs_slab all = {.rank = 2, .count = {10, 12}};
    const char bytes[61] = {[20] = 1, [50] = 2};
    assert_int_equal(sfs_write_bytes(dataset, &all, 3, bytes, sizeof(bytes), true), 0);
    assert_int_equal((now = sfs_dataset_changes(dataset)) - then, step);
    then = now;
    assert_int_equal(sfs_erase_range(dataset, &all, 5, 31), 0);
    assert_int_equal((now = sfs_dataset_changes(dataset)) - then, step);
    then = now;
    assert_int_equal(sfs_erase(dataset, &slab), 0);
    assert_true((now = sfs_dataset_changes(dataset)) != then);
    then = now;
    assert_int_equal(sfs_extend(dataset, (const uint64_t[]){11, 12}), 0);
    assert_true(sfs_dataset_changes(dataset) != then);
    sfs_dataset_close(dataset);
    assert_int_equal(sfs_close(file), 0);
}

/* Positions of elements are numbers of 63 bits. */
static void a_dataset_of_too_many_elements_is_refused(void **state)
{
    (void)state;
    static const struct kind vast = {2, {10, 12}, {SFS_UNLIMITED, SFS_UNLIMITED}, {4, 5}, false};
    const uint64_t dims[] = {UINT64_C(1) << 40, UINT64_C(1) << 40};
    struct sfs_dataset *dataset;
    struct sfs_file *file = create(&vast, &dataset);
    struct sfs_slab slab = {.rank = 2, .start = {1, 1}, .count = {1, 1}};
    int16_t value = 5;
    log_quietly();
    assert_int_equal(sfs_set_extent(dataset, dims), -EINVAL);
    assert_int_equal(sfs_write(dataset, &slab, &value), 0);
    value = 0;
    assert_int_equal(sfs_read(dataset, &slab, 0, &value, sizeof(value)), 0);
    assert_int_equal(value, 5);
    sfs_dataset_close(dataset);
    assert_int_equal(sfs_close(file), 0);
}

#define FULL ((uint64_t)1 << 32) /* chunks of an array */

static int write_one(struct sfs_dataset *dataset, uint64_t row, uint64_t column)
{
    const int16_t value = 7;
    struct sfs_slab slab = {.rank = 2, .start = {row, column}, .count = {1, 1}};
    return sfs_write(dataset, &slab, &value);
}

static int write_one_value(struct sfs_dataset *dataset, uint64_t row, uint64_t column)
{
    const int16_t value = 7;
    struct sfs_slab slab = {.rank = 2, .start = {row, column}, .count = {1, 1}};
    struct sfs_interval all[] = {{0, 0}, {0, 1}};
    return sfs_write_values(dataset, &slab, &(struct sfs_defined){1, all, 1}, &value);
}

/* By the write and by the change of the dims, not by a flush, which would fail for ever. */
static void what_an_index_cannot_hold_is_refused_at_once(void **state)
{
    (void)state;
    const uint64_t inf = SFS_UNLIMITED;
    const struct {
        struct kind kind;
        bool has_limit;
    } cases[] = {
        {{2, {1, 64 * FULL}, {1, inf}, {1, 16}}, true},
        {{2, {64 * FULL, 3}, {inf, 3}, {16, 3}, true}, true},
        {{2, {1, 64 * FULL}, {1, 64 * FULL}, {1, 32}}, true},
        {{2, {64 * FULL, 1}, {inf, inf}, {16, 1}}, false},
        {{2, {1, 64 * FULL}, {1, inf}, {1, 16}, false, true}, true},
        {{2, {1, 64 * FULL}, {1, inf}, {1, 16}, true, true}, true},
    };
    for (size_t i = 0; i < COUNT(cases); i++) {
        struct sfs_dataset *dataset;
        const struct kind *kind = &cases[i].kind;
        int refused = cases[i].has_limit ? -EFBIG : 0;
        int axis = kind->dims[0] < kind->dims[1];
        uint64_t first[2] = {0}, behind[2] = {0}, dims[2];
        first[axis] = kind->chunk_dims[axis] * FULL - 1;
        behind[axis] = kind->chunk_dims[axis] * FULL;
        struct sfs_file *file = create(kind, &dataset);
        assert_int_equal(write_one(dataset, behind[0], behind[1]), refused);
        if (!kind->is_dense)
            assert_int_equal(write_one_value(dataset, behind[0], behind[1]), refused);
        struct sfs_slab both = {.rank = 2, .start = {first[0], first[1]}, .count = {1, 1}};
        both.count[axis] = 2;
        assert_int_equal(sfs_write(dataset, &both, (const int16_t[]){8, 9}), refused);
        assert_int_equal(write_one(dataset, 0, 0), 0);
        assert_int_equal(sfs_flush(file), 0);
        memcpy(dims, kind->dims, sizeof(dims));
        if (kind->max_dims[axis] == inf) {
            dims[axis]++;
            assert_int_equal(sfs_set_extent(dataset, dims), refused);
            assert_int_equal(sfs_extend(dataset, dims), refused);
        }
        if (kind->max_dims[axis] == inf && !kind->is_dense) { /* libhdf5 looks for all chunks */
            dims[axis] = behind[axis];
            assert_int_equal(sfs_set_extent(dataset, dims), 0); /* less than it was */
            dims[axis]++;
            assert_int_equal(sfs_set_extent(dataset, dims), refused);
        }
        int16_t value = 0;
        struct sfs_slab one = {.rank = 2, .count = {1, 1}};
        assert_int_equal(sfs_read(dataset, &one, 0, &value, sizeof(value)), 0);
        assert_int_equal(value, 7);
        sfs_dataset_close(dataset);
        assert_int_equal(sfs_close(file), 0);
    }
}

TEST_MAIN(cmocka_unit_test(what_is_cut_off_does_not_come_back),
          cmocka_unit_test(chunks_that_are_cut_off_are_deleted),
          cmocka_unit_test(dims_that_cannot_shrink_lose_nothing),
          cmocka_unit_test(dims_beyond_the_maximum_are_refused),
          cmocka_unit_test(extending_never_shrinks), cmocka_unit_test(extending_for_what_fails),
          cmocka_unit_test(an_iteration_may_read_while_others_wait_to_extend),
          cmocka_unit_test(every_change_is_counted),
          cmocka_unit_test(a_dataset_of_too_many_elements_is_refused),
          cmocka_unit_test(what_an_index_cannot_hold_is_refused_at_once))
