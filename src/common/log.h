/* One place for messages: the library never prints, it hands every line to the log function that
 * the program has set (stderr or syslog in the daemon). Levels are those of syslog(3). */
#ifndef SPARSEFS_COMMON_LOG_H
#define SPARSEFS_COMMON_LOG_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <syslog.h>

/* Hands one formatted line without a newline to the log function. Any thread. */
void log_message(int level, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* Names come from files: a control character must not reach a terminal or start a line. Each byte of it becomes
 * a question mark. */
void log_make_line(char *text);

/* Bytes of the control character that a text begins with: of C0, DEL, or C1 in UTF-8, with which terminals begin
 * sequences, too (ECMA-48, section 5.3), or one of those that make what follows run the other way, and look like
 * something else (Unicode, UAX 9, section 2); 0: it begins with none. */
size_t log_control(const char *text);

/* Whether something is to be said again that is said each time it happens: not within a second. *last: when it was
 * said, 0 before. Any thread. */
bool log_is_due(_Atomic uint64_t *last);

/* From now on each line of this thread takes one of so many, which are not there any more then: without one it is
 * dropped. NULL: there is no limit. */
void log_limit(unsigned *left);

#define LOG_MOST_LINE 2048 /* bytes; longer ones are cut */

/* What was written is lost, or may be: no limit of who reads keeps it out of the log. */
#define log_loss(...)    log_message(LOG_CRIT, __VA_ARGS__)
#define log_error(...)   log_message(LOG_ERR, __VA_ARGS__)
#define log_warning(...) log_message(LOG_WARNING, __VA_ARGS__)
#define log_info(...)    log_message(LOG_INFO, __VA_ARGS__)

#endif
