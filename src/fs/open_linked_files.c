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

/* There may be no other one. */
static void tell_of_limit(const struct nodes *nodes)
{
    static _Atomic uint64_t said;
    if (log_is_due(&said))
        log_warning("%s: external links lead to %zu files, which are open until the mount ends: "
                    "further ones are "
                    "not followed; more than that only where more files can be open at a time "
                    "(ulimit -n), up to %d",
                    sfs_path(nodes->files->file), nodes->n_linked, NODES_MOST_LINKED);
}

/* One that is mounted already; NULL: none. files_lock must be held, here and below. */
static struct mounted_file *find_file(const struct nodes *nodes, const struct stat *st)
{
    struct mounted_file *mounted = nodes->files;
    while (mounted && (mounted->st.st_dev != st->st_dev || mounted->st.st_ino != st->st_ino))
        mounted = mounted->next;
    return mounted;
}

/* Adds an open file, which is closed instead if it is mounted already: its name has led elsewhere, just before. */
static int add_file(struct nodes *nodes, struct sfs_file *file, struct mounted_file **out)
{
    struct stat st;
    int error = sfs_stat(file, &st);
    struct mounted_file *mounted = error ? NULL : find_file(nodes, &st);
    if (mounted) {
        sfs_close(file);
        *out = mounted;
        return 0;
    }
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

static int open_file(struct nodes *nodes, struct sfs_file *from, const char *name,
                     struct mounted_file **out)
{
    struct sfs_file *file;
    if (nodes->n_linked >= most_linked()) {
        tell_of_limit(nodes);
        return -ENFILE;
    }
    int error = nodes->external_links ? sfs_open_linked(from, name, &file)
                                      : sfs_open_beneath(from, name, &file);
    return error ? error : add_file(nodes, file, out);
}

/* Opening takes longer than looking whether it is there: all links of a group may lead to one file. Where there is no
 * room none is opened, however often links to more of them are looked at. */
static int find_or_open(struct nodes *nodes, struct sfs_file *from, const char *name,
                        struct mounted_file **out)
{
    struct stat st;
    int error = file_stat_linked(from, nodes->external_links, name, &st);
    if (error)
        return error;
    *out = find_file(nodes, &st);
    return *out ? 0 : open_file(nodes, from, name, out);
}

int nodes_open_linked(struct nodes *nodes, struct sfs_file *from, const char *name,
                      struct mounted_file **out)
{
    int error = interrupt_lock(&nodes->files_lock); /* it is held while one is opened */
    if (error)
        return error;
    error = find_or_open(nodes, from, name, out);
    pthread_mutex_unlock(&nodes->files_lock);
    return error;
}
