/* Looking through elements for those that are to be defined, at memory speed. */
#ifndef SPARSEFS_CLI_FIND_DEFINED_H
#define SPARSEFS_CLI_FIND_DEFINED_H

#include "cli/cli.h"

/* Which elements are undefined. */
struct undefined {
    const struct sfs_type *type;
    bool none;         /* no element is */
    bool nan;          /* any NaN; the type is SFS_FLOAT */
    const void *value; /* otherwise those with the same bytes */
};

/* Whether an element is a NaN. */
bool is_nan(const struct sfs_type *type, const void *element);

/* What is defined of a slab, while it is being found in ascending order. */
struct findings {
    struct sfs_defined defined;
    size_t room;  /* in intervals */
    uint64_t end; /* of the last interval */
};

void findings_clear(struct findings *findings);
void findings_free(struct findings *findings);

/* Adds n positions from first on, which is not before the end. -ENOMEM. */
int findings_add(struct findings *findings, uint64_t first, uint64_t n);

/* Adds those of n positions from first on whose elements, which begin at `elements`, are defined.
 */
int findings_scan(struct findings *findings, const struct undefined *undefined, uint64_t first,
                  uint64_t n, const void *elements);

/* Sets what stands behind the last interval. -ENOMEM. */
int findings_finish(struct findings *findings);

/* Copies the elements that were found, packed. There is room for as many as lie before the end of
 * the last one. */
void findings_pack(const struct findings *findings, size_t element_size, const void *elements,
                   void *packed);

#endif
