#include "format/section_heap.h"

#include <errno.h>
#include <inttypes.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "common/growing_array.h"
#include "common/size.h"
#include "format/cursor.h"
#include "format/output.h"

#define SET_SIGNATURE        "HGLS"
#define COLLECTION_SIGNATURE "GCOL"
#define SIGNATURE_BYTES      4
#define LENGTH_BYTES         8 /* of offsets and lengths, as elements of 16 bytes imply */
#define MOST_SLOTS           65536
#define OBJECT_BYTES         16 /* before the data of an object */
#define PADDED_TO            8
#define SET_FACTOR           5 /* of a set in memory: itself, and its objects while these become more */

/* Of all collections of a set, in the order of slots and numbers. */
struct object {
    uint32_t slot, number;
    uint64_t offset, n; /* of its data, in the heap */
};

struct heap {
    const unsigned char *bytes;
    size_t n;
    bool is_set;
    size_t n_objects, room;
    struct object *object;
};

static int compare(const void *a, const void *b)
{
    const struct object *left = a, *right = b;
    if (left->slot != right->slot)
        return left->slot < right->slot ? -1 : 1;
    return left->number < right->number ? -1 : left->number > right->number;
}

static bool is_set(const void *bytes, size_t n)
{
    return n >= SIGNATURE_BYTES && memcmp(bytes, SET_SIGNATURE, SIGNATURE_BYTES) == 0;
}

size_t heap_most_bytes(const void *bytes, size_t n)
{
    return is_set(bytes, n) ? size_product(n, SET_FACTOR) : n;
}

static bool take_head(struct cursor *cursor, const char *signature)
{
    const unsigned char *bytes = cursor_bytes(cursor, SIGNATURE_BYTES);
    return bytes && memcmp(bytes, signature, SIGNATURE_BYTES) == 0 && cursor_uint(cursor, 1) == 1 &&
           cursor_uint(cursor, 3) == 0 && !cursor->failed;
}

/* For each OBJECT_BYTES of the set there is no more than one. */
static int add(struct heap *heap, const struct object *object)
{
    struct object *grown = room_for_one(heap->object, heap->n_objects, &heap->room, sizeof(*grown));
    if (!grown)
        return -ENOMEM;
    heap->object = grown;
    heap->object[heap->n_objects++] = *object;
    return 0;
}

/* One object of a collection. Its free space has the number 0, and lies behind all others; if there
 * is less of it than an object takes it has no head. */
static int take_object(struct heap *heap, struct cursor *cursor, uint32_t slot, struct why *why)
{
    bool is_rest = cursor->left < OBJECT_BYTES;
    struct object object = {.slot = slot, .number = (uint32_t)cursor_uint(cursor, 2)};
    if (is_rest || object.number == 0) {
        cursor->left = 0;
        return 0;
    }
    cursor_skip(cursor, 6); /* how often it is referred to, zeros */
    object.n = cursor_uint(cursor, LENGTH_BYTES);
    object.offset = (uint64_t)(cursor->at - heap->bytes);
    if (object.n > cursor->left)
        return why_damaged(why, "an object of its variable-length data reaches over its end");
    uint64_t padding = (PADDED_TO - object.n % PADDED_TO) % PADDED_TO;
    cursor_skip(cursor, object.n);
    cursor_skip(cursor, padding < cursor->left ? padding : cursor->left);
    return add(heap, &object);
}

/* A global heap collection (HDF5 File Format Specification, III.E). */
static int take_collection(struct heap *heap, struct cursor *cursor, uint32_t slot, struct why *why)
{
    size_t n = cursor->left;
    int error = 0;
    if (!take_head(cursor, COLLECTION_SIGNATURE) || cursor_uint(cursor, LENGTH_BYTES) != n ||
        cursor->failed)
        return why_damaged(why, "collection %" PRIu32 " of its variable-length data is none", slot);
    while (cursor->left > 0 && !error)
        error = take_object(heap, cursor, slot, why);
    return error;
}

static int take_set(struct heap *heap, struct why *why)
{
    struct cursor cursor = cursor_over(heap->bytes, heap->n);
    int error = 0;
    uint64_t end = 0;
    bool is_set = take_head(&cursor, SET_SIGNATURE);
    uint64_t n_slots = cursor_uint(&cursor, 4);
    if (!is_set || cursor.failed || n_slots > MOST_SLOTS)
        return why_damaged(why, "the head of its variable-length data is damaged");
    for (uint32_t slot = 0; slot < n_slots && !error; slot++) {
        uint64_t offset = cursor_uint(&cursor, LENGTH_BYTES),
                 n = cursor_uint(&cursor, LENGTH_BYTES);
        if (cursor.failed || offset > heap->n || n > heap->n - offset || (n > 0 && offset < end))
            return why_damaged(why,
                               "collection %" PRIu32 " of its variable-length data lies outside, "
                               "or over another one",
                               slot);
        if (n == 0)
            continue;
        struct cursor inner = cursor_over(heap->bytes + offset, (size_t)n);
        error = take_collection(heap, &inner, slot, why);
        end = offset + n;
    }
    return error;
}

/* Sorts the objects, if they are not, and refuses those that are there twice. */
static int sort(struct heap *heap, struct why *why)
{
    bool is_sorted = true;
    for (size_t i = 1; i < heap->n_objects; i++)
        is_sorted &= compare(&heap->object[i - 1], &heap->object[i]) < 0;
    if (is_sorted)
        return 0;
    qsort(heap->object, heap->n_objects, sizeof(*heap->object), compare);
    for (size_t i = 1; i < heap->n_objects; i++)
        if (compare(&heap->object[i - 1], &heap->object[i]) == 0)
            return why_damaged(why, "object %" PRIu32 " of its variable-length data is there twice",
                               heap->object[i].number);
    return 0;
}

/* Read as the RFC's number of unused bytes a signature would be 1.4 GB of them. */
int heap_open(const void *bytes, size_t n, struct heap **out, struct why *why)
{
    struct heap *heap = calloc(1, sizeof(*heap));
    if (!heap)
        return -ENOMEM;
    heap->bytes = bytes;
    heap->n = n;
    heap->is_set = is_set(bytes, n);
    int error = 0;
    struct cursor cursor = cursor_over(bytes, n);
    if (heap->is_set)
        error = take_set(heap, why);
    else if (n > 0 && (n < HEAP_COUNT_BYTES ||
                       cursor_uint(&cursor, HEAP_COUNT_BYTES) > n - HEAP_COUNT_BYTES))
        error = why_damaged(why, "more of its variable-length data is unused than there is");
    if (!error)
        error = sort(heap, why);
    if (error)
        heap_close(heap);
    else
        *out = heap;
    return error;
}

void heap_close(struct heap *heap)
{
    if (!heap)
        return;
    free(heap->object);
    free(heap);
}

static int find_in_set(const struct heap *heap, struct cursor *element, size_t base_size,
                       const void **sequence, uint64_t *n, struct why *why)
{
    uint64_t length = cursor_uint(element, 4);
    const struct object wanted = {.slot = (uint32_t)cursor_uint(element, 2),
                                  .number = (uint32_t)cursor_uint(element, 2)};
    if (length == 0)
        return 0;
    if (base_size == 0)
        return why_damaged(why, "sequences in sequences are not known of the prototype");
    const struct object *object =
        heap->n_objects > 0
            ? bsearch(&wanted, heap->object, heap->n_objects, sizeof(wanted), compare)
            : NULL;
    if (!object)
        return why_damaged(why,
                           "an element leads to object %" PRIu32 " of collection %" PRIu32
                           " of its variable-length data, which there is not",
                           wanted.number, wanted.slot);
    if (object->n / base_size != length || object->n % base_size != 0)
        return why_damaged(why,
                           "an element has a sequence of %" PRIu64 ", and not of %" PRIu64
                           " bytes of variable-length data",
                           object->n, length * base_size);
    *sequence = heap->bytes + object->offset;
    *n = length;
    return 0;
}

int heap_find(const struct heap *heap, const void *element, size_t base_size, const void **sequence,
              uint64_t *n, struct why *why)
{
    struct cursor cursor = cursor_over(element, HEAP_ELEMENT_BYTES);
    *sequence = NULL;
    *n = 0;
    if (heap->is_set)
        return find_in_set(heap, &cursor, base_size, sequence, n, why);
    uint64_t offset = cursor_uint(&cursor, 8), bytes = cursor_uint(&cursor, 8);
    if (bytes == 0 && (offset == 0 || heap->n > 0))
        return 0;
    if (offset < HEAP_COUNT_BYTES || offset > heap->n || bytes > heap->n - offset ||
        (base_size > 0 && bytes % base_size != 0))
        return why_damaged(why,
                           "an element leads to %" PRIu64 " bytes at %" PRIu64
                           " of its variable-length data, which has %zu",
                           bytes, offset, heap->n);
    *sequence = heap->bytes + offset;
    *n = base_size > 0 ? bytes / base_size : bytes;
    return 0;
}

void heap_put_element(void *element, uint64_t offset, uint64_t bytes)
{
    struct output output = output_over(element, HEAP_ELEMENT_BYTES);
    output_uint(&output, offset, 8);
    output_uint(&output, bytes, 8);
}

void heap_get_element(const void *element, uint64_t *offset, uint64_t *bytes)
{
    struct cursor cursor = cursor_over(element, HEAP_ELEMENT_BYTES);
    *offset = cursor_uint(&cursor, 8);
    *bytes = cursor_uint(&cursor, 8);
}

void heap_put_unused(void *heap, uint32_t unused)
{
    struct output output = output_over(heap, HEAP_COUNT_BYTES);
    output_uint(&output, unused, HEAP_COUNT_BYTES);
}
