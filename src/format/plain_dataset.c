/* Decoding the header of a plain dense dataset. */
#include "format/plain_dataset.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "common/box.h"
#include "common/why.h"
#include "format/cursor.h"

#define MOST_FILTERS     32
#define FILTER_OPTIONAL  1
#define FIRST_REGISTERED 256 /* filters of others than libhdf5: their names are always stored */

#define FILL_STORED 0x20 /* flag of a fill value of version 3; 0x10: there is none */

enum { CLASS_COMPACT, CLASS_CONTIGUOUS, CLASS_CHUNKED }; /* of layouts */

#define UNFILTERED_EDGES 0x01 /* flags of chunks */
#define FILTERED_SINGLE  0x02

enum index { INDEX_ONE = 1, INDEX_IMPLICIT, INDEX_FIXED, INDEX_EXTENSIBLE, INDEX_TREE };

static int unusual(const struct message *message, const char *what, struct why *why)
{
    return why_unsupported(why, "%s at address %" PRIu64, what, message->address);
}

/* ---- Filters ---- */

/* Those that libhdf5 has by itself, and of which it knows the names. */
static const char *own_name(unsigned id)
{
    static const char *const names[] = {[1] = "deflate", "shuffle",    "fletcher32", NULL,
                                        "nbit",          "scaleoffset"};
    return id < sizeof(names) / sizeof(*names) ? names[id] : NULL;
}

static bool take_filter_name(struct cursor *c, unsigned id, uint64_t n, struct sfs_filter *filter)
{
    const unsigned char *bytes = cursor_bytes(c, n);
    const char *name = n > 0 ? (const char *)bytes : own_name(id);
    if (c->failed || !name || n > sizeof(filter->name) ||
        (n > 0 && !memchr(bytes, '\0', (size_t)n)))
        return false;
    strcpy(filter->name, name);
    return *name;
}

static int take_filter(struct cursor *c, unsigned version, struct sfs_filter *filter)
{
    unsigned id = (unsigned)cursor_uint(c, 2);
    bool has_length = version == 1 || id >= FIRST_REGISTERED;
    uint64_t name_n = has_length ? cursor_uint(c, 2) : 0, flags = cursor_uint(c, 2);
    size_t n = (size_t)cursor_uint(c, 2);
    if (id == 0 || flags > FILTER_OPTIONAL || (version == 1 && name_n % 8 != 0) ||
        !take_filter_name(c, id, name_n, filter) || n > c->left / sizeof(uint32_t))
        return -EOPNOTSUPP;
    unsigned *values = calloc(n ? n : 1, sizeof(*values));
    if (!values)
        return -ENOMEM;
    for (size_t i = 0; i < n; i++)
        values[i] = (unsigned)cursor_uint(c, 4);
    cursor_skip(c, version == 1 && n % 2 != 0 ? 4 : 0);
    filter->id = (int)id;
    filter->optional = flags & FILTER_OPTIONAL;
    filter->n_values = n;
    filter->values = values;
    return c->failed ? -EOPNOTSUPP : 0;
}

static int decode_filters(const struct message *message, struct plain_dataset *d, struct why *why)
{
    struct cursor c = cursor_over(message->data, message->size);
    unsigned version = (unsigned)cursor_uint(&c, 1);
    size_t n = (size_t)cursor_uint(&c, 1);
    cursor_skip(&c, version == 1 ? 6 : 0);
    if (c.failed || version < 1 || version > 2 || n == 0 || n > MOST_FILTERS)
        return unusual(message, "filter message", why);
    d->filters = calloc(n, sizeof(*d->filters));
    int error = d->filters ? 0 : -ENOMEM;
    while (d->n_filters < n && !error)
        error = take_filter(&c, version, &d->filters[d->n_filters++]);
    return error == -EOPNOTSUPP ? unusual(message, "filter message", why) : error;
}

/* ---- Layout ---- */

static bool all_bytes(const struct plain_dataset *d, uint64_t *bytes)
{
    const struct dataspace_message *space = &d->dataspace;
    *bytes = space->space == SFS_SPACE_NULL ? 0 : d->type.size;
    return space->rank == 0 ||
           (box_product(space->dims, space->rank, d->type.size, bytes) && *bytes <= INT64_MAX);
}

static bool decode_compact(struct cursor *c, struct plain_dataset *d)
{
    uint64_t n = cursor_uint(c, 2);
    d->layout = SFS_COMPACT;
    cursor_skip(c, n);
    return n == d->bytes;
}

static bool decode_contiguous(const struct superblock *superblock, struct cursor *c,
                              struct plain_dataset *d)
{
    struct why why;
    d->layout = SFS_CONTIGUOUS;
    d->address = superblock_address(superblock, c);
    return cursor_uint(c, superblock->length_size) == d->bytes &&
           (d->address == NO_ADDRESS ||
            !plain_within(superblock, "elements", d->address, d->bytes, &why));
}

/* rank + 1 of them, the last of which is the size of an element. */
static bool take_chunk_dims(struct cursor *c, unsigned width, struct plain_dataset *d)
{
    uint64_t bytes;
    for (int i = 0; i < d->dataspace.rank; i++) {
        d->chunk_dims[i] = cursor_uint(c, width);
        if (d->chunk_dims[i] == 0 || d->chunk_dims[i] > UINT32_MAX)
            return false;
    }
    return cursor_uint(c, width) == d->type.size && !c->failed &&
           box_product(d->chunk_dims, d->dataspace.rank, d->type.size, &bytes) &&
           bytes <= UINT32_MAX;
}

static bool decode_old_chunks(const struct superblock *superblock, struct cursor *c,
                              struct plain_dataset *d)
{
    int rank = (int)cursor_uint(c, 1) - 1;
    d->chunks = CHUNKS_IN_OLD_TREE;
    d->address = superblock_address(superblock, c);
    return rank == d->dataspace.rank && take_chunk_dims(c, 4, d);
}

static int unlimited_axes(const struct plain_dataset *d)
{
    int n = 0;
    for (int i = 0; i < d->dataspace.rank; i++)
        n += d->dataspace.max_dims[i] == SFS_UNLIMITED;
    return n;
}

static bool is_one_chunk(const struct plain_dataset *d)
{
    size_t n = (size_t)d->dataspace.rank * sizeof(uint64_t);
    return !memcmp(d->dataspace.dims, d->chunk_dims, n) &&
           !memcmp(d->dataspace.max_dims, d->chunk_dims, n);
}

static bool are_not_zero(struct cursor *c, int n)
{
    bool are = true;
    for (int i = 0; i < n; i++)
        are &= cursor_uint(c, 1) != 0;
    return are;
}

static uint64_t chunk_bytes(const struct plain_dataset *d)
{
    uint64_t bytes = 0;
    (void)box_product(d->chunk_dims, d->dataspace.rank, d->type.size, &bytes); /* it was checked */
    return bytes;
}

static enum plain_chunks chunks_of(enum index index)
{
    return index == INDEX_ONE        ? CHUNKS_SINGLE
           : index == INDEX_IMPLICIT ? CHUNKS_IN_A_ROW
                                     : CHUNKS_INDEXED;
}

/* What an index needs to know, if it is one that libhdf5 chooses for these dims. */
static bool decode_index(const struct superblock *superblock, struct cursor *c, unsigned flags,
                         struct plain_dataset *d)
{
    enum index index = (enum index)cursor_uint(c, 1);
    int unlimited = unlimited_axes(d);
    d->in_array = index == INDEX_FIXED || index == INDEX_EXTENSIBLE;
    d->index = index;
    d->chunks = chunks_of(index);
    if (flags & FILTERED_SINGLE && index != INDEX_ONE)
        return false;
    switch (index) {
    case INDEX_ONE:
        d->single_bytes =
            flags & FILTERED_SINGLE ? cursor_uint(c, superblock->length_size) : chunk_bytes(d);
        cursor_skip(c, flags & FILTERED_SINGLE ? 4 : 0); /* filter mask */
        return is_one_chunk(d) && (d->n_filters > 0) == ((flags & FILTERED_SINGLE) != 0);
    case INDEX_IMPLICIT:
        return unlimited == 0 && d->n_filters == 0;
    case INDEX_FIXED:
        return are_not_zero(c, 1) && unlimited == 0;
    case INDEX_EXTENSIBLE:
        return are_not_zero(c, 5) && unlimited == 1;
    case INDEX_TREE:
        return cursor_uint(c, 4) != 0 && are_not_zero(c, 2) && unlimited > 1;
    default:
        return false;
    }
}

static bool decode_new_chunks(const struct superblock *superblock, struct cursor *c,
                              struct plain_dataset *d)
{
    unsigned flags = (unsigned)cursor_uint(c, 1);
    int rank = (int)cursor_uint(c, 1) - 1;
    unsigned width = (unsigned)cursor_uint(c, 1);
    d->unfiltered_edges = flags & UNFILTERED_EDGES;
    if (flags & ~(unsigned)(UNFILTERED_EDGES | FILTERED_SINGLE) || rank != d->dataspace.rank ||
        width < 1 || width > 8 || !take_chunk_dims(c, width, d) ||
        !decode_index(superblock, c, flags, d))
        return false;
    d->address = superblock_address(superblock, c);
    return true;
}

/* Versions 3 and 4; the latter has chunks only. Null and scalar dataspaces have none. */
static int decode_layout(const struct superblock *superblock, const struct message *message,
                         struct plain_dataset *d, struct why *why)
{
    struct cursor c = cursor_over(message->data, message->size);
    unsigned version = (unsigned)cursor_uint(&c, 1), class = (unsigned)cursor_uint(&c, 1);
    bool is_plain = all_bytes(d, &d->bytes) && (version == 3 || version == 4) &&
                    (d->n_filters == 0 || class == CLASS_CHUNKED);
    if (is_plain && class == CLASS_COMPACT) {
        is_plain = decode_compact(&c, d);
    } else if (is_plain && class == CLASS_CONTIGUOUS) {
        is_plain = decode_contiguous(superblock, &c, d);
    } else if (is_plain && class == CLASS_CHUNKED && d->dataspace.rank > 0) {
        d->layout = SFS_CHUNKED;
        is_plain = version == 3 ? decode_old_chunks(superblock, &c, d)
                                : decode_new_chunks(superblock, &c, d);
    } else {
        is_plain = false;
    }
    return is_plain && !c.failed ? 0 : unusual(message, "data layout message", why);
}

/* ---- The others ---- */

static int decode_space(const struct superblock *superblock, const struct message *message,
                        struct plain_dataset *d, struct why *why)
{
    struct cursor c = cursor_over(message->data, message->size);
    cursor_skip(&c, 2);
    if (cursor_uint(&c, 1) > 1) /* flags: but for max dims, of old */
        return unusual(message, "dataspace message", why);
    int error = dataspace_decode(superblock, message, &d->dataspace, why);
    /* To libhdf5 four bytes of ones are a number. */
    for (int i = 0; !error && superblock->length_size < 8 && i < d->dataspace.rank; i++)
        if (d->dataspace.max_dims[i] == SFS_UNLIMITED)
            error = unusual(message, "dataspace message", why);
    return error;
}

static bool are_times(unsigned allocation, unsigned fill)
{
    return allocation >= 1 && allocation <= 3 && fill <= 2;
}

static int decode_fill(const struct message *message, struct plain_dataset *d, struct why *why)
{
    struct cursor c = cursor_over(message->data, message->size);
    unsigned version = (unsigned)cursor_uint(&c, 1), first = (unsigned)cursor_uint(&c, 1);
    unsigned second = version == 3 ? 0 : (unsigned)cursor_uint(&c, 1);
    unsigned defined = version == 3 ? 1 : (unsigned)cursor_uint(&c, 1);
    bool is_plain = version == 3 ? first >> 4 <= 2 && are_times(first & 3, first >> 2 & 3)
                                 : version == 2 && are_times(first, second) && defined <= 1;
    bool has_size = version == 3 ? (first & FILL_STORED) != 0 : defined;
    uint64_t size = has_size ? cursor_uint(&c, 4) : 0;
    if (c.failed || !is_plain || (size != 0 && size != d->type.size))
        return unusual(message, "fill value message", why);
    return fill_decode(message, &d->fill, why);
}

static int decode_all(const struct superblock *superblock, const struct object_header *header,
                      struct plain_dataset *d, struct why *why)
{
    const struct message *space = object_header_find(header, MESSAGE_DATASPACE);
    const struct message *type = object_header_find(header, MESSAGE_DATATYPE);
    const struct message *fill = object_header_find(header, MESSAGE_FILL);
    const struct message *layout = object_header_find(header, MESSAGE_LAYOUT);
    const struct message *filters = object_header_find(header, MESSAGE_FILTERS);
    if (!space || !type || type->flags & MESSAGE_SHARED || !fill || !layout)
        return why_unsupported(why, "object header at address %" PRIu64 ": no plain dataset",
                               header->block[0].address);
    d->datatype = *type;
    int error = decode_space(superblock, space, d, why);
    if (!error)
        error = plain_type_decode(type->data, type->size, &d->type, &d->datatype.size, why);
    if (!error)
        error = decode_fill(fill, d, why);
    if (!error && filters)
        error = decode_filters(filters, d, why);
    return error ? error : decode_layout(superblock, layout, d, why);
}

int plain_dataset_decode(const struct superblock *superblock, const struct object_header *header,
                         struct plain_dataset *dataset, struct why *why)
{
    struct plain_dataset d = {.address = NO_ADDRESS};
    int error = decode_all(superblock, header, &d, why);
    if (error)
        plain_dataset_free(&d);
    else
        *dataset = d;
    return error;
}

void plain_dataset_free(struct plain_dataset *dataset)
{
    for (size_t i = 0; i < dataset->n_filters; i++)
        free((void *)dataset->filters[i].values);
    free(dataset->filters);
    plain_type_free(&dataset->type);
    *dataset = (struct plain_dataset){0};
}
