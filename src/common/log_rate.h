/* How often a log may be written to: whoever reads a damaged file again and again must not fill it, nor drive out of it
 * what others have to know. The caller's clock and lock. */
#ifndef SPARSEFS_COMMON_LOG_RATE_H
#define SPARSEFS_COMMON_LOG_RATE_H

#include <stdbool.h>
#include <stdint.h>

#define LOG_RATE_KEPT   64  /* lines that are known again */
#define LOG_RATE_BURST  300 /* lines that may be written at once */
#define LOG_RATE_SECOND 10  /* and in each second from then on */

struct log_rate { /* all 0 at first */
    struct {
        char *line;
        uint64_t said, asked, pause; /* nanoseconds */
        uint64_t repeated;           /* times since it was said */
    } recent[LOG_RATE_KEPT];
    uint64_t credit, looked; /* nanoseconds */
    uint64_t left_out, told; /* lines; when that was said last */
};

/* Whether the same line was said within the last second, or was repeated all the time since it was said within a pause
 * that becomes longer, up to a minute: then it is not said again. Otherwise *repeated: how often that happened to it.
 * now: nanoseconds. */
bool log_rate_repeats(struct log_rate *rate, uint64_t now, const char *line, uint64_t *repeated);

/* Whether one more line may be written. *left_out: how many were left out before, if that is to be said now; or 0. */
bool log_rate_allows(struct log_rate *rate, uint64_t now, uint64_t *left_out);

/* Forgets all lines. */
void log_rate_free(struct log_rate *rate);

#endif
