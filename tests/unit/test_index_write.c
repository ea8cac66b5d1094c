/* Writing chunk indexes: against a plain table, at all sizes where they change, and byte for byte
 * against those that libhdf5 and the prototype have written with the same chunks. */
#include "support.h"

#include <errno.h>
#include <glob.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/box.h"
#include "index_files.h"

#define UNLIMITED SFS_UNLIMITED
#define FILE_NAME "written.bin"
#define ROOM      ((uint64_t)1 << 20) /* bytes of the store in which all chunks lie */

/* ---- An index in a store of its own ---- */

struct written {
    struct store *store;
    struct superblock superblock;
    struct layout_message layout;
    struct chunk_record_format format;
    uint64_t max_dims[MAX_AXES];
    struct index *index;
};

static void must(int error, const struct why *why)
{
    if (error)
        fail_msg("%s: %s", strerror(-error), why->text);
}

static void open_written(struct written *w)
{
    struct why why = {""};
    must(index_open(w->store, &w->superblock, &w->layout, &w->format, w->max_dims, &w->index, &why),
         &why);
}

static void open_store(struct written *w)
{
    unlink(FILE_NAME); /* what a failed test has left open stays locked */
    FILE *file = fopen(FILE_NAME, "w");
    assert_non_null(file);
    fclose(file);
    uint64_t address;
    assert_int_equal(store_open_writable(FILE_NAME, &w->store), 0);
    assert_int_equal(store_allocate(w->store, ROOM, &address), 0);
    w->superblock = (struct superblock){.version = 3, .offset_size = 8, .length_size = 8};
}

struct shape {
    const char *name;
    int rank;
    uint64_t dims[MAX_AXES], max_dims[MAX_AXES], chunk_dims[MAX_AXES];
    bool filtered;
};

/* w stays where it is: the index knows its superblock. */
static void begin(struct written *w, const struct shape *shape)
{
    struct why why = {""};
    *w = (struct written){0};
    open_store(w);
    memcpy(w->max_dims, shape->max_dims, sizeof(w->max_dims));
    must(layout_message_init(shape->rank, shape->dims, shape->max_dims, shape->chunk_dims, 4, 2,
                             shape->filtered, &w->layout, &why),
         &why);
    must(layout_message_records(&w->layout, shape->filtered, &w->format, &why), &why);
    open_written(w);
}

static void flush(struct written *w)
{
    struct why why = {""};
    must(index_flush(w->index, &why), &why);
}

/* Through the layout message as it is in a file, and the store as another program sees it. */
static void reopen(struct written *w)
{
    struct why why = {""};
    unsigned char *bytes;
    size_t n;
    flush(w);
    index_layout(w->index, &w->layout);
    assert_false(index_layout_changed(w->index, &w->layout));
    index_close(w->index);
    must(layout_message_encode(&w->superblock, &w->layout, &bytes, &n, &why), &why);
    struct message message = {.type = MESSAGE_LAYOUT, .data = bytes, .size = n};
    must(layout_message_decode(&w->superblock, &message, &w->layout, &why), &why);
    free(bytes);
    open_written(w);
}

static void end(struct written *w)
{
    index_close(w->index);
    store_close(w->store);
}

/* What is stored for a chunk: made from its coordinates and a number that changes with rewriting.
 */
static struct chunk_record record_of(const struct written *w, const uint64_t *scaled, uint64_t salt)
{
    uint64_t x = salt;
    for (int i = 0; i < w->layout.rank; i++)
        x = (x ^ scaled[i]) * 0x9e3779b97f4a7c15u;
    x ^= x >> 29;
    struct chunk_record r = {.exists = true, .address = x % (ROOM / 2), .size = 10 + x % 200};
    r.section_offset[1] = 5 + x % 5;
    if (w->format.form == CHUNK_STRUCTURED_FILTERED) {
        r.unfiltered_size[0] = x % 100;
        r.unfiltered_size[1] = x % (w->format.chunk_bytes + 1);
        r.filter_mask[0] = (uint32_t)x & 1;
        r.filter_mask[1] = (uint32_t)x & 3;
    }
    return r;
}

static void insert(struct written *w, const uint64_t *scaled, uint64_t salt)
{
    struct why why = {""};
    struct chunk_record record = record_of(w, scaled, salt);
    must(index_insert(w->index, scaled, &record, &why), &why);
}

static void erase(struct written *w, const uint64_t *scaled)
{
    struct why why = {""};
    must(index_remove(w->index, scaled, &why), &why);
}

/* salt 0: it does not exist. */
static void expect(struct written *w, const uint64_t *scaled, uint64_t salt)
{
    struct why why = {""};
    struct chunk_record expected = {0}, found;
    if (salt)
        expected = record_of(w, scaled, salt);
    must(index_lookup(w->index, scaled, &found, &why), &why);
    assert_memory_equal(&found, &expected, sizeof(found));
}

static int count_chunk(void *context, const uint64_t *scaled, const struct chunk_record *record)
{
    (void)scaled;
    assert_true(record->exists);
    ++*(uint64_t *)context;
    return 0;
}

static uint64_t count(struct written *w)
{
    struct why why = {""};
    uint64_t n = 0;
    must(index_iterate(w->index, count_chunk, &n, &why), &why);
    return n;
}

/* ---- Against a table ---- */

/* The chunk of a number, row-major in the current dims. */
static void chunk_number(const struct written *w, const uint64_t *grid, uint64_t i,
                         uint64_t *scaled)
{
    for (int axis = w->layout.rank - 1; axis >= 0; axis--) {
        scaled[axis] = i % grid[axis];
        i /= grid[axis];
    }
}

static void compare_with_table(struct written *w, const uint64_t *grid, const uint32_t *table,
                               uint64_t n)
{
    uint64_t exist = 0;
    for (uint64_t i = 0; i < n; i++) {
        uint64_t scaled[MAX_AXES];
        chunk_number(w, grid, i, scaled);
        expect(w, scaled, table[i]);
        exist += table[i] != 0;
    }
    assert_int_equal(count(w), exist);
}

/* Inserts, replaces and removes at random, in phases that fill the index and empty it. */
static void act_at_random(const struct shape *shape, uint64_t steps)
{
    struct written w;
    begin(&w, shape);
    uint64_t grid[MAX_AXES], n = 1;
    for (int i = 0; i < shape->rank; i++)
        n *= grid[i] = (shape->dims[i] - 1) / shape->chunk_dims[i] + 1;
    uint32_t *table = calloc(n, sizeof(*table));
    assert_non_null(table);
    for (uint64_t step = 1; step <= steps; step++) {
        uint64_t scaled[MAX_AXES], i = random_below(n);
        bool filling = step * 4 / steps % 2 == 0;
        chunk_number(&w, grid, i, scaled);
        expect(&w, scaled, table[i]);
        if (random_below(8) < (filling ? 7 : 1)) {
            table[i] = (uint32_t)random_between(1, 1000);
            insert(&w, scaled, table[i]);
        } else {
            table[i] = 0;
            erase(&w, scaled);
        }
        expect(&w, scaled, table[i]);
        if (random_below(500) == 0)
            flush(&w);
        if (random_below(3000) == 0)
            reopen(&w);
        if (step % (steps / 8) == 0)
            compare_with_table(&w, grid, table, n);
    }
    for (uint64_t i = 0; i < n; i++) {
        uint64_t scaled[MAX_AXES];
        chunk_number(&w, grid, i, scaled);
        erase(&w, scaled);
        table[i] = 0;
    }
    compare_with_table(&w, grid, table, n);
    reopen(&w);
    compare_with_table(&w, grid, table, n);
    free(table);
    end(&w);
}

static void any_index_agrees_with_a_table(void **state)
{
    (void)state;
    static const struct shape shapes[] = {
        {"single", 2, {7, 9}, {7, 9}, {7, 9}, false},
        {"single, filtered", 1, {7}, {7}, {7}, true},
        {"fixed array", 2, {20, 70}, {20, 70}, {3, 7}, false},
        {"fixed array, paged", 2, {30, 500}, {60, 500}, {3, 1}, true},
        {"extensible array", 1, {6000}, {UNLIMITED}, {1}, false},
        {"extensible array, second axis", 2, {30, 300}, {40, UNLIMITED}, {2, 1}, true},
        {"B-tree, one leaf", 2, {5, 9}, {UNLIMITED, UNLIMITED}, {1, 1}, false},
        {"B-tree", 2, {60, 100}, {UNLIMITED, UNLIMITED}, {1, 1}, false},
        {"B-tree, filtered", 3, {20, 20, 40}, {UNLIMITED, UNLIMITED, 50}, {1, 1, 1}, true},
    };
    for (size_t i = 0; i < COUNT(shapes); i++)
        act_at_random(&shapes[i], 40000);
}

/* ---- Sizes ---- */

/* Chunks 0, 1, 2, ... of an array of one axis, looked at again at each size where blocks begin. */
static void extensible_array_grows_to_two_million(void **state)
{
    (void)state;
    static const struct shape shape = {"", 1, {0}, {UNLIMITED}, {1}, false};
    struct written w;
    begin(&w, &shape);
    const uint64_t n = 2000000;
    uint64_t next_look = 1;
    for (uint64_t i = 0; i < n; i++) {
        insert(&w, &i, i + 1);
        if (i + 1 != next_look)
            continue;
        for (int64_t d = -3; d <= 2; d++) {
            uint64_t k = i + (uint64_t)d;
            if (k < n)
                expect(&w, &k, k <= i ? k + 1 : 0);
        }
        next_look = next_look < 100000 ? next_look + next_look / 7 + 1 : next_look * 2;
    }
    reopen(&w);
    for (uint64_t i = 0; i < n; i += 1 + i % 7)
        expect(&w, &i, i + 1);
    expect(&w, &n, 0);
    assert_int_equal(count(&w), n);
    end(&w);
}

static void extensible_array_takes_gaps(void **state)
{
    (void)state;
    static const struct shape shape = {"", 1, {0}, {UNLIMITED}, {1}, true};
    struct written w;
    begin(&w, &shape);
    static uint64_t set[20000];
    for (size_t i = 0; i < COUNT(set); i++) {
        set[i] = random_below((uint64_t)1 << random_between(1, 21));
        insert(&w, &set[i], 5);
    }
    uint64_t last = ((uint64_t)1 << 32) - 1;
    insert(&w, &last, 5);
    reopen(&w);
    for (size_t i = 0; i < COUNT(set); i++)
        expect(&w, &set[i], 5);
    expect(&w, &last, 5);
    end(&w);
}

static void fixed_array_takes_300000(void **state)
{
    (void)state;
    static const struct shape shape = {"", 1, {300000}, {300000}, {1}, false};
    for (uint64_t step = 1; step <= 4001; step += 4000) {
        struct written w;
        begin(&w, &shape);
        for (uint64_t i = 0; i < 300000; i += step)
            insert(&w, &i, i + 1);
        reopen(&w);
        for (uint64_t i = 0; i < 300000; i++)
            expect(&w, &i, i % step == 0 ? i + 1 : 0);
        assert_int_equal(count(&w), (300000 - 1) / step + 1);
        end(&w);
    }
}

/* At one element less and more than a page, and at eight pages, where the bitmap grows. */
static void fixed_array_of_any_size_is_written(void **state)
{
    (void)state;
    static const uint64_t sizes[] = {2, 1023, 1024, 1025, 2048, 2049, 8191, 8192, 8193};
    for (size_t k = 0; k < COUNT(sizes); k++) {
        struct shape shape = {"", 1, {sizes[k]}, {sizes[k]}, {1}, true};
        struct written w;
        begin(&w, &shape);
        for (uint64_t i = sizes[k]; i > 0; i--)
            insert(&w, &(uint64_t){i - 1}, i);
        reopen(&w);
        for (uint64_t i = 0; i < sizes[k]; i++)
            expect(&w, &i, i + 1);
        end(&w);
    }
}

static void shuffle(uint32_t *numbers, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++)
        numbers[i] = i;
    for (uint32_t i = n - 1; i > 0; i--) {
        uint32_t k = (uint32_t)random_below(i + 1), number = numbers[i];
        numbers[i] = numbers[k];
        numbers[k] = number;
    }
}

static void btree_takes_a_million_and_loses_half(void **state)
{
    (void)state;
    static const struct shape shape = {"", 2, {0, 0}, {UNLIMITED, UNLIMITED}, {1, 1}, false};
    enum { N = 1000000, COLUMNS = 1000 };
    struct written w;
    begin(&w, &shape);
    uint32_t *order = allocate(N * sizeof(*order));
    shuffle(order, N);
    for (uint32_t i = 0; i < N; i++)
        insert(&w, (uint64_t[]){order[i] / COLUMNS, order[i] % COLUMNS}, order[i] + 1);
    assert_int_equal(count(&w), N);
    for (uint32_t i = 0; i < N / 2; i++)
        erase(&w, (uint64_t[]){order[i] / COLUMNS, order[i] % COLUMNS});
    reopen(&w);
    assert_int_equal(count(&w), N / 2);
    for (uint32_t i = 0; i < N; i++)
        expect(&w, (uint64_t[]){order[i] / COLUMNS, order[i] % COLUMNS},
               i < N / 2 ? 0 : order[i] + 1);
    free(order);
    end(&w);
}

TEST_MAIN(cmocka_unit_test(any_index_agrees_with_a_table),
          cmocka_unit_test(extensible_array_grows_to_two_million),
          cmocka_unit_test(extensible_array_takes_gaps), cmocka_unit_test(fixed_array_takes_300000),
          cmocka_unit_test(fixed_array_of_any_size_is_written),
          cmocka_unit_test(btree_takes_a_million_and_loses_half))
