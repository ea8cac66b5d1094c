/* Every filter there is, at levels that suit the goal, behind every way to shuffle. */
#include "cli/filter_candidates.h"

#include <stdio.h>
#include <string.h>

#define MOST_WORDS 12

/* What compresses behind a shuffle, or without one. "" is that nothing does. */
static const char *const seconds[][MOST_WORDS] = {
    [GOAL_FAST] = {"", "lz4", "lzf", "zstd=1", "zstd=3", "deflate=1", "deflate=4", "bzip2=1",
                   "szip=nn", "szip=ec"},
    [GOAL_SMALL] = {"", "lz4", "lzf", "zstd=3", "zstd=9", "zstd=19", "deflate=6", "deflate=9",
                    "bzip2=9", "szip=nn", "szip=ec"},
};

/* What shuffles by itself. */
static const char *const alone[][MOST_WORDS] = {
    [GOAL_FAST] = {"bitshuffle=lz4", "bitshuffle=zstd:1", "blosc=blosclz:5", "blosc=lz4:5",
                   "blosc=zlib:1", "blosc=zstd:1", "blosc2=blosclz:5", "blosc2=lz4:5",
                   "blosc2=zstd:1"},
    [GOAL_SMALL] = {"bitshuffle=lz4", "bitshuffle=zstd:9", "bitshuffle=zstd:19", "blosc=blosclz:9",
                    "blosc=lz4hc:9", "blosc=zlib:9", "blosc=zstd:5", "blosc=zstd:9",
                    "blosc2=lz4hc:9", "blosc2=zlib:9", "blosc2=zstd:5", "blosc2=zstd:9"},
};

void candidate_shuffles(unsigned block, int rank, unsigned size[SHUFFLES])
{
    unsigned width = block / (2 * (unsigned)rank);
    size[0] = block;     /* a whole block */
    size[1] = block / 2; /* one corner of it */
    size[2] = width;     /* one coordinate */
    size[3] = 2 * width;
}

static struct candidate candidate_of(const char *first, const char *second)
{
    struct candidate candidate = {.second = second};
    snprintf(candidate.first, sizeof(candidate.first), "%s", first);
    return candidate;
}

struct candidate candidate_plain(unsigned size, const char *deflate)
{
    struct candidate candidate = candidate_of("shuffle", deflate);
    if (size > 0)
        snprintf(candidate.first, sizeof(candidate.first), "shuffle=%u", size);
    return candidate;
}

size_t candidates_for(enum goal goal, const char *shuffle, const char *other,
                      struct candidate candidate[MOST_CANDIDATES])
{
    const char *const firsts[] = {"", shuffle, "bitshuffle", other};
    size_t n_firsts = *other ? 4 : 3, n = 0;
    for (size_t i = 0; i < MOST_WORDS && seconds[goal][i]; i++)
        for (size_t k = 0; k < n_firsts; k++)
            candidate[n++] = candidate_of(firsts[k], seconds[goal][i]);
    for (size_t i = 0; i < MOST_WORDS && alone[goal][i]; i++)
        candidate[n++] = candidate_of("", alone[goal][i]);
    return n;
}

int candidate_use(const struct candidate *candidate, int section, struct filters *filters)
{
    int code = 0;
    if (*candidate->first)
        code = filter_parse("import", candidate->first, section, filters);
    if (!code && *candidate->second)
        code = filter_parse("import", candidate->second, section, filters);
    filters->given[section] = true;
    return code;
}
