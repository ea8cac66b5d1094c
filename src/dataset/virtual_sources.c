/* Finding, opening and keeping the sources of virtual datasets.
 *
 * A file is known by device and inode, so that however it is named it is opened once, and the file
 * whose virtual dataset names itself is used as it is. Files that are in use stay open; of the
 * others so many that there are MOST_FILES. With a file its sources are closed. */
#include "dataset/virtual_sources.h"

#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <utlist.h>

#include "common/interrupt.h"
#include "common/log.h"
#include "common/object_names.h"
#include "dataset/private.h"
#include "hdf5/hdf5.h"
#include "store/store.h"

#define MOST_FILES 64
#define MOST_SAID  500 /* bytes of a name in the log */
#define MOST_LINKS 16  /* external ones that are followed to one source */

struct identity {
    dev_t device;
    ino_t inode;
};

/* An open file. */
struct linked {
    struct identity identity; /* all of its bytes are set */
    struct sfs_file *file;
    uint64_t states; /* of the file, that sources_refresh has seen */
    unsigned users;  /* sources that are in use or being closed, and a thread that refreshes it */
    struct linked *prev, *next; /* longest unused first */
    UT_hash_handle hh;
};

struct sources {
    struct sfs_file *root;
    pthread_mutex_t opening; /* held while a source is looked for and opened; taken first */
    pthread_mutex_t lock;    /* guards what follows, and what is said below */
    struct linked *by_identity, *by_age;
    struct source *open;
};

struct source {
    struct sources *sources;
    struct sfs_file *file; /* that names it */
    const char *path;      /* of the virtual dataset */
    const struct sfs_encoded *type;
    char *file_name, *dataset_name;
    uint64_t group; /* of this file, where dataset_name begins */
    /* under sources->lock: */
    struct sfs_dataset *dataset; /* NULL: not open */
    struct linked *linked;       /* the file it is in; NULL: one that is open anyway */
    enum sfs_source_state state;
    bool is_known;              /* state is what was found when it was opened last */
    bool was_said;              /* the log says that it cannot be read */
    bool is_of_type;            /* where it is open */
    struct source *prev, *next; /* open ones */
};

_Static_assert(sizeof(struct source) <= SOURCE_BYTES, "so much is counted for each");

int sources_create(struct sfs_file *file, struct sources **out)
{
    struct sources *sources = calloc(1, sizeof(*sources));
    if (!sources)
        return -ENOMEM;
    sources->root = file;
    pthread_mutex_init(&sources->opening, NULL);
    pthread_mutex_init(&sources->lock, NULL);
    *out = sources;
    return 0;
}

struct source *source_create(struct sources *sources, struct sfs_file *file, const char *path,
                             const struct sfs_encoded *type, const struct source_name *name)
{
    struct source *source = calloc(1, sizeof(*source));
    if (!source)
        return NULL;
    *source = (struct source){.sources = sources,
                              .file = file,
                              .path = path,
                              .type = type,
                              .group = name->group,
                              .file_name = strdup(name->file),
                              .dataset_name = strdup(name->dataset)};
    if (!source->file_name || !source->dataset_name) {
        source_destroy(source);
        return NULL;
    }
    return source;
}

const char *source_file_name(const struct source *source)
{
    return source->file_name;
}

const char *source_dataset_name(const struct source *source)
{
    return source->dataset_name;
}

/* ---- Closing ---- */

/* With the lock held: takes it from the open ones. What it was the caller closes without it. */
static struct sfs_dataset *detach(struct source *source)
{
    struct sfs_dataset *dataset = source->dataset;
    if (dataset)
        DL_DELETE(source->sources->open, source);
    source->dataset = NULL;
    source->linked = NULL;
    return dataset;
}

void source_destroy(struct source *source)
{
    if (!source)
        return;
    struct sources *sources = source->sources;
    pthread_mutex_lock(&sources->lock);
    struct linked *linked = source->linked;
    struct sfs_dataset *dataset = detach(source);
    if (linked)
        linked->users++; /* until the dataset is closed */
    pthread_mutex_unlock(&sources->lock);
    sfs_dataset_close(dataset);
    if (linked) {
        pthread_mutex_lock(&sources->lock);
        linked->users--;
        pthread_mutex_unlock(&sources->lock);
    }
    free(source->file_name);
    free(source->dataset_name);
    free(source);
}

/* Closes the sources that are in a file, or (NULL) all. */
static void close_sources(struct sources *sources, const struct linked *linked)
{
    struct source *source;
    do {
        pthread_mutex_lock(&sources->lock);
        DL_FOREACH (sources->open, source) {
            if (!linked || source->linked == linked)
                break;
        }
        struct sfs_dataset *dataset = source ? detach(source) : NULL;
        pthread_mutex_unlock(&sources->lock);
        sfs_dataset_close(dataset);
    } while (source);
}

static void close_linked(struct linked *linked)
{
    sfs_discard(linked->file); /* it was only read */
    free(linked);
}

void sources_destroy(struct sources *sources)
{
    if (!sources)
        return;
    struct linked *linked, *next;
    close_sources(sources, NULL);
    DL_FOREACH_SAFE (sources->by_age, linked, next) {
        HASH_DEL(sources->by_identity, linked);
        DL_DELETE(sources->by_age, linked);
        close_linked(linked);
    }
    pthread_mutex_destroy(&sources->opening);
    pthread_mutex_destroy(&sources->lock);
    free(sources);
}

/* Takes a file out of the table, which nobody uses; with the lock held, and `opening`: none is just
 * being taken into use but by sources that are open, of which it has none then. The caller closes
 * it without the lock. */
static void remove_linked(struct sources *sources, struct linked *linked)
{
    struct source *source, *next;
    HASH_DEL(sources->by_identity, linked);
    DL_DELETE(sources->by_age, linked);
    DL_FOREACH_SAFE (sources->open, source, next) {
        if (source->linked == linked)
            (void)detach(source); /* closed with the file */
    }
}

/* Closes unused files, as long as there are too many. `opening` is held. */
static void close_some(struct sources *sources)
{
    struct linked *linked, *victim;
    do {
        victim = NULL;
        pthread_mutex_lock(&sources->lock);
        if (HASH_COUNT(sources->by_identity) > MOST_FILES) {
            DL_FOREACH (sources->by_age, linked) {
                if (linked->users == 0)
                    break;
            }
            victim = linked;
        }
        if (victim)
            remove_linked(sources, victim);
        pthread_mutex_unlock(&sources->lock);
        if (victim)
            close_linked(victim);
    } while (victim);
}

/* ---- Following ---- */

/* All files, which stay open until they are let go. NULL: no memory. */
static struct linked **hold_files(struct sources *sources, size_t *n)
{
    struct linked *linked, **held;
    *n = 0;
    pthread_mutex_lock(&sources->lock);
    held = calloc(HASH_COUNT(sources->by_identity) + 1, sizeof(*held));
    DL_FOREACH (sources->by_age, linked) {
        if (!held)
            break;
        linked->users++;
        held[(*n)++] = linked;
    }
    pthread_mutex_unlock(&sources->lock);
    return held;
}

/* A file that has replaced another one is opened once the old one is unused. */
static void let_go(struct sources *sources, struct linked *linked, bool is_gone)
{
    pthread_mutex_lock(&sources->opening);
    pthread_mutex_lock(&sources->lock);
    is_gone &= --linked->users == 0;
    if (is_gone)
        remove_linked(sources, linked);
    pthread_mutex_unlock(&sources->lock);
    pthread_mutex_unlock(&sources->opening);
    if (is_gone)
        close_linked(linked);
}

int sources_refresh(struct sources *sources, bool *moved)
{
    size_t n;
    struct linked **held = hold_files(sources, &n);
    *moved = false;
    for (size_t i = 0; i < n; i++) {
        struct linked *linked = held[i];
        bool is_gone = sfs_refresh(linked->file) == -ESTALE;
        uint64_t states = sfs_states(linked->file);
        *moved |= is_gone || states != linked->states;
        linked->states = states;
        let_go(sources, linked, is_gone);
    }
    free(held);
    return held ? 0 : -ENOMEM;
}

/* ---- Opening ---- */

static struct identity identity_of(const struct stat *st)
{
    struct identity identity;
    memset(&identity, 0, sizeof(identity));
    identity.device = st->st_dev;
    identity.inode = st->st_ino;
    return identity;
}

static bool is_of(const struct sfs_file *file, const struct stat *st)
{
    struct stat own;
    return sfs_stat(file, &own) == 0 && own.st_dev == st->st_dev && own.st_ino == st->st_ino;
}

/* `opening` is held: what is found stays. */
static struct linked *find_linked(struct sources *sources, const struct stat *st)
{
    struct identity identity = identity_of(st);
    struct linked *linked;
    pthread_mutex_lock(&sources->lock);
    HASH_FIND(hh, sources->by_identity, &identity, sizeof(identity), linked);
    pthread_mutex_unlock(&sources->lock);
    return linked;
}

/* A source that is being opened. */
struct search {
    struct sources *sources;
    struct sfs_file *file; /* where it has come to, */
    struct linked *linked; /* and where that is; NULL: it is open anyway */
    bool has_file;
    const char *refusal; /* why a file may not be read, or what is too long; or NULL */
    struct why *why;     /* takes errors, if they were said before; NULL: they are logged */
    uint64_t address;
    unsigned links; /* external ones that were followed */
};

static int open_file(struct search *search, const struct store_found *found)
{
    struct sources *sources = search->sources;
    struct sfs_file *from = search->file;
    const struct stat *st = &found->st;
    if (is_of(from, st))
        return 0; /* and search->linked stays: a source is closed with the file that it is in */
    search->linked = NULL;
    if (is_of(sources->root, st)) {
        search->file = sources->root;
        return 0;
    }
    struct linked *linked = find_linked(sources, st);
    if (!linked) {
        linked = calloc(1, sizeof(*linked));
        if (!linked)
            return -ENOMEM;
        int error = file_open_source(from, found, sources, &linked->file, search->why);
        if (error) {
            free(linked);
            return error;
        }
        linked->identity = identity_of(st);
        linked->states = sfs_states(linked->file);
        pthread_mutex_lock(&sources->lock);
        HASH_ADD(hh, sources->by_identity, identity, sizeof(linked->identity), linked);
        error = hash_failed() ? -ENOMEM : 0;
        if (!error)
            DL_APPEND(sources->by_age, linked);
        pthread_mutex_unlock(&sources->lock);
        if (error) {
            close_linked(linked);
            return error;
        }
    }
    search->file = linked->file;
    search->linked = linked;
    return 0;
}

/* The error says nothing about the file: whether it exists is unknown. */
static bool is_of_system(int error)
{
    return error == -EMFILE || error == -ENFILE || error == -ENOSYS;
}

/* -EINVAL stands for all that is wrong with a file that is there. */
static int error_of_file(int error)
{
    if (is_of_system(error))
        return -EIO;
    return !error || error == -ENOENT || error == -EIO || error == -ENOMEM || error == -EINTR ||
                   store_refusal(error)
               ? error
               : -EINVAL;
}

/* Goes into the file of this name. */
static int enter_file(struct search *search, const char *name)
{
    struct store_found found;
    int error = error_of_file(store_find(search->file->store, STORE_SOURCE, name, &found));
    if (error) {
        search->refusal = store_refusal(error);
        return error;
    }
    search->has_file = true;
    error = open_file(search, &found);
    store_found_free(&found);
    return error;
}

static int find_dataset(struct search *search, uint64_t group, const char *path);

/* The first part of a path that is an external link leads on. -ENOENT: none does. -EINTR: there can be very many. */
static int find_through_links(struct search *search, uint64_t group, const char *path)
{
    char *copy = strdup(path), *next = copy, *part;
    int error = copy ? -ENOENT : -ENOMEM;
    while (next && (part = strsep(&next, "/"))) {
        struct sfs_link link;
        if (!*part)
            continue;
        int failed = interrupt_check();
        if (!failed)
            failed = file_lookup(search->file, group, part, &link, search->why);
        if (failed) {
            error = failed;
            break;
        }
        if (link.type == SFS_LINK_EXTERNAL && ++search->links <= MOST_LINKS) {
            char *whole = NULL;
            error = asprintf(&whole, "%s/%s", link.target, next ? next : "") < 0
                        ? -ENOMEM
                        : enter_file(search, link.target_file);
            if (!error)
                error = find_dataset(search, sfs_root(search->file), whole);
            free(whole);
            next = NULL;
        } else if (link.type == SFS_LINK_HARD) {
            group = link.address;
        } else {
            next = NULL;
        }
        sfs_link_free(&link);
    }
    free(copy);
    return error;
}

static int find_dataset(struct search *search, uint64_t group, const char *path)
{
    enum sfs_object_type type;
    if (strlen(path) > OBJECT_NAMES_MOST_PATH) {
        search->refusal = "the path of the dataset has more than 128 KiB";
        return -EIO;
    }
    int error = file_find(search->file, group, path, &search->address, search->why);
    if (error == -ENOENT)
        return find_through_links(search, *path == '/' ? sfs_root(search->file) : group, path);
    if (!error)
        error = file_object_type(search->file, search->address, &type, search->why);
    return error ? error : type == SFS_DATASET ? 0 : -ENOENT;
}

static bool is_of_type(const struct sfs_dataset *dataset, const struct sfs_encoded *type)
{
    const struct sfs_encoded *own = &dataset->info.encoded_type;
    struct hdf5_owner owner = dataset_owner(dataset);
    return (own->n == type->n && memcmp(own->bytes, type->bytes, own->n) == 0) ||
           hdf5_type_equal(&owner, type, own);
}

/* Finds and opens it; what there is of its file is in *search also if that fails. */
static int open_dataset(struct source *source, struct search *search, struct sfs_dataset **dataset)
{
    bool is_own = strcmp(source->file_name, ".") == 0;
    int error = is_own ? 0 : enter_file(search, source->file_name);
    if (!error)
        error = find_dataset(search, is_own ? source->group : sfs_root(search->file),
                             source->dataset_name);
    if (!error)
        error =
            file_dataset(search->file, search->address, source->dataset_name, dataset, search->why);
    return error;
}

static bool was_said(struct source *source)
{
    pthread_mutex_lock(&source->sources->lock);
    bool was_said = source->was_said;
    pthread_mutex_unlock(&source->sources->lock);
    return was_said;
}

static void say(struct source *source, const char *what)
{
    pthread_mutex_lock(&source->sources->lock);
    bool was_said = source->was_said;
    source->was_said = true;
    pthread_mutex_unlock(&source->sources->lock);
    if (!was_said)
        log_error("%s: %s: the source %.*s%s in %s %s", sfs_path(source->file), source->path,
                  MOST_SAID, source->dataset_name,
                  strlen(source->dataset_name) > MOST_SAID ? "..." : "",
                  strcmp(source->file_name, ".") == 0 ? "this file" : source->file_name, what);
}

void source_is_short(struct source *source)
{
    pthread_mutex_lock(&source->sources->lock);
    source->state = SFS_SOURCE_SHORT;
    pthread_mutex_unlock(&source->sources->lock);
    say(source, "has not all that is mapped");
}

int source_check_left(struct source *source, const struct sfs_dataset *dataset)
{
    bool is_left = dataset->info.layout == SFS_VIRTUAL && !dataset->virtual;
    if (dataset->info.layout != SFS_EXTERNAL && !is_left)
        return 0;
    say(source, "has its bytes in other files: where libhdf5 has to read it, it is refused");
    return -EIO;
}

/* With the lock held. */
static void use(struct source *source)
{
    struct linked *linked = source->linked;
    if (!linked)
        return;
    linked->users++;
    DL_DELETE(source->sources->by_age, linked);
    DL_APPEND(source->sources->by_age, linked);
}

static bool use_if_open(struct source *source, struct sfs_dataset **dataset)
{
    pthread_mutex_lock(&source->sources->lock);
    *dataset = source->dataset;
    if (*dataset)
        use(source);
    pthread_mutex_unlock(&source->sources->lock);
    return *dataset;
}

struct sfs_dataset *source_get_open(struct source *source)
{
    struct sfs_dataset *dataset;
    (void)use_if_open(source, &dataset);
    return dataset;
}

bool source_has_failed(struct source *source)
{
    pthread_mutex_lock(&source->sources->lock);
    bool has_failed =
        source->is_known && source->state != SFS_SOURCE_OK && source->state != SFS_SOURCE_SHORT;
    pthread_mutex_unlock(&source->sources->lock);
    return has_failed;
}

static enum sfs_source_state state_of_error(int error, bool is_refused)
{
    return error == -ENOENT ? SFS_SOURCE_MISSING
           : is_refused     ? SFS_SOURCE_REFUSED
                            : SFS_SOURCE_UNREADABLE;
}

static void note_failure(struct source *source, int error, bool is_refused)
{
    pthread_mutex_lock(&source->sources->lock);
    source->is_known = true;
    source->state = state_of_error(error, is_refused);
    pthread_mutex_unlock(&source->sources->lock);
}

static void note_success(struct source *source, const struct search *search,
                         struct sfs_dataset *dataset)
{
    bool is_same_type = is_of_type(dataset, source->type);
    pthread_mutex_lock(&source->sources->lock);
    source->dataset = dataset;
    source->linked = search->linked;
    if (source->state != SFS_SOURCE_SHORT)
        source->state = SFS_SOURCE_OK;
    source->is_known = true;
    source->is_of_type = is_same_type;
    DL_APPEND(source->sources->open, source);
    use(source);
    pthread_mutex_unlock(&source->sources->lock);
}

static void say_failure(struct source *source, const struct search *search, int error)
{
    char refused[256];
    if (search->refusal) {
        snprintf(refused, sizeof(refused), "is refused: %s", search->refusal);
        say(source, refused);
    } else {
        say(source, error != -ENOENT   ? "cannot be opened"
                    : search->has_file ? "does not exist: no such dataset"
                                       : "does not exist: no such file");
    }
}

/* With `opening` held. */
static int open_source(struct source *source, bool is_expected, struct sfs_dataset **dataset)
{
    struct why said_before;
    struct search search = {.sources = source->sources,
                            .file = source->file,
                            .why = was_said(source) ? &said_before : NULL};
    int error = open_dataset(source, &search, dataset);
    if (error == -ENOMEM || error == -EINTR)
        return error;
    if (error) {
        note_failure(source, error, search.refusal);
        if (!is_expected || error != -ENOENT)
            say_failure(source, &search, error);
        if (search.refusal || is_of_system(error))
            return -EIO;
        return error == -ENOENT || error == -EIO ? error : -EINVAL;
    }
    note_success(source, &search, *dataset);
    return 0;
}

int source_get(struct source *source, bool is_expected, struct sfs_dataset **dataset)
{
    if (use_if_open(source, dataset))
        return 0;
    int error = interrupt_lock(&source->sources->opening); /* held while one is opened */
    if (error)
        return error;
    error = use_if_open(source, dataset) ? 0 : open_source(source, is_expected, dataset);
    close_some(source->sources);
    pthread_mutex_unlock(&source->sources->opening);
    return error;
}

int source_missing(int error, bool fills_missing, bool may_be_empty)
{
    if (error != -ENOENT && error != -EINVAL)
        return error;
    return fills_missing || (error == -ENOENT && may_be_empty) ? 0 : -EIO;
}

void source_put(struct source *source)
{
    pthread_mutex_lock(&source->sources->lock);
    if (source->linked)
        source->linked->users--;
    pthread_mutex_unlock(&source->sources->lock);
}

bool source_is_of_type(struct source *source)
{
    pthread_mutex_lock(&source->sources->lock);
    bool is_of_type = source->is_of_type;
    pthread_mutex_unlock(&source->sources->lock);
    return is_of_type;
}

enum sfs_source_state source_state(struct source *source)
{
    pthread_mutex_lock(&source->sources->lock);
    enum sfs_source_state state = source->state;
    bool is_known = source->is_known && source->state != SFS_SOURCE_MISSING;
    pthread_mutex_unlock(&source->sources->lock);
    if (is_known || strcmp(source->file_name, ".") == 0)
        return state;
    struct store_found found;
    int error =
        error_of_file(store_find(source->file->store, STORE_SOURCE, source->file_name, &found));
    if (!error)
        store_found_free(&found);
    return error                         ? state_of_error(error, store_refusal(error))
           : state == SFS_SOURCE_MISSING ? SFS_SOURCE_MISSING
                                         : SFS_SOURCE_OK;
}

void source_stamp(const struct sfs_file *file, const char *file_name, struct source_stamp *stamp)
{
    struct store_found found;
    memset(stamp, 0, sizeof(*stamp));
    stamp->error = store_find(file->store, STORE_SOURCE, file_name, &found);
    if (stamp->error)
        return;
    stamp->changed = (struct stat_time){found.st.st_mtim.tv_sec, found.st.st_mtim.tv_nsec};
    stamp->device = found.st.st_dev;
    stamp->inode = found.st.st_ino;
    stamp->size = (uint64_t)found.st.st_size;
    store_found_free(&found);
}
