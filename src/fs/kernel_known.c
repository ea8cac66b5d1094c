/* A fixed table of bits by hash, and a walk over what a change concerns. */
#include "fs/kernel_known.h"

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>

#define KNOWN_BITS   (1u << 23) /* 1 MiB */
#define BLOCK_BITS   (1u << 20)
#define BLOCK_FRAMES 1024 /* frames of which one bit says whether any of them may be known */

/* Pending look-ups, by epoch: begun before the last wait for them, or after. */
struct lookups {
    pthread_mutex_t waiting; /* serialises waiting; taken before `lock` */
    pthread_mutex_t lock;    /* guards what follows */
    pthread_cond_t ended;
    unsigned now; /* those that begin now */
    size_t running[2];
};

struct known {
    struct nodes *nodes;
    struct temporaries *temporaries;
    struct lookups lookups;
    /* Bits by hash, never cleared: of inodes, and of blocks of frames. */
    _Atomic uint64_t inodes[KNOWN_BITS / 64];
    _Atomic uint64_t blocks[BLOCK_BITS / 64];
};

int known_create(struct nodes *nodes, struct temporaries *temporaries, struct known **out)
{
    struct known *known = calloc(1, sizeof(*known));
    if (!known)
        return -ENOMEM;
    known->nodes = nodes;
    known->temporaries = temporaries;
    pthread_mutex_init(&known->lookups.waiting, NULL);
    pthread_mutex_init(&known->lookups.lock, NULL);
    pthread_cond_init(&known->lookups.ended, NULL);
    *out = known;
    return 0;
}

void known_destroy(struct known *known)
{
    if (!known)
        return;
    pthread_cond_destroy(&known->lookups.ended);
    pthread_mutex_destroy(&known->lookups.lock);
    pthread_mutex_destroy(&known->lookups.waiting);
    free(known);
}

/* ---- Bits ---- */

static uint32_t hash(uint64_t number)
{
    return (uint32_t)(number * 0x9E3779B97F4A7C15u >> 32);
}

static uint64_t block_of(struct inode inode)
{
    return inode_pack((struct inode){.node = inode.node, .frame = inode.frame / BLOCK_FRAMES});
}

static void set_bit(_Atomic uint64_t *bits, uint32_t bit)
{
    uint64_t mask = (uint64_t)1 << bit % 64;
    if (!(atomic_load_explicit(&bits[bit / 64], memory_order_relaxed) & mask))
        atomic_fetch_or(&bits[bit / 64], mask);
}

static bool is_set(_Atomic uint64_t *bits, uint32_t bit)
{
    return atomic_load(&bits[bit / 64]) >> bit % 64 & 1;
}

void known_add(struct known *known, struct inode inode)
{
    set_bit(known->inodes, hash(inode_pack(inode)) % KNOWN_BITS);
    set_bit(known->blocks, hash(block_of(inode)) % BLOCK_BITS);
}

/* ---- Look-ups ---- */

static _Thread_local unsigned began; /* the time at which this thread's look-up did */

void known_begin_lookup(struct known *known)
{
    struct lookups *lookups = &known->lookups;
    pthread_mutex_lock(&lookups->lock);
    began = lookups->now;
    lookups->running[began]++;
    pthread_mutex_unlock(&lookups->lock);
}

void known_end_lookup(struct known *known)
{
    struct lookups *lookups = &known->lookups;
    pthread_mutex_lock(&lookups->lock);
    if (--lookups->running[began] == 0)
        pthread_cond_signal(&lookups->ended);
    pthread_mutex_unlock(&lookups->lock);
}

void known_wait_for_lookups(struct known *known)
{
    struct lookups *lookups = &known->lookups;
    pthread_mutex_lock(&lookups->waiting);
    pthread_mutex_lock(&lookups->lock);
    unsigned before = lookups->now;
    lookups->now = !before;
    while (lookups->running[before] > 0)
        pthread_cond_wait(&lookups->ended, &lookups->lock);
    pthread_mutex_unlock(&lookups->lock);
    pthread_mutex_unlock(&lookups->waiting);
}

/* ---- What a change concerns ---- */

struct walk {
    struct known *known;
    const struct change *change;
    uint64_t except;
    known_visit_function visit;
    void *context;
};

static bool visit_inode(const struct walk *walk, struct inode inode)
{
    uint64_t number = inode_pack(inode);
    return number != walk->except && is_set(walk->known->inodes, hash(number) % KNOWN_BITS) &&
           walk->visit(walk->context, inode);
}

static bool is_view_of_frame(unsigned kind)
{
    return kind < VIEW_STACK_RAW;
}

static bool visit_frames(const struct walk *walk, uint32_t node)
{
    const struct change *change = walk->change;
    for (uint64_t frame = change->first; frame <= change->last && frame < INODE_MAX_FRAMES;) {
        struct inode inode = {.node = node, .frame = frame};
        if (!is_set(walk->known->blocks, hash(block_of(inode)) % BLOCK_BITS)) {
            frame += BLOCK_FRAMES - frame % BLOCK_FRAMES;
            continue;
        }
        for (unsigned kind = 0; is_view_of_frame(kind); kind++) {
            inode.entry = ENTRY_VIEW + kind;
            if (change->views >> kind & 1 && visit_inode(walk, inode))
                return true;
        }
        frame++;
    }
    return false;
}

static bool visit_node(const struct walk *walk, uint32_t number)
{
    const struct change *change = walk->change;
    struct inode inode = {.node = number, .entry = ENTRY_NODE};
    if (change->node->type == NODE_GROUP)
        return visit_inode(walk, inode);
    for (unsigned kind = VIEW_STACK_RAW; kind < VIEW_KINDS; kind++) {
        inode.entry = ENTRY_VIEW + kind;
        if (change->views >> kind & 1 && visit_inode(walk, inode))
            return true;
    }
    for (inode.entry = ENTRY_FRAMES; change->names && inode.entry < ENTRY_CSR_DIR; inode.entry++)
        if (visit_inode(walk, inode))
            return true;
    return visit_frames(walk, number);
}

/* Temporary files that have become frames and are still open. */
static bool visit_temporaries(const struct walk *walk)
{
    const struct change *change = walk->change;
    struct inode *inodes;
    bool ended = false;
    size_t n = temporaries_that_became(walk->known->temporaries, change->node->object,
                                       change->first, change->last, change->views, &inodes);
    for (size_t i = 0; i < n && !ended; i++)
        ended = inode_pack(inodes[i]) != walk->except && walk->visit(walk->context, inodes[i]);
    free(inodes);
    return ended;
}

bool known_visit(struct known *known, const struct change *change, uint64_t except,
                 known_visit_function visit, void *context)
{
    const struct walk walk = {known, change, except, visit, context};
    uint32_t *numbers;
    size_t n = node_same(known->nodes, change->node, &numbers);
    bool ended = n == 0 && visit_node(&walk, change->node->number);
    for (size_t i = 0; i < n && !ended; i++)
        ended = visit_node(&walk, numbers[i]);
    free(numbers);
    return ended || visit_temporaries(&walk);
}

bool change_concerns(const struct change *change, const struct node *node, struct inode inode)
{
    unsigned kind = inode_view(inode);
    return change->node->type == NODE_DATASET && inode_is_view(inode) &&
           node->object == change->node->object && change->views >> kind & 1 &&
           (!is_view_of_frame(kind) ||
            (inode.frame >= change->first && inode.frame <= change->last));
}
