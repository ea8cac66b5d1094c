/* Variable-length data of structured chunks as an attacker writes it: what an element leads to lies
 * in the heap, and has the size that is asked for. The first byte says what elements are: how many
 * slots they have, of what; the second how many elements follow; the rest is the heap. With the
 * first bit of the first byte it gets the signature and version of the prototype's for free.
 *
 * Then a chunk that has these elements is changed, some of them are written and others erased, as
 * the bytes of the heap say: what it has then is what was written, and what was there before. */
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "chunk/variable_form.h"
#include "common/memory_pool.h"
#include "format/section_heap.h"
#include "format/structure.h"
#include "format/variable_slots.h"
#include "layout/layout.h"

#define MOST_INNER 3 /* elements of a sequence that has slots */

/* Datatypes: a sequence; a byte and two sequences; a sequence of a byte and a sequence. */
struct shape {
    struct slots plain, inner, outer;
    struct slot inner_slot, outer_slots[2];
};

static void make_shape(struct shape *shape, unsigned kind, size_t base_size)
{
    *shape = (struct shape){.plain = {.size = base_size}};
    bool are_references = base_size == 1; /* bytes of them, of either kind */
    shape->plain.is_reference = are_references;
    shape->plain.reference = kind == 1 ? SFS_REFERENCE_OBJECT : SFS_REFERENCE_REGION;
    shape->inner_slot = (struct slot){1, &shape->plain};
    shape->inner = (struct slots){.size = 1 + HEAP_ELEMENT_BYTES,
                                  .n = 1,
                                  .slot = &shape->inner_slot,
                                  .has_references = are_references};
    size_t before = kind == 1;
    shape->outer = (struct slots){.size = before + (1 + before) * HEAP_ELEMENT_BYTES,
                                  .n = 1 + before,
                                  .slot = shape->outer_slots,
                                  .has_references = are_references};
    for (size_t k = 0; k < 1 + before; k++)
        shape->outer_slots[k] = (struct slot){before + k * HEAP_ELEMENT_BYTES,
                                              kind == 2 ? &shape->inner : &shape->plain};
}

static void require(bool condition)
{
    if (!condition)
        abort();
}

/* Bytes that a slot leads to. */
static int find_bytes(const struct heap *heap, const struct slots *base, const void *slot,
                      const void **stored, uint64_t *n, struct why *why)
{
    int error = heap_find(heap, slot, base->n ? 0 : base->size, stored, n, why);
    if (!error && base->n == 0)
        *n *= base->size;
    return error;
}

/* Of references: how many, and a sum over their bytes. */
struct met {
    uint64_t n, sum;
};

static int meet(void *context, enum sfs_reference reference, struct sfs_sequence *bytes)
{
    struct met *met = context;
    const unsigned char *byte = bytes->elements;
    met->n += 1 + (uint64_t)reference;
    for (uint64_t i = 0; i < bytes->n; i++)
        met->sum = met->sum * 31 + byte[i];
    return 0;
}

/* In memory there are the references that are stored. */
static void look_for_references(const struct slots *base, const void *stored, size_t n,
                                const void *elements, uint64_t n_elements)
{
    struct met in_heap = {0}, in_memory = {0};
    struct slot slot = {.base = base};
    const struct slots outer = {.size = HEAP_ELEMENT_BYTES,
                                .n = 1,
                                .slot = &slot,
                                .has_references = base->is_reference || base->has_references};
    const struct sfs_sequence sequence = {.elements = elements, .n = n_elements};
    require(slot_references(base, stored, n, meet, &in_heap) == 0);
    require(slots_references(&outer, &sequence, 1, meet, &in_memory) == 0);
    require(in_heap.n == in_memory.n && in_heap.sum == in_memory.sum);
}

/* What is stored is loaded, and what was loaded is stored as it was. */
static void load(const struct slots *base, const void *stored, size_t n)
{
    uint64_t elements;
    size_t bytes;
    struct why why = {""};
    if (slot_measure(base, stored, n, &elements, &bytes, &why)) {
        require(*why.text);
        return;
    }
    require(bytes <= SLOTS_FACTOR * n + 64);
    char *memory = calloc(1, bytes ? bytes : 1), *again = malloc(n ? n : 1);
    if (!memory || !again)
        abort();
    slot_load(base, stored, n, elements, memory, 0);
    slots_relocate(base, memory, elements, memory);
    look_for_references(base, stored, n, memory, elements);
    const struct sfs_sequence sequence = {.elements = memory, .n = elements};
    require(slot_stored_bytes(base, &sequence) == n);
    require(slot_store(base, &sequence, again) == again + n);
    require(n == 0 || memcmp(again, stored, n) == 0);
    free(memory);
    free(again);
}

static void look_at_slot(const struct heap *heap, const unsigned char *heap_bytes, size_t heap_n,
                         const struct slots *base, const void *slot)
{
    const void *stored;
    uint64_t n;
    struct why why = {""};
    if (find_bytes(heap, base, slot, &stored, &n, &why)) {
        require(*why.text);
        return;
    }
    const unsigned char *at = stored;
    require((at != NULL) == (n > 0));
    require(!at || (at >= heap_bytes && at <= heap_bytes + heap_n &&
                    n <= (size_t)(heap_bytes + heap_n - at)));
    if (n > 0)
        load(base, stored, (size_t)n);
}

static void look_at(const unsigned char *heap_bytes, size_t n, const uint8_t *elements,
                    size_t n_elements, const struct slots *slots)
{
    struct heap *heap = NULL;
    struct why why = {""};
    int error = heap_open(heap_bytes, n, &heap, &why);
    if (error) {
        require(!heap && *why.text);
        return;
    }
    for (size_t i = 0; i < n_elements; i++)
        for (size_t k = 0; k < slots->n; k++)
            look_at_slot(heap, heap_bytes, n, slots->slot[k].base,
                         elements + i * slots->size + slots->slot[k].at);
    heap_close(heap);
}

/* Bytes that the k-th slot of an element of a form leads to. -EILSEQ. */
static int find(const struct cache_form *form, uint64_t i, size_t k, const struct slots *slots,
                const void **stored, uint64_t *n)
{
    struct heap *heap;
    struct why why;
    size_t size = form->heap_size ? form->heap_size - CHECKSUM_BYTES : 0;
    int error = heap_open(form->heap, size, &heap, &why);
    if (error)
        return error;
    const char *slot = (char *)form->values + i * slots->size + slots->slot[k].at;
    error = find_bytes(heap, slots->slot[k].base, slot, stored, n, &why);
    heap_close(heap);
    return error;
}

/* The k-th slot of an element of a form leads to what the same of an old one does, or to what was
 * given. Returns how many bytes that are. */
static uint64_t compare_slot(const struct cache_form *form, uint64_t i, size_t k,
                             const struct slots *slots, const struct cache_form *old, uint64_t was,
                             const char *given)
{
    const void *got, *wanted = NULL;
    uint64_t n, wanted_n;
    char *made = NULL;
    require(find(form, i, k, slots, &got, &n) == 0);
    if (given) {
        struct sfs_sequence sequence = slot_get(given + slots->slot[k].at);
        wanted_n = slot_stored_bytes(slots->slot[k].base, &sequence);
        wanted = made = malloc(wanted_n ? wanted_n : 1);
        require(made && slot_store(slots->slot[k].base, &sequence, made) == made + wanted_n);
    } else {
        require(find(old, was, k, slots, &wanted, &wanted_n) == 0);
    }
    require(n == wanted_n && (n == 0 || memcmp(got, wanted, n) == 0));
    free(made);
    return n;
}

/* Whether the elements of a form that are left are as they were, and those at positions as given.
 */
static void compare(const struct cache_form *old, const struct cache_form *form,
                    const struct runs *positions, const char *given, const struct slots *slots)
{
    uint64_t used = 0;
    for (uint64_t at = 0; at < 256; at++) {
        bool is_new = runs_contain(positions, at), was = runs_contain(&old->defined, at);
        require(runs_contain(&form->defined, at) == (is_new ? given != NULL : was));
        if (!runs_contain(&form->defined, at))
            continue;
        for (size_t k = 0; k < slots->n; k++)
            used += compare_slot(form, runs_rank(&form->defined, at), k, slots, old,
                                 was ? runs_rank(&old->defined, at) : 0,
                                 is_new ? given + runs_rank(positions, at) * slots->size : NULL);
    }
    require((form->heap != NULL) == (used > 0));
    require(!form->heap_is_ours || form->heap_used == used);
}

/* An element whose sequences begin in data, of which there are 32 bytes. */
static void make_element(const struct slots *slots, unsigned number, const uint8_t *data,
                         char inner[MOST_INNER][1 + HEAP_ELEMENT_BYTES], char *element)
{
    memset(element, (int)number, slots->size);
    for (size_t k = 0; k < slots->n; k++) {
        const struct slots *base = slots->slot[k].base;
        if (base->n == 0) {
            slot_put(element + slots->slot[k].at, data, number % 32 / base->size);
            continue;
        }
        for (unsigned i = 0; i < MOST_INNER; i++) {
            inner[i][0] = (char)number;
            slot_put(inner[i] + 1, data, number * i % 32 / base->slot->base->size);
        }
        slot_put(element + slots->slot[k].at, inner, number % (MOST_INNER + 1));
    }
}

/* A chunk of 256 elements, of which the first n_elements are defined. */
static void change(const unsigned char *heap, size_t n, const uint8_t *elements, size_t n_elements,
                   const struct slots *slots)
{
    struct layout layout = {.element_size = slots->size, .slots = slots};
    static char given[256 * (1 + 2 * HEAP_ELEMENT_BYTES)];
    static char inner[256][MOST_INNER][1 + HEAP_ELEMENT_BYTES];
    struct pool pool;
    pool_init(&pool, 0);
    struct cache_form old = {.has_defined = true, .has_values = true};
    old.value_size = n_elements * slots->size;
    old.values = pool_get(&pool, old.value_size);
    old.heap_size = n ? n + CHECKSUM_BYTES : 0;
    old.heap = n ? pool_get(&pool, old.heap_size) : NULL;
    require(n_elements == 0 || runs_append(&old.defined, 0, n_elements) == 0);
    memcpy(old.values, elements, old.value_size);
    if (n)
        memcpy(old.heap, heap, n);
    for (unsigned round = 0; round < 4; round++) {
        struct runs positions = {0};
        size_t k = 0;
        for (unsigned at = n ? heap[round % n] : round; at < 256;
             at += 1 + (n ? heap[at % n] : 7)) {
            require(runs_append(&positions, at, at + 1) == 0);
            make_element(slots, at, elements, inner[k], given + k * slots->size);
            k++;
        }
        const char *written = round % 2 ? NULL : given;
        struct cache_form form;
        int error =
            k == 0 ? -1 : variable_form_write(&layout, &old, &positions, written, &pool, &form);
        if (!error) {
            compare(&old, &form, &positions, written, slots);
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
    struct shape shape;
    make_shape(&shape, data[0] / 32 % 3, 1 + data[0] / 2 % 16);
    size_t n_elements = data[1], given = data[0] & 1 ? sizeof(head) : 0;
    const uint8_t *elements = data + 2;
    size -= 2;
    if (size < n_elements * shape.outer.size)
        return 0;
    size -= n_elements * shape.outer.size;
    unsigned char *heap = malloc(given + size ? given + size : 1);
    if (!heap)
        abort();
    memcpy(heap, head, given);
    memcpy(heap + given, elements + n_elements * shape.outer.size, size);
    look_at(heap, given + size, elements, n_elements, &shape.outer);
    if (n_elements >= 2)
        change(heap, given + size, elements, n_elements, &shape.outer);
    free(heap);
    return 0;
}
