/* Undoing a chunk's filters in reverse order, between two buffers.
 *
 * What stands between two filters has a size that is known, or at least a bound: no more than
 * encoders make of what must come out in the end. So the bytes of a chunk do not say how much
 * memory a step takes, whatever else they say. */
#include <errno.h>
#include <string.h>

#include "common/size.h"
#include "filter/kind.h"

/* Other encoders than ours may make a little more of bytes that cannot be compressed. */
#define MORE_SHARE 16
#define MORE_BYTES 1024

/* The most bytes that stand before filter i, when `size` stand before the first; exactly so many as
 * long as none before it compresses. */
static size_t most_before(const struct sfs_filter *filters, size_t i, uint32_t mask, size_t size)
{
    for (size_t k = 0; k < i; k++) {
        const struct filter_kind *kind = filter_kind_of(&filters[k]);
        if (mask >> k & 1)
            continue;
        if (kind->effect == COMPRESSES) {
            size = kind->bound(&filters[k], size);
            size = size_sum(size, size / MORE_SHARE);
            size = size_sum(size, MORE_BYTES);
        }
        size = size_sum(size, kind->appended);
    }
    return size;
}

static bool is_compressed_before(const struct sfs_filter *filters, size_t i, uint32_t mask)
{
    for (size_t k = 0; k < i; k++)
        if (!(mask >> k & 1) && filter_kind_of(&filters[k])->effect == COMPRESSES)
            return true;
    return false;
}

/* Filters that put what they decode elsewhere. */
static bool is_producer(const struct sfs_filter *filter)
{
    return filter_kind_of(filter)->effect != APPENDS;
}

/* The most bytes that stand between two filters. */
static size_t room_between(const struct sfs_filter *filters, size_t n_filters, size_t size)
{
    while (n_filters > 0 && !is_producer(&filters[n_filters - 1]))
        n_filters--;
    return most_before(filters, n_filters > 0 ? n_filters - 1 : 0, 0, size);
}

size_t filter_scratch(const struct sfs_filter *filters, size_t n_filters, size_t size)
{
    size_t producers = 0;
    bool checksum_inside = false;
    for (size_t i = 0; i < n_filters; i++) {
        if (is_producer(&filters[i]))
            producers++;
        else
            checksum_inside |= producers == 0;
    }
    size_t buffers = producers == 0 ? 0 : producers - 1 + checksum_inside;
    size_t room = room_between(filters, n_filters, size);
    return buffers == 0 ? 0 : buffers == 1 ? room : size_sum(room, room);
}

/* What comes out of a producer: exactly `most` bytes, or at most so many. */
static int undo(const struct sfs_filter *filter, const unsigned char *from, size_t in_size,
                unsigned char *to, size_t most, bool is_exact, size_t *made)
{
    const struct filter_kind *kind = filter_kind_of(filter);
    uint64_t said = in_size;
    if (kind->effect == COMPRESSES && is_exact)
        said = most;
    else if (kind->effect == COMPRESSES && kind->decode_most)
        return kind->decode_most(filter, from, in_size, to, most, made);
    else if (kind->effect == COMPRESSES && !kind->plain_size(filter, from, in_size, &said))
        return -EILSEQ;
    if (said > most || (is_exact && said != most))
        return -EILSEQ;
    *made = (size_t)said;
    return kind->decode(filter, from, in_size, to, *made);
}

int filter_decode(const struct sfs_filter *filters, size_t n_filters, uint32_t mask, const void *in,
                  size_t in_size, void *scratch, void *out, size_t size)
{
    size_t producers = 0;
    for (size_t i = 0; i < n_filters; i++)
        producers += !(mask >> i & 1) && is_producer(&filters[i]);

    size_t room = room_between(filters, n_filters, size);
    unsigned char *half[2] = {scratch, scratch ? (unsigned char *)scratch + room : NULL};
    const unsigned char *from = in;
    for (size_t i = n_filters; i-- > 0;) {
        if (mask >> i & 1)
            continue;
        const struct filter_kind *kind = filter_kind_of(&filters[i]);
        unsigned char *to = NULL;
        size_t made;
        int error;
        if (kind->effect == APPENDS) {
            if (in_size < kind->appended)
                return -EILSEQ;
            made = in_size - kind->appended;
            error = kind->decode(&filters[i], from, in_size, NULL, made);
        } else {
            size_t most = most_before(filters, i, mask, size);
            to = --producers == 0 && most == size ? out : half[from == half[0]];
            error = undo(&filters[i], from, in_size, to, most,
                         !is_compressed_before(filters, i, mask), &made);
        }
        if (error)
            return error;
        from = to ? to : from;
        in_size = made;
    }
    if (in_size != size)
        return -EILSEQ;
    if (from != out && size > 0)
        memcpy(out, from, size);
    return 0;
}
