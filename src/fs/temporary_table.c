/* A table by name and by number, and a list in the order of numbers for listings. A file's own
 * lock guards what it holds, and is taken before that of the table. */
#include "fs/temporary_private.h"

#include <errno.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <utlist.h>

#include "common/log.h"
#include "fs/escaped_names.h"

#define NAMED_IN_LOG 3 /* of what is lost */

int temporaries_create(struct nodes *nodes, const char *label, struct staging_limit *limit,
                       struct temporaries **out)
{
    struct temporaries *temporaries = calloc(1, sizeof(*temporaries));
    if (!temporaries)
        return -ENOMEM;
    temporaries->nodes = nodes;
    temporaries->label = label;
    temporaries->limit = limit;
    atomic_init(&temporaries->n, 0);
    atomic_init(&temporaries->n_became, 0);
    pthread_mutex_init(&temporaries->lock, NULL);
    *out = temporaries;
    return 0;
}

/* ---- Names ---- */

static size_t key_bytes(const char *name)
{
    return offsetof(struct name, name) - offsetof(struct name, object) + strlen(name);
}

/* Of no file yet; NULL: no memory. */
static struct name *new_name(struct temporary_place place, const char *string)
{
    struct name *name = calloc(1, sizeof(*name) + strlen(string) + 1);
    if (!name)
        return NULL;
    name->place = place.node;
    name->object = place.node->object;
    name->directory = place.directory;
    strcpy(name->name, string);
    return name;
}

/* The lock of the table must be held, here and in what follows. */
static struct name *find(struct temporaries *temporaries, const struct name *like)
{
    struct name *name;
    HASH_FIND(hh, temporaries->names, &like->object, key_bytes(like->name), name);
    return name;
}

static struct temporary *find_number(struct temporaries *temporaries, uint64_t number)
{
    struct temporary *temporary;
    HASH_FIND(hh_number, temporaries->by_number, &number, sizeof(number), temporary);
    return temporary;
}

/* -ENOMEM. Another one with the same key may still be there, and is to be dropped then. */
static int add_name(struct temporaries *temporaries, struct temporary *temporary, struct name *name)
{
    HASH_ADD_KEYPTR(hh, temporaries->names, &name->object, key_bytes(name->name), name);
    if (hash_failed())
        return -ENOMEM;
    name->file = temporary;
    temporary->name = name;
    node_hold(temporaries->nodes, name->place->number);
    return 0;
}

/* The file has no name any more. Returns the one that it had, for free_name, before which the file
 * is not put. */
static struct name *end_name(struct temporaries *temporaries, struct temporary *temporary)
{
    struct name *name = temporary->name;
    HASH_DELETE(hh, temporaries->names, name);
    name->ends_handle = true;
    temporary->name = NULL;
    DL_DELETE(temporaries->list, temporary);
    atomic_fetch_sub(&temporaries->n, 1);
    temporary->users--;
    return name;
}

/* One that was a file's; without the lock. A file without a name does not count for its maker: who still has it
 * open has a handle of his own, and may be somebody else. */
static void free_name(struct temporaries *temporaries, struct name *name)
{
    if (!name)
        return;
    if (name->ends_handle)
        mounted_put_more(name->file->home->mounted, name->file->user);
    node_put(temporaries->nodes, name->place->number);
    free(name);
}

/* ---- Files ---- */

static void destroy_lock(struct temporary *temporary)
{
    pthread_cond_destroy(&temporary->no_longer);
    pthread_mutex_destroy(&temporary->lock);
}

/* Frees a file that is unused, without a name, and in no table. */
static void destroy(struct temporaries *temporaries, struct temporary *temporary)
{
    if (temporary->has_become)
        node_put(temporaries->nodes, temporary->became.node);
    node_put(temporaries->nodes, temporary->home->number);
    destroy_lock(temporary);
    free(temporary->bytes);
    free(temporary);
}

/* In `with`; without the lock. */
static void log_lost(const struct temporaries *temporaries, const struct name *lost,
                     const char *with)
{
    char *names = NULL;
    size_t size, n = 0;
    FILE *out = lost ? open_memstream(&names, &size) : NULL;
    if (!out)
        return;
    for (; lost; lost = lost->next_lost, n++) {
        if (n >= NAMED_IN_LOG)
            continue;
        char *path = node_path(lost->place);
        pthread_mutex_lock(&lost->file->lock);
        size_t bytes = lost->file->n;
        pthread_mutex_unlock(&lost->file->lock);
        fprintf(out, "%s%s%s: %s (%zu bytes)", n ? ", " : "", lost->place->mounted->path,
                path ? path : "", lost->name, bytes);
        free(path);
    }
    if (fclose(out) == 0)
        log_warning("%s: lost with %s: %zu temporary file%s, renamed to no frame: %s%s",
                    temporaries->label, with, n, n == 1 ? "" : "s", names,
                    n > NAMED_IN_LOG ? ", ..." : "");
    free(names);
}

void temporaries_destroy(struct temporaries *temporaries)
{
    if (!temporaries)
        return;
    struct temporary *temporary, *next;
    struct name *lost = NULL, **last = &lost;
    DL_FOREACH (temporaries->list, temporary) {
        *last = temporary->name;
        last = &temporary->name->next_lost;
    }
    log_lost(temporaries, lost, "the mount");
    HASH_CLEAR(hh, temporaries->names);
    HASH_ITER (hh_number, temporaries->by_number, temporary, next) {
        HASH_DELETE(hh_number, temporaries->by_number, temporary);
        if (temporary->name)
            temporary->name->ends_handle = true;
        free_name(temporaries, temporary->name);
        destroy(temporaries, temporary);
    }
    pthread_mutex_destroy(&temporaries->lock);
    free(temporaries);
}

static int add(struct temporaries *temporaries, struct temporary *temporary, struct name *name)
{
    if (find(temporaries, name))
        return -EEXIST;
    if (temporaries->numbers == INODE_MAX_FRAMES ||
        staging_limit_take(temporaries->limit, temporary->taken) != 0)
        return -ENOSPC;
    if (mounted_use_more(temporary->home->mounted, temporary->user) != 0)
        goto no_handle;
    temporary->number = temporaries->numbers;
    HASH_ADD(hh_number, temporaries->by_number, number, sizeof(temporary->number), temporary);
    if (!hash_failed()) {
        if (add_name(temporaries, temporary, name) == 0) {
            temporaries->numbers++;
            DL_APPEND(temporaries->list, temporary);
            atomic_fetch_add(&temporaries->n, 1);
            node_hold(temporaries->nodes, temporary->home->number);
            return 0;
        }
        HASH_DELETE(hh_number, temporaries->by_number, temporary);
    }
    mounted_put_more(temporary->home->mounted, temporary->user);
no_handle:
    staging_limit_give_back(temporaries->limit, temporary->taken);
    return -ENOMEM;
}

int temporary_make(struct temporaries *temporaries, struct temporary_place place,
                   const char *string, uid_t user, struct temporary **out)
{
    struct temporary *temporary = calloc(1, sizeof(*temporary));
    struct name *name = new_name(place, string);
    int error = temporary && name ? 0 : -ENOMEM;
    if (!error) {
        temporary->home = place.node;
        temporary->user = user;
        temporary->users = 2; /* its name, and the caller */
        temporary->taken = sizeof(*temporary) + sizeof(*name) + strlen(string);
        clock_gettime(CLOCK_REALTIME, &temporary->mtime);
        temporary->atime = temporary->mtime;
        pthread_mutex_init(&temporary->lock, NULL);
        pthread_cond_init(&temporary->no_longer, NULL);
        pthread_mutex_lock(&temporaries->lock);
        error = add(temporaries, temporary, name);
        pthread_mutex_unlock(&temporaries->lock);
        if (error)
            destroy_lock(temporary);
    }
    if (error == -ENOSPC)
        temporary_tell_of_limit(temporaries, string, error);
    if (error) {
        free(name);
        free(temporary);
        return error;
    }
    *out = temporary;
    return 0;
}

struct temporary *temporary_find(struct temporaries *temporaries, struct temporary_place place,
                                 const char *name)
{
    if (!temporaries || atomic_load(&temporaries->n) == 0)
        return NULL;
    struct name *like = new_name(place, name);
    if (!like)
        return NULL;
    pthread_mutex_lock(&temporaries->lock);
    const struct name *found = find(temporaries, like);
    struct temporary *temporary = found ? found->file : NULL;
    if (temporary)
        temporary->users++;
    pthread_mutex_unlock(&temporaries->lock);
    free(like);
    return temporary;
}

struct temporary *temporary_get(struct temporaries *temporaries, struct inode inode)
{
    if (!temporaries)
        return NULL;
    pthread_mutex_lock(&temporaries->lock);
    struct temporary *temporary = find_number(temporaries, inode.frame);
    if (temporary && temporary->home->number != inode.node)
        temporary = NULL;
    if (temporary)
        temporary->users++;
    pthread_mutex_unlock(&temporaries->lock);
    return temporary;
}

static bool is_in(const struct temporary *temporary, struct temporary_place place)
{
    return temporary->name && temporary->name->object == place.node->object &&
           temporary->name->directory == place.directory;
}

/* A reader of a listing continues at the place of the next file: mostly there is nothing to skip.
 */
struct temporary *temporary_next(struct temporaries *temporaries, struct temporary_place place,
                                 uint64_t at, uint64_t *next)
{
    if (!temporaries || atomic_load(&temporaries->n) == 0)
        return NULL;
    pthread_mutex_lock(&temporaries->lock);
    struct temporary *temporary = find_number(temporaries, at);
    const struct temporary *behind;
    if (!temporary || !is_in(temporary, place))
        for (temporary = temporaries->list; temporary; temporary = temporary->next)
            if (temporary->number >= at && is_in(temporary, place))
                break;
    if (temporary) {
        temporary->users++;
        for (behind = temporary->next; behind && !is_in(behind, place); behind = behind->next)
            ;
        *next = behind ? behind->number : temporary->number + 1;
    }
    pthread_mutex_unlock(&temporaries->lock);
    return temporary;
}

void temporary_put(struct temporaries *temporaries, struct temporary *temporary)
{
    if (!temporary)
        return;
    pthread_mutex_lock(&temporaries->lock);
    bool is_gone = --temporary->users == 0;
    if (is_gone) {
        HASH_DELETE(hh_number, temporaries->by_number, temporary);
        if (temporary->has_become) {
            DL_DELETE2(temporaries->became, temporary, prev_became, next_became);
            atomic_fetch_sub(&temporaries->n_became, 1);
        }
        staging_limit_give_back(temporaries->limit, temporary->taken + temporary->room);
    }
    pthread_mutex_unlock(&temporaries->lock);
    if (is_gone)
        destroy(temporaries, temporary);
}

struct inode temporary_inode(const struct temporary *temporary)
{
    return (struct inode){
        .node = temporary->home->number, .frame = temporary->number, .entry = ENTRY_TEMPORARY};
}

void temporary_name(struct temporaries *temporaries, const struct temporary *temporary, char *name)
{
    pthread_mutex_lock(&temporaries->lock);
    strcpy(name, temporary->name ? temporary->name->name : "");
    pthread_mutex_unlock(&temporaries->lock);
}

int temporary_unlink(struct temporaries *temporaries, struct temporary_place place,
                     const char *string)
{
    struct temporary *temporary = temporary_find(temporaries, place, string);
    struct name *name = NULL;
    if (!temporary)
        return -ENOENT;
    pthread_mutex_lock(&temporaries->lock);
    if (is_in(temporary, place) && !strcmp(temporary->name->name, string))
        name = end_name(temporaries, temporary);
    pthread_mutex_unlock(&temporaries->lock);
    int error = name ? 0 : -ENOENT;
    free_name(temporaries, name);
    temporary_put(temporaries, temporary);
    return error;
}

/* The names that are lost, in the order of their files, each of which is used once more. */
static struct name *take_lost(struct temporaries *temporaries)
{
    struct temporary *temporary, *next;
    struct name *lost = NULL, **last = &lost;
    const struct node *place = NULL; /* most are where the one before is */
    bool is_lost = false;
    pthread_mutex_lock(&temporaries->lock);
    DL_FOREACH_SAFE (temporaries->list, temporary, next) {
        if (temporary->name->place != place)
            is_lost = node_is_lost(temporaries->nodes, temporary->name->place);
        place = temporary->name->place;
        if (!is_lost)
            continue;
        temporary->users++;
        *last = end_name(temporaries, temporary);
        last = &(*last)->next_lost;
    }
    pthread_mutex_unlock(&temporaries->lock);
    return lost;
}

bool temporaries_have_names(const struct temporaries *temporaries)
{
    return temporaries && atomic_load(&temporaries->n) > 0;
}

void temporaries_lose(struct temporaries *temporaries)
{
    struct name *lost = take_lost(temporaries), *next;
    log_lost(temporaries, lost, "HDF5 files that were removed, replaced or renamed");
    for (; lost; lost = next) {
        struct temporary *temporary = lost->file;
        next = lost->next_lost;
        free_name(temporaries, lost);
        temporary_put(temporaries, temporary);
    }
}

/* The file gets the name, of which it had *old before, and *other, to be put by the caller, had
 * the name until now. */
static int rename_locked(struct temporaries *temporaries, struct temporary *temporary,
                         struct name *name, bool replaces, struct temporary **other,
                         struct name *old[2])
{
    if (!temporary->name)
        return -ENOENT;
    struct name *found = find(temporaries, name), *before = temporary->name;
    if (found && !replaces)
        return -EEXIST;
    if (found && found->file == temporary)
        return 0;
    int error = add_name(temporaries, temporary, name);
    if (error)
        return error;
    HASH_DELETE(hh, temporaries->names, before);
    old[0] = before;
    if (found) {
        *other = found->file;
        (*other)->users++;
        old[1] = end_name(temporaries, *other);
    }
    return 0;
}

int temporary_rename(struct temporaries *temporaries, struct temporary *temporary,
                     struct temporary_place place, const char *string, bool replaces)
{
    struct name *old[2] = {0};
    struct temporary *other = NULL;
    struct name *name = new_name(place, string);
    if (!name)
        return -ENOMEM;
    pthread_mutex_lock(&temporaries->lock);
    int error = rename_locked(temporaries, temporary, name, replaces, &other, old);
    bool is_used = temporary->name == name;
    pthread_mutex_unlock(&temporaries->lock);
    free_name(temporaries, old[0]);
    free_name(temporaries, old[1]);
    temporary_put(temporaries, other);
    if (!is_used)
        free(name);
    return error;
}

/* ---- Becoming frames ---- */

/* Its lock must be held. Returns the name that it had. */
static struct name *end_content(struct temporaries *temporaries, struct temporary *temporary,
                                const struct node *node, struct inode became)
{
    struct name *name = NULL;
    node_hold(temporaries->nodes, became.node);
    pthread_mutex_lock(&temporaries->lock);
    temporary->became = became;
    temporary->has_become = true;
    temporary->object = node->object;
    DL_APPEND2(temporaries->became, temporary, prev_became, next_became);
    atomic_fetch_add(&temporaries->n_became, 1);
    staging_limit_give_back(temporaries->limit, temporary->room);
    temporary->room = 0;
    if (temporary->name)
        name = end_name(temporaries, temporary);
    pthread_mutex_unlock(&temporaries->lock);
    free(temporary->bytes);
    temporary->bytes = NULL;
    temporary->n = 0;
    return name;
}

static bool has_name(struct temporaries *temporaries, const struct temporary *temporary)
{
    pthread_mutex_lock(&temporaries->lock);
    bool has = temporary->name;
    pthread_mutex_unlock(&temporaries->lock);
    return has;
}

int temporary_become(struct temporaries *temporaries, struct temporary *temporary,
                     const struct node *node, struct inode became, temporary_use use, void *context)
{
    struct name *name = NULL;
    pthread_mutex_lock(&temporary->lock);
    int error = temporary_wait(temporary);
    if (!error && (temporary->has_become || !has_name(temporaries, temporary)))
        error = -ENOENT;
    if (!error) {
        temporary->becomes = true;
        pthread_mutex_unlock(&temporary->lock);
        error = use(context, temporary->bytes ? temporary->bytes : "", temporary->n);
        pthread_mutex_lock(&temporary->lock);
        temporary->becomes = false;
        pthread_cond_broadcast(&temporary->no_longer);
    }
    if (!error)
        name = end_content(temporaries, temporary, node, became);
    pthread_mutex_unlock(&temporary->lock);
    free_name(temporaries, name);
    return error;
}

size_t temporaries_that_became(struct temporaries *temporaries, uint64_t object, uint64_t first,
                               uint64_t last, unsigned views, struct inode **inodes)
{
    const struct temporary *temporary;
    size_t n = 0, room;
    *inodes = NULL;
    if (!temporaries || atomic_load(&temporaries->n_became) == 0)
        return 0;
    pthread_mutex_lock(&temporaries->lock);
    DL_COUNT2(temporaries->became, temporary, room, next_became);
    *inodes = room ? calloc(room, sizeof(**inodes)) : NULL;
    for (temporary = *inodes ? temporaries->became : NULL; temporary;
         temporary = temporary->next_became) {
        const struct inode *became = &temporary->became;
        if (temporary->object == object && became->frame >= first && became->frame <= last &&
            views >> inode_view(*became) & 1)
            (*inodes)[n++] = temporary_inode(temporary);
    }
    pthread_mutex_unlock(&temporaries->lock);
    return n;
}
