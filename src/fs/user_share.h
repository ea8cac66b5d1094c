/* What users have of something that there is only so much of, and how much of it each of them may have: who takes much
 * keeps no one else from some. Not thread-safe: what a table is of has a lock. */
#ifndef SPARSEFS_FS_USER_SHARE_H
#define SPARSEFS_FS_USER_SHARE_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

/* Whether a user who has n of them may have one more, where all users have n_of_all, and there may be `most`. A quarter
 * is kept for root and who has mounted; of the others nobody has more than is left. */
bool user_may_have_more(uid_t user, size_t n, size_t n_of_all, size_t most);

/* A table of those who have any; NULL: nobody has. */
struct user_count;
int user_count_add(struct user_count **counts, uid_t user); /* one; -ENOMEM */
void user_count_remove(struct user_count **counts, uid_t user);
size_t user_count_of(const struct user_count *counts, uid_t user);

#endif
