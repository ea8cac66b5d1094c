/* A dataset as frames and views: geometry, sizes, and reading them. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "common/box.h"
#include "view/private.h"

#define TEXT_ELEMENTS   4096                /* value.txt of numbers exists up to here */
#define STRING_ELEMENTS ((uint64_t)1 << 18) /* of strings and what else only text can show */
#define TEXT_BYTES      ((size_t)256 << 20)

/* A product that means "too large for a file" by UINT64_MAX. */
static uint64_t product(const uint64_t *dims, int n, uint64_t unit)
{
    uint64_t result;
    return box_product(dims, n, unit, &result) ? result : UINT64_MAX;
}

static void cut_into_frames(struct views *views, int frame_rank)
{
    const struct sfs_dataset_info *info = views->info;
    int rank = info->rank;
    if (frame_rank < 0)
        frame_rank = rank >= 3 ? rank - 1 : rank;
    views->frame_rank = frame_rank < rank ? frame_rank : rank;
    int nav_rank = rank - views->frame_rank;
    views->frames = info->space == SFS_SPACE_NULL ? 0 : product(info->dims, nav_rank, 1);
    views->frame_elements = product(info->dims + nav_rank, views->frame_rank, 1);
    views->frame_bytes = product(info->dims + nav_rank, views->frame_rank, info->type.size);
    views->total_bytes =
        info->space == SFS_SPACE_NULL ? 0 : product(info->dims, rank, info->type.size);
}

/* The slab that is one frame. */
static struct sfs_slab frame_slab(const struct views *views, uint64_t frame)
{
    const struct sfs_dataset_info *info = views->info;
    struct sfs_slab slab = {.rank = info->rank > 0 ? info->rank : 1};
    if (info->rank == 0)
        slab.count[0] = 1;
    for (int i = info->rank - 1; i >= 0; i--) {
        bool in_frame = i >= info->rank - views->frame_rank;
        slab.count[i] = in_frame ? info->dims[i] : 1;
        if (!in_frame && info->dims[i] > 0) {
            slab.start[i] = frame % info->dims[i];
            frame /= info->dims[i];
        }
    }
    return slab;
}

static struct sfs_slab whole_slab(const struct views *views)
{
    const struct sfs_dataset_info *info = views->info;
    struct sfs_slab slab = {.rank = info->rank > 0 ? info->rank : 1};
    if (info->rank == 0)
        slab.count[0] = 1;
    for (int i = 0; i < info->rank; i++)
        slab.count[i] = info->dims[i];
    return slab;
}

/* Every head that is the same for all frames. */
static int make_heads(struct views *views)
{
    const struct sfs_dataset_info *info = views->info;
    const uint64_t *frame_dims = info->dims + info->rank - views->frame_rank;
    if (info->space == SFS_SPACE_NULL)
        return 0;
    /* Of a dense dataset all frames are alike: all is defined. */
    void *encoded;
    struct sfs_slab slab = frame_slab(views, 0);
    int error =
        sfs_encode_defined(views->dataset, &slab, views->frame_rank, &encoded, &views->defined.n);
    if (error)
        return error;
    views->defined.bytes = encoded;
    if (info->type.has_pointers)
        return 0;
    if (views->frame_bytes != UINT64_MAX)
        error = numpy_header(&info->type, views->frame_rank, frame_dims, &views->npy);
    if (!error && views->frame_bytes != UINT64_MAX)
        error = tiff_header(&info->type, views->frame_rank, frame_dims, &views->tiff);
    if (!error && views->total_bytes != UINT64_MAX)
        error = numpy_header(&info->type, info->rank, info->dims, &views->stack_npy);
    if (!error && view_exists(views, VIEW_CSR_DATA))
        error = csr_toml(views, &views->csr_toml);
    return error;
}

int views_open(struct sfs_file *file, uint64_t address, const char *path, int frame_rank,
               struct views **out)
{
    struct views *views = calloc(1, sizeof(*views));
    if (!views)
        return -ENOMEM;
    pthread_mutex_init(&views->lock, NULL);
    views->file = file;
    views->address = address;
    views->path = strdup(path);
    int error = views->path ? sfs_dataset_open(file, address, path, &views->dataset) : -ENOMEM;
    if (!error) {
        views->info = sfs_dataset_info(views->dataset);
        cut_into_frames(views, frame_rank);
        error = make_heads(views);
    }
    if (error)
        views_close(views);
    else
        *out = views;
    return error;
}

void views_close(struct views *views)
{
    if (!views)
        return;
    sfs_dataset_close(views->dataset);
    struct view_head *heads[] = {&views->npy,      &views->stack_npy, &views->tiff, &views->defined,
                                 &views->csr_toml, &views->json,      &views->text};
    for (size_t i = 0; i < sizeof(heads) / sizeof(*heads); i++)
        free(heads[i]->bytes);
    free(views->path);
    pthread_mutex_destroy(&views->lock);
    free(views);
}

size_t views_text_bytes(struct views *views)
{
    pthread_mutex_lock(&views->lock);
    size_t n = views->json.n + views->text.n;
    pthread_mutex_unlock(&views->lock);
    return n;
}

static bool has_text(const struct views *views)
{
    const struct sfs_type *type = &views->info->type;
    bool only_text = type->has_pointers || type->class == SFS_STRING;
    return views->info->elements <= (only_text ? STRING_ELEMENTS : TEXT_ELEMENTS);
}

/* Whether a header is there and its view is no longer than a file can be. */
static bool has_view_behind(const struct view_head *head, uint64_t body_bytes)
{
    return head->n > 0 && body_bytes <= (uint64_t)INT64_MAX - head->n;
}

bool view_exists(const struct views *views, enum view_kind kind)
{
    const struct sfs_dataset_info *info = views->info;
    bool has_bytes = !info->type.has_pointers;
    bool has_frames = views->frame_bytes != UINT64_MAX;
    bool has_stack = has_bytes && views->total_bytes != UINT64_MAX;
    switch (kind) {
    case VIEW_RAW:
    case VIEW_DEFINED:
        return has_frames;
    case VIEW_NPY:
        return has_view_behind(&views->npy, views->frame_bytes);
    case VIEW_TIFF:
        return has_view_behind(&views->tiff, views->frame_bytes);
    case VIEW_VALUES:
        return has_bytes && has_frames;
    case VIEW_STACK_RAW:
        return has_stack;
    case VIEW_STACK_NPY:
        return has_view_behind(&views->stack_npy, views->total_bytes);
    case VIEW_CSR_INDPTR:
    case VIEW_CSR_INDICES:
    case VIEW_CSR_DATA:
    case VIEW_CSR_TOML:
        /* The index arrays may be eight times as large as bytes of data. */
        return has_stack && info->space != SFS_SPACE_NULL && is_number(&info->type) &&
               info->elements < INT64_MAX / sizeof(int64_t) &&
               views->frames < INT64_MAX / sizeof(int64_t) - 1;
    case VIEW_DATASET_JSON:
        return true;
    case VIEW_VALUE_TXT:
        return has_text(views);
    default:
        return false;
    }
}

bool view_size_is_cheap(const struct views *views, enum view_kind kind)
{
    (void)views;
    return kind != VIEW_VALUE_TXT && kind != VIEW_DATASET_JSON;
}

int view_readable(const struct views *views, enum view_kind kind)
{
    return kind == VIEW_RAW && views->info->type.has_pointers ? -EOPNOTSUPP : 0;
}

/* The texts are made once, on first use, and kept. */
static int make_text(struct views *views, enum view_kind kind, struct view_head *head)
{
    struct view_head *kept = kind == VIEW_DATASET_JSON ? &views->json : &views->text;
    int error = 0;
    pthread_mutex_lock(&views->lock);
    if (!kept->bytes)
        error = kind == VIEW_DATASET_JSON
                    ? json_of_dataset(views, kept)
                    : sfs_text(views->dataset, TEXT_BYTES, &kept->bytes, &kept->n);
    *head = *kept;
    pthread_mutex_unlock(&views->lock);
    return error;
}

enum body { BODY_NONE, BODY_FRAME, BODY_STACK, BODY_INDPTR, BODY_INDICES };

/* What a view is made of: its head, and the kind and size of its body. */
static int view_parts(struct views *views, enum view_kind kind, struct view_head *head,
                      enum body *body, uint64_t *body_bytes)
{
    *head = (struct view_head){0};
    *body = BODY_NONE;
    *body_bytes = 0;
    switch (kind) {
    case VIEW_DEFINED:
        *head = views->defined;
        break;
    case VIEW_CSR_TOML:
        *head = views->csr_toml;
        break;
    case VIEW_DATASET_JSON:
    case VIEW_VALUE_TXT:
        return make_text(views, kind, head);
    case VIEW_RAW:
    case VIEW_VALUES: /* of a dense dataset: all of them */
    case VIEW_NPY:
    case VIEW_TIFF:
        if (kind == VIEW_NPY)
            *head = views->npy;
        if (kind == VIEW_TIFF)
            *head = views->tiff;
        *body = BODY_FRAME;
        *body_bytes = views->info->type.has_pointers ? 0 : views->frame_bytes;
        break;
    case VIEW_STACK_NPY:
        *head = views->stack_npy;
        /* fall through */
    case VIEW_STACK_RAW:
    case VIEW_CSR_DATA:
        *body = BODY_STACK;
        *body_bytes = views->total_bytes;
        break;
    case VIEW_CSR_INDPTR:
        *body = BODY_INDPTR;
        *body_bytes = (views->frames + 1) * CSR_INDPTR_ITEM;
        break;
    case VIEW_CSR_INDICES:
        *body = BODY_INDICES;
        *body_bytes = views->info->elements * csr_index_item(views);
        break;
    default:
        return -EINVAL;
    }
    return 0;
}

int view_size(struct views *views, enum view_kind kind, uint64_t frame, uint64_t *size)
{
    (void)frame; /* the frames of a dense dataset are all alike */
    struct view_head head;
    enum body body;
    uint64_t body_bytes;
    int error = view_parts(views, kind, &head, &body, &body_bytes);
    if (!error)
        *size = head.n + body_bytes;
    return error;
}

/* Bytes of a computed array: whole items are made where the range cuts some. */
static int read_index(const struct views *views, enum body body, uint64_t offset, size_t n,
                      char *buffer)
{
    size_t item = body == BODY_INDPTR ? CSR_INDPTR_ITEM : csr_index_item(views);
    int64_t items[512];
    while (n > 0) {
        uint64_t first = offset / item;
        size_t skip = (size_t)(offset % item);
        size_t want = (skip + n + item - 1) / item;
        size_t room = sizeof(items) / item;
        size_t made = want < room ? want : room;
        if (body == BODY_INDPTR)
            csr_indptr(views, first, made, items);
        else
            csr_indices(views, first, made, items);
        size_t step = made * item - skip < n ? made * item - skip : n;
        memcpy(buffer, (char *)items + skip, step);
        offset += step;
        buffer += step;
        n -= step;
    }
    return 0;
}

static int read_body(struct views *views, enum body body, uint64_t frame, uint64_t offset, size_t n,
                     char *buffer)
{
    if (body == BODY_INDPTR || body == BODY_INDICES)
        return read_index(views, body, offset, n, buffer);
    struct sfs_slab slab = body == BODY_FRAME ? frame_slab(views, frame) : whole_slab(views);
    return sfs_read(views->dataset, &slab, offset, buffer, n);
}

/* Tries to lend a range of the body. */
static bool lend_body(struct views *views, enum body body, uint64_t frame, uint64_t offset,
                      size_t n, struct view_part *part, int *error)
{
    *error = 0;
    if (body != BODY_FRAME && body != BODY_STACK)
        return false;
    struct sfs_slab slab = body == BODY_FRAME ? frame_slab(views, frame) : whole_slab(views);
    if (!sfs_lend(views->dataset, &slab, offset, n, &part->loan, error))
        return false;
    part->bytes = part->loan.bytes;
    return true;
}

int view_read(struct views *views, enum view_kind kind, uint64_t frame, uint64_t offset, size_t n,
              void *buffer, struct view_part *part)
{
    struct view_head head;
    enum body body;
    uint64_t body_bytes;
    int error = view_readable(views, kind);
    if (!error)
        error = view_parts(views, kind, &head, &body, &body_bytes);
    if (error)
        return error;

    uint64_t size = head.n + body_bytes;
    uint64_t left = offset < size ? size - offset : 0;
    *part = (struct view_part){.bytes = buffer, .n = left < n ? (size_t)left : n};
    if (part->n == 0)
        return 0;
    if (offset >= head.n && lend_body(views, body, frame, offset - head.n, part->n, part, &error))
        return 0;
    if (error)
        return error;

    size_t from_head = 0;
    if (offset < head.n) {
        from_head = head.n - (size_t)offset < part->n ? head.n - (size_t)offset : part->n;
        memcpy(buffer, head.bytes + offset, from_head);
    }
    if (from_head == part->n)
        return 0;
    return read_body(views, body, frame, offset + from_head - head.n, part->n - from_head,
                     (char *)buffer + from_head);
}

void view_return(struct views *views, struct view_part *part)
{
    if (part->loan.holder)
        sfs_return(views->dataset, &part->loan);
}
