/* One sparse dataset written, erased, read, listed and flushed by several threads at once under a
 * small cache: no element is lost, torn, or older than it was. And changes that depend on what they
 * find, where another thread writes in their midst. */
#include "support.h"

#include <pthread.h>
#include <sched.h>
#include <semaphore.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "dataset/private.h"
#include "hdf5/hdf5.h"
#include "sparsefs/sparsefs.h"

#define PATH    "threads.h5"
#define ROWS    48
#define COLUMNS 96
#define KEPT    36 /* rows from here on are erased now and then */
#define WRITERS 3
#define READERS 2
#define ROUNDS  400

/* The columns of a writer are every third one, so that all write to all chunks. An element is its
 * position and the number of the write that made it. */
static uint64_t element(uint64_t row, uint64_t column, uint64_t version)
{
    return (row * COLUMNS + column) << 32 | version;
}

static struct {
    struct sfs_file *file;
    struct sfs_dataset *dataset;
    uint64_t version[ROWS][COLUMNS]; /* each written by its writer alone */
    atomic_int running;              /* writers */
    atomic_int failures;
} shared;

static void expect(bool good)
{
    if (!good)
        atomic_fetch_add(&shared.failures, 1);
}

static struct sfs_slab random_slab(uint64_t first_row, uint64_t rows)
{
    struct sfs_slab slab = {.rank = 2};
    slab.start[0] = first_row + random_below(rows);
    slab.count[0] = 1 + random_below(first_row + rows - slab.start[0]);
    slab.start[1] = random_below(COLUMNS);
    slab.count[1] = 1 + random_below(COLUMNS - slab.start[1]);
    return slab;
}

static void *write_columns(void *argument)
{
    uint64_t own = (uint64_t)(uintptr_t)argument;
    static _Thread_local uint64_t values[ROWS * COLUMNS];
    static _Thread_local struct sfs_interval interval[ROWS * COLUMNS + 1];
    random_seed(own);
    for (uint64_t round = 1; round <= ROUNDS; round++) {
        struct sfs_slab slab = random_slab(0, ROWS);
        struct sfs_defined defined = {.interval = interval};
        for (uint64_t k = 0; k < slab.count[0] * slab.count[1]; k++) {
            uint64_t row = slab.start[0] + k / slab.count[1];
            uint64_t column = slab.start[1] + k % slab.count[1];
            if (column % WRITERS != own)
                continue;
            shared.version[row][column] = round;
            values[defined.n] = element(row, column, round);
            interval[defined.n] = (struct sfs_interval){k, defined.n};
            defined.n++;
        }
        interval[defined.n] = (struct sfs_interval){0, defined.n};
        defined.elements = defined.n;
        expect(sfs_write_values(shared.dataset, &slab, &defined, values) == 0);
    }
    atomic_fetch_sub(&shared.running, 1);
    return NULL;
}

static void *erase_rows(void *argument)
{
    (void)argument;
    random_seed(77);
    while (atomic_load(&shared.running) > 0) {
        struct sfs_slab slab = random_slab(KEPT, ROWS - KEPT);
        expect(sfs_erase(shared.dataset, &slab) == 0);
    }
    return NULL;
}

static void *read_slabs(void *argument)
{
    static _Thread_local uint64_t values[ROWS * COLUMNS], seen[ROWS][COLUMNS];
    random_seed(1000 + (uint64_t)(uintptr_t)argument);
    while (atomic_load(&shared.running) > 0) {
        struct sfs_slab slab = random_slab(0, ROWS);
        uint64_t n = slab.count[0] * slab.count[1];
        expect(sfs_read(shared.dataset, &slab, 0, values, n * sizeof(*values)) == 0);
        for (uint64_t k = 0; k < n; k++) {
            uint64_t row = slab.start[0] + k / slab.count[1];
            uint64_t column = slab.start[1] + k % slab.count[1];
            uint64_t version = values[k] & UINT32_MAX;
            expect(version ? values[k] == element(row, column, version) : values[k] == 0);
            if (row < KEPT)
                expect(version >= seen[row][column]);
            seen[row][column] = version;
        }
        struct sfs_defined defined;
        int error = sfs_get_defined(shared.dataset, &slab, &defined);
        expect(error == 0);
        if (!error)
            sfs_defined_free(&defined);
    }
    return NULL;
}

static int count_chunk(void *context, const struct sfs_chunk_info *info)
{
    (void)info;
    ++*(int *)context;
    return 0;
}

static void *flush(void *argument)
{
    (void)argument;
    struct sfs_slab all = {.rank = 2, .count = {ROWS, COLUMNS}};
    uint64_t elements;
    random_seed(5);
    while (atomic_load(&shared.running) > 0) {
        int chunks = 0;
        expect(sfs_flush(shared.file) == 0);
        expect(sfs_count_defined(shared.dataset, &all, &elements) == 0);
        expect(elements <= ROWS * COLUMNS);
        expect(sfs_chunk_iterate(shared.dataset, count_chunk, &chunks) == 0);
    }
    return NULL;
}

static void create(size_t cache_size, bool filtered)
{
    const unsigned level = 1;
    const struct sfs_filter deflate = {.id = 1, .n_values = 1, .values = &level};
    struct sfs_options options = {.replace = true, .cache_size = cache_size};
    struct sfs_dataset_create create = {.rank = 2,
                                        .dims = {ROWS, COLUMNS},
                                        .max_dims = {SFS_UNLIMITED, COLUMNS},
                                        .chunk_dims = {5, 17}};
    void *type = NULL;
    for (int i = 0; i < 2; i++) {
        create.n_filters[i] = filtered;
        create.filters[i] = &deflate;
    }
    assert_int_equal(sfs_type_encode("uint64", &type, &create.type.n), 0);
    create.type.bytes = type;
    assert_int_equal(sfs_create(PATH, &options, &shared.file), 0);
    assert_int_equal(sfs_dataset_create(shared.file, "/x", &create, &shared.dataset), 0);
    free(type);
}

static void run(void)
{
    pthread_t threads[WRITERS + READERS + 2];
    size_t n = 0;
    memset(shared.version, 0, sizeof(shared.version));
    atomic_store(&shared.running, WRITERS);
    for (uintptr_t i = 0; i < WRITERS; i++)
        start_thread(&threads[n++], write_columns, (void *)i);
    for (uintptr_t i = 0; i < READERS; i++)
        start_thread(&threads[n++], read_slabs, (void *)i);
    start_thread(&threads[n++], erase_rows, NULL);
    start_thread(&threads[n++], flush, NULL);
    while (n > 0)
        pthread_join(threads[--n], NULL);
    assert_int_equal(atomic_load(&shared.failures), 0);
}

/* What the writers wrote last is there, and in the rows that were erased nothing else. */
static void check_all(void)
{
    static uint64_t values[ROWS][COLUMNS];
    struct sfs_slab all = {.rank = 2, .count = {ROWS, COLUMNS}};
    assert_int_equal(sfs_read(shared.dataset, &all, 0, values, sizeof(values)), 0);
    for (uint64_t row = 0; row < ROWS; row++)
        for (uint64_t column = 0; column < COLUMNS; column++) {
            uint64_t version = shared.version[row][column];
            uint64_t last = version ? element(row, column, version) : 0;
            if (row < KEPT || values[row][column] != 0)
                assert_int_equal(values[row][column], last);
        }
}

static void threads_do_not_lose_each_others_elements(void **state)
{
    (void)state;
    for (int round = 0; round < 4; round++) {
        uint64_t address;
        create(round & 1 ? 0 : 12000, round & 2);
        run();
        check_all();
        sfs_dataset_close(shared.dataset);
        assert_int_equal(sfs_close(shared.file), 0);
        assert_int_equal(sfs_open(PATH, NULL, &shared.file), 0);
        assert_int_equal(sfs_find(shared.file, sfs_root(shared.file), "/x", &address), 0);
        assert_int_equal(sfs_dataset_open(shared.file, address, "/x", &shared.dataset), 0);
        check_all();
        sfs_dataset_close(shared.dataset);
        assert_int_equal(sfs_close(shared.file), 0);
    }
}

/* ---- Parts of an element ---- */

#define PART_ROUNDS 20000
#define PART_OFFSET (17 * 8 + 7) /* the last byte of an element */
#define PART        0xee

static pthread_barrier_t turn;

static void *write_parts(void *unused)
{
    (void)unused;
    struct sfs_slab row = {.rank = 2, .count = {1, COLUMNS}};
    const unsigned char byte = PART;
    for (int i = 0; i < PART_ROUNDS; i++) {
        pthread_barrier_wait(&turn);
        expect(sfs_write_bytes(shared.dataset, &row, PART_OFFSET, &byte, 1, i & 1) == 0);
        pthread_barrier_wait(&turn);
    }
    return NULL;
}

/* Who writes some bytes of an element leaves its others as somebody else writes them meanwhile. */
static void parts_of_elements_are_not_lost(void **state)
{
    (void)state;
    pthread_t thread;
    struct sfs_slab row = {.rank = 2, .count = {1, COLUMNS}};
    unsigned char bytes[COLUMNS * 8], found[COLUMNS * 8];
    create(0, false);
    assert_int_equal(pthread_barrier_init(&turn, NULL, 2), 0);
    start_thread(&thread, write_parts, NULL);
    for (int i = 0; i < PART_ROUNDS; i++) {
        memset(bytes, 1 + i % 200, sizeof(bytes));
        pthread_barrier_wait(&turn);
        expect(sfs_write_bytes(shared.dataset, &row, 0, bytes, sizeof(bytes), i & 2) == 0);
        pthread_barrier_wait(&turn);
        expect(sfs_read(shared.dataset, &row, 0, found, sizeof(found)) == 0);
        if (found[PART_OFFSET] == PART)
            bytes[PART_OFFSET] = PART;
        expect(memcmp(bytes, found, sizeof(bytes)) == 0);
    }
    pthread_join(thread, NULL);
    pthread_barrier_destroy(&turn);
    assert_int_equal(atomic_load(&shared.failures), 0);
    sfs_dataset_close(shared.dataset);
    assert_int_equal(sfs_close(shared.file), 0);
}

/* ---- Changes that depend on what they find ---- */

#define PAIRS 64

static struct {
    int (*write)(void);
    atomic_bool is_due;
    pthread_t thread;
    sem_t told; /* it has written, or waits until it may */
} other;

static bool tell(void *unused)
{
    (void)unused;
    sem_post(&other.told);
    return false;
}

static void *write_meanwhile(void *unused)
{
    sfs_set_interrupt(tell, NULL);
    expect(other.write() == 0);
    sem_post(&other.told);
    return unused;
}

/* In the midst of a change another thread writes, if it can. */
static void let_other_write(void)
{
    if (!atomic_exchange(&other.is_due, false))
        return;
    start_thread(&other.thread, write_meanwhile, NULL);
    sem_wait(&other.told);
}

int __real_hdf5_convert(const struct sfs_encoded *from, const struct sfs_encoded *to, size_t n,
                        void *buffer, void *background);
int __wrap_hdf5_convert(const struct sfs_encoded *from, const struct sfs_encoded *to, size_t n,
                        void *buffer, void *background);

/* By then what is kept of the elements has been read. */
int __wrap_hdf5_convert(const struct sfs_encoded *from, const struct sfs_encoded *to, size_t n,
                        void *buffer, void *background)
{
    let_other_write();
    return __real_hdf5_convert(from, to, n, buffer, background);
}

int __real_dataset_write_values(struct sfs_dataset *dataset, const struct box *box,
                                const struct sfs_defined *defined, const void *values);
int __wrap_dataset_write_values(struct sfs_dataset *dataset, const struct box *box,
                                const struct sfs_defined *defined, const void *values);

/* By then what is to become defined is known. */
int __wrap_dataset_write_values(struct sfs_dataset *dataset, const struct box *box,
                                const struct sfs_defined *defined, const void *values)
{
    let_other_write();
    return __real_dataset_write_values(dataset, box, defined, values);
}

/* Makes a change, in the midst of which another thread writes. */
static void expect_both(int (*change)(void), int (*write)(void))
{
    other.write = write;
    assert_int_equal(sem_init(&other.told, 0, 0), 0);
    atomic_store(&other.is_due, true);
    assert_int_equal(change(), 0);
    assert_false(atomic_load(&other.is_due));
    pthread_join(other.thread, NULL);
    sem_destroy(&other.told);
    assert_int_equal(atomic_load(&shared.failures), 0);
}

static const struct sfs_slab every = {.rank = 2, .count = {ROWS, COLUMNS}};

static int define_all(void)
{
    struct sfs_interval all[2] = {{0, 0}, {0, (uint64_t)ROWS * COLUMNS}};
    return sfs_set_defined(shared.dataset, &every,
                           &(struct sfs_defined){1, all, (uint64_t)ROWS * COLUMNS});
}

static int write_all(void)
{
    static uint64_t values[ROWS][COLUMNS];
    for (uint64_t i = 0; i < (uint64_t)ROWS * COLUMNS; i++)
        values[i / COLUMNS][i % COLUMNS] = i + 1;
    return sfs_write(shared.dataset, &every, values);
}

static void what_becomes_defined_is_not_lost(void **state)
{
    (void)state;
    static uint64_t values[ROWS][COLUMNS];
    create(0, false);
    expect_both(define_all, write_all);
    assert_int_equal(sfs_read(shared.dataset, &every, 0, values, sizeof(values)), 0);
    for (uint64_t i = 0; i < (uint64_t)ROWS * COLUMNS; i++)
        assert_int_equal(values[i / COLUMNS][i % COLUMNS], i + 1);
    sfs_dataset_close(shared.dataset);
    assert_int_equal(sfs_close(shared.file), 0);
}

static const struct sfs_slab pairs = {.rank = 1, .count = {PAIRS}};

static void encode_type(const char *text, struct sfs_encoded *type)
{
    void *bytes = NULL;
    expect(sfs_type_encode(text, &bytes, &type->n) == 0);
    type->bytes = bytes;
}

static int write_member(const char *text, int32_t value, bool many)
{
    int32_t values[PAIRS];
    struct sfs_encoded type;
    for (size_t i = 0; i < PAIRS; i++)
        values[i] = value;
    encode_type(text, &type);
    struct sfs_io io = {.dataset = shared.dataset, .type = &type, .from = values};
    int error = many ? sfs_write_many(&io, 1)
                     : sfs_dataset_write(shared.dataset, &type, NULL, NULL, values);
    free((void *)type.bytes);
    return error;
}

static int write_first(void)
{
    return write_member("{a:int32}", 1, false);
}

static int write_first_of_many(void)
{
    return write_member("{a:int32}", 1, true);
}

static int write_second(void)
{
    return write_member("{b:int32}", 2, false);
}

static struct sfs_dataset *add_pairs(const char *path, bool is_dense)
{
    struct sfs_dataset *dataset = NULL;
    struct sfs_dataset_create create = {.rank = 1,
                                        .dims = {PAIRS},
                                        .max_dims = {SFS_UNLIMITED},
                                        .chunk_dims = {PAIRS / 2},
                                        .is_dense = is_dense};
    encode_type("{a:int32,b:int32}", &create.type);
    assert_int_equal(sfs_dataset_create(shared.file, path, &create, &dataset), 0);
    free((void *)create.type.bytes);
    return dataset;
}

static void create_pairs(bool is_dense)
{
    struct sfs_options options = {.replace = true};
    assert_int_equal(sfs_create(PATH, &options, &shared.file), 0);
    shared.dataset = add_pairs("/x", is_dense);
}

static void members_are_not_lost(void **state)
{
    (void)state;
    int (*const changes[])(void) = {write_first, write_first_of_many};
    for (size_t i = 0; i < 2 * COUNT(changes); i++) {
        int32_t values[PAIRS][2];
        create_pairs(i / COUNT(changes));
        expect_both(changes[i % COUNT(changes)], write_second);
        assert_int_equal(sfs_read(shared.dataset, &pairs, 0, values, sizeof(values)), 0);
        for (size_t k = 0; k < PAIRS; k++) {
            assert_int_equal(values[k][0], 1);
            assert_int_equal(values[k][1], 2);
        }
        sfs_dataset_close(shared.dataset);
        assert_int_equal(sfs_close(shared.file), 0);
    }
}

/* ---- Calls inside calls ---- */

#define MOST_SECONDS 120 /* then it hangs */

static struct {
    sem_t inside, written;
    atomic_int extender; /* its number */
    pthread_t thread[3];
    bool has_waited; /* the call inside a call */
} calls;

/* Is in a call on the dataset until it has been written. */
static int wait_inside(void *unused, const struct sfs_chunk_info *info)
{
    (void)unused;
    (void)info;
    sem_post(&calls.inside);
    sem_wait(&calls.written);
    return 1;
}

static void *iterate(void *unused)
{
    expect(sfs_chunk_iterate(shared.dataset, wait_inside, NULL) == 1);
    return unused;
}

static void *extend(void *dataset)
{
    atomic_store(&calls.extender, gettid());
    expect(sfs_extend(dataset, (const uint64_t[]){PAIRS + 1}) == 0);
    return dataset;
}

/* Returns when it waits for the calls on the dataset. */
static void start_extending(pthread_t *thread, struct sfs_dataset *dataset)
{
    atomic_store(&calls.extender, 0);
    start_thread(thread, extend, dataset);
    while (!atomic_load(&calls.extender))
        sched_yield();
    wait_until_it_sleeps(atomic_load(&calls.extender));
}

/* Is in a call on the first dataset from another thread, and another one waits to extend it. */
static void begin_extending(void)
{
    start_thread(&calls.thread[0], iterate, NULL);
    sem_wait(&calls.inside);
    start_extending(&calls.thread[1], shared.dataset);
}

static void write_the_first(void)
{
    static const int32_t values[PAIRS][2] = {{1, 2}};
    expect(sfs_write(shared.dataset, &pairs, values) == 0);
}

/* From inside a call on another dataset. */
static int write_the_first_beside(void *second, const struct sfs_chunk_info *info)
{
    (void)second;
    (void)info;
    begin_extending();
    write_the_first();
    sem_post(&calls.written);
    return 1;
}

static bool note_waiting(void *unused)
{
    (void)unused;
    calls.has_waited |= !use_is_mine(&shared.dataset->use);
    return false;
}

/* Which another thread waits to extend. */
static int write_the_first_at_once(void *second, const struct sfs_chunk_info *info)
{
    (void)info;
    begin_extending();
    start_extending(&calls.thread[2], second);
    sfs_set_interrupt(note_waiting, NULL);
    write_the_first();
    sfs_set_interrupt(NULL, NULL);
    expect(!calls.has_waited);
    sem_post(&calls.written);
    return 1;
}

/* As long as the call inside a call waits, the other one ends, and then the dataset is extended. */
static bool let_it_be_extended(void *unused)
{
    (void)unused;
    if (calls.has_waited || use_is_mine(&shared.dataset->use))
        return false;
    calls.has_waited = true;
    sem_post(&calls.written);
    pthread_join(calls.thread[0], NULL);
    pthread_join(calls.thread[1], NULL);
    return false;
}

static int write_the_first_later(void *second, const struct sfs_chunk_info *info)
{
    (void)second;
    (void)info;
    begin_extending();
    sfs_set_interrupt(let_it_be_extended, NULL);
    write_the_first();
    sfs_set_interrupt(NULL, NULL);
    if (calls.has_waited)
        return 1;
    sem_post(&calls.written);
    pthread_join(calls.thread[0], NULL);
    pthread_join(calls.thread[1], NULL);
    return 1;
}

/* Iterates over a second dataset; from inside of that, what is called writes to the first one. n: threads left. */
static void iterate_over_second(sfs_chunk_function call, size_t n)
{
    static const int32_t values[PAIRS][2];
    uint64_t dims[1];
    create_pairs(false);
    struct sfs_dataset *second = add_pairs("/y", false);
    calls.has_waited = false;
    assert_int_equal(sem_init(&calls.inside, 0, 0), 0);
    assert_int_equal(sem_init(&calls.written, 0, 0), 0);
    assert_int_equal(sfs_write(shared.dataset, &pairs, values), 0);
    assert_int_equal(sfs_write(second, &pairs, values), 0);
    alarm(MOST_SECONDS);
    assert_int_equal(sfs_chunk_iterate(second, call, second), 1);
    for (size_t i = 0; i < n; i++)
        pthread_join(calls.thread[i], NULL);
    alarm(0);
    assert_int_equal(atomic_load(&shared.failures), 0);
    sfs_dataset_dims(shared.dataset, dims);
    assert_int_equal(dims[0], PAIRS + 1);
    sem_destroy(&calls.written);
    sem_destroy(&calls.inside);
    sfs_dataset_close(second);
    sfs_dataset_close(shared.dataset);
    assert_int_equal(sfs_close(shared.file), 0);
}

/* Who is in a call on one dataset does not wait for those that wait to extend another, without end: others that
 * are in a call on that may wait for this one. */
static void calls_inside_calls_do_not_wait_for_those_who_wait(void **state)
{
    (void)state;
    iterate_over_second(write_the_first_beside, 2);
}

/* And not at all if these surely may wait for it. */
static void calls_that_are_waited_for_do_not_wait(void **state)
{
    (void)state;
    iterate_over_second(write_the_first_at_once, 3);
}

/* Else they wait for some time: many of them do not keep others from extending it. But not if who waits to extend it
 * asks in that moment whether it is interrupted. */
static void calls_inside_calls_let_others_extend(void **state)
{
    (void)state;
    calls.has_waited = false;
    for (int i = 0; i < 20 && !calls.has_waited; i++)
        iterate_over_second(write_the_first_later, 0);
    assert_true(calls.has_waited);
}

TEST_MAIN(cmocka_unit_test(threads_do_not_lose_each_others_elements),
          cmocka_unit_test(parts_of_elements_are_not_lost),
          cmocka_unit_test(what_becomes_defined_is_not_lost),
          cmocka_unit_test(members_are_not_lost),
          cmocka_unit_test(calls_inside_calls_do_not_wait_for_those_who_wait),
          cmocka_unit_test(calls_that_are_waited_for_do_not_wait),
          cmocka_unit_test(calls_inside_calls_let_others_extend))
