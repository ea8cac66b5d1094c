/* The least that making dense frames durable can take one thread: deflating their bytes, one frame
 * after the other, with what the library deflates with, writing the results to a file, and one
 * fsync. A full frame's selection is a few bytes and left out. Prints "encode seconds" of all
 * frames and "write seconds" with the fsync.
 *
 * encode_frames RAW FRAME_BYTES COUNT LEVEL OUT */
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <unistd.h>

#include "buffer.h"
#include "filter/filter.h"

struct frames {
    char *bytes;   /* of all */
    char *encoded; /* one after the other */
    size_t size;   /* bytes of one */
    size_t count;
    size_t encoded_bytes;
};

static bool load(const char *path, struct frames *frames)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    size_t size = frames->size * frames->count, done = 0;
    ssize_t n = 1;
    for (; fd >= 0 && done < size && n > 0; done += n > 0 ? (size_t)n : 0)
        n = pread(fd, frames->bytes + done, size - done, (off_t)done);
    if (fd >= 0)
        close(fd);
    return done == size;
}

static bool encode(struct frames *frames, unsigned level)
{
    double start = now();
    for (size_t i = 0; i < frames->count; i++) {
        size_t encoded = 0;
        if (deflate_encode(level, frames->bytes + i * frames->size, frames->size,
                           frames->encoded + frames->encoded_bytes, deflate_bound(frames->size),
                           &encoded))
            return false;
        frames->encoded_bytes += encoded;
    }
    printf("encode %.9f\n", now() - start);
    return true;
}

static bool write_out(const struct frames *frames, const char *path)
{
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
    double start = now();
    size_t done = 0;
    ssize_t n = 1;
    for (; fd >= 0 && done < frames->encoded_bytes && n > 0; done += n > 0 ? (size_t)n : 0)
        n = pwrite(fd, frames->encoded + done, frames->encoded_bytes - done, (off_t)done);
    bool good = fd >= 0 && done == frames->encoded_bytes && fsync(fd) == 0;
    printf("write %.9f\n", now() - start);
    return (fd < 0 || close(fd) == 0) && good;
}

int main(int argc, char **argv)
{
    if (argc != 6) {
        fprintf(stderr, "usage: encode_frames RAW FRAME_BYTES COUNT LEVEL OUT\n");
        return 2;
    }
    struct frames frames = {.size = strtoul(argv[2], NULL, 10),
                            .count = strtoul(argv[3], NULL, 10)};
    frames.bytes = buffer_create(frames.size * frames.count);
    frames.encoded = buffer_create(deflate_bound(frames.size) * frames.count);
    bool good = frames.bytes && frames.encoded && load(argv[1], &frames) &&
                encode(&frames, (unsigned)strtoul(argv[4], NULL, 10)) &&
                write_out(&frames, argv[5]);
    if (!good)
        fprintf(stderr, "encode_frames: %s: failed\n", argv[1]);
    free(frames.bytes);
    free(frames.encoded);
    return good ? 0 : 1;
}
