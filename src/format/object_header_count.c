/* The number of links to an object, which its header counts: in the prefix of version 1, in a message
 * of version 2, which has none where there is one link. To put one there libhdf5 may move others. */
#include <errno.h>
#include <inttypes.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "format/cursor.h"
#include "format/object_header.h"

#define COUNT_AT    4 /* in the prefix of version 1 */
#define COUNT_BYTES 4
#define LIMITS_AT                                                                                  \
    6 /* in that of version 2: behind its flags; times, too, and limits of attributes */
#define SIZE_FLAGS 0x03 /* of version 2: how long the size of block 0 is */

static bool is_of_count(const struct message *message)
{
    return message->type == MESSAGE_NIL || message->type == MESSAGE_CONTINUATION ||
           message->type == MESSAGE_REFERENCES;
}

/* false: it is not known. */
static bool count_links(const struct object_header *header, uint64_t *n)
{
    const struct message *count = object_header_find(header, MESSAGE_REFERENCES);
    *n = 1;
    if (!count)
        return true;
    struct cursor c = cursor_over(count->data, count->size);
    uint64_t version = cursor_uint(&c, 1);
    *n = cursor_uint(&c, COUNT_BYTES);
    return !c.failed && version == 0 && !(count->flags & MESSAGE_SHARED);
}

static bool is_one_more(uint64_t before, uint64_t after)
{
    return after == before || after == before + 1;
}

/* ---- Version 1: nothing moves ---- */

static bool is_same_old(const struct object_header *before, const struct object_header *after)
{
    const size_t behind = COUNT_AT + COUNT_BYTES;
    for (size_t b = 0; b < before->n_blocks; b++) {
        const struct header_block *x = &before->block[b], *y = &after->block[b];
        size_t from = b == 0 ? behind : 0;
        if (x->address != y->address || x->n != y->n ||
            memcmp(x->bytes + from, y->bytes + from, x->n - from) != 0)
            return false;
    }
    const unsigned char *x = before->block[0].bytes, *y = after->block[0].bytes;
    struct cursor old = cursor_over(x + COUNT_AT, COUNT_BYTES);
    struct cursor new = cursor_over(y + COUNT_AT, COUNT_BYTES);
    return memcmp(x, y, COUNT_AT) == 0 &&
           is_one_more(cursor_uint(&old, COUNT_BYTES), cursor_uint(&new, COUNT_BYTES));
}

/* ---- Version 2 ---- */

static bool has_same_prefix(const struct object_header *before, const struct object_header *after)
{
    const struct header_block *x = &before->block[0], *y = &after->block[0];
    size_t x_end = x->messages_at - (1u << (before->flags & SIZE_FLAGS));
    size_t y_end = y->messages_at - (1u << (after->flags & SIZE_FLAGS));
    return (before->flags | SIZE_FLAGS) == (after->flags | SIZE_FLAGS) && x_end == y_end &&
           memcmp(x->bytes + LIMITS_AT, y->bytes + LIMITS_AT, x_end - LIMITS_AT) == 0;
}

/* No block is given up; one may have been made longer. */
static bool has_blocks(const struct object_header *before, const struct object_header *after)
{
    bool has = true;
    for (size_t b = 0; b < before->n_blocks && has; b++) {
        uint64_t n = object_header_block_bytes(after, before->block[b].address);
        has = n >= before->block[b].n;
    }
    return has;
}

/* With the order in which attributes were made, which stands between flags and data. */
static bool is_same(const struct object_header *header, const struct message *a,
                    const struct message *b)
{
    size_t order = object_header_message_begin(header) - 4;
    return a->type == b->type && a->flags == b->flags && a->size == b->size &&
           memcmp(a->data - order, b->data - order, order + a->size) == 0;
}

/* Attributes may be in another order, of others the first of a type is what counts. taken: of the
 * messages of `after`. */
static bool take(const struct object_header *after, const struct message *message, bool *taken,
                 size_t *next)
{
    for (size_t i = 0; i < after->n_messages; i++) {
        size_t at = message->type == MESSAGE_ATTRIBUTE ? (*next + i) % after->n_messages : i;
        const struct message *other = &after->message[at];
        if (taken[at] || other->type != message->type)
            continue;
        if (is_same(after, message, other)) {
            taken[at] = true;
            *next = at + 1;
            return true;
        }
        if (message->type != MESSAGE_ATTRIBUTE)
            return false;
    }
    return false;
}

static bool has_same_messages(const struct object_header *before, const struct object_header *after,
                              bool *taken)
{
    size_t next = 0, n_counts = 0;
    for (size_t i = 0; i < before->n_messages; i++)
        if (!is_of_count(&before->message[i]) && !take(after, &before->message[i], taken, &next))
            return false;
    for (size_t i = 0; i < after->n_messages; i++) {
        if (!taken[i] && !is_of_count(&after->message[i]))
            return false;
        n_counts += after->message[i].type == MESSAGE_REFERENCES;
    }
    return n_counts <= 1;
}

uint64_t object_header_block_bytes(const struct object_header *header, uint64_t address)
{
    for (size_t b = 0; b < header->n_blocks; b++)
        if (header->block[b].address == address)
            return header->block[b].n;
    return 0;
}

int object_header_check_counted(const struct object_header *before,
                                const struct object_header *after, struct why *why)
{
    uint64_t old, new;
    bool is_same = before->version == after->version;
    if (is_same && before->version == 1) {
        is_same = before->n_blocks == after->n_blocks && is_same_old(before, after);
    } else if (is_same) {
        bool *taken = calloc(after->n_messages ? after->n_messages : 1, sizeof(*taken));
        if (!taken)
            return -ENOMEM;
        is_same = has_same_prefix(before, after) && has_blocks(before, after) &&
                  has_same_messages(before, after, taken) && count_links(before, &old) &&
                  count_links(after, &new) && is_one_more(old, new);
        free(taken);
    }
    return is_same ? 0
                   : why_damaged(why,
                                 "object header at address %" PRIu64
                                 ": more than its reference count was changed",
                                 before->block[0].address);
}
