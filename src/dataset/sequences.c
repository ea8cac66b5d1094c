#include "dataset/sequences.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "cache/cache.h"
#include "common/interrupt.h"
#include "common/lines.h"
#include "common/size.h"
#include "dataset/parts.h"
#include "format/heap.h"
#include "format/structure.h"
#include "layout/form.h"
#include "selection/selection.h"

#define ASK_EVERY 4096 /* elements, whether the call is to end early */

/* One call. */
struct reading {
    struct sfs_dataset *dataset;
    bool has_chunk;
    uint64_t scaled[SFS_MAX_RANK];
    const struct cache_form *form; /* pinned; NULL: nothing of the chunk is defined */
    struct chunk *chunk;
    struct heap *heap;
};

bool sequences_are_read(const struct sfs_dataset *dataset)
{
    return dataset->layout.base_size > 0;
}

static void leave_chunk(struct reading *reading)
{
    if (!reading->has_chunk)
        return;
    heap_close(reading->heap);
    cache_return(reading->chunk);
    reading->heap = NULL;
    reading->has_chunk = false;
}

/* Logs what is wrong with a chunk, which the form does not say where it is. */
static int damaged(const struct sfs_dataset *dataset, const uint64_t *scaled, uint64_t address,
                   const struct why *why)
{
    struct layout *layout = (struct layout *)&dataset->layout;
    struct chunk_record record;
    if (address == UINT64_MAX && layout->ops->lookup(layout, scaled, &record) == 0 && record.exists)
        address = record.address;
    return layout_failed(layout, scaled, address, why->text);
}

/* It takes memory for where its sequences are, besides its own. */
static int open_heap(const struct sfs_dataset *dataset, const uint64_t *scaled, uint64_t address,
                     const struct cache_form *form, struct heap **heap)
{
    struct why why;
    size_t n = form->heap_size;
    int error = layout_check_bytes(&dataset->layout, scaled, address, size_product(n, HEAP_FACTOR),
                                   cache_chunk_limit(dataset->file->cache));
    if (error)
        return error;
    error = heap_open(form->heap, n ? n - CHECKSUM_BYTES : 0, heap, &why);
    return error == -EILSEQ ? damaged(dataset, scaled, address, &why) : error;
}

/* Has the chunk ready that is at these scaled coordinates. */
static int get_chunk(struct reading *reading, const uint64_t *scaled)
{
    struct sfs_dataset *dataset = reading->dataset;
    size_t n = (size_t)dataset->layout.rank * sizeof(*scaled);
    if (reading->has_chunk && memcmp(reading->scaled, scaled, n) == 0)
        return 0;
    leave_chunk(reading);
    int error = cache_pin(dataset->cache, scaled, PART_PACKED, &reading->form, &reading->chunk);
    if (error)
        return error;
    reading->has_chunk = true;
    memcpy(reading->scaled, scaled, n);
    if (reading->form)
        error = open_heap(dataset, scaled, UINT64_MAX, reading->form, &reading->heap);
    if (error)
        leave_chunk(reading);
    return error;
}

/* That of the index-th defined element of a chunk. */
static int find_in(const struct sfs_dataset *dataset, const uint64_t *scaled, uint64_t address,
                   const struct cache_form *form, const struct heap *heap, uint64_t index,
                   const void **sequence, uint64_t *n)
{
    struct why why;
    const char *element = (const char *)form->values + index * HEAP_ELEMENT_BYTES;
    int error = heap_find(heap, element, dataset->layout.base_size, sequence, n, &why);
    return error == -EILSEQ ? damaged(dataset, scaled, address, &why) : error;
}

int sequences_check(const struct sfs_dataset *dataset, const uint64_t *scaled, uint64_t address,
                    const struct cache_form *form)
{
    struct heap *heap;
    if (!sequences_are_read(dataset))
        return 0;
    int error = open_heap(dataset, scaled, address, form, &heap);
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

/* The sequence of the element at a position of the chunk that is ready: n base elements, as long as
 * it is. */
static int find_at(const struct reading *reading, uint64_t position, const void **sequence,
                   uint64_t *n)
{
    const struct cache_form *form = reading->form;
    *sequence = NULL;
    *n = 0;
    if (!form || !runs_contain(&form->defined, position))
        return 0;
    return find_in(reading->dataset, reading->scaled, UINT64_MAX, form, reading->heap,
                   runs_rank(&form->defined, position), sequence, n);
}

/* The same of one element of the dataset. */
static int find(struct reading *reading, uint64_t element, const void **sequence, uint64_t *n)
{
    const struct layout *layout = &reading->dataset->layout;
    uint64_t scaled[SFS_MAX_RANK], position = 0, stride = 1;
    for (int i = layout->rank - 1; i >= 0; i--) {
        uint64_t at = element % layout->dims[i];
        element /= layout->dims[i];
        scaled[i] = at / layout->chunk_dims[i];
        position += at % layout->chunk_dims[i] * stride;
        stride *= layout->chunk_dims[i];
    }
    int error = get_chunk(reading, scaled);
    return error ? error : find_at(reading, position, sequence, n);
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
        fwrite(sequence, reading->dataset->layout.base_size, (size_t)n, out);
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
    struct reading reading = {.dataset = dataset};
    if (parts == SFS_LINES ? !type->is_string : parts == SFS_SEQUENCES && type->is_string)
        return -EOPNOTSUPP;
    FILE *out = open_memstream(bytes, bytes_n);
    if (!out)
        return -ENOMEM;
    int error = put_all(&reading, parts, first, n, most, out);
    leave_chunk(&reading);
    if (fclose(out) != 0 && !error)
        error = -ENOMEM;
    if (error) {
        free(*bytes);
        *bytes = NULL;
    }
    return error;
}

/* ---- What a selection names ---- */

struct collection {
    struct reading reading;
    const uint64_t *order;         /* of the selection, or NULL */
    struct sfs_sequence *sequence; /* where their elements begin is not set yet, */
    size_t *offset;                /* but among all bytes */
    char *bytes;
    size_t n, room;
};

static int keep(struct collection *all, uint64_t index, const void *sequence, uint64_t n)
{
    size_t bytes = (size_t)n * all->reading.dataset->layout.base_size;
    if (bytes > all->room - all->n) {
        size_t room = size_sum(size_product(all->room, 2), bytes);
        char *grown = room < SIZE_MAX / 2 ? realloc(all->bytes, room) : NULL;
        if (!grown)
            return -ENOMEM;
        all->bytes = grown;
        all->room = room;
    }
    if (bytes > 0)
        memcpy(all->bytes + all->n, sequence, bytes);
    uint64_t place = all->order ? all->order[index] : index;
    all->sequence[place].n = n;
    all->offset[place] = all->n;
    all->n += bytes;
    return 0;
}

static int keep_part(void *context, const struct part *part)
{
    struct collection *all = context;
    int error = get_chunk(&all->reading, part->scaled);
    for (size_t i = 0; i < part->n_pieces && !error; i++) {
        const struct part_piece *piece = &part->pieces[i];
        for (uint64_t k = 0; k < piece->length && !error; k++) {
            const void *sequence;
            uint64_t n;
            error = find_at(&all->reading, piece->position + k, &sequence, &n);
            if (!error)
                error = keep(all, piece->index + k, sequence, n);
        }
    }
    return error ? error : interrupt_check();
}

/* The bytes go behind the sequences. */
static int join(struct collection *all, size_t count, struct sfs_sequence **sequences)
{
    size_t head = count * sizeof(**sequences);
    char *block = realloc(all->sequence, size_sum(head, all->n ? all->n : 1));
    if (!block)
        return -ENOMEM;
    all->sequence = NULL;
    struct sfs_sequence *sequence = (void *)block;
    if (all->n > 0)
        memcpy(block + head, all->bytes, all->n);
    for (size_t i = 0; i < count; i++)
        sequence[i].elements = sequence[i].n ? block + head + all->offset[i] : NULL;
    *sequences = sequence;
    return 0;
}

int sequences_read_selected(struct sfs_dataset *dataset, const struct selection *selection,
                            struct sfs_sequence **sequences)
{
    struct collection all = {.reading = {.dataset = dataset}, .order = selection->order};
    size_t count = size_of(selection->values);
    if (size_product(count, sizeof(*all.sequence)) == SIZE_MAX)
        return -ENOMEM;
    all.sequence = calloc(count ? count : 1, sizeof(*all.sequence));
    all.offset = calloc(count ? count : 1, sizeof(*all.offset));
    int error = all.sequence && all.offset ? 0 : -ENOMEM;
    if (!error)
        error = parts_each(&dataset->layout, &selection->runs, keep_part, &all);
    leave_chunk(&all.reading);
    if (!error)
        error = join(&all, count, sequences);
    free(all.sequence);
    free(all.offset);
    free(all.bytes);
    return error;
}
