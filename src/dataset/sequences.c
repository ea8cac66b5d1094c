#include "dataset/sequences.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "cache/cache.h"
#include "chunk/memory_form.h"
#include "common/escape_lines.h"
#include "common/interrupt.h"
#include "common/size.h"
#include "dataset/cut_selection.h"
#include "dataset/references.h"
#include "format/section_heap.h"
#include "format/structure.h"
#include "format/variable_slots.h"
#include "selection/selection.h"

#define ASK_EVERY       4096              /* elements, whether the call is to end early, */
#define ASK_EVERY_BYTES ((size_t)1 << 20) /* or so many bytes of sequences */
#define ALIGNMENT       16                /* of sequences in memory */

/* What was done since it was asked whether the call is to end early. Many slots can lead to the same bytes, so that
 * these say nothing of how long it takes. */
struct work {
    size_t elements, bytes;
};

static int ask_after(struct work *work, size_t elements, size_t bytes)
{
    work->elements += elements;
    work->bytes = size_sum(work->bytes, bytes);
    if (work->elements < ASK_EVERY && work->bytes < ASK_EVERY_BYTES)
        return 0;
    *work = (struct work){0};
    return interrupt_check();
}

/* A chunk, and its heap. */
struct filled {
    struct layout *layout;
    size_t most; /* bytes that it may take in memory */
    const uint64_t *scaled;
    uint64_t address;              /* UINT64_MAX: not known */
    const struct cache_form *form; /* NULL: nothing of the chunk is defined */
    struct heap *heap;
};

/* One call. */
struct reading {
    const struct sfs_dataset *dataset;
    struct filled in; /* while has_chunk */
    bool has_chunk;
    uint64_t scaled[SFS_MAX_RANK];
    struct chunk *chunk; /* pinned */
};

bool sequences_are_read(const struct sfs_dataset *dataset)
{
    return dataset->layout.slots;
}

bool sequences_are_all(const struct sfs_dataset *dataset)
{
    return dataset->layout.slots && slots_are_plain(dataset->layout.slots);
}

static void leave_chunk(struct reading *reading)
{
    if (!reading->has_chunk)
        return;
    heap_close(reading->in.heap);
    cache_return(reading->chunk);
    reading->in.heap = NULL;
    reading->has_chunk = false;
}

/* Says what is wrong with a chunk, of which the index says where it is if that is not known. */
static int damaged(const struct filled *chunk, const struct why *why)
{
    struct layout *layout = chunk->layout;
    struct chunk_record record;
    uint64_t address = chunk->address;
    if (address == UINT64_MAX && layout->ops->lookup(layout, chunk->scaled, &record) == 0 &&
        record.exists)
        address = record.address;
    return layout_failed(layout, chunk->scaled, address, why->text);
}

/* In the prototype's form it takes memory for where its sequences are, besides its own. */
static int open_heap(struct filled *chunk)
{
    struct why why;
    const void *heap = chunk->form->heap;
    size_t n = chunk->form->heap_size;
    int error = layout_check_bytes(chunk->layout, chunk->scaled, chunk->address,
                                   heap_most_bytes(heap, n), chunk->most);
    if (error)
        return error;
    error = heap_open(heap, n ? n - CHECKSUM_BYTES : 0, &chunk->heap, &why);
    return error == -EILSEQ ? damaged(chunk, &why) : error;
}

/* Has the chunk ready that is at these scaled coordinates. */
static int get_chunk(struct reading *reading, const uint64_t *scaled)
{
    const struct sfs_dataset *dataset = reading->dataset;
    size_t n = (size_t)dataset->layout.rank * sizeof(*scaled);
    if (reading->has_chunk && memcmp(reading->scaled, scaled, n) == 0)
        return 0;
    leave_chunk(reading);
    int error = cache_pin(dataset->cache, scaled, PART_PACKED, &reading->in.form, &reading->chunk);
    if (error)
        return error;
    reading->has_chunk = true;
    memcpy(reading->scaled, scaled, n);
    reading->in.layout = (struct layout *)&dataset->layout;
    reading->in.most = cache_chunk_limit(dataset->file->cache);
    reading->in.scaled = reading->scaled;
    reading->in.address = UINT64_MAX;
    if (reading->in.form)
        error = open_heap(&reading->in);
    if (error)
        leave_chunk(reading);
    return error;
}

/* What the k-th slot of the index-th defined element of a chunk leads to: n base elements, but n
 * bytes if these have slots themselves. */
static int find_in(const struct filled *chunk, uint64_t index, size_t k, const void **sequence,
                   uint64_t *n)
{
    struct why why;
    const struct slots *slots = chunk->layout->slots, *base = slots->slot[k].base;
    const char *slot = (const char *)chunk->form->values + index * slots->size + slots->slot[k].at;
    int error = heap_find(chunk->heap, slot, base->n ? 0 : base->size, sequence, n, &why);
    return error == -EILSEQ ? damaged(chunk, &why) : error;
}

static int check_slot(const struct filled *chunk, uint64_t index, size_t k, struct work *work)
{
    const struct slots *base = chunk->layout->slots->slot[k].base;
    const void *sequence;
    uint64_t n;
    size_t bytes;
    struct why why;
    int error = find_in(chunk, index, k, &sequence, &n);
    if (error || n == 0 || (base->n == 0 && !base->is_reference))
        return error ? error : ask_after(work, 1, 0);
    size_t stored = (size_t)n;
    error = ask_after(work, 1, stored);
    if (error)
        return error;
    error = slot_measure(base, sequence, stored, &n, &bytes, &why);
    if (!error)
        error = references_check(base, sequence, stored, &why);
    return error ? damaged(chunk, &why) : 0;
}

int sequences_check(struct layout *layout, size_t most, const uint64_t *scaled, uint64_t address,
                    const struct cache_form *form)
{
    struct filled chunk = {layout, most, scaled, address, form, NULL};
    struct work work = {0};
    if (!layout->slots)
        return 0;
    int error = open_heap(&chunk);
    if (error)
        return error;
    for (uint64_t i = 0; i < form->defined.elements && !error; i++)
        for (size_t k = 0; k < layout->slots->n && !error; k++)
            error = check_slot(&chunk, i, k, &work);
    heap_close(chunk.heap);
    return error;
}

/* The sequence that is all of the element at a position of the chunk that is ready: n base
 * elements, as long as it is. */
static int find_at(const struct reading *reading, uint64_t position, const void **sequence,
                   uint64_t *n)
{
    const struct cache_form *form = reading->in.form;
    *sequence = NULL;
    *n = 0;
    if (!form || !runs_contain(&form->defined, position))
        return 0;
    return find_in(&reading->in, runs_rank(&form->defined, position), 0, sequence, n);
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

/* What libhdf5 takes for the end of a string. Of a line that is longer than `most` nothing is put, but that its escapes
 * make it so is seen only afterwards. */
static int put_line(FILE *out, const void *sequence, uint64_t n, uint64_t most)
{
    size_t length = n > 0 ? strnlen(sequence, (size_t)n) : 0;
    if (length >= most)
        return -EFBIG;
    if (length > 0)
        lines_escape(out, sequence, length);
    putc('\n', out);
    return 0;
}

static int put_sequence(FILE *out, const void *sequence, uint64_t n, size_t size, uint64_t most)
{
    if (size_product(size_of(n), size) > most)
        return -EFBIG;
    if (n > 0)
        fwrite(sequence, size, (size_t)n, out); /* what fails here, fails in fclose, too */
    return 0;
}

/* most: bytes that there is still room for. */
static int put(struct reading *reading, enum sfs_parts parts, uint64_t element, FILE *out,
               uint64_t most)
{
    const void *sequence;
    uint64_t n;
    int error = find(reading, element, &sequence, &n);
    if (error)
        return error;
    if (parts == SFS_LINES)
        return put_line(out, sequence, n, most);
    return parts == SFS_LENGTHS
               ? put_sequence(out, &n, 1, sizeof(n), most)
               : put_sequence(out, sequence, n, reading->dataset->layout.slots->slot->base->size,
                              most);
}

static int put_all(struct reading *reading, const struct hdf5_parts *wanted, FILE *out)
{
    struct work work = {0};
    uint64_t done = 0;
    int error = 0;
    for (uint64_t i = 0; i < wanted->n && !error; i++) {
        error = put(reading, wanted->parts, wanted->first + i, out, wanted->most - done);
        uint64_t before = done;
        done = (uint64_t)ftello(out);
        if (!error && done > wanted->most)
            error = -EFBIG;
        if (!error)
            error = ask_after(&work, 1, size_of(done - before));
    }
    return error;
}

int sequences_read(struct sfs_dataset *dataset, const struct hdf5_parts *wanted, char **bytes,
                   size_t *bytes_n)
{
    const enum sfs_parts parts = wanted->parts;
    const struct sfs_type *type = &dataset->info.type;
    struct reading reading = {.dataset = dataset};
    if (parts == SFS_LINES ? !type->is_string : parts == SFS_SEQUENCES && type->is_string)
        return -EOPNOTSUPP;
    FILE *out = open_memstream(bytes, bytes_n);
    if (!out)
        return -ENOMEM;
    int error = put_all(&reading, wanted, out);
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

/* Bytes by which the memory of a collection grows ahead at most, and from which on it is counted. */
#define MOST_AHEAD ((size_t)16 << 20)
#define IS_COUNTED ((size_t)1 << 20)

struct collection {
    struct reading reading;
    const uint64_t *order; /* of the selection, or NULL */
    size_t count;          /* of elements */
    char *elements; /* room bytes; their slots lead into n bytes behind head, from there on */
    size_t head, n, room;
    size_t stored,
        most; /* bytes of what slots led to so far, as it is stored, and how many there may be */
    size_t *taken; /* of selection_memory_take; NULL: it is not counted */
    struct work work;
};

/* What several elements take may be too much where each by itself is not. */
static int count_memory(struct collection *all, size_t bytes)
{
    const struct sfs_dataset *dataset = all->reading.dataset;
    if (!all->taken || bytes < IS_COUNTED)
        return 0;
    if (all->count > 1 && bytes > cache_chunk_limit(dataset->file->cache))
        return -EFBIG;
    return selection_memory_take(dataset, "what elements lead to", bytes, all->taken);
}

/* Has room behind the bytes. */
static int make_room(struct collection *all, size_t bytes)
{
    size_t used = all->head + all->n, ahead = used < MOST_AHEAD ? used : MOST_AHEAD;
    if (bytes <= all->room - used)
        return 0;
    size_t room = size_sum(size_sum(used, ahead), bytes);
    int error = count_memory(all, room);
    if (error)
        return error;
    char *grown = room < SIZE_MAX / 2 ? realloc(all->elements, room) : NULL;
    if (!grown)
        return -ENOMEM;
    all->elements = grown;
    all->room = room;
    return 0;
}

/* What a slot leads to: n bytes of the heap. All slots can lead to the same ones: so they are counted before there is
 * memory for them. */
static int keep_stored(struct collection *all, const struct slots *base, const void *stored,
                       size_t n, size_t slot)
{
    uint64_t elements;
    size_t bytes;
    struct why why;
    if (n > all->most - all->stored)
        return -EFBIG;
    all->stored += n;
    int error = ask_after(&all->work, 0, n);
    if (error)
        return error;
    error = slot_measure(base, stored, n, &elements, &bytes, &why);
    if (error)
        return damaged(&all->reading.in, &why);
    error = make_room(all, bytes);
    if (error)
        return error;
    slot_load(base, stored, n, elements, all->elements + all->head + all->n, all->n);
    const struct sfs_sequence sequence = {.width = all->n, .n = elements};
    memcpy(all->elements + slot, &sequence, sizeof(sequence));
    all->n += bytes;
    return 0;
}

/* slot: where it is in the elements, which move as they grow. */
static int keep_slot(struct collection *all, uint64_t index, size_t k, size_t slot)
{
    const struct filled *chunk = &all->reading.in;
    const struct slots *base = chunk->layout->slots->slot[k].base;
    const void *sequence;
    uint64_t n;
    int error = find_in(chunk, index, k, &sequence, &n);
    slot_put(all->elements + slot, NULL, 0);
    if (error || n == 0)
        return error;
    size_t bytes = base->n ? (size_t)n : (size_t)n * base->size;
    return keep_stored(all, base, sequence, bytes, slot);
}

/* The element at a position of the chunk that is ready. */
static int keep(struct collection *all, uint64_t position, size_t element)
{
    const struct cache_form *form = all->reading.in.form;
    const struct slots *slots = all->reading.dataset->layout.slots;
    int error = 0;
    if (!form || !runs_contain(&form->defined, position))
        return 0;
    uint64_t index = runs_rank(&form->defined, position);
    memcpy(all->elements + element, (const char *)form->values + index * slots->size, slots->size);
    for (size_t k = 0; k < slots->n && !error; k++)
        error = keep_slot(all, index, k, element + slots->slot[k].at);
    return error;
}

static int keep_part(void *context, const struct part *part)
{
    struct collection *all = context;
    size_t size = all->reading.dataset->layout.slots->size;
    int error = get_chunk(&all->reading, part->scaled);
    for (size_t i = 0; i < part->n_pieces && !error; i++) {
        const struct part_piece *piece = &part->pieces[i];
        for (uint64_t k = 0; k < piece->length && !error; k++) {
            uint64_t place = piece->index + k;
            if (all->order)
                place = all->order[place];
            error = keep(all, piece->position + k, (size_t)place * size);
            if (!error)
                error = ask_after(&all->work, 1, 0);
        }
    }
    return error ? error : interrupt_check();
}

/* Zeros, behind which bytes are to come. */
static int begin_elements(struct collection *all)
{
    size_t bytes = size_product(all->count, all->reading.dataset->layout.slots->size);
    if (bytes >= SIZE_MAX / 2)
        return -ENOMEM;
    all->head = all->room = (bytes + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
    int error = count_memory(all, all->head);
    if (error)
        return error;
    all->elements = calloc(1, all->head ? all->head : 1);
    return all->elements ? 0 : -ENOMEM;
}

static void end_elements(struct collection *all)
{
    const struct slots *slots = all->reading.dataset->layout.slots;
    size_t bytes = all->head + all->n;
    char *shrunk = bytes > 0 ? realloc(all->elements, bytes) : NULL;
    if (shrunk)
        all->elements = shrunk;
    slots_relocate(slots, all->elements, all->count, all->elements + all->head);
}

int sequences_read_selected(struct sfs_dataset *dataset, const struct selection *selection,
                            size_t most, size_t *taken, void **elements)
{
    struct collection all = {.reading.dataset = dataset,
                             .order = selection->order,
                             .count = size_of(selection->values),
                             .most = most,
                             .taken = taken};
    int error = begin_elements(&all);
    if (!error)
        error = parts_each(&dataset->layout, &selection->runs, keep_part, &all);
    leave_chunk(&all.reading);
    if (error) {
        free(all.elements);
        return error;
    }
    end_elements(&all);
    *elements = all.elements;
    return 0;
}
