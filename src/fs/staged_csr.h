/* What is written to csr/ of a sparse dataset waits here until its files fit each other (view_put_csr): a
 * dataset has one matrix, for all who have any of its files open, of which each file that was
 * written is a part, and shows what was written. When one is closed or synced that was written, and
 * no other is being written, the parts and the files that were not written are tried: they become
 * what the frames hold, or are refused, all of them, or wait for more to be written. What waits is
 * in memory, which it takes of a limit (staging_limit.h), also when it is not open; it is
 * gone when the mount ends, or soon after its HDF5 file of a folder is (matrices_lose), with a line in the log.
 * Thread-safe. */
#ifndef SPARSEFS_FS_STAGED_CSR_H
#define SPARSEFS_FS_STAGED_CSR_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "fs/node.h"

struct matrices;
struct matrix;
struct open_file;
struct staged_part;
struct staging_limit;

/* All outlive the table. */
int matrices_create(struct nodes *nodes, struct staging_limit *limit, struct matrices **matrices);

/* Nobody uses any more: all are gone, and the log says what is lost. Their HDF5 files are open still. NULL is fine. */
void matrices_end(struct matrices *matrices);
void matrices_destroy(struct matrices *matrices);

/* Whether anything may wait. NULL is fine. */
bool matrices_may_wait(const struct matrices *matrices);

/* What waits where it is lost (node_is_lost) is gone, which the log says, unless somebody has a file of it open for
 * writing: then the first time after that. Called by one thread at a time. */
void matrices_lose(struct matrices *matrices);

/* Somebody opens such a file for writing, until matrix_end, before which he takes what it holds. The HDF5 file is in
 * use for as long, by a handle of that user's or a request of his that may make some (folder_open_files.h). What waits
 * then, and nobody has open, is a handle of who has written last. */
int matrix_begin(struct matrices *matrices, const struct node *node, struct matrix **matrix);
void matrix_end(struct matrices *matrices, struct matrix *matrix, uid_t user);

/* A file of it, and who writes or closes it. */
struct matrix_part {
    enum view_kind view;
    const struct open_file *by;
    uid_t user;
};

/* Writes, or sets the size, of what waits of a file; a file of which nothing waits begins with what it
 * shows. -EINTR: nothing has changed; -ENOSPC: no room, logged; -ENOMEM; errors of view_size and view_read. After
 * other errors than -EINTR what was written to the file is gone. */
int matrix_write(struct matrices *matrices, struct matrix *matrix, const struct matrix_part *part,
                 const struct view_bytes *bytes);
int matrix_resize(struct matrices *matrices, struct matrix *matrix, const struct matrix_part *part,
                  uint64_t size);

/* How a file is closed. */
enum matrix_close {
    MATRIX_PAUSED, /* nothing was written since the last time: more may follow through another descriptor, as
                    * a shell that has truncated it passes one on, so that nothing is refused */
    MATRIX_CLOSED, /* or synced */
    MATRIX_ENDED /* by the last of its descriptors; the kernel may say so when others write again */
};

/* Around matrix_take and making known to the kernel what it has changed: another who closes the same file
 * meanwhile would find nothing to do, and answer while the kernel still has what was there before. Then nobody writes
 * or looks until matrix_take. -EINTR, but for MATRIX_ENDED: others are still at it, and nothing is taken. */
int matrix_begin_taking(struct matrix *matrix, enum matrix_close how);
void matrix_end_taking(struct matrix *matrix);

/* What shows something else. */
enum matrix_change {
    MATRIX_SAME,
    MATRIX_FILES,
    MATRIX_FRAMES, /* and the files */
    MATRIX_UNDONE  /* both did so for a while */
};

/* Between those. -EINTR of MATRIX_CLOSED: all is as before; -EINVAL: refused, logged; nothing waits then. 0 also if it
 * waits for more to be written. Errors of sfs_begin_writing and view_put_csr, but -ENOSPC in place of -EFBIG: what
 * waited is gone. */
int matrix_take(struct matrices *matrices, struct matrix *matrix, const struct matrix_part *of,
                enum matrix_close how, enum matrix_change *change);

/* Whether something of a file waits; then its size, and up to n bytes of it, *got in all. -EINTR. */
int matrix_size(struct matrices *matrices, const struct node *node, enum view_kind view,
                bool *waits, uint64_t *size);
int matrix_read(struct matrices *matrices, const struct node *node, const struct staged_part *part,
                void *buffer, bool *waits, size_t *got);

#endif
