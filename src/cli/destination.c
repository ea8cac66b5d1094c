/* Opening and closing the files that commands write. */
#include "cli/destination.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cli/open_source.h"
#include "common/acl.h"
#include "common/log.h"

#define DEFAULT_MODE 0666 /* of what comes from standard input, less the umask */

static mode_t less_umask(mode_t mode)
{
    mode_t mask = umask(0777);
    umask(mask);
    return mode & 0777 & ~mask;
}

static int destination_create(const char *path, mode_t mode, struct sfs_file **file)
{
    const struct sfs_options options = {.cache_size = FILE_CACHE_BYTES,
                                        .mode = mode,
                                        .own_links = true,
                                        .hdf5_worker = files_are_apart(),
                                        .chunk_memory = source_chunk_memory()};
    int error = sfs_create(path, &options, file);
    return error ? fail(error, "%s", path) : 0;
}

/* *is_new: it was made. */
static int open_or_create(const char *path, mode_t mode, struct sfs_file **file, bool *is_new)
{
    struct sfs_options options = {.writable = true,
                                  .cache_size = FILE_CACHE_BYTES,
                                  .mode = mode,
                                  .own_links = true,
                                  .external_files = source_allowed(),
                                  .hdf5_worker = files_are_apart(),
                                  .chunk_memory = source_chunk_memory()};
    int error = sfs_open(path, &options, file);
    *is_new = error == -ENOENT;
    if (*is_new) {
        messages_forget();
        error = sfs_create(path, &options, file);
    }
    return error ? fail(error, "%s", path) : 0;
}

int destination_open(const char *path, mode_t mode, struct sfs_file **file)
{
    bool is_new;
    return open_or_create(path, mode, file, &is_new);
}

/* Its image becomes a file in memory, which is the new one's with the first flush. */
static int open_as_new(struct sfs_file *template, const char *path, const struct stat *source,
                       struct sfs_file **file)
{
    struct sfs_image_options image = {.name = path, .backing_path = path, .st = source};
    mode_t mode = source ? less_umask(source->st_mode) : 0;
    const struct sfs_options options = {.image = &image,
                                        .mode = source && !mode ? S_IRUSR : mode,
                                        .own_links = true,
                                        .hdf5_worker = files_are_apart()};
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
    struct stat source;
    int code = source_open_whole(template_path, path, INT64_MAX, &template, &source);
    if (code)
        return code;
    int error = open_as_new(template, path, source.st_mode ? &source : NULL, file);
    sfs_discard(template);
    return error ? fail(error, "%s", path) : 0;
}

static int flush(struct sfs_file *file, int code)
{
    if (file && code == DONE && interrupted)
        code = fail(-EINTR, "%s", sfs_path(file));
    if (file && code == DONE) {
        int error = sfs_flush(file);
        if (error)
            code = fail(error, "%s", sfs_path(file));
    }
    return code;
}

int destination_close(struct sfs_file *file, int code)
{
    code = flush(file, code);
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
    bool is_new;        /* it must not be there */
    struct stat source; /* mode and group */
    bool has_source;    /* else standard input is copied */
    mode_t mode;        /* of a new one, in the source's group */
    bool was_made;      /* it is a new one */
    struct sfs_file *from, *to;
    copy_action action;
    void *context;
};

/* Nobody else sees a new one before it is known what it may show. */
static int copy_once(void *context, FILE *out)
{
    struct copying *copying = context;
    mode_t own = copying->has_source ? copying->source.st_mode & S_IRWXU : 0;
    mode_t mode = own ? own : S_IRUSR;
    sfs_discard(copying->to); /* what was copied of another state */
    copying->to = NULL;
    copying->was_made = true;
    int code = copying->is_new
                   ? destination_create(copying->to_path, mode, &copying->to)
                   : open_or_create(copying->to_path, mode, &copying->to, &copying->was_made);
    return code ? code : copying->action(copying->context, copying->from, copying->to, out);
}

/* A new one to those to whom the source is shown, and all that it has led to. In another group it
 * is shown to that as to others. */
static int show(struct copying *copying)
{
    struct stat st, from;
    mode_t wanted = copying->has_source ? copying->source.st_mode : DEFAULT_MODE;
    mode_t led_to = sfs_mode_led_to(copying->from);
    int error = sfs_stat(copying->to, &st);
    error = error ? error : sfs_stat(copying->from, &from);
    bool is_others = copying->has_source && st.st_gid != copying->source.st_gid;
    if (!error && from.st_gid != (copying->has_source ? copying->source.st_gid : st.st_gid))
        led_to = acl_without_group(led_to); /* it is the copy's group that is shown it */
    copying->mode = less_umask(wanted) & (led_to | S_IRWXU);
    if (!error)
        error =
            sfs_set_mode(copying->to, is_others ? acl_without_group(copying->mode) : copying->mode);
    return error ? fail(error, "%s", copying->to_path) : 0;
}

/* To the source's group, where it has its name and so can be opened, if this user may do that; then
 * the group gets its bits. */
static void give_to_group(const struct copying *copying)
{
    struct stat st, found;
    if (!copying->was_made || !copying->has_source || sfs_stat(copying->to, &st) < 0 ||
        st.st_gid == copying->source.st_gid)
        return;
    int fd = open(copying->to_path, O_RDONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
    bool is_it =
        fd >= 0 && fstat(fd, &found) == 0 && found.st_dev == st.st_dev && found.st_ino == st.st_ino;
    if (is_it && fchown(fd, (uid_t)-1, copying->source.st_gid) == 0 &&
        fchmod(fd, copying->mode) < 0)
        log_info("%s: its group does not get its permissions: %s", copying->to_path,
                 strerror(errno));
    if (fd >= 0)
        close(fd);
}

static int copy_within(const char *path, copy_action action, void *context)
{
    struct sfs_file *file;
    int code = destination_open(path, 0, &file);
    if (code)
        return code;
    code = action(context, file, file, stdout);
    return destination_close(file, code ? code : finish_output(code));
}

int both_copy(const char *from_path, const char *to_path, bool is_new, uint64_t most_copied,
              copy_action action, void *context)
{
    struct copying copying = {
        .to_path = to_path, .is_new = is_new, .action = action, .context = context};
    if (!is_new && is_same(from_path, to_path))
        return copy_within(to_path, action, context);
    int code = source_open_whole(from_path, to_path, most_copied, &copying.from, &copying.source);
    if (code)
        return code;
    copying.has_source = copying.source.st_mode;
    code = in_one_state(copying.from, copy_once, &copying);
    code = code ? code : show(&copying);
    code = code ? code : finish_output(code);
    code = flush(copying.to, code);
    if (code == DONE)
        give_to_group(&copying);
    sfs_discard(copying.to);
    sfs_discard(copying.from);
    return code;
}
