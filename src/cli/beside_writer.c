/* Commands beside a program that writes the file that they read: what they print, or copy, is of
 * one commit. */
#include <errno.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include "cli/open_source.h"
#include "common/clock.h"

#define MOST_TRIES 100
#define MOST_NANOS 30000000000u /* from the first of them to the last */

/* What is printed is kept back until it is known to be of one state. */
static int try(struct sfs_file *file, int (*action)(void *context, FILE *out), void *context,
               bool *moved)
{
    char *text = NULL;
    size_t n = 0;
    FILE *kept = open_memstream(&text, &n);
    if (!kept)
        return fail(-ENOMEM, "%s", sfs_path(file));
    uint64_t before = sfs_states(file);
    messages_hold();
    sfs_hold_state(file, true);
    int code = action(context, kept);
    sfs_hold_state(file, false);
    bool whole = fclose(kept) == 0;
    *moved = sfs_states(file) != before;
    messages_release(!*moved);
    if (!*moved && whole)
        fwrite(text, 1, n, stdout); /* finish_output says whether that has failed */
    free(text);
    return *moved || whole ? code : fail(-ENOMEM, "%s", sfs_path(file));
}

int in_one_state(struct sfs_file *file, int (*action)(void *context, FILE *out), void *context)
{
    if (!sfs_is_following(file))
        return action(context, stdout);
    uint64_t begin = clock_now();
    for (unsigned i = 0; i < MOST_TRIES && clock_now() - begin <= MOST_NANOS && !interrupted; i++) {
        bool moved = false;
        int code = try(file, action, context, &moved);
        if (!moved)
            return code;
        messages_forget();
    }
    if (interrupted)
        return fail(-EINTR, "%s", sfs_path(file));
    return fail_because("%s: it is committed to so often that no state of it could be read to its "
                        "end",
                        sfs_path(file));
}
