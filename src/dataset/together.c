#include "dataset/together.h"

#include <errno.h>
#include <stdlib.h>

#include "cache/cache.h"
#include "dataset/private.h"
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

void together_statistics(const struct together *together, struct sfs_statistics *statistics)
{
    *statistics = (struct sfs_statistics){0};
    cache_statistics(together->common.cache, statistics);
}
