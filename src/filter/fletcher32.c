/* HDF5's Fletcher-32 checksum: over 16-bit big-endian words, an odd last byte padded with zero. The
 * sums are ones' complements: never 0 again once a word was not 0, and indifferent to the order of
 * the bytes. So the words are added in the machine's order, and the sums swapped at the end.
 *
 * LANES words are added side by side, each in a lane of its own:
 *
 *   sum[j]  = w[j] + w[j + LANES] + w[j + 2 LANES] + ...
 *   sums[j] = the sum of all values that sum[j] went through
 *
 * Of n words, word i counts n - i times in the second sum; sums[j] has counted it once for every
 * whole row of LANES words, and sum[j] takes off what is too much within the row. */
#include <errno.h>
#include <string.h>

#include "filter/kind.h"

#define LANES 8
#define ROWS  360 /* the most before a lane of sums could exceed 32 bits */

/* Equal to x modulo 65535; 0 only if x is 0. */
static uint32_t fold(uint64_t x)
{
    x = (x & 0xFFFFFFFF) + (x >> 32);
    x = (x & 0xFFFF) + (x >> 16);
    x = (x & 0xFFFF) + (x >> 16);
    return (uint32_t)((x & 0xFFFF) + (x >> 16));
}

struct sums {
    uint64_t first, second;
};

static void add_word(struct sums *s, uint16_t word)
{
    s->first += word;
    s->second += s->first;
}

static void add_rows(struct sums *s, const unsigned char *p, size_t rows)
{
    uint32_t sum[LANES] = {0}, sums[LANES] = {0};
    for (size_t row = 0; row < rows; row++, p += 2 * LANES) {
        uint16_t words[LANES];
        memcpy(words, p, sizeof(words));
        for (size_t j = 0; j < LANES; j++) {
            sum[j] += words[j];
            sums[j] += sum[j];
        }
    }
    s->second += LANES * rows * s->first;
    for (size_t j = 0; j < LANES; j++) {
        s->first += sum[j];
        s->second += LANES * (uint64_t)sums[j] - j * (uint64_t)sum[j];
    }
    s->first = fold(s->first);
    s->second = fold(s->second);
}

uint32_t fletcher32(const void *data, size_t size)
{
    const unsigned char *p = data;
    struct sums s = {0};
    size_t words = size / 2;
    while (words >= LANES) {
        size_t rows = words / LANES < ROWS ? words / LANES : ROWS;
        add_rows(&s, p, rows);
        p += 2 * LANES * rows;
        words -= LANES * rows;
    }
    for (uint16_t word; words > 0; words--, p += 2) {
        memcpy(&word, p, 2);
        add_word(&s, word);
    }
    if (size % 2) {
        const unsigned char last[2] = {*p, 0};
        uint16_t word;
        memcpy(&word, last, 2);
        add_word(&s, word);
    }
    uint32_t checksum = fold(s.second) << 16 | fold(s.first);
#if __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__
    checksum = (checksum & 0x00FF00FF) << 8 | (checksum & 0xFF00FF00) >> 8;
#endif
    return checksum;
}

#define CHECKSUM_BYTES 4

static uint32_t load_le32(const unsigned char *p)
{
    return p[0] | (uint32_t)p[1] << 8 | (uint32_t)p[2] << 16 | (uint32_t)p[3] << 24;
}

static void store_le32(unsigned char *p, uint32_t value)
{
    for (int i = 0; i < 4; i++)
        p[i] = (unsigned char)(value >> 8 * i);
}

static int decode(const struct sfs_filter *filter, const void *in, size_t in_size, void *out,
                  size_t size)
{
    (void)filter, (void)in_size, (void)out;
    uint32_t stored = load_le32((const unsigned char *)in + size);
    uint32_t sum = fletcher32(in, size);
    /* HDF5 1.6.2 and before stored the bytes of each half the other way round on little-endian
     * machines; libhdf5 accepts that too. */
    uint32_t swapped = (sum & 0x00FF00FF) << 8 | (sum & 0xFF00FF00) >> 8;
    return sum == stored || swapped == stored ? 0 : -EILSEQ;
}

static int encode(const struct sfs_filter *filter, const void *in, size_t size, void *out,
                  size_t capacity, size_t *out_size)
{
    (void)filter, (void)capacity;
    store_le32(out, fletcher32(in, size));
    *out_size = CHECKSUM_BYTES;
    return 0;
}

const struct filter_kind filter_fletcher32 = {
    .id = FILTER_FLETCHER32,
    .effect = APPENDS,
    .appended = CHECKSUM_BYTES,
    .decode = decode,
    .encode = encode,
};
