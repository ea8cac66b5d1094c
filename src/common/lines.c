#include "common/lines.h"

void lines_escape(FILE *out, const char *bytes, size_t n)
{
    const char *end = bytes + n, *begin = bytes;
    for (; bytes < end; bytes++) {
        if (*bytes != '\\' && *bytes != '\n' && *bytes != '\r')
            continue;
        fwrite(begin, 1, (size_t)(bytes - begin), out);
        fputs(*bytes == '\\' ? "\\\\" : *bytes == '\n' ? "\\n" : "\\r", out);
        begin = bytes + 1;
    }
    fwrite(begin, 1, (size_t)(end - begin), out);
}
