/* Pixels of frames that are images, for the views that show them in other types: their values, and which of them
 * are defined. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "common/interrupt.h"
#include "view/pixel.h"
#include "view/views_memory.h"

#define PIECE_BYTES ((size_t)1 << 20)

bool pixel_is_number(const struct sfs_type *type)
{
    bool has_value = type->class == SFS_FLOAT
                         ? type->size == 2 || type->size == 4 || type->size == 8
                         : is_number(type) && type->size <= 8;
    return has_value && type->size > 0;
}

int pixels_read(struct views *views, uint64_t frame, pixels_action action, void *context)
{
    struct sfs_slab slab = view_frame_slab(views, frame);
    size_t size = views->info->type.size, all = (size_t)views->frame_elements * size;
    uint64_t most = PIECE_BYTES / size, n, changes = sfs_dataset_changes(views->dataset);
    /* All of a followed frame, so that it is of one state. */
    bool is_followed = sfs_is_following(views->file);
    bool is_at_once = is_followed && all > PIECE_BYTES && made_memory_extend(all);
    if (is_at_once)
        most = views->frame_elements;
    unsigned char *piece = malloc((size_t)most * size);
    int error = piece ? 0 : -ENOMEM;
    for (uint64_t first = 0; first < views->frame_elements && !error; first += n) {
        n = views->frame_elements - first < most ? views->frame_elements - first : most;
        error = interrupt_check();
        if (!error)
            error = sfs_read(views->dataset, &slab, first * size, piece, (size_t)n * size);
        if (!error) {
            show_elements(views, piece, n);
            action(context, first, (size_t)n, piece);
        }
    }
    free(piece);
    if (is_at_once)
        made_memory_give_back(all);
    else if (!error && is_followed && views->frame_elements > most && !is_current(views, changes))
        error = -EAGAIN;
    return error;
}

int pixels_clear_undefined(struct views *views, uint64_t frame, unsigned char *is_there)
{
    struct defined_frame *defined;
    memset(is_there, 1, (size_t)views->frame_elements);
    if (!views->is_sparse)
        return 0;
    int error = defined_get(views, frame, DEFINED_INTERVALS, &defined);
    if (error)
        return error;
    const struct sfs_interval *interval = defined->defined.interval;
    uint64_t end = 0;
    for (size_t i = 0; i < defined->defined.n; i++) {
        memset(is_there + end, 0, (size_t)(interval[i].first - end));
        end = interval[i].first + (interval[i + 1].index - interval[i].index);
    }
    memset(is_there + end, 0, (size_t)(views->frame_elements - end));
    defined_put(views, defined);
    return 0;
}
