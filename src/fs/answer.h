/* Answers to the kernel's requests, also such as are given later, by another thread. Thread-safe. */
#ifndef SPARSEFS_FS_ANSWER_H
#define SPARSEFS_FS_ANSWER_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/stat.h>

#include "fs/fuse.h"
#include "fs/inode.h"

/* How a request is answered: kind says by which call of libfuse. */
struct answer {
    enum {
        ANSWER_ERROR,
        ANSWER_WRITTEN,
        ANSWER_ATTRIBUTES,
        ANSWER_ENTRY,
        ANSWER_OPENED,
        ANSWER_CREATED,
        ANSWER_CLOSED
    } kind;
    int error;                     /* 0 or negative errno */
    size_t written;                /* bytes, */
    uint64_t offset;               /* from there on; */
    bool is_of_map;                /* dirty pages, which the kernel keeps until this is answered */
    struct stat st;                /* ANSWER_ATTRIBUTES, */
    double timeout;                /* seconds, and how long they hold */
    struct fuse_entry_param entry; /* ANSWER_ENTRY, ANSWER_CREATED */
    struct fuse_file_info info;    /* ANSWER_OPENED, ANSWER_CREATED: its file is put if the request
                                      was interrupted */
    bool is_of_own;                /* ANSWER_OPENED: a view that shows nothing of other datasets;
                                      ANSWER_ERROR: a close of what was only read */
    struct inode inode;            /* ANSWER_CLOSED: the view and frame that staging_close is of */
};

/* Answers with an error as the product has it, or 0. -ENOSYS is said as EIO: the kernel would take an fsync for
 * done, an attribute for none, and would not ask for such things any more. */
void answer_error(fuse_req_t request, int error);

/* Answers a look-up, or one that has found nothing; the kernel forgets the inode if the call was
 * interrupted. */
void answer_entry(fuse_req_t request, const struct fuse_entry_param *entry);

/* Sends an answer now. */
void answer_now(fuse_req_t request, const struct answer *answer);

#endif
