/* Appends frames to a sparse dataset, or as they are to a plain file, and syncs after each or only
 * in the end. Prints the seconds.
 *
 * commit HOW EACH FILE FRAMES EVERY
 *   HOW   sparsefs    the library as it is
 *         unjournaled the same, but its journal is in memory and its syncs are left out, but for
 *                     one in the end: what it would cost if a crash did not matter
 *         plain       a plain file, every frame with all its elements
 *   EACH  each: every frame is durable before the next is written; end: all in the end
 *   EVERY so many elements are one that is defined; 1: all are
 *
 * A frame has 1024 x 1024 16-bit elements, and no filters: what is measured is the writing. It is
 * one chunk, or two if its selection would have more than 65,535 blocks (as sparsectl import does
 * it). */
#include <fcntl.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include "sparsefs/sparsefs.h"

#define SIDE     1024
#define ELEMENTS ((uint64_t)SIDE * SIDE)
#define CACHE    ((size_t)32 << 20)
#define WARMING  20 /* frames */

static bool unjournaled;

/* ---- Between the library and the system ---- */

int __real_fdatasync(int fd);
int __wrap_fdatasync(int fd);
int __real_fsync(int fd);
int __wrap_fsync(int fd);
int __real_open64(const char *path, int flags, ...);
int __wrap_open64(const char *path, int flags, mode_t mode);

int __wrap_fdatasync(int fd)
{
    return unjournaled ? 0 : __real_fdatasync(fd);
}

int __wrap_fsync(int fd)
{
    return unjournaled ? 0 : __real_fsync(fd);
}

int __wrap_open64(const char *path, int flags, mode_t mode)
{
    static int memory = -1;
    size_t n = strlen(path);
    if (!unjournaled || n < 8 || strcmp(path + n - 8, ".journal") != 0)
        return __real_open64(path, flags, mode);
    if (memory < 0)
        memory = memfd_create("journal", MFD_CLOEXEC);
    char again[64]; /* with an offset of its own */
    snprintf(again, sizeof(again), "/proc/self/fd/%d", memory);
    return __real_open64(again, flags & ~O_NOFOLLOW, mode);
}

/* ---- Writing ---- */

static void must(bool good, const char *what)
{
    if (good)
        return;
    perror(what);
    exit(1);
}

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* Every so many of a frame's elements. */
static struct sfs_defined every(uint64_t step)
{
    static struct sfs_interval intervals[ELEMENTS + 1];
    struct sfs_defined defined = {.elements = ELEMENTS / step, .interval = intervals};
    defined.n = step == 1 ? 1 : defined.elements;
    for (size_t i = 0; i < defined.n; i++)
        intervals[i] = (struct sfs_interval){i * step, i};
    intervals[defined.n] = (struct sfs_interval){0, defined.elements};
    return defined;
}

static double write_sparse(const char *path, uint64_t frames, bool each, uint64_t step)
{
    static uint16_t values[ELEMENTS];
    struct sfs_options options = {.replace = true, .cache_size = CACHE};
    struct sfs_defined defined = every(step);
    struct sfs_dataset_create create = {
        .rank = 3,
        .dims = {0, SIDE, SIDE},
        .max_dims = {SFS_UNLIMITED, SIDE, SIDE},
        .chunk_dims = {1, defined.n > UINT16_MAX ? SIDE / 2 : SIDE, SIDE}};
    struct sfs_file *file;
    struct sfs_dataset *dataset;
    void *type;
    must(!sfs_create(path, &options, &file), path);
    must(!sfs_type_encode("uint16", &type, &create.type.n), "type");
    create.type.bytes = type;
    must(!sfs_dataset_create(file, "/d", &create, &dataset), "create");
    free(type);
    double began = 0;
    for (uint64_t i = 0; i < WARMING + frames; i++) {
        if (i == WARMING) {
            must(!sfs_flush(file), "flush");
            began = now();
        }
        struct sfs_slab slab = {.rank = 3, .start = {i}, .count = {1, SIDE, SIDE}};
        memset(values, (int)i, sizeof(*values) * defined.elements);
        must(!sfs_set_extent(dataset, (const uint64_t[]){i + 1, SIDE, SIDE}), "extend");
        must(!sfs_write_values(dataset, &slab, &defined, values), "write");
        must((!each && i >= WARMING) || !sfs_flush(file), "flush");
    }
    must(!sfs_flush(file), "flush");
    unjournaled = false;
    int fd = open(path, O_RDWR);
    must(fd >= 0 && fdatasync(fd) == 0, path);
    double seconds = now() - began;
    close(fd);
    sfs_dataset_close(dataset);
    must(!sfs_close(file), "close");
    return seconds;
}

static double write_plain(const char *path, uint64_t frames, bool each)
{
    static uint16_t frame[ELEMENTS];
    int fd = open(path, O_RDWR | O_CREAT | O_TRUNC, 0666);
    must(fd >= 0 && fsync(fd) == 0, path);
    double began = 0;
    for (uint64_t i = 0; i < WARMING + frames; i++) {
        if (i == WARMING)
            began = now();
        memset(frame, (int)i, sizeof(frame));
        must(pwrite(fd, frame, sizeof(frame), (off_t)(i * sizeof(frame))) == sizeof(frame),
             "write");
        must(!each || fdatasync(fd) == 0, "sync");
    }
    must(fdatasync(fd) == 0, "sync");
    double seconds = now() - began;
    close(fd);
    return seconds;
}

int main(int argc, char **argv)
{
    if (argc != 6) {
        fputs("usage: commit sparsefs|unjournaled|plain each|end FILE FRAMES EVERY\n", stderr);
        return 2;
    }
    bool each = !strcmp(argv[2], "each");
    uint64_t frames = strtoull(argv[4], NULL, 10), step = strtoull(argv[5], NULL, 10);
    unjournaled = !strcmp(argv[1], "unjournaled");
    printf("%.6f\n", !strcmp(argv[1], "plain") ? write_plain(argv[3], frames, each)
                                               : write_sparse(argv[3], frames, each, step));
    return 0;
}
