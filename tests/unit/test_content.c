/* Bytes of a file that is written piece by piece: what is new is zero, and what is taken of a view is no
 * longer than the view; what is not taken of another program's file leaves the frame as it is; and selections are
 * applied while nothing is committed. */
#include "support.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "fs/daemon/commit_and_unlock.h"
#include "fs/folder_open_files.h"
#include "fs/node.h"
#include "fs/staged_content.h"
#include "fs/staged_writes.h"
#include "fs/staging_limit.h"
#include "sparsefs/sparsefs.h"
#include "view/view.h"

#define PATH    "content.h5"
#define PRESENT 4 /* bytes of the view */
#define ASKED   10

static const unsigned char present[PRESENT] = {1, 2, 3, 4};

static struct sfs_file *make_file(void)
{
    const struct sfs_options options = {.replace = true};
    struct sfs_dataset_create create = {
        .rank = 1, .dims = {PRESENT}, .max_dims = {PRESENT}, .chunk_dims = {PRESENT}};
    const struct sfs_slab slab = {.rank = 1, .count = {PRESENT}};
    struct sfs_file *file;
    struct sfs_dataset *dataset;
    void *type;
    assert_int_equal(sfs_type_encode("u1", &type, &create.type.n), 0);
    create.type.bytes = type;
    assert_int_equal(sfs_create(PATH, &options, &file), 0);
    assert_int_equal(sfs_dataset_create(file, "/d", &create, &dataset), 0);
    assert_int_equal(sfs_write(dataset, &slab, present), 0);
    sfs_dataset_close(dataset);
    free(type);
    return file;
}

static struct views *open_views(struct sfs_file *file)
{
    struct views *views;
    struct sfs_link link;
    assert_int_equal(sfs_lookup(file, sfs_root(file), "d", &link), 0);
    assert_int_equal(views_open(file, link.address, "/d", -1, &views), 0);
    sfs_link_free(&link);
    return views;
}

static void assert_zero_behind(const struct content *content, size_t from)
{
    for (size_t i = from; i < content->n; i++)
        assert_int_equal(content->bytes[i], 0);
}

/* As when others have made the view shorter since its size was asked for. */
static void a_shorter_view_makes_a_shorter_content(void **state)
{
    (void)state;
    struct sfs_file *file = make_file();
    struct views *views = open_views(file);
    for (size_t before = 0; before <= ASKED; before += ASKED) {
        struct content content = {0};
        assert_int_equal(content_resize(&content, before, NULL), 0);
        if (before > 0)
            memset(content.bytes, 'x', before);
        assert_int_equal(content_take(&content, views, VIEW_RAW, 0, ASKED, NULL), 0);
        assert_int_equal(content.n, PRESENT);
        assert_memory_equal(content.bytes, present, PRESENT);
        assert_int_equal(content_resize(&content, ASKED, NULL), 0);
        assert_zero_behind(&content, PRESENT);
        content_free(&content, NULL);
    }
    views_close(views);
    assert_int_equal(sfs_close(file), 0);
}

#define LIMIT      100000 /* the frame as a NumPy file, in whole pages, has fewer bytes, */
#define FILE_BYTES 100001 /* and another program's more */

static const struct node *look_up(struct nodes *nodes, struct sfs_file *file)
{
    const struct node *node;
    struct sfs_link link;
    assert_int_equal(sfs_lookup(file, sfs_root(file), "d", &link), 0);
    assert_int_equal(node_child(nodes, node_get(nodes, 0), &link, &node), 0);
    sfs_link_free(&link);
    return node;
}

static void expect_present(const struct views *views)
{
    const struct sfs_slab slab = {.rank = 1, .count = {PRESENT}};
    unsigned char seen[PRESENT];
    assert_int_equal(sfs_read(views->dataset, &slab, 0, seen, PRESENT), 0);
    assert_memory_equal(seen, present, PRESENT);
}

/* However often it is tried; nothing waits to be applied. */
static void a_file_without_room_leaves_the_frame(void **state)
{
    (void)state;
    static const char other[FILE_BYTES] = "\x93NUMPY\x01\x00\xf4\x00{";
    const struct view_bytes bytes = {0, other, sizeof(other), false};
    struct sfs_file *file = make_file();
    struct nodes *nodes;
    struct staging_limit limit;
    struct staging *staging;
    struct staged_writer *staged;
    struct views *views;
    size_t written;
    bool changed;
    log_quietly();
    assert_int_equal(nodes_create(file, false, -1, &nodes), 0);
    const struct node *node = look_up(nodes, file);
    staging_limit_init(&limit, LIMIT);
    assert_int_equal(staging_create(nodes, &staging), 0);
    staging_collect(staging, &limit, false);
    assert_int_equal(node_get_views(nodes, node, &views), 0);
    assert_int_equal(staging_begin(staging, node, VIEW_NPY, 0, &staged), 0);
    for (int i = 0; i < 2; i++) {
        assert_int_equal(staging_write_dense(staging, staged, &bytes, &written), -ENOSPC);
        assert_false(staging_waits(staged));
    }
    assert_int_equal(staging_end(staging, staged, true, &changed), 0);
    assert_false(changed);
    expect_present(views);
    node_put_views(nodes, node);
    node_put(nodes, node->number);
    staging_destroy(staging);
    assert_int_equal(limit.taken, 0);
    nodes_destroy(nodes);
    assert_int_equal(sfs_close(file), 0);
}

#define WAITS 10 /* so often only a thread is asked that waits */

static bool is_given_up_waiting(void *asked)
{
    return ++*(unsigned *)asked > WAITS;
}

/* Who waits for others to hold them has changed nothing. */
static void commits_are_held_when_a_selection_is_applied(void **state)
{
    (void)state;
    struct sfs_file *file = make_file();
    const struct sfs_slab slab = {.rank = 1, .count = {PRESENT}};
    struct nodes *nodes;
    struct staging_limit limit;
    struct staging *staging;
    struct staged_writer *staged;
    struct commits *commits;
    struct defined_frame *selection;
    struct views *views;
    bool changed;
    unsigned asked = 0;
    assert_int_equal(nodes_create(file, false, -1, &nodes), 0);
    const struct node *node = look_up(nodes, file);
    assert_int_equal(commits_create(file, NULL, 0, &commits), 0);
    node->mounted->commits = commits;
    staging_limit_init(&limit, LIMIT);
    assert_int_equal(staging_create(nodes, &staging), 0);
    staging_collect(staging, &limit, false);
    assert_int_equal(node_get_views(nodes, node, &views), 0);

    /* nothing, as an empty frame has it */
    assert_int_equal(view_truncate(views, VIEW_RAW, 0, 0), 0);
    assert_int_equal(view_hold_defined(views, 0, &selection), 0);
    assert_int_equal(sfs_write(views->dataset, &slab, present), 0);
    const struct view_head nothing = view_held_bytes(selection);
    assert_int_equal(staging_begin(staging, node, VIEW_DEFINED, 0, &staged), 0);
    assert_int_equal(staging_truncate(staging, node, 0, 0, false, &changed), 0);
    assert_int_equal(staging_write(staging, staged, nothing.bytes, nothing.n, 0), 0);
    view_release_defined(views, selection);

    const struct view_hold *hold = commits_hold(commits);
    assert_int_equal(hold->begin(hold->context), 0);
    sfs_set_interrupt(is_given_up_waiting, &asked);
    assert_int_equal(staging_apply(staging, staged, &changed), -EINTR);
    sfs_set_interrupt(NULL, NULL);
    expect_present(views);
    hold->end(hold->context);
    assert_int_equal(staging_apply(staging, staged, &changed), 0);
    assert_true(changed);
    assert_true(view_is_blank(views, 0));

    assert_int_equal(staging_end(staging, staged, false, &changed), 0);
    node_put_views(nodes, node);
    node->mounted->commits = NULL;
    commits_destroy(commits);
    node_put(nodes, node->number);
    staging_destroy(staging);
    nodes_destroy(nodes);
    assert_int_equal(sfs_close(file), 0);
}

/* All of it can be taken, by whoever comes first, and again when it was given back. */
static void a_limit_is_one_for_all(void **state)
{
    (void)state;
    struct staging_limit limit;
    struct content content = {0}, other = {0};
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    staging_limit_init(&limit, 2 * page + 1);
    assert_int_equal(content_resize(&content, 1, &limit), 0);
    assert_int_equal(staging_limit_take(&limit, page + 2), -ENOSPC);
    assert_int_equal(staging_limit_take(&limit, SIZE_MAX), -ENOSPC);
    assert_int_equal(staging_limit_take(&limit, page + 1), 0);
    assert_int_equal(content_resize(&other, 1, &limit), -ENOSPC);
    content_free(&content, &limit);
    assert_int_equal(content_resize(&other, page, &limit), 0);
    assert_int_equal(staging_limit_take(&limit, 1), -ENOSPC);
    content_free(&other, &limit);
    staging_limit_give_back(&limit, page + 1);
    assert_int_equal(limit.taken, 0);
}

TEST_MAIN(cmocka_unit_test(a_limit_is_one_for_all),
          cmocka_unit_test(commits_are_held_when_a_selection_is_applied),
          cmocka_unit_test(a_shorter_view_makes_a_shorter_content),
          cmocka_unit_test(a_file_without_room_leaves_the_frame))
