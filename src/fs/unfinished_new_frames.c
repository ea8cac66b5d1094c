/* A table of the frames that are fresh, or were and are open still. */
#include "fs/unfinished_new_frames.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>

#include "common/hash.h"

#define MOST_COMMITS 12

struct fresh_key {
    uint64_t object; /* of the dataset */
    uint64_t frame;
};

struct fresh_frame {
    UT_hash_handle hh;
    struct fresh_key key;
    const struct node *node;         /* whose views are kept open */
    struct sfs_unfinished *elements; /* NULL: it is no longer fresh */
    unsigned users;
    unsigned commits; /* by time, that have left it out */
    bool is_closed;   /* perhaps not for the last time */
};

struct fresh {
    struct nodes *nodes;
    size_t most_bytes;
    pthread_mutex_t lock; /* guards what follows */
    struct fresh_frame *table;
};

int fresh_create(struct nodes *nodes, size_t most_bytes, struct fresh **out)
{
    struct fresh *fresh = calloc(1, sizeof(*fresh));
    if (!fresh)
        return -ENOMEM;
    fresh->nodes = nodes;
    fresh->most_bytes = most_bytes;
    pthread_mutex_init(&fresh->lock, NULL);
    *out = fresh;
    return 0;
}

void fresh_destroy(struct fresh *fresh)
{
    if (!fresh)
        return;
    pthread_mutex_destroy(&fresh->lock);
    free(fresh);
}

/* The lock must be held. */
static struct fresh_frame *find(struct fresh *fresh, const struct node *node, uint64_t frame)
{
    const struct fresh_key key = {node->object, frame};
    struct fresh_frame *found;
    HASH_FIND(hh, fresh->table, &key, sizeof(key), found);
    return found;
}

/* The lock must be held. */
static int add(struct fresh *fresh, const struct node *node, struct views *views, uint64_t number,
               struct fresh_frame **out)
{
    struct sfs_unfinished *elements;
    struct views *kept;
    int error = view_begin_unfinished(views, number, fresh->most_bytes, &elements);
    if (error || !elements)
        return error == -ENOMEM ? error : 0;
    struct fresh_frame *frame = calloc(1, sizeof(*frame));
    error = frame ? node_get_views(fresh->nodes, node, &kept) : -ENOMEM;
    if (error)
        goto failed;
    frame->node = node;
    frame->key = (struct fresh_key){node->object, number};
    frame->elements = elements;
    HASH_ADD(hh, fresh->table, key, sizeof(frame->key), frame);
    if (!hash_failed()) {
        *out = frame;
        return 0;
    }
    node_put_views(fresh->nodes, node);
    error = -ENOMEM;

failed:
    sfs_end_unfinished(elements);
    free(frame);
    return error;
}

/* Joins the other descriptors of a frame, or makes an entry if the frame may be fresh. */
static int join(struct fresh *fresh, const struct node *node, uint64_t number, bool is_made,
                struct fresh_frame **out)
{
    struct views *views;
    struct fresh_frame *frame;
    *out = NULL;
    if (!fresh)
        return 0;
    int error = node_get_views(fresh->nodes, node, &views);
    if (error)
        return error;
    bool is_blank = is_made || view_is_blank(views, number);
    pthread_mutex_lock(&fresh->lock);
    frame = find(fresh, node, number);
    if (!frame && is_blank)
        error = add(fresh, node, views, number, &frame);
    if (frame)
        frame->users++;
    pthread_mutex_unlock(&fresh->lock);
    node_put_views(fresh->nodes, node);
    *out = frame;
    return error;
}

int fresh_make(struct fresh *fresh, const struct node *node, uint64_t frame,
               struct fresh_frame **out)
{
    return join(fresh, node, frame, true, out);
}

int fresh_open(struct fresh *fresh, const struct node *node, uint64_t frame,
               struct fresh_frame **out)
{
    return join(fresh, node, frame, false, out);
}

/* The lock must be held. */
static bool finish(struct fresh_frame *frame)
{
    bool was_fresh = frame->elements;
    sfs_end_unfinished(frame->elements);
    frame->elements = NULL;
    return was_fresh;
}

bool fresh_end(struct fresh *fresh, struct fresh_frame *frame)
{
    if (!frame)
        return false;
    const struct node *node = frame->node;
    bool was_fresh = false;
    pthread_mutex_lock(&fresh->lock);
    bool is_last = --frame->users == 0;
    if (is_last) {
        was_fresh = finish(frame);
        HASH_DEL(fresh->table, frame);
        free(frame);
    }
    pthread_mutex_unlock(&fresh->lock);
    if (is_last)
        node_put_views(fresh->nodes, node);
    return was_fresh;
}

static void set_closed(struct fresh *fresh, struct fresh_frame *frame, bool is_closed)
{
    if (!frame)
        return;
    pthread_mutex_lock(&fresh->lock);
    frame->is_closed = is_closed;
    pthread_mutex_unlock(&fresh->lock);
}

void fresh_written(struct fresh *fresh, struct fresh_frame *frame)
{
    set_closed(fresh, frame, false);
}

void fresh_closed(struct fresh *fresh, struct fresh_frame *frame)
{
    set_closed(fresh, frame, true);
}

void fresh_finish(struct fresh *fresh, struct fresh_frame *frame)
{
    if (!frame)
        return;
    pthread_mutex_lock(&fresh->lock);
    finish(frame);
    pthread_mutex_unlock(&fresh->lock);
}

void fresh_finish_closed(struct fresh *fresh)
{
    struct fresh_frame *frame, *next;
    pthread_mutex_lock(&fresh->lock);
    HASH_ITER (hh, fresh->table, frame, next)
        if (frame->is_closed)
            finish(frame);
    pthread_mutex_unlock(&fresh->lock);
}

bool fresh_age(struct fresh *fresh)
{
    struct fresh_frame *frame, *next;
    bool any = false;
    pthread_mutex_lock(&fresh->lock);
    HASH_ITER (hh, fresh->table, frame, next)
        if (++frame->commits >= MOST_COMMITS)
            any |= finish(frame);
    pthread_mutex_unlock(&fresh->lock);
    return any;
}
