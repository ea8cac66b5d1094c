/* Variable-length data of structured chunks as an attacker writes it: what an element leads to lies
 * in the heap, and has the size that is asked for. The first byte is the size of the base type, the
 * second how many elements follow; the rest is the heap. With the first bit of the first byte it
 * gets the signature and version of the prototype's for free. */
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "format/heap.h"

static void require(bool condition)
{
    if (!condition)
        abort();
}

static void look_at(const unsigned char *heap_bytes, size_t n, const uint8_t *elements,
                    size_t n_elements, size_t base_size)
{
    struct heap *heap = NULL;
    struct why why = {""};
    int error = heap_open(heap_bytes, n, &heap, &why);
    if (error) {
        require(!heap && *why.text);
        return;
    }
    for (size_t i = 0; i < n_elements; i++) {
        const void *sequence;
        uint64_t length;
        why.text[0] = '\0';
        if (heap_find(heap, elements + i * HEAP_ELEMENT_BYTES, base_size, &sequence, &length, &why)) {
            require(*why.text);
            continue;
        }
        const unsigned char *at = sequence;
        require((at != NULL) == (length > 0));
        require(!at || (at >= heap_bytes && at <= heap_bytes + n &&
                        length <= (size_t)(heap_bytes + n - at) / base_size));
    }
    heap_close(heap);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const unsigned char head[] = {'H', 'G', 'L', 'S', 1, 0, 0, 0};
    if (size < 2)
        return 0;
    size_t base_size = 1 + data[0] / 2 % 16, n_elements = data[1];
    size_t given = data[0] & 1 ? sizeof(head) : 0;
    const uint8_t *elements = data + 2;
    size -= 2;
    if (size < n_elements * HEAP_ELEMENT_BYTES)
        return 0;
    size -= n_elements * HEAP_ELEMENT_BYTES;
    unsigned char *heap = malloc(given + size ? given + size : 1);
    if (!heap)
        abort();
    memcpy(heap, head, given);
    memcpy(heap + given, elements + n_elements * HEAP_ELEMENT_BYTES, size);
    look_at(heap, given + size, elements, n_elements, base_size);
    free(heap);
    return 0;
}
