/* The cache form of a chunk: what the chunk cache holds of it, in memory. Elements are in the
 * file's datatype throughout.
 *
 *   dense   elements   all of the chunk, row-major, whole even where it reaches over the edge of
 * the dataset; of a sparse chunk with the fill value where nothing is defined packed  defined which
 * elements are defined, as positions in the chunk values     those elements, row-major without gaps
 *
 * A chunk of a dense layout has the dense form. Of a sparse one any part can be there without the
 * others: `defined` alone answers what is defined, and `elements` alone is what a reader of nearly
 * full chunks wants. A form does not change once others can see it, except that parts are added. */
#ifndef SPARSEFS_LAYOUT_FORM_H
#define SPARSEFS_LAYOUT_FORM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "selection/runs.h"

struct layout;
struct pool;

enum chunk_part {
    PART_DEFINED = 1, /* which elements are defined */
    PART_VALUES = 2,  /* their values, in whatever form */
    PART_PACKED = 4,  /* both parts of the packed form */
};

struct cache_form {
    void *elements;      /* NULL: not there */
    size_t element_size; /* bytes of elements; 0 if they are not there */
    bool has_defined;
    struct runs defined;
    void *values; /* NULL: not there, or there are none */
    bool has_values;
    size_t value_size; /* bytes of values */
    /* Values whose selection was a list of points out of order: value order[i] is that of defined
     * element i. Only until they are loaded. */
    uint64_t *order;
};

/* Frees all parts; the form is empty then. */
void form_free(struct cache_form *form, struct pool *pool);

/* Bytes of memory that the parts take. */
size_t form_bytes(const struct cache_form *form);

/* Whether it has all of these parts. */
bool form_has(const struct cache_form *form, unsigned parts);

/* Room for the dense form, its content undefined. -ENOMEM. */
int form_new_elements(const struct layout *layout, struct cache_form *form, struct pool *pool);

/* Copies count elements per axis at start of the chunk to (to, to_dims, at to_start): the values
 * where they are defined, elsewhere the fill value. The form has PART_VALUES. */
void form_read(const struct layout *layout, const struct cache_form *form, const uint64_t *count,
               const uint64_t *start, void *to, const uint64_t *to_dims, const uint64_t *to_start);

/* Copies the elements at these positions of the chunk, packed: what form_read would give there. */
void form_gather(const struct layout *layout, const struct cache_form *form,
                 const struct runs *positions, void *to);

/* Makes the packed form that has the defined elements of old (which has PART_PACKED; NULL: nothing
 * is defined) and, in their place or besides, those at positions with these packed values. -ENOMEM.
 */
int form_write(const struct layout *layout, const struct cache_form *old,
               const struct runs *positions, const void *values, struct pool *pool,
               struct cache_form *form);

/* The same, with the elements at positions undefined; old NULL: everything. */
int form_erase(const struct layout *layout, const struct cache_form *old,
               const struct runs *positions, struct pool *pool, struct cache_form *form);

/* Adds the dense part to a form that has PART_PACKED, or the packed values to one that has elements
 * and PART_DEFINED. -ENOMEM. */
int form_add_elements(const struct layout *layout, struct cache_form *form, struct pool *pool);
int form_add_values(const struct layout *layout, struct cache_form *form, struct pool *pool);

/* Removes the parts of the packed form. */
void form_drop_packed(struct cache_form *form, struct pool *pool);

#endif
