/* What the parts of a pipeline are made of: a filter is one struct filter_kind (or one for each
 * kind of parameters that it takes), in a file of its own, and stands in the table of built_in.c.
 * Included by this folder only. */
#ifndef SPARSEFS_FILTER_KIND_H
#define SPARSEFS_FILTER_KIND_H

#include "config.h"

#include "filter/filter.h"

/* How the number of bytes changes by encoding. */
enum filter_effect {
    KEEPS_SIZE,
    COMPRESSES, /* any other number of bytes, also more */
    APPENDS,    /* the same bytes, and a checksum of them */
};

/* No limit to what a byte may become: for most_inflated. */
#define INFLATES_ANYHOW UINT32_MAX

/* decode: exactly size bytes of in_size, which both are as the effect demands. 0; -EILSEQ: the
 * bytes are damaged or another number of bytes comes out; -ENOMEM. It reads and writes nothing
 * beyond the sizes and allocates no more than they say. What goes through many pieces asks cpu_limit_check
 * between them. encode: *out_size bytes, in `out` with room
 * for `capacity`: what bound says or more, `size` (KEEPS_SIZE), or `appended` (APPENDS). 0; -EINVAL:
 * the filter does not take these bytes, or not with its parameters; -ENOMEM. Either is thread-safe.
 *
 * What APPENDS decodes without `out`, and encodes only what it appends. */
struct filter_kind {
    int id;
    enum filter_effect effect;
    size_t appended;        /* APPENDS: bytes */
    uint32_t most_inflated; /* COMPRESSES: the most bytes that are made of one when decoding */

    /* Whether these parameters are taken; NULL: any are. */
    bool (*takes)(const struct sfs_filter *filter);

    /* COMPRESSES: the most bytes made of `size` bytes; at least `size`. SIZE_MAX: too many. */
    size_t (*bound)(const struct sfs_filter *filter, size_t size);

    /* COMPRESSES: the size of what is decoded, as the bytes say themselves, to be believed with
     * care (filter_can_make); false: they do not. */
    bool (*plain_size)(const struct sfs_filter *filter, const void *in, size_t in_size,
                       uint64_t *size);

    /* Makes the parameters that a dataset is created with those that stand in its header, as the
     * plugin does (H5Z_set_local_func_t), for elements of element_size bytes in chunks of
     * chunk_bytes. values has room for `room` of them. NULL: they are the same. The kind that has
     * it says it for all of the same id. */
    bool (*complete)(size_t element_size, size_t chunk_bytes, unsigned *values, size_t *n,
                     size_t room);

    int (*decode)(const struct sfs_filter *filter, const void *in, size_t in_size, void *out,
                  size_t size);
    int (*encode)(const struct sfs_filter *filter, const void *in, size_t size, void *out,
                  size_t capacity, size_t *out_size);

    /* The library that it is made with; NULL: none, or the kind of another one says it. version:
     * what it says itself, perhaps with a comma and more behind it; NULL: it does not say. */
    const char *made_with;
    const char *(*version)(void);

    /* COMPRESSES, for those whose bytes do not say what plain_size wants to know: as decode, of at
     * most `room` bytes, so many as come out; more are -EILSEQ. */
    int (*decode_most)(const struct sfs_filter *filter, const void *in, size_t in_size, void *out,
                       size_t room, size_t *size);
};

extern const struct filter_kind filter_deflate, filter_shuffle, filter_fletcher32,
    filter_bitshuffle, filter_bitshuffle_lz4, filter_bitshuffle_zstd, filter_lz4, filter_zstd,
    filter_blosc, filter_blosc2, filter_bzip2, filter_lzf, filter_szip;

extern const struct filter_kind *const filter_kinds[];
extern const size_t filter_n_kinds;

/* The kind of a filter; NULL: it is not ours, or not with these parameters. */
const struct filter_kind *filter_kind_of(const struct sfs_filter *filter);

/* A parameter, or what stands for it where there are fewer. */
static inline unsigned filter_value(const struct sfs_filter *filter, size_t i, unsigned otherwise)
{
    return i < filter->n_values ? filter->values[i] : otherwise;
}

/* Big-endian numbers. */
uint64_t filter_load_be(const unsigned char *p, unsigned bytes);
void filter_store_be(unsigned char *p, unsigned bytes, uint64_t value);

/* Of n elements, at most SHUFFLE_MOST_PARTS, which are `step` bytes apart, the first 8, 4, 2 or 1
 * of the `left` bytes that are still to be moved; byte k of them stands at planes[k * plane].
 * Return how many bytes they were. */
#define SHUFFLE_MOST_PARTS 512
size_t shuffle_interleave(const unsigned char *planes, size_t plane, size_t left,
                          unsigned char *out, size_t step, size_t n);
size_t shuffle_separate(const unsigned char *in, size_t step, size_t left, unsigned char *planes,
                        size_t plane, size_t n);

/* What compresses one block by itself. decode makes exactly `size` bytes: 0, -EILSEQ or -ENOMEM.
 * bound: the most bytes made of `size`, which are no more than most_bytes; with as much capacity
 * encode fails only with -ENOMEM. */
struct block_codec {
    size_t most_bytes; /* of a block */
    size_t (*bound)(size_t size);
    int (*decode)(const void *in, size_t in_size, void *out, size_t size);
    int (*encode)(int level, const void *in, size_t size, void *out, size_t capacity,
                  size_t *out_size);
};
extern const struct block_codec lz4_codec, zstd_codec;
#define MOST_INFLATED_BY_lz4 255 /* a match grows by as much for a byte */
#define MOST_INFLATED_BY_zstd                                                                      \
    65536 /* 128 KiB of one byte take 4, and the frame around them more                            \
           */

/* ---- claimed_size.c ---- */

/* The most bytes that stand before filter i, when `size` stand before the first; exactly so many as
 * long as none before it compresses. */
size_t filter_most_before(const struct filter_pipeline *pipeline, size_t i, size_t size);

/* Whether a filter puts what it decodes elsewhere. */
bool filter_is_producer(const struct sfs_filter *filter);

/* The most bytes that stand between two filters, whatever is left out. */
size_t filter_room_between(const struct filter_pipeline *pipeline, size_t size);

#endif
