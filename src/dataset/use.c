/* Calls on one dataset from several threads: while one of them changes the dims no other runs, and
 * what was worked out before a change can be told from what was worked out after it.
 *
 * A call may be nested in another: sfs_chunk_iterate calls a function that may call anything. So a
 * thread that is inside of a call already does not wait for one that waits for it to change dims.
 */
#include <assert.h>

#include "dataset/private.h"

#define CHANGING_NOW ((uint64_t)1)
#define ONE_CHANGE   ((uint64_t)1 << 16)

static _Thread_local unsigned depth; /* calls on datasets that this thread is in */

void use_init(struct use *use)
{
    pthread_rwlock_init(&use->lock, NULL);
    pthread_mutex_init(&use->gate, NULL);
    atomic_init(&use->is_closed, false);
    atomic_init(&use->changes, ONE_CHANGE); /* 0 has a meaning */
    atomic_init(&use->extents, 1);
}

void use_destroy(struct use *use)
{
    pthread_mutex_destroy(&use->gate);
    pthread_rwlock_destroy(&use->lock);
}

struct use *use_begin(struct use *use)
{
    /* Readers overtake a waiting writer at the lock itself, for ever if there are enough of them.
     */
    if (depth == 0 && atomic_load(&use->is_closed)) {
        pthread_mutex_lock(&use->gate);
        pthread_mutex_unlock(&use->gate);
    }
    pthread_rwlock_rdlock(&use->lock);
    depth++;
    return use;
}

void use_end(struct use **use)
{
    assert(depth > 0);
    depth--;
    pthread_rwlock_unlock(&(*use)->lock);
}

struct use *change_begin(struct use *use)
{
    atomic_fetch_add(&use->changes, CHANGING_NOW);
    return use;
}

void change_end(struct use **use)
{
    atomic_fetch_add(&(*use)->changes, ONE_CHANGE - CHANGING_NOW);
}

struct use *alone_begin(struct use *use)
{
    pthread_mutex_lock(&use->gate);
    atomic_store(&use->is_closed, true);
    pthread_rwlock_wrlock(&use->lock);
    depth++;
    return change_begin(use);
}

void alone_end(struct use **use)
{
    change_end(use);
    depth--;
    pthread_rwlock_unlock(&(*use)->lock);
    atomic_store(&(*use)->is_closed, false);
    pthread_mutex_unlock(&(*use)->gate);
}

uint64_t sfs_dataset_changes(const struct sfs_dataset *dataset)
{
    uint64_t changes = atomic_load(&dataset->use.changes);
    return changes % ONE_CHANGE == 0 ? changes : 0;
}
