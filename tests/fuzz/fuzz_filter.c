/* libFuzzer: any bytes as a filtered section, with filters, parameters and mask that it chooses,
 * too. Whatever is decoded decodes to the same when it is encoded again; where our own filters and
 * libhdf5's both take the bytes, they make the same of them. What would want a plugin is not tried.
 * Frames of Blosc2 are too long to be found by chance: too short an input becomes one. */
#include <stdlib.h>
#include <string.h>

#include "filter/filter.h"
#include "fuzz.h"
#include "hdf5/hdf5.h"

#define MAX_FILTERS 4
#define MAX_VALUES  24
#define MAX_SIZE    2000

struct input {
    const uint8_t *bytes;
    size_t n;
};

static unsigned next(struct input *input)
{
    if (input->n == 0)
        return 0;
    input->n--;
    return *input->bytes++;
}

struct pipeline {
    struct sfs_filter filters[MAX_FILTERS];
    unsigned values[MAX_FILTERS][MAX_VALUES];
    size_t n;
};

/* Of libhdf5, and ours. */
static const int ids[] = {1, 2, 3, 4, 5, 6, 307, 32000, 32001, 32004, 32008, 32015, 32026};
#define N_IDS       (sizeof(ids) / sizeof(*ids))
#define LAST_THEIRS 6

/* Parameters are small numbers, or any of 32 bits. */
static void choose_filters(struct input *input, struct pipeline *pipeline)
{
    memset(pipeline, 0, sizeof(*pipeline));
    pipeline->n = next(input) % (MAX_FILTERS + 1);
    for (size_t i = 0; i < pipeline->n; i++) {
        struct sfs_filter *filter = &pipeline->filters[i];
        unsigned choice = next(input);
        filter->id = ids[choice % 16 % N_IDS];
        filter->optional = choice & 0x80;
        filter->values = pipeline->values[i];
        filter->n_values = next(input) % (MAX_VALUES + 1);
        for (size_t k = 0; k < filter->n_values; k++) {
            unsigned value = next(input);
            for (int more = value == 0xFF ? 4 : 0; more > 0; more--)
                value = value << 8 | next(input);
            pipeline->values[i][k] = value;
        }
    }
}

static int decode(const struct filter_pipeline *pipeline, const void *in, size_t in_size, void *out,
                  size_t size)
{
    size_t scratch_size = filters_scratch(pipeline, size);
    void *scratch = malloc(scratch_size);
    int error = filters_decode(pipeline, in, in_size, scratch, out, size);
    free(scratch);
    return error;
}

/* But for nbit, scale-offset and szip of fewer bits than there are, filters lose nothing. */
static bool is_lossless(const struct pipeline *pipeline)
{
    for (size_t i = 0; i < pipeline->n; i++)
        if (pipeline->filters[i].id > FILTER_FLETCHER32 && pipeline->filters[i].id <= LAST_THEIRS)
            return false;
    return true;
}

/* Plugins of others read and write beyond their buffers. */
static bool has_plugins(const struct pipeline *pipeline)
{
    for (size_t i = 0; i < pipeline->n; i++)
        if (pipeline->filters[i].id > LAST_THEIRS)
            return true;
    return false;
}

static void encode_and_decode(const struct pipeline *pipeline, const void *bytes, size_t size)
{
    struct filter_pipeline filters = {pipeline->n, pipeline->filters};
    void *stored;
    size_t n;
    if (filters_encode(&filters, bytes, size, &stored, &n) != 0)
        return;
    char *back = malloc(size);
    require(back);
    int error = decode(&filters, stored, n, back, size);
    if (is_lossless(pipeline))
        require(error == 0 && memcmp(back, bytes, size) == 0);
    free(back);
    free(stored);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n)
{
    struct input input = {bytes, n};
    struct pipeline pipeline;
    choose_filters(&input, &pipeline);
    const struct filter_pipeline filters = {pipeline.n, pipeline.filters, next(&input) % 16};
    size_t size = (next(&input) << 8 | next(&input)) % MAX_SIZE;
    bool native = filter_is_native(&filters), plugins = has_plugins(&pipeline);
    if (plugins && !native)
        return 0;

    char *in = malloc(input.n), *out = malloc(size), *theirs = malloc(size);
    require(in && out && theirs);
    memcpy(in, input.bytes, input.n);
    int error = decode(&filters, in, input.n, out, size);
    if (!error && native && !plugins &&
        hdf5_filter_decode(&filters, in, input.n, theirs, size) == 0)
        require(memcmp(theirs, out, size) == 0);
    if (!error)
        encode_and_decode(&pipeline, out, size);
    encode_and_decode(&pipeline, in, input.n);
    free(theirs);
    free(out);
    free(in);
    return 0;
}

static size_t make_frame(uint8_t *bytes, size_t most, unsigned seed)
{
    static const unsigned compressors[] = {0, 1, 2, 4, 5};
    uint8_t plain[MAX_SIZE / 2];
    unsigned values[] = {1, 0, 1 + seed % 9, 0, seed % 10, seed % 3, compressors[seed % 5]};
    const struct sfs_filter filter = {FILTER_BLOSC2, .n_values = 7, .values = values};
    struct filter_pipeline pipeline = {1, &filter};
    size_t head = 3 + 7 + 3, size = sizeof(plain) - seed % 7, n = most - head;
    for (size_t i = 0; i < size; i++)
        plain[i] = (uint8_t)(seed & 1 ? i / 50 : i * i >> 5);
    if (!filter_is_native(&pipeline) || most < head + filter_encode_bound(&pipeline, size) ||
        filter_encode(&pipeline, plain, size, NULL, bytes + head, &n) != 0)
        return 0;
    bytes[0] = 1;
    bytes[1] = N_IDS - 1;
    bytes[2] = 7;
    for (size_t i = 0; i < 7; i++)
        bytes[3 + i] = (uint8_t)values[i];
    bytes[10] = 0;
    bytes[11] = (uint8_t)(size >> 8);
    bytes[12] = (uint8_t)size;
    return head + n;
}

size_t LLVMFuzzerCustomMutator(uint8_t *bytes, size_t n, size_t most, unsigned seed)
{
    size_t made = n < 13 && seed % 2 ? make_frame(bytes, most, seed) : 0;
    return made > 0 ? made : LLVMFuzzerMutate(bytes, n, most);
}
