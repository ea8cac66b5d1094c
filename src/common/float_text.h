/* Floating-point numbers as text. */
#ifndef SPARSEFS_COMMON_FLOAT_TEXT_H
#define SPARSEFS_COMMON_FLOAT_TEXT_H

#include <stdbool.h>
#include <stdio.h>

/* Writes a number with the fewest digits that tell it from all others of its type, a float if is_single, else a
 * double; "nan" of any NaN. Errors stay in the stream. Any thread. */
void float_write(FILE *out, double value, bool is_single);

#endif
