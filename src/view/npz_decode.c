/* Reading what scipy.sparse.save_npz writes, and what others write like it: a ZIP archive, of which
 * nothing is trusted. Of an archive only the directory at its end counts, as for other programs. */
#include <endian.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <zlib.h>

#include "common/interrupt.h"
#include "common/size.h"
#include "view/npz.h"

#define PIECE_BYTES   ((size_t)1 << 20) /* between two questions whether it is still wanted */
#define MOST_MEMBERS  32
#define END_BYTES     22
#define CENTRAL_BYTES 46
#define LOCAL_BYTES   30
#define MOST_COMMENT  UINT16_MAX
#define STORED        0
#define DEFLATED      8

struct zip {
    const unsigned char *bytes;
    size_t n;
    size_t directory; /* where it begins */
    unsigned members;
    size_t most; /* bytes of a member */
    struct why *why;
};

/* An array, and its bytes, which are freed. */
struct part {
    char *bytes;
    struct npy_array array;
};

static int refuse(struct why *why, const char *text)
{
    return why_refused(why, -EINVAL, "%s", text);
}

static uint16_t get16(const unsigned char *at)
{
    return (uint16_t)(at[0] | at[1] << 8);
}

static uint32_t get32(const unsigned char *at)
{
    return get16(at) | (uint32_t)get16(at + 2) << 16;
}

static bool has_room(const struct zip *zip, size_t at, size_t n)
{
    return at <= zip->n && n <= zip->n - at;
}

/* The record at the end, before a comment that reaches to the end. */
static int find_directory(struct zip *zip)
{
    size_t least = zip->n > END_BYTES + MOST_COMMENT ? zip->n - END_BYTES - MOST_COMMENT : 0;
    for (size_t at = zip->n < END_BYTES ? 0 : zip->n - END_BYTES + 1; at-- > least;) {
        const unsigned char *end = zip->bytes + at;
        if (get32(end) != 0x06054b50 || get16(end + 20) != zip->n - at - END_BYTES)
            continue;
        zip->directory = get32(end + 16);
        zip->members = get16(end + 10);
        if (get16(end + 4) != 0 || get16(end + 6) != 0 || zip->members > MOST_MEMBERS)
            break;
        return 0;
    }
    return refuse(zip->why, "it is no ZIP archive of a few members");
}

/* The entry of a member in the directory; -ENOENT: there is none. */
static int find_member(const struct zip *zip, const char *name, const unsigned char **found)
{
    size_t at = zip->directory;
    for (unsigned i = 0; i < zip->members; i++) {
        const unsigned char *entry = zip->bytes + at;
        if (!has_room(zip, at, CENTRAL_BYTES) || get32(entry) != 0x02014b50)
            return refuse(zip->why, "its directory is damaged");
        size_t length = get16(entry + 28);
        size_t n = CENTRAL_BYTES + length + get16(entry + 30) + get16(entry + 32);
        if (!has_room(zip, at, n))
            return refuse(zip->why, "its directory is damaged");
        if (length == strlen(name) && memcmp(entry + CENTRAL_BYTES, name, length) == 0) {
            *found = entry;
            return 0;
        }
        at += n;
    }
    return -ENOENT;
}

static size_t piece_of(size_t left)
{
    return left < PIECE_BYTES ? left : PIECE_BYTES;
}

/* -EILSEQ: they are not what to_n bytes were made to; -ENOMEM; -EINTR. */
static int inflate_all(const unsigned char *from, size_t from_n, char *to, size_t to_n)
{
    z_stream stream = {.next_in = (unsigned char *)from, .next_out = (unsigned char *)to};
    int error = 0, result = Z_OK;
    if (inflateInit2(&stream, -MAX_WBITS) != Z_OK)
        return -ENOMEM;
    while (result == Z_OK && !error) {
        stream.avail_in = (uInt)piece_of(from_n - stream.total_in);
        stream.avail_out = (uInt)piece_of(to_n - stream.total_out);
        result = inflate(&stream, Z_NO_FLUSH);
        error = interrupt_check();
    }
    bool is_whole = result == Z_STREAM_END && stream.total_out == to_n;
    inflateEnd(&stream);
    return error ? error : result == Z_MEM_ERROR ? -ENOMEM : is_whole ? 0 : -EILSEQ;
}

/* Whether they have this checksum: else -EILSEQ; -EINTR. */
static int check_sum(const char *bytes, size_t n, uint32_t sum)
{
    uLong found = crc32(0, NULL, 0);
    int error = 0;
    for (size_t at = 0; at < n && !error; at += piece_of(n - at)) {
        found = crc32(found, (const unsigned char *)bytes + at, (uInt)piece_of(n - at));
        error = interrupt_check();
    }
    return error ? error : found == sum ? 0 : -EILSEQ;
}

static int take_member(const struct zip *zip, const unsigned char *entry, char **out, size_t *out_n)
{
    unsigned method = get16(entry + 10);
    size_t packed = get32(entry + 20), n = get32(entry + 24), at = get32(entry + 42);
    if (packed == UINT32_MAX || n == UINT32_MAX || at == UINT32_MAX)
        return refuse(zip->why, "it has parts of 4 GiB");
    if (get16(entry + 8) & 1 || (method != STORED && method != DEFLATED))
        return refuse(zip->why, "it is encrypted, or not compressed by deflate");
    if (!has_room(zip, at, LOCAL_BYTES) || get32(zip->bytes + at) != 0x04034b50)
        return refuse(zip->why, "its directory is damaged");
    at += LOCAL_BYTES + get16(zip->bytes + at + 26) + get16(zip->bytes + at + 28);
    if (!has_room(zip, at, packed) || (method == STORED && packed != n))
        return refuse(zip->why, "its directory is damaged");
    if (n > zip->most)
        return -EFBIG;
    char *bytes = malloc(n ? n : 1);
    if (!bytes)
        return -ENOMEM;
    int error = 0;
    if (method == STORED)
        memcpy(bytes, zip->bytes + at, n);
    else
        error = inflate_all(zip->bytes + at, packed, bytes, n);
    if (!error)
        error = check_sum(bytes, n, get32(entry + 16));
    if (error) {
        free(bytes);
        return error == -EILSEQ ? refuse(zip->why, "its bytes are not those of its checksum")
                                : error;
    }
    *out = bytes;
    *out_n = n;
    return 0;
}

/* The array of a member, which must be there. */
static int take_array(const struct zip *zip, const char *name, struct part *part)
{
    const unsigned char *entry = NULL;
    size_t n = 0;
    int error = find_member(zip, name, &entry);
    if (error == -ENOENT)
        return why_refused(zip->why, -EINVAL, "it has no %s", name);
    if (!error)
        error = take_member(zip, entry, &part->bytes, &n);
    if (!error && !numpy_array(part->bytes, n, &part->array))
        error = why_refused(zip->why, -EINVAL, "%s is no NumPy array of up to one dim", name);
    return error;
}

static void part_free(struct part *part)
{
    free(part->bytes);
}

/* ---- Numbers ---- */

/* An integer that is not negative; false: it is none. */
static bool get_index(const struct npy_array *array, uint64_t i, uint64_t *value)
{
    const unsigned char *at = (const unsigned char *)array->elements + i * array->item;
    *value = 0;
    for (size_t k = 0; k < array->item; k++)
        *value |= (uint64_t)at[array->is_big ? array->item - 1 - k : k] << 8 * k;
    return array->kind == 'u' ? *value <= INT64_MAX : !(*value >> (8 * array->item - 1));
}

static bool is_integers(const struct npy_array *array)
{
    return (array->kind == 'i' || array->kind == 'u') && array->item <= sizeof(uint64_t);
}

/* What is known of an archive while its points are taken. */
struct reading {
    const struct zip *zip;
    const struct npz_form *form;
    uint64_t n;
    struct point *point;
};

static int read_shape(const struct zip *zip, const struct reading *reading)
{
    struct part shape = {0};
    uint64_t rows, columns;
    int error = take_array(zip, "shape.npy", &shape);
    if (!error && (shape.array.n != 2 || !is_integers(&shape.array) ||
                   !get_index(&shape.array, 0, &rows) || !get_index(&shape.array, 1, &columns) ||
                   rows != reading->form->rows || columns != reading->form->columns))
        error = why_refused(zip->why, -EINVAL, "the shape is not (%llu, %llu)",
                            (unsigned long long)reading->form->rows,
                            (unsigned long long)reading->form->columns);
    part_free(&shape);
    return error;
}

static int take_indices(const struct zip *zip, const char *name, uint64_t n, struct part *part)
{
    int error = take_array(zip, name, part);
    if (!error && (!is_integers(&part->array) || part->array.n != n))
        error = why_refused(zip->why, -EINVAL, "%s has not one integer for each element", name);
    return error;
}

static bool set_point(struct reading *reading, uint64_t i, uint64_t row, uint64_t column)
{
    reading->point[i] = (struct point){row * reading->form->columns + column, i};
    return row < reading->form->rows && column < reading->form->columns;
}

/* csr, and csc with rows and columns exchanged. */
static int read_compressed(struct reading *reading, bool by_column)
{
    const struct zip *zip = reading->zip;
    struct part indptr = {0}, indices = {0};
    uint64_t lines = by_column ? reading->form->columns : reading->form->rows, end = 0, begin,
             other;
    int error = take_indices(zip, "indptr.npy", lines + 1, &indptr);
    if (!error)
        error = take_indices(zip, "indices.npy", reading->n, &indices);
    bool good = !error && get_index(&indptr.array, 0, &begin) && begin == 0;
    for (uint64_t line = 0; line < lines && good && !error; line++) {
        begin = end;
        good = get_index(&indptr.array, line + 1, &end) && end >= begin && end <= reading->n;
        error = points_ask(line);
        for (uint64_t i = begin; i < end && good && !error; i++) {
            good = get_index(&indices.array, i, &other) &&
                   set_point(reading, i, by_column ? other : line, by_column ? line : other);
            error = points_ask(i);
        }
    }
    if (!error && (!good || end != reading->n))
        error = refuse(zip->why, "an element is outside of the frame, or belongs to no row");
    part_free(&indptr);
    part_free(&indices);
    return error;
}

static int read_coordinates(struct reading *reading)
{
    const struct zip *zip = reading->zip;
    struct part rows = {0}, columns = {0};
    uint64_t row, column;
    int error = take_indices(zip, "row.npy", reading->n, &rows);
    if (!error)
        error = take_indices(zip, "col.npy", reading->n, &columns);
    for (uint64_t i = 0; i < reading->n && !error; i++)
        error = get_index(&rows.array, i, &row) && get_index(&columns.array, i, &column) &&
                        set_point(reading, i, row, column)
                    ? points_ask(i)
                    : refuse(zip->why, "an element is outside of the frame");
    part_free(&rows);
    part_free(&columns);
    return error;
}

static int read_points(struct reading *reading)
{
    const struct zip *zip = reading->zip;
    struct part format = {0};
    int error = take_array(zip, "format.npy", &format);
    bool is_text = !error && format.array.n == 1 && format.array.item == 3;
    const char *name = is_text ? format.array.elements : "";
    if (error)
        ;
    else if (is_text && !memcmp(name, "csr", 3))
        error = read_compressed(reading, false);
    else if (is_text && !memcmp(name, "csc", 3))
        error = read_compressed(reading, true);
    else if (is_text && !memcmp(name, "coo", 3))
        error = read_coordinates(reading);
    else
        error = refuse(zip->why, "its format is none of csr, csc and coo");
    part_free(&format);
    return error;
}

/* ---- A file ---- */

int npz_form_take(struct views *views, struct npz_form *form)
{
    LOOKING_AT(views);
    const struct view_head *head = &views->heads[VIEW_NPY];
    if (!has_view(views, VIEW_NPZ))
        return -EOPNOTSUPP;
    *form = (struct npz_form){.elements = views->frame_elements,
                              .item = views->info->type.size,
                              .head = {malloc(head->n ? head->n : 1), head->n}};
    if (!form->head.bytes)
        return -ENOMEM;
    if (head->n > 0)
        memcpy(form->head.bytes, head->bytes, head->n);
    npz_shape(views, &form->rows, &form->columns);
    return 0;
}

void npz_form_free(struct npz_form *form)
{
    free(form->head.bytes);
}

size_t npz_memory(const struct npz_form *form, const char *bytes, size_t n, size_t most_bytes)
{
    static const char *const names[] = {"data.npy",    "shape.npy", "format.npy", "indptr.npy",
                                        "indices.npy", "row.npy",   "col.npy"};
    struct why why;
    struct zip zip = {.bytes = (const unsigned char *)bytes, .n = n, .why = &why};
    uint64_t elements = 0;
    size_t all = 0;
    if (find_directory(&zip) != 0)
        return 0;
    for (size_t i = 0; i < sizeof(names) / sizeof(*names); i++) {
        const unsigned char *entry;
        if (find_member(&zip, names[i], &entry) != 0 || get32(entry + 24) > most_bytes)
            continue;
        all = size_sum(all, get32(entry + 24));
        if (i == 0)
            elements = get32(entry + 24) / form->item;
    }
    elements = elements < form->elements ? elements : form->elements;
    uint64_t gaps = form->elements / 2 + 1, intervals = elements < gaps ? elements : gaps;
    all = size_sum(all, size_product(size_of(elements), sizeof(struct point) + form->item));
    return size_sum(all, size_product(size_of(intervals + 1), sizeof(struct sfs_interval)));
}

/* Its points, out of values that are in *data. */
static int make_points(struct reading *reading, const struct part *data, struct points *points)
{
    const struct npz_form *form = reading->form;
    const uint64_t n = reading->n;
    reading->point = calloc((size_t)n + 1, sizeof(*reading->point));
    int error = reading->point ? read_points(reading) : -ENOMEM;
    if (!error) {
        error = points_sort(reading->point, n);
        if (error == -EINVAL)
            error = refuse(reading->zip->why, "an element is there twice");
    }
    if (!error)
        error = points_make(reading->point, n, data->array.elements, form->item, points);
    if (!error)
        numpy_order(&form->head, &data->array, points->values, (size_t)n * form->item);
    free(reading->point);
    return error;
}

int npz_decode(const struct npz_form *form, const char *bytes, size_t n, size_t most_bytes,
               struct points *points, struct why *why)
{
    struct zip zip = {
        .bytes = (const unsigned char *)bytes, .n = n, .most = most_bytes, .why = why};
    struct reading reading = {.zip = &zip, .form = form};
    struct part data = {0};
    *points = (struct points){0};
    int error = find_directory(&zip);
    if (!error)
        error = read_shape(&zip, &reading);
    if (!error)
        error = take_array(&zip, "data.npy", &data);
    if (!error)
        error = numpy_is_of_type(&form->head, &data.array, why);
    reading.n = data.array.n;
    if (!error && (reading.n > form->elements || data.array.item != form->item))
        error = refuse(why, "it has more elements than a frame");
    if (!error)
        error = make_points(&reading, &data, points);
    part_free(&data);
    return error;
}
