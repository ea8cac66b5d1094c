/* What a mount asks of the library, and what is said when the last commit fails. */
#include "fs/daemon/open_and_close.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "common/links_of_others.h"
#include "common/load_stdin_or_gzip.h"
#include "common/log.h"
#include "common/why.h"
#include "dataset/files_together.h"
#include "fs/daemon/detach.h"

/* Of what was found by the path. */
static int check_links(const char *path, const struct stat *found, struct why *why)
{
    uid_t user;
    const char *kind = S_ISDIR(found->st_mode) ? "folder" : "file";
    int error = links_check(path, found, &user);
    if (error == -EPERM)
        why_refused(why, error,
                    "a symbolic link of user %u leads to a %s of user %u: name that %s itself",
                    (unsigned)user, kind, (unsigned)found->st_uid, kind);
    else if (error)
        why_refused(why, error, "%s", strerror(-error));
    return error;
}

int daemon_judge_links(struct options *options, const char *given)
{
    struct stat st;
    struct why why;
    bool matters = !options->read_only || options->allow_other;
    if (!matters || stat(options->file, &st) < 0 || check_links(given, &st, &why) == 0)
        return 0;
    if (options->allow_other || options->wants_writing) {
        daemon_fail(given, why.text);
        return EXIT_USAGE;
    }
    log_warning("mounted read-only, for want of writing: %s: %s", given, why.text);
    options->read_only = true;
    return 0;
}

/* Opens what lies in memory only. What would be written to it would be lost. */
static int open_image(const struct options *options, struct sfs_options *file_options,
                      struct sfs_file **file)
{
    struct loaded loaded;
    int error =
        load_image(options->file, options->image_size, "-o image_size=SIZE allows more", &loaded);
    struct why why;
    if (!error && options->allow_other && loaded.has_st) {
        error = check_links(options->file, &loaded.st, &why);
        if (error) {
            log_error("%s: %s", options->file, why.text);
            free(loaded.bytes);
        }
    }
    if (error)
        return error;
    struct sfs_image_options image = {
        .name = options->file, .is_of_file = true, .st = loaded.has_st ? &loaded.st : NULL};
    if (options->allow_other)
        loaded.st.st_mode = loaded.shown;
    file_options->image = &image;
    error = sfs_open_image(loaded.bytes, loaded.n, SFS_IMAGE_DONT_COPY, file_options, file);
    if (error)
        free(loaded.bytes);
    else if (!options->read_only)
        log_info("%s: an image in memory is mounted read-only", options->file);
    return error;
}

/* Whom the mount admits, whatever the mode of the file: the owner and the group shown there can be any
 * users, who read; and may write what the owner and the group may. */
static mode_t shown_mode(const struct options *options)
{
    bool is_anybodys = options->has_uid && options->uid != 0;
    bool is_any_groups = options->has_gid;
    mode_t bits = options->has_umask ? 0666 & ~options->umask : 0;
    if (is_anybodys || is_any_groups)
        bits |= 0444;
    return bits | (is_anybodys ? S_ISUID : 0) | (is_any_groups ? S_ISGID : 0);
}

struct sfs_options daemon_file_options(const struct options *options)
{
    return (struct sfs_options){.cache_size = options->cache_size,
                                .policy = options->policy,
                                .chunk_memory = options->chunk_memory,
                                .fill_missing = options->fill_missing,
                                .external_files = options->external_files,
                                .for_others = options->allow_other,
                                .mode = shown_mode(options),
                                .is_trusted = options->trusts,
                                .workers = options->workers,
                                .follow = options->follow > 0,
                                .hdf5_worker = !options->hdf5_inside,
                                .own_links = true,
                                .writable = !options->read_only,
                                .share = !options->wants_writing};
}

int daemon_open_file(const struct options *options, struct sfs_file **file)
{
    struct sfs_options file_options = daemon_file_options(options);
    struct why why;
    int refusal;
    if (load_is_wanted(options->file))
        return open_image(options, &file_options, file);
    if (options->read_only)
        return sfs_open(options->file, &file_options, file);
    int error = together_open_alone(options->file, &file_options, &why, &refusal, file);
    if (!error && refusal)
        log_warning("mounted read-only, for want of writing: %s", why.text);
    return error;
}

int daemon_close_file(struct sfs_file *file, bool is_writable, int status)
{
    int error = sfs_close(file);
    if (!error || !is_writable)
        return status;
    log_loss("what was written last could not be committed: %s", strerror(-error));
    return status == EXIT_DONE ? EXIT_SYSTEM : status;
}
