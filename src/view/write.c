/* Writing and extending through views: ranges of bytes become ranges of elements of a frame or of the
 * whole dataset. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "common/interrupt.h"
#include "view/private.h"

int target_get(const struct views *views, enum view_kind kind, uint64_t frame,
               struct write_target *target)
{
    bool is_stack = view_is_stack(kind);
    if (view_is_whole(kind) && is_writable(views, kind))
        return -EINVAL;
    if (!view_is_dense(kind) || !is_writable(views, kind))
        return cannot_write(views);
    *target = (struct write_target){
        .slab = is_stack ? view_whole_slab(views) : view_frame_slab(views, frame),
        .head = &views->heads[kind],
        .body_bytes = is_stack ? views->total_bytes : views->frame_bytes,
        .item = views->info->type.size,
    };
    return 0;
}

void target_cut(const struct write_target *target, uint64_t offset, uint64_t n, uint64_t *first,
                uint64_t *last)
{
    uint64_t head = target->head->n, size = head + target->body_bytes, end;
    if (__builtin_add_overflow(offset, n, &end) || end > size)
        end = size;
    *last = end > head ? end - head : 0;
    *first = offset > head ? offset - head : 0;
    if (*first > *last)
        *first = *last;
}

/* Bytes for the body of a dense view. */
struct body_bytes {
    struct views *views;
    const struct write_target *target;
    uint64_t offset; /* in the body */
    const char *bytes;
    size_t n;
    bool sparsify;
};

static int write_body(void *context)
{
    const struct body_bytes *body = context;
    return sfs_write_bytes(body->views->dataset, &body->target->slab, body->offset, body->bytes,
                           body->n, body->sparsify);
}

/* Cuts a range off at the end of the view, and its header bytes, which must be those that are
 * shown. */
static int take_body(struct views *views, const struct write_target *target,
                     const struct view_bytes *given, size_t *n, struct body_bytes *body)
{
    const char *bytes = given->bytes;
    size_t head = target->head->n, in_head = 0;
    uint64_t offset = given->offset, size = head + target->body_bytes;
    if (offset >= size)
        return -EFBIG;
    *n = given->n < size - offset ? given->n : (size_t)(size - offset);
    if (offset < head) {
        in_head = *n < head - offset ? *n : head - (size_t)offset;
        if (memcmp(bytes, target->head->bytes + offset, in_head) != 0)
            return -EINVAL;
    }
    *body = (struct body_bytes){.views = views,
                                .target = target,
                                .offset = in_head < *n ? offset + in_head - head : 0,
                                .bytes = bytes + in_head,
                                .n = *n - in_head,
                                .sparsify = given->sparsify};
    return 0;
}

int view_write(struct views *views, enum view_kind kind, uint64_t frame,
               const struct view_bytes *bytes, size_t *written)
{
    TAKING_TURN(views, turn_frames(views, kind, frame, bytes->offset, bytes->n));
    if (turn_error)
        return turn_error;
    LOOKING_AT(views);
    struct write_target target;
    struct body_bytes body;
    size_t n;
    int error = target_get(views, kind, frame, &target);
    if (!error)
        error = take_body(views, &target, bytes, &n, &body);
    if (error)
        return error;
    if (body.n > 0)
        error = change_frame(views, kind, frame, write_body, &body);
    if (!error)
        *written = n;
    return error;
}

/* Fills what is missing of the first and of the last element with the fill value; *padded is to be
 * freed. */
static int pad_elements(struct body_bytes *body, char **padded)
{
    size_t item = body->target->item, before = (size_t)(body->offset % item);
    size_t behind = (item - (before + body->n) % item) % item;
    const char *fill = body->views->info->fill;
    *padded = NULL;
    if (before + behind == 0)
        return 0;
    *padded = malloc(before + body->n + behind);
    if (!*padded)
        return -ENOMEM;
    memcpy(*padded, fill, before);
    memcpy(*padded + before, body->bytes, body->n);
    memcpy(*padded + before + body->n, fill + item - behind, behind);
    body->bytes = *padded;
    body->offset -= before;
    body->n += before + behind;
    return 0;
}

int view_replace(struct views *views, enum view_kind kind, uint64_t frame,
                 const struct view_bytes *bytes, size_t *written)
{
    TAKING_TURN(views, turn_frames(views, kind, frame, bytes->offset, bytes->n));
    if (turn_error)
        return turn_error;
    LOOKING_AT(views);
    struct write_target target;
    struct body_bytes body;
    size_t n;
    char *padded = NULL;
    int error = target_get(views, kind, frame, &target);
    if (!error)
        error = take_body(views, &target, bytes, &n, &body);
    if (!error && body.n > 0)
        error = pad_elements(&body, &padded);
    if (error)
        return error;
    bool was_new = is_new_frame(views, kind, frame);
    if (body.n > 0)
        error = change_frame(views, kind, frame, write_body, &body);
    INTERRUPTED_LATE();
    if (!error && body.n > 0 && !was_new)
        error = target_erase(views, &target, 0, body.offset);
    if (!error && body.n > 0 && !was_new)
        error = target_erase(views, &target, body.offset + body.n, target.body_bytes);
    free(padded);
    if (!error)
        *written = n;
    return error;
}

/* What is to be defined in a frame, and with which values. */
struct selected {
    struct views *views;
    struct sfs_slab slab;
    struct sfs_defined defined;
    const void *values;
};

static int set_defined(void *context)
{
    const struct selected *selected = context;
    return sfs_set_defined(selected->views->dataset, &selected->slab, &selected->defined);
}

int view_set_defined(struct views *views, uint64_t frame, const void *bytes, size_t n)
{
    TAKING_TURN(views, turn_frames(views, VIEW_DEFINED, frame, 0, 0));
    if (turn_error)
        return turn_error;
    LOOKING_AT(views);
    if (!is_writable(views, VIEW_DEFINED))
        return cannot_write(views);
    struct selected selected = {.views = views, .slab = view_frame_slab(views, frame)};
    int error = sfs_decode_defined(views->dataset, &selected.slab, views->frame_rank, bytes, n,
                                   &selected.defined);
    if (error)
        return error;
    error = change_frame(views, VIEW_DEFINED, frame, set_defined, &selected);
    sfs_defined_free(&selected.defined);
    return error;
}

static int set_points(void *context)
{
    const struct selected *selected = context;
    int error = selected->defined.elements > 0
                    ? sfs_write_values(selected->views->dataset, &selected->slab,
                                       &selected->defined, selected->values)
                    : 0;
    INTERRUPTED_LATE();
    return error ? error : set_defined(context);
}

int view_place_points(struct views *views, uint64_t frame, const struct sfs_defined *defined,
                      const void *values)
{
    struct selected selected = {.views = views,
                                .slab = view_frame_slab(views, frame),
                                .defined = *defined,
                                .values = values};
    return set_points(&selected);
}

int view_set_points(struct views *views, uint64_t frame, const struct sfs_defined *defined,
                    const void *values)
{
    LOOKING_AT(views);
    if (!is_writable(views, VIEW_NPZ))
        return cannot_write(views);
    struct selected selected = {.views = views,
                                .slab = view_frame_slab(views, frame),
                                .defined = *defined,
                                .values = values};
    return change_frame(views, VIEW_NPZ, frame, set_points, &selected);
}

static int set_values(void *context)
{
    const struct selected *selected = context;
    return sfs_write_values(selected->views->dataset, &selected->slab, &selected->defined,
                            selected->values);
}

int view_set_values(struct views *views, uint64_t frame, const void *values, size_t n)
{
    LOOKING_AT(views);
    struct defined_frame *held;
    if (!is_writable(views, VIEW_VALUES))
        return cannot_write(views);
    int error = defined_get(views, frame, DEFINED_INTERVALS, &held);
    if (error)
        return error;
    struct selected selected = {.views = views,
                                .slab = view_frame_slab(views, frame),
                                .defined = held->defined,
                                .values = values};
    uint64_t elements = held->defined.elements;
    if (elements != n / views->info->type.size || n % views->info->type.size != 0)
        error = -EINVAL;
    else if (n > 0)
        error = change_frame(views, VIEW_VALUES, frame, set_values, &selected);
    defined_put(views, held);
    return error;
}

int view_begin_unfinished(struct views *views, uint64_t frame, size_t most_bytes,
                          struct sfs_unfinished **unfinished)
{
    LOOKING_AT(views);
    struct sfs_slab slab = view_frame_slab(views, frame);
    *unfinished = NULL;
    if (views->info->rank - views->frame_rank == 1)
        slab.start[0] = frame; /* also behind the last */
    if (views->frame_bytes > most_bytes)
        return 0;
    return sfs_begin_unfinished(views->dataset, &slab, unfinished);
}

struct view_frames view_frames_of(struct views *views, enum view_kind kind, uint64_t frame,
                                  uint64_t offset, uint64_t n)
{
    LOOKING_AT(views);
    if (!view_is_stack(kind))
        return (struct view_frames){frame, frame};
    if (views->frame_bytes == 0 || !has_view(views, kind))
        return (struct view_frames){0};
    struct write_target stack = {.head = &views->heads[kind], .body_bytes = views->total_bytes};
    uint64_t begin, end, most = views->frames > 0 ? views->frames - 1 : 0;
    target_cut(&stack, offset, n, &begin, &end);
    uint64_t first = begin / views->frame_bytes;
    uint64_t last = end > begin ? (end - 1) / views->frame_bytes : first;
    return (struct view_frames){first < most ? first : most, last < most ? last : most};
}

void view_bytes_of(struct views *views, enum view_kind kind, uint64_t first, uint64_t last,
                   uint64_t *offset, uint64_t *n)
{
    LOOKING_AT(views);
    *offset = *n = 0;
    if (!view_is_stack(kind) || !has_view(views, kind) || first > last || last >= views->frames)
        return;
    *offset = views->heads[kind].n + first * views->frame_bytes;
    *n = (last - first + 1) * views->frame_bytes;
}
