/* Phrases and lines for refusals. */
#include "common/why.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "common/log.h"

#define UNSUPPORTED "unsupported: "

int why_damaged(struct why *why, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(why->text, sizeof(why->text), format, arguments);
    va_end(arguments);
    return -EILSEQ;
}

int why_unsupported(struct why *why, const char *format, ...)
{
    va_list arguments;
    strcpy(why->text, UNSUPPORTED);
    va_start(arguments, format);
    vsnprintf(why->text + strlen(UNSUPPORTED), sizeof(why->text) - strlen(UNSUPPORTED), format,
              arguments);
    va_end(arguments);
    return -EOPNOTSUPP;
}

int why_refused(struct why *why, int error, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(why->text, sizeof(why->text), format, arguments);
    va_end(arguments);
    return error;
}

void why_take(struct why *why, const char *format, va_list arguments)
{
    vsnprintf(why->text, sizeof(why->text), format, arguments);
    log_make_line(why->text);
}

void why_say(struct why *why, const char *format, ...)
{
    va_list arguments;
    struct why line;
    va_start(arguments, format);
    why_take(why ? why : &line, format, arguments);
    va_end(arguments);
    if (!why)
        log_error("%s", line.text);
}
