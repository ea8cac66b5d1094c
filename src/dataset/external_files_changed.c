/* External raw data that other programs write in place: nothing in the HDF5 file tells of it, and they take no locks.
 * So each opening of such a dataset makes the cache forget what it has, which is read again from these files; what was
 * made of elements counts as outdated if their times and sizes tell, or cannot tell, that they were changed. */
#include <time.h>

#include "cache/cache.h"
#include "dataset/private.h"
#include "store/store.h"

#define MOST_FILES 64 /* that are looked at; if there are more they count as changed */
#define SURE_SECONDS                                                                               \
    2 /* a file may be changed once more at the same time as this one shows, if that is later */

static uint64_t add(uint64_t state, uint64_t number)
{
    state = (state ^ number) * 0x9e3779b97f4a7c15u;
    return state ^ state >> 32;
}

/* Adds what tells one state of a file from another. Returns whether that is sure. */
static bool add_file(const struct sfs_dataset *dataset, const char *name, time_t now,
                     uint64_t *state)
{
    struct store_found found;
    int error = store_find(dataset->file->store, STORE_RAW, name, &found);
    *state = add(*state, (uint64_t)error);
    if (error)
        return true;
    const struct stat *st = &found.st;
    const uint64_t numbers[] = {st->st_dev,
                                st->st_ino,
                                (uint64_t)st->st_size,
                                (uint64_t)st->st_mtim.tv_sec,
                                (uint64_t)st->st_mtim.tv_nsec,
                                (uint64_t)st->st_ctim.tv_sec,
                                (uint64_t)st->st_ctim.tv_nsec};
    for (size_t i = 0; i < sizeof(numbers) / sizeof(*numbers); i++)
        *state = add(*state, numbers[i]);
    bool is_sure =
        st->st_mtim.tv_sec + SURE_SECONDS < now && st->st_ctim.tv_sec + SURE_SECONDS < now;
    store_found_free(&found);
    return is_sure;
}

void external_files_look_at(struct sfs_dataset *dataset)
{
    const struct hdf5_storage *storage = &dataset->storage;
    time_t now = time(NULL);
    uint64_t state = 1;
    bool is_sure = storage->n_segments <= MOST_FILES;
    for (size_t i = 0; i < storage->n_segments && is_sure; i++)
        is_sure = add_file(dataset, storage->segments[i].name, now, &state);
    if (dataset->cache)
        cache_outdate(dataset->cache);
    if (atomic_exchange(&dataset->raw_state, is_sure ? state : 0) != state || !is_sure)
        use_changed(&dataset->use);
}
