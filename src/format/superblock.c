/* Reading the superblock, and rewriting where the file ends. */
#include "format/superblock.h"

#include <errno.h>
#include <inttypes.h>
#include <string.h>

#include "format/checksum.h"
#include "format/cursor.h"
#include "format/output.h"
#include "format/structure.h"
#include "store/store.h"

#define VERSION_AT         8 /* behind the signature */
#define FLAGS_AT           11
#define OPEN_FOR_WRITING   0x01
#define SINGLE_WRITER_OPEN 0x04

/* Of a file whose superblock has no place for them. */
#define DEFAULT_LEAF_K     4
#define DEFAULT_INTERNAL_K 16
#define DEFAULT_CHUNK_K    32

#define CACHED_GROUP 1 /* with the root's entry: nothing, or where its links are */

#define NAME    "superblock"
#define LONGEST 104 /* version 1 with addresses of 8 bytes, up to the entry of the root */

int superblock_is_marked(const unsigned char bytes[SUPERBLOCK_BYTES])
{
    return bytes[VERSION_AT] >= 3 &&
           (bytes[FLAGS_AT] & (OPEN_FOR_WRITING | SINGLE_WRITER_OPEN)) != 0;
}

bool superblock_is_swmr(const unsigned char bytes[SUPERBLOCK_BYTES])
{
    return bytes[VERSION_AT] >= 3 && (bytes[FLAGS_AT] & SINGLE_WRITER_OPEN) != 0;
}

struct store_mark superblock_swmr_mark(const struct superblock *superblock)
{
    return (struct store_mark){superblock->address + FLAGS_AT, SINGLE_WRITER_OPEN};
}

uint64_t superblock_address(const struct superblock *superblock, struct cursor *cursor)
{
    uint64_t address = cursor_all_ones(cursor, superblock->offset_size);
    if (address == NO_ADDRESS)
        return NO_ADDRESS;
    if (__builtin_add_overflow(address, superblock->base, &address) || address == NO_ADDRESS)
        cursor->failed = true;
    return address;
}

bool superblock_address_fits(const struct superblock *superblock, uint64_t address)
{
    uint64_t undefined = UINT64_MAX >> (64 - 8 * superblock->offset_size);
    return address == NO_ADDRESS ||
           (address >= superblock->base && address - superblock->base < undefined);
}

void superblock_put_address(const struct superblock *superblock, struct output *output,
                            uint64_t address)
{
    output_uint(output, address == NO_ADDRESS ? NO_ADDRESS : address - superblock->base,
                superblock->offset_size);
}

/* It begins at 0, 512, 1024, 2048, ... */
static int find(struct store *store, uint64_t *address, struct why *why)
{
    static const unsigned char signature[8] = {0x89, 'H', 'D', 'F', '\r', '\n', 0x1a, '\n'};
    uint64_t size = store_size(store);
    for (uint64_t at = 0; at < size && size - at >= sizeof(signature); at = at ? 2 * at : 512) {
        unsigned char bytes[sizeof(signature)];
        int error = structure_read(store, NAME, at, bytes, sizeof(bytes), why);
        if (error)
            return error;
        if (memcmp(bytes, signature, sizeof(bytes)) == 0) {
            *address = at;
            return 0;
        }
        if (at > UINT64_MAX / 2)
            break;
    }
    return why_damaged(why, NAME ": no signature of HDF5");
}

static int decode_sizes(struct superblock *s, struct cursor *c, struct why *why)
{
    s->offset_size = (unsigned)cursor_uint(c, 1);
    s->length_size = (unsigned)cursor_uint(c, 1);
    if (s->offset_size != 2 && s->offset_size != 4 && s->offset_size != 8)
        return why_damaged(why, NAME " at address %" PRIu64 ": size of offsets %u", s->address,
                           s->offset_size);
    if (s->length_size != 2 && s->length_size != 4 && s->length_size != 8)
        return why_damaged(why, NAME " at address %" PRIu64 ": size of lengths %u", s->address,
                           s->length_size);
    return 0;
}

/* Versions 0 and 1, behind the version. They have no checksum. */
static int decode_old(struct superblock *s, struct cursor *c, struct why *why)
{
    s->has_more = cursor_uint(c, 4) != 0; /* other versions */
    int error = decode_sizes(s, c, why);
    if (error)
        return error;
    cursor_skip(c, 1);
    s->leaf_k = (unsigned)cursor_uint(c, 2);
    s->internal_k = (unsigned)cursor_uint(c, 2);
    s->has_more |= cursor_uint(c, 4) != 0; /* flags */
    s->chunk_k = DEFAULT_CHUNK_K;
    if (s->version == 1) {
        s->chunk_k = (unsigned)cursor_uint(c, 2);
        s->has_more |= s->chunk_k == 0 || cursor_uint(c, 2) != 0;
    }
    s->extension = NO_ADDRESS;
    s->base = cursor_uint(c, s->offset_size);
    s->has_more |= cursor_all_ones(c, s->offset_size) != NO_ADDRESS; /* free space */
    s->end = cursor_uint(c, s->offset_size);
    s->has_more |= cursor_all_ones(c, s->offset_size) != NO_ADDRESS; /* driver information */
    cursor_skip(c, s->length_size);                                  /* name of the root */
    return 0;
}

/* Versions 2 and 3, behind the version. */
static int decode_new(struct superblock *s, struct cursor *c, const unsigned char *bytes,
                      struct why *why)
{
    int error = decode_sizes(s, c, why);
    if (error)
        return error;
    s->flags = (unsigned)cursor_uint(c, 1);
    s->leaf_k = DEFAULT_LEAF_K;
    s->internal_k = DEFAULT_INTERNAL_K;
    s->chunk_k = DEFAULT_CHUNK_K;
    s->base = cursor_uint(c, s->offset_size);
    s->extension = cursor_all_ones(c, s->offset_size);
    s->has_more = s->flags != 0;
    s->end = cursor_uint(c, s->offset_size);

    size_t summed = 12 + 4 * s->offset_size;
    struct cursor sum = *c;
    cursor_skip(&sum, s->offset_size); /* the root's address, which the caller reads */
    uint32_t stored = (uint32_t)cursor_uint(&sum, 4);
    if (sum.failed)
        return why_damaged(why, NAME " at address %" PRIu64 ": it is cut short", s->address);
    if (stored != checksum(bytes, summed))
        return why_damaged(why, NAME " at address %" PRIu64 ": wrong checksum", s->address);
    return 0;
}

/* Addresses count from where the superblock lies, whatever it says that they count from: something
 * may have been put before the file, or taken away. The end moves with it, as in libhdf5. */
static int rebase(struct superblock *s, struct why *why)
{
    uint64_t stored = s->base;
    s->base = s->address;
    s->is_moved = stored != s->base;
    if (stored > s->base ? s->end < stored - s->base
                         : __builtin_add_overflow(s->end, s->base - stored, &s->end))
        return why_damaged(why,
                           NAME " at address %" PRIu64 ": base address %" PRIu64
                                " lies beyond the end of the file",
                           s->address, stored);
    if (stored > s->base)
        s->end -= stored - s->base;
    return 0;
}

int superblock_read(struct store *store, struct superblock *superblock, struct why *why)
{
    struct superblock s = {0};
    int error = find(store, &s.address, why);
    if (error)
        return error;
    unsigned char bytes[LONGEST];
    uint64_t left = store_size(store) - s.address;
    size_t n = left < LONGEST ? (size_t)left : LONGEST;
    error = structure_read(store, NAME, s.address, bytes, n, why);
    if (error)
        return error;

    struct cursor c = cursor_over(bytes, n);
    cursor_skip(&c, VERSION_AT);
    s.version = (unsigned)cursor_uint(&c, 1);
    if (s.version > 3)
        return why_damaged(why, NAME " at address %" PRIu64 ": version %u", s.address, s.version);
    error = s.version < 2 ? decode_old(&s, &c, why) : decode_new(&s, &c, bytes, why);
    if (error)
        return error;
    error = rebase(&s, why);
    if (error)
        return error;
    if (s.extension != NO_ADDRESS && __builtin_add_overflow(s.extension, s.base, &s.extension))
        c.failed = true;
    s.root = superblock_address(&s, &c);
    struct cursor rest = c; /* of the root's entry: what is kept with it */
    s.has_more |= s.version < 2 && cursor_uint(&rest, 4) > CACHED_GROUP;
    if (c.failed)
        return why_damaged(why, NAME " at address %" PRIu64 ": it is cut short", s.address);
    if (s.root >= store_size(store))
        return why_damaged(
            why, NAME " at address %" PRIu64 ": the root group lies beyond the end of the file",
            s.address);
    *superblock = s;
    return 0;
}

/* In old versions sizes of B-tree nodes and flags stand before the addresses. */
static size_t addresses_at(const struct superblock *superblock)
{
    return superblock->version >= 2 ? 12 : superblock->version == 1 ? 28 : 24;
}

/* Bytes up to the end, or of all of it with its checksum. */
static size_t bytes_up_to_end(const struct superblock *superblock)
{
    bool old = superblock->version < 2;
    return addresses_at(superblock) + (old ? 3 : 4) * superblock->offset_size +
           (old ? 0 : CHECKSUM_BYTES);
}

/* The end counts from the beginning of the file, not from the base. */
static void put_base_and_end(const struct superblock *superblock, unsigned char *bytes,
                             uint64_t base, uint64_t end)
{
    unsigned offset_size = superblock->offset_size;
    unsigned char *addresses = bytes + addresses_at(superblock);
    struct output output = output_over(addresses, offset_size);
    output_uint(&output, base, offset_size);
    output = output_over(addresses + 2 * offset_size, offset_size);
    output_uint(&output, end, offset_size);
}

int superblock_set_end(struct store *store, struct superblock *superblock, uint64_t end)
{
    unsigned char bytes[LONGEST];
    bool old = superblock->version < 2;
    unsigned offset_size = superblock->offset_size;
    size_t n = bytes_up_to_end(superblock);
    if (end > UINT64_MAX >> (64 - 8 * offset_size))
        return -EFBIG;
    int error = store_read(store, superblock->address, bytes, n);
    if (error)
        return error;
    put_base_and_end(superblock, bytes, superblock->base, end);
    if (!old) {
        bytes[FLAGS_AT] &= (unsigned char)~(OPEN_FOR_WRITING | SINGLE_WRITER_OPEN);
        structure_sum(bytes, n);
    }
    /* libhdf5's file may be closed: it is to be opened again whatever the disk says now. */
    error = store_write_or_keep(store, superblock->address, bytes, n);
    if (error)
        return error;
    superblock->end = end;
    superblock->is_moved = false;
    if (!old)
        superblock->flags = bytes[FLAGS_AT];
    return 0;
}

void superblock_drop_user_block(const struct superblock *superblock, unsigned char *bytes, size_t n)
{
    if (n < bytes_up_to_end(superblock))
        return;
    put_base_and_end(superblock, bytes, 0, superblock->end - superblock->address);
    if (superblock->version >= 2)
        structure_sum(bytes, bytes_up_to_end(superblock));
}
