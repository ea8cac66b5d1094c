/* Truncating the file of a frame erases its elements. */
#include <errno.h>

#include "view/private.h"

int target_erase(struct views *views, const struct write_target *target, uint64_t first,
                 uint64_t last)
{
    uint64_t from = first / target->item + (first % target->item > 0), to = last / target->item;
    return from < to ? sfs_erase_range(views->dataset, &target->slab, from, to - from) : 0;
}

static int erase_frame(struct views *views, uint64_t frame)
{
    struct sfs_slab slab = view_frame_slab(views, frame);
    return sfs_erase(views->dataset, &slab);
}

int view_truncate(struct views *views, enum view_kind kind, uint64_t frame, uint64_t size)
{
    TAKING_TURN(views, turn_frames(views, kind, frame, size, UINT64_MAX - size));
    if (turn_error)
        return turn_error;
    LOOKING_AT(views);
    struct write_target target;
    if ((kind == VIEW_DEFINED || view_is_whole(kind)) && is_writable(views, kind))
        return size == 0 ? erase_frame(views, frame) : -EINVAL;
    int error = target_get(views, kind, frame, &target);
    if (error)
        return error;
    size_t head = target.head->n;
    if (size > head + target.body_bytes)
        return -EFBIG;
    return target_erase(views, &target, size > head ? size - head : 0, target.body_bytes);
}
