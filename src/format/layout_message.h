/* The data layout message of sparse datasets, read and written: version 5, class 4 (structured
 * chunk storage), from the HDF Group's RFC "Sparse data storage": in the order of fields of its
 * prototype and of version 28, and in that of version 22. */
#ifndef SPARSEFS_FORMAT_LAYOUT_MESSAGE_H
#define SPARSEFS_FORMAT_LAYOUT_MESSAGE_H

#include <stdbool.h>
#include <stdint.h>

#include "format/chunk_record.h"
#include "format/object_header.h"

/* As numbered in the file. */
enum chunk_index_kind {
    INDEX_SINGLE = 1,
    INDEX_FIXED_ARRAY = 3,
    INDEX_EXTENSIBLE_ARRAY = 4,
    INDEX_BTREE2 = 5,
};

struct layout_message {
    unsigned type;         /* structured chunk type, as stored: the prototype does not mind it */
    bool unfiltered_edges; /* no filters on chunks that reach over the dataset's current dims */
    int rank;
    uint64_t chunk_dims[SFS_MAX_RANK]; /* 1 to 2^32 - 1 elements */
    uint64_t element_size;             /* bytes; 1 to 2^32 - 1 */
    unsigned offset_size;              /* of the composition; 4 or 8 */
    int n_sections;                    /* 2; 3 with variable-length data */
    bool rfc22;                        /* the order of fields is that of version 22, */
    unsigned offset_size_width;        /* in which the offset size has so many bytes */

    enum chunk_index_kind index;
    uint64_t address;                 /* of the index, or the single chunk; or NO_ADDRESS */
    bool single_filtered;             /* the single chunk's record has what filters need */
    struct chunk_record single;       /* not checked against the store yet */
    unsigned page_bits;               /* fixed array */
    unsigned max_bits;                /* extensible array: width of the number of elements, */
    unsigned index_block_elements;    /* elements in its index block, */
    unsigned super_block_min_blocks;  /* smallest number of data blocks of a super block, */
    unsigned data_block_min_elements; /* smallest number of elements of a data block, */
    unsigned data_page_bits;          /* log2 of elements of a page */
    unsigned split_percent;           /* B-tree; the node size stored here is not to be trusted */
    unsigned merge_percent;
};

/* Whether it is such a message at all: others are libhdf5's. */
bool layout_message_is_structured(const struct message *message);

/* Errors: -EILSEQ, -EOPNOTSUPP (a kind of structured chunk that is only a design or not known yet,
 * or the RFC's sectioned storage); why says what.
 * Bytes behind the last field are ignored, as the prototype reserves some. Any thread. */
int layout_message_decode(const struct superblock *superblock, const struct message *message,
                          struct layout_message *layout, struct why *why);

/* The layout of a new dataset without any chunk: sections and index as the dims and the datatype
 * (n_sections: 3 with variable-length data, else 2) want them, parameters as the prototype has
 * them. filtered: it will have section filters. -EINVAL: these dims cannot be; -EFBIG: so many
 * chunks, or so large ones, cannot be. why says which. */
int layout_message_init(int rank, const uint64_t *dims, const uint64_t *max_dims,
                        const uint64_t *chunk_dims, uint64_t element_size, int n_sections,
                        bool filtered, struct layout_message *layout, struct why *why);

/* Makes the message's data in its order of fields, with zeros behind them that leave
 * room for all that its index can ever need here: it can be rewritten in place. The caller frees
 * *bytes. -EFBIG: the single chunk, or the index, is where the file's addresses do not reach;
 * -ENOMEM. */
int layout_message_encode(const struct superblock *superblock, const struct layout_message *layout,
                          unsigned char **bytes, size_t *n, struct why *why);

/* The same over a message of n bytes that is there already. Also -EFBIG: it is too short. */
int layout_message_encode_over(const struct superblock *superblock,
                               const struct layout_message *layout, unsigned char *bytes, size_t n,
                               struct why *why);

/* The form of the records in its index. filtered: the dataset has section filters. -EILSEQ: the
 * bytes of a chunk exceed 63 bits. */
int layout_message_records(const struct layout_message *layout, bool filtered,
                           struct chunk_record_format *format, struct why *why);

#endif
