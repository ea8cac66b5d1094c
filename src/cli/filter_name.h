/* The filters that --filter knows by name besides deflate, shuffle and fletcher32. */
#ifndef SPARSEFS_CLI_FILTER_NAME_H
#define SPARSEFS_CLI_FILTER_NAME_H

#include "cli/cli.h"

#define FILTER_NAME_VALUES 7 /* the most parameters that are made of a name */

/* Whether the n characters of name are one of these. If so, *why is what is wrong with
 * `parameters`, what stands behind '=' (NULL: nothing), or NULL: then the filter is set, its
 * parameters, as H5Pset_filter takes them, to those put into numbers. */
bool filter_by_name(const char *name, size_t n, const char *parameters, struct sfs_filter *filter,
                    unsigned *numbers, const char **why);

/* Makes parameters as H5Pset_filter takes them what stands in the header of a dataset, for bytes of
 * which `together` belong together: a block of the section of selections, whose length is any, or
 * an element. Of the values section libhdf5 does it when a dataset is made, up to what it adds of
 * chunks. Filters without a name stay as they are. */
void filter_complete(struct sfs_filter *filter, unsigned *numbers, unsigned together,
                     bool are_elements);

#endif
