/* Chunk indexes against the library: libhdf5 makes ordinary chunked datasets and says where each
 * chunk is; and files with sparse datasets, if there are any, whose descriptions say which chunks
 * must exist. */
#include "support.h"

#include <errno.h>
#include <glob.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "index_files.h"

#define UNLIMITED        H5S_UNLIMITED
#define FILE_NAME        "index.h5"
#define MOST_CHUNK_BYTES 1024
#define MOST_COMPARED    5000 /* of many chunks so many are compared, chosen at random */

/* ---- Comparing with libhdf5 ---- */

struct referee {
    hid_t file, dataset;
    struct opened opened;
    const struct grid *grid;
    uint64_t most_reads; /* of one lookup */
    size_t n;            /* chunks that an iteration met */
    uint64_t last[MAX_AXES];
};

static void begin(struct referee *r, const struct grid *grid)
{
    struct why why = {""};
    *r = (struct referee){.grid = grid};
    int error = open_index(FILE_NAME, header_of(FILE_NAME, "x"), &r->opened, &why);
    if (error)
        fail_msg("%s: %s: %s", grid->name, strerror(-error), why.text);
    r->file = H5Fopen(FILE_NAME, H5F_ACC_RDONLY, H5P_DEFAULT);
    r->dataset = H5Dopen2(r->file, "x", H5P_DEFAULT);
    assert_true(r->dataset >= 0);
}

static void end(struct referee *r)
{
    H5Dclose(r->dataset);
    H5Fclose(r->file);
    close_index(&r->opened);
}

static struct chunk_record look_up(struct referee *r, const uint64_t *scaled)
{
    struct chunk_record record;
    struct why why = {""};
    uint64_t before, after, bytes;
    store_counters(r->opened.store, &before, &bytes);
    int error = index_lookup(r->opened.index, scaled, &record, &why);
    store_counters(r->opened.store, &after, &bytes);
    if (error)
        fail_msg("%s: %s", strerror(-error), why.text);
    if (after - before > r->most_reads)
        r->most_reads = after - before;
    return record;
}

/* H5Dget_chunk_info_by_coord would do, but looks through all chunks for one. */
static void compare_record(struct referee *r, const uint64_t *scaled,
                           const struct chunk_record *record)
{
    hsize_t start[MAX_AXES], size = 0;
    uint32_t mask = 0;
    herr_t status;
    for (int i = 0; i < r->grid->rank; i++)
        start[i] = scaled[i] * r->grid->chunk_dims[i];
    H5E_BEGIN_TRY
    {
        status = H5Dget_chunk_storage_size(r->dataset, start, &size);
    }
    H5E_END_TRY
    assert_int_equal(record->exists, status >= 0 && size > 0);
    if (!record->exists)
        return;
    unsigned char expected[MOST_CHUNK_BYTES], found[MOST_CHUNK_BYTES];
    assert_int_equal(record->size, size);
    assert_in_range(size, 1, MOST_CHUNK_BYTES);
    assert_true(H5Dread_chunk(r->dataset, H5P_DEFAULT, start, &mask, expected) >= 0);
    assert_int_equal(store_read(r->opened.store, record->address, found, size), 0);
    assert_memory_equal(found, expected, size);
    assert_int_equal(record->filter_mask[0], mask);
}

/* Chunks beyond the max dims, and far away in an unlimited direction, do not exist. */
static void look_outside(struct referee *r)
{
    for (int axis = 0; axis < r->grid->rank; axis++) {
        uint64_t scaled[MAX_AXES] = {0};
        for (uint64_t far = UINT64_MAX; far > r->grid->dims[axis]; far /= 3) {
            scaled[axis] = far;
            assert_false(look_up(r, scaled).exists);
        }
    }
}

static int count_chunk(void *context, const uint64_t *scaled, const struct chunk_record *record)
{
    struct referee *r = context;
    struct chunk_record found = look_up(r, scaled);
    assert_memory_equal(&found, record, sizeof(found));
    if (r->opened.layout.index != INDEX_EXTENSIBLE_ARRAY) { /* whose order is another */
        int order = r->n == 0;
        for (int i = 0; order == 0 && i < r->grid->rank; i++)
            order = (scaled[i] > r->last[i]) - (scaled[i] < r->last[i]);
        assert_int_equal(order, 1);
    }
    for (int i = 0; i < r->grid->rank; i++)
        r->last[i] = scaled[i];
    r->n++;
    return 0;
}

static int end_walk(void *context, const uint64_t *scaled, const struct chunk_record *record)
{
    (void)context, (void)scaled, (void)record;
    return 17;
}

static int compare_positions(const void *a, const void *b, void *rank)
{
    const hsize_t *x = a, *y = b;
    for (int i = 0; i < *(int *)rank; i++)
        if (x[i] != y[i])
            return x[i] < y[i] ? -1 : 1;
    return 0;
}

/* Stores chunks at positions, finds them and their neighbours, and iterates. */
static void check(const struct grid *grid, hsize_t *positions, size_t n, uint64_t most_reads)
{
    int rank = grid->rank;
    size_t distinct = 0;
    struct referee r;
    make_dense(FILE_NAME, grid, positions, n);
    begin(&r, grid);
    for (size_t k = 0; k < n && k < MOST_COMPARED; k++) {
        size_t i = n > MOST_COMPARED ? (size_t)random_below(n) : k;
        for (int64_t step = -1; step <= 1; step++) {
            uint64_t scaled[MAX_AXES];
            bool inside = true;
            for (int axis = 0; axis < rank; axis++) {
                scaled[axis] = positions[i * (size_t)rank + (size_t)axis];
                scaled[axis] += axis == rank - 1 ? (uint64_t)step : 0;
                inside &= scaled[axis] * grid->chunk_dims[axis] < grid->dims[axis];
            }
            if (!inside)
                continue;
            struct chunk_record record = look_up(&r, scaled);
            assert_true(step != 0 || record.exists);
            compare_record(&r, scaled, &record);
        }
    }
    look_outside(&r);
    assert_in_range(r.most_reads, 0, most_reads);

    struct why why = {""};
    if (n > 0)
        qsort_r(positions, n, sizeof(*positions) * (size_t)rank, compare_positions, &rank);
    for (size_t i = 0; i < n; i++)
        distinct += i == 0 || compare_positions(&positions[(i - 1) * (size_t)rank],
                                                &positions[i * (size_t)rank], &rank) != 0;
    if (index_iterate(r.opened.index, count_chunk, &r, &why) != 0)
        fail_msg("%s: %s", grid->name, why.text);
    assert_int_equal(r.n, distinct);
    assert_int_equal(index_iterate(r.opened.index, end_walk, NULL, &why), n ? 17 : 0);
    end(&r);
}

static hsize_t *random_positions(const struct grid *grid, size_t n)
{
    hsize_t *positions = allocate(n * (size_t)grid->rank * sizeof(*positions));
    for (size_t i = 0; i < n * (size_t)grid->rank; i++) {
        int axis = (int)(i % (size_t)grid->rank);
        positions[i] = random_below((grid->dims[axis] - 1) / grid->chunk_dims[axis] + 1);
    }
    return positions;
}

/* ---- The arrays ---- */

static void test_fixed_array(void **state)
{
    (void)state;
    static const struct grid grids[] = {
        {"two", false, 1, {2}, {2}, {1}},
        {"one page, not paged", false, 1, {1024}, {1024}, {1}},
        {"two pages", true, 1, {1025}, {1025}, {1}},
        {"eight pages", false, 1, {8192}, {8192}, {1}},
        {"nine pages", true, 1, {8193}, {8193}, {1}},
        {"many pages", false, 1, {300000}, {300000}, {1}},
        {"many filtered pages", true, 1, {299999}, {299999}, {1}},
        {"two axes", true, 2, {31, 70}, {40, 70}, {4, 5}},
        {"three axes, paged", false, 3, {20, 21, 43}, {20, 40, 43}, {1, 2, 3}},
    };
    for (size_t i = 0; i < COUNT(grids); i++)
        for (int some = 0; some < 2; some++) {
            size_t n = some ? 300 : 1;
            hsize_t *positions = random_positions(&grids[i], n);
            if (some && grids[i].rank == 1) {
                /* the corners of pages */
                hsize_t last = grids[i].dims[0] - 1;
                const hsize_t corners[] = {0, 1023, 1024, 8191, 8192, last, last / 1024 * 1024};
                for (size_t k = 0; k < COUNT(corners); k++)
                    positions[k] = corners[k] < last ? corners[k] : last;
            }
            check(&grids[i], positions, n, 1);
            free(positions);
        }
}

static void test_full_fixed_array(void **state)
{
    (void)state;
    static const struct grid grid = {"full", true, 1, {300000}, {300000}, {1}};
    hsize_t *positions = allocate(grid.dims[0] * sizeof(*positions));
    for (hsize_t i = 0; i < grid.dims[0]; i++)
        positions[i] = i;
    check(&grid, positions, grid.dims[0], 1);
    free(positions);
}

/* Numbers of elements where the structure of an extensible array changes: first and last of the
 * index block, of the first and last data block of each super block, of their pages. */
static size_t corners(hsize_t limit, hsize_t *numbers)
{
    size_t n = 0;
    hsize_t first = 4;
    numbers[n++] = 0;
    numbers[n++] = 3;
    for (unsigned u = 0; first < limit; u++) {
        hsize_t blocks = (hsize_t)1 << u / 2, elements = (hsize_t)16 << (u + 1) / 2;
        const hsize_t at[] = {
            0,
            elements - 1,
            1023,
            1024,
            elements,
            blocks * elements - 1,
            elements / 2,
            (blocks - 1) * elements,
            (blocks - 1) * elements + 1023,
        };
        for (size_t k = 0; k < COUNT(at); k++)
            if (at[k] < blocks * elements && first + at[k] < limit)
                numbers[n++] = first + at[k];
        first += blocks * elements;
    }
    numbers[n++] = limit - 1;
    return n;
}

static void check_extensible(const struct grid *grid, int unlimited, bool all_corners)
{
    hsize_t others = 1, numbers[400];
    for (int i = 0; i < grid->rank; i++)
        if (i != unlimited)
            others *= (grid->max_dims[i] - 1) / grid->chunk_dims[i] + 1;
    hsize_t along = (grid->dims[unlimited] - 1) / grid->chunk_dims[unlimited] + 1;
    size_t n = corners(others * along, numbers);
    if (!all_corners) {
        numbers[0] = numbers[random_below(n)];
        n = 1;
    }
    hsize_t *positions = allocate(n * (size_t)grid->rank * sizeof(*positions));
    for (size_t i = 0; i < n; i++) {
        hsize_t rest = numbers[i], *position = &positions[i * (size_t)grid->rank];
        for (int axis = grid->rank - 1; axis >= 0; axis--)
            if (axis != unlimited) {
                hsize_t chunks = (grid->max_dims[axis] - 1) / grid->chunk_dims[axis] + 1;
                position[axis] = rest % chunks;
                rest /= chunks;
            }
        position[unlimited] = rest;
    }
    check(grid, positions, n, 2);
    free(positions);
}

static void test_extensible_array(void **state)
{
    (void)state;
    static const struct {
        struct grid grid;
        int unlimited;
    } cases[] = {
        {{"in the index block", false, 1, {4}, {UNLIMITED}, {1}}, 0},
        {{"small", true, 1, {300}, {UNLIMITED}, {1}}, 0},
        {{"long", false, 1, {2000000}, {UNLIMITED}, {1}}, 0},
        {{"long and filtered", true, 1, {2000000}, {UNLIMITED}, {1}}, 0},
        {{"second axis", false, 2, {3, 900000}, {3, UNLIMITED}, {1, 1}}, 1},
        {{"middle axis", true, 3, {4, 7000, 10}, {5, UNLIMITED, 11}, {2, 2, 3}}, 1},
    };
    for (size_t i = 0; i < COUNT(cases); i++) {
        check_extensible(&cases[i].grid, cases[i].unlimited, true);
        for (int times = 0; times < 5; times++)
            check_extensible(&cases[i].grid, cases[i].unlimited, false);
    }
}

static void test_full_extensible_array(void **state)
{
    (void)state;
    static const struct grid grid = {"full", false, 1, {140000}, {UNLIMITED}, {1}};
    hsize_t *positions = allocate(grid.dims[0] * sizeof(*positions));
    for (hsize_t i = 0; i < grid.dims[0]; i++)
        positions[i] = i;
    check(&grid, positions, grid.dims[0], 2);
    free(positions);
}

/* ---- The B-tree ---- */

static void test_btree2(void **state)
{
    (void)state;
    static const struct {
        struct grid grid;
        size_t n;
        uint64_t most_reads; /* levels below the root */
    } cases[] = {
        {{"one", false, 2, {7, 7}, {UNLIMITED, UNLIMITED}, {2, 2}}, 1, 0},
        {{"leaf", true, 2, {70, 70}, {UNLIMITED, UNLIMITED}, {2, 2}}, 60, 0},
        {{"one level", false, 2, {300, 900}, {UNLIMITED, UNLIMITED}, {2, 2}}, 2000, 1},
        {{"two levels", false, 2, {700, 900}, {UNLIMITED, UNLIMITED}, {1, 2}}, 20000, 2},
        {{"filtered", true, 3, {70, 90, 30}, {UNLIMITED, 100, UNLIMITED}, {1, 2, 1}}, 20000, 2},
        {{"three levels", true, 4, {99, 99, 99, 9}, {UNLIMITED, UNLIMITED, 99, 9}, {1, 1, 1, 9}},
         100000,
         3},
    };
    for (size_t i = 0; i < COUNT(cases); i++) {
        hsize_t *positions = random_positions(&cases[i].grid, cases[i].n);
        check(&cases[i].grid, positions, cases[i].n, cases[i].most_reads);
        free(positions);
    }
}

/* ---- Nothing stored ---- */

static void test_empty(void **state)
{
    (void)state;
    static const struct grid grids[] = {
        {"fixed array", false, 1, {2000}, {2000}, {1}},
        {"extensible array", true, 1, {300}, {UNLIMITED}, {1}},
        {"B-tree", false, 2, {7, 7}, {UNLIMITED, UNLIMITED}, {2, 2}},
    };
    for (size_t i = 0; i < COUNT(grids); i++)
        check(&grids[i], NULL, 0, 0);
}

/* An axis that can never have an element leaves no room for chunks, whatever the index says. */
static void test_no_room(void **state)
{
    (void)state;
    static const struct grid grid = {"row", false, 2, {3, 90}, {3, UNLIMITED}, {1, 1}};
    static const uint64_t max_dims[] = {0, SFS_UNLIMITED};
    const hsize_t positions[] = {0, 5, 1, 70};
    const uint64_t scaled[] = {0, 5};
    struct opened opened;
    struct index *index;
    struct chunk_record record;
    struct why why = {""};
    make_dense(FILE_NAME, &grid, positions, 2);
    assert_int_equal(open_index(FILE_NAME, header_of(FILE_NAME, "x"), &opened, &why), 0);
    assert_int_equal(index_open(opened.store, &opened.superblock, &opened.layout, &opened.format,
                                max_dims, &index, &why),
                     0);
    assert_int_equal(index_iterate(index, end_walk, NULL, &why), 0);
    assert_int_equal(index_lookup(index, scaled, &record, &why), 0);
    assert_false(record.exists);
    index_close(index);
    close_index(&opened);
}

/* ---- Many threads ---- */

struct worker {
    struct opened *opened;
    const hsize_t *positions;
    size_t n;
    uint64_t seed;
    bool failed;
};

static void *look_up_at_random(void *context)
{
    struct worker *worker = context;
    random_seed(worker->seed);
    for (int i = 0; i < 5000; i++) {
        struct chunk_record record;
        struct why why;
        size_t at = (size_t)random_below(worker->n);
        uint64_t scaled[2] = {worker->positions[2 * at], worker->positions[2 * at + 1]};
        if (index_lookup(worker->opened->index, scaled, &record, &why) != 0 || !record.exists)
            worker->failed = true;
    }
    return NULL;
}

static void test_threads(void **state)
{
    (void)state;
    static const struct grid grids[] = {
        {"fixed array", false, 2, {300, 200}, {300, 200}, {1, 1}},
        {"extensible array", false, 2, {30000, 20}, {UNLIMITED, 20}, {1, 1}},
        {"B-tree", false, 2, {300, 200}, {UNLIMITED, UNLIMITED}, {1, 1}},
    };
    for (size_t i = 0; i < COUNT(grids); i++) {
        struct opened opened;
        struct why why;
        size_t n = 3000;
        hsize_t *positions = random_positions(&grids[i], n);
        make_dense(FILE_NAME, &grids[i], positions, n);
        assert_int_equal(open_index(FILE_NAME, header_of(FILE_NAME, "x"), &opened, &why), 0);
        pthread_t threads[4];
        struct worker workers[COUNT(threads)];
        for (size_t k = 0; k < COUNT(threads); k++) {
            workers[k] = (struct worker){&opened, positions, n, random_next(), false};
            start_thread(&threads[k], look_up_at_random, &workers[k]);
        }
        for (size_t k = 0; k < COUNT(threads); k++) {
            pthread_join(threads[k], NULL);
            assert_false(workers[k].failed);
        }
        close_index(&opened);
        free(positions);
    }
}

/* ---- Sparse datasets ---- */

static char *read_text(const char *path)
{
    FILE *file = fopen(path, "r");
    assert_non_null(file);
    char *text = allocate(1 << 20);
    size_t n = fread(text, 1, (1 << 20) - 1, file);
    text[n] = '\0';
    fclose(file);
    return text;
}

/* Numbers up to the next bracket that closes; text moves behind it. */
static int read_numbers(const char **text, uint64_t *numbers)
{
    int n = 0;
    while (**text != ']') {
        char *rest;
        numbers[n] = strtoull(*text, &rest, 10);
        if (rest == *text)
            rest++; /* a comma, or null */
        else
            n++;
        *text = rest;
        assert_in_range(n, 0, MAX_AXES);
    }
    ++*text;
    return n;
}

/* What the description says is defined in the chunk at scaled. */
static uint64_t count_defined(const char *defined, const uint64_t *chunk_dims,
                              const uint64_t *scaled)
{
    uint64_t n = 0;
    while ((defined = strstr(defined, "[["))) {
        uint64_t position[MAX_AXES];
        bool inside = true;
        defined += 2;
        int rank = read_numbers(&defined, position);
        for (int i = 0; i < rank; i++)
            inside &= position[i] / chunk_dims[i] == scaled[i];
        n += inside;
    }
    return n;
}

struct description {
    const char *path;
    const char *defined; /* where the list of defined elements begins */
    struct opened *opened;
    uint64_t n_defined; /* in the chunks that were met */
};

static int check_sparse_chunk(void *context, const uint64_t *scaled,
                              const struct chunk_record *record)
{
    struct description *d = context;
    const struct chunk_record_format *format = &d->opened->format;
    uint64_t n = count_defined(d->defined, d->opened->layout.chunk_dims, scaled);
    uint64_t values = format->form == CHUNK_STRUCTURED_FILTERED
                          ? record->unfiltered_size[1]
                          : chunk_record_section_size(format, record, 1);
    assert_int_equal(values, n * d->opened->layout.element_size);
    assert_in_range(chunk_record_section_size(format, record, 0), 1, record->size);
    d->n_defined += n;

    struct chunk_record found;
    struct why why = {""};
    if (index_lookup(d->opened->index, scaled, &found, &why) != 0)
        fail_msg("%s: %s", d->path, why.text);
    assert_memory_equal(&found, record, sizeof(found));
    return 0;
}

/* The chunks that exist hold as many elements as are defined in their part of the dataset, and all
 * of them together. */
static void check_sparse(const char *path)
{
    char name[4096];
    snprintf(name, sizeof(name), "%.*s.json", (int)(strlen(path) - 3), path);
    char *json = read_text(name);
    struct opened o;
    struct why why = {""};
    int error = open_index(path, header_of(path, "sparse"), &o, &why);
    if (error)
        fail_msg("%s: %s: %s", path, strerror(-error), why.text);

    uint64_t chunk_dims[MAX_AXES];
    const char *at = strstr(strstr(json, "\"chunks\""), "[") + 1;
    assert_int_equal(read_numbers(&at, chunk_dims), o.layout.rank);
    assert_memory_equal(chunk_dims, o.layout.chunk_dims, sizeof(uint64_t) * (size_t)o.layout.rank);
    struct description d = {path, strstr(json, "\"defined\""), &o, 0};
    error = index_iterate(o.index, check_sparse_chunk, &d, &why);
    if (error)
        fail_msg("%s: %s", path, why.text);
    uint64_t n_defined = strtoull(strstr(json, "\"n_defined\":") + 12, NULL, 10);
    assert_int_equal(d.n_defined, n_defined);
    close_index(&o);
    free(json);
}

static void test_sparse(void **state)
{
    (void)state;
    const char *folder = getenv("SPARSEFS_TEST_DATA");
    char pattern[4096];
    glob_t found;
    snprintf(pattern, sizeof(pattern), "%s/prototype/*.h5", folder ? folder : EXTRA_DATA);
    if (glob(pattern, 0, NULL, &found) != 0)
        skip();
    for (size_t i = 0; i < found.gl_pathc; i++)
        check_sparse(found.gl_pathv[i]);
    globfree(&found);
}

TEST_MAIN(cmocka_unit_test(test_fixed_array), cmocka_unit_test(test_full_fixed_array),
          cmocka_unit_test(test_extensible_array), cmocka_unit_test(test_full_extensible_array),
          cmocka_unit_test(test_btree2), cmocka_unit_test(test_empty),
          cmocka_unit_test(test_no_room), cmocka_unit_test(test_threads),
          cmocka_unit_test(test_sparse))
