/* Looks through the mounts for one of a file. */
#include "cli/image_in_mount.h"

#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/mounts.h"

/* The table has the name that the file had when it was mounted: it may be another one's by now. */
static bool is_of(const char *point, const struct stat *file)
{
    char line[128], *name = NULL;
    unsigned long long device = 0, inode = 0;
    FILE *statistics =
        asprintf(&name, "%s/.sparsefs/stats.json", point) < 0 ? NULL : fopen(name, "re");
    while (statistics && fgets(line, sizeof(line), statistics))
        if (sscanf(line, " \"file_device\": %llu", &device) == 0)
            (void)sscanf(line, " \"file_inode\": %llu", &inode);
    if (statistics)
        fclose(statistics);
    free(name);
    return device == file->st_dev && inode == file->st_ino;
}

int mounted_image(const char *path, char **image)
{
    struct stat st;
    struct mounts mounts;
    char *file = realpath(path, NULL);
    int error = -ENOENT;
    if (!file || stat(file, &st) < 0) {
        free(file);
        return error;
    }
    mounts_begin(&mounts);
    while (error == -ENOENT && mounts_next(&mounts)) {
        if (!mounts.is_writable || strcmp(mounts.source, file) != 0 || !is_of(mounts.point, &st))
            continue;
        if (asprintf(image, "%s/.sparsefs/image.h5", mounts.point) < 0)
            error = -ENOMEM;
        else if (access(*image, R_OK) == 0)
            error = 0;
        else
            free(*image);
    }
    mounts_end(&mounts);
    free(file);
    return error;
}
