/* The public interface of libsparsefs: HDF5 files as trees of groups and datasets whose elements
 * are read and written through one shared chunk cache; sparse datasets, whose elements exist only
 * where they were written, among them. Calls that have a counterpart in the HDF Group's RFCs on
 * sparse data name it. sparsefs/hdf5.h has the same calls with HDF5 handles.
 *
 * Conventions, unless a function says otherwise: functions return 0 or a negative errno; -EIO
 * means that the file is damaged or could not be read, and one line in the log says what, where
 * and why; results come through the last parameters, which are untouched on error, but a buffer
 * of the caller may have been filled in part; `close` and `free` functions accept NULL. Every
 * function may be called from any thread, with the same objects, except that an object must not be
 * in use while it is closed.
 *
 * Dims, starts and counts are in elements, slowest axis first. Elements are given as they stand in
 * the file: the dataset's datatype, its byte order. */
#ifndef SPARSEFS_SPARSEFS_H
#define SPARSEFS_SPARSEFS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/stat.h>
#include <sys/statvfs.h>

#define SFS_MAX_RANK  32         /* the most dimensions of an HDF5 dataspace */
#define SFS_UNLIMITED UINT64_MAX /* a max dim without limit */

/* What the shared library shows; nothing else is. */
#if defined(__GNUC__)
#define SFS_API __attribute__((visibility("default")))
#else
#define SFS_API
#endif

struct sfs_file;
struct sfs_dataset;

/* ---- Messages ---- */

/* Takes one line, without a newline, of a syslog(3) level. Called from any thread. */
typedef void (*sfs_log_function)(int level, const char *line);

/* Sets the function that gets the messages of the process (NULL: stderr), up to and including
 * level. */
SFS_API void sfs_set_log(sfs_log_function function, int level);

/* The version of the HDF5 library in use, e.g. "1.10.8". Owned by the library. */
SFS_API const char *sfs_hdf5_version(void);

/* ---- Files ---- */

#define SFS_DEFAULT_CACHE_SIZE ((size_t)256 << 20)
#define SFS_MOST_LEVELS        4096 /* of groups in groups: of deeper ones sfs_check cannot tell */

struct sfs_image_options;

/* Which chunk leaves the cache when memory is short. */
enum sfs_policy {
    SFS_POLICY_DEFAULT, /* SFS_POLICY_2Q */
    SFS_POLICY_LRU,     /* the one that was used longest ago */
    /* The same, but what is read for the first time goes through a share of the cache, which is
     * learnt, and what was wanted again after it had left has the rest: a scan leaves that alone */
    SFS_POLICY_2Q,
    SFS_POLICY_S3_FIFO, /* uses are counted; what is read once goes through a tenth of the cache */
};

struct sfs_options {
    size_t cache_size; /* memory limit of the chunk cache in bytes; 0: SFS_DEFAULT_CACHE_SIZE */
    unsigned workers;  /* threads that decode, and that encode, at most; 0: one per processor */
    bool writable;     /* sfs_open: for reading and writing */
    bool replace;      /* sfs_create: a file that is there already is replaced at the first flush */
    /* sfs_create, and backing files of images: permission bits of a new file, less the umask; 0:
     * those of the file that it replaces, or 0666. With for_others: those by which it is shown, if
     * they are not its own (of reading and writing); S_ISUID, S_ISGID: with another owner, or group */
    mode_t mode;
    /* sfs_create, and backing files of images that are new: symbolic links on the way to their folder
     * are root's, this user's or its owner's; sfs_open for writing, or with for_others: on the way to the
     * file; else -EPERM */
    bool own_links;
    const struct sfs_image_options *image; /* sfs_open_image, sfs_create_image; may be NULL */
    bool follow; /* sfs_open: for reading, without a lock, while others write; see sfs_refresh */
    bool beside_writer; /* sfs_open for reading: follow it if another program writes it */
    bool fill_missing;  /* what a source of a virtual dataset should have, and has not, is the fill
                         * value, as libhdf5 has it; else it is -EIO */
    /* sfs_open for reading: what it is called, as sfs_path gives it, and beside which other files
     * are looked for; NULL: its path */
    const char *name;
    /* Files that the HDF5 file names (external raw data, sources of virtual datasets, external
     * links) are opened in its folder and below; and in this folder and below, "/" being
     * everywhere. NULL: there is no other one. */
    const char *external_files;
    /* What is read is shown to other users than the one that the process runs as. Such files of
     * another owner than the HDF5 file are then refused, unless they are in external_files and all
     * users may read them; so are those that some users who may read the HDF5 file may not read or
     * find. If root runs this, HDF5 files that others may write are refused, too (-EPERM), unless
     * hdf5_worker or is_trusted is set. */
    bool for_others;
    /* libhdf5 works on it, and on files that it leads to, in processes of their own; see
     * sfs_start_hdf5_workers, which comes before (-EINVAL). sfs_object_copy and the like take two
     * files that are both so, or neither (-EOPNOTSUPP). What needs such a process while none can
     * be started is -EIO, or -ENOMEM. It is -EROFS to change it when none can ever be again. */
    bool hdf5_worker;
    /* sfs_open for writing: under a shared lock until something is changed; see
     * sfs_begin_writing. */
    bool share;
    /* The most memory in bytes that one chunk may take while it is read or changed, as it is stored
     * and decoded, and that the selections of chunks take that all calls join at the time: a file of
     * some KiB can claim gigabytes. Of more it is -EIO (-ENOMEM: beside others), and the log says so.
     * 0: 4 GiB, or a quarter of the machine's memory if that is less. */
    size_t chunk_memory;
    bool is_trusted; /* the creator of the file is trusted with what libhdf5 does as root */
    enum sfs_policy policy;
};

/* libhdf5 is not safe with damaged files. From now on files can be opened with
 * options->hdf5_worker: of each of them libhdf5 sees the bytes in a process that may do nothing but
 * answer (docs/security.md), and that is started when it is needed: what a listing asks of a plain file that is
 * only read is read without it. If it dies calls that ask for the same again are -EIO, and all else
 * goes on. Filters that need plugins of libhdf5 run in other such processes, of all files. memory:
 * bytes of the address space of each, 0: 1 GiB; timeout: seconds that a call may take before it is
 * ended, 0: 10. It forks: to be called before there are threads, and before there is anything in
 * memory that others must not see. -EALREADY; errors of fork(2). */
SFS_API int sfs_start_hdf5_workers(size_t memory, double timeout);

/* When a program ends libhdf5 closes what is open in it, and all that it has in memory, by
 * atexit(3): what a damaged file has broken may crash it there, when everything is long on the
 * disk. From now on it does not. For a program that uses libhdf5 through this library only, and
 * closes its files; to be called before all else of this library and libhdf5. */
SFS_API void sfs_leave_hdf5_at_exit(void);

/* Opens an HDF5 file under the lock that libhdf5 takes: a shared one for reading, an exclusive one
 * for writing (HDF5_USE_FILE_LOCKING is honoured). options may be NULL. On error the log says why;
 * besides errors of open(2): -EBUSY another process has it open for writing, or (writable) has it
 * open at all, -EINVAL not an HDF5 file, truncated or damaged; -EIO a disk that fails, or no
 * process for libhdf5 can be started (hdf5_worker); -EACCES, -EPERM, -EROFS also (writable) no
 * journal can be made in its directory. */
SFS_API int sfs_open(const char *path, const struct sfs_options *options, struct sfs_file **file);

/* H5Fcreate. A new HDF5 file, open for writing. It stands at path from the first sfs_flush, or from
 * sfs_close on. -EEXIST: there is one, and options do not say replace. */
SFS_API int sfs_create(const char *path, const struct sfs_options *options, struct sfs_file **file);

/* H5Fflush. When it returns 0, everything written before is durable: after a crash the file holds
 * that or a later state. Calls of several threads share what the disk has to do: while one commits,
 * the others wait and are then served by one more. On error it holds the state of an earlier flush,
 * and what was written since is still here to be flushed again. The file may be moved meanwhile;
 * -ESTALE: it was removed, or another one has its name. */
SFS_API int sfs_flush(struct sfs_file *file);

/* The same, but what cannot be stored of one dataset, because of its index, its filters or want of
 * memory, is an error only if it is this one (NULL: never). In any case all else is committed; what
 * cannot be stays in memory chunk by chunk, and the log names the dataset. */
SFS_API int sfs_flush_for(struct sfs_file *file, struct sfs_dataset *dataset);

/* The error for which the last flush has left something of a dataset in memory; 0: it has not. */
SFS_API int sfs_flush_error(struct sfs_dataset *dataset);

/* How often a file with external raw data could not be synced, so that what was written to it may be lost; *error: of
 * the last time, or 0. A flush tells of it once, whoever has written: for programs that tell all of their users. */
SFS_API unsigned sfs_raw_losses(const struct sfs_file *file, int *error);

/* As sfs_flush_for of no dataset, for a caller without fsync semantics: the first dim of a dataset
 * is committed only as far as nothing is unfinished (sfs_begin_unfinished). */
SFS_API int sfs_flush_finished(struct sfs_file *file);

/* After sfs_flush a crash of the machine may leave the last changes in the journal beside the file:
 * sparsefs finds them there. This puts them into the file for good and removes the journal, so that
 * programs that know no journal find them, too. For when nothing is written for a while; sfs_close
 * does the same. Errors as of sfs_flush; nothing is lost by them. */
SFS_API int sfs_settle(struct sfs_file *file);

/* What was found beside and in a file whose writer had died. */
struct sfs_recovery {
    bool replayed;    /* a complete journal: the last commit is whole */
    bool discarded;   /* an incomplete one: the commit before it counts */
    bool carried_out; /* one that had been carried out before another program changed the file */
    bool unmarked;    /* the superblock said that the file was open for writing */
    unsigned temporaries; /* abandoned temporary files of this name that were removed */
};

/* Does what the next sfs_open for writing would do after a crash, and what nothing else does: it
 * clears the mark that a program with libhdf5 leaves when it dies (as h5clear -s; what such a
 * program had not flushed is lost). Errors are those of opening for writing; -EPERM, before anything but
 * the journal has changed: a symbolic link of a user who is neither root, nor this one, nor the file's owner leads
 * to it; -EINVAL: it is not an HDF5 file; -EIO: it cannot be read, or is shorter than its superblock says. */
SFS_API int sfs_recover(const char *path, struct sfs_recovery *recovery);

SFS_API bool sfs_is_writable(const struct sfs_file *file);

/* ---- Files that are opened with options->share ----
 *
 * Other programs may read them until something is changed. Each call that changes something takes
 * the exclusive lock first, and may be -EBUSY: another program has the file open, or has changed it
 * since it was opened; the log says which, and nothing is changed. The lock stays until sfs_share
 * or sfs_close. Of other files that are open for writing it is held all the time. */

/* Takes the exclusive lock for a caller that is going to change something, and keeps sfs_share from
 * releasing it until sfs_end_writing. -EROFS, -EBUSY, and errors of opening for writing. */
SFS_API int sfs_begin_writing(struct sfs_file *file);
SFS_API void sfs_end_writing(struct sfs_file *file);

/* Flushes and settles, and gives the exclusive lock back for a shared one. -EBUSY: a call is
 * changing something, or sfs_begin_writing has announced one, or something is unfinished
 * (sfs_begin_unfinished); or, when it was shared already, another program has the lock, by which it
 * was lost for a moment: what is not in memory is -ESTALE then if that has changed the file. Other
 * errors are those of sfs_flush, and the lock stays. Of a file that is not opened with
 * options->share nothing is done. */
SFS_API int sfs_share(struct sfs_file *file);

/* The lock that is held on the file; none also where the file system has no locks. */
enum sfs_lock { SFS_LOCK_NONE, SFS_LOCK_SHARED, SFS_LOCK_EXCLUSIVE };
SFS_API enum sfs_lock sfs_lock(const struct sfs_file *file);

/* ---- Following a file that another program writes ----
 *
 * A file opened with options.follow is read as it was committed last (sfs_flush, or what the rw
 * mount does) when it was opened or refreshed last; or, if its writer is libhdf5 in SWMR mode, as
 * that has flushed it. No call sees half of a commit. Where the bytes of that state are no longer
 * all there a call takes the last one by itself: what follows a call may be of a later state. Dims,
 * sfs_dataset_dims and sfs_dataset_changes of open datasets follow. Calls on a dataset or file that
 * was replaced or removed are -ESTALE; the dataset that is there now can be opened beside the one
 * that was. -EBUSY: its writer commits so often that no state of it lasted long enough. Calls that
 * copy from a followed file to another one are -EAGAIN if it has moved on meanwhile: the copy is to
 * be discarded. */

/* Takes the last committed state. */
SFS_API int sfs_refresh(struct sfs_file *file);

/* From now on calls on a followed file, also those that are under way, do not wait for a pause of
 * its writer: -EINTR; nor does sfs_refresh go on to look at the members of series, nor one that writes to a dense
 * dataset that is stored in one piece, and has no place yet, fill all of that. To be called before the file is closed.
 * Any thread. */
SFS_API void sfs_interrupt(struct sfs_file *file);

/* From now on calls of this thread that go through many chunks, sources or members of a series, decode large ones, or
 * wait for memory, for others who decode them, for calls that end before dims change, or, to open a snapshot,
 * to write past the cache, or to make a link, or make or remove a group, for a commit of another
 * thread, ask is_interrupted(context) now and then, and end with
 * -EINTR soon after it is true: what they have changed by then stays changed.
 * So do those that copy objects and attributes into a file whose libhdf5 has a process of its own:
 * of the object nothing is there then. So do calls that only read and wait for that process while
 * it answers another call, or for another thread that opens a file or dataset; those that change
 * something, and commits, wait on. NULL: no more. */
SFS_API void sfs_set_interrupt(bool (*is_interrupted)(void *context), void *context);

/* hold: instead of taking another state and repeating themselves calls return -EAGAIN, so that
 * successive calls see the same state. For programs that read something in several calls, and
 * repeat all of them. */
SFS_API void sfs_hold_state(struct sfs_file *file, bool hold);

/* The generation of the adopted commit: differs from the last one whenever a call or
 * sfs_refresh has adopted another commit. */
SFS_API uint64_t sfs_states(const struct sfs_file *file);
SFS_API bool sfs_is_following(const struct sfs_file *file);

/* Opens a file that an external link of `from` names, as libhdf5 finds it: absolute, or beside the
 * linking file. It shares the cache of `from`, must be closed before it, and is -ENOENT if it
 * cannot be found; -EINVAL: it is no HDF5 file; -EDEADLK: it is on a mount of sparsefs; -EPERM,
 * -ELOOP: as below. */
SFS_API int sfs_open_linked(struct sfs_file *from, const char *name, struct sfs_file **file);

/* The same for a name that is not trusted: only regular files in the folder of `from` or
 * below, or in options->external_files, are opened; if `from` was opened so itself, in the folder
 * of the file where this began. -EXDEV: the name leads elsewhere; -EPERM: others would see what
 * they may not (options->for_others); -EKEYREJECTED: this runs as root, and others may write the file;
 * -ELOOP: too many files have led there. */
SFS_API int sfs_open_beneath(struct sfs_file *from, const char *name, struct sfs_file **file);

/* H5Fclose. Flushes what was written first; the file is closed even if that fails, whose error is
 * returned, or -EIO if a callback could not free an image. The caller closes its snapshots, its datasets
 * and files that were opened from it first. */
SFS_API int sfs_close(struct sfs_file *file);

/* Closes without flushing: the file stays as it was flushed last. */
SFS_API void sfs_discard(struct sfs_file *file);

/* The path that the file was opened by, and what stat(2) and statvfs(3) say of it; with options->for_others
 * the mode is without those permissions of group and others that an ACL keeps from some of them, and those that some
 * users did not have when it was opened. */
SFS_API const char *sfs_path(const struct sfs_file *file);
SFS_API int sfs_stat(const struct sfs_file *file, struct stat *st);
SFS_API int sfs_statvfs(const struct sfs_file *file, struct statvfs *st);

/* For copies, which only those users may read who may read the source, and that have its group: the
 * permission bits of 0777 that all other files have which this one has led to so far (external raw
 * data, sources of virtual datasets), without those of a group or others to whom the folders above
 * them are closed, or who may be in another group of them; and without what an ACL of this file
 * keeps from some. With options->for_others it is not known. And those of a file that sfs_create has
 * made, exactly, until it is flushed for the first time: of any other nothing is changed. -errno. */
SFS_API mode_t sfs_mode_led_to(const struct sfs_file *file);
SFS_API int sfs_set_mode(struct sfs_file *file, mode_t mode);

struct sfs_statistics {
    uint64_t cache_limit;      /* bytes */
    uint64_t cache_bytes;      /* allocated for chunks and their encoded forms now */
    uint64_t cache_bytes_used; /* that chunks take of them, or would if they were condensed */
    uint64_t cache_chunks;     /* entries now */
    uint64_t cache_hits;       /* pieces of chunks found */
    uint64_t cache_misses;     /* pieces of chunks that had to be looked up */
    uint64_t cache_evictions;  /* chunks */
    uint64_t chunks_decoded;
    uint64_t cache_dirty_bytes; /* of chunks that are changed and not stored */
    uint64_t chunks_encoded;    /* and stored, or taken out */
    uint64_t store_reads;       /* read calls on files */
    uint64_t store_bytes_read;  /* bytes */
    uint64_t store_commits;     /* that changed the file */
    uint64_t chunks_left;       /* that could not be stored when all else was committed */
};

SFS_API void sfs_statistics(const struct sfs_file *file, struct sfs_statistics *statistics);

/* Gives the chunk cache another memory limit, in bytes, instead of sfs_options.cache_size. What is
 * stored and not in use goes at once as far as that takes; what is left above the limit goes when
 * something else is read or written. -EINVAL: 0. Any thread. */
SFS_API int sfs_set_cache_size(struct sfs_file *file, size_t bytes);

/* ---- Images: HDF5 files in memory ----
 *
 * docs/images.md has what stands for which call, flag and rule of the HDF5 document on file image
 * operations. */

enum sfs_image_flags {
    /* H5LT_FILE_IMAGE_OPEN_RW: for reading and writing. What is written is in the image after
     * sfs_flush or sfs_close, all of it or nothing. */
    SFS_IMAGE_WRITABLE = 1,
    /* H5LT_FILE_IMAGE_DONT_COPY: the buffer itself is used. It belongs to the library from then on,
     * which may move it when it grows, and frees it. */
    SFS_IMAGE_DONT_COPY = 2,
    /* H5LT_FILE_IMAGE_DONT_RELEASE, only with the one before: the buffer stays the caller's, who
     * keeps it until the file is closed. It is not moved, so what would make it larger is -ENOSPC:
     * new datasets, and chunks that are written anew. */
    SFS_IMAGE_DONT_RELEASE = 4,
};

/* H5FD_file_image_op_t: what a callback is called for. */
enum sfs_image_operation {
    SFS_IMAGE_OP_OPEN,   /* malloc, memcpy */
    SFS_IMAGE_OP_RESIZE, /* realloc */
    SFS_IMAGE_OP_CLOSE,  /* free */
};

/* H5Pset_file_image_callbacks: functions that provide the memory of images, by the rules of the C library's
 * functions, which stand for those that are NULL. image_malloc and image_realloc return NULL if
 * there is no memory; image_memcpy NULL and the last of the others not 0 if they fail. They are
 * called by any thread, by one at a time, and must not call this library. */
struct sfs_image_callbacks {
    void *(*image_malloc)(size_t n, enum sfs_image_operation operation, void *user_data);
    void *(*image_memcpy)(void *to, const void *from, size_t n, enum sfs_image_operation operation,
                          void *user_data);
    void *(*image_realloc)(void *bytes, size_t n, enum sfs_image_operation operation,
                           void *user_data);
    int (*image_free)(void *bytes, enum sfs_image_operation operation, void *user_data);
    /* Wanted if user_data is not NULL: the file has a copy of its own, made by the first when it is
     * opened, which is freed after the image. */
    void *(*user_data_copy)(void *user_data);
    int (*user_data_free)(void *user_data);
    void *user_data;
};

/* All may be left out; what they point to is looked at during the call only. */
struct sfs_image_options {
    const char *name; /* what sfs_path says; "image" */
    /* sfs_open_image: the name is that of the file which the bytes come from. Any other file of
     * that name is -EEXIST, as it is not clear which of the two is meant. */
    bool is_of_file;
    const struct sfs_image_callbacks *callbacks; /* the C library's */
    /* H5Pset_fapl_core: it grows by a multiple of so many bytes, and by half of its size if there
     * are as many; where image_realloc has no such buffer, by what is needed. */
    size_t increment;
    /* H5Pset_fapl_core with a backing store: every flush that changes something writes the whole
     * image to this file, which has its name when it is complete. -EEXIST: there is one already (in
     * sfs_create_image unless options->replace). Only of an image that is writable. */
    const char *backing_path;
    /* What sfs_stat says; NULL: the owner's alone, as of now. A new backing file gets its group, and
     * then the bits of options->mode exactly; if that may not be, its group has no more than others. */
    const struct stat *st;
};

/* H5LTopen_file_image, H5Pset_file_image: opens n bytes as the HDF5 file that they are. flags are
 * of enum sfs_image_flags; options->writable and replace are not looked at. On error the buffer is
 * as it was, and the caller's. Errors are those of sfs_open, -EINVAL also for flags, buffer or
 * callbacks that cannot be; -EEXIST: there is a file of its name; -EIO: image_memcpy failed. */
SFS_API int sfs_open_image(void *buffer, size_t n, unsigned flags,
                           const struct sfs_options *options, struct sfs_file **file);

/* H5Fopen with H5Pset_fapl_core: reads a file, as it was committed last, into memory and opens that.
 * is_backed: each flush that changes something writes all of it to the file, which is replaced when
 * the new one is complete; else what is written is lost. Of options->image only callbacks and
 * increment are looked at: -EINVAL with a name or backing_path, and if is_backed and not
 * options->writable. Errors are those of sfs_open and sfs_open_image; sfs_flush and sfs_close are
 * -EBUSY, and replace nothing, if another program has changed the file since or has it locked for
 * writing; -EEXIST: another file has its name. -ENOENT: is_backed, and no name leads to it. */
SFS_API int sfs_load_image(const char *path, bool is_backed, const struct sfs_options *options,
                           struct sfs_file **file);

/* H5Fcreate with H5Pset_fapl_core: a new HDF5 file in memory, open for writing. */
SFS_API int sfs_create_image(const struct sfs_options *options, struct sfs_file **file);

/* H5Fget_file_image: flushes the file, if it is open for writing, and copies its image into buffer:
 * from its superblock, without a user block, to the end of the space that it uses. Returns the
 * bytes of the image; -ERANGE: they are more than n. buffer NULL: only returns how many they are
 * now. Of a followed file all bytes are of one commit, which it may have to begin again for: -EBUSY
 * if none lasts long enough; -EOPNOTSUPP if its writer is libhdf5. */
SFS_API int64_t sfs_get_image(struct sfs_file *file, void *buffer, size_t n);

/* The whole file, user block included, as it was committed last: to be read in pieces while others
 * go on writing to it. Nothing is copied: the space that it needs is not used again before it is
 * closed. -ENOENT: nothing is committed yet; -EOPNOTSUPP: it is followed; -EIO: the disk has failed,
 * and the last commit is not in the file yet; -ENOMEM. */
struct sfs_snapshot;
SFS_API int sfs_snapshot_open(struct sfs_file *file, struct sfs_snapshot **snapshot);
SFS_API void sfs_snapshot_close(struct sfs_snapshot *snapshot);

/* Bytes of it. */
SFS_API uint64_t sfs_snapshot_size(const struct sfs_snapshot *snapshot);

/* Reads n bytes from offset on. -EINVAL: they do not lie in it; -EIO; -ESTALE: it is lost, as over 256 MiB of
 * dense elements or metadata were changed in place while snapshots were open, or what is to keep them could
 * not be read or had no memory; newer snapshots were opened, and all together hold back more than half of the file
 * and 256 MiB, or have 2,097,152 ranges of free space; or another program has changed a file that is shared
 * (sfs_share). */
SFS_API int sfs_snapshot_read(struct sfs_snapshot *snapshot, uint64_t offset, void *buffer,
                              size_t n);

/* How many bytes a snapshot would have now. 0 also if it waits for a commit, and is interrupted
 * (sfs_set_interrupt). */
SFS_API uint64_t sfs_committed_size(struct sfs_file *file);

/* ---- Groups, links, attributes ---- */

enum sfs_object_type {
    SFS_GROUP,
    SFS_DATASET,
    SFS_DATATYPE, /* a committed datatype */
};

enum sfs_link_type {
    SFS_LINK_HARD,
    SFS_LINK_SOFT,
    SFS_LINK_EXTERNAL,
    SFS_LINK_USER, /* user-defined: only its name is known */
    /* No link of the file: datasets data_000001, data_000002, ... of the group, which hard, soft or
     * external links lead to, as one virtual dataset `data`, one behind the other along their first
     * axis, where their attributes image_nr_low and image_nr_high say. Where the file has something
     * of that name there is none. It is opened by its address as other datasets are; -EIO then, and
     * the log says why, if they do not fit together. It has no attributes, and cannot be copied as
     * an object or written. */
    SFS_LINK_SERIES,
};

struct sfs_link {
    enum sfs_link_type type;
    char *name;
    uint64_t address;  /* hard: of the object header; series */
    char *target;      /* soft, external: the HDF5 path that it points to; else NULL */
    char *target_file; /* external: the file's name; else NULL */
};

struct sfs_links {
    size_t n;
    struct sfs_link *link; /* ascending by name */
};

/* Objects are named by the file address of their header. */
SFS_API uint64_t sfs_root(const struct sfs_file *file);

/* All links of a group. The caller frees them with sfs_links_free. */
SFS_API int sfs_list(struct sfs_file *file, uint64_t group, struct sfs_links *links);
SFS_API void sfs_links_free(struct sfs_links *links);

/* One link by its name, -ENOENT if there is none. The caller frees it with sfs_link_free. */
SFS_API int sfs_lookup(struct sfs_file *file, uint64_t group, const char *name,
                       struct sfs_link *link);
SFS_API void sfs_link_free(struct sfs_link *link);

/* Follows an HDF5 path (soft links within the file included) from a group to an object. */
SFS_API int sfs_find(struct sfs_file *file, uint64_t group, const char *path, uint64_t *address);

/* -EOPNOTSUPP: a dataset whose storage this version does not support. */
SFS_API int sfs_object_type(struct sfs_file *file, uint64_t address, enum sfs_object_type *type);

struct sfs_attribute {
    char *name;
    char *text; /* a single value bare, an array as [a, b, ...]; unreadable: NULL */
    char *json; /* the same as a JSON value; unreadable: NULL */
};

struct sfs_attributes {
    size_t n;
    struct sfs_attribute *attribute; /* ascending by name */
};

/* All attributes of a group, dataset or committed datatype; freed with sfs_attributes_free. */
SFS_API int sfs_attributes(struct sfs_file *file, uint64_t address,
                           struct sfs_attributes *attributes);
SFS_API void sfs_attributes_free(struct sfs_attributes *attributes);

/* Copies all attributes of an object to another that is not a sparse dataset. -EEXIST: one is there
 * already. Those that mean nothing elsewhere (references), are too large or are of a kind that libhdf5
 * cannot read are left out, and the log says so; an error of a disk is one, and leaves none. */
SFS_API int sfs_attributes_copy(struct sfs_file *to, uint64_t to_address, struct sfs_file *from,
                                uint64_t from_address);

/* H5Ocopy of one object that is not a sparse dataset to an absolute path in another file: a dataset
 * as it is stored, a committed datatype, or a group without what is in it; of a root group, for
 * path "/", only attributes. Attributes that are references are left out of groups, and the log
 * says so; other references become null. The group on the way must be there. -EOPNOTSUPP: only
 * groups are copied from a followed file (but see sfs_get_image). */
SFS_API int sfs_object_copy(struct sfs_file *to, const char *path, struct sfs_file *from,
                            uint64_t address);

/* Where an object of one file stands in its copy. */
struct sfs_moved {
    uint64_t address;
    const char *path;
};

/* After sfs_object_copy of a dataset or datatype and of what it refers to: sets the references in
 * the copy, in elements and attributes. moved is ascending by address; references to what is not in
 * it become null. Also of a sparse dataset that is there with the same dims, but for attributes:
 * what is defined is written anew. -EFBIG: more than 256 MiB of elements with references of a
 * dataset that is not sparse; -EINVAL: a sparse one has other elements; -ENOENT: none is there. */
SFS_API int sfs_references_copy(struct sfs_file *to, const char *path, struct sfs_file *from,
                                uint64_t address, const struct sfs_moved *moved, size_t n);

/* H5Lcreate_soft, H5Lcreate_external, H5Lcreate_hard: link->target is what path is to lead to, also
 * of a hard link, whose target must exist; its name and address are not looked at. -EOPNOTSUPP: a
 * user-defined link; -EIO also: the name is in use, or the group is not there. */
SFS_API int sfs_link_create(struct sfs_file *file, const char *path, const struct sfs_link *link);

/* H5Gcreate, with the groups on the way that are missing. path is absolute. -EEXIST; -ENOTDIR, -ENOENT:
 * what stands on the way is no group, or a link that leads nowhere; -EINVAL: it is not such a path. */
SFS_API int sfs_group_create(struct sfs_file *file, const char *path);

/* H5Ldelete of an empty group. path is absolute. -ENOENT; -ENOTDIR: it is not a group, or only a
 * link to one; -ENOTEMPTY; -EINVAL: it is not such a path, or that of the root; -EROFS. */
SFS_API int sfs_group_remove(struct sfs_file *file, const char *path);

/* ---- Datatypes ---- */

/* A datatype, or a dataspace with a selection in it, as H5Tencode and H5Sencode give it; a
 * dataspace in any of its versions. */
struct sfs_encoded {
    const void *bytes;
    size_t n;
};

/* The datatype of a name: of NumPy, such as uint16, <u2, >f4, bool, complex64, S10; str and ascii,
 * strings of any length in UTF-8 and ASCII; ref and regionref, references to objects and regions;
 * vlen:T, sequences of T; (2,3)T, arrays; compounds, {x:float32,"a b":str}; and enumerations,
 * enum:int8{IDLE:0,BUSY:1}. Encoded in *bytes, which the caller frees. -EINVAL: there is no such
 * type, the log says at which character. */
SFS_API int sfs_type_encode(const char *name, void **bytes, size_t *n);

/* Bytes of an element. -EINVAL: it is not a datatype. */
SFS_API int sfs_type_size(const struct sfs_encoded *type, size_t *size);

/* One element of an encoded datatype from text: numbers, nan, inf, true, false, names of
 * enumerations, strings of fixed length; and as JSON, which the caller frees. element has room for
 * it. -EINVAL: the text is not one, or does not fit; -EOPNOTSUPP: another datatype; as JSON: one with
 * pointers. */
SFS_API int sfs_element_parse(const struct sfs_encoded *type, const char *text, void *element);
SFS_API int sfs_element_json(const struct sfs_encoded *type, const void *element, char **json);

enum sfs_type_class {
    SFS_INTEGER,
    SFS_FLOAT,
    SFS_STRING, /* of fixed length */
    SFS_BITFIELD,
    SFS_OPAQUE, /* bytes without meaning here, or a number format that no machine type has */
    SFS_COMPOUND,
    SFS_REFERENCE,
    SFS_ENUM,
    SFS_VARIABLE, /* variable-length sequence or string */
    SFS_ARRAY,
};

enum sfs_reference {
    SFS_REFERENCE_OBJECT, /* H5T_STD_REF_OBJ */
    SFS_REFERENCE_REGION, /* H5T_STD_REF_DSETREG */
    SFS_REFERENCE_ANY,    /* H5T_STD_REF of libhdf5 1.12 and later */
};

struct sfs_type {
    enum sfs_type_class class;
    size_t size;     /* bytes of an element */
    bool big_endian; /* SFS_INTEGER, SFS_FLOAT, SFS_BITFIELD, SFS_ENUM */
    bool is_signed;  /* SFS_INTEGER, SFS_ENUM */
    bool is_boolean; /* SFS_ENUM of FALSE = 0 and TRUE = 1 in one byte, as h5py writes bool */
    bool is_string;  /* SFS_VARIABLE: a string */
    /* It is, or contains, a variable-length part or a reference: what stands in the file are
     * pointers into the file, which mean nothing outside it. */
    bool has_pointers;
    /* SFS_OPAQUE: not 0 of an integer that does not fill its bytes, which has so many bits from
     * bit_offset on; is_signed and big_endian say more of it. */
    unsigned bits, bit_offset;
    enum sfs_reference reference; /* SFS_REFERENCE */
    size_t n_members;             /* SFS_COMPOUND */
    struct sfs_member *members;
    int array_rank; /* SFS_ARRAY */
    uint64_t array_dims[SFS_MAX_RANK];
    struct sfs_type *base; /* SFS_ARRAY, SFS_VARIABLE that is no string */
    char *description;     /* one line of text, e.g. "32-bit big-endian integer"; only at the top */
};

struct sfs_member {
    char *name;
    size_t offset; /* bytes */
    struct sfs_type type;
};

/* Describes an encoded datatype, with sizes and places as libhdf5 has them in memory;
 * sfs_type_free frees what is in the description. -EINVAL: it is not a datatype, or one that is
 * nested more than 32 deep. */
SFS_API int sfs_type_describe(const struct sfs_encoded *type, struct sfs_type *description);
SFS_API void sfs_type_free(struct sfs_type *description);

/* A committed datatype in words. The caller frees *text. -EIO also: the object is none. */
SFS_API int sfs_datatype_text(struct sfs_file *file, uint64_t address, char **text);

/* ---- Datasets ---- */

enum sfs_space { SFS_SPACE_SIMPLE, SFS_SPACE_SCALAR, SFS_SPACE_NULL };
enum sfs_layout {
    SFS_COMPACT,
    SFS_CONTIGUOUS,
    SFS_EXTERNAL,
    SFS_CHUNKED,
    SFS_VIRTUAL,
    SFS_SPARSE, /* structured chunks: elements can be undefined, unless it is_dense */
};

struct sfs_filter {
    int id;                 /* as registered with the HDF Group */
    bool optional;          /* a chunk may have been stored without it */
    char name[64];          /* as the file or the library names it; "": not known */
    size_t n_values;        /* its parameters */
    const unsigned *values; /* owned by the description */
    bool is_missing;        /* of an open dataset: neither sparsefs nor libhdf5 has it here */
};

enum sfs_index_kind {
    SFS_INDEX_AUTOMATIC, /* of a new dataset: as HDF5 chooses it by the max dims */
    SFS_INDEX_SINGLE,    /* dims, max dims and chunk dims are the same */
    SFS_INDEX_FIXED_ARRAY,
    SFS_INDEX_EXTENSIBLE_ARRAY, /* one axis is unlimited */
    SFS_INDEX_BTREE,            /* version 2 */
};

/* The index over the chunks of a sparse dataset. Of a new one 0 stands for what HDF5 takes; a
 * number that its kind does not have must be 0. */
struct sfs_index {
    enum sfs_index_kind kind;
    unsigned page_bits; /* arrays: log2 of the elements of a page, 1 to 31 (HDF5: 10); fixed ones: a
                         * page, or all elements if they are fewer, has at most 256 MiB; extensible
                         * ones: pages must not be smaller than data_block_min_elements times
                         * super_block_min_blocks, nor than index_block_elements */
    /* Extensible arrays: */
    unsigned max_bits;                /* of the number of an element, 1 to 32 (32) */
    unsigned index_block_elements;    /* 1 to 255 (4) */
    unsigned data_block_min_elements; /* a power of two up to 128 (16) */
    unsigned super_block_min_blocks;  /* data blocks: a power of two, 2 to 128 (4) */
    /* B-trees: */
    unsigned node_size;                    /* bytes: three records at least, up to 1 MiB (2048) */
    unsigned split_percent, merge_percent; /* of a full node: up to 100, less than half of that
                                            * (100, 40) */
};

/* Which of the designs of the HDF Group's RFC the layout message of a sparse dataset follows. */
enum sfs_layout_message {
    SFS_LAYOUT_MESSAGE_PROTOTYPE, /* the order of its prototype, and of version 28 */
    SFS_LAYOUT_MESSAGE_22,        /* the order of version 22, table 13 */
    SFS_LAYOUT_MESSAGE_SECTIONED, /* "sectioned storage", section 3.1.2 of version 22 */
};

enum sfs_allocation {
    SFS_ALLOCATION_INCREMENTAL, /* H5D_ALLOC_TIME_INCR */
    SFS_ALLOCATION_EARLY,       /* of a sparse dataset: its index */
    SFS_ALLOCATION_LATE,
};

enum sfs_fill_time {
    SFS_FILL_IF_SET, /* H5D_FILL_TIME_IFSET */
    SFS_FILL_ALLOCATED,
    SFS_FILL_NEVER,
};

struct sfs_dataset_info {
    struct sfs_encoded encoded_type; /* of the file; owned by the description */
    enum sfs_space space;
    int rank; /* 0 for scalar and null dataspaces */
    uint64_t dims[SFS_MAX_RANK];
    uint64_t max_dims[SFS_MAX_RANK]; /* SFS_UNLIMITED where there is no limit */
    uint64_t elements;               /* product of dims; UINT64_MAX if it exceeds 63 bits */
    struct sfs_type type;
    void *fill;        /* one element in the file's datatype; NULL if type.has_pointers */
    bool fill_is_zero; /* all bytes of it */
    char *fill_json;   /* the fill value as JSON; NULL if type.has_pointers, or above 1 MiB */
    enum sfs_layout layout;
    uint64_t chunk_dims[SFS_MAX_RANK]; /* SFS_CHUNKED, SFS_SPARSE */
    size_t n_filters;
    struct sfs_filter *filters; /* in the order of writing; SFS_SPARSE: of the values section */
    size_t n_selection_filters; /* SFS_SPARSE: the same of the selection section */
    struct sfs_filter *selection_filters;
    size_t n_heap_filters; /* and of the section of variable-length data, if there is one */
    struct sfs_filter *heap_filters;
    bool unfiltered_edges; /* SFS_CHUNKED, SFS_SPARSE; this and what follows as in
                              sfs_dataset_create */
    enum sfs_allocation allocation;
    enum sfs_fill_time fill_time;
    struct sfs_index index; /* SFS_SPARSE; and so what follows */
    enum sfs_layout_message layout_message;
    bool rfc_encoding;
    bool is_dense; /* structured chunks of dense data: no element is undefined */
};

/* The first filter that is missing here, without which elements cannot be read; NULL: none is. */
SFS_API const struct sfs_filter *sfs_missing_filter(const struct sfs_dataset_info *info);

/* Opens a dataset; path is used in messages only. Opening one that is open already is cheap; if it has external raw
 * data, what other programs have written to that by then is read from then on.
 * Each successful call is paired with sfs_dataset_close. -EOPNOTSUPP: it is stored in a way which
 * this version does not know, and a line in the log says which. */
SFS_API int sfs_dataset_open(struct sfs_file *file, uint64_t address, const char *path,
                             struct sfs_dataset **dataset);
SFS_API void sfs_dataset_close(struct sfs_dataset *dataset);

/* Of a structured chunk: encoded selection, values, and what these lead to if they are of variable
 * length; else the last is empty, and has no filters. */
#define SFS_SECTIONS 3

/* What a new dataset is to be. */
struct sfs_dataset_create {
    int rank; /* 1 or more */
    uint64_t dims[SFS_MAX_RANK];
    uint64_t max_dims[SFS_MAX_RANK];   /* SFS_UNLIMITED where there is no limit */
    uint64_t chunk_dims[SFS_MAX_RANK]; /* H5Pset_struct_chunk */
    struct sfs_encoded type;
    const void *fill; /* H5Pset_fill_value: one element; NULL: zero, of what has parts of variable
                       * length there is no other */
    /* H5Pset_filter2 with a section, in the order of writing; the parameters of a filter of the
     * values section may be changed to suit the datatype, as libhdf5 does. */
    size_t n_filters[SFS_SECTIONS];
    const struct sfs_filter *filters[SFS_SECTIONS];
    bool version_1_selections; /* as the HDF5 prototype writes them, instead of the smallest */
    bool is_dense;             /* an ordinary chunked dataset, with filters[1]; */
    bool is_structured; /* if it is dense: in structured chunks of two sections, with filters[1]
                                  and [2]; of elements of variable length only */
    /* All attributes of this object are copied, unless the file is NULL. */
    struct sfs_file *attributes_file;
    uint64_t attributes_address;
    bool unfiltered_edges; /* H5Pset_chunk_opts: chunks over the edge are stored without filters */
    enum sfs_allocation allocation; /* H5Pset_alloc_time */
    enum sfs_fill_time fill_time;   /* H5Pset_fill_time */
    /* Of a sparse dataset: */
    struct sfs_index index;
    enum sfs_layout_message layout_message;
    /* As version 22 of the RFC has it, not its prototype: the type of chunks as bits, section
     * filters as message 0x000b version 3, versions 0 in the index. Sectioned storage is always so;
     * with elements of variable length, so is SFS_LAYOUT_MESSAGE_22, and that of the prototype never
     * (-EOPNOTSUPP). */
    bool rfc_encoding;
};

/* H5Dcreate: a new dataset, sparse unless it says otherwise, with the groups on the way that are
 * missing. path is absolute. Closed with sfs_dataset_close. -EEXIST, -ENOTDIR, -ENOENT: as of
 * sfs_group_create; -EINVAL: dims, chunk dims, fill value, filters, index or its numbers cannot be;
 * -EFBIG: so large chunks, or so many, cannot be; -EOPNOTSUPP: a datatype with references that
 * are SFS_REFERENCE_ANY, or with more than 65,536 parts of variable length and references; an
 * ordinary dense one with references among such parts, or of which libhdf5 would lose some (arrays
 * of compounds with such parts, in arrays or sequences; arrays of sequences of such compounds); or a
 * filter that is not available; -EROFS: the file is open for reading. The log says why. */
SFS_API int sfs_dataset_create(struct sfs_file *file, const char *path,
                               const struct sfs_dataset_create *create,
                               struct sfs_dataset **dataset);

/* The address of its object header. */
SFS_API uint64_t sfs_dataset_address(const struct sfs_dataset *dataset);

/* The description; valid until the dataset is closed. dims and elements change with sfs_set_extent
 * and sfs_extend: where other threads may be calling these, take the dims from sfs_dataset_dims. */
SFS_API const struct sfs_dataset_info *sfs_dataset_info(const struct sfs_dataset *dataset);

/* The current dims; NULL: they are not wanted. Returns a change counter of the dims. */
SFS_API uint64_t sfs_dataset_dims(struct sfs_dataset *dataset, uint64_t *dims);

/* A change counter: differs after every call that changes elements or dims of the dataset; 0 during
 * such a call. What was read between two calls that return the same value, not 0, is unchanged at
 * the second; of a virtual dataset all changes of its file count, but none of other files. */
SFS_API uint64_t sfs_dataset_changes(const struct sfs_dataset *dataset);

/* A box of elements of a dataset. rank is that of the dataset, but 1 (start 0, count 1) for a
 * scalar dataspace. */
struct sfs_slab {
    int rank;
    uint64_t start[SFS_MAX_RANK];
    uint64_t count[SFS_MAX_RANK];
};

/* Reads n bytes from byte offset on of the row-major dense view of slab into buffer; undefined and
 * unallocated elements read as the fill value. The range must lie inside the view. -EOPNOTSUPP if
 * type.has_pointers, -EINVAL if slab or range are out of bounds. */
SFS_API int sfs_read(struct sfs_dataset *dataset, const struct sfs_slab *slab, uint64_t offset,
                     void *buffer, size_t n);

/* ---- The sources of virtual datasets ----
 *
 * They are looked for by an absolute name, or beside the file, where options->external_files and
 * for_others allow them, and opened when they are first read. Elements that no mapping shows are
 * the fill value, as are those of unlimited mappings that are not there (yet). Other elements that
 * a source should have, and has not, are -EIO, unless options said fill_missing; what is refused,
 * or cannot be looked at (the disk fails, there are no descriptors), is -EIO all the same. */

enum sfs_source_state {
    SFS_SOURCE_OK,      /* of one that was not needed yet: there is such a file */
    SFS_SOURCE_MISSING, /* the file, or the dataset in it */
    SFS_SOURCE_SHORT,   /* it has not all that is mapped */
    SFS_SOURCE_UNREADABLE,
    SFS_SOURCE_NUMBERED, /* its names have %b in them, and stand for many */
    SFS_SOURCE_REFUSED, /* it leads out of the folders that are allowed, or shows others too much */
};

struct sfs_source {
    char *file, *dataset; /* as the virtual dataset names them; "." is its own file */
    enum sfs_source_state state;
};

struct sfs_sources {
    size_t n;
    struct sfs_source *source;
    uint64_t total; /* also of those that were left out */
};

/* At most so many sources of a virtual dataset. Where it has few mappings they are opened for that.
 * The caller frees them with sfs_sources_free. -EOPNOTSUPP: it is not virtual, or its file is
 * followed, or it is a scalar, or its elements have pointers. */
SFS_API int sfs_virtual_sources(struct sfs_dataset *dataset, size_t most,
                                struct sfs_sources *sources);
SFS_API void sfs_sources_free(struct sfs_sources *sources);

/* Memory that holds a range of bytes of a dense view already, lent without copying. */
struct sfs_loan {
    const void *bytes;
    void *holder; /* what must not go away meanwhile */
};

/* As sfs_read, but lends the bytes where they lie without a gap in a cached chunk or, stored as
 * they are, in the file; false where they do not (nothing is lent, nothing is wrong). *error is 0
 * or what sfs_read would return. A loan keeps memory from being evicted: give it back soon with
 * sfs_return. The bytes may be a mapping of the file, which may shrink: hand them to a system call
 * such as write(2), which then fails with EFAULT; a program that touches them itself may die of
 * SIGBUS. */
SFS_API bool sfs_lend(struct sfs_dataset *dataset, const struct sfs_slab *slab, uint64_t offset,
                      size_t n, struct sfs_loan *loan, int *error);
SFS_API void sfs_return(struct sfs_dataset *dataset, struct sfs_loan *loan);

/* The same, and where nothing is lent the n bytes are read into the buffer, as sfs_read does, but
 * what was found for the one serves for the other. */
SFS_API bool sfs_lend_or_read(struct sfs_dataset *dataset, const struct sfs_slab *slab,
                              uint64_t offset, size_t n, void *buffer, struct sfs_loan *loan,
                              int *error);

/* The same after the last read of the chunk in which the bytes lie: it need not be kept, and its
 * memory, which is still in the processor's cache, is reused first. */
SFS_API void sfs_return_last(struct sfs_dataset *dataset, struct sfs_loan *loan);

/* Intervals of row-major positions in a slab, ascending, with gaps between them. */
struct sfs_interval {
    uint64_t first; /* position */
    uint64_t index; /* the number of defined elements before it */
};

struct sfs_defined {
    size_t n;
    struct sfs_interval *interval; /* n, and one more whose index is elements; its first is 0 */
    uint64_t elements;             /* defined, in all */
};

/* A part of variable length of an element: n elements without a gap, as they stand in the file, or
 * the n bytes of a string without what ends it, or of a reference (see below). In buffers elements
 * are as the description of the datatype has them, with this in place of each such part, also in
 * the elements that it leads to. Where members of compounds are not aligned it is not either, and
 * is to be copied with memcpy. */
struct sfs_sequence {
    union {
        const void *elements;
        uint64_t width; /* not to be used: it makes the struct as wide as such an element */
    };
    uint64_t n;
};

/* ---- References ----
 *
 * In elements of sparse datasets they are such parts, of bytes: none of one that leads nowhere; of
 * an object its address in the file; of a region the address of a dataset and what is selected of it.
 * They mean nothing in another file. */

/* The bytes of a reference to the object at an address, or, unless space is NULL, to what it selects
 * of the dataset there, whose rank and dims are those of space. The caller frees *bytes. -EINVAL: it
 * is no dataspace of one dimension or more. */
SFS_API int sfs_reference_encode(uint64_t address, const struct sfs_encoded *space, void **bytes,
                                 size_t *n);

/* The address that a reference of either kind leads to; 0: nowhere. Of what is damaged, or leads to
 * what was removed, it may be any, as sfs_object_type says. */
SFS_API uint64_t sfs_reference_address(const struct sfs_sequence *reference);

/* What a region reference selects of the dataset that it leads to: a dataspace of its rank and dims.
 * The caller frees *space. -EINVAL: it selects nothing that this dataset has. */
SFS_API int sfs_reference_region(struct sfs_dataset *dataset, const struct sfs_sequence *reference,
                                 void **space, size_t *n);

/* ---- Reading and writing selections ----
 *
 * space: which elements of the dataset, a dataspace of its rank and dims; memory_space: where they
 * are in buffer, with as many elements selected, which correspond in the order of the selections;
 * type: the datatype of the elements in buffer. NULL stands for all elements (of a dataspace like
 * that of the dataset: memory_space NULL means what `space` means there, as H5S_ALL does), and for
 * the file's datatype. -EINVAL: a selection is not one, or does not fit; -EOPNOTSUPP: no conversion
 * between these datatypes, or elements with pointers; but those that sfs_dataset_create makes are
 * written, with struct sfs_sequence in them (type NULL), and read by sfs_read_variable. */

/* H5Dread. Undefined elements read as the fill value. */
SFS_API int sfs_dataset_read(struct sfs_dataset *dataset, const struct sfs_encoded *type,
                             const struct sfs_encoded *memory_space,
                             const struct sfs_encoded *space, void *buffer);

/* The same of elements with parts of variable length of a sparse dataset: *n of them, of type.size
 * bytes, in the order of the selection; in what is not defined such parts are empty, and all else
 * is zero. They and all that they lead to are in one block of memory, which the caller frees.
 * -EOPNOTSUPP: the dataset has no such elements, or stores them in another way. */
SFS_API int sfs_read_variable(struct sfs_dataset *dataset, const struct sfs_encoded *space,
                              void **elements, uint64_t *n);

/* The same of a slab, in row-major order, of dense datasets, too. Elements of those that are not
 * structured have, whatever sfs_dataset_info says, where type is what libhdf5 has in memory, the form of
 * structured ones of the same datatype. That is: a struct sfs_sequence (16 bytes) in place of each string or
 * sequence, of 8 and 16 bytes there; in arrays so many of these one after the other; in compounds all
 * members behind one that became larger, and the end, are moved by what it grew, gaps kept; all else is as it
 * is. -EINVAL: it is out of bounds; of those that are not structured -EFBIG: a single element takes more
 * than 128 MiB; -EOPNOTSUPP: they have references. */
SFS_API int sfs_read_elements(struct sfs_dataset *dataset, const struct sfs_slab *slab,
                              void **elements);

/* As sfs_read_variable where an element is nothing but a string or a sequence. -EOPNOTSUPP: it is
 * not. */
SFS_API int sfs_read_sequences(struct sfs_dataset *dataset, const struct sfs_encoded *space,
                               struct sfs_sequence **sequences, uint64_t *n);

/* H5Dwrite. The elements become defined. */
SFS_API int sfs_dataset_write(struct sfs_dataset *dataset, const struct sfs_encoded *type,
                              const struct sfs_encoded *memory_space,
                              const struct sfs_encoded *space, const void *buffer);

/* The same for a slab, row-major and without gaps in buffer, in the file's datatype; parts of
 * variable length are struct sfs_sequence, and elements of dense datasets that are not structured
 * are as sfs_read_elements has them. Of these, which libhdf5 writes: -EOPNOTSUPP: it would lose some
 * (arrays of compounds with parts of variable length, in arrays or sequences; arrays of sequences of
 * such compounds); -EINVAL: a string has a zero byte, at which it would end; -EFBIG: an element has
 * more than 64 MiB. The log says so, and elements before may have been written. */
SFS_API int sfs_write(struct sfs_dataset *dataset, const struct sfs_slab *slab, const void *buffer);

/* The same for only some elements of a slab: `defined` says which, the values are packed. What it
 * does not name stays as it is. Positions are in the slab, ascending. */
SFS_API int sfs_write_values(struct sfs_dataset *dataset, const struct sfs_slab *slab,
                             const struct sfs_defined *defined, const void *values);

/* Writes n bytes from byte offset on of the row-major dense view of slab: the counterpart of
 * sfs_read. The elements touched become defined; one that is touched in part keeps its other bytes,
 * from its value or the fill value, and as others write them meanwhile. sparsify: those that equal
 * the fill value then are erased instead (of a dense dataset they are written). -EINVAL as
 * sfs_read. */
SFS_API int sfs_write_bytes(struct sfs_dataset *dataset, const struct sfs_slab *slab,
                            uint64_t offset, const void *bytes, size_t n, bool sparsify);

/* H5Derase. The elements become undefined; the chunks in which none is left are deleted.
 * -EOPNOTSUPP: the dataset is not sparse. */
SFS_API int sfs_dataset_erase(struct sfs_dataset *dataset, const struct sfs_encoded *space);
SFS_API int sfs_erase(struct sfs_dataset *dataset, const struct sfs_slab *slab);

/* Erases n elements from row-major position first of slab on. Of a dense dataset they become the
 * fill value, all of which is written: of more than 64 GiB that is -EFBIG, and nothing changes. */
SFS_API int sfs_erase_range(struct sfs_dataset *dataset, const struct sfs_slab *slab,
                            uint64_t first, uint64_t n);

/* H5Dget_defined: the selection of those elements of space that are defined, as a dataspace of the
 * dataset's rank and dims; of points a list of points in the same order, also again. Of a dataset
 * that is not sparse: a copy of space. The caller frees *defined. */
SFS_API int sfs_dataset_get_defined(struct sfs_dataset *dataset, const struct sfs_encoded *space,
                                    void **defined, size_t *n);

/* H5Dset_extent: new dims, within the max dims. Elements outside of them are erased. Waits for
 * other calls on this dataset, which see the dims of before or of after; not to be called by the
 * function that sfs_chunk_iterate calls. -EINVAL, also for more than 2^63 - 1 elements; -EFBIG: it
 * would grow to more chunks than its index can hold (arrays: 2^32); -EOPNOTSUPP (neither sparse nor
 * chunked; smaller, and sparse with other elements of variable length than sfs_dataset_create
 * makes). After another error the dims are those of before, but what lies outside of smaller ones may be erased
 * already. */
SFS_API int sfs_set_extent(struct sfs_dataset *dataset, const uint64_t *dims);

/* The same, but no dim becomes less than it is: for several threads that append. */
SFS_API int sfs_extend(struct sfs_dataset *dataset, const uint64_t *dims);

/* The same, and then an action, which may call anything on this dataset except what changes its
 * dims. If the action fails its error is returned, and the dims are the old ones: no other call has
 * seen the new ones. */
SFS_API int sfs_extend_with(struct sfs_dataset *dataset, const uint64_t *dims,
                            int (*action)(void *context), void *context);

/* Before a change that may have to be undone: whether so many bytes of chunks, or all that the cache may take, can be
 * changed without waiting for the disk. If not, chunks are stored, and the error is why they cannot be (-ENOSPC).
 * Nothing is reserved: other threads may take the room. -EINTR. */
SFS_API int sfs_make_room(struct sfs_dataset *dataset, uint64_t bytes);

/* H5Dflush: as sfs_flush, which flushes all datasets. */

/* H5SC_flush_dset: encodes what was changed in one dataset and puts it into the file's next commit,
 * which sfs_flush is. evict: what the cache has of the dataset goes then, but for chunks that
 * are in use, or that could not be stored. Of a dataset that has nothing in the cache, as libhdf5
 * reads it, nothing is done. */
SFS_API int sfs_flush_dataset(struct sfs_dataset *dataset, bool evict);

/* ---- Several datasets in one call ---- */

enum sfs_io_flags {
    /* Reading leaves no trace in the cache: chunks that were not there go when they have been read,
     * and those that are count as not used. For what is read once. (Writing: nothing.) */
    SFS_SKIP_CACHE = 1,
};

/* H5D_dset_io_info_t of the shared chunk cache RFC: elements of one dataset. */
struct sfs_io {
    struct sfs_dataset *dataset;
    const struct sfs_slab *slab; /* row-major and without gaps in memory, in the file's datatype;
                                  * NULL: these three, as of sfs_dataset_read, are looked at */
    const struct sfs_encoded *type, *memory_space, *space;
    union {
        void *to;         /* sfs_read_many */
        const void *from; /* sfs_write_many */
    };
    unsigned flags; /* of enum sfs_io_flags */
};

/* H5Dread_multi: reads elements of n datasets of one file, or of one, several times. Chunks of
 * slabs are looked up, read and decoded together, with those of the next dataset; those that lie
 * beside each other are read by one call of the system. Everything is checked before anything is
 * read; errors as sfs_read and sfs_dataset_read, -EINVAL also for datasets of several files, and
 * for a slab with a selection. */
SFS_API int sfs_read_many(const struct sfs_io *io, size_t n);

/* H5Dwrite_multi: the same for writing, in the order of the list. Everything is checked before
 * anything is changed: where it is refused (-EROFS, -EINVAL, -EOPNOTSUPP, -EFBIG) nothing is. */
SFS_API int sfs_write_many(const struct sfs_io *io, size_t n);

/* The elements of slab, which may lie behind the dims and of which nothing is committed yet (what
 * is may be left out, too), are unfinished until the second call: what is written to them, and of a
 * sparse dataset the growth of its first dim to or over them, is left out of what sfs_flush
 * commits, so that a follower of the file sees all of it or nothing. But growth over them is
 * committed by sfs_flush if something behind them was unfinished and is not any more. They are
 * committed all the same when memory is short, and with other elements of their chunk if the
 * dataset is not sparse. Must end before the dataset is closed; NULL is fine. Until then the
 * exclusive lock is held, as by sfs_begin_writing, whose errors it has; -EINVAL; -ENOMEM;
 * -EOPNOTSUPP: dense, with pointers. */
struct sfs_unfinished;
SFS_API int sfs_begin_unfinished(struct sfs_dataset *dataset, const struct sfs_slab *slab,
                                 struct sfs_unfinished **unfinished);
SFS_API void sfs_end_unfinished(struct sfs_unfinished *unfinished);

/* ---- What is defined: of a dataset that is not sparse, everything ---- */

/* The defined elements of slab. Only selections are read, no values. The caller frees them with
 * sfs_defined_free. Errors as sfs_read; -EOPNOTSUPP does not arise. */
SFS_API int sfs_get_defined(struct sfs_dataset *dataset, const struct sfs_slab *slab,
                            struct sfs_defined *defined);
SFS_API void sfs_defined_free(struct sfs_defined *defined);

/* Makes exactly these elements of slab defined: others are erased, new ones get the fill value,
 * those that were defined and stay so keep their values. -EINVAL: positions are not ascending or
 * outside of slab; -EOPNOTSUPP: the dataset is not sparse, or its elements have pointers. */
SFS_API int sfs_set_defined(struct sfs_dataset *dataset, const struct sfs_slab *slab,
                            const struct sfs_defined *defined);

/* Their number alone. It takes the chunk index only for chunks that lie wholly in slab, or reach
 * out of it only over an edge of the dataset where dim and max dim are the same. */
SFS_API int sfs_count_defined(struct sfs_dataset *dataset, const struct sfs_slab *slab,
                              uint64_t *elements);

/* Reads the values of n defined elements, packed, from the first-th of `defined` on, which came
 * from sfs_get_defined of this slab. Errors as sfs_read. */
SFS_API int sfs_read_values(struct sfs_dataset *dataset, const struct sfs_slab *slab,
                            const struct sfs_defined *defined, uint64_t first, uint64_t n,
                            void *buffer);

/* The selection of the defined elements of slab as H5Sencode would encode it in a dataspace of the
 * last space_rank axes of slab (the others have count 1), in the smallest form that libhdf5 1.10
 * decodes: all, none, hyperslabs or points; where coordinates of 32 bits do not suffice, that
 * libhdf5 1.12 decodes. The caller frees *encoded. */
SFS_API int sfs_encode_defined(struct sfs_dataset *dataset, const struct sfs_slab *slab,
                               int space_rank, void **encoded, size_t *n);

/* The reverse: n bytes in any form and version that H5Sencode has, of a dataspace whose dims are
 * those of the last space_rank axes of slab (the others have count 1), become positions in slab.
 * The caller frees them with sfs_defined_free. -EINVAL: they cannot be decoded, have other dims,
 * are out of bounds, or bytes are left over; the log says why. -ENOMEM, also for absurdly many. */
SFS_API int sfs_decode_defined(struct sfs_dataset *dataset, const struct sfs_slab *slab,
                               int space_rank, const void *encoded, size_t n,
                               struct sfs_defined *defined);

/* ---- Stored chunks of sparse and of chunked datasets ----
 *
 * Those of a chunked dataset have no section 0; their bytes are section 1. -EOPNOTSUPP: the dataset
 * has another layout, or is chunked and has pointers. */

/* H5D_struct_chunk_info_t of the sparse storage RFC, and where the chunk is. */
struct sfs_chunk_info {
    uint64_t start[SFS_MAX_RANK];           /* of the chunk, in elements */
    uint64_t address;                       /* in the file */
    uint64_t size;                          /* bytes stored */
    uint64_t section_size[SFS_SECTIONS];    /* bytes of each section as stored */
    uint64_t unfiltered_size[SFS_SECTIONS]; /* before its filters */
    uint32_t filter_mask[SFS_SECTIONS];     /* bit i: filter i was not applied, also because chunks
                                             * over the edge have no filters */
};

/* H5Dget_struct_chunk_info_by_coord, H5Dget_chunk_info_by_coord: the chunk that element `start`
 * lies in. What was changed in it is stored first, nothing else. -ENOENT: nothing is stored for it;
 * -EINVAL: `start` lies outside of the dims. */
SFS_API int sfs_chunk_info(struct sfs_dataset *dataset, const uint64_t *start,
                           struct sfs_chunk_info *info);

/* H5Dstruct_chunk_iter, H5Dchunk_iter: calls each for every stored chunk; what it returns ends the
 * iteration unless it is 0, and is returned. each may read and write this dataset and others, but change
 * the dims of none, nor close this one. Of a chunked dataset it takes time for every place of a chunk,
 * whether one is stored there or not. -EAGAIN: the file is followed and has moved on: what was told is
 * to be discarded. */
typedef int (*sfs_chunk_function)(void *context, const struct sfs_chunk_info *info);
SFS_API int sfs_chunk_iterate(struct sfs_dataset *dataset, sfs_chunk_function each, void *context);

/* H5Dread_struct_chunk, H5Dread_chunk: the stored bytes of the chunk that element `start` lies in,
 * section by section and filtered as they are, into sections[0] of info->section_size[0] bytes, and
 * so on; a NULL section is left out. info must be what sfs_chunk_info said: -ESTALE if it no longer
 * is, also when they have been read (of a dense chunk only if it has another place or size); other
 * errors are those of sfs_chunk_info. */
SFS_API int sfs_read_chunk(struct sfs_dataset *dataset, const struct sfs_chunk_info *info,
                           void *const sections[SFS_SECTIONS]);

/* H5Dwrite_struct_chunk, H5Dwrite_chunk: stores a chunk from ready sections of info->section_size
 * bytes, filtered as info->filter_mask says. Section 0 is an encoded selection with its checksum.
 * They are checked as if they had been read from a file. info->start is the chunk; address and size
 * are not looked at. -EINVAL: the sections are not a chunk of this dataset. */
SFS_API int sfs_write_chunk(struct sfs_dataset *dataset, const struct sfs_chunk_info *info,
                            const void *const sections[SFS_SECTIONS]);

/* ---- Filters ----
 *
 * What makes the sections of sfs_write_chunk, and reads those of sfs_read_chunk: deflate, shuffle,
 * fletcher32, and of bitshuffle, LZ4, Zstandard, Blosc, Blosc2, bzip2, LZF and szip what this build
 * has. Parameters are those that stand in a file (struct sfs_dataset_info). -EOPNOTSUPP: not all of
 * them are built in with these parameters. */

/* Puts the name of the i-th library that they are made with into text, and its version as it says
 * it when it is used, e.g. "liblz4 1.9.4"; cut to n bytes with the zero behind. libaec does not say
 * its version. false: there are no more. */
SFS_API bool sfs_filter_library(size_t i, char *text, size_t n);

/* Applies filters to n bytes, first to last. The caller frees *encoded, which is NULL of 0 bytes;
 * bit i of *mask: filter i, which is optional, was not applied. -EINVAL: a filter does not take
 * these bytes, or its parameters; -ENOMEM. */
SFS_API int sfs_filters_encode(const struct sfs_filter *filters, size_t n_filters,
                               const void *bytes, size_t n, void **encoded, size_t *n_encoded,
                               uint32_t *mask);

/* The reverse, which must make exactly n bytes. -EIO, with no line in the log: the bytes are
 * damaged; -ENOMEM. */
SFS_API int sfs_filters_decode(const struct sfs_filter *filters, size_t n_filters, uint32_t mask,
                               const void *encoded, size_t n_encoded, void *bytes, size_t n);

/* ---- Checking ---- */

enum sfs_finding {
    SFS_SOUND, /* a group or a dataset has been looked at, and nothing is wrong with it */
    /* Something is wrong, or of metadata cannot be read: which dataset, which structure, at which address */
    SFS_DAMAGED,
    SFS_UNKNOWN, /* something could not be looked at: a filter is missing, the way in which it is
                  * stored is unsupported, the disk does not give a chunk of a sparse dataset */
};

typedef void (*sfs_check_function)(void *context, enum sfs_finding finding, const char *line);

/* Verifies a file that is open for reading: opens everything in its tree; of sparse datasets reads
 * all of header, chunk index and chunks, which are decoded; and looks whether all these and the
 * chunks of dense datasets lie in the file and not over each other. What it finds goes to report,
 * in this thread, and not to the log, which has only what the disk refuses to read of metadata, and
 * that a process of libhdf5 has ended. -EINVAL: the file is open for writing; -EAGAIN: it is
 * followed and has moved on: what was reported is to be discarded; -EINTR: so it is then;
 * -ENOMEM. */
SFS_API int sfs_check(struct sfs_file *file, sfs_check_function report, void *context);

/* All elements as text: a single value bare, otherwise one line per row of the last axis, values
 * separated by a space, strings of arrays quoted; a line's end closes each. -EFBIG if it exceeds
 * limit bytes. The caller frees *text. */
SFS_API int sfs_text(struct sfs_dataset *dataset, size_t limit, char **text, size_t *n);

/* What is read of elements that are not of one length. */
enum sfs_parts {
    SFS_LENGTHS,   /* of sequences, in elements, or of strings, in bytes, as they stand in the file:
                    * a uint64_t for each. What they lead to is not read */
    SFS_SEQUENCES, /* the elements of sequences, one after the other, as they stand in the file */
    SFS_LINES,     /* a line of text for each: strings, names and paths with \\, \n and \r for
                    * backslashes and ends of lines, all else as sfs_text has it */
    SFS_JSON,      /* a line for each, which is its value as JSON: compounds are objects, arrays and
                    * sequences are lists, references strings or null */
};
#define SFS_MOST_PARTS 65536 /* elements at a time */

/* Parts of n elements, the first-th on in row-major order: of variable length (the first two), or
 * of any kind (lines, JSON). The caller frees *bytes. -EFBIG: more than `most` bytes; -EINVAL: there are
 * not so many elements; -EOPNOTSUPP: they have no such parts, are raw data in other files, or have
 * references in structured chunks that stand there themselves, as H5T_STD_REF. Strings and sequences that
 * are not defined are empty, references null. Errors as of sfs_read of sources of a virtual one, and of chunks. */
SFS_API int sfs_read_parts(struct sfs_dataset *dataset, enum sfs_parts parts, uint64_t first,
                           uint64_t n, size_t most, char **bytes, size_t *bytes_n);

#endif
