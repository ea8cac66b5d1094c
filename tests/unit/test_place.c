/* The store: files that are moved, replaced and removed while they are written, or when their
 * writer has died. A power cut is what a killed process leaves, with the pages that were committed
 * last put back as they were, and a journal that does not bear the mark of this system. The linker
 * puts __wrap_openat and so on between the store and the system. */
#include "support.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <sys/xattr.h>
#include <unistd.h>

#include "store/store.h"

#define PAGE       4096
#define FILE_BYTES ((size_t)12 * PAGE)
#define CHANGED    ((size_t)5 * PAGE) /* bytes of a file that differ from version to version */
#define MARK       80                 /* where in a journal its mark stands */

static unsigned char other_bytes[FILE_BYTES];

/* ---- Between the store and the system ---- */

/* Which of these calls fails, counted down; a negative number: none does. */
static long until_bad = -1;
static int bad_error;

static bool is_bad(void)
{
    if (until_bad < 0 || until_bad-- != 0)
        return false;
    errno = bad_error;
    return true;
}

#define WRAPPED __attribute__((visibility("default")))

int __real_openat64(int folder, const char *name, int flags, ...);
int __wrap_openat64(int folder, const char *name, int flags, mode_t mode);
int __real_statx(int fd, const char *path, int flags, unsigned mask, struct statx *st);
int __wrap_statx(int fd, const char *path, int flags, unsigned mask, struct statx *st);
ssize_t __real_fgetxattr(int fd, const char *name, void *value, size_t n);
ssize_t __wrap_fgetxattr(int fd, const char *name, void *value, size_t n);
char *__real_realpath(const char *path, char *resolved);
char *__wrap_realpath(const char *path, char *resolved);
ssize_t __real_readlink(const char *path, char *target, size_t n);
ssize_t __wrap_readlink(const char *path, char *target, size_t n);

WRAPPED int __wrap_openat64(int folder, const char *name, int flags, mode_t mode)
{
    return is_bad() ? -1 : __real_openat64(folder, name, flags, mode);
}

WRAPPED int __wrap_statx(int fd, const char *path, int flags, unsigned mask, struct statx *st)
{
    return is_bad() ? -1 : __real_statx(fd, path, flags, mask, st);
}

WRAPPED ssize_t __wrap_fgetxattr(int fd, const char *name, void *value, size_t n)
{
    bool is_note = strcmp(name, "user.sparsefs.place") == 0;
    return is_note && is_bad() ? -1 : __real_fgetxattr(fd, name, value, n);
}

WRAPPED char *__wrap_realpath(const char *path, char *resolved)
{
    return is_bad() ? NULL : __real_realpath(path, resolved);
}

WRAPPED ssize_t __wrap_readlink(const char *path, char *target, size_t n)
{
    return is_bad() ? -1 : __real_readlink(path, target, n);
}

/* ---- Files ---- */

static void fill(unsigned char *bytes, int version)
{
    for (size_t i = 0; i < FILE_BYTES; i++)
        bytes[i] = (unsigned char)(i / 11 + (i < CHANGED ? 37 * (size_t)version : 0));
}

static bool exists(const char *path)
{
    return access(path, F_OK) == 0;
}

/* A folder a/b with the file f, of version 1, and another one, g. */
static void begin(void)
{
    struct store *store;
    uint64_t address;
    unsigned char bytes[FILE_BYTES];
    assert_int_equal(system("rm -rf a c links && mkdir -p a/b a/d"), 0);
    fill(bytes, 1);
    random_fill(other_bytes, FILE_BYTES);
    for (int i = 0; i < 2; i++) {
        assert_int_equal(store_create(i ? "a/b/g" : "a/b/f", false, &store), 0);
        assert_int_equal(store_allocate(store, FILE_BYTES, &address), 0);
        assert_int_equal(store_write(store, 0, i ? other_bytes : bytes, FILE_BYTES), 0);
        assert_int_equal(store_commit(store), 0);
        store_close(store);
    }
}

static int write_version(struct store *store, int version)
{
    unsigned char bytes[FILE_BYTES];
    fill(bytes, version);
    int error = store_write(store, 0, bytes, CHANGED);
    return error ? error : store_commit(store);
}

static bool holds(struct store *store, const unsigned char *expected)
{
    unsigned char bytes[FILE_BYTES];
    return store_size(store) == FILE_BYTES && store_read(store, 0, bytes, FILE_BYTES) == 0 &&
           memcmp(bytes, expected, FILE_BYTES) == 0;
}

static bool is_version(struct store *store, int version)
{
    unsigned char bytes[FILE_BYTES];
    fill(bytes, version);
    return holds(store, bytes);
}

static int open_any(const char *path, int i, struct store **store)
{
    return i == 0   ? store_open(path, store)
           : i == 1 ? store_open_following(path, store)
                    : store_open_writable(path, store);
}

/* Read, followed, and written; and once more without what was beside it. */
static void assert_version(const char *path, int version)
{
    for (int i = 0; i < 4; i++) {
        struct store *store;
        assert_int_equal(open_any(path, i % 3, &store), 0);
        assert_true(is_version(store, version));
        store_close(store);
    }
}

/* Nothing but these names, separated by blanks, is in the folder. */
static void assert_names(const char *folder, const char *names)
{
    char command[200];
    snprintf(command, sizeof(command), "test \"$(ls -A %s | tr '\\n' ' ')\" = '%s'", folder, names);
    if (system(command) != 0) {
        snprintf(command, sizeof(command), "ls -A %s", folder);
        (void)!system(command);
        fail_msg("%s does not hold just these: %s", folder, names);
    }
}

/* The file has the pages of a version before, and the journal no mark of this system. */
static void cut_power(const char *path, const char *journal, int version)
{
    unsigned char bytes[FILE_BYTES];
    fill(bytes, version);
    int fd = open(path, O_WRONLY);
    assert_int_equal(pwrite(fd, bytes, 3 * PAGE - 1024, 0), 3 * PAGE - 1024);
    close(fd);
    fd = open(journal, O_WRONLY);
    assert_int_equal(pwrite(fd, "?", 1, MARK), 1);
    close(fd);
}

static void in_child(void (*work)(void *), void *context)
{
    int status;
    pid_t child = fork();
    if (child == 0) {
        work(context);
        _exit(0);
    }
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
}

#define expect(is_so)                                                                              \
    do {                                                                                           \
        if (!(is_so)) {                                                                            \
            fprintf(stderr, "line %d: not so: %s\n", __LINE__, #is_so);                            \
            _exit(1);                                                                              \
        }                                                                                          \
    } while (0)

/* ---- Moving ---- */

struct move {
    const char *how, *path, *old; /* where the file is then, and where what stood beside it */
    const char *folder, *names;   /* what is left in the end */
};

static const struct move moves[] = {
    {"mv a/b/f a/b/h", "a/b/h", "a/b/f", "a/b", "g h "},
    {"mv a/b/f a/d/h", "a/d/h", "a/b/f", "a/d", "h "},
    {"mv a/b c", "c/f", "c/f", "c", "f g "},
    {"mv a c", "c/b/f", "c/b/f", "c/b", "f g "},
    {"mv a/b c && mv c/f c/h", "c/h", "c/f", "c", "g h "},
    {"ln a/b/f a/b/h && rm a/b/f", "a/b/h", "a/b/f", "a/b", "g h "},
};

static bool notes_are_kept(void)
{
    return setxattr("a/b/g", "user.test", "x", 1, 0) == 0;
}

static void die_after_commit(void *context)
{
    struct store *store;
    (void)context;
    expect(store_open_writable("a/b/f", &store) == 0 && write_version(store, 2) == 0);
}

/* Whatever happens between two commits: what the first one promised is found by the file. */
static void what_was_committed_is_found_when_the_file_was_moved_without_its_journal(void **state)
{
    (void)state;
    log_quietly();
    for (size_t i = 0; i < COUNT(moves); i++) {
        char journal[64];
        begin();
        if (!notes_are_kept())
            skip();
        in_child(die_after_commit, NULL);
        assert_int_equal(system(moves[i].how), 0);
        snprintf(journal, sizeof(journal), "%s.journal", moves[i].old);
        cut_power(moves[i].path, journal, 1);
        assert_version(moves[i].path, 2);
        assert_false(exists(journal));
        assert_true(getxattr(moves[i].path, "user.sparsefs.place", NULL, 0) < 0);
    }
}

static int open_shared(const char *path, struct store **store)
{
    return store_open_as(path, &(struct store_opening){.writable = true, .is_shared = true}, store);
}

/* A power cut, and then how it is moved. */
static void begin_torn(const char *how, const char *path, const char *journal)
{
    begin();
    in_child(die_after_commit, NULL);
    assert_int_equal(system(how), 0);
    cut_power(path, journal, 1);
}

/* What one call does not say is not known: the file is not opened as if there were no journal, which stays
 * where it can be found. */
static void expect_no_torn_bytes(const char *how, const char *path, const char *journal, int kind,
                                 int error)
{
    bool reached;
    long step = 0, failures = 0;
    begin_torn(how, path, journal);
    do {
        struct store *store;
        if (kind >= 2) /* the one before has brought it home */
            begin_torn(how, path, journal);
        bad_error = error;
        until_bad = step++;
        int failed = kind == 3 ? open_shared(path, &store) : open_any(path, kind, &store);
        reached = until_bad < 0;
        until_bad = -1;
        failures += failed != 0;
        if (!failed) {
            assert_true(is_version(store, 2));
            store_close(store);
        }
        assert_int_equal(store_open(path, &store), 0);
        assert_true(is_version(store, 2));
        store_close(store);
    } while (reached);
    assert_true(failures > 3);
    assert_version(path, 2);
}

static void a_file_is_opened_with_its_journal_or_not_at_all(void **state)
{
    (void)state;
    static const int errors[] = {EIO, EMFILE};
    log_quietly();
    begin();
    for (size_t i = 0; i < COUNT(errors); i++)
        for (int kind = 0; kind < 4; kind++) {
            expect_no_torn_bytes("true", "a/b/f", "a/b/f.journal", kind, errors[i]);
            if (notes_are_kept())
                expect_no_torn_bytes("mv a/b/f a/d/h", "a/d/h", "a/b/f.journal", kind, errors[i]);
        }
}

static void open_for_writing_as_ordinary_user(void *context)
{
    struct store *store;
    (void)context;
    if (geteuid() == 0)
        expect(setresgid(65534, 65534, 65534) == 0 && setresuid(65534, 65534, 65534) == 0);
    expect(store_open_writable("a/d/h", &store) == 0);
    expect(store_close(store) == 0);
}

/* Who may find it later does. */
static void the_note_stays_if_its_place_may_not_be_entered(void **state)
{
    (void)state;
    log_quietly();
    begin();
    if (!notes_are_kept())
        skip();
    begin_torn("mv a/b/f a/d/h", "a/d/h", "a/b/f.journal");
    assert_true(chmod(".", 0755) == 0 && chmod("a/d", 0777) == 0 && chmod("a/d/h", 0666) == 0);
    assert_int_equal(chmod("a/b", 0), 0);
    in_child(open_for_writing_as_ordinary_user, NULL);
    assert_int_equal(chmod("a/b", 0755), 0);
    assert_version("a/d/h", 2);
}

/* The same where descriptors are few, of calls within others, too. */
static void without_descriptors_no_journal_is_missing(void **state)
{
    (void)state;
    log_quietly();
    begin();
    if (!notes_are_kept())
        skip();
    for (int kind = 0; kind < 4; kind++)
        for (int descriptors = 0; descriptors < 16; descriptors++) {
            struct store *store;
            struct rlimit before;
            if (kind >= 2 || descriptors == 0)
                begin_torn("mv a/b/f a/d/h", "a/d/h", "a/b/f.journal");
            int next = open("/dev/null", O_RDONLY);
            close(next);
            assert_int_equal(getrlimit(RLIMIT_NOFILE, &before), 0);
            const struct rlimit few = {(rlim_t)(next + descriptors), before.rlim_max};
            assert_int_equal(setrlimit(RLIMIT_NOFILE, &few), 0);
            int error = kind == 3 ? open_shared("a/d/h", &store) : open_any("a/d/h", kind, &store);
            assert_int_equal(setrlimit(RLIMIT_NOFILE, &before), 0);
            if (!error) {
                assert_true(is_version(store, 2));
                store_close(store);
            }
            assert_int_equal(store_open("a/d/h", &store), 0);
            assert_true(is_version(store, 2));
            store_close(store);
        }
}

/* The same of a file with two names: it is opened by the one that it is not written by. */
static void what_was_committed_is_found_by_every_name(void **state)
{
    (void)state;
    log_quietly();
    begin();
    if (!notes_are_kept())
        skip();
    assert_int_equal(link("a/b/f", "a/d/other"), 0);
    in_child(die_after_commit, NULL);
    cut_power("a/b/f", "a/b/f.journal", 1);
    assert_version("a/d/other", 2);
    assert_names("a/d", "other ");
    assert_false(exists("a/b/f.journal"));

    struct store *store, *follower;
    bool moved;
    assert_int_equal(store_open_writable("a/b/f", &store), 0);
    assert_int_equal(write_version(store, 3), 0);
    assert_int_equal(store_open_following("a/d/other", &follower), 0);
    assert_false(store_is_held_by_stranger(follower));
    assert_true(is_version(follower, 3));
    assert_int_equal(write_version(store, 4), 0);
    assert_int_equal(store_refresh(follower, &moved), 0);
    assert_true(moved && is_version(follower, 4));
    store_close(follower);
    store_close(store);
}

static void die_moved(void *context)
{
    const struct move *move = context;
    struct store *store;
    expect(store_open_writable("a/b/f", &store) == 0 && write_version(store, 2) == 0);
    expect(system(move->how) == 0);
    expect(write_version(store, 3) == 0);
}

static void close_moved(void *context)
{
    const struct move *move = context;
    struct store *store;
    expect(store_open_writable("a/b/f", &store) == 0 && write_version(store, 2) == 0);
    expect(system(move->how) == 0);
    expect(write_version(store, 3) == 0 && write_version(store, 4) == 0);
    expect(store_close(store) == 0);
}

static void forget_note(const char *path)
{
    removexattr(path, "user.sparsefs.place");
}

/* Also where a file cannot have a note. */
static void the_journal_goes_with_a_file_that_is_moved_while_it_is_written(void **state)
{
    (void)state;
    log_quietly();
    for (size_t i = 0; i < COUNT(moves); i++) {
        char journal[64];
        snprintf(journal, sizeof(journal), "%s.journal", moves[i].path);
        begin();
        in_child(die_moved, (void *)&moves[i]);
        forget_note(moves[i].path);
        cut_power(moves[i].path, journal, 2);
        assert_version(moves[i].path, 3);
        assert_names(moves[i].folder, moves[i].names);
        begin();
        in_child(close_moved, (void *)&moves[i]);
        assert_version(moves[i].path, 4);
        assert_names(moves[i].folder, moves[i].names);
    }
    const struct move together = {
        "mv a/b/f a/d/h && mv a/b/f.journal a/d/h.journal && mv a/b/f.commits a/d/h.commits", "",
        "", "", ""};
    begin();
    in_child(die_moved, (void *)&together);
    cut_power("a/d/h", "a/d/h.journal", 2);
    assert_version("a/d/h", 3);
    begin();
    in_child(close_moved, (void *)&together);
    assert_version("a/d/h", 4);
    assert_names("a/d", "h ");
    assert_names("a/b", "g ");
}

/* Nothing is committed between the move and the end, or something. */
static void settling_ends_a_journal_that_was_moved_with_its_file(void **state)
{
    (void)state;
    log_quietly();
    for (int version = 2; version < 4; version++) {
        struct store *store;
        begin();
        assert_int_equal(store_open_writable("a/b/f", &store), 0);
        assert_int_equal(write_version(store, 2), 0);
        assert_int_equal(system("mv a/b/f a/d/h && mv a/b/f.journal a/d/h.journal"), 0);
        assert_int_equal(store_settle(store), 0);
        assert_false(exists("a/d/h.journal"));
        assert_int_equal(version > 2 ? write_version(store, version) : 0, 0);
        store_close(store);
        assert_version("a/d/h", version);
        assert_names("a/d", "h ");
        assert_names("a/b", "g ");
    }
}

/* Whichever call fails as it is looked for: else it would stand aside as that of another file. */
static void a_journal_that_was_moved_with_its_file_is_ended(void **state)
{
    (void)state;
    log_quietly();
    bool reached;
    long step = 0;
    bad_error = EIO;
    do {
        struct store *store;
        begin();
        assert_int_equal(store_open_writable("a/b/f", &store), 0);
        assert_int_equal(write_version(store, 2), 0);
        assert_int_equal(system("mv a/b/f a/d/h && mv a/b/f.journal a/d/h.journal"), 0);
        until_bad = step++;
        (void)write_version(store, 3);
        reached = until_bad < 0;
        until_bad = -1;
        assert_int_equal(store_commit(store), 0);
        store_close(store);
        assert_int_equal(system("! ls a/b a/d | grep journal"), 0);
        assert_version("a/d/h", 3);
    } while (reached);
    assert_true(step > 3);
}

/* Followers would take it for that of a writer. */
static void closing_removes_a_counter_that_was_moved_with_its_file(void **state)
{
    (void)state;
    struct store *store;
    log_quietly();
    begin();
    assert_int_equal(store_open_writable("a/b/f", &store), 0);
    assert_int_equal(write_version(store, 2), 0);
    assert_int_equal(store_settle(store), 0);
    assert_int_equal(system("mv a/b/f a/d/h && mv a/b/f.commits a/d/h.commits"), 0);
    store_close(store);
    assert_names("a/d", "h ");
    assert_names("a/b", "g ");
    assert_version("a/d/h", 2);
}

/* Anybody may put something there in a folder that others may write to. */
static void what_takes_the_name_of_the_journal_is_removed(void **state)
{
    (void)state;
    log_quietly();
    for (int i = 0; i < 6; i++) {
        struct store *store;
        begin();
        assert_int_equal(store_open_writable("a/b/f", &store), 0);
        if (i % 2) {
            assert_int_equal(write_version(store, 2), 0);
            assert_int_equal(unlink("a/b/f.journal"), 0);
        }
        assert_int_equal(i / 2 == 0   ? symlink("g", "a/b/f.journal")
                         : i / 2 == 1 ? mkfifo("a/b/f.journal", 0600)
                                      : link("a/b/g", "a/b/f.journal"),
                         0);
        assert_int_equal(write_version(store, 3), 0);
        assert_int_equal(write_version(store, 4), 0);
        store_close(store);
        assert_version("a/b/f", 4);
        assert_names("a/b", "f g ");
        assert_int_equal(store_open("a/b/g", &store), 0);
        assert_true(holds(store, other_bytes));
        store_close(store);
    }
}

/* ---- Removing and replacing ---- */

static void a_file_that_was_replaced_takes_no_commits_and_leaves_the_other_alone(void **state)
{
    (void)state;
    struct store *store, *other;
    begin();
    log_quietly();
    assert_int_equal(link("a/b/f", "a/d/kept"), 0);
    assert_int_equal(store_open_writable("a/b/f", &store), 0);
    assert_int_equal(write_version(store, 2), 0);
    assert_int_equal(rename("a/b/g", "a/b/f"), 0);
    /* The other one's writer comes before this one has seen it. */
    assert_int_equal(store_open_writable("a/b/f", &other), 0);
    assert_true(holds(other, other_bytes));
    assert_int_equal(write_version(other, 7), 0);
    unsigned errors = log_errors();
    for (int i = 0; i < 3; i++)
        assert_int_equal(write_version(store, 3), -ESTALE);
    assert_int_equal(log_errors(), errors + 1);
    assert_int_equal(write_version(other, 8), 0);
    assert_true(exists("a/b/f.journal") && exists("a/b/f.commits"));

    /* It takes all again when its name is its own. */
    assert_int_equal(rename("a/b/f", "a/b/g"), 0);
    assert_int_equal(write_version(other, 9), 0);
    assert_int_equal(link("a/d/kept", "a/b/f"), 0);
    assert_int_equal(store_commit(store), 0);
    store_close(store);
    store_close(other);
    assert_version("a/b/f", 3);
    assert_names("a/b", "f g ");
}

/* Nothing is lost without a commit. */
static void closing_a_file_that_was_removed_is_no_error(void **state)
{
    (void)state;
    struct store *store;
    begin();
    log_quietly();
    assert_int_equal(store_open_writable("a/b/f", &store), 0);
    assert_int_equal(write_version(store, 2), 0);
    assert_int_equal(unlink("a/b/f"), 0);
    assert_int_equal(store_commit(store), 0);
    assert_int_equal(store_close(store), 0);
    assert_names("a/b", "g ");
}

/* The file was moved and another has its name, beside which its journal lies. */
static void a_journal_is_no_affair_of_another_file_and_waits_for_its_own(void **state)
{
    (void)state;
    log_quietly();
    for (int i = 0; i < 6; i++) {
        bool is_created = i >= 3;
        struct store *store;
        uint64_t address;
        begin();
        if (!notes_are_kept())
            skip();
        in_child(die_after_commit, NULL);
        assert_int_equal(rename("a/b/f", "a/d/f"), 0);
        cut_power("a/d/f", "a/b/f.journal", 1);
        if (is_created) {
            assert_int_equal(store_create("a/b/f", i == 4, &store), 0);
            assert_int_equal(store_allocate(store, FILE_BYTES, &address), 0);
            assert_int_equal(store_write(store, 0, other_bytes, FILE_BYTES), 0);
            assert_int_equal(store_commit(store), 0);
        } else {
            assert_int_equal(rename("a/b/g", "a/b/f"), 0);
            assert_int_equal(open_any("a/b/f", i, &store), 0);
        }
        assert_true(holds(store, other_bytes));
        if (store_is_writable(store)) {
            unsigned char bytes[FILE_BYTES];
            memcpy(bytes, other_bytes, FILE_BYTES);
            memset(bytes, 'x', 100);
            assert_int_equal(store_write(store, 0, bytes, 100), 0);
            assert_int_equal(store_commit(store), 0);
            assert_true(holds(store, bytes));
        }
        store_close(store);
        assert_version("a/d/f", 2);
        assert_names("a/b", is_created ? "f g " : i < 2 ? "f f.commits " : "f ");
    }
}

/* ---- Names of new files ---- */

static void a_new_file_is_made_in_its_folder_whatever_that_is_called(void **state)
{
    (void)state;
    log_quietly();
    struct store *store;
    uint64_t address;
    unsigned char bytes[FILE_BYTES];
    begin();
    fill(bytes, 1);
    assert_int_equal(store_create("a/d/new", false, &store), 0);
    assert_int_equal(system("mv a/d c && mkdir a/d && echo precious > a/d/new"), 0);
    assert_int_equal(store_allocate(store, FILE_BYTES, &address), 0);
    assert_int_equal(store_write(store, 0, bytes, FILE_BYTES), 0);
    assert_int_equal(store_commit(store), 0);
    assert_int_equal(write_version(store, 2), 0);
    store_close(store);
    assert_version("c/new", 2);
    assert_names("c", "new ");
    assert_names("a/d", "new ");
    assert_int_equal(system("test \"$(cat a/d/new)\" = precious"), 0);

    /* Its temporary name leads elsewhere: what is there does not get its name. */
    assert_int_equal(store_create("a/b/new", false, &store), 0);
    assert_int_equal(system("cd a/b && mv .new.*.sparsefs mine && cp g .new.123456.sparsefs"), 0);
    assert_int_equal(store_allocate(store, FILE_BYTES, &address), 0);
    assert_int_equal(store_commit(store), -ESTALE);
    store_close(store);
    assert_false(exists("a/b/new"));
}

/* ---- Folders that may not be written ---- */

static void as_ordinary_user(void *context)
{
    struct store *store;
    unsigned errors = log_errors();
    (void)context;
    if (geteuid() == 0)
        expect(setresgid(65534, 65534, 65534) == 0 && setresuid(65534, 65534, 65534) == 0);
    expect(store_open_writable("a/b/f", &store) == -EACCES);
    expect(log_errors() == errors + 1);
    expect(store_open("a/b/f", &store) == 0 && is_version(store, 1));
    store_close(store);
}

/* No journal could ever be made. */
static void a_file_in_a_folder_that_may_not_be_written_is_not_opened_for_writing(void **state)
{
    (void)state;
    begin();
    log_quietly();
    assert_int_equal(chmod(".", 0755), 0);
    assert_int_equal(chmod("a/b/f", 0666), 0);
    assert_int_equal(chmod("a/b", 0555), 0);
    in_child(as_ordinary_user, NULL);
    assert_int_equal(chmod("a/b", 0755), 0);
    assert_names("a/b", "f g ");
}

/* ---- Files that it leads to ---- */

/* Looks for a file with no more than so many more descriptors. */
static int find_with(struct store *store, const char *name, int descriptors)
{
    struct store_found found;
    struct rlimit before;
    int next = open("/dev/null", O_RDONLY);
    close(next);
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &before), 0);
    const struct rlimit few = {(rlim_t)(next + descriptors), before.rlim_max};
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &few), 0);
    int error = store_find(store, STORE_SOURCE, name, &found);
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &before), 0);
    if (!error)
        store_found_free(&found);
    return error;
}

/* A file that a link has led to looks beside itself. Where that is unknown it is not known either that
 * there is no such file, which would read as the fill value. */
static void find_without_descriptors(bool for_others)
{
    struct store *top, *linked;
    const struct store_reach reach = {.for_others = for_others};
    begin();
    assert_int_equal(system("cp a/b/f a/f && touch a/b/name && chmod 600 a/f a/b/f"), 0);
    assert_int_equal(store_open("a/f", &top), 0);
    assert_int_equal(store_set_reach(top, &reach), 0);
    assert_int_equal(store_open("a/b/f", &linked), 0);
    assert_int_equal(store_share_reach(linked, top, false), 0);
    int failures = 0, error;
    while ((error = find_with(linked, "name", failures)) != 0 && failures < 20) {
        assert_int_equal(error, -EMFILE);
        failures++;
    }
    assert_in_range(failures, 2, 19);
    assert_int_equal(find_with(linked, "other", 0), -EMFILE);
    assert_int_equal(find_with(linked, "other", 20), -ENOENT);
    store_close(linked);
    store_close(top);
}

/* Nor does a file show too much. */
static void without_descriptors_no_file_is_missing(void **state)
{
    (void)state;
    log_quietly();
    find_without_descriptors(false);
    find_without_descriptors(true);
}

TEST_MAIN(cmocka_unit_test(without_descriptors_no_file_is_missing),
          cmocka_unit_test(what_was_committed_is_found_when_the_file_was_moved_without_its_journal),
          cmocka_unit_test(a_file_is_opened_with_its_journal_or_not_at_all),
          cmocka_unit_test(the_note_stays_if_its_place_may_not_be_entered),
          cmocka_unit_test(without_descriptors_no_journal_is_missing),
          cmocka_unit_test(what_was_committed_is_found_by_every_name),
          cmocka_unit_test(the_journal_goes_with_a_file_that_is_moved_while_it_is_written),
          cmocka_unit_test(settling_ends_a_journal_that_was_moved_with_its_file),
          cmocka_unit_test(a_journal_that_was_moved_with_its_file_is_ended),
          cmocka_unit_test(closing_removes_a_counter_that_was_moved_with_its_file),
          cmocka_unit_test(what_takes_the_name_of_the_journal_is_removed),
          cmocka_unit_test(a_file_that_was_replaced_takes_no_commits_and_leaves_the_other_alone),
          cmocka_unit_test(closing_a_file_that_was_removed_is_no_error),
          cmocka_unit_test(a_journal_is_no_affair_of_another_file_and_waits_for_its_own),
          cmocka_unit_test(a_new_file_is_made_in_its_folder_whatever_that_is_called),
          cmocka_unit_test(a_file_in_a_folder_that_may_not_be_written_is_not_opened_for_writing))
