/* Rings of lines, for all of the process. */
#include "fs/daemon/last_messages.h"

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <syslog.h>
#include <time.h>

struct message {
    uint64_t number; /* of all that were ever added */
    time_t time;
    int level;
    char *line;
};

static struct message messages[MESSAGES_MOST], losses[MESSAGES_LOSSES];

struct ring {
    struct message *messages;
    size_t most, n; /* n: that were ever added */
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* guards what follows, and the messages */
static struct ring others = {messages, MESSAGES_MOST, 0}, of_losses = {losses, MESSAGES_LOSSES, 0};

void messages_add(int level, const char *line)
{
    char *copy = strdup(line);
    if (!copy)
        return;
    pthread_mutex_lock(&lock);
    struct ring *ring = level > LOG_CRIT ? &others : &of_losses;
    struct message *message = &ring->messages[ring->n++ % ring->most];
    free(message->line);
    *message = (struct message){others.n + of_losses.n, time(NULL), level, copy};
    pthread_mutex_unlock(&lock);
}

static const char *name_of(int level)
{
    return level <= LOG_ERR ? "error" : level == LOG_WARNING ? "warning" : "info";
}

static void print(FILE *out, const struct message *message)
{
    struct tm tm;
    char time[32];
    gmtime_r(&message->time, &tm);
    strftime(time, sizeof(time), "%Y-%m-%dT%H:%M:%SZ", &tm);
    fprintf(out, "%s %s: %s\n", time, name_of(message->level), message->line);
}

/* The i-th that was ever added; NULL: there is none. */
static const struct message *at(const struct ring *ring, size_t i)
{
    return i < ring->n ? &ring->messages[i % ring->most] : NULL;
}

static size_t first(const struct ring *ring)
{
    return ring->n > ring->most ? ring->n - ring->most : 0;
}

void messages_print(FILE *out)
{
    const struct message *one, *loss;
    pthread_mutex_lock(&lock);
    size_t i = first(&others), j = first(&of_losses);
    for (;;) {
        one = at(&others, i);
        loss = at(&of_losses, j);
        if (!one && !loss)
            break;
        bool is_loss = !one || (loss && loss->number < one->number);
        print(out, is_loss ? loss : one);
        *(is_loss ? &j : &i) += 1;
    }
    pthread_mutex_unlock(&lock);
}
