#include "common/descriptors.h"

#include <dirent.h>
#include <stdlib.h>
#include <unistd.h>

#include "config.h"

#if HAVE_CLOSEFROM

void descriptors_close_from(int first)
{
    closefrom(first);
}

#else /* glibc < 2.34 */

void descriptors_close_from(int first)
{
    DIR *folder = opendir("/proc/thread-self/fd");
    const struct dirent *entry;
    while (folder && (entry = readdir(folder))) {
        int fd = entry->d_name[0] == '.' ? -1 : atoi(entry->d_name);
        if (fd >= first && fd != dirfd(folder))
            close(fd);
    }
    if (folder)
        closedir(folder);
}

#endif
