/* A table of the frames whose selections are open for writing. */
#include "fs/staging.h"

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "common/hash.h"

/* The kernel needs microseconds to tell of the last close, once close(2) has returned. While that
 * waits for an invalidation which waits for somebody who waits here it needs as long as an answer
 * is held back at most (notify.h); this must be longer. */
#define PATIENCE_SECONDS 2

struct staged_key {
    uint64_t object; /* of the dataset */
    uint64_t frame;
};

struct staged {
    UT_hash_handle hh;
    struct staged_key key;
    const struct node *node;
    struct views *views;
    unsigned writers;
    /* Once is_staged, the new content: */
    bool is_staged;
    bool is_written; /* not just truncated to nothing */
    bool is_closed;  /* truncated to nothing, and a descriptor was closed since */
    char *bytes;
    size_t n, room;
};

struct staging {
    struct nodes *nodes;
    pthread_mutex_t lock; /* guards what follows, also while a content is applied */
    struct staged *table;
    pthread_cond_t ended; /* somebody has closed his file */
    atomic_uint n;        /* in the table; read without the lock by those who only look */
};

int staging_create(struct nodes *nodes, struct staging **out)
{
    struct staging *staging = calloc(1, sizeof(*staging));
    if (!staging)
        return -ENOMEM;
    staging->nodes = nodes;
    pthread_mutex_init(&staging->lock, NULL);
    pthread_condattr_t monotonic;
    pthread_condattr_init(&monotonic);
    pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    pthread_cond_init(&staging->ended, &monotonic);
    pthread_condattr_destroy(&monotonic);
    *out = staging;
    return 0;
}

void staging_destroy(struct staging *staging)
{
    if (!staging)
        return;
    pthread_cond_destroy(&staging->ended);
    pthread_mutex_destroy(&staging->lock);
    free(staging);
}

/* The lock must be held. */
static struct staged *find(struct staging *staging, const struct node *node, uint64_t frame)
{
    const struct staged_key key = {node->object, frame};
    struct staged *staged;
    HASH_FIND(hh, staging->table, &key, sizeof(key), staged);
    return staged;
}

/* The lock must be held. */
static int add(struct staging *staging, const struct node *node, uint64_t frame,
               struct staged **out)
{
    struct staged *staged = calloc(1, sizeof(*staged));
    int error = staged ? node_get_views(staging->nodes, node, &staged->views) : -ENOMEM;
    if (error)
        goto failed;
    staged->node = node;
    staged->key = (struct staged_key){node->object, frame};
    HASH_ADD(hh, staging->table, key, sizeof(staged->key), staged);
    if (hash_failed()) {
        node_put_views(staging->nodes, node);
        error = -ENOMEM;
        goto failed;
    }
    atomic_fetch_add(&staging->n, 1);
    *out = staged;
    return 0;

failed:
    free(staged);
    return error;
}

/* The lock must be held. */
static void drop(struct staging *staging, struct staged *staged)
{
    HASH_DEL(staging->table, staged);
    atomic_fetch_sub(&staging->n, 1);
    node_put_views(staging->nodes, staged->node);
    free(staged->bytes);
    free(staged);
}

int staging_begin(struct staging *staging, const struct node *node, uint64_t frame,
                  struct staged **out)
{
    int error = 0;
    pthread_mutex_lock(&staging->lock);
    struct staged *staged = find(staging, node, frame);
    if (!staged)
        error = add(staging, node, frame, &staged);
    if (!error) {
        staged->writers++;
        *out = staged;
    }
    pthread_mutex_unlock(&staging->lock);
    return error;
}

/* Applied or not, nothing is staged afterwards. The lock must be held. */
static int apply(struct staged *staged, bool *changed)
{
    int error = staged->is_written
                    ? view_set_defined(staged->views, staged->key.frame, staged->bytes, staged->n)
                    : view_truncate(staged->views, VIEW_DEFINED, staged->key.frame, 0);
    free(staged->bytes);
    staged->bytes = NULL;
    staged->n = staged->room = 0;
    staged->is_staged = staged->is_written = staged->is_closed = false;
    *changed = true; /* what the file shows is something else now in any case */
    return error;
}

int staging_apply(struct staging *staging, struct staged *staged, bool *changed)
{
    *changed = false;
    pthread_mutex_lock(&staging->lock);
    int error = staged->is_staged ? apply(staged, changed) : 0;
    pthread_mutex_unlock(&staging->lock);
    return error;
}

int staging_close(struct staging *staging, struct staged *staged, bool wrote, bool *changed)
{
    int error = 0;
    *changed = false;
    pthread_mutex_lock(&staging->lock);
    if (staged->is_staged && staged->is_written && wrote)
        error = apply(staged, changed);
    else if (staged->is_staged && !staged->is_written)
        *changed = staged->is_closed = true;
    pthread_mutex_unlock(&staging->lock);
    return error;
}

int staging_end(struct staging *staging, struct staged *staged, bool *changed)
{
    int error = 0;
    *changed = false;
    pthread_mutex_lock(&staging->lock);
    if (--staged->writers == 0) {
        if (staged->is_staged)
            error = apply(staged, changed);
        drop(staging, staged);
        pthread_cond_broadcast(&staging->ended);
    }
    pthread_mutex_unlock(&staging->lock);
    return error;
}

/* Makes room for a content of n bytes, and clears what is new in it. */
static int resize(struct staged *staged, uint64_t n)
{
    if (n > views_selection_limit(staged->views))
        return -EFBIG;
    if (n > staged->room) {
        size_t room = staged->room > n / 2 ? 2 * staged->room : n;
        char *grown = realloc(staged->bytes, room);
        if (!grown)
            return -ENOMEM;
        staged->bytes = grown;
        staged->room = room;
    }
    if (n > staged->n)
        memset(staged->bytes + staged->n, 0, n - staged->n);
    staged->n = n;
    return 0;
}

/* Begins a new content with the present one. The lock must be held. */
static int stage_present(struct staged *staged)
{
    uint64_t size, frame = staged->key.frame;
    int error = view_size(staged->views, VIEW_DEFINED, frame, &size);
    if (!error)
        error = resize(staged, size);
    for (uint64_t at = 0; at < size && !error;) {
        struct view_part part;
        error =
            view_read(staged->views, VIEW_DEFINED, frame, at, size - at, staged->bytes + at, &part);
        if (error)
            break;
        if (part.bytes != staged->bytes + at)
            memcpy(staged->bytes + at, part.bytes, part.n);
        at += part.n;
        bool is_end = part.n == 0; /* somebody has written to the frame meanwhile */
        view_return(staged->views, &part);
        if (is_end)
            break;
    }
    if (error)
        staged->n = 0;
    else
        staged->is_staged = staged->is_written = true; /* all of it, whatever fails from here on */
    return error;
}

int staging_write(struct staging *staging, struct staged *staged, const void *bytes, size_t n,
                  uint64_t offset)
{
    uint64_t end;
    if (__builtin_add_overflow(offset, n, &end))
        return -EFBIG;
    pthread_mutex_lock(&staging->lock);
    int error = staged->is_staged ? 0 : stage_present(staged);
    if (!error && end > staged->n)
        error = resize(staged, end);
    if (!error) {
        memcpy(staged->bytes + offset, bytes, n);
        staged->is_written = true; /* also after a truncation to nothing */
        staged->is_closed = false;
    }
    pthread_mutex_unlock(&staging->lock);
    return error;
}

/* The lock must be held. */
static int truncate_to(struct staged *staged, uint64_t size)
{
    int error = staged->is_staged || size == 0 ? 0 : stage_present(staged);
    if (!error)
        error = resize(staged, size);
    if (!error) {
        staged->is_staged = true;
        staged->is_written = size > 0;
        staged->is_closed = false;
    }
    return error;
}

int staging_truncate(struct staging *staging, const struct node *node, uint64_t frame,
                     uint64_t size, bool by_name, bool *changed)
{
    int error = 0;
    *changed = false;
    pthread_mutex_lock(&staging->lock);
    struct staged *staged = find(staging, node, frame);
    if (!staged)
        error = add(staging, node, frame, &staged);
    if (!error) {
        bool at_once = staged->writers == 0 || (by_name && size > 0 && !staged->is_staged);
        error = truncate_to(staged, size);
        if (!error && at_once)
            error = apply(staged, changed);
        if (staged->writers == 0)
            drop(staging, staged);
    }
    pthread_mutex_unlock(&staging->lock);
    return error;
}

bool staging_size(struct staging *staging, const struct node *node, uint64_t frame, uint64_t *size)
{
    if (!staging || atomic_load(&staging->n) == 0)
        return false;
    pthread_mutex_lock(&staging->lock);
    const struct staged *staged = find(staging, node, frame);
    bool is_staged = staged && staged->is_staged;
    if (is_staged)
        *size = staged->n;
    pthread_mutex_unlock(&staging->lock);
    return is_staged;
}

bool staging_read(struct staging *staging, const struct node *node, uint64_t frame, uint64_t offset,
                  size_t n, void *buffer, size_t *got)
{
    if (!staging || atomic_load(&staging->n) == 0)
        return false;
    pthread_mutex_lock(&staging->lock);
    const struct staged *staged = find(staging, node, frame);
    bool is_staged = staged && staged->is_staged;
    if (is_staged) {
        size_t left = offset < staged->n ? staged->n - (size_t)offset : 0;
        *got = left < n ? left : n;
        if (*got > 0)
            memcpy(buffer, staged->bytes + offset, *got);
    }
    pthread_mutex_unlock(&staging->lock);
    return is_staged;
}

/* One of those somebody may have closed for good; the lock must be held. */
static struct staged *find_closed(const struct staging *staging, const struct node *node,
                                  uint64_t frame)
{
    struct staged *staged;
    for (staged = staging->table; staged; staged = staged->hh.next)
        if (staged->is_closed && staged->key.object == node->object &&
            (frame == STAGING_ANY_FRAME || staged->key.frame == frame))
            return staged;
    return NULL;
}

void staging_settle(struct staging *staging, const struct node *node, uint64_t frame)
{
    struct timespec end;
    struct staged *staged;
    if (!staging || atomic_load(&staging->n) == 0)
        return;
    clock_gettime(CLOCK_MONOTONIC, &end);
    end.tv_sec += PATIENCE_SECONDS;
    pthread_mutex_lock(&staging->lock);
    while ((staged = find_closed(staging, node, frame)))
        if (pthread_cond_timedwait(&staging->ended, &staging->lock, &end) == ETIMEDOUT &&
            (staged = find_closed(staging, node, frame)))
            staged->is_closed = false; /* it is open still: nobody else need wait for it */
    pthread_mutex_unlock(&staging->lock);
}
