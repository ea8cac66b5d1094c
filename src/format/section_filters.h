/* The filters of each section of a structured chunk: message 0x0019 version 1, as the HDF Group's
 * prototype writes it, and message 0x000b version 3, as its RFC "Sparse data storage" has it. The
 * bodies are the same. */
#ifndef SPARSEFS_FORMAT_SECTION_FILTERS_H
#define SPARSEFS_FORMAT_SECTION_FILTERS_H

#include <stdbool.h>
#include <stddef.h>

#include "common/filter_pipeline.h"
#include "format/object_header.h"
#include "sparsefs/sparsefs.h"

/* By what they hold: encoded selection, values, variable-length heap. Chunks of dense data have no
 * selection: in the file their sections are numbered from the values on. */
#define MAX_SECTIONS 3
#define MAX_FILTERS  PIPELINE_MOST_FILTERS /* of one section */

struct section_filters {
    struct filter_pipeline section[MAX_SECTIONS];
    unsigned *values; /* of all filters */
    bool is_rfc;      /* message 0x000b version 3, else 0x0019 version 1 */
    int first;        /* the section that is number 0 in the file: 1 of dense data */
};

/* Decodes the message for a dataset whose chunks have the sections first to n_sections - 1. Errors:
 * -EILSEQ, -EOPNOTSUPP: the message is shared (why says what is wrong); -ENOMEM. The caller frees
 * what *filters points to with section_filters_free. Any thread. */
int section_filters_decode(const struct message *message, int first, int n_sections,
                           struct section_filters *filters, struct why *why);
void section_filters_free(struct section_filters *filters);

/* Whether any section has filters. */
bool section_filters_any(const struct section_filters *filters);

/* Makes the data of message 0x0019, or 0x000b if they are is_rfc. The caller frees *bytes. -EINVAL:
 * no section has filters, or a filter cannot be one; -EFBIG: they do not fit a message; -ENOMEM. Of
 * all but the last why says what. */
int section_filters_encode(const struct section_filters *filters, unsigned char **bytes, size_t *n,
                           struct why *why);

/* Whether the message is one of the two, and not an ordinary filter pipeline. */
bool section_filters_is(const struct message *message);

#endif
