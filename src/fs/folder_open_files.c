/* A list of the open files of a folder, least recently used first: the first unused one is closed when
 * another is to be opened. Where all are in use each user may use more of them, up to his share: by what he has open,
 * and by requests, of which one may take long. */
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>
#include <utlist.h>

#include "common/acl.h"
#include "common/clock.h"
#include "common/interrupt.h"
#include "common/log.h"
#include "fs/folder_files_private.h"

#define RELEASE_NANOS   1000000000u
#define MOST_KEPT_NAMES 1024 /* bytes, of each file */
#define NANOS           1000000000

/* Half of the descriptors are for these files. */
static size_t most_in_use(unsigned most)
{
    struct rlimit limit;
    size_t n = mounted_most_in_use(most);
    if (getrlimit(RLIMIT_NOFILE, &limit) == 0 && limit.rlim_cur / 2 / MOUNTED_DESCRIPTORS < n)
        n = (size_t)limit.rlim_cur / 2 / MOUNTED_DESCRIPTORS;
    return n > most ? n : most;
}

int mounted_files_create(struct folder *folder, struct together *together, unsigned most,
                         struct mounted_files **out)
{
    struct mounted_files *files = calloc(1, sizeof(*files));
    if (!files)
        return -ENOMEM;
    files->folder = folder;
    files->together = together;
    files->most = most;
    files->most_in_use = most_in_use(most);
    pthread_mutex_init(&files->lock, NULL);
    clock_init_condition(&files->changed);
    *out = files;
    return 0;
}

void mounted_files_set_calls(struct mounted_files *files, const struct mounted_calls *calls,
                             void *context)
{
    files->calls = *calls;
    files->context = context;
}

struct folder *mounted_files_folder(const struct mounted_files *files)
{
    return files->folder;
}

void mounted_files_destroy(struct mounted_files *files)
{
    if (!files)
        return;
    pthread_cond_destroy(&files->changed);
    pthread_mutex_destroy(&files->lock);
    free(files);
}

static void free_file(struct mounted_file *file)
{
    pthread_rwlock_destroy(&file->tree_lock);
    free(file->names);
    free(file->path);
    free(file);
}

static uint64_t owners_of(const struct stat *st)
{
    return (uint64_t)st->st_uid << 32 | st->st_gid;
}

struct mounted_file *mounted_new(struct mounted_files *files, const char *path,
                                 const struct stat *st)
{
    struct mounted_file *file = calloc(1, sizeof(*file));
    if (!file)
        return NULL;
    atomic_init(&file->refs, 1);
    pthread_rwlock_init(&file->tree_lock, NULL);
    atomic_init(&file->removals, 0);
    atomic_init(&file->is_read_only, false);
    atomic_init(&file->top, 0);
    atomic_init(&file->is_committed, false);
    atomic_init(&file->is_gone, false);
    atomic_init(&file->keeps_objects, false);
    atomic_init(&file->written, 0);
    atomic_init(&file->told, 0);
    atomic_init(&file->told_owners, owners_of(st));
    atomic_init(&file->changer, MOUNTED_NOBODY);
    atomic_init(&file->pages, 0);
    file->files = files;
    file->path = strdup(path);
    file->st = *st;
    if (file->path)
        return file;
    free_file(file);
    return NULL;
}

int mounted_lock_to_read(struct mounted_file *file)
{
    return interrupt_rdlock(&file->tree_lock);
}

int mounted_lock_to_change(struct mounted_file *file)
{
    return interrupt_wrlock(&file->tree_lock);
}

void mounted_unlock(struct mounted_file *file)
{
    pthread_rwlock_unlock(&file->tree_lock);
}

void mounted_ref(struct mounted_file *file)
{
    atomic_fetch_add(&file->refs, 1);
}

static bool is_same_file(const struct stat *a, const struct stat *b)
{
    return a->st_dev == b->st_dev && a->st_ino == b->st_ino;
}

static bool is_same_time(const struct timespec *a, const struct timespec *b)
{
    return a->tv_sec == b->tv_sec && a->tv_nsec == b->tv_nsec;
}

/* ctime is not compared: a change of mode or owner leaves the content as it is. */
static bool is_same_state(const struct stat *a, const struct stat *b)
{
    return is_same_file(a, b) && a->st_size == b->st_size && is_same_time(&a->st_mtim, &b->st_mtim);
}

static bool has_same_owners(const struct stat *a, const struct stat *b)
{
    return a->st_uid == b->st_uid && a->st_gid == b->st_gid;
}

/* Whether one that was open can be opened again: others to whom what was read of it was not shown have been let in
 * by no change of mode or owner since, or they would see what the kernel has kept. */
static bool is_still(const struct mounted_file *file, const struct stat *st)
{
    const struct stat *was = &file->st;
    bool is_wider = st->st_mode & ~was->st_mode & 0777 || !has_same_owners(was, st);
    return is_same_state(was, st) && !(is_wider && file->is_for_others);
}

void mounted_tell_owners(struct mounted_file *file, const struct stat *st)
{
    atomic_store(&file->told_owners, owners_of(st));
}

bool mounted_has_told_owners(const struct mounted_file *file, const struct stat *st)
{
    return atomic_load(&file->told_owners) == owners_of(st);
}

/* Whether it may be another file, as it has other owners than were shown to others, or (as_told) not any more the bits
 * that have let them in. A directory stays what it is; as_told not before its owners are told. */
static bool may_be_another(const struct mounted_file *file, const struct stat *st, bool as_told)
{
    if (!file->is_for_others)
        return false;
    if (S_ISDIR(st->st_mode))
        return as_told && !mounted_has_told_owners(file, st);
    return !has_same_owners(&file->st, st) ||
           (as_told && atomic_load(&file->told) & ~st->st_mode & 0777);
}

/* The lock must be held, or it be busy. as_told: it lets in all whom the kernel may. */
static bool is_state_of(const struct mounted_file *file, const struct stat *st, bool as_told)
{
    if (file->file) /* the number of its inode is not given again */
        return is_same_file(&file->st, st);
    if (file->was_open || file->error)
        return is_still(file, st);
    return is_same_file(&file->st, st) && !may_be_another(file, st, as_told);
}

static bool is_locked_state_of(struct mounted_file *file, const struct stat *st, bool as_told)
{
    struct mounted_files *files = file->files;
    if (!files)
        return is_state_of(file, st, as_told);
    pthread_mutex_lock(&files->lock);
    bool is = is_state_of(file, st, as_told);
    pthread_mutex_unlock(&files->lock);
    return is;
}

bool mounted_is(struct mounted_file *file, const struct stat *st)
{
    return is_locked_state_of(file, st, true);
}

bool mounted_shows(struct mounted_file *file, struct stat *st)
{
    if (file->files)
        return is_locked_state_of(file, st, false);
    if (file->is_for_others && !S_ISDIR(st->st_mode))
        st->st_mode = acl_of_others(st->st_mode, &file->st, st);
    return is_same_file(&file->st, st);
}

bool mounted_is_directory(const struct mounted_file *file, const struct stat *st)
{
    return S_ISDIR(st->st_mode) && is_same_file(&file->st, st);
}

void mounted_tell(struct mounted_file *file, mode_t bits)
{
    if (bits & ~atomic_load(&file->told))
        atomic_fetch_or(&file->told, bits);
}

bool mounted_keeps_pages(struct mounted_file *file, const struct stat *st)
{
    int64_t now =
        folder_is_old_enough(st) ? (int64_t)st->st_ctim.tv_sec * NANOS + st->st_ctim.tv_nsec : 0;
    return atomic_exchange(&file->pages, now) == now && now;
}

/* ---- Opening and closing: the lock must be held, and is dropped meanwhile. Others may wait for that, too: it is not
 * interrupted for one of them. ---- */

/* Of one that was never open before: whatever is in it by now is what is opened. */
static int open_file(const struct mounted_file *file, struct stat *st, struct sfs_file **out)
{
    char *path;
    int fd = folder_find(file->files->folder, file->path, st);
    if (fd < 0)
        return fd == -ENOENT || fd == -ENOTDIR ? -ESTALE : fd;
    int error = is_state_of(file, st, true) ? 0 : -ESTALE;
    if (!error && asprintf(&path, "%s/%s", folder_path(file->files->folder), file->path) < 0)
        error = -ENOMEM;
    if (!error) {
        error = together_open(file->files->together, fd, path, out);
        free(path);
    }
    close(fd);
    return error;
}

/* Checked again under its lock, which excludes further changes. */
static int open_locked(struct mounted_file *file, struct stat *st, struct sfs_file **opened)
{
    const struct mounted_files *files = file->files;
    int error = open_file(file, st, opened);
    if (error)
        return error;
    error = sfs_stat(*opened, st);
    if (!error && file->was_open && !is_still(file, st))
        error = -ESTALE;
    if (!error)
        error = files->calls.opened(files->context, file, *opened);
    if (error)
        sfs_discard(*opened);
    return error;
}

static int begin_file(struct mounted_file *file, uid_t user)
{
    UNINTERRUPTED();
    struct mounted_files *files = file->files;
    struct stat st = {0};
    struct sfs_file *opened = NULL;
    int error = user_count_add(&file->askers, user);
    if (error)
        return error;
    file->is_busy = true;
    files->n_open++;
    DL_APPEND2(files->opening, file, prev_open, next_open);
    pthread_mutex_unlock(&files->lock);
    error = open_locked(file, &st, &opened);
    pthread_mutex_lock(&files->lock);
    DL_DELETE2(files->opening, file, prev_open, next_open);
    user_count_remove(&file->askers, user);
    file->is_busy = false;
    pthread_cond_broadcast(&files->changed);
    if (error == -EINVAL || error == -EILSEQ)
        error = -EIO;
    if (error == -EIO && folder_is_old_enough(&st))
        file->error = error;
    if (error == -ECHILD) /* whoever asks again may have it */
        error = -EIO;
    else if (error == -EIO || !error)
        file->st = st;
    if (error) {
        files->n_open--;
        return error;
    }
    file->file = opened;
    file->root = sfs_root(opened);
    file->was_open = true;
    file->fails_until = 0;
    file->is_outdated = false;
    atomic_store(&file->is_gone, false);
    files->opened++;
    DL_APPEND2(files->open, file, prev_open, next_open);
    return 0;
}

/* The lock is not held. */
static int commit_file(struct mounted_file *file, bool may_stay, struct stat *st)
{
    int error = together_finish(file->file, st);
    if (error && may_stay && error != -ESTALE)
        log_loss("%s: what was written could not be committed, and it stays open: %s",
                 sfs_path(file->file), strerror(-error));
    return error;
}

/* The same. Tries again to commit what could not be committed before; external raw data that was lost since there were
 * so many losses is told of once, and that was logged. */
static int close_for_good(struct mounted_file *file, int failed, unsigned losses,
                          struct sfs_statistics *last)
{
    char *path = failed ? strdup(sfs_path(file->file)) : NULL;
    int lost;
    if (sfs_raw_losses(file->file, &lost) == losses)
        lost = 0;
    sfs_statistics(file->file, last);
    int error = sfs_close(file->file);
    error = failed && error ? error : 0;
    if (error)
        log_loss("%s: what was written last could not be committed, and is lost: %s",
                 path ? path : file->path, strerror(-error));
    free(path);
    return error ? error : lost;
}

static void count_closed(struct mounted_files *files, const struct sfs_statistics *last)
{
    files->closed.store_reads += last->store_reads;
    files->closed.store_bytes_read += last->store_bytes_read;
    files->closed.store_commits += last->store_commits;
}

/* Nobody uses it. may_stay: it does if what was written cannot be committed, unless it never can
 * be, as the file was removed or replaced; the error. */
static int end_file(struct mounted_file *file, bool may_stay)
{
    UNINTERRUPTED();
    struct mounted_files *files = file->files;
    struct sfs_statistics last;
    struct stat st = file->st;
    file->is_busy = true;
    pthread_mutex_unlock(&files->lock);
    int error_before;
    unsigned losses = sfs_raw_losses(file->file, &error_before);
    int error = commit_file(file, may_stay, &st);
    bool stays = error && may_stay && error != -ESTALE;
    if (!stays)
        files->calls.closing(files->context, file);
    pthread_mutex_lock(&files->lock);
    while (!stays && file->n_views > 0) /* another thread is closing them */
        pthread_cond_wait(&files->changed, &files->lock);
    DL_DELETE2(files->open, file, prev_open, next_open);
    if (stays) {
        DL_APPEND2(files->open, file, prev_open, next_open);
        file->fails_until = clock_now() + RELEASE_NANOS;
    } else {
        pthread_mutex_unlock(&files->lock);
        int lost = close_for_good(file, error, losses, &last);
        pthread_mutex_lock(&files->lock);
        files->lost = files->lost ? files->lost : lost;
        count_closed(files, &last);
        file->file = NULL;
        file->st = st;
        files->n_open--;
    }
    file->is_busy = false;
    pthread_cond_broadcast(&files->changed);
    return error;
}

/* The same; frees it with its last reference. */
static void unref(struct mounted_file *file)
{
    while (atomic_fetch_sub(&file->refs, 1) == 1) {
        if (!file->file) {
            free_file(file);
            return;
        }
        mounted_ref(file); /* until it is closed it is found among those that are open */
        (void)end_file(file, false);
    }
}

void mounted_unref(struct mounted_file *file)
{
    struct mounted_files *files = file ? file->files : NULL;
    if (files) {
        pthread_mutex_lock(&files->lock);
        unref(file);
        pthread_mutex_unlock(&files->lock);
    } else if (file && atomic_fetch_sub(&file->refs, 1) == 1) {
        free_file(file);
    }
}

bool mounted_close(struct mounted_file *file, bool may_stay)
{
    mounted_ref(file);
    (void)end_file(file, may_stay);
    bool is_closed = !file->file;
    unref(file);
    return is_closed;
}

/* ---- Using files. The lock must be held. ---- */

struct wish {
    uid_t user;
    bool opens;       /* handles may come of it */
    bool has_failed;  /* to make room: one that could not be committed could not be now either */
    bool is_admitted; /* to what was opened for him */
    uint64_t began;   /* clock_now */
    struct timespec deadline; /* of waiting for others' handles */
};

/* Whether it is taken for one that cannot be committed: it could not be the last time. */
static bool stays(const struct mounted_file *file)
{
    return file->users == 0 && file->fails_until > 0;
}

/* Who wants room tries such a one again, but once, and more than the first that fails then only where `all`. */
static bool is_tried(const struct mounted_file *file, const struct wish *wish, bool all)
{
    return stays(file) && (file->fails_until > wish->began || (wish->has_failed && !all));
}

/* The one not used for longest, which may be closed. NULL: none. */
static struct mounted_file *find_unused(const struct mounted_file *than, const struct wish *wish,
                                        bool all)
{
    struct mounted_file *file;
    DL_FOREACH2 (than->files->open, file, next_open)
        if (file != than && file->users == 0 && !file->is_busy && !is_tried(file, wish, all))
            break;
    return file;
}

struct share {
    size_t n, of_user; /* files */
};

struct in_use {
    size_t lasting;      /* those for which a request has not to wait */
    struct share lasts;  /* in which something is open, or that cannot be committed */
    struct share of_all; /* also those that are used by requests, opened or closed */
};

/* What nobody uses, or only who commits it, counts for who has changed it: but those who are served first are not to
 * wait for what they share with others. */
static bool is_changer(const struct mounted_file *file, uid_t user)
{
    return atomic_load(&file->changer) == user && !user_is_served_first(user);
}

static void look_at(struct in_use *in_use, const struct mounted_file *file, const struct wish *wish)
{
    bool is_kept = stays(file), is_held = users_have_any(&file->holders);
    bool holds = user_count_of(&file->holders, wish->user) > 0;
    bool asks = user_count_of(&file->askers, wish->user) > 0;
    bool is_used = file->users > 0 || file->is_busy || is_kept;
    bool is_changers =
        is_used && !is_held && !users_have_any(&file->askers) && is_changer(file, wish->user);
    in_use->lasting += file->handles > 0 || is_kept;
    in_use->lasts.n += is_held || is_kept;
    in_use->lasts.of_user += holds || (is_kept && is_changers);
    in_use->of_all.n += is_used;
    in_use->of_all.of_user += holds || asks || is_changers;
}

static struct in_use look_at_others(const struct mounted_file *than, const struct wish *wish)
{
    struct in_use in_use = {0};
    struct mounted_file *file;
    DL_FOREACH2 (than->files->open, file, next_open)
        if (file != than)
            look_at(&in_use, file, wish);
    DL_FOREACH2 (than->files->opening, file, next_open)
        if (file != than)
            look_at(&in_use, file, wish);
    return in_use;
}

static bool may_use_more(const struct mounted_files *files, const struct wish *wish,
                         const struct share *share)
{
    return share->of_user < files->most &&
           user_may_have_more(wish->user, share->of_user, share->n, files->most_in_use);
}

/* For handles and for what cannot be committed only until the deadline: the kernel tells of a close(2) after it has
 * returned. -ENFILE. */
static int wait_for_others(struct mounted_files *files, const struct wish *wish)
{
    return pthread_cond_timedwait(&files->changed, &files->lock, &wish->deadline) ? -ENFILE : 0;
}

static int make_room(struct mounted_file *unused, struct wish *wish)
{
    if (!mounted_close(unused, true))
        wish->has_failed = true;
    return interrupt_check();
}

static bool has_all_places(const struct mounted_files *files)
{
    return files->most_in_use == mounted_most_in_use(files->most);
}

/* One more is opened if there is room. Else one that is not in use is closed. If there is none the user has his share
 * of what is kept for that: of more files than are open otherwise. What he may not have is waited for. */
static int open_or_wait(struct mounted_file *file, struct wish *wish)
{
    struct mounted_files *files = file->files;
    if (files->n_open < files->most) {
        wish->is_admitted = has_all_places(files);
        return begin_file(file, wish->user);
    }
    struct mounted_file *unused = find_unused(file, wish, false);
    if (unused)
        return make_room(unused, wish);
    const struct in_use in_use = look_at_others(file, wish);
    if (files->n_open < files->most_in_use && may_use_more(files, wish, &in_use.of_all)) {
        wish->is_admitted = true;
        return begin_file(file, wish->user);
    }
    unused = find_unused(file, wish, true);
    if (unused)
        return make_room(unused, wish);
    if (in_use.lasting >= files->most && !may_use_more(files, wish, &in_use.lasts))
        return wait_for_others(files, wish);
    return interrupt_wait_monotonic(&files->changed, &files->lock);
}

/* Of one that is open: as long as no more than usual are everybody may. Else who asks for one after the other that
 * somebody has opened, in requests that take long, would have them all. */
static bool may_open_in(const struct mounted_file *file, const struct wish *wish)
{
    const struct mounted_files *files = file->files;
    bool is_usual = files->n_open <= files->most && (!wish->opens || has_all_places(files));
    if (is_usual || wish->is_admitted || user_count_of(&file->holders, wish->user) > 0 ||
        (!wish->opens && user_count_of(&file->askers, wish->user) > 0))
        return true;
    const struct in_use in_use = look_at_others(file, wish);
    return may_use_more(files, wish, &in_use.of_all);
}

/* The same. Where more than usual are open what is not in use is closed first: there are no more than usual then, or it
 * could be committed. */
static int wait_to_open_in(struct mounted_file *file, struct wish *wish)
{
    struct mounted_files *files = file->files;
    struct mounted_file *unused =
        files->n_open > files->most ? find_unused(file, wish, true) : NULL;
    if (unused)
        return make_room(unused, wish);
    const struct in_use in_use = look_at_others(file, wish);
    return may_use_more(files, wish, &in_use.lasts)
               ? interrupt_wait_monotonic(&files->changed, &files->lock)
               : wait_for_others(files, wish);
}

/* An unused open file that is the same under another name, as after a rename: its lock would keep
 * this one from being written. NULL: none. */
static struct mounted_file *find_same(const struct mounted_file *file)
{
    struct mounted_file *other;
    const uint64_t now = clock_now();
    DL_FOREACH2 (file->files->open, other, next_open)
        if (other->users == 0 && !atomic_load(&other->is_read_only) && other->fails_until <= now &&
            is_same_file(&other->st, &file->st))
            break;
    return other;
}

/* It is open. */
static int count_user(struct mounted_file *file, const struct wish *wish)
{
    struct mounted_files *files = file->files;
    int error = user_count_add(wish->opens ? &file->holders : &file->askers, wish->user);
    if (error)
        return error;
    mounted_ref(file);
    file->users++;
    DL_DELETE2(files->open, file, prev_open, next_open);
    DL_APPEND2(files->open, file, prev_open, next_open);
    return 0;
}

int mounted_use_open(struct mounted_file *file, uid_t user, bool opens)
{
    struct mounted_files *files = file->files;
    if (!files)
        return 0;
    const struct wish wish = {.user = user, .opens = opens, .began = clock_now()};
    pthread_mutex_lock(&files->lock);
    bool is_open = file->file && !file->is_busy && may_open_in(file, &wish);
    int error = is_open ? count_user(file, &wish) : -EAGAIN;
    pthread_mutex_unlock(&files->lock);
    return error;
}

bool mounted_is_open(struct mounted_file *file)
{
    if (!file->files)
        return false;
    pthread_mutex_lock(&file->files->lock);
    bool is_open = file->file && !file->is_busy;
    pthread_mutex_unlock(&file->files->lock);
    return is_open;
}

static int use_locked(struct mounted_file *file, struct wish *wish)
{
    struct mounted_files *files = file->files;
    struct mounted_file *other;
    int error = 0;
    while (!error && (file->is_busy || !file->file || !may_open_in(file, wish))) {
        if (file->is_busy)
            error = interrupt_wait_monotonic(&files->changed, &files->lock);
        else if (file->file)
            error = wait_to_open_in(file, wish);
        else if (file->error)
            error = file->error;
        else if ((other = find_same(file)) && other->is_busy)
            error = interrupt_wait_monotonic(&files->changed, &files->lock);
        else if (other)
            (void)mounted_close(other, true);
        else
            error = open_or_wait(file, wish);
    }
    return error ? error : count_user(file, wish);
}

static int use(struct mounted_file *file, uid_t user, bool opens)
{
    struct mounted_files *files = file->files;
    if (!files)
        return 0;
    struct wish wish = {
        .user = user, .opens = opens, .began = clock_now(), .deadline = clock_in(RELEASE_NANOS)};
    pthread_mutex_lock(&files->lock);
    int error = use_locked(file, &wish);
    const struct in_use in_use =
        error == -ENFILE ? look_at_others(file, &wish) : (struct in_use){0};
    pthread_mutex_unlock(&files->lock);
    if (error == -ENFILE)
        log_warning(
            "%s/%s: refused: user %u has %zu HDF5 files in use, all users %zu: something in "
            "them is open, they have temporary files, files of csr that wait, or changes that "
            "cannot be committed: -o max_open=N allows more than %u",
            folder_path(files->folder), file->path, (unsigned)user, in_use.lasts.of_user,
            in_use.lasts.n, files->most);
    return error;
}

int mounted_use(struct mounted_file *file, uid_t user)
{
    return use(file, user, false);
}

int mounted_use_to_open(struct mounted_file *file, uid_t user)
{
    return use(file, user, true);
}

/* ---- Names of attributes ---- */

/* The lock must be held. A file that was changed a moment ago may change again with the same times:
 * such a state is not kept. */
static void keep_names(struct mounted_file *file, const struct stat *st, const char *names,
                       size_t n)
{
    char *copy = n <= MOST_KEPT_NAMES && folder_is_old_enough(st) ? malloc(n ? n : 1) : NULL;
    if (!copy)
        return;
    memcpy(copy, names, n);
    free(file->names);
    file->names = copy;
    file->names_n = n;
    file->names_st = *st;
}

void mounted_keep_names(struct mounted_file *file, const char *names, size_t n)
{
    if (!file->files)
        return;
    pthread_mutex_lock(&file->files->lock);
    keep_names(file, &file->st, names, n);
    pthread_mutex_unlock(&file->files->lock);
}

static int copy_names(const struct mounted_file *file, char **names, size_t *n)
{
    *names = malloc(file->names_n ? file->names_n : 1);
    if (!*names)
        return -ENOMEM;
    memcpy(*names, file->names, file->names_n);
    *n = file->names_n;
    return 0;
}

static int kept_names(struct mounted_file *file, const struct stat *st, char **names, size_t *n)
{
    pthread_mutex_lock(&file->files->lock);
    bool is_kept = file->names && is_same_state(&file->names_st, st) &&
                   is_same_time(&file->names_st.st_ctim, &st->st_ctim);
    int error = is_kept ? copy_names(file, names, n) : -EAGAIN;
    pthread_mutex_unlock(&file->files->lock);
    return error;
}

/* -EAGAIN: there may be some. */
static int look_for_none(struct mounted_file *file, int fd, const struct stat *st, char **names,
                         size_t *n)
{
    char *path;
    if (asprintf(&path, "%s/%s", folder_path(file->files->folder), file->path) < 0)
        return -ENOMEM;
    bool may_have = together_may_have_attributes(fd, path);
    free(path);
    if (may_have)
        return -EAGAIN;
    *n = 0;
    *names = calloc(1, 1);
    pthread_mutex_lock(&file->files->lock);
    keep_names(file, st, "", 0);
    pthread_mutex_unlock(&file->files->lock);
    return *names ? 0 : -ENOMEM;
}

int mounted_names(struct mounted_file *file, char **names, size_t *n)
{
    struct stat st;
    struct mounted_files *files = file->files;
    if (!files)
        return -EAGAIN;
    pthread_mutex_lock(&files->lock);
    bool is_open = file->file || file->is_busy || file->error;
    pthread_mutex_unlock(&files->lock);
    int fd = is_open ? -EAGAIN : folder_find(files->folder, file->path, &st);
    if (fd < 0)
        return -EAGAIN;
    int error = kept_names(file, &st, names, n);
    if (error == -EAGAIN && mounted_is(file, &st))
        error = look_for_none(file, fd, &st, names, n);
    close(fd);
    return error;
}

int mounted_use_more(struct mounted_file *file, uid_t user)
{
    if (!file->files)
        return 0;
    pthread_mutex_lock(&file->files->lock);
    int error = user_count_add(&file->holders, user);
    if (!error) {
        mounted_ref(file);
        file->users++;
        file->handles++;
    }
    pthread_mutex_unlock(&file->files->lock);
    return error;
}

void mounted_outdate(struct mounted_file *file)
{
    pthread_mutex_lock(&file->files->lock);
    file->is_outdated = true;
    pthread_mutex_unlock(&file->files->lock);
}

/* One use of it ends: that of a user among these, unless counts is NULL. */
static void put(struct mounted_file *file, struct user_counts *counts, uid_t user, bool is_handle)
{
    struct mounted_files *files = file->files;
    if (!files)
        return;
    pthread_mutex_lock(&files->lock);
    file->users--;
    file->handles -= is_handle;
    if (counts)
        user_count_remove(counts, user);
    pthread_cond_broadcast(&files->changed);
    if (file->is_outdated && file->users == 0 && file->file && !file->is_busy)
        (void)end_file(file, true);
    unref(file);
    pthread_mutex_unlock(&files->lock);
}

void mounted_put(struct mounted_file *file, uid_t user)
{
    put(file, &file->askers, user, false);
}

void mounted_put_opened(struct mounted_file *file, uid_t user)
{
    put(file, &file->holders, user, false);
}

void mounted_put_more(struct mounted_file *file, uid_t user)
{
    put(file, &file->holders, user, true);
}

void mounted_use_again(struct mounted_file *file)
{
    struct mounted_files *files = file->files;
    if (!files)
        return;
    pthread_mutex_lock(&files->lock);
    mounted_ref(file);
    file->users++;
    pthread_mutex_unlock(&files->lock);
}

void mounted_let_be(struct mounted_file *file)
{
    put(file, NULL, MOUNTED_NOBODY, false);
}

void mounted_changed(struct mounted_file *file, uid_t user)
{
    if (atomic_load(&file->changer) != user)
        atomic_store(&file->changer, user);
}

void mounted_views_opened(struct mounted_file *file)
{
    if (!file->files)
        return;
    pthread_mutex_lock(&file->files->lock);
    file->n_views++;
    pthread_mutex_unlock(&file->files->lock);
}

void mounted_views_closed(struct mounted_file *file)
{
    struct mounted_files *files = file->files;
    if (!files)
        return;
    pthread_mutex_lock(&files->lock);
    file->n_views--;
    pthread_cond_broadcast(&files->changed);
    pthread_mutex_unlock(&files->lock);
}
