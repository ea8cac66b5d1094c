/* Reading forms of a chunk, and adding the dense or the packed values to the other: what is defined comes to its place,
 * and the fill value to the others. */
#include <errno.h>
#include <string.h>

#include "chunk/memory_form.h"
#include "common/box.h"
#include "common/memory_pool.h"
#include "layout/layout.h"

/* With a constant element_size this is a loop of single moves for scattered elements. */
static inline __attribute__((always_inline)) void
scatter_interval_of(const struct runs *runs, const char *values, size_t element_size,
                    uint64_t first, uint64_t last, char *to)
{
    const struct sfs_interval *entries = runs->entries;
    for (size_t i = runs_find(runs, first); i < runs->n && entries[i].first < last; i++) {
        uint64_t begin = entries[i].first, index = entries[i].index;
        uint64_t end = begin + (entries[i + 1].index - index);
        if (begin < first) {
            index += first - begin;
            begin = first;
        }
        if (end > last)
            end = last;
        const char *from = values + index * element_size;
        char *at = to + (begin - first) * element_size;
        if (end - begin == 1)
            memcpy(at, from, element_size);
        else
            memcpy(at, from, (end - begin) * element_size);
    }
}

/* Puts the values in positions [first, last) in their places behind `to`, which is that of first.
 */
static void scatter_interval(const struct cache_form *form, size_t element_size, uint64_t first,
                             uint64_t last, char *to)
{
    const char *values = form->values;
    switch (element_size) {
    case 1:
        scatter_interval_of(&form->defined, values, 1, first, last, to);
        break;
    case 2:
        scatter_interval_of(&form->defined, values, 2, first, last, to);
        break;
    case 4:
        scatter_interval_of(&form->defined, values, 4, first, last, to);
        break;
    case 8:
        scatter_interval_of(&form->defined, values, 8, first, last, to);
        break;
    default:
        scatter_interval_of(&form->defined, values, element_size, first, last, to);
    }
}

/* The same for a box, row by row of it. */
static void scatter_box(const struct layout *layout, const struct cache_form *form,
                        const uint64_t *count, const uint64_t *start, char *to,
                        struct box_place place_in_to)
{
    size_t size = layout->element_size;
    uint64_t row_length = count[layout->rank - 1], offset;
    struct runs_box_walk walk;
    struct run piece;
    runs_box_walk_begin(&walk, &form->defined, layout->rank, layout->chunk_dims, start, count);
    while (runs_box_walk(&walk, &piece, &offset)) {
        const char *from = (const char *)form->values + piece.index * size;
        for (uint64_t left = piece.last - piece.first; left > 0;) {
            uint64_t in_row = row_length - offset % row_length;
            uint64_t n = left < in_row ? left : in_row;
            uint64_t place =
                box_translate(layout->rank, count, offset, place_in_to.dims, place_in_to.start);
            memcpy(to + place * size, from, n * size);
            from += n * size;
            offset += n;
            left -= n;
        }
    }
}

void form_read(const struct layout *layout, const struct cache_form *form, const uint64_t *count,
               const uint64_t *start, void *to, struct box_place place)
{
    size_t size = layout->element_size;
    uint64_t first, to_first, n;
    if (form->elements) {
        box_copy(&(struct box_shape){layout->rank, count, size}, to, place, form->elements,
                 (struct box_place){layout->chunk_dims, start});
    } else if (box_is_contiguous(layout->rank, count, layout->chunk_dims, start, &first) &&
               box_is_contiguous(layout->rank, count, place.dims, place.start, &to_first) &&
               box_product(count, layout->rank, 1, &n)) {
        char *at = (char *)to + to_first * size;
        fill_elements(at, n, size, layout->info->fill);
        scatter_interval(form, size, first, first + n, at);
    } else {
        box_fill(&(struct box_shape){layout->rank, count, size}, to, place, layout->info->fill);
        scatter_box(layout, form, count, start, to, place);
    }
}

/* Mostly all of an interval is defined. *hint: as of runs_find_from. */
static void gather_packed(const struct layout *layout, const struct cache_form *form,
                          struct run run, size_t *hint, char *to)
{
    size_t size = layout->element_size;
    *hint = runs_find_from(&form->defined, *hint, run.first);
    if (*hint < form->defined.n) {
        struct run there = runs_at(&form->defined, *hint);
        if (there.first <= run.first && run.last <= there.last) {
            memcpy(to, (const char *)form->values + (there.index + run.first - there.first) * size,
                   (run.last - run.first) * size);
            return;
        }
    }
    fill_elements(to, run.last - run.first, size, layout->info->fill);
    scatter_interval(form, size, run.first, run.last, to);
}

void form_gather(const struct layout *layout, const struct cache_form *form,
                 const struct runs *positions, void *to)
{
    size_t size = layout->element_size, hint = 0;
    for (size_t i = 0; i < positions->n; i++) {
        struct run run = runs_at(positions, i);
        char *at = (char *)to + run.index * size;
        if (form->elements)
            memcpy(at, (const char *)form->elements + run.first * size,
                   (run.last - run.first) * size);
        else
            gather_packed(layout, form, run, &hint, at);
    }
}

int form_add_values(const struct layout *layout, struct cache_form *form, struct pool *pool)
{
    size_t size = (size_t)form->defined.elements * layout->element_size;
    void *values = size ? pool_get(pool, size) : NULL;
    if (size && !values)
        return -ENOMEM;
    form_gather(layout, form, &form->defined, values);
    form->values = values;
    form->value_size = size;
    form->has_values = true;
    return 0;
}

int form_add_elements(const struct layout *layout, struct cache_form *form, struct pool *pool)
{
    int error = form_new_elements(layout, form, pool);
    if (error)
        return error;
    uint64_t n = layout->chunk_bytes / layout->element_size;
    fill_elements(form->elements, n, layout->element_size, layout->info->fill);
    scatter_interval(form, layout->element_size, 0, n, form->elements);
    return 0;
}
