/* Punching holes into views: elements become undefined, or zero. */
#include <errno.h>
#include <stdlib.h>

#include "view/private.h"

#define ZERO_BYTES ((size_t)1 << 20) /* that are written at once */

/* Of an element that is punched in part the bytes become zero, as those of a hole are and as the
 * kernel shows them at once: where that is also what holes look like. An element of which nothing
 * else is left is erased. */
static int punch_part(struct views *views, const struct write_target *target, uint64_t first,
                      uint64_t last)
{
    if (first >= last || !views->info->fill_is_zero)
        return 0;
    char *zeros = calloc(1, (size_t)(last - first));
    if (!zeros)
        return -ENOMEM;
    int error =
        sfs_write_bytes(views->dataset, &target->slab, first, zeros, (size_t)(last - first), true);
    free(zeros);
    return error;
}

int view_punch(struct views *views, enum view_kind kind, uint64_t frame, uint64_t offset,
               uint64_t n)
{
    TAKING_TURN(views, turn_frames(views, kind, frame, offset, n));
    if (turn_error)
        return turn_error;
    LOOKING_AT(views);
    struct write_target target;
    uint64_t first, last;
    int error = target_get(views, kind, frame, &target);
    if (error)
        return error;
    target_cut(&target, offset, n, &first, &last);
    uint64_t from = first + (target.item - first % target.item) % target.item;
    uint64_t to = last - last % target.item;
    if (from > to) /* all of it lies in one element */
        return punch_part(views, &target, first, last);
    error = punch_part(views, &target, first, from);
    if (!error)
        error = punch_part(views, &target, to, last);
    return error ? error : target_erase(views, &target, from, to);
}

int view_zero(struct views *views, enum view_kind kind, uint64_t frame, uint64_t offset, uint64_t n,
              bool sparsify)
{
    TAKING_TURN(views, turn_frames(views, kind, frame, offset, n));
    if (turn_error)
        return turn_error;
    LOOKING_AT(views);
    struct write_target target;
    uint64_t first, last;
    int error = target_get(views, kind, frame, &target);
    if (error)
        return error;
    uint64_t size = target.head->n + target.body_bytes;
    if (offset > size || n > size - offset)
        return -EFBIG;
    target_cut(&target, offset, n, &first, &last);
    /* Pieces begin with an element, all but the first: no element is written twice. */
    size_t most = target.item < ZERO_BYTES ? ZERO_BYTES / target.item * target.item : target.item;
    most = last - first < most ? (size_t)(last - first) : most;
    char *zeros = calloc(1, most ? most : 1);
    if (!zeros)
        return -ENOMEM;
    while (first < last && !error) {
        uint64_t here = most - first % target.item % most;
        here = last - first < here ? last - first : here;
        error = sfs_write_bytes(views->dataset, &target.slab, first, zeros, (size_t)here, sparsify);
        first += here;
    }
    free(zeros);
    return error;
}
