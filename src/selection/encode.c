/* Encoding selections as H5Sencode does: the dataspace's extent, then what is selected in it. */
#include "selection/selection.h"

#include <errno.h>
#include <stdlib.h>

#define DATASPACE_MESSAGE 1 /* its number among object header messages */
#define ENCODE_VERSION    0
#define LENGTH_BYTES      8
#define EXTENT_VERSION    1
#define HAS_MAX_DIMS      1 /* flag: libhdf5 always sets it for simple dataspaces */
#define SELECT_ALL        3
#define SELECT_VERSION    1

static unsigned char *put_le(unsigned char *p, uint64_t value, int bytes)
{
    for (int i = 0; i < bytes; i++)
        *p++ = (unsigned char)(value >> (8 * i));
    return p;
}

int selection_encode_all(int rank, const uint64_t *dims, void **encoded, size_t *n)
{
    size_t extent = 8 + (size_t)rank * 2 * LENGTH_BYTES;
    size_t size = 7 + extent + 16;
    unsigned char *p = malloc(size);
    if (!p)
        return -ENOMEM;
    *encoded = p;
    *n = size;

    p = put_le(p, DATASPACE_MESSAGE, 1);
    p = put_le(p, ENCODE_VERSION, 1);
    p = put_le(p, LENGTH_BYTES, 1);
    p = put_le(p, extent, 4);

    p = put_le(p, EXTENT_VERSION, 1);
    p = put_le(p, (uint64_t)rank, 1);
    p = put_le(p, rank > 0 ? HAS_MAX_DIMS : 0, 1);
    p = put_le(p, 0, 5);
    for (int twice = 0; twice < 2; twice++) /* dims, then max dims, which are the same */
        for (int i = 0; i < rank; i++)
            p = put_le(p, dims[i], LENGTH_BYTES);

    p = put_le(p, SELECT_ALL, 4);
    p = put_le(p, SELECT_VERSION, 4);
    put_le(p, 0, 8);
    return 0;
}
