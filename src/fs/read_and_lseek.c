/* Requests that read: bytes of a file, and where it has data and holes. */
#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <unistd.h>

#include "common/io.h"
#include "fs/interrupt.h"
#include "fs/open.h"
#include "fs/read_defined.h"
#include "fs/requests.h"

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
        answer_error(request, error);
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
        answer_error(request, error);
    else
        fuse_reply_buf(request, buffer, used);
}

static void read_view(fuse_req_t request, struct mount *mount, struct open_file *file, size_t size,
                      off_t offset)
{
    char *buffer = thread_buffer(size);
    struct view_part part = {.bytes = buffer};
    int error = buffer ? mount_apply_staged(mount, file->node, file->inode) : -ENOMEM;
    if (mount->notify && !node_tell(mount->nodes, file->node, inode_view(file->inode),
                                    mount_frame_of_times(file->inode)))
        node_tell_open(mount->nodes, file->node);
    notify_read(mount->notify, inode_pack(file->inode), (uint64_t)offset, size);
    uint64_t version;
    const struct staged_part staged = {inode_view(file->inode), file->inode.frame, (uint64_t)offset,
                                       size};
    bool waits = !error && !file->reading &&
                 staging_read(mount->staging, file->node, staged, buffer, &part.n, &version);
    if (!error && !file->reading && !waits)
        error = matrix_read(mount->matrices, file->node, &staged, buffer, &waits, &part.n);
    if (waits)
        ;
    else if (!error &&
             (file->reading || mount_shows_nothing(mount, file->node, file->views, file->inode)))
        error = read_made(mount, file, size, offset, buffer, &part.n);
    else if (!error)
        error = view_read(file->views, inode_view(file->inode), file->inode.frame,
                          &(struct view_room){(uint64_t)offset, size, buffer, false}, &part);
    if (error) {
        answer_error(request, error);
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
        answer_error(request, error);
    else if (file->temporary)
        fuse_reply_buf(request, buffer, n);
    else
        read_view(request, mount, file, size, offset);
}

void on_read(fuse_req_t request, fuse_ino_t number, size_t size, off_t offset,
             struct fuse_file_info *info)
{
    LOOKING(request);
    (void)number;
    struct mount *mount = mount_of(request); /* the request is gone with its reply */
    struct open_file *opened = open_file_of(info), *file = opened;
    open_file_use(opened);
    int error = open_file_now(mount, &file);
    if (error)
        answer_error(request, error);
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

/* Whether that is so of what it shows now. -EINTR. */
static int has_no_holes(struct mount *mount, const struct open_file *file, bool *has_none)
{
    uint64_t size;
    struct inode inode = file->inode;
    *has_none = !file->views || inode_view(inode) == VIEW_DEFINED ||
                staging_size(mount->staging, file->node, inode_view(inode), inode.frame, &size);
    if (*has_none)
        return 0;
    int error = matrix_size(mount->matrices, file->node, inode_view(inode), has_none, &size);
    if (!error && !*has_none)
        *has_none = mount_shows_nothing(mount, file->node, file->views, inode);
    return error;
}

static int seek(struct mount *mount, const struct open_file *file, uint64_t offset, bool data,
                uint64_t *found)
{
    bool is_text;
    int error = has_no_holes(mount, file, &is_text);
    if (error)
        return error;
    return is_text ? seek_in_text(mount, file, offset, data, found)
                   : view_seek(file->views, inode_view(file->inode), file->inode.frame, offset,
                               data, found);
}

static int seek_in_passed(const struct open_file *file, off_t offset, int whence, uint64_t *found)
{
    off_t at = lseek(file->fd, offset, whence);
    *found = at < 0 ? 0 : (uint64_t)at;
    return at < 0 ? -errno : 0;
}

void on_lseek(fuse_req_t request, fuse_ino_t number, off_t offset, int whence,
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
    if (error)
        ;
    else if (!data && whence != SEEK_HOLE)
        error = -EINVAL;
    else if (file->fd >= 0)
        error = seek_in_passed(file, offset, whence, &found);
    else if (offset < 0)
        error = -ENXIO;
    else
        error = seek(mount, file, (uint64_t)offset, data, &found);
    if (error)
        answer_error(request, error);
    else
        fuse_reply_lseek(request, (off_t)found);
    open_file_put(mount, opened);
}
