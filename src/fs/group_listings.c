/* Groups by file and address: those of which a listing is kept, and those that were changed. */
#include "fs/group_listings.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <utlist.h>

#include "common/hash.h"
#include "common/log.h"
#include "common/machine_memory.h"

#define SHARE          4 /* of the machine's memory, if that is less than LISTINGS_MOST_USED_BYTES */
#define LEAST_BLOCK    32 /* bytes that malloc takes at least, */
#define BLOCK_OVERHEAD 8  /* for itself in each, */
#define BLOCK_STEP     16 /* and of which their sizes are multiples */

#define PLACE_MADE ((uint64_t)1 << 40) /* of the first link that was made: no group has so many */

struct kept_listing {
    struct listing listing; /* must be first */
    struct kept_listing *prev, *next;
    struct group *group; /* NULL: it is in use still, and not found any more */
    struct sfs_file *file;
    uint64_t states; /* the sfs_states that it is of */
    bool is_old;
    unsigned users, readers; /* these have begun to list it, and not come to the end */
    size_t bytes;            /* of memory */
};

/* A link that was made, or stood where there is a hole now, or both, one after the other. */
struct changed_link {
    UT_hash_handle hh;
    bool is_made, is_hole;
    uint64_t place; /* if it is made */
    char name[];
};

struct group_key {
    const struct mounted_file *file;
    uint64_t address;
};

struct group {
    UT_hash_handle hh;
    struct group_key key;
    struct kept_listing *kept; /* in use or not */
    struct changed_link *changed;
    uint64_t n_made; /* that there ever were */
};

struct listings {
    pthread_mutex_t lock; /* guards what follows */
    struct group *groups;
    struct kept_listing *kept; /* of groups, those that nobody uses, not used for longest first */
    size_t n_kept, bytes;      /* of these */
    size_t used_bytes;         /* of those in use, and what is counted besides */
    size_t most_used_bytes;
    _Atomic uint64_t said; /* log_is_due: that there are too many */
};

struct listings *listings_create(size_t most_used_bytes)
{
    struct listings *listings = calloc(1, sizeof(*listings));
    if (!listings)
        return NULL;
    pthread_mutex_init(&listings->lock, NULL);
    listings->most_used_bytes = most_used_bytes;
    return listings;
}

size_t listings_most_used_bytes(void)
{
    uint64_t memory = machine_memory() / SHARE;
    return memory > 0 && memory < LISTINGS_MOST_USED_BYTES ? (size_t)memory
                                                           : LISTINGS_MOST_USED_BYTES;
}

static void free_listing(struct kept_listing *listing)
{
    sfs_links_free(&listing->listing.links);
    free(listing->listing.places);
    free(listing);
}

static void free_changed(struct group *group)
{
    struct changed_link *link, *next;
    HASH_ITER (hh, group->changed, link, next) {
        HASH_DEL(group->changed, link);
        free(link);
    }
}

void listings_destroy(struct listings *listings)
{
    if (!listings)
        return;
    struct group *group, *next;
    HASH_ITER (hh, listings->groups, group, next) {
        HASH_DEL(listings->groups, group);
        if (group->kept)
            free_listing(group->kept);
        free_changed(group);
        free(group);
    }
    pthread_mutex_destroy(&listings->lock);
    free(listings);
}

/* ---- Groups. The lock must be held, here and in what follows ---- */

/* It is hashed with whatever lies between its members. */
static void set_key(struct group_key *key, const struct node *node)
{
    memset(key, 0, sizeof(*key));
    key->file = node->mounted;
    key->address = node_address(node);
}

static struct group *find_group(struct listings *listings, const struct node *node)
{
    struct group_key key;
    struct group *group;
    set_key(&key, node);
    HASH_FIND(hh, listings->groups, &key, sizeof(key), group);
    return group;
}

/* NULL: no memory. */
static struct group *get_group(struct listings *listings, const struct node *node)
{
    struct group *group = find_group(listings, node);
    if (group)
        return group;
    group = calloc(1, sizeof(*group));
    if (!group)
        return NULL;
    set_key(&group->key, node);
    HASH_ADD(hh, listings->groups, key, sizeof(group->key), group);
    if (!hash_failed())
        return group;
    free(group);
    return NULL;
}

static void put_group(struct listings *listings, struct group *group)
{
    if (group->kept || group->changed)
        return;
    HASH_DEL(listings->groups, group);
    free(group);
}

/* ---- Listings that are kept ---- */

static bool is_old(struct kept_listing *listing)
{
    listing->is_old |= listing->states != sfs_states(listing->file);
    return listing->is_old;
}

static void add_unused(struct listings *listings, struct kept_listing *listing)
{
    DL_APPEND(listings->kept, listing);
    listings->n_kept++;
    listings->bytes += listing->bytes;
}

static void remove_unused(struct listings *listings, struct kept_listing *listing)
{
    DL_DELETE(listings->kept, listing);
    listings->n_kept--;
    listings->bytes -= listing->bytes;
}

/* It is no longer found. If it is unused it is added to the list that the caller frees without the lock,
 * else its last user frees it. */
static void drop(struct listings *listings, struct kept_listing *listing,
                 struct kept_listing **gone)
{
    listing->group->kept = NULL;
    listing->group = NULL;
    if (listing->users > 0)
        return;
    remove_unused(listings, listing);
    LL_PREPEND(*gone, listing);
}

static void free_gone(struct kept_listing *gone)
{
    struct kept_listing *next;
    for (; gone; gone = next) {
        next = gone->next;
        free_listing(gone);
    }
}

static void keep_to_limit(struct listings *listings, struct kept_listing **gone)
{
    while (listings->kept->next &&
           (listings->n_kept > LISTINGS_MOST || listings->bytes > LISTINGS_MOST_BYTES)) {
        struct group *group = listings->kept->group;
        drop(listings, listings->kept, gone);
        put_group(listings, group);
    }
}

/* One that is in use. */
static void keep(struct listings *listings, struct group *group, struct kept_listing *listing,
                 struct kept_listing **gone)
{
    if (group->kept) {
        listing->readers += group->kept->readers;
        drop(listings, group->kept, gone);
    }
    group->kept = listing;
    listing->group = group;
}

/* -ENOMEM: not so many bytes more are to be in use. */
static int check_room(struct listings *listings, size_t n)
{
    if (n <= listings->most_used_bytes - listings->used_bytes)
        return 0;
    if (log_is_due(&listings->said))
        log_error("too many large directories are open: what is in them takes %zu MiB together; "
                  "close some of them",
                  listings->most_used_bytes >> 20);
    return -ENOMEM;
}

/* *out: NULL if it is to be read. -ENOMEM. */
static int use(struct listings *listings, const struct node *node, bool begins,
               struct kept_listing **out)
{
    const struct group *group = find_group(listings, node);
    struct kept_listing *kept = group ? group->kept : NULL;
    *out = NULL;
    if (!kept || (begins && is_old(kept)))
        return 0;
    int error = kept->users == 0 ? check_room(listings, kept->bytes) : 0;
    if (error)
        return error;
    if (kept->users++ == 0) {
        remove_unused(listings, kept);
        listings->used_bytes += kept->bytes;
    }
    kept->readers += begins;
    *out = kept;
    return 0;
}

/* ---- Places ---- */

struct placed_link {
    uint64_t place;
    struct sfs_link link;
};

static int compare_places(const void *a, const void *b)
{
    uint64_t first = ((const struct placed_link *)a)->place;
    uint64_t second = ((const struct placed_link *)b)->place;
    return first < second ? -1 : first > second;
}

static int compare_names(const void *a, const void *b)
{
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

/* The names that are no more where they were, in order; the caller frees the array. */
static const char **holes_of(const struct group *group, size_t *n)
{
    const struct changed_link *link;
    const char **holes = calloc(HASH_COUNT(group->changed), sizeof(*holes));
    *n = 0;
    for (link = group->changed; link && holes; link = link->hh.next)
        if (link->is_hole)
            holes[(*n)++] = link->name;
    if (holes && *n > 1)
        qsort(holes, *n, sizeof(*holes), compare_names);
    return holes;
}

/* Links that come by name are sorted by the places that they get. */
static int place_links(const struct group *group, struct listing *listing)
{
    size_t n = listing->links.n, n_holes = 0, hole = 0;
    if (!group->changed || n == 0)
        return 0;
    struct placed_link *placed = calloc(n, sizeof(*placed));
    const char **holes = holes_of(group, &n_holes);
    listing->places = calloc(n, sizeof(*listing->places));
    bool has_memory = placed && holes && listing->places;
    uint64_t place = 0;
    for (size_t i = 0; i < n && has_memory; i++) {
        const struct changed_link *changed;
        placed[i].link = listing->links.link[i];
        for (; hole < n_holes && strcmp(holes[hole], placed[i].link.name) < 0; hole++)
            place++;
        HASH_FIND_STR(group->changed, placed[i].link.name, changed);
        placed[i].place = changed && changed->is_made ? changed->place : place++;
    }
    if (has_memory)
        qsort(placed, n, sizeof(*placed), compare_places);
    for (size_t i = 0; i < n && has_memory; i++) {
        listing->links.link[i] = placed[i].link;
        listing->places[i] = placed[i].place;
    }
    free(placed);
    free(holes);
    return has_memory ? 0 : -ENOMEM;
}

size_t listing_find(const struct listing *listing, uint64_t place)
{
    size_t first = 0, end = listing->links.n;
    if (!listing->places)
        return place < end ? (size_t)place : end;
    while (first < end) {
        size_t middle = first + (end - first) / 2;
        if (listing->places[middle] < place)
            first = middle + 1;
        else
            end = middle;
    }
    return first;
}

uint64_t listing_place(const struct listing *listing, size_t link)
{
    return listing->places ? listing->places[link] : link;
}

/* ---- Without the lock ---- */

static size_t block_bytes(size_t n)
{
    size_t bytes = (n + BLOCK_OVERHEAD + BLOCK_STEP - 1) / BLOCK_STEP * BLOCK_STEP;
    return bytes < LEAST_BLOCK ? LEAST_BLOCK : bytes;
}

static size_t text_bytes(const char *text)
{
    return text ? block_bytes(strlen(text) + 1) : 0;
}

static size_t link_bytes(const struct sfs_link *link)
{
    return sizeof(*link) + text_bytes(link->name) + text_bytes(link->target) +
           text_bytes(link->target_file);
}

static int read_links(const struct node *node, unsigned removals, bool begins,
                      struct kept_listing **out)
{
    struct kept_listing *listing = calloc(1, sizeof(*listing));
    if (!listing)
        return -ENOMEM;
    *listing = (struct kept_listing){.listing.removals = removals,
                                     .file = node_file(node),
                                     .states = sfs_states(node_file(node)),
                                     .users = 1,
                                     .readers = begins,
                                     .bytes = block_bytes(sizeof(*listing))};
    struct sfs_links *links = &listing->listing.links;
    int error = sfs_list(node_file(node), node_address(node), links);
    if (error) {
        free(listing);
        return error;
    }
    for (size_t i = 0; i < links->n; i++)
        listing->bytes += link_bytes(&links->link[i]);
    *out = listing;
    return 0;
}

/* What was read, if no other thread was faster. *gone: to be freed without the lock. */
static int use_read(struct listings *listings, const struct node *node, bool begins,
                    struct kept_listing *made, struct kept_listing **found,
                    struct kept_listing **gone)
{
    int error = use(listings, node, begins, found);
    if (error || *found)
        return error;
    struct group *group = get_group(listings, node);
    if (!group)
        return -ENOMEM;
    error = place_links(group, &made->listing);
    if (made->listing.places)
        made->bytes += block_bytes(made->listing.links.n * sizeof(*made->listing.places));
    if (!error)
        error = check_room(listings, made->bytes);
    if (!error) {
        keep(listings, group, made, gone);
        listings->used_bytes += made->bytes;
        *found = made;
    }
    put_group(listings, group);
    return error;
}

int listing_get(struct listings *listings, const struct node *node, unsigned removals, bool begins,
                const struct listing **out)
{
    struct kept_listing *made = NULL, *found, *gone = NULL;
    pthread_mutex_lock(&listings->lock);
    int error = use(listings, node, begins, &found);
    pthread_mutex_unlock(&listings->lock);
    if (!error && !found)
        error = read_links(node, removals, begins, &made);
    if (made) {
        pthread_mutex_lock(&listings->lock);
        error = use_read(listings, node, begins, made, &found, &gone);
        pthread_mutex_unlock(&listings->lock);
    }
    if (made && found != made)
        free_listing(made);
    free_gone(gone);
    if (!error)
        *out = &found->listing;
    return error;
}

void listing_put(struct listings *listings, const struct listing *of, bool ends)
{
    struct kept_listing *listing = (struct kept_listing *)of, *gone = NULL;
    pthread_mutex_lock(&listings->lock);
    listing->users--;
    if (ends && listing->readers > 0)
        listing->readers--;
    struct group *group = listing->group;
    if (listing->users == 0) {
        listings->used_bytes -= listing->bytes;
        if (group)
            add_unused(listings, listing);
        else
            LL_PREPEND(gone, listing);
    }
    if (group && listing->users == 0 && listing->readers == 0) {
        drop(listings, listing, &gone);
        put_group(listings, group);
    } else if (group && listing->users == 0) {
        keep_to_limit(listings, &gone);
    }
    pthread_mutex_unlock(&listings->lock);
    free_gone(gone);
}

int listings_count(struct listings *listings, size_t bytes)
{
    pthread_mutex_lock(&listings->lock);
    int error = check_room(listings, bytes);
    listings->used_bytes += error ? 0 : bytes;
    pthread_mutex_unlock(&listings->lock);
    return error;
}

void listings_uncount(struct listings *listings, size_t bytes)
{
    pthread_mutex_lock(&listings->lock);
    listings->used_bytes -= bytes;
    pthread_mutex_unlock(&listings->lock);
}

bool listing_is_old(struct listings *listings, const struct listing *listing)
{
    pthread_mutex_lock(&listings->lock);
    bool old = is_old((struct kept_listing *)listing);
    pthread_mutex_unlock(&listings->lock);
    return old;
}

/* ---- Changes ---- */

static int add_change(struct group *group, const char *name)
{
    struct changed_link *link;
    HASH_FIND_STR(group->changed, name, link);
    if (link)
        return 0;
    link = calloc(1, sizeof(*link) + strlen(name) + 1);
    if (!link)
        return -ENOMEM;
    strcpy(link->name, name);
    HASH_ADD_STR(group->changed, name, link);
    if (!hash_failed())
        return 0;
    free(link);
    return -ENOMEM;
}

int listings_begin_change(struct listings *listings, const struct node *node, const char *name)
{
    pthread_mutex_lock(&listings->lock);
    struct group *group = get_group(listings, node);
    int error = group ? add_change(group, name) : -ENOMEM;
    if (group)
        put_group(listings, group);
    pthread_mutex_unlock(&listings->lock);
    return error;
}

void listings_end_change(struct listings *listings, const struct node *node, const char *name,
                         enum link_change change)
{
    struct changed_link *link;
    pthread_mutex_lock(&listings->lock);
    struct group *group = find_group(listings, node);
    HASH_FIND_STR(group->changed, name, link);
    if (change == LINK_MADE) {
        link->place = PLACE_MADE + group->n_made++;
        link->is_made = true;
    } else if (change == LINK_REMOVED) {
        link->is_hole |= !link->is_made;
        link->is_made = false;
    }
    if (!link->is_made && !link->is_hole) {
        HASH_DEL(group->changed, link);
        free(link);
    }
    if (group->kept && change != LINK_UNCHANGED)
        group->kept->is_old = true;
    put_group(listings, group);
    pthread_mutex_unlock(&listings->lock);
}

void listings_forget(struct listings *listings, const struct node *node)
{
    struct kept_listing *gone = NULL;
    pthread_mutex_lock(&listings->lock);
    struct group *group = find_group(listings, node);
    if (group) {
        if (group->kept)
            drop(listings, group->kept, &gone);
        free_changed(group);
        put_group(listings, group);
    }
    pthread_mutex_unlock(&listings->lock);
    free_gone(gone);
}

void listings_forget_file(struct listings *listings, const struct mounted_file *file)
{
    struct kept_listing *gone = NULL;
    struct group *group, *next;
    pthread_mutex_lock(&listings->lock);
    HASH_ITER (hh, listings->groups, group, next) {
        if (group->key.file != file)
            continue;
        if (group->kept)
            drop(listings, group->kept, &gone);
        free_changed(group);
        put_group(listings, group);
    }
    pthread_mutex_unlock(&listings->lock);
    free_gone(gone);
}
