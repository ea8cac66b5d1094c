/* Names of the files of frames, as 7.raw or 000007.npy. Knows nothing of which frames there are. */
#ifndef SPARSEFS_FS_FRAME_NAMES_H
#define SPARSEFS_FS_FRAME_NAMES_H

#include <stdbool.h>
#include <stdint.h>

#include "fs/inode.h"

#define FRAME_NAME_BYTES 48

/* A directory with names for every frame. */
struct frame_names {
    bool padded;      /* numbers have the width of the last one, at least 6 */
    unsigned n_views; /* names for each frame */
    enum view_kind view[2];
    const char *suffix[2];
    bool are_chunks; /* names are not numbers, but as view_chunk_name has them */
};

/* NULL if the directory is not such a one. */
const struct frame_names *frame_names_in(unsigned directory);

/* The digits to which numbers are padded, for frames numbered from first on. */
int frame_name_width(const struct frame_names *series, uint64_t frames, uint64_t first);

/* Writes the name of one view of frame `number` (first is added already). */
void frame_name_format(const struct frame_names *series, unsigned which, uint64_t number, int width,
                       char name[FRAME_NAME_BYTES]);

/* The frame and view that a name stands for, where frames are numbered from first on; any padding is
 * accepted. False: none. */
bool frame_name_parse(const struct frame_names *series, const char *name, uint64_t first,
                      uint64_t *frame, enum view_kind *view);

#endif
