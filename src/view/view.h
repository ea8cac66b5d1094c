/* Views: the virtual files of one dataset. Bytes of a view on one side, elements of a frame or of
 * the whole dataset on the other. Knows datasets by the public interface only, and nothing of FUSE.
 *
 * A view is a head (a NumPy or TIFF header, a text, an encoded selection, or nothing) followed by a
 * body (elements of a slab, computed index arrays, or nothing). Heads that are the same for every
 * frame are made once per dataset and shape, so that the size of any frame's view costs no more than
 * a comparison. Of a sparse dataset sizes come from the chunk index where that can tell them, and
 * what is defined in a frame is kept for a while, so that several requests work it out once.
 * Functions that return int return 0 or a negative errno. All may be called from any thread, but
 * views_close after all others. */
#ifndef SPARSEFS_VIEW_VIEW_H
#define SPARSEFS_VIEW_VIEW_H

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "sparsefs/sparsefs.h"

enum view_kind {
    /* of one frame */
    VIEW_RAW,     /* dense, file byte order, no header */
    VIEW_DEFINED, /* the selection of the defined elements, as H5Sencode encodes it */
    VIEW_NPY,     /* dense behind a NumPy header */
    VIEW_TIFF,    /* dense behind a TIFF header */
    VIEW_VALUES,  /* only the defined values */
    VIEW_PNG,     /* a preview */
    VIEW_CBF,     /* 32-bit integers as crystallographers have them */
    VIEW_NPZ,     /* the defined elements and their values, as scipy.sparse has them */
    VIEW_CHUNK,   /* as raw, under the name of a chunk of Zarr */
    /* of the whole dataset */
    VIEW_STACK_RAW,
    VIEW_STACK_NPY,
    VIEW_STACK_TIFF, /* pages behind and before their directories */
    VIEW_CSR_INDPTR,
    VIEW_CSR_INDICES,
    VIEW_CSR_DATA,
    VIEW_CSR_TOML,
    VIEW_DATASET_JSON,
    VIEW_VALUE_TXT,
    VIEW_CSV,
    VIEW_ZARRAY, /* texts beside the chunks */
    VIEW_ZATTRS,
    VIEW_OFFSETS, /* of sequences: where each begins among */
    VIEW_RAGGED,  /* the elements of all */
    VIEW_LINES,   /* what only text can show, a line for each element */
    VIEW_KINDS,
};

/* Bytes that stand before a body. */
struct view_head {
    char *bytes;
    size_t n;
};

/* The pixel mask that belongs to the frames (pixel.h). */
struct pixel_mask {
    bool is_known;
    unsigned char *pixels; /* one for each, 0 is good; NULL: there is no mask */
    size_t n;
    struct sfs_dataset *dataset; /* that it is read from: once it was found, open as long as the views; or NULL */
    _Atomic bool is_watched;     /* the pixels are those of dataset, as of `changes`; read without the lock, too */
    _Atomic uint64_t changes;    /* the sfs_dataset_changes that they are of */
};

struct counts;
struct defined_frame;
struct kept_text;
struct parts_index;

/* A piece of elements of variable length that was read last (variable_length_files.c). */
struct parts_kept {
    const struct parts_index *index;
    size_t piece;
    char *bytes; /* NULL: nothing */
    size_t n;
};

/* What is defined in the frames of a sparse dataset that were asked for last, and what was made of
 * frames (frame_cache.c). */
struct defined_frames {
    pthread_mutex_t lock;       /* guards what follows */
    pthread_cond_t made;        /* an entry is no longer being made */
    struct defined_frame *list; /* most recently used first */
    size_t n;
    size_t bytes; /* of what the entries hold */
};

/* A dataset cut into frames, with what its views have in common. Several of them can be of one
 * dataset, and others can write to it: what is kept is current if sfs_dataset_changes is what it
 * was before that was made. */
struct views {
    struct sfs_file *file;
    struct sfs_dataset *dataset;
    const struct sfs_dataset_info *info;
    struct sfs_dataset_info shown; /* has_padding: info is this, with plain integers */
    bool has_padding; /* elements are integers that do not fill their bytes: shown as if they did */
    uint64_t address;
    char *path;
    int frame_rank;          /* the last axes of the dataset that are the frame */
    bool is_sparse;          /* elements can be undefined */
    bool has_holes;          /* sparse, and the fill value is all zero bytes */
    bool chunks_span_frames; /* sparse */

    /* Held for reading while a view is used, for writing while the geometry below is recomputed
     * because the dims have changed. */
    pthread_rwlock_t geometry_lock;
    _Atomic uint64_t extent; /* the sfs_dataset_dims that it is of; also read without the lock */
    uint64_t dims[SFS_MAX_RANK];
    uint64_t elements;       /* UINT64_MAX: they exceed 63 bits */
    uint64_t frames;         /* number of them; 0 for a null dataspace */
    uint64_t frame_elements; /* UINT64_MAX: too many for one file */
    uint64_t frame_bytes;    /* the same */
    uint64_t total_bytes;    /* the same */
    bool has_open_edges;     /* sparse: chunks reach over an edge of frames that may move */
    uint64_t frame_chunks;   /* sparse: that a frame touches */
    struct view_head heads[VIEW_KINDS]; /* that are the same for all frames; n = 0: none */
    uint64_t tiff_tail;                 /* bytes behind the frames in stack.tif */

    pthread_mutex_t lock; /* guards what follows, which is made on first use */
    struct kept_text *json, *text, *csv, *zattrs;
    struct pixel_mask mask;
    struct view_head cbf_facts; /* lines of all its headers, */
    uint64_t cbf_states;        /* as of this sfs_states */
    pthread_mutex_t counting;   /* serialises counting; taken before count_lock */
    pthread_mutex_t count_lock; /* guards what follows, made on first use (count_defined.c) */
    struct counts *counts;
    uint64_t total;         /* defined elements */
    uint64_t total_changes; /* the sfs_dataset_changes that it is of; 0: it is not known */
    struct defined_frames defined_frames;
    pthread_mutex_t parts_lock; /* guards what follows, made on first use */
    struct parts_index *parts;
    uint64_t parts_refused;          /* the sfs_dataset_changes of which there are too many; or 0 */
    struct parts_kept parts_kept[2]; /* of values or lines, and of offsets */
};

/* Opens a dataset for viewing; path is its HDF5 path. frame_rank < 0 asks for the default: of three
 * and more dims all but the first, otherwise all; a number above the rank counts as the rank. path is
 * copied; file must outlive *views, which the caller closes and an error leaves as it is. Errors of
 * sfs_dataset_open and sfs_encode_defined; -ENOMEM. views_close(NULL) is allowed. */
int views_open(struct sfs_file *file, uint64_t address, const char *path, int frame_rank,
               struct views **views);
void views_close(struct views *views);

/* How many frames there are now; 0 for a null dataspace. */
uint64_t views_frames(struct views *views);

/* The most bytes that the encoded selection of a frame can need; UINT64_MAX: too many to say. */
uint64_t views_selection_limit(struct views *views);

/* Bytes of all that is kept: texts, the pixel mask, what is known of sparse frames, the index and the
 * last pieces of elements of variable length. */
size_t views_kept_bytes(struct views *views);

/* Whether the dataset has this view at all: its datatype and dims can fill it. */
bool view_exists(struct views *views, enum view_kind kind);

/* The name of a frame as a chunk of Zarr, of fewer than n bytes, for which 256 are enough; and the
 * reverse, also of frames behind the last. False: it is no such name. */
void view_chunk_name(struct views *views, uint64_t frame, char *name, size_t n);
bool view_chunk_frame(struct views *views, const char *name, uint64_t *frame);

/* Whether its size and allocated bytes are known without reading data, for every frame at the cost
 * of a few look-ups in an index. */
bool view_size_is_cheap(struct views *views, enum view_kind kind);

/* The size of a view in bytes. frame < views_frames(views) where the view is of one frame. */
int view_size(struct views *views, enum view_kind kind, uint64_t frame, uint64_t *size);

/* The same for stat(2), which archivers believe, so that all of a text is read to find out how long it
 * is. False: it cannot be read, and *size is 1, as tar(1) does not open files of size 0. */
bool view_size_to_show(struct views *views, enum view_kind kind, uint64_t frame, uint64_t *size);

/* Before a view is read: finds out what its size depends on. Afterwards the size is known until
 * the next write. Errors of reading, -EIO and others: it cannot be read. */
int view_prepare(struct views *views, enum view_kind kind, uint64_t frame);

/* How many of its `size` bytes are no holes: header and defined elements, as the index counts them
 * where it can. All of them where there are no holes or the number cannot be found out; of a CBF
 * file, whose padding is a hole, a lower bound. */
uint64_t view_allocated(struct views *views, enum view_kind kind, uint64_t frame, uint64_t size);

/* SEEK_DATA (data) and SEEK_HOLE of lseek(2) from offset on. What is reported as data may hold
 * undefined elements, never the reverse. -ENXIO: offset is at or past the end, or (data) past the
 * last data. Errors of sfs_get_defined and, of CBF files, of sfs_read. */
int view_seek(struct views *views, enum view_kind kind, uint64_t frame, uint64_t offset, bool data,
              uint64_t *found);

/* A part of a view: either in the caller's buffer or lent by the cache. */
struct view_part {
    const void *bytes;
    size_t n;
    struct sfs_loan loan; /* holder is NULL if nothing is lent */
};

/* What is read of a view: n bytes from an offset on; buffer has room for them. is_used: nothing is lent, for who looks
 * at the bytes himself. What is lent may be a map of a file, which only the kernel may read: whoever cuts the file
 * short would end the program. */
struct view_room {
    uint64_t offset;
    size_t n;
    void *buffer;
    bool is_used;
};

/* Up to n bytes, fewer only at the end of the view. The buffer is used if the bytes cannot be lent.
 * The part must be given back with view_return after use; after an error there is none. Errors of
 * sfs_read; -EFBIG: more frames, or larger texts, than can be counted or kept; -EBUSY: others
 * wrote each time that it was tried. */
int view_read(struct views *views, enum view_kind kind, uint64_t frame,
              const struct view_room *room, struct view_part *part);
void view_return(struct views *views, struct view_part *part);

/* The encoded selection of a frame of a sparse dataset, as it is now; it, and its bytes, stay so until
 * it is released, which accepts NULL. Version: the change counter (sfs_dataset_changes) of which it
 * is; 0: it was read during a change. Errors of sfs_get_defined; -EINTR. */
int view_hold_defined(struct views *views, uint64_t frame, struct defined_frame **held);
struct view_head view_held_bytes(const struct defined_frame *held);
uint64_t view_held_version(const struct defined_frame *held);
void view_release_defined(struct views *views, struct defined_frame *held);

/* ---- Writing. Whoever looks at any view afterwards sees the change. -EROFS: the file is not open
 * for writing; -EOPNOTSUPP: such a view or such elements cannot be written; errors as of
 * sfs_write_bytes. ---- */

/* Whether elements may be others without a change of this dataset: it is virtual, in a file that is
 * written. */
bool views_show_others(const struct views *views);

/* Whether they may be others when a view is opened again, as other programs have written them: it is raw data in other
 * files; or virtual, in a file of a folder, which may have been closed meanwhile. */
bool views_may_be_others(const struct views *views, bool is_in_folder);

/* Whether a view takes writes at all: raw, npy, tiff, stack.raw and stack.npy; and of a sparse dataset
 * .defined, values, npz, and the arrays of csr. Never of a virtual dataset, of elements with parts of
 * variable length, or of integers with padding bits. */
bool view_writable(struct views *views, enum view_kind kind);

/* What is written to a view: n bytes from an offset on. sparsify as sfs_write_bytes has it. */
struct view_bytes {
    uint64_t offset;
    const void *bytes;
    size_t n;
    bool sparsify;
};

/* Writes to a raw, npy, tiff, stack.raw or stack.npy view. Header bytes must be the ones shown, else
 * -EINVAL, and nothing is written; -EINVAL, too, of views that are taken as a whole only. Of a range
 * that reaches over the end *written bytes are written, up to it; -EFBIG: it begins at or behind the
 * end. *written is set only if 0 is returned.
 * With its first bytes behind the header a frame behind the last comes to be, if views_may_extend
 * says so, else -EFBIG; after an error there are as many as before. */
int view_write(struct views *views, enum view_kind kind, uint64_t frame,
               const struct view_bytes *bytes, size_t *written);

/* The same for a view that was truncated to nothing before: if bytes of the body are written the
 * rest of it is erased, so that nothing is gone when they cannot be; what they leave of their first
 * and last element is the fill value. Header bytes alone change nothing. */
int view_replace(struct views *views, enum view_kind kind, uint64_t frame,
                 const struct view_bytes *bytes, size_t *written);

/* Frames, first to last. */
struct view_frames {
    uint64_t first, last;
};

/* A part in the order of those who change frames of a dataset: who replaces them as a whole is alone, and can put back
 * what they held; who writes to them waits until then. All functions that write take one for as long, but for a thread
 * that has one already. -EINTR: it has none. Nothing is looked at, and no lock of views or below is held, meanwhile.
 * view_end_turn may be called again, and after an error. */
struct view_turn {
    struct view_turn *prev, *next;
    const struct sfs_dataset *dataset;
    struct view_frames frames;
    bool is_alone, is_listed;
    pthread_t thread;
};
int view_begin_turn(struct views *views, struct view_frames frames, bool is_alone,
                    struct view_turn *turn);
void view_end_turn(struct view_turn *turn);

/* What is asked for before the first change, and ended behind the last one; NULL: nothing. Neither is called while
 * views are looked at. begin: 0; -EINTR, and nothing changes. */
struct view_hold {
    int (*begin)(void *context);
    void (*end)(void *context);
    void *context;
};

/* The whole new content of a view of one frame that can be written: all of it is taken or nothing,
 * elements of which there are no bytes are erased, and a frame behind the last comes to be. Errors as
 * of view_write, or -EFBIG: it is longer than the view, or (NumPy, TIFF, npz of other programs) needs
 * more than most_kept bytes; and as of view_set_defined; -ENOMEM. If it fails in
 * the midst, the frame holds what it did before, unless that is more than most_kept bytes or cannot
 * be written again, which is logged. */
struct view_content {
    const void *bytes;
    size_t n;
    bool sparsify;
    size_t most_kept;
    bool is_tentative; /* it is not logged why another program's file is refused */
    const struct view_hold *hold;
};
int view_put(struct views *views, enum view_kind kind, uint64_t frame,
             const struct view_content *content);

/* Whether a view of a sparse dataset that can be written is taken as a whole only: a list of what
 * is defined and its values, or these values alone. */
bool view_is_whole(enum view_kind kind);

/* The files of csr/ but its text: of a sparse dataset they can be written, together. */
bool view_is_csr(enum view_kind kind);

/* What all frames are to hold, a row each: by the views from VIEW_CSR_INDPTR on, in the form in
 * which these are shown; if all three are written, elements of a row may be in any order. */
#define VIEW_CSR_PARTS 3
struct view_csr {
    struct view_csr_part {
        const char *bytes; /* NULL: as it is */
        size_t n;
    } part[VIEW_CSR_PARTS];
    size_t most_kept; /* bytes, of what is as it is, and of what frames held */
    const struct view_hold *hold;
    char why[160];
    bool has_begun; /* frames were changed, perhaps only for a while */
};

/* Makes exactly the elements that they name defined; if there are more rows than frames these come
 * to be. All of it or nothing, as view_put has it. -EINVAL: the parts that are written do not fit
 * each other or the dataset, and why says what differs; -EAGAIN: they do not fit the others as these
 * are, but may do so when more is written, and why says what; -EFBIG: what is as it is takes more than
 * most_kept;
 * -EBUSY: others write meanwhile; errors as of view_put. */
int view_put_csr(struct views *views, struct view_csr *csr);

/* Whether n bytes may be the first ones of another program's NumPy or TIFF file, which view_put
 * takes, too, if it is of the shape and type of the frame: with any header of such files, either
 * byte order and order of axes, and of TIFF strips, tiles, and what libtiff can decompress. What
 * differs is logged, and is -EINVAL. */
bool view_takes_foreign(enum view_kind kind, const void *bytes, size_t n);

/* Starts the process by which TIFF files are decoded: before there are threads, and before files
 * are opened. memory: that decoding one may take, in bytes; 0: no limit. Errors of fork(2),
 * socketpair(2); -EALREADY: it runs. */
int views_start_decoder(size_t memory);

/* Of a dense view: the bytes before its body; 0 of others. */
size_t view_head_size(struct views *views, enum view_kind kind);

/* The bytes of a dense view as if nothing were defined in it, and how many of its `size` bytes are
 * no holes then; the frame need not be there. *got is 0 of views that are taken as a whole only, which
 * are empty then; -EINVAL: it is no such view. */
int view_read_empty(struct views *views, enum view_kind kind, uint64_t offset, size_t n,
                    void *buffer, size_t *got);
uint64_t view_empty_allocated(struct views *views, enum view_kind kind, uint64_t size);

/* Erases the elements that begin at or after byte `size` of such a view; -EFBIG: it is larger than
 * the view. Of VIEW_DEFINED and of views that are taken as a whole only size 0 is possible, which
 * erases the frame; else -EINVAL. */
int view_truncate(struct views *views, enum view_kind kind, uint64_t frame, uint64_t size);

/* punch: elements wholly inside the range of bytes are erased; where the fill value is zero, bytes of
 * elements that are only partly inside become zero; what lies behind the end is left out. zero: the
 * bytes of the range are written as zero; -EFBIG, and nothing is: it reaches over the end. Header
 * bytes stay as they are. */
int view_punch(struct views *views, enum view_kind kind, uint64_t frame, uint64_t offset,
               uint64_t n);
int view_zero(struct views *views, enum view_kind kind, uint64_t frame, uint64_t offset, uint64_t n,
              bool sparsify);

/* VIEW_DEFINED: the whole new content, also of a frame behind the last, as view_write has it.
 * Errors as of sfs_decode_defined, and nothing has changed then; -EFBIG as of views_extend; errors as
 * of sfs_set_defined. */
int view_set_defined(struct views *views, uint64_t frame, const void *bytes, size_t n);

/* Extends the dataset along its first axis so that it has at least so many frames. -EFBIG: its max
 * dims or its layout do not allow that, or it is not the first axis alone that numbers frames;
 * -EROFS; errors of sfs_extend. views_may_extend returns 0, or the error that is known without
 * extending it. */
int views_extend(struct views *views, uint64_t frames);
int views_may_extend(struct views *views, uint64_t frames);

/* Whether nothing of a frame is defined; false also if it has many chunks to look at, cannot be
 * counted, or the dataset is not sparse. */
bool view_is_blank(struct views *views, uint64_t frame);

/* A frame that is there, or is about to be, is unfinished until sfs_end_unfinished; *unfinished is
 * NULL if it has more than most_bytes. Errors as of sfs_begin_unfinished. */
int view_begin_unfinished(struct views *views, uint64_t frame, size_t most_bytes,
                          struct sfs_unfinished **unfinished);

/* The frames, first to last, that a range of bytes of stack.raw or stack.npy touches; of any other
 * view `frame` itself. */
struct view_frames view_frames_of(struct views *views, enum view_kind kind, uint64_t frame,
                                  uint64_t offset, uint64_t n);

/* The range of bytes of stack.raw or stack.npy in which frames first to last are. *offset and *n are
 * 0, which stands for all bytes, of other views and where there is no such frame. */
void view_bytes_of(struct views *views, enum view_kind kind, uint64_t first, uint64_t last,
                   uint64_t *offset, uint64_t *n);

#endif
