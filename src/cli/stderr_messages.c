/* What sparsectl says on stderr, and the signals that end it early. */
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <syslog.h>
#include <unistd.h>

#include "cli/cli.h"
#include "common/log.h"

#define MOST_LINE 2048

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* guards what follows */
static char kept[MOST_LINE];                             /* the first error; empty: none */
static char aside[MOST_LINE];                            /* what was kept when it was forgiven */
static int forgiven;                                     /* the error of that, or 0 */

static void take_line(int level, const char *line)
{
    if (level > LOG_ERR) {
        fprintf(stderr, "sparsectl: %s\n", line);
        return;
    }
    pthread_mutex_lock(&lock);
    if (!kept[0])
        snprintf(kept, sizeof(kept), "%s", line);
    pthread_mutex_unlock(&lock);
}

void messages_begin(void)
{
    sfs_set_log(take_line, LOG_WARNING);
}

void messages_forget(void)
{
    pthread_mutex_lock(&lock);
    kept[0] = '\0';
    pthread_mutex_unlock(&lock);
}

void messages_forgive(int error)
{
    pthread_mutex_lock(&lock);
    memcpy(aside, kept, sizeof(aside));
    forgiven = aside[0] ? error : 0;
    kept[0] = '\0';
    pthread_mutex_unlock(&lock);
}

atomic_bool interrupted;

/* What is said between the two is kept back (a line of it), and then said or not. */
static bool holding;
static char held[MOST_LINE];

void messages_hold(void)
{
    holding = true;
    held[0] = '\0';
}

void messages_release(bool say)
{
    holding = false;
    if (say && held[0])
        fprintf(stderr, "sparsectl: %s\n", held);
}

static void say(char *line)
{
    log_make_line(line);
    if (holding)
        snprintf(held, sizeof(held), "%s", line);
    else
        fprintf(stderr, "sparsectl: %s\n", line);
}

void print_text(FILE *out, const char *text)
{
    while (*text) {
        size_t control = log_control(text);
        if (control == 0)
            putc(*text, out);
        for (size_t i = 0; i < control; i++)
            putc('?', out);
        text += control ? control : 1;
    }
}

int fail(int error, const char *format, ...)
{
    char what[MOST_LINE / 2], line[MOST_LINE];
    va_list args;
    va_start(args, format);
    vsnprintf(what, sizeof(what), format, args);
    va_end(args);
    pthread_mutex_lock(&lock);
    if (error == -EINTR && interrupted)
        snprintf(line, sizeof(line), "%s: interrupted, nothing is changed", what);
    else if (kept[0])
        snprintf(line, sizeof(line), "%s", kept);
    else if (forgiven && forgiven == error)
        snprintf(line, sizeof(line), "%s", aside);
    else
        snprintf(line, sizeof(line), "%s: %s", what, strerror(-error));
    pthread_mutex_unlock(&lock);
    say(line);
    return FAILED;
}

int fail_because(const char *format, ...)
{
    char line[MOST_LINE];
    va_list args;
    va_start(args, format);
    vsnprintf(line, sizeof(line), format, args);
    va_end(args);
    say(line);
    return FAILED;
}

int refuse(const char *command, const char *format, ...)
{
    char line[MOST_LINE];
    va_list args;
    va_start(args, format);
    vsnprintf(line, sizeof(line), format, args);
    va_end(args);
    fprintf(stderr, "sparsectl %s: %s (see sparsectl %s --help)\n", command, line, command);
    return USAGE;
}

static void note_signal(int number)
{
    (void)number;
    atomic_store(&interrupted, true); /* it has no lock */
}

static bool is_interrupted(void *context)
{
    (void)context;
    return interrupted;
}

void interrupt_watch(void)
{
    sfs_set_interrupt(is_interrupted, NULL);
}

void interrupt_catch(void)
{
    interrupt_watch();
    static const int numbers[] = {SIGINT, SIGTERM, SIGHUP};
    struct sigaction action = {.sa_handler = note_signal, .sa_flags = SA_RESTART | SA_RESETHAND};
    for (size_t i = 0; i < sizeof(numbers) / sizeof(*numbers); i++) {
        struct sigaction before;
        if (sigaction(numbers[i], NULL, &before) == 0 && before.sa_handler != SIG_IGN)
            sigaction(numbers[i], &action, NULL);
    }
}

/* The number stays taken: a file that is opened later must not get it. */
static bool close_copy(int fd)
{
    int copy = dup(fd);
    return copy >= 0 && close(copy) == 0;
}

int finish_output(int code)
{
    if (fflush(stdout) == 0 && !ferror(stdout) && close_copy(STDOUT_FILENO))
        return code;
    return fail_because("standard output: %s", strerror(errno));
}
