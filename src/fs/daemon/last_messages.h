/* The last messages of the daemon, for .sparsefs/log: information and what is worse, whatever of
 * that goes to the log itself. Their number is bounded. Thread-safe. */
#ifndef SPARSEFS_FS_DAEMON_LAST_MESSAGES_H
#define SPARSEFS_FS_DAEMON_LAST_MESSAGES_H

#include <stdio.h>

#define MESSAGES_MOST   1000
#define MESSAGES_LOSSES 100 /* besides: of log_loss */

/* Forgets the oldest one where there are so many, and the line itself for want of memory. */
void messages_add(int level, const char *line);

/* Writes them, oldest first: a line each, with time (RFC 3339, of UTC) and level. */
void messages_print(FILE *out);

#endif
