/* direct FILE...: asks our own reader and libhdf5, in a process of its own, about everything that a
 * listing asks, and writes a line for each file: how often our own answered, of how many questions,
 * about links of groups, kinds and datasets, and how often what it said was not what libhdf5 says.
 * Differences are said on standard error, by their address, and end it with 1. */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <syslog.h>

#include "hdf5/own_reader.h"
#include "hdf5/worker/wire.h"
#include "store/store.h"

#define MOST_OBJECTS 5000 /* of a file: links may go round in circles */
#define MEMORY       ((size_t)1 << 30)
#define NANOS        UINT64_C(5000000000)   /* for libhdf5 */
#define PATIENT      UINT64_C(300000000000) /* for our own reader */

enum question { LINKS, KINDS, DATASETS, QUESTIONS };

struct comparison {
    const char *path;
    struct hdf5 *hdf5;
    struct direct *direct; /* NULL: it asks libhdf5 for all */
    uint64_t queue[MOST_OBJECTS];
    size_t n;
    unsigned asked[QUESTIONS], answered[QUESTIONS], differences;
};

static void differ(struct comparison *comparison, const char *what, uint64_t address, int own,
                   int other)
{
    comparison->differences++;
    fprintf(stderr, "%s: %s of the object at %" PRIu64 ": own reader %d, libhdf5 %d\n",
            comparison->path, what, address, own, other);
}

/* own: error of our reader, -EAGAIN: it does not say. */
static void compare(struct comparison *comparison, enum question question, uint64_t address,
                    int own, const struct wire *a, int other, const struct wire *b)
{
    static const char *const names[] = {"links", "kind", "description"};
    comparison->asked[question]++;
    if (own == -EAGAIN)
        return;
    comparison->answered[question]++;
    if (own != other || (!own && (a->n != b->n || memcmp(a->bytes, b->bytes, a->n) != 0)))
        differ(comparison, names[question], address, own, other);
}

static void push(struct comparison *comparison, uint64_t address)
{
    for (size_t i = 0; i < comparison->n; i++)
        if (comparison->queue[i] == address)
            return;
    if (comparison->n < MOST_OBJECTS)
        comparison->queue[comparison->n++] = address;
}

static void compare_links(struct comparison *comparison, uint64_t group)
{
    struct sfs_links own = {0}, others = {0};
    struct wire a = {0}, b = {0};
    int own_error = comparison->direct ? direct_list(comparison->direct, group, &own) : -EAGAIN;
    int error = hdf5_list(comparison->hdf5, group, &others);
    wire_links(&a, &own);
    wire_links(&b, &others);
    compare(comparison, LINKS, group, own_error, &a, error, &b);
    for (size_t i = 0; i < others.n && !error; i++)
        if (others.link[i].type == SFS_LINK_HARD)
            push(comparison, others.link[i].address);
    wire_free(&a);
    wire_free(&b);
    sfs_links_free(&own);
    sfs_links_free(&others);
}

static void compare_datasets(struct comparison *comparison, uint64_t dataset)
{
    struct sfs_dataset_info own = {0}, others = {0};
    struct hdf5_storage own_storage = {0}, others_storage = {0};
    struct wire a = {0}, b = {0};
    int own_error = comparison->direct
                        ? direct_dataset_open(comparison->direct, dataset, &own, &own_storage)
                        : -EAGAIN;
    int error = hdf5_dataset_open(comparison->hdf5, dataset, &others, &others_storage);
    wire_info(&a, &own);
    wire_storage(&a, &own_storage);
    wire_uint(&a, own.elements);
    wire_uint(&a, own.fill_is_zero);
    wire_info(&b, &others);
    wire_storage(&b, &others_storage);
    wire_uint(&b, others.elements);
    wire_uint(&b, others.fill_is_zero);
    compare(comparison, DATASETS, dataset, own_error, &a, error, &b);
    if (!error)
        hdf5_dataset_close(comparison->hdf5, dataset);
    wire_free(&a);
    wire_free(&b);
    hdf5_info_free(&own);
    hdf5_info_free(&others);
    hdf5_segments_free(others_storage.n_segments, others_storage.segments);
}

static void compare_object(struct comparison *comparison, uint64_t address)
{
    enum sfs_object_type own = SFS_GROUP, other = SFS_GROUP;
    struct wire a = {0}, b = {0};
    int own_error =
        comparison->direct ? direct_object_type(comparison->direct, address, &own) : -EAGAIN;
    int error = hdf5_object_type(comparison->hdf5, address, &other);
    wire_uint(&a, own);
    wire_uint(&b, other);
    compare(comparison, KINDS, address, own_error, &a, error, &b);
    wire_free(&a);
    wire_free(&b);
    if (!error && other == SFS_GROUP)
        compare_links(comparison, address);
    else if (!error && other == SFS_DATASET)
        compare_datasets(comparison, address);
}

static void compare_file(struct comparison *comparison, struct store *store)
{
    uint64_t root = 0;
    int own_error = direct_open(store, PATIENT, &comparison->direct, &root);
    int error = hdf5_open_in_worker(store, &comparison->hdf5);
    if (own_error != -EAGAIN && own_error != error)
        differ(comparison, "opening, and the root", root, own_error, error);
    if (!own_error && !error && root != hdf5_root(comparison->hdf5))
        differ(comparison, "the address", root, 0, 0);
    if (!error)
        push(comparison, hdf5_root(comparison->hdf5));
    for (size_t i = 0; i < comparison->n; i++)
        compare_object(comparison, comparison->queue[i]);
    printf("%s", error ? "refused" : own_error ? "asked" : "answered");
    for (int i = 0; i < QUESTIONS; i++)
        printf(" %u/%u", comparison->answered[i], comparison->asked[i]);
    printf(" %u %s\n", comparison->differences, comparison->path);
    if (!error)
        hdf5_close(comparison->hdf5);
    direct_close(comparison->direct);
}

static void say_nothing(int level, const char *line)
{
    (void)level, (void)line;
}

int main(int argc, char **argv)
{
    unsigned differences = 0;
    sfs_set_log(getenv("DIRECT_LOG") ? NULL : say_nothing, LOG_DEBUG);
    int error = hdf5_start_workers(MEMORY, NANOS);
    for (int i = 1; i < argc && !error; i++) {
        struct comparison *comparison = calloc(1, sizeof(*comparison));
        struct store *store;
        error = comparison ? store_open(argv[i], &store) : -ENOMEM;
        if (!error) {
            comparison->path = argv[i];
            compare_file(comparison, store);
            differences += comparison->differences;
            store_close(store);
        }
        free(comparison);
    }
    if (error)
        fprintf(stderr, "%s\n", strerror(-error));
    return error ? 2 : differences > 0;
}
