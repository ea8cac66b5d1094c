/* The power fails at every call of the store while random work goes on, with what was not synced
 * kept, lost or torn, and again while a file is recovered: the file always holds one of the states
 * that were flushed, not before the last flush that had returned, element for element.
 *
 *   test_crash [STATES]     at least so many different states; without it a few seconds' worth */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "../unit/support.h"
#include "disk.h"
#include "work.h"

#define PATH         DISK "/x.h5"
#define AFTER        "after"
#define AFTER_PATH   AFTER "/x.h5"
#define TEMPLATE     "template.h5"
#define MOST_FLUSHES 64
#define ALL_SUBSETS  6 /* calls of which every subset is tried */
#define SHORT_STATES 1500

static long wanted = SHORT_STATES;

/* A flush: calls before and after, and what the file holds then. */
struct flush {
    long begun, ended;
    struct model model;
};

static struct {
    struct sfs_file *template;
    struct flush flushes[MOST_FLUSHES]; /* the first: how the file was before */
    int n_flushes;
    bool existed;   /* the file, before */
    uint64_t *seen; /* sums of states, a hash set */
    size_t room;
    long states, opened_again, recovered;
} test;

/* ---- States that were seen ---- */

static bool is_new(uint64_t sum)
{
    if (!test.seen) {
        test.room = (size_t)1 << 20;
        test.seen = calloc(test.room, sizeof(*test.seen));
        assert_non_null(test.seen);
    }
    assert_true((size_t)test.states < test.room / 2);
    sum += !sum;
    size_t at = sum % test.room;
    while (test.seen[at] && test.seen[at] != sum)
        at = (at + 1) % test.room;
    bool is_new = !test.seen[at];
    test.seen[at] = sum;
    test.states += is_new;
    return is_new;
}

/* ---- What a state must be ---- */

static void complain(const struct cut *cut, const char *what, const char *why)
{
    fprintf(stderr, "after %ld calls, kept %#llx, torn %#llx, junk %d: %s: %s\n", cut->n,
            (unsigned long long)cut->kept, (unsigned long long)cut->torn, cut->junk, what,
            why ? why : "");
    fail();
}

/* Of the states that the file may hold, the one that it does; -1: none, -2: there is no file. */
static int state_of(const char *path, bool writable, int first, int last, const char **why)
{
    struct sfs_options options = {.writable = writable, .cache_size = 1 << 20, .workers = 1};
    struct sfs_file *file;
    int error = sfs_open(path, &options, &file);
    *why = error ? strerror(-error) : NULL;
    if (error)
        return error == -ENOENT ? -2 : -1;
    int found = last;
    while (found >= first && !work_is(file, &test.flushes[found].model, why))
        found--;
    sfs_discard(file);
    return found < first ? -1 : found;
}

static void check_sound(const struct cut *cut, const char *path)
{
    struct sfs_file *file;
    int error = sfs_open(path, NULL, &file);
    if (error)
        complain(cut, "cannot be opened", strerror(-error));
    if (!work_is_sound(file))
        complain(cut, "not sound", NULL);
    sfs_discard(file);
}

/* The flushes whose states are allowed after n calls. */
static void allowed(long n, int *first, int *last)
{
    *first = *last = 0;
    for (int i = 1; i < test.n_flushes; i++) {
        if (test.flushes[i].ended <= n)
            *first = i;
        if (test.flushes[i].begun < n || *first == i)
            *last = i;
    }
}

/* What was recovered can be changed and flushed. */
static void check_usable(const struct cut *cut, const struct model *model)
{
    struct model after = *model;
    struct sfs_file *file;
    const char *why = NULL;
    struct work work = {.template = test.template, .model = &after, .seed = random_next()};
    int error = sfs_open(AFTER_PATH, &(struct sfs_options){.writable = true}, &work.file);
    for (int i = 0; i < 5 && !error; i++)
        error = work_step(&work);
    if (!error)
        error = sfs_close(work.file);
    if (!error)
        error = sfs_open(AFTER_PATH, NULL, &file);
    if (error)
        complain(cut, "cannot be used", strerror(-error));
    if (!work_is(file, &after, &why) || !work_is_sound(file))
        complain(cut, "is changed wrongly", why);
    sfs_discard(file);
}

/* Looks at a state in the folder AFTER, which must be one of flushes first to last. */
static int check_state(const struct cut *cut, int first, int last)
{
    const char *why;
    int found = state_of(AFTER_PATH, false, first, last, &why);
    bool can_lack = first == 0 && !test.existed;
    if (found == -1 || (found == -2 && !can_lack))
        complain(cut, "for reading", why);
    if (found == -2)
        return found;
    bool journal = access(AFTER_PATH ".journal", F_OK) == 0;
    if (!journal || random_below(4) == 0)
        check_sound(cut, AFTER_PATH);
    int again = state_of(AFTER_PATH, true, found, found, &why);
    if (again != found)
        complain(cut, "for writing", why);
    if (access(AFTER_PATH ".journal", F_OK) == 0)
        complain(cut, "the journal is still there", NULL);
    if (journal)
        check_sound(cut, AFTER_PATH);
    if (!work_is_for_libhdf5(AFTER_PATH, &test.flushes[found].model, &why))
        complain(cut, "for libhdf5", why);
    if (random_below(20) == 0) {
        check_usable(cut, &test.flushes[found].model);
        test.opened_again++;
    }
    return found;
}

/* ---- Cuts ---- */

static void check_cut(const struct cut *cut)
{
    int first, last;
    if (!is_new(disk_cut(cut, AFTER)))
        return;
    allowed(cut->n, &first, &last);
    check_state(cut, first, last);
}

/* States after n calls: all kept, none, and others; of a few calls every subset. */
static void check_after(long n, int others)
{
    unsigned pending = disk_pending(n);
    check_cut(&(struct cut){.n = n, .kept = UINT64_MAX});
    if (pending > 0 && pending <= ALL_SUBSETS) {
        for (uint64_t kept = 0; kept < (uint64_t)1 << pending; kept++)
            check_cut(&(struct cut){.n = n, .kept = kept, .junk = kept & 1});
    } else if (pending > 0) {
        check_cut(&(struct cut){.n = n});
        check_cut(&(struct cut){.n = n, .junk = true});
    }
    for (int i = 0; i < others && pending > 0; i++) {
        struct cut cut = {n, random_next(), random_next() & random_next(), random_below(2)};
        check_cut(&cut);
    }
}

static void check_all(int others)
{
    disk_record(false);
    for (long n = 0; n <= disk_calls(); n++)
        check_after(n, others);
}

/* ---- Workloads ---- */

static void begin(bool existed, const struct model *model)
{
    test.flushes[0] = (struct flush){.model = *model};
    test.n_flushes = 1;
    test.existed = existed;
    disk_begin();
    disk_record(true);
}

static void flush(struct work *work)
{
    struct flush *flush = &test.flushes[test.n_flushes++];
    assert_true(test.n_flushes <= MOST_FLUSHES);
    flush->begun = disk_calls();
    flush->model = *work->model;
    assert_int_equal(sfs_flush(work->file), 0);
    flush->ended = disk_calls();
}

static void clear_disk(void)
{
    assert_int_equal(system("rm -rf " DISK " && mkdir " DISK), 0);
}

/* Flushes with up to `most` steps between them. */
static void do_work(struct work *work, int flushes, int most)
{
    for (int i = 0; i < flushes; i++) {
        for (uint64_t k = random_between(1, (uint64_t)most); k > 0; k--) {
            assert_int_equal(work_step(work), 0);
            random_seed(work->seed + k);
        }
        flush(work);
    }
}

/* The first chunks are small enough for a little cache to evict some before they are flushed. */
static struct sfs_options options_of(bool small)
{
    return (struct sfs_options){.writable = true, .cache_size = small ? 6000 : 0, .workers = 1};
}

static void a_new_file(int flushes, int most, int others)
{
    struct model model = {0};
    struct sfs_options options = options_of(random_below(2));
    struct work work = {.template = test.template, .model = &model, .seed = random_next()};
    clear_disk();
    begin(false, &model);
    assert_int_equal(sfs_create(PATH, &options, &work.file), 0);
    do_work(&work, flushes, most);
    assert_int_equal(sfs_close(work.file), 0);
    check_all(others);
}

/* A file of libhdf5 is opened for writing twice. */
static void an_old_file(bool oldest, int flushes, int most, int others)
{
    struct model model;
    struct sfs_options options = options_of(random_below(2));
    struct work work = {.template = test.template, .model = &model, .seed = random_next()};
    clear_disk();
    work_make_old(PATH, oldest, &model);
    begin(true, &model);
    for (int i = 0; i < 2; i++) {
        assert_int_equal(sfs_open(PATH, &options, &work.file), 0);
        do_work(&work, flushes, most);
        assert_int_equal(sfs_close(work.file), 0);
    }
    check_all(others);
}

static int make_sets(struct work *work)
{
    int error = 0;
    for (int i = 0; i < 8 && !error; i++) {
        random_seed(work->seed + (uint64_t)i);
        error = work_step_of(work, i < 6 ? 2 : 0);
    }
    return error;
}

/* Every kind of step alone, and every pair of kinds, each followed by a flush, in a file that has
 * all datasets. */
static void every_pair_of_steps(int kinds, int others)
{
    for (int a = 0; a < WORK_KINDS; a++)
        for (int b = 0; b < kinds; b++) {
            struct model model = {0};
            struct work work = {.template = test.template, .model = &model, .seed = random_next()};
            clear_disk();
            assert_int_equal(sfs_create(PATH, NULL, &work.file), 0);
            assert_int_equal(make_sets(&work), 0);
            assert_int_equal(sfs_flush(work.file), 0);
            begin(true, &model);
            assert_int_equal(work_step_of(&work, a), 0);
            assert_int_equal(work_step_of(&work, b), 0);
            flush(&work);
            assert_int_equal(work_step_of(&work, b), 0);
            flush(&work);
            assert_int_equal(sfs_close(work.file), 0);
            check_all(others);
        }
}

/* ---- Tests ---- */

static void every_state_is_one_that_was_flushed(void **state)
{
    (void)state;
    bool is_long = wanted > SHORT_STATES;
    while (test.states < wanted) {
        a_new_file(is_long ? 12 : 4, 6, 2);
        an_old_file(random_below(2), 3, 4, 2);
        every_pair_of_steps(is_long ? WORK_KINDS : 1, is_long ? 4 : 1);
    }
    printf("%ld different states, %ld of them changed again\n", test.states, test.opened_again);
    assert_true(test.opened_again > 10);
}

/* Makes the disk a state in which a journal waits; false if this cut is none. */
static bool cut_with_journal(long n)
{
    disk_cut(&(struct cut){.n = n, .kept = random_next(), .torn = random_next()}, AFTER);
    if (access(AFTER_PATH ".journal", F_OK) != 0)
        return false;
    assert_int_equal(system("rm -rf " DISK " && cp -r " AFTER " " DISK), 0);
    return true;
}

static void recovering_may_be_cut_too(void **state)
{
    (void)state;
    long until = test.states + wanted / 5;
    while (test.states < until) {
        struct model model;
        struct work work = {.template = test.template, .model = &model, .seed = random_next()};
        clear_disk();
        work_make_old(PATH, random_below(2), &model);
        begin(true, &model);
        assert_int_equal(sfs_open(PATH, &(struct sfs_options){.writable = true}, &work.file), 0);
        do_work(&work, 2, 8);
        assert_int_equal(sfs_close(work.file), 0);
        disk_record(false);
        long n = (long)random_below((uint64_t)disk_calls() + 1);
        while (n <= disk_calls() && !cut_with_journal(n))
            n++;
        if (n > disk_calls())
            continue;

        const char *why;
        int first, last;
        allowed(n, &first, &last);
        int found = state_of(PATH, false, first, last, &why);
        assert_true(found >= first);
        struct model is = test.flushes[found].model;
        begin(true, &is);
        assert_int_equal(state_of(PATH, true, 0, 0, &why), 0);
        test.recovered += disk_calls() > 2;
        check_all(3);
    }
    printf("%ld recoveries cut short\n", test.recovered);
    assert_true(test.recovered > 0);
}

/* The file that is replaced has a journal that its writer has left. */
static void replacing_a_file_that_needs_recovery_leaves_one_of_both(void **state)
{
    (void)state;
    for (int round = 0; round < 3; round++) {
        struct model model;
        struct work work = {.template = test.template, .model = &model, .seed = random_next()};
        long n = 0;
        clear_disk();
        work_make_old(PATH, false, &model);
        begin(true, &model);
        assert_int_equal(sfs_open(PATH, &(struct sfs_options){.writable = true}, &work.file), 0);
        assert_int_equal(make_sets(&work), 0);
        flush(&work);
        sfs_discard(work.file);
        disk_record(false);
        while (!cut_with_journal(n))
            assert_true(++n <= disk_calls());
        for (; n <= disk_calls() && random_below(8); n++)
            cut_with_journal(n);

        const char *why;
        int found = state_of(PATH, false, 0, 1, &why);
        assert_true(found >= 0);
        struct model old = test.flushes[found].model;
        begin(true, &old);
        memset(&model, 0, sizeof(model));
        struct sfs_options options = {.replace = true};
        assert_int_equal(sfs_create(PATH, &options, &work.file), 0);
        do_work(&work, 2, 4);
        assert_int_equal(sfs_close(work.file), 0);
        check_all(6);
    }
}

static int all_tests(void)
{
    log_quietly();
    assert_int_equal(mkdir(AFTER, 0700), 0);
    work_make_template(TEMPLATE);
    assert_int_equal(sfs_open(TEMPLATE, NULL, &test.template), 0);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_state_is_one_that_was_flushed),
        cmocka_unit_test(recovering_may_be_cut_too),
        cmocka_unit_test(replacing_a_file_that_needs_recovery_leaves_one_of_both),
    };
    int result = cmocka_run_group_tests(tests, NULL, NULL);
    sfs_discard(test.template);
    free(test.seen);
    return result;
}

int main(int argc, char **argv)
{
    if (argc > 1)
        wanted = strtol(argv[1], NULL, 10);
    return in_temporary_directory(all_tests);
}
