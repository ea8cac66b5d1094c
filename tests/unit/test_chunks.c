/* Stored chunks as they are: listed, read, and written from ready sections; what is not a chunk is
 * refused, whatever is wrong with it. */
#include "opened.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "dataset/private.h"
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
        assert_true(sfs_flush_error(bad) < 0);
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
    for (int way = 0; way < WAYS; way++)
        check_bad(way);
}

TEST_MAIN(cmocka_unit_test(one_dataset_does_not_hold_back_others),
          cmocka_unit_test(chunks_are_copied_as_they_are),
          cmocka_unit_test(chunks_over_the_edge_are_copied_with_masks),
          cmocka_unit_test(chunk_info_says_what_iteration_says),
          cmocka_unit_test(iteration_ends_when_it_is_told_to),
          cmocka_unit_test(a_damaged_chunk_is_refused),
          cmocka_unit_test(sizes_that_do_not_fit_are_refused),
          cmocka_unit_test(a_chunk_with_elements_outside_of_the_dims_is_refused),
          cmocka_unit_test(a_chunk_that_has_changed_is_stale),
          cmocka_unit_test(a_chunk_takes_the_place_of_what_was_written_before),
          cmocka_unit_test(sections_are_encoded_and_decoded),
          cmocka_unit_test(only_filters_that_are_built_in_are_run))
