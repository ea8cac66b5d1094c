/* A table by file and request; uthash keeps its elements in the order in which they were added, and
 * what is used is added anew: the first one is that which nobody has used for longest. */
#include "hdf5/worker/answers_kept.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>

#include "common/hash.h"

#define MOST_ANSWER   ((size_t)1 << 20) /* bytes of one */
#define SETTLED_NANOS 2000000000        /* since a change, when the clock has gone on for sure */

struct answer {
    UT_hash_handle hh;
    size_t key_bytes, n;
    struct answers_of of;  /* the key: this and the request */
    unsigned char bytes[]; /* of the request, and the answer */
};

static atomic_size_t most; /* bytes of all */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct answer *answers; /* under the lock, as what follows */
static size_t taken;           /* bytes */

static size_t bytes_of(const struct answer *answer)
{
    return sizeof(*answer) + answer->key_bytes + answer->n;
}

static void drop(struct answer *answer)
{
    HASH_DEL(answers, answer);
    taken -= bytes_of(answer);
    free(answer);
}

static void shrink_to(size_t bytes)
{
    while (answers && taken > bytes)
        drop(answers);
}

void answers_keep_most(size_t bytes)
{
    atomic_store(&most, bytes);
    pthread_mutex_lock(&lock);
    shrink_to(bytes);
    pthread_mutex_unlock(&lock);
}

static bool is_old_enough(const struct timespec *changed)
{
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    int64_t seconds = (int64_t)now.tv_sec - (int64_t)changed->tv_sec;
    return seconds > SETTLED_NANOS / 1000000000;
}

bool answers_identify(const struct store *store, struct answers_of *of)
{
    struct stat st;
    if (atomic_load(&most) == 0 || !store || !store_is_as_in_file(store) ||
        store_stat(store, &st) < 0 || !is_old_enough(&st.st_ctim))
        return false;
    *of = (struct answers_of){
        .device = st.st_dev,
        .inode = st.st_ino,
        .size = (uint64_t)st.st_size,
        .modified = {(uint64_t)st.st_mtim.tv_sec, (uint64_t)st.st_mtim.tv_nsec},
        .changed = {(uint64_t)st.st_ctim.tv_sec, (uint64_t)st.st_ctim.tv_nsec},
    };
    return true;
}

static struct answer *new_answer(const struct answers_of *of, const struct wire *request, size_t n)
{
    struct answer *answer = calloc(1, sizeof(*answer) + request->n + n);
    if (!answer)
        return NULL;
    answer->key_bytes = request->n;
    answer->n = n;
    answer->of = *of;
    memcpy(answer->bytes, request->bytes, request->n);
    return answer;
}

/* With the lock, as what follows. */
static void add(struct answer *answer)
{
    HASH_ADD_KEYPTR(
        hh, answers, &answer->of,
        offsetof(struct answer, bytes) - offsetof(struct answer, of) + answer->key_bytes, answer);
    if (hash_failed())
        free(answer);
    else
        taken += bytes_of(answer);
}

static struct answer *find(const struct answer *like)
{
    struct answer *answer;
    HASH_FIND(hh, answers, &like->of,
              offsetof(struct answer, bytes) - offsetof(struct answer, of) + like->key_bytes,
              answer);
    return answer;
}

bool answers_find(const struct answers_of *of, const struct wire *request, struct wire *out)
{
    struct answer *like = request->failed ? NULL : new_answer(of, request, 0);
    if (!like)
        return false;
    pthread_mutex_lock(&lock);
    struct answer *answer = find(like);
    out->n = 0;
    out->failed = false;
    if (answer) {
        wire_put(out, answer->bytes + answer->key_bytes, answer->n);
        HASH_DEL(answers, answer);
        taken -= bytes_of(answer);
        add(answer);
    }
    pthread_mutex_unlock(&lock);
    free(like);
    return answer && !out->failed;
}

void answers_keep(const struct answers_of *of, const struct wire *request, const void *bytes,
                  size_t n)
{
    size_t room = atomic_load(&most);
    if (n > MOST_ANSWER || request->failed || request->n + n + sizeof(struct answer) > room)
        return;
    struct answer *answer = new_answer(of, request, n);
    if (!answer)
        return;
    if (n > 0)
        memcpy(answer->bytes + answer->key_bytes, bytes, n);
    pthread_mutex_lock(&lock);
    struct answer *before = find(answer);
    if (before)
        drop(before);
    shrink_to(room - bytes_of(answer));
    add(answer);
    pthread_mutex_unlock(&lock);
}

void answers_forget(const struct answers_of *of)
{
    struct answer *answer, *next;
    pthread_mutex_lock(&lock);
    HASH_ITER (hh, answers, answer, next)
        if (!memcmp(&answer->of, of, sizeof(*of)))
            drop(answer);
    pthread_mutex_unlock(&lock);
}
