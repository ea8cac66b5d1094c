/* Reading views: a head, and a body of dense elements or of array items. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "view/view_bytes.h"

#define MOST_TRIES 20 /* to read what several calls make while others write */
#define LOOK_TRIES 4  /* of these for a preview of which all that matters is of one state */

/* ---- Bodies that are arrays of items which are made whole ---- */

static size_t item_bytes(const struct source *source)
{
    return source->body == BODY_INDPTR    ? CSR_INDPTR_ITEM
           : source->body == BODY_OFFSETS ? sizeof(uint64_t)
           : source->body == BODY_INDICES ? csr_index_item(source->views)
                                          : source->views->info->type.size;
}

/* The values of one frame. */
static int read_stored_values(const struct source *source, uint64_t first, uint64_t n, char *out)
{
    struct views *views = source->views;
    struct sfs_slab slab = view_frame_slab(views, source->frame);
    struct defined_frame *defined;
    if (source->defined)
        return sfs_read_values(views->dataset, &slab, &source->defined->defined, first, n, out);
    int error = defined_get(views, source->frame, DEFINED_INTERVALS, &defined);
    if (error)
        return error;
    if (defined->defined.elements != source->body_bytes / views->info->type.size)
        error = is_current(views, source->changes) ? count_is_wrong(views, source->frame) : -EAGAIN;
    else
        error = sfs_read_values(views->dataset, &slab, &defined->defined, first, n, out);
    defined_put(views, defined);
    return error;
}

static int read_values(const struct source *source, uint64_t first, uint64_t n, char *out)
{
    int error = read_stored_values(source, first, n, out);
    if (!error)
        show_elements(source->views, out, n);
    return error;
}

static int read_items(const struct source *source, uint64_t first, uint64_t n, char *out)
{
    switch (source->body) {
    case BODY_VALUES:
        return read_values(source, first, n, out);
    case BODY_OFFSETS:
        return parts_offsets(source->views, source->parts, first, n, out);
    case BODY_INDPTR:
        return csr_indptr(source->views, source->counts, first, n, out);
    case BODY_INDICES:
        return csr_indices(source->views, source->counts, first, n, out);
    default:
        return csr_data(source->views, source->counts, first, n, out);
    }
}

/* The bytes [skip, skip + n) of one item. */
static int read_part(const struct source *source, uint64_t which, size_t skip, size_t n, char *out)
{
    char small[64];
    size_t size = item_bytes(source);
    char *item = size <= sizeof(small) ? small : malloc(size);
    if (!item)
        return -ENOMEM;
    int error = read_items(source, which, 1, item);
    if (!error)
        memcpy(out, item + skip, n);
    if (item != small)
        free(item);
    return error;
}

static int read_array(const struct source *source, uint64_t offset, size_t n, char *out)
{
    size_t size = item_bytes(source), skip = (size_t)(offset % size);
    uint64_t item = offset / size;
    int error = 0;
    if (skip > 0) {
        size_t part = size - skip < n ? size - skip : n;
        error = read_part(source, item++, skip, part, out);
        out += part;
        n -= part;
    }
    if (!error && n >= size) {
        error = read_items(source, item, n / size, out);
        item += n / size;
        out += n / size * size;
        n %= size;
    }
    if (!error && n > 0)
        error = read_part(source, item, 0, n, out);
    return error;
}

/* ---- Reading ---- */

static struct sfs_slab slab_of(const struct source *source)
{
    return source->body == BODY_FRAME ? view_frame_slab(source->views, source->frame)
                                      : view_whole_slab(source->views);
}

/* Through a buffer of whole elements. */
static int read_shown(const struct source *source, uint64_t offset, size_t n, char *buffer)
{
    struct sfs_slab slab = slab_of(source);
    size_t size = source->views->info->type.size, skip = (size_t)(offset % size);
    size_t elements = (skip + n + size - 1) / size;
    char *whole = malloc(elements * size);
    if (!whole)
        return -ENOMEM;
    int error = sfs_read(source->views->dataset, &slab, offset - skip, whole, elements * size);
    if (!error) {
        show_elements(source->views, whole, elements);
        memcpy(buffer, whole + skip, n);
    }
    free(whole);
    return error;
}

static int read_body(const struct source *source, uint64_t offset, size_t n, char *buffer)
{
    if (source->body == BODY_ZEROS) {
        memset(buffer, 0, n);
        return 0;
    }
    if (source->body == BODY_PARTS)
        return parts_read(source->views, source->parts, offset, n, buffer);
    if (source->body != BODY_FRAME && source->body != BODY_STACK)
        return read_array(source, offset, n, buffer);
    if (source->views->has_padding)
        return read_shown(source, offset, n, buffer);
    struct sfs_slab slab = slab_of(source);
    return sfs_read(source->views->dataset, &slab, offset, buffer, n);
}

/* A range of the body: lent, or read into the buffer. */
static int lend_or_read_body(const struct source *source, uint64_t offset, size_t n, char *buffer,
                             struct view_part *part)
{
    struct sfs_slab slab = slab_of(source);
    int error;
    if (sfs_lend_or_read(source->views->dataset, &slab, offset, n, buffer, &part->loan, &error))
        part->bytes = part->loan.bytes;
    return error;
}

static bool is_lendable(const struct source *source)
{
    return (source->body == BODY_FRAME || source->body == BODY_STACK) &&
           !source->views->has_padding;
}

/* How many of n bytes from offset on lie before `end`. */
static size_t bytes_before(uint64_t end, uint64_t offset, size_t n)
{
    return offset >= end ? 0 : end - offset < n ? (size_t)(end - offset) : n;
}

static int read_source(const struct source *source, const struct view_room *room,
                       struct view_part *part)
{
    const struct view_head *head = &source->head;
    uint64_t offset = room->offset, end = head->n + source->body_bytes;
    size_t n = bytes_before(end + source->tail_bytes, offset, room->n);
    char *buffer = room->buffer;
    int error = 0;
    *part = (struct view_part){.bytes = buffer, .n = n};
    if (n == 0)
        return 0;
    if (!room->is_used && offset >= head->n && bytes_before(end, offset, n) == n &&
        is_lendable(source))
        return lend_or_read_body(source, offset - head->n, n, buffer, part);

    size_t here = bytes_before(head->n, offset, n);
    if (here > 0)
        memcpy(buffer, head->bytes + offset, here);
    offset += here;
    buffer += here;
    n -= here;
    here = bytes_before(end, offset, n);
    if (here > 0 && !error)
        error = read_body(source, offset - head->n, here, buffer);
    if (n > here && !error && source->tail)
        memcpy(buffer + here, source->tail + (offset + here - end), n - here);
    else if (n > here && !error)
        tiff_stack_tail(source->views, offset + here - end, n - here, buffer + here);
    return error;
}

/* Whether it may be of more than one state of a followed file: elements are read by one call, those of a preview, too,
 * and so are selections, all else by several; what describes a dataset is of the time when it is made. */
static bool is_mixed(const struct source *source, enum view_kind kind)
{
    bool is_description = kind == VIEW_DATASET_JSON || kind == VIEW_CSR_TOML ||
                          kind == VIEW_ZARRAY || kind == VIEW_ZATTRS || kind == VIEW_VALUE_TXT;
    return !is_description && kind != VIEW_DEFINED && source->body != BODY_FRAME &&
           source->body != BODY_STACK && sfs_is_following(source->views->file) &&
           !is_current(source->views, source->changes);
}

static int read_once(struct views *views, enum view_kind kind, uint64_t frame,
                     const struct view_room *room, bool may_mix, struct view_part *part)
{
    struct source source;
    int error = source_begin(views, kind, frame, true, &source);
    if (error)
        return error;
    error = read_source(&source, room, part);
    if (!error && !may_mix && is_mixed(&source, kind))
        error = -EAGAIN;
    source_end(&source);
    return error;
}

int view_read(struct views *views, enum view_kind kind, uint64_t frame,
              const struct view_room *room, struct view_part *part)
{
    LOOKING_AT(views);
    int error = -EAGAIN;
    bool is_preview = kind == VIEW_PNG || kind == VIEW_CBF;
    for (int i = 0; i < MOST_TRIES && error == -EAGAIN; i++)
        error = read_once(views, kind, frame, room, is_preview && i >= LOOK_TRIES, part);
    return error == -EAGAIN ? -EBUSY : error;
}

int view_read_empty(struct views *views, enum view_kind kind, uint64_t offset, size_t n,
                    void *buffer, size_t *got)
{
    LOOKING_AT(views);
    struct source source;
    *got = 0;
    if (view_is_whole(kind))
        return 0;
    int error = view_is_dense(kind) ? source_begin(views, kind, 0, false, &source) : -EINVAL;
    if (error)
        return error;
    const struct view_head *head = &source.head;
    uint64_t size = head->n + source.body_bytes, left = offset < size ? size - offset : 0;
    size_t item = views->info->type.size, from_head = 0;
    char *out = buffer;
    *got = left < n ? (size_t)left : n;
    if (offset < head->n)
        from_head = head->n - (size_t)offset < *got ? head->n - (size_t)offset : *got;
    if (from_head > 0)
        memcpy(out, head->bytes + offset, from_head);
    if (views->info->fill_is_zero) {
        memset(out + from_head, 0, *got - from_head);
    } else {
        const char *fill = views->info->fill;
        for (size_t i = from_head; i < *got; i++)
            out[i] = fill[(offset + i - head->n) % item];
    }
    source_end(&source);
    return 0;
}

void view_return(struct views *views, struct view_part *part)
{
    if (part->loan.holder)
        sfs_return(views->dataset, &part->loan);
}
