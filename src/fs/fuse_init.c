/* What is agreed with the kernel when the mount begins. */
#include "fs/mount.h"
#include "fs/requests.h"

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

/* Readings ahead, and closings, that the kernel has under way at a time. It lets all others wait in the order
 * in which they came, and with its own 12 that takes as long as the slowest of one user. All other requests, too, come
 * after those that came before: with many more they would wait for who has asked for much and is gone. */
#define MOST_IN_BACKGROUND 128

bool mount_keeps_listings(const struct mount *mount)
{
    return !mount->follow && !(mount->is_writable && mount->options->allow_other);
}

void on_init(void *data, struct fuse_conn_info *connection)
{
    struct mount *mount = data;
    connection->max_background = MOST_IN_BACKGROUND;
    connection->congestion_threshold = MOST_IN_BACKGROUND * 3 / 4;
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
                 !mount_keeps_listings(mount) || mount->files ||
                     !(connection->capable & FUSE_CAP_NO_OPENDIR_SUPPORT));
}
