#include "dataset/sequences.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "cache/cache.h"
#include "common/interrupt.h"
#include "common/lines.h"
#include "common/pool.h"
#include "common/size.h"
#include "format/heap.h"
#include "format/structure.h"
#include "layout/form.h"
#include "layout/sparse.h"
#include "store/store.h"

#define ASK_EVERY 4096 /* elements, whether the call is to end early */

/* Which chunk it is: where it is stored, in which state of dataset and file. No gaps. */
struct chunk_key {
    const struct sfs_dataset *dataset;
    uint64_t scaled[SFS_MAX_RANK];
    uint64_t address, size, changes, states;
};

struct sequences {
    pthread_mutex_t lock; /* guards what follows */
    struct pool pool;
    bool has_chunk;
    struct chunk_key key;
    struct cache_form form;
    struct heap *heap; /* NULL: nothing is stored */
};

/* One call, which holds the lock. */
struct reading {
    struct sfs_dataset *dataset;
    struct sequences *sequences;
    bool has_looked; /* into the chunk that is at key.scaled now */
};

bool sequences_are_read(const struct sfs_dataset *dataset)
{
    const struct sfs_type *type = &dataset->info.type;
    return dataset->sparse && dataset->sparse->format.n_sections > SFS_SECTIONS &&
           type->class == SFS_VARIABLE && type->size == HEAP_ELEMENT_BYTES &&
           (type->is_string || (!type->base->has_pointers && type->base->size > 0));
}

/* Bytes of what sequences are of. */
static size_t base_size(const struct sfs_dataset *dataset)
{
    const struct sfs_type *type = &dataset->info.type;
    return type->is_string ? 1 : type->base->size;
}

int sequences_create(struct sequences **out)
{
    struct sequences *sequences = calloc(1, sizeof(*sequences));
    if (!sequences)
        return -ENOMEM;
    pthread_mutex_init(&sequences->lock, NULL);
    pool_init(&sequences->pool, 0);
    *out = sequences;
    return 0;
}

static void forget_chunk(struct sequences *sequences)
{
    heap_close(sequences->heap);
    sequences->heap = NULL;
    form_free(&sequences->form, &sequences->pool);
    sequences->has_chunk = false;
}

void sequences_destroy(struct sequences *sequences)
{
    if (!sequences)
        return;
    forget_chunk(sequences);
    pool_destroy(&sequences->pool);
    pthread_mutex_destroy(&sequences->lock);
    free(sequences);
}

void sequences_forget(struct sequences *sequences, const struct sfs_dataset *dataset)
{
    pthread_mutex_lock(&sequences->lock);
    if (sequences->has_chunk && sequences->key.dataset == dataset)
        forget_chunk(sequences);
    pthread_mutex_unlock(&sequences->lock);
}

/* Bytes that the heap of a chunk takes, besides its own, for where its sequences are. */
static size_t heap_bytes(const struct layout *layout, const struct chunk_record *record)
{
    const struct sparse *sparse = layout->sparse;
    uint64_t n = sparse->header.filtered
                     ? record->unfiltered_size[SFS_SECTIONS]
                     : chunk_record_section_size(&sparse->format, record, SFS_SECTIONS);
    return size_product(size_of(n), HEAP_FACTOR);
}

static int decode_chunk(struct reading *reading, const uint64_t *scaled,
                        const struct chunk_record *record)
{
    const unsigned parts = PART_DEFINED | PART_PACKED | PART_HEAP;
    struct layout *layout = &reading->dataset->layout;
    struct sequences *sequences = reading->sequences;
    uint64_t offset, n;
    layout->ops->stored(layout, record, parts, &offset, &n);
    size_t bytes = size_sum(layout->ops->decode_bytes(layout, record, parts), size_of(n));
    bytes = size_sum(bytes, heap_bytes(layout, record));
    int error = layout_check_bytes(layout, scaled, record->address, bytes,
                                   cache_chunk_limit(reading->dataset->file->cache));
    if (error)
        return error;
    void *stored = pool_get(&sequences->pool, (size_t)n);
    if (!stored)
        return -ENOMEM;
    error = store_read(reading->dataset->file->store, record->address + offset, stored, (size_t)n);
    if (!error)
        error = layout->ops->decode(layout, scaled, record, parts, stored, &sequences->pool,
                                    &sequences->form);
    pool_put(&sequences->pool, stored, (size_t)n);
    return error;
}

static int open_heap(const struct layout *layout, const uint64_t *scaled, uint64_t address,
                     const struct cache_form *form, struct heap **heap)
{
    struct why why;
    size_t n = form->heap_size;
    int error = heap_open(form->heap, n ? n - CHECKSUM_BYTES : 0, heap, &why);
    return error == -EILSEQ ? layout_failed(layout, scaled, address, why.text) : error;
}

static int load_chunk(struct reading *reading, const uint64_t *scaled,
                      const struct chunk_record *record)
{
    struct sequences *sequences = reading->sequences;
    forget_chunk(sequences);
    int error = decode_chunk(reading, scaled, record);
    if (!error)
        error = open_heap(&reading->dataset->layout, scaled, record->address, &sequences->form,
                          &sequences->heap);
    if (error)
        forget_chunk(sequences);
    return error;
}

/* Has the chunk ready that is at these scaled coordinates. */
static int get_chunk(struct reading *reading, const uint64_t *scaled)
{
    struct sfs_dataset *dataset = reading->dataset;
    struct sequences *sequences = reading->sequences;
    size_t n = (size_t)dataset->layout.rank * sizeof(*scaled);
    if (reading->has_looked && memcmp(sequences->key.scaled, scaled, n) == 0)
        return 0;
    struct chunk_record record;
    int error = dataset->layout.ops->lookup(&dataset->layout, scaled, &record);
    if (error)
        return error;
    struct chunk_key key = {.dataset = dataset,
                            .address = record.exists ? record.address : UINT64_MAX,
                            .size = record.exists ? record.size : 0,
                            .changes = sfs_dataset_changes(dataset),
                            .states = sfs_states(dataset->file)};
    memcpy(key.scaled, scaled, n);
    bool is_kept = sequences->has_chunk && memcmp(&key, &sequences->key, sizeof(key)) == 0;
    if (!is_kept && record.exists)
        error = load_chunk(reading, scaled, &record);
    else if (!is_kept)
        forget_chunk(sequences);
    if (error)
        return error;
    sequences->key = key;
    sequences->has_chunk = reading->has_looked = true;
    return 0;
}

/* That of the index-th defined element of a chunk. */
static int find_in(const struct sfs_dataset *dataset, const uint64_t *scaled, uint64_t address,
                   const struct cache_form *form, const struct heap *heap, uint64_t index,
                   const void **sequence, uint64_t *n)
{
    struct why why;
    const char *values = form->values;
    int error =
        heap_find(heap, values + index * HEAP_ELEMENT_BYTES, base_size(dataset), sequence, n, &why);
    return error == -EILSEQ ? layout_failed(&dataset->layout, scaled, address, why.text) : error;
}

int sequences_check(const struct sfs_dataset *dataset, const uint64_t *scaled, uint64_t address,
                    const struct cache_form *form)
{
    struct heap *heap;
    if (!sequences_are_read(dataset))
        return 0;
    int error = open_heap(&dataset->layout, scaled, address, form, &heap);
    if (error)
        return error;
    for (uint64_t i = 0; i < form->defined.elements && !error; i++) {
        const void *sequence;
        uint64_t n;
        error = find_in(dataset, scaled, address, form, heap, i, &sequence, &n);
    }
    heap_close(heap);
    return error;
}

/* The sequence of one element: n base elements. */
static int find(struct reading *reading, uint64_t element, const void **sequence, uint64_t *n)
{
    const struct layout *layout = &reading->dataset->layout;
    const struct sequences *sequences = reading->sequences;
    uint64_t scaled[SFS_MAX_RANK], position = 0, stride = 1;
    for (int i = layout->rank - 1; i >= 0; i--) {
        uint64_t at = element % layout->dims[i];
        element /= layout->dims[i];
        scaled[i] = at / layout->chunk_dims[i];
        position += at % layout->chunk_dims[i] * stride;
        stride *= layout->chunk_dims[i];
    }
    *sequence = NULL;
    *n = 0;
    int error = get_chunk(reading, scaled);
    if (error || !sequences->heap || !runs_contain(&sequences->form.defined, position))
        return error;
    uint64_t index = runs_rank(&sequences->form.defined, position);
    return find_in(reading->dataset, scaled, sequences->key.address, &sequences->form,
                   sequences->heap, index, sequence, n);
}

/* What libhdf5 takes for the end of a string. */
static void put_line(FILE *out, const void *sequence, uint64_t n)
{
    if (n > 0)
        lines_escape(out, sequence, strnlen(sequence, (size_t)n));
    putc('\n', out);
}

static int put(struct reading *reading, enum sfs_parts parts, uint64_t element, FILE *out)
{
    const void *sequence;
    uint64_t n;
    int error = find(reading, element, &sequence, &n);
    if (error)
        return error;
    if (parts == SFS_LENGTHS)
        fwrite(&n, sizeof(n), 1, out); /* what fails here, fails in fclose, too */
    else if (parts == SFS_LINES)
        put_line(out, sequence, n);
    else if (n > 0)
        fwrite(sequence, base_size(reading->dataset), (size_t)n, out);
    return 0;
}

static int put_all(struct reading *reading, enum sfs_parts parts, uint64_t first, uint64_t n,
                   size_t most, FILE *out)
{
    int error = 0;
    for (uint64_t i = 0; i < n && !error; i++) {
        error = put(reading, parts, first + i, out);
        if (!error && (uint64_t)ftello(out) > most)
            error = -EFBIG;
        if (!error && i % ASK_EVERY == ASK_EVERY - 1)
            error = interrupt_check();
    }
    return error;
}

int sequences_read(struct sfs_dataset *dataset, enum sfs_parts parts, uint64_t first, uint64_t n,
                   size_t most, char **bytes, size_t *bytes_n)
{
    const struct sfs_type *type = &dataset->info.type;
    struct reading reading = {.dataset = dataset, .sequences = dataset->file->sequences};
    if (parts == SFS_LINES ? !type->is_string : parts == SFS_SEQUENCES && type->is_string)
        return -EOPNOTSUPP;
    int error = cache_flush(dataset->file->cache, dataset->cache);
    FILE *out = error ? NULL : open_memstream(bytes, bytes_n);
    if (!out)
        return error ? error : -ENOMEM;
    error = interrupt_lock(&reading.sequences->lock);
    if (!error) {
        error = put_all(&reading, parts, first, n, most, out);
        pthread_mutex_unlock(&reading.sequences->lock);
    }
    if (fclose(out) != 0 && !error)
        error = -ENOMEM;
    if (error) {
        free(*bytes);
        *bytes = NULL;
    }
    return error;
}
