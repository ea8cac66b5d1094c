#include "states.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "../unit/support.h"
#include "disk.h"

#define AFTER_PATH   AFTER "/" NAME
#define MOST_FLUSHES 64
#define ALL_SUBSETS  6 /* calls of which every subset is tried */

/* A flush: calls before and after, and what the file holds then. */
struct flush {
    long begun, ended; /* LONG_MAX: it failed */
    struct model model;
};

static struct {
    struct sfs_file *template;
    struct flush flushes[MOST_FLUSHES]; /* the first: how the file was before */
    int n_flushes;
    bool existed;   /* the file, before */
    uint64_t *seen; /* sums of states, a hash set */
    size_t room;
    long states, changed;
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
    fprintf(stderr, "after %ld calls, kept %#llx, torn %#llx, junk %d, same boot %d: %s: %s\n",
            cut->n, (unsigned long long)cut->kept, (unsigned long long)cut->torn, cut->junk,
            cut->same_boot, what, why ? why : "");
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
    struct sfs_file *file = NULL;
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
static void check_state(const struct cut *cut, int first, int last)
{
    const char *why;
    int found = state_of(AFTER_PATH, false, first, last, &why);
    bool can_lack = first == 0 && !test.existed;
    if (found == -1 || (found == -2 && !can_lack))
        complain(cut, "for reading", why);
    if (found == -2)
        return;
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
        test.changed++;
    }
}

/* ---- Cuts ---- */

static void check_cut(const struct cut *cut)
{
    int first, last;
    allowed(cut->n, &first, &last);
    if (is_new(disk_cut(cut, AFTER) + (uint64_t)first))
        check_state(cut, first, last);
}

/* States after n calls: all kept, none, and others; of a few calls every subset. */
void states_check_after(long n, int others)
{
    unsigned pending = disk_pending(n);
    check_cut(&(struct cut){.n = n, .kept = UINT64_MAX});
    if (pending > 0 && pending <= ALL_SUBSETS) {
        for (uint64_t kept = 0; kept < (uint64_t)1 << pending; kept++)
            check_cut(&(struct cut){
                .n = n, .kept = kept, .junk = kept & 1, .same_boot = random_below(2)});
    } else if (pending > 0) {
        check_cut(&(struct cut){.n = n});
        check_cut(&(struct cut){.n = n, .junk = true, .same_boot = true});
    }
    for (int i = 0; i < others && pending > 0; i++) {
        struct cut cut = {n, random_next(), random_next() & random_next(), random_below(2),
                          random_below(2)};
        check_cut(&cut);
    }
}

void states_check(int others)
{
    disk_record(false);
    for (long n = 0; n <= disk_calls(); n++)
        states_check_after(n, others);
}

/* ---- Workloads ---- */

void states_use(struct sfs_file *template)
{
    test.template = template;
}

void states_begin(bool existed, const struct model *model)
{
    test.flushes[0] = (struct flush){.model = *model};
    test.n_flushes = 1;
    test.existed = existed;
    disk_begin();
    disk_record(true);
}

int states_flush(struct work *work)
{
    struct flush *flush = &test.flushes[test.n_flushes++];
    assert_true(test.n_flushes <= MOST_FLUSHES);
    flush->begun = disk_calls();
    flush->model = *work->model;
    int error = sfs_flush(work->file);
    flush->ended = error ? LONG_MAX : disk_calls();
    return error;
}

int states_find(const char *path, bool writable, long n)
{
    const char *why;
    int first, last;
    allowed(n, &first, &last);
    return state_of(path, writable, first, last, &why);
}

const struct model *states_model(int flush)
{
    return &test.flushes[flush].model;
}

long states_count(void)
{
    return test.states;
}

long states_changed(void)
{
    return test.changed;
}
