/* Objects that have ended a worker: how often, and which are given up, not asked about any more. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "hdf5/private.h"
#include "hdf5/worker/client_private.h"

static struct strike *strikes_of(const struct client *client, uint64_t object)
{
    struct strike *strike;
    HASH_FIND(hh, client->strikes, &object, sizeof(object), strike);
    return strike;
}

bool client_is_struck(const struct client *client, uint64_t object)
{
    return strikes_of(client, object) != NULL;
}

/* The one that was added first. */
static void forget_oldest(struct client *client)
{
    struct strike *oldest = client->strikes;
    HASH_DEL(client->strikes, oldest);
    free(oldest);
}

/* Without memory it is not counted. */
void client_strike(struct client *client, uint64_t object)
{
    struct strike *strike = strikes_of(client, object);
    if (!strike && HASH_COUNT(client->strikes) >= CLIENT_MOST_STRUCK)
        forget_oldest(client);
    if (!strike && (strike = calloc(1, sizeof(*strike)))) {
        strike->object = object;
        HASH_ADD(hh, client->strikes, object, sizeof(object), strike);
        if (hash_failed()) {
            free(strike);
            return;
        }
    }
    if (!strike)
        return;
    strike->n++;
    memcpy(strike->last, client->last_end, sizeof(strike->last));
}

void client_forget_strikes(struct client *client)
{
    struct strike *strike, *next;
    HASH_ITER (hh, client->strikes, strike, next) {
        HASH_DEL(client->strikes, strike);
        free(strike);
    }
}

bool client_refuses(const struct client *client, uint64_t object)
{
    const struct strike *strike = strikes_of(client, object);
    char line[512];
    if (!strike || strike->n < CLIENT_MOST_STRIKES)
        return false;
    snprintf(line, sizeof(line),
             "it has ended the process of libhdf5 before, %s; it is not read any more",
             strike->last);
    library_reason(line);
    return true;
}
