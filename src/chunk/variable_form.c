/* Merging packed values that lead into heaps, and making the heap that the merged ones lead into. */
#include "chunk/variable_form.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "common/memory_pool.h"
#include "common/size.h"
#include "format/section_heap.h"
#include "format/structure.h"
#include "format/variable_slots.h"
#include "layout/layout.h"

/* The heap is made without what is unused when that is more than this share of it. It is copied in
 * any case, so that this costs little then; what is left costs bytes of the file. */
#define UNUSED_SHARE 4

_Static_assert(sizeof(struct sfs_sequence) == HEAP_ELEMENT_BYTES,
               "packed values of either kind have the same size");

/* What a chunk that changes is made of. */
struct making {
    const struct slots *slots;
    const struct cache_form *old;
    const unsigned char *old_heap;
    size_t old_end;       /* bytes of it without its checksum; of none HEAP_COUNT_BYTES */
    const char *elements; /* with slots as they are in memory */
    uint64_t n;           /* of them */
    size_t added;         /* bytes of all that they lead to */
};

/* Of elements, or values: the k-th slot of the i-th. */
static size_t place_of(const struct slots *slots, uint64_t i, size_t k)
{
    return (size_t)i * slots->size + slots->slot[k].at;
}

size_t variable_form_added(const struct layout *layout, const void *elements, uint64_t n)
{
    const struct slots *slots = layout->slots;
    size_t added = 0;
    for (uint64_t i = 0; i < n; i++) {
        for (size_t k = 0; k < slots->n; k++) {
            const char *slot = (const char *)elements + place_of(slots, i, k);
            struct sfs_sequence sequence = slot_get(slot);
            added = size_sum(added, slot_stored_bytes(slots->slot[k].base, &sequence));
        }
    }
    return added;
}

size_t variable_form_bytes(const struct layout *layout, size_t old_bytes, uint64_t n, size_t added)
{
    size_t values = size_product(layout->element_size, size_of(n));
    size_t bytes = size_sum(size_product(old_bytes, 2), size_product(values, 2));
    return size_sum(bytes, size_sum(pool_block_size(added), (size_t)4 * HEAP_ELEMENT_BYTES));
}

/* A slot of old as one that leads to an offset in its heap, in place. */
static int plain_slot(const struct making *making, const struct heap *heap,
                      const struct slots *base, char *slot)
{
    struct why why;
    const void *sequence;
    uint64_t n;
    size_t size = base->n ? 1 : base->size;
    int error = heap_find(heap, slot, base->n ? 0 : size, &sequence, &n, &why);
    if (error)
        return error;
    uint64_t offset = n ? (uint64_t)((const unsigned char *)sequence - making->old_heap) : 0;
    heap_put_element(slot, offset, n * size);
    return 0;
}

/* The same of all slots of old, whichever of the two forms it has. -EILSEQ: one leads out of it. */
static int plain_values(const struct making *making, const struct heap *heap, char *values)
{
    const struct slots *slots = making->slots;
    int error = 0;
    for (uint64_t i = 0; i < making->old->defined.elements && !error; i++)
        for (size_t k = 0; k < slots->n && !error; k++)
            error = plain_slot(making, heap, slots->slot[k].base, values + place_of(slots, i, k));
    return error;
}

/* The values of old, or a copy of them, that lead to offsets in its heap. They are given back, and
 * nothing else, by give_old. */
static int take_old(const struct making *making, struct pool *pool, struct cache_form *plain)
{
    const struct cache_form *old = making->old;
    struct heap *heap;
    struct why why;
    *plain = *old;
    if (old->value_size == 0 || old->heap_is_ours)
        return 0;
    plain->values = pool_get(pool, old->value_size);
    if (!plain->values)
        return -ENOMEM;
    memcpy(plain->values, old->values, old->value_size);
    size_t n = making->old_heap ? making->old_end : 0;
    int error = heap_open(making->old_heap, n, &heap, &why);
    if (!error) {
        error = plain_values(making, heap, plain->values);
        heap_close(heap);
    }
    return error;
}

static void give_old(const struct making *making, struct pool *pool, const struct cache_form *plain)
{
    if (plain->values != making->old->values)
        pool_put(pool, plain->values, plain->value_size);
}

/* The new elements, as if what they lead to lay behind all that the old heap has. The caller gives
 * them back to the pool. -EINVAL. */
static int make_elements(const struct making *making, struct pool *pool, char **elements)
{
    const struct slots *slots = making->slots;
    size_t bytes = (size_t)making->n * slots->size, at = making->old_end;
    char *made = pool_get(pool, bytes);
    if (!made)
        return -ENOMEM;
    memcpy(made, making->elements, bytes);
    for (uint64_t i = 0; i < making->n; i++) {
        for (size_t k = 0; k < slots->n; k++) {
            char *slot = made + place_of(slots, i, k);
            struct sfs_sequence sequence = slot_get(slot);
            size_t here = slot_stored_bytes(slots->slot[k].base, &sequence);
            heap_put_element(slot, here ? at : 0, here);
            at += here;
        }
    }
    *elements = made;
    return 0;
}

/* Bytes that the values first to last - 1 lead to, however often. */
static uint64_t used_bytes(const struct slots *slots, const struct cache_form *form, uint64_t first,
                           uint64_t last)
{
    uint64_t used = 0, offset, bytes;
    const char *values = form->values;
    for (uint64_t i = first; i < last; i++) {
        for (size_t k = 0; k < slots->n; k++) {
            heap_get_element(values + place_of(slots, i, k), &offset, &bytes);
            if (__builtin_add_overflow(used, bytes, &used))
                return UINT64_MAX;
        }
    }
    return used;
}

/* One of the new slots. */
struct next {
    uint64_t element;
    size_t slot;
};

/* Stores the sequence of the next of the new slots that has one. */
static void store_next(const struct making *making, struct next *next, char *to)
{
    const struct slots *slots = making->slots;
    size_t stored = 0;
    while (stored == 0) {
        const char *slot = making->elements + place_of(slots, next->element, next->slot);
        const struct slots *base = slots->slot[next->slot].base;
        struct sfs_sequence sequence = slot_get(slot);
        stored = (size_t)(slot_store(base, &sequence, to) - to);
        if (++next->slot == slots->n)
            *next = (struct next){next->element + 1, 0};
    }
}

/* Copies what a slot leads to, at the end of a heap. */
static void gather_slot(const struct making *making, char *slot, struct next *next,
                        unsigned char *heap, uint64_t *end)
{
    uint64_t offset, bytes;
    heap_get_element(slot, &offset, &bytes);
    if (bytes == 0)
        return;
    if (offset < making->old_end)
        memcpy(heap + *end, making->old_heap + offset, (size_t)bytes);
    else
        store_next(making, next, (char *)heap + *end);
    heap_put_element(slot, *end, bytes);
    *end += bytes;
}

/* Copies what the values of a form lead to, one after the other. */
static void gather(const struct making *making, struct cache_form *form, unsigned char *heap)
{
    const struct slots *slots = making->slots;
    uint64_t end = HEAP_COUNT_BYTES;
    struct next next = {0};
    char *values = form->values;
    for (uint64_t i = 0; i < form->defined.elements; i++)
        for (size_t k = 0; k < slots->n; k++)
            gather_slot(making, values + place_of(slots, i, k), &next, heap, &end);
}

/* The old heap and what is new behind it. */
static void append(const struct making *making, unsigned char *heap)
{
    if (making->old_heap)
        memcpy(heap, making->old_heap, making->old_end);
    const struct slots *slots = making->slots;
    char *at = (char *)heap + making->old_end;
    for (uint64_t i = 0; i < making->n; i++) {
        for (size_t k = 0; k < slots->n; k++) {
            const char *slot = making->elements + place_of(slots, i, k);
            struct sfs_sequence sequence = slot_get(slot);
            at = slot_store(slots->slot[k].base, &sequence, at);
        }
    }
}

/* The bytes that all values of a form lead to that old, of which these positions go, has become. */
static uint64_t used_now(const struct making *making, const struct runs *positions,
                         const struct cache_form *form)
{
    const struct cache_form *old = making->old;
    uint64_t gone = 0;
    if (!old->heap_is_ours)
        return used_bytes(making->slots, form, 0, form->defined.elements);
    for (size_t i = 0; i < positions->n; i++) {
        struct run run = runs_at(positions, i);
        gone += used_bytes(making->slots, old, runs_rank(&old->defined, run.first),
                           runs_rank(&old->defined, run.last));
    }
    return old->heap_used - gone + making->added;
}

/* Makes the heap of a form that has its elements. What several elements lead to, as files of others
 * may have it, is not taken apart. */
static int make_heap(const struct making *making, const struct runs *positions, struct pool *pool,
                     struct cache_form *form)
{
    uint64_t used = used_now(making, positions, form);
    size_t all = making->old_end - HEAP_COUNT_BYTES + making->added;
    form->heap_is_ours = used <= all;
    form->heap_used = (size_t)used;
    if (used == 0)
        return 0;
    uint64_t unused = used < all ? all - used : 0;
    bool gathers = unused > all / UNUSED_SHARE || unused > UINT32_MAX;
    size_t n = HEAP_COUNT_BYTES + (gathers ? (size_t)used : all) + CHECKSUM_BYTES;
    unsigned char *heap = pool_get(pool, n);
    if (!heap)
        return -ENOMEM;
    if (gathers)
        gather(making, form, heap);
    else
        append(making, heap);
    heap_put_unused(heap, gathers ? 0 : (uint32_t)unused);
    form->heap = heap;
    form->heap_size = n;
    return 0;
}

static int write_elements(const struct layout *layout, const struct making *making,
                          const struct runs *positions, struct pool *pool, struct cache_form *form)
{
    struct cache_form plain;
    char *elements = NULL;
    int error = take_old(making, pool, &plain);
    if (!error && making->n > 0)
        error = make_elements(making, pool, &elements);
    if (!error)
        error = elements ? form_merge(layout, &plain, positions, elements, pool, form)
                         : form_remove(layout, &plain, positions, pool, form);
    give_old(making, pool, &plain);
    pool_put(pool, elements, (size_t)making->n * making->slots->size);
    return error;
}

int variable_form_write(const struct layout *layout, const struct cache_form *old,
                        const struct runs *positions, const void *elements, struct pool *pool,
                        struct cache_form *form)
{
    static const struct cache_form nothing;
    struct making making = {.slots = layout->slots,
                            .old = old ? old : &nothing,
                            .old_end = HEAP_COUNT_BYTES,
                            .elements = elements,
                            .n = elements ? positions->elements : 0};
    *form = (struct cache_form){0};
    /* In a smaller one nothing can lie. */
    if (making.old->heap_size >= HEAP_COUNT_BYTES + CHECKSUM_BYTES) {
        making.old_heap = making.old->heap;
        making.old_end = making.old->heap_size - CHECKSUM_BYTES;
    }
    making.added = variable_form_added(layout, elements, making.n);
    if (making.added > SIZE_MAX / 4)
        return -EINVAL;
    int error = write_elements(layout, &making, positions, pool, form);
    if (!error)
        error = make_heap(&making, positions, pool, form);
    if (error)
        form_free(form, pool);
    return error;
}
