/* Writes dense frames of two-byte integers with libhdf5 into a new file: chunk = frame, deflate,
 * one H5Dwrite for each, then H5Fflush and fsync. Prints the seconds of each frame, and then "flush
 * seconds".
 *
 * write_hdf5 RAW FILE DATASET COUNT ROWS COLUMNS LEVEL     RAW holds the frames one after the other
 */
#include <fcntl.h>
#include <hdf5.h>
#include <stdbool.h>
#include <stdio.h>
#include <unistd.h>

#include "buffer.h"

#define RANK 3

struct target {
    hid_t file, dataset, memory_space, file_space;
    hsize_t dims[RANK];
};

static bool create(const char *path, const char *name, unsigned level, struct target *target)
{
    hsize_t chunk[RANK] = {1, target->dims[1], target->dims[2]};
    target->file = H5Fcreate(path, H5F_ACC_TRUNC, H5P_DEFAULT, H5P_DEFAULT);
    target->file_space = H5Screate_simple(RANK, target->dims, NULL);
    target->memory_space = H5Screate_simple(RANK - 1, target->dims + 1, NULL);
    hid_t properties = H5Pcreate(H5P_DATASET_CREATE);
    H5Pset_chunk(properties, RANK, chunk);
    H5Pset_deflate(properties, level);
    target->dataset = H5Dcreate2(target->file, name, H5T_STD_U16LE, target->file_space, H5P_DEFAULT,
                                 properties, H5P_DEFAULT);
    H5Pclose(properties);
    return target->dataset >= 0;
}

static bool write_frame(const struct target *target, hsize_t number, const char *buffer)
{
    hsize_t start[RANK] = {number, 0, 0};
    hsize_t count[RANK] = {1, target->dims[1], target->dims[2]};
    double begin = now();
    bool good =
        H5Sselect_hyperslab(target->file_space, H5S_SELECT_SET, start, NULL, count, NULL) >= 0 &&
        H5Dwrite(target->dataset, H5T_STD_U16LE, target->memory_space, target->file_space,
                 H5P_DEFAULT, buffer) >= 0;
    printf("%.9f\n", now() - begin);
    return good;
}

/* As durable as what it is compared with. */
static bool flush(const struct target *target, const char *path)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    double begin = now();
    bool good = fd >= 0 && H5Fflush(target->file, H5F_SCOPE_LOCAL) >= 0 && fsync(fd) == 0;
    printf("flush %.9f\n", now() - begin);
    if (fd >= 0)
        close(fd);
    return good;
}

static bool write_frames(const struct target *target, int raw, char *buffer, size_t size)
{
    for (hsize_t number = 0; number < target->dims[0]; number++)
        if (pread(raw, buffer, size, (off_t)(number * size)) != (ssize_t)size ||
            !write_frame(target, number, buffer))
            return false;
    return true;
}

int main(int argc, char **argv)
{
    if (argc != 8) {
        fprintf(stderr, "usage: write_hdf5 RAW FILE DATASET COUNT ROWS COLUMNS LEVEL\n");
        return 2;
    }
    struct target target = {0};
    for (int d = 0; d < RANK; d++)
        target.dims[d] = strtoull(argv[4 + d], NULL, 10);
    size_t size = (size_t)(target.dims[1] * target.dims[2]) * sizeof(uint16_t);
    char *buffer = buffer_create(size);
    int raw = open(argv[1], O_RDONLY | O_CLOEXEC);
    bool good = buffer && raw >= 0 &&
                create(argv[2], argv[3], (unsigned)strtoul(argv[7], NULL, 10), &target) &&
                write_frames(&target, raw, buffer, size) && flush(&target, argv[2]);
    if (!good)
        fprintf(stderr, "write_hdf5: %s: cannot write frames of %s\n", argv[2], argv[1]);
    H5Dclose(target.dataset);
    H5Sclose(target.memory_space);
    H5Sclose(target.file_space);
    if (H5Fclose(target.file) < 0)
        good = false;
    if (raw >= 0)
        close(raw);
    free(buffer);
    return good ? 0 : 1;
}
