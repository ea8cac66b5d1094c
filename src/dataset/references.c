#include "dataset/references.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/escape_lines.h"
#include "common/growing_array.h"
#include "common/interrupt.h"
#include "common/log.h"
#include "format/reference.h"
#include "format/variable_slots.h"
#include "selection/selection.h"
#include "store/store.h"

#define KNOWN        1024                /* addresses in a copy that are remembered; a power of 2 */
#define REGION_BYTES ((size_t)256 << 20) /* of the runs that a region has */

bool references_are_in(const struct sfs_dataset *dataset)
{
    return dataset->slots && dataset->slots->has_references;
}

/* ---- Checking ---- */

static int check(void *context, enum sfs_reference reference, struct sfs_sequence *bytes)
{
    struct why *why = context;
    struct selection_region region;
    const char *field;
    if (!reference_may_have(reference, bytes->n))
        return why_damaged(why, "a reference of %" PRIu64 " bytes", bytes->n);
    if (bytes->n == 0 || reference == SFS_REFERENCE_OBJECT)
        return 0;
    const char *selection = (const char *)bytes->elements + REFERENCE_ADDRESS_BYTES;
    size_t n = (size_t)bytes->n - REFERENCE_ADDRESS_BYTES;
    if (selection_region_bounds(selection, n, &region, &field))
        return why_damaged(why, "a region reference: %s", field);
    return 0;
}

int references_check(const struct slots *base, const void *stored, size_t n, struct why *why)
{
    return slot_references(base, stored, n, check, why);
}

int references_check_given(const struct sfs_dataset *dataset, const void *elements, uint64_t n)
{
    struct why why;
    if (!references_are_in(dataset) || !slots_references(dataset->slots, elements, n, check, &why))
        return 0;
    log_error("%s: %s: writing: %s", sfs_path(dataset->file), dataset->path, why.text);
    return -EINVAL;
}

/* ---- Copying ---- */

struct known {
    uint64_t old, new; /* addresses; 0: none */
};

struct copying {
    struct sfs_dataset *to, *from;
    uint64_t dims[SFS_MAX_RANK]; /* of both */
    const struct sfs_moved *moved;
    size_t n;
    struct known known[KNOWN];
};

/* Where the copy of an object is; 0: nowhere. */
static int find_copy(struct copying *copying, uint64_t old, uint64_t *new)
{
    struct sfs_file *file = copying->to->file;
    struct known *known = &copying->known[old / 8 & (KNOWN - 1)];
    if (known->old != old) {
        const char *path = moved_path(copying->moved, copying->n, old);
        uint64_t found = 0;
        int error = path ? sfs_find(file, sfs_root(file), path, &found) : 0;
        if (error && error != -ENOENT)
            return error;
        *known = (struct known){old, error ? 0 : found};
    }
    *new = known->new;
    return 0;
}

/* One of what was read, which is in memory of ours. */
static int translate(void *context, enum sfs_reference reference, struct sfs_sequence *bytes)
{
    struct copying *copying = context;
    uint64_t new = 0, old = reference_address(bytes->elements, (size_t)bytes->n);
    (void)reference;
    int error = old > 0 ? find_copy(copying, old, &new) : 0;
    if (!error)
        bytes->n = reference_set_address((void *)bytes->elements, (size_t)bytes->n, new);
    return error;
}

/* n elements in the order of a selection. */
static int write_packed(struct sfs_dataset *to, const struct sfs_encoded *space,
                        const void *elements, uint64_t n)
{
    void *packed;
    struct sfs_encoded memory;
    int error = selection_encode_all(1, &n, &packed, &memory.n);
    if (error)
        return error;
    memory.bytes = packed;
    error = sfs_dataset_write(to, NULL, &memory, space, elements);
    free(packed);
    return error;
}

/* What is defined of a chunk. */
static int copy_defined(struct copying *copying, const struct sfs_encoded *chunk)
{
    void *defined = NULL, *elements = NULL;
    struct sfs_encoded space;
    uint64_t n = 0;
    int error = sfs_dataset_get_defined(copying->from, chunk, &defined, &space.n);
    space.bytes = defined;
    if (!error)
        error = sfs_read_variable(copying->from, &space, &elements, &n);
    if (!error)
        error = slots_references(copying->from->slots, elements, n, translate, copying);
    if (!error && n > 0)
        error = write_packed(copying->to, &space, elements, n);
    free(elements);
    free(defined);
    return error;
}

static int copy_chunk(void *context, const struct sfs_chunk_info *info)
{
    struct copying *copying = context;
    const struct sfs_dataset_info *of = &copying->from->info;
    uint64_t count[SFS_MAX_RANK];
    struct runs runs = {0};
    struct sfs_encoded chunk;
    void *encoded = NULL;
    for (int i = 0; i < of->rank; i++) {
        if (info->start[i] >= copying->dims[i]) /* it was cut off, by others */
            return 0;
        uint64_t left = copying->dims[i] - info->start[i];
        count[i] = left < of->chunk_dims[i] ? left : of->chunk_dims[i];
    }
    int error = runs_of_box(of->rank, copying->dims, info->start, count, &runs);
    if (!error)
        error = selection_encode(of->rank, copying->dims, NULL, &runs, SELECTION_SMALLEST, &encoded,
                                 &chunk.n);
    runs_free(&runs);
    chunk.bytes = encoded;
    if (!error)
        error = copy_defined(copying, &chunk);
    free(encoded);
    return error ? error : interrupt_check();
}

int references_copy(struct sfs_dataset *to, struct sfs_dataset *from, const struct sfs_moved *moved,
                    size_t n)
{
    struct hdf5_owner owner = dataset_owner(to);
    if (!hdf5_type_equal(&owner, &to->info.encoded_type, &from->info.encoded_type))
        return -EINVAL;
    struct copying *copying = calloc(1, sizeof(*copying));
    if (!copying)
        return -ENOMEM;
    *copying = (struct copying){.to = to, .from = from, .moved = moved, .n = n};
    sfs_dataset_dims(from, copying->dims);
    int error = sfs_chunk_iterate(from, copy_chunk, copying);
    free(copying);
    return error;
}

/* ---- Text ---- */

/* All of a dataset is what it has now; of what is none, or cannot be opened, nothing is said. */
static int bounds_of_all(struct sfs_file *file, uint64_t address, struct selection_region *region)
{
    struct sfs_dataset *dataset;
    enum sfs_object_type type;
    int error = sfs_object_type(file, address, &type);
    if (!error && type != SFS_DATASET)
        return 0;
    if (!error)
        error = sfs_dataset_open(file, address, "a dataset that a reference leads to", &dataset);
    if (error)
        return error == -ENOMEM || error == -EINTR || error == STORE_MOVED ? error : 0;
    region->rank = sfs_dataset_info(dataset)->rank;
    sfs_dataset_dims(dataset, region->last);
    for (int i = 0; i < region->rank; i++)
        region->is_empty |= region->last[i]-- == 0;
    sfs_dataset_close(dataset);
    return 0;
}

static void put_coordinates(FILE *out, int rank, const uint64_t *coordinates)
{
    for (int i = 0; i < rank; i++)
        fprintf(out, "%c%" PRIu64, i ? ',' : '(', coordinates[i]);
    putc(')', out);
}

/* " {(0,0)-(4,5)}", as libhdf5's references have it. */
static int put_bounds(FILE *out, struct sfs_dataset *dataset, const struct sfs_sequence *reference)
{
    struct selection_region region;
    const char *bytes = reference->elements, *why;
    int error = 0;
    if (selection_region_bounds(bytes + REFERENCE_ADDRESS_BYTES,
                                (size_t)reference->n - REFERENCE_ADDRESS_BYTES, &region, &why))
        return 0;
    if (region.rank == 0 && !region.is_empty)
        error = bounds_of_all(dataset->file, sfs_reference_address(reference), &region);
    if (error || region.rank == 0 || region.is_empty)
        return error;
    fputs(" {", out);
    put_coordinates(out, region.rank, region.first);
    putc('-', out);
    put_coordinates(out, region.rank, region.last);
    putc('}', out);
    return 0;
}

/* Paths, a line for each, with bounds behind them; what leads nowhere has none. */
static int join_lines(struct sfs_dataset *dataset, const struct sfs_sequence *references, size_t n,
                      const struct sfs_encoded *paths, char **lines, size_t *lines_n)
{
    const char *path = paths->bytes, *all = path + paths->n;
    FILE *out = open_memstream(lines, lines_n);
    int error = out ? 0 : -ENOMEM;
    for (size_t i = 0; i < n && !error; i++) {
        const char *end = memchr(path, '\n', (size_t)(all - path));
        fwrite(path, 1, (size_t)(end - path), out);
        if (references[i].n > REFERENCE_ADDRESS_BYTES && *path == '/')
            error = put_bounds(out, dataset, &references[i]);
        putc('\n', out); /* what fails here, fails in fclose, too */
        path = end + 1;
    }
    if (out && fclose(out) != 0 && !error)
        error = -ENOMEM;
    if (error && out) {
        free(*lines);
        *lines = NULL;
    }
    return error;
}

int references_lines(struct sfs_dataset *dataset, const struct sfs_sequence *references, size_t n,
                     size_t most, char **lines, size_t *lines_n)
{
    char *paths = NULL;
    size_t paths_n;
    uint64_t *addresses = calloc(n ? n : 1, sizeof(*addresses));
    if (!addresses)
        return -ENOMEM;
    for (size_t i = 0; i < n; i++)
        addresses[i] = sfs_reference_address(&references[i]);
    int error = library_current(dataset->file);
    if (!error)
        error = hdf5_paths(dataset->file->hdf5, dataset->address,
                           &(struct hdf5_addresses){addresses, n}, most, &paths, &paths_n);
    if (error == -EIO)
        log_error("%s: %s: cannot find what references lead to: %s", sfs_path(dataset->file),
                  dataset->path, hdf5_error());
    if (!error)
        error = join_lines(dataset, references, n, &(struct sfs_encoded){paths, paths_n}, lines,
                           lines_n);
    if (!error && *lines_n > most) {
        free(*lines);
        error = -EFBIG;
    }
    free(paths);
    free(addresses);
    return error;
}

/* References that are found, and then replaced, in the same order. */
struct replacing {
    struct sfs_sequence *reference;
    size_t n, room;
    char *text; /* lines */
    size_t text_n, taken;
};

static int note(void *context, enum sfs_reference reference, struct sfs_sequence *bytes)
{
    struct replacing *all = context;
    (void)reference;
    struct sfs_sequence *grown = room_for_one(all->reference, all->n, &all->room, sizeof(*grown));
    if (!grown)
        return -ENOMEM;
    all->reference = grown;
    all->reference[all->n++] = *bytes;
    return 0;
}

/* Lines of all of them. */
static int make_lines(struct sfs_dataset *dataset, struct replacing *all, size_t most)
{
    int error = 0;
    for (size_t done = 0, here; done < all->n && !error; done += here) {
        char *lines;
        size_t lines_n;
        here = all->n - done < SFS_MOST_PARTS ? all->n - done : SFS_MOST_PARTS;
        error = references_lines(dataset, all->reference + done, here, most - all->text_n, &lines,
                                 &lines_n);
        if (error)
            break;
        char *grown = realloc(all->text, all->text_n + lines_n);
        if (grown) {
            memcpy(grown + all->text_n, lines, lines_n);
            all->text = grown;
            all->text_n += lines_n;
        } else {
            error = -ENOMEM;
        }
        free(lines);
    }
    return error;
}

static int replace(void *context, enum sfs_reference reference, struct sfs_sequence *bytes)
{
    static const char nowhere[] = "null"; /* paths begin with '/' */
    struct replacing *all = context;
    char *line = all->text + all->taken;
    const char *end = memchr(line, '\n', all->text_n - all->taken);
    (void)reference;
    if (!end)
        return -EIO;
    size_t n = (size_t)(end - line);
    all->taken += n + 1;
    bool is_nowhere = n == strlen(nowhere) && !memcmp(line, nowhere, n);
    *bytes = (struct sfs_sequence){.elements = line, .n = is_nowhere ? 0 : lines_unescape(line, n)};
    return 0;
}

int references_to_text(struct sfs_dataset *dataset, void *elements, uint64_t n, size_t most,
                       char **text)
{
    struct replacing all = {0};
    *text = NULL;
    if (!references_are_in(dataset))
        return 0;
    int error = slots_references(dataset->slots, elements, n, note, &all);
    if (!error)
        error = make_lines(dataset, &all, most);
    if (!error && all.n > 0)
        error = slots_references(dataset->slots, elements, n, replace, &all);
    free(all.reference);
    *text = all.text;
    return error;
}

/* ---- For callers ---- */

int sfs_reference_encode(uint64_t address, const struct sfs_encoded *space, void **bytes, size_t *n)
{
    void *region = NULL;
    size_t region_n = 0;
    const char *why;
    int error = space ? selection_region_encode(space, SIZE_MAX, &region, &region_n, &why) : 0;
    if (error)
        return error == -EILSEQ ? -EINVAL : error;
    char *made = malloc(REFERENCE_ADDRESS_BYTES + region_n);
    if (made) {
        memset(made, 0, REFERENCE_ADDRESS_BYTES);
        reference_set_address(made, REFERENCE_ADDRESS_BYTES, address);
        if (region_n > 0)
            memcpy(made + REFERENCE_ADDRESS_BYTES, region, region_n);
        *bytes = made;
        *n = REFERENCE_ADDRESS_BYTES + region_n;
    }
    free(region);
    return made ? 0 : -ENOMEM;
}

uint64_t sfs_reference_address(const struct sfs_sequence *reference)
{
    return reference_address(reference->elements, (size_t)reference->n);
}

int sfs_reference_region(struct sfs_dataset *dataset, const struct sfs_sequence *reference,
                         void **space, size_t *n)
{
    const struct sfs_dataset_info *info = &dataset->info;
    const char *selection = reference->elements, *why;
    uint64_t dims[SFS_MAX_RANK];
    if (reference->n <= REFERENCE_ADDRESS_BYTES || info->space != SFS_SPACE_SIMPLE)
        return -EINVAL;
    sfs_dataset_dims(dataset, dims);
    int error = selection_region_decode(selection + REFERENCE_ADDRESS_BYTES,
                                        (size_t)reference->n - REFERENCE_ADDRESS_BYTES, info->rank,
                                        dims, REGION_BYTES, space, n, &why);
    return error == -EILSEQ ? -EINVAL : error;
}
