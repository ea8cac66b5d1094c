/* sparsectl recover: makes a file whose writer has died as it was committed last. */
#include <stdio.h>

#include "cli/options.h"

static const char help[] =
    "usage: sparsectl recover FILE\n"
    "\n"
    "Brings a file whose writer has died to its last committed state, and says what that took:\n"
    "replays the journal that stands beside it, or where the file was before it was moved, or\n"
    "discards an incomplete one; clears the mark of a program with libhdf5 that had the file open\n"
    "for writing; removes unfinished new files of that name. Journals are also replayed or "
    "discarded\n"
    "by whoever opens the file next.\n"
    "\n"
    "A file that is open in a program now is refused.";

static const struct option options[] = {{0}};

static int recover(const char *path)
{
    struct sfs_recovery done;
    int error = sfs_recover(path, &done);
    if (error)
        return fail(error, "%s", path);
    if (done.replayed)
        printf("%s: its journal was replayed: the last commit is whole\n", path);
    if (done.discarded)
        printf("%s: an incomplete journal was discarded: the commit before it counts\n", path);
    if (done.carried_out)
        printf("%s: its journal had been carried out before another program changed it: removed\n",
               path);
    if (done.unmarked)
        printf("%s: the mark of a writer was cleared: what that had not flushed is lost, so check "
               "what it wrote\n",
               path);
    if (done.temporaries)
        printf("%s: unfinished new files of that name were removed: %u\n", path, done.temporaries);
    if (!done.replayed && !done.discarded && !done.carried_out && !done.unmarked &&
        !done.temporaries)
        printf("%s: there is nothing to recover\n", path);
    return DONE;
}

static int run(int argc, char **argv)
{
    const char *path;
    int code = take_file(argc, argv, options, &path);
    if (code)
        return code;
    return finish_output(recover(path));
}

const struct command recover_command = {"recover", help, run};
