#include "common/hash.h"

#include <endian.h>
#include <string.h>
#include <sys/auxv.h>
#include <sys/random.h>

#define WORD         8
#define SECRET_BYTES 16 /* what AT_RANDOM has, too */

static uint64_t secret[2]; /* does not change while there are tables */

static inline uint64_t rotate(uint64_t x, int bits)
{
    return x << bits | x >> (64 - bits);
}

static inline void round_once(uint64_t v[4])
{
    v[0] += v[1];
    v[1] = rotate(v[1], 13) ^ v[0];
    v[0] = rotate(v[0], 32);
    v[2] += v[3];
    v[3] = rotate(v[3], 16) ^ v[2];
    v[0] += v[3];
    v[3] = rotate(v[3], 21) ^ v[0];
    v[2] += v[1];
    v[1] = rotate(v[1], 17) ^ v[2];
    v[2] = rotate(v[2], 32);
}

static inline void take_word(uint64_t v[4], uint64_t word)
{
    v[3] ^= word;
    round_once(v);
    v[0] ^= word;
}

uint64_t hash_siphash(const uint64_t with[2], const void *key, size_t n)
{
    const unsigned char *at = key;
    uint64_t word, last = (uint64_t)n << 56;
    uint64_t v[4] = {with[0] ^ 0x736f6d6570736575u, with[1] ^ 0x646f72616e646f6du,
                     with[0] ^ 0x6c7967656e657261u, with[1] ^ 0x7465646279746573u};
    for (; n >= WORD; n -= WORD, at += WORD) {
        memcpy(&word, at, WORD);
        take_word(v, le64toh(word));
    }
    for (size_t i = 0; i < n; i++)
        last |= (uint64_t)at[i] << (8 * i);
    take_word(v, last);
    v[2] ^= 0xff;
    for (int i = 0; i < 3; i++)
        round_once(v);
    return v[0] ^ v[1] ^ v[2] ^ v[3];
}

uint64_t hash_keyed(const void *key, size_t n)
{
    return hash_siphash(secret, key, n);
}

/* Early in the life of a machine there may be no random bytes but those that the kernel gave the
 * program when it was started. */
void hash_new_secret(void)
{
    const void *given = (const void *)getauxval(AT_RANDOM);
    if (getrandom(secret, SECRET_BYTES, GRND_NONBLOCK) != SECRET_BYTES && given)
        memcpy(secret, given, SECRET_BYTES);
}

/* Before other functions, and so threads, of this library. */
__attribute__((constructor)) static void make_secret(void)
{
    hash_new_secret();
}
