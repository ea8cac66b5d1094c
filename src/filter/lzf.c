/* The LZF filter of h5py. A stream is made of literals, a byte of n < 32 and n + 1 bytes, and of
 * matches with what was made before:
 *
 *   LLLOOOOO OOOOOOOO            L + 2 bytes, L of 1 to 6, from O + 1 bytes before
 *   111OOOOO LLLLLLLL OOOOOOOO   L + 9 bytes
 *
 * Parameters are versions and the bytes of a chunk. */
#include <errno.h>
#include <string.h>

#include "common/cpu_limit.h"
#include "filter/kind.h"

#define ASK_EVERY     ((size_t)1 << 20) /* bytes that were made */
#define MOST_LITERALS 32
#define LEAST_MATCH   3
#define MOST_MATCH    264
#define LONG_MATCH    9 /* from here on a byte of its own has the length */
#define MOST_DISTANCE 8192
#define HASH_BITS     13
#define MOST_BYTES    INT32_MAX /* places have 32 bits */

/* ---- Parameters ---- */

enum { REVISION, VERSION, CHUNK, VALUES };

/* Nothing else says it, but going through all. Where elements have variable length there are no
 * parameters. */
static bool plain_size(const struct sfs_filter *filter, const void *in, size_t in_size,
                       uint64_t *size)
{
    const unsigned char *bytes = in;
    size_t at = 0;
    uint64_t made = 0;
    *size = filter_value(filter, CHUNK, 0);
    while (*size == 0 && at < in_size) {
        size_t control = bytes[at], n = control / 32 + 2, taken = n == LONG_MATCH ? 3 : 2;
        if (control < MOST_LITERALS) {
            n = control + 1;
            taken = 1 + n;
        }
        if (taken > in_size - at)
            return false;
        made += n + (taken == 3 && control >= MOST_LITERALS ? bytes[at + 1] : 0);
        at += taken;
    }
    *size = *size ? *size : made;
    return *size > 0;
}

/* The fourth revision of the filter, version 1.5 of what it compresses by. */
static bool complete(size_t element_size, size_t chunk_bytes, unsigned *values, size_t *n,
                     size_t room)
{
    (void)element_size;
    if (room < VALUES || chunk_bytes > UINT32_MAX)
        return false;
    values[REVISION] = 4;
    values[VERSION] = 0x0105;
    values[CHUNK] = (unsigned)chunk_bytes;
    *n = VALUES;
    return true;
}

/* ---- Decoding ---- */

struct output {
    unsigned char *at;
    size_t made, left;
};

static bool put_match(struct output *output, size_t n, size_t distance)
{
    if (n > output->left || distance > output->made)
        return false;
    const unsigned char *from = output->at - distance;
    if (distance >= n)
        memcpy(output->at, from, n);
    else
        for (size_t i = 0; i < n; i++) /* it goes on with what it makes */
            output->at[i] = from[i];
    output->at += n;
    output->made += n;
    output->left -= n;
    return true;
}

static bool put_literals(struct output *output, const unsigned char *in, size_t n)
{
    if (n > output->left)
        return false;
    memcpy(output->at, in, n);
    output->at += n;
    output->made += n;
    output->left -= n;
    return true;
}

static int decode_most(const struct sfs_filter *filter, const void *in, size_t in_size, void *out,
                       size_t room, size_t *size)
{
    (void)filter;
    const unsigned char *at = in, *end = at + in_size;
    struct output output = {.at = out, .left = room};
    for (size_t next = ASK_EVERY; at < end;) {
        int error = output.made >= next ? cpu_limit_check(ASK_EVERY) : 0;
        if (error)
            return error;
        next += output.made >= next ? ASK_EVERY : 0;
        size_t control = *at++, n = control / 32 + 2;
        if (control < MOST_LITERALS) {
            n = control + 1;
            if ((size_t)(end - at) < n || !put_literals(&output, at, n))
                return -EILSEQ;
            at += n;
            continue;
        }
        size_t more = n == LONG_MATCH;
        if ((size_t)(end - at) < 1 + more)
            return -EILSEQ;
        n += more ? *at++ : 0;
        if (!put_match(&output, n, (control % 32 << 8 | *at++) + 1))
            return -EILSEQ;
    }
    *size = output.made;
    return 0;
}

static int decode(const struct sfs_filter *filter, const void *in, size_t in_size, void *out,
                  size_t size)
{
    size_t made;
    int error = decode_most(filter, in, in_size, out, size, &made);
    return !error && made != size ? -EILSEQ : error;
}

/* ---- Encoding: the last place with the same hash of three bytes is tried ---- */

static uint32_t hash(const unsigned char *p)
{
    uint32_t three = p[0] | (uint32_t)p[1] << 8 | (uint32_t)p[2] << 16;
    return three * 2654435761u >> (32 - HASH_BITS);
}

static size_t match_length(const unsigned char *a, const unsigned char *b, size_t most)
{
    size_t n = 0;
    while (n < most && a[n] == b[n])
        n++;
    return n;
}

static unsigned char *write_literals(const unsigned char *from, const unsigned char *end,
                                     unsigned char *to)
{
    while (from < end) {
        size_t n = end - from < MOST_LITERALS ? (size_t)(end - from) : MOST_LITERALS;
        *to++ = (unsigned char)(n - 1);
        memcpy(to, from, n);
        to += n;
        from += n;
    }
    return to;
}

static unsigned char *write_match(size_t n, size_t distance, unsigned char *to)
{
    size_t offset = distance - 1, length = n < LONG_MATCH ? n - 2 : 7;
    *to++ = (unsigned char)(length << 5 | offset >> 8);
    if (n >= LONG_MATCH)
        *to++ = (unsigned char)(n - LONG_MATCH);
    *to++ = (unsigned char)offset;
    return to;
}

/* `out` has as much room as bound says. */
static size_t compress(const unsigned char *in, size_t size, unsigned char *out)
{
    uint32_t places[1 << HASH_BITS] = {0}; /* behind the first byte; 0: none */
    unsigned char *to = out;
    size_t at = 0, literals = 0;
    while (at + LEAST_MATCH <= size) {
        uint32_t *place = &places[hash(in + at)];
        size_t before = *place, n = 0;
        *place = (uint32_t)at + 1;
        if (before > 0 && at - (before - 1) <= MOST_DISTANCE)
            n = match_length(in + before - 1, in + at,
                             size - at < MOST_MATCH ? size - at : MOST_MATCH);
        if (n < LEAST_MATCH) {
            at++;
            continue;
        }
        to = write_literals(in + literals, in + at, to);
        to = write_match(n, at - (before - 1), to);
        at += n;
        literals = at;
    }
    return (size_t)(write_literals(in + literals, in + size, to) - out);
}

static size_t bound(const struct sfs_filter *filter, size_t size)
{
    (void)filter;
    size_t bytes;
    return __builtin_add_overflow(size, size / MOST_LITERALS + 1, &bytes) ? SIZE_MAX : bytes;
}

/* What does not get smaller is an error of libhdf5's filter, which can be left out if it is
 * optional. */
static int encode(const struct sfs_filter *filter, const void *in, size_t size, void *out,
                  size_t capacity, size_t *out_size)
{
    (void)capacity;
    if (size > MOST_BYTES)
        return -EINVAL;
    *out_size = compress(in, size, out);
    return filter->optional && *out_size > size ? -EINVAL : 0;
}

const struct filter_kind filter_lzf = {
    .id = FILTER_LZF,
    .effect = COMPRESSES,
    .most_inflated = MOST_MATCH / 3,
    .bound = bound,
    .plain_size = plain_size,
    .complete = complete,
    .decode = decode,
    .encode = encode,
    .decode_most = decode_most,
};
