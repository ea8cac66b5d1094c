/* Reads frames of a rank-3 dataset with libhdf5: one H5Dread of one whole frame at a time, in the
 * file's own datatype, into one reused buffer. Prints the seconds each H5Dread took.
 *
 * read_hdf5 [-c RAW] FILE DATASET FIRST COUNT
 *   -c  compare each frame, outside its time, with its bytes in RAW, all frames in one dense file
 *
 * The chunk cache is libhdf5's default one (1 MiB), made large enough for one chunk: chunks above
 * its size would be inflated anew for every H5Dread that touches a part of them. */
#include <fcntl.h>
#include <hdf5.h>
#include <stdbool.h>
#include <stdio.h>
#include <unistd.h>

#include "buffer.h"

#define RANK 3

struct frames {
    hid_t dataset, type, file_space, memory_space;
    hsize_t dims[RANK];
    size_t bytes; /* of one frame */
    char *buffer;
};

/* The chunk cache that the dataset, which is chunked and of rank 3, should be opened with. */
static hid_t access_properties(hid_t dataset, hid_t create, size_t item_bytes)
{
    hsize_t chunk[RANK];
    H5Pget_chunk(create, RANK, chunk);
    size_t chunk_bytes = (size_t)(chunk[0] * chunk[1] * chunk[2]) * item_bytes;
    hid_t access = H5Dget_access_plist(dataset);
    size_t slots, bytes;
    double preemption;
    H5Pget_chunk_cache(access, &slots, &bytes, &preemption);
    if (bytes < chunk_bytes)
        H5Pset_chunk_cache(access, slots, chunk_bytes, preemption);
    return access;
}

static void reopen_with_cache(struct frames *frames, hid_t file, const char *path)
{
    hid_t create = H5Dget_create_plist(frames->dataset);
    if (H5Pget_layout(create) == H5D_CHUNKED) {
        hid_t access = access_properties(frames->dataset, create, H5Tget_size(frames->type));
        H5Dclose(frames->dataset);
        frames->dataset = H5Dopen2(file, path, access);
        H5Pclose(access);
    }
    H5Pclose(create);
}

static bool open_frames(hid_t file, const char *path, struct frames *frames)
{
    frames->dataset = H5Dopen2(file, path, H5P_DEFAULT);
    frames->file_space = H5Dget_space(frames->dataset);
    if (H5Sget_simple_extent_ndims(frames->file_space) != RANK)
        return false;
    frames->type = H5Dget_type(frames->dataset);
    reopen_with_cache(frames, file, path);
    H5Sget_simple_extent_dims(frames->file_space, frames->dims, NULL);
    frames->memory_space = H5Screate_simple(RANK - 1, frames->dims + 1, NULL);
    frames->bytes = (size_t)(frames->dims[1] * frames->dims[2]) * H5Tget_size(frames->type);
    frames->buffer = buffer_create(frames->bytes);
    return frames->buffer != NULL;
}

static void close_frames(struct frames *frames)
{
    free(frames->buffer);
    H5Sclose(frames->memory_space);
    H5Sclose(frames->file_space);
    H5Tclose(frames->type);
    H5Dclose(frames->dataset);
}

static bool read_frame(const struct frames *frames, hsize_t number, double *seconds)
{
    hsize_t start[RANK] = {number, 0, 0};
    hsize_t count[RANK] = {1, frames->dims[1], frames->dims[2]};
    double begin = now();
    bool good =
        H5Sselect_hyperslab(frames->file_space, H5S_SELECT_SET, start, NULL, count, NULL) >= 0 &&
        H5Dread(frames->dataset, frames->type, frames->memory_space, frames->file_space,
                H5P_DEFAULT, frames->buffer) >= 0;
    *seconds = now() - begin;
    return good;
}

/* Whether the buffer holds what frame number has in the open dense file. */
static bool same_as(int dense, const struct frames *frames, hsize_t number)
{
    char *expected = malloc(frames->bytes);
    off_t offset = (off_t)(number * frames->bytes);
    bool same = expected &&
                pread(dense, expected, frames->bytes, offset) == (ssize_t)frames->bytes &&
                memcmp(expected, frames->buffer, frames->bytes) == 0;
    free(expected);
    if (!same)
        fprintf(stderr, "read_hdf5: frame %llu differs\n", (unsigned long long)number);
    return same;
}

int main(int argc, char **argv)
{
    const char *dense_path = NULL;
    int option;
    while ((option = getopt(argc, argv, "c:")) != -1) {
        if (option != 'c')
            return 2;
        dense_path = optarg;
    }
    argv += optind;
    if (argc - optind != 4) {
        fprintf(stderr, "usage: read_hdf5 [-c RAW] FILE DATASET FIRST COUNT\n");
        return 2;
    }
    int dense = dense_path ? open(dense_path, O_RDONLY | O_CLOEXEC) : -1;
    hid_t file = H5Fopen(argv[0], H5F_ACC_RDONLY, H5P_DEFAULT);
    hsize_t first = strtoull(argv[2], NULL, 10);
    hsize_t end = first + strtoull(argv[3], NULL, 10);
    struct frames frames;
    if (file < 0 || !open_frames(file, argv[1], &frames)) {
        fprintf(stderr, "read_hdf5: %s: %s: not a dataset of rank 3\n", argv[0], argv[1]);
        return 1;
    }
    bool good = true;
    for (hsize_t number = first; number < end && good; number++) {
        double seconds;
        good = read_frame(&frames, number, &seconds);
        if (good && dense_path)
            good = same_as(dense, &frames, number);
        printf("%.9f\n", seconds);
    }
    close_frames(&frames);
    H5Fclose(file);
    return good ? 0 : 1;
}
