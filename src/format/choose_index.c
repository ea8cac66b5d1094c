/* The layout message of a new dataset: which index its dims want, or was asked for, and the numbers of
 * that. */
#include <errno.h>
#include <inttypes.h>

#include "common/box.h"
#include "format/layout_message.h"

#define NODE_BYTES 2048 /* of B-trees */

static int check_axis(int axis, uint64_t dim, uint64_t max_dim, uint64_t chunk_dim, struct why *why)
{
    if (chunk_dim < 1 || chunk_dim > UINT32_MAX)
        return why_refused(why, -EINVAL,
                           "chunk dimension %" PRIu64 " of axis %d is not 1 to 2^32 - 1", chunk_dim,
                           axis);
    if (dim == SFS_UNLIMITED || max_dim < dim)
        return why_refused(why, -EINVAL,
                           "dimension %" PRIu64 " of axis %d exceeds the largest, %" PRIu64, dim,
                           axis, max_dim);
    if (dim != 0 && max_dim != SFS_UNLIMITED && chunk_dim > max_dim)
        return why_refused(why, -EINVAL,
                           "chunk dimension %" PRIu64
                           " of axis %d exceeds that of the dataset, which is fixed: %" PRIu64,
                           chunk_dim, axis, max_dim);
    return 0;
}

static enum chunk_index_kind index_for(const struct new_dataset *dataset)
{
    const uint64_t *dims = dataset->dims, *max_dims = dataset->max_dims;
    int n_unlimited = 0;
    bool single = true;
    for (int i = 0; i < dataset->rank; i++) {
        n_unlimited += max_dims[i] == SFS_UNLIMITED;
        single &= dims[i] == max_dims[i] && dims[i] == dataset->chunk_dims[i];
    }
    if (n_unlimited > 0)
        return n_unlimited > 1 ? INDEX_BTREE2 : INDEX_EXTENSIBLE_ARRAY;
    return single ? INDEX_SINGLE : INDEX_FIXED_ARRAY;
}

static void set_parameters(struct layout_message *l)
{
    switch (l->index) {
    case INDEX_SINGLE:
        break;
    case INDEX_FIXED_ARRAY:
        l->page_bits = 10;
        break;
    case INDEX_EXTENSIBLE_ARRAY:
        l->max_bits = 32;
        l->index_block_elements = 4;
        l->super_block_min_blocks = 4;
        l->data_block_min_elements = 16;
        l->data_page_bits = 10;
        break;
    case INDEX_BTREE2:
        l->node_bytes = NODE_BYTES;
        l->split_percent = 100;
        l->merge_percent = 40;
        break;
    }
}

/* An array has an element for each chunk of the max dims, of which there cannot be 2^64. */
static int check_grid(const struct layout_message *l, const uint64_t *max_dims, struct why *why)
{
    uint64_t n = 1;
    for (int i = 0; i < l->rank && l->index != INDEX_BTREE2; i++) {
        uint64_t chunk = l->chunk_dims[i];
        if (max_dims[i] != SFS_UNLIMITED &&
            __builtin_mul_overflow(n, max_dims[i] / chunk + (max_dims[i] % chunk != 0), &n))
            return why_refused(why, -EFBIG,
                               "the max dims are of more than 2^64 chunks, for which only a B-tree "
                               "has room");
    }
    return 0;
}

int layout_message_init(const struct new_dataset *dataset, struct layout_message *layout,
                        struct why *why)
{
    int rank = dataset->rank, n_sections = dataset->n_sections;
    struct layout_message l = {
        .rank = rank,
        .element_size = dataset->element_size,
        .offset_size = 8,
        .offset_size_width = 1,
        .n_sections = n_sections,
        .type = n_sections == MAX_SECTIONS ? LAYOUT_SPARSE | LAYOUT_VARIABLE_LENGTH : 0,
        .address = NO_ADDRESS,
        .single = {.address = NO_ADDRESS},
    };
    if (rank < 1 || rank > SFS_MAX_RANK)
        return why_refused(why, -EINVAL, "rank %d is not 1 to %d", rank, SFS_MAX_RANK);
    if (l.element_size < 1 || l.element_size > UINT32_MAX)
        return why_refused(why, -EINVAL, "element size %" PRIu64 " is not 1 to 2^32 - 1",
                           l.element_size);
    if (n_sections < 2 || n_sections > MAX_SECTIONS)
        return why_refused(why, -EINVAL, "chunks of %d sections", n_sections);
    for (int i = 0; i < rank; i++) {
        uint64_t chunk_dim = dataset->chunk_dims[i];
        int error = check_axis(i, dataset->dims[i], dataset->max_dims[i], chunk_dim, why);
        if (error)
            return error;
        l.chunk_dims[i] = chunk_dim;
    }
    l.index = index_for(dataset);
    l.single_filtered = l.index == INDEX_SINGLE && dataset->filtered;
    set_parameters(&l);
    if (layout_message_chunk_bytes(&l) == UINT64_MAX)
        return why_refused(why, -EFBIG, "the bytes of a chunk exceed 63 bits");
    *layout = l;
    return 0;
}

/* ---- What is asked for ---- */

static enum chunk_index_kind kind_of(enum sfs_index_kind kind)
{
    static const enum chunk_index_kind kinds[] = {
        [SFS_INDEX_SINGLE] = INDEX_SINGLE,
        [SFS_INDEX_FIXED_ARRAY] = INDEX_FIXED_ARRAY,
        [SFS_INDEX_EXTENSIBLE_ARRAY] = INDEX_EXTENSIBLE_ARRAY,
        [SFS_INDEX_BTREE] = INDEX_BTREE2,
    };
    return kinds[kind];
}

static int choose_kind(enum sfs_index_kind kind, const struct new_dataset *dataset,
                       struct layout_message *l, struct why *why)
{
    static const char *const reasons[] = {
        [INDEX_SINGLE] = "a single chunk: dims, max dims and chunk dims must be the same",
        [INDEX_FIXED_ARRAY] = "a fixed array: no axis may be unlimited",
        [INDEX_EXTENSIBLE_ARRAY] = "an extensible array: one axis must be unlimited",
    };
    enum chunk_index_kind best = index_for(dataset);
    if (kind == SFS_INDEX_AUTOMATIC)
        return 0;
    if ((unsigned)kind > SFS_INDEX_BTREE)
        return why_refused(why, -EINVAL, "chunk index %d is not known", (int)kind);
    enum chunk_index_kind wanted = kind_of(kind);
    bool possible = wanted == best || wanted == INDEX_BTREE2 ||
                    (wanted == INDEX_FIXED_ARRAY && best == INDEX_SINGLE);
    if (!possible)
        return why_refused(why, -EINVAL, "the index cannot be %s", reasons[wanted]);
    l->index = wanted;
    set_parameters(l);
    return 0;
}

/* A number that the index may have. */
struct index_number {
    const char *name;
    bool has; /* this kind of index has it */
    unsigned least, most;
};

/* Where one was asked for: wanted is not 0. */
static int choose_number(const struct index_number *of, unsigned wanted, unsigned *number,
                         struct why *why)
{
    if (wanted == 0)
        return 0;
    if (!of->has)
        return why_refused(why, -EINVAL, "the index has no %s", of->name);
    if (wanted < of->least || wanted > of->most)
        return why_refused(why, -EINVAL, "%s of the index: %u is not %u to %u", of->name, wanted,
                           of->least, of->most);
    *number = wanted;
    return 0;
}

static bool is_power_of_two(unsigned x)
{
    return (x & (x - 1)) == 0;
}

/* What the numbers of an extensible array must be to each other, as libhdf5 wants it. */
static int check_array(const struct layout_message *l, struct why *why)
{
    if (!is_power_of_two(l->data_block_min_elements) || !is_power_of_two(l->super_block_min_blocks))
        return why_refused(why, -EINVAL,
                           "extensible array: the least elements of a data block (%u) and data "
                           "blocks of a super block (%u) must be powers of two",
                           l->data_block_min_elements, l->super_block_min_blocks);
    uint64_t page = (uint64_t)1 << l->data_page_bits;
    uint64_t largest = (uint64_t)l->data_block_min_elements * l->super_block_min_blocks;
    if (page < largest || page < l->index_block_elements)
        return why_refused(why, -EINVAL,
                           "extensible array: pages of %" PRIu64 " elements are smaller than the "
                           "blocks without pages (%" PRIu64 ") or the index block (%u)",
                           page, largest, l->index_block_elements);
    unsigned super_blocks = 1 + l->max_bits - floor_log2(l->data_block_min_elements);
    if (l->data_page_bits > l->max_bits || floor_log2(l->data_block_min_elements) > l->max_bits ||
        2 * floor_log2(l->super_block_min_blocks) > super_blocks)
        return why_refused(why, -EINVAL,
                           "extensible array: its pages or blocks have more elements than numbers "
                           "of %u bits",
                           l->max_bits);
    return 0;
}

static int choose_array(const struct sfs_index *index, struct layout_message *l, struct why *why)
{
    bool is = l->index == INDEX_EXTENSIBLE_ARRAY;
    const struct index_number page_bits = {"page bits", is || l->index == INDEX_FIXED_ARRAY, 1, 31},
                              max_bits = {"bits of the number of elements", is, 1, 32},
                              in_index_block = {"elements in the index block", is, 1, UINT8_MAX},
                              in_data_block = {"least elements of a data block", is, 1, 128},
                              in_super_block = {"least data blocks of a super block", is, 2, 128};
    int error =
        choose_number(&page_bits, index->page_bits, is ? &l->data_page_bits : &l->page_bits, why);
    if (!error)
        error = choose_number(&max_bits, index->max_bits, &l->max_bits, why);
    if (!error)
        error = choose_number(&in_index_block, index->index_block_elements,
                              &l->index_block_elements, why);
    if (!error)
        error = choose_number(&in_data_block, index->data_block_min_elements,
                              &l->data_block_min_elements, why);
    if (!error)
        error = choose_number(&in_super_block, index->super_block_min_blocks,
                              &l->super_block_min_blocks, why);
    return error || !is ? error : check_array(l, why);
}

static int choose_tree(const struct sfs_index *index, const struct superblock *superblock,
                       bool filtered, struct layout_message *l, struct why *why)
{
    bool is = l->index == INDEX_BTREE2;
    struct chunk_record_format format;
    int error = layout_message_records(l, filtered, &format, why);
    if (error)
        return error;
    size_t least = layout_message_least_node(superblock, chunk_record_in_tree(&format, superblock));
    const struct index_number in_node = {"bytes in a node", is, (unsigned)least, MOST_NODE_BYTES},
                              split = {"split percent", is, 1, 100},
                              merge = {"merge percent", is, 1, 100};
    error = choose_number(&in_node, index->node_size, &l->node_bytes, why);
    if (!error)
        error = choose_number(&split, index->split_percent, &l->split_percent, why);
    if (!error)
        error = choose_number(&merge, index->merge_percent, &l->merge_percent, why);
    if (!error && is && 2 * l->merge_percent >= l->split_percent)
        error = why_refused(why, -EINVAL,
                            "B-tree: a merge percent of %u is not less than half of the split "
                            "percent, %u",
                            l->merge_percent, l->split_percent);
    return error;
}

/* Of a fixed array with pages of a size that was asked for: one of them, or the block of all elements if
 * they are fewer, and what says which pages are there, are in memory as a whole. */
static int check_page(const struct layout_message *l, const struct superblock *superblock,
                      const struct new_dataset *dataset, struct why *why)
{
    struct chunk_record_format format;
    uint64_t n = 1, page = (uint64_t)1 << l->page_bits;
    int error = layout_message_records(l, dataset->filtered, &format, why);
    if (error)
        return error;
    for (int i = 0; i < l->rank; i++) {
        uint64_t chunk = l->chunk_dims[i];
        n *= dataset->max_dims[i] / chunk + (dataset->max_dims[i] % chunk != 0);
    }
    uint64_t n_pages = n / page;
    page = n < page ? n : page;
    if (page > MOST_PAGE_BYTES / chunk_record_element(&format, superblock))
        return why_refused(why, -EINVAL,
                           "fixed array: %" PRIu64
                           " elements in a page (page bits %u) have more than "
                           "%d MiB",
                           page, l->page_bits, MOST_PAGE_BYTES >> 20);
    if (n_pages / 8 >= MOST_PAGE_BYTES / 2)
        return why_refused(why, -EINVAL,
                           "fixed array: with page bits %u it has too many pages, %" PRIu64,
                           l->page_bits, n_pages);
    return 0;
}

int layout_message_choose(const struct layout_choice *choice, const struct superblock *superblock,
                          const struct new_dataset *dataset, struct layout_message *layout,
                          struct why *why)
{
    struct layout_message l = *layout;
    if ((unsigned)choice->order > SFS_LAYOUT_MESSAGE_SECTIONED)
        return why_refused(why, -EINVAL, "layout message %d is not known", (int)choice->order);
    if (choice->is_dense && l.n_sections < MAX_SECTIONS)
        return why_refused(why, -EINVAL, "structured chunks of dense data of fixed size");
    l.first_section = choice->is_dense;
    int error = choose_kind(choice->index.kind, dataset, &l, why);
    if (!error)
        error = check_grid(&l, dataset->max_dims, why);
    if (!error)
        error = choose_array(&choice->index, &l, why);
    if (!error)
        error = choose_tree(&choice->index, superblock, dataset->filtered, &l, why);
    if (!error && l.index == INDEX_FIXED_ARRAY && choice->index.page_bits > 0)
        error = check_page(&l, superblock, dataset, why);
    if (error)
        return error;
    l.single_filtered = l.index == INDEX_SINGLE && dataset->filtered;
    l.unfiltered_edges = choice->unfiltered_edges;
    l.order = choice->order;
    if (choice->rfc_encoding || l.order == SFS_LAYOUT_MESSAGE_SECTIONED)
        l.type = LAYOUT_SPARSE | (l.n_sections == MAX_SECTIONS ? LAYOUT_VARIABLE_LENGTH : 0);
    if (choice->is_dense)
        l.type = LAYOUT_VARIABLE_LENGTH;

    *layout = l;
    return 0;
}

struct sfs_index layout_message_index(const struct layout_message *l)
{
    switch (l->index) {
    case INDEX_SINGLE:
        return (struct sfs_index){.kind = SFS_INDEX_SINGLE};
    case INDEX_FIXED_ARRAY:
        return (struct sfs_index){.kind = SFS_INDEX_FIXED_ARRAY, .page_bits = l->page_bits};
    case INDEX_EXTENSIBLE_ARRAY:
        return (struct sfs_index){
            .kind = SFS_INDEX_EXTENSIBLE_ARRAY,
            .page_bits = l->data_page_bits,
            .max_bits = l->max_bits,
            .index_block_elements = l->index_block_elements,
            .data_block_min_elements = l->data_block_min_elements,
            .super_block_min_blocks = l->super_block_min_blocks,
        };
    case INDEX_BTREE2:
        break;
    }
    return (struct sfs_index){
        .kind = SFS_INDEX_BTREE,
        .node_size = l->node_bytes,
        .split_percent = l->split_percent,
        .merge_percent = l->merge_percent,
    };
}
