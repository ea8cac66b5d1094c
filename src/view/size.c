/* How large views are, and whether that is known without much work. */
#include "common/box.h"
#include "view/source.h"

/* What a listing reads of a dataset, to know how long its text is. */
#define GLANCE_ELEMENTS    4096
#define GLANCE_BYTES       ((uint64_t)64 << 10)
#define GLANCE_CHUNK_BYTES ((uint64_t)1 << 20)

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

bool view_size_is_known(struct views *views, enum view_kind kind, uint64_t frame, uint64_t *size)
{
    LOOKING_AT(views);
    if (kind == VIEW_VALUE_TXT && !is_small(views) && !source_has_text(views, &views->text))
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
