/* uthash, told to report a failed allocation instead of ending the process: after HASH_ADD_KEYPTR
 * or HASH_ADD, hash_failed() says whether this thread's element was left out. And told to hash with
 * a secret: most keys come from files (names, addresses, coordinates) or from users, and with a
 * function that is known to all a table of chosen keys is but one long list. */
#ifndef SPARSEFS_COMMON_HASH_H
#define SPARSEFS_COMMON_HASH_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

static _Thread_local bool hash_out_of_memory;

#define HASH_NONFATAL_OOM            1
#define uthash_nonfatal_oom(element) (hash_out_of_memory = true)

/* SipHash-1-3 of n bytes (Aumasson and Bernstein, 2012). */
uint64_t hash_siphash(const uint64_t secret[2], const void *key, size_t n);

/* The same with the secret of this process, which is made when the program, or the library, is loaded. */
uint64_t hash_keyed(const void *key, size_t n);

/* Of a process that was forked and is not to know what the one before it has. It has no table that
 * it uses. */
void hash_new_secret(void);

#define HASH_FUNCTION(key, n, hash) ((hash) = (unsigned)hash_keyed(key, n))

#include <uthash.h>

static inline bool hash_failed(void)
{
    bool failed = hash_out_of_memory;
    hash_out_of_memory = false;
    return failed;
}

#endif
