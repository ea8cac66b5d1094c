/* sparsectl repack: a copy of a file without free space. Groups and committed datatypes come first,
 * then datasets, sparse ones chunk by chunk as they are stored, or with other filters, then the
 * references in all these, then the links that are left: second names of objects, soft and external
 * ones. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/copy_sequences.h"
#include "cli/destination.h"
#include "cli/options.h"
#include "cli/progress.h"
#include "cli/storage_words.h"
#include "cli/tree.h"
#include "common/hash.h"

static const char help[] =
    "usage: sparsectl repack [--filter FILTER ...] SRC DST\n"
    "\n"
    "Copies an HDF5 file without the space in it that is free: all groups, links, attributes,\n"
    "committed datatypes and datasets, each stored as it is. DST must not be there; it appears "
    "when\n"
    "it is complete. User blocks are left out, and attributes of groups and sparse datasets that "
    "are\n"
    "references.\n"
    "\n"
    "  --filter SECTION:NAME[=LEVEL]\n"
    "                         a filter of the selections (selection), the values (values) or the\n"
    "                         variable-length data (heap) of all\n"
    "                         sparse datasets, instead of those that they have; as of create, and\n"
    "                         none, may be given several times. Other datasets keep theirs";

enum { FILTER = 256 };

static const struct option options[] = {{"filter", required_argument, NULL, FILTER}, {0}};

/* Where an object was copied to. */
struct place {
    uint64_t address; /* in the source */
    char *path;
    bool may_refer; /* references may be in it: all that was copied but groups */
    UT_hash_handle hh;
};

struct repack {
    struct sfs_file *from, *to;
    const struct filters *filters; /* that were asked for */
    bool datasets;                 /* it is their turn */
    struct place *places;
    struct progress progress;
    uint64_t left; /* bytes of the source that are not counted yet */
};

/* What was copied may be more than the source, where objects in it are smaller than what is said of
 * them. */
static void count(struct repack *repack, uint64_t bytes)
{
    bytes = bytes < repack->left ? bytes : repack->left;
    repack->left -= bytes;
    progress_add(&repack->progress, bytes);
}

static int failed(const struct repack *repack, int error, const char *path)
{
    return fail(error, "%s:%s", sfs_path(repack->to), path);
}

static int note_place(struct repack *repack, uint64_t address, const char *path, bool may_refer)
{
    struct place *place = calloc(1, sizeof(*place));
    if (place)
        place->path = strdup(path);
    if (!place || !place->path) {
        free(place);
        return -ENOMEM;
    }
    place->address = address;
    place->may_refer = may_refer;
    HASH_ADD(hh, repack->places, address, sizeof(place->address), place);
    if (hash_failed()) {
        free(place->path);
        free(place);
        return -ENOMEM;
    }
    return 0;
}

/* ---- Sparse datasets ---- */

struct chunks {
    struct repack *repack;
    struct sfs_dataset *from, *to;
};

static int copy_chunk(void *context, const struct sfs_chunk_info *info)
{
    const struct chunks *chunks = context;
    void *sections[SFS_SECTIONS] = {NULL};
    int error = interrupted ? -EINTR : 0;
    for (int i = 0; i < SFS_SECTIONS && !error; i++) {
        sections[i] = malloc(info->section_size[i] ? info->section_size[i] : 1);
        error = sections[i] ? 0 : -ENOMEM;
    }
    if (!error)
        error = sfs_read_chunk(chunks->from, info, sections);
    if (!error)
        error = sfs_write_chunk(chunks->to, info, (const void *const *)sections);
    for (int i = 0; i < SFS_SECTIONS; i++)
        free(sections[i]);
    if (!error)
        count(chunks->repack, info->size);
    return error;
}

/* A dataset of which all is copied. */
static void count_elements(struct repack *repack, const struct sfs_dataset_info *info)
{
    uint64_t bytes;
    if (!__builtin_mul_overflow(info->elements, info->type.size, &bytes))
        count(repack, bytes);
}

/* Sections that nothing was asked for keep theirs. */
static void use_filters(struct filters *filters, struct sfs_dataset_create *create)
{
    struct sfs_dataset_create asked = *create;
    filters_use(filters, &asked);
    for (int i = 0; i < SFS_SECTIONS; i++)
        if (filters->given[i] && (i != HEAP_SECTION || filters->heap_unit > 0)) {
            create->n_filters[i] = asked.n_filters[i];
            create->filters[i] = asked.filters[i];
        }
}

static bool has_filters(const struct repack *repack)
{
    const bool *given = repack->filters->given;
    return given[SELECTION_SECTION] || given[VALUES_SECTION] || given[HEAP_SECTION];
}

/* What is defined stays so, whatever its value. */
static int copy_values(struct repack *repack, struct sfs_dataset *from, struct sfs_dataset *to)
{
    static const struct pick everything = {0};
    const struct copy copy = {.from = from,
                              .to = to,
                              .undefined = {.type = &sfs_dataset_info(from)->type, .none = true},
                              .pick = &everything};
    bool is_variable = sfs_dataset_info(from)->type.has_pointers;
    int error = is_variable ? copy_sequences(&copy) : copy_elements(&copy);
    if (!error)
        count_elements(repack, sfs_dataset_info(from));
    return error;
}

static bool are_same(size_t n, const struct sfs_filter *filters, size_t n_others,
                     const struct sfs_filter *others)
{
    bool same = n == n_others;
    for (size_t i = 0; same && i < n; i++) {
        const struct sfs_filter *a = &filters[i], *b = &others[i];
        same =
            a->id == b->id && a->optional == b->optional && a->n_values == b->n_values &&
            (a->n_values == 0 || !memcmp(a->values, b->values, a->n_values * sizeof(*a->values)));
    }
    return same;
}

/* libhdf5 completes filters by the datatype: those of a source that was made otherwise may have got
 * other parameters. */
static bool has_filters_of(const struct sfs_dataset *from, const struct sfs_dataset *to)
{
    const struct sfs_dataset_info *a = sfs_dataset_info(from), *b = sfs_dataset_info(to);
    return are_same(a->n_selection_filters, a->selection_filters, b->n_selection_filters,
                    b->selection_filters) &&
           are_same(a->n_filters, a->filters, b->n_filters, b->filters) &&
           are_same(a->n_heap_filters, a->heap_filters, b->n_heap_filters, b->heap_filters);
}

static int copy_sparse(struct repack *repack, struct sfs_dataset *from, const char *path)
{
    const struct sfs_dataset_info *info = sfs_dataset_info(from);
    struct sfs_dataset_create create = {
        .rank = info->rank,
        .type = info->encoded_type,
        .fill = info->fill,
        .n_filters = {info->n_selection_filters, info->n_filters, info->n_heap_filters},
        .filters = {info->selection_filters, info->filters, info->heap_filters},
        .attributes_file = repack->from,
        .attributes_address = sfs_dataset_address(from),
    };
    struct chunks chunks = {.repack = repack, .from = from};
    memcpy(create.dims, info->dims, sizeof(create.dims));
    memcpy(create.max_dims, info->max_dims, sizeof(create.max_dims));
    memcpy(create.chunk_dims, info->chunk_dims, sizeof(create.chunk_dims));
    storage_as(info, &create);
    struct filters filters = *repack->filters;
    filters.heap_unit = sequence_unit(&info->type);
    use_filters(&filters, &create);
    int error = sfs_dataset_create(repack->to, path, &create, &chunks.to);
    if (error)
        return error;
    error = has_filters(repack) || !has_filters_of(from, chunks.to)
                ? copy_values(repack, from, chunks.to)
                : sfs_chunk_iterate(from, copy_chunk, &chunks);
    return copy_close(chunks.to, error);
}

/* ---- Objects ---- */

static int copy_dataset(struct repack *repack, const char *path, uint64_t address)
{
    struct sfs_dataset *from;
    int error = sfs_dataset_open(repack->from, address, path, &from);
    if (error)
        return error;
    const struct sfs_dataset_info *info = sfs_dataset_info(from);
    if (info->layout == SFS_SPARSE) {
        error = copy_sparse(repack, from, path);
    } else {
        error = sfs_object_copy(repack->to, path, repack->from, address);
        count_elements(repack, info);
    }
    sfs_dataset_close(from);
    return error;
}

static int copy_object(void *context, const char *path, uint64_t address, enum sfs_object_type type)
{
    struct repack *repack = context;
    if ((type == SFS_DATASET) != repack->datasets)
        return 0;
    int error = interrupted           ? -EINTR
                : type == SFS_DATASET ? copy_dataset(repack, path, address)
                                      : sfs_object_copy(repack->to, path, repack->from, address);
    if (!error)
        error = note_place(repack, address, path, type != SFS_GROUP);
    return error ? failed(repack, error, path) : 0;
}

/* ---- References ---- */

static int by_address(const void *a, const void *b)
{
    const struct sfs_moved *x = a, *y = b;
    return (x->address > y->address) - (x->address < y->address);
}

/* Once everything has its place. */
static int copy_references(struct repack *repack)
{
    struct place *place, *next;
    size_t n = 0;
    struct sfs_moved *moved = reallocarray(NULL, HASH_COUNT(repack->places), sizeof(*moved));
    if (!moved)
        return fail(-ENOMEM, "%s", sfs_path(repack->to));
    HASH_ITER (hh, repack->places, place, next) {
        moved[n++] = (struct sfs_moved){place->address, place->path};
    }
    qsort(moved, n, sizeof(*moved), by_address);
    int code = 0;
    HASH_ITER (hh, repack->places, place, next) {
        int error = code || !place->may_refer ? 0
                    : interrupted             ? -EINTR
                                  : sfs_references_copy(repack->to, place->path, repack->from,
                                                        place->address, moved, n);
        if (error)
            code = failed(repack, error, place->path);
    }
    free(moved);
    return code;
}

/* ---- Links ---- */

static int copy_link(struct repack *repack, const char *group, struct sfs_link *link)
{
    struct place *place = NULL;
    char *path;
    if (link->type == SFS_LINK_SERIES) /* the copy has it by itself */
        return DONE;
    if (asprintf(&path, "%s/%s", strcmp(group, "/") ? group : "", link->name) < 0)
        return failed(repack, -ENOMEM, group);
    int code = 0, error = 0;
    if (link->type == SFS_LINK_HARD)
        HASH_FIND(hh, repack->places, &link->address, sizeof(link->address), place);
    if (link->type == SFS_LINK_USER) {
        code = fail_because("%s:%s: a user-defined link cannot be copied", sfs_path(repack->from),
                            path);
    } else if (link->type == SFS_LINK_HARD && !place) {
        code = fail_because("%s:%s: it was not copied", sfs_path(repack->from), path);
    } else if (!place || strcmp(place->path, path) != 0) {
        struct sfs_link made = {
            .type = link->type,
            .target = place ? place->path : link->target,
            .target_file = link->target_file,
        };
        error = interrupted ? -EINTR : sfs_link_create(repack->to, path, &made);
        code = error ? failed(repack, error, path) : 0;
    }
    free(path);
    return code;
}

static int copy_links(void *context, const char *path, uint64_t address, enum sfs_object_type type)
{
    struct repack *repack = context;
    struct sfs_links links;
    if (type != SFS_GROUP)
        return 0;
    int error = interrupted ? -EINTR : sfs_list(repack->from, address, &links);
    if (error)
        return fail(error, "%s:%s", sfs_path(repack->from), path);
    int code = 0;
    for (size_t i = 0; i < links.n && !code; i++)
        code = copy_link(repack, path, &links.link[i]);
    sfs_links_free(&links);
    return code;
}

/* ---- The command ---- */

static int copy_all(void *context, struct sfs_file *from, struct sfs_file *to, FILE *out)
{
    (void)out;
    struct repack all = {.from = from, .to = to, .filters = context}, *repack = &all;
    struct stat st;
    struct place *place, *next;
    int error = sfs_stat(repack->from, &st);
    if (error)
        return fail(error, "%s", sfs_path(repack->from));
    repack->left = (uint64_t)st.st_size;
    progress_begin(&repack->progress, "repacking", repack->left);
    int code = tree_walk(repack->from, copy_object, repack);
    repack->datasets = true;
    if (!code)
        code = tree_walk(repack->from, copy_object, repack);
    if (!code)
        code = copy_references(repack);
    if (!code)
        code = tree_walk(repack->from, copy_links, repack);
    progress_end(&repack->progress);
    HASH_ITER (hh, repack->places, place, next) {
        HASH_DEL(repack->places, place);
        free(place->path);
        free(place);
    }
    return code;
}

static int run(int argc, char **argv)
{
    struct filters filters = {0};
    int option, code = 0;
    while (!code && (option = next_option(argc, argv, options)) != -1)
        code = option == FILTER ? filter_parse(argv[0], optarg, -1, &filters) : USAGE;
    if (code)
        return code;
    code = check_arguments(argc, argv, 2, 2, "a SRC and a DST are");
    if (code)
        return code;
    interrupt_catch();
    /* libhdf5 must not see two commits of the file while it copies objects. */
    return both_copy(argv[optind], argv[optind + 1], true, INT64_MAX, copy_all, &filters);
}

const struct command repack_command = {"repack", help, run, COPY_HDF5};
