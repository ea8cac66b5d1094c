/* A ring of lines, for all of the process. */
#include "fs/daemon/last_messages.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <syslog.h>
#include <time.h>

struct message {
    time_t time;
    int level;
    char *line;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* guards what follows */
static struct message messages[MESSAGES_MOST];
static size_t n_messages; /* that were ever added */

void messages_add(int level, const char *line)
{
    char *copy = strdup(line);
    if (!copy)
        return;
    pthread_mutex_lock(&lock);
    struct message *message = &messages[n_messages++ % MESSAGES_MOST];
    free(message->line);
    *message = (struct message){time(NULL), level, copy};
    pthread_mutex_unlock(&lock);
}

static const char *name_of(int level)
{
    return level <= LOG_ERR ? "error" : level == LOG_WARNING ? "warning" : "info";
}

void messages_print(FILE *out)
{
    pthread_mutex_lock(&lock);
    for (size_t i = n_messages > MESSAGES_MOST ? n_messages - MESSAGES_MOST : 0; i < n_messages;
         i++) {
        const struct message *message = &messages[i % MESSAGES_MOST];
        struct tm tm;
        char time[32];
        gmtime_r(&message->time, &tm);
        strftime(time, sizeof(time), "%Y-%m-%dT%H:%M:%SZ", &tm);
        fprintf(out, "%s %s: %s\n", time, name_of(message->level), message->line);
    }
    pthread_mutex_unlock(&lock);
}
