/* Repeating the calls on a followed file that meet bytes of another state (STORE_MOVED): the last state is
 * taken, and the call begins anew. */
#include <errno.h>

#include "common/log.h"
#include "dataset/private.h"
#include "store/store.h"

#define MOST_TRIES 200 /* of one call */

/* Takes the last state, if the call may be repeated. */
static int take_state(struct sfs_file *file, unsigned tries)
{
    if (store_is_interrupted(file->store))
        return -EINTR;
    if (tries > MOST_TRIES) {
        log_error("%s: it is committed to too often to be followed", sfs_path(file));
        return -EBUSY;
    }
    uint64_t states = sfs_states(file); /* perhaps only libhdf5 was outdated */
    int error = follow_refresh(file);
    if (!error && atomic_load(&file->holds_state) && sfs_states(file) != states)
        error = -EAGAIN;
    return error;
}

bool repeat_call(struct sfs_file *file, int *error, unsigned *tries)
{
    bool again = *error == STORE_MOVED && file->follows && !use_is_mine(&file->use);
    if (again && ++*tries == STORE_FREE_TRIES)
        store_hold(file->store);
    if (again)
        *error = take_state(file, *tries);
    again = again && *error == 0;
    if (!again && *tries >= STORE_FREE_TRIES)
        store_release(file->store);
    return again;
}
