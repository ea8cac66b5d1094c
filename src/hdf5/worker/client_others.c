/* Files that a worker has open besides its own: those that virtual datasets and links name.
 *
 * Each takes descriptors of the program, which needs them for everything else, too: so there is a
 * limit for all workers together, and one worker may only have as many as are left for others. A
 * file that is named again is the one that is open. */
#include <errno.h>
#include <inttypes.h>
#include <stdatomic.h>
#include <sys/resource.h>

#include "common/log.h"
#include "hdf5/private.h"
#include "hdf5/worker/client_private.h"
#include "store/store.h"

#define MOST_OF_ALL 1024 /* of three descriptors each, mostly, */
#define SHARE       4    /* and no more than one for so many that there may be: three quarters */

static atomic_size_t n_of_all;

static size_t most_of_all(void)
{
    struct rlimit limit;
    bool is_less = getrlimit(RLIMIT_NOFILE, &limit) == 0 && limit.rlim_cur / SHARE < MOST_OF_ALL;
    return is_less ? (size_t)limit.rlim_cur / SHARE : MOST_OF_ALL;
}

/* Counts one more. -ENFILE. */
static int count(struct client *client)
{
    size_t n = atomic_fetch_add(&n_of_all, 1), most = most_of_all();
    if (n < most && client->n_others < most - n) {
        client->n_others++;
        return 0;
    }
    atomic_fetch_sub(&n_of_all, 1);
    log_error("%s: libhdf5's processes have %zu files of sources open, this one %zu of them: more "
              "are only allowed where "
              "more files can be open at a time (ulimit -n)",
              store_path(client->store), n, client->n_others);
    return -ENFILE;
}

static void uncount(struct client *client)
{
    client->n_others--;
    atomic_fetch_sub(&n_of_all, 1);
}

/* Followers see another state each time. */
static size_t find_same(const struct client *client, const struct other *other)
{
    for (size_t i = 1; i < CLIENT_MOST_OTHERS && !store_is_following(other->store); i++) {
        const struct other *there = &client->others[i];
        if (there->store && there->is_of_source == other->is_of_source &&
            !store_is_following(there->store) && store_is_same(there->store, other->store))
            return i;
    }
    return 0;
}

static size_t find_free(const struct client *client)
{
    size_t i = 1;
    while (i < CLIENT_MOST_OTHERS && client->others[i].store)
        i++;
    return i;
}

int client_find_other(struct client *client, const char *name, bool is_of_source, size_t *number,
                      bool *is_refused)
{
    struct other found = {.is_of_source = is_of_source};
    size_t i = find_free(client);
    int error = i == CLIENT_MOST_OTHERS ? -ENFILE : count(client);
    if (error)
        return error;
    const struct store *from = is_of_source ? client->source : client->store;
    error = driver_find_other(from, name, &found.store, is_refused);
    size_t same = error ? 0 : find_same(client, &found);
    if (same > 0)
        store_close(found.store);
    if (error || same > 0)
        uncount(client);
    if (error)
        return error;
    *number = same > 0 ? same : i;
    if (same == 0)
        client->others[i] = found;
    client->others[*number].uses++;
    return 0;
}

static void close_other(struct client *client, struct other *other)
{
    if (!other->store)
        return;
    store_close(other->store);
    *other = (struct other){0};
    uncount(client);
}

void client_let_go(struct client *client, size_t number)
{
    struct other *other = &client->others[number];
    if (other->uses > 0 && --other->uses == 0)
        close_other(client, other);
}

void client_close_others(struct client *client)
{
    for (size_t i = 1; i < CLIENT_MOST_OTHERS; i++)
        close_other(client, &client->others[i]);
}
