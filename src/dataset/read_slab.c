/* Reading slabs and ranges of their bytes, down to boxes of elements in the cache, and lending them. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "cache/cache.h"
#include "common/box.h"
#include "dataset/private.h"
#include "dataset/read_ahead.h"
#include "dataset/virtual_dataset.h"

int dataset_box(const struct sfs_dataset *dataset, const struct sfs_slab *slab, struct box *box)
{
    const struct layout *layout = &dataset->layout;
    if (slab->rank != layout->rank)
        return -EINVAL;
    box->rank = slab->rank;
    for (int i = 0; i < slab->rank; i++) {
        if (slab->start[i] > layout->dims[i] || slab->count[i] > layout->dims[i] - slab->start[i])
            return -EINVAL;
        box->start[i] = slab->start[i];
        box->count[i] = slab->count[i];
    }
    return 0;
}

int dataset_range(const struct sfs_dataset *dataset, const struct sfs_slab *slab, uint64_t offset,
                  size_t n, struct box *box)
{
    uint64_t bytes;
    if (dataset->info.type.has_pointers)
        return -EOPNOTSUPP;
    int error = dataset_box(dataset, slab, box);
    if (error)
        return error;
    if (!box_product(box->count, box->rank, dataset->layout.element_size, &bytes))
        return -EINVAL;
    return offset <= bytes && n <= bytes - offset ? 0 : -EINVAL;
}

bool dataset_decodes(const struct sfs_dataset *dataset)
{
    const struct layout *layout = &dataset->layout;
    return layout->ops->decode && layout->ops != &layout_library && !layout->said_missing;
}

int dataset_read_box(struct sfs_dataset *dataset, const struct box *box, const struct place *place,
                     int depth)
{
    int error = dataset->virtual ? 0 : left_check(dataset);
    if (error)
        return error;
    if (depth == 0)
        ahead_note(dataset->file->ahead, dataset, box);
    if (dataset->virtual)
        return virtual_read(dataset->virtual, box, place, depth);
    return cache_read_placed(dataset->cache, box, place->elements, place->dims, place->start);
}

int dataset_lend_box(struct sfs_dataset *dataset, const struct box *box, const void **bytes,
                     void **holder, int depth)
{
    struct chunk *chunk;
    int lent = dataset->virtual ? 0 : left_check(dataset);
    *holder = NULL;
    if (lent)
        return lent;
    if (depth == 0)
        ahead_note(dataset->file->ahead, dataset, box);
    if (dataset->virtual)
        return virtual_lend(dataset->virtual, box, bytes, holder, depth);
    lent = cache_lend(dataset->cache, box, bytes, &chunk);
    if (lent >= 0)
        *holder = chunk;
    return lent;
}

int dataset_read_held(struct sfs_dataset *dataset, void *holder, const struct box *box,
                      void *buffer)
{
    return dataset->virtual ? virtual_read_held(holder, box, buffer)
                            : cache_read_held(holder, box, buffer);
}

void dataset_return(struct sfs_dataset *dataset, void *holder)
{
    if (dataset->virtual)
        virtual_return(holder);
    else
        cache_return(holder);
}

/* A box whose elements are read. */
struct box_source {
    struct sfs_dataset *dataset;
    void *held; /* by dataset_lend_box, has all of them; or, NULL, they are wherever they are */
    const struct box *box;
};

static int read_elements(const struct box_source *from, uint64_t first, uint64_t n, char *buffer)
{
    struct sfs_dataset *dataset = from->dataset;
    while (n > 0) {
        static const uint64_t origin[SFS_MAX_RANK];
        struct box piece;
        uint64_t length = box_of_interval(from->box, first, n, &piece);
        struct place place = {buffer, piece.count, origin};
        int error = from->held ? dataset_read_held(dataset, from->held, &piece, buffer)
                               : dataset_read_box(dataset, &piece, &place, 0);
        if (error)
            return error;
        first += length;
        n -= length;
        buffer += length * dataset->layout.element_size;
    }
    return 0;
}

int dataset_read_elements(struct sfs_dataset *dataset, const struct box *box, uint64_t first,
                          uint64_t n, char *buffer)
{
    return read_elements(&(struct box_source){dataset, NULL, box}, first, n, buffer);
}

/* Reads the bytes [skip, skip + n) of one element. */
static int read_part(const struct box_source *from, uint64_t position, size_t skip, char *buffer,
                     size_t n)
{
    char small[64];
    size_t size = from->dataset->layout.element_size;
    char *element = size <= sizeof(small) ? small : malloc(size);
    if (!element)
        return -ENOMEM;
    int error = read_elements(from, position, 1, element);
    if (!error)
        memcpy(buffer, element + skip, n);
    if (element != small)
        free(element);
    return error;
}

/* A part of an element at the start, whole elements, a part at the end. */
static int read_range(const struct box_source *from, uint64_t offset, char *to, size_t n)
{
    size_t size = from->dataset->layout.element_size;
    uint64_t position = offset / size;
    size_t skip = (size_t)(offset % size);
    int error = 0;
    if (skip > 0) {
        size_t part = size - skip < n ? size - skip : n;
        error = read_part(from, position++, skip, to, part);
        to += part;
        n -= part;
    }
    if (!error && n >= size) {
        error = read_elements(from, position, n / size, to);
        position += n / size;
        to += n / size * size;
        n %= size;
    }
    if (!error && n > 0)
        error = read_part(from, position, 0, to, n);
    return error;
}

static int read_once(struct sfs_dataset *dataset, const struct sfs_slab *slab, uint64_t offset,
                     void *buffer, size_t n)
{
    USING(dataset);
    struct box box;
    int error = dataset_range(dataset, slab, offset, n, &box);
    const struct box_source from = {dataset, NULL, &box};
    return error || n == 0 ? error : read_range(&from, offset, buffer, n);
}

int sfs_read(struct sfs_dataset *dataset, const struct sfs_slab *slab, uint64_t offset,
             void *buffer, size_t n)
{
    return FOLLOWING(dataset->file, read_once(dataset, slab, offset, buffer, n));
}

/* Without a loan: what was found on the way is read from, in the same descent; buffer NULL: nothing
 * is read. */
static bool lend_once(struct sfs_dataset *dataset, const struct sfs_slab *slab, uint64_t offset,
                      size_t n, void *buffer, struct sfs_loan *loan, int *error)
{
    USING(dataset);
    struct box box, piece;
    *error = dataset_range(dataset, slab, offset, n, &box);
    if (*error || n == 0)
        return false;

    size_t size = dataset->layout.element_size;
    uint64_t first = offset / size;
    uint64_t elements = (offset + n - 1) / size + 1 - first;
    /* The elements of the range need not be a box (half a row, rows, half a row). They lie without
     * a gap in a chunk if the smallest box of whole slices around them does. */
    box_around_interval(&box, first, elements, &piece, &first);

    const void *bytes;
    void *holder;
    int lent = dataset_lend_box(dataset, &piece, &bytes, &holder, 0);
    if (lent > 0) {
        loan->bytes = (const char *)bytes + first * size + offset % size;
        loan->holder = holder;
        return true;
    }
    *error = lent;
    struct box_source from = {dataset, holder, &box};
    if (lent == 0 && holder) {
        *error = buffer ? read_range(&from, offset, buffer, n) : 0;
        dataset_return(dataset, holder);
    }
    from.held = NULL;
    if (buffer && ((lent == 0 && !holder) || *error == -EAGAIN))
        *error = read_range(&from, offset, buffer, n);
    return false;
}

bool sfs_lend_or_read(struct sfs_dataset *dataset, const struct sfs_slab *slab, uint64_t offset,
                      size_t n, void *buffer, struct sfs_loan *loan, int *error)
{
    unsigned tries = 0;
    bool lent;
    do
        lent = lend_once(dataset, slab, offset, n, buffer, loan, error);
    while (repeat_call(dataset->file, error, &tries));
    return lent;
}

bool sfs_lend(struct sfs_dataset *dataset, const struct sfs_slab *slab, uint64_t offset, size_t n,
              struct sfs_loan *loan, int *error)
{
    return sfs_lend_or_read(dataset, slab, offset, n, NULL, loan, error);
}

void sfs_return(struct sfs_dataset *dataset, struct sfs_loan *loan)
{
    dataset_return(dataset, loan->holder);
    loan->holder = NULL;
}

void sfs_return_last(struct sfs_dataset *dataset, struct sfs_loan *loan)
{
    if (dataset->virtual)
        virtual_return(loan->holder);
    else
        cache_return_last(loan->holder);
    loan->holder = NULL;
}
