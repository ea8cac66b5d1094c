/* Putting the members of a series one behind the other, by the numbers of their images. */
#include "dataset/series_place.h"

#include <ctype.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define DIGITS      6
#define MOST_DIGITS 18
#define MOST_FRAMES ((uint64_t)INT64_MAX)

bool series_number(const char *name, uint64_t *number)
{
    static const char prefix[] = SERIES_NAME "_";
    size_t n = sizeof(prefix) - 1, digits = 0;
    if (strncmp(name, prefix, n) != 0)
        return false;
    *number = 0;
    for (const char *c = name + n; isdigit((unsigned char)*c) && digits <= MOST_DIGITS; c++) {
        *number = *number * 10 + (uint64_t)(*c - '0');
        digits++;
    }
    /* One name for each number. */
    return name[n + digits] == '\0' && digits <= MOST_DIGITS &&
           (digits == DIGITS || (digits > DIGITS && name[n] != '0'));
}

void series_name(uint64_t number, char name[SERIES_NAME_BYTES])
{
    snprintf(name, SERIES_NAME_BYTES, SERIES_NAME "_%0*" PRIu64, DIGITS, number);
}

/* A member whose images are known: the numbers [low, low + n). */
struct placed {
    uint64_t number, low, n;
};

static int refused(struct why *why, const char *what, uint64_t number)
{
    char name[SERIES_NAME_BYTES];
    series_name(number, name);
    return why_damaged(why, "%s: %s", name, what);
}

/* The images of a member; next: that behind the member before. */
static int place_member(const struct series_member *member, uint64_t next, struct placed *placed,
                        struct why *why)
{
    uint64_t end;
    *placed = (struct placed){member->number, next, member->frames};
    if (member->has_low)
        placed->low = member->low;
    if (member->has_low && member->has_high && member->high < MOST_FRAMES) {
        if (member->high + 1 < member->low)
            return refused(why, "image_nr_high is less than image_nr_low", member->number);
        placed->n = member->high + 1 - member->low;
    }
    if (member->high >= MOST_FRAMES || __builtin_add_overflow(placed->low, placed->n, &end) ||
        end > MOST_FRAMES)
        return refused(why, "its image numbers are too large", member->number);
    return 0;
}

static int place_members(const struct series_member *member, size_t n, struct placed *placed,
                         size_t *n_placed, struct why *why)
{
    uint64_t next = 1;
    bool is_known = true; /* next is */
    int error = 0;
    *n_placed = 0;
    for (size_t i = 0; i < n && !error; i++) {
        struct placed *now = &placed[*n_placed];
        is_known &= !member[i].is_missing;
        if (member[i].is_missing)
            continue;
        if (!is_known && !member[i].has_low)
            return refused(why, "one before it is missing, and it has no image_nr_low",
                           member[i].number);
        error = place_member(&member[i], next, now, why);
        next = now->low + now->n;
        is_known = true;
        *n_placed += now->n > 0;
    }
    return error;
}

static int by_low(const void *a, const void *b)
{
    const struct placed *left = a, *right = b;
    return left->low < right->low ? -1 : left->low > right->low;
}

/* The first member that is missing with a number in [begin, end). */
static bool find_missing(const struct series_member *member, size_t n, uint64_t begin, uint64_t end,
                         uint64_t *number)
{
    size_t first = 0, behind = n;
    while (first < behind) {
        size_t middle = first + (behind - first) / 2;
        if (member[middle].number < begin)
            first = middle + 1;
        else
            behind = middle;
    }
    while (first < n && member[first].number < end && !member[first].is_missing)
        first++;
    if (first == n || member[first].number >= end)
        return false;
    *number = member[first].number;
    return true;
}

static void add_part(struct series_parts *parts, uint64_t number, bool is_missing, uint64_t n)
{
    parts->part[parts->n++] = (struct series_part){number, is_missing, parts->frames, n};
    parts->frames += n;
}

/* n frames that no member has, between two. */
static void add_gap(const struct series_member *member, size_t n_members,
                    struct series_parts *parts, const struct placed *before,
                    const struct placed *behind, uint64_t n)
{
    uint64_t next = before->number + 1, number = next;
    if (find_missing(member, n_members, next, behind->number, &number) || next < behind->number) {
        add_part(parts, number, true, n);
    } else {
        parts->part[parts->n - 1].n += n;
        parts->frames += n;
    }
}

static int join(const struct series_member *member, size_t n_members, const struct placed *placed,
                size_t n, struct series_parts *parts, struct why *why)
{
    uint64_t number;
    if (n > 0 && placed[0].low > 1 && find_missing(member, n_members, 0, placed[0].number, &number))
        add_part(parts, number, true, placed[0].low - 1);
    for (size_t i = 0; i < n; i++) {
        const struct placed *before = i > 0 ? &placed[i - 1] : NULL;
        uint64_t end = before ? before->low + before->n : placed[i].low;
        if (end > placed[i].low)
            return refused(why, "other members have images of its numbers, too", placed[i].number);
        if (end < placed[i].low)
            add_gap(member, n_members, parts, before, &placed[i], placed[i].low - end);
        add_part(parts, placed[i].number, false, placed[i].n);
    }
    return 0;
}

int series_place(const struct series_member *member, size_t n, struct series_parts *parts,
                 struct why *why)
{
    size_t n_placed, most = 2 * n + 1;
    struct placed *placed = calloc(n + 1, sizeof(*placed));
    *parts = (struct series_parts){.part = calloc(most, sizeof(*parts->part))};
    int error = placed && parts->part ? 0 : -ENOMEM;
    if (!error)
        error = place_members(member, n, placed, &n_placed, why);
    if (!error)
        qsort(placed, n_placed, sizeof(*placed), by_low);
    if (!error)
        error = join(member, n, placed, n_placed, parts, why);
    free(placed);
    if (error) {
        free(parts->part);
        *parts = (struct series_parts){0};
    }
    return error;
}
