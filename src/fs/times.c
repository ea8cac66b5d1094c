/* A table of places, each for any of many frames: a frame that finds its place taken by another one
 * takes it over, and the time of the other one becomes that of its whole dataset. */
#include "fs/times.h"

#include <errno.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdlib.h>

#include "common/hash.h"

#define PLACES      16384
#define MANY_FRAMES 1024 /* written at once: they get one time for the whole dataset */

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
};

struct times {
    pthread_mutex_t lock; /* guards what follows */
    struct dataset_times *datasets;
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
    pthread_mutex_destroy(&times->lock);
    free(times);
}

static void raise_to(struct timespec *time, struct timespec other)
{
    if (other.tv_sec > time->tv_sec ||
        (other.tv_sec == time->tv_sec && other.tv_nsec > time->tv_nsec))
        *time = other;
}

static struct place *place_of(struct times *times, uint64_t object, uint64_t frame)
{
    uint64_t mixed = (frame + (object << 34)) * 0x9E3779B97F4A7C15u;
    return &times->places[(mixed >> 32) % PLACES];
}

/* The lock must be held. NULL: there is none, or no memory for a new one. */
static struct dataset_times *find_dataset(struct times *times, uint64_t object, bool add)
{
    struct dataset_times *dataset;
    HASH_FIND(hh, times->datasets, &object, sizeof(object), dataset);
    if (dataset || !add)
        return dataset;
    dataset = calloc(1, sizeof(*dataset));
    if (!dataset)
        return NULL;
    dataset->object = object;
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

void times_note(struct times *times, uint64_t object, uint64_t first, uint64_t last)
{
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    pthread_mutex_lock(&times->lock);
    struct dataset_times *dataset = find_dataset(times, object, true);
    if (dataset) {
        raise_to(&dataset->latest, now);
        if (last - first >= MANY_FRAMES)
            raise_to(&dataset->floor, now);
        else
            for (uint64_t frame = first; frame <= last; frame++)
                take_place(times, object, frame, now);
    }
    pthread_mutex_unlock(&times->lock);
}

void times_raise(struct times *times, uint64_t object, uint64_t frame, struct timespec *time)
{
    pthread_mutex_lock(&times->lock);
    const struct dataset_times *dataset = find_dataset(times, object, false);
    if (dataset && frame == TIMES_ANY_FRAME) {
        raise_to(time, dataset->latest);
    } else if (dataset) {
        const struct place *place = place_of(times, object, frame);
        raise_to(time, dataset->floor);
        if (place->is_taken && place->object == object && place->frame == frame)
            raise_to(time, place->time);
    }
    pthread_mutex_unlock(&times->lock);
}
