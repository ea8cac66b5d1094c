/* Appends frames to a sparse dataset, or as many bytes to a plain file, and syncs after each or
 * only in the end. Prints the seconds and the bytes of a stored frame.
 *
 * commit HOW EACH FILE FRAMES [BYTES]
 *   HOW   sparsefs    the library as it is
 *         unjournaled the same, but its journal is in memory and its syncs are left out, but for
 * one in the end: what it would cost if a crash did not matter plain       a plain file, BYTES for
 * every frame EACH  each: every frame is durable before the next is written; end: all in the end
 *
 * A frame has 512 x 512 16-bit elements, every tenth of which is defined, and no filters: what is
 * measured is the writing. */
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

#define SIDE   512
#define EVERY  10
#define POINTS (SIDE * SIDE / EVERY)

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

static double write_sparse(const char *path, uint64_t frames, bool each, uint64_t *bytes)
{
    static struct sfs_interval intervals[POINTS + 1];
    static uint16_t values[POINTS];
    struct sfs_options options = {.replace = true};
    struct sfs_dataset_create create = {.rank = 3,
                                        .dims = {0, SIDE, SIDE},
                                        .max_dims = {SFS_UNLIMITED, SIDE, SIDE},
                                        .chunk_dims = {1, SIDE, SIDE}};
    struct sfs_defined defined = {.n = POINTS, .interval = intervals, .elements = POINTS};
    struct sfs_file *file;
    struct sfs_dataset *dataset;
    struct sfs_chunk_info info;
    void *type;
    for (uint64_t i = 0; i < POINTS; i++)
        intervals[i] = (struct sfs_interval){i * EVERY, i};
    intervals[POINTS] = (struct sfs_interval){0, POINTS};
    must(!sfs_create(path, &options, &file), path);
    must(!sfs_type_encode("uint16", &type, &create.type.n), "type");
    create.type.bytes = type;
    must(!sfs_dataset_create(file, "/d", &create, &dataset), "create");
    free(type);
    must(!sfs_flush(file), "flush");

    double began = now();
    for (uint64_t i = 0; i < frames; i++) {
        struct sfs_slab slab = {.rank = 3, .start = {i}, .count = {1, SIDE, SIDE}};
        memset(values, (int)i, sizeof(values));
        must(!sfs_set_extent(dataset, (const uint64_t[]){i + 1, SIDE, SIDE}), "extend");
        must(!sfs_write_values(dataset, &slab, &defined, values), "write");
        must(!each || !sfs_flush(file), "flush");
    }
    must(!sfs_flush(file), "flush");
    unjournaled = false;
    int fd = open(path, O_RDWR);
    must(fd >= 0 && fdatasync(fd) == 0, path);
    double seconds = now() - began;
    close(fd);
    must(!sfs_chunk_info(dataset, (const uint64_t[]){0, 0, 0}, &info), "chunk");
    *bytes = info.size;
    sfs_dataset_close(dataset);
    must(!sfs_close(file), "close");
    return seconds;
}

static double write_plain(const char *path, uint64_t frames, bool each, uint64_t bytes)
{
    char *frame = malloc(bytes);
    int fd = open(path, O_RDWR | O_CREAT | O_TRUNC, 0666);
    must(frame && fd >= 0 && fsync(fd) == 0, path);
    double began = now();
    for (uint64_t i = 0; i < frames; i++) {
        memset(frame, (int)i, bytes);
        must(pwrite(fd, frame, bytes, (off_t)(i * bytes)) == (ssize_t)bytes, "write");
        must(!each || fdatasync(fd) == 0, "sync");
    }
    must(fdatasync(fd) == 0, "sync");
    double seconds = now() - began;
    close(fd);
    free(frame);
    return seconds;
}

int main(int argc, char **argv)
{
    if (argc < 5) {
        fputs("usage: commit sparsefs|unjournaled|plain each|end FILE FRAMES [BYTES]\n", stderr);
        return 2;
    }
    bool each = !strcmp(argv[2], "each");
    uint64_t frames = strtoull(argv[4], NULL, 10),
             bytes = argc > 5 ? strtoull(argv[5], NULL, 10) : 0;
    double seconds;
    unjournaled = !strcmp(argv[1], "unjournaled");
    if (!strcmp(argv[1], "plain"))
        seconds = write_plain(argv[3], frames, each, bytes);
    else
        seconds = write_sparse(argv[3], frames, each, &bytes);
    printf("%.6f %llu\n", seconds, (unsigned long long)bytes);
    return 0;
}
