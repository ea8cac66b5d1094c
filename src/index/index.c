/* Opening an index of any kind, its lock, and what the kinds have in common. */
#include "index/index.h"

#include <assert.h>
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>

#include "common/interrupt.h"
#include "common/thread.h"
#include "index/private.h"
#include "store/store.h"

static const struct index_ops *ops_of(enum chunk_index_kind kind)
{
    switch (kind) {
    case INDEX_SINGLE:
        return &index_single;
    case INDEX_FIXED_ARRAY:
        return &index_fixed_array;
    case INDEX_EXTENSIBLE_ARRAY:
        return &index_extensible_array;
    case INDEX_BTREE2:
        return &index_btree2;
    }
    return NULL;
}

/* ---- The lock ---- */

/* Running iterations of this thread: they hold the lock, and nested calls must not take it again,
 * where they would wait behind a writer. */
static _Thread_local const struct iteration {
    const struct index *index;
    const struct iteration *outer;
} * iterations;

static bool is_iterating(const struct index *index)
{
    for (const struct iteration *i = iterations; i; i = i->outer)
        if (i->index == index)
            return true;
    return false;
}

static void lock_to_read(struct index *index)
{
    if (!is_iterating(index))
        interrupt_ask_rdlock(&index->lock);
}

static void unlock_read(struct index *index)
{
    if (!is_iterating(index))
        pthread_rwlock_unlock(&index->lock);
}

static void lock_to_write(struct index *index)
{
    assert(!is_iterating(index));
    interrupt_ask_wrlock(&index->lock);
}

/* ---- Opening ---- */

int index_open(struct store *store, const struct superblock *superblock,
               const struct layout_message *layout, const struct chunk_record_format *format,
               const uint64_t *max_dims, struct index **out, struct why *why)
{
    struct index *index = calloc(1, sizeof(*index));
    if (!index)
        return -ENOMEM;
    int error = thread_init_lock(&index->lock);
    if (error) {
        free(index);
        return error;
    }
    error = block_cache_init(&index->cache);
    if (error) {
        pthread_rwlock_destroy(&index->lock);
        free(index);
        return error;
    }
    index->ops = ops_of(layout->index);
    index->store = store;
    index->superblock = superblock;
    index->format = *format;
    index->rank = layout->rank;
    index->address = layout->address;
    index->versions_0 = format->form < CHUNK_STRUCTURED || layout_message_is_rfc(layout);
    for (int i = 0; i < index->rank; i++) {
        uint64_t chunk = layout->chunk_dims[i];
        index->max_chunks[i] = max_dims[i] == SFS_UNLIMITED
                                   ? SFS_UNLIMITED
                                   : max_dims[i] / chunk + (max_dims[i] % chunk != 0);
        if (index->max_chunks[i] == 0)
            index->address = NO_ADDRESS; /* there cannot be any chunk */
    }
    error = index->ops->open(index, layout, why);
    if (error) {
        index_close(index);
        return error;
    }
    index_check_before(index);
    *out = index;
    return 0;
}

void index_close(struct index *index)
{
    if (!index)
        return;
    if (index->kind)
        index->ops->close(index);
    changes_destroy(&index->changes);
    block_cache_destroy(&index->cache);
    pthread_rwlock_destroy(&index->lock);
    free(index);
}

size_t index_kept_bytes(struct index *index)
{
    lock_to_read(index);
    size_t n = index->ops->kept ? index->ops->kept(index) : 0;
    unlock_read(index);
    return n + block_cache_bytes(&index->cache);
}

static bool is_inside(const struct index *index, const uint64_t *scaled)
{
    for (int i = 0; i < index->rank; i++)
        if (scaled[i] >= index->max_chunks[i])
            return false;
    return true;
}

int index_lookup(struct index *index, const uint64_t *scaled, struct chunk_record *record,
                 struct why *why)
{
    struct chunk_record found = {0};
    int error = 0;
    lock_to_read(index);
    if (index->address != NO_ADDRESS && is_inside(index, scaled))
        error = index->ops->lookup(index, scaled, &found, why);
    unlock_read(index);
    if (!error)
        *record = found;
    return error;
}

static int iterate(struct index *index, const struct index_range *range, index_each_function each,
                   void *context, struct why *why)
{
    int result = 0;
    lock_to_read(index);
    const struct iteration iteration = {index, iterations};
    iterations = &iteration;
    if (index->address != NO_ADDRESS)
        result = index->ops->iterate(index, range, each, context, why);
    iterations = iteration.outer;
    unlock_read(index);
    return result;
}

int index_iterate(struct index *index, index_each_function each, void *context, struct why *why)
{
    return iterate(index, NULL, each, context, why);
}

/* Those of a range alone. */
struct choosing {
    int rank;
    const struct index_range *range;
    index_each_function each;
    void *context;
};

static int choose(void *context, const uint64_t *scaled, const struct chunk_record *record)
{
    const struct choosing *choosing = context;
    const struct index_range *range = choosing->range;
    for (int i = 0; i < choosing->rank; i++)
        if (scaled[i] < range->first[i] || scaled[i] > range->last[i])
            return 0;
    return choosing->each(choosing->context, scaled, record);
}

int index_iterate_in(struct index *index, const struct index_range *range, index_each_function each,
                     void *context, struct why *why)
{
    struct choosing choosing = {index->rank, range, each, context};
    for (int i = 0; i < index->rank; i++)
        if (range->first[i] >= index->max_chunks[i])
            return 0;
    return iterate(index, range, choose, &choosing, why);
}

int index_each_block(struct index *index, index_block_function each, void *context, struct why *why)
{
    int result = 0;
    interrupt_ask_rdlock(&index->lock);
    if (index->address != NO_ADDRESS && index->ops->each_block)
        result = index->ops->each_block(index, each, context, why);
    pthread_rwlock_unlock(&index->lock);
    return result;
}

/* ---- Writing ---- */

static int check_coordinates(const struct index *index, const uint64_t *scaled, struct why *why)
{
    if (!is_inside(index, scaled))
        return why_refused(why, -EINVAL,
                           "chunk index at address %" PRIu64 ": a chunk outside of the max dims",
                           index->address);
    return 0;
}

bool index_can_hold(struct index *index, const uint64_t *scaled)
{
    lock_to_read(index);
    bool can_hold =
        is_inside(index, scaled) && (!index->ops->can_hold || index->ops->can_hold(index, scaled));
    unlock_read(index);
    return can_hold;
}

/* Before a change, so that an error of writing is not one of the change. */
static int make_room(struct index *index, struct why *why)
{
    return index->changes.bytes > MOST_CHANGED_BYTES ? changes_write(index, why) : 0;
}

int index_insert(struct index *index, const uint64_t *scaled, const struct chunk_record *record,
                 struct why *why)
{
    assert(record->exists);
    UNINTERRUPTED();
    lock_to_write(index);
    int error = check_coordinates(index, scaled, why);
    if (!error &&
        chunk_record_check(&index->format, store_size(index->store), index->address, record, why))
        error = -EINVAL;
    if (!error)
        error = chunk_record_fits(&index->format, index->superblock, record, why);
    if (!error)
        error = make_room(index, why);
    if (!error)
        error = index->ops->insert(index, scaled, record, why);
    pthread_rwlock_unlock(&index->lock);
    return error;
}

int index_remove(struct index *index, const uint64_t *scaled, struct why *why)
{
    UNINTERRUPTED();
    lock_to_write(index);
    int error = check_coordinates(index, scaled, why);
    if (!error)
        error = make_room(index, why);
    if (!error && index->address != NO_ADDRESS)
        error = index->ops->remove(index, scaled, why);
    pthread_rwlock_unlock(&index->lock);
    return error;
}

int index_make(struct index *index, struct why *why)
{
    bool none = false;
    for (int i = 0; i < index->rank; i++)
        none |= index->max_chunks[i] == 0;
    lock_to_write(index);
    int error = !none && index->ops->make_header ? index->ops->make_header(index, why) : 0;
    pthread_rwlock_unlock(&index->lock);
    return error;
}

int index_flush(struct index *index, struct why *why)
{
    lock_to_write(index);
    int error = changes_write(index, why);
    if (!error)
        index_check_written(index);
    pthread_rwlock_unlock(&index->lock);
    return error;
}

static struct layout_message with_layout(const struct index *index,
                                         const struct layout_message *layout)
{
    struct layout_message l = *layout;
    l.address = index->address;
    if (index->ops->tell && index->address != NO_ADDRESS)
        index->ops->tell(index, &l);
    if (l.index != INDEX_SINGLE)
        return l;
    l.single = (struct chunk_record){.address = NO_ADDRESS};
    l.single_filtered = index->format.form == CHUNK_STRUCTURED_FILTERED;
    if (index->address != NO_ADDRESS)
        l.single = *(const struct chunk_record *)index->kind;
    return l;
}

void index_layout(struct index *index, struct layout_message *layout)
{
    lock_to_read(index);
    *layout = with_layout(index, layout);
    unlock_read(index);
}

bool index_layout_changed(struct index *index, const struct layout_message *layout)
{
    struct layout_message l = *layout;
    index_layout(index, &l);
    return l.address != layout->address || l.single_filtered != layout->single_filtered ||
           !chunk_record_is_same(l.n_sections, &l.single, &layout->single);
}
