/* Opening and closing the files of commands that write. */
#include "cli/target.h"

#include <errno.h>
#include <stdlib.h>

int source_open(const char *path, struct sfs_file **file)
{
    struct sfs_options options = {.cache_size = FILE_CACHE_BYTES, .beside_writer = true};
    int error = sfs_open(path, &options, file);
    return error ? fail(error, "%s", path) : 0;
}

int destination_open(const char *path, struct sfs_file **file)
{
    struct sfs_options options = {.writable = true, .cache_size = FILE_CACHE_BYTES};
    int error = sfs_open(path, &options, file);
    if (error == -ENOENT) {
        messages_forget();
        error = sfs_create(path, &options, file);
    }
    return error ? fail(error, "%s", path) : 0;
}

/* Its image becomes a file in memory, which is the new one's with the first flush. */
static int open_as_new(struct sfs_file *template, const char *path, struct sfs_file **file)
{
    struct sfs_image_options image = {.name = path, .backing_path = path};
    int64_t n = sfs_get_image(template, NULL, 0);
    void *bytes = n > 0 ? malloc((size_t)n) : NULL;
    if (n > 0)
        n = bytes ? sfs_get_image(template, bytes, (size_t)n) : -ENOMEM;
    int error = n < 0 ? (int)n
                      : sfs_open_image(bytes, (size_t)n, SFS_IMAGE_WRITABLE | SFS_IMAGE_DONT_COPY,
                                       &(struct sfs_options){.image = &image}, file);
    if (error)
        free(bytes);
    return error;
}

int destination_from_template(const char *template_path, const char *path, struct sfs_file **file)
{
    struct sfs_file *template;
    int code = source_open(template_path, &template);
    if (code)
        return code;
    int error = open_as_new(template, path, file);
    sfs_discard(template);
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
