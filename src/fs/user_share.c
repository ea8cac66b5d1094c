/* Users by number. */
#include "fs/user_share.h"

#include <errno.h>
#include <stdlib.h>
#include <unistd.h>

#include "common/hash.h"

struct user_count {
    UT_hash_handle hh;
    uid_t user;
    size_t n;
};

bool user_is_served_first(uid_t user)
{
    return user == 0 || user == geteuid();
}

bool user_may_have_more(uid_t user, size_t n, size_t n_of_all, size_t most)
{
    bool is_served_first = user_is_served_first(user);
    size_t room = is_served_first ? most : most - most / 4;
    size_t left = n_of_all < room ? room - n_of_all : 0;
    return is_served_first ? left > 0 : n < left;
}

static struct user_count *find(const struct user_count *counts, uid_t user)
{
    struct user_count *count;
    HASH_FIND(hh, counts, &user, sizeof(user), count);
    return count;
}

static int add_to_table(struct user_count **counts, uid_t user)
{
    struct user_count *count = find(*counts, user);
    if (!count) {
        count = calloc(1, sizeof(*count));
        if (!count)
            return -ENOMEM;
        count->user = user;
        HASH_ADD(hh, *counts, user, sizeof(user), count);
        if (hash_failed()) {
            free(count);
            return -ENOMEM;
        }
    }
    count->n++;
    return 0;
}

static void remove_from_table(struct user_count **counts, uid_t user)
{
    struct user_count *count = find(*counts, user);
    if (--count->n > 0)
        return;
    HASH_DEL(*counts, count);
    free(count);
}

int user_count_add(struct user_counts *counts, uid_t user)
{
    if (counts->n > 0 && counts->user != user)
        return add_to_table(&counts->others, user);
    counts->user = user;
    counts->n++;
    return 0;
}

void user_count_remove(struct user_counts *counts, uid_t user)
{
    if (counts->n > 0 && counts->user == user)
        counts->n--;
    else
        remove_from_table(&counts->others, user);
}

size_t user_count_of(const struct user_counts *counts, uid_t user)
{
    const struct user_count *count = counts->others ? find(counts->others, user) : NULL;
    size_t n = counts->n > 0 && counts->user == user ? counts->n : 0;
    return count ? n + count->n : n;
}

bool users_have_any(const struct user_counts *counts)
{
    return counts->n > 0 || counts->others;
}
