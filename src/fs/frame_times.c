/* A table of places, each for any of many frames: a frame that finds its place taken by another one
 * takes it over, and the time of the other one becomes that of its whole dataset. What was set is
 * in a table of its own. */
#include "fs/frame_times.h"

#include <errno.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdlib.h>

#include "common/hash.h"

#define PLACES      16384
#define MANY_FRAMES 1024 /* written at once: they get one time for the whole dataset */
#define MOST_SET    ((unsigned)1 << 18)
#define MOST_KNOWN  ((unsigned)1 << 16) /* datasets */
#define FORGOTTEN   ((unsigned)1 << 20) /* far more, so that few others share one of these */

struct place {
    bool is_taken;
    uint64_t object;
    uint64_t frame;
    struct timespec time;
};

struct dataset_times {
    UT_hash_handle hh;
    uint64_t object;
    struct timespec latest; /* of any frame */
    struct timespec floor;  /* of every frame */
    uint64_t sweeps;        /* how often many were written at once */
};

struct set_times {
    UT_hash_handle hh;
    struct set_key {
        uint64_t object, frame;
    } key;
    uint64_t sweeps; /* number of sweeps when it was set: valid until the next one */
    struct timespec atime, mtime;
};

struct times {
    pthread_mutex_t lock;           /* guards what follows */
    struct dataset_times *datasets; /* in the order in which they were first written */
    struct timespec floor;          /* of those that were, and of others that share their place: */
    bool is_forgotten[FORGOTTEN];   /* by hash */
    uint64_t sweeps;                /* more than any of those had */
    struct set_times *set;
    struct place places[PLACES];
};

int times_create(struct times **out)
{
    struct times *times = calloc(1, sizeof(*times));
    if (!times)
        return -ENOMEM;
    pthread_mutex_init(&times->lock, NULL);
    *out = times;
    return 0;
}

void times_destroy(struct times *times)
{
    if (!times)
        return;
    struct dataset_times *dataset, *next;
    HASH_ITER (hh, times->datasets, dataset, next) {
        HASH_DEL(times->datasets, dataset);
        free(dataset);
    }
    struct set_times *set, *next_set;
    HASH_ITER (hh, times->set, set, next_set) {
        HASH_DEL(times->set, set);
        free(set);
    }
    pthread_mutex_destroy(&times->lock);
    free(times);
}

static void raise_to(struct timespec *time, struct timespec other)
{
    if (other.tv_sec > time->tv_sec ||
        (other.tv_sec == time->tv_sec && other.tv_nsec > time->tv_nsec))
        *time = other;
}

static uint64_t hash_of(uint64_t number)
{
    return number * 0x9E3779B97F4A7C15u >> 32;
}

static struct place *place_of(struct times *times, uint64_t object, uint64_t frame)
{
    return &times->places[hash_of(frame + (object << 34)) % PLACES];
}

/* What is known of a dataset that is not in the table. */
static struct timespec floor_of(const struct times *times, uint64_t object)
{
    bool is_forgotten = times->is_forgotten[hash_of(object) % FORGOTTEN];
    return is_forgotten ? times->floor : (struct timespec){0};
}

/* The lock must be held, here and in the next. */
static void forget_first(struct times *times)
{
    struct dataset_times *first = times->datasets;
    raise_to(&times->floor, first->latest);
    times->is_forgotten[hash_of(first->object) % FORGOTTEN] = true;
    if (times->sweeps <= first->sweeps)
        times->sweeps = first->sweeps + 1;
    HASH_DEL(times->datasets, first);
    free(first);
}

/* NULL: there is none, or no memory for a new one. */
static struct dataset_times *find_dataset(struct times *times, uint64_t object, bool add)
{
    struct dataset_times *dataset;
    HASH_FIND(hh, times->datasets, &object, sizeof(object), dataset);
    if (dataset || !add)
        return dataset;
    dataset = calloc(1, sizeof(*dataset));
    if (!dataset)
        return NULL;
    if (HASH_COUNT(times->datasets) >= MOST_KNOWN)
        forget_first(times);
    const struct timespec floor = floor_of(times, object);
    *dataset = (struct dataset_times){
        .object = object, .latest = floor, .floor = floor, .sweeps = times->sweeps};
    HASH_ADD(hh, times->datasets, object, sizeof(object), dataset);
    if (!hash_failed())
        return dataset;
    free(dataset);
    return NULL;
}

/* The lock must be held. */
static void take_place(struct times *times, uint64_t object, uint64_t frame, struct timespec now)
{
    struct place *place = place_of(times, object, frame);
    if (place->is_taken && (place->object != object || place->frame != frame)) {
        struct dataset_times *other = find_dataset(times, place->object, false);
        if (other)
            raise_to(&other->floor, place->time);
    }
    *place = (struct place){.is_taken = true, .object = object, .frame = frame, .time = now};
}

/* The lock must be held, here and below. */
static struct set_times *find_set(struct times *times, uint64_t object, uint64_t frame)
{
    const struct set_key key = {object, frame};
    struct set_times *set;
    HASH_FIND(hh, times->set, &key, sizeof(key), set);
    return set;
}

static void forget_set(struct times *times, uint64_t object, uint64_t frame)
{
    struct set_times *set = times->set ? find_set(times, object, frame) : NULL;
    if (!set)
        return;
    HASH_DEL(times->set, set);
    free(set);
}

/* Frames have been written, many of them at once: what was set before is not valid any more. */
static void sweep(struct times *times, struct dataset_times *dataset, enum times_kept kept)
{
    struct set_times *of_all =
        kept == TIMES_KEEP_OF_ALL ? find_set(times, dataset->object, TIMES_ANY_FRAME) : NULL;
    if (of_all && of_all->sweeps == dataset->sweeps)
        of_all->sweeps++;
    dataset->sweeps++;
}

void times_note(struct times *times, uint64_t object, uint64_t first, uint64_t last,
                enum times_kept kept)
{
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    pthread_mutex_lock(&times->lock);
    struct dataset_times *dataset = find_dataset(times, object, true);
    if (dataset) {
        raise_to(&dataset->latest, now);
        if (kept == TIMES_KEEP_NONE)
            forget_set(times, object, TIMES_ANY_FRAME);
        if (last - first >= MANY_FRAMES) {
            raise_to(&dataset->floor, now);
            if (kept != TIMES_KEEP_SET)
                sweep(times, dataset, kept);
        } else {
            for (uint64_t frame = first; frame <= last; frame++) {
                take_place(times, object, frame, now);
                if (kept != TIMES_KEEP_SET)
                    forget_set(times, object, frame);
            }
        }
    }
    pthread_mutex_unlock(&times->lock);
}

void times_unset(struct times *times, uint64_t object, uint64_t frame)
{
    pthread_mutex_lock(&times->lock);
    forget_set(times, object, frame);
    pthread_mutex_unlock(&times->lock);
}

/* Adds what is not there. */
static struct set_times *add_set(struct times *times, uint64_t object, uint64_t frame)
{
    struct set_times *set = find_set(times, object, frame);
    if (set || HASH_COUNT(times->set) >= MOST_SET || !(set = calloc(1, sizeof(*set))))
        return set;
    set->key = (struct set_key){object, frame};
    HASH_ADD(hh, times->set, key, sizeof(set->key), set);
    if (!hash_failed())
        return set;
    free(set);
    return NULL;
}

void times_set(struct times *times, uint64_t object, uint64_t frame, const struct timespec *atime,
               const struct timespec *mtime)
{
    pthread_mutex_lock(&times->lock);
    const struct dataset_times *dataset = find_dataset(times, object, true);
    struct set_times *set = dataset ? add_set(times, object, frame) : NULL;
    if (set) {
        set->sweeps = dataset->sweeps;
        set->atime = *atime;
        set->mtime = *mtime;
    }
    pthread_mutex_unlock(&times->lock);
}

static struct timespec last_written(struct times *times, const struct dataset_times *dataset,
                                    uint64_t frame)
{
    struct timespec time = frame == TIMES_ANY_FRAME ? dataset->latest : dataset->floor;
    const struct place *place = place_of(times, dataset->object, frame);
    if (place->is_taken && place->object == dataset->object && place->frame == frame)
        raise_to(&time, place->time);
    return time;
}

void times_apply(struct times *times, uint64_t object, uint64_t frame, struct stat *st)
{
    pthread_mutex_lock(&times->lock);
    const struct dataset_times *dataset = find_dataset(times, object, false);
    const struct set_times *set = dataset ? find_set(times, object, frame) : NULL;
    if (set && set->sweeps == dataset->sweeps) {
        st->st_atim = set->atime;
        st->st_mtim = set->mtime;
    } else {
        struct timespec written =
            dataset ? last_written(times, dataset, frame) : floor_of(times, object);
        raise_to(&st->st_atim, written);
        raise_to(&st->st_mtim, written);
    }
    pthread_mutex_unlock(&times->lock);
}
