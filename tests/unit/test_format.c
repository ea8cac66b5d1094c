/* Decoding what stands in a dataset's header: known bytes with known meaning, and headers that
 * libhdf5 writes. */
#include "support.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "format/checksum.h"
#include "format/datatype_message.h"
#include "index_files.h"

#define FILE_NAME "format.h5"

static const struct superblock sizes_of_8 = {.version = 3, .offset_size = 8, .length_size = 8};

/* Bytes in hexadecimal. The caller frees them. */
static unsigned char *from_hex(const char *hex, size_t *n)
{
    unsigned char *bytes = allocate(strlen(hex) / 2 + 1);
    for (*n = 0; *hex; hex += *hex == ' ' ? 1 : 2)
        if (*hex != ' ')
            assert_int_equal(sscanf(hex, "%2hhx", &bytes[(*n)++]), 1);
    return bytes;
}

static void test_checksum(void **state)
{
    (void)state;
    assert_int_equal(checksum("", 0), 0xdeadbeef);
    assert_int_equal(checksum("Four score and seven years ago", 30), 0x17770551);
    size_t n;
    unsigned char *section = from_hex("01000818000000010101000000000005000000000000000500000000"
                                      "0000000200000001000000000000001000000001000000010000000100"
                                      "000003000000",
                                      &n);
    assert_int_equal(n, 63);
    assert_int_equal(checksum(section, n), 0x9308f29b);
    free(section);
    /* every length of the rest, at every alignment */
    unsigned char bytes[64], moved[72];
    random_fill(bytes, sizeof(bytes));
    for (size_t length = 0; length <= sizeof(bytes); length++)
        for (size_t shift = 0; shift < 8; shift++) {
            memcpy(moved + shift, bytes, length);
            assert_int_equal(checksum(moved + shift, length), checksum(bytes, length));
        }
}

static void test_cursor(void **state)
{
    (void)state;
    const unsigned char bytes[] = {1, 2, 3, 0xff, 0xff, 0xff, 7};
    struct cursor c = cursor_over(bytes, sizeof(bytes));
    assert_int_equal(cursor_uint(&c, 0), 0);
    assert_int_equal(cursor_uint(&c, 3), 0x030201);
    assert_true(cursor_all_ones(&c, 2) == UINT64_MAX);
    assert_ptr_equal(cursor_bytes(&c, 1), bytes + 5);
    assert_false(c.failed);
    assert_int_equal(cursor_uint(&c, 2), 0);
    assert_true(c.failed);
    assert_int_equal(cursor_uint(&c, 1), 0); /* it stays so */
    c = cursor_over(bytes, sizeof(bytes));
    cursor_skip(&c, UINT64_MAX);
    assert_true(c.failed);
}

/* ---- The layout message ---- */

static int decode_layout(const char *hex, struct layout_message *layout)
{
    struct why why = {""};
    size_t n;
    unsigned char *read = from_hex(hex, &n);
    unsigned char *bytes = allocate(n); /* no byte more, for the address sanitizer */
    memcpy(bytes, read, n);
    struct message message = {.type = MESSAGE_LAYOUT, .data = bytes, .size = n, .address = 1234};
    int error = layout_message_decode(&sizes_of_8, &message, layout, &why);
    assert_true(!error || strstr(why.text, "1234"));
    free(bytes);
    free(read);
    return error;
}

#define SINGLE "0504000000000201 0504 08020100 01 4f00 4300000000000000 cd00000000000000"
#define SINGLE_FILTERED                                                                            \
    "0504000000020201 0504 08020100 01 5400 4300000000000000 4300000000000000 0c00000000000000 "   \
    "00000000 00000000 a001000000000000"
#define SINGLE_RFC22     "0504000000000201 0504 01 4f00 4300000000000000 cd00000000000000 08020100"
#define FIXED            "0504000000000301 040504 08020100 03 0a 0008000000000000"
#define FIXED_RFC22      "0504000000000301 040504 03 0a 0008000000000000 0800000000000000020100"
#define EXTENSIBLE       "0504000000000301 010404 08020100 04 200404100a 0008000000000000"
#define EXTENSIBLE_RFC22 "0504000000000301 010404 04 200404100a 0008000000000000 08000000020100"
#define BTREE            "0504000000000301 020204 08020100 05 000000006428 0008000000000000"
#define SECTIONED_1      "0504000100 00 020100 08 000301 040504 03 0a 0008000000000000"
#define SECTIONED_4      "0504000100 00 020100 08000000 000301 010404 04 200404100a 0008000000000000"
#define SECTIONED_8                                                                                \
    "0504000100 00 020100 0800000000000000 000301 020204 05 000800006428 0008000000000000"
#define SECTIONED_SINGLE                                                                           \
    "0504000100 00 020100 08 000201 0504 01 4f00 4300000000000000 cd00000000000000"
#define VARIABLE                                                                                   \
    "0504000000000201 0310 080303000102 01 af00000000000000 4300000000000000 6700000000000000 "    \
    "0004000000000000"

/* A message is written as it was read. */
static void test_layouts_again(void **state)
{
    (void)state;
    static const char *const messages[] = {
        SINGLE,      SINGLE_FILTERED, SINGLE_RFC22,     FIXED,
        FIXED_RFC22, EXTENSIBLE,      EXTENSIBLE_RFC22, VARIABLE,
        SECTIONED_1, SECTIONED_4,     SECTIONED_8,      SECTIONED_SINGLE};
    for (size_t i = 0; i < COUNT(messages); i++) {
        struct layout_message l;
        struct why why = {""};
        size_t n;
        unsigned char *read = from_hex(messages[i], &n), *bytes = allocate(n);
        assert_int_equal(decode_layout(messages[i], &l), 0);
        assert_int_equal(layout_message_encode_over(&sizes_of_8, &l, bytes, n, &why), 0);
        assert_memory_equal(bytes, read, n);
        assert_int_equal(layout_message_encode_over(&sizes_of_8, &l, bytes, n - 1, &why), -EFBIG);
        free(bytes);
        free(read);
    }
}

static void test_layouts(void **state)
{
    (void)state;
    struct layout_message l;
    static const char *const singles[] = {SINGLE, SINGLE "0000000000000000", SINGLE_RFC22};
    for (size_t i = 0; i < COUNT(singles); i++) {
        assert_int_equal(decode_layout(singles[i], &l), 0);
        assert_int_equal(l.index, INDEX_SINGLE);
        assert_int_equal(l.order, i == 2 ? SFS_LAYOUT_MESSAGE_22 : SFS_LAYOUT_MESSAGE_PROTOTYPE);
        assert_int_equal(l.rank, 1);
        assert_int_equal(l.chunk_dims[0], 5);
        assert_int_equal(l.element_size, 4);
        assert_int_equal(l.n_sections, 2);
        assert_int_equal(l.single.size, 79);
        assert_int_equal(l.single.section_offset[1], 67);
        assert_int_equal(l.single.address, 0xcd);
    }
    assert_int_equal(decode_layout(SINGLE_FILTERED, &l), 0);
    assert_true(l.single_filtered);
    assert_int_equal(l.single.size, 84);
    assert_int_equal(l.single.unfiltered_size[0], 67);
    assert_int_equal(l.single.unfiltered_size[1], 12);
    assert_int_equal(l.address, 0x1a0);
    assert_int_equal(decode_layout(FIXED, &l), 0);
    assert_int_equal(l.page_bits, 10);
    assert_int_equal(l.address, 0x800);
    assert_int_equal(decode_layout(FIXED_RFC22, &l), 0);
    assert_true(l.order == SFS_LAYOUT_MESSAGE_22 && l.address == 0x800);
    assert_int_equal(decode_layout(EXTENSIBLE, &l), 0);
    assert_int_equal(l.max_bits, 32);
    assert_int_equal(l.super_block_min_blocks, 4);
    assert_int_equal(l.data_block_min_elements, 16);
    assert_int_equal(decode_layout(EXTENSIBLE_RFC22, &l), 0);
    assert_true(l.order == SFS_LAYOUT_MESSAGE_22 && l.address == 0x800);
    static const char *const sectioned[] = {SECTIONED_1, SECTIONED_4, SECTIONED_8};
    static const unsigned widths[] = {1, 4, 8};
    for (size_t i = 0; i < COUNT(sectioned); i++) {
        assert_int_equal(decode_layout(sectioned[i], &l), 0);
        assert_int_equal(l.order, SFS_LAYOUT_MESSAGE_SECTIONED);
        assert_int_equal(l.offset_size_width, widths[i]);
        assert_int_equal(l.offset_size, 8);
        assert_int_equal(l.rank, 2);
        assert_int_equal(l.n_sections, 2);
        assert_int_equal(l.address, 0x800);
        assert_true(layout_message_is_rfc(&l));
    }
    assert_int_equal(decode_layout(SECTIONED_SINGLE, &l), 0);
    assert_int_equal(l.single.size, 79);
    assert_int_equal(l.address, 0xcd);
    assert_int_equal(decode_layout(BTREE, &l), 0);
    assert_int_equal(l.split_percent, 100);
    assert_int_equal(l.merge_percent, 40);
    assert_int_equal(decode_layout(VARIABLE, &l), 0);
    assert_int_equal(l.n_sections, 3);
    assert_int_equal(l.single.size, 175);
    assert_int_equal(l.single.section_offset[2], 103);
    assert_int_equal(l.address, 0x400);
    /* "created, nothing written" */
    assert_int_equal(decode_layout("0504000000000201 0504 08020100 01 4f00 4300000000000000 "
                                   "feffffffffffffff",
                                   &l),
                     0);
    assert_false(l.single.exists);
}

static void test_bad_layouts(void **state)
{
    (void)state;
    static const struct {
        const char *hex;
        int error;
    } cases[] = {
        {"0404000000000301 040504 08020100 03 0a 0008000000000000", -EILSEQ}, /* version */
        {"0504010000000301 040504 08020100 03 0a 0008000000000000", -EILSEQ}, /* property */
        {"0504000000040301 040504 08020100 03 0a 0008000000000000", -EILSEQ}, /* flags */
        {"0504000000000101 04 08020100 03 0a 0008000000000000", -EILSEQ},     /* rank 0 */
        {"0504000000002201 040504 08020100 03 0a 0008000000000000", -EILSEQ}, /* rank 33 */
        {"0504000000000300 08020100 03 0a 0008000000000000", -EILSEQ},        /* width */
        {"0504000000000309 040504 08020100 03 0a 0008000000000000", -EILSEQ}, /* width */
        {"0504000000000301 000504 08020100 03 0a 0008000000000000", -EILSEQ}, /* chunk dim 0 */
        {"0504000000000301 040500 08020100 03 0a 0008000000000000", -EILSEQ}, /* element size 0 */
        {"0504000000000205 0000000001 0400000000 08020100 03 0a 0008000000000000", -EILSEQ},
        {"0504000000000301 040504 09020100 03 0a 0008000000000000", -EILSEQ},   /* offset size */
        {"0504000000000301 040504 08040100 03 0a 0008000000000000", -EILSEQ},   /* sections */
        {"0504000000000301 040504 08020101 03 0a 0008000000000000", -EILSEQ},   /* which section */
        {"0504000300000301 040504 0802020001 03 0a 0008000000000000", -EILSEQ}, /* type */
        {"0504000000000301 040504 0803020001 03 0a 0008000000000000", -EILSEQ}, /* metadata */
        {"0504000000000301 040504 08020100 02 0a 0008000000000000", -EILSEQ},   /* index kind */
        {"0504000000000301 040504 08020100 03 00 0008000000000000", -EILSEQ},   /* page bits */
        {"0504000400000301 040504 08020100 03 0a 0008000000000000", -EOPNOTSUPP}, /* type */
        {"0504000080000301 040504 08020100 03 0a 0008000000000000", -EOPNOTSUPP},
        {"0504000500 00 020100 08 000301040504 03 0a 0008000000000000",
         -EOPNOTSUPP},                                                              /* sectioned */
        {"0504000100 00 02020001 08 000301040504 03 0a 0008000000000000", -EILSEQ}, /* the same */
        {"0504000100 00 020100 08 000301040504 03 0a", -EILSEQ},                    /* cut */
        {"0504000100 00 020100 05 000301040504 03 0a 0008000000000000", -EILSEQ}, /* offset size */
        {"0504000100 01 020100 08 000301040504 03 0a 0008000000000000", -EOPNOTSUPP}, /* storage */
        {"0504000100 ff 020100 08000000", -EOPNOTSUPP}, /* may have anything behind that */
        {"0504000300 03 03020001 04 00", -EILSEQ},      /* sections */
        {"0504000300 03 0303000102 04 00", -EOPNOTSUPP},
        {"0504000200 02 02020001 08", -EOPNOTSUPP},                                   /* dense */
        {"0504000000 04 020100 08 000301040504 03 0a 0008000000000000", -EILSEQ},     /* flags */
        {"0504000000 04 02 02 00010008 0802020001 03 0a 0008000000000000", -EILSEQ},  /* flags */
        {"0504000000000301 010404 08020100 04 210404100a 0008000000000000", -EILSEQ}, /* bits */
        {"0504000000000301 020204 08020100 05 000800006528 0008000000000000", -EILSEQ},
        {"0504000000000301 020204 08020100 05 000800006400 0008000000000000", -EILSEQ},
    };
    for (size_t i = 0; i < COUNT(cases); i++) {
        struct layout_message l;
        if (decode_layout(cases[i].hex, &l) != cases[i].error)
            fail_msg("%s", cases[i].hex);
    }
}

/* Cut short anywhere it is refused. */
static void test_short_layouts(void **state)
{
    (void)state;
    static const char *const whole[] = {
        SINGLE,      SINGLE_FILTERED,  SINGLE_RFC22,    FIXED,    FIXED_RFC22,
        EXTENSIBLE,  EXTENSIBLE_RFC22, BTREE,           VARIABLE, SECTIONED_1,
        SECTIONED_4, SECTIONED_8,      SECTIONED_SINGLE};
    for (size_t i = 0; i < COUNT(whole); i++) {
        struct layout_message l;
        char hex[512] = "";
        size_t n = 0;
        for (const char *p = whole[i]; *p; p++)
            if (*p != ' ')
                hex[n++] = *p;
        for (n -= 2; n > 0; n -= 2) {
            hex[n] = '\0';
            assert_int_equal(decode_layout(hex, &l), -EILSEQ);
        }
    }
}

static void test_size_widths(void **state)
{
    (void)state;
    assert_int_equal(chunk_record_size_bytes(2, 8, 1), 2);
    assert_int_equal(chunk_record_size_bytes(2, 8, 255), 2);
    assert_int_equal(chunk_record_size_bytes(2, 8, 256), 3);
    assert_int_equal(chunk_record_size_bytes(2, 8, 65536), 4);
    assert_int_equal(chunk_record_size_bytes(2, 8, UINT32_MAX), 5);
    assert_int_equal(chunk_record_size_bytes(2, 8, INT64_MAX), 8);
    assert_int_equal(chunk_record_size_bytes(3, 8, 1), 8);
    assert_int_equal(chunk_record_size_bytes(2, 4, 1), 2);
    assert_int_equal(chunk_record_size_bytes(2, 4, 1 << 20), 4);
}

/* ---- Filters ---- */

static int decode_filters(unsigned type, const char *hex, struct section_filters *filters)
{
    struct why why = {""};
    size_t n;
    unsigned char *read = from_hex(hex, &n), *bytes = allocate(n);
    memcpy(bytes, read, n);
    struct message message = {.type = type, .data = bytes, .size = n};
    int error = section_filters_decode(&message, 0, 2, filters, &why);
    free(bytes);
    free(read);
    return error;
}

#define TWO_SECTIONS                                                                               \
    "02 00 01 0a00 0100 0100 0100 06000000 01 02 1b00 0200 0000 0100 04000000 "                    \
    "007d 0500 0100 0100 6c7a343200 07000000"

static void test_filters(void **state)
{
    (void)state;
    struct section_filters f;
    assert_int_equal(
        decode_filters(MESSAGE_SECTION_FILTERS, "01010101 0a00 0100 0100 0100 06000000", &f), 0);
    assert_int_equal(f.section[0].n, 0);
    assert_int_equal(f.section[1].n, 1);
    assert_int_equal(f.section[1].filters[0].id, 1);
    assert_true(f.section[1].filters[0].optional);
    assert_int_equal(f.section[1].filters[0].n_values, 1);
    assert_int_equal(f.section[1].filters[0].values[0], 6);
    section_filters_free(&f);

    assert_int_equal(decode_filters(MESSAGE_FILTERS, "03" TWO_SECTIONS, &f), 0);
    assert_int_equal(f.section[0].n, 1);
    assert_int_equal(f.section[1].n, 2);
    assert_int_equal(f.section[1].filters[0].values[0], 4);
    assert_int_equal(f.section[1].filters[1].id, 32000);
    assert_string_equal(f.section[1].filters[1].name, "lz42");
    assert_int_equal(f.section[1].filters[1].values[0], 7);
    section_filters_free(&f);

    static const char *const bad[] = {
        "02010101 0a00 0100 0100 0100 06000000",   /* version */
        "01030101 0a00 0100 0100 0100 06000000",   /* more sections than there are */
        "01010201 0a00 0100 0100 0100 06000000",   /* section */
        "01010100 0a00 0100 0100 0100 06000000",   /* no filter */
        "01010101 0b00 0100 0100 0100 0600000000", /* list too long */
        "01010101 0900 0100 0100 0100 06000000",   /* list too short */
        "01010101 0a00 0100 0100 ffff 06000000",   /* values */
        "01010101 0a00 0000 0100 0100 06000000",   /* filter 0 */
        "01020101 0a00 0100 0100 0100 06000000 0101 0a00 0100 0100 0100 06000000", /* twice */
    };
    for (size_t i = 0; i < COUNT(bad); i++)
        assert_int_equal(decode_filters(MESSAGE_SECTION_FILTERS, bad[i], &f), -EILSEQ);
    char hex[] = "03" TWO_SECTIONS;
    for (size_t n = strlen(hex) - 2; n > 0; n -= hex[n - 1] == ' ' ? 1 : 2) {
        hex[n] = '\0';
        assert_int_equal(decode_filters(MESSAGE_FILTERS, hex, &f), -EILSEQ);
    }
}

/* ---- Headers that libhdf5 writes ---- */

static void add_attributes(hid_t dataset, int n)
{
    hid_t space = H5Screate(H5S_SCALAR);
    for (int i = 0; i < n; i++) {
        char name[32];
        snprintf(name, sizeof(name), "attribute %d", i);
        hid_t attribute = H5Acreate2(dataset, name, H5T_STD_I32LE, space, H5P_DEFAULT, H5P_DEFAULT);
        H5Awrite(attribute, H5T_NATIVE_INT, &i);
        H5Aclose(attribute);
        if (i % 3 == 2) { /* leaves NIL messages */
            snprintf(name, sizeof(name), "attribute %d", i - 1);
            H5Adelete(dataset, name);
        }
    }
    H5Sclose(space);
}

static void make_header(bool latest, hsize_t userblock, unsigned creation_order)
{
    static const hsize_t dims[3] = {4, 5, 6}, max_dims[3] = {4, H5S_UNLIMITED, 60};
    const int16_t fill = -2;
    hid_t fapl = H5Pcreate(H5P_FILE_ACCESS), fcpl = H5Pcreate(H5P_FILE_CREATE);
    if (latest)
        H5Pset_libver_bounds(fapl, H5F_LIBVER_LATEST, H5F_LIBVER_LATEST);
    H5Pset_userblock(fcpl, userblock);
    hid_t file = H5Fcreate(FILE_NAME, H5F_ACC_TRUNC, fcpl, fapl);
    hid_t space = H5Screate_simple(3, dims, max_dims), dcpl = H5Pcreate(H5P_DATASET_CREATE);
    H5Pset_chunk(dcpl, 3, dims);
    H5Pset_fill_value(dcpl, H5T_NATIVE_INT16, &fill);
    H5Pset_attr_creation_order(dcpl, creation_order);
    H5Pset_attr_phase_change(dcpl, 200, 100);
    hid_t dataset = H5Dcreate2(file, "x", H5T_STD_I16LE, space, H5P_DEFAULT, dcpl, H5P_DEFAULT);
    hid_t other = H5Dcreate2(file, "y", H5T_STD_I16LE, space, H5P_DEFAULT, dcpl, H5P_DEFAULT);
    assert_true(dataset >= 0 && other >= 0);
    for (int i = 0; i < 4; i++) { /* in turns, so that continuation blocks are needed */
        add_attributes(i % 2 ? other : dataset, i < 2 ? 7 : 0);
        H5Fflush(file, H5F_SCOPE_GLOBAL);
    }
    H5Dclose(other);
    H5Dclose(dataset);
    H5Pclose(dcpl);
    H5Sclose(space);
    H5Fclose(file);
    H5Pclose(fcpl);
    H5Pclose(fapl);
}

static size_t count_messages(const struct object_header *header, unsigned type)
{
    size_t n = 0;
    for (size_t i = 0; i < header->n_messages; i++)
        n += header->message[i].type == type;
    return n;
}

static void check_header(bool latest, hsize_t userblock)
{
    struct store *store;
    struct superblock superblock;
    struct object_header *header;
    struct why why = {""};
    uint64_t address = header_of(FILE_NAME, "x") + userblock;
    assert_int_equal(store_open(FILE_NAME, &store), 0);
    assert_int_equal(superblock_read(store, &superblock, &why), 0);
    assert_int_equal(superblock.version, latest ? 3 : 0);
    assert_int_equal(superblock.base, userblock);
    assert_int_equal(superblock.address, userblock);
    if (object_header_read(store, &superblock, address, &header, &why) != 0)
        fail_msg("%s", why.text);
    assert_int_equal(header->version, latest ? 2 : 1);
    assert_int_equal(count_messages(header, 0x000c), 5); /* 7 attributes less 2 */
    assert_int_equal(count_messages(header, MESSAGE_CONTINUATION), header->n_blocks - 1);

    struct dataspace_message dataspace;
    const struct message *message = object_header_find(header, MESSAGE_DATASPACE);
    assert_int_equal(dataspace_decode(&superblock, message, &dataspace, &why), 0);
    assert_int_equal(dataspace.space, SFS_SPACE_SIMPLE);
    assert_int_equal(dataspace.rank, 3);
    assert_int_equal(dataspace.dims[2], 6);
    assert_true(dataspace.max_dims[1] == SFS_UNLIMITED && dataspace.max_dims[2] == 60);
    unsigned char byte;
    assert_int_equal(store_read(store, message->address, &byte, 1), 0);
    assert_int_equal(byte, message->data[0]);

    uint64_t size;
    message = object_header_find(header, MESSAGE_DATATYPE);
    assert_int_equal(datatype_decode_size(message, &size, &why), 0);
    assert_int_equal(size, 2);
    struct fill_message fill;
    message = object_header_find(header, MESSAGE_FILL);
    assert_int_equal(fill_decode(message, &fill, &why), 0);
    assert_int_equal(fill.size, 2);
    assert_memory_equal(fill.value, "\xfe\xff", 2);
    object_header_free(header);

    struct dataset_header dataset;
    assert_int_equal(dataset_header_read(store, &superblock, address, &dataset, &why), -EINVAL);
    store_close(store);
}

/* A compound of an integer, an enumeration, and an array, and a reference, as libhdf5 1.12 writes them in
 * the newest format. What 1.10 knows is the same but for the version. */
static void test_datatypes_of_version_4(void **state)
{
    (void)state;
    static const char hex[] = "0300 46040000 12000000"
                              "6100 00 10080000 04000000 0000 2000"
                              "6500 04 48010000 01000000 10080000 01000000 0000 0800 4100 01"
                              "7300 05 4a000000 04000000 01 02000000 10080000 02000000 0000 1000"
                              "7200 0a 17000000 08000000";
    static const size_t versions_at[] = {2, 28, 54};
    size_t n;
    struct why why;
    unsigned char *bytes = from_hex(hex, &n), *lowered = from_hex(hex, &n);
    if (datatype_check(bytes + 2, n - 2, &why) != 0)
        fail_msg("%s", why.text);
    datatype_lower(lowered + 2, n - 2);
    for (size_t i = 0; i < sizeof(versions_at) / sizeof(*versions_at); i++) {
        assert_int_equal(bytes[versions_at[i]] >> 4, 4);
        bytes[versions_at[i]] -= 0x10;
    }
    assert_memory_equal(lowered, bytes, n);
    hid_t type = H5Tdecode(lowered);
    assert_int_equal(H5Tget_nmembers(type), 4);
    assert_int_equal(H5Tget_member_offset(type, 2), 5);
    assert_int_equal(H5Tget_member_class(type, 1), H5T_ENUM);
    assert_int_equal(H5Tget_member_class(type, 3), H5T_REFERENCE);
    H5Tclose(type);
    bytes[versions_at[2]] += 0x20;
    assert_int_equal(datatype_check(bytes + 2, n - 2, &why), -EILSEQ);
    free(lowered);
    free(bytes);
}

static void test_headers(void **state)
{
    (void)state;
    for (int latest = 0; latest < 2; latest++)
        for (hsize_t userblock = 0; userblock <= 1024; userblock += 512)
            for (int order = 0; order < (latest ? 3 : 1); order++) {
                static const unsigned orders[] = {0, H5P_CRT_ORDER_TRACKED,
                                                  H5P_CRT_ORDER_TRACKED | H5P_CRT_ORDER_INDEXED};
                make_header(latest, userblock, orders[order]);
                check_header(latest, userblock);
            }
}

/* A whole file with a sparse dataset of one chunk: elements 1 to 3 of 5 are defined. */
static void test_whole_file(void **state)
{
    (void)state;
    static const char hex[] =
        "894844460d0a1a0a030808000000000000000000ffffffffffffffff1c01000000000000300000000000000095"
        "2473c04f48445202002c0212000000 00ffffffffffffffffffffffffffffffff0a020001000006"
        "0c0000010001786700000000000000e4542d914f4844520200 5b01140000020101010500000000000000"
        "0500000000000000030c0001100800000400000000002000050200 01030b08290000"
        "050400000000020105040802010001 4f004300000000000000cd00000000000000"
        "0000000000000000810b0841"
        "010008180000000101010000000000050000000000000005000000000000000200000001000000000000001000"
        "00000100000001000000010000000300 00009bf20893010000000500000007000000";
    size_t n;
    unsigned char *bytes = from_hex(hex, &n);
    assert_int_equal(n, 284);
    FILE *file = fopen("whole.h5", "w");
    assert_int_equal(fwrite(bytes, 1, n, file), n);
    fclose(file);
    free(bytes);

    struct store *store;
    struct superblock superblock;
    struct dataset_header dataset;
    struct why why = {""};
    assert_int_equal(store_open("whole.h5", &store), 0);
    assert_int_equal(superblock_read(store, &superblock, &why), 0);
    assert_int_equal(superblock.root, 0x30);
    if (dataset_header_read(store, &superblock, 0x67, &dataset, &why) != 0)
        fail_msg("%s", why.text);
    assert_false(dataset.filtered);
    assert_int_equal(dataset.fill.size, 0);
    assert_int_equal(dataset.dataspace.dims[0], 5);
    assert_int_equal(dataset.layout.single.address, 0xcd);
    dataset_header_free(&dataset);
    store_close(store);
}

TEST_MAIN(cmocka_unit_test(test_checksum), cmocka_unit_test(test_cursor),
          cmocka_unit_test(test_layouts), cmocka_unit_test(test_layouts_again),
          cmocka_unit_test(test_bad_layouts), cmocka_unit_test(test_short_layouts),
          cmocka_unit_test(test_size_widths), cmocka_unit_test(test_filters),
          cmocka_unit_test(test_datatypes_of_version_4), cmocka_unit_test(test_headers),
          cmocka_unit_test(test_whole_file))
