/* Frames behind the last one: the dataset becomes larger for them. */
#include <errno.h>

#include "view/private.h"

/* Whether a frame is not there yet, of a view of one. */
bool is_new_frame(const struct views *views, enum view_kind kind, uint64_t frame)
{
    return !view_is_stack(kind) && frame >= views->frames;
}

int can_extend(const struct views *views, uint64_t frames)
{
    const struct sfs_dataset_info *info = views->info;
    uint64_t elements;
    if (!sfs_is_writable(views->file))
        return -EROFS;
    bool can = (info->layout == SFS_SPARSE || info->layout == SFS_CHUNKED) &&
               info->rank - views->frame_rank == 1 && frames <= info->max_dims[0] &&
               !__builtin_mul_overflow(frames, views->frame_elements, &elements) &&
               elements <= INT64_MAX;
    return can ? 0 : -EFBIG;
}

int change_frame(struct views *views, enum view_kind kind, uint64_t frame,
                 int (*change)(void *context), void *context)
{
    if (!is_new_frame(views, kind, frame))
        return change(context);
    int error = can_extend(views, frame + 1);
    if (error)
        return error;
    const uint64_t dims[SFS_MAX_RANK] = {frame + 1}; /* the others stay as they are */
    error = sfs_extend_with(views->dataset, dims, change, context);
    return error == -EOPNOTSUPP ? -EFBIG : error;
}

int views_may_extend(struct views *views, uint64_t frames)
{
    LOOKING_AT(views);
    return frames <= views->frames ? 0 : can_extend(views, frames);
}

int views_extend(struct views *views, uint64_t frames)
{
    const uint64_t dims[SFS_MAX_RANK] = {frames}; /* the others stay as they are */
    int error = views_may_extend(views, frames);
    if (error || frames <= views_frames(views))
        return error;
    error = sfs_extend(views->dataset, dims);
    if (error)
        return error == -EINVAL || error == -EOPNOTSUPP ? -EFBIG : error;
    return geometry_renew(views);
}
