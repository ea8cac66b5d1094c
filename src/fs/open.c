/* Opening and closing. */
#include "fs/open.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <utlist.h>

#include "common/interrupt.h"
#include "common/log.h"
#include "config.h"
#include "fs/interrupt.h"
#include "fs/read_defined.h"
#include "fs/reader_descriptors.h"
#include "fs/refusal.h"

#define FIRST_TEXT_BYTES ((size_t)64 << 10)
#define SMALL_TEXT       sizeof(struct open_file) /* the pid, and the like: not counted */
#define MOST_TEXT_BYTES  ((size_t)256 << 20)      /* of all others, in all descriptors */

/* What is still open when the mount ends gets no release. */
static pthread_mutex_t open_lock = PTHREAD_MUTEX_INITIALIZER;
static struct open_file *open_files;

static atomic_size_t counted_texts; /* bytes of them */

struct open_file *open_file_of(const struct fuse_file_info *info)
{
    return (struct open_file *)(uintptr_t)info->fh;
}

/* What is the folder's does not keep an HDF5 file open. */
static bool uses_file(const struct open_file *file)
{
    return file->node && (file->node->type == NODE_GROUP || !node_is_of_folder(file->node));
}

struct open_file *open_file_new(struct mount *mount, fuse_ino_t number, uid_t user)
{
    struct open_file *file = calloc(1, sizeof(*file));
    if (!file)
        return NULL;
    atomic_init(&file->users, 1);
    atomic_init(&file->has_staged, false);
    atomic_init(&file->has_written, false);
    atomic_init(&file->has_closed, false);
    atomic_init(&file->has_asked, false);
    atomic_init(&file->is_unused, false);
    file->fd = -1;
    file->inode = inode_unpack(number);
    file->node = node_get(mount->nodes, file->inode.node);
    if (file->node)
        node_hold(mount->nodes, file->inode.node);
    file->user = user;
    if (uses_file(file) && mounted_use_more(file->node->mounted, user) != 0) {
        node_put(mount->nodes, file->inode.node);
        free(file);
        return NULL;
    }
    pthread_mutex_lock(&open_lock);
    DL_APPEND(open_files, file);
    pthread_mutex_unlock(&open_lock);
    return file;
}

bool open_file_is_selection(const struct open_file *file)
{
    return inode_is_view(file->inode) && inode_view(file->inode) == VIEW_DEFINED;
}

void open_file_use(struct open_file *file)
{
    atomic_store(&file->is_unused, false);
    atomic_fetch_add(&file->users, 1);
}

/* Takes a reference, unless there is none left. */
static bool use_again(struct open_file *file)
{
    unsigned users = atomic_load(&file->users);
    while (users > 0 && !atomic_compare_exchange_weak(&file->users, &users, users + 1))
        ;
    return users > 0;
}

struct open_file *open_file_just_opened(fuse_ino_t number, pid_t opener)
{
    struct open_file *file, *last = NULL;
    pthread_mutex_lock(&open_lock);
    DL_FOREACH (open_files, file)
        if (inode_pack(file->inode) == number && atomic_load(&file->opener) == opener)
            last = file;
    if (last && (!atomic_load(&last->is_unused) || !use_again(last)))
        last = NULL;
    if (last)
        atomic_store(&last->is_unused, false);
    pthread_mutex_unlock(&open_lock);
    return last;
}

struct change open_file_change(const struct open_file *file, uint64_t frames)
{
    uint64_t size = 0;
    enum view_kind kind = inode_view(file->inode);
    if (kind >= VIEW_STACK_RAW)
        (void)view_size(file->views, kind, 0, &size);
    struct view_frames changed = view_frames_of(file->views, kind, file->inode.frame, 0, size);
    struct change change =
        change_since(file->node, file->views, frames, changed.first, changed.last);
    change.names |= kind < VIEW_STACK_RAW && changed.last >= frames; /* it is to come to be */
    return change;
}

/* What was staged in its view has been applied. */
static void applied(struct mount *mount, const struct open_file *file, const struct change *change)
{
    bool is_stack = inode_view(file->inode) >= VIEW_STACK_RAW;
    const struct written written = {change->first, change->last, file->user};
    (is_stack ? mount_applied_to_all : mount_applied)(mount, file->node, written);
}

void open_file_frame_changed(struct mount *mount, const struct open_file *file, uint64_t frames,
                             fuse_req_t request, const struct answer *answer)
{
    const struct change change = open_file_change(file, frames);
    applied(mount, file, &change);
    notify_change(mount->notify, &change, 0, request, answer);
}

/* frames: how many there were before. */
static void matrix_changed(struct mount *mount, const struct open_file *file, uint64_t frames,
                           enum matrix_change what)
{
    uint64_t now = views_frames(file->views);
    struct change change = change_since(file->node, file->views, frames, 0, now ? now - 1 : 0);
    if (what == MATRIX_FRAMES)
        mount_applied_to_all(mount, file->node,
                             (struct written){change.first, change.last, file->user});
    else if (what == MATRIX_UNDONE) /* the kernel may have what was read meanwhile */
        mount_note(mount, file->node, file->user);
    else
        change.views = 1u << VIEW_CSR_INDPTR | 1u << VIEW_CSR_INDICES | 1u << VIEW_CSR_DATA;
    notify_change(mount->notify, &change, 0, NULL, NULL);
}

int open_file_take(struct mount *mount, struct open_file *file, enum matrix_close how)
{
    const struct matrix_part of = {inode_view(file->inode), file, file->user};
    enum matrix_change what;
    int error = matrix_begin_taking(file->matrix, how);
    if (error && how != MATRIX_PAUSED) /* it is closed still to be taken */
        atomic_store(&file->has_staged, true);
    if (error)
        return error;
    uint64_t frames = views_frames(file->views);
    error = matrix_take(mount->matrices, file->matrix, &of, how, &what);
    if (error == -EINTR && how == MATRIX_CLOSED)
        atomic_store(&file->has_staged, true);
    if (what != MATRIX_SAME)
        matrix_changed(mount, file, frames, what);
    matrix_end_taking(file->matrix);
    return error;
}

/* An error of this is in the log. */
static void end_matrix(struct mount *mount, struct open_file *file)
{
    FINISHING(mount);
    (void)open_file_take(mount, file, MATRIX_ENDED);
    matrix_end(mount->matrices, file->matrix, file->user);
}

/* What is replaced as a whole is restored then. */
static bool is_changed_in_part(int error, bool is_whole)
{
    return error == -EINTR && !is_whole && interrupt_was_late();
}

/* A release has no caller that an error could be returned to. What was refused as a whole, and why,
 * is in the log already. */
static void end_staging(struct mount *mount, struct open_file *file)
{
    bool changed, is_selection = open_file_is_selection(file);
    bool is_collected = staging_is_collected(file->staged), is_whole = is_collected || is_selection;
    FINISHING(mount);
    uint64_t frames = views_frames(file->views);
    if (staging_waits(file->staged)) /* a sync that waits for this is to contain a new frame */
        fresh_closed(mount_fresh(mount, file->node), file->fresh);
    int error = staging_end(mount->staging, file->staged, atomic_load(&file->has_asked), &changed);
    if (error && !(is_collected && error == -EINVAL))
        log_error(
            "%s: what was written to %s frame %llu%s is %s: %s", sfs_path(node_file(file->node)),
            file->node->name, (unsigned long long)file->inode.frame, is_selection ? ".defined" : "",
            is_changed_in_part(error, is_whole) ? "applied in part" : "lost", strerror(-error));
    if (changed)
        open_file_frame_changed(mount, file, frames, NULL, NULL);
}

void open_file_put(struct mount *mount, struct open_file *file)
{
    if (atomic_fetch_sub(&file->users, 1) > 1)
        return;
    pthread_mutex_lock(&open_lock);
    DL_DELETE(open_files, file);
    pthread_mutex_unlock(&open_lock);
    struct open_file *instead = atomic_load(&file->instead);
    if (instead)
        open_file_put(mount, instead);
    temporary_put(mount->temporaries, file->temporary);
    if (file->staged)
        end_staging(mount, file);
    if (file->matrix)
        end_matrix(mount, file);
    if (file->fresh && fresh_end(mount_fresh(mount, file->node), file->fresh))
        mount_note(mount, file->node, file->user);
    selection_end(file);
    if (file->holds_lock)
        sfs_end_writing(node_file(file->node));
    if (file->views)
        node_put_views(mount->nodes, file->node);
    if (file->directory)
        directory_close(mount, file->directory);
    mount_begin_letting_go(mount);
    if (uses_file(file))
        mounted_put_more(file->node->mounted, file->user);
    if (file->node)
        node_put(mount->nodes, file->inode.node);
    mount_end_letting_go(mount);
    if (file->fd >= 0)
        close(file->fd);
    if (file->counts_descriptor)
        reader_descriptor_give(file->user);
    sfs_snapshot_close(file->snapshot);
    if (file->counts_text)
        atomic_fetch_sub(&counted_texts, file->text_bytes);
    free(file->text);
    free(file);
}

static bool is_told(const struct open_file *file)
{
    return file->node && inode_is_view(file->inode) && node_is_told_open(file->node);
}

int open_files_told(struct inode **inodes, size_t *n)
{
    struct open_file *file;
    size_t most = 0;
    *n = 0;
    pthread_mutex_lock(&open_lock);
    DL_FOREACH (open_files, file)
        most += is_told(file);
    *inodes = calloc(most ? most : 1, sizeof(**inodes));
    DL_FOREACH (open_files, file)
        if (*inodes && *n < most && is_told(file))
            (*inodes)[(*n)++] = file->inode;
    pthread_mutex_unlock(&open_lock);
    return *inodes ? 0 : -ENOMEM;
}

void open_files_close(struct mount *mount)
{
    while (open_files)
        open_file_put(mount, open_files);
}

/* ---- Opening ---- */

static bool is_control(struct inode inode)
{
    return inode.entry > ENTRY_CONTROL && inode.entry < ENTRY_VIEW;
}

/* Each descriptor has its own text, as it is when it is opened: their number is the users', their size the file's. A
 * quarter is kept for root and who has mounted: other users cannot keep log and counters from them. */
static int count_text(struct mount *mount, struct open_file *file, uid_t user)
{
    size_t n = file->text ? file->text_bytes : 0;
    size_t kept = user == 0 || user == geteuid() ? 0 : MOST_TEXT_BYTES / 4;
    if (n <= SMALL_TEXT)
        return 0;
    file->counts_text = true;
    if (atomic_fetch_add(&counted_texts, n) + n <= MOST_TEXT_BYTES - kept)
        return 0;
    log_error("%s: %s: too many texts are open: they have %zu MiB together; close some of them",
              mount->options->file, file->node ? file->node->name : "",
              (MOST_TEXT_BYTES - kept) >> 20);
    return -ENOMEM;
}

/* A file that is not HDF5 is open in the daemon, too. */
static int count_descriptor(struct mount *mount, struct open_file *file)
{
    if (!file->node || file->node->type != NODE_PASSED)
        return 0;
    int error = reader_descriptor_take(mount->options->file, file->user);
    file->counts_descriptor = !error;
    return error;
}

static int open_datatype(struct open_file *file)
{
    char *words;
    int error = sfs_datatype_text(node_file(file->node), node_address(file->node), &words);
    if (error)
        return error;
    int n = asprintf(&file->text, "%s\n", words);
    free(words);
    file->text_bytes = n < 0 ? 0 : (size_t)n;
    return n < 0 ? -ENOMEM : 0;
}

static int open_view_for_writing(struct mount *mount, struct open_file *file)
{
    enum view_kind kind = inode_view(file->inode);
    if (!view_writable(file->views, kind))
        return refusal_of_view(mount, file->node, kind);
    int error = sfs_begin_writing(node_file(file->node));
    if (error)
        return error;
    file->holds_lock = true;
    file->is_for_writing = true;
    file->commits_seen = commits_failed(mount_commits(mount, file->node));
    bool is_of_frame = kind < VIEW_STACK_RAW;
    bool is_missing = is_of_frame && file->inode.frame >= views_frames(file->views);
    atomic_store(&file->has_asked, is_missing && kind != VIEW_DEFINED);
    struct fresh *fresh = mount_fresh(mount, file->node);
    error = is_of_frame ? (is_missing ? fresh_make : fresh_open)(fresh, file->node,
                                                                 file->inode.frame, &file->fresh)
                        : 0;
    if (!error && view_is_csr(kind))
        return matrix_begin(mount->matrices, file->node, &file->matrix);
    return error
               ? error
               : staging_begin(mount->staging, file->node, kind, file->inode.frame, &file->staged);
}

static bool is_text(struct inode inode)
{
    enum view_kind kind = inode_view(inode);
    return inode_is_view(inode) &&
           (kind == VIEW_DATASET_JSON || kind == VIEW_VALUE_TXT || kind == VIEW_CSV ||
            kind == VIEW_ZATTRS || kind == VIEW_CSR_TOML || kind == VIEW_ZARRAY);
}

/* All of a text, as one reading finds it. */
static int take_text(struct open_file *file)
{
    struct view_part part;
    for (size_t room = FIRST_TEXT_BYTES;; room *= 2) {
        char *buffer = malloc(room);
        if (!buffer)
            return -ENOMEM;
        int error = view_read(file->views, inode_view(file->inode), 0,
                              &(struct view_room){0, room, buffer, true}, &part);
        if (!error && part.n < room) {
            size_t n = part.n;
            view_return(file->views, &part);
            char *shorter = realloc(buffer, n ? n : 1);
            file->text = shorter ? shorter : buffer;
            file->text_bytes = n;
            return 0;
        }
        if (!error)
            view_return(file->views, &part);
        free(buffer);
        if (error)
            return error;
    }
}

/* What cannot be read is refused here: a reader of a file without a size would find it empty. */
static int open_view(struct mount *mount, struct open_file *file, bool read, bool write)
{
    int error = node_get_views(mount->nodes, file->node, &file->views);
    if (!error)
        error = (write ? mount_apply_itself : mount_apply_staged)(mount, file->node, file->inode);
    if (!error && read && !mount_shows_nothing(mount, file->node, file->views, file->inode))
        error = view_prepare(file->views, inode_view(file->inode), file->inode.frame);
    if (!error && open_file_is_selection(file) && file->views->is_sparse)
        error = selection_begin(file);
    if (!error && write) /* which nothing takes back */
        error = open_view_for_writing(mount, file);
    if (!error && mount->follow && is_text(file->inode))
        error = take_text(file);
    return error;
}

static int open_content(struct mount *mount, struct open_file *file, int access, bool is_new)
{
    bool read = !is_new && access != O_WRONLY, write = is_new || access != O_RDONLY;
    if (!file->node)
        return -ESTALE;
    if (file->node->type == NODE_PASSED && !write) {
        file->fd = mount_open_passed(mount, file->node);
        return file->fd < 0 ? file->fd : 0;
    }
    if (write && control_is_writable(mount, file->inode.entry))
        return control_text(mount, file->inode.entry, &file->text, &file->text_bytes);
    if (write && !(mount->is_writable && sfs_is_writable(node_file(file->node))))
        return -EROFS;
    if (inode_is_view(file->inode))
        return open_view(mount, file, read, write);
    if (file->inode.entry == ENTRY_TEMPORARY) {
        file->temporary = temporary_get(mount->temporaries, file->inode);
        file->access = is_new ? O_RDWR : access;
        return file->temporary ? 0 : -ESTALE;
    }
    if (write)
        return refusal_say(mount, file->node, REFUSAL_COMPUTED);
    if (file->inode.entry == ENTRY_IMAGE)
        return sfs_snapshot_open(mount->file, &file->snapshot);
    if (file->inode.entry == ENTRY_GROUP_JSON)
        return group_text(mount, file->node, &file->text, &file->text_bytes);
    if (is_control(file->inode))
        return control_text(mount, file->inode.entry, &file->text, &file->text_bytes);
    return open_datatype(file);
}

/* A selection, or a list of points, changes its size with its content, is read once, and never
 * mapped: the page cache would cost a third of the time of reading it, and show a new one too late.
 */
static bool has_moving_size(const struct open_file *file)
{
    return open_file_is_selection(file) ||
           (inode_is_view(file->inode) && inode_view(file->inode) == VIEW_NPZ);
}

/* Whether the kernel may have pages of another state, and nobody has told it. */
static bool is_read_again(const struct open_file *file)
{
    struct stat st;
    if (file->node && file->node->type == NODE_PASSED)
        return fstat(file->fd, &st) < 0 || !mounted_keeps_pages(file->node->mounted, &st);
    return file->views && (views_show_others(file->views) || node_is_told_open(file->node) ||
                           views_may_be_others(file->views, file->node->mounted->files));
}

int open_file_now(struct mount *mount, struct open_file **file)
{
    struct open_file *was = *file, *there = atomic_load(&was->instead);
    struct temporary_state state;
    if (!was->temporary)
        return 0;
    if (there) {
        *file = there;
        return 0;
    }
    temporary_state(was->temporary, &state);
    if (!state.has_become)
        return 0;
    struct open_file *instead = open_file_new(mount, inode_pack(state.became), was->user);
    if (!instead)
        return -ENOMEM;
    int error = open_content(mount, instead, was->access, false);
    bool is_first = !error && atomic_compare_exchange_strong(&was->instead, &there, instead);
    if (!error)
        *file = is_first ? instead : there;
    if (!is_first)
        open_file_put(mount, instead);
    return error;
}

/* A frame that is not there yet comes to be, even if it is not opened for writing. */
int open_file_open(struct mount *mount, fuse_req_t request, fuse_ino_t number, bool is_new,
                   struct fuse_file_info *info, struct open_file **out)
{
    uid_t user = fuse_req_ctx(request)->uid;
    struct open_file *file = open_file_new(mount, number, user);
    if (!file)
        return -ENOMEM;
    int error = count_descriptor(mount, file);
    if (!error)
        error = open_content(mount, file, info->flags & O_ACCMODE, is_new);
    if (!error)
        error = count_text(mount, file, user);
    if (error) {
        open_file_put(mount, file);
        return error;
    }
    info->fh = (uintptr_t)file;
    info->direct_io =
        mount->options->direct_io || is_control(file->inode) || has_moving_size(file) || file->text;
    info->keep_cache = !info->direct_io && !is_read_again(file) &&
                       (!mount->follow || atomic_load(&mount->times_drop_pages));
#if FUSE_VERSION >= FUSE_MAKE_VERSION(3, 11)
    info->noflush = !file->is_for_writing && !file->temporary;
#endif
#if HAVE_PARALLEL_DIRECT_WRITES
    info->parallel_direct_writes = mount->options->direct_io && !has_moving_size(file);
#endif
    atomic_store(&file->opener, fuse_req_ctx(request)->pid);
    atomic_store(&file->is_unused, file->is_for_writing);
    *out = file;
    return 0;
}

/* A virtual dataset does, and a preview its mask. */
static bool shows_others(const struct open_file *file)
{
    enum view_kind kind = inode_view(file->inode);
    return file->views &&
           (file->views->info->layout == SFS_VIRTUAL || kind == VIEW_PNG || kind == VIEW_CBF);
}

void on_open(fuse_req_t request, fuse_ino_t number, struct fuse_file_info *info)
{
    LOOKING(request);
    struct mount *mount = fuse_req_userdata(request);
    struct answer answer = {.kind = ANSWER_OPENED};
    struct open_file *file;
    answer.error = open_file_open(mount, request, number, false, info, &file);
    answer.info = *info;
    answer.is_of_own = !answer.error && !shows_others(file);
    notify_answer(mount->notify, request, &answer);
}

/* ---- Closing ---- */

static void tell_of_interrupt(const struct open_file *file)
{
    log_warning("%s: %s: frame %llu: closing the file was interrupted, and what was written to it "
                "is lost: write it again",
                sfs_path(node_file(file->node)), file->node->name,
                (unsigned long long)file->inode.frame);
}

/* What was written through a descriptor is applied as it is closed. That can be interrupted before the first change,
 * and late after that: then it is forgotten, as close(2) cannot be repeated. */
static int apply_closed(fuse_req_t request, struct open_file *file, bool *changed, bool *closing)
{
    CLOSING(request);
    struct mount *mount = fuse_req_userdata(request);
    int error = 0;
    if (file->staged && (open_file_is_selection(file) || atomic_load(&file->has_asked) ||
                         staging_is_collected(file->staged) || staging_has_lost(file->staged)))
        error =
            staging_close(mount->staging, file->staged, atomic_exchange(&file->has_staged, false),
                          atomic_exchange(&file->has_closed, true), changed, closing);
    if (error == -EINTR)
        tell_of_interrupt(file);
    if (file->matrix)
        error = open_file_take(
            mount, file, atomic_exchange(&file->has_staged, false) ? MATRIX_CLOSED : MATRIX_PAUSED);
    return error;
}

/* On every close of a descriptor, of which a file can have several. */
void on_flush(fuse_req_t request, fuse_ino_t number, struct fuse_file_info *info)
{
    (void)number;
    struct mount *mount = fuse_req_userdata(request);
    struct open_file *opened = open_file_of(info), *file = opened;
    struct answer answer = {.kind = ANSWER_ERROR};
    bool changed = false, closing = false;
    open_file_use(opened);
    struct open_file *instead = atomic_load(&opened->instead);
    if (instead) /* else nothing was done with what it has become, if anything */
        file = instead;
    uint64_t frames = file->staged ? views_frames(file->views) : 0;
    if (file->staged || file->matrix)
        answer.error = apply_closed(request, file, &changed, &closing);
    /* The last close applies nothing of what this one has. */
    if (changed && !closing)
        atomic_store(&file->has_asked, false);
    if (closing) {
        answer.kind = ANSWER_CLOSED;
        answer.inode = file->inode;
    }
    if (!answer.error && file->is_for_writing)
        answer.error = commits_error(mount_commits(mount, file->node), &file->commits_seen);
    if (!answer.error && file->is_for_writing && file->views)
        answer.error = sfs_flush_error(file->views->dataset);
    if (atomic_exchange(&file->has_written, false))
        fresh_closed(mount_fresh(mount, file->node), file->fresh);
    answer.is_of_own = !changed && !file->is_for_writing && !file->temporary;
    if (changed)
        open_file_frame_changed(mount, file, frames, request, &answer);
    else
        notify_answer(mount->notify, request, &answer);
    open_file_put(mount, opened);
}

void on_release(fuse_req_t request, fuse_ino_t number, struct fuse_file_info *info)
{
    (void)number;
    open_file_put(fuse_req_userdata(request), open_file_of(info));
    fuse_reply_err(request, 0);
}

void open_file_note_collected(struct mount *mount, struct open_file *file, struct change *change)
{
    mount_asked(mount, file->node, mount_frame_of_times(file->inode));
    *change = change_of_frames(file->node, file->inode.frame, file->inode.frame);
    change->views = 1u << inode_view(file->inode);
    atomic_store(&file->has_staged, true);
    atomic_store(&file->has_asked, true);
}

int open_file_apply(struct mount *mount, struct open_file *file, struct change *change)
{
    bool changed;
    uint64_t frames = views_frames(file->views);
    int error = staging_apply(mount->staging, file->staged, &changed);
    if (error != -EINTR)
        atomic_store(&file->has_asked, false);
    if (changed) {
        *change = open_file_change(file, frames);
        applied(mount, file, change);
    }
    return error;
}
