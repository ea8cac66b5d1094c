/* What a chunk index stores for one chunk: where it is and how it is cut into sections. The forms
 * for structured chunks are those of the HDF Group's RFC "Sparse data storage" as its prototype
 * writes them; those for dense chunks are in the HDF5 file format specification, sections III.A.2
 * and VII. */
#ifndef SPARSEFS_FORMAT_CHUNK_RECORD_H
#define SPARSEFS_FORMAT_CHUNK_RECORD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "format/cursor.h"
#include "format/output.h"
#include "format/section_filters.h"

struct chunk_record {
    bool exists;      /* false: nothing else is set */
    uint64_t address; /* in the store */
    uint64_t size;    /* stored bytes of the whole chunk */
    /* Structured; the selection of dense data has no bytes. From address; ascending, not beyond size: */
    uint64_t section_offset[MAX_SECTIONS];
    /* Filtered only; of a dense chunk only filter_mask[0] is used. */
    uint64_t unfiltered_size[MAX_SECTIONS]; /* bytes of each section before its filters */
    uint32_t filter_mask[MAX_SECTIONS];     /* bit i: filter i was skipped in writing */
};

/* The values are the client ids of the arrays, and 10 less than the record types of B-trees. */
enum chunk_form {
    CHUNK_DENSE,
    CHUNK_DENSE_FILTERED,
    CHUNK_STRUCTURED,
    CHUNK_STRUCTURED_FILTERED, /* any section of the dataset has filters */
};

/* How the records of one index look. */
struct chunk_record_format {
    enum chunk_form form;
    int rank;
    int n_sections;      /* 2 or 3, of dense data with the selection that is not stored; dense: 0 */
    int first_section;   /* that is stored: 1 of dense data in structured chunks, else 0 */
    unsigned size_bytes; /* width of the stored size; CHUNK_DENSE: 0 */
    uint64_t chunk_bytes; /* product of chunk dims and element size */
    uint64_t chunk_elements;
};

/* Width of a chunk's stored size in bytes. offset_size is the field of the layout message. */
unsigned chunk_record_size_bytes(int n_sections, unsigned offset_size, uint64_t chunk_bytes);

/* Bytes of an element of an array, of a record of a B-tree. */
size_t chunk_record_element(const struct chunk_record_format *format,
                            const struct superblock *superblock);
size_t chunk_record_in_tree(const struct chunk_record_format *format,
                            const struct superblock *superblock);

/* Reads an element of an array: scaled NULL; or a record of a B-tree with its scaled coordinates
 * into scaled[format->rank]. where is the address of the structure that it stands in and store_size
 * limits the chunk, both for checks. -EILSEQ: the cursor failed, the chunk is not in the store, or
 * sizes and offsets contradict each other; why says which. */
int chunk_record_decode(const struct chunk_record_format *format,
                        const struct superblock *superblock, uint64_t store_size, uint64_t where,
                        struct cursor *cursor, uint64_t *scaled, struct chunk_record *record,
                        struct why *why);

/* The same, written: the element of a chunk that does not exist says so; the record of one that is
 * not there cannot be written. bytes has room for it. -EFBIG: its stored size or its address does
 * not fit the width that it has in this file; why says which. */
int chunk_record_encode(const struct chunk_record_format *format,
                        const struct superblock *superblock, const uint64_t *scaled,
                        const struct chunk_record *record, unsigned char *bytes, struct why *why);

/* What follows address and stored size of a structured chunk with the sections first to n_sections
 * - 1, as in the layout message too. */
void chunk_record_encode_sections(int first, int n_sections, bool filtered, struct output *output,
                                  const struct chunk_record *record);
void chunk_record_decode_sections(int first, int n_sections, bool filtered, struct cursor *cursor,
                                  struct chunk_record *record);

/* Whether the widths of the file suffice, as chunk_record_encode says. */
int chunk_record_fits(const struct chunk_record_format *format, const struct superblock *superblock,
                      const struct chunk_record *record, struct why *why);

/* Whether what was decoded is in range, as chunk_record_decode says. */
int chunk_record_check(const struct chunk_record_format *format, uint64_t store_size,
                       uint64_t where, const struct chunk_record *record, struct why *why);

/* Whether two records say the same of a chunk; n_sections is that of its format. */
bool chunk_record_is_same(int n_sections, const struct chunk_record *a,
                          const struct chunk_record *b);

/* Bytes of a section as stored. Valid for what the functions above have let pass. */
uint64_t chunk_record_section_size(const struct chunk_record_format *format,
                                   const struct chunk_record *record, int section);

/* floor(log2(x)), 0 for 0: the logarithm in all widths of HDF5. */
unsigned floor_log2(uint64_t x);

#endif
