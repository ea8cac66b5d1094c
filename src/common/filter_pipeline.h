/* The filter pipeline of a dataset, of a section of its chunks, or of one chunk. */
#ifndef SPARSEFS_COMMON_FILTER_PIPELINE_H
#define SPARSEFS_COMMON_FILTER_PIPELINE_H

#include <stddef.h>
#include <stdint.h>

#include "sparsefs/sparsefs.h"

#define PIPELINE_MOST_FILTERS 32 /* the bits of a filter mask */

/* The filters and their parameters belong to the dataset, or to whoever else made them. Of what is no
 * single chunk the mask is 0. */
struct filter_pipeline {
    size_t n;                         /* 0: bytes are stored as they are */
    const struct sfs_filter *filters; /* in the order of writing */
    uint32_t mask;                    /* the filter mask of a chunk: bit i: filter i was left out */
};

/* Of a dataset; those of a sparse one are of its values section. */
static inline struct filter_pipeline pipeline_of(const struct sfs_dataset_info *info)
{
    return (struct filter_pipeline){info->n_filters, info->filters, 0};
}

/* The mask of a chunk to which none of them was applied. */
static inline uint32_t pipeline_left_out(const struct filter_pipeline *pipeline)
{
    return pipeline->n > 0 ? UINT32_MAX >> (PIPELINE_MOST_FILTERS - pipeline->n) : 0;
}

#endif
