/* Reads the table of mounts line by line. */
#include "common/mounts.h"

#include <errno.h>
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
    if (strcmp(type, TYPE) != 0 || !source || !rest ||
        sscanf(fields[2], "0:%u", &mounts->minor) != 1)
        return false;
    decode(fields[4]);
    decode(source);
    mounts->point = fields[4];
    mounts->source = source;
    mounts->is_writable = strncmp(rest, "rw", 2) == 0;
    mounts->is_part = strcmp(fields[3], "/") != 0;
    return true;
}

void mounts_begin(struct mounts *mounts)
{
    *mounts = (struct mounts){.table = fopen(MOUNTS, "re")};
}

static bool next_of_any_kind(struct mounts *mounts)
{
    while (mounts->table && getline(&mounts->line, &mounts->size, mounts->table) >= 0)
        if (take(mounts))
            return true;
    return false;
}

bool mounts_next(struct mounts *mounts)
{
    while (next_of_any_kind(mounts))
        if (!mounts->is_part)
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

int mounts_is_sparsefs(unsigned major, unsigned minor)
{
    struct mounts mounts;
    bool found = false;
    if (major != 0)
        return 0;
    mounts_begin(&mounts);
    int error = mounts.table || errno == ENOENT ? 0 : -errno;
    while (!found && next_of_any_kind(&mounts))
        found = mounts.minor == minor;
    if (!found && mounts.table && !feof(mounts.table))
        error = -errno;
    mounts_end(&mounts);
    return found ? 1 : error;
}
