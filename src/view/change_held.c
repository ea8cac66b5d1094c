/* Changes that no commit contains in part. Meanwhile nobody's commit begins: how long that is must not be left to the
 * file, whose frames may have a chunk for each element. */
#include <errno.h>

#include "common/interrupt.h"
#include "common/log.h"
#include "view/private.h"

#define MOST_SECONDS 30

static int change_in_time(struct views *views, const struct view_hold *hold,
                          int (*change)(void *context), void *context)
{
    if (!hold)
        return change(context);
    int error = hold->begin(hold->context);
    if (error)
        return error;
    interrupt_limit_begin(MOST_SECONDS * UINT64_C(1000000000));
    error = change(context);
    bool is_over = interrupt_limit_end();
    hold->end(hold->context);
    if (error != -EINTR || !is_over)
        return error;
    log_warning("%s: %s: replacing frames as a whole takes more than %d s, in which nothing is "
                "committed, and is given up; writing to frames/N.raw in place may take any time",
                sfs_path(views->file), views->path, MOST_SECONDS);
    return -ETIMEDOUT;
}

/* The turn comes first: who writes may take any time, and commits must not wait for that. */
int change_held(struct views *views, const struct view_hold *hold, struct view_frames frames,
                int (*change)(void *context), void *context)
{
    struct view_turn turn;
    int error = view_begin_turn(views, frames, true, &turn);
    if (error)
        return error;
    error = change_in_time(views, hold, change, context);
    view_end_turn(&turn);
    return error;
}
