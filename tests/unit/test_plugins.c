/* Filter plugins in processes of their own: what they do is done there, what they may not do cannot
 * be done, and whose plugins are loaded. */
#include "support.h"

#include <errno.h>
#include <fcntl.h>
#include <hdf5.h>
#include <libgen.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/log.h"
#include "common/sanitized.h"
#include "filter/filter.h"
#include "hdf5/hdf5.h"
#include "hdf5/private.h"
#include "hdf5/trusted_plugin_folders.h"
#include "hdf5/worker/chunks_given_up.h"
#include "hdf5/worker/confine.h"
#include "hdf5/worker/plugin_pool.h"
#include "hdf5/worker/plugin_private.h"
#include "hostile_filter.h"

#define MEMORY  ((size_t)512 << 20)
#define TIMEOUT 5000000000 /* nanoseconds, for what hangs */
#define BYTES   100000
#define PLUGIN  "libhostile_filter.so"

/* ---- Chunks ---- */

static struct sfs_filter hostile(const unsigned *values, size_t n)
{
    return (struct sfs_filter){.id = HOSTILE, .n_values = n, .values = values};
}

/* The chunk is another each time: what has done harm once is not what a test is about. */
static int decode_like(enum hostile how, unsigned seed, unsigned char *out, size_t n)
{
    const unsigned value = how;
    const struct sfs_filter filter = hostile(&value, 1);
    unsigned char *in = allocate(n);
    for (size_t i = 0; i < n; i++)
        in[i] = (unsigned char)(seed + i * 7);
    int error = hdf5_filter_decode(&(struct filter_pipeline){1, &filter}, in, n, out, n);
    if (!error && how == HOSTILE_NOTHING)
        assert_memory_equal(in, out, n);
    free(in);
    return error;
}

static int try(enum hostile how)
{
    static unsigned seed;
    static unsigned char out[BYTES];
    int error = decode_like(how, seed++, out, sizeof(out));
    if (how != HOSTILE_NOTHING) /* whatever that one did, others are served */
        assert_int_equal(decode_like(HOSTILE_NOTHING, seed, out, sizeof(out)), 0);
    return error;
}

static void test_bytes_go_both_ways(void **state)
{
    (void)state;
    const unsigned values[] = {HOSTILE_NOTHING, 1}, level = 6;
    const struct sfs_filter filters[] = {hostile(values, 2),
                                         {.id = FILTER_DEFLATE, .n_values = 1, .values = &level}};
    struct filter_pipeline pipeline = {2, filters};
    size_t sizes[] = {1, 63, 64, 65, BYTES, (size_t)9 << 20}, n;
    for (size_t i = 0; i < COUNT(sizes); i++) {
        void *in = allocate(sizes[i]), *encoded, *out = allocate(sizes[i]);
        memset(in, (int)i + 1, sizes[i]);
        assert_int_equal(hdf5_filter_encode(&pipeline, in, sizes[i], &encoded, &n), 0);
        assert_int_equal(pipeline.mask, 0);
        assert_true(n < sizes[i] || sizes[i] < 100);
        assert_int_equal(hdf5_filter_decode(&pipeline, encoded, n, out, sizes[i]), 0);
        assert_memory_equal(in, out, sizes[i]);
        free(in);
        free(out);
        free(encoded);
    }
    assert_true(hdf5_filter_available(HOSTILE));
}

static void test_what_is_missing(void **state)
{
    (void)state;
    const unsigned values[] = {HOSTILE_NOTHING, 1};
    struct sfs_filter filters[] = {{.id = 479}, hostile(values, 2)};
    struct filter_pipeline pipeline = {2, filters};
    unsigned char in[64] = {1}, out[64];
    void *encoded;
    size_t n;
    assert_false(hdf5_filter_available(479));
    assert_false(hdf5_filter_available(0));
    assert_false(hdf5_filter_available(-1));
    assert_false(hdf5_filter_available(65535));
    assert_int_equal(hdf5_filter_decode(&(struct filter_pipeline){2, filters}, in, 64, out, 64),
                     -EOPNOTSUPP);
    assert_non_null(strstr(hdf5_error(), "filter 479 is not available"));
    assert_int_equal(hdf5_filter_decode(&(struct filter_pipeline){2, filters, 1}, in, 64, out, 64),
                     0);
    assert_int_equal(hdf5_filter_encode(&pipeline, in, 64, &encoded, &n), -EOPNOTSUPP);
    filters[0].optional = true;
    assert_int_equal(hdf5_filter_encode(&pipeline, in, 64, &encoded, &n), 0);
    assert_int_equal(pipeline.mask, 1);
    assert_int_equal(n, 64);
    free(encoded);
}

/* ---- Doors ---- */

static void test_every_door_is_shut(void **state)
{
    (void)state;
    unsigned char out[BYTES];
    for (unsigned how = HOSTILE_OPENS; how < HOSTILE_DOORS_END; how++) {
        bool needs_filter = how >= HOSTILE_SIGNALS && how <= HOSTILE_MAKES_CODE;
        int error = decode_like(how, how, out, sizeof(out));
        if (needs_filter && !confine_has_filter())
            continue;
        if (error || out[0] != 0)
            fail_msg("door %u: %d, %d: %s", how, error, out[0], error ? hdf5_error() : "");
    }
    assert_int_not_equal(access("/tmp/sparsefs-was-here", F_OK), 0);
}

/* ---- Harm ---- */

static void test_a_crash_is_one_chunks_affair(void **state)
{
    (void)state;
    unsigned char out[BYTES];
    assert_int_equal(try(HOSTILE_CRASHES), -EIO);
    for (int i = 0; i < 2; i++) {
        assert_int_equal(decode_like(HOSTILE_CRASHES, 1000, out, sizeof(out)), -EIO);
        assert_non_null(strstr(hdf5_error(), "to undo filter 481: signal 11"));
    }
    for (int i = 0; i < 2; i++) {
        assert_int_equal(decode_like(HOSTILE_CRASHES, 1000, out, sizeof(out)), -EIO);
        assert_non_null(strstr(hdf5_error(), "not given to it any more"));
    }
    assert_int_equal(decode_like(HOSTILE_NOTHING, 1000, out, sizeof(out)), 0);
}

/* FNV-1a has the same number of both. */
static void test_chunks_that_were_made_alike_are_told_apart(void **state)
{
    (void)state;
    static const char one[] = "8yn0iYCKYHlIj4-BwPqk", other[] = "GReLUrM4wMqfg9yzV3KQ";
    const unsigned values[] = {1, 2};
    struct sfs_filter filters[] = {hostile(values, 1), hostile(values, 2)};
    const struct filter_pipeline first = {.n = 1, .filters = &filters[0]},
                                 second = {.n = 1, .filters = &filters[1]};
    uint64_t number = plugin_chunk_number(&first, one, sizeof(one));
    assert_true(number == plugin_chunk_number(&first, one, sizeof(one)));
    assert_true(number != plugin_chunk_number(&first, other, sizeof(other)));
    assert_true(number != plugin_chunk_number(&second, one, sizeof(one)));
}

static void test_an_endless_loop_is_ended(void **state)
{
    (void)state;
    unsigned char out[BYTES];
    assert_int_equal(decode_like(HOSTILE_HANGS, 2000, out, sizeof(out)), -EIO);
    assert_non_null(strstr(hdf5_error(), "to undo filter 481: it did not answer for 5.0 s"));
    assert_int_equal(decode_like(HOSTILE_HANGS, 2000, out, sizeof(out)), -EIO);
    assert_non_null(strstr(hdf5_error(), "not given to it any more"));
}

/* That it is killed then is nobody else's doing. */
static void test_one_that_leaves_is_to_blame(void **state)
{
    (void)state;
    unsigned char out[BYTES];
    for (int i = 0; i < 2; i++) {
        assert_int_equal(decode_like(HOSTILE_LEAVES, 2200, out, sizeof(out)), -EIO);
        assert_non_null(
            strstr(hdf5_error(), "to undo filter 481: it closed its socket and went on"));
    }
    assert_int_equal(decode_like(HOSTILE_LEAVES, 2200, out, sizeof(out)), -EIO);
    assert_non_null(strstr(hdf5_error(), "not given to it any more"));
}

static void test_memory_is_limited(void **state)
{
    (void)state;
    if (IS_SANITIZED)
        skip();
    unsigned char out[BYTES];
    assert_int_equal(decode_like(HOSTILE_ALLOCATES, 2500, out, sizeof(out)), -EIO);
    if (!strstr(hdf5_error(), "signal 6")) /* it ends itself when there is no more */
        fail_msg("%s", hdf5_error());
}

static void test_too_many_bytes_are_none(void **state)
{
    (void)state;
    unsigned values[] = {HOSTILE_DOUBLES, 1};
    unsigned char in[64] = {1};
    const struct sfs_filter filter = hostile(values, 2), twice[] = {filter, filter, filter};
    void *in_large = allocate((size_t)2 << 20), *encoded;
    size_t n;
    memset(in_large, 1, (size_t)2 << 20);
    assert_int_equal(try(HOSTILE_DOUBLES), -EILSEQ);
    assert_int_equal(try(HOSTILE_LIES), -EILSEQ);
    assert_int_equal(
        hdf5_filter_encode(&(struct filter_pipeline){1, &filter}, in, 64, &encoded, &n), 0);
    assert_int_equal(n, 128);
    free(encoded);
    assert_int_equal(hdf5_filter_encode(&(struct filter_pipeline){3, twice}, in_large,
                                        (size_t)2 << 20, &encoded, &n),
                     -EINVAL);
    free(in_large);
}

static void test_lies_are_refused(void **state)
{
    (void)state;
    const unsigned claims[] = {HOSTILE_CLAIMS, 1};
    const struct sfs_filter filter = hostile(claims, 2);
    unsigned char in[64] = {1};
    void *encoded;
    size_t n;
    assert_int_equal(try(HOSTILE_ANSWERS), -EIO);
    assert_int_equal(try(HOSTILE_CLAIMS), -EIO);
    assert_int_equal(
        hdf5_filter_encode(&(struct filter_pipeline){1, &filter}, in, 64, &encoded, &n), -EIO);
    assert_non_null(strstr(hdf5_error(), "to apply filter 481: its answer cannot be"));
}

/* ---- Many ---- */

static pid_t plugin_zygote(void)
{
    char path[64], text[512] = "", name[32] = "";
    snprintf(path, sizeof(path), "/proc/%d/task/%d/children", (int)getpid(), (int)getpid());
    FILE *file = fopen(path, "r");
    if (!file)
        return -1;
    (void)!fread(text, 1, sizeof(text) - 1, file);
    fclose(file);
    for (char *at = strtok(text, " "); at; at = strtok(NULL, " ")) {
        snprintf(path, sizeof(path), "/proc/%s/comm", at);
        file = fopen(path, "r");
        if (file && fgets(name, sizeof(name), file) && strstr(name, "plugz")) {
            fclose(file);
            return (pid_t)strtol(at, NULL, 10);
        }
        if (file)
            fclose(file);
    }
    return -1;
}

/* The processes that plugins run in; -1: the kernel does not tell. */
static int processes(pid_t *out, int most)
{
    char path[64], text[4096] = "";
    int n = 0;
    pid_t zygote = plugin_zygote();
    snprintf(path, sizeof(path), "/proc/%d/task/%d/children", (int)zygote, (int)zygote);
    FILE *file = zygote > 0 ? fopen(path, "r") : NULL;
    if (!file)
        return -1;
    (void)!fread(text, 1, sizeof(text) - 1, file);
    fclose(file);
    for (char *at = strtok(text, " "); at && n < most; at = strtok(NULL, " "))
        out[n++] = (pid_t)strtol(at, NULL, 10);
    return n;
}

static void *decode_often(void *context)
{
    unsigned *seed = context;
    unsigned char *out = allocate(BYTES);
    for (unsigned i = 0; i < 50; i++)
        if (decode_like(HOSTILE_NOTHING, *seed + i, out, BYTES))
            *seed = UINT32_MAX;
    free(out);
    return NULL;
}

static void test_threads_are_served_by_as_many_as_there_are_processors(void **state)
{
    (void)state;
    pthread_t threads[16];
    unsigned seeds[COUNT(threads)];
    pid_t pids[64];
    for (unsigned i = 0; i < COUNT(threads); i++) {
        seeds[i] = 3000 * i;
        start_thread(&threads[i], decode_often, &seeds[i]);
    }
    for (unsigned i = 0; i < COUNT(threads); i++) {
        pthread_join(threads[i], NULL);
        assert_int_equal(seeds[i], 3000 * i);
    }
    int n = processes(pids, COUNT(pids));
    if (n >= 0)
        assert_in_range(n, 1, sysconf(_SC_NPROCESSORS_ONLN));
}

static void *meet(void *context)
{
    unsigned char *out = allocate(BYTES);
    *(int *)context = decode_like(HOSTILE_MEETS, *(unsigned *)context, out, BYTES);
    free(out);
    return NULL;
}

/* Each waits for the other, or else for its end. */
static void test_two_chunks_are_decoded_at_once(void **state)
{
    (void)state;
    if (sysconf(_SC_NPROCESSORS_ONLN) < 2)
        skip();
    pthread_t threads[2];
    int results[2] = {50000, 60000};
    for (int i = 0; i < 2; i++)
        start_thread(&threads[i], meet, &results[i]);
    for (int i = 0; i < 2; i++) {
        pthread_join(threads[i], NULL);
        assert_int_equal(results[i], 0);
    }
}

static bool is_enough(void *context)
{
    return atomic_load((atomic_bool *)context);
}

struct waiting {
    enum hostile how;
    unsigned seed;
    atomic_bool *is_enough;
    int error;
};

static void *wait_for_chunk(void *context)
{
    struct waiting *waiting = context;
    unsigned char *out = allocate(BYTES);
    sfs_set_interrupt(is_enough, waiting->is_enough);
    waiting->error = decode_like(waiting->how, waiting->seed, out, BYTES);
    sfs_set_interrupt(NULL, NULL);
    free(out);
    return NULL;
}

/* Whoever waits for a chunk, or for a process that others have, can be interrupted; no chunk is to blame. */
static void test_waiting_is_interrupted(void **state)
{
    (void)state;
    static pthread_t threads[64];
    static struct waiting waiting[COUNT(threads)];
    unsigned char out[BYTES];
    atomic_bool enough = false;
    unsigned n = 2 * (unsigned)sysconf(_SC_NPROCESSORS_ONLN);
    n = n < COUNT(threads) ? n : COUNT(threads);
    for (int round = 0; round < 6; round++) { /* twice would be enough to be given up */
        const enum hostile how = round < 3 ? HOSTILE_HANGS : HOSTILE_BREAKS_OFF;
        atomic_store(&enough, false);
        for (unsigned i = 0; i < n; i++) {
            waiting[i] = (struct waiting){how, 70000 + i, &enough, 0};
            start_thread(&threads[i], wait_for_chunk, &waiting[i]);
        }
        usleep(200000);
        atomic_store(&enough, true);
        for (unsigned i = 0; i < n; i++) {
            pthread_join(threads[i], NULL);
            assert_int_equal(waiting[i].error, -EINTR);
        }
    }
    assert_int_equal(decode_like(HOSTILE_NOTHING, 70000, out, sizeof(out)), 0);
}

struct taking {
    atomic_bool *is_enough; /* NULL: it is not interrupted */
    int error;
};

static void *take_one(void *context)
{
    struct taking *taking = context;
    struct plugin_process *process;
    if (taking->is_enough)
        sfs_set_interrupt(is_enough, taking->is_enough);
    taking->error = plugin_take(NULL, 0, BYTES, taking->is_enough, &process);
    if (!taking->error)
        plugin_give_back(process);
    return NULL;
}

/* Those who wait for a process are interrupted just when one becomes free: one of the others has it then. */
static void test_who_is_interrupted_leaves_it_to_others(void **state)
{
    (void)state;
    enum { MOST = 64 };
    struct plugin_process *taken[MOST];
    pthread_t interrupted[3 * MOST], other;
    unsigned n = (unsigned)sysconf(_SC_NPROCESSORS_ONLN);
    n = n < MOST ? n : MOST;
    for (int round = 0; round < 3; round++) {
        atomic_bool enough = false;
        struct taking takes[3 * MOST], waits = {0};
        for (unsigned i = 0; i < n; i++)
            assert_int_equal(plugin_take(NULL, 0, BYTES, false, &taken[i]), 0);
        for (unsigned i = 0; i < 3 * n; i++) {
            takes[i] = (struct taking){.is_enough = &enough};
            start_thread(&interrupted[i], take_one, &takes[i]);
        }
        usleep(20000);
        start_thread(&other, take_one, &waits);
        usleep(20000);
        atomic_store(&enough, true);
        for (unsigned i = 0; i < n; i++)
            plugin_give_back(taken[i]);
        for (unsigned i = 0; i < 3 * n; i++)
            pthread_join(interrupted[i], NULL);
        pthread_join(other, NULL);
        assert_int_equal(waits.error, 0);
    }
}

/* Somebody else has killed it: nobody is to notice. */
static void test_those_that_are_killed_are_started_again(void **state)
{
    (void)state;
    pid_t pids[64];
    for (int i = 0; i < 10; i++) {
        int n = processes(pids, COUNT(pids));
        if (n < 0)
            skip(); /* the kernel does not tell who is whose child */
        for (int k = 0; k < n; k++)
            kill(pids[k], SIGKILL);
        if (n <= 2) /* as many as may be lost in one call */
            assert_int_equal(try(HOSTILE_NOTHING), 0);
        else
            (void)try(HOSTILE_NOTHING);
    }
}

/* ---- Folders ---- */

static unsigned refusals; /* lines of the log */

static void count_refusals(int level, const char *line)
{
    (void)level;
    refusals += strstr(line, "are not used: others may write") != NULL;
}

static void set_only(const char *folder)
{
    unsigned n;
    while (H5PLsize(&n) >= 0 && n > 0)
        assert_true(H5PLremove(n - 1) >= 0);
    assert_true(H5PLappend(folder) >= 0);
}

/* Whether it is used, and under which name. */
static bool is_used(const char *folder, char name[4096])
{
    struct wire wire = {0};
    set_only(folder);
    plugin_folders_put(&wire);
    struct cursor cursor = cursor_over(wire.bytes, wire.n);
    uint64_t n = take_uint(&cursor, 1);
    char *taken = NULL;
    if (n == 1)
        assert_int_equal(take_string(&cursor, true, &taken), 0);
    assert_int_equal(take_end(&cursor, true), 0);
    snprintf(name, 4096, "%s", taken ? taken : "");
    free(taken);
    wire_free(&wire);
    return n == 1;
}

static void check(const char *folder, bool used)
{
    char name[4096];
    unsigned before = refusals;
    if (is_used(folder, name) != used)
        fail_msg("%s: %s", folder, used ? "refused" : "used");
    assert_int_equal(refusals - before, !used);
    if (!used) { /* it is said once */
        assert_false(is_used(folder, name));
        assert_int_equal(refusals - before, 1);
    }
}

static void make_folder(const char *path, mode_t mode)
{
    assert_int_equal(mkdir(path, 0700), 0);
    assert_int_equal(chmod(path, mode), 0);
}

static void make_file(const char *path, mode_t mode)
{
    int fd = open(path, O_WRONLY | O_CREAT, 0600);
    assert_true(fd >= 0);
    close(fd);
    assert_int_equal(chmod(path, mode), 0);
}

static const char *inside(const char *name)
{
    static char path[2][4096];
    static int i;
    i = !i;
    assert_non_null(getcwd(path[i], 2048));
    strcat(strcat(path[i], "/"), name);
    return path[i];
}

static void test_folders_that_all_may_write_are_refused(void **state)
{
    (void)state;
    bool is_root = geteuid() == 0;
    make_folder("good", 0755);
    make_file("good/libgood.so", 0755);
    check(inside("good"), true);
    make_folder("all", 0777);
    check(inside("all"), false);
    make_folder("sticky", 01777);
    check(inside("sticky"), false);
    make_folder("group", 0775);
    check(inside("group"), !is_root);
    make_folder("file", 0755);
    make_file("file/notes.txt", 0666);
    check(inside("file"), true);
    make_file("file/libx.so.1", 0666);
    check(inside("file"), false);
    make_folder("way", 0777);
    make_folder("way/to", 0755);
    check(inside("way/to"), false);
    make_folder("sticky/ours", 0755); /* as folders in /tmp */
    check(inside("sticky/ours"), true);
}

static void test_links_are_what_they_lead_to(void **state)
{
    (void)state;
    char name[4096];
    make_folder("real", 0755);
    make_folder("open", 0777);
    assert_int_equal(symlink("../real", "open/link"), 0);
    check(inside("open/link"), false);
    assert_int_equal(unlink("open/link"), 0);
    assert_int_equal(symlink("real", "to_real"), 0);
    assert_true(is_used(inside("to_real"), name));
    assert_string_equal(name, inside("real"));
    assert_int_equal(symlink("open", "to_open"), 0);
    check(inside("to_open"), false);
    make_file("open/libx.so", 0755);
    make_folder("leads", 0755);
    assert_int_equal(symlink("../open/libx.so", "leads/libx.so"), 0);
    check(inside("leads"), false);
    make_folder("dangles", 0755);
    assert_int_equal(symlink("/nowhere/libx.so", "dangles/libx.so"), 0);
    check(inside("dangles"), false);
}

/* They may be made later: by whom? There is nothing to be said of them yet. */
static void test_folders_that_are_not_there(void **state)
{
    (void)state;
    char name[4096];
    unsigned before = refusals;
    make_folder("empty", 0777);
    make_folder("ours", 0755);
    make_folder("as_tmp", 01777);
    assert_false(is_used(inside("empty/later"), name));
    assert_false(is_used(inside("as_tmp/later"), name));
    assert_true(is_used(inside("ours/later/still"), name));
    assert_int_equal(refusals, before);
}

static void own(const char *path, uid_t owner)
{
    assert_int_equal(chown(path, owner, owner), 0);
}

static void check_as(uid_t user, const char *folder, bool used)
{
    fflush(NULL);
    pid_t pid = fork();
    int status;
    if (pid == 0) {
        char name[4096];
        bool is_he =
            user == 0 || (setresgid(user, user, user) == 0 && setresuid(user, user, user) == 0);
        _exit(!is_he ? 3 : is_used(folder, name) == used ? 0 : 1);
    }
    assert_int_equal(waitpid(pid, &status, 0), pid);
    if (status != 0)
        fail_msg("%s as user %u", folder, (unsigned)user);
}

static void test_folders_of_others_are_refused(void **state)
{
    (void)state;
    const uid_t he = 65534, she = 1;
    if (geteuid() != 0)
        skip();
    assert_int_equal(chmod(".", 0755), 0);
    make_folder("roots", 0755);
    make_folder("his", 0775);
    own("his", he);
    make_folder("hers", 0755);
    own("hers", she);
    make_folder("hers/roots", 0755);
    make_folder("mixed", 0755);
    make_file("mixed/libx.so", 0755);
    own("mixed/libx.so", she);
    make_folder("shared", 0757);
    make_folder("tmp", 01777);
    assert_int_equal(symlink("../roots", "tmp/hers"), 0);
    assert_int_equal(lchown("tmp/hers", she, she), 0);
    assert_int_equal(symlink("../roots", "tmp/roots"), 0);
    check_as(0, inside("roots"), true);
    check_as(0, inside("his"), false);
    check_as(0, inside("hers"), false);
    check_as(0, inside("hers/roots"), false);
    check_as(0, inside("mixed"), false);
    check_as(0, inside("tmp/hers"), false); /* she can have it lead elsewhere */
    check_as(0, inside("tmp/roots"), true);
    check_as(he, inside("roots"), true);
    check_as(he, inside("his"), true);
    check_as(he, inside("hers"), false);
    check_as(he, inside("hers/roots"), false);
    check_as(he, inside("mixed"), false);
    check_as(he, inside("shared"), false);
}

/* What is refused is not loaded, not even where libhdf5 looks for it by itself. */
static void test_refused_folders_are_not_used(void **state)
{
    (void)state;
    const unsigned values[] = {HOSTILE_NOTHING, 1};
    const struct sfs_filter filters[] = {hostile(values, 2), {.id = 478}};
    pid_t pids[64];
    unsigned char in[64] = {1}, out[64];
    assert_int_equal(chmod("plugins", 0777), 0);
    set_only(inside("plugins"));
    int n = processes(pids, COUNT(pids));
    for (int i = 0; i < n; i++) /* they have it already */
        kill(pids[i], SIGKILL);
    assert_int_not_equal(hdf5_filter_decode(&(struct filter_pipeline){1, filters}, in, 64, out, 64),
                         0);
    assert_int_equal(H5Zfilter_avail(HOSTILE), 0);
    assert_int_equal(chmod("plugins", 0755), 0);
}

/* ---- The beginning ---- */

static int copy_plugin(void)
{
    char self[4096] = "", command[10000];
    if (readlink("/proc/self/exe", self, sizeof(self) - 1) < 0)
        return -1;
    snprintf(command, sizeof(command), "install -D -m 755 '%s/" PLUGIN "' plugins/" PLUGIN,
             dirname(self));
    return system(command);
}

static int start(void **state)
{
    (void)state;
    sfs_set_log(count_refusals, LOG_DEBUG);
    umask(022);
    int fd = open("meets", O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    if (copy_plugin() != 0 || fd < 0 || ftruncate(fd, 4096) < 0 ||
        setenv("SPARSEFS_TEST_MEETS", inside("meets"), 1) < 0)
        return -1;
    close(fd);
    filters_provide();
    int error = plugins_start(MEMORY, TIMEOUT);
    if (!error)
        set_only(inside("plugins"));
    return error;
}

static int all_tests(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_bytes_go_both_ways),
        cmocka_unit_test(test_what_is_missing),
        cmocka_unit_test(test_every_door_is_shut),
        cmocka_unit_test(test_a_crash_is_one_chunks_affair),
        cmocka_unit_test(test_chunks_that_were_made_alike_are_told_apart),
        cmocka_unit_test(test_an_endless_loop_is_ended),
        cmocka_unit_test(test_one_that_leaves_is_to_blame),
        cmocka_unit_test(test_memory_is_limited),
        cmocka_unit_test(test_too_many_bytes_are_none),
        cmocka_unit_test(test_lies_are_refused),
        cmocka_unit_test(test_threads_are_served_by_as_many_as_there_are_processors),
        cmocka_unit_test(test_two_chunks_are_decoded_at_once),
        cmocka_unit_test(test_waiting_is_interrupted),
        cmocka_unit_test(test_who_is_interrupted_leaves_it_to_others),
        cmocka_unit_test(test_those_that_are_killed_are_started_again),
        cmocka_unit_test(test_folders_that_all_may_write_are_refused),
        cmocka_unit_test(test_links_are_what_they_lead_to),
        cmocka_unit_test(test_folders_that_are_not_there),
        cmocka_unit_test(test_folders_of_others_are_refused),
        cmocka_unit_test(test_refused_folders_are_not_used),
    };
    return cmocka_run_group_tests(tests, start, NULL);
}

int main(void)
{
    return in_temporary_directory(all_tests);
}
