/* Stored chunks are copied from one dataset to another of the same chunk dims, datatype and
 * filters, as they are: nothing is decoded for it, except to check what is stored.
 *
 * Output:
 *   copied chunk at 0: 55 and 2 bytes
 *   copied chunk at 20: 55 and 1 bytes
 *   element 25 is 3 */
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

static struct sfs_dataset *create_dataset(struct sfs_file *file, const char *path)
{
    void *type;
    struct sfs_dataset *dataset;
    struct sfs_dataset_create create = {
        .rank = 1, .dims = {40}, .max_dims = {40}, .chunk_dims = {10}};
    check(sfs_type_encode("uint8", &type, &create.type.n));
    create.type.bytes = type;
    check(sfs_dataset_create(file, path, &create, &dataset));
    free(type);
    return dataset;
}

int main(void)
{
    struct sfs_options options = {.replace = true};
    struct sfs_file *file;
    check(sfs_create("copy_chunks.h5", &options, &file));
    struct sfs_dataset *from = create_dataset(file, "/from"), *to = create_dataset(file, "/to");
    struct sfs_slab a = {.rank = 1, .start = {3}, .count = {2}};
    struct sfs_slab b = {.rank = 1, .start = {25}, .count = {1}};
    check(sfs_write(from, &a, "\1\2"));
    check(sfs_write(from, &b, "\3"));

    for (uint64_t start = 0; start < 40; start += 10) {
        struct sfs_chunk_info info;
        if (sfs_chunk_info(from, &start, &info) != 0)
            continue; /* -ENOENT: nothing is stored for this chunk */
        void *sections[SFS_SECTIONS] = {NULL};
        for (int i = 0; i < SFS_SECTIONS; i++) /* there is no third one here */
            if (info.section_size[i] > 0 && !(sections[i] = malloc(info.section_size[i])))
                return 1;
        check(sfs_read_chunk(from, &info, sections));
        check(sfs_write_chunk(to, &info, (const void *const *)sections));
        printf("copied chunk at %" PRIu64 ": %" PRIu64 " and %" PRIu64 " bytes\n", start,
               info.section_size[0], info.section_size[1]);
        for (int i = 0; i < SFS_SECTIONS; i++)
            free(sections[i]);
    }
    uint8_t value;
    check(sfs_read(to, &b, 0, &value, 1));
    printf("element 25 is %d\n", value);
    sfs_dataset_close(from);
    sfs_dataset_close(to);
    check(sfs_close(file));
    return 0;
}
