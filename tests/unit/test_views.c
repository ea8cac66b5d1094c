/* Views of sparse datasets: their holes, and arrays of defined elements cut at any byte, against a
 * plain model. */
#include "support.h"

#include <errno.h>
#include <hdf5.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "view/points.h"
#include "view/variable_length_files.h"
#include "view/views_memory.h"

#define ITEM     sizeof(uint16_t)
#define MIN_HOLE 4096 /* bytes of a gap that is a hole */

/* A dataset of frames, and which of its elements are defined: those are 1 more than their position.
 */
struct model {
    uint64_t dims[3], chunk_dims[3];
    uint64_t n;
    bool *defined;
    struct sfs_file *file;
    struct sfs_dataset *dataset;
    struct views *views;
};

static uint64_t frame_elements(const struct model *model)
{
    return model->dims[1] * model->dims[2];
}

static void create(struct model *model, uint64_t frames, uint64_t rows, uint64_t columns,
                   uint64_t chunk_frames, uint64_t chunk_rows)
{
    void *type;
    size_t type_n;
    *model = (struct model){.dims = {frames, rows, columns},
                            .chunk_dims = {chunk_frames, chunk_rows, columns},
                            .n = frames * rows * columns};
    model->defined = allocate(model->n);
    memset(model->defined, 0, model->n);
    assert_int_equal(sfs_type_encode("<u2", &type, &type_n), 0);
    struct sfs_dataset_create description = {.rank = 3, .type = {type, type_n}};
    memcpy(description.dims, model->dims, sizeof(model->dims));
    memcpy(description.max_dims, model->dims, sizeof(model->dims));
    memcpy(description.chunk_dims, model->chunk_dims, sizeof(model->chunk_dims));
    struct sfs_options options = {.replace = true};
    assert_int_equal(sfs_create("views.h5", &options, &model->file), 0);
    assert_int_equal(sfs_dataset_create(model->file, "/d", &description, &model->dataset), 0);
    free(type);
}

/* Defines elements of one row. */
static void define(struct model *model, uint64_t frame, uint64_t row, uint64_t column, uint64_t n)
{
    struct sfs_slab slab = {.rank = 3, .start = {frame, row, column}, .count = {1, 1, n}};
    uint16_t *values = allocate(n * ITEM);
    uint64_t position = (frame * model->dims[1] + row) * model->dims[2] + column;
    for (uint64_t i = 0; i < n; i++) {
        values[i] = (uint16_t)(position + i + 1);
        model->defined[position + i] = true;
    }
    assert_int_equal(sfs_write(model->dataset, &slab, values), 0);
    free(values);
}

/* Closes the file and opens it for viewing. */
static void view(struct model *model)
{
    uint64_t address;
    sfs_dataset_close(model->dataset);
    assert_int_equal(sfs_close(model->file), 0);
    assert_int_equal(sfs_open("views.h5", NULL, &model->file), 0);
    assert_int_equal(sfs_find(model->file, sfs_root(model->file), "/d", &address), 0);
    assert_int_equal(views_open(model->file, address, "/d", -1, &model->views), 0);
}

static void destroy(struct model *model)
{
    views_close(model->views);
    assert_int_equal(sfs_close(model->file), 0);
    free(model->defined);
}

/* The first byte of data (or behind it) from `at` on, in head bytes and elements [first, first +
 * n), the gaps that are no holes filled; `size` if there is none. */
static uint64_t expected_seek(const bool *defined, uint64_t n, uint64_t head, uint64_t at,
                              bool data)
{
    uint64_t size = head + n * ITEM;
    bool *filled = allocate(size);
    uint64_t last = head; /* the end of the data before */
    for (uint64_t i = 0; i < size; i++)
        filled[i] = i < head || defined[(i - head) / ITEM];
    for (uint64_t i = head; i < size; i++) {
        if (!filled[i])
            continue;
        if (i - last < MIN_HOLE)
            memset(filled + last, true, i - last);
        last = i + 1;
    }
    while (at < size && filled[at] != data)
        at++;
    free(filled);
    return at;
}

static void check_seek(const struct model *model, enum view_kind kind, uint64_t frame, uint64_t at)
{
    bool is_stack = kind == VIEW_STACK_RAW || kind == VIEW_STACK_NPY;
    uint64_t size, n = is_stack ? model->n : frame_elements(model);
    const bool *defined = model->defined + (is_stack ? 0 : frame * n);
    assert_int_equal(view_size(model->views, kind, frame, &size), 0);
    for (int data = 0; data < 2; data++) {
        uint64_t found = 0, expected = expected_seek(defined, n, size - n * ITEM, at, data);
        int error = view_seek(model->views, kind, frame, at, data, &found);
        assert_int_equal(error, data && expected == size ? -ENXIO : 0);
        if (!error)
            assert_int_equal(found, expected);
    }
}

static const enum view_kind dense_kinds[] = {VIEW_RAW, VIEW_NPY, VIEW_TIFF, VIEW_STACK_RAW,
                                             VIEW_STACK_NPY};

static void holes_are_where_nothing_is_defined(void **state)
{
    (void)state;
    for (int round = 0; round < 12; round++) {
        struct model model;
        create(&model, 6, 60, 100, 1 + random_below(3), 1 + random_below(60));
        for (uint64_t i = random_below(25); i > 0; i--) {
            uint64_t column = random_below(100);
            define(&model, random_below(6), random_below(60), column,
                   random_between(1, 100 - column));
        }
        view(&model);
        for (int i = 0; i < 300; i++) {
            enum view_kind kind = dense_kinds[random_below(COUNT(dense_kinds))];
            uint64_t size, frame = random_below(6);
            assert_int_equal(view_size(model.views, kind, frame, &size), 0);
            check_seek(&model, kind, frame, random_below(size));
        }
        destroy(&model);
    }
}

static void behind_the_end_nothing_is_found(void **state)
{
    (void)state;
    struct model model;
    uint64_t found = 7, size;
    create(&model, 3, 4, 5, 1, 4);
    define(&model, 1, 2, 0, 5);
    view(&model);
    for (size_t i = 0; i < COUNT(dense_kinds); i++) {
        assert_int_equal(view_size(model.views, dense_kinds[i], 1, &size), 0);
        for (int data = 0; data < 2; data++) {
            assert_int_equal(view_seek(model.views, dense_kinds[i], 1, size, data, &found), -ENXIO);
            assert_int_equal(view_seek(model.views, dense_kinds[i], 1, UINT64_MAX, data, &found),
                             -ENXIO);
        }
    }
    assert_int_equal(found, 7);
    destroy(&model);
}

/* Looking for a hole in a long stack does not read the selections of all its frames. */
static void in_long_data_only_empty_frames_are_holes(void **state)
{
    (void)state;
    struct model model;
    uint64_t found, frame_bytes = 10 * 1000 * ITEM;
    create(&model, 300, 10, 1000, 1, 10);
    for (uint64_t frame = 0; frame < 300; frame++)
        for (uint64_t row = 0; row < 10; row++)
            if (frame != 200 && (frame != 100 || row < 3 || row > 6))
                define(&model, frame, row, 0, 1000);
    view(&model);
    assert_int_equal(view_seek(model.views, VIEW_STACK_RAW, 0, 0, false, &found), 0);
    assert_int_equal(found, 200 * frame_bytes);
    struct sfs_statistics statistics;
    sfs_statistics(model.file, &statistics);
    assert_in_range(statistics.chunks_decoded, 1, 100);
    check_seek(&model, VIEW_STACK_RAW, 0, 90 * frame_bytes); /* the one in frame 100 */
    check_seek(&model, VIEW_STACK_RAW, 0, 200 * frame_bytes + 5);
    check_seek(&model, VIEW_STACK_RAW, 0, 250 * frame_bytes); /* none up to the end */
    destroy(&model);
}

static void allocated_bytes_are_those_of_defined_elements(void **state)
{
    (void)state;
    for (uint64_t chunk_frames = 1; chunk_frames <= 2; chunk_frames++) {
        struct model model;
        uint64_t size;
        create(&model, 4, 30, 40, chunk_frames, 7);
        define(&model, 1, 3, 5, 11);
        define(&model, 1, 29, 39, 1);
        define(&model, 3, 0, 0, 2);
        view(&model);
        assert_int_equal(view_allocated(model.views, VIEW_RAW, 0, 2400), 0);
        assert_int_equal(view_allocated(model.views, VIEW_RAW, 1, 2400), 12 * ITEM);
        assert_int_equal(view_size(model.views, VIEW_NPY, 3, &size), 0);
        assert_int_equal(view_allocated(model.views, VIEW_NPY, 3, size), size - 2400 + 2 * ITEM);
        assert_int_equal(view_allocated(model.views, VIEW_STACK_RAW, 0, 9600), 14 * ITEM);
        assert_int_equal(view_size(model.views, VIEW_VALUES, 1, &size), 0);
        assert_int_equal(size, 12 * ITEM);
        assert_int_equal(view_size_is_cheap(model.views, VIEW_VALUES), chunk_frames == 1);
        assert_false(view_size_is_cheap(model.views, VIEW_DEFINED));
        destroy(&model);
    }
}

/* The bytes of a whole view, read at once. */
static unsigned char *read_whole(struct model *model, enum view_kind kind, uint64_t frame,
                                 size_t *n)
{
    struct view_part part;
    uint64_t size;
    assert_int_equal(view_size(model->views, kind, frame, &size), 0);
    unsigned char *bytes = allocate(size + 1);
    assert_int_equal(
        view_read(model->views, kind, frame, &(struct view_room){0, size + 1, bytes, false}, &part),
        0);
    assert_int_equal(part.n, size);
    if (part.bytes != bytes)
        memcpy(bytes, part.bytes, size);
    view_return(model->views, &part);
    *n = size;
    return bytes;
}

static void arrays_can_be_cut_anywhere(void **state)
{
    (void)state;
    static const enum view_kind kinds[] = {VIEW_VALUES, VIEW_CSR_INDPTR, VIEW_CSR_INDICES,
                                           VIEW_CSR_DATA, VIEW_DEFINED};
    struct model model;
    create(&model, 9, 20, 30, 2, 8);
    for (int i = 0; i < 40; i++)
        define(&model, random_below(9), random_below(20), random_below(20), random_between(1, 10));
    view(&model);
    for (int i = 0; i < 400; i++) {
        enum view_kind kind = kinds[random_below(COUNT(kinds))];
        uint64_t frame = random_below(9);
        size_t size;
        unsigned char buffer[300], *whole = read_whole(&model, kind, frame, &size);
        size_t offset = random_below(size + 1), n = random_below(sizeof(buffer));
        struct view_part part;
        assert_int_equal(view_read(model.views, kind, frame,
                                   &(struct view_room){offset, n, buffer, false}, &part),
                         0);
        assert_int_equal(part.n, n < size - offset ? n : size - offset);
        assert_memory_equal(part.bytes, whole + offset, part.n);
        view_return(model.views, &part);
        free(whole);
    }
    destroy(&model);
}

static void csr_arrays_are_the_defined_elements(void **state)
{
    (void)state;
    struct model model;
    size_t n;
    create(&model, 7, 20, 30, 3, 6);
    for (int i = 0; i < 30; i++)
        define(&model, random_below(7), random_below(20), random_below(20), random_between(1, 10));
    view(&model);
    int64_t *indptr = (int64_t *)read_whole(&model, VIEW_CSR_INDPTR, 0, &n);
    assert_int_equal(n, 8 * sizeof(*indptr));
    int32_t *indices = (int32_t *)read_whole(&model, VIEW_CSR_INDICES, 0, &n);
    uint16_t *data = (uint16_t *)read_whole(&model, VIEW_CSR_DATA, 0, &n);
    int64_t k = 0;
    for (uint64_t i = 0; i < model.n; i++) {
        if (i % 600 == 0)
            assert_int_equal(indptr[i / 600], k);
        if (!model.defined[i])
            continue;
        assert_int_equal(indices[k], i % 600);
        assert_int_equal(data[k], i + 1);
        k++;
    }
    assert_int_equal(indptr[7], k);
    assert_int_equal(n, (size_t)k * ITEM);
    free(indptr);
    free(indices);
    free(data);
    destroy(&model);
}

/* As the names of a directory may be while a followed dataset loses its frames; back to no frame. */
static void names_of_chunks_need_no_frames(void **state)
{
    (void)state;
    struct sfs_dataset_create description = {.rank = 3,
                                             .dims = {4, 0, 5},
                                             .max_dims = {4, 7, 5},
                                             .chunk_dims = {1, 1, 5},
                                             .is_dense = true};
    struct sfs_options options = {.replace = true};
    struct sfs_file *file;
    struct sfs_dataset *dataset;
    struct views *views;
    void *type;
    char name[256];
    uint64_t address, frame;
    assert_int_equal(sfs_type_encode("<u2", &type, &description.type.n), 0);
    description.type.bytes = type;
    assert_int_equal(sfs_create("empty.h5", &options, &file), 0);
    assert_int_equal(sfs_dataset_create(file, "/d", &description, &dataset), 0);
    sfs_dataset_close(dataset);
    assert_int_equal(sfs_find(file, sfs_root(file), "/d", &address), 0);
    assert_int_equal(views_open(file, address, "/d", 1, &views), 0);
    assert_int_equal(views_frames(views), 0);
    view_chunk_name(views, 3, name, sizeof(name));
    assert_string_equal(name, "0.3.0");
    assert_false(view_chunk_frame(views, name, &frame));
    views_close(views);
    assert_int_equal(sfs_close(file), 0);
    free(type);
}

/* A dataset of a file that is open for writing, and views of it. */
static void create_viewed(const char *type_name, const struct sfs_dataset_create *like,
                          int frame_rank, struct model *model)
{
    struct sfs_dataset_create description = *like;
    struct sfs_options options = {.replace = true};
    void *type;
    *model = (struct model){0};
    assert_int_equal(sfs_type_encode(type_name, &type, &description.type.n), 0);
    description.type.bytes = type;
    assert_int_equal(sfs_create("views.h5", &options, &model->file), 0);
    assert_int_equal(sfs_dataset_create(model->file, "/d", &description, &model->dataset), 0);
    free(type);
    assert_int_equal(views_open(model->file, sfs_dataset_address(model->dataset), "/d", frame_rank,
                                &model->views),
                     0);
}

/* They are no more than any number of them that cannot be counted. */
static void frames_that_exceed_63_bits_are_not_counted_and_the_log_says_so(void **state)
{
    (void)state;
    const uint64_t many = (uint64_t)1 << 40;
    const struct sfs_dataset_create description = {.rank = 3,
                                                   .dims = {many, many, 0},
                                                   .max_dims = {SFS_UNLIMITED, SFS_UNLIMITED, 5},
                                                   .chunk_dims = {1, 1, 5}};
    struct model model;
    const struct counts *counts;
    log_quietly();
    create_viewed("<u2", &description, 1, &model);
    assert_true(views_frames(model.views) == UINT64_MAX);
    unsigned errors = log_errors();
    assert_int_equal(counts_get(model.views, &counts), -EFBIG);
    assert_int_equal(log_errors(), errors + 1);
    views_close(model.views);
    sfs_dataset_close(model.dataset);
    assert_int_equal(sfs_close(model.file), 0);
}

static void write_sequences(const struct model *model, const uint64_t *lengths, size_t n)
{
    static const uint16_t values[] = {1, 2, 3, 4, 5, 6, 7, 8, 9};
    struct sfs_sequence *sequence = allocate(n * sizeof(*sequence));
    const struct sfs_slab slab = {.rank = 1, .count = {n}};
    for (size_t i = 0; i < n; i++)
        sequence[i] = (struct sfs_sequence){.elements = values, .n = lengths[i]};
    assert_int_equal(sfs_write(model->dataset, &slab, sequence), 0);
    free(sequence);
}

/* Where a piece begins is of the index; what is in it, of the present. */
static void offsets_are_those_of_one_state(void **state)
{
    (void)state;
    const uint64_t before[] = {3, 0, 2, 1}, after[] = {3, 1, 2, 1}, moved[] = {1, 3, 0, 2};
    const struct sfs_dataset_create description = {
        .rank = 1, .dims = {4}, .max_dims = {4}, .chunk_dims = {2}};
    const uint64_t expected[] = {0, 3, 3, 5, 6};
    uint64_t offsets[5];
    struct parts_index *index;
    struct model model;
    create_viewed("vlen:<u2", &description, -1, &model);
    write_sequences(&model, before, 4);
    assert_int_equal(parts_get(model.views, &index), 0);
    write_sequences(&model, after, 4);
    assert_int_equal(parts_offsets(model.views, index, 0, 5, (char *)offsets), -EAGAIN);
    write_sequences(&model, before, 4);
    assert_int_equal(parts_offsets(model.views, index, 0, 5, (char *)offsets), 0);
    assert_memory_equal(offsets, expected, sizeof(expected));
    parts_put(model.views, index);
    /* As many in all, of other lengths. */
    write_sequences(&model, moved, 4);
    assert_int_equal(parts_get(model.views, &index), 0);
    assert_int_equal(parts_offsets(model.views, index, 1, 1, (char *)offsets), 0);
    assert_int_equal(offsets[0], 1);
    parts_put(model.views, index);
    views_close(model.views);
    sfs_dataset_close(model.dataset);
    assert_int_equal(sfs_close(model.file), 0);
}

/* A file with a dataset /s, and a virtual one, /v, that shows it. Takes the type. */
static void create_shown(hid_t type, int rank, const hsize_t *dims)
{
    hid_t space = H5Screate_simple(rank, dims, NULL), mapping = H5Pcreate(H5P_DATASET_CREATE);
    hid_t h5 = H5Fcreate("shown.h5", H5F_ACC_TRUNC, H5P_DEFAULT, H5P_DEFAULT);
    H5Dclose(H5Dcreate2(h5, "s", type, space, H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT));
    assert_true(H5Pset_virtual(mapping, space, ".", "/s", space) >= 0);
    H5Dclose(H5Dcreate2(h5, "v", type, space, H5P_DEFAULT, mapping, H5P_DEFAULT));
    H5Fclose(h5);
    H5Pclose(mapping);
    H5Sclose(space);
    H5Tclose(type);
}

/* Texts and images that are kept, too. */
static void what_is_made_of_what_is_shown_follows_it(void **state)
{
    (void)state;
    const struct sfs_options options = {.writable = true};
    const enum view_kind kinds[] = {VIEW_VALUE_TXT, VIEW_PNG, VIEW_CSV};
    const struct sfs_slab slab = {.rank = 2, .count = {3, 4}};
    const uint8_t values[] = {9, 0, 7, 0, 5, 0, 3, 0, 1, 0, 2, 0};
    struct model model = {0};
    uint64_t address;
    size_t n;
    create_shown(H5Tcopy(H5T_STD_U8LE), 2, (const hsize_t[]){3, 4});
    assert_int_equal(sfs_open("shown.h5", &options, &model.file), 0);
    assert_int_equal(sfs_find(model.file, sfs_root(model.file), "/s", &address), 0);
    assert_int_equal(sfs_dataset_open(model.file, address, "/s", &model.dataset), 0);
    assert_int_equal(sfs_find(model.file, sfs_root(model.file), "/v", &address), 0);
    assert_int_equal(views_open(model.file, address, "/v", -1, &model.views), 0);
    for (size_t i = 0; i < COUNT(kinds); i++) {
        const uint8_t zeros[12] = {0};
        assert_int_equal(sfs_write(model.dataset, &slab, zeros), 0);
        unsigned char *before = read_whole(&model, kinds[i], 0, &n);
        assert_int_equal(sfs_write(model.dataset, &slab, values), 0);
        unsigned char *after = read_whole(&model, kinds[i], 0, &n);
        assert_memory_not_equal(before, after, n);
        free(before);
        free(after);
    }
    views_close(model.views);
    sfs_dataset_close(model.dataset);
    assert_int_equal(sfs_close(model.file), 0);
}

static void offsets_of_what_is_shown_follow_it(void **state)
{
    (void)state;
    create_shown(H5Tvlen_create(H5T_STD_U16LE), 1, (const hsize_t[]){4});
    const uint64_t before[] = {3, 0, 2, 1}, after[] = {3, 1, 2, 1}, expected[] = {0, 3, 4, 6, 7};
    const struct sfs_options options = {.writable = true};
    struct model model = {0};
    uint64_t address, offsets[5];
    struct parts_index *index;
    assert_int_equal(sfs_open("shown.h5", &options, &model.file), 0);
    assert_int_equal(sfs_find(model.file, sfs_root(model.file), "/s", &address), 0);
    assert_int_equal(sfs_dataset_open(model.file, address, "/s", &model.dataset), 0);
    write_sequences(&model, before, 4);
    assert_int_equal(sfs_find(model.file, sfs_root(model.file), "/v", &address), 0);
    assert_int_equal(views_open(model.file, address, "/v", -1, &model.views), 0);
    assert_int_equal(parts_get(model.views, &index), 0);
    write_sequences(&model, after, 4);
    assert_int_equal(parts_offsets(model.views, index, 0, 5, (char *)offsets), -EAGAIN);
    parts_put(model.views, index);
    assert_int_equal(parts_get(model.views, &index), 0);
    assert_int_equal(parts_offsets(model.views, index, 0, 5, (char *)offsets), 0);
    assert_memory_equal(offsets, expected, sizeof(expected));
    parts_put(model.views, index);
    views_close(model.views);
    sfs_dataset_close(model.dataset);
    assert_int_equal(sfs_close(model.file), 0);
}

/* ---- What views take of memory, in all ---- */

#define MOST ((size_t)1 << 30)

/* A file is closed, and with it all is given back. */
static void destroy_and_check(struct model *model)
{
    destroy(model);
    views_memory_limit(MOST, MOST);
    assert_int_equal(kept_memory_take(NULL, MOST), 0);
    kept_memory_give_back(MOST);
    assert_true(made_memory_extend(MOST));
    made_memory_give_back(MOST);
}

/* All is defined. Chunks hold one element of all frames: in the index frames come once for each of their rows. */
static void create_rows(struct model *model, uint64_t frames, uint64_t rows)
{
    const struct sfs_slab slab = {.rank = 3, .count = {frames, rows, 1}};
    create(model, frames, rows, 1, frames, 1);
    uint16_t *values = allocate(model->n * ITEM);
    for (uint64_t i = 0; i < model->n; i++)
        values[i] = (uint16_t)(i + 1);
    assert_int_equal(sfs_write(model->dataset, &slab, values), 0);
    free(values);
    view(model);
}

static bool count_asked(void *context)
{
    ++*(unsigned *)context;
    return false;
}

/* Of a chunk of one run the dims cut off a column, so that its rows are gone through, to make one run of them. */
static void rows_that_become_one_run_are_joined_in_pieces(void **state)
{
    (void)state;
    enum { ROWS = 5 << 16 };
    const struct sfs_slab slab = {.rank = 2, .count = {ROWS, 1}};
    struct sfs_dataset_create description = {
        .rank = 2, .dims = {ROWS, 2}, .max_dims = {ROWS, SFS_UNLIMITED}, .chunk_dims = {ROWS, 2}};
    struct sfs_options options = {.replace = true};
    struct sfs_dataset *dataset;
    struct sfs_defined defined;
    struct sfs_file *file;
    unsigned asked = 0;
    void *type;
    assert_int_equal(sfs_type_encode("<u1", &type, &description.type.n), 0);
    description.type.bytes = type;
    assert_int_equal(sfs_create("views.h5", &options, &file), 0);
    assert_int_equal(sfs_dataset_create(file, "/d", &description, &dataset), 0);
    free(type);
    unsigned char *values = allocate(2 * ROWS);
    memset(values, 1, 2 * ROWS);
    assert_int_equal(sfs_write(dataset, &(struct sfs_slab){.rank = 2, .count = {ROWS, 2}}, values),
                     0);
    free(values);
    assert_int_equal(sfs_set_extent(dataset, (const uint64_t[]){ROWS, 1}), 0);
    sfs_set_interrupt(count_asked, &asked);
    assert_int_equal(sfs_get_defined(dataset, &slab, &defined), 0);
    sfs_set_interrupt(NULL, NULL);
    assert_true(asked >= ROWS / 65536);
    assert_int_equal(defined.n, 1);
    assert_int_equal(defined.elements, ROWS);
    sfs_defined_free(&defined);
    sfs_dataset_close(dataset);
    assert_int_equal(sfs_close(file), 0);
}

static void many_frames_are_counted_in_pieces(void **state)
{
    (void)state;
    for (uint64_t rows = 1; rows <= 2; rows++) {
        const uint64_t frames = 1000000 / rows;
        struct model model;
        const struct counts *counts;
        unsigned asked = 0;
        create_rows(&model, frames, rows);
        sfs_set_interrupt(count_asked, &asked);
        assert_int_equal(counts_get(model.views, &counts), 0);
        sfs_set_interrupt(NULL, NULL);
        assert_true(asked > rows * (1000000 / 65536)); /* adding them, and sorting */
        assert_int_equal(counts->n, frames);
        for (size_t i = 0; i <= frames; i++) {
            assert_true(counts->frame[i].frame == (i < frames ? i : UINT64_MAX));
            assert_int_equal(counts->frame[i].before, rows * i);
        }
        counts_put(model.views, counts);
        destroy_and_check(&model);
    }
}

static bool is_asked_often(void *context)
{
    return ++*(unsigned *)context > 6;
}

static void counting_ends_early_if_nobody_waits(void **state)
{
    (void)state;
    struct model model;
    const struct counts *counts;
    unsigned asked = 0;
    create_rows(&model, 200000, 2);
    sfs_set_interrupt(is_asked_often, &asked);
    assert_int_equal(counts_get(model.views, &counts), -EINTR);
    sfs_set_interrupt(NULL, NULL);
    assert_int_equal(views_kept_bytes(model.views), 0);
    destroy_and_check(&model);
}

static void tables_of_all_datasets_have_one_limit(void **state)
{
    (void)state;
    struct model model;
    struct views *other;
    const struct counts *counts, *others;
    create_rows(&model, 10000, 2);
    log_quietly();
    assert_int_equal(views_open(model.file, model.views->address, "/d", -1, &other), 0);
    assert_int_equal(counts_get(model.views, &counts), 0);
    const size_t table = counts_bytes(counts);
    assert_int_equal(table, 10001 * sizeof(*counts->frame));
    /* Each frame comes twice at first, in an array with room, which is sorted. */
    views_memory_limit(8 * table, MOST);
    assert_int_equal(counts_get(other, &others), 0);
    counts_put(other, others);
    assert_int_equal(views_kept_bytes(other), table);
    counts_drop(other);
    views_memory_limit(3 * table, MOST);
    const unsigned errors = log_errors();
    assert_int_equal(counts_get(other, &others), -ENOMEM);
    assert_int_equal(log_errors(), errors + 1);
    assert_int_equal(views_kept_bytes(other), 0);
    /* Half of the limit is for what nobody uses. */
    views_memory_limit(2 * table, MOST);
    counts_put(model.views, counts);
    assert_int_equal(views_kept_bytes(model.views), table);
    views_memory_limit(2 * table - 1, MOST);
    assert_int_equal(counts_get(model.views, &counts), 0);
    counts_put(model.views, counts);
    assert_int_equal(views_kept_bytes(model.views), 0);
    views_close(other);
    destroy_and_check(&model);
}

static void selections_are_limited_too(void **state)
{
    (void)state;
    const enum defined_form forms[] = {DEFINED_INTERVALS, DEFINED_ENCODED};
    struct model model;
    struct defined_frame *held, *more;
    create(&model, 2, 100, 100, 1, 100);
    for (uint64_t row = 0; row < 100; row++)
        define(&model, row % 2, row, row % 7, 5);
    view(&model);
    log_quietly();
    for (size_t i = 0; i < COUNT(forms); i++) {
        assert_int_equal(defined_get(model.views, 0, forms[i], &held), 0);
        const size_t n = views_kept_bytes(model.views), errors = log_errors();
        views_memory_limit(n + 1, MOST);
        assert_int_equal(defined_get(model.views, 1, forms[i], &more), -ENOMEM);
        assert_int_equal(log_errors(), errors + 1);
        assert_int_equal(views_kept_bytes(model.views), n);
        defined_put(model.views, held);
        assert_int_equal(views_kept_bytes(model.views), 0);
        views_memory_limit(MOST, MOST);
    }
    destroy_and_check(&model);
}

static void create_images(const char *type_name, uint64_t frames, uint64_t rows, uint64_t columns,
                          struct model *model)
{
    const struct sfs_dataset_create description = {.rank = 3,
                                                   .dims = {frames, rows, columns},
                                                   .max_dims = {frames, rows, columns},
                                                   .chunk_dims = {1, rows, columns}};
    create_viewed(type_name, &description, -1, model);
}

static void close_images(struct model *model)
{
    sfs_dataset_close(model->dataset);
    destroy_and_check(model);
}

struct wanted {
    struct views *views;
    enum defined_form form;
    _Atomic pid_t thread;
    struct defined_frame *got;
    int error;
};

static void *get_second_frame(void *context)
{
    struct wanted *wanted = context;
    wanted->thread = (pid_t)syscall(SYS_gettid);
    wanted->error = defined_get(wanted->views, 1, wanted->form, &wanted->got);
    return NULL;
}

static bool is_asked_very_often(void *context)
{
    return ++*(unsigned *)context > 20;
}

/* More than there is for one of them, or a little more. */
static void frames_are_made_one_after_the_other(void **state)
{
    (void)state;
    const enum defined_form forms[] = {DEFINED_PNG, DEFINED_CBF, DEFINED_NPZ};
    struct model model;
    create_images("<u2", 2, 64, 64, &model);
    for (size_t i = 0; i < 2 * COUNT(forms); i++) {
        struct wanted wanted = {.views = model.views, .form = forms[i / 2]};
        struct defined_frame *held, *more;
        unsigned asked = 0;
        pthread_t thread;
        views_memory_limit(MOST, i % 2 ? 1 : 3 * 64 * 64);
        assert_int_equal(defined_get(model.views, 0, wanted.form, &held), 0);
        views_memory_limit(MOST, held->encoded.n);
        sfs_set_interrupt(is_asked_very_often, &asked); /* more often than for reading them */
        assert_int_equal(defined_get(model.views, 1, wanted.form, &more), -EINTR);
        sfs_set_interrupt(NULL, NULL);
        start_thread(&thread, get_second_frame, &wanted);
        while (wanted.thread == 0)
            sched_yield();
        wait_until_it_sleeps(wanted.thread);
        defined_put(model.views, held);
        assert_int_equal(pthread_join(thread, NULL), 0);
        assert_int_equal(wanted.error, 0);
        defined_put(model.views, wanted.got);
        defined_drop(model.views);
    }
    close_images(&model);
}

/* But the last one is kept for the next request while there is room for it. */
static void frames_that_nobody_reads_are_kept_in_half_of_the_limit(void **state)
{
    (void)state;
    struct model model;
    struct defined_frame *held;
    create_images("<u2", 2, 64, 64, &model);
    assert_int_equal(defined_get(model.views, 0, DEFINED_PNG, &held), 0);
    const size_t n = held->encoded.n;
    const size_t selection = views_kept_bytes(model.views) - n;
    views_memory_limit(2 * (n + selection), MOST);
    defined_put(model.views, held);
    assert_int_equal(views_kept_bytes(model.views), n + selection);
    assert_int_equal(defined_get(model.views, 0, DEFINED_PNG, &held), 0);
    views_memory_limit(2 * (n + selection) - 1, MOST);
    defined_put(model.views, held);
    assert_int_equal(views_kept_bytes(model.views), selection);
    assert_int_equal(defined_get(model.views, 0, DEFINED_PNG, &held), 0);
    defined_put(model.views, held); /* what was made just now, too */
    assert_int_equal(views_kept_bytes(model.views), selection);
    close_images(&model);
}

/* What CBF takes is known when it is made: where there is no more just then it is made again. */
static void a_cbf_file_that_takes_more_than_most_is_made_all_the_same(void **state)
{
    (void)state;
    const struct sfs_slab slab = {.rank = 3, .count = {1, 300, 300}};
    struct model model;
    size_t n, again;
    int32_t *values = allocate(300 * 300 * sizeof(*values));
    random_fill(values, 300 * 300 * sizeof(*values));
    create_images("<i4", 1, 300, 300, &model);
    assert_int_equal(sfs_write(model.dataset, &slab, values), 0);
    unsigned char *whole = read_whole(&model, VIEW_CBF, 0, &n);
    assert_int_equal(sfs_write(model.dataset, &slab, values), 0); /* what is kept is not current */
    views_memory_limit(MOST, 300 * 300 * 2);
    unsigned char *alone = read_whole(&model, VIEW_CBF, 0, &again);
    assert_int_equal(n, again);
    assert_memory_equal(whole, alone, n);
    free(whole);
    free(alone);
    free(values);
    close_images(&model);
}

static void texts_of_all_datasets_have_one_limit(void **state)
{
    (void)state;
    const enum view_kind kinds[] = {VIEW_VALUE_TXT, VIEW_CSV, VIEW_DATASET_JSON};
    const struct sfs_dataset_create description = {
        .rank = 1, .dims = {500}, .max_dims = {500}, .chunk_dims = {500}, .is_dense = true};
    struct model model;
    uint64_t size;
    char byte;
    const struct view_room room = {0, 1, &byte, false};
    struct view_part part;
    log_quietly();
    create_viewed("<u2", &description, -1, &model);
    for (size_t i = 0; i < COUNT(kinds); i++) {
        views_memory_limit(1, MOST);
        const unsigned errors = log_errors();
        assert_int_equal(view_read(model.views, kinds[i], 0, &room, &part), -ENOMEM);
        assert_int_equal(log_errors(), errors + 1);
        views_memory_limit(MOST, 1); /* more than that is made, by itself */
        assert_int_equal(view_read(model.views, kinds[i], 0, &room, &part), 0);
        assert_int_equal(view_size(model.views, kinds[i], 0, &size), 0);
        assert_int_equal(views_kept_bytes(model.views), size);
        views_memory_limit(2 * size - 1, MOST);
        assert_int_equal(view_read(model.views, kinds[i], 0, &room, &part), 0);
        assert_int_equal(views_kept_bytes(model.views), 0);
    }
    close_images(&model);
}

static void sequences_are_limited_too(void **state)
{
    (void)state;
    const uint64_t lengths[] = {3, 0, 2, 1};
    const struct sfs_dataset_create description = {
        .rank = 1, .dims = {4}, .max_dims = {4}, .chunk_dims = {2}};
    struct model model;
    struct parts_index *index, *more;
    uint16_t values[6];
    log_quietly();
    create_viewed("vlen:<u2", &description, -1, &model);
    write_sequences(&model, lengths, 4);
    views_memory_limit(1, MOST);
    unsigned errors = log_errors();
    assert_int_equal(parts_get(model.views, &index), -ENOMEM);
    assert_int_equal(log_errors(), ++errors);
    views_memory_limit(MOST, MOST);
    assert_int_equal(parts_get(model.views, &index), 0);
    const size_t n = views_kept_bytes(model.views);
    views_memory_limit(n + sizeof(values) - 1, MOST);
    assert_int_equal(parts_read(model.views, index, 0, sizeof(values), (char *)values), -ENOMEM);
    assert_int_equal(log_errors(), ++errors);
    views_memory_limit(n + sizeof(values), MOST);
    assert_int_equal(parts_read(model.views, index, 0, sizeof(values), (char *)values), 0);
    assert_int_equal(values[5], 1);
    assert_int_equal(views_kept_bytes(model.views), n + sizeof(values));
    assert_int_equal(parts_get(model.views, &more), 0);
    parts_put(model.views, more);
    assert_int_equal(views_kept_bytes(model.views), n + sizeof(values));
    parts_put(model.views, index); /* nobody uses it, and it is more than half */
    assert_int_equal(views_kept_bytes(model.views), 0);
    close_images(&model);
}

/* ---- Frames that are written as a whole ---- */

/* That many questions are answered with no. */
static bool is_wanted_no_more(void *context)
{
    unsigned *left = context;
    return *left == 0 || (--*left, false);
}

struct held {
    unsigned begun, ended;
    int answer;
};

static int begin_hold(void *context)
{
    struct held *held = context;
    held->begun++;
    return held->answer;
}

static void end_hold(void *context)
{
    ((struct held *)context)->ended++;
}

/* A model of two frames, and the first one as a list of points. */
static unsigned char *create_list(struct model *model, size_t *n)
{
    const uint16_t values[] = {1, 2, 3};
    const struct sfs_slab slab = {.rank = 3, .start = {0, 1, 0}, .count = {1, 1, 3}};
    create_images("<u2", 2, 3, 3, model);
    assert_int_equal(sfs_write(model->dataset, &slab, values), 0);
    return read_whole(model, VIEW_NPZ, 0, n);
}

static void check_second(struct model *model, const unsigned char *list, size_t n)
{
    size_t found_n;
    unsigned char *found = read_whole(model, VIEW_NPZ, 1, &found_n);
    assert_true(found_n == n && memcmp(found, list, n) == 0);
    free(found);
}

/* What cannot be decoded holds nothing. */
static void commits_are_held_when_points_are_decoded(void **state)
{
    (void)state;
    struct model model;
    struct held held = {.answer = -EINTR};
    const struct view_hold hold = {begin_hold, end_hold, &held};
    size_t n, old_n;
    unsigned char *list = create_list(&model, &n);
    unsigned char *spoilt = allocate(n), *old = read_whole(&model, VIEW_NPZ, 1, &old_n);
    memset(spoilt, 0, n);
    struct view_content content = {.bytes = spoilt, .n = n, .most_kept = MOST, .hold = &hold};
    log_quietly();
    assert_int_equal(view_put(model.views, VIEW_NPZ, 1, &content), -EINVAL);
    assert_int_equal(held.begun, 0);
    content.bytes = list;
    assert_int_equal(view_put(model.views, VIEW_NPZ, 1, &content), -EINTR);
    assert_true(held.begun == 1 && held.ended == 0);
    check_second(&model, old, old_n);
    held.answer = 0;
    assert_int_equal(view_put(model.views, VIEW_NPZ, 1, &content), 0);
    assert_true(held.begun == 2 && held.ended == 1);
    check_second(&model, list, n);
    free(list);
    free(spoilt);
    free(old);
    close_images(&model);
}

/* The same of csr/, whose files are compared before. */
static void commits_are_held_when_csr_was_compared(void **state)
{
    (void)state;
    struct model model;
    struct held held = {.answer = -EINTR};
    const struct view_hold hold = {begin_hold, end_hold, &held};
    const int64_t falls[] = {0, 3, 1}, rows[] = {0, 1, 3};
    const int32_t indices[] = {3, 5, 4};
    const uint16_t values[] = {7, 9, 8};
    struct view_csr csr = {.part = {{(const char *)falls, sizeof(falls)},
                                    {(const char *)indices, sizeof(indices)},
                                    {(const char *)values, sizeof(values)}},
                           .most_kept = MOST,
                           .hold = &hold};
    size_t n;
    unsigned char *list = create_list(&model, &n);
    assert_int_equal(view_put_csr(model.views, &csr), -EINVAL);
    assert_int_equal(held.begun, 0);
    csr.part[0].bytes = (const char *)rows;
    assert_int_equal(view_put_csr(model.views, &csr), -EINTR);
    assert_true(held.begun == 1 && held.ended == 0);
    held.answer = 0;
    assert_int_equal(view_put_csr(model.views, &csr), 0);
    assert_true(held.begun == 2 && held.ended == 1);
    free(list);
    list = read_whole(&model, VIEW_VALUES, 1, &n);
    assert_int_equal(n, 2 * sizeof(*values));
    assert_memory_equal(list, ((const uint16_t[]){8, 9}), n);
    free(list);
    close_images(&model);
}

/* What writes to the second frame as soon as commits are held, once. */
struct writer {
    const struct model *model;
    uint64_t offset;
    unsigned begun;
};

static int write_beside(void *context)
{
    struct writer *writer = context;
    const struct view_bytes bytes = {.offset = writer->offset, .bytes = "\6\0", .n = ITEM};
    size_t written;
    return writer->begun++ > 0 ? 0
                               : view_write(writer->model->views, VIEW_RAW, 1, &bytes, &written);
}

static void no_end(void *context)
{
    (void)context;
}

/* What of csr/ was not written is what others have written by then. */
static void what_is_written_beside_csr_stays(void **state)
{
    (void)state;
    struct model model;
    struct writer writer = {.model = &model};
    const struct view_hold hold = {write_beside, no_end, &writer};
    const uint16_t values[] = {7, 8, 9};
    struct view_csr csr = {
        .part = {[2] = {(const char *)values, sizeof(values)}}, .most_kept = MOST, .hold = &hold};
    size_t n;
    unsigned char *list = create_list(&model, &n), *found;
    free(list);
    assert_int_equal(view_put_csr(model.views, &csr), -EAGAIN); /* there are four elements */
    assert_true(writer.begun == 2 && csr.why[0] != '\0');
    found = read_whole(&model, VIEW_VALUES, 1, &n);
    assert_int_equal(n, ITEM);
    assert_memory_equal(found, "\6\0", n);
    free(found);
    const uint16_t more[] = {7, 8, 9, 10};
    csr.part[2] = (struct view_csr_part){(const char *)more, sizeof(more)};
    writer.begun = 0;
    assert_int_equal(view_put_csr(model.views, &csr), 0); /* which are the same */
    assert_int_equal(writer.begun, 2);
    found = read_whole(&model, VIEW_VALUES, 1, &n);
    assert_int_equal(n, ITEM);
    assert_memory_equal(found, "\12\0", n);
    free(found);
    close_images(&model);
}

/* Which is given back, whatever happens. */
static void decoding_waits_for_memory(void **state)
{
    (void)state;
    struct model model;
    size_t n;
    unsigned asked = 0, interrupted = 0;
    unsigned char *list = create_list(&model, &n);
    const struct view_content content = {.bytes = list, .n = n, .most_kept = MOST};
    views_memory_limit(MOST, 100);
    assert_int_equal(decoding_memory_take(1), 0);
    sfs_set_interrupt(is_asked_very_often, &asked); /* more often than for decoding them */
    assert_int_equal(view_put(model.views, VIEW_NPZ, 1, &content), -EINTR);
    sfs_set_interrupt(NULL, NULL);
    decoding_memory_give_back(1);
    for (int error = -EINTR; error; interrupted += error == -EINTR) {
        unsigned left = interrupted;
        sfs_set_interrupt(is_wanted_no_more, &left);
        error = view_put(model.views, VIEW_NPZ, 1, &content);
        assert_true(error == 0 || error == -EINTR);
        left = 0;
        assert_int_equal(decoding_memory_take(100), 0);
        sfs_set_interrupt(NULL, NULL);
        decoding_memory_give_back(100);
    }
    assert_true(interrupted > 0);
    check_second(&model, list, n);
    free(list);
    close_images(&model);
}

/* ---- Sorting ---- */

#define POINTS ((uint64_t)1 << 18)

static uint64_t mixed(uint64_t i)
{
    return i * 0x9e3779b97f4a7c15u ^ i >> 3;
}

/* Positions in some order; each once. */
static uint64_t position_in(unsigned order, uint64_t i)
{
    const uint64_t positions[] = {
        i,
        POINTS - i,
        i % 2 ? POINTS - i : i,
        i << 40 | 5,
        (POINTS - i) << 8,
        i * 0x9e3779b97f4a7c15u, /* odd: all of them differ */
        i / 2 + (i % 2 ? (uint64_t)1 << 63 : 0),
    };
    return positions[order];
}

static struct point *make_list(unsigned order, uint64_t n)
{
    struct point *point = allocate(n * sizeof(*point));
    for (uint64_t i = 0; i < n; i++) {
        uint64_t position = position_in(order, i);
        point[i] = (struct point){position, mixed(position)};
    }
    return point;
}

static void points_are_sorted_in_whatever_order_they_are(void **state)
{
    (void)state;
    for (unsigned order = 0; order < 7; order++) {
        for (uint64_t n = 0; n <= POINTS; n = n < 70 ? n + 1 : 5 * n + 3) {
            uint64_t sum = 0, twice = n > 1 ? random_below(n - 1) : 0;
            struct point *point = make_list(order, n);
            for (uint64_t i = 0; i < n; i++)
                sum += point[i].value;
            assert_int_equal(points_sort(point, n), 0);
            for (uint64_t i = 0; i < n; i++) {
                assert_true(i == 0 || point[i - 1].position < point[i].position);
                assert_true(point[i].value == mixed(point[i].position));
                sum -= point[i].value;
            }
            assert_true(sum == 0);
            if (n > 1) {
                point[twice] = point[n - 1];
                assert_int_equal(points_sort(point, n), -EINVAL);
            }
            free(point);
        }
    }
}

static void sorting_and_packing_points_is_interrupted(void **state)
{
    (void)state;
    struct points points;
    unsigned interrupted = 0;
    char *values = allocate(POINTS);
    for (int error = -EINTR; error; interrupted += error == -EINTR) {
        unsigned left = interrupted;
        struct point *point = make_list(1, POINTS);
        for (uint64_t i = 0; i < POINTS; i++)
            point[i].value = i;
        sfs_set_interrupt(is_wanted_no_more, &left);
        error = points_sort(point, POINTS);
        if (!error)
            error = points_make(point, POINTS, values, 1, &points);
        sfs_set_interrupt(NULL, NULL);
        assert_true(error == 0 || error == -EINTR);
        free(point);
    }
    assert_true(interrupted > 7 * POINTS / 65536); /* it goes through them more often */
    assert_int_equal(points.defined.n, 1);
    points_free(&points);
    free(values);
}

TEST_MAIN(cmocka_unit_test(holes_are_where_nothing_is_defined),
          cmocka_unit_test(behind_the_end_nothing_is_found),
          cmocka_unit_test(in_long_data_only_empty_frames_are_holes),
          cmocka_unit_test(allocated_bytes_are_those_of_defined_elements),
          cmocka_unit_test(arrays_can_be_cut_anywhere),
          cmocka_unit_test(csr_arrays_are_the_defined_elements),
          cmocka_unit_test(names_of_chunks_need_no_frames),
          cmocka_unit_test(frames_that_exceed_63_bits_are_not_counted_and_the_log_says_so),
          cmocka_unit_test(offsets_are_those_of_one_state),
          cmocka_unit_test(what_is_made_of_what_is_shown_follows_it),
          cmocka_unit_test(offsets_of_what_is_shown_follow_it),
          cmocka_unit_test(rows_that_become_one_run_are_joined_in_pieces),
          cmocka_unit_test(many_frames_are_counted_in_pieces),
          cmocka_unit_test(counting_ends_early_if_nobody_waits),
          cmocka_unit_test(tables_of_all_datasets_have_one_limit),
          cmocka_unit_test(selections_are_limited_too),
          cmocka_unit_test(frames_are_made_one_after_the_other),
          cmocka_unit_test(frames_that_nobody_reads_are_kept_in_half_of_the_limit),
          cmocka_unit_test(a_cbf_file_that_takes_more_than_most_is_made_all_the_same),
          cmocka_unit_test(texts_of_all_datasets_have_one_limit),
          cmocka_unit_test(sequences_are_limited_too),
          cmocka_unit_test(commits_are_held_when_points_are_decoded),
          cmocka_unit_test(commits_are_held_when_csr_was_compared),
          cmocka_unit_test(what_is_written_beside_csr_stays),
          cmocka_unit_test(decoding_waits_for_memory),
          cmocka_unit_test(points_are_sorted_in_whatever_order_they_are),
          cmocka_unit_test(sorting_and_packing_points_is_interrupted))
