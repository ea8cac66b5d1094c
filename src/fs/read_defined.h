/* Reading N.defined. A selection means something only as a whole, and is read by several requests
 * while others may change the frame: an open file goes on with the selection that it has begun with
 * until it is closed, or written to itself. Selections that were encoded for that are kept up to a
 * limit, all files of a mount together; one that is not kept, or that is being written, is
 * -ESTALE to a reader in the middle of it when it changes. Thread-safe. */
#ifndef SPARSEFS_FS_READ_DEFINED_H
#define SPARSEFS_FS_READ_DEFINED_H

#include "fs/open.h"

/* The selection of a sparse dataset's frame was opened. -ENOMEM. */
int selection_begin(struct open_file *file);

/* Up to n bytes from offset on into buffer, *got in all. */
int selection_read(struct mount *mount, struct open_file *file, uint64_t offset, size_t n,
                   void *buffer, size_t *got);

/* Later reads begin with the current selection. */
void selection_forget(struct open_file *file);

/* The file is closed. */
void selection_end(struct open_file *file);

#endif
