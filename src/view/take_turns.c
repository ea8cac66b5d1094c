/* Turns of those who change frames of a dataset, through any views of it, in the order in which they come. */
#include <utlist.h>

#include "common/interrupt.h"
#include "view/private.h"

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* guards what follows */
static pthread_cond_t ended = PTHREAD_COND_INITIALIZER;
static struct view_turn *turns; /* of all datasets, also those that wait; who came first is first */

static bool excludes(const struct view_turn *a, const struct view_turn *b)
{
    return a->dataset == b->dataset && (a->is_alone || b->is_alone) &&
           a->frames.first <= b->frames.last && b->frames.first <= a->frames.last;
}

static bool must_wait(const struct view_turn *turn)
{
    const struct view_turn *before = turns;
    while (before != turn && !excludes(before, turn))
        before = before->next;
    return before != turn;
}

static bool is_in_turn(const struct sfs_dataset *dataset)
{
    const struct view_turn *turn = turns;
    while (turn && !(turn->dataset == dataset && pthread_equal(turn->thread, pthread_self())))
        turn = turn->next;
    return turn != NULL;
}

int view_begin_turn(struct views *views, struct view_frames frames, bool is_alone,
                    struct view_turn *turn)
{
    int error = 0;
    *turn = (struct view_turn){.dataset = views->dataset,
                               .frames = frames,
                               .is_alone = is_alone,
                               .thread = pthread_self()};
    pthread_mutex_lock(&lock);
    turn->is_listed = !is_in_turn(views->dataset);
    if (turn->is_listed)
        DL_APPEND(turns, turn);
    while (!error && turn->is_listed && must_wait(turn))
        error = interrupt_wait(&ended, &lock);
    pthread_mutex_unlock(&lock);
    if (error)
        view_end_turn(turn);
    return error;
}

void view_end_turn(struct view_turn *turn)
{
    if (!turn->is_listed)
        return;
    turn->is_listed = false;
    pthread_mutex_lock(&lock);
    DL_DELETE(turns, turn);
    pthread_cond_broadcast(&ended);
    pthread_mutex_unlock(&lock);
}

struct view_frames turn_frames(struct views *views, enum view_kind kind, uint64_t frame,
                               uint64_t offset, uint64_t n)
{
    uint64_t end;
    if (!view_is_stack(kind))
        return (struct view_frames){frame, frame};
    LOOKING_AT(views);
    uint64_t head = views->heads[kind].n, bytes = views->frame_bytes;
    if (bytes == 0 || __builtin_add_overflow(offset, n, &end))
        return (struct view_frames){0, UINT64_MAX};
    uint64_t first = offset > head ? (offset - head) / bytes : 0;
    uint64_t last = end > head ? (end - head - 1) / bytes : 0;
    return (struct view_frames){first, last > first ? last : first};
}
