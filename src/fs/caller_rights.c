#include "fs/caller_rights.h"

#include <errno.h>
#include <linux/capability.h>
#include <stdlib.h>
#include <unistd.h>

#include "common/process_status.h"
#include "fs/mount.h"

#define FEW_GROUPS 64
#define READS_ALL  (UINT64_C(1) << CAP_DAC_READ_SEARCH | UINT64_C(1) << CAP_DAC_OVERRIDE)

bool caller_reads_all(fuse_req_t request)
{
    const struct mount *mount = fuse_req_userdata(request);
    uid_t user = fuse_req_ctx(request)->uid;
    return !mount->options->allow_other || user == 0 || user == geteuid();
}

static bool is_among(const gid_t *groups, int n, gid_t group)
{
    for (int i = 0; i < n; i++)
        if (groups[i] == group)
            return true;
    return false;
}

/* Whether /proc has the numbers of processes that the kernel tells us: it may be that of another PID namespace. */
static bool is_proc_ours(void)
{
    char pid[16];
    ssize_t n = readlink("/proc/self", pid, sizeof(pid) - 1);
    if (n <= 0)
        return false;
    pid[n] = '\0';
    return strtol(pid, NULL, 10) == (long)getpid();
}

enum membership { NOT_IN, IN, UNKNOWN };

/* His supplementary groups are in /proc, which does not show who is in a PID namespace above ours. */
static enum membership is_member(fuse_req_t request, gid_t group)
{
    gid_t few[FEW_GROUPS];
    if (fuse_req_ctx(request)->gid == group)
        return IN;
    int n = is_proc_ours() ? fuse_req_getgroups(request, FEW_GROUPS, few) : -1;
    if (n < 0 || n <= FEW_GROUPS)
        return n < 0 ? UNKNOWN : is_among(few, n, group) ? IN : NOT_IN;
    gid_t *all = calloc((size_t)n, sizeof(*all));
    int got = all ? fuse_req_getgroups(request, n, all) : -1;
    enum membership membership = got < 0 || got > n          ? UNKNOWN
                                 : is_among(all, got, group) ? IN
                                                             : NOT_IN;
    free(all);
    return membership;
}

/* A program that makes backups, say. */
static bool is_capable(fuse_req_t request)
{
    struct process_status status;
    pid_t thread = fuse_req_ctx(request)->pid;
    return thread > 0 && is_proc_ours() && process_look_at(thread, &status) &&
           status.capabilities & READS_ALL && process_is_in_our_user_namespace(thread);
}

/* As the kernel decides by a mode: of the owner, the group and all others the first that he is. */
static bool mode_lets_read(fuse_req_t request, const struct stat *shown, bool otherwise)
{
    bool group_may = shown->st_mode & S_IRGRP, others_may = shown->st_mode & S_IROTH;
    if (fuse_req_ctx(request)->uid == shown->st_uid)
        return shown->st_mode & S_IRUSR;
    if (group_may == others_may)
        return group_may;
    enum membership membership = is_member(request, shown->st_gid);
    return membership == UNKNOWN ? otherwise : membership == IN ? group_may : others_may;
}

static int judge(fuse_req_t request, const struct stat *shown, bool otherwise)
{
    return mode_lets_read(request, shown, otherwise) || is_capable(request) ? 0 : -EACCES;
}

int caller_may_read(fuse_req_t request, const struct node *node)
{
    struct stat shown;
    if (caller_reads_all(request))
        return 0;
    mount_rights(fuse_req_userdata(request), node, &shown);
    return judge(request, &shown, false);
}

int caller_may_read_closed(fuse_req_t request, const struct node *node, bool otherwise)
{
    struct stat shown;
    if (caller_reads_all(request))
        return 0;
    while (!node_is_top(node))
        node = node->parent;
    int error = mount_folder_attributes(fuse_req_userdata(request), node, &shown);
    return error ? error : judge(request, &shown, otherwise);
}
