/* Undoing a chunk's filters in reverse order, between two buffers.
 *
 * What stands between two filters has a size that is known, or at least a bound: no more than
 * encoders make of what must come out in the end. So the bytes of a chunk do not say how much
 * memory a step takes, whatever else they say. */
#include <errno.h>
#include <string.h>

#include "common/size.h"
#include "filter/kind.h"

/* Small streams may make more of their bytes than is said of large ones. */
#define INFLATED_MARGIN 1024

/* Other encoders than ours may make a little more of bytes that cannot be compressed. */
#define MORE_SHARE 16
#define MORE_BYTES 1024

/* The most bytes that stand before filter i, when `size` stand before the first; exactly so many as
 * long as none before it compresses. */
static size_t most_before(const struct filter_pipeline *pipeline, size_t i, size_t size)
{
    for (size_t k = 0; k < i; k++) {
        const struct filter_kind *kind = filter_kind_of(&pipeline->filters[k]);
        if (pipeline->mask >> k & 1)
            continue;
        if (kind->effect == COMPRESSES) {
            size = kind->bound(&pipeline->filters[k], size);
            size = size_sum(size, size / MORE_SHARE);
            size = size_sum(size, MORE_BYTES);
        }
        size = size_sum(size, kind->appended);
    }
    return size;
}

static bool is_compressed_before(const struct filter_pipeline *pipeline, size_t i)
{
    for (size_t k = 0; k < i; k++)
        if (!(pipeline->mask >> k & 1) &&
            filter_kind_of(&pipeline->filters[k])->effect == COMPRESSES)
            return true;
    return false;
}

/* Filters that put what they decode elsewhere. */
static bool is_producer(const struct sfs_filter *filter)
{
    return filter_kind_of(filter)->effect != APPENDS;
}

/* The most bytes that stand between two filters, whatever is left out. */
static size_t room_between(const struct filter_pipeline *pipeline, size_t size)
{
    const struct filter_pipeline all = {pipeline->n, pipeline->filters, 0};
    size_t n = all.n;
    while (n > 0 && !is_producer(&all.filters[n - 1]))
        n--;
    return most_before(&all, n - (n > 0), size);
}

size_t filter_scratch(const struct filter_pipeline *pipeline, size_t size)
{
    size_t producers = 0;
    bool checksum_inside = false;
    for (size_t i = 0; i < pipeline->n; i++) {
        if (is_producer(&pipeline->filters[i]))
            producers++;
        else
            checksum_inside |= producers == 0;
    }
    size_t buffers = producers == 0 ? 0 : producers - 1 + checksum_inside;
    size_t room = room_between(pipeline, size);
    return buffers == 0 ? 0 : buffers == 1 ? room : size_sum(room, room);
}

/* What comes out of a producer for *n bytes: exactly `most`, or at most so many; then *n are. */
static int undo(const struct sfs_filter *filter, const unsigned char *from, size_t *n,
                unsigned char *to, size_t most, bool is_exact)
{
    const struct filter_kind *kind = filter_kind_of(filter);
    const size_t in_size = *n;
    uint64_t said = in_size;
    if (kind->effect == COMPRESSES && is_exact)
        said = most;
    else if (kind->effect == COMPRESSES && kind->decode_most)
        return kind->decode_most(filter, from, in_size, to, most, n);
    else if (kind->effect == COMPRESSES && !kind->plain_size(filter, from, in_size, &said))
        return -EILSEQ;
    if (said > most || (is_exact && said != most))
        return -EILSEQ;
    *n = (size_t)said;
    return kind->decode(filter, from, in_size, to, *n);
}

int filter_decode(const struct filter_pipeline *pipeline, const void *in, size_t in_size,
                  void *scratch, void *out, size_t size)
{
    size_t producers = 0;
    for (size_t i = 0; i < pipeline->n; i++)
        producers += !(pipeline->mask >> i & 1) && is_producer(&pipeline->filters[i]);

    size_t room = room_between(pipeline, size);
    unsigned char *half[2] = {scratch, scratch ? (unsigned char *)scratch + room : NULL};
    const unsigned char *from = in;
    for (size_t i = pipeline->n; i-- > 0;) {
        if (pipeline->mask >> i & 1)
            continue;
        const struct sfs_filter *filter = &pipeline->filters[i];
        const struct filter_kind *kind = filter_kind_of(filter);
        int error;
        if (kind->effect == APPENDS) {
            if (in_size < kind->appended)
                return -EILSEQ;
            error = kind->decode(filter, from, in_size, NULL, in_size - kind->appended);
            in_size -= kind->appended;
        } else {
            size_t most = most_before(pipeline, i, size);
            unsigned char *to = --producers == 0 && most == size ? out : half[from == half[0]];
            error = undo(filter, from, &in_size, to, most, !is_compressed_before(pipeline, i));
            from = to;
        }
        if (error)
            return error;
    }
    if (in_size != size)
        return -EILSEQ;
    if (from != out && size > 0)
        memcpy(out, from, size);
    return 0;
}

bool filter_can_make(const struct filter_pipeline *pipeline, uint64_t in_size, uint64_t size)
{
    for (size_t i = pipeline->n; i-- > 0;) {
        const struct filter_kind *kind = filter_kind_of(&pipeline->filters[i]);
        if (!kind || kind->most_inflated == INFLATES_ANYHOW)
            return true;
        if (kind->effect == COMPRESSES &&
            (__builtin_add_overflow(in_size, INFLATED_MARGIN, &in_size) ||
             __builtin_mul_overflow(in_size, kind->most_inflated, &in_size)))
            return true;
    }
    return size <= in_size;
}
