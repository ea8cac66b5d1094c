/* Reading links. */
#include "format/links.h"

#include <errno.h>
#include <inttypes.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "common/deadline.h"
#include "common/interrupt.h"
#include "format/checksum.h"
#include "format/cursor.h"
#include "format/links_in_heap.h"
#include "format/structure.h"
#include "store/store.h"

#define HEAP "local heap"
#define NODE "B-tree of a group"
#define LEAF "node of symbols"

/* Of a group: bytes that are read, and of its links' names and targets; else it is not plain. A file
 * may name the same bytes any number of times. */
#define MOST_BYTES ((uint64_t)64 << 20)
#define MOST_TEXT  ((size_t)64 << 10) /* bytes of a name or target */
#define MOST_LEVEL 16
#define ASK_EVERY  64 /* reads and links, whether the caller still wants it */
#define NO_FREE    1  /* where free space of a local heap begins, if there is none */

enum cached { CACHED_NOTHING, CACHED_GROUP, CACHED_SOFT };

/* Of a link message. */
#define NAME_SIZE_BITS 0x03
#define HAS_ORDER      0x04
#define HAS_TYPE       0x08
#define HAS_CHARACTERS 0x10
#define LINK_FLAGS     0x1f
#define TYPE_SOFT      1
#define TYPE_EXTERNAL  64

/* Of a link info message. */
#define TRACKS_ORDER  0x01
#define INDEXES_ORDER 0x02

struct reader {
    struct store *store;
    const struct superblock *superblock;
    struct sfs_links links;
    size_t room;
    unsigned char *names; /* the local heap's data */
    uint64_t names_n;
    uint64_t spent;                    /* bytes */
    unsigned asked;                    /* how often it was spent */
    const struct plain_blocks *blocks; /* NULL: nobody is told of them */
    struct why *why;
};

static void free_link(struct sfs_link *link)
{
    free(link->name);
    free(link->target);
    free(link->target_file);
}

void links_free(struct sfs_links *links)
{
    for (size_t i = 0; i < links->n; i++)
        free_link(&links->link[i]);
    free(links->link);
    *links = (struct sfs_links){0};
}

/* Counts bytes that are read or kept. Whoever waits for a listing can have it ended, and does not
 * wait for ever. */
static int spend(struct reader *reader, uint64_t n)
{
    int error = 0;
    if (reader->asked++ % ASK_EVERY == 0 && !(error = interrupt_check()))
        error = deadline_check();
    if (error)
        return error;
    if (n > MOST_BYTES - reader->spent)
        return why_unsupported(reader->why, "a group of so many bytes");
    reader->spent += n;
    return 0;
}

/* What of it is NULL could not be copied. It is taken over, also on error. */
static int add(struct reader *reader, struct sfs_link *link)
{
    struct sfs_links *links = &reader->links;
    int error = !link->name || (link->type == SFS_LINK_SOFT && !link->target) ||
                        (link->type == SFS_LINK_EXTERNAL && (!link->target || !link->target_file))
                    ? -ENOMEM
                    : 0;
    if (!error)
        error = spend(reader, sizeof(*link) + strlen(link->name) +
                                  (link->target ? strlen(link->target) : 0) +
                                  (link->target_file ? strlen(link->target_file) : 0));
    if (!error && (!*link->name || strchr(link->name, '/') || links->n == LINKS_MOST))
        error = why_unsupported(reader->why, "a link whose name cannot be, or too many links");
    if (!error && links->n == reader->room) {
        size_t room = reader->room ? 2 * reader->room : 16;
        struct sfs_link *grown = reallocarray(links->link, room, sizeof(*grown));
        error = grown ? 0 : -ENOMEM;
        links->link = grown ? grown : links->link;
        reader->room = grown ? room : reader->room;
    }
    if (error)
        free_link(link);
    else
        links->link[links->n++] = *link;
    return error;
}

/* ---- Symbol tables ---- */

static int read_plain(struct reader *reader, const char *name, uint64_t address, void *bytes,
                      size_t n)
{
    int error = plain_within(reader->superblock, name, address, n, reader->why);
    if (!error)
        error = spend(reader, n);
    if (!error)
        error = structure_read(reader->store, name, address, bytes, n, reader->why);
    return !error && reader->blocks
               ? reader->blocks->each(reader->blocks->context, name, address, n)
               : error;
}

/* libhdf5 goes through the free space of a heap when it reads it. */
static int check_free(struct reader *reader, uint64_t address, uint64_t at)
{
    unsigned width = reader->superblock->length_size;
    uint64_t most = reader->names_n / (2 * width) + 1;
    for (uint64_t i = 0; at != NO_FREE; i++) {
        if (i == most || at >= reader->names_n)
            return why_damaged(reader->why, HEAP " at address %" PRIu64 ": free space at %" PRIu64,
                               address, at);
        struct cursor c = cursor_over(reader->names + at, reader->names_n - at);
        uint64_t next = cursor_uint(&c, width), n = cursor_uint(&c, width);
        if (c.failed || n > reader->names_n - at || n < 2 * (uint64_t)width || next == 0)
            return why_damaged(reader->why, HEAP " at address %" PRIu64 ": free space at %" PRIu64,
                               address, at);
        at = next;
    }
    return 0;
}

static int read_names(struct reader *reader, uint64_t address)
{
    const struct superblock *superblock = reader->superblock;
    unsigned char bytes[8 + 3 * sizeof(uint64_t)];
    size_t n = 8 + 2 * (size_t)superblock->length_size + superblock->offset_size;
    int error = read_plain(reader, HEAP, address, bytes, n);
    if (!error)
        error = structure_signed(HEAP, address, bytes, "HEAP", reader->why);
    if (error)
        return error;
    struct cursor c = cursor_over(bytes + SIGNATURE_BYTES, n - SIGNATURE_BYTES);
    uint64_t version = cursor_uint(&c, 1);
    cursor_skip(&c, 3);
    reader->names_n = cursor_uint(&c, superblock->length_size);
    uint64_t free_at = cursor_uint(&c, superblock->length_size);
    uint64_t data = superblock_address(superblock, &c);
    if (c.failed || version != 0 || reader->names_n == 0)
        return why_damaged(reader->why, HEAP " at address %" PRIu64 ": version, or size", address);
    error = plain_within(superblock, HEAP, data, reader->names_n, reader->why);
    if (!error && reader->names_n > MOST_BYTES)
        error = why_unsupported(reader->why, "a group of so many bytes");
    if (error)
        return error;
    reader->names = malloc((size_t)reader->names_n);
    if (!reader->names)
        return -ENOMEM;
    error = read_plain(reader, HEAP, data, reader->names, (size_t)reader->names_n);
    return error ? error : check_free(reader, address, free_at);
}

/* NULL: there is none, or it has no end, or one too far away. */
static const char *name_at(const struct reader *reader, uint64_t at)
{
    if (at >= reader->names_n)
        return NULL;
    const unsigned char *name = reader->names + at;
    uint64_t rest = reader->names_n - at;
    size_t most = rest < MOST_TEXT ? (size_t)rest : MOST_TEXT;
    return memchr(name, '\0', most) ? (const char *)name : NULL;
}

/* Between which names those of a part of the tree lie, by its keys: behind the first, and up to the
 * last. libhdf5 would not find others by their names. */
struct bounds {
    const char *after, *last; /* last: NULL: any */
};

static int add_symbol(struct reader *reader, struct cursor *c, uint64_t node, struct bounds *bounds)
{
    const struct superblock *superblock = reader->superblock;
    const char *name = name_at(reader, cursor_uint(c, superblock->length_size)), *target = NULL;
    uint64_t address = superblock_address(superblock, c);
    unsigned cached = (unsigned)cursor_uint(c, 4);
    cursor_skip(c, 4);
    struct cursor scratch = cursor_over(cursor_bytes(c, 16), 16);
    bool is_soft = cached == CACHED_SOFT;
    if (is_soft && !c->failed)
        target = name_at(reader, cursor_uint(&scratch, 4));
    if (c->failed || !name || cached > CACHED_SOFT || strcmp(name, bounds->after) <= 0 ||
        (bounds->last && strcmp(name, bounds->last) > 0) ||
        (is_soft ? !target || !*target : address == NO_ADDRESS))
        return why_damaged(reader->why, LEAF " at address %" PRIu64 ": a symbol", node);
    bounds->after = name;
    struct sfs_link link = {.type = is_soft ? SFS_LINK_SOFT : SFS_LINK_HARD, .name = strdup(name)};
    if (is_soft)
        link.target = strdup(target);
    else
        link.address = address;
    return add(reader, &link);
}

static int read_leaf(struct reader *reader, uint64_t address, struct bounds bounds)
{
    const struct superblock *superblock = reader->superblock;
    size_t symbol = (size_t)superblock->length_size + superblock->offset_size + 24;
    size_t bytes_n = 8 + 2 * (size_t)superblock->leaf_k * symbol;
    unsigned char *bytes = malloc(bytes_n);
    if (!bytes)
        return -ENOMEM;
    int error = read_plain(reader, LEAF, address, bytes, bytes_n);
    if (!error)
        error = structure_signed(LEAF, address, bytes, "SNOD", reader->why);
    struct cursor c = cursor_over(bytes + SIGNATURE_BYTES, bytes_n - SIGNATURE_BYTES);
    uint64_t version = cursor_uint(&c, 1);
    cursor_skip(&c, 1);
    uint64_t n = cursor_uint(&c, 2);
    if (!error && (version != 1 || n > 2 * (uint64_t)superblock->leaf_k))
        error =
            why_damaged(reader->why, LEAF " at address %" PRIu64 ": version, or number", address);
    for (uint64_t i = 0; i < n && !error; i++)
        error = add_symbol(reader, &c, address, &bounds);
    free(bytes);
    return error;
}

static int read_node(struct reader *reader, uint64_t address, int level, struct bounds bounds);

static struct bounds between(const struct bounds *bounds, const char *after, const char *last)
{
    struct bounds inner = {strcmp(after, bounds->after) > 0 ? after : bounds->after, last};
    if (bounds->last && strcmp(bounds->last, last) < 0)
        inner.last = bounds->last;
    return inner;
}

/* bytes: of a node behind its signature. */
static int read_children(struct reader *reader, const unsigned char *bytes, size_t bytes_n,
                         uint64_t address, int level, const struct bounds *bounds)
{
    const struct superblock *superblock = reader->superblock;
    struct cursor c = cursor_over(bytes, bytes_n);
    uint64_t type = cursor_uint(&c, 1), own_level = cursor_uint(&c, 1), n = cursor_uint(&c, 2);
    cursor_skip(&c, 2 * superblock->offset_size); /* siblings */
    if (type != 0 || own_level > MOST_LEVEL || (level >= 0 && own_level != (uint64_t)level) ||
        n > 2 * (uint64_t)superblock->internal_k)
        return why_damaged(reader->why, NODE " at address %" PRIu64 ": type, level or number",
                           address);
    int error = 0;
    const char *after = name_at(reader, cursor_uint(&c, superblock->length_size));
    for (uint64_t i = 0; i < n && !error; i++) {
        uint64_t child = superblock_address(superblock, &c);
        const char *last = name_at(reader, cursor_uint(&c, superblock->length_size));
        if (!after || !last || c.failed || child == NO_ADDRESS)
            return why_damaged(reader->why, NODE " at address %" PRIu64 ": a child", address);
        struct bounds inner = between(bounds, after, last);
        error = own_level > 0 ? read_node(reader, child, (int)own_level - 1, inner)
                              : read_leaf(reader, child, inner);
        after = last;
    }
    return error;
}

/* level: what it must be, or -1. It decreases from node to child. */
static int read_node(struct reader *reader, uint64_t address, int level, struct bounds bounds)
{
    const struct superblock *superblock = reader->superblock;
    size_t k = 2 * (size_t)superblock->internal_k;
    size_t n = SIGNATURE_BYTES + 4 + 2 * superblock->offset_size + k * superblock->offset_size +
               (k + 1) * superblock->length_size;
    unsigned char *bytes = malloc(n);
    if (!bytes)
        return -ENOMEM;
    int error = read_plain(reader, NODE, address, bytes, n);
    if (!error)
        error = structure_signed(NODE, address, bytes, "TREE", reader->why);
    if (!error)
        error = read_children(reader, bytes + SIGNATURE_BYTES, n - SIGNATURE_BYTES, address, level,
                              &bounds);
    free(bytes);
    return error;
}

static int read_symbols(struct reader *reader, const struct message *message)
{
    struct cursor c = cursor_over(message->data, message->size);
    uint64_t tree = superblock_address(reader->superblock, &c);
    uint64_t heap = superblock_address(reader->superblock, &c);
    if (c.failed || tree == NO_ADDRESS || heap == NO_ADDRESS)
        return why_damaged(reader->why, "symbol table message at address %" PRIu64,
                           message->address);
    int error = read_names(reader, heap);
    return error ? error : read_node(reader, tree, -1, (struct bounds){.after = ""});
}

/* ---- Link messages ---- */

static int decode_info(const struct reader *reader, const struct message *message,
                       struct link_info *info)
{
    struct cursor c = cursor_over(message->data, message->size);
    uint64_t version = cursor_uint(&c, 1), flags = cursor_uint(&c, 1);
    uint64_t most = flags & TRACKS_ORDER ? cursor_uint(&c, 8) : 0;
    info->heap = superblock_address(reader->superblock, &c);
    info->index = superblock_address(reader->superblock, &c);
    bool has_heap = info->heap != NO_ADDRESS, by_order = flags & INDEXES_ORDER;
    info->by_order = by_order ? superblock_address(reader->superblock, &c) : NO_ADDRESS;
    info->blocks = reader->blocks;
    if (c.failed || version != 0 || flags & ~(uint64_t)(TRACKS_ORDER | INDEXES_ORDER) ||
        most > INT64_MAX || has_heap != (info->index != NO_ADDRESS) ||
        (has_heap && by_order) != (info->by_order != NO_ADDRESS))
        return why_unsupported(reader->why, "link info message at address %" PRIu64,
                               message->address);
    return 0;
}

/* A string of n bytes without its end; NULL: it has one, or none fits. */
static char *take_text(struct cursor *c, uint64_t n)
{
    const unsigned char *bytes = cursor_bytes(c, n);
    c->failed |= n == 0 || n > MOST_TEXT || !bytes || memchr(bytes, '\0', (size_t)n);
    return c->failed ? NULL : strndup((const char *)bytes, (size_t)n);
}

/* The file, and the path in it, each with its end. */
static void take_external(struct cursor *c, struct sfs_link *link)
{
    uint64_t n = cursor_uint(c, 2), flags = cursor_uint(c, 1);
    const unsigned char *bytes = n > 0 ? cursor_bytes(c, n - 1) : NULL;
    const unsigned char *end = bytes ? memchr(bytes, '\0', (size_t)n - 1) : NULL;
    size_t path_n = end ? (size_t)(bytes + n - 1 - end) - 1 : 0;
    c->failed |= flags != 0 || !end || end == bytes || path_n < 2 ||
                 (bytes && memchr(end + 1, '\0', path_n) != bytes + n - 2);
    if (c->failed)
        return;
    link->target_file = strdup((const char *)bytes);
    link->target = strdup((const char *)end + 1);
}

static void take_value(const struct reader *reader, struct cursor *c, unsigned type,
                       struct sfs_link *link)
{
    if (type == 0) {
        link->type = SFS_LINK_HARD;
        link->address = superblock_address(reader->superblock, c);
        c->failed |= link->address == NO_ADDRESS;
    } else if (type == TYPE_SOFT) {
        link->type = SFS_LINK_SOFT;
        link->target = take_text(c, cursor_uint(c, 2));
    } else if (type == TYPE_EXTERNAL) {
        link->type = SFS_LINK_EXTERNAL;
        take_external(c, link);
    } else {
        c->failed = true; /* of some program's own kind */
    }
}

static int add_message(struct reader *reader, const struct message *message)
{
    struct cursor c = cursor_over(message->data, message->size);
    uint64_t version = cursor_uint(&c, 1);
    unsigned flags = (unsigned)cursor_uint(&c, 1);
    unsigned type = flags & HAS_TYPE ? (unsigned)cursor_uint(&c, 1) : 0;
    cursor_skip(&c, flags & HAS_ORDER ? 8 : 0);
    uint64_t characters = flags & HAS_CHARACTERS ? cursor_uint(&c, 1) : 0;
    c.failed |= version != 1 || flags & ~(unsigned)LINK_FLAGS || characters > 1;
    struct sfs_link link = {0};
    link.name = take_text(&c, cursor_uint(&c, 1u << (flags & NAME_SIZE_BITS)));
    take_value(reader, &c, type, &link);
    if (!c.failed)
        return add(reader, &link);
    free_link(&link);
    return why_unsupported(reader->why, "link message at address %" PRIu64, message->address);
}

/* libhdf5 would not find a link by its name whose hash is another. */
static int add_of_heap(void *context, const struct message *message, uint32_t hash)
{
    struct reader *reader = context;
    int error = add_message(reader, message);
    if (error)
        return error;
    const char *name = reader->links.link[reader->links.n - 1].name;
    return checksum(name, strlen(name)) == hash
               ? 0
               : why_damaged(reader->why, "link at address %" PRIu64 ": its hash",
                             message->address);
}

static int read_messages(struct reader *reader, const struct object_header *header,
                         const struct message *message)
{
    struct link_info info;
    int error = decode_info(reader, message, &info);
    if (!error && info.heap != NO_ADDRESS)
        return object_header_find(header, MESSAGE_LINK)
                   ? why_unsupported(reader->why, "links in two places")
                   : heap_links_each(reader->store, reader->superblock, &info, add_of_heap, reader,
                                     reader->why);
    for (size_t i = 0; i < header->n_messages && !error; i++)
        if (header->message[i].type == MESSAGE_LINK)
            error = add_message(reader, &header->message[i]);
    return error;
}

/* ---- */

static int compare(const void *a, const void *b)
{
    return strcmp(((const struct sfs_link *)a)->name, ((const struct sfs_link *)b)->name);
}

static int sort(struct reader *reader)
{
    struct sfs_links *links = &reader->links;
    if (links->n > 1)
        qsort(links->link, links->n, sizeof(*links->link), compare);
    for (size_t i = 1; i < links->n; i++)
        if (compare(&links->link[i - 1], &links->link[i]) == 0)
            return why_damaged(reader->why, "a group that has a name twice");
    return 0;
}

static int read_all(struct reader *reader, const struct object_header *header)
{
    const struct message *symbols = object_header_find(header, MESSAGE_SYMBOL_TABLE);
    const struct message *info = object_header_find(header, MESSAGE_LINK_INFO);
    bool has_messages = object_header_find(header, MESSAGE_LINK);
    if (!symbols == !info || (symbols && has_messages))
        return why_unsupported(reader->why, "object header at address %" PRIu64 ": no plain group",
                               header->block[0].address);
    int error = symbols ? read_symbols(reader, symbols) : read_messages(reader, header, info);
    return error ? error : sort(reader);
}

int links_read_blocks(struct store *store, const struct superblock *superblock,
                      const struct object_header *header, const struct plain_blocks *blocks,
                      struct sfs_links *links, struct why *why)
{
    struct reader reader = {.store = store, .superblock = superblock, .blocks = blocks, .why = why};
    int error = read_all(&reader, header);
    free(reader.names);
    if (error)
        links_free(&reader.links);
    else
        *links = reader.links;
    return error;
}

int links_read(struct store *store, const struct superblock *superblock,
               const struct object_header *header, struct sfs_links *links, struct why *why)
{
    return links_read_blocks(store, superblock, header, NULL, links, why);
}
