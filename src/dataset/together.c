#include "dataset/together.h"

#include <errno.h>
#include <stdlib.h>

#include "cache/cache.h"
#include "common/log.h"
#include "dataset/private.h"
#include "format/object_header.h"
#include "store/store.h"

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

int together_open(struct together *together, int fd, const char *path, struct sfs_file **file)
{
    struct store_found found = {.fd = fd, .path = (char *)path};
    if (fstat(fd, &found.st) < 0)
        return -errno;
    return file_over_found(&found, &together->common, &together->options, file);
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
