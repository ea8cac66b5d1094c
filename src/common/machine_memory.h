/* The memory of this machine, by which limits are chosen that nobody has given. */
#ifndef SPARSEFS_COMMON_MACHINE_MEMORY_H
#define SPARSEFS_COMMON_MACHINE_MEMORY_H

#include <stdint.h>

/* Bytes; 0: they are not known. */
uint64_t machine_memory(void);

#endif
