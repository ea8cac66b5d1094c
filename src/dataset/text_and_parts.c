/* Datasets as text: libhdf5 reads those that are compact or have pointers, and writes the elements of
 * datatypes that are not plain.
 * (It would keep what it has read of a chunk, which we then change behind its back.) */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

#include "cache/cache.h"
#include "common/box.h"
#include "common/log.h"
#include "common/size.h"
#include "common/type_references.h"
#include "dataset/private.h"
#include "dataset/references.h"
#include "dataset/sequences.h"
#include "dataset/variable_by_libhdf5.h"
#include "dataset/virtual_dataset.h"
#include "format/variable_slots.h"
#include "hdf5/hdf5.h"
#include "selection/selection.h"

#define BATCH_BYTES ((size_t)1 << 20) /* of elements that become text at once */

struct writing {
    struct sfs_dataset *dataset;
    struct box box; /* the whole dataset */
    uint64_t total; /* elements of it */
    char *elements; /* room for a batch */
};

static int write_batch(struct writing *writing, uint64_t first, uint64_t n, FILE *out)
{
    uint64_t row_length = writing->total == 1 ? 0 : writing->box.count[writing->box.rank - 1];
    char *text;
    size_t text_n;
    int error = dataset_read_elements(writing->dataset, &writing->box, first, n, writing->elements);
    if (error)
        return error;
    struct hdf5_owner owner = dataset_owner(writing->dataset);
    const struct hdf5_elements elements = {
        .type = &writing->dataset->info.encoded_type,
        .first = first,
        .n = n,
        .row_length = row_length,
        .elements = {writing->elements, (size_t)n * writing->dataset->layout.element_size}};
    error = hdf5_elements_text(&owner, &elements, &text, &text_n);
    if (error == -EIO || error == -EINVAL) {
        log_error("%s: %s: cannot write it as text: %s", sfs_path(writing->dataset->file),
                  writing->dataset->path, hdf5_error());
        return -EIO;
    }
    if (!error) {
        fwrite(text, 1, text_n, out); /* what fails here, fails in fclose, too */
        free(text);
    }
    return error;
}

static int write_all(struct writing *writing, size_t limit, char **text, size_t *n)
{
    size_t size = writing->dataset->layout.element_size;
    uint64_t batch = size < BATCH_BYTES ? BATCH_BYTES / size : 1;
    writing->elements = malloc(batch * size);
    FILE *out = writing->elements ? open_memstream(text, n) : NULL;
    int error = out ? 0 : -ENOMEM;
    for (uint64_t first = 0; first < writing->total && !error; first += batch) {
        uint64_t left = writing->total - first;
        error = write_batch(writing, first, left < batch ? left : batch, out);
        if (!error && (uint64_t)ftello(out) > limit)
            error = -EFBIG;
    }
    free(writing->elements);
    if (out && fclose(out) != 0 && !error)
        error = -ENOMEM;
    if (error && out) {
        free(*text);
        *text = NULL;
    }
    return error;
}

static int own_text(struct sfs_dataset *dataset, size_t limit, char **text, size_t *n)
{
    const struct layout *layout = &dataset->layout;
    struct writing writing = {.dataset = dataset, .box.rank = layout->rank};
    if (dataset->info.type.has_pointers)
        return -EOPNOTSUPP;
    for (int i = 0; i < layout->rank; i++)
        writing.box.count[i] = layout->dims[i];
    /* Every element takes a byte at least. */
    if (!box_product(layout->dims, layout->rank, 1, &writing.total) || writing.total > limit)
        return -EFBIG;
    return write_all(&writing, limit, text, n);
}

/* Whether the dataset, and what libhdf5 is to read of other files, is there: n elements from the first-th on. */
static int check_sources(struct sfs_dataset *dataset, uint64_t first, uint64_t n)
{
    struct box all = {.rank = dataset->info.rank}, box;
    int error = dataset->layout.lost ? dataset->layout.lost : left_check(dataset);
    if (!dataset->virtual)
        return error;
    memcpy(all.count, dataset->info.dims, sizeof(all.count));
    while (n > 0 && !error) {
        uint64_t here = box_of_interval(&all, first, n, &box);
        error = virtual_check(dataset->virtual, &box);
        first += here;
        n -= here;
    }
    return error;
}

static bool has_own_text(const struct sfs_dataset *dataset)
{
    bool is_cached = dataset->cache && dataset->info.layout != SFS_COMPACT;
    return dataset->sparse || is_cached || (dataset->virtual && !dataset->info.type.has_pointers);
}

static int text_once(struct sfs_dataset *dataset, size_t limit, char **text, size_t *n)
{
    USING(dataset);
    if (has_own_text(dataset))
        return own_text(dataset, limit, text, n);
    int error = dataset->cache ? cache_flush(dataset->file->cache, dataset->cache) : 0;
    if (!error)
        error = check_sources(dataset, 0, dataset->info.elements);
    if (error)
        return error;
    error = hdf5_text(dataset->file->hdf5, dataset->address, limit, text, n);
    if (error == -EIO)
        log_error("%s: %s: cannot read it as text: %s", sfs_path(dataset->file), dataset->path,
                  hdf5_error());
    return error;
}

/* Of what is wanted, which are lines or JSON. */
static int lines_of(struct sfs_dataset *dataset, const struct hdf5_parts *wanted,
                    const struct sfs_encoded *bytes, char **out, size_t *out_n)
{
    bool is_json = wanted->parts == SFS_JSON;
    struct hdf5_owner owner = dataset_owner(dataset);
    const struct hdf5_elements elements = {.type = &dataset->info.encoded_type,
                                           .first = wanted->first,
                                           .n = wanted->n,
                                           .row_length = is_json ? HDF5_JSON : HDF5_LINES,
                                           .elements = *bytes};
    return hdf5_elements_text(&owner, &elements, out, out_n);
}

/* Bytes that libhdf5 has no part in reading. */
static int own_lines(struct sfs_dataset *dataset, const struct hdf5_parts *wanted, char **out,
                     size_t *out_n)
{
    const uint64_t first = wanted->first, n = wanted->n;
    const struct layout *layout = &dataset->layout;
    struct box box = {.rank = layout->rank};
    uint64_t total, bytes;
    for (int i = 0; i < layout->rank; i++)
        box.count[i] = layout->dims[i];
    if (!box_product(layout->dims, layout->rank, 1, &total) || first > total || n > total - first)
        return -EINVAL;
    if (!box_product(&n, 1, layout->element_size, &bytes) || bytes > wanted->most)
        return -EFBIG;
    char *elements = malloc(bytes ? (size_t)bytes : 1);
    if (!elements)
        return -ENOMEM;
    const struct sfs_encoded encoded = {elements, (size_t)bytes};
    int error = dataset_read_elements(dataset, &box, first, n, elements);
    if (!error)
        error = lines_of(dataset, wanted, &encoded, out, out_n);
    free(elements);
    return error;
}

#define MOST_ELEMENTS ((size_t)128 << 20) /* bytes, without what they lead to */

/* Of a structured dataset. taken: as of sequences_read_selected. */
static int read_structured(struct sfs_dataset *dataset, uint64_t first, uint64_t n, size_t *taken,
                           void **elements)
{
    USING(dataset);
    struct selection selection = {.values = n};
    if (n > SFS_MOST_PARTS || first > dataset->info.elements || n > dataset->info.elements - first)
        return -EINVAL;
    if (size_product((size_t)n, dataset->layout.slots->size) > MOST_ELEMENTS)
        return -EFBIG;
    int error = n > 0 ? runs_append(&selection.runs, first, first + n) : 0;
    if (!error)
        error = sequences_read_selected(dataset, &selection, SIZE_OF_MOST_ELEMENT, taken, elements);
    selection_free(&selection);
    return error;
}

static int cannot_read(const struct sfs_dataset *dataset, uint64_t first, uint64_t n, int error)
{
    if (error == -EIO)
        log_error("%s: %s: cannot read elements %llu to %llu: %s", sfs_path(dataset->file),
                  dataset->path, (unsigned long long)first, (unsigned long long)(first + n),
                  hdf5_error());
    return error;
}

#define MOST_REFERENCES ((size_t)128 << 20) /* bytes of what they lead to */

/* Elements that were read, as text. */
static int text_of(struct sfs_dataset *dataset, const struct hdf5_parts *wanted, void *elements,
                   char **out, size_t *out_n)
{
    const uint64_t first = wanted->first, n = wanted->n;
    struct sfs_encoded stored = {0};
    char *bytes = NULL, *references;
    int error = references_to_text(dataset, elements, n, MOST_REFERENCES, &references);
    if (!error)
        error = elements_as_stored(dataset, elements, n, &bytes, &stored.n);
    stored.bytes = bytes;
    free(references);
    if (!error)
        error = lines_of(dataset, wanted, &stored, out, out_n);
    if (error == -EIO || error == -EINVAL)
        error = cannot_read(dataset, first, n, -EIO);
    free(bytes);
    return error;
}

/* Whose elements have parts of variable length. Their text is made without a hold of the dataset, as what
 * references lead to may be any other one, which may lead back. */
static int structured_text(struct sfs_dataset *dataset, const struct hdf5_parts *wanted, char **out,
                           size_t *out_n)
{
    void *elements = NULL;
    size_t taken = 0;
    int error = read_structured(dataset, wanted->first, wanted->n, &taken, &elements);
    if (!error)
        error = text_of(dataset, wanted, elements, out, out_n);
    free(elements);
    selection_memory_give_back(taken);
    if (!error && *out_n > wanted->most) {
        free(*out);
        *out = NULL;
        return -EFBIG;
    }
    return error;
}

/* What libhdf5 reads. */
static int library_parts(struct sfs_dataset *dataset, const struct hdf5_parts *wanted, char **bytes,
                         size_t *bytes_n)
{
    int error = check_sources(dataset, wanted->first, wanted->n);
    return error ? error
                 : hdf5_parts(dataset->file->hdf5, dataset->address, wanted, bytes, bytes_n);
}

int dataset_stored_elements(struct sfs_dataset *dataset, uint64_t first, uint64_t n, size_t most,
                            char **bytes, size_t *bytes_n)
{
    const struct hdf5_parts wanted = {HDF5_STORED, first, n, most};
    if (dataset->sparse || dataset->cache)
        return -EOPNOTSUPP;
    return cannot_read(dataset, first, n, library_parts(dataset, &wanted, bytes, bytes_n));
}

static int parts_once(struct sfs_dataset *dataset, const struct hdf5_parts *wanted, char **bytes,
                      size_t *bytes_n)
{
    USING(dataset);
    const enum sfs_parts parts = wanted->parts;
    const uint64_t first = wanted->first, n = wanted->n;
    const struct sfs_type *type = &dataset->info.type;
    bool is_sequence = type->class == SFS_VARIABLE && !type->is_string && !type->base->has_pointers;
    bool can = parts == SFS_SEQUENCES ? is_sequence
               : parts == SFS_LENGTHS ? type->class == SFS_VARIABLE
                                      : true;
    if (n > SFS_MOST_PARTS)
        return -EINVAL;
    bool is_own = sequences_are_all(dataset);
    if (!can || (type->has_pointers && !is_own && (dataset->sparse || dataset->cache)))
        return -EOPNOTSUPP;
    if (first > dataset->info.elements || n > dataset->info.elements - first)
        return -EINVAL;
    if (is_own)
        return sequences_read(dataset, wanted, bytes, bytes_n);
    return cannot_read(dataset, first, n,
                       type->has_pointers ? library_parts(dataset, wanted, bytes, bytes_n)
                                          : own_lines(dataset, wanted, bytes, bytes_n));
}

/* Whether text is made of elements that were read before; strings are their own lines. */
static bool is_structured_text(const struct sfs_dataset *dataset, enum sfs_parts parts)
{
    bool is_string = dataset->info.type.class == SFS_VARIABLE && dataset->info.type.is_string;
    return sequences_are_read(dataset) && (parts == SFS_JSON || (parts == SFS_LINES && !is_string));
}

int sfs_read_parts(struct sfs_dataset *dataset, enum sfs_parts parts, uint64_t first, uint64_t n,
                   size_t most, char **bytes, size_t *bytes_n)
{
    const struct hdf5_parts wanted = {parts, first, n, most};
    char *read;
    size_t read_n;
    int error = FOLLOWING(dataset->file, is_structured_text(dataset, parts)
                                             ? structured_text(dataset, &wanted, &read, &read_n)
                                             : parts_once(dataset, &wanted, &read, &read_n));
    if (error)
        return error;
    *bytes = read;
    *bytes_n = read_n;
    return 0;
}

int sfs_text(struct sfs_dataset *dataset, size_t limit, char **text, size_t *n)
{
    char *made;
    size_t made_n;
    int error = FOLLOWING(dataset->file, text_once(dataset, limit, &made, &made_n));
    if (error)
        return error;
    *text = made;
    *n = made_n;
    return 0;
}
