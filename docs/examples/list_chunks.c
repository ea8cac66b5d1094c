/* What is stored of a dataset, chunk by chunk.
 *
 * Output:
 *   chunk at (0, 0): 16 bytes of values
 *   chunk at (4, 8): 4 bytes of values
 *   chunk at (0, 8) is not stored */
#include <errno.h>
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

/* Called for every stored chunk; anything but 0 would end the iteration. */
static int list_chunk(void *context, const struct sfs_chunk_info *info)
{
    (void)context;
    printf("chunk at (%" PRIu64 ", %" PRIu64 "): %" PRIu64 " bytes of values\n", info->start[0],
           info->start[1], info->unfiltered_size[1]);
    return 0;
}

int main(void)
{
    struct sfs_options options = {.replace = true};
    struct sfs_file *file;
    struct sfs_dataset *dataset;
    void *type;
    struct sfs_dataset_create create = {
        .rank = 2, .dims = {8, 16}, .max_dims = {8, 16}, .chunk_dims = {4, 8}};
    check(sfs_create("list_chunks.h5", &options, &file));
    check(sfs_type_encode("float32", &type, &create.type.n));
    create.type.bytes = type;
    check(sfs_dataset_create(file, "/map", &create, &dataset));
    free(type);

    const float values[] = {1, 2, 3, 4};
    struct sfs_slab square = {.rank = 2, .start = {1, 1}, .count = {2, 2}};
    struct sfs_slab single = {.rank = 2, .start = {7, 15}, .count = {1, 1}};
    check(sfs_write(dataset, &square, values));
    check(sfs_write(dataset, &single, values));

    check(sfs_chunk_iterate(dataset, list_chunk, NULL));
    struct sfs_chunk_info info;
    if (sfs_chunk_info(dataset, (const uint64_t[]){0, 8}, &info) == -ENOENT)
        printf("chunk at (0, 8) is not stored\n");
    sfs_dataset_close(dataset);
    check(sfs_close(file));
    return 0;
}
