/* Listings. Names in the directories of a dataset are computed from the offset; only the links of
 * groups are read (group_listings.h).
 *
 * Where the kernel permits it directories are not opened: a reader has no state but its offset,
 * and two of four requests per directory are saved. The offset of an entry, at which it and what
 * follows is found, is valid as long as the mount: "." and ".." come first; then in a group links
 * by their places, behind .sparsefs at the root; in other directories names by their places in the
 * table, or by frame, and far behind all frames temporary files by their numbers. In followed
 * files links are changed by others without notice: there directories are opened, and show the
 * links as they were when reading began. So they are where the kernel must not keep listings
 * (mount_keeps_listings), as those of a folder, of which names are read as they are wanted. */
#include <errno.h>
#include <linux/fuse.h>
#include <stdlib.h>
#include <string.h>

#include "common/interrupt.h"
#include "fs/dataset_entries.h"
#include "fs/escaped_names.h"
#include "fs/frame_names.h"
#include "fs/mount.h"
#include "fs/reader_descriptors.h"
#include "fs/requests.h"

#define AT_CONTROL 2 /* the offset of .sparsefs at the root, */
#define AT_JSON    3 /* of group.json, */
#define AT_LINKS   4 /* and of a group's first link */

/* Of temporary files, less the first two: offsets that old programs can take, if frames leave any.
 */
#define AT_TEMPORARY     ((uint64_t)1 << 30)
#define AT_TEMPORARY_FAR ((uint64_t)1 << 61)

#define PASSED_OVER 1024 /* names, between two looks whether the answer is still wanted */

/* A directory while it is read, or open. */
struct directory {
    struct inode inode;
    const struct node *node;
    struct views *views;           /* directories of a dataset */
    const struct listing *listing; /* of a group */
    struct folder_names *names;    /* of a directory of the folder, */
    uid_t user;                    /* who has opened it */
    bool is_new;                   /* and nothing of it has been read */
    bool ends;                     /* it has been read to its end */
    pthread_mutex_t lock;          /* of one that is open: held while it is read */
};

/* One entry as readdir wants it; of readdirplus also the attributes, if they are at hand. */
struct listed {
    char name[NAME_BYTES];
    struct inode inode;
    mode_t type;
    uint64_t next; /* the offset behind it */
    bool is_held;  /* a reference to its node, which is not the directory's, is held */
    bool has_attributes;
    struct stat st;
    double timeout; /* of st */
};

/* The links of a group that is still there. */
static int get_listing(struct mount *mount, const struct node *group, bool begins,
                       const struct listing **listing)
{
    struct mounted_file *file = group->mounted;
    int error = mounted_lock_to_read(file);
    if (error)
        return error;
    error = node_get(mount->nodes, group->number)
                ? listing_get(mount->listings, group, atomic_load(&file->removals), begins, listing)
                : -ESTALE;
    mounted_unlock(file);
    return error;
}

/* For a user, of whom the descriptor is. */
static int get_names(struct mount *mount, const struct node *node, uid_t user,
                     struct folder_names **out)
{
    struct folder_names *names = calloc(1, sizeof(*names));
    if (!names)
        return -ENOMEM;
    int error = listings_count(mount->listings, sizeof(*names));
    if (error) {
        free(names);
        return error;
    }
    error = reader_descriptor_take(mount->options->file, user);
    if (!error) {
        error = mount_list_folder(mount, node, names);
        if (error)
            reader_descriptor_give(user);
    }
    if (error) {
        listings_uncount(mount->listings, sizeof(*names));
        free(names);
        return error;
    }
    *out = names;
    return 0;
}

/* From now on it is shown as it is then. */
static void rewind_names(struct mount *mount, struct folder_names *names)
{
    size_t before = folder_names_bytes(names);
    folder_names_rewind(names);
    listings_uncount(mount->listings, before - folder_names_bytes(names));
}

static void put_names(struct mount *mount, struct folder_names *names, uid_t user)
{
    if (!names)
        return;
    listings_uncount(mount->listings, folder_names_bytes(names));
    folder_names_free(names);
    reader_descriptor_give(user);
    free(names);
}

/* As folder_names_find. To go where few readers do may take a while. */
static int find_name(struct mount *mount, struct folder_names *names, uint64_t place, size_t *i)
{
    bool is_far = !folder_names_are_near(names, place);
    size_t before = folder_names_bytes(names);
    if (is_far)
        loop_begin_wait(mount->loop);
    int error = folder_names_find(names, place, i);
    if (is_far)
        loop_end_wait(mount->loop);
    size_t now = folder_names_bytes(names);
    if (now > before && listings_count(mount->listings, now - before) != 0) {
        folder_names_rewind(names);
        now = folder_names_bytes(names);
        error = -ENOMEM;
    }
    if (now < before)
        listings_uncount(mount->listings, before - now);
    return error;
}

/* Of a node that the caller holds, or the kernel knows. begins: it is read from its beginning. */
static int enter(struct mount *mount, struct inode inode, uid_t user, bool begins,
                 struct directory *directory)
{
    const struct node *node = node_get(mount->nodes, inode.node);
    if (!node)
        return -ESTALE;
    if (!mount_is_directory(node, inode))
        return -ENOTDIR;
    *directory = (struct directory){.inode = inode, .node = node, .user = user};
    int error = node->type == NODE_DATASET && begins ? mount_apply_names(mount, node) : 0;
    if (error)
        return error;
    if (inode.entry == ENTRY_CONTROL)
        return 0;
    if (node->type == NODE_FOLDER)
        return get_names(mount, node, user, &directory->names);
    if (node->type == NODE_GROUP)
        return get_listing(mount, node, begins, &directory->listing);
    if (node->type == NODE_DATASET)
        return node_get_views(mount->nodes, node, &directory->views);
    /* Logs again why it cannot be read; if it can be now, it is to be looked up again. */
    enum sfs_object_type type;
    error = sfs_object_type(node_file(node), node_address(node), &type);
    return !error ? -ESTALE : error != -EINTR ? -EIO : error;
}

static void leave(struct mount *mount, struct directory *directory)
{
    if (directory->views)
        node_put_views(mount->nodes, directory->node);
    if (directory->listing)
        listing_put(mount->listings, directory->listing, directory->ends);
    put_names(mount, directory->names, directory->user);
}

int directory_open(struct mount *mount, struct inode inode, uid_t user, struct directory **out)
{
    struct directory *directory = calloc(1, sizeof(*directory));
    if (!directory)
        return -ENOMEM;
    int error = enter(mount, inode, user, true, directory);
    if (error) {
        free(directory);
        return error;
    }
    directory->is_new = true;
    directory->ends = true; /* when it is closed */
    pthread_mutex_init(&directory->lock, NULL);
    *out = directory;
    return 0;
}

void directory_close(struct mount *mount, struct directory *directory)
{
    leave(mount, directory);
    pthread_mutex_destroy(&directory->lock);
    free(directory);
}

/* rewinddir of one that is open: what has changed since is seen. A group that is gone is listed as
 * before, of which nothing is there any more. */
static void begin_again(struct mount *mount, struct directory *directory)
{
    const struct listing *now;
    if (directory->names && !directory->is_new) {
        rewind_names(mount, directory->names);
    }
    if (!directory->listing || !listing_is_old(mount->listings, directory->listing) ||
        get_listing(mount, directory->node, true, &now) != 0)
        return;
    listing_put(mount->listings, directory->listing, true);
    directory->listing = now;
}

static void set_type(struct mount *mount, struct listed *listed, bool want_attributes)
{
    listed->has_attributes = want_attributes && mount_attributes(mount, listed->inode, &listed->st,
                                                                 &listed->timeout) == 0;
    const struct node *node = node_get(mount->nodes, listed->inode.node);
    if (!node) /* removed just now */
        listed->type = S_IFDIR;
    else
        listed->type = mount_is_directory(node, listed->inode)                           ? S_IFDIR
                       : listed->inode.entry == ENTRY_NODE && node->type == NODE_SYMLINK ? S_IFLNK
                                                                                         : S_IFREG;
}

/* The node of a link that was read, which is held then; -EAGAIN: it is gone. */
static int node_of_link(struct mount *mount, const struct directory *directory,
                        const struct sfs_link *link, const struct node **child)
{
    const struct node *group = directory->node;
    int error = mounted_lock_to_read(group->mounted);
    if (error)
        return error;
    if (atomic_load(&group->mounted->removals) == directory->listing->removals) {
        error = node_child(mount->nodes, group, link, child);
    } else if (!node_get(mount->nodes, group->number)) {
        error = -EAGAIN;
    } else { /* its object may have been replaced since */
        struct sfs_link now;
        error = sfs_lookup(node_file(group), node_address(group), link->name, &now);
        if (!error) {
            error = node_child(mount->nodes, group, &now, child);
            sfs_link_free(&now);
        } else if (error == -ENOENT) {
            error = -EAGAIN;
        }
    }
    mounted_unlock(group->mounted);
    return error;
}

/* -EAGAIN: this group has none. -EINTR. */
static int list_group_json(struct mount *mount, const struct directory *directory,
                           struct listed *listed)
{
    const struct node *group = directory->node;
    int error = mounted_lock_to_read(group->mounted);
    if (error)
        return error;
    error = node_get(mount->nodes, group->number)
                ? group_tells(mount, group, &directory->listing->links)
                : -ENOENT;
    mounted_unlock(group->mounted);
    strcpy(listed->name, NAME_GROUP_JSON);
    listed->inode = (struct inode){.node = directory->inode.node, .entry = ENTRY_GROUP_JSON};
    listed->type = S_IFREG;
    return error == -ENOENT ? -EAGAIN : error;
}

/* Before the links, .sparsefs at the root, and group.json. */
static int list_group(struct mount *mount, const struct directory *directory, uint64_t at,
                      bool plus, struct listed *listed)
{
    const struct node *child;
    bool is_root = !directory->node->parent;
    const struct listing *listing = directory->listing;
    if (at == AT_CONTROL && is_root) {
        strcpy(listed->name, NAME_CONTROL);
        listed->inode = (struct inode){.entry = ENTRY_CONTROL};
        set_type(mount, listed, false);
        return 0;
    }
    if (at <= AT_JSON) {
        listed->next = AT_LINKS;
        return list_group_json(mount, directory, listed);
    }
    size_t i = listing_find(listing, at - AT_LINKS);
    if (i == listing->links.n)
        return -ENOENT;
    const struct sfs_link *link = &listing->links.link[i];
    listed->next = AT_LINKS + listing_place(listing, i) + 1;
    int error = node_of_link(mount, directory, link, &child);
    if (error)
        return error;
    link_name_encode(link->name, is_root, listed->name);
    listed->inode = (struct inode){.node = child->number, .entry = ENTRY_NODE};
    listed->is_held = true;
    set_type(mount, listed, plus);
    return 0;
}

/* In the folder that is mounted a file called .sparsefs is not to be seen. */
static int list_folder(struct mount *mount, const struct directory *directory, uint64_t at,
                       bool plus, struct listed *listed)
{
    struct folder_names *names = directory->names;
    struct in_folder child;
    size_t i;
    bool is_root = !directory->node->parent;
    if (at == AT_CONTROL) {
        strcpy(listed->name, NAME_CONTROL);
        listed->inode = (struct inode){.entry = ENTRY_CONTROL};
        listed->type = S_IFDIR;
        return is_root ? 0 : -EAGAIN;
    }
    if (at < AT_LINKS)
        return -EAGAIN;
    int error = find_name(mount, names, at - AT_LINKS, &i);
    if (error)
        return error;
    const char *name = names->text + names->name[i].at;
    if (strlen(name) >= sizeof(listed->name) || (is_root && !strcmp(name, NAME_CONTROL)))
        return -EAGAIN;
    error = mount_listed_in_folder(mount, directory->node, names, i, &child);
    if (error == -ENOENT || error == -ENOMEM)
        return error == -ENOENT ? -EAGAIN : error;
    strcpy(listed->name, name);
    if (error) { /* it may not be looked at */
        listed->inode = (struct inode){.entry = ENTRY_NODE, .frame = 1};
        listed->type = 0;
        return 0;
    }
    listed->inode = (struct inode){.node = child.node->number, .entry = ENTRY_NODE};
    listed->st = child.st;
    listed->is_held = true;
    listed->type = child.st.st_mode & S_IFMT;
    listed->has_attributes = plus && child.is_told;
    listed->timeout = mount_folder_timeout(mount);
    return 0;
}

/* Where the names of a series begin: behind "." and "..", and fixed names. */
static uint64_t begin_of_series(unsigned directory)
{
    const struct entry_name *names = entry_names(directory);
    uint64_t n = 2;
    for (; names && names->name; names++)
        n++;
    return n;
}

/* The at-th of the fixed names, if this dataset has it. */
static int list_fixed(struct mount *mount, const struct directory *directory, uint64_t at,
                      bool plus, struct listed *listed)
{
    const struct entry_name *fixed = entry_names(directory->inode.entry);
    for (; fixed->name && at > 0; at--)
        fixed++;
    if (!fixed->name)
        return -ENOENT;
    if (!mount_shows_name(mount, directory->views, fixed))
        return -EAGAIN;
    strcpy(listed->name, fixed->name);
    listed->inode = (struct inode){.node = directory->inode.node, .entry = fixed->entry};
    bool cheap = !inode_is_view(listed->inode) ||
                 view_size_is_cheap(directory->views, inode_view(listed->inode));
    set_type(mount, listed, plus && cheap);
    return 0;
}

static uint64_t place_of_temporaries(const struct frame_names *series, uint64_t frames)
{
    return frames <= AT_TEMPORARY / series->n_views ? AT_TEMPORARY : AT_TEMPORARY_FAR;
}

static int list_temporary(struct mount *mount, const struct directory *directory, uint64_t begin,
                          uint64_t at, struct listed *listed)
{
    const struct temporary_place place = {directory->node, directory->inode.entry};
    struct temporary *temporary = temporary_next(mount->temporaries, place, at, &listed->next);
    if (!temporary)
        return -ENOENT;
    listed->next += begin;
    listed->inode = temporary_inode(temporary);
    listed->type = S_IFREG;
    temporary_name(mount->temporaries, temporary, listed->name);
    listed->is_held = *listed->name; /* or it has just lost it */
    if (listed->is_held)
        node_hold(mount->nodes, listed->inode.node);
    temporary_put(mount->temporaries, temporary);
    return listed->is_held ? 0 : -EAGAIN;
}

/* The at-th name of a series: all views of the first frame, then all of the second. */
static int list_series(struct mount *mount, const struct directory *directory,
                       const struct frame_names *series, uint64_t at, bool plus,
                       struct listed *listed)
{
    struct views *views = directory->views;
    unsigned first = mount->options->first;
    uint64_t frame = at / series->n_views;
    unsigned which = (unsigned)(at % series->n_views);
    uint64_t temporaries = place_of_temporaries(series, views_frames(views));
    uint64_t begin = begin_of_series(directory->inode.entry) + temporaries;
    if (at >= temporaries)
        return list_temporary(mount, directory, begin, at - temporaries, listed);
    if (frame >= views_frames(views) || frame >= INODE_MAX_FRAMES) {
        listed->next = begin;
        return -EAGAIN;
    }
    if (series->n_views > 1 && !mount_shows(mount, views, series->view[which]))
        return -EAGAIN;
    if (series->are_chunks)
        view_chunk_name(views, frame, listed->name, sizeof(listed->name));
    else
        frame_name_format(series, which, frame + first,
                          frame_name_width(series, views_frames(views), first), listed->name);
    listed->inode = (struct inode){
        .node = directory->inode.node, .frame = frame, .entry = ENTRY_VIEW + series->view[which]};
    const struct temporary_place place = {directory->node, directory->inode.entry};
    if (removed_has(mount->removed, place, listed->inode))
        return -EAGAIN;
    listed->type = S_IFREG;
    listed->has_attributes = plus && view_size_is_cheap(views, series->view[which]) &&
                             mount_view_attributes(mount, directory->node, views, listed->inode,
                                                   &listed->st, &listed->timeout) == 0;
    return 0;
}

static int list_control(struct mount *mount, uint64_t at, struct listed *listed)
{
    const char *name =
        control_name(mount, at < UINT32_MAX ? (unsigned)at : UINT32_MAX, &listed->inode);
    if (!name)
        return -ENOENT;
    strcpy(listed->name, name);
    set_type(mount, listed, false);
    return 0;
}

/* The first entry at or behind an offset; -ENOENT: there is none. -EAGAIN: there is none before
 * listed->next; it does not exist, or not any more. */
static int list_at(struct mount *mount, const struct directory *directory, uint64_t at, bool plus,
                   struct listed *listed)
{
    const struct frame_names *series = frame_names_in(directory->inode.entry);
    listed->has_attributes = listed->is_held = false;
    listed->next = at + 1;
    if (at < 2) {
        strcpy(listed->name, at == 0 ? "." : "..");
        listed->inode =
            at == 0 ? directory->inode : mount_parent(directory->node, directory->inode);
        listed->type = S_IFDIR;
        return 0;
    }
    if (directory->names)
        return list_folder(mount, directory, at, plus, listed);
    if (directory->listing)
        return list_group(mount, directory, at, plus, listed);
    if (directory->inode.entry == ENTRY_CONTROL)
        return list_control(mount, at - 2, listed);
    uint64_t begin = begin_of_series(directory->inode.entry);
    if (!series || at < begin)
        return list_fixed(mount, directory, at - 2, plus, listed);
    return list_series(mount, directory, series, at - begin, plus, listed);
}

static size_t add_entry(fuse_req_t request, char *buffer, size_t room, const struct listed *listed,
                        bool plus)
{
    struct mount *mount = fuse_req_userdata(request);
    struct stat st = {.st_ino = inode_pack(listed->inode), .st_mode = listed->type};
    off_t next = (off_t)listed->next;
    if (!plus)
        return fuse_add_direntry(request, buffer, room, listed->name, &st, next);
    /* Without a node id the kernel takes name and type only, and asks when it wants more. */
    struct fuse_entry_param entry = {.attr = st};
    if (listed->has_attributes) {
        entry.ino = st.st_ino;
        entry.generation = mount_generation(mount, listed->inode);
        entry.attr = listed->st;
        entry.attr_timeout = listed->timeout;
        entry.entry_timeout = mount_name_timeout(mount, listed->inode);
    }
    return fuse_add_direntry_plus(request, buffer, room, listed->name, &entry, next);
}

/* Names that are not there are passed over; there may be very many of them. */
static int next_at(struct mount *mount, const struct directory *directory, uint64_t at, bool plus,
                   struct listed *listed)
{
    int error;
    for (unsigned n = 1; (error = list_at(mount, directory, at, plus, listed)) == -EAGAIN; n++) {
        if (n % PASSED_OVER == 0 && (error = interrupt_check()))
            break;
        at = listed->next;
    }
    return error;
}

/* As many entries as there is room for. */
static int fill(struct mount *mount, const struct directory *directory,
                const struct directory_read *read, char *buffer, size_t *used)
{
    uint64_t n_looked_up = 0; /* of the directory's own node */
    uint64_t at = (uint64_t)read->offset;
    struct listed listed;
    int error;
    *used = 0;
    for (;; at = listed.next) {
        error = next_at(mount, directory, at, read->plus, &listed);
        if (error)
            break;
        size_t left = read->size - *used;
        size_t n = add_entry(read->request, buffer + *used, left, &listed, read->plus);
        bool fits = n <= left, is_looked_up = fits && read->plus && listed.has_attributes;
        if (listed.is_held && is_looked_up)
            node_looked_up(mount->nodes, listed.inode.node, 1);
        else
            n_looked_up += is_looked_up;
        if (listed.is_held)
            node_put(mount->nodes, listed.inode.node);
        if (!fits)
            break;
        *used += n;
    }
    node_looked_up(mount->nodes, directory->inode.node, n_looked_up);
    return error;
}

/* The caller frees *buffer. What was listed before an error is given first; the error comes with
 * the next call. */
static int read_entries(struct mount *mount, struct directory *directory,
                        const struct directory_read *read, char **buffer, size_t *used)
{
    struct directory_read part = *read;
    if (directory->names && part.size > FOLDER_NAMES_BYTES) /* what is answered stays in memory */
        part.size = FOLDER_NAMES_BYTES;
    *buffer = malloc(part.size ? part.size : 1);
    if (!*buffer)
        return -ENOMEM;
    int error = fill(mount, directory, &part, *buffer, used);
    directory->ends |= error == -ENOENT && *used == 0;
    return error == -ENOENT || *used > 0 ? 0 : error;
}

/* The kernel asks for the attributes when it wants them. */
static void keep_no_attributes(char *buffer, size_t used)
{
    for (size_t at = 0; at < used;) {
        struct fuse_direntplus *entry = (struct fuse_direntplus *)(void *)(buffer + at);
        entry->entry_out.attr_valid = 0;
        entry->entry_out.attr_valid_nsec = 0;
        at += FUSE_DIRENTPLUS_SIZE(entry);
    }
}

/* What was read since `look` began of a directory of this node, which may be closed as soon as it is answered. */
static void answer(struct mount *mount, const struct directory_read *read, const struct node *node,
                   struct look *look, char *buffer, size_t used)
{
    uint32_t number = node->number;
    notify_begin_answer(mount->notify, look);
    bool is_kept = look->has_old_names && mount_keeps_listings(mount) && node->type != NODE_FOLDER;
    if (is_kept)
        node_hold(mount->nodes, number);
    if (look->is_old && read->plus)
        keep_no_attributes(buffer, used);
    fuse_reply_buf(read->request, buffer, used);
    notify_end_answer(mount->notify, look);
    if (is_kept) {
        notify_names_were_old(mount->notify, node);
        node_put(mount->nodes, number);
    }
}

/* It may be closed as soon as this is answered. */
void directory_read_open(struct mount *mount, struct directory *directory,
                         const struct directory_read *read)
{
    char *buffer;
    size_t used = 0;
    struct look look;
    notify_begin_look(mount->notify, &look);
    pthread_mutex_lock(&directory->lock);
    if (read->offset == 0)
        begin_again(mount, directory);
    directory->is_new = false;
    int error = read_entries(mount, directory, read, &buffer, &used);
    pthread_mutex_unlock(&directory->lock);
    if (error)
        answer_error(read->request, error);
    else
        answer(mount, read, directory->node, &look, buffer, used);
    free(buffer);
}

void directory_read(struct mount *mount, struct inode inode, const struct directory_read *read)
{
    struct directory directory;
    char *buffer = NULL;
    size_t used = 0;
    struct look look;
    notify_begin_look(mount->notify, &look);
    int error =
        enter(mount, inode, fuse_req_ctx(read->request)->uid, read->offset == 0, &directory);
    bool is_entered = !error;
    if (is_entered)
        error = read_entries(mount, &directory, read, &buffer, &used);
    if (error)
        answer_error(read->request, error);
    else
        answer(mount, read, directory.node, &look, buffer, used);
    free(buffer);
    if (is_entered)
        leave(mount, &directory);
}
