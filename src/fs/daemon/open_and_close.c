/* What a mount asks of the library, and what is said when the last commit fails. */
#include "fs/daemon/open_and_close.h"

#include <stdlib.h>
#include <string.h>

#include "common/load_stdin_or_gzip.h"
#include "common/log.h"
#include "dataset/files_together.h"

/* Opens what lies in memory only. What would be written to it would be lost. */
static int open_image(const struct options *options, struct sfs_options *file_options,
                      struct sfs_file **file)
{
    struct loaded loaded;
    int error =
        load_image(options->file, options->image_size, "-o image_size=SIZE allows more", &loaded);
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
