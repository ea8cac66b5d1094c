/* Following: all files of a mount take what their writers have committed last. */
#include "fs/node_table.h"

/* Files are added only: the lock need not be held while something is done with one. */
static struct mounted_file *next_file(struct nodes *nodes, const struct mounted_file *mounted)
{
    pthread_mutex_lock(&nodes->files_lock);
    struct mounted_file *next = mounted ? mounted->next : nodes->files;
    pthread_mutex_unlock(&nodes->files_lock);
    return next;
}

int nodes_refresh(struct nodes *nodes)
{
    int error = 0;
    if (nodes->folder_files)
        return mounted_files_refresh(nodes->folder_files);
    for (struct mounted_file *mounted = NULL; (mounted = next_file(nodes, mounted));) {
        int failed = sfs_refresh(mounted->file);
        error = error ? error : failed;
    }
    return error;
}

void nodes_interrupt(struct nodes *nodes)
{
    if (nodes->folder_files) {
        mounted_files_interrupt(nodes->folder_files);
        return;
    }
    for (struct mounted_file *mounted = NULL; (mounted = next_file(nodes, mounted));)
        sfs_interrupt(mounted->file);
}
