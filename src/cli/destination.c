/* Opening and closing the files that commands write. */
#include "cli/destination.h"

#include <errno.h>
#include <stdlib.h>
#include <sys/stat.h>

#include "cli/open_source.h"

#define DEFAULT_MODE 0666 /* of what comes from standard input, less the umask */

/* The mode of a copy: readable for no more users than its source. 0: no such file. */
static mode_t mode_of(const char *path)
{
    struct stat st;
    if (stat(path, &st) < 0)
        return 0;
    return st.st_mode & 0777 ? st.st_mode & 0777 : S_IRUSR;
}

static int destination_create(const char *path, mode_t mode, struct sfs_file **file)
{
    const struct sfs_options options = {.cache_size = FILE_CACHE_BYTES,
                                        .mode = mode,
                                        .hdf5_worker = files_are_apart(),
                                        .chunk_memory = source_chunk_memory()};
    int error = sfs_create(path, &options, file);
    return error ? fail(error, "%s", path) : 0;
}

int destination_open(const char *path, mode_t mode, struct sfs_file **file)
{
    struct sfs_options options = {.writable = true,
                                  .cache_size = FILE_CACHE_BYTES,
                                  .mode = mode,
                                  .external_files = source_allowed(),
                                  .hdf5_worker = files_are_apart(),
                                  .chunk_memory = source_chunk_memory()};
    int error = sfs_open(path, &options, file);
    if (error == -ENOENT) {
        messages_forget();
        error = sfs_create(path, &options, file);
    }
    return error ? fail(error, "%s", path) : 0;
}

/* Its image becomes a file in memory, which is the new one's with the first flush. */
static int open_as_new(struct sfs_file *template, const char *path, mode_t mode,
                       struct sfs_file **file)
{
    struct sfs_image_options image = {.name = path, .backing_path = path};
    const struct sfs_options options = {
        .image = &image, .mode = mode, .hdf5_worker = files_are_apart()};
    int64_t n = sfs_get_image(template, NULL, 0);
    void *bytes = n > 0 ? malloc((size_t)n) : NULL;
    if (n > 0)
        n = bytes ? sfs_get_image(template, bytes, (size_t)n) : -ENOMEM;
    int error = n < 0 ? (int)n
                      : sfs_open_image(bytes, (size_t)n, SFS_IMAGE_WRITABLE | SFS_IMAGE_DONT_COPY,
                                       &options, file);
    if (error)
        free(bytes);
    return error;
}

int destination_from_template(const char *template_path, const char *path, struct sfs_file **file)
{
    struct sfs_file *template;
    int code = source_open_whole(template_path, path, INT64_MAX, &template);
    if (code)
        return code;
    int error = open_as_new(template, path, mode_of(template_path), file);
    sfs_discard(template);
    return error ? fail(error, "%s", path) : 0;
}

int destination_close(struct sfs_file *file, int code)
{
    if (file && code == DONE && interrupted)
        code = fail(-EINTR, "%s", sfs_path(file));
    if (file && code == DONE) {
        int error = sfs_flush(file);
        if (error)
            code = fail(error, "%s", sfs_path(file));
    }
    sfs_discard(file);
    return code;
}

/* ---- From one file to another ---- */

static bool is_same(const char *a, const char *b)
{
    struct stat s, t;
    return stat(a, &s) == 0 && stat(b, &t) == 0 && s.st_dev == t.st_dev && s.st_ino == t.st_ino;
}

struct copying {
    const char *to_path;
    mode_t mode; /* of a new one, less the umask */
    bool is_new;
    struct sfs_file *from, *to;
    copy_action action;
    void *context;
};

/* Nobody else sees a new one before it is known what it may show. */
static int copy_once(void *context, FILE *out)
{
    struct copying *copying = context;
    mode_t mode = copying->mode & S_IRWXU ? copying->mode & S_IRWXU : S_IRUSR;
    sfs_discard(copying->to); /* what was copied of another state */
    copying->to = NULL;
    int code = copying->is_new ? destination_create(copying->to_path, mode, &copying->to)
                               : destination_open(copying->to_path, mode, &copying->to);
    return code ? code : copying->action(copying->context, copying->from, copying->to, out);
}

/* A new one to those to whom the source is shown, and all that it has led to. */
static int show(const struct copying *copying)
{
    mode_t mask = umask(0777), others = S_IRWXG | S_IRWXO;
    umask(mask);
    mode_t wanted = copying->mode ? copying->mode : DEFAULT_MODE;
    mode_t mode = wanted & ~mask & (sfs_mode_led_to(copying->from) | ~others);
    int error = sfs_set_mode(copying->to, mode);
    return error ? fail(error, "%s", copying->to_path) : 0;
}

static int copy_within(const char *path, copy_action action, void *context)
{
    struct sfs_file *file;
    int code = destination_open(path, 0, &file);
    return code ? code : destination_close(file, action(context, file, file, stdout));
}

int both_copy(const char *from_path, const char *to_path, bool is_new, uint64_t most_copied,
              copy_action action, void *context)
{
    struct copying copying = {.to_path = to_path,
                              .mode = mode_of(from_path),
                              .is_new = is_new,
                              .action = action,
                              .context = context};
    if (!is_new && is_same(from_path, to_path))
        return copy_within(to_path, action, context);
    int code = source_open_whole(from_path, to_path, most_copied, &copying.from);
    if (code)
        return code;
    code = in_one_state(copying.from, copy_once, &copying);
    code = code ? code : show(&copying);
    code = destination_close(copying.to, code);
    sfs_discard(copying.from);
    return code;
}
