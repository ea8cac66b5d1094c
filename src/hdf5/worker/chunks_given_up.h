/* Chunks that have ended processes of plugins, told apart by a number that stands for their bytes and filters. Any
 * thread. */
#ifndef SPARSEFS_HDF5_WORKER_CHUNKS_GIVEN_UP_H
#define SPARSEFS_HDF5_WORKER_CHUNKS_GIVEN_UP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "hdf5/hdf5.h"

/* Never 0. */
uint64_t plugin_chunk_number(const struct filter_pipeline *pipeline, const void *bytes, size_t n);

/* It has ended a process, or taken too long. */
void plugin_chunk_ended_one(uint64_t number, bool took_too_long);

/* Whether there is any such chunk: if not, no numbers need be worked out. */
bool plugin_chunks_ended_any(void);

/* Whether it is not to be given to a process any more. */
bool plugin_chunk_is_given_up(uint64_t number);

#endif
