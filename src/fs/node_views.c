/* The views of datasets that are in use or were lately, and the attributes that were asked for
 * last. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <utlist.h>

#include "common/interrupt.h"
#include "common/log.h"
#include "dataset/files_together.h"
#include "fs/node_table.h"

#define MAX_IDLE_VIEWS 256
#define MAX_IDLE_BYTES ((size_t)32 << 20) /* kept by all idle views */

/* Bytes of what describes the datasets of all idle views, but for the one that was used last. */
#define MAX_IDLE_DESCRIBED ((size_t)32 << 20)

struct node_attributes {
    atomic_uint users;
    uint64_t object;
    uint64_t states; /* the sfs_states that they are of */
    struct sfs_attributes attributes;
};

static void append_idle(struct nodes *nodes, struct entry_of_node *entry)
{
    entry->kept_bytes = views_kept_bytes(entry->views);
    nodes->idle_bytes += entry->kept_bytes;
    nodes->idle_described += entry->described_bytes;
    nodes->n_idle++;
    DL_APPEND(nodes->idle, entry);
}

void node_remove_idle(struct nodes *nodes, struct entry_of_node *entry)
{
    DL_DELETE(nodes->idle, entry);
    nodes->n_idle--;
    nodes->idle_bytes -= entry->kept_bytes;
    nodes->idle_described -= entry->described_bytes;
}

/* The lock must be held; it is dropped. Whoever closes the file meanwhile waits for its views; it
 * is there that long. */
static void close_idle(struct nodes *nodes, struct entry_of_node *entry)
{
    struct views *views = entry->views;
    struct mounted_file *mounted = entry->node.mounted;
    node_remove_idle(nodes, entry);
    nodes->described -= entry->described_bytes;
    entry->views = NULL;
    mounted_ref(mounted);
    pthread_mutex_unlock(&nodes->lock);
    views_close(views);
    mounted_views_closed(mounted);
    mounted_unref(mounted);
    pthread_mutex_lock(&nodes->lock);
}

void nodes_close_views(struct nodes *nodes, const struct mounted_file *file)
{
    struct entry_of_node *entry;
    pthread_mutex_lock(&nodes->lock);
    do {
        LL_SEARCH_SCALAR(nodes->idle, entry, node.mounted, file);
        if (entry)
            close_idle(nodes, entry);
    } while (entry);
    pthread_mutex_unlock(&nodes->lock);
}

/* Counts what describes a dataset that was opened. The lock must be held; it may be dropped. */
static int count_described(struct nodes *nodes, struct entry_of_node *entry, size_t n)
{
    static _Atomic uint64_t said;
    while (nodes->described + n > nodes->most_described && nodes->idle)
        close_idle(nodes, nodes->idle);
    if (nodes->described + n <= nodes->most_described) {
        entry->described_bytes = n;
        nodes->described += n;
        return 0;
    }
    if (log_is_due(&said))
        log_warning(
            "%s: %s: fill values, mappings, names of files, datatypes, headers and indexes of the "
            "datasets that are open would take more than %zu MiB",
            sfs_path(node_file(&entry->node)), entry->node.name, nodes->most_described >> 20);
    return -ENOMEM;
}

/* Of what the kernel was told: what has to be looked at with each change of anything does not depend on what files
 * claim, or readers do. */
static uint64_t told_frames(const struct entry_of_node *entry)
{
    const struct node_told *told = &entry->told;
    return !entry->is_told ? 0 : told->first > told->last ? 1 : told->last - told->first + 2;
}

#define ALL_VIEWS    ((1u << VIEW_KINDS) - 1)
#define MASKED_VIEWS (1u << VIEW_PNG | 1u << VIEW_CBF)

static struct entry_of_node **list_of(struct nodes *nodes, const struct entry_of_node *entry)
{
    return &nodes->told[entry->told.views == ALL_VIEWS ? NODE_TOLD_OF_ANY : NODE_TOLD_OF_PLANES];
}

/* The lock must be held. */
static void add_told(struct nodes *nodes, struct entry_of_node *entry, unsigned views)
{
    if (entry->is_told)
        return;
    entry->is_told = true;
    entry->told = (struct node_told){.number = entry->node.number,
                                     .views = views,
                                     .times = entry->told.times,
                                     .first = UINT64_MAX};
    DL_APPEND2(*list_of(nodes, entry), entry, prev_told, next_told);
    nodes->told_frames += told_frames(entry);
    atomic_fetch_add(&nodes->n_told, 1);
}

void node_remove_told(struct nodes *nodes, struct entry_of_node *entry)
{
    if (!entry->is_told)
        return;
    nodes->told_frames -= told_frames(entry);
    entry->is_told = false;
    DL_DELETE2(*list_of(nodes, entry), entry, prev_told, next_told);
    atomic_fetch_sub(&nodes->n_told, 1);
}

/* Unless that would be too many. The lock must be held. */
static bool add_told_frame(struct nodes *nodes, struct entry_of_node *entry, uint64_t frame)
{
    struct node_told *told = &entry->told, before = *told;
    uint64_t others = nodes->told_frames - told_frames(entry);
    told->last = told->first > told->last || frame > told->last ? frame : told->last;
    told->first = frame < told->first ? frame : told->first;
    if (told_frames(entry) > nodes->most_told_frames - others) {
        *told = before;
        return false;
    }
    nodes->told_frames = others + told_frames(entry);
    return true;
}

bool node_tell(struct nodes *nodes, const struct node *node, enum view_kind kind, uint64_t frame)
{
    struct entry_of_node *entry = (struct entry_of_node *)node;
    struct node_told *told = &entry->told;
    bool is_virtual = entry->views->info->layout == SFS_VIRTUAL;
    if (!is_virtual && !(MASKED_VIEWS >> kind & 1))
        return true;
    pthread_mutex_lock(&nodes->lock);
    bool is_noted = entry->is_told || nodes->told_frames < nodes->most_told_frames;
    if (is_noted)
        add_told(nodes, entry, is_virtual ? ALL_VIEWS : MASKED_VIEWS);
    told->times++;
    if (is_noted && frame != UINT64_MAX)
        is_noted = add_told_frame(nodes, entry, frame);
    pthread_mutex_unlock(&nodes->lock);
    return is_noted;
}

void node_tell_open(struct nodes *nodes, const struct node *node)
{
    atomic_store(&((struct entry_of_node *)node)->is_told_open, true);
    pthread_mutex_lock(&nodes->lock);
    if (!nodes->is_told_open)
        atomic_fetch_add(&nodes->n_told, 1);
    nodes->is_told_open = true;
    nodes->told_open++;
    pthread_mutex_unlock(&nodes->lock);
}

bool node_is_told_open(const struct node *node)
{
    return atomic_load(&((struct entry_of_node *)node)->is_told_open);
}

/* The lock must be held. */
static void forget_open(struct nodes *nodes, uint64_t times)
{
    if (nodes->told_open != times || !nodes->is_told_open)
        return;
    nodes->is_told_open = false;
    atomic_fetch_sub(&nodes->n_told, 1);
}

size_t node_told(struct nodes *nodes, const struct node *node, struct node_told **told)
{
    struct entry_of_node *entry, *other = (struct entry_of_node *)node;
    size_t n;
    *told = NULL;
    if (atomic_load(&nodes->n_told) == 0)
        return 0;
    pthread_mutex_lock(&nodes->lock);
    n = nodes->is_told_open;
    int n_lists = other->is_plane ? NODE_TOLD_LISTS : NODE_TOLD_OF_PLANES;
    for (int i = 0; i < n_lists; i++)
        DL_FOREACH2 (nodes->told[i], entry, next_told)
            n++;
    if (n > 0)
        *told = malloc(n * sizeof(**told));
    n = 0;
    for (int i = 0; *told && i < n_lists; i++)
        DL_FOREACH2 (nodes->told[i], entry, next_told)
            (*told)[n++] = entry->told;
    if (*told && nodes->is_told_open)
        (*told)[n++] = (struct node_told){.number = NODE_TOLD_OPEN, .times = nodes->told_open};
    pthread_mutex_unlock(&nodes->lock);
    return n;
}

void node_forgot(struct nodes *nodes, const struct node_told *told)
{
    pthread_mutex_lock(&nodes->lock);
    struct entry_of_node *entry = node_find_number(nodes, told->number);
    if (told->number == NODE_TOLD_OPEN)
        forget_open(nodes, told->times);
    else if (entry && entry->told.times == told->times)
        node_remove_told(nodes, entry);
    pthread_mutex_unlock(&nodes->lock);
}

bool node_views_are_gone(const struct entry_of_node *entry)
{
    return entry->views && dataset_is_gone(entry->views->dataset);
}

/* Opens the views of a node; other threads that want them wait. The lock must be held; it is
 * dropped. */
static int open_views(struct nodes *nodes, struct entry_of_node *entry)
{
    struct views *views = NULL;
    entry->opening = true;
    pthread_mutex_unlock(&nodes->lock);
    char *path = NULL;
    int error = node_whole_path(&entry->node, &path);
    if (!error)
        error = views_open(node_file(&entry->node), node_address(&entry->node), path,
                           nodes->frame_rank, &views);
    free(path);
    size_t n = error ? 0 : dataset_described_bytes(views->dataset) + strlen(views->path);
    pthread_mutex_lock(&nodes->lock);
    if (!error)
        error = count_described(nodes, entry, n);
    if (error) {
        pthread_mutex_unlock(&nodes->lock);
        views_close(views);
        views = NULL;
        pthread_mutex_lock(&nodes->lock);
    } else {
        mounted_views_opened(entry->node.mounted);
        entry->is_plane = views->info->rank == 2;
    }
    entry->views = views;
    entry->opening = false;
    pthread_cond_broadcast(&nodes->opened);
    return error;
}

static bool is_idle_and_gone(const struct entry_of_node *entry)
{
    return entry->users == 0 && node_views_are_gone(entry);
}

int node_get_views(struct nodes *nodes, const struct node *node, struct views **views)
{
    struct entry_of_node *entry = (struct entry_of_node *)node, *gone = NULL;
    int error = 0;
    pthread_mutex_lock(&nodes->lock);
    node_hold_locked(nodes, entry);
    while (!error && (entry->opening || is_idle_and_gone(entry)))
        if (entry->opening)
            error = interrupt_wait(&nodes->opened, &nodes->lock);
        else
            close_idle(nodes, entry);
    if (error)
        ;
    else if (!entry->views)
        error = open_views(nodes, entry);
    else if (entry->users == 0)
        node_remove_idle(nodes, entry);
    if (error) {
        node_put_locked(nodes, entry, &gone);
    } else {
        entry->users++;
        *views = entry->views;
    }
    pthread_mutex_unlock(&nodes->lock);
    nodes_free_gone(gone);
    return error;
}

void node_put_views(struct nodes *nodes, const struct node *node)
{
    struct entry_of_node *entry = (struct entry_of_node *)node, *gone = NULL;
    pthread_mutex_lock(&nodes->lock);
    if (--entry->users == 0) {
        append_idle(nodes, entry);
        if (node_views_are_gone(entry))
            close_idle(nodes, entry);
    }
    node_put_locked(nodes, entry, &gone);
    while (nodes->n_idle > MAX_IDLE_VIEWS || nodes->idle_bytes > MAX_IDLE_BYTES ||
           (nodes->n_idle > 1 && nodes->idle_described > MAX_IDLE_DESCRIBED))
        close_idle(nodes, nodes->idle);
    pthread_mutex_unlock(&nodes->lock);
    nodes_free_gone(gone);
}

int node_get_attributes(struct nodes *nodes, const struct node *node, struct node_attributes **out)
{
    pthread_mutex_lock(&nodes->lock);
    struct node_attributes *attributes = nodes->last;
    uint64_t states = sfs_states(node_file(node));
    if (attributes && attributes->object == node->object && attributes->states == states) {
        atomic_fetch_add(&attributes->users, 1);
        pthread_mutex_unlock(&nodes->lock);
        *out = attributes;
        return 0;
    }
    pthread_mutex_unlock(&nodes->lock);

    attributes = calloc(1, sizeof(*attributes));
    if (!attributes)
        return -ENOMEM;
    int error = sfs_attributes(node_file(node), node_address(node), &attributes->attributes);
    if (error) {
        free(attributes);
        return error;
    }
    attributes->object = node->object;
    attributes->states = states;
    atomic_init(&attributes->users, 2); /* the caller's and that of nodes->last */
    pthread_mutex_lock(&nodes->lock);
    struct node_attributes *before = nodes->last;
    nodes->last = attributes;
    pthread_mutex_unlock(&nodes->lock);
    node_put_attributes(before);
    *out = attributes;
    return 0;
}

const struct sfs_attributes *node_attributes(const struct node_attributes *attributes)
{
    return &attributes->attributes;
}

void node_put_attributes(struct node_attributes *attributes)
{
    if (!attributes || atomic_fetch_sub(&attributes->users, 1) > 1)
        return;
    sfs_attributes_free(&attributes->attributes);
    free(attributes);
}
