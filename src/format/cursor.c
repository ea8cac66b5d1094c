/* Bounded reading of fields. */
#include "format/cursor.h"

struct cursor cursor_over(const void *bytes, size_t n)
{
    return (struct cursor){.at = bytes, .left = n};
}

const unsigned char *cursor_bytes(struct cursor *cursor, uint64_t n)
{
    if (cursor->failed || n > cursor->left) {
        cursor->failed = true;
        return NULL;
    }
    const unsigned char *bytes = cursor->at;
    cursor->at += n;
    cursor->left -= (size_t)n;
    return bytes;
}

void cursor_skip(struct cursor *cursor, uint64_t n)
{
    cursor_bytes(cursor, n);
}

uint64_t cursor_uint(struct cursor *cursor, unsigned width)
{
    const unsigned char *bytes = cursor_bytes(cursor, width);
    uint64_t value = 0;
    for (unsigned i = 0; bytes && i < width; i++)
        value |= (uint64_t)bytes[i] << 8 * i;
    return value;
}

uint64_t cursor_all_ones(struct cursor *cursor, unsigned width)
{
    uint64_t value = cursor_uint(cursor, width);
    bool all =
        width > 0 && width <= 8 && !cursor->failed && value == UINT64_MAX >> (64 - 8 * width);
    return all ? UINT64_MAX : value;
}
