/* Which filters of a dataset there are, and which are missing: neither built in nor libhdf5's, by itself or by a
 * plugin. */
#include <stdio.h>

#include "dataset/private.h"
#include "filter/filter.h"
#include "hdf5/hdf5.h"

void dataset_look_for_filters(size_t n, struct sfs_filter *filters)
{
    bool native = filter_is_native(&(struct filter_pipeline){n, filters, 0});
    for (size_t i = 0; i < n; i++) {
        struct sfs_filter *filter = &filters[i];
        filter->is_missing = !native && !hdf5_filter_available(filter->id);
        if (!*filter->name)
            snprintf(filter->name, sizeof(filter->name), "%s", filter_name(filter->id));
    }
}

static const struct sfs_filter *first_missing(size_t n, const struct sfs_filter *filters)
{
    for (size_t i = 0; i < n; i++)
        if (filters[i].is_missing)
            return &filters[i];
    return NULL;
}

const struct sfs_filter *sfs_missing_filter(const struct sfs_dataset_info *info)
{
    const struct sfs_filter *missing =
        first_missing(info->n_selection_filters, info->selection_filters);
    if (!missing)
        missing = first_missing(info->n_heap_filters, info->heap_filters);
    return missing ? missing : first_missing(info->n_filters, info->filters);
}
