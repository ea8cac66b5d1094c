/* One record for each thread that serves requests: it says which request, and whether that is
 * interrupted. */
#include "fs/interrupt.h"

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>

#include "common/clock.h"
#include "common/process_status.h"
#include "fs/daemon/loop.h"
#include "fs/mount.h"
#include "sparsefs/sparsefs.h"

#define LONG_NANOS 1000000000u
#define LOOK_NANOS 10000000u    /* between two looks at a program */
#define LAST_NANOS 10000000000u /* for all that is finished after one that was not */

static atomic_bool mount_ends;
static atomic_uint_fast64_t
    first_cut; /* when something was not finished, as the mount ended; or 0 */

/* What a thread serves. Another one tells it that its request is interrupted, perhaps when that is
 * answered already and the thread has ended: these are not freed. */
struct served {
    struct served *next;
    fuse_req_t request;
    enum request_kind kind;
    pid_t thread;    /* of the program that waits */
    uint64_t looked; /* clock_now when that was looked at last */
    bool is_asked;
    bool finishes; /* nobody waits */
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
    if (of->gives_way || !of->loop)
        return;
    of->gives_way = true;
    loop_begin_wait(of->loop);
}

static bool is_cut_off(struct served *of)
{
    uint64_t now = clock_now(), first = atomic_load(&first_cut);
    if (!takes_long(of) && (first == 0 || now - first < LAST_NANOS))
        return false;
    if (first == 0)
        atomic_compare_exchange_strong(&first_cut, &first, now);
    return true;
}

/* The kernel tells of any signal, once, and not whether the program ends by it. Of a program in a container
 * it cannot be told: it is not seen. */
static bool is_given_up(struct served *of)
{
    struct process_status program;
    uint64_t now = clock_now();
    if (atomic_load(&of->interrupted) != of->request)
        return false;
    if (of->kind == REQUEST_LOOKS)
        return true;
    if (now - of->looked < LOOK_NANOS)
        return false;
    of->looked = now;
    return process_look_at(of->thread, &program) ? program.was_killed : of->kind == REQUEST_CHANGES;
}

static bool is_interrupted(void *context)
{
    struct served *of = context;
    bool ends = atomic_load(&mount_ends);
    if (of->finishes && ends)
        return is_cut_off(of);
    if (ends && of->kind == REQUEST_LOOKS)
        return true;
    if (!takes_long(of))
        return false;
    give_way(of);
    return !of->finishes && (ends || is_given_up(of));
}

int interruptible_begin(fuse_req_t request, enum request_kind kind)
{
    struct served *served = mine ? mine : make_mine();
    if (!served)
        return 0;
    served->request = request;
    served->kind = kind;
    served->thread = fuse_req_ctx(request)->pid;
    served->looked = 0;
    served->since = 0;
    served->finishes = false;
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

struct finishing finishing_begin(const struct mount *mount)
{
    struct served *served = mine ? mine : make_mine();
    if (!served)
        return (struct finishing){0};
    struct finishing was = {served->is_asked, served->gives_way, served->kind, served->request};
    served->kind = REQUEST_CHANGES;
    served->finishes = true;
    served->since = 0;
    served->loop = mount->loop;
    interruptible_again(&(bool){true});
    return was;
}

void finishing_end(const struct finishing *finishing)
{
    (void)interruptible_not();
    if (!mine)
        return;
    if (mine->gives_way && !finishing->gave_way) {
        mine->gives_way = false;
        loop_end_wait(mine->loop);
    }
    mine->finishes = false;
    mine->kind = finishing->kind;
    mine->request = finishing->request;
    interruptible_again(&finishing->was_interruptible);
}

void interrupt_all(void)
{
    atomic_store(&mount_ends, true);
}
