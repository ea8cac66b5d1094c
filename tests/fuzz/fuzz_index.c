/* libFuzzer: any bytes as the chunk index of a sparse dataset (single chunk, fixed array,
 * extensible array, version 2 B-tree) and as the header that names it. What is found lies in the
 * file and is found again; chunks are taken out and put in, in memory. */
#include <string.h>

#include "format/dataset_header.h"
#include "index/index.h"
#include "samples.h"
#include "store/store.h"

#define MOST_CHUNKS 64

struct found {
    struct index *index;
    uint64_t end;
    const struct chunk_record_format *format;
    size_t n;
    uint64_t scaled[MOST_CHUNKS][SFS_MAX_RANK];
    struct chunk_record record[MOST_CHUNKS];
};

static void check_record(const struct found *found, const struct chunk_record *record)
{
    require(!record->exists ||
            (record->size <= found->end && record->address <= found->end - record->size));
    for (int i = 0; record->exists && i < found->format->n_sections; i++)
        require(chunk_record_section_size(found->format, record, i) <= record->size);
}

static int take_chunk(void *context, const uint64_t *scaled, const struct chunk_record *record)
{
    struct found *found = context;
    struct chunk_record again;
    struct why why;
    require(record->exists);
    check_record(found, record);
    if (index_lookup(found->index, scaled, &again, &why) == 0)
        check_record(found, &again);
    if (found->n < MOST_CHUNKS) {
        memcpy(found->scaled[found->n], scaled, sizeof(*scaled) * (size_t)found->format->rank);
        found->record[found->n++] = *record;
    }
    return 0;
}

static int take_block(void *context, const char *name, uint64_t address, uint64_t n)
{
    const struct found *found = context;
    require(name && n <= found->end && address <= found->end - n);
    return 0;
}

/* The store is not writable: what needs more space is refused. A tree out of order may have a chunk
 * twice, so that one is still there when it was taken out. */
static void change(struct found *found)
{
    struct chunk_record record;
    struct why why;
    for (size_t i = 0; i < found->n; i++)
        if (index_remove(found->index, found->scaled[i], &why) == 0 &&
            index_lookup(found->index, found->scaled[i], &record, &why) == 0)
            check_record(found, &record);
    for (size_t i = 0; i < found->n; i++)
        if (index_insert(found->index, found->scaled[i], &found->record[i], &why) == 0 &&
            index_lookup(found->index, found->scaled[i], &record, &why) == 0)
            check_record(found, &record);
}

static void use(struct store *store, const struct superblock *superblock,
                const struct dataset_header *dataset)
{
    struct chunk_record_format format;
    struct found found = {.end = store_size(store), .format = &format};
    struct why why;
    if (layout_message_records(&dataset->layout, dataset->filtered, &format, &why) != 0 ||
        index_open(store, superblock, &dataset->layout, &format, dataset->dataspace.max_dims,
                   &found.index, &why) != 0)
        return;
    index_iterate(found.index, take_chunk, &found, &why);
    index_each_block(found.index, take_block, &found, &why);
    change(&found);
    index_close(found.index);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n)
{
    struct sample sample;
    struct store *store;
    struct superblock superblock;
    struct dataset_header dataset;
    struct why why;
    if (!sample_of(bytes, n, HEADER | INDEX, &sample))
        return 0;
    require(store_open(sample.path, &store) == 0 && superblock_read(store, &superblock, &why) == 0);
    if (dataset_header_read(store, &superblock, sample.header, &dataset, &why) == 0) {
        use(store, &superblock, &dataset);
        dataset_header_free(&dataset);
    }
    store_close(store);
    return 0;
}

size_t LLVMFuzzerCustomMutator(uint8_t *bytes, size_t n, size_t most, unsigned seed)
{
    return sample_mutate(HEADER | INDEX, bytes, n, most, seed);
}
