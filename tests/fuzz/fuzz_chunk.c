/* libFuzzer: any bytes as a structured chunk, with any record that an index would let pass: of two
 * sections or three, or of dense data, filtered or not. What is decoded fits: positions lie in the
 * chunk, of dense data all of them, and there is a value for each. */
#include <stdlib.h>
#include <string.h>

#include "common/memory_pool.h"
#include "dataset/private.h"
#include "layout/sparse.h"
#include "samples.h"

#define HEAD    20                  /* bytes of an input before those of the chunk */
#define STORED  ((uint64_t)1 << 20) /* bytes that a chunk may have in the store */
#define SAMPLES 9                   /* that samples.c makes */

/* A dataset that stays open; its file is read only while it is opened. */
struct opened {
    struct sfs_dataset *dataset;
    struct sfs_chunk_info first; /* its first chunk, */
    uint8_t *stored;             /* and the bytes of that */
};

static int take_first(void *context, const struct sfs_chunk_info *info)
{
    struct opened *opened = context;
    opened->first = *info;
    opened->stored = malloc((size_t)info->size);
    require(opened->stored != NULL);
    return 1;
}

static const struct opened *open_sample(unsigned number)
{
    static struct opened all[SAMPLES];
    const uint8_t unchanged[] = {(uint8_t)(number % SAMPLES), 0};
    struct opened *opened = &all[number % SAMPLES];
    struct sample sample;
    struct sfs_file *file;
    if (opened->dataset)
        return opened;
    require(sample_of(unchanged, sizeof(unchanged), 0, &sample));
    require(sfs_open(sample.path, NULL, &file) == 0 &&
            sfs_dataset_open(file, sample.header, "/d", &opened->dataset) == 0);
    require(sfs_chunk_iterate(opened->dataset, take_first, opened) == 1);
    void *const sections[] = {opened->stored, opened->stored + opened->first.section_size[0]};
    require(sfs_read_chunk(opened->dataset, &opened->first, sections) == 0);
    return opened;
}

static uint64_t number(const uint8_t *bytes, int width)
{
    uint64_t value = 0;
    while (width-- > 0)
        value = value << 8 | bytes[width];
    return value;
}

static void put(uint8_t *bytes, uint64_t value, int width)
{
    for (int i = 0; i < width; i++)
        bytes[i] = (uint8_t)(value >> 8 * i);
}

/* The head: sample, flags, sizes of two sections, their sizes without filters, masks, scaled
 * coordinates. Stored bytes that the first two sections do not take are those of the third. */
static bool record_of(const uint8_t *bytes, uint64_t stored,
                      const struct chunk_record_format *format, struct chunk_record *record)
{
    struct why why;
    *record = (struct chunk_record){.exists = true, .size = stored};
    record->section_offset[1] = format->first_section > 0 ? 0 : number(bytes + 2, 2);
    if (format->n_sections > 2)
        record->section_offset[2] = record->section_offset[1] + number(bytes + 4, 2);
    if (format->form == CHUNK_STRUCTURED_FILTERED) {
        record->unfiltered_size[0] = number(bytes + 6, 4);
        record->unfiltered_size[1] = number(bytes + 10, 4);
        record->filter_mask[0] = bytes[14];
        record->filter_mask[1] = bytes[15];
    }
    return chunk_record_check(format, STORED, 0, record, &why) == 0;
}

static void check(struct layout *layout, struct cache_form *form, struct pool *pool)
{
    uint64_t elements = layout->chunk_bytes / layout->element_size, before = 0;
    for (size_t i = 0; i < form->defined.n; i++) {
        struct run run = runs_at(&form->defined, i);
        require(run.first < run.last && run.last <= elements && (i == 0 || run.first > before));
        before = run.last;
    }
    if (layout->sparse->format.first_section > 0)
        require(form->defined.elements == elements);
    if (!form->has_values)
        return;
    require(form->has_defined && form->value_size == form->defined.elements * layout->element_size);
    require(form_add_elements(layout, form, pool) == 0);
}

static void decode(struct layout *layout, const uint8_t *bytes, const uint64_t *scaled,
                   const struct chunk_record *record, unsigned parts)
{
    struct cache_form form = {0};
    struct pool pool;
    uint64_t offset, n;
    layout->ops->stored(layout, record, parts, &offset, &n);
    require(offset + n <= record->size);
    void *stored = malloc((size_t)n);
    require(stored || n == 0);
    if (n > 0)
        memcpy(stored, bytes + offset, (size_t)n);
    pool_init(&pool, 0);
    require(layout->ops->decode_bytes(layout, record, parts) > 0);
    if (layout->ops->decode(layout,
                            &(struct decoding){scaled, record, parts, stored, &pool, &form}) == 0)
        check(layout, &form, &pool);
    form_free(&form, &pool);
    pool_destroy(&pool);
    free(stored);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n)
{
    struct chunk_record record;
    if (n < HEAD)
        return 0;
    struct sfs_dataset *dataset = open_sample(bytes[0])->dataset;
    struct layout *layout = &dataset->layout;
    struct sparse *sparse = dataset->sparse;
    uint64_t scaled[SFS_MAX_RANK] = {bytes[16], bytes[17], bytes[18]};
    for (int i = 0; i < layout->rank; i++) /* others are not in the dataset */
        scaled[i] %= (layout->dims[i] - 1) / layout->chunk_dims[i] + 1;
    ignore_checksums(bytes[1] & 1);
    sparse->format.n_sections = bytes[1] & 2 ? 3 : 2;
    sparse->format.first_section = (bytes[1] & 10) == 10;
    layout->unfiltered_edges = bytes[1] & 4;
    if (record_of(bytes, n - HEAD, &sparse->format, &record)) {
        decode(layout, bytes + HEAD, scaled, &record, PART_DEFINED);
        decode(layout, bytes + HEAD, scaled, &record, PART_DEFINED | PART_VALUES);
    }
    return 0;
}

/* Too short an input becomes the first chunk of a sample. */
size_t LLVMFuzzerCustomMutator(uint8_t *bytes, size_t n, size_t most, unsigned seed)
{
    if (n >= HEAD)
        return LLVMFuzzerMutate(bytes, n, most);
    const struct opened *opened = open_sample(seed);
    const struct sfs_chunk_info *info = &opened->first;
    if (most < HEAD + info->size)
        return 0;
    memset(bytes, 0, HEAD);
    bytes[0] = (uint8_t)(seed % SAMPLES);
    bytes[1] = 1;
    put(bytes + 2, info->section_size[0], 2);
    put(bytes + 4, info->section_size[1], 2);
    put(bytes + 6, info->unfiltered_size[0], 4);
    put(bytes + 10, info->unfiltered_size[1], 4);
    memcpy(bytes + HEAD, opened->stored, (size_t)info->size);
    return HEAD + (size_t)info->size;
}
