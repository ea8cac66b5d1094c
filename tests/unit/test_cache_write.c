/* Writing through the cache, with real layouts on real files: sparse datasets, dense ones with and
 * without filters, contiguous ones that are read whole and in parts; under limits from less than a
 * chunk to more than the file; by one thread and by many. */
#include "support.h"

#include <errno.h>
#include <hdf5.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "sparsefs/sparsefs.h"

#define PATH "written.h5"
#define KIB  ((size_t)1 << 10)
#define MIB  ((size_t)1 << 20)

#define ROWS    72
#define COLUMNS 100

static const unsigned level_1 = 1, bytes_4 = 4;
static const struct sfs_filter shuffle_deflate[] = {{.id = 2, .n_values = 1, .values = &bytes_4},
                                                    {.id = 1, .n_values = 1, .values = &level_1}};

/* One dataset and what it must hold. */
static struct kind {
    const char *path;
    bool is_dense, is_filtered;
    bool by_libhdf5; /* which alone can make such a dataset */
    bool is_contiguous, is_early, has_plain_edges;
    uint64_t chunk_dims[2];
    uint32_t fill;
} kinds[] = {
    {"/sparse", .is_filtered = true, .chunk_dims = {16, 24}, .fill = 7},
    {"/sparse_plain", .chunk_dims = {ROWS, COLUMNS}},
    {"/chunked", .is_dense = true, .is_filtered = true, .chunk_dims = {16, 24}, .fill = 9},
    {"/chunked_plain", .is_dense = true, .chunk_dims = {9, COLUMNS}},
    {"/contiguous", .is_dense = true, .by_libhdf5 = true, .is_contiguous = true, .fill = 3},
    {"/contiguous_early", .is_dense = true, .by_libhdf5 = true, .is_contiguous = true,
     .is_early = true},
    {"/plain_edges", .is_dense = true, .by_libhdf5 = true, .is_filtered = true,
     .has_plain_edges = true, .chunk_dims = {16, 24}, .fill = 5},
};

#define KINDS COUNT(kinds)

static struct {
    struct sfs_file *file;
    struct sfs_dataset *dataset[KINDS];
    uint32_t element[KINDS][ROWS][COLUMNS];
    bool defined[KINDS][ROWS][COLUMNS];
} all;

static void create_dataset(size_t i)
{
    const struct kind *kind = &kinds[i];
    struct sfs_dataset_create create = {.rank = 2,
                                        .dims = {ROWS, COLUMNS},
                                        .max_dims = {ROWS, COLUMNS},
                                        .fill = &kind->fill,
                                        .is_dense = kind->is_dense};
    void *type = NULL;
    assert_int_equal(sfs_type_encode("<u4", &type, &create.type.n), 0);
    create.type.bytes = type;
    memcpy(create.chunk_dims, kind->chunk_dims, sizeof(kind->chunk_dims));
    if (kind->is_filtered) {
        create.n_filters[1] = 2;
        create.filters[1] = shuffle_deflate;
    }
    assert_int_equal(sfs_dataset_create(all.file, kind->path, &create, &all.dataset[i]), 0);
    free(type);
}

static void create_by_libhdf5(hid_t file, const struct kind *kind)
{
    const hsize_t dims[] = {ROWS, COLUMNS},
                  chunk_dims[] = {kind->chunk_dims[0], kind->chunk_dims[1]};
    hid_t dcpl = H5Pcreate(H5P_DATASET_CREATE), space = H5Screate_simple(2, dims, NULL);
    H5Pset_fill_value(dcpl, H5T_STD_U32LE, &kind->fill);
    if (!kind->is_contiguous)
        H5Pset_chunk(dcpl, 2, chunk_dims);
    if (kind->is_early)
        H5Pset_alloc_time(dcpl, H5D_ALLOC_TIME_EARLY);
    if (kind->is_filtered)
        H5Pset_deflate(dcpl, 1);
    if (kind->has_plain_edges)
        H5Pset_chunk_opts(dcpl, H5D_CHUNK_DONT_FILTER_PARTIAL_CHUNKS);
    hid_t dataset =
        H5Dcreate2(file, kind->path, H5T_STD_U32LE, space, H5P_DEFAULT, dcpl, H5P_DEFAULT);
    assert_true(dataset >= 0);
    H5Dclose(dataset);
    H5Sclose(space);
    H5Pclose(dcpl);
}

/* A file with the datasets that libhdf5 makes, which nothing is written to. */
static void create_first(void)
{
    hid_t fapl = H5Pcreate(H5P_FILE_ACCESS);
    H5Pset_libver_bounds(fapl, H5F_LIBVER_LATEST, H5F_LIBVER_LATEST);
    hid_t file = H5Fcreate(PATH, H5F_ACC_TRUNC, H5P_DEFAULT, fapl);
    for (size_t i = 0; i < KINDS; i++)
        if (kinds[i].by_libhdf5)
            create_by_libhdf5(file, &kinds[i]);
    H5Pclose(fapl);
    assert_true(H5Fclose(file) >= 0);
}

static void open_dataset(size_t i)
{
    uint64_t address;
    assert_int_equal(sfs_find(all.file, sfs_root(all.file), kinds[i].path, &address), 0);
    assert_int_equal(sfs_dataset_open(all.file, address, kinds[i].path, &all.dataset[i]), 0);
}

static void create_file(size_t cache_size, unsigned workers)
{
    struct sfs_options options = {.writable = true, .cache_size = cache_size, .workers = workers};
    create_first();
    assert_int_equal(sfs_open(PATH, &options, &all.file), 0);
    for (size_t i = 0; i < KINDS; i++) {
        if (kinds[i].by_libhdf5)
            open_dataset(i);
        else
            create_dataset(i);
        for (size_t row = 0; row < ROWS; row++) {
            for (size_t column = 0; column < COLUMNS; column++) {
                all.element[i][row][column] = kinds[i].fill;
                all.defined[i][row][column] = kinds[i].is_dense;
            }
        }
    }
}

static int close_file(void)
{
    for (size_t i = 0; i < KINDS; i++)
        sfs_dataset_close(all.dataset[i]);
    return sfs_close(all.file);
}

static void open_file(size_t cache_size, bool writable)
{
    struct sfs_options options = {.writable = writable, .cache_size = cache_size};
    assert_int_equal(sfs_open(PATH, &options, &all.file), 0);
    for (size_t i = 0; i < KINDS; i++)
        open_dataset(i);
}

static struct sfs_statistics statistics(void)
{
    struct sfs_statistics s;
    sfs_statistics(all.file, &s);
    return s;
}

static struct sfs_slab random_slab(void)
{
    struct sfs_slab slab = {.rank = 2};
    const uint64_t dims[] = {ROWS, COLUMNS};
    bool small = random_below(3) > 0;
    for (int i = 0; i < 2; i++) {
        slab.count[i] = random_between(1, small ? 12 : dims[i]);
        slab.start[i] = random_below(dims[i] - slab.count[i] + 1);
        if (!small && random_below(3) == 0) { /* whole chunks, often */
            slab.start[i] -= slab.start[i] % 8;
            slab.count[i] = dims[i] - slab.start[i];
        }
    }
    return slab;
}

/* ---- One thread, against plain arrays ---- */

static void set_model(size_t i, const struct sfs_slab *slab, const uint32_t *elements)
{
    for (uint64_t r = 0; r < slab->count[0]; r++) {
        for (uint64_t c = 0; c < slab->count[1]; c++) {
            uint64_t row = slab->start[0] + r, column = slab->start[1] + c;
            all.element[i][row][column] =
                elements ? elements[r * slab->count[1] + c] : kinds[i].fill;
            all.defined[i][row][column] = elements || kinds[i].is_dense;
        }
    }
}

static void check_slab(size_t i, const struct sfs_slab *slab)
{
    static uint32_t elements[ROWS * COLUMNS];
    uint64_t n = slab->count[0] * slab->count[1], defined = 0, counted;
    assert_int_equal(sfs_read(all.dataset[i], slab, 0, elements, n * sizeof(*elements)), 0);
    for (uint64_t r = 0; r < slab->count[0]; r++) {
        const uint32_t *row = &all.element[i][slab->start[0] + r][slab->start[1]];
        assert_memory_equal(elements + r * slab->count[1], row, slab->count[1] * sizeof(*row));
        for (uint64_t c = 0; c < slab->count[1]; c++)
            defined += all.defined[i][slab->start[0] + r][slab->start[1] + c];
    }
    assert_int_equal(sfs_count_defined(all.dataset[i], slab, &counted), 0);
    assert_int_equal(counted, defined);
}

static void check_selection(size_t i, const struct sfs_slab *slab)
{
    struct sfs_defined defined;
    uint64_t k = 0;
    assert_int_equal(sfs_get_defined(all.dataset[i], slab, &defined), 0);
    for (size_t n = 0; n < defined.n; n++) {
        uint64_t end =
            defined.interval[n].first + (defined.interval[n + 1].index - defined.interval[n].index);
        for (; k < end; k++)
            assert_int_equal(all.defined[i][slab->start[0] + k / slab->count[1]]
                                        [slab->start[1] + k % slab->count[1]],
                             k >= defined.interval[n].first);
    }
    for (; k < slab->count[0] * slab->count[1]; k++)
        assert_false(all.defined[i][slab->start[0] + k / slab->count[1]]
                                [slab->start[1] + k % slab->count[1]]);
    sfs_defined_free(&defined);
}

static void lend_and_check(size_t i)
{
    struct sfs_slab slab = {.rank = 2, .start = {random_below(ROWS), 0}, .count = {1, 24}};
    struct sfs_loan loan;
    int error = 0;
    if (!sfs_lend(all.dataset[i], &slab, 0, 24 * sizeof(uint32_t), &loan, &error)) {
        assert_int_equal(error, 0);
        return;
    }
    uint32_t before[24], written[24];
    if (statistics().cache_limit < 16 * MIB) { /* who has a loan must not wait for memory */
        assert_memory_equal(loan.bytes, all.element[i][slab.start[0]], sizeof(before));
        sfs_return(all.dataset[i], &loan);
        return;
    }
    memcpy(before, all.element[i][slab.start[0]], sizeof(before));
    assert_memory_equal(loan.bytes, before, sizeof(before));
    random_fill(written, sizeof(written)); /* what is lent does not change */
    assert_int_equal(sfs_write(all.dataset[i], &slab, written), 0);
    set_model(i, &slab, written);
    if (!kinds[i].is_contiguous) /* that is a mapped file, perhaps */
        assert_memory_equal(loan.bytes, before, sizeof(before));
    sfs_return(all.dataset[i], &loan);
}

/* Scattered elements of a slab, through the other entrance. */
static void write_scattered(size_t i)
{
    static uint32_t values[ROWS * COLUMNS];
    static struct sfs_interval interval[ROWS * COLUMNS + 1];
    struct sfs_slab slab = random_slab();
    struct sfs_defined defined = {.interval = interval};
    uint64_t step = random_between(2, 40);
    for (uint64_t k = random_below(step); k < slab.count[0] * slab.count[1]; k += step) {
        values[defined.n] = (uint32_t)random_next();
        interval[defined.n] = (struct sfs_interval){k, defined.n};
        uint64_t row = slab.start[0] + k / slab.count[1],
                 column = slab.start[1] + k % slab.count[1];
        all.element[i][row][column] = values[defined.n++];
        all.defined[i][row][column] = true;
    }
    interval[defined.n] = (struct sfs_interval){0, defined.n};
    defined.elements = defined.n;
    assert_int_equal(sfs_write_values(all.dataset[i], &slab, &defined, values), 0);
}

/* From less than a chunk to more than all. */
static size_t some_limit(void)
{
    return (size_t)1 << random_below(25);
}

static void do_something(void)
{
    static uint32_t elements[ROWS * COLUMNS];
    size_t i = random_below(KINDS);
    struct sfs_slab slab = random_slab();
    switch (random_below(12)) {
    case 0:
    case 1:
    case 2:
    case 3:
        random_fill(elements, sizeof(elements));
        assert_int_equal(sfs_write(all.dataset[i], &slab, elements), 0);
        set_model(i, &slab, elements);
        break;
    case 4:
    case 5:
        if (kinds[i].is_dense) {
            assert_int_equal(sfs_erase(all.dataset[i], &slab), -EOPNOTSUPP);
        } else {
            assert_int_equal(sfs_erase(all.dataset[i], &slab), 0);
            set_model(i, &slab, NULL);
        }
        break;
    case 6:
        write_scattered(i);
        break;
    case 7:
        lend_and_check(i);
        break;
    case 8:
        check_selection(i, &slab);
        break;
    case 9:
        if (random_below(10) == 0)
            assert_int_equal(sfs_flush(all.file), 0);
        break;
    case 10:
        if (random_below(10) == 0)
            assert_int_equal(sfs_set_cache_size(all.file, some_limit()), 0);
        break;
    default:
        check_slab(i, &slab);
    }
}

static void check_everything(void)
{
    struct sfs_slab slab = {.rank = 2, .count = {ROWS, COLUMNS}};
    for (size_t i = 0; i < KINDS; i++) {
        check_slab(i, &slab);
        check_selection(i, &slab);
    }
}

/* What libhdf5 finds in the closed file. */
static void check_by_libhdf5(void)
{
    static uint32_t elements[ROWS][COLUMNS];
    hid_t file = H5Fopen(PATH, H5F_ACC_RDONLY, H5P_DEFAULT);
    assert_true(file >= 0);
    for (size_t i = 0; i < KINDS; i++) {
        if (!kinds[i].is_dense)
            continue;
        hid_t dataset = H5Dopen2(file, kinds[i].path, H5P_DEFAULT);
        assert_true(H5Dread(dataset, H5T_STD_U32LE, H5S_ALL, H5S_ALL, H5P_DEFAULT, elements) >= 0);
        assert_memory_equal(elements, all.element[i], sizeof(elements));
        H5Dclose(dataset);
    }
    H5Fclose(file);
}

static void what_is_written_is_there(void **state)
{
    (void)state;
    static const size_t limits[] = {1, 3 * KIB, 12 * KIB, 40 * KIB, 300 * KIB, 16 * MIB};
    for (size_t k = 0; k < 2 * COUNT(limits); k++) {
        size_t limit = limits[k / 2];
        create_file(limit, k % 2 + 1);
        for (int times = 0; times < 4; times++) {
            for (int round = 0; round < 250; round++)
                do_something();
            check_everything();
            assert_int_equal(close_file(), 0);
            check_by_libhdf5();
            open_file(limit, true);
            check_everything();
        }
        assert_int_equal(close_file(), 0);
    }
}

/* ---- What is encoded, when, and by whom ---- */

static void counting_and_small_writes_encode_nothing(void **state)
{
    (void)state;
    struct sfs_slab whole = {.rank = 2, .count = {ROWS, COLUMNS}};
    create_file(16 * MIB, 2);
    for (int round = 0; round < 50; round++) {
        struct sfs_slab slab = random_slab();
        uint32_t elements[ROWS * COLUMNS];
        random_fill(elements, sizeof(elements));
        assert_int_equal(sfs_write(all.dataset[0], &slab, elements), 0);
        set_model(0, &slab, elements);
        check_slab(0, &slab);
        check_slab(0, &whole);
        check_selection(0, &slab);
    }
    assert_int_equal(statistics().chunks_encoded, 0);
    assert_true(statistics().cache_dirty_bytes > 0);
    assert_int_equal(sfs_flush(all.file), 0);
    assert_int_equal(statistics().cache_dirty_bytes, 0);
    uint64_t encoded = statistics().chunks_encoded;
    assert_in_range(encoded, 1, 25);
    check_everything();
    assert_int_equal(sfs_flush(all.file), 0);
    assert_int_equal(statistics().chunks_encoded, encoded);
    assert_int_equal(close_file(), 0);
}

static void much_that_is_dirty_is_encoded_without_a_flush(void **state)
{
    (void)state;
    uint32_t elements[ROWS * COLUMNS];
    struct sfs_slab whole = {.rank = 2, .count = {ROWS, COLUMNS}};
    create_file(100 * KIB, 2);
    random_fill(elements, sizeof(elements));
    assert_int_equal(sfs_write(all.dataset[0], &whole, elements), 0);
    assert_int_equal(sfs_write(all.dataset[2], &whole, elements), 0);
    while (statistics().cache_dirty_bytes > 30 * KIB)
        nanosleep(&(struct timespec){.tv_nsec = 5000000}, NULL);
    assert_true(statistics().chunks_encoded > 0);
    assert_in_range(statistics().cache_dirty_bytes, 1, 30 * KIB);
    set_model(0, &whole, elements);
    set_model(2, &whole, elements);
    check_everything();
    assert_int_equal(close_file(), 0);
}

/* A frame of 64 KiB in which every element is defined: its selection is nothing beside its values.
 */
static void values_go_before_selections(void **state)
{
    (void)state;
    enum { CHUNKS = 20, ELEMENTS = 16384 };
    static uint32_t elements[ELEMENTS];
    struct sfs_options options = {.replace = true, .cache_size = 300 * KIB, .workers = 1};
    struct sfs_dataset_create create = {.rank = 1,
                                        .dims = {CHUNKS * ELEMENTS},
                                        .max_dims = {CHUNKS * ELEMENTS},
                                        .chunk_dims = {ELEMENTS}};
    struct sfs_dataset *dataset;
    struct sfs_defined defined;
    void *type = NULL;
    assert_int_equal(sfs_create(PATH, &options, &all.file), 0);
    assert_int_equal(sfs_type_encode("<u4", &type, &create.type.n), 0);
    create.type.bytes = type;
    assert_int_equal(sfs_dataset_create(all.file, "/x", &create, &dataset), 0);
    free(type);
    for (uint64_t k = 0; k < CHUNKS; k++) {
        struct sfs_slab slab = {.rank = 1, .start = {k * ELEMENTS}, .count = {ELEMENTS - 1}};
        assert_int_equal(sfs_write(dataset, &slab, elements), 0);
    }
    assert_int_equal(sfs_flush(all.file), 0);
    uint64_t decoded = 0;
    for (int round = 0; round < 3; round++) {
        for (uint64_t k = 0; k < CHUNKS; k++) {
            struct sfs_slab slab = {.rank = 1, .start = {k * ELEMENTS}, .count = {ELEMENTS}};
            assert_int_equal(sfs_get_defined(dataset, &slab, &defined), 0);
            assert_int_equal(defined.elements, ELEMENTS - 1);
            sfs_defined_free(&defined);
            if (round == 0) /* the values, too: more than there is room for */
                assert_int_equal(sfs_read(dataset, &slab, 0, elements, sizeof(elements)), 0);
        }
        if (round == 0)
            decoded = statistics().chunks_decoded;
    }
    assert_int_equal(statistics().chunks_decoded, decoded);
    sfs_dataset_close(dataset);
    assert_int_equal(sfs_close(all.file), 0);
}

/* ---- Many threads, and the limit ---- */

#define WRITERS 6
#define READERS 2

static struct {
    atomic_int running, failures;
    atomic_bool stop;
    unsigned rounds;
    uint64_t most_bytes;
} shared;

static void expect(bool good)
{
    if (!good)
        atomic_fetch_add(&shared.failures, 1);
}

/* An element says where it is; the rest is which write made it. */
static uint32_t signed_element(uint64_t row, uint64_t column, uint32_t version)
{
    return (uint32_t)(row * COLUMNS + column + 1) << 16 | (version & 0xFFFF);
}

static void write_own_rows(uint64_t own, uint32_t version)
{
    uint32_t elements[COLUMNS];
    size_t i = random_below(KINDS);
    uint64_t row = own + WRITERS * random_below(ROWS / WRITERS);
    struct sfs_slab slab = {.rank = 2, .start = {row, random_below(COLUMNS)}, .count = {1, 1}};
    slab.count[1] = random_between(1, COLUMNS - slab.start[1]);
    if (random_below(4) == 0) {
        slab.start[1] = 0;
        slab.count[1] = COLUMNS;
    }
    bool erases = !kinds[i].is_dense && random_below(4) == 0;
    for (uint64_t c = 0; c < slab.count[1]; c++)
        elements[c] = signed_element(row, slab.start[1] + c, version);
    expect((erases ? sfs_erase(all.dataset[i], &slab)
                   : sfs_write(all.dataset[i], &slab, elements)) == 0);
    set_model(i, &slab, erases ? NULL : elements);
    uint32_t back[COLUMNS];
    expect(sfs_read(all.dataset[i], &slab, 0, back, slab.count[1] * sizeof(*back)) == 0);
    expect(!memcmp(back, &all.element[i][row][slab.start[1]], slab.count[1] * sizeof(*back)));
}

static void *write_all(void *argument)
{
    uint64_t own = (uint64_t)(uintptr_t)argument;
    random_seed(own + 1);
    for (uint32_t version = 1; version <= shared.rounds; version++)
        write_own_rows(own, version);
    atomic_fetch_sub(&shared.running, 1);
    return NULL;
}

static void *read_all(void *argument)
{
    static _Thread_local uint32_t elements[ROWS * COLUMNS];
    random_seed((uint64_t)(uintptr_t)argument);
    while (atomic_load(&shared.running) > 0) {
        struct sfs_slab slab = random_slab();
        struct sfs_defined defined;
        size_t i = random_below(KINDS);
        uint64_t n = slab.count[0] * slab.count[1], counted;
        expect(sfs_read(all.dataset[i], &slab, 0, elements, n * sizeof(*elements)) == 0);
        for (uint64_t k = 0; k < n; k++) {
            uint64_t row = slab.start[0] + k / slab.count[1];
            uint64_t column = slab.start[1] + k % slab.count[1];
            /* Of what is written in place the kernel shows a part while it copies. */
            expect(kinds[i].is_contiguous || elements[k] == kinds[i].fill ||
                   elements[k] >> 16 == (uint32_t)(row * COLUMNS + column + 1));
        }
        expect(sfs_count_defined(all.dataset[i], &slab, &counted) == 0 && counted <= n);
        int error = sfs_get_defined(all.dataset[i], &slab, &defined);
        expect(!error && defined.elements <= n);
        sfs_defined_free(&defined);
    }
    return NULL;
}

static void *flush_often(void *argument)
{
    random_seed((uint64_t)(uintptr_t)argument);
    while (atomic_load(&shared.running) > 0) {
        expect(sfs_flush(all.file) == 0);
        expect(sfs_set_cache_size(all.file, some_limit()) == 0);
        nanosleep(&(struct timespec){.tv_nsec = 3000000}, NULL);
    }
    return NULL;
}

static void *sample(void *argument)
{
    (void)argument;
    while (!atomic_load(&shared.stop)) {
        uint64_t bytes = statistics().cache_bytes;
        if (bytes > shared.most_bytes)
            shared.most_bytes = bytes;
        nanosleep(&(struct timespec){.tv_nsec = 50000}, NULL);
    }
    return NULL;
}

static void run_threads(unsigned rounds)
{
    pthread_t threads[WRITERS + READERS + 1], sampler;
    atomic_store(&shared.running, WRITERS);
    atomic_store(&shared.failures, 0);
    atomic_store(&shared.stop, false);
    shared.rounds = rounds;
    shared.most_bytes = 0;
    start_thread(&sampler, sample, NULL);
    for (uintptr_t k = 0; k < COUNT(threads); k++) {
        void *(*work)(void *) = k < WRITERS             ? write_all
                                : k < WRITERS + READERS ? read_all
                                                        : flush_often;
        start_thread(&threads[k], work, (void *)k);
    }
    for (size_t k = 0; k < COUNT(threads); k++)
        pthread_join(threads[k], NULL);
    atomic_store(&shared.stop, true);
    pthread_join(sampler, NULL);
    assert_int_equal(atomic_load(&shared.failures), 0);
}

static unsigned rounds_of(unsigned usual)
{
    const char *times = getenv("TEST_TIMES");
    return times ? usual * (unsigned)atoi(times) : usual;
}

static void many_threads_lose_nothing(void **state)
{
    (void)state;
    static const size_t limits[] = {4 * KIB, 30 * KIB, 150 * KIB, 16 * MIB};
    for (size_t k = 0; k < COUNT(limits); k++) {
        create_file(limits[k], 2);
        run_threads(rounds_of(300));
        check_everything();
        assert_int_equal(close_file(), 0);
        open_file(limits[k], false);
        check_everything();
        assert_int_equal(close_file(), 0);
    }
}

/* ---- The limit ---- */

#define FRAMES 160
#define SIDE   128

static struct sfs_dataset *frames[2];

static void *write_frames(void *argument)
{
    static _Thread_local uint32_t elements[SIDE * SIDE];
    random_seed((uint64_t)(uintptr_t)argument + 99);
    for (unsigned round = 0; round < shared.rounds; round++) {
        struct sfs_slab slab = {
            .rank = 3, .start = {random_below(FRAMES)}, .count = {1, SIDE, SIDE}};
        struct sfs_dataset *dataset = frames[random_below(2)];
        if (random_below(3)) {
            slab.count[1] = random_between(1, SIDE);
            slab.start[1] = random_below(SIDE - slab.count[1] + 1);
        }
        for (size_t k = 0; k < SIDE * SIDE; k++)
            elements[k] = (uint32_t)(random_next() & 0xFFF);
        if (random_below(4) == 0)
            expect(sfs_read(dataset, &slab, 0, elements,
                            slab.count[1] * SIDE * sizeof(*elements)) == 0);
        else
            expect(sfs_write(dataset, &slab, elements) == 0);
    }
    return NULL;
}

/* Two datasets of 10 MiB each under a limit of 2 MiB, in chunks of 64 KiB. */
static void the_limit_holds_while_all_is_written(void **state)
{
    (void)state;
    enum { LIMIT = 2 << 20 };
    struct sfs_options options = {.replace = true, .cache_size = LIMIT, .workers = 2};
    void *type = NULL;
    pthread_t threads[8], sampler;
    assert_int_equal(sfs_create(PATH, &options, &all.file), 0);
    for (int i = 0; i < 2; i++) {
        struct sfs_dataset_create create = {.rank = 3,
                                            .dims = {FRAMES, SIDE, SIDE},
                                            .max_dims = {FRAMES, SIDE, SIDE},
                                            .chunk_dims = {1, SIDE, SIDE},
                                            .is_dense = i,
                                            .n_filters = {0, 2},
                                            .filters = {NULL, shuffle_deflate}};
        assert_int_equal(sfs_type_encode("<u4", &type, &create.type.n), 0);
        create.type.bytes = type;
        assert_int_equal(sfs_dataset_create(all.file, i ? "/d" : "/s", &create, &frames[i]), 0);
        free(type);
    }
    shared.rounds = rounds_of(100);
    shared.most_bytes = 0;
    atomic_store(&shared.failures, 0);
    atomic_store(&shared.stop, false);
    start_thread(&sampler, sample, NULL);
    for (uintptr_t k = 0; k < COUNT(threads); k++)
        start_thread(&threads[k], write_frames, (void *)k);
    for (size_t k = 0; k < COUNT(threads); k++)
        pthread_join(threads[k], NULL);
    atomic_store(&shared.stop, true);
    pthread_join(sampler, NULL);
    assert_int_equal(atomic_load(&shared.failures), 0);
    assert_in_range(shared.most_bytes, LIMIT / 2, LIMIT + LIMIT / 10);
    assert_int_equal(statistics().cache_limit, LIMIT);
    for (int i = 0; i < 2; i++)
        sfs_dataset_close(frames[i]);
    assert_int_equal(sfs_close(all.file), 0);
}

/* ---- Disks that are full ---- */

static void limit_files(rlim_t bytes)
{
    struct rlimit limit;
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &limit), 0);
    limit.rlim_cur = bytes;
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &limit), 0);
}

static bool is_full(int error)
{
    return error == -EFBIG || error == -ENOSPC;
}

/* Writes that are refused are not in the model; returns whether any was. */
static bool write_on_a_full_disk(void)
{
    uint32_t elements[ROWS * COLUMNS];
    bool refused = false;
    for (int round = 0; round < 60; round++) {
        size_t i = random_below(KINDS);
        uint64_t row = random_below(ROWS);
        struct sfs_slab slab = {.rank = 2, .start = {row, 0}, .count = {1, COLUMNS}};
        if (kinds[i].chunk_dims[0] % 16 == 0) { /* in one chunk: all of it is written or nothing */
            slab.start[1] = 24 * random_below(4);
            slab.count[1] = 24;
        }
        random_fill(elements, sizeof(elements));
        int error = sfs_write(all.dataset[i], &slab, elements);
        assert_true(error == 0 || is_full(error));
        refused |= error != 0;
        if (!error)
            set_model(i, &slab, elements);
    }
    return refused;
}

static void a_full_disk_loses_nothing(void **state)
{
    (void)state;
    static const size_t limits[] = {12 * KIB, 60 * KIB, 16 * MIB};
    unsigned refusals = 0, failures = 0;
    log_quietly();
    signal(SIGXFSZ, SIG_IGN);
    for (size_t k = 0; k < 3 * COUNT(limits); k++) {
        struct stat st;
        create_file(limits[k / 3], k % 2 + 1);
        for (int round = 0; round < 100; round++)
            do_something();
        assert_int_equal(sfs_flush(all.file), 0);
        assert_int_equal(stat(PATH, &st), 0);
        limit_files((rlim_t)st.st_size + 100 * (k % 3));
        refusals += write_on_a_full_disk();
        int error = sfs_flush(all.file);
        assert_true(error == 0 || is_full(error));
        if (error)
            assert_true(is_full(sfs_flush(all.file)));
        failures += error != 0;
        check_everything();
        limit_files(RLIM_INFINITY);
        assert_int_equal(sfs_flush(all.file), 0);
        assert_int_equal(statistics().cache_dirty_bytes, 0);
        check_everything();
        assert_int_equal(close_file(), 0);
        open_file(limits[k / 3], true);
        check_everything();
        assert_int_equal(close_file(), 0);
    }
    assert_true(refusals > 0);
    assert_true(failures > 0);
}

static void create_frames(const char *path, struct sfs_dataset_create *create, int i)
{
    void *type = NULL;
    assert_int_equal(sfs_type_encode("<u4", &type, &create->type.n), 0);
    create->type.bytes = type;
    assert_int_equal(sfs_dataset_create(all.file, path, create, &frames[i]), 0);
    free(type);
}

/* Thousands of small chunks that cannot be stored, and 10 MiB that are read beside them. */
static void the_limit_holds_beside_what_cannot_be_stored(void **state)
{
    (void)state;
    enum { LIMIT = 4 << 20, SMALL = 2000 };
    static uint32_t elements[SIDE * SIDE], small[SMALL], found[SMALL];
    struct sfs_options options = {
        .replace = true, .writable = true, .cache_size = LIMIT, .workers = 1};
    struct sfs_dataset_create of_small = {
        .rank = 1, .dims = {SMALL}, .max_dims = {SMALL}, .chunk_dims = {1}};
    struct sfs_dataset_create of_large = {.rank = 3,
                                          .dims = {FRAMES, SIDE, SIDE},
                                          .max_dims = {FRAMES, SIDE, SIDE},
                                          .chunk_dims = {1, SIDE, SIDE},
                                          .is_dense = true,
                                          .n_filters = {0, 2},
                                          .filters = {NULL, shuffle_deflate}};
    struct sfs_slab frame = {.rank = 3, .count = {1, SIDE, SIDE}};
    struct sfs_slab row = {.rank = 1, .count = {SMALL}};
    struct stat st;
    log_quietly();
    signal(SIGXFSZ, SIG_IGN);
    assert_int_equal(sfs_create(PATH, &options, &all.file), 0);
    create_frames("/small", &of_small, 0);
    create_frames("/large", &of_large, 1);
    for (frame.start[0] = 0; frame.start[0] < FRAMES; frame.start[0]++)
        assert_int_equal(sfs_write(frames[1], &frame, elements), 0);
    sfs_dataset_close(frames[1]);
    sfs_dataset_close(frames[0]);
    assert_int_equal(sfs_close(all.file), 0);

    assert_int_equal(sfs_open(PATH, &options, &all.file), 0);
    for (int i = 0; i < 2; i++) {
        uint64_t address;
        const char *path = i ? "/large" : "/small";
        assert_int_equal(sfs_find(all.file, sfs_root(all.file), path, &address), 0);
        assert_int_equal(sfs_dataset_open(all.file, address, path, &frames[i]), 0);
    }
    assert_int_equal(stat(PATH, &st), 0);
    limit_files((rlim_t)st.st_size);
    random_fill(small, sizeof(small));
    assert_int_equal(sfs_write(frames[0], &row, small), 0);
    assert_true(is_full(sfs_flush(all.file)));
    for (frame.start[0] = 0; frame.start[0] < FRAMES; frame.start[0]++) {
        assert_int_equal(sfs_read(frames[1], &frame, 0, elements, sizeof(elements)), 0);
        assert_in_range(statistics().cache_bytes, 1, LIMIT);
    }
    assert_in_range(statistics().cache_dirty_bytes, SMALL * sizeof(*small), LIMIT);
    limit_files(RLIM_INFINITY);
    assert_int_equal(sfs_flush(all.file), 0);
    assert_int_equal(statistics().cache_dirty_bytes, 0);
    assert_int_equal(sfs_read(frames[0], &row, 0, found, sizeof(found)), 0);
    assert_memory_equal(found, small, sizeof(small));
    for (int i = 0; i < 2; i++)
        sfs_dataset_close(frames[i]);
    assert_int_equal(sfs_close(all.file), 0);
}

TEST_MAIN(cmocka_unit_test(what_is_written_is_there),
          cmocka_unit_test(counting_and_small_writes_encode_nothing),
          cmocka_unit_test(much_that_is_dirty_is_encoded_without_a_flush),
          cmocka_unit_test(values_go_before_selections),
          cmocka_unit_test(many_threads_lose_nothing),
          cmocka_unit_test(the_limit_holds_while_all_is_written),
          cmocka_unit_test(a_full_disk_loses_nothing),
          cmocka_unit_test(the_limit_holds_beside_what_cannot_be_stored))
