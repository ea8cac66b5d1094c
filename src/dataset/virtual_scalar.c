/* Virtual datasets that are left to libhdf5 altogether: scalars. It opens their sources through our
 * driver, but external raw data of a source by itself, whatever file that is. So before it reads,
 * the sources are looked at here, each time. */
#include <errno.h>

#include "dataset/private.h"
#include "dataset/virtual_sources.h"

static int get_sources(struct sfs_file *file, struct sources **sources)
{
    pthread_mutex_lock(&file->lock);
    int error = file_make_sources(file);
    *sources = file->sources;
    pthread_mutex_unlock(&file->lock);
    return error;
}

/* Of what is not there libhdf5 shows the fill value. */
static int check_source(struct sources *sources, struct sfs_dataset *dataset,
                        const struct hdf5_mapping *mapping)
{
    const struct source_name name = {mapping->file, mapping->dataset, sfs_root(dataset->file)};
    struct sfs_dataset *found;
    struct source *source =
        source_create(sources, dataset->file, dataset->path, &dataset->info.encoded_type, &name);
    if (!source)
        return -ENOMEM;
    int error = source_get(source, dataset->file->fill_missing, &found);
    if (!error) {
        error = source_check_left(source, found);
        source_put(source);
    }
    source_destroy(source);
    return error ? source_missing(error, dataset->file->fill_missing, false) : 0;
}

int left_check(struct sfs_dataset *dataset)
{
    struct hdf5_mappings mappings;
    struct sources *sources;
    if (dataset->info.layout != SFS_VIRTUAL || dataset->virtual || dataset->file->follows)
        return 0;
    int error = get_sources(dataset->file, &sources);
    if (!error)
        error = hdf5_mappings(dataset->file->hdf5, dataset->address, &mappings);
    if (error)
        return error;
    for (size_t i = 0; i < mappings.n && !error; i++)
        error = check_source(sources, dataset, &mappings.mapping[i]);
    hdf5_mappings_free(&mappings);
    return error;
}
