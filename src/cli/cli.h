/* sparsectl: its commands and what they share. They know the public interface of the library and no
 * more of it; every command is one file, named for it. */
#ifndef SPARSEFS_CLI_CLI_H
#define SPARSEFS_CLI_CLI_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#include "sparsefs/sparsefs.h"

/* Of a file's chunk cache: two files together have one cache's memory. */
#define FILE_CACHE_BYTES (SFS_DEFAULT_CACHE_SIZE / 2)

/* Exit codes. */
enum { DONE = 0, FAILED = 1, USAGE = 2 };

struct command {
    const char *name;
    const char *help;                  /* all that --help prints */
    int (*run)(int argc, char **argv); /* argv[0] is its name; returns an exit code */
    /* What libhdf5, in a process of its own, has to do. */
    enum { NO_HDF5, READ_HDF5, COPY_HDF5 } hdf5;
};

extern const struct command create_command;
extern const struct command import_command;
extern const struct command export_command;
extern const struct command info_command;
extern const struct command dump_command;
extern const struct command check_command;
extern const struct command recover_command;
extern const struct command repack_command;
extern const struct command image_command;

/* ---- Messages (stderr_messages.c) ---- */

/* From now on the library's warnings go to stderr, and its errors are kept for fail(). */
void messages_begin(void);

/* Forgets the errors that were kept: what they were about is no failure of the command. */
void messages_forget(void);

/* The same, but what was kept is said of the same error if it comes again without a word: the
 * library says of a missing filter only once that it is missing. */
void messages_forgive(int error);

/* From messages_hold on what `fail` says is kept back, until it is said or forgotten. By one
 * thread.
 */
void messages_hold(void);
void messages_release(bool say);

/* Says on one line of stderr what has failed and why: the first error that the library has reported
 * since messages_forget, else what the format says and the error's own text. Of -EINTR after one of the signals of
 * interrupt_catch it says that nothing is changed: the commands that catch them write to files that destination_close
 * keeps only if all has succeeded. Returns FAILED. */
int fail(int error, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* The same with the reason in the format. */
int fail_because(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* Says on one line of stderr what is wrong with the command line. Returns USAGE. */
int refuse(const char *command, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* Prints text that comes from a file: control characters, which must not reach a terminal or start a
 * line, as '?'. Errors of out are left to ferror. */
void print_text(FILE *out, const char *text);

/* Set by SIGINT, SIGTERM and SIGHUP, unless they are ignored, after interrupt_catch. Long work
 * looks at it and ends with -EINTR, but a commit that has begun is ended; a second signal of a kind
 * ends the process. */
extern atomic_bool interrupted;
void interrupt_catch(void);

/* Has the library end the calls of this thread that take long with -EINTR then. interrupt_catch
 * does it for its own. */
void interrupt_watch(void);

/* Flushes stdout. Returns code, or FAILED with a message if not everything could be written, also if
 * only close(2) says so, as of file systems of a network. */
int finish_output(int code);

#endif
