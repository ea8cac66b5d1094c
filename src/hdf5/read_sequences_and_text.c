/* Datasets as text, and parts of those whose elements have variable length: read in boxes, in the
 * form in which their parts can be followed, each within a piece of time, as others want libhdf5,
 * too. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "common/box.h"
#include "hdf5/local.h"
#include "hdf5/private.h"

#define BATCH_BYTES ((uint64_t)1 << 20) /* in memory form */
#define FIRST_BATCH 1024                /* elements that are read at once */

/* A dataset that becomes text, or of which parts are read. */
struct dataset_text {
    struct text_source source;
    struct hdf5 *hdf5;
    uint64_t address;
    struct box box; /* all of it */
    uint64_t total; /* elements */
    hid_t native;   /* the type that they are read in */
    struct text_type type;
};

/* Looks at the dataset; the library lock is held, here and in begin_text. */
static int begin(struct dataset_text *t)
{
    const struct open_dataset *dataset = dataset_find(t->hdf5, t->address);
    hsize_t dims[SFS_MAX_RANK];
    if (!dataset)
        return -EBADF;
    t->box = (struct box){.rank = 1, .count = {1}};
    if (dataset->rank > 0) {
        if (H5Sget_simple_extent_dims(dataset->space, dims, NULL) < 0)
            return library_failed(-EIO);
        t->box.rank = dataset->rank;
        for (int i = 0; i < dataset->rank; i++)
            t->box.count[i] = dims[i];
    } else if (H5Sget_simple_extent_type(dataset->space) == H5S_NULL) {
        t->box.count[0] = 0;
    }
    return box_product(t->box.count, t->box.rank, 1, &t->total) ? 0 : -EFBIG;
}

static int begin_text(struct dataset_text *t)
{
    int error = begin(t);
    if (error)
        return error;
    t->native = text_memory_type(dataset_find(t->hdf5, t->address)->type);
    return t->native < 0 ? library_failed(-EIO) : text_type_make(t->native, &t->type);
}

/* Reads the elements of a box of a dataset; the library lock is held. */
static int read_box(const struct dataset_text *t, const struct box *box, char *elements)
{
    const struct open_dataset *dataset = dataset_find(t->hdf5, t->address);
    hsize_t start[SFS_MAX_RANK], count[SFS_MAX_RANK];
    if (!dataset)
        return -EBADF;
    int error = dataset_check_readable(dataset);
    if (error)
        return error;
    for (int i = 0; i < box->rank; i++) {
        start[i] = box->start[i];
        count[i] = box->count[i];
    }
    /* Of the same shape in memory: with another one libhdf5 1.10 divides by zero at rank 32. */
    hid_t memory = H5Screate_simple(box->rank, count, NULL);
    if (memory < 0 ||
        (dataset->rank > 0 &&
         H5Sselect_hyperslab(dataset->space, H5S_SELECT_SET, start, NULL, count, NULL) < 0) ||
        H5Dread(dataset->id, t->native, memory, dataset->space, H5P_DEFAULT, elements) < 0)
        error = library_failed(-EIO);
    error = library_has_read(error);
    if (memory >= 0)
        H5Sclose(memory);
    return error;
}

/* Reads and writes one box; *late: reading it has taken as long as it should at most. */
static int write_box(FILE *out, const struct dataset_text *t, const struct box *box,
                     uint64_t row_length, uint64_t *position, bool *late)
{
    uint64_t n = box_elements(box);
    char *elements = calloc(n, t->type.size);
    if (!elements)
        return -ENOMEM;
    library_enter();
    uint64_t piece = piece_begin();
    int error = read_box(t, box, elements);
    bool is_read = !error;
    *late = piece_is_over(piece);
    error = library_leave_with(error);
    const struct text_writer writer = {out, &t->source};
    if (!error)
        error = text_elements(&writer, &t->type, elements, n, row_length, position);
    if (is_read) {
        library_enter();
        text_reclaim(t->native, n, elements);
        library_leave();
    }
    free(elements);
    return error;
}

/* In boxes that are read within a piece: others want libhdf5, too. */
static int write_boxes(FILE *out, const struct dataset_text *t, size_t limit)
{
    uint64_t most = BATCH_BYTES / t->type.size, position = 0;
    uint64_t n = FIRST_BATCH;
    uint64_t row_length = t->total == 1 ? 0 : t->box.count[t->box.rank - 1];
    int error = 0;
    while (position < t->total && !error) {
        struct box box;
        bool late = false;
        uint64_t left = t->total - position;
        n = n < most ? n : most;
        box_of_interval(&t->box, position, left < n ? left : n ? n : 1, &box);
        error = write_box(out, t, &box, row_length, &position, &late);
        n = late ? n / 2 : 2 * n;
        n = n ? n : 1;
        if (!error && (uint64_t)ftello(out) > limit)
            error = -EFBIG;
    }
    return error;
}

static int make_text(struct hdf5 *hdf5, uint64_t address, size_t limit, bool may_search,
                     char **text, size_t *n)
{
    struct dataset_text t = {
        .source = {.hdf5 = hdf5}, .hdf5 = hdf5, .address = address, .native = H5I_INVALID_HID};
    library_enter();
    int error = begin_text(&t);
    error = library_leave_with(error);
    if (!error && t.type.has_references)
        error = may_search || names_are_there(hdf5) ? names_get(hdf5, &t.source.names) : -EAGAIN;
    FILE *out = error ? NULL : open_memstream(text, n);
    if (!error && !out)
        error = -ENOMEM;
    if (!error)
        error = write_boxes(out, &t, limit);
    if (out && fclose(out) != 0 && !error)
        error = -ENOMEM;
    if (error && out) {
        free(*text);
        *text = NULL;
    }
    names_put(hdf5, t.source.names);
    library_enter();
    if (t.native >= 0)
        H5Tclose(t.native);
    text_type_free(&t.type);
    library_leave();
    return error;
}

int local_text(struct hdf5 *hdf5, uint64_t address, size_t limit, char **text, size_t *n)
{
    return make_text(hdf5, address, limit, true, text, n);
}

int local_text_at_hand(struct hdf5 *hdf5, uint64_t address, size_t limit, char **text, size_t *n)
{
    return make_text(hdf5, address, limit, false, text, n);
}

/* ---- Parts ---- */

/* Reads n elements from the first-th on into packed ones of `size` bytes; the library lock is held.
 */
static int read_elements(const struct dataset_text *t, uint64_t first, uint64_t n, size_t size,
                         char *elements)
{
    int error = 0;
    if (first > t->total || n > t->total - first)
        return -EINVAL;
    while (n > 0 && !error) {
        struct box box;
        uint64_t here = box_of_interval(&t->box, first, n, &box);
        error = read_box(t, &box, elements);
        elements += here * size;
        first += here;
        n -= here;
    }
    return error;
}

/* Sequences as they are in the file, one after the other. */
static int pack(const hvl_t *sequences, uint64_t n, size_t size, size_t most, char **out,
                size_t *out_n)
{
    uint64_t all = 0;
    for (uint64_t i = 0; i < n; i++) {
        uint64_t len = sequences[i].p ? sequences[i].len : 0, bytes;
        if (!box_product(&len, 1, size, &bytes) || bytes > most - all)
            return -EFBIG;
        all += bytes;
    }
    char *to = *out = malloc(all ? all : 1);
    if (!to)
        return -ENOMEM;
    for (uint64_t i = 0; i < n; i++) {
        size_t bytes = sequences[i].p ? sequences[i].len * size : 0;
        if (bytes > 0)
            memcpy(to, sequences[i].p, bytes);
        to += bytes;
    }
    *out_n = (size_t)all;
    return 0;
}

static int read_lengths(struct dataset_text *t, uint64_t first, uint64_t n, char **out,
                        size_t *out_n)
{
    char *lengths = calloc(n ? n : 1, sizeof(uint64_t));
    t->native = lengths_type();
    int error = !lengths ? -ENOMEM : t->native < 0 ? library_failed(-EIO) : 0;
    if (!error)
        error = read_elements(t, first, n, sizeof(uint64_t), lengths);
    if (error) {
        free(lengths);
        return error;
    }
    *out = lengths;
    *out_n = (size_t)n * sizeof(uint64_t);
    return 0;
}

/* Whether sequences have no more than `most` bytes, before libhdf5 believes their lengths: some of
 * its versions read behind what they have, and others allocate it. */
static int check_lengths(struct dataset_text *t, uint64_t first, uint64_t n, size_t size,
                         size_t most)
{
    char *lengths;
    size_t lengths_n;
    int error = read_lengths(t, first, n, &lengths, &lengths_n);
    if (t->native >= 0)
        H5Tclose(t->native);
    t->native = H5I_INVALID_HID;
    if (error)
        return error;
    uint64_t all = 0;
    for (uint64_t i = 0; i < n && !error; i++) {
        uint64_t length, bytes;
        memcpy(&length, lengths + i * sizeof(length), sizeof(length));
        if (!box_product(&length, 1, size, &bytes) || bytes > most - all)
            error = -EFBIG;
        else
            all += bytes;
    }
    free(lengths);
    return error;
}

static int read_sequences(struct dataset_text *t, uint64_t first, uint64_t n, size_t most,
                          char **out, size_t *out_n)
{
    hid_t base = H5Tget_super(dataset_find(t->hdf5, t->address)->type);
    size_t size = base < 0 ? 0 : H5Tget_size(base);
    hvl_t *sequences = calloc(n ? n : 1, sizeof(*sequences));
    int error = !sequences ? -ENOMEM : size == 0 ? library_failed(-EIO) : 0;
    if (!error)
        error = check_lengths(t, first, n, size, most);
    if (!error && (t->native = H5Tvlen_create(base)) < 0)
        error = library_failed(-EIO);
    if (!error)
        error = read_elements(t, first, n, sizeof(*sequences), (char *)sequences);
    if (!error)
        error = pack(sequences, n, size, most, out, out_n);
    if (sequences && t->native >= 0)
        text_reclaim(t->native, n, sequences);
    if (base >= 0)
        H5Tclose(base);
    free(sequences);
    return error;
}

/* The bytes of elements, and of what they lead to, in *out. */
static int put_stored(const struct sfs_type *type, const char *elements, uint64_t n, size_t most,
                      char **out, size_t *out_n)
{
    FILE *stream = open_memstream(out, out_n);
    int error = stream ? 0 : -ENOMEM;
    for (uint64_t i = 0; i < n && !error; i++) {
        stored_put(stream, type, elements + i * type->size);
        if ((uint64_t)ftello(stream) > most)
            error = -EFBIG;
    }
    if (stream && fclose(stream) != 0 && !error)
        error = -ENOMEM;
    if (error && stream)
        free(*out);
    return error;
}

struct stored_piece {
    struct dataset_text *t;
    uint64_t first, n;
};

static int read_piece_as(void *context, hid_t type, void *buffer)
{
    const struct stored_piece *piece = context;
    struct dataset_text as = *piece->t;
    as.native = type;
    return read_elements(&as, piece->first, piece->n, H5Tget_size(type), buffer);
}

static int read_stored(struct dataset_text *t, uint64_t first, uint64_t n, size_t most, char **out,
                       size_t *out_n)
{
    struct sfs_type type;
    hid_t id = dataset_find(t->hdf5, t->address)->type;
    int error = stored_type(id, &type);
    if (error)
        return error;
    char *elements = calloc(n ? n : 1, type.size);
    t->native = elements ? H5Tcopy(id) : H5I_INVALID_HID;
    struct stored_piece piece = {t, first, n};
    error = !elements ? -ENOMEM : t->native < 0 ? library_failed(-EIO) : 0;
    if (!error)
        error = lengths_check(&(struct lengths_source){read_piece_as, &piece}, id, n, most);
    if (!error)
        error = read_elements(t, first, n, type.size, elements);
    if (!error)
        error = put_stored(&type, elements, n, most, out, out_n);
    if (t->native >= 0)
        text_reclaim(t->native, n, elements);
    free(elements);
    hdf5_type_free(&type);
    return error;
}

/* Of what is wanted, which are lines or JSON. */
static int write_lines(struct dataset_text *t, const struct hdf5_parts *wanted, char **out,
                       size_t *out_n)
{
    const uint64_t row_length = wanted->parts == SFS_JSON ? HDF5_JSON : HDF5_LINES;
    uint64_t first = wanted->first, n = wanted->n;
    FILE *stream = open_memstream(out, out_n);
    int error = stream ? 0 : -ENOMEM;
    while (n > 0 && !error) {
        struct box box;
        uint64_t position = 0, here = box_of_interval(&t->box, first, n, &box);
        bool late;
        error = write_box(stream, t, &box, row_length, &position, &late);
        if (!error && (uint64_t)ftello(stream) > wanted->most)
            error = -EFBIG;
        first += here;
        n -= here;
    }
    if (stream && fclose(stream) != 0 && !error)
        error = -ENOMEM;
    if (error && stream)
        free(*out);
    return error;
}

static void end_parts(struct dataset_text *t)
{
    names_put(t->hdf5, t->source.names);
    library_enter();
    if (t->native >= 0)
        H5Tclose(t->native);
    text_type_free(&t->type);
    library_leave();
}

int local_parts(struct hdf5 *hdf5, uint64_t address, const struct hdf5_parts *wanted, char **out,
                size_t *out_n)
{
    const enum sfs_parts parts = wanted->parts;
    const uint64_t first = wanted->first, n = wanted->n;
    struct dataset_text t = {
        .source = {.hdf5 = hdf5}, .hdf5 = hdf5, .address = address, .native = H5I_INVALID_HID};
    bool is_text = parts == SFS_LINES || parts == SFS_JSON;
    if (n > SFS_MOST_PARTS)
        return -EINVAL;
    library_enter();
    int error = is_text ? begin_text(&t) : begin(&t);
    if (!error && (first > t.total || n > t.total - first))
        error = -EINVAL;
    if (!error && parts == SFS_LENGTHS && n * sizeof(uint64_t) > wanted->most)
        error = -EFBIG;
    if (!error && parts == SFS_LENGTHS)
        error = read_lengths(&t, first, n, out, out_n);
    else if (!error && parts == SFS_SEQUENCES)
        error = read_sequences(&t, first, n, wanted->most, out, out_n);
    else if (!error && parts == HDF5_STORED)
        error = read_stored(&t, first, n, wanted->most, out, out_n);
    bool made = !error && !is_text;
    error = library_leave_with(error);
    if (error && made)
        free(*out);
    if (!error && is_text && t.type.has_references)
        error = names_get(hdf5, &t.source.names);
    if (!error && is_text)
        error = write_lines(&t, wanted, out, out_n);
    end_parts(&t);
    return error;
}
