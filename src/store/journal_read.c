/* Reading a journal, record by record, and the sums by which it is known to be whole. */
#include <endian.h>
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <xxhash.h>

#include "common/interrupt.h"
#include "common/io.h"
#include "store/journal.h"

uint64_t journal_sum(uint64_t sum, const void *bytes, size_t n)
{
    return XXH3_64bits_withSeed(bytes, n, sum);
}

uint64_t page_sum(const unsigned char *bytes)
{
    return journal_sum(JOURNAL_FIRST_SUM, bytes, PAGE_BYTES);
}

uint32_t journal_sector_sum(const unsigned char *bytes)
{
    return (uint32_t)journal_sum(JOURNAL_FIRST_SUM, bytes, SECTOR_BYTES);
}

struct identity journal_swapped(struct identity identity)
{
    return (struct identity){.inode = htole64(identity.inode), .born = htole64(identity.born)};
}

int journal_read_page(struct store *store, uint64_t number, uint64_t end, unsigned char *bytes)
{
    uint64_t address = number * PAGE_BYTES;
    size_t n = address >= end               ? 0
               : end - address < PAGE_BYTES ? (size_t)(end - address)
                                            : PAGE_BYTES;
    memset(bytes + n, 0, PAGE_BYTES - n);
    return file_read(store, address, bytes, n, NULL);
}

/* -EILSEQ: the journal is not complete. */
static int get(struct journal *journal, void *record, size_t n)
{
    errno = 0;
    if (fread(record, 1, n, journal->file) != n)
        return feof(journal->file) ? -EILSEQ : errno == ENOMEM ? -ENOMEM : -EIO;
    journal->sum = journal_sum(journal->sum, record, n);
    return 0;
}

/* Whether it can have as many records as it says: else -EILSEQ; other errors: it is not known. */
static int check_room(struct journal *journal)
{
    const struct header *header = &journal->header;
    struct stat st;
    uint64_t pages = header->new_end / PAGE_BYTES + (header->new_end % PAGE_BYTES > 0);
    if (fstat(fileno(journal->file), &st) < 0)
        return -errno;
    bool has_room = header->n_pages <= pages &&
                    header->n_pages <= (uint64_t)st.st_size / sizeof(struct page_record);
    return has_room ? 0 : -EILSEQ;
}

static int get_header(struct journal *journal)
{
    struct header stored;
    rewind(journal->file);
    journal->sum = JOURNAL_FIRST_SUM;
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
        .file = journal_swapped(stored.file),
        .self = journal_swapped(stored.self),
    };
    bool is_journal = memcmp(stored.magic, JOURNAL_MAGIC, sizeof(stored.magic)) == 0;
    bool is_of_other_version = is_journal && le32toh(stored.version) != JOURNAL_VERSION;
    bool sound = is_journal && !is_of_other_version && le32toh(stored.page_bytes) == PAGE_BYTES &&
                 journal->header.n_witnesses <= MAX_WITNESSES &&
                 journal->header.new_end <= INT64_MAX;
    error = sound ? check_room(journal) : is_of_other_version ? -EPROTONOSUPPORT : -EILSEQ;
    if (error)
        journal->header = (struct header){0};
    return error;
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

/* No sector has a sum of zero: so a file that has no bytes there, but a hole, is read no further. */
static int get_page(struct journal *journal, struct page_record *record)
{
    uint32_t all = 0;
    int error = get(journal, record, sizeof(*record));
    record->number = le64toh(record->number);
    for (size_t i = 0; i < SECTORS; i++) {
        record->sums[i] = le32toh(record->sums[i]);
        all |= record->sums[i];
    }
    return error || (all && is_in(&journal->header, record->number)) ? error : -EILSEQ;
}

/* What is carried out is carried out to its end: it was read as a whole before. */
static int may_go_on(const struct store *store, const struct journal *journal)
{
    return journal->is_carried_out ? 0 : store_is_interrupted(store) ? -EINTR : interrupt_check();
}

int journal_walk(struct store *store, struct journal *journal, witness_action on_witness,
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
        error = may_go_on(store, journal);
        if (!error)
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

int journal_open_header(struct store *store, int folder, const char *path, struct journal *journal)
{
    struct identity file, self;
    *journal = (struct journal){0};
    int fd = io_open_at(folder, place_entry(path), O_RDONLY | O_NONBLOCK);
    if (fd < 0)
        return fd;
    int refused = neighbour_check(store, fd, path);
    if (refused) {
        close(fd);
        return refused;
    }
    bool has_file = store->fd >= 0;
    if ((has_file && !identity_of(store->fd, &file)) || !identity_of(fd, &self) ||
        !(journal->file = fdopen(fd, "r"))) {
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

void journal_close(struct journal *journal)
{
    if (journal->file)
        fclose(journal->file);
    journal->file = NULL;
}

int journal_open_named(struct store *store, int folder, const char *path, struct journal *journal)
{
    int error = journal_open_header(store, folder, path, journal);
    if (!error)
        error = journal_walk(store, journal, NULL, NULL);
    if (error)
        journal_close(journal);
    return error;
}
