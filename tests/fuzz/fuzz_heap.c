/* Variable-length data of structured chunks as an attacker writes it: what an element leads to lies
 * in the heap, and has the size that is asked for. The first byte is the size of the base type, the
 * second how many elements follow; the rest is the heap. With the first bit of the first byte it
 * gets the signature and version of the prototype's for free.
 *
 * Then a chunk that has these elements is changed, some of them are written and others erased, as
 * the bytes of the heap say: what it has then is what was written, and what was there before. */
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "common/pool.h"
#include "format/heap.h"
#include "format/structure.h"
#include "layout/heap_form.h"
#include "layout/layout.h"

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
        if (heap_find(heap, elements + i * HEAP_ELEMENT_BYTES, base_size, &sequence, &length,
                      &why)) {
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

/* What an element of a form leads to. -EILSEQ. */
static int find(const struct cache_form *form, uint64_t i, size_t base_size, const void **sequence,
                uint64_t *n)
{
    struct heap *heap;
    struct why why;
    size_t size = form->heap_size ? form->heap_size - CHECKSUM_BYTES : 0;
    int error = heap_open(form->heap, size, &heap, &why);
    if (error)
        return error;
    error = heap_find(heap, (char *)form->values + i * HEAP_ELEMENT_BYTES, base_size, sequence, n,
                      &why);
    heap_close(heap);
    return error;
}

/* Whether the elements of a form that are left are as they were, and those at positions as given.
 */
static void compare(const struct cache_form *old, const struct cache_form *form,
                    const struct runs *positions, const struct sfs_sequence *given,
                    size_t base_size)
{
    uint64_t used = 0, n, wanted_n;
    const void *got, *wanted;
    for (uint64_t at = 0; at < 256; at++) {
        bool is_new = runs_contain(positions, at), was = runs_contain(&old->defined, at);
        require(runs_contain(&form->defined, at) == (is_new ? given != NULL : was));
        if (!runs_contain(&form->defined, at))
            continue;
        require(find(form, runs_rank(&form->defined, at), base_size, &got, &n) == 0);
        if (is_new) {
            wanted = given[runs_rank(positions, at)].elements;
            wanted_n = given[runs_rank(positions, at)].n;
        } else {
            require(find(old, runs_rank(&old->defined, at), base_size, &wanted, &wanted_n) == 0);
        }
        require(n == wanted_n && (n == 0 || memcmp(got, wanted, n * base_size) == 0));
        used += n * base_size;
    }
    require((form->heap != NULL) == (used > 0));
    require(!form->heap_is_ours || form->heap_used == used);
}

/* A chunk of 256 elements, of which the first n_elements are defined. */
static void change(const unsigned char *heap, size_t n, const uint8_t *elements, size_t n_elements,
                   size_t base_size)
{
    struct layout layout = {.element_size = HEAP_ELEMENT_BYTES, .base_size = base_size};
    struct pool pool;
    pool_init(&pool, 0);
    struct cache_form old = {.has_defined = true, .has_values = true};
    old.value_size = n_elements * HEAP_ELEMENT_BYTES;
    old.values = pool_get(&pool, old.value_size);
    old.heap_size = n ? n + CHECKSUM_BYTES : 0;
    old.heap = n ? pool_get(&pool, old.heap_size) : NULL;
    require(n_elements == 0 || runs_append(&old.defined, 0, n_elements) == 0);
    memcpy(old.values, elements, old.value_size);
    if (n)
        memcpy(old.heap, heap, n);
    for (unsigned round = 0; round < 4; round++) {
        struct runs positions = {0};
        struct sfs_sequence given[256];
        size_t k = 0;
        for (unsigned at = n ? heap[round % n] : round; at < 256;
             at += 1 + (n ? heap[at % n] : 7)) {
            require(runs_append(&positions, at, at + 1) == 0);
            given[k++] = (struct sfs_sequence){.elements = elements,
                                               .n = old.value_size ? at % 32 / base_size : 0};
        }
        bool erases = round % 2;
        struct cache_form form;
        int error = k == 0 ? -1
                           : heap_form_write(&layout, &old, &positions, erases ? NULL : given,
                                             &pool, &form);
        if (!error) {
            compare(&old, &form, &positions, erases ? NULL : given, base_size);
            form_free(&old, &pool);
            old = form;
        }
        runs_free(&positions);
    }
    form_free(&old, &pool);
    pool_destroy(&pool);
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
    if (n_elements >= 2 && base_size <= 32)
        change(heap, given + size, elements, n_elements, base_size);
    free(heap);
    return 0;
}
