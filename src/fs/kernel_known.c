/* A fixed table of bits by hash; look-ups by epoch. */
#include "fs/kernel_known.h"

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>

#define KNOWN_BITS (1u << 23) /* 1 MiB */
#define BLOCK_BITS (1u << 20)

/* Pending look-ups, by epoch: begun before the last wait for them, or after. */
struct lookups {
    pthread_mutex_t waiting; /* serialises waiting; taken before `lock` */
    pthread_mutex_t lock;    /* guards what follows */
    pthread_cond_t ended;
    unsigned now; /* those that begin now */
    size_t running[2];
};

struct known {
    struct lookups lookups;
    /* Bits by hash, never cleared: of inodes, and of blocks of frames. */
    _Atomic uint64_t inodes[KNOWN_BITS / 64];
    _Atomic uint64_t blocks[BLOCK_BITS / 64];
};

int known_create(struct known **out)
{
    struct known *known = calloc(1, sizeof(*known));
    if (!known)
        return -ENOMEM;
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
    return inode_pack((struct inode){.node = inode.node, .frame = inode.frame / KNOWN_BLOCK});
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

bool known_has(struct known *known, struct inode inode)
{
    return is_set(known->inodes, hash(inode_pack(inode)) % KNOWN_BITS);
}

bool known_has_block(struct known *known, struct inode inode)
{
    return is_set(known->blocks, hash(block_of(inode)) % BLOCK_BITS);
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
