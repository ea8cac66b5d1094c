/* Chunks whose values are read in parts: there are many of them, and they are stored without
 * filters. The cache has the selection and the address of the values. */
#include <errno.h>
#include <string.h>

#include "cache/private.h"
#include "chunk/chunks_of_box.h"
#include "store/store.h"

bool chunk_is_in_parts(const struct chunk *chunk)
{
    struct cache *cache = chunk->dataset->cache;
    if (!chunk->in_parts)
        return false;
    pthread_mutex_lock(&cache->lock);
    bool has_all = form_has(&chunk->form, PART_VALUES);
    pthread_mutex_unlock(&cache->lock);
    return !has_all;
}

/* The order of values differs from that of positions if the selection was an unordered list of
 * points. */
static bool is_in_order(struct chunk *chunk)
{
    struct cache *cache = chunk->dataset->cache;
    pthread_mutex_lock(&cache->lock);
    bool is_in_order = !chunk->form.order && !chunk->form.is_reordered && chunk->form.has_defined;
    pthread_mutex_unlock(&cache->lock);
    return is_in_order;
}

/* What was read is valid if no other chunk has been stored in its place meanwhile. */
static int check(struct chunk *chunk)
{
    struct cache *cache = chunk->dataset->cache;
    pthread_mutex_lock(&cache->lock);
    bool may_be_other = chunk->gone || chunk->changing;
    pthread_mutex_unlock(&cache->lock);
    return may_be_other ? -EAGAIN : 0;
}

static int add(struct store_vector *vector, const struct chunk *chunk, uint64_t index, uint64_t n,
               char *to)
{
    size_t size = chunk->dataset->layout->element_size;
    return store_vector_add(vector, chunk->values_address + index * size, to, (size_t)n * size);
}

int partial_read(struct chunk *chunk, const struct piece *piece, char *elements,
                 const uint64_t *dims, const uint64_t *at)
{
    const struct layout *layout = chunk->dataset->layout;
    uint64_t row = piece->count[layout->rank - 1], offset;
    struct store_vector vector; /* large: not set to zeros */
    struct runs_box_walk walk;
    struct run run;
    int error = 0;
    if (!is_in_order(chunk))
        return -EAGAIN;
    store_vector_begin(&vector, layout->store);
    box_fill(&(struct box_shape){layout->rank, piece->count, layout->element_size}, elements,
             (struct box_place){dims, at}, layout->info->fill);
    runs_box_walk_begin(&walk, &chunk->form.defined, layout->rank, layout->chunk_dims,
                        piece->in_chunk, piece->count);
    while (!error && runs_box_walk(&walk, &run, &offset)) {
        for (uint64_t n; run.first < run.last && !error; run.first += n, run.index += n) {
            uint64_t left = row - offset % row;
            n = run.last - run.first < left ? run.last - run.first : left;
            uint64_t place = box_translate(layout->rank, piece->count, offset, dims, at);
            error = add(&vector, chunk, run.index, n, elements + place * layout->element_size);
            offset += n;
        }
    }
    if (!error)
        error = store_vector_end(&vector);
    int other = check(chunk); /* the error may come from bytes that have been replaced */
    return other ? other : error;
}

int partial_gather(struct chunk *chunk, const struct runs *positions, char *elements)
{
    const struct layout *layout = chunk->dataset->layout;
    struct store_vector vector;
    struct runs_walk walk;
    struct run run;
    int error = 0;
    if (!is_in_order(chunk))
        return -EAGAIN;
    store_vector_begin(&vector, layout->store);
    fill_elements(elements, positions->elements, layout->element_size, layout->info->fill);
    for (size_t i = 0; i < positions->n && !error; i++) {
        struct run wanted = runs_at(positions, i);
        runs_walk_begin(&walk, &chunk->form.defined, wanted.first, wanted.last);
        while (!error && runs_walk(&walk, &run)) {
            uint64_t place = wanted.index + (run.first - wanted.first);
            error = add(&vector, chunk, run.index, run.last - run.first,
                        elements + place * layout->element_size);
        }
    }
    if (!error)
        error = store_vector_end(&vector);
    int other = check(chunk);
    return other ? other : error;
}
