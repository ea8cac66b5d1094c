/* A thread that does something again and again, until it is ended. */
#ifndef SPARSEFS_FS_DAEMON_TIMER_THREAD_H
#define SPARSEFS_FS_DAEMON_TIMER_THREAD_H

struct periodic;

/* Calls action(context) so many seconds after the last time. -ENOMEM, errors of starting threads.
 */
int periodic_create(unsigned seconds, void (*action)(void *context), void *context,
                    struct periodic **periodic);

/* Waits for an action that is under way. NULL is fine. */
void periodic_destroy(struct periodic *periodic);

#endif
