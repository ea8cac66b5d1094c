/* Opening files: what is refused and how, and locks. */
#include "support.h"

#include <errno.h>
#include <fcntl.h>
#include <hdf5.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "dataset/files_together.h"
#include "sparsefs/sparsefs.h"

static void make_file(const char *path, bool latest)
{
    hid_t fapl = H5Pcreate(H5P_FILE_ACCESS);
    if (latest)
        H5Pset_libver_bounds(fapl, H5F_LIBVER_LATEST, H5F_LIBVER_LATEST);
    hid_t file = H5Fcreate(path, H5F_ACC_TRUNC, H5P_DEFAULT, fapl), space = H5Screate(H5S_SCALAR);
    const int value = 42;
    hid_t dataset =
        H5Dcreate2(file, "value", H5T_STD_I32LE, space, H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT);
    assert_true(H5Dwrite(dataset, H5T_NATIVE_INT, H5S_ALL, H5S_ALL, H5P_DEFAULT, &value) >= 0);
    H5Dclose(dataset);
    H5Sclose(space);
    H5Fclose(file);
    H5Pclose(fapl);
}

/* A refusal says why in one line and leaves *file alone. */
static void expect_refused(const char *path, int error)
{
    struct sfs_file *file = (struct sfs_file *)&file;
    unsigned before = log_errors();
    log_quietly();
    assert_int_equal(sfs_open(path, NULL, &file), error);
    assert_ptr_equal(file, &file);
    assert_int_equal(log_errors(), before + 1);
}

static void expect_opened(const char *path)
{
    struct sfs_file *file;
    struct sfs_dataset *dataset;
    struct sfs_slab slab = {.rank = 1, .count = {1}};
    uint64_t address;
    int32_t value = 0;
    assert_int_equal(sfs_open(path, NULL, &file), 0);
    assert_string_equal(sfs_path(file), path);
    assert_int_equal(sfs_find(file, sfs_root(file), "value", &address), 0);
    assert_int_equal(sfs_dataset_open(file, address, "/value", &dataset), 0);
    assert_int_equal(sfs_read(dataset, &slab, 0, &value, 4), 0);
    assert_int_equal(value, 42);
    sfs_dataset_close(dataset);
    sfs_close(file);
}

static void what_is_no_file_is_refused(void **state)
{
    (void)state;
    expect_refused("missing.h5", -ENOENT);
    expect_refused("missing/a.h5", -ENOENT);
    assert_int_equal(mkdir("directory", 0700), 0);
    expect_refused("directory", -EINVAL);
    assert_int_equal(mkfifo("fifo", 0600), 0);
    expect_refused("fifo", -EINVAL);
    expect_refused("/dev/null", -EINVAL);
    assert_int_equal(symlink("loop", "loop"), 0);
    expect_refused("loop", -ELOOP);
    make_file("plain.h5", false);
    expect_refused("plain.h5/a.h5", -ENOTDIR);
}

static void what_is_no_hdf5_is_refused(void **state)
{
    (void)state;
    static const size_t sizes[] = {0, 1, 7, 8, 9, 100, 511, 512, 5000};
    for (size_t i = 0; i < COUNT(sizes); i++) {
        char bytes[5000];
        random_fill(bytes, sizeof(bytes));
        for (int signature = 0; signature < 2; signature++) {
            FILE *out = fopen("noise", "w");
            fwrite(bytes, 1, sizes[i], out);
            fclose(out);
            expect_refused("noise", -EINVAL);
            memcpy(bytes, "\x89HDF\r\n\x1a\n", 8);
        }
    }
}

static void truncated_files_are_refused(void **state)
{
    (void)state;
    for (int latest = 0; latest < 2; latest++) {
        make_file("whole.h5", latest);
        expect_opened("whole.h5");
        struct stat st;
        assert_int_equal(stat("whole.h5", &st), 0);
        for (off_t length = 0; length < st.st_size; length += 1 + length / 8) {
            make_file("cut.h5", latest);
            assert_int_equal(truncate("cut.h5", length), 0);
            expect_refused("cut.h5", -EINVAL);
        }
        make_file("cut.h5", latest);
        assert_int_equal(truncate("cut.h5", st.st_size - 1), 0);
        expect_refused("cut.h5", -EINVAL);
    }
}

/* A process that holds the lock of a writer until it is told to end. */
struct locker {
    pid_t pid;
    int to_end;
};

static struct locker lock_in_another_process(const char *path, int operation)
{
    int locked[2], end[2];
    char byte = 0;
    assert_int_equal(pipe(locked) | pipe(end), 0);
    struct locker locker = {.pid = fork(), .to_end = end[1]};
    if (locker.pid == 0) {
        close(end[1]);
        int fd = open(path, O_RDWR);
        byte = flock(fd, operation | LOCK_NB) == 0;
        bool told = write(locked[1], &byte, 1) == 1 && read(end[0], &byte, 1) == 0;
        _exit(!told);
    }
    close(locked[1]);
    close(end[0]);
    assert_int_equal(read(locked[0], &byte, 1), 1);
    assert_int_equal(byte, 1);
    close(locked[0]);
    return locker;
}

static void end_locker(struct locker *locker)
{
    int status;
    close(locker->to_end);
    assert_int_equal(waitpid(locker->pid, &status, 0), locker->pid);
    assert_int_equal(status, 0);
}

static void a_file_that_another_process_writes_is_busy(void **state)
{
    (void)state;
    static const char *const settings[] = {NULL, "TRUE", "1", "BEST_EFFORT", "nonsense"};
    make_file("locked.h5", false);
    for (size_t i = 0; i < COUNT(settings); i++) {
        if (settings[i])
            setenv("HDF5_USE_FILE_LOCKING", settings[i], 1);
        struct locker locker = lock_in_another_process("locked.h5", LOCK_EX);
        expect_refused("locked.h5", -EBUSY);
        end_locker(&locker);
        expect_opened("locked.h5");
    }
    unsetenv("HDF5_USE_FILE_LOCKING");
}

/* That there is a writer is no error where its file can be followed; where it cannot, it is the error. */
static void a_writer_is_an_error_if_its_file_cannot_be_followed(void **state)
{
    (void)state;
    const struct sfs_options beside = {.beside_writer = true};
    struct sfs_file *writer, *file;
    log_quietly();
    assert_int_equal(sfs_create("written.h5", NULL, &writer), 0);
    assert_int_equal(sfs_flush(writer), 0);
    unsigned errors = log_errors();
    assert_int_equal(sfs_open("written.h5", &beside, &file), 0);
    assert_true(sfs_is_following(file));
    sfs_discard(file);
    assert_int_equal(sfs_close(writer), 0);
    make_file("written.h5", false);
    assert_int_equal(truncate("written.h5", 4), 0);
    struct locker locker = lock_in_another_process("written.h5", LOCK_EX);
    assert_int_equal(log_errors(), errors);
    assert_int_not_equal(sfs_open("written.h5", &beside, &file), 0);
    assert_int_equal(log_errors(), errors + 1);
    end_locker(&locker);
}

/* The caller gets the reason in the words of the log, which has none then; of a file that can be read
 * in no way the log has that. */
static void who_wants_to_write_is_told_why_it_is_only_read(void **state)
{
    (void)state;
    const struct sfs_options writable = {.writable = true};
    struct sfs_file *file;
    struct why why;
    int refusal;
    log_quietly();
    make_file("re\nad.h5", false);
    struct locker locker = lock_in_another_process("re\nad.h5", LOCK_SH);
    unsigned errors = log_errors();
    assert_int_equal(together_open_alone("re\nad.h5", &writable, &why, &refusal, &file), 0);
    assert_int_equal(refusal, -EBUSY);
    assert_false(sfs_is_writable(file));
    assert_non_null(strstr(why.text, "re?ad.h5: another program has it open"));
    assert_int_equal(log_errors(), errors);
    sfs_discard(file);
    end_locker(&locker);
    assert_int_equal(together_open_alone("re\nad.h5", &writable, &why, &refusal, &file), 0);
    assert_int_equal(refusal, 0);
    assert_true(sfs_is_writable(file));
    assert_int_equal(sfs_close(file), 0);
    assert_int_equal(together_open_alone("nowhere", &writable, &why, &refusal, &file), -ENOENT);
    assert_string_equal(why.text, "nowhere: No such file or directory");
    assert_int_equal(log_errors(), errors + 1);
}

static void locks_are_not_minded_if_the_user_says_so(void **state)
{
    (void)state;
    static const char *const settings[] = {"FALSE", "0"};
    make_file("locked.h5", false);
    for (size_t i = 0; i < COUNT(settings); i++) {
        setenv("HDF5_USE_FILE_LOCKING", settings[i], 1);
        struct locker locker = lock_in_another_process("locked.h5", LOCK_EX);
        expect_opened("locked.h5");
        end_locker(&locker);

        struct sfs_file *file;
        assert_int_equal(sfs_open("locked.h5", NULL, &file), 0);
        locker = lock_in_another_process("locked.h5", LOCK_EX);
        end_locker(&locker);
        sfs_close(file);
    }
    unsetenv("HDF5_USE_FILE_LOCKING");
}

static void readers_share_a_file_and_keep_writers_out(void **state)
{
    (void)state;
    make_file("shared.h5", false);
    struct locker locker = lock_in_another_process("shared.h5", LOCK_SH);
    struct sfs_file *file;
    assert_int_equal(sfs_open("shared.h5", NULL, &file), 0);
    end_locker(&locker);

    hid_t writer;
    H5E_BEGIN_TRY
    {
        writer = H5Fopen("shared.h5", H5F_ACC_RDWR, H5P_DEFAULT);
    }
    H5E_END_TRY
    assert_true(writer < 0);
    hid_t reader = H5Fopen("shared.h5", H5F_ACC_RDONLY, H5P_DEFAULT);
    assert_true(reader >= 0);
    H5Fclose(reader);
    sfs_close(file);
    writer = H5Fopen("shared.h5", H5F_ACC_RDWR, H5P_DEFAULT);
    assert_true(writer >= 0);
    H5Fclose(writer);
}

/* Of the newest format, whose superblock says so for the time of writing. */
static void a_file_whose_writer_died_is_busy(void **state)
{
    (void)state;
    make_file("died.h5", true);
    pid_t pid = fork();
    if (pid == 0) {
        hid_t file = H5Fopen("died.h5", H5F_ACC_RDWR, H5P_DEFAULT);
        _exit(file < 0 || H5Fflush(file, H5F_SCOPE_GLOBAL) < 0);
    }
    int status;
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_int_equal(status, 0);
    expect_refused("died.h5", -EBUSY);
}

static void several_files_can_be_open_at_once(void **state)
{
    (void)state;
    struct sfs_file *files[4];
    for (int i = 0; i < 4; i++) {
        char path[] = "several0.h5";
        path[7] = (char)('0' + i % 3); /* the last is the first again */
        if (i < 3)
            make_file(path, i == 1);
        assert_int_equal(sfs_open(path, NULL, &files[i]), 0);
    }
    expect_opened("several1.h5");
    for (int i = 0; i < 4; i++) {
        struct stat st;
        uint64_t address;
        assert_int_equal(sfs_stat(files[i], &st), 0);
        assert_true(S_ISREG(st.st_mode));
        assert_int_equal(sfs_find(files[i], sfs_root(files[i]), "value", &address), 0);
        sfs_close(files[i]);
    }
    sfs_close(NULL);
}

static void linked_files_are_found_beside_the_linking_one_and_share_its_cache(void **state)
{
    (void)state;
    assert_int_equal(mkdir("beside", 0700), 0);
    make_file("beside/from.h5", false);
    make_file("beside/to.h5", false);
    struct sfs_file *from, *to;
    char *path = realpath("beside/to.h5", NULL);
    assert_int_equal(sfs_open("beside/from.h5", &(struct sfs_options){.cache_size = 12345}, &from),
                     0);
    const char *const names[] = {"to.h5", "../beside/to.h5", path};
    for (size_t i = 0; i < COUNT(names); i++) {
        struct sfs_statistics statistics;
        uint64_t address;
        assert_int_equal(sfs_open_linked(from, names[i], &to), 0);
        sfs_statistics(to, &statistics);
        assert_int_equal(statistics.cache_limit, 12345);
        assert_int_equal(sfs_find(to, sfs_root(to), "value", &address), 0);
        sfs_close(to);
    }
    log_quietly();
    assert_int_equal(sfs_open_linked(from, "missing.h5", &to), -ENOENT);
    assert_int_equal(sfs_open_linked(from, "/missing/file.h5", &to), -ENOENT);
    sfs_close(from);
    free(path);
}

static void statistics_begin_with_the_limit(void **state)
{
    (void)state;
    make_file("plain.h5", false);
    struct sfs_file *file;
    struct sfs_statistics statistics;
    assert_int_equal(sfs_open("plain.h5", NULL, &file), 0);
    sfs_statistics(file, &statistics);
    assert_int_equal(statistics.cache_limit, SFS_DEFAULT_CACHE_SIZE);
    assert_int_equal(statistics.cache_bytes, 0);
    assert_true(statistics.store_reads > 0 && statistics.store_bytes_read > 0);
    sfs_close(file);
}

static void the_policy_is_one_of_those_there_are(void **state)
{
    (void)state;
    make_file("plain.h5", false);
    struct sfs_file *file;
    for (enum sfs_policy policy = SFS_POLICY_DEFAULT; policy <= SFS_POLICY_S3_FIFO; policy++) {
        assert_int_equal(sfs_open("plain.h5", &(struct sfs_options){.policy = policy}, &file), 0);
        sfs_close(file);
    }
    const struct sfs_options wrong = {.policy = SFS_POLICY_S3_FIFO + 1};
    assert_int_equal(sfs_open("plain.h5", &wrong, &file), -EINVAL);
}

static void the_limit_can_be_changed(void **state)
{
    (void)state;
    make_file("plain.h5", false);
    struct sfs_file *file;
    struct sfs_statistics statistics;
    assert_int_equal(sfs_open("plain.h5", NULL, &file), 0);
    assert_int_equal(sfs_set_cache_size(file, 54321), 0);
    assert_int_equal(sfs_set_cache_size(file, 0), -EINVAL);
    sfs_statistics(file, &statistics);
    assert_int_equal(statistics.cache_limit, 54321);
    sfs_close(file);
}

/* Two strings of variable length. */
static void make_strings(const char *path)
{
    const char *const strings[] = {"one string", "and another one"};
    hid_t file = H5Fcreate(path, H5F_ACC_TRUNC, H5P_DEFAULT, H5P_DEFAULT);
    hid_t type = H5Tcopy(H5T_C_S1), space = H5Screate_simple(1, (hsize_t[]){2}, NULL);
    assert_true(H5Tset_size(type, H5T_VARIABLE) >= 0);
    hid_t dataset = H5Dcreate2(file, "strings", type, space, H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT);
    assert_true(H5Dwrite(dataset, type, H5S_ALL, H5S_ALL, H5P_DEFAULT, strings) >= 0);
    H5Dclose(dataset);
    H5Sclose(space);
    H5Tclose(type);
    H5Fclose(file);
}

static struct sfs_dataset *open_strings(struct sfs_file *file)
{
    struct sfs_dataset *dataset;
    uint64_t address;
    assert_int_equal(sfs_find(file, sfs_root(file), "strings", &address), 0);
    assert_int_equal(sfs_dataset_open(file, address, "/strings", &dataset), 0);
    return dataset;
}

/* Everything that a call gives. */
union results {
    struct {
        void *first;
        size_t n;
    } bytes;
    struct sfs_dataset *dataset;
    struct sfs_links links;
    struct sfs_link link;
    struct sfs_attributes attributes;
    struct sfs_type type;
    struct sfs_sources sources;
    uint64_t address;
    enum sfs_object_type object_type;
    char *text;
};

static union results result, as_before;

#define EXPECT_UNTOUCHED(call)                                                                     \
    do {                                                                                           \
        assert_true((call) < 0);                                                                   \
        assert_memory_equal(&result, &as_before, sizeof(result));                                  \
    } while (0)

static void what_fails_gives_nothing(void **state)
{
    (void)state;
    make_strings("strings.h5");
    log_quietly();
    memset(&result, 0x5a, sizeof(result));
    as_before = result;
    struct sfs_file *file;
    assert_int_equal(sfs_open("strings.h5", NULL, &file), 0);
    struct sfs_dataset *dataset = open_strings(file);
    const uint64_t root = sfs_root(file), nowhere = 3;
    const struct sfs_encoded no_type = {"no type", 7}, no_space = {"no space", 8};
    const struct sfs_slab too_large = {.rank = 1, .count = {3}};
    char **text = (char **)&result.bytes.first;
    size_t *n = &result.bytes.n;
    const unsigned level = 77;
    const struct sfs_filter too_deflated = {.id = 1, .n_values = 1, .values = &level};
    uint32_t mask;

    EXPECT_UNTOUCHED(sfs_lookup(file, root, "missing", &result.link));
    EXPECT_UNTOUCHED(sfs_lookup(file, nowhere, "missing", &result.link));
    EXPECT_UNTOUCHED(sfs_list(file, nowhere, &result.links));
    EXPECT_UNTOUCHED(sfs_find(file, root, "missing", &result.address));
    EXPECT_UNTOUCHED(sfs_object_type(file, nowhere, &result.object_type));
    EXPECT_UNTOUCHED(sfs_attributes(file, nowhere, &result.attributes));
    EXPECT_UNTOUCHED(sfs_datatype_text(file, root, &result.text));
    EXPECT_UNTOUCHED(sfs_dataset_open(file, root, "/", &result.dataset));
    EXPECT_UNTOUCHED(sfs_type_describe(&no_type, &result.type));
    EXPECT_UNTOUCHED(sfs_element_json(&no_type, "", text));
    EXPECT_UNTOUCHED(
        sfs_filters_encode(&too_deflated, 1, "bytes", 5, &result.bytes.first, n, &mask));
    EXPECT_UNTOUCHED(sfs_virtual_sources(dataset, 1, &result.sources));
    EXPECT_UNTOUCHED(sfs_text(dataset, 1, text, n));
    for (int parts = SFS_LENGTHS; parts <= SFS_JSON; parts++)
        EXPECT_UNTOUCHED(sfs_read_parts(dataset, (enum sfs_parts)parts, 0, 2, 1, text, n));
    EXPECT_UNTOUCHED(sfs_dataset_get_defined(dataset, &no_space, &result.bytes.first, n));
    EXPECT_UNTOUCHED(sfs_encode_defined(dataset, &too_large, 2, &result.bytes.first, n));
    sfs_dataset_close(dataset);
    sfs_close(file);
}

/* What libhdf5 reads and writes has nothing in the cache. */
static void a_dataset_without_cache_can_be_flushed(void **state)
{
    (void)state;
    const struct sfs_options writable = {.writable = true};
    struct sfs_file *file;
    make_strings("strings.h5");
    assert_int_equal(sfs_open("strings.h5", &writable, &file), 0);
    struct sfs_dataset *dataset = open_strings(file);
    assert_int_equal(sfs_flush_dataset(dataset, false), 0);
    assert_int_equal(sfs_flush_dataset(dataset, true), 0);
    sfs_dataset_close(dataset);
    assert_int_equal(sfs_close(file), 0);
}

/* As one is that takes a file's place after the mount has resolved its path. */
static void links_of_others_lead_to_nothing_that_is_shown_to_others(void **state)
{
    (void)state;
    const struct sfs_options own = {.own_links = true};
    struct sfs_options shown = {.for_others = true, .is_trusted = true, .own_links = true};
    struct sfs_options followed = shown;
    struct sfs_file *file;
    followed.follow = true;
    if (geteuid() != 0)
        skip();
    make_file("theirs.h5", true);
    assert_int_equal(symlink("theirs.h5", "to_theirs.h5"), 0);
    assert_int_equal(lchown("to_theirs.h5", 1, 1), 0);
    log_quietly();
    assert_int_equal(sfs_open("to_theirs.h5", &shown, &file), -EPERM);
    assert_int_equal(sfs_open("to_theirs.h5", &followed, &file), -EPERM);
    assert_int_equal(sfs_open("to_theirs.h5", &own, &file), 0);
    assert_int_equal(sfs_close(file), 0);
    assert_int_equal(chown("theirs.h5", 1, 1), 0);
    assert_int_equal(sfs_open("to_theirs.h5", &shown, &file), 0);
    assert_int_equal(sfs_close(file), 0);
    unlink("to_theirs.h5");
    unlink("theirs.h5");
}

static void nothing_can_be_closed_and_freed(void **state)
{
    (void)state;
    assert_int_equal(sfs_close(NULL), 0);
    sfs_discard(NULL);
    sfs_dataset_close(NULL);
    sfs_links_free(NULL);
    sfs_link_free(NULL);
    sfs_attributes_free(NULL);
    sfs_sources_free(NULL);
    sfs_defined_free(NULL);
    sfs_type_free(NULL);
}

TEST_MAIN(cmocka_unit_test(what_is_no_file_is_refused), cmocka_unit_test(what_fails_gives_nothing),
          cmocka_unit_test(a_dataset_without_cache_can_be_flushed),
          cmocka_unit_test(nothing_can_be_closed_and_freed),
          cmocka_unit_test(links_of_others_lead_to_nothing_that_is_shown_to_others),
          cmocka_unit_test(what_is_no_hdf5_is_refused),
          cmocka_unit_test(truncated_files_are_refused),
          cmocka_unit_test(a_file_that_another_process_writes_is_busy),
          cmocka_unit_test(a_writer_is_an_error_if_its_file_cannot_be_followed),
          cmocka_unit_test(who_wants_to_write_is_told_why_it_is_only_read),
          cmocka_unit_test(locks_are_not_minded_if_the_user_says_so),
          cmocka_unit_test(readers_share_a_file_and_keep_writers_out),
          cmocka_unit_test(a_file_whose_writer_died_is_busy),
          cmocka_unit_test(several_files_can_be_open_at_once),
          cmocka_unit_test(linked_files_are_found_beside_the_linking_one_and_share_its_cache),
          cmocka_unit_test(statistics_begin_with_the_limit),
          cmocka_unit_test(the_policy_is_one_of_those_there_are),
          cmocka_unit_test(the_limit_can_be_changed))
