/* Whether another program has the file open for writing, by the mark that libhdf5's writers leave in the
 * superblock, which libhdf5 itself minds only over its own drivers. */
#include <errno.h>

#include "format/superblock.h"
#include "hdf5/private.h"
#include "store/store.h"

#define MARKED                                                                                     \
    "it is marked as open for writing: its writer still runs, or has died (then h5clear -s "       \
    "clears the mark)"

#define NOT_SWMR                                                                                   \
    "a program has it open for writing that does not let others read meanwhile (it is neither "    \
    "sparsefs nor writing in SWMR mode), or has died"

int swmr_writer_refused(void)
{
    library_reason(MARKED);
    return -EBUSY;
}

int swmr_writer_check_mark(struct store *store)
{
    struct superblock superblock;
    unsigned char bytes[SUPERBLOCK_BYTES];
    if (store_is_following(store)) /* looked at before */
        return 0;
    int error = file_superblock(store, &superblock);
    if (!error)
        error = store_read(store, superblock.address, bytes, sizeof(bytes));
    if (!error && superblock_is_marked(bytes))
        error = swmr_writer_refused();
    return error;
}

int swmr_writer_look(struct store *store)
{
    unsigned char bytes[SUPERBLOCK_BYTES];
    struct superblock superblock;
    store_set_live(store, NULL);
    int error = file_superblock(store, &superblock);
    if (!error)
        error = store_read(store, superblock.address, bytes, sizeof(bytes));
    if (error)
        return error;
    /* Superblocks that can have the mark have it as long as something is changed: the lock comes
     * before it and goes after it. */
    bool swmr = superblock_is_swmr(bytes), has_mark = superblock.version >= 3;
    if (!swmr && (superblock_is_marked(bytes) || (!has_mark && store_is_held_by_stranger(store)))) {
        library_reason(NOT_SWMR);
        return -EBUSY;
    }
    const struct store_mark mark = superblock_swmr_mark(&superblock);
    store_set_live(store, swmr ? &mark : NULL);
    return 0;
}
