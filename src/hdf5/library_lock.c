/* The lock around libhdf5, and its reasons for failing. */
#include <errno.h>
#include <pthread.h>
#include <stdio.h>

#include "common/clock.h"
#include "hdf5/private.h"

#define PIECE_NANOS 3000000

static pthread_mutex_t library_lock = PTHREAD_MUTEX_INITIALIZER;
/* A ticket: held by the thread that gets the library lock next, so that a thread that has just
 * released that lock queues here. */
static pthread_mutex_t next_lock = PTHREAD_MUTEX_INITIALIZER;
static _Thread_local char reason[512];

void library_enter(void)
{
    static _Thread_local bool silenced;
    pthread_mutex_lock(&next_lock);
    pthread_mutex_lock(&library_lock);
    pthread_mutex_unlock(&next_lock);
    if (!silenced)
        silenced = H5Eset_auto2(H5E_DEFAULT, NULL, NULL) >= 0;
    files_renew_doubtful();
    driver_failure(); /* what was before is forgotten */
    driver_refused();
    driver_moved();
}

void library_leave(void)
{
    pthread_mutex_unlock(&library_lock);
}

int library_leave_with(int error)
{
    int moved = driver_moved();
    library_leave();
    return moved ? moved : error;
}

uint64_t piece_begin(void)
{
    return clock_now() + PIECE_NANOS;
}

uint64_t piece_prolong(uint64_t piece)
{
    uint64_t now = clock_now(), spent = now + PIECE_NANOS - piece;
    return now + (spent > PIECE_NANOS ? spent : PIECE_NANOS);
}

bool piece_is_over(uint64_t piece)
{
    return clock_now() >= piece;
}

const char *hdf5_error(void)
{
    return reason;
}

/* Upward from the innermost call: the first reason that is not about looking for plugin files,
 * which only says that one directory of several does not exist. */
static herr_t take_reason(unsigned n, const H5E_error2_t *error, void *data)
{
    (void)data;
    if (n == 0 || error->maj_num != H5E_PLUGIN) {
        snprintf(reason, sizeof(reason), "%s", error->desc ? error->desc : "unknown error");
        if (error->maj_num != H5E_PLUGIN)
            return 1; /* enough */
    }
    return 0;
}

int library_failed(int error)
{
    snprintf(reason, sizeof(reason), "libhdf5 gives no reason");
    H5Ewalk2(H5E_DEFAULT, H5E_WALK_UPWARD, take_reason, NULL);
    H5Eclear2(H5E_DEFAULT);
    int failure = driver_failure();
    return failure ? failure : error;
}

void library_reason(const char *why)
{
    snprintf(reason, sizeof(reason), "%.*s", (int)sizeof(reason) - 1, why);
}

int library_failed_because(int error, const char *why)
{
    library_reason(why);
    H5Eclear2(H5E_DEFAULT);
    return error;
}

int library_has_read(int error)
{
    int failure = driver_failure();
    bool is_refused = driver_refused();
    if (error && error != -EIO)
        return error;
    if (is_refused)
        return library_failed_because(-EIO, "a source of it is refused");
    return error || !failure ? error : library_failed_because(failure, "a source cannot be read");
}
