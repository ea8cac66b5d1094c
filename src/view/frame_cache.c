/* What is defined in single frames of a sparse dataset, and views that are made of a whole frame:
 * worked out once for all who want it at a time, and kept for the next request until others are
 * wanted more. */
#include <errno.h>
#include <stdlib.h>
#include <utlist.h>

#include "common/interrupt.h"
#include "common/result_limit.h"
#include "view/npz.h"
#include "view/views_memory.h"

/* Unused entries above either limit are dropped, except the one used last, which is being read in
 * pieces. */
#define MOST_FRAMES 32
#define MOST_BYTES  ((size_t)16 << 20)

void defined_init(struct views *views)
{
    pthread_mutex_init(&views->defined_frames.lock, NULL);
    pthread_cond_init(&views->defined_frames.made, NULL);
}

static size_t bytes_of(const struct defined_frame *entry)
{
    return entry->form != DEFINED_INTERVALS
               ? entry->encoded.n
               : (entry->defined.n + 1) * sizeof(*entry->defined.interval);
}

static void free_entry(struct defined_frame *entry)
{
    kept_memory_give_back(entry->kept);
    made_memory_give_back(entry->made);
    sfs_defined_free(&entry->defined);
    free(entry->encoded.bytes);
    free(entry);
}

/* The lock must be held. */
static void unlist(struct defined_frames *frames, struct defined_frame *entry)
{
    DL_DELETE(frames->list, entry);
    entry->is_listed = false;
    frames->n--;
    if (entry->is_made && !entry->error)
        frames->bytes -= bytes_of(entry);
}

/* The same for an entry that is outdated. */
static void forget(struct defined_frames *frames, struct defined_frame *entry)
{
    unlist(frames, entry);
    if (entry->users == 0)
        free_entry(entry);
}

void defined_drop(struct views *views)
{
    struct defined_frames *frames = &views->defined_frames;
    struct defined_frame *entry, *next;
    pthread_mutex_lock(&frames->lock);
    DL_FOREACH_SAFE (frames->list, entry, next)
        forget(frames, entry);
    pthread_mutex_unlock(&frames->lock);
}

void defined_destroy(struct views *views)
{
    defined_drop(views);
    pthread_cond_destroy(&views->defined_frames.made);
    pthread_mutex_destroy(&views->defined_frames.lock);
}

/* Drops what was not used for longest. The lock must be held. */
static void trim(struct defined_frames *frames)
{
    struct defined_frame *entry = frames->list ? frames->list->prev : NULL; /* the last */
    while (entry && (frames->n > MOST_FRAMES || frames->bytes > MOST_BYTES)) {
        struct defined_frame *before = entry == frames->list ? NULL : entry->prev;
        if (entry->users == 0 && before)
            forget(frames, entry);
        entry = before;
    }
}

/* Whether there is memory for what nobody uses any more. */
static bool may_stay(struct defined_frame *entry)
{
    if (entry->made == 0)
        return kept_memory_may_stay();
    if (!made_memory_keep(entry->made))
        return false;
    entry->kept = entry->made;
    entry->made = 0;
    return true;
}

/* The lock must be held. */
static void put(struct defined_frames *frames, struct defined_frame *entry)
{
    if (--entry->users == 0 && !entry->is_listed)
        free_entry(entry);
    else if (entry->users == 0 && entry->is_made && !may_stay(entry))
        forget(frames, entry);
    trim(frames);
}

void defined_put(struct views *views, struct defined_frame *entry)
{
    if (!entry)
        return;
    pthread_mutex_lock(&views->defined_frames.lock);
    put(&views->defined_frames, entry);
    pthread_mutex_unlock(&views->defined_frames.lock);
}

static int make_intervals(struct views *views, struct defined_frame *entry)
{
    struct sfs_slab slab = view_frame_slab(views, entry->frame);
    int error = sfs_get_defined(views->dataset, &slab, &entry->defined);
    if (!error)
        error = kept_memory_take(views, bytes_of(entry));
    entry->kept = error ? 0 : bytes_of(entry);
    return error;
}

/* What is taken for an encoding before it is made. */
struct taking {
    size_t taken;
    bool is_refused;
};

static bool take_for_encoding(void *context, size_t n)
{
    struct taking *taking = context;
    kept_memory_give_back(taking->taken);
    taking->is_refused = n > 0 && !kept_memory_try(n);
    taking->taken = taking->is_refused ? 0 : n;
    return !taking->is_refused;
}

static int encode(struct views *views, struct defined_frame *entry)
{
    struct sfs_slab slab = view_frame_slab(views, entry->frame);
    struct taking taking = {0};
    void *encoded = NULL;
    result_limit_begin(take_for_encoding, &taking);
    int error =
        sfs_encode_defined(views->dataset, &slab, views->frame_rank, &encoded, &entry->encoded.n);
    result_limit_end();
    if (error == -ENOMEM && taking.is_refused)
        error = kept_memory_refused(views);
    if (!error)
        entry->encoded.bytes = encoded;
    /* It is another number if making it took more, or if all or nothing is defined. */
    if (!error && taking.taken != entry->encoded.n) {
        kept_memory_give_back(taking.taken);
        taking.taken = entry->encoded.n;
        error = kept_memory_take(views, taking.taken);
    } else if (error) {
        kept_memory_give_back(taking.taken);
    }
    entry->kept = error ? 0 : taking.taken;
    return error;
}

static int make_frame(struct views *views, struct defined_frame *entry)
{
    int error = entry->form == DEFINED_PNG   ? png_make(views, entry->frame, &entry->encoded)
                : entry->form == DEFINED_NPZ ? npz_make(views, entry->frame, &entry->encoded)
                                             : cbf_make(views, entry->frame, &entry->encoded);
    entry->made = error ? 0 : entry->encoded.n;
    return error;
}

static int make(struct views *views, struct defined_frame *entry)
{
    return entry->form == DEFINED_INTERVALS ? make_intervals(views, entry)
           : entry->form == DEFINED_ENCODED ? encode(views, entry)
                                            : make_frame(views, entry);
}

/* Makes a new entry while others wait for it. The lock must be held; it is dropped. */
static struct defined_frame *add(struct views *views, uint64_t frame, enum defined_form form)
{
    struct defined_frames *frames = &views->defined_frames;
    struct defined_frame *entry = calloc(1, sizeof(*entry));
    if (!entry)
        return NULL;
    entry->frame = frame;
    entry->form = form;
    entry->changes = sfs_dataset_changes(views->dataset);
    entry->states = sfs_states(views->file);
    entry->users = 1;
    entry->is_listed = true;
    DL_PREPEND(frames->list, entry);
    frames->n++;
    pthread_mutex_unlock(&frames->lock);
    int error = make(views, entry);
    pthread_mutex_lock(&frames->lock);
    entry->error = error;
    entry->is_made = true;
    if (!error && entry->is_listed)
        frames->bytes += bytes_of(entry);
    if (error && entry->is_listed)
        unlist(frames, entry);
    pthread_cond_broadcast(&frames->made);
    return entry;
}

/* The one that is there and current, or NULL. The lock must be held. */
static struct defined_frame *find(struct views *views, uint64_t frame, enum defined_form form)
{
    struct defined_frames *frames = &views->defined_frames;
    struct defined_frame *entry;
    DL_FOREACH (frames->list, entry)
        if (entry->frame == frame && entry->form == form)
            break;
    if (!entry || (is_current(views, entry->changes) &&
                   (form != DEFINED_CBF || entry->states == sfs_states(views->file))))
        return entry;
    forget(frames, entry);
    return NULL;
}

/* Another is making it. The lock must be held. */
static int wait_for(struct defined_frames *frames, struct defined_frame *entry)
{
    int error = 0;
    entry->users++;
    DL_DELETE(frames->list, entry);
    DL_PREPEND(frames->list, entry);
    while (!entry->is_made && !error)
        error = interrupt_wait(&frames->made, &frames->lock);
    return entry->is_made ? entry->error : error;
}

/* The same; false: its maker was interrupted: try again. */
static bool get(struct views *views, uint64_t frame, enum defined_form form,
                struct defined_frame **out, int *result)
{
    struct defined_frames *frames = &views->defined_frames;
    struct defined_frame *entry = find(views, frame, form);
    bool is_mine = !entry;
    int error;
    if (is_mine) {
        entry = add(views, frame, form);
        error = entry ? entry->error : -ENOMEM;
    } else {
        error = wait_for(frames, entry);
    }
    if (!error)
        *out = entry;
    else if (entry)
        put(frames, entry);
    *result = error;
    return error != -EINTR || is_mine || interrupt_check() != 0;
}

int defined_get(struct views *views, uint64_t frame, enum defined_form form,
                struct defined_frame **out)
{
    struct defined_frames *frames = &views->defined_frames;
    int error;
    pthread_mutex_lock(&frames->lock);
    while (!get(views, frame, form, out, &error))
        ;
    pthread_mutex_unlock(&frames->lock);
    return error;
}

int view_hold_defined(struct views *views, uint64_t frame, struct defined_frame **held)
{
    LOOKING_AT(views);
    return defined_get(views, frame, DEFINED_ENCODED, held);
}

struct view_head view_held_bytes(const struct defined_frame *held)
{
    return held->encoded;
}

uint64_t view_held_version(const struct defined_frame *held)
{
    return held->changes;
}

void view_release_defined(struct views *views, struct defined_frame *held)
{
    defined_put(views, held);
}
