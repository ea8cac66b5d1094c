/* Where the dense views of a sparse dataset have data, and where holes. A gap between defined
 * elements is a hole if it is worth one; the header is data. */
#include <errno.h>

#include "common/search.h"
#include "view/private.h"

#define MIN_HOLE 4096 /* bytes: of scattered elements not every one is an extent */

/* Frames of a stack in which a hole is looked for; then only frames without anything are holes. */
#define MOST_FRAMES 64

/* The intervals of defined elements in the body of a view, one after the other. */
struct walk {
    struct views *views;
    uint64_t head; /* bytes */
    bool is_stack;
    const struct counts *counts; /* of a stack: the frames that are not empty, */
    size_t at;                   /* and at which of them this is */
    struct defined_frame *frame; /* which is held */
    uint64_t base;               /* elements before the frame */
    size_t i;                    /* interval */
    unsigned frames_read;
};

static int hold(struct walk *walk, uint64_t frame)
{
    defined_put(walk->views, walk->frame);
    walk->frame = NULL;
    walk->base = walk->is_stack ? frame * walk->views->frame_elements : 0;
    walk->i = 0;
    walk->frames_read++;
    return defined_get(walk->views, frame, DEFINED_INTERVALS, &walk->frame);
}

static uint64_t byte_of(const struct walk *walk, uint64_t element)
{
    return walk->head + (walk->base + element) * walk->views->info->type.size;
}

static uint64_t begin_of(const struct walk *walk)
{
    return byte_of(walk, walk->frame->defined.interval[walk->i].first);
}

static uint64_t end_of(const struct walk *walk, size_t i)
{
    const struct sfs_interval *interval = &walk->frame->defined.interval[i];
    return byte_of(walk, interval[0].first + (interval[1].index - interval[0].index));
}

/* From the held frame of a stack, if its intervals are over, to the next that has any. 1, 0 if
 * there is none, or an error. */
static int go_on(struct walk *walk)
{
    while (walk->i >= walk->frame->defined.n) {
        if (!walk->is_stack || ++walk->at >= walk->counts->n)
            return 0;
        int error = hold(walk, walk->counts->frame[walk->at].frame);
        if (error)
            return error;
    }
    return 1;
}

struct sought {
    const struct walk *walk;
    uint64_t offset;
};

static bool ends_behind(const void *context, size_t i)
{
    const struct sought *sought = context;
    return end_of(sought->walk, i) > sought->offset;
}

/* To the first interval that ends behind a byte of the body; returns as go_on. */
static int walk_to(struct walk *walk, uint64_t frame, uint64_t offset)
{
    uint64_t position = offset / walk->views->info->type.size;
    if (walk->is_stack) {
        int error = counts_get(walk->views, &walk->counts);
        if (error)
            return error;
        if (walk->counts->n > 0) /* else frames may have no elements */
            walk->at = counts_find(walk->counts, position / walk->views->frame_elements);
        if (walk->at == walk->counts->n)
            return 0;
        frame = walk->counts->frame[walk->at].frame;
    }
    int error = hold(walk, frame);
    if (error)
        return error;
    const struct sought sought = {walk, walk->head + offset};
    walk->i = search_between(0, walk->frame->defined.n, ends_behind, &sought);
    return go_on(walk);
}

/* Where what is defined before the interval that the walk is at ends: in a stack it may be in a
 * frame before. */
static int end_before(struct walk *walk, uint64_t *end)
{
    if (walk->i > 0) {
        *end = end_of(walk, walk->i - 1);
        return 0;
    }
    *end = walk->head;
    struct walk before = *walk;
    before.frame = NULL;
    int error = 0;
    while (walk->is_stack && before.at-- > 0 && !error && *end == walk->head) {
        error = hold(&before, walk->counts->frame[before.at].frame);
        if (!error && before.frame->defined.n > 0)
            *end = end_of(&before, before.frame->defined.n - 1);
    }
    defined_put(walk->views, before.frame);
    return error;
}

/* The end of the first frame after which as many frames as make a hole are empty; the held frame is
 * one of the stack. */
static uint64_t end_by_counts(const struct walk *walk, uint64_t size)
{
    const struct views *views = walk->views;
    for (size_t at = walk->at; at < walk->counts->n; at++) {
        uint64_t end = walk->counts->frame[at].frame + 1;
        uint64_t next =
            at + 1 < walk->counts->n ? walk->counts->frame[at + 1].frame : views->frames;
        if ((next - end) * views->frame_bytes >= MIN_HOLE)
            return walk->head + end * views->frame_bytes;
    }
    return size;
}

/* The end of the data that goes on at `end`; has: the walk is at an interval behind it. */
static int find_hole(struct walk *walk, int has, uint64_t end, uint64_t size, uint64_t *found)
{
    while (has > 0 && begin_of(walk) < end + MIN_HOLE) {
        if (walk->frames_read > MOST_FRAMES) {
            *found = end_by_counts(walk, size);
            return 0;
        }
        end = end_of(walk, walk->i++);
        has = go_on(walk);
    }
    *found = end;
    return has < 0 ? has : 0;
}

static int seek(struct walk *walk, uint64_t frame, uint64_t offset, uint64_t size, bool data,
                uint64_t *found)
{
    bool in_head = offset < walk->head;
    int has = walk_to(walk, frame, in_head ? 0 : offset - walk->head);
    if (has < 0)
        return has;
    uint64_t end = walk->head; /* of the data before the interval */
    bool in_data = in_head;
    if (has && !in_head) {
        int error = end_before(walk, &end);
        if (error)
            return error;
        in_data = begin_of(walk) <= offset || begin_of(walk) - end < MIN_HOLE;
        if (in_data && end < begin_of(walk))
            end = begin_of(walk);
    }
    if (data ? in_data : !in_data) {
        *found = offset;
        return 0;
    }
    if (!data)
        return find_hole(walk, has, end, size, found);
    if (!has)
        return -ENXIO;
    *found = begin_of(walk);
    return 0;
}

/* The padding of a CBF file, which is between its data and its end. */
static int seek_padding(struct views *views, uint64_t frame, uint64_t offset, uint64_t size,
                        bool data, uint64_t *found)
{
    struct defined_frame *made;
    size_t tail;
    int error = defined_get(views, frame, DEFINED_CBF, &made);
    if (error)
        return error;
    uint64_t begin = made->encoded.n;
    (void)cbf_tail(&tail);
    bool in_padding = offset >= begin && offset < size - tail;
    if (data)
        *found = in_padding ? size - tail : offset;
    else
        *found = in_padding ? offset : offset < begin && begin < size - tail ? begin : size;
    defined_put(views, made);
    return 0;
}

int view_seek(struct views *views, enum view_kind kind, uint64_t frame, uint64_t offset, bool data,
              uint64_t *found)
{
    LOOKING_AT(views);
    uint64_t size;
    int error = size_of_view(views, kind, frame, &size);
    if (error)
        return error;
    if (offset >= size)
        return -ENXIO;
    if (kind == VIEW_CBF)
        return seek_padding(views, frame, offset, size, data, found);
    if (!view_has_holes(views, kind)) {
        *found = data ? offset : size;
        return 0;
    }
    struct walk walk = {
        .views = views, .head = view_head_bytes(views, kind), .is_stack = view_is_stack(kind)};
    error = seek(&walk, frame, offset, size, data, found);
    defined_put(views, walk.frame);
    counts_put(views, walk.counts);
    return error;
}

uint64_t view_empty_allocated(struct views *views, enum view_kind kind, uint64_t size)
{
    LOOKING_AT(views);
    return view_has_holes(views, kind) ? view_head_bytes(views, kind) : size;
}

uint64_t view_allocated(struct views *views, enum view_kind kind, uint64_t frame, uint64_t size)
{
    LOOKING_AT(views);
    uint64_t elements;
    if (kind == VIEW_CBF) /* less than it is, so that copying programs look for holes */
        return cbf_least_bytes(views);
    if (!view_has_holes(views, kind) ||
        (view_is_stack(kind) ? count_of_all(views, &elements)
                             : count_of_frame(views, frame, &elements)) < 0)
        return size;
    uint64_t body = size - view_head_bytes(views, kind), item = views->info->type.size;
    return elements < body / item ? size - body + elements * item : size;
}
