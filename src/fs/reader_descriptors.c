/* A count of all, and of each user. */
#include "fs/reader_descriptors.h"

#include <errno.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/resource.h>

#include "common/log.h"
#include "fs/user_share.h"

#define SHARE 4 /* one of so many that there may be */

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* guards what follows */
static struct user_counts readers;
static size_t n_of_all;

static _Atomic uint64_t said; /* log_is_due */

static size_t most_of_all(void)
{
    struct rlimit limit;
    bool is_less =
        getrlimit(RLIMIT_NOFILE, &limit) == 0 && limit.rlim_cur / SHARE < READER_DESCRIPTORS;
    return is_less ? (size_t)limit.rlim_cur / SHARE : READER_DESCRIPTORS;
}

int reader_descriptor_take(const char *mounted, uid_t user)
{
    size_t most = most_of_all();
    pthread_mutex_lock(&lock);
    size_t n = user_count_of(&readers, user), all = n_of_all;
    int error = user_may_have_more(user, n, all, most) ? user_count_add(&readers, user) : -EMFILE;
    n_of_all += !error;
    pthread_mutex_unlock(&lock);
    if (error == -EMFILE && log_is_due(&said))
        log_error(
            "%s: refused: user %u has %zu files and directories of it open, all users %zu, of "
            "%zu that are allowed: close some of them, or allow the daemon more (ulimit -n)",
            mounted, (unsigned)user, n, all, most);
    return error;
}

void reader_descriptor_give(uid_t user)
{
    pthread_mutex_lock(&lock);
    user_count_remove(&readers, user);
    n_of_all--;
    pthread_mutex_unlock(&lock);
}
