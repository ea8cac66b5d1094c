/* Why something failed, in one phrase or line, for whoever decides what becomes of it: bytes of a
 * file that are refused (a phrase that names the structure, the field and the address; the line is
 * made of it by who knows the file and the dataset), or a file that cannot be opened (a line). */
#ifndef SPARSEFS_COMMON_WHY_H
#define SPARSEFS_COMMON_WHY_H

#include <stdarg.h>

struct why {
    char text[2048]; /* valid after an error that says that it is */
};

/* Writes the phrase and returns -EILSEQ. */
int why_damaged(struct why *why, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* The same for what is not damaged but cannot be read by this version, and the phrase begins with
 * that word, "unsupported": returns -EOPNOTSUPP. */
int why_unsupported(struct why *why, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* The same for what a caller asks and cannot have: returns error. */
int why_refused(struct why *why, int error, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* Writes what printf would, as one line: a control character of a name is a question mark. */
void why_take(struct why *why, const char *format, va_list arguments)
    __attribute__((format(printf, 2, 0)));

/* The same for whoever asked for the reason; NULL: nobody did, it is logged as an error. A later line
 * replaces it. */
void why_say(struct why *why, const char *format, ...) __attribute__((format(printf, 2, 3)));

#endif
