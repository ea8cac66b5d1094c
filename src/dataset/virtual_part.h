/* What a mapping of a virtual dataset shows of one source. */
#ifndef SPARSEFS_DATASET_VIRTUAL_PART_H
#define SPARSEFS_DATASET_VIRTUAL_PART_H

#include "dataset/virtual_axes.h"
#include "dataset/virtual_mapping.h"

#define VIRTUAL_DEPTH 16 /* of virtual datasets that are sources of each other, at most */

/* A part of a mapping that is of one source, opened. */
struct virtual_part {
    struct virtual *virtual;
    const struct mapping *mapping;
    struct source *source;
    struct known *numbered;      /* the same, of a numbered block; NULL: it is the mapping's */
    struct sfs_dataset *dataset; /* NULL: it is missing, and reads as the fill value */
    struct call file_call;       /* of part_try_begin */
    struct translation translation;
    bool is_in_order; /* the source is read as if it had the form of what is shown */
    struct hdf5_axis shown[SFS_MAX_RANK], all[SFS_MAX_RANK]; /* where they are not the mapping's */
};

/* Opens the source of a block. Ended by part_end, unless it fails. -EOPNOTSUPP: libhdf5 must read
 * the dataset. */
int part_begin(struct virtual_part *part, struct virtual *virtual, const struct mapping *mapping,
               uint64_t block);
void part_end(struct virtual_part *part);

/* The same for what libhdf5 is to read, of whatever datatype; and whether the source has what is
 * shown of a box: libhdf5 shows what lies behind it in the file. *source has that; its rank is 0 if
 * it is nothing. Errors as of virtual_read, also where what is missing is the fill value. */
int part_begin_check(struct virtual_part *part, struct virtual *virtual,
                     const struct mapping *mapping, uint64_t block, const struct box *box,
                     struct box *source);

/* The same without waiting, and nothing is closed: false if its source is not open, or another thread changes it, or
 * is no such part. Ended by part_try_end. */
bool part_try_begin(struct virtual_part *part, struct virtual *virtual,
                    const struct mapping *mapping, uint64_t block, struct call *call);
void part_try_end(struct virtual_part *part, struct call *call);

/* Reads what it has of a box. Errors as of virtual_read. */
int part_read(struct virtual_part *part, const struct box *box, const struct place *place,
              int depth);

#endif
