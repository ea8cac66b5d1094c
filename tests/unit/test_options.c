/* The daemon's command line. What it prints about wrong ones goes to stderr. */
#include "support.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <syslog.h>

#include "fs/daemon/options.h"
#include "fs/views_option.h"
#include "sparsefs/sparsefs.h"

#define MAX_ARGUMENTS 16

/* Parses a command line of which the words are given, up to NULL. */
static int parse(struct options *options, const char *const *words)
{
    char *argv[MAX_ARGUMENTS + 1] = {(char *)"sparsefs"};
    int argc = 1;
    for (; *words; words++)
        argv[argc++] = (char *)*words;
    return options_parse(argc, argv, options);
}

#define PARSE(options, ...) parse(options, (const char *const[]){__VA_ARGS__, NULL})

/* One -o option with a file and a mount point. */
static int parse_option(struct options *options, const char *option)
{
    return PARSE(options, "-o", option, "a.h5", "/mnt");
}

static void expect_refused(const char *option)
{
    struct options options;
    int code = parse_option(&options, option);
    options_free(&options);
    if (code != EXIT_USAGE)
        fail_msg("'%s' was not refused", option);
}

static void expect_taken(const char *option)
{
    struct options options;
    int code = parse_option(&options, option);
    options_free(&options);
    if (code != 0)
        fail_msg("'%s' was refused", option);
}

/* Whether libfuse gets to see a word. */
static bool passed_on(const struct options *options, const char *word)
{
    for (int i = 1; i < options->fuse.argc; i++)
        if (strstr(options->fuse.argv[i], word))
            return true;
    return false;
}

static void a_file_and_a_mount_point_are_enough(void **state)
{
    (void)state;
    struct options options;
    assert_int_equal(PARSE(&options, "a.h5", "/mnt"), 0);
    assert_string_equal(options.file, "a.h5");
    assert_string_equal(options.mountpoint, "/mnt");
    assert_int_equal(options.frame_rank, -1);
    assert_int_equal(options.first, 0);
    assert_int_equal(options.cache_size, SFS_DEFAULT_CACHE_SIZE);
    assert_int_equal(options.policy, SFS_POLICY_DEFAULT);
    assert_int_equal(options.staging_size, 256 << 20);
    assert_true(options.threads >= 2);
    assert_int_equal(options.log_level, LOG_WARNING);
    assert_false(options.foreground || options.debug || options.show_help || options.show_version);
    assert_false(options.read_only || options.allow_other || options.direct_io);
    assert_false(options.sparsify);
    assert_int_equal(options.commit_interval, 5);
    assert_null(options.external_files);
    assert_false(options.external_links || options.nonempty || options.is_strict);
    assert_int_equal(options.views, DEFAULT_VIEWS);
    assert_false(options.has_uid || options.has_gid || options.has_umask);
    assert_int_equal(options.fuse.argc, 1);
    options_free(&options);
}

static void missing_and_extra_arguments_are_refused(void **state)
{
    (void)state;
    struct options options;
    assert_int_equal(parse(&options, (const char *const[]){NULL}), EXIT_USAGE);
    options_free(&options);
    assert_int_equal(PARSE(&options, "a.h5"), EXIT_USAGE);
    options_free(&options);
    assert_int_equal(PARSE(&options, "a.h5", "/mnt", "b.h5"), EXIT_USAGE);
    options_free(&options);
    assert_int_equal(PARSE(&options, "a.h5", "/mnt", "-o"), EXIT_USAGE);
    options_free(&options);
}

static void every_option_with_a_value_is_kept(void **state)
{
    (void)state;
    struct options options;
    assert_int_equal(
        PARSE(&options, "-o",
              "frame_rank=2,first=1,cache_size=64M,cache_policy=lru,threads=7,workers=3,"
              "external_files=/first,missing=fill,commit_interval=0,uid=1000,gid=0,"
              "umask=027,external_files=/data/more",
              "a.h5", "/mnt"),
        0);
    assert_int_equal(options.frame_rank, 2);
    assert_int_equal(options.first, 1);
    assert_int_equal(options.cache_size, 64 << 20);
    assert_int_equal(options.policy, SFS_POLICY_LRU);
    assert_int_equal(options.threads, 7);
    assert_int_equal(options.workers, 3);
    assert_true(options.fill_missing);
    assert_string_equal(options.external_files, "/data/more");
    assert_int_equal(options.commit_interval, 0);
    assert_true(options.has_uid && options.has_gid && options.has_umask);
    assert_int_equal(options.uid, 1000);
    assert_int_equal(options.gid, 0);
    assert_int_equal(options.umask, 027);
    assert_int_equal(options.fuse.argc, 1);
    options_free(&options);
}

static void every_switch_is_kept(void **state)
{
    (void)state;
    struct options options;
    assert_int_equal(PARSE(&options, "-f", "-o", "direct_io,external_links,sparsify", "-o",
                           "nonempty", "-orw", "a.h5", "--log=debug", "/mnt"),
                     0);
    assert_true(options.foreground && options.direct_io && options.external_links);
    assert_true(options.nonempty && options.sparsify && !options.read_only);
    assert_false(options.debug);
    assert_int_equal(options.log_level, LOG_DEBUG);
    assert_string_equal(options.file, "a.h5");
    assert_string_equal(options.mountpoint, "/mnt");
    options_free(&options);

    assert_int_equal(PARSE(&options, "-d", "a.h5", "/mnt", "-o", "rw,ro"), 0);
    assert_true(options.debug && options.foreground && options.read_only);
    options_free(&options);
    assert_int_equal(parse_option(&options, "debug"), 0);
    assert_true(options.debug && options.foreground);
    options_free(&options);
}

static void following_is_reading(void **state)
{
    (void)state;
    struct options options;
    static const char *const words[] = {"follow", "follow=1", "ro,follow=1.0", "follow=9,follow"};
    for (size_t i = 0; i < COUNT(words); i++) {
        assert_int_equal(parse_option(&options, words[i]), 0);
        assert_true(options.read_only && options.follow == 1);
        options_free(&options);
    }
    assert_int_equal(parse_option(&options, "follow=0.25"), 0);
    assert_true(options.follow == 0.25);
    options_free(&options);
    assert_int_equal(parse_option(&options, "ro"), 0);
    assert_true(options.follow == 0);
    options_free(&options);
    expect_refused("follow,rw");
    expect_refused("rw,follow=2");
    assert_int_equal(PARSE(&options, "-o", "follow", "-", "/mnt"), EXIT_USAGE);
    options_free(&options);
}

static void options_of_libfuse_and_the_kernel_are_passed_on(void **state)
{
    (void)state;
    static const char *const words[] = {
        "suid",        "nosuid",         "dev",          "nodev",      "exec",      "noexec",
        "allow_root",  "max_read=65536", "auto_unmount", "fsname=run", "subtype=x", "context=x",
        "fscontext=x", "defcontext=x",   "rootcontext=x"};
    struct options options;
    for (size_t i = 0; i < COUNT(words); i++) {
        assert_int_equal(parse_option(&options, words[i]), 0);
        assert_true(passed_on(&options, words[i]));
        options_free(&options);
    }
    assert_int_equal(parse_option(&options, "nosuid,first=1,allow_other,nodev"), 0);
    assert_true(options.allow_other && options.first == 1);
    assert_true(passed_on(&options, "nosuid") && passed_on(&options, "nodev"));
    assert_true(passed_on(&options, "allow_other"));
    assert_false(passed_on(&options, "first"));
    options_free(&options);
}

static void options_of_mount_and_systemd_are_ignored(void **state)
{
    (void)state;
    static const char *const words[] = {"auto",
                                        "noauto",
                                        "user",
                                        "user=me",
                                        "users",
                                        "nouser",
                                        "owner",
                                        "group",
                                        "_netdev",
                                        "nofail",
                                        "defaults",
                                        "comment=x",
                                        "x-systemd.automount",
                                        "X-mount.mkdir",
                                        "atime",
                                        "noatime",
                                        "diratime",
                                        "nodiratime",
                                        "relatime",
                                        "norelatime",
                                        "lazytime",
                                        "nolazytime",
                                        "strictatime",
                                        "nostrictatime",
                                        "async",
                                        "sync",
                                        "dirsync",
                                        "sparsify",
                                        "default_permissions"};
    struct options options;
    for (size_t i = 0; i < COUNT(words); i++) {
        assert_int_equal(parse_option(&options, words[i]), 0);
        assert_int_equal(options.fuse.argc, 1);
        options_free(&options);
    }
}

static void unknown_options_are_refused(void **state)
{
    (void)state;
    static const char *const words[] = {"no_such_option",
                                        "Ro",
                                        "directio",
                                        "direct_io=1",
                                        "first",
                                        "threads",
                                        "cache_size",
                                        "uid",
                                        "frame_rank",
                                        "fsname",
                                        "nosuid=1",
                                        "userx",
                                        "x",
                                        "autox",
                                        "follow=",
                                        "follow=0",
                                        "follow=x",
                                        "follow=1s",
                                        "follow=-1",
                                        "follow=nan",
                                        "staging_size=0",
                                        "image_size=0",
                                        "image_size",
                                        "ro=1",
                                        "firstx=1",
                                        "-x"};
    for (size_t i = 0; i < COUNT(words); i++)
        expect_refused(words[i]);

    static const char *const switches[] = {"-x",      "--foreground", "-s",          "--log",
                                           "--log=",  "--log=loud",   "--log=Error", "-F",
                                           "--helpx", "--versio",     "-ff"};
    for (size_t i = 0; i < COUNT(switches); i++) {
        struct options options;
        assert_int_equal(PARSE(&options, switches[i], "a.h5", "/mnt"), EXIT_USAGE);
        options_free(&options);
    }
}

static void one_bad_option_among_good_ones_is_refused(void **state)
{
    (void)state;
    expect_refused("ro,first=2,nosuid");
    expect_refused("ro,nonsense");
    expect_taken("ro,first=1,nosuid");
}

static void numbers_out_of_range_are_refused(void **state)
{
    (void)state;
    static const char *const wrong[] = {
        "frame_rank=33",     "frame_rank=-1",   "frame_rank=",    "frame_rank=1x",
        "frame_rank= 1",     "frame_rank=+1",   "frame_rank=0x2", "frame_rank=99999999999999999999",
        "first=2",           "first=-1",        "first=",         "threads=0",
        "threads=1025",      "threads=1.5",     "workers=1025",   "workers=-1",
        "commit_interval=x", "uid=4294967295",  "uid=-1",         "uid=root",
        "gid=4294967296",    "umask=1000",      "umask=8",        "umask=-1",
        "umask=0x7",         "missing=",        "missing=1",      "cache_policy=",
        "cache_policy=fifo", "cache_policy=LRU"};
    static const char *const right[] = {"frame_rank=0",
                                        "frame_rank=32",
                                        "frame_rank=007",
                                        "first=0",
                                        "first=1",
                                        "threads=1",
                                        "threads=1024",
                                        "workers=1024",
                                        "uid=4294967294",
                                        "gid=4294967294",
                                        "umask=0",
                                        "umask=777",
                                        "umask=0022",
                                        "missing=fill",
                                        "missing=error",
                                        "cache_policy=2q",
                                        "cache_policy=s3-fifo"};
    for (size_t i = 0; i < COUNT(wrong); i++)
        expect_refused(wrong[i]);
    for (size_t i = 0; i < COUNT(right); i++)
        expect_taken(right[i]);
}

static void sizes_have_units(void **state)
{
    (void)state;
    static const struct {
        const char *option;
        size_t size;
    } cases[] = {
        {"cache_size=1", 1},
        {"cache_size=4096", 4096},
        {"cache_size=3K", 3 << 10},
        {"cache_size=3k", 3 << 10},
        {"cache_size=512M", 512 << 20},
        {"cache_size=512m", 512 << 20},
        {"cache_size=2G", (size_t)2 << 30},
        {"cache_size=2g", (size_t)2 << 30},
#if SIZE_MAX > UINT32_MAX
        {"cache_size=1T", (size_t)1 << 40},
        {"cache_size=18446744073709551615", SIZE_MAX},
        {"cache_size=16777215T", (size_t)16777215 << 40},
        {"cache_size=17179869183G", (size_t)17179869183 << 30},
#else
        {"cache_size=4294967295", SIZE_MAX},
#endif
    };
    for (size_t i = 0; i < COUNT(cases); i++) {
        struct options options;
        assert_int_equal(parse_option(&options, cases[i].option), 0);
        assert_int_equal(options.cache_size, cases[i].size);
        options_free(&options);
    }
}

static void what_is_not_a_size_is_refused(void **state)
{
    (void)state;
    static const char *const wrong[] = {"cache_size=",
                                        "cache_size=0",
                                        "cache_size=0M",
                                        "cache_size=-1",
                                        "cache_size=+1",
                                        "cache_size=M",
                                        "cache_size=1X",
                                        "cache_size=1MB",
                                        "cache_size=1 ",
                                        "cache_size= 1",
                                        "cache_size=1 M",
                                        "cache_size=1.5G",
                                        "cache_size=1@",
                                        "cache_size=1\x0b",
                                        "cache_size=0x10",
                                        "cache_size=18446744073709551616",
                                        "cache_size=16777216T",
                                        "cache_size=17179869184G",
                                        "cache_size=99999999999999999999999"};
    for (size_t i = 0; i < COUNT(wrong); i++)
        expect_refused(wrong[i]);
}

static void levels_of_messages_have_names(void **state)
{
    (void)state;
    static const struct {
        const char *option;
        int level;
    } cases[] = {{"--log=error", LOG_ERR},
                 {"--log=warning", LOG_WARNING},
                 {"--log=info", LOG_INFO},
                 {"--log=debug", LOG_DEBUG}};
    for (size_t i = 0; i < COUNT(cases); i++) {
        struct options options;
        assert_int_equal(PARSE(&options, cases[i].option, "a.h5", "/mnt"), 0);
        assert_int_equal(options.log_level, cases[i].level);
        options_free(&options);
    }
}

static void help_and_version_need_no_arguments(void **state)
{
    (void)state;
    static const char *const help[] = {"-h", "--help"}, *const version[] = {"-V", "--version"};
    struct options options;
    for (size_t i = 0; i < 2; i++) {
        assert_int_equal(PARSE(&options, help[i]), 0);
        assert_true(options.show_help);
        options_free(&options);
        assert_int_equal(PARSE(&options, version[i]), 0);
        assert_true(options.show_version);
        options_free(&options);
    }
}

static void two_dashes_end_the_options(void **state)
{
    (void)state;
    struct options options;
    assert_int_equal(PARSE(&options, "-f", "--", "-a.h5", "-o"), 0);
    assert_true(options.foreground);
    assert_string_equal(options.file, "-a.h5");
    assert_string_equal(options.mountpoint, "-o");
    options_free(&options);
    assert_int_equal(PARSE(&options, "--", "-", "/mnt"), 0);
    assert_string_equal(options.file, "-");
    options_free(&options);
}

static void a_dash_is_a_file(void **state)
{
    (void)state;
    struct options options;
    assert_int_equal(PARSE(&options, "-", "/mnt", "-o", "ro"), 0);
    assert_string_equal(options.file, "-");
    assert_string_equal(options.mountpoint, "/mnt");
    options_free(&options);
}

static void kinds_of_views_are_added(void **state)
{
    (void)state;
    struct options options;
    assert_int_equal(
        PARSE(&options, "-o", "views=raw+stack,strict,staging_size=3M", "a.h5", "/mnt"), 0);
    assert_int_equal(options.views, 1u << VIEW_RAW | 1u << VIEW_STACK_RAW | 1u << VIEW_STACK_NPY);
    assert_true(options.is_strict);
    assert_int_equal(options.staging_size, 3 << 20);
    options_free(&options);
    assert_int_equal(PARSE(&options, "-o", "views=npy+all", "a.h5", "/mnt"), 0);
    assert_int_equal(options.views, ALL_VIEWS);
    options_free(&options);
    assert_int_equal(PARSE(&options, "-o", "views=default+stack.tif", "a.h5", "/mnt"), 0);
    assert_int_equal(options.views, DEFAULT_VIEWS | 1u << VIEW_STACK_TIFF);
    options_free(&options);
    static const char *const wrong[] = {"views=",     "views=raw+",     "views=+raw", "views=ra",
                                        "views=raws", "views=raw,tiff", "views"};
    for (size_t i = 0; i < sizeof(wrong) / sizeof(*wrong); i++) {
        assert_int_equal(PARSE(&options, "-o", wrong[i], "a.h5", "/mnt"), EXIT_USAGE);
        options_free(&options);
    }
}

TEST_MAIN(cmocka_unit_test(a_file_and_a_mount_point_are_enough),
          cmocka_unit_test(missing_and_extra_arguments_are_refused),
          cmocka_unit_test(every_option_with_a_value_is_kept),
          cmocka_unit_test(every_switch_is_kept), cmocka_unit_test(following_is_reading),
          cmocka_unit_test(options_of_libfuse_and_the_kernel_are_passed_on),
          cmocka_unit_test(options_of_mount_and_systemd_are_ignored),
          cmocka_unit_test(unknown_options_are_refused),
          cmocka_unit_test(one_bad_option_among_good_ones_is_refused),
          cmocka_unit_test(numbers_out_of_range_are_refused), cmocka_unit_test(sizes_have_units),
          cmocka_unit_test(what_is_not_a_size_is_refused),
          cmocka_unit_test(levels_of_messages_have_names),
          cmocka_unit_test(help_and_version_need_no_arguments),
          cmocka_unit_test(two_dashes_end_the_options), cmocka_unit_test(a_dash_is_a_file),
          cmocka_unit_test(kinds_of_views_are_added))
