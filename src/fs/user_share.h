/* What users have of something that there is only so much of, and how much of it each of them may have: who takes much
 * keeps no one else from some. Not thread-safe: what a table is of has a lock. */
#ifndef SPARSEFS_FS_USER_SHARE_H
#define SPARSEFS_FS_USER_SHARE_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

/* Whether a user who has n of them may have one more, where all users have n_of_all, and there may be `most`. A quarter
 * is kept for those who are served first; of the others nobody has more than is left. */
bool user_may_have_more(uid_t user, size_t n, size_t n_of_all, size_t most);

/* Root and who has mounted. */
bool user_is_served_first(uid_t user);

/* Those who have any. All zero: nobody has. Where one has all of them that takes no memory. */
struct user_count;
struct user_counts {
    uid_t user; /* who has n of them, and may be among the others, too */
    size_t n;
    struct user_count *others; /* a table */
};
int user_count_add(struct user_counts *counts,
                   uid_t user); /* one; -ENOMEM, unless nobody has any */
void user_count_remove(struct user_counts *counts, uid_t user);
size_t user_count_of(const struct user_counts *counts, uid_t user);
bool users_have_any(const struct user_counts *counts);

#endif
