/* The data layout message of sparse datasets, read and written: version 5, class 4 (structured
 * chunk storage), from the HDF Group's RFC "Sparse data storage": in the order of fields of its
 * prototype and of version 28, in that of version 22, and as the "sectioned storage" of that. */
#ifndef SPARSEFS_FORMAT_LAYOUT_MESSAGE_H
#define SPARSEFS_FORMAT_LAYOUT_MESSAGE_H

#include <stdbool.h>
#include <stdint.h>

#include "format/chunk_record.h"
#include "format/object_header.h"

/* Bytes of a node of a B-tree: it must be able to hold so many records, so that it can be split. */
#define MOST_NODE_BYTES    (1 << 20)
#define MOST_PAGE_BYTES    (1 << 28) /* of a new fixed array */
#define LEAST_NODE_RECORDS 3

/* Bits of the structured chunk type. Which sections there are is told by the composition, as drafts have
 * numbers here, and 0 for sparse chunks. Other bits are -EOPNOTSUPP, and LAYOUT_SPARSE without a section
 * of selections is -EILSEQ. */
#define LAYOUT_SPARSE          0x01
#define LAYOUT_VARIABLE_LENGTH 0x02

/* As numbered in the file. */
enum chunk_index_kind {
    INDEX_SINGLE = 1,
    INDEX_FIXED_ARRAY = 3,
    INDEX_EXTENSIBLE_ARRAY = 4,
    INDEX_BTREE2 = 5,
};

struct layout_message {
    unsigned type; /* structured chunk type, as stored: the prototype has 0, and does not mind it */
    bool unfiltered_edges; /* no filters on chunks that reach over the dataset's current dims */
    int rank;
    uint64_t chunk_dims[SFS_MAX_RANK]; /* 1 to 2^32 - 1 elements */
    uint64_t element_size;             /* bytes; 1 to 2^32 - 1 */
    unsigned offset_size;              /* of the composition; 4 or 8 */
    int n_sections;                    /* 2; 3 with variable-length data, also of dense data: */
    int first_section;                 /* 1 of dense data, whose chunks have no selection; else 0 */
    enum sfs_layout_message order;
    unsigned offset_size_width; /* bytes of the offset size; of the prototype's order always 1 */

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
    unsigned
        node_bytes; /* B-tree; the prototype has any number there: its header is to be trusted */
    unsigned split_percent;
    unsigned merge_percent;
};

/* Whether it is in the RFC's own form: chunk types as bits, filters in message 0x000b, versions 0 in
 * the index. Elements of variable length always have the bits, and the rest in the orders of version
 * 22 alone. */
bool layout_message_is_rfc(const struct layout_message *layout);

/* Whether it is such a message at all: others are libhdf5's. */
bool layout_message_is_structured(const struct message *message);

/* Errors: -EILSEQ, -EOPNOTSUPP (a kind of structured chunk that is only a design or not known yet);
 * why says what.
 * Bytes behind the last field are ignored, as the prototype reserves some. Any thread. */
int layout_message_decode(const struct superblock *superblock, const struct message *message,
                          struct layout_message *layout, struct why *why);

/* ---- choose_index.c ---- */

/* What of a new dataset decides on its layout. */
struct new_dataset {
    int rank;
    const uint64_t *dims, *max_dims, *chunk_dims; /* elements; max_dims: SFS_UNLIMITED */
    uint64_t element_size;                        /* bytes */
    int n_sections;                               /* 3 with variable-length data, else 2 */
    bool filtered;                                /* it will have section filters */
};

/* The layout of a new dataset without any chunk: sections and index as its dims and datatype want
 * them, parameters as the prototype has them. -EINVAL: these dims cannot be; -EFBIG: so large
 * chunks cannot be. why says which. layout_message_choose has to follow. */
int layout_message_init(const struct new_dataset *dataset, struct layout_message *layout,
                        struct why *why);

/* What of a new layout is not as the prototype has it. */
struct layout_choice {
    struct sfs_index index;
    enum sfs_layout_message order;
    bool rfc_encoding;
    bool unfiltered_edges;
    bool is_dense; /* dense data, which is of variable length then */
};

/* Puts that into a layout that layout_message_init has made for the dataset. -EINVAL: its dims have
 * no such index, or it no such numbers; -EFBIG: an array cannot have so many chunks. why says
 * which. */
int layout_message_choose(const struct layout_choice *choice, const struct superblock *superblock,
                          const struct new_dataset *dataset, struct layout_message *layout,
                          struct why *why);

/* ---- layout_message.c ---- */

/* Bytes of a chunk's elements; UINT64_MAX: they exceed 63 bits. */
uint64_t layout_message_chunk_bytes(const struct layout_message *layout);

/* Bytes that a node of a B-tree has at least, of records of so many bytes. */
size_t layout_message_least_node(const struct superblock *superblock, size_t record);

/* The index that a layout has. */
struct sfs_index layout_message_index(const struct layout_message *layout);

/* Makes the message's data in its order of fields, with zeros behind them that leave
 * room for all that its index can ever need here: it can be rewritten in place. The caller frees
 * *bytes. -EFBIG: the single chunk, or the index, is where the file's addresses do not reach, or
 * the bytes could be read in another order of fields; -EILSEQ: the bytes of a single chunk exceed 63
 * bits; -ENOMEM. */
int layout_message_encode(const struct superblock *superblock, const struct layout_message *layout,
                          unsigned char **bytes, size_t *n, struct why *why);

/* The same over a message of n bytes that is there already. Also -EFBIG: it is too short. Its bytes
 * are changed even if they could be read in another order: after an error they are not to be stored. */
int layout_message_encode_over(const struct superblock *superblock,
                               const struct layout_message *layout, unsigned char *bytes, size_t n,
                               struct why *why);

/* The form of the records in its index. filtered: the dataset has section filters. -EILSEQ: the
 * bytes of a chunk exceed 63 bits. */
int layout_message_records(const struct layout_message *layout, bool filtered,
                           struct chunk_record_format *format, struct why *why);

#endif
