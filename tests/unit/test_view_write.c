/* Writing through views of sparse and dense datasets: random changes, cut at any byte, against a
 * plain model; two sets of views of one dataset always show the same. */
#include "support.h"

#include <errno.h>
#include <hdf5.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "view/view.h"

#define PATH      "write.h5"
#define MOST      40000 /* bytes of a dataset */
#define MOST_ITEM 5000  /* bytes of an element */
#define MOST_DIM  14    /* of the first axis where it grows */

enum how { SPARSE, CHUNKED, CONTIGUOUS, COMPACT };

struct kind {
    enum how how;
    const char *type; /* NumPy's name; NULL: a compound of 7 bytes */
    int rank, frame_rank;
    uint64_t dims[4], chunk_dims[4];
    unsigned char fill; /* every byte of the fill value */
    bool filtered, grows;
    bool untouched; /* dense: nothing was written before */
};

static const struct kind kinds[] = {
    {SPARSE, "<u2", 3, -1, {5, 6, 7}, {1, 6, 7}, 0, false, true, false},
    {SPARSE, "<u2", 3, -1, {5, 6, 7}, {2, 4, 5}, 7, true, true, false},
    {SPARSE, ">f4", 2, 1, {10, 33}, {4, 10}, 0, false, true, false},
    {SPARSE, "u1", 2, -1, {20, 30}, {6, 11}, 0, true, false, false},
    {SPARSE, "u1", 1, -1, {30000}, {1000}, 0, false, false, false},
    {SPARSE, "<u4", 4, 1, {3, 4, 5, 6}, {2, 2, 3, 4}, 0, false, true, false},
    {SPARSE, "<u4", 4, 2, {3, 4, 5, 6}, {1, 4, 5, 6}, 1, false, true, false},
    {SPARSE, "<i8", 4, 3, {3, 4, 5, 6}, {1, 2, 5, 6}, 0, true, true, false},
    {SPARSE, NULL, 3, -1, {4, 5, 6}, {1, 5, 6}, 9, true, true, false},
    {SPARSE, NULL, 1, 0, {9}, {4}, 0, false, true, false},
    {SPARSE, "V5000", 1, -1, {7}, {2}, 1, false, false, false},
    {CHUNKED, "<u2", 3, -1, {5, 6, 7}, {1, 6, 7}, 0, true, true, false},
    {CHUNKED, "<u2", 3, -1, {5, 6, 7}, {2, 4, 5}, 3, true, true, true},
    {CHUNKED, NULL, 2, 1, {6, 9}, {4, 4}, 5, false, true, false},
    {CONTIGUOUS, "<f8", 3, -1, {4, 5, 6}, {0}, 0, false, false, false},
    {CONTIGUOUS, "<u2", 3, -1, {4, 5, 6}, {0}, 4, false, false, true},
    {CONTIGUOUS, "u1", 1, -1, {3000}, {0}, 0, false, false, false},
    {CONTIGUOUS, NULL, 0, -1, {0}, {0}, 8, false, false, false},
    {COMPACT, "<i4", 2, -1, {12, 13}, {0}, 0, false, false, false},
};

struct model {
    const struct kind *kind;
    size_t item;
    uint64_t dims[4];
    int nav_rank;
    unsigned char value[MOST];
    bool defined[MOST];
    struct sfs_file *file;
    struct sfs_dataset *dataset;
    struct views *views[2]; /* of the same dataset, as two hard links have them */
};

static uint64_t product(const uint64_t *dims, int n)
{
    uint64_t result = 1;
    for (int i = 0; i < n; i++)
        result *= dims[i];
    return result;
}

static uint64_t elements_of(const struct model *model)
{
    return product(model->dims, model->kind->rank);
}

static uint64_t frame_elements_of(const struct model *model)
{
    return product(model->dims + model->nav_rank, model->kind->rank - model->nav_rank);
}

static uint64_t frames_of(const struct model *model)
{
    return product(model->dims, model->nav_rank);
}

/* One of the two sets of views. */
static struct views *either(const struct model *model)
{
    return model->views[random_below(2)];
}

/* ---- Files ---- */

static hid_t make_type(const struct kind *kind)
{
    if (kind->type) {
        void *bytes;
        size_t n;
        assert_int_equal(sfs_type_encode(kind->type, &bytes, &n), 0);
        hid_t type = H5Tdecode(bytes);
        free(bytes);
        return type;
    }
    hid_t type = H5Tcreate(H5T_COMPOUND, 7);
    H5Tinsert(type, "a", 0, H5T_STD_U8LE);
    H5Tinsert(type, "b", 1, H5T_IEEE_F32LE);
    H5Tinsert(type, "c", 5, H5T_STD_U16BE);
    return type;
}

static void create_sparse(const struct model *model, hid_t type, const void *fill)
{
    const struct kind *kind = model->kind;
    const unsigned level = 1;
    const struct sfs_filter deflate = {.id = 1, .n_values = 1, .values = &level};
    struct sfs_options options = {.replace = true};
    struct sfs_dataset_create create = {.rank = kind->rank, .fill = fill};
    struct sfs_file *file;
    struct sfs_dataset *dataset;
    H5Tencode(type, NULL, &create.type.n);
    void *encoded = allocate(create.type.n);
    H5Tencode(type, encoded, &create.type.n);
    create.type.bytes = encoded;
    memcpy(create.dims, kind->dims, sizeof(kind->dims));
    memcpy(create.max_dims, kind->dims, sizeof(kind->dims));
    memcpy(create.chunk_dims, kind->chunk_dims, sizeof(kind->chunk_dims));
    if (kind->grows)
        create.max_dims[0] = SFS_UNLIMITED;
    for (int i = 0; i < 2; i++) {
        create.n_filters[i] = kind->filtered;
        create.filters[i] = &deflate;
    }
    assert_int_equal(sfs_create(PATH, &options, &file), 0);
    assert_int_equal(sfs_dataset_create(file, "/d", &create, &dataset), 0);
    sfs_dataset_close(dataset);
    assert_int_equal(sfs_close(file), 0);
    free(encoded);
}

static hid_t make_space(const struct kind *kind)
{
    hsize_t dims[4], max_dims[4];
    if (kind->rank == 0)
        return H5Screate(H5S_SCALAR);
    for (int i = 0; i < kind->rank; i++)
        dims[i] = max_dims[i] = kind->dims[i];
    if (kind->grows)
        max_dims[0] = H5S_UNLIMITED;
    return H5Screate_simple(kind->rank, dims, max_dims);
}

static void create_dense(struct model *model, hid_t type, const void *fill)
{
    const struct kind *kind = model->kind;
    hsize_t chunk_dims[4];
    hid_t dcpl = H5Pcreate(H5P_DATASET_CREATE), space = make_space(kind);
    for (int i = 0; i < kind->rank; i++)
        chunk_dims[i] = kind->chunk_dims[i];
    if (kind->how == CHUNKED)
        H5Pset_chunk(dcpl, kind->rank, chunk_dims);
    else if (kind->how == COMPACT)
        H5Pset_layout(dcpl, H5D_COMPACT);
    if (kind->filtered)
        H5Pset_deflate(dcpl, 1);
    H5Pset_fill_value(dcpl, type, fill);
    hid_t file = H5Fcreate(PATH, H5F_ACC_TRUNC, H5P_DEFAULT, H5P_DEFAULT);
    hid_t dataset = H5Dcreate2(file, "d", type, space, H5P_DEFAULT, dcpl, H5P_DEFAULT);
    assert_true(dataset >= 0);
    if (!kind->untouched) {
        random_fill(model->value, elements_of(model) * model->item);
        assert_true(H5Dwrite(dataset, type, H5S_ALL, H5S_ALL, H5P_DEFAULT, model->value) >= 0);
    }
    memset(model->defined, true, sizeof(model->defined));
    H5Dclose(dataset);
    H5Fclose(file);
    H5Sclose(space);
    H5Pclose(dcpl);
}

static void open_model(struct model *model)
{
    struct sfs_options options = {.writable = true, .cache_size = random_below(2) ? 0 : 8000};
    uint64_t address;
    assert_int_equal(sfs_open(PATH, &options, &model->file), 0);
    assert_int_equal(sfs_find(model->file, sfs_root(model->file), "/d", &address), 0);
    assert_int_equal(sfs_dataset_open(model->file, address, "/d", &model->dataset), 0);
    for (int i = 0; i < 2; i++)
        assert_int_equal(
            views_open(model->file, address, "/d", model->kind->frame_rank, &model->views[i]), 0);
}

static void close_model(struct model *model)
{
    for (int i = 0; i < 2; i++)
        views_close(model->views[i]);
    sfs_dataset_close(model->dataset);
    assert_int_equal(sfs_close(model->file), 0);
}

static void create_model(struct model *model, const struct kind *kind)
{
    unsigned char fill[MOST_ITEM];
    memset(model, 0, sizeof(*model));
    model->kind = kind;
    memcpy(model->dims, kind->dims, sizeof(kind->dims));
    int frame_rank = kind->frame_rank >= 0 ? kind->frame_rank
                     : kind->rank >= 3     ? kind->rank - 1
                                           : kind->rank;
    model->nav_rank = kind->rank - frame_rank;
    memset(fill, kind->fill, sizeof(fill));
    memset(model->value, kind->fill, sizeof(model->value));
    hid_t type = make_type(kind);
    model->item = H5Tget_size(type);
    assert_in_range(elements_of(model) * model->item, 1, MOST);
    if (kind->how == SPARSE)
        create_sparse(model, type, fill);
    else
        create_dense(model, type, fill);
    H5Tclose(type);
    open_model(model);
}

/* What libhdf5 finds in the closed file. */
static void compare_through_libhdf5(const struct model *model)
{
    if (model->kind->how == SPARSE)
        return;
    size_t n = elements_of(model) * model->item;
    unsigned char *values = allocate(n);
    hid_t type = make_type(model->kind), file = H5Fopen(PATH, H5F_ACC_RDONLY, H5P_DEFAULT);
    hid_t dataset = H5Dopen2(file, "d", H5P_DEFAULT), space = H5Dget_space(dataset);
    assert_int_equal(H5Sget_simple_extent_npoints(space), elements_of(model));
    assert_true(H5Dread(dataset, type, H5S_ALL, H5S_ALL, H5P_DEFAULT, values) >= 0);
    assert_memory_equal(values, model->value, n);
    H5Sclose(space);
    H5Dclose(dataset);
    H5Fclose(file);
    H5Tclose(type);
    free(values);
}

static void reopen(struct model *model)
{
    close_model(model);
    compare_through_libhdf5(model);
    open_model(model);
}

/* ---- A view of the model: its body ---- */

static const enum view_kind dense_kinds[] = {VIEW_RAW, VIEW_NPY, VIEW_TIFF, VIEW_STACK_RAW,
                                             VIEW_STACK_NPY};

struct body {
    enum view_kind kind;
    uint64_t frame, head, bytes; /* of head and body */
    uint64_t first;              /* element in the model */
};

static struct body random_body(const struct model *model)
{
    struct body body;
    uint64_t size;
    do
        body.kind = dense_kinds[random_below(COUNT(dense_kinds))];
    while (!view_exists(model->views[0], body.kind));
    bool is_stack = body.kind == VIEW_STACK_RAW || body.kind == VIEW_STACK_NPY;
    body.frame = random_below(frames_of(model));
    body.first = is_stack ? 0 : body.frame * frame_elements_of(model);
    body.bytes = (is_stack ? elements_of(model) : frame_elements_of(model)) * model->item;
    assert_true(view_writable(either(model), body.kind));
    assert_int_equal(view_size(either(model), body.kind, body.frame, &size), 0);
    body.head = size - body.bytes;
    return body;
}

/* All bytes of a view as they are. */
static unsigned char *read_all(struct views *views, enum view_kind kind, uint64_t frame, size_t *n)
{
    struct view_part part;
    uint64_t size;
    assert_int_equal(view_size(views, kind, frame, &size), 0);
    unsigned char *bytes = allocate(size + 1);
    assert_int_equal(
        view_read(views, kind, frame, &(struct view_room){0, size + 1, bytes, false}, &part), 0);
    assert_int_equal(part.n, size);
    if (part.bytes != bytes)
        memcpy(bytes, part.bytes, size);
    view_return(views, &part);
    *n = size;
    return bytes;
}

static void erase(struct model *model, uint64_t element)
{
    memset(model->value + element * model->item, model->kind->fill, model->item);
    model->defined[element] = model->kind->how != SPARSE;
}

/* Bytes [begin, end) of the body get values; NULL: zeros. */
static void write_model(struct model *model, const struct body *body, uint64_t begin, uint64_t end,
                        const unsigned char *bytes, bool sparsify)
{
    unsigned char *to = model->value + body->first * model->item;
    unsigned char fill[MOST_ITEM];
    memset(fill, model->kind->fill, sizeof(fill));
    for (uint64_t i = begin; i < end; i++)
        to[i] = bytes ? bytes[i - begin] : 0;
    for (uint64_t i = begin / model->item; begin < end && i <= (end - 1) / model->item; i++) {
        bool is_fill = memcmp(to + i * model->item, fill, model->item) == 0;
        model->defined[body->first + i] = !(sparsify && is_fill) || model->kind->how != SPARSE;
    }
}

/* ---- Changes ---- */

/* Up to n bytes; mostly short ranges, sometimes all. */
static void random_range(uint64_t size, uint64_t *offset, uint64_t *n)
{
    *offset = random_below(4) ? random_below(size) : 0;
    uint64_t most = random_below(3) ? 60 : size + 10;
    *n = random_between(1, most);
}

static void change_by_write(struct model *model)
{
    struct body body = random_body(model);
    uint64_t offset, n, size = body.head + body.bytes;
    bool sparsify = random_below(2);
    size_t written = 0, all;
    random_range(size, &offset, &n);
    unsigned char *bytes = allocate(n);
    random_fill(bytes, n);
    for (uint64_t i = random_below(3); i > 0; i--) { /* some of it is the fill value */
        uint64_t at = random_below(n);
        memset(bytes + at, model->kind->fill, random_below(2) ? n - at : random_below(n - at + 1));
    }
    unsigned char *before = read_all(either(model), body.kind, body.frame, &all);
    if (offset < body.head)
        memcpy(bytes, before + offset, n < body.head - offset ? n : body.head - offset);
    free(before);
    assert_int_equal(view_write(either(model), body.kind, body.frame,
                                &(struct view_bytes){offset, bytes, n, sparsify}, &written),
                     0);
    n = n < size - offset ? n : size - offset;
    assert_int_equal(written, n);
    uint64_t skip = offset < body.head ? body.head - offset : 0;
    if (skip < n)
        write_model(model, &body, offset + skip - body.head, offset + n - body.head, bytes + skip,
                    sparsify);
    free(bytes);
}

static void change_by_truncate(struct model *model)
{
    struct body body = random_body(model);
    uint64_t size = random_below(body.head + body.bytes + 1);
    assert_int_equal(view_truncate(either(model), body.kind, body.frame, size), 0);
    uint64_t kept = size > body.head ? size - body.head : 0;
    for (uint64_t i = (kept + model->item - 1) / model->item; i < body.bytes / model->item; i++)
        erase(model, body.first + i);
}

static void change_by_punch(struct model *model)
{
    struct body body = random_body(model);
    uint64_t offset, n;
    random_range(body.head + body.bytes, &offset, &n);
    assert_int_equal(view_punch(either(model), body.kind, body.frame, offset, n), 0);
    for (uint64_t i = 0; i < body.bytes / model->item; i++) {
        uint64_t at = body.head + i * model->item, end = at + model->item;
        uint64_t from = at > offset ? at : offset, to = end < offset + n ? end : offset + n;
        if (from == at && to == end)
            erase(model, body.first + i);
        else if (from < to && model->kind->fill == 0)
            write_model(model, &body, from - body.head, to - body.head, NULL, true);
    }
}

static void change_by_zero(struct model *model)
{
    struct body body = random_body(model);
    uint64_t offset, n, size = body.head + body.bytes;
    bool sparsify = random_below(2);
    random_range(size, &offset, &n);
    bool inside = offset + n <= size;
    assert_int_equal(view_zero(either(model), body.kind, body.frame, offset, n, sparsify),
                     inside ? 0 : -EFBIG);
    uint64_t end = offset + n, begin = offset > body.head ? offset : body.head;
    if (inside && begin < end)
        write_model(model, &body, begin - body.head, end - body.head, NULL, sparsify);
}

/* Header bytes alone replace nothing. */
static void change_by_replacing(struct model *model)
{
    struct body body = random_body(model);
    uint64_t offset, n, size = body.head + body.bytes;
    bool sparsify = random_below(2);
    size_t written = 0, all;
    random_range(size, &offset, &n);
    unsigned char *bytes = allocate(n);
    random_fill(bytes, n);
    unsigned char *before = read_all(either(model), body.kind, body.frame, &all);
    if (offset < body.head)
        memcpy(bytes, before + offset, n < body.head - offset ? n : body.head - offset);
    free(before);
    assert_int_equal(view_replace(either(model), body.kind, body.frame,
                                  &(struct view_bytes){offset, bytes, n, sparsify}, &written),
                     0);
    n = n < size - offset ? n : size - offset;
    assert_int_equal(written, n);
    uint64_t skip = offset < body.head ? body.head - offset : 0;
    if (skip < n) {
        for (uint64_t i = 0; i < body.bytes / model->item; i++)
            erase(model, body.first + i);
        write_model(model, &body, offset + skip - body.head, offset + n - body.head, bytes + skip,
                    sparsify);
    }
    free(bytes);
}

/* A selection of the elements of a frame, encoded by libhdf5. */
static void *random_selection(const struct model *model, size_t *n, bool *selected)
{
    int rank = model->kind->rank - model->nav_rank;
    uint64_t elements = frame_elements_of(model);
    hsize_t dims[4], points[3 * 4];
    for (int i = 0; i < rank; i++)
        dims[i] = model->dims[model->nav_rank + i];
    hid_t space = rank ? H5Screate_simple(rank, dims, NULL) : H5Screate(H5S_SCALAR);
    memset(selected, 0, elements);
    uint64_t what = random_below(rank ? 4 : 2);
    if (what == 0) {
        H5Sselect_none(space);
    } else if (what == 1) {
        memset(selected, true, elements);
    } else if (what == 2) { /* points, in any order */
        for (int k = 0; k < 3; k++) {
            uint64_t position = random_below(elements), rest = position;
            selected[position] = true;
            for (int i = rank - 1; i >= 0; i--) {
                points[k * rank + i] = rest % dims[i];
                rest /= dims[i];
            }
        }
        H5Sselect_elements(space, H5S_SELECT_SET, 3, points);
    } else { /* every second row of a box */
        hsize_t start[4], stride[4], count[4], block[4];
        for (int i = 0; i < rank; i++) {
            start[i] = random_below(dims[i]);
            stride[i] = i == 0 ? 2 : 1;
            count[i] = i == 0 ? (dims[i] - start[i] + 1) / 2 : 1;
            block[i] = i == 0 ? 1 : random_between(1, dims[i] - start[i]);
            stride[i] = i == 0 ? 2 : block[i];
        }
        H5Sselect_hyperslab(space, H5S_SELECT_SET, start, stride, count, block);
        for (uint64_t position = 0; position < elements; position++) {
            uint64_t rest = position;
            bool inside = true;
            for (int i = rank - 1; i >= 0; i--) {
                uint64_t at = rest % dims[i] - start[i]; /* huge before the start */
                inside &= i == 0 ? at < dims[i] && at % 2 == 0 : at < block[i];
                rest /= dims[i];
            }
            selected[position] = inside;
        }
    }
    assert_true(H5Sencode(space, NULL, n) >= 0);
    void *encoded = allocate(*n);
    assert_true(H5Sencode(space, encoded, n) >= 0);
    H5Sclose(space);
    return encoded;
}

static void change_defined(struct model *model)
{
    static bool selected[MOST];
    size_t n;
    uint64_t frame = random_below(frames_of(model)), elements = frame_elements_of(model);
    bool is_sparse = model->kind->how == SPARSE;
    assert_int_equal(view_writable(either(model), VIEW_DEFINED), is_sparse);
    if (random_below(8) == 0) {
        memset(selected, 0, elements);
        assert_int_equal(view_truncate(either(model), VIEW_DEFINED, frame, 0),
                         is_sparse ? 0 : -EOPNOTSUPP);
    } else {
        void *encoded = random_selection(model, &n, selected);
        assert_int_equal(view_set_defined(either(model), frame, encoded, n),
                         is_sparse ? 0 : -EOPNOTSUPP);
        free(encoded);
    }
    for (uint64_t i = 0; i < elements && is_sparse; i++) {
        if (!selected[i])
            erase(model, frame * elements + i);
        model->defined[frame * elements + i] = selected[i];
    }
}

static void change_extent(struct model *model)
{
    uint64_t in_first = elements_of(model) / (model->kind->rank ? model->dims[0] : 1);
    uint64_t frames = frames_of(model) + random_below(3);
    bool possible = model->kind->grows && model->nav_rank == 1;
    if (possible && frames > MOST_DIM)
        return;
    assert_true(!possible || frames * in_first * model->item <= MOST);
    assert_int_equal(views_extend(either(model), frames),
                     possible || frames == frames_of(model) ? 0 : -EFBIG);
    if (possible)
        model->dims[0] = frames > model->dims[0] ? frames : model->dims[0];
    for (int i = 0; i < 2; i++)
        assert_int_equal(views_frames(model->views[i]), frames_of(model));
}

/* Not through views: they are to see it all the same. */
static void change_dataset(struct model *model)
{
    int rank = model->kind->rank;
    uint64_t n = elements_of(model), first = 0;
    struct sfs_slab slab = {.rank = rank ? rank : 1, .count = {1}};
    for (int i = 0; i < rank; i++)
        slab.count[i] = model->dims[i];
    if (rank > 0) { /* one index of the first axis */
        slab.start[0] = random_below(model->dims[0]);
        slab.count[0] = 1;
        n /= model->dims[0];
        first = slab.start[0] * n;
    }
    bool erases = model->kind->how == SPARSE && random_below(2);
    unsigned char *values = allocate(n * model->item);
    random_fill(values, n * model->item);
    assert_int_equal(
        erases ? sfs_erase(model->dataset, &slab) : sfs_write(model->dataset, &slab, values), 0);
    for (uint64_t i = 0; i < n; i++) {
        erase(model, first + i);
        model->defined[first + i] |= !erases;
    }
    if (!erases)
        memcpy(model->value + first * model->item, values, n * model->item);
    free(values);
}

static void change(struct model *model)
{
    switch (random_below(14)) {
    case 13:
        change_by_replacing(model);
        break;
    case 0:
        change_by_truncate(model);
        break;
    case 1:
        change_by_punch(model);
        break;
    case 2:
        change_by_zero(model);
        break;
    case 3:
    case 4:
        change_defined(model);
        break;
    case 5:
        change_extent(model);
        break;
    case 6:
        change_dataset(model);
        break;
    default:
        change_by_write(model);
    }
}

/* ---- Comparing ---- */

static void compare_texts(const struct model *model, uint64_t defined)
{
    char expected[64];
    size_t n;
    unsigned char *json = read_all(either(model), VIEW_DATASET_JSON, 0, &n);
    json = realloc(json, n + 1);
    json[n] = '\0';
    snprintf(expected, sizeof(expected), "\"defined_elements\": %ju,", (uintmax_t)defined);
    assert_non_null(strstr((char *)json, expected));
    snprintf(expected, sizeof(expected), "\"frames\": %ju,", (uintmax_t)frames_of(model));
    assert_non_null(strstr((char *)json, expected));
    free(json);
    if (!view_exists(model->views[0], VIEW_VALUE_TXT))
        return;
    char *text;
    size_t text_n;
    unsigned char *shown = read_all(either(model), VIEW_VALUE_TXT, 0, &n);
    assert_int_equal(sfs_text(model->dataset, 1 << 20, &text, &text_n), 0);
    assert_int_equal(n, text_n);
    assert_memory_equal(shown, text, n);
    free(text);
    free(shown);
}

/* What is defined of a frame: its selection and its values. */
static uint64_t compare_frame(const struct model *model, uint64_t frame)
{
    uint64_t elements = frame_elements_of(model), count = 0, at = 0, size;
    const bool *expected = model->defined + frame * elements;
    const unsigned char *value = model->value + frame * elements * model->item;
    int rank = model->kind->rank, nav_rank = model->nav_rank;
    size_t n, values_n;
    unsigned char *encoded = read_all(either(model), VIEW_DEFINED, frame, &n);
    unsigned char *values = read_all(either(model), VIEW_VALUES, frame, &values_n);
    struct sfs_slab slab = {.rank = rank ? rank : 1, .count = {1, 1, 1, 1}};
    for (int i = nav_rank; i < rank; i++)
        slab.count[i] = model->dims[i];
    struct sfs_defined defined;
    assert_int_equal(
        sfs_decode_defined(model->dataset, &slab, rank - nav_rank, encoded, n, &defined), 0);
    for (uint64_t i = 0; i < elements; i++) {
        while (at < defined.n && i >= defined.interval[at].first + (defined.interval[at + 1].index -
                                                                    defined.interval[at].index))
            at++;
        assert_int_equal(at < defined.n && i >= defined.interval[at].first, expected[i]);
        if (!expected[i])
            continue;
        assert_true((count + 1) * model->item <= values_n);
        assert_memory_equal(values + count++ * model->item, value + i * model->item, model->item);
    }
    assert_int_equal(values_n, count * model->item);
    if (model->kind->how == SPARSE && model->kind->fill == 0) {
        uint64_t found, first = 0;
        while (first < elements && !expected[first])
            first++;
        size = elements * model->item;
        assert_int_equal(view_allocated(either(model), VIEW_RAW, frame, size), count * model->item);
        assert_int_equal(view_seek(either(model), VIEW_RAW, frame, 0, true, &found),
                         count ? 0 : -ENXIO);
        if (count)
            assert_in_range(found, 0, first * model->item);
    }
    sfs_defined_free(&defined);
    free(encoded);
    free(values);
    return count;
}

static void compare_csr(const struct model *model, uint64_t defined)
{
    size_t n;
    if (!view_exists(model->views[0], VIEW_CSR_DATA))
        return;
    unsigned char *indptr = read_all(either(model), VIEW_CSR_INDPTR, 0, &n);
    assert_int_equal(n, (frames_of(model) + 1) * sizeof(int64_t));
    int64_t all;
    memcpy(&all, indptr + n - sizeof(all), sizeof(all));
    assert_int_equal(all, defined);
    free(indptr);
    unsigned char *data = read_all(either(model), VIEW_CSR_DATA, 0, &n);
    assert_int_equal(n, defined * model->item);
    uint64_t k = 0;
    for (uint64_t i = 0; i < elements_of(model); i++)
        if (model->defined[i])
            assert_memory_equal(data + k++ * model->item, model->value + i * model->item,
                                model->item);
    free(data);
}

static void compare(const struct model *model)
{
    size_t n;
    uint64_t defined = 0;
    for (uint64_t i = 0; i < elements_of(model); i++)
        defined += model->defined[i];
    unsigned char *stack = read_all(either(model), VIEW_STACK_NPY, 0, &n);
    size_t bytes = elements_of(model) * model->item;
    assert_true(n > bytes);
    assert_memory_equal(stack + n - bytes, model->value, bytes);
    free(stack);
    compare_frame(model, random_below(frames_of(model)));
    if (random_below(4) == 0)
        compare_texts(model, defined);
    if (random_below(4) == 0)
        compare_csr(model, defined);
}

static void views_show_what_was_written(void **state)
{
    (void)state;
    static struct model model;
    for (size_t i = 0; i < COUNT(kinds); i++) {
        create_model(&model, &kinds[i]);
        for (int step = 0; step < 400; step++) {
            change(&model);
            compare(&model);
            if (random_below(40) == 0)
                assert_int_equal(sfs_flush(model.file), 0);
            if (random_below(40) == 0)
                reopen(&model);
        }
        close_model(&model);
        compare_through_libhdf5(&model);
    }
}

/* ---- Refusals ---- */

static const struct kind small = {SPARSE,    "<u2", 3,     -1,   {3, 4, 5},
                                  {1, 4, 5}, 0,     false, true, false};

static void check_unchanged(struct model *model)
{
    for (int i = 0; i < 2; i++)
        compare(model);
    for (uint64_t frame = 0; frame < frames_of(model); frame++)
        compare_frame(model, frame);
}

static void other_header_bytes_are_refused(void **state)
{
    (void)state;
    static struct model model;
    create_model(&model, &small);
    for (int i = 0; i < 3; i++)
        change_by_write(&model);
    const enum view_kind headed[] = {VIEW_NPY, VIEW_TIFF, VIEW_STACK_NPY};
    for (size_t i = 0; i < COUNT(headed); i++) {
        size_t n, written = 77;
        unsigned char *bytes = read_all(model.views[0], headed[i], 1, &n);
        memset(bytes + n - 20, 0x55, 20);
        bytes[7] ^= 1;
        assert_int_equal(view_write(model.views[0], headed[i], 1,
                                    &(struct view_bytes){0, bytes, n, false}, &written),
                         -EINVAL);
        assert_int_equal(written, 77);
        free(bytes);
    }
    check_unchanged(&model);
    close_model(&model);
}

static void behind_the_end_nothing_is_written(void **state)
{
    (void)state;
    static struct model model;
    create_model(&model, &small);
    const unsigned char bytes[100] = {1, 2, 3, 4, 5, 6};
    for (size_t i = 0; i < COUNT(dense_kinds); i++) {
        struct views *views = model.views[i % 2];
        uint64_t size, past[] = {0, 1, UINT64_MAX};
        size_t written = 77;
        assert_int_equal(view_size(views, dense_kinds[i], 2, &size), 0);
        past[2] -= size;
        for (size_t k = 0; k < COUNT(past); k++)
            assert_int_equal(view_write(views, dense_kinds[i], 2,
                                        &(struct view_bytes){size + past[k], bytes, 5, false},
                                        &written),
                             -EFBIG);
        assert_int_equal(written, 77);
        assert_int_equal(view_truncate(views, dense_kinds[i], 2, size), 0);
        assert_int_equal(view_truncate(views, dense_kinds[i], 2, size + 1), -EFBIG);
        assert_int_equal(view_punch(views, dense_kinds[i], 2, size, 100), 0);
        assert_int_equal(view_punch(views, dense_kinds[i], 2, UINT64_MAX, UINT64_MAX), 0);
        assert_int_equal(view_zero(views, dense_kinds[i], 2, size, UINT64_MAX, false), -EFBIG);
        assert_int_equal(view_zero(views, dense_kinds[i], 2, size - 1, 2, false), -EFBIG);
        assert_int_equal(view_zero(views, dense_kinds[i], 2, size, 0, false), 0);
    }
    check_unchanged(&model);
    close_model(&model);
}

/* What the log says of a refused selection. */
static void check_refused(struct model *model, const void *encoded, size_t n)
{
    unsigned before = log_errors();
    assert_int_equal(view_set_defined(model->views[0], 1, encoded, n), -EINVAL);
    assert_int_equal(log_errors(), before + 1);
    check_unchanged(model);
}

static void selections_that_do_not_fit_change_nothing(void **state)
{
    (void)state;
    static struct model model;
    static bool selected[MOST];
    size_t n;
    log_quietly();
    create_model(&model, &small);
    for (int i = 0; i < 20; i++)
        change_by_write(&model);
    unsigned char *encoded = random_selection(&model, &n, selected);
    unsigned char *longer = allocate(n + 1);
    memcpy(longer, encoded, n);
    longer[n] = 0;
    check_refused(&model, longer, n + 1);
    check_refused(&model, encoded, n - 1);
    check_refused(&model, encoded, 0);
    encoded[0] ^= 0x40;
    check_refused(&model, encoded, n);
    free(encoded);
    free(longer);

    const hsize_t other[][2] = {{5, 4}, {4, 6}, {20, 1}};
    for (size_t i = 0; i < COUNT(other); i++) {
        hid_t space = H5Screate_simple(2, other[i], NULL);
        H5Sencode(space, NULL, &n);
        encoded = allocate(n);
        H5Sencode(space, encoded, &n);
        check_refused(&model, encoded, n);
        free(encoded);
        H5Sclose(space);
    }
    /* A point outside: libhdf5 encodes it, for it could be moved inside again. */
    const hsize_t dims[] = {4, 5}, point[] = {4, 0};
    hid_t space = H5Screate_simple(2, dims, NULL);
    H5Sselect_elements(space, H5S_SELECT_SET, 1, (const hsize_t[]){3, 0});
    H5Sencode(space, NULL, &n);
    encoded = allocate(n);
    H5Sencode(space, encoded, &n);
    encoded[n - 8] = (unsigned char)point[0]; /* 32-bit coordinates */
    check_refused(&model, encoded, n);
    free(encoded);
    H5Sclose(space);
    close_model(&model);
}

static void a_defined_view_is_only_emptied_by_truncating(void **state)
{
    (void)state;
    static struct model model;
    create_model(&model, &small);
    for (int i = 0; i < 20; i++)
        change_by_write(&model);
    assert_int_equal(view_truncate(model.views[0], VIEW_DEFINED, 1, 4), -EINVAL);
    check_unchanged(&model);
    close_model(&model);
}

/* Files of csr are written together only: view_put_csr. */
static void check_not_writable(struct views *views, enum view_kind kind, int error)
{
    char bytes[4] = {0};
    size_t written;
    bool is_together = view_is_csr(kind) && error == -EOPNOTSUPP;
    assert_int_equal(view_writable(views, kind), is_together);
    assert_int_equal(view_write(views, kind, 0, &(struct view_bytes){0, bytes, 4, false}, &written),
                     error);
    assert_int_equal(view_truncate(views, kind, 0, 0), error);
    assert_int_equal(view_punch(views, kind, 0, 0, 4), error);
    assert_int_equal(view_zero(views, kind, 0, 0, 4, false), error);
}

static void computed_views_cannot_be_written(void **state)
{
    (void)state;
    static struct model model;
    const enum view_kind computed[] = {VIEW_CSR_INDPTR,   VIEW_CSR_INDICES, VIEW_CSR_DATA,
                                       VIEW_DATASET_JSON, VIEW_VALUE_TXT,   VIEW_CSR_TOML};
    create_model(&model, &small);
    for (size_t i = 0; i < COUNT(computed); i++)
        check_not_writable(model.views[0], computed[i], -EOPNOTSUPP);
    close_model(&model);
}

static void a_file_open_for_reading_is_not_written(void **state)
{
    (void)state;
    static struct model model;
    uint64_t address;
    size_t n;
    create_model(&model, &small);
    for (int i = 0; i < 20; i++)
        change_by_write(&model);
    unsigned char *encoded = read_all(model.views[0], VIEW_DEFINED, 0, &n);
    close_model(&model);
    assert_int_equal(sfs_open(PATH, NULL, &model.file), 0);
    assert_int_equal(sfs_find(model.file, sfs_root(model.file), "/d", &address), 0);
    assert_int_equal(sfs_dataset_open(model.file, address, "/d", &model.dataset), 0);
    for (int i = 0; i < 2; i++)
        assert_int_equal(views_open(model.file, address, "/d", -1, &model.views[i]), 0);
    for (size_t i = 0; i < COUNT(dense_kinds); i++)
        check_not_writable(model.views[0], dense_kinds[i], -EROFS);
    assert_false(view_writable(model.views[0], VIEW_DEFINED));
    assert_int_equal(view_set_defined(model.views[0], 0, encoded, n), -EROFS);
    assert_int_equal(view_truncate(model.views[0], VIEW_DEFINED, 0, 0), -EROFS);
    assert_int_equal(views_extend(model.views[0], 3), 0); /* it has so many */
    assert_int_equal(views_extend(model.views[0], 4), -EROFS);
    struct sfs_slab slab = {.rank = 3, .count = {1, 1, 1}};
    struct sfs_interval end = {0, 0};
    assert_int_equal(sfs_write_bytes(model.dataset, &slab, 0, "ab", 2, false), -EROFS);
    assert_int_equal(sfs_erase_range(model.dataset, &slab, 0, 1), -EROFS);
    assert_int_equal(sfs_set_defined(model.dataset, &slab, &(struct sfs_defined){0, &end, 0}),
                     -EROFS);
    check_unchanged(&model);
    free(encoded);
    close_model(&model);
}

/* Views of a dataset that libhdf5 has made. */
static struct views *view_made(hid_t type, hid_t space, hid_t dcpl, struct sfs_file **file)
{
    struct sfs_options options = {.writable = true};
    struct views *views;
    uint64_t address;
    hid_t made = H5Fcreate(PATH, H5F_ACC_TRUNC, H5P_DEFAULT, H5P_DEFAULT);
    hid_t dataset = H5Dcreate2(made, "d", type, space, H5P_DEFAULT, dcpl, H5P_DEFAULT);
    assert_true(dataset >= 0);
    H5Dclose(dataset);
    H5Fclose(made);
    H5Sclose(space);
    if (dcpl != H5P_DEFAULT)
        H5Pclose(dcpl);
    assert_int_equal(sfs_open(PATH, &options, file), 0);
    assert_int_equal(sfs_find(*file, sfs_root(*file), "/d", &address), 0);
    assert_int_equal(views_open(*file, address, "/d", -1, &views), 0);
    return views;
}

static void what_libhdf5_cannot_write_is_refused(void **state)
{
    (void)state;
    struct sfs_file *file;
    const hsize_t dims[] = {4};
    log_quietly();
    hid_t strings = H5Tcopy(H5T_C_S1);
    H5Tset_size(strings, H5T_VARIABLE);
    struct views *views = view_made(strings, H5Screate_simple(1, dims, NULL), H5P_DEFAULT, &file);
    check_not_writable(views, VIEW_RAW, -EOPNOTSUPP);
    views_close(views);
    assert_int_equal(sfs_close(file), 0);

    const hsize_t cube[] = {1, 2, 3}, any[] = {H5S_UNLIMITED, 2, 3};
    hid_t dcpl = H5Pcreate(H5P_DATASET_CREATE);
    H5Pset_chunk(dcpl, 3, cube);
    views = view_made(strings, H5Screate_simple(3, cube, any), dcpl, &file);
    check_not_writable(views, VIEW_RAW, -EOPNOTSUPP);
    assert_int_equal(views_extend(views, 4), 0); /* its elements are not touched */
    assert_int_equal(views_frames(views), 4);
    H5Tclose(strings);
    views_close(views);
    assert_int_equal(sfs_close(file), 0);

    hid_t space = H5Screate_simple(1, dims, NULL), virtual = H5Pcreate(H5P_DATASET_CREATE);
    H5Pset_virtual(virtual, space, "other.h5", "d", space);
    views = view_made(H5T_STD_U8LE, space, virtual, &file);
    check_not_writable(views, VIEW_RAW, -EOPNOTSUPP);
    assert_int_equal(views_extend(views, 5), -EFBIG);
    views_close(views);
    assert_int_equal(sfs_close(file), 0);
}

/* What is refused before that, and header bytes alone, make no frame. */
static void a_frame_comes_to_be_with_its_first_bytes(void **state)
{
    (void)state;
    for (size_t i = 0; i < COUNT(kinds); i++) {
        static struct model model;
        if (!kinds[i].grows || kinds[i].frame_rank >= 0 || kinds[i].rank != 3)
            continue;
        create_model(&model, &kinds[i]);
        struct views *views = model.views[0];
        uint64_t frames = frames_of(&model), size;
        size_t all, written;
        assert_int_equal(views_may_extend(views, frames + 3), 0);
        unsigned char *bytes = read_all(views, VIEW_NPY, 0, &all);
        assert_int_equal(view_size(views, VIEW_NPY, frames + 2, &size), 0);
        size_t head = view_head_size(views, VIEW_NPY);
        assert_int_equal(size, all);
        bytes[20] ^= 1;
        assert_int_equal(view_write(views, VIEW_NPY, frames + 2,
                                    &(struct view_bytes){0, bytes, all, false}, &written),
                         -EINVAL);
        bytes[20] ^= 1;
        assert_int_equal(view_write(views, VIEW_NPY, frames + 2,
                                    &(struct view_bytes){0, bytes, head, false}, &written),
                         0);
        assert_int_equal(view_replace(views, VIEW_NPY, frames + 2,
                                      &(struct view_bytes){0, bytes, head, false}, &written),
                         0);
        assert_int_equal(view_write(views, VIEW_RAW, frames + 2,
                                    &(struct view_bytes){all, bytes, 1, false}, &written),
                         -EFBIG);
        log_quietly();
        if (kinds[i].how == SPARSE)
            assert_int_equal(view_set_defined(views, frames + 1, bytes, all), -EINVAL);
        for (int k = 0; k < 2; k++)
            assert_int_equal(views_frames(model.views[k]), frames);
        assert_int_equal(view_write(views, VIEW_NPY, frames + 2,
                                    &(struct view_bytes){0, bytes, all, false}, &written),
                         0);
        assert_int_equal(written, all);
        for (int k = 0; k < 2; k++) {
            assert_int_equal(views_frames(model.views[k]), frames + 3);
            unsigned char *now = read_all(model.views[k], VIEW_NPY, frames + 2, &all);
            assert_memory_equal(now, bytes, all);
            free(now);
        }
        unsigned char *empty = allocate(all + 9), *shown = read_all(views, VIEW_NPY, frames, &all);
        assert_int_equal(view_read_empty(views, VIEW_NPY, 0, all + 9, empty, &written), 0);
        assert_int_equal(written, all);
        assert_memory_equal(empty, shown, all);
        assert_int_equal(view_read_empty(views, VIEW_NPY, head + 3, 5, empty, &written), 0);
        assert_int_equal(written, 5);
        assert_memory_equal(empty, shown + head + 3, 5);
        free(empty);
        free(shown);
        free(bytes);
        close_model(&model);
    }
}

static void an_empty_dataset_takes_nothing_until_it_has_grown(void **state)
{
    (void)state;
    struct sfs_file *file;
    const hsize_t dims[] = {0, 2, 3}, max_dims[] = {5, 2, 3}, chunk_dims[] = {1, 2, 3};
    hid_t dcpl = H5Pcreate(H5P_DATASET_CREATE);
    uint64_t size;
    size_t written;
    H5Pset_chunk(dcpl, 3, chunk_dims);
    struct views *views = view_made(H5T_STD_U8LE, H5Screate_simple(3, dims, max_dims), dcpl, &file);
    assert_int_equal(views_frames(views), 0);
    assert_int_equal(
        view_write(views, VIEW_STACK_RAW, 0, &(struct view_bytes){0, "ab", 2, false}, &written),
        -EFBIG);
    assert_int_equal(view_truncate(views, VIEW_STACK_RAW, 0, 0), 0);
    assert_int_equal(views_extend(views, 6), -EFBIG);
    assert_int_equal(views_extend(views, 2), 0);
    assert_int_equal(view_size(views, VIEW_STACK_RAW, 0, &size), 0);
    assert_int_equal(size, 12);
    assert_int_equal(view_write(views, VIEW_STACK_RAW, 0,
                                &(struct view_bytes){5, "abcdefghi", 9, false}, &written),
                     0);
    assert_int_equal(written, 7);
    views_close(views);
    assert_int_equal(sfs_close(file), 0);

    views = view_made(H5T_STD_U8LE, H5Screate(H5S_NULL), H5P_DEFAULT, &file);
    assert_int_equal(
        view_write(views, VIEW_STACK_RAW, 0, &(struct view_bytes){0, "ab", 2, false}, &written),
        -EFBIG);
    views_close(views);
    assert_int_equal(sfs_close(file), 0);
}

/* ---- The calls below ---- */

static void ranges_out_of_bounds_are_refused(void **state)
{
    (void)state;
    static struct model model;
    log_quietly();
    create_model(&model, &small);
    for (int i = 0; i < 20; i++)
        change_by_write(&model);
    struct sfs_slab slab = {.rank = 3, .start = {1, 1, 2}, .count = {1, 2, 3}};
    struct sfs_slab outside = {.rank = 3, .start = {1, 3, 2}, .count = {1, 2, 3}};
    struct sfs_slab flat = {.rank = 2, .count = {1, 1}};
    assert_int_equal(sfs_write_bytes(model.dataset, &slab, 11, "ab", 2, false), -EINVAL);
    assert_int_equal(sfs_write_bytes(model.dataset, &slab, UINT64_MAX, "ab", 2, true), -EINVAL);
    assert_int_equal(sfs_write_bytes(model.dataset, &outside, 0, "ab", 2, false), -EINVAL);
    assert_int_equal(sfs_write_bytes(model.dataset, &flat, 0, "ab", 2, false), -EINVAL);
    assert_int_equal(sfs_erase_range(model.dataset, &slab, 5, 2), -EINVAL);
    assert_int_equal(sfs_erase_range(model.dataset, &slab, 7, 0), -EINVAL);
    assert_int_equal(sfs_erase_range(model.dataset, &slab, 1, UINT64_MAX), -EINVAL);
    assert_int_equal(sfs_erase_range(model.dataset, &outside, 0, 1), -EINVAL);
    assert_int_equal(sfs_write_bytes(model.dataset, &slab, 12, "", 0, false), 0);
    assert_int_equal(sfs_erase_range(model.dataset, &slab, 6, 0), 0);
    check_unchanged(&model);
    close_model(&model);
}

static void intervals_that_are_none_change_nothing(void **state)
{
    (void)state;
    static struct model model;
    create_model(&model, &small);
    for (int i = 0; i < 20; i++)
        change_by_write(&model);
    struct sfs_slab slab = {.rank = 3, .start = {1, 1, 2}, .count = {1, 2, 3}};
    struct sfs_interval wrong[][3] = {
        {{0, 0}, {2, 2}, {0, 3}}, /* no gap */
        {{3, 0}, {0, 2}, {0, 3}}, /* not ascending */
        {{0, 0}, {5, 2}, {0, 4}}, /* beyond the end */
        {{0, 0}, {7, 2}, {0, 3}}, /* behind it */
        {{0, 0}, {4, 0}, {0, 2}}, /* an empty one */
        {{0, 1}, {4, 2}, {0, 3}}, /* a number before the first */
    };
    for (size_t i = 0; i < COUNT(wrong); i++) {
        struct sfs_defined defined = {2, wrong[i], wrong[i][2].index};
        assert_int_equal(sfs_set_defined(model.dataset, &slab, &defined), -EINVAL);
    }
    struct sfs_interval right[] = {{0, 0}, {4, 2}, {0, 3}};
    struct sfs_defined defined = {2, right, 4};
    assert_int_equal(sfs_set_defined(model.dataset, &slab, &defined), -EINVAL);
    check_unchanged(&model);
    defined.elements = 3;
    assert_int_equal(sfs_set_defined(model.dataset, &slab, &defined), 0);
    for (uint64_t k = 0; k < 6; k++) {
        uint64_t element = 20 + (1 + k / 3) * 5 + 2 + k % 3;
        bool stays = k < 2 || k == 4;
        if (!stays)
            erase(&model, element);
        model.defined[element] = stays;
    }
    check_unchanged(&model);
    slab.count[0] = 2; /* the selection is of the last two axes */
    assert_int_equal(sfs_decode_defined(model.dataset, &slab, 2, "", 0, &defined), -EINVAL);
    assert_int_equal(sfs_decode_defined(model.dataset, &slab, 4, "", 0, &defined), -EINVAL);
    close_model(&model);
}

static void a_dense_dataset_has_everything_defined(void **state)
{
    (void)state;
    static struct model model;
    static const struct kind dense = {CHUNKED,   "<u2", 3,    -1,   {3, 4, 5},
                                      {2, 3, 4}, 6,     true, true, false};
    create_model(&model, &dense);
    struct sfs_slab slab = {.rank = 3, .start = {0, 1, 1}, .count = {3, 2, 3}};
    struct sfs_interval interval[] = {{0, 0}, {0, 1}};
    struct sfs_defined defined = {1, interval, 1};
    assert_int_equal(sfs_set_defined(model.dataset, &slab, &defined), -EOPNOTSUPP);
    assert_int_equal(sfs_erase_range(model.dataset, &slab, 4, 9), 0);
    for (uint64_t k = 4; k < 13; k++)
        erase(&model, k / 6 * 20 + (1 + k / 3 % 2) * 5 + 1 + k % 3);
    check_unchanged(&model);
    close_model(&model);
    compare_through_libhdf5(&model);
}

static void the_frames_of_a_range_are_those_it_touches(void **state)
{
    (void)state;
    static struct model model;
    create_model(&model, &small);
    uint64_t frame_bytes = 20 * sizeof(uint16_t);
    for (int i = 0; i < 500; i++) {
        struct body body = random_body(&model);
        uint64_t offset = random_below(body.head + body.bytes + 20), n = random_between(1, 90);
        struct view_frames found = view_frames_of(model.views[0], body.kind, body.frame, offset, n);
        if (body.bytes == frame_bytes) {
            assert_int_equal(found.first, body.frame);
            assert_int_equal(found.last, body.frame);
            continue;
        }
        for (uint64_t at = offset; at < offset + n && at < body.head + body.bytes; at++)
            if (at >= body.head)
                assert_in_range((at - body.head) / frame_bytes, found.first, found.last);
        assert_in_range(found.last, found.first, 2);
        if (offset >= body.head && offset < body.head + body.bytes)
            assert_int_equal(found.first, (offset - body.head) / frame_bytes);
    }
    close_model(&model);
}

/* ---- Threads ---- */

#define THREADS     4
#define LAST_FRAMES 24
#define ROWS        6
#define COLUMNS     7
#define LANE        2 /* bytes of an element of 8 that are one thread's */

static struct {
    struct model model;
    atomic_int running;
    atomic_int failures;
} shared;

#define expect(condition)                                                                          \
    do {                                                                                           \
        if (!(condition)) {                                                                        \
            fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, #condition);                        \
            atomic_fetch_add(&shared.failures, 1);                                                 \
        }                                                                                          \
    } while (0)

static bool reads(struct views *views, enum view_kind kind, uint64_t frame, uint64_t offset,
                  void *buffer, size_t n)
{
    struct view_part part;
    if (view_read(views, kind, frame, &(struct view_room){offset, n, buffer, false}, &part) != 0)
        return false;
    bool complete = part.n == n;
    if (complete && part.bytes != buffer)
        memcpy(buffer, part.bytes, n);
    view_return(views, &part);
    return complete;
}

/* Frame 0: every thread has two bytes of every element. */
static void write_lane(struct views *views, uint64_t thread, uint64_t round)
{
    uint64_t element = round * 5 % (ROWS * COLUMNS), offset = element * 8 + thread * LANE;
    uint16_t mine = (uint16_t)(round * THREADS + thread), seen;
    size_t written;
    expect(view_write(views, VIEW_RAW, 0, &(struct view_bytes){offset, &mine, LANE, round & 1},
                      &written) == 0);
    expect(reads(views, VIEW_RAW, 0, offset, &seen, LANE) && seen == mine);
}

/* A frame of its own. */
static void write_own(struct views *views, uint64_t thread, unsigned char *model)
{
    size_t written, n = random_between(1, 40);
    uint64_t frame = 2 + thread, offset = random_below(ROWS * COLUMNS * 8 - n);
    unsigned char bytes[40], seen[ROWS * COLUMNS * 8];
    random_fill(bytes, n);
    memcpy(model + offset, bytes, n);
    expect(view_write(views, VIEW_RAW, frame, &(struct view_bytes){offset, bytes, n, false},
                      &written) == 0);
    if (random_below(8) == 0) {
        memset(model + 80, 0, sizeof(seen) - 80);
        expect(view_truncate(views, VIEW_RAW, frame, 80) == 0);
    }
    expect(reads(views, VIEW_RAW, frame, 0, seen, sizeof(seen)));
    expect(memcmp(seen, model, sizeof(seen)) == 0);
}

/* Frame 1 and the new ones: all do everything. Elements are 0, or the byte 0x11 eight times. */
static void meet(struct views *views)
{
    unsigned char bytes[8 * COLUMNS], seen[ROWS * COLUMNS * 8];
    uint64_t frames = views_frames(views), frame = random_below(2) ? 1 : frames - 1, size;
    uint64_t offset = random_below(ROWS) * 8 * COLUMNS, found;
    size_t written;
    if (frame < 2 + THREADS)
        frame = 1;
    memset(bytes, 0x11, sizeof(bytes));
    switch (random_below(7)) {
    case 0:
        expect(view_punch(views, VIEW_RAW, frame, offset, 8 * COLUMNS) == 0);
        break;
    case 1:
        expect(view_truncate(views, VIEW_RAW, frame, offset) == 0);
        break;
    case 2:
        expect(view_size(views, VIEW_VALUES, frame, &size) == 0);
        expect(reads(views, VIEW_RAW, frame, 0, seen, sizeof(seen)));
        for (size_t i = 0; i < sizeof(seen); i++)
            expect(seen[i] == seen[i / 8 * 8] && (seen[i] == 0 || seen[i] == 0x11));
        break;
    case 3:
        expect(view_size(views, VIEW_DATASET_JSON, frame, &size) == 0);
        expect(view_size(views, VIEW_STACK_NPY, frame, &size) == 0);
        expect(size > frames * sizeof(seen));
        (void)view_allocated(views, VIEW_RAW, frame, sizeof(seen));
        (void)views_kept_bytes(views);
        break;
    case 4: {
        struct view_part part;
        int error = view_read(views, VIEW_CSR_DATA, 0,
                              &(struct view_room){0, sizeof(seen), seen, false}, &part);
        expect(error == 0 || error == -EBUSY);
        if (!error)
            view_return(views, &part);
        error = view_seek(views, VIEW_STACK_RAW, 0, 0, true, &found);
        expect(error == 0 || error == -ENXIO);
        break;
    }
    default:
        expect(view_write(views, VIEW_RAW, frame,
                          &(struct view_bytes){offset, bytes, sizeof(bytes), false},
                          &written) == 0);
    }
}

static void *work(void *argument)
{
    uint64_t thread = (uint64_t)(uintptr_t)argument;
    struct views *views = shared.model.views[thread % 2];
    unsigned char model[ROWS * COLUMNS * 8];
    random_seed(100 + thread);
    expect(view_truncate(views, VIEW_RAW, 2 + thread, 0) == 0);
    memset(model, 0, sizeof(model));
    for (uint64_t round = 0; round < 300; round++) {
        write_lane(views, thread, round);
        write_own(views, thread, model);
        meet(views);
    }
    atomic_fetch_sub(&shared.running, 1);
    return NULL;
}

static void *extend(void *argument)
{
    uint64_t frames = *(const uint64_t *)argument, size;
    random_seed(1);
    while (atomic_load(&shared.running) > 0) {
        struct views *views = either(&shared.model);
        frames += frames < LAST_FRAMES;
        expect(views_extend(views, frames) == 0);
        expect(views_extend(views, frames - 1) == 0);
        expect(views_frames(either(&shared.model)) == frames);
        expect(view_size(views, VIEW_STACK_RAW, 0, &size) == 0);
        expect(size == frames * ROWS * COLUMNS * 8);
        if (random_below(4) == 0)
            expect(sfs_flush(shared.model.file) == 0);
    }
    return NULL;
}

static void threads_do_not_disturb_each_other(void **state)
{
    (void)state;
    static const struct kind shared_kinds[] = {
        {SPARSE, "<u8", 3, -1, {6, ROWS, COLUMNS}, {1, ROWS, COLUMNS}, 0, false, true, false},
        {SPARSE, "<u8", 3, -1, {6, ROWS, COLUMNS}, {2, 4, 5}, 0, true, true, false},
        {CHUNKED, "<u8", 3, -1, {6, ROWS, COLUMNS}, {2, 4, 5}, 0, true, true, true},
    };
    for (size_t i = 0; i < COUNT(shared_kinds); i++) {
        pthread_t threads[THREADS], extender;
        uint64_t frames = shared_kinds[i].dims[0];
        create_model(&shared.model, &shared_kinds[i]);
        atomic_store(&shared.running, THREADS);
        for (uintptr_t k = 0; k < THREADS; k++)
            start_thread(&threads[k], work, (void *)k);
        start_thread(&extender, extend, &frames);
        for (int k = 0; k < THREADS; k++)
            pthread_join(threads[k], NULL);
        pthread_join(extender, NULL);
        assert_int_equal(atomic_load(&shared.failures), 0);
        close_model(&shared.model);
    }
}

/* ---- Interruptions ---- */

static uint64_t passed; /* nanoseconds, besides those that do */

uint64_t __real_clock_now(void);
uint64_t __wrap_clock_now(void);

uint64_t __wrap_clock_now(void)
{
    return __real_clock_now() + passed;
}

/* From then on it is interrupted, and each time that it is asked ten seconds pass: longer than a change that has begun
 * waits for its end. */
static bool is_given_up(void *left)
{
    if (*(int *)left > 0) {
        --*(int *)left;
        return false;
    }
    passed += 10000000000u;
    return true;
}

static void csr_is_written_as_a_whole_whenever_it_is_interrupted(void **state)
{
    (void)state;
    static struct model model;
    int error = -EINTR, interrupted = 0;
    for (int n = 0; error; n++) {
        struct view_csr csr = {.most_kept = MOST};
        size_t count;
        create_model(&model, &kinds[1]);
        struct views *views = model.views[0];
        const struct sfs_slab slab = {.rank = 3, .count = {4, 6, 7}};
        for (size_t i = 0; i < 4 * 6 * 7 * sizeof(uint16_t); i++)
            model.value[i] = (unsigned char)random_below(256);
        assert_int_equal(sfs_write(model.dataset, &slab, model.value), 0);
        for (int i = 0; i < VIEW_CSR_PARTS; i++)
            csr.part[i].bytes = (char *)read_all(views, VIEW_CSR_INDPTR + i, 0, &csr.part[i].n);
        /* All of frames 0 to 2, of which the first element is not there, with other values; of frame 3 none. */
        int64_t *indptr = (int64_t *)csr.part[0].bytes;
        indptr[4] = indptr[5] = indptr[3];
        csr.part[1].n -= csr.part[1].n / 4;
        csr.part[2].n -= csr.part[2].n / 4;
        for (size_t i = 0; i < csr.part[2].n; i++)
            ((char *)csr.part[2].bytes)[i] ^= 0x55;
        const struct sfs_slab first = {.rank = 3, .count = {3, 1, 1}};
        assert_int_equal(sfs_erase(model.dataset, &first), 0);
        unsigned char *before = read_all(views, VIEW_STACK_RAW, 0, &count);
        int left = n;
        sfs_set_interrupt(is_given_up, &left);
        error = view_put_csr(views, &csr);
        sfs_set_interrupt(NULL, NULL);
        assert_true(error == 0 || error == -EINTR);
        unsigned char *after = read_all(views, VIEW_STACK_RAW, 0, &count);
        if (error)
            assert_memory_equal(after, before, count);
        else
            assert_memory_equal(after, csr.part[2].bytes, csr.part[2].n);
        interrupted += error != 0;
        free(before);
        free(after);
        for (int i = 0; i < VIEW_CSR_PARTS; i++)
            free((char *)csr.part[i].bytes);
        close_model(&model);
    }
    assert_true(interrupted > 8);
}

#define WAITS 10 /* so often only a thread is asked that waits */

/* Another thread, which writes one element through other views. */
static struct {
    struct model *model;
    pthread_t thread;
    bool is_started;
    int error;
    atomic_uint asked;
    atomic_bool is_done;
} beside;

static bool count_question(void *unused)
{
    (void)unused;
    atomic_fetch_add(&beside.asked, 1);
    return false;
}

static void *write_beside(void *unused)
{
    const struct view_bytes bytes = {.bytes = "\1\2", .n = 2};
    size_t written;
    sfs_set_interrupt(count_question, NULL);
    beside.error = view_write(beside.model->views[1], VIEW_STACK_RAW, 0, &bytes, &written);
    sfs_set_interrupt(NULL, NULL);
    atomic_store(&beside.is_done, true);
    return unused;
}

/* In the midst of a change, and not before the other one has written, or waits. */
static bool is_given_up_beside(void *unused)
{
    (void)unused;
    if (!beside.is_started && sfs_dataset_changes(beside.model->dataset) != 0)
        return false;
    if (!beside.is_started)
        start_thread(&beside.thread, write_beside, NULL);
    beside.is_started = true;
    while (!atomic_load(&beside.is_done) && atomic_load(&beside.asked) < WAITS)
        usleep(1000);
    passed += 10000000000u;
    return true;
}

static void what_others_write_meanwhile_is_not_undone(void **state)
{
    (void)state;
    static struct model model;
    static unsigned char content[6 * 7 * sizeof(uint16_t)];
    const struct view_content all = {.bytes = content, .n = sizeof(content), .most_kept = MOST};
    const struct sfs_slab slab = {.rank = 3, .count = {5, 6, 7}};
    size_t n;
    create_model(&model, &kinds[1]);
    for (size_t i = 0; i < 5 * 6 * 7 * sizeof(uint16_t); i++)
        model.value[i] = (unsigned char)random_below(256);
    assert_int_equal(sfs_write(model.dataset, &slab, model.value), 0);
    beside.model = &model;
    sfs_set_interrupt(is_given_up_beside, NULL);
    assert_int_equal(view_put(model.views[0], VIEW_RAW, 0, &all), -EINTR);
    sfs_set_interrupt(NULL, NULL);
    assert_true(beside.is_started);
    pthread_join(beside.thread, NULL);
    assert_int_equal(beside.error, 0);
    memcpy(model.value, "\1\2", 2);
    unsigned char *after = read_all(model.views[0], VIEW_STACK_RAW, 0, &n);
    assert_memory_equal(after, model.value, n);
    free(after);
    close_model(&model);
}

static bool is_given_up_waiting(void *unused)
{
    (void)unused;
    return atomic_fetch_add(&beside.asked, 1) >= WAITS;
}

static int write_frame(struct views *views, uint64_t frame)
{
    const struct view_bytes bytes = {.bytes = "\1\2", .n = 2};
    size_t written;
    return view_write(views, VIEW_RAW, frame, &bytes, &written);
}

static void *write_while_replaced(void *views)
{
    static int error;
    sfs_set_interrupt(is_given_up_waiting, NULL);
    error = write_frame(views, 0);
    if (!error)
        error = write_frame(views, 2);
    if (!error)
        error = write_frame(views, 1);
    sfs_set_interrupt(NULL, NULL);
    return &error;
}

/* Until it is interrupted; other frames are written meanwhile, and the same by the one who replaces it. */
static void who_writes_waits_for_who_replaces(void **state)
{
    (void)state;
    static struct model model;
    struct view_turn turn;
    pthread_t thread;
    void *error;
    create_model(&model, &kinds[0]);
    atomic_store(&beside.asked, 0);
    assert_int_equal(view_begin_turn(model.views[0], (struct view_frames){1, 1}, true, &turn), 0);
    start_thread(&thread, write_while_replaced, model.views[1]);
    pthread_join(thread, &error);
    assert_int_equal(*(int *)error, -EINTR);
    assert_int_equal(write_frame(model.views[0], 1), 0);
    view_end_turn(&turn);
    close_model(&model);
}

static int count_call(void *n)
{
    ++*(unsigned *)n;
    return 0;
}

static void end_call(void *unused)
{
    (void)unused;
}

static unsigned n_holds;

static void *replace_while_written(void *views)
{
    static unsigned char content[6 * 7 * sizeof(uint16_t)];
    static int error;
    const struct view_hold hold = {.begin = count_call, .end = end_call, .context = &n_holds};
    const struct view_content all = {
        .bytes = content, .n = sizeof(content), .most_kept = MOST, .hold = &hold};
    sfs_set_interrupt(is_given_up_waiting, NULL);
    error = view_put(views, VIEW_RAW, 1, &all);
    sfs_set_interrupt(NULL, NULL);
    return &error;
}

/* Who writes may take any time: commits do not wait for that, nor does it count as time of the change. */
static void who_replaces_waits_for_who_writes_before_it_holds(void **state)
{
    (void)state;
    static struct model model;
    struct view_turn turn;
    pthread_t thread;
    void *error;
    create_model(&model, &kinds[1]);
    n_holds = 0;
    atomic_store(&beside.asked, 0);
    assert_int_equal(view_begin_turn(model.views[0], (struct view_frames){1, 1}, false, &turn), 0);
    start_thread(&thread, replace_while_written, model.views[1]);
    pthread_join(thread, &error);
    assert_int_equal(*(int *)error, -EINTR);
    assert_int_equal(n_holds, 0);
    view_end_turn(&turn);
    atomic_store(&beside.asked, 0);
    assert_int_equal(*(int *)replace_while_written(model.views[1]), 0);
    assert_int_equal(n_holds, 1);
    close_model(&model);
}

TEST_MAIN(cmocka_unit_test(csr_is_written_as_a_whole_whenever_it_is_interrupted),
          cmocka_unit_test(who_replaces_waits_for_who_writes_before_it_holds),
          cmocka_unit_test(who_writes_waits_for_who_replaces),
          cmocka_unit_test(what_others_write_meanwhile_is_not_undone),
          cmocka_unit_test(views_show_what_was_written),
          cmocka_unit_test(other_header_bytes_are_refused),
          cmocka_unit_test(behind_the_end_nothing_is_written),
          cmocka_unit_test(selections_that_do_not_fit_change_nothing),
          cmocka_unit_test(a_defined_view_is_only_emptied_by_truncating),
          cmocka_unit_test(computed_views_cannot_be_written),
          cmocka_unit_test(a_file_open_for_reading_is_not_written),
          cmocka_unit_test(what_libhdf5_cannot_write_is_refused),
          cmocka_unit_test(a_frame_comes_to_be_with_its_first_bytes),
          cmocka_unit_test(an_empty_dataset_takes_nothing_until_it_has_grown),
          cmocka_unit_test(ranges_out_of_bounds_are_refused),
          cmocka_unit_test(intervals_that_are_none_change_nothing),
          cmocka_unit_test(a_dense_dataset_has_everything_defined),
          cmocka_unit_test(the_frames_of_a_range_are_those_it_touches),
          cmocka_unit_test(threads_do_not_disturb_each_other))
