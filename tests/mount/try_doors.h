/* What libhdf5's process could do if code of somebody else ran in it. */
#ifndef TRY_DOORS_H
#define TRY_DOORS_H

#include <stddef.h>

/* Tries all that must not succeed: found[0]: how many were tried, at most n - 1; found[1..]: whether each did. */
void try_doors(unsigned char *found, size_t n);

#endif
