/* A fixed table of bits by hash; answers by epoch. */
#include "fs/kernel_known.h"

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>

#define KNOWN_BITS (1u << 23) /* 1 MiB */
#define BLOCK_BITS (1u << 20)

/* Answers that are being given, by epoch: begun before the last wait for them, or after. What takes long is before
 * that: only the kernel is waited for, as it takes one. */
struct answers {
    pthread_mutex_t waiting; /* serialises waiting; taken before `lock` */
    pthread_mutex_t lock;    /* guards what follows */
    pthread_cond_t ended;
    uint64_t changes, name_changes;
    unsigned now; /* those that begin now */
    size_t running[2];
};

struct known {
    struct answers answers;
    /* Bits by hash, never cleared: of inodes, and of blocks of frames. */
    _Atomic uint64_t inodes[KNOWN_BITS / 64];
    _Atomic uint64_t blocks[BLOCK_BITS / 64];
};

int known_create(struct known **out)
{
    struct known *known = calloc(1, sizeof(*known));
    if (!known)
        return -ENOMEM;
    pthread_mutex_init(&known->answers.waiting, NULL);
    pthread_mutex_init(&known->answers.lock, NULL);
    pthread_cond_init(&known->answers.ended, NULL);
    *out = known;
    return 0;
}

void known_destroy(struct known *known)
{
    if (!known)
        return;
    pthread_cond_destroy(&known->answers.ended);
    pthread_mutex_destroy(&known->answers.lock);
    pthread_mutex_destroy(&known->answers.waiting);
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

/* ---- Answers ---- */

void known_begin_look(struct known *known, struct look *look)
{
    struct answers *answers = &known->answers;
    *look = (struct look){0};
    pthread_mutex_lock(&answers->lock);
    look->changes = answers->changes;
    look->name_changes = answers->name_changes;
    pthread_mutex_unlock(&answers->lock);
}

void known_begin_answer(struct known *known, struct look *look)
{
    struct answers *answers = &known->answers;
    pthread_mutex_lock(&answers->lock);
    look->is_old = look->changes != answers->changes;
    look->has_old_names = look->name_changes != answers->name_changes;
    look->epoch = answers->now;
    answers->running[look->epoch]++;
    pthread_mutex_unlock(&answers->lock);
}

void known_end_answer(struct known *known, const struct look *look)
{
    struct answers *answers = &known->answers;
    pthread_mutex_lock(&answers->lock);
    if (--answers->running[look->epoch] == 0)
        pthread_cond_signal(&answers->ended);
    pthread_mutex_unlock(&answers->lock);
}

void known_changed(struct known *known, bool names)
{
    struct answers *answers = &known->answers;
    pthread_mutex_lock(&answers->lock);
    answers->changes++;
    answers->name_changes += names;
    pthread_mutex_unlock(&answers->lock);
}

void known_wait_for_answers(struct known *known)
{
    struct answers *answers = &known->answers;
    pthread_mutex_lock(&answers->waiting);
    pthread_mutex_lock(&answers->lock);
    unsigned before = answers->now;
    answers->now = !before;
    while (answers->running[before] > 0)
        pthread_cond_wait(&answers->ended, &answers->lock);
    pthread_mutex_unlock(&answers->lock);
    pthread_mutex_unlock(&answers->waiting);
}
