/* Opening and closing. */
#include "fs/open.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <utlist.h>

#include "common/log.h"
#include "fs/interrupt.h"

#define FIRST_TEXT_BYTES ((size_t)64 << 10)

/* What is still open when the mount ends gets no release. */
static pthread_mutex_t open_lock = PTHREAD_MUTEX_INITIALIZER;
static struct open_file *open_files;

struct open_file *open_file_of(const struct fuse_file_info *info)
{
    return (struct open_file *)(uintptr_t)info->fh;
}

struct open_file *open_file_new(struct mount *mount, fuse_ino_t number)
{
    struct open_file *file = calloc(1, sizeof(*file));
    if (!file)
        return NULL;
    atomic_init(&file->users, 1);
    atomic_init(&file->has_staged, false);
    atomic_init(&file->has_written, false);
    file->inode = inode_unpack(number);
    file->node = node_get(mount->nodes, file->inode.node);
    pthread_mutex_lock(&open_lock);
    DL_APPEND(open_files, file);
    pthread_mutex_unlock(&open_lock);
    return file;
}

void open_file_use(struct open_file *file)
{
    atomic_fetch_add(&file->users, 1);
}

/* The kernel must know nothing older of the frame than what is staged or has been applied. */
static void frame_changed(struct mount *mount, const struct open_file *file, fuse_req_t request,
                          const struct answer *answer)
{
    uint64_t frame = file->inode.frame;
    const struct change change = mount_change(file->node, frame, frame);
    mount_written(mount, file->node, frame, frame);
    notify_change(mount->notify, &change, 0, request, answer);
}

/* Nobody is there any more to whom an error could be told. */
static void end_staging(struct mount *mount, struct open_file *file)
{
    bool changed;
    NOT_INTERRUPTIBLE();
    int error = staging_end(mount->staging, file->staged, &changed);
    if (error)
        log_error("%s: what was written to %s frame %llu.defined is lost: %s",
                  sfs_path(mount->file), file->node->name, (unsigned long long)file->inode.frame,
                  strerror(-error));
    if (changed)
        frame_changed(mount, file, NULL, NULL);
}

void open_file_put(struct mount *mount, struct open_file *file)
{
    if (atomic_fetch_sub(&file->users, 1) > 1)
        return;
    pthread_mutex_lock(&open_lock);
    DL_DELETE(open_files, file);
    pthread_mutex_unlock(&open_lock);
    if (file->staged)
        end_staging(mount, file);
    if (fresh_end(mount->fresh, file->fresh))
        commits_note(mount->commits);
    if (file->views)
        node_put_views(mount->nodes, file->node);
    if (file->directory)
        directory_close(mount, file->directory);
    sfs_snapshot_close(file->snapshot);
    free(file->text);
    free(file);
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

static int open_datatype(struct open_file *file)
{
    char *words;
    int error = sfs_datatype_text(file->node->file, file->node->address, &words);
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
        return kind == VIEW_DEFINED ? -EOPNOTSUPP : -EPERM;
    file->is_for_writing = true;
    file->commits_seen = commits_failures(mount->commits);
    int error = kind < VIEW_STACK_RAW
                    ? fresh_open(mount->fresh, file->node, file->inode.frame, &file->fresh)
                    : 0;
    if (error || kind != VIEW_DEFINED)
        return error;
    return staging_begin(mount->staging, file->node, file->inode.frame, &file->staged);
}

static bool is_text(struct inode inode)
{
    enum view_kind kind = inode_view(inode);
    return inode_is_view(inode) &&
           (kind == VIEW_DATASET_JSON || kind == VIEW_VALUE_TXT || kind == VIEW_CSR_TOML);
}

/* All of a text, as one reading finds it. */
static int take_text(struct open_file *file)
{
    struct view_part part;
    for (size_t room = FIRST_TEXT_BYTES;; room *= 2) {
        char *buffer = malloc(room);
        if (!buffer)
            return -ENOMEM;
        int error = view_read(file->views, inode_view(file->inode), 0, 0, room, buffer, &part);
        if (!error && part.n < room) {
            memmove(buffer, part.bytes, part.n);
            view_return(file->views, &part);
            file->text = buffer;
            file->text_bytes = part.n;
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
        mount_settle(mount, file->node, file->inode);
    if (!error && read)
        error = view_prepare(file->views, inode_view(file->inode), file->inode.frame);
    if (!error && write)
        error = open_view_for_writing(mount, file);
    if (!error && mount->follow && is_text(file->inode))
        error = take_text(file);
    return error;
}

static int open_content(struct mount *mount, struct open_file *file, int access)
{
    bool read = access != O_WRONLY, write = access != O_RDONLY;
    if (!file->node)
        return -ESTALE;
    if (write && !(mount->is_writable && sfs_is_writable(file->node->file)))
        return -EROFS;
    if (inode_is_view(file->inode))
        return open_view(mount, file, read, write);
    if (write)
        return -EPERM;
    if (file->inode.entry == ENTRY_IMAGE)
        return sfs_snapshot_open(mount->file, &file->snapshot);
    if (is_control(file->inode))
        return control_text(mount, file->inode.entry, &file->text, &file->text_bytes);
    return open_datatype(file);
}

int open_file_open(struct mount *mount, fuse_ino_t number, struct fuse_file_info *info,
                   struct open_file **out)
{
    struct open_file *file = open_file_new(mount, number);
    if (!file)
        return -ENOMEM;
    int error = open_content(mount, file, info->flags & O_ACCMODE);
    if (error) {
        open_file_put(mount, file);
        return error;
    }
    info->fh = (uintptr_t)file;
    /* A selection changes its size with its content, is read once, and mapped by nobody: the page
     * cache would cost a third of the time of reading it, and show a new one too late. */
    bool is_selection = inode_is_view(file->inode) && inode_view(file->inode) == VIEW_DEFINED;
    info->direct_io =
        mount->options->direct_io || is_control(file->inode) || is_selection || file->text;
    info->keep_cache = !info->direct_io;
    info->noflush = !file->is_for_writing;
    *out = file;
    return 0;
}

void on_open(fuse_req_t request, fuse_ino_t number, struct fuse_file_info *info)
{
    LOOKING(request);
    struct mount *mount = fuse_req_userdata(request);
    struct answer answer = {.kind = ANSWER_OPENED};
    struct open_file *file;
    answer.error = open_file_open(mount, number, info, &file);
    answer.info = *info;
    notify_answer(mount->notify, request, &answer);
}

/* A name that is there is opened; one of a frame behind the last makes the dataset larger. */
void on_create(fuse_req_t request, fuse_ino_t parent, const char *name, mode_t mode,
               struct fuse_file_info *info)
{
    LOOKING(request);
    (void)mode;
    struct mount *mount = fuse_req_userdata(request);
    struct fuse_entry_param entry = {0};
    struct inode inode;
    struct open_file *file = NULL;
    struct fresh_frame *fresh = NULL;
    notify_begin_lookup(mount->notify);
    int error = mount_lookup(mount, inode_unpack(parent), name, &inode);
    if (error == -ENOENT) {
        error = mount_extend(mount, inode_unpack(parent), name, &fresh);
        if (!error)
            error = mount_lookup(mount, inode_unpack(parent), name, &inode);
    } else if (!error && info->flags & O_EXCL) {
        error = -EEXIST;
    }
    if (!error)
        error = mount_attributes(mount, inode, &entry.attr, &entry.attr_timeout);
    if (!error)
        error = open_file_open(mount, inode_pack(inode), info, &file);
    if (fresh_end(mount->fresh, fresh)) /* it is not open: nobody will close it */
        commits_note(mount->commits);
    if (error) {
        fuse_reply_err(request, -error);
    } else {
        entry.ino = entry.attr.st_ino;
        entry.entry_timeout = mount_name_timeout(mount, inode);
        if (fuse_reply_create(request, &entry, info) == -ENOENT)
            open_file_put(mount, file);
    }
    notify_end_lookup(mount->notify);
}

/* ---- Closing ---- */

/* On every close of a descriptor, of which a file can have several. */
void on_flush(fuse_req_t request, fuse_ino_t number, struct fuse_file_info *info)
{
    (void)number;
    struct mount *mount = fuse_req_userdata(request);
    struct open_file *file = open_file_of(info);
    struct answer answer = {.kind = ANSWER_ERROR};
    bool changed = false;
    open_file_use(file);
    if (file->staged)
        answer.error = staging_close(mount->staging, file->staged,
                                     atomic_exchange(&file->has_staged, false), &changed);
    if (!answer.error && file->is_for_writing)
        answer.error = commits_error(mount->commits, &file->commits_seen);
    if (!answer.error && file->is_for_writing && file->views)
        answer.error = sfs_flush_error(file->views->dataset);
    if (atomic_exchange(&file->has_written, false))
        fresh_closed(mount->fresh, file->fresh);
    if (changed)
        frame_changed(mount, file, request, &answer);
    else
        notify_answer(mount->notify, request, &answer);
    open_file_put(mount, file);
}

void on_release(fuse_req_t request, fuse_ino_t number, struct fuse_file_info *info)
{
    (void)number;
    open_file_put(fuse_req_userdata(request), open_file_of(info));
    fuse_reply_err(request, 0);
}
