/* What all parts have in common: texts that may be shown, numbers as texts, descriptors of others. */
#include "support.h"

#include <errno.h>
#include <fcntl.h>
#include <float.h>
#include <math.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#undef fail /* sparsectl has one of its own */
#include "cli/cli.h"
#include "common/descriptors.h"
#include "common/float_text.h"
#include "common/hash.h"
#include "common/json.h"
#include "common/load_stdin_or_gzip.h"
#include "common/log.h"
#include "common/log_rate.h"
#include "common/mounts.h"
#include "common/object_names.h"
#include "common/process_status.h"

/* ---- Texts ---- */

static void control_characters_are_not_shown(void **state)
{
    (void)state;
    static const char *const cases[][2] = {
        {"plain", "plain"},
        {"a\nb\x1b[31m\x7f", "a?b?[31m?"},
        {"\xc2\x9b"
         "31m\xc2\x80\xc2\x9f",
         "??31m????"}, /* CSI, as UTF-8 has it */
        {"\xc2\xa0\xc3\x9b\xc3\xa9\xe2\x82\xac", "\xc2\xa0\xc3\x9b\xc3\xa9\xe2\x82\xac"},
        {"\xc2", "\xc2"},
        {"a\xe2\x80\xaa\xe2\x80\xae.\xe2\x81\xa6\xe2\x81\xa9",
         "a??????.??????"}, /* what follows runs the other way */
        {"\xe2\x80\xa9\xe2\x80\xaf\xe2\x81\xa5\xe2\x81\xaa\xe2\x80",
         "\xe2\x80\xa9\xe2\x80\xaf\xe2\x81\xa5\xe2\x81\xaa\xe2\x80"},
        {"", ""},
    };
    for (size_t i = 0; i < COUNT(cases); i++) {
        char line[40], *printed;
        size_t n;
        strcpy(line, cases[i][0]);
        log_make_line(line);
        assert_string_equal(line, cases[i][1]);
        FILE *out = open_memstream(&printed, &n);
        print_text(out, cases[i][0]);
        assert_int_equal(fclose(out), 0);
        assert_string_equal(printed, cases[i][1]);
        free(printed);
    }
}

static void json_has_no_control_characters(void **state)
{
    (void)state;
    char *text;
    size_t n;
    static const char name[] = "a\x1b\xc2\x9b\xc2\xa0\x80";
    FILE *out = open_memstream(&text, &n);
    json_string(out, name, sizeof(name) - 1);
    assert_int_equal(fclose(out), 0);
    assert_string_equal(text, "\"a\\u001b\\u009b\xc2\xa0\\u0080\"");
    free(text);
}

/* The library may say EINTR without a signal to the command, which is then not at an end. */
static void only_after_a_signal_nothing_is_changed(void **state)
{
    (void)state;
    char said[100] = "";
    int pipe_[2], stderr_ = dup(STDERR_FILENO);
    assert_true(stderr_ >= 0 && pipe(pipe_) == 0);
    for (int i = 0; i < 2; i++) {
        atomic_store(&interrupted, i == 1);
        dup2(pipe_[1], STDERR_FILENO);
        assert_int_equal(fail(-EINTR, "a"), FAILED);
        dup2(stderr_, STDERR_FILENO);
        ssize_t n = read(pipe_[0], said, sizeof(said) - 1);
        assert_true(n > 0);
        said[n] = '\0';
        assert_int_equal(strstr(said, "nothing is changed") != NULL, i == 1);
    }
    atomic_store(&interrupted, false);
    close(pipe_[0]);
    close(pipe_[1]);
    close(stderr_);
}

/* ---- Numbers ---- */

static bool means(const char *text, double value, bool is_single)
{
    return is_single ? strtof(text, NULL) == (float)value : strtod(text, NULL) == value;
}

/* Digits of a number but zeros at its beginning and end. */
static size_t significant(const char *text)
{
    size_t n = 0, zeros = 0;
    for (; *text && *text != 'e'; text++) {
        if (*text == '0') {
            zeros += n > 0;
        } else if (*text >= '1' && *text <= '9') {
            n += zeros + 1;
            zeros = 0;
        }
    }
    return n;
}

static void expect_fewest_digits(double value, bool is_single)
{
    char *text, fewest[40];
    size_t n;
    int digits = 0;
    FILE *out = open_memstream(&text, &n);
    float_write(out, value, is_single);
    assert_int_equal(fclose(out), 0);
    do
        snprintf(fewest, sizeof(fewest), "%.*g", ++digits, value);
    while (!means(fewest, value, is_single));
    assert_true(means(text, value, is_single));
    assert_in_range(significant(text), 0, digits);
    free(text);
}

static void numbers_have_the_fewest_digits(void **state)
{
    (void)state;
    static const double values[] = {0,         -0.0,     1,      0.1,    1e22,    M_PI,
                                    DBL_MAX,   DBL_MIN,  5e-324, 1e-310, 1.5e-45, 2.8e-45,
                                    123456789, INFINITY, -2.5,   1.0 / 3};
    for (size_t i = 0; i < COUNT(values); i++) {
        expect_fewest_digits(values[i], false);
        expect_fewest_digits((float)values[i], true);
    }
    for (int i = 0; i < 20000; i++) {
        uint64_t bits =
            i % 2 ? random_next() : random_next() & ~((uint64_t)0x7ff << 52); /* subnormal */
        uint32_t narrow = (uint32_t)(i % 2 ? random_next() : random_next() & ~0x7f800000u);
        double value;
        float single;
        memcpy(&value, &bits, sizeof(value));
        memcpy(&single, &narrow, sizeof(single));
        if (isfinite(value))
            expect_fewest_digits(value, false);
        if (isfinite(single))
            expect_fewest_digits(single, true);
    }
}

/* ---- Descriptors ---- */

static int ends[2];
static _Atomic(pid_t) sender;
static atomic_int signals;

static void count_signal(int number)
{
    (void)number;
    atomic_fetch_add(&signals, 1);
}

/* Nothing comes behind it; nor, if it could not be sent, before it. */
static void *send_one(void *nothing)
{
    (void)nothing;
    atomic_store(&sender, (pid_t)syscall(SYS_gettid));
    bool is_sent = descriptor_send(ends[0], "last", 4, STDIN_FILENO) == 0;
    shutdown(ends[0], SHUT_WR);
    return is_sent ? &sender : NULL;
}

/* Its handler is not one after which calls go on by themselves. */
static void a_signal_does_not_keep_a_descriptor_from_being_sent(void **state)
{
    (void)state;
    const struct sigaction action = {.sa_handler = count_signal};
    const int room = 1;
    char bytes[64] = {0};
    pthread_t thread;
    void *is_sent;
    int fd = -1;
    assert_int_equal(sigaction(SIGUSR1, &action, NULL), 0);
    assert_int_equal(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends), 0);
    assert_int_equal(setsockopt(ends[0], SOL_SOCKET, SO_SNDBUF, &room, sizeof(room)), 0);
    while (send(ends[0], bytes, sizeof(bytes), MSG_DONTWAIT) > 0)
        ;
    assert_int_equal(errno, EAGAIN);
    start_thread(&thread, send_one, NULL);
    while (atomic_load(&sender) == 0)
        sched_yield();
    wait_until_it_sleeps(atomic_load(&sender));
    assert_int_equal(pthread_kill(thread, SIGUSR1), 0);
    while (atomic_load(&signals) == 0)
        sched_yield();
    while (descriptor_receive(ends[1], bytes, sizeof(bytes), &fd))
        assert_int_equal(fd, -1);
    assert_int_equal(pthread_join(thread, &is_sent), 0);
    assert_non_null(is_sent);
    assert_true(fd >= 0);
    assert_memory_equal(bytes, "last", 4);
    close(fd);
    close(ends[0]);
    close(ends[1]);
}

/* ---- Hash tables ---- */

/* By Python (hash() of bytes), with the secrets of PYTHONHASHSEED=0 and 42. */
static void a_hash_is_as_it_is_defined(void **state)
{
    (void)state;
    static const uint64_t none[2], some[2] = {0xdc504fd368cd90af, 0xb920bb9ffe99e9c1};
    static const struct {
        const uint64_t *secret;
        const char *key;
        uint64_t hash;
    } cases[] = {
        {none, "a", 0x407448d2b89b1813},
        {none, "abcdefgh", 0x3f7b849c0b8e35ea},
        {none, "abcdefghijklmno", 0x1fd27a29b0e9dc7a},
        {none, "0123456789abcdef!", 0x9463628f6c8882ca},
        {some, "a", 0xfe4a47335692551e},
        {some, "abcdefgh", 0xb441be6d79f21056},
        {some, "abcdefghijklmno", 0xbaed8ce4a6c84f95},
        {some, "0123456789abcdef!", 0x8b26d5a020de775c},
    };
    for (size_t i = 0; i < COUNT(cases); i++)
        assert_true(hash_siphash(cases[i].secret, cases[i].key, strlen(cases[i].key)) ==
                    cases[i].hash);
}

static void each_process_hashes_with_a_secret_of_its_own(void **state)
{
    (void)state;
    uint64_t before = hash_keyed("key", 3);
    assert_true(before == hash_keyed("key", 3));
    static const uint64_t none[2];
    assert_true(before != hash_siphash(none, "key", 3));
    hash_new_secret(); /* there is no table here */
    assert_true(before != hash_keyed("key", 3));
}

#define ALIKE 1000

struct alike {
    uint32_t words[6];
    UT_hash_handle hh;
};

/* Keys that are one to the function that uthash has by itself: the second half of each undoes what that has made
 * of the first. */
static void make_alike(struct alike *alike)
{
    for (uint32_t i = 0; i < ALIKE; i++) {
        uint32_t a = 0x9e3779b9 + i, b = 0x9e3779b9 + 7 * i, c = 0xfeedbeef + i;
        memcpy(alike[i].words, (uint32_t[]){i, 7 * i, i}, 12);
        HASH_JEN_MIX(a, b, c);
        memcpy(alike[i].words + 3, (uint32_t[]){1 - a, 2 - b, 3 - c}, 12);
    }
}

static void keys_that_were_made_alike_lie_apart(void **state)
{
    (void)state;
    struct alike *alike = calloc(ALIKE, sizeof(*alike)), *table = NULL;
    unsigned most = 0;
    assert_non_null(alike);
    make_alike(alike);
    for (size_t i = 0; i < ALIKE; i++) {
        unsigned jen, first;
        HASH_JEN(alike[i].words, 24, jen);
        HASH_JEN(alike[0].words, 24, first);
        assert_int_equal(jen, first);
        HASH_ADD(hh, table, words, 24, &alike[i]);
    }
    for (unsigned i = 0; i < table->hh.tbl->num_buckets; i++)
        if (table->hh.tbl->buckets[i].count > most)
            most = table->hh.tbl->buckets[i].count;
    assert_in_range(most, 1, 40);
    HASH_CLEAR(hh, table);
    free(alike);
}

/* ---- Mounts ---- */

static void a_table_of_mounts_that_cannot_be_read_says_nothing(void **state)
{
    (void)state;
    struct rlimit before, none;
    int next = open("/dev/null", O_RDONLY);
    close(next);
    assert_int_equal(mounts_is_sparsefs(0, 1u << 19), 0);
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &before), 0);
    none = (struct rlimit){(rlim_t)next, before.rlim_max};
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &none), 0);
    int is_ours = mounts_is_sparsefs(0, 1u << 19);
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &before), 0);
    assert_int_equal(is_ours, -EMFILE);
    assert_int_equal(mounts_is_sparsefs(8, 1), 0); /* a disk */
    assert_int_equal(mounts_may_be_silent(0, 1u << 19), 0);
}

/* ---- Processes ---- */

static void *stay(void *nothing)
{
    prctl(PR_SET_PDEATHSIG, SIGKILL); /* if the test fails */
    for (;;)
        pause();
    return nothing;
}

static bool is_zombie(pid_t pid)
{
    char path[64], text[512] = "";
    snprintf(path, sizeof(path), "/proc/%d/stat", (int)pid);
    FILE *file = fopen(path, "re");
    assert_non_null(file);
    assert_non_null(fgets(text, sizeof(text), file));
    fclose(file);
    return strstr(text, ") Z ") != NULL;
}

static void a_process_goes_on_without_its_main_thread(void **state)
{
    (void)state;
    struct process_status status;
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        pthread_t thread;
        if (pthread_create(&thread, NULL, stay, NULL) != 0)
            _exit(1);
        syscall(SYS_exit, 0); /* this thread */
    }
    while (!is_zombie(pid))
        sched_yield();
    assert_true(process_look_at(pid, &status));
    assert_false(status.was_killed);
    assert_int_equal(kill(pid, SIGKILL), 0);
    assert_true(process_look_at(pid, &status));
    assert_true(status.was_killed);
    assert_int_equal(waitpid(pid, NULL, 0), pid);
    assert_false(process_look_at(pid, &status));
    assert_true(process_look_at(getpid(), &status));
    assert_false(status.was_killed);
    assert_int_equal(status.uid, getuid());
}

/* ---- Names in a tree ---- */

static void expect_path(const struct object_name *name, const char *expected)
{
    char *path = object_name_path(name);
    assert_string_equal(path, expected);
    assert_int_equal(strlen(path), name->path_bytes);
    free(path);
}

static void paths_are_put_together_from_names(void **state)
{
    (void)state;
    struct object_names names = {0};
    const struct object_name *root, *group, *dataset, *empty;
    assert_int_equal(object_names_add(&names, NULL, "", &root), 0);
    assert_int_equal(object_names_add(&names, root, "group", &group), 0);
    assert_int_equal(object_names_add(&names, group, "data", &dataset), 0);
    assert_int_equal(object_names_add(&names, group, "", &empty), 0);
    expect_path(root, "/");
    expect_path(group, "/group");
    expect_path(dataset, "/group/data");
    expect_path(empty, "/group/");
    assert_int_equal(dataset->level, 2);
    object_names_free(&names);
}

static void names_and_paths_have_an_end(void **state)
{
    (void)state;
    struct object_names names = {0};
    const struct object_name *root, *group, *last;
    static char name[OBJECT_NAMES_MOST_PATH + 1];
    memset(name, 'n', OBJECT_NAMES_MOST_PATH);
    assert_int_equal(object_names_add(&names, NULL, "", &root), 0);
    assert_int_equal(object_names_add(&names, root, name, &group), -ENAMETOOLONG);
    assert_int_equal(object_names_add(&names, root, name + 1, &group), 0);
    assert_int_equal(object_names_add(&names, group, "", &last), -ENAMETOOLONG);
    names.bytes = OBJECT_NAMES_MOST_BYTES - sizeof(struct object_name) - 2;
    assert_int_equal(object_names_add(&names, root, "bb", &last), -E2BIG);
    assert_int_equal(object_names_add(&names, root, "b", &last), 0);
    assert_int_equal(object_names_add(&names, root, "", &last), -E2BIG);
    object_names_free(&names);
}

/* ---- How often is logged ---- */

#define SECOND UINT64_C(1000000000)

static void a_line_that_is_repeated_is_said_less_and_less(void **state)
{
    (void)state;
    struct log_rate rate = {0};
    uint64_t now = 5 * SECOND, repeated, all = 0, said = 0;
    assert_false(log_rate_repeats(&rate, now, "one", &repeated));
    assert_true(log_rate_repeats(&rate, now + SECOND / 2, "one", &repeated));
    assert_false(log_rate_repeats(&rate, now + SECOND / 2, "another", &repeated));
    assert_false(log_rate_repeats(&rate, now + SECOND + 1, "one", &repeated));
    assert_int_equal(repeated, 1);
    for (int i = 0; i < 5; i++) { /* what happens seldom is said each time */
        now += 3 * SECOND;
        assert_false(log_rate_repeats(&rate, now, "one", &repeated));
        assert_int_equal(repeated, 0);
    }
    for (int i = 0; i < 100000; i++) { /* 1,000 seconds */
        now += SECOND / 100;
        if (!log_rate_repeats(&rate, now, "one", &repeated)) {
            said++;
            all += repeated;
        }
    }
    assert_in_range(said, 10, 30);
    assert_in_range(all + said, 90000, 100000);
    now += 2 * SECOND; /* it has come to an end */
    assert_false(log_rate_repeats(&rate, now += 64 * SECOND, "one", &repeated));
    assert_false(log_rate_repeats(&rate, now += 2 * SECOND, "one", &repeated));
    log_rate_free(&rate);
}

static void lines_that_are_too_many_are_counted(void **state)
{
    (void)state;
    struct log_rate rate = {0};
    uint64_t now = 5000 * SECOND, left_out, written = 0, counted = 0;
    for (int i = 0; i < LOG_RATE_BURST; i++)
        assert_true(log_rate_allows(&rate, now, &left_out));
    assert_false(log_rate_allows(&rate, now, &left_out));
    for (int i = 0; i < 10000; i++) {
        now += SECOND / 1000;
        written += log_rate_allows(&rate, now, &left_out);
        counted += left_out;
    }
    assert_in_range(written, 9 * LOG_RATE_SECOND, 10 * LOG_RATE_SECOND);
    now += 2 * SECOND;
    assert_true(log_rate_allows(&rate, now, &left_out));
    assert_int_equal(counted + left_out + written, 10001);
    now += 3600 * SECOND;
    for (int i = 0; i < LOG_RATE_BURST; i++)
        assert_true(log_rate_allows(&rate, now, &left_out));
    assert_int_equal(left_out, 0);
}

static void many_lines_are_forgotten(void **state)
{
    (void)state;
    struct log_rate rate = {0};
    uint64_t repeated;
    char line[32];
    for (unsigned i = 0; i <= LOG_RATE_KEPT; i++) {
        snprintf(line, sizeof(line), "line %u", i);
        assert_false(log_rate_repeats(&rate, SECOND + i, line, &repeated));
    }
    assert_true(log_rate_repeats(&rate, 2 * SECOND, line, &repeated));
    assert_true(log_rate_repeats(&rate, 2 * SECOND, "line 1", &repeated));
    assert_false(log_rate_repeats(&rate, 2 * SECOND, "line 0", &repeated));
    log_rate_free(&rate);
}

/* ---- Descriptors of standard input and output ---- */

/* 0 if they are as they must be, in a process of its own: its messages go nowhere. */
static int fill_and_look(int first_closed)
{
    for (int fd = first_closed; fd <= 2; fd++)
        close(fd);
    if (!descriptors_fill_standard())
        return 1;
    char byte = 0;
    for (int fd = first_closed; fd <= 2; fd++)
        if (fcntl(fd, F_GETFD) < 0 || (fd == 0 ? read(fd, &byte, 1) : write(fd, "x", 1)) != -1 ||
            errno != EBADF)
            return 2;
    int next = open("/dev/null", O_RDONLY);
    return next > 2 ? 0 : 3;
}

static void files_get_no_number_of_standard_output(void **state)
{
    (void)state;
    for (int first = 0; first <= 3; first++) {
        int status;
        pid_t pid = fork();
        assert_true(pid >= 0);
        if (pid == 0)
            _exit(fill_and_look(first));
        assert_int_equal(waitpid(pid, &status, 0), pid);
        assert_int_equal(status, 0);
    }
}

/* ---- Compressed files ---- */

/* Somebody exchanges a compressed file after it was looked at. */
static void an_image_that_became_a_fifo_is_not_waited_for(void **state)
{
    (void)state;
    struct loaded loaded;
    assert_int_equal(mkfifo("image.h5.gz", 0600), 0);
    pid_t writer = fork();
    assert_true(writer >= 0);
    if (writer == 0) {
        int fd = open("image.h5.gz", O_WRONLY); /* whoever waits for it is let go, with bytes */
        _exit(fd >= 0 && write(fd, "image", 5) == 5 ? 0 : 1);
    }
    int error = load_image("image.h5.gz", SIZE_MAX, "", &loaded);
    kill(writer, SIGKILL);
    assert_int_equal(waitpid(writer, NULL, 0), writer);
    assert_int_equal(error, -EINVAL);
}

/* ---- Processes ---- */

#define STACK_BYTES ((size_t)64 << 10)

static int ready[2], ends[2]; /* pipes */

static int wait_for_end(void *unused)
{
    (void)unused;
    char byte;
    return write(ready[1], "", 1) == 1 && read(ends[0], &byte, 1) == 0 ? 0 : 1;
}

static void do_nothing(int number)
{
    (void)number;
}

enum with_signal { SIGNAL_ENDS, SIGNAL_IGNORED, SIGNAL_HANDLED, SIGNAL_BLOCKED };

/* A process that waits for its child in the kernel: only SIGKILL would end that. */
static pid_t begin_waiting(enum with_signal how)
{
    assert_int_equal(pipe(ready), 0);
    assert_int_equal(pipe(ends), 0);
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        sigset_t set;
        char *stack = malloc(STACK_BYTES);
        (void)setrlimit(RLIMIT_CORE, &(struct rlimit){0, 0});
        signal(SIGQUIT, how == SIGNAL_IGNORED   ? SIG_IGN
                        : how == SIGNAL_HANDLED ? do_nothing
                                                : SIG_DFL);
        sigemptyset(&set);
        sigaddset(&set, SIGQUIT);
        sigprocmask(how == SIGNAL_BLOCKED ? SIG_BLOCK : SIG_UNBLOCK, &set, NULL);
        close(ends[1]);
        if (stack)
            clone(wait_for_end, stack + STACK_BYTES, CLONE_VFORK | SIGCHLD, NULL);
        _exit(0);
    }
    char byte;
    assert_int_equal(read(ready[0], &byte, 1), 1);
    return pid;
}

static bool was_killed(pid_t pid)
{
    struct process_status process;
    assert_true(process_look_at(pid, &process));
    return process.was_killed;
}

static void a_signal_that_ends_a_process_with_a_core_is_seen(void **state)
{
    (void)state;
    for (enum with_signal how = SIGNAL_ENDS; how <= SIGNAL_BLOCKED; how++) {
        pid_t pid = begin_waiting(how);
        assert_false(was_killed(pid));
        assert_int_equal(kill(pid, SIGQUIT), 0);
        assert_int_equal(was_killed(pid), how == SIGNAL_ENDS);
        int ended;
        close(ends[1]);
        assert_int_equal(waitpid(pid, &ended, 0), pid);
        assert_int_equal(WIFSIGNALED(ended) ? WTERMSIG(ended) : 0,
                         how == SIGNAL_ENDS ? SIGQUIT : 0);
        close(ends[0]);
        close(ready[0]);
        close(ready[1]);
    }
}

TEST_MAIN(cmocka_unit_test(control_characters_are_not_shown),
          cmocka_unit_test(json_has_no_control_characters),
          cmocka_unit_test(only_after_a_signal_nothing_is_changed),
          cmocka_unit_test(numbers_have_the_fewest_digits),
          cmocka_unit_test(a_signal_does_not_keep_a_descriptor_from_being_sent),
          cmocka_unit_test(a_hash_is_as_it_is_defined),
          cmocka_unit_test(each_process_hashes_with_a_secret_of_its_own),
          cmocka_unit_test(keys_that_were_made_alike_lie_apart),
          cmocka_unit_test(a_table_of_mounts_that_cannot_be_read_says_nothing),
          cmocka_unit_test(a_process_goes_on_without_its_main_thread),
          cmocka_unit_test(paths_are_put_together_from_names),
          cmocka_unit_test(names_and_paths_have_an_end),
          cmocka_unit_test(a_line_that_is_repeated_is_said_less_and_less),
          cmocka_unit_test(lines_that_are_too_many_are_counted),
          cmocka_unit_test(many_lines_are_forgotten),
          cmocka_unit_test(files_get_no_number_of_standard_output),
          cmocka_unit_test(an_image_that_became_a_fifo_is_not_waited_for),
          cmocka_unit_test(a_signal_that_ends_a_process_with_a_core_is_seen))
