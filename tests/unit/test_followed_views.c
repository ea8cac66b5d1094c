/* Views of a followed file that moves on between the calls by which one is made: what is read is of one state. */
#include "opened.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "view/view.h"

#define FRAMES  3
#define ROWS    1200
#define COLUMNS 1000 /* a frame is more than is read at a time */

static struct sfs_file *writer, *follower;
static struct sfs_dataset *written;
static unsigned value;
static unsigned commits; /* that are still to come, one after each call */

/* As many rows of each frame are defined as the value says, which all of their elements have. */
static void commit(void)
{
    static unsigned char elements[ROWS * COLUMNS];
    value++;
    memset(elements, (int)value, sizeof(elements));
    for (uint64_t frame = 0; frame < FRAMES; frame++) {
        struct sfs_slab slab = {.rank = 3, .start = {frame}, .count = {1, ROWS, COLUMNS}};
        assert_int_equal(sfs_erase(written, &slab), 0);
        slab.count[1] = ROWS - 200 + value;
        assert_int_equal(sfs_write(written, &slab, elements), 0);
    }
    assert_int_equal(sfs_flush(writer), 0);
}

static int move_on(int error)
{
    if (commits == 0)
        return error;
    unsigned left = commits - 1;
    commits = 0;
    commit();
    assert_int_equal(sfs_refresh(follower), 0);
    commits = left;
    return error;
}

#define WRAPPED __attribute__((visibility("default")))

int __real_sfs_read(struct sfs_dataset *dataset, const struct sfs_slab *slab, uint64_t offset,
                    void *buffer, size_t n);
int __wrap_sfs_read(struct sfs_dataset *dataset, const struct sfs_slab *slab, uint64_t offset,
                    void *buffer, size_t n);
int __real_sfs_count_defined(struct sfs_dataset *dataset, const struct sfs_slab *slab, uint64_t *n);
int __wrap_sfs_count_defined(struct sfs_dataset *dataset, const struct sfs_slab *slab, uint64_t *n);
int __real_sfs_get_defined(struct sfs_dataset *dataset, const struct sfs_slab *slab,
                           struct sfs_defined *defined);
int __wrap_sfs_get_defined(struct sfs_dataset *dataset, const struct sfs_slab *slab,
                           struct sfs_defined *defined);

WRAPPED int __wrap_sfs_read(struct sfs_dataset *dataset, const struct sfs_slab *slab,
                            uint64_t offset, void *buffer, size_t n)
{
    return move_on(__real_sfs_read(dataset, slab, offset, buffer, n));
}

WRAPPED int __wrap_sfs_count_defined(struct sfs_dataset *dataset, const struct sfs_slab *slab,
                                     uint64_t *n)
{
    return move_on(__real_sfs_count_defined(dataset, slab, n));
}

WRAPPED int __wrap_sfs_get_defined(struct sfs_dataset *dataset, const struct sfs_slab *slab,
                                   struct sfs_defined *defined)
{
    return move_on(__real_sfs_get_defined(dataset, slab, defined));
}

/* ---- */

static struct views *open_views(void)
{
    struct views *views;
    uint64_t address;
    assert_int_equal(sfs_find(follower, sfs_root(follower), "/d", &address), 0);
    assert_int_equal(views_open(follower, address, "/d", -1, &views), 0);
    return views;
}

static struct views *begin(void)
{
    void *type;
    struct sfs_dataset_create create = {.rank = 3,
                                        .dims = {FRAMES, ROWS, COLUMNS},
                                        .max_dims = {FRAMES, ROWS, COLUMNS},
                                        .chunk_dims = {1, ROWS, COLUMNS}};
    struct sfs_options options = {.replace = true};
    assert_int_equal(sfs_create("followed", &options, &writer), 0);
    assert_int_equal(sfs_type_encode("uint8", &type, &create.type.n), 0);
    create.type.bytes = type;
    assert_int_equal(sfs_dataset_create(writer, "/d", &create, &written), 0);
    free(type);
    value = 0;
    commit();
    assert_int_equal(sfs_open("followed", &(struct sfs_options){.follow = true}, &follower), 0);
    return open_views();
}

static void end(struct views *views)
{
    views_close(views);
    assert_int_equal(sfs_close(follower), 0);
    sfs_dataset_close(written);
    assert_int_equal(sfs_close(writer), 0);
}

#define MOST ((size_t)FRAMES * (ROWS + 1) * COLUMNS * 8)

/* Up to MOST bytes, while so many commits come. */
static int read_view(struct views *views, enum view_kind kind, unsigned n_commits, char *bytes,
                     size_t *n)
{
    struct view_part part;
    commits = n_commits;
    int error = view_read(views, kind, 1, &(struct view_room){0, MOST, bytes, true}, &part);
    commits = 0;
    *n = error ? 0 : part.n;
    if (!error)
        view_return(views, &part);
    return error;
}

static const enum view_kind kinds[] = {VIEW_VALUES, VIEW_PNG,         VIEW_CBF,     VIEW_DEFINED,
                                       VIEW_NPZ,    VIEW_CSR_INDICES, VIEW_CSR_DATA};

/* That of the last commit then, as one who looks at it for the first time sees. */
static void what_is_read_is_of_one_state(void **state)
{
    (void)state;
    struct views *views = begin();
    char *bytes = allocate(MOST), *expected = allocate(MOST);
    size_t n, expected_n;
    log_quietly();
    unsigned errors = log_errors();
    for (size_t i = 0; i < COUNT(kinds); i++) {
        for (unsigned n_commits = 1; n_commits <= 3; n_commits++) {
            assert_int_equal(read_view(views, kinds[i], n_commits, bytes, &n), 0);
            struct views *others = open_views();
            assert_int_equal(read_view(others, kinds[i], 0, expected, &expected_n), 0);
            assert_true(n > 0 && n == expected_n);
            assert_memory_equal(bytes, expected, n);
            views_close(others);
        }
    }
    assert_int_equal(log_errors(), errors);
    free(bytes);
    free(expected);
    end(views);
}

static void without_a_pause_it_is_said_that_there_is_none(void **state)
{
    (void)state;
    static const enum view_kind counted[] = {VIEW_VALUES, VIEW_CSR_DATA};
    struct views *views = begin();
    char *bytes = allocate(MOST);
    size_t n;
    log_quietly();
    unsigned errors = log_errors();
    for (size_t i = 0; i < COUNT(counted); i++) {
        assert_int_equal(read_view(views, counted[i], 60, bytes, &n), -EBUSY);
        assert_int_equal(read_view(views, counted[i], 0, bytes, &n), 0);
    }
    assert_int_equal(log_errors(), errors);
    free(bytes);
    end(views);
}

static void what_one_call_makes_comes_without_a_pause(void **state)
{
    (void)state;
    struct views *views = begin();
    char *bytes = allocate(MOST);
    size_t n;
    static const enum view_kind needed[] = {VIEW_PNG, VIEW_CBF, VIEW_DEFINED, VIEW_DATASET_JSON};
    for (size_t i = 0; i < COUNT(needed); i++) {
        assert_int_equal(read_view(views, needed[i], 60, bytes, &n), 0);
        assert_true(n > 0);
    }
    free(bytes);
    end(views);
}

TEST_MAIN(cmocka_unit_test(what_is_read_is_of_one_state),
          cmocka_unit_test(without_a_pause_it_is_said_that_there_is_none),
          cmocka_unit_test(what_one_call_makes_comes_without_a_pause))
