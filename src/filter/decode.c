/* Undoing a chunk's filters in reverse order, between two buffers.
 *
 * What stands between two filters has a size that is known, or at least a bound: no more than
 * encoders make of what must come out in the end. So the bytes of a chunk do not say how much
 * memory a step takes, whatever else they say. */
#include <errno.h>
#include <string.h>

#include "common/cpu_limit.h"
#include "filter/kind.h"

static bool is_compressed_before(const struct filter_pipeline *pipeline, size_t i)
{
    for (size_t k = 0; k < i; k++)
        if (!(pipeline->mask >> k & 1) &&
            filter_kind_of(&pipeline->filters[k])->effect == COMPRESSES)
            return true;
    return false;
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
        producers += !(pipeline->mask >> i & 1) && filter_is_producer(&pipeline->filters[i]);

    size_t room = filter_room_between(pipeline, size);
    unsigned char *half[2] = {scratch, scratch ? (unsigned char *)scratch + room : NULL};
    const unsigned char *from = in;
    for (size_t i = pipeline->n; i-- > 0;) {
        if (pipeline->mask >> i & 1)
            continue;
        const struct sfs_filter *filter = &pipeline->filters[i];
        const struct filter_kind *kind = filter_kind_of(filter);
        int error = cpu_limit_check(in_size > size ? in_size : size);
        if (error)
            return error;
        if (kind->effect == APPENDS) {
            if (in_size < kind->appended)
                return -EILSEQ;
            error = kind->decode(filter, from, in_size, NULL, in_size - kind->appended);
            in_size -= kind->appended;
        } else {
            size_t most = filter_most_before(pipeline, i, size);
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
