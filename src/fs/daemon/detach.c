/* Forking before anything is opened, detaching when the mount works. */
#include "fs/daemon/detach.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <syslog.h>
#include <unistd.h>

#include "common/log.h"
#include "fs/daemon/options.h"

static int word_fd = -1; /* of the child: the pipe on which it reports that it is ready */

int daemon_fail(const char *path, const char *why)
{
    char *line;
    if (asprintf(&line, "%s: %s", path, why) < 0)
        return EXIT_MOUNT_FAILED;
    log_make_line(line);
    fprintf(stderr, "sparsefs: %s\n", line);
    free(line);
    return EXIT_MOUNT_FAILED;
}

static pid_t starting_child; /* of the parent */

static void hand_on(int number)
{
    kill(starting_child, number);
}

static const int interruptions[] = {SIGINT, SIGTERM, SIGHUP};
#define INTERRUPTIONS (sizeof(interruptions) / sizeof(*interruptions))

/* Waits for the child's report or its end. A signal ends the child, so that no unknown mount is
 * left, and the exit code says so. Signals are blocked on entry; `before` is the mask to be
 * restored. */
static int wait_for(pid_t child, int fd, const sigset_t *before)
{
    struct sigaction action = {.sa_handler = hand_on};
    starting_child = child;
    for (size_t i = 0; i < INTERRUPTIONS; i++) {
        struct sigaction old;
        if (sigaction(interruptions[i], NULL, &old) == 0 && old.sa_handler != SIG_IGN)
            sigaction(interruptions[i], &action, NULL);
    }
    sigprocmask(SIG_SETMASK, before, NULL);
    char word;
    ssize_t n = TEMP_FAILURE_RETRY(read(fd, &word, 1));
    if (n == 1)
        return EXIT_DONE;
    int status;
    if (TEMP_FAILURE_RETRY(waitpid(child, &status, 0)) < 0)
        return EXIT_SYSTEM;
    if (WIFEXITED(status))
        return WEXITSTATUS(status);
    int signal = WTERMSIG(status);
    return signal == SIGINT || signal == SIGTERM || signal == SIGHUP ? EXIT_INTERRUPTED : EXIT_BUG;
}

int daemon_begin(void)
{
    int fds[2];
    sigset_t blocked, before;
    if (pipe2(fds, O_CLOEXEC) < 0)
        return -errno;
    /* A signal that reaches the parent before it can forward it would leave the child alone. */
    sigemptyset(&blocked);
    for (size_t i = 0; i < INTERRUPTIONS; i++)
        sigaddset(&blocked, interruptions[i]);
    sigprocmask(SIG_BLOCK, &blocked, &before);
    pid_t child = fork();
    if (child < 0) {
        int error = -errno;
        sigprocmask(SIG_SETMASK, &before, NULL);
        close(fds[0]);
        close(fds[1]);
        return error;
    }
    if (child > 0) {
        close(fds[1]);
        _exit(wait_for(child, fds[0], &before));
    }
    sigprocmask(SIG_SETMASK, &before, NULL);
    close(fds[0]);
    word_fd = fds[1];
    return 0;
}

void daemon_ready(void)
{
    if (word_fd < 0)
        return;
    setsid();
    /* The working directory would keep its file system from being unmounted. */
    int null = open("/dev/null", O_RDWR | O_CLOEXEC);
    if (chdir("/") < 0 || null < 0)
        syslog(LOG_WARNING, "cannot detach completely");
    if (null >= 0) {
        for (int fd = 0; fd <= 2; fd++)
            dup2(null, fd);
        close(null);
    }
    (void)!TEMP_FAILURE_RETRY(write(word_fd, "+", 1));
    close(word_fd);
    word_fd = -1;
}
