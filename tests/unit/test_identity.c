/* The files of the public prototype, written again by us from what they hold: layout message,
 * section filter message, the blocks of the index and the chunks have the same bytes. Addresses are
 * named after what stands there, since libhdf5 places things otherwise. Deflate of another library
 * makes other bytes: such chunks are compared without their filters, and of the blocks of the
 * index, which have the sizes of filtered chunks in them, only how many there are. */
#include "support.h"

#include <glob.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "filter/filter.h"
#include "format/checksum.h"
#include "format/object_header.h"
#include "sparsefs/sparsefs.h"
#include "store/store.h"

#define AGAIN "again.h5"

/* What a writer of today does not write by default: other encodings of selections, chunks that
 * nothing is defined in, chunks that were erased again, other versions; and all_partial, written
 * with H5S_ALL, whose selections name other max dims than those made from the dataset's dataspace.
 */
static const char *const variants[] = {"points",  "selv3",  "empty_chunk", "erased",
                                       "subver1", "latest", "all_partial", "pline3"};

/* ---- A file, open and as bytes ---- */

#define MOST_CHUNKS 4000
#define MOST_BLOCKS 400

struct block {
    const char *kind;
    uint64_t address;
    size_t n;
    bool taken; /* the same as one in the other file */
};

struct sides {
    struct sfs_file *file;
    struct sfs_dataset *dataset;
    struct sfs_chunk_info chunk[MOST_CHUNKS];
    size_t n_chunks;
    unsigned char *bytes; /* of the whole file */
    size_t n;
    struct block block[MOST_BLOCKS];
    size_t n_blocks;
};

static int note_chunk(void *context, const struct sfs_chunk_info *info)
{
    struct sides *side = context;
    assert_true(side->n_chunks < MOST_CHUNKS);
    side->chunk[side->n_chunks++] = *info;
    return 0;
}

static void read_bytes(struct sides *side, const char *path)
{
    FILE *stream = fopen(path, "rb");
    assert_non_null(stream);
    fseek(stream, 0, SEEK_END);
    side->n = (size_t)ftell(stream);
    rewind(stream);
    side->bytes = allocate(side->n);
    assert_int_equal(fread(side->bytes, 1, side->n, stream), side->n);
    fclose(stream);
}

static uint64_t number(const unsigned char *bytes, size_t n)
{
    uint64_t result = 0;
    while (n > 0)
        result = result << 8 | bytes[--n];
    return result;
}

/* A block ends where the checksum of all before it stands; 0: it is none. */
static size_t block_size(const unsigned char *bytes, size_t most)
{
    for (size_t n = 8; n + 4 <= most && n < 8192; n++)
        if (number(bytes + n, 4) == checksum(bytes, n))
            return n + 4;
    return 0;
}

/* What was given up may still stand in free space: nothing tells of its address. */
static bool is_told_of(const struct sides *side, uint64_t address)
{
    for (size_t at = 0; at + 8 <= side->n; at++)
        if (number(side->bytes + at, 8) == address)
            return true;
    return false;
}

static void find_blocks(struct sides *side)
{
    static const char *const kinds[] = {"FAHD", "FADB", "EAHD", "EAIB", "EASB",
                                        "EADB", "BTHD", "BTIN", "BTLF"};
    for (size_t at = 0; at + 12 < side->n; at++)
        for (size_t k = 0; k < COUNT(kinds); k++) {
            size_t n = memcmp(side->bytes + at, kinds[k], 4)
                           ? 0
                           : block_size(side->bytes + at, side->n - at);
            if (n == 0 || !is_told_of(side, at))
                continue;
            assert_true(side->n_blocks < MOST_BLOCKS);
            side->block[side->n_blocks++] = (struct block){kinds[k], at, n, false};
        }
}

/* What stands at an address: a chunk by its number, a block by its signature, anything else 0. */
static uint64_t name_of(const struct sides *side, uint64_t address)
{
    for (size_t i = 0; i < side->n_chunks; i++)
        if (side->chunk[i].address == address)
            return 1 + i;
    for (size_t i = 0; i < side->n_blocks; i++)
        if (side->block[i].address == address)
            return number((const unsigned char *)side->block[i].kind, 4);
    return 0;
}

/* Whether n bytes of one file and of the other are the same but for addresses of the same things.
 */
static bool same_but_addresses(const struct sides *original, const unsigned char *a,
                               const struct sides *again, const unsigned char *b, size_t n)
{
    for (size_t at = 0; at < n;) {
        uint64_t name = at + 8 <= n ? name_of(original, number(a + at, 8)) : 0;
        if (name && name == name_of(again, number(b + at, 8)))
            at += 8;
        else if (a[at] == b[at])
            at++;
        else
            return false;
    }
    return true;
}

static void open_side(struct sides *side, const char *path, const char *name)
{
    uint64_t address;
    memset(side, 0, sizeof(*side));
    read_bytes(side, path);
    assert_int_equal(sfs_open(path, NULL, &side->file), 0);
    assert_int_equal(sfs_find(side->file, sfs_root(side->file), name, &address), 0);
    assert_int_equal(sfs_dataset_open(side->file, address, name, &side->dataset), 0);
    assert_int_equal(sfs_chunk_iterate(side->dataset, note_chunk, side), 0);
    find_blocks(side);
}

static void close_side(struct sides *side)
{
    free(side->bytes);
    sfs_dataset_close(side->dataset);
    assert_int_equal(sfs_close(side->file), 0);
}

/* ---- Writing again ---- */

static void copy_elements(struct sfs_dataset *from, struct sfs_dataset *to,
                          const struct sfs_chunk_info *chunk)
{
    const struct sfs_dataset_info *info = sfs_dataset_info(from);
    struct sfs_slab slab = {.rank = info->rank};
    struct sfs_defined defined;
    for (int i = 0; i < info->rank; i++) {
        uint64_t left = info->dims[i] - chunk->start[i];
        slab.start[i] = chunk->start[i];
        slab.count[i] = left < info->chunk_dims[i] ? left : info->chunk_dims[i];
    }
    assert_int_equal(sfs_get_defined(from, &slab, &defined), 0);
    char *values = allocate((size_t)defined.elements * info->type.size);
    assert_int_equal(sfs_read_values(from, &slab, &defined, 0, defined.elements, values), 0);
    assert_int_equal(sfs_write_values(to, &slab, &defined, values), 0);
    free(values);
    sfs_defined_free(&defined);
}

static void write_again(const struct sides *original)
{
    const struct sfs_dataset_info *info = sfs_dataset_info(original->dataset);
    struct sfs_options options = {.replace = true};
    struct sfs_file *file = NULL;
    struct sfs_dataset *dataset = NULL;
    struct sfs_dataset_create create = {
        .rank = info->rank,
        .type = info->encoded_type,
        .fill = info->fill,
        .n_filters = {info->n_selection_filters, info->n_filters},
        .filters = {info->selection_filters, info->filters},
        .version_1_selections = true,
    };
    memcpy(create.dims, info->dims, sizeof(create.dims));
    memcpy(create.max_dims, info->max_dims, sizeof(create.max_dims));
    memcpy(create.chunk_dims, info->chunk_dims, sizeof(create.chunk_dims));
    assert_int_equal(sfs_create(AGAIN, &options, &file), 0);
    assert_int_equal(sfs_dataset_create(file, "/sparse", &create, &dataset), 0);
    /* Threads that encode would add chunks to the index in any order. */
    for (size_t i = 0; i < original->n_chunks; i++) {
        copy_elements(original->dataset, dataset, &original->chunk[i]);
        assert_int_equal(sfs_flush(file), 0);
    }
    sfs_dataset_close(dataset);
    assert_int_equal(sfs_close(file), 0);
}

/* ---- Comparing ---- */

/* A message of the dataset's header; the caller frees *bytes. */
static size_t message_of(const struct sides *side, enum message_type type, unsigned char **bytes)
{
    struct store *store = NULL;
    struct superblock superblock;
    struct object_header *header = NULL;
    struct why why;
    assert_int_equal(store_open(sfs_path(side->file), &store), 0);
    assert_int_equal(superblock_read(store, &superblock, &why), 0);
    assert_int_equal(
        object_header_read(store, &superblock, sfs_dataset_address(side->dataset), &header, &why),
        0);
    const struct message *message = object_header_find(header, type);
    size_t n = message ? message->size : 0;
    *bytes = allocate(n);
    if (message)
        memcpy(*bytes, message->data, n);
    object_header_free(header);
    store_close(store);
    return n;
}

/* The field is garbage in what the prototype writes. */
static void clear_node_size(const struct sides *side, unsigned char *layout)
{
    const struct sfs_dataset_info *info = sfs_dataset_info(side->dataset);
    size_t index = 8 + (size_t)(info->rank + 1) * layout[7] + 4;
    if (layout[index] == 5)
        memset(layout + index + 1, 0, 4);
}

/* Messages of version 1 headers are padded with zeros to a multiple of 8 bytes. */
static void check_padding(const unsigned char *bytes, size_t padded, size_t n)
{
    assert_true(padded == n || padded == (n + 7) / 8 * 8);
    for (; n < padded; n++)
        assert_int_equal(bytes[n], 0);
}

static void check_messages(const struct sides *original, const struct sides *again, bool same_sizes)
{
    unsigned char *a, *b;
    size_t padded = message_of(original, MESSAGE_SECTION_FILTERS, &a);
    size_t n = message_of(again, MESSAGE_SECTION_FILTERS, &b);
    check_padding(a, padded, n);
    assert_memory_equal(a, b, n);
    free(a);
    free(b);
    padded = message_of(original, MESSAGE_LAYOUT, &a);
    n = message_of(again, MESSAGE_LAYOUT, &b);
    check_padding(a, padded, n);
    clear_node_size(original, a);
    clear_node_size(again, b);
    if (same_sizes) /* that of a single chunk is in the message */
        assert_true(same_but_addresses(original, a, again, b, n));
    free(a);
    free(b);
}

/* A section of a chunk without its filters. */
static unsigned char *plain_section(const struct sides *side, const struct sfs_chunk_info *chunk,
                                    int section)
{
    const struct sfs_dataset_info *info = sfs_dataset_info(side->dataset);
    const unsigned char *stored =
        side->bytes + chunk->address + (section ? chunk->section_size[0] : 0);
    struct filter_pipeline filters = {info->n_selection_filters, info->selection_filters};
    if (section)
        filters = pipeline_of(info);
    filters.mask = chunk->filter_mask[section];
    size_t size = (size_t)chunk->unfiltered_size[section];
    unsigned char *plain = allocate(size), *scratch = allocate(filters_scratch(&filters, size));
    if (filters.n > 0)
        assert_int_equal(filters_decode(&filters, stored, (size_t)chunk->section_size[section],
                                        scratch, plain, size),
                         0);
    else
        memcpy(plain, stored, size);
    free(scratch);
    return plain;
}

/* Returns whether the chunks have the same bytes with their filters, too. */
static bool check_chunks(const struct sides *original, const struct sides *again)
{
    bool same = true;
    assert_int_equal(again->n_chunks, original->n_chunks);
    for (size_t i = 0; i < original->n_chunks; i++) {
        const struct sfs_chunk_info *a = &original->chunk[i], *b = &again->chunk[i];
        assert_memory_equal(a->start, b->start, sizeof(a->start));
        for (int section = 0; section < SFS_SECTIONS; section++) {
            assert_int_equal(a->unfiltered_size[section], b->unfiltered_size[section]);
            assert_int_equal(a->filter_mask[section], b->filter_mask[section]);
            unsigned char *plain = plain_section(original, a, section);
            unsigned char *other = plain_section(again, b, section);
            assert_memory_equal(plain, other, (size_t)a->unfiltered_size[section]);
            free(plain);
            free(other);
        }
        same =
            same && a->size == b->size &&
            memcmp(original->bytes + a->address, again->bytes + b->address, (size_t)a->size) == 0;
    }
    return same;
}

/* The checksum at the end is of the addresses, too. */
static bool take_same(const struct sides *original, const struct block *block, struct sides *again)
{
    for (size_t i = 0; i < again->n_blocks; i++) {
        struct block *other = &again->block[i];
        if (other->taken || other->n != block->n ||
            !same_but_addresses(original, original->bytes + block->address, again,
                                again->bytes + other->address, block->n - 4))
            continue;
        other->taken = true;
        return true;
    }
    return false;
}

static void check_blocks(const struct sides *original, struct sides *again, bool same_sizes)
{
    assert_int_equal(again->n_blocks, original->n_blocks);
    for (size_t i = 0; i < original->n_blocks && same_sizes; i++)
        if (!take_same(original, &original->block[i], again))
            fail_msg("%s at address %llu is not written again", original->block[i].kind,
                     (unsigned long long)original->block[i].address);
}

static bool is_variant(const char *path)
{
    for (size_t i = 0; i < COUNT(variants); i++)
        if (strstr(path, variants[i]))
            return true;
    return false;
}

static void what_the_prototype_writes_is_written_byte_for_byte(void **state)
{
    (void)state;
    static struct sides original, again;
    const char *folder = getenv("SPARSEFS_TEST_DATA");
    char pattern[4096];
    glob_t found;
    int identical = 0, inflated = 0;
    snprintf(pattern, sizeof(pattern), "%s/prototype/*.h5", folder ? folder : EXTRA_DATA);
    if (glob(pattern, 0, NULL, &found) != 0)
        skip();
    for (size_t i = 0; i < found.gl_pathc; i++) {
        if (is_variant(found.gl_pathv[i]))
            continue;
        print_message("%s\n", strrchr(found.gl_pathv[i], '/') + 1);
        open_side(&original, found.gl_pathv[i], "/sparse");
        write_again(&original);
        open_side(&again, AGAIN, "/sparse");
        bool same = check_chunks(&original, &again);
        check_messages(&original, &again, same);
        check_blocks(&original, &again, same);
        *(same ? &identical : &inflated) += 1;
        close_side(&original);
        close_side(&again);
    }
    globfree(&found);
    print_message("%d the same byte for byte, %d but for deflate\n", identical, inflated);
    assert_true(identical > 0);
}

TEST_MAIN(cmocka_unit_test(what_the_prototype_writes_is_written_byte_for_byte))
