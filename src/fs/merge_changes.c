/* Who writes may not have to wait, and workers may wait for long: so those that no worker has yet are merged, into one
 * that concerns all that both do. It has the place of the first: what waits for one of them is behind it. */
#include "fs/merge_changes.h"

#include <string.h>
#include <utlist.h>

#include "fs/inode.h"

/* From so many changes on for which nobody waits it does not matter any more who has written. */
#define MANY_CHANGES 256

static struct range range_of_both(const struct range *a, const struct range *b)
{
    uint64_t offset = a->offset < b->offset ? a->offset : b->offset;
    uint64_t end_a = a->offset + a->n, end_b = b->offset + b->n;
    bool has_end = a->n > 0 && b->n > 0;
    return (struct range){offset, has_end ? (end_a > end_b ? end_a : end_b) - offset : 0};
}

static void add_change(struct change *change, const struct change *more)
{
    bool has_frames = change->first <= change->last;
    if (more->first <= more->last) {
        if (!has_frames || more->first < change->first)
            change->first = more->first;
        if (!has_frames || more->last > change->last)
            change->last = more->last;
    }
    change->views |= more->views;
    change->names |= more->names;
}

/* With that of a truncation it is as of one: recorded as an invalidation (invalidate_own). */
static void add_own(struct job *job, const struct job *more)
{
    if (!more->has_own)
        return;
    job->own = job->has_own ? range_of_both(&job->own, &more->own) : more->own;
    if (!job->has_own || more->answer.kind != ANSWER_WRITTEN)
        job->answer.kind = more->answer.kind;
    job->has_own = true;
}

/* The inode of the writer is invalidated as all others are: the whole of it, as may be needed after a truncation. */
static void forget_writer(struct job *job)
{
    job->writer = 0;
    job->has_own = false;
    memset(job->stack, 0, sizeof(job->stack));
}

static void add_job(struct job *job, struct job *more)
{
    if (job->writer != more->writer) {
        forget_writer(job);
        forget_writer(more);
    }
    add_own(job, more);
    add_change(&job->change, &more->change);
    for (size_t i = 0; i < sizeof(job->stack) / sizeof(*job->stack); i++)
        job->stack[i] = range_of_both(&job->stack[i], &more->stack[i]);
    job->is_repeated &= more->is_repeated;
    job->has_others |= more->has_others;
}

bool job_is_unawaited(const struct job *job)
{
    return job->has_change && !job->request && !job->runs;
}

/* Whether its change is also one of the writer's own inode, if that is to be invalidated: a temporary file that has
 * become a frame is none of its views. */
static bool may_forget_writer(const struct job *job)
{
    return !job->has_own ||
           change_concerns(&job->change, job->change.node, inode_unpack(job->writer));
}

/* The first that can be merged with a job, or NULL. */
static struct job *mergeable(struct job *jobs, const struct job *job)
{
    struct job *other, *of_others = NULL;
    size_t n = 0;
    DL_FOREACH (jobs, other) {
        if (other == job || !job_is_unawaited(other))
            continue;
        n++;
        if (other->change.node != job->change.node || other->is_of_others != job->is_of_others ||
            other->change.only_attributes != job->change.only_attributes)
            continue;
        if (other->writer == job->writer)
            return other;
        if (!of_others && may_forget_writer(other) && may_forget_writer(job))
            of_others = other;
    }
    return n < MANY_CHANGES ? NULL : of_others;
}

struct job *job_merge(struct job **jobs, struct job *job)
{
    struct job *other = mergeable(*jobs, job), *at;
    if (!other)
        return NULL;
    for (at = other; at && at != job;)
        at = at->next;
    struct job *first = at ? other : job, *second = at ? job : other;
    add_job(first, second);
    DL_DELETE(*jobs, second);
    return second;
}
