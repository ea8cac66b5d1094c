/* Snapshots of a store: against a model that has a copy of every committed byte, for stores over
 * files and in memory. */
#include "support.h"

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "store/store.h"

#define MOST      ((uint64_t)1 << 20)
#define PIECES    64
#define SNAPSHOTS 4

/* ---- The model ---- */

struct piece {
    uint64_t address, n; /* n 0: none */
};

struct committed {
    unsigned char bytes[MOST];
    struct piece pieces[PIECES];
    uint64_t end;
};

static struct {
    struct committed now, committed;
    struct {
        struct store_snapshot *snapshot;
        struct committed state;
    } taken[SNAPSHOTS];
} * model;

static void allocate_piece(struct store *store, struct piece *piece)
{
    uint64_t n = random_between(1, random_below(4) ? 300 : 9000);
    if (store_size(store) + n > MOST)
        return;
    assert_int_equal(store_allocate(store, n, &piece->address), 0);
    piece->n = n;
    memset(model->now.bytes + piece->address, 0, n);
    assert_int_equal(store_write(store, piece->address, model->now.bytes + piece->address, n), 0);
}

static void write_piece(struct store *store, const struct piece *piece)
{
    uint64_t from = random_below(piece->n), n = random_between(1, piece->n - from);
    unsigned char *bytes = model->now.bytes + piece->address + from;
    random_fill(bytes, n);
    assert_int_equal(store_write(store, piece->address + from, bytes, n), 0);
}

static void commit(struct store *store)
{
    assert_int_equal(store_commit(store), 0);
    model->committed = model->now;
    model->committed.end = store_committed_size(store);
}

/* What is in a piece is as it was committed; what is in none is zero. */
static void expect_state(struct store_snapshot *snapshot, const struct committed *state)
{
    static unsigned char expected[MOST], found[MOST];
    uint64_t end = store_snapshot_size(snapshot);
    assert_int_equal(end, state->end);
    memset(expected, 0, end);
    for (int i = 0; i < PIECES; i++)
        if (state->pieces[i].n > 0)
            memcpy(expected + state->pieces[i].address, state->bytes + state->pieces[i].address,
                   state->pieces[i].n);
    for (uint64_t at = 0; at < end;) {
        uint64_t n = random_between(1, end - at);
        assert_int_equal(store_snapshot_read(snapshot, at, found + at, n), 0);
        at += n;
    }
    assert_memory_equal(found, expected, end);
    assert_int_equal(store_snapshot_read(snapshot, end, found, 1), -EINVAL);
    assert_int_equal(store_snapshot_read(snapshot, UINT64_MAX, found, 2), -EINVAL);
}

static void step(struct store *store)
{
    struct piece *piece = &model->now.pieces[random_below(PIECES)];
    size_t i = random_below(SNAPSHOTS);
    switch (random_below(12)) {
    case 0:
        commit(store);
        break;
    case 1:
        if (model->taken[i].snapshot) {
            expect_state(model->taken[i].snapshot, &model->taken[i].state);
            store_snapshot_close(model->taken[i].snapshot);
            model->taken[i].snapshot = NULL;
        } else {
            assert_int_equal(store_snapshot_open(store, &model->taken[i].snapshot), 0);
            model->taken[i].state = model->committed;
        }
        break;
    case 2:
        if (model->taken[i].snapshot)
            expect_state(model->taken[i].snapshot, &model->taken[i].state);
        break;
    case 3:
    case 4:
        if (piece->n > 0) {
            assert_int_equal(store_free(store, piece->address, piece->n), 0);
            piece->n = 0;
        }
        break;
    default:
        if (piece->n > 0)
            write_piece(store, piece);
        else
            allocate_piece(store, piece);
    }
}

static void expect_store(struct store *store)
{
    static unsigned char found[MOST];
    for (int i = 0; i < PIECES; i++) {
        const struct piece *piece = &model->now.pieces[i];
        if (piece->n == 0)
            continue;
        assert_int_equal(store_read(store, piece->address, found, piece->n), 0);
        assert_memory_equal(found, model->now.bytes + piece->address, piece->n);
    }
}

static void run_model(struct store *store)
{
    model = calloc(1, sizeof(*model));
    assert_non_null(model);
    allocate_piece(store, &model->now.pieces[0]);
    commit(store);
    for (int i = 0; i < 3000; i++)
        step(store);
    expect_store(store);
    for (int i = 0; i < SNAPSHOTS; i++) {
        if (model->taken[i].snapshot)
            expect_state(model->taken[i].snapshot, &model->taken[i].state);
        store_snapshot_close(model->taken[i].snapshot);
    }
    /* What was held back for them is free: nothing is left but the pieces. */
    for (int i = 0; i < PIECES; i++)
        if (model->now.pieces[i].n > 0)
            assert_int_equal(
                store_free(store, model->now.pieces[i].address, model->now.pieces[i].n), 0);
    commit(store);
    assert_int_equal(store_committed_size(store), 0);
    free(model);
}

static void snapshots_of_a_file_stay_as_they_are(void **state)
{
    (void)state;
    struct store *store;
    assert_int_equal(store_create("a", true, &store), 0);
    run_model(store);
    store_close(store);
}

static void snapshots_of_an_image_stay_as_they_are(void **state)
{
    (void)state;
    struct store *store;
    struct store_image how = {.name = "image", .writable = true};
    assert_int_equal(store_open_image(NULL, 0, &how, &store), 0);
    run_model(store);
    assert_int_equal(store_close(store), 0);
}

/* ---- Space, errors ---- */

static struct store *new_store(const char *path, uint64_t n)
{
    struct store *store;
    uint64_t address;
    unsigned char *bytes = calloc(1, n);
    assert_int_equal(store_create(path, true, &store), 0);
    assert_int_equal(store_allocate(store, n, &address), 0);
    assert_int_equal(store_write(store, 0, bytes, n), 0);
    free(bytes);
    return store;
}

static void expect_none_before_a_commit(struct store *store)
{
    struct store_snapshot *snapshot;
    assert_int_equal(store_committed_size(store), 0);
    assert_int_equal(store_snapshot_open(store, &snapshot), -ENOENT);
    assert_int_equal(store_commit(store), 0);
    assert_int_equal(store_snapshot_open(store, &snapshot), 0);
    assert_int_equal(store_snapshot_size(snapshot), 100);
    store_snapshot_close(snapshot);
    store_close(store);
}

static void a_new_one_has_none_before_its_first_commit(void **state)
{
    (void)state;
    struct store *store;
    struct store_image how = {.name = "image", .writable = true};
    uint64_t address;
    expect_none_before_a_commit(new_store("new", 100));
    assert_int_equal(store_open_image(NULL, 0, &how, &store), 0);
    assert_int_equal(store_allocate(store, 100, &address), 0);
    expect_none_before_a_commit(store);
}

/* Space is held back as long as somebody needs it, and no longer. */
static void space_is_used_again_after_the_last_snapshot(void **state)
{
    (void)state;
    struct store_snapshot *first, *second;
    struct store *store = new_store("space", 3 << 20);
    uint64_t address, mebibyte = 1 << 20;
    assert_int_equal(store_commit(store), 0);
    assert_int_equal(store_snapshot_open(store, &first), 0);
    assert_int_equal(store_free(store, mebibyte, mebibyte), 0);
    assert_int_equal(store_commit(store), 0);
    assert_int_equal(store_snapshot_open(store, &second), 0); /* does not need it */
    assert_int_equal(store_allocate(store, mebibyte, &address), 0);
    assert_int_equal(address, 3 * mebibyte);
    store_snapshot_close(first);
    assert_int_equal(store_allocate(store, mebibyte, &address), 0);
    assert_int_equal(address, mebibyte);
    store_snapshot_close(second);

    /* At the end of the file, too. */
    assert_int_equal(store_commit(store), 0);
    assert_int_equal(store_snapshot_open(store, &first), 0);
    assert_int_equal(store_free(store, 3 * mebibyte, mebibyte), 0);
    assert_int_equal(store_commit(store), 0);
    assert_int_equal(store_committed_size(store), 4 * mebibyte);
    store_snapshot_close(first);
    assert_int_equal(store_commit(store), 0);
    assert_int_equal(store_committed_size(store), 3 * mebibyte);
    store_close(store);
}

/* As a damaged file may have it: two chunks in one place. */
static void what_is_held_back_is_not_freed_again(void **state)
{
    (void)state;
    struct store_snapshot *snapshot;
    struct store *store = new_store("twice", 5000);
    log_quietly();
    for (uint64_t i = 0; i < 2; i++) {
        assert_int_equal(store_commit(store), 0);
        assert_int_equal(store_snapshot_open(store, &snapshot), 0);
        assert_int_equal(store_free(store, 1000 * i, 1000), 0);
        assert_int_equal(store_commit(store), 0);
        assert_int_equal(store_free(store, 1000 * i + 999, 2), -EINVAL);
        assert_int_equal(store_check_lent(store, 1000 * i + 999, 2), -EACCES);
        store_snapshot_close(snapshot);
        assert_int_equal(store_free(store, 1000 * i, 1000), -EINVAL);
    }
    store_close(store);
}

static void snapshots_of_one_commit_are_one(void **state)
{
    (void)state;
    struct store_snapshot *first, *second, *third;
    struct store *store = new_store("one", 5000);
    unsigned char byte = 1;
    uint64_t address;
    assert_int_equal(store_commit(store), 0);
    assert_int_equal(store_snapshot_open(store, &first), 0);
    assert_int_equal(store_write(store, 17, &byte, 1), 0);
    assert_int_equal(store_snapshot_open(store, &second), 0);
    assert_ptr_equal(first, second);
    assert_int_equal(store_free(store, 0, 1000), 0);
    assert_int_equal(store_commit(store), 0);
    assert_int_equal(store_snapshot_open(store, &third), 0);
    assert_ptr_not_equal(first, third);
    store_snapshot_close(first);
    assert_int_equal(store_snapshot_read(second, 17, &byte, 1), 0);
    assert_int_equal(byte, 0);
    assert_int_equal(store_allocate(store, 1000, &address), 0);
    assert_int_equal(address, 5000); /* the second still needs what was freed */
    store_snapshot_close(second);
    assert_int_equal(store_allocate(store, 1000, &address), 0);
    assert_int_equal(address, 0);
    store_snapshot_close(third);
    store_close(store);
}

/* ---- The oldest give way to others ---- */

#define MANY 80

/* They can all be read, or those before one that can cannot. Returns how many can, and closes all. */
static int close_all(struct store_snapshot *snapshots[MANY])
{
    int n = 0;
    for (int i = 0; i < MANY; i++) {
        unsigned char byte;
        int error = store_snapshot_read(snapshots[i], 0, &byte, 1);
        assert_int_equal(error, error && n == 0 ? -ESTALE : 0);
        n += !error;
        store_snapshot_close(snapshots[i]);
    }
    return n;
}

/* What is written anew after each, and all of it needed by one: the file does not grow with their number. */
static void snapshots_hold_back_a_limited_space(void **state)
{
    (void)state;
    struct store_snapshot *snapshots[MANY];
    uint64_t head, n = (uint64_t)16 << 20, address;
    unsigned char byte;
    log_quietly();
    struct store *store = new_store("held", 1);
    assert_int_equal(store_allocate(store, n, &address), 0);
    assert_int_equal(store_commit(store), 0);
    for (int i = 0; i < MANY; i++) {
        assert_int_equal(store_snapshot_open(store, &snapshots[i]), 0);
        assert_int_equal(store_free(store, address, n), 0);
        assert_int_equal(store_allocate(store, n, &address), 0);
        byte = (unsigned char)i;
        assert_int_equal(store_write(store, address, &byte, 1), 0);
        assert_int_equal(store_commit(store), 0);
        head = address;
    }
    assert_true(store_committed_size(store) <= ((uint64_t)256 << 20) + 4 * n);
    assert_int_equal(store_read(store, head, &byte, 1), 0);
    assert_int_equal(byte, MANY - 1);
    assert_in_range(close_all(snapshots), 15, 17);
    assert_int_equal(store_allocate(store, n, &address), 0);
    assert_true(address < head || address < n + 4096); /* it is all free again */
    store_close(store);
}

/* Those of a file with many holes. */
static void snapshots_take_a_limited_memory(void **state)
{
    (void)state;
    enum { HOLES = 40000 };
    struct store_snapshot *snapshots[MANY];
    log_quietly();
    struct store *store = new_store("holes", 2 * HOLES);
    for (uint64_t i = 1; i < HOLES; i++)
        assert_int_equal(store_free(store, 2 * i, 1), 0);
    for (int i = 0; i < MANY; i++) {
        unsigned char byte = (unsigned char)i;
        assert_int_equal(store_write(store, 0, &byte, 1), 0);
        assert_int_equal(store_commit(store), 0);
        assert_int_equal(store_snapshot_open(store, &snapshots[i]), 0);
    }
    assert_in_range(close_all(snapshots), 50, 53);
    store_close(store);
}

/* More than 256 MiB changed in place: the commit goes on, the reader is told. */
static void a_snapshot_gives_way_to_the_writer(void **state)
{
    (void)state;
    uint64_t n = (uint64_t)260 << 20, part = 4 << 20;
    struct store_snapshot *snapshot;
    unsigned char *bytes = allocate(part), byte;
    log_quietly();
    struct store *store = new_store("large", n);
    assert_int_equal(store_commit(store), 0);
    assert_int_equal(store_snapshot_open(store, &snapshot), 0);
    memset(bytes, 1, part);
    assert_int_equal(store_write(store, 0, bytes, part), 0);
    assert_int_equal(store_commit(store), 0);
    assert_int_equal(store_snapshot_read(snapshot, 17, &byte, 1), 0);
    assert_int_equal(byte, 0);
    for (uint64_t at = 0; at < n; at += part)
        assert_int_equal(store_write(store, at, bytes, part), 0);
    assert_int_equal(store_commit(store), 0);
    assert_int_equal(store_snapshot_read(snapshot, 17, &byte, 1), -ESTALE);
    store_snapshot_close(snapshot);
    assert_int_equal(store_snapshot_open(store, &snapshot), 0);
    assert_int_equal(store_snapshot_read(snapshot, n - 1, &byte, 1), 0);
    assert_int_equal(byte, 1);
    store_snapshot_close(snapshot);
    store_close(store);
    free(bytes);
}

static void a_store_that_is_read_is_its_own_snapshot(void **state)
{
    (void)state;
    struct store_snapshot *snapshot;
    struct store *store = new_store("read", 5000);
    unsigned char bytes[5000], found[5000];
    random_fill(bytes, sizeof(bytes));
    assert_int_equal(store_write(store, 0, bytes, sizeof(bytes)), 0);
    assert_int_equal(store_commit(store), 0);
    store_close(store);
    assert_int_equal(store_open("read", &store), 0);
    assert_int_equal(store_snapshot_open(store, &snapshot), 0);
    assert_int_equal(store_snapshot_size(snapshot), sizeof(bytes));
    assert_int_equal(store_snapshot_read(snapshot, 0, found, sizeof(found)), 0);
    assert_memory_equal(found, bytes, sizeof(bytes));
    store_snapshot_close(snapshot);
    store_close(store);
}

/* ---- Threads ---- */

#define BLOCK  ((size_t)20000)
#define BLOCKS 8

static atomic_bool enough;

/* All blocks of a state have its number in all bytes; half of them move with each. */
static void *change(void *data)
{
    struct store *store = data;
    uint64_t at[BLOCKS];
    static unsigned char bytes[BLOCK];
    for (unsigned i = 0; i < BLOCKS; i++)
        at[i] = i * BLOCK;
    for (unsigned round = 1; !atomic_load(&enough); round++) {
        memset(bytes, (int)(round % 255 + 1), BLOCK);
        for (unsigned i = 0; i < BLOCKS; i++) {
            uint64_t old = at[i];
            bool moves = i % 2 != 0;
            if ((moves &&
                 (store_allocate(store, BLOCK, &at[i]) || store_free(store, old, BLOCK))) ||
                store_write(store, at[i], bytes, BLOCK))
                abort();
        }
        if (store_commit(store))
            abort();
    }
    return NULL;
}

static void snapshots_are_taken_while_others_write(struct store *store)
{
    pthread_t thread;
    uint64_t address;
    static unsigned char bytes[BLOCK * BLOCKS];
    assert_int_equal(store_allocate(store, sizeof(bytes), &address), 0);
    memset(bytes, 1, sizeof(bytes));
    assert_int_equal(store_write(store, 0, bytes, sizeof(bytes)), 0);
    assert_int_equal(store_commit(store), 0);
    atomic_store(&enough, false);
    start_thread(&thread, change, store);
    for (int i = 0; i < 200; i++) {
        struct store_snapshot *snapshot;
        assert_int_equal(store_snapshot_open(store, &snapshot), 0);
        uint64_t end = store_snapshot_size(snapshot), n_set = 0;
        unsigned char *found = allocate(end), number = 0;
        for (uint64_t at = 0; at < end; at += 7000) {
            uint64_t n = end - at < 7000 ? end - at : 7000;
            assert_int_equal(store_snapshot_read(snapshot, at, found + at, n), 0);
        }
        number = found[0];
        assert_true(number > 0);
        for (uint64_t at = 0; at < end; at++) {
            assert_true(found[at] == number || found[at] == 0);
            n_set += found[at] != 0;
        }
        assert_int_equal(n_set, BLOCK * BLOCKS);
        free(found);
        store_snapshot_close(snapshot);
    }
    atomic_store(&enough, true);
    pthread_join(thread, NULL);
    /* Not more is held back than one snapshot needs, and two states are written. */
    assert_true(store_size(store) <= 4 * sizeof(bytes));
    assert_int_equal(store_close(store), 0);
}

static void snapshots_of_a_file_are_taken_under_load(void **state)
{
    (void)state;
    struct store *store;
    assert_int_equal(store_create("load", true, &store), 0);
    snapshots_are_taken_while_others_write(store);
}

static void snapshots_of_an_image_are_taken_under_load(void **state)
{
    (void)state;
    struct store *store;
    struct store_image how = {.name = "image", .writable = true};
    assert_int_equal(store_open_image(NULL, 0, &how, &store), 0);
    snapshots_are_taken_while_others_write(store);
}

TEST_MAIN(cmocka_unit_test(snapshots_of_a_file_stay_as_they_are),
          cmocka_unit_test(snapshots_of_an_image_stay_as_they_are),
          cmocka_unit_test(a_new_one_has_none_before_its_first_commit),
          cmocka_unit_test(space_is_used_again_after_the_last_snapshot),
          cmocka_unit_test(what_is_held_back_is_not_freed_again),
          cmocka_unit_test(snapshots_of_one_commit_are_one),
          cmocka_unit_test(snapshots_hold_back_a_limited_space),
          cmocka_unit_test(snapshots_take_a_limited_memory),
          cmocka_unit_test(a_snapshot_gives_way_to_the_writer),
          cmocka_unit_test(a_store_that_is_read_is_its_own_snapshot),
          cmocka_unit_test(snapshots_of_a_file_are_taken_under_load),
          cmocka_unit_test(snapshots_of_an_image_are_taken_under_load), )
