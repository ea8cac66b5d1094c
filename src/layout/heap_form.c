#include "layout/heap_form.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "common/pool.h"
#include "common/size.h"
#include "format/heap.h"
#include "format/structure.h"
#include "layout/layout.h"

/* The heap is made without what is unused when that is more than this share of it. It is copied in
 * any case, so that this costs little then; what is left costs bytes of the file. */
#define UNUSED_SHARE 4

_Static_assert(sizeof(struct sfs_sequence) == HEAP_ELEMENT_BYTES,
               "packed values of either kind have the same size");

/* What a chunk that changes is made of. */
struct making {
    size_t base_size;
    const struct cache_form *old;
    const unsigned char *old_heap;
    size_t old_end; /* bytes of it without its checksum; of none HEAP_COUNT_BYTES */
    const struct sfs_sequence *sequences;
    uint64_t n;   /* of them */
    size_t added; /* bytes of all */
};

size_t heap_form_added(const struct layout *layout, const struct sfs_sequence *sequences,
                       uint64_t n)
{
    size_t added = 0;
    for (uint64_t i = 0; i < n; i++)
        added = size_sum(added, size_product(size_of(sequences[i].n), layout->base_size));
    return added;
}

size_t heap_form_bytes(const struct layout *layout, size_t old_bytes, uint64_t n, size_t added)
{
    size_t values = size_product(layout->element_size, size_of(n));
    size_t bytes = size_sum(size_product(old_bytes, 2), size_product(values, 2));
    return size_sum(bytes, size_sum(pool_block_size(added), (size_t)4 * HEAP_ELEMENT_BYTES));
}

/* Elements of old as ones that lead to offsets in its heap, whichever of the two forms it has, in
 * place. -EILSEQ: one leads out of it. */
static int plain_values(const struct making *making, const struct heap *heap, char *values)
{
    struct why why;
    for (uint64_t i = 0; i < making->old->defined.elements; i++) {
        const void *sequence;
        uint64_t n;
        int error = heap_find(heap, values + i * HEAP_ELEMENT_BYTES, making->base_size, &sequence,
                              &n, &why);
        if (error)
            return error;
        uint64_t offset = n ? (uint64_t)((const unsigned char *)sequence - making->old_heap) : 0;
        heap_put_element(values + i * HEAP_ELEMENT_BYTES, offset, n * making->base_size);
    }
    return 0;
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
    size_t n = old->heap ? making->old_end : 0;
    int error = heap_open(old->heap, n, &heap, &why);
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

/* The elements that lead to the new sequences, as if these lay behind all that the old heap has.
 * The caller gives them back to the pool. -EINVAL. */
static int make_elements(const struct making *making, struct pool *pool, char **elements)
{
    char *made = pool_get(pool, (size_t)making->n * HEAP_ELEMENT_BYTES);
    if (!made)
        return -ENOMEM;
    size_t at = making->old_end;
    for (uint64_t i = 0; i < making->n; i++) {
        size_t bytes = (size_t)making->sequences[i].n * making->base_size;
        heap_put_element(made + i * HEAP_ELEMENT_BYTES, bytes ? at : 0, bytes);
        at += bytes;
    }
    *elements = made;
    return 0;
}

/* Bytes that the elements first to last - 1 lead to, however often. */
static uint64_t used_bytes(const struct cache_form *form, uint64_t first, uint64_t last)
{
    uint64_t used = 0, offset, bytes;
    const char *values = form->values;
    for (uint64_t i = first; i < last; i++) {
        heap_get_element(values + i * HEAP_ELEMENT_BYTES, &offset, &bytes);
        if (__builtin_add_overflow(used, bytes, &used))
            return UINT64_MAX;
    }
    return used;
}

/* The next of the new sequences that has elements. */
static const void *next_sequence(const struct making *making, uint64_t *next)
{
    while (making->sequences[*next].n == 0)
        ++*next;
    return making->sequences[(*next)++].elements;
}

/* Copies what the elements of a form lead to, one after the other. */
static void gather(const struct making *making, struct cache_form *form, unsigned char *heap)
{
    char *values = form->values;
    uint64_t at = HEAP_COUNT_BYTES, next = 0, offset, bytes;
    for (uint64_t i = 0; i < form->defined.elements; i++) {
        heap_get_element(values + i * HEAP_ELEMENT_BYTES, &offset, &bytes);
        if (bytes == 0)
            continue;
        const void *from =
            offset < making->old_end ? making->old_heap + offset : next_sequence(making, &next);
        memcpy(heap + at, from, (size_t)bytes);
        heap_put_element(values + i * HEAP_ELEMENT_BYTES, at, bytes);
        at += bytes;
    }
}

/* The old heap and what is new behind it. */
static void append(const struct making *making, unsigned char *heap)
{
    if (making->old_heap)
        memcpy(heap, making->old_heap, making->old_end);
    unsigned char *at = heap + making->old_end;
    for (uint64_t i = 0; i < making->n; i++) {
        size_t bytes = (size_t)making->sequences[i].n * making->base_size;
        if (bytes > 0)
            memcpy(at, making->sequences[i].elements, bytes);
        at += bytes;
    }
}

/* The same of all elements of a form that old, of which these positions go, has become. */
static uint64_t used_now(const struct making *making, const struct runs *positions,
                         const struct cache_form *form)
{
    const struct cache_form *old = making->old;
    uint64_t gone = 0;
    if (!old->heap_is_ours)
        return used_bytes(form, 0, form->defined.elements);
    for (size_t i = 0; i < positions->n; i++) {
        struct run run = runs_at(positions, i);
        gone += used_bytes(old, runs_rank(&old->defined, run.first),
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
    pool_put(pool, elements, (size_t)making->n * HEAP_ELEMENT_BYTES);
    return error;
}

int heap_form_write(const struct layout *layout, const struct cache_form *old,
                    const struct runs *positions, const struct sfs_sequence *sequences,
                    struct pool *pool, struct cache_form *form)
{
    static const struct cache_form nothing;
    struct making making = {.base_size = layout->base_size,
                            .old = old ? old : &nothing,
                            .old_end = HEAP_COUNT_BYTES,
                            .sequences = sequences,
                            .n = sequences ? positions->elements : 0};
    *form = (struct cache_form){0};
    making.old_heap = making.old->heap;
    if (making.old_heap)
        making.old_end = making.old->heap_size - CHECKSUM_BYTES;
    making.added = heap_form_added(layout, sequences, making.n);
    if (making.added > SIZE_MAX / 4)
        return -EINVAL;
    int error = write_elements(layout, &making, positions, pool, form);
    if (!error)
        error = make_heap(&making, positions, pool, form);
    if (error)
        form_free(form, pool);
    return error;
}
