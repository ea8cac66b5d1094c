/* A sparse dataset is created, written in part and read back: what was not written reads as the
 * fill value.
 *
 * Output:
 *   0 0 0 0 0 0
 *   0 11 12 13 0 0
 *   0 21 22 23 0 0
 *   0 0 0 0 0 0 */
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

int main(void)
{
    struct sfs_options options = {.replace = true};
    struct sfs_file *file;
    check(sfs_create("write_read.h5", &options, &file));

    void *type;
    struct sfs_dataset_create create = {
        .rank = 2, .dims = {4, 6}, .max_dims = {4, 6}, .chunk_dims = {2, 3}};
    check(sfs_type_encode("int32", &type, &create.type.n));
    create.type.bytes = type;
    struct sfs_dataset *dataset;
    check(sfs_dataset_create(file, "/entry/data", &create, &dataset));
    free(type);

    const int values[] = {11, 12, 13, 21, 22, 23};
    struct sfs_slab slab = {.rank = 2, .start = {1, 1}, .count = {2, 3}};
    check(sfs_write(dataset, &slab, values));
    sfs_dataset_close(dataset);
    check(sfs_close(file)); /* on disk from here on */

    uint64_t address;
    int all[4][6];
    struct sfs_slab whole = {.rank = 2, .count = {4, 6}};
    check(sfs_open("write_read.h5", NULL, &file));
    check(sfs_find(file, sfs_root(file), "/entry/data", &address));
    check(sfs_dataset_open(file, address, "/entry/data", &dataset));
    check(sfs_read(dataset, &whole, 0, all, sizeof(all)));
    for (int i = 0; i < 4; i++)
        for (int k = 0; k < 6; k++)
            printf("%d%c", all[i][k], k < 5 ? ' ' : '\n');
    sfs_dataset_close(dataset);
    check(sfs_close(file));
    return 0;
}
