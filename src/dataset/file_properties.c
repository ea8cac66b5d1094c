/* What is known of an open file, and what can be set: of the file in its folder, and of its cache. */
#include <errno.h>

#include "cache/cache.h"
#include "dataset/private.h"
#include "store/store.h"

const char *sfs_path(const struct sfs_file *file)
{
    return store_path(file->store);
}

int sfs_stat(const struct sfs_file *file, struct stat *st)
{
    FOLLOWED((struct sfs_file *)file);
    return (store_is_for_others(file->store) ? store_stat_since : store_stat)(file->store, st);
}

int sfs_statvfs(const struct sfs_file *file, struct statvfs *st)
{
    FOLLOWED((struct sfs_file *)file);
    return store_statvfs(file->store, st);
}

mode_t sfs_mode_led_to(const struct sfs_file *file)
{
    return store_mode_led_to(file->store);
}

int sfs_set_mode(struct sfs_file *file, mode_t mode)
{
    return store_set_mode(file->store, mode);
}

int sfs_set_cache_size(struct sfs_file *file, size_t bytes)
{
    if (bytes == 0)
        return -EINVAL;
    cache_set_limit(file->cache, bytes);
    return 0;
}

void sfs_statistics(const struct sfs_file *file, struct sfs_statistics *statistics)
{
    cache_statistics(file->cache, statistics);
    store_counters(file->store, &statistics->store_reads, &statistics->store_bytes_read);
    statistics->store_commits = store_commits(file->store);
}
