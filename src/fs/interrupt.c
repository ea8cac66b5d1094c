/* One record for each thread that serves requests: it says which request, and whether that is
 * interrupted. */
#include "fs/interrupt.h"

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>

#include "common/clock.h"
#include "fs/daemon/loop.h"
#include "fs/mount.h"
#include "sparsefs/sparsefs.h"

#define LONG_NANOS 1000000000u

static atomic_bool mount_ends;

/* What a thread serves. Another one tells it that its request is interrupted, perhaps when that is
 * answered already and the thread has ended: these are not freed. */
struct served {
    struct served *next;
    fuse_req_t request;
    bool only_looks;
    bool is_asked;
    struct loop *loop;
    bool gives_way; /* other threads read requests in its place */
    uint64_t since; /* clock_now when it was asked first; 0: it was not */
    _Atomic(fuse_req_t) interrupted;
};

static _Atomic(struct served *) all_served;
static _Thread_local struct served *mine;

/* NULL: no memory. */
static struct served *make_mine(void)
{
    mine = calloc(1, sizeof(*mine));
    if (!mine)
        return NULL;
    mine->next = atomic_load(&all_served);
    while (!atomic_compare_exchange_weak(&all_served, &mine->next, mine))
        ;
    return mine;
}

static void note(fuse_req_t request, void *data)
{
    struct served *of = data;
    atomic_store(&of->interrupted, request);
}

static bool takes_long(struct served *of)
{
    uint64_t now = clock_now();
    if (of->since == 0)
        of->since = now;
    return now - of->since > LONG_NANOS;
}

/* FUSE_INTERRUPT is a request, too: some thread must be free to read it. */
static void give_way(struct served *of)
{
    if (of->gives_way)
        return;
    of->gives_way = true;
    loop_begin_wait(of->loop);
}

static bool is_interrupted(void *context)
{
    struct served *of = context;
    bool ends = atomic_load(&mount_ends);
    if (ends && of->only_looks)
        return true;
    if (!takes_long(of))
        return false;
    give_way(of);
    return ends || atomic_load(&of->interrupted) == of->request;
}

int interruptible_begin(fuse_req_t request, bool only_looks)
{
    struct served *served = mine ? mine : make_mine();
    if (!served)
        return 0;
    served->request = request;
    served->only_looks = only_looks;
    served->since = 0;
    served->loop = ((const struct mount *)fuse_req_userdata(request))->loop;
    atomic_store(&served->interrupted, NULL);
    fuse_req_interrupt_func(request, note, served);
    interruptible_again(&(bool){true});
    return 0;
}

void interruptible_end(const int *interruptible)
{
    (void)interruptible;
    (void)interruptible_not();
    if (mine && mine->gives_way) {
        mine->gives_way = false;
        loop_end_wait(mine->loop);
    }
}

bool interruptible_not(void)
{
    bool was = mine && mine->is_asked;
    if (was)
        mine->is_asked = false;
    sfs_set_interrupt(NULL, NULL);
    return was;
}

void interruptible_again(const bool *was)
{
    if (!*was)
        return;
    mine->is_asked = true;
    sfs_set_interrupt(is_interrupted, mine);
}

void interrupt_all(void)
{
    atomic_store(&mount_ends, true);
}
