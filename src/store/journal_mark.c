/* The mark of a journal: that it was carried out, on this system since it was started, and nothing
 * was written to the file since. A file system may lose what was not synced though the system goes
 * on: the mark alone does not say that the file still has it. */
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

#include "common/log.h"
#include "store/journal.h"

#define BOOT_ID       "/proc/sys/kernel/random/boot_id"
#define BOOT_ID_BYTES 36

/* All zeros if the system has no boot id. */
static struct mark make_mark(uint64_t sum)
{
    struct mark mark = {.sum = sum};
    int fd = open(BOOT_ID, O_RDONLY | O_CLOEXEC);
    if (fd < 0 || read(fd, mark.boot_id, BOOT_ID_BYTES) != BOOT_ID_BYTES)
        mark = (struct mark){0};
    if (fd >= 0)
        close(fd);
    return mark;
}

static int put_mark(const struct store *store, int fd, const struct mark *mark)
{
    ssize_t put = -1;
    if (fd >= 0)
        put = TEMP_FAILURE_RETRY(pwrite(fd, mark, sizeof(*mark), sizeof(struct header)));
    if (put < 0)
        log_info("%s: cannot mark the journal %s: %s", store->path, store->journal,
                 strerror(errno));
    return put < 0 ? -errno : 0;
}

void journal_forget_mark(struct store *store)
{
    if (store->standing.marked >= 0)
        close(store->standing.marked);
    store->standing.marked = -1;
}

/* Errors are ignored: the mark only saves work. */
void journal_mark(struct store *store)
{
    struct mark mark = make_mark(store->standing.sum);
    struct stat st;
    int fd = journal_is_ours(store, store->journal) > 0
                 ? neighbour_open(store, store->journal, false)
                 : -1;
    if (fstat(store->fd, &st) == 0) {
        mark.seconds = (uint64_t)st.st_mtim.tv_sec;
        mark.nanoseconds = (uint64_t)st.st_mtim.tv_nsec;
    }
    journal_forget_mark(store);
    if (put_mark(store, fd, &mark) == 0)
        store->standing.marked = fd;
    else if (fd >= 0)
        close(fd);
}

/* Restores the journal's time, by which followers recognise it. */
int journal_mark_passed(struct store *store)
{
    int fd = store->standing.marked;
    struct stat st;
    if (fd < 0)
        return 0;
    struct mark mark = make_mark(store->standing.sum);
    bool has_times = fstat(fd, &st) == 0;
    int error = put_mark(store, fd, &mark);
    if (error)
        return error;
    if (has_times)
        (void)futimens(fd, (const struct timespec[]){st.st_atim, st.st_mtim});
    journal_forget_mark(store);
    return 0;
}

bool journal_is_carried_out(const struct journal *journal, uint64_t sum)
{
    struct mark mark = make_mark(sum);
    return mark.boot_id[0] && mark.sum == journal->mark.sum &&
           memcmp(mark.boot_id, journal->mark.boot_id, sizeof(mark.boot_id)) == 0;
}

bool journal_is_changed_since(const struct mark *mark, const struct timespec *changed)
{
    uint64_t seconds = (uint64_t)changed->tv_sec, nanoseconds = (uint64_t)changed->tv_nsec;
    bool is_known = mark->seconds || mark->nanoseconds;
    return is_known && (seconds > mark->seconds ||
                        (seconds == mark->seconds && nanoseconds > mark->nanoseconds));
}
