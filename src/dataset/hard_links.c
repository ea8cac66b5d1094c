/* Hard links. libhdf5 counts the links to an object in the object's header, and our code changes those of
 * sparse datasets in the store, behind libhdf5. So it has to read such a header right before it counts a
 * link, to write it right after, and to know nothing of it from then on. Its process has written it when
 * the call ends, and cannot do so later. What it has made of it is looked at: it may have been taken over
 * by the file. */
#include <errno.h>
#include <inttypes.h>

#include "common/interrupt.h"
#include "common/log.h"
#include "dataset/private.h"
#include "format/layout_message.h"
#include "format/object_header.h"
#include "hdf5/hdf5.h"
#include "store/store.h"

static int refused(const struct sfs_file *file, const char *path, int error, const char *why)
{
    if (error && error != -ENOMEM && error != -EINTR && error != STORE_MOVED)
        log_error("%s: %s: cannot create it: %s", sfs_path(file), path, why);
    return error;
}

/* ---- After the link ---- */

/* libhdf5's process may have written to the blocks that there were, and what it got for new ones is
 * its own. */
static int check_new_blocks(struct store *store, const struct object_header *before,
                            const struct object_header *after, struct why *why)
{
    for (size_t i = 0; i < after->n_blocks; i++) {
        const struct header_block *block = &after->block[i];
        uint64_t old = object_header_block_bytes(before, block->address);
        if (block->n > old && store_check_lent(store, block->address + old, block->n - old) < 0)
            return why_damaged(why,
                               "object header at address %" PRIu64 ": its bytes at address %" PRIu64
                               " are in use by others",
                               before->block[0].address, block->address);
    }
    return 0;
}

static int claim(struct store *store, const struct object_header *header)
{
    int error = 0;
    for (size_t i = 0; i < header->n_blocks && !error; i++)
        error = store_claim(store, header->block[i].address, header->block[i].n);
    return error;
}

/* Whether it is the header of the same dataset, which is kept from libhdf5's process then. */
static int take(struct sfs_file *file, const struct object_header *before, struct why *why)
{
    struct object_header *after;
    bool is_apart = file->protected_from_libhdf5.is_on;
    int error =
        object_header_read(file->store, &file->superblock, before->block[0].address, &after, why);
    if (error)
        return error;
    error = object_header_check_counted(before, after, why);
    if (!error && is_apart)
        error = check_new_blocks(file->store, before, after, why);
    if (!error && is_apart)
        error = claim(file->store, after);
    object_header_free(after);
    return error;
}

static int restore(struct sfs_file *file, struct object_header *before)
{
    struct why why;
    int error = 0;
    for (size_t i = 0; i < before->n_blocks && !error; i++)
        error = object_header_write_block(file->store, before, i, &why);
    return error;
}

int hard_link_end(struct sfs_file *file)
{
    struct object_header *before = atomic_load(&file->counted);
    struct why why;
    if (!before)
        return 0;
    UNINTERRUPTED();
    bool is_apart = file->protected_from_libhdf5.is_on;
    int error = is_apart ? hdf5_flush(file->hdf5) : hdf5_reopen(file->hdf5);
    if (error) {
        log_error("%s: after a hard link to a sparse dataset: %s", sfs_path(file), hdf5_error());
        return error;
    }
    error = take(file, before, &why);
    if (error == -EILSEQ || error == -EOPNOTSUPP) {
        log_error("%s: %s: that is undone, and the new link to it is not counted", sfs_path(file),
                  why.text);
        error = restore(file, before);
        if (error)
            return error;
        error = -EIO;
    } else if (error) { /* nothing is known of it: the next one tries again */
        if (error != -ENOMEM)
            log_error("%s: after a hard link to a sparse dataset: %s", sfs_path(file), why.text);
        return error;
    }
    atomic_store(&file->counted, NULL);
    object_header_free(before);
    return error;
}

int hard_link_look(struct sfs_file *file, uint64_t address)
{
    if (!atomic_load(&file->counted))
        return 0;
    int error = interrupt_wrlock(&file->commit_lock);
    if (error)
        return error;
    const struct object_header *header = atomic_load(&file->counted);
    if (header && header->block[0].address == dataset_store_address(file, address))
        error = hard_link_end(file);
    bool is_undone = !atomic_load(&file->counted);
    pthread_rwlock_unlock(&file->commit_lock);
    return is_undone ? 0 : error;
}

/* ---- The link ---- */

/* The header at an address of the store if it is that of a sparse dataset; else NULL. One that our code
 * does not understand, it does not change. */
static int read_sparse(struct sfs_file *file, const char *path, uint64_t address,
                       struct object_header **header)
{
    struct why why;
    *header = NULL;
    int error = object_header_read(file->store, &file->superblock, address, header, &why);
    if (error == -EILSEQ || error == -EOPNOTSUPP)
        return 0;
    if (error)
        return refused(file, path, error, why.text);
    const struct message *layout = object_header_find(*header, MESSAGE_LAYOUT);
    if (!layout || !layout_message_is_structured(layout)) {
        object_header_free(*header);
        *header = NULL;
    }
    return 0;
}

/* If the target is a sparse dataset, its header is in file->counted, and libhdf5 does not know it. What
 * the store has there may also be older than what libhdf5 has, which is not sparse. */
static int begin(struct sfs_file *file, const char *path, uint64_t address)
{
    struct object_header *header;
    int error = read_sparse(file, path, address, &header);
    if (error || !header)
        return error;
    object_header_free(header);
    error = hdf5_reopen(file->hdf5);
    if (error)
        return refused(file, path, error, hdf5_error());
    error = read_sparse(file, path, address, &header);
    if (!error && header && file->protected_from_libhdf5.is_on)
        error = claim(file->store, header);
    if (error)
        object_header_free(header);
    else
        atomic_store(&file->counted, header);
    return error;
}

/* libhdf5 would also follow links into other files, and back. */
static int create(struct sfs_file *file, const char *path, const struct sfs_link *link)
{
    uint64_t address;
    int error = hard_link_end(file);
    if (error)
        return error;
    error = link->target ? hdf5_find(file->hdf5, hdf5_root(file->hdf5), link->target, &address)
                         : -ENOENT;
    if (error)
        return refused(file, path, error == -ENOENT ? -EIO : error,
                       error == -ENOENT ? "its target is not there" : hdf5_error());
    error = begin(file, path, dataset_store_address(file, address));
    if (error)
        return error;
    error = hdf5_create_link(file->hdf5, path, link, atomic_load(&file->counted));
    error = refused(file, path, error, hdf5_error());
    int ended = hard_link_end(file);
    return error ? error : ended;
}

int hard_link_create(struct sfs_file *file, const char *path, const struct sfs_link *link)
{
    int error = interrupt_lock(&file->lock); /* nobody opens what is not checked yet */
    if (error)
        return error;
    error = interrupt_wrlock(&file->commit_lock);
    if (!error) {
        error = create(file, path, link);
        pthread_rwlock_unlock(&file->commit_lock);
    }
    pthread_mutex_unlock(&file->lock);
    return error;
}
