/* Opening a dataset as frames and views: its geometry, which follows its dims. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "common/box.h"
#include "common/interrupt.h"
#include "view/variable_length_files.h"

#define SPARE_BYTES 4096 /* of an encoded selection, besides its points or blocks */

/* A product that means "too large for a file" by UINT64_MAX. */
static uint64_t product(const uint64_t *dims, int n, uint64_t unit)
{
    uint64_t result;
    return box_product(dims, n, unit, &result) ? result : UINT64_MAX;
}

/* How the chunks of a sparse dataset lie to its frames. */
static void look_at_chunks(struct views *views)
{
    const struct sfs_dataset_info *info = views->info;
    int nav_rank = info->rank - views->frame_rank;
    views->chunks_span_frames = views->has_open_edges = false;
    uint64_t chunks[SFS_MAX_RANK];
    for (int i = 0; i < info->rank && views->is_sparse; i++) {
        uint64_t over = views->dims[i] % info->chunk_dims[i];
        chunks[i] = i < nav_rank ? 1 : views->dims[i] / info->chunk_dims[i] + (over > 0);
        views->chunks_span_frames |= i < nav_rank && info->chunk_dims[i] > 1;
        views->has_open_edges |= over > 0 && views->dims[i] != info->max_dims[i];
    }
    views->frame_chunks = views->is_sparse ? product(chunks, info->rank, 1) : 0;
}

static void choose_frame_rank(struct views *views, int frame_rank)
{
    const struct sfs_dataset_info *info = views->info;
    int rank = info->rank;
    if (frame_rank < 0)
        frame_rank = rank >= 3 ? rank - 1 : rank;
    views->frame_rank = frame_rank < rank ? frame_rank : rank;
}

/* What follows from the dims. */
static void take_dims(struct views *views, const uint64_t *dims)
{
    const struct sfs_dataset_info *info = views->info;
    int rank = info->rank, nav_rank = rank - views->frame_rank;
    memcpy(views->dims, dims, (size_t)rank * sizeof(*dims));
    views->elements = info->space == SFS_SPACE_NULL ? 0 : product(dims, rank, 1);
    views->frames = info->space == SFS_SPACE_NULL ? 0 : product(views->dims, nav_rank, 1);
    views->frame_elements = product(views->dims + nav_rank, views->frame_rank, 1);
    views->frame_bytes = product(views->dims + nav_rank, views->frame_rank, info->type.size);
    views->total_bytes =
        info->space == SFS_SPACE_NULL ? 0 : product(views->dims, rank, info->type.size);
    look_at_chunks(views);
}

struct sfs_slab view_frame_slab(const struct views *views, uint64_t frame)
{
    const struct sfs_dataset_info *info = views->info;
    struct sfs_slab slab = {.rank = info->rank > 0 ? info->rank : 1};
    if (info->rank == 0)
        slab.count[0] = 1;
    for (int i = info->rank - 1; i >= 0; i--) {
        bool in_frame = i >= info->rank - views->frame_rank;
        slab.count[i] = in_frame ? views->dims[i] : 1;
        if (!in_frame && i == 0) {
            slab.start[i] = frame; /* also of one behind the last */
        } else if (!in_frame && views->dims[i] > 0) {
            slab.start[i] = frame % views->dims[i];
            frame /= views->dims[i];
        }
    }
    return slab;
}

struct sfs_slab view_whole_slab(const struct views *views)
{
    const struct sfs_dataset_info *info = views->info;
    struct sfs_slab slab = {.rank = info->rank > 0 ? info->rank : 1};
    if (info->rank == 0)
        slab.count[0] = 1;
    for (int i = 0; i < info->rank; i++)
        slab.count[i] = views->dims[i];
    return slab;
}

/* Every head that is the same for all frames; there are none before. */
static int make_heads(struct views *views)
{
    const struct sfs_dataset_info *info = views->info;
    const uint64_t *frame_dims = views->dims + info->rank - views->frame_rank;
    struct view_head *heads = views->heads;
    if (info->space == SFS_SPACE_NULL)
        return 0;
    void *encoded;
    struct sfs_slab slab = view_frame_slab(views, 0);
    int error = 0;
    if (!views->is_sparse) { /* all frames are alike: all is defined */
        error = sfs_encode_defined(views->dataset, &slab, views->frame_rank, &encoded,
                                   &heads[VIEW_DEFINED].n);
        if (error)
            return error;
        heads[VIEW_DEFINED].bytes = encoded;
    }
    if (info->type.has_pointers)
        return parts_offsets_head(views, &heads[VIEW_OFFSETS]);
    if (views->frame_bytes != UINT64_MAX)
        error = numpy_header(&info->type, views->frame_rank, frame_dims, &heads[VIEW_NPY]);
    if (!error && views->frame_bytes != UINT64_MAX)
        error = tiff_header(&info->type, views->frame_rank, frame_dims, &heads[VIEW_TIFF]);
    if (!error && views->total_bytes != UINT64_MAX)
        error = numpy_header(&info->type, info->rank, views->dims, &heads[VIEW_STACK_NPY]);
    if (!error)
        error = tiff_stack_head(views, &heads[VIEW_STACK_TIFF], &views->tiff_tail);
    if (!error)
        error = zarr_array(views, &heads[VIEW_ZARRAY]);
    if (!error && has_view(views, VIEW_CSR_DATA))
        error = csr_toml(views, &heads[VIEW_CSR_TOML]);
    return error;
}

static void free_heads(struct view_head *heads)
{
    for (int i = 0; i < VIEW_KINDS; i++)
        free(heads[i].bytes);
}

/* ---- Geometry ---- */

bool is_current(const struct views *views, uint64_t changes)
{
    return changes != 0 && changes == sfs_dataset_changes(views->dataset);
}

/* After a change of the dims, or of the pixel mask; the lock is held for writing. On error all is as it was. */
static int renew(struct views *views)
{
    uint64_t dims[SFS_MAX_RANK], old_dims[SFS_MAX_RANK];
    int first = views->info->rank - views->frame_rank; /* of the dims of a frame */
    struct view_head old_heads[VIEW_KINDS];
    uint64_t extent = sfs_dataset_dims(views->dataset, dims), old_tail = views->tiff_tail;
    memcpy(old_dims, views->dims, sizeof(old_dims));
    memcpy(old_heads, views->heads, sizeof(old_heads));
    memset(views->heads, 0, sizeof(views->heads));
    take_dims(views, dims);
    int error = make_heads(views);
    if (error) {
        free_heads(views->heads);
        memcpy(views->heads, old_heads, sizeof(old_heads));
        views->tiff_tail = old_tail;
        take_dims(views, old_dims);
        return error;
    }
    free_heads(old_heads);
    counts_drop(views);
    defined_drop(views);
    parts_drop(views);
    pthread_mutex_lock(&views->lock);
    if (pixel_mask_is_outdated(views) ||
        memcmp(old_dims + first, views->dims + first, sizeof(*dims) * (size_t)views->frame_rank))
        pixel_mask_drop(views);
    text_drop(&views->json);
    text_drop(&views->text);
    text_drop(&views->csv);
    text_drop(&views->zattrs);
    pthread_mutex_unlock(&views->lock);
    views->extent = extent;
    return 0;
}

static bool is_outdated(const struct views *views)
{
    return views->extent != sfs_dataset_dims(views->dataset, NULL) || pixel_mask_is_outdated(views);
}

int geometry_renew(struct views *views)
{
    interrupt_ask_wrlock(&views->geometry_lock);
    int error = is_outdated(views) ? renew(views) : 0;
    pthread_rwlock_unlock(&views->geometry_lock);
    return error;
}

/* Without memory for new heads the old geometry will do: the next one tries again. */
struct views *geometry_enter(struct views *views)
{
    if (is_outdated(views))
        (void)geometry_renew(views);
    interrupt_ask_rdlock(&views->geometry_lock);
    return views;
}

void geometry_leave(struct views **views)
{
    pthread_rwlock_unlock(&(*views)->geometry_lock);
}

/* ---- Opening ---- */

int views_open(struct sfs_file *file, uint64_t address, const char *path, int frame_rank,
               struct views **out)
{
    struct views *views = calloc(1, sizeof(*views));
    if (!views)
        return -ENOMEM;
    pthread_mutex_init(&views->lock, NULL);
    pthread_mutex_init(&views->parts_lock, NULL);
    pthread_mutex_init(&views->counting, NULL);
    pthread_mutex_init(&views->count_lock, NULL);
    pthread_rwlock_init(&views->geometry_lock, NULL);
    defined_init(views);
    views->file = file;
    views->address = address;
    views->path = strdup(path);
    int error = views->path ? sfs_dataset_open(file, address, path, &views->dataset) : -ENOMEM;
    if (!error) {
        show_as_integers(views);
        views->is_sparse = views->info->layout == SFS_SPARSE && !views->info->is_dense;
        views->has_holes = views->is_sparse && views->info->fill && views->info->fill_is_zero;
        choose_frame_rank(views, frame_rank);
        error = renew(views);
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
    counts_drop(views);
    parts_drop(views);
    defined_destroy(views);
    pixel_mask_close(views);
    free(views->cbf_facts.bytes);
    text_drop(&views->json);
    text_drop(&views->text);
    text_drop(&views->csv);
    text_drop(&views->zattrs);
    free_heads(views->heads);
    sfs_dataset_close(views->dataset);
    free(views->path);
    pthread_rwlock_destroy(&views->geometry_lock);
    pthread_mutex_destroy(&views->count_lock);
    pthread_mutex_destroy(&views->counting);
    pthread_mutex_destroy(&views->parts_lock);
    pthread_mutex_destroy(&views->lock);
    free(views);
}

uint64_t views_frames(struct views *views)
{
    LOOKING_AT(views);
    return views->frames;
}

uint64_t views_selection_limit(struct views *views)
{
    LOOKING_AT(views);
    uint64_t most, rank = views->frame_rank > 0 ? (uint64_t)views->frame_rank : 1;
    return __builtin_mul_overflow(views->frame_elements, rank * sizeof(uint64_t), &most) ||
                   __builtin_add_overflow(most, SPARE_BYTES, &most)
               ? UINT64_MAX
               : most;
}

size_t views_kept_bytes(struct views *views)
{
    pthread_mutex_lock(&views->lock);
    size_t n = (views->json ? views->json->head.n : 0) + (views->text ? views->text->head.n : 0);
    n += views->csv ? views->csv->head.n : 0;
    n += views->zattrs ? views->zattrs->head.n : 0;
    n += views->mask.n;
    pthread_mutex_unlock(&views->lock);
    pthread_mutex_lock(&views->count_lock);
    n += counts_bytes(views->counts);
    pthread_mutex_unlock(&views->count_lock);
    pthread_mutex_lock(&views->defined_frames.lock);
    n += views->defined_frames.bytes;
    pthread_mutex_unlock(&views->defined_frames.lock);
    n += parts_kept_bytes(views);
    return n;
}
