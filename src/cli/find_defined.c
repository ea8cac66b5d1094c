/* Making intervals of what comparing elements gives, and packing what lies in them. */
#include "cli/find_defined.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "cli/defined_bits.h"

#define WORDS                                                                                      \
    32 /* of COMPARED elements that are compared at once, before their bits are looked at */

/* ---- Comparing ---- */

static uint64_t swap(uint64_t bits, size_t size)
{
    return size == 2   ? __builtin_bswap16((uint16_t)bits)
           : size == 4 ? __builtin_bswap32((uint32_t)bits)
                       : __builtin_bswap64(bits);
}

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

/* NULL: such elements are compared one by one. */
static compare_function choose(const struct undefined *undefined, uint64_t *value)
{
    size_t size = undefined->type->size;
    if (undefined->nan) {
        *value = undefined->type->big_endian;
        return compare_number(size);
    }
    compare_function differ = compare_differ(size);
    *value = 0;
    if (differ)
        memcpy(value, undefined->value, size);
    return differ;
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

/* Room for so many more intervals, and for what stands behind the last one. */
static int make_room(struct findings *findings, size_t n)
{
    size_t wanted = findings->defined.n + n + 1;
    if (wanted <= findings->room)
        return 0;
    size_t room = 2 * findings->room > wanted ? 2 * findings->room : wanted + 1024;
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
        int error = make_room(findings, 1);
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
    int error = make_room(findings, 0);
    if (!error)
        defined->interval[defined->n] = (struct sfs_interval){0, defined->elements};
    return error;
}

/* Ones from bit `from` on, up to the first zero. */
static unsigned length_of(uint64_t bits, unsigned from)
{
    uint64_t zeros = ~(bits >> from);
    return zeros ? (unsigned)__builtin_ctzll(zeros) : COMPARED;
}

/* Adds the elements of a word, where there is room for them. Written so that only the number of
 * intervals is guessed by the processor, which guesses wrong often enough. */
static void add_bits(struct findings *findings, uint64_t first, uint64_t bits)
{
    struct sfs_defined *defined = &findings->defined;
    struct sfs_interval *interval = defined->interval + defined->n;
    uint64_t goes_on = defined->n > 0 && findings->end == first;
    uint64_t starts = bits & ~(bits << 1 | goes_on), elements = defined->elements;
    if (bits == 0)
        return;
    if (goes_on)
        elements += length_of(bits, 0);
    for (; starts; starts &= starts - 1) {
        unsigned at = (unsigned)__builtin_ctzll(starts);
        *interval++ = (struct sfs_interval){first + at, elements};
        elements += length_of(bits, at);
    }
    defined->n = (size_t)(interval - defined->interval);
    defined->elements = elements;
    findings->end = first + COMPARED - (unsigned)__builtin_clzll(bits);
}

int findings_scan(struct findings *findings, const struct undefined *undefined, uint64_t first,
                  uint64_t n, const void *elements)
{
    if (undefined->none)
        return findings_add(findings, first, n);
    uint64_t value, words[WORDS], i = 0;
    size_t size = undefined->type->size;
    compare_function compare = choose(undefined, &value);
    const char *at = elements;
    int error = 0;
    while (compare && i + COMPARED <= n && !error) {
        uint64_t left = (n - i) / COMPARED, n_words = left < WORDS ? left : WORDS;
        compare(at, value, (size_t)n_words, words);
        error = make_room(findings, (size_t)n_words * COMPARED / 2);
        for (uint64_t k = 0; k < n_words && !error; k++)
            add_bits(findings, first + i + k * COMPARED, words[k]);
        i += n_words * COMPARED;
        at += n_words * COMPARED * size;
    }
    for (; i < n && !error; i++, at += size)
        if (is_defined(undefined, at))
            error = findings_add(findings, first + i, 1);
    return error;
}

/* ---- Packing ---- */

#define STEP 16 /* bytes that are copied at once: most intervals are short */

/* Copies `bytes`, and up to STEP - 1 behind them, from and to where that many may be touched. */
static inline void copy_short(char *to, const char *from, size_t bytes)
{
    if (bytes > 4 * STEP) {
        memcpy(to, from, bytes);
        return;
    }
    for (size_t done = 0; done < bytes; done += STEP)
        memcpy(to + done, from + done, STEP);
}

void findings_pack(const struct findings *findings, size_t element_size, const void *elements,
                   void *packed)
{
    char *to = packed;
    const struct sfs_interval *interval = findings->defined.interval;
    size_t n = findings->defined.n, n_short = n;
    /* Behind the last STEP elements nothing may be touched. What is packed does not lie
     * farther behind its beginning than where it comes from, so it has room, too. */
    uint64_t safe = findings->end > STEP ? findings->end - STEP : 0;
    while (n_short > 0 &&
           interval[n_short - 1].first + interval[n_short].index - interval[n_short - 1].index >
               safe)
        n_short--;
    for (size_t i = 0; i < n; i++) {
        size_t bytes = (size_t)(interval[i + 1].index - interval[i].index) * element_size;
        const char *from = (const char *)elements + interval[i].first * element_size;
        if (i < n_short)
            copy_short(to, from, bytes);
        else
            memcpy(to, from, bytes);
        to += bytes;
    }
}
