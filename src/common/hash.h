/* uthash, told to report a failed allocation instead of ending the process: after HASH_ADD_KEYPTR
 * or HASH_ADD, hash_failed() says whether this thread's element was left out. */
#ifndef SPARSEFS_COMMON_HASH_H
#define SPARSEFS_COMMON_HASH_H

#include <stdbool.h>

static _Thread_local bool hash_out_of_memory;

#define HASH_NONFATAL_OOM            1
#define uthash_nonfatal_oom(element) (hash_out_of_memory = true)

#include <uthash.h>

static inline bool hash_failed(void)
{
    bool failed = hash_out_of_memory;
    hash_out_of_memory = false;
    return failed;
}

#endif
