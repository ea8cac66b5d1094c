/* Writing the journal of a commit, and ending it. */
#include <endian.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/io.h"
#include "store/journal.h"

#define BUFFER_BYTES ((size_t)256 << 10)

static int put_buffer(struct journal *journal)
{
    size_t done;
    int error = io_write_at(journal->fd, journal->at, journal->buffer, journal->filled, &done);
    if (error)
        return file_error(error);
    journal->at += journal->filled;
    journal->filled = 0;
    return 0;
}

static int put(struct journal *journal, const void *record, size_t n)
{
    int error = n > BUFFER_BYTES - journal->filled ? put_buffer(journal) : 0;
    if (error)
        return error;
    memcpy(journal->buffer + journal->filled, record, n);
    journal->filled += n;
    journal->sum = journal_sum(journal->sum, record, n);
    return 0;
}

static int put_header(struct journal *journal)
{
    struct header header = {
        .version = htole32(JOURNAL_VERSION),
        .page_bytes = htole32(PAGE_BYTES),
        .n_witnesses = htole64(journal->header.n_witnesses),
        .n_pages = htole64(journal->header.n_pages),
        .old_end = htole64(journal->header.old_end),
        .new_end = htole64(journal->header.new_end),
        .file = journal_swapped(journal->header.file),
        .self = journal_swapped(journal->header.self),
    };
    memcpy(header.magic, JOURNAL_MAGIC, sizeof(header.magic));
    int error = put(journal, &header, sizeof(header));
    uint64_t sum = journal->sum;
    if (!error)
        error = put(journal, &(struct mark){0}, sizeof(struct mark));
    journal->sum = sum;
    return error;
}

/* Witnesses: unchanged pages of the file, the landmark's and others, evenly spread. */
static size_t choose_witnesses(struct store *store, uint64_t new_end, uint64_t *numbers)
{
    uint64_t whole = new_end / PAGE_BYTES, landmark = store->landmark / PAGE_BYTES;
    uint64_t step = whole / MAX_WITNESSES + 1;
    size_t n = 0;
    if (store->landmark < new_end && !pages_find(store, landmark))
        numbers[n++] = landmark;
    for (uint64_t number = step / 2; number < whole && n < MAX_WITNESSES; number += step)
        if (number != landmark && !pages_find(store, number))
            numbers[n++] = number;
    return n;
}

static int put_witnesses(struct store *store, struct journal *journal)
{
    int error = 0;
    for (size_t i = 0; i < journal->header.n_witnesses && !error; i++) {
        unsigned char bytes[PAGE_BYTES];
        error = journal_read_page(store, journal->witnesses[i], journal->header.new_end, bytes);
        struct witness witness = {
            .number = htole64(journal->witnesses[i]),
            .sum = htole64(page_sum(bytes)),
        };
        if (!error)
            error = put(journal, &witness, sizeof(witness));
    }
    return error;
}

static int put_page(struct store *store, struct journal *journal, const struct page *page)
{
    struct page_record record = {.number = htole64(page->number)};
    int error = journal_read_page(store, page->number, journal->header.new_end, record.bytes);
    if (error)
        return error;
    for (size_t i = 0; i < SECTORS; i++)
        record.sums[i] = htole32(journal_sector_sum(record.bytes + i * SECTOR_BYTES));

    uint64_t left = journal->header.new_end - page->number * PAGE_BYTES;
    size_t n = left < PAGE_BYTES ? (size_t)left : PAGE_BYTES;
    error = pages_get(store, page, record.bytes);
    if (error)
        return error;
    memset(record.bytes + n, 0, PAGE_BYTES - n);
    return put(journal, &record, sizeof(record));
}

static int put_all(struct store *store, struct journal *journal)
{
    struct page *page, *next;
    journal->header.n_witnesses =
        choose_witnesses(store, journal->header.new_end, journal->witnesses);
    HASH_ITER (hh, store->pages, page, next) {
        journal->header.n_pages += page->number * PAGE_BYTES < journal->header.new_end;
    }
    int error = put_header(journal);
    if (!error)
        error = put_witnesses(store, journal);
    HASH_ITER (hh, store->pages, page, next) {
        if (!error && page->number * PAGE_BYTES < journal->header.new_end)
            error = put_page(store, journal, page);
    }
    store->standing.sum = htole64(journal->sum);
    if (!error)
        error = put(journal, &store->standing.sum, sizeof(store->standing.sum));
    return error ? error : put_buffer(journal);
}

static int compare_numbers(const void *a, const void *b)
{
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return (x > y) - (x < y);
}

/* The pages of a journal that has too many are not remembered: it is ended before anything else is
 * written. */
static void remember_pages(struct store *store, const struct journal *journal)
{
    struct standing *standing = &store->standing;
    const struct page *page, *next;
    standing->n = 0;
    while (standing->n < journal->header.n_witnesses) {
        standing->pages[standing->n] = journal->witnesses[standing->n];
        standing->n++;
    }
    HASH_ITER (hh, store->pages, page, next)
        if (standing->n < MOST_STANDING + MAX_WITNESSES)
            standing->pages[standing->n++] = page->number;
    qsort(standing->pages, standing->n, sizeof(*standing->pages), compare_numbers);
}

bool journal_has(const struct store *store, uint64_t number)
{
    const struct standing *standing = &store->standing;
    return standing->stands && bsearch(&number, standing->pages, standing->n,
                                       sizeof(*standing->pages), compare_numbers);
}

/* What is no journal, or is refused, or has permissions that cannot be narrowed, is replaced by a new
 * one. */
static int open_journal(struct store *store)
{
    int fd = neighbour_open(store, store->journal, true);
    if (!journal_is_none(fd) || neighbour_remove(store, store->journal) < 0)
        return fd;
    store->standing.has_name = false; /* it may get the same inode */
    return neighbour_open(store, store->journal, true);
}

/* Overwriting a journal without changing its length needs no transaction of the file system. */
static int write_and_sync(struct store *store, struct journal *journal)
{
    struct standing *standing = &store->standing;
    struct header *header = &journal->header;
    if (!identity_of(journal->fd, &header->self) || !identity_of(store->fd, &header->file))
        return -errno;
    standing->has_name = standing->has_name && standing->inode == header->self.inode &&
                         standing->born == header->self.born;
    standing->inode = header->self.inode;
    standing->born = header->self.born;
    int error = put_all(store, journal);
    if (error || TEMP_FAILURE_RETRY(fdatasync(journal->fd)) < 0)
        return error ? error : -errno;
    if (!standing->has_name)
        error = directory_sync(store);
    standing->has_name = !error;
    return error;
}

int journal_write(struct store *store, uint64_t new_end)
{
    struct journal journal = {
        .sum = JOURNAL_FIRST_SUM,
        .header = {.old_end = store->committed_end, .new_end = new_end},
        .buffer = malloc(BUFFER_BYTES),
    };
    if (!journal.buffer)
        return -ENOMEM;
    int error = journal_clear_way(store);
    journal.fd = error ? -1 : open_journal(store);
    if (!error && journal.fd < 0)
        error = journal.fd;
    store->standing.stands = false;
    journal_forget_mark(store);
    if (!error)
        error = write_and_sync(store, &journal);
    if (error)
        store_say(store, NULL, "cannot write the journal %s: %s", store->journal, strerror(-error));
    if (journal.fd >= 0)
        close(journal.fd);
    free(journal.buffer);
    if (error)
        return error;
    remember_pages(store, &journal);
    store->standing.stands = true;
    return 0;
}

/* The journal's name may belong to another file by now, with a journal of its own. */
int journal_remove(struct store *store)
{
    struct standing *standing = &store->standing;
    char *path;
    int error = journal_find_own(store, &path);
    if (!error && path)
        error = neighbour_remove(store, path);
    error = error == -ENOENT ? 0 : error;
    if (error)
        store_say(store, NULL, "cannot remove the journal %s: %s", path ? path : store->journal,
                  neighbour_reason(error));
    free(path);
    if (error)
        return error;
    standing->inode = 0;
    journal_forget_mark(store);
    error = directory_sync(store);
    if (!error)
        standing->stands = standing->has_name = false;
    return error;
}
