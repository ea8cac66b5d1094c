/* A thread that does something again and again, until it is ended. */
#ifndef SPARSEFS_FS_DAEMON_REGULAR_H
#define SPARSEFS_FS_DAEMON_REGULAR_H

struct regular;

/* Calls action(context) so many seconds after the last time. -ENOMEM, errors of starting threads.
 */
int regular_create(unsigned seconds, void (*action)(void *context), void *context,
                   struct regular **regular);

/* Waits for an action that is under way. NULL is fine. */
void regular_destroy(struct regular *regular);

#endif
