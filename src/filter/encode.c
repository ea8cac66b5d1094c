/* Applying a chunk's filters in order, between two buffers. */
#include <errno.h>
#include <string.h>

#include "filter/kind.h"

size_t filter_encode_bound(const struct filter_pipeline *pipeline, size_t size)
{
    for (size_t i = 0; i < pipeline->n; i++) {
        const struct sfs_filter *filter = &pipeline->filters[i];
        const struct filter_kind *kind = filter_kind_of(filter);
        if (kind->effect == COMPRESSES)
            size = kind->bound(filter, size);
        if (__builtin_add_overflow(size, kind->appended, &size))
            return SIZE_MAX;
    }
    return size;
}

/* How often the bytes move from one buffer into another: all filters move them but checksums, of
 * which one that comes first needs room behind them. */
static unsigned count_moves(const struct filter_pipeline *pipeline)
{
    unsigned moves = 0;
    for (size_t i = 0; i < pipeline->n; i++)
        moves += filter_kind_of(&pipeline->filters[i])->effect != APPENDS || moves == 0;
    return moves;
}

size_t filter_encode_scratch(const struct filter_pipeline *pipeline, size_t size)
{
    struct filter_pipeline before = *pipeline;
    if (count_moves(pipeline) < 2)
        return 0;
    while (before.n > 0 && filter_kind_of(&before.filters[before.n - 1])->effect == APPENDS)
        before.n--;
    before.n -= before.n > 0;
    return filter_encode_bound(&before, size);
}

/* Bytes on their way through a pipeline. The last move ends in `out`; either buffer has the room
 * that a filter needs whose bytes end there. */
struct passage {
    const unsigned char *in, *at;
    size_t size;
    unsigned moves_left;
    unsigned char *scratch, *out;
    size_t scratch_capacity, out_capacity;
};

static unsigned char *next_buffer(const struct passage *passage)
{
    return passage->moves_left % 2 == 1 ? passage->out : passage->scratch;
}

static void moved_to(struct passage *passage, const unsigned char *to)
{
    passage->at = to;
    passage->moves_left--;
}

static void move_as_they_are(struct passage *passage)
{
    unsigned char *to = next_buffer(passage);
    if (passage->size > 0)
        memcpy(to, passage->at, passage->size);
    moved_to(passage, to);
}

static int append(struct passage *passage, const struct filter_kind *kind,
                  const struct sfs_filter *filter)
{
    if (passage->at == passage->in)
        move_as_they_are(passage);
    size_t n = 0;
    int error = kind->encode(filter, passage->at, passage->size,
                             (unsigned char *)passage->at + passage->size, kind->appended, &n);
    passage->size += error ? 0 : n;
    return error;
}

/* What fails leaves the bytes as they are. */
static int transform(struct passage *passage, const struct filter_kind *kind,
                     const struct sfs_filter *filter)
{
    unsigned char *to = next_buffer(passage);
    size_t room = to == passage->out ? passage->out_capacity : passage->scratch_capacity;
    size_t capacity = kind->effect == COMPRESSES ? room : passage->size;
    size_t n = 0;
    int error = kind->encode(filter, passage->at, passage->size, to, capacity, &n);
    if (error) {
        move_as_they_are(passage);
        return error;
    }
    passage->size = n;
    moved_to(passage, to);
    return 0;
}

int filter_encode(struct filter_pipeline *pipeline, const void *in, size_t size, void *scratch,
                  void *out, size_t *out_size)
{
    if (*out_size < filter_encode_bound(pipeline, size))
        return -EINVAL;
    struct passage passage = {
        .in = in,
        .at = in,
        .size = size,
        .moves_left = count_moves(pipeline),
        .scratch = scratch,
        .scratch_capacity = filter_encode_scratch(pipeline, size),
        .out = out,
        .out_capacity = *out_size,
    };
    pipeline->mask = 0;
    for (size_t i = 0; i < pipeline->n; i++) {
        const struct sfs_filter *filter = &pipeline->filters[i];
        const struct filter_kind *kind = filter_kind_of(filter);
        int error = kind->effect == APPENDS ? append(&passage, kind, filter)
                                            : transform(&passage, kind, filter);
        if (error && (!filter->optional || error == -ENOMEM))
            return error;
        pipeline->mask |= error ? (uint32_t)1 << i : 0;
    }
    if (passage.at != out && passage.size > 0)
        memcpy(out, passage.at, passage.size);
    *out_size = passage.size;
    return 0;
}
