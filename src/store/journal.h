/* What the files of the journal share: the changed pages of one commit, in a file beside the
 * store's.
 *
 *   header    80 bytes  magic, version, bytes of a page, number of witnesses and of pages, end of
 *                       the file before and after; inode and birth of the file, and of the journal
 *   mark      64 bytes  zeros; once it has been carried out, the system's boot id (random(4)), the
 *                       sum of the journal, and when the file was changed last, or zero: when its
 *                       writer has written something else since; not synced
 *   witness   16 bytes  number of a page that does not change, sum of its bytes
 *   page    4136 bytes  number, sums of its 8 sectors as they were, its bytes
 *   trailer    8 bytes  sum of all before but the mark, record by record (journal_sum)
 *
 * and whatever follows is what a longer journal has left. Numbers are little-endian. A journal is
 * used by one thread at a time. */
#ifndef SPARSEFS_STORE_JOURNAL_H
#define SPARSEFS_STORE_JOURNAL_H

#include <stdio.h>

#include "store/private.h"

#define JOURNAL_MAGIC     "sfsjourn"
#define JOURNAL_VERSION   4
#define SECTOR_BYTES      512 /* what a disk writes atomically */
#define SECTORS           (PAGE_BYTES / SECTOR_BYTES)
#define JOURNAL_FIRST_SUM 0

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

/* How the file differs from the journal. */
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

/* A journal that is read or written, and the running sum. All records are multiples of 8 bytes. */
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
    bool is_carried_out; /* it is just being: that is not interrupted */
    bool is_foreign;     /* it lies where it was written, but not beside its file */
};

/* journal_read.c: the sum of n more bytes (XXH3 of 64 bits, its seed the sum of those before), of a
 * sector, and numbers to little-endian and back. */
uint64_t journal_sum(uint64_t sum, const void *bytes, size_t n);
uint32_t journal_sector_sum(const unsigned char *bytes);
struct identity journal_swapped(struct identity identity);

/* journal_read.c: a page of the file, zeros behind the end that the file is to have. */
int journal_read_page(struct store *store, uint64_t number, uint64_t end, unsigned char *bytes);

/* journal_read.c: calls a function for every record in turn; NULL: only reads them. -EILSEQ: the
 * journal is incomplete, or a record is out of range; -EINTR: it is wanted no more. */
typedef int (*page_action)(struct store *store, struct journal *journal,
                           const struct page_record *record);
typedef int (*witness_action)(struct store *store, struct journal *journal,
                              const struct witness *witness);
int journal_walk(struct store *store, struct journal *journal, witness_action on_witness,
                 page_action on_page);

/* journal_read.c: opens the file of this name in the folder, and reads its header. -EILSEQ: it is
 * no journal; -EPROTONOSUPPORT: it is one of another version; -EIO; -ENOMEM; -EPERM of
 * neighbour_check; errors of open(2), -ENOENT among them. The store may have no file yet. To be closed
 * after an error, too. */
int journal_open_header(struct store *store, int folder, const char *path, struct journal *journal);

/* journal_read.c: opens a complete journal; after an error it is closed: -EILSEQ also: it is not
 * complete; errors of journal_open_header. */
int journal_open_named(struct store *store, int folder, const char *path, struct journal *journal);
void journal_close(struct journal *journal);

/* journal_place.c: whether it is this store's: 1 or 0; errors of neighbour_stat. As long as the file has
 * its name the journal beside it is: not every file system gives a file that was closed the same inode
 * again. */
int journal_is_ours(const struct store *store, const char *path);

/* journal_place.c: the name of the one that stands, beside the file or aside, to be freed; NULL: none
 * does. 0; -ENOMEM; errors of neighbour_stat. */
int journal_find_own(const struct store *store, char **path);

/* journal_place.c: of the journal of the file with this inode where another file needs its name, to
 * be freed; NULL: no memory. */
char *journal_name_aside(const struct store *store, uint64_t inode);

/* journal_place.c: the name of the journal that was chosen, and that, opened as by
 * journal_open_named. */
const char *journal_path(const struct store *store);
int journal_open(struct store *store, struct journal *journal);

/* journal_place.c: opens the one that this store has written, which may have had to stand aside. */
int journal_open_own(struct store *store, struct journal *journal);

/* journal_place.c: whether what has the name of a journal, and could not be opened for this error, is
 * one that no store can use: incomplete, not to be trusted, a symbolic link, a fifo or a socket. */
bool journal_is_none(int error);

/* journal_recover.c: says that the chosen journal cannot be read: what opening the file returns then. */
int journal_refuse(struct store *store, int error);

/* journal_place.c: the chosen journal is beside the file again. */
int journal_bring_home(struct store *store);

/* journal_mark.c: whether the journal of this sum was carried out since the system was started: if
 * nothing was lost since, the file has all of it. And whether others have written to the file,
 * which its writer did not any more. */
bool journal_is_carried_out(const struct journal *journal, uint64_t sum);
bool journal_is_changed_since(const struct mark *mark, const struct timespec *changed);

#endif
