/* A fractal heap as links and attributes have them (HDF5 file format specification, section III.G):
 * objects in its blocks, without filters, all of it in memory. Others are not plain (plain_headers.h). */
#ifndef SPARSEFS_FORMAT_FRACTAL_HEAP_H
#define SPARSEFS_FORMAT_FRACTAL_HEAP_H

#include <stddef.h>
#include <stdint.h>

#include "format/plain_headers.h"

struct fractal_heap;

/* Reads the heap whose header is at address, with all its blocks, of no more than `most` bytes.
 * Errors as of plain_headers.h, and -EINTR. The caller closes it; NULL is fine. */
int fractal_heap_open(struct store *store, const struct superblock *superblock, uint64_t address,
                      uint64_t most, struct fractal_heap **heap, struct why *why);
void fractal_heap_close(struct fractal_heap *heap);

/* Tells of its header, its blocks, and of what keeps its free space. Errors as of plain_headers.h. */
int fractal_heap_each_block(const struct fractal_heap *heap, const struct plain_blocks *blocks,
                            struct why *why);

/* Bytes that name an object. */
size_t fractal_heap_id_bytes(const struct fractal_heap *heap);

/* The object with this name, where it lies in memory, and its address in the file. -EOPNOTSUPP: there is
 * none. */
int fractal_heap_find(const struct fractal_heap *heap, const unsigned char *id,
                      const unsigned char **object, size_t *n, uint64_t *address, struct why *why);

#endif
