/* The requests of FUSE's low-level interface: a thin front over look-up, attributes, listings and
 * views. This is where negative errnos become replies. */
#include <errno.h>
#include <limits.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/io.h"
#include "fs/interrupt.h"
#include "fs/open.h"
#include "fs/requests.h"
#include "fs/read_defined.h"

/* What a newer libfuse can ask a newer kernel for. */
static unsigned newer_capabilities(const struct options *options)
{
    unsigned wanted = 0;
    (void)options;
#ifdef FUSE_CAP_CACHE_SYMLINKS
    wanted |= FUSE_CAP_CACHE_SYMLINKS;
#endif
#ifdef FUSE_CAP_HANDLE_KILLPRIV_V2
    /* No mode has a bit that a write would have to clear, no file a security.capability: the kernel
     * need not ask for it before each write. */
    wanted |= FUSE_CAP_HANDLE_KILLPRIV_V2;
#endif
#ifdef FUSE_CAP_DIRECT_IO_ALLOW_MMAP
    if (options->direct_io)
        wanted |= FUSE_CAP_DIRECT_IO_ALLOW_MMAP;
#endif
    return wanted;
}

static void on_init(void *data, struct fuse_conn_info *connection)
{
    struct mount *mount = data;
    /* Replies come from memory: splicing them costs three to four times a copy. */
    connection->want &=
        ~(unsigned)(FUSE_CAP_SPLICE_READ | FUSE_CAP_SPLICE_WRITE | FUSE_CAP_SPLICE_MOVE);
    connection->want |= connection->capable & (FUSE_CAP_PARALLEL_DIROPS | FUSE_CAP_EXPORT_SUPPORT |
                                               newer_capabilities(mount->options));
    /* The kernel is told when its pages are old: it need not conclude that from other times. With
     * O_TRUNC in OPEN it would take the file for empty until it asks again, and readers of a
     * mapping would die meanwhile; with a truncation of its own the size in the answer is what it
     * takes. */
    connection->want &= ~(unsigned)(FUSE_CAP_AUTO_INVAL_DATA | FUSE_CAP_ATOMIC_O_TRUNC);
    /* On followed files a new time of change invalidates pages. */
    if (mount->follow || mount->files)
        connection->want |= connection->capable & FUSE_CAP_AUTO_INVAL_DATA;
    atomic_store(&mount->times_drop_pages, connection->want & FUSE_CAP_AUTO_INVAL_DATA);
    atomic_store(&mount->opens_directories,
                 mount->follow || mount->files ||
                     !(connection->capable & FUSE_CAP_NO_OPENDIR_SUPPORT));
}

/* Other programs create and remove files. */
static bool is_in_folder(struct mount *mount, fuse_ino_t parent)
{
    struct inode inode = inode_unpack(parent);
    const struct node *node = mount->files ? node_get(mount->nodes, inode.node) : NULL;
    return mount->files && inode.entry == ENTRY_NODE && (!node || node->type == NODE_FOLDER);
}

static void on_lookup(fuse_req_t request, fuse_ino_t parent, const char *name)
{
    LOOKING(request);
    struct mount *mount = mount_of(request);
    struct fuse_entry_param entry = {0};
    struct inode inode = {0};
    bool is_new = false;
    notify_begin_lookup(mount->notify);
    int error = mount_lookup(mount, inode_unpack(parent), name, &inode, &is_new);
    bool is_held = !error;
    if (!error)
        error = mount_attributes(mount, inode, &entry.attr, &entry.attr_timeout);
    entry.entry_timeout = mount_name_timeout(mount, inode);
    if (!error) {
        entry.ino = entry.attr.st_ino;
        entry.generation = mount_generation(mount, inode);
        node_looked_up(mount->nodes, inode.node, 1);
    }
    if (is_held)
        node_put(mount->nodes, inode.node);
    if (is_new)
        entry.attr_timeout = entry.entry_timeout = 0;
    /* Negative entries may become stale, unless the mount is read-only. */
    bool may_come = mount->is_writable || mount->follow || is_in_folder(mount, parent);
    if (!error || (error == -ENOENT && !may_come))
        answer_entry(request, &entry);
    else
        fuse_reply_err(request, -error);
    notify_end_lookup(mount->notify);
}

/* The root is there for as long as the mount. */
static void forget(struct mount *mount, fuse_ino_t number, uint64_t times)
{
    if (number != FUSE_ROOT_ID)
        node_forgotten(mount->nodes, inode_unpack(number).node, times);
}

static void on_forget(fuse_req_t request, fuse_ino_t number, uint64_t times)
{
    forget(mount_of(request), number, times);
    fuse_reply_none(request);
}

static void on_forget_multi(fuse_req_t request, size_t n, struct fuse_forget_data *forgotten)
{
    for (size_t i = 0; i < n; i++)
        forget(mount_of(request), forgotten[i].ino, forgotten[i].nlookup);
    fuse_reply_none(request);
}

static void on_getattr(fuse_req_t request, fuse_ino_t number, struct fuse_file_info *info)
{
    LOOKING(request);
    (void)info;
    struct inode inode = inode_unpack(number);
    struct stat st;
    double timeout;
    int error = mount_attributes(mount_of(request), inode, &st, &timeout);
    if (error)
        fuse_reply_err(request, -error);
    else
        fuse_reply_attr(request, &st, timeout);
}

static void on_readlink(fuse_req_t request, fuse_ino_t number)
{
    const struct node *node = node_get(mount_of(request)->nodes, inode_unpack(number).node);
    if (!node || node->type != NODE_SYMLINK)
        fuse_reply_err(request, EINVAL);
    else if (strlen(node->target) >= PATH_MAX) /* the kernel has no room for it */
        fuse_reply_err(request, ENAMETOOLONG);
    else
        fuse_reply_readlink(request, node->target);
}

/* A buffer of at least n bytes that the calling thread keeps; NULL if there is no memory. */
static pthread_key_t buffer_key;
static pthread_once_t buffer_once = PTHREAD_ONCE_INIT;

struct thread_buffer {
    size_t size;
    char bytes[];
};

static void make_buffer_key(void)
{
    if (pthread_key_create(&buffer_key, free) != 0)
        abort(); /* at the first request: nothing could be served */
}

static char *thread_buffer(size_t n)
{
    pthread_once(&buffer_once, make_buffer_key);
    struct thread_buffer *buffer = pthread_getspecific(buffer_key);
    if (buffer && buffer->size >= n)
        return buffer->bytes;
    struct thread_buffer *grown = malloc(sizeof(*grown) + n);
    if (!grown || pthread_setspecific(buffer_key, grown) != 0) {
        free(grown);
        return NULL;
    }
    free(buffer);
    grown->size = n;
    return grown->bytes;
}

static void read_text(fuse_req_t request, const struct open_file *file, size_t size, off_t offset)
{
    size_t at = (uint64_t)offset < file->text_bytes ? (size_t)offset : file->text_bytes;
    size_t left = file->text_bytes - at;
    fuse_reply_buf(request, file->text + at, left < size ? left : size);
}

static void read_image(fuse_req_t request, const struct open_file *file, size_t size, off_t offset)
{
    uint64_t end = sfs_snapshot_size(file->snapshot);
    uint64_t at = (uint64_t)offset < end ? (uint64_t)offset : end;
    size_t n = end - at < size ? (size_t)(end - at) : size;
    char *buffer = thread_buffer(n);
    int error = buffer ? sfs_snapshot_read(file->snapshot, at, buffer, n) : -ENOMEM;
    if (error)
        fuse_reply_err(request, -error);
    else
        fuse_reply_buf(request, buffer, n);
}

/* Into a buffer. */
static int read_made(struct mount *mount, struct open_file *file, size_t size, off_t offset,
                     char *buffer, size_t *n)
{
    if (file->reading)
        return selection_read(mount, file, (uint64_t)offset, size, buffer, n);
    return view_read_empty(file->views, inode_view(file->inode), (uint64_t)offset, size, buffer, n);
}

/* A file of the folder. */
static void read_passed(fuse_req_t request, const struct open_file *file, size_t size, off_t offset)
{
    char *buffer = thread_buffer(size);
    size_t used = 0;
    int error = buffer ? io_read_at(file->fd, (uint64_t)offset, buffer, size, &used) : -ENOMEM;
    if (error && used == 0)
        fuse_reply_err(request, -error);
    else
        fuse_reply_buf(request, buffer, used);
}

static void read_view(fuse_req_t request, struct mount *mount, struct open_file *file, size_t size,
                      off_t offset)
{
    char *buffer = thread_buffer(size);
    struct view_part part = {.bytes = buffer};
    int error = buffer ? 0 : -ENOMEM;
    mount_apply_staged(mount, file->node, file->inode);
    notify_read(mount->notify, inode_pack(file->inode), (uint64_t)offset, size);
    uint64_t version;
    const struct staged_part staged = {inode_view(file->inode), file->inode.frame, (uint64_t)offset,
                                       size};
    if (!error && !file->reading &&
        (staging_read(mount->staging, file->node, staged, buffer, &part.n, &version) ||
         matrix_read(mount->matrices, file->node, &staged, buffer, &part.n)))
        ;
    else if (!error &&
             (file->reading || mount_shows_nothing(mount, file->node, file->views, file->inode)))
        error = read_made(mount, file, size, offset, buffer, &part.n);
    else if (!error)
        error = view_read(file->views, inode_view(file->inode), file->inode.frame,
                          &(struct view_room){(uint64_t)offset, size, buffer}, &part);
    if (error) {
        fuse_reply_err(request, -error);
        return;
    }
    fuse_reply_buf(request, part.bytes, part.n);
    view_return(file->views, &part);
}

/* A temporary file that has just become a frame is read as that. */
static void read_temporary(fuse_req_t request, struct mount *mount, struct open_file *file,
                           size_t size, off_t offset)
{
    size_t n = 0;
    char *buffer = thread_buffer(size);
    int error =
        buffer ? temporary_read(file->temporary, (uint64_t)offset, size, buffer, &n) : -ENOMEM;
    if (error == -ESTALE)
        error = open_file_now(mount, &file);
    if (error)
        fuse_reply_err(request, -error);
    else if (file->temporary)
        fuse_reply_buf(request, buffer, n);
    else
        read_view(request, mount, file, size, offset);
}

static void on_read(fuse_req_t request, fuse_ino_t number, size_t size, off_t offset,
                    struct fuse_file_info *info)
{
    LOOKING(request);
    (void)number;
    struct mount *mount = mount_of(request); /* the request is gone with its reply */
    struct open_file *opened = open_file_of(info), *file = opened;
    open_file_use(opened);
    int error = open_file_now(mount, &file);
    if (error)
        fuse_reply_err(request, -error);
    else if (file->fd >= 0)
        read_passed(request, file, size, offset);
    else if (file->temporary)
        read_temporary(request, mount, file, size, offset);
    else if (file->views && !file->text)
        read_view(request, mount, file, size, offset);
    else if (file->snapshot)
        read_image(request, file, size, offset);
    else
        read_text(request, file, size, offset);
    open_file_put(mount, opened);
}

/* A text has no holes, nor has an image, or a selection, which may be staged; nor has what shows
 * nothing, for as long as that is so. */
static int seek_in_text(struct mount *mount, const struct open_file *file, uint64_t offset,
                        bool data, uint64_t *found)
{
    struct stat st = {0};
    double timeout;
    int error = 0;
    if (file->snapshot)
        st.st_size = (off_t)sfs_snapshot_size(file->snapshot);
    else
        error = mount_attributes(mount, file->inode, &st, &timeout);
    if (!error && offset >= (uint64_t)st.st_size)
        error = -ENXIO;
    if (!error)
        *found = data ? offset : (uint64_t)st.st_size;
    return error;
}

static int seek_in_passed(const struct open_file *file, off_t offset, int whence, uint64_t *found)
{
    off_t at = lseek(file->fd, offset, whence);
    *found = at < 0 ? 0 : (uint64_t)at;
    return at < 0 ? -errno : 0;
}

static void on_lseek(fuse_req_t request, fuse_ino_t number, off_t offset, int whence,
                     struct fuse_file_info *info)
{
    LOOKING(request);
    struct mount *mount = mount_of(request);
    struct open_file *opened = open_file_of(info), *file = opened;
    bool data = whence == SEEK_DATA;
    uint64_t found = 0;
    (void)number;
    open_file_use(opened);
    int error = open_file_now(mount, &file);
    struct inode inode = file->inode;
    if (error)
        ;
    else if (!data && whence != SEEK_HOLE)
        error = -EINVAL;
    else if (file->fd >= 0)
        error = seek_in_passed(file, offset, whence, &found);
    else if (offset < 0)
        error = -ENXIO;
    else if (file->views && inode_view(inode) != VIEW_DEFINED &&
             !staging_size(mount->staging, file->node, inode_view(inode), inode.frame, &found) &&
             !matrix_size(mount->matrices, file->node, inode_view(inode), &found) &&
             !mount_shows_nothing(mount, file->node, file->views, inode))
        error =
            view_seek(file->views, inode_view(inode), inode.frame, (uint64_t)offset, data, &found);
    else
        error = seek_in_text(mount, file, (uint64_t)offset, data, &found);
    if (error)
        fuse_reply_err(request, -error);
    else
        fuse_reply_lseek(request, (off_t)found);
    open_file_put(mount, opened);
}

static void on_opendir(fuse_req_t request, fuse_ino_t number, struct fuse_file_info *info)
{
    LOOKING(request);
    struct mount *mount = mount_of(request);
    if (!atomic_load(&mount->opens_directories)) {
        fuse_reply_err(request, ENOSYS); /* it never asks again, and keeps what they hold */
        return;
    }
    struct open_file *file = open_file_new(mount, number);
    int error = file ? directory_open(mount, file->inode, &file->directory) : -ENOMEM;
    if (error) {
        if (file)
            open_file_put(mount, file);
        fuse_reply_err(request, -error);
        return;
    }
    info->fh = (uintptr_t)file;
    info->cache_readdir = info->keep_cache = !mount->follow && !is_in_folder(mount, number);
    if (fuse_reply_open(request, info) == -ENOENT)
        open_file_put(mount, file);
}

static void read_directory(fuse_ino_t number, struct fuse_file_info *info,
                           const struct directory_read *read)
{
    LOOKING(read->request);
    struct mount *mount = mount_of(read->request);
    if (atomic_load(&mount->opens_directories))
        directory_read_open(mount, open_file_of(info)->directory, read);
    else
        directory_read(mount, inode_unpack(number), read);
}

static void on_readdir(fuse_req_t request, fuse_ino_t number, size_t size, off_t offset,
                       struct fuse_file_info *info)
{
    read_directory(number, info, &(struct directory_read){request, size, offset, false});
}

static void on_readdirplus(fuse_req_t request, fuse_ino_t number, size_t size, off_t offset,
                           struct fuse_file_info *info)
{
    read_directory(number, info, &(struct directory_read){request, size, offset, true});
}

static void on_statfs(fuse_req_t request, fuse_ino_t number)
{
    (void)number;
    struct statvfs st;
    const struct mount *mount = mount_of(request);
    int error = mount->files ? folder_statvfs(mounted_files_folder(mount->files), &st)
                             : sfs_statvfs(mount->file, &st);
    if (error) {
        fuse_reply_err(request, -error);
        return;
    }
    st.f_namemax = 255;
    fuse_reply_statfs(request, &st);
}

const struct fuse_lowlevel_ops mount_requests = {
    .init = on_init,
    .lookup = on_lookup,
    .forget = on_forget,
    .forget_multi = on_forget_multi,
    .getattr = on_getattr,
    .readlink = on_readlink,
    .setattr = on_setattr,
    .mknod = on_mknod,
    .mkdir = on_mkdir,
    .unlink = on_unlink,
    .rmdir = on_rmdir,
    .symlink = on_symlink,
    .rename = on_rename,
    .link = on_link,
    .create = on_create,
    .open = on_open,
    .release = on_release,
    .flush = on_flush,
    .read = on_read,
    .write = on_write,
    .fallocate = on_fallocate,
    .lseek = on_lseek,
    .fsync = on_fsync,
    .opendir = on_opendir,
    .releasedir = on_release,
    .readdir = on_readdir,
    .readdirplus = on_readdirplus,
    .fsyncdir = on_fsyncdir,
    .statfs = on_statfs,
    .getxattr = on_getxattr,
    .listxattr = on_listxattr,
    .setxattr = on_setxattr,
    .removexattr = on_removexattr,
};
