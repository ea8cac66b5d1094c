/* The staging area: writes that take effect later, as a whole. A write that is refused must have
 * changed nothing, and neither must what preceded it.
 *
 * New contents of N.defined. A selection means something only as a whole, so writes to such a file
 * are collected, one content per frame for all descriptors, and applied to the dataset when a
 * descriptor that has written is synced or closed. Until then reading the file shows them.
 *
 * New contents of point lists (npz/N.npz), which are applied as a whole, too, and of NumPy and
 * TIFF views with another header than the one that is shown: what other programs write is
 * collected from the first bytes on that differ from those shown, in memory that is
 * taken of a limit (staging_limit.h), as that of selections is, and decoded as a whole (view_put).
 *
 * Truncations to nothing, and frames behind the last one, of files that are open for writing.
 * Copying programs truncate or create a file first, and only then may a write turn out to be
 * refused. So until the first bytes are written behind the header, or the file is synced or
 * closed, the truncation is shown by the file itself, and the new frame by no other view. If a
 * write is refused before that, they are discarded.
 *
 * A shell that runs `command > 7.defined` closes the file once between truncating and writing it.
 * So a truncation without a write waits for an fsync or the last close. The kernel announces the
 * last close when every close is answered, and before close(2) returns: a reader of another view
 * of the frame waits for that. If another descriptor is open, which the kernel does not tell, the
 * reader gives up after a while, and sees the old content. Opening the same file for writing, or
 * truncating it by name, waits, too: otherwise the truncation would become a part of the new
 * writes, and a selection that is written would keep values that the truncation has erased. So does a sync of
 * anything in the HDF5 file, as it makes durable all that was closed before.
 *
 * A close is answered when the kernel has no outdated content of other views any more (kernel_invalidate.h).
 * A reader that looks at one before that may hold a page or a look-up that the invalidation waits
 * for. It is delayed for a moment only, sees the old content, and the kernel is notified again.
 * Thread-safe. */
#ifndef SPARSEFS_FS_STAGED_WRITES_H
#define SPARSEFS_FS_STAGED_WRITES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "fs/daemon/commit_and_unlock.h"
#include "fs/node.h"

struct staging;
struct staging_limit;
struct staged_writer; /* a file by which a view is open for writing */

int staging_create(struct nodes *nodes, struct staging **staging);

/* Files of other programs are collected from now on: they take of the limit, which outlives the table; a commit has
 * all of one or nothing; sparsify as view_put has it. */
void staging_collect(struct staging *staging, struct staging_limit *limit, bool sparsify);

/* Nothing is open for writing any more. */
void staging_destroy(struct staging *staging);

/* A view is opened for writing; ended by staging_end. What was refused, as a close by another writer tried to apply
 * it, is forgotten, which is logged: whoever has written to it is told (staging_has_lost). A frame behind the last one
 * is to be created by that. It may wait for a close. Errors of node_get_views; -ENOMEM; -EINTR. */
int staging_begin(struct staging *staging, const struct node *node, enum view_kind view,
                  uint64_t frame, struct staged_writer **writer);

/* Somebody closes. asked: a truncation or a new frame that waits still was asked for by him, and is
 * applied; by the last one everything is. *changed: the frame has changed (also of the others
 * below). */
int staging_end(struct staging *staging, struct staged_writer *writer, bool asked, bool *changed);

/* Applies what waits, which is forgotten in any case but -EINTR: it was interrupted. -EINVAL: it is no
 * selection, or no file, of this
 * frame, and nothing has changed; errors of view_put, view_set_defined, view_truncate and
 * views_extend. */
int staging_apply(struct staging *staging, struct staged_writer *writer, bool *changed);

/* A descriptor was closed, perhaps not the last one of its file. wrote: through this file something
 * was written, which is applied as above. again: not the first one of its file. *changed is also
 * set if (closing) a truncation to nothing or a new frame may be applied soon: what is known of
 * other views must not outlast this, so that they are asked for again. */
int staging_close(struct staging *staging, struct staged_writer *writer, bool wrote, bool again,
                  bool *changed, bool *closing);

/* Other views begin to be told of, again. */
void staging_forget_looks(struct staging *staging, const struct node *node, enum view_kind view,
                          uint64_t frame);

/* They have been: the close can be answered, to be called for each one that is *closing. False: it
 * cannot, as another request has looked at them since, unless that must not matter (in_any_case). */
bool staging_closed(struct staging *staging, const struct node *node, enum view_kind view,
                    uint64_t frame, bool in_any_case);

/* Whether something that was written by this one was forgotten since, as others had it refused, or interrupted
 * applying it: that is the error of its closes, and of the next sync; until that, or (but of a selection) a truncation
 * to nothing by it, writing is -EIO. */
bool staging_has_lost(const struct staged_writer *writer);

/* Whether anything waits. */
bool staging_waits(const struct staged_writer *writer);

/* Something was refused: what waits is forgotten. *changed: the file shows something else now. */
void staging_refuse(struct staging *staging, struct staged_writer *writer, bool *changed);

/* ---- Dense views ---- */

/* As view_write, or as view_replace if the view is truncated, or into what is collected: -ENOSPC,
 * which is logged, in place of -EFBIG. -EINTR: nothing was written. */
int staging_write_dense(struct staging *staging, struct staged_writer *writer,
                        const struct view_bytes *bytes, size_t *written);

/* Whether what is written to it is collected. */
bool staging_is_collected(const struct staged_writer *writer);

/* Cuts what is collected of a view, or adds zeros; false: nothing is. *error as of writing, after which it is as it
 * was. */
bool staging_resize(struct staging *staging, struct staged_writer *writer, uint64_t size,
                    int *error);

/* Truncates it to nothing; *writer is of the file by which that was asked for. -EINTR. */
int staging_truncate_dense(struct staging *staging, struct staged_writer *writer);

/* Whether a view is truncated, and whether its frame is to come to be. */
bool staging_is_empty(struct staging *staging, const struct node *node, enum view_kind view,
                      uint64_t frame);
bool staging_is_new(struct staging *staging, const struct node *node, enum view_kind view,
                    uint64_t frame);

/* ---- Selections ---- */

/* -EFBIG: more than any encoded selection of this frame; -ENOSPC, which is logged: more than is left of the limit of
 * staging_collect; -EINTR: nothing was written. */
int staging_write(struct staging *staging, struct staged_writer *writer, const void *bytes,
                  size_t n, uint64_t offset);

/* ftruncate(2), or (by_name) truncate(2). Applied at once if the file is not open for writing,
 * and by name if that leaves nothing of what others have staged, or nothing is staged. */
int staging_truncate(struct staging *staging, const struct node *node, uint64_t frame,
                     uint64_t size, bool by_name, bool *changed);

/* Whether a selection is staged for the frame, or what is written to another view collected, and
 * its size in bytes. */
bool staging_size(struct staging *staging, const struct node *node, enum view_kind view,
                  uint64_t frame, uint64_t *size);

/* Up to n bytes of it into buffer, *got in all; false if nothing is staged. Contents are the same
 * as long as the version, which is odd, is. */
struct staged_part {
    enum view_kind view;
    uint64_t frame;
    uint64_t offset;
    size_t n;
};
bool staging_read(struct staging *staging, const struct node *node, struct staged_part part,
                  void *buffer, size_t *got, uint64_t *version);

/* Before a request looks at a view, or (VIEW_KINDS) at which frames there are: whether no other view
 * that shows the same, nor (itself: the request is about to change it) this one, may have been
 * closed with contents that are still to be applied; and to wait for that. -EINTR: it is waited no longer. */
bool staging_is_applied(struct staging *staging, const struct node *node, enum view_kind view,
                        uint64_t frame, bool itself);
int staging_apply_closed(struct staging *staging, const struct node *node, enum view_kind view,
                         uint64_t frame, bool itself);

/* Before a commit that is to contain all that was closed in a file, or (NULL) in all: waits until what close(2) has
 * returned for is applied, if that was closed for good. The error for which some of it is lost meanwhile; -EINTR.
 * Whether there can be any. */
int staging_apply_before_commit(struct staging *staging, const struct commits *commits);
bool staging_any_waits(const struct staging *staging);

#endif
