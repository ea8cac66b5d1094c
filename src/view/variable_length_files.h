/* Elements of variable length as files: ragged arrays as offsets.npy and values.npy, all else that
 * only text can show as lines.txt. Where a part of the elements begins is found by reading all of
 * them once, in pieces, and kept; what is read then is read in these pieces. For the files of
 * src/view; to be called while the geometry is looked at. */
#ifndef SPARSEFS_VIEW_VARIABLE_LENGTH_FILES_H
#define SPARSEFS_VIEW_VARIABLE_LENGTH_FILES_H

#include "view/private.h"

/* Whether there are such views: sequences of elements without pointers; and lines. */
bool parts_are_ragged(const struct views *views);
bool parts_are_lines(const struct views *views);

/* The header of offsets.npy. */
int parts_offsets_head(const struct views *views, struct view_head *head);

/* Where pieces begin, made on first use; given back by parts_put, which accepts NULL. Errors as of
 * sfs_read_parts; -EINTR; -EFBIG: more than a file can have, or an index of more than 64 MiB. */
int parts_get(struct views *views, struct parts_index **index);
void parts_put(struct views *views, struct parts_index *index);
struct view_head parts_head(const struct parts_index *index); /* of values.npy */
uint64_t parts_bytes(const struct parts_index *index);        /* behind it */

/* n bytes from an offset on of values or lines, and n offsets from the first-th on. Errors as of
 * sfs_read_parts; -EINTR; -EAGAIN: the elements are others than when the index was made, which will be
 * made anew. */
int parts_read(struct views *views, const struct parts_index *index, uint64_t offset, size_t n,
               char *out);
int parts_offsets(struct views *views, const struct parts_index *index, uint64_t first, uint64_t n,
                  char *out);

/* Forgets what is kept; bytes of it. */
void parts_drop(struct views *views);
size_t parts_kept_bytes(struct views *views);

#endif
