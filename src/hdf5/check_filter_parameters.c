/* What libhdf5's own filters do not check: they take sizes and numbers of elements from their
 * parameters and from the first bytes of the data, and then read and write as much as these say.
 * Fletcher32, szip (by way of libaec), nbit and scale-offset do, as of libhdf5 1.10.8. Parameters
 * as in the filter pipeline message of the HDF5 File Format Specification (IV.A.2.l) and as
 * libhdf5 writes them. */
#include "hdf5/private.h"

#define CHECKSUM_BYTES 4

static uint32_t load_le32(const unsigned char *p)
{
    return p[0] | (uint32_t)p[1] << 8 | (uint32_t)p[2] << 16 | (uint32_t)p[3] << 24;
}

/* ---- szip: its data begin with the size of what they decode to ---- */

enum { SZIP_MASK, SZIP_BLOCK, SZIP_BITS, SZIP_LINE, SZIP_VALUES };

static bool szip_makes_sense(const struct sfs_filter *filter)
{
    if (filter->n_values != SZIP_VALUES)
        return false;
    unsigned block = filter->values[SZIP_BLOCK], line = filter->values[SZIP_LINE];
    unsigned bits = filter->values[SZIP_BITS];
    return block >= 2 && block <= 32 && block % 2 == 0 && line >= 1 && line <= 128 * block &&
           ((bits >= 1 && bits <= 32) || bits == 64);
}

static size_t szip_pixel_bytes(const struct sfs_filter *filter)
{
    unsigned bits = filter->values[SZIP_BITS];
    return bits > 32 ? 8 : bits > 16 ? 4 : bits > 8 ? 2 : 1;
}

static bool szip_decodes(const struct sfs_filter *filter, const unsigned char *bytes, size_t n,
                         size_t most)
{
    if (!szip_makes_sense(filter) || n <= 4)
        return false;
    uint32_t made = load_le32(bytes);
    return made > 0 && made <= most && made % szip_pixel_bytes(filter) == 0;
}

/* ---- nbit: parameters are their own number, whether nothing is to be done, the number of
 * elements, and then the datatype as a tree ---- */

enum { NBIT_COUNT, NBIT_NOTHING, NBIT_ELEMENTS, NBIT_TYPE };
enum { NBIT_ATOMIC = 1, NBIT_ARRAY, NBIT_COMPOUND, NBIT_NOOP };

#define NBIT_DEPTH 32 /* of a datatype: libhdf5 follows it by recursion, too */

struct nbit_reader {
    const unsigned *values;
    size_t left;
};

static bool take(struct nbit_reader *reader, uint64_t *value)
{
    if (reader->left == 0)
        return false;
    *value = *reader->values++;
    reader->left--;
    return true;
}

static bool nbit_type(struct nbit_reader *reader, int depth, uint64_t *size, uint64_t *bits);

static bool nbit_atomic(struct nbit_reader *reader, uint64_t size, uint64_t *bits)
{
    uint64_t order, offset;
    return take(reader, &order) && take(reader, bits) && take(reader, &offset) && order <= 1 &&
           *bits > 0 && *bits + offset <= 8 * size;
}

static bool nbit_array(struct nbit_reader *reader, int depth, uint64_t size, uint64_t *bits)
{
    uint64_t base_size, base_bits;
    if (!nbit_type(reader, depth, &base_size, &base_bits) || size % base_size != 0)
        return false;
    *bits = size / base_size * base_bits;
    return true;
}

static bool nbit_compound(struct nbit_reader *reader, int depth, uint64_t size, uint64_t *bits)
{
    uint64_t members, offset, member_size, member_bits, used = 0;
    if (!take(reader, &members))
        return false;
    for (*bits = 0; members > 0; members--) {
        if (!take(reader, &offset) || !nbit_type(reader, depth, &member_size, &member_bits))
            return false;
        used += member_size;
        *bits += member_bits;
        if (offset + member_size > size || used > size)
            return false;
    }
    return true;
}

/* The bytes of an element of the type that comes next, and the bits that it is packed into, which
 * are never more. */
static bool nbit_type(struct nbit_reader *reader, int depth, uint64_t *size, uint64_t *bits)
{
    uint64_t class;
    if (depth > NBIT_DEPTH || !take(reader, &class) || !take(reader, size) || *size == 0)
        return false;
    switch (class) {
    case NBIT_ATOMIC:
        return nbit_atomic(reader, *size, bits);
    case NBIT_ARRAY:
        return nbit_array(reader, depth + 1, *size, bits);
    case NBIT_COMPOUND:
        return nbit_compound(reader, depth + 1, *size, bits);
    case NBIT_NOOP:
        *bits = 8 * *size;
        return true;
    default:
        return false;
    }
}

/* The bytes that all elements have, and the bits that they are packed into; false if the parameters
 * make no sense or the bytes exceed most. */
static bool nbit_sizes(const struct sfs_filter *filter, size_t most, uint64_t *bytes,
                       uint64_t *packed_bits)
{
    struct nbit_reader reader = {.values = filter->values, .left = filter->n_values};
    uint64_t head[NBIT_TYPE], size, bits;
    for (int i = 0; i < NBIT_TYPE; i++)
        if (!take(&reader, &head[i]))
            return false;
    if (head[NBIT_COUNT] != filter->n_values || !nbit_type(&reader, 0, &size, &bits) ||
        head[NBIT_ELEMENTS] == 0 || size > most / head[NBIT_ELEMENTS])
        return false;
    *bytes = head[NBIT_ELEMENTS] * size;
    *packed_bits = head[NBIT_ELEMENTS] * bits;
    return *bytes <= UINT32_MAX;
}

static bool nbit_does_nothing(const struct sfs_filter *filter)
{
    return filter->n_values > NBIT_NOTHING && filter->values[NBIT_COUNT] == filter->n_values &&
           filter->values[NBIT_NOTHING] != 0;
}

/* ---- Scale-offset: data begin with the bits of an element and the smallest value ---- */

enum {
    SCALE_TYPE,
    SCALE_FACTOR,
    SCALE_ELEMENTS,
    SCALE_CLASS,
    SCALE_SIZE,
    SCALE_SIGN,
    SCALE_ORDER,
    SCALE_FILL,
    SCALE_VALUES = 20
};
enum { SCALE_FLOAT_DECIMAL, SCALE_FLOAT_BINARY, SCALE_INTEGER };

#define SCALE_HEAD_BYTES 21

static bool scale_makes_sense(const struct sfs_filter *filter, size_t most, uint64_t *bytes)
{
    if (filter->n_values != SCALE_VALUES)
        return false;
    const unsigned *values = filter->values;
    uint64_t elements = values[SCALE_ELEMENTS], size = values[SCALE_SIZE];
    bool is_integer = values[SCALE_CLASS] == 0 && values[SCALE_TYPE] == SCALE_INTEGER &&
                      (size == 1 || size == 2 || size == 4 || size == 8);
    bool is_float = values[SCALE_CLASS] == 1 && values[SCALE_TYPE] == SCALE_FLOAT_DECIMAL &&
                    (size == 4 || size == 8);
    if ((!is_integer && !is_float) || values[SCALE_SIGN] > 1 || values[SCALE_ORDER] > 1 ||
        values[SCALE_FILL] > 1 || elements == 0 || elements > most / size ||
        (is_integer && values[SCALE_FACTOR] > 8 * size))
        return false;
    *bytes = elements * size;
    return *bytes <= UINT32_MAX - SCALE_HEAD_BYTES;
}

static bool scale_decodes(const struct sfs_filter *filter, const unsigned char *bytes, size_t n,
                          size_t most)
{
    uint64_t all;
    if (!scale_makes_sense(filter, most, &all))
        return false;
    uint64_t full = 8 * (uint64_t)filter->values[SCALE_SIZE];
    if (filter->values[SCALE_TYPE] == SCALE_INTEGER && filter->values[SCALE_FACTOR] == full)
        return true; /* the data are as they were */
    if (n < SCALE_HEAD_BYTES)
        return false;
    uint64_t bits = load_le32(bytes);
    return bits <= full && (filter->values[SCALE_ELEMENTS] * bits + 7) / 8 <= n - SCALE_HEAD_BYTES;
}

bool filter_check_decode(const struct sfs_filter *filter, const void *bytes, size_t n, size_t most)
{
    uint64_t all, packed_bits;
    switch (filter->id) {
    case H5Z_FILTER_FLETCHER32:
        return n > CHECKSUM_BYTES;
    case H5Z_FILTER_SZIP:
        return szip_decodes(filter, bytes, n, most);
    case H5Z_FILTER_NBIT:
        return nbit_does_nothing(filter) ||
               (nbit_sizes(filter, most, &all, &packed_bits) && (packed_bits + 7) / 8 <= n);
    case H5Z_FILTER_SCALEOFFSET:
        return scale_decodes(filter, bytes, n, most);
    default:
        return true;
    }
}

bool filter_check_encode(const struct sfs_filter *filter, size_t n)
{
    uint64_t all, packed_bits;
    switch (filter->id) {
    case H5Z_FILTER_SZIP:
        return szip_makes_sense(filter) && n % szip_pixel_bytes(filter) == 0;
    case H5Z_FILTER_NBIT:
        /* Behind a last byte that is full it counts one more. */
        return nbit_does_nothing(filter) ||
               (nbit_sizes(filter, n, &all, &packed_bits) && all == n && packed_bits / 8 < n);
    case H5Z_FILTER_SCALEOFFSET:
        return scale_makes_sense(filter, n, &all) && all == n;
    default:
        return true;
    }
}
