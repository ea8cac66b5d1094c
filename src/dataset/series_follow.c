/* Series of a followed file, which grow while it stays as it is: new members, and longer ones. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <utlist.h>

#include "dataset/private.h"
#include "dataset/series.h"
#include "dataset/virtual_dataset.h"
#include "dataset/virtual_sources.h"

struct open_series {
    size_t n;
    struct sfs_dataset **dataset; /* each is closed by the owner of the list */
};

/* All open series, unused ones included. -ENOMEM. */
static int hold_series(struct sfs_file *file, struct open_series *held)
{
    struct sfs_dataset *dataset, *next;
    pthread_mutex_lock(&file->lock);
    *held = (struct open_series){
        .dataset = calloc(HASH_COUNT(file->datasets) + 1, sizeof(struct sfs_dataset *))};
    HASH_ITER (hh, file->datasets, dataset, next) {
        if (!held->dataset || !dataset->series)
            continue;
        if (dataset->users++ == 0) {
            dataset_is_used(dataset);
        }
        held->dataset[held->n++] = dataset;
    }
    pthread_mutex_unlock(&file->lock);
    return held->dataset ? 0 : -ENOMEM;
}

static bool is_same_place(const struct series_parts *a, const struct series_parts *b)
{
    bool is_same = a->n == b->n;
    for (size_t i = 0; i < a->n && is_same; i++)
        is_same = a->part[i].number == b->part[i].number &&
                  a->part[i].is_missing == b->part[i].is_missing &&
                  a->part[i].first == b->part[i].first && a->part[i].n == b->part[i].n;
    return is_same;
}

/* Takes over the series, also after an error. */
static int show(struct sfs_dataset *dataset, struct series *series)
{
    uint64_t dims[SFS_MAX_RANK], old[SFS_MAX_RANK];
    ALONE(dataset->file);
    memcpy(old, dataset->info.dims, sizeof(old));
    memcpy(dims, old, sizeof(dims));
    dims[0] = series->parts.frames;
    follow_take_dims(dataset, dims);
    int error = virtual_show(dataset->virtual, series);
    if (error) {
        follow_take_dims(dataset, old);
        series_free(series);
        return error;
    }
    dataset->info.max_dims[0] = dims[0];
    series_free(dataset->series);
    dataset->series = series;
    return 0;
}

/* What is wrong with a series, which was said, is no reason not to follow the file. The sources are
 * looked at once more before more of them is shown: one may have been replaced in between. */
static int renew(struct sources *sources, struct sfs_dataset *dataset, bool *changed)
{
    bool moved;
    struct series *series;
    int error = series_look_again(dataset, &series);
    if (error || !series)
        return error == -EILSEQ ? 0 : error;
    if (is_same_place(&dataset->series->parts, &series->parts)) {
        series_free(dataset->series);
        dataset->series = series;
        return 0;
    }
    *changed = true;
    error = sources_refresh(sources, &moved);
    if (error) {
        series_free(series);
        return error;
    }
    return show(dataset, series);
}

int series_refresh(struct sfs_file *file)
{
    struct open_series held = {0};
    bool moved, changed = false;
    pthread_mutex_lock(&file->lock);
    struct sources *sources = file->owns_sources ? file->sources : NULL;
    pthread_mutex_unlock(&file->lock);
    if (!sources)
        return 0;
    pthread_mutex_lock(&file->renewing);
    int error = sources_refresh(sources, &moved);
    if (!error)
        error = hold_series(file, &held);
    for (size_t i = 0; !error && i < held.n; i++)
        error = renew(sources, held.dataset[i], &changed);
    for (size_t i = 0; (moved || changed) && i < held.n; i++)
        use_changed(&held.dataset[i]->use);
    if (moved || changed)
        atomic_fetch_add(&file->states, 1);
    pthread_mutex_unlock(&file->renewing);
    for (size_t i = 0; i < held.n; i++)
        sfs_dataset_close(held.dataset[i]);
    free(held.dataset);
    return error;
}
