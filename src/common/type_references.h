/* What a datatype has in it. */
#ifndef SPARSEFS_COMMON_TYPE_REFERENCES_H
#define SPARSEFS_COMMON_TYPE_REFERENCES_H

#include "sparsefs/sparsefs.h"

/* Whether it is a reference, or has one at any depth. */
bool type_has_references(const struct sfs_type *type);

#endif
