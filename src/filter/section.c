/* One section through any pipeline: by our own filters where they all are ours, else by libhdf5's.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

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

/* ---- Filters that count elements ---- */

#define COUNT_AT         2 /* among the parameters of both: of the elements, */
#define NBIT_SIZE_AT     4 /* and of the bytes of one */
#define SCALE_SIZE_AT    4
#define MOST_FILTERS     32
#define LEAST_PARAMETERS 5

bool filter_counts_elements(const struct sfs_filter *filter, size_t *place)
{
    *place = COUNT_AT;
    return (filter->id == FILTER_NBIT || filter->id == FILTER_SCALE) &&
           filter->n_values >= LEAST_PARAMETERS;
}

/* A pipeline whose first filter is told how many elements there are. */
struct counted {
    struct sfs_filter filters[MOST_FILTERS];
    unsigned *values; /* its parameters; NULL: it does not ask for that */
};

/* Of `size` bytes. What is no number of whole elements is left as it is, and refused by the filter.
 * -ENOMEM. */
static int count_elements(const struct sfs_filter **filters, size_t n_filters, size_t size,
                          struct counted *counted)
{
    const struct sfs_filter *first = *filters;
    size_t place;
    counted->values = NULL;
    if (n_filters < 1 || n_filters > MOST_FILTERS || !filter_counts_elements(first, &place) ||
        first->values[place] != 0)
        return 0;
    size_t element = first->values[first->id == FILTER_NBIT ? NBIT_SIZE_AT : SCALE_SIZE_AT];
    if (element == 0 || size % element != 0 || size / element > UINT32_MAX)
        return 0;
    counted->values = malloc(first->n_values * sizeof(*counted->values));
    if (!counted->values)
        return -ENOMEM;
    memcpy(counted->filters, *filters, n_filters * sizeof(**filters));
    memcpy(counted->values, first->values, first->n_values * sizeof(*counted->values));
    counted->values[place] = (unsigned)(size / element);
    counted->filters[0].values = counted->values;
    *filters = counted->filters;
    return 0;
}

int filters_decode(const struct sfs_filter *filters, size_t n_filters, uint32_t mask,
                   const void *in, size_t in_size, void *scratch, void *out, size_t size)
{
    struct counted counted;
    if (in_size == 0 || size == 0)
        return in_size == size ? 0 : -EILSEQ;
    if (filter_is_native(filters, n_filters))
        return filter_decode(filters, n_filters, mask, in, in_size, scratch, out, size);
    int error = count_elements(&filters, n_filters, size, &counted);
    if (!error)
        error = hdf5_filter_decode(filters, n_filters, mask, in, in_size, out, size);
    free(counted.values);
    return error;
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
    struct counted counted;
    if (size == 0) {
        *out = NULL;
        *out_size = 0;
        *mask = 0;
        return 0;
    }
    if (filter_is_native(filters, n_filters))
        return encode_natively(filters, n_filters, in, size, out, out_size, mask);
    int error = count_elements(&filters, n_filters, size, &counted);
    if (!error)
        error = hdf5_filter_encode(filters, n_filters, in, size, out, out_size, mask);
    free(counted.values);
    return error;
}
