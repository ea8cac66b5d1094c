/* Structured chunks: section 0 is the encoded selection of the defined elements with its checksum,
 * section 1 their values (HDF Group, RFC "File Format Changes for Enabling Sparse Storage"). Each
 * section has filters of its own. A third section holds variable-length data (format/section_heap.h); it
 * and section 1 then end in a checksum, too. Chunks of dense data, which is of variable length then,
 * have no section 0: all their elements are defined. */
#include "layout/sparse.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "common/interrupt.h"
#include "common/memory_pool.h"
#include "common/size.h"
#include "filter/filter.h"
#include "format/structure.h"
#include "hdf5/hdf5.h"
#include "layout/layout.h"
#include "selection/selection.h"
#include "store/store.h"

int sparse_open(struct store *store, const struct superblock *superblock, uint64_t address,
                struct sparse **out, struct why *why)
{
    struct sparse *sparse = calloc(1, sizeof(*sparse));
    if (!sparse)
        return -ENOMEM;
    sparse->superblock = superblock;
    sparse->address = address;
    struct dataset_header *header = &sparse->header;
    int error = dataset_header_read(store, superblock, address, header, why);
    if (error) {
        free(sparse);
        return error;
    }
    error = layout_message_records(&header->layout, header->filtered, &sparse->format, why);
    if (!error)
        error = index_open(store, superblock, &header->layout, &sparse->format,
                           header->dataspace.max_dims, &sparse->index, why);
    if (error)
        sparse_close(sparse);
    else
        *out = sparse;
    return error;
}

void sparse_close(struct sparse *sparse)
{
    if (!sparse)
        return;
    index_close(sparse->index);
    dataset_header_free(&sparse->header);
    free(sparse);
}

size_t sparse_kept_bytes(const struct sparse *sparse)
{
    return object_header_bytes(sparse->header.header) +
           object_header_bytes(sparse->header.committed) + index_kept_bytes(sparse->index);
}

static int lookup(struct layout *layout, const uint64_t *scaled, struct chunk_record *record)
{
    struct why why;
    if (layout->lost)
        return layout->lost;
    int error = index_lookup(layout->sparse->index, scaled, record, &why);
    if (error == -EIO || error == -EILSEQ)
        return layout_failed(layout, scaled, UINT64_MAX, why.text);
    return error;
}

static bool can_hold(const struct layout *layout, const uint64_t *scaled)
{
    return index_can_hold(layout->sparse->index, scaled);
}

/* Sections stand in ascending order without gaps. */
static void stored(const struct layout *layout, const struct chunk_record *record, unsigned parts,
                   uint64_t *offset, uint64_t *n)
{
    const struct chunk_record_format *format = &layout->sparse->format;
    uint64_t values_end = format->n_sections > HEAP && !(parts & PART_HEAP)
                              ? record->section_offset[HEAP]
                              : record->size;
    *offset = parts & PART_DEFINED ? 0 : record->section_offset[VALUES];
    *n = (parts & (PART_VALUES | PART_PACKED) ? values_end : record->section_offset[VALUES]) -
         *offset;
}

uint64_t sparse_section_size(const struct sparse *sparse, const struct chunk_record *record,
                             int section)
{
    return sparse->header.filtered ? record->unfiltered_size[section]
                                   : chunk_record_section_size(&sparse->format, record, section);
}

uint64_t sparse_values_checksum(const struct sparse *sparse, uint64_t n)
{
    return sparse->format.n_sections > HEAP && n > 0 ? CHECKSUM_BYTES : 0;
}

/* What decode would find wrong is left to it; a checksum can only be that of all values. */
static bool values_at(const struct layout *layout, const uint64_t *scaled,
                      const struct chunk_record *record, uint64_t *address, uint64_t *n)
{
    const struct sparse *sparse = layout->sparse;
    uint32_t all = pipeline_left_out(&sparse->header.filters.section[VALUES]);
    bool is_plain =
        (record->filter_mask[VALUES] & all) == all || layout_is_unfiltered(layout, scaled);
    *address = record->address + record->section_offset[VALUES];
    *n = chunk_record_section_size(&sparse->format, record, VALUES);
    return is_plain && *n == sparse_section_size(sparse, record, VALUES) &&
           *n % layout->element_size == 0 && sparse_values_checksum(sparse, *n) == 0;
}

uint64_t sparse_values(const struct layout *layout, const struct chunk_record *record)
{
    uint64_t n = sparse_section_size(layout->sparse, record, VALUES),
             sum = sparse_values_checksum(layout->sparse, n);
    return n < sum ? 0 : (n - sum) / layout->element_size;
}

/* ---- All chunks ---- */

#define TOGETHER 1024 /* chunks that are taken out of the index at once */

struct walk {
    int rank;
    uint64_t first[SFS_MAX_RANK], last[SFS_MAX_RANK];
    size_t n;
    struct chunk_record *record; /* of TOGETHER chunks */
    uint64_t *scaled;
};

/* The chunks that a box touches, or all; false if there are none. */
static bool set_range(const struct layout *layout, const struct box *box, struct walk *walk)
{
    for (int i = 0; i < layout->rank; i++) {
        uint64_t start = box ? box->start[i] : 0, count = box ? box->count[i] : layout->dims[i];
        if (count == 0)
            return false;
        walk->first[i] = start / layout->chunk_dims[i];
        walk->last[i] = (start + count - 1) / layout->chunk_dims[i];
    }
    return true;
}

static int take(void *context, const uint64_t *scaled, const struct chunk_record *record)
{
    struct walk *walk = context;
    walk->record[walk->n] = *record;
    memcpy(walk->scaled + walk->n * (size_t)walk->rank, scaled,
           (size_t)walk->rank * sizeof(*scaled));
    return ++walk->n == TOGETHER;
}

/* The next chunks of the index, which others may change between two calls. */
static int take_some(struct layout *layout, struct walk *walk, struct index_range *range)
{
    struct why why;
    walk->n = 0;
    int error = index_iterate_in(layout->sparse->index, range, take, walk, &why);
    if (error == -EIO || error == -EILSEQ) {
        store_say(layout->store, layout->why, "%s: %s", layout->path, why.text);
        return -EIO;
    }
    return error < 0 ? error : 0;
}

static int walk_all(struct layout *layout, struct walk *walk, index_each_function each,
                    void *context)
{
    size_t rank = (size_t)layout->rank;
    uint64_t behind[SFS_MAX_RANK], budget = store_size(layout->store);
    struct index_range range = {.first = walk->first, .last = walk->last, .budget = &budget};
    int error = 0;
    do {
        error = take_some(layout, walk, &range);
        for (size_t i = 0; i < walk->n && !error; i++)
            error = each(context, walk->scaled + i * rank, &walk->record[i]);
        if (walk->n == TOGETHER)
            memcpy(behind, walk->scaled + (walk->n - 1) * rank, rank * sizeof(*behind));
        range.behind = behind;
        if (!error)
            error = interrupt_check();
    } while (!error && walk->n == TOGETHER);
    return error;
}

int layout_each_chunk(struct layout *layout, const struct box *box, index_each_function each,
                      void *context)
{
    struct walk walk = {.rank = layout->rank};
    if (layout->lost)
        return layout->lost;
    if (!set_range(layout, box, &walk))
        return 0;
    walk.record = malloc(TOGETHER * sizeof(*walk.record));
    walk.scaled = reallocarray(NULL, TOGETHER, (size_t)layout->rank * sizeof(*walk.scaled));
    int error = walk.record && walk.scaled ? walk_all(layout, &walk, each, context) : -ENOMEM;
    free(walk.record);
    free(walk.scaled);
    return error;
}

const struct layout_ops layout_sparse = {
    .lookup = lookup,
    .stored = stored,
    .decode_bytes = sparse_decode_bytes,
    .decode = sparse_decode,
    .values_at = values_at,
    .is_sparse = true,
    .defined_count = sparse_values,
    .can_hold = can_hold,
    .encode_bytes = sparse_encode_bytes,
    .encode = sparse_encode,
    .insert = sparse_insert,
};
