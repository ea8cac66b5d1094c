/* Which elements stay defined for what their values are: above a threshold, above what surrounds
 * them, and not masked. */
#ifndef SPARSEFS_CLI_ABOVE_AND_MASK_H
#define SPARSEFS_CLI_ABOVE_AND_MASK_H

#include "cli/find_defined.h"
#include "cli/pixel_mask.h"

/* What the command line asks for. */
struct criteria_asked {
    const char *above; /* the text of a number, or NULL */
    double sigma;      /* 0: not asked for */
    const char *mask;  /* see pixel_mask.h; NULL: the file's own */
};

/* Take the value of an option. USAGE. */
int criteria_ask_above(struct criteria_asked *asked, const char *text);
int criteria_ask_sigma(struct criteria_asked *asked, const char *text);
int criteria_ask_mask(struct criteria_asked *asked, const char *text);

/* The same of a dataset. */
struct criteria {
    bool is_used;
    const struct sfs_dataset_info *info;
    bool has_above;
    double above;
    int64_t above_signed; /* the same of integers of 8 bytes: above means above this one, */
    uint64_t above_unsigned;
    bool all_above; /* unless all of them are */
    double sigma;
    struct pixel_mask mask;
};

/* path: of the dataset. criteria->is_used is whether there are any. They are freed, also after an
 * error. FAILED. */
int criteria_fit(const struct criteria_asked *asked, struct sfs_file *file, const char *path,
                 const struct sfs_dataset_info *info, struct criteria *criteria);
void criteria_free(struct criteria *criteria);

/* What a thread works with. */
struct room {
    void *at;
    size_t bytes;
};

struct kept {
    struct room keep;                /* a byte for each element of a block: whether it is kept */
    struct room values;              /* of a row */
    struct room around, good, found; /* of an image and what surrounds it */
};

void kept_free(struct kept *kept);

/* Sets kept->keep for a block with these elements. What surrounds it is read. Errors of sfs_read.
 */
int criteria_apply(const struct criteria *criteria, struct sfs_dataset *dataset,
                   const struct sfs_slab *slab, const void *elements, struct kept *kept);

/* As findings_scan, of those of a block that are kept; elements: of the whole block. */
int criteria_scan(const struct kept *kept, struct findings *findings,
                  const struct undefined *undefined, uint64_t first, uint64_t n,
                  const char *elements);

#endif
