/* The log function of the process and the level below which nothing is formatted. */
#include "common/log.h"

#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

#include "common/clock.h"
#include "sparsefs/sparsefs.h"

#define PAUSE 1000000000 /* nanoseconds */

static void log_to_stderr(int level, const char *line)
{
    (void)level;
    fprintf(stderr, "sparsefs: %s\n", line);
}

static _Atomic(sfs_log_function) log_function = log_to_stderr;
static atomic_int log_level = LOG_WARNING;

static _Thread_local unsigned *lines_left; /* NULL: no limit */

void log_limit(unsigned *left)
{
    lines_left = left;
}

void sfs_set_log(sfs_log_function function, int level)
{
    atomic_store(&log_function, function ? function : log_to_stderr);
    atomic_store(&log_level, level);
}

/* U+202A to U+202E and U+2066 to U+2069. */
static bool changes_direction(const char *text)
{
    const unsigned char *s = (const unsigned char *)text;
    return s[0] == 0xe2 && ((s[1] == 0x80 && s[2] >= 0xaa && s[2] <= 0xae) ||
                            (s[1] == 0x81 && s[2] >= 0xa6 && s[2] <= 0xa9));
}

size_t log_control(const char *text)
{
    unsigned char first = (unsigned char)text[0], second = first ? (unsigned char)text[1] : 0;
    if (first == 0xc2 && second >= 0x80 && second < 0xa0)
        return 2;
    if (changes_direction(text))
        return 3;
    return first && (first < 0x20 || first == 0x7f);
}

void log_make_line(char *text)
{
    while (*text) {
        size_t n = log_control(text);
        memset(text, '?', n);
        text += n ? n : 1;
    }
}

void log_message(int level, const char *format, ...)
{
    char line[LOG_MOST_LINE];
    va_list args;
    if (level > atomic_load(&log_level) || (lines_left && *lines_left == 0))
        return;
    if (lines_left)
        --*lines_left;
    va_start(args, format);
    vsnprintf(line, sizeof(line), format, args);
    va_end(args);
    log_make_line(line);
    atomic_load (&log_function)(level, line);
}

bool log_is_due(_Atomic uint64_t *last)
{
    uint64_t said = atomic_load(last), now = clock_now(); /* in this order: it is no earlier */
    return (!said || now - said > PAUSE) && atomic_compare_exchange_strong(last, &said, now);
}
