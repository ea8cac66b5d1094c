/* Which views a dataset has, and what kind of view each is. What only one format cannot hold it says itself: by an
 * empty header (numpy.c, tiff.c, zarr.c), or when it is asked (npz.c, png.c, cbf.c, table_csv.c). */
#include "view/npz.h"
#include "view/variable_length_files.h"

#define TEXT_ELEMENTS   4096                /* value.txt of numbers exists up to here */
#define STRING_ELEMENTS ((uint64_t)1 << 18) /* of strings and what else only text can show */

static bool has_text(const struct views *views)
{
    const struct sfs_dataset_info *info = views->info;
    const struct sfs_type *type = &info->type;
    bool only_text = type->has_pointers || type->class == SFS_STRING;
    if (info->layout == SFS_SPARSE && type->has_pointers) /* libhdf5 cannot follow them */
        return false;
    return views->elements <= (only_text ? STRING_ELEMENTS : TEXT_ELEMENTS);
}

bool is_colour(const struct sfs_type *type, int rank, const uint64_t *dims)
{
    return rank == 3 && (dims[2] == 3 || dims[2] == 4) && type->class == SFS_INTEGER &&
           !type->is_signed && type->size <= 2;
}

bool are_images(const struct sfs_type *type, int rank, const uint64_t *dims)
{
    return (rank == 2 || is_colour(type, rank, dims)) && is_number(type) && type->size <= 8 &&
           dims[0] > 0 && dims[1] > 0 && dims[0] <= UINT32_MAX && dims[1] <= UINT32_MAX;
}

/* Whether a header is there and its view is no longer than a file can be. */
static bool has_view_behind(const struct view_head *head, uint64_t body_bytes)
{
    return head->n > 0 && body_bytes <= (uint64_t)INT64_MAX - head->n;
}

bool has_view(const struct views *views, enum view_kind kind)
{
    const struct sfs_dataset_info *info = views->info;
    bool has_bytes = !info->type.has_pointers;
    bool has_frames = views->frame_bytes != UINT64_MAX;
    bool has_stack = has_bytes && views->total_bytes != UINT64_MAX;
    switch (kind) {
    case VIEW_RAW:
        return has_bytes && has_frames;
    case VIEW_DEFINED:
        return has_frames && (has_bytes || views->is_sparse);
    case VIEW_NPY:
        return has_view_behind(&views->heads[kind], views->frame_bytes);
    case VIEW_TIFF:
        return has_view_behind(&views->heads[kind], views->frame_bytes);
    case VIEW_VALUES:
        return has_bytes && has_frames;
    case VIEW_NPZ:
        return has_bytes && has_frames && npz_exists(views);
    case VIEW_PNG:
        return png_bytes(views) > 0;
    case VIEW_CBF:
        return cbf_bytes(views) > 0;
    case VIEW_STACK_RAW:
        return has_stack;
    case VIEW_STACK_NPY:
        return has_view_behind(&views->heads[kind], views->total_bytes);
    case VIEW_STACK_TIFF: /* which looked at how large it is itself */
        return views->heads[kind].n > 0;
    case VIEW_CSR_INDPTR:
    case VIEW_CSR_INDICES:
    case VIEW_CSR_DATA:
    case VIEW_CSR_TOML:
        /* The index arrays may be eight times as large as bytes of data. */
        return has_stack && info->space != SFS_SPACE_NULL && is_number(&info->type) &&
               views->elements < INT64_MAX / sizeof(int64_t) &&
               views->frames < INT64_MAX / sizeof(int64_t) - 1;
    case VIEW_DATASET_JSON:
        return true;
    case VIEW_VALUE_TXT:
        return has_text(views);
    case VIEW_CSV:
        return csv_exists(views);
    case VIEW_CHUNK:
    case VIEW_ZARRAY:
    case VIEW_ZATTRS:
        return views->heads[VIEW_ZARRAY].n > 0;
    case VIEW_OFFSETS:
    case VIEW_RAGGED:
        return parts_are_ragged(views);
    case VIEW_LINES:
        return parts_are_lines(views);
    default:
        return false;
    }
}

bool view_exists(struct views *views, enum view_kind kind)
{
    LOOKING_AT(views);
    return has_view(views, kind);
}

bool view_is_dense(enum view_kind kind)
{
    return kind == VIEW_RAW || kind == VIEW_NPY || kind == VIEW_TIFF || view_is_stack(kind);
}

bool view_is_whole(enum view_kind kind)
{
    return kind == VIEW_NPZ || kind == VIEW_VALUES;
}

bool view_is_csr(enum view_kind kind)
{
    return kind == VIEW_CSR_INDPTR || kind == VIEW_CSR_INDICES || kind == VIEW_CSR_DATA;
}

bool view_is_stack(enum view_kind kind)
{
    return kind == VIEW_STACK_RAW || kind == VIEW_STACK_NPY;
}

bool view_has_holes(const struct views *views, enum view_kind kind)
{
    return views->has_holes && view_is_dense(kind);
}

size_t view_head_bytes(const struct views *views, enum view_kind kind)
{
    return view_is_dense(kind) ? views->heads[kind].n : 0;
}

size_t view_head_size(struct views *views, enum view_kind kind)
{
    LOOKING_AT(views);
    return view_head_bytes(views, kind);
}

bool view_size_is_cheap(struct views *views, enum view_kind kind)
{
    LOOKING_AT(views);
    switch (kind) {
    case VIEW_VALUE_TXT:
    case VIEW_CSV:
    case VIEW_ZATTRS:
    case VIEW_DATASET_JSON:
    case VIEW_RAGGED:
    case VIEW_LINES:
        return false;
    case VIEW_DEFINED:
    case VIEW_CSR_INDICES:
    case VIEW_CSR_DATA:
        return !views->is_sparse;
    case VIEW_STACK_RAW:
    case VIEW_STACK_NPY:
        return !views->has_holes;
    case VIEW_VALUES:
    case VIEW_NPZ:
        return !views->is_sparse || (!sfs_is_writable(views->file) && count_is_cheap(views));
    default:
        return !view_has_holes(views, kind) || count_is_cheap(views);
    }
}
