/* The dataset of what was selected. Frames of which nothing was have no chunks there. */
#include "cli/selected_dataset.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/blocks.h"
#include "cli/dense_many_chunks.h"
#include "cli/options.h"

int selected_create(struct sfs_file *file, const char *path, const struct sfs_dataset_create *like,
                    struct sfs_dataset **dataset)
{
    struct sfs_dataset_create create = {.rank = like->rank, .is_dense = true};
    struct filters filters = {0};
    void *bytes = NULL;
    char *name = NULL;
    size_t n;
    memcpy(create.dims, like->dims, sizeof(create.dims));
    memcpy(create.max_dims, like->max_dims, sizeof(create.max_dims));
    memcpy(create.chunk_dims, like->chunk_dims, sizeof(create.chunk_dims));
    int error = asprintf(&name, "%s_selected", path) < 0 ? -ENOMEM : 0;
    if (error)
        return fail(error, "%s", path);
    error = sfs_type_encode("uint8", &bytes, &n);
    create.type = (struct sfs_encoded){bytes, n};
    int code = error ? fail(error, "%s", name) : dense_limit(sfs_path(file), name, &create);
    if (!code)
        code = filter_parse("import", DEFAULT_DEFLATE, VALUES_SECTION, &filters);
    if (!code) {
        filters_use(&filters, &create);
        error = sfs_dataset_create(file, name, &create, dataset);
        code = error ? fail(error, "%s:%s", sfs_path(file), name) : 0;
    }
    free(bytes);
    free(name);
    return code;
}

void selected_free(struct selected *selected)
{
    free(selected->ones);
    *selected = (struct selected){0};
}

int selected_take(struct selected *selected, const struct sfs_defined *found,
                  const struct sfs_slab *slab)
{
    size_t n = (size_t)slab_elements(slab);
    selected->is_empty = found->elements == 0;
    if (selected->is_empty)
        return 0;
    if (selected->room < n) {
        free(selected->ones);
        selected->ones = malloc(n);
        selected->room = selected->ones ? n : 0;
    }
    if (!selected->ones)
        return -ENOMEM;
    memset(selected->ones, 0, n);
    for (size_t i = 0; i < found->n; i++)
        memset(selected->ones + found->interval[i].first, 1,
               (size_t)(found->interval[i + 1].index - found->interval[i].index));
    return 0;
}

int selected_write(const struct selected *selected, struct sfs_dataset *dataset,
                   const struct sfs_slab *slab, uint64_t full_every)
{
    struct sfs_slab frame = *slab;
    int error = 0;
    if (selected->is_empty)
        return 0;
    if (slab->rank < 3)
        return sfs_write(dataset, slab, selected->ones);
    size_t n = (size_t)(slab_elements(slab) / slab->count[0]);
    frame.count[0] = 1;
    for (uint64_t i = 0; i < slab->count[0] && !error; i++) {
        const unsigned char *ones = selected->ones + i * n;
        frame.start[0] = slab->start[0] + i;
        if (frame.start[0] % full_every == 0 && memchr(ones, 1, n))
            error = sfs_write(dataset, &frame, ones);
    }
    return error;
}
