/* Reading fractal heaps. A heap is a range of offsets that its blocks divide: rows of `width`
 * blocks each, those of the first two rows of the smallest size, each row after them of twice the
 * one before; where blocks would be larger than direct ones may be, they are divided in turn. */
#include "format/fractal_heap.h"

#include <errno.h>
#include <inttypes.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "common/interrupt.h"
#include "format/cursor.h"
#include "format/structure.h"
#include "store/store.h"

#define NAME     "fractal heap"
#define FREE     "free space of a fractal heap"
#define DIRECT   "direct block of a fractal heap"
#define INDIRECT "indirect block of a fractal heap"

#define CHECKED_BLOCKS 0x02 /* the only flag of a heap: direct blocks have checksums */
#define MOST_OFFSET    62   /* bits */
#define MOST_LEVELS    16
#define MOST_BLOCKS    ((size_t)1 << 20)
#define MOST_BLOCK     ((uint64_t)1 << 24) /* bytes of a direct one */

struct heap_block {
    uint64_t offset, address; /* in the heap, in the file */
    uint64_t size;
    unsigned char *bytes; /* NULL: an indirect one */
};

struct fractal_heap {
    struct store *store;
    const struct superblock *superblock;
    uint64_t address;
    unsigned offset_bytes, length_bytes; /* of what names an object */
    uint64_t most_object;                /* bytes */
    uint64_t width, least, most_direct;  /* blocks of a row; sizes of blocks */
    unsigned offset_bits;
    uint64_t root;
    unsigned root_rows;  /* 0: it is a direct block */
    uint64_t free_space; /* what keeps it; or NO_ADDRESS */
    uint64_t left;       /* bytes that blocks may still have */
    size_t n;
    struct heap_block *block; /* direct ones, ascending by offset */
    size_t n_indirect;
    struct heap_block *indirect;
};

static bool is_power_of_two(uint64_t n)
{
    return n != 0 && (n & (n - 1)) == 0;
}

static unsigned log2_of(uint64_t n)
{
    return 63 - (unsigned)__builtin_clzll(n);
}

/* ---- Blocks ---- */

/* Where data, or entries, of a block begin: behind signature, version, the heap's address, and its
 * offset. */
static size_t block_begin(const struct fractal_heap *heap)
{
    return SIGNATURE_BYTES + 1 + heap->superblock->offset_size + heap->offset_bytes;
}

/* What a block begins with. */
struct heap_block_kind {
    const char *name, *signature;
};

static int check_begin(const struct fractal_heap *heap, const struct heap_block_kind *kind,
                       uint64_t address, uint64_t offset, const unsigned char *bytes,
                       struct why *why)
{
    int error = structure_signed(kind->name, address, bytes, kind->signature, why);
    if (error)
        return error;
    struct cursor c = cursor_over(bytes + SIGNATURE_BYTES, block_begin(heap) - SIGNATURE_BYTES);
    uint64_t version = cursor_uint(&c, 1), of = superblock_address(heap->superblock, &c);
    uint64_t at = cursor_uint(&c, heap->offset_bytes);
    if (c.failed || version != 0 || of != heap->address || at != offset)
        return why_damaged(why, "%s at address %" PRIu64 ": it is another's", kind->name, address);
    return 0;
}

static int read_block(struct fractal_heap *heap, const char *name, uint64_t address, uint64_t n,
                      unsigned char **bytes, struct why *why)
{
    int error = interrupt_check();
    if (!error)
        error = plain_within(heap->superblock, name, address, n, why);
    if (!error && n > heap->left)
        error = why_unsupported(why, "%s at address %" PRIu64 ": too many bytes", name, address);
    *bytes = error ? NULL : malloc((size_t)n);
    if (!*bytes)
        return error ? error : -ENOMEM;
    heap->left -= n;
    error = structure_read(heap->store, name, address, *bytes, (size_t)n, why);
    if (!error)
        return 0;
    free(*bytes);
    *bytes = NULL;
    return error;
}

/* Its checksum stands behind the offset, and is that of the block with zeros in its place. */
static int check_sum(const struct fractal_heap *heap, struct heap_block *block, struct why *why)
{
    unsigned char stored[CHECKSUM_BYTES];
    unsigned char *sum = block->bytes + block_begin(heap);
    unsigned char *all = malloc((size_t)block->size + CHECKSUM_BYTES);
    if (!all)
        return -ENOMEM;
    memcpy(stored, sum, CHECKSUM_BYTES);
    memset(sum, 0, CHECKSUM_BYTES);
    memcpy(all, block->bytes, (size_t)block->size);
    memcpy(all + block->size, stored, CHECKSUM_BYTES);
    int error =
        structure_summed(DIRECT, block->address, all, (size_t)block->size + CHECKSUM_BYTES, why);
    free(all);
    return error;
}

/* Doubles the room when it is full: it has as many as a power of 2, less 1. */
static int add_block(struct heap_block **blocks, size_t *n, const struct heap_block *block)
{
    if ((*n & (*n + 1)) == 0) {
        struct heap_block *more = reallocarray(*blocks, 2 * *n + 1, sizeof(*more));
        if (!more)
            return -ENOMEM;
        *blocks = more;
    }
    (*blocks)[(*n)++] = *block;
    return 0;
}

static int add_direct(struct fractal_heap *heap, uint64_t address, uint64_t offset, uint64_t size,
                      struct why *why)
{
    if (heap->n == MOST_BLOCKS || size <= block_begin(heap) + CHECKSUM_BYTES)
        return why_unsupported(why, DIRECT " at address %" PRIu64 ": its size", address);
    static const struct heap_block_kind direct = {DIRECT, "FHDB"};
    struct heap_block block = {offset, address, size, NULL};
    int error = read_block(heap, DIRECT, address, size, &block.bytes, why);
    if (!error)
        error = add_block(&heap->block, &heap->n, &block);
    if (error) {
        free(block.bytes);
        return error;
    }
    error = check_begin(heap, &direct, address, offset, block.bytes, why);
    return error ? error : check_sum(heap, &heap->block[heap->n - 1], why);
}

static int add_indirect(struct fractal_heap *heap, uint64_t address, uint64_t offset, unsigned rows,
                        int level, struct why *why);

/* Rows of the indirect block that divides so many bytes. */
static unsigned rows_of(const struct fractal_heap *heap, uint64_t size)
{
    return log2_of(size) - log2_of(heap->least * heap->width) + 1;
}

static int add_children(struct fractal_heap *heap, struct cursor *c, uint64_t offset, unsigned rows,
                        int level, struct why *why)
{
    int error = 0;
    for (unsigned row = 0; row < rows && !error; row++) {
        uint64_t size = heap->least << (row > 0 ? row - 1 : 0);
        for (uint64_t i = 0; i < heap->width && !error; i++, offset += size) {
            uint64_t child = superblock_address(heap->superblock, c);
            if (child == NO_ADDRESS)
                continue;
            if (size > heap->most_direct && size < heap->least * heap->width)
                return why_unsupported(why, NAME " at address %" PRIu64 ": rows", heap->address);
            error = size <= heap->most_direct
                        ? add_direct(heap, child, offset, size, why)
                        : add_indirect(heap, child, offset, rows_of(heap, size), level + 1, why);
        }
    }
    return !error && c->failed
               ? why_damaged(why, INDIRECT " of the heap at address %" PRIu64, heap->address)
               : error;
}

/* Whether that many rows lie within the offsets that the heap can have. */
static bool is_within(const struct fractal_heap *heap, unsigned rows)
{
    return rows > 0 && rows <= heap->offset_bits &&
           log2_of(heap->least * heap->width) + rows - 1 <= heap->offset_bits;
}

static int add_indirect(struct fractal_heap *heap, uint64_t address, uint64_t offset, unsigned rows,
                        int level, struct why *why)
{
    static const struct heap_block_kind indirect = {INDIRECT, "FHIB"};
    size_t begin = block_begin(heap);
    unsigned char *bytes;
    if (level > MOST_LEVELS || !is_within(heap, rows))
        return why_unsupported(why, INDIRECT " at address %" PRIu64 ": %u rows", address, rows);
    size_t n = begin + rows * (size_t)heap->width * heap->superblock->offset_size + CHECKSUM_BYTES;
    int error = read_block(heap, INDIRECT, address, n, &bytes, why);
    if (error)
        return error;
    error = structure_summed(INDIRECT, address, bytes, n, why);
    if (!error)
        error = check_begin(heap, &indirect, address, offset, bytes, why);
    if (!error)
        error = add_block(&heap->indirect, &heap->n_indirect,
                          &(struct heap_block){offset, address, n, NULL});
    if (!error) {
        struct cursor c = cursor_over(bytes + begin, n - begin - CHECKSUM_BYTES);
        error = add_children(heap, &c, offset, rows, level, why);
    }
    free(bytes);
    return error;
}

/* ---- The header ---- */

static unsigned bytes_for(uint64_t n)
{
    return log2_of(n) / 8 + 1;
}

/* Behind signature and version. */
static bool decode_header(struct fractal_heap *heap, struct cursor *c)
{
    const struct superblock *superblock = heap->superblock;
    unsigned length_size = superblock->length_size;
    uint64_t id_bytes = cursor_uint(c, 2), filters = cursor_uint(c, 2), flags = cursor_uint(c, 1);
    heap->most_object = cursor_uint(c, 4);
    cursor_skip(c, length_size + superblock->offset_size); /* huge objects */
    cursor_skip(c, length_size);
    heap->free_space = superblock_address(superblock, c);
    cursor_skip(c, 4 * length_size); /* what is in use */
    uint64_t others = 0;
    for (int i = 0; i < 4; i++) /* huge objects, and tiny ones: bytes and number */
        others |= cursor_uint(c, length_size);
    heap->width = cursor_uint(c, 2);
    heap->least = cursor_uint(c, length_size);
    heap->most_direct = cursor_uint(c, length_size);
    heap->offset_bits = (unsigned)cursor_uint(c, 2);
    cursor_skip(c, 2); /* rows that an indirect root begins with */
    heap->root = superblock_address(superblock, c);
    heap->root_rows = (unsigned)cursor_uint(c, 2);
    if (c->failed || filters != 0 || flags != CHECKED_BLOCKS || others != 0 ||
        !is_power_of_two(heap->width) || !is_power_of_two(heap->least) ||
        !is_power_of_two(heap->most_direct) || heap->least > heap->most_direct ||
        heap->most_direct > MOST_BLOCK || heap->width > MOST_BLOCK ||
        heap->offset_bits > MOST_OFFSET || heap->offset_bits < log2_of(heap->least) ||
        heap->most_object == 0)
        return false;
    unsigned block_bytes = (log2_of(heap->most_direct) + 7) / 8;
    heap->offset_bytes = (heap->offset_bits + 7) / 8;
    heap->length_bytes = bytes_for(heap->most_object);
    if (block_bytes < heap->length_bytes)
        heap->length_bytes = block_bytes;
    return id_bytes == 1 + heap->offset_bytes + heap->length_bytes;
}

static size_t header_bytes(const struct superblock *superblock)
{
    return 26 + 12 * (size_t)superblock->length_size + 3 * (size_t)superblock->offset_size;
}

static int read_header(struct fractal_heap *heap, struct why *why)
{
    const struct superblock *superblock = heap->superblock;
    unsigned char bytes[26 + 12 * 8 + 3 * 8];
    size_t n = header_bytes(superblock);
    int error = plain_within(superblock, NAME, heap->address, n, why);
    if (!error)
        error = structure_read(heap->store, NAME, heap->address, bytes, n, why);
    if (!error)
        error = structure_signed(NAME, heap->address, bytes, "FRHP", why);
    if (!error)
        error = structure_summed(NAME, heap->address, bytes, n, why);
    if (error)
        return error;
    struct cursor c = cursor_over(bytes + SIGNATURE_BYTES, n - SIGNATURE_BYTES - CHECKSUM_BYTES);
    if (cursor_uint(&c, 1) != 0 || !decode_header(heap, &c) || c.left != 0)
        return why_unsupported(why, NAME " at address %" PRIu64 ": not one of links or attributes",
                               heap->address);
    return 0;
}

int fractal_heap_open(struct store *store, const struct superblock *superblock, uint64_t address,
                      uint64_t most, struct fractal_heap **out, struct why *why)
{
    struct fractal_heap *heap = calloc(1, sizeof(*heap));
    if (!heap)
        return -ENOMEM;
    heap->store = store;
    heap->superblock = superblock;
    heap->address = address;
    heap->left = most;
    int error = read_header(heap, why);
    if (!error && heap->root != NO_ADDRESS)
        error = heap->root_rows > 0 ? add_indirect(heap, heap->root, 0, heap->root_rows, 0, why)
                                    : add_direct(heap, heap->root, 0, heap->least, why);
    if (error)
        fractal_heap_close(heap);
    else
        *out = heap;
    return error;
}

void fractal_heap_close(struct fractal_heap *heap)
{
    if (!heap)
        return;
    for (size_t i = 0; i < heap->n; i++)
        free(heap->block[i].bytes);
    free(heap->block);
    free(heap->indirect);
    free(heap);
}

/* ---- What it takes ---- */

/* The header of what keeps free space, and its sections (section III.H). */
static int tell_free_space(const struct fractal_heap *heap, const struct plain_blocks *blocks,
                           struct why *why)
{
    const struct superblock *superblock = heap->superblock;
    uint64_t address = heap->free_space;
    unsigned char bytes[18 + 7 * 8 + 8];
    size_t n = 18 + 7 * (size_t)superblock->length_size + superblock->offset_size;
    int error = plain_within(superblock, FREE, address, n, why);
    if (!error)
        error = structure_read(heap->store, FREE, address, bytes, n, why);
    if (!error)
        error = structure_signed(FREE, address, bytes, "FSHD", why);
    if (!error)
        error = structure_summed(FREE, address, bytes, n, why);
    if (error)
        return error;
    struct cursor c = cursor_over(bytes + SIGNATURE_BYTES, n - SIGNATURE_BYTES - CHECKSUM_BYTES);
    uint64_t version = cursor_uint(&c, 1), client = cursor_uint(&c, 1);
    cursor_skip(&c, 4 * superblock->length_size); /* bytes, and numbers of sections */
    cursor_skip(&c, 8);                           /* classes, when to shrink or expand, bits */
    cursor_skip(&c, superblock->length_size);     /* the largest section */
    uint64_t sections = superblock_address(superblock, &c);
    cursor_skip(&c, superblock->length_size); /* what of them is in use */
    uint64_t allocated = cursor_uint(&c, superblock->length_size);
    if (c.failed || c.left != 0 || version != 0 || client != 0)
        return why_unsupported(why, FREE " at address %" PRIu64, address);
    error = blocks->each(blocks->context, FREE, address, n);
    return !error && sections != NO_ADDRESS
               ? blocks->each(blocks->context, FREE, sections, allocated)
               : error;
}

static int tell_blocks(const struct plain_blocks *blocks, const char *name,
                       const struct heap_block *block, size_t n)
{
    int error = 0;
    for (size_t i = 0; i < n && !error; i++)
        error = blocks->each(blocks->context, name, block[i].address, block[i].size);
    return error;
}

int fractal_heap_each_block(const struct fractal_heap *heap, const struct plain_blocks *blocks,
                            struct why *why)
{
    int error = blocks->each(blocks->context, NAME, heap->address, header_bytes(heap->superblock));
    if (!error)
        error = tell_blocks(blocks, DIRECT, heap->block, heap->n);
    if (!error)
        error = tell_blocks(blocks, INDIRECT, heap->indirect, heap->n_indirect);
    return !error && heap->free_space != NO_ADDRESS ? tell_free_space(heap, blocks, why) : error;
}

/* ---- Objects ---- */

size_t fractal_heap_id_bytes(const struct fractal_heap *heap)
{
    return 1 + heap->offset_bytes + heap->length_bytes;
}

/* The block that an offset lies in; NULL: none. */
static const struct heap_block *block_of(const struct fractal_heap *heap, uint64_t offset)
{
    size_t low = 0, high = heap->n;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (heap->block[middle].offset <= offset)
            low = middle + 1;
        else
            high = middle;
    }
    const struct heap_block *block = low > 0 ? &heap->block[low - 1] : NULL;
    return block && offset - block->offset < block->size ? block : NULL;
}

int fractal_heap_find(const struct fractal_heap *heap, const unsigned char *id,
                      const unsigned char **object, size_t *n, uint64_t *address, struct why *why)
{
    struct cursor c = cursor_over(id, fractal_heap_id_bytes(heap));
    uint64_t kind = cursor_uint(&c, 1), offset = cursor_uint(&c, heap->offset_bytes);
    uint64_t length = cursor_uint(&c, heap->length_bytes);
    const struct heap_block *block = block_of(heap, offset);
    uint64_t at = block ? offset - block->offset : 0;
    if (kind != 0 || !block || at < block_begin(heap) + CHECKSUM_BYTES || length == 0 ||
        length > heap->most_object || length > block->size - at)
        return why_unsupported(why, NAME " at address %" PRIu64 ": no object at offset %" PRIu64,
                               heap->address, offset);
    *object = block->bytes + at;
    *n = (size_t)length;
    *address = block->address + at;
    return 0;
}
