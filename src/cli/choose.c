/* Choosing filters and chunks by trying them on some chunks. */
#include "cli/choose.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

#define TRIED_BLOCKS 4
#define CANDIDATES   4
#define FAST_SHARE   40 /* one part in so many more bytes is no reason not to inflate faster */
#define MOST_BLOCKS  UINT16_MAX /* of a selection with coordinates of 2 bytes */

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

static int set_filters(unsigned size, const char *deflate, struct filters *filters)
{
    char shuffle[32];
    snprintf(shuffle, sizeof(shuffle), "shuffle=%u", size);
    filters->n[SELECTION_SECTION] = 0;
    int code = filter_parse("import", shuffle, SELECTION_SECTION, filters);
    return code ? code : filter_parse("import", deflate, SELECTION_SECTION, filters);
}

/* The selections of some chunks. */
struct trial {
    uint64_t bytes; /* stored, in all */
    uint64_t most;  /* of one, before filters */
};

static int add_size(void *context, const struct sfs_chunk_info *info)
{
    struct trial *trial = context;
    trial->bytes += info->section_size[SELECTION_SECTION];
    if (info->unfiltered_size[SELECTION_SECTION] > trial->most)
        trial->most = info->unfiltered_size[SELECTION_SECTION];
    return 0;
}

static int try_out(struct sfs_file *file, const struct copy *copy,
                   const struct sfs_dataset_create *create, const char *path, struct trial *trial)
{
    struct sfs_dataset_create tried = *create;
    struct sfs_dataset *to;
    tried.attributes_file = NULL;
    *trial = (struct trial){0};
    int error = sfs_dataset_create(file, path, &tried, &to);
    if (error)
        return error;
    struct copy some = *copy;
    some.to = to;
    error = copy_some(&some, TRIED_BLOCKS);
    if (!error)
        error = sfs_chunk_iterate(to, add_size, trial);
    sfs_dataset_close(to);
    return error;
}

/* A file that nobody sees; to be discarded. */
static int open_scratch(struct sfs_file **file)
{
    struct sfs_options options = {.replace = true, .cache_size = FILE_CACHE_BYTES};
    const char *directory = getenv("TMPDIR");
    char *path;
    if (asprintf(&path, "%s/sparsectl.h5", directory ? directory : "/tmp") < 0)
        return -ENOMEM;
    int error = sfs_create(path, &options, file);
    free(path);
    return error;
}

/* What is wrong will be said when it is done in earnest, or does not matter. */
static int forgive(int error)
{
    if (error == -EINTR || error == -ENOMEM)
        return error;
    messages_forget();
    return 0;
}

/* The best of the candidates, by their bytes in a file. */
static int try_all(struct sfs_file *file, const struct copy *copy,
                   const struct sfs_dataset_create *create, struct filters *filters, unsigned *best,
                   const char **deflate)
{
    struct sfs_dataset_create tried = *create;
    unsigned size[CANDIDATES];
    uint64_t least = UINT64_MAX;
    struct trial trial;
    int error = 0;
    candidates(create, size);
    for (unsigned i = 0; i <= CANDIDATES && !error; i++) {
        char name[16];
        bool fast = i == CANDIDATES; /* the best one */
        snprintf(name, sizeof(name), "/%u", i);
        error = set_filters(fast ? *best : size[i], fast ? FAST_DEFLATE : DEFAULT_DEFLATE, filters)
                    ? -EINVAL
                    : 0;
        filters_use(filters, &tried);
        if (!error)
            error = try_out(file, copy, &tried, name, &trial);
        if (!error && fast && trial.bytes <= least + least / FAST_SHARE)
            *deflate = FAST_DEFLATE;
        if (!error && !fast && trial.bytes < least) {
            least = trial.bytes;
            *best = size[i];
        }
    }
    return error;
}

int choose_selection_filters(const struct copy *copy, const struct sfs_dataset_create *create,
                             struct filters *filters)
{
    unsigned best = block_bytes(create);
    const char *deflate = DEFAULT_DEFLATE;
    struct sfs_file *file;
    int error = open_scratch(&file);
    if (!error) {
        error = try_all(file, copy, create, filters, &best, &deflate);
        sfs_discard(file);
    }
    error = forgive(error);
    return error ? error : set_filters(best, deflate, filters) ? -EINVAL : 0;
}

int choose_chunk(const struct copy *copy, struct sfs_dataset_create *create)
{
    struct sfs_dataset_create tried = *create;
    struct sfs_file *file;
    struct trial trial = {0};
    int error = open_scratch(&file);
    if (!error) {
        tried.n_filters[SELECTION_SECTION] = tried.n_filters[VALUES_SECTION] = 0;
        error = try_out(file, copy, &tried, "/chunk", &trial);
        sfs_discard(file);
    }
    uint64_t blocks = trial.most / (8 * (uint64_t)create->rank); /* of 4 bytes a coordinate */
    int axis = create->rank > 2 ? 1 : 0;
    while (axis < create->rank - 1 && create->chunk_dims[axis] == 1)
        axis++;
    if (!error && blocks > MOST_BLOCKS) { /* along the slowest axis, so that rows stay whole */
        uint64_t parts = blocks / (MOST_BLOCKS * 3 / 4) + 1, dim = create->chunk_dims[axis];
        create->chunk_dims[axis] = parts < dim ? (dim + parts - 1) / parts : 1;
    }
    return forgive(error);
}
