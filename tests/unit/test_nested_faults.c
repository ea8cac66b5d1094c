/* Elements with parts of variable length, whose writer is killed, or whose disk is full: what was
 * flushed last stands, all of it. */
#include "support.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "nested.h"
#include "sparsefs/hdf5.h"
#include "sparsefs/sparsefs.h"

#define PATH     "nested.h5"
#define COPY     "copy.h5"
#define ELEMENTS 60
#define CHUNK    7

static const struct sfs_slab all_of_them = {.rank = 1, .count = {ELEMENTS}};

/* All elements as they are after a number of flushes: always the same for that number. */
static char *generation(const struct sfs_type *type, uint64_t number)
{
    char *elements = allocate(ELEMENTS * type->size);
    random_seed(number + 1);
    for (size_t i = 0; i < ELEMENTS; i++)
        nested_fill(type, elements + i * type->size);
    return elements;
}

static void free_generation(const struct sfs_type *type, char *elements)
{
    for (size_t i = 0; i < ELEMENTS; i++)
        nested_free(type, elements + i * type->size);
    free(elements);
}

static int write_generation(struct sfs_dataset *dataset, uint64_t number)
{
    const struct sfs_type *type = &sfs_dataset_info(dataset)->type;
    char *elements = generation(type, number);
    int error = sfs_write(dataset, &all_of_them, elements);
    free_generation(type, elements);
    return error;
}

static bool is_generation(struct sfs_dataset *dataset, uint64_t number)
{
    const struct sfs_type *type = &sfs_dataset_info(dataset)->type;
    char *wanted = generation(type, number);
    void *found;
    bool same = true;
    assert_int_equal(sfs_read_elements(dataset, &all_of_them, &found), 0);
    for (size_t i = 0; i < ELEMENTS; i++)
        same &= nested_same(type, wanted + i * type->size, (char *)found + i * type->size);
    free(found);
    free_generation(type, wanted);
    return same;
}

static struct sfs_file *open_it(const char *path, bool writable, struct sfs_dataset **dataset)
{
    struct sfs_options options = {.writable = writable};
    struct sfs_file *file;
    uint64_t address;
    assert_int_equal(sfs_open(path, &options, &file), 0);
    assert_int_equal(sfs_find(file, sfs_root(file), "/x", &address), 0);
    assert_int_equal(sfs_dataset_open(file, address, "/x", dataset), 0);
    return file;
}

static void close_it(struct sfs_file *file, struct sfs_dataset *dataset)
{
    sfs_dataset_close(dataset);
    assert_int_equal(sfs_close(file), 0);
}

/* With the elements of generation 0. */
static void create_file(unsigned kind, bool is_dense)
{
    const struct sfs_options options = {.replace = true};
    struct sfs_dataset_create create = {.rank = 1,
                                        .dims = {ELEMENTS},
                                        .max_dims = {SFS_UNLIMITED},
                                        .chunk_dims = {CHUNK},
                                        .is_dense = is_dense,
                                        .is_structured = is_dense};
    struct sfs_file *file;
    struct sfs_dataset *dataset;
    hid_t type = nested_type(kind);
    assert_int_equal(sfs_h5_encode(type, 1, &create.type), 0);
    assert_int_equal(sfs_create(PATH, &options, &file), 0);
    assert_int_equal(sfs_dataset_create(file, "/x", &create, &dataset), 0);
    assert_int_equal(write_generation(dataset, 0), 0);
    close_it(file, dataset);
    free((void *)create.type.bytes);
    H5Tclose(type);
}

static void count_damage(void *context, enum sfs_finding finding, const char *line)
{
    (void)line;
    *(unsigned *)context += finding != SFS_SOUND;
}

static void check_file(const char *path)
{
    struct sfs_file *file;
    unsigned damaged = 0;
    assert_int_equal(sfs_open(path, NULL, &file), 0);
    assert_int_equal(sfs_check(file, count_damage, &damaged), 0);
    assert_int_equal(damaged, 0);
    assert_int_equal(sfs_close(file), 0);
}

/* ---- A writer that is killed ---- */

/* Says of each generation that it is flushed, until it is killed. */
static void write_for_ever(int out)
{
    struct sfs_dataset *dataset;
    struct sfs_file *file = open_it(PATH, true, &dataset);
    for (uint64_t number = 1;; number++)
        if (write_generation(dataset, number) || sfs_flush(file) ||
            write(out, &number, sizeof(number)) != sizeof(number))
            _exit(1);
}

/* The last generation that it has flushed; 0: none. */
static uint64_t kill_writer(void)
{
    int pipes[2], status;
    uint64_t number = 0, last;
    assert_int_equal(pipe(pipes), 0);
    pid_t pid = fork();
    if (pid == 0)
        write_for_ever(pipes[1]);
    assert_true(pid > 0);
    close(pipes[1]);
    assert_int_equal(read(pipes[0], &number, sizeof(number)), sizeof(number));
    nanosleep(&(struct timespec){.tv_nsec = (long)(random_next() % 20000000)}, NULL);
    kill(pid, SIGKILL);
    while (read(pipes[0], &last, sizeof(last)) == sizeof(last))
        number = last;
    close(pipes[0]);
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_true(WIFSIGNALED(status));
    return number;
}

static void a_killed_writer_loses_nothing(void **state)
{
    (void)state;
    for (unsigned round = 0; round < 3 * N_NESTED; round++) {
        struct sfs_dataset *dataset;
        create_file(round % N_NESTED, round % 2);
        random_seed(round);
        uint64_t flushed = kill_writer();
        struct sfs_file *file = open_it(PATH, true, &dataset);
        assert_true(is_generation(dataset, flushed) || is_generation(dataset, flushed + 1));
        close_it(file, dataset);
        check_file(PATH);
    }
}

/* ---- A disk that is full ---- */

/* Files may have so many bytes; RLIM_INFINITY: any number. */
static void limit_files(rlim_t bytes)
{
    struct rlimit limit;
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &limit), 0);
    limit.rlim_cur = bytes;
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &limit), 0);
}

/* What a crash would leave now: a copy, as this process has the lock. A journal belongs to its file by
 * its place, so only its absence can be copied: false. */
static bool check_copy(uint64_t number)
{
    struct sfs_dataset *dataset;
    if (access(PATH ".journal", F_OK) == 0)
        return false;
    assert_int_equal(system("rm -f " COPY " " COPY ".journal; cp " PATH " " COPY), 0);
    struct sfs_file *file = open_it(COPY, true, &dataset);
    assert_true(is_generation(dataset, number));
    close_it(file, dataset);
    check_file(COPY);
    return true;
}

/* The disk has room for so many bytes more than the file has; returns whether that was enough. */
static bool fill_disk(rlim_t room, unsigned *checked)
{
    struct sfs_dataset *dataset;
    struct stat st;
    struct sfs_file *file = open_it(PATH, true, &dataset);
    assert_int_equal(stat(PATH, &st), 0);
    limit_files((rlim_t)st.st_size + room);
    assert_int_equal(write_generation(dataset, 1), 0);
    int error = sfs_flush(file);
    limit_files(RLIM_INFINITY);
    assert_true(error == 0 || error == -EFBIG || error == -ENOSPC);
    if (error)
        *checked += check_copy(0);
    assert_true(is_generation(dataset, 1));
    assert_int_equal(sfs_flush(file), 0);
    close_it(file, dataset);
    check_file(PATH);
    file = open_it(PATH, false, &dataset);
    assert_true(is_generation(dataset, 1));
    close_it(file, dataset);
    return error == 0;
}

static void a_full_disk_loses_nothing(void **state)
{
    (void)state;
    log_quietly();
    signal(SIGXFSZ, SIG_IGN);
    for (unsigned kind = 0; kind < N_NESTED; kind++) {
        unsigned checked = 0;
        bool is_enough = false;
        for (rlim_t room = 0; !is_enough; room += 200 + room / 2) {
            create_file(kind, kind % 2);
            is_enough = fill_disk(room, &checked);
        }
        assert_true(checked > 0);
    }
}

TEST_MAIN(cmocka_unit_test(a_killed_writer_loses_nothing),
          cmocka_unit_test(a_full_disk_loses_nothing))
