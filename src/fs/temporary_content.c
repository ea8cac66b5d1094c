/* What temporary files hold: bytes that take of the limit, and times. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "common/interrupt.h"
#include "common/log.h"
#include "fs/escaped_names.h"
#include "fs/temporary_private.h"

void temporary_tell_of_limit(const struct temporaries *temporaries, const char *name, int error)
{
    log_warning("%s: no room for the temporary file %s:%s it would need more than staging_size=%zu",
                temporaries->label, name, error == -EFBIG ? "" : " with the others",
                temporaries->limit->most);
}

int temporary_wait(struct temporary *temporary)
{
    int error = 0;
    while (!error && temporary->becomes)
        error = interrupt_wait(&temporary->no_longer, &temporary->lock);
    return error;
}

/* The lock must be held, which may be dropped meanwhile. */
static int begin_changing(struct temporary *temporary)
{
    int error = temporary_wait(temporary);
    return error || !temporary->has_become ? error : -ESTALE;
}

void temporary_state(struct temporary *temporary, struct temporary_state *state)
{
    pthread_mutex_lock(&temporary->lock);
    *state = (struct temporary_state){.size = temporary->n,
                                      .atime = temporary->atime,
                                      .mtime = temporary->mtime,
                                      .has_become = temporary->has_become,
                                      .became = temporary->became};
    pthread_mutex_unlock(&temporary->lock);
}

/* Memory for n bytes, and for more if it grows by small pieces. Its lock must be held. */
static int make_room(struct temporaries *temporaries, struct temporary *temporary, size_t n)
{
    size_t more = n / 4, room = n > SIZE_MAX - more ? n : n + more;
    if (n <= temporary->room)
        return 0;
    if (staging_limit_take(temporaries->limit, room - temporary->room) != 0) {
        room = n;
        if (staging_limit_take(temporaries->limit, room - temporary->room) != 0)
            return -ENOSPC;
    }
    char *bytes = realloc(temporary->bytes, room);
    if (!bytes) {
        staging_limit_give_back(temporaries->limit, room - temporary->room);
        return -ENOMEM;
    }
    temporary->bytes = bytes;
    temporary->room = room;
    return 0;
}

/* Its lock must be held. What is new is zero. */
static int grow(struct temporaries *temporaries, struct temporary *temporary, uint64_t n)
{
    bool is_too_long = n > temporaries->limit->most - temporary->taken;
    int error = is_too_long ? -EFBIG : make_room(temporaries, temporary, (size_t)n);
    if ((error == -EFBIG || error == -ENOSPC) && !temporary->is_told) {
        char name[NAME_BYTES];
        temporary_name(temporaries, temporary, name);
        temporary_tell_of_limit(temporaries, name, error);
        temporary->is_told = true;
    }
    if (error)
        return error;
    memset(temporary->bytes + temporary->n, 0, (size_t)n - temporary->n);
    temporary->n = (size_t)n;
    return 0;
}

static void is_written(struct temporary *temporary)
{
    clock_gettime(CLOCK_REALTIME, &temporary->mtime);
    temporary->has_atime = temporary->has_mtime = false;
}

int temporary_write(struct temporaries *temporaries, struct temporary *temporary, const void *bytes,
                    size_t n, uint64_t offset)
{
    uint64_t end;
    if (__builtin_add_overflow(offset, n, &end))
        return -EFBIG;
    pthread_mutex_lock(&temporary->lock);
    int error = begin_changing(temporary);
    if (!error && end > temporary->n)
        error = grow(temporaries, temporary, end);
    if (!error && n > 0) {
        memcpy(temporary->bytes + offset, bytes, n);
        is_written(temporary);
    }
    pthread_mutex_unlock(&temporary->lock);
    return error;
}

int temporary_resize(struct temporaries *temporaries, struct temporary *temporary, uint64_t size)
{
    pthread_mutex_lock(&temporary->lock);
    int error = begin_changing(temporary);
    if (!error && size > temporary->n)
        error = grow(temporaries, temporary, size);
    if (!error && size == 0) {
        staging_limit_give_back(temporaries->limit, temporary->room);
        free(temporary->bytes);
        temporary->bytes = NULL;
        temporary->room = 0;
    }
    if (!error) {
        temporary->n = (size_t)size;
        is_written(temporary);
    }
    pthread_mutex_unlock(&temporary->lock);
    return error;
}

int temporary_read(struct temporary *temporary, uint64_t offset, size_t n, void *buffer,
                   size_t *got)
{
    pthread_mutex_lock(&temporary->lock);
    int error = temporary->has_become ? -ESTALE : 0;
    size_t left = offset < temporary->n ? temporary->n - (size_t)offset : 0;
    *got = left < n ? left : n;
    if (!error && *got > 0)
        memcpy(buffer, temporary->bytes + offset, *got);
    pthread_mutex_unlock(&temporary->lock);
    return error;
}

void temporary_set_times(struct temporary *temporary, const struct timespec *atime,
                         const struct timespec *mtime)
{
    pthread_mutex_lock(&temporary->lock);
    if (atime)
        temporary->atime = *atime;
    if (mtime)
        temporary->mtime = *mtime;
    temporary->has_atime |= atime != NULL;
    temporary->has_mtime |= mtime != NULL;
    pthread_mutex_unlock(&temporary->lock);
}

uid_t temporary_user(const struct temporary *temporary)
{
    return temporary->user;
}

bool temporary_times_are_set(struct temporary *temporary, struct timespec *atime,
                             struct timespec *mtime)
{
    pthread_mutex_lock(&temporary->lock);
    bool are_set = temporary->has_atime || temporary->has_mtime;
    *atime = temporary->atime;
    *mtime = temporary->mtime;
    pthread_mutex_unlock(&temporary->lock);
    return are_set;
}
