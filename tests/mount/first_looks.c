/* Looks at views of frames for the first time while the frames are written and closed, and says how many sizes and
 * times the kernel still has of before: when all threads are done, and seconds later.
 *
 * first_looks DATASET FRAMES     DATASET: its directory; its frames have 2 KiB, and all were never looked at */
#include <fcntl.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define BYTES  2048
#define LATER  4 /* seconds */
#define SPREAD 3000

static const char *const views[] = {"npy/%06u.npy", "tiff/%06u.tif", "values/%06u.values",
                                    "frames/%u.defined"};
#define VIEWS (sizeof(views) / sizeof(*views))

struct looker {
    const char *view;
    unsigned seed;
};

static const char *dataset;
static unsigned frames, frame;
static pthread_barrier_t together;

static void wait_some(unsigned *seed, unsigned most)
{
    for (volatile unsigned left = (unsigned)rand_r(seed) % most; left > 0; left--)
        ;
}

/* As the kernel has them, or as the filesystem says them. */
static bool look(const char *view, unsigned number, int flags, struct statx *st)
{
    char name[64], path[4096];
    snprintf(name, sizeof(name), view, number);
    snprintf(path, sizeof(path), "%s/%s", dataset, name);
    return statx(AT_FDCWD, path, flags, STATX_BASIC_STATS, st) == 0;
}

static void *look_at_all(void *data)
{
    struct looker *looker = data;
    struct statx st;
    for (unsigned i = 0; i < frames; i++) {
        pthread_barrier_wait(&together);
        wait_some(&looker->seed, SPREAD / 10);
        (void)look(looker->view, frame, 0, &st);
        pthread_barrier_wait(&together);
    }
    return NULL;
}

static bool is_old(const char *view, unsigned number)
{
    struct statx kept, now;
    if (!look(view, number, 0, &kept) || !look(view, number, AT_STATX_FORCE_SYNC, &now)) {
        perror(view);
        exit(1);
    }
    return kept.stx_size != now.stx_size || kept.stx_mtime.tv_sec != now.stx_mtime.tv_sec ||
           kept.stx_mtime.tv_nsec != now.stx_mtime.tv_nsec;
}

static void write_frame(unsigned *seed)
{
    char bytes[BYTES], path[4096];
    snprintf(path, sizeof(path), "%s/frames/%u.raw", dataset, frame);
    memset(bytes, (int)(frame + 1), sizeof(bytes));
    int fd = open(path, O_RDWR);
    pthread_barrier_wait(&together);
    wait_some(seed, SPREAD);
    if (fd < 0 || pwrite(fd, bytes, sizeof(bytes), 0) != sizeof(bytes) || close(fd) < 0) {
        perror(path);
        exit(1);
    }
    pthread_barrier_wait(&together);
}

/* What the kernel has is not asked for before: asking the filesystem would mend it. */
int main(int argc, char **argv)
{
    struct looker lookers[VIEWS];
    pthread_t threads[VIEWS];
    unsigned seed = 1, left = 0;
    if (argc != 3)
        return 2;
    dataset = argv[1];
    frames = (unsigned)atoi(argv[2]);
    pthread_barrier_init(&together, NULL, VIEWS + 1);
    for (unsigned i = 0; i < VIEWS; i++) {
        lookers[i] = (struct looker){views[i], i + 2};
        if (pthread_create(&threads[i], NULL, look_at_all, &lookers[i]) != 0)
            return 1;
    }
    for (frame = 0; frame < frames;) {
        write_frame(&seed);
        frame++;
    }
    for (unsigned i = 0; i < VIEWS; i++)
        pthread_join(threads[i], NULL);
    sleep(LATER);
    for (unsigned i = 0; i < VIEWS; i++) {
        for (unsigned number = 0; number < frames; number++)
            left += is_old(views[i], number);
    }
    printf("%u\n", left);
    return 0;
}
