/* Elements with parts of variable length of ordinary datasets, which libhdf5 reads and writes: in
 * the form that sfs_read_elements and sfs_write have of structured ones. */
#include "dataset/variable_by_libhdf5.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "common/box.h"
#include "common/interrupt.h"
#include "common/log.h"
#include "common/size.h"
#include "dataset/series.h"
#include "format/stored_layout.h"
#include "hdf5/hdf5.h"

#define BATCH_ELEMENTS 4096              /* that are read or written by one call of libhdf5 */
#define BATCH_BYTES    ((size_t)4 << 20) /* of them, if it is more than one */

/* One call. */
struct calling {
    struct sfs_dataset *dataset;
    struct slots *slots;
    struct box box;
    uint64_t n; /* elements of it */
    size_t batch;
};

static int begin(struct calling *calling, struct sfs_dataset *dataset, const struct box *box)
{
    struct why why;
    *calling = (struct calling){.dataset = dataset, .box = *box};
    if (!box_product(box->count, box->rank, 1, &calling->n))
        return -EINVAL;
    /* Not by libhdf5, which is not to choose where pointers are. */
    int error = slots_of_encoded(&dataset->info.encoded_type, &calling->slots, &why);
    if (error == -EOPNOTSUPP || error == -EILSEQ)
        log_error("%s: %s: %s", sfs_path(dataset->file), dataset->path, why.text);
    if (error)
        return error == -EILSEQ ? -EIO : error;
    size_t size = calling->slots->size;
    calling->batch = size < BATCH_BYTES / BATCH_ELEMENTS ? BATCH_ELEMENTS : BATCH_BYTES / size + 1;
    return 0;
}

/* ---- Reading ---- */

struct bytes {
    char *bytes;
    size_t n, room;
};

static int append(struct bytes *all, const char *bytes, size_t n)
{
    if (n > all->room - all->n) {
        size_t room = size_sum(size_product(all->room, 2), n);
        char *grown = room < SIZE_MAX / 2 ? realloc(all->bytes, room) : NULL;
        if (!grown)
            return -ENOMEM;
        all->bytes = grown;
        all->room = room;
    }
    if (n > 0)
        memcpy(all->bytes + all->n, bytes, n);
    all->n += n;
    return 0;
}

static void too_large(const struct calling *calling, const char *doing)
{
    log_error("%s: %s: cannot %s it: an element has more than %zu MiB",
              sfs_path(calling->dataset->file), calling->dataset->path, doing,
              SIZE_OF_MOST_ELEMENT >> 20);
}

/* Elements of the dataset in row-major order, in halves where they are too much for one call; so are
 * those behind them then. */
static int read_some(struct calling *calling, uint64_t first, uint64_t n, struct bytes *all)
{
    char *bytes;
    size_t bytes_n;
    int error =
        dataset_stored_elements(calling->dataset, first, n,
                                n > 1 ? 2 * BATCH_BYTES : SIZE_OF_MOST_ELEMENT, &bytes, &bytes_n);
    if ((error == -EFBIG || error == -ENOMEM) && n > 1) {
        calling->batch = (size_t)n / 2;
        error = read_some(calling, first, n / 2, all);
        return error ? error : read_some(calling, first + n / 2, n - n / 2, all);
    }
    if (error == -EFBIG)
        too_large(calling, "read");
    if (error)
        return error;
    error = append(all, bytes, bytes_n);
    free(bytes);
    return error ? error : interrupt_check();
}

/* How many elements of the box follow each other in the dataset: of the last axes, which it has
 * whole, and of the one before. */
static uint64_t adjacent(const struct box *box, const uint64_t *dims)
{
    uint64_t n = 1;
    for (int axis = box->rank - 1; axis >= 0; axis--) {
        n *= box->count[axis];
        if (box->count[axis] != dims[axis])
            break;
    }
    return n;
}

static int read_box(struct calling *calling, struct bytes *all)
{
    const struct box *box = &calling->box;
    const uint64_t *dims = calling->dataset->info.dims;
    uint64_t row = adjacent(box, dims);
    int error = 0;
    for (uint64_t done = 0, here; done < calling->n && !error; done += here) {
        here = row - done % row;
        here = here < calling->batch ? here : calling->batch;
        uint64_t first = box_translate(box->rank, box->count, done, dims, box->start);
        error = read_some(calling, first, here, all);
    }
    return error;
}

static int not_elements(const struct calling *calling, const char *why)
{
    log_error("%s: %s: cannot read its elements: %s", sfs_path(calling->dataset->file),
              calling->dataset->path, why);
    return -EIO;
}

static int load(const struct calling *calling, const struct bytes *all, void **elements)
{
    uint64_t n;
    size_t bytes;
    struct why why;
    if (slot_measure(calling->slots, all->bytes, all->n, &n, &bytes, &why))
        return not_elements(calling, why.text);
    if (n != calling->n)
        return not_elements(calling, "there is another number of them");
    char *memory = malloc(bytes ? bytes : 1);
    if (!memory)
        return -ENOMEM;
    slot_load(calling->slots, all->bytes, all->n, n, memory, 0);
    slots_relocate(calling->slots, memory, n, memory);
    *elements = memory;
    return 0;
}

int ordinary_read(struct sfs_dataset *dataset, const struct box *box, void **elements)
{
    struct calling calling;
    struct bytes all = {0};
    int error = begin(&calling, dataset, box);
    if (error)
        return error;
    error = read_box(&calling, &all);
    if (!error)
        error = load(&calling, &all, elements);
    free(all.bytes);
    slots_free(calling.slots);
    return error;
}

/* ---- Writing ---- */

/* The bytes of all, and of each. */
static int measure(const struct calling *calling, const char *elements, uint64_t n,
                   uint64_t *lengths, size_t *all)
{
    *all = 0;
    for (uint64_t i = 0; i < n; i++) {
        const struct sfs_sequence one = {.elements = elements + i * calling->slots->size, .n = 1};
        size_t bytes = slot_stored_bytes(calling->slots, &one);
        lengths[i] = bytes;
        *all = size_sum(*all, bytes);
        if (*all > SIZE_OF_MOST_ELEMENT)
            return -EFBIG;
    }
    return 0;
}

static int write_one_call(const struct calling *calling, const struct box *box, uint64_t n,
                          const char *elements, const uint64_t *lengths, size_t bytes)
{
    struct sfs_file *file = calling->dataset->file;
    const struct sfs_sequence all = {.elements = elements, .n = n};
    char *stored = malloc(bytes ? bytes : 1);
    if (!stored)
        return -ENOMEM;
    (void)slot_store(calling->slots, &all, stored);
    pthread_rwlock_rdlock(&file->commit_lock);
    int error = hdf5_write_sequences(file->hdf5, calling->dataset->address, box->start, box->count,
                                     &(struct hdf5_sequences){lengths, stored, bytes});
    pthread_rwlock_unlock(&file->commit_lock);
    free(stored);
    if (error == -EIO || error == -EINVAL || error == -EOPNOTSUPP || error == -EFBIG)
        log_error("%s: %s: cannot write: %s", sfs_path(file), calling->dataset->path, hdf5_error());
    return error;
}

/* n elements of the box, the first-th on; fewer where they are too much for one call. *n is how
 * many were written. */
static int write_some(const struct calling *calling, uint64_t first, uint64_t *n,
                      const char *elements, uint64_t *lengths)
{
    struct box piece;
    size_t bytes;
    int error;
    do {
        *n = box_of_interval(&calling->box, first, *n, &piece);
        error = measure(calling, elements, *n, lengths, &bytes);
        if (*n == 1 || (!error && bytes <= BATCH_BYTES))
            break;
        *n /= 2;
    } while (true);
    if (error == -EFBIG)
        too_large(calling, "write");
    return error ? error : write_one_call(calling, &piece, *n, elements, lengths, bytes);
}

int ordinary_write(struct sfs_dataset *dataset, const struct box *box, const void *elements)
{
    struct calling calling;
    uint64_t *lengths = NULL;
    const char *from = elements;
    int error = series_is_address(dataset->address) ? -EOPNOTSUPP : begin(&calling, dataset, box);
    if (error)
        return error;
    lengths = calloc(calling.batch, sizeof(*lengths));
    error = lengths ? 0 : -ENOMEM;
    for (uint64_t done = 0; done < calling.n && !error;) {
        uint64_t left = calling.n - done, n = left < calling.batch ? left : calling.batch;
        error = write_some(&calling, done, &n, from, lengths);
        from += n * calling.slots->size;
        done += n;
        if (!error)
            error = interrupt_check();
    }
    free(lengths);
    slots_free(calling.slots);
    return error;
}

int elements_as_stored(struct sfs_dataset *dataset, const void *elements, uint64_t n, char **stored,
                       size_t *stored_n)
{
    const struct sfs_sequence all = {.elements = elements, .n = n};
    size_t bytes = dataset->slots ? slot_stored_bytes(dataset->slots, &all) : 0;
    if (!dataset->slots)
        return -EOPNOTSUPP;
    if (bytes > SIZE_OF_MOST_ELEMENT)
        return -EFBIG;
    *stored = malloc(bytes ? bytes : 1);
    if (!*stored)
        return -ENOMEM;
    (void)slot_store(dataset->slots, &all, *stored);
    *stored_n = bytes;
    return 0;
}

bool ordinary_is(const struct sfs_dataset *dataset)
{
    return !dataset->sparse && dataset->info.type.has_pointers;
}
