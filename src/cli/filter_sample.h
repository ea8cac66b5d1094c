/* Sections of some chunks of what is to be copied, as they are before any filters, and what filters
 * make of them. */
#ifndef SPARSEFS_CLI_FILTER_SAMPLE_H
#define SPARSEFS_CLI_FILTER_SAMPLE_H

#include "cli/copy_elements.h"
#include "cli/options.h"
#include "common/filter_pipeline.h"

#define MOST_PIECES    32
#define TRIED_SECTIONS 2 /* selections and values: what is imported has no other ones */

struct sample {
    struct sfs_dataset *dataset; /* what was copied */
    size_t n; /* pieces of either section: whole sections, or what they begin with */
    struct piece {
        unsigned char *bytes;
        size_t n;
    } piece[TRIED_SECTIONS][MOST_PIECES];
    size_t bytes[TRIED_SECTIONS]; /* of all pieces */
    uint64_t all[TRIED_SECTIONS]; /* of the sections of all chunks that were copied */
    uint64_t most_selection;      /* of the longest selection */
};

/* Copies some blocks to a dataset without filters, which is made of `create` at `path` of a file,
 * so that most_selection is known. copy->to is not used. Errors of copying; on any the sample is
 * empty. */
int sample_begin(struct sfs_file *file, const char *path, const struct copy *copy,
                 const struct sfs_dataset_create *create, struct sample *sample);

/* Copies some more, and takes some MiB of all sections, or less: `most` bytes of each. Errors of
 * copying. */
int sample_finish(const struct copy *copy, size_t most, struct sample *sample);
void sample_free(struct sample *sample);

/* What the filters of one section make of its pieces. Times are those of the processor, so that
 * a busy machine hardly changes them. */
struct trial {
    uint64_t bytes, encode_ns, decode_ns;
};

/* Tries filters, with parameters as they stand in a header; decoding only if asked to. Gives up
 * when it is plain that encoding takes longer than `most_ns`: -ETIME. -EOPNOTSUPP: they are not
 * built in, or do not take these bytes; -ENOMEM; -EINTR. Any thread. */
int sample_try(const struct sample *sample, int section, const struct filter_pipeline *pipeline,
               bool decodes, uint64_t most_ns, struct trial *trial);

#endif
