/* Users by number: those who have any. */
#include "fs/reader_descriptors.h"

#include <errno.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <unistd.h>

#include "common/hash.h"
#include "common/log.h"

#define SHARE 4 /* one of so many that there may be */

struct reader {
    UT_hash_handle hh;
    uid_t user;
    size_t n;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* guards what follows */
static struct reader *readers;
static size_t n_of_all;

static _Atomic uint64_t said; /* log_is_due */

static size_t most_of_all(void)
{
    struct rlimit limit;
    bool is_less =
        getrlimit(RLIMIT_NOFILE, &limit) == 0 && limit.rlim_cur / SHARE < READER_DESCRIPTORS;
    return is_less ? (size_t)limit.rlim_cur / SHARE : READER_DESCRIPTORS;
}

/* NULL: no memory. */
static struct reader *get_reader(uid_t user)
{
    struct reader *reader;
    HASH_FIND(hh, readers, &user, sizeof(user), reader);
    if (reader)
        return reader;
    reader = calloc(1, sizeof(*reader));
    if (!reader)
        return NULL;
    reader->user = user;
    HASH_ADD(hh, readers, user, sizeof(user), reader);
    if (!hash_failed())
        return reader;
    free(reader);
    return NULL;
}

static void put_reader(struct reader *reader)
{
    if (reader->n > 0)
        return;
    HASH_DEL(readers, reader);
    free(reader);
}

static int count(struct reader *reader, size_t most)
{
    bool is_served_first = reader->user == 0 || reader->user == geteuid();
    size_t room = is_served_first ? most : most - most / 4;
    size_t left = n_of_all < room ? room - n_of_all : 0;
    if (is_served_first ? left == 0 : reader->n >= left)
        return -EMFILE;
    reader->n++;
    n_of_all++;
    return 0;
}

int reader_descriptor_take(const char *mounted, uid_t user)
{
    size_t most = most_of_all();
    pthread_mutex_lock(&lock);
    struct reader *reader = get_reader(user);
    int error = reader ? count(reader, most) : -ENOMEM;
    size_t n = reader ? reader->n : 0, all = n_of_all;
    if (reader)
        put_reader(reader);
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
    struct reader *reader;
    pthread_mutex_lock(&lock);
    HASH_FIND(hh, readers, &user, sizeof(user), reader);
    reader->n--;
    n_of_all--;
    put_reader(reader);
    pthread_mutex_unlock(&lock);
}
