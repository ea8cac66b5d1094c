/* What holds of an index whose changes are all in the store. */
#include <errno.h>
#include <string.h>

#include "common/invariants.h"
#include "index/private.h"

#define SHARE 8 /* flushes for each look */

struct before {
    const struct index *index;
    bool is_first;
    uint64_t number;
    uint64_t scaled[SFS_MAX_RANK];
};

static bool is_behind(const struct index *index, const uint64_t *scaled, const uint64_t *other)
{
    int i = 0;
    while (i < index->rank - 1 && scaled[i] == other[i])
        i++;
    return scaled[i] > other[i];
}

/* In the order that index_iterate promises, each once and within the max dims; else -EILSEQ. */
static int check_chunk(void *context, const uint64_t *scaled, const struct chunk_record *record)
{
    struct before *before = context;
    const struct index *index = before->index;
    uint64_t number = 0;
    bool is_sane = record->exists;
    for (int i = 0; i < index->rank; i++)
        is_sane &= index->max_chunks[i] == SFS_UNLIMITED || scaled[i] < index->max_chunks[i];
    if (index->ops == &index_btree2)
        is_sane &= before->is_first || is_behind(index, scaled, before->scaled);
    else if (index->ops != &index_single)
        is_sane &= index_own_number(index, scaled, &number) &&
                   (before->is_first || number > before->number);
    before->is_first = false;
    before->number = number;
    memcpy(before->scaled, scaled, (size_t)index->rank * sizeof(*scaled));
    return is_sane ? 0 : -EILSEQ;
}

static int pass(void *context, const char *name, uint64_t address, uint64_t n)
{
    (void)context;
    (void)name;
    (void)address;
    (void)n;
    return 0;
}

/* Structures, their checksums and counts are verified by the functions that read them. */
static int look(struct index *index)
{
    struct before before = {.index = index, .is_first = true};
    struct why why;
    if (index->address == NO_ADDRESS)
        return 0;
    int error = index->ops->iterate(index, NULL, check_chunk, &before, &why);
    if (!error && index->ops->each_block)
        error = index->ops->each_block(index, pass, NULL, &why);
    return error;
}

void index_check_before(struct index *index)
{
    if (SANITY)
        index->was_sane = look(index) == 0;
}

void index_check_written(struct index *index)
{
    if (SANITY && index->was_sane && ++index->checks % SHARE == 0)
        SANE(look(index) != -EILSEQ);
}
