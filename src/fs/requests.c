/* The requests of FUSE's low-level interface: a thin front over look-up, attributes, listings and
 * views. This is where negative errnos become replies. */
#include <errno.h>
#include <limits.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <utlist.h>

#include "fs/mount.h"

/* What a user has open: a view, a text that was made when it was opened, or a directory. The user
 * may have closed a file before the thread that answered his last read has come back from doing so:
 * who uses it counts. */
struct open_file {
    struct open_file *prev, *next; /* of all that are open in the mount; under open_lock */
    atomic_uint users;
    const struct node *node;
    struct views *views; /* of a view */
    struct inode inode;
    char *text;
    size_t text_bytes;
    struct directory *directory;
};

/* What is still open when the mount ends gets no release. */
static pthread_mutex_t open_lock = PTHREAD_MUTEX_INITIALIZER;
static struct open_file *open_files;

static struct mount *mount_of(fuse_req_t request)
{
    return fuse_req_userdata(request);
}

static bool is_control(struct inode inode)
{
    return inode.entry == ENTRY_PID || inode.entry == ENTRY_STATISTICS;
}

static double timeout_of(struct inode inode)
{
    return is_control(inode) ? 0 : MOUNT_TIMEOUT_SECONDS;
}

static void on_init(void *data, struct fuse_conn_info *connection)
{
    (void)data;
    /* Replies come from memory: splicing them costs three to four times a copy. */
    connection->want &=
        ~(unsigned)(FUSE_CAP_SPLICE_READ | FUSE_CAP_SPLICE_WRITE | FUSE_CAP_SPLICE_MOVE);
    connection->want |= connection->capable & (FUSE_CAP_CACHE_SYMLINKS | FUSE_CAP_PARALLEL_DIROPS);
}

static void on_lookup(fuse_req_t request, fuse_ino_t parent, const char *name)
{
    struct mount *mount = mount_of(request);
    struct fuse_entry_param entry = {.entry_timeout = MOUNT_TIMEOUT_SECONDS};
    struct inode inode;
    int error = mount_lookup(mount, inode_unpack(parent), name, &inode);
    if (error == -ENOENT) { /* the kernel may remember that, too */
        fuse_reply_entry(request, &entry);
        return;
    }
    if (!error)
        error = mount_attributes(mount, inode, &entry.attr);
    if (error) {
        fuse_reply_err(request, -error);
        return;
    }
    entry.ino = entry.attr.st_ino;
    entry.attr_timeout = timeout_of(inode);
    fuse_reply_entry(request, &entry);
}

static void on_getattr(fuse_req_t request, fuse_ino_t number, struct fuse_file_info *info)
{
    (void)info;
    struct inode inode = inode_unpack(number);
    struct stat st;
    int error = mount_attributes(mount_of(request), inode, &st);
    if (error)
        fuse_reply_err(request, -error);
    else
        fuse_reply_attr(request, &st, timeout_of(inode));
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

static struct open_file *new_file(struct mount *mount, fuse_ino_t number)
{
    struct open_file *file = calloc(1, sizeof(*file));
    if (!file)
        return NULL;
    atomic_init(&file->users, 1);
    file->inode = inode_unpack(number);
    file->node = node_get(mount->nodes, file->inode.node);
    pthread_mutex_lock(&open_lock);
    DL_APPEND(open_files, file);
    pthread_mutex_unlock(&open_lock);
    return file;
}

static void put_file(struct mount *mount, struct open_file *file)
{
    if (atomic_fetch_sub(&file->users, 1) > 1)
        return;
    pthread_mutex_lock(&open_lock);
    DL_DELETE(open_files, file);
    pthread_mutex_unlock(&open_lock);
    if (file->views)
        node_put_views(mount->nodes, file->node);
    if (file->directory)
        directory_close(mount, file->directory);
    free(file->text);
    free(file);
}

void mount_close_all(struct mount *mount)
{
    while (open_files)
        put_file(mount, open_files);
}

static struct open_file *file_of(const struct fuse_file_info *info)
{
    return (struct open_file *)(uintptr_t)info->fh;
}

static int open_view(struct mount *mount, struct open_file *file)
{
    int error = node_get_views(mount->nodes, file->node, &file->views);
    if (error)
        return error;
    return view_readable(file->views, inode_view(file->inode));
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

static void on_open(fuse_req_t request, fuse_ino_t number, struct fuse_file_info *info)
{
    struct mount *mount = mount_of(request);
    struct open_file *file = new_file(mount, number);
    if (!file) {
        fuse_reply_err(request, ENOMEM);
        return;
    }
    int error;
    if ((info->flags & O_ACCMODE) != O_RDONLY)
        error = -EROFS;
    else if (!file->node)
        error = -ESTALE;
    else if (inode_is_view(file->inode))
        error = open_view(mount, file);
    else if (is_control(file->inode))
        error = control_text(mount, file->inode.entry, &file->text, &file->text_bytes);
    else
        error = open_datatype(file);
    if (error) {
        put_file(mount, file);
        fuse_reply_err(request, -error);
        return;
    }
    info->fh = (uintptr_t)file;
    /* A selection changes its size with its content, is read once, and mapped by nobody: the page
     * cache would cost a third of the time of reading it. */
    bool is_selection = inode_is_view(file->inode) && inode_view(file->inode) == VIEW_DEFINED;
    info->direct_io = mount->options->direct_io || is_control(file->inode) || is_selection;
    info->keep_cache = !info->direct_io;
    info->noflush = 1;
    if (fuse_reply_open(request, info) == -ENOENT) /* interrupted: no release will come */
        put_file(mount, file);
}

static void on_release(fuse_req_t request, fuse_ino_t number, struct fuse_file_info *info)
{
    (void)number;
    put_file(mount_of(request), file_of(info));
    fuse_reply_err(request, 0);
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

static void read_view(fuse_req_t request, const struct open_file *file, size_t size, off_t offset)
{
    char *buffer = thread_buffer(size);
    struct view_part part;
    int error = buffer ? view_read(file->views, inode_view(file->inode), file->inode.frame,
                                   (uint64_t)offset, size, buffer, &part)
                       : -ENOMEM;
    if (error) {
        fuse_reply_err(request, -error);
        return;
    }
    fuse_reply_buf(request, part.bytes, part.n);
    view_return(file->views, &part);
}

static void on_read(fuse_req_t request, fuse_ino_t number, size_t size, off_t offset,
                    struct fuse_file_info *info)
{
    (void)number;
    struct mount *mount = mount_of(request); /* the request is gone with its reply */
    struct open_file *file = file_of(info);
    atomic_fetch_add(&file->users, 1);
    if (file->views)
        read_view(request, file, size, offset);
    else
        read_text(request, file, size, offset);
    put_file(mount, file);
}

/* A text has no holes. */
static int seek_in_text(struct mount *mount, struct inode inode, uint64_t offset, bool data,
                        uint64_t *found)
{
    struct stat st;
    int error = mount_attributes(mount, inode, &st);
    if (!error && offset >= (uint64_t)st.st_size)
        error = -ENXIO;
    if (!error)
        *found = data ? offset : (uint64_t)st.st_size;
    return error;
}

static void on_lseek(fuse_req_t request, fuse_ino_t number, off_t offset, int whence,
                     struct fuse_file_info *info)
{
    struct mount *mount = mount_of(request);
    struct open_file *file = file_of(info);
    struct inode inode = inode_unpack(number);
    bool data = whence == SEEK_DATA;
    uint64_t found = 0;
    int error;
    atomic_fetch_add(&file->users, 1);
    if (!data && whence != SEEK_HOLE)
        error = -EINVAL;
    else if (offset < 0)
        error = -ENXIO;
    else if (file->views)
        error =
            view_seek(file->views, inode_view(inode), inode.frame, (uint64_t)offset, data, &found);
    else
        error = seek_in_text(mount, inode, (uint64_t)offset, data, &found);
    if (error)
        fuse_reply_err(request, -error);
    else
        fuse_reply_lseek(request, (off_t)found);
    put_file(mount, file);
}

static void on_opendir(fuse_req_t request, fuse_ino_t number, struct fuse_file_info *info)
{
    struct mount *mount = mount_of(request);
    struct open_file *file = new_file(mount, number);
    int error = file ? directory_open(mount, file->inode, &file->directory) : -ENOMEM;
    if (error) {
        if (file)
            put_file(mount, file);
        fuse_reply_err(request, -error);
        return;
    }
    info->fh = (uintptr_t)file;
    info->cache_readdir = 1;
    info->keep_cache = 1;
    if (fuse_reply_open(request, info) == -ENOENT)
        put_file(mount, file);
}

static void on_readdir(fuse_req_t request, fuse_ino_t number, size_t size, off_t offset,
                       struct fuse_file_info *info)
{
    (void)number;
    directory_read(mount_of(request), file_of(info)->directory, request, size, offset, false);
}

static void on_readdirplus(fuse_req_t request, fuse_ino_t number, size_t size, off_t offset,
                           struct fuse_file_info *info)
{
    (void)number;
    directory_read(mount_of(request), file_of(info)->directory, request, size, offset, true);
}

static void on_statfs(fuse_req_t request, fuse_ino_t number)
{
    (void)number;
    struct statvfs st;
    int error = sfs_statvfs(mount_of(request)->file, &st);
    if (error) {
        fuse_reply_err(request, -error);
        return;
    }
    st.f_namemax = 255;
    fuse_reply_statfs(request, &st);
}

/* ---- Extended attributes: those of groups, datasets and committed datatypes ---- */

#define XATTR_PREFIX     "user."
#define XATTR_NAME_BYTES 255   /* XATTR_NAME_MAX of Linux */
#define XATTR_BYTES      65536 /* XATTR_SIZE_MAX and XATTR_LIST_MAX */

/* The attributes of an inode that has any; NULL without an error if it can have none. */
static int attributes_of(struct mount *mount, struct inode inode,
                         struct node_attributes **attributes)
{
    const struct node *node = node_get(mount->nodes, inode.node);
    *attributes = NULL;
    if (!node || inode.entry != ENTRY_NODE || node->type == NODE_SYMLINK ||
        node->type == NODE_UNREADABLE)
        return 0;
    return node_get_attributes(mount->nodes, node, attributes);
}

static void reply_xattr(fuse_req_t request, const char *value, size_t n, size_t size)
{
    if (n > XATTR_BYTES)
        fuse_reply_err(request, E2BIG);
    else if (size == 0)
        fuse_reply_xattr(request, n);
    else if (n > size)
        fuse_reply_err(request, ERANGE);
    else
        fuse_reply_buf(request, value, n);
}

static void on_getxattr(fuse_req_t request, fuse_ino_t number, const char *name, size_t size)
{
    /* ls asks every file for these until it is told that there are none here at all. For other
     * names ENOSYS would end all extended attributes of the mount. */
    if (!strncmp(name, "system.posix_acl_", strlen("system.posix_acl_")) ||
        !strcmp(name, "security.selinux")) {
        fuse_reply_err(request, EOPNOTSUPP);
        return;
    }
    struct node_attributes *attributes = NULL;
    int error = strncmp(name, XATTR_PREFIX, strlen(XATTR_PREFIX)) != 0
                    ? 0
                    : attributes_of(mount_of(request), inode_unpack(number), &attributes);
    const char *value = NULL;
    if (!error && attributes) {
        const struct sfs_attributes *all = node_attributes(attributes);
        for (size_t i = 0; i < all->n && !value; i++)
            if (!strcmp(all->attribute[i].name, name + strlen(XATTR_PREFIX)))
                value = all->attribute[i].text;
    }
    if (value)
        reply_xattr(request, value, strlen(value), size);
    else
        fuse_reply_err(request, error ? -error : ENODATA);
    node_put_attributes(attributes);
}

/* Left out are attributes that getxattr could not give: too long, or unreadable. */
static bool is_listable(const struct sfs_attribute *attribute)
{
    return attribute->text && strlen(attribute->text) <= XATTR_BYTES &&
           strlen(XATTR_PREFIX) + strlen(attribute->name) <= XATTR_NAME_BYTES;
}

static void on_listxattr(fuse_req_t request, fuse_ino_t number, size_t size)
{
    struct node_attributes *attributes;
    char *list = NULL;
    size_t n = 0;
    int error = attributes_of(mount_of(request), inode_unpack(number), &attributes);
    FILE *out = error ? NULL : open_memstream(&list, &n);
    if (!out) {
        fuse_reply_err(request, error ? -error : ENOMEM);
        return;
    }
    const struct sfs_attributes *all = attributes ? node_attributes(attributes) : NULL;
    for (size_t i = 0; all && i < all->n; i++)
        if (is_listable(&all->attribute[i]))
            fprintf(out, XATTR_PREFIX "%s%c", all->attribute[i].name, '\0');
    node_put_attributes(attributes);
    if (fclose(out) == 0)
        reply_xattr(request, list, n, size);
    else
        fuse_reply_err(request, ENOMEM);
    free(list);
}

/* fsync of a file or directory: everything of a read-only mount is durable. */
static void on_fsync(fuse_req_t request, fuse_ino_t number, int data_only,
                     struct fuse_file_info *info)
{
    (void)number, (void)data_only, (void)info;
    fuse_reply_err(request, 0);
}

const struct fuse_lowlevel_ops mount_requests = {
    .init = on_init,
    .lookup = on_lookup,
    .getattr = on_getattr,
    .readlink = on_readlink,
    .open = on_open,
    .release = on_release,
    .read = on_read,
    .lseek = on_lseek,
    .fsync = on_fsync,
    .opendir = on_opendir,
    .releasedir = on_release,
    .readdir = on_readdir,
    .readdirplus = on_readdirplus,
    .fsyncdir = on_fsync,
    .statfs = on_statfs,
    .getxattr = on_getxattr,
    .listxattr = on_listxattr,
};
