/* Parsing the command line: our options, those of FUSE and mount(8), and the rest refused. */
#include "fs/daemon/options.h"

#include <errno.h>
#include <limits.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <syslog.h>

#include "common/load_stdin_or_gzip.h"
#include "common/parse_size.h"
#include "common/thread.h"
#include "fs/views_option.h"
#include "sparsefs/sparsefs.h"

#define DEFAULT_FOLLOW  1.0 /* seconds */
#define DEFAULT_STAGING ((size_t)256 << 20)
#define DEFAULT_OPEN    64
#define MOST_OPEN       65536
#define LEAST_FOLLOW    0.01
#define MOST_FOLLOW     86400.0

void options_print_help(void)
{
    puts(
        "usage: sparsefs [options] FILE MOUNTPOINT\n"
        "       sparsefs [options] DIRECTORY MOUNTPOINT\n"
        "\n"
        "Mounts an HDF5 file: every dataset is a directory, every frame of it a file.\n"
        "Of a DIRECTORY the whole tree is mounted: HDF5 files are directories in it; all else is\n"
        "read-only.\n"
        "Frames can be written, where the file can. FILE may be compressed (.gz), or - for\n"
        "standard input: it is then read into memory, and mounted read-only.\n"
        "\n"
        "  -o OPTION[,OPTION...]\n"
        "     frame_rank=K           the last K axes are the frame (default: all but the first of\n"
        "                            three and more, otherwise all)\n"
        "     first=0, first=1       the number of the first frame (default: 0)\n"
        "     cache_size=SIZE        memory limit of the chunk cache: K, M, G (default: 256M)\n"
        "     cache_policy=POLICY    which chunk leaves it: 2q (default), lru or s3-fifo\n"
        "     chunk_memory=SIZE      most memory that reading one chunk may take (default: 4G, or "
        "a\n"
        "                            quarter of the machine's if that is less)\n"
        "     direct_io              bypass the kernel's page cache: fastest for reading once\n"
        "     image_size=SIZE        most memory for FILE if it is - or compressed (default: "
        "half)\n"
        "     external_links         follow external links that lead out of the file's folder\n"
        "     external_files=DIR     other files that FILE names (external raw data, sources of\n"
        "                            virtual datasets, links) may be in DIR and below, too\n"
        "     max_open=N             HDF5 files of a DIRECTORY that are open at a time (default: "
        "64)\n"
        "     missing=fill           show the fill value where a source of a virtual dataset or\n"
        "                            a file with raw data is missing, instead of an error\n"
        "     threads=N              FUSE threads, and more while some wait or take long\n"
        "                            (default: one per processor, at least two)\n"
        "     workers=N              cache worker threads (default: one per processor)\n"
        "     commit_interval=SECONDS\n"
        "                            what is written is durable after so long (default: 5; 0: "
        "only\n"
        "                            by fsync and unmounting)\n"
        "     follow[=SECONDS]       read-only: show what another process is appending to the "
        "file,\n"
        "                            at most so much later (default: 1)\n"
        "     hdf5=worker, hdf5=inside\n"
        "                            run libhdf5, and filter plugins, in processes that may do\n"
        "                            nothing (default), or in this one\n"
        "     hdf5_memory=SIZE       most memory of such a process (default: 1G)\n"
        "     hdf5_timeout=SECONDS   how long it may take for one answer, and built-in\n"
        "                            filters for one chunk (default: 10)\n"
        "     sparsify               writing an element equal to the fill value erases it\n"
        "     views=KIND[+KIND...]   show only raw, defined, npy, tiff, values, npz, stack,\n"
        "                            csr, text, ragged or lines;\n"
        "                            default are all these; not shown otherwise: stack.tif,\n"
        "                            png, cbf, csv, zarr; all\n"
        "     staging_size=SIZE      memory for files that are renamed to frames, and for those "
        "of\n"
        "                            other programs until they are closed (default: 256M)\n"
        "     strict                 refuse modes, owners, times and removals that cannot be kept\n"
        "     trust                  root with allow_other: let libhdf5 read another user's file "
        "as\n"
        "                            root; without hdf5=inside it need not\n"
        "     uid=N, gid=N, umask=M  owner and permissions to show instead of the file's\n"
        "     nonempty               mount over a directory that is not empty\n"
        "     ro, rw                 do not write; write (default: rw)\n"
        "     allow_other, ...       options of FUSE and mount(8)\n"
        "  -f                        stay in the foreground\n"
        "  -d                        print every request (implies -f)\n"
        "  --log=LEVEL               error, warning, info or debug (default: warning)\n"
        "  -V, --version             print the version, and those of libraries\n"
        "  -h, --help                print this\n"
        "\n"
        "Exit codes: 0 success, 1 usage or permission, 2 system error, 4 internal bug,\n"
        "8 interrupted, 32 mount failed. See sparsefs(1).");
}

static int refuse(const char *what, const char *value)
{
    fprintf(stderr, "sparsefs: %s: %s\n", value, what);
    return -1;
}

/* A decimal or, for umask, octal number up to max. */
static int parse_number(const char *option, const char *value, int base, unsigned long max,
                        unsigned long *number)
{
    char *end;
    errno = 0;
    *number = strtoul(value, &end, base);
    if (*value < '0' || *value > '9' || *end || errno || *number > max)
        return refuse("not a number in range", option);
    return 0;
}

/* Seconds, also parts of one. */
static int parse_interval(const char *option, const char *value, double *seconds)
{
    char *end;
    *seconds = strtod(value, &end);
    if (*value < '0' || *value > '9' || *end || !(*seconds >= LEAST_FOLLOW) ||
        *seconds > MOST_FOLLOW)
        return refuse("not a number of seconds from 0.01 to 86400", option);
    return 0;
}

static int parse_size(const char *option, const char *value, size_t *size)
{
    return size_parse(value, size) ? 0 : refuse("not a size (a number, with K, M, G or T)", option);
}

static int parse_policy(const char *option, const char *value, enum sfs_policy *policy)
{
    static const char *const names[] = {
        [SFS_POLICY_LRU] = "lru", [SFS_POLICY_2Q] = "2q", [SFS_POLICY_S3_FIFO] = "s3-fifo"};
    for (*policy = SFS_POLICY_LRU; *policy <= SFS_POLICY_S3_FIFO; ++*policy)
        if (!strcmp(value, names[*policy]))
            return 0;
    return refuse("the policies are 2q, lru and s3-fifo", option);
}

static int parse_log_level(const char *option, const char *value, int *level)
{
    static const struct {
        const char *name;
        int level;
    } levels[] = {
        {"error", LOG_ERR}, {"warning", LOG_WARNING}, {"info", LOG_INFO}, {"debug", LOG_DEBUG}};
    for (size_t i = 0; i < sizeof(levels) / sizeof(*levels); i++) {
        if (!strcmp(value, levels[i].name)) {
            *level = levels[i].level;
            return 0;
        }
    }
    return refuse("the levels are error, warning, info and debug", option);
}

/* What follows "name=" in an option, or NULL. */
static const char *value_of(const char *option, const char *name)
{
    size_t n = strlen(name);
    return !strncmp(option, name, n) && option[n] == '=' ? option + n + 1 : NULL;
}

static int parse_views(const char *option, const char *value, unsigned *views)
{
    return views_parse(value, views)
               ? 0
               : refuse("the kinds of views are " VIEWS_OPTION_WORDS ", with + between them",
                        option);
}

/* Options with a value: 1 done, 0 not one of these, -1 refused. */
static int take_value(struct options *options, const char *option)
{
    const char *value;
    unsigned long number;
    int error;
    if ((value = value_of(option, "frame_rank"))) {
        error = parse_number(option, value, 10, SFS_MAX_RANK, &number);
        options->frame_rank = (int)number;
    } else if ((value = value_of(option, "first"))) {
        error = parse_number(option, value, 10, 1, &number);
        options->first = (unsigned)number;
    } else if ((value = value_of(option, "cache_size"))) {
        error = parse_size(option, value, &options->cache_size);
    } else if ((value = value_of(option, "cache_policy"))) {
        error = parse_policy(option, value, &options->policy);
    } else if ((value = value_of(option, "chunk_memory"))) {
        error = parse_size(option, value, &options->chunk_memory);
    } else if ((value = value_of(option, "image_size"))) {
        error = parse_size(option, value, &options->image_size);
    } else if ((value = value_of(option, "staging_size"))) {
        error = parse_size(option, value, &options->staging_size);
    } else if ((value = value_of(option, "threads"))) {
        error = parse_number(option, value, 10, 1024, &number);
        if (!error && number == 0)
            error = refuse("at least one is needed", option);
        options->threads = (unsigned)number;
    } else if ((value = value_of(option, "workers"))) {
        error = parse_number(option, value, 10, 1024, &number);
        if (!error && number == 0)
            error = refuse("at least one is needed", option);
        options->workers = (unsigned)number;
    } else if ((value = value_of(option, "max_open"))) {
        error = parse_number(option, value, 10, MOST_OPEN, &number);
        if (!error && number == 0)
            error = refuse("at least one is needed", option);
        options->max_open = (unsigned)number;
    } else if ((value = value_of(option, "commit_interval"))) {
        error = parse_number(option, value, 10, INT_MAX, &number);
        options->commit_interval = (unsigned)number;
    } else if ((value = value_of(option, "follow"))) {
        error = parse_interval(option, value, &options->follow);
    } else if ((value = value_of(option, "missing"))) {
        options->fill_missing = !strcmp(value, "fill");
        error = options->fill_missing || !strcmp(value, "error")
                    ? 0
                    : refuse("neither fill nor error", option);
    } else if ((value = value_of(option, "external_files"))) {
        free(options->external_files);
        options->external_files = strdup(value);
        error = !*value                   ? refuse("a folder is wanted", option)
                : options->external_files ? 0
                                          : refuse(strerror(ENOMEM), option);
    } else if ((value = value_of(option, "hdf5"))) {
        options->hdf5_inside = !strcmp(value, "inside");
        error = options->hdf5_inside || !strcmp(value, "worker")
                    ? 0
                    : refuse("neither worker nor inside", option);
    } else if ((value = value_of(option, "hdf5_memory"))) {
        error = parse_size(option, value, &options->hdf5_memory);
    } else if ((value = value_of(option, "hdf5_timeout"))) {
        error = parse_interval(option, value, &options->hdf5_timeout);
    } else if ((value = value_of(option, "views"))) {
        error = parse_views(option, value, &options->views);
    } else if ((value = value_of(option, "uid"))) {
        error = parse_number(option, value, 10, UINT32_MAX - 1, &number);
        options->uid = (uid_t)number;
        options->has_uid = true;
    } else if ((value = value_of(option, "gid"))) {
        error = parse_number(option, value, 10, UINT32_MAX - 1, &number);
        options->gid = (gid_t)number;
        options->has_gid = true;
    } else if ((value = value_of(option, "umask"))) {
        error = parse_number(option, value, 8, 0777, &number);
        options->umask = (mode_t)number;
        options->has_umask = true;
    } else {
        return 0;
    }
    return error ? error : 1;
}

static bool is_one_of(const char *option, const char *const *list)
{
    for (; *list; list++) {
        size_t n = strlen(*list);
        bool is_prefix = (*list)[n - 1] == '=' || (*list)[n - 1] == '-';
        if (is_prefix ? !strncmp(option, *list, n) : !strcmp(option, *list))
            return true;
    }
    return false;
}

/* Read by mount(8), fstab readers and systemd only or without meaning here. */
static const char *const ignored[] = {
    "auto",     "noauto",     "user",        "user=",
    "users",    "nouser",     "owner",       "group",
    "_netdev",  "nofail",     "defaults",    "comment=",
    "x-",       "X-",         "atime",       "noatime",
    "diratime", "nodiratime", "relatime",    "norelatime",
    "lazytime", "nolazytime", "strictatime", "nostrictatime",
    "async",    "sync",       "dirsync",     "default_permissions",
    "silent",   "loud",       "mand",        "nomand",
    "iversion", "noiversion", "nousers",     "nogroup",
    "noowner",  NULL};

/* libfuse and the kernel take these. */
static const char *const passed_on[] = {
    "suid",    "nosuid",   "dev",      "nodev",      "exec",        "noexec",       "max_read=",
    "fsname=", "subtype=", "context=", "fscontext=", "defcontext=", "rootcontext=", NULL};

static void set_writing(struct options *options, bool writing)
{
    options->wants_writing = writing;
    options->read_only = !writing;
}

static int take_option(struct options *options, const char *option)
{
    int taken = take_value(options, option);
    if (taken)
        return taken < 0 ? -1 : 0;
    if (!strcmp(option, "direct_io"))
        options->direct_io = true;
    else if (!strcmp(option, "external_links"))
        options->external_links = true;
    else if (!strcmp(option, "nonempty"))
        options->nonempty = true;
    else if (!strcmp(option, "rw"))
        set_writing(options, true);
    else if (!strcmp(option, "ro"))
        set_writing(options, false);
    else if (!strcmp(option, "sparsify"))
        options->sparsify = true;
    else if (!strcmp(option, "strict"))
        options->is_strict = true;
    else if (!strcmp(option, "trust"))
        options->trusts = true;
    else if (!strcmp(option, "allow_other")) {
        options->allow_other = true;
        return 1;
    } else if (!strcmp(option, "allow_root")) {
        options->allow_root = true;
        return 1;
    } else if (!strcmp(option, "auto_unmount")) {
        options->auto_unmount = true;
        return 1;
    } else if (!strcmp(option, "follow"))
        options->follow = DEFAULT_FOLLOW;
    else if (is_one_of(option, passed_on))
        return 1;
    else if (!is_one_of(option, ignored))
        return refuse("no such option (see sparsefs --help)", option);
    return 0;
}

enum { KEY_FOREGROUND, KEY_DEBUG, KEY_HELP, KEY_VERSION, KEY_LOG };

static const struct fuse_opt templates[] = {FUSE_OPT_KEY("-f", KEY_FOREGROUND),
                                            FUSE_OPT_KEY("-d", KEY_DEBUG),
                                            FUSE_OPT_KEY("debug", KEY_DEBUG),
                                            FUSE_OPT_KEY("-h", KEY_HELP),
                                            FUSE_OPT_KEY("--help", KEY_HELP),
                                            FUSE_OPT_KEY("-V", KEY_VERSION),
                                            FUSE_OPT_KEY("--version", KEY_VERSION),
                                            FUSE_OPT_KEY("--log=", KEY_LOG),
                                            FUSE_OPT_END};

static int take_argument(void *data, const char *argument, int key, struct fuse_args *out)
{
    (void)out;
    struct options *options = data;
    if (!strcmp(argument, "-"))
        key = FUSE_OPT_KEY_NONOPT; /* standard input, not an option */
    switch (key) {
    case KEY_FOREGROUND:
        options->foreground = true;
        return 0;
    case KEY_DEBUG:
        options->debug = options->foreground = true;
        return 0;
    case KEY_HELP:
        options->show_help = true;
        return 0;
    case KEY_VERSION:
        options->show_version = true;
        return 0;
    case KEY_LOG:
        return parse_log_level(argument, argument + strlen("--log="), &options->log_level);
    case FUSE_OPT_KEY_NONOPT:
        if (options->mountpoint)
            return refuse("one FILE and one MOUNTPOINT are wanted, this is too much", argument);
        char **place = options->file ? &options->mountpoint : &options->file;
        *place = strdup(argument);
        return *place ? 0 : -1;
    default:
        if (argument[0] == '-')
            return refuse("no such option (see sparsefs --help)", argument);
        return take_option(options, argument);
    }
}

int options_parse(int argc, char **argv, struct options *options)
{
    unsigned processors = thread_processors();
    *options = (struct options){
        .mountpoint_fd = -1,
        .frame_rank = -1,
        .views = DEFAULT_VIEWS,
        .log_level = LOG_WARNING,
        .cache_size = SFS_DEFAULT_CACHE_SIZE,
        .image_size = load_default_limit(),
        .staging_size = DEFAULT_STAGING,
        .commit_interval = 5,
        .max_open = DEFAULT_OPEN,
        .threads = processors > 2 ? processors : 2,
        .fuse = FUSE_ARGS_INIT(argc, argv),
    };
    if (fuse_opt_parse(&options->fuse, options, templates, take_argument) < 0)
        return EXIT_USAGE;
    if (options->show_help || options->show_version)
        return 0;
    if (!options->mountpoint) {
        fputs("sparsefs: a FILE and a MOUNTPOINT are wanted (see sparsefs --help)\n", stderr);
        return EXIT_USAGE;
    }
    if (options->follow > 0 && options->wants_writing) {
        fputs("sparsefs: follow shows what another process writes: not together with rw\n", stderr);
        return EXIT_USAGE;
    }
    if (options->follow > 0 && !strcmp(options->file, "-")) {
        fputs("sparsefs: -: an image does not grow: it cannot be followed\n", stderr);
        return EXIT_USAGE;
    }
    options->read_only |= options->follow > 0;
    return 0;
}

void options_free(struct options *options)
{
    free(options->file);
    free(options->mountpoint);
    free(options->external_files);
    fuse_opt_free_args(&options->fuse);
}
