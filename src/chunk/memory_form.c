/* What all forms of a chunk in memory have in common: their parts and bytes. Knows nothing of files. */
#include "chunk/memory_form.h"

#include <errno.h>
#include <stdlib.h>

#include "common/memory_pool.h"
#include "layout/layout.h"

void form_drop_packed(struct cache_form *form, struct pool *pool)
{
    runs_free(&form->defined);
    pool_put(pool, form->values, form->value_size);
    free(form->order);
    form->values = NULL;
    form->order = NULL;
    form->value_size = 0;
    form->has_defined = form->has_values = false;
}

void form_move_values(struct cache_form *form, struct cache_form *values)
{
    values->values = form->values;
    values->value_size = form->value_size;
    values->elements = form->elements;
    values->element_size = form->element_size;
    values->has_values = form->has_values;
    values->heap = form->heap;
    values->heap_size = form->heap_size;
    form->values = form->elements = form->heap = NULL;
    form->value_size = form->element_size = form->heap_size = 0;
    form->heap_is_ours = false;
    form->has_values = false;
}

void form_free(struct cache_form *form, struct pool *pool)
{
    form_drop_packed(form, pool);
    pool_put(pool, form->elements, form->element_size);
    pool_put(pool, form->mask, form->mask_size);
    pool_put(pool, form->heap, form->heap_size);
    *form = (struct cache_form){0};
}

size_t form_bytes(const struct cache_form *form)
{
    size_t bytes = runs_bytes(&form->defined);
    if (form->elements)
        bytes += pool_block_size(form->element_size);
    if (form->values)
        bytes += pool_block_size(form->value_size);
    if (form->mask)
        bytes += pool_block_size(form->mask_size);
    if (form->heap)
        bytes += pool_block_size(form->heap_size);
    if (form->order)
        bytes += (size_t)form->defined.elements * sizeof(*form->order);
    return bytes;
}

size_t form_used_bytes(const struct cache_form *form)
{
    size_t n_runs = form->defined.n ? form->defined.n + 1 : 0;
    return form->element_size + form->value_size + form->heap_size + form->mask_size +
           n_runs * sizeof(*form->defined.entries) +
           (form->order ? (size_t)form->defined.elements * sizeof(*form->order) : 0);
}

bool form_has(const struct cache_form *form, unsigned parts)
{
    bool packed = form->has_defined && form->has_values;
    if ((parts & PART_DEFINED) && !form->has_defined)
        return false;
    if ((parts & PART_VALUES) && !packed && !form->elements)
        return false;
    return !(parts & PART_PACKED) || packed;
}

int form_new_elements(const struct layout *layout, struct cache_form *form, struct pool *pool)
{
    form->elements = pool_get(pool, layout->chunk_bytes);
    form->element_size = form->elements ? layout->chunk_bytes : 0;
    return form->elements ? 0 : -ENOMEM;
}
