/* Stores that are followed: at every system call that a writer makes, and in the middle of every
 * write, followers look at the file. What they read is of one commit, or they are told that it has
 * moved. And the same for whole files. */
#include "opened.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "cache/cache.h"
#include "common/clock.h"
#include "dataset/private.h"
#include "layout/layout.h"
#include "sparsefs/sparsefs.h"
#include "store/store.h"

#define PAGE    4096
#define SECTOR  512
#define MOST    (80 * PAGE)
#define COMMITS 120

/* What a commit says of every byte: its value, or that it is free. */
struct model {
    uint64_t end;
    unsigned char bytes[MOST];
    bool in_use[MOST];
};

static struct model committed, next;
static bool is_committing;

struct follower {
    struct store *store;
    struct model model; /* of the state that it has taken */
    bool is_ahead;      /* that is the one that is being committed */
    bool is_eager;      /* takes the last state at every step */
    unsigned long taken, moved, whole;
};

static struct follower followers[2];
static bool is_looking, is_watching;

#define DIES 3                /* exit code of who dies */
static long until_death = -1; /* system calls */

/* 1: all that is in use is read and right; 0: it is not right; STORE_MOVED. */
static int compare(struct store *store, const struct model *model)
{
    unsigned char bytes[PAGE];
    for (uint64_t at = 0; at < model->end; at += PAGE) {
        size_t n = model->end - at < PAGE ? (size_t)(model->end - at) : PAGE;
        int error = store_read(store, at, bytes, n);
        if (error)
            return error;
        for (size_t i = 0; i < n; i++)
            if (model->in_use[at + i] && bytes[i] != model->bytes[at + i])
                return 0;
    }
    return 1;
}

/* A state that was just taken is the last one or the one that is being committed, and no earlier
 * one than before. It may be as both say, if the new one only adds to the last. */
static void take(struct follower *follower)
{
    bool moved;
    assert_int_equal(store_refresh(follower->store, &moved), 0);
    follower->taken += moved;
    if (!moved) /* the last one still */
        return;
    if (is_committing && compare(follower->store, &next) == 1)
        follower->is_ahead = true;
    else
        assert_false(follower->is_ahead);
    follower->model = follower->is_ahead ? next : committed;
    assert_int_equal(compare(follower->store, &follower->model), 1);
}

static void look(void)
{
    if (until_death >= 0 && until_death-- == 0)
        _exit(DIES);
    if (!is_watching || is_looking)
        return;
    is_looking = true;
    for (size_t i = 0; i < COUNT(followers); i++) {
        struct follower *follower = &followers[i];
        if (follower->is_eager)
            take(follower);
        int found = compare(follower->store, &follower->model);
        follower->whole += found == 1;
        follower->moved += found == STORE_MOVED;
        assert_true(found == 1 || found == STORE_MOVED);
        if (found == STORE_MOVED)
            take(follower);
        assert_int_equal(compare(follower->store, &follower->model), 1);
    }
    is_looking = false;
}

/* ---- Between the store and the system ---- */

#define WRAPPED __attribute__((visibility("default")))

static uint64_t stopped_clock; /* 0: it runs */

uint64_t __real_clock_now(void);
uint64_t __wrap_clock_now(void);

WRAPPED uint64_t __wrap_clock_now(void)
{
    return stopped_clock ? stopped_clock : __real_clock_now();
}

ssize_t __real_pread64(int fd, void *bytes, size_t n, off_t at);
ssize_t __wrap_pread64(int fd, void *bytes, size_t n, off_t at);
ssize_t __real_pwrite64(int fd, const void *bytes, size_t n, off_t at);
ssize_t __wrap_pwrite64(int fd, const void *bytes, size_t n, off_t at);
int __real_ftruncate64(int fd, off_t n);
int __wrap_ftruncate64(int fd, off_t n);
int __real_fdatasync(int fd);
int __wrap_fdatasync(int fd);
int __real_fsync(int fd);
int __wrap_fsync(int fd);
int __real_unlinkat(int folder, const char *name, int flags);
int __wrap_unlinkat(int folder, const char *name, int flags);

static off_t unreadable = -1; /* a byte that the disk does not give */

WRAPPED ssize_t __wrap_pread64(int fd, void *bytes, size_t n, off_t at)
{
    if (unreadable < at || unreadable >= at + (off_t)n)
        return __real_pread64(fd, bytes, n, at);
    errno = EIO;
    return -1;
}

WRAPPED ssize_t __wrap_pwrite64(int fd, const void *bytes, size_t n, off_t at)
{
    size_t half = n < SECTOR ? n / 2 : n / 2 / SECTOR * SECTOR;
    look();
    if (half > 0 && __real_pwrite64(fd, bytes, half, at) == (ssize_t)half)
        look();
    return __real_pwrite64(fd, bytes, n, at);
}

WRAPPED int __wrap_ftruncate64(int fd, off_t n)
{
    look();
    return __real_ftruncate64(fd, n);
}

WRAPPED int __wrap_fdatasync(int fd)
{
    look();
    return __real_fdatasync(fd);
}

WRAPPED int __wrap_fsync(int fd)
{
    look();
    return __real_fsync(fd);
}

WRAPPED int __wrap_unlinkat(int folder, const char *name, int flags)
{
    look();
    return __real_unlinkat(folder, name, flags);
}

/* ---- A writer ---- */

static void set(struct store *store, uint64_t address, size_t n)
{
    unsigned char *bytes = allocate(n);
    random_fill(bytes, n);
    assert_int_equal(store_write(store, address, bytes, n), 0);
    memcpy(next.bytes + address, bytes, n);
    free(bytes);
}

static void set_new(struct store *store, size_t n)
{
    uint64_t address;
    assert_int_equal(store_allocate(store, n, &address), 0);
    assert_true(address + n <= MOST);
    memset(next.in_use + address, true, n);
    next.end = next.end < address + n ? address + n : next.end;
    set(store, address, n);
}

/* The length of what is in use, or is not, from an address on. */
static uint64_t run_at(uint64_t at)
{
    uint64_t end = at;
    while (end < next.end && next.in_use[end] == next.in_use[at])
        end++;
    return end - at;
}

/* Something is written again, something moves elsewhere, something is given back. */
static void change(struct store *store)
{
    for (uint64_t i = random_between(1, 6); i > 0; i--) {
        uint64_t at = random_below(next.end), most = run_at(at);
        uint64_t n = random_between(1, most < 3 * PAGE ? most : 3 * PAGE);
        if (!next.in_use[at])
            continue;
        if (random_below(2) == 0) {
            set(store, at, (size_t)n);
        } else if (next.end < MOST - 8 * PAGE) {
            assert_int_equal(store_free(store, at, n), 0);
            memset(next.in_use + at, false, n);
            while (!next.in_use[next.end - 1])
                next.end--;
            set_new(store, (size_t)n);
        }
    }
    look();
}

static void commit(struct store *store)
{
    is_committing = true;
    assert_int_equal(store_commit(store), 0);
    committed = next;
    is_committing = false;
    for (size_t i = 0; i < COUNT(followers); i++)
        followers[i].is_ahead = false;
    look();
}

static struct store *begin(void)
{
    struct store *store;
    memset(&next, 0, sizeof(next));
    assert_int_equal(store_create("a", true, &store), 0);
    set_new(store, 40 * PAGE - 100);
    assert_int_equal(store_commit(store), 0);
    committed = next;
    return store;
}

static void followers_begin(void)
{
    for (size_t i = 0; i < COUNT(followers); i++) {
        followers[i] = (struct follower){.model = committed, .is_eager = i == 0};
        assert_int_equal(store_open_following("a", &followers[i].store), 0);
    }
    is_watching = true;
}

static void followers_end(void)
{
    is_watching = false;
    for (size_t i = 0; i < COUNT(followers); i++)
        store_close(followers[i].store);
}

static void followers_see_one_commit_at_every_step(void **state)
{
    (void)state;
    struct store *store = begin();
    followers_begin();
    for (int i = 0; i < COMMITS; i++) {
        change(store);
        commit(store);
    }
    assert_true(followers[0].taken >= COMMITS / 2 && followers[1].taken >= COMMITS / 2);
    assert_true(followers[1].moved > 0 && followers[1].whole > followers[1].moved);
    followers_end();
    store_close(store);
}

static bool exists(const char *path)
{
    return access(path, F_OK) == 0;
}

static void the_counter_is_there_as_long_as_the_writer(void **state)
{
    (void)state;
    struct store *store = begin();
    assert_true(exists("a.commits"));
    store_close(store);
    assert_false(exists("a.commits"));
    assert_int_equal(store_open("a", &store), 0);
    assert_false(exists("a.commits"));
    store_close(store);
    assert_int_equal(store_open_writable("a", &store), 0);
    assert_true(exists("a.commits"));
    followers_begin();
    set(store, 5, 3);
    commit(store);
    store_close(store); /* the followers look at this, too */
    look();
    assert_int_equal(store_open_writable("a", &store), 0);
    set(store, PAGE, 3);
    look();
    commit(store);
    followers_end();
    store_close(store);
}

static void copy_file(const char *from, const char *to)
{
    char command[100];
    snprintf(command, sizeof(command), "cp %s %s", from, to);
    assert_int_equal(system(command), 0);
}

/* What a child is to write before its end. */
static struct {
    uint64_t at;
    size_t n;
} planned[] = {{0, 48}, {3 * PAGE - 7, 20}, {9 * PAGE, 2 * PAGE}, {39 * PAGE, 100}};

static bool child_dies_at(long step)
{
    int status;
    pid_t child = fork();
    if (child == 0) {
        struct store *store;
        is_watching = false;
        if (store_open_writable("a", &store) < 0)
            _exit(1);
        for (size_t i = 0; i < COUNT(planned); i++)
            if (store_write(store, planned[i].at, next.bytes + planned[i].at, planned[i].n) < 0)
                _exit(1);
        until_death = step;
        _exit(store_commit(store) < 0);
    }
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status) && WEXITSTATUS(status) != 1);
    return WEXITSTATUS(status) == DIES;
}

/* A writer dies at every step of a commit. What it leaves is one of two states, the second one from
 * the complete journal on, for followers who were there and for new ones; and so it stays while the
 * next writer repairs it. */
static void what_a_dead_writer_leaves_is_whole(void **state)
{
    (void)state;
    bool died = true;
    unsigned journals = 0, ahead = 0;
    for (long step = 0; died; step++) {
        struct store *store = begin();
        store_close(store);
        followers_begin();
        for (size_t i = 0; i < COUNT(planned); i++)
            random_fill(next.bytes + planned[i].at, planned[i].n);
        died = child_dies_at(step);
        journals += exists("a.journal");
        is_committing = true;
        look();
        take(&followers[1]);
        assert_int_equal(followers[0].is_ahead, followers[1].is_ahead);
        bool is_ahead = followers[0].is_ahead;
        ahead += is_ahead;
        followers_end();
        followers_begin();
        for (size_t i = 0; i < COUNT(followers); i++) {
            followers[i].is_ahead = is_ahead;
            followers[i].model = is_ahead ? next : committed;
        }
        look();
        assert_int_equal(store_open_writable("a", &store), 0);
        look();
        store_close(store);
        look();
        assert_int_equal(followers[0].is_ahead, is_ahead);
        is_committing = false;
        followers_end();
    }
    assert_true(journals > 5 && ahead > 3);
}

/* One that never lets go, however often it has asked. */
static void a_follower_does_not_stop_the_writer(void **state)
{
    (void)state;
    struct store *store = begin();
    followers_begin();
    is_watching = false;
    store_hold(followers[0].store);
    store_hold(followers[0].store);
    store_release(followers[0].store);
    for (int i = 0; i < COMMITS; i++) {
        change(store);
        commit(store);
    }
    take(&followers[0]);
    store_release(followers[0].store);
    take(&followers[1]);
    is_watching = true;
    look();
    followers_end();
    store_close(store);
}

static void follower_is_told_of_what_is_gone(void **state)
{
    (void)state;
    bool moved;
    log_quietly();
    struct store *store = begin();
    store_close(store);
    assert_int_equal(store_open_following("a", &store), 0);
    assert_int_equal(compare(store, &committed), 1);
    copy_file("a", "other");
    assert_int_equal(rename("other", "a"), 0);
    unsigned before = log_errors();
    for (int i = 0; i < 3; i++)
        assert_int_equal(store_refresh(store, &moved), -ESTALE);
    assert_int_equal(log_errors(), before + 1);
    assert_int_equal(compare(store, &committed), -ESTALE);
    store_close(store);
    assert_int_equal(store_open_following("nothing", &store), -ENOENT);
}

static void put_byte(int fd, off_t at, unsigned char byte)
{
    assert_int_equal(pwrite(fd, &byte, 1, at), 1);
}

/* The file of a foreign writer is read as it is by now, until its mark has gone. */
static void a_live_file_is_read_while_it_is_marked(void **state)
{
    (void)state;
    const struct store_mark mark = {PAGE + 11, 4};
    unsigned char byte;
    struct store *store;
    bool moved;
    int fd = open("live", O_RDWR | O_CREAT | O_EXCL, 0600);
    assert_int_equal(ftruncate(fd, 2 * PAGE), 0);
    put_byte(fd, PAGE + 11, 5);
    assert_int_equal(store_open_following("live", &store), 0);
    store_set_live(store, &mark);
    assert_true(store_is_live(store));
    for (unsigned char i = 1; i < 4; i++) {
        put_byte(fd, 3, i);
        assert_int_equal(store_read(store, 3, &byte, 1), 0);
        assert_int_equal(byte, i);
    }
    put_byte(fd, PAGE + 11, 1); /* another writer */
    assert_int_equal(store_read(store, 3, &byte, 1), STORE_MOVED);
    put_byte(fd, PAGE + 11, 4);
    assert_int_equal(store_read(store, 3, &byte, 1), 0);
    assert_int_equal(ftruncate(fd, PAGE), 0);
    assert_int_equal(store_read(store, 3, &byte, 1), STORE_MOVED);
    assert_int_equal(store_read(store, PAGE, &byte, 1), STORE_MOVED);
    assert_int_equal(store_refresh(store, &moved), 0);
    assert_true(moved && !store_is_live(store));
    assert_int_equal(store_read(store, 3, &byte, 1), 0);
    store_close(store);
    close(fd);
}

static bool moves_after(struct store *store, unsigned millis)
{
    bool moved;
    stopped_clock += (uint64_t)millis * 1000000;
    assert_int_equal(store_refresh(store, &moved), 0);
    return moved;
}

/* Where no counter is, and a change may have been made at the time that the file had before. */
static void a_state_that_is_in_doubt_is_taken_again(void **state)
{
    (void)state;
    struct timespec times[2] = {{.tv_sec = time(NULL)}, {.tv_sec = time(NULL)}};
    struct store *store;
    int fd = open("doubt", O_RDWR | O_CREAT | O_EXCL, 0600);
    assert_int_equal(ftruncate(fd, PAGE), 0);
    stopped_clock = clock_now();
    assert_int_equal(futimens(fd, times), 0);
    assert_int_equal(store_open_following("doubt", &store), 0);
    for (int i = 0; i < 2; i++) {
        assert_false(moves_after(store, 0));
        assert_true(moves_after(store, 100));
        assert_false(moves_after(store, 900));
        assert_true(moves_after(store, 1000));
        assert_false(moves_after(store, 500));
        assert_true(moves_after(store, 1000));
        assert_false(moves_after(store, 1000));
        assert_false(moves_after(store, 100000));
        times[1].tv_nsec++;
        assert_int_equal(futimens(fd, times), 0);
        assert_true(moves_after(store, 0));
    }
    assert_true(moves_after(store, 10000)); /* once for all times that have come */
    assert_false(moves_after(store, 0));
    times[1].tv_sec -= 1000; /* by the clock of another host */
    assert_int_equal(futimens(fd, times), 0);
    assert_true(moves_after(store, 0));
    assert_true(moves_after(store, 10000));
    store_close(store);
    assert_int_equal(store_open_following("doubt", &store), 0);
    assert_false(moves_after(store, 10000)); /* nobody changes it now */
    stopped_clock = 0;
    store_close(store);
    close(fd);
}

#define PAUSES ((uint64_t)999 * 200000) /* nanoseconds, before it is given up */
#define TRIES  50                       /* a busy machine makes one wait, too */

/* The least that has been waited for something else than our own tries. */
static uint64_t waited_for(struct store *store)
{
    uint64_t least = UINT64_MAX;
    for (int i = 0; i < TRIES && least >= PAUSES; i++) {
        bool moved;
        uint64_t began = clock_now(), before = clock_waited();
        assert_int_equal(store_refresh(store, &moved), -EBUSY);
        uint64_t after = clock_waited(), waited = after > before ? after - before : 0;
        assert_true(clock_now() - began >= PAUSES);
        least = waited < least ? waited : least;
    }
    return least;
}

/* A journal that fits no file, a copy of another one's, may be about to be replaced. Who waits for
 * that can be told to give up; it gives nobody else more time. */
static void waiting_can_be_ended(void **state)
{
    (void)state;
    bool moved;
    struct store *store = begin();
    store_close(store);
    log_quietly();
    copy_file("a", "b");
    int fd = open("b", O_WRONLY);
    assert_int_equal(pwrite(fd, "another file", 12, 9 * PAGE + 100), 12);
    close(fd);
    assert_int_equal(store_open_following("b", &store), 0);
    for (size_t i = 0; i < COUNT(planned); i++)
        random_fill(next.bytes + planned[i].at, planned[i].n);
    int error = 0;
    for (long step = 0; !error; step++) {
        assert_true(child_dies_at(step));
        if (!exists("a.journal"))
            continue;
        copy_file("a.journal", "b.journal");
        assert_int_equal(unlink("a.journal"), 0);
        error = store_refresh(store, &moved);
    }
    assert_int_equal(error, -EBUSY);
    assert_true(waited_for(store) < PAUSES);
    unsigned before = log_errors();
    store_interrupt(store);
    assert_int_equal(store_refresh(store, &moved), -EINTR);
    assert_int_equal(log_errors(), before);
    store_close(store);
    assert_int_equal(unlink("b.journal"), 0);
}

/* ---- Whole files ---- */

#define SIDE 8

static struct sfs_dataset *create_dataset(struct sfs_file *file, const char *path, bool is_dense)
{
    void *type;
    struct sfs_dataset *dataset;
    struct sfs_dataset_create create = {.rank = 3,
                                        .dims = {0, SIDE, SIDE},
                                        .max_dims = {SFS_UNLIMITED, SIDE, SIDE},
                                        .chunk_dims = {1, SIDE, SIDE},
                                        .is_dense = is_dense};
    assert_int_equal(sfs_type_encode("uint8", &type, &create.type.n), 0);
    create.type.bytes = type;
    assert_int_equal(sfs_dataset_create(file, path, &create, &dataset), 0);
    free(type);
    return dataset;
}

static void write_frame(struct sfs_dataset *dataset, uint64_t number, int value)
{
    unsigned char elements[SIDE * SIDE];
    struct sfs_slab slab = {.rank = 3, .start = {number}, .count = {1, SIDE, SIDE}};
    memset(elements, value, sizeof(elements));
    assert_int_equal(sfs_extend(dataset, (uint64_t[]){number + 1, SIDE, SIDE}), 0);
    assert_int_equal(sfs_write(dataset, &slab, elements), 0);
}

static int read_frame(struct sfs_dataset *dataset, uint64_t number)
{
    unsigned char elements[SIDE * SIDE];
    struct sfs_slab slab = {.rank = 3, .start = {number}, .count = {1, SIDE, SIDE}};
    int error = sfs_read(dataset, &slab, 0, elements, sizeof(elements));
    for (size_t i = 1; i < sizeof(elements) && !error; i++)
        assert_int_equal(elements[i], elements[0]);
    return error ? error : elements[0];
}

static void open_datasets_follow(void **state)
{
    (void)state;
    struct sfs_file *file, *follower;
    uint64_t dims[3], address;
    assert_int_equal(sfs_create("f", NULL, &file), 0);
    struct sfs_dataset *dataset = create_dataset(file, "/a", false);
    assert_int_equal(sfs_flush(file), 0);
    assert_int_equal(sfs_open("f", NULL, &follower), -EBUSY);
    assert_int_equal(sfs_open("f", &(struct sfs_options){.beside_writer = true}, &follower), 0);
    assert_true(sfs_is_following(follower) && !sfs_is_writable(follower));
    struct sfs_dataset *followed = open_dataset(follower, "/a");

    uint64_t states = sfs_states(follower), extent = sfs_dataset_dims(followed, dims);
    uint64_t changes = sfs_dataset_changes(followed);
    assert_int_equal(dims[0], 0);
    write_frame(dataset, 0, 1);
    assert_int_equal(sfs_refresh(follower), 0); /* not committed */
    assert_int_equal(sfs_dataset_dims(followed, dims), extent);
    assert_int_equal(sfs_dataset_changes(followed), changes);
    assert_int_equal(sfs_states(follower), states);

    assert_int_equal(sfs_flush(file), 0);
    assert_int_equal(sfs_refresh(follower), 0);
    assert_int_not_equal(sfs_dataset_dims(followed, dims), extent);
    assert_int_not_equal(sfs_dataset_changes(followed), changes);
    assert_int_equal(dims[0], 1);
    assert_int_equal(read_frame(followed, 0), 1);

    /* Again and again at the same two addresses: what is cached is not taken for the new one, and a
     * call that finds the old state gone takes the new one by itself. */
    for (int value = 2; value < 20; value++) {
        write_frame(dataset, 0, value);
        assert_int_equal(sfs_flush(file), 0);
        if (value % 3 == 0)
            assert_int_equal(sfs_refresh(follower), 0);
        int found = read_frame(followed, 0);
        assert_true(found == value || (value % 3 && found == value / 3 * 3) || value == 2);
    }

    /* What is new is found, too. */
    struct sfs_dataset *later = create_dataset(file, "/later", false);
    assert_int_equal(sfs_find(follower, sfs_root(follower), "/later", &address), -ENOENT);
    write_frame(later, 2, 7);
    assert_int_equal(sfs_flush(file), 0);
    assert_int_equal(sfs_refresh(follower), 0);
    struct sfs_dataset *later_followed = open_dataset(follower, "/later");
    assert_int_equal(read_frame(later_followed, 2), 7);
    assert_int_equal(read_frame(later_followed, 1), 0);

    sfs_dataset_close(later_followed);
    sfs_dataset_close(followed);
    sfs_discard(follower);
    sfs_dataset_close(later);
    sfs_dataset_close(dataset);
    assert_int_equal(sfs_close(file), 0);
    assert_int_equal(sfs_open("f", &(struct sfs_options){.beside_writer = true}, &follower), 0);
    assert_false(sfs_is_following(follower));
    sfs_discard(follower);
    assert_int_equal(
        sfs_open("f", &(struct sfs_options){.follow = true, .writable = true}, &follower), -EINVAL);
}

static void change_frames(const char *const *paths, size_t n, int value)
{
    struct sfs_file *file;
    assert_int_equal(sfs_open("e", &(struct sfs_options){.writable = true}, &file), 0);
    for (size_t i = 0; i < n; i++) {
        struct sfs_dataset *dataset = open_dataset(file, paths[i]);
        write_frame(dataset, 0, value);
        sfs_dataset_close(dataset);
    }
    assert_int_equal(sfs_close(file), 0);
}

/* So that what is behind it is not read with what is before it. */
static void create_between(struct sfs_file *file, size_t number)
{
    char path[] = "/between0";
    path[sizeof(path) - 2] += (char)number;
    struct sfs_dataset *between = create_dataset(file, path, true);
    for (uint64_t i = 0; i < 200; i++)
        write_frame(between, i, 1);
    sfs_dataset_close(between);
    assert_int_equal(sfs_flush(file), 0);
}

/* What could not be read when a state was taken is read again, without another commit. */
static void a_read_error_passes(void **state)
{
    (void)state;
    static const char *const paths[] = {"/dense", "/sparse"};
    struct sfs_file *file, *follower;
    struct sfs_dataset *followed[COUNT(paths)];
    assert_int_equal(sfs_create("e", NULL, &file), 0);
    for (size_t i = 0; i < COUNT(paths); i++) {
        create_between(file, i);
        sfs_dataset_close(create_dataset(file, paths[i], i == 0));
        assert_int_equal(sfs_flush(file), 0);
    }
    assert_int_equal(sfs_close(file), 0);
    change_frames(paths, COUNT(paths), 1);
    assert_int_equal(sfs_open("e", &(struct sfs_options){.follow = true}, &follower), 0);
    for (size_t i = 0; i < COUNT(paths); i++) {
        followed[i] = open_dataset(follower, paths[i]);
        assert_int_equal(read_frame(followed[i], 0), 1);
    }
    for (size_t i = 0; i < COUNT(paths); i++) {
        int value = (int)i + 2;
        change_frames(paths, COUNT(paths), value);
        unreadable = (off_t)sfs_dataset_address(followed[i]);
        for (int times = 0; times < 3; times++) {
            assert_int_equal(sfs_refresh(follower), 0);
            assert_int_equal(read_frame(followed[i], 0), -EIO);
            assert_int_equal(read_frame(followed[1 - i], 0), value);
        }
        unreadable = -1;
        uint64_t states = sfs_states(follower);
        assert_int_equal(sfs_refresh(follower), 0);
        assert_int_equal(read_frame(followed[i], 0), value);
        assert_int_equal(sfs_states(follower), states + 1);
        assert_int_equal(sfs_refresh(follower), 0);
        assert_int_equal(sfs_states(follower), states + 1);
    }
    for (size_t i = 0; i < COUNT(paths); i++)
        sfs_dataset_close(followed[i]);
    sfs_discard(follower);
}

/* Of a state that is gone when the attributes are read: the call takes the next one by itself. */
static void attributes_are_copied_beside_a_writer(void **state)
{
    (void)state;
    struct sfs_file *file, *follower, *to;
    struct sfs_dataset *dataset[12], *copy;
    uint64_t address[12];
    char path[16];
    void *type;
    assert_int_equal(sfs_create("attributes", NULL, &file), 0);
    for (int i = 0; i < 12; i++) {
        snprintf(path, sizeof(path), "/%d", i);
        dataset[i] = create_dataset(file, path, false);
        for (int k = 0; k < 100; k++) /* other pages between their headers */
            write_frame(dataset[i], k, k);
    }
    assert_int_equal(sfs_flush(file), 0);
    assert_int_equal(
        sfs_open("attributes", &(struct sfs_options){.beside_writer = true}, &follower), 0);
    for (int i = 0; i < 12; i++) {
        snprintf(path, sizeof(path), "/%d", i);
        assert_int_equal(sfs_find(follower, sfs_root(follower), path, &address[i]), 0);
    }
    assert_int_equal(sfs_create("copies", NULL, &to), 0);
    for (int i = 0; i < 12; i++) {
        struct sfs_dataset_create create = {.rank = 1,
                                            .dims = {8},
                                            .max_dims = {8},
                                            .chunk_dims = {8},
                                            .attributes_file = follower,
                                            .attributes_address = address[i]};
        assert_int_equal(sfs_type_encode("uint8", &type, &create.type.n), 0);
        create.type.bytes = type;
        for (int k = 0; k < 2; k++) { /* in its place, too, where the follower looks */
            write_frame(dataset[i], 100 + k, i);
            assert_int_equal(sfs_flush(file), 0);
        }
        unsigned errors = log_errors();
        snprintf(path, sizeof(path), "/%d", i);
        int error = sfs_dataset_create(to, path, &create, &copy);
        assert_true(error == 0 || error == -EAGAIN);
        assert_int_equal(log_errors(), errors);
        if (error == 0)
            sfs_dataset_close(copy);
        free(type);
    }
    sfs_discard(to);
    sfs_discard(follower);
    for (int i = 0; i < 12; i++)
        sfs_dataset_close(dataset[i]);
    assert_int_equal(sfs_close(file), 0);
}

/* Members are in other files: the series stays what it was, also while nobody has it open. */
static void a_series_stays_what_it_was(void **state)
{
    (void)state;
    struct sfs_file *file, *follower;
    uint64_t address;
    assert_int_equal(sfs_create("member", NULL, &file), 0);
    struct sfs_dataset *dataset = create_dataset(file, "/d", true);
    write_frame(dataset, 0, 5);
    write_frame(dataset, 1, 6);
    sfs_dataset_close(dataset);
    assert_int_equal(sfs_close(file), 0);

    assert_int_equal(sfs_create("series", NULL, &file), 0);
    static char member[] = "member", path[] = "/d";
    struct sfs_link link = {.type = SFS_LINK_EXTERNAL, .target_file = member, .target = path};
    assert_int_equal(sfs_link_create(file, "/data_000001", &link), 0);
    dataset = create_dataset(file, "/a", false);
    assert_int_equal(sfs_flush(file), 0);
    assert_int_equal(sfs_open("series", &(struct sfs_options){.follow = true}, &follower), 0);
    struct sfs_dataset *followed = open_dataset(follower, "/a");
    for (int i = 0; i < 3; i++) {
        assert_int_equal(sfs_find(follower, sfs_root(follower), "data", &address), 0);
        struct sfs_dataset *series = open_dataset(follower, "/data");
        assert_true(address == sfs_dataset_address(series));
        assert_int_equal(read_frame(series, 0), 5);
        if (i == 1) /* the next commit finds it in use */
            write_frame(dataset, 0, 7);
        if (i == 1)
            assert_int_equal(sfs_flush(file), 0);
        assert_int_equal(sfs_refresh(follower), 0);
        assert_int_equal(read_frame(series, 1), 6);
        sfs_dataset_close(series);
        write_frame(dataset, (uint64_t)i, i);
        assert_int_equal(sfs_flush(file), 0);
        assert_int_equal(sfs_refresh(follower), 0);
        assert_int_equal(read_frame(followed, (uint64_t)i), i);
    }
    sfs_dataset_close(followed);
    sfs_discard(follower);
    sfs_dataset_close(dataset);
    assert_int_equal(sfs_close(file), 0);
}

static bool is_wanted_no_more(void *context)
{
    unsigned *left = context;
    return *left == 0 || (--*left, false);
}

/* How often it was asked, and what became of it. */
static unsigned refresh_asked(struct sfs_file *file, unsigned left, int *error)
{
    const unsigned most = left;
    sfs_set_interrupt(is_wanted_no_more, &left);
    *error = sfs_refresh(file);
    sfs_set_interrupt(NULL, NULL);
    return most - left;
}

/* After each of its members, also where nothing has changed. */
static void looking_at_a_series_again_can_be_ended(void **state)
{
    (void)state;
    enum { MEMBERS = 20 };
    struct sfs_file *file, *follower;
    uint64_t address;
    int error;
    assert_int_equal(sfs_create("member_of_many", NULL, &file), 0);
    struct sfs_dataset *dataset = create_dataset(file, "/d", true);
    write_frame(dataset, 0, 5);
    sfs_dataset_close(dataset);
    assert_int_equal(sfs_close(file), 0);
    assert_int_equal(sfs_create("many", NULL, &file), 0);
    static char member[] = "member_of_many", path[] = "/d";
    for (int i = 1; i <= MEMBERS; i++) {
        char name[20];
        struct sfs_link link = {.type = SFS_LINK_EXTERNAL, .target_file = member, .target = path};
        snprintf(name, sizeof(name), "/data_%06d", i);
        assert_int_equal(sfs_link_create(file, name, &link), 0);
    }
    assert_int_equal(sfs_close(file), 0);

    assert_int_equal(sfs_open("many", &(struct sfs_options){.follow = true}, &follower), 0);
    assert_int_equal(sfs_find(follower, sfs_root(follower), "data", &address), 0);
    struct sfs_dataset *series = open_dataset(follower, "/data");
    for (int round = 0; round < 3; round++) { /* once more each, as it may have changed since */
        for (unsigned left = 0; left < MEMBERS; left++) {
            assert_int_equal(refresh_asked(follower, left, &error), left);
            assert_int_equal(error, -EINTR);
        }
        assert_true(refresh_asked(follower, UINT_MAX, &error) >= MEMBERS);
        assert_int_equal(error, 0);
        assert_int_equal(read_frame(series, MEMBERS - 1), 5);
    }
    sfs_interrupt(follower);
    assert_int_equal(sfs_refresh(follower), -EINTR);
    sfs_dataset_close(series);
    sfs_discard(follower);
}

/* ---- What takes several reads ---- */

/* A child that commits when it is told to. */
static int to_writer, from_writer;

static void let_writer_commit(void)
{
    char word = '+';
    assert_int_equal(write(to_writer, &word, 1), 1);
    assert_int_equal(read(from_writer, &word, 1), 1);
}

static void commit_when_told(int from, int to)
{
    struct sfs_file *file;
    char word = '+';
    assert_int_equal(sfs_create("g", NULL, &file), 0);
    struct sfs_dataset *dataset = create_dataset(file, "/a", false);
    struct sfs_dataset *dense = create_dataset(file, "/dense", true);
    for (int i = 0; i < 20; i++)
        write_frame(dense, i, i + 1);
    int value = 1;
    do {
        write_frame(dataset, 0, value++);
        assert_int_equal(sfs_flush(file), 0);
    } while (write(to, &word, 1) == 1 && read(from, &word, 1) == 1);
    sfs_dataset_close(dense);
    sfs_dataset_close(dataset);
    _exit(sfs_close(file) < 0);
}

static pid_t start_writer(void)
{
    int there[2], back[2];
    char word;
    assert_true(pipe(there) == 0 && pipe(back) == 0);
    pid_t child = fork();
    if (child == 0) {
        close(there[1]);
        close(back[0]);
        commit_when_told(there[0], back[1]);
    }
    close(there[0]);
    close(back[1]);
    to_writer = there[1];
    from_writer = back[0];
    assert_int_equal(read(from_writer, &word, 1), 1);
    return child;
}

static struct sfs_file *open_image_of(struct sfs_file *followed)
{
    struct sfs_file *image;
    int64_t n = sfs_get_image(followed, NULL, 0);
    assert_true(n > 0);
    void *bytes = malloc((size_t)n); /* the image's then */
    assert_int_equal(sfs_get_image(followed, bytes, (size_t)n - 1), -ERANGE);
    assert_int_equal(sfs_get_image(followed, bytes, (size_t)n), n);
    assert_int_equal(sfs_open_image(bytes, (size_t)n, SFS_IMAGE_DONT_COPY, NULL, &image), 0);
    return image;
}

/* Who puts something beside the file does not fill the log of those who look again and again. */
static void what_is_in_the_way_is_said_once(void **state)
{
    (void)state;
    struct store *writer, *follower;
    bool moved;
    assert_int_equal(store_create("w", false, &writer), 0);
    assert_int_equal(store_commit(writer), 0);
    assert_int_equal(store_close(writer), 0);
    assert_int_equal(store_open_following("w", &follower), 0);
    log_quietly();
    for (unsigned round = 0; round < 2; round++) {
        unsigned before = log_errors();
        assert_int_equal(mkfifo("w.journal", 0600), 0);
        for (unsigned i = 0; i < 10; i++)
            assert_int_equal(store_refresh(follower, &moved), -EPERM);
        assert_int_equal(log_errors(), before + 1);
        assert_int_equal(unlink("w.journal"), 0);
        assert_int_equal(symlink("w", "w.journal"), 0);
        for (unsigned i = 0; i < 10; i++)
            assert_int_equal(store_refresh(follower, &moved), -ELOOP);
        assert_int_equal(log_errors(), before + 2);
        assert_int_equal(unlink("w.journal"), 0);
        assert_int_equal(store_refresh(follower, &moved), 0);
    }
    store_close(follower);
}

/* What is read in several calls is of one state if that is wanted. */
static void reading_in_several_calls(void **state)
{
    (void)state;
    int status;
    struct sfs_file *follower, *copy, *image;
    uint64_t address;
    pid_t child = start_writer();
    assert_int_equal(sfs_open("g", &(struct sfs_options){.follow = true}, &follower), 0);
    struct sfs_dataset *followed = open_dataset(follower, "/a");
    log_quietly();
    unsigned before = log_errors();

    sfs_hold_state(follower, true);
    let_writer_commit();
    uint64_t states = sfs_states(follower);
    assert_int_equal(read_frame(followed, 0), -EAGAIN);
    assert_true(sfs_states(follower) > states);
    int value = read_frame(followed, 0);
    assert_true(value > 1);
    sfs_hold_state(follower, false);
    let_writer_commit();
    assert_int_equal(sfs_refresh(follower), 0);
    assert_int_equal(read_frame(followed, 0), value + 1);

    /* libhdf5 would crash where it meets the end of a state: it copies from an image. */
    assert_int_equal(sfs_find(follower, sfs_root(follower), "/dense", &address), 0);
    assert_int_equal(sfs_create("copy", NULL, &copy), 0);
    assert_int_equal(log_errors(), before);
    assert_int_equal(sfs_object_copy(copy, "/dense", follower, address), -EOPNOTSUPP);
    let_writer_commit();
    assert_int_equal(sfs_refresh(follower), 0);
    image = open_image_of(follower);
    let_writer_commit();
    struct sfs_dataset *in_image = open_dataset(image, "/a");
    assert_int_equal(read_frame(in_image, 0), value + 2);
    sfs_dataset_close(in_image);
    assert_int_equal(sfs_object_copy(copy, "/dense", image, address), 0);
    assert_int_equal(sfs_flush(copy), 0);
    in_image = open_dataset(copy, "/dense");
    assert_int_equal(read_frame(in_image, 7), 8);
    sfs_dataset_close(in_image);
    sfs_discard(image);

    sfs_dataset_close(followed);
    sfs_discard(follower);
    sfs_discard(copy);
    close(to_writer);
    close(from_writer);
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
}

/* ---- Calls that the writer outruns ---- */

static unsigned holds;
static const char *moves = ""; /* for each read, "m": the state has moved on; else it has not */

int __real_file_list(struct sfs_file *file, uint64_t group, struct sfs_links *links,
                     struct why *why);
int __wrap_file_list(struct sfs_file *file, uint64_t group, struct sfs_links *links,
                     struct why *why);
typedef int (*each_chunk)(void *context, const uint64_t *scaled, const struct chunk_record *record);
int __real_layout_each_chunk(struct layout *layout, const struct box *box, each_chunk each,
                             void *context);
int __wrap_layout_each_chunk(struct layout *layout, const struct box *box, each_chunk each,
                             void *context);
int __real_cache_lend(struct cache_dataset *dataset, const struct box *box, const void **bytes,
                      struct chunk **chunk);
int __wrap_cache_lend(struct cache_dataset *dataset, const struct box *box, const void **bytes,
                      struct chunk **chunk);
void __real_store_hold(struct store *store);
void __wrap_store_hold(struct store *store);
void __real_store_release(struct store *store);
void __wrap_store_release(struct store *store);

static bool has_moved(void)
{
    char c = *moves;
    moves += c != '\0';
    return c == 'm';
}

WRAPPED int __wrap_file_list(struct sfs_file *file, uint64_t group, struct sfs_links *links,
                             struct why *why)
{
    return has_moved() ? STORE_MOVED : __real_file_list(file, group, links, why);
}

/* The state is lost when all chunks were told of, or at once. */
WRAPPED int __wrap_layout_each_chunk(struct layout *layout, const struct box *box, each_chunk each,
                                     void *context)
{
    int error = has_moved() ? STORE_MOVED : __real_layout_each_chunk(layout, box, each, context);
    return has_moved() ? STORE_MOVED : error;
}

WRAPPED int __wrap_cache_lend(struct cache_dataset *dataset, const struct box *box,
                              const void **bytes, struct chunk **chunk)
{
    return has_moved() ? STORE_MOVED : __real_cache_lend(dataset, box, bytes, chunk);
}

WRAPPED void __wrap_store_hold(struct store *store)
{
    holds++;
    __real_store_hold(store);
}

WRAPPED void __wrap_store_release(struct store *store)
{
    holds--;
    __real_store_release(store);
}

static void count_finding(void *context, enum sfs_finding finding, const char *line)
{
    (void)line;
    assert_int_equal(finding, SFS_SOUND);
    ++*(unsigned *)context;
}

static int count_chunk(void *context, const struct sfs_chunk_info *info)
{
    (void)info;
    ++*(unsigned *)context;
    return 0;
}

/* What was reported cannot be taken back. */
static void check_beside(struct sfs_file *follower, const char *as, int error, unsigned n)
{
    unsigned found = 0;
    moves = as;
    assert_int_equal(sfs_check(follower, count_finding, &found), error);
    assert_int_equal(found, n);
}

static void iterate_beside(struct sfs_dataset *dataset, const char *as, int error, unsigned n)
{
    unsigned found = 0;
    moves = as;
    assert_int_equal(sfs_chunk_iterate(dataset, count_chunk, &found), error);
    assert_int_equal(found, n);
}

static void lend_beside(struct sfs_dataset *dataset, const char *as)
{
    struct sfs_slab slab = {.rank = 3, .count = {1, SIDE, SIDE}};
    struct sfs_loan loan;
    int error;
    moves = as;
    assert_true(sfs_lend(dataset, &slab, 0, SIDE * SIDE, &loan, &error));
    assert_int_equal(error, 0);
    sfs_return(dataset, &loan);
}

/* Whatever comes of a call, the writer is not held up by it when it has ended. */
static void an_outrun_call_lets_the_writer_go_on(void **state)
{
    (void)state;
    struct sfs_file *file, *follower;
    assert_int_equal(sfs_create("c", NULL, &file), 0);
    struct sfs_dataset *dataset = create_dataset(file, "/group/a", false);
    write_frame(dataset, 0, 1);
    assert_int_equal(sfs_flush(file), 0);
    assert_int_equal(sfs_open("c", &(struct sfs_options){.follow = true}, &follower), 0);
    struct sfs_dataset *followed = open_dataset(follower, "/group/a");
    holds = 0;
    check_beside(follower, "mmmmm", 0, 3);
    assert_int_equal(holds, 0);
    check_beside(follower, ".m", -EAGAIN, 1);
    assert_int_equal(holds, 0);
    check_beside(follower, "mmm.m", -EAGAIN, 1);
    assert_int_equal(holds, 0);
    iterate_beside(followed, "mmmmmmmmmm", 0, 1);
    assert_int_equal(holds, 0);
    iterate_beside(followed, ".m", -EAGAIN, 1);
    assert_int_equal(holds, 0);
    iterate_beside(followed, "mmmmmm.m", -EAGAIN, 1);
    assert_int_equal(holds, 0);
    lend_beside(followed, "m");
    assert_int_equal(holds, 0);
    lend_beside(followed, "mmmm");
    assert_int_equal(holds, 0);
    moves = "";
    sfs_dataset_close(followed);
    sfs_discard(follower);
    sfs_dataset_close(dataset);
    assert_int_equal(sfs_close(file), 0);
}

TEST_MAIN(cmocka_unit_test(followers_see_one_commit_at_every_step),
          cmocka_unit_test(the_counter_is_there_as_long_as_the_writer),
          cmocka_unit_test(what_a_dead_writer_leaves_is_whole),
          cmocka_unit_test(a_follower_does_not_stop_the_writer),
          cmocka_unit_test(follower_is_told_of_what_is_gone),
          cmocka_unit_test(a_live_file_is_read_while_it_is_marked),
          cmocka_unit_test(a_state_that_is_in_doubt_is_taken_again),
          cmocka_unit_test(waiting_can_be_ended), cmocka_unit_test(open_datasets_follow),
          cmocka_unit_test(a_read_error_passes),
          cmocka_unit_test(attributes_are_copied_beside_a_writer),
          cmocka_unit_test(what_is_in_the_way_is_said_once),
          cmocka_unit_test(a_series_stays_what_it_was),
          cmocka_unit_test(looking_at_a_series_again_can_be_ended),
          cmocka_unit_test(reading_in_several_calls),
          cmocka_unit_test(an_outrun_call_lets_the_writer_go_on))
