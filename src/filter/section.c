/* One section through any pipeline: by our own filters where they all are ours, else by libhdf5's.
 */
#include <errno.h>
#include <stdlib.h>

#include "common/size.h"
#include "filter/filter.h"
#include "hdf5/hdf5.h"

size_t filters_scratch(const struct sfs_filter *filters, size_t n_filters, size_t size)
{
    return filter_is_native(filters, n_filters) ? filter_scratch(filters, n_filters, size) : 0;
}

size_t filters_besides(const struct sfs_filter *filters, size_t n_filters, uint64_t in_size,
                       size_t size)
{
    bool is_native = n_filters == 0 || filter_is_native(filters, n_filters);
    return is_native ? 0 : size_sum(size_of(in_size), size);
}

int filters_decode(const struct sfs_filter *filters, size_t n_filters, uint32_t mask,
                   const void *in, size_t in_size, void *scratch, void *out, size_t size)
{
    if (in_size == 0 || size == 0)
        return in_size == size ? 0 : -EILSEQ;
    if (filter_is_native(filters, n_filters))
        return filter_decode(filters, n_filters, mask, in, in_size, scratch, out, size);
    return hdf5_filter_decode(filters, n_filters, mask, in, in_size, out, size);
}

static int encode_natively(const struct sfs_filter *filters, size_t n_filters, const void *in,
                           size_t size, void **out, size_t *out_size, uint32_t *mask)
{
    size_t bound = filter_encode_bound(filters, n_filters, size);
    size_t scratch_size = filter_encode_scratch(filters, n_filters, size);
    void *made = malloc(bound), *scratch = scratch_size > 0 ? malloc(scratch_size) : NULL;
    int error = -ENOMEM;
    if (made && (scratch || scratch_size == 0))
        error = filter_encode(filters, n_filters, in, size, scratch, made, bound, out_size, mask);
    free(scratch);
    if (error)
        free(made);
    else
        *out = made;
    return error;
}

int filters_encode(const struct sfs_filter *filters, size_t n_filters, const void *in, size_t size,
                   void **out, size_t *out_size, uint32_t *mask)
{
    if (size == 0) {
        *out = NULL;
        *out_size = 0;
        *mask = 0;
        return 0;
    }
    if (filter_is_native(filters, n_filters))
        return encode_natively(filters, n_filters, in, size, out, out_size, mask);
    return hdf5_filter_encode(filters, n_filters, in, size, out, out_size, mask);
}
