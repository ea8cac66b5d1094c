#include "common/descriptors.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "config.h"

bool descriptors_fill_standard(void)
{
    for (int fd = STDIN_FILENO; fd <= STDERR_FILENO; fd++)
        if (fcntl(fd, F_GETFD) < 0 &&
            open("/dev/null", fd == STDIN_FILENO ? O_WRONLY : O_RDONLY) != fd)
            return false;
    return true;
}

#if HAVE_CLOSEFROM

void descriptors_close_from(int first)
{
    closefrom(first);
}

#else /* glibc < 2.34 */

static void close_listed(DIR *folder, int first)
{
    const struct dirent *entry;
    while ((entry = readdir(folder))) {
        int fd = entry->d_name[0] == '.' ? -1 : atoi(entry->d_name);
        if (fd >= first && fd != dirfd(folder))
            close(fd);
    }
    closedir(folder);
}

/* Linux before 5.9 has no such call, and /proc may not be there. */
void descriptors_close_from(int first)
{
#ifdef SYS_close_range
    if (syscall(SYS_close_range, (unsigned)first, ~0U, 0) == 0)
        return;
#endif
    DIR *folder = opendir("/proc/thread-self/fd");
    if (folder)
        close_listed(folder, first);
    else
        for (long fd = first; fd < sysconf(_SC_OPEN_MAX); fd++)
            close((int)fd);
}

#endif

uint64_t descriptors_allow(uint64_t wanted)
{
    struct rlimit limit;
    if (getrlimit(RLIMIT_NOFILE, &limit) < 0 || limit.rlim_cur >= wanted)
        return wanted;
    rlim_t may = limit.rlim_max < wanted ? limit.rlim_max : (rlim_t)wanted, before = limit.rlim_cur;
    limit.rlim_cur = may;
    return setrlimit(RLIMIT_NOFILE, &limit) == 0 ? may : before;
}

union ancillary {
    struct cmsghdr header; /* for its alignment */
    char bytes[CMSG_SPACE(sizeof(int))];
};

int descriptor_send(int socket, const void *bytes, size_t n, int fd)
{
    union ancillary ancillary = {.header = {.cmsg_level = SOL_SOCKET,
                                            .cmsg_type = SCM_RIGHTS,
                                            .cmsg_len = CMSG_LEN(sizeof(int))}};
    struct iovec data = {(void *)bytes, n};
    struct msghdr message = {.msg_iov = &data, .msg_iovlen = 1};
    if (fd >= 0) {
        memcpy(CMSG_DATA(&ancillary.header), &fd, sizeof(fd));
        message.msg_control = &ancillary;
        message.msg_controllen = sizeof(ancillary);
    }
    ssize_t sent = TEMP_FAILURE_RETRY(sendmsg(socket, &message, MSG_NOSIGNAL));
    bool is_closed = sent >= 0 || errno == ECONNRESET || errno == ENOTCONN;
    return sent == (ssize_t)n ? 0 : is_closed ? -EPIPE : -errno;
}

bool descriptor_receive(int socket, void *bytes, size_t n, int *fd)
{
    union ancillary ancillary;
    struct iovec data = {bytes, n};
    struct msghdr message = {.msg_iov = &data,
                             .msg_iovlen = 1,
                             .msg_control = &ancillary,
                             .msg_controllen = sizeof(ancillary)};
    ssize_t got = TEMP_FAILURE_RETRY(recvmsg(socket, &message, MSG_CMSG_CLOEXEC));
    *fd = -1;
    const struct cmsghdr *header = got > 0 ? CMSG_FIRSTHDR(&message) : NULL;
    if (header && header->cmsg_len == CMSG_LEN(sizeof(int)))
        memcpy(fd, CMSG_DATA(header), sizeof(*fd));
    return got == (ssize_t)n;
}
