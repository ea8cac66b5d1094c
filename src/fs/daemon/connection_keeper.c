/* Two descriptors of a connection besides that of the session, and the process that has one. */
#include "fs/daemon/connection_keeper.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/fuse.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/descriptors.h"

#define FUSE_DEVICE "/dev/fuse"
#define NAME        "fuse-keeper" /* not the daemon's: killall must spare it */

/* The kernel wants a buffer for the largest possible request, 65535 pages. Untouched pages take no
 * memory. */
#define ROOM ((size_t)260 << 20)

/* What the keeper is given, in this order. */
enum { CONNECTION, ENDING, GIVEN };

struct keeper {
    pid_t pid;
    int socket; /* when our end is closed the keeper knows that the daemon has ended */
};

union ancillary {
    struct cmsghdr header;
    char room[CMSG_SPACE(GIVEN * sizeof(int))];
};

/* ---- The process ---- */

/* Waits until the other end is closed. False: no descriptor was passed. */
static bool take(int socket, int given[GIVEN])
{
    union ancillary ancillary;
    char byte;
    struct iovec data = {&byte, 1};
    struct msghdr message = {.msg_iov = &data,
                             .msg_iovlen = 1,
                             .msg_control = &ancillary,
                             .msg_controllen = sizeof(ancillary)};
    if (recvmsg(socket, &message, 0) <= 0)
        return false;
    const struct cmsghdr *header = CMSG_FIRSTHDR(&message);
    if (!header || header->cmsg_len != CMSG_LEN(GIVEN * sizeof(int)))
        return false;
    memcpy(given, CMSG_DATA(header), GIVEN * sizeof(int));
    while (recv(socket, &byte, 1, 0) > 0)
        ;
    return true;
}

/* Fails a request that was not read. */
static void refuse(int connection, void *room)
{
    ssize_t n = read(connection, room, ROOM);
    const struct fuse_in_header *in = room;
    if (n < (ssize_t)sizeof(*in) || in->opcode == FUSE_FORGET || in->opcode == FUSE_BATCH_FORGET ||
        in->opcode == FUSE_INTERRUPT)
        return;
    struct fuse_out_header out = {.len = sizeof(out), .error = -ECONNABORTED, .unique = in->unique};
    if (write(connection, &out, sizeof(out)) < 0)
        return; /* its caller does not wait any more */
}

/* ENDING hangs up when the threads that invalidate are gone. */
static void refuse_all(const int given[GIVEN])
{
    struct pollfd fds[GIVEN] = {[CONNECTION] = {.fd = given[CONNECTION], .events = POLLIN},
                                [ENDING] = {.fd = given[ENDING]}};
    void *room = mmap(NULL, ROOM, PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    while (room != MAP_FAILED && poll(fds, GIVEN, -1) > 0 && !fds[ENDING].revents &&
           !(fds[CONNECTION].revents & POLLERR))
        refuse(given[CONNECTION], room);
}

/* It has nothing of what the daemon has, but for the end of the socket. */
static void keep(int socket)
{
    int given[GIVEN];
    setsid();
    prctl(PR_SET_NAME, NAME);
    dup2(socket, 0);
    descriptors_close_from(1);
    if (chdir("/") == 0 && take(0, given))
        refuse_all(given);
    _exit(0);
}

/* ---- The daemon ---- */

int keeper_create(struct keeper **out)
{
    struct keeper *keeper = malloc(sizeof(*keeper));
    int ends[2], error = 0;
    sigset_t all, before;
    if (!keeper)
        return -ENOMEM;
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) < 0) {
        error = -errno;
        free(keeper);
        return error;
    }
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    keeper->pid = fork();
    error = keeper->pid < 0 ? -errno : 0;
    if (keeper->pid == 0)
        keep(ends[1]);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    close(ends[1]);
    keeper->socket = ends[0];
    if (error) {
        close(ends[0]);
        free(keeper);
    } else {
        *out = keeper;
    }
    return error;
}

void keeper_destroy(struct keeper *keeper)
{
    if (!keeper)
        return;
    kill(keeper->pid, SIGKILL);
    (void)TEMP_FAILURE_RETRY(waitpid(keeper->pid, NULL, 0));
    close(keeper->socket);
    free(keeper);
}

/* One more descriptor of a connection, or a negative number. */
static int clone_connection(int session)
{
    uint32_t from = (uint32_t)session;
    int fd = open(FUSE_DEVICE, O_RDWR | O_CLOEXEC | O_NONBLOCK);
    if (fd >= 0 && ioctl(fd, FUSE_DEV_IOC_CLONE, &from) < 0) {
        close(fd);
        fd = -1;
    }
    return fd;
}

static void give(const struct keeper *keeper, const int given[GIVEN])
{
    union ancillary ancillary = {.header = {.cmsg_level = SOL_SOCKET,
                                            .cmsg_type = SCM_RIGHTS,
                                            .cmsg_len = CMSG_LEN(GIVEN * sizeof(int))}};
    char byte = 0;
    struct iovec data = {&byte, 1};
    struct msghdr message = {.msg_iov = &data,
                             .msg_iovlen = 1,
                             .msg_control = &ancillary,
                             .msg_controllen = sizeof(ancillary)};
    memcpy(CMSG_DATA(&ancillary.header), given, GIVEN * sizeof(int));
    if (sendmsg(keeper->socket, &message, MSG_NOSIGNAL) < 0)
        return; /* it is gone */
}

/* Without a keeper what was read fails all the same. */
int keeper_part(struct keeper *keeper, int session)
{
    int given[GIVEN] = {-1, -1}, ending[2] = {-1, -1};
    if (unshare(CLONE_FILES) < 0)
        return session;
    int connection = clone_connection(session);
    if (connection < 0)
        connection = session;
    else if (pipe2(ending, O_CLOEXEC) == 0) {
        given[CONNECTION] = clone_connection(session);
        given[ENDING] = ending[0];
        if (keeper && given[CONNECTION] >= 0)
            give(keeper, given);
    }
    dup2(connection, 0);
    if (ending[1] >= 0)
        dup2(ending[1], 1);
    descriptors_close_from(ending[1] >= 0 ? 2 : 1);
    return 0;
}

static int invalidate(int connection, uint64_t inode, int64_t offset, int64_t n)
{
    struct {
        struct fuse_out_header header;
        struct fuse_notify_inval_inode_out inode;
    } message = {.header = {.len = sizeof(message), .error = FUSE_NOTIFY_INVAL_INODE},
                 .inode = {.ino = inode, .off = offset, .len = n}};
    return write(connection, &message, sizeof(message)) < 0 ? -errno : 0;
}

int keeper_invalidate(int connection, uint64_t inode, uint64_t offset, uint64_t n)
{
    return invalidate(connection, inode, (int64_t)offset, (int64_t)n);
}

int keeper_invalidate_attributes(int connection, uint64_t inode)
{
    return invalidate(connection, inode, -1, 0);
}

void keeper_leave_descriptors(void)
{
    if (unshare(CLONE_FILES) == 0)
        descriptors_close_from(0);
}
