/* What elements of up to 8 bytes are as numbers. It knows their datatype and nothing of views, as
 * sparsectl uses it, too. */
#ifndef SPARSEFS_VIEW_ELEMENT_NUMBER_H
#define SPARSEFS_VIEW_ELEMENT_NUMBER_H

#include "sparsefs/sparsefs.h"

/* An element's bits, the integer that they are, and its value. */
uint64_t number_bits(const struct sfs_type *type, const unsigned char *element);
int64_t number_signed(const struct sfs_type *type, uint64_t bits);
double number_value(const struct sfs_type *type, const unsigned char *element);

/* 2^n - 1 of an unsigned integer of n bits: how detectors mark what is no measurement. */
bool number_is_marked(const struct sfs_type *type, uint64_t bits);

#endif
