/* Frames of Blosc2 that its filter makes nowhere here: with axes, of which no element is where it
 * belongs, with nothing but a word for all elements, and those that must not reach libblosc2. */
#include "support.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "filter/filter.h"

#define MOST_AXES   8
#define MOST_BYTES  40000
#define HEADER      97 /* bytes of a frame without axes before its chunk */
#define FIRST_AXES  (HEADER - 3)
#define MOST_FRAME  (2 * MOST_BYTES + 1000)
#define INDEX_VALUE 32 /* where an index has its offset */

struct array {
    unsigned rank;
    uint64_t dims[MOST_AXES], blocks[MOST_AXES];
    size_t element, bytes, padded;
};

struct frame {
    unsigned char bytes[MOST_FRAME];
    size_t n, header;
};

static void put(unsigned char *at, unsigned width, uint64_t value)
{
    while (width-- > 0) {
        at[width] = (unsigned char)value;
        value >>= 8;
    }
}

static uint64_t get(const unsigned char *at, unsigned width)
{
    uint64_t value = 0;
    while (width-- > 0)
        value = value << 8 | *at++;
    return value;
}

/* `out` has room for *n bytes. */
static int encode(const struct sfs_filter *filter, const void *in, size_t size, void *out,
                  size_t *n)
{
    return filter_encode(&(struct filter_pipeline){1, filter}, in, size, NULL, out, n);
}

/* As sparsefs makes it. */
static void make_frame(const void *in, size_t size, unsigned element, unsigned level,
                       unsigned shuffling, struct frame *frame)
{
    const unsigned values[] = {1, 0, element, (unsigned)size, level, shuffling, 1};
    const struct sfs_filter filter = {.id = FILTER_BLOSC2, .n_values = 7, .values = values};
    frame->n = MOST_FRAME;
    assert_int_equal(encode(&filter, in, size, frame->bytes, &frame->n), 0);
    frame->header = HEADER;
}

static int decode(const struct frame *frame, size_t size, unsigned char **out)
{
    const struct sfs_filter filter = {.id = FILTER_BLOSC2};
    unsigned char *tight = allocate(frame->n);
    memcpy(tight, frame->bytes, frame->n);
    *out = allocate(size);
    memset(*out, 0x5A, size);
    int error =
        filter_decode(&(struct filter_pipeline){1, &filter}, tight, frame->n, NULL, *out, size);
    free(tight);
    return error;
}

static void expect(const struct frame *frame, const void *bytes, size_t size)
{
    unsigned char *out;
    assert_int_equal(decode(frame, size, &out), 0);
    assert_memory_equal(out, bytes, size);
    free(out);
}

static void expect_refused(const struct frame *frame, size_t size)
{
    unsigned char *out;
    assert_int_equal(decode(frame, size, &out), -EILSEQ);
    free(out);
}

/* ---- Axes ---- */

static unsigned char *put_numbers(unsigned char *at, unsigned rank, unsigned width,
                                  const uint64_t *numbers)
{
    *at++ = (unsigned char)(0x90 | rank);
    for (unsigned i = 0; i < rank; i++, at += width) {
        *at++ = width == 8 ? 0xD3 : 0xD2;
        put(at, width, numbers[i]);
    }
    return at;
}

/* Puts a metalayer behind another one, into a frame that has none. */
static void add_axes(struct frame *frame, const char *name, const struct array *array)
{
    unsigned char more[400] = {0}, *at = more;
    size_t length = strlen(name);
    static const unsigned char other[] = {0xA1, 'x', 0xD2, 0, 0, 0, 0};
    memcpy(at, other, sizeof(other));
    at += sizeof(other);
    *at++ = (unsigned char)(0xA0 | length);
    memcpy(at, name, length);
    at += length;
    *at++ = 0xD2;
    put(at, 4, FIRST_AXES + (uint64_t)(at + 4 - more) + 3);
    at += 4;
    *at++ = 0xDC;
    put(at, 2, 2);
    at += 2;
    unsigned char *content = at;
    *at = 0xC6;
    at += 5;
    *at++ = 0x97;
    *at++ = 0;
    *at++ = (unsigned char)array->rank;
    at = put_numbers(at, array->rank, 8, array->dims);
    at = put_numbers(at, array->rank, 4, array->dims);
    at = put_numbers(at, array->rank, 4, array->blocks);
    put(content + 1, 4, (uint64_t)(at - content) - 5);
    size_t n = (size_t)(at - more) - 3;
    memmove(frame->bytes + HEADER + n, frame->bytes + HEADER, frame->n - HEADER);
    memcpy(frame->bytes + FIRST_AXES, more, n + 3);
    put(frame->bytes + FIRST_AXES - 2, 2, 2);
    frame->n += n;
    frame->header += n;
    put(frame->bytes + 11, 4, frame->header);
    put(frame->bytes + 16, 8, frame->n);
    put(frame->bytes + 48, 4, array->element);
}

static struct array random_array(void)
{
    static const size_t elements[] = {1, 2, 4, 8, 3, 300};
    struct array array = {.rank = (unsigned)random_between(1, MOST_AXES),
                          .element = elements[random_below(COUNT(elements))]};
    for (;;) {
        array.bytes = array.padded = array.element;
        for (unsigned i = 0; i < array.rank; i++) {
            uint64_t dim = random_between(1, array.rank < 4 ? 20 : 4);
            uint64_t block = random_below(3) ? random_between(1, dim) : dim;
            array.dims[i] = dim;
            array.blocks[i] = block;
            array.bytes *= dim;
            array.padded *= (dim + block - 1) / block * block;
        }
        if (array.padded <= MOST_BYTES)
            return array;
    }
}

/* Where an element is in whole blocks, one after the other. */
static size_t place_of(const struct array *array, size_t number)
{
    uint64_t at[MOST_AXES], block = 0, in = 0;
    for (unsigned i = array->rank; i-- > 0; number /= array->dims[i])
        at[i] = number % array->dims[i];
    uint64_t n = 1;
    for (unsigned i = 0; i < array->rank; i++) {
        block = block * ((array->dims[i] + array->blocks[i] - 1) / array->blocks[i]) +
                at[i] / array->blocks[i];
        in = in * array->blocks[i] + at[i] % array->blocks[i];
        n *= array->blocks[i];
    }
    return (size_t)(block * n + in);
}

static void elements_get_to_their_places(void **state)
{
    (void)state;
    static struct frame frame;
    static unsigned char bytes[MOST_BYTES], padded[MOST_BYTES];
    for (int round = 0; round < 3000; round++) {
        struct array array = random_array();
        size_t element = array.element;
        for (size_t i = 0; i < array.bytes; i++)
            bytes[i] = (unsigned char)(random_below(3) ? i / 7 : random_below(256));
        random_fill(padded, array.padded);
        for (size_t i = 0; i < array.bytes / element; i++)
            memcpy(padded + place_of(&array, i) * element, bytes + i * element, element);
        make_frame(padded, array.padded, (unsigned)element, (unsigned)random_below(10),
                   (unsigned)random_below(3), &frame);
        add_axes(&frame, round % 2 ? "b2nd" : "caterva", &array);
        expect(&frame, bytes, array.bytes);
    }
}

static void axes_that_do_not_fit_are_refused(void **state)
{
    (void)state;
    static struct frame frame;
    unsigned char bytes[96] = {1, 2, 3};
    const struct array sound = {2, {4, 5}, {2, 3}, 4, 80, 96};
    struct array array[9];
    for (size_t i = 0; i < COUNT(array); i++)
        array[i] = sound;
    array[1].blocks[0] = 0;
    array[2].blocks[1] = 6; /* more than there are */
    array[3].dims[0] = 0;
    array[4].dims[0] = (uint64_t)1 << 32;
    array[5].rank = 0;
    array[6].element = 8;
    array[7].dims[1] = 6;   /* as many whole blocks */
    array[8].blocks[1] = 4; /* more of them than the frame has */
    for (size_t i = 0; i < COUNT(array); i++) {
        unsigned char *out;
        make_frame(bytes, sizeof(bytes), 4, 0, 0, &frame);
        add_axes(&frame, "b2nd", &array[i]);
        assert_int_equal(decode(&frame, 80, &out), i == 0 ? 0 : -EILSEQ);
        free(out);
    }
}

static void metalayers_that_lead_out_are_refused(void **state)
{
    (void)state;
    static struct frame frame;
    unsigned char bytes[96] = {1, 2, 3};
    const struct array array = {2, {4, 5}, {2, 3}, 4, 80, 96};
    for (unsigned i = 0; i < 6; i++) {
        make_frame(bytes, sizeof(bytes), 4, 0, 0, &frame);
        add_axes(&frame, "b2nd", &array);
        unsigned char *offset = frame.bytes + FIRST_AXES + 7 + 6;
        unsigned char *content = frame.bytes + get(offset, 4);
        assert_int_equal(*content, 0xC6);
        const struct {
            unsigned char *at;
            uint64_t value;
        } wrong[] = {
            {offset, UINT32_MAX},      {offset, frame.header - 4},
            {offset, FIRST_AXES},      {content + 1, frame.header},
            {content + 1, UINT32_MAX}, {content + 1, get(content + 1, 4) / 2},
        };
        put(wrong[i].at, 4, wrong[i].value);
        expect_refused(&frame, 80);
    }
}

/* A frame that says of its chunk but that it is zero. */
static void whole_blocks_may_not_be_many_more_bytes(void **state)
{
    (void)state;
    static struct frame frame;
    unsigned char *zeros = allocate(1419857);
    memset(zeros, 0, 1419857);
    const struct array sound = {5, {17, 17, 17, 17, 17}, {16, 17, 17, 17, 17}, 1, 1419857, 2672672};
    const struct array wide = {5, {17, 17, 17, 17, 17}, {16, 16, 16, 16, 16}, 1, 1419857, 33554432};
    make_frame(zeros, 100, 1, 5, 1, &frame);
    put(frame.bytes + 30, 8, sound.padded);
    add_axes(&frame, "b2nd", &sound);
    expect(&frame, zeros, sound.bytes);
    make_frame(zeros, 100, 1, 5, 1, &frame);
    put(frame.bytes + 30, 8, wide.padded);
    add_axes(&frame, "b2nd", &wide);
    expect_refused(&frame, wide.bytes);
    free(zeros);
}

/* ---- Words for all elements ---- */

/* The index of a frame as sparsefs makes it is a copy, before a trailer of 35 bytes. */
static unsigned char *index_of(struct frame *frame)
{
    return frame->bytes + frame->n - 35 - 40;
}

static void one_word_stands_for_all(void **state)
{
    (void)state;
    static struct frame frame;
    unsigned char zeros[800] = {0};
    unsigned char *out;
    for (unsigned element = 1; element <= 8; element++) {
        size_t size = 100 * element;
        make_frame(zeros, size, element, 5, 1, &frame);
        assert_int_equal(frame.n, 172); /* no chunk at all */
        expect(&frame, zeros, size);
        index_of(&frame)[INDEX_VALUE + 7] = 0x84; /* no values: ours are zeros */
        expect(&frame, zeros, size);
        index_of(&frame)[INDEX_VALUE + 7] = 0x82; /* numbers that are none */
        bool is_float = element == 4 || element == 8;
        assert_int_equal(decode(&frame, size, &out), is_float ? 0 : -EILSEQ);
        for (size_t i = 0; is_float && i < 100; i++) {
            float four;
            double eight;
            memcpy(&four, out + 4 * i, 4);
            memcpy(&eight, out + (element == 8 ? 8 * i : 0), 8);
            assert_true(element == 8 ? isnan(eight) : isnan(four));
        }
        free(out);
        static const unsigned char none[] = {0x80, 0x83, 0x85, 0x87, 0xFB, 0x01};
        for (size_t i = 0; i < COUNT(none); i++) {
            index_of(&frame)[INDEX_VALUE + 7] = none[i];
            if ((none[i] & 0x87) != 0x83) /* a value is not in an index */
                expect_refused(&frame, size);
        }
    }
}

/* A chunk whose head says the same, where the index names it. */
static void a_chunk_may_say_it(void **state)
{
    (void)state;
    static struct frame frame;
    unsigned char bytes[600], noise[600];
    random_fill(noise, sizeof(noise));
    for (size_t i = 0; i < sizeof(bytes); i++)
        bytes[i] = (unsigned char)"abc"[i % 3];
    make_frame(noise, sizeof(noise), 3, 5, 0, &frame);
    unsigned char *chunk = frame.bytes + HEADER;
    assert_true(chunk[2] & 2); /* a copy */
    chunk[13]--;               /* of fewer bytes than there are */
    expect_refused(&frame, sizeof(bytes));
    chunk[13]++;
    chunk[2] &= (unsigned char)~2;
    chunk[31] = 0x30;
    memcpy(chunk + 32, "abcd", 4);
    chunk[12] = 32 + 3;
    chunk[13] = 0;
    expect(&frame, bytes, sizeof(bytes));
    chunk[12] = 32 + 4; /* 600 are 150 of these */
    for (size_t i = 0; i < sizeof(bytes); i++)
        bytes[i] = (unsigned char)"abcd"[i % 4];
    expect(&frame, bytes, sizeof(bytes));
    chunk[12] = 32 + 7;
    expect_refused(&frame, sizeof(bytes));
    chunk[12] = 32;
    expect_refused(&frame, sizeof(bytes));
    chunk[31] = 0x10;
    memset(bytes, 0, sizeof(bytes));
    expect(&frame, bytes, sizeof(bytes));
}

/* ---- What libblosc2 must not see ---- */

static void make_sound(unsigned char *bytes, size_t size, struct frame *frame)
{
    for (size_t i = 0; i < size; i++)
        bytes[i] = (unsigned char)(i % 4 ? 0 : i / 16);
    make_frame(bytes, size, 4, 5, 1, frame);
    expect(frame, bytes, size);
}

/* Bytes of the chunk's head. */
static void heads_that_harm_are_refused(void **state)
{
    (void)state;
    static const struct {
        unsigned at;
        unsigned char byte;
    } wrong[] = {
        {2, 0xC5},  {2, 0xE5},  {2, 0xA5}, /* codecs that others add */
        {2, 0x21},  {2, 0x24},             /* no filters in the head */
        {3, 0},     {3, 7},                /* elements of no bytes, or not those of a block */
        {4, 0xFF},  {7, 0xFF},             /* more bytes */
        {10, 0xFF}, {11, 0x7F},            /* larger blocks */
        {12, 33},   {15, 1},               /* no offsets of blocks; more than is there */
        {16, 3},    {20, 35},   {21, 35},  {21, 200}, /* filters that others add */
        {31, 1},    {31, 2},    {31, 4},   {31, 8},   {31, 0x80}, {31, 0x50}, {31, 0x70},
    };
    static struct frame frame;
    unsigned char bytes[4000];
    for (size_t i = 0; i < COUNT(wrong); i++) {
        make_sound(bytes, sizeof(bytes), &frame);
        if (wrong[i].at == 3)
            frame.bytes[HEADER + 2] &= (unsigned char)~0x10; /* split */
        frame.bytes[HEADER + wrong[i].at] = wrong[i].byte;
        if (wrong[i].at == 12)
            frame.bytes[HEADER + 13] = 0;
        expect_refused(&frame, sizeof(bytes));
    }
    make_sound(bytes, sizeof(bytes), &frame);
    memset(frame.bytes + HEADER + 8, 0, 4); /* blocks of no bytes */
    expect_refused(&frame, sizeof(bytes));
}

static void frames_that_are_not_sound_are_refused(void **state)
{
    (void)state;
    static const struct {
        unsigned at, width;
        uint64_t value;
    } wrong[] = {
        {0, 1, 0x9F},        {2, 1, 'B'},      {11, 4, 0},          {11, 4, 96},
        {11, 4, 98},         {11, 4, 5000},    {11, 4, UINT32_MAX}, {16, 8, 0},
        {16, 8, 97},         {16, 8, 1 << 20}, {16, 8, UINT64_MAX}, {25, 1, 0x02},
        {25, 1, 0x22},       {26, 1, 1}, /* in a directory */
        {30, 8, 0},          {30, 8, 3999},    {30, 8, 4001},       {30, 8, UINT64_MAX},
        {39, 8, 0},          {39, 8, 100},     {39, 8, UINT64_MAX}, {48, 4, 0},
        {48, 4, UINT32_MAX}, {92, 2, 1},       {92, 2, UINT16_MAX},
    };
    static struct frame frame;
    unsigned char bytes[4000];
    for (size_t i = 0; i < COUNT(wrong); i++) {
        make_sound(bytes, sizeof(bytes), &frame);
        put(frame.bytes + wrong[i].at, wrong[i].width, wrong[i].value);
        expect_refused(&frame, sizeof(bytes));
    }
    for (unsigned i = 0; i < 63; i++) { /* the chunk is elsewhere, or its like is not there */
        make_sound(bytes, sizeof(bytes), &frame);
        index_of(&frame)[INDEX_VALUE + i / 8] = (unsigned char)(1 << i % 8);
        expect_refused(&frame, sizeof(bytes));
    }
    make_sound(bytes, sizeof(bytes), &frame);
    assert_int_equal(get(frame.bytes + 16, 8), frame.n);
    memset(frame.bytes + frame.n, 0x33, 100); /* behind it may be anything */
    frame.n += 100;
    expect(&frame, bytes, sizeof(bytes));
}

static void what_is_asked_for_may_be_wrong(void **state)
{
    (void)state;
    static const unsigned wrong[][7] = {
        {1, 0, 0, 400, 5, 1, 1},          /* elements of no bytes */
        {1, 0, 4, 400, 10, 1, 1},         /* no such level */
        {1, 0x80000000, 4, 400, 5, 1, 1}, /* nor such blocks */
    };
    static const unsigned others[][7] = {
        {1, 0, 4, 400, 5, 3, 1}, {1, 0, 4, 400, 5, 1, 3}, {1, 0, 4, 400, 5, 1, 35}};
    unsigned char bytes[400] = {1}, out[1000];
    size_t n = sizeof(out);
    for (size_t i = 0; i < COUNT(wrong); i++) {
        const struct sfs_filter filter = {FILTER_BLOSC2, .n_values = 7, .values = wrong[i]};
        assert_int_equal(encode(&filter, bytes, 400, out, &n), -EINVAL);
    }
    for (size_t i = 0; i < COUNT(others); i++) { /* a plugin may have them */
        const struct sfs_filter filter = {FILTER_BLOSC2, .n_values = 7, .values = others[i]};
        assert_false(filter_is_native(&(struct filter_pipeline){1, &filter}));
    }
    const unsigned sound[] = {1, 0, 4, 400, 5, 1, 1};
    const struct sfs_filter filter = {FILTER_BLOSC2, .n_values = 7, .values = sound};
    assert_int_equal(setenv("BLOSC_DELTA", "1", 1), 0); /* libblosc2 obeys */
    assert_int_equal(encode(&filter, bytes, 400, out, &n), -EINVAL);
    assert_int_equal(unsetenv("BLOSC_DELTA"), 0);
    assert_int_equal(encode(&filter, bytes, 400, out, &n), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(elements_get_to_their_places),
        cmocka_unit_test(axes_that_do_not_fit_are_refused),
        cmocka_unit_test(metalayers_that_lead_out_are_refused),
        cmocka_unit_test(whole_blocks_may_not_be_many_more_bytes),
        cmocka_unit_test(one_word_stands_for_all),
        cmocka_unit_test(a_chunk_may_say_it),
        cmocka_unit_test(heads_that_harm_are_refused),
        cmocka_unit_test(frames_that_are_not_sound_are_refused),
        cmocka_unit_test(what_is_asked_for_may_be_wrong),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
