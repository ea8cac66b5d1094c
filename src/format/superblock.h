/* The superblock: what stands at the beginning of an HDF5 file (HDF5 file format specification,
 * section II.A): the widths of addresses and lengths, and where the root group is. */
#ifndef SPARSEFS_FORMAT_SUPERBLOCK_H
#define SPARSEFS_FORMAT_SUPERBLOCK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/why.h"

struct store;

#define SUPERBLOCK_BYTES 12 /* of it that superblock_is_marked looks at */

/* Whether these first bytes of a superblock carry the mark of a program that has the file open for
 * writing, or had when it died. Only version 3 has such a mark. */
int superblock_is_marked(const unsigned char bytes[SUPERBLOCK_BYTES]);

/* Whether such a mark is that of a single writer with multiple readers (libhdf5's SWMR). */
bool superblock_is_swmr(const unsigned char bytes[SUPERBLOCK_BYTES]);

struct superblock;
struct store_mark;

/* Where that is, and stays until the writer ends. */
struct store_mark superblock_swmr_mark(const struct superblock *superblock);

/* Addresses in a file count from the base address, behind what else stands in the file (a user
 * block). Those in the structs of this folder and of the
 * index have it added already: they are addresses of the store. */
struct superblock {
    unsigned version;     /* 0 to 3 */
    unsigned flags;       /* of version 3, as stored */
    unsigned offset_size; /* bytes of an address in the file: 2, 4 or 8 */
    unsigned length_size; /* bytes of a length: 2, 4 or 8 */
    uint64_t address;     /* of the superblock itself */
    uint64_t base;        /* what is added to addresses: where the superblock lies */
    bool is_moved;        /* it names another base */
    uint64_t end;         /* of the file, as the superblock says, moved with it */
    uint64_t root;        /* header of the root group */
    unsigned leaf_k;      /* half of the most links in a node of symbols, */
    unsigned internal_k;  /* and of the most children of a node of a B-tree of groups, */
    unsigned chunk_k;     /* or of chunks */
    uint64_t extension;   /* header of an object that says more; or NO_ADDRESS */
    bool has_more;        /* a driver's information, flags or versions of what is not known */
};

/* Finds and reads it. Errors as of structure_read; -EILSEQ: it is damaged, or there is none. The result is
 * plain data. Any thread. */
int superblock_read(struct store *store, struct superblock *superblock, struct why *why);

/* Rewrites it for a file that ends at this address of the store, without the mark, and with the
 * base that is its own; *superblock is kept in step. -EFBIG: the address does not fit; -EIO,
 * -ENOSPC and what else the store says. */
int superblock_set_end(struct store *store, struct superblock *superblock, uint64_t end);

/* Changes the first n bytes of a file from its superblock on, so that they begin a file without the
 * user block before it, and ends at the same byte. */
void superblock_drop_user_block(const struct superblock *superblock, unsigned char *bytes,
                                size_t n);

struct cursor;
struct output;

/* Reads an address: NO_ADDRESS, or an address of the store. One that cannot be such marks the
 * cursor as failed. */
uint64_t superblock_address(const struct superblock *superblock, struct cursor *cursor);

/* Whether an address of the store can be written in this file; NO_ADDRESS can. */
bool superblock_address_fits(const struct superblock *superblock, uint64_t address);

/* Writes such an address. */
void superblock_put_address(const struct superblock *superblock, struct output *output,
                            uint64_t address);

#endif
