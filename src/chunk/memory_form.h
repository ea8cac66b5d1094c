/* The cache form of a chunk: what the chunk cache holds of it, in memory. Elements are in the
 * file's datatype throughout.
 *
 *   dense    elements  all of the chunk, row-major, whole even where it reaches over the edge of
 *                      the dataset; of a sparse chunk with the fill value where nothing is defined
 *   packed   defined   which elements are defined, as positions in the chunk
 *            values    those elements, row-major without gaps
 *   open     elements  as above, but only the first `filled` of them are there yet
 *            mask      of a sparse chunk: which of them are defined
 *
 * A chunk of a dense layout has the dense form. Of a sparse one any part can be there without the
 * others: `defined` alone answers what is defined, and `elements` alone is what a reader of nearly
 * full chunks wants. A form does not change once others can see it, except that parts are added,
 * and while it is open: that is the form of a chunk that is written in pieces. */
#ifndef SPARSEFS_CHUNK_MEMORY_FORM_H
#define SPARSEFS_CHUNK_MEMORY_FORM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/box.h"
#include "selection/runs.h"

struct layout;
struct pool;

enum chunk_part {
    PART_DEFINED = 1, /* which elements are defined */
    PART_VALUES = 2,  /* their values, in whatever form */
    PART_PACKED = 4,  /* both parts of the packed form */
    PART_HEAP = 8,    /* of elements of variable length: always with the values */
};

struct cache_form {
    void *elements;      /* NULL: not there */
    size_t element_size; /* bytes of elements; 0 if they are not there */
    bool has_defined;
    struct runs defined;
    void *values; /* NULL: not there, or there are none */
    bool has_values;
    size_t value_size; /* bytes of values */
    void *heap;        /* PART_HEAP: the section as it is without filters; NULL: there is none */
    size_t heap_size;  /* bytes of it, its checksum, of which encode sees to it, being the last */
    bool heap_is_ours; /* all elements lead to bytes in it, of their own, by offsets: */
    size_t heap_used;  /* so many in all */
    /* Values whose selection was a list of points out of order: value order[i] is that of defined
     * element i. Only until they are loaded. */
    uint64_t *order;
    bool is_reordered; /* they were loaded by such an order, which is forgotten */
    /* The open form. All that is defined lies in the first `filled` elements. */
    bool is_open;
    uint64_t *mask;   /* NULL: the layout is dense */
    size_t mask_size; /* bytes */
    uint64_t n_defined, filled;
};

/* Frees all parts; the form is empty then. */
void form_free(struct cache_form *form, struct pool *pool);

/* Bytes of memory that the parts take. */
size_t form_bytes(const struct cache_form *form);

/* What is needed of them: without what blocks and lists have too much. */
size_t form_used_bytes(const struct cache_form *form);

/* Whether it has all of these parts. PART_HEAP is not looked at: it is there if the values are. */
bool form_has(const struct cache_form *form, unsigned parts);

/* Room for the dense form, its content undefined. -ENOMEM. */
int form_new_elements(const struct layout *layout, struct cache_form *form, struct pool *pool);

/* Copies count elements per axis at start of the chunk to a place in the array `to`: the values
 * where they are defined, elsewhere the fill value. The form has PART_VALUES; of an open one the box
 * is filled (form_is_filled). */
void form_read(const struct layout *layout, const struct cache_form *form, const uint64_t *count,
               const uint64_t *start, void *to, struct box_place place);

/* Copies the elements at these positions of the chunk, packed: what form_read would give there. */
void form_gather(const struct layout *layout, const struct cache_form *form,
                 const struct runs *positions, void *to);

/* Makes in *form, which is empty after an error, the packed form that has the defined elements of old
 * (which has PART_PACKED; NULL: nothing is defined) and, in their place or besides, those at positions
 * with these packed values; of variable length, these are struct sfs_sequence. old stays as it is.
 * -ENOMEM; and of variable length, -EILSEQ: old is damaged, -EINVAL: they have too many bytes. */
int form_write(const struct layout *layout, const struct cache_form *old,
               const struct runs *positions, const void *values, struct pool *pool,
               struct cache_form *form);

/* The same where nothing of the chunk stays; positions are taken over, also on an error. */
int form_take(const struct layout *layout, struct runs *positions, const void *values,
              struct pool *pool, struct cache_form *form);

/* As form_write, with the elements at positions undefined; old NULL: everything. */
int form_erase(const struct layout *layout, const struct cache_form *old,
               const struct runs *positions, struct pool *pool, struct cache_form *form);

/* The same of values as they are, without what they may lead to (variable_form.c). */
int form_merge(const struct layout *layout, const struct cache_form *old,
               const struct runs *positions, const void *values, struct pool *pool,
               struct cache_form *form);
int form_remove(const struct layout *layout, const struct cache_form *old,
                const struct runs *positions, struct pool *pool, struct cache_form *form);

/* Adds the dense part to a form that has PART_PACKED, or the packed values to one that has elements
 * and PART_DEFINED. -ENOMEM, with nothing changed. */
int form_add_elements(const struct layout *layout, struct cache_form *form, struct pool *pool);
int form_add_values(const struct layout *layout, struct cache_form *form, struct pool *pool);

/* Removes the parts of the packed form, but not the heap. */
void form_drop_packed(struct cache_form *form, struct pool *pool);

/* Moves the values, in whatever form, but not what is defined, into a form without any. */
void form_move_values(struct cache_form *form, struct cache_form *values);

/* ---- Open forms (change_open.c). Who changes one must be alone with it. ---- */

/* Bytes of memory that an open form takes. */
size_t form_open_bytes(const struct layout *layout);

/* Makes an open form of what old has (the elements of a dense layout; else PART_DEFINED and
 * PART_VALUES; NULL: nothing). -ENOMEM. */
int form_open(const struct layout *layout, const struct cache_form *old, struct pool *pool,
              struct cache_form *form);

/* Makes an open form in which all is defined, without its elements, which the caller sets (elements,
 * element_size). It takes form_mask_bytes of memory. -ENOMEM. */
size_t form_mask_bytes(const struct layout *layout);
int form_open_full(const struct layout *layout, struct pool *pool, struct cache_form *form);

/* Where elements come from: count of them per axis at start of an array of dims. */
struct form_source {
    const void *elements;
    const uint64_t *dims, *start;
};

/* Writes elements to the box of count per axis at start of the chunk, or (from NULL) makes them
 * undefined, in a dense layout the fill value. */
void form_put_box(const struct layout *layout, struct cache_form *form, const uint64_t *count,
                  const uint64_t *start, const struct form_source *from);

/* The same at positions of the chunk; values packed. */
void form_put(const struct layout *layout, struct cache_form *form, const struct runs *positions,
              const void *values);

/* Whether the box of count elements per axis at start can be read; form_complete makes it so for
 * all. */
bool form_is_filled(const struct layout *layout, const struct cache_form *form,
                    const uint64_t *count, const uint64_t *start);
void form_complete(const struct layout *layout, struct cache_form *form);

/* Turns an open form into the packed one, or of a dense layout into the dense one (the RFC's
 * condense). -ENOMEM, with nothing changed. */
int form_condense(const struct layout *layout, struct cache_form *form, struct pool *pool);

/* A copy in the packed form of these parts of an open form, of a sparse layout. -ENOMEM. */
int form_copy(const struct layout *layout, const struct cache_form *form, unsigned parts,
              struct pool *pool, struct cache_form *copy);

#endif
