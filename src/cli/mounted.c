/* Looks through the table of mounts (proc(5), /proc/self/mountinfo) for one of a file. */
#include "cli/mounted.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
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

int mounted_image(const char *path, char **image)
{
    char *file = realpath(path, NULL), *line = NULL;
    FILE *mounts = file ? fopen(MOUNTS, "re") : NULL;
    size_t size = 0;
    int error = -ENOENT;
    while (error == -ENOENT && mounts && getline(&line, &size, mounts) >= 0) {
        const char *point = point_of(line, file);
        if (!point)
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
