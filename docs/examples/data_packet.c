/* A sparse dataset is sent from one program to another as an HDF5 file that is never on a disk:
 * made in memory, taken as an image, and opened out of the buffer without copying it.
 *
 * Output:
 *   made in memory
 *   2 elements of 1000000 are defined
 *   first: 7 */
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

/* The sender: the caller frees the packet. */
static void *make_packet(size_t *n)
{
    struct sfs_file *file;
    struct sfs_dataset *dataset;
    struct sfs_dataset_create create = {
        .rank = 2, .dims = {1000, 1000}, .max_dims = {1000, 1000}, .chunk_dims = {100, 100}};
    struct sfs_slab slab = {.rank = 2, .start = {5, 5}, .count = {1, 2}};
    const short values[] = {7, 8};
    void *type;
    check(sfs_create_image(NULL, &file));
    check(sfs_type_encode("int16", &type, &create.type.n));
    create.type.bytes = type;
    check(sfs_dataset_create(file, "/frame", &create, &dataset));
    free(type);
    check(sfs_write(dataset, &slab, values));
    sfs_dataset_close(dataset);

    int64_t size = sfs_get_image(file, NULL, 0);
    void *packet = size < 0 ? NULL : malloc((size_t)size);
    if (!packet || sfs_get_image(file, packet, (size_t)size) != size)
        exit(1);
    check(sfs_close(file));
    *n = (size_t)size;
    puts("made in memory");
    return packet;
}

int main(void)
{
    size_t n;
    void *packet = make_packet(&n);

    /* The receiver: the buffer stays its own. */
    struct sfs_file *file;
    struct sfs_dataset *dataset;
    struct sfs_slab all = {.rank = 2, .count = {1000, 1000}};
    uint64_t address, elements;
    short first;
    check(sfs_open_image(packet, n, SFS_IMAGE_DONT_COPY | SFS_IMAGE_DONT_RELEASE, NULL, &file));
    check(sfs_find(file, sfs_root(file), "/frame", &address));
    check(sfs_dataset_open(file, address, "/frame", &dataset));
    check(sfs_count_defined(dataset, &all, &elements));
    printf("%llu elements of 1000000 are defined\n", (unsigned long long)elements);
    check(sfs_read(dataset, &all, (5 * 1000 + 5) * sizeof(first), &first, sizeof(first)));
    printf("first: %d\n", first);
    sfs_dataset_close(dataset);
    check(sfs_close(file));
    free(packet);
    return 0;
}
