/* Jenkins' lookup3 over bytes, independent of alignment and of the byte order of the machine. */
#include "format/checksum.h"

#include <endian.h>
#include <string.h>

static uint32_t rotate(uint32_t x, unsigned bits)
{
    return x << bits | x >> (32 - bits);
}

static void add_words(uint32_t state[3], const unsigned char bytes[12])
{
    uint32_t words[3];
    memcpy(words, bytes, sizeof(words));
    for (int i = 0; i < 3; i++)
        state[i] += le32toh(words[i]);
}

uint32_t checksum(const void *bytes, size_t n)
{
    const unsigned char *p = bytes;
    uint32_t s[3];
    s[0] = s[1] = s[2] = 0xdeadbeef + (uint32_t)n;
    if (n == 0)
        return s[2];

    /* Step by step, with names: every step waits for the one before, and nothing else may. */
    uint32_t a = s[0], b = s[1], c = s[2];
    for (; n > 12; n -= 12, p += 12) {
        uint32_t words[3];
        memcpy(words, p, sizeof(words));
        a += le32toh(words[0]);
        b += le32toh(words[1]);
        c += le32toh(words[2]);
        a = (a - c) ^ rotate(c, 4), c += b;
        b = (b - a) ^ rotate(a, 6), a += c;
        c = (c - b) ^ rotate(b, 8), b += a;
        a = (a - c) ^ rotate(c, 16), c += b;
        b = (b - a) ^ rotate(a, 19), a += c;
        c = (c - b) ^ rotate(b, 4), b += a;
    }
    s[0] = a, s[1] = b, s[2] = c;

    unsigned char rest[12] = {0};
    memcpy(rest, p, n);
    add_words(s, rest);
    static const unsigned char last[7] = {14, 11, 25, 16, 4, 14, 24};
    for (int i = 0; i < 7; i++) {
        uint32_t *x = &s[(i + 2) % 3], y = s[(i + 1) % 3];
        *x = (*x ^ y) - rotate(y, last[i]);
    }
    return s[2];
}
