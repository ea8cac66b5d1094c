/* Becomes the user who has mounted, and asks. */
#include "fs/daemon/ask_as_mounter.h"

#include <grp.h>
#include <linux/capability.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include "common/descriptors.h"
#include "fs/daemon/at_mount_point.h"
#include "fs/daemon/options.h"

#define FIRST_OTHER 3 /* descriptor that is none of the standard ones */

static bool drop_capabilities(void)
{
    struct __user_cap_header_struct header = {.version = _LINUX_CAPABILITY_VERSION_3};
    struct __user_cap_data_struct none[_LINUX_CAPABILITY_U32S_3] = {0};
    return syscall(SYS_capset, &header, none) == 0;
}

/* From setresuid until it is not dumpable, which fs.suid_dumpable decides, the capabilities that it still
 * has keep him from tracing it. */
static bool become(uid_t user, gid_t group)
{
    return user != 0 && prctl(PR_SET_KEEPCAPS, 1) == 0 &&
           prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 && setgroups(0, NULL) == 0 &&
           setresgid(group, group, group) == 0 && setresuid(user, user, user) == 0 &&
           prctl(PR_SET_DUMPABLE, 0) == 0 && drop_capabilities() && prctl(PR_GET_DUMPABLE) == 0;
}

static bool tell_lock(const char *file)
{
    struct stat st;
    return stat(file, &st) == 0 &&
           printf("%02x:%02x:%llu\n", major(st.st_dev), minor(st.st_dev),
                  (unsigned long long)st.st_ino) > 0 &&
           fflush(stdout) == 0;
}

int ask_as_mounter(int n, char **arguments)
{
    unsigned user, group;
    int end = 0, mount = -1;
    bool wants_lock = n == 3 && strcmp(arguments[1], "lock") == 0;
    bool wants_pid = n == 4 && strcmp(arguments[1], "pid") == 0;
    bool wants_commit = n == 4 && strcmp(arguments[1], "commit") == 0;
    if ((!wants_lock && !wants_pid && !wants_commit) ||
        sscanf(arguments[0], "%u:%u%n", &user, &group, &end) != 2 || arguments[0][end])
        return EXIT_USAGE;
    descriptors_close_from(FIRST_OTHER);
    if (!wants_lock)
        mount = mount_point_open(arguments[2], arguments[3]);
    setsid(); /* no terminal that /dev/tty could mean */
    if ((!wants_lock && mount < 0) || !become((uid_t)user, (gid_t)group))
        return EXIT_SYSTEM;
    bool done = wants_lock  ? tell_lock(arguments[2])
                : wants_pid ? mount_point_tell_pid(mount)
                            : mount_point_commit(mount);
    return done ? EXIT_DONE : EXIT_SYSTEM;
}
