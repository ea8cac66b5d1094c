/* What the bytes of a view are made of: a head, a body and a tail. */
#ifndef SPARSEFS_VIEW_VIEW_BYTES_H
#define SPARSEFS_VIEW_VIEW_BYTES_H

#include "view/private.h"
#include "view/variable_length_files.h"

enum body {
    BODY_NONE,
    BODY_FRAME,
    BODY_STACK,
    BODY_VALUES,
    BODY_INDPTR,
    BODY_INDICES,
    BODY_DATA,
    BODY_OFFSETS,
    BODY_PARTS,
    BODY_ZEROS
};

/* What a view is made of: its head, the kind and size of its body, and what is behind that. */
struct source {
    struct views *views;
    uint64_t frame;
    uint64_t changes; /* the sfs_dataset_changes before anything of it was read */
    struct view_head head;
    enum body body;
    uint64_t body_bytes;
    uint64_t tail_bytes;
    const char *tail;              /* NULL: that of VIEW_STACK_TIFF, which is computed */
    struct defined_frame *defined; /* held for the head or the body */
    const struct counts *counts;   /* the same */
    struct kept_text *text;        /* the same */
    struct parts_index *parts;     /* the same */
};

/* What a view is made of, while the geometry is looked at; is_read: more than its size is wanted,
 * which for some costs reading the frame. To be ended by source_end, unless it fails: then nothing is
 * held. Errors as of sfs_read; -EBUSY as of counts_get. */
int source_begin(struct views *views, enum view_kind kind, uint64_t frame, bool is_read,
                 struct source *source);
void source_end(struct source *source);

#endif
