/* Turning the bits of a byte plane: in plain C, and with the vectors of x86 and ARM processors, of
 * which the widest there are is chosen when the program runs. */
#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#include "filter/transpose.h"

/* ---- Plain C: eight bytes at a time ---- */

/* Byte r of the word is row r, its bit b column b; they change places. Each step exchanges two
 * squares beside the diagonal, of 1, 2 and 4 bits. */
static uint64_t turn(uint64_t x)
{
    uint64_t t = (x ^ x >> 7) & 0x00AA00AA00AA00AA;
    x ^= t ^ t << 7;
    t = (x ^ x >> 14) & 0x0000CCCC0000CCCC;
    x ^= t ^ t << 14;
    t = (x ^ x >> 28) & 0x00000000F0F0F0F0;
    return x ^ t ^ t << 28;
}

static void plain_to_plane(const unsigned char *rows, size_t step, size_t columns,
                           unsigned char *plane)
{
    for (size_t c = 0; c < columns; c++) {
        uint64_t x = 0;
        for (unsigned r = 0; r < 8; r++)
            x |= (uint64_t)rows[r * step + c] << 8 * r;
        x = turn(x);
        for (unsigned b = 0; b < 8; b++)
            plane[8 * c + b] = (unsigned char)(x >> 8 * b);
    }
}

static void plain_to_rows(const unsigned char *plane, size_t columns, unsigned char *rows,
                          size_t step)
{
    for (size_t c = 0; c < columns; c++) {
        uint64_t x = 0;
        for (unsigned b = 0; b < 8; b++)
            x |= (uint64_t)plane[8 * c + b] << 8 * b;
        x = turn(x);
        for (unsigned r = 0; r < 8; r++)
            rows[r * step + c] = (unsigned char)(x >> 8 * r);
    }
}

static const struct transpose plain = {"plain", plain_to_plane, plain_to_rows};

#if defined(__x86_64__) || defined(__i386__)

#include <immintrin.h>

#define WITH(INSTRUCTIONS)   __attribute__((target(INSTRUCTIONS)))
#define WITHIN(INSTRUCTIONS) __attribute__((target(INSTRUCTIONS), always_inline)) static inline

/* ---- To a plane: bits change places between eight rows in registers, squares of 4, 2 and 1 bits
 * beside the diagonal; byte c of register b is then plane[8 * c + b], and the bytes of the
 * registers are interleaved. ---- */

#define SSE2_EXCHANGE(A, B, N, MASK)                                                               \
    do {                                                                                           \
        __m128i t = _mm_and_si128(_mm_xor_si128(_mm_srli_epi64((A), (N)), (B)), (MASK));           \
        (B) = _mm_xor_si128((B), t);                                                               \
        (A) = _mm_xor_si128((A), _mm_slli_epi64(t, (N)));                                          \
    } while (0)

WITHIN("sse2") void sse2_turn(__m128i v[8])
{
    const __m128i four = _mm_set1_epi8(0x0F), two = _mm_set1_epi8(0x33), one = _mm_set1_epi8(0x55);
    for (int i = 0; i < 4; i++)
        SSE2_EXCHANGE(v[i], v[i + 4], 4, four);
    for (int i = 0; i < 8; i += i % 4 == 1 ? 3 : 1)
        SSE2_EXCHANGE(v[i], v[i + 2], 2, two);
    for (int i = 0; i < 8; i += 2)
        SSE2_EXCHANGE(v[i], v[i + 1], 1, one);
}

/* 16 columns. */
WITHIN("sse2") void sse2_interleave(const __m128i v[8], unsigned char *plane)
{
    __m128i a[8], b[8];
    for (int i = 0; i < 4; i++) {
        a[i] = _mm_unpacklo_epi8(v[2 * i], v[2 * i + 1]);
        a[i + 4] = _mm_unpackhi_epi8(v[2 * i], v[2 * i + 1]);
    }
    for (int i = 0; i < 8; i += 4)
        for (int k = 0; k < 2; k++) {
            b[i + k] = _mm_unpacklo_epi16(a[i + 2 * k], a[i + 2 * k + 1]);
            b[i + k + 2] = _mm_unpackhi_epi16(a[i + 2 * k], a[i + 2 * k + 1]);
        }
    for (int i = 0; i < 4; i++) {
        __m128i low = _mm_unpacklo_epi32(b[2 * i], b[2 * i + 1]);
        __m128i high = _mm_unpackhi_epi32(b[2 * i], b[2 * i + 1]);
        _mm_storeu_si128((__m128i *)(plane + 32 * i), low);
        _mm_storeu_si128((__m128i *)(plane + 32 * i + 16), high);
    }
}

WITH("sse2")
static void sse2_to_plane(const unsigned char *rows, size_t step, size_t columns,
                          unsigned char *plane)
{
    size_t c = 0;
    for (; c + 16 <= columns; c += 16) {
        __m128i v[8];
        for (int r = 0; r < 8; r++)
            v[r] = _mm_loadu_si128((const __m128i *)(rows + r * step + c));
        sse2_turn(v);
        sse2_interleave(v, plane + 8 * c);
    }
    plain_to_plane(rows + c, step, columns - c, plane + 8 * c);
}

#define AVX2_EXCHANGE(A, B, N, MASK)                                                               \
    do {                                                                                           \
        __m256i t = _mm256_and_si256(_mm256_xor_si256(_mm256_srli_epi64((A), (N)), (B)), (MASK));  \
        (B) = _mm256_xor_si256((B), t);                                                            \
        (A) = _mm256_xor_si256((A), _mm256_slli_epi64(t, (N)));                                    \
    } while (0)

WITHIN("avx2") void avx2_turn(__m256i v[8])
{
    const __m256i four = _mm256_set1_epi8(0x0F), two = _mm256_set1_epi8(0x33),
                  one = _mm256_set1_epi8(0x55);
    for (int i = 0; i < 4; i++)
        AVX2_EXCHANGE(v[i], v[i + 4], 4, four);
    for (int i = 0; i < 8; i += i % 4 == 1 ? 3 : 1)
        AVX2_EXCHANGE(v[i], v[i + 2], 2, two);
    for (int i = 0; i < 8; i += 2)
        AVX2_EXCHANGE(v[i], v[i + 1], 1, one);
}

/* 32 columns: the halves of a register are 16 columns each. */
WITHIN("avx2") void avx2_interleave(const __m256i v[8], unsigned char *plane)
{
    __m256i a[8], b[8];
    for (int i = 0; i < 4; i++) {
        a[i] = _mm256_unpacklo_epi8(v[2 * i], v[2 * i + 1]);
        a[i + 4] = _mm256_unpackhi_epi8(v[2 * i], v[2 * i + 1]);
    }
    for (int i = 0; i < 8; i += 4)
        for (int k = 0; k < 2; k++) {
            b[i + k] = _mm256_unpacklo_epi16(a[i + 2 * k], a[i + 2 * k + 1]);
            b[i + k + 2] = _mm256_unpackhi_epi16(a[i + 2 * k], a[i + 2 * k + 1]);
        }
    for (int i = 0; i < 4; i++) {
        __m256i low = _mm256_unpacklo_epi32(b[2 * i], b[2 * i + 1]);
        __m256i high = _mm256_unpackhi_epi32(b[2 * i], b[2 * i + 1]);
        _mm256_storeu_si256((__m256i *)(plane + 32 * i),
                            _mm256_permute2x128_si256(low, high, 0x20));
        _mm256_storeu_si256((__m256i *)(plane + 128 + 32 * i),
                            _mm256_permute2x128_si256(low, high, 0x31));
    }
}

WITH("avx2")
static void avx2_to_plane(const unsigned char *rows, size_t step, size_t columns,
                          unsigned char *plane)
{
    size_t c = 0;
    for (; c + 32 <= columns; c += 32) {
        __m256i v[8];
        for (int r = 0; r < 8; r++)
            v[r] = _mm256_loadu_si256((const __m256i *)(rows + r * step + c));
        avx2_turn(v);
        avx2_interleave(v, plane + 8 * c);
    }
    sse2_to_plane(rows + c, step, columns - c, plane + 8 * c);
}

/* ---- To rows: the highest bits of all bytes, eight times ---- */

WITH("sse2")
static void sse2_to_rows(const unsigned char *plane, size_t columns, unsigned char *rows,
                         size_t step)
{
    size_t c = 0;
    for (; c + 2 <= columns; c += 2) {
        __m128i v = _mm_loadu_si128((const __m128i *)(plane + 8 * c));
        for (int r = 7; r >= 0; r--, v = _mm_add_epi8(v, v)) {
            uint16_t bits = (uint16_t)_mm_movemask_epi8(v);
            memcpy(rows + r * step + c, &bits, sizeof(bits));
        }
    }
    plain_to_rows(plane + 8 * c, columns - c, rows + c, step);
}

WITH("avx2")
static void avx2_to_rows(const unsigned char *plane, size_t columns, unsigned char *rows,
                         size_t step)
{
    size_t c = 0;
    for (; c + 4 <= columns; c += 4) {
        __m256i v = _mm256_loadu_si256((const __m256i *)(plane + 8 * c));
        for (int r = 7; r >= 0; r--, v = _mm256_add_epi8(v, v)) {
            uint32_t bits = (uint32_t)_mm256_movemask_epi8(v);
            memcpy(rows + r * step + c, &bits, sizeof(bits));
        }
    }
    plain_to_rows(plane + 8 * c, columns - c, rows + c, step);
}

static const struct transpose sse2 = {"sse2", sse2_to_plane, sse2_to_rows};
static const struct transpose avx2 = {"avx2", avx2_to_plane, avx2_to_rows};

const struct transpose *transpose_way(size_t i)
{
    if (i == 0)
        return &plain;
    if (i == 1)
        return __builtin_cpu_supports("sse2") ? &sse2 : NULL;
    return i == 2 && __builtin_cpu_supports("avx2") ? &avx2 : NULL;
}

/* 64-bit ARM processors all have the vectors, of the others some; for those gcc alone compiles
 * single functions. */
#elif (defined(__aarch64__) ||                                                                     \
       (defined(__ARM_PCS_VFP) && __ARM_ARCH >= 7 && !defined(__clang__))) &&                      \
    !defined(__ARM_BIG_ENDIAN)

#include <arm_neon.h>

#ifdef __aarch64__
#define NEON static
static bool has_neon(void)
{
    return true;
}
#else
#include <asm/hwcap.h>
#include <sys/auxv.h>
#define NEON __attribute__((target("fpu=neon"))) static
static bool has_neon(void)
{
    return getauxval(AT_HWCAP) & HWCAP_NEON;
}
#endif

#define NEON_EXCHANGE(A, B, N, MASK)                                                               \
    do {                                                                                           \
        uint8x16_t a = (A);                                                                        \
        (A) = vbslq_u8((MASK), a, vshlq_n_u8((B), (N)));                                           \
        (B) = vbslq_u8((MASK), vshrq_n_u8(a, (N)), (B));                                           \
    } while (0)

/* Squares of 4, 2 and 1 bits as above; twice, and all is as before. */
NEON inline __attribute__((always_inline)) void neon_turn(uint8x16_t v[8])
{
    const uint8x16_t four = vdupq_n_u8(0x0F), two = vdupq_n_u8(0x33), one = vdupq_n_u8(0x55);
    for (int i = 0; i < 4; i++)
        NEON_EXCHANGE(v[i], v[i + 4], 4, four);
    for (int i = 0; i < 8; i += i % 4 == 1 ? 3 : 1)
        NEON_EXCHANGE(v[i], v[i + 2], 2, two);
    for (int i = 0; i < 8; i += 2)
        NEON_EXCHANGE(v[i], v[i + 1], 1, one);
}

/* 16 columns at a time. Registers i and i + 4 are interleaved by bytes; to interleave four such by
 * bytes again is how the processor stores them, and how it loads them to take them apart. */
NEON void neon_to_plane(const unsigned char *rows, size_t step, size_t columns,
                        unsigned char *plane)
{
    size_t c = 0;
    for (; c + 16 <= columns; c += 16) {
        uint8x16_t v[8];
        for (int r = 0; r < 8; r++)
            v[r] = vld1q_u8(rows + r * step + c);
        neon_turn(v);
        uint8x16x4_t low, high;
        for (int i = 0; i < 4; i++) {
            uint8x16x2_t two = vzipq_u8(v[i], v[i + 4]);
            low.val[i] = two.val[0];
            high.val[i] = two.val[1];
        }
        vst4q_u8(plane + 8 * c, low);
        vst4q_u8(plane + 8 * c + 64, high);
    }
    plain_to_plane(rows + c, step, columns - c, plane + 8 * c);
}

NEON void neon_to_rows(const unsigned char *plane, size_t columns, unsigned char *rows, size_t step)
{
    size_t c = 0;
    for (; c + 16 <= columns; c += 16) {
        uint8x16_t v[8];
        uint8x16x4_t low = vld4q_u8(plane + 8 * c), high = vld4q_u8(plane + 8 * c + 64);
        for (int i = 0; i < 4; i++) {
            uint8x16x2_t two = vuzpq_u8(low.val[i], high.val[i]);
            v[i] = two.val[0];
            v[i + 4] = two.val[1];
        }
        neon_turn(v);
        for (int r = 0; r < 8; r++)
            vst1q_u8(rows + r * step + c, v[r]);
    }
    plain_to_rows(plane + 8 * c, columns - c, rows + c, step);
}

static const struct transpose neon = {"neon", neon_to_plane, neon_to_rows};

const struct transpose *transpose_way(size_t i)
{
    if (i == 0)
        return &plain;
    return i == 1 && has_neon() ? &neon : NULL;
}

#else

const struct transpose *transpose_way(size_t i)
{
    return i == 0 ? &plain : NULL;
}

#endif

static const struct transpose *fastest(void)
{
    static const struct transpose *found; /* all threads find the same */
    const struct transpose *best = __atomic_load_n(&found, __ATOMIC_RELAXED);
    if (best)
        return best;
    for (size_t i = 0; transpose_way(i); i++)
        best = transpose_way(i);
    __atomic_store_n(&found, best, __ATOMIC_RELAXED);
    return best;
}

void transpose_to_plane(const unsigned char *rows, size_t step, size_t columns,
                        unsigned char *plane)
{
    fastest()->to_plane(rows, step, columns, plane);
}

void transpose_to_rows(const unsigned char *plane, size_t columns, unsigned char *rows, size_t step)
{
    fastest()->to_rows(plane, columns, rows, step);
}
