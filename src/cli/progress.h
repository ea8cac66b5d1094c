/* A bar on stderr, if that is a terminal, for work of more than half a second. */
#ifndef SPARSEFS_CLI_PROGRESS_H
#define SPARSEFS_CLI_PROGRESS_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <time.h>

struct progress {
    const char *what;
    uint64_t total, done; /* in whatever unit; done under the lock */
    bool is_terminal, is_shown;
    struct timespec next; /* when to draw it again */
    pthread_mutex_t lock;
};

void progress_begin(struct progress *progress, const char *what, uint64_t total);

/* From any thread. */
void progress_add(struct progress *progress, uint64_t n);

/* Takes the bar away again. */
void progress_end(struct progress *progress);

#endif
