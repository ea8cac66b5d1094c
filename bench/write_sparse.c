/* Writes the elements of dense frames that are not zero into a sparse dataset of rank 3 and of
 * two-byte integers: one sfs_write_values for each frame, and one flush at the end. What the
 * elements are is found before the clock starts, as a detector would hand them over. Prints the
 * seconds of each frame, and then "flush seconds".
 *
 * write_sparse RAW FILE DATASET COUNT      RAW holds the frames one after the other */
#include <fcntl.h>
#include <sparsefs/sparsefs.h>
#include <stdio.h>
#include <sys/mman.h>
#include <unistd.h>

#include "buffer.h"

struct frame {
    struct sfs_defined defined;
    uint16_t *values;
};

/* The elements that are not zero, in memory that has been touched. */
static bool find_values(const uint16_t *elements, size_t n, struct frame *frame)
{
    uint64_t found = 0;
    for (size_t i = 0; i < n; i++)
        found += elements[i] != 0;
    frame->values = malloc(((size_t)found + 1) * sizeof(*frame->values));
    frame->defined.interval = malloc(((size_t)found + 1) * sizeof(*frame->defined.interval));
    if (!frame->values || !frame->defined.interval)
        return false;
    struct sfs_defined *defined = &frame->defined;
    for (size_t i = 0; i < n; i++) {
        if (elements[i] == 0)
            continue;
        if (i == 0 || elements[i - 1] == 0)
            defined->interval[defined->n++] = (struct sfs_interval){i, defined->elements};
        frame->values[defined->elements++] = elements[i];
    }
    defined->interval[defined->n] = (struct sfs_interval){0, defined->elements};
    return true;
}

static int write_frames(struct sfs_dataset *dataset, const uint16_t *elements, uint64_t count)
{
    struct sfs_slab slab = {.rank = 3, .count = {1}};
    const struct sfs_dataset_info *info = sfs_dataset_info(dataset);
    for (int d = 1; d < slab.rank; d++)
        slab.count[d] = info->dims[d];
    size_t n = (size_t)(slab.count[1] * slab.count[2]);
    for (uint64_t i = 0; i < count; i++) {
        struct frame frame = {0};
        int error = -1;
        slab.start[0] = i;
        if (find_values(elements + i * n, n, &frame)) {
            double start = now();
            error = sfs_write_values(dataset, &slab, &frame.defined, frame.values);
            printf("%.9f\n", now() - start);
        }
        free(frame.values);
        free(frame.defined.interval);
        if (error)
            return error;
    }
    return 0;
}

static int write_file(const char *path, const char *name, const uint16_t *elements, size_t bytes,
                      uint64_t count)
{
    struct sfs_options options = {.writable = true};
    struct sfs_file *file;
    struct sfs_dataset *dataset = NULL;
    uint64_t address;
    int error = sfs_open(path, &options, &file);
    if (error)
        return error;
    error = sfs_find(file, sfs_root(file), name, &address);
    if (!error)
        error = sfs_dataset_open(file, address, name, &dataset);
    if (error)
        goto close_file;
    const struct sfs_dataset_info *info = sfs_dataset_info(dataset);
    if (info->rank == 3 && info->dims[0] >= count && info->type.size == sizeof(*elements) &&
        count * info->dims[1] * info->dims[2] * sizeof(*elements) <= bytes)
        error = write_frames(dataset, elements, count);
    else
        error = -1;
    double start = now();
    if (!error)
        error = sfs_flush(file);
    printf("flush %.9f\n", now() - start);
    sfs_dataset_close(dataset);
close_file:;
    int closed = sfs_close(file);
    return error ? error : closed;
}

int main(int argc, char **argv)
{
    if (argc != 5) {
        fprintf(stderr, "usage: write_sparse RAW FILE DATASET COUNT\n");
        return 2;
    }
    int fd = open(argv[1], O_RDONLY | O_CLOEXEC);
    off_t bytes = fd < 0 ? -1 : lseek(fd, 0, SEEK_END);
    void *elements =
        bytes <= 0 ? MAP_FAILED : mmap(NULL, (size_t)bytes, PROT_READ, MAP_PRIVATE, fd, 0);
    int error = elements == MAP_FAILED ? -1
                                       : write_file(argv[2], argv[3], elements, (size_t)bytes,
                                                    strtoull(argv[4], NULL, 10));
    if (error)
        fprintf(stderr, "write_sparse: %s: cannot write frames of %s\n", argv[2], argv[1]);
    if (elements != MAP_FAILED)
        munmap(elements, (size_t)bytes);
    if (fd >= 0)
        close(fd);
    return error ? 1 : 0;
}
