/* The extensible array: what reading and writing it share. */
#ifndef SPARSEFS_INDEX_EXTENSIBLE_ARRAY_H
#define SPARSEFS_INDEX_EXTENSIBLE_ARRAY_H

#include "index/private.h"

#define EARRAY_HEADER "extensible array header"

extern const struct block_kind earray_header_kind;
extern const struct block_kind earray_index_block_kind;
extern const struct block_kind earray_super_block_kind;
extern const struct block_kind earray_data_block_kind;
extern const struct block_kind earray_page_kind;

struct extensible_array {
    size_t element; /* bytes of one */
    unsigned max_bits;
    unsigned in_index_block; /* elements */
    unsigned first_blocks;   /* least data blocks of a super block; a power of two */
    uint64_t first_elements; /* elements of the first data block; a power of two */
    unsigned page_bits;
    uint64_t page_elements;
    unsigned n_super;       /* super blocks that there can be */
    unsigned n_direct;      /* of them so many have their data blocks in the index block */
    size_t offset_bytes;    /* width of the offset in super and data blocks */
    uint64_t max_set;       /* no element of this number or above was ever set */
    uint64_t block_address; /* of the index block; NO_ADDRESS: nothing was ever stored */
    struct block *block;    /* the index block */
    size_t block_bytes;     /* of it */
    size_t elements_at;     /* in it */
    size_t data_blocks_at;  /* in it: addresses */
    size_t super_blocks_at; /* in it: addresses */
    /* Statistics, kept for other programs: */
    uint64_t super_blocks, super_block_bytes;
    uint64_t data_blocks, data_block_bytes;
    uint64_t realised; /* elements that have a place */
};

/* Where an element is that is not in the index block. */
struct earray_place {
    unsigned super;        /* which super block, */
    uint64_t block;        /* which of its data blocks, */
    uint64_t element;      /* which of its elements */
    uint64_t page;         /* or which of its pages, if it is paged, */
    uint64_t page_element; /* and which of its elements */
};

size_t earray_header_bytes(const struct superblock *superblock);

/* Checks the parameters that come from the header or the layout message, and what follows from
 * them. */
int earray_derive(const struct index *index, struct extensible_array *array, struct why *why);

/* ---- Geometry of super block u ---- */

static inline uint64_t earray_blocks(unsigned u)
{
    return (uint64_t)1 << u / 2;
}

static inline uint64_t earray_elements_per_block(const struct extensible_array *array, unsigned u)
{
    return array->first_elements << (u + 1) / 2;
}

/* Number of its first element, not counting those in the index block. */
static inline uint64_t earray_first_element(const struct extensible_array *array, unsigned u)
{
    return array->first_elements * (((uint64_t)1 << u) - 1);
}

/* Number of its first data block among all. */
static inline uint64_t earray_first_block(unsigned u)
{
    return ((uint64_t)1 << (u + 1) / 2) + ((uint64_t)1 << u / 2) - 2;
}

/* 0: its data blocks are not paged. */
static inline uint64_t earray_pages_per_block(const struct extensible_array *array, unsigned u)
{
    uint64_t n = earray_elements_per_block(array, u);
    return n > array->page_elements ? n / array->page_elements : 0;
}

static inline uint64_t earray_bitmap_bytes(const struct extensible_array *array, unsigned u)
{
    return earray_blocks(u) * ((earray_pages_per_block(array, u) + 7) / 8);
}

static inline uint64_t earray_page_bytes(const struct extensible_array *array)
{
    return array->page_elements * array->element + CHECKSUM_BYTES;
}

/* Where in a super or data block its own part begins. */
static inline size_t earray_behind_offset(const struct index *index,
                                          const struct extensible_array *array)
{
    return INDEX_BEGIN_BYTES + index->superblock->offset_size + array->offset_bytes;
}

uint64_t earray_super_block_bytes(const struct index *index, unsigned u);

/* Of what is read at once of a data block: all, or what precedes its pages. */
uint64_t earray_data_block_bytes(const struct index *index, unsigned u);

/* ---- Elements and blocks ---- */

/* Of element number, which is not in the index block. */
struct earray_place earray_place(const struct extensible_array *array, uint64_t number);

/* Super block u >= n_direct; *block is NULL if it is not there. */
int earray_get_super_block(struct index *index, unsigned u, struct block **block, struct why *why);

/* Where the address of super block u >= n_direct stands in the index block; and that of data block
 * t of super block u, in the structure of that (the first few have none: in the index block). */
size_t earray_super_block_at(const struct index *index, unsigned u);
size_t earray_data_block_at(const struct index *index, unsigned u, uint64_t t);

/* An address that stands in a block; NO_ADDRESS: what it is of is not there. */
int earray_address_in(const struct index *index, const struct block *block, size_t at,
                      uint64_t *address, struct why *why);

/* A data block of super block u, which is at address. Its elements begin behind_offset. */
int earray_get_data_block(struct index *index, unsigned u, uint64_t address, struct block **block,
                          struct why *why);

/* The number of its first element as it stands in it, not counting those in the index block. */
uint64_t earray_data_block_offset(const struct extensible_array *array, unsigned u, uint64_t t);

/* Which byte of a super block, and which bit, say whether a page was ever written. */
size_t earray_page_bit(const struct index *index, unsigned u, uint64_t t, uint64_t page,
                       unsigned char *mask);

/* A page of the data block at address. Its elements are the first bytes of the block. */
int earray_page_address(const struct index *index, uint64_t data_block, uint64_t page,
                        uint64_t *address, struct why *why);
int earray_get_page(struct index *index, uint64_t data_block, uint64_t page, struct block **block,
                    struct why *why);

/* ---- Writing ---- */

bool earray_can_hold(const struct index *index, const uint64_t *scaled);
int earray_insert(struct index *index, const uint64_t *scaled, const struct chunk_record *record,
                  struct why *why);
int earray_make_header(struct index *index, struct why *why);
int earray_remove(struct index *index, const uint64_t *scaled, struct why *why);
void earray_encode_header(const struct index *index, struct output *output);

#endif
