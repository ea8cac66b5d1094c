/* The filters that are tried, in the words of --filter. */
#ifndef SPARSEFS_CLI_FILTER_CANDIDATES_H
#define SPARSEFS_CLI_FILTER_CANDIDATES_H

#include "cli/options.h"

/* What --fast and --small ask for. */
enum goal {
    GOAL_PLAIN, /* shuffle and deflate, which every HDF5 program has */
    GOAL_FAST,  /* the least time to encode, in hardly more bytes than GOAL_PLAIN makes */
    GOAL_SMALL, /* the fewest bytes that are decoded in sensible time */
};

/* Two filters at most. */
struct candidate {
    char first[24];     /* what brings bytes of the same meaning together, or "" */
    const char *second; /* what compresses, or "" */
};

#define MOST_CANDIDATES 64

/* Element sizes of shuffle that may suit selections, which are lists of blocks, `block` bytes each
 * for `rank` axes. */
#define SHUFFLES 4
void candidate_shuffles(unsigned block, int rank, unsigned size[SHUFFLES]);

/* The shuffle of so many bytes and a deflate that GOAL_PLAIN has. size 0: of the values section. */
struct candidate candidate_plain(unsigned size, const char *deflate);

/* What is tried for a section besides what GOAL_PLAIN has; returns how many there are. shuffle: the
 * word for the best one for deflate; other: that for what finds longer matches, or "" if it is the
 * same. Some may not be built in, or not take the bytes. */
size_t candidates_for(enum goal goal, const char *shuffle, const char *other,
                      struct candidate candidate[MOST_CANDIDATES]);

/* Adds the filters of a candidate to a section that has none. USAGE. */
int candidate_use(const struct candidate *candidate, int section, struct filters *filters);

#endif
