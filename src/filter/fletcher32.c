/* HDF5's Fletcher-32 checksum: over 16-bit big-endian words, an odd last byte padded with zero. */
#include "filter/filter.h"

uint32_t fletcher32(const void *data, size_t size)
{
    const unsigned char *p = data;
    uint32_t sum1 = 0, sum2 = 0;
    for (size_t words = size / 2; words > 0;) {
        /* The most additions before sum2 could exceed 32 bits. */
        size_t batch = words > 360 ? 360 : words;
        words -= batch;
        for (; batch > 0; batch--, p += 2) {
            sum1 += (uint32_t)p[0] << 8 | p[1];
            sum2 += sum1;
        }
        sum1 = (sum1 & 0xFFFF) + (sum1 >> 16);
        sum2 = (sum2 & 0xFFFF) + (sum2 >> 16);
    }
    if (size % 2) {
        sum1 += (uint32_t)*p << 8;
        sum2 += sum1;
        sum1 = (sum1 & 0xFFFF) + (sum1 >> 16);
        sum2 = (sum2 & 0xFFFF) + (sum2 >> 16);
    }
    sum1 = (sum1 & 0xFFFF) + (sum1 >> 16);
    sum2 = (sum2 & 0xFFFF) + (sum2 >> 16);
    return sum2 << 16 | sum1;
}
