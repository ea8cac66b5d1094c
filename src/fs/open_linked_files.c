/* The files of a mount: the one of the command line, and those that external links lead to. They
 * stay open until the mount ends, with a few descriptors each, and so there is a limit. Processes of libhdf5
 * for them are ended when they were not asked for long (hdf5/worker/client_idle.c). */
#include <errno.h>
#include <sys/resource.h>
#include <utlist.h>

#include "common/interrupt.h"
#include "common/log.h"
#include "fs/node_table.h"

#define SHARE 4 /* one for so many descriptors that there may be: three quarters, at most */

static size_t most_linked(void)
{
    struct rlimit limit;
    bool is_less =
        getrlimit(RLIMIT_NOFILE, &limit) == 0 && limit.rlim_cur / SHARE < NODES_MOST_LINKED;
    return is_less ? (size_t)limit.rlim_cur / SHARE : NODES_MOST_LINKED;
}

/* Whether there may be another one. */
static bool check_room(const struct nodes *nodes)
{
    static _Atomic uint64_t said;
    if (nodes->n_linked < most_linked())
        return true;
    if (log_is_due(&said))
        log_warning("%s: external links lead to %zu files, which are open until the mount ends: "
                    "further ones are "
                    "not followed; more than that only where more files can be open at a time "
                    "(ulimit -n), up to %d",
                    sfs_path(nodes->files->file), nodes->n_linked, NODES_MOST_LINKED);
    return false;
}

/* Adds an open file, which is closed instead if it is mounted already. files_lock must be held. */
static int add_file(struct nodes *nodes, struct sfs_file *file, struct mounted_file **out)
{
    struct stat st;
    int error = sfs_stat(file, &st);
    struct mounted_file *mounted;
    for (mounted = nodes->files; mounted && !error; mounted = mounted->next) {
        if (mounted->st.st_dev == st.st_dev && mounted->st.st_ino == st.st_ino) {
            sfs_close(file);
            *out = mounted;
            return 0;
        }
    }
    if (!error && !check_room(nodes))
        error = -ENFILE;
    mounted = error ? NULL : mounted_new(NULL, "", &st);
    if (!mounted) {
        sfs_close(file);
        return error ? error : -ENOMEM;
    }
    mounted->file = file;
    mounted->root = sfs_root(file);
    LL_APPEND(nodes->files, mounted);
    nodes->n_linked++;
    *out = mounted;
    return 0;
}

int nodes_open_linked(struct nodes *nodes, struct sfs_file *from, const char *name,
                      struct mounted_file **out)
{
    struct sfs_file *file;
    int error = interrupt_lock(&nodes->files_lock); /* it is held while one is opened */
    if (error)
        return error;
    error = nodes->external_links ? sfs_open_linked(from, name, &file)
                                  : sfs_open_beneath(from, name, &file);
    if (!error)
        error = add_file(nodes, file, out);
    pthread_mutex_unlock(&nodes->files_lock);
    return error;
}
