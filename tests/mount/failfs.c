/* A filesystem in memory of one folder of files that fail or hang on demand, as those on a full,
 * broken or slow disk do. Three files say so:
 *
 *   fail        an errno in decimal: every call that would change or sync another file returns that
 *               error, and `writes` of them at the most succeed before: "28 writes=5"; or only so
 *               many times: "28 writes=5 times=1"
 *   fail_reads  an errno: every read(2) of another file returns it, or each third: "5 each=3"; or only of those that
 *               reach behind a place: "5 each=1 from=4096"
 *   hold        "changes" or "reads": such calls wait until it holds something else. For each that
 *               does it gets a byte longer. "slow": each read takes SLOW_NANOS
 *
 * Only what the store of an HDF5 file needs is here.
 *
 * failfs MNT      (stays in the foreground) */
#define FUSE_USE_VERSION 39
#include <errno.h>
#include <fuse.h>
#include <limits.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define MAX_FILES   16
#define NAME_SIZE   256
#define FIRST_INODE 2
#define FAIL        "/fail"
#define FAIL_READS  "/fail_reads"
#define HOLD        "/hold"
#define SLOW_NANOS  300000000

struct file {
    char path[NAME_SIZE]; /* empty: not in use */
    char *bytes;
    size_t size;
    struct timespec changed;
};

static struct file files[MAX_FILES];
static int failure;      /* errno, or 0 */
static long writes_left; /* before it */
static long failures_left;
static int read_failure;                                 /* errno, or 0 */
static unsigned reads, each_read;                        /* of so many one fails */
static unsigned long long reads_from;                    /* that reach behind that place */
static enum held { NOTHING, CHANGES, READS, SLOW } held; /* what has to wait */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* guards all of these */
static pthread_cond_t let_go = PTHREAD_COND_INITIALIZER;

static struct file *find(const char *path)
{
    for (int i = 0; i < MAX_FILES; i++)
        if (files[i].path[0] && strcmp(files[i].path, path) == 0)
            return &files[i];
    return NULL;
}

static int resize(struct file *file, size_t size)
{
    char *bytes = realloc(file->bytes, size + 1);
    if (!bytes)
        return -ENOMEM;
    if (size > file->size)
        memset(bytes + file->size, 0, size - file->size);
    file->bytes = bytes;
    file->size = size;
    clock_gettime(CLOCK_REALTIME, &file->changed);
    return 0;
}

static bool is_control(const char *path)
{
    return !strcmp(path, FAIL) || !strcmp(path, FAIL_READS) || !strcmp(path, HOLD);
}

/* The lock must be held; it is dropped. */
static void wait_while_held(enum held what)
{
    struct file *hold = held == what ? find(HOLD) : NULL;
    if (hold)
        resize(hold, hold->size + 1);
    while (held == what)
        pthread_cond_wait(&let_go, &lock);
}

/* Others need not wait. */
static void be_slow(void)
{
    if (held != SLOW)
        return;
    pthread_mutex_unlock(&lock);
    nanosleep(&(struct timespec){.tv_nsec = SLOW_NANOS}, NULL);
    pthread_mutex_lock(&lock);
}

/* What a call that changes `path` is to return before it does. */
static int fails(const char *path)
{
    if (is_control(path))
        return 0;
    wait_while_held(CHANGES);
    if (failure == 0)
        return 0;
    if (writes_left > 0) {
        writes_left--;
        return 0;
    }
    return failures_left-- > 0 ? -failure : 0;
}

static void take_control(const struct file *file)
{
    char text[64] = "";
    memcpy(text, file->bytes, file->size < sizeof(text) ? file->size : sizeof(text) - 1);
    if (!strcmp(file->path, FAIL)) {
        failure = 0;
        writes_left = 0;
        failures_left = LONG_MAX;
        sscanf(text, "%d writes=%ld times=%ld", &failure, &writes_left, &failures_left);
    } else if (!strcmp(file->path, FAIL_READS)) {
        read_failure = 0;
        each_read = 1;
        reads_from = 0;
        sscanf(text, "%d each=%u from=%llu", &read_failure, &each_read, &reads_from);
    } else {
        held = !strcmp(text, "changes") ? CHANGES
               : !strcmp(text, "reads") ? READS
               : !strcmp(text, "slow")  ? SLOW
                                        : NOTHING;
        pthread_cond_broadcast(&let_go);
    }
}

static void *fail_init(struct fuse_conn_info *connection, struct fuse_config *config)
{
    (void)connection;
    config->use_ino = 1; /* a journal knows the file that it belongs to by its inode */
    config->attr_timeout = 0;
    config->entry_timeout = 0;
    config->hard_remove = 1;
    return NULL;
}

static int fail_getattr(const char *path, struct stat *st, struct fuse_file_info *fi)
{
    (void)fi;
    *st = (struct stat){.st_mode = S_IFDIR | 0755, .st_nlink = 2};
    if (strcmp(path, "/") == 0)
        return 0;
    pthread_mutex_lock(&lock);
    struct file *file = find(path);
    if (file)
        *st = (struct stat){.st_ino = (ino_t)(file - files) + FIRST_INODE,
                            .st_mode = S_IFREG | 0644,
                            .st_nlink = 1,
                            .st_size = (off_t)file->size,
                            .st_mtim = file->changed,
                            .st_ctim = file->changed};
    pthread_mutex_unlock(&lock);
    return file ? 0 : -ENOENT;
}

static int fail_create(const char *path, mode_t mode, struct fuse_file_info *fi)
{
    (void)mode;
    fi->direct_io = 1;
    pthread_mutex_lock(&lock);
    int error = fails(path);
    struct file *file = NULL;
    for (int i = 0; i < MAX_FILES && !error && !file; i++)
        if (!files[i].path[0])
            file = &files[i];
    if (!error && !file)
        error = -ENOSPC;
    if (!error) {
        snprintf(file->path, sizeof(file->path), "%s", path);
        error = resize(file, 0);
    }
    pthread_mutex_unlock(&lock);
    return error;
}

static int fail_unlink(const char *path)
{
    pthread_mutex_lock(&lock);
    struct file *file = find(path);
    int error = file ? fails(path) : -ENOENT;
    if (!error) {
        free(file->bytes);
        *file = (struct file){0};
    }
    pthread_mutex_unlock(&lock);
    return error;
}

static int fail_rename(const char *from, const char *to, unsigned flags)
{
    if (flags)
        return -EINVAL;
    pthread_mutex_lock(&lock);
    struct file *file = find(from), *replaced = find(to);
    int error = file ? fails(to) : -ENOENT;
    if (!error && replaced && replaced != file) {
        free(replaced->bytes);
        *replaced = (struct file){0};
    }
    if (!error)
        snprintf(file->path, sizeof(file->path), "%s", to);
    pthread_mutex_unlock(&lock);
    return error;
}

static int fail_open(const char *path, struct fuse_file_info *fi)
{
    fi->direct_io = 1; /* every read comes here */
    pthread_mutex_lock(&lock);
    int error = find(path) ? 0 : -ENOENT;
    pthread_mutex_unlock(&lock);
    return error;
}

static int fail_read(const char *path, char *bytes, size_t n, off_t offset,
                     struct fuse_file_info *fi)
{
    (void)fi;
    int error = 0;
    pthread_mutex_lock(&lock);
    if (!is_control(path))
        be_slow();
    const struct file *file = find(path);
    if (!is_control(path)) {
        wait_while_held(READS);
    }
    if (!file || (size_t)offset >= file->size)
        n = 0;
    else if (n > file->size - (size_t)offset)
        n = file->size - (size_t)offset;
    if (!is_control(path) && read_failure && (reads_from == 0 || (size_t)offset + n > reads_from) &&
        ++reads % each_read == 0)
        error = -read_failure;
    if (error)
        n = 0;
    if (n > 0)
        memcpy(bytes, file->bytes + offset, n);
    pthread_mutex_unlock(&lock);
    return error ? error : (int)n;
}

static int fail_write(const char *path, const char *bytes, size_t n, off_t offset,
                      struct fuse_file_info *fi)
{
    (void)fi;
    pthread_mutex_lock(&lock);
    struct file *file = find(path);
    int error = file ? fails(path) : -ENOENT;
    if (!error && (size_t)offset + n > file->size)
        error = resize(file, (size_t)offset + n);
    if (!error) {
        memcpy(file->bytes + offset, bytes, n);
        if (is_control(path))
            take_control(file);
    }
    pthread_mutex_unlock(&lock);
    return error ? error : (int)n;
}

static int fail_truncate(const char *path, off_t size, struct fuse_file_info *fi)
{
    (void)fi;
    pthread_mutex_lock(&lock);
    struct file *file = find(path);
    int error = file ? fails(path) : -ENOENT;
    if (!error)
        error = resize(file, (size_t)size);
    pthread_mutex_unlock(&lock);
    return error;
}

static int fail_fsync(const char *path, int datasync, struct fuse_file_info *fi)
{
    (void)datasync;
    (void)fi;
    pthread_mutex_lock(&lock);
    int error = fails(path);
    pthread_mutex_unlock(&lock);
    return error;
}

static int fail_readdir(const char *path, void *listing, fuse_fill_dir_t fill, off_t offset,
                        struct fuse_file_info *fi, enum fuse_readdir_flags flags)
{
    (void)path;
    (void)offset;
    (void)fi;
    (void)flags;
    pthread_mutex_lock(&lock);
    for (int i = 0; i < MAX_FILES; i++)
        if (files[i].path[0])
            fill(listing, files[i].path + 1, NULL, 0, 0);
    pthread_mutex_unlock(&lock);
    return 0;
}

static int fail_utimens(const char *path, const struct timespec times[2], struct fuse_file_info *fi)
{
    (void)path;
    (void)times;
    (void)fi;
    return 0;
}

static const struct fuse_operations operations = {
    .init = fail_init,
    .getattr = fail_getattr,
    .create = fail_create,
    .unlink = fail_unlink,
    .rename = fail_rename,
    .open = fail_open,
    .read = fail_read,
    .write = fail_write,
    .truncate = fail_truncate,
    .fsync = fail_fsync,
    .fsyncdir = fail_fsync,
    .readdir = fail_readdir,
    .utimens = fail_utimens,
};

int main(int argc, char **argv)
{
    if (argc != 2) {
        fprintf(stderr, "usage: failfs MNT\n");
        return 2;
    }
    char foreground[] = "-f";
    char *arguments[] = {argv[0], foreground, argv[1], NULL};
    return fuse_main(3, arguments, &operations, NULL);
}
