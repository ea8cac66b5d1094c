/* The rules of expected.h, an element at a time: slow and plain. */
#include "expected.h"

#include <sparsefs/hdf5.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

bool expected_create(struct expected *expected, size_t size, size_t element, const uint8_t *fill)
{
    size_t pages = (size + PAGE - 1) / PAGE;
    *expected = (struct expected){.size = size,
                                  .element = element,
                                  .fill = fill,
                                  .erases = true,
                                  .content = calloc(size, 1),
                                  .states = malloc(size / element),
                                  .dirty = calloc(pages, 1),
                                  .pages = pages};
    if (!expected->content || !expected->states || !expected->dirty)
        return false;
    memset(expected->states, UNKNOWN, size / element);
    return true;
}

void expected_destroy(struct expected *expected)
{
    free(expected->content);
    free(expected->states);
    free(expected->dirty);
}

static bool is_fill(const struct expected *expected, size_t i)
{
    return memcmp(expected->content + i * expected->element, expected->fill, expected->element) ==
           0;
}

/* Elements [first, end) have been written. */
static void define(struct expected *expected, size_t first, size_t end, bool sparsify)
{
    for (size_t i = first; i < end; i++)
        expected->states[i] = sparsify && is_fill(expected, i) ? UNDEFINED : DEFINED;
}

void expected_write(struct expected *expected, size_t offset, const uint8_t *bytes, size_t n)
{
    if (n == 0)
        return;
    if (bytes)
        memcpy(expected->content + offset, bytes, n);
    else
        memset(expected->content + offset, 0, n);
    define(expected, offset / expected->element, (offset + n - 1) / expected->element + 1,
           expected->sparsify);
}

static void erase(struct expected *expected, size_t first, size_t end)
{
    for (size_t i = first; i < end; i++) {
        memcpy(expected->content + i * expected->element, expected->fill, expected->element);
        expected->states[i] = expected->erases ? UNDEFINED : DEFINED;
    }
}

static size_t rounded_up(const struct expected *expected, size_t offset)
{
    return (offset + expected->element - 1) / expected->element;
}

static void punch_part(struct expected *expected, size_t offset, size_t end)
{
    static const uint8_t zero[64];
    size_t n = expected->element < sizeof(zero) ? expected->element : sizeof(zero);
    if (offset >= end || memcmp(expected->fill, zero, n) != 0)
        return;
    memset(expected->content + offset, 0, end - offset);
    define(expected, offset / expected->element, offset / expected->element + 1, expected->erases);
}

void expected_punch(struct expected *expected, size_t offset, size_t n)
{
    size_t first = rounded_up(expected, offset), last = (offset + n) / expected->element;
    if (first > last) {
        punch_part(expected, offset, offset + n);
        return;
    }
    punch_part(expected, offset, first * expected->element);
    punch_part(expected, last * expected->element, offset + n);
    erase(expected, first, last);
}

void expected_truncate(struct expected *expected, size_t size)
{
    erase(expected, rounded_up(expected, size), expected->size / expected->element);
}

void expected_store(struct expected *expected, size_t offset, const uint8_t *bytes, size_t n)
{
    memcpy(expected->content + offset, bytes, n);
    for (size_t page = offset / PAGE; page * PAGE < offset + n; page++) {
        expected->n_dirty += !expected->dirty[page];
        expected->dirty[page] = 1;
    }
}

void expected_flush(struct expected *expected, size_t offset, size_t n)
{
    for (size_t page = offset / PAGE; expected->n_dirty > 0 && page * PAGE < offset + n; page++) {
        if (!expected->dirty[page])
            continue;
        size_t end = (page + 1) * PAGE < expected->size ? (page + 1) * PAGE : expected->size;
        define(expected, page * PAGE / expected->element, rounded_up(expected, end),
               expected->sparsify);
        expected->dirty[page] = 0;
        expected->n_dirty--;
    }
}

bool expected_same(const struct expected *expected, size_t offset, const uint8_t *bytes, size_t n,
                   const char *how, size_t *difference)
{
    const uint8_t *content = expected->content + offset;
    if (memcmp(bytes, content, n) == 0)
        return true;
    size_t first = 0, different = 0;
    for (size_t i = n; i-- > 0;) {
        if (bytes[i] != content[i]) {
            first = i;
            different++;
        }
    }
    *difference = offset + first;
    size_t element = *difference / expected->element;
    fprintf(stderr,
            "exercise: %s: first difference at offset %zu (%#zx; element %zu, %s): found 0x%02x "
            "instead of 0x%02x; %zu of %zu bytes from %zu on differ\n",
            how, *difference, *difference, element,
            (const char *[]){"undefined", "defined", "of unknown state"}[expected->states[element]],
            bytes[first], content[first], different, n, offset);
    return false;
}

/* Marks the elements of a box, whose corners are both inside, of an array with these dims. */
static void mark_box(uint8_t *mask, int rank, const hsize_t *dims, const hsize_t *first,
                     const hsize_t *last)
{
    hsize_t at[H5S_MAX_RANK];
    memcpy(at, first, (size_t)rank * sizeof(*at));
    int axis;
    do {
        hsize_t position = 0;
        for (int d = 0; d < rank; d++)
            position = position * dims[d] + at[d];
        memset(mask + position, 1, (size_t)(last[rank - 1] - first[rank - 1] + 1));
        for (axis = rank - 2; axis >= 0 && at[axis] == last[axis]; axis--)
            at[axis] = first[axis];
        if (axis >= 0)
            at[axis]++;
    } while (axis >= 0);
}

/* Marks the selected elements. Boxes are pairs of corners, points stand for both. */
static bool mark_selected(hid_t space, int rank, const hsize_t *dims, size_t elements,
                          uint8_t *mask)
{
    H5S_sel_type type = H5Sget_select_type(space);
    if (type == H5S_SEL_ALL)
        memset(mask, 1, elements);
    if (type == H5S_SEL_ALL || type == H5S_SEL_NONE)
        return true;
    bool boxes = type == H5S_SEL_HYPERSLABS;
    hssize_t n = boxes ? H5Sget_select_hyper_nblocks(space) : H5Sget_select_elem_npoints(space);
    size_t step = (size_t)rank * (boxes ? 2 : 1);
    hsize_t *list = n < 0 ? NULL : malloc(((size_t)n + 1) * step * sizeof(*list));
    if (!list)
        return false;
    herr_t error = n == 0  ? 0
                   : boxes ? H5Sget_select_hyper_blocklist(space, 0, (hsize_t)n, list)
                           : H5Sget_select_elem_pointlist(space, 0, (hsize_t)n, list);
    for (hssize_t i = 0; i < n && error >= 0; i++) {
        const hsize_t *first = list + (size_t)i * step;
        mark_box(mask, rank, dims, first, boxes ? first + rank : first);
    }
    free(list);
    return error >= 0;
}

static bool decode(const void *encoded, size_t elements, uint8_t *mask)
{
    hsize_t dims[H5S_MAX_RANK] = {1};
    hid_t space = sfs_h5_decode_space(encoded);
    int rank = space < 0 ? -1 : H5Sget_simple_extent_dims(space, dims, NULL);
    hsize_t n = 1;
    for (int d = 0; d < rank; d++)
        n *= dims[d];
    bool good = rank >= 0 && n == elements &&
                mark_selected(space, rank > 0 ? rank : 1, dims, elements, mask);
    if (space >= 0)
        H5Sclose(space);
    if (!good)
        fprintf(stderr, "exercise: not an encoded dataspace of %zu elements\n", elements);
    return good;
}

bool expected_same_defined(struct expected *expected, const void *encoded)
{
    size_t elements = expected->size / expected->element, wrong = 0, first = 0;
    uint8_t *mask = calloc(elements, 1);
    bool good = mask && decode(encoded, elements, mask);
    for (size_t i = 0; i < elements && good; i++) {
        if (expected->states[i] == UNKNOWN)
            expected->states[i] = mask[i] ? DEFINED : UNDEFINED;
        if ((expected->states[i] == DEFINED) != mask[i] && wrong++ == 0)
            first = i;
    }
    if (wrong > 0)
        fprintf(stderr,
                "exercise: %zu elements are wrongly defined or undefined, first element %zu "
                "(offset %zu), which is %s\n",
                wrong, first, first * expected->element, mask[first] ? "defined" : "undefined");
    free(mask);
    return good && wrong == 0;
}
