/* From a dirty chunk to the store: condensing, encoding, inserting. Encoder threads begin before
 * memory is needed, and work in parallel with a thread that flushes; writers encode only where
 * there are no encoders. */
#include <assert.h>
#include <errno.h>
#include <utlist.h>

#include "cache/private.h"
#include "chunk/variable_form.h"
#include "common/interrupt.h"
#include "common/thread.h"

/* Encoding begins when dirty chunks take more than this share of the limit. */
#define DIRTY_SHARE 4

/* An encoded chunk is at worst a little larger than its form. */
#define OPEN_MARGIN ((size_t)4 << 10)

/* Chunks that are stored together: so many, none that takes more than SMALL_BYTES of memory, about
 * TOGETHER_BYTES in all. Others are looked for among the first of those that are dirty. */
#define MOST_TOGETHER  LAYOUT_MOST_INSERTED
#define SMALL_BYTES    ((size_t)64 << 10)
#define TOGETHER_BYTES ((size_t)1 << 20)
#define MOST_LOOKED_AT 256

size_t encode_estimate(const struct chunk *chunk)
{
    const struct layout *layout = chunk->dataset->layout;
    if (!layout->ops->encode)
        return 0;
    if (!chunk->open)
        return layout->ops->encode_bytes(layout, &chunk->form);
    return layout->ops->encode_bytes(layout, NULL) + OPEN_MARGIN;
}

int chunk_condense(struct chunk *chunk)
{
    struct cache *cache = chunk->dataset->cache;
    pthread_rwlock_t *stripe = chunk_stripe(chunk);
    chunk->changing = true;
    chunk_pin(chunk);
    pthread_mutex_unlock(&cache->lock);

    pthread_rwlock_wrlock(stripe);
    int error = form_condense(chunk->dataset->layout, &chunk->form, &cache->pool);
    pthread_rwlock_unlock(stripe);

    pthread_mutex_lock(&cache->lock);
    if (error) {
        chunk->condensed_bytes = chunk->form_bytes;
    } else {
        chunk->open = false;
        chunk_count(chunk);
    }
    chunk_end_change(chunk);
    chunk_unpin(chunk);
    return error;
}

/* Whether an error of storing a chunk is local to it or its dataset: other chunks can still be
 * stored, and the stored chunk is unchanged. Errors of the disk or of libhdf5 concern the whole
 * store. */
static bool is_own(const struct layout *layout, int error)
{
    return layout->ops->is_sparse &&
           (error == -ENOMEM || error == -EFBIG || error == -EINVAL || error == -EILSEQ);
}

/* A chunk on its way into the store. */
struct writing {
    struct encoding encoding;
    struct chunk *chunk;
    size_t bytes;           /* that are reserved for it */
    struct runs unfinished; /* positions that are left out */
    struct cache_form rest; /* what is stored then */
    struct encoded encoded;
    struct chunk_record record;
    int error;
    bool own; /* it is the chunk's */
};

/* What of it goes into the store. */
static const struct cache_form *form_of(const struct writing *writing)
{
    return writing->encoding.is_part ? &writing->rest : &writing->chunk->form;
}

static bool is_empty(const struct writing *writing)
{
    return writing->chunk->dataset->layout->ops->is_sparse &&
           form_of(writing)->defined.elements == 0;
}

/* The lock is not held. */
static void encode(struct writing *writing)
{
    struct chunk *chunk = writing->chunk;
    struct layout *layout = chunk->dataset->layout;
    struct pool *pool = &chunk->dataset->cache->pool;
    if (writing->encoding.is_part)
        writing->error =
            form_erase(layout, &chunk->form, &writing->unfinished, pool, &writing->rest);
    const struct cache_form *form = form_of(writing);
    writing->encoded = (struct encoded){0};
    if (!writing->error) {
        unfinished_stored(chunk, form);
        if (!layout->ops->encode)
            writing->encoded = (struct encoded){.bytes = form->elements, .n = form->element_size};
        else if (!is_empty(writing))
            writing->error =
                layout->ops->encode(layout, chunk->scaled, form, pool, &writing->encoded);
    }
    writing->own = writing->error;
}

static void insert_each(struct layout *layout, struct insertion *insertions, size_t n)
{
    for (size_t i = 0; i < n; i++)
        insertions[i].error = layout->ops->insert(layout, insertions[i].scaled,
                                                  insertions[i].encoded, insertions[i].record);
}

/* Those that could be encoded; the lock is not held. */
static void insert(struct layout *layout, struct writing *writings, size_t n)
{
    struct insertion insertions[MOST_TOGETHER];
    struct writing *which[MOST_TOGETHER];
    size_t n_insertions = 0;
    for (size_t i = 0; i < n; i++) {
        struct writing *writing = &writings[i];
        if (writing->error)
            continue;
        which[n_insertions] = writing;
        insertions[n_insertions++] = (struct insertion){
            .scaled = writing->chunk->scaled,
            .encoded = is_empty(writing) ? NULL : &writing->encoded,
            .record = &writing->record,
        };
    }
    if (n_insertions > 1 && layout->ops->insert_many)
        layout->ops->insert_many(layout, insertions, n_insertions);
    else
        insert_each(layout, insertions, n_insertions);
    for (size_t i = 0; i < n_insertions; i++) {
        which[i]->error = insertions[i].error;
        which[i]->own = is_own(layout, insertions[i].error);
    }
}

/* Memory for that form, and while it is made. */
static size_t rest_bytes(const struct chunk *chunk)
{
    return chunk->dataset->layout->slots
               ? variable_form_bytes(chunk->dataset->layout, chunk->form_bytes, 0, 0)
               : chunk->form_bytes;
}

static bool flushes(const struct flush *flush, const struct cache_dataset *dataset)
{
    return flush->dataset ? dataset == flush->dataset : dataset->layout->store == flush->store;
}

/* Ends the flushes that wait for the changes of a failed encoding. A flush that began after the
 * encoding tries again itself: the cause may have passed. */
static void tell_flushes(struct cache *cache, const struct encoding *encoding, int error, bool own)
{
    struct flush *flush;
    DL_FOREACH (cache->flushes, flush) {
        if (encoding->since <= flush->last && encoding->flushes >= flush->number &&
            flushes(flush, encoding->chunk->dataset))
            *(own ? &flush->left : &flush->error) = error;
    }
}

void encoders_retry(struct cache *cache, bool all)
{
    struct chunk *chunk;
    DL_FOREACH2 (cache->dirty, chunk, dirty_next) {
        bool failed = chunk->write_error;
        chunk->write_error = 0;
        if (failed && !all)
            break;
    }
}

/* The rest of a chunk of which a commit has stored a part. Flushes that are to store more of it still wait for it. */
static void store_rest_later(struct chunk *chunk, const struct encoding *encoding)
{
    struct flush *flush;
    chunk_dirty_again(chunk);
    DL_FOREACH (chunk->dataset->cache->flushes, flush) {
        bool is_for_more = !flush->commits || flush->number > encoding->flushes;
        if (is_for_more && encoding->since <= flush->last && flushes(flush, chunk->dataset))
            flush->last = chunk->dirty_since;
    }
}

/* The chunk that is in the table by now: the encoded one, or its replacement by a writer. */
static void end_encoding(struct encoding *encoding, const struct chunk_record *record, int error,
                         bool own)
{
    struct chunk *chunk = encoding->chunk, *now = chunk_find(chunk->dataset, chunk->scaled);
    struct cache *cache = chunk->dataset->cache;
    assert(now && now->encoding == encoding);
    now->record = *record;
    now->encoding = chunk->encoding = NULL;
    now->write_error = error;
    now->own_error = own ? error : 0;
    now->failed = own ? encoding->flushes : 0;
    DL_DELETE(cache->encodings, encoding);
    if (error) {
        cache->write_error = error;
        if (now != chunk)
            chunk_still_dirty(now, encoding->since);
        tell_flushes(cache, encoding, error, own);
    } else {
        cache->encoded++;
        if (encoding->is_part)
            store_rest_later(now, encoding);
        else if (now == chunk)
            chunk_mark_clean(chunk);
        if (cache->write_error) { /* the cause may have passed */
            encoders_retry(cache, true);
            cache->write_error = 0;
        }
    }
    pthread_cond_broadcast(&cache->changed);
    pthread_cond_broadcast(&cache->freed);
}

/* The positions of a chunk that are unfinished, and not to be stored. The lock must be held. */
static int find_unfinished(struct chunk *chunk, struct encoding *encoding, struct runs *positions)
{
    if (unfinished_share(chunk) == UNFINISHED_NOTHING || !chunk->dataset->layout->ops->is_sparse)
        return 0;
    int error = unfinished_positions(chunk, positions);
    encoding->is_part = positions->n > 0;
    return error;
}

/* Marks a chunk as being encoded, and condenses it if it is open: the lock is dropped then. */
static void begin_writing(struct writing *writing, struct chunk *chunk, bool commits)
{
    struct cache *cache = chunk->dataset->cache;
    size_t bytes = encode_estimate(chunk);
    *writing = (struct writing){
        .chunk = chunk,
        .encoding = {.chunk = chunk, .since = chunk->dirty_since, .flushes = cache->n_flushes}};
    chunk->encoding = &writing->encoding;
    DL_APPEND(cache->encodings, &writing->encoding);
    reserve_now(cache, bytes);
    chunk_pin(chunk);
    int error = chunk->open ? chunk_condense(chunk) : 0;
    if (!error && commits)
        error = find_unfinished(chunk, &writing->encoding, &writing->unfinished);
    if (!error) {
        size_t exact = encode_estimate(chunk) + (writing->encoding.is_part ? rest_bytes(chunk) : 0);
        reserve_now(cache, exact);
        unreserve(cache, bytes);
        bytes = exact;
    }
    writing->bytes = bytes;
    writing->error = error;
    writing->own = error; /* -ENOMEM */
    writing->record = chunk->record;
}

static void end_writing(struct writing *writing)
{
    struct cache *cache = writing->chunk->dataset->cache;
    int error = writing->error == -EILSEQ ? -EIO : writing->error;
    unreserve(cache, writing->bytes);
    end_encoding(&writing->encoding, &writing->record, error, writing->own);
    chunk_unpin(writing->chunk);
}

static void free_writing(struct writing *writing)
{
    struct pool *pool = &writing->chunk->dataset->cache->pool;
    if (writing->encoded.room > 0)
        pool_put(pool, writing->encoded.bytes, writing->encoded.room);
    form_free(&writing->rest, pool);
    runs_free(&writing->unfinished);
}

/* The lock is held, and dropped meanwhile. Others may wait for these chunks, who are not interrupted. */
static void write_begun(struct writing *writings, size_t n)
{
    UNINTERRUPTED();
    struct cache_dataset *dataset = writings[0].chunk->dataset;
    encoders_wake(dataset->cache); /* another one can begin with the next */
    pthread_mutex_unlock(&dataset->cache->lock);
    for (size_t i = 0; i < n; i++)
        if (!writings[i].error)
            encode(&writings[i]);
    insert(dataset->layout, writings, n);
    for (size_t i = 0; i < n; i++)
        free_writing(&writings[i]);
    pthread_mutex_lock(&dataset->cache->lock);
    for (size_t i = 0; i < n; i++)
        end_writing(&writings[i]);
}

int write_back(struct chunk *chunk, bool commits)
{
    struct writing writing;
    begin_writing(&writing, chunk, commits);
    write_begun(&writing, 1);
    return writing.error == -EILSEQ ? -EIO : writing.error;
}

/* ---- Which one next ---- */

static bool is_idle(const struct chunk *chunk)
{
    return !chunk->changing && !chunk->encoding;
}

/* Whether there is memory to encode this chunk besides those that are being encoded, after evicting
 * clean chunks. */
static bool has_room(const struct cache *cache, const struct chunk *chunk)
{
    return !cache->encodings ||
           cache->busy + cache->dirty_bytes + encode_estimate(chunk) <= cache->limit;
}

/* Memory that a chunk takes until it is stored. */
static size_t bytes_until_stored(const struct chunk *chunk)
{
    return chunk->form_bytes + encode_estimate(chunk);
}

/* Another small chunk of the same dataset that is stored with those that were begun, or NULL: all
 * of it is finished, and nothing has to be evicted for it. */
static struct chunk *next_beside(const struct cache_dataset *dataset)
{
    const struct cache *cache = dataset->cache;
    struct chunk *chunk;
    unsigned looked = 0;
    if (dataset->held || !dataset->layout->ops->insert_many)
        return NULL;
    DL_FOREACH2 (cache->dirty, chunk, dirty_next) {
        if (++looked > MOST_LOOKED_AT)
            break;
        if (chunk->dataset != dataset || !is_idle(chunk) || chunk->write_error || chunk->failed ||
            unfinished_share(chunk) != UNFINISHED_NOTHING)
            continue;
        bool can = bytes_until_stored(chunk) <= SMALL_BYTES && has_room(cache, chunk) &&
                   cache->used + encode_estimate(chunk) <= cache->limit;
        return can ? chunk : NULL;
    }
    return NULL;
}

/* Writes a chunk back that has_room, and small ones with it, or evicts one that is in its way;
 * false: that cannot be. Errors stay with the chunks, and flushes are told. */
static bool begin_write_back(struct chunk *chunk, bool commits)
{
    struct cache *cache = chunk->dataset->cache;
    struct cache_dataset *dataset = chunk->dataset;
    struct writing writings[MOST_TOGETHER];
    size_t n = 0, bytes = 0;
    if (cache->encodings && cache->used + encode_estimate(chunk) > cache->limit)
        return evict_clean(cache);
    bool is_small = bytes_until_stored(chunk) <= SMALL_BYTES;
    while (chunk) {
        bytes += bytes_until_stored(chunk);
        begin_writing(&writings[n++], chunk, commits);
        chunk =
            is_small && n < MOST_TOGETHER && bytes < TOGETHER_BYTES ? next_beside(dataset) : NULL;
    }
    write_begun(writings, n);
    return true;
}

struct chunk *encodable(struct cache *cache, bool needed, bool *later)
{
    struct chunk *chunk, *unfinished = NULL;
    *later = cache->encodings;
    if (cache->n_dirty == cache->n_dirty_held)
        return NULL;
    DL_FOREACH2 (cache->dirty, chunk, dirty_next) {
        if (!is_idle(chunk) || chunk->write_error || chunk->dataset->held)
            continue;
        if (unfinished_share(chunk) == UNFINISHED_NOTHING)
            return has_room(cache, chunk) ? chunk : NULL;
        unfinished = unfinished ? unfinished : chunk;
    }
    return needed && unfinished && has_room(cache, unfinished) ? unfinished : NULL;
}

/* The next chunk that a flush can begin with, or NULL; in *more whether there are any that it has
 * to wait for. */
static struct chunk *next_of_flush(const struct cache *cache, const struct flush *flush, bool *more)
{
    struct chunk *chunk;
    const struct encoding *encoding;
    *more = false;
    DL_FOREACH2 (cache->dirty, chunk, dirty_next) {
        if (chunk->dirty_since > flush->last)
            break;
        if (!flushes(flush, chunk->dataset) || chunk->failed >= flush->number)
            continue;
        if (flush->commits && !chunk->encoding && unfinished_share(chunk) == UNFINISHED_ALL)
            continue;
        *more = true;
        if (is_idle(chunk))
            return has_room(cache, chunk) ? chunk : NULL;
    }
    DL_FOREACH (cache->encodings, encoding) {
        *more |= encoding->since <= flush->last && flushes(flush, encoding->chunk->dataset);
    }
    return NULL;
}

/* *commits: the chunk is for a commit. */
static struct chunk *next_chunk(struct cache *cache, bool *commits)
{
    const struct flush *flush;
    struct chunk *chunk;
    bool more, needed = cache->waiting > 0;
    DL_FOREACH (cache->flushes, flush) {
        *commits = flush->commits;
        if (!flush->error && (chunk = next_of_flush(cache, flush, &more)))
            return chunk;
    }
    *commits = false;
    return needed || cache->dirty_bytes > cache->limit / DIRTY_SHARE
               ? encodable(cache, needed, &more)
               : NULL;
}

/* ---- Threads ---- */

static void *run(void *data)
{
    struct cache *cache = data;
    struct chunk *chunk;
    bool commits;
    pthread_mutex_lock(&cache->lock);
    while (!cache->ends) {
        chunk = next_chunk(cache, &commits);
        if (!chunk || !begin_write_back(chunk, commits)) {
            cache->idle_encoders++;
            pthread_cond_wait(&cache->wanted, &cache->lock);
            cache->idle_encoders--;
        }
    }
    pthread_mutex_unlock(&cache->lock);
    return NULL;
}

void encoders_wake(struct cache *cache)
{
    bool commits;
    if (!next_chunk(cache, &commits))
        return;
    if (cache->idle_encoders > 0)
        pthread_cond_signal(&cache->wanted);
    else if (cache->n_encoders < cache->most_encoders &&
             thread_start(&cache->encoder[cache->n_encoders], run, cache) == 0)
        cache->n_encoders++; /* if it cannot start the existing ones do its work */
}

void encoders_end(struct cache *cache)
{
    pthread_mutex_lock(&cache->lock);
    cache->ends = true;
    pthread_cond_broadcast(&cache->wanted);
    pthread_mutex_unlock(&cache->lock);
    for (unsigned i = 0; i < cache->n_encoders; i++)
        pthread_join(cache->encoder[i], NULL);
}

/* ---- Flushing ---- */

/* Whether the last attempt to write any chunk has failed, in any store. */
static bool has_failed(const struct cache *cache)
{
    const struct chunk *chunk;
    DL_FOREACH2 (cache->dirty, chunk, dirty_next)
        if (chunk->write_error)
            break;
    return chunk;
}

/* Chunks that become dirty meanwhile are left to the next flush, so that a flush ends even under
 * constant writing. */
static int flush_most(struct cache *cache, struct cache_dataset *dataset, const struct store *store,
                      int *left)
{
    struct chunk *chunk;
    bool more;
    pthread_mutex_lock(&cache->lock);
    struct flush flush = {.dataset = dataset,
                          .store = store,
                          .last = cache->changes,
                          .number = ++cache->n_flushes,
                          .commits = !dataset};
    DL_APPEND(cache->flushes, &flush);
    while (!flush.error && ((chunk = next_of_flush(cache, &flush, &more)) || more)) {
        if (!chunk || !begin_write_back(chunk, flush.commits))
            pthread_cond_wait(&cache->changed, &cache->lock);
    }
    DL_DELETE(cache->flushes, &flush);
    if (cache->write_error && !flush.error && !flush.left && !has_failed(cache))
        cache->write_error = 0;
    pthread_mutex_unlock(&cache->lock);
    *left = flush.left;
    return flush.error;
}

int cache_flush(struct cache *cache, struct cache_dataset *dataset)
{
    int left, error = flush_most(cache, dataset, NULL, &left);
    return error ? error : left;
}

/* With the lock held: one step towards storing a chunk; *done: all that was changed before the first one is stored. */
static int flush_step(struct cache_dataset *dataset, const uint64_t *scaled, bool *done)
{
    struct cache *cache = dataset->cache;
    struct chunk *chunk = chunk_find(dataset, scaled);
    *done = !chunk || (!chunk->encoding && !chunk->dirty);
    if (*done)
        return 0;
    bool can = chunk->dirty && is_idle(chunk) && has_room(cache, chunk);
    if (can && !(cache->encodings && cache->used + encode_estimate(chunk) > cache->limit)) {
        *done = true;
        return write_back(chunk, false);
    }
    if (!can || !evict_clean(cache))
        pthread_cond_wait(&cache->changed, &cache->lock);
    return 0;
}

int cache_flush_chunk(struct cache_dataset *dataset, const uint64_t *scaled)
{
    struct cache *cache = dataset->cache;
    bool done = false;
    int error = 0;
    pthread_mutex_lock(&cache->lock);
    while (!done && !error)
        error = flush_step(dataset, scaled, &done);
    pthread_mutex_unlock(&cache->lock);
    return error;
}

int cache_flush_most(struct cache *cache, const struct store *store, int *left)
{
    return flush_most(cache, NULL, store, left);
}

bool cache_has_changes(struct cache *cache, const struct store *store)
{
    const struct chunk *chunk;
    pthread_mutex_lock(&cache->lock);
    DL_FOREACH2 (cache->dirty, chunk, dirty_next)
        if (chunk->dataset->layout->store == store)
            break;
    pthread_mutex_unlock(&cache->lock);
    return chunk;
}

int cache_left(struct cache_dataset *dataset)
{
    struct cache *cache = dataset->cache;
    struct chunk *chunk;
    int error = 0;
    pthread_mutex_lock(&cache->lock);
    DL_FOREACH2 (cache->dirty, chunk, dirty_next) {
        if (chunk->dataset == dataset && chunk->failed > 0)
            error = chunk->own_error;
    }
    pthread_mutex_unlock(&cache->lock);
    return error;
}
