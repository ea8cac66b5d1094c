/* The journal: the changed pages of one commit, in a file beside the store's.
 *
 *   header    48 bytes  magic, version, bytes of a page, number of witnesses and of pages, end of
 *                       the file before and after
 *   witness   16 bytes  number of a page that does not change, sum of its bytes
 *   page    4136 bytes  number, sums of its 8 sectors as they were, its bytes
 *   trailer    8 bytes  sum of all before
 *
 * Numbers are little-endian. Only a journal that is complete is carried out, and only on its own
 * file: one where every witness is as it was, and every sector of a page as it was or as it will
 * be. The name and the inode do not matter: both files may have been copied or moved together.
 * Carrying it out a second time changes nothing. */
#include <endian.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/log.h"
#include "store/private.h"

#define MAGIC         "sfsjourn"
#define VERSION       1
#define SECTOR_BYTES  512 /* what a disk writes wholly or not at all */
#define SECTORS       (PAGE_BYTES / SECTOR_BYTES)
#define MAX_WITNESSES 16
#define FIRST_SUM     0xcbf29ce484222325u
#define BUFFER_BYTES  ((size_t)256 << 10)

struct header {
    char magic[8];
    uint32_t version;
    uint32_t page_bytes;
    uint64_t n_witnesses;
    uint64_t n_pages;
    uint64_t old_end;
    uint64_t new_end;
};

struct witness {
    uint64_t number;
    uint64_t sum;
};

struct page_record {
    uint64_t number;
    uint32_t sums[SECTORS];
    unsigned char bytes[PAGE_BYTES];
};

/* A journal that is read or written, and the sum of what has passed. All records are multiples of
 * 8 bytes. */
struct journal {
    FILE *file; /* that is read */
    int fd;     /* that is written */
    unsigned char *buffer;
    size_t filled; /* bytes in the buffer */
    uint64_t at;   /* where they belong */
    uint64_t sum;
    struct header header; /* in host order */
};

/* Any change of one word changes it: every step can be undone for a given word. */
static uint64_t sum_of(uint64_t sum, const void *bytes, size_t n)
{
    const unsigned char *from = bytes;
    for (size_t i = 0; i < n; i += 8) {
        uint64_t word;
        memcpy(&word, from + i, 8);
        sum = (sum ^ le64toh(word)) * 0x9e3779b97f4a7c15u;
        sum ^= sum >> 32;
    }
    return sum;
}

static uint32_t sector_sum(const unsigned char *bytes)
{
    return (uint32_t)sum_of(FIRST_SUM, bytes, SECTOR_BYTES);
}

/* ---- Writing ---- */

/* A page as the file has it, zeros behind the end that the file is to have. */
static int read_page(struct store *store, uint64_t number, uint64_t end, unsigned char *bytes)
{
    uint64_t address = number * PAGE_BYTES;
    size_t n = end - address < PAGE_BYTES ? (size_t)(end - address) : PAGE_BYTES;
    memset(bytes + n, 0, PAGE_BYTES - n);
    return file_read(store, address, bytes, n);
}

static int put_buffer(struct journal *journal)
{
    for (size_t done = 0; done < journal->filled;) {
        ssize_t put = pwrite(journal->fd, journal->buffer + done, journal->filled - done,
                             (off_t)(journal->at + done));
        if (put < 0 && errno == EINTR)
            continue;
        if (put <= 0)
            return put ? -errno : -EIO;
        done += (size_t)put;
    }
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
    journal->sum = sum_of(journal->sum, record, n);
    return 0;
}

static int put_header(struct journal *journal)
{
    struct header header = {
        .version = htole32(VERSION),
        .page_bytes = htole32(PAGE_BYTES),
        .n_witnesses = htole64(journal->header.n_witnesses),
        .n_pages = htole64(journal->header.n_pages),
        .old_end = htole64(journal->header.old_end),
        .new_end = htole64(journal->header.new_end),
    };
    memcpy(header.magic, MAGIC, sizeof(header.magic));
    return put(journal, &header, sizeof(header));
}

/* Pages of the file that do not change, evenly spread. */
static size_t choose_witnesses(struct store *store, uint64_t new_end, uint64_t *numbers)
{
    uint64_t whole = new_end / PAGE_BYTES;
    uint64_t step = whole / MAX_WITNESSES + 1;
    size_t n = 0;
    for (uint64_t number = step / 2; number < whole && n < MAX_WITNESSES; number += step)
        if (!pages_find(store, number))
            numbers[n++] = number;
    return n;
}

static int put_witnesses(struct store *store, struct journal *journal, const uint64_t *numbers)
{
    int error = 0;
    for (size_t i = 0; i < journal->header.n_witnesses && !error; i++) {
        unsigned char bytes[PAGE_BYTES];
        error = read_page(store, numbers[i], journal->header.new_end, bytes);
        struct witness witness = {
            .number = htole64(numbers[i]),
            .sum = htole64(sum_of(FIRST_SUM, bytes, PAGE_BYTES)),
        };
        if (!error)
            error = put(journal, &witness, sizeof(witness));
    }
    return error;
}

static int put_page(struct store *store, struct journal *journal, const struct page *page)
{
    struct page_record record = {.number = htole64(page->number)};
    int error = read_page(store, page->number, journal->header.new_end, record.bytes);
    if (error)
        return error;
    for (size_t i = 0; i < SECTORS; i++)
        record.sums[i] = htole32(sector_sum(record.bytes + i * SECTOR_BYTES));

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
    uint64_t witnesses[MAX_WITNESSES];
    struct page *page, *next;
    journal->header.n_witnesses = choose_witnesses(store, journal->header.new_end, witnesses);
    HASH_ITER (hh, store->pages, page, next) {
        journal->header.n_pages += page->number * PAGE_BYTES < journal->header.new_end;
    }
    int error = put_header(journal);
    if (!error)
        error = put_witnesses(store, journal, witnesses);
    HASH_ITER (hh, store->pages, page, next) {
        if (!error && page->number * PAGE_BYTES < journal->header.new_end)
            error = put_page(store, journal, page);
    }
    uint64_t sum = htole64(journal->sum);
    if (!error)
        error = put(journal, &sum, sizeof(sum));
    if (!error)
        error = put_buffer(journal);
    return error || fsync(journal->fd) == 0 ? error : -errno;
}

int journal_write(struct store *store, uint64_t new_end)
{
    struct journal journal = {
        .sum = FIRST_SUM,
        .header = {.old_end = store->committed_end, .new_end = new_end},
        .buffer = malloc(BUFFER_BYTES),
    };
    if (!journal.buffer)
        return -ENOMEM;
    /* Nobody may read more of the file's bytes here than there. */
    journal.fd = open(store->journal, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW,
                      store->st.st_mode & 0666);
    int error = journal.fd < 0 ? -errno : put_all(store, &journal);
    if (error)
        log_error("%s: cannot write the journal %s: %s", store->path, store->journal,
                  strerror(-error));
    if (journal.fd >= 0)
        close(journal.fd);
    free(journal.buffer);
    return error ? error : directory_sync(store);
}

int journal_remove(struct store *store)
{
    if (unlink(store->journal) < 0 && errno != ENOENT) {
        int error = -errno;
        log_error("%s: cannot remove the journal %s: %s", store->path, store->journal,
                  strerror(-error));
        return error;
    }
    return directory_sync(store);
}

/* ---- Reading ---- */

/* -EILSEQ: the journal is not complete. */
static int get(struct journal *journal, void *record, size_t n)
{
    errno = 0;
    if (fread(record, 1, n, journal->file) != n)
        return feof(journal->file) ? -EILSEQ : errno == ENOMEM ? -ENOMEM : -EIO;
    journal->sum = sum_of(journal->sum, record, n);
    return 0;
}

static int get_header(struct journal *journal)
{
    struct header stored;
    rewind(journal->file);
    journal->sum = FIRST_SUM;
    int error = get(journal, &stored, sizeof(stored));
    if (error)
        return error;
    journal->header = (struct header){
        .n_witnesses = le64toh(stored.n_witnesses),
        .n_pages = le64toh(stored.n_pages),
        .old_end = le64toh(stored.old_end),
        .new_end = le64toh(stored.new_end),
    };
    bool sound = memcmp(stored.magic, MAGIC, sizeof(stored.magic)) == 0 &&
                 le32toh(stored.version) == VERSION && le32toh(stored.page_bytes) == PAGE_BYTES &&
                 journal->header.n_witnesses <= MAX_WITNESSES &&
                 journal->header.new_end <= INT64_MAX;
    return sound ? 0 : -EILSEQ;
}

static int get_witness(struct journal *journal, struct witness *witness)
{
    int error = get(journal, witness, sizeof(*witness));
    witness->number = le64toh(witness->number);
    witness->sum = le64toh(witness->sum);
    return error || witness->number < journal->header.new_end / PAGE_BYTES ? error : -EILSEQ;
}

static int get_page(struct journal *journal, struct page_record *record)
{
    uint64_t end = journal->header.new_end;
    int error = get(journal, record, sizeof(*record));
    record->number = le64toh(record->number);
    for (size_t i = 0; i < SECTORS; i++)
        record->sums[i] = le32toh(record->sums[i]);
    return error || record->number < end / PAGE_BYTES + (end % PAGE_BYTES > 0) ? error : -EILSEQ;
}

/* Does something with every record in turn; NULL: only reads them. */
typedef int (*page_action)(struct store *store, const struct header *header,
                           const struct page_record *record);
typedef int (*witness_action)(struct store *store, const struct header *header,
                              const struct witness *witness);

static int walk(struct store *store, struct journal *journal, witness_action on_witness,
                page_action on_page)
{
    int error = get_header(journal);
    for (uint64_t i = 0; !error && i < journal->header.n_witnesses; i++) {
        struct witness witness;
        error = get_witness(journal, &witness);
        if (!error && on_witness)
            error = on_witness(store, &journal->header, &witness);
    }
    for (uint64_t i = 0; !error && i < journal->header.n_pages; i++) {
        struct page_record record;
        error = get_page(journal, &record);
        if (!error && on_page)
            error = on_page(store, &journal->header, &record);
    }
    uint64_t expected = htole64(journal->sum), stored;
    if (!error)
        error = get(journal, &stored, sizeof(stored));
    return error || stored == expected ? error : -EILSEQ;
}

/* Opens the journal if there is a complete one: else -ENOENT or -EILSEQ. */
static int open_journal(struct store *store, struct journal *journal)
{
    int fd = open(store->journal, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
    journal->file = fd < 0 ? NULL : fdopen(fd, "r");
    int error = journal->file ? walk(store, journal, NULL, NULL) : -errno;
    if (error && journal->file)
        fclose(journal->file);
    else if (error && fd >= 0)
        close(fd);
    return error;
}

static int check_witness(struct store *store, const struct header *header,
                         const struct witness *witness)
{
    unsigned char bytes[PAGE_BYTES];
    int error = read_page(store, witness->number, header->new_end, bytes);
    return error || sum_of(FIRST_SUM, bytes, PAGE_BYTES) == witness->sum ? error : -EBUSY;
}

static int check_page(struct store *store, const struct header *header,
                      const struct page_record *record)
{
    unsigned char bytes[PAGE_BYTES];
    int error = read_page(store, record->number, header->new_end, bytes);
    for (size_t i = 0; i < SECTORS && !error; i++) {
        const unsigned char *sector = bytes + i * SECTOR_BYTES;
        if (sector_sum(sector) != record->sums[i] &&
            memcmp(sector, record->bytes + i * SECTOR_BYTES, SECTOR_BYTES) != 0)
            error = -EBUSY;
    }
    return error;
}

static int write_page(struct store *store, const struct header *header,
                      const struct page_record *record)
{
    uint64_t address = record->number * PAGE_BYTES, left = header->new_end - address;
    return file_write(store, address, record->bytes, left < PAGE_BYTES ? (size_t)left : PAGE_BYTES);
}

static int keep_page(struct store *store, const struct header *header,
                     const struct page_record *record)
{
    (void)header;
    return pages_put(store, record->number, record->bytes, true);
}

/* Committed bytes change only when those who follow have been told. */
static int write_pages(struct store *store, struct journal *journal, uint64_t file_end)
{
    int error = tell_followers(store);
    if (!error)
        error = walk(store, journal, NULL, write_page);
    if (error)
        return error;
    if (ftruncate(store->fd, (off_t)file_end) < 0 || fdatasync(store->fd) < 0) {
        error = -errno;
        log_error("%s: cannot write what its journal says: %s", store->path, strerror(-error));
    }
    return error;
}

int journal_carry_out(struct store *store, uint64_t file_end)
{
    struct journal journal;
    int error = open_journal(store, &journal);
    if (!error) {
        error = write_pages(store, &journal, file_end);
        fclose(journal.file);
    } else if (error == -ENOENT) {
        error = 0; /* only its removal may not be durable */
    } else {
        log_error("%s: cannot read the journal %s", store->path, store->journal);
        error = -EIO;
    }
    return error ? error : journal_remove(store);
}

/* ---- After a crash ---- */

static int replay(struct store *store, struct journal *journal)
{
    uint64_t end = journal->header.new_end;
    struct stat st;
    int error = fstat(store->fd, &st) < 0 ? -errno : (uint64_t)st.st_size < end ? -EBUSY : 0;
    if (!error)
        error = walk(store, journal, check_witness, check_page);
    if (error == -EBUSY)
        log_error("%s: the journal %s belongs to another file, or this one was changed since: move "
                  "it away",
                  store->path, store->journal);
    if (error)
        return error;
    error =
        store->writable ? write_pages(store, journal, end) : walk(store, journal, NULL, keep_page);
    if (!error && store->writable)
        error = journal_remove(store);
    if (error)
        return error;
    store->committed_end = end;
    atomic_store(&store->end, end);
    store->recovered = STORE_REPLAYED;
    log_info("%s: a journal of %" PRIu64 " pages was replayed%s: the last commit is whole",
             store->path, journal->header.n_pages, store->writable ? "" : " in memory");
    return 0;
}

int journal_recover(struct store *store)
{
    struct journal journal;
    int error = open_journal(store, &journal);
    if (error == -ENOENT)
        return 0;
    if (error == -EILSEQ) {
        error = store->writable ? journal_remove(store) : 0;
        store->recovered = STORE_DISCARDED;
        if (!error)
            log_info("%s: an incomplete journal was discarded: the last commit before it counts",
                     store->path);
        return error;
    }
    if (error) {
        log_error("%s: cannot read the journal %s: %s", store->path, store->journal,
                  strerror(-error));
        return error;
    }
    error = replay(store, &journal);
    fclose(journal.file);
    return error;
}

/* ---- Following ---- */

int journal_look(const struct store *store, struct journal_state *state)
{
    struct stat st;
    *state = (struct journal_state){0};
    if (stat(store->journal, &st) < 0)
        return errno == ENOENT ? 0 : -errno;
    *state = (struct journal_state){
        .exists = true, .inode = st.st_ino, .size = st.st_size, .changed = st.st_mtim};
    return 0;
}

int journal_overlay(struct store *store)
{
    struct journal journal;
    int error = open_journal(store, &journal);
    if (error == -ENOENT || error == -EILSEQ)
        return 0;
    if (error)
        return error;
    error = walk(store, &journal, check_witness, check_page);
    if (!error)
        error = walk(store, &journal, NULL, keep_page);
    if (!error)
        atomic_store(&store->end, journal.header.new_end);
    fclose(journal.file);
    return error;
}
