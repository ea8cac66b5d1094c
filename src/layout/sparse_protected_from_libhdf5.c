/* What a sparse dataset has in the store is kept from libhdf5's process, which knows nothing of it.
 *
 * The calls of the index hold its lock while they tell of a chunk: its space is not freed in
 * between, as that comes after the index was changed. */
#include <errno.h>

#include "common/log.h"
#include "layout/layout.h"
#include "layout/sparse.h"
#include "store/store.h"

static int claim_chunk(void *context, const uint64_t *scaled, const struct chunk_record *record)
{
    (void)scaled;
    return store_claim(context, record->address, record->size);
}

static int claim_block(void *context, const char *name, uint64_t address, uint64_t n)
{
    (void)name;
    return store_claim(context, address, n);
}

static int claim_header(struct store *store, const struct object_header *header)
{
    int error = 0;
    for (size_t i = 0; i < header->n_blocks && !error; i++)
        error = store_claim(store, header->block[i].address, header->block[i].n);
    return error;
}

int sparse_protect_from_libhdf5(struct layout *layout)
{
    struct sparse *sparse = layout->sparse;
    struct store *store = layout->store;
    struct why why;
    int error = claim_header(store, sparse->header.header);
    if (!error)
        error = index_each_block(sparse->index, claim_block, store, &why);
    /* Those that can be found: there may be some where blocks of an index are damaged. */
    if (!error || error == -EILSEQ) {
        int chunks = index_iterate(sparse->index, claim_chunk, store, &why);
        error = chunks ? chunks : error;
    }
    if (error == -EIO || error == -EILSEQ)
        log_error("%s: %s: not all of it can be kept from libhdf5's process: %s", store_path(store),
                  layout->path, why.text);
    return error == -EILSEQ ? 0 : error;
}
