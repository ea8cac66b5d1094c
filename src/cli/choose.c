/* Choosing filters by trying them on some chunks. */
#include "cli/choose.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

#define TRIED_BLOCKS 4
#define CANDIDATES   4

/* Element sizes that fit a list of blocks, which has start and end of every axis: a whole block,
 * one corner of it, one coordinate, two. */
static void candidates(const struct sfs_dataset_create *create, unsigned size[CANDIDATES])
{
    unsigned width = 2, rank = (unsigned)create->rank;
    for (int i = 0; i < create->rank; i++)
        if (create->chunk_dims[i] > UINT16_MAX + (uint64_t)1)
            width = 4;
    size[0] = 2 * rank * width;
    size[1] = rank * width;
    size[2] = width;
    size[3] = 2 * width;
}

static int set_filters(unsigned size, struct filters *filters)
{
    char shuffle[32];
    snprintf(shuffle, sizeof(shuffle), "shuffle=%u", size);
    filters->n[SELECTION_SECTION] = 0;
    int code = filter_parse("import", shuffle, SELECTION_SECTION, filters);
    return code ? code : filter_parse("import", "deflate=4", SELECTION_SECTION, filters);
}

static int add_size(void *context, const struct sfs_chunk_info *info)
{
    *(uint64_t *)context += info->section_size[SELECTION_SECTION];
    return 0;
}

/* Bytes of the selections of some chunks with these filters. */
static int try_filters(struct sfs_file *file, const struct copy *copy,
                       const struct sfs_dataset_create *create, struct filters *filters,
                       const char *path, uint64_t *bytes)
{
    struct sfs_dataset_create tried = *create;
    struct sfs_dataset *to;
    tried.attributes_file = NULL;
    filters_use(filters, &tried);
    int error = sfs_dataset_create(file, path, &tried, &to);
    if (error)
        return error;
    struct copy some = *copy;
    some.to = to;
    error = copy_some(&some, TRIED_BLOCKS);
    *bytes = 0;
    if (!error)
        error = sfs_chunk_iterate(to, add_size, bytes);
    sfs_dataset_close(to);
    return error;
}

int choose_selection_filters(const struct copy *copy, const struct sfs_dataset_create *create,
                             struct filters *filters)
{
    unsigned size[CANDIDATES], best = 0;
    uint64_t least = UINT64_MAX, bytes;
    struct sfs_options options = {.replace = true};
    struct sfs_file *file;
    const char *directory = getenv("TMPDIR");
    char *path;
    if (asprintf(&path, "%s/sparsectl.h5", directory ? directory : "/tmp") < 0)
        return -ENOMEM;
    int error = sfs_create(path, &options, &file);
    free(path);
    candidates(create, size);
    if (error) {
        messages_forget();
        return set_filters(size[0], filters) ? -EINVAL : 0;
    }
    for (unsigned i = 0; i < CANDIDATES && !error; i++) {
        char name[16];
        snprintf(name, sizeof(name), "/%u", i);
        error = set_filters(size[i], filters)
                    ? -EINVAL
                    : try_filters(file, copy, create, filters, name, &bytes);
        if (!error && bytes < least) {
            least = bytes;
            best = i;
        }
    }
    sfs_discard(file);
    if (error) { /* what is wrong will be said when it is done in earnest */
        messages_forget();
        best = 0;
    }
    return set_filters(size[best], filters) ? -EINVAL : 0;
}
