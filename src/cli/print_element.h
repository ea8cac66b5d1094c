/* Elements as text. */
#ifndef SPARSEFS_CLI_PRINT_ELEMENT_H
#define SPARSEFS_CLI_PRINT_ELEMENT_H

#include <stdio.h>

#include "cli/cli.h"

/* Writes an element: numbers in as few digits as give them back, anything else as JSON. -ENOMEM and
 * what sfs_element_json returns; errors of out are left to ferror. */
int value_write(FILE *out, const struct sfs_dataset_info *info, const void *element);

/* n bytes as a field of a CSV file (RFC 4180): in quotes if it has to be. */
void field_write_csv(FILE *out, const char *text, size_t n);

/* An element as such a field. */
int value_write_csv(FILE *out, const struct sfs_dataset_info *info, const void *element);

#endif
