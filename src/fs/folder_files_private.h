/* What the files about a folder's open files share. */
#ifndef SPARSEFS_FS_FOLDER_FILES_PRIVATE_H
#define SPARSEFS_FS_FOLDER_FILES_PRIVATE_H

#include "fs/folder_open_files.h"

struct mounted_files {
    struct folder *folder;
    struct together *together;
    unsigned most;
    size_t most_in_use; /* mounted_most_in_use, or fewer for want of descriptors */
    struct mounted_calls calls;
    void *context;
    pthread_mutex_t lock;         /* guards what follows */
    pthread_cond_t changed;       /* something is no longer busy or used */
    struct mounted_file *open;    /* with those that are being closed */
    struct mounted_file *opening; /* those that are being opened */
    unsigned n_open;              /* of both */
    unsigned n_closing;           /* threads, at the end */
    uint64_t opened;
    int lost;                     /* the first error for which something is lost */
    struct sfs_statistics closed; /* the store_* of those that are not open any more */
};

/* Closes an open file that nobody uses, and that is not busy. The lock must be held, and is dropped meanwhile.
 * may_stay: it does if what was written cannot be committed, unless it never can be. Whether it is closed. */
bool mounted_close(struct mounted_file *file, bool may_stay);

#endif
