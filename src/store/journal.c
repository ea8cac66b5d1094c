/* The journal: the changed pages of one commit, in a file beside the store's.
 *
 *   header    80 bytes  magic, version, bytes of a page, number of witnesses and of pages, end of
 *                       the file before and after; inode and birth of the file, and of the journal
 *   mark      64 bytes  zeros; once it has been carried out, the system's boot id (random(4)), the
 *                       sum of the journal, and when the file was changed last, or zero: when its
 *                       writer has written something else since; not synced
 *   witness   16 bytes  number of a page that does not change, sum of its bytes
 *   page    4136 bytes  number, sums of its 8 sectors as they were, its bytes
 *   trailer    8 bytes  sum of all before but the mark
 *
 * and whatever follows is what a longer journal has left. Numbers are little-endian. Only a journal
 * that is complete is carried out, and only on its own file: one where every witness is as it was,
 * and every sector of a page as it was or as it will be. The names and the inodes do not matter
 * then: both files may have been copied or moved together. Carrying it out a second time changes
 * nothing.
 *
 * One that fits no file, but lies where it was written, beside another file than it was written
 * for, was left behind when that one was moved or replaced. It says nothing about the file beside
 * it, and stands aside (FILE.journal.INODE) when that is written; the other one finds it by its
 * note.
 *
 * What is neither was changed by another program, or is another file's. If the journal bears the
 * mark of this system since it was started, and the file has all of it where others have not
 * written, it had been carried out before they did, and counts for nothing. The mark alone does not
 * say so: a file system may lose what was not synced though the system goes on. Where a sector is
 * as it was before, others may have put that back, or it was lost. It was lost if nobody can have
 * written: the file has not changed after the mark. Nor is it known when the writer went on; then
 * what it was promised counts. */
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
#define VERSION       3
#define SECTOR_BYTES  512 /* what a disk writes wholly or not at all */
#define SECTORS       (PAGE_BYTES / SECTOR_BYTES)
#define FIRST_SUM     0xcbf29ce484222325u
#define BUFFER_BYTES  ((size_t)256 << 10)
#define BOOT_ID       "/proc/sys/kernel/random/boot_id"
#define BOOT_ID_BYTES 36

struct header {
    char magic[8];
    uint32_t version;
    uint32_t page_bytes;
    uint64_t n_witnesses;
    uint64_t n_pages;
    uint64_t old_end;
    uint64_t new_end;
    struct identity file; /* that it was written for */
    struct identity self;
};

struct mark {
    char boot_id[40];              /* BOOT_ID_BYTES, and zeros */
    uint64_t sum;                  /* as the trailer has it */
    uint64_t seconds, nanoseconds; /* of the file's last change; as this machine has numbers */
};

/* What of the file is not as the journal has it. */
struct difference {
    bool is_old;   /* some sectors are as they were before */
    bool is_other; /* something is neither */
    uint64_t end;  /* of what is compared: behind it there are zeros */
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
    size_t filled;                     /* bytes in the buffer */
    uint64_t at;                       /* where they belong */
    uint64_t witnesses[MAX_WITNESSES]; /* that are written */
    uint64_t sum;                      /* when all was read: as the trailer has it */
    struct header header;              /* in host order; zeros, if it is none */
    struct mark mark;
    struct difference difference;
    ino_t inode;
    bool is_foreign; /* it lies where it was written, but not beside its file */
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

uint64_t page_sum(const unsigned char *bytes)
{
    return sum_of(FIRST_SUM, bytes, PAGE_BYTES);
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
    size_t n = address >= end               ? 0
               : end - address < PAGE_BYTES ? (size_t)(end - address)
                                            : PAGE_BYTES;
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

/* To little-endian, and back. */
static struct identity swapped(struct identity identity)
{
    return (struct identity){.inode = htole64(identity.inode), .born = htole64(identity.born)};
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
        .file = swapped(journal->header.file),
        .self = swapped(journal->header.self),
    };
    memcpy(header.magic, MAGIC, sizeof(header.magic));
    int error = put(journal, &header, sizeof(header));
    uint64_t sum = journal->sum;
    if (!error)
        error = put(journal, &(struct mark){0}, sizeof(struct mark));
    journal->sum = sum;
    return error;
}

/* Pages of the file that do not change: the landmark's, and others, evenly spread. */
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
        error = read_page(store, journal->witnesses[i], journal->header.new_end, bytes);
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

/* Of one that has too many pages to be remembered nothing may be written to before it is ended. */
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

/* Nobody may read more of the file's bytes here than there. */
static int open_for_writing(const struct store *store, int flags)
{
    return openat(store->folder, place_entry(store->journal),
                  O_WRONLY | O_CLOEXEC | O_NOFOLLOW | flags, store->st.st_mode & 0666);
}

/* With the length that it has it can be written over without the file system's own journal. */
static int write_and_sync(struct store *store, struct journal *journal)
{
    struct standing *standing = &store->standing;
    struct header *header = &journal->header;
    if (!identity_of(journal->fd, &header->self) || !identity_of(store->fd, &header->file))
        return -errno;
    standing->has_name = standing->has_name && standing->inode == header->self.inode;
    standing->inode = header->self.inode;
    int error = put_all(store, journal);
    if (error || fdatasync(journal->fd) < 0)
        return error ? error : -errno;
    if (!standing->has_name)
        error = directory_sync(store);
    standing->has_name = !error;
    return error;
}

void journal_forget_mark(struct store *store)
{
    if (store->standing.marked >= 0)
        close(store->standing.marked);
    store->standing.marked = -1;
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
    int error = journal_clear_way(store);
    journal.fd = error ? -1 : open_for_writing(store, O_CREAT);
    if (!error && journal.fd < 0)
        error = -errno;
    store->standing.stands = false;
    journal_forget_mark(store);
    if (!error)
        error = write_and_sync(store, &journal);
    if (error)
        log_error("%s: cannot write the journal %s: %s", store->path, store->journal,
                  strerror(-error));
    if (journal.fd >= 0)
        close(journal.fd);
    free(journal.buffer);
    if (error)
        return error;
    remember_pages(store, &journal);
    store->standing.stands = true;
    return 0;
}

bool journal_is_at(const struct store *store, int folder, const char *path)
{
    struct stat st;
    return store->standing.inode &&
           fstatat(folder, place_entry(path), &st, AT_SYMLINK_NOFOLLOW) == 0 &&
           st.st_ino == store->standing.inode;
}

/* As long as the file has its name the journal beside it is its own: not every file system gives a
 * file that was closed the same inode again. */
static bool is_ours(const struct store *store, const char *path)
{
    struct stat st;
    bool exists = fstatat(store->folder, place_entry(path), &st, AT_SYMLINK_NOFOLLOW) == 0;
    return exists && store->standing.inode &&
           (st.st_ino == store->standing.inode ||
            (path == store->journal && place_leads(store, store->place)));
}

/* Of the journal of the file with this inode where another file needs its name. NULL: no memory. */
static char *name_aside(const struct store *store, uint64_t inode)
{
    char *path;
    return asprintf(&path, "%s.%" PRIu64, store->journal, inode) < 0 ? NULL : path;
}

/* All zeros if the system does not tell. */
static struct mark make_mark(uint64_t sum)
{
    struct mark mark = {.sum = sum};
    int fd = open(BOOT_ID, O_RDONLY | O_CLOEXEC);
    if (fd < 0 || read(fd, mark.boot_id, BOOT_ID_BYTES) != BOOT_ID_BYTES)
        mark = (struct mark){0};
    if (fd >= 0)
        close(fd);
    return mark;
}

static int put_mark(const struct store *store, int fd, const struct mark *mark)
{
    ssize_t put = fd < 0 ? -1 : pwrite(fd, mark, sizeof(*mark), sizeof(struct header));
    if (put < 0)
        log_info("%s: cannot mark the journal %s: %s", store->path, store->journal,
                 strerror(errno));
    return put < 0 ? -errno : 0;
}

/* Without it, too, everything is right. */
void journal_mark(struct store *store)
{
    struct mark mark = make_mark(store->standing.sum);
    struct stat st;
    int fd = is_ours(store, store->journal) ? open_for_writing(store, 0) : -1;
    if (fstat(store->fd, &st) == 0) {
        mark.seconds = (uint64_t)st.st_mtim.tv_sec;
        mark.nanoseconds = (uint64_t)st.st_mtim.tv_nsec;
    }
    journal_forget_mark(store);
    if (put_mark(store, fd, &mark) == 0)
        store->standing.marked = fd;
    else if (fd >= 0)
        close(fd);
}

/* For those who follow it is the same journal: they know it by its time. */
int journal_mark_passed(struct store *store)
{
    int fd = store->standing.marked;
    struct stat st;
    if (fd < 0)
        return 0;
    struct mark mark = make_mark(store->standing.sum);
    bool has_times = fstat(fd, &st) == 0;
    int error = put_mark(store, fd, &mark);
    if (error)
        return error;
    if (has_times)
        (void)futimens(fd, (const struct timespec[]){st.st_atim, st.st_mtim});
    journal_forget_mark(store);
    return 0;
}

/* Another file may have the name by now, and a journal of its own there. */
int journal_remove(struct store *store)
{
    struct standing *standing = &store->standing;
    char *aside = name_aside(store, (uint64_t)store->st.st_ino);
    if (!aside)
        return -ENOMEM;
    const char *path = is_ours(store, store->journal) ? store->journal
                       : is_ours(store, aside)        ? aside
                                                      : NULL;
    int error = 0;
    if (path && unlinkat(store->folder, place_entry(path), 0) < 0 && errno != ENOENT) {
        error = -errno;
        log_error("%s: cannot remove the journal %s: %s", store->path, path, strerror(-error));
    }
    free(aside);
    if (error)
        return error;
    standing->inode = 0;
    journal_forget_mark(store);
    error = directory_sync(store);
    if (!error)
        standing->stands = standing->has_name = false;
    return error;
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
    uint64_t sum = journal->sum;
    if (!error)
        error = get(journal, &journal->mark, sizeof(journal->mark));
    if (error)
        return error;
    journal->sum = sum;
    journal->header = (struct header){
        .n_witnesses = le64toh(stored.n_witnesses),
        .n_pages = le64toh(stored.n_pages),
        .old_end = le64toh(stored.old_end),
        .new_end = le64toh(stored.new_end),
        .file = swapped(stored.file),
        .self = swapped(stored.self),
    };
    bool sound = memcmp(stored.magic, MAGIC, sizeof(stored.magic)) == 0 &&
                 le32toh(stored.version) == VERSION && le32toh(stored.page_bytes) == PAGE_BYTES &&
                 journal->header.n_witnesses <= MAX_WITNESSES &&
                 journal->header.new_end <= INT64_MAX;
    if (!sound)
        journal->header = (struct header){0};
    return sound ? 0 : -EILSEQ;
}

/* Whether a byte of the page lies before the end that the file is to have. */
static bool is_in(const struct header *header, uint64_t number)
{
    return number < header->new_end / PAGE_BYTES + (header->new_end % PAGE_BYTES > 0);
}

static int get_witness(struct journal *journal, struct witness *witness)
{
    int error = get(journal, witness, sizeof(*witness));
    witness->number = le64toh(witness->number);
    witness->sum = le64toh(witness->sum);
    return error || is_in(&journal->header, witness->number) ? error : -EILSEQ;
}

static int get_page(struct journal *journal, struct page_record *record)
{
    int error = get(journal, record, sizeof(*record));
    record->number = le64toh(record->number);
    for (size_t i = 0; i < SECTORS; i++)
        record->sums[i] = le32toh(record->sums[i]);
    return error || is_in(&journal->header, record->number) ? error : -EILSEQ;
}

/* Does something with every record in turn; NULL: only reads them. */
typedef int (*page_action)(struct store *store, struct journal *journal,
                           const struct page_record *record);
typedef int (*witness_action)(struct store *store, struct journal *journal,
                              const struct witness *witness);

static int walk(struct store *store, struct journal *journal, witness_action on_witness,
                page_action on_page)
{
    int error = get_header(journal);
    for (uint64_t i = 0; !error && i < journal->header.n_witnesses; i++) {
        struct witness witness;
        error = get_witness(journal, &witness);
        if (!error && on_witness)
            error = on_witness(store, journal, &witness);
    }
    for (uint64_t i = 0; !error && i < journal->header.n_pages; i++) {
        struct page_record record;
        error = get_page(journal, &record);
        if (!error && on_page)
            error = on_page(store, journal, &record);
    }
    uint64_t expected = htole64(journal->sum), stored;
    if (!error)
        error = get(journal, &stored, sizeof(stored));
    journal->sum = expected;
    return error || stored == expected ? error : -EILSEQ;
}

/* Opens what there is under this name, and reads its header. -EILSEQ: it is none. The store may
 * have no file yet. */
static int open_header(const struct store *store, int folder, const char *path,
                       struct journal *journal)
{
    struct identity file, self;
    *journal = (struct journal){0};
    int fd = openat(folder, place_entry(path), O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
    if (fd < 0)
        return -errno;
    bool has_file = identity_of(store->fd, &file);
    if (!identity_of(fd, &self) || !(journal->file = fdopen(fd, "r"))) {
        int error = -errno;
        close(fd);
        return error;
    }
    int error = get_header(journal);
    journal->inode = self.inode;
    journal->is_foreign = !error && identity_is_same(&self, &journal->header.self) &&
                          !(has_file && identity_is_same(&file, &journal->header.file));
    return error;
}

static void close_journal(struct journal *journal)
{
    if (journal->file)
        fclose(journal->file);
    journal->file = NULL;
}

/* Opens a journal that is complete: else -ENOENT or -EILSEQ. */
static int open_named(struct store *store, int folder, const char *path, struct journal *journal)
{
    int error = open_header(store, folder, path, journal);
    if (!error)
        error = walk(store, journal, NULL, NULL);
    if (error)
        close_journal(journal);
    return error;
}

static const char *journal_path(const struct store *store)
{
    return store->sought ? store->sought : store->journal;
}

static int open_journal(struct store *store, struct journal *journal)
{
    return open_named(store, store->sought ? store->sought_folder : store->folder,
                      journal_path(store), journal);
}

/* The one that this store has written, which may have had to stand aside. */
static int open_own(struct store *store, struct journal *journal)
{
    char *aside = name_aside(store, (uint64_t)store->st.st_ino);
    if (!aside)
        return -ENOMEM;
    int error = is_ours(store, store->journal)
                    ? open_named(store, store->folder, store->journal, journal)
                : is_ours(store, aside) ? open_named(store, store->folder, aside, journal)
                                        : -ENOENT;
    free(aside);
    return error;
}

static int compare_witness(struct store *store, struct journal *journal,
                           const struct witness *witness)
{
    unsigned char bytes[PAGE_BYTES];
    int error = read_page(store, witness->number, journal->difference.end, bytes);
    journal->difference.is_other |= !error && page_sum(bytes) != witness->sum;
    return error;
}

static int compare_page(struct store *store, struct journal *journal,
                        const struct page_record *record)
{
    unsigned char bytes[PAGE_BYTES];
    int error = read_page(store, record->number, journal->difference.end, bytes);
    for (size_t i = 0; i < SECTORS && !error; i++) {
        const unsigned char *sector = bytes + i * SECTOR_BYTES;
        if (memcmp(sector, record->bytes + i * SECTOR_BYTES, SECTOR_BYTES) == 0)
            continue;
        bool is_old = sector_sum(sector) == record->sums[i];
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
    (void)journal;
    return pages_put(store, record->number, record->bytes, true);
}

/* Committed bytes change only when those who follow have been told. */
static int write_pages(struct store *store, struct journal *journal, uint64_t file_end)
{
    int error = tell_followers(store);
    if (!error)
        error = walk(store, journal, NULL, write_page);
    if (!error)
        error = file_set_end(store, file_end);
    return error ? error : file_sync(store, false);
}

int journal_carry_out(struct store *store, uint64_t file_end)
{
    struct journal journal;
    bool is_removed = !store->standing.inode; /* only that may not be durable */
    int error = is_removed ? 0 : open_own(store, &journal);
    if (!error && !is_removed) {
        error = write_pages(store, &journal, file_end);
        close_journal(&journal);
    } else if (error) {
        log_error("%s: cannot read the journal %s", store->path, store->journal);
        error = -EIO;
    }
    return error ? error : journal_remove(store);
}

/* ---- Left elsewhere ---- */

static int stand_aside(struct store *store, const struct header *header)
{
    char *aside = name_aside(store, header->file.inode);
    if (!aside)
        return -ENOMEM;
    int error =
        renameat(store->folder, place_entry(store->journal), store->folder, place_entry(aside)) < 0
            ? -errno
            : 0;
    if (error)
        log_error("%s: the journal of another file is in the way, and cannot be renamed to %s: %s",
                  store->path, aside, strerror(-error));
    else
        log_warning("%s: the journal of another file that had this name was in the way: it is %s "
                    "now",
                    store->path, aside);
    free(aside);
    return error ? error : directory_sync(store);
}

int journal_clear_way(struct store *store)
{
    struct journal journal;
    if (is_ours(store, store->journal))
        return 0;
    int error = open_named(store, store->folder, store->journal, &journal);
    close_journal(&journal);
    if (!error)
        return stand_aside(store, &journal.header);
    if (error == -EILSEQ) /* it is of no use to anybody */
        error = unlinkat(store->folder, place_entry(store->journal), 0) < 0 ? -errno : 0;
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

static int open_folder_of(const struct store *store, const char *path)
{
    char *directory = strndup(path, (size_t)(place_entry(path) - path));
    int fd = directory
                 ? open(directory, (store->writable ? O_RDONLY : O_PATH) | O_DIRECTORY | O_CLOEXEC)
                 : -1;
    free(directory);
    return fd;
}

/* Whether that is a journal of this file; takes the path. */
static bool seek_at(struct store *store, char *path)
{
    struct journal journal = {0};
    struct identity file;
    errno = 0;
    int folder = path ? open_folder_of(store, path) : -1;
    bool is_found = folder >= 0 && identity_of(store->fd, &file) &&
                    open_header(store, folder, path, &journal) == 0 &&
                    identity_is_same(&file, &journal.header.file);
    close_journal(&journal);
    if (is_found) {
        store->sought = path;
        store->sought_folder = folder;
        return true;
    }
    if (path && errno == EACCES)
        log_warning(
            "%s: it was written elsewhere, and its journal may be %s, which cannot be read: %s",
            store->path, path, strerror(errno));
    if (folder >= 0)
        close(folder);
    free(path);
    return false;
}

/* Of a file with the first n bytes of a path for its directory. */
static bool seek_beside(struct store *store, const char *directory, size_t n, const char *entry,
                        bool aside)
{
    char *path, ending[24] = "";
    if (aside)
        snprintf(ending, sizeof(ending), ".%" PRIu64, (uint64_t)store->st.st_ino);
    if (asprintf(&path, "%.*s%s.journal%s", (int)n, directory, entry, ending) < 0)
        path = NULL;
    return seek_at(store, path);
}

/* Where the note says; if the folder has another name now, in the same folder; or it stands aside.
 */
static bool seek(struct store *store)
{
    const char *own = place_entry(store->place);
    size_t n = (size_t)(own - store->place);
    char *noted = place_noted(store);
    bool is_found = false;
    if (noted) {
        const char *entry = place_entry(noted);
        size_t m = (size_t)(entry - noted);
        is_found = seek_beside(store, noted, m, entry, false) ||
                   seek_beside(store, noted, m, entry, true) ||
                   seek_beside(store, store->place, n, entry, false) ||
                   seek_beside(store, store->place, n, entry, true);
    }
    free(noted);
    return is_found || seek_beside(store, store->place, n, own, true);
}

void journal_choose(struct store *store)
{
    struct journal journal;
    journal_come_back(store);
    int error = open_header(store, store->folder, store->journal, &journal);
    close_journal(&journal);
    if ((error == -ENOENT || journal.is_foreign) && seek(store))
        log_info("%s: its journal is %s: it was moved without that", store->path, store->sought);
}

static int bring_home(struct store *store)
{
    int error = journal_clear_way(store);
    if (error)
        return error;
    if (renameat(store->sought_folder, place_entry(store->sought), store->folder,
                 place_entry(store->journal)) < 0 ||
        (fsync(store->sought_folder) < 0 && errno != EINVAL)) {
        error = -errno;
        log_error("%s: cannot bring its journal %s to it: %s", store->path, store->sought,
                  strerror(-error));
        return error;
    }
    journal_come_back(store);
    return directory_sync(store);
}

/* ---- After a crash ---- */

/* Whether the journal of this sum was carried out since the system was started: if nothing was lost
 * since, the file has all of it. */
static bool has_been_carried_out(const struct journal *journal, uint64_t sum)
{
    struct mark mark = make_mark(sum);
    return mark.boot_id[0] && mark.sum == journal->mark.sum &&
           memcmp(mark.boot_id, journal->mark.boot_id, sizeof(mark.boot_id)) == 0;
}

/* Whether others have written to the file, which its writer did not any more. */
static bool is_changed_since(const struct mark *mark, const struct timespec *changed)
{
    uint64_t seconds = (uint64_t)changed->tv_sec, nanoseconds = (uint64_t)changed->tv_nsec;
    bool is_known = mark->seconds || mark->nanoseconds;
    return is_known && (seconds > mark->seconds ||
                        (seconds == mark->seconds && nanoseconds > mark->nanoseconds));
}

/* 0: it may be carried out; -EBUSY: it is no journal of what the file is now; -ESTALE: nor need it
 * be of another file; -EALREADY: it had been carried out before others have changed the file;
 * -ENXIO: it was left there by another file. It has been read as a whole. */
static int check(struct store *store, struct journal *journal)
{
    struct stat st;
    if (fstat(store->fd, &st) < 0)
        return -errno;
    struct difference *difference = &journal->difference;
    bool is_done = has_been_carried_out(journal, journal->sum);
    bool is_short = (uint64_t)st.st_size < journal->header.new_end;
    *difference = (struct difference){
        .is_other = is_short,
        .end = is_short ? (uint64_t)st.st_size : journal->header.new_end,
    };
    int error = walk(store, journal, compare_witness, compare_page);
    if (error)
        return error;
    if (!is_done)
        error = difference->is_other ? -EBUSY : 0;
    else if (!difference->is_old)
        error = difference->is_other ? -EALREADY : 0;
    else if (difference->is_other || is_changed_since(&journal->mark, &st.st_mtim))
        error = -ESTALE;
    return error && journal->is_foreign ? -ENXIO : error;
}

/* A writer whose sync has failed, and who died then, may have left pages that only the kernel has.
 */
static int write_as_it_is(struct store *store, struct journal *journal,
                          const struct page_record *record)
{
    unsigned char bytes[PAGE_BYTES];
    uint64_t address = record->number * PAGE_BYTES, end = journal->difference.end;
    int error = read_page(store, record->number, end, bytes);
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
    int error = walk(store, journal, NULL, write_as_it_is);
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
        log_error("%s: the journal %s belongs to another file, or this one was changed since: move "
                  "it away",
                  store->path, journal_path(store));
    if (error == -ESTALE) {
        log_error("%s: some of its last commit is not in it but in the journal %s, and another "
                  "program has changed it since: move the journal away to have it as it is",
                  store->path, journal_path(store));
        error = -EBUSY;
    }
    if (error)
        return error;
    error =
        store->writable ? write_pages(store, journal, end) : walk(store, journal, NULL, keep_page);
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

static int recover(struct store *store)
{
    struct journal journal;
    int error = open_journal(store, &journal);
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
    if (error) {
        log_error("%s: cannot read the journal %s: %s", store->path, journal_path(store),
                  strerror(-error));
        return error;
    }
    error = replay(store, &journal);
    close_journal(&journal);
    return error;
}

int journal_recover(struct store *store)
{
    journal_choose(store);
    int error = store->sought && store->writable ? bring_home(store) : 0;
    return error ? error : recover(store);
}

/* ---- Following ---- */

int journal_look(const struct store *store, struct journal_state *state)
{
    struct stat st;
    *state = (struct journal_state){0};
    if (fstatat(store->sought ? store->sought_folder : store->folder,
                place_entry(journal_path(store)), &st, AT_SYMLINK_NOFOLLOW) < 0)
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
    error = check(store, &journal);
    bool counts = error != -EALREADY && error != -ENXIO;
    if (!error)
        error = walk(store, &journal, NULL, keep_page);
    if (!error)
        atomic_store(&store->end, journal.header.new_end);
    close_journal(&journal);
    /* The next one is being written over it. */
    return !counts ? 0 : error == -EILSEQ ? STORE_MOVED : error == -ESTALE ? -EBUSY : error;
}
