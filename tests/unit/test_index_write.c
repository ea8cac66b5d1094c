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
#include "common/invariants.h"
#include "common/machine_memory.h"
#include "index/private.h"
#include "index_files.h"

#define UNLIMITED SFS_UNLIMITED
#define FILE_NAME "written.bin"
#define ROOM      ((uint64_t)1 << 20) /* bytes of the store in which all chunks lie */

/* Of the machine, for the library: large blocks take a quarter at most, and are kept up to half of that. */
static uint64_t memory;

uint64_t machine_memory(void)
{
    return memory;
}

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
    struct layout_choice choice;
};

/* w stays where it is: the index knows its superblock. */
static void begin(struct written *w, const struct shape *shape)
{
    struct why why = {""};
    *w = (struct written){0};
    open_store(w);
    memcpy(w->max_dims, shape->max_dims, sizeof(w->max_dims));
    const struct new_dataset dataset = {
        shape->rank, shape->dims, shape->max_dims, shape->chunk_dims, 4, 2, shape->filtered};
    must(layout_message_init(&dataset, &w->layout, &why), &why);
    must(layout_message_choose(&shape->choice, &w->superblock, &dataset, &w->layout, &why), &why);
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
    assert_true(chunk_record_is_same(2, &found, &expected));
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

/* What an iteration over a range tells, some chunks at a time. */
struct ranged {
    const struct written *w;
    const uint64_t *grid;
    uint32_t *left; /* of the table: what it has not told yet */
    uint64_t last[MAX_AXES];
    unsigned n;
};

static int take_chunk(void *context, const uint64_t *scaled, const struct chunk_record *record)
{
    struct ranged *ranged = context;
    uint64_t i = 0;
    for (int axis = 0; axis < ranged->w->layout.rank; axis++)
        i = i * ranged->grid[axis] + scaled[axis];
    struct chunk_record expected = record_of(ranged->w, scaled, ranged->left[i]);
    assert_true(ranged->left[i] != 0 && chunk_record_is_same(2, record, &expected));
    ranged->left[i] = 0;
    memcpy(ranged->last, scaled, sizeof(*scaled) * (size_t)ranged->w->layout.rank);
    return ++ranged->n == 5;
}

static void compare_range(struct written *w, const uint64_t *grid, const uint32_t *table,
                          uint64_t n)
{
    struct why why = {""};
    uint64_t first[MAX_AXES], last[MAX_AXES], budget = store_size(w->store);
    struct index_range range = {.first = first, .last = last, .budget = &budget};
    struct ranged ranged = {.w = w, .grid = grid, .left = calloc(n, sizeof(*table))};
    assert_non_null(ranged.left);
    for (int axis = 0; axis < w->layout.rank; axis++) {
        first[axis] = random_below(grid[axis]);
        last[axis] = first[axis] + random_below(grid[axis] - first[axis]);
    }
    for (uint64_t i = 0; i < n; i++) {
        uint64_t scaled[MAX_AXES];
        bool inside = true;
        chunk_number(w, grid, i, scaled);
        for (int axis = 0; axis < w->layout.rank; axis++)
            inside &= scaled[axis] >= first[axis] && scaled[axis] <= last[axis];
        ranged.left[i] = inside ? table[i] : 0;
    }
    do {
        ranged.n = 0;
        assert_in_range(index_iterate_in(w->index, &range, take_chunk, &ranged, &why), 0, 1);
        range.behind = ranged.last;
    } while (ranged.n == 5);
    for (uint64_t i = 0; i < n; i++)
        assert_int_equal(ranged.left[i], 0);
    free(ranged.left);
}

static void compare_with_table(struct written *w, const uint64_t *grid, const uint32_t *table,
                               uint64_t n)
{
    uint64_t exist = 0;
    for (int i = 0; i < 4; i++)
        compare_range(w, grid, table, n);
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

#define ARRAY(bits, in_index, least, blocks, page)                                                 \
    {                                                                                              \
        {                                                                                          \
            SFS_INDEX_EXTENSIBLE_ARRAY, page, bits, in_index, least, blocks                        \
        }                                                                                          \
    }
#define TREE(...)                                                                                  \
    {                                                                                              \
        {                                                                                          \
            .kind = SFS_INDEX_BTREE, .node_size = __VA_ARGS__                                      \
        }                                                                                          \
    }

/* The same with other numbers than HDF5's, at both ends of what they can be. */
static void any_numbers_agree_with_a_table(void **state)
{
    (void)state;
    static const struct shape shapes[] = {
        {"smallest pages", 2, {30, 500}, {60, 500}, {3, 1}, true, {{0, 1}}},
        {"largest pages", 2, {30, 500}, {60, 500}, {3, 1}, false, {{0, 31}}},
        {"fixed array of one", 1, {7}, {7}, {7}, true, {{SFS_INDEX_FIXED_ARRAY}}},
        {"least of all", 1, {4000}, {UNLIMITED}, {1}, false, ARRAY(12, 1, 1, 2, 1)},
        {"whole of few bits", 1, {128}, {UNLIMITED}, {1}, true, ARRAY(7, 1, 1, 2, 1)},
        {"least pages", 1, {4000}, {UNLIMITED}, {1}, true, ARRAY(32, 2, 2, 2, 2)},
        {"many direct blocks", 1, {4000}, {UNLIMITED}, {1}, false, ARRAY(17, 200, 1, 128, 8)},
        {"one byte of offset", 1, {250}, {UNLIMITED}, {1}, false, ARRAY(8, 3, 4, 4, 4)},
        {"most of all", 2, {4, 900}, {4, UNLIMITED}, {1, 1}, true, ARRAY(32, 255, 128, 128, 14)},
        {"pages that are never full", 1, {4000}, {UNLIMITED}, {1}, false, ARRAY(32, 4, 16, 4, 31)},
        {"tree of none", 2, {20, 70}, {20, 70}, {3, 7}, true, TREE(0)},
        {"tree of one", 2, {60, 50}, {UNLIMITED, 50}, {1, 1}, false, TREE(0)},
        {"least nodes", 2, {60, 50}, {UNLIMITED, 50}, {1, 1}, false, TREE(184)},
        {"nodes that split early", 1, {3000}, {UNLIMITED}, {1}, true, TREE(400, 50, 1)},
        {"largest nodes", 1, {3000}, {UNLIMITED}, {1}, false, TREE(1 << 20, 100, 49)},
        {"versions 0", 1, {4000}, {UNLIMITED}, {1}, true, {.rfc_encoding = true}},
        {"another order",
         2,
         {60, 50},
         {UNLIMITED, 50},
         {1, 1},
         true,
         {.order = SFS_LAYOUT_MESSAGE_SECTIONED}},
        {"single, another order", 1, {7}, {7}, {7}, true, {.order = SFS_LAYOUT_MESSAGE_22}},
    };
    for (size_t i = 0; i < COUNT(shapes); i++)
        act_at_random(&shapes[i], 8000);
}

/* The structures that an index without chunks has are there once, and the same as those that the
 * first chunk brings. */
static void an_index_is_made_without_chunks(void **state)
{
    (void)state;
    static const struct shape shapes[] = {
        {"single", 1, {5}, {5}, {5}, false},
        {"fixed array", 1, {50}, {50}, {5}, false, {{0, 3}}},
        {"extensible array", 1, {5}, {UNLIMITED}, {5}, true, ARRAY(20, 1, 1, 2, 1)},
        {"B-tree", 2, {5, 5}, {UNLIMITED, UNLIMITED}, {5, 1}, false, TREE(512)},
        {"no chunk is possible", 1, {0}, {0}, {5}, false},
    };
    for (size_t i = 0; i < COUNT(shapes); i++) {
        struct written w;
        struct why why = {""};
        bool has = shapes[i].max_dims[0] > 5;
        begin(&w, &shapes[i]);
        must(index_make(w.index, &why), &why);
        assert_int_equal(index_layout_changed(w.index, &w.layout), has);
        uint64_t address = w.layout.address;
        reopen(&w);
        assert_int_equal(w.layout.address != address, has);
        address = w.layout.address;
        must(index_make(w.index, &why), &why);
        assert_int_equal(count(&w), 0);
        if (shapes[i].dims[0] > 0)
            insert(&w, (uint64_t[]){0, 0}, 7);
        reopen(&w);
        assert_int_equal(count(&w), shapes[i].dims[0] > 0);
        if (has)
            assert_int_equal(w.layout.address, address);
        end(&w);
    }
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
    static bool lost[N];
    for (uint32_t i = 0; i < N / 2; i++)
        lost[order[i]] = true;
    for (uint32_t i = 0; i < N; i++)
        expect(&w, (uint64_t[]){i / COLUMNS, i % COLUMNS}, lost[i] ? 0 : i + 1);
    free(order);
    end(&w);
}

/* Its large nodes are read anew each time, as there are too many large blocks. */
static void btree_shrinks_where_nothing_is_kept(void **state)
{
    (void)state;
    enum { NODE = 1 << 16, N = 6000 };
    static const struct shape shape = {"",
                                       2,
                                       {0, 0},
                                       {UNLIMITED, UNLIMITED},
                                       {1, 1},
                                       false,
                                       {.index = {.kind = SFS_INDEX_BTREE, .node_size = NODE}}};
    static const struct block_kind kind = {.name = "another"};
    struct block *large[8];
    struct written w;
    begin(&w, &shape);
    for (uint32_t i = 0; i < N; i++)
        insert(&w, (uint64_t[]){i, 0}, i + 1);
    reopen(&w);
    memory = 4 * (COUNT(large) + 5) * NODE;
    for (size_t i = 0; i < COUNT(large); i++)
        assert_int_equal(block_make(&(struct block_place){&kind, 0, NODE, NODE}, &large[i]), 0);
    for (uint32_t i = 0; i < N; i++) {
        erase(&w, (uint64_t[]){i, 0});
        flush(&w);
        if (i + 1 < N)
            expect(&w, (uint64_t[]){N - 1, 0}, N);
        if (i % 500 == 0)
            assert_int_equal(count(&w), N - 1 - i);
    }
    for (size_t i = 0; i < COUNT(large); i++)
        block_put(large[i]);
    memory = 0;
    reopen(&w);
    assert_int_equal(count(&w), 0);
    end(&w);
}

/* ---- Byte for byte ---- */

struct image {
    unsigned char *bytes;
    size_t n;
};

static struct image read_image(const char *path)
{
    FILE *file = fopen(path, "rb");
    assert_non_null(file);
    fseek(file, 0, SEEK_END);
    struct image image = {.n = (size_t)ftell(file)};
    rewind(file);
    image.bytes = allocate(image.n);
    assert_int_equal(fread(image.bytes, 1, image.n, file), image.n);
    fclose(file);
    return image;
}

/* Two indexes of the same chunks: theirs and ours. Blocks are compared but for the addresses of
 * other blocks, which are where the index's header is, and but for checksums over those. */
struct pair {
    struct image image[2];
    uint64_t header[2];
    size_t element; /* bytes of an element or a record */
    bool exact_versions;
    size_t n_blocks; /* compared */
};

static uint64_t field(const struct pair *pair, int which, uint64_t at, unsigned width)
{
    assert_true(at + width <= pair->image[which].n);
    struct cursor c = cursor_over(pair->image[which].bytes + at, width);
    return cursor_uint(&c, width);
}

/* n bytes behind the beginnings at[0] and at[1] of two blocks. */
static void same(struct pair *pair, const uint64_t at[2], uint64_t offset, uint64_t n)
{
    assert_true(at[0] + offset + n <= pair->image[0].n && at[1] + offset + n <= pair->image[1].n);
    assert_memory_equal(pair->image[0].bytes + at[0] + offset,
                        pair->image[1].bytes + at[1] + offset, n);
}

/* Addresses of blocks; false if there is no block in either. */
static bool follow(struct pair *pair, const uint64_t at[2], uint64_t offset, uint64_t to[2])
{
    for (int k = 0; k < 2; k++)
        to[k] = field(pair, k, at[k] + offset, 8);
    assert_int_equal(to[0] == NO_ADDRESS, to[1] == NO_ADDRESS);
    pair->n_blocks += to[0] != NO_ADDRESS;
    return to[0] != NO_ADDRESS;
}

/* Signature, version, type; and the address of the header in blocks of arrays. */
static void same_begin(struct pair *pair, const uint64_t at[2], bool array)
{
    same(pair, at, 0, 4);
    same(pair, at, 5, 1);
    if (pair->exact_versions)
        same(pair, at, 4, 1);
    for (int k = 0; array && k < 2; k++)
        assert_int_equal(field(pair, k, at[k] + 6, 8), pair->header[k]);
}

static void same_fixed_array(struct pair *pair)
{
    uint64_t block[2];
    same_begin(pair, pair->header, false);
    same(pair, pair->header, 6, 10);
    if (!follow(pair, pair->header, 16, block))
        return;
    uint64_t n = field(pair, 0, pair->header[0] + 8, 8);
    uint64_t per_page = (uint64_t)1 << field(pair, 0, pair->header[0] + 7, 1);
    same_begin(pair, block, true);
    if (n <= per_page) {
        same(pair, block, 14, n * pair->element);
        return;
    }
    uint64_t n_pages = (n - 1) / per_page + 1, bitmap = (n_pages - 1) / 8 + 1;
    same(pair, block, 14, bitmap);
    for (uint64_t page = 0; page < n_pages; page++) {
        uint64_t left = n - page * per_page;
        uint64_t bytes = (left < per_page ? left : per_page) * pair->element + 4;
        if (field(pair, 0, block[0] + 14 + page / 8, 1) & 0x80 >> page % 8)
            same(pair, block, 18 + bitmap + page * (per_page * pair->element + 4), bytes);
    }
}

/* Data blocks of super block u, whose addresses stand at `addresses` in the blocks above. */
static void same_data_blocks(struct pair *pair, const uint64_t above[2], uint64_t addresses,
                             unsigned u, bool bitmap)
{
    uint64_t n = 16u << (u + 1) / 2, n_pages = n > 1024 ? n / 1024 : 0, block[2];
    for (uint64_t t = 0; t < (uint64_t)1 << u / 2; t++) {
        if (!follow(pair, above, addresses + 8 * t, block))
            continue;
        same_begin(pair, block, true);
        same(pair, block, 14, 4 + (n_pages ? 0 : n * pair->element));
        for (uint64_t page = 0; page < n_pages; page++) {
            uint64_t bit = t * n_pages + page, bytes = 1024 * pair->element + 4;
            assert_true(bitmap);
            if (field(pair, 0, above[0] + 18 + bit / 8, 1) & 0x80 >> bit % 8)
                same(pair, block, 22 + page * bytes, bytes);
        }
    }
}

/* With the standard parameters. */
static void same_extensible_array(struct pair *pair)
{
    uint64_t index_block[2], super[2];
    same_begin(pair, pair->header, false);
    same(pair, pair->header, 6, 54);
    if (!follow(pair, pair->header, 60, index_block))
        return;
    same_begin(pair, index_block, true);
    same(pair, index_block, 14, 4 * pair->element);
    uint64_t addresses = 14 + 4 * pair->element;
    for (unsigned u = 0; u < 4; u++) {
        same_data_blocks(pair, index_block, addresses, u, false);
        addresses += 8 << u / 2;
    }
    for (unsigned u = 4; u < 29; u++, addresses += 8) {
        uint64_t n = 16u << (u + 1) / 2, n_pages = n > 1024 ? n / 1024 : 0;
        uint64_t bitmaps = ((uint64_t)1 << u / 2) * ((n_pages + 7) / 8);
        if (!follow(pair, index_block, addresses, super))
            continue;
        same_begin(pair, super, true);
        same(pair, super, 14, 4 + bitmaps);
        same_data_blocks(pair, super, 18 + bitmaps, u, true);
    }
}

/* In nodes of 2048 bytes; n records in this one. */
static void same_node(struct pair *pair, const uint64_t at[2], unsigned depth, uint64_t n)
{
    uint64_t most = (2048 - 10) / pair->element, total = most, pointer = 9, child[2];
    unsigned total_bytes = 0;
    assert_true(most < 256); /* numbers of records take one byte */
    for (unsigned d = 1; d <= depth; d++) {
        pointer = 8 + 1 + total_bytes;
        most = (2048 - 10 - pointer) / (pair->element + pointer);
        total = (most + 1) * total + most;
        total_bytes = floor_log2(total) / 8 + 1;
    }
    same_begin(pair, at, false);
    same(pair, at, 6, n * pair->element);
    for (uint64_t i = 0; depth > 0 && i <= n; i++) {
        uint64_t offset = 6 + n * pair->element + i * pointer;
        assert_true(follow(pair, at, offset, child));
        same(pair, at, offset + 8, pointer - 8);
        same_node(pair, child, depth - 1, field(pair, 0, at[0] + offset + 8, 1));
    }
    uint64_t used = 10 + n * pair->element + (depth > 0 ? (n + 1) * pointer : 0);
    same(pair, at, used, 2048 - used);
}

static void same_btree(struct pair *pair)
{
    uint64_t root[2];
    same_begin(pair, pair->header, false);
    same(pair, pair->header, 6, 10);
    same(pair, pair->header, 24, 10);
    if (follow(pair, pair->header, 16, root))
        same_node(pair, root, (unsigned)field(pair, 0, pair->header[0] + 12, 2),
                  field(pair, 0, pair->header[0] + 24, 2));
}

/* Compares a flushed index with that in a file. Returns the number of blocks. */
static size_t compare_bytes(struct written *w, const char *path, const struct opened *theirs,
                            bool exact_versions)
{
    struct layout_message layout = theirs->layout;
    flush(w);
    index_layout(w->index, &layout);
    struct pair pair = {
        .image = {read_image(path), read_image(FILE_NAME)},
        .header = {theirs->layout.address, layout.address},
        .element = layout.index == INDEX_BTREE2 ? chunk_record_in_tree(&w->format, &w->superblock)
                                                : chunk_record_element(&w->format, &w->superblock),
        .exact_versions = exact_versions,
    };
    assert_int_equal(theirs->superblock.base, 0);
    assert_int_equal(pair.header[0] == NO_ADDRESS, pair.header[1] == NO_ADDRESS);
    if (pair.header[0] == NO_ADDRESS)
        ;
    else if (layout.index == INDEX_FIXED_ARRAY)
        same_fixed_array(&pair);
    else if (layout.index == INDEX_EXTENSIBLE_ARRAY)
        same_extensible_array(&pair);
    else if (layout.index == INDEX_BTREE2)
        same_btree(&pair);
    free(pair.image[0].bytes);
    free(pair.image[1].bytes);
    return pair.n_blocks;
}

/* An empty index as theirs was, in a store in which their chunks could lie. */
static void begin_like(struct written *w, const struct opened *theirs)
{
    *w = (struct written){0};
    open_store(w);
    uint64_t address;
    assert_int_equal(store_allocate(w->store, store_size(theirs->store), &address), 0);
    w->superblock.offset_size = theirs->superblock.offset_size;
    w->superblock.length_size = theirs->superblock.length_size;
    w->format = theirs->format;
    w->layout = theirs->layout;
    w->layout.address = NO_ADDRESS;
    w->layout.single = (struct chunk_record){.address = NO_ADDRESS};
    memcpy(w->max_dims, theirs->dataspace.max_dims, sizeof(w->max_dims));
    open_written(w);
}

/* The parameters that test files of dense datasets have, and the reading of which is libhdf5's. */
static void set_parameters(struct layout_message *layout)
{
    layout->page_bits = layout->data_page_bits = 10;
    layout->max_bits = 32;
    layout->index_block_elements = layout->super_block_min_blocks = 4;
    layout->data_block_min_elements = 16;
    layout->split_percent = 100;
    layout->merge_percent = 40;
}

static void copy_record(struct written *w, struct opened *theirs, const uint64_t *scaled)
{
    struct chunk_record record;
    struct why why = {""};
    must(index_lookup(theirs->index, scaled, &record, &why), &why);
    if (record.exists)
        must(index_insert(w->index, scaled, &record, &why), &why);
}

#define DENSE_FILE "dense.h5"

/* libhdf5 stores chunks at positions; its index and ours, of the same chunks in the same order. */
static void compare_with_libhdf5(const struct grid *grid, const hsize_t *positions, size_t n,
                                 size_t least_blocks)
{
    struct opened theirs;
    struct why why = {""};
    struct written w;
    make_dense(DENSE_FILE, grid, positions, n);
    must(open_index(DENSE_FILE, header_of(DENSE_FILE, "x"), &theirs, &why), &why);
    set_parameters(&theirs.layout);
    begin_like(&w, &theirs);
    for (size_t i = 0; i < n; i++) {
        uint64_t scaled[MAX_AXES];
        for (int axis = 0; axis < grid->rank; axis++)
            scaled[axis] = positions[i * (size_t)grid->rank + (size_t)axis];
        copy_record(&w, &theirs, scaled);
    }
    assert_in_range(compare_bytes(&w, DENSE_FILE, &theirs, true), least_blocks, SIZE_MAX);
    end(&w);
    close_index(&theirs);
}

static void written_bytes_are_those_of_libhdf5(void **state)
{
    (void)state;
    static const struct grid grids[] = {
        {"fixed array", false, 1, {900}, {900}, {1}},
        {"fixed array, paged", true, 1, {20000}, {20000}, {1}},
        {"extensible array", false, 2, {3, 900}, {3, H5S_UNLIMITED}, {1, 4}},
        {"extensible array, paged", true, 1, {300000}, {H5S_UNLIMITED}, {1}},
        {"B-tree", false, 2, {60, 60}, {H5S_UNLIMITED, H5S_UNLIMITED}, {1, 1}},
        {"B-tree, deep", false, 2, {120, 100}, {H5S_UNLIMITED, H5S_UNLIMITED}, {1, 1}},
        {"B-tree, filtered", true, 3, {20, 20, 20}, {H5S_UNLIMITED, H5S_UNLIMITED, 20}, {1, 1, 2}},
    };
    static const size_t least[] = {1, 1, 8, 20, 20, 130, 60};
    for (size_t g = 0; g < COUNT(grids); g++)
        for (int in_order = 0; in_order < 2; in_order++) {
            uint32_t n = 1;
            for (int axis = 0; axis < grids[g].rank; axis++)
                n *= (uint32_t)(grids[g].dims[axis] / grids[g].chunk_dims[axis]);
            uint32_t *order = allocate(n * sizeof(*order));
            shuffle(order, n);
            uint32_t m = n < 13000 ? n : 13000; /* of so many */
            hsize_t *positions = allocate(m * (size_t)grids[g].rank * sizeof(*positions));
            for (uint32_t i = 0; i < m; i++) {
                uint32_t rest = in_order ? i : order[i];
                for (int axis = grids[g].rank - 1; axis >= 0; axis--) {
                    uint32_t chunks = (uint32_t)(grids[g].dims[axis] / grids[g].chunk_dims[axis]);
                    positions[i * (uint32_t)grids[g].rank + (uint32_t)axis] = rest % chunks;
                    rest /= chunks;
                }
            }
            compare_with_libhdf5(&grids[g], positions, m, in_order ? 1 : least[g]);
            free(positions);
            free(order);
        }
}

/* libhdf5 gives up the chunks beyond a smaller extent, row by row. */
static void shrink_dense(const hsize_t *dims)
{
    hid_t file = H5Fopen(DENSE_FILE, H5F_ACC_RDWR, H5P_DEFAULT);
    hid_t dataset = H5Dopen2(file, "x", H5P_DEFAULT);
    assert_true(H5Dset_extent(dataset, dims) >= 0);
    H5Dclose(dataset);
    assert_true(H5Fclose(file) >= 0);
}

/* Rows from the end, then columns from the end, by so many at a time, until one chunk is left. */
static void removed_records_leave_the_tree_of_libhdf5(void **state)
{
    (void)state;
    static const struct grid grid = {"B-tree", false, 2, {90, 90}, {H5S_UNLIMITED, H5S_UNLIMITED},
                                     {1, 1}};
    enum { N = 90 };
    struct opened theirs;
    struct why why = {""};
    struct written w;
    static uint32_t order[N * N];
    static hsize_t positions[2 * N * N];
    shuffle(order, N * N);
    for (size_t i = 0; i < N * N; i++) {
        positions[2 * i] = order[i] / N;
        positions[2 * i + 1] = order[i] % N;
    }
    make_dense(DENSE_FILE, &grid, positions, N * N);
    must(open_index(DENSE_FILE, header_of(DENSE_FILE, "x"), &theirs, &why), &why);
    set_parameters(&theirs.layout);
    begin_like(&w, &theirs);
    for (size_t i = 0; i < N * N; i++)
        copy_record(&w, &theirs, (uint64_t[]){order[i] / N, order[i] % N});
    close_index(&theirs);

    hsize_t dims[] = {N, N};
    while (dims[0] > 1 || dims[1] > 1) {
        int axis = dims[0] >= dims[1] ? 0 : 1;
        hsize_t before = dims[axis], step = random_between(1, 20);
        dims[axis] = before > step ? before - step : 1;
        shrink_dense(dims);
        for (hsize_t row = axis == 0 ? dims[0] : 0; row < (axis == 0 ? before : dims[0]); row++)
            for (hsize_t column = axis == 1 ? dims[1] : 0; column < (axis == 1 ? before : dims[1]);
                 column++)
                erase(&w, (uint64_t[]){row, column});
        must(open_index(DENSE_FILE, header_of(DENSE_FILE, "x"), &theirs, &why), &why);
        assert_in_range(compare_bytes(&w, DENSE_FILE, &theirs, true), 1, SIZE_MAX);
        close_index(&theirs);
    }
    assert_int_equal(count(&w), 1);
    end(&w);
}

/* ---- The prototype's files ---- */

struct copy {
    struct written *w;
    struct why *why;
};

static int copy_chunk(void *context, const uint64_t *scaled, const struct chunk_record *record)
{
    struct copy *copy = context;
    return index_insert(copy->w->index, scaled, record, copy->why);
}

/* Files whose names begin with "subver1_" have other versions, which only reading knows. */
static void rewrite_prototype(const char *path)
{
    struct opened theirs;
    struct why why = {""};
    struct written w;
    must(open_index(path, header_of(path, "sparse"), &theirs, &why), &why);
    begin_like(&w, &theirs);
    struct copy copy = {&w, &why};
    must(index_iterate(theirs.index, copy_chunk, &copy, &why), &why);
    if (theirs.layout.index == INDEX_SINGLE) {
        struct layout_message layout = w.layout;
        index_layout(w.index, &layout);
        assert_true(chunk_record_is_same(layout.n_sections, &layout.single, &theirs.layout.single));
        assert_int_equal(layout.address, theirs.layout.address);
        assert_int_equal(layout.single_filtered, theirs.layout.single_filtered);
    }
    compare_bytes(&w, path, &theirs, !strstr(path, "subver1_"));
    end(&w);
    close_index(&theirs);
}

static void written_bytes_are_those_of_the_prototype(void **state)
{
    (void)state;
    const char *folder = getenv("SPARSEFS_TEST_DATA");
    char pattern[4096];
    glob_t found;
    snprintf(pattern, sizeof(pattern), "%s/prototype/*.h5", folder ? folder : EXTRA_DATA);
    if (glob(pattern, 0, NULL, &found) != 0)
        skip();
    for (size_t i = 0; i < found.gl_pathc; i++)
        rewrite_prototype(found.gl_pathv[i]);
    globfree(&found);
}

/* ---- Refusals ---- */

static int try_insert(struct written *w, const uint64_t *scaled, uint64_t address, uint64_t size)
{
    struct why why = {""};
    struct chunk_record record = {.exists = true, .address = address, .size = size};
    int error = index_insert(w->index, scaled, &record, &why);
    assert_true(!error || why.text[0]);
    return error;
}

static void what_an_index_cannot_hold_is_refused(void **state)
{
    (void)state;
    static const struct shape shapes[] = {
        {"single", 1, {5}, {5}, {5}, false},
        {"fixed array", 1, {50}, {50}, {5}, false},
        {"extensible array", 1, {5}, {UNLIMITED}, {5}, false},
        {"B-tree", 2, {5, 5}, {UNLIMITED, UNLIMITED}, {5, 1}, false},
    };
    for (size_t i = 0; i < COUNT(shapes); i++) {
        struct written w;
        begin(&w, &shapes[i]);
        uint64_t scaled[MAX_AXES] = {0};
        assert_int_equal(try_insert(&w, scaled, store_size(w.store) - 9, 10), -EINVAL);
        assert_int_equal(try_insert(&w, scaled, UINT64_MAX - 5, 10), -EINVAL);
        assert_int_equal(try_insert(&w, scaled, 0, 65536), -EFBIG); /* two bytes for the size */
        assert_true(w.layout.address == NO_ADDRESS);
        assert_false(index_layout_changed(w.index, &w.layout));
        assert_int_equal(try_insert(&w, scaled, 0, 65535), 0);
        assert_true(index_layout_changed(w.index, &w.layout));
        end(&w);
    }
}

static void chunks_outside_are_refused(void **state)
{
    (void)state;
    static const struct shape fixed = {"", 2, {50, 9}, {50, 9}, {5, 2}, false};
    static const struct shape extensible = {"", 1, {5}, {UNLIMITED}, {5}, false};
    static const struct shape large = {"", 2, {9, 9}, {1u << 20, 1u << 20}, {1, 1}, false};
    struct written w;
    begin(&w, &fixed);
    assert_int_equal(try_insert(&w, (uint64_t[]){10, 0}, 0, 10), -EINVAL);
    assert_int_equal(try_insert(&w, (uint64_t[]){0, 5}, 0, 10), -EINVAL);
    assert_int_equal(try_insert(&w, (uint64_t[]){9, 4}, 0, 10), 0);
    end(&w);
    begin(&w, &extensible);
    assert_int_equal(try_insert(&w, (uint64_t[]){(uint64_t)1 << 32}, 0, 10), -EFBIG);
    assert_int_equal(try_insert(&w, (uint64_t[]){UINT64_MAX - 1}, 0, 10), -EFBIG);
    erase(&w, (uint64_t[]){UINT64_MAX - 1});
    end(&w);
    begin(&w, &large);
    assert_int_equal(try_insert(&w, (uint64_t[]){4096, 0}, 0, 10), -EFBIG);
    end(&w);
}

/* Of a file that has them: they are refused before there is anything to store, but for those of fewer
 * elements. */
static void pages_that_memory_cannot_hold_are_refused(void **state)
{
    (void)state;
    static const struct shape shape = {"", 2, {9, 9}, {1u << 16, 1u << 16}, {1, 1}, false};
    for (unsigned page_bits = 10; page_bits <= 31; page_bits += 21) {
        struct written w;
        begin(&w, &shape);
        index_close(w.index);
        w.layout.page_bits = page_bits;
        open_written(&w);
        int error = page_bits == 10 ? 0 : -EFBIG;
        assert_int_equal(index_can_hold(w.index, (uint64_t[]){3, 4}), !error);
        assert_int_equal(try_insert(&w, (uint64_t[]){3, 4}, 0, 10), error);
        assert_int_equal(w.layout.address == NO_ADDRESS, true);
        flush(&w);
        end(&w);
    }
}

/* A file whose addresses have two bytes is full before the index is made. */
static void an_index_beyond_narrow_addresses_is_refused(void **state)
{
    (void)state;
    static const struct shape shape = {"", 1, {50}, {UNLIMITED}, {5}, false};
    struct written w;
    begin(&w, &shape);
    w.superblock.offset_size = 2;
    assert_int_equal(try_insert(&w, (uint64_t[]){0}, 0, 10), -EFBIG);
    assert_int_equal(try_insert(&w, (uint64_t[]){0}, 70000, 10), -EFBIG);
    assert_false(index_layout_changed(w.index, &w.layout));
    end(&w);
}

/* ---- Threads ---- */

struct readers {
    struct written *w;
    atomic_bool stop;
    atomic_uint_fast64_t written; /* chunks below this number exist */
    atomic_uint_fast64_t lookups;
};

static void *look_up_again(void *argument)
{
    struct readers *readers = argument;
    uint64_t x = 88172645463325252u;
    while (!atomic_load(&readers->stop)) {
        uint64_t n = atomic_load(&readers->written);
        x = x * 6364136223846793005u + 1442695040888963407u;
        uint64_t i = n ? (x >> 20) % n : 0, scaled[2] = {i / 50, i % 50};
        struct chunk_record expected = record_of(readers->w, scaled, 7), found;
        struct why why;
        if (n == 0)
            continue;
        if (index_lookup(readers->w->index, scaled, &found, &why) != 0 ||
            !chunk_record_is_same(2, &found, &expected))
            return (void *)1;
        atomic_fetch_add(&readers->lookups, 1);
    }
    return NULL;
}

static void readers_see_whole_changes(void **state)
{
    (void)state;
    static const struct shape shapes[] = {
        {"fixed array", 2, {400, 50}, {400, 50}, {1, 1}, false},
        {"extensible array", 2, {400, 50}, {UNLIMITED, 50}, {1, 1}, true},
        {"B-tree", 2, {400, 50}, {UNLIMITED, UNLIMITED}, {1, 1}, false},
    };
    for (size_t k = 0; k < COUNT(shapes); k++) {
        struct written w;
        begin(&w, &shapes[k]);
        struct readers readers = {.w = &w};
        pthread_t threads[3];
        for (size_t i = 0; i < COUNT(threads); i++)
            start_thread(&threads[i], look_up_again, &readers);
        for (uint64_t i = 0; i < 20000; i++) {
            insert(&w, (uint64_t[]){i / 50, i % 50}, 7);
            atomic_store(&readers.written, i + 1);
            if (i % 1000 == 0)
                flush(&w);
        }
        while (atomic_load(&readers.lookups) < 1000)
            usleep(1000);
        atomic_store(&readers.stop, true);
        for (size_t i = 0; i < COUNT(threads); i++) {
            void *failed;
            pthread_join(threads[i], &failed);
            assert_null(failed);
        }
        end(&w);
    }
}

/* Appending one by one and flushing each time rewrites a few blocks, however long the array is. */
static void an_append_costs_the_same_at_any_length(void **state)
{
    (void)state;
    static const struct shape shape = {"", 1, {5}, {UNLIMITED}, {5}, false};
    struct written w;
    if (SANITY)
        skip(); /* its checks read the index */
    begin(&w, &shape);
    uint64_t at = 0, most = 0;
    for (uint64_t length = 1000; length <= 1000000; length *= 10) {
        for (; at < length; at++)
            insert(&w, &at, 1);
        for (int i = 0; i < 100; i++, at++) {
            uint64_t before, after, bytes;
            flush(&w);
            store_counters(w.store, &before, &bytes);
            insert(&w, &at, 1);
            flush(&w);
            store_counters(w.store, &after, &bytes);
            most = after - before > most ? after - before : most;
        }
    }
    assert_in_range(most, 0, 3);
    end(&w);
}

TEST_MAIN(cmocka_unit_test(any_index_agrees_with_a_table),
          cmocka_unit_test(any_numbers_agree_with_a_table),
          cmocka_unit_test(an_index_is_made_without_chunks),
          cmocka_unit_test(what_an_index_cannot_hold_is_refused),
          cmocka_unit_test(chunks_outside_are_refused),
          cmocka_unit_test(pages_that_memory_cannot_hold_are_refused),
          cmocka_unit_test(an_index_beyond_narrow_addresses_is_refused),
          cmocka_unit_test(readers_see_whole_changes),
          cmocka_unit_test(an_append_costs_the_same_at_any_length),
          cmocka_unit_test(extensible_array_grows_to_two_million),
          cmocka_unit_test(extensible_array_takes_gaps), cmocka_unit_test(fixed_array_takes_300000),
          cmocka_unit_test(fixed_array_of_any_size_is_written),
          cmocka_unit_test(btree_takes_a_million_and_loses_half),
          cmocka_unit_test(btree_shrinks_where_nothing_is_kept),
          cmocka_unit_test(written_bytes_are_those_of_libhdf5),
          cmocka_unit_test(removed_records_leave_the_tree_of_libhdf5),
          cmocka_unit_test(written_bytes_are_those_of_the_prototype))
