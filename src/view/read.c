/* What a view is made of, its size, and reading it: a head, and a body of dense elements or of
 * array items. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "common/box.h"
#include "common/interrupt.h"
#include "view/npz.h"
#include "view/parts.h"

#define TEXT_BYTES ((size_t)256 << 20)
#define MOST_TRIES 8 /* to read all of the defined elements while others write */

/* What a listing reads of a dataset, to know how long its text is. */
#define GLANCE_ELEMENTS    4096
#define GLANCE_BYTES       ((uint64_t)64 << 10)
#define GLANCE_CHUNK_BYTES ((uint64_t)1 << 20)

/* With the lock of the texts held. */
static void release_text(struct kept_text *text)
{
    if (!text || --text->users > 0)
        return;
    free(text->head.bytes);
    free(text);
}

void text_drop(struct kept_text **kept)
{
    release_text(*kept);
    *kept = NULL;
}

static int make_text(struct views *views, enum view_kind kind, struct kept_text **kept)
{
    struct kept_text *text = calloc(1, sizeof(*text));
    if (!text)
        return -ENOMEM;
    text->changes = sfs_dataset_changes(views->dataset);
    text->users = 1;
    int error = kind == VIEW_DATASET_JSON ? json_of_dataset(views, &text->head)
                : kind == VIEW_ZATTRS     ? zarr_attributes(views, &text->head)
                : kind == VIEW_CSV
                    ? csv_of_dataset(views, &text->head)
                    : sfs_text(views->dataset, TEXT_BYTES, &text->head.bytes, &text->head.n);
    if (error)
        free(text);
    else
        *kept = text;
    return error;
}

static struct kept_text **place_of(struct views *views, enum view_kind kind)
{
    return kind == VIEW_DATASET_JSON ? &views->json
           : kind == VIEW_CSV        ? &views->csv
           : kind == VIEW_ZATTRS     ? &views->zattrs
                                     : &views->text;
}

/* The texts are made on first use and kept as long as nothing changes. */
static int get_text(struct views *views, enum view_kind kind, struct kept_text **text)
{
    struct kept_text **kept = place_of(views, kind);
    int error = interrupt_lock(&views->lock); /* it is held while one is made */
    if (error)
        return error;
    if (*kept && !is_current(views, (*kept)->changes))
        text_drop(kept);
    if (!*kept)
        error = make_text(views, kind, kept);
    if (!error) {
        (*kept)->users++;
        *text = *kept;
    }
    pthread_mutex_unlock(&views->lock);
    return error;
}

static void put_text(struct views *views, struct kept_text *text)
{
    pthread_mutex_lock(&views->lock);
    release_text(text);
    pthread_mutex_unlock(&views->lock);
}

enum body {
    BODY_NONE,
    BODY_FRAME,
    BODY_STACK,
    BODY_VALUES,
    BODY_INDPTR,
    BODY_INDICES,
    BODY_DATA,
    BODY_OFFSETS,
    BODY_PARTS,
    BODY_ZEROS
};

/* What a view is made of: its head, the kind and size of its body, and what is behind that. */
struct source {
    struct views *views;
    uint64_t frame;
    struct view_head head;
    enum body body;
    uint64_t body_bytes;
    uint64_t tail_bytes;
    const char *tail;              /* NULL: that of VIEW_STACK_TIFF, which is computed */
    struct defined_frame *defined; /* held for the head or the body */
    const struct counts *counts;   /* the same */
    struct kept_text *text;        /* the same */
    struct parts_index *parts;     /* the same */
};

static void source_end(struct source *source)
{
    defined_put(source->views, source->defined);
    parts_put(source->views, source->parts);
    if (source->counts)
        counts_put(source->views, source->counts);
    if (source->text)
        put_text(source->views, source->text);
}

static int defined_source(struct source *source)
{
    if (!source->views->is_sparse) {
        source->head = source->views->heads[VIEW_DEFINED];
        return 0;
    }
    int error = defined_get(source->views, source->frame, DEFINED_ENCODED, &source->defined);
    if (!error)
        source->head = source->defined->encoded;
    return error;
}

/* As many as the size is of: on a mount that is written it must be that of what is read. */
static int count_defined(struct source *source, uint64_t *elements)
{
    struct views *views = source->views;
    if (!sfs_is_writable(views->file))
        return count_of_frame(views, source->frame, elements);
    int error = defined_get(views, source->frame, DEFINED_INTERVALS, &source->defined);
    *elements = error ? 0 : source->defined->defined.elements;
    return error;
}

static int values_source(struct source *source)
{
    struct views *views = source->views;
    uint64_t elements;
    source->body = BODY_FRAME; /* of a dense dataset: all of them */
    source->body_bytes = views->frame_bytes;
    if (!views->is_sparse)
        return 0;
    source->body = BODY_VALUES;
    int error = count_defined(source, &elements);
    if (!error)
        source->body_bytes = elements * views->info->type.size;
    return error;
}

static int csr_source(struct source *source, enum view_kind kind, bool is_read)
{
    struct views *views = source->views;
    uint64_t elements = views->elements;
    int error = 0;
    if ((kind != VIEW_CSR_INDPTR || is_read) && views->is_sparse) {
        error = counts_get(views, &source->counts);
        elements = error ? 0 : source->counts->frame[source->counts->n].before;
    }
    if (kind == VIEW_CSR_INDPTR) {
        source->body = BODY_INDPTR;
        source->body_bytes = (views->frames + 1) * CSR_INDPTR_ITEM;
    } else if (kind == VIEW_CSR_INDICES) {
        source->body = BODY_INDICES;
        source->body_bytes = elements * csr_index_item(views);
    } else {
        source->body = views->is_sparse ? BODY_DATA : BODY_STACK;
        source->body_bytes = elements * views->info->type.size;
    }
    return error;
}

static int text_source(struct source *source, enum view_kind kind)
{
    int error = get_text(source->views, kind, &source->text);
    if (!error)
        source->head = source->text->head;
    return error;
}

/* What is made of a whole frame, of a size that is known before. */
static int made_source(struct source *source, enum defined_form form, uint64_t size, bool is_read)
{
    source->body_bytes = size;
    if (!is_read)
        return 0;
    int error = defined_get(source->views, source->frame, form, &source->defined);
    if (!error)
        source->head = source->defined->encoded;
    source->body_bytes = 0;
    return error;
}

static int npz_source(struct source *source, bool is_read)
{
    uint64_t elements;
    if (is_read)
        return made_source(source, DEFINED_NPZ, 0, true);
    int error = count_defined(source, &elements);
    if (!error)
        source->body_bytes = npz_bytes(source->views, elements);
    return error;
}

/* Head and data, padding up to the size that is known before, and the end. */
static int cbf_source(struct source *source, bool is_read)
{
    uint64_t size = cbf_bytes(source->views);
    size_t tail;
    int error = made_source(source, DEFINED_CBF, size, is_read);
    if (error || !is_read)
        return error;
    source->tail = cbf_tail(&tail);
    source->tail_bytes = tail;
    source->body = BODY_ZEROS;
    source->body_bytes = size - source->head.n - tail;
    return 0;
}

/* How many offsets there are is known without a look at them. */
static int parts_source(struct source *source, enum view_kind kind, bool is_read)
{
    struct views *views = source->views;
    int error = 0;
    if (kind != VIEW_OFFSETS || is_read)
        error = parts_get(views, &source->parts);
    if (error)
        return error;
    if (kind == VIEW_OFFSETS) {
        source->head = views->heads[kind];
        source->body = BODY_OFFSETS;
        source->body_bytes = (views->elements + 1) * sizeof(uint64_t);
    } else {
        source->head = parts_head(source->parts);
        source->body = BODY_PARTS;
        source->body_bytes = parts_bytes(source->parts);
    }
    return 0;
}

/* Ended by source_end, unless it fails: then nothing is held. is_read: its size alone will not do.
 */
static int source_begin(struct views *views, enum view_kind kind, uint64_t frame, bool is_read,
                        struct source *source)
{
    *source = (struct source){.views = views, .frame = frame};
    switch (kind) {
    case VIEW_DEFINED:
        return defined_source(source);
    case VIEW_CSR_TOML:
    case VIEW_ZARRAY:
        source->head = views->heads[kind];
        return 0;
    case VIEW_DATASET_JSON:
    case VIEW_VALUE_TXT:
    case VIEW_CSV:
    case VIEW_ZATTRS:
        return text_source(source, kind);
    case VIEW_VALUES:
        return values_source(source);
    case VIEW_RAW:
    case VIEW_CHUNK:
    case VIEW_NPY:
    case VIEW_TIFF:
        source->head = views->heads[kind];
        source->body = BODY_FRAME;
        source->body_bytes = views->frame_bytes;
        return 0;
    case VIEW_STACK_NPY:
    case VIEW_STACK_RAW:
        source->head = views->heads[kind];
        source->body = BODY_STACK;
        source->body_bytes = views->total_bytes;
        return 0;
    case VIEW_PNG:
        return made_source(source, DEFINED_PNG, png_bytes(views), is_read);
    case VIEW_CBF:
        return cbf_source(source, is_read);
    case VIEW_NPZ:
        return npz_source(source, is_read);
    case VIEW_STACK_TIFF:
        source->head = views->heads[kind];
        source->body = BODY_STACK;
        source->body_bytes = views->total_bytes;
        source->tail_bytes = views->tiff_tail;
        return 0;
    case VIEW_CSR_INDPTR:
    case VIEW_CSR_INDICES:
    case VIEW_CSR_DATA:
        return csr_source(source, kind, is_read);
    case VIEW_OFFSETS:
    case VIEW_RAGGED:
    case VIEW_LINES:
        return parts_source(source, kind, is_read);
    default:
        return -EINVAL;
    }
}

int size_of_view(struct views *views, enum view_kind kind, uint64_t frame, uint64_t *size)
{
    struct source source;
    int error = source_begin(views, kind, frame, false, &source);
    if (error)
        return error;
    *size = source.head.n + source.body_bytes + source.tail_bytes;
    source_end(&source);
    return 0;
}

int view_size(struct views *views, enum view_kind kind, uint64_t frame, uint64_t *size)
{
    LOOKING_AT(views);
    return size_of_view(views, kind, frame, size);
}

/* Whether the elements are few, lie in this file, and can be decoded. */
static bool is_small(const struct views *views)
{
    const struct sfs_dataset_info *info = views->info;
    bool has_chunks = info->layout == SFS_CHUNKED || info->layout == SFS_SPARSE;
    uint64_t bytes = 0;
    if (info->layout == SFS_EXTERNAL || info->layout == SFS_VIRTUAL || sfs_missing_filter(info) ||
        views->elements > GLANCE_ELEMENTS ||
        !box_product(views->dims, info->rank, info->type.size, &bytes) || bytes > GLANCE_BYTES)
        return false;
    return !has_chunks || (box_product(info->chunk_dims, info->rank, info->type.size, &bytes) &&
                           bytes <= GLANCE_CHUNK_BYTES);
}

static bool is_kept(struct views *views, struct kept_text *const *kept)
{
    pthread_mutex_lock(&views->lock);
    bool found = *kept && is_current(views, (*kept)->changes);
    pthread_mutex_unlock(&views->lock);
    return found;
}

bool view_size_is_known(struct views *views, enum view_kind kind, uint64_t frame, uint64_t *size)
{
    LOOKING_AT(views);
    if (kind == VIEW_VALUE_TXT && !is_small(views) && !is_kept(views, &views->text))
        return false;
    if ((kind == VIEW_RAGGED || kind == VIEW_LINES) && !is_small(views) && !parts_are_known(views))
        return false;
    return size_of_view(views, kind, frame, size) == 0;
}

int view_prepare(struct views *views, enum view_kind kind, uint64_t frame)
{
    LOOKING_AT(views);
    uint64_t size;
    return size_of_view(views, kind, frame, &size);
}

/* ---- Bodies that are arrays of items which are made whole ---- */

static size_t item_bytes(const struct source *source)
{
    return source->body == BODY_INDPTR    ? CSR_INDPTR_ITEM
           : source->body == BODY_OFFSETS ? sizeof(uint64_t)
           : source->body == BODY_INDICES ? csr_index_item(source->views)
                                          : source->views->info->type.size;
}

void show_elements(const struct views *views, void *elements, uint64_t n)
{
    const struct sfs_type *type = &views->info->type;
    unsigned char *element = elements;
    uint64_t mask = type->bits < 64 ? ((uint64_t)1 << type->bits) - 1 : UINT64_MAX;
    if (!views->has_padding)
        return;
    for (uint64_t i = 0; i < n; i++, element += type->size) {
        uint64_t value = 0;
        for (size_t k = 0; k < type->size; k++)
            value |= (uint64_t)element[type->big_endian ? type->size - 1 - k : k] << 8 * k;
        value = value >> type->bit_offset & mask;
        if (type->is_signed && value >> (type->bits - 1))
            value |= ~mask;
        for (size_t k = 0; k < type->size; k++)
            element[type->big_endian ? type->size - 1 - k : k] = (unsigned char)(value >> 8 * k);
    }
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
        error = count_is_wrong(views, source->frame);
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

static int read_source(const struct source *source, uint64_t offset, size_t n, char *buffer,
                       struct view_part *part)
{
    const struct view_head *head = &source->head;
    uint64_t end = head->n + source->body_bytes;
    int error = 0;
    n = bytes_before(end + source->tail_bytes, offset, n);
    *part = (struct view_part){.bytes = buffer, .n = n};
    if (n == 0)
        return 0;
    if (offset >= head->n && bytes_before(end, offset, n) == n && is_lendable(source))
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

int view_read(struct views *views, enum view_kind kind, uint64_t frame, uint64_t offset, size_t n,
              void *buffer, struct view_part *part)
{
    LOOKING_AT(views);
    int error = 0;
    for (int i = 0; i < MOST_TRIES; i++) {
        struct source source;
        error = source_begin(views, kind, frame, true, &source);
        if (error)
            return error;
        error = read_source(&source, offset, n, buffer, part);
        source_end(&source);
        if (error != -EAGAIN)
            break;
    }
    return error;
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
