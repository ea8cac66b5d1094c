/* How large views are, and whether that is known without much work. */
#include "view/view_bytes.h"

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

bool view_size_to_show(struct views *views, enum view_kind kind, uint64_t frame, uint64_t *size)
{
    LOOKING_AT(views);
    bool has_text = kind == VIEW_VALUE_TXT || kind == VIEW_RAGGED || kind == VIEW_LINES;
    bool is_readable = !has_text || !sfs_missing_filter(views->info);
    if (is_readable && size_of_view(views, kind, frame, size) == 0)
        return true;
    *size = 1;
    return false;
}

/* Opening it once more finds out whether others have written to its files. */
static int look_again(struct views *views)
{
    struct sfs_dataset *dataset;
    int error = sfs_dataset_open(views->file, views->address, views->path, &dataset);
    if (!error)
        sfs_dataset_close(dataset);
    return error;
}

int view_prepare(struct views *views, enum view_kind kind, uint64_t frame)
{
    LOOKING_AT(views);
    uint64_t size;
    int error = views->info->layout == SFS_EXTERNAL ? look_again(views) : 0;
    return error ? error : size_of_view(views, kind, frame, &size);
}
