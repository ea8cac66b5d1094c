/* Writes to files as a program does that hands over frames one after another, and prints the
 * seconds that it took. The files are of the same size, and keep it. Knows no filesystem in
 * particular.
 *
 * write_files frames BLOCK_BYTES SOURCE FILE...   SOURCE holds the contents of all, one after the
 *                                                 other; each file is opened, written block by
 * block from its begin on, and closed. A line of seconds for each, without the closing; then "fsync
 * seconds" of one fsync of the last write_files random BLOCK_BYTES COUNT FILE...    writes blocks
 * at random multiples of their size, each to the next file; a line for each write_files punch
 * FILE...                       punches all of each; a line for each */
#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

#include "buffer.h"

static bool failed(const char *path)
{
    fprintf(stderr, "write_files: %s: %s\n", path, strerror(errno));
    return false;
}

static size_t size_of(const char *path)
{
    struct stat st;
    return stat(path, &st) ? 0 : (size_t)st.st_size;
}

static bool write_all(int fd, const char *bytes, size_t size, size_t block)
{
    for (size_t done = 0; done < size;) {
        ssize_t n =
            pwrite(fd, bytes + done, size - done < block ? size - done : block, (off_t)done);
        if (n <= 0)
            return false;
        done += (size_t)n;
    }
    return true;
}

static bool load(const char *source, char *buffer, size_t size)
{
    int fd = open(source, O_RDONLY | O_CLOEXEC);
    size_t done = 0;
    ssize_t n = 1;
    for (; fd >= 0 && done < size && n > 0; done += n > 0 ? (size_t)n : 0)
        n = pread(fd, buffer + done, size - done, (off_t)done);
    if (fd >= 0)
        close(fd);
    return done == size;
}

static bool sync_last(const char *path)
{
    int fd = open(path, O_RDWR | O_CLOEXEC);
    double start = now();
    bool good = fd >= 0 && fsync(fd) == 0;
    printf("fsync %.9f\n", now() - start);
    return (fd < 0 || close(fd) == 0) && good;
}

static bool write_frames(size_t block, const char *source, char **files, int count)
{
    size_t size = size_of(files[0]);
    char *buffer = buffer_create(size * (size_t)count);
    if (!buffer || !load(source, buffer, size * (size_t)count)) {
        free(buffer);
        return failed(source);
    }
    bool good = true;
    for (int i = 0; i < count && good; i++) {
        double start = now();
        int fd = open(files[i], O_WRONLY | O_CLOEXEC);
        good = fd >= 0 && write_all(fd, buffer + size * (size_t)i, size, block);
        printf("%.9f\n", now() - start);
        if (fd >= 0 && close(fd))
            good = false;
        if (!good)
            failed(files[i]);
    }
    free(buffer);
    return good && (sync_last(files[count - 1]) || failed(files[count - 1]));
}

static bool write_randomly(size_t block, size_t writes, char **files, int count)
{
    size_t size = size_of(files[0]);
    char *buffer = buffer_create(block);
    int *fds = calloc((size_t)count, sizeof(*fds));
    bool good = buffer && fds && size >= block;
    for (int i = 0; i < count && good; i++) {
        fds[i] = open(files[i], O_WRONLY | O_CLOEXEC);
        good = fds[i] >= 0 || failed(files[i]);
    }
    srandom(1);
    for (size_t i = 0; i < writes && good; i++) {
        off_t offset = (off_t)((size_t)random() % (size / block) * block);
        memset(buffer, (int)(i % 255 + 1), block);
        double start = now();
        good = pwrite(fds[i % (size_t)count], buffer, block, offset) == (ssize_t)block;
        printf("%.9f\n", now() - start);
    }
    for (int i = 0; fds && i < count; i++)
        if (fds[i] > 0 && close(fds[i]))
            good = false;
    free(fds);
    free(buffer);
    return good || failed("random writes");
}

static bool punch(char **files, int count)
{
    size_t size = size_of(files[0]);
    bool good = true;
    for (int i = 0; i < count && good; i++) {
        int fd = open(files[i], O_WRONLY | O_CLOEXEC);
        double start = now();
        good = fd >= 0 &&
               fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, (off_t)size) == 0;
        printf("%.9f\n", now() - start);
        if (fd >= 0 && close(fd))
            good = false;
        if (!good)
            failed(files[i]);
    }
    return good;
}

int main(int argc, char **argv)
{
    bool good;
    if (argc > 4 && strcmp(argv[1], "frames") == 0) {
        good = write_frames(strtoul(argv[2], NULL, 10), argv[3], argv + 4, argc - 4);
    } else if (argc > 4 && strcmp(argv[1], "random") == 0) {
        good = write_randomly(strtoul(argv[2], NULL, 10), strtoul(argv[3], NULL, 10), argv + 4,
                              argc - 4);
    } else if (argc > 2 && strcmp(argv[1], "punch") == 0) {
        good = punch(argv + 2, argc - 2);
    } else {
        fprintf(stderr, "usage: write_files frames BLOCK_BYTES SOURCE FILE...\n"
                        "       write_files random BLOCK_BYTES COUNT FILE...\n"
                        "       write_files punch FILE...\n");
        return 2;
    }
    return good ? 0 : 1;
}
