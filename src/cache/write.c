/* Writing and erasing: changes go into the cache, where the chunk becomes dirty. private.h says
 * what the forms of chunks are for. */
#include <errno.h>
#include <string.h>

#include "cache/private.h"
#include "chunk/chunks_of_box.h"
#include "chunk/variable_form.h"
#include "common/interrupt.h"
#include "common/size.h"
#include "store/store.h"

#define ASK_EVERY 4096 /* chunks, between two checks for an interruption */

/* A change of one chunk: elements get values, or become undefined. */
struct chunk_change {
    /* The elements: a box of the chunk, or (count NULL) positions. */
    const uint64_t *count, *start;
    const struct runs *positions;
    struct runs *given; /* the positions, if they may be taken over; or NULL */
    /* Their values: packed, or those of a box as a form_source says. */
    const void *values;
    struct form_source from;
    bool erases;
    bool whole; /* it covers all of the chunk inside the dims */
};

static uint64_t changed_elements(const struct layout *layout, const struct chunk_change *change)
{
    uint64_t n;
    if (!change->count)
        return change->positions->elements;
    (void)box_product(change->count, layout->rank, 1, &n); /* no more than a chunk has */
    return n;
}

static size_t changed_runs(const struct layout *layout, const struct chunk_change *change)
{
    if (!change->count)
        return runs_bytes(change->positions);
    uint64_t rows = changed_elements(layout, change) / change->count[layout->rank - 1];
    return (size_t)(rows + 2) * sizeof(struct sfs_interval);
}

struct added {
    const struct layout *layout;
    const char *elements;
    size_t bytes;
};

static int add_row(void *context, size_t in_source, size_t in_chunk, size_t bytes)
{
    struct added *added = context;
    (void)in_chunk;
    const void *sequences = added->elements + in_source;
    uint64_t n = bytes / added->layout->element_size;
    added->bytes = size_sum(added->bytes, variable_form_added(added->layout, sequences, n));
    return 0;
}

/* Bytes of the sequences in a change. */
static size_t added_bytes(const struct layout *layout, const struct chunk_change *change)
{
    struct added added = {.layout = layout, .elements = change->from.elements};
    if (change->erases)
        return 0;
    if (!change->count)
        return variable_form_added(layout, change->values, change->positions->elements);
    box_each_row(&(struct box_shape){layout->rank, change->count, layout->element_size},
                 (struct box_place){change->from.dims, change->from.start},
                 (struct box_place){layout->chunk_dims, change->start}, add_row, &added);
    return added.bytes;
}

/* The same as packed_bytes, plus what sequences take. */
static size_t with_heap(const struct layout *layout, const struct chunk_change *change,
                        size_t old_bytes, size_t bytes)
{
    uint64_t n = change->erases ? 0 : changed_elements(layout, change);
    return size_sum(bytes, variable_form_bytes(layout, old_bytes, n, added_bytes(layout, change)));
}

/* Memory of the packed form that a change makes out of one of old_bytes, and while it is made. */
static size_t packed_bytes(const struct layout *layout, const struct chunk_change *change,
                           size_t old_bytes)
{
    size_t bytes = old_bytes + 2 * changed_runs(layout, change), values = 0;
    if (!change->erases)
        values = pool_block_size((size_t)changed_elements(layout, change) * layout->element_size);
    bytes += change->count && !change->whole ? 2 * values : values;
    return layout->slots ? with_heap(layout, change, old_bytes, bytes) : bytes;
}

/* ---- Making forms ---- */

static void put(const struct layout *layout, const struct chunk_change *change,
                struct cache_form *form)
{
    if (change->count)
        form_put_box(layout, form, change->count, change->start,
                     change->erases ? NULL : &change->from);
    else
        form_put(layout, form, change->positions, change->erases ? NULL : change->values);
}

/* The elements of a box as a packed form of their own. */
static int pack_box(const struct layout *layout, const struct chunk_change *change,
                    struct pool *pool, struct cache_form *form)
{
    *form = (struct cache_form){.has_defined = true, .has_values = true};
    int error =
        runs_of_box(layout->rank, layout->chunk_dims, change->start, change->count, &form->defined);
    if (error || change->erases)
        return error;
    form->value_size = (size_t)form->defined.elements * layout->element_size;
    form->values = pool_get(pool, form->value_size);
    if (!form->values)
        return -ENOMEM;
    box_copy(&(struct box_shape){layout->rank, change->count, layout->element_size}, form->values,
             (struct box_place){change->count, NULL}, change->from.elements,
             (struct box_place){change->from.dims, change->from.start});
    return 0;
}

/* Makes the packed form of a changed chunk; old NULL: the change replaces everything. */
static int make_packed(const struct layout *layout, const struct cache_form *old,
                       const struct chunk_change *change, struct pool *pool,
                       struct cache_form *form)
{
    struct cache_form box = {0};
    const struct runs *positions = change->positions;
    const void *values = change->values;
    *form = (struct cache_form){0};
    if (!old && change->erases) {
        form->has_defined = form->has_values = true;
        return 0;
    }
    int error = change->count ? pack_box(layout, change, pool, &box) : 0;
    if (!error && change->count && !old && !layout->slots) {
        *form = box;
        return 0;
    }
    if (change->count) {
        positions = &box.defined;
        values = box.values;
    }
    if (!error && change->erases)
        error = form_erase(layout, old, positions, pool, form);
    else if (!error && !old && change->given)
        error = form_take(layout, change->given, values, pool, form);
    else if (!error)
        error = form_write(layout, old, positions, values, pool, form);
    form_free(&box, pool);
    return error;
}

static int make_open(const struct layout *layout, const struct cache_form *old,
                     const struct chunk_change *change, struct pool *pool, struct cache_form *form)
{
    int error = form_open(layout, old, pool, form);
    if (!error)
        put(layout, change, form);
    return error;
}

/* ---- Chunks that are open ---- */

/* The size of an open form after condensing, in the worst case: no two defined elements are
 * adjacent. */
static size_t condensed_bytes(const struct layout *layout, const struct cache_form *form)
{
    return (size_t)form->n_defined * (layout->element_size + sizeof(struct sfs_interval));
}

/* With the lock held, but dropped meanwhile: the open chunk there, pinned, or NULL. */
static struct chunk *find_open(struct cache_dataset *dataset, const uint64_t *scaled)
{
    struct cache *cache = dataset->cache;
    struct chunk *chunk;
    while ((chunk = chunk_find(dataset, scaled)) && chunk->open && chunk->changing)
        pthread_cond_wait(&cache->changed, &cache->lock);
    if (!chunk || !chunk->open)
        return NULL;
    chunk_pin(chunk);
    policy_touch(cache, chunk);
    cache->hits++;
    return chunk;
}

/* Changes a chunk in place, if it is open; returns whether it was. */
static bool change_open(struct cache_dataset *dataset, const uint64_t *scaled,
                        const struct chunk_change *change)
{
    struct cache *cache = dataset->cache;
    struct layout *layout = dataset->layout;
    if (change->whole && change->erases && layout->ops->is_sparse)
        return false; /* it is dropped instead, and its memory freed */
    pthread_mutex_lock(&cache->lock);
    struct chunk *chunk = find_open(dataset, scaled);
    pthread_mutex_unlock(&cache->lock);
    if (!chunk)
        return false;

    pthread_rwlock_t *stripe = chunk_stripe(chunk);
    pthread_rwlock_wrlock(stripe);
    bool is_open = chunk->form.is_open; /* false: it has just been condensed */
    if (is_open)
        put(layout, change, &chunk->form);
    size_t bytes = condensed_bytes(layout, &chunk->form);
    pthread_rwlock_unlock(stripe);

    pthread_mutex_lock(&cache->lock);
    chunk->condensed_bytes = bytes;
    chunk_unpin(chunk);
    pthread_mutex_unlock(&cache->lock);
    return is_open;
}

/* ---- Chunks that are not ---- */

/* Pins a chunk with these parts and marks it as changing. alone: waits until no encoder has it. */
static int begin_change(struct cache_dataset *dataset, const uint64_t *scaled, unsigned parts,
                        bool alone, struct chunk **out)
{
    struct cache *cache = dataset->cache;
    for (;;) {
        struct chunk *chunk;
        int error = chunk_acquire(dataset, scaled, parts, &chunk);
        if (error)
            return error;
        pthread_mutex_lock(&cache->lock);
        bool gone = chunk->gone;
        bool mine = !gone && !chunk->changing && !(alone && chunk->encoding);
        if (mine)
            chunk->changing = true;
        else
            chunk_unpin(chunk); /* a pin must not keep memory while this thread waits */
        if (!mine && !gone)
            error = interrupt_wait(&cache->changed, &cache->lock);
        pthread_mutex_unlock(&cache->lock);
        if (mine)
            *out = chunk;
        if (mine || error)
            return error;
    }
}

static void end_change(struct chunk *chunk)
{
    struct cache *cache = chunk->dataset->cache;
    pthread_mutex_lock(&cache->lock);
    chunk_end_change(chunk);
    chunk_unpin(chunk);
    pthread_mutex_unlock(&cache->lock);
}

/* With the lock held: replaces a changing chunk by a new dirty one with this form. After an error
 * the old chunk is unchanged and the form still belongs to the caller. */
static int replace(struct chunk *old, struct cache_form *form, size_t rewritten)
{
    struct cache_dataset *dataset = old->dataset;
    struct cache *cache = dataset->cache;
    struct chunk *fresh = chunk_new(dataset, old->scaled);
    if (fresh && chunk_link(fresh, old) < 0) {
        chunk_drop(fresh);
        fresh = NULL;
    }
    if (!fresh)
        return -ENOMEM;
    fresh->state = CHUNK_LOADED;
    fresh->record = old->record;
    fresh->encoding = old->encoding;
    fresh->failed = old->failed;
    fresh->own_error = old->own_error;
    fresh->write_error = old->failed ? old->write_error : 0;
    fresh->rewritten = rewritten;
    fresh->form = *form;
    fresh->was_open = fresh->open = form->is_open;
    fresh->condensed_bytes = condensed_bytes(dataset->layout, form);
    chunk_count(fresh);
    chunk_mark_dirty(fresh, old);
    chunk_unlink(old);
    if (dataset->held == 0) /* else cache_let_go does */
        encoders_wake(cache);
    return 0;
}

/* Waits for memory for a change; chunks that cannot be written back must not fill all of it. The
 * lock is held. */
static int reserve_for_change(struct cache *cache, size_t bytes)
{
    int more;
    while ((more = make_room(cache, bytes)) > 0)
        ;
    if (more)
        return more;
    if (cache->used + bytes > cache->limit && cache->write_error) {
        encoders_retry(cache, false); /* the next thread that needs room tries them again */
        return cache->write_error;
    }
    reserve_now(cache, bytes);
    return 0;
}

int cache_make_room(struct cache *cache, size_t bytes)
{
    pthread_mutex_lock(&cache->lock);
    int error = reserve_for_change(cache, bytes);
    if (!error)
        unreserve(cache, bytes);
    pthread_mutex_unlock(&cache->lock);
    return error;
}

/* The same for a chunk that is marked as changing, and so cannot be evicted: its pin is dropped
 * meanwhile, as the memory of pinned chunks must not be held while waiting for memory. */
static int reserve_beside(struct chunk *chunk, size_t bytes)
{
    chunk_unpin(chunk);
    int error = reserve_for_change(chunk->dataset->cache, bytes);
    chunk_pin(chunk);
    return error;
}

/* Whether all elements of a form are present and defined: then values and elements are the same
 * bytes. */
static bool is_full(const struct layout *layout, const struct cache_form *form)
{
    if (!layout->ops->is_sparse)
        return form->elements;
    return !layout->slots && form->has_defined && form->defined.n == 1 &&
           form->defined.elements == layout->chunk_bytes / layout->element_size &&
           (form->elements || form->value_size == layout->chunk_bytes);
}

/* With the lock held: replaces a full chunk by an open one with these elements. */
static int move_elements(struct chunk *chunk, struct cache_form *form)
{
    struct cache_form *old = &chunk->form, was = *old;
    form->elements = old->elements ? old->elements : old->values;
    form->element_size = old->elements ? old->element_size : old->value_size;
    if (old->elements)
        old->elements = NULL;
    else
        old->values = NULL;
    chunk_count(chunk);
    int error = replace(chunk, form, 0);
    if (error) {
        form->elements = NULL;
        *old = was;
        chunk_count(chunk);
    }
    return error;
}

/* Opens a full chunk without copying: its elements are moved, which is possible while nobody else
 * has it pinned. Returns 1 if that was done, 0 or an error. The chunk is marked as changing before
 * and after. */
static int reopen(struct chunk *chunk)
{
    struct cache *cache = chunk->dataset->cache;
    const struct layout *layout = chunk->dataset->layout;
    if (chunk->state != CHUNK_LOADED || !is_full(layout, &chunk->form))
        return 0;
    pthread_mutex_lock(&cache->lock);
    size_t bytes = form_mask_bytes(layout);
    int error = reserve_beside(chunk, bytes);
    pthread_mutex_unlock(&cache->lock);
    if (error)
        return error;

    struct cache_form form;
    error = form_open_full(layout, &cache->pool, &form);
    pthread_mutex_lock(&cache->lock);
    bool can = !error && chunk->pins == 1 && !chunk->encoding;
    if (can)
        error = move_elements(chunk, &form);
    unreserve(cache, bytes);
    pthread_mutex_unlock(&cache->lock);
    if (!can || error)
        form_free(&form, &cache->pool);
    return error ? error : can;
}

/* Makes the new form of a changing chunk, and replaces the chunk by one that has it. */
static int change_form(struct chunk *chunk, const struct chunk_change *change)
{
    struct cache *cache = chunk->dataset->cache;
    struct layout *layout = chunk->dataset->layout;
    bool stays = chunk->state == CHUNK_LOADED && !change->whole;
    const struct cache_form *old = stays ? &chunk->form : NULL;
    struct cache_form form;
    pthread_mutex_lock(&cache->lock);
    size_t bytes = packed_bytes(layout, change, old ? chunk->form_bytes : 0), rewritten = 0;
    if (!change->whole)
        rewritten = chunk->rewritten + bytes;
    bool is_first = chunk->state == CHUNK_ABSENT && !change->count; /* copies no form */
    bool opens = opens_for_change(layout, old, is_first ? 0 : rewritten);
    if (opens)
        bytes = form_open_bytes(layout);
    int error = chunk_check_bytes(chunk, bytes);
    if (!error)
        error = reserve_beside(chunk, bytes);
    pthread_mutex_unlock(&cache->lock);
    if (error)
        return error;

    error = opens ? make_open(layout, old, change, &cache->pool, &form)
                  : make_packed(layout, old, change, &cache->pool, &form);

    pthread_mutex_lock(&cache->lock);
    bool is_made = !error;
    if (is_made)
        error = replace(chunk, &form, opens ? 0 : rewritten);
    unreserve(cache, bytes);
    pthread_mutex_unlock(&cache->lock);
    if (is_made && error)
        form_free(&form, &cache->pool);
    if (error == -EILSEQ)
        error = layout_failed(layout, chunk->scaled, chunk->record.address,
                              "an element leads out of its variable-length data");
    return error;
}

struct located_write {
    const struct chunk *chunk;
    const char *from;
};

static int write_row(void *context, size_t in_source, size_t in_chunk, size_t bytes)
{
    const struct located_write *write = context;
    return store_write(write->chunk->dataset->layout->store,
                       write->chunk->record.address + in_chunk, write->from + in_source, bytes);
}

/* The RFC's selection_write: parts of large chunks that are stored as they are. */
static int write_located(struct chunk *chunk, const struct chunk_change *change)
{
    struct layout *layout = chunk->dataset->layout;
    struct located_write write = {chunk, change->from.elements};
    int error = interrupt_rdlock(layout->commit_lock);
    if (error)
        return error;
    error = box_each_row(&(struct box_shape){layout->rank, change->count, layout->element_size},
                         (struct box_place){change->from.dims, change->from.start},
                         (struct box_place){layout->chunk_dims, change->start}, write_row, &write);
    pthread_rwlock_unlock(layout->commit_lock);
    return error;
}

/* Allocates a chunk that is too large to be read whole in the store. It is looked up again then. */
static int make_located(struct chunk *chunk)
{
    struct layout *layout = chunk->dataset->layout;
    struct cache *cache = chunk->dataset->cache;
    struct chunk_record record = chunk->record;
    int error = layout->ops->new_chunk(layout, chunk->scaled, &record);
    pthread_mutex_lock(&cache->lock);
    if (!error)
        chunk_unlink(chunk);
    pthread_mutex_unlock(&cache->lock);
    return error;
}

static unsigned parts_to_change(const struct layout *layout)
{
    return layout->ops->is_sparse ? PART_DEFINED | PART_VALUES : PART_VALUES;
}

/* Changes a chunk that is not open. *again: it was open, and was left alone. */
static int change_closed(struct cache_dataset *dataset, const uint64_t *scaled,
                         const struct chunk_change *change, bool *again)
{
    struct layout *layout = dataset->layout;
    struct chunk *chunk;
    bool takes_away = change->whole && change->erases && layout->ops->is_sparse;
    unsigned parts = change->whole ? 0 : parts_to_change(layout);
    *again = false;
    int error = begin_change(dataset, scaled, parts, false, &chunk);
    if (error)
        return error;
    if (chunk_is_open(chunk) && !takes_away) {
        *again = true;
    } else if (chunk->state == CHUNK_LOCATED) {
        error = write_located(chunk, change);
    } else if (chunk->state == CHUNK_ABSENT && layout->ops->new_chunk &&
               !chunk_is_read_whole(dataset)) {
        error = make_located(chunk);
        *again = !error;
    } else if (chunk->state != CHUNK_ABSENT || !change->erases) {
        int reopened = reopen(chunk);
        *again = reopened > 0;
        error = reopened ? (reopened < 0 ? reopened : 0) : change_form(chunk, change);
    }
    end_change(chunk);
    return error;
}

static int change_chunk(struct cache_dataset *dataset, const uint64_t *scaled,
                        const struct chunk_change *change)
{
    bool again = true;
    int error = 0;
    while (again && !error) {
        if (change_open(dataset, scaled, change))
            return 0;
        error = change_closed(dataset, scaled, change, &again);
    }
    return error;
}

int cache_write(struct cache_dataset *dataset, const uint64_t *scaled, const struct runs *positions,
                const void *values, bool whole)
{
    struct chunk_change change = {.positions = positions, .values = values, .whole = whole};
    int error = layout_check_room(dataset->layout, scaled);
    return error ? error : change_chunk(dataset, scaled, &change);
}

int cache_write_over(struct cache_dataset *dataset, const uint64_t *scaled, struct runs *positions,
                     const void *values, bool whole)
{
    struct chunk_change change = {
        .positions = positions, .given = positions, .values = values, .whole = whole};
    int error = layout_check_room(dataset->layout, scaled);
    return error ? error : change_chunk(dataset, scaled, &change);
}

int cache_erase(struct cache_dataset *dataset, const uint64_t *scaled, const struct runs *positions,
                bool whole)
{
    struct chunk_change change = {.positions = positions, .erases = true, .whole = whole};
    return change_chunk(dataset, scaled, &change);
}

/* Whether a piece is all of its chunk that lies in the dataset. */
static bool is_whole(const struct layout *layout, const struct piece *piece)
{
    uint64_t start[SFS_MAX_RANK], inside[SFS_MAX_RANK];
    layout_inside(layout, piece->scaled, start, inside);
    return !memcmp(piece->count, inside, (size_t)layout->rank * sizeof(*inside));
}

int cache_prepare(struct cache_dataset *dataset, const uint64_t *scaled)
{
    struct chunk *chunk;
    int error = chunk_acquire(dataset, scaled, parts_to_change(dataset->layout), &chunk);
    if (!error)
        chunk_release(chunk);
    return error;
}

int cache_prepare_box(struct cache_dataset *dataset, const struct box *box)
{
    const struct layout *layout = dataset->layout;
    struct piece piece;
    unsigned done = 0;
    int error = 0;
    for (bool more = piece_first(layout, box, &piece); more && !error;
         more = piece_next(layout, box, &piece)) {
        if (!is_whole(layout, &piece))
            error = cache_prepare(dataset, piece.scaled);
        if (!error && ++done % ASK_EVERY == 0)
            error = interrupt_check();
    }
    return error;
}

static int change_box(struct cache_dataset *dataset, const struct box *box, const void *elements)
{
    const struct layout *layout = dataset->layout;
    struct piece piece;
    unsigned done = 0;
    int error = 0;
    for (bool more = piece_first(layout, box, &piece); more && !error;
         more = piece_next(layout, box, &piece)) {
        if (++done % ASK_EVERY == 0 && (error = interrupt_check()) < 0)
            break;
        struct chunk_change change = {.count = piece.count,
                                      .start = piece.in_chunk,
                                      .from = {elements, box->count, piece.in_box},
                                      .erases = !elements,
                                      .whole = is_whole(layout, &piece)};
        error = change_chunk(dataset, piece.scaled, &change);
    }
    return error;
}

int cache_write_box(struct cache_dataset *dataset, const struct box *box, const void *elements)
{
    struct piece piece;
    if (!piece_first(dataset->layout, box, &piece))
        return 0;
    int error = layout_check_room(dataset->layout, piece.last);
    return error ? error : change_box(dataset, box, elements);
}

int cache_erase_box(struct cache_dataset *dataset, const struct box *box)
{
    return change_box(dataset, box, NULL);
}

int cache_insert(struct cache_dataset *dataset, const uint64_t *scaled,
                 const struct encoded *encoded)
{
    struct cache *cache = dataset->cache;
    struct layout *layout = dataset->layout;
    struct chunk *chunk;
    int error = begin_change(dataset, scaled, 0, true, &chunk);
    if (error)
        return error;
    struct chunk_record record = chunk->record;
    if (encoded)
        unfinished_stored_whole(chunk);
    error = layout->ops->insert(layout, scaled, encoded, &record);
    if (error == -EILSEQ)
        error = -EIO;

    pthread_mutex_lock(&cache->lock);
    /* The cached chunk is outdated, also after an error that came when the index had the new one. */
    if (!error || !chunk_record_is_same(MAX_SECTIONS, &record, &chunk->record))
        chunk_unlink(chunk);
    pthread_mutex_unlock(&cache->lock);
    end_change(chunk);
    return error;
}

int cache_write_past(struct cache_dataset *dataset, const struct box *box, const void *elements)
{
    struct cache *cache = dataset->cache;
    struct layout *layout = dataset->layout;
    struct piece piece;
    int error = layout->ops->write(layout, box, elements);
    pthread_mutex_lock(&cache->lock);
    for (bool more = piece_first(layout, box, &piece); more; more = piece_next(layout, box, &piece))
        forget_chunk(dataset, piece.scaled);
    pthread_mutex_unlock(&cache->lock);
    return error;
}
