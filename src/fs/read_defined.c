/* Which selection an open file reads. */
#include "fs/read_defined.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "common/interrupt.h"

#define MOST_KEPT_BYTES ((size_t)64 << 20)

struct selection_reading {
    pthread_mutex_t lock;       /* guards what follows */
    uint64_t version;           /* version of the staging area or dataset that was read first; 0:
                                 * none yet */
    struct defined_frame *kept; /* NULL: it is asked for each time */
};

static atomic_size_t kept_bytes; /* by all files */

static size_t copy(const void *bytes, size_t total, uint64_t offset, size_t n, void *buffer)
{
    size_t left = offset < total ? total - (size_t)offset : 0;
    size_t here = left < n ? left : n;
    if (here > 0)
        memcpy(buffer, (const char *)bytes + offset, here);
    return here;
}

/* With the lock held, here and in what follows. */
static void forget(const struct open_file *file, struct selection_reading *reading)
{
    if (reading->kept) {
        atomic_fetch_sub(&kept_bytes, view_held_bytes(reading->kept).n);
        view_release_defined(file->views, reading->kept);
    }
    reading->kept = NULL;
    reading->version = 0;
}

/* Whether this is what was read first, or the beginning. 0 says that it changes just now. */
static bool goes_on(struct selection_reading *reading, uint64_t version, uint64_t offset)
{
    if (offset == 0 || reading->version == 0)
        reading->version = version ? version : UINT64_MAX;
    return reading->version == version || offset == 0;
}

static bool may_keep(size_t n)
{
    if (atomic_fetch_add(&kept_bytes, n) + n <= MOST_KEPT_BYTES)
        return true;
    atomic_fetch_sub(&kept_bytes, n);
    return false;
}

static int read_encoded(const struct open_file *file, struct selection_reading *reading,
                        uint64_t offset, size_t n, void *buffer, size_t *got)
{
    struct defined_frame *held;
    int error = view_hold_defined(file->views, file->inode.frame, &held);
    if (error)
        return error;
    const struct view_head encoded = view_held_bytes(held);
    bool keep = reading->version == 0 && may_keep(encoded.n);
    if (!keep && !goes_on(reading, view_held_version(held), offset))
        error = -ESTALE;
    else
        *got = copy(encoded.bytes, encoded.n, offset, n, buffer);
    if (keep)
        reading->kept = held;
    else
        view_release_defined(file->views, held);
    return error;
}

static int read_selection(struct mount *mount, const struct open_file *file, uint64_t offset,
                          size_t n, void *buffer, size_t *got)
{
    struct selection_reading *reading = file->reading;
    uint64_t version;
    if (reading->kept) {
        const struct view_head encoded = view_held_bytes(reading->kept);
        *got = copy(encoded.bytes, encoded.n, offset, n, buffer);
        return 0;
    }
    const struct staged_part part = {VIEW_DEFINED, file->inode.frame, offset, n};
    if (staging_read(mount->staging, file->node, part, buffer, got, &version))
        return goes_on(reading, version, offset) ? 0 : -ESTALE;
    *got = 0;
    if (mount_shows_nothing(mount, file->node, file->views, file->inode))
        return 0;
    return read_encoded(file, reading, offset, n, buffer, got);
}

int selection_read(struct mount *mount, struct open_file *file, uint64_t offset, size_t n,
                   void *buffer, size_t *got)
{
    int error = interrupt_lock(&file->reading->lock);
    if (error)
        return error;
    error = read_selection(mount, file, offset, n, buffer, got);
    pthread_mutex_unlock(&file->reading->lock);
    return error;
}

void selection_forget(struct open_file *file)
{
    if (!file->reading)
        return;
    interrupt_ask_lock(&file->reading->lock);
    forget(file, file->reading);
    pthread_mutex_unlock(&file->reading->lock);
}

int selection_begin(struct open_file *file)
{
    file->reading = calloc(1, sizeof(*file->reading));
    if (!file->reading)
        return -ENOMEM;
    pthread_mutex_init(&file->reading->lock, NULL);
    return 0;
}

void selection_end(struct open_file *file)
{
    if (!file->reading)
        return;
    forget(file, file->reading);
    pthread_mutex_destroy(&file->reading->lock);
    free(file->reading);
    file->reading = NULL;
}
