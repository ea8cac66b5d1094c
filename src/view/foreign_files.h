/* Frames in the files of other programs: NumPy and TIFF files with another header than the one that
 * is shown, of the same shape and type. For the files of src/view. */
#ifndef SPARSEFS_VIEW_FOREIGN_FILES_H
#define SPARSEFS_VIEW_FOREIGN_FILES_H

#include <stdbool.h>
#include <stdint.h>

#include "common/why.h"
#include "view/private.h"

/* foreign_files.c: the dense bytes of a frame, in the dataset's byte order, out of n bytes of such a
 * file. *size of them, which the caller frees and gives back (decoding_memory_give_back). -EINVAL: they are none of
 * such a frame, and *why says why; -EFBIG: a frame has more than most_bytes; -ENOMEM; -EOPNOTSUPP: not of this kind of
 * view; -EINTR; errors of image_decode. Not while views are looked at.
 * A program that opens a truncated TIFF view finds an empty frame, and may add an image behind it (fabio does): of such
 * a file that image is the only one. */
struct foreign {
    enum view_kind kind;
    const char *bytes;
    size_t n;
};
int foreign_decode(struct views *views, const struct foreign *file, size_t most_bytes, char **dense,
                   size_t *size, struct why *why);

/* ---- numpy_decode.c: NumPy Enhancement Proposal 1, versions 1 to 3 ---- */

/* *dense has room for frame_bytes, and stays as it is after an error. head: the one that is shown.
 * -EINVAL as above; -EOPNOTSUPP: head is none. */
int numpy_decode(const struct view_head *head, uint64_t frame_bytes, const char *bytes, size_t n,
                 char *dense, struct why *why);

/* Turns round the bytes of each unit; n: bytes in all. */
void swap_units(char *bytes, size_t n, size_t unit);

/* An array of up to one dim in a .npy file; false: it is none, or its elements are compounds. */
struct npy_array {
    const char *descr; /* how its type stands there: n_descr characters */
    size_t n_descr;
    char kind; /* a letter of NumPy */
    bool is_big;
    size_t item; /* bytes of an element */
    uint64_t n;
    const char *elements;
};
bool numpy_array(const char *bytes, size_t n, struct npy_array *array);

/* Whether it has the type of a header that is shown, in any byte order: else -EINVAL; and n bytes
 * of its elements in the order of that. */
int numpy_is_of_type(const struct view_head *head, const struct npy_array *array, struct why *why);
void numpy_order(const struct view_head *head, const struct npy_array *array, char *bytes,
                 size_t n);

/* ---- tiff_decoder_process.c, tiff_decode.c: what a decoder is asked for ---- */

struct image {
    uint32_t width, height; /* pixels */
    uint16_t samples;       /* elements of a pixel: 1, or 3 or 4 of a colour */
    uint16_t bits;          /* of an element: 8, 16, 32 or 64 */
    uint16_t format;        /* tiff_sample_format */
    bool is_boolean;        /* elements are 0 and 1: they may have one bit in a file */
};

/* Decodes a TIFF file in a process that may do nothing else. *dense has room for the image, and
 * gets its rows of pixels, elements in this machine's byte order, or after an error anything. -EINVAL
 * and -ENOMEM as above; that its process has ended, or has not answered in a minute, is -EINVAL, too,
 * and logged; -EINTR; -EAGAIN: there can be no more processes; -EIO: it cannot be begun otherwise. Any
 * thread. */
int image_decode(const struct image *image, const char *bytes, size_t n, char *dense,
                 struct why *why);

/* Bytes that its process takes at most beside the file, without the program. */
size_t image_memory(const struct image *image);

/* The same in the calling process, which should be such a one, by one thread: -EINVAL, -ENOMEM. */
int tiff_decode(const struct image *image, const char *bytes, size_t n, char *dense,
                struct why *why);

#endif
