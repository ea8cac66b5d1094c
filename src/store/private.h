/* Shared by the files of src/store only. */
#ifndef SPARSEFS_STORE_PRIVATE_H
#define SPARSEFS_STORE_PRIVATE_H

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>

#include "common/hash.h"
#include "common/why.h"
#include "store/extents.h"
#include "store/store.h"

#define PAGE_BYTES      4096
#define PAGES_IN_MEMORY ((size_t)8192)    /* 32 MiB; more are put on the disk, where that can be */
#define COUNTER_BYTES   20                /* decimal digits of the counter beside a file */
#define WRITEBACK_BYTES ((size_t)8 << 20) /* after which writeback is started */
#define MOST_UNSYNCED   ((size_t)16384)   /* pages: 64 MiB; more are synced before a commit */
#define MOST_STANDING   1024 /* pages: a journal of more is ended as soon as it is carried out */
#define MAX_WITNESSES   16   /* unchanged pages by which a journal knows its file */

/* Bytes that stand in for those of the file: changes that are not committed or, in a store that is
 * only read, a journal's. */
struct page {
    uint64_t number; /* its address / PAGE_BYTES */
    UT_hash_handle hh;
    off_t spilled_at;      /* where in the file of spilled pages; -1: in memory */
    uint64_t sum;          /* of a spilled page: it is not synced, and may be lost */
    unsigned char bytes[]; /* PAGE_BYTES in memory */
};

/* The journal beside the file of a followed store. */
struct journal_state {
    bool exists;
    ino_t inode;
    off_t size;
    struct timespec changed;
};

/* Identifies one commit of a followed file (follow_commits.c). */
struct follow_state {
    char number[COUNTER_BYTES]; /* of the counter; all zeros: there is none, then: */
    struct timespec changed;    /* of the file */
    off_t size;
    struct journal_state journal;
};

/* A file, under whatever name: another one has another inode or, if that is used again, was made at
 * another time. */
struct identity {
    uint64_t inode;
    uint64_t born; /* nanoseconds since 1970; 0: the file system does not tell */
};

/* The journal of the last commit, while it stands: it was carried out, but the file is not synced
 * yet. After a crash of the machine it is replayed, onto pages that must be as they were before or
 * as it has them, and beside witnesses: neither are written to before the next journal has replaced
 * it. */
struct standing {
    bool stands;
    bool has_name; /* the journal's name is durable: */
    ino_t inode;   /* of this file, or of one that is to be removed; 0: there is none */
    uint64_t born; /* as struct identity has it: another file may have got the same inode */
    uint64_t sum;  /* of all of it */
    int marked;    /* its descriptor, if its mark says that nothing was written since: the mark is
                    * cleared before the next write; -1: it does not say so */
    size_t n;
    uint64_t pages[MOST_STANDING + MAX_WITNESSES]; /* numbers of them all, ascending */
};

/* Which files it may lead to (allowed_files.c). */
struct reach {
    const struct store *top; /* from which the first file was reached; NULL: this one */
    int files;               /* a folder that is allowed, too; -1: none */
    char *files_name;        /* as it was called; or NULL */
    struct store_reach allowed;
    struct stat opened; /* as store_stat_shown had it then, if others are shown what it leads to */
    unsigned depth;     /* number of files on the way here */
    atomic_uint withheld; /* permission bits that a copy may not have for some file reached from here */
};

/* A byte that is not in a page is in the file. What was allocated since the last commit (at or
 * behind committed_end, or in `fresh` of a file) is written there at once, unless it is in a page
 * already, or lies before committed_end in one of the journal that stands; other bytes only by a
 * commit. What the file has is what the kernel says and, over it, what was written since the last
 * sync (unsynced.c).
 *
 * free, pending, fresh are disjoint. Locks are taken in the order `change`, pages_lock,
 * unsynced_lock. */
struct store {
    int fd;
    char *path;           /* as given */
    int name_folder;      /* that path was in when it was opened; -1: none, as of what was found */
    char *name_folder_as; /* what that was called, absolute; NULL: unknown */
    const struct store_found *found; /* while opening: it, not the path, is used; or NULL */
    struct why *why;                 /* until store_opened: takes its errors; NULL: the log does */
    int folder;               /* that the file is in: all names in it are used relative to it */
    pthread_mutex_t raw_lock; /* guards what follows; nothing is locked under it */
    struct raw *raw;          /* files that are to be synced, the longest written first */
    unsigned n_raw;
    unsigned raw_syncing;      /* taken off the list, and being synced */
    pthread_cond_t raw_synced; /* none is any more */
    int raw_untold;            /* of a sync of them, of which no commit has told yet; 0: none */
    unsigned raw_losses;       /* of them that could not be synced; the error of the last one: */
    int raw_error;
    pthread_mutex_t folder_lock; /* folder_lock keeps the folder open, for users who do not hold
                                  * `change` */
    struct reach reach;
    char *place;       /* the file's name, without symbolic links */
    char *journal;     /* its name; NULL, as place, if the place cannot be told */
    char *counter;     /* the same of the counter */
    char *sought;      /* the journal, if it was left elsewhere; NULL: it is beside the file */
    int sought_folder; /* that it is in */
    char *said;        /* last message about a file beside it; NULL: none */
    char *temporary;   /* the name until the first commit; NULL: it stands at its place */
    bool is_noted;     /* the file has the note of this place, or can have none */
    bool keeps_note;   /* its journal may be where it was written, which this user may not read */
    bool is_lost;      /* it was not found at any known place the last time */
    bool unnamed;      /* its name at its place is not durable yet */
    bool replace;      /* whether the first commit may replace a file */
    const struct stat *replaced; /* only a file with these attributes, which are the caller's; NULL:
                                  * any */
    mode_t mode;                 /* of a new file, less the umask */
    bool writable;
    atomic_bool is_shared; /* opened for writing, but not writing yet */
    atomic_uint writings;  /* store_begin_writing */
    atomic_int lock;       /* of flock(2); 0: none */
    /* Of a shared file: */
    struct follow_state seen;   /* as it was when it was shared; there is no counter */
    atomic_bool lost_lock;      /* it may have been changed by others since */
    _Atomic uint64_t refused;   /* log_is_due */
    struct image *image;        /* in place of a file: fd is -1; NULL: there is a file */
    struct store_reader reader; /* its read NULL: there is none */
    uint64_t counted;           /* the last number of this writer's counter; 0: it has none */
    uint64_t deaf_until;        /* monotonic nanoseconds: followers are not waited for */
    /* Of a followed file; changed by store_refresh only, while no call reads: */
    bool is_following, is_live, is_gone, has_state;
    struct store_mark live_mark; /* while is_live */
    uint64_t wanted_end;         /* store_set_end */
    struct follow_state state;
    unsigned n_found;           /* store_states_found */
    uint64_t found_at;          /* when that was found first: monotonic nanoseconds, */
    unsigned doubts;            /* and how often it was taken again since as it was in doubt */
    bool counter_is_refused;    /* by who follows, which was said */
    atomic_bool is_interrupted; /* waits for the writer are to end */
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
    atomic_uint_fast64_t failed_reads; /* which are errors of the disk */
    atomic_uint_fast64_t commits;

    pthread_rwlock_t pages_lock; /* guards the table and the bytes of its pages */
    struct page *pages;          /* by number */
    atomic_size_t n_pages;       /* 0: nobody has to take the lock for reading */
    int spill;                   /* a file without a name, for pages; -1: none yet */
    size_t n_spilled;

    pthread_rwlock_t unsynced_lock; /* guards the table and the bytes of its pages; a thread that
                                     * changes them holds `change`, too, or is the only user */
    struct unsynced *unsynced;      /* by number */
    atomic_size_t n_unsynced;       /* 0: nobody has to take the lock for reading */

    pthread_mutex_t change; /* guards what follows; held while bytes, space or end are changed */
    atomic_uint_fast64_t committed_end; /* also read without the lock */
    uint64_t file_end;                  /* the expected size of the file, unless others have cut it
                                         */
    bool is_cut;                        /* others have: logged once */
    struct extents free;                /* may be allocated */
    bool knows_free;                    /* free space noted by earlier writers was added */
    struct extents pending;             /* freed since the last commit, which still needs them */
    struct extents fresh;               /* allocated since the last commit, before committed_end */
    bool tells_own;                     /* store_tell_own */
    struct extents own;                 /* allocated since by store_allocate or claimed, in use */
    int (*claim)(void *context);        /* store_set_claimer */
    void *claimer;
    struct store_snapshot *snapshots; /* the newest first; each has space that is in no other set */
    size_t n_kept;                    /* pages, by all of them */
    struct standing standing;
    uint64_t landmark;            /* an address that every change of the file writes to */
    bool written;                 /* something since the last commit */
    bool write_again;             /* the last sync has failed: unsynced pages are written again */
    uint64_t n_writes;            /* to the file */
    uint64_t checks;              /* invariants.c */
    size_t unstarted;             /* bytes written since writeback was started last */
    struct unsynced *spare_pages; /* for the next ones */
    bool unapplied;               /* a complete journal is still to be carried out */
    bool stray;                   /* a journal that must be removed may exist: nothing may be
                                   * changed */
};

/* external_raw_unsynced.c: what was written of external raw data is durable, or an error of fsync(2) since the last
 * call is told, once; and forgetting of it. */
int unsynced_raw_sync(struct store *store);

/* Whether a file was written since the last commit began. */
bool unsynced_raw_has(struct store *store, const struct stat *st);
void unsynced_raw_forget(struct store *store);

/* open.c, lock.c: a store without a file, NULL: no memory; and the lock on its file, by the rules that
 * store_open names. */
struct store *file_new(const char *path, bool writable);
int file_lock(struct store *store);
bool file_may_lock(void);

/* lock.c: the same without a message; file_refuse writes one that names the holder. */
int file_take_lock(struct store *store, int operation);
void file_refuse(const struct store *store, int operation);

/* open.c: the counter of a writer who begins; the log says what there cannot be. */
int file_begin_counter(struct store *store);

/* shared_until_written.c: what the file and its journal are like now. */
int share_look(const struct store *store, struct follow_state *state);

/* lock.c: flock(2) without waiting. */
int file_try_lock(int fd, int operation);

/* open.c: opens the file and takes its lock, unless it is followed; finds its place. own_links: as struct store_opening
 * has it. */
int file_open(struct store *store, bool own_links);

/* follow_commits.c: store_open_as of what is followed. */
int follow_open(const char *path, const struct store_opening *how, struct store **store);

/* file_place.c: false: the system does not say. */
bool identity_of(int fd, struct identity *identity);
bool identity_is_same(const struct identity *a, const struct identity *b);

/* file_place.c: the name of a path in its folder. */
const char *place_entry(const char *path);

/* file_place.c: keeps the folder of the store's name. -ENOMEM, -EMFILE, -ENFILE; other errors: it has none. */
int place_keep_name(struct store *store);
void place_forget_name(struct store *store);

/* allowed_files.c: the store's folder as a descriptor; -1: it has none. Errors of fcntl(2). */
int place_dup_folder(const struct store *store, int *fd);

/* allowed_files.c: of store_close. */
void store_close_reach(struct store *store);

/* Finds the place of the file that is open. One that is only read may have none. -EBUSY: another file has the name by
 * now; errors of open(2) of the folder. place_find_again: of a followed file, by what its name leads to now. */
int place_find(struct store *store);
int place_find_again(struct store *store);

/* Opens the file anew for reading, by its name: a descriptor, or -errno; -ESTALE: the name leads to another one. */
int place_open_file(const struct store *store);

/* The folder of a path, which is absolute and without symbolic links, for looking up names and, if the store is
 * writable, for syncing. Once the file is open no mounts are entered but those on the way to it: whoever chooses the
 * path must not have the daemon wait for a file system that does not answer. A descriptor, or -errno; -EXDEV. */
int place_open_folder(const struct store *store, const char *path);

/* The same for a known path, absolute and without symbolic links; it is taken over. */
int place_take(struct store *store, char *path);
void place_close(struct store *store);

/* The path of an open file or folder by /proc, to be freed; NULL: unknown. */
char *place_of_descriptor(int fd);

/* Whether an error of opening a place says that the file has nothing there, or nothing for this user; others may pass,
 * and say nothing. */
bool place_is_known(int error);

/* Whether this name in the folder leads to the file: 1 or 0; errors of statx(2) that do not say it. */
int place_leads(const struct store *store, const char *path);

/* Before a commit: the file's place, and what stands beside it, go with a file that was moved.
 * -ESTALE: it was removed, or replaced by another. The caller holds `change`. */
int place_follow(struct store *store);

/* The note at the file of where it is written. place_note: whether it is new, and is to be synced.
 * place_noted: if it is not this place, to be freed; NULL: it is, or there is none. Errors of fgetxattr(2). */
bool place_note(struct store *store);
void place_forget_note(struct store *store);
int place_noted(const struct store *store, char **path);

/* ---- path_walk.c ---- */

#define MOST_FOLDERS 32

struct folder {
    int fd;
    char *path;     /* where it is now; NULL: what is below it is not allowed */
    const char *as; /* another name, by which it was opened; or NULL */
};

struct folders {
    struct folder folder[MOST_FOLDERS];
    size_t n;
    const struct folder *vouched; /* the one that the user has asked for; or NULL */
    int error;                    /* why not all of them could be told; or 0 */
};

/* audience.c: which users other than the opener have to do with a file. */
struct audience {
    bool has_others, has_group;
    gid_t group;
    bool has_owner; /* its owner, who does not own what it leads to */
    uid_t owner;
};

/* Those of a file in the state `own` who have one of these permissions (S_IROTH, S_IWOTH; of its owner, or its group,
 * the same of theirs), or are shown it with one, as to a file of that owner. */
struct audience audience_of(const struct store *store, const struct stat *own, uid_t owner,
                            mode_t permissions);

/* The states by which others see the store's file: as it was opened, which kernel and open files go by, and as it is,
 * if that differs. Returns how many; 0: unknown. */
size_t audience_states(const struct store *store, struct stat own[2]);

/* Whether all of them have a permission: S_IRGRP and S_IROTH, or others'. */
bool audience_may(const struct audience *audience, const struct stat *st, mode_t group,
                  mode_t others);

/* By all states. */
struct audiences {
    struct audience of[2];
    size_t n; /* 0: nobody looks on */
};

/* Whether all of them may search a directory, which is only named by its descriptor: 0; -EPERM, unless it is the folder
 * that was asked for and the opener's; errors of statx(2). */
int audience_search(const struct audiences *audiences, const struct folders *folders, int fd);

/* Whether all of them could find a file by its path, from the root on: 0, or -EPERM. The folder that was asked for, if
 * the file is in it, and those above it are open to them if they are the opener's. Errors of open(2) that say nothing
 * of the way. */
int audience_find(const struct audience *audience, const struct folders *folders, const char *path,
                  const struct stat *file);

/* The same from a folder on, which they can search. */
int audience_find_below(const struct audience *audience, const struct folder *folder,
                        const char *path, const struct stat *file);

/* The permission bits that a copy of a file may have in a group: those of the file, without what it, or a folder above
 * it as for audience_find, keeps from some of that group, or of others. */
mode_t audience_of_copy(gid_t group, const struct folders *folders, const char *path,
                        const struct stat *file);

/* The path from the root on, to be freed; NULL: errno is that of getcwd(3) or malloc(3). */
char *path_absolute(const char *path);

bool path_is_below(const char *folder, const char *path);

/* The deepest of the folders that a path is below; NULL: there is none. */
const struct folder *path_folder(const struct folders *folders, const char *path);

struct walk {
    const struct folders *folders;
    const struct audiences *audiences; /* who must be able to search all folders; NULL */
    bool is_straight;                  /* symbolic links are -ELOOP */
    bool trusts_users;                 /* FUSEs that may not answer are entered (common/mounts.h) */
    bool ends;                         /* with -EINTR (interrupt.h), if that is wanted */
    int at;                            /* the current directory, and its device: */
    uint32_t major, minor;
    char *name, *left; /* the rest of the path, in memory to be freed */
    unsigned symlinks, steps;
};

/* Walks a name from a folder, or from the root if it is absolute; from one of the folders, if it begins with one of
 * their names. Descriptors only say what they are; a mount is entered only below the folders, unless it is one of
 * sparsefs (-EDEADLK) or may not answer, and on the way to one: all others are -EXDEV. In a directory that the
 * audience may not search nothing is looked for (-EPERM). After an error walk->at is the last directory that was
 * reached, or -1; the caller closes it. Errors of openat(2), -ENOMEM. */
int path_walk(struct walk *walk, int from, const char *name);

/* free_space_note.c: reads the note of free space into `free`, if it is of the present state of the file, and
 * removes it. And writes the note, for a file that is complete and synced. For writers, under their
 * lock; the caller holds `change`, or is the only user. */
void free_space_take(struct store *store);
/* The same without removing it, of a file that is not written yet. -ENOMEM. */
int free_space_noted(struct store *store, struct extents *space);
void free_space_note(struct store *store);

/* free_space_note.c: of a file that an image was read from, or written to: the image gets what the
 * note says, which stays; and the file, which is complete and is closed next, what is free in the
 * image, to note it. The caller holds `change` of the image, or is its only user. */
void free_space_load(struct store *file, struct store *image);
void free_space_hand_on(const struct store *image, struct store *file);

/* follow_commits.c: whether what was read is of the state that was found last: else STORE_MOVED; -ESTALE:
 * another file has its place. And n bytes of a followed file. Here and in what follows `why` takes
 * that they cannot be read, as that of store_read_why. */
int follow_check(const struct store *store);
int follow_read(struct store *store, uint64_t address, void *buffer, size_t n, struct why *why);

/* follow_commits.c: drops cached pages, so that the next read of the descriptor sees what others have
 * written. */
void follow_drop_cached(const struct store *store, int fd);

/* commit_counter.c: its number, all zeros if there is none; -EPERM: nor is it to be trusted (neighbour_trust), which
 * counter_check says, too. And another number, before committed bytes are
 * changed; and its end. */
int counter_read(const struct store *store, char number[COUNTER_BYTES]);
int counter_check(struct store *store);
int counter_advance(struct store *store);
void counter_remove(struct store *store);

/* commit_counter.c: of a followed file: a descriptor that holds it until it is closed; -1: it cannot be.
 */
int counter_hold(const struct store *store);

/* commit.c: whether the store may be changed, with `change` held. A journal that could not be removed
 * might be replayed by the next program that opens the file after a crash: nothing may be changed before
 * it is gone. -EROFS; errors of journal_remove. */
int commit_check_writable(struct store *store);

/* commit.c: syncs what the journal that stands has changed, and ends it. The caller holds `change`,
 * or is the last one to use the store. */
int settle(struct store *store);

/* ---- trusted_neighbours.c ---- */

/* What the file with a path's last part is, as io_open_at finds it. Any thread. 0; errors of io_open_at. */
int neighbour_stat(int folder, const char *path, struct stat *st);

/* Whether a file that was found beside the store's may be trusted and written to: a regular file
 * with one name, of an owner who may write the store's file, and writable only for those who may.
 * -EPERM, which is logged; -errno. */
int neighbour_check(struct store *store, int fd, const char *path);

/* The same, without a word. *why: if it is -EPERM. Any thread. */
int neighbour_trust(const struct store *store, int fd, const char **why);

/* Whether root, for the owner of the store's file, may remove or replace a file beside it: it is his, or root's
 * own, or he owns the folder. Others may do what the kernel lets them. 0, also if there is none; -EPERM; errors of
 * neighbour_stat. And removes it then: errors of io_unlink_at. */
int neighbour_may_go(const struct store *store, const char *path);
int neighbour_remove(const struct store *store, const char *path);

/* Logs that a file "cannot be trusted", or the like, and why: once, until that changes or
 * neighbour_forget is called. By the thread that changes the store, as all of these. */
void neighbour_say(struct store *store, const char *path, const char *is_what, const char *why);
void neighbour_forget(struct store *store);

/* Why it could not be opened, as openat says without following symbolic links. */
const char *neighbour_reason(int error);

/* Opens it for writing only; or_new: or makes it, with the owner and group of the store's file as
 * far as that is possible. Nobody may do more with it than with the file. Nothing is changed of one
 * that neighbour_check refuses. A descriptor, -EPERM or another -errno. */
int neighbour_open(struct store *store, const char *path, bool or_new);

/* ---- new_file_rights.c ---- */

/* Gives a new file, which so far only its owner may open, a group and a mode, and takes the ACL away
 * that its folder has given it. If the user may not give it to the group, that has no more
 * permissions than others. Errors of fchmod(2), fremovexattr(2). */
int rights_give(int fd, gid_t group, mode_t mode);

/* commit.c: the same as counter_advance; the log says why it cannot. */
int tell_followers(struct store *store);

/* A file that cannot grow concerns all that is in it: -ENOSPC, as -EFBIG is an error of one dataset. */
static inline int file_error(int error)
{
    return error == -EFBIG ? -ENOSPC : error;
}

/* bytes.c: n bytes of the file; behind its end a writable store has zeros. The caller of what
 * changes it holds `change`, or is the only one to use the store. */
int file_read(struct store *store, uint64_t address, void *buffer, size_t n, struct why *why);

/* bytes.c: after an error the bytes are old or new. or_keep: bytes that the file does not take are
 * written by the next sync, and only -ENOMEM and errors of reading the rest of a page are returned.
 */
int file_write(struct store *store, uint64_t address, const void *bytes, size_t n, bool or_keep);

/* bytes.c: sets the end of the file. */
int file_set_end(struct store *store, uint64_t end);

/* bytes.c: makes everything that was written to the file durable, all: its attributes, too. After an
 * error the kernel's pages are not relied on: the next call writes them again. */
int file_sync(struct store *store, bool all);

/* bytes.c: what the kernel has of the file, of n bytes, or as many as there are; and gives it some: it took `done`. */
int file_read_at(struct store *store, uint64_t address, void *buffer, size_t n, size_t *done);
int file_get(struct store *store, uint64_t address, void *buffer, size_t n, struct why *why);
int file_put(struct store *store, uint64_t address, const void *bytes, size_t n, size_t *done);

/* unsynced.c: n bytes are about to be written; -ENOMEM, or what else is in a page of them cannot be
 * read. And the kernel did not take those in [address, end): pages that are there by this alone go;
 * whether others have some of them. */
int unsynced_note(struct store *store, uint64_t address, const char *bytes, size_t n);
bool unsynced_revoke(struct store *store, uint64_t address, uint64_t end);

/* unsynced.c: n bytes of the file, and whether some are unsynced. */
int unsynced_read(struct store *store, uint64_t address, char *buffer, size_t n, struct why *why);
bool unsynced_touch(struct store *store, uint64_t address, uint64_t n);

/* unsynced.c: writes all unsynced pages that begin before end to the kernel once more; they are
 * synced; the file ends there. */
int unsynced_write_again(struct store *store, uint64_t end);
void unsynced_clear(struct store *store, uint64_t end);
void unsynced_cut(struct store *store, uint64_t end);

/* unsynced.c: frees memory that is kept for later writes. */
void unsynced_trim(struct store *store);

/* commit.c: the end of the file if free space at its end is left out. What a snapshot needs is not.
 */
uint64_t end_in_use(const struct store *store);

/* bytes.c: -EIO: others have cut the file short, and with it what was committed or written. */
int file_check_end(struct store *store);

/* bytes.c: syncs the directory of the store. */
int directory_sync(const struct store *store);

/* image.c: the same of an image; writing does not fail within the store's end. */
void image_read(struct image *image, uint64_t address, void *buffer, size_t n);
void image_write(struct image *image, uint64_t address, const void *bytes, size_t n);

/* image.c: makes room up to end; -ENOMEM, -ENOSPC. The caller holds `change`. */
int image_reserve(struct store *store, uint64_t end);

/* image.c: whether its buffer is never moved or made larger; false: it may be, or there is none. */
bool image_is_fixed(const struct store *store);

/* image.c: copies all pages to their places. Cannot fail. */
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

/* snapshot.c: whether any byte of [address, end) was freed, and is held back. */
bool snapshots_hold(const struct store *store, uint64_t address, uint64_t end);

/* replace_file.c: whether the place of a new store may be taken: -EEXIST: it has a file and is not to be replaced;
 * -EBUSY: a writer has it locked, or it was changed (create_in_place_of). *held: the file that is there, locked
 * shared until the caller closes it, or -1, also after errors. */
int publish_check(struct store *store, int *held);

/* replace_file.c: gives a store that was created its name, by one rename; with an error the temporary name stays, which
 * is logged. -ESTALE: that name is another file's; errors of publish_check and rename(2). */
int publish(struct store *store);

/* create.c: as store_create, for the place of a file of which this is known: -EBUSY, now or at the
 * first commit, if it was changed since. *replaced stays the caller's until then. */
int create_in_place_of(const char *path, const struct stat *replaced, struct store **store);

/* changed_pages.c: the caller holds pages_lock, for writing where the table or a page changes. */
struct page *pages_find(struct store *store, uint64_t number);
int pages_get(struct store *store, const struct page *page, unsigned char *bytes);
void pages_clear(struct store *store);

/* Writes all pages to the file, as far as they lie before its end. */
int pages_apply(struct store *store, uint64_t end);

/* Adds or replaces a page. -ENOMEM; -ENOSPC and other errors of write(2): the limit of pages in memory is
 * reached, and the disk does not take this one; must: it goes into memory then. */
int pages_put(struct store *store, uint64_t number, const unsigned char *bytes, bool must);

/* The same for a store that is only read, of a page that stands at this place of a journal: if there are many,
 * and nobody can write the journal, they are read from there. -ENOMEM also: more memory than a quarter of the
 * machine's, or 1 GiB, which is said; errors of fcntl(2). */
int pages_keep(struct store *store, uint64_t number, const unsigned char *bytes, int journal,
               off_t at);

/* changed_pages.c: of pages and file together. Takes pages_lock. or_keep: what cannot be written to the
 * file becomes pages, and all pages that this needs are there before one changes. */
int pages_read(struct store *store, uint64_t address, void *buffer, size_t n, struct why *why);
int pages_write(struct store *store, uint64_t address, const void *bytes, size_t n, bool or_keep);
bool pages_touch(struct store *store, uint64_t address, uint64_t n);

/* changed_pages.c: makes the pages that writing there needs, so that, of an image, it cannot fail; no byte
 * changes. The caller holds `change`. must: as for pages_put; those on the disk can be read. */
int pages_prepare(struct store *store, uint64_t address, size_t n, bool must);

/* journal.c: writes a durable journal of all pages up to new_end, over the one that stands, whose
 * pages are durable by now; it stands from then on. The caller holds `change`. */
int journal_write(struct store *store, uint64_t new_end);

/* journal.c: whether this page is in the journal that stands, or a witness of it. */
bool journal_has(const struct store *store, uint64_t number);

/* journal.c: removes it: there must be no journal, or need not be. */
int journal_remove(struct store *store);

/* journal_mark.c: the journal that stands has been carried out: who finds it on this machine before
 * it is started anew may know. Something else is about to be written to the file. And the journal,
 * or the store, ends. */
void journal_mark(struct store *store);
int journal_mark_passed(struct store *store);
void journal_forget_mark(struct store *store);

/* journal_read.c: a checksum of a page. */
uint64_t page_sum(const unsigned char *bytes);

/* journal_place.c: whether this name is that of the journal that stands: another file may have one
 * of the same. 1 or 0; errors of neighbour_stat that do not say it. */
int journal_is_at(const struct store *store, int folder, const char *path);

/* journal_place.c: lets the journal of another file stand aside, so that this one has the name. */
int journal_clear_way(struct store *store);

/* journal_place.c: before it is read: the journal is the one beside the file or, if there is none
 * of this file, one that was left where the file was before; and it is the one beside the file
 * again. An error, which is logged: it is not known which. */
int journal_choose(struct store *store);
void journal_come_back(struct store *store);

/* journal_recover.c: carries out the journal, if there is one, and ends it; the file is then
 * file_end bytes long. */
int journal_carry_out(struct store *store, uint64_t file_end);

/* journal_recover.c: when opening: replays or discards what a crash has left, and says so; a
 * journal of another file that was moved away is set aside. -EBUSY: the journal does not belong to
 * what this file is now. */
int journal_recover(struct store *store);

/* invariants.c: ends the process if an invariant does not hold, in builds that check that: now, or now
 * and then; and after a commit. The caller holds `change`. */
void store_check(struct store *store, bool now);
void store_check_committed(struct store *store);

/* journal_recover.c: of a followed file: what stands there; and replays a complete journal in
 * memory. An incomplete one is ignored. -EBUSY: it does not belong to this file, or the
 * file is being changed. */
int journal_look(const struct store *store, struct journal_state *state);
int journal_overlay(struct store *store);

#endif
