/* libFuzzer: any bytes as what libhdf5's process answers. The first byte says what they are taken
 * for. What is taken is sound: it comes back the same when it is sent and taken once more. */
#include <stdlib.h>
#include <string.h>

#include "fuzz.h"
#include "hdf5/worker/wire.h"

union taken {
    struct sfs_link link;
    struct sfs_links links;
    struct sfs_attributes attributes;
    struct sfs_type type;
    struct sfs_dataset_info info;
    struct hdf5_mappings mappings;
};

#define SHAPE(NAME, FREE)                                                                          \
    static int take_##NAME##_of(struct cursor *cursor, union taken *out)                           \
    {                                                                                              \
        return take_##NAME(cursor, &out->NAME);                                                    \
    }                                                                                              \
    static void wire_##NAME##_of(struct wire *wire, const union taken *in)                         \
    {                                                                                              \
        wire_##NAME(wire, &in->NAME);                                                              \
    }                                                                                              \
    static void free_##NAME##_of(union taken *it)                                                  \
    {                                                                                              \
        FREE(&it->NAME);                                                                           \
    }

SHAPE(link, sfs_link_free)
SHAPE(links, sfs_links_free)
SHAPE(attributes, sfs_attributes_free)
SHAPE(type, hdf5_type_free)
SHAPE(info, hdf5_info_free)
SHAPE(mappings, hdf5_mappings_free)

#define ROW(NAME)                                                                                  \
    {                                                                                              \
        take_##NAME##_of, wire_##NAME##_of, free_##NAME##_of                                       \
    }

static const struct {
    int (*take)(struct cursor *cursor, union taken *out);
    void (*wire)(struct wire *wire, const union taken *in);
    void (*free)(union taken *it);
} shapes[] = {ROW(link), ROW(links), ROW(attributes), ROW(type), ROW(info), ROW(mappings)};

#define N_SHAPES (sizeof(shapes) / sizeof(*shapes))

static void take_storage_too(struct cursor *cursor, const struct sfs_dataset_info *info)
{
    struct hdf5_storage storage;
    if (take_storage(cursor, info, &storage) == 0)
        hdf5_segments_free(storage.n_segments, storage.segments);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n)
{
    union taken taken, again;
    struct wire first = {0}, second = {0};
    size_t i = n > 0 ? bytes[0] % N_SHAPES : 0;
    struct cursor cursor = cursor_over(bytes + (n > 0), n - (n > 0));
    if (shapes[i].take(&cursor, &taken) != 0)
        return 0;
    if (shapes[i].take == take_info_of)
        take_storage_too(&cursor, &taken.info);
    shapes[i].wire(&first, &taken);
    shapes[i].free(&taken);
    cursor = cursor_over(first.bytes, first.n);
    require(!first.failed && shapes[i].take(&cursor, &again) == 0 && cursor.left == 0);
    shapes[i].wire(&second, &again);
    shapes[i].free(&again);
    require(second.n == first.n && !memcmp(first.bytes, second.bytes, first.n));
    wire_free(&first);
    wire_free(&second);
    return 0;
}
