/* The daemon: from the command line to a mount that works, and to its end. */
#include <errno.h>
#include <inttypes.h>
#include <linux/capability.h>
#include <malloc.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <syslog.h>
#include <unistd.h>

#include "common/clock.h"
#include "common/cpu_limit.h"
#include "common/descriptors.h"
#include "common/load_stdin_or_gzip.h"
#include "common/log.h"
#include "common/log_rate.h"
#include "common/thread.h"
#include "config.h"
#include "dataset/files_together.h"
#include "fs/daemon/ask_as_mounter.h"
#include "fs/daemon/at_mount_point.h"
#include "fs/daemon/detach.h"
#include "fs/daemon/enter_namespace.h"
#include "fs/daemon/last_messages.h"
#include "fs/daemon/loop.h"
#include "fs/daemon/mountpoint.h"
#include "fs/daemon/open_and_close.h"
#include "fs/interrupt.h"
#include "fs/mount.h"
#include "fs/open.h"
#include "fs/reader_descriptors.h"

#define READAHEAD_KIB    1024 /* first reads through the page cache are twice as fast as with 128 */
#define DECODING_SECONDS 10.0 /* of processor time, for one chunk */
#define DECODER_BYTES    ((size_t)512 << 20) /* of address space, besides what it decodes */

#define DESCRIPTORS_OF_SOURCES 256 /* of a file: 64 that are kept open */
#define DESCRIPTORS_OF_LINKED  4   /* of each that external links lead to, with a part for others */
#define DESCRIPTORS_OF_WORKERS 4096 /* for files of sources that processes of libhdf5 have open */
#define DESCRIPTORS_BESIDE     256

static atomic_bool use_syslog;
static atomic_int log_level;

static pthread_mutex_t rate_lock = PTHREAD_MUTEX_INITIALIZER; /* guards: */
static struct log_rate rate;

static void write_line(int level, const char *line)
{
    if (atomic_load(&use_syslog))
        syslog(level, "%s", line);
    else
        fprintf(stderr, "sparsefs: %s\n", line);
}

/* Whoever may read can have errors said as often as he likes. .sparsefs/log, which is bounded, has also those that
 * were too many for the log. That what was written is lost takes nothing of what they may take. */
static void log_line(int level, const char *line)
{
    char again[LOG_MOST_LINE + 64], left[64];
    bool is_written = level <= atomic_load(&log_level);
    uint64_t repeated = 0, left_out = 0;
    if (level <= LOG_INFO) {
        uint64_t now = clock_now();
        pthread_mutex_lock(&rate_lock);
        bool is_said = !log_rate_repeats(&rate, now, line, &repeated);
        if (level > LOG_CRIT)
            is_written = is_said && is_written && log_rate_allows(&rate, now, &left_out);
        pthread_mutex_unlock(&rate_lock);
        if (!is_said)
            return;
    }
    if (left_out) {
        snprintf(left, sizeof(left), "%" PRIu64 " lines of the log were left out", left_out);
        messages_add(LOG_WARNING, left);
        write_line(LOG_WARNING, left);
    }
    if (repeated) {
        snprintf(again, sizeof(again), "%s (and %" PRIu64 " times before)", line, repeated);
        line = again;
    }
    messages_add(level, line);
    if (is_written)
        write_line(level, line);
}

static void log_fuse(enum fuse_log_level level, const char *format, va_list args)
{
    char line[512];
    vsnprintf(line, sizeof(line), format, args);
    line[strcspn(line, "\n")] = '\0';
    log_line((int)level, line);
}

/* Absolute paths: a daemon has no working directory. Standard input and descriptors have none. The folder of other
 * files keeps the name by which files may refer to it. */
static int resolve_paths(struct options *options)
{
    char **paths[] = {&options->file, &options->mountpoint, &options->external_files};
    bool is_given[] = {strcmp(options->file, LOAD_STANDARD_INPUT) != 0,
                       !mountpoint_is_descriptor(options->mountpoint),
                       options->external_files != NULL};
    for (size_t i = 0; i < sizeof(paths) / sizeof(*paths); i++) {
        if (!is_given[i])
            continue;
        char *resolved = realpath(*paths[i], NULL);
        if (!resolved) {
            daemon_fail(*paths[i], strerror(errno));
            return errno == EACCES ? EXIT_USAGE : EXIT_MOUNT_FAILED;
        }
        bool is_kept = paths[i] == &options->external_files && **paths[i] == '/';
        char *dropped = is_kept ? resolved : *paths[i];
        if (!is_kept)
            *paths[i] = resolved;
        int status = paths[i] == &options->file ? daemon_judge_links(options, dropped) : 0;
        free(dropped);
        if (status)
            return status;
    }
    return 0;
}

/* Sets the kernel's readahead of the mount, which applies what we ask for only after mounting, if
 * permitted. */
static void raise_readahead(dev_t device)
{
    char path[64];
    snprintf(path, sizeof(path), "/sys/class/bdi/%u:%u/read_ahead_kb", major(device),
             minor(device));
    FILE *out = fopen(path, "w");
    bool raised = out && fprintf(out, "%d\n", READAHEAD_KIB) > 0;
    if (out && fclose(out) != 0)
        raised = false;
    if (!raised)
        log_info("%s: the readahead stays as it is: %s", path, strerror(errno));
}

struct starting {
    const struct mounted_here *mounted;
    struct loop *loop;
    dev_t below; /* what the mount point shows while nothing is mounted there */
    pthread_t thread;
    bool started;
    atomic_bool ended; /* the mount serves no longer, by a signal or because it was unmounted */
    /* Read after the thread has ended: */
    bool failed;
    bool interrupted; /* it ended before the mount could answer */
};

struct asking {
    const char *path;
    bool by_descriptor; /* nothing is asked that a link leads to */
    struct stat st;
    int error;
};

/* A thread that waits for its own mount cannot be killed: nothing that must be released may be held
 * then. */
static void *ask(void *data)
{
    struct asking *asking = data;
    keeper_leave_descriptors();
    int fd = asking->by_descriptor ? mountpoint_open(asking->path) : -1;
    int failed = asking->by_descriptor ? fstat(fd, &asking->st) : stat(asking->path, &asking->st);
    asking->error = failed >= 0 ? 0 : asking->by_descriptor && fd < 0 ? ESTALE : errno;
    if (fd >= 0)
        close(fd);
    return NULL;
}

/* Asks the mount for its root, as a user would: an answer proves that it works. */
static int ask_for_root(const struct starting *starting, struct stat *st)
{
    const struct options *options = starting->mounted->options;
    char *where = mountpoint_where(options);
    struct asking asking = {.path = where ? where : options->mountpoint,
                            .by_descriptor = where && starting->mounted->by_descriptor};
    pthread_t thread;
    int error = thread_start(&thread, ask, &asking);
    if (!error) {
        pthread_join(thread, NULL);
        *st = asking.st;
        error = asking.error;
    }
    free(where);
    return error;
}

static void *watch_start(void *data)
{
    struct starting *starting = data;
    const struct options *options = starting->mounted->options;
    struct stat st = {.st_dev = starting->below};
    bool has_path = !mountpoint_is_descriptor(options->mountpoint);
    int error = has_path ? ask_for_root(starting, &st) : 0;
    starting->interrupted = atomic_load(&starting->ended);
    if (starting->interrupted)
        return NULL;
    if (error) {
        starting->failed = true;
        log_error("%s: the mount does not answer: %s", options->mountpoint, strerror(error));
        loop_end(starting->loop);
        return NULL;
    }
    if (st.st_dev != starting->below) /* else it was unmounted again meanwhile */
        raise_readahead(st.st_dev);
    if (!options->foreground) {
        openlog("sparsefs", LOG_PID, LOG_DAEMON);
        atomic_store(&use_syslog, true);
    }
    daemon_ready();
    return NULL;
}

/* No requests are served any more. Only the session's own descriptor is left of the connection. */
static void end_notify(struct mount *mount)
{
    notify_destroy(mount->notify);
    mount->notify = NULL;
    keeper_destroy(mount->keeper);
    mount->keeper = NULL;
}

static int serve(struct fuse_session *session, struct mount *mount,
                 const struct mounted_here *mounted, dev_t below)
{
    struct loop *loop = mount->loop;
    const struct options *options = mount->options;
    struct starting starting = {.mounted = mounted, .loop = loop, .below = below};
    int status = 0;
    if (mount->is_writable)
        status =
            notify_create(mount->nodes, mount->temporaries, session, mount->keeper, &mount->notify);
    if (!status)
        status = -thread_start(&starting.thread, watch_start, &starting);
    starting.started = !status;
    if (!status)
        status = loop_run(loop);
    interrupt_all();
    nodes_interrupt(mount->nodes);
    int error = loop_stop(loop);
    status = status ? status : error;
    end_notify(mount);
    atomic_store(&starting.ended, true); /* running calls end early */
    mountpoint_unmount(mounted, session);
    if (starting.started)
        pthread_join(starting.thread, NULL);
    if (status < 0)
        log_error("the mount has ended: %s", strerror(-status));
    if (starting.interrupted && !options->foreground)
        return EXIT_INTERRUPTED;
    return status < 0 ? EXIT_SYSTEM : starting.failed ? EXIT_MOUNT_FAILED : EXIT_DONE;
}

/* Adds "-o option" for libfuse. */
static bool add_option(struct fuse_args *args, const char *name, const char *value)
{
    char *list = NULL, *argument = NULL;
    bool done = false;
    if (value) {
        /* Commas and backslashes of a path are escaped by libfuse's own means. */
        if (asprintf(&argument, "%s=%s", name, value) >= 0 &&
            fuse_opt_add_opt_escaped(&list, argument) == 0)
            done = fuse_opt_add_arg(args, "-o") == 0 && fuse_opt_add_arg(args, list) == 0;
    } else {
        done = fuse_opt_add_arg(args, "-o") == 0 && fuse_opt_add_arg(args, name) == 0;
    }
    free(argument);
    free(list);
    return done;
}

static bool add_fuse_options(struct options *options, bool is_writable)
{
    struct fuse_args *args = &options->fuse;
    return (is_writable || add_option(args, "ro", NULL)) &&
           add_option(args, "default_permissions", NULL) &&
           add_option(args, "subtype", "sparsefs") && add_option(args, "fsname", options->file) &&
           (!options->debug || fuse_opt_add_arg(args, "-d") == 0);
}

static int mount_and_serve(struct mount *mount, struct options *options)
{
    int status = EXIT_MOUNT_FAILED;
    struct fuse_lowlevel_ops requests = mount_requests;
    if (mount->files)
        mount_folder_requests(&requests);
    if (!add_fuse_options(options, mount->is_writable))
        return EXIT_SYSTEM;
    struct fuse_session *session =
        fuse_session_new(&options->fuse, &requests, sizeof(requests), mount);
    if (!session)
        return EXIT_USAGE;
    struct stat below = {0};
    struct mounted_here mounted;
    bool has_path = !mountpoint_is_descriptor(options->mountpoint);
    int error = loop_create(session, options->threads, &mount->loop);
    if (!error && has_path && fstat(options->mountpoint_fd, &below) < 0)
        error = -errno;
    if (error) {
        daemon_fail(options->mountpoint, strerror(-error));
        status = EXIT_SYSTEM;
    } else if (mountpoint_mount(options, session, &mounted) == 0) {
        status = serve(session, mount, &mounted, below.st_dev);
    } else if (has_path) {
        mountpoint_explain(options->allow_other || options->allow_root);
    }
    loop_destroy(mount->loop);
    mount->loop = NULL;
    fuse_session_destroy(session);
    return status;
}

/* Each HDF5 file takes a few descriptors, and each source of one, if it has any. */
static void allow_descriptors(const struct options *options)
{
    unsigned files = options->is_folder ? options->max_open : 1;
    uint64_t least = (uint64_t)files * MOUNTED_DESCRIPTORS + DESCRIPTORS_BESIDE;
    uint64_t in_use = options->is_folder ? mounted_most_in_use(files) - files : 0;
    uint64_t others = options->is_folder ? in_use * MOUNTED_DESCRIPTORS + READER_DESCRIPTORS
                                         : (uint64_t)NODES_MOST_LINKED * DESCRIPTORS_OF_LINKED;
    uint64_t allowed = descriptors_allow(least + (uint64_t)files * DESCRIPTORS_OF_SOURCES +
                                         DESCRIPTORS_OF_WORKERS + others);
    if (allowed < least && options->is_folder)
        log_warning("only %" PRIu64 " files and sockets can be open: max_open=%u may be too much",
                    allowed, files);
}

/* With the right to more than others may have, root's mount would write for users beyond their quotas. Threads that are
 * started later do not have it either. */
static void give_up_resources(void)
{
    struct __user_cap_header_struct header = {.version = _LINUX_CAPABILITY_VERSION_3};
    struct __user_cap_data_struct rights[_LINUX_CAPABILITY_U32S_3] = {{0}};
    const unsigned at = CAP_TO_INDEX(CAP_SYS_RESOURCE), bit = CAP_TO_MASK(CAP_SYS_RESOURCE);
    bool is_unknown = syscall(SYS_capget, &header, rights) < 0;
    bool has_it = rights[at].permitted & bit;
    rights[at].permitted &= ~bit;
    rights[at].effective &= ~bit;
    rights[at].inheritable &= ~bit;
    if (is_unknown || (has_it && syscall(SYS_capset, &header, rights) < 0))
        log_warning(
            "quotas do not hold for what is written here: cannot give up CAP_SYS_RESOURCE: %s",
            strerror(errno));
}

static int open_and_serve(struct options *options, struct keeper *keeper)
{
    struct sfs_file *file;
    struct mount mount;
    allow_descriptors(options);
    give_up_resources();
    int error = daemon_open_file(options, &file);
    if (error) {
        keeper_destroy(keeper);
        return error == -EACCES || error == -EPERM ? EXIT_USAGE
               : error == -ENOMEM                  ? EXIT_SYSTEM
                                                   : EXIT_MOUNT_FAILED;
    }
    int status = EXIT_SYSTEM;
    bool is_writable = sfs_is_writable(file); /* whatever it is at the end */
    error = mount_create(&mount, options, file);
    if (error) {
        daemon_fail(options->file, strerror(-error));
        keeper_destroy(keeper);
        sfs_close(file);
        return status;
    }
    mount.keeper = keeper;
    status = mount_and_serve(&mount, options);
    end_notify(&mount);
    open_files_close(&mount);
    (void)mount_destroy(&mount);
    return daemon_close_file(file, is_writable, status);
}

static int serve_folder(struct options *options, struct keeper *keeper, struct mounted_files *files)
{
    struct mount mount;
    int error = mount_create_of_folder(&mount, options, files);
    if (error) {
        daemon_fail(options->file, strerror(-error));
        keeper_destroy(keeper);
        return EXIT_SYSTEM;
    }
    mount.keeper = keeper;
    int status = mount_and_serve(&mount, options);
    end_notify(&mount);
    open_files_close(&mount);
    error = mount_destroy(&mount);
    return error && status == EXIT_DONE ? EXIT_SYSTEM : status;
}

static int open_and_serve_folder(struct options *options, struct keeper *keeper)
{
    struct sfs_options file_options = daemon_file_options(options);
    struct folder *folder = NULL;
    struct together *together = NULL;
    struct mounted_files *files = NULL;
    if (!file_options.external_files && !options->allow_other)
        file_options.external_files = options->file;
    allow_descriptors(options);
    give_up_resources();
    int error = folder_create(options->file, options->allow_other, &folder);
    if (!error)
        error = together_create(&file_options, &together);
    if (!error)
        error = mounted_files_create(folder, together, options->max_open, &files);
    if (error) {
        daemon_fail(options->file, strerror(-error));
        keeper_destroy(keeper);
    }
    int status = error ? EXIT_MOUNT_FAILED : serve_folder(options, keeper, files);
    mounted_files_destroy(files);
    together_destroy(together);
    folder_destroy(folder);
    return status;
}

/* A file, its frame, what is between them, and the program itself. */
static size_t decoder_memory(size_t staging)
{
    size_t memory;
    return __builtin_mul_overflow(staging, (size_t)3, &memory) ||
                   __builtin_add_overflow(memory, DECODER_BYTES, &memory)
               ? 0
               : memory;
}

/* A mount that cannot be written needs no keeper: it invalidates nothing. */
static int run(struct options *options)
{
    struct keeper *keeper = NULL;
    if (options->follow > 0 && load_is_wanted(options->file)) {
        daemon_fail(options->file, "a compressed file does not grow: it cannot be followed");
        return EXIT_USAGE;
    }
    cpu_limit_set(options->hdf5_timeout > 0 ? options->hdf5_timeout : DECODING_SECONDS);
    int error = options->read_only ? 0 : keeper_create(&keeper);
    if (!error && !options->hdf5_inside)
        error = sfs_start_hdf5_workers(options->hdf5_memory, options->hdf5_timeout);
    if (!error && !options->read_only)
        error = views_start_decoder(decoder_memory(options->staging_size));
    if (!error)
        return options->is_folder ? open_and_serve_folder(options, keeper)
                                  : open_and_serve(options, keeper);
    daemon_fail("fork", strerror(-error));
    return EXIT_SYSTEM;
}

/* A directory is mounted with all files in it, none of which is open from the start. */
static int look_for_folder(struct options *options)
{
    struct stat st;
    options->is_folder = stat(options->file, &st) == 0 && S_ISDIR(st.st_mode);
    if (!options->is_folder || !options->wants_writing)
        return 0;
    daemon_fail(options->file,
                "the files of a directory are locked when they are written, not from "
                "the start as rw has it: leave out rw");
    return EXIT_USAGE;
}

static int start(struct options *options)
{
    signal(SIGPIPE, SIG_IGN); /* what cannot be logged is no reason to end */
    signal(SIGCHLD, SIG_DFL); /* our processes keep their numbers until we have waited for them */
    int status = resolve_paths(options);
    if (!status)
        status = look_for_folder(options);
    if (!status)
        status = mountpoint_check(options);
    if (status)
        return status;
    if (!options->foreground) {
        int error = daemon_begin();
        if (error) {
            daemon_fail("fork", strerror(-error));
            return EXIT_SYSTEM;
        }
    }
    return run(options);
}

/* Selections and encoded ones are blocks of some megabytes that come and go with every frame: given
 * back to the kernel each time they would cost more page faults than anything that is done in them.
 * Two arenas bound what is kept. */
static void keep_memory(void)
{
    mallopt(M_MMAP_THRESHOLD, 32 << 20);
    mallopt(M_TRIM_THRESHOLD, 32 << 20);
    mallopt(M_ARENA_MAX, 2);
}

static void print_version(void)
{
    char library[64];
    printf("sparsefs %s, libfuse %s, HDF5 %s\nfilters by ", SPARSEFS_VERSION, fuse_pkgversion(),
           sfs_hdf5_version());
    for (size_t i = 0; sfs_filter_library(i, library, sizeof(library)); i++)
        printf("%s%s", i > 0 ? ", " : "", library);
    putchar('\n');
}

int main(int argc, char **argv)
{
    struct options options;
    keep_memory();
    sfs_leave_hdf5_at_exit();
    if (!descriptors_fill_standard())
        return EXIT_SYSTEM;
    if (argc > 1 && strcmp(argv[1], ASK_AS_MOUNTER) == 0)
        _exit(ask_as_mounter(argc - 2, argv + 2));
    if (argc > 1 && strcmp(argv[1], AT_MOUNT_POINT) == 0)
        return at_mount_point(argc - 2, argv + 2);
    if (argc > 1 && strcmp(argv[1], IN_NAMESPACE) == 0)
        return enter_namespace(argc - 2, argv + 2);
    int status = options_parse(argc, argv, &options);
    atomic_store(&log_level, options.log_level);
    sfs_set_log(log_line, options.log_level > LOG_INFO ? options.log_level : LOG_INFO);
    fuse_set_log_func(log_fuse);
    if (status == 0 && options.show_help)
        options_print_help();
    else if (status == 0 && options.show_version)
        print_version();
    else if (status == 0)
        status = start(&options);
    options_free(&options);
    return status;
}
