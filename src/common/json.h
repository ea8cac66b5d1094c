/* Strings inside JSON texts. */
#ifndef SPARSEFS_COMMON_JSON_H
#define SPARSEFS_COMMON_JSON_H

#include <stddef.h>
#include <stdio.h>

/* Writes n bytes as a JSON string with its quotes. What is not UTF-8 is taken as Latin-1, byte by
 * byte, so that the result is always valid JSON. Errors are left to ferror(out). */
void json_string(FILE *out, const char *bytes, size_t n);

#endif
