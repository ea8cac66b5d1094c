/* The packed form of chunks whose elements are of variable length: its values lead to sequences in
 * form->heap, which is section 2 as it is stored before its filters (format/heap.h) but for the
 * checksum. What comes in are struct sfs_sequence, of which the form gets copies. Only the packed
 * form has a heap; the dense and the open one are not made of such chunks. Knows nothing of files.
 */
#ifndef SPARSEFS_LAYOUT_HEAP_FORM_H
#define SPARSEFS_LAYOUT_HEAP_FORM_H

#include "layout/form.h"
#include "sparsefs/sparsefs.h"

/* Bytes of n sequences; SIZE_MAX: more than memory has. */
size_t heap_form_added(const struct layout *layout, const struct sfs_sequence *sequences,
                       uint64_t n);

/* The most memory that heap_form_write takes, the form itself included: of a form of old_bytes to
 * which n elements are written whose sequences have `added` bytes. */
size_t heap_form_bytes(const struct layout *layout, size_t old_bytes, uint64_t n, size_t added);

/* As form_write; sequences NULL: as form_erase. What no element leads to any more goes when it is
 * more than a share of the heap. -EILSEQ: an element of old leads out of its heap; -EINVAL: the
 * bytes of a sequence exceed 63 bits; -ENOMEM. */
int heap_form_write(const struct layout *layout, const struct cache_form *old,
                    const struct runs *positions, const struct sfs_sequence *sequences,
                    struct pool *pool, struct cache_form *form);

#endif
