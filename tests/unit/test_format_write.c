/* Writing what stands in a dataset's header: against known bytes, the prototype's files, and
 * libhdf5, which makes the headers that are changed and opens the file afterwards. */
#include "support.h"

#include <errno.h>
#include <glob.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "format/structure.h"
#include "index_files.h"

#define FILE_NAME "write.h5"
#define UNLIMITED SFS_UNLIMITED

static const struct superblock sizes_of_8 = {.version = 3, .offset_size = 8, .length_size = 8};

static void must(int error, const struct why *why)
{
    if (error)
        fail_msg("%s: %s", strerror(-error), why->text);
}

/* ---- The layout message ---- */

static struct layout_message new_layout(int rank, const uint64_t *dims, const uint64_t *max_dims,
                                        const uint64_t *chunk_dims, bool filtered)
{
    const struct new_dataset dataset = {rank, dims, max_dims, chunk_dims, 4, 2, filtered};
    struct layout_message layout;
    struct why why = {""};
    must(layout_message_init(&dataset, &layout, &why), &why);
    return layout;
}

static void max_dims_decide_on_the_index(void **state)
{
    (void)state;
    static const struct {
        uint64_t dims[2], max_dims[2], chunk_dims[2];
        enum chunk_index_kind index;
    } cases[] = {
        {{5, 6}, {5, 6}, {5, 6}, INDEX_SINGLE},
        {{5, 6}, {5, 6}, {5, 3}, INDEX_FIXED_ARRAY},
        {{4, 6}, {5, 6}, {5, 6}, INDEX_FIXED_ARRAY},
        {{0, 6}, {2, 6}, {5, 6}, INDEX_FIXED_ARRAY},
        {{5, 6}, {UNLIMITED, 6}, {5, 6}, INDEX_EXTENSIBLE_ARRAY},
        {{5, 6}, {5, UNLIMITED}, {5, 6}, INDEX_EXTENSIBLE_ARRAY},
        {{5, 6}, {UNLIMITED, UNLIMITED}, {7, 6}, INDEX_BTREE2},
    };
    for (size_t i = 0; i < COUNT(cases); i++) {
        struct layout_message l =
            new_layout(2, cases[i].dims, cases[i].max_dims, cases[i].chunk_dims, true);
        assert_int_equal(l.index, cases[i].index);
        assert_int_equal(l.single_filtered, l.index == INDEX_SINGLE);
        assert_true(l.address == NO_ADDRESS);
    }
}

/* Three axes of 2^40 chunks each, which no array numbers. */
static void only_a_tree_has_room_for_any_number_of_chunks(void **state)
{
    (void)state;
    static const uint64_t dims[] = {1, 1, 1}, most = (uint64_t)1 << 40;
    const uint64_t max_dims[] = {most, most, most};
    const struct new_dataset dataset = {3, dims, max_dims, dims, 4, 2, false};
    struct why why = {""};
    struct layout_message l = new_layout(3, dims, max_dims, dims, false);
    struct layout_choice choice = {{.kind = SFS_INDEX_AUTOMATIC}};
    assert_int_equal(layout_message_choose(&choice, &sizes_of_8, &dataset, &l, &why), -EFBIG);
    assert_non_null(strstr(why.text, "only a B-tree"));
    choice.index.kind = SFS_INDEX_BTREE;
    must(layout_message_choose(&choice, &sizes_of_8, &dataset, &l, &why), &why);
    assert_int_equal(l.index, INDEX_BTREE2);
    assert_int_equal(l.node_bytes, 2048);
}

/* Elements of 8 bytes for the address, 8 for the offset of the values, and 4 for the size, of a chunk of
 * 2^18 bytes. */
static void pages_of_a_fixed_array_fit_in_memory(void **state)
{
    (void)state;
    const uint64_t at_most = ((uint64_t)256 << 20) / 20;
    const struct {
        uint64_t n;
        unsigned page_bits;
        const char *refused;
    } cases[] = {
        {(uint64_t)1 << 32, 10, NULL},
        {(uint64_t)1 << 32, 0, NULL},
        {(uint64_t)1 << 32, 23, NULL},
        {(uint64_t)1 << 32, 24,
         "16777216 elements in a page (page bits 24) have more than 256 MiB"},
        {(uint64_t)1 << 32, 31, "(page bits 31)"},
        {at_most, 31, NULL},
        {at_most + 1, 31, "elements in a page (page bits 31)"},
        {((uint64_t)1 << 31) - 16, 1, NULL},
        {(uint64_t)1 << 32, 1, "with page bits 1 it has too many pages, 2147483648"},
    };
    for (size_t i = 0; i < COUNT(cases); i++) {
        const uint64_t dims[] = {cases[i].n << 16}, chunk_dims[] = {1 << 16};
        const struct new_dataset dataset = {1, dims, dims, chunk_dims, 1, 2, false};
        const struct layout_choice choice = {
            .index = {.kind = SFS_INDEX_FIXED_ARRAY, .page_bits = cases[i].page_bits}};
        struct why why = {""};
        struct layout_message l = new_layout(1, dims, dims, chunk_dims, false);
        int error = layout_message_choose(&choice, &sizes_of_8, &dataset, &l, &why);
        assert_int_equal(error, cases[i].refused ? -EINVAL : 0);
        if (cases[i].refused && !strstr(why.text, cases[i].refused))
            fail_msg("%s", why.text);
    }
}

/* With three sections sectioned storage can mean something else in another order: of these dims the
 * prototype's has all that it wants. */
static void an_order_that_could_be_taken_for_another_is_not_written(void **state)
{
    (void)state;
    static const uint64_t dims[] = {776, 3, 513, 5}, large[] = {777, 3, 513, 5};
    unsigned char *bytes;
    struct why why = {""};
    size_t n;
    for (int i = 0; i < 2; i++) {
        const uint64_t *all = i ? large : dims;
        const struct new_dataset dataset = {4, all, all, all, 16, 3, false};
        struct layout_choice choice = {.order = SFS_LAYOUT_MESSAGE_SECTIONED};
        struct layout_message l;
        must(layout_message_init(&dataset, &l, &why), &why);
        choice.index.kind = SFS_INDEX_FIXED_ARRAY;
        must(layout_message_choose(&choice, &sizes_of_8, &dataset, &l, &why), &why);
        assert_int_equal(l.type, 3);
        int error = layout_message_encode(&sizes_of_8, &l, &bytes, &n, &why);
        struct message message = {.type = MESSAGE_LAYOUT, .data = bytes, .size = n};
        if (!error)
            must(layout_message_decode(&sizes_of_8, &message, &l, &why), &why);
        assert_true(error == -EFBIG || (error == 0 && l.order == SFS_LAYOUT_MESSAGE_SECTIONED));
        if (!error)
            free(bytes);
    }
}

static void dims_that_cannot_be_are_refused(void **state)
{
    (void)state;
    static const uint64_t most = (uint64_t)1 << 32;
    static const struct {
        uint64_t dims[2], max_dims[2], chunk_dims[2];
        int error;
    } cases[] = {
        {{5, 6}, {5, 6}, {0, 6}, -EINVAL},
        {{5, 6}, {5, 6}, {5, 7}, -EINVAL},
        {{5, 6}, {5, 5}, {5, 5}, -EINVAL},
        {{UNLIMITED, 6}, {UNLIMITED, 6}, {5, 5}, -EINVAL},
        {{5, 6}, {UNLIMITED, 6}, {most, 6}, -EINVAL},
        {{5, 6}, {UNLIMITED, UNLIMITED}, {most - 1, most - 1}, -EFBIG},
    };
    struct layout_message l;
    for (size_t i = 0; i < COUNT(cases); i++) {
        struct why why = {""};
        const struct new_dataset dataset = {
            2, cases[i].dims, cases[i].max_dims, cases[i].chunk_dims, 4, 2, false};
        assert_int_equal(layout_message_init(&dataset, &l, &why), cases[i].error);
        assert_true(why.text[0]);
    }
    struct why why;
    static const uint64_t five[SFS_MAX_RANK + 1] = {5};
    const struct new_dataset others[] = {
        {0, five, five, five, 4, 2, false},
        {SFS_MAX_RANK + 1, five, five, five, 4, 2, false},
        {1, five, five, five, 0, 2, false},
        {1, five, five, five, 4, 4, false},
    };
    for (size_t i = 0; i < COUNT(others); i++)
        assert_int_equal(layout_message_init(&others[i], &l, &why), -EINVAL);
}

static void layout_has_room_for_what_comes(void **state)
{
    (void)state;
    static const uint64_t dims[] = {5};
    struct layout_message l = new_layout(1, dims, dims, dims, false);
    static const unsigned char expected[] = {5, 4,    0, 0,    0, 0, 2, 1, 5, 4, 8, 2,    1, 0,
                                             1, 0x4f, 0, 0x43, 0, 0, 0, 0, 0, 0, 0, 0xcd, 0, 0,
                                             0, 0,    0, 0,    0, 0, 0, 0, 0, 0, 0, 0,    0};
    struct why why = {""};
    unsigned char *empty, *bytes;
    size_t n_empty, n;
    must(layout_message_encode(&sizes_of_8, &l, &empty, &n_empty, &why), &why);
    l.single = (struct chunk_record){.exists = true, .address = 0xcd, .size = 79};
    l.single.section_offset[1] = 67;
    l.address = 0xcd;
    must(layout_message_encode(&sizes_of_8, &l, &bytes, &n, &why), &why);
    assert_int_equal(n, sizeof(expected));
    assert_memory_equal(bytes, expected, n);
    assert_int_equal(n_empty, n);
    l.single.size = 65536; /* two bytes */
    assert_int_equal(layout_message_encode_over(&sizes_of_8, &l, bytes, n, &why), -EFBIG);
    l.single.size = 65535;
    assert_int_equal(layout_message_encode_over(&sizes_of_8, &l, bytes, n - 9, &why), -EFBIG);
    assert_int_equal(layout_message_encode_over(&sizes_of_8, &l, bytes, n - 8, &why), 0);
    free(empty);
    free(bytes);
}

/* ---- The prototype's messages, again from what is read in them ---- */

static const struct message *filters_of(const struct object_header *header)
{
    return object_header_find(header, MESSAGE_SECTION_FILTERS);
}

static void encode_prototype(const char *path)
{
    struct store *store;
    struct superblock superblock;
    struct dataset_header d;
    struct why why = {""};
    unsigned char *bytes;
    size_t n;
    uint64_t address = header_of(path, "sparse");
    assert_int_equal(store_open(path, &store), 0);
    must(superblock_read(store, &superblock, &why), &why);
    must(dataset_header_read(store, &superblock, address, &d, &why), &why);
    const struct message *message = object_header_find(d.header, MESSAGE_LAYOUT);
    must(layout_message_encode(&superblock, &d.layout, &bytes, &n, &why), &why);
    size_t padded = d.header->version == 1 ? (n + 7) / 8 * 8 : n;
    assert_int_equal(padded, message->size);
    /* Its field for the size of B-tree nodes is wrong. */
    size_t node_size_at = n - 3 + 1 - 8 - 6;
    if (d.layout.index == INDEX_BTREE2)
        memcpy(bytes + node_size_at, message->data + node_size_at, 4);
    assert_memory_equal(bytes, message->data, n);
    free(bytes);
    if (d.filtered && filters_of(d.header)) {
        must(section_filters_encode(&d.filters, &bytes, &n, &why), &why);
        assert_in_range(filters_of(d.header)->size, n, n + 7);
        assert_memory_equal(bytes, filters_of(d.header)->data, n);
        free(bytes);
    }
    dataset_header_free(&d);
    store_close(store);
}

static void messages_are_those_of_the_prototype(void **state)
{
    (void)state;
    const char *folder = getenv("SPARSEFS_TEST_DATA");
    char pattern[4096];
    glob_t found;
    snprintf(pattern, sizeof(pattern), "%s/prototype/*.h5", folder ? folder : EXTRA_DATA);
    if (glob(pattern, 0, NULL, &found) != 0)
        skip();
    for (size_t i = 0; i < found.gl_pathc; i++)
        encode_prototype(found.gl_pathv[i]);
    globfree(&found);
}

/* ---- Section filters ---- */

static unsigned level = 6, plugin_values[] = {1, 2, 0xffffffff};
static struct sfs_filter deflate = {1, true, "deflate", 1, &level};
static struct sfs_filter both[] = {
    {32008, false, "bitshuffle", COUNT(plugin_values), plugin_values},
    {3, false, "fletcher32", 0, NULL},
};

static void section_filters_are_encoded(void **state)
{
    (void)state;
    struct section_filters filters = {.section = {{0}, {1, &deflate}}};
    static const unsigned char expected[] = {1, 1, 1, 1, 10, 0, 1, 0, 1, 0, 1, 0, 6, 0, 0, 0};
    struct why why = {""};
    unsigned char *bytes;
    size_t n;
    must(section_filters_encode(&filters, &bytes, &n, &why), &why);
    assert_int_equal(n, sizeof(expected));
    assert_memory_equal(bytes, expected, n);
    free(bytes);

    struct section_filters decoded;
    filters.section[0].n = 2;
    filters.section[0].filters = both;
    must(section_filters_encode(&filters, &bytes, &n, &why), &why);
    struct message message = {.type = MESSAGE_SECTION_FILTERS, .data = bytes, .size = n};
    must(section_filters_decode(&message, 0, 2, &decoded, &why), &why);
    assert_int_equal(decoded.section[0].n, 2);
    assert_string_equal(decoded.section[0].filters[0].name, "bitshuffle");
    assert_int_equal(decoded.section[0].filters[0].values[2], 0xffffffff);
    assert_int_equal(decoded.section[0].filters[1].id, 3);
    assert_true(decoded.section[1].filters[0].optional);
    section_filters_free(&decoded);
    free(bytes);
}

static void section_filters_that_cannot_be_are_refused(void **state)
{
    (void)state;
    static struct sfs_filter filter;
    struct section_filters filters = {.section = {{1, &filter}}};
    struct why why;
    unsigned char *bytes;
    size_t n;
    static unsigned values[20000];
    assert_int_equal(section_filters_encode(&filters, &bytes, &n, &why), -EINVAL); /* id 0 */
    filter = (struct sfs_filter){1, false, "", COUNT(values), values};
    assert_int_equal(section_filters_encode(&filters, &bytes, &n, &why), -EFBIG);
    filters.section[0].n = 33;
    assert_int_equal(section_filters_encode(&filters, &bytes, &n, &why), -EFBIG);
    filters.section[0].n = 0;
    assert_int_equal(section_filters_encode(&filters, &bytes, &n, &why), -EINVAL);
    assert_false(section_filters_any(&filters));
}

/* ---- Headers ---- */

/* Headers of version 1 know no order of attributes. */
enum { OLD_HEADER = 1, MANY_ATTRIBUTES = 2, FILTERED = 4, FULL = 8, ORDERED = 16, VERSION_1 = 32 };

static void add_attribute(hid_t dataset, const char *name, hsize_t n)
{
    static char text[1000];
    hid_t space = H5Screate_simple(1, &n, NULL);
    hid_t attribute = H5Acreate2(dataset, name, H5T_STD_I8LE, space, H5P_DEFAULT, H5P_DEFAULT);
    assert_true(attribute >= 0);
    H5Awrite(attribute, H5T_STD_I8LE, text);
    H5Aclose(attribute);
    H5Sclose(space);
}

/* An ordinary chunked dataset "x" without chunks, {20 of UNLIMITED, 9}, chunks {4, 9}. */
static void make_ordinary(unsigned options)
{
    static const hsize_t dims[] = {20, 9}, max_dims[] = {H5S_UNLIMITED, 9}, chunk_dims[] = {4, 9};
    hid_t fapl = H5Pcreate(H5P_FILE_ACCESS), dcpl = H5Pcreate(H5P_DATASET_CREATE);
    if (!(options & OLD_HEADER))
        H5Pset_libver_bounds(fapl, H5F_LIBVER_LATEST, H5F_LIBVER_LATEST);
    if (options & ORDERED)
        H5Pset_attr_creation_order(dcpl, H5P_CRT_ORDER_TRACKED);
    H5Pset_attr_phase_change(dcpl, 50, 40); /* all stay in the header */
    H5Pset_chunk(dcpl, 2, chunk_dims);
    if (options & FILTERED)
        H5Pset_deflate(dcpl, 6);
    hid_t file = H5Fcreate(FILE_NAME, H5F_ACC_TRUNC, H5P_DEFAULT, fapl);
    hid_t space = H5Screate_simple(2, dims, max_dims);
    hid_t dataset = H5Dcreate2(file, "x", H5T_STD_I32LE, space, H5P_DEFAULT, dcpl, H5P_DEFAULT);
    assert_true(dataset >= 0);
    if (options & FULL) /* leaves less than a message header of the room */
        for (hsize_t n = 1; n < 100; n += 13)
            add_attribute(dataset, (char[]){(char)('a' + n % 26), (char)('a' + n / 26), 0}, n);
    for (int i = 0; options & MANY_ATTRIBUTES && i < 7; i++)
        add_attribute(dataset, (char[]){'m', (char)('0' + i), 0}, 50);
    if (options & VERSION_1)
        add_attribute(dataset, "sparsefs.selection_version", 1);
    H5Dclose(dataset);
    H5Sclose(space);
    H5Pclose(dcpl);
    H5Pclose(fapl);
    assert_true(H5Fclose(file) >= 0);
}

/* Messages of a header that are to stay as they are. */
struct kept {
    size_t n;
    struct {
        unsigned type, flags;
        size_t size;
        unsigned char bytes[1200];
    } message[60];
};

static void keep_messages(struct store *store, const struct superblock *superblock,
                          uint64_t address, struct kept *kept)
{
    struct object_header *header;
    struct why why = {""};
    must(object_header_read(store, superblock, address, &header, &why), &why);
    kept->n = 0;
    for (size_t i = 0; i < header->n_messages; i++) {
        const struct message *m = &header->message[i];
        if (m->type == MESSAGE_NIL || m->type == MESSAGE_CONTINUATION ||
            m->type == MESSAGE_LAYOUT || m->type == MESSAGE_FILTERS ||
            m->type == MESSAGE_SECTION_FILTERS)
            continue;
        assert_true(kept->n < COUNT(kept->message) && m->size <= 1200);
        kept->message[kept->n].type = m->type;
        kept->message[kept->n].flags = m->flags;
        kept->message[kept->n].size = m->size;
        memcpy(kept->message[kept->n].bytes, m->data, m->size);
        kept->n++;
    }
    object_header_free(header);
}

static void same_messages(const struct kept *a, const struct kept *b)
{
    assert_int_equal(a->n, b->n);
    for (size_t i = 0; i < a->n; i++) {
        assert_int_equal(a->message[i].type, b->message[i].type);
        assert_int_equal(a->message[i].flags, b->message[i].flags);
        assert_int_equal(a->message[i].size, b->message[i].size);
        assert_memory_equal(a->message[i].bytes, b->message[i].bytes, a->message[i].size);
    }
}

/* The released library goes on with the file: it reads the attributes and adds a dataset. */
static void use_with_libhdf5(unsigned options)
{
    hid_t file = H5Fopen(FILE_NAME, H5F_ACC_RDWR, H5P_DEFAULT);
    assert_true(file >= 0);
    H5E_BEGIN_TRY
    {
        assert_true(H5Dopen2(file, "x", H5P_DEFAULT) < 0);
    }
    H5E_END_TRY
    if (options & MANY_ATTRIBUTES) {
        hid_t attribute = H5Aopen_by_name(file, "x", "m6", H5P_DEFAULT, H5P_DEFAULT);
        assert_true(attribute >= 0);
        assert_int_equal(H5Aget_storage_size(attribute), 50);
        H5Aclose(attribute);
    }
    hid_t space = H5Screate(H5S_SCALAR);
    hid_t other =
        H5Dcreate2(file, "other", H5T_STD_I32LE, space, H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT);
    assert_true(other >= 0);
    H5Dclose(other);
    H5Sclose(space);
    assert_true(H5Fclose(file) >= 0);
}

static void convert(unsigned options, const struct section_filters *filters)
{
    static const uint64_t dims[] = {20, 9}, max_dims[] = {UNLIMITED, 9}, chunk_dims[] = {4, 9};
    static struct kept before, after;
    struct store *store;
    struct superblock superblock;
    struct dataset_header d;
    struct why why = {""};
    make_ordinary(options);
    uint64_t address = header_of(FILE_NAME, "x");
    assert_int_equal(store_open_writable(FILE_NAME, &store), 0);
    must(superblock_read(store, &superblock, &why), &why);
    keep_messages(store, &superblock, address, &before);
    struct layout_message layout = new_layout(2, dims, max_dims, chunk_dims, filters != NULL);
    must(dataset_header_convert(store, &superblock, address, &layout, filters, &why), &why);
    assert_int_equal(dataset_header_convert(store, &superblock, address, &layout, filters, &why),
                     -EINVAL);
    keep_messages(store, &superblock, address, &after);
    same_messages(&before, &after);

    must(dataset_header_read(store, &superblock, address, &d, &why), &why);
    assert_int_equal(d.header->version, (options & (OLD_HEADER | ORDERED)) == OLD_HEADER ? 1 : 2);
    assert_int_equal(d.layout.index, INDEX_EXTENSIBLE_ARRAY);
    assert_int_equal(d.filtered, filters != NULL);
    assert_int_equal(d.selection_version_1, (options & VERSION_1) != 0);
    assert_null(object_header_find(d.header, MESSAGE_FILTERS));
    if (filters)
        assert_true(filters_of(d.header) < object_header_find(d.header, MESSAGE_LAYOUT));
    dataset_header_free(&d);

    layout.address = 1000;
    must(dataset_header_set_layout(store, &superblock, address, &layout, &why), &why);
    must(dataset_header_set_dims(store, &superblock, address, 2, (uint64_t[]){77, 8}, &why), &why);
    assert_int_equal(
        dataset_header_set_dims(store, &superblock, address, 2, (uint64_t[]){77, 10}, &why),
        -EINVAL);
    assert_int_equal(
        dataset_header_set_dims(store, &superblock, address, 1, (uint64_t[]){77}, &why), -EINVAL);
    must(dataset_header_read(store, &superblock, address, &d, &why), &why);
    assert_int_equal(d.layout.address, 1000);
    assert_int_equal(d.dataspace.dims[0], 77);
    assert_int_equal(d.dataspace.dims[1], 8);
    assert_true(d.dataspace.max_dims[0] == UNLIMITED);
    dataset_header_free(&d);
    must(superblock_set_end(store, &superblock, store_size(store)), &why);
    assert_int_equal(store_commit(store), 0);
    store_close(store);
    use_with_libhdf5(options);
}

static void ordinary_headers_become_sparse(void **state)
{
    (void)state;
    struct section_filters filters = {.section = {{2, both}, {1, &deflate}}};
    for (unsigned options = 0; options < 64; options++) {
        convert(options, NULL);
        convert(options, &filters);
    }
}

/* More than the header has room for, so that a new block is needed. */
static void messages_go_into_a_new_block(void **state)
{
    (void)state;
    static unsigned values[2000];
    struct sfs_filter large = {32008, false, "large", COUNT(values), values};
    struct section_filters filters = {.section = {{1, &large}}};
    for (unsigned options = 0; options < 64; options++)
        convert(options, &filters);
}

static void datasets_with_chunks_are_not_converted(void **state)
{
    (void)state;
    static const struct grid grid = {"", true, 2, {20, 9}, {H5S_UNLIMITED, 9}, {4, 9}};
    static const uint64_t dims[] = {20, 9}, max_dims[] = {UNLIMITED, 9}, chunk_dims[] = {4, 9};
    struct store *store;
    struct superblock superblock;
    struct why why = {""};
    struct layout_message layout = new_layout(2, dims, max_dims, chunk_dims, false);
    struct layout_message flat = new_layout(1, dims, max_dims, chunk_dims, false);
    make_dense(FILE_NAME, &grid, (hsize_t[]){1, 0}, 1);
    uint64_t address = header_of(FILE_NAME, "x");
    assert_int_equal(store_open_writable(FILE_NAME, &store), 0);
    must(superblock_read(store, &superblock, &why), &why);
    assert_int_equal(dataset_header_convert(store, &superblock, address, &layout, NULL, &why),
                     -EINVAL);
    assert_non_null(strstr(why.text, "chunks already"));
    assert_int_equal(
        dataset_header_convert(store, &superblock, superblock.root, &layout, NULL, &why), -EINVAL);
    assert_int_equal(dataset_header_set_layout(store, &superblock, address, &layout, &why),
                     -EINVAL);
    store_close(store);

    make_ordinary(0);
    address = header_of(FILE_NAME, "x");
    assert_int_equal(store_open_writable(FILE_NAME, &store), 0);
    must(superblock_read(store, &superblock, &why), &why);
    assert_int_equal(dataset_header_convert(store, &superblock, address, &flat, NULL, &why),
                     -EINVAL);
    store_close(store);
}

/* Where libhdf5's process says that the header is there may be a chunk of somebody else. */
static void what_is_not_lent_is_not_converted(void **state)
{
    (void)state;
    static const uint64_t dims[] = {20, 9}, max_dims[] = {UNLIMITED, 9}, chunk_dims[] = {4, 9};
    struct layout_message layout = new_layout(2, dims, max_dims, chunk_dims, false);
    struct superblock superblock;
    struct store *store;
    struct why why = {""};
    char before[64], after[64];
    make_ordinary(0);
    uint64_t address = header_of(FILE_NAME, "x");
    assert_int_equal(store_open_writable(FILE_NAME, &store), 0);
    must(superblock_read(store, &superblock, &why), &why);
    store_tell_own(store);
    assert_int_equal(store_claim(store, address + 20, 1), 0);
    assert_int_equal(store_read(store, address, before, sizeof(before)), 0);
    assert_int_equal(dataset_header_convert(store, &superblock, address, &layout, NULL, &why),
                     -EACCES);
    assert_non_null(strstr(why.text, "in use by others"));
    assert_int_equal(store_read(store, address, after, sizeof(after)), 0);
    assert_memory_equal(before, after, sizeof(after));
    store_close(store);
}

/* ---- The superblock ---- */

static void expect_same(const struct superblock *a, const struct superblock *b)
{
    assert_int_equal(a->version, b->version);
    assert_int_equal(a->flags, b->flags);
    assert_int_equal(a->offset_size, b->offset_size);
    assert_int_equal(a->length_size, b->length_size);
    assert_int_equal(a->address, b->address);
    assert_int_equal(a->base, b->base);
    assert_int_equal(a->is_moved, b->is_moved);
    assert_int_equal(a->end, b->end);
    assert_int_equal(a->root, b->root);
}

static void check_end(H5F_libver_t low, hsize_t user_block)
{
    hid_t fapl = H5Pcreate(H5P_FILE_ACCESS), fcpl = H5Pcreate(H5P_FILE_CREATE);
    H5Pset_libver_bounds(fapl, low, H5F_LIBVER_LATEST);
    H5Pset_userblock(fcpl, user_block);
    assert_true(H5Fclose(H5Fcreate(FILE_NAME, H5F_ACC_TRUNC, fcpl, fapl)) >= 0);
    struct store *store;
    struct superblock superblock, again;
    struct why why = {""};
    uint64_t address;
    assert_int_equal(store_open_writable(FILE_NAME, &store), 0);
    must(superblock_read(store, &superblock, &why), &why);
    assert_int_equal(superblock.end, store_size(store));
    assert_int_equal(store_allocate(store, 1000, &address), 0);
    must(superblock_set_end(store, &superblock, store_size(store)), &why);
    must(superblock_read(store, &again, &why), &why);
    expect_same(&again, &superblock);
    assert_int_equal(again.end, store_size(store));
    assert_int_equal(store_commit(store), 0);
    store_close(store);
    hid_t file = H5Fopen(FILE_NAME, H5F_ACC_RDWR, fapl);
    assert_true(file >= 0);
    assert_true(H5Fclose(file) >= 0);
    H5Pclose(fapl);
    H5Pclose(fcpl);
}

static void end_of_file_is_rewritten(void **state)
{
    (void)state;
    check_end(H5F_LIBVER_EARLIEST, 0);
    check_end(H5F_LIBVER_V18, 0);
    check_end(H5F_LIBVER_LATEST, 0);
    check_end(H5F_LIBVER_EARLIEST, 512);
    check_end(H5F_LIBVER_LATEST, 1024);
}

/* A superblock that says that addresses count from elsewhere than from it. */
static void check_moved(H5F_libver_t low, hsize_t said, const char *before, size_t n)
{
    hid_t fapl = H5Pcreate(H5P_FILE_ACCESS), fcpl = H5Pcreate(H5P_FILE_CREATE);
    H5Pset_libver_bounds(fapl, low, H5F_LIBVER_LATEST);
    H5Pset_userblock(fcpl, said);
    hid_t file = H5Fcreate("moved.h5", H5F_ACC_TRUNC, fcpl, fapl);
    H5Gclose(H5Gcreate2(file, "group", H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT));
    assert_true(H5Fclose(file) >= 0);
    struct store *store, *moved;
    struct superblock superblock, again;
    struct why why = {""};
    uint64_t address;
    assert_int_equal(store_open("moved.h5", &store), 0);
    uint64_t size = store_size(store) - said;
    char *bytes = allocate((size_t)size);
    assert_int_equal(store_read(store, said, bytes, (size_t)size), 0);
    assert_int_equal(store_create(FILE_NAME, true, &moved), 0);
    assert_int_equal(store_allocate(moved, n + size, &address), 0);
    if (n > 0)
        assert_int_equal(store_write(moved, 0, before, n), 0);
    assert_int_equal(store_write(moved, n, bytes, (size_t)size), 0);
    must(superblock_read(moved, &superblock, &why), &why);
    assert_int_equal(superblock.base, n);
    assert_int_equal(superblock.is_moved, n != said);
    assert_int_equal(superblock.end, n + size);
    must(superblock_set_end(moved, &superblock, superblock.end), &why);
    must(superblock_read(moved, &again, &why), &why);
    expect_same(&again, &superblock);
    assert_false(again.is_moved);
    assert_int_equal(store_commit(moved), 0);
    store_close(moved);
    store_close(store);
    free(bytes);
    file = H5Fopen(FILE_NAME, H5F_ACC_RDONLY, fapl);
    assert_true(file >= 0 && H5Lexists(file, "group", H5P_DEFAULT) > 0);
    H5Fclose(file);
    H5Pclose(fapl);
    H5Pclose(fcpl);
}

static void addresses_count_from_the_superblock(void **state)
{
    (void)state;
    static const char before[4096];
    const H5F_libver_t versions[] = {H5F_LIBVER_EARLIEST, H5F_LIBVER_V18, H5F_LIBVER_LATEST};
    for (size_t i = 0; i < COUNT(versions); i++) {
        check_moved(versions[i], 0, before, 512);
        check_moved(versions[i], 512, before, 512);
        check_moved(versions[i], 512, before, 4096);
        check_moved(versions[i], 2048, before, 1024);
        check_moved(versions[i], 1024, before, 0);
    }
}

static void mark_of_a_writer_is_cleared(void **state)
{
    (void)state;
    make_ordinary(0);
    struct store *store;
    struct superblock superblock;
    struct why why = {""};
    unsigned char bytes[48];
    assert_int_equal(store_open_writable(FILE_NAME, &store), 0);
    assert_int_equal(store_read(store, 0, bytes, sizeof(bytes)), 0);
    bytes[11] = 5;
    structure_sum(bytes, sizeof(bytes));
    assert_int_equal(store_write(store, 0, bytes, sizeof(bytes)), 0);
    must(superblock_read(store, &superblock, &why), &why);
    assert_int_equal(superblock.flags, 5);
    must(superblock_set_end(store, &superblock, superblock.end), &why);
    assert_int_equal(superblock.flags, 0);
    must(superblock_read(store, &superblock, &why), &why);
    assert_int_equal(superblock.flags, 0);
    store_close(store);
}

TEST_MAIN(cmocka_unit_test(max_dims_decide_on_the_index),
          cmocka_unit_test(dims_that_cannot_be_are_refused),
          cmocka_unit_test(only_a_tree_has_room_for_any_number_of_chunks),
          cmocka_unit_test(pages_of_a_fixed_array_fit_in_memory),
          cmocka_unit_test(an_order_that_could_be_taken_for_another_is_not_written),
          cmocka_unit_test(layout_has_room_for_what_comes),
          cmocka_unit_test(messages_are_those_of_the_prototype),
          cmocka_unit_test(section_filters_are_encoded),
          cmocka_unit_test(section_filters_that_cannot_be_are_refused),
          cmocka_unit_test(ordinary_headers_become_sparse),
          cmocka_unit_test(messages_go_into_a_new_block),
          cmocka_unit_test(datasets_with_chunks_are_not_converted),
          cmocka_unit_test(what_is_not_lent_is_not_converted),
          cmocka_unit_test(addresses_count_from_the_superblock),
          cmocka_unit_test(end_of_file_is_rewritten), cmocka_unit_test(mark_of_a_writer_is_cleared))
