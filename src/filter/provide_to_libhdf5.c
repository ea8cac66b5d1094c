/* Our own filters for libhdf5, one at a time (hdf5/register_own_filters.c). */
#include <errno.h>
#include <stdlib.h>

#include "filter/kind.h"
#include "hdf5/hdf5.h"

static bool complete(int id, size_t element_size, size_t chunk_bytes, unsigned *values, size_t *n,
                     size_t room)
{
    for (size_t i = 0; i < filter_n_kinds; i++)
        if (filter_kinds[i]->id == id && filter_kinds[i]->complete)
            return filter_kinds[i]->complete(element_size, chunk_bytes, values, n, room);
    return true;
}

static bool has(int id)
{
    for (size_t i = 0; i < filter_n_kinds; i++)
        if (filter_kinds[i]->id == id)
            return true;
    return false;
}

static int encode(const struct sfs_filter *filter, const void *in, size_t size, void **out,
                  size_t *out_size)
{
    const struct filter_kind *kind = filter_kind_of(filter);
    size_t room = kind ? filter_encode_bound(&(struct filter_pipeline){1, filter, 0}, size) : 0;
    *out = NULL;
    if (!kind || room == SIZE_MAX)
        return -EINVAL;
    *out = malloc(room);
    return *out ? kind->encode(filter, in, size, *out, room, out_size) : -ENOMEM;
}

/* The size is what the bytes say, as far as it can be. */
static int decode(const struct sfs_filter *filter, const void *in, size_t in_size, void **out,
                  size_t *out_size)
{
    const struct filter_kind *kind = filter_kind_of(filter);
    uint64_t size = in_size;
    *out = NULL;
    if (!kind || (kind->plain_size && !kind->plain_size(filter, in, in_size, &size)) ||
        !filter_can_make(&(struct filter_pipeline){1, filter, 0}, in_size, size) ||
        size > SIZE_MAX / 2)
        return -EILSEQ;
    *out_size = (size_t)size;
    *out = malloc(*out_size ? *out_size : 1);
    return *out ? kind->decode(filter, in, in_size, *out, *out_size) : -ENOMEM;
}

void filters_provide(void)
{
    static const struct hdf5_own_filters ours = {has, filter_is_left_out, complete, encode, decode};
    hdf5_use_filters(&ours);
}
