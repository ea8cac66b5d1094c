/* A detector's frames are appended one by one while the file grows. A frame in which nothing was
 * seen is not written: it takes no space and reads as the fill value.
 *
 * Output:
 *   6 frames, 4 of them stored */
#include <inttypes.h>
#include <sparsefs/sparsefs.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define HEIGHT 32
#define WIDTH  48

static void check(int error)
{
    if (error) {
        fprintf(stderr, "%s\n", strerror(-error));
        exit(1);
    }
}

/* The pixels that frame i saw, as positions in the frame and counts; returns how many. */
static uint64_t expose(uint64_t i, struct sfs_interval *interval, uint16_t *counts)
{
    uint64_t n = i % 3 == 2 ? 0 : 1 + i;
    for (uint64_t k = 0; k < n; k++) {
        interval[k] = (struct sfs_interval){i + 100 * k, k};
        counts[k] = (uint16_t)(i + k);
    }
    interval[n] = (struct sfs_interval){0, n};
    return n;
}

static int count_chunk(void *context, const struct sfs_chunk_info *info)
{
    (void)info;
    ++*(int *)context;
    return 0;
}

int main(void)
{
    struct sfs_options options = {.replace = true};
    struct sfs_file *file;
    struct sfs_dataset *dataset;
    void *type;
    struct sfs_dataset_create create = {.rank = 3,
                                        .dims = {0, HEIGHT, WIDTH},
                                        .max_dims = {SFS_UNLIMITED, HEIGHT, WIDTH},
                                        .chunk_dims = {1, HEIGHT, WIDTH}};
    check(sfs_create("append_frames.h5", &options, &file));
    check(sfs_type_encode("uint16", &type, &create.type.n));
    create.type.bytes = type;
    check(sfs_dataset_create(file, "/entry/frames", &create, &dataset));
    free(type);

    for (uint64_t i = 0; i < 6; i++) {
        struct sfs_slab frame = {.rank = 3, .start = {i}, .count = {1, HEIGHT, WIDTH}};
        struct sfs_interval interval[16];
        uint16_t counts[16];
        struct sfs_defined seen = {.interval = interval};
        seen.n = seen.elements = expose(i, interval, counts);
        check(sfs_set_extent(dataset, (const uint64_t[]){i + 1, HEIGHT, WIDTH}));
        check(sfs_write_values(dataset, &frame, &seen, counts));
        check(sfs_flush(file)); /* what was seen so far survives a crash */
    }
    int stored = 0;
    check(sfs_chunk_iterate(dataset, count_chunk, &stored));
    printf("%" PRIu64 " frames, %d of them stored\n", sfs_dataset_info(dataset)->dims[0], stored);
    sfs_dataset_close(dataset);
    check(sfs_close(file));
    return 0;
}
