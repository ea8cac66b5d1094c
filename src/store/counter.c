/* The counter: a small file beside the store's (PATH.commits), there as long as a program has the
 * file open for writing, with a number that is another one before a commit changes committed bytes.
 * Followers compare it: their bytes are of one commit if the number was the same before and after
 * they were read. It is for them only: nothing in the file depends on it, and it is not synced.
 *
 * It is opened and closed each time: file systems of several hosts bring what one of them has
 * written to the others that way.
 *
 * A follower that cannot keep up with a writer takes a lock of it for reading (fcntl, so that it
 * works between hosts, too) while it reads. The writer waits with its next number then, for a
 * moment: who never lets go cannot stop it. */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "common/log.h"
#include "store/private.h"

#define COUNTER_FLAGS (O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK)
#define HOLD_PAUSE    200000    /* nanoseconds, as these: between two looks at a lock */
#define MOST_HELD     50000000  /* that a commit waits for followers */
#define MOST_DEAF     500000000 /* that it does not wait when it has waited in vain */

int counter_read(const struct store *store, char number[COUNTER_BYTES])
{
    memset(number, 0, COUNTER_BYTES);
    int fd = open(store->counter, O_RDONLY | COUNTER_FLAGS);
    if (fd < 0)
        return errno == ENOENT ? 0 : -errno;
    follow_drop_cached(store, fd);
    ssize_t n = pread(fd, number, COUNTER_BYTES, 0);
    int error = n < 0 ? -errno : 0;
    close(fd);
    return error;
}

/* Nanoseconds: a number that no writer before this one has had. */
static uint64_t next_number(const char *last)
{
    struct timespec now;
    uint64_t number = 0, before = 0;
    clock_gettime(CLOCK_REALTIME, &now);
    number = (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
    for (size_t i = 0; i < COUNTER_BYTES && last[i] >= '0' && last[i] <= '9'; i++)
        before = before * 10 + (uint64_t)(last[i] - '0');
    return number > before ? number : before + 1;
}

static int write_number(const struct store *store, uint64_t number)
{
    char text[COUNTER_BYTES + 1];
    snprintf(text, sizeof(text), "%0*" PRIu64, COUNTER_BYTES, number);
    int fd = open(store->counter, O_WRONLY | O_CREAT | COUNTER_FLAGS, store->st.st_mode & 0666);
    if (fd < 0)
        return -errno;
    ssize_t n = pwrite(fd, text, COUNTER_BYTES, 0);
    int error = n < 0 ? -errno : n < COUNTER_BYTES ? -ENOSPC : 0;
    if (close(fd) < 0 && !error)
        error = -errno;
    return error;
}

static uint64_t nanoseconds(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

static bool is_held(int fd)
{
    struct flock lock = {.l_type = F_WRLCK, .l_whence = SEEK_SET};
    return fcntl(fd, F_OFD_GETLK, &lock) == 0 && lock.l_type != F_UNLCK;
}

static void wait_for_followers(struct store *store)
{
    const struct timespec pause = {.tv_nsec = HOLD_PAUSE};
    uint64_t began = nanoseconds();
    int fd = began < store->deaf_until ? -1 : open(store->counter, O_RDWR | COUNTER_FLAGS);
    if (fd < 0)
        return;
    bool held;
    while ((held = is_held(fd)) && nanoseconds() - began < MOST_HELD)
        nanosleep(&pause, NULL);
    if (held)
        store->deaf_until = nanoseconds() + MOST_DEAF;
    close(fd);
}

int counter_hold(const struct store *store)
{
    struct flock lock = {.l_type = F_RDLCK, .l_whence = SEEK_SET};
    int fd = open(store->counter, O_RDONLY | COUNTER_FLAGS);
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
    if (!error)
        error = write_number(store, next_number(last));
    store->has_counter |= !error;
    return error;
}

void counter_remove(struct store *store)
{
    if (store->has_counter && unlink(store->counter) < 0 && errno != ENOENT)
        log_warning("%s: cannot remove %s: %s", store->path, store->counter, strerror(errno));
    store->has_counter = false;
}
