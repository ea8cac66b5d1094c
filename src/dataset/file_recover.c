/* Files as their writers have left them when they died: journals, and the mark that libhdf5 sets in
 * a superblock as long as a file is open for writing. */
#include <errno.h>
#include <inttypes.h>

#include "common/log.h"
#include "format/superblock.h"
#include "sparsefs/sparsefs.h"
#include "store/store.h"

/* A writer that died may have put metadata behind the end that its superblock has: the file's size
 * is the only end that covers everything. */
static int clear_mark(struct store *store, struct superblock *superblock)
{
    uint64_t end = store_end(store);
    if (superblock->end > end) {
        log_error("%s: %" PRIu64 " bytes are missing at its end: it cannot be opened",
                  store_path(store), superblock->end - end);
        return -EIO;
    }
    int error = superblock_set_end(store, superblock, end);
    return error ? error : store_commit(store);
}

static int unmark(const char *path, struct store *store, struct sfs_recovery *done)
{
    struct superblock superblock;
    struct why why;
    int error = superblock_read(store, &superblock, &why);
    if (error == -EIO || error == -EILSEQ)
        log_error("%s: %s", path, why.text);
    done->unmarked = !error && superblock.version >= 3 && superblock.flags != 0;
    if (done->unmarked)
        return clear_mark(store, &superblock);
    return error == -EILSEQ ? -EINVAL : error;
}

int sfs_recover(const char *path, struct sfs_recovery *recovery)
{
    struct store *store;
    struct sfs_recovery done = {0};
    const struct store_opening how = {.writable = true, .own_links = true};
    int error = store_open_as(path, &how, &store);
    if (error)
        return error;
    done.replayed = store_recovered(store) == STORE_REPLAYED;
    done.discarded = store_recovered(store) == STORE_DISCARDED;
    done.carried_out = store_recovered(store) == STORE_CARRIED_OUT;
    done.temporaries = store_remove_temporaries(store);
    error = unmark(path, store, &done);
    store_close(store);
    if (!error)
        *recovery = done;
    return error;
}
