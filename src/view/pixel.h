/* For the views that show frames as images in other types, and for these only. Frames are looked at
 * (LOOKING_AT), and images have so few pixels that an array of them fits into memory. */
#ifndef SPARSEFS_VIEW_PIXEL_H
#define SPARSEFS_VIEW_PIXEL_H

#include "view/element_number.h"
#include "view/private.h"

/* More pixels than any detector has: arrays of a few bytes for each are made of a frame. */
#define PIXELS_MOST ((uint64_t)1 << 26)

/* Numbers that have a value here, of at most 8 bytes. */
bool pixel_is_number(const struct sfs_type *type);

/* Reads the elements of a frame as they are shown, in pieces: n of them, from `first` on. Errors as
 * of sfs_read; -EINTR. */
typedef void (*pixels_action)(void *context, uint64_t first, size_t n,
                              const unsigned char *elements);
int pixels_read(struct views *views, uint64_t frame, pixels_action action, void *context);

/* is_there: frame_elements bytes, set to 1 for every element of the frame that is defined, else to 0.
 * Errors as of sfs_get_defined; -EINTR. */
int pixels_clear_undefined(struct views *views, uint64_t frame, unsigned char *is_there);

/* pixel_mask.c: what the pixel mask says of every pixel of a frame (NeXus, NXdetector: bit 0 is a gap, all others
 * are of pixels that are dead, hot, and so on); NULL: there is none, or none that fits. As it
 * is when the geometry is looked at, and valid as long as that. Errors as of sfs_read;
 * -EINTR; -ENOMEM. */
enum { PIXEL_GOOD, PIXEL_GAP, PIXEL_BAD };
int pixel_mask_get(struct views *views, const unsigned char **mask);

/* ---- nexus.c: what stands beside a dataset in a NeXus file ---- */

/* A dataset of the detector (NXdetector) that the views' dataset is of, by its name in that group
 * or in `detectorSpecific` below it; closed with sfs_dataset_close. -ENOENT: there is none. */
int nexus_open(struct views *views, const char *name, struct sfs_dataset **dataset);

/* A text of the detector, cut to n - 1 bytes. Errors as of sfs_text. */
int nexus_text(struct views *views, const char *name, char *text, size_t n);

/* The only element of a dataset of the detector, or by its path in the group that the instrument is
 * in. unit is "m", "s" or "A" (Angstrom): its attribute `units` is converted to that; without one,
 * and of NULL, the number is as it is. -ENOENT: there is none, or it is no number; -EINVAL: its
 * units are unknown. */
enum nexus_place { NEXUS_DETECTOR, NEXUS_ENTRY };
int nexus_number(struct views *views, enum nexus_place place, const char *name, const char *unit,
                 double *value);

/* The n-th element of one that has at least as many, in the latter group. -ENOENT. */
int nexus_number_of(struct views *views, const char *path, uint64_t n, double *value);

#endif
