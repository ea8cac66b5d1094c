/* libFuzzer: a whole file through the public interface: everything that can be read of it, and
 * checking it; or, in a copy, writing, erasing, growing and flushing. Only our own structures are
 * changed, as samples.h says. libhdf5 sees of them the header of the dataset, where it looks for
 * attributes; unless its checksum is repaired it refuses it. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/sendfile.h>
#include <sys/stat.h>
#include <unistd.h>

#include "format/dataset_header.h"
#include "samples.h"
#include "sparsefs/sparsefs.h"
#include "store/store.h"

#define MOST_BYTES  ((size_t)1 << 12) /* of a slab */
#define MOST_CHUNKS 200
#define WRITE       2 /* a bit of the second byte */

/* ---- Reading ---- */

/* A piece of the dataset at its first or last element; false: it has none. */
static bool piece_of(const struct sfs_dataset_info *info, bool last, struct sfs_slab *slab)
{
    uint64_t most = MOST_BYTES / (info->type.size ? info->type.size : 1);
    *slab = (struct sfs_slab){.rank = info->rank};
    for (int i = info->rank - 1; i >= 0; i--) {
        if (info->dims[i] == 0 || most == 0)
            return false;
        slab->count[i] = info->dims[i] < most ? info->dims[i] : most;
        slab->start[i] = last ? info->dims[i] - slab->count[i] : 0;
        most /= slab->count[i];
    }
    return true;
}

static void read_defined(struct sfs_dataset *dataset, const struct sfs_slab *slab, void *buffer)
{
    struct sfs_defined defined;
    void *encoded;
    size_t n;
    if (sfs_get_defined(dataset, slab, &defined) == 0) {
        sfs_read_values(dataset, slab, &defined, 0, defined.elements, buffer);
        sfs_defined_free(&defined);
    }
    if (sfs_encode_defined(dataset, slab, slab->rank, &encoded, &n) == 0)
        free(encoded);
}

static void read_pieces(struct sfs_dataset *dataset)
{
    const struct sfs_dataset_info *info = sfs_dataset_info(dataset);
    struct sfs_slab slab, all = {.rank = info->rank};
    uint64_t elements;
    for (int last = 0; last < 2; last++) {
        if (!piece_of(info, last, &slab))
            continue;
        size_t n = info->type.size;
        for (int i = 0; i < slab.rank; i++)
            n *= (size_t)slab.count[i];
        void *buffer = malloc(n);
        require(buffer != NULL);
        read_defined(dataset, &slab, buffer);
        sfs_read(dataset, &slab, 0, buffer, n);
        free(buffer);
    }
    memcpy(all.count, info->dims, sizeof(all.count));
    sfs_count_defined(dataset, &all, &elements);
}

struct reading {
    struct sfs_dataset *dataset;
    size_t n;
};

static int read_chunk(void *context, const struct sfs_chunk_info *info)
{
    struct reading *reading = context;
    struct sfs_chunk_info found;
    void *sections[] = {malloc((size_t)info->section_size[0]),
                        malloc((size_t)info->section_size[1])};
    sfs_chunk_info(reading->dataset, info->start, &found);
    sfs_read_chunk(reading->dataset, info, sections);
    free(sections[0]);
    free(sections[1]);
    return ++reading->n == MOST_CHUNKS;
}

static void ignore(void *context, enum sfs_finding finding, const char *line)
{
    (void)context, (void)finding;
    require(line != NULL);
}

static void read_file(struct sfs_file *file, uint64_t address)
{
    struct sfs_attributes attributes;
    struct sfs_dataset *dataset;
    enum sfs_object_type type;
    char *text;
    size_t n;
    sfs_object_type(file, address, &type);
    if (sfs_attributes(file, address, &attributes) == 0)
        sfs_attributes_free(&attributes);
    if (sfs_dataset_open(file, address, "/d", &dataset) == 0) {
        struct reading reading = {dataset, 0};
        read_pieces(dataset);
        sfs_chunk_iterate(dataset, read_chunk, &reading);
        if (sfs_text(dataset, 1000, &text, &n) == 0)
            free(text);
        sfs_dataset_close(dataset);
    }
    sfs_check(file, ignore, NULL);
}

/* ---- Writing ---- */

static const char *copy_of(const char *path)
{
    static char copy[64];
    struct stat st;
    if (!copy[0])
        snprintf(copy, sizeof(copy), "/dev/shm/fuzz-%d.h5", (int)getpid());
    int from = open(path, O_RDONLY | O_CLOEXEC);
    int to = open(copy, O_WRONLY | O_CREAT | O_TRUNC | O_NOFOLLOW | O_CLOEXEC, 0600);
    require(from >= 0 && to >= 0 && fstat(from, &st) == 0);
    require(sendfile(to, from, NULL, (size_t)st.st_size) == st.st_size);
    close(from);
    close(to);
    return copy;
}

static void write_file(struct sfs_file *file, uint64_t address)
{
    struct sfs_dataset *dataset;
    struct sfs_slab slab;
    if (sfs_dataset_open(file, address, "/d", &dataset) != 0)
        return;
    const struct sfs_dataset_info *info = sfs_dataset_info(dataset);
    void *values = calloc(1, MOST_BYTES);
    require(values != NULL);
    for (int last = 0; last < 2; last++) {
        if (!piece_of(info, last, &slab))
            continue;
        for (int i = 0; i < slab.rank; i++)
            slab.count[i] = slab.count[i] < 3 ? slab.count[i] : 3;
        for (size_t n = info->type.size, i = 0; i < (size_t)slab.rank; i++)
            if ((n *= (size_t)slab.count[i]) > MOST_BYTES)
                slab.count[i] = 1;
        if (last == 0)
            sfs_write(dataset, &slab, values);
        else
            sfs_erase(dataset, &slab);
    }
    free(values);
    uint64_t dims[SFS_MAX_RANK];
    for (int i = 0; i < info->rank; i++)
        dims[i] = info->dims[i] / 2 + 1;
    sfs_flush(file);
    sfs_set_extent(dataset, dims);
    sfs_dataset_close(dataset);
}

/* Whether the header is that of an ordinary dataset now, or of something else: all of it is
 * libhdf5's. */
static bool is_not_sparse(const struct sample *sample)
{
    struct store *store;
    struct superblock superblock;
    struct dataset_header dataset;
    struct why why;
    require(store_open(sample->path, &store) == 0 &&
            superblock_read(store, &superblock, &why) == 0);
    int error = dataset_header_read(store, &superblock, sample->header, &dataset, &why);
    if (!error)
        dataset_header_free(&dataset);
    store_close(store);
    return error == -EINVAL;
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n)
{
    const struct sfs_options options = {.cache_size = 1 << 20,
                                        .writable = n > 1 && bytes[1] & WRITE};
    struct sample sample;
    struct sfs_file *file;
    if (!sample_of(bytes, n, HEADER | INDEX | CHUNKS, &sample) ||
        (bytes[1] & REPAIRED && is_not_sparse(&sample)))
        return 0;
    const char *path = options.writable ? copy_of(sample.path) : sample.path;
    require(sfs_open(path, &options, &file) == 0);
    if (options.writable)
        write_file(file, sample.header);
    else
        read_file(file, sample.header);
    sfs_close(file);
    if (options.writable)
        unlink(path);
    return 0;
}

size_t LLVMFuzzerCustomMutator(uint8_t *bytes, size_t n, size_t most, unsigned seed)
{
    return sample_mutate(HEADER | INDEX | CHUNKS, bytes, n, most, seed);
}
