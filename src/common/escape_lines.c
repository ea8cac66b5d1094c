#include "common/escape_lines.h"

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

size_t lines_unescape(char *line, size_t n)
{
    size_t to = 0;
    for (size_t i = 0; i < n; i++) {
        char c = line[i];
        if (c == '\\' && i + 1 < n) {
            c = line[++i];
            c = c == 'n' ? '\n' : c == 'r' ? '\r' : c;
        }
        line[to++] = c;
    }
    return to;
}
