/* Reads whole files into one reused buffer, as a program does that takes frames one after another,
 * and prints the seconds each took from open to close. With -j N, N threads share the files out
 * (every N-th to each) and start together. Knows no filesystem in particular.
 *
 * read_files [-b BLOCK_BYTES] [-j READERS] [-d] FILE...
 *   -d  before each file's clock starts, have the kernel drop its pages
 * Prints a line "seconds" per file, in the order of the arguments, and then "total seconds". */
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

#include "buffer.h"

struct run {
    char **files;
    int file_count;
    int readers;
    size_t block;
    size_t buffer_size;
    bool drop_pages;
    pthread_barrier_t start;
    double *seconds; /* of each file; written by the one reader that has it */
};

struct reader {
    struct run *run;
    int number;
    int error; /* errno of the file that ended it, or 0 */
    pthread_t thread;
};

static int drop_pages(const char *path)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return errno;
    int error = posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED);
    close(fd);
    return error;
}

/* Reads path to its end, which must come within the buffer. Returns 0 or an errno. */
static int read_file(const struct run *run, const char *path, char *buffer)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return errno;
    size_t done = 0;
    ssize_t bytes;
    do {
        size_t rest = run->buffer_size - done;
        bytes = read(fd, buffer + done, rest < run->block ? rest : run->block);
        if (bytes > 0)
            done += (size_t)bytes;
    } while (bytes > 0);
    int error = bytes < 0 ? errno : 0;
    close(fd);
    return error;
}

static void *read_share(void *argument)
{
    struct reader *reader = argument;
    struct run *run = reader->run;
    char *buffer = buffer_create(run->buffer_size);
    pthread_barrier_wait(&run->start);
    if (!buffer)
        reader->error = ENOMEM;
    for (int i = reader->number; i < run->file_count && !reader->error; i += run->readers) {
        if (run->drop_pages)
            reader->error = drop_pages(run->files[i]);
        double start = now();
        if (!reader->error)
            reader->error = read_file(run, run->files[i], buffer);
        run->seconds[i] = now() - start;
        if (reader->error)
            fprintf(stderr, "read_files: %s: %s\n", run->files[i], strerror(reader->error));
    }
    free(buffer);
    return NULL;
}

/* Runs all readers and prints what they measured. Returns whether all could read. */
static bool measure(struct run *run, struct reader *readers)
{
    pthread_barrier_init(&run->start, NULL, (unsigned)run->readers + 1);
    for (int i = 0; i < run->readers; i++) {
        readers[i] = (struct reader){.run = run, .number = i};
        int error = pthread_create(&readers[i].thread, NULL, read_share, &readers[i]);
        if (error) {
            fprintf(stderr, "read_files: pthread_create: %s\n", strerror(error));
            exit(1); /* those already started wait at the barrier for ever */
        }
    }
    pthread_barrier_wait(&run->start);
    double start = now();
    bool good = true;
    for (int i = 0; i < run->readers; i++) {
        pthread_join(readers[i].thread, NULL);
        good = good && !readers[i].error;
    }
    double total = now() - start;
    pthread_barrier_destroy(&run->start);
    for (int i = 0; i < run->file_count; i++)
        printf("%.9f\n", run->seconds[i]);
    printf("total %.9f\n", total);
    return good;
}

int main(int argc, char **argv)
{
    struct run run = {.readers = 1, .block = (size_t)1 << 20};
    int option;
    while ((option = getopt(argc, argv, "b:j:d")) != -1) {
        if (option == 'b')
            run.block = strtoul(optarg, NULL, 10);
        else if (option == 'j')
            run.readers = atoi(optarg);
        else if (option == 'd')
            run.drop_pages = true;
        else
            return 2;
    }
    run.files = argv + optind;
    run.file_count = argc - optind;
    if (run.file_count == 0 || run.readers < 1 || run.block == 0) {
        fprintf(stderr, "usage: read_files [-b BLOCK_BYTES] [-j READERS] [-d] FILE...\n");
        return 2;
    }
    struct stat st;
    if (stat(run.files[0], &st)) {
        fprintf(stderr, "read_files: %s: %s\n", run.files[0], strerror(errno));
        return 1;
    }
    run.buffer_size = (size_t)st.st_size + 1; /* all are of one size; 1 more to see the end */
    run.seconds = calloc((size_t)run.file_count, sizeof(*run.seconds));
    struct reader *readers = calloc((size_t)run.readers, sizeof(*readers));
    bool good = run.seconds && readers && measure(&run, readers);
    free(readers);
    free(run.seconds);
    return good ? 0 : 1;
}
