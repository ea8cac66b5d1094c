/* Names of the files of frames: digits and a suffix. */
#include "fs/frame_names.h"

#include <string.h>

#define MIN_WIDTH 6

static const struct frame_names frames = {false, 2, {VIEW_RAW, VIEW_DEFINED}, {".raw", ".defined"}};
static const struct frame_names raw = {true, 1, {VIEW_RAW}, {".raw"}};
static const struct frame_names npy = {true, 1, {VIEW_NPY}, {".npy"}};
static const struct frame_names tiff = {true, 1, {VIEW_TIFF}, {".tif"}};
static const struct frame_names values = {true, 1, {VIEW_VALUES}, {".values"}};
static const struct frame_names npz = {true, 1, {VIEW_NPZ}, {".npz"}};
static const struct frame_names png = {true, 1, {VIEW_PNG}, {".png"}};
static const struct frame_names chunks = {.n_views = 1, .view = {VIEW_CHUNK}, .are_chunks = true};
static const struct frame_names cbf = {true, 1, {VIEW_CBF}, {".cbf"}};

const struct frame_names *frame_names_in(unsigned directory)
{
    switch (directory) {
    case ENTRY_FRAMES:
        return &frames;
    case ENTRY_RAW_DIR:
        return &raw;
    case ENTRY_NPY_DIR:
        return &npy;
    case ENTRY_TIFF_DIR:
        return &tiff;
    case ENTRY_VALUES_DIR:
        return &values;
    case ENTRY_NPZ_DIR:
        return &npz;
    case ENTRY_PNG_DIR:
        return &png;
    case ENTRY_CBF_DIR:
        return &cbf;
    case ENTRY_ZARR_DIR:
        return &chunks;
    default:
        return NULL;
    }
}

int frame_name_width(const struct frame_names *series, uint64_t n_frames, uint64_t first)
{
    int width = 1;
    if (!series->padded)
        return width;
    for (uint64_t last = n_frames ? n_frames - 1 + first : 0; last >= 10; last /= 10)
        width++;
    return width < MIN_WIDTH ? MIN_WIDTH : width;
}

/* Formatted by hand: it dominates listings of millions of names. */
void frame_name_format(const struct frame_names *series, unsigned which, uint64_t number, int width,
                       char name[FRAME_NAME_BYTES])
{
    char digits[24];
    int n = 0;
    do {
        digits[n++] = (char)('0' + number % 10);
        number /= 10;
    } while (number > 0);
    while (n < width)
        digits[n++] = '0';
    while (n > 0)
        *name++ = digits[--n];
    strcpy(name, series->suffix[which]);
}

bool frame_name_parse(const struct frame_names *series, const char *name, uint64_t first,
                      uint64_t *frame, enum view_kind *view)
{
    const char *c = name;
    uint64_t value = 0;
    for (; *c >= '0' && *c <= '9'; c++)
        if (__builtin_mul_overflow(value, 10, &value) ||
            __builtin_add_overflow(value, (uint64_t)(*c - '0'), &value))
            return false;
    if (c == name || value < first)
        return false;
    for (unsigned i = 0; i < series->n_views; i++) {
        if (!strcmp(c, series->suffix[i])) {
            *frame = value - first;
            *view = series->view[i];
            return true;
        }
    }
    return false;
}
