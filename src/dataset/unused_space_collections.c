/* Global heap collections. What leads to them may stand in values that are not read, or cannot be: then
 * each is in use that could be one. */
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "dataset/unused_space.h"
#include "format/cursor.h"
#include "format/structure.h"

#define COLLECTION "global heap collection"
#define SIGNATURE  "GCOL"

#define HEAD_BYTES  16 /* the longest */
#define PIECE_BYTES ((size_t)64 << 10)
#define MOST        ((size_t)1 << 20) /* ranges of bytes that could be collections */

bool looking_has_heap(const struct plain_type *type)
{
    bool has = type->class == TYPE_VARIABLE || (type->class == TYPE_REFERENCE && type->is_region) ||
               (type->class == TYPE_ARRAY && looking_has_heap(type->base));
    for (size_t i = 0; i < type->n_members && !has; i++)
        has = looking_has_heap(&type->member[i].type);
    return has;
}

int looking_add_collection(struct looking *looking, uint64_t address)
{
    unsigned char bytes[8 + sizeof(uint64_t)];
    size_t n = 8 + looking->superblock.length_size;
    bool is_new;
    int error = looking_add_found(looking, address, true, &is_new);
    if (error || !is_new)
        return error;
    error = plain_within(&looking->superblock, COLLECTION, address, n, &looking->why);
    if (!error)
        error = structure_read(looking->store, COLLECTION, address, bytes, n, &looking->why);
    if (!error)
        error = structure_signed(COLLECTION, address, bytes, SIGNATURE, &looking->why);
    if (error)
        return error;
    struct cursor c = cursor_over(bytes + SIGNATURE_BYTES, n - SIGNATURE_BYTES);
    uint64_t version = cursor_uint(&c, 1);
    cursor_skip(&c, 3);
    uint64_t size = cursor_uint(&c, looking->superblock.length_size);
    if (version != 1 || size < n)
        return why_damaged(&looking->why, COLLECTION " at address %" PRIu64 ": version, or size",
                           address);
    return looking_add_used(looking, COLLECTION, address, size);
}

/* ---- All of them ---- */

struct search {
    struct looking *looking;
    uint64_t end;  /* of the range that grows, */
    uint64_t from; /* and its beginning */
    size_t n;
};

static int keep_range(struct search *search)
{
    if (search->from == search->end)
        return 0;
    if (search->n++ == MOST)
        return why_unsupported(&search->looking->why, "too many collections");
    return looking_keep(search->looking, search->from, search->end - search->from);
}

/* Of a version that nobody reads it is none. */
static int take_head(struct search *search, uint64_t address, const unsigned char *bytes, size_t n)
{
    const struct superblock *superblock = &search->looking->superblock;
    struct cursor c = cursor_over(bytes, n);
    cursor_skip(&c, SIGNATURE_BYTES);
    uint64_t version = cursor_uint(&c, 1);
    cursor_skip(&c, 3);
    uint64_t size = cursor_uint(&c, superblock->length_size), left = superblock->end - address;
    if (c.failed || version != 1)
        return 0;
    uint64_t end = address + (size < left ? size : left);
    int error = address > search->end ? keep_range(search) : 0;
    if (address > search->end)
        search->from = search->end = address;
    if (end > search->end)
        search->end = end;
    return error;
}

/* n bytes at address, of which those that begin in the first `first` count. */
static int search_piece(struct search *search, uint64_t address, const unsigned char *bytes,
                        size_t n, size_t first)
{
    int error = 0;
    for (size_t at = 0; at < first && !error; at++) {
        const unsigned char *found = memchr(bytes + at, SIGNATURE[0], first - at);
        if (!found)
            break;
        at = (size_t)(found - bytes);
        if (n - at >= SIGNATURE_BYTES && memcmp(found, SIGNATURE, SIGNATURE_BYTES) == 0)
            error = take_head(search, address + at, found, n - at);
    }
    return error;
}

int looking_add_all_collections(struct looking *looking)
{
    struct search search = {.looking = looking};
    uint64_t end = looking->superblock.end, at = 0;
    unsigned char *bytes = malloc(PIECE_BYTES + HEAD_BYTES);
    int error = bytes ? 0 : -ENOMEM;
    while (at < end && !error) {
        size_t n =
            end - at < PIECE_BYTES + HEAD_BYTES ? (size_t)(end - at) : PIECE_BYTES + HEAD_BYTES;
        size_t first = n < PIECE_BYTES ? n : PIECE_BYTES;
        error = structure_read(looking->store, COLLECTION, at, bytes, n, &looking->why);
        if (!error)
            error = search_piece(&search, at, bytes, n, first);
        at += first;
    }
    free(bytes);
    return error ? error : keep_range(&search);
}
