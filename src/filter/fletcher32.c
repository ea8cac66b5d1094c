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
#include <string.h>

#include "filter/filter.h"

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
