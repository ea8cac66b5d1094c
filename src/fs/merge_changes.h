/* Changes that the kernel is to be told of (kernel_invalidate.h), as they are queued, and merging those for which
 * nobody waits. Not thread-safe. */
#ifndef SPARSEFS_FS_MERGE_CHANGES_H
#define SPARSEFS_FS_MERGE_CHANGES_H

#include <stdbool.h>
#include <stdint.h>
#include <time.h>

#include "fs/answer.h"
#include "fs/fuse.h"
#include "fs/inodes_of_change.h"

/* n 0: to the end. */
struct range {
    uint64_t offset, n;
};

struct job {
    struct job *prev, *next;
    bool has_change;   /* else: it is done when those before it are */
    bool is_repeated;  /* what was read since that change is as it was */
    bool runs;         /* a worker has it */
    bool is_of_others; /* the inodes of other datasets are invalidated, */
    bool has_others;   /* or are to be, once those of this one are */
    bool has_own;      /* a range of the writer's own inode is invalidated last */
    struct range own;
    struct change change;
    struct range stack[2]; /* what of VIEW_STACK_RAW and VIEW_STACK_NPY */
    uint64_t writer;       /* an inode; 0: none */
    fuse_req_t request;    /* NULL: none, or answered */
    struct answer answer;
    struct timespec deadline; /* of the answer; of one that is to come: when */
    struct timespec latest;   /* of a close that is told again */
};

/* Whether it is in the way of nobody: no one waits for its answer, and no worker has it. */
bool job_is_unawaited(const struct job *job);

/* Merges one that is queued and for which nobody waits with another one in the queue, if there is such a one: returns
 * which of two is left over, for the caller to destroy, or NULL. */
struct job *job_merge(struct job **jobs, struct job *job);

#endif
