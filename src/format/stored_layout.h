/* Where the parts of an element lie as it is stored, and in what sfs_read_elements reads: by our own decoder of
 * datatypes, whatever libhdf5's processes say. Knows nothing of files; any thread. */
#ifndef SPARSEFS_FORMAT_STORED_LAYOUT_H
#define SPARSEFS_FORMAT_STORED_LAYOUT_H

#include <stdbool.h>
#include <stddef.h>

#include "common/why.h"
#include "format/variable_slots.h"
#include "sparsefs/sparsefs.h"

/* As datatype_layout, with the sizes and places of slots_as_stored, and members ascending. -EOPNOTSUPP also: as
 * that says. datatype_layout_free frees it. */
int stored_layout(const void *message, size_t n, struct sfs_type *layout, struct why *why);
int stored_layout_encoded(const struct sfs_encoded *type, struct sfs_type *layout, struct why *why);

bool stored_layouts_equal(const struct sfs_type *a, const struct sfs_type *b);

/* Whether elements of a description of libhdf5, which has their sizes in memory or as stored, have that layout when
 * they are stored. -EILSEQ: they have another one; -ENOMEM. */
int stored_layout_check(const struct sfs_type *layout, const struct sfs_type *type);

/* The same of another encoded datatype. */
int stored_layout_check_encoded(const struct sfs_type *layout, const struct sfs_encoded *type);

/* The slots of elements of a datatype, as slots_of_type. */
int slots_of_encoded(const struct sfs_encoded *type, struct slots **slots, struct why *why);

#endif
