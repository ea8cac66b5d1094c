/* Commands that only print, beside a program that writes the file: what they print is of one
 * commit. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

#include "cli/target.h"

#define MOST_TRIES 100

/* What is printed is kept back until it is known to be of one state. */
static int try(struct sfs_file *file, int (*action)(void *context), void *context, bool *moved)
{
    char *text = NULL;
    size_t n = 0;
    FILE *all = stdout, *kept = open_memstream(&text, &n);
    if (!kept)
        return fail(-ENOMEM, "%s", sfs_path(file));
    uint64_t before = sfs_states(file);
    stdout = kept;
    messages_hold();
    int code = action(context);
    stdout = all;
    bool whole = fclose(kept) == 0;
    *moved = sfs_states(file) != before;
    messages_release(!*moved);
    if (!*moved && whole)
        fwrite(text, 1, n, stdout); /* finish_output says whether that has failed */
    free(text);
    return *moved || whole ? code : fail(-ENOMEM, "%s", sfs_path(file));
}

int in_one_state(struct sfs_file *file, int (*action)(void *context), void *context)
{
    if (!sfs_is_following(file))
        return action(context);
    for (unsigned i = 0; i < MOST_TRIES; i++) {
        bool moved = false;
        int code = try(file, action, context, &moved);
        if (!moved)
            return code;
        messages_forget();
    }
    return fail_because("%s: it is written to so often that no state of it could be read",
                        sfs_path(file));
}
