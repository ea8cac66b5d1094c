/* Which of many elements are defined, as bits: in plain C, and with vectors that processors may
 * lack, of which the fastest there are is chosen when the program runs. */
#ifndef SPARSEFS_CLI_DEFINED_BITS_H
#define SPARSEFS_CLI_DEFINED_BITS_H

#include <stddef.h>
#include <stdint.h>

#define COMPARED 64 /* elements, a bit of a word each */

/* Sets words[i], i < n: bit k of it is whether element k of the i-th COMPARED elements is defined.
 * Elements may lie anywhere. */
typedef void (*compare_function)(const void *elements, uint64_t value, size_t n, uint64_t *words);

/* NULL: there is none for such elements, or on this processor. */
struct compare {
    const char *name;
    compare_function differ[4]; /* elements of 1, 2, 4, 8 bytes; defined: other than the value */
    compare_function number[4]; /* defined: no NaN. The value is whether bytes are swapped */
};

/* The i-th of them, from 0, plain C, to the fastest; NULL: there are no more. */
const struct compare *compare_way(size_t i);

/* The fastest for elements of so many bytes, or NULL. Any thread. */
compare_function compare_differ(size_t size);
compare_function compare_number(size_t size);

#endif
