/* Stored chunks as they are: listed, read, and written from ready sections; what is not a chunk is
 * refused, whatever is wrong with it. */
#include "opened.h"

#include <errno.h>
#include <hdf5.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "cache/cache.h"
#include "common/invariants.h"
#include "dataset/private.h"
#include "format/structure.h"
#include "index/private.h"
#include "layout/sparse.h"
#include "sparsefs/sparsefs.h"

#define ROWS    20
#define COLUMNS 30
#define BYTES   (ROWS * COLUMNS * sizeof(uint32_t))

static const unsigned level = 6, four = 4, eight = 8;
static const struct sfs_filter of_selection[] = {{.id = 2, .n_values = 1, .values = &eight},
                                                 {.id = 1, .n_values = 1, .values = &level},
                                                 {.id = 3}};
static const struct sfs_filter of_values[] = {{.id = 2, .n_values = 1, .values = &four},
                                              {.id = 1, .n_values = 1, .values = &level},
                                              {.id = 3}};

static struct sfs_dataset *add_dataset(struct sfs_file *file, const char *path, bool filtered,
                                       bool version_1)
{
    struct sfs_dataset *dataset = NULL;
    struct sfs_dataset_create create = {.rank = 2,
                                        .dims = {ROWS, COLUMNS},
                                        .max_dims = {ROWS, SFS_UNLIMITED},
                                        .chunk_dims = {8, 8},
                                        .version_1_selections = version_1};
    void *type = NULL;
    for (int i = 0; i < 2 && filtered; i++)
        create.n_filters[i] = 3;
    create.filters[0] = of_selection;
    create.filters[1] = of_values;
    assert_int_equal(sfs_type_encode("<u4", &type, &create.type.n), 0);
    create.type.bytes = type;
    assert_int_equal(sfs_dataset_create(file, path, &create, &dataset), 0);
    free(type);
    return dataset;
}

static struct sfs_file *create_file(void)
{
    struct sfs_options options = {.replace = true};
    struct sfs_file *file = NULL;
    log_quietly();
    assert_int_equal(sfs_create("chunks.h5", &options, &file), 0);
    return file;
}

static void write_scattered(struct sfs_dataset *dataset)
{
    for (int i = 0; i < 40; i++) {
        struct sfs_slab slab = {.rank = 2,
                                .start = {random_below(ROWS), random_below(COLUMNS - 3)},
                                .count = {1, 1 + random_below(3)}};
        uint32_t values[] = {(uint32_t)random_below(100), 7, 8};
        assert_int_equal(sfs_write(dataset, &slab, values), 0);
    }
}

static void read_all(struct sfs_dataset *dataset, uint32_t *values, struct sfs_defined *defined)
{
    struct sfs_slab all = {.rank = 2, .count = {ROWS, COLUMNS}};
    assert_int_equal(sfs_read(dataset, &all, 0, values, BYTES), 0);
    assert_int_equal(sfs_get_defined(dataset, &all, defined), 0);
}

static void check_same(struct sfs_dataset *a, struct sfs_dataset *b)
{
    uint32_t values[2][ROWS * COLUMNS];
    struct sfs_defined defined[2];
    read_all(a, values[0], &defined[0]);
    read_all(b, values[1], &defined[1]);
    assert_memory_equal(values[0], values[1], BYTES);
    assert_int_equal(defined[0].n, defined[1].n);
    assert_memory_equal(defined[0].interval, defined[1].interval,
                        (defined[0].n + 1) * sizeof(*defined[0].interval));
    sfs_defined_free(&defined[0]);
    sfs_defined_free(&defined[1]);
}

/* A stored chunk in memory. */
struct taken {
    struct sfs_chunk_info info;
    unsigned char *sections[SFS_SECTIONS];
};

static void take(struct sfs_dataset *dataset, const struct sfs_chunk_info *info,
                 struct taken *taken)
{
    taken->info = *info;
    for (int i = 0; i < SFS_SECTIONS; i++)
        taken->sections[i] = allocate((size_t)info->section_size[i]);
    assert_int_equal(sfs_read_chunk(dataset, info, (void *const *)taken->sections), 0);
}

static int put(struct sfs_dataset *dataset, const struct taken *taken)
{
    return sfs_write_chunk(dataset, &taken->info, (const void *const *)taken->sections);
}

static void drop(struct taken *taken)
{
    for (int i = 0; i < SFS_SECTIONS; i++)
        free(taken->sections[i]);
}

static int note_chunk(void *context, const struct sfs_chunk_info *info)
{
    struct sfs_chunk_info *list = context;
    while (list->size)
        list++;
    *list = *info;
    return 0;
}

static void chunks_are_copied_as_they_are(void **state)
{
    (void)state;
    for (int kind = 0; kind < 4; kind++) {
        struct sfs_file *file = create_file();
        struct sfs_dataset *from = add_dataset(file, "/from", kind & 1, kind & 2);
        struct sfs_dataset *to = add_dataset(file, "/to", kind & 1, kind & 2);
        struct sfs_chunk_info list[20] = {{.size = 0}};
        write_scattered(from);
        assert_int_equal(sfs_chunk_iterate(from, note_chunk, list), 0);
        assert_true(list[0].size > 0);
        for (size_t i = 0; list[i].size; i++) {
            struct taken taken;
            struct sfs_chunk_info info;
            take(from, &list[i], &taken);
            assert_int_equal(put(to, &taken), 0);
            assert_int_equal(sfs_chunk_info(to, list[i].start, &info), 0);
            assert_true(info.address != list[i].address);
            info.address = list[i].address;
            assert_memory_equal(&info, &list[i], sizeof(info));
            drop(&taken);
        }
        check_same(from, to);
        sfs_dataset_close(from);
        sfs_dataset_close(to);
        assert_int_equal(sfs_close(file), 0);
    }
}

/* A chunk all of whose elements are listed from the last to the first, with values that are their positions. */
static void put_backwards(struct sfs_dataset *dataset, uint32_t side)
{
    const hsize_t dims[] = {side, side};
    size_t n = (size_t)side * side, encoded_n;
    struct sfs_chunk_info info = {.start = {0}};
    hsize_t *points = allocate(n * 2 * sizeof(*points));
    uint32_t *values = allocate((n + 1) * sizeof(*values));
    for (size_t i = 0; i < n; i++) {
        values[i] = (uint32_t)(n - 1 - i);
        points[2 * i] = values[i] / side;
        points[2 * i + 1] = values[i] % side;
    }
    hid_t space = H5Screate_simple(2, dims, NULL);
    assert_true(H5Sselect_elements(space, H5S_SELECT_SET, n, points) >= 0);
    assert_true(H5Sencode(space, NULL, &encoded_n) >= 0);
    unsigned char *selection = allocate(encoded_n + 4);
    assert_true(H5Sencode(space, selection, &encoded_n) >= 0);
    structure_sum(selection, encoded_n + 4);
    info.section_size[0] = info.unfiltered_size[0] = encoded_n + 4;
    info.section_size[1] = info.unfiltered_size[1] = n * sizeof(*values);
    assert_int_equal(
        sfs_write_chunk(dataset, &info, (const void *[SFS_SECTIONS]){selection, values}), 0);
    assert_true(H5Sclose(space) >= 0);
    free(selection);
    free(values);
    free(points);
}

static void check_positions(struct sfs_dataset *dataset, uint32_t side)
{
    struct sfs_slab all = {.rank = 2, .count = {side, side}};
    size_t n = (size_t)side * side;
    uint32_t *values = allocate(n * sizeof(*values));
    assert_int_equal(sfs_read(dataset, &all, 0, values, n * sizeof(*values)), 0);
    for (size_t i = 0; i < n; i++)
        assert_int_equal(values[i], i);
    free(values);
}

static void values_out_of_order_are_in_their_places_after_eviction(void **state)
{
    (void)state;
    const uint32_t side = 64;
    struct sfs_file *file = create_file();
    struct sfs_dataset *dataset = NULL;
    struct sfs_dataset_create create = {
        .rank = 2, .dims = {side, side}, .max_dims = {side, side}, .chunk_dims = {side, side}};
    struct sfs_slab all = {.rank = 2, .count = {side, side}};
    struct sfs_defined defined;
    void *type = NULL;
    assert_int_equal(sfs_type_encode("<u4", &type, &create.type.n), 0);
    create.type.bytes = type;
    assert_int_equal(sfs_dataset_create(file, "/backwards", &create, &dataset), 0);
    free(type);
    put_backwards(dataset, side);
    size_t limit = cache_limit(file->cache);
    for (int i = 0; i < 2; i++) {
        assert_int_equal(sfs_get_defined(dataset, &all, &defined), 0);
        assert_int_equal(defined.n, 1);
        sfs_defined_free(&defined);
        check_positions(dataset, side);
        cache_set_limit(file->cache, side * side); /* room for the selection, not for its values */
        cache_set_limit(file->cache, limit);
    }
    const uint32_t first = 0;
    struct sfs_slab one = {.rank = 2, .count = {1, 1}};
    assert_int_equal(sfs_write(dataset, &one, &first), 0);
    check_positions(dataset, side);
    sfs_dataset_close(dataset);
    assert_int_equal(sfs_close(file), 0);
}

/* Chunks over the edge of a dataset that stores those without filters have no masks in the file. */
static void chunks_over_the_edge_are_copied_with_masks(void **state)
{
    (void)state;
    struct sfs_file *file = create_file();
    struct sfs_dataset *plain = add_dataset(file, "/plain edges", true, false);
    struct sfs_dataset *to = add_dataset(file, "/to", true, false);
    struct sfs_dataset *back = add_dataset(file, "/back", true, false);
    struct sfs_chunk_info list[20] = {{.size = 0}};
    plain->layout.unfiltered_edges = back->layout.unfiltered_edges = true;
    write_scattered(plain);
    assert_int_equal(sfs_chunk_iterate(plain, note_chunk, list), 0);
    for (size_t i = 0; list[i].size; i++) {
        bool is_edge = list[i].start[0] + 8 > ROWS || list[i].start[1] + 8 > COLUMNS;
        struct taken taken;
        for (int section = 0; section < 2; section++) {
            assert_int_equal(list[i].filter_mask[section], is_edge ? 7 : 0);
            if (is_edge)
                assert_int_equal(list[i].section_size[section], list[i].unfiltered_size[section]);
        }
        take(plain, &list[i], &taken);
        assert_int_equal(put(to, &taken), 0);
        assert_int_equal(put(back, &taken), 0);
        taken.info.filter_mask[1] = 3;
        if (is_edge)
            assert_int_equal(put(back, &taken), -EINVAL);
        drop(&taken);
    }
    check_same(plain, to);
    check_same(plain, back);
    sfs_dataset_close(plain);
    sfs_dataset_close(to);
    sfs_dataset_close(back);
    assert_int_equal(sfs_close(file), 0);
}

static void chunk_info_says_what_iteration_says(void **state)
{
    (void)state;
    struct sfs_file *file = create_file();
    struct sfs_dataset *dataset = add_dataset(file, "/x", true, false);
    struct sfs_chunk_info list[20] = {{.size = 0}}, info;
    write_scattered(dataset);
    assert_int_equal(sfs_chunk_iterate(dataset, note_chunk, list), 0);
    size_t found = 0, listed = 0;
    while (list[listed].size)
        listed++;
    for (uint64_t row = 0; row < ROWS; row += 8)
        for (uint64_t column = 0; column < COLUMNS; column += 8) {
            /* Any element names its chunk. */
            const uint64_t start[] = {row + random_below(ROWS - row < 8 ? ROWS - row : 8), column};
            struct sfs_slab slab = {.rank = 2,
                                    .start = {row, column},
                                    .count = {ROWS - row < 8 ? ROWS - row : 8,
                                              COLUMNS - column < 8 ? COLUMNS - column : 8}};
            uint64_t elements;
            int error = sfs_chunk_info(dataset, start, &info);
            assert_int_equal(sfs_count_defined(dataset, &slab, &elements), 0);
            assert_int_equal(error, elements ? 0 : -ENOENT);
            if (error)
                continue;
            size_t i = 0;
            while (memcmp(list[i].start, info.start, sizeof(info.start)) != 0)
                assert_true(list[i++].size > 0);
            assert_memory_equal(&list[i], &info, sizeof(info));
            assert_int_equal(info.unfiltered_size[1], elements * sizeof(uint32_t));
            assert_int_equal(info.size, info.section_size[0] + info.section_size[1]);
            found++;
        }
    assert_int_equal(found, listed);
    assert_int_equal(sfs_chunk_info(dataset, (const uint64_t[]){ROWS, 0}, &info), -EINVAL);
    sfs_dataset_close(dataset);
    assert_int_equal(sfs_close(file), 0);
}

static int stop_at_once(void *context, const struct sfs_chunk_info *info)
{
    (void)info;
    return ++*(int *)context == 2 ? 77 : 0;
}

static void iteration_ends_when_it_is_told_to(void **state)
{
    (void)state;
    struct sfs_file *file = create_file();
    struct sfs_dataset *dataset = add_dataset(file, "/x", false, false);
    int calls = 0;
    uint32_t values[ROWS * COLUMNS] = {0};
    struct sfs_slab all = {.rank = 2, .count = {ROWS, COLUMNS}};
    assert_int_equal(sfs_write(dataset, &all, values), 0);
    assert_int_equal(sfs_chunk_iterate(dataset, stop_at_once, &calls), 77);
    assert_int_equal(calls, 2);
    sfs_dataset_close(dataset);
    assert_int_equal(sfs_close(file), 0);
}

/* Every byte with every bit turned and with one bit: an error, and the chunk stays as it was; or
 * the chunk means the same (unused bits of a deflate stream). Without filters nothing guards
 * values. */
static void a_damaged_chunk_is_refused(void **state)
{
    (void)state;
    for (int kind = 0; kind < 4; kind++) {
        struct sfs_file *file = create_file();
        struct sfs_dataset *from = add_dataset(file, "/from", kind & 1, kind & 2);
        struct sfs_dataset *to = add_dataset(file, "/to", kind & 1, kind & 2);
        struct sfs_slab slab = {.rank = 2, .start = {1, 2}, .count = {3, 2}};
        const uint32_t values[] = {1, 2, 3, 4, 5, 6};
        struct sfs_chunk_info info;
        struct taken taken;
        assert_int_equal(sfs_write(from, &slab, values), 0);
        assert_int_equal(sfs_chunk_info(from, slab.start, &info), 0);
        take(from, &info, &taken);
        assert_int_equal(put(to, &taken), 0);
        for (int section = 0; section < (kind & 1 ? 2 : 1); section++)
            for (size_t i = 0; i < info.section_size[section]; i++)
                for (int turn = 0; turn < 2; turn++) {
                    unsigned char *byte = &taken.sections[section][i], was = *byte;
                    *byte ^= turn ? 0xff : (unsigned char)(1u << random_below(8));
                    int error = put(to, &taken);
                    assert_true(error == 0 || error == -EINVAL);
                    check_same(from, to);
                    *byte = was;
                }
        drop(&taken);
        sfs_dataset_close(from);
        sfs_dataset_close(to);
        assert_int_equal(sfs_close(file), 0);
    }
}

static void sizes_that_do_not_fit_are_refused(void **state)
{
    (void)state;
    for (int filtered = 0; filtered < 2; filtered++) {
        struct sfs_file *file = create_file();
        struct sfs_dataset *dataset = add_dataset(file, "/x", filtered, false);
        struct sfs_slab slab = {.rank = 2, .count = {2, 3}};
        struct sfs_chunk_info info;
        struct taken taken;
        assert_int_equal(sfs_write(dataset, &slab, (const uint32_t[]){1, 2, 3, 4, 5, 6}), 0);
        assert_int_equal(sfs_chunk_info(dataset, slab.start, &info), 0);
        take(dataset, &info, &taken);
        for (int section = 0; section < 2; section++) {
            const uint64_t sizes[] = {0, 1, info.section_size[section] - 1, UINT64_MAX};
            for (size_t i = 0; i < COUNT(sizes); i++) {
                taken.info = info;
                taken.info.section_size[section] = sizes[i];
                assert_int_equal(put(dataset, &taken), -EINVAL);
                taken.info = info;
                taken.info.unfiltered_size[section] = sizes[i];
                assert_int_equal(put(dataset, &taken), filtered ? -EINVAL : 0);
            }
            taken.info = info;
            taken.info.filter_mask[section] = 7;
            assert_int_equal(put(dataset, &taken), filtered ? -EINVAL : 0);
        }
        taken.info = info;
        taken.info.start[0] = 1; /* not where a chunk begins */
        assert_int_equal(put(dataset, &taken), -EINVAL);
        taken.info.start[0] = 24;
        assert_int_equal(put(dataset, &taken), -EINVAL);
        drop(&taken);
        sfs_dataset_close(dataset);
        assert_int_equal(sfs_close(file), 0);
    }
}

/* Else they would be there when the dataset grows. */
static void a_chunk_with_elements_outside_of_the_dims_is_refused(void **state)
{
    (void)state;
    struct sfs_file *file = create_file();
    struct sfs_dataset *dataset = add_dataset(file, "/x", false, false);
    struct sfs_slab corner = {.rank = 2, .start = {7, 7}, .count = {1, 1}};
    struct sfs_chunk_info info;
    struct taken taken;
    const uint32_t value = 5;
    assert_int_equal(sfs_write(dataset, &corner, &value), 0);
    assert_int_equal(sfs_chunk_info(dataset, corner.start, &info), 0);
    take(dataset, &info, &taken);
    taken.info.start[0] = 16; /* rows 16 to 19 are there */
    assert_int_equal(put(dataset, &taken), -EINVAL);
    assert_int_equal(sfs_chunk_info(dataset, taken.info.start, &info), -ENOENT);
    drop(&taken);
    sfs_dataset_close(dataset);
    assert_int_equal(sfs_close(file), 0);
}

static void a_chunk_that_has_changed_is_stale(void **state)
{
    (void)state;
    struct sfs_file *file = create_file();
    struct sfs_dataset *dataset = add_dataset(file, "/x", false, false);
    struct sfs_slab slab = {.rank = 2, .count = {1, 2}};
    struct sfs_chunk_info info;
    unsigned char byte[1000];
    void *const sections[SFS_SECTIONS] = {byte, byte};
    assert_int_equal(sfs_write(dataset, &slab, (const uint32_t[]){1, 2}), 0);
    assert_int_equal(sfs_chunk_info(dataset, slab.start, &info), 0);
    assert_int_equal(sfs_read_chunk(dataset, &info, sections), 0);
    assert_int_equal(sfs_write(dataset, &slab, (const uint32_t[]){1, 2}), 0);
    assert_int_equal(sfs_read_chunk(dataset, &info, sections), -ESTALE);
    assert_int_equal(sfs_erase(dataset, &slab), 0);
    assert_int_equal(sfs_read_chunk(dataset, &info, sections), -ENOENT);
    sfs_dataset_close(dataset);
    assert_int_equal(sfs_close(file), 0);
}

/* What stood in the cache of the same chunk must not come back. */
static void a_chunk_takes_the_place_of_what_was_written_before(void **state)
{
    (void)state;
    struct sfs_file *file = create_file();
    struct sfs_dataset *from = add_dataset(file, "/from", false, false);
    struct sfs_dataset *to = add_dataset(file, "/to", false, false);
    struct sfs_slab slab = {.rank = 2, .count = {2, 2}}, other = {.rank = 2, .count = {8, 8}};
    const uint32_t values[64] = {1, 2, 3, 4};
    struct sfs_chunk_info info;
    struct taken taken;
    assert_int_equal(sfs_write(from, &slab, values), 0);
    assert_int_equal(sfs_chunk_info(from, slab.start, &info), 0);
    take(from, &info, &taken);
    assert_int_equal(sfs_write(to, &other, values), 0);
    assert_int_equal(put(to, &taken), 0);
    assert_int_equal(sfs_flush(file), 0);
    check_same(from, to);
    drop(&taken);
    sfs_dataset_close(from);
    sfs_dataset_close(to);
    assert_int_equal(sfs_close(file), 0);
}

static bool freeing_fails; /* once */

int __real_store_free_except(struct store *store, uint64_t address, uint64_t n, uint64_t kept,
                             uint64_t kept_n);
int __wrap_store_free_except(struct store *store, uint64_t address, uint64_t n, uint64_t kept,
                             uint64_t kept_n);

int __wrap_store_free_except(struct store *store, uint64_t address, uint64_t n, uint64_t kept,
                             uint64_t kept_n)
{
    if (!freeing_fails)
        return __real_store_free_except(store, address, n, kept, kept_n);
    freeing_fails = false;
    return -ENOMEM;
}

/* The index has the new one already: what the cache has of the old one, all or its selection, is not
 * read as a part of it. */
static void a_chunk_whose_old_space_cannot_be_freed_is_all_new(void **state)
{
    (void)state;
    struct sfs_slab ends[] = {{.rank = 2, .count = {1, 4}},
                              {.rank = 2, .start = {2}, .count = {1, 4}}};
    for (int has_values = 0; has_values < 2; has_values++) {
        struct sfs_file *file = create_file();
        struct sfs_dataset *from = add_dataset(file, "/from", false, false);
        struct sfs_dataset *to = add_dataset(file, "/to", false, false);
        struct sfs_chunk_info info;
        struct sfs_defined defined;
        struct taken taken;
        uint32_t values[4];
        assert_int_equal(sfs_write(from, &ends[1], (const uint32_t[]){1, 2, 3, 4}), 0);
        assert_int_equal(sfs_write(to, &ends[0], (const uint32_t[]){5, 6, 7, 8}), 0);
        assert_int_equal(sfs_flush(file), 0);
        assert_int_equal(sfs_chunk_info(from, ends[1].start, &info), 0);
        take(from, &info, &taken);
        assert_int_equal(sfs_flush_dataset(to, true), 0);
        if (has_values) {
            assert_int_equal(sfs_read(to, &ends[0], 0, values, sizeof(values)), 0);
        } else {
            assert_int_equal(sfs_get_defined(to, &ends[0], &defined), 0);
            sfs_defined_free(&defined);
        }
        freeing_fails = true;
        assert_int_equal(put(to, &taken), -ENOMEM);
        assert_false(freeing_fails);
        check_same(from, to);
        drop(&taken);
        sfs_dataset_close(from);
        sfs_dataset_close(to);
        assert_int_equal(sfs_close(file), 0);
    }
}

/* ---- Filters without a dataset ---- */

static void sections_are_encoded_and_decoded(void **state)
{
    (void)state;
    const struct sfs_filter filters[] = {{.id = 2, .n_values = 1, .values = &four},
                                         {.id = 1, .n_values = 1, .values = &level},
                                         {.id = 3}};
    uint32_t plain[1000], decoded[1000], mask = 77;
    void *encoded = NULL;
    size_t n = 0;
    for (uint32_t i = 0; i < 1000; i++)
        plain[i] = i / 3;
    assert_int_equal(sfs_filters_encode(filters, 3, plain, sizeof(plain), &encoded, &n, &mask), 0);
    assert_true(n > 4 && n < sizeof(plain) / 2);
    assert_int_equal(mask, 0);
    assert_int_equal(sfs_filters_decode(filters, 3, 0, encoded, n, decoded, sizeof(decoded)), 0);
    assert_memory_equal(decoded, plain, sizeof(plain));
    assert_int_equal(sfs_filters_decode(filters, 3, 0, encoded, n, decoded, sizeof(decoded) - 1),
                     -EIO);
    ((unsigned char *)encoded)[n / 2] ^= 1;
    assert_int_equal(sfs_filters_decode(filters, 3, 0, encoded, n, decoded, sizeof(decoded)), -EIO);
    free(encoded);
    assert_int_equal(sfs_filters_encode(filters, 3, plain, 0, &encoded, &n, &mask), 0);
    assert_true(!encoded && n == 0);
}

static void only_filters_that_are_built_in_are_run(void **state)
{
    (void)state;
    const struct sfs_filter unknown = {.id = 40000, .optional = true};
    const struct sfs_filter twice[] = {{.id = 1, .n_values = 1, .values = &level},
                                       {.id = 1, .n_values = 1, .values = &level}};
    char bytes[64] = "", again[64];
    void *encoded;
    size_t n;
    uint32_t mask;
    assert_int_equal(sfs_filters_encode(&unknown, 1, bytes, 64, &encoded, &n, &mask), -EOPNOTSUPP);
    assert_int_equal(sfs_filters_encode(twice, 2, bytes, 64, &encoded, &n, &mask), 0);
    assert_int_equal(sfs_filters_decode(twice, 2, mask, encoded, n, again, 64), 0);
    assert_memory_equal(again, bytes, 64);
    free(encoded);
    assert_int_equal(sfs_filters_decode(&unknown, 1, 0, bytes, 64, bytes, 64), -EOPNOTSUPP);
}

/* ---- A dataset of which nothing can be stored ---- */

static struct sfs_dataset *make_deflated(struct sfs_file *file, const char *path)
{
    const struct sfs_filter deflate = {.id = 1, .n_values = 1, .values = &level};
    struct sfs_dataset_create create = {.rank = 1, .dims = {8}, .max_dims = {8}, .chunk_dims = {4}};
    struct sfs_dataset *dataset;
    void *type = NULL;
    create.n_filters[1] = 1;
    create.filters[1] = &deflate;
    assert_int_equal(sfs_type_encode("<i4", &type, &create.type.n), 0);
    create.type.bytes = type;
    assert_int_equal(sfs_dataset_create(file, path, &create, &dataset), 0);
    free(type);
    return dataset;
}

static void write_eight(struct sfs_dataset *dataset, int32_t value)
{
    const int32_t values[8] = {value, value, value, value, value, value, value, value};
    struct sfs_slab slab = {.rank = 1, .count = {8}};
    assert_int_equal(sfs_write(dataset, &slab, values), 0);
}

static void expect_eight(const char *path, int32_t value)
{
    struct sfs_file *file;
    int32_t values[8];
    struct sfs_slab slab = {.rank = 1, .count = {8}};
    assert_int_equal(sfs_open("left.h5", &(struct sfs_options){.follow = true}, &file), 0);
    struct sfs_dataset *dataset = open_dataset(file, path);
    assert_int_equal(sfs_read(dataset, &slab, 0, values, sizeof(values)), 0);
    for (int i = 0; i < 8; i++)
        assert_int_equal(values[i], value);
    sfs_dataset_close(dataset);
    sfs_discard(file);
}

/* Chunks cannot be encoded; or have no place in the index, whose addresses are too short. */
enum { BAD_FILTER, BAD_INDEX, WAYS };

static void set_bad(struct sfs_dataset *dataset, int way, bool is_bad)
{
    static struct superblock narrow;
    unsigned *parameter = (unsigned *)dataset->sparse->header.filters.section[1].filters[0].values;
    if (way == BAD_FILTER)
        *parameter = is_bad ? 77 : level; /* which deflate does not take */
    narrow = *dataset->sparse->superblock;
    narrow.offset_size = 1;
    if (way == BAD_INDEX)
        dataset->sparse->index->superblock = is_bad ? &narrow : dataset->sparse->superblock;
}

/* It does not hold back the others, and its own writers are told as long as it is so. */
static void check_bad(int way)
{
    struct sfs_file *file;
    struct sfs_statistics statistics;
    log_quietly();
    assert_int_equal(sfs_create("left.h5", &(struct sfs_options){.replace = true}, &file), 0);
    struct sfs_dataset *bad = make_deflated(file, "/bad"), *good = make_deflated(file, "/good");
    write_eight(bad, 1);
    assert_int_equal(sfs_flush(file), 0);
    set_bad(bad, way, true);
    write_eight(bad, 2);
    write_eight(good, 3);
    for (int i = 0; i < 3; i++) {
        assert_true(sfs_flush_for(file, bad) < 0); /* also when others are stored after it */
        assert_int_equal(sfs_flush_error(bad), way == BAD_FILTER ? -EIO : -EFBIG);
        assert_int_equal(sfs_flush_error(good), 0);
        assert_true(sfs_flush(file) < 0);
        assert_true(sfs_flush_for(file, bad) < 0);
        assert_int_equal(sfs_flush_for(file, good), 0);
        assert_int_equal(sfs_flush_for(file, NULL), 0);
        expect_eight("/good", 3 + i);
        expect_eight("/bad", 1);
        sfs_statistics(file, &statistics);
        assert_int_equal(statistics.chunks_left, 2);
        write_eight(good, 4 + i);
    }
    set_bad(bad, way, false);
    assert_int_equal(sfs_flush(file), 0);
    expect_eight("/bad", 2);
    expect_eight("/good", 6);
    sfs_statistics(file, &statistics);
    assert_int_equal(statistics.chunks_left, 0);
    sfs_dataset_close(bad);
    sfs_dataset_close(good);
    assert_int_equal(sfs_close(file), 0);
}

static void one_dataset_does_not_hold_back_others(void **state)
{
    (void)state;
    if (SANITY)
        skip(); /* its checks see what the test damages behind the library's back */
    for (int way = 0; way < WAYS; way++)
        check_bad(way);
}

/* ---- Chunks of dense datasets, against libhdf5's own calls ---- */

#define DENSE_CHUNKS 12 /* of 8 x 8, in 20 x 30 */

static const char *const dense_paths[] = {"/plain", "/filtered", "/edges"};

/* Half of each dataset is written. (The unlimited axis is the first: of others
 * H5Dget_chunk_info_by_coord of libhdf5 1.10.8 tells where another chunk is.) */
static void make_dense(void)
{
    hid_t fapl = H5Pcreate(H5P_FILE_ACCESS), dcpl = H5Pcreate(H5P_DATASET_CREATE);
    hsize_t dims[] = {ROWS, COLUMNS}, max_dims[] = {H5S_UNLIMITED, COLUMNS}, chunk[] = {8, 8};
    hsize_t start[] = {0, 0}, count[] = {ROWS, 16};
    H5Pset_libver_bounds(fapl, H5F_LIBVER_LATEST, H5F_LIBVER_LATEST);
    hid_t file = H5Fcreate("dense.h5", H5F_ACC_TRUNC, H5P_DEFAULT, fapl);
    hid_t space = H5Screate_simple(2, dims, max_dims), memory = H5Screate_simple(2, count, NULL);
    H5Pset_chunk(dcpl, 2, chunk);
    uint32_t *values = allocate(ROWS * 16 * sizeof(*values));
    for (uint32_t i = 0; i < ROWS * 16; i++)
        values[i] = i / 3;
    for (size_t i = 0; i < COUNT(dense_paths); i++) {
        if (i == 1) {
            H5Pset_shuffle(dcpl);
            H5Pset_deflate(dcpl, 6);
        } else if (i == 2) {
            H5Pset_chunk_opts(dcpl, H5D_CHUNK_DONT_FILTER_PARTIAL_CHUNKS);
        }
        hid_t dataset =
            H5Dcreate2(file, dense_paths[i], H5T_STD_U32LE, space, H5P_DEFAULT, dcpl, H5P_DEFAULT);
        H5Sselect_hyperslab(space, H5S_SELECT_SET, start, NULL, count, NULL);
        assert_true(H5Dwrite(dataset, H5T_NATIVE_UINT32, memory, space, H5P_DEFAULT, values) >= 0);
        H5Dclose(dataset);
    }
    free(values);
    H5Sclose(memory);
    H5Sclose(space);
    H5Fclose(file);
    H5Pclose(dcpl);
    H5Pclose(fapl);
}

/* What libhdf5 says of a chunk, and has of it; size 0: nothing. */
struct known {
    hsize_t size;
    haddr_t address;
    unsigned mask;
    unsigned char bytes[600];
};

static void ask_libhdf5(const char *path, struct known *known)
{
    hid_t file = H5Fopen("dense.h5", H5F_ACC_RDONLY, H5P_DEFAULT);
    hid_t dataset = H5Dopen2(file, path, H5P_DEFAULT);
    assert_true(dataset >= 0);
    for (hsize_t i = 0; i < DENSE_CHUNKS; i++) {
        hsize_t start[] = {i / 4 * 8, i % 4 * 8};
        uint32_t mask;
        memset(&known[i], 0, sizeof(known[i]));
        H5Dget_chunk_info_by_coord(dataset, start, &known[i].mask, &known[i].address,
                                   &known[i].size);
        assert_true(known[i].size <= sizeof(known[i].bytes));
        if (H5Dread_chunk(dataset, H5P_DEFAULT, start, &mask, known[i].bytes) < 0)
            known[i].size = 0;
    }
    H5Dclose(dataset);
    H5Fclose(file);
}

static struct sfs_file *open_dense(bool writable)
{
    struct sfs_options options = {.writable = writable};
    struct sfs_file *file = NULL;
    log_quietly();
    assert_int_equal(sfs_open("dense.h5", &options, &file), 0);
    return file;
}

static void check_known(struct sfs_dataset *dataset, const struct known *known, bool edges)
{
    struct sfs_chunk_info list[DENSE_CHUNKS + 1] = {{.size = 0}}, info;
    size_t listed = 0;
    assert_int_equal(sfs_chunk_iterate(dataset, note_chunk, list), 0);
    for (size_t i = 0; i < DENSE_CHUNKS; i++) {
        const uint64_t start[] = {i / 4 * 8, i % 4 * 8};
        int error = sfs_chunk_info(dataset, start, &info);
        assert_int_equal(error, known[i].size ? 0 : -ENOENT);
        if (error)
            continue;
        struct taken taken;
        bool is_edge = edges && (start[0] == 16 || start[1] == 24);
        assert_memory_equal(&info, &list[listed], sizeof(info));
        listed++;
        assert_int_equal(info.address, known[i].address);
        assert_int_equal(info.size, known[i].size);
        assert_int_equal(info.section_size[0], 0);
        assert_int_equal(info.section_size[1], known[i].size);
        assert_int_equal(info.unfiltered_size[1], 256);
        assert_int_equal(info.filter_mask[1], is_edge ? 3 : known[i].mask);
        take(dataset, &info, &taken);
        assert_memory_equal(taken.sections[1], known[i].bytes, known[i].size);
        drop(&taken);
    }
    assert_int_equal(list[listed].size, 0);
}

static void dense_chunks_are_those_that_libhdf5_has(void **state)
{
    (void)state;
    make_dense();
    for (size_t i = 0; i < COUNT(dense_paths); i++) {
        struct known known[DENSE_CHUNKS];
        ask_libhdf5(dense_paths[i], known);
        struct sfs_file *file = open_dense(false);
        struct sfs_dataset *dataset = open_dataset(file, dense_paths[i]);
        check_known(dataset, known, i == 2);
        sfs_dataset_close(dataset);
        sfs_close(file);
    }
}

/* Chunks of the first two columns are put into the last two, and read by libhdf5. */
static void dense_chunks_are_written_as_libhdf5_reads_them(void **state)
{
    (void)state;
    make_dense();
    for (size_t i = 0; i < COUNT(dense_paths); i++) {
        struct known before[DENSE_CHUNKS], after[DENSE_CHUNKS];
        ask_libhdf5(dense_paths[i], before);
        struct sfs_file *file = open_dense(true);
        struct sfs_dataset *dataset = open_dataset(file, dense_paths[i]);
        for (size_t k = 0; k < DENSE_CHUNKS; k++) {
            struct sfs_chunk_info info;
            struct taken taken;
            const uint64_t start[] = {k / 4 * 8, k % 4 * 8};
            uint32_t value = 99;
            const struct sfs_slab element = {2, {start[0], start[1] + 16}, {1, 1}};
            if (k % 4 >= 2 || sfs_chunk_info(dataset, start, &info) != 0)
                continue;
            take(dataset, &info, &taken);
            if (k % 4 == 0) /* what is in the cache of it must not stay */
                assert_int_equal(sfs_write(dataset, &element, &value), 0);
            taken.info.start[1] += 16;
            bool refused = i == 2 && k % 4 == 1 && k / 4 < 2; /* with filters, over the edge */
            assert_int_equal(put(dataset, &taken), refused ? -EINVAL : 0);
            if (!refused) {
                uint32_t expected;
                const struct sfs_slab from = {2, {start[0], start[1]}, {1, 1}};
                assert_int_equal(sfs_read(dataset, &from, 0, &expected, 4), 0);
                assert_int_equal(sfs_read(dataset, &element, 0, &value, 4), 0);
                assert_int_equal(value, expected);
            }
            drop(&taken);
        }
        sfs_dataset_close(dataset);
        assert_int_equal(sfs_close(file), 0);
        ask_libhdf5(dense_paths[i], after);
        for (size_t k = 0; k < DENSE_CHUNKS; k += 4) {
            assert_int_equal(after[k + 2].size, before[k].size);
            assert_int_equal(after[k + 2].mask, before[k].mask);
            if (i < 2 || k < 8) /* libhdf5 fills what of an edge lies outside in its own way */
                assert_memory_equal(after[k + 2].bytes, before[k].bytes, before[k].size);
        }
    }
}

static void what_is_no_dense_chunk_is_refused(void **state)
{
    (void)state;
    make_dense();
    struct sfs_file *file = open_dense(true);
    for (size_t i = 0; i < 2; i++) {
        struct sfs_dataset *dataset = open_dataset(file, dense_paths[i]);
        struct sfs_chunk_info info;
        struct taken taken;
        assert_int_equal(sfs_chunk_info(dataset, (const uint64_t[]){0, 0}, &info), 0);
        take(dataset, &info, &taken);
        taken.info.start[1] = 1;
        assert_int_equal(put(dataset, &taken), -EINVAL);
        taken.info.start[1] = 32;
        assert_int_equal(put(dataset, &taken), -EINVAL);
        taken.info.start[1] = 0;
        taken.info.section_size[1]--;
        assert_int_equal(put(dataset, &taken), -EINVAL);
        taken.info.section_size[1] = 0;
        assert_int_equal(put(dataset, &taken), -EINVAL);
        taken.info = info;
        taken.info.section_size[0] = 1;
        assert_int_equal(put(dataset, &taken), -EINVAL);
        taken.info = info;
        taken.info.section_size[2] = 1;
        assert_int_equal(put(dataset, &taken), -EINVAL);
        taken.info = info;
        taken.info.filter_mask[1] = 4;
        assert_int_equal(put(dataset, &taken), -EINVAL);
        taken.info.filter_mask[1] = 0;
        if (i == 1) {
            taken.sections[1][taken.info.size / 2] ^= 0xff;
            assert_int_equal(put(dataset, &taken), -EINVAL);
            taken.info.filter_mask[1] = 3; /* it would be elements */
            assert_int_equal(put(dataset, &taken), -EINVAL);
        }
        struct sfs_chunk_info now;
        assert_int_equal(sfs_chunk_info(dataset, (const uint64_t[]){0, 0}, &now), 0);
        assert_memory_equal(&now, &info, sizeof(info));
        drop(&taken);
        sfs_dataset_close(dataset);
    }
    assert_int_equal(sfs_close(file), 0);
}

/* Of many that are changed only the one that was asked for is stored. */
static void information_stores_one_chunk(void **state)
{
    (void)state;
    make_dense();
    struct sfs_file *sparse_file = create_file(), *dense_file = open_dense(true);
    struct sfs_dataset *datasets[] = {add_dataset(sparse_file, "/sparse", true, false),
                                      open_dataset(dense_file, "/filtered")};
    for (int i = 0; i < 2; i++) {
        struct sfs_file *file = i ? dense_file : sparse_file;
        struct sfs_statistics statistics;
        struct sfs_chunk_info info;
        uint32_t values[ROWS * COLUMNS];
        random_fill(values, sizeof(values));
        const struct sfs_slab all = {2, {0}, {ROWS, COLUMNS}};
        assert_int_equal(sfs_write(datasets[i], &all, values), 0);
        for (uint64_t k = 1; k <= 3; k++) {
            assert_int_equal(sfs_chunk_info(datasets[i], (const uint64_t[]){0, 8 * k}, &info), 0);
            assert_int_equal(sfs_chunk_info(datasets[i], (const uint64_t[]){0, 8 * k}, &info), 0);
            sfs_statistics(file, &statistics);
            assert_int_equal(statistics.chunks_encoded, k);
        }
        assert_true(statistics.cache_dirty_bytes > 0);
        sfs_dataset_close(datasets[i]);
        assert_int_equal(sfs_close(file), 0);
    }
}

/* ---- Reading stored bytes beside a writer ---- */

static struct sfs_file *rewritten; /* while its chunk is read; NULL: nothing is */

static void write_chunk_of(struct sfs_file *file, uint32_t rows, uint32_t value)
{
    struct sfs_dataset *dataset = open_dataset(file, "/a");
    struct sfs_slab chunk = {.rank = 2, .count = {8, 8}};
    uint32_t values[8 * 8];
    for (size_t i = 0; i < COUNT(values); i++)
        values[i] = value;
    assert_int_equal(sfs_erase(dataset, &chunk), 0);
    chunk.count[0] = rows;
    assert_int_equal(sfs_write(dataset, &chunk, values), 0);
    assert_int_equal(sfs_flush(file), 0);
    sfs_dataset_close(dataset);
}

/* The first commit frees the chunk's place, and the others' chunks can have it. */
static void *rewrite(void *file)
{
    for (uint32_t i = 0; i < 4; i++)
        write_chunk_of(file, 8 - i, 100 + i);
    return NULL;
}

int __real_store_read(struct store *store, uint64_t address, void *buffer, size_t n);
int __wrap_store_read(struct store *store, uint64_t address, void *buffer, size_t n);

int __wrap_store_read(struct store *store, uint64_t address, void *buffer, size_t n)
{
    struct sfs_file *file = rewritten;
    pthread_t other;
    rewritten = NULL;
    if (file) {
        assert_int_equal(pthread_create(&other, NULL, rewrite, file), 0);
        pthread_join(other, NULL);
    }
    return __real_store_read(store, address, buffer, n);
}

static void a_chunk_that_moves_while_it_is_read_is_stale(void **state)
{
    (void)state;
    const uint64_t start[2] = {0};
    struct sfs_chunk_info info;
    uint32_t values[8 * 8];
    void *const sections[SFS_SECTIONS] = {NULL, values};
    struct sfs_file *file = create_file();
    sfs_dataset_close(add_dataset(file, "/a", false, false));
    write_chunk_of(file, 8, 1);
    struct sfs_dataset *dataset = open_dataset(file, "/a");
    assert_int_equal(sfs_chunk_info(dataset, start, &info), 0);
    rewritten = file;
    assert_int_equal(sfs_read_chunk(dataset, &info, sections), -ESTALE);
    assert_null(rewritten);
    sfs_dataset_close(dataset);
    assert_int_equal(sfs_close(file), 0);
}

TEST_MAIN(cmocka_unit_test(one_dataset_does_not_hold_back_others),
          cmocka_unit_test(chunks_are_copied_as_they_are),
          cmocka_unit_test(values_out_of_order_are_in_their_places_after_eviction),
          cmocka_unit_test(chunks_over_the_edge_are_copied_with_masks),
          cmocka_unit_test(chunk_info_says_what_iteration_says),
          cmocka_unit_test(iteration_ends_when_it_is_told_to),
          cmocka_unit_test(a_chunk_that_moves_while_it_is_read_is_stale),
          cmocka_unit_test(a_damaged_chunk_is_refused),
          cmocka_unit_test(sizes_that_do_not_fit_are_refused),
          cmocka_unit_test(a_chunk_with_elements_outside_of_the_dims_is_refused),
          cmocka_unit_test(a_chunk_that_has_changed_is_stale),
          cmocka_unit_test(a_chunk_takes_the_place_of_what_was_written_before),
          cmocka_unit_test(a_chunk_whose_old_space_cannot_be_freed_is_all_new),
          cmocka_unit_test(sections_are_encoded_and_decoded),
          cmocka_unit_test(only_filters_that_are_built_in_are_run),
          cmocka_unit_test(dense_chunks_are_those_that_libhdf5_has),
          cmocka_unit_test(dense_chunks_are_written_as_libhdf5_reads_them),
          cmocka_unit_test(what_is_no_dense_chunk_is_refused),
          cmocka_unit_test(information_stores_one_chunk))
