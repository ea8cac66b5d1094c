/* The least that compressed frames can take all processors: decoding each one, into memory that is
 * used again, and for importing them, encoding the sections of the chunks that were made of it, by
 * the filters alone. Nothing is looked for, copied, written or committed. The sections are those of
 * a file that sparsectl has made of the first frames; they stand for all. With -w the sections are
 * made, too, as the format wants them: the elements that are not zero are found and packed, their
 * selections encoded and summed; in memory that is used again, without a cache or a file. Prints
 * the seconds, and those of the processors.
 *
 * bare_filters [-s SPARSE [-w]] DENSE KEPT FRAMES THREADS */
#include <hdf5.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <sys/resource.h>
#include <unistd.h>

#include "buffer.h"
#include "cli/find_defined.h"
#include "format/structure.h"
#include "selection/runs.h"
#include "selection/selection.h"
#include "sparsefs/sparsefs.h"

#define MOST_CHUNKS 4096

struct section {
    void *plain;
    size_t n;
};

struct chunk {
    uint64_t frame, row; /* the first that is in it */
    struct section section[SFS_SECTIONS];
};

struct bare {
    const struct sfs_dataset_info *dense, *sparse;
    struct sfs_dataset *from;
    size_t frame_bytes, kept, frames;
    bool makes_sections;
    struct section *frame; /* as stored */
    struct chunk chunk[MOST_CHUNKS];
    size_t n_chunks;
    atomic_size_t next;
    atomic_bool failed;
};

/* ---- Before the clock runs ---- */

static struct sfs_dataset *open_dataset(const char *path)
{
    struct sfs_file *file;
    struct sfs_dataset *dataset;
    uint64_t address;
    if (sfs_open(path, NULL, &file) || sfs_find(file, sfs_root(file), "/d", &address) ||
        sfs_dataset_open(file, address, "/d", &dataset))
        return NULL;
    return dataset;
}

static bool load_frames(const char *path, struct bare *bare)
{
    hid_t file = H5Fopen(path, H5F_ACC_RDONLY, H5P_DEFAULT);
    hid_t dataset = H5Dopen2(file, "/d", H5P_DEFAULT);
    bool good = dataset >= 0;
    bare->frame = calloc(bare->kept, sizeof(*bare->frame));
    for (size_t i = 0; i < bare->kept && good; i++) {
        hsize_t offset[3] = {i, 0, 0}, n = 0;
        uint32_t mask = 0;
        struct section *frame = &bare->frame[i];
        good = H5Dget_chunk_storage_size(dataset, offset, &n) >= 0 && n > 0;
        frame->n = (size_t)n;
        frame->plain = malloc(frame->n);
        good = good && H5Dread_chunk(dataset, H5P_DEFAULT, offset, &mask, frame->plain) >= 0;
    }
    H5Dclose(dataset);
    H5Fclose(file);
    return good;
}

static const struct sfs_filter *filters_of(const struct bare *bare, int section, size_t *n)
{
    *n = section ? bare->sparse->n_filters : bare->sparse->n_selection_filters;
    return section ? bare->sparse->filters : bare->sparse->selection_filters;
}

static int load_chunk(void *context, const struct sfs_chunk_info *info)
{
    struct bare *bare = context;
    if (info->start[0] >= bare->kept)
        return 0;
    if (bare->n_chunks == MOST_CHUNKS)
        return -1;
    struct chunk *chunk = &bare->chunk[bare->n_chunks++];
    void *stored[SFS_SECTIONS];
    chunk->frame = info->start[0];
    chunk->row = info->start[1];
    for (int i = 0; i < SFS_SECTIONS; i++) {
        chunk->section[i].n = (size_t)info->unfiltered_size[i];
        chunk->section[i].plain = malloc(chunk->section[i].n);
        stored[i] = malloc((size_t)info->section_size[i]);
    }
    int error = sfs_read_chunk(bare->from, info, stored);
    for (int i = 0; i < SFS_SECTIONS; i++) {
        size_t n;
        const struct sfs_filter *filters = filters_of(bare, i, &n);
        if (!error)
            error = sfs_filters_decode(filters, n, info->filter_mask[i], stored[i],
                                       (size_t)info->section_size[i], chunk->section[i].plain,
                                       chunk->section[i].n);
        free(stored[i]);
    }
    return error;
}

/* ---- While it runs ---- */

/* What a thread uses again and again. */
struct room {
    char *elements, *packed;
    struct findings findings;
};

/* What lies in the chunk, all of whose rows are whole ones, of the frame that was decoded. Whether
 * its sections are what sparsectl has made. */
static bool make_sections(const struct bare *bare, const struct chunk *chunk, struct room *room)
{
    const struct sfs_dataset_info *sparse = bare->sparse;
    static const char zero[8];
    const struct undefined undefined = {.type = &sparse->type, .value = zero};
    uint64_t columns = sparse->dims[2], left = sparse->dims[1] - chunk->row;
    uint64_t rows = left < sparse->chunk_dims[1] ? left : sparse->chunk_dims[1];
    const char *elements = room->elements + chunk->row * columns * sparse->type.size;
    struct findings *findings = &room->findings;
    void *selection;
    size_t n;
    findings_clear(findings);
    if (findings_scan(findings, &undefined, 0, rows * columns, elements) ||
        findings_finish(findings))
        return false;
    findings_pack(findings, sparse->type.size, elements, room->packed);
    const struct runs runs = {.entries = findings->defined.interval,
                              .n = findings->defined.n,
                              .elements = findings->defined.elements};
    if (selection_encode(sparse->rank, sparse->chunk_dims, NULL, &runs, SELECTION_SMALLEST,
                         &selection, &n))
        return false;
    unsigned char *summed = realloc(selection, n + CHECKSUM_BYTES);
    if (!summed)
        free(selection);
    else
        structure_sum(summed, n + CHECKSUM_BYTES);
    free(summed);
    return summed && n + CHECKSUM_BYTES == chunk->section[0].n &&
           runs.elements * sparse->type.size == chunk->section[1].n;
}

static bool encode(const struct bare *bare, const struct chunk *chunk)
{
    for (int i = 0; i < SFS_SECTIONS; i++) {
        void *encoded;
        size_t n, n_encoded;
        uint32_t mask;
        const struct sfs_filter *filters = filters_of(bare, i, &n);
        if (sfs_filters_encode(filters, n, chunk->section[i].plain, chunk->section[i].n, &encoded,
                               &n_encoded, &mask))
            return false;
        free(encoded);
    }
    return true;
}

static void *run(void *context)
{
    struct bare *bare = context;
    struct room room = {.elements = malloc(bare->frame_bytes), .packed = malloc(bare->frame_bytes)};
    size_t i;
    bool good = room.elements && room.packed;
    while (good && (i = atomic_fetch_add(&bare->next, 1)) < bare->frames) {
        const struct section *frame = &bare->frame[i % bare->kept];
        good = sfs_filters_decode(bare->dense->filters, bare->dense->n_filters, 0, frame->plain,
                                  frame->n, room.elements, bare->frame_bytes) == 0;
        for (size_t k = 0; k < bare->n_chunks && good; k++)
            if (bare->chunk[k].frame == i % bare->kept)
                good = (!bare->makes_sections || make_sections(bare, &bare->chunk[k], &room)) &&
                       encode(bare, &bare->chunk[k]);
    }
    if (!good)
        atomic_store(&bare->failed, true);
    findings_free(&room.findings);
    free(room.elements);
    free(room.packed);
    return NULL;
}

static double processor_seconds(void)
{
    struct rusage used;
    getrusage(RUSAGE_SELF, &used);
    return (double)(used.ru_utime.tv_sec + used.ru_stime.tv_sec) +
           1e-6 * (double)(used.ru_utime.tv_usec + used.ru_stime.tv_usec);
}

static void run_all(struct bare *bare, unsigned threads)
{
    pthread_t thread[64];
    unsigned n = 0;
    double start = now(), processors = processor_seconds();
    while (n + 1 < threads && n < 64 && pthread_create(&thread[n], NULL, run, bare) == 0)
        n++;
    run(bare);
    while (n > 0)
        pthread_join(thread[--n], NULL);
    printf("%.6f %.6f\n", now() - start, processor_seconds() - processors);
}

int main(int argc, char **argv)
{
    static struct bare bare;
    const char *sparse = NULL;
    int option;
    while ((option = getopt(argc, argv, "s:w")) == 's' || option == 'w')
        if (option == 's')
            sparse = optarg;
        else
            bare.makes_sections = true;
    if (option != -1 || argc - optind != 4 || (bare.makes_sections && !sparse)) {
        fprintf(stderr, "usage: bare_filters [-s SPARSE [-w]] DENSE KEPT FRAMES THREADS\n");
        return 2;
    }
    argv += optind;
    bare.kept = strtoul(argv[1], NULL, 10);
    bare.frames = strtoul(argv[2], NULL, 10);
    struct sfs_dataset *dense = open_dataset(argv[0]);
    bare.from = sparse ? open_dataset(sparse) : NULL;
    if (!dense || (sparse && !bare.from))
        return 1;
    bare.dense = sfs_dataset_info(dense);
    bare.sparse = sparse ? sfs_dataset_info(bare.from) : NULL;
    bare.frame_bytes = bare.dense->type.size;
    for (int i = 0; i < bare.dense->rank; i++)
        bare.frame_bytes *= (size_t)bare.dense->chunk_dims[i];
    if (!load_frames(argv[0], &bare) ||
        (sparse && sfs_chunk_iterate(bare.from, load_chunk, &bare))) {
        fprintf(stderr, "bare_filters: %s: cannot read\n", sparse ? sparse : argv[0]);
        return 1;
    }
    run_all(&bare, (unsigned)strtoul(argv[3], NULL, 10));
    return bare.failed;
}
