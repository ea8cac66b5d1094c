/* Reads the table of mounts line by line. */
#include "common/mounts.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/vfs.h>
#include <unistd.h>

#define MOUNTS "/proc/self/mountinfo"
#define TYPE   "fuse.sparsefs"

#define DEVICE_BYTES 24

#define FUSE_SUPER_MAGIC 0x65735546 /* statfs(2) */

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

struct parts {
    char *fields[5], *type, *source, *options;
};

/* "36 35 0:53 ROOT POINT options [more ...] - TYPE SOURCE options". */
static bool split(char *line, struct parts *parts)
{
    char *rest = line;
    for (size_t i = 0; i < 5; i++)
        parts->fields[i] = strsep(&rest, " ");
    char *separator = rest ? strstr(rest, " - ") : NULL;
    if (!separator)
        return false;
    rest = separator + 3;
    parts->type = strsep(&rest, " ");
    parts->source = strsep(&rest, " ");
    parts->options = rest;
    return parts->source && rest;
}

/* -1: it does not say. */
static long long user_of(const struct parts *parts)
{
    long long number;
    const char *user = strstr(parts->options, ",user_id=");
    return user && sscanf(user, ",user_id=%lld", &number) == 1 ? number : -1;
}

static bool take(struct mounts *mounts)
{
    struct parts parts;
    if (!split(mounts->line, &parts) || strcmp(parts.type, TYPE) != 0 ||
        sscanf(parts.fields[2], "0:%u", &mounts->minor) != 1)
        return false;
    decode(parts.fields[4]);
    decode(parts.source);
    mounts->user = user_of(&parts);
    mounts->number = atoi(parts.fields[0]);
    mounts->point = parts.fields[4];
    mounts->source = parts.source;
    mounts->is_writable = strncmp(parts.options, "rw", 2) == 0;
    mounts->is_part = strcmp(parts.fields[3], "/") != 0;
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

static bool is_sparsefs(const struct parts *parts)
{
    return strcmp(parts->type, TYPE) == 0;
}

static bool is_fuse(const struct parts *parts)
{
    return strcmp(parts->type, "fuse") == 0 || strcmp(parts->type, "fuseblk") == 0 ||
           strncmp(parts->type, "fuse.", 5) == 0 || strncmp(parts->type, "fuseblk.", 8) == 0;
}

static bool is_believed(long long user)
{
    return user == 0 || user == (long long)geteuid();
}

static bool may_be_silent(const struct parts *parts)
{
    return is_sparsefs(parts) || (is_fuse(parts) && !is_believed(user_of(parts)));
}

static int has_device(unsigned major, unsigned minor, bool (*is)(const struct parts *parts))
{
    struct mounts mounts;
    struct parts parts;
    unsigned number;
    bool found = false;
    if (major != 0)
        return 0;
    mounts_begin(&mounts);
    int error = mounts.table || errno == ENOENT ? 0 : -errno;
    while (!found && mounts.table && getline(&mounts.line, &mounts.size, mounts.table) >= 0)
        found = split(mounts.line, &parts) && sscanf(parts.fields[2], "0:%u", &number) == 1 &&
                number == minor && is(&parts);
    if (!found && mounts.table && !feof(mounts.table))
        error = -errno;
    mounts_end(&mounts);
    return found ? 1 : error;
}

int mounts_is_sparsefs(unsigned major, unsigned minor)
{
    return has_device(major, minor, is_sparsefs);
}

int mounts_may_be_silent(unsigned major, unsigned minor)
{
    return has_device(major, minor, may_be_silent);
}

bool mounts_is_of_others(unsigned connection)
{
    struct mounts mounts;
    char device[DEVICE_BYTES];
    bool found = false;
    snprintf(device, sizeof(device), " 0:%u ", connection);
    mounts_begin(&mounts);
    while (!found && mounts.table && getline(&mounts.line, &mounts.size, mounts.table) >= 0) {
        const char *there = strstr(mounts.line, device);
        const char *root = strchr(mounts.line, '/');
        found = there && root && there < root && !strstr(mounts.line, " - " TYPE " ");
    }
    mounts_end(&mounts);
    return found;
}

bool mounts_connection(int number, unsigned *connection)
{
    struct mounts mounts;
    bool found = false;
    mounts_begin(&mounts);
    while (!found && next_of_any_kind(&mounts))
        found = mounts.number == number;
    if (found)
        *connection = mounts.minor;
    mounts_end(&mounts);
    return found;
}

static bool is_on_fuse(int fd)
{
    struct statfs fs;
    return fstatfs(fd, &fs) == 0 && fs.f_type == FUSE_SUPER_MAGIC;
}

uid_t mounts_owner(int fd, const struct stat *st)
{
    int number = mounts_number(fd);
    struct parts parts;
    bool found = false, is_on = false;
    long long user = -1;
    char *line = NULL;
    size_t size = 0;
    FILE *table = fopen(MOUNTS, "re");
    while (!found && table && getline(&line, &size, table) >= 0)
        found = atoi(line) == number && split(line, &parts);
    if (found) {
        is_on = is_fuse(&parts);
        user = user_of(&parts);
    } else {
        is_on = is_on_fuse(fd);
    }
    free(line);
    if (table)
        fclose(table);
    return !is_on || is_believed(user) ? st->st_uid : (uid_t)user;
}

/* ---- Ways ---- */

struct entry {
    int id, parent;
    char device[DEVICE_BYTES]; /* of its file system */
};

struct entries {
    struct entry *entry;
    size_t n;
};

static int read_entries(struct entries *entries)
{
    struct entry entry, *more;
    char *line = NULL;
    size_t size = 0;
    FILE *table = fopen(MOUNTS, "re");
    int error = table || errno == ENOENT ? 0 : -errno;
    *entries = (struct entries){0};
    while (table && getline(&line, &size, table) >= 0) {
        if (sscanf(line, "%d %d %23s", &entry.id, &entry.parent, entry.device) != 3)
            continue;
        more = reallocarray(entries->entry, entries->n + 1, sizeof(*more));
        if (!more)
            break;
        entries->entry = more;
        more[entries->n++] = entry;
    }
    if (table && !feof(table))
        error = -errno;
    if (table)
        fclose(table);
    free(line);
    return error;
}

static const struct entry *find(const struct entries *entries, int id)
{
    for (size_t i = 0; i < entries->n; i++)
        if (entries->entry[i].id == id)
            return &entries->entry[i];
    return NULL;
}

/* *id: -1: there is no such file. 0; -errno. */
static int read_number(int fd, int *id)
{
    char path[40], line[128];
    *id = -1;
    snprintf(path, sizeof(path), "/proc/self/fdinfo/%d", fd);
    FILE *info = fopen(path, "re");
    int error = info || errno == ENOENT ? 0 : -errno;
    while (info && *id < 0 && fgets(line, sizeof(line), info))
        if (sscanf(line, "mnt_id: %d", id) != 1)
            *id = -1;
    if (info && ferror(info))
        error = -errno;
    if (info)
        fclose(info);
    return error;
}

int mounts_number(int fd)
{
    int id;
    (void)read_number(fd, &id);
    return id;
}

int mounts_is_on_way(int fd, int to)
{
    struct entries entries;
    int number, to_number;
    int error = read_entries(&entries);
    if (!error)
        error = read_number(fd, &number);
    if (!error)
        error = read_number(to, &to_number);
    if (error) {
        free(entries.entry);
        return error;
    }
    const struct entry *mount = find(&entries, number), *at = find(&entries, to_number);
    bool is_on_way = mount && at && strcmp(mount->device, at->device) == 0;
    for (size_t i = 0; mount && at && !is_on_way && i < entries.n; i++) {
        is_on_way = at == mount;
        at = find(&entries, at->parent);
    }
    free(entries.entry);
    return is_on_way;
}
