/* Making packed forms of a chunk: with elements written, or undefined. */
#include <errno.h>
#include <string.h>

#include "chunk/memory_form.h"
#include "chunk/variable_form.h"
#include "common/memory_pool.h"
#include "layout/layout.h"

/* Room for the values of form->defined. */
static int allocate_values(const struct layout *layout, struct cache_form *form, struct pool *pool)
{
    form->has_defined = form->has_values = true;
    form->value_size = (size_t)form->defined.elements * layout->element_size;
    if (form->value_size == 0)
        return 0;
    form->values = pool_get(pool, form->value_size);
    return form->values ? 0 : -ENOMEM;
}

/* The number of defined elements before position, when positions are asked for in ascending order:
 * *hint begins as 0. */
static uint64_t rank_from(const struct runs *runs, size_t *hint, uint64_t position)
{
    if (runs->n == 0)
        return 0;
    *hint = runs_find_from(runs, *hint, position);
    const struct sfs_interval *entry = &runs->entries[*hint];
    if (*hint == runs->n || position <= entry->first)
        return entry->index;
    return entry->index + (position - entry->first);
}

/* Copies the values of old to `to`, leaving out those at positions, in whose place go `with`'s
 * (NULL: none). */
static void merge_values(const struct cache_form *old, const struct runs *positions,
                         const char *with, size_t size, char *to)
{
    const char *values = old->values;
    uint64_t done = 0; /* of old's values */
    size_t hint = 0;
    if (old->defined.elements == 0 && with) {
        memcpy(to, with, positions->elements * size);
        return;
    }
    for (size_t i = 0; i < positions->n; i++) {
        struct run run = runs_at(positions, i);
        uint64_t kept = rank_from(&old->defined, &hint, run.first) - done;
        if (kept > 0) { /* else there may be no values at all to count from */
            memcpy(to, values + done * size, kept * size);
            to += kept * size;
        }
        if (with) {
            uint64_t n = run.last - run.first;
            memcpy(to, with + run.index * size, n * size);
            to += n * size;
        }
        done = rank_from(&old->defined, &hint, run.last);
    }
    if (done < old->defined.elements)
        memcpy(to, values + done * size, (old->defined.elements - done) * size);
}

static const struct cache_form nothing;

int form_merge(const struct layout *layout, const struct cache_form *old,
               const struct runs *positions, const void *values, struct pool *pool,
               struct cache_form *form)
{
    *form = (struct cache_form){0};
    old = old ? old : &nothing;
    int error = runs_union(&old->defined, positions, &form->defined);
    if (!error)
        error = allocate_values(layout, form, pool);
    if (error) {
        form_free(form, pool);
        return error;
    }
    merge_values(old, positions, values, layout->element_size, form->values);
    return 0;
}

int form_write(const struct layout *layout, const struct cache_form *old,
               const struct runs *positions, const void *values, struct pool *pool,
               struct cache_form *form)
{
    return layout->slots ? variable_form_write(layout, old, positions, values, pool, form)
                         : form_merge(layout, old, positions, values, pool, form);
}

int form_take(const struct layout *layout, struct runs *positions, const void *values,
              struct pool *pool, struct cache_form *form)
{
    if (layout->slots) {
        int failed = variable_form_write(layout, NULL, positions, values, pool, form);
        runs_free(positions);
        return failed;
    }
    *form = (struct cache_form){.defined = *positions};
    runs_init(positions);
    int error = allocate_values(layout, form, pool);
    if (error)
        form_free(form, pool);
    else if (form->value_size > 0)
        memcpy(form->values, values, form->value_size);
    return error;
}

int form_remove(const struct layout *layout, const struct cache_form *old,
                const struct runs *positions, struct pool *pool, struct cache_form *form)
{
    *form = (struct cache_form){0};
    old = old ? old : &nothing;
    int error = runs_difference(&old->defined, positions, &form->defined);
    if (!error)
        error = allocate_values(layout, form, pool);
    if (error) {
        form_free(form, pool);
        return error;
    }
    merge_values(old, positions, NULL, layout->element_size, form->values);
    return 0;
}

int form_erase(const struct layout *layout, const struct cache_form *old,
               const struct runs *positions, struct pool *pool, struct cache_form *form)
{
    return layout->slots ? variable_form_write(layout, old, positions, NULL, pool, form)
                         : form_remove(layout, old, positions, pool, form);
}
