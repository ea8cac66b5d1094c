/* The command line of the daemon. */
#ifndef SPARSEFS_FS_DAEMON_OPTIONS_H
#define SPARSEFS_FS_DAEMON_OPTIONS_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "fs/fuse.h"
#include "sparsefs/sparsefs.h"

/* mount(8)'s exit codes. */
enum {
    EXIT_DONE = 0,
    EXIT_USAGE = 1, /* or permission */
    EXIT_SYSTEM = 2,
    EXIT_BUG = 4,
    EXIT_INTERRUPTED = 8,
    EXIT_MOUNT_FAILED = 32,
};

/* As sparsefs(1) describes them, defaults filled in; strings are owned by it. With show_help or
 * show_version the rest says nothing. */
struct options {
    char *file;       /* as given; "-": standard input */
    char *mountpoint; /* as given */
    int mountpoint_fd; /* that directory, when main.c has looked at it; -1: not yet, or it is a descriptor */
    char *external_files; /* a folder; NULL: none */
    bool foreground, debug, show_help, show_version;
    bool is_folder;                       /* file is a directory: main.c finds out */
    bool read_only, wants_writing;        /* ro, or by follow; rw was asked for */
    bool allow_other, allow_root, trusts; /* trusts: the creator of the file */
    bool sparsify, is_strict;
    double follow; /* seconds between looks at a file that others write; 0: it is not followed */
    unsigned commit_interval; /* seconds */
    bool direct_io, external_links, nonempty;
    bool auto_unmount;                /* by fusermount3 */
    bool fill_missing;                /* missing=fill */
    bool hdf5_inside;                 /* hdf5=inside: libhdf5 in this process */
    size_t hdf5_memory;               /* of a process of its own, bytes; 0: default */
    double hdf5_timeout;              /* seconds of a call there; 0: default */
    unsigned views;                   /* that are shown, as views_parse makes them */
    int frame_rank;                   /* -1: default */
    unsigned first;                   /* number of the first frame: 0 or 1 */
    unsigned max_open;                /* HDF5 files of a folder, at a time */
    size_t cache_size;                /* bytes */
    enum sfs_policy policy;           /* of the cache */
    size_t chunk_memory;              /* bytes; 0: default */
    size_t image_size;                /* bytes */
    size_t staging_size;              /* bytes, of temporary files */
    unsigned threads;                 /* of FUSE */
    unsigned workers;                 /* of the cache; 0: one per processor */
    int log_level;                    /* of syslog(3): less urgent lines are not written */
    bool has_uid, has_gid, has_umask; /* whether the next three were given */
    uid_t uid;
    gid_t gid;
    mode_t umask;
    struct fuse_args fuse; /* what libfuse is to see */
};

/* 0, or EXIT_USAGE after a line on stderr. options_free in either case. argv outlives the options. */
int options_parse(int argc, char **argv, struct options *options);
void options_free(struct options *options);

/* On stdout. */
void options_print_help(void);

#endif
