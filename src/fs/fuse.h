/* The version of libfuse's low-level interface that all of src/fs is written for. */
#ifndef SPARSEFS_FS_FUSE_H
#define SPARSEFS_FS_FUSE_H

#define FUSE_USE_VERSION 39
#include <fuse_lowlevel.h>

#endif
