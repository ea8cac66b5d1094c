#include "common/io.h"

#include <errno.h>
#include <linux/openat2.h>
#include <stdbool.h>
#include <stdio.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

int io_read_at(int fd, uint64_t offset, void *buffer, size_t n, size_t *done)
{
    for (*done = 0; *done < n;) {
        ssize_t got = TEMP_FAILURE_RETRY(
            pread(fd, (char *)buffer + *done, n - *done, (off_t)(offset + *done)));
        if (got <= 0)
            return got < 0 ? -errno : 0;
        *done += (size_t)got;
    }
    return 0;
}

int io_read(int fd, void *buffer, size_t n, size_t *done)
{
    for (*done = 0; *done < n;) {
        ssize_t got = TEMP_FAILURE_RETRY(read(fd, (char *)buffer + *done, n - *done));
        if (got <= 0)
            return got < 0 ? -errno : 0;
        *done += (size_t)got;
    }
    return 0;
}

int io_write_at(int fd, uint64_t offset, const void *bytes, size_t n, size_t *done)
{
    for (*done = 0; *done < n;) {
        ssize_t put = TEMP_FAILURE_RETRY(
            pwrite(fd, (const char *)bytes + *done, n - *done, (off_t)(offset + *done)));
        if (put <= 0)
            return put < 0 ? -errno : -EIO;
        *done += (size_t)put;
    }
    return 0;
}

int io_write(int fd, const void *bytes, size_t n, size_t *done)
{
    for (*done = 0; *done < n;) {
        ssize_t put = TEMP_FAILURE_RETRY(write(fd, (const char *)bytes + *done, n - *done));
        if (put <= 0)
            return put < 0 ? -errno : -EIO;
        *done += (size_t)put;
    }
    return 0;
}

int io_unlink_at(int folder, const char *name)
{
    bool is_interrupted = false;
    while (unlinkat(folder, name, 0) < 0) {
        if (errno != EINTR)
            return is_interrupted && errno == ENOENT ? 0 : -errno;
        is_interrupted = true;
    }
    return 0;
}

int io_rename_at(int folder, const char *name, int to_folder, const char *to)
{
    bool is_interrupted = false;
    while (renameat(folder, name, to_folder, to) < 0) {
        if (errno != EINTR)
            return is_interrupted && errno == ENOENT ? 0 : -errno;
        is_interrupted = true;
    }
    return 0;
}

int io_open_at(int folder, const char *name, int flags)
{
    const struct open_how how = {.flags = (unsigned)(flags | IO_OPEN_AT),
                                 .resolve = RESOLVE_NO_XDEV};
    int fd = (int)TEMP_FAILURE_RETRY(syscall(__NR_openat2, folder, name, &how, sizeof(how)));
    /* Older kernels do not have it, some containers do not allow it. glibc before 2.32 has no name for it. */
    if (fd < 0 && (errno == ENOSYS || errno == EPERM))
        fd = TEMP_FAILURE_RETRY(openat(folder, name, flags | IO_OPEN_AT));
    return fd < 0 ? -errno : fd;
}

int io_open_again(int fd, int flags)
{
    char path[32];
    snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
    int again = TEMP_FAILURE_RETRY(open(path, flags | O_NONBLOCK | O_NOCTTY | O_CLOEXEC));
    return again < 0 ? -errno : again;
}

/* -ENOENT: the path leads to something else now. */
static int open_if_same(const char *path, int flags, const struct stat *known)
{
    struct stat st;
    int fd = TEMP_FAILURE_RETRY(open(path, flags | O_NONBLOCK | O_NOCTTY | O_CLOEXEC));
    int error = fd < 0 || fstat(fd, &st) < 0 ? -errno : 0;
    if (!error && (st.st_dev != known->st_dev || st.st_ino != known->st_ino))
        error = -ENOENT;
    if (error && fd >= 0)
        close(fd);
    return error ? error : fd;
}

int io_open_regular(const char *path, int flags)
{
    struct stat st;
    int found = TEMP_FAILURE_RETRY(open(path, O_PATH | O_CLOEXEC));
    if (found < 0 || fstat(found, &st) < 0) {
        int error = -errno;
        if (found >= 0)
            close(found);
        return error;
    }
    int fd = S_ISREG(st.st_mode) ? io_open_again(found, flags) : -EINVAL;
    if (fd == -ENOENT) /* there is no /proc */
        fd = open_if_same(path, flags, &st);
    close(found);
    return fd;
}

int io_close(int fd)
{
    return close(fd) < 0 && errno != EINTR ? -errno : 0;
}
