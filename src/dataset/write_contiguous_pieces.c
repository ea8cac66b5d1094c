/* Writing values to slabs whose pieces of chunks are intervals of the slab: frames made of whole
 * rows of chunks, or of one chunk. What is written to a chunk lies packed in memory then. */
#include "cache/cache.h"
#include "chunk/chunks_of_box.h"
#include "common/box.h"
#include "common/interrupt.h"
#include "dataset/cut_selection.h"
#include "dataset/private.h"

/* Whether intervals are runs of `all` positions as they stand: apart from each other, too. */
static bool are_runs(const struct sfs_defined *defined, uint64_t all)
{
    uint64_t end = 0;
    for (size_t i = 0; i < defined->n; i++) {
        uint64_t at = defined->interval[i].first;
        uint64_t length = defined->interval[i + 1].index - defined->interval[i].index;
        if ((i > 0 && at <= end) || at > all || length > all - at || length == 0)
            return false;
        end = at + length;
    }
    return defined->n > 0 && defined->interval[0].index == 0 &&
           defined->interval[defined->n].index == defined->elements;
}

int dataset_write_pieces(struct sfs_dataset *dataset, const struct box *box,
                         const struct sfs_defined *defined, const char *values, bool *done)
{
    const struct layout *layout = &dataset->layout;
    uint64_t all, place, first, n;
    struct piece piece;
    unsigned written = 0;
    int error = 0;
    *done = false;
    if (!dataset->sparse || !box_product(box->count, box->rank, 1, &all) || !are_runs(defined, all))
        return 0;
    if (piece_number(layout, box) > defined->elements) /* most would get none */
        return 0;
    const struct runs runs = dataset_runs_of(defined);
    for (bool more = piece_first(layout, box, &piece); more && !error;
         more = piece_next(layout, box, &piece)) {
        if (!box_is_contiguous(layout->rank, piece.count, box->count, piece.in_box, &place) ||
            !box_is_contiguous(layout->rank, piece.count, layout->chunk_dims, piece.in_chunk,
                               &first) ||
            !box_product(piece.count, layout->rank, 1, &n))
            return 0;
        struct runs part = {0};
        error = runs_append_part(&part, &runs, place, place + n, first);
        if (!error && part.elements > 0)
            error = cache_write_over(dataset->cache, piece.scaled, &part,
                                     values + runs_rank(&runs, place) * layout->element_size,
                                     part.elements == parts_inside(layout, piece.scaled));
        runs_free(&part);
        if (!error && ++written % ASK_EVERY_CHUNKS == 0)
            error = interrupt_check();
    }
    *done = !error;
    return error;
}
