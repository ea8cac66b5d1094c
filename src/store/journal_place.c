/* Where a journal lies: beside its file, aside, or where the file was before it was moved.
 *
 * One that fits no file, but lies where it was written, beside another file than it was written
 * for, was left behind when that one was moved or replaced. It says nothing about the file beside
 * it, and stands aside (FILE.journal.INODE) when that is written; the other one finds it by its
 * note. */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/io.h"
#include "common/log.h"
#include "store/journal.h"

int journal_is_at(const struct store *store, int folder, const char *path)
{
    struct stat st;
    int error = store->standing.inode ? neighbour_stat(folder, path, &st) : -ENOENT;
    if (error)
        return place_is_known(error) ? 0 : error;
    return st.st_ino == store->standing.inode;
}

int journal_is_ours(const struct store *store, const char *path)
{
    struct stat st;
    int error = store->standing.inode ? neighbour_stat(store->folder, path, &st) : -ENOENT;
    if (error)
        return error == -ENOENT ? 0 : error;
    if (st.st_ino == store->standing.inode)
        return 1;
    return path == store->journal ? place_leads(store, store->place) : 0;
}

char *journal_name_aside(const struct store *store, uint64_t inode)
{
    char *path;
    return asprintf(&path, "%s.%" PRIu64, store->journal, inode) < 0 ? NULL : path;
}

const char *journal_path(const struct store *store)
{
    return store->sought ? store->sought : store->journal;
}

int journal_open(struct store *store, struct journal *journal)
{
    return journal_open_named(store, store->sought ? store->sought_folder : store->folder,
                              journal_path(store), journal);
}

int journal_find_own(const struct store *store, char **path)
{
    *path = strdup(store->journal);
    int ours = *path ? journal_is_ours(store, store->journal) : -ENOMEM;
    if (ours == 0) {
        free(*path);
        *path = journal_name_aside(store, (uint64_t)store->st.st_ino);
        ours = *path ? journal_is_ours(store, *path) : -ENOMEM;
    }
    if (ours <= 0) {
        free(*path);
        *path = NULL;
    }
    return ours < 0 ? ours : 0;
}

int journal_open_own(struct store *store, struct journal *journal)
{
    char *path;
    *journal = (struct journal){0};
    int error = journal_find_own(store, &path);
    if (!error)
        error = path ? journal_open_header(store, store->folder, path, journal) : -ENOENT;
    journal->is_carried_out = true;
    if (!error)
        error = journal_walk(store, journal, NULL, NULL);
    if (error)
        journal_close(journal);
    free(path);
    return error;
}

static int stand_aside(struct store *store, const struct header *header)
{
    char *aside = journal_name_aside(store, header->file.inode);
    if (!aside)
        return -ENOMEM;
    int error = neighbour_may_go(store, store->journal);
    if (!error)
        error = neighbour_may_go(store, aside);
    if (!error)
        error = io_rename_at(store->folder, place_entry(store->journal), store->folder,
                             place_entry(aside));
    if (error)
        store_say(store, NULL,
                  "the journal of another file is in the way, and cannot be renamed to %s: %s",
                  aside, strerror(-error));
    else
        log_warning("%s: the journal of another file that had this name was in the way: it is %s "
                    "now",
                    store->path, aside);
    free(aside);
    return error ? error : directory_sync(store);
}

bool journal_is_none(int error)
{
    return error == -EILSEQ || error == -EPERM || error == -ELOOP || error == -ENXIO;
}

int journal_clear_way(struct store *store)
{
    struct journal journal;
    int ours = journal_is_ours(store, store->journal);
    if (ours)
        return ours < 0 ? ours : 0;
    int error = journal_open_named(store, store->folder, store->journal, &journal);
    journal_close(&journal);
    if (!error)
        return stand_aside(store, &journal.header);
    if (error == -EPROTONOSUPPORT) {
        neighbour_say(store, store->journal, "is in the way", neighbour_reason(error));
        return -EBUSY;
    }
    if (journal_is_none(error))
        error = neighbour_remove(store, store->journal);
    return error == -ENOENT ? 0 : error;
}

void journal_come_back(struct store *store)
{
    if (store->sought_folder >= 0)
        close(store->sought_folder);
    free(store->sought);
    store->sought = NULL;
    store->sought_folder = -1;
}

/* Whether an error of opening a journal says nothing of whether there is one, or whose it is. */
static bool is_unknown(int error)
{
    return error < 0 && !place_is_known(error) && !journal_is_none(error);
}

/* Whether there is a journal of this file at a path, which is taken over: 1 or 0. After an error, too, it is the path
 * that was sought. */
static int seek_at(struct store *store, char *path)
{
    struct journal journal = {0};
    struct identity file;
    int folder = path ? place_open_folder(store, path) : -ENOMEM;
    int error = folder < 0 ? folder : 0;
    if (!error)
        error = identity_of(store->fd, &file) ? 0 : -errno;
    if (!error)
        error = journal_open_header(store, folder, path, &journal);
    bool is_found = !error && identity_is_same(&file, &journal.header.file);
    journal_close(&journal);
    if (is_found || is_unknown(error)) {
        store->sought = path;
        store->sought_folder = folder < 0 ? -1 : folder;
        return is_found ? 1 : error;
    }
    store->keeps_note |= error == -EACCES || error == -EPERM;
    if (error == -EACCES)
        log_warning(
            "%s: it was written elsewhere, and its journal may be %s, which cannot be read: %s",
            store->path, path, strerror(-error));
    if (folder >= 0)
        close(folder);
    free(path);
    return 0;
}

/* Of a file with the first n bytes of a path for its directory. */
static int seek_beside(struct store *store, const char *directory, size_t n, const char *entry,
                       bool aside)
{
    char *path, ending[24] = "";
    if (aside)
        snprintf(ending, sizeof(ending), ".%" PRIu64, (uint64_t)store->st.st_ino);
    if (asprintf(&path, "%.*s%s.journal%s", (int)n, directory, entry, ending) < 0)
        path = NULL;
    return seek_at(store, path);
}

/* At the noted place; in the same folder, if that was renamed; or aside. */
static int seek(struct store *store)
{
    const char *own = place_entry(store->place);
    size_t n = (size_t)(own - store->place);
    char *noted;
    int found = place_noted(store, &noted);
    if (noted) {
        const char *entry = place_entry(noted);
        size_t m = (size_t)(entry - noted);
        for (int i = 0; i < 4 && !found; i++)
            found = i < 2 ? seek_beside(store, noted, m, entry, i % 2)
                          : seek_beside(store, store->place, n, entry, i % 2);
    }
    free(noted);
    return found ? found : seek_beside(store, store->place, n, own, true);
}

int journal_choose(struct store *store)
{
    struct journal journal;
    journal_come_back(store);
    store->keeps_note = false;
    int error = journal_open_header(store, store->folder, store->journal, &journal);
    journal_close(&journal);
    if (error == -ENOENT || journal.is_foreign)
        error = seek(store);
    if (error > 0) {
        store->keeps_note = false;
        log_info("%s: its journal is %s: it was moved without that", store->path, store->sought);
    }
    /* Other errors are met again by who reads it. */
    return is_unknown(error) ? journal_refuse(store, error) : 0;
}

int journal_bring_home(struct store *store)
{
    int error = journal_clear_way(store);
    if (error)
        return error;
    error = io_rename_at(store->sought_folder, place_entry(store->sought), store->folder,
                         place_entry(store->journal));
    if (!error && TEMP_FAILURE_RETRY(fsync(store->sought_folder)) < 0 && errno != EINVAL)
        error = -errno;
    if (error) {
        store_say(store, NULL, "cannot bring its journal %s to it: %s", store->sought,
                  strerror(-error));
        return error;
    }
    journal_come_back(store);
    return directory_sync(store);
}
