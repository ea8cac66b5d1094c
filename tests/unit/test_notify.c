/* The thread that invalidates has no descriptors but those that it invalidates through: nothing
 * else happens in it, also when the last who holds a node is one of its changes. */
#include "diamond.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "fs/fuse.h"
#include "fs/inode.h"
#include "fs/kernel_invalidate.h"
#include "fs/node.h"
#include "sparsefs/sparsefs.h"

#define LEVELS   15  /* of a diamond of hard links: more paths than are kept */
#define DATASETS 600 /* more than stay open */

struct mounted {
    struct sfs_file *file;
    struct nodes *nodes;
    int ends[2]; /* of a pipe: the connection, from which nothing comes */
    struct fuse_session *session;
    struct notify *notify;
};

static void make_datasets(struct sfs_file *file)
{
    struct sfs_dataset_create create = {.rank = 1, .dims = {4}, .max_dims = {4}, .chunk_dims = {4}};
    struct sfs_dataset *dataset;
    void *type;
    char path[16];
    assert_int_equal(sfs_type_encode("uint8", &type, &create.type.n), 0);
    create.type.bytes = type;
    for (unsigned i = 0; i < DATASETS; i++) {
        snprintf(path, sizeof(path), "/%u", i);
        assert_int_equal(sfs_dataset_create(file, path, &create, &dataset), 0);
        sfs_dataset_close(dataset);
    }
    free(type);
    assert_int_equal(sfs_flush(file), 0);
}

static struct mounted begin(void)
{
    static const struct fuse_lowlevel_ops nothing;
    struct sfs_options options = {.writable = true, .workers = 1};
    struct mounted mounted;
    char name[] = "test", *arguments[] = {name, NULL}, connection[32];
    struct fuse_args args = FUSE_ARGS_INIT(1, arguments);
    make_diamond("notify.h5", LEVELS);
    assert_int_equal(sfs_open("notify.h5", &options, &mounted.file), 0);
    make_datasets(mounted.file);
    assert_int_equal(nodes_create(mounted.file, false, -1, &mounted.nodes), 0);
    mounted.session = fuse_session_new(&args, &nothing, sizeof(nothing), NULL);
    fuse_opt_free_args(&args);
    assert_non_null(mounted.session);
    assert_int_equal(pipe2(mounted.ends, O_CLOEXEC), 0);
    snprintf(connection, sizeof(connection), "/dev/fd/%d", mounted.ends[0]);
    assert_int_equal(fuse_session_mount(mounted.session, connection), 0);
    assert_int_equal(notify_create(mounted.nodes, NULL, mounted.session, NULL, &mounted.notify), 0);
    return mounted;
}

/* As the kernel looks up. */
static const struct node *look_up(const struct mounted *mounted, const struct node *group,
                                  const char *name)
{
    const struct node *child;
    struct sfs_link link;
    assert_int_equal(sfs_lookup(node_file(group), group->address, name, &link), 0);
    assert_int_equal(node_child(mounted->nodes, group, &link, &child), 0);
    sfs_link_free(&link);
    node_looked_up(mounted->nodes, child->number, 1);
    node_put(mounted->nodes, child->number);
    return child;
}

/* Writes to all datasets, and returns the node of the last. */
static const struct node *write_datasets(const struct mounted *mounted)
{
    const struct node *node = NULL;
    for (unsigned i = 0; i < DATASETS; i++) {
        struct views *views;
        char name[16];
        size_t written;
        snprintf(name, sizeof(name), "%u", i);
        node = look_up(mounted, node_get(mounted->nodes, 0), name);
        assert_int_equal(node_get_views(mounted->nodes, node, &views), 0);
        assert_int_equal(
            view_write(views, VIEW_RAW, 0, &(struct view_bytes){0, "abcd", 4, false}, &written), 0);
        node_put_views(mounted->nodes, node);
    }
    return node;
}

/* The kernel looks at nodes below a group and forgets them, until there are so many. */
static void walk_below(const struct mounted *mounted, const struct node *group, unsigned levels,
                       size_t most)
{
    static const char *const names[] = {"a", "b"};
    for (size_t i = 0; i < COUNT(names) && levels > 0; i++) {
        if (nodes_count(mounted->nodes) >= most)
            return;
        const struct node *child = look_up(mounted, group, names[i]);
        walk_below(mounted, child, levels - 1, most);
        node_forgotten(mounted->nodes, child->number, 1);
    }
}

static uint64_t encoded(const struct mounted *mounted)
{
    struct sfs_statistics statistics;
    sfs_statistics(mounted->file, &statistics);
    return statistics.chunks_encoded;
}

/* One node more that nobody holds, and that which is unused for longest goes: with it the dataset
 * that was kept open for it, and as too many are that way the one that is unused for longest is
 * flushed. */
static void what_goes_with_a_change_is_flushed(void **state)
{
    (void)state;
    struct mounted mounted = begin();
    struct look look;
    const struct node *last = write_datasets(&mounted);
    const struct node *group = look_up(&mounted, node_get(mounted.nodes, 0), "a");
    const struct node *other = look_up(&mounted, node_get(mounted.nodes, 0), "b");
    const struct change change = {.node = group, .first = 1};
    node_forgotten(mounted.nodes, last->number, 1);
    notify_known(mounted.notify, (struct inode){.node = group->number, .entry = ENTRY_NODE});
    notify_begin_look(mounted.notify, &look);
    notify_begin_answer(mounted.notify, &look); /* which the thread waits for */
    notify_change(mounted.notify, &change, 0, NULL, NULL);
    node_forgotten(mounted.nodes, group->number, 1);
    size_t in_use = 1 + (DATASETS - 1) + 2; /* root, datasets, groups */
    walk_below(&mounted, other, LEVELS - 1, in_use + NODES_UNHELD);
    assert_int_equal(nodes_count(mounted.nodes), in_use + NODES_UNHELD);
    uint64_t before = encoded(&mounted);
    unsigned errors = log_errors();
    notify_end_answer(mounted.notify, &look);
    notify_destroy(mounted.notify);
    assert_int_equal(nodes_count(mounted.nodes), in_use + NODES_UNHELD - 1);
    assert_int_equal(encoded(&mounted), before + 1);
    assert_int_equal(log_errors(), errors);
    nodes_destroy(mounted.nodes);
    assert_int_equal(sfs_close(mounted.file), 0);
    fuse_session_destroy(mounted.session); /* with its end of the pipe */
    close(mounted.ends[1]);
}

/* What was read before a change is answered for the kernel to keep it for no time, however long reading took: nobody
 * waits for that. */
static void what_was_read_before_a_change_is_old(void **state)
{
    (void)state;
    struct known *known;
    struct look before, names, after;
    assert_int_equal(known_create(&known), 0);
    known_begin_look(known, &before);
    known_changed(known, false);
    known_wait_for_answers(known);
    known_begin_look(known, &names);
    known_begin_answer(known, &before);
    assert_true(before.is_old);
    assert_false(before.has_old_names);
    known_end_answer(known, &before);
    known_changed(known, true);
    known_begin_look(known, &after);
    known_begin_answer(known, &names);
    known_begin_answer(known, &after);
    assert_true(names.is_old && names.has_old_names);
    assert_false(after.is_old || after.has_old_names);
    known_end_answer(known, &names);
    known_end_answer(known, &after);
    known_wait_for_answers(known);
    known_destroy(known);
}

static int quiet(void **state)
{
    (void)state;
    log_quietly();
    return 0;
}

TEST_MAIN(cmocka_unit_test(what_was_read_before_a_change_is_old),
          cmocka_unit_test_setup(what_goes_with_a_change_is_flushed, quiet))
