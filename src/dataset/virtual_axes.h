/* From a box of a virtual dataset to boxes of a source, by one mapping: arithmetic of regular
 * selections (hdf5_axis), which knows no files. Thread-safe: it has no state. */
#ifndef SPARSEFS_DATASET_VIRTUAL_AXES_H
#define SPARSEFS_DATASET_VIRTUAL_AXES_H

#include "common/box.h"
#include "hdf5/hdf5.h"

/* One axis in its simplest form: blocks that touch become one, and the stride of a single block is
 * its length. false: its size exceeds 64 bits. Blocks that are numbered are left apart. */
bool axis_simplify(struct hdf5_axis *axis, bool is_numbered);

/* How many elements it selects; SFS_UNLIMITED. */
uint64_t axis_size(const struct hdf5_axis *axis);

/* How many of them lie before coordinate x. */
uint64_t axis_before(const struct hdf5_axis *axis, uint64_t x);

/* The coordinate of the i-th of them; UINT64_MAX: it exceeds 64 bits. */
uint64_t axis_at(const struct hdf5_axis *axis, uint64_t i);

/* How many of them, from the i-th on, lie without a gap; SFS_UNLIMITED. */
uint64_t axis_adjacent(const struct hdf5_axis *axis, uint64_t i);

/* A mapping whose two selections correspond axis by axis: on both sides the axes of more than one
 * element have the same sizes in the same order. shown and source outlive it. */
struct translation {
    int rank, source_rank;
    const struct hdf5_axis *shown, *source;
    int pair[SFS_MAX_RANK];      /* of each axis of the source: the one that is shown, or -1 */
    int source_of[SFS_MAX_RANK]; /* of each axis that is shown: that of the source, or -1 */
    /* Of each axis that is shown: the elements that are wanted, among those that it selects. */
    uint64_t first[SFS_MAX_RANK], end[SFS_MAX_RANK];
};

/* false: they do not correspond so. */
bool translation_make(struct translation *translation, const struct hdf5_slab *shown,
                      const struct hdf5_slab *source);

/* Wants what of a box of the virtual dataset the mapping shows; false: nothing. */
bool translation_want(struct translation *translation, const struct box *box);

/* Wants no more than what lies in the dims of the source. Returns whether that is less. */
bool translation_clip(struct translation *translation, const uint64_t *source_dims);

/* How many elements are wanted; 0. */
uint64_t translation_elements(const struct translation *translation);

/* How many of the wanted elements of an axis, from the i-th on, lie without a gap on both sides. */
uint64_t translation_adjacent(const struct translation *translation, int axis, uint64_t i);

/* Of elements first to end of each axis, which lie without a gap on both sides, the box that is
 * shown, and that of the source. In any case the smallest that has them. */
void translation_boxes(const struct translation *translation, const uint64_t *first,
                       const uint64_t *end, struct box *shown, struct box *source);

/* Cuts a box of the source, without a gap on both sides, as the box that is shown was cut. pair: of
 * the translation. */
void translation_cut(const int *pair, const struct box *shown, const struct box *cut,
                     struct box *source);

#endif
