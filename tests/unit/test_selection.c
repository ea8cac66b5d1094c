/* Encoded selections against H5Sencode and H5Sdecode, and against bitmaps where the released
 * library does not write a version. */
#include "support.h"

#include <errno.h>
#include <hdf5.h>
#include <stdlib.h>
#include <string.h>

#include "selection/selection.h"
#include "sparsefs/sparsefs.h"

/* Dims whose product libhdf5 can hold: small ones, at most one large one, seldom 0. */
static void random_dims(int rank, hsize_t *dims)
{
    for (int i = 0; i < rank; i++)
        dims[i] = random_below(20) == 0 ? 0 : random_between(1, rank > 8 ? 2 : 60);
    if (rank > 0 && rank <= 3 && random_below(2))
        dims[random_below((uint64_t)rank)] = random_between((uint64_t)1 << 32, (uint64_t)1 << 50);
}

static hid_t create_space(int rank, const hsize_t *dims)
{
    hid_t space = rank == 0 ? H5Screate(H5S_SCALAR) : H5Screate_simple(rank, dims, NULL);
    assert_true(space >= 0);
    return space;
}

static void encode(int rank, const hsize_t *dims, void **encoded, size_t *n)
{
    uint64_t own_dims[SFS_MAX_RANK];
    for (int i = 0; i < rank; i++)
        own_dims[i] = dims[i];
    assert_int_equal(selection_encode_all(rank, own_dims, encoded, n), 0);
}

static void all_is_encoded_as_libhdf5_does(void **state)
{
    (void)state;
    for (int round = 0; round < 3000; round++) {
        int rank = round % (SFS_MAX_RANK + 1);
        hsize_t dims[SFS_MAX_RANK];
        random_dims(rank, dims);
        hid_t space = create_space(rank, dims);
        size_t expected_n = 0, n;
        assert_true(H5Sencode(space, NULL, &expected_n) >= 0);
        void *expected = allocate(expected_n), *encoded;
        assert_true(H5Sencode(space, expected, &expected_n) >= 0);

        encode(rank, dims, &encoded, &n);
        assert_int_equal(n, expected_n);
        assert_memory_equal(encoded, expected, n);
        free(encoded);
        free(expected);
        H5Sclose(space);
    }
}

static void libhdf5_decodes_everything_selected_in_the_same_extent(void **state)
{
    (void)state;
    for (int round = 0; round < 1000; round++) {
        int rank = round % (SFS_MAX_RANK + 1);
        hsize_t dims[SFS_MAX_RANK];
        void *encoded;
        size_t n;
        random_dims(rank, dims);
        encode(rank, dims, &encoded, &n);
        hid_t decoded = H5Sdecode(encoded), space = create_space(rank, dims);
        assert_true(decoded >= 0);
        assert_int_equal(H5Sextent_equal(decoded, space), 1);
        assert_int_equal(H5Sget_select_type(decoded), H5S_SEL_ALL);
        assert_int_equal(H5Sget_select_npoints(decoded), H5Sget_simple_extent_npoints(space));
        H5Sclose(space);
        H5Sclose(decoded);
        free(encoded);
    }
}

/* ---- What a selection holds, in its own order ---- */

struct positions {
    int rank;
    uint64_t dims[SFS_MAX_RANK], elements;
    uint64_t *list; /* may name a position twice */
    size_t n;
};

static uint64_t position_of(const struct positions *p, const hsize_t *coordinates)
{
    uint64_t position = 0;
    for (int i = 0; i < p->rank; i++)
        position = position * p->dims[i] + coordinates[i];
    return position;
}

static void positions_init(struct positions *p, int rank, const hsize_t *dims)
{
    *p = (struct positions){.rank = rank, .elements = 1};
    for (int i = 0; i < rank; i++)
        p->elements *= p->dims[i] = dims[i];
}

static void add_points(struct positions *p, hid_t space)
{
    size_t rank = (size_t)p->rank;
    hsize_t *points = allocate(p->n * rank * sizeof(*points));
    assert_true(H5Sget_select_elem_pointlist(space, 0, p->n, points) >= 0);
    for (size_t i = 0; i < p->n; i++)
        p->list[i] = position_of(p, points + i * rank);
    free(points);
}

static bool is_in_block(const struct positions *p, uint64_t position, const hsize_t *block)
{
    bool inside = true;
    for (int i = p->rank - 1; i >= 0; i--) {
        uint64_t coordinate = position % p->dims[i];
        position /= p->dims[i];
        inside &= coordinate >= block[i] && coordinate <= block[p->rank + i];
    }
    return inside;
}

/* The union of blocks in row-major order. */
static void add_blocks(struct positions *p, hid_t space)
{
    hssize_t n_blocks = H5Sget_select_hyper_nblocks(space);
    if (n_blocks == 0) { /* 1.10.6 does not make it "none" */
        assert_int_equal(p->n, 0);
        return;
    }
    assert_true(n_blocks > 0);
    size_t numbers = 2 * (size_t)p->rank, n = 0;
    hsize_t *blocks = allocate((size_t)n_blocks * numbers * sizeof(*blocks));
    char *bits = allocate(p->elements);
    memset(bits, 0, p->elements);
    assert_true(H5Sget_select_hyper_blocklist(space, 0, (hsize_t)n_blocks, blocks) >= 0);
    for (hssize_t i = 0; i < n_blocks; i++) {
        const hsize_t *block = blocks + (size_t)i * numbers;
        uint64_t last = position_of(p, block + p->rank);
        for (uint64_t at = position_of(p, block); at <= last; at++)
            bits[at] |= is_in_block(p, at, block);
    }
    for (uint64_t at = 0; at < p->elements; at++)
        if (bits[at]) {
            assert_true(n < p->n);
            p->list[n++] = at;
        }
    assert_int_equal(n, p->n);
    free(bits);
    free(blocks);
}

/* What libhdf5 says of it. (H5Diterate of 1.10.8 divides by zero on some selections.) */
static void positions_of_space(struct positions *p, hid_t space, int rank, const hsize_t *dims)
{
    positions_init(p, rank, dims);
    hssize_t n = H5Sget_select_npoints(space);
    assert_true(n >= 0);
    p->n = (size_t)n;
    p->list = allocate(p->n * sizeof(*p->list));
    H5S_sel_type type = H5Sget_select_type(space);
    if (type == H5S_SEL_POINTS)
        add_points(p, space);
    else if (type == H5S_SEL_HYPERSLABS)
        add_blocks(p, space);
    else
        for (size_t i = 0; i < p->n; i++)
            p->list[i] = i;
}

/* The same set, in row-major order and without repetitions, by a bitmap. */
static size_t sorted(const struct positions *p, uint64_t *list)
{
    char *bits = allocate(p->elements);
    memset(bits, 0, p->elements);
    for (size_t i = 0; i < p->n; i++)
        bits[p->list[i]] = 1;
    size_t n = 0;
    for (uint64_t i = 0; i < p->elements; i++)
        if (bits[i])
            list[n++] = i;
    free(bits);
    return n;
}

static void expect_runs(const struct positions *p, const struct runs *runs)
{
    uint64_t *list = allocate(p->n * sizeof(*list));
    size_t n = sorted(p, list), k = 0;
    assert_int_equal(runs->elements, n);
    for (size_t i = 0; i < runs->n; i++) {
        struct run run = runs_at(runs, i);
        assert_true(run.first < run.last && (i == 0 || runs_at(runs, i - 1).last < run.first));
        assert_int_equal(run.index, k);
        for (uint64_t at = run.first; at < run.last; at++)
            assert_int_equal(at, list[k++]);
    }
    free(list);
}

/* Decodes a copy that is exactly as long as said, so that sanitizers see what is read behind it. */
static int decode_copy(const void *encoded, size_t n, int rank, const uint64_t *dims,
                       struct selection *selection, const char **why)
{
    void *copy = allocate(n);
    memcpy(copy, encoded, n);
    int error = selection_decode(&(struct sfs_encoded){copy, n}, rank, dims, (size_t)1 << 24,
                                 selection, why);
    free(copy);
    return error;
}

/* That those of a list of points that lie in some of its runs can be decoded, all of them, and in
 * their order. Other selections have no such list. */
static void expect_kept(const struct positions *p, const void *encoded, size_t n,
                        const struct runs *runs)
{
    struct runs some = {0};
    struct selection selection;
    const char *why = "";
    void *kept;
    size_t n_kept, k = 0;
    for (size_t i = 0; i < runs->n; i++)
        if (random_below(2))
            assert_int_equal(runs_append(&some, runs_at(runs, i).first, runs_at(runs, i).last), 0);
    assert_int_equal(selection_keep_points(&(struct sfs_encoded){encoded, n}, p->rank, p->dims,
                                           &some, &kept, &n_kept),
                     0);
    if (kept) {
        uint64_t *list = allocate(p->n * sizeof(*list));
        for (size_t i = 0; i < p->n; i++)
            if (runs_contain(&some, p->list[i]))
                list[k++] = p->list[i];
        assert_int_equal(decode_copy(kept, n_kept, p->rank, p->dims, &selection, &why), 0);
        assert_true(runs_equal(&selection.runs, &some));
        assert_int_equal(selection.values, k);
        for (size_t i = 0; i < selection.runs.elements && selection.order; i++)
            assert_int_equal(runs_rank(&selection.runs, list[selection.order[i]]), i);
        selection_free(&selection);
        free(list);
    }
    free(kept);
    runs_free(&some);
}

/* That points out of order, however many, are decoded with memory for as many runs as there can be. */
static void expect_order(const struct positions *p, const void *encoded, size_t n,
                         const struct selection *expected)
{
    struct selection selection;
    const char *why = "";
    size_t most = (p->elements / 2 + 1) * sizeof(struct sfs_interval);
    assert_int_equal(selection_decode(&(struct sfs_encoded){encoded, n}, p->rank, p->dims, most,
                                      &selection, &why),
                     0);
    assert_true(runs_equal(&selection.runs, &expected->runs));
    assert_int_equal(selection.values, expected->values);
    assert_memory_equal(selection.order, expected->order,
                        selection.runs.elements * sizeof(*selection.order));
    selection_free(&selection);
}

/* That the encoded selection holds these positions, with the values where they belong. */
static void expect_decoded(const struct positions *p, const void *encoded, size_t n)
{
    struct selection selection;
    const char *why = "";
    int error = decode_copy(encoded, n, p->rank, p->dims, &selection, &why);
    if (error < 0)
        fail_msg("%d: %s", error, why);
    expect_runs(p, &selection.runs);
    bool row_major = true;
    uint64_t *last = allocate(p->elements * sizeof(*last));
    for (size_t i = 0; i < p->n; i++) {
        row_major &= i == 0 || p->list[i - 1] < p->list[i];
        last[p->list[i]] = i;
    }
    assert_int_equal(selection.values, p->n);
    assert_int_equal(selection.order == NULL, row_major);
    size_t k = 0;
    for (size_t i = 0; i < selection.runs.n && selection.order; i++) {
        struct run run = runs_at(&selection.runs, i);
        for (uint64_t at = run.first; at < run.last; at++)
            assert_int_equal(selection.order[k++], last[at]);
    }
    free(last);
    if (selection.order)
        expect_order(p, encoded, n, &selection);
    expect_kept(p, encoded, n, &selection.runs);
    selection_free(&selection);
}

/* ---- Selections made by libhdf5 ---- */

static void small_dims(int rank, hsize_t *dims)
{
    uint64_t elements = 1, limit = random_below(3) == 0 ? 200 : 3000;
    for (int i = 0; i < rank; i++) {
        uint64_t most = limit / elements < 60 ? limit / elements : 60;
        dims[i] = random_below(6) == 0 || (rank > 8 && i % 5) ? 1 : random_between(1, most);
        elements *= dims[i];
    }
}

static void select_hyperslab(hid_t space, int rank, const hsize_t *dims, H5S_seloper_t operation)
{
    hsize_t start[SFS_MAX_RANK], stride[SFS_MAX_RANK], count[SFS_MAX_RANK], block[SFS_MAX_RANK];
    bool one_block = random_below(2);
    for (int i = 0; i < rank; i++) {
        start[i] = random_below(3) ? random_below(dims[i]) : 0;
        uint64_t room = dims[i] - start[i];
        block[i] = one_block ? random_between(1, room) : random_between(1, room < 4 ? room : 4);
        if (random_below(5) == 0)
            block[i] = room;
        stride[i] = block[i] + random_below(4);
        uint64_t most = (room - block[i]) / stride[i] + 1;
        count[i] = one_block ? 1 : random_between(1, most);
    }
    assert_true(H5Sselect_hyperslab(space, operation, start, stride, count, block) >= 0);
}

static void select_points(hid_t space, int rank, const hsize_t *dims)
{
    size_t n = random_between(1, random_below(4) ? 20 : 900);
    hsize_t *points = allocate(n * (size_t)rank * sizeof(*points));
    bool ascending = random_below(3) == 0;
    uint64_t elements = 1, at = 0;
    for (int i = 0; i < rank; i++)
        elements *= dims[i];
    for (size_t k = 0; k < n; k++) {
        at = ascending ? at + (k > 0) * random_between(1, 3) : random_below(elements);
        if (at >= elements)
            n = k;
        uint64_t rest = at;
        for (int i = rank - 1; i >= 0 && k < n; i--) {
            points[k * (size_t)rank + (size_t)i] = rest % dims[i];
            rest /= dims[i];
        }
    }
    assert_true(H5Sselect_elements(space, H5S_SELECT_SET, n, points) >= 0);
    free(points);
}

/* libhdf5 1.10.8 sometimes takes a union for a regular selection that it is not, and then its list
 * of blocks is not what it counted, or even leaves the extent. */
static bool is_sound(hid_t space, int rank, const hsize_t *dims)
{
    if (H5Sget_select_type(space) != H5S_SEL_HYPERSLABS)
        return true;
    hssize_t n = H5Sget_select_hyper_nblocks(space);
    if (n == 0)
        return H5Sget_select_npoints(space) == 0;
    hsize_t *blocks = allocate((size_t)n * 2 * (size_t)rank * sizeof(*blocks)), elements = 0;
    assert_true(H5Sget_select_hyper_blocklist(space, 0, (hsize_t)n, blocks) >= 0);
    struct positions p;
    positions_init(&p, rank, dims);
    char *bits = allocate(p.elements);
    memset(bits, 0, p.elements);
    bool inside = true;
    for (hssize_t i = 0; i < n; i++) {
        const hsize_t *start = blocks + i * 2 * rank, *end = start + rank;
        for (int axis = 0; axis < rank; axis++)
            inside &= end[axis] < dims[axis];
        for (uint64_t at = 0; at < p.elements && inside; at++)
            if (is_in_block(&p, at, start) && !bits[at]) {
                bits[at] = 1;
                elements++;
            }
    }
    free(bits);
    free(blocks);
    return inside && elements == (hsize_t)H5Sget_select_npoints(space);
}

/* libhdf5 1.14.5 writes outside of its memory where points of 32 dims are selected; 1.10 does not.
 */
static bool selects_points(int rank)
{
    unsigned major, minor, release;
    assert_true(H5get_libversion(&major, &minor, &release) >= 0);
    return rank < SFS_MAX_RANK || (major == 1 && minor < 12);
}

/* H5S_SELECT_AND is left out: with some regular selections libhdf5 1.10.8 takes all memory in it.
 */
static hid_t random_selection(int rank, hsize_t *dims)
{
    static const H5S_seloper_t operations[] = {H5S_SELECT_OR, H5S_SELECT_OR, H5S_SELECT_XOR,
                                               H5S_SELECT_NOTB, H5S_SELECT_NOTA};
    small_dims(rank, dims);
    hid_t space = create_space(rank, dims);
    switch (random_below(selects_points(rank) ? 10 : 8)) {
    case 0:
        assert_true(H5Sselect_all(space) >= 0);
        break;
    case 1:
        assert_true(H5Sselect_none(space) >= 0);
        break;
    case 8:
    case 9:
        select_points(space, rank, dims);
        break;
    default:
        select_hyperslab(space, rank, dims, H5S_SELECT_SET);
        for (uint64_t n = random_below(8); n > 0; n--)
            select_hyperslab(space, rank, dims, operations[random_below(COUNT(operations))]);
        if (!is_sound(space, rank, dims)) {
            H5Sclose(space);
            return random_selection(rank, dims);
        }
    }
    return space;
}

static unsigned char *encode_space(hid_t space, size_t *n)
{
    assert_true(H5Sencode(space, NULL, n) >= 0);
    unsigned char *encoded = allocate(*n);
    assert_true(H5Sencode(space, encoded, n) >= 0);
    return encoded;
}

static int random_rank(int round)
{
    return round % 50 == 49 ? SFS_MAX_RANK : 1 + round % 4;
}

static void what_libhdf5_encodes_is_decoded(void **state)
{
    (void)state;
    for (int round = 0; round < 6000; round++) {
        int rank = random_rank(round);
        hsize_t dims[SFS_MAX_RANK];
        hid_t space = random_selection(rank, dims);
        struct positions p;
        size_t n;
        positions_of_space(&p, space, rank, dims);
        unsigned char *encoded = encode_space(space, &n);
        expect_decoded(&p, encoded, n);
        free(encoded);
        free(p.list);
        H5Sclose(space);
    }
}

static void runs_of_positions(const struct positions *p, struct runs *runs)
{
    uint64_t *list = allocate(p->n * sizeof(*list));
    size_t n = sorted(p, list);
    runs_init(runs);
    for (size_t i = 0; i < n; i++)
        assert_int_equal(runs_append(runs, list[i], list[i] + 1), 0);
    free(list);
}

static bool is_points(const unsigned char *encoded, int rank)
{
    return encoded[15 + 16 * rank] == 1;
}

static bool is_hyperslabs(const unsigned char *encoded, int rank, int version)
{
    const unsigned char *selection = encoded + 15 + 16 * rank;
    return selection[0] == 2 && selection[4] == version;
}

/* libhdf5 1.10.6 takes "none" for "all", also where it has encoded it. */
static bool libhdf5_decodes_none(void)
{
    const hsize_t dim = 3;
    unsigned char encoded[200];
    size_t n = sizeof(encoded);
    hid_t space = H5Screate_simple(1, &dim, NULL);
    assert_true(H5Sselect_none(space) >= 0 && H5Sencode(space, encoded, &n) >= 0);
    hid_t decoded = H5Sdecode(encoded);
    bool right = decoded >= 0 && H5Sget_select_npoints(decoded) == 0;
    H5Sclose(decoded);
    H5Sclose(space);
    return right;
}

/* libhdf5 decodes what we encode to the same extent and set, which is sorted. False if it cannot
 * say what is in the set, though it knows how much it is. */
static bool libhdf5_decodes(const struct positions *set, hid_t like, const void *encoded)
{
    if (is_points(encoded, set->rank) && !selects_points(set->rank))
        return true;
    hid_t space = H5Sdecode(encoded);
    assert_true(space >= 0);
    assert_int_equal(H5Sextent_equal(space, like), 1);
    if (set->n == 0 && !libhdf5_decodes_none()) {
        H5Sclose(space);
        return true;
    }
    assert_int_equal(H5Sget_select_npoints(space), set->n);
    struct positions decoded;
    hsize_t dims[SFS_MAX_RANK];
    for (int i = 0; i < set->rank; i++)
        dims[i] = set->dims[i];
    bool sound = is_sound(space, set->rank, dims);
    if (sound) {
        positions_of_space(&decoded, space, set->rank, dims);
        assert_memory_equal(decoded.list, set->list, set->n * sizeof(*set->list));
        free(decoded.list);
    }
    H5Sclose(space);
    return sound;
}

static void what_is_encoded_comes_back(void **state)
{
    (void)state;
    unsigned regular = 0, points = 0, like_libhdf5 = 0, unsound = 0;
    for (int round = 0; round < 6000; round++) {
        int rank = random_rank(round);
        hsize_t dims[SFS_MAX_RANK];
        hid_t space = random_selection(rank, dims);
        struct positions p, set;
        struct runs runs;
        size_t n[4], expected_n;
        void *encoded[4];
        positions_of_space(&p, space, rank, dims);
        runs_of_positions(&p, &runs);
        set = p;
        set.list = allocate(p.n * sizeof(*set.list));
        set.n = sorted(&p, set.list);
        for (int form = SELECTION_SMALLEST; form <= SELECTION_LIBHDF5_1_10_POINTS; form++) {
            assert_int_equal(selection_encode(rank, p.dims, NULL, &runs, (enum selection_form)form,
                                              &encoded[form], &n[form]),
                             0);
            expect_decoded(&set, encoded[form], n[form]);
        }
        assert_true(n[SELECTION_SMALLEST] <= n[SELECTION_LIBHDF5_1_10]);
        assert_true(n[SELECTION_LIBHDF5_1_10] <= n[SELECTION_VERSION_1]);
        unsound += !libhdf5_decodes(&set, space, encoded[SELECTION_LIBHDF5_1_10]);
        unsound += !libhdf5_decodes(&set, space, encoded[SELECTION_VERSION_1]);
        unsound += !libhdf5_decodes(&set, space, encoded[SELECTION_LIBHDF5_1_10_POINTS]);
        assert_true(n[SELECTION_LIBHDF5_1_10_POINTS] <= n[SELECTION_LIBHDF5_1_10]);
        points += n[SELECTION_LIBHDF5_1_10_POINTS] < n[SELECTION_LIBHDF5_1_10];
        regular += is_hyperslabs(encoded[SELECTION_LIBHDF5_1_10], rank, 2);

        unsigned char *expected = encode_space(space, &expected_n);
        /* libhdf5 sometimes leaves blocks apart that touch each other: then ours are fewer bytes.
         */
        assert_true(n[SELECTION_VERSION_1] <= expected_n || !is_hyperslabs(expected, rank, 1));
        if (is_hyperslabs(expected, rank, 1) && set.n < set.elements &&
            n[SELECTION_VERSION_1] == expected_n) {
            assert_memory_equal(encoded[SELECTION_VERSION_1], expected, expected_n);
            like_libhdf5++;
        }
        free(expected);
        for (int form = 0; form < 4; form++)
            free(encoded[form]);
        runs_free(&runs);
        free(set.list);
        free(p.list);
        H5Sclose(space);
    }
    assert_true(regular > 50 && points > 50 && like_libhdf5 > 1000 && unsound < 90);
}

/* ---- Encodings that the released library does not write: made here ---- */

struct bytes {
    unsigned char data[1 << 21];
    size_t n;
};

static void put(struct bytes *bytes, uint64_t value, int width)
{
    for (int i = 0; i < width; i++)
        bytes->data[bytes->n++] = (unsigned char)(value >> (8 * i));
}

static void put_head(struct bytes *bytes, const struct positions *p, int extent_version,
                     bool max_dims, unsigned kind, unsigned version)
{
    size_t head = extent_version == 1 ? 8 : 4;
    bytes->n = 0;
    put(bytes, 0x080001, 3);
    put(bytes, head + 8 * (size_t)p->rank * (max_dims ? 2 : 1), 4);
    put(bytes, (unsigned)extent_version, 1);
    put(bytes, (unsigned)p->rank, 1);
    put(bytes, max_dims, 1);
    put(bytes, extent_version == 2, (int)head - 3);
    for (int i = 0; i < p->rank; i++)
        put(bytes, p->dims[i], 8);
    for (int i = 0; i < p->rank && max_dims; i++) /* any will do */
        put(bytes, random_below(2) ? UINT64_MAX : random_below(100), 8);
    put(bytes, kind, 4);
    put(bytes, version, 4);
}

/* The head of a list of n items: version 1, or 3 of blocks and 2 of points with a width. */
static int put_list_head(struct bytes *bytes, const struct positions *p, bool blocks, size_t n)
{
    static const int widths[] = {2, 4, 8};
    int width = widths[random_below(3)], numbers = p->rank * (blocks ? 2 : 1);
    bool old = random_below(3) == 0;
    unsigned version = old ? 1 : blocks ? 3 : 2;
    put_head(bytes, p, 1 + (int)random_below(2), random_below(2), blocks ? 2 : 1, version);
    if (old) {
        width = 4;
        put(bytes, 0, 4);
        put(bytes, 8 + n * (size_t)(width * numbers), 4);
    } else {
        if (blocks)
            put(bytes, 0, 1);
        put(bytes, (unsigned)width, 1);
    }
    put(bytes, (unsigned)p->rank, 4);
    put(bytes, n, width);
    return width;
}

/* A few blocks, in any order and overlapping, and their union. */
static void make_blocks(struct bytes *bytes, struct positions *p)
{
    size_t n = random_below(random_below(3) ? 8 : 60);
    int width = put_list_head(bytes, p, true, n);
    char *bits = allocate(p->elements);
    memset(bits, 0, p->elements);
    uint64_t most = random_below(2) ? 3 : 60;
    for (size_t i = 0; i < n; i++) {
        hsize_t block[2 * SFS_MAX_RANK];
        for (int axis = 0; axis < p->rank; axis++) {
            bool whole = random_below(4) == 0;
            uint64_t start = whole ? 0 : random_below(p->dims[axis]), room = p->dims[axis] - start;
            block[axis] = start;
            block[p->rank + axis] =
                start + (whole ? room : random_between(1, room < most ? room : most)) - 1;
        }
        for (int k = 0; k < 2 * p->rank; k++)
            put(bytes, block[k], width);
        for (uint64_t at = 0; at < p->elements; at++)
            bits[at] |= is_in_block(p, at, block);
    }
    p->list = allocate(p->elements * sizeof(*p->list));
    for (uint64_t at = 0; at < p->elements; at++)
        if (bits[at])
            p->list[p->n++] = at;
    free(bits);
}

static void make_points(struct bytes *bytes, struct positions *p)
{
    p->n = random_below(random_below(3) ? 20 : 400);
    p->list = allocate(p->n * sizeof(*p->list));
    int width = put_list_head(bytes, p, false, p->n);
    for (size_t i = 0; i < p->n; i++) {
        uint64_t rest = p->list[i] = random_below(p->elements), coordinates[SFS_MAX_RANK];
        for (int axis = p->rank - 1; axis >= 0; axis--) {
            coordinates[axis] = rest % p->dims[axis];
            rest /= p->dims[axis];
        }
        for (int axis = 0; axis < p->rank; axis++)
            put(bytes, coordinates[axis], width);
    }
}

static void make_regular(struct bytes *bytes, struct positions *p)
{
    static const int widths[] = {2, 4, 8};
    uint64_t start[SFS_MAX_RANK], stride[SFS_MAX_RANK], count[SFS_MAX_RANK], block[SFS_MAX_RANK];
    int width = random_below(3) ? widths[random_below(3)] : 0; /* 0: version 2 */
    put_head(bytes, p, 1 + (int)random_below(2), random_below(2), 2, width ? 3 : 2);
    put(bytes, 1, 1);
    put(bytes, width ? (unsigned)width : 4 + 32 * (unsigned)p->rank, width ? 1 : 4);
    put(bytes, (unsigned)p->rank, 4);
    for (int i = 0; i < p->rank; i++) {
        start[i] = random_below(4) ? random_below(p->dims[i]) : 0;
        uint64_t room = p->dims[i] - start[i];
        block[i] = random_below(4) ? random_between(1, room < 4 ? room : 4) : room;
        stride[i] = block[i] + random_below(4);
        count[i] = random_between(1, (room - block[i]) / stride[i] + 1);
        if (count[i] == 1)
            stride[i] = random_below(3); /* does not matter */
        const uint64_t numbers[] = {start[i], stride[i], count[i], block[i]};
        for (int k = 0; k < 4; k++)
            put(bytes, numbers[k], width ? width : 8);
    }
    p->list = allocate(p->elements * sizeof(*p->list));
    for (uint64_t at = 0; at < p->elements; at++) {
        uint64_t rest = at;
        bool inside = true;
        for (int i = p->rank - 1; i >= 0; i--) {
            uint64_t distance = rest % p->dims[i] - start[i];
            uint64_t number = count[i] > 1 ? distance / stride[i] : 0;
            inside &= number < count[i] && distance - number * stride[i] < block[i];
            rest /= p->dims[i];
        }
        if (inside)
            p->list[p->n++] = at;
    }
}

typedef void maker(struct bytes *bytes, struct positions *p);

static void every_version_is_decoded(void **state)
{
    (void)state;
    static maker *const makers[] = {make_blocks, make_points, make_regular};
    struct bytes *bytes = allocate(sizeof(*bytes));
    for (int round = 0; round < 9000; round++) {
        hsize_t dims[SFS_MAX_RANK];
        int rank = random_rank(round);
        struct positions p;
        small_dims(rank, dims);
        positions_init(&p, rank, dims);
        makers[round % 3](bytes, &p);
        expect_decoded(&p, bytes->data, bytes->n);
        free(p.list);
    }
    free(bytes);
}

/* Whatever a decoder accepts lies in the extent and is consistent. */
static bool decodes_safely(const void *encoded, size_t n, int rank, const uint64_t *dims)
{
    struct selection selection;
    const char *why = NULL;
    int error = decode_copy(encoded, n, rank, dims, &selection, &why);
    if (error < 0) {
        assert_true(error == -EILSEQ || error == -ENOMEM);
        assert_non_null(why);
        assert_true(selection.runs.n == 0 && !selection.order && selection.values == 0);
        return false;
    }
    uint64_t elements = 1;
    for (int i = 0; i < rank; i++)
        elements *= dims[i];
    for (size_t i = 0; i < selection.runs.n; i++) {
        struct run run = runs_at(&selection.runs, i);
        assert_true(run.first < run.last && run.last <= elements);
        assert_true(i == 0 || runs_at(&selection.runs, i - 1).last < run.first);
    }
    assert_true(selection.values >= selection.runs.elements);
    assert_true(selection.order || selection.values == selection.runs.elements);
    for (uint64_t i = 0; selection.order && i < selection.runs.elements; i++)
        assert_true(selection.order[i] < selection.values);
    selection_free(&selection);
    return true;
}

static void damaged_bytes_are_refused_or_harmless(void **state)
{
    (void)state;
    static maker *const makers[] = {make_blocks, make_points, make_regular};
    struct bytes *bytes = allocate(sizeof(*bytes));
    for (int round = 0; round < 60; round++) {
        hsize_t dims[SFS_MAX_RANK];
        int rank = 1 + round % 4;
        struct positions p;
        small_dims(rank, dims);
        positions_init(&p, rank, dims);
        makers[round % 3](bytes, &p);
        for (size_t n = 0; n < bytes->n; n++)
            assert_false(decodes_safely(bytes->data, n, rank, p.dims));
        for (size_t i = 0; i < bytes->n; i++) {
            unsigned char right = bytes->data[i];
            for (int bit = 0; bit < 8; bit++) {
                bytes->data[i] = right ^ (unsigned char)(1 << bit);
                decodes_safely(bytes->data, bytes->n, rank, p.dims);
            }
            bytes->data[i] = (unsigned char)random_next();
            decodes_safely(bytes->data, bytes->n, rank, p.dims);
            bytes->data[i] = right;
        }
        bytes->data[bytes->n] = 0;
        assert_false(decodes_safely(bytes->data, bytes->n + 1, rank, p.dims));
        p.dims[0]++;
        assert_false(decodes_safely(bytes->data, bytes->n, rank, p.dims));
        assert_false(decodes_safely(bytes->data, bytes->n, rank - 1, p.dims));
        free(p.list);
    }
    free(bytes);
}

/* ---- Large numbers ---- */

static void append(struct runs *runs, uint64_t first, uint64_t last)
{
    assert_int_equal(runs_append(runs, first, last), 0);
}

/* Encodes and decodes; the size, or the error. */
static int64_t round_trip(int rank, const uint64_t *dims, const struct runs *runs,
                          enum selection_form form)
{
    void *encoded;
    size_t n;
    struct selection selection;
    const char *why = "";
    int error = selection_encode(rank, dims, NULL, runs, form, &encoded, &n);
    if (error < 0)
        return error;
    error = decode_copy(encoded, n, rank, dims, &selection, &why);
    if (error < 0)
        fail_msg("%d: %s", error, why);
    assert_true(runs_equal(&selection.runs, runs) && !selection.order);
    if (form != SELECTION_SMALLEST) {
        hid_t space = H5Sdecode(encoded);
        assert_int_equal(H5Sget_select_npoints(space), runs->elements);
        H5Sclose(space);
    }
    selection_free(&selection);
    free(encoded);
    return (int64_t)n;
}

/* Bands of rows, put one by one, give the list of points that the whole gives. */
static void points_are_put_band_by_band(void **state)
{
    (void)state;
    for (int round = 0; round < 300; round++) {
        uint64_t rows = random_between(1, 8), bands = random_between(1, 6);
        const uint64_t dims[2] = {rows * bands, random_between(1, 50)}, size = rows * dims[1];
        struct runs all = {0}, band[6] = {0};
        for (uint64_t at = random_below(30); at < size * bands; at += random_between(2, 30)) {
            append(&all, at, at + 1);
            append(&band[at / size], at % size, at % size + 1);
        }
        void *whole = NULL, *put = NULL;
        size_t n, n_put;
        assert_int_equal(
            selection_encode(2, dims, NULL, &all, SELECTION_LIBHDF5_1_10_POINTS, &whole, &n), 0);
        int error = selection_points_begin(dims, all.elements, NULL, &put, &n_put);
        assert_int_equal(error, all.elements ? 0 : -EOVERFLOW);
        bool points = !error;
        for (uint64_t k = bands, index = all.elements; !error && k-- > 0;) {
            index -= band[k].elements;
            points &= selection_points_put(put, dims, k * rows, rows, &band[k], index);
        }
        if (points) {
            assert_int_equal(n_put, n);
            assert_memory_equal(put, whole, n);
        }
        for (uint64_t k = 0; k < bands; k++)
            runs_free(&band[k]);
        runs_free(&all);
        free(whole);
        free(put);
    }
    const uint64_t dims[2] = {8, 8}, wide[2] = {1, (uint64_t)1 << 33};
    struct runs row = {0};
    void *encoded, *nothing;
    size_t n;
    append(&row, 0, 8);
    assert_int_equal(selection_points_begin(dims, 8, NULL, &encoded, &n), 0);
    assert_false(selection_points_put(encoded, dims, 0, 8, &row, 0)); /* one block is less */
    assert_int_equal(selection_points_begin(wide, 8, NULL, &nothing, &n), -EOVERFLOW);
    assert_int_equal(selection_points_begin(dims, UINT32_MAX, NULL, &nothing, &n), -EOVERFLOW);
    runs_free(&row);
    free(encoded);
}

static size_t allowed, taken;

static bool take_what_is_allowed(size_t bytes)
{
    taken = bytes;
    return bytes <= allowed;
}

static bool count_asked(void *context)
{
    ++*(unsigned *)context;
    return false;
}

static bool is_over(void *context)
{
    (void)context;
    return true;
}

/* What may be very much larger than the runs is refused, or ended, before it is there. */
static void what_is_encoded_has_a_limit(void **state)
{
    (void)state;
    const enum selection_form forms[] = {SELECTION_SMALLEST, SELECTION_LIBHDF5_1_10,
                                         SELECTION_LIBHDF5_1_10_POINTS};
    const uint64_t plane[2] = {3, 300000}, space[3] = {3, 1, 300000}, cells[2] = {300000, 3};
    const uint64_t *const dims[] = {plane, cells, space};
    struct runs runs = {0};
    for (uint64_t at = 1; at < 900000; at += random_between(2, 4))
        append(&runs, at, at + 1);
    for (size_t i = 0; i < COUNT(dims) * COUNT(forms); i++) {
        const uint64_t *const extent = dims[i % COUNT(dims)];
        const int rank = extent == space ? 3 : 2;
        const enum selection_form form = forms[i / COUNT(dims)];
        const struct selection_wanted wanted = {form, take_what_is_allowed};
        void *encoded, *whole;
        size_t n, whole_n;
        unsigned asked = 0;
        assert_int_equal(selection_encode(rank, extent, NULL, &runs, form, &whole, &whole_n), 0);
        allowed = SIZE_MAX;
        sfs_set_interrupt(count_asked, &asked);
        assert_int_equal(selection_encode_if(rank, extent, &runs, &wanted, &encoded, &n), 0);
        assert_true(asked >= 3);
        assert_int_equal(n, whole_n);
        assert_memory_equal(encoded, whole, n);
        assert_true(taken >= n);
        free(encoded);
        free(whole);
        allowed = taken - 1;
        assert_int_equal(selection_encode_if(rank, extent, &runs, &wanted, &encoded, &n), -ENOMEM);
        allowed = SIZE_MAX;
        sfs_set_interrupt(is_over, NULL);
        assert_int_equal(selection_encode_if(rank, extent, &runs, &wanted, &encoded, &n), -EINTR);
        sfs_set_interrupt(NULL, NULL);
    }
    void *points;
    size_t n;
    allowed = 100;
    assert_int_equal(selection_points_begin(plane, 100, take_what_is_allowed, &points, &n),
                     -EOVERFLOW);
    assert_true(taken > 800);
    runs_free(&runs);
}

static void numbers_are_as_narrow_as_they_can_be(void **state)
{
    (void)state;
    static const uint64_t limits[] = {
        255,          256, 65535, 65536, UINT32_MAX, (uint64_t)UINT32_MAX + 1, (uint64_t)1 << 40,
        INT64_MAX - 2};
    for (size_t i = 0; i < COUNT(limits); i++)
        for (int more = 0; more < 2; more++) {
            uint64_t last = limits[i], dims[] = {last + 1 + (uint64_t)more, 1};
            int64_t width = last <= UINT16_MAX ? 2 : last <= UINT32_MAX ? 4 : 8;
            struct runs runs = {0};
            append(&runs, 1, 2); /* two blocks, of which one ends at the limit */
            append(&runs, last - 2, last + 1);
            assert_int_equal(round_trip(1, dims, &runs, SELECTION_SMALLEST), 31 + 14 + width * 5);
            assert_int_equal(round_trip(2, dims, &runs, SELECTION_SMALLEST), 47 + 14 + width * 9);
            int64_t old = round_trip(1, dims, &runs, SELECTION_LIBHDF5_1_10);
            assert_int_equal(old, width < 8 ? 31 + 24 + 16 : -EOVERFLOW);
            assert_int_equal(round_trip(1, dims, &runs, SELECTION_VERSION_1), old);
            runs_free(&runs);

            append(&runs, 1, last + 1); /* one block, which version 2 can hold, too */
            assert_int_equal(round_trip(1, dims, &runs, SELECTION_LIBHDF5_1_10),
                             31 + (width < 8 ? 24 + 8 : 17 + 32));
            runs_free(&runs);
        }
}

static void regular_ones_are_found(void **state)
{
    (void)state;
    uint64_t dims[] = {3, 1000, 1000};
    struct runs runs = {0};
    for (uint64_t row = 500; row < 1000; row += 7)
        for (uint64_t column = 3; column < 990; column += 10)
            append(&runs, (2000 + row) * 1000 + column, (2000 + row) * 1000 + column + 4);
    assert_int_equal(round_trip(3, dims, &runs, SELECTION_SMALLEST), 63 + 14 + 3 * 8);
    assert_int_equal(round_trip(3, dims, &runs, SELECTION_LIBHDF5_1_10), 63 + 17 + 3 * 32);
    assert_int_equal(round_trip(3, dims, &runs, SELECTION_VERSION_1), 63 + 24 + 24 * (int)runs.n);
    append(&runs, 2999999, 3000000);
    assert_true(round_trip(3, dims, &runs, SELECTION_SMALLEST) > 12 * (int64_t)runs.n);
    runs_free(&runs);

    dims[0] = dims[1] = 7; /* rows 0, 5, 6: as if regular, but going on outside */
    append(&runs, 0, 1);
    append(&runs, 35, 37);
    append(&runs, 42, 43);
    assert_true(round_trip(2, dims, &runs, SELECTION_SMALLEST) > 0);
    runs_free(&runs);
}

static void parts_of_rows_become_tall_blocks(void **state)
{
    (void)state;
    const uint64_t dims[] = {2, 400, 400};
    struct runs runs = {0};
    for (uint64_t row = 0; row < 800; row++) { /* staggered: no two rows alike, few ends */
        if (row % 400 == 0)
            append(&runs, row * 400, row * 400 + 1);
        for (uint64_t column = 0; column < 38; column++)
            if ((row + 10 * column) / 380 % 2)
                append(&runs, row * 400 + column * 10 + 4, row * 400 + column * 10 + 9);
        if (row == 100 || row == 399)
            append(&runs, row * 400 + 395, (row + 60) * 400 + 2), row += 60;
    }
    int64_t n = round_trip(3, dims, &runs, SELECTION_SMALLEST);
    assert_true(n > 0 && n < 2000);
    assert_true(round_trip(3, dims, &runs, SELECTION_LIBHDF5_1_10) > 10 * n);
    runs_free(&runs);
}

static void many_blocks_need_wide_numbers(void **state)
{
    (void)state;
    const uint64_t dims[] = {1000, 1000};
    for (uint64_t n = 65535; n <= 65536; n++) {
        struct runs runs = {0};
        for (uint64_t i = 0; i < n; i++)
            append(&runs, 15 * i + i % 7, 15 * i + i % 7 + 1);
        int64_t width = n > UINT16_MAX ? 4 : 2;
        assert_int_equal(round_trip(2, dims, &runs, SELECTION_SMALLEST),
                         47 + 14 + width + 4 * width * (int64_t)n);
        runs_free(&runs);
    }
}

static void max_dims_can_be_others(void **state)
{
    (void)state;
    const uint64_t dims[] = {6, 10}, max_dims[] = {SFS_UNLIMITED, 20};
    const hsize_t start[] = {2, 3}, stride[] = {2, 1}, count[] = {2, 1}, block[] = {1, 4};
    hid_t space = H5Screate_simple(2, (hsize_t[]){6, 10}, (hsize_t[]){H5S_UNLIMITED, 20});
    struct runs runs = {0};
    size_t n, expected_n;
    void *encoded;
    assert_true(H5Sselect_hyperslab(space, H5S_SELECT_SET, start, stride, count, block) >= 0);
    append(&runs, 23, 27);
    append(&runs, 43, 47);
    assert_int_equal(selection_encode(2, dims, max_dims, &runs, SELECTION_VERSION_1, &encoded, &n),
                     0);
    unsigned char *expected = encode_space(space, &expected_n);
    assert_int_equal(n, expected_n);
    assert_memory_equal(encoded, expected, n);
    free(expected);
    free(encoded);
    runs_free(&runs);
    H5Sclose(space);
}

static void scalars_hold_all_or_none(void **state)
{
    (void)state;
    struct runs runs = {0};
    assert_int_equal(round_trip(0, NULL, &runs, SELECTION_SMALLEST), 7 + 8 + 16);
    append(&runs, 0, 1);
    assert_int_equal(round_trip(0, NULL, &runs, SELECTION_LIBHDF5_1_10), 7 + 8 + 16);
    runs_free(&runs);
}

/* ---- Limits of memory and time ---- */

static void short_bytes_take_no_more_memory_than_allowed(void **state)
{
    (void)state;
    struct bytes *bytes = allocate(sizeof(*bytes));
    const hsize_t dims[] = {(hsize_t)1 << 31, (hsize_t)1 << 31};
    const uint64_t end[] = {((uint64_t)1 << 31) - 1, 0};
    struct positions p;
    struct selection selection;
    const char *why;
    positions_init(&p, 2, dims);
    put_head(bytes, &p, 1, true, 2, 3); /* the first column */
    put(bytes, 0x0400, 2);
    put(bytes, 2, 4);
    put(bytes, 1, 4);
    put(bytes, 0, 8);
    put(bytes, end[0], 4);
    put(bytes, end[1], 4);
    assert_int_equal(decode_copy(bytes->data, bytes->n, 2, p.dims, &selection, &why), -ENOMEM);

    bytes->n -= 4;
    put(bytes, end[0], 4); /* all columns: one run */
    assert_int_equal(decode_copy(bytes->data, bytes->n, 2, p.dims, &selection, &why), 0);
    assert_int_equal(selection.runs.n, 1);
    assert_int_equal(selection.values, (uint64_t)1 << 62);
    selection_free(&selection);
    free(bytes);
}

/* Nor points that stand there in any order, again and again. */
static void points_take_no_more_memory_than_allowed(void **state)
{
    (void)state;
    struct bytes *bytes = allocate(sizeof(*bytes));
    const hsize_t dims[] = {1, 100};
    struct positions p;
    struct selection selection;
    const char *why;
    positions_init(&p, 2, dims);
    int width = put_list_head(bytes, &p, false, 40);
    for (unsigned i = 0; i < 40; i++) { /* one run */
        put(bytes, 0, width);
        put(bytes, 19 - i % 20, width);
    }
    for (size_t most = 39; most <= 40; most++) {
        struct sfs_encoded space = {bytes->data, bytes->n};
        int error = selection_decode(&space, 2, p.dims, most * sizeof(struct sfs_interval),
                                     &selection, &why);
        assert_int_equal(error, most < 40 ? -ENOMEM : 0);
        assert_int_equal(selection.runs.n, error ? 0 : 1);
        selection_free(&selection);
    }
    free(bytes);
}

static void lists_that_overlap_too_often_are_refused(void **state)
{
    (void)state;
    struct bytes *bytes = allocate(sizeof(*bytes));
    const hsize_t dims[] = {60000, 2};
    struct positions p;
    struct selection selection;
    const char *why;
    positions_init(&p, 2, dims);
    for (uint64_t n = 10; n <= 100; n += 90) {
        put_head(bytes, &p, 1, true, 2, 3);
        put(bytes, 0x0200, 2);
        put(bytes, 2, 4);
        put(bytes, n, 2);
        for (uint64_t i = 0; i < n; i++)
            put(bytes, (uint64_t)(59999 - i % 2) << 32,
                8); /* a column, from the top to near the end */
        int error = decode_copy(bytes->data, bytes->n, 2, p.dims, &selection, &why);
        assert_int_equal(error, n == 10 ? 0 : -EILSEQ);
        if (error == 0)
            assert_int_equal(selection.runs.n, 60000);
        selection_free(&selection);
    }
    free(bytes);
}

/* A list of blocks, as version 3: columns of a number of rows, of the elements `column(i)` of each. */
static void put_columns(struct bytes *bytes, const uint64_t *dims, uint64_t n, uint64_t rows,
                        uint64_t (*column)(uint64_t i))
{
    struct positions p;
    positions_init(&p, 2, (const hsize_t[]){dims[0], dims[1]});
    put_head(bytes, &p, 1, true, 2, 3);
    put(bytes, 0x0400, 2);
    put(bytes, 2, 4);
    put(bytes, n, 4);
    for (uint64_t i = 0; i < n; i++) {
        put(bytes, 0, 4);
        put(bytes, column(i), 4);
        put(bytes, rows - 1, 4);
        put(bytes, column(i), 4);
    }
}

static uint64_t the_same(uint64_t i)
{
    (void)i;
    return 5;
}

static uint64_t rising(uint64_t i)
{
    return i;
}

static uint64_t falling(uint64_t i)
{
    return 63 - i;
}

static uint64_t even_then_odd(uint64_t i)
{
    return i < 32 ? 2 * i : 2 * i - 63;
}

/* As much as the runs of so many values take. */
static size_t memory_for(uint64_t values, uint64_t elements)
{
    return (size_t)((values < elements / 2 + 1 ? values : elements / 2 + 1) + 16) *
           sizeof(struct sfs_interval);
}

static void lists_of_large_extents_that_overlap_too_often_are_refused(void **state)
{
    (void)state;
    struct bytes *bytes = allocate(sizeof(*bytes));
    const uint64_t dims[] = {1 << 16, 1 << 20};
    for (uint64_t n = 16; n <= 1024; n += 1008) {
        struct selection selection;
        const char *why;
        put_columns(bytes, dims, n, dims[0], the_same);
        int error = selection_decode(&(struct sfs_encoded){bytes->data, bytes->n}, 2, dims,
                                     memory_for(dims[0], dims[0] * dims[1]), &selection, &why);
        assert_int_equal(error, n == 16 ? 0 : -EILSEQ);
        if (error)
            assert_string_equal(why, "blocks, which overlap too often");
        else
            assert_int_equal(selection.runs.n, dims[0]);
        selection_free(&selection);
    }
    free(bytes);
}

/* They have many more intervals than runs. */
static void blocks_side_by_side_are_no_overlap(void **state)
{
    (void)state;
    uint64_t (*const columns[])(uint64_t) = {rising, falling, even_then_odd};
    struct bytes *bytes = allocate(sizeof(*bytes));
    const uint64_t dims[] = {5000, 64};
    for (size_t i = 0; i < COUNT(columns); i++) {
        struct selection selection;
        const char *why;
        put_columns(bytes, dims, dims[1], dims[0], columns[i]);
        assert_int_equal(selection_decode(&(struct sfs_encoded){bytes->data, bytes->n}, 2, dims,
                                          memory_for(5000 * 64, 5000 * 64), &selection, &why),
                         0);
        assert_int_equal(selection.runs.n, 1);
        assert_int_equal(selection.values, 5000 * 64);
        selection_free(&selection);
    }
    free(bytes);
}

#define LONG_LIST 140000 /* blocks: more than are kept aside before they are united with the rest */

/* One of them ends behind all that came in order; then others come that seem to be in order. */
static void late_blocks_may_be_the_last_ones(void **state)
{
    (void)state;
    struct bytes *bytes = allocate(sizeof(*bytes));
    const hsize_t dims[] = {60000};
    char *bits = allocate(dims[0]);
    for (unsigned round = 0; round < 20; round++) {
        struct positions p;
        uint64_t end = 0;
        positions_init(&p, 1, dims);
        put_head(bytes, &p, 1, true, 2, 3);
        put(bytes, 0x0400, 2);
        put(bytes, 1, 4);
        put(bytes, LONG_LIST, 4);
        memset(bits, 0, dims[0]);
        for (unsigned i = 0; i < LONG_LIST; i++) {
            bool is_late = i > 3 && i < LONG_LIST - 10, is_long = i == 3 || i > LONG_LIST - 5;
            uint64_t first = i == 3 ? end - 1 : is_late ? random_below(300) : end + random_below(2);
            uint64_t n = random_between(1, is_long ? 5000 : is_late ? 2 : 1000);
            end = first + n > end && i != 3 ? first + n : end;
            put(bytes, first, 4);
            put(bytes, first + n - 1, 4);
            memset(bits + first, 1, n);
        }
        p.list = allocate(dims[0] * sizeof(*p.list));
        for (uint64_t at = 0; at < dims[0]; at++)
            if (bits[at])
                p.list[p.n++] = at;
        expect_decoded(&p, bytes->data, bytes->n);
        free(p.list);
    }
    free(bits);
    free(bytes);
}

static bool count_down(void *left)
{
    return (*(int *)left)-- == 0;
}

/* Asked often enough, and by nobody when it is short. */
static void decoding_is_interrupted(void **state)
{
    (void)state;
    struct bytes *bytes = allocate(sizeof(*bytes));
    const uint64_t dims[] = {1 << 16, 64};
    for (int i = 0; i < 20; i++) {
        struct selection selection;
        const char *why;
        int left = i;
        put_columns(bytes, dims, 20, dims[0], i % 2 ? rising : the_same);
        sfs_set_interrupt(count_down, &left);
        int error = decode_copy(bytes->data, bytes->n, 2, dims, &selection, &why);
        sfs_set_interrupt(NULL, NULL);
        assert_int_equal(error, -EINTR);
        assert_int_equal(left, -1);
        assert_int_equal(selection.runs.capacity, 0);
    }
    free(bytes);
}

TEST_MAIN(cmocka_unit_test(all_is_encoded_as_libhdf5_does),
          cmocka_unit_test(libhdf5_decodes_everything_selected_in_the_same_extent),
          cmocka_unit_test(what_libhdf5_encodes_is_decoded),
          cmocka_unit_test(what_is_encoded_comes_back), cmocka_unit_test(every_version_is_decoded),
          cmocka_unit_test(damaged_bytes_are_refused_or_harmless),
          cmocka_unit_test(numbers_are_as_narrow_as_they_can_be),
          cmocka_unit_test(regular_ones_are_found),
          cmocka_unit_test(parts_of_rows_become_tall_blocks),
          cmocka_unit_test(many_blocks_need_wide_numbers), cmocka_unit_test(max_dims_can_be_others),
          cmocka_unit_test(scalars_hold_all_or_none), cmocka_unit_test(points_are_put_band_by_band),
          cmocka_unit_test(what_is_encoded_has_a_limit),
          cmocka_unit_test(short_bytes_take_no_more_memory_than_allowed),
          cmocka_unit_test(points_take_no_more_memory_than_allowed),
          cmocka_unit_test(lists_that_overlap_too_often_are_refused),
          cmocka_unit_test(lists_of_large_extents_that_overlap_too_often_are_refused),
          cmocka_unit_test(blocks_side_by_side_are_no_overlap),
          cmocka_unit_test(late_blocks_may_be_the_last_ones),
          cmocka_unit_test(decoding_is_interrupted))
