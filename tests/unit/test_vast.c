/* Datasets with room for so many chunks that nobody can go through them: everything goes by what is
 * stored, or is changed and not stored yet. */
#include "support.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "sparsefs/sparsefs.h"

#define SPOTS  60
#define FRAMES 3
#define ROWS   500000000000u
#define ROW    16u

/* Elements of 2 bytes, a row of a frame each time; some of them are there. */
struct vast {
    struct sfs_file *file;
    struct sfs_dataset *dataset;
    struct {
        uint64_t frame, row;
        uint16_t value; /* 0: it is gone */
    } spot[SPOTS];
};

static struct sfs_slab slab_of(uint64_t frame, uint64_t row)
{
    return (struct sfs_slab){.rank = 3, .start = {frame, row, row % ROW}, .count = {1, 1, 1}};
}

static struct sfs_slab frame_slab(uint64_t frame)
{
    return (struct sfs_slab){.rank = 3, .start = {frame}, .count = {1, ROWS, ROW}};
}

static struct sfs_slab whole_slab(void)
{
    return (struct sfs_slab){.rank = 3, .count = {FRAMES, ROWS, ROW}};
}

/* 1: an extensible array; 2: a B-tree. */
static void begin(struct vast *vast, int n_unlimited)
{
    struct sfs_options options = {.replace = true};
    struct sfs_dataset_create create = {.rank = 3,
                                        .dims = {FRAMES, ROWS, ROW},
                                        .max_dims = {FRAMES, ROWS, ROW},
                                        .chunk_dims = {1, 5, ROW}};
    void *type = NULL;
    for (int i = 0; i < n_unlimited; i++)
        create.max_dims[i] = SFS_UNLIMITED;
    log_quietly();
    assert_int_equal(sfs_create("vast.h5", &options, &vast->file), 0);
    assert_int_equal(sfs_type_encode("<u2", &type, &create.type.n), 0);
    create.type.bytes = type;
    assert_int_equal(sfs_dataset_create(vast->file, "/d", &create, &vast->dataset), 0);
    free(type);
    /* Where an array has few elements, and where its blocks are small enough. */
    uint64_t most = n_unlimited == 2 ? ROWS : 5000000;
    for (int i = 0; i < SPOTS; i++) {
        vast->spot[i].frame = i % FRAMES;
        vast->spot[i].row = most / SPOTS * (uint64_t)i + random_below(most / SPOTS);
        if (n_unlimited == 1) /* its chunks are numbered frame by frame */
            vast->spot[i].frame = 0;
        vast->spot[i].value = (uint16_t)(1 + random_below(60000));
        struct sfs_slab slab = slab_of(vast->spot[i].frame, vast->spot[i].row);
        assert_int_equal(sfs_write(vast->dataset, &slab, &vast->spot[i].value), 0);
        if (i == SPOTS / 2)
            assert_int_equal(sfs_flush(vast->file), 0);
    }
}

static void end(struct vast *vast)
{
    sfs_dataset_close(vast->dataset);
    assert_int_equal(sfs_close(vast->file), 0);
}

/* What is defined in a slab of whole frames is just these, in their order. */
static void check(struct vast *vast, const struct sfs_slab *slab)
{
    struct sfs_defined defined;
    uint64_t n = 0, counted;
    uint16_t value;
    assert_int_equal(sfs_get_defined(vast->dataset, slab, &defined), 0);
    for (uint64_t frame = slab->start[0]; frame < slab->start[0] + slab->count[0]; frame++) {
        for (int i = 0; i < SPOTS; i++) {
            uint64_t row = vast->spot[i].row;
            if (vast->spot[i].frame != frame || vast->spot[i].value == 0)
                continue;
            assert_true(n < defined.n);
            assert_int_equal(defined.interval[n].first,
                             ((frame - slab->start[0]) * ROWS + row) * ROW + row % ROW);
            assert_int_equal(sfs_read_values(vast->dataset, slab, &defined, n, 1, &value), 0);
            assert_int_equal(value, vast->spot[i].value);
            n++;
        }
    }
    assert_int_equal(defined.elements, n);
    assert_int_equal(sfs_count_defined(vast->dataset, slab, &counted), 0);
    assert_int_equal(counted, n);
    sfs_defined_free(&defined);
}

static void check_all(struct vast *vast)
{
    struct sfs_slab whole = whole_slab();
    check(vast, &whole);
    for (uint64_t frame = 0; frame < FRAMES; frame++) {
        struct sfs_slab slab = frame_slab(frame);
        check(vast, &slab);
    }
}

static void forget(struct vast *vast, uint64_t frame, uint64_t first_row, uint64_t last_row)
{
    for (int i = 0; i < SPOTS; i++)
        if (vast->spot[i].frame == frame && vast->spot[i].row >= first_row &&
            vast->spot[i].row < last_row)
            vast->spot[i].value = 0;
}

static void what_is_defined_is_found(void **state)
{
    (void)state;
    for (int kind = 1; kind <= 2; kind++) {
        struct vast vast;
        begin(&vast, kind);
        check_all(&vast);
        assert_int_equal(sfs_flush(vast.file), 0);
        check_all(&vast);
        end(&vast);
    }
}

static void huge_ranges_are_erased(void **state)
{
    (void)state;
    for (int kind = 1; kind <= 2; kind++) {
        struct vast vast;
        begin(&vast, kind);
        struct sfs_slab frame = frame_slab(0);
        uint64_t row = vast.spot[SPOTS / 3].row;
        assert_int_equal(sfs_erase_range(vast.dataset, &frame, row * ROW, (ROWS - row) * ROW), 0);
        forget(&vast, 0, row, ROWS);
        check_all(&vast);
        assert_int_equal(sfs_erase(vast.dataset, &frame), 0);
        forget(&vast, 0, 0, ROWS);
        check_all(&vast);
        end(&vast);
    }
}

/* As the calls for dataspaces have it, where NULL is all of a dataset. */
static void all_is_selected(void **state)
{
    (void)state;
    for (int kind = 1; kind <= 2; kind++) {
        struct vast vast;
        struct sfs_slab whole = whole_slab();
        struct sfs_defined defined;
        void *encoded;
        size_t n;
        uint64_t counted;
        begin(&vast, kind);
        assert_int_equal(sfs_dataset_get_defined(vast.dataset, NULL, &encoded, &n), 0);
        assert_int_equal(sfs_decode_defined(vast.dataset, &whole, 3, encoded, n, &defined), 0);
        assert_int_equal(defined.elements, SPOTS);
        sfs_defined_free(&defined);
        free(encoded);
        assert_int_equal(sfs_encode_defined(vast.dataset, &whole, 3, &encoded, &n), 0);
        free(encoded);
        assert_int_equal(sfs_dataset_erase(vast.dataset, NULL), 0);
        assert_int_equal(sfs_count_defined(vast.dataset, &whole, &counted), 0);
        assert_int_equal(counted, 0);
        end(&vast);
    }
}

/* What shall be defined, or is written, is a few elements; others, wherever they are, go. */
static void what_is_defined_is_set(void **state)
{
    (void)state;
    struct vast vast;
    struct sfs_slab frame = frame_slab(0);
    begin(&vast, 2);
    uint64_t row = vast.spot[SPOTS / 3 * 3 / 2].row;
    struct sfs_interval wanted[] = {{row * ROW + row % ROW, 0}, {0, 1}};
    assert_int_equal(sfs_set_defined(vast.dataset, &frame, &(struct sfs_defined){1, wanted, 1}), 0);
    forget(&vast, 0, 0, row);
    forget(&vast, 0, row + 1, ROWS);
    check_all(&vast);

    /* And another one comes to be, with the fill value. */
    struct sfs_interval two[] = {{wanted[0].first, 0}, {wanted[0].first + 1000, 1}, {0, 2}};
    struct sfs_defined defined;
    uint16_t values[2] = {0, 1}, value = (uint16_t)(wanted[0].first % 1000);
    assert_int_equal(
        sfs_write_values(vast.dataset, &frame, &(struct sfs_defined){1, wanted, 1}, &value), 0);
    assert_int_equal(sfs_set_defined(vast.dataset, &frame, &(struct sfs_defined){2, two, 2}), 0);
    assert_int_equal(sfs_get_defined(vast.dataset, &frame, &defined), 0);
    assert_int_equal(defined.n, 2);
    assert_memory_equal(defined.interval, two, sizeof(two) - sizeof(*two));
    assert_int_equal(sfs_read_values(vast.dataset, &frame, &defined, 0, 2, values), 0);
    assert_int_equal(values[0], value);
    assert_int_equal(values[1], 0);
    sfs_defined_free(&defined);
    end(&vast);
}

static bool is_true(void *context)
{
    ++*(unsigned *)context;
    return true;
}

/* What looks at many chunks ends when it is asked to; others of the thread's calls do not. */
static void calls_are_interrupted(void **state)
{
    (void)state;
    struct vast vast;
    static uint16_t read[2000 * ROW];
    struct sfs_slab whole = whole_slab(), frame = frame_slab(0);
    struct sfs_slab rows = {.rank = 3, .count = {1, 2000, ROW}};
    struct sfs_defined defined;
    uint64_t counted;
    unsigned asked = 0;
    begin(&vast, 2);
    assert_int_equal(sfs_flush(vast.file), 0);
    sfs_set_interrupt(is_true, &asked);
    assert_int_equal(sfs_get_defined(vast.dataset, &whole, &defined), -EINTR);
    assert_int_equal(sfs_count_defined(vast.dataset, &whole, &counted), -EINTR);
    assert_int_equal(sfs_erase(vast.dataset, &frame), -EINTR);
    assert_int_equal(sfs_read(vast.dataset, &rows, 0, read, sizeof(read)), -EINTR);
    assert_true(asked >= 4);
    sfs_set_interrupt(NULL, NULL);
    assert_int_equal(sfs_erase(vast.dataset, &whole), 0);
    assert_int_equal(sfs_count_defined(vast.dataset, &whole, &counted), 0);
    assert_int_equal(counted, 0);
    end(&vast);
}

/* Rows are taken away from all frames at once. */
static void dims_shrink(void **state)
{
    (void)state;
    struct vast vast;
    begin(&vast, 2);
    uint64_t row = vast.spot[SPOTS / 2].row;
    assert_int_equal(sfs_set_extent(vast.dataset, (const uint64_t[]){FRAMES, row, ROW}), 0);
    assert_int_equal(sfs_set_extent(vast.dataset, (const uint64_t[]){FRAMES, ROWS, ROW}), 0);
    for (uint64_t frame = 0; frame < FRAMES; frame++)
        forget(&vast, frame, row, ROWS);
    check_all(&vast);
    end(&vast);
}

#define EMPTY_ROWS ((uint64_t)1 << 20)

static bool counts_questions(void *context)
{
    (*(unsigned *)context)++;
    return false;
}

/* Of a chunk, each of which has a run beside what is asked for: who goes through them asks whether to go on, whether
 * what is found has its place in the slab in one piece or in rows. */
static void rows_without_elements_count(void **state)
{
    (void)state;
    static const struct sfs_slab slabs[] = {{.rank = 2, .count = {EMPTY_ROWS, 1}},
                                            {.rank = 2, .start = {0, 2}, .count = {EMPTY_ROWS, 3}}};
    const struct sfs_slab there = {.rank = 2, .start = {0, 1}, .count = {EMPTY_ROWS, 1}};
    struct sfs_options options = {.replace = true};
    struct sfs_dataset_create create = {.rank = 2,
                                        .dims = {EMPTY_ROWS, 6},
                                        .max_dims = {EMPTY_ROWS, 6},
                                        .chunk_dims = {EMPTY_ROWS, 3}};
    struct sfs_file *file;
    struct sfs_dataset *dataset;
    void *type = NULL, *values = allocate(EMPTY_ROWS);
    memset(values, 1, EMPTY_ROWS);
    assert_int_equal(sfs_create("rows.h5", &options, &file), 0);
    assert_int_equal(sfs_type_encode("|u1", &type, &create.type.n), 0);
    create.type.bytes = type;
    assert_int_equal(sfs_dataset_create(file, "/d", &create, &dataset), 0);
    assert_int_equal(sfs_write(dataset, &there, values), 0);
    for (size_t i = 0; i < COUNT(slabs); i++) {
        struct sfs_defined defined;
        unsigned asked = 0;
        sfs_set_interrupt(counts_questions, &asked);
        assert_int_equal(sfs_get_defined(dataset, &slabs[i], &defined), 0);
        sfs_set_interrupt(NULL, NULL);
        assert_int_equal(defined.elements, 0);
        sfs_defined_free(&defined);
        assert_in_range(asked, EMPTY_ROWS >> 16, 10 * (EMPTY_ROWS >> 16));
    }
    free(type);
    free(values);
    sfs_dataset_close(dataset);
    assert_int_equal(sfs_close(file), 0);
}

#define TINY 40960 /* chunks of one element */

/* All of them, which is one run, or every second: who writes asks whether to go on, also where nothing waits. */
static void writing_tiny_chunks_is_interrupted(void **state)
{
    (void)state;
    const struct sfs_slab all = {.rank = 1, .count = {TINY}};
    struct sfs_options options = {.replace = true};
    struct sfs_dataset_create create = {
        .rank = 1, .dims = {TINY}, .max_dims = {TINY}, .chunk_dims = {1}};
    struct sfs_file *file;
    struct sfs_dataset *dataset;
    void *type = NULL, *values = allocate(TINY);
    struct sfs_interval *interval = allocate((TINY / 2 + 1) * sizeof(*interval));
    memset(values, 1, TINY);
    assert_int_equal(sfs_create("tiny.h5", &options, &file), 0);
    assert_int_equal(sfs_type_encode("|u1", &type, &create.type.n), 0);
    create.type.bytes = type;
    assert_int_equal(sfs_dataset_create(file, "/d", &create, &dataset), 0);
    for (uint64_t step = 1; step <= 2; step++) {
        uint64_t n = step == 1 ? 1 : TINY / 2;
        struct sfs_defined defined = {n, interval, TINY / step};
        unsigned asked = 0;
        for (uint64_t i = 0; i <= n; i++)
            interval[i] = (struct sfs_interval){i * step, i == n ? TINY / step : i};
        sfs_set_interrupt(counts_questions, &asked);
        assert_int_equal(sfs_write_values(dataset, &all, &defined, values), 0);
        sfs_set_interrupt(NULL, NULL);
        assert_in_range(asked, TINY / step / 4096, UINT32_MAX);
    }
    free(interval);
    free(type);
    free(values);
    sfs_dataset_close(dataset);
    assert_int_equal(sfs_close(file), 0);
}

TEST_MAIN(cmocka_unit_test(what_is_defined_is_found), cmocka_unit_test(huge_ranges_are_erased),
          cmocka_unit_test(all_is_selected), cmocka_unit_test(what_is_defined_is_set),
          cmocka_unit_test(calls_are_interrupted), cmocka_unit_test(dims_shrink),
          cmocka_unit_test(rows_without_elements_count),
          cmocka_unit_test(writing_tiny_chunks_is_interrupted))
