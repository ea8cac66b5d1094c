/* External raw data that other programs write in place: nothing in the HDF5 file tells of it, and they take no locks.
 * So each opening of such a dataset looks at these files: if their times and sizes tell, or cannot tell, that they were
 * changed, the cache forgets what it has, which is read again from them, and what was made of elements counts as
 * outdated. The times do not tell of everything that is written through a mapping: the cache forgets once in a while in
 * any case. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "cache/cache.h"
#include "common/clock.h"
#include "common/hash.h"
#include "dataset/private.h"
#include "store/store.h"

/* Files that each opening looks at; and more, that are looked at if that is due. Still more count as changed then. */
#define FEW_FILES  8
#define MOST_FILES 256
#define DUE_NANOS  100000000u

/* A file may be changed once more at the same time as this one shows, if that is later. */
#define SURE_SECONDS 2

static int compare_names(const void *a, const void *b)
{
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

int external_files_list(struct sfs_dataset *dataset)
{
    const struct hdf5_storage *storage = &dataset->storage;
    size_t n = 0;
    if (storage->n_segments == 0)
        return 0;
    const char **names = dataset->raw_names = calloc(storage->n_segments, sizeof(*names));
    if (!names)
        return -ENOMEM;
    for (size_t i = 0; i < storage->n_segments; i++)
        names[i] = storage->segments[i].name;
    qsort(names, storage->n_segments, sizeof(*names), compare_names);
    for (size_t i = 0; i < storage->n_segments; i++)
        if (n == 0 || strcmp(names[n - 1], names[i]) != 0)
            names[n++] = names[i];
    dataset->n_raw_names = n;
    return 0;
}

/* Adds what tells one state of a file from another. Returns whether that is sure. */
static bool add_file(const struct sfs_dataset *dataset, const char *name, time_t now,
                     uint64_t *state)
{
    struct store_found found;
    int error = store_find(dataset->file->store, STORE_RAW_STATE, name, &found);
    if (error) {
        const uint64_t numbers[] = {*state, (uint64_t)error};
        *state = hash_keyed(numbers, sizeof(numbers));
        return true;
    }
    const struct stat *st = &found.st;
    const uint64_t numbers[] = {*state,
                                st->st_dev,
                                st->st_ino,
                                (uint64_t)st->st_size,
                                (uint64_t)st->st_mtim.tv_sec,
                                (uint64_t)st->st_mtim.tv_nsec,
                                (uint64_t)st->st_ctim.tv_sec,
                                (uint64_t)st->st_ctim.tv_nsec};
    *state = hash_keyed(numbers, sizeof(numbers));
    bool is_sure =
        st->st_mtim.tv_sec + SURE_SECONDS < now && st->st_ctim.tv_sec + SURE_SECONDS < now;
    store_found_free(&found);
    return is_sure;
}

/* Of all files; 0: it is not sure. */
static uint64_t state_of(const struct sfs_dataset *dataset)
{
    time_t now = time(NULL);
    uint64_t state = 1;
    bool is_sure = dataset->n_raw_names <= MOST_FILES;
    for (size_t i = 0; i < dataset->n_raw_names && is_sure; i++)
        is_sure = add_file(dataset, dataset->raw_names[i], now, &state);
    return is_sure ? state : 0;
}

/* Of several calls at once it is due for one. */
static bool is_due(struct sfs_dataset *dataset)
{
    uint64_t now = clock_now(), last = atomic_load(&dataset->raw_looked);
    return now - last >= DUE_NANOS &&
           atomic_compare_exchange_strong(&dataset->raw_looked, &last, now);
}

/* The state is noted last: who finds it unchanged reads what the files have had since. */
void external_files_look_at(struct sfs_dataset *dataset)
{
    bool due = is_due(dataset);
    if (!due && dataset->n_raw_names > FEW_FILES)
        return;
    uint64_t state = state_of(dataset);
    bool differs = state == 0 || state != atomic_load(&dataset->raw_state);
    if (dataset->cache && (differs || due))
        cache_outdate(dataset->cache);
    if (differs)
        use_changed(&dataset->use);
    atomic_store(&dataset->raw_state, state);
}
