/* The store: bytes at addresses of one file, under everything. It knows no structure of HDF5: callers say
 * where a file ought to end (store_set_end), and whether its writer is in SWMR mode
 * (store_set_live), in which there are no commits.
 * Every function may be called from any thread. Reading never waits for a commit; calls that change
 * a store wait for each other. */
#ifndef SPARSEFS_STORE_STORE_H
#define SPARSEFS_STORE_STORE_H

#include <errno.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/uio.h>

#include "sparsefs/sparsefs.h"

struct store;
struct sfs_image_callbacks;
struct store_found;
struct why;

/* Opens path for reading and takes a shared lock, by the rules of libhdf5 for the environment
 * variable HDF5_USE_FILE_LOCKING: FALSE or 0, no lock; BEST_EFFORT or unset, file systems that have
 * no locks are no error; else they are. Errors are those of open(2); -EBUSY: locked by a writer;
 * -EINVAL: not a regular file. A complete journal that a crash has left (PATH.journal, or where the
 * file was before it was moved) is replayed in memory, the file stays as it is; -EBUSY also: the
 * journal does not fit the file. */
int store_open(const char *path, struct store **store);

/* Opens path for reading and writing, under an exclusive lock by the same rules; -EBUSY also:
 * another program reads it; -EACCES, -EPERM, -EROFS also: no journal can be made beside it. A
 * journal that a crash has left is replayed or discarded first. */
int store_open_writable(const char *path, struct store **store);

/* Opens path in this way; errors are those of the functions named. */
struct store_opening {
    const struct store_found *found; /* it is opened, whatever has its name by now; or NULL */
    bool follows;                    /* as store_open_following */
    bool writable;                   /* as store_open_writable */

    /* With writable: under a shared lock: nothing is written, in the file or beside it, before
     * store_begin_writing, and nothing may be committed. -EACCES: no files can be made in its
     * directory. A journal that a crash has left is replayed or discarded under an exclusive lock.
     * Of what was found: its path is absolute and leads to it without symbolic links, or it is
     * -EBUSY, as its journal would be made elsewhere. */
    bool is_shared;

    /* Not with found: -EPERM: a symbolic link of a user who is neither root, nor this one, nor the owner
     * of the file leads to it; -ESTALE: the path leads to another file by now. Nothing is changed then. */
    bool own_links;

    /* Takes what would be logged as errors, of which the last one counts, as long as only the one
     * who opens it knows the store: until store_opened or store_close. NULL: it is logged. */
    struct why *why;
};
int store_open_as(const char *path, const struct store_opening *how, struct store **store);

/* Where errors of whoever opens something over the store are said (why_say), until it is opened. */
struct why *store_why(const struct store *store);
void store_opened(struct store *store);

/* Says an error of the file in one line without a newline: to `why`, a phrase that does not name the
 * file; NULL: to store_why, or the log, behind the file's path. */
void store_say(const struct store *store, struct why *why, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

bool store_is_shared(const struct store *store); /* it has not begun, or it has ended writing */

/* Of a shared store: whether the file has the size and time that it had when it was shared. Needs
 * no lock. */
bool store_is_as_shared(const struct store *store);

/* Whether all that the store has is what its file has now, as far as size and times tell: it is
 * shared, or only read, and as it was when that began. Not of one that is followed, or an image. */
bool store_is_as_in_file(const struct store *store);

/* Of a store that is shared: takes the exclusive lock, and looks whether the file is still the one
 * that was opened. -EBUSY: another program has it open, or has changed it since; -ESTALE: it was
 * removed or replaced by another; the log says so, but not again and again. Errors of
 * store_open_writable. After an error nothing is changed, and it is shared as before, but for a lock
 * that another program has taken (store_share). */
int store_begin_writing(struct store *store);

/* How often that has begun: what was read of a shared store before may be wrong then. */
unsigned store_writings(const struct store *store);

/* What is committed is settled, and the lock is shared again; no call may be changing the store, and
 * nothing may be left to commit. store_share: shares a lock that was lost since, because another
 * program took it in between; -EBUSY: it still has it. Until then, and for good if that program has
 * changed the file, what is not in memory cannot be read: -ESTALE. */
int store_end_writing(struct store *store);
int store_share(struct store *store);

/* -EIO, which the log says once: another program has cut the file short. */
int store_check_end(struct store *store);

/* The lock that keeps other programs from the file. */
enum sfs_lock store_lock(const struct store *store);

/* Opens path for reading, without a lock, beside a program that may have it open for writing. What
 * is read is of one commit: the last one when store_refresh was called last. Reading it fails with
 * STORE_MOVED when that commit is no longer whole: the caller refreshes, gives up what it has
 * learned from the old one, and begins again. */
#define STORE_MOVED (-ERESTART)
int store_open_following(const char *path, struct store **store);
bool store_is_following(const struct store *store);

/* Of a followed file: the end that it ought to have, as its superblock says; what lies before it
 * and is not there, because the file was truncated, cannot be read. The log says so once.
 */
void store_set_end(struct store *store, uint64_t end);
uint64_t store_end_wanted(const struct store *store); /* of any file; no less than store_size */

/* Takes the last commit for what is read from now on; no call may be reading. *moved: it may be
 * another one than before, which it is said to be, too, some times in the seconds after a change where only
 * the file's time of change tells. -ESTALE: the file is no longer at its path; -EBUSY: its writer commits
 * without a pause, or its journal belongs to another file. */
int store_refresh(struct store *store, bool *moved);

/* How many states that has found: only those that differ from the one before. 0: the file is not followed. */
unsigned store_states_found(const struct store *store);

/* Between these two calls the writer, if it is a sparsefs, delays its next commit by at most 50 ms:
 * for a follower that is outrun by frequent commits. They nest. */
#define STORE_FREE_TRIES 4 /* number of tries after which to call it */
void store_hold(struct store *store);
void store_release(struct store *store);

/* From now on waits for the writer end with -EINTR, those of a running store_refresh included. Any
 * thread. */
void store_interrupt(struct store *store);
bool store_is_interrupted(const struct store *store);

/* Invalidates the state: everything is STORE_MOVED until the next store_refresh. */
void store_outdate(struct store *store);

/* A byte of a file, some bits of which are set as long as something is so. */
struct store_mark {
    uint64_t address;
    unsigned char bits;
};

/* Of a followed file: its writer is a foreign one in SWMR mode. There are no commits: the current
 * bytes are read, up to the current end of the file, as long as it has the mark; without it,
 * they are STORE_MOVED, and store_refresh finds it live no more. NULL: it is not live. */
void store_set_live(struct store *store, const struct store_mark *mark);

/* Of a followed file: whether another program than sparsefs on this host holds a writer's lock, by
 * /proc/locks; trying the lock could disturb others. */
bool store_is_held_by_stranger(const struct store *store);
bool store_is_live(const struct store *store);

/* What opening for writing did with a journal. */
enum store_recovered {
    STORE_SOUND,
    STORE_REPLAYED,
    STORE_DISCARDED,  /* it was not complete */
    STORE_CARRIED_OUT /* it had been carried out, and the file was changed since */
};
enum store_recovered store_recovered(const struct store *store);

/* A new, empty store. Its file has a temporary name beside path (.NAME.XXXXXX.sparsefs) until the
 * first commit gives it its own, and vanishes if the store is closed before; those that programs
 * have left which died are removed now. replace: whether that commit
 * may replace a file at path; else -EEXIST, now or then. -EBUSY: the one to be replaced is being
 * written. Its permission bits are those of the file that it replaces, or 0666. */
int store_create(const char *path, bool replace, struct store **store);

struct store_creation {
    bool replace;
    /* Permission bits, less the umask; 0: as store_create. */
    mode_t mode;
    /* A file with whose group it has them exactly, or NULL. What cannot be given that group has no more permissions
     * for its group than for others. */
    const struct stat *like;
    bool
        own_links; /* -EPERM: a symbolic link of a user who is neither root, nor this one, nor the owner of the
                     * folder leads there; -ESTALE: the path leads to another folder by now */
};
int store_create_as(const char *path, const struct store_creation *how, struct store **store);

/* How a file that lives in memory is held. */
struct store_image {
    const char *name; /* in messages */
    bool writable;
    bool copy; /* with the malloc and memcpy of the callbacks; else the bytes are used themselves */
    bool fixed; /* it is never moved or made larger: -ENOSPC instead */
    const struct sfs_image_callbacks *callbacks; /* NULL: those of the C library */
    uint64_t increment;                          /* bytes by which it grows; 0: a fair share */
    const char *backing;   /* each commit that changes something writes all of it to this file */
    bool replace;          /* even the first time, if there is one */
    struct store *from;    /* or the first time that of this one, from which the bytes come */
    mode_t mode;           /* permission bits of a new one, less the umask; 0: 0666 */
    bool own_links;        /* of its path, as struct store_creation has it */
    const struct stat *st; /* what store_stat says, and what a new backing file with a mode is like;
                            * NULL: something sensible */
};

/* A store in memory, of the n bytes that are given, or (NULL) a new one. Its commits need no disk:
 * committed bytes change when the next commit is whole. Bytes that are not copied stay the caller's
 * until store_take_image. -ENOMEM; -EIO: a callback failed; -EINVAL: user data without the callbacks that copy and
 * free them; -EEXIST: the backing file is there; -ENOENT: `from` has no name that leads to it; errors of fcntl(2). */
int store_open_image(void *bytes, size_t n, const struct store_image *how, struct store **store);

/* A file that the caller reads for the store, and what is known of it. */
struct store_reader {
    uint64_t size;          /* bytes */
    uint64_t device, inode; /* which file it is */
    bool follows, is_live;  /* as the store that it stands for, whose errors reading has */
    void *context;
    int (*read)(void *context, uint64_t address, void *buffer, size_t n); /* within the size */
    void (*close)(void *context);
    uint64_t (*end)(void *context); /* where a live one ends now */
    /* Of one that is written, else NULL; as the calls of the store. allocate makes the size what it
     * is then. */
    int (*write)(void *context, uint64_t address, const void *bytes, size_t n);
    int (*allocate)(void *context, uint64_t n, uint64_t *address, uint64_t *size);
    int (*release)(void *context, uint64_t address, uint64_t n);
    uint64_t (*end_in_use)(void *context);
};

/* A store over it, which has no journal, lock or place, and cannot be committed. -ENOMEM: then it
 * is not closed. */
int store_open_reader(const char *name, const struct store_reader *reader, struct store **store);

/* The reader's properties have changed, but not its functions. */
void store_renew_reader(struct store *store, const struct store_reader *reader);
void store_resize_reader(struct store *store, uint64_t size);
bool store_has_reader(const struct store *store);

/* From now on store_close frees the bytes of the image. */
void store_take_image(struct store *store);

/* Removes files beside that of a store, with temporary names of it, that are not locked, if locks are in use; how
 * many. */
unsigned store_remove_temporaries(const struct store *store);

/* Closes it and forgets everything since the last commit. 0, or -EIO: a callback could not free the
 * image; it is closed all the same. */
int store_close(struct store *store);

bool store_is_writable(const struct store *store);

const char *store_path(const struct store *store);

/* The folder that the file is in now, as a descriptor that the caller closes; -1: there is none, or
 * it could not be opened. */
int store_folder(const struct store *store);

/* ---- Files that a file leads to ----
 *
 * External raw data, sources of virtual datasets and external links of HDF5 name files. They are
 * looked for by an absolute name, then (but for raw data) by the last part of that: in the folders
 * that HDF5_VDS_PREFIX or HDF5_EXTFILE_PREFIX names, and beside the file. Whatever way leads there,
 * what is found is a regular file in one of these folders, in that of the file where all began, in
 * one that is allowed besides, or below these; and on no mount of sparsefs, nor, but for STORE_ANY_LINK, of a user
 * who is neither root nor this one with FUSE, unless one of these folders is on it. All these are the folders that were
 * opened with the file. A way that leads through another mount, which is not one to these folders, is not followed:
 * what is there is not known then, and other ways are tried first. */

/* Who names it. */
enum store_lead {
    STORE_LINK,
    STORE_ANY_LINK, /* allowed to lead anywhere */
    STORE_SOURCE,
    STORE_RAW,
    STORE_RAW_STATE, /* the same, of which nothing is read: a copy may have any mode */
    STORE_AS_IT_IS,  /* a source by the path that libhdf5 has made of it, and no other */
};

/* What is allowed. */
struct store_reach {
    const char *files; /* in this folder and below they are allowed, too; NULL: none */
    /* What is read is shown to other users than the one that the process runs as: to those whom the
     * mode of its file lets read, and those of `shown` (S_IRGRP, S_IROTH). Files of another owner are refused then,
     * unless they are in `files` and everybody may read them; and those that fewer may read, or find. To be written
     * they must be writable for all who may write the file by its mode or `shown` (S_IWUSR, S_IWGRP,
     * S_IWOTH). S_ISUID and S_ISGID in `shown`: the owner, or the group, who do so may be anybody. */
    bool for_others;
    mode_t shown;
    bool is_of_root; /* files that others than root may write are refused, but for raw data */
};

/* Errors of open(2) of `files`, which stays the folder that it is now. */
int store_set_reach(struct store *store, const struct store_reach *reach);

/* The same as for another store, which outlives this one and has led to it. is_free: but the folder
 * of this one counts. -ENOMEM. */
int store_share_reach(struct store *store, const struct store *from, bool is_free);

/* A file that was found. */
struct store_found {
    int fd; /* says only what file it is */
    char *path;
    struct stat st; /* the mode as store_stat_shown has it */
    bool is_roots;  /* only root may write it */
};

/* -ENOENT: there is none; -EINVAL: it is no regular file; others of open(2) and fcntl(2), which say nothing of the file
 * (-EMFILE); -ENOMEM; and refusals:
 * -EXDEV: it leads elsewhere, -EDEADLK: into a mount of sparsefs, -EPERM: it would show too much,
 * -EKEYREJECTED: others than root may write it, -ELOOP: by too many files or symbolic links; -EINTR (interrupt.h).
 * *found only if 0 is returned: then the caller calls store_found_free. It does not wait for a fifo, nor for a commit.
 */
int store_find(const struct store *store, enum store_lead lead, const char *name,
               struct store_found *found);
void store_found_free(struct store_found *found);

/* A descriptor for reading, or (O_RDWR) also for writing, or -errno. */
int store_found_open(const struct store_found *found, int access);

/* A descriptor for reading and writing external raw data in place, which the caller closes or gives
 * to store_raw_written. Besides the rules of store_find: the file has one name and the owner of the
 * HDF5 file, if that is not root; those who may write that may write it, and find it from that one's folder on; it is
 * no HDF5 file, also not one with a user block, and not the journal or counter of this one, which is not in memory.
 * Errors of store_find, open(2) and pread(2); -EPERM. *why says which rule it breaks, or NULL. Waits for a commit. */
int store_open_raw(const struct store *store, const char *name, int *fd, const char **why);

/* Something was written to a file of external raw data, by this descriptor, which is taken over: the
 * next commit makes it durable, or tells why not: with many such files the one that was written longest ago is
 * synced at once. -ENOMEM, errors of fstat(2): this one is synced and closed. */
int store_raw_written(struct store *store, int fd);

/* How often such a file could not be synced, which one commit each has told, too; *error: of the last time, or 0. */
unsigned store_raw_losses(struct store *store, int *error);

/* Words for a refusal of store_find; NULL: the error is no refusal. */
const char *store_refusal(int error);

/* The name that store_path returns from now on, of a store that is not followed. -ENOMEM. */
int store_rename(struct store *store, const char *name);

/* Where the store ends, in bytes: of one that is only read, as of opening; of one that is followed, as of
 * store_refresh or, while it is live, now. */
uint64_t store_size(const struct store *store);

/* Where the file will end if it is committed now: what is free at the end is left out. */
uint64_t store_end(struct store *store);

int store_stat(const struct store *store, struct stat *st);

/* The same, but for permissions of group and others that an ACL keeps from some of them (common/acl.h). */
int store_stat_shown(const struct store *store, struct stat *st);

/* The same of a file whose reach is for others, and without what somebody might not do when the reach was set: what it
 * leads to was read for those who might, and is kept. */
int store_stat_since(const struct store *store, struct stat *st);

/* Whether others look on (store_reach). */
bool store_is_for_others(const struct store *store);

/* The owner of the store's file, whose state is st, as mounts_owner has it. */
uid_t store_owner(const struct store *store, const struct stat *st);

/* Whether only root may write a file, by what stat(2) says of it: with an ACL the group's bits are the mask, which lets
 * somebody. */
bool store_is_roots(const struct stat *st);

/* Permission bits that a copy of it may have in its group: those that an ACL of it keeps from nobody, and that all
 * files let a copy have which were found for it, or for those that it has led to, with the folders above these
 * (audience_of_copy). Unknown if others look on. */
mode_t store_mode_led_to(const struct store *store);

/* Of a new file that was not committed yet, without the ACL that it has of its folder; else nothing is changed. */
int store_set_mode(struct store *store, mode_t mode);
int store_statvfs(const struct store *store, struct statvfs *st);

/* Bytes that its disk has room for; UINT64_MAX: nobody knows, or it is in memory. */
uint64_t store_room(const struct store *store);

/* Reads exactly n bytes at address. -EIO: not all of them are in the store, or the disk failed;
 * -ESTALE: see store_share; of a followed file also STORE_MOVED, and -ESTALE: it is gone; of a reader, its errors.
 * Bytes that were allocated and never written are anything. */
int store_read(struct store *store, uint64_t address, void *buffer, size_t n);

/* The same, with a `why` for the reason of -EIO (store_say). Where there is none, as of a reader
 * (store_open_reader), it stays as it was. */
int store_read_why(struct store *store, uint64_t address, void *buffer, size_t n, struct why *why);

/* Reading many pieces, in any order: those that follow each other in the file, with no more than
 * STORE_GAP bytes between them, which are read, too (the kernel has them in the same page or the
 * next), are read by one call of the system. Each is there after a later call on the vector, the
 * last ones after store_vector_end; errors, those of store_read, may be of earlier pieces. After
 * one the vector is empty. */
#define STORE_VECTOR 64
#define STORE_GAP    4096
struct store_vector {
    struct store *store;
    uint64_t address, end; /* of what is to be read next */
    size_t n;
    struct iovec to[STORE_VECTOR];
    char unwanted[STORE_GAP];
};
void store_vector_begin(struct store_vector *vector, struct store *store);
int store_vector_add(struct store_vector *vector, uint64_t address, void *to, size_t n);
int store_vector_end(struct store_vector *vector);

/* Writes n bytes at address, within the store's end (else -EINVAL). store_read sees them at once;
 * they are durable after store_commit. Committed bytes in the file are not touched before that.
 * Errors: those of write(2) (-ENOSPC for EFBIG), -ENOMEM; -EIO also: what else is in a page cannot be read; then the
 * bytes of the range are old or new. Of this and all that follow up to store_free_except: -EROFS: the store is only
 * read; errors of unlink(2) and fsync(2): a journal is still in the way that a commit could not remove. */
int store_write(struct store *store, uint64_t address, const void *bytes, size_t n);

/* The same for a writer that cannot handle errors: bytes that the file does not take, because the
 * disk is full, stay in memory until store_commit, which tries again and reports it. Still errors are
 * -ENOMEM and -EIO of reading. Committed bytes on several pages are all read before one changes, so that a structure is
 * not written in half. */
int store_write_or_keep(struct store *store, uint64_t address, const void *bytes, size_t n);

/* Space for n > 0 bytes, and giving it back, in whole or in part: what is freed is used again after
 * the next commit, what was allocated since the last commit at once. Free space at the end shortens
 * the file when it is committed. -ENOSPC; -ENOMEM; -EINVAL: there is nothing in use to be freed. */
int store_allocate(struct store *store, uint64_t n, uint64_t *address);
int store_free(struct store *store, uint64_t address, uint64_t n);

/* Gives back what nothing refers to in the committed state: it may be used at once. Nothing of it was allocated or
 * claimed since the store was opened. -EINVAL: it is not in use; -ENOMEM. */
int store_free_unused(struct store *store, uint64_t address, uint64_t n);

/* Space for n > 0 bytes that are to replace old_n others (0: none), which stay in use: in an image
 * it may share bytes with them, and what was freed since the last commit is used, too: writing there cannot fail
 * then. Errors of store_allocate. And giving n bytes back, but for those that lie in
 * kept_n others, too; errors of store_free, of which n 0 is none. */
int store_allocate_over(struct store *store, uint64_t old, uint64_t old_n, uint64_t n,
                        uint64_t *address);
int store_free_except(struct store *store, uint64_t address, uint64_t n, uint64_t kept,
                      uint64_t kept_n);

/* Whether store_allocate_over may give bytes that are in use: of a writable image. */
bool store_allocates_over(const struct store *store);

/* Space for pieces of n > 0 bytes each, and writing them there: those that come to lie one behind
 * the other are written together, up to 1 MiB. Errors of store_allocate and store_write; then none has any, but for
 * what cannot be given back without memory. */
struct store_piece {
    const void *bytes;
    size_t n;
    uint64_t address; /* out: where it is */
};
int store_put(struct store *store, struct store_piece *pieces, size_t n);

/* Punches a hole for space that was allocated since the last commit behind its end, where the file system can,
 * before it is freed: a full disk needs the room to commit. The bytes are undefined then. Nothing is done for other
 * space. */
void store_forget(struct store *store, uint64_t address, uint64_t n);

/* ---- Space that belongs to an untrusted process ----
 *
 * From the first of these calls on the store tells its own space, which store_allocate gives, from
 * that which is lent: all else that is in use. Space is lent when it is allocated so, or when it is
 * handed over; what was there before is lent until it is claimed. */

void store_tell_own(struct store *store);
int store_allocate_lent(struct store *store, uint64_t n, uint64_t *address);
void store_hand_over(struct store *store, uint64_t address, uint64_t n);

/* Claims n bytes: what of them is in use is the store's own until it is freed. Space behind the end
 * is ignored. -ENOMEM: some of them were claimed. */
int store_claim(struct store *store, uint64_t address, uint64_t n);

/* Sets a callback that claims further space of the store's own before a query whether space is
 * lent. It is called without any lock of the store, by several threads; its errors are those of
 * store_let_claim. NULL, the default: none. Set before the store is used by other threads. */
void store_set_claimer(struct store *store, int (*claim)(void *context), void *context);
int store_let_claim(struct store *store);

/* Whether all of n bytes are lent: 0, or -EACCES. And store_free, if they are; -EFBIG: there is free space in so many
 * places (1,048,576) that no other one is noted: these bytes are in use still. */
int store_check_lent(struct store *store, uint64_t address, uint64_t n);
int store_free_lent(struct store *store, uint64_t address, uint64_t n);

/* Everything written since the last commit becomes durable at once, or nothing of it. On error the
 * committed state is whole (the old one or, if only the last steps failed, already the new one) and
 * all changes are still there to be committed again. Errors: those of write(2) (-ENOSPC for EFBIG)
 * and fsync(2), -ENOMEM; of the first commit of a new store those of rename(2). -ESTALE: the file
 * was removed or replaced by another, and so it stays until its name leads to it again. External raw
 * data come first: an error of fsync(2) of one of their files is told once, and commits nothing.
 * -EROFS: the store is only read; -EIO also: another program has cut the file short; -EBUSY: what
 * another version of sparsefs has left stands where the journal belongs. Calls that a signal has interrupted are made
 * again: it does not end a commit. */
int store_commit(struct store *store);

/* An address (default 0) that every program writes to when it changes the file: the page there is a
 * witness, by which a journal detects changes after its writer died. */
void store_set_landmark(struct store *store, uint64_t address);

/* Syncs the file and removes its journal, also where both were moved: programs that know no journal
 * find the last commit even after a crash of the machine. Closing does it, too. Errors as of
 * store_commit; nothing is lost by them. */
int store_settle(struct store *store);

/* ---- Snapshots ---- */

/* The committed state of a store as it was when the snapshot was made, while the store goes on. The
 * space that it needs is not used again, and bytes that a commit changes in place are kept for it.
 * Those that are opened between the same two commits are one. Free space of a store that is written
 * reads as zeros. Must be closed before the store. -ENOENT: nothing is
 * committed yet; -EOPNOTSUPP: it is followed; -EIO: the last commit is not carried out yet, the disk
 * failed; -ENOMEM; -EINTR, as it waits for commits. Opening and closing count as changes of space, like
 * store_allocate. */
struct store_snapshot;
int store_snapshot_open(struct store *store, struct store_snapshot **snapshot);
void store_snapshot_close(struct store_snapshot *snapshot);

/* Where it ends, in bytes. */
uint64_t store_snapshot_size(const struct store_snapshot *snapshot);

/* Reads exactly n bytes. -EINVAL: they do not lie in it; -EIO; -ESTALE: it is lost, as more was changed in place
 * since than is kept (256 MiB, of all snapshots of the store) or could be kept, or as newer ones were opened and all
 * have 2,097,152 ranges of space, or hold back more than half of the file and 256 MiB; or as of store_read. */
int store_snapshot_read(struct store_snapshot *snapshot, uint64_t address, void *buffer, size_t n);

/* How long the committed state is, in bytes. 0: nothing is committed yet, or the thread was interrupted while it waited
 * for a commit. */
uint64_t store_committed_size(struct store *store);

/* The same bytes where they lie in memory already, mapped from the file, or in an image that is
 * only read; NULL if they are not, or are changed and not committed, or the lock was lost
 * (store_share). Only for handing to a system call: if the file shrinks meanwhile, the kernel says
 * EFAULT there, but touching them here would end the process. */
const void *store_view(struct store *store, uint64_t address, size_t n);

/* Whether the two are the same file. */
bool store_is_same(const struct store *a, const struct store *b);

/* Read calls, and bytes read or given by store_view, since the store was opened. */
void store_counters(const struct store *store, uint64_t *reads, uint64_t *bytes);

/* Reads that ended with an error of the disk, which says nothing of what the file has. */
uint64_t store_failed_reads(const struct store *store);

/* Commits since it was opened that changed the file. */
uint64_t store_commits(const struct store *store);

#endif
