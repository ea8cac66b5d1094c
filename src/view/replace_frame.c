/* A whole new content for a view of one frame: all of it or nothing. Elements are written chunk by
 * chunk, and any chunk may turn out to be unreadable: what there was is kept until all is done. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "common/interrupt.h"
#include "common/log.h"
#include "view/npz.h"
#include "view/views_memory.h"

/* What a frame held. */
struct kept {
    bool is_blank; /* nothing */
    char *bytes;   /* of a dense dataset; NULL: they are not kept */
    size_t n;
    struct points points; /* of a sparse one; values are NULL: the same */
};

static bool is_kept(const struct kept *kept)
{
    return kept->is_blank || kept->bytes || kept->points.values;
}

static int read_all(struct views *views, uint64_t frame, struct kept *kept)
{
    for (size_t at = 0; at < kept->n;) {
        struct view_part part;
        int error = view_read(views, VIEW_RAW, frame,
                              &(struct view_room){at, kept->n - at, kept->bytes + at, true}, &part);
        if (error)
            return error;
        size_t n = part.n;
        view_return(views, &part);
        if (n == 0)
            return -EIO;
        at += n;
    }
    return 0;
}

static void release(struct kept *kept)
{
    points_free(&kept->points);
    free(kept->bytes);
    *kept = (struct kept){0};
}

static int keep_points(struct views *views, uint64_t frame, size_t most_kept, struct kept *kept)
{
    LOOKING_AT(views);
    int error = points_read(views, frame, most_kept, &kept->points);
    kept->is_blank = !error && kept->points.defined.elements == 0;
    if (kept->is_blank)
        points_free(&kept->points);
    return error == -EFBIG ? 0 : error;
}

/* Frames that take more than most_kept bytes are not kept. */
static int keep(struct views *views, uint64_t frame, size_t most_kept, struct kept *kept)
{
    uint64_t size;
    *kept = (struct kept){.is_blank = view_is_blank(views, frame)};
    if (kept->is_blank || most_kept == 0)
        return 0;
    if (views->is_sparse)
        return keep_points(views, frame, most_kept, kept);
    int error = view_size(views, VIEW_RAW, frame, &size);
    if (error || size > most_kept)
        return error;
    kept->n = (size_t)size;
    kept->bytes = malloc(kept->n ? kept->n : 1);
    if (!kept->bytes)
        return -ENOMEM;
    error = read_all(views, frame, kept);
    if (error)
        release(kept);
    return error;
}

static bool is_same(const struct views *views, const struct kept *a, const struct kept *b)
{
    if (a->is_blank != b->is_blank || a->n != b->n ||
        (a->n > 0 && memcmp(a->bytes, b->bytes, a->n) != 0))
        return false;
    if (!a->points.values || !b->points.values)
        return !a->points.values && !b->points.values;
    return points_are_same(views, &a->points, &b->points);
}

/* Whether the frame holds what it did; or an error, if that is not known. */
static int is_restored(struct views *views, uint64_t frame, const struct kept *kept)
{
    struct kept now;
    if (!is_kept(kept))
        return -EFBIG;
    size_t most = kept->bytes ? kept->n : points_bytes(&kept->points, views->info->type.size);
    int error = keep(views, frame, most, &now);
    if (error)
        return error;
    bool is_it = is_same(views, &now, kept);
    release(&now);
    return is_it;
}

static int place_kept(struct views *views, uint64_t frame, const struct points *points)
{
    LOOKING_AT(views);
    return view_place_points(views, frame, &points->defined, points->values);
}

/* Chunks that were not changed may fail again, on a full disk; they come behind all that were changed, and nothing is
 * missing then. */
static int write_kept(struct views *views, uint64_t frame, const struct kept *kept)
{
    size_t written;
    if (kept->is_blank)
        (void)view_truncate(views, VIEW_RAW, frame, 0);
    else if (kept->bytes)
        (void)view_write(views, VIEW_RAW, frame,
                         &(struct view_bytes){.bytes = kept->bytes, .n = kept->n, .sparsify = true},
                         &written);
    else if (kept->points.values)
        (void)place_kept(views, frame, &kept->points);
    return is_restored(views, frame, kept);
}

/* After a failure. Without room in the cache what has taken it goes first. */
static void restore(struct views *views, uint64_t frame, const struct kept *kept)
{
    UNINTERRUPTED();
    int is_done = write_kept(views, frame, kept);
    if (is_done == 0 && kept->points.values) {
        (void)view_truncate(views, VIEW_RAW, frame, 0);
        is_done = write_kept(views, frame, kept);
    }
    if (is_done != 1)
        log_error("%s: %s: frame %llu was replaced in part", sfs_path(views->file), views->path,
                  (unsigned long long)frame);
}

/* What can be refused without a look at the frame. */
static int check(struct views *views, enum view_kind kind, const char *bytes, size_t n)
{
    LOOKING_AT(views);
    const struct view_head *head = &views->heads[kind];
    size_t in_head = n < head->n ? n : head->n;
    if (!view_is_dense(kind) || view_is_stack(kind) || !has_view(views, kind))
        return -EOPNOTSUPP;
    if (in_head > 0 && memcmp(bytes, head->bytes, in_head) != 0)
        return -EINVAL;
    return n > head->n + views->frame_bytes ? -EFBIG : 0;
}

/* Header bytes alone leave an empty frame. */
static int replace(struct views *views, enum view_kind kind, uint64_t frame,
                   const struct view_content *content)
{
    const struct view_bytes bytes = {
        .bytes = content->bytes, .n = content->n, .sparsify = content->sparsify};
    size_t written;
    if (bytes.n > view_head_size(views, kind))
        return view_replace(views, kind, frame, &bytes, &written);
    return frame < views_frames(views) ? view_truncate(views, kind, frame, 0)
                                       : views_extend(views, frame + 1);
}

/* What a frame held, if it is there, and room for it and for what shall replace it: on a full disk there would be none
 * to go back. A frame that cannot be read is none that has to come back, if all of it is written. */
static int keep_present(struct views *views, uint64_t frame, size_t most_kept, bool is_whole,
                        struct kept *kept)
{
    uint64_t size = 0;
    *kept = (struct kept){0};
    int error = frame < views_frames(views) ? keep(views, frame, most_kept, kept) : 0;
    if (error && error != -ENOMEM && error != -EINTR && is_whole)
        error = 0;
    if (!error && (kept->bytes || kept->points.values))
        error = view_size(views, VIEW_RAW, frame, &size);
    if (!error && size > 0)
        error = sfs_make_room(views->dataset, 2 * size);
    if (error)
        release(kept);
    return error;
}

/* After a change, with whatever error: EROFS may be that of a disk. A frame that was not there is not there again
 * then. */
static void end_change(struct views *views, uint64_t frame, bool was_new, int error,
                       struct kept *kept)
{
    if (error && !was_new && error != -EOPNOTSUPP)
        restore(views, frame, kept);
    release(kept);
}

/* What is done while no commit begins. */
struct replacement {
    struct views *views;
    enum view_kind kind;
    uint64_t frame;
    const struct view_content *content;
    const struct points *points; /* of it, if they are its form */
};

static int replace_dense(void *context)
{
    const struct replacement *replacement = context;
    struct views *views = replacement->views;
    const struct view_content *content = replacement->content;
    uint64_t size, frame = replacement->frame;
    struct kept kept;
    bool is_new = frame >= views_frames(views);
    bool is_whole = view_size(views, replacement->kind, frame, &size) == 0 && content->n == size;
    int error = keep_present(views, frame, content->most_kept, is_whole, &kept);
    if (error)
        return error;
    error = replace(views, replacement->kind, frame, content);
    end_change(views, frame, is_new, error, &kept);
    return error;
}

static int put_dense(struct views *views, enum view_kind kind, uint64_t frame,
                     const struct view_content *content)
{
    struct replacement replacement = {views, kind, frame, content, NULL};
    int error = check(views, kind, content->bytes, content->n);
    return error ? error
                 : change_held(views, content->hold, (struct view_frames){frame, frame},
                               replace_dense, &replacement);
}

static void tell_foreign(const struct views *views, uint64_t frame,
                         const struct view_content *content, enum view_kind kind,
                         const struct why *why)
{
    const char *name = kind == VIEW_NPY    ? "NumPy"
                       : kind == VIEW_TIFF ? "TIFF"
                       : kind == VIEW_NPZ  ? "scipy.sparse"
                                           : "values";
    const char *advice = kind == VIEW_VALUES
                             ? "frames/N.defined and npz/N.npz say what is"
                             : "write one of the frame's shape and type, which dataset.json has";
    if (!content->is_tentative)
        log_warning("%s: %s: frame %llu is not changed: the %s file that was to be it is of "
                    "another form: %s; %s",
                    sfs_path(views->file), views->path, (unsigned long long)frame, name, why->text,
                    advice);
}

/* *memory: what is taken for the points (decoding_memory_take). */
static int decode_points(struct views *views, const struct view_content *content,
                         struct points *points, size_t *memory, struct why *why)
{
    struct npz_form form;
    int error = npz_form_take(views, &form);
    if (error)
        return error;
    size_t n = npz_memory(&form, content->bytes, content->n, content->most_kept);
    error = decoding_memory_take(n);
    if (!error) {
        error = npz_decode(&form, content->bytes, content->n, content->most_kept, points, why);
        *memory = error ? 0 : points_bytes(points, form.item);
        decoding_memory_give_back(n - *memory);
    }
    npz_form_free(&form);
    return error;
}

static int replace_points(void *context)
{
    const struct replacement *replacement = context;
    struct views *views = replacement->views;
    const struct points *points = replacement->points;
    uint64_t frame = replacement->frame;
    struct kept kept;
    bool is_new = frame >= views_frames(views);
    int error = keep_present(views, frame, replacement->content->most_kept, false, &kept);
    if (error)
        return error;
    error = view_set_points(views, frame, &points->defined, points->values);
    end_change(views, frame, is_new, error, &kept);
    return error;
}

/* A list of elements and their values. */
static int put_points(struct views *views, uint64_t frame, const struct view_content *content)
{
    struct points points;
    struct why why = {""};
    size_t memory;
    int error = decode_points(views, content, &points, &memory, &why);
    if (error == -EINVAL)
        tell_foreign(views, frame, content, VIEW_NPZ, &why);
    if (error)
        return error;
    struct replacement replacement = {views, VIEW_NPZ, frame, content, &points};
    error = change_held(views, content->hold, (struct view_frames){frame, frame}, replace_points,
                        &replacement);
    points_free(&points);
    decoding_memory_give_back(memory);
    return error;
}

/* Another value for each element that is defined. */
static int put_values(struct views *views, uint64_t frame, const struct view_content *content)
{
    struct why why;
    struct kept kept;
    uint64_t size = 0;
    int error = frame < views_frames(views) ? view_size(views, VIEW_VALUES, frame, &size) : 0;
    if (error)
        return error;
    if (size != content->n) {
        error = why_refused(&why, -EINVAL,
                            "it has %zu bytes, and the values of what is defined take %llu",
                            content->n, (unsigned long long)size);
        tell_foreign(views, frame, content, VIEW_VALUES, &why);
        return error;
    }
    error = keep_present(views, frame, content->most_kept, false, &kept);
    if (!error) {
        error = view_set_values(views, frame, content->bytes, content->n);
        end_change(views, frame, false, error, &kept);
    }
    return error;
}

/* A file with another header, if it is of the same shape and type. */
static int put_foreign(struct views *views, enum view_kind kind, uint64_t frame,
                       const struct view_content *content)
{
    const struct foreign file = {kind, content->bytes, content->n};
    struct view_content decoded = *content;
    struct why why;
    char *dense;
    int error = foreign_decode(views, &file, content->most_kept, &dense, &decoded.n, &why);
    if (error == -EINVAL)
        tell_foreign(views, frame, content, kind, &why);
    if (error)
        return error;
    decoded.bytes = dense;
    error = put_dense(views, VIEW_RAW, frame, &decoded);
    free(dense);
    decoding_memory_give_back(decoded.n);
    return error;
}

static int set_or_erase(const struct replacement *replacement)
{
    struct views *views = replacement->views;
    const struct view_content *content = replacement->content;
    uint64_t frame = replacement->frame;
    if (content->n > 0)
        return view_set_defined(views, frame, content->bytes, content->n);
    return frame < views_frames(views) ? view_truncate(views, replacement->kind, frame, 0)
                                       : views_extend(views, frame + 1);
}

/* Which takes no long decoding. */
static int put_defined(void *context)
{
    const struct replacement *replacement = context;
    struct views *views = replacement->views;
    const struct view_content *content = replacement->content;
    uint64_t frame = replacement->frame;
    struct kept kept;
    if (content->n > 0 && replacement->kind == VIEW_VALUES && views->is_sparse)
        return put_values(views, frame, content);
    bool is_new = frame >= views_frames(views);
    /* What is defined can be changed even where values cannot be read. */
    bool is_erased = content->n == 0, is_selection = replacement->kind == VIEW_DEFINED;
    int error = keep_present(views, frame, content->most_kept, is_erased || is_selection, &kept);
    if (error)
        return error;
    error = set_or_erase(replacement);
    bool is_as_before = error == -EINVAL || (error == -EINTR && !interrupt_was_late());
    end_change(views, frame, is_new || (is_selection && is_as_before), error, &kept);
    return error;
}

int view_put(struct views *views, enum view_kind kind, uint64_t frame,
             const struct view_content *content)
{
    if (content->n > 0 && kind == VIEW_NPZ)
        return put_points(views, frame, content);
    if (kind != VIEW_DEFINED && !view_is_whole(kind)) {
        int error = put_dense(views, kind, frame, content);
        return error == -EINVAL ? put_foreign(views, kind, frame, content) : error;
    }
    struct replacement replacement = {views, kind, frame, content, NULL};
    return change_held(views, content->hold, (struct view_frames){frame, frame}, put_defined,
                       &replacement);
}
