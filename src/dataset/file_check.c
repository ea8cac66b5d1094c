/* Verifying a whole file: every structure is read by the functions of the library, whose errors are
 * the findings, and the extents of all structures are compared with each other. */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cache/cache.h"
#include "common/growing_array.h"
#include "common/machine_memory.h"
#include "common/memory_pool.h"
#include "common/object_names.h"
#include "common/size.h"
#include "dataset/private.h"
#include "dataset/sequences.h"
#include "filter/filter.h"
#include "hdf5/hdf5.h"
#include "layout/sparse.h"
#include "store/store.h"

#define POOL_BYTES ((size_t)64 << 20)

#define MOST_TOLD (SFS_SECTIONS * MAX_FILTERS)

#define MOST_PATH_TOLD 2000 /* bytes */

/* The most chunks of a dense dataset that are looked up. */
#define MOST_PLACES ((uint64_t)1 << 24)

/* The most extents that are kept: in half of the memory of this machine, or so many bytes if that is not known. Blocks
 * of an index may overlap, so that there are more of them than the file is long. */
#define MOST_EXTENTS_BYTES ((uint64_t)1 << 30)

/* An extent of the file, and its user. */
struct used_extent {
    uint64_t address, n;
    const char *what;               /* a constant */
    const struct object_name *name; /* NULL: of the file */
};

/* An object that is or was in the queue. */
struct object {
    uint64_t address;
    const struct object_name *name;
    UT_hash_handle hh;
};

struct checking {
    struct sfs_file *file;
    sfs_check_function report;
    void *context;
    struct object *objects; /* in breadth-first order */
    struct object_names names;
    const struct object_name *name; /* of the object at hand; NULL: the file itself */
    uint64_t failed_reads;          /* of the file, before that */
    struct used_extent *extents;
    size_t n, room;
    uint64_t most;     /* extents */
    bool has_too_many; /* of them: some are not kept */
    struct pool pool;
    struct why why; /* of the last error; "": it is not said */
    uint64_t faults;
    bool has_many; /* names, more than are looked into */
    bool has_told; /* something was reported, which cannot be taken back */

    /* Of the dataset at hand: */
    struct sfs_dataset *dataset;
    struct layout layout; /* of a sparse one: a copy, whose errors go to `why` */
    int told[MOST_TOLD];  /* missing filters that were reported */
    size_t n_told;
};

/* ---- Reporting ---- */

static void report(struct checking *checking, enum sfs_finding finding, const char *path,
                   const char *what)
{
    char line[4096];
    snprintf(line, sizeof(line), "%.*s%s%s%s", MOST_PATH_TOLD, path,
             strlen(path) > MOST_PATH_TOLD ? "..." : "", *path && *what ? ": " : "", what);
    checking->has_told = true;
    checking->report(checking->context, finding, line);
    checking->faults += finding != SFS_SOUND;
}

/* What an error says of the file: nothing, where the disk has failed. */
static enum sfs_finding finding_of(const struct checking *checking, int error)
{
    bool is_of_disk =
        error == -EIO && store_failed_reads(checking->file->store) != checking->failed_reads;
    return error == -EOPNOTSUPP || is_of_disk ? SFS_UNKNOWN : SFS_DAMAGED;
}

/* Reports an error, with what is said of it, or in these words; returns only errors that end the
 * check. */
static int found(struct checking *checking, int error, const char *path, const char *what)
{
    if (error == -ENOMEM || error == -EINTR || error == STORE_MOVED)
        return error;
    if (error && checking->why.text[0])
        report(checking, finding_of(checking, error), "", checking->why.text);
    else if (error)
        report(checking, finding_of(checking, error), path, what);
    checking->why.text[0] = '\0';
    return 0;
}

/* ---- Extents ---- */

/* Of the object at hand. */
static int add_extent(struct checking *checking, const char *what, uint64_t address, uint64_t n)
{
    if (n == 0 || checking->has_too_many)
        return 0;
    if (checking->n >= checking->most) {
        checking->has_too_many = true;
        report(checking, SFS_UNKNOWN, "",
               "too many structures and chunks to compare where all of them are");
        return 0;
    }
    struct used_extent *extents =
        room_for_one(checking->extents, checking->n, &checking->room, sizeof(*extents));
    if (!extents)
        return -ENOMEM;
    checking->extents = extents;
    checking->extents[checking->n++] = (struct used_extent){address, n, what, checking->name};
    return 0;
}

/* Reports something of an extent. */
static int report_extent(struct checking *checking, const struct used_extent *extent,
                         const char *what)
{
    char *path = extent->name ? object_name_path(extent->name) : strdup("");
    if (!path)
        return -ENOMEM;
    report(checking, SFS_DAMAGED, path, what);
    free(path);
    return 0;
}

/* Where the other one of two that overlap is. */
static int report_overlap(struct checking *checking, const struct used_extent *extent,
                          const struct used_extent *other)
{
    char *what, *path = other->name ? object_name_path(other->name) : strdup("the file");
    if (!path ||
        asprintf(&what,
                 "%s at address %" PRIu64 ": it overlaps the %s at address %" PRIu64 " of %s",
                 extent->what, extent->address, other->what, other->address, path) < 0) {
        free(path);
        return -ENOMEM;
    }
    int error = report_extent(checking, extent, what);
    free(path);
    free(what);
    return error;
}

static int compare_extents(const void *a, const void *b)
{
    const struct used_extent *e = a, *f = b;
    return (e->address > f->address) - (e->address < f->address);
}

/* Each extent is compared with the one before it that reaches farthest. */
static int compare_all(struct checking *checking)
{
    uint64_t end = checking->file->superblock.end;
    const struct used_extent *farthest = NULL;
    char what[512];
    int error = 0;
    if (checking->n > 0)
        qsort(checking->extents, checking->n, sizeof(*checking->extents), compare_extents);
    for (size_t i = 0; i < checking->n && !error; i++) {
        const struct used_extent *extent = &checking->extents[i];
        if (extent->address > end || extent->n > end - extent->address) {
            snprintf(what, sizeof(what),
                     "%s at address %" PRIu64 ": it reaches beyond the end of the file, %" PRIu64,
                     extent->what, extent->address, end);
            error = report_extent(checking, extent, what);
            continue;
        }
        if (farthest && farthest->address + farthest->n > extent->address)
            error = report_overlap(checking, extent, farthest);
        if (!farthest || extent->address + extent->n > farthest->address + farthest->n)
            farthest = extent;
    }
    return error;
}

/* ---- Sparse datasets ---- */

static int add_block(void *context, const char *name, uint64_t address, uint64_t n)
{
    struct checking *checking = context;
    return add_extent(checking, name, address, n);
}

/* Whether looking up a chunk gives what the iteration gave. */
static int check_lookup(struct checking *checking, const uint64_t *scaled,
                        const struct chunk_record *record)
{
    struct layout *layout = &checking->layout;
    struct chunk_record again;
    int error = layout->ops->lookup(layout, scaled, &again);
    if (error)
        return error;
    if (!again.exists || again.address != record->address || again.size != record->size)
        return layout_failed(layout, scaled, record->address,
                             "it is in the chunk index, but looking it up does not find it");
    return 0;
}

/* It lies inside the file: an error is the disk's. */
static int read_chunk(struct checking *checking, const uint64_t *scaled,
                      const struct chunk_record *record, uint64_t offset, void *stored, uint64_t n)
{
    struct why why = {"it cannot be read"};
    int error =
        store_read_why(checking->file->store, record->address + offset, stored, (size_t)n, &why);
    if (error != -EIO)
        return error;
    layout_failed(&checking->layout, scaled, record->address, why.text);
    return -EOPNOTSUPP;
}

static int decode_chunk(struct checking *checking, const uint64_t *scaled,
                        const struct chunk_record *record)
{
    struct layout *layout = &checking->layout;
    const unsigned parts = PART_DEFINED | PART_PACKED | PART_HEAP;
    size_t most = cache_chunk_limit(checking->file->cache);
    struct cache_form form = {0};
    uint64_t offset, n;
    layout->ops->stored(layout, record, parts, &offset, &n);
    size_t bytes = size_sum(layout->ops->decode_bytes(layout, record, parts), size_of(n));
    if (layout_check_bytes(layout, scaled, record->address, bytes, most))
        return -EOPNOTSUPP;
    void *stored = pool_get(&checking->pool, n);
    if (!stored)
        return -ENOMEM;
    int error = read_chunk(checking, scaled, record, offset, stored, n);
    if (!error)
        error = layout->ops->decode(
            layout, &(struct decoding){scaled, record, parts, stored, &checking->pool, &form});
    if (!error)
        error = sequences_check(layout, most, scaled, record->address, &form);
    form_free(&form, &checking->pool);
    pool_put(&checking->pool, stored, n);
    return error;
}

/* Reports a filter that chunks of a dataset need, once per dataset. */
static void report_missing(struct checking *checking, int filter)
{
    char what[64];
    for (size_t i = 0; i < checking->n_told; i++)
        if (checking->told[i] == filter)
            return;
    snprintf(what, sizeof(what), "its chunks: filter %d is not available", filter);
    report(checking, SFS_UNKNOWN, checking->dataset->path, what);
    checking->told[checking->n_told++] = filter;
}

/* Whether all filters that were applied to a chunk are available. */
static bool is_decodable(struct checking *checking, const uint64_t *scaled,
                         const struct chunk_record *record)
{
    const struct sparse *sparse = checking->dataset->sparse;
    bool decodable = true;
    if (layout_is_unfiltered(&checking->dataset->layout, scaled))
        return true;
    for (int section = 0; section < sparse->format.n_sections; section++) {
        if (chunk_record_section_size(&sparse->format, record, section) == 0)
            continue;
        const struct filter_pipeline *pipeline = &sparse->header.filters.section[section];
        bool native = filter_is_native(pipeline);
        for (size_t i = 0; i < pipeline->n && !native; i++) {
            int id = pipeline->filters[i].id;
            if (record->filter_mask[section] >> i & 1 || hdf5_filter_available(id))
                continue;
            report_missing(checking, id);
            decodable = false;
        }
    }
    return decodable;
}

/* Whether a chunk that cannot be decoded may be sound, because a filter is missing here. */
static bool is_left_out(struct checking *checking, const struct chunk_record *record)
{
    const struct sparse *sparse = checking->dataset->sparse;
    for (int section = 0; section < sparse->format.n_sections; section++)
        for (size_t i = 0; i < sparse->header.filters.section[section].n; i++)
            if (!(record->filter_mask[section] >> i & 1) &&
                filter_is_left_out(&sparse->header.filters.section[section].filters[i]))
                return true;
    return false;
}

static int check_chunk(void *context, const uint64_t *scaled, const struct chunk_record *record)
{
    struct checking *checking = context;
    const char *path = checking->dataset->path;
    int error = check_lookup(checking, scaled, record);
    if (!error && is_decodable(checking, scaled, record))
        error = decode_chunk(checking, scaled, record);
    if (error == -EIO && is_left_out(checking, record))
        error = -EOPNOTSUPP;
    error = found(checking, error, path, "a chunk cannot be read");
    return error ? error : add_extent(checking, "chunk", record->address, record->size);
}

static int index_failed(struct checking *checking, int error, const struct why *why)
{
    return found(checking, error, checking->dataset->path,
                 error == -EIO || error == -EILSEQ ? why->text : "its chunk index cannot be read");
}

static int check_sparse(struct checking *checking)
{
    struct sfs_dataset *dataset = checking->dataset;
    const struct object_header *header = dataset->sparse->header.header;
    struct why why;
    checking->layout = dataset->layout;
    checking->layout.why = &checking->why;
    for (size_t i = 0; i < header->n_blocks; i++) {
        const struct header_block *block = &header->block[i];
        int error = add_extent(checking, i ? "object header continuation" : "object header",
                               block->address, block->n);
        if (error)
            return error;
    }
    checking->n_told = 0;
    int error = index_each_block(dataset->sparse->index, add_block, checking, &why);
    if (error)
        error = index_failed(checking, error, &why);
    if (error)
        return error;
    error = index_iterate(dataset->sparse->index, check_chunk, checking, &why);
    return error ? index_failed(checking, error, &why) : 0;
}

/* ---- Dense datasets ---- */

/* The chunks of a dense dataset, as libhdf5 finds them. */
static int check_chunks(struct checking *checking)
{
    const struct sfs_dataset *dataset = checking->dataset;
    const struct sfs_dataset_info *info = &dataset->info;
    uint64_t places = 1, chunks[SFS_MAX_RANK];
    for (int i = 0; i < info->rank; i++) {
        chunks[i] = info->dims[i] ? (info->dims[i] - 1) / info->chunk_dims[i] + 1 : 0;
        if (__builtin_mul_overflow(places, chunks[i], &places))
            places = UINT64_MAX;
    }
    if (places > MOST_PLACES) {
        report(checking, SFS_UNKNOWN, dataset->path, "too many chunks to look for all of them");
        return 0;
    }
    for (uint64_t i = 0; i < places; i++) {
        uint64_t start[SFS_MAX_RANK], rest = i;
        for (int axis = info->rank - 1; axis >= 0; axis--) {
            start[axis] = rest % chunks[axis] * info->chunk_dims[axis];
            rest /= chunks[axis];
        }
        struct hdf5_chunk chunk;
        int error = hdf5_locate(checking->file->hdf5, dataset->address, start, &chunk);
        if (error)
            return found(checking, error, dataset->path, hdf5_error());
        error = chunk.address == UINT64_MAX
                    ? 0
                    : add_extent(checking, "chunk", chunk.address, chunk.size);
        if (error)
            return error;
    }
    return 0;
}

static int check_dense(struct checking *checking)
{
    const struct sfs_dataset *dataset = checking->dataset;
    const struct layout *layout = &dataset->layout;
    if (dataset->info.layout == SFS_CHUNKED)
        return check_chunks(checking);
    if (layout->ops == &layout_contiguous && layout->data_address != UINT64_MAX)
        return add_extent(checking, "data", layout->data_address, layout->chunk_bytes);
    return 0;
}

/* ---- The tree ---- */

/* group: NULL for the root. -ENAMETOOLONG, -E2BIG: its path, or all names, are too long. */
static int add_object(struct checking *checking, uint64_t address, const struct object *group,
                      const char *name)
{
    struct object *object;
    const struct object_name *added;
    HASH_FIND(hh, checking->objects, &address, sizeof(address), object);
    if (object)
        return 0;
    int error = object_names_add(&checking->names, group ? group->name : NULL, name, &added);
    if (error)
        return error;
    object = calloc(1, sizeof(*object));
    if (!object)
        return -ENOMEM;
    object->address = address;
    object->name = added;
    HASH_ADD(hh, checking->objects, address, sizeof(object->address), object);
    if (hash_failed()) {
        free(object);
        return -ENOMEM;
    }
    return 0;
}

static int check_group(struct checking *checking, const struct object *group, const char *path)
{
    struct sfs_links links;
    bool is_long = false;
    if (group->name->level >= SFS_MOST_LEVELS) {
        report(checking, SFS_UNKNOWN, "", "too many levels of groups in groups to look into all");
        return 0;
    }
    int error = file_list(checking->file, group->address, &links, &checking->why);
    if (error)
        return found(checking, error, path, "the group cannot be read");
    for (size_t i = 0; i < links.n && !error; i++) {
        if (links.link[i].type == SFS_LINK_HARD)
            error = add_object(checking, links.link[i].address, group, links.link[i].name);
        if (error == -ENAMETOOLONG)
            error = 0, is_long = true;
    }
    sfs_links_free(&links);
    if (is_long)
        report(checking, SFS_UNKNOWN, path, "paths of names in it are too long to look into all");
    if (error == -E2BIG && !checking->has_many)
        report(checking, SFS_UNKNOWN, "", "too many names, or too long ones, to look into all");
    checking->has_many |= error == -E2BIG;
    return error == -E2BIG ? 0 : error;
}

static int check_dataset(struct checking *checking, const struct object *object, const char *path)
{
    int error =
        file_dataset(checking->file, object->address, path, &checking->dataset, &checking->why);
    if (error)
        return found(checking, error, path, "the dataset cannot be opened");
    struct sfs_dataset *dataset = checking->dataset;
    error = dataset->sparse ? check_sparse(checking) : check_dense(checking);
    sfs_dataset_close(dataset);
    return error;
}

static int check_object_at(struct checking *checking, const struct object *object, const char *path)
{
    enum sfs_object_type type;
    struct sfs_attributes attributes;
    uint64_t faults = checking->faults;
    int error = file_object_type(checking->file, object->address, &type, &checking->why);
    if (error)
        return found(checking, error, path, "the object cannot be read");
    if (type == SFS_GROUP)
        error = check_group(checking, object, path);
    else if (type == SFS_DATASET)
        error = check_dataset(checking, object, path);
    if (error)
        return error;
    error = file_attributes(checking->file, object->address, &attributes, &checking->why);
    if (!error)
        sfs_attributes_free(&attributes);
    error = found(checking, error, path, "its attributes cannot be read");
    if (!error && checking->faults == faults)
        report(checking, SFS_SOUND, path, "");
    return error;
}

static int check_object(struct checking *checking, const struct object *object)
{
    char *path = object_name_path(object->name);
    if (!path)
        return -ENOMEM;
    checking->name = object->name;
    checking->failed_reads = store_failed_reads(checking->file->store);
    int error = check_object_at(checking, object, path);
    free(path);
    return error;
}

static int check_file(struct checking *checking)
{
    const struct superblock *superblock = &checking->file->superblock;
    int error = add_object(checking, sfs_root(checking->file), NULL, "");
    if (!error && superblock->version >= 2)
        error = add_extent(checking, "superblock", superblock->address,
                           SUPERBLOCK_BYTES + 4 * superblock->offset_size + 4);
    /* The hash keeps the order in which objects were added, and may grow meanwhile. */
    for (struct object *object = checking->objects; object && !error; object = object->hh.next)
        error = check_object(checking, object);
    if (!error)
        error = compare_all(checking);
    return error;
}

static int check_once(struct sfs_file *file, sfs_check_function function, void *context,
                      bool *has_told)
{
    FOLLOWED(file);
    int current = library_current(file);
    if (current)
        return current;
    struct checking *checking = calloc(1, sizeof(*checking));
    if (!checking)
        return -ENOMEM;
    uint64_t memory = machine_memory();
    checking->most = (memory ? memory / 2 : MOST_EXTENTS_BYTES) / sizeof(*checking->extents);
    checking->file = file;
    checking->report = function;
    checking->context = context;
    pool_init(&checking->pool, POOL_BYTES);
    int error = check_file(checking);
    *has_told = checking->has_told;
    struct object *object, *next;
    HASH_ITER (hh, checking->objects, object, next) {
        HASH_DEL(checking->objects, object);
        free(object);
    }
    object_names_free(&checking->names);
    pool_destroy(&checking->pool);
    free(checking->extents);
    free(checking);
    return error;
}

int sfs_check(struct sfs_file *file, sfs_check_function function, void *context)
{
    unsigned tries = 0;
    int error;
    if (sfs_is_writable(file))
        return -EINVAL;
    do {
        bool has_told = false;
        error = hdf5_begin(file->hdf5);
        if (error && error != STORE_MOVED && error != -EINTR)
            store_say(file->store, NULL, "cannot be checked: %s", hdf5_error());
        if (!error)
            error = check_once(file, function, context, &has_told);
        if (has_told)
            error = follow_end_copy(file, error);
    } while (repeat_call(file, &error, &tries));
    return error;
}
