/* The counter: a small file beside the store's (PATH.commits), which exists as long as a program
 * has the file open for writing. Its number changes before a commit changes committed bytes.
 * Followers compare it: their bytes are of one commit if the number was the same before and after
 * they were read. It serves followers only: nothing in the file depends on it, and it is not
 * synced.
 *
 * It is opened and closed each time: by that, file systems of several hosts make changes of one
 * host visible on others.
 *
 * A follower that is outrun by its writer takes a read lock of it (fcntl, which works between
 * hosts, too) while it reads. That delays the writer's next commit by at most 50 ms: a lock that
 * is never released cannot stop the writer. */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "common/clock.h"
#include "common/io.h"
#include "common/log.h"
#include "store/private.h"

#define HOLD_PAUSE 200000    /* nanoseconds, as the next two: between two attempts */
#define MOST_HELD  50000000  /* longest wait of a commit for followers */
#define MOST_DEAF  500000000 /* no further wait for so long after one in vain */

static int open_counter(const struct store *store, int flags)
{
    return io_open_at(store->folder, place_entry(store->counter), flags | O_NONBLOCK);
}

int counter_read(const struct store *store, char number[COUNTER_BYTES])
{
    memset(number, 0, COUNTER_BYTES);
    int fd = open_counter(store, O_RDONLY);
    if (fd < 0) /* a symbolic link or socket is no counter: the writer replaces it */
        return fd == -ENOENT || fd == -ELOOP || fd == -ENXIO ? 0 : fd;
    const char *why;
    int error = neighbour_trust(store, fd, &why);
    if (!error) {
        follow_drop_cached(store, fd);
        ssize_t n = TEMP_FAILURE_RETRY(pread(fd, number, COUNTER_BYTES, 0));
        error = n >= 0 || errno == ESPIPE ? 0 : -errno;
    }
    close(fd);
    return error;
}

int counter_check(struct store *store)
{
    int fd = open_counter(store, O_RDONLY);
    if (fd < 0)
        return 0;
    int error = neighbour_check(store, fd, store->counter);
    close(fd);
    return error;
}

static uint64_t number_of(const char *text)
{
    uint64_t number = 0;
    for (size_t i = 0; i < COUNTER_BYTES && text[i] >= '0' && text[i] <= '9'; i++)
        number = number * 10 + (uint64_t)(text[i] - '0');
    return number;
}

/* Nanoseconds since 1970, or one more: a number that no earlier writer has used. */
static uint64_t next_number(uint64_t last)
{
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    uint64_t number = (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
    return number > last ? number : last + 1;
}

/* A counter left by a writer that died may be unwritable, or something else: then it is replaced,
 * if the directory permits it. */
static int open_for_writing(struct store *store)
{
    int fd = neighbour_open(store, store->counter, true);
    bool is_in_the_way = fd == -EACCES || fd == -EPERM || fd == -ELOOP || fd == -ENXIO;
    if (is_in_the_way && neighbour_remove(store, store->counter) == 0)
        fd = neighbour_open(store, store->counter, true);
    return fd;
}

static int write_number(struct store *store, uint64_t number)
{
    char text[COUNTER_BYTES + 1];
    snprintf(text, sizeof(text), "%0*" PRIu64, COUNTER_BYTES, number);
    int fd = open_for_writing(store);
    if (fd < 0)
        return fd;
    ssize_t n = TEMP_FAILURE_RETRY(pwrite(fd, text, COUNTER_BYTES, 0));
    int error = n < 0 ? -errno : n < COUNTER_BYTES ? -ENOSPC : 0;
    int closed = io_close(fd);
    return error ? error : closed;
}

static bool is_held(int fd)
{
    struct flock lock = {.l_type = F_WRLCK, .l_whence = SEEK_SET};
    return fcntl(fd, F_OFD_GETLK, &lock) == 0 && lock.l_type != F_UNLCK;
}

static void wait_for_followers(struct store *store)
{
    const struct timespec pause = {.tv_nsec = HOLD_PAUSE};
    uint64_t began = clock_now();
    int fd = began < store->deaf_until ? -1 : open_counter(store, O_RDWR);
    if (fd < 0)
        return;
    bool held;
    while ((held = is_held(fd)) && clock_now() - began < MOST_HELD)
        nanosleep(&pause, NULL);
    if (held)
        store->deaf_until = clock_now() + MOST_DEAF;
    close(fd);
}

int counter_hold(const struct store *store)
{
    struct flock lock = {.l_type = F_RDLCK, .l_whence = SEEK_SET};
    int fd = open_counter(store, O_RDONLY);
    if (fd >= 0 && fcntl(fd, F_OFD_SETLK, &lock) < 0) {
        close(fd);
        fd = -1;
    }
    return fd;
}

int counter_advance(struct store *store)
{
    char last[COUNTER_BYTES];
    wait_for_followers(store);
    int error = counter_read(store, last);
    uint64_t number = next_number(number_of(last));
    if (!error || error == -EPERM) /* it is replaced */
        error = write_number(store, number);
    if (!error)
        store->counted = number;
    return error;
}

/* Also called when the file's name may belong to another file by now, whose writer uses the counter. */
void counter_remove(struct store *store)
{
    char last[COUNTER_BYTES];
    bool is_ours =
        store->counted && counter_read(store, last) == 0 && number_of(last) == store->counted;
    store->counted = 0;
    int error = is_ours ? neighbour_remove(store, store->counter) : 0;
    if (error && error != -ENOENT)
        log_warning("%s: cannot remove %s: %s", store->path, store->counter, strerror(-error));
}
