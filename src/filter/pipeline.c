/* Undoing a chunk's filters in reverse order, between two buffers. */
#include <errno.h>
#include <string.h>

#include "filter/filter.h"

#define CHECKSUM_BYTES 4

bool filter_is_native(const struct sfs_filter *filters, size_t n_filters)
{
    unsigned deflates = 0, shuffles = 0;
    for (size_t i = 0; i < n_filters; i++) {
        switch (filters[i].id) {
        case FILTER_DEFLATE:
            if (deflates++)
                return false;
            break;
        case FILTER_SHUFFLE:
            if (deflates || shuffles++ || filters[i].n_values < 1 || filters[i].values[0] == 0)
                return false;
            break;
        case FILTER_FLETCHER32:
            break;
        default:
            return false;
        }
    }
    return n_filters <= 32; /* the bits of a filter mask */
}

/* The most bytes that stand between two filters. */
static size_t room_between(size_t n_filters, size_t size)
{
    return size + CHECKSUM_BYTES * n_filters;
}

size_t filter_scratch(const struct sfs_filter *filters, size_t n_filters, size_t size)
{
    size_t producers = 0;
    bool checksum_inside = false;
    for (size_t i = 0; i < n_filters; i++) {
        if (filters[i].id == FILTER_FLETCHER32)
            checksum_inside |= producers == 0;
        else
            producers++;
    }
    size_t buffers = producers == 0 ? 0 : producers - 1 + checksum_inside;
    return buffers * room_between(n_filters, size);
}

static uint32_t load_le32(const unsigned char *p)
{
    return p[0] | (uint32_t)p[1] << 8 | (uint32_t)p[2] << 16 | (uint32_t)p[3] << 24;
}

static int check_fletcher32(const unsigned char *data, size_t *size)
{
    if (*size < CHECKSUM_BYTES)
        return -EILSEQ;
    *size -= CHECKSUM_BYTES;
    uint32_t stored = load_le32(data + *size);
    uint32_t sum = fletcher32(data, *size);
    /* HDF5 1.6.2 and before stored the bytes of each half the other way round on little-endian
     * machines; libhdf5 accepts that too. */
    uint32_t swapped = (sum & 0x00FF00FF) << 8 | (sum & 0xFF00FF00) >> 8;
    return sum == stored || swapped == stored ? 0 : -EILSEQ;
}

/* The size that the data had before filters i and later were applied, when the size before the
 * first filter was `size`. It is known up to the deflate filter, behind which no filter has to
 * know. */
static size_t size_before(const struct sfs_filter *filters, size_t i, uint32_t mask, size_t size)
{
    for (size_t k = 0; k < i; k++)
        if (filters[k].id == FILTER_FLETCHER32 && !(mask >> k & 1))
            size += CHECKSUM_BYTES;
    return size;
}

int filter_decode(const struct sfs_filter *filters, size_t n_filters, uint32_t mask, const void *in,
                  size_t in_size, void *scratch, void *out, size_t size)
{
    size_t producers = 0;
    for (size_t i = 0; i < n_filters; i++)
        producers += !(mask >> i & 1) && filters[i].id != FILTER_FLETCHER32;

    size_t room = room_between(n_filters, size);
    unsigned char *half[2] = {scratch, scratch ? (unsigned char *)scratch + room : NULL};
    const unsigned char *from = in;
    for (size_t i = n_filters; i-- > 0;) {
        if (mask >> i & 1)
            continue;
        int error = 0;
        if (filters[i].id == FILTER_FLETCHER32) {
            error = check_fletcher32(from, &in_size);
        } else {
            size_t made = size_before(filters, i, mask, size);
            unsigned char *to = --producers == 0 && made == size ? out : half[from == half[0]];
            if (filters[i].id == FILTER_DEFLATE)
                error = deflate_decode(from, in_size, to, made);
            else if (in_size == made)
                shuffle_decode(from, to, made, filters[i].values[0]);
            else
                error = -EILSEQ;
            from = to;
            in_size = made;
        }
        if (error)
            return error;
    }
    if (in_size != size)
        return -EILSEQ;
    if (from != out)
        memcpy(out, from, size);
    return 0;
}
