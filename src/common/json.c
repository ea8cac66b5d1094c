/* JSON strings (RFC 8259, section 7). */
#include "common/json.h"

#include <inttypes.h>

#include "common/log.h"
#include "sparsefs/sparsefs.h"

size_t utf8_length(const char *bytes, size_t n)
{
    const unsigned char *s = (const unsigned char *)bytes;
    static const struct {
        unsigned char first, last, low, high; /* of the first byte, and bounds of the second */
        size_t length;
    } forms[] = {
        {0xC2, 0xDF, 0x80, 0xBF, 2}, {0xE0, 0xE0, 0xA0, 0xBF, 3}, {0xE1, 0xEC, 0x80, 0xBF, 3},
        {0xED, 0xED, 0x80, 0x9F, 3}, {0xEE, 0xEF, 0x80, 0xBF, 3}, {0xF0, 0xF0, 0x90, 0xBF, 4},
        {0xF1, 0xF3, 0x80, 0xBF, 4}, {0xF4, 0xF4, 0x80, 0x8F, 4},
    };
    if (s[0] < 0x80)
        return 1;
    for (size_t i = 0; i < sizeof(forms) / sizeof(*forms); i++) {
        if (s[0] < forms[i].first || s[0] > forms[i].last)
            continue;
        if (n < forms[i].length || s[1] < forms[i].low || s[1] > forms[i].high)
            return 0;
        for (size_t k = 2; k < forms[i].length; k++)
            if (s[k] < 0x80 || s[k] > 0xBF)
                return 0;
        return forms[i].length;
    }
    return 0;
}

void json_string(FILE *out, const char *bytes, size_t n)
{
    const unsigned char *s = (const unsigned char *)bytes;
    putc('"', out);
    for (size_t i = 0; i < n;) {
        size_t length = utf8_length(bytes + i, n - i);
        if (length == 0 || s[i] < 0x20 || s[i] == 0x7F)
            fprintf(out, "\\u%04x", s[i]);
        else if (length == 2 && log_control(bytes + i) == 2) /* of C1: terminals obey them */
            fprintf(out, "\\u%04x", s[i + 1]);
        else if (s[i] == '"' || s[i] == '\\')
            fprintf(out, "\\%c", s[i]);
        else
            fwrite(s + i, 1, length, out);
        i += length ? length : 1;
    }
    putc('"', out);
}

void json_dims(FILE *out, int rank, const uint64_t *dims)
{
    putc('[', out);
    for (int i = 0; i < rank; i++) {
        fputs(i ? ", " : "", out);
        if (dims[i] == SFS_UNLIMITED)
            fputs("null", out);
        else
            fprintf(out, "%" PRIu64, dims[i]);
    }
    putc(']', out);
}
