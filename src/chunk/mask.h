/* Masks: sets of element positions as bitmaps, for open chunks: marking takes time in proportion to
 * the piece. All counts are in elements. Not locked: a caller that changes a mask excludes all
 * others. */
#ifndef SPARSEFS_CHUNK_MASK_H
#define SPARSEFS_CHUNK_MASK_H

#include <stddef.h>
#include <stdint.h>

#include "selection/runs.h"

/* Bytes of a mask of n positions: a whole number of words. */
size_t mask_bytes(uint64_t n);

/* Adds, or takes away, positions [first, first + n); returns how many were not, or were, there. */
uint64_t mask_add(uint64_t *mask, uint64_t first, uint64_t n);
uint64_t mask_remove(uint64_t *mask, uint64_t first, uint64_t n);

/* The runs of a mask of n positions: their number, and themselves in *runs, which is empty before
 * and, on error, after. -ENOMEM. */
size_t mask_run_count(const uint64_t *mask, uint64_t n);
int mask_runs(const uint64_t *mask, uint64_t n, struct runs *runs);

#endif
