/* Strings and dims inside JSON texts, and what of strings is UTF-8. */
#ifndef SPARSEFS_COMMON_JSON_H
#define SPARSEFS_COMMON_JSON_H

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

/* Writes n bytes as a JSON string with its quotes. What is not UTF-8 is taken as Latin-1, byte by
 * byte, so that the result is always valid JSON. Errors are left to ferror(out). */
void json_string(FILE *out, const char *bytes, size_t n);

/* Writes the dims of a dataset as an array; of one without limit null. */
void json_dims(FILE *out, int rank, const uint64_t *dims);

/* The length of the well-formed UTF-8 sequence that n > 0 bytes begin with, or 0 (RFC 3629, section
 * 4). */
size_t utf8_length(const char *bytes, size_t n);

#endif
