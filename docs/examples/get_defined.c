/* Which elements are defined, and the values of just those.
 *
 * Output:
 *   5 of 1000000 elements are defined
 *   from 7: 70 80 90
 *   from 500000: 1 2 */
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

static struct sfs_dataset *create_dataset(struct sfs_file *file)
{
    void *type;
    struct sfs_dataset *dataset;
    struct sfs_dataset_create create = {
        .rank = 1, .dims = {1000000}, .max_dims = {1000000}, .chunk_dims = {4096}};
    check(sfs_type_encode("uint16", &type, &create.type.n));
    create.type.bytes = type;
    check(sfs_dataset_create(file, "/hits", &create, &dataset));
    free(type);
    return dataset;
}

int main(void)
{
    struct sfs_options options = {.replace = true};
    struct sfs_file *file;
    check(sfs_create("get_defined.h5", &options, &file));
    struct sfs_dataset *dataset = create_dataset(file);
    struct sfs_slab all = {.rank = 1, .count = {1000000}};

    /* Two intervals, 7 to 9 and 500000 to 500001, are written at once. */
    struct sfs_interval intervals[] = {{7, 0}, {500000, 3}, {0, 5}};
    struct sfs_defined hits = {.n = 2, .interval = intervals, .elements = 5};
    check(sfs_write_values(dataset, &all, &hits, (const uint16_t[]){70, 80, 90, 1, 2}));

    struct sfs_defined defined;
    check(sfs_get_defined(dataset, &all, &defined));
    printf("%" PRIu64 " of 1000000 elements are defined\n", defined.elements);
    uint16_t *values = malloc(defined.elements * sizeof(*values));
    check(values ? sfs_read_values(dataset, &all, &defined, 0, defined.elements, values) : -1);
    for (size_t i = 0; i < defined.n; i++) {
        printf("from %" PRIu64 ":", defined.interval[i].first);
        for (uint64_t k = defined.interval[i].index; k < defined.interval[i + 1].index; k++)
            printf(" %d", values[k]);
        printf("\n");
    }
    free(values);
    sfs_defined_free(&defined);
    sfs_dataset_close(dataset);
    check(sfs_close(file));
    return 0;
}
