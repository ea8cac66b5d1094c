/* The threads that copy. Each takes a block, reads it, looks for what is to be defined in it, and
 * writes that; so the reading, decompressing and encoding of several blocks goes on at once. */
#include "cli/copy_elements.h"

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "cli/blocks.h"
#include "cli/progress.h"
#include "cli/selected_dataset.h"
#include "common/thread.h"

#define MOST_THREADS 8
#define PART_BYTES   ((uint64_t)1 << 20) /* of a block, that stay in the processor's cache */

struct work {
    const struct copy *copy;
    bool from_sparse, to_sparse;
    bool may_borrow; /* decoded chunks of the source; what is mapped could go while it is read */
    bool is_last;    /* of a borrowed one: it is not used again */
    size_t size;     /* bytes of an element */
    struct blocks blocks;
    struct block_list stored; /* of a sparse source: only these are copied */
    bool is_listed;
    uint64_t n;                /* blocks to copy, */
    uint64_t stride;           /* every so many-th, */
    uint64_t first;            /* from this one on */
    struct progress *progress; /* NULL: none is shown */
    atomic_uint_fast64_t next; /* block */
    atomic_int error;          /* the first one */
};

/* What a thread works with. */
struct bench {
    struct work *work;
    struct sfs_slab slab;
    const char *elements; /* of a block, dense: lent, or in room */
    char *room, *packed;
    struct sfs_loan loan;
    struct findings findings;
    struct kept kept;         /* what criteria keep of the block */
    struct selected selected; /* of its full frames */
};

/* ---- What is to be defined in a block ---- */

/* Pieces of a row, ascending. */
struct pieces {
    const struct pick_row *piece;
    size_t n;
};

/* Adds n elements of the block. */
static int scan(struct bench *bench, uint64_t first, uint64_t n, bool full)
{
    if (full)
        return findings_add(&bench->findings, first, n);
    if (bench->work->copy->criteria)
        return criteria_scan(&bench->kept, &bench->findings, &bench->work->copy->undefined, first,
                             n, bench->elements);
    return findings_scan(&bench->findings, &bench->work->copy->undefined, first, n,
                         bench->elements + first * bench->work->size);
}

/* Adds the part of the row's elements x0 to x1 - 1 that lies in the block, where the row begins at
 * position first. */
static int scan_piece(struct bench *bench, uint64_t first, const struct pick_row *piece)
{
    const struct sfs_slab *slab = &bench->slab;
    uint64_t x = slab->start[slab->rank - 1], end = x + slab->count[slab->rank - 1];
    uint64_t x0 = piece->x0 > x ? piece->x0 : x, x1 = piece->x1 < end ? piece->x1 : end;
    /* Pieces of every frame and of this one may overlap. */
    uint64_t done = bench->findings.defined.n ? bench->findings.end : 0;
    if (x0 >= x1 || first + x1 - x <= done)
        return 0;
    uint64_t at = first + x0 - x > done ? first + x0 - x : done;
    return scan(bench, at, first + x1 - x - at, false);
}

/* Adds the next of the rectangles of a region that have row y to a list of pieces, which has it as
 * its only one. */
static void next_piece(const struct pick *pick, const struct region *region, size_t *at, uint64_t y,
                       struct pick_row *piece, struct pieces *pieces)
{
    for (pieces->n = 0; region && *at < region->n && pieces->n == 0; ++*at) {
        const struct rectangle *rectangle = &pick->regions.rectangle[region->at + *at];
        if (rectangle->y0 <= y && y < rectangle->y1) {
            *piece = (struct pick_row){0, y, rectangle->x0, rectangle->x1};
            *pieces = (struct pieces){piece, 1};
        }
    }
}

/* Ascending lists of pieces, as one: of every frame, of this one, and of its region. */
static int scan_row(struct bench *bench, uint64_t first, uint64_t frame, uint64_t y)
{
    const struct pick *pick = bench->work->copy->pick;
    const struct region *region = region_of(&pick->regions, frame);
    struct pieces lists[3];
    struct pick_row piece;
    size_t at = 0;
    lists[0].piece = pick_find(pick, EVERY_FRAME, y, &lists[0].n);
    lists[1].piece = pick_find(pick, frame, y, &lists[1].n);
    next_piece(pick, region, &at, y, &piece, &lists[2]);
    for (;;) {
        struct pieces *least = NULL;
        for (int i = 0; i < 3; i++)
            if (lists[i].n > 0 && (!least || lists[i].piece->x0 < least->piece->x0))
                least = &lists[i];
        int error = least ? scan_piece(bench, first, least->piece) : 0;
        if (error || !least)
            return error;
        least->piece++;
        least->n--;
        if (least == &lists[2])
            next_piece(pick, region, &at, y, &piece, &lists[2]);
    }
}

/* Goes through a block by rows if some of them are picked, else by frames. What was selected of
 * full frames is all that is looked for if is_selection. */
static int scan_block(struct bench *bench, bool is_selection)
{
    const struct sfs_slab *slab = &bench->slab;
    const struct pick *pick = bench->work->copy->pick;
    int rank = slab->rank;
    uint64_t n = slab_elements(slab), in_frame = rank > 2 ? n / slab->count[0] : n;
    uint64_t width = slab->count[rank - 1], height = rank > 1 ? slab->count[rank - 2] : 1;
    uint64_t step = pick->is_used ? width : pick->full_every ? in_frame : n;
    int error = 0;
    for (uint64_t at = 0; at < n && !error; at += step) {
        uint64_t frame = rank > 2 ? slab->start[0] + at / in_frame : 0;
        bool is_full = pick_is_full(pick, frame), full = is_full && !is_selection;
        if (is_selection && !is_full)
            continue;
        if (!pick->is_used || full)
            error = scan(bench, at, step, full);
        else
            error = scan_row(bench, at, frame, slab->start[rank - 2] + at / width % height);
    }
    return error;
}

/* What is defined in a sparse source is kept if it is picked and not undefined by its value. */
static int keep_defined(struct bench *bench)
{
    struct sfs_defined source, found = bench->findings.defined;
    int error = sfs_get_defined(bench->work->copy->from, &bench->slab, &source);
    if (error)
        return error;
    bench->findings = (struct findings){0};
    for (size_t i = 0, j = 0; i < source.n && j < found.n && !error;) {
        const struct sfs_interval *a = &source.interval[i], *b = &found.interval[j];
        uint64_t a_end = a->first + a[1].index - a->index, b_end = b->first + b[1].index - b->index;
        uint64_t first = a->first > b->first ? a->first : b->first;
        uint64_t end = a_end < b_end ? a_end : b_end;
        if (first < end)
            error = findings_add(&bench->findings, first, end - first);
        if (a_end <= b_end)
            i++;
        else
            j++;
    }
    sfs_defined_free(&source);
    free(found.interval);
    return error ? error : findings_finish(&bench->findings);
}

/* ---- Blocks ---- */

static int write_found(struct bench *bench)
{
    const struct work *work = bench->work;
    const struct sfs_defined *defined = &bench->findings.defined;
    int error = work->copy->selected ? selected_write(&bench->selected, work->copy->selected,
                                                      &bench->slab, work->copy->pick->full_every)
                                     : 0;
    if (error || defined->elements == 0)
        return error;
    if (defined->elements == slab_elements(&bench->slab))
        return sfs_write(work->copy->to, &bench->slab, bench->packed);
    return sfs_write_values(work->copy->to, &bench->slab, defined, bench->packed);
}

static int take_elements(struct bench *bench)
{
    const struct work *work = bench->work;
    size_t bytes = (size_t)slab_elements(&bench->slab) * work->size;
    int error = 0;
    bench->loan.holder = NULL;
    if (work->may_borrow &&
        sfs_lend(work->copy->from, &bench->slab, 0, bytes, &bench->loan, &error)) {
        bench->elements = bench->loan.bytes;
        return 0;
    }
    if (!error && !bench->room)
        bench->room = malloc(work->blocks.most_elements * work->size);
    if (!error && !bench->room)
        error = -ENOMEM;
    bench->elements = bench->room;
    return error ? error : sfs_read(work->copy->from, &bench->slab, 0, bench->room, bytes);
}

/* What is lent is given back before anything waits for memory. */
static void give_back(struct bench *bench)
{
    const struct work *work = bench->work;
    if (bench->loan.holder && work->is_last)
        sfs_return_last(work->copy->from, &bench->loan);
    else if (bench->loan.holder)
        sfs_return(work->copy->from, &bench->loan);
    bench->elements = NULL;
}

static int find(struct bench *bench, bool is_selection)
{
    findings_clear(&bench->findings);
    int error = scan_block(bench, is_selection);
    if (!error)
        error = findings_finish(&bench->findings);
    return error || !bench->work->from_sparse ? error : keep_defined(bench);
}

/* Finds what is to be defined, and packs it. */
static int find_in_block(struct bench *bench)
{
    const struct work *work = bench->work;
    const struct copy *copy = work->copy;
    int error = 0;
    if (copy->criteria)
        error =
            criteria_apply(copy->criteria, copy->from, &bench->slab, bench->elements, &bench->kept);
    if (!error && copy->selected)
        error = find(bench, true);
    if (!error && copy->selected)
        error = selected_take(&bench->selected, &bench->findings.defined, &bench->slab);
    if (!error)
        error = find(bench, false);
    if (!error)
        findings_pack(&bench->findings, work->size, bench->elements, bench->packed);
    return error;
}

/* Of an axis of the block, how much a part takes: whole chunks of the destination. */
static uint64_t part_length(const struct work *work, int axis, uint64_t slice_bytes)
{
    uint64_t chunk = sfs_dataset_info(work->copy->to)->chunk_dims[axis];
    uint64_t wanted = PART_BYTES / slice_bytes;
    return wanted > chunk ? wanted / chunk * chunk : chunk;
}

/* Part by part along the slowest axis that is cut, so that what has been found is still at hand
 * when it is written. */
static int copy_parts(struct bench *bench)
{
    const struct work *work = bench->work;
    const struct sfs_slab block = bench->slab;
    int axis = 0, error = 0;
    while (axis < block.rank - 1 && block.count[axis] == 1)
        axis++;
    uint64_t slice_bytes = slab_elements(&block) / block.count[axis] * work->size;
    uint64_t length = part_length(work, axis, slice_bytes),
             end = block.start[axis] + block.count[axis];
    const char *elements = bench->elements;
    for (uint64_t at = block.start[axis], n; at < end && !error; at += n) {
        n = length - at % length < end - at ? length - at % length : end - at;
        bench->slab.start[axis] = at;
        bench->slab.count[axis] = n;
        bench->elements = elements + (at - block.start[axis]) * slice_bytes;
        error = find_in_block(bench);
        if (!error)
            error = write_found(bench);
    }
    bench->slab = block;
    return error;
}

/* A thread that waits for memory of a cache must hold no loans of it. */
static bool may_write_parts(const struct bench *bench)
{
    const struct copy *copy = bench->work->copy;
    return !copy->criteria && !copy->selected && !bench->work->from_sparse &&
           !(copy->is_within && bench->loan.holder);
}

static int copy_block(struct bench *bench)
{
    const struct work *work = bench->work;
    int error = take_elements(bench);
    if (!error && !work->to_sparse)
        return sfs_write(work->copy->to, &bench->slab, bench->elements);
    bool is_written = !error && may_write_parts(bench);
    if (is_written)
        error = copy_parts(bench);
    else if (!error)
        error = find_in_block(bench);
    give_back(bench);
    return error || is_written ? error : write_found(bench);
}

static void note_error(struct work *work, int error)
{
    int none = 0;
    atomic_compare_exchange_strong(&work->error, &none, error);
}

static int bench_init(struct bench *bench, struct work *work)
{
    size_t bytes = work->blocks.most_elements * work->size;
    *bench = (struct bench){.work = work};
    bench->packed = work->to_sparse ? malloc(bytes) : NULL;
    return work->to_sparse && !bench->packed ? -ENOMEM : 0;
}

static void bench_free(struct bench *bench)
{
    findings_free(&bench->findings);
    kept_free(&bench->kept);
    selected_free(&bench->selected);
    free(bench->room);
    free(bench->packed);
}

/* The i-th of the blocks to copy. */
static void take_block(struct bench *bench, uint64_t i)
{
    const struct work *work = bench->work;
    i = work->first + i * work->stride;
    blocks_at(&work->blocks, work->is_listed ? work->stored.number[i] : i, &bench->slab);
}

static void *run(void *context)
{
    struct work *work = context;
    struct bench bench;
    interrupt_watch(); /* a block may have millions of chunks */
    if (bench_init(&bench, work) < 0)
        note_error(work, -ENOMEM);
    while (!atomic_load(&work->error)) {
        uint64_t i = atomic_fetch_add(&work->next, 1);
        if (i >= work->n)
            break;
        take_block(&bench, i);
        int error = interrupted ? -EINTR : copy_block(&bench);
        if (error)
            note_error(work, error);
        else if (work->progress)
            progress_add(work->progress, slab_elements(&bench.slab));
    }
    bench_free(&bench);
    return NULL;
}

/* In this thread and in others, as far as they can be had. */
static void run_all(struct work *work)
{
    pthread_t thread[MOST_THREADS - 1];
    unsigned processors = thread_processors();
    unsigned wanted = processors < MOST_THREADS ? processors : MOST_THREADS, n = 0;
    while (n + 1 < wanted && n + 1 < work->n && pthread_create(&thread[n], NULL, run, work) == 0)
        n++;
    run(work);
    while (n > 0)
        pthread_join(thread[--n], NULL);
}

/* Whether there are chunks that are not cut by the edges of blocks. */
static bool has_whole_chunks(const struct blocks *blocks, const struct sfs_dataset_info *info)
{
    if (info->layout != SFS_CHUNKED)
        return false;
    for (int i = 0; i < info->rank; i++)
        if (blocks->block[i] < blocks->dims[i] && blocks->block[i] % info->chunk_dims[i] != 0)
            return false;
    return true;
}

static int work_init(struct work *work, const struct copy *copy, bool is_all)
{
    static const uint64_t nothing[SFS_MAX_RANK];
    const struct sfs_dataset_info *from = sfs_dataset_info(copy->from);
    const struct sfs_dataset_info *to = sfs_dataset_info(copy->to);
    *work = (struct work){.copy = copy,
                          .from_sparse = from->layout == SFS_SPARSE,
                          .to_sparse = to->layout == SFS_SPARSE,
                          .size = from->type.size,
                          .stride = 1};
    /* Criteria may read around a block: no loan may be held then, as a thread that waits for memory
     * must hold none. */
    work->may_borrow =
        work->to_sparse && from->layout == SFS_CHUNKED && from->n_filters > 0 && !copy->criteria;
    /* Of a sparse source what is not stored need not be copied, unless all of a frame is wanted;
     * and in a dense destination no chunk is made for it. */
    work->is_listed = work->from_sparse && copy->pick->full_every == 0;
    int error = work->is_listed && !work->to_sparse
                    ? blocks_of_one_chunk(to, to->chunk_dims, &work->blocks)
                : is_all ? blocks_of_both(from, to, &work->blocks)
                         : blocks_of_chunks(to, to->chunk_dims, &work->blocks);
    work->n = work->blocks.n;
    /* A chunk that is only sampled will be read again. */
    work->is_last = is_all && !error && has_whole_chunks(&work->blocks, from);
    if (error || !work->is_listed)
        return error;
    error = blocks_stored(&work->blocks, copy->from, nothing, &work->stored);
    work->n = work->stored.n;
    return error;
}

static void work_end(struct work *work)
{
    free(work->stored.number);
}

/* The elements of all blocks. */
static uint64_t elements_of(const struct work *work)
{
    struct sfs_slab slab;
    uint64_t n = 0;
    if (!work->is_listed)
        return sfs_dataset_info(work->copy->from)->elements;
    for (size_t i = 0; i < work->stored.n; i++) {
        blocks_at(&work->blocks, work->stored.number[i], &slab);
        n += slab_elements(&slab);
    }
    return n;
}

int copy_elements(const struct copy *copy)
{
    struct work work;
    struct progress progress;
    int error = work_init(&work, copy, true);
    if (!error && work.n > 0) {
        work.progress = copy->what ? &progress : NULL;
        if (copy->what)
            progress_begin(&progress, copy->what, elements_of(&work));
        run_all(&work);
        if (copy->what)
            progress_end(&progress);
        error = atomic_load(&work.error);
    }
    work_end(&work);
    return error;
}

int copy_close(struct sfs_dataset *to, int error)
{
    if (to && !error)
        error = sfs_flush_dataset(to, false);
    sfs_dataset_close(to);
    return error;
}

int copy_some(const struct copy *copy, uint64_t most, uint64_t first, uint64_t step)
{
    struct work work;
    int error = work_init(&work, copy, false);
    uint64_t n = work.n < most ? work.n : most;
    if (!error && first < n) {
        uint64_t stride = work.n / n;
        work.first = first * stride;
        work.stride = step * stride;
        work.n = (n - first + step - 1) / step;
        run_all(&work);
        error = atomic_load(&work.error);
    }
    work_end(&work);
    return error;
}
