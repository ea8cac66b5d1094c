/* Strings as lines of text. */
#ifndef SPARSEFS_COMMON_ESCAPE_LINES_H
#define SPARSEFS_COMMON_ESCAPE_LINES_H

#include <stdio.h>

/* Writes n bytes without ends of lines: \\, \n and \r stand for backslashes, line feeds and
 * carriage returns. */
void lines_escape(FILE *out, const char *bytes, size_t n);

/* The bytes that a line of n without its end stands for, in place; returns how many. */
size_t lines_unescape(char *line, size_t n);

#endif
