#include "dataset/files_together.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cache/cache.h"
#include "common/log.h"
#include "dataset/private.h"
#include "format/object_header.h"
#include "store/store.h"

#define ANSWER_BYTES ((size_t)64 << 20) /* what is kept of files that are closed */

struct together {
    struct sfs_options options;
    struct common_cache common;
    int files; /* the folder of external_files, which stays that one; -1: none */
    char files_path[32];
};

static int keep_files(struct together *together)
{
    const char *path = together->options.external_files;
    together->files = path ? open(path, O_PATH | O_CLOEXEC) : -1;
    if (path && together->files < 0)
        return -errno;
    snprintf(together->files_path, sizeof(together->files_path), "/proc/self/fd/%d",
             together->files);
    together->options.external_files = path ? together->files_path : NULL;
    return 0;
}

int together_create(const struct sfs_options *options, struct together **out)
{
    struct together *together = calloc(1, sizeof(*together));
    if (!together)
        return -ENOMEM;
    together->options = *options;
    int error = keep_files(together);
    if (!error)
        error = common_cache_create(options, &together->common);
    hdf5_keep_answers(ANSWER_BYTES);
    if (error)
        together_destroy(together);
    else
        *out = together;
    return error;
}

void together_destroy(struct together *together)
{
    if (!together)
        return;
    common_cache_destroy(&together->common);
    if (together->files >= 0)
        close(together->files);
    free(together);
}

static bool is_forbidden(int error)
{
    return error == -EACCES || error == -EPERM || error == -EROFS;
}

/* What keeps it from being opened for reading, too, is said then. */
static int open_writable(struct opening *opening, struct sfs_file **file)
{
    struct why why;
    int refusal;
    opening->why = &why;
    int error = file_open_or_read(opening, &refusal, file);
    if (!error && refusal)
        log_message(is_forbidden(refusal) ? LOG_INFO : LOG_WARNING,
                    "open only for reading, for want of writing: %s", why.text);
    return error;
}

int together_open(struct together *together, int fd, const char *path, struct sfs_file **file)
{
    struct store_found found = {.fd = fd, .path = (char *)path};
    struct sfs_options options = together->options;
    struct opening opening = {
        .path = path, .found = &found, .common = &together->common, .options = &options};
    options.share = true;
    if (fstat(fd, &found.st) < 0)
        return -errno;
    return options.writable ? open_writable(&opening, file) : file_open_as(&opening, file);
}

int together_open_alone(const char *path, const struct sfs_options *options, struct why *why,
                        int *refusal, struct sfs_file **file)
{
    const struct opening opening = {.path = path, .options = options, .why = why};
    return file_error(file_open_or_read(&opening, refusal, file));
}

/* If it has not begun to write there is nothing to commit, and another program may have the lock.
 */
static int finish_writing(struct sfs_file *file)
{
    if (!writing_hold(file))
        return 0;
    sfs_end_writing(file);
    return sfs_share(file);
}

bool together_is_shared(const struct sfs_file *file)
{
    return store_is_shared(file->store);
}

bool together_is_outdated(const struct sfs_file *file)
{
    struct stat st;
    if (!store_is_shared(file->store))
        return false;
    return !store_is_as_shared(file->store) || sfs_stat(file, &st) < 0 || st.st_nlink == 0;
}

/* Sharing a lock gives it away for a moment. */
int together_finish(struct sfs_file *file, struct stat *st)
{
    int error = finish_writing(file);
    if (sfs_stat(file, st) < 0 || together_is_outdated(file))
        *st = (struct stat){0};
    return error;
}

/* That it has none. */
static bool has_none(struct store *store)
{
    struct why why;
    struct superblock superblock;
    struct object_header *header;
    if (superblock_read(store, &superblock, &why) < 0 || superblock.flags ||
        object_header_read(store, &superblock, superblock.root, &header, &why) < 0)
        return false;
    bool found = object_header_find(header, MESSAGE_ATTRIBUTE) ||
                 object_header_find(header, MESSAGE_ATTRIBUTE_INFO);
    object_header_free(header);
    return !found;
}

bool together_may_have_attributes(int fd, const char *path)
{
    struct store *store;
    struct why why; /* opening it says it again */
    struct store_found found = {.fd = fd, .path = (char *)path};
    const struct store_opening how = {.found = &found, .why = &why};
    if (fstat(fd, &found.st) < 0 || store_open_as(path, &how, &store) < 0)
        return true;
    bool may = !has_none(store);
    store_close(store);
    return may;
}

void together_statistics(const struct together *together, struct sfs_statistics *statistics)
{
    *statistics = (struct sfs_statistics){0};
    cache_statistics(together->common.cache, statistics);
}

int together_set_cache_size(struct together *together, size_t bytes)
{
    if (bytes == 0)
        return -EINVAL;
    cache_set_limit(together->common.cache, bytes);
    return 0;
}
