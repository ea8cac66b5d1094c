/* The thread that invalidates has no descriptors but those that it invalidates through: nothing
 * else happens in it, also when the last who holds a node is one of its changes. */
#include "diamond.h"

#include <dirent.h>
#include <fcntl.h>
#include <linux/fuse.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "common/clock.h"

#include "fs/fuse.h"
#include "fs/inode.h"
#include "fs/kernel_invalidate.h"
#include "fs/node.h"
#include "sparsefs/sparsefs.h"

#define LEVELS   15  /* of a diamond of hard links: more paths than are kept */
#define DATASETS 600 /* more than stay open */
#define FRAMES   100000
#define WORKERS  32 /* that invalidate, at most */

struct mounted {
    struct sfs_file *file;
    struct nodes *nodes;
    int ends[2]; /* of the connection: ours, and what stands for the kernel */
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

static void make_stack(struct sfs_file *file)
{
    struct sfs_dataset_create create = {
        .rank = 3, .dims = {FRAMES, 2, 2}, .max_dims = {FRAMES, 2, 2}, .chunk_dims = {64, 2, 2}};
    struct sfs_dataset *dataset;
    void *type;
    assert_int_equal(sfs_type_encode("uint8", &type, &create.type.n), 0);
    create.type.bytes = type;
    assert_int_equal(sfs_dataset_create(file, "/stack", &create, &dataset), 0);
    sfs_dataset_close(dataset);
    free(type);
}

static void begin_with(struct mounted *mounted, const char *path, bool with_datasets,
                       const struct fuse_lowlevel_ops *ops)
{
    struct sfs_options options = {.writable = true, .workers = 1};
    char name[] = "test", *arguments[] = {name, NULL}, connection[32];
    struct fuse_args args = FUSE_ARGS_INIT(1, arguments);
    make_diamond(path, LEVELS);
    assert_int_equal(sfs_open(path, &options, &mounted->file), 0);
    (with_datasets ? make_datasets : make_stack)(mounted->file);
    assert_int_equal(nodes_create(mounted->file, false, -1, &mounted->nodes), 0);
    mounted->session = fuse_session_new(&args, ops, sizeof(*ops), NULL);
    fuse_opt_free_args(&args);
    assert_non_null(mounted->session);
    assert_int_equal(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, mounted->ends), 0);
    snprintf(connection, sizeof(connection), "/dev/fd/%d", mounted->ends[0]);
    assert_int_equal(fuse_session_mount(mounted->session, connection), 0);
    assert_int_equal(notify_create(mounted->nodes, NULL, mounted->session, NULL, &mounted->notify),
                     0);
}

static struct mounted begin(void)
{
    static const struct fuse_lowlevel_ops nothing;
    struct mounted mounted;
    begin_with(&mounted, "notify.h5", true, &nothing);
    return mounted;
}

/* The invalidations have ended. */
static void end(struct mounted *mounted)
{
    nodes_destroy(mounted->nodes);
    assert_int_equal(sfs_close(mounted->file), 0);
    fuse_session_destroy(mounted->session); /* with its end of the connection */
    close(mounted->ends[1]);
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
    end(&mounted);
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

/* ---- Changes for which nobody waits ---- */

struct asked {
    struct mounted mounted;
    const struct node *node;
    uint64_t unique;
    struct change change;      /* of the WRITE that is under way */
    bool *raw_told, *npy_told; /* by frame: the kernel was told to forget it */
    unsigned stacks_told;      /* bits: as a whole */
};

/* Wherever it is on the way. */
static struct asked *asked;

static uint64_t view_of(uint64_t frame, enum view_kind kind)
{
    return inode_pack((struct inode){asked->node->number, frame, ENTRY_VIEW + kind});
}

static void tell_of_write(fuse_req_t request, fuse_ino_t number, const char *bytes, size_t n,
                          off_t offset, struct fuse_file_info *info)
{
    (void)bytes, (void)offset, (void)info;
    const struct answer answer = {.kind = ANSWER_WRITTEN, .written = n};
    notify_change(asked->mounted.notify, &asked->change, number, request, &answer);
}

/* As the kernel has it. */
static void ask(uint32_t opcode, uint64_t number, const void *what, uint32_t n)
{
    unsigned char message[256] = {0};
    struct fuse_in_header header = {
        .len = sizeof(header) + n, .opcode = opcode, .unique = ++asked->unique, .nodeid = number};
    memcpy(message, &header, sizeof(header));
    memcpy(message + sizeof(header), what, n);
    const struct fuse_buf buffer = {.size = header.len, .mem = message};
    fuse_session_process_buf(asked->mounted.session, &buffer);
}

static void note_told(const struct fuse_notify_inval_inode_out *told)
{
    struct inode inode = inode_unpack(told->ino);
    if (inode.node != asked->node->number || !inode_is_view(inode))
        return;
    enum view_kind kind = inode_view(inode);
    if (kind == VIEW_RAW || kind == VIEW_NPY)
        (kind == VIEW_RAW ? asked->raw_told : asked->npy_told)[inode.frame] = true;
    else if (told->off == 0 && told->len <= 0)
        asked->stacks_told |= 1u << kind;
}

/* Takes what comes to the kernel, until a request is answered; false: not within so many milliseconds. */
static bool take_answer(uint64_t unique, int millis)
{
    union {
        struct {
            struct fuse_out_header header;
            struct fuse_notify_inval_inode_out told;
        } notice;
        unsigned char room[4096];
    } message;
    struct pollfd poller = {.fd = asked->mounted.ends[1], .events = POLLIN};
    while (poll(&poller, 1, millis) > 0 && recv(poller.fd, &message, sizeof(message), 0) > 0) {
        if (message.notice.header.unique == unique && unique > 0)
            return true;
        if (message.notice.header.unique == 0)
            note_told(&message.notice.told);
    }
    return false;
}

/* Writes what concerns frames; whether that is answered at once. */
static bool write_frames(uint64_t writer, uint64_t first, uint64_t last)
{
    struct {
        struct fuse_write_in in;
        unsigned char byte;
    } what = {.in.size = 1};
    asked->change = change_of_frames(asked->node, first, last);
    ask(FUSE_WRITE, writer, &what, sizeof(what.in) + 1);
    return take_answer(asked->unique, 0);
}

static void begin_asking(struct asked *made)
{
    static const struct fuse_lowlevel_ops ops = {.write = tell_of_write};
    const struct fuse_init_in init = {.major = FUSE_KERNEL_VERSION, .minor = 31};
    asked = made;
    made->raw_told = calloc(FRAMES, sizeof(bool));
    made->npy_told = calloc(FRAMES, sizeof(bool));
    assert_true(made->raw_told && made->npy_told);
    begin_with(&made->mounted, "asked.h5", false, &ops);
    made->node = look_up(&made->mounted, node_get(made->mounted.nodes, 0), "stack");
    ask(FUSE_INIT, 0, &init, 24); /* without what later versions have */
    assert_true(take_answer(made->unique, 1000));
}

static void end_asking(void)
{
    notify_destroy(asked->mounted.notify);
    free(asked->raw_told);
    free(asked->npy_told);
    end(&asked->mounted);
}

static size_t count_threads(void)
{
    size_t n = 0;
    DIR *tasks = opendir("/proc/self/task");
    assert_non_null(tasks);
    while (readdir(tasks))
        n++;
    closedir(tasks);
    return n;
}

/* Besides who asks. */
static bool is_any_running(void)
{
    char path[300], line[512];
    bool is_any = false;
    const struct dirent *task;
    DIR *tasks = opendir("/proc/self/task");
    assert_non_null(tasks);
    while ((task = readdir(tasks))) {
        snprintf(path, sizeof(path), "/proc/self/task/%s/stat", task->d_name);
        FILE *file =
            task->d_name[0] == '.' || atoi(task->d_name) == getpid() ? NULL : fopen(path, "r");
        const char *state = file && fgets(line, sizeof(line), file) ? strrchr(line, ')') : NULL;
        is_any |= state && state[2] != 'S';
        if (file)
            fclose(file);
    }
    closedir(tasks);
    return is_any;
}

/* Each with something of its own that it cannot make known. */
static void occupy_workers(void)
{
    size_t most = count_threads() + WORKERS - 1;
    for (uint64_t i = 0; i < WORKERS + 8; i++)
        assert_false(write_frames(view_of(i, VIEW_RAW), i, i));
    while (count_threads() < most || is_any_running()) /* the last one has a change, too */
        usleep(10000);
}

/* While others wait, and nobody can make it known. */
static void write_often(bool by_many)
{
    size_t before = memory_in_use();
    for (uint64_t i = 0; i < FRAMES; i++) {
        uint64_t frame = by_many ? i : i % 2;
        bool at_once = write_frames(view_of(frame, VIEW_NPY), by_many ? i : 0, by_many ? i : 1);
        assert_true(at_once || take_answer(asked->unique, 300000));
    }
    size_t now = memory_in_use();
    assert_in_range(now > before ? now - before : 0, 0, 1 << 20);
}

/* Whatever was known to the kernel. */
static bool is_all_told(void)
{
    bool is_all = asked->stacks_told >> VIEW_STACK_NPY & 1;
    for (uint64_t frame = 0; frame < FRAMES; frame += FRAMES / 10)
        is_all &= asked->raw_told[frame] && asked->npy_told[frame];
    return is_all;
}

/* While all who invalidate wait for the kernel, writers do not where they could wait for each other. What they change
 * is kept all the same, in little memory, and the kernel is told of all of it. */
static void changes_for_which_nobody_waits_are_few(void **state)
{
    (void)state;
    struct asked made = {0};
    struct look look;
    begin_asking(&made);
    for (uint64_t frame = 0; frame < FRAMES; frame += FRAMES / 10)
        for (enum view_kind kind = VIEW_RAW; kind <= VIEW_NPY; kind++)
            notify_known(made.mounted.notify, inode_unpack(view_of(frame, kind)));
    notify_known(made.mounted.notify, inode_unpack(view_of(0, VIEW_STACK_NPY)));
    notify_begin_look(made.mounted.notify, &look);
    notify_begin_answer(made.mounted.notify, &look); /* which all wait for */
    occupy_workers();
    assert_true(write_frames(view_of(0, VIEW_STACK_RAW), 0, FRAMES / 2 - 1));
    assert_true(write_frames(view_of(0, VIEW_STACK_RAW), FRAMES / 2, FRAMES - 1));
    write_often(false);
    write_often(true);
    notify_end_answer(made.mounted.notify, &look);
    while (!is_all_told())
        (void)take_answer(0, 100);
    end_asking();
}

static int quiet(void **state)
{
    (void)state;
    log_quietly();
    return 0;
}

TEST_MAIN(cmocka_unit_test(what_was_read_before_a_change_is_old),
          cmocka_unit_test_setup(what_goes_with_a_change_is_flushed, quiet),
          cmocka_unit_test_setup(changes_for_which_nobody_waits_are_few, quiet))
