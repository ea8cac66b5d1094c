/* Which form a chunk has in memory: when it is packed, dense, or open. */
#include <stdlib.h>

#include "cache/private.h"
#include "common/size.h"
#include "store/store.h"

/* A packed form is turned into a dense one, which can be lent instead of being rendered for each
 * read, where that takes no more than this factor of its memory and a small share of the cache. */
#define DENSE_TIMES 2
#define DENSE_SHARE 8

/* Every write to a packed form copies it. That is right for a few small writes: a chunk is opened
 * once they would have copied this share of it. */
#define PACKED_SHARE 8

/* When memory is short an open chunk is condensed if that leaves no more than this share of it. */
#define CONDENSED_SHARE 8

bool may_be_dense(const struct cache *cache, const struct layout *layout, size_t packed_bytes)
{
    return !layout->slots && layout->chunk_bytes <= size_product(DENSE_TIMES, packed_bytes) &&
           layout->chunk_bytes <= cache->limit / DENSE_SHARE;
}

int choose_form(struct cache *cache, const struct layout *layout, unsigned wanted, unsigned missing,
                struct cache_form *form)
{
    if (!layout->ops->is_sparse)
        return 0;
    if ((wanted & PART_PACKED) && !form->has_values)
        return form_add_values(layout, form, &cache->pool);
    if ((wanted & PART_PACKED) || !(missing & PART_VALUES) ||
        !may_be_dense(cache, layout, form_bytes(form)))
        return 0;

    if (form->value_size == layout->chunk_bytes) { /* all is defined: values are elements */
        form->elements = form->values;
        form->element_size = form->value_size;
    } else {
        int error = form_add_elements(layout, form, &cache->pool);
        if (error)
            return error;
        pool_put(&cache->pool, form->values, form->value_size);
    }
    form->values = NULL;
    form->value_size = 0;
    form->has_values = false;
    if ((missing & PART_DEFINED) && !(wanted & PART_DEFINED)) {
        runs_free(&form->defined);
        free(form->order);
        form->order = NULL;
        form->has_defined = false;
    }
    return 0;
}

bool opens_for_change(const struct layout *layout, const struct cache_form *old, size_t rewritten)
{
    bool opens = !layout->ops->is_sparse || (old && old->elements) ||
                 rewritten > layout->chunk_bytes / PACKED_SHARE;
    return opens && !layout->slots; /* an open form has no heap */
}

bool is_worth_condensing(const struct chunk *chunk)
{
    return chunk->open && chunk->dataset->layout->ops->is_sparse &&
           chunk->condensed_bytes < chunk->form_bytes / CONDENSED_SHARE;
}
