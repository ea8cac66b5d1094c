/* Our own filters, for programs that write or read sections in their stored form. */
#include <errno.h>
#include <stdlib.h>

#include "dataset/private.h"
#include "filter/filter.h"

bool sfs_filter_library(size_t i, char *text, size_t n)
{
    return filter_library(i, text, n);
}

int sfs_filters_encode(const struct sfs_filter *filters, size_t n_filters, const void *bytes,
                       size_t n, void **encoded, size_t *n_encoded, uint32_t *mask)
{
    struct filter_pipeline pipeline = {n_filters, filters, 0};
    if (!filter_is_native(&pipeline))
        return -EOPNOTSUPP;
    void *made;
    size_t made_n;
    int error = filters_encode(&pipeline, bytes, n, &made, &made_n);
    if (error)
        return error;
    *encoded = made;
    *n_encoded = made_n;
    *mask = pipeline.mask;
    return 0;
}

int sfs_filters_decode(const struct sfs_filter *filters, size_t n_filters, uint32_t mask,
                       const void *encoded, size_t n_encoded, void *bytes, size_t n)
{
    const struct filter_pipeline pipeline = {n_filters, filters, mask};
    if (!filter_is_native(&pipeline))
        return -EOPNOTSUPP;
    size_t room = filter_scratch(&pipeline, n);
    void *scratch = room > 0 ? malloc(room) : NULL;
    if (room > 0 && !scratch)
        return -ENOMEM;
    int error = filters_decode(&pipeline, encoded, n_encoded, scratch, bytes, n);
    free(scratch);
    return error == -EILSEQ ? -EIO : error;
}
