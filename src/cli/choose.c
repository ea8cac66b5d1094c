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
    unsigned block = block_bytes(create), width = block / (2 * (unsigned)create->rank);
    size[0] = block;
    size[1] = block / 2;
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

/* The best of the candidates, by their bytes in a file. */
static int try_all(struct sfs_file *file, const struct copy *copy,
                   const struct sfs_dataset_create *create, struct filters *filters, unsigned *best)
{
    unsigned size[CANDIDATES];
    uint64_t least = UINT64_MAX, bytes;
    int error = 0;
    candidates(create, size);
    for (unsigned i = 0; i < CANDIDATES && !error; i++) {
        char name[16];
        snprintf(name, sizeof(name), "/%u", i);
        error = set_filters(size[i], filters)
                    ? -EINVAL
                    : try_filters(file, copy, create, filters, name, &bytes);
        if (!error && bytes < least) {
            least = bytes;
            *best = size[i];
        }
    }
    return error;
}

int choose_selection_filters(const struct copy *copy, const struct sfs_dataset_create *create,
                             struct filters *filters)
{
    unsigned best = block_bytes(create);
    struct sfs_options options = {.replace = true};
    struct sfs_file *file;
    const char *directory = getenv("TMPDIR");
    char *path;
    if (asprintf(&path, "%s/sparsectl.h5", directory ? directory : "/tmp") < 0)
        return -ENOMEM;
    int error = sfs_create(path, &options, &file);
    free(path);
    if (!error) {
        error = try_all(file, copy, create, filters, &best);
        sfs_discard(file);
    }
    if (error == -EINTR || error == -ENOMEM)
        return error;
    /* Whatever else keeps the trial from being made will keep the real thing from it, or does not
     * matter. */
    messages_forget();
    return set_filters(best, filters) ? -EINVAL : 0;
}
