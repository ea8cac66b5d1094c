/* Where the members of series lie. */
#include "support.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "dataset/series_place.h"

static void names_of_members(void **state)
{
    (void)state;
    static const struct {
        const char *name;
        uint64_t number;
    } members[] = {{"data_000000", 0},
                   {"data_000001", 1},
                   {"data_999999", 999999},
                   {"data_1000000", 1000000},
                   {"data_123456789012345678", 123456789012345678}};
    static const char *const others[] = {"data",
                                         "data_",
                                         "data_1",
                                         "data_00001",
                                         "data_0000001",
                                         "data_00000a",
                                         "data_000001_",
                                         "data_ 00001",
                                         "data_-00001",
                                         "image_000001",
                                         "data000001",
                                         "Data_000001",
                                         "data_1234567890123456789",
                                         "data_99999999999999999999999999"};
    uint64_t number;
    char name[SERIES_NAME_BYTES];
    for (size_t i = 0; i < COUNT(members); i++) {
        assert_true(series_number(members[i].name, &number));
        assert_true(number == members[i].number);
        series_name(number, name);
        assert_string_equal(name, members[i].name);
    }
    for (size_t i = 0; i < COUNT(others); i++)
        assert_false(series_number(others[i], &number));
}

#define NUMBERED(at, from, to)                                                                     \
    {                                                                                              \
        .number = at, .has_low = true, .low = from, .has_high = true, .high = to,                  \
        .frames = to - from + 1                                                                    \
    }
#define FROM(at, from, n)                                                                          \
    {                                                                                              \
        .number = at, .has_low = true, .low = from, .frames = n                                    \
    }
#define PLAIN(at, n)                                                                               \
    {                                                                                              \
        .number = at, .frames = n                                                                  \
    }
#define GONE(at)                                                                                   \
    {                                                                                              \
        .number = at, .is_missing = true                                                           \
    }
#define SHOWN(at, from, n)                                                                         \
    {                                                                                              \
        at, false, from, n                                                                         \
    }
#define LACKING(at, from, n)                                                                       \
    {                                                                                              \
        at, true, from, n                                                                          \
    }

static void check(const struct series_member *member, size_t n, const struct series_part *part,
                  size_t n_parts)
{
    struct series_parts parts;
    struct why why;
    uint64_t frames = 0;
    assert_int_equal(series_place(member, n, &parts, &why), 0);
    assert_int_equal(parts.n, n_parts);
    for (size_t i = 0; i < n_parts; i++) {
        assert_true(parts.part[i].number == part[i].number);
        assert_true(parts.part[i].is_missing == part[i].is_missing);
        assert_true(parts.part[i].first == part[i].first && part[i].first == frames);
        assert_true(parts.part[i].n == part[i].n);
        frames += part[i].n;
    }
    assert_true(parts.frames == frames);
    free(parts.part);
}

#define CHECK(members, parts) check(members, COUNT(members), parts, COUNT(parts))

static void members_in_order(void **state)
{
    (void)state;
    const struct series_member one[] = {PLAIN(1, 7)}, plain[] = {PLAIN(0, 3), PLAIN(1, 4)};
    const struct series_member skipping[] = {PLAIN(1, 3), PLAIN(5, 4)};
    const struct series_member numbered[] = {NUMBERED(1, 1, 10), NUMBERED(2, 11, 15)};
    const struct series_member later[] = {NUMBERED(7, 101, 110), FROM(8, 111, 2)};
    const struct series_member turned[] = {FROM(1, 11, 2), FROM(2, 1, 10)};
    const struct series_member mixed[] = {FROM(1, 5, 2), PLAIN(2, 3), FROM(3, 10, 1)};
    const struct series_member empty[] = {PLAIN(1, 0), NUMBERED(2, 1, 3), PLAIN(3, 0)};
    const struct series_part of_one[] = {SHOWN(1, 0, 7)};
    const struct series_part of_plain[] = {SHOWN(0, 0, 3), SHOWN(1, 3, 4)};
    const struct series_part of_skipping[] = {SHOWN(1, 0, 3), SHOWN(5, 3, 4)};
    const struct series_part of_numbered[] = {SHOWN(1, 0, 10), SHOWN(2, 10, 5)};
    const struct series_part of_later[] = {SHOWN(7, 0, 10), SHOWN(8, 10, 2)};
    const struct series_part of_turned[] = {SHOWN(2, 0, 10), SHOWN(1, 10, 2)};
    const struct series_part of_mixed[] = {SHOWN(1, 0, 2), SHOWN(2, 2, 3), SHOWN(3, 5, 1)};
    const struct series_part of_empty[] = {SHOWN(2, 0, 3)};
    CHECK(one, of_one);
    CHECK(plain, of_plain);
    CHECK(skipping, of_skipping);
    CHECK(numbered, of_numbered);
    CHECK(later, of_later);
    CHECK(turned, of_turned);
    CHECK(mixed, of_mixed);
    CHECK(empty, of_empty);
}

static void gaps(void **state)
{
    (void)state;
    const struct series_member within[] = {NUMBERED(1, 1, 3), GONE(2), GONE(3), FROM(4, 10, 1)};
    const struct series_member absent[] = {NUMBERED(1, 1, 3), FROM(3, 10, 1)};
    const struct series_member cut[] = {NUMBERED(1, 1, 3), FROM(2, 10, 1)};
    const struct series_member first[] = {GONE(1), FROM(2, 5, 2)};
    const struct series_member last[] = {PLAIN(1, 2), GONE(2), GONE(3)};
    const struct series_member unneeded[] = {FROM(1, 1, 2), GONE(2), FROM(3, 3, 2)};
    const struct series_member more[] = {
        {.number = 1, .has_low = true, .low = 1, .has_high = true, .high = 8, .frames = 5}};
    const struct series_part of_within[] = {SHOWN(1, 0, 3), LACKING(2, 3, 6), SHOWN(4, 9, 1)};
    const struct series_part of_absent[] = {SHOWN(1, 0, 3), LACKING(2, 3, 6), SHOWN(3, 9, 1)};
    const struct series_part of_cut[] = {SHOWN(1, 0, 9), SHOWN(2, 9, 1)};
    const struct series_part of_first[] = {LACKING(1, 0, 4), SHOWN(2, 4, 2)};
    const struct series_part of_last[] = {SHOWN(1, 0, 2)};
    const struct series_part of_unneeded[] = {SHOWN(1, 0, 2), SHOWN(3, 2, 2)};
    const struct series_part of_more[] = {SHOWN(1, 0, 8)};
    CHECK(within, of_within);
    CHECK(absent, of_absent);
    CHECK(cut, of_cut);
    CHECK(first, of_first);
    CHECK(last, of_last);
    CHECK(unneeded, of_unneeded);
    CHECK(more, of_more);
}

static void check_refused(const struct series_member *member, size_t n, const char *words)
{
    struct series_parts parts;
    struct why why = {""};
    assert_int_equal(series_place(member, n, &parts, &why), -EILSEQ);
    assert_null(parts.part);
    assert_non_null(strstr(why.text, words));
}

static void contradictions(void **state)
{
    (void)state;
    const struct series_member twice[] = {FROM(1, 1, 10), FROM(2, 10, 10)};
    const struct series_member inside[] = {FROM(1, 1, 10), FROM(2, 4, 1)};
    const struct series_member unknown[] = {PLAIN(1, 3), GONE(2), PLAIN(3, 3)};
    const struct series_member backwards[] = {
        {.number = 1, .has_low = true, .low = 9, .has_high = true, .high = 3, .frames = 3}};
    const struct series_member high[] = {FROM(1, INT64_MAX, 1)};
    const struct series_member higher[] = {FROM(1, UINT64_MAX, 1)};
    const struct series_member highest[] = {
        {.number = 1, .has_low = true, .has_high = true, .high = UINT64_MAX, .frames = 3}};
    check_refused(twice, COUNT(twice), "data_000002: other members");
    check_refused(inside, COUNT(inside), "data_000002: other members");
    check_refused(unknown, COUNT(unknown), "data_000003: one before it is missing");
    check_refused(backwards, COUNT(backwards), "data_000001: image_nr_high");
    check_refused(high, COUNT(high), "too large");
    check_refused(higher, COUNT(higher), "too large");
    check_refused(highest, COUNT(highest), "too large");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(names_of_members),
        cmocka_unit_test(members_in_order),
        cmocka_unit_test(gaps),
        cmocka_unit_test(contradictions),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
