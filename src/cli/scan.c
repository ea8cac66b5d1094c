/* Comparing elements, 64 at a time, and making intervals of the results. */
#include "cli/scan.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define BATCH 64

/* ---- Comparing ---- */

static uint64_t swap(uint64_t bits, size_t size)
{
    return size == 2   ? __builtin_bswap16((uint16_t)bits)
           : size == 4 ? __builtin_bswap32((uint32_t)bits)
                       : __builtin_bswap64(bits);
}

/* keep[i] = whether element i differs from the value, or is no NaN. Elements may lie anywhere: they
 * are copied to where vector loads may read them, which compilers see through. */
#define COMPARE(bits)                                                                              \
    static void differ_##bits(const void *elements, uint64_t value, uint8_t *keep)                 \
    {                                                                                              \
        uint##bits##_t e[BATCH], v = (uint##bits##_t)value;                                        \
        memcpy(e, elements, sizeof(e));                                                            \
        for (size_t i = 0; i < BATCH; i++)                                                         \
            keep[i] = e[i] != v;                                                                   \
    }

#define COMPARE_NAN(bits, sign, infinity)                                                          \
    static void number_##bits(const void *elements, uint64_t swapped, uint8_t *keep)               \
    {                                                                                              \
        uint##bits##_t e[BATCH];                                                                   \
        memcpy(e, elements, sizeof(e));                                                            \
        if (swapped)                                                                               \
            for (size_t i = 0; i < BATCH; i++)                                                     \
                e[i] = __builtin_bswap##bits(e[i]);                                                \
        for (size_t i = 0; i < BATCH; i++)                                                         \
            keep[i] = (uint##bits##_t)(e[i] & ~(sign)) <= (infinity);                              \
    }

COMPARE(8)
COMPARE(16)
COMPARE(32)
COMPARE(64)
COMPARE_NAN(16, (uint16_t)0x8000, 0x7c00)
COMPARE_NAN(32, (uint32_t)0x80000000, 0x7f800000)
COMPARE_NAN(64, (uint64_t)1 << 63, (uint64_t)0x7ff << 52)

bool is_nan(const struct sfs_type *type, const void *element)
{
    uint64_t bits = 0;
    if (type->class != SFS_FLOAT || (type->size != 2 && type->size != 4 && type->size != 8))
        return false;
    memcpy(&bits, element, type->size);
    if (type->big_endian)
        bits = swap(bits, type->size);
    return type->size == 2   ? (bits & 0x7fff) > 0x7c00
           : type->size == 4 ? (bits & 0x7fffffff) > 0x7f800000
                             : bits << 1 > (uint64_t)0x7ff << 53;
}

static bool is_defined(const struct undefined *undefined, const void *element)
{
    return undefined->nan ? !is_nan(undefined->type, element)
                          : memcmp(element, undefined->value, undefined->type->size) != 0;
}

typedef void (*compare_function)(const void *elements, uint64_t value, uint8_t *keep);

/* NULL: elements of this size are compared one by one. */
static compare_function choose(const struct undefined *undefined, uint64_t *value)
{
    size_t size = undefined->type->size;
    if (undefined->nan) {
        *value = undefined->type->big_endian;
        return size == 2 ? number_16 : size == 4 ? number_32 : size == 8 ? number_64 : NULL;
    }
    if (size > sizeof(*value))
        return NULL;
    *value = 0;
    memcpy(value, undefined->value, size);
    return size == 1   ? differ_8
           : size == 2 ? differ_16
           : size == 4 ? differ_32
           : size == 8 ? differ_64
                       : NULL;
}

/* One bit for each of 64 bytes that are 0 or 1. */
static uint64_t bits_of(const uint8_t *keep)
{
    uint64_t bits = 0;
    for (int i = 0; i < BATCH / 8; i++) {
        uint64_t eight;
        memcpy(&eight, keep + 8 * i, sizeof(eight));
        bits |= (eight * 0x0102040810204080 >> 56) << 8 * i;
    }
    return bits;
}

/* ---- Intervals ---- */

void findings_clear(struct findings *findings)
{
    findings->defined.n = 0;
    findings->defined.elements = 0;
    findings->end = 0;
}

void findings_free(struct findings *findings)
{
    free(findings->defined.interval);
    *findings = (struct findings){0};
}

static int grow(struct findings *findings)
{
    size_t room = findings->room ? 2 * findings->room : 1024;
    struct sfs_interval *interval =
        reallocarray(findings->defined.interval, room, sizeof(*interval));
    if (!interval)
        return -ENOMEM;
    findings->defined.interval = interval;
    findings->room = room;
    return 0;
}

int findings_add(struct findings *findings, uint64_t first, uint64_t n)
{
    struct sfs_defined *defined = &findings->defined;
    if (n == 0)
        return 0;
    if (defined->n == 0 || findings->end != first) {
        int error = defined->n == findings->room ? grow(findings) : 0;
        if (error)
            return error;
        defined->interval[defined->n++] = (struct sfs_interval){first, defined->elements};
    }
    defined->elements += n;
    findings->end = first + n;
    return 0;
}

int findings_finish(struct findings *findings)
{
    struct sfs_defined *defined = &findings->defined;
    int error = defined->n == findings->room ? grow(findings) : 0;
    if (!error)
        defined->interval[defined->n] = (struct sfs_interval){0, defined->elements};
    return error;
}

static int add_bits(struct findings *findings, uint64_t first, uint64_t bits)
{
    int error = 0;
    for (unsigned at = 0; bits && !error;) {
        unsigned skip = (unsigned)__builtin_ctzll(bits);
        bits >>= skip;
        at += skip;
        unsigned n = ~bits ? (unsigned)__builtin_ctzll(~bits) : BATCH;
        error = findings_add(findings, first + at, n);
        at += n;
        bits = n < BATCH ? bits >> n : 0;
    }
    return error;
}

int findings_scan(struct findings *findings, const struct undefined *undefined, uint64_t first,
                  uint64_t n, const void *elements)
{
    if (undefined->none)
        return findings_add(findings, first, n);
    uint64_t value, i = 0;
    size_t size = undefined->type->size;
    compare_function compare = choose(undefined, &value);
    const char *at = elements;
    int error = 0;
    for (; compare && i + BATCH <= n && !error; i += BATCH, at += BATCH * size) {
        uint8_t keep[BATCH];
        compare(at, value, keep);
        uint64_t bits = bits_of(keep);
        if (bits)
            error = ~bits ? add_bits(findings, first + i, bits)
                          : findings_add(findings, first + i, BATCH);
    }
    for (; i < n && !error; i++, at += size)
        if (is_defined(undefined, at))
            error = findings_add(findings, first + i, 1);
    return error;
}

void findings_pack(const struct findings *findings, size_t element_size, const void *elements,
                   void *packed)
{
    char *to = packed;
    const struct sfs_interval *interval = findings->defined.interval;
    for (size_t i = 0; i < findings->defined.n; i++) {
        size_t n = (size_t)(interval[i + 1].index - interval[i].index) * element_size;
        memcpy(to, (const char *)elements + interval[i].first * element_size, n);
        to += n;
    }
}
