/* Looks through the table of mounts (proc(5), /proc/self/mountinfo) for one of a file. */
#include "cli/mounted.h"

#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define MOUNTS "/proc/self/mountinfo"
#define TYPE   "fuse.sparsefs"

/* Blanks and backslashes are written as \ and three octal digits. */
static void decode(char *text)
{
    char *to = text;
    for (const char *from = text; *from; to++) {
        unsigned code;
        if (from[0] == '\\' && sscanf(from + 1, "%3o", &code) == 1) {
            *to = (char)code;
            from += 4;
        } else {
            *to = *from++;
        }
    }
    *to = '\0';
}

/* "36 35 0:53 ROOT POINT options [more ...] - TYPE SOURCE options": the point of a mount of ours of
 * this file that may write it, or NULL. */
static char *point_of(char *line, const char *file)
{
    char *fields[5], *rest = line, *type, *source;
    for (size_t i = 0; i < 5; i++)
        fields[i] = strsep(&rest, " ");
    char *separator = rest ? strstr(rest, " - ") : NULL;
    if (!separator)
        return NULL;
    rest = separator + 3;
    type = strsep(&rest, " ");
    source = strsep(&rest, " ");
    if (strcmp(type, TYPE) != 0 || !source || !rest || strcmp(fields[3], "/") != 0 ||
        strncmp(rest, "rw", 2) != 0)
        return NULL;
    decode(source);
    if (strcmp(source, file) != 0)
        return NULL;
    decode(fields[4]);
    return fields[4];
}

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
    char *file = realpath(path, NULL), *line = NULL;
    FILE *mounts = file && stat(file, &st) == 0 ? fopen(MOUNTS, "re") : NULL;
    size_t size = 0;
    int error = -ENOENT;
    while (error == -ENOENT && mounts && getline(&line, &size, mounts) >= 0) {
        const char *point = point_of(line, file);
        if (!point || !is_of(point, &st))
            continue;
        if (asprintf(image, "%s/.sparsefs/image.h5", point) < 0)
            error = -ENOMEM;
        else if (access(*image, R_OK) == 0)
            error = 0;
        else
            free(*image);
    }
    free(line);
    if (mounts)
        fclose(mounts);
    free(file);
    return error;
}
