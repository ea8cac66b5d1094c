/* sparsectl check: every structure of a file, verified. Its exit code says what is known then. */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>

#include "cli/open_source.h"
#include "cli/options.h"

static const char help[] =
    "usage: sparsectl check FILE\n"
    "\n"
    "Opens every dataset of the file and verifies every structure of the sparse ones: headers,\n"
    "messages, chunk indexes, every chunk decoded, and that all of them lie in the file and not\n"
    "over each other. Prints a line for each fault and a summary.\n"
    "\n"
    "Exit codes: 0 the file is sound, 1 it is damaged, 2 that cannot be told.";

static const struct option options[] = {{0}};

enum { SOUND = DONE, DAMAGED = FAILED, UNKNOWN = USAGE };

struct tally {
    FILE *out;
    uint64_t sound, damaged, unknown;
};

static void take_finding(void *context, enum sfs_finding finding, const char *line)
{
    struct tally *tally = context;
    if (finding == SFS_SOUND) {
        tally->sound++;
        return;
    }
    FILE *out = tally->out;
    fputs(finding == SFS_DAMAGED ? "damaged: " : "cannot tell: ", out);
    print_text(out, line);
    putc('\n', out);
    if (finding == SFS_DAMAGED)
        tally->damaged++;
    else
        tally->unknown++;
}

/* What cannot even be opened as HDF5 is damaged if it is a file and that is its fault. */
static int open_failed(const char *path, int error)
{
    struct stat st;
    fail(error, "%s", path);
    return error == -EINVAL && stat(path, &st) == 0 && S_ISREG(st.st_mode) ? DAMAGED : UNKNOWN;
}

struct checking {
    struct sfs_file *file;
    int code;
};

static int check_file(void *context, FILE *out)
{
    struct checking *checking = context;
    const char *path = sfs_path(checking->file);
    struct tally tally = {.out = out};
    int error = sfs_check(checking->file, take_finding, &tally);
    if (error)
        return fail(error, "%s", path);
    fprintf(out, "%s: %s: %" PRIu64 " groups and datasets sound, %" PRIu64 " faults\n", path,
            tally.damaged   ? "damaged"
            : tally.unknown ? "cannot tell"
                            : "sound",
            tally.sound, tally.damaged + tally.unknown);
    checking->code = tally.damaged ? DAMAGED : tally.unknown ? UNKNOWN : SOUND;
    return DONE;
}

static int check(const char *path)
{
    struct sfs_file *file;
    struct sfs_options how = {.beside_writer = true,
                              .external_files = source_allowed(),
                              .hdf5_worker = files_are_apart(),
                              .chunk_memory = source_chunk_memory()};
    int error = source_open_as(path, &how, &file);
    if (error)
        return open_failed(path, error);
    struct checking checking = {.file = file};
    int code = in_one_state(file, check_file, &checking);
    sfs_discard(file);
    return code == DONE ? checking.code : UNKNOWN;
}

static int run(int argc, char **argv)
{
    const char *path;
    int code = take_file(argc, argv, options, &path);
    if (code)
        return code;
    code = check(path);
    return finish_output(DONE) == DONE ? code : UNKNOWN;
}

const struct command check_command = {"check", help, run, READ_HDF5};
