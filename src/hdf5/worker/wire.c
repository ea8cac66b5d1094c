/* Integers, bytes and strings of messages. */
#include "hdf5/worker/wire.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define LEAST_ROOM 256

void wire_free(struct wire *wire)
{
    free(wire->bytes);
    *wire = (struct wire){0};
}

void *wire_room(struct wire *wire, size_t n)
{
    if (wire->failed || n > WIRE_MOST_BYTES || wire->n > WIRE_MOST_BYTES - n) {
        wire->failed = true;
        return NULL;
    }
    if (!wire->bytes || wire->n + n > wire->room) {
        size_t room = 2 * wire->room > wire->n + n ? 2 * wire->room : wire->n + n;
        unsigned char *grown = realloc(wire->bytes, room > LEAST_ROOM ? room : LEAST_ROOM);
        wire->failed = !grown;
        if (!grown)
            return NULL;
        wire->bytes = grown;
        wire->room = room > LEAST_ROOM ? room : LEAST_ROOM;
    }
    void *at = wire->bytes + wire->n;
    wire->n += n;
    return at;
}

void wire_put(struct wire *wire, const void *bytes, size_t n)
{
    void *to = wire_room(wire, n);
    if (to && n > 0)
        memcpy(to, bytes, n);
}

void wire_uint(struct wire *wire, uint64_t value)
{
    wire_put(wire, &value, sizeof(value));
}

void wire_uints(struct wire *wire, const uint64_t *values, int n)
{
    wire_put(wire, values, (size_t)n * sizeof(*values));
}

void wire_bytes(struct wire *wire, const void *bytes, size_t n)
{
    wire_uint(wire, n);
    wire_put(wire, bytes, n);
}

void wire_string(struct wire *wire, const char *string)
{
    size_t n = string ? strlen(string) : 0;
    wire_uint(wire, string ? n + 1 : 0);
    wire_put(wire, string, n);
}

static uint64_t take_any(struct cursor *cursor)
{
    uint64_t value = 0;
    const unsigned char *bytes = cursor_bytes(cursor, sizeof(value));
    if (bytes)
        memcpy(&value, bytes, sizeof(value));
    return value;
}

uint64_t take_uint(struct cursor *cursor, uint64_t most)
{
    uint64_t value = take_any(cursor);
    if (value <= most)
        return value;
    cursor->failed = true;
    return 0;
}

bool take_bool(struct cursor *cursor)
{
    return take_uint(cursor, 1) == 1;
}

void take_uints(struct cursor *cursor, uint64_t *values, int n)
{
    for (int i = 0; i < n; i++)
        values[i] = take_any(cursor);
}

int take_string(struct cursor *cursor, bool needed, char **string)
{
    *string = NULL;
    uint64_t n = take_uint(cursor, WIRE_MOST_BYTES);
    const unsigned char *bytes = n > 0 ? cursor_bytes(cursor, n - 1) : NULL;
    if (n > 0 && bytes && memchr(bytes, '\0', n - 1))
        cursor->failed = true;
    cursor->failed |= needed && n == 0;
    if (cursor->failed || n == 0)
        return cursor->failed ? -EIO : 0;
    *string = strndup((const char *)bytes, n - 1);
    return *string ? 0 : -ENOMEM;
}

size_t take_count(struct cursor *cursor, size_t least)
{
    return (size_t)take_uint(cursor, cursor->left / least);
}

int take_end(const struct cursor *cursor, bool all)
{
    return cursor->failed || (all && cursor->left > 0) ? -EIO : 0;
}
