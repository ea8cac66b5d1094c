/* A list of those that are in use, of which those that are old are nobody else's. */
#include "fs/listing.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <utlist.h>

struct listing_in_use {
    struct listing listing; /* must be first */
    struct listing_in_use *prev, *next;
    struct sfs_file *file;
    uint64_t object;
    uint64_t states; /* the sfs_states that it is of */
    bool is_old;
    unsigned users;
};

struct listings {
    pthread_mutex_t lock; /* guards what follows */
    struct listing_in_use *list;
};

struct listings *listings_create(void)
{
    struct listings *listings = calloc(1, sizeof(*listings));
    if (listings)
        pthread_mutex_init(&listings->lock, NULL);
    return listings;
}

void listings_destroy(struct listings *listings)
{
    if (!listings)
        return;
    pthread_mutex_destroy(&listings->lock);
    free(listings);
}

/* The lock must be held, here and in what follows. */
static bool is_old(struct listing_in_use *used)
{
    used->is_old |= used->states != sfs_states(used->file);
    return used->is_old;
}

static struct listing_in_use *find(struct listings *listings, const struct node *group)
{
    struct listing_in_use *used;
    DL_FOREACH (listings->list, used) {
        if (used->object == group->object && !is_old(used)) {
            used->users++;
            break;
        }
    }
    return used;
}

static void free_listing(struct listing_in_use *used)
{
    sfs_links_free(&used->listing.links);
    free(used);
}

static int read_links(const struct node *group, unsigned removals, struct listing_in_use **out)
{
    struct listing_in_use *used = calloc(1, sizeof(*used));
    if (!used)
        return -ENOMEM;
    *used = (struct listing_in_use){.listing.removals = removals,
                                    .file = group->file,
                                    .object = group->object,
                                    .states = sfs_states(group->file),
                                    .users = 1};
    int error = sfs_list(group->file, group->address, &used->listing.links);
    if (error)
        free(used);
    else
        *out = used;
    return error;
}

int listing_get(struct listings *listings, const struct node *group, unsigned removals,
                const struct listing **listing)
{
    struct listing_in_use *found, *made = NULL;
    pthread_mutex_lock(&listings->lock);
    found = find(listings, group);
    pthread_mutex_unlock(&listings->lock);
    int error = found ? 0 : read_links(group, removals, &made);
    if (error)
        return error;
    if (made) {
        pthread_mutex_lock(&listings->lock);
        found = find(listings, group); /* another thread may have been faster */
        if (!found)
            DL_APPEND(listings->list, made);
        pthread_mutex_unlock(&listings->lock);
    }
    if (made && found)
        free_listing(made);
    *listing = found ? &found->listing : &made->listing;
    return 0;
}

void listing_put(struct listings *listings, const struct listing *listing)
{
    struct listing_in_use *used = (struct listing_in_use *)listing;
    pthread_mutex_lock(&listings->lock);
    bool is_last = --used->users == 0;
    if (is_last)
        DL_DELETE(listings->list, used);
    pthread_mutex_unlock(&listings->lock);
    if (is_last)
        free_listing(used);
}

bool listing_is_old(struct listings *listings, const struct listing *listing)
{
    pthread_mutex_lock(&listings->lock);
    bool old = is_old((struct listing_in_use *)listing);
    pthread_mutex_unlock(&listings->lock);
    return old;
}

void listings_changed(struct listings *listings, const struct node *group)
{
    struct listing_in_use *used;
    pthread_mutex_lock(&listings->lock);
    DL_FOREACH (listings->list, used)
        used->is_old |= used->object == group->object;
    pthread_mutex_unlock(&listings->lock);
}
