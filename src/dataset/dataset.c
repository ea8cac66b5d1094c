/* Open datasets and reading them: slabs and byte ranges down to boxes of elements in the cache. */
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <utlist.h>

#include "cache/cache.h"
#include "common/box.h"
#include "common/log.h"
#include "dataset/private.h"
#include "hdf5/hdf5.h"
#include "selection/selection.h"
#include "store/store.h"

#define MAX_UNUSED 256 /* datasets kept open, with their chunks in the cache, that nobody uses */

static void destroy_dataset(struct sfs_dataset *dataset)
{
    cache_close_dataset(dataset->cache);
    hdf5_dataset_close(dataset->file->hdf5, dataset->address);
    hdf5_info_free(&dataset->info);
    free(dataset->path);
    free(dataset);
}

static int create_dataset(struct sfs_file *file, uint64_t address, const char *path,
                          struct sfs_dataset **out)
{
    struct sfs_dataset *dataset = calloc(1, sizeof(*dataset));
    char *own_path = strdup(path);
    if (!dataset || !own_path) {
        free(dataset);
        free(own_path);
        return -ENOMEM;
    }
    struct hdf5_storage storage;
    int error = hdf5_dataset_open(file->hdf5, address, &dataset->info, &storage);
    if (error) {
        if (error == -EIO)
            log_error("%s: %s: cannot open the dataset at address %" PRIu64 ": %s", sfs_path(file),
                      path, address, hdf5_error());
        free(own_path);
        free(dataset);
        return error;
    }
    dataset->file = file;
    dataset->address = address;
    dataset->path = own_path;
    if (!dataset->info.type.has_pointers) {
        error = layout_init(&dataset->layout, file->store, file->hdf5, address, own_path,
                            &dataset->info, &storage);
        if (!error)
            error = cache_open_dataset(file->cache, &dataset->layout, &dataset->cache);
    }
    if (error)
        destroy_dataset(dataset);
    else
        *out = dataset;
    return error;
}

int sfs_dataset_open(struct sfs_file *file, uint64_t address, const char *path,
                     struct sfs_dataset **out)
{
    struct sfs_dataset *dataset;
    int error = 0;
    pthread_mutex_lock(&file->lock);
    HASH_FIND(hh, file->datasets, &address, sizeof(address), dataset);
    if (!dataset) {
        error = create_dataset(file, address, path, &dataset);
        if (!error) {
            HASH_ADD(hh, file->datasets, address, sizeof(dataset->address), dataset);
            if (hash_failed()) {
                destroy_dataset(dataset);
                error = -ENOMEM;
            }
        }
    } else if (dataset->users == 0) {
        DL_DELETE(file->unused, dataset);
        file->n_unused--;
    }
    if (!error) {
        dataset->users++;
        *out = dataset;
    }
    pthread_mutex_unlock(&file->lock);
    return error;
}

void sfs_dataset_close(struct sfs_dataset *dataset)
{
    if (!dataset)
        return;
    struct sfs_file *file = dataset->file;
    struct sfs_dataset *oldest = NULL;
    pthread_mutex_lock(&file->lock);
    if (--dataset->users == 0) {
        DL_APPEND(file->unused, dataset);
        if (++file->n_unused > MAX_UNUSED) {
            oldest = file->unused;
            DL_DELETE(file->unused, oldest);
            file->n_unused--;
            HASH_DEL(file->datasets, oldest);
            destroy_dataset(oldest);
        }
    }
    pthread_mutex_unlock(&file->lock);
}

void dataset_close_all(struct sfs_file *file)
{
    struct sfs_dataset *dataset, *next;
    HASH_ITER (hh, file->datasets, dataset, next) {
        HASH_DEL(file->datasets, dataset);
        destroy_dataset(dataset);
    }
}

const struct sfs_dataset_info *sfs_dataset_info(const struct sfs_dataset *dataset)
{
    return &dataset->info;
}

/* A slab that lies in the dataset as a box, and the bytes of its dense view. */
static int check_slab(const struct sfs_dataset *dataset, const struct sfs_slab *slab,
                      struct box *box, uint64_t *bytes)
{
    const struct layout *layout = &dataset->layout;
    if (dataset->info.type.has_pointers)
        return -EOPNOTSUPP;
    if (slab->rank != layout->rank)
        return -EINVAL;
    box->rank = slab->rank;
    for (int i = 0; i < slab->rank; i++) {
        if (slab->start[i] > layout->dims[i] || slab->count[i] > layout->dims[i] - slab->start[i])
            return -EINVAL;
        box->start[i] = slab->start[i];
        box->count[i] = slab->count[i];
    }
    return box_product(box->count, box->rank, layout->element_size, bytes) ? 0 : -EINVAL;
}

static int check_range(const struct sfs_dataset *dataset, const struct sfs_slab *slab,
                       uint64_t offset, size_t n, struct box *box)
{
    uint64_t bytes;
    int error = check_slab(dataset, slab, box, &bytes);
    if (error)
        return error;
    return offset <= bytes && n <= bytes - offset ? 0 : -EINVAL;
}

/* Reads n elements from row-major position first of a box on. */
static int read_elements(struct sfs_dataset *dataset, const struct box *box, uint64_t first,
                         uint64_t n, char *buffer)
{
    while (n > 0) {
        struct box piece;
        uint64_t length = box_of_interval(box, first, n, &piece);
        int error = cache_read(dataset->cache, &piece, buffer);
        if (error)
            return error;
        first += length;
        n -= length;
        buffer += length * dataset->layout.element_size;
    }
    return 0;
}

/* Reads the bytes [skip, skip + n) of one element. */
static int read_part(struct sfs_dataset *dataset, const struct box *box, uint64_t position,
                     size_t skip, char *buffer, size_t n)
{
    char small[64];
    size_t size = dataset->layout.element_size;
    char *element = size <= sizeof(small) ? small : malloc(size);
    if (!element)
        return -ENOMEM;
    int error = read_elements(dataset, box, position, 1, element);
    if (!error)
        memcpy(buffer, element + skip, n);
    if (element != small)
        free(element);
    return error;
}

int sfs_read(struct sfs_dataset *dataset, const struct sfs_slab *slab, uint64_t offset,
             void *buffer, size_t n)
{
    struct box box;
    int error = check_range(dataset, slab, offset, n, &box);
    if (error || n == 0)
        return error;

    /* A part of an element at the start, whole elements, a part at the end. */
    size_t size = dataset->layout.element_size;
    char *to = buffer;
    uint64_t position = offset / size;
    size_t skip = (size_t)(offset % size);
    if (skip > 0) {
        size_t part = size - skip < n ? size - skip : n;
        error = read_part(dataset, &box, position++, skip, to, part);
        to += part;
        n -= part;
    }
    if (!error && n >= size) {
        error = read_elements(dataset, &box, position, n / size, to);
        position += n / size;
        to += n / size * size;
        n %= size;
    }
    if (!error && n > 0)
        error = read_part(dataset, &box, position, 0, to, n);
    return error;
}

bool sfs_lend(struct sfs_dataset *dataset, const struct sfs_slab *slab, uint64_t offset, size_t n,
              struct sfs_loan *loan, int *error)
{
    struct box box, piece;
    *error = check_range(dataset, slab, offset, n, &box);
    if (*error || n == 0)
        return false;

    size_t size = dataset->layout.element_size;
    uint64_t first = offset / size;
    uint64_t elements = (offset + n - 1) / size + 1 - first;
    /* The elements of the range need not be a box (half a row, rows, half a row). They lie without
     * a gap in a chunk if the smallest box of whole slices around them does. */
    box_around_interval(&box, first, elements, &piece, &first);

    const void *bytes;
    struct chunk *chunk;
    int lent = cache_lend(dataset->cache, &piece, &bytes, &chunk);
    if (lent <= 0) {
        *error = lent;
        return false;
    }
    loan->bytes = (const char *)bytes + first * size + offset % size;
    loan->holder = chunk;
    return true;
}

void sfs_return(struct sfs_dataset *dataset, struct sfs_loan *loan)
{
    cache_return(dataset->cache, loan->holder);
    loan->holder = NULL;
}

int sfs_encode_defined(struct sfs_dataset *dataset, const struct sfs_slab *slab, int space_rank,
                       void **encoded, size_t *n)
{
    if (space_rank < 0 || space_rank > slab->rank)
        return -EINVAL;
    (void)dataset; /* all elements of a dense dataset are defined */
    return selection_encode_all(space_rank, slab->count + slab->rank - space_rank, encoded, n);
}

int sfs_text(struct sfs_dataset *dataset, size_t limit, char **text, size_t *n)
{
    int error = hdf5_text(dataset->file->hdf5, dataset->address, limit, text, n);
    if (error == -EIO)
        log_error("%s: %s: cannot read it as text: %s", sfs_path(dataset->file), dataset->path,
                  hdf5_error());
    return error;
}
