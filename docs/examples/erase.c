/* Erased elements are undefined again; a chunk in which none is left takes no space.
 *
 * Output:
 *   64 defined in 4 chunks
 *   40 defined in 3 chunks */
#include <inttypes.h>
#include <sparsefs/sparsefs.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void check(int error)
{
    if (error) {
        fprintf(stderr, "%s\n", strerror(-error));
        exit(1);
    }
}

static int count_chunk(void *context, const struct sfs_chunk_info *info)
{
    (void)info;
    ++*(int *)context;
    return 0;
}

static void report(struct sfs_dataset *dataset)
{
    struct sfs_slab all = {.rank = 2, .count = {8, 8}};
    uint64_t elements;
    int chunks = 0;
    check(sfs_count_defined(dataset, &all, &elements));
    check(sfs_chunk_iterate(dataset, count_chunk, &chunks));
    printf("%" PRIu64 " defined in %d chunks\n", elements, chunks);
}

int main(void)
{
    struct sfs_options options = {.replace = true};
    struct sfs_file *file;
    struct sfs_dataset *dataset;
    void *type;
    struct sfs_dataset_create create = {
        .rank = 2, .dims = {8, 8}, .max_dims = {8, 8}, .chunk_dims = {4, 4}};
    check(sfs_create("erase.h5", &options, &file));
    check(sfs_type_encode("float64", &type, &create.type.n));
    create.type.bytes = type;
    check(sfs_dataset_create(file, "/map", &create, &dataset));
    free(type);

    const double values[8][8] = {{0}};
    struct sfs_slab all = {.rank = 2, .count = {8, 8}};
    check(sfs_write(dataset, &all, values));
    report(dataset);
    struct sfs_slab first_rows = {.rank = 2, .count = {4, 6}};
    check(sfs_erase(dataset, &first_rows));
    report(dataset);
    sfs_dataset_close(dataset);
    check(sfs_close(file));
    return 0;
}
