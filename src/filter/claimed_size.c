/* How many bytes the filters of a chunk can make, or need, whatever the chunk itself says: what stands between two
 * filters has a size that is known, or at least a bound: no more than encoders make of what must come out in
 * the end. */
#include "common/size.h"
#include "filter/kind.h"

/* Small streams may make more of their bytes than is said of large ones. */
#define INFLATED_MARGIN 1024

/* Other encoders than ours may make a little more of bytes that cannot be compressed. */
#define MORE_SHARE 16
#define MORE_BYTES 1024

size_t filter_most_before(const struct filter_pipeline *pipeline, size_t i, size_t size)
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

bool filter_is_producer(const struct sfs_filter *filter)
{
    return filter_kind_of(filter)->effect != APPENDS;
}

size_t filter_room_between(const struct filter_pipeline *pipeline, size_t size)
{
    const struct filter_pipeline all = {pipeline->n, pipeline->filters, 0};
    size_t n = all.n;
    while (n > 0 && !filter_is_producer(&all.filters[n - 1]))
        n--;
    return filter_most_before(&all, n - (n > 0), size);
}

size_t filter_scratch(const struct filter_pipeline *pipeline, size_t size)
{
    size_t producers = 0;
    bool checksum_inside = false;
    for (size_t i = 0; i < pipeline->n; i++) {
        if (filter_is_producer(&pipeline->filters[i]))
            producers++;
        else
            checksum_inside |= producers == 0;
    }
    size_t buffers = producers == 0 ? 0 : producers - 1 + checksum_inside;
    size_t room = filter_room_between(pipeline, size);
    return buffers == 0 ? 0 : buffers == 1 ? room : size_sum(room, room);
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
