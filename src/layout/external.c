/* Contiguous storage in other files, as they are listed in the dataset's header: the bytes of the
 * dataset are those of the first segment, then of the second and so on. They are read a piece at a
 * time, into our cache, and written past it, in place, as libhdf5 does: there is no journal for
 * them. A file that is shorter than its segment reads as zeros behind its end, as libhdf5 has it, and
 * grows when it is written there. Which files may be read and written is the store's affair. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "common/box.h"
#include "common/cpu_limit.h"
#include "common/interrupt.h"
#include "common/io.h"
#include "hdf5/hdf5.h"
#include "layout/layout.h"
#include "store/store.h"

#define WHY_BYTES 1024 /* of a message */

/* Finding a file may take as long as decoding so many bytes. */
#define SEGMENT_BYTES ((size_t)1 << 20)

/* Bytes of the dataset, and what is done with those of each segment: n of them, from this offset in
 * its file on. */
struct range {
    struct layout *layout;
    const uint64_t *scaled; /* of the piece that they are in */
    int (*action)(const struct range *range, const struct hdf5_segment *segment, uint64_t offset,
                  char *bytes, uint64_t n);
    char *bytes; /* NULL: none */
    uint64_t n;
    struct opened *opened; /* writing */
};

/* The segment whose file is open for writing; NULL: none. */
struct opened {
    const struct hdf5_segment *segment;
    int fd;
};

/* refusal: NULL, or which rule forbids it. */
static void say(const struct range *range, const struct hdf5_segment *segment, int error,
                const char *what, const char *refusal)
{
    char why[WHY_BYTES];
    snprintf(why, sizeof(why), "external raw data in %s %s %s", segment->name,
             refusal ? "is refused:" : what,
             refusal               ? refusal
             : error == -EINVAL    ? "it is no regular file"
             : error == -EOVERFLOW ? "no file has such an offset"
                                   : strerror(-error));
    (void)layout_failed(range->layout, range->scaled, UINT64_MAX, why);
}

static int failed(const struct range *range, const struct hdf5_segment *segment, int error)
{
    if (error == -ENOMEM || error == -EINTR)
        return error;
    say(range, segment, error, "cannot be read:", store_refusal(error));
    return -EIO;
}

/* ---- Reading ---- */

/* Reads n bytes, and zeros for those behind the end. */
static int read_file(int fd, uint64_t offset, char *buffer, size_t n)
{
    size_t done;
    int error = io_read_at(fd, offset, buffer, n, &done);
    if (!error)
        memset(buffer + done, 0, n - done);
    return error;
}

static int read_segment(const struct range *range, const struct hdf5_segment *segment,
                        uint64_t offset, char *bytes, uint64_t n)
{
    struct store_found found;
    int error = store_find(range->layout->store, STORE_RAW, segment->name, &found);
    if (error == -ENOENT && range->layout->fill_missing)
        return 0;
    if (error)
        return failed(range, segment, error);
    int fd = store_found_open(&found, O_RDONLY);
    error = fd < 0 ? fd : read_file(fd, offset, bytes, (size_t)n);
    if (fd >= 0)
        close(fd);
    store_found_free(&found);
    return error ? failed(range, segment, error) : 0;
}

/* What is wanted of a range of the dataset that begins at this byte. */
static int each_segment(const struct range *range, uint64_t first)
{
    const struct hdf5_storage *storage = range->layout->storage;
    char *bytes = range->bytes;
    uint64_t left = range->n, offset, end;
    int error = 0;
    for (size_t i = 0; i < storage->n_segments && left > 0 && !error; i++) {
        const struct hdf5_segment *segment = &storage->segments[i];
        bool is_endless = segment->size == UINT64_MAX;
        if (!is_endless && first >= segment->size) {
            first -= segment->size;
            continue;
        }
        uint64_t there = segment->size - first, n = is_endless || there > left ? left : there;
        if (__builtin_add_overflow(segment->offset, first, &offset) ||
            __builtin_add_overflow(offset, n, &end) || end > INT64_MAX)
            return failed(range, segment, -EOVERFLOW);
        error = cpu_limit_check(SEGMENT_BYTES);
        if (!error)
            error = range->action(range, segment, offset, bytes, n);
        first = 0;
        bytes = bytes ? bytes + n : NULL;
        left -= n;
    }
    return error || left == 0 ? error
                              : layout_failed(range->layout, range->scaled, UINT64_MAX,
                                              "its external files end before it does");
}

/* The first byte of an element with these coordinates. */
static int byte_of(const struct layout *layout, const uint64_t *scaled, const uint64_t *start,
                   uint64_t *byte)
{
    uint64_t first = 0;
    *byte = 0;
    for (int i = 0; i < layout->rank; i++)
        if (__builtin_mul_overflow(first, layout->dims[i], &first) ||
            __builtin_add_overflow(first, start[i], &first))
            return layout_failed(layout, scaled, UINT64_MAX, "no file has so many elements");
    if (__builtin_mul_overflow(first, layout->element_size, byte))
        return layout_failed(layout, scaled, UINT64_MAX, "no file has so many elements");
    return 0;
}

/* A piece is whole trailing axes, and a part of one: it lies without a gap. */
static int decode(struct layout *layout, const struct decoding *chunk)
{
    struct cache_form *form = chunk->form;
    uint64_t start[SFS_MAX_RANK], count[SFS_MAX_RANK], first, n = 1;
    layout_inside(layout, chunk->scaled, start, count);
    for (int i = 0; i < layout->rank; i++)
        n *= count[i];
    int error = byte_of(layout, chunk->scaled, start, &first);
    if (!error)
        error = form_new_elements(layout, form, chunk->pool);
    if (error)
        return error;
    if (layout->fill_missing)
        fill_elements(form->elements, n, layout->element_size, layout->info->fill);
    const struct range range = {
        layout, chunk->scaled, read_segment, form->elements, n * layout->element_size, NULL};
    return each_segment(&range, first);
}

/* ---- Writing ---- */

/* What the rules forbid is an error of input, as in reading; else it is what the system says. */
static int open_segment(const struct range *range, const struct hdf5_segment *segment, int *fd)
{
    const char *why;
    int error = store_open_raw(range->layout->store, segment->name, fd, &why);
    if (!error || error == -ENOMEM || error == -EINTR)
        return error;
    say(range, segment, error, "cannot be written:", why);
    return why || error == -ENOENT || error == -EINVAL ? -EIO : error;
}

static int check_segment(const struct range *range, const struct hdf5_segment *segment,
                         uint64_t offset, char *bytes, uint64_t n)
{
    (void)offset, (void)bytes, (void)n;
    int fd, error = open_segment(range, segment, &fd);
    if (!error)
        close(fd);
    return error;
}

/* What was written there is synced by the next commit. */
static int end_opened(struct layout *layout, struct opened *opened)
{
    int error = opened->segment ? store_raw_written(layout->store, opened->fd) : 0;
    opened->segment = NULL;
    return error;
}

static int write_segment(const struct range *range, const struct hdf5_segment *segment,
                         uint64_t offset, char *bytes, uint64_t n)
{
    struct opened *opened = range->opened;
    size_t done;
    int error = 0;
    if (opened->segment != segment) {
        error = end_opened(range->layout, opened);
        if (!error)
            error = open_segment(range, segment, &opened->fd);
        if (error)
            return error;
        opened->segment = segment;
    }
    error = io_write_at(opened->fd, offset, bytes, (size_t)n, &done);
    if (error)
        say(range, segment, error, "cannot be written:", NULL);
    return error;
}

static int check_bytes(struct layout *layout, const uint64_t *scaled, uint64_t first, uint64_t end)
{
    const struct range range = {layout, scaled, check_segment, NULL, end - first, NULL};
    return each_segment(&range, first);
}

static int check_write(struct layout *layout, uint64_t first, uint64_t n)
{
    static const uint64_t origin[SFS_MAX_RANK];
    uint64_t end, from;
    if (__builtin_add_overflow(first, n, &end) ||
        __builtin_mul_overflow(end, layout->element_size, &end) ||
        __builtin_mul_overflow(first, layout->element_size, &from))
        return layout_failed(layout, origin, UINT64_MAX, "no file has so many elements");
    return check_bytes(layout, origin, from, end);
}

static int write_row(void *context, size_t in_box, size_t in_dataset, size_t bytes)
{
    struct range range = *(const struct range *)context;
    range.bytes += in_box;
    range.n = bytes;
    return each_segment(&range, in_dataset);
}

/* All of the files that it concerns are looked at before the first of them is changed. */
static int write_box(struct layout *layout, const struct box *box, const void *elements)
{
    static const uint64_t origin[SFS_MAX_RANK];
    uint64_t scaled[SFS_MAX_RANK], last[SFS_MAX_RANK], first, end;
    struct opened opened = {0};
    const struct range range = {layout, scaled, write_segment, (char *)elements, 0, &opened};
    for (int i = 0; i < layout->rank; i++) {
        if (box->count[i] == 0)
            return 0;
        scaled[i] = box->start[i] / layout->chunk_dims[i];
        last[i] = box->start[i] + box->count[i] - 1;
    }
    int error = byte_of(layout, scaled, box->start, &first);
    if (!error)
        error = byte_of(layout, scaled, last, &end);
    if (!error && (__builtin_add_overflow(end, layout->element_size, &end) || end > SIZE_MAX))
        error = -EFBIG;
    if (!error)
        error = check_bytes(layout, scaled, first, end);
    INTERRUPTED_LATE();
    if (!error)
        error =
            box_each_row(&(struct box_shape){layout->rank, box->count, layout->element_size},
                         (struct box_place){box->count, origin},
                         (struct box_place){layout->dims, box->start}, write_row, (void *)&range);
    int unsynced = end_opened(layout, &opened);
    return error ? error : unsynced;
}

const struct layout_ops layout_external = {.lookup = layout_find_piece,
                                           .decode_bytes = layout_piece_bytes,
                                           .decode = decode,
                                           .check_write = check_write,
                                           .write = write_box};
