#include "samples.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "format/dataset_header.h"
#include "format/structure.h"
#include "index/index.h"
#include "sparsefs/sparsefs.h"
#include "store/store.h"

#define COUNT(array) (sizeof(array) / sizeof(*(array)))
#define BEGIN        2 /* bytes of an input before those of the structures */
#define DATASET      "/d"

struct region {
    unsigned kind;
    uint64_t address;
    uint64_t n;
};

#define MOST_REGIONS 2000

struct original {
    unsigned char *bytes;
    size_t n;
    uint64_t header;
    struct region region[MOST_REGIONS];
    size_t n_regions;
};

struct recipe {
    const char *type;
    int rank;
    uint64_t dims[3], max_dims[3], chunk_dims[3];
    bool selection_filtered, values_filtered, version_1;
    unsigned writes;
};

#define ANY SFS_UNLIMITED

static const struct recipe recipes[] = {
    {"uint16", 1, {40}, {40}, {40}, .writes = 4},
    {"float64", 2, {6, 9}, {6, 9}, {6, 9}, true, true, .writes = 5},
    {"int32", 2, {9, 11}, {9, 11}, {4, 4}, .writes = 6},
    {"uint8", 2, {9, 11}, {9, 20}, {4, 4}, true, true, .writes = 6},
    {"uint8", 1, {1100}, {1100}, {1}, .writes = 9},
    {"uint16", 3, {30, 4, 5}, {ANY, 4, 5}, {1, 4, 5}, false, true, .writes = 20},
    {"S5", 2, {300, 4}, {ANY, 4}, {2, 3}, true, false, .version_1 = true, .writes = 60},
    {"complex64", 2, {7, 8}, {ANY, ANY}, {3, 3}, true, true, .writes = 5},
    {"bool", 2, {40, 40}, {ANY, ANY}, {2, 2}, .version_1 = true, .writes = 150},
};

static struct original originals[COUNT(recipes)];

/* ---- Making ---- */

static void write_slabs(const struct recipe *recipe, struct sfs_dataset *dataset)
{
    for (unsigned i = 0; i < recipe->writes; i++) {
        char values[1024];
        struct sfs_slab slab = {.rank = recipe->rank};
        memset(values, (int)i + 1, sizeof(values));
        for (int axis = 0; axis < recipe->rank; axis++) {
            uint64_t dim = recipe->dims[axis];
            slab.start[axis] = (axis + 1) * i * dim / recipe->writes % dim;
            slab.count[axis] = 1 + (i + 2 * (unsigned)axis) % 3;
            if (slab.count[axis] > dim - slab.start[axis])
                slab.count[axis] = dim - slab.start[axis];
        }
        require(sfs_write(dataset, &slab, values) == 0);
    }
}

static void make(const struct recipe *recipe, const char *path)
{
    static const unsigned level = 6, item = 8;
    static const struct sfs_filter filters[] = {
        {.id = 2, .n_values = 1, .values = &item},
        {.id = 1, .n_values = 1, .values = &level},
        {.id = 3},
    };
    struct sfs_dataset_create create = {
        .rank = recipe->rank,
        .n_filters = {recipe->selection_filtered ? 2 : 0, recipe->values_filtered ? 3 : 0},
        .filters = {filters, filters},
        .version_1_selections = recipe->version_1,
    };
    memcpy(create.dims, recipe->dims, sizeof(recipe->dims));
    memcpy(create.max_dims, recipe->max_dims, sizeof(recipe->max_dims));
    memcpy(create.chunk_dims, recipe->chunk_dims, sizeof(recipe->chunk_dims));
    void *type;
    struct sfs_file *file;
    struct sfs_dataset *dataset;
    require(sfs_type_encode(recipe->type, &type, &create.type.n) == 0);
    create.type.bytes = type;
    require(sfs_create(path, NULL, &file) == 0);
    require(sfs_dataset_create(file, DATASET, &create, &dataset) == 0);
    write_slabs(recipe, dataset);
    sfs_dataset_close(dataset);
    require(sfs_close(file) == 0);
    free(type);
}

/* ---- Where our structures are ---- */

static void add(struct original *original, unsigned kind, uint64_t address, uint64_t n)
{
    require(original->n_regions < MOST_REGIONS && address + n <= original->n);
    original->region[original->n_regions++] = (struct region){kind, address, n};
}

static int add_block(void *context, const char *name, uint64_t address, uint64_t n)
{
    (void)name;
    add(context, INDEX, address, n);
    return 0;
}

static int add_chunk(void *context, const uint64_t *scaled, const struct chunk_record *record)
{
    (void)scaled;
    add(context, CHUNKS, record->address, record->size);
    return 0;
}

static void locate(struct original *original, const char *path)
{
    struct sfs_file *file;
    struct store *store;
    struct superblock superblock;
    struct dataset_header dataset;
    struct chunk_record_format format;
    struct index *index;
    struct why why;
    require(sfs_open(path, NULL, &file) == 0);
    require(sfs_find(file, sfs_root(file), DATASET, &original->header) == 0);
    sfs_discard(file);
    require(store_open(path, &store) == 0 && superblock_read(store, &superblock, &why) == 0);
    require(dataset_header_read(store, &superblock, original->header, &dataset, &why) == 0);
    for (size_t i = 0; i < dataset.header->n_blocks; i++)
        add(original, HEADER, dataset.header->block[i].address, dataset.header->block[i].n);
    require(layout_message_records(&dataset.layout, dataset.filtered, &format, &why) == 0);
    require(index_open(store, &superblock, &dataset.layout, &format, dataset.dataspace.max_dims,
                       &index, &why) == 0);
    require(index_each_block(index, add_block, original, &why) == 0);
    require(index_iterate(index, add_chunk, original, &why) == 0);
    index_close(index);
    dataset_header_free(&dataset);
    store_close(store);
}

static void load(struct original *original, const char *path)
{
    FILE *file = fopen(path, "r");
    require(file && fseek(file, 0, SEEK_END) == 0);
    original->n = (size_t)ftell(file);
    rewind(file);
    original->bytes = malloc(original->n);
    require(original->bytes && original->n <= LONGEST &&
            fread(original->bytes, 1, original->n, file) == original->n);
    fclose(file);
    locate(original, path);
}

static void make_all(void)
{
    char folder[] = "/tmp/fuzz-XXXXXX", path[sizeof(folder) + 8];
    if (originals[0].bytes)
        return;
    require(mkdtemp(folder) != NULL);
    snprintf(path, sizeof(path), "%s/d.h5", folder);
    for (size_t i = 0; i < COUNT(recipes); i++) {
        make(&recipes[i], path);
        load(&originals[i], path);
        require(unlink(path) == 0);
    }
    require(rmdir(folder) == 0);
    be_quiet();
}

/* ---- Inputs ---- */

bool sample_of(const uint8_t *bytes, size_t n, unsigned kinds, struct sample *sample)
{
    static unsigned char changed[LONGEST];
    make_all();
    if (n < BEGIN)
        return false;
    const struct original *original = &originals[bytes[0] % COUNT(recipes)];
    memcpy(changed, original->bytes, original->n);
    unsigned flags = bytes[1];
    ignore_checksums(flags & IGNORED);
    bytes += BEGIN, n -= BEGIN;
    for (size_t i = 0; i < original->n_regions; i++) {
        const struct region *region = &original->region[i];
        size_t part = n < region->n ? n : (size_t)region->n;
        if (!(region->kind & kinds))
            continue;
        memcpy(changed + region->address, bytes, part);
        bytes += part, n -= part;
        if (region->kind == HEADER && flags & REPAIRED)
            structure_sum(changed + region->address, (size_t)region->n);
    }
    *sample = (struct sample){file_of(changed, original->n), original->header};
    return true;
}

size_t sample_mutate(unsigned kinds, uint8_t *bytes, size_t n, size_t most, unsigned seed)
{
    if (n > BEGIN)
        return LLVMFuzzerMutate(bytes, n, most);
    make_all();
    if (most < BEGIN)
        return 0;
    const struct original *original = &originals[seed % COUNT(recipes)];
    bytes[0] = (uint8_t)(seed % COUNT(recipes));
    bytes[1] = IGNORED;
    n = BEGIN;
    for (size_t i = 0; i < original->n_regions; i++) {
        const struct region *region = &original->region[i];
        size_t part = most - n < region->n ? most - n : (size_t)region->n;
        if (!(region->kind & kinds))
            continue;
        memcpy(bytes + n, original->bytes + region->address, part);
        n += part;
    }
    return n;
}
