/* File names of links: every link has one of its own, and it is a file name. */
#include "support.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "fs/escaped_names.h"

static bool is_file_name(const char *name)
{
    size_t n = strlen(name);
    return n >= 1 && n <= 255 && !strchr(name, '/') && strcmp(name, ".") && strcmp(name, "..");
}

/* The links that are easily mistaken for another. */
static const char *const adversarial[] = {
    "%2E",
    "%2e",
    "%%",
    "%~",
    "..",
    ".",
    ".sparsefs",
    "%2Esparsefs",
    "%2E%2E",
    "%252E",
    "%25",
    "%",
    "%2",
    "%2F",
    "/",
    "//",
    "a/b",
    "a%2Fb",
    "a%2fb",
    "...",
    ".a",
    "..a",
    "%25~",
    "%~%~",
    "%%2E",
    "%2%2E",
    "%00",
    "%GG",
    "100%",
    "%41",
    "A",
    "%/",
    "/%",
    "%7E",
    "~",
    "%~0123456789abcdef",
    ".sparsefs/",
    "/.sparsefs",
    "%2Esparsefs%",
    ".Sparsefs",
    ".sparsefs ",
    "..%",
    ".%",
    "%.",
    "%..",
    "external:",
    "external:a:b",
    "%65xternal:",
    "external",
    "external%3A",
    "user-defined-link",
    "%75ser-defined-link",
    "too-many-levels-of-groups",
    "user-defined-links",
};

/* Random bytes without NUL, of an alphabet that makes clashes likely or of all bytes. */
static void random_link(char *link, size_t n)
{
    static const char likely[] = "%%%%.~/2EeFf0a.5";
    bool any = random_below(2);
    for (size_t i = 0; i < n; i++)
        link[i] = any ? (char)random_between(1, 255) : likely[random_below(sizeof(likely) - 1)];
    link[n] = '\0';
}

static void check_round_trip(const char *link, bool in_root)
{
    char *name = allocate(NAME_BYTES), *again = allocate(NAME_BYTES);
    link_name_encode(link, in_root, name);
    assert_true(is_file_name(name));
    if (in_root)
        assert_string_not_equal(name, NAME_CONTROL);
    assert_int_not_equal(strncmp(name, NAME_EXTERNAL, strlen(NAME_EXTERNAL)), 0);
    assert_string_not_equal(name, NAME_USER_DEFINED);
    assert_string_not_equal(name, NAME_TOO_DEEP);
    if (link_name_is_cut(name)) {
        assert_true(strlen(link) > 80); /* three bytes for one at most */
        const char *hash = strstr(name, "%~") + 2;
        assert_int_equal(strspn(hash, "0123456789abcdef"), 16);
        assert_int_equal(hash[16], '\0');
        assert_false(link_name_decode(name, in_root, again));
    } else {
        assert_true(link_name_decode(name, in_root, again));
        assert_string_equal(again, link);
    }
    free(again);
    free(name);
}

static void names_lead_back_to_their_links(void **state)
{
    (void)state;
    char link[401];
    for (size_t i = 0; i < COUNT(adversarial); i++)
        for (int in_root = 0; in_root < 2; in_root++)
            check_round_trip(adversarial[i], in_root);
    for (size_t n = 1; n <= 400; n++) {
        for (int round = 0; round < 50; round++) {
            random_link(link, n);
            check_round_trip(link, round % 2);
        }
    }
}

static void ordinary_names_stay_as_they_are(void **state)
{
    (void)state;
    static const char *const ordinary[] = {"entry",     "data_000001", "a b",       "100%",
                                           "50% of it", "x%zz",        "\xc3\xa4",  "~",
                                           "...",       ".hidden",     "a.sparsefs"};
    char name[NAME_BYTES], longest[256];
    memset(longest, 'x', 255);
    longest[255] = '\0';
    for (size_t i = 0; i < COUNT(ordinary); i++) {
        link_name_encode(ordinary[i], true, name);
        assert_string_equal(name, ordinary[i]);
    }
    link_name_encode(longest, true, name);
    assert_string_equal(name, longest);
}

static void names_with_a_meaning_are_spelled_out(void **state)
{
    (void)state;
    static const struct {
        const char *link;
        bool in_root;
        const char *name;
    } cases[] = {
        {".", false, "%2E"},
        {"..", true, "%2E%2E"},
        {".sparsefs", true, "%2Esparsefs"},
        {".sparsefs", false, ".sparsefs"},
        {"a/b", false, "a%2Fb"},
        {"%2F", false, "%252F"},
        {"a%~", false, "a%25~"},
    };
    char name[NAME_BYTES];
    for (size_t i = 0; i < COUNT(cases); i++) {
        link_name_encode(cases[i].link, cases[i].in_root, name);
        assert_string_equal(name, cases[i].name);
    }
}

struct pair {
    char name[NAME_BYTES];
    char link[401];
};

static int by_name(const void *a, const void *b)
{
    return strcmp(((const struct pair *)a)->name, ((const struct pair *)b)->name);
}

/* Random links, many of them made from one another by encoding or by a small change. */
static void no_two_links_share_a_name(void **state)
{
    (void)state;
    enum { PAIRS = 50000 };
    struct pair *pairs = calloc(PAIRS, sizeof(*pairs));
    assert_non_null(pairs);
    for (int in_root = 0; in_root < 2; in_root++) {
        for (size_t i = 0; i < PAIRS; i++) {
            char *link = pairs[i].link;
            if (i < COUNT(adversarial))
                strcpy(link, adversarial[i]);
            else if (random_below(3) == 0)
                strcpy(link, pairs[random_below(i)].name);
            else if (random_below(2))
                random_link(link, random_between(1, random_below(2) ? 5 : 400));
            else {
                strcpy(link, pairs[random_below(i)].link);
                link[random_below(strlen(link))] = "%~.2Ex"[random_below(6)];
            }
            link_name_encode(link, in_root, pairs[i].name);
        }
        qsort(pairs, PAIRS, sizeof(*pairs), by_name);
        for (size_t i = 1; i < PAIRS; i++)
            if (!strcmp(pairs[i - 1].name, pairs[i].name))
                assert_string_equal(pairs[i - 1].link, pairs[i].link);
    }
    free(pairs);
}

static void other_spellings_are_no_names(void **state)
{
    (void)state;
    static const char *const wrong[] = {"%2e",  "%41",         "a%2fb",  "%25",   "%00",   "a%00",
                                        "%2E.", "%2Esparsefs", "%2E%2e", "a%20b", "%~0123"};
    char link[NAME_BYTES], too_long[301];
    for (size_t i = 0; i < COUNT(wrong); i++)
        assert_false(link_name_decode(wrong[i], false, link));
    assert_false(link_name_decode(".sparsefs", true, link));
    memset(too_long, 'x', 300);
    too_long[300] = '\0';
    assert_false(link_name_decode(too_long, false, link));
}

TEST_MAIN(cmocka_unit_test(names_lead_back_to_their_links),
          cmocka_unit_test(ordinary_names_stay_as_they_are),
          cmocka_unit_test(names_with_a_meaning_are_spelled_out),
          cmocka_unit_test(no_two_links_share_a_name),
          cmocka_unit_test(other_spellings_are_no_names))
