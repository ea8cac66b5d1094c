/* One place for messages: the library never prints, it hands every line to the log function that
 * the program has set (stderr or syslog in the daemon). Levels are those of syslog(3). */
#ifndef SPARSEFS_COMMON_LOG_H
#define SPARSEFS_COMMON_LOG_H

#include <syslog.h>

/* Hands one formatted line without a newline to the log function. Any thread. */
void log_message(int level, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* Names come from files: a control character must not reach a terminal or start a line. It becomes a
 * question mark. */
void log_make_line(char *text);

#define log_error(...)   log_message(LOG_ERR, __VA_ARGS__)
#define log_warning(...) log_message(LOG_WARNING, __VA_ARGS__)
#define log_info(...)    log_message(LOG_INFO, __VA_ARGS__)

#endif
