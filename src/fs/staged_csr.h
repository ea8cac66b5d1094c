/* What is written to csr/ of a sparse dataset waits here until its files fit each other (view_put_csr): a
 * dataset has one matrix, for all who have any of its files open, of which each file that was
 * written is a part, and shows what was written. When one is closed or synced that was written, and
 * no other is being written, the parts and the files that were not written are tried: they become
 * what the frames hold, or are refused, all of them, or wait for more to be written. What waits is
 * in memory, which it takes from the limit of temporary files, also when it is not open; it is
 * gone when the mount ends, with a line in the log. Thread-safe. */
#ifndef SPARSEFS_FS_STAGED_CSR_H
#define SPARSEFS_FS_STAGED_CSR_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "fs/node.h"

struct matrices;
struct matrix;
struct staged_part;
struct temporaries;

/* limit: bytes, of one file. All outlive the table. */
int matrices_create(struct nodes *nodes, struct temporaries *temporaries, size_t limit,
                    struct matrices **matrices);

/* Says in the log what is lost. Nobody uses any; their HDF5 files are open still. NULL is fine. */
void matrices_destroy(struct matrices *matrices);

/* Somebody opens such a file for writing, until matrix_end, before which he takes what it holds. */
int matrix_begin(struct matrices *matrices, const struct node *node, struct matrix **matrix);
void matrix_end(struct matrices *matrices, struct matrix *matrix);

/* Writes, or sets the size, of what waits of a file; a file of which nothing waits begins with what it
 * shows. -ENOSPC: no room, logged; -ENOMEM; errors of view_size and view_read. After an error what was
 * written to the file is gone. */
int matrix_write(struct matrices *matrices, struct matrix *matrix, enum view_kind view,
                 const void *bytes, size_t n, uint64_t offset);
int matrix_resize(struct matrices *matrices, struct matrix *matrix, enum view_kind view,
                  uint64_t size);

/* The file is closed or synced. -EINVAL: refused, logged; nothing waits then. is_tentative: more may
 * follow from the process that closes it, so that nothing is refused. 0 also if it waits for more to be
 * written. Errors of sfs_begin_writing and view_put_csr, but -ENOSPC in place of -EFBIG: what waited is
 * gone. *changed: the files show something else, and (*taken) so do all frames. */
int matrix_take(struct matrices *matrices, struct matrix *matrix, enum view_kind view,
                bool is_tentative, bool *changed, bool *taken);

/* The size of what waits, and up to n bytes of it, *got in all; false: nothing does. */
bool matrix_size(struct matrices *matrices, const struct node *node, enum view_kind view,
                 uint64_t *size);
bool matrix_read(struct matrices *matrices, const struct node *node, const struct staged_part *part,
                 void *buffer, size_t *got);

#endif
