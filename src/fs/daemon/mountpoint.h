/* Where a file is mounted: on an empty directory, or where the caller has mounted a descriptor of
 * /dev/fuse that we inherit, as container runtimes do for programs that have no right to mount:
 * /dev/fd/N stands for it. */
#ifndef SPARSEFS_FS_DAEMON_MOUNTPOINT_H
#define SPARSEFS_FS_DAEMON_MOUNTPOINT_H

#include <stdbool.h>

/* Whether it is a descriptor: it has no path, and is unmounted by the process that has mounted it. */
bool mountpoint_is_descriptor(const char *mountpoint);

/* Whether it can be mounted on, before anything is begun. Returns an exit code, and says why not.
 */
int mountpoint_check(const char *mountpoint, bool may_be_full);

/* After libfuse has failed to mount, and said so: says what can be done about it, if that is one of
 * the things that are often missing. `for_others`: allow_other or allow_root was asked for. */
void mountpoint_explain(bool for_others);

#endif
