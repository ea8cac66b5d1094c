/* Contiguous storage in other files, as they are listed in the dataset's header: the bytes of the
 * dataset are those of the first segment, then of the second and so on. They are only read, a piece
 * at a time, into our cache. A file that is shorter than its segment reads as zeros behind its end,
 * as libhdf5 has it. Which files may be read is the store's affair. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "hdf5/hdf5.h"
#include "layout/layout.h"
#include "store/store.h"

#define WHY_BYTES 1024 /* of a message */

/* Bytes of the dataset that are wanted. */
struct wanted {
    struct layout *layout;
    const uint64_t *scaled; /* of the piece that they are */
    char *bytes;
    size_t n;
};

static int failed(const struct wanted *wanted, const struct hdf5_segment *segment, int error)
{
    char why[WHY_BYTES];
    const char *refusal = store_refusal(error);
    if (error == -ENOMEM)
        return error;
    snprintf(why, sizeof(why), "external raw data in %s %s %s", segment->name,
             refusal ? "is refused:" : "cannot be read:",
             refusal               ? refusal
             : error == -EINVAL    ? "it is no regular file"
             : error == -EOVERFLOW ? "no file has such an offset"
                                   : strerror(-error));
    return layout_failed(wanted->layout, wanted->scaled, UINT64_MAX, why);
}

/* Reads n bytes, and zeros for those behind the end. */
static int read_file(int fd, uint64_t offset, char *buffer, size_t n)
{
    while (n > 0) {
        ssize_t done = pread(fd, buffer, n, (off_t)offset);
        if (done < 0 && errno == EINTR)
            continue;
        if (done < 0)
            return -errno;
        if (done == 0) {
            memset(buffer, 0, n);
            return 0;
        }
        buffer += done;
        offset += (uint64_t)done;
        n -= (size_t)done;
    }
    return 0;
}

/* Reads n bytes that are `skip` behind the start of a segment. */
static int read_segment(const struct wanted *wanted, const struct hdf5_segment *segment,
                        uint64_t skip, char *buffer, size_t n)
{
    struct store_found found;
    uint64_t offset, end;
    if (__builtin_add_overflow(segment->offset, skip, &offset) ||
        __builtin_add_overflow(offset, n, &end) || end > INT64_MAX)
        return failed(wanted, segment, -EOVERFLOW);
    int error = store_find(wanted->layout->store, STORE_RAW, segment->name, &found);
    if (error == -ENOENT && wanted->layout->fill_missing)
        return 0;
    if (error)
        return failed(wanted, segment, error);
    int fd = store_found_open(&found, O_RDONLY);
    error = fd < 0 ? fd : read_file(fd, offset, buffer, n);
    if (fd >= 0)
        close(fd);
    store_found_free(&found);
    return error ? failed(wanted, segment, error) : 0;
}

/* Reads what is wanted, which begins at this byte of the dataset. */
static int read_segments(const struct wanted *wanted, uint64_t first)
{
    const struct hdf5_storage *storage = wanted->layout->storage;
    char *buffer = wanted->bytes;
    size_t left = wanted->n;
    int error = 0;
    for (size_t i = 0; i < storage->n_segments && left > 0 && !error; i++) {
        const struct hdf5_segment *segment = &storage->segments[i];
        if (segment->size != UINT64_MAX && first >= segment->size) {
            first -= segment->size;
            continue;
        }
        uint64_t there = segment->size - first;
        size_t n = segment->size == UINT64_MAX || there > left ? left : (size_t)there;
        error = read_segment(wanted, segment, first, buffer, n);
        first = 0;
        buffer += n;
        left -= n;
    }
    return error || left == 0 ? error
                              : layout_failed(wanted->layout, wanted->scaled, UINT64_MAX,
                                              "its external files end before it does");
}

/* A piece is whole trailing axes, and a part of one: it lies without a gap. */
static int decode(struct layout *layout, const uint64_t *scaled, const struct chunk_record *record,
                  unsigned parts, const void *stored, struct pool *pool, struct cache_form *form)
{
    (void)record, (void)parts, (void)stored;
    uint64_t start[SFS_MAX_RANK], count[SFS_MAX_RANK], first = 0, n = 1;
    layout_inside(layout, scaled, start, count);
    for (int i = 0; i < layout->rank; i++) {
        if (__builtin_mul_overflow(first, layout->dims[i], &first) ||
            __builtin_add_overflow(first, start[i], &first))
            return layout_failed(layout, scaled, UINT64_MAX, "no file has so many elements");
        n *= count[i];
    }
    if (__builtin_mul_overflow(first, layout->element_size, &first))
        return layout_failed(layout, scaled, UINT64_MAX, "no file has so many elements");
    int error = form_new_elements(layout, form, pool);
    if (error)
        return error;
    if (layout->fill_missing)
        fill_elements(form->elements, n, layout->element_size, layout->info->fill);
    const struct wanted wanted = {layout, scaled, form->elements, (size_t)n * layout->element_size};
    return read_segments(&wanted, first);
}

const struct layout_ops layout_external = {
    .lookup = layout_find_piece, .decode_bytes = layout_piece_bytes, .decode = decode};
