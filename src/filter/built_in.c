/* The filters that are ours. */
#include <stdio.h>
#include <string.h>

#include "filter/kind.h"

const struct filter_kind *const filter_kinds[] = {
    &filter_deflate,
    &filter_shuffle,
    &filter_fletcher32,
    &filter_bitshuffle,
    &filter_lzf,
#if HAVE_LZ4
    &filter_bitshuffle_lz4,
    &filter_lz4,
#endif
#if HAVE_ZSTD
    &filter_bitshuffle_zstd,
    &filter_zstd,
#endif
#if HAVE_BLOSC
    &filter_blosc,
#endif
#if HAVE_BLOSC2
    &filter_blosc2,
#endif
#if HAVE_BZIP2
    &filter_bzip2,
#endif
#if HAVE_SZIP
    &filter_szip,
#endif
};
const size_t filter_n_kinds = sizeof(filter_kinds) / sizeof(*filter_kinds);

uint64_t filter_load_be(const unsigned char *p, unsigned bytes)
{
    uint64_t value = 0;
    for (unsigned i = 0; i < bytes; i++)
        value = value << 8 | p[i];
    return value;
}

void filter_store_be(unsigned char *p, unsigned bytes, uint64_t value)
{
    for (unsigned i = bytes; i-- > 0; value >>= 8)
        p[i] = (unsigned char)value;
}

const struct filter_kind *filter_kind_of(const struct sfs_filter *filter)
{
    for (size_t i = 0; i < filter_n_kinds; i++) {
        const struct filter_kind *kind = filter_kinds[i];
        if (kind->id == filter->id && (!kind->takes || kind->takes(filter)))
            return kind;
    }
    return NULL;
}

const char *filter_name(int id)
{
    static const struct {
        int id;
        const char *name;
    } names[] = {
        {FILTER_DEFLATE, "deflate"}, {FILTER_SHUFFLE, "shuffle"}, {FILTER_FLETCHER32, "fletcher32"},
        {FILTER_SZIP, "szip"},       {FILTER_BZIP2, "bzip2"},     {FILTER_LZF, "lzf"},
        {FILTER_BLOSC, "blosc"},     {FILTER_LZ4, "lz4"},         {FILTER_BITSHUFFLE, "bitshuffle"},
        {FILTER_ZSTD, "zstd"},       {FILTER_BLOSC2, "blosc2"},
    };
    for (size_t i = 0; i < sizeof(names) / sizeof(*names); i++)
        if (names[i].id == id)
            return names[i].name;
    return "";
}

bool filter_library(size_t i, char *text, size_t n)
{
    size_t k = 0;
    while (k < filter_n_kinds && (!filter_kinds[k]->made_with || i-- > 0))
        k++;
    if (k == filter_n_kinds)
        return false;
    const char *version = filter_kinds[k]->version ? filter_kinds[k]->version() : "";
    snprintf(text, n, "%s%s%.*s", filter_kinds[k]->made_with, *version ? " " : "",
             (int)strcspn(version, ","), version);
    return true;
}

bool filter_is_native(const struct filter_pipeline *pipeline)
{
    for (size_t i = 0; i < pipeline->n; i++)
        if (!filter_kind_of(&pipeline->filters[i]))
            return false;
    return pipeline->n <= PIPELINE_MOST_FILTERS;
}
