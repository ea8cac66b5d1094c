/* Reading pieces that lie in one chunk each, and positions of a chunk. Boxes are cut into pieces, whose chunks
 * are decoded side by side, in load_together.c; of chunks that are stored as they are and large only what is
 * wanted is read. */
#include <errno.h>

#include "cache/private.h"
#include "chunk/chunks_of_box.h"
#include "store/store.h"

/* ---- Chunks that are stored as they are ---- */

struct located_read {
    const struct chunk *chunk;
    char *elements;
    struct store_vector vector;
};

static int read_row(void *context, size_t in_elements, size_t in_chunk, size_t bytes)
{
    struct located_read *read = context;
    return store_vector_add(&read->vector, read->chunk->record.address + in_chunk,
                            read->elements + in_elements, bytes);
}

/* The RFC's vector_read. */
static int read_located(const struct chunk *chunk, const struct piece *piece,
                        const struct cache_read *to, const uint64_t *at)
{
    const struct layout *layout = chunk->dataset->layout;
    struct located_read read; /* large: not set to zeros */
    read.chunk = chunk;
    read.elements = to->elements;
    store_vector_begin(&read.vector, layout->store);
    int error =
        box_each_row(&(struct box_shape){layout->rank, piece->count, layout->element_size},
                     (struct box_place){to->dims, at},
                     (struct box_place){layout->chunk_dims, piece->in_chunk}, read_row, &read);
    return error ? error : store_vector_end(&read.vector);
}

/* ---- One piece ---- */

/* Reads from a form that may be changed in place meanwhile. */
static void read_open(struct chunk *chunk, const struct piece *piece, const struct cache_read *to,
                      const uint64_t *at)
{
    const struct layout *layout = chunk->dataset->layout;
    struct cache_form *form = &chunk->form;
    pthread_rwlock_t *stripe = chunk_stripe(chunk);
    pthread_rwlock_rdlock(stripe);
    if (form->is_open && !form_is_filled(layout, form, piece->count, piece->in_chunk)) {
        pthread_rwlock_unlock(stripe);
        pthread_rwlock_wrlock(stripe);
        if (form->is_open)
            form_complete(layout, form);
    }
    form_read(layout, form, piece->count, piece->in_chunk, to->elements,
              (struct box_place){to->dims, at});
    pthread_rwlock_unlock(stripe);
}

int read_pinned(struct chunk *chunk, const struct piece *piece, const struct cache_read *to)
{
    const struct layout *layout = chunk->dataset->layout;
    uint64_t at[SFS_MAX_RANK];
    for (int i = 0; i < layout->rank; i++)
        at[i] = to->start[i] + piece->in_box[i];
    if (chunk->state == CHUNK_LOCATED)
        return read_located(chunk, piece, to, at);
    if (chunk->state != CHUNK_LOADED)
        box_fill(&(struct box_shape){layout->rank, piece->count, layout->element_size},
                 to->elements, (struct box_place){to->dims, at}, layout->info->fill);
    else if (chunk->was_open)
        read_open(chunk, piece, to, at);
    else if (chunk_is_in_parts(chunk))
        return partial_read(chunk, piece, to->elements, to->dims, at);
    else
        form_read(layout, &chunk->form, piece->count, piece->in_chunk, to->elements,
                  (struct box_place){to->dims, at});
    return 0;
}

int read_piece(const struct cache_read *read, const struct piece *piece)
{
    unsigned passing = read->passing ? PASSING : 0, parts = PART_SOME;
    int error;
    do {
        struct chunk *chunk;
        error = chunk_acquire(read->dataset, piece->scaled, parts | passing, &chunk);
        if (error)
            return error;
        error = read_pinned(chunk, piece, read);
        chunk_release(chunk);
        parts = PART_VALUES;
    } while (error == -EAGAIN);
    return error;
}

int cache_read(struct cache_dataset *dataset, const struct box *box, void *buffer)
{
    static const uint64_t origin[SFS_MAX_RANK];
    return cache_read_placed(dataset, box, buffer, box->count, origin);
}

int cache_read_placed(struct cache_dataset *dataset, const struct box *box, void *elements,
                      const uint64_t *dims, const uint64_t *start)
{
    const struct cache_read read = {dataset, box, elements, dims, start, false};
    return cache_read_many(dataset->cache, &read, 1);
}

int cache_read_held(struct chunk *chunk, const struct box *box, void *buffer)
{
    static const uint64_t origin[SFS_MAX_RANK];
    const struct cache_read read = {chunk->dataset, box, buffer, box->count, origin, false};
    struct piece piece;
    return piece_first(chunk->dataset->layout, box, &piece) ? read_pinned(chunk, &piece, &read) : 0;
}

/* ---- Positions of a chunk ---- */

static int gather_pinned(struct chunk *chunk, const struct runs *positions, void *elements)
{
    const struct layout *layout = chunk->dataset->layout;
    struct cache_form *form = &chunk->form;
    if (chunk->state == CHUNK_ABSENT) {
        fill_elements(elements, positions->elements, layout->element_size, layout->info->fill);
    } else if (chunk->was_open) {
        pthread_rwlock_wrlock(chunk_stripe(chunk));
        if (form->is_open)
            form_complete(layout, form);
        form_gather(layout, form, positions, elements);
        pthread_rwlock_unlock(chunk_stripe(chunk));
    } else if (chunk_is_in_parts(chunk)) {
        return partial_gather(chunk, positions, elements);
    } else {
        form_gather(layout, form, positions, elements);
    }
    return 0;
}

int cache_gather(struct cache_dataset *dataset, const uint64_t *scaled,
                 const struct runs *positions, void *elements, bool passing)
{
    unsigned parts = PART_SOME | (passing ? PASSING : 0);
    int error;
    do {
        struct chunk *chunk;
        error = chunk_acquire(dataset, scaled, parts, &chunk);
        if (error)
            return error;
        error = gather_pinned(chunk, positions, elements);
        chunk_release(chunk);
        parts = PART_VALUES | (passing ? PASSING : 0);
    } while (error == -EAGAIN);
    return error;
}
