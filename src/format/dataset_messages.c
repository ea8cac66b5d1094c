/* Decoding the small messages of a dataset, and writing its dims. */
#include "format/dataset_messages.h"

#include <errno.h>
#include <inttypes.h>
#include <stdbool.h>

#include "format/cursor.h"
#include "format/output.h"

#define HAS_MAX_DIMS   0x01 /* flag of a dataspace */
#define FILL_UNDEFINED 0x10 /* flags of a fill value, version 3 */
#define FILL_STORED    0x20
#define FILL_TIMES     0x03 /* of allocation; FILL_TIME_SHIFT higher: of filling */

#define FILL_TIME_SHIFT 2

static int dataspace_damaged(const struct message *message, const char *field, uint64_t value,
                             struct why *why)
{
    return why_damaged(why, "dataspace message at address %" PRIu64 ": %s %" PRIu64,
                       message->address, field, value);
}

int dataspace_decode(const struct superblock *superblock, const struct message *message,
                     struct dataspace_message *dataspace, struct why *why)
{
    struct cursor c = cursor_over(message->data, message->size);
    struct dataspace_message d = {.space = SFS_SPACE_SIMPLE};
    if (message->flags & MESSAGE_SHARED)
        return why_unsupported(why, "dataspace message at address %" PRIu64 " is shared",
                               message->address);
    unsigned version = (unsigned)cursor_uint(&c, 1);
    d.rank = (int)cursor_uint(&c, 1);
    unsigned flags = (unsigned)cursor_uint(&c, 1);
    uint64_t type = cursor_uint(&c, 1); /* reserved in version 1 */
    if (version == 1)
        cursor_skip(&c, 4);
    else if (version != 2)
        return dataspace_damaged(message, "version", version, why);
    if (d.rank > SFS_MAX_RANK)
        return dataspace_damaged(message, "rank", (uint64_t)d.rank, why);
    if (version == 1)
        d.space = d.rank == 0 ? SFS_SPACE_SCALAR : SFS_SPACE_SIMPLE;
    else if (type > 2 || (type != 1) != (d.rank == 0))
        return dataspace_damaged(message, "type", type, why);
    else
        d.space = type == 0 ? SFS_SPACE_SCALAR : type == 1 ? SFS_SPACE_SIMPLE : SFS_SPACE_NULL;

    for (int i = 0; i < d.rank; i++)
        d.max_dims[i] = d.dims[i] = cursor_uint(&c, superblock->length_size);
    for (int i = 0; i < d.rank && flags & HAS_MAX_DIMS; i++)
        d.max_dims[i] = cursor_all_ones(&c, superblock->length_size);
    if (c.failed)
        return dataspace_damaged(message, "too short for rank", (uint64_t)d.rank, why);
    for (int i = 0; i < d.rank; i++)
        if (d.dims[i] == SFS_UNLIMITED || d.max_dims[i] < d.dims[i])
            return dataspace_damaged(message, "max dims less than dims, axis", (uint64_t)i, why);
    *dataspace = d;
    return 0;
}

int dataspace_encode_dims(const struct superblock *superblock, const struct message *message,
                          unsigned char *bytes, int rank, const uint64_t *dims, struct why *why)
{
    struct dataspace_message d;
    int error = dataspace_decode(superblock, message, &d, why);
    if (error)
        return error;
    if (rank != d.rank)
        return why_refused(why, -EINVAL,
                           "dataspace message at address %" PRIu64 ": rank %d, not %d",
                           message->address, d.rank, rank);
    unsigned width = superblock->length_size;
    bool fixed = (message->data[2] & HAS_MAX_DIMS) == 0; /* the dims are the max dims as well */
    for (int i = 0; i < rank; i++)
        /* All bits set is no dim, but means unlimited. */
        if (dims[i] > d.max_dims[i] || dims[i] >= UINT64_MAX >> (64 - 8 * width) ||
            (fixed && dims[i] != d.dims[i]))
            return why_refused(why, -EINVAL,
                               "dataspace message at address %" PRIu64 ": dimension %" PRIu64
                               " of axis %d cannot be",
                               message->address, dims[i], i);
    size_t dims_at = message->data[0] == 1 ? 8 : 4;
    struct output output = output_over(bytes + dims_at, (size_t)rank * width);
    for (int i = 0; i < rank; i++)
        output_uint(&output, dims[i], width);
    return 0;
}

int datatype_decode_size(const struct message *message, uint64_t *size, struct why *why)
{
    if (message->flags & MESSAGE_SHARED)
        return why_unsupported(why, "datatype message at address %" PRIu64 " is shared",
                               message->address);
    struct cursor c = cursor_over(message->data, message->size);
    unsigned version = (unsigned)cursor_uint(&c, 1) >> 4;
    cursor_skip(&c, 3); /* class bits */
    uint64_t bytes = cursor_uint(&c, 4);
    if (c.failed || bytes == 0 || version == 0)
        return why_damaged(why,
                           "datatype message at address %" PRIu64 ": version %u, size %" PRIu64,
                           message->address, version, bytes);
    *size = bytes;
    return 0;
}

/* Times as they are numbered in the file; those that it has no number for are the first ones. */
static const unsigned char allocation_numbers[] = {
    [SFS_ALLOCATION_INCREMENTAL] = 3, [SFS_ALLOCATION_EARLY] = 1, [SFS_ALLOCATION_LATE] = 2};
static const unsigned char fill_time_numbers[] = {
    [SFS_FILL_IF_SET] = 2, [SFS_FILL_ALLOCATED] = 0, [SFS_FILL_NEVER] = 1};

static int time_of(const unsigned char numbers[3], unsigned number)
{
    for (int i = 0; i < 3; i++)
        if (numbers[i] == number)
            return i;
    return 0;
}

/* What is behind the version of message 0x0005: times, and whether a size and a value follow. */
static bool fill_has_value(struct cursor *c, unsigned version, struct fill_message *fill)
{
    unsigned flags =
        (unsigned)cursor_uint(c, 1); /* of older versions only the time of allocation */
    bool is_flags = version == 3;
    unsigned time = is_flags ? flags >> FILL_TIME_SHIFT & FILL_TIMES : (unsigned)cursor_uint(c, 1);
    fill->allocation = time_of(allocation_numbers, is_flags ? flags & FILL_TIMES : flags);
    fill->fill_time = time_of(fill_time_numbers, time);
    if (is_flags)
        return (flags & (FILL_STORED | FILL_UNDEFINED)) == FILL_STORED;
    bool defined = cursor_uint(c, 1) != 0;
    return version == 1 || defined;
}

int fill_encode_allocation(const struct message *message, unsigned char *bytes,
                           enum sfs_allocation allocation, struct why *why)
{
    struct fill_message fill;
    unsigned char time = allocation_numbers[allocation];
    int error = fill_decode(message, &fill, why);
    if (error)
        return error;
    bytes[1] = bytes[0] == 3 ? (unsigned char)((bytes[1] & ~FILL_TIMES) | time) : time;
    return 0;
}

int fill_decode(const struct message *message, struct fill_message *fill, struct why *why)
{
    struct cursor c = cursor_over(message->data, message->size);
    struct fill_message f = {0};
    if (message->flags & MESSAGE_SHARED)
        return why_unsupported(why, "fill value message at address %" PRIu64 " is shared",
                               message->address);
    bool stored = true;
    if (message->type == MESSAGE_FILL) {
        unsigned version = (unsigned)cursor_uint(&c, 1);
        if (version < 1 || version > 3)
            return why_damaged(why, "fill value message at address %" PRIu64 ": version %u",
                               message->address, version);
        stored = fill_has_value(&c, version, &f);
    }
    /* Old versions say by a negative size that there is none. */
    uint64_t size = stored ? cursor_uint(&c, 4) : 0;
    if (size > INT32_MAX)
        size = 0;
    f.value = size ? cursor_bytes(&c, size) : NULL;
    f.size = (size_t)size;
    if (c.failed)
        return why_damaged(why,
                           "fill value message at address %" PRIu64 ": too short for size %" PRIu64,
                           message->address, size);
    *fill = f;
    return 0;
}
