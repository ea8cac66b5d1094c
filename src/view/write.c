/* Writing, erasing and extending through views: ranges of bytes become ranges of elements of a
 * frame or of the whole dataset. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "view/private.h"

#define ZERO_BYTES ((size_t)1 << 20) /* that are written at once */

/* A dense view that can be written. */
struct target {
    struct sfs_slab slab;
    const struct view_head *head;
    uint64_t body_bytes;
    size_t item; /* bytes of an element */
};

static bool is_writable(const struct views *views, enum view_kind kind)
{
    return sfs_is_writable(views->file) && !views->info->type.has_pointers && !views->has_padding &&
           (view_is_dense(kind) || (kind == VIEW_DEFINED && views->is_sparse)) &&
           has_view(views, kind);
}

bool view_writable(struct views *views, enum view_kind kind)
{
    LOOKING_AT(views);
    return is_writable(views, kind);
}

static int cannot_write(const struct views *views)
{
    return sfs_is_writable(views->file) ? -EOPNOTSUPP : -EROFS;
}

static int target_of(const struct views *views, enum view_kind kind, uint64_t frame,
                     struct target *target)
{
    bool is_stack = view_is_stack(kind);
    if (!view_is_dense(kind) || !is_writable(views, kind))
        return cannot_write(views);
    *target = (struct target){
        .slab = is_stack ? view_whole_slab(views) : view_frame_slab(views, frame),
        .head = &views->heads[kind],
        .body_bytes = is_stack ? views->total_bytes : views->frame_bytes,
        .item = views->info->type.size,
    };
    return 0;
}

int view_write(struct views *views, enum view_kind kind, uint64_t frame, uint64_t offset,
               const void *bytes, size_t n, bool sparsify, size_t *written)
{
    LOOKING_AT(views);
    struct target target;
    int error = target_of(views, kind, frame, &target);
    if (error)
        return error;
    size_t head = target.head->n, in_head = 0;
    uint64_t size = head + target.body_bytes;
    if (offset >= size)
        return -EFBIG;
    n = n < size - offset ? n : (size_t)(size - offset);
    if (offset < head) {
        in_head = n < head - offset ? n : head - (size_t)offset;
        if (memcmp(bytes, target.head->bytes + offset, in_head) != 0)
            return -EINVAL;
    }
    if (in_head < n)
        error = sfs_write_bytes(views->dataset, &target.slab, offset + in_head - head,
                                (const char *)bytes + in_head, n - in_head, sparsify);
    if (!error)
        *written = n;
    return error;
}

/* Erases the elements of the body that lie wholly in its bytes [first, last). */
static int erase_bytes(struct views *views, const struct target *target, uint64_t first,
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
    LOOKING_AT(views);
    struct target target;
    if (kind == VIEW_DEFINED && is_writable(views, kind))
        return size == 0 ? erase_frame(views, frame) : -EINVAL;
    int error = target_of(views, kind, frame, &target);
    if (error)
        return error;
    size_t head = target.head->n;
    if (size > head + target.body_bytes)
        return -EFBIG;
    return erase_bytes(views, &target, size > head ? size - head : 0, target.body_bytes);
}

/* The part of a range of bytes of a view that lies in its body, in bytes of the body. */
static void cut_to_body(const struct target *target, uint64_t offset, uint64_t n, uint64_t *first,
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

int view_punch(struct views *views, enum view_kind kind, uint64_t frame, uint64_t offset,
               uint64_t n)
{
    LOOKING_AT(views);
    struct target target;
    uint64_t first, last;
    int error = target_of(views, kind, frame, &target);
    if (error)
        return error;
    cut_to_body(&target, offset, n, &first, &last);
    return erase_bytes(views, &target, first, last);
}

int view_zero(struct views *views, enum view_kind kind, uint64_t frame, uint64_t offset, uint64_t n)
{
    LOOKING_AT(views);
    struct target target;
    uint64_t first, last;
    int error = target_of(views, kind, frame, &target);
    if (error)
        return error;
    cut_to_body(&target, offset, n, &first, &last);
    /* Pieces begin with an element, all but the first: no element is written twice. */
    size_t most = target.item < ZERO_BYTES ? ZERO_BYTES / target.item * target.item : target.item;
    most = last - first < most ? (size_t)(last - first) : most;
    char *zeros = calloc(1, most ? most : 1);
    if (!zeros)
        return -ENOMEM;
    while (first < last && !error) {
        uint64_t here = most - first % target.item % most;
        here = last - first < here ? last - first : here;
        error = sfs_write_bytes(views->dataset, &target.slab, first, zeros, (size_t)here, false);
        first += here;
    }
    free(zeros);
    return error;
}

int view_set_defined(struct views *views, uint64_t frame, const void *bytes, size_t n)
{
    LOOKING_AT(views);
    struct sfs_defined defined;
    if (!is_writable(views, VIEW_DEFINED))
        return cannot_write(views);
    struct sfs_slab slab = view_frame_slab(views, frame);
    int error = sfs_decode_defined(views->dataset, &slab, views->frame_rank, bytes, n, &defined);
    if (error)
        return error;
    error = sfs_set_defined(views->dataset, &slab, &defined);
    sfs_defined_free(&defined);
    return error;
}

static int extend(struct views *views, uint64_t frames)
{
    const struct sfs_dataset_info *info = views->info;
    uint64_t dims[SFS_MAX_RANK] = {frames}; /* the others stay as they are */
    if (!sfs_is_writable(views->file))
        return -EROFS;
    if (info->rank - views->frame_rank != 1 || frames > info->max_dims[0])
        return -EFBIG;
    int error = sfs_extend(views->dataset, dims);
    return error == -EINVAL || error == -EOPNOTSUPP ? -EFBIG : error;
}

int views_extend(struct views *views, uint64_t frames)
{
    if (views_frames(views) >= frames)
        return 0;
    int error = extend(views, frames);
    return error ? error : geometry_renew(views);
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

void view_frames_of(struct views *views, enum view_kind kind, uint64_t frame, uint64_t offset,
                    uint64_t n, uint64_t *first, uint64_t *last)
{
    LOOKING_AT(views);
    *first = *last = frame;
    if (!view_is_stack(kind))
        return;
    *first = *last = 0;
    if (views->frame_bytes == 0 || !has_view(views, kind))
        return;
    struct target stack = {.head = &views->heads[kind], .body_bytes = views->total_bytes};
    uint64_t begin, end, most = views->frames > 0 ? views->frames - 1 : 0;
    cut_to_body(&stack, offset, n, &begin, &end);
    *first = begin / views->frame_bytes;
    *last = end > begin ? (end - 1) / views->frame_bytes : *first;
    *first = *first < most ? *first : most;
    *last = *last < most ? *last : most;
}
