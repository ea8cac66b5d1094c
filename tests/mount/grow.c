/* A writer for followers: appends frames to two sparse datasets as fast as it can, writes some of
 * the older ones again and erases others, and commits every few frames. What a frame must be can be
 * told from the first two elements of it: its number and the generation, which begins with 1:
 *
 *   element 0  number + 1, modulo 65536
 *   element 1  generation, modulo 65536
 *   element i  (7 number + 13 generation + 31 i) modulo 251, but 0 where that is a multiple of 3
 *
 * Where all of it is 0 the frame was erased, which happens only to those with number % 5 = 4. In
 * `plain` a frame is a chunk without filters, so that a chunk finds its place again where another
 * one was; in `tall` it lies in four chunks, each of four frames, with filters.
 *
 * grow FILE FRAMES [COMMIT [MICROSECONDS]]: up to so many frames; a file that is there is
 * continued. COMMIT: frames in a commit; so long a pause after each. Every commit is a line on
 * standard output: the frames there are then. */
#include <errno.h>
#include <inttypes.h>
#include <sparsefs/sparsefs.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define SIDE     32
#define ELEMENTS (SIDE * SIDE)
#define BACK     40 /* how far back frames are written again */

static struct sfs_file *file;
static struct sfs_dataset *datasets[2];
static uint64_t generation[1 << 20];

static void check(int error)
{
    if (error) {
        fprintf(stderr, "grow: %s\n", strerror(-error));
        exit(1);
    }
}

static uint16_t element(uint64_t number, uint64_t g, uint64_t i)
{
    if (i < 2)
        return (uint16_t)(i == 0 ? number + 1 : g);
    uint64_t v = (7 * number + 13 * g + 31 * i) % 251;
    return v % 3 == 0 ? 0 : (uint16_t)v;
}

static struct sfs_slab slab_of(uint64_t number)
{
    return (struct sfs_slab){.rank = 3, .start = {number}, .count = {1, SIDE, SIDE}};
}

/* As dense elements, or only what is not 0. */
static void put(struct sfs_dataset *dataset, uint64_t number, uint64_t g)
{
    static struct sfs_interval interval[ELEMENTS + 1];
    uint16_t elements[ELEMENTS], values[ELEMENTS];
    struct sfs_slab slab = slab_of(number);
    struct sfs_defined defined = {.interval = interval};
    for (uint64_t i = 0; i < ELEMENTS; i++) {
        elements[i] = element(number, g, i);
        if (elements[i] == 0)
            continue;
        if (i == 0 || elements[i - 1] == 0)
            interval[defined.n++] = (struct sfs_interval){i, defined.elements};
        values[defined.elements++] = elements[i];
    }
    if ((number + g) % 4 == 0) {
        check(sfs_write(dataset, &slab, elements));
        return;
    }
    /* Ends of intervals are told by the numbers of elements in them. */
    interval[defined.n] = (struct sfs_interval){0, defined.elements};
    check(sfs_erase(dataset, &slab));
    check(sfs_write_values(dataset, &slab, &defined, values));
}

static void open_dataset(const char *path, int which)
{
    void *type;
    uint64_t address;
    static const unsigned level = 1;
    static const struct sfs_filter deflate = {.id = 1, .n_values = 1, .values = &level};
    struct sfs_dataset_create create = {.rank = 3,
                                        .dims = {0, SIDE, SIDE},
                                        .max_dims = {SFS_UNLIMITED, SIDE, SIDE},
                                        .chunk_dims = {1, SIDE, SIDE}};
    if (which == 1) {
        create.chunk_dims[0] = 4;
        create.chunk_dims[1] = create.chunk_dims[2] = SIDE / 2;
        create.n_filters[0] = create.n_filters[1] = 1;
        create.filters[0] = create.filters[1] = &deflate;
    }
    if (sfs_find(file, sfs_root(file), path, &address) == 0) {
        check(sfs_dataset_open(file, address, path, &datasets[which]));
        return;
    }
    check(sfs_type_encode("uint16", &type, &create.type.n));
    create.type.bytes = type;
    check(sfs_dataset_create(file, path, &create, &datasets[which]));
    free(type);
}

static void open_file(const char *path)
{
    int error = sfs_open(path, &(struct sfs_options){.writable = true}, &file);
    if (error == -ENOENT)
        error = sfs_create(path, NULL, &file);
    check(error);
    open_dataset("/plain", 0);
    open_dataset("/tall", 1);
    check(sfs_flush(file));
}

static void append(uint64_t number)
{
    const uint64_t dims[3] = {number + 1, SIDE, SIDE};
    generation[number]++;
    for (int i = 0; i < 2; i++) {
        check(sfs_extend(datasets[i], dims));
        put(datasets[i], number, generation[number]);
    }
}

static void change_older(uint64_t number)
{
    uint64_t older = (uint64_t)rand() % BACK;
    if (older >= number)
        return;
    older = number - 1 - older;
    struct sfs_slab slab = slab_of(older);
    bool erase = older % 5 == 4 && rand() % 2 == 0;
    generation[older]++;
    for (int i = 0; i < 2; i++) {
        if (erase)
            check(sfs_erase(datasets[i], &slab));
        else
            put(datasets[i], older, generation[older]);
    }
}

int main(int argc, char **argv)
{
    if (argc < 3)
        return 2;
    uint64_t frames = strtoull(argv[2], NULL, 10), dims[3];
    uint64_t commit = argc > 3 ? strtoull(argv[3], NULL, 10) : 3;
    useconds_t pause = argc > 4 ? (useconds_t)strtoul(argv[4], NULL, 10) : 0;
    if (frames > sizeof(generation) / sizeof(*generation))
        return 2;
    setvbuf(stdout, NULL, _IOLBF, 0);
    open_file(argv[1]);
    /* What a killed writer has left of its last generations is not known. */
    sfs_dataset_dims(datasets[0], dims);
    for (uint64_t i = 0; i < dims[0]; i++)
        generation[i] = 1000 + dims[0];
    for (uint64_t number = dims[0]; number < frames; number++) {
        append(number);
        change_older(number);
        if ((number + 1) % commit == 0) {
            check(sfs_flush(file));
            printf("%" PRIu64 "\n", number + 1);
            if (pause)
                usleep(pause);
        }
    }
    for (int i = 0; i < 2; i++)
        sfs_dataset_close(datasets[i]);
    check(sfs_close(file));
    printf("%" PRIu64 "\n", frames);
    return 0;
}
