/* Comparing elements, 64 at a time. Knows nothing of what is made of the results. */
#include "cli/defined_bits.h"

#include <string.h>

/* ---- Plain C, of which compilers make what vectors all processors have ---- */

/* One bit for each of 64 bytes that are 0 or 1. */
static uint64_t bits_of(const uint8_t *keep)
{
    uint64_t bits = 0;
    for (int i = 0; i < COMPARED / 8; i++) {
        uint64_t eight = 0;
        for (int k = 0; k < 8; k++)
            eight |= (uint64_t)keep[8 * i + k] << 8 * k;
        bits |= (eight * 0x0102040810204080 >> 56) << 8 * i;
    }
    return bits;
}

/* Elements are copied to where vector loads may read them, which compilers see through. */
#define DIFFER(bits)                                                                               \
    static void differ_##bits(const void *elements, uint64_t value, size_t n, uint64_t *words)     \
    {                                                                                              \
        uint##bits##_t e[COMPARED], v = (uint##bits##_t)value;                                     \
        uint8_t keep[COMPARED];                                                                    \
        for (size_t w = 0; w < n; w++) {                                                           \
            memcpy(e, (const char *)elements + w * sizeof(e), sizeof(e));                          \
            for (size_t i = 0; i < COMPARED; i++)                                                  \
                keep[i] = e[i] != v;                                                               \
            words[w] = bits_of(keep);                                                              \
        }                                                                                          \
    }

#define NUMBER(bits, sign, infinity)                                                               \
    static void number_##bits(const void *elements, uint64_t swapped, size_t n, uint64_t *words)   \
    {                                                                                              \
        uint##bits##_t e[COMPARED];                                                                \
        uint8_t keep[COMPARED];                                                                    \
        for (size_t w = 0; w < n; w++) {                                                           \
            memcpy(e, (const char *)elements + w * sizeof(e), sizeof(e));                          \
            for (size_t i = 0; swapped && i < COMPARED; i++)                                       \
                e[i] = __builtin_bswap##bits(e[i]);                                                \
            for (size_t i = 0; i < COMPARED; i++)                                                  \
                keep[i] = (uint##bits##_t)(e[i] & ~(sign)) <= (infinity);                          \
            words[w] = bits_of(keep);                                                              \
        }                                                                                          \
    }

DIFFER(8)
DIFFER(16)
DIFFER(32)
DIFFER(64)
NUMBER(16, (uint16_t)0x8000, 0x7c00)
NUMBER(32, (uint32_t)0x80000000, 0x7f800000)
NUMBER(64, (uint64_t)1 << 63, (uint64_t)0x7ff << 52)

static const struct compare plain = {
    "plain", {differ_8, differ_16, differ_32, differ_64}, {NULL, number_16, number_32, number_64}};

#if defined(__x86_64__) || defined(__i386__)

#include <immintrin.h>

#define WITH_AVX2   __attribute__((target("avx2")))
#define WITHIN_AVX2 __attribute__((target("avx2"), always_inline)) static inline

WITHIN_AVX2 __m256i load(const char *at, size_t i)
{
    return _mm256_loadu_si256((const __m256i *)at + i);
}

/* Bits of the 64 bytes of two registers. */
WITHIN_AVX2 uint64_t mask_of(__m256i low, __m256i high)
{
    return (uint32_t)_mm256_movemask_epi8(low) | (uint64_t)(uint32_t)_mm256_movemask_epi8(high)
                                                     << 32;
}

/* Packing takes turns between the halves of registers: after one of them quarters 0, 2, 1, 3 are in
 * order, after two of them double words 0, 4, 1, 5, 2, 6, 3, 7. */
WITHIN_AVX2 __m256i equal_16(const char *at, __m256i value)
{
    __m256i both = _mm256_packs_epi16(_mm256_cmpeq_epi16(load(at, 0), value),
                                      _mm256_cmpeq_epi16(load(at, 1), value));
    return _mm256_permute4x64_epi64(both, 0xD8);
}

WITHIN_AVX2 __m256i equal_32(const char *at, __m256i value)
{
    const __m256i order = _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7);
    __m256i low = _mm256_packs_epi32(_mm256_cmpeq_epi32(load(at, 0), value),
                                     _mm256_cmpeq_epi32(load(at, 1), value));
    __m256i high = _mm256_packs_epi32(_mm256_cmpeq_epi32(load(at, 2), value),
                                      _mm256_cmpeq_epi32(load(at, 3), value));
    return _mm256_permutevar8x32_epi32(_mm256_packs_epi16(low, high), order);
}

WITH_AVX2
static void avx2_differ_8(const void *elements, uint64_t value, size_t n, uint64_t *words)
{
    const __m256i v = _mm256_set1_epi8((char)value);
    const char *at = elements;
    for (size_t i = 0; i < n; i++, at += COMPARED)
        words[i] = ~mask_of(_mm256_cmpeq_epi8(load(at, 0), v), _mm256_cmpeq_epi8(load(at, 1), v));
}

WITH_AVX2
static void avx2_differ_16(const void *elements, uint64_t value, size_t n, uint64_t *words)
{
    const __m256i v = _mm256_set1_epi16((short)value);
    const char *at = elements;
    for (size_t i = 0; i < n; i++, at += 2 * COMPARED)
        words[i] = ~mask_of(equal_16(at, v), equal_16(at + COMPARED, v));
}

WITH_AVX2
static void avx2_differ_32(const void *elements, uint64_t value, size_t n, uint64_t *words)
{
    const __m256i v = _mm256_set1_epi32((int)value);
    const char *at = elements;
    for (size_t i = 0; i < n; i++, at += 4 * COMPARED)
        words[i] = ~mask_of(equal_32(at, v), equal_32(at + 2 * COMPARED, v));
}

WITH_AVX2
static void avx2_differ_64(const void *elements, uint64_t value, size_t n, uint64_t *words)
{
    const __m256i v = _mm256_set1_epi64x((long long)value);
    const char *at = elements;
    for (size_t i = 0; i < n; i++) {
        uint64_t equal = 0;
        for (unsigned k = 0; k < COMPARED / 4; k++, at += sizeof(v)) {
            __m256d four = _mm256_castsi256_pd(_mm256_cmpeq_epi64(load(at, 0), v));
            equal |= (uint64_t)(unsigned)_mm256_movemask_pd(four) << 4 * k;
        }
        words[i] = ~equal;
    }
}

static const struct compare avx2 = {
    "avx2", {avx2_differ_8, avx2_differ_16, avx2_differ_32, avx2_differ_64}, {NULL}};

const struct compare *compare_way(size_t i)
{
    if (i == 0)
        return &plain;
    return i == 1 && __builtin_cpu_supports("avx2") ? &avx2 : NULL;
}

#else

const struct compare *compare_way(size_t i)
{
    return i == 0 ? &plain : NULL;
}

#endif

static int log_of(size_t size)
{
    return size == 1 ? 0 : size == 2 ? 1 : size == 4 ? 2 : size == 8 ? 3 : -1;
}

compare_function compare_differ(size_t size)
{
    compare_function best = NULL;
    int log = log_of(size);
    for (size_t i = 0; log >= 0 && compare_way(i); i++)
        best = compare_way(i)->differ[log] ? compare_way(i)->differ[log] : best;
    return best;
}

compare_function compare_number(size_t size)
{
    compare_function best = NULL;
    int log = log_of(size);
    for (size_t i = 0; log >= 0 && compare_way(i); i++)
        best = compare_way(i)->number[log] ? compare_way(i)->number[log] : best;
    return best;
}
