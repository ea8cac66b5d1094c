/* Undoing a chunk's filters in reverse order, between two buffers. */
#include <errno.h>
#include <string.h>

#include "filter/kind.h"

/* The most bytes that stand between two filters. */
static size_t room_between(const struct sfs_filter *filters, size_t n_filters, size_t size)
{
    for (size_t i = 0; i < n_filters; i++)
        size += filter_kind_of(&filters[i])->appended;
    return size;
}

size_t filter_scratch(const struct sfs_filter *filters, size_t n_filters, size_t size)
{
    size_t producers = 0;
    bool checksum_inside = false;
    for (size_t i = 0; i < n_filters; i++) {
        if (filter_kind_of(&filters[i])->effect == APPENDS)
            checksum_inside |= producers == 0;
        else
            producers++;
    }
    size_t buffers = producers == 0 ? 0 : producers - 1 + checksum_inside;
    return (buffers < 2 ? buffers : 2) * room_between(filters, n_filters, size);
}

/* The size that the data had before filters i and later were applied, when the size before the
 * first filter was `size`. It is known up to the filter that compresses, behind which no filter has
 * to know. */
static size_t size_before(const struct sfs_filter *filters, size_t i, uint32_t mask, size_t size)
{
    for (size_t k = 0; k < i; k++)
        if (!(mask >> k & 1))
            size += filter_kind_of(&filters[k])->appended;
    return size;
}

int filter_decode(const struct sfs_filter *filters, size_t n_filters, uint32_t mask, const void *in,
                  size_t in_size, void *scratch, void *out, size_t size)
{
    size_t producers = 0;
    for (size_t i = 0; i < n_filters; i++)
        producers += !(mask >> i & 1) && filter_kind_of(&filters[i])->effect != APPENDS;

    size_t room = room_between(filters, n_filters, size);
    unsigned char *half[2] = {scratch, scratch ? (unsigned char *)scratch + room : NULL};
    const unsigned char *from = in;
    for (size_t i = n_filters; i-- > 0;) {
        if (mask >> i & 1)
            continue;
        const struct filter_kind *kind = filter_kind_of(&filters[i]);
        unsigned char *to = NULL;
        size_t made;
        if (kind->effect == APPENDS) {
            if (in_size < kind->appended)
                return -EILSEQ;
            made = in_size - kind->appended;
        } else {
            made = size_before(filters, i, mask, size);
            to = --producers == 0 && made == size ? out : half[from == half[0]];
            if (kind->effect == KEEPS_SIZE && in_size != made)
                return -EILSEQ;
        }
        int error = kind->decode(&filters[i], from, in_size, to, made);
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
