/* A table of the views that are open for writing. */
#include "fs/staged_writes.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <utlist.h>

#include "common/clock.h"
#include "common/hash.h"
#include "common/interrupt.h"
#include "common/log.h"
#include "fs/staged_private.h"
#include "fs/staging_limit.h"

int staging_create(struct nodes *nodes, struct staging **out)
{
    struct staging *staging = calloc(1, sizeof(*staging));
    if (!staging)
        return -ENOMEM;
    staging->nodes = nodes;
    staging->version = 1;
    pthread_mutex_init(&staging->lock, NULL);
    clock_init_condition(&staging->changed);
    *out = staging;
    return 0;
}

void staging_collect(struct staging *staging, struct staging_limit *limit, bool sparsify)
{
    staging->limit = limit;
    staging->sparsify = sparsify;
}

void staging_destroy(struct staging *staging)
{
    if (!staging)
        return;
    pthread_cond_destroy(&staging->changed);
    pthread_mutex_destroy(&staging->lock);
    free(staging);
}

/* The lock must be held, here and in what follows. */
static struct staged *find(struct staging *staging, const struct node *node, enum view_kind view,
                           uint64_t frame)
{
    const struct staged_key key = {node->object, frame, view};
    struct staged *staged;
    HASH_FIND(hh, staging->table, &key, sizeof(key), staged);
    return staged;
}

static bool is_selection(const struct staged *staged)
{
    return staged->key.view == VIEW_DEFINED;
}

/* Whether the frame is not there yet. Not under the lock, as this may wait for others that change the dataset. */
static bool is_behind(struct views *views, enum view_kind view, uint64_t frame)
{
    return view < VIEW_STACK_RAW && frame >= views_frames(views);
}

static bool is_missing(const struct staged *staged)
{
    return is_behind(staged->views, staged->key.view, staged->key.frame);
}

/* The content ends, applied or (error) not. Who is `told` has that from the answer; others that have written to it are
 * told by their next close or sync. */
static void end_parts(struct staged *staged, const struct staged_writer *told, int error)
{
    struct staged_writer *writer;
    DL_FOREACH (staged->list, writer) {
        if (error && writer->has_part && writer != told)
            atomic_store(&writer->lost, error == -EINTR ? -EIO : error);
        writer->has_part = false;
    }
}

/* Called after every change of `waits`. */
static void note(struct staging *staging, struct staged *staged)
{
    bool waits = staged->is_staged || (staged->is_new && !staged->is_refused);
    staged->version = staging->version += 2;
    if (!waits) {
        staged->is_closed = false;
        staged->close = 0;
    }
    if (atomic_exchange(&staged->waits, waits) != waits)
        waits ? atomic_fetch_add(&staging->waiting, 1) : atomic_fetch_sub(&staging->waiting, 1);
    pthread_cond_broadcast(&staging->changed);
}

static int add(struct staging *staging, const struct node *node, enum view_kind view,
               uint64_t frame, struct staged **out)
{
    struct staged *staged = calloc(1, sizeof(*staged));
    int error = staged ? node_get_views(staging->nodes, node, &staged->views) : -ENOMEM;
    if (error)
        goto failed;
    staged->node = node;
    staged->key = (struct staged_key){node->object, frame, view};
    HASH_ADD(hh, staging->table, key, sizeof(staged->key), staged);
    if (hash_failed()) {
        node_put_views(staging->nodes, node);
        error = -ENOMEM;
        goto failed;
    }
    atomic_init(&staged->waits, false);
    atomic_init(&staged->is_collected, false);
    pthread_mutex_init(&staged->order, NULL);
    *out = staged;
    return 0;

failed:
    free(staged);
    return error;
}

static bool is_collected(const struct staged *staged)
{
    return atomic_load(&staged->is_collected);
}

bool staging_is_collected(const struct staged_writer *writer)
{
    return is_collected(writer->staged);
}

bool staging_has_lost(const struct staged_writer *writer)
{
    return atomic_load(&writer->lost) != 0;
}

/* Whether there is a content, of whatever kind. */
static bool has_content(const struct staged *staged)
{
    return staged->is_staged && staged->failure == 0 &&
           (is_selection(staged) || is_collected(staged));
}

static void free_content(struct staging *staging, struct staged *staged)
{
    content_free(&staged->content, staging->limit);
    atomic_store(&staged->is_collected, false);
    staged->failure = 0;
    staged->head_written = 0;
}

/* What waits still is forgotten. */
static void unlist(struct staging *staging, struct staged *staged)
{
    staged->is_staged = staged->is_new = false;
    note(staging, staged);
    HASH_DEL(staging->table, staged);
}

/* Needs no lock: the entry is in no table. */
static void destroy(struct staging *staging, struct staged *staged)
{
    node_put_views(staging->nodes, staged->node);
    free_content(staging, staged);
    pthread_mutex_destroy(&staged->order);
    free(staged);
}

/* `order` has been taken. */
static void entered(struct staging *staging, struct staged *staged)
{
    if (is_selection(staged))
        staged->most_bytes = views_selection_limit(staged->views);
    pthread_mutex_lock(&staging->lock);
}

/* From here on nothing else of it is applied. -EINTR: it has not been entered. */
static int enter(struct staging *staging, struct staged *staged)
{
    int error = interrupt_lock(&staged->order);
    if (!error)
        entered(staging, staged);
    return error;
}

/* For what has to be done, however long it takes. */
static void enter_in_any_case(struct staging *staging, struct staged *staged)
{
    interrupt_ask_lock(&staged->order);
    entered(staging, staged);
}

static void leave(struct staging *staging, struct staged *staged)
{
    pthread_mutex_unlock(&staging->lock);
    pthread_mutex_unlock(&staged->order);
}

/* A selection that is applied while commits are held. */
struct work {
    struct staging *staging;
    struct staged *staged;
};

static const struct view_hold *hold_of(const struct staged *staged)
{
    return commits_hold(staged->node->mounted->commits);
}

static void set_in_work(const struct work *work, bool is_in_work)
{
    pthread_mutex_lock(&work->staging->lock);
    work->staged->is_in_work = is_in_work;
    pthread_cond_broadcast(&work->staging->changed);
    pthread_mutex_unlock(&work->staging->lock);
}

/* What a commit is waited for is not in work yet: others would have to wait for that, too. */
static int begin_work(void *context)
{
    const struct work *work = context;
    const struct view_hold *hold = hold_of(work->staged);
    int error = hold->begin(hold->context);
    if (!error)
        set_in_work(work, true);
    return error;
}

static void end_work(void *context)
{
    const struct work *work = context;
    const struct view_hold *hold = hold_of(work->staged);
    set_in_work(work, false);
    hold->end(hold->context);
}

/* Erases the frame, of which nothing is read or kept: on a full disk there may be no room for it. */
static int erase_frame(const struct work *work)
{
    const struct staged *staged = work->staged;
    uint64_t frame = staged->key.frame;
    struct view_turn turn;
    /* Before others have to wait for what is in work. */
    int error = view_begin_turn(staged->views, (struct view_frames){frame, frame}, false, &turn);
    if (error)
        return error;
    set_in_work(work, true);
    error = view_truncate(staged->views, VIEW_DEFINED, frame, 0);
    set_in_work(work, false);
    view_end_turn(&turn);
    return error;
}

static int set_defined(const struct work *work)
{
    const struct staged *staged = work->staged;
    const struct view_hold hold = {begin_work, end_work, (void *)work};
    const struct view_content content = {.bytes = staged->content.bytes,
                                         .n = staged->content.n,
                                         .most_kept = work->staging->limit->most,
                                         .hold = &hold};
    return view_put(staged->views, VIEW_DEFINED, staged->key.frame, &content);
}

/* The lock is dropped meanwhile. The content stays: who changes it enters. */
static int apply_selection(struct staging *staging, struct staged *staged)
{
    const struct work work = {staging, staged};
    bool is_written = staged->is_written, is_new = staged->is_new;
    pthread_mutex_unlock(&staging->lock);
    int error = is_written ? set_defined(&work)
                : is_new   ? views_extend(staged->views, staged->key.frame + 1)
                           : erase_frame(&work);
    pthread_mutex_lock(&staging->lock);
    return error;
}

/* The caller holds `order`, which excludes other writers. The lock is dropped meanwhile. */
static int apply_collected(struct staging *staging, struct staged *staged, bool is_tentative)
{
    const struct view_content content = {.bytes = staged->content.n ? staged->content.bytes : "",
                                         .n = staged->content.n,
                                         .sparsify = staging->sparsify,
                                         .most_kept = staging->limit->most,
                                         .is_tentative = is_tentative,
                                         .hold = hold_of(staged)};
    staged->applies = true;
    pthread_mutex_unlock(&staging->lock);
    int error = view_put(staged->views, staged->key.view, staged->key.frame, &content);
    pthread_mutex_lock(&staging->lock);
    staged->applies = false;
    return error;
}

/* Of a frame that was to come to be, and is there by now, nothing is erased. The lock is dropped
 * meanwhile. */
static int apply_dense(struct staging *staging, struct staged *staged)
{
    bool is_new = staged->is_new;
    pthread_mutex_unlock(&staging->lock);
    int error = is_new ? views_extend(staged->views, staged->key.frame + 1)
                       : view_truncate(staged->views, staged->key.view, staged->key.frame, 0);
    pthread_mutex_lock(&staging->lock);
    return error;
}

static void end_content(struct staging *staging, struct staged *staged,
                        const struct staged_writer *told, int error, bool *changed)
{
    end_parts(staged, told, error);
    free_content(staging, staged);
    staged->is_staged = staged->is_written = false;
    staged->is_new &= error != 0;
    staged->is_refused = staged->is_new;
    note(staging, staged);
    *changed = true; /* what the file shows is something else now in any case */
}

/* It has been entered. What was applied, or not, waits still. */
static int try_to_apply(struct staging *staging, struct staged *staged)
{
    return is_selection(staged)   ? apply_selection(staging, staged)
           : is_collected(staged) ? apply_collected(staging, staged, false)
                                  : apply_dense(staging, staged);
}

/* Applied or not, nothing waits afterwards. It has been entered. */
static int apply(struct staging *staging, struct staged *staged, const struct staged_writer *told,
                 bool *changed)
{
    int error = try_to_apply(staging, staged);
    end_content(staging, staged, told, error, changed);
    return error;
}

/* By closing a descriptor that may not be the last one: what is no file yet may become one. Until
 * then it is not shown. It has been entered. */
static int try_collected(struct staging *staging, struct staged *staged,
                         const struct staged_writer *told, bool *changed)
{
    int error = apply_collected(staging, staged, true);
    if (!error || error == -EINTR || error == -ETIMEDOUT) { /* which more bytes do not mend */
        end_content(staging, staged, told, error, changed);
        return error;
    }
    staged->failure = error;
    staged->is_refused = staged->is_new;
    note(staging, staged);
    *changed = true;
    return error;
}

int staging_wait(struct staging *staging)
{
    return interrupt_wait_monotonic(&staging->changed, &staging->lock);
}

/* The content of one that has failed is in use while a close decodes it again. -EINTR. */
static int find_to_begin(struct staging *staging, const struct node *node, enum view_kind view,
                         uint64_t frame, struct staged **staged)
{
    int error = 0;
    while (!error && (*staged = find(staging, node, view, frame)) && (*staged)->failure &&
           (*staged)->applies)
        error = staging_wait(staging);
    return error;
}

/* A failure of another writer, which has closed the file: who opens it begins anew. */
static void drop_failed(struct staging *staging, struct staged *staged)
{
    log_warning("%s: %s: frame %llu is not changed: what was written to its file was refused when "
                "a descriptor of it was closed (%s), and is forgotten, as the file is opened for "
                "writing again",
                sfs_path(node_file(staged->node)), staged->views->path,
                (unsigned long long)staged->key.frame, strerror(-staged->failure));
    end_parts(staged, NULL, staged->failure);
    free_content(staging, staged);
    staged->is_staged = staged->is_written = false;
    note(staging, staged);
}

/* The lock must be held. */
static int begin(struct staging *staging, const struct node *node, enum view_kind view,
                 uint64_t frame, struct staged_writer *writer)
{
    struct staged *staged;
    int error = find_to_begin(staging, node, view, frame, &staged);
    if (!error && !staged)
        error = add(staging, node, view, frame, &staged);
    if (error)
        return error;
    if (staged->failure)
        drop_failed(staging, staged);
    writer->staged = staged;
    DL_APPEND(staged->list, writer);
    staged->writers++;
    return 0;
}

int staging_begin(struct staging *staging, const struct node *node, enum view_kind view,
                  uint64_t frame, struct staged_writer **out)
{
    struct views *views;
    struct staged_writer *writer = calloc(1, sizeof(*writer));
    int error = writer ? node_get_views(staging->nodes, node, &views) : -ENOMEM;
    if (error)
        goto done;
    atomic_init(&writer->lost, 0);
    bool is_there = !is_behind(views, view, frame); /* which may wait for what is written there */
    pthread_mutex_lock(&staging->lock);
    error = begin(staging, node, view, frame, writer);
    if (!error && !is_there) {
        struct staged *staged = writer->staged;
        staged->is_new = true;
        staged->is_refused = false;
        staged->is_staged |= is_selection(staged);
        note(staging, staged);
    }
    pthread_mutex_unlock(&staging->lock);
    node_put_views(staging->nodes, node);
done:
    if (error)
        free(writer);
    else
        *out = writer;
    return error;
}

int staging_apply(struct staging *staging, struct staged_writer *writer, bool *changed)
{
    struct staged *staged = writer->staged;
    *changed = false;
    int error = enter(staging, staged);
    if (error)
        return error;
    error = atomic_exchange(&writer->lost, 0);
    if (!error && atomic_load(&staged->waits)) {
        error = try_to_apply(staging, staged);
        *changed = true;
        if (error != -EINTR) /* else it can be asked for again */
            end_content(staging, staged, writer, error, changed);
    }
    leave(staging, staged);
    return error;
}

/* It has been entered. */
static int close_writer(struct staging *staging, struct staged_writer *writer, bool wrote,
                        bool *changed, bool *closing)
{
    struct staged *staged = writer->staged;
    if (staging_has_lost(writer)) /* nor must any later close report success */
        return atomic_load(&writer->lost);
    if (staged->is_staged && staged->is_written && wrote)
        return (is_collected(staged) ? try_collected : apply)(staging, staged, writer, changed);
    if (staged->failure) /* the same */
        return staged->failure;
    if (atomic_load(&staged->waits) && !staged->is_written)
        *changed = *closing = true;
    return 0;
}

int staging_close(struct staging *staging, struct staged_writer *writer, bool wrote, bool again,
                  bool *changed, bool *closing)
{
    struct staged *staged = writer->staged;
    *changed = *closing = false;
    if (!atomic_load(&staged->waits) && !staging_has_lost(writer))
        return 0;
    int error = enter(staging, staged);
    if (error)
        return error;
    error = close_writer(staging, writer, wrote, changed, closing);
    if (*closing && staged->closing++ == 0)
        staged->is_looked_at = false;
    if (*closing && again) { /* the last time was not for good */
        staged->is_closed = false;
        pthread_cond_broadcast(&staging->changed);
    }
    leave(staging, staged);
    return error;
}

void staging_forget_looks(struct staging *staging, const struct node *node, enum view_kind view,
                          uint64_t frame)
{
    pthread_mutex_lock(&staging->lock);
    struct staged *staged = find(staging, node, view, frame);
    if (staged)
        staged->is_looked_at = false;
    pthread_mutex_unlock(&staging->lock);
}

bool staging_closed(struct staging *staging, const struct node *node, enum view_kind view,
                    uint64_t frame, bool in_any_case)
{
    pthread_mutex_lock(&staging->lock);
    struct staged *staged = find(staging, node, view, frame);
    bool is_done = !staged || !staged->is_looked_at || in_any_case;
    if (staged && staged->closing > 0 && is_done) {
        bool is_closed = atomic_load(&staged->waits) && !staged->is_written;
        staged->closing--;
        staging->closes++;
        if (is_closed && !staged->is_closed) {
            staged->close = staging->closes;
            staged->patient_until = 0;
        }
        staged->is_closed = is_closed;
        pthread_cond_broadcast(&staging->changed);
    }
    pthread_mutex_unlock(&staging->lock);
    return is_done;
}

/* Ends a writer or user of one that was entered. */
static void leave_for_good(struct staging *staging, struct staged *staged, unsigned *count)
{
    --*count;
    bool is_last = staged->writers + staged->users == 0;
    if (is_last)
        unlist(staging, staged);
    pthread_cond_broadcast(&staging->changed);
    leave(staging, staged);
    if (is_last)
        destroy(staging, staged);
}

/* By closing for good: an error is told to the syncs that wait for it, as there is nobody else. */
static int apply_last(struct staging *staging, struct staged *staged,
                      const struct staged_writer *told, bool *changed)
{
    struct staged_sync *sync;
    uint64_t close = staged->close;
    int error = apply(staging, staged, told, changed);
    DL_FOREACH (staging->syncs, sync) {
        if (error && staging_is_synced_by(staged, close, sync))
            sync->error = error == -EINTR ? -EIO : error;
    }
    return error;
}

int staging_end(struct staging *staging, struct staged_writer *writer, bool asked, bool *changed)
{
    struct staged *staged = writer->staged;
    int error = 0;
    *changed = false;
    pthread_mutex_lock(&staging->lock);
    staged->ending++;
    pthread_mutex_unlock(&staging->lock);
    enter_in_any_case(staging, staged);
    asked &= !staging_has_lost(writer); /* what waits now is others' */
    if ((asked || staged->writers == 1) && atomic_load(&staged->waits))
        error = apply_last(staging, staged, writer, changed);
    DL_DELETE(staged->list, writer);
    free(writer);
    staged->ending--;
    leave_for_good(staging, staged, &staged->writers); /* new writers may have come meanwhile */
    return error;
}

bool staging_waits(const struct staged_writer *writer)
{
    return atomic_load(&writer->staged->waits);
}

void staging_refuse(struct staging *staging, struct staged_writer *writer, bool *changed)
{
    struct staged *staged = writer->staged;
    *changed = false;
    if (staging_has_lost(writer)) /* what waits now is others' */
        return;
    enter_in_any_case(staging, staged);
    *changed = atomic_load(&staged->waits);
    end_parts(staged, writer, -EIO);
    free_content(staging, staged);
    staged->is_staged = staged->is_written = false;
    staged->is_refused = staged->is_new;
    note(staging, staged);
    leave(staging, staged);
}

/* ---- Contents ---- */

/* Whether a content may have n bytes: -EFBIG: no such one has; -ENOSPC: it is more than all may take together. */
static int check_size(const struct staging *staging, const struct staged *staged, uint64_t n)
{
    if (is_selection(staged) && n > staged->most_bytes)
        return -EFBIG;
    return staging->limit && n > staging->limit->most ? -ENOSPC : 0;
}

/* Room for a content of n bytes; what is new of it is zero. */
static int resize(struct staging *staging, struct staged *staged, uint64_t n)
{
    int error = check_size(staging, staged, n);
    return error ? error : content_resize(&staged->content, n, staging->limit);
}

/* The present content, which may take long. */
static int take_present(struct staging *staging, struct staged *staged, struct content *content)
{
    uint64_t size = 0, frame = staged->key.frame;
    enum view_kind view = staged->key.view;
    *content = (struct content){0};
    int error = is_missing(staged) ? 0 : view_size(staged->views, view, frame, &size);
    if (!error)
        error = check_size(staging, staged, size);
    if (!error)
        error = content_take(content, staged->views, view, frame, size, staging->limit);
    if (error)
        content_free(content, staging->limit);
    return error;
}

/* Begins a new content with the present one. It has been entered; the lock is dropped meanwhile. */
static int stage_present(struct staging *staging, struct staged *staged)
{
    struct content content;
    pthread_mutex_unlock(&staging->lock);
    int error = take_present(staging, staged, &content);
    pthread_mutex_lock(&staging->lock);
    if (error)
        return error;
    content_free(&staged->content, staging->limit);
    staged->content = content;
    if (is_selection(staged)) /* of others that says: truncated, or collected */
        staged->is_staged = staged->is_written = true; /* all of it, whatever fails from here on */
    return 0;
}

/* ---- Dense views ---- */

/* Whether a piece that has other header bytes than those shown can be one of another program's
 * file: the first one, or one behind others like that. */
static bool may_collect(const struct staging *staging, const struct staged *staged,
                        const struct view_bytes *bytes)
{
    enum view_kind view = staged->key.view;
    if (staging->limit && view_is_whole(view))
        return true;
    if (!staging->limit || (view != VIEW_NPY && view != VIEW_TIFF))
        return false;
    if (is_collected(staged))
        return true;
    return bytes->offset == 0
               ? view_takes_foreign(view, bytes->bytes, bytes->n)
               : atomic_load(&staged->waits) && bytes->offset < view_head_size(staged->views, view);
}

/* Begins to collect, with what was written before; the lock is dropped meanwhile. Who does not begin with
 * the first byte goes on behind what a truncated or new file shows. */
static int begin_collecting(struct staging *staging, struct staged *staged, uint64_t offset)
{
    size_t got;
    uint64_t n = staged->head_written;
    enum view_kind view = staged->key.view;
    if (!staged->is_staged && !staged->is_new)
        return stage_present(staging, staged);
    pthread_mutex_unlock(&staging->lock);
    int error =
        n == 0 && offset > 0 && !view_is_whole(view) ? view_size(staged->views, view, 0, &n) : 0;
    if (!error)
        error = resize(staging, staged, n);
    if (!error && n > 0)
        error = view_read_empty(staged->views, view, 0, (size_t)n, staged->content.bytes, &got);
    pthread_mutex_lock(&staging->lock);
    return error;
}

/* What is told of an error that want of room is; -ENOSPC: the size of the frame is another matter.
 */
static int tell_of_room(const struct staging *staging, const struct staged *staged, int error)
{
    if (error != -ENOSPC && (error != -EFBIG || is_selection(staged)))
        return error;
    log_warning("%s: %s: no room for %s for frame %llu: it would need more than staging_size=%zu",
                sfs_path(node_file(staged->node)), staged->views->path,
                is_selection(staged) ? "a selection" : "another program's file",
                (unsigned long long)staged->key.frame, staging->limit->most);
    return -ENOSPC;
}

/* It has been entered. */
static int collect(struct staging *staging, struct staged *staged, const struct view_bytes *bytes)
{
    uint64_t end;
    bool begins = !is_collected(staged);
    int error = __builtin_add_overflow(bytes->offset, bytes->n, &end) ? -EFBIG : 0;
    if (!error && begins)
        error = begin_collecting(staging, staged, bytes->offset);
    if (!error && end > staged->content.n)
        error = resize(staging, staged, end);
    if (error)
        return tell_of_room(staging, staged, error);
    memcpy(staged->content.bytes + bytes->offset, bytes->bytes, bytes->n);
    staged->failure = 0;
    staged->is_refused = false;
    atomic_store(&staged->is_collected, true);
    staged->is_staged = staged->is_written = true;
    staged->is_closed = false;
    note(staging, staged);
    return 0;
}

/* To one that is truncated or new. It has been entered; the lock is dropped meanwhile. */
static int write_waiting(struct staging *staging, struct staged *staged,
                         const struct view_bytes *bytes, size_t *written)
{
    struct views *views = staged->views;
    enum view_kind view = staged->key.view;
    bool is_truncated = staged->is_staged && !staged->is_new;
    pthread_mutex_unlock(&staging->lock);
    int error =
        (is_truncated ? view_replace : view_write)(views, view, staged->key.frame, bytes, written);
    uint64_t end = error ? 0 : bytes->offset + *written;
    bool counts = !error && end > view_head_size(views, view);
    pthread_mutex_lock(&staging->lock);
    staged->is_closed = false;
    staged->head_written = end > staged->head_written ? end : staged->head_written;
    if (counts)
        staged->is_staged = staged->is_new = staged->is_refused = false;
    note(staging, staged);
    return error;
}

/* -EIO: what is before that which shall be written is not there any more. */
static int enter_to_write(struct staging *staging, struct staged_writer *writer)
{
    int error = enter(staging, writer->staged);
    if (!error && staging_has_lost(writer)) {
        leave(staging, writer->staged);
        error = -EIO;
    }
    return error;
}

int staging_write_dense(struct staging *staging, struct staged_writer *writer,
                        const struct view_bytes *bytes, size_t *written)
{
    struct staged *staged = writer->staged;
    struct views *views = staged->views;
    enum view_kind view = staged->key.view;
    if (staging_has_lost(writer))
        return -EIO;
    if (!atomic_load(&staged->waits)) {
        int error = view_write(views, view, staged->key.frame, bytes, written);
        if (error != -EINVAL || !may_collect(staging, staged, bytes))
            return error;
    }
    int error = enter_to_write(staging, writer);
    if (error)
        return error;
    error = is_collected(staged) ? -EINVAL : write_waiting(staging, staged, bytes, written);
    pthread_mutex_unlock(&staging->lock);
    bool collects = error == -EINVAL && may_collect(staging, staged, bytes);
    pthread_mutex_lock(&staging->lock);
    if (collects) {
        error = collect(staging, staged, bytes);
        writer->has_part |= !error;
        *written = bytes->n;
    }
    leave(staging, staged);
    return error;
}

bool staging_resize(struct staging *staging, struct staged_writer *writer, uint64_t size,
                    int *error)
{
    struct staged *staged = writer->staged;
    *error = staging_has_lost(writer) ? -EIO : 0;
    if (*error)
        return true;
    if (!is_collected(staged))
        return false;
    *error = enter_to_write(staging, writer);
    if (*error)
        return true;
    bool is_it = is_collected(staged);
    *error = is_it ? tell_of_room(staging, staged, resize(staging, staged, size)) : 0;
    if (is_it)
        note(staging, staged);
    writer->has_part |= is_it && !*error;
    leave(staging, staged);
    return is_it;
}

int staging_truncate_dense(struct staging *staging, struct staged_writer *writer)
{
    struct staged *staged = writer->staged;
    bool is_there = !is_missing(staged);
    int error = enter(staging, staged);
    if (error)
        return error;
    end_parts(staged, writer, 0);
    atomic_store(&writer->lost, 0);
    free_content(staging, staged);
    staged->is_new &= !is_there;
    staged->is_staged = true;
    staged->is_written = false;
    staged->is_closed = false;
    note(staging, staged);
    leave(staging, staged);
    return 0;
}

bool staging_is_empty(struct staging *staging, const struct node *node, enum view_kind view,
                      uint64_t frame)
{
    if (!staging || atomic_load(&staging->waiting) == 0)
        return false;
    pthread_mutex_lock(&staging->lock);
    const struct staged *staged = find(staging, node, view, frame);
    bool is_empty = staged && staged->is_staged && !is_selection(staged) && !is_collected(staged);
    pthread_mutex_unlock(&staging->lock);
    return is_empty;
}

bool staging_is_new(struct staging *staging, const struct node *node, enum view_kind view,
                    uint64_t frame)
{
    if (!staging || atomic_load(&staging->waiting) == 0)
        return false;
    pthread_mutex_lock(&staging->lock);
    const struct staged *staged = find(staging, node, view, frame);
    bool is_new = staged && staged->is_new && !staged->is_refused;
    pthread_mutex_unlock(&staging->lock);
    return is_new;
}

/* ---- Selections ---- */

int staging_write(struct staging *staging, struct staged_writer *writer, const void *bytes,
                  size_t n, uint64_t offset)
{
    struct staged *staged = writer->staged;
    uint64_t end;
    if (__builtin_add_overflow(offset, n, &end))
        return -EFBIG;
    int error = enter_to_write(staging, writer);
    if (error)
        return error;
    error = staged->is_staged ? 0 : stage_present(staging, staged);
    if (!error && end > staged->content.n)
        error = resize(staging, staged, end);
    if (!error) {
        memcpy(staged->content.bytes + offset, bytes, n);
        staged->is_written = true; /* also after a truncation to nothing */
        writer->has_part = true;
        staged->is_closed = false;
        note(staging, staged);
    }
    leave(staging, staged);
    return tell_of_room(staging, staged, error);
}

static int truncate_to(struct staging *staging, struct staged *staged, uint64_t size)
{
    int error = staged->is_staged || size == 0 ? 0 : stage_present(staging, staged);
    if (!error)
        error = resize(staging, staged, size);
    if (!error) {
        staged->is_staged = true;
        staged->is_written = size > 0;
        staged->is_closed = false;
        note(staging, staged);
    }
    return tell_of_room(staging, staged, error);
}

/* Takes the lock, finds or adds a selection, and counts a user. */
static int use_selection(struct staging *staging, const struct node *node, uint64_t frame,
                         struct staged **staged)
{
    pthread_mutex_lock(&staging->lock);
    *staged = find(staging, node, VIEW_DEFINED, frame);
    int error = *staged ? 0 : add(staging, node, VIEW_DEFINED, frame, staged);
    if (!error)
        (*staged)->users++;
    pthread_mutex_unlock(&staging->lock);
    return error;
}

int staging_truncate(struct staging *staging, const struct node *node, uint64_t frame,
                     uint64_t size, bool by_name, bool *changed)
{
    struct staged *staged;
    *changed = false;
    int error = use_selection(staging, node, frame, &staged);
    if (error)
        return error;
    enter_in_any_case(staging, staged);
    bool at_once = staged->writers == 0 || (by_name && (size == 0 || !staged->is_staged));
    error = truncate_to(staging, staged, size);
    if (!error && at_once)
        error = apply(staging, staged, NULL, changed);
    leave_for_good(staging, staged, &staged->users);
    return error;
}

bool staging_size(struct staging *staging, const struct node *node, enum view_kind view,
                  uint64_t frame, uint64_t *size)
{
    if (!staging || atomic_load(&staging->waiting) == 0)
        return false;
    pthread_mutex_lock(&staging->lock);
    const struct staged *staged = find(staging, node, view, frame);
    bool is_staged = staged && has_content(staged);
    if (is_staged)
        *size = staged->content.n;
    pthread_mutex_unlock(&staging->lock);
    return is_staged;
}

bool staging_read(struct staging *staging, const struct node *node, struct staged_part part,
                  void *buffer, size_t *got, uint64_t *version)
{
    if (!staging || atomic_load(&staging->waiting) == 0)
        return false;
    pthread_mutex_lock(&staging->lock);
    const struct staged *staged = find(staging, node, part.view, part.frame);
    bool is_staged = staged && has_content(staged);
    if (is_staged) {
        *got = content_read(&staged->content, part.offset, part.n, buffer);
        *version = staged->version;
    }
    pthread_mutex_unlock(&staging->lock);
    return is_staged;
}
