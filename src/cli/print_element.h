/* Elements as text. */
#ifndef SPARSEFS_CLI_PRINT_ELEMENT_H
#define SPARSEFS_CLI_PRINT_ELEMENT_H

#include <stdio.h>

#include "cli/cli.h"

/* n bytes as a field of a CSV file (RFC 4180): in quotes if it has to be. */
void field_write_csv(FILE *out, const char *text, size_t n);

/* Writes an element, or (is_field) such a field of it: numbers in as few digits as give them back,
 * anything else as JSON. -ENOMEM and what sfs_element_json returns; errors of out are left to ferror. */
int value_write(FILE *out, const struct sfs_dataset_info *info, const void *element, bool is_field);

#endif
