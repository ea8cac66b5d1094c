/* Shared by the files of src/store only. */
#ifndef SPARSEFS_STORE_PRIVATE_H
#define SPARSEFS_STORE_PRIVATE_H

#include <pthread.h>
#include <stdatomic.h>

#include "common/hash.h"
#include "store/extents.h"
#include "store/store.h"

#define PAGE_BYTES      4096
#define PAGES_IN_MEMORY ((size_t)8192) /* 32 MiB; more are put on the disk, where that can be */
#define COUNTER_BYTES   20             /* decimal digits of the counter beside a file */
#define MOST_STANDING   1024 /* pages: a journal of more is ended as soon as it is carried out */
#define MAX_WITNESSES   16   /* unchanged pages by which a journal knows its file */

/* Bytes that stand in for those of the file: changes that are not committed or, in a store that is
 * only read, a journal's. */
struct page {
    uint64_t number; /* its address / PAGE_BYTES */
    UT_hash_handle hh;
    off_t spilled_at;      /* where in the file of spilled pages; -1: in memory */
    unsigned char bytes[]; /* PAGE_BYTES in memory */
};

/* The journal beside the file of a followed store. */
struct journal_state {
    bool exists;
    ino_t inode;
    off_t size;
    struct timespec changed;
};

/* What tells one commit of a followed file from another (follow.c). */
struct follow_state {
    char number[COUNTER_BYTES]; /* of the counter; all zeros: there is none, then: */
    struct timespec changed;    /* of the file */
    off_t size;
    struct journal_state journal;
};

/* The journal of the last commit, while it stands: carried out, but that is not synced yet. A crash
 * of the machine will have it replayed, on pages that must be as they were or as it has them, and
 * beside witnesses: they are not written to before the next journal takes its place. */
struct standing {
    bool stands;
    bool has_name; /* the journal's name is durable: */
    ino_t inode;   /* of this file */
    uint64_t sum;  /* of all of it */
    size_t n;
    uint64_t pages[MOST_STANDING + MAX_WITNESSES]; /* numbers of them all, ascending */
};

/* A byte that is not in a page is in the file. What was allocated since the last commit (at or
 * behind committed_end, or in `fresh`) is written there at once, unless it shares a page with the
 * journal that stands; other bytes only by a commit.
 *
 * free, pending, fresh are disjoint. Locks are taken in the order `change`, pages_lock. */
struct store {
    int fd;
    char *path;      /* as given */
    char *place;     /* the same without symbolic links: the journal stands beside the file */
    char *directory; /* that it is in */
    char *journal;   /* its name; NULL if the place cannot be told */
    char *counter;   /* the same of the counter */
    char *temporary; /* the name until the first commit; NULL: it stands at its place */
    bool unnamed;    /* its name at its place is not durable yet */
    bool replace;    /* whether the first commit may replace a file */
    bool writable;
    struct image *image; /* what stands for the file: then fd is -1; NULL: there is a file */
    bool has_counter;    /* this writer's counter stands beside the file */
    uint64_t deaf_until; /* monotonic nanoseconds: followers are not waited for */
    /* Of a followed file; changed by store_refresh only, while nobody reads: */
    bool is_following, is_live, is_gone, has_state;
    uint64_t wanted_end; /* store_set_end */
    struct follow_state state;
    atomic_bool is_interrupted; /* nobody waits for its writer any more */
    bool is_on_fuse;
    pthread_mutex_t hold_lock; /* guards the next two: */
    unsigned n_holds;
    int hold; /* the counter, locked; -1: not */
    enum store_recovered recovered;
    struct stat st;  /* as of opening */
    const char *map; /* the file as of opening; NULL: not mapped */
    atomic_uint_fast64_t end;
    atomic_uint_fast64_t reads;
    atomic_uint_fast64_t bytes_read;
    atomic_uint_fast64_t commits;

    pthread_rwlock_t pages_lock; /* guards the table and the bytes of its pages */
    struct page *pages;          /* by number */
    atomic_size_t n_pages;       /* 0: nobody has to take the lock for reading */
    int spill;                   /* a file without a name, for pages; -1: none yet */
    size_t n_spilled;

    pthread_mutex_t change; /* guards what follows; held by whoever changes bytes, space or end */
    atomic_uint_fast64_t committed_end; /* also read without the lock */
    uint64_t file_end;                  /* the file is not shorter, unless others have cut it */
    bool is_cut;                        /* they have: the log says it once */
    struct extents free;                /* may be allocated */
    struct extents pending;             /* freed since the last commit, which still needs them */
    struct extents fresh;               /* allocated since the last commit, before committed_end */
    struct store_snapshot *snapshots; /* the newest first; each has space that is in no other set */
    size_t n_kept;                    /* pages, by all of them */
    struct standing standing;
    uint64_t landmark; /* an address that whoever changes the file writes to */
    bool written;      /* something since the last commit */
    bool write_again;  /* the kernel may have dropped what was written: fdatasync failed */
    bool unapplied;    /* a complete journal waits to be carried out */
    bool stray;        /* a journal may stand there that must not: nothing is changed */
};

/* file.c: a store without a file, NULL: no memory; and the lock on its file, by the rules that
 * store_open names. */
struct store *file_new(const char *path, bool writable);
int file_lock(struct store *store);
bool file_may_lock(void);

/* file.c: a lock for whom those who read must not keep out those who write, however many they are.
 * Who has it for reading must not take it once more. */
void file_init_lock(pthread_rwlock_t *lock);

/* file.c: what stands beside the place: its directory and its journal. */
int file_name_neighbours(struct store *store);

/* file.c: opens the file and takes its lock, unless it is followed; finds its place. */
int file_open(struct store *store);

/* follow.c: whether what was read is of the state that was found last: else STORE_MOVED; -ESTALE:
 * another file has its place. And n bytes of a followed file. */
int follow_check(const struct store *store);
int follow_read(struct store *store, uint64_t address, void *buffer, size_t n);

/* follow.c: what is read from the descriptor next is what others have written by now. */
void follow_drop_cached(const struct store *store, int fd);

/* counter.c: its number, all zeros if there is none; another number, before committed bytes are
 * changed; and its end. */
int counter_read(const struct store *store, char number[COUNTER_BYTES]);
int counter_advance(struct store *store);
void counter_remove(struct store *store);

/* counter.c: of a followed file: a descriptor that holds it until it is closed; -1: it cannot be.
 */
int counter_hold(const struct store *store);

/* commit.c: syncs what the journal that stands has changed, and ends it. The caller holds `change`,
 * or is the last one to use the store. */
int settle(struct store *store);

/* commit.c: the same as counter_advance; the log says why it cannot. */
int tell_followers(struct store *store);

/* file.c: n bytes of the file itself; behind its end a writable store has zeros. */
int file_read(struct store *store, uint64_t address, void *buffer, size_t n);
int file_write(struct store *store, uint64_t address, const void *bytes, size_t n);

/* file.c: -EIO: others have cut the file short, and with it what was committed or written. */
int file_check_end(struct store *store);

/* file.c: makes what happened in the directory of the store durable. */
int directory_sync(const struct store *store);

/* image.c: the same of an image; writing does not fail within the store's end. */
void image_read(struct image *image, uint64_t address, void *buffer, size_t n);
void image_write(struct image *image, uint64_t address, const void *bytes, size_t n);

/* image.c: makes room up to end; -ENOMEM, -ENOSPC. The caller holds `change`. */
int image_reserve(struct store *store, uint64_t end);

/* image.c: puts all pages in their places. Cannot fail. */
void image_apply(struct store *store, uint64_t new_end);

/* image.c: whether the backing file is not as the image is, and making it so. */
bool image_is_unbacked(const struct store *store);
int image_write_back(struct store *store);

int image_destroy(struct store *store); /* as store_close */

/* snapshot.c: before pages are put in their places: what these have there is kept for whoever needs
 * it. The caller holds `change`. */
void snapshots_keep(struct store *store);

/* snapshot.c: what was freed since the last commit is free, or later when no snapshot needs it. */
void snapshots_free_pending(struct store *store);

/* create.c: gives a store that was created its name. */
int create_publish(struct store *store);

/* pages.c: the caller holds pages_lock, for writing where the table or a page changes. */
struct page *pages_find(struct store *store, uint64_t number);
int pages_get(struct store *store, const struct page *page, unsigned char *bytes);
void pages_clear(struct store *store);

/* Writes all pages to the file, as far as they lie before its end. */
int pages_apply(struct store *store, uint64_t end);

/* Adds a page with these bytes, or replaces it. -ENOSPC and what else write(2) says: memory is full
 * of pages, and the disk does not take this one; unless must, then it goes into memory. */
int pages_put(struct store *store, uint64_t number, const unsigned char *bytes, bool must);

/* pages.c: of pages and file together. Takes pages_lock. or_keep: what cannot be written to the
 * file becomes pages. */
int pages_read(struct store *store, uint64_t address, void *buffer, size_t n);
int pages_write(struct store *store, uint64_t address, const void *bytes, size_t n, bool or_keep);
bool pages_touch(struct store *store, uint64_t address, uint64_t n);

/* journal.c: writes a durable journal of all pages up to new_end, over the one that stands, whose
 * pages are durable by now; it stands from then on. The caller holds `change`. */
int journal_write(struct store *store, uint64_t new_end);
/* Whether this page is in the journal that stands, or a witness of it. */
bool journal_has(const struct store *store, uint64_t number);
/* The journal that stands has been carried out: who finds it on this machine before it is started
 * anew may know. */
void journal_mark(struct store *store);
/* Carries out the journal, if there is one, and ends it; the file is then file_end bytes long. */
int journal_carry_out(struct store *store, uint64_t file_end);
/* Ends it: there must be no journal, or need not. */
int journal_remove(struct store *store);
/* When opening: replays or discards what a crash has left, and says so. -EBUSY: the journal does
 * not belong to this file. */
int journal_recover(struct store *store);
/* Of a followed file: what stands there; and replays a complete journal in memory, an incomplete
 * one counts for nothing. -EBUSY: it does not belong to this file, or the file is being changed. */
int journal_look(const struct store *store, struct journal_state *state);
int journal_overlay(struct store *store);

#endif
