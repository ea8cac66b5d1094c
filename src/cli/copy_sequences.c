#include "cli/copy_sequences.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "cli/blocks.h"
#include "cli/progress.h"
#include "common/escape_lines.h"
#include "common/log.h"

#define MOST_BYTES     (SIZE_MAX / 4) /* of what is read at once; memory ends before */
#define VARIABLE_GUESS 256            /* bytes of an element, with what it leads to */

/* What is copied at once. */
struct bench {
    const struct copy *copy;
    const struct sfs_type *type;
    struct sfs_slab slab;
    uint64_t n;                    /* elements that were read so far */
    struct sfs_sequence *sequence; /* of the slab; where they begin is set at the end */
    char *bytes;                   /* of all of them, one after the other */
    size_t bytes_n;
    struct findings findings;
    struct sfs_sequence *packed; /* those that were found */
};

/* Whether all of an element is a string or a sequence, of elements without pointers. */
static bool is_sequence(const struct sfs_type *type)
{
    return type->class == SFS_VARIABLE && (type->is_string || !type->base->has_pointers);
}

unsigned sequence_unit(const struct sfs_type *type)
{
    if (!is_sequence(type))
        return type->has_pointers;
    return type->is_string || type->base->size > UINT32_MAX ? 1 : (unsigned)type->base->size;
}

size_t sequence_guess(const struct sfs_type *type)
{
    return type->has_pointers && type->size < VARIABLE_GUESS ? VARIABLE_GUESS : type->size;
}

static int keep_bytes(struct bench *bench, const char *bytes, size_t n)
{
    char *grown = realloc(bench->bytes, bench->bytes_n + n + 1);
    if (!grown)
        return -ENOMEM;
    memcpy(grown + bench->bytes_n, bytes, n);
    bench->bytes = grown;
    bench->bytes_n += n;
    return 0;
}

/* What says so may be a damaged file. */
static int do_not_fit(void)
{
    log_error("the source has other lengths of strings or sequences than these have");
    return -EIO;
}

static int take_strings(struct bench *bench, uint64_t n, char *lines, size_t bytes)
{
    char *end = lines + bytes;
    for (uint64_t i = 0; i < n; i++) {
        char *line_end = memchr(lines, '\n', (size_t)(end - lines));
        if (!line_end)
            return do_not_fit();
        size_t length = lines_unescape(lines, (size_t)(line_end - lines));
        bench->sequence[bench->n++].n = length;
        int error = keep_bytes(bench, lines, length);
        if (error)
            return error;
        lines = line_end + 1;
    }
    return 0;
}

/* Those of sequences of which there are so many bytes. */
static int take_lengths(struct bench *bench, uint64_t n, const char *lengths, size_t bytes)
{
    uint64_t length, size = bench->type->base->size, left = bytes / size;
    for (uint64_t i = 0; i < n; i++) {
        memcpy(&length, lengths + i * sizeof(length), sizeof(length));
        if (length > left)
            return do_not_fit();
        left -= length;
        bench->sequence[bench->n++].n = length;
    }
    return left > 0 || bytes % size != 0 ? do_not_fit() : 0;
}

/* Elements `first` to first + n - 1 of the source, in row-major order. */
static int read_some(struct bench *bench, uint64_t first, uint64_t n)
{
    struct sfs_dataset *from = bench->copy->from;
    char *read = NULL, *lengths = NULL;
    size_t read_n, lengths_n;
    enum sfs_parts parts = bench->type->is_string ? SFS_LINES : SFS_SEQUENCES;
    int error = sfs_read_parts(from, parts, first, n, MOST_BYTES, &read, &read_n);
    if (error)
        return error;
    if (bench->type->is_string) {
        error = take_strings(bench, n, read, read_n);
    } else {
        error = sfs_read_parts(from, SFS_LENGTHS, first, n, MOST_BYTES, &lengths, &lengths_n);
        if (!error)
            error = take_lengths(bench, n, lengths, read_n);
        if (!error)
            error = keep_bytes(bench, read, read_n);
        free(lengths);
    }
    free(read);
    return error;
}

/* A row of the slab, which begins at this element. */
static int read_row(struct bench *bench, uint64_t first, uint64_t n)
{
    int error = 0;
    while (n > 0 && !error) {
        uint64_t here = n < SFS_MOST_PARTS ? n : SFS_MOST_PARTS;
        error = interrupted ? -EINTR : read_some(bench, first, here);
        first += here;
        n -= here;
    }
    return error;
}

static int read_slab(struct bench *bench)
{
    const uint64_t *dims = sfs_dataset_info(bench->copy->from)->dims;
    const struct sfs_slab *slab = &bench->slab;
    uint64_t length = slab->count[slab->rank - 1], rows = slab_elements(slab) / length;
    int error = 0;
    for (uint64_t row = 0; row < rows && !error; row++) {
        uint64_t left = row, first = slab->start[slab->rank - 1], stride = dims[slab->rank - 1];
        for (int i = slab->rank - 2; i >= 0; i--) {
            first += (slab->start[i] + left % slab->count[i]) * stride;
            left /= slab->count[i];
            stride *= dims[i];
        }
        error = read_row(bench, first, length);
    }
    return error;
}

static void set_elements(struct bench *bench)
{
    size_t at = 0, size = bench->type->is_string ? 1 : bench->type->base->size;
    for (uint64_t i = 0; i < bench->n; i++) {
        bench->sequence[i].elements = bench->bytes + at;
        at += (size_t)bench->sequence[i].n * size;
    }
}

/* What of a dense source is to be defined. */
static int find(struct bench *bench)
{
    struct findings *findings = &bench->findings;
    int error = 0;
    findings_clear(findings);
    for (uint64_t i = 0; i < bench->n && !error; i++)
        if (bench->copy->undefined.none || bench->sequence[i].n > 0)
            error = findings_add(findings, i, 1);
    return error ? error : findings_finish(findings);
}

static int write_defined(struct bench *bench, const struct sfs_defined *defined)
{
    uint64_t k = 0;
    for (size_t i = 0; i < defined->n; i++) {
        uint64_t first = defined->interval[i].first;
        uint64_t n = defined->interval[i + 1].index - defined->interval[i].index;
        memcpy(bench->packed + k, bench->sequence + first, n * sizeof(*bench->packed));
        k += n;
    }
    return defined->elements
               ? sfs_write_values(bench->copy->to, &bench->slab, defined, bench->packed)
               : 0;
}

static int write_slab(struct bench *bench)
{
    const struct copy *copy = bench->copy;
    if (sfs_dataset_info(copy->to)->layout != SFS_SPARSE)
        return sfs_write(copy->to, &bench->slab, bench->sequence);
    int error = find(bench);
    return error ? error : write_defined(bench, &bench->findings.defined);
}

/* What is defined of a slab of a sparse source: elements, with parts of variable length anywhere,
 * are packed where they are. */
static int copy_defined(const struct copy *copy, const struct sfs_slab *slab)
{
    size_t size = sfs_dataset_info(copy->from)->type.size;
    struct sfs_defined defined;
    void *elements = NULL;
    int error = sfs_get_defined(copy->from, slab, &defined);
    if (error)
        return error;
    if (defined.elements > 0)
        error = sfs_read_elements(copy->from, slab, &elements);
    for (size_t i = 0; i < defined.n && !error; i++) {
        uint64_t index = defined.interval[i].index;
        memmove((char *)elements + index * size,
                (char *)elements + defined.interval[i].first * size,
                (size_t)(defined.interval[i + 1].index - index) * size);
    }
    if (!error && defined.elements > 0)
        error = sfs_write_values(copy->to, slab, &defined, elements);
    free(elements);
    sfs_defined_free(&defined);
    return error;
}

static bool is_sparse(const struct sfs_dataset *dataset)
{
    return sfs_dataset_info(dataset)->layout == SFS_SPARSE;
}

static bool is_empty(const char *element, size_t size)
{
    for (size_t i = 0; i < size; i++)
        if (element[i])
            return false;
    return true;
}

/* Elements of a dense source that are to be defined, packed in place: their parts of variable length
 * are bytes that count, too. */
static int pack_elements(struct bench *bench, char *elements)
{
    struct findings *findings = &bench->findings;
    size_t size = sfs_dataset_info(bench->copy->to)->type.size;
    uint64_t n = slab_elements(&bench->slab), kept = 0;
    int error = 0;
    findings_clear(findings);
    for (uint64_t i = 0; i < n && !error; i++) {
        if (!bench->copy->undefined.none && is_empty(elements + i * size, size))
            continue;
        memmove(elements + kept++ * size, elements + i * size, size);
        error = findings_add(findings, i, 1);
    }
    return error ? error : findings_finish(findings);
}

/* Elements with parts of variable length anywhere, between a dataset that is structured and one that
 * is not. */
static int copy_whole(struct bench *bench)
{
    const struct copy *copy = bench->copy;
    const struct sfs_defined *defined = &bench->findings.defined;
    void *elements;
    int error = interrupted ? -EINTR : sfs_read_elements(copy->from, &bench->slab, &elements);
    if (error)
        return error;
    if (!is_sparse(copy->to)) {
        error = sfs_write(copy->to, &bench->slab, elements);
    } else {
        error = pack_elements(bench, elements);
        if (!error && defined->elements > 0)
            error = sfs_write_values(copy->to, &bench->slab, defined, elements);
    }
    free(elements);
    return error;
}

static int copy_block(struct bench *bench)
{
    const struct copy *copy = bench->copy;
    if (is_sparse(copy->from) && is_sparse(copy->to))
        return copy_defined(copy, &bench->slab);
    if (!is_sequence(bench->type))
        return copy_whole(bench);
    bench->n = bench->bytes_n = 0;
    int error = read_slab(bench);
    if (error)
        return error;
    set_elements(bench);
    return write_slab(bench);
}

int copy_sequences(const struct copy *copy)
{
    const struct sfs_dataset_info *to = sfs_dataset_info(copy->to);
    struct bench bench = {.copy = copy, .type = &sfs_dataset_info(copy->from)->type};
    struct blocks blocks;
    struct progress progress;
    int error = blocks_of_one_chunk(to, to->chunk_dims, &blocks);
    if (error || blocks.n == 0)
        return error;
    bench.sequence = calloc(blocks.most_elements, sizeof(*bench.sequence));
    bench.packed = calloc(blocks.most_elements, sizeof(*bench.packed));
    error = bench.sequence && bench.packed ? 0 : -ENOMEM;
    if (copy->what)
        progress_begin(&progress, copy->what, to->elements);
    for (uint64_t i = 0; i < blocks.n && !error; i++) {
        blocks_at(&blocks, i, &bench.slab);
        error = copy_block(&bench);
        if (copy->what)
            progress_add(&progress, slab_elements(&bench.slab));
    }
    if (copy->what)
        progress_end(&progress);
    findings_free(&bench.findings);
    free(bench.sequence);
    free(bench.packed);
    free(bench.bytes);
    return error;
}
