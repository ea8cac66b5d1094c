/* The file that run_filter.c lets libhdf5 open in order to run a filter with the parameters that it is
 * given: creating a dataset would make the filter compute its own. Superblock version 0 and object
 * headers version 1, which have no checksums; a single chunk index, which stands in the layout
 * message (HDF5 File Format Specification 3.0, II.A, IV.A). */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "hdf5/private.h"

#define SUPERBLOCK_BYTES     96
#define HEADER_PREFIX_BYTES  16
#define MESSAGE_PREFIX_BYTES 8
#define LARGEST_MESSAGE      65528 /* a size of 16 bits, in steps of 8 */

#define ROOT_BYTES     (HEADER_PREFIX_BYTES + MESSAGE_PREFIX_BYTES + 8)
#define DATASET        (SUPERBLOCK_BYTES + ROOT_BYTES)
#define DATASPACE      16 /* bytes of each message's body */
#define DATATYPE       16
#define FILL_VALUE     8
#define LAYOUT         32
#define SMALL_MESSAGES 4
#define FIXED_BYTES                                                                                \
    (DATASET + HEADER_PREFIX_BYTES + (SMALL_MESSAGES + 1) * MESSAGE_PREFIX_BYTES + DATASPACE +     \
     DATATYPE + FILL_VALUE + LAYOUT + 1)

static unsigned char *put(unsigned char *at, unsigned width, uint64_t value)
{
    for (unsigned i = 0; i < width; i++)
        at[i] = (unsigned char)(value >> 8 * i);
    return at + width;
}

static unsigned char *put_superblock(unsigned char *at, uint64_t end)
{
    memcpy(at, "\211HDF\r\n\032\n", 8);
    at = put(at + 8, 5, 0); /* versions */
    at = put(at, 1, 8);     /* size of offsets */
    at = put(at, 2, 8);     /* size of lengths */
    at = put(at, 2, 4);     /* symbols in a leaf and in a node: there is none */
    at = put(at, 2, 16);
    at = put(at, 4, 0);
    at = put(at, 8, 0); /* base address */
    at = put(at, 8, HADDR_UNDEF);
    at = put(at, 8, end);
    at = put(at, 8, HADDR_UNDEF);
    at = put(at, 8, 0); /* the root group: its name */
    at = put(at, 8, SUPERBLOCK_BYTES);
    return put(at, 8, 0) + 16;
}

static unsigned char *put_header(unsigned char *at, unsigned messages, size_t bytes)
{
    at = put(at, 2, 1); /* version */
    at = put(at, 2, messages);
    at = put(at, 4, 1); /* links to it */
    return put(at, 8, bytes);
}

static unsigned char *put_message(unsigned char *at, unsigned type, size_t bytes)
{
    at = put(at, 2, type);
    at = put(at, 2, bytes);
    return put(at, 4, 0);
}

/* A body shorter than its message is followed by zeros. */
static unsigned char *put_small_messages(unsigned char *at, uint64_t chunk)
{
    unsigned char *body = put_message(at, 0x0001, DATASPACE);
    put(body, 1, 1);     /* version */
    put(body + 1, 1, 1); /* rank */
    put(body + 8, 8, 1); /* dims */
    at = body + DATASPACE;

    body = put_message(at, 0x0003, DATATYPE);
    put(body, 1, 0x10);   /* version 1, an unsigned integer */
    put(body + 4, 4, 1);  /* bytes */
    put(body + 10, 2, 8); /* bits */
    at = body + DATATYPE;

    body = put_message(at, 0x0005, FILL_VALUE);
    put(body, 1, 2);     /* version */
    put(body + 1, 1, 3); /* space is allocated when it is needed */
    put(body + 2, 1, 2); /* the fill value is written only where it is set: it is not */
    at = body + FILL_VALUE;

    body = put_message(at, 0x0008, LAYOUT);
    put(body, 1, 4);          /* version */
    put(body + 1, 1, 2);      /* chunked */
    put(body + 2, 1, 2);      /* the size of the chunk and its mask stand here */
    put(body + 3, 1, 2);      /* dims, with the element size */
    put(body + 4, 1, 1);      /* bytes of each */
    put(body + 5, 2, 0x0101); /* dims */
    put(body + 7, 1, 1);      /* single chunk */
    put(body + 8, 8, 1);      /* its size as stored; then its mask, 0 */
    put(body + 20, 8, chunk);
    return body + LAYOUT;
}

static unsigned char *put_filter(unsigned char *at, int id, size_t n_values, const unsigned *values)
{
    at = put(at, 2, (uint64_t)id);
    at = put(at, 2, 0); /* bytes of its name */
    at = put(at, 2, 0); /* it is not optional: its failure shall be known */
    at = put(at, 2, n_values);
    for (size_t i = 0; i < n_values; i++)
        at = put(at, 4, values[i]);
    return at + (n_values % 2 ? 4 : 0);
}

int filter_image_make(const struct sfs_filter *filter, int outer, struct filter_image *image)
{
    if (filter->n_values > LARGEST_MESSAGE / 4)
        return -EINVAL;
    size_t message = 8 + 2 * 16 + 8 + (filter->n_values + 1) / 2 * 8;
    if (message > LARGEST_MESSAGE)
        return -EINVAL;
    size_t n = FIXED_BYTES + message;
    unsigned char *bytes = calloc(1, n);
    if (!bytes)
        return -ENOMEM;

    unsigned char *at = put_superblock(bytes, n);
    at = put_header(at, 1, MESSAGE_PREFIX_BYTES + 8);
    at = put_message(at, 0x0000, 8) + 8; /* a group without anything, not even a list of links */
    at = put_header(at, SMALL_MESSAGES + 1, n - 1 - DATASET - HEADER_PREFIX_BYTES);
    at = put_small_messages(at, n - 1);
    at = put_message(at, 0x000b, message);
    at = put(at, 1, 1); /* version */
    at = put(at, 7, 3); /* filters */
    at = put_filter(at, outer, 1, (unsigned[]){0});
    at = put_filter(at, filter->id, filter->n_values, filter->values);
    put_filter(at, outer, 1, (unsigned[]){1});
    *image = (struct filter_image){.bytes = bytes, .n = n, .dataset = DATASET};
    return 0;
}
