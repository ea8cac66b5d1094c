/* Writing byte ranges of the dense view of a slab, which may cut elements. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "cache/cache.h"
#include "common/box.h"
#include "common/interrupt.h"
#include "dataset/private.h"

int dataset_each_box(struct sfs_dataset *dataset, const struct box *box, uint64_t first, uint64_t n,
                     const char *elements,
                     int (*action)(struct sfs_dataset *dataset, const struct box *piece,
                                   const void *elements))
{
    int error = 0;
    while (n > 0 && !error) {
        struct box piece;
        uint64_t length = box_of_interval(box, first, n, &piece);
        error = action(dataset, &piece, elements);
        first += length;
        n -= length;
        if (elements)
            elements += length * dataset->info.type.size;
    }
    return error;
}

struct bytes {
    struct sfs_dataset *dataset;
    const struct sfs_slab *slab;
    struct box box; /* the same */
    bool sparsify;
};

static int write_elements(const struct bytes *bytes, uint64_t first, uint64_t n,
                          const char *elements)
{
    return bytes->sparsify
               ? dataset_write_sparsely(bytes->dataset, &bytes->box, first, n, elements)
               : dataset_each_box(bytes->dataset, &bytes->box, first, n, elements, dataset_put_box);
}

/* Writes the bytes [skip, skip + n) of one element; the caller excludes other changes of it. */
static int write_part(const struct bytes *bytes, uint64_t position, size_t skip, const char *from,
                      size_t n)
{
    struct sfs_dataset *dataset = bytes->dataset;
    char small[64];
    size_t size = dataset->info.type.size;
    char *element = size <= sizeof(small) ? small : malloc(size);
    if (!element)
        return -ENOMEM;
    int error = dataset_read_elements(dataset, &bytes->box, position, 1, element);
    if (!error) {
        memcpy(element + skip, from, n);
        error = write_elements(bytes, position, 1, element);
    }
    if (element != small)
        free(element);
    return error;
}

/* A part of an element at the start, whole elements, a part at the end. */
static int write_bytes(const struct bytes *bytes, uint64_t offset, const char *from, size_t n)
{
    size_t size = bytes->dataset->info.type.size, skip = (size_t)(offset % size);
    uint64_t position = offset / size;
    int error = 0;
    if (skip > 0) {
        size_t part = size - skip < n ? size - skip : n;
        error = write_part(bytes, position++, skip, from, part);
        from += part;
        n -= part;
    }
    if (!error && n >= size) {
        error = write_elements(bytes, position, n / size, from);
        position += n / size;
        from += n / size * size;
        n %= size;
    }
    return !error && n > 0 ? write_part(bytes, position, 0, from, n) : error;
}

static int prepare_box(struct sfs_dataset *dataset, const struct box *box, const void *elements)
{
    (void)elements;
    return cache_prepare_box(dataset->cache, box);
}

/* What is written to chunks that have to be decoded is interrupted, if at all, before the first change. Contiguous
 * data are not decoded; what can be interrupted there is the making of their place. */
static int write_prepared(const struct bytes *bytes, uint64_t offset, const char *from, size_t n)
{
    struct sfs_dataset *dataset = bytes->dataset;
    size_t size = dataset->info.type.size, skip = (size_t)(offset % size);
    if (dataset->info.layout == SFS_CONTIGUOUS || !interrupt_is_possible())
        return write_bytes(bytes, offset, from, n);
    int error =
        dataset->layout.ops->insert && !dataset->layout.ops->write
            ? dataset_each_box(dataset, &bytes->box, offset / size,
                               (skip + n) / size + ((skip + n) % size > 0), NULL, prepare_box)
            : 0;
    INTERRUPTED_LATE();
    return error ? error : write_bytes(bytes, offset, from, n);
}

static int write_checked(struct bytes *bytes, uint64_t offset, const void *from, size_t n)
{
    struct sfs_dataset *dataset = bytes->dataset;
    int error = dataset_range(dataset, bytes->slab, offset, n, &bytes->box);
    if (!error)
        error = interrupt_check(); /* one of many calls */
    if (!error && n > 0)
        error = dataset_check_writable(dataset);
    return error || n == 0 ? error : write_prepared(bytes, offset, from, n);
}

static int write_whole(struct bytes *bytes, uint64_t offset, const void *from, size_t n)
{
    CHANGING(bytes->dataset);
    return write_checked(bytes, offset, from, n);
}

static int write_cut(struct bytes *bytes, uint64_t offset, const void *from, size_t n)
{
    PATCHING(bytes->dataset);
    return write_checked(bytes, offset, from, n);
}

int sfs_write_bytes(struct sfs_dataset *dataset, const struct sfs_slab *slab, uint64_t offset,
                    const void *from, size_t n, bool sparsify)
{
    struct bytes bytes = {dataset, slab, .sparsify = sparsify && dataset->sparse};
    size_t size = dataset->info.type.size;
    WRITING(dataset->file);
    if (writing.error)
        return writing.error;
    return offset % size || n % size ? write_cut(&bytes, offset, from, n)
                                     : write_whole(&bytes, offset, from, n);
}
