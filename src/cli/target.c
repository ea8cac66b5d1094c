/* Opening and closing the files of commands that write. */
#include "cli/target.h"

#include <errno.h>

int source_open(const char *path, struct sfs_file **file)
{
    int error = sfs_open(path, &(struct sfs_options){.beside_writer = true}, file);
    return error ? fail(error, "%s", path) : 0;
}

int destination_open(const char *path, struct sfs_file **file)
{
    int error = sfs_open(path, &(struct sfs_options){.writable = true}, file);
    if (error == -ENOENT) {
        messages_forget();
        error = sfs_create(path, NULL, file);
    }
    return error ? fail(error, "%s", path) : 0;
}

static bool is_same(const char *a, const char *b)
{
    struct stat s, t;
    return stat(a, &s) == 0 && stat(b, &t) == 0 && s.st_dev == t.st_dev && s.st_ino == t.st_ino;
}

int both_open(const char *from_path, const char *to_path, struct sfs_file **from,
              struct sfs_file **to)
{
    if (is_same(from_path, to_path)) {
        int code = destination_open(to_path, to);
        if (!code)
            *from = *to;
        return code;
    }
    int code = source_open(from_path, from);
    if (code)
        return code;
    code = destination_open(to_path, to);
    if (code) {
        sfs_discard(*from);
        *from = NULL;
    }
    return code;
}

int both_close(struct sfs_file *from, struct sfs_file *to, int code)
{
    if (to && code == DONE && interrupted)
        code = fail(-EINTR, "%s", sfs_path(to));
    if (to && code == DONE) {
        int error = sfs_flush(to);
        if (error)
            code = fail(error, "%s", sfs_path(to));
    }
    if (from != to)
        sfs_discard(from);
    sfs_discard(to);
    return code;
}
