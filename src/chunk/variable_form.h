/* The packed form of chunks whose elements have parts of variable length (format/variable_slots.h): its
 * values lead to sequences in form->heap, which is section 2 as it is stored before its filters
 * (format/section_heap.h) but for the checksum. What comes in are elements as they are in memory, with
 * struct sfs_sequence in their slots; the form gets copies of these. Only the packed form has a
 * heap; the dense and the open one are not made of such chunks. Knows nothing of files. */
#ifndef SPARSEFS_CHUNK_VARIABLE_FORM_H
#define SPARSEFS_CHUNK_VARIABLE_FORM_H

#include "chunk/memory_form.h"
#include "sparsefs/sparsefs.h"

/* Bytes that are stored for what n elements lead to; SIZE_MAX: more than memory has. */
size_t variable_form_added(const struct layout *layout, const void *elements, uint64_t n);

/* The most memory that variable_form_write takes, the form itself included: of a form of old_bytes to
 * which n elements are written that lead to `added` bytes. */
size_t variable_form_bytes(const struct layout *layout, size_t old_bytes, uint64_t n, size_t added);

/* As form_write; elements NULL: as form_erase. What no element leads to any more goes when it is
 * more than a share of the heap. -EILSEQ: an element of old leads out of its heap; -EINVAL: the
 * bytes of its sequences exceed memory; -ENOMEM. */
int variable_form_write(const struct layout *layout, const struct cache_form *old,
                        const struct runs *positions, const void *elements, struct pool *pool,
                        struct cache_form *form);

#endif
