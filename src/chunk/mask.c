/* Bits of words, the lowest first. Bits behind the last position are 0. */
#include "chunk/mask.h"

#define WORD_BITS 64

size_t mask_bytes(uint64_t n)
{
    return (size_t)(n / WORD_BITS + (n % WORD_BITS != 0)) * sizeof(uint64_t);
}

/* The bits of word number `word` that stand for positions [first, last). */
static uint64_t bits_in(uint64_t word, uint64_t first, uint64_t last)
{
    uint64_t begin = word * WORD_BITS, bits = UINT64_MAX;
    if (first > begin)
        bits &= UINT64_MAX << (first - begin);
    if (last < begin + WORD_BITS)
        bits &= UINT64_MAX >> (begin + WORD_BITS - last);
    return bits;
}

/* Most words are all or nothing, and not every processor that this is built for counts bits. */
static uint64_t count(uint64_t bits)
{
    return bits == 0 ? 0 : bits == UINT64_MAX ? WORD_BITS : (uint64_t)__builtin_popcountll(bits);
}

uint64_t mask_add(uint64_t *mask, uint64_t first, uint64_t n)
{
    uint64_t last = first + n, added = 0;
    for (uint64_t word = first / WORD_BITS; n > 0 && word <= (last - 1) / WORD_BITS; word++) {
        uint64_t bits = bits_in(word, first, last);
        added += count(bits & ~mask[word]);
        mask[word] |= bits;
    }
    return added;
}

uint64_t mask_remove(uint64_t *mask, uint64_t first, uint64_t n)
{
    uint64_t last = first + n, removed = 0;
    for (uint64_t word = first / WORD_BITS; n > 0 && word <= (last - 1) / WORD_BITS; word++) {
        uint64_t bits = bits_in(word, first, last);
        removed += count(bits & mask[word]);
        mask[word] &= ~bits;
    }
    return removed;
}

/* A run begins where a bit follows one that is not set. */
size_t mask_run_count(const uint64_t *mask, uint64_t n)
{
    size_t words = mask_bytes(n) / sizeof(*mask), n_runs = 0;
    uint64_t before = 0;
    for (size_t i = 0; i < words; i++) {
        n_runs += count(mask[i] & ~(mask[i] << 1 | before));
        before = mask[i] >> (WORD_BITS - 1);
    }
    return n_runs;
}

/* The first position from `at` on whose bit is set, or (wanted 0) is not; n if there is none. */
static uint64_t next(const uint64_t *mask, uint64_t n, uint64_t at, bool wanted)
{
    while (at < n) {
        uint64_t word = mask[at / WORD_BITS];
        uint64_t bits = (wanted ? word : ~word) >> at % WORD_BITS;
        if (bits) {
            at += (uint64_t)__builtin_ctzll(bits);
            return at < n ? at : n;
        }
        at += WORD_BITS - at % WORD_BITS;
    }
    return n;
}

int mask_runs(const uint64_t *mask, uint64_t n, struct runs *runs)
{
    int error = runs_reserve(runs, mask_run_count(mask, n) + 1);
    for (uint64_t at = next(mask, n, 0, true); at < n && !error; at = next(mask, n, at, true)) {
        uint64_t end = next(mask, n, at, false);
        error = runs_append(runs, at, end);
        at = end;
    }
    if (error)
        runs_free(runs);
    return error;
}
