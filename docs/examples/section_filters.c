/* Filters of their own for the two sections of a chunk: which elements are defined (shuffle and
 * deflate), and their values (deflate).
 *
 * Output:
 *   selection: filters 2 1, smaller than unfiltered: yes
 *   values: filters 1, smaller than unfiltered: yes */
#include <sparsefs/sparsefs.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define SHUFFLE 2
#define DEFLATE 1

static void check(int error)
{
    if (error) {
        fprintf(stderr, "%s\n", strerror(-error));
        exit(1);
    }
}

static void report(const char *name, size_t n, const struct sfs_filter *filters,
                   const struct sfs_chunk_info *info, int section)
{
    printf("%s: filters", name);
    for (size_t i = 0; i < n; i++)
        printf(" %d", filters[i].id);
    printf(", smaller than unfiltered: %s\n",
           info->section_size[section] < info->unfiltered_size[section] ? "yes" : "no");
}

int main(void)
{
    struct sfs_options options = {.replace = true};
    struct sfs_file *file;
    struct sfs_dataset *dataset;
    void *type;
    const unsigned width = 8, level = 4;
    const struct sfs_filter shuffle = {.id = SHUFFLE, .n_values = 1, .values = &width};
    const struct sfs_filter deflate = {.id = DEFLATE, .n_values = 1, .values = &level};
    const struct sfs_filter of_selection[] = {shuffle, deflate};
    struct sfs_dataset_create create = {.rank = 2,
                                        .dims = {100, 100},
                                        .max_dims = {100, 100},
                                        .chunk_dims = {100, 100},
                                        .n_filters = {2, 1},
                                        .filters = {of_selection, &deflate}};
    check(sfs_create("section_filters.h5", &options, &file));
    check(sfs_type_encode("int64", &type, &create.type.n));
    create.type.bytes = type;
    check(sfs_dataset_create(file, "/image", &create, &dataset));
    free(type);

    for (uint64_t i = 0; i < 100; i++) { /* two pixels of every row */
        struct sfs_slab pixels = {.rank = 2, .start = {i, i / 2}, .count = {1, 2}};
        check(sfs_write(dataset, &pixels, (const int64_t[]){1, 2}));
    }
    struct sfs_chunk_info chunk;
    const struct sfs_dataset_info *info = sfs_dataset_info(dataset);
    check(sfs_chunk_info(dataset, (const uint64_t[]){0, 0}, &chunk));
    report("selection", info->n_selection_filters, info->selection_filters, &chunk, 0);
    report("values", info->n_filters, info->filters, &chunk, 1);
    sfs_dataset_close(dataset);
    check(sfs_close(file));
    return 0;
}
