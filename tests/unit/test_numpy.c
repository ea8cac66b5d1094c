/* Heads of views: NumPy and TIFF headers, and the strings of dataset.json. */
#include "support.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/json.h"
#include "common/sanitized.h"
#include "config.h"
#include "view/foreign_files.h"

static const struct sfs_type uint16_type = {.class = SFS_INTEGER, .size = 2};
static const struct sfs_type float64_big = {.class = SFS_FLOAT, .size = 8, .big_endian = true};

/* ---- NumPy ---- */

struct npy {
    int version;
    size_t prefix; /* bytes before the dictionary */
    char *dictionary;
    struct view_head head;
};

static struct npy make_npy(const struct sfs_type *type, int rank, const uint64_t *dims)
{
    struct npy npy = {0};
    assert_int_equal(numpy_header(type, rank, dims, &npy.head), 0);
    const unsigned char *bytes = (const unsigned char *)npy.head.bytes;
    assert_true(npy.head.n > 12);
    assert_memory_equal(bytes, "\x93NUMPY", 6);
    npy.version = bytes[6];
    assert_in_range(npy.version, 1, 3);
    assert_int_equal(bytes[7], 0);
    npy.prefix = npy.version == 1 ? 10 : 12;
    size_t length = bytes[8] | (size_t)bytes[9] << 8;
    if (npy.version > 1)
        length |= (size_t)bytes[10] << 16 | (size_t)bytes[11] << 24;

    /* What every version promises: the data is aligned, a newline stands before it, and between
     * that and the dictionary are spaces only. */
    assert_int_equal(npy.prefix + length, npy.head.n);
    assert_int_equal(npy.head.n % 64, 0);
    assert_int_equal(bytes[npy.head.n - 1], '\n');
    npy.dictionary = allocate(length);
    memcpy(npy.dictionary, npy.head.bytes + npy.prefix, length - 1);
    npy.dictionary[length - 1] = '\0';
    size_t n = strlen(npy.dictionary);
    assert_int_equal(n, length - 1);
    while (n > 0 && npy.dictionary[n - 1] == ' ')
        npy.dictionary[--n] = '\0';
    assert_true(npy.prefix + n + 1 + 64 > npy.head.n); /* no more padding than is needed */
    return npy;
}

static void free_npy(struct npy *npy)
{
    free(npy->dictionary);
    free(npy->head.bytes);
}

static void expect_dictionary(const struct sfs_type *type, int rank, const uint64_t *dims,
                              const char *expected)
{
    struct npy npy = make_npy(type, rank, dims);
    assert_int_equal(npy.version, 1);
    assert_string_equal(npy.dictionary, expected);
    free_npy(&npy);
}

static void shapes_are_tuples(void **state)
{
    (void)state;
    const uint64_t dims[] = {3, 0, UINT64_C(10000000000)};
    expect_dictionary(&uint16_type, 0, dims,
                      "{'descr': '<u2', 'fortran_order': False, 'shape': (), }");
    expect_dictionary(&uint16_type, 1, dims,
                      "{'descr': '<u2', 'fortran_order': False, 'shape': (3,), }");
    expect_dictionary(&uint16_type, 3, dims,
                      "{'descr': '<u2', 'fortran_order': False, 'shape': (3, 0, 10000000000), }");
}

static void data_is_aligned_behind_headers_of_every_length(void **state)
{
    (void)state;
    uint64_t dims[SFS_MAX_RANK] = {0}, dim = 1;
    for (int rank = 0; rank <= SFS_MAX_RANK; rank++) {
        for (int i = 0; i < rank; i++)
            dims[i] = dim;
        struct npy npy = make_npy(&uint16_type, rank, dims);
        assert_int_equal(npy.version, 1);
        free_npy(&npy);
        dim = dim < UINT64_MAX / 10 ? dim * 10 : 1;
    }
}

static void types_have_their_numpy_names(void **state)
{
    (void)state;
    struct sfs_member complex_members[] = {
        {.name = (char *)"r", .offset = 0, .type = {.class = SFS_FLOAT, .size = 4}},
        {.name = (char *)"i", .offset = 4, .type = {.class = SFS_FLOAT, .size = 4}},
    };
    struct sfs_type byte = {.class = SFS_INTEGER, .size = 1, .is_signed = true};
    struct {
        struct sfs_type type;
        const char *name;
    } cases[] = {
        {{.class = SFS_INTEGER, .size = 1}, "'|u1'"},
        {{.class = SFS_INTEGER, .size = 1, .is_signed = true, .big_endian = true}, "'|i1'"},
        {{.class = SFS_INTEGER, .size = 8, .is_signed = true}, "'<i8'"},
        {{.class = SFS_INTEGER, .size = 4, .big_endian = true}, "'>u4'"},
        {{.class = SFS_FLOAT, .size = 2}, "'<f2'"},
        {{.class = SFS_FLOAT, .size = 8, .big_endian = true}, "'>f8'"},
        {{.class = SFS_BITFIELD, .size = 4}, "'<u4'"},
        {{.class = SFS_ENUM, .size = 1, .is_boolean = true, .is_signed = true}, "'|b1'"},
        {{.class = SFS_ENUM, .size = 2, .is_signed = true}, "'<i2'"},
        {{.class = SFS_STRING, .size = 12}, "'|S12'"},
        {{.class = SFS_OPAQUE, .size = 5}, "'|V5'"},
        {{.class = SFS_ARRAY, .size = 6, .array_rank = 1, .array_dims = {6}, .base = &byte},
         "'|i1'"},
        {{.class = SFS_COMPOUND, .size = 8, .n_members = 2, .members = complex_members}, "'<c8'"},
        {{.class = SFS_COMPOUND, .size = 9, .n_members = 2, .members = complex_members},
         "[('r', '<f4'), ('i', '<f4'), ('', '|V1')]"},
    };
    for (size_t i = 0; i < COUNT(cases); i++) {
        char *text;
        size_t n;
        FILE *out = open_memstream(&text, &n);
        assert_non_null(out);
        numpy_type(out, &cases[i].type, NUMPY_PYTHON);
        fclose(out);
        assert_string_equal(text, cases[i].name);
        free(text);
    }
}

static void dims_of_array_types_end_the_shape(void **state)
{
    (void)state;
    struct sfs_type base = {.class = SFS_INTEGER, .size = 2};
    struct sfs_type inner = {
        .class = SFS_ARRAY, .size = 8, .array_rank = 1, .array_dims = {4}, .base = &base};
    struct sfs_type outer = {
        .class = SFS_ARRAY, .size = 48, .array_rank = 2, .array_dims = {2, 3}, .base = &inner};
    expect_dictionary(&outer, 1, (uint64_t[]){7},
                      "{'descr': '<u2', 'fortran_order': False, 'shape': (7, 2, 3, 4), }");
    expect_dictionary(&inner, 0, NULL, "{'descr': '<u2', 'fortran_order': False, 'shape': (4,), }");
}

static void members_are_listed_in_order_with_the_gaps_between(void **state)
{
    (void)state;
    struct sfs_type base = {.class = SFS_FLOAT, .size = 4};
    struct sfs_member members[] = {
        {.name = (char *)"it's \\ \n", .offset = 20, .type = {.class = SFS_STRING, .size = 3}},
        {.name = (char *)"a", .offset = 2, .type = {.class = SFS_INTEGER, .size = 2}},
        {.name = (char *)"b",
         .offset = 4,
         .type =
             {.class = SFS_ARRAY, .size = 8, .array_rank = 1, .array_dims = {2}, .base = &base}},
    };
    struct sfs_type type = {
        .class = SFS_COMPOUND, .size = 24, .n_members = COUNT(members), .members = members};
    expect_dictionary(&type, 1, (uint64_t[]){1},
                      "{'descr': [('', '|V2'), ('a', '<u2'), ('b', '<f4', (2,)), ('', '|V8'), "
                      "('it\\'s \\\\ \\x0a', '|S3'), ('', '|V1')], 'fortran_order': False, "
                      "'shape': (1,), }");

    members[1].offset = 3; /* overlaps with b: no list can say that */
    expect_dictionary(&type, 1, (uint64_t[]){1},
                      "{'descr': '|V24', 'fortran_order': False, 'shape': (1,), }");
}

/* A compound of n one-byte members of this name, with a number behind it. */
static struct npy npy_of_many_members(size_t n, const char *name)
{
    struct sfs_type type = {.class = SFS_COMPOUND, .size = n, .n_members = n};
    type.members = calloc(n, sizeof(*type.members));
    assert_non_null(type.members);
    for (size_t i = 0; i < n; i++) {
        assert_true(asprintf(&type.members[i].name, "%s%zu", name, i) > 0);
        type.members[i].offset = i;
        type.members[i].type = (struct sfs_type){.class = SFS_INTEGER, .size = 1};
    }
    struct npy npy = make_npy(&type, 0, NULL);
    for (size_t i = 0; i < n; i++)
        free(type.members[i].name);
    free(type.members);
    return npy;
}

static void headers_of_more_than_64_kib_have_version_2(void **state)
{
    (void)state;
    size_t largest_1 = 0, smallest_2 = SIZE_MAX;
    for (size_t n = 2600; n < 2900; n++) {
        struct npy npy = npy_of_many_members(n, "member");
        if (npy.version == 1 && npy.head.n > largest_1)
            largest_1 = npy.head.n;
        if (npy.version == 2 && npy.head.n < smallest_2)
            smallest_2 = npy.head.n;
        free_npy(&npy);
    }
    assert_int_equal(largest_1, 65536); /* length 65526, the last multiple of 64 that fits */
    assert_int_equal(smallest_2, 65600);
}

static void names_outside_of_ascii_need_version_3(void **state)
{
    (void)state;
    struct npy npy = npy_of_many_members(1, "\xce\xb8");
    assert_int_equal(npy.version, 3);
    assert_non_null(strstr(npy.dictionary, "('\xce\xb8"
                                           "0', '|u1')"));
    free_npy(&npy);
}

/* A header of version 3 is UTF-8. */
static void names_that_are_not_utf8_are_taken_as_latin_1(void **state)
{
    (void)state;
    struct npy npy = npy_of_many_members(1, "caf\xe9-");
    assert_int_equal(npy.version, 1);
    assert_non_null(strstr(npy.dictionary, "('caf\\xe9-0', '|u1')"));
    free_npy(&npy);
}

/* ---- TIFF ---- */

/* A little reader of what tiff_header writes. */
struct tiff {
    const unsigned char *bytes;
    size_t n;
    bool big_endian, big;
    uint64_t tags[400];
    unsigned counts[400]; /* 0: it is not there */
};

static uint64_t get(const struct tiff *tiff, uint64_t at, unsigned n)
{
    uint64_t value = 0;
    assert_true(at + n <= tiff->n);
    for (unsigned i = 0; i < n; i++)
        value = value << 8 | tiff->bytes[at + (tiff->big_endian ? i : n - 1 - i)];
    return value;
}

static struct tiff read_tiff(const struct view_head *head)
{
    struct tiff tiff = {.bytes = (const unsigned char *)head->bytes, .n = head->n};
    assert_true(!memcmp(head->bytes, "II", 2) || !memcmp(head->bytes, "MM", 2));
    tiff.big_endian = head->bytes[0] == 'M';
    tiff.big = get(&tiff, 2, 2) == 43;
    if (tiff.big) {
        assert_int_equal(get(&tiff, 4, 2), 8);
        assert_int_equal(get(&tiff, 6, 2), 0);
    } else {
        assert_int_equal(get(&tiff, 2, 2), 42);
    }
    unsigned field = tiff.big ? 8 : 4;
    uint64_t at = get(&tiff, tiff.big ? 8 : 4, field);
    uint64_t n = get(&tiff, at, tiff.big ? 8 : 2);
    at += tiff.big ? 8 : 2;
    uint64_t before = 0;
    for (; n > 0; n--, at += 4 + 2 * field) {
        uint64_t tag = get(&tiff, at, 2), type = get(&tiff, at + 2, 2);
        assert_true(tag > before && tag < COUNT(tiff.tags)); /* ascending */
        before = tag;
        assert_true(type == 3 || type == 4 || (type == 16 && tiff.big));
        unsigned width = type == 3 ? 2 : type == 4 ? 4 : 8;
        tiff.counts[tag] = (unsigned)get(&tiff, at + 4, field);
        uint64_t value = at + 4 + field;
        if (width * tiff.counts[tag] > field)
            value = get(&tiff, value, (unsigned)field);
        tiff.tags[tag] = get(&tiff, value, width);
        for (unsigned i = 1; i < tiff.counts[tag]; i++) /* all samples are alike */
            assert_int_equal(get(&tiff, value + i * width, width), tiff.tags[tag]);
    }
    assert_int_equal(get(&tiff, at, field), 0); /* no second image */
    return tiff;
}

static void check_tiff(const struct sfs_type *type, uint64_t rows, uint64_t columns, bool big,
                       unsigned format)
{
    struct view_head head = {0};
    assert_int_equal(tiff_header(type, 2, (uint64_t[]){rows, columns}, &head), 0);
    assert_int_equal(head.n, 256);
    struct tiff tiff = read_tiff(&head);
    assert_int_equal(tiff.big, big);
    assert_int_equal(tiff.big_endian, type->big_endian && type->size > 1);
    assert_int_equal(tiff.tags[256], columns);
    assert_int_equal(tiff.tags[257], rows);
    assert_int_equal(tiff.tags[258], 8 * type->size);
    assert_int_equal(tiff.tags[259], 1);
    assert_int_equal(tiff.tags[262], 1);
    assert_int_equal(tiff.tags[273], head.n);
    assert_int_equal(tiff.tags[277], 1);
    assert_int_equal(tiff.tags[278], rows);
    assert_int_equal(tiff.tags[279], rows * columns * type->size);
    assert_int_equal(tiff.tags[339], format);
    free(head.bytes);
}

static void images_of_all_numbers_have_a_tiff_header(void **state)
{
    (void)state;
    check_tiff(&uint16_type, 100, 200, false, 1);
    check_tiff(&float64_big, 3, 1, false, 3);
    check_tiff(&(struct sfs_type){.class = SFS_INTEGER, .size = 4, .is_signed = true}, 1, 1, false,
               2);
    check_tiff(&(struct sfs_type){.class = SFS_INTEGER, .size = 1, .big_endian = true}, 5, 5, false,
               1);
    check_tiff(&(struct sfs_type){.class = SFS_ENUM, .size = 1, .is_signed = true}, 5, 5, false, 2);
    check_tiff(&(struct sfs_type){.class = SFS_BITFIELD, .size = 8}, 5, 5, false, 1);
}

static void check_colours(const struct sfs_type *type, uint64_t columns, unsigned samples, bool big)
{
    struct view_head head = {0};
    assert_int_equal(tiff_header(type, 3, (uint64_t[]){70000, columns, samples}, &head), 0);
    assert_int_equal(head.n, 512);
    struct tiff tiff = read_tiff(&head);
    assert_int_equal(tiff.big, big);
    assert_int_equal(tiff.tags[256], columns);
    assert_int_equal(tiff.tags[257], 70000);
    assert_int_equal(tiff.counts[258], samples);
    assert_int_equal(tiff.tags[258], 8 * type->size);
    assert_int_equal(tiff.tags[262], 2);
    assert_int_equal(tiff.tags[273], head.n);
    assert_int_equal(tiff.tags[277], samples);
    assert_int_equal(tiff.tags[279], 70000 * columns * samples * type->size);
    assert_int_equal(tiff.tags[284], 1);
    assert_int_equal(tiff.counts[338], samples - 3);
    assert_int_equal(tiff.tags[338], samples == 4 ? 2 : 0);
    assert_int_equal(tiff.counts[339], 0); /* unsigned, as it is if nobody says so */
    free(head.bytes);
}

static void three_and_four_samples_are_colours(void **state)
{
    (void)state;
    const struct sfs_type byte = {.class = SFS_INTEGER, .size = 1};
    const struct sfs_type big_endian = {.class = SFS_INTEGER, .size = 2, .big_endian = true};
    for (unsigned samples = 3; samples <= 4; samples++) {
        check_colours(&byte, 5, samples, false);
        check_colours(&uint16_type, 1, samples, false);
        check_colours(&big_endian, 7, samples, false);
        check_colours(&byte, 30000, samples, true);
        check_colours(&big_endian, 20000, samples, true);
    }
}

static void files_beyond_32_bits_are_big_tiff(void **state)
{
    (void)state;
    const struct sfs_type byte = {.class = SFS_INTEGER, .size = 1};
    check_tiff(&byte, 1, UINT32_MAX - 256, false, 1); /* the whole file: 2^32 - 1 bytes */
    check_tiff(&byte, 1, UINT32_MAX - 255, true, 1);
    check_tiff(&uint16_type, 65536, 32766, false, 1);
    check_tiff(&uint16_type, 65536, 32768, true, 1);
    check_tiff(&float64_big, 1 << 20, 1 << 20, true, 3);
    check_tiff(&byte, UINT32_MAX, UINT32_MAX, true, 1);
}

static void what_is_no_image_has_no_tiff_header(void **state)
{
    (void)state;
    static const uint64_t square[] = {2, 2, 2}, empty[] = {0, 5}, wide[] = {1, (uint64_t)1 << 32};
    static const uint64_t tall[] = {(uint64_t)1 << 32, 1}, huge[] = {UINT32_MAX, UINT32_MAX};
    const struct sfs_type string = {.class = SFS_STRING, .size = 4};
    const struct sfs_type wide_float = {.class = SFS_FLOAT, .size = 16};
    static const uint64_t colours[] = {2, 2, 3}, flat[] = {0, 2, 3};
    const struct sfs_type int16 = {.class = SFS_INTEGER, .size = 2, .is_signed = true};
    const struct {
        const struct sfs_type *type;
        int rank;
        const uint64_t *dims;
    } cases[] = {
        {&uint16_type, 0, square},  {&uint16_type, 1, square}, {&uint16_type, 3, square},
        {&uint16_type, 2, empty},   {&uint16_type, 2, wide},   {&uint16_type, 2, tall},
        {&uint16_type, 2, huge},    {&string, 2, square},      {&wide_float, 2, square},
        {&float64_big, 3, colours}, {&int16, 3, colours},      {&uint16_type, 3, flat},
    };
    for (size_t i = 0; i < COUNT(cases); i++) {
        struct view_head head = {0};
        assert_int_equal(tiff_header(cases[i].type, cases[i].rank, cases[i].dims, &head), 0);
        assert_null(head.bytes);
        assert_int_equal(head.n, 0);
    }
}

/* The process that is to decode it says so, and ends before it has taken it; a sanitizer's has no
 * limit. */
static void a_file_for_which_there_is_no_memory_is_not_called_another_one(void **state)
{
    (void)state;
    const size_t memory = (size_t)256 << 20, n = IS_SANITIZED ? 1000 : 2 * memory;
    const struct image image = {.width = 4, .height = 3, .samples = 1, .bits = 8, .format = 1};
    char dense[12], *bytes = calloc(n, 1);
    struct why why = {""};
    assert_non_null(bytes);
    assert_int_equal(views_start_decoder(memory), 0);
    assert_int_equal(image_decode(&image, bytes, 100, dense, &why), -EINVAL);
    assert_int_equal(image_decode(&image, bytes, n, dense, &why),
                     HAVE_LIBTIFF && !IS_SANITIZED ? -ENOMEM : -EINVAL);
    free(bytes);
}

/* ---- JSON strings ---- */

static char *json_of(const char *bytes, size_t n)
{
    char *text, *tight = allocate(n);
    size_t length;
    memcpy(tight, bytes, n);
    FILE *out = open_memstream(&text, &length);
    assert_non_null(out);
    json_string(out, tight, n);
    fclose(out);
    free(tight);
    return text;
}

static void expect_json(const char *bytes, size_t n, const char *expected)
{
    char *text = json_of(bytes, n);
    assert_string_equal(text, expected);
    free(text);
}

#define EXPECT_JSON(literal, expected) expect_json(literal, sizeof(literal) - 1, expected)

static void text_stays_as_it_is(void **state)
{
    (void)state;
    EXPECT_JSON("", "\"\"");
    EXPECT_JSON("plain text", "\"plain text\"");
    EXPECT_JSON("\xc3\xa4\xe2\x82\xac\xf0\x9f\x98\x80", "\"\xc3\xa4\xe2\x82\xac\xf0\x9f\x98\x80\"");
    EXPECT_JSON("\xf4\x8f\xbf\xbf\xed\x9f\xbf\xee\x80\x80",
                "\"\xf4\x8f\xbf\xbf\xed\x9f\xbf\xee\x80\x80\"");
}

static void what_json_reserves_is_escaped(void **state)
{
    (void)state;
    EXPECT_JSON("say \"a\\b\"", "\"say \\\"a\\\\b\\\"\"");
    EXPECT_JSON("\n\t\x01\x1f\x7f", "\"\\u000a\\u0009\\u0001\\u001f\\u007f\"");
    EXPECT_JSON("a\0b", "\"a\\u0000b\"");
}

static void what_is_not_utf8_is_taken_as_latin_1(void **state)
{
    (void)state;
    EXPECT_JSON("\xe9", "\"\\u00e9\"");
    EXPECT_JSON("\x80\xbf\xff\xfe", "\"\\u0080\\u00bf\\u00ff\\u00fe\"");
    EXPECT_JSON("\xc0\xaf", "\"\\u00c0\\u00af\"");                       /* '/' in two bytes */
    EXPECT_JSON("\xe0\x9f\xbf", "\"\\u00e0\\u009f\\u00bf\"");            /* too long a form */
    EXPECT_JSON("\xed\xa0\x80", "\"\\u00ed\\u00a0\\u0080\"");            /* a surrogate */
    EXPECT_JSON("\xf4\x90\x80\x80", "\"\\u00f4\\u0090\\u0080\\u0080\""); /* beyond U+10FFFF */
    EXPECT_JSON("\xe2\x82", "\"\\u00e2\\u0082\"");                       /* cut off */
    EXPECT_JSON("\xf0\x9f\x98", "\"\\u00f0\\u009f\\u0098\"");
    EXPECT_JSON("\xe2\x82\xac\xe2", "\"\xe2\x82\xac\\u00e2\"");
    EXPECT_JSON("\xe2(\xac", "\"\\u00e2(\\u00ac\"");
}

/* Read back by the rules of RFC 8259 every string is valid and as long as its characters. */
static void random_bytes_make_valid_strings(void **state)
{
    (void)state;
    for (int round = 0; round < 20000; round++) {
        char bytes[40];
        size_t n = random_below(sizeof(bytes));
        random_fill(bytes, n);
        char *text = json_of(bytes, n);
        size_t length = strlen(text), characters = 0;
        assert_true(length >= 2 && text[0] == '"' && text[length - 1] == '"');
        for (const unsigned char *c = (unsigned char *)text + 1;
             c < (unsigned char *)text + length - 1; characters++) {
            assert_true(*c >= 0x20 && *c != '"');
            if (c[0] == '\\') {
                assert_true(c[1] == '"' || c[1] == '\\' || c[1] == 'u');
                if (c[1] == 'u')
                    assert_int_equal(strspn((const char *)c + 2, "0123456789abcdef") >= 4, true);
                c += c[1] == 'u' ? 6 : 2;
            } else {
                c += *c < 0x80 ? 1 : *c < 0xE0 ? 2 : *c < 0xF0 ? 3 : 4;
            }
        }
        assert_true(characters <= n);
        free(text);
    }
}

TEST_MAIN(cmocka_unit_test(shapes_are_tuples),
          cmocka_unit_test(data_is_aligned_behind_headers_of_every_length),
          cmocka_unit_test(types_have_their_numpy_names),
          cmocka_unit_test(dims_of_array_types_end_the_shape),
          cmocka_unit_test(members_are_listed_in_order_with_the_gaps_between),
          cmocka_unit_test(headers_of_more_than_64_kib_have_version_2),
          cmocka_unit_test(names_outside_of_ascii_need_version_3),
          cmocka_unit_test(names_that_are_not_utf8_are_taken_as_latin_1),
          cmocka_unit_test(images_of_all_numbers_have_a_tiff_header),
          cmocka_unit_test(three_and_four_samples_are_colours),
          cmocka_unit_test(files_beyond_32_bits_are_big_tiff),
          cmocka_unit_test(what_is_no_image_has_no_tiff_header),
          cmocka_unit_test(a_file_for_which_there_is_no_memory_is_not_called_another_one),
          cmocka_unit_test(text_stays_as_it_is), cmocka_unit_test(what_json_reserves_is_escaped),
          cmocka_unit_test(what_is_not_utf8_is_taken_as_latin_1),
          cmocka_unit_test(random_bytes_make_valid_strings))
