/* Writes elements of variable length into a dataset that is there.
 *
 * put_sequences FILE DATASET: standard input has, for each element in row-major order, the number of
 * its base elements (of a string, its bytes) in 8 bytes, and these. Empty ones are written to dense
 * datasets only: elsewhere they stay undefined. */
#include <errno.h>
#include <sparsefs/sparsefs.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void check(int error)
{
    if (error) {
        fprintf(stderr, "put_sequences: %s\n", strerror(-error));
        exit(1);
    }
}

static void *take(size_t n)
{
    char *bytes = malloc(n + 1);
    check(bytes && fread(bytes, 1, n, stdin) == n ? 0 : -EIO);
    return bytes;
}

static struct sfs_sequence next(size_t base)
{
    uint64_t *n = take(sizeof(*n));
    struct sfs_sequence sequence = {.n = *n};
    sequence.elements = take(sequence.n * base);
    free(n);
    return sequence;
}

static void put(struct sfs_dataset *dataset)
{
    const struct sfs_dataset_info *info = sfs_dataset_info(dataset);
    struct sfs_slab slab = {.rank = info->rank};
    memcpy(slab.count, info->dims, sizeof(slab.count));
    struct sfs_sequence *all = calloc(info->elements, sizeof(*all));
    struct sfs_interval *interval = calloc(info->elements + 1, sizeof(*interval));
    struct sfs_defined defined = {.interval = interval};
    check(all && interval ? 0 : -ENOMEM);
    bool before = false; /* the element before is there */
    for (uint64_t i = 0; i < info->elements; i++) {
        struct sfs_sequence sequence = next(info->type.is_string ? 1 : info->type.base->size);
        bool is_there = sequence.n > 0 || info->is_dense;
        if (is_there && !before)
            interval[defined.n++] = (struct sfs_interval){i, defined.elements};
        if (is_there)
            all[defined.elements++] = sequence;
        else
            free((void *)sequence.elements);
        before = is_there;
    }
    interval[defined.n].index = defined.elements;
    check(sfs_write_values(dataset, &slab, &defined, all));
    for (uint64_t i = 0; i < defined.elements; i++)
        free((void *)all[i].elements);
    free(all);
    free(interval);
}

int main(int argc, char **argv)
{
    struct sfs_file *file;
    struct sfs_dataset *dataset;
    uint64_t address;
    if (argc != 3)
        return 2;
    check(sfs_open(argv[1], &(struct sfs_options){.writable = true}, &file));
    check(sfs_find(file, sfs_root(file), argv[2], &address));
    check(sfs_dataset_open(file, address, argv[2], &dataset));
    put(dataset);
    sfs_dataset_close(dataset);
    check(sfs_close(file));
    return 0;
}
