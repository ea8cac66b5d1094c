/* The files of a mount: the one of the command line, and those that external links lead to. They
 * stay open until the mount ends. */
#include <errno.h>
#include <utlist.h>

#include "common/interrupt.h"
#include "fs/node_table.h"

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
    mounted = error ? NULL : mounted_new(NULL, "", &st);
    if (!mounted) {
        sfs_close(file);
        return error ? error : -ENOMEM;
    }
    mounted->file = file;
    mounted->root = sfs_root(file);
    LL_APPEND(nodes->files, mounted);
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
