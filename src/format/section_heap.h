/* Variable-length data of a structured chunk: its last section, in which elements of the section of
 * values lead to their sequences. Two ways to do so are known:
 *
 *   the prototype's  a set of global heap collections; an element has the number of base elements
 *                    (4 bytes), which collection (2) and which object of it (2), and zeros
 *   the RFC's        the number of unused bytes (4), and then the sequences; an element has the
 *                    offset from the beginning of the section, and the length, in bytes (8 each)
 *
 * (HDF Group, "File Format Changes for Enabling Sparse Storage", 2.1.2, and "Shared Chunk Cache",
 * "Encoded Format of Variable Length Data"; the prototype's set begins with the signature HGLS.)
 * Knows nothing of where the bytes come from; what it says of them holds whatever they are. */
#ifndef SPARSEFS_FORMAT_SECTION_HEAP_H
#define SPARSEFS_FORMAT_SECTION_HEAP_H

#include <stddef.h>
#include <stdint.h>

#include "common/why.h"

#define HEAP_ELEMENT_BYTES 16 /* that lead to a sequence */
#define HEAP_COUNT_BYTES   4  /* before the sequences, in the RFC's form */

struct heap;

/* The most memory that these n bytes of a section and what heap_open makes of them take, but for a
 * few bytes: of the prototype's form several times as much, of the RFC's no more. SIZE_MAX: more than
 * memory has. */
size_t heap_most_bytes(const void *bytes, size_t n);

/* Over n bytes of a section without its checksum, which must outlive it: 0: no sequence has any
 * elements. -EILSEQ: why says what is wrong; -ENOMEM. */
int heap_open(const void *bytes, size_t n, struct heap **heap, struct why *why);
void heap_close(struct heap *heap); /* NULL is fine */

/* The sequence that an element leads to: n base elements of this size, where they lie. NULL: it has
 * none. Base size 0: it is one of sequences, of n bytes. -EILSEQ: it leads out of the heap, or to
 * what has another size; or the prototype's form has a sequence of sequences. */
int heap_find(const struct heap *heap, const void *element, size_t base_size, const void **sequence,
              uint64_t *n, struct why *why);

/* ---- The RFC's form, as it is written ---- */

/* An element, of HEAP_ELEMENT_BYTES: that of an empty sequence is 0 and 0. */
void heap_put_element(void *element, uint64_t offset, uint64_t bytes);
void heap_get_element(const void *element, uint64_t *offset, uint64_t *bytes);

/* How many bytes of a heap no element leads to. */
void heap_put_unused(void *heap, uint32_t unused);

#endif
