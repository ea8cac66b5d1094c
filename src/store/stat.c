/* What a store says of its file: names, sizes, counts. */
#include <errno.h>

#include "common/acl.h"
#include "common/mounts.h"
#include "store/private.h"

bool store_is_writable(const struct store *store)
{
    return store->writable;
}

const char *store_path(const struct store *store)
{
    return store->path;
}

uint64_t store_size(const struct store *store)
{
    struct stat st;
    if (store->is_live && store->reader.end)
        return store->reader.end(store->reader.context);
    if (store->is_live && fstat(store->fd, &st) == 0)
        return (uint64_t)st.st_size;
    return atomic_load_explicit(&store->end, memory_order_acquire);
}

int store_stat(const struct store *store, struct stat *st)
{
    if (!store->image)
        return fstat(store->fd, st) < 0 ? -errno : 0;
    *st = store->st;
    st->st_size = (off_t)store_size(store);
    st->st_blocks = (blkcnt_t)(st->st_size / 512 + (st->st_size % 512 != 0));
    return 0;
}

int store_stat_shown(const struct store *store, struct stat *st)
{
    int error = store_stat(store, st);
    if (!error && !store->image)
        acl_narrow(store->fd, st);
    return error;
}

int store_stat_since(const struct store *store, struct stat *st)
{
    const struct stat *opened = &store->reach.opened;
    int error = store_stat_shown(store, st);
    mode_t most = error ? 0 : acl_of_others(opened->st_mode, opened, st);
    if (!error)
        st->st_mode &= ~(mode_t)0777 | most;
    return error;
}

bool store_is_for_others(const struct store *store)
{
    return store->reach.allowed.for_others;
}

uid_t store_owner(const struct store *store, const struct stat *st)
{
    return store->image || store->fd < 0 ? st->st_uid : mounts_owner(store->fd, st);
}

bool store_is_roots(const struct stat *st)
{
    return st->st_uid == 0 && !(st->st_mode & (S_IWGRP | S_IWOTH));
}

int store_statvfs(const struct store *store, struct statvfs *st)
{
    if (!store->image)
        return fstatvfs(store->fd, st) < 0 ? -errno : 0;
    *st = (struct statvfs){.f_bsize = PAGE_BYTES,
                           .f_frsize = PAGE_BYTES,
                           .f_blocks = store_size(store) / PAGE_BYTES + 1,
                           .f_namemax = 255};
    return 0;
}

uint64_t store_room(const struct store *store)
{
    struct statvfs st;
    uint64_t room;
    if (store->image || fstatvfs(store->fd, &st) < 0 || st.f_blocks == 0 ||
        __builtin_mul_overflow(st.f_bfree, st.f_frsize, &room))
        return UINT64_MAX;
    return room;
}

bool store_is_same(const struct store *a, const struct store *b)
{
    if (a->image || b->image)
        return a == b;
    return a->st.st_dev == b->st.st_dev && a->st.st_ino == b->st.st_ino;
}

void store_counters(const struct store *store, uint64_t *reads, uint64_t *bytes)
{
    *reads = atomic_load_explicit(&store->reads, memory_order_relaxed);
    *bytes = atomic_load_explicit(&store->bytes_read, memory_order_relaxed);
}

uint64_t store_failed_reads(const struct store *store)
{
    return atomic_load_explicit(&store->failed_reads, memory_order_relaxed);
}

uint64_t store_commits(const struct store *store)
{
    return atomic_load_explicit(&store->commits, memory_order_relaxed);
}
