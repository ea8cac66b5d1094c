/* One process acquires: it appends frames to a sparse dataset and commits each of them. Another one
 * follows: it reads the file beside the writer and prints how much was seen in every frame, once.
 *
 * Output:
 *   frame 0: 1 elements
 *   frame 1: 3 elements
 *   frame 2: 5 elements
 *   frame 3: 7 elements
 *   frame 4: 9 elements
 *   frame 5: 11 elements */
#include <inttypes.h>
#include <sparsefs/sparsefs.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define FRAMES 6
#define SIDE   32

static void check(int error)
{
    if (error) {
        fprintf(stderr, "%s\n", strerror(-error));
        exit(1);
    }
}

static void acquire(struct sfs_file *file, struct sfs_dataset *dataset)
{
    for (uint64_t i = 0; i < FRAMES; i++) {
        struct sfs_slab frame = {.rank = 3, .start = {i}, .count = {1, SIDE, SIDE}};
        struct sfs_interval interval[] = {{100, 0}, {0, 2 * i + 1}}; /* so many in one run */
        struct sfs_defined seen = {.n = 1, .interval = interval, .elements = 2 * i + 1};
        uint16_t counts[2 * FRAMES];
        for (uint64_t k = 0; k < seen.elements; k++)
            counts[k] = (uint16_t)(i + k);
        check(sfs_extend(dataset, (const uint64_t[]){i + 1, SIDE, SIDE}));
        check(sfs_write_values(dataset, &frame, &seen, counts));
        check(sfs_flush(file)); /* now those who follow may see it, as a whole */
        usleep(20000);
    }
}

static void follow(const char *path)
{
    struct sfs_file *file;
    struct sfs_dataset *dataset;
    uint64_t address, dims[3];
    check(sfs_open(path, &(struct sfs_options){.follow = true}, &file));
    check(sfs_find(file, sfs_root(file), "/frames", &address));
    check(sfs_dataset_open(file, address, "/frames", &dataset));
    for (uint64_t next = 0; next < FRAMES; usleep(10000)) {
        check(sfs_refresh(file)); /* what was committed by now */
        for (sfs_dataset_dims(dataset, dims); next < dims[0]; next++) {
            struct sfs_slab frame = {.rank = 3, .start = {next}, .count = {1, SIDE, SIDE}};
            uint64_t seen;
            check(sfs_count_defined(dataset, &frame, &seen));
            printf("frame %" PRIu64 ": %" PRIu64 " elements\n", next, seen);
        }
    }
    sfs_dataset_close(dataset);
    check(sfs_close(file));
}

int main(void)
{
    struct sfs_file *file;
    struct sfs_dataset *dataset;
    void *type;
    struct sfs_dataset_create create = {.rank = 3,
                                        .dims = {0, SIDE, SIDE},
                                        .max_dims = {SFS_UNLIMITED, SIDE, SIDE},
                                        .chunk_dims = {1, SIDE, SIDE}};
    int ready[2];
    char byte;
    if (pipe(ready) < 0)
        return 1;
    pid_t follower = fork();
    if (follower == 0) {
        if (read(ready[0], &byte, 1) == 1)
            follow("follow.h5");
        return 0;
    }
    check(sfs_create("follow.h5", &(struct sfs_options){.replace = true}, &file));
    check(sfs_type_encode("uint16", &type, &create.type.n));
    create.type.bytes = type;
    check(sfs_dataset_create(file, "/frames", &create, &dataset));
    free(type);
    check(sfs_flush(file));
    if (write(ready[1], "", 1) != 1)
        return 1;
    acquire(file, dataset);
    sfs_dataset_close(dataset);
    check(sfs_close(file));
    int status;
    return waitpid(follower, &status, 0) == follower ? status : 1;
}
