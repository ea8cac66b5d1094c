/* Reading and writing selections: elements of a dataset on one side, elements in memory,
 * perhaps of another datatype, on the other. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "cache/cache.h"
#include "common/box.h"
#include "common/log.h"
#include "common/search.h"
#include "dataset/cut_selection.h"
#include "dataset/private.h"
#include "dataset/references.h"
#include "dataset/sequences.h"
#include "dataset/transfer_selection.h"
#include "dataset/variable_by_libhdf5.h"
#include "hdf5/hdf5.h"
#include "selection/selection.h"

/* Elements of a dataset that is not sparse are read so many bytes at once. */
#define BATCH_BYTES ((size_t)1 << 20)

/* ---- Elements in memory, in the order of a selection ---- */

struct memory {
    char *buffer;
    size_t size; /* of an element */
    struct selection selection;
    uint64_t *place; /* of the k-th element; NULL: the selection is in row-major order */
};

static void memory_free(struct memory *memory)
{
    selection_free(&memory->selection);
    free(memory->place);
}

/* Where the k-th element is, and how many follow it without a gap, at most n. */
static char *memory_at(const struct memory *memory, uint64_t k, uint64_t *n)
{
    if (memory->place) {
        *n = 1;
        return memory->buffer + memory->place[k] * memory->size;
    }
    const struct runs *runs = &memory->selection.runs;
    const struct sfs_interval *run = &runs->entries[search_interval(runs->entries, runs->n, k)];
    uint64_t left = run[1].index - k;
    if (*n > left)
        *n = left;
    return memory->buffer + (run->first + (k - run->index)) * memory->size;
}

/* The position in memory of each element of an unordered list of points. */
static int memory_place(struct memory *memory)
{
    const struct selection *selection = &memory->selection;
    if (!selection->order)
        return 0;
    if (selection->values != selection->runs.elements)
        return -EINVAL; /* a point occurs twice, with two values */
    memory->place = reallocarray(NULL, (size_t)selection->values, sizeof(*memory->place));
    if (!memory->place)
        return -ENOMEM;
    for (size_t i = 0; i < selection->runs.n; i++) {
        struct run run = runs_at(&selection->runs, i);
        for (uint64_t k = 0; k < run.last - run.first; k++)
            memory->place[selection->order[run.index + k]] = run.first + k;
    }
    return 0;
}

/* ---- A transfer: which elements, where in memory, and the conversion between the two ---- */

struct transfer {
    struct sfs_dataset *dataset;
    struct selection selection; /* of the dataset */
    struct memory memory;
    const struct sfs_encoded *type; /* of memory; NULL: no conversion */
    size_t room;                    /* bytes for an element in either datatype */
    bool passing;                   /* reading leaves no trace in the cache */
};

static int refuse(const struct sfs_dataset *dataset, const char *what, const char *why)
{
    log_error("%s: %s: %s: %s", sfs_path(dataset->file), dataset->path, what, why);
    return -EINVAL;
}

static bool is_of_type(const struct sfs_dataset *dataset, const struct sfs_encoded *type)
{
    struct hdf5_owner owner = dataset_owner(dataset);
    return hdf5_type_equal(&owner, type, &dataset->info.encoded_type);
}

bool transfer_keeps_members(const struct sfs_dataset *dataset, const struct sfs_encoded *type)
{
    return type && dataset->info.type.class == SFS_COMPOUND && !is_of_type(dataset, type);
}

/* Decodes a selection of a dataspace of these dims; space NULL: all. */
static int take_selection(const struct sfs_dataset *dataset, const char *what,
                          const struct sfs_encoded *space, int rank, const uint64_t *dims,
                          struct selection *selection)
{
    *selection = (struct selection){0};
    uint64_t elements;
    const char *why;
    if (!box_product(dims, rank, 1, &elements))
        return refuse(dataset, what, "too many elements");
    if (!space) {
        selection->values = elements;
        return runs_append(&selection->runs, 0, elements);
    }
    int error = selection_decode(space, rank, dims, SIZE_MAX, selection, &why);
    return error == -EILSEQ ? refuse(dataset, what, why) : error;
}

int transfer_take_space(struct sfs_dataset *dataset, const struct sfs_encoded *space,
                        struct selection *selection)
{
    const struct layout *layout = &dataset->layout;
    bool scalar = dataset->info.rank == 0 && space;
    return take_selection(dataset, "selection", space, scalar ? 0 : layout->rank, layout->dims,
                          selection);
}

static int take_memory(struct transfer *transfer, const struct sfs_encoded *memory_space,
                       const struct sfs_encoded *space)
{
    struct memory *memory = &transfer->memory;
    uint64_t dims[SFS_MAX_RANK];
    int rank, error;
    const char *why;
    if (!memory_space) {
        error = transfer_take_space(transfer->dataset, space, &memory->selection);
    } else {
        error = selection_extent(memory_space, &rank, dims, &why);
        if (error)
            return refuse(transfer->dataset, "memory dataspace", why);
        error = take_selection(transfer->dataset, "memory dataspace", memory_space, rank, dims,
                               &memory->selection);
    }
    if (!error && memory->selection.values != transfer->selection.values)
        error = refuse(transfer->dataset, "memory dataspace",
                       "it selects another number of elements than the dataset's");
    if (!error)
        error = memory_place(memory);
    return error;
}

static void transfer_end(struct transfer *transfer)
{
    selection_free(&transfer->selection);
    memory_free(&transfer->memory);
}

static int transfer_begin(struct transfer *transfer, struct sfs_dataset *dataset,
                          const struct sfs_encoded *type, const struct sfs_encoded *memory_space,
                          const struct sfs_encoded *space, void *buffer)
{
    size_t size = dataset->info.type.size;
    *transfer = (struct transfer){.dataset = dataset, .memory = {.buffer = buffer, .size = size}};
    if (dataset->info.type.has_pointers && !sequences_are_read(dataset))
        return -EOPNOTSUPP;
    if (type && !is_of_type(dataset, type)) {
        if (dataset->info.type.has_pointers)
            return -EOPNOTSUPP;
        transfer->type = type;
        int error = hdf5_type_size(type->bytes, type->n, &transfer->memory.size);
        if (error)
            return refuse(dataset, "memory datatype", hdf5_error());
    }
    transfer->room = size > transfer->memory.size ? size : transfer->memory.size;
    int error = transfer_take_space(dataset, space, &transfer->selection);
    if (!error)
        error = take_memory(transfer, memory_space, space);
    if (error)
        transfer_end(transfer);
    return error;
}

/* Whether a conversion keeps members that only one of two compound datatypes has. */
static bool keeps_members(const struct transfer *transfer)
{
    return transfer->type && transfer->dataset->info.type.class == SFS_COMPOUND;
}

/* Converts n packed elements in place. background: if keeps_members, the elements that they
 * overwrite. */
static int convert(const struct transfer *transfer, bool to_memory, uint64_t n, void *elements,
                   void *background)
{
    if (!transfer->type)
        return 0;
    const struct sfs_encoded *own = &transfer->dataset->info.encoded_type;
    const struct sfs_encoded *from = to_memory ? own : transfer->type;
    const struct sfs_encoded *to = to_memory ? transfer->type : own;
    int error = hdf5_convert(from, to, (size_t)n, elements, background);
    if (error == -EOPNOTSUPP)
        log_error("%s: %s: %s", sfs_path(transfer->dataset->file), transfer->dataset->path,
                  hdf5_error());
    return error;
}

/* Bytes for n packed elements in either datatype, and if needed for as many in the background;
 * SIZE_MAX / 2: too many. */
static size_t packed_bytes(const struct transfer *transfer, uint64_t n)
{
    size_t bytes;
    if (__builtin_mul_overflow(n, transfer->room, &bytes) || bytes > SIZE_MAX / 8)
        return SIZE_MAX / 2;
    return keeps_members(transfer) ? 2 * bytes : bytes;
}

/* Room for them, which the cache counts. */
static int make_packed(const struct transfer *transfer, uint64_t n, char **packed,
                       char **background)
{
    size_t bytes = packed_bytes(transfer, n);
    void *memory = NULL;
    int error = bytes == SIZE_MAX / 2
                    ? -ENOMEM
                    : cache_scratch(transfer->dataset->file->cache, bytes, &memory);
    *packed = memory;
    *background = !error && keeps_members(transfer) ? *packed + bytes / 2 : NULL;
    return error;
}

static void free_packed(const struct transfer *transfer, uint64_t n, char *packed)
{
    cache_scratch_return(transfer->dataset->file->cache, packed, packed_bytes(transfer, n));
}

/* Copies `length` elements, from the index-th selected one on, between memory and packed elements.
 */
static void copy_elements(const struct transfer *transfer, uint64_t index, uint64_t length,
                          char *packed, bool to_memory)
{
    const uint64_t *order = transfer->selection.order;
    size_t size = transfer->memory.size;
    while (length > 0) {
        uint64_t n = order ? 1 : length;
        char *at = memory_at(&transfer->memory, order ? order[index] : index, &n);
        if (to_memory)
            memcpy(at, packed, n * size);
        else
            memcpy(packed, at, n * size);
        packed += n * size;
        index += n;
        length -= n;
    }
}

static void copy_part(const struct transfer *transfer, const struct part *part, char *packed,
                      bool to_memory)
{
    for (size_t i = 0; i < part->n_pieces; i++) {
        const struct part_piece *piece = &part->pieces[i];
        copy_elements(transfer, piece->index, piece->length, packed, to_memory);
        packed += piece->length * transfer->memory.size;
    }
}

/* The elements of a part where they already lie packed in memory, or NULL. */
static char *packed_in_memory(const struct transfer *transfer, const struct part *part)
{
    if (transfer->type || transfer->selection.order)
        return NULL;
    uint64_t next = part->pieces[0].index, n = part->positions.elements;
    for (size_t i = 0; i < part->n_pieces; i++) {
        if (part->pieces[i].index != next)
            return NULL;
        next += part->pieces[i].length;
    }
    char *at = memory_at(&transfer->memory, part->pieces[0].index, &n);
    return n == part->positions.elements ? at : NULL;
}

/* ---- Writing ---- */

/* The elements of a part as they are in the dataset. */
static int gather_part(const struct transfer *transfer, const struct part *part, char *packed)
{
    return cache_gather(transfer->dataset->cache, part->scaled, &part->positions, packed,
                        transfer->passing);
}

static int write_part(void *context, const struct part *part)
{
    const struct transfer *transfer = context;
    struct cache_dataset *cache = transfer->dataset->cache;
    char *packed = packed_in_memory(transfer, part), *background;
    if (packed)
        return cache_write(cache, part->scaled, &part->positions, packed, part->is_whole);
    uint64_t n = part->positions.elements;
    int error = make_packed(transfer, n, &packed, &background);
    if (!error && background)
        error = gather_part(transfer, part, background);
    if (!error) {
        copy_part(transfer, part, packed, false);
        error = convert(transfer, false, n, packed, background);
    }
    if (!error)
        error = cache_write(cache, part->scaled, &part->positions, packed, part->is_whole);
    free_packed(transfer, n, packed);
    return error;
}

int dataset_check_writable(const struct sfs_dataset *dataset)
{
    if (dataset->info.type.has_pointers && !sequences_are_read(dataset))
        return -EOPNOTSUPP;
    if (dataset->info.elements == UINT64_MAX) /* they have no positions */
        return refuse(dataset, "writing", "too many elements");
    return 0;
}

static int check_range(struct sfs_dataset *dataset, uint64_t first, uint64_t n)
{
    struct layout *layout = &dataset->layout;
    return layout->ops->check_write ? layout->ops->check_write(layout, first, n) : 0;
}

int dataset_check_box(struct sfs_dataset *dataset, const struct box *box)
{
    uint64_t first = 0, last = 0;
    for (int i = 0; i < dataset->layout.rank; i++) {
        if (box->count[i] == 0)
            return 0;
        first = first * dataset->layout.dims[i] + box->start[i];
        last = last * dataset->layout.dims[i] + box->start[i] + box->count[i] - 1;
    }
    return check_range(dataset, first, last - first + 1);
}

/* It is done in batches: what cannot be written is refused before the first. */
static int check_runs(struct sfs_dataset *dataset, const struct runs *runs)
{
    if (runs->n == 0)
        return 0;
    uint64_t first = runs_at(runs, 0).first;
    return check_range(dataset, first, runs_at(runs, runs->n - 1).last - first);
}

/* Dense datasets are written box by box of the selection. */
static int write_dense(struct transfer *transfer)
{
    struct sfs_dataset *dataset = transfer->dataset;
    const struct layout *layout = &dataset->layout;
    struct box all = {.rank = layout->rank};
    memcpy(all.count, layout->dims, sizeof(all.count));
    const struct runs *runs = &transfer->selection.runs;
    uint64_t most = BATCH_BYTES / transfer->room ? BATCH_BYTES / transfer->room : 1;
    char *packed, *background;
    int error = check_runs(dataset, runs);
    if (error)
        return error;
    error = make_packed(transfer, most, &packed, &background);
    for (size_t i = 0; i < runs->n && !error; i++) {
        struct run run = runs_at(runs, i);
        while (run.first < run.last && !error) {
            struct box piece;
            uint64_t n = run.last - run.first < most ? run.last - run.first : most;
            n = box_of_interval(&all, run.first, n, &piece);
            copy_elements(transfer, run.index, n, packed, false);
            if (background)
                error = dataset_read_elements(dataset, &all, run.first, n, background);
            if (!error)
                error = convert(transfer, false, n, packed, background);
            if (!error)
                error = dataset_put_box(dataset, &piece, packed);
            run.first += n;
            run.index += n;
        }
    }
    free_packed(transfer, most, packed);
    return error;
}

/* The elements that are to be written, wherever in the buffer they are. */
static int check_references(const struct transfer *transfer)
{
    const struct runs *runs = &transfer->memory.selection.runs;
    const char *elements = transfer->memory.buffer;
    int error = 0;
    for (size_t i = 0; i < runs->n && !error && references_are_in(transfer->dataset); i++) {
        struct run run = runs_at(runs, i);
        error = references_check_given(
            transfer->dataset, elements + run.first * transfer->memory.size, run.last - run.first);
    }
    return error;
}

int transfer_write(struct transfer *transfer)
{
    if (!transfer->dataset->sparse)
        return write_dense(transfer);
    return parts_each(&transfer->dataset->layout, &transfer->selection.runs, write_part, transfer);
}

int sfs_dataset_write(struct sfs_dataset *dataset, const struct sfs_encoded *type,
                      const struct sfs_encoded *memory_space, const struct sfs_encoded *space,
                      const void *buffer)
{
    WRITING(dataset->file);
    PATCHING_IF(dataset, transfer_keeps_members(dataset, type));
    struct transfer transfer;
    int error = writing.error ? writing.error : dataset_check_writable(dataset);
    if (!error)
        error = transfer_begin(&transfer, dataset, type, memory_space, space, (void *)buffer);
    if (error)
        return error;
    error = check_references(&transfer);
    if (!error)
        error = transfer_write(&transfer);
    transfer_end(&transfer);
    return error;
}

int transfer_write_runs(struct sfs_dataset *dataset, struct runs *runs, const void *packed)
{
    size_t size = dataset->info.type.size;
    struct transfer transfer = {.dataset = dataset,
                                .selection = {.runs = *runs, .values = runs->elements},
                                .memory = {.buffer = (void *)packed, .size = size},
                                .room = size};
    int error = runs_append(&transfer.memory.selection.runs, 0, runs->elements);
    if (!error)
        error = transfer_write(&transfer);
    transfer_end(&transfer);
    return error;
}

/* ---- Reading ---- */

static int read_part(void *context, const struct part *part)
{
    const struct transfer *transfer = context;
    char *in_memory = packed_in_memory(transfer, part), *packed, *background;
    if (in_memory)
        return gather_part(transfer, part, in_memory);
    uint64_t n = part->positions.elements;
    int error = make_packed(transfer, n, &packed, &background);
    if (!error)
        error = gather_part(transfer, part, packed);
    if (!error && background)
        copy_part(transfer, part, background, false);
    if (!error)
        error = convert(transfer, true, n, packed, background);
    if (!error)
        copy_part(transfer, part, packed, true);
    free_packed(transfer, n, packed);
    return error;
}

static int read_elements(const struct transfer *transfer, const struct box *all, uint64_t first,
                         uint64_t n, char *packed)
{
    static const uint64_t origin[SFS_MAX_RANK];
    struct sfs_dataset *dataset = transfer->dataset;
    int error = 0;
    if (!transfer->passing || dataset->virtual)
        return dataset_read_elements(dataset, all, first, n, packed);
    while (n > 0 && !error) {
        struct box piece;
        uint64_t length = box_of_interval(all, first, n, &piece);
        const struct cache_read read = {dataset->cache, &piece, packed, piece.count, origin, true};
        error = cache_read_many(dataset->file->cache, &read, 1);
        first += length;
        n -= length;
        packed += length * dataset->layout.element_size;
    }
    return error;
}

static int read_dense(const struct transfer *transfer)
{
    struct sfs_dataset *dataset = transfer->dataset;
    struct box all = {.rank = dataset->layout.rank};
    memcpy(all.count, dataset->layout.dims, sizeof(all.count));
    const struct runs *runs = &transfer->selection.runs;
    uint64_t most = BATCH_BYTES / transfer->room ? BATCH_BYTES / transfer->room : 1;
    char *packed, *background;
    int error = make_packed(transfer, most, &packed, &background);
    for (size_t i = 0; i < runs->n && !error; i++) {
        struct run run = runs_at(runs, i);
        while (run.first < run.last && !error) {
            uint64_t n = run.last - run.first < most ? run.last - run.first : most;
            error = read_elements(transfer, &all, run.first, n, packed);
            if (!error && background)
                copy_elements(transfer, run.index, n, background, false);
            if (!error)
                error = convert(transfer, true, n, packed, background);
            if (!error)
                copy_elements(transfer, run.index, n, packed, true);
            run.first += n;
            run.index += n;
        }
    }
    free_packed(transfer, most, packed);
    return error;
}

static int check_repeats(const struct transfer *transfer)
{
    return transfer->selection.values == transfer->selection.runs.elements
               ? 0
               : refuse(transfer->dataset, "selection", "it names an element twice");
}

int transfer_read(struct transfer *transfer)
{
    const struct sfs_dataset *dataset = transfer->dataset;
    return dataset->sparse
               ? parts_each(&dataset->layout, &transfer->selection.runs, read_part, transfer)
               : read_dense(transfer);
}

static int read_once(struct sfs_dataset *dataset, const struct sfs_encoded *type,
                     const struct sfs_encoded *memory_space, const struct sfs_encoded *space,
                     void *buffer)
{
    USING(dataset);
    struct transfer transfer;
    if (dataset->info.type.has_pointers)
        return -EOPNOTSUPP;
    int error = transfer_begin(&transfer, dataset, type, memory_space, space, buffer);
    if (error)
        return error;
    error = check_repeats(&transfer);
    if (!error)
        error = transfer_read(&transfer);
    transfer_end(&transfer);
    return error;
}

int sfs_dataset_read(struct sfs_dataset *dataset, const struct sfs_encoded *type,
                     const struct sfs_encoded *memory_space, const struct sfs_encoded *space,
                     void *buffer)
{
    return FOLLOWING(dataset->file, read_once(dataset, type, memory_space, space, buffer));
}

/* What a selection names, or a slab if there is one. */
static int select_variable(struct sfs_dataset *dataset, const struct sfs_encoded *space,
                           const struct sfs_slab *slab, struct selection *selection)
{
    const struct layout *layout = &dataset->layout;
    struct box box;
    if (!slab)
        return transfer_take_space(dataset, space, selection);
    *selection = (struct selection){0};
    int error = dataset_box(dataset, slab, &box);
    if (!error)
        error = runs_of_box(layout->rank, layout->dims, box.start, box.count, &selection->runs);
    selection->values = selection->runs.elements;
    return error;
}

static int read_variable_once(struct sfs_dataset *dataset, const struct sfs_encoded *space,
                              const struct sfs_slab *slab, void **elements, uint64_t *n)
{
    USING(dataset);
    struct selection selection;
    if (!sequences_are_read(dataset))
        return -EOPNOTSUPP;
    if (dataset->info.elements == UINT64_MAX)
        return refuse(dataset, "reading", "too many elements");
    int error = select_variable(dataset, space, slab, &selection);
    if (!error && selection.values != selection.runs.elements)
        error = refuse(dataset, "selection", "it names an element twice");
    if (!error)
        error = sequences_read_selected(dataset, &selection, SIZE_MAX, NULL, elements);
    if (!error)
        *n = selection.values;
    selection_free(&selection);
    return error;
}

int sfs_read_variable(struct sfs_dataset *dataset, const struct sfs_encoded *space, void **elements,
                      uint64_t *n)
{
    return FOLLOWING(dataset->file, read_variable_once(dataset, space, NULL, elements, n));
}

static int read_elements_once(struct sfs_dataset *dataset, const struct sfs_slab *slab,
                              void **elements)
{
    USING(dataset);
    struct box box;
    int error = dataset_box(dataset, slab, &box);
    return error ? error : ordinary_read(dataset, &box, elements);
}

int sfs_read_elements(struct sfs_dataset *dataset, const struct sfs_slab *slab, void **elements)
{
    uint64_t n;
    return ordinary_is(dataset)
               ? FOLLOWING(dataset->file, read_elements_once(dataset, slab, elements))
               : FOLLOWING(dataset->file, read_variable_once(dataset, NULL, slab, elements, &n));
}

int sfs_read_sequences(struct sfs_dataset *dataset, const struct sfs_encoded *space,
                       struct sfs_sequence **sequences, uint64_t *n)
{
    void *elements;
    if (dataset->info.type.class != SFS_VARIABLE)
        return -EOPNOTSUPP;
    int error = sfs_read_variable(dataset, space, &elements, n);
    if (!error)
        *sequences = elements;
    return error;
}

/* ---- Transfers that are checked first ---- */

int transfer_open(const struct sfs_io *io, struct transfer **out)
{
    struct transfer *transfer = malloc(sizeof(*transfer));
    if (!transfer)
        return -ENOMEM;
    int error =
        transfer_begin(transfer, io->dataset, io->type, io->memory_space, io->space, io->to);
    if (error) {
        free(transfer);
        return error;
    }
    transfer->passing = io->flags & SFS_SKIP_CACHE;
    *out = transfer;
    return 0;
}

void transfer_close(struct transfer *transfer)
{
    if (!transfer)
        return;
    transfer_end(transfer);
    free(transfer);
}

/* Of one element: whether there is a conversion at all. */
static int check_conversion(const struct transfer *transfer, bool to_memory)
{
    char *packed, *background;
    if (!transfer->type)
        return 0;
    int error = make_packed(transfer, 1, &packed, &background);
    if (!error) {
        memset(packed, 0, packed_bytes(transfer, 1));
        error = convert(transfer, to_memory, 1, packed, background);
        free_packed(transfer, 1, packed);
    }
    return error;
}

int transfer_check_read(const struct transfer *transfer)
{
    int error = check_repeats(transfer);
    return error ? error : check_conversion(transfer, true);
}

static int check_room_of_part(void *context, const struct part *part)
{
    return layout_check_room(context, part->scaled);
}

int transfer_check_write(const struct transfer *transfer)
{
    struct sfs_dataset *dataset = transfer->dataset;
    struct layout *layout = &dataset->layout;
    uint64_t last[SFS_MAX_RANK];
    int error = check_conversion(transfer, false);
    if (!error)
        error = check_runs(dataset, &transfer->selection.runs);
    if (error || transfer->selection.runs.elements == 0 || !layout->ops->can_hold)
        return error;
    for (int i = 0; i < layout->rank; i++)
        last[i] = (layout->dims[i] - 1) / layout->chunk_dims[i];
    if (layout->ops->can_hold(layout, last)) /* and so all others */
        return 0;
    return parts_each(layout, &transfer->selection.runs, check_room_of_part, layout);
}
