/* Where the bytes of each kind of view come from, and the texts that are kept. */
#include "view/view_bytes.h"

#include <errno.h>
#include <stdlib.h>

#include "common/interrupt.h"
#include "view/npz.h"
#include "view/views_memory.h"

#define TEXT_BYTES ((size_t)256 << 20)

/* With the lock of the texts held. */
static void release_text(struct kept_text *text)
{
    if (!text || --text->users > 0)
        return;
    kept_memory_give_back(text->head.n);
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
    text->place = kept;
    text->changes = sfs_dataset_changes(views->dataset);
    text->users = 1;
    int error = kind == VIEW_DATASET_JSON ? json_of_dataset(views, &text->head)
                : kind == VIEW_ZATTRS     ? zarr_attributes(views, &text->head)
                : kind == VIEW_CSV
                    ? csv_of_dataset(views, &text->head)
                    : sfs_text(views->dataset, TEXT_BYTES, &text->head.bytes, &text->head.n);
    if (!error && (error = kept_memory_take(views, text->head.n)) < 0)
        free(text->head.bytes);
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

/* The lock is held while one is made. -ENOENT: there is none that is current, and none is to be made. */
static int use_text(struct views *views, enum view_kind kind, bool makes, struct kept_text **text)
{
    struct kept_text **kept = place_of(views, kind);
    int error = interrupt_lock(&views->lock);
    if (error)
        return error;
    if (*kept && !is_current(views, (*kept)->changes))
        text_drop(kept);
    if (!*kept)
        error = makes ? make_text(views, kind, kept) : -ENOENT;
    if (!error) {
        (*kept)->users++;
        *text = *kept;
    }
    pthread_mutex_unlock(&views->lock);
    return error;
}

/* The texts are made on first use and kept as long as nothing changes. How long those of elements
 * become is not known before. */
static int get_text(struct views *views, enum view_kind kind, struct kept_text **text)
{
    if (kind != VIEW_VALUE_TXT && kind != VIEW_CSV)
        return use_text(views, kind, true, text);
    int error = use_text(views, kind, false, text);
    if (error != -ENOENT)
        return error;
    const size_t element = sfs_dataset_info(views->dataset)->type.size;
    const size_t bytes = TEXT_BYTES + 2 * element; /* which is sent to libhdf5's process */
    error = made_memory_take(bytes);
    if (error)
        return error;
    error = use_text(views, kind, true, text);
    made_memory_give_back(bytes);
    return error;
}

static void put_text(struct views *views, struct kept_text *text)
{
    pthread_mutex_lock(&views->lock);
    struct kept_text **place = text->place;
    release_text(text);
    if (text == *place && text->users == 1 && !kept_memory_may_stay())
        text_drop(place);
    pthread_mutex_unlock(&views->lock);
}

void source_end(struct source *source)
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

int source_begin(struct views *views, enum view_kind kind, uint64_t frame, bool is_read,
                 struct source *source)
{
    *source = (struct source){
        .views = views, .frame = frame, .changes = sfs_dataset_changes(views->dataset)};
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
