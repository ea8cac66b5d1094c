/* Where the members of a series (series.h) lie in it: names and numbers, which know no files.
 * Thread-safe: it has no state. */
#ifndef SPARSEFS_DATASET_SERIES_PLACE_H
#define SPARSEFS_DATASET_SERIES_PLACE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/why.h"

#define SERIES_NAME       "data" /* of a series in its group */
#define SERIES_NAME_BYTES 32     /* of the name of a member, at most */

/* Whether it is the name of a member: data_NNNNNN, with six digits, or more if those do not do. */
bool series_number(const char *name, uint64_t *number);

/* The name of a member. */
void series_name(uint64_t number, char name[SERIES_NAME_BYTES]);

struct series_member {
    uint64_t number; /* in its name */
    bool is_missing; /* nothing else is known of it */
    bool has_low, has_high;
    uint64_t low, high; /* image_nr_low and image_nr_high: numbers of its first and last frame */
    uint64_t frames;    /* along its first axis */
};

/* Frames [first, first + n) of a series are the first n of the member with this number. */
struct series_part {
    uint64_t number;
    bool is_missing; /* that member, which then must have exactly n; it need not be in the group */
    uint64_t first, n;
};

/* Ascending and without gaps; frames: of all. */
struct series_parts {
    size_t n;
    struct series_part *part;
    uint64_t frames;
};

/* Members, ascending by their numbers, lie where image_nr_low says; those without it follow the one
 * before. Frame 0 is the lowest number; or 1, if a member is missing before the one that has it. A
 * gap is what a member that is missing there must have, or else the one before is too short.
 * -EILSEQ, and *why: they contradict each other, or it is not known where one begins. -ENOMEM. The
 * caller frees parts->part. */
int series_place(const struct series_member *member, size_t n, struct series_parts *parts,
                 struct why *why);

#endif
