/* Several datasets of a file in one call: all is checked before anything is read or changed, and
 * what lies in chunks is read through the cache together. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "cache/cache.h"
#include "chunk/chunks_of_box.h"
#include "dataset/private.h"
#include "dataset/read_ahead.h"
#include "dataset/transfer_selection.h"
#include "dataset/virtual_dataset.h"

/* One of them. */
struct part_of_many {
    const struct sfs_io *io;
    struct box box;            /* of a slab */
    struct transfer *transfer; /* of a selection; NULL: a slab */
    struct call call;          /* of its dataset; begun... */
    struct use *changing;
    bool is_first; /* ...by the first in `order` that has it */
};

struct many {
    struct sfs_file *file;
    size_t n;
    struct part_of_many *parts;
    struct part_of_many **order; /* sorted by dataset: the lock order */
    size_t n_begun;
    struct cache_read *reads;
    size_t n_reads;
};

static int compare(const void *a, const void *b)
{
    const struct part_of_many *left = *(struct part_of_many *const *)a,
                              *right = *(struct part_of_many *const *)b;
    uintptr_t left_at = (uintptr_t)left->io->dataset, right_at = (uintptr_t)right->io->dataset;
    return left_at < right_at ? -1 : left_at > right_at;
}

/* Whether writing keeps members of elements of the dataset of the i-th in order, which is the first that has it. */
static bool patches(const struct many *many, size_t i)
{
    const struct sfs_dataset *dataset = many->order[i]->io->dataset;
    for (; i < many->n && many->order[i]->io->dataset == dataset; i++)
        if (transfer_keeps_members(dataset, many->order[i]->io->type))
            return true;
    return false;
}

/* Holds the dims of all datasets until many_end. */
static void begin_calls(struct many *many, bool changes)
{
    for (size_t i = 0; i < many->n; i++) {
        struct part_of_many *part = many->order[i];
        struct use *use = &part->io->dataset->use;
        part->is_first = i == 0 || many->order[i - 1]->io->dataset != part->io->dataset;
        if (part->is_first) {
            use_begin(use, &part->call);
            if (changes)
                part->changing = patches(many, i) ? patch_begin(use) : change_begin(use);
        }
        many->n_begun++;
    }
}

static void many_end(struct many *many)
{
    while (many->n_begun > 0) {
        struct part_of_many *part = many->order[--many->n_begun];
        if (part->is_first && part->changing)
            change_end(&part->changing);
        if (part->is_first)
            use_end(&part->call);
    }
    for (size_t i = 0; many->parts && i < many->n; i++)
        transfer_close(many->parts[i].transfer);
    free(many->parts);
    free(many->order);
    free(many->reads);
}

/* Checks that need no dataset. */
static int check_list(const struct sfs_io *ios, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        const struct sfs_io *io = &ios[i];
        if (io->dataset->file != ios[0].dataset->file || (io->flags & ~(unsigned)SFS_SKIP_CACHE))
            return -EINVAL;
        if (io->slab && (io->type || io->memory_space || io->space))
            return -EINVAL;
    }
    return 0;
}

/* many_end also after an error. */
static int many_begin(struct many *many, const struct sfs_io *ios, size_t n, bool changes)
{
    *many = (struct many){.file = ios[0].dataset->file, .n = n};
    many->parts = calloc(n, sizeof(*many->parts));
    many->order = calloc(n, sizeof(struct part_of_many *));
    many->reads = calloc(n, sizeof(*many->reads));
    if (!many->parts || !many->order || !many->reads)
        return -ENOMEM;
    for (size_t i = 0; i < n; i++) {
        many->parts[i].io = &ios[i];
        many->order[i] = &many->parts[i];
    }
    qsort(many->order, n, sizeof(struct part_of_many *), compare);
    begin_calls(many, changes);
    return 0;
}

static int check_slab(struct sfs_dataset *dataset, const struct sfs_slab *slab, struct box *box)
{
    uint64_t bytes;
    int error = dataset_box(dataset, slab, box);
    if (!error && !box_product(box->count, box->rank, dataset->layout.element_size, &bytes))
        error = -EINVAL;
    return error;
}

static int check_part(struct part_of_many *part)
{
    const struct sfs_io *io = part->io;
    if (io->dataset->info.type.has_pointers)
        return -EOPNOTSUPP;
    return io->slab ? check_slab(io->dataset, io->slab, &part->box)
                    : transfer_open(io, &part->transfer);
}

/* ---- Reading ---- */

static int read_virtual(const struct part_of_many *part)
{
    static const uint64_t origin[SFS_MAX_RANK];
    struct place place = {part->io->to, part->box.count, origin};
    return dataset_read_box(part->io->dataset, &part->box, &place, 0);
}

static bool is_of_cache(const struct part_of_many *part)
{
    return part->io->slab && !part->io->dataset->virtual;
}

/* The slabs of datasets that have chunks of their own. */
static int read_through_cache(struct many *many)
{
    static const uint64_t origin[SFS_MAX_RANK];
    int error = 0;
    many->n_reads = 0;
    for (size_t i = 0; i < many->n && !error; i++) {
        const struct part_of_many *part = &many->parts[i];
        struct sfs_dataset *dataset = part->io->dataset;
        if (!is_of_cache(part))
            continue;
        bool passing = part->io->flags & SFS_SKIP_CACHE;
        error = left_check(dataset);
        if (!error && !passing)
            ahead_note(many->file->ahead, dataset, &part->box);
        many->reads[many->n_reads++] = (struct cache_read){
            dataset->cache, &part->box, part->io->to, part->box.count, origin, passing};
    }
    return error ? error : cache_read_many(many->file->cache, many->reads, many->n_reads);
}

static int read_checked(struct many *many)
{
    int error = read_through_cache(many);
    for (size_t i = 0; i < many->n && !error; i++) {
        const struct part_of_many *part = &many->parts[i];
        if (part->transfer)
            error = transfer_read(part->transfer);
        else if (!is_of_cache(part))
            error = read_virtual(part);
    }
    return error;
}

static int read_once(const struct sfs_io *ios, size_t n)
{
    FOLLOWED(ios[0].dataset->file);
    struct many many;
    int error = many_begin(&many, ios, n, false);
    for (size_t i = 0; i < n && !error; i++)
        error = check_part(&many.parts[i]);
    for (size_t i = 0; i < n && !error; i++)
        if (many.parts[i].transfer)
            error = transfer_check_read(many.parts[i].transfer);
    if (!error)
        error = read_checked(&many);
    many_end(&many);
    return error;
}

int sfs_read_many(const struct sfs_io *ios, size_t n)
{
    int error = check_list(ios, n);
    if (error || n == 0)
        return error;
    return FOLLOWING(ios[0].dataset->file, read_once(ios, n));
}

/* ---- Writing ---- */

/* Checked first: the index would refuse it half-way. */
static int check_room(const struct part_of_many *part)
{
    const struct layout *layout = &part->io->dataset->layout;
    struct piece piece;
    return piece_first(layout, &part->box, &piece) ? layout_check_room(layout, piece.last) : 0;
}

static int check_write(struct part_of_many *part)
{
    struct sfs_dataset *dataset = part->io->dataset;
    if (dataset->info.layout == SFS_VIRTUAL)
        return -EOPNOTSUPP;
    int error = dataset_check_writable(dataset);
    if (!error)
        error = check_part(part);
    if (!error)
        error = part->transfer ? transfer_check_write(part->transfer) : check_room(part);
    if (!error && !part->transfer)
        error = dataset_check_box(dataset, &part->box);
    return error;
}

static int write_part(const struct part_of_many *part)
{
    return part->transfer ? transfer_write(part->transfer)
                          : dataset_put_box(part->io->dataset, &part->box, part->io->from);
}

int sfs_write_many(const struct sfs_io *ios, size_t n)
{
    struct many many;
    int error = check_list(ios, n);
    if (error || n == 0)
        return error;
    WRITING(ios[0].dataset->file);
    if (writing.error)
        return writing.error;
    error = many_begin(&many, ios, n, true);
    for (size_t i = 0; i < n && !error; i++)
        error = check_write(&many.parts[i]);
    for (size_t i = 0; i < n && !error; i++)
        error = write_part(&many.parts[i]);
    many_end(&many);
    return error;
}
