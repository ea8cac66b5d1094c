#include "fs/answer.h"

#include <errno.h>

#include "fs/mount.h"
#include "fs/open.h"

/* Interrupted: no release will come. */
static void answer_opened(fuse_req_t request, const struct answer *answer)
{
    struct mount *mount = fuse_req_userdata(request);
    if (fuse_reply_open(request, &answer->info) == -ENOENT)
        open_file_put(mount, open_file_of(&answer->info));
}

/* Interrupted: as after any open, but the name stays. */
static void answer_created(fuse_req_t request, const struct answer *answer)
{
    struct mount *mount = fuse_req_userdata(request);
    if (fuse_reply_create(request, &answer->entry, &answer->info) == -ENOENT) {
        open_file_put(mount, open_file_of(&answer->info));
        node_forgotten(mount->nodes, inode_unpack(answer->entry.ino).node, 1);
    }
}

void answer_entry(fuse_req_t request, const struct fuse_entry_param *entry)
{
    struct mount *mount = fuse_req_userdata(request);
    if (fuse_reply_entry(request, entry) == -ENOENT && entry->ino)
        node_forgotten(mount->nodes, inode_unpack(entry->ino).node, 1);
}

/* A disk that cannot do something says ENOSYS, too. */
void answer_error(fuse_req_t request, int error)
{
    fuse_reply_err(request, error == -ENOSYS ? EIO : -error);
}

void answer_now(fuse_req_t request, const struct answer *answer)
{
    if (answer->error || answer->kind == ANSWER_ERROR || answer->kind == ANSWER_CLOSED)
        answer_error(request, answer->error);
    else if (answer->kind == ANSWER_WRITTEN)
        fuse_reply_write(request, answer->written);
    else if (answer->kind == ANSWER_ATTRIBUTES)
        fuse_reply_attr(request, &answer->st, answer->timeout);
    else if (answer->kind == ANSWER_OPENED)
        answer_opened(request, answer);
    else if (answer->kind == ANSWER_CREATED)
        answer_created(request, answer);
    else
        answer_entry(request, &answer->entry);
}
