/* Open forms: chunks that are changed in place while they are written in pieces. What a piece costs
 * is the piece: memory that nothing was written to yet is not even filled until what lies behind it
 * is wanted. */
#include <errno.h>
#include <string.h>

#include "chunk/mask.h"
#include "chunk/memory_form.h"
#include "common/box.h"
#include "common/memory_pool.h"
#include "layout/layout.h"

static uint64_t elements_of(const struct layout *layout)
{
    return layout->chunk_bytes / layout->element_size;
}

size_t form_open_bytes(const struct layout *layout)
{
    size_t bytes = pool_block_size(layout->chunk_bytes);
    return bytes + form_mask_bytes(layout);
}

size_t form_mask_bytes(const struct layout *layout)
{
    return layout->ops->is_sparse ? pool_block_size(mask_bytes(elements_of(layout))) : 0;
}

static int new_mask(const struct layout *layout, struct pool *pool, struct cache_form *form)
{
    form->mask_size = mask_bytes(elements_of(layout));
    form->mask = pool_get(pool, form->mask_size);
    if (!form->mask)
        return -ENOMEM;
    memset(form->mask, 0, form->mask_size);
    return 0;
}

/* Copies what another form has into an open one. */
static void copy_all(const struct layout *layout, const struct cache_form *old,
                     struct cache_form *form)
{
    static const uint64_t origin[SFS_MAX_RANK];
    const uint64_t *dims = layout->chunk_dims;
    form_read(layout, old, dims, origin, form->elements, (struct box_place){dims, origin});
    form->filled = elements_of(layout);
    for (size_t i = 0; form->mask && i < old->defined.n; i++) {
        struct run run = runs_at(&old->defined, i);
        form->n_defined += mask_add(form->mask, run.first, run.last - run.first);
    }
}

int form_open(const struct layout *layout, const struct cache_form *old, struct pool *pool,
              struct cache_form *form)
{
    *form = (struct cache_form){.is_open = true};
    int error = form_new_elements(layout, form, pool);
    if (!error && layout->ops->is_sparse)
        error = new_mask(layout, pool, form);
    if (error) {
        form_free(form, pool);
        return error;
    }
    if (old && (old->elements || old->defined.elements > 0))
        copy_all(layout, old, form);
    return 0;
}

int form_open_full(const struct layout *layout, struct pool *pool, struct cache_form *form)
{
    *form = (struct cache_form){.is_open = true, .filled = elements_of(layout)};
    if (!layout->ops->is_sparse)
        return 0;
    int error = new_mask(layout, pool, form);
    if (!error)
        form->n_defined = mask_add(form->mask, 0, form->filled);
    return error;
}

static void *element_at(const struct layout *layout, const struct cache_form *form,
                        uint64_t position)
{
    return (char *)form->elements + position * layout->element_size;
}

/* Makes all elements before `last` be there, but for those from `first` on. */
static void fill_before(const struct layout *layout, struct cache_form *form, uint64_t first,
                        uint64_t last)
{
    if (first > form->filled)
        fill_elements(element_at(layout, form, form->filled), first - form->filled,
                      layout->element_size, layout->info->fill);
    if (last > form->filled)
        form->filled = last;
}

/* The position of the first element of a box and the one behind its last. */
static void bounds(const struct layout *layout, const uint64_t *count, const uint64_t *start,
                   uint64_t *first, uint64_t *end)
{
    uint64_t stride = 1;
    *first = 0;
    *end = 1;
    for (int i = layout->rank - 1; i >= 0; i--) {
        *first += start[i] * stride;
        *end += (start[i] + count[i] - 1) * stride;
        stride *= layout->chunk_dims[i];
    }
}

static int add_row(void *context, size_t in_box, size_t first, size_t n)
{
    struct cache_form *form = context;
    (void)in_box;
    form->n_defined += mask_add(form->mask, first, n);
    return 0;
}

static int remove_row(void *context, size_t in_box, size_t first, size_t n)
{
    struct cache_form *form = context;
    (void)in_box;
    form->n_defined -= mask_remove(form->mask, first, n);
    return 0;
}

void form_put_box(const struct layout *layout, struct cache_form *form, const uint64_t *count,
                  const uint64_t *start, const struct form_source *from)
{
    uint64_t first, end, at;
    bounds(layout, count, start, &first, &end);
    if (!from && layout->ops->is_sparse && first >= form->filled)
        return;
    bool is_one = box_is_contiguous(layout->rank, count, layout->chunk_dims, start, &at);
    fill_before(layout, form, is_one ? first : end, end);
    if (from)
        box_copy(&(struct box_shape){layout->rank, count, layout->element_size}, form->elements,
                 (struct box_place){layout->chunk_dims, start}, from->elements,
                 (struct box_place){from->dims, from->start});
    else
        box_fill(&(struct box_shape){layout->rank, count, layout->element_size}, form->elements,
                 (struct box_place){layout->chunk_dims, start}, layout->info->fill);
    if (form->mask) /* rows of "bytes" that are elements */
        (void)box_each_row(
            &(struct box_shape){layout->rank, count, 1}, (struct box_place){count, NULL},
            (struct box_place){layout->chunk_dims, start}, from ? add_row : remove_row, form);
}

void form_put(const struct layout *layout, struct cache_form *form, const struct runs *positions,
              const void *values)
{
    for (size_t i = 0; i < positions->n; i++) {
        struct run run = runs_at(positions, i);
        uint64_t n = run.last - run.first;
        void *to = element_at(layout, form, run.first);
        if (!values && layout->ops->is_sparse && run.first >= form->filled)
            return;
        fill_before(layout, form, run.first, run.last);
        if (values)
            memcpy(to, (const char *)values + run.index * layout->element_size,
                   n * layout->element_size);
        else
            fill_elements(to, n, layout->element_size, layout->info->fill);
        if (form->mask && values)
            form->n_defined += mask_add(form->mask, run.first, n);
        else if (form->mask)
            form->n_defined -= mask_remove(form->mask, run.first, n);
    }
}

bool form_is_filled(const struct layout *layout, const struct cache_form *form,
                    const uint64_t *count, const uint64_t *start)
{
    uint64_t first, end;
    bounds(layout, count, start, &first, &end);
    return end <= form->filled;
}

void form_complete(const struct layout *layout, struct cache_form *form)
{
    fill_before(layout, form, elements_of(layout), elements_of(layout));
}

/* Puts the values at form->defined of an open form into made. */
static int gather(const struct layout *layout, const struct cache_form *form, struct pool *pool,
                  struct cache_form *made)
{
    size_t size = layout->element_size;
    made->has_values = true;
    made->value_size = (size_t)made->defined.elements * size;
    if (made->value_size == 0)
        return 0;
    made->values = pool_get(pool, made->value_size);
    if (!made->values)
        return -ENOMEM;
    for (size_t i = 0; i < made->defined.n; i++) {
        struct run run = runs_at(&made->defined, i);
        memcpy((char *)made->values + run.index * size, element_at(layout, form, run.first),
               (run.last - run.first) * size);
    }
    return 0;
}

/* Where all is defined, the elements are the values. */
static int condense_full(const struct layout *layout, struct cache_form *form, struct pool *pool)
{
    int error = runs_append(&form->defined, 0, elements_of(layout));
    if (error)
        return error;
    form->has_defined = form->has_values = true;
    form->values = form->elements;
    form->value_size = form->element_size;
    form->elements = NULL;
    form->element_size = 0;
    pool_put(pool, form->mask, form->mask_size);
    form->mask = NULL;
    form->mask_size = 0;
    form->is_open = false;
    return 0;
}

int form_condense(const struct layout *layout, struct cache_form *form, struct pool *pool)
{
    if (!form->mask) {
        form_complete(layout, form);
        form->is_open = false;
        return 0;
    }
    if (form->n_defined == elements_of(layout))
        return condense_full(layout, form, pool);
    struct cache_form made;
    int error = form_copy(layout, form, PART_PACKED, pool, &made);
    if (error)
        return error;
    form_free(form, pool);
    *form = made;
    return 0;
}

int form_copy(const struct layout *layout, const struct cache_form *form, unsigned parts,
              struct pool *pool, struct cache_form *copy)
{
    *copy = (struct cache_form){.has_defined = true};
    int error = mask_runs(form->mask, elements_of(layout), &copy->defined);
    if (!error && (parts & (PART_VALUES | PART_PACKED)))
        error = gather(layout, form, pool, copy);
    if (error)
        form_free(copy, pool);
    return error;
}
