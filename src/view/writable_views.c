/* Which views of which datasets can be written. */
#include <errno.h>

#include "view/private.h"

bool is_writable(const struct views *views, enum view_kind kind)
{
    return sfs_is_writable(views->file) && !views->info->type.has_pointers && !views->has_padding &&
           views->info->layout != SFS_VIRTUAL &&
           (view_is_dense(kind) ||
            (views->is_sparse &&
             (kind == VIEW_DEFINED || view_is_whole(kind) || view_is_csr(kind)))) &&
           has_view(views, kind);
}

bool views_show_others(const struct views *views)
{
    return views->info->layout == SFS_VIRTUAL && sfs_is_writable(views->file);
}

bool views_may_be_others(const struct views *views, bool is_in_folder)
{
    return views->info->layout == SFS_EXTERNAL ||
           (views->info->layout == SFS_VIRTUAL && is_in_folder);
}

bool view_writable(struct views *views, enum view_kind kind)
{
    LOOKING_AT(views);
    return is_writable(views, kind);
}

int cannot_write(const struct views *views)
{
    return sfs_is_writable(views->file) ? -EOPNOTSUPP : -EROFS;
}
