/* Copying the elements of a dataset whose elements are of variable length, chunk by chunk of the
 * destination, with memory in proportion to what one of them has. */
#ifndef SPARSEFS_CLI_COPY_SEQUENCES_H
#define SPARSEFS_CLI_COPY_SEQUENCES_H

#include "cli/copy_elements.h"

/* struct filters.heap_unit of a datatype with parts of variable length; 0: it is another one. */
unsigned sequence_unit(const struct sfs_type *type);

/* What default_chunk takes for the bytes of an element, with what its parts of variable length lead
 * to. */
size_t sequence_guess(const struct sfs_type *type);

/* As copy_elements, of elements with parts of variable length and without references; of the copy
 * only from, to, undefined.none and `what` are looked at. What is undefined in a dense source is
 * what is empty: parts of variable length without a byte, and zeros in all else; unless `none` says
 * that nothing is. */
int copy_sequences(const struct copy *copy);

#endif
