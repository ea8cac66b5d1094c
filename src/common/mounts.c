/* Reads the table of mounts line by line. */
#include "common/mounts.h"

#include <stdlib.h>
#include <string.h>

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

/* "36 35 0:53 ROOT POINT options [more ...] - TYPE SOURCE options". */
static bool take(struct mounts *mounts)
{
    char *fields[5], *rest = mounts->line, *type, *source;
    for (size_t i = 0; i < 5; i++)
        fields[i] = strsep(&rest, " ");
    char *separator = rest ? strstr(rest, " - ") : NULL;
    if (!separator)
        return false;
    rest = separator + 3;
    type = strsep(&rest, " ");
    source = strsep(&rest, " ");
    if (strcmp(type, TYPE) != 0 || !source || !rest || strcmp(fields[3], "/") != 0 ||
        sscanf(fields[2], "0:%u", &mounts->minor) != 1)
        return false;
    decode(fields[4]);
    decode(source);
    mounts->point = fields[4];
    mounts->source = source;
    mounts->is_writable = strncmp(rest, "rw", 2) == 0;
    return true;
}

void mounts_begin(struct mounts *mounts)
{
    *mounts = (struct mounts){.table = fopen(MOUNTS, "re")};
}

bool mounts_next(struct mounts *mounts)
{
    while (mounts->table && getline(&mounts->line, &mounts->size, mounts->table) >= 0)
        if (take(mounts))
            return true;
    return false;
}

void mounts_end(struct mounts *mounts)
{
    if (mounts->table)
        fclose(mounts->table);
    free(mounts->line);
    *mounts = (struct mounts){0};
}

bool mounts_is_sparsefs(unsigned major, unsigned minor)
{
    struct mounts mounts;
    bool found = false;
    if (major != 0)
        return false;
    mounts_begin(&mounts);
    while (!found && mounts_next(&mounts))
        found = mounts.minor == minor;
    mounts_end(&mounts);
    return found;
}
