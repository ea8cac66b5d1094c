/* Requests for the names of temporary files: made, removed, renamed. What is done with one that is
 * open is in open.c and write.c. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "fs/escaped_names.h"
#include "fs/interrupt.h"
#include "fs/open.h"
#include "fs/refusal.h"
#include "fs/requests.h"

static bool is_frame(struct mount *mount, struct inode directory, const char *name)
{
    struct inode inode;
    return mount_parse_name(mount, directory, name, &inode);
}

static int refuse(struct mount *mount, struct inode directory, enum refusal refusal)
{
    bool is_of_csr = directory.entry == ENTRY_CSR_DIR;
    return refusal_say(mount, node_get(mount->nodes, directory.node),
                       is_of_csr ? REFUSAL_MATRIX : refusal);
}

/* The place of a name that can be a temporary file's; else -EPERM is told so. */
static int place_of_name(struct mount *mount, struct inode directory, const char *name,
                         enum refusal refusal, struct temporary_place *place)
{
    int error = mount_place(mount, directory, place);
    if (!error && is_frame(mount, directory, name))
        error = -EPERM;
    if (error == -EPERM)
        error = refuse(mount, directory, refusal);
    if (!error && strlen(name) >= NAME_BYTES)
        error = -ENAMETOOLONG;
    return error;
}

/* Names in directories that the kernel knows by another hard link to the dataset; those in the one
 * of a request it knows have changed. */
static void change_of_names(struct mount *mount, const struct node *node, struct change *change)
{
    uint32_t *numbers;
    size_t n = node_same(mount->nodes, node, &numbers);
    free(numbers);
    if (n != 1) /* 0: for want of memory */
        *change = (struct change){.node = node, .first = 1, .last = 0, .names = true};
}

static void answer_change(struct mount *mount, const struct change *change, fuse_req_t request,
                          const struct answer *answer)
{
    if (change->node)
        notify_change(mount->notify, change, 0, request, answer);
    else
        answer_now(request, answer);
}

/* ---- Making ---- */

static int make(fuse_req_t request, struct inode directory, const char *name,
                struct temporary **temporary, struct change *change)
{
    struct mount *mount = mount_of(request);
    struct temporary_place place;
    int error = place_of_name(mount, directory, name, REFUSAL_NAME, &place);
    if (!error)
        error =
            temporary_make(mount->temporaries, place, name, fuse_req_ctx(request)->uid, temporary);
    if (!error)
        change_of_names(mount, place.node, change);
    return error;
}

/* Nobody has got it. */
static void unmake(struct mount *mount, struct inode directory, const char *name)
{
    struct temporary_place place;
    if (mount_place(mount, directory, &place) == 0)
        (void)temporary_unlink(mount->temporaries, place, name);
}

/* The name was created since the kernel looked it up. */
static int find_made(struct mount *mount, struct inode directory, const char *name,
                     struct temporary **temporary)
{
    struct temporary_place place;
    int error = mount_place(mount, directory, &place);
    if (!error && !(*temporary = temporary_find(mount->temporaries, place, name)))
        error = -EEXIST;
    return error;
}

/* Not cached by the kernel: after a rename the name has another inode. */
static int entry_of(struct mount *mount, const struct temporary *temporary,
                    struct fuse_entry_param *entry)
{
    struct inode inode = temporary_inode(temporary);
    int error = mount_attributes(mount, inode, &entry->attr, &entry->attr_timeout);
    entry->ino = inode_pack(inode);
    entry->generation = mount_generation(mount, inode);
    entry->attr_timeout = entry->entry_timeout = 0;
    return error;
}

void create_temporary(fuse_req_t request, fuse_ino_t parent, const char *name,
                      struct fuse_file_info *info)
{
    struct mount *mount = mount_of(request);
    struct inode directory = inode_unpack(parent);
    struct answer answer = {.kind = ANSWER_CREATED};
    struct temporary *temporary = NULL;
    struct open_file *file = NULL;
    struct change change = {0};
    answer.error = make(request, directory, name, &temporary, &change);
    bool is_made = !answer.error;
    if (answer.error == -EEXIST && !(info->flags & O_EXCL))
        answer.error = find_made(mount, directory, name, &temporary);
    if (!answer.error)
        answer.error = entry_of(mount, temporary, &answer.entry);
    if (!answer.error)
        answer.error = open_file_open(mount, request, answer.entry.ino, true, info, &file);
    answer.info = *info;
    if (!answer.error)
        node_looked_up(mount->nodes, inode_unpack(answer.entry.ino).node, 1);
    else if (is_made)
        unmake(mount, directory, name);
    answer_change(mount, &change, request, &answer);
    temporary_put(mount->temporaries, temporary);
}

void on_mknod(fuse_req_t request, fuse_ino_t parent, const char *name, mode_t mode, dev_t device)
{
    (void)device;
    struct mount *mount = mount_of(request);
    struct answer answer = {.kind = ANSWER_ENTRY};
    struct temporary *temporary = NULL;
    struct change change = {0};
    answer.error = S_ISREG(mode) ? make(request, inode_unpack(parent), name, &temporary, &change)
                                 : refuse(mount, inode_unpack(parent), REFUSAL_NAME);
    if (!answer.error)
        answer.error = entry_of(mount, temporary, &answer.entry);
    if (!answer.error)
        node_looked_up(mount->nodes, inode_unpack(answer.entry.ino).node, 1);
    answer_change(mount, &change, request, &answer);
    temporary_put(mount->temporaries, temporary);
}

/* ---- Removing and renaming: nothing else has a name that could be ---- */

void on_unlink(fuse_req_t request, fuse_ino_t parent, const char *name)
{
    struct mount *mount = mount_of(request);
    struct answer answer = {.kind = ANSWER_ERROR};
    struct temporary_place place;
    struct change change = {0};
    struct inode directory = inode_unpack(parent);
    bool is_of_frame =
        is_frame(mount, directory, name) && mount_place(mount, directory, &place) == 0;
    answer.error = is_of_frame ? mount_remove_name(mount, directory, name)
                               : place_of_name(mount, directory, name, REFUSAL_REMOVAL, &place);
    if (!answer.error && !is_of_frame)
        answer.error = temporary_unlink(mount->temporaries, place, name);
    if (!answer.error)
        change_of_names(mount, place.node, &change);
    answer_change(mount, &change, request, &answer);
}

static int become(fuse_req_t request, struct temporary *temporary, struct inode directory,
                  const char *name, bool replaces, struct change *change)
{
    CLOSING(request);
    return mount_become(mount_of(request), temporary, directory, name, replaces, change);
}

static int rename_file(fuse_req_t request, struct temporary *temporary, struct inode directory,
                       const char *name, bool replaces, struct change *change)
{
    struct mount *mount = mount_of(request);
    struct temporary_place place;
    int error = mount_place(mount, directory, &place);
    if (error == -EPERM)
        return refuse(mount, directory, REFUSAL_NAME);
    if (error)
        return error;
    if (is_frame(mount, directory, name))
        return become(request, temporary, directory, name, replaces, change);
    if (strlen(name) >= NAME_BYTES)
        return -ENAMETOOLONG;
    error = temporary_rename(mount->temporaries, temporary, place, name, replaces);
    if (!error)
        change_of_names(mount, place.node, change);
    return error;
}

/* Frames are where they are: two of them, or one and a file, are not exchanged. */
void on_rename(fuse_req_t request, fuse_ino_t parent, const char *name, fuse_ino_t new_parent,
               const char *new_name, unsigned flags)
{
    struct mount *mount = mount_of(request);
    struct answer answer = {.kind = ANSWER_ERROR};
    struct temporary *temporary = NULL;
    struct temporary_place place;
    struct change change = {0}, left = {0};
    answer.error = place_of_name(mount, inode_unpack(parent), name, REFUSAL_RENAMING, &place);
    if (!answer.error && flags & ~(unsigned)RENAME_NOREPLACE)
        answer.error = refusal_say(mount, place.node, REFUSAL_EXCHANGE);
    if (!answer.error) {
        temporary = temporary_find(mount->temporaries, place, name);
        answer.error = temporary ? rename_file(request, temporary, inode_unpack(new_parent),
                                               new_name, !(flags & RENAME_NOREPLACE), &change)
                                 : -ENOENT;
    }
    if (!answer.error)
        change_of_names(mount, place.node, &left);
    if (left.node) {
        notify_change(mount->notify, &left, 0, NULL, NULL);
        if (change.node)
            notify_change(mount->notify, &change, 0, NULL, NULL);
        notify_answer(mount->notify, request, &answer);
    } else {
        answer_change(mount, &change, request, &answer);
    }
    temporary_put(mount->temporaries, temporary);
}
