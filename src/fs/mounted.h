/* HDF5 files that are mounted. */
#ifndef SPARSEFS_FS_MOUNTED_H
#define SPARSEFS_FS_MOUNTED_H

#include <sys/stat.h>

#include "sparsefs/sparsefs.h"

/* The file of the command line, or one that an external link names. */
struct mounted_file {
    struct mounted_file *next;
    struct sfs_file *file;
    struct stat st; /* as of opening */
};

#endif
