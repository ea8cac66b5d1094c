/* Shared by the files of src/view only. */
#ifndef SPARSEFS_VIEW_PRIVATE_H
#define SPARSEFS_VIEW_PRIVATE_H

#include <stdio.h>

#include "view/view.h"

/* How a datatype is spelled: as a Python literal, for NumPy headers, or as JSON. */
enum numpy_style { NUMPY_PYTHON, NUMPY_JSON };

/* Writes the NumPy type of a datatype without pointers, e.g. '<u2' or [('x', '<f4'), ...]. The dims
 * of an array type are left to the caller. */
void numpy_type(FILE *out, const struct sfs_type *type, enum numpy_style style);

/* Writes the dims of an array type, of arrays of arrays too, separated by commas; n counts the dims
 * written before and, returned, all. */
int numpy_array_dims(FILE *out, const struct sfs_type *type, int n);

/* Headers; *head stays empty (0 is returned) where there can be none. */
int numpy_header(const struct sfs_type *type, int rank, const uint64_t *dims,
                 struct view_head *head);
int tiff_header(const struct sfs_type *type, int rank, const uint64_t *dims,
                struct view_head *head);

/* stack.tif: what stands before the frames of the dataset, how many bytes stand behind them, and n
 * bytes of these, computed. The geometry is looked at, or new; *head stays empty where there is no
 * such view. -ENOMEM. */
int tiff_stack_head(const struct views *views, struct view_head *head, uint64_t *tail_bytes);
void tiff_stack_tail(const struct views *views, uint64_t offset, size_t n, char *out);

/* Whether elements are plain numbers: what scipy and image readers can take. */
bool is_number(const struct sfs_type *type);

/* h5py's complex numbers. */
bool is_complex(const struct sfs_type *type);

/* Whether pixels of three or four samples are colours: red, green, blue, and alpha; and whether frames of these dims
 * are images, which tiff/ has (which_views.c). */
bool is_colour(const struct sfs_type *type, int rank, const uint64_t *dims);
bool are_images(const struct sfs_type *type, int rank, const uint64_t *dims);

/* SampleFormat of TIFF 6.0: 1 unsigned, and booleans, 2 signed, 3 IEEE floating point (tiff.c). */
unsigned tiff_sample_format(const struct sfs_type *type);

/* png/N.png: its size, 0 where there is no such view; and all of it, which the caller frees, and gives back its bytes
 * (made_memory_give_back). Errors as of sfs_read, sfs_get_defined, made_memory_take; -EINVAL: there is no such view, or
 * frame. */
uint64_t png_bytes(const struct views *views);
int png_make(struct views *views, uint64_t frame, struct view_head *out);

/* cbf/N.cbf: its size, 0 where there is no such view, of which this much is no hole at least; head
 * and data of a frame, which the caller frees; and what is behind the padding. The
 * same for its bytes, and errors as of sfs_read, made_memory_take. */
uint64_t cbf_bytes(const struct views *views);
uint64_t cbf_least_bytes(const struct views *views);
int cbf_make(struct views *views, uint64_t frame, struct view_head *out);
const char *cbf_tail(size_t *n);

/* Until the end of the block geometry and heads stay as they are, as new as can be; not to be
 * nested (open_views.c). */
#define LOOKING_AT(views)                                                                          \
    __attribute__((cleanup(geometry_leave), unused)) struct views *looking_at =                    \
        geometry_enter(views)
struct views *geometry_enter(struct views *views);
void geometry_leave(struct views **views);

/* The geometry as new as can be; not while it is looked at. Errors, after which it is the old one:
 * -ENOMEM; those of sfs_encode_defined. */
int geometry_renew(struct views *views);

/* Whether what was made when sfs_dataset_changes was this is still right (open_views.c). */
bool is_current(const struct views *views, uint64_t changes);

/* The slab that is one frame, or the whole dataset (open_views.c). */
struct sfs_slab view_frame_slab(const struct views *views, uint64_t frame);
struct sfs_slab view_whole_slab(const struct views *views);

/* Of a dense view: the bytes of its head; 0 of others (which_views.c). */
size_t view_head_bytes(const struct views *views, enum view_kind kind);

/* As view_exists and view_size, while the geometry is looked at (which_views.c, size.c). */
bool has_view(const struct views *views, enum view_kind kind);
int size_of_view(struct views *views, enum view_kind kind, uint64_t frame, uint64_t *size);

/* Whether a view is of elements of a slab, with a head or none: what can be written, too
 * (which_views.c). */
bool view_is_dense(enum view_kind kind);

/* Whether a view is of dense bytes with holes where nothing is defined; and whether it is stack.raw or
 * stack.npy. */
bool view_has_holes(const struct views *views, enum view_kind kind);
bool view_is_stack(enum view_kind kind);

/* Gives the defined elements of a frame these values, packed, n bytes. -EINVAL: there are not as
 * many; after other errors some of them may have them. Errors as of view_set_points. */
int view_set_values(struct views *views, uint64_t frame, const void *values, size_t n);

/* Makes exactly these elements of a frame defined, with these values, packed; a frame behind the
 * last comes to be (write.c). Errors as of view_set_defined; after others than -EOPNOTSUPP and -EFBIG
 * some of them may be. */
int view_set_points(struct views *views, uint64_t frame, const struct sfs_defined *defined,
                    const void *values);

/* Integers that do not fill their bytes (padded_integers.c): views->info, and whether there are any, are set when a
 * dataset is opened; then elements as they are stored become those that are shown. */
void show_as_integers(struct views *views);
void show_elements(const struct views *views, void *elements, uint64_t n);

/* Calls a change of whole frames, alone with these, between the two functions of a hold, or without one (NULL). It is
 * interrupted after 30 seconds, and has to undo what it did then: -ETIMEDOUT, and the log says so. Errors of begin,
 * -EINTR, or its own. */
int change_held(struct views *views, const struct view_hold *hold, struct view_frames frames,
                int (*change)(void *context), void *context);

/* To the end of the block this thread has its turn to change frames, or turn_error says why not (-EINTR). It comes
 * before LOOKING_AT: who is alone may wait for those who look. */
#define TAKING_TURN(views, frames)                                                                 \
    __attribute__((cleanup(view_end_turn))) struct view_turn turn;                                 \
    const int turn_error = view_begin_turn(views, frames, false, &turn)

/* The frames that a range of bytes touches, also where there is none yet; not while the geometry is looked at
 * (take_turns.c). */
struct view_frames turn_frames(struct views *views, enum view_kind kind, uint64_t frame,
                               uint64_t offset, uint64_t n);

/* As view_set_points, but called while the geometry is looked at, by an action of change_frame. */
int view_place_points(struct views *views, uint64_t frame, const struct sfs_defined *defined,
                      const void *values);

/* Whether a view is of a frame that is not there yet (extend.c). */
bool is_new_frame(const struct views *views, enum view_kind kind, uint64_t frame);

/* While the geometry is looked at (writable_views.c): whether a view can be written; and the error of one that cannot:
 * -EROFS, -EOPNOTSUPP. */
bool is_writable(const struct views *views, enum view_kind kind);
int cannot_write(const struct views *views);

/* Of what is written, while the geometry is looked at (extend.c): 0, or whether
 * there can be so many frames (-EFBIG, -EROFS); and an action that changes something in a frame, or
 * in it and those before it. One behind the last comes to be by that; if it fails there are as many
 * as before. */
int can_extend(const struct views *views, uint64_t frames);
int change_frame(struct views *views, enum view_kind kind, uint64_t frame,
                 int (*change)(void *context), void *context);

/* What a range of bytes of a dense view is written to. */
struct write_target {
    struct sfs_slab slab;
    const struct view_head *head;
    uint64_t body_bytes;
    size_t item; /* bytes of an element */
};

/* While the geometry is looked at (write.c): -EROFS; -EOPNOTSUPP: the view is not for writing;
 * -EINVAL: it is only written as a whole. */
int target_get(const struct views *views, enum view_kind kind, uint64_t frame,
               struct write_target *target);

/* The bytes [first, last) of the body in n bytes of the view from an offset on (write.c). */
void target_cut(const struct write_target *target, uint64_t offset, uint64_t n, uint64_t *first,
                uint64_t *last);

/* Erases the elements that lie wholly in the bytes [first, last) of the body (truncate.c). Errors as of
 * sfs_erase. */
int target_erase(struct views *views, const struct write_target *target, uint64_t first,
                 uint64_t last);

struct counts;

/* Items of the CSR arrays, n from the first-th on; counts is NULL for a dense dataset. Errors as of
 * sfs_read; -EIO, logged: the index counts other elements than the chunks have; -EAGAIN: it does
 * because something was written since the counts were made. */
#define CSR_INDPTR_ITEM sizeof(int64_t)
size_t csr_index_item(const struct views *views);
int csr_toml(const struct views *views, struct view_head *head);
int csr_indptr(const struct views *views, const struct counts *counts, uint64_t first, uint64_t n,
               char *out);
int csr_indices(struct views *views, const struct counts *counts, uint64_t first, uint64_t n,
                char *out);
int csr_data(struct views *views, const struct counts *counts, uint64_t first, uint64_t n,
             char *out); /* of a sparse dataset */

/* ---- count_defined.c: how many elements of a sparse dataset are defined ---- */

/* A frame in which something is defined. */
struct frame_count {
    uint64_t frame;
    uint64_t before; /* defined elements in the frames before it */
};

/* All of them, ascending; not changed once it is made. */
struct counts {
    uint64_t changes; /* the sfs_dataset_changes that they are of */
    unsigned users;   /* under count_lock; 1 more while they are kept */
    size_t n, room;
    struct frame_count *frame; /* n, and one more whose before is the number of all */
};

/* Which of these frames is the first at or behind `frame`; n if none is. */
size_t counts_find(const struct counts *counts, uint64_t frame);

/* Counts by one walk of the index on first use; where chunks span frames, also by the selections of
 * all chunks. Given back by counts_put, which accepts NULL. -EFBIG: too many frames, and -EIO: the
 * index counts more elements than there are, which are logged; -ENOMEM as of kept_memory_take; -EBUSY: a
 * followed file moved on each time that it was tried; -EINTR; errors of sfs_chunk_iterate and sfs_get_defined. */
int counts_get(struct views *views, const struct counts **counts);
void counts_put(struct views *views, const struct counts *counts);

/* Whether count_of_frame takes a few look-ups in the index or less. */
bool count_is_cheap(struct views *views);

/* The number of defined elements of a frame, and of all. Errors as of counts_get and sfs_count_defined.
 */
int count_of_frame(struct views *views, uint64_t frame, uint64_t *elements);
int count_of_all(struct views *views, uint64_t *elements);

/* Logs that a frame has other elements than its index says; -EIO. */
int count_is_wrong(const struct views *views, uint64_t frame);

/* Forgets what is kept. */
void counts_drop(struct views *views);
size_t counts_bytes(const struct counts *counts);

/* ---- frame_cache.c: what is defined in single frames of a sparse dataset, and what else is made of
 * all of a frame ---- */

enum defined_form { DEFINED_INTERVALS, DEFINED_ENCODED, DEFINED_PNG, DEFINED_CBF, DEFINED_NPZ };

/* One form of it for one frame, unchanged while it is held. */
struct defined_frame {
    uint64_t frame;
    enum defined_form form;
    uint64_t changes; /* the sfs_dataset_changes that it is of */
    uint64_t states;  /* the same of sfs_states: DEFINED_CBF says what stands beside the dataset */
    struct sfs_defined defined; /* DEFINED_INTERVALS */
    struct view_head encoded;   /* all other forms */
    /* under the lock of the table: */
    struct defined_frame *prev, *next;
    unsigned users;
    bool is_made;   /* until then the other members are not to be looked at */
    bool is_listed; /* what failed or is no longer current is not: the next one tries again */
    int error;
    size_t kept, made; /* bytes that are taken for it (views_memory.h) */
};

void defined_init(struct views *views);
void defined_destroy(struct views *views);

/* Forgets what is kept. */
void defined_drop(struct views *views);

/* Made once for all who ask at the same time; of the first two forms selections only are read.
 * Given back by defined_put, which accepts NULL; an error leaves *defined as it is. Errors as of
 * sfs_get_defined, or sfs_read; -EINTR. */
int defined_get(struct views *views, uint64_t frame, enum defined_form form,
                struct defined_frame **defined);
void defined_put(struct views *views, struct defined_frame *defined);

/* ---- view_bytes.c ---- */

/* A text that is kept. */
struct kept_text {
    struct view_head head;
    struct kept_text **place; /* where it is kept */
    uint64_t changes;         /* the sfs_dataset_changes that it is of */
    unsigned users;           /* under the lock of the texts; 1 more while it is kept */
};

/* Drops the mask; its pixels must not be in use, and the lock of the texts is held, or nobody else uses
 * the views (pixel_mask.c). */
void pixel_mask_drop(struct views *views);

/* Whether the mask was written since it was read; without a lock. And: before the views are closed. */
bool pixel_mask_is_outdated(const struct views *views);
void pixel_mask_close(struct views *views);

/* Forgets one of the texts; the lock is held. */
void text_drop(struct kept_text **kept);

/* dataset.json */
int json_of_dataset(struct views *views, struct view_head *head);

/* zarr/.zarray, empty where there is no such view, and zarr/.zattrs. */
int zarr_array(const struct views *views, struct view_head *head);
int zarr_attributes(struct views *views, struct view_head *head);

/* table.csv, and whether there is one: it takes no more than a few MiB. Errors as of sfs_read. */
bool csv_exists(const struct views *views);
int csv_of_dataset(struct views *views, struct view_head *head);

/* A stream whose text becomes the head when head_end closes it; NULL, -ENOMEM: no memory. */
FILE *head_begin(struct view_head *head);
int head_end(FILE *out, struct view_head *head);

#endif
