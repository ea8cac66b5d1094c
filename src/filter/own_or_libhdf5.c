/* One section through any pipeline: by our own filters where they all are ours, else by libhdf5's.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "common/size.h"
#include "filter/filter.h"
#include "hdf5/hdf5.h"

size_t filters_scratch(const struct filter_pipeline *pipeline, size_t size)
{
    return filter_is_native(pipeline) ? filter_scratch(pipeline, size) : 0;
}

size_t filters_besides(const struct filter_pipeline *pipeline, uint64_t in_size, size_t size)
{
    return filter_is_native(pipeline) ? 0 : size_sum(size_of(in_size), size);
}

/* ---- Filters that count elements ---- */

#define COUNT_AT         2 /* among the parameters of both: of the elements, */
#define NBIT_SIZE_AT     4 /* and of the bytes of one */
#define SCALE_SIZE_AT    4
#define LEAST_PARAMETERS 5

bool filter_counts_elements(const struct sfs_filter *filter, size_t *place)
{
    *place = COUNT_AT;
    return (filter->id == FILTER_NBIT || filter->id == FILTER_SCALE) &&
           filter->n_values >= LEAST_PARAMETERS;
}

/* The filters of a pipeline whose first one is told how many elements there are. */
struct counted {
    struct sfs_filter filters[PIPELINE_MOST_FILTERS];
    unsigned *values; /* its parameters; NULL: it does not ask for that */
};

/* Puts them into a pipeline for `size` bytes. What is no number of whole elements is left as it is,
 * and refused by the filter. -ENOMEM. */
static int count_elements(struct filter_pipeline *pipeline, size_t size, struct counted *counted)
{
    const struct sfs_filter *first = pipeline->filters;
    size_t place;
    counted->values = NULL;
    if (pipeline->n < 1 || pipeline->n > PIPELINE_MOST_FILTERS ||
        !filter_counts_elements(first, &place) || first->values[place] != 0)
        return 0;
    size_t element = first->values[first->id == FILTER_NBIT ? NBIT_SIZE_AT : SCALE_SIZE_AT];
    if (element == 0 || size % element != 0 || size / element > UINT32_MAX)
        return 0;
    counted->values = malloc(first->n_values * sizeof(*counted->values));
    if (!counted->values)
        return -ENOMEM;
    memcpy(counted->filters, first, pipeline->n * sizeof(*first));
    memcpy(counted->values, first->values, first->n_values * sizeof(*counted->values));
    counted->values[place] = (unsigned)(size / element);
    counted->filters[0].values = counted->values;
    pipeline->filters = counted->filters;
    return 0;
}

int filters_decode(const struct filter_pipeline *pipeline, const void *in, size_t in_size,
                   void *scratch, void *out, size_t size)
{
    struct filter_pipeline told = *pipeline;
    struct counted counted;
    if (in_size == 0 || size == 0)
        return in_size == size ? 0 : -EILSEQ;
    if (filter_is_native(pipeline))
        return filter_decode(pipeline, in, in_size, scratch, out, size);
    int error = count_elements(&told, size, &counted);
    if (!error)
        error = hdf5_filter_decode(&told, in, in_size, out, size);
    free(counted.values);
    return error;
}

static int encode_natively(struct filter_pipeline *pipeline, const void *in, size_t size,
                           void **out, size_t *out_size)
{
    size_t scratch_size = filter_encode_scratch(pipeline, size);
    *out_size = filter_encode_bound(pipeline, size);
    void *made = malloc(*out_size), *scratch = scratch_size > 0 ? malloc(scratch_size) : NULL;
    int error = -ENOMEM;
    if (made && (scratch || scratch_size == 0))
        error = filter_encode(pipeline, in, size, scratch, made, out_size);
    free(scratch);
    if (error)
        free(made);
    else
        *out = made;
    return error;
}

int filters_encode(struct filter_pipeline *pipeline, const void *in, size_t size, void **out,
                   size_t *out_size)
{
    struct filter_pipeline told = *pipeline;
    struct counted counted;
    if (size == 0) {
        *out = NULL;
        *out_size = 0;
        pipeline->mask = 0;
        return 0;
    }
    if (filter_is_native(pipeline))
        return encode_natively(pipeline, in, size, out, out_size);
    int error = count_elements(&told, size, &counted);
    if (!error)
        error = hdf5_filter_encode(&told, in, size, out, out_size);
    pipeline->mask = told.mask;
    free(counted.values);
    return error;
}
