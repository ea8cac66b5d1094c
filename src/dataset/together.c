#include "dataset/together.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cache/cache.h"
#include "common/log.h"
#include "dataset/private.h"
#include "format/object_header.h"
#include "store/store.h"

#define LINE_BYTES   1024               /* of a message */
#define ANSWER_BYTES ((size_t)64 << 20) /* what is kept of files that are closed */

struct together {
    struct sfs_options options;
    struct common_cache common;
};

int together_create(const struct sfs_options *options, struct together **out)
{
    struct together *together = calloc(1, sizeof(*together));
    if (!together)
        return -ENOMEM;
    together->options = *options;
    int error = common_cache_create(options, &together->common);
    hdf5_keep_answers(ANSWER_BYTES);
    hdf5_answer_directly(true);
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
    free(together);
}

static void keep_line(void *context, const char *line)
{
    snprintf(context, LINE_BYTES, "%s", line);
}

static bool is_forbidden(int error)
{
    return error == -EACCES || error == -EPERM || error == -EROFS;
}

/* What keeps it from being opened for reading, too, is said then. */
static int open_writable(struct together *together, const struct store_found *found,
                         struct sfs_file **file)
{
    char why[LINE_BYTES] = "";
    struct sfs_options options = together->options;
    log_divert(keep_line, why);
    int error = file_over_found(found, &together->common, &options, file);
    log_divert(NULL, NULL);
    if (!error || error == -ENOMEM)
        return error;
    int level = is_forbidden(error) ? LOG_INFO : LOG_WARNING;
    if (!*why)
        snprintf(why, sizeof(why), "%s: %s", found->path, strerror(-error));
    options.writable = options.share = false;
    error = file_over_found(found, &together->common, &options, file);
    if (!error)
        log_message(level, "open only for reading, for want of writing: %s", why);
    return error;
}

int together_open(struct together *together, int fd, const char *path, struct sfs_file **file)
{
    struct store_found found = {.fd = fd, .path = (char *)path};
    if (fstat(fd, &found.st) < 0)
        return -errno;
    if (together->options.writable)
        return open_writable(together, &found, file);
    return file_over_found(&found, &together->common, &together->options, file);
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

static void say_nothing(void *context, const char *line)
{
    (void)context, (void)line;
}

bool together_may_have_attributes(int fd, const char *path)
{
    struct store *store;
    struct store_found found = {.fd = fd, .path = (char *)path};
    log_divert(say_nothing, NULL); /* opening it says it all again */
    bool may = true;
    if (fstat(fd, &found.st) == 0 && store_open_found(&found, false, &store) == 0) {
        may = !has_none(store);
        store_close(store);
    }
    log_divert(NULL, NULL);
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
