/* A table by datasets. A matrix is in it as long as one of its files is open for writing, or waits. */
#include "fs/staged_csr.h"

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/hash.h"
#include "common/interrupt.h"
#include "common/log.h"
#include "fs/daemon/commit_and_unlock.h"
#include "fs/staged_content.h"
#include "fs/staged_writes.h"
#include "fs/staging_limit.h"

struct part {
    bool is_there;              /* it was written, and waits */
    bool is_written;            /* since it was closed or synced */
    bool is_of_others;          /* something was there when who writes now began */
    bool is_paused;             /* since it was written */
    const struct open_file *by; /* by which it was written last; only compared */
    struct content content;
};

struct matrix {
    /* Under the lock of the table: */
    UT_hash_handle hh;
    uint64_t object; /* of the dataset */
    unsigned users;  /* while something waits one more */
    unsigned opens;  /* of these, those who have a file of it open, and with it the HDF5 file */
    bool waits;
    bool is_handle; /* it waits, and nobody has it open: then it counts (folder_open_files.h) */
    uid_t user;     /* for whom: who has written last */
    struct matrix *next_lost; /* of those that matrices_lose uses */
    /* Never changed; held: */
    const struct node *node;
    struct views *views;
    pthread_mutex_t taking; /* taken before the next one */
    pthread_mutex_t lock;   /* guards the parts, also while they are taken */
    struct part part[VIEW_CSR_PARTS];
};

struct matrices {
    struct nodes *nodes;
    struct staging_limit *limit;
    pthread_mutex_t lock; /* taken after that of a matrix */
    struct matrix *table;
    atomic_uint n; /* in the table; read without the lock by those who only look */
};

static const char *const names[VIEW_CSR_PARTS] = {"indptr.raw", "indices.raw", "data.raw"};

int matrices_create(struct nodes *nodes, struct staging_limit *limit, struct matrices **out)
{
    struct matrices *matrices = calloc(1, sizeof(*matrices));
    if (!matrices)
        return -ENOMEM;
    matrices->nodes = nodes;
    matrices->limit = limit;
    atomic_init(&matrices->n, 0);
    pthread_mutex_init(&matrices->lock, NULL);
    *out = matrices;
    return 0;
}

static struct part *part_of(struct matrix *matrix, enum view_kind view)
{
    return &matrix->part[view - VIEW_CSR_INDPTR];
}

/* ---- The table ---- */

static int add(struct matrices *matrices, const struct node *node, struct matrix **out)
{
    struct matrix *matrix = calloc(1, sizeof(*matrix));
    int error = matrix ? node_get_views(matrices->nodes, node, &matrix->views) : -ENOMEM;
    if (error)
        goto failed;
    matrix->node = node;
    matrix->object = node->object;
    HASH_ADD(hh, matrices->table, object, sizeof(matrix->object), matrix);
    if (hash_failed()) {
        error = -ENOMEM;
        goto no_place;
    }
    pthread_mutex_init(&matrix->taking, NULL);
    pthread_mutex_init(&matrix->lock, NULL);
    node_hold(matrices->nodes, node->number);
    atomic_fetch_add(&matrices->n, 1);
    *out = matrix;
    return 0;

no_place:
    node_put_views(matrices->nodes, node);
failed:
    free(matrix);
    return error;
}

/* Of what waits, for somebody who uses the HDF5 file. The lock of the table is held, or it is in the table no more. */
static void end_handle(struct matrix *matrix)
{
    if (matrix->is_handle)
        mounted_put_more(matrix->node->mounted, matrix->user);
    matrix->is_handle = false;
}

/* The same, with the lock. He has a handle already: one more of his there is always memory for. */
static void begin_handle(struct matrix *matrix, uid_t user)
{
    if (mounted_use_more(matrix->node->mounted, matrix->user) != 0) {
        matrix->user = user;
        (void)mounted_use_more(matrix->node->mounted, user);
    }
    matrix->is_handle = true;
}

int matrix_begin(struct matrices *matrices, const struct node *node, struct matrix **out)
{
    int error = 0;
    pthread_mutex_lock(&matrices->lock);
    HASH_FIND(hh, matrices->table, &node->object, sizeof(node->object), *out);
    if (!*out)
        error = add(matrices, node, out);
    if (!error) {
        (*out)->users++;
        (*out)->opens++;
        end_handle(*out);
    }
    pthread_mutex_unlock(&matrices->lock);
    return error;
}

/* For callers that only read; NULL: there is none. Given back by put_matrix. */
static struct matrix *look(struct matrices *matrices, const struct node *node)
{
    struct matrix *matrix;
    if (!matrices || atomic_load(&matrices->n) == 0)
        return NULL;
    pthread_mutex_lock(&matrices->lock);
    HASH_FIND(hh, matrices->table, &node->object, sizeof(node->object), matrix);
    if (matrix)
        matrix->users++;
    pthread_mutex_unlock(&matrices->lock);
    return matrix;
}

static void free_part(struct matrices *matrices, struct part *part)
{
    content_free(&part->content, matrices->limit);
    *part = (struct part){0};
}

static void free_parts(struct matrices *matrices, struct matrix *matrix)
{
    for (int i = 0; i < VIEW_CSR_PARTS; i++)
        free_part(matrices, &matrix->part[i]);
}

static void destroy(struct matrices *matrices, struct matrix *matrix)
{
    free_parts(matrices, matrix);
    pthread_mutex_destroy(&matrix->lock);
    pthread_mutex_destroy(&matrix->taking);
    node_put_views(matrices->nodes, matrix->node);
    end_handle(matrix);
    node_put(matrices->nodes, matrix->node->number);
    free(matrix);
}

/* The lock of the table is held. Whether it is to be destroyed. */
static bool end_use(struct matrices *matrices, struct matrix *matrix)
{
    if (--matrix->users > 0)
        return false;
    HASH_DEL(matrices->table, matrix);
    atomic_fetch_sub(&matrices->n, 1);
    return true;
}

static void put_matrix(struct matrices *matrices, struct matrix *matrix)
{
    pthread_mutex_lock(&matrices->lock);
    bool is_last = end_use(matrices, matrix);
    pthread_mutex_unlock(&matrices->lock);
    if (is_last)
        destroy(matrices, matrix);
}

void matrix_end(struct matrices *matrices, struct matrix *matrix, uid_t user)
{
    pthread_mutex_lock(&matrices->lock);
    if (--matrix->opens == 0 && matrix->waits)
        begin_handle(matrix, user);
    bool is_last = end_use(matrices, matrix);
    pthread_mutex_unlock(&matrices->lock);
    if (is_last)
        destroy(matrices, matrix);
}

/* After a change of what waits, by who has it open: user is who has written last. The matrix's lock is held. */
static void note(struct matrices *matrices, struct matrix *matrix, uid_t user)
{
    bool waits = false;
    for (int i = 0; i < VIEW_CSR_PARTS; i++)
        waits |= matrix->part[i].is_there;
    pthread_mutex_lock(&matrices->lock);
    matrix->users += waits && !matrix->waits ? 1 : 0;
    matrix->users -= !waits && matrix->waits ? 1 : 0;
    matrix->waits = waits;
    matrix->user = user;
    pthread_mutex_unlock(&matrices->lock);
}

static void forget_all(struct matrices *matrices, struct matrix *matrix)
{
    free_parts(matrices, matrix);
    note(matrices, matrix, matrix->user);
}

static void tell_of_loss(const struct matrix *matrix, const char *why)
{
    char list[64] = "";
    for (int i = 0; i < VIEW_CSR_PARTS; i++)
        if (matrix->part[i].is_there)
            snprintf(list + strlen(list), sizeof(list) - strlen(list), " csr/%s", names[i]);
    log_warning(
        "%s: %s: %s, and what was written is lost, as it did not fit the other files of csr:%s",
        sfs_path(node_file(matrix->node)), matrix->views->path, why, list);
}

bool matrices_may_wait(const struct matrices *matrices)
{
    return matrices && atomic_load(&matrices->n) > 0;
}

/* Whether it counts, and is lost. The lock of the table is held. */
static bool is_lost(const struct matrices *matrices, const struct matrix *matrix)
{
    return matrix->waits && matrix->is_handle && node_is_lost(matrices->nodes, matrix->node);
}

/* Those that are lost, each used once more, and with it the HDF5 file: who opens one meanwhile ends its handle. */
static struct matrix *use_lost(struct matrices *matrices)
{
    struct matrix *matrix, *next, *lost = NULL;
    pthread_mutex_lock(&matrices->lock);
    HASH_ITER (hh, matrices->table, matrix, next) {
        if (!is_lost(matrices, matrix))
            continue;
        matrix->users++;
        mounted_use_again(matrix->node->mounted);
        matrix->next_lost = lost;
        lost = matrix;
    }
    pthread_mutex_unlock(&matrices->lock);
    return lost;
}

/* Whether it is still lost, as nobody has opened it: then it waits no more. Its lock is held, so that who opens it now
 * finds that when its parts are gone. Its handle ends when it is destroyed, after its views, or is opened. */
static bool end_waiting(struct matrices *matrices, struct matrix *matrix)
{
    pthread_mutex_lock(&matrices->lock);
    bool ends = is_lost(matrices, matrix);
    if (ends) {
        matrix->waits = false;
        matrix->users--; /* the caller is one, too */
    }
    pthread_mutex_unlock(&matrices->lock);
    return ends;
}

/* Whoever has the lock takes the parts, or looks at them: that is not waited for. */
static void lose_parts(struct matrices *matrices, struct matrix *matrix)
{
    if (pthread_mutex_trylock(&matrix->lock) != 0)
        return;
    if (end_waiting(matrices, matrix)) {
        tell_of_loss(matrix, "the file was removed, replaced or renamed");
        free_parts(matrices, matrix);
    }
    pthread_mutex_unlock(&matrix->lock);
}

void matrices_lose(struct matrices *matrices)
{
    struct matrix *next;
    for (struct matrix *matrix = use_lost(matrices); matrix; matrix = next) {
        struct mounted_file *mounted = matrix->node->mounted;
        next = matrix->next_lost;
        lose_parts(matrices, matrix);
        put_matrix(matrices, matrix);
        mounted_let_be(mounted);
    }
}

void matrices_end(struct matrices *matrices)
{
    struct matrix *matrix, *next;
    if (!matrices)
        return;
    HASH_ITER (hh, matrices->table, matrix, next) {
        tell_of_loss(matrix, "the mount has ended");
        HASH_DEL(matrices->table, matrix);
        destroy(matrices, matrix);
    }
}

void matrices_destroy(struct matrices *matrices)
{
    if (!matrices)
        return;
    pthread_mutex_destroy(&matrices->lock);
    free(matrices);
}

/* ---- Contents. The matrix's lock is held. ---- */

/* What is new is zero. -ENOSPC. */
static int resize(struct matrices *matrices, struct part *part, uint64_t n)
{
    int error =
        n > matrices->limit->most ? -ENOSPC : content_resize(&part->content, n, matrices->limit);
    return error == -EFBIG ? -ENOSPC : error;
}

/* It begins with what the dataset holds, up to so many bytes. */
static int begin_part(struct matrices *matrices, struct matrix *matrix, enum view_kind view,
                      uint64_t most)
{
    struct part *part = part_of(matrix, view);
    uint64_t size;
    int error = view_size(matrix->views, view, 0, &size);
    size = size < most ? size : most;
    if (!error)
        error = resize(matrices, part, size);
    if (!error)
        error = content_take(&part->content, matrix->views, view, 0, size, matrices->limit);
    part->is_there = !error;
    return error;
}

/* keeps: what was there before is as it was if the change has failed; else it is given up. */
static int end_change(struct matrices *matrices, struct matrix *matrix,
                      const struct matrix_part *of, bool keeps, int error)
{
    enum view_kind view = of->view;
    struct part *part = part_of(matrix, view);
    if (error == -ENOSPC)
        log_warning("%s: %s: no room for csr/%s: it would need more than staging_size=%zu",
                    sfs_path(node_file(matrix->node)), matrix->views->path,
                    names[view - VIEW_CSR_INDPTR], matrices->limit->most);
    if (error && keeps)
        return error;
    if (error)
        free_part(matrices, part);
    part->is_written = !error;
    part->is_paused = false;
    part->by = of->by;
    note(matrices, matrix, error ? matrix->user : of->user);
    return error;
}

/* What somebody else has written is not lost by that. */
int matrix_write(struct matrices *matrices, struct matrix *matrix, const struct matrix_part *of,
                 const struct view_bytes *bytes)
{
    struct part *part = part_of(matrix, of->view);
    uint64_t end;
    int error = interrupt_lock(&matrix->lock); /* it is held while they are taken */
    if (error)
        return error;
    part->is_of_others |= part->is_there && !(part->is_written && part->by == of->by);
    error = __builtin_add_overflow(bytes->offset, bytes->n, &end) ? -ENOSPC : 0;
    if (!error && !part->is_there)
        error = begin_part(matrices, matrix, of->view, UINT64_MAX);
    if (!error && end > part->content.n)
        error = resize(matrices, part, end);
    if (!error)
        memcpy(part->content.bytes + bytes->offset, bytes->bytes, bytes->n);
    error = end_change(matrices, matrix, of, part->is_of_others, error);
    pthread_mutex_unlock(&matrix->lock);
    return error;
}

int matrix_resize(struct matrices *matrices, struct matrix *matrix, const struct matrix_part *of,
                  uint64_t size)
{
    struct part *part = part_of(matrix, of->view);
    int error = interrupt_lock(&matrix->lock);
    if (error)
        return error;
    bool was_there = part->is_there;
    error = was_there ? 0 : begin_part(matrices, matrix, of->view, size);
    if (!error)
        error = resize(matrices, part, size);
    error = end_change(matrices, matrix, of, was_there, error);
    pthread_mutex_unlock(&matrix->lock);
    return error;
}

/* ---- Taking it ---- */

static int put(struct matrices *matrices, struct matrix *matrix, struct view_csr *csr)
{
    struct commits *commits = matrix->node->mounted->commits;
    *csr = (struct view_csr){.most_kept = matrices->limit->most, .hold = commits_hold(commits)};
    for (int i = 0; i < VIEW_CSR_PARTS; i++) {
        const struct part *part = &matrix->part[i];
        const char *bytes = part->content.bytes ? part->content.bytes : "";
        csr->part[i] = (struct view_csr_part){part->is_there ? bytes : NULL, part->content.n};
    }
    int error = sfs_begin_writing(node_file(matrix->node));
    if (error)
        return error;
    error = view_put_csr(matrix->views, csr);
    sfs_end_writing(node_file(matrix->node));
    return error;
}

static void tell(const struct matrices *matrices, const struct matrix *matrix, enum view_kind view,
                 int error, const struct view_csr *csr)
{
    const char *path = sfs_path(node_file(matrix->node)), *dataset = matrix->views->path;
    const char *name = names[view - VIEW_CSR_INDPTR];
    if (error == -EAGAIN)
        log_info("%s: %s: csr/%s waits for the other files of csr: %s", path, dataset, name,
                 csr->why);
    else if (error == -EINVAL)
        log_warning("%s: %s: the frames are not changed: what was written to csr does not fit: %s; "
                    "write its files anew",
                    path, dataset, csr->why);
    else if (error == -EFBIG)
        log_warning(
            "%s: %s: the frames are not changed: csr/%s alone cannot be taken, as the others "
            "need more than staging_size=%zu: write all three, or frames",
            path, dataset, name, matrices->limit->most);
    else
        log_error("%s: %s: what was written to csr is lost: %s", path, dataset, strerror(-error));
}

/* Whether another file than this one is being written, and not paused, or (is_paused) is. */
static bool is_being_written(const struct matrix *matrix, enum view_kind view, bool is_paused)
{
    for (int i = 0; i < VIEW_CSR_PARTS; i++)
        if (i != (int)(view - VIEW_CSR_INDPTR) && matrix->part[i].is_written &&
            matrix->part[i].is_paused == is_paused)
            return true;
    return false;
}

/* What nobody waits for has to be done, however long it takes. */
static int lock_to_take(pthread_mutex_t *lock, enum matrix_close how)
{
    if (how != MATRIX_ENDED)
        return interrupt_lock(lock);
    interrupt_ask_lock(lock);
    return 0;
}

int matrix_begin_taking(struct matrix *matrix, enum matrix_close how)
{
    int error = lock_to_take(&matrix->taking, how);
    if (error)
        return error;
    error = lock_to_take(&matrix->lock, how);
    if (error)
        pthread_mutex_unlock(&matrix->taking);
    return error;
}

void matrix_end_taking(struct matrix *matrix)
{
    pthread_mutex_unlock(&matrix->taking);
}

int matrix_take(struct matrices *matrices, struct matrix *matrix, const struct matrix_part *of,
                enum matrix_close how, enum matrix_change *change)
{
    struct view_csr csr = {0};
    *change = MATRIX_SAME;
    struct part *part = part_of(matrix, of->view);
    bool is_own = part->by == of->by;
    bool is_meant = part->is_written && (is_own || how != MATRIX_ENDED);
    bool is_last = is_meant && !is_being_written(matrix, of->view, false);
    bool is_tentative = how == MATRIX_PAUSED || is_being_written(matrix, of->view, true);
    int error = is_last ? put(matrices, matrix, &csr) : 0;
    bool is_tried = is_tentative && error != -ETIMEDOUT;        /* again, when more is written */
    bool is_given_up = error == -EINTR && how == MATRIX_CLOSED; /* the last close does it */
    bool is_kept = error == -EAGAIN || is_given_up || (error && is_tried);
    if (error && !is_tried && !is_given_up)
        tell(matrices, matrix, of->view, error, &csr);
    if (is_last && !is_kept) {
        *change = error ? MATRIX_FILES : MATRIX_FRAMES;
        forget_all(matrices, matrix);
    } else if (is_meant && !is_given_up) {
        part->is_paused |= is_own && how == MATRIX_PAUSED;
        part->is_written = how == MATRIX_PAUSED;
    }
    if (error && csr.has_begun)
        *change = MATRIX_UNDONE;
    pthread_mutex_unlock(&matrix->lock);
    return is_kept && !is_given_up ? 0 : error == -EFBIG ? -ENOSPC : error;
}

/* ---- Looking at it ---- */

/* What waits of a file, locked until end_look; *matrix NULL: nothing, of any file. -EINTR. */
static int begin_look(struct matrices *matrices, const struct node *node, enum view_kind view,
                      struct matrix **matrix, const struct content **content)
{
    *content = NULL;
    *matrix = view_is_csr(view) ? look(matrices, node) : NULL;
    if (!*matrix)
        return 0;
    int error = interrupt_lock(&(*matrix)->lock); /* it is held while they are taken */
    if (error) {
        put_matrix(matrices, *matrix);
        return error;
    }
    const struct part *part = part_of(*matrix, view);
    *content = part->is_there ? &part->content : NULL;
    return 0;
}

static void end_look(struct matrices *matrices, struct matrix *matrix)
{
    if (!matrix)
        return;
    pthread_mutex_unlock(&matrix->lock);
    put_matrix(matrices, matrix);
}

int matrix_size(struct matrices *matrices, const struct node *node, enum view_kind view,
                bool *waits, uint64_t *size)
{
    struct matrix *matrix;
    const struct content *content;
    int error = begin_look(matrices, node, view, &matrix, &content);
    if (error)
        return error;
    *waits = content;
    if (content)
        *size = content->n;
    end_look(matrices, matrix);
    return 0;
}

int matrix_read(struct matrices *matrices, const struct node *node, const struct staged_part *part,
                void *buffer, bool *waits, size_t *got)
{
    struct matrix *matrix;
    const struct content *content;
    int error = begin_look(matrices, node, part->view, &matrix, &content);
    if (error)
        return error;
    *waits = content;
    if (content)
        *got = content_read(content, part->offset, part->n, buffer);
    end_look(matrices, matrix);
    return 0;
}
