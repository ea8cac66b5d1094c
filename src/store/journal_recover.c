/* Carrying a journal out: after an error, after a crash, and in memory for a store that is only read.
 *
 * Only a journal that is complete is carried out, and only on its own file: one where every witness
 * is as it was, and every sector of a page as it was or as it will be. The names and the inodes do
 * not matter then: both files may have been copied or moved together. Carrying it out a second time
 * changes nothing.
 *
 * What is neither, nor was left behind by another file (journal_place.c), was changed by another
 * program, or is another file's. If the journal has the mark of this system since it was started,
 * and the file has all of it where others have not written, it had been carried out before they
 * did, and is discarded. Where a sector is as it was before, others may have put that back,
 * or it was lost. It was lost if nobody can have written: the file has not changed after the mark.
 * Nor is it known when the writer went on; then what it was promised counts. */
#include <endian.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <string.h>

#include "common/log.h"
#include "store/journal.h"

static int compare_witness(struct store *store, struct journal *journal,
                           const struct witness *witness)
{
    unsigned char bytes[PAGE_BYTES];
    int error = journal_read_page(store, witness->number, journal->difference.end, bytes);
    journal->difference.is_other |= !error && page_sum(bytes) != witness->sum;
    return error;
}

static int compare_page(struct store *store, struct journal *journal,
                        const struct page_record *record)
{
    unsigned char bytes[PAGE_BYTES];
    int error = journal_read_page(store, record->number, journal->difference.end, bytes);
    for (size_t i = 0; i < SECTORS && !error; i++) {
        const unsigned char *sector = bytes + i * SECTOR_BYTES;
        if (memcmp(sector, record->bytes + i * SECTOR_BYTES, SECTOR_BYTES) == 0)
            continue;
        bool is_old = journal_sector_sum(sector) == record->sums[i];
        journal->difference.is_old |= is_old;
        journal->difference.is_other |= !is_old;
    }
    return error;
}

static int write_page(struct store *store, struct journal *journal,
                      const struct page_record *record)
{
    uint64_t address = record->number * PAGE_BYTES, left = journal->header.new_end - address;
    return file_write(store, address, record->bytes, left < PAGE_BYTES ? (size_t)left : PAGE_BYTES,
                      false);
}

static int keep_page(struct store *store, struct journal *journal, const struct page_record *record)
{
    off_t end = ftello(journal->file);
    if (end < 0)
        return -EIO;
    return pages_keep(store, record->number, record->bytes, fileno(journal->file),
                      end - PAGE_BYTES);
}

/* Followers are told before committed bytes change. */
static int write_pages(struct store *store, struct journal *journal, uint64_t file_end)
{
    int error = tell_followers(store);
    journal->is_carried_out = true;
    if (!error)
        error = journal_walk(store, journal, NULL, write_page);
    if (!error)
        error = file_set_end(store, file_end);
    return error ? error : file_sync(store, false);
}

int journal_carry_out(struct store *store, uint64_t file_end)
{
    struct journal journal;
    bool is_removed = !store->standing.inode; /* else only its removal may not be durable */
    int error = is_removed ? 0 : journal_open_own(store, &journal);
    if (!error && !is_removed) {
        error = write_pages(store, &journal, file_end);
        journal_close(&journal);
    } else if (error) {
        store_say(store, NULL, "cannot read the journal %s", store->journal);
        error = -EIO;
    }
    return error ? error : journal_remove(store);
}

/* ---- After a crash ---- */

/* 0: it may be carried out; -EBUSY: it is no journal of what the file is now; -ESTALE: nor need it
 * be of another file; -EALREADY: it had been carried out before others have changed the file;
 * -ENXIO: it was left there by another file. It has been read as a whole. */
static int check(struct store *store, struct journal *journal)
{
    struct stat st;
    if (fstat(store->fd, &st) < 0)
        return -errno;
    struct difference *difference = &journal->difference;
    bool is_done = journal_is_carried_out(journal, journal->sum);
    bool is_short = (uint64_t)st.st_size < journal->header.new_end;
    *difference = (struct difference){
        .is_other = is_short,
        .end = is_short ? (uint64_t)st.st_size : journal->header.new_end,
    };
    int error = journal_walk(store, journal, compare_witness, compare_page);
    if (error)
        return error;
    if (!is_done)
        error = difference->is_other ? -EBUSY : 0;
    else if (!difference->is_old)
        error = difference->is_other ? -EALREADY : 0;
    else if (difference->is_other || journal_is_changed_since(&journal->mark, &st.st_mtim))
        error = -ESTALE;
    return error && journal->is_foreign ? -ENXIO : error;
}

/* A writer that died after a failed sync may have left pages that only the kernel has: they are
 * written again. */
static int write_as_it_is(struct store *store, struct journal *journal,
                          const struct page_record *record)
{
    unsigned char bytes[PAGE_BYTES];
    uint64_t address = record->number * PAGE_BYTES, end = journal->difference.end;
    int error = journal_read_page(store, record->number, end, bytes);
    if (error || address >= end)
        return error;
    return file_write(store, address, bytes,
                      end - address < PAGE_BYTES ? (size_t)(end - address) : PAGE_BYTES, false);
}

static int forget(struct store *store, struct journal *journal)
{
    store->recovered = STORE_CARRIED_OUT;
    log_info("%s: another program has changed it since its last journal was carried out: that one "
             "counts no more",
             store->path);
    if (!store->writable)
        return 0;
    journal->is_carried_out = true;
    int error = journal_walk(store, journal, NULL, write_as_it_is);
    if (!error)
        error = file_sync(store, false);
    return error ? error : journal_remove(store);
}

static int ignore(const struct store *store)
{
    log_warning("%s: the journal %s was left by another file that had this name: it does not count",
                store->path, journal_path(store));
    return 0;
}

static int replay(struct store *store, struct journal *journal)
{
    uint64_t end = journal->header.new_end;
    int error = check(store, journal);
    if (error == -EALREADY)
        return forget(store, journal);
    if (error == -ENXIO)
        return ignore(store);
    if (error == -EBUSY)
        store_say(store, NULL,
                  "the journal %s belongs to another file, or this one was changed since: move "
                  "it away",
                  journal_path(store));
    if (error == -ESTALE) {
        store_say(store, NULL,
                  "some of its last commit is not in it but in the journal %s, and another "
                  "program has changed it since: move the journal away to have it as it is",
                  journal_path(store));
        error = -EBUSY;
    }
    if (error)
        return error;
    error = store->writable ? write_pages(store, journal, end)
                            : journal_walk(store, journal, NULL, keep_page);
    if (!error && store->writable) /* another file may still need it */
        error = journal->is_foreign ? journal_clear_way(store) : journal_remove(store);
    if (error)
        return error;
    store->committed_end = end;
    atomic_store(&store->end, end);
    store->recovered = STORE_REPLAYED;
    log_info("%s: a journal of %" PRIu64 " pages was replayed%s: the last commit is whole",
             store->path, journal->header.n_pages, store->writable ? "" : " in memory");
    return 0;
}

int journal_refuse(struct store *store, int error)
{
    const char *path = journal_path(store), *why = neighbour_reason(error);
    bool is_said = error == -EINTR || (error == -EPERM && store->is_following); /* before */
    if (!is_said && store->is_following)
        neighbour_say(store, path, "cannot be read", why);
    else if (!is_said)
        store_say(store, NULL, "cannot read the journal %s: %s", path, why);
    return error == -EPROTONOSUPPORT ? -EBUSY : error;
}

static int recover(struct store *store)
{
    struct journal journal;
    int error = journal_open(store, &journal);
    if (error == -ENOENT)
        return 0;
    if (error == -EILSEQ && journal.is_foreign)
        return ignore(store);
    store->standing.inode = journal.is_foreign ? 0 : journal.inode;
    if (error == -EILSEQ) {
        error = store->writable ? journal_remove(store) : 0;
        store->recovered = STORE_DISCARDED;
        if (!error)
            log_info("%s: an incomplete journal was discarded: the last commit before it counts",
                     store->path);
        return error;
    }
    if (error)
        return journal_refuse(store, error);
    error = replay(store, &journal);
    journal_close(&journal);
    return error;
}

int journal_recover(struct store *store)
{
    int error = journal_choose(store);
    if (!error && store->sought && store->writable)
        error = journal_bring_home(store);
    return error ? error : recover(store);
}

/* ---- Following ---- */

int journal_look(const struct store *store, struct journal_state *state)
{
    struct stat st;
    *state = (struct journal_state){0};
    int error = neighbour_stat(store->sought ? store->sought_folder : store->folder,
                               journal_path(store), &st);
    if (error)
        return error == -ENOENT ? 0 : error;
    *state = (struct journal_state){
        .exists = true, .inode = st.st_ino, .size = st.st_size, .changed = st.st_mtim};
    return 0;
}

int journal_overlay(struct store *store)
{
    struct journal journal;
    int error = journal_open(store, &journal);
    if (error == -ENOENT || error == -EILSEQ)
        return 0;
    if (error)
        return journal_refuse(store, error);
    error = check(store, &journal);
    bool counts = error != -EALREADY && error != -ENXIO;
    if (!error)
        error = journal_walk(store, &journal, NULL, keep_page);
    if (!error)
        atomic_store(&store->end, journal.header.new_end);
    journal_close(&journal);
    /* An incomplete one is being overwritten by the next commit. */
    return !counts ? 0 : error == -EILSEQ ? STORE_MOVED : error == -ESTALE ? -EBUSY : error;
}
