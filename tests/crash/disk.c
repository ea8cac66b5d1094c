#include "disk.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "../unit/support.h"

#define SECTOR     512
#define PAGE       4096 /* what the kernel keeps, writes and drops as one */
#define MOST_FDS   1024
#define MOST_NAMES 16
#define DIRECTORY  (-2)
#define BOOT_ID    "/proc/sys/kernel/random/boot_id"

enum call { CREATE, WRITE, TRUNCATE, SYNC, FAILED_SYNC, RENAME, UNLINK, SYNC_DIRECTORY };

struct operation {
    enum call call;
    int file; /* its number */
    uint64_t at;
    size_t n;
    unsigned char *bytes; /* of a sync: all that the disk has of the file then; NULL: what it is */
    struct timespec changed; /* of the file, after it */
    char name[NAME_MAX], to[NAME_MAX];
};

struct contents {
    unsigned char *bytes;
    size_t n, room;
};

/* A file as the kernel has it, and as the disk has. A page that a sync could not write is taken for
 * clean from then on: it is read as it was written until it is dropped, and then from the disk. */
struct live {
    struct contents kernel, disk;
    size_t least; /* its length was that since a sync last succeeded */
    bool has_failed;
    unsigned char *pages; /* of each: */
    size_t n_pages;
};

enum { CLEAN, DIRTY, LOST };

/* A name in the folder; empty: none. */
struct name {
    char name[NAME_MAX];
    int file;
};

static struct {
    atomic_bool recording;
    long until_failure, failures;
    int error;
    bool lasting, sync_failed;
    int of_fd[MOST_FDS]; /* a file's number + 1, 0: not on the disk, DIRECTORY */
    struct operation *operations;
    long n, room;
    int n_files;
    struct name names[MOST_NAMES], first_names[MOST_NAMES];
    struct contents *first; /* of the files, when the recording began */
    int n_first;
    struct live *live; /* the files now */
    int n_live;
    long boots, boot, first_boot; /* in all, now, and when the recording began */
    long lost;                    /* pages that the kernel took for written, and the disk has not */
} disk = {.until_failure = -1};

/* ---- Contents ---- */

static void resize(struct contents *contents, size_t n)
{
    if (n > contents->room) {
        contents->room = 2 * n;
        contents->bytes = realloc(contents->bytes, contents->room);
        assert_non_null(contents->bytes);
    }
    if (n > contents->n)
        memset(contents->bytes + contents->n, 0, n - contents->n);
    contents->n = n;
}

/* ---- Names ---- */

/* The counter beside a file is for those who follow it: nothing depends on it after a crash. */
static bool is_counter(const char *name)
{
    const char *ending = strrchr(name, '.');
    return ending && !strcmp(ending, ".commits");
}

/* The name of what is directly in DISK; NULL: it is not. */
static const char *name_of(const char *path)
{
    const char *slash = strrchr(path, '/');
    const size_t n = strlen(DISK);
    if (!slash || (size_t)(slash - path) < n || strncmp(slash - n, DISK, n) != 0 ||
        (slash - n > path && slash[-(ssize_t)n - 1] != '/') || !slash[1] || is_counter(slash + 1))
        return NULL;
    return slash + 1;
}

/* The folder, with a slash behind it or not. */
static bool is_disk(const char *path)
{
    const size_t length = strlen(DISK);
    size_t n = strlen(path);
    n -= n > 0 && path[n - 1] == '/';
    return n >= length && !strncmp(path + n - length, DISK, length) &&
           (n == length || path[n - length - 1] == '/');
}

static struct name *find_name(struct name *names, const char *name)
{
    for (int i = 0; i < MOST_NAMES; i++)
        if (!strcmp(names[i].name, name))
            return &names[i];
    return NULL;
}

static void set_name(struct name *names, const char *name, int file)
{
    struct name *found = find_name(names, name);
    if (!found)
        found = find_name(names, "");
    if (!found || strlen(name) >= sizeof(found->name))
        fail_msg("too many names, or too long");
    else
        *found = (struct name){.file = file};
    strncpy(found->name, name, sizeof(found->name) - 1);
}

static void remove_name(struct name *names, const char *name)
{
    struct name *found = find_name(names, name);
    if (found)
        found->name[0] = '\0';
}

static void change_names(struct name *names, const struct operation *operation)
{
    if (operation->call == CREATE)
        set_name(names, operation->name, operation->file);
    if (operation->call == UNLINK || operation->call == RENAME)
        remove_name(names, operation->name);
    if (operation->call == RENAME)
        set_name(names, operation->to, operation->file);
}

/* ---- Recording ---- */

/* What is told between the calls of the store, whose threads may be making some. */
static pthread_mutex_t told = PTHREAD_MUTEX_INITIALIZER;

static struct operation *record(enum call call, int file)
{
    pthread_mutex_lock(&told);
    if (disk.n == disk.room) {
        disk.room = disk.room ? 2 * disk.room : 1024;
        disk.operations =
            reallocarray(disk.operations, (size_t)disk.room, sizeof(*disk.operations));
        assert_non_null(disk.operations);
    }
    struct operation *operation = &disk.operations[disk.n++];
    *operation = (struct operation){.call = call, .file = file};
    pthread_mutex_unlock(&told);
    return operation;
}

/* With the lock held: whether the call is to fail. */
static bool fails_now(bool unlike)
{
    if (disk.until_failure < 0)
        return false;
    bool now = disk.until_failure == 0;
    if (!now)
        disk.until_failure--;
    if (!now || (unlike && disk.error == ENOSPC))
        return false;
    if (!disk.lasting)
        disk.until_failure = -1;
    disk.failures++;
    errno = disk.error;
    return true;
}

/* Whether the call is to fail. unlike: a full disk does not make it fail. */
static bool fails(bool unlike)
{
    pthread_mutex_lock(&told);
    bool fails = fails_now(unlike);
    pthread_mutex_unlock(&told);
    return fails;
}

static int file_of(int fd)
{
    return fd >= 0 && fd < MOST_FDS ? disk.of_fd[fd] : 0;
}

#define WRAPPED __attribute__((visibility("default")))

ssize_t __real_pwrite64(int fd, const void *bytes, size_t n, off_t at);
ssize_t __wrap_pwrite64(int fd, const void *bytes, size_t n, off_t at);
int __real_ftruncate64(int fd, off_t n);
int __wrap_ftruncate64(int fd, off_t n);
int __wrap_fdatasync(int fd);
int __wrap_fsync(int fd);
int __real_unlinkat(int folder, const char *path, int flags);
int __wrap_unlinkat(int folder, const char *path, int flags);
int __real_renameat(int from_fd, const char *from, int to_fd, const char *to);
int __wrap_renameat(int from_fd, const char *from, int to_fd, const char *to);
int __real_renameat2(int from_fd, const char *from, int to_fd, const char *to, unsigned flags);
int __wrap_renameat2(int from_fd, const char *from, int to_fd, const char *to, unsigned flags);
int __real_open64(const char *path, int flags, ...);
int __wrap_open64(const char *path, int flags, mode_t mode);
int __real_openat64(int folder, const char *path, int flags, ...);
int __wrap_openat64(int folder, const char *path, int flags, mode_t mode);

/* ---- What the kernel has and the disk has not ---- */

static void forget_live(void)
{
    for (int i = 0; i < disk.n_live; i++) {
        free(disk.live[i].kernel.bytes);
        free(disk.live[i].disk.bytes);
        free(disk.live[i].pages);
    }
    free(disk.live);
    disk.live = NULL;
    disk.n_live = 0;
}

static struct live *live_of(int file)
{
    if (file >= disk.n_live) {
        int n = 2 * file + 8;
        disk.live = reallocarray(disk.live, (size_t)n, sizeof(*disk.live));
        assert_non_null(disk.live);
        memset(disk.live + disk.n_live, 0, (size_t)(n - disk.n_live) * sizeof(*disk.live));
        disk.n_live = n;
    }
    return &disk.live[file];
}

static void need_pages(struct live *live, size_t bytes)
{
    size_t n = bytes / PAGE + 1;
    if (n <= live->n_pages)
        return;
    live->pages = realloc(live->pages, n);
    assert_non_null(live->pages);
    memset(live->pages + live->n_pages, CLEAN, n - live->n_pages);
    live->n_pages = n;
}

/* A part of a page, of which there are bytes up to the end; zeros behind it. */
static void get_page(const struct contents *contents, size_t number, unsigned char *bytes)
{
    size_t at = number * PAGE, n = at >= contents->n ? 0 : contents->n - at;
    memset(bytes, 0, PAGE);
    if (n > 0)
        memcpy(bytes, contents->bytes + at, n < PAGE ? n : PAGE);
}

static void put_sectors(struct contents *contents, size_t number, const unsigned char *bytes,
                        uint64_t which)
{
    for (size_t i = 0; i < PAGE / SECTOR; i++) {
        size_t at = number * PAGE + i * SECTOR, n = at >= contents->n ? 0 : contents->n - at;
        if (n > 0 && which >> i & 1)
            memcpy(contents->bytes + at, bytes + i * SECTOR, n < SECTOR ? n : SECTOR);
    }
}

/* The kernel reads the page from the disk again. */
static void drop_page(int fd, struct live *live, size_t number)
{
    unsigned char bytes[PAGE];
    size_t at = number * PAGE, n = live->kernel.n > at ? live->kernel.n - at : 0;
    get_page(&live->disk, number, bytes);
    put_sectors(&live->kernel, number, bytes, UINT64_MAX);
    struct stat st;
    if (n > 0)
        assert_true(fstat(fd, &st) == 0 &&
                    __real_pwrite64(fd, bytes, n < PAGE ? n : PAGE, (off_t)at) > 0 &&
                    futimens(fd, (struct timespec[]){st.st_atim, st.st_mtim}) == 0);
    live->pages[number] = CLEAN;
}

static void drop_some(int fd, struct live *live, uint64_t of)
{
    for (size_t i = 0; i < live->n_pages && live->has_failed; i++)
        if (live->pages[i] == LOST && random_below(of) == 0)
            drop_page(fd, live, i);
}

static void take_length(struct live *live)
{
    resize(&live->disk, live->least < live->disk.n ? live->least : live->disk.n);
    resize(&live->disk, live->kernel.n);
    live->least = live->kernel.n;
}

static void copy_disk(const struct live *live, struct operation *operation)
{
    operation->n = live->disk.n;
    operation->bytes = allocate(live->disk.n + 1);
    if (live->disk.n > 0)
        memcpy(operation->bytes, live->disk.bytes, live->disk.n);
}

/* All dirty pages reach the disk, or, when it fails, any sectors of them. */
static void sync_pages(int fd, struct operation *operation, bool failed)
{
    struct live *live = live_of(operation->file);
    unsigned char bytes[PAGE], arrived[PAGE];
    if (!failed || random_below(2))
        take_length(live);
    for (size_t i = 0; i < live->n_pages; i++) {
        if (live->pages[i] != DIRTY)
            continue;
        uint64_t which = failed && random_below(4) ? random_next() & random_next() : UINT64_MAX;
        get_page(&live->kernel, i, bytes);
        put_sectors(&live->disk, i, bytes, failed && random_below(2) ? 0 : which);
        get_page(&live->disk, i, arrived);
        live->pages[i] = memcmp(bytes, arrived, PAGE) == 0 ? CLEAN : LOST;
        disk.lost += live->pages[i] == LOST;
    }
    live->has_failed |= failed;
    if (live->has_failed)
        copy_disk(live, operation);
    drop_some(fd, live, failed ? 2 : 8);
}

/* What is written is known byte for byte; beside bytes that were lost the whole page is written. */
static void note_write(int fd, struct operation *operation, const void *bytes, size_t n)
{
    struct live *live = live_of(operation->file);
    uint64_t at = operation->at, end = at + n;
    need_pages(live, end);
    if (end > live->kernel.n)
        resize(&live->kernel, end);
    memcpy(live->kernel.bytes + at, bytes, n);
    for (uint64_t i = at / PAGE; i * PAGE < end; i++) {
        if (live->pages[i] == LOST) {
            operation->at = i * PAGE < operation->at ? i * PAGE : operation->at;
            if ((i + 1) * PAGE > end)
                end = (i + 1) * PAGE < live->kernel.n ? (i + 1) * PAGE : live->kernel.n;
        }
        live->pages[i] = DIRTY;
    }
    operation->n = end - operation->at;
    operation->bytes = allocate(operation->n);
    memcpy(operation->bytes, live->kernel.bytes + operation->at, operation->n);
    drop_some(fd, live, 16);
}

static void note_length(struct live *live, size_t n)
{
    need_pages(live, n);
    if (n < live->kernel.n)
        for (size_t i = n / PAGE; i < live->n_pages; i++)
            live->pages[i] = i == n / PAGE && n % PAGE ? DIRTY : CLEAN;
    resize(&live->kernel, n);
    live->least = n < live->least ? n : live->least;
}

static void note_time(int fd, struct operation *operation)
{
    struct stat st;
    if (fstat(fd, &st) == 0)
        operation->changed = st.st_mtim;
}

WRAPPED ssize_t __wrap_pwrite64(int fd, const void *bytes, size_t n, off_t at)
{
    int file = file_of(fd);
    if (file && fails(false))
        return -1;
    ssize_t put = __real_pwrite64(fd, bytes, n, at);
    if (file && disk.recording) {
        assert_int_equal(put, n);
        struct operation *operation = record(WRITE, file - 1);
        operation->at = (uint64_t)at;
        note_write(fd, operation, bytes, n);
        note_time(fd, operation);
    }
    return put;
}

WRAPPED int __wrap_ftruncate64(int fd, off_t n)
{
    int file = file_of(fd);
    if (file && fails(false))
        return -1;
    int result = __real_ftruncate64(fd, n);
    if (file && disk.recording) {
        struct operation *operation = record(TRUNCATE, file - 1);
        operation->n = (size_t)n;
        note_length(live_of(file - 1), (size_t)n);
        note_time(fd, operation);
    }
    return result;
}

static int sync_file(int fd)
{
    int file = file_of(fd);
    if (file && fails(false)) {
        if (disk.recording && file != DIRECTORY)
            sync_pages(fd, record(FAILED_SYNC, file - 1), true);
        errno = disk.error;
        disk.sync_failed = true;
        return -1;
    }
    if (file == DIRECTORY && disk.recording)
        record(SYNC_DIRECTORY, file - 1);
    else if (file && disk.recording)
        sync_pages(fd, record(SYNC, file - 1), false);
    return 0;
}

WRAPPED int __wrap_fdatasync(int fd)
{
    return sync_file(fd);
}

WRAPPED int __wrap_fsync(int fd)
{
    return sync_file(fd);
}

/* The name in DISK of a path, which may be relative to a folder that is open; NULL: it is not
 * there.
 */
static const char *name_in(int folder, const char *path)
{
    if (path[0] == '/' || folder == AT_FDCWD)
        return name_of(path);
    return file_of(folder) == DIRECTORY && strcmp(path, ".") && !is_counter(path) ? path : NULL;
}

WRAPPED int __wrap_unlinkat(int folder, const char *path, int flags)
{
    const char *name = name_in(folder, path);
    if (name && fails(true))
        return -1;
    int result = __real_unlinkat(folder, path, flags);
    if (name && disk.recording && result == 0) {
        struct operation *operation = record(UNLINK, -1);
        snprintf(operation->name, sizeof(operation->name), "%s", name);
        change_names(disk.names, operation);
    }
    return result;
}

static int renamed(const char *from, const char *to, int result)
{
    if (disk.recording && result == 0 && from) {
        struct name *found = find_name(disk.names, from);
        assert_true(found && to);
        struct operation *operation = record(RENAME, found->file);
        snprintf(operation->name, sizeof(operation->name), "%s", from);
        snprintf(operation->to, sizeof(operation->to), "%s", to);
        change_names(disk.names, operation);
    }
    return result;
}

WRAPPED int __wrap_renameat(int from_fd, const char *from, int to_fd, const char *to)
{
    const char *name = name_in(from_fd, from);
    return name && fails(true)
               ? -1
               : renamed(name, name_in(to_fd, to), __real_renameat(from_fd, from, to_fd, to));
}

WRAPPED int __wrap_renameat2(int from_fd, const char *from, int to_fd, const char *to,
                             unsigned flags)
{
    const char *name = name_in(from_fd, from);
    return name && fails(true) ? -1
                               : renamed(name, name_in(to_fd, to),
                                         __real_renameat2(from_fd, from, to_fd, to, flags));
}

static void note_open(int fd, const char *name, int flags, bool existed)
{
    struct name *found = find_name(disk.names, name);
    if (!existed && disk.recording) {
        struct operation *operation = record(CREATE, disk.n_files++);
        snprintf(operation->name, sizeof(operation->name), "%s", name);
        change_names(disk.names, operation);
        found = find_name(disk.names, name);
    } else if ((flags & O_TRUNC) && disk.recording) {
        record(TRUNCATE, found->file);
        note_length(live_of(found->file), 0);
    }
    disk.of_fd[fd] = found ? found->file + 1 : 1;
}

/* The system is another one after every power cut. */
static int open_boot_id(void)
{
    int fd = memfd_create("boot_id", MFD_CLOEXEC);
    assert_true(fd >= 0 && dprintf(fd, "%036ld\n", disk.boot) == 37);
    lseek(fd, 0, SEEK_SET);
    return fd;
}

/* By whichever way it was found. */
static bool is_folder(int fd)
{
    struct stat st, of_disk;
    return fstat(fd, &st) == 0 && stat(DISK, &of_disk) == 0 && st.st_dev == of_disk.st_dev &&
           st.st_ino == of_disk.st_ino;
}

static int opened(const char *name, int flags, bool existed, int fd)
{
    if (fd < 0 || fd >= MOST_FDS)
        return fd;
    disk.of_fd[fd] = is_folder(fd) ? DIRECTORY : 0;
    if (name)
        note_open(fd, name, flags, existed);
    return fd;
}

/* What is open already. */
static int open_again(int before, int flags, const char *path)
{
    if (fails(true))
        return -1;
    int fd = __real_open64(path, flags);
    if (fd >= 0 && fd < MOST_FDS)
        disk.of_fd[fd] = disk.of_fd[before];
    return fd;
}

WRAPPED int __wrap_open64(const char *path, int flags, mode_t mode)
{
    int before;
    const char *name = name_of(path);
    if (strcmp(path, BOOT_ID) == 0)
        return open_boot_id();
    if (sscanf(path, "/proc/self/fd/%d", &before) == 1 && file_of(before) > 0)
        return open_again(before, flags, path);
    if ((name || is_disk(path)) && fails(!(flags & O_CREAT)))
        return -1;
    bool existed = access(path, F_OK) == 0;
    return opened(name, flags, existed, __real_open64(path, flags, mode));
}

WRAPPED int __wrap_openat64(int folder, const char *path, int flags, mode_t mode)
{
    const char *name = name_in(folder, path);
    if ((name || is_disk(path)) && fails(!(flags & O_CREAT)))
        return -1;
    bool existed = faccessat(folder, path, F_OK, 0) == 0;
    return opened(name, flags, existed, __real_openat64(folder, path, flags, mode));
}

void disk_record(bool on)
{
    disk.recording = on;
}

long disk_calls(void)
{
    pthread_mutex_lock(&told);
    long n = disk.n;
    pthread_mutex_unlock(&told);
    return n;
}

void disk_fail(long n, int error, bool lasting)
{
    pthread_mutex_lock(&told);
    disk.until_failure = n;
    disk.error = error;
    disk.lasting = lasting;
    if (n >= 0) {
        disk.failures = 0;
        disk.sync_failed = false;
    }
    pthread_mutex_unlock(&told);
}

long disk_failed(void)
{
    pthread_mutex_lock(&told);
    long failures = disk.failures;
    pthread_mutex_unlock(&told);
    return failures;
}

bool disk_sync_failed(void)
{
    return disk.sync_failed;
}

/* ---- Beginning ---- */

static void load(const char *path, struct contents *contents)
{
    char bytes[65536];
    FILE *file = fopen(path, "r");
    assert_non_null(file);
    for (size_t n; (n = fread(bytes, 1, sizeof(bytes), file)) > 0;) {
        size_t at = contents->n;
        resize(contents, at + n);
        memcpy(contents->bytes + at, bytes, n);
    }
    fclose(file);
}

static void forget(void)
{
    for (long i = 0; i < disk.n; i++)
        free(disk.operations[i].bytes);
    for (int i = 0; i < disk.n_first; i++)
        free(disk.first[i].bytes);
    free(disk.first);
    forget_live();
    disk.n = disk.n_files = disk.n_first = 0;
    disk.first = calloc(MOST_NAMES, sizeof(*disk.first));
    assert_non_null(disk.first);
    memset(disk.names, 0, sizeof(disk.names));
}

void disk_begin(void)
{
    forget();
    DIR *directory = opendir(DISK);
    assert_non_null(directory);
    for (struct dirent *entry; (entry = readdir(directory));) {
        char path[NAME_MAX + 16];
        if (entry->d_type != DT_REG)
            continue;
        snprintf(path, sizeof(path), DISK "/%s", entry->d_name);
        set_name(disk.names, entry->d_name, disk.n_files);
        struct live *live = live_of(disk.n_files);
        load(path, &live->kernel);
        load(path, &live->disk);
        live->least = live->kernel.n;
        need_pages(live, live->kernel.n);
        load(path, &disk.first[disk.n_files++]);
    }
    closedir(directory);
    disk.n_first = disk.n_files;
    memcpy(disk.first_names, disk.names, sizeof(disk.names));
    disk.boot = disk.first_boot = ++disk.boots;
}

/* ---- Cuts ---- */

static bool is_name_call(enum call call)
{
    return call == CREATE || call == RENAME || call == UNLINK;
}

/* Whether it is known by a sync what the i-th call has done to the disk when n have been made. */
static bool is_known(long i, long n)
{
    const struct operation *operation = &disk.operations[i];
    for (long j = i + 1; j < n; j++) {
        const struct operation *later = &disk.operations[j];
        bool is_sync = later->call == SYNC || later->call == FAILED_SYNC;
        if (is_name_call(operation->call) ? later->call == SYNC_DIRECTORY
                                          : is_sync && later->file == operation->file)
            return true;
    }
    return false;
}

static bool is_sync(enum call call)
{
    return call == SYNC || call == FAILED_SYNC || call == SYNC_DIRECTORY;
}

unsigned disk_pending(long n)
{
    unsigned pending = 0;
    for (long i = 0; i < n; i++)
        pending += !is_sync(disk.operations[i].call) && !is_known(i, n);
    return pending;
}

/* Some of the bytes: all, every sector by chance, or none. Those that do not come where nothing was
 * before may be anything. */
static void put_bytes(struct contents *contents, const struct operation *operation, bool kept,
                      bool torn, bool junk)
{
    size_t old = contents->n;
    if (kept || torn || junk)
        resize(contents, operation->at + operation->n > old ? operation->at + operation->n : old);
    for (size_t i = 0; i < operation->n;) {
        size_t at = operation->at + i, part = SECTOR - at % SECTOR;
        part = part < operation->n - i ? part : operation->n - i;
        if (torn ? random_below(2) : kept)
            memcpy(contents->bytes + at, operation->bytes + i, part);
        else if (junk && at >= old)
            random_fill(contents->bytes + at, part);
        i += part;
    }
}

static void apply(struct contents *files, struct name *names, const struct operation *operation,
                  bool kept, bool torn, bool junk)
{
    if (is_name_call(operation->call) && kept)
        change_names(names, operation);
    else if (operation->call == TRUNCATE && kept)
        resize(&files[operation->file], operation->n);
    else if (is_sync(operation->call) && operation->bytes) {
        resize(&files[operation->file], operation->n);
        memcpy(files[operation->file].bytes, operation->bytes, operation->n);
    } else if (operation->call == WRITE)
        put_bytes(&files[operation->file], operation, kept, torn, junk);
}

static void clear_folder(const char *path)
{
    DIR *directory = opendir(path);
    if (!directory) {
        assert_int_equal(mkdir(path, 0700), 0);
        return;
    }
    for (struct dirent *entry; (entry = readdir(directory));) {
        char name[PATH_MAX];
        snprintf(name, sizeof(name), "%.64s/%.255s", path, entry->d_name);
        if (entry->d_type == DT_REG)
            unlink(name);
    }
    closedir(directory);
}

static uint64_t mix(uint64_t sum, const void *bytes, size_t n)
{
    for (size_t i = 0; i < n; i++)
        sum = (sum ^ ((const unsigned char *)bytes)[i]) * 0x100000001b3u;
    return sum ^ n;
}

static uint64_t store_folder(const char *path, const struct contents *files,
                             const struct timespec *times, const struct name *names)
{
    uint64_t sum = 0xcbf29ce484222325u;
    clear_folder(path);
    for (int i = 0; i < MOST_NAMES; i++) {
        char name[PATH_MAX];
        const struct contents *file = &files[names[i].file];
        if (!names[i].name[0])
            continue;
        snprintf(name, sizeof(name), "%s/%.254s", path, names[i].name);
        FILE *out = fopen(name, "w");
        assert_non_null(out);
        if (file->n > 0)
            assert_int_equal(fwrite(file->bytes, 1, file->n, out), file->n);
        fclose(out);
        const struct timespec time = times[names[i].file];
        assert_int_equal(utimensat(AT_FDCWD, name, (struct timespec[]){time, time}, 0), 0);
        sum += mix(mix(0xcbf29ce484222325u, names[i].name, strlen(names[i].name)), file->bytes,
                   file->n);
    }
    return sum;
}

/* The files at some call, and when the disk knows that they were changed last. That may be later
 * than what it has of their bytes, but no later than what it lacks of another file. */
struct past {
    struct contents *files;
    struct timespec *times;
    unsigned *n_missing; /* calls that have not arrived, of each file */
    unsigned n_all_missing;
    struct name names[MOST_NAMES];
};

static void begin_past(struct past *past)
{
    size_t n = (size_t)disk.n_files + 1;
    past->files = calloc(n, sizeof(*past->files));
    past->times = calloc(n, sizeof(*past->times));
    past->n_missing = calloc(n, sizeof(*past->n_missing));
    assert_true(past->files && past->times && past->n_missing);
    past->n_all_missing = 0;
    memcpy(past->names, disk.first_names, sizeof(past->names));
    for (int i = 0; i < disk.n_first; i++) {
        resize(&past->files[i], disk.first[i].n);
        if (disk.first[i].n)
            memcpy(past->files[i].bytes, disk.first[i].bytes, disk.first[i].n);
    }
}

static void end_past(struct past *past)
{
    for (int i = 0; i < disk.n_files; i++)
        free(past->files[i].bytes);
    free(past->files);
    free(past->times);
    free(past->n_missing);
}

static void pass_time(struct past *past, const struct operation *operation, bool arrived)
{
    if (operation->call != WRITE && operation->call != TRUNCATE)
        return;
    int file = operation->file;
    past->n_missing[file] += !arrived;
    past->n_all_missing += !arrived;
    if (past->n_missing[file] == past->n_all_missing)
        past->times[file] = operation->changed;
}

uint64_t disk_cut(const struct cut *cut, const char *to)
{
    struct past past;
    unsigned pending = 0;
    bool all = cut->kept == UINT64_MAX && cut->torn == 0; /* only the process need have died */
    disk.boot = all || cut->same_boot ? disk.first_boot : ++disk.boots;
    begin_past(&past);
    for (long i = 0; i < cut->n; i++) {
        const struct operation *operation = &disk.operations[i];
        bool kept = true, torn = false;
        if (!is_sync(operation->call) && !is_known(i, cut->n)) {
            kept = cut->kept >> pending % 64 & 1;
            torn = cut->torn >> pending % 64 & 1;
            pending++;
        }
        apply(past.files, past.names, operation, kept, torn, cut->junk);
        pass_time(&past, operation, kept && !torn);
    }
    uint64_t sum = store_folder(to, past.files, past.times, past.names);
    end_past(&past);
    return sum + cut->same_boot;
}

long disk_lost(void)
{
    return disk.lost;
}
