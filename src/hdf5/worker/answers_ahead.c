/* Rows of objects: for each of the last listings where it is being gone through, and a row of
 * answers. */
#include "hdf5/worker/answers_ahead.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "common/search.h"
#include "hdf5/worker/wire.h"

#define MOST_LISTINGS 8                 /* a walk through a tree goes back to those above */
#define MOST_OBJECTS  ((size_t)1 << 18) /* of all of them */
#define MOST_FAILED   4                 /* rows that end a worker */

/* The answers about objects n at `first` and behind it. */
struct said {
    size_t first;
    unsigned n;
    unsigned char *bytes; /* all of them; NULL: none */
    struct {
        size_t at, n; /* n is 0: there is none */
    } one[LISTED_MOST];
};

struct place {
    uint64_t address;
    size_t at;
};

struct listing {
    struct listing *before;
    uint64_t group;
    size_t n;
    uint64_t *addresses;  /* in their order */
    struct place *places; /* by address */
    size_t alone;         /* so many of the first are asked for one by one */
    struct said said[LISTED_WHATS];
};

static void free_listing(struct listing *listing)
{
    for (int i = 0; i < LISTED_WHATS; i++)
        free(listing->said[i].bytes);
    free(listing->addresses);
    free(listing->places);
    free(listing);
}

static int compare_places(const void *a, const void *b)
{
    const struct place *x = a, *y = b;
    return x->address != y->address ? (x->address < y->address ? -1 : 1)
           : x->at != y->at         ? (x->at < y->at ? -1 : 1)
                                    : 0;
}

/* ---- Listings ---- */

static struct listing *make_listing(uint64_t group, const struct sfs_links *links)
{
    size_t room = links->n < MOST_OBJECTS ? links->n : MOST_OBJECTS;
    struct listing *listing = calloc(1, sizeof(*listing));
    if (!listing)
        return NULL;
    listing->group = group;
    listing->addresses = calloc(room, sizeof(*listing->addresses));
    listing->places = calloc(room, sizeof(*listing->places));
    if (!listing->addresses || !listing->places) {
        free_listing(listing);
        return NULL;
    }
    for (size_t i = 0; i < links->n && listing->n < room; i++)
        if (links->link[i].type == SFS_LINK_HARD) {
            listing->places[listing->n] = (struct place){links->link[i].address, listing->n};
            listing->addresses[listing->n++] = links->link[i].address;
        }
    qsort(listing->places, listing->n, sizeof(*listing->places), compare_places);
    return listing;
}

static void drop(struct listed *listed, struct listing **place)
{
    struct listing *listing = *place;
    *place = listing->before;
    listed->n -= listing->n;
    free_listing(listing);
}

/* The one of a group is replaced, and no more are kept than there may be. */
static void make_place(struct listed *listed, uint64_t group, size_t n)
{
    struct listing **place = &listed->newest;
    size_t kept = n;
    for (unsigned i = 1; *place;) {
        if ((*place)->group == group || i == MOST_LISTINGS || (*place)->n > MOST_OBJECTS - kept) {
            drop(listed, place);
        } else {
            kept += (*place)->n;
            place = &(*place)->before;
            i++;
        }
    }
}

void listed_note(struct listed *listed, uint64_t group, const struct sfs_links *links)
{
    struct listing *listing = links->n > 0 ? make_listing(group, links) : NULL;
    make_place(listed, group, listing ? listing->n : 0);
    if (!listing)
        return;
    listing->before = listed->newest;
    listed->newest = listing;
    listed->n += listing->n;
}

void listed_clear(struct listed *listed)
{
    while (listed->newest)
        drop(listed, &listed->newest);
}

static void clear_said(struct said *said)
{
    free(said->bytes);
    said->bytes = NULL;
}

void listed_clear_said(struct listed *listed)
{
    for (struct listing *listing = listed->newest; listing; listing = listing->before)
        for (int i = 0; i < LISTED_WHATS; i++)
            clear_said(&listing->said[i]);
}

struct sought {
    const struct listing *listing;
    uint64_t address;
};

static bool is_not_before(const void *context, size_t i)
{
    const struct sought *sought = context;
    return sought->listing->places[i].address >= sought->address;
}

/* Of several names of an object the first one. */
static bool find(const struct listing *listing, uint64_t address, size_t *at)
{
    const struct sought sought = {listing, address};
    size_t first = search_between(0, listing->n, is_not_before, &sought);
    if (first == listing->n || listing->places[first].address != address)
        return false;
    *at = listing->places[first].at;
    return true;
}

/* ---- Answers ---- */

static struct said *find_said(struct listed *listed, enum listed_what what, uint64_t address,
                              size_t *i)
{
    size_t at;
    for (struct listing *listing = listed->newest; listing; listing = listing->before) {
        struct said *said = &listing->said[what];
        if (!said->bytes || !find(listing, address, &at) || at - said->first >= said->n)
            continue;
        *i = at - said->first;
        if (said->one[*i].n > 0)
            return said;
    }
    return NULL;
}

const unsigned char *listed_said(struct listed *listed, enum listed_what what, uint64_t address,
                                 size_t *n)
{
    size_t i;
    const struct said *said = find_said(listed, what, address, &i);
    if (!said)
        return NULL;
    *n = said->one[i].n;
    return said->bytes + said->one[i].at;
}

void listed_forget(struct listed *listed, enum listed_what what, uint64_t address)
{
    size_t i;
    struct said *said = find_said(listed, what, address, &i);
    if (said)
        said->one[i].n = 0;
}

/* Who lists wants the kind of all. */
static const unsigned first_row[LISTED_WHATS] = {[LISTED_TYPE] = 16, [LISTED_ATTRIBUTES] = 4};

/* How many at a place: twice as many as last time where that ended. */
static unsigned length_at(struct listing *listing, enum listed_what what, size_t at)
{
    struct said *said = &listing->said[what];
    bool goes_on = at - said->first == said->n;
    if (at < listing->alone || at - said->first < said->n)
        return 1; /* nothing could be said of it ahead */
    size_t n = !goes_on ? 1 : said->n > 0 ? 2 * (size_t)said->n : first_row[what];
    n = n < LISTED_MOST ? n : LISTED_MOST;
    if (n == 1) {
        clear_said(said);
        said->first = at;
        said->n = 1;
    }
    return n < listing->n - at ? (unsigned)n : (unsigned)(listing->n - at);
}

bool listed_may_fail(const struct listed *listed)
{
    return listed->failed < MOST_FAILED;
}

struct listed_row listed_row(struct listed *listed, enum listed_what what, const uint64_t *address)
{
    struct listed_row row = {.n = 1, .addresses = address};
    struct listing *listing = listed_may_fail(listed) ? listed->newest : NULL;
    while (listing && !find(listing, *address, &row.at))
        listing = listing->before;
    if (!listing)
        return row;
    row.n = length_at(listing, what, row.at);
    row.listing = listing;
    row.addresses = &listing->addresses[row.at];
    return row;
}

int listed_keep(const struct listed_row *row, enum listed_what what, unsigned char *bytes, size_t n)
{
    struct said *said = &row->listing->said[what];
    struct cursor cursor = cursor_over(bytes, n);
    clear_said(said);
    *said = (struct said){.first = row->at, .bytes = bytes};
    while (cursor.left > 0 && !cursor.failed && said->n < row->n) {
        uint64_t size = take_uint(&cursor, UINT64_MAX);
        said->one[said->n].at = (size_t)(cursor.at - bytes);
        said->one[said->n++].n = (size_t)size;
        cursor_skip(&cursor, size);
    }
    if (!cursor.failed && cursor.left == 0 && said->n > 0)
        return 0;
    clear_said(said);
    return -EIO;
}

void listed_failed(struct listed *listed, const struct listed_row *row)
{
    listed->failed++;
    if (row && row->listing && row->at + row->n > row->listing->alone)
        row->listing->alone = row->at + row->n;
}
