/* Taking a sample, and trying filters on it. */
#include "cli/filter_sample.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define COPIED_BLOCKS 4 /* every other one before the others */
#define LEAST_PIECES  2
#define SHORT_BYTES   ((size_t)48 << 10) /* a number of any elements of up to 16 bytes */

/* ---- Taking it ---- */

/* Chunks one after the other: how many there are, or those that are taken. */
struct listing {
    struct sample *sample;
    uint64_t n;      /* seen so far */
    uint64_t stride; /* one of so many is taken; 0: none */
    struct sfs_chunk_info taken[MOST_PIECES];
};

static int count_chunk(void *context, const struct sfs_chunk_info *info)
{
    struct listing *listing = context;
    struct sample *sample = listing->sample;
    listing->n++;
    for (int i = 0; i < TRIED_SECTIONS; i++)
        sample->all[i] += info->section_size[i];
    if (info->section_size[SELECTION_SECTION] > sample->most_selection)
        sample->most_selection = info->section_size[SELECTION_SECTION];
    return 0;
}

static int take_chunk(void *context, const struct sfs_chunk_info *info)
{
    struct listing *listing = context;
    if (listing->n++ % listing->stride == 0 && listing->sample->n < MOST_PIECES)
        listing->taken[listing->sample->n++] = *info;
    return 0;
}

/* Few long pieces rather than many short ones. */
static uint64_t pieces_of(const struct sample *sample, uint64_t chunks, size_t most)
{
    uint64_t all = sample->all[0] > sample->all[1] ? sample->all[0] : sample->all[1];
    uint64_t n = all ? most / (all / chunks + 1) : MOST_PIECES;
    n = n < LEAST_PIECES ? LEAST_PIECES : n < MOST_PIECES ? n : MOST_PIECES;
    return n < chunks ? n : chunks;
}

/* Whole sections are read, since nothing else is; their first bytes stay. */
static int read_piece(struct sfs_dataset *dataset, const struct sfs_chunk_info *info, size_t most,
                      size_t element_size, struct sample *sample, size_t i)
{
    void *sections[SFS_SECTIONS] = {NULL};
    int error = 0;
    for (int k = 0; k < TRIED_SECTIONS; k++) {
        struct piece *piece = &sample->piece[k][i];
        size_t unit = k == VALUES_SECTION ? element_size : 1;
        piece->n = (size_t)info->section_size[k];
        piece->bytes = sections[k] = malloc(piece->n ? piece->n : 1);
        if (!piece->bytes)
            error = -ENOMEM;
        if (piece->n > most && most >= unit)
            piece->n = most / unit * unit;
        sample->bytes[k] += piece->n;
    }
    return error ? error : sfs_read_chunk(dataset, info, sections);
}

/* Counts what was copied so far. */
static int count(struct sample *sample, struct listing *listing)
{
    *listing = (struct listing){.sample = sample};
    memset(sample->all, 0, sizeof(sample->all));
    return sfs_chunk_iterate(sample->dataset, count_chunk, listing);
}

static int take_pieces(struct sample *sample, size_t most)
{
    struct listing listing;
    int error = count(sample, &listing);
    if (error || listing.n == 0)
        return error;
    uint64_t n = pieces_of(sample, listing.n, most);
    listing.stride = (listing.n + n - 1) / n;
    listing.n = 0;
    error = sfs_chunk_iterate(sample->dataset, take_chunk, &listing);
    for (size_t i = 0; i < sample->n && !error; i++)
        error = read_piece(sample->dataset, &listing.taken[i], most / sample->n,
                           sfs_dataset_info(sample->dataset)->type.size, sample, i);
    return error;
}

/* The blocks from number `first` on, every other one. */
static int copy_half(const struct copy *copy, struct sample *sample, uint64_t first)
{
    struct copy some = *copy;
    some.to = sample->dataset;
    return copy_some(&some, COPIED_BLOCKS, first, 2);
}

int sample_begin(struct sfs_file *file, const char *path, const struct copy *copy,
                 const struct sfs_dataset_create *create, struct sample *sample)
{
    struct sfs_dataset_create plain = *create;
    struct listing listing;
    *sample = (struct sample){0};
    plain.attributes_file = NULL;
    plain.n_filters[SELECTION_SECTION] = plain.n_filters[VALUES_SECTION] = 0;
    int error = sfs_dataset_create(file, path, &plain, &sample->dataset);
    if (error)
        return error;
    error = copy_half(copy, sample, 0);
    if (!error)
        error = count(sample, &listing);
    if (error)
        sample_free(sample);
    return error;
}

int sample_finish(const struct copy *copy, size_t most, struct sample *sample)
{
    int error = copy_half(copy, sample, 1);
    return error ? error : take_pieces(sample, most);
}

void sample_free(struct sample *sample)
{
    for (int i = 0; i < TRIED_SECTIONS; i++)
        for (size_t k = 0; k < MOST_PIECES; k++)
            free(sample->piece[i][k].bytes);
    if (sample->dataset)
        sfs_dataset_close(sample->dataset);
    *sample = (struct sample){0};
}

/* ---- Trying ---- */

static uint64_t processor_time(void)
{
    struct timespec now = {0};
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    return (uint64_t)now.tv_sec * 1000000000 + (uint64_t)now.tv_nsec;
}

/* decoded: room for the piece, or NULL. */
static int try_piece(const struct piece *piece, const struct filter_pipeline *pipeline,
                     void *decoded, struct trial *trial)
{
    void *encoded;
    size_t n_encoded;
    uint32_t mask;
    uint64_t begin = processor_time();
    int error = sfs_filters_encode(pipeline->filters, pipeline->n, piece->bytes, piece->n, &encoded,
                                   &n_encoded, &mask);
    if (error)
        return error == -EINVAL ? -EOPNOTSUPP : error;
    uint64_t between = processor_time();
    trial->bytes += n_encoded;
    trial->encode_ns += between - begin;
    if (decoded) {
        error = sfs_filters_decode(pipeline->filters, pipeline->n, mask, encoded, n_encoded,
                                   decoded, piece->n);
        trial->decode_ns += processor_time() - between;
    }
    free(encoded);
    return error;
}

/* Whether a short piece says that the others need not be tried. */
static bool is_too_slow(const struct sample *sample, int section,
                        const struct filter_pipeline *pipeline, uint64_t most_ns)
{
    struct piece piece = sample->piece[section][0];
    struct trial trial = {0};
    if (most_ns == UINT64_MAX || piece.n < 2 * SHORT_BYTES)
        return false;
    piece.n = SHORT_BYTES;
    return try_piece(&piece, pipeline, NULL, &trial) == 0 &&
           (double)trial.encode_ns >
               (double)most_ns * (double)SHORT_BYTES / (double)sample->bytes[section];
}

int sample_try(const struct sample *sample, int section, const struct filter_pipeline *pipeline,
               bool decodes, uint64_t most_ns, struct trial *trial)
{
    size_t most = 1, done = 0;
    for (size_t i = 0; i < sample->n; i++)
        if (sample->piece[section][i].n > most)
            most = sample->piece[section][i].n;
    void *decoded = decodes ? malloc(most) : NULL;
    int error = decodes && !decoded ? -ENOMEM : 0;
    *trial = (struct trial){0};
    for (size_t i = 0; i < sample->n && !error; i++) {
        const struct piece *piece = &sample->piece[section][i];
        if (i == 0 && is_too_slow(sample, section, pipeline, most_ns))
            error = -ETIME;
        else
            error = try_piece(piece, pipeline, decoded, trial);
        done += piece->n;
        double share = (double)done / (double)sample->bytes[section];
        if (!error && interrupted)
            error = -EINTR;
        if (!error && (double)trial->encode_ns > (double)most_ns * share)
            error = -ETIME;
    }
    free(decoded);
    return error;
}
