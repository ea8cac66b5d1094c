/* A frame of a sparse dataset as one file of scipy.sparse: a ZIP archive (PKWARE's APPNOTE.TXT) of
 * NumPy arrays, stored, that make up a matrix in compressed-sparse-row form. Rows are all axes of
 * the frame but the last. The headers of the arrays have one length, so that the size follows from
 * the number of elements. */
#include <endian.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <zlib.h>

#include "common/box.h"
#include "view/npz.h"
#include "view/views_memory.h"

#define MOST_BYTES    ((uint64_t)1 << 30) /* of a frame in which all is defined */
#define HEADER_BYTES  128                 /* of each array */
#define LOCAL_BYTES   30
#define CENTRAL_BYTES 46
#define END_BYTES     22
#define NAMES_BYTES   (11 + 10 + 10 + 9 + 8) /* of all members */
#define MEMBERS       5

void npz_shape(const struct views *views, uint64_t *rows, uint64_t *columns)
{
    const uint64_t *dims = views->dims + views->info->rank - views->frame_rank;
    int n = views->frame_rank;
    *columns = n > 0 ? dims[n - 1] : 1;
    if (n < 2 || !box_product(dims, n - 1, 1, rows))
        *rows = 1;
}

bool npz_exists(const struct views *views)
{
    const struct sfs_type *type = &views->info->type;
    uint64_t rows, columns, bytes;
    if (!views->is_sparse || (!is_number(type) && !is_complex(type)) ||
        views->frame_elements > MOST_BYTES)
        return false;
    npz_shape(views, &rows, &columns);
    bytes = views->frame_elements * (type->size + csr_index_item(views));
    return bytes <= MOST_BYTES && rows < MOST_BYTES / sizeof(uint64_t);
}

uint64_t npz_bytes(const struct views *views, uint64_t elements)
{
    uint64_t rows, columns, item = csr_index_item(views);
    npz_shape(views, &rows, &columns);
    return MEMBERS * (LOCAL_BYTES + HEADER_BYTES + CENTRAL_BYTES) + 2 * NAMES_BYTES + END_BYTES +
           elements * (item + views->info->type.size) + (rows + 1) * item + 3 + 2 * sizeof(int64_t);
}

/* ---- Making it ---- */

struct member {
    const char *name;
    size_t offset; /* of its local header */
    uint32_t size, crc;
};

struct archive {
    unsigned char *bytes;
    size_t n, room;
    struct member member[MEMBERS];
    unsigned members;
};

static void put16(unsigned char *to, uint16_t value)
{
    value = htole16(value);
    memcpy(to, &value, sizeof(value));
}

static void put32(unsigned char *to, uint32_t value)
{
    value = htole32(value);
    memcpy(to, &value, sizeof(value));
}

/* What a local header and an entry of the directory have in common: from the version on. */
static void put_facts(unsigned char *to, const struct member *member)
{
    put16(to, 20);         /* of the format: 2.0 */
    put16(to + 8, 0x0021); /* 1 January 1980 */
    put32(to + 10, member->crc);
    put32(to + 14, member->size);
    put32(to + 18, member->size);
    put16(to + 22, (uint16_t)strlen(member->name));
}

/* Room for an array of one axis, or without, behind its header. -ENOMEM; -EIO: it has no room in the archive. */
static int begin_array(struct archive *archive, const char *name, const struct sfs_type *type,
                       int rank, uint64_t dim, char **elements)
{
    struct view_head head = {0};
    size_t n = (size_t)(rank > 0 ? dim : 1) * type->size;
    size_t all = LOCAL_BYTES + strlen(name) + HEADER_BYTES + n;
    if (all > archive->room - archive->n)
        return -EIO;
    int error = numpy_header(type, rank, &dim, &head);
    if (error)
        return error;
    struct member *member = &archive->member[archive->members++];
    *member = (struct member){name, archive->n, (uint32_t)(HEADER_BYTES + n), 0};
    unsigned char *at = archive->bytes + archive->n + LOCAL_BYTES;
    memcpy(at, name, strlen(name));
    at += strlen(name);
    bool fits = head.n == HEADER_BYTES;
    if (fits)
        memcpy(at, head.bytes, HEADER_BYTES);
    free(head.bytes);
    archive->n += all;
    *elements = (char *)at + HEADER_BYTES;
    return fits ? 0 : -EIO;
}

static void end_array(struct archive *archive)
{
    struct member *member = &archive->member[archive->members - 1];
    unsigned char *at = archive->bytes + member->offset;
    member->crc = (uint32_t)crc32(0, at + LOCAL_BYTES + strlen(member->name), member->size);
    put32(at, 0x04034b50);
    put_facts(at + 4, member);
}

static int end_archive(struct archive *archive)
{
    size_t begin = archive->n;
    for (unsigned i = 0; i < archive->members; i++) {
        const struct member *member = &archive->member[i];
        unsigned char *at = archive->bytes + archive->n;
        if (CENTRAL_BYTES + strlen(member->name) > archive->room - archive->n)
            return -EIO;
        put32(at, 0x02014b50);
        put16(at + 4, 20);
        put_facts(at + 6, member);
        put32(at + 42, (uint32_t)member->offset);
        memcpy(at + CENTRAL_BYTES, member->name, strlen(member->name));
        archive->n += CENTRAL_BYTES + strlen(member->name);
    }
    unsigned char *end = archive->bytes + archive->n;
    if (archive->room - archive->n != END_BYTES)
        return -EIO;
    put32(end, 0x06054b50);
    put16(end + 8, (uint16_t)archive->members);
    put16(end + 10, (uint16_t)archive->members);
    put32(end + 12, (uint32_t)(archive->n - begin));
    put32(end + 16, (uint32_t)begin);
    archive->n += END_BYTES;
    return 0;
}

static void put_index(char *to, size_t item, uint64_t value)
{
    uint64_t wide = htole64(value);
    uint32_t narrow = htole32((uint32_t)value);
    memcpy(to, item == sizeof(narrow) ? (void *)&narrow : (void *)&wide, item);
}

static int put_columns(struct archive *archive, const struct sfs_type *index,
                       const struct sfs_defined *defined, uint64_t columns)
{
    char *to;
    int error = begin_array(archive, "indices.npy", index, 1, defined->elements, &to);
    if (error)
        return error;
    for (size_t i = 0; i < defined->n; i++) {
        const struct sfs_interval *interval = &defined->interval[i];
        uint64_t n = interval[1].index - interval->index;
        for (uint64_t k = 0; k < n; k++, to += index->size)
            put_index(to, index->size, (interval->first + k) % columns);
    }
    end_array(archive);
    return 0;
}

/* How many elements are defined before each row, and in all. */
static int put_rows(struct archive *archive, const struct sfs_type *index,
                    const struct sfs_defined *defined, uint64_t rows, uint64_t columns)
{
    char *to;
    int error = begin_array(archive, "indptr.npy", index, 1, rows + 1, &to);
    if (error)
        return error;
    size_t i = 0;
    for (uint64_t row = 0; row <= rows; row++, to += index->size) {
        uint64_t begin = row * columns, before = defined->elements;
        while (i < defined->n && defined->interval[i].first + (defined->interval[i + 1].index -
                                                               defined->interval[i].index) <=
                                     begin)
            i++;
        if (i < defined->n) {
            const struct sfs_interval *interval = &defined->interval[i];
            before = interval->index + (begin > interval->first ? begin - interval->first : 0);
        }
        put_index(to, index->size, before);
    }
    end_array(archive);
    return 0;
}

static int put_small(struct archive *archive, uint64_t rows, uint64_t columns)
{
    const struct sfs_type text = {.class = SFS_STRING, .size = 3};
    const struct sfs_type number = {
        .class = SFS_INTEGER, .size = sizeof(int64_t), .is_signed = true};
    char *to;
    int error = begin_array(archive, "format.npy", &text, 0, 0, &to);
    if (error)
        return error;
    memcpy(to, "csr", 3);
    end_array(archive);
    error = begin_array(archive, "shape.npy", &number, 1, 2, &to);
    if (error)
        return error;
    put_index(to, sizeof(int64_t), rows);
    put_index(to + sizeof(int64_t), sizeof(int64_t), columns);
    end_array(archive);
    return 0;
}

/* scipy.sparse takes the byte order of its machine only, in its newer versions. */
static void make_little_endian(const struct sfs_type *type, char *elements, size_t n)
{
    char *order = memchr(elements - HEADER_BYTES, '>', HEADER_BYTES);
    if (!order)
        return;
    *order = '<';
    swap_units(elements, n, is_complex(type) ? type->size / 2 : type->size);
}

static int put_values(struct archive *archive, struct views *views, uint64_t frame,
                      const struct sfs_defined *defined)
{
    const struct sfs_type *type = &views->info->type;
    struct sfs_slab slab = view_frame_slab(views, frame);
    char *to;
    int error = begin_array(archive, "data.npy", type, 1, defined->elements, &to);
    if (!error)
        error = sfs_read_values(views->dataset, &slab, defined, 0, defined->elements, to);
    if (error)
        return error;
    show_elements(views, to, defined->elements);
    make_little_endian(type, to, defined->elements * type->size);
    end_array(archive);
    return 0;
}

int npz_make(struct views *views, uint64_t frame, struct view_head *out)
{
    const struct sfs_type index = {
        .class = SFS_INTEGER, .size = csr_index_item(views), .is_signed = true};
    struct defined_frame *held;
    uint64_t rows, columns;
    int error = defined_get(views, frame, DEFINED_INTERVALS, &held);
    if (error)
        return error;
    const struct sfs_defined *defined = &held->defined;
    struct archive archive = {.room = (size_t)npz_bytes(views, defined->elements)};
    npz_shape(views, &rows, &columns);
    error = made_memory_take(archive.room);
    if (error) {
        defined_put(views, held);
        return error;
    }
    archive.bytes = calloc(1, archive.room);
    error = archive.bytes ? put_columns(&archive, &index, defined, columns) : -ENOMEM;
    if (!error)
        error = put_rows(&archive, &index, defined, rows, columns);
    if (!error)
        error = put_small(&archive, rows, columns);
    if (!error)
        error = put_values(&archive, views, frame, defined);
    if (!error)
        error = end_archive(&archive);
    defined_put(views, held);
    if (error) {
        free(archive.bytes);
        made_memory_give_back(archive.room);
    } else {
        *out = (struct view_head){(char *)archive.bytes, archive.n};
    }
    return error;
}
