/* sparsectl info: what is stored, how densely, and in how many bytes, for people and as JSON. */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/linked.h"
#include "cli/options.h"
#include "cli/storage.h"
#include "cli/target.h"
#include "cli/tree.h"
#include "common/json.h"

static const char help[] =
    "usage: sparsectl info [options] FILE[:DATASET]\n"
    "\n"
    "Says of every sparse dataset, or of one, what is stored, how densely, in how many bytes, and\n"
    "how many a dense one would have. Dense datasets are listed with their layout and size.\n"
    "\n"
    "  --chunks   a line for each stored chunk, too\n"
    "  --json     all of it as JSON";

enum { CHUNKS = 256, JSON };

static const struct option options[] = {
    {"chunks", no_argument, NULL, CHUNKS},
    {"json", no_argument, NULL, JSON},
    {0},
};

struct query {
    struct target target;
    struct sfs_file *file;
    bool chunks, json;
    size_t n; /* datasets so far */
    bool has_unreadable;
};

/* What the chunks of a sparse dataset add up to. */
struct sums {
    const struct query *query;
    const struct sfs_dataset_info *info;
    uint64_t chunks;
    uint64_t defined;                                        /* elements */
    uint64_t stored[SFS_SECTIONS], unfiltered[SFS_SECTIONS]; /* bytes */
};

static const char *const layout_names[] = {
    [SFS_COMPACT] = "compact", [SFS_CONTIGUOUS] = "contiguous", [SFS_EXTERNAL] = "external",
    [SFS_CHUNKED] = "chunked", [SFS_VIRTUAL] = "virtual",       [SFS_SPARSE] = "sparse",
};

static const char *layout_name(const struct sfs_dataset_info *info)
{
    return info->is_dense ? "structured" : layout_names[info->layout];
}

static int add_chunk(void *context, const struct sfs_chunk_info *chunk)
{
    struct sums *sums = context;
    sums->chunks++;
    if (!sums->info->is_dense)
        sums->defined += chunk->unfiltered_size[VALUES_SECTION] / sums->info->type.size;
    for (int i = 0; i < SFS_SECTIONS; i++) {
        sums->stored[i] += chunk->section_size[i];
        sums->unfiltered[i] += chunk->unfiltered_size[i];
    }
    return 0;
}

/* Bytes of all elements; as a floating-point number, as there may be more than 64 bits count. */
static double dense_bytes(const struct sfs_dataset_info *info)
{
    double bytes = (double)info->type.size;
    for (int i = 0; i < info->rank; i++)
        bytes *= (double)info->dims[i];
    return info->space == SFS_SPACE_NULL ? 0 : bytes;
}

/* ---- For people ---- */

static void print_dims(int rank, const uint64_t *dims)
{
    for (int i = 0; i < rank; i++) {
        fputs(i ? " x " : "", stdout);
        if (dims[i] == SFS_UNLIMITED)
            fputs("inf", stdout);
        else
            printf("%" PRIu64, dims[i]);
    }
    if (rank == 0)
        fputs("scalar", stdout);
}

static void print_filters(const char *section, size_t n, const struct sfs_filter *filters)
{
    printf("  %-11s ", section);
    for (size_t i = 0; i < n; i++) {
        printf("%s%.*s (%d", i ? ", " : "", (int)sizeof(filters[i].name), filters[i].name,
               filters[i].id);
        for (size_t k = 0; k < filters[i].n_values; k++)
            printf("%s%u", k ? "," : ": ", filters[i].values[k]);
        putchar(')');
    }
    puts(n ? "" : "none");
}

static void print_head(const char *path, const struct sfs_dataset_info *info)
{
    print_text(path);
    printf(": %s\n  dims        ", layout_name(info));
    if (info->space == SFS_SPACE_NULL)
        fputs("none", stdout);
    else
        print_dims(info->rank, info->dims);
    if (memcmp(info->dims, info->max_dims, sizeof(*info->dims) * (size_t)info->rank) != 0) {
        fputs(" (max ", stdout);
        print_dims(info->rank, info->max_dims);
        putchar(')');
    }
    if (info->layout == SFS_CHUNKED || info->layout == SFS_SPARSE) {
        fputs("\n  chunks of   ", stdout);
        print_dims(info->rank, info->chunk_dims);
    }
    printf("\n  datatype    %s\n", info->type.description);
}

static void print_section(const char *name, uint64_t stored, uint64_t unfiltered)
{
    printf("  %-11s %" PRIu64 " bytes", name, stored);
    if (stored != unfiltered)
        printf(", %" PRIu64 " before filters", unfiltered);
    putchar('\n');
}

/* Whether there is a section of variable-length data. */
static bool has_heap(const struct sfs_dataset_info *info)
{
    return info->layout == SFS_SPARSE && info->type.has_pointers;
}

static int print_chunk(void *context, const struct sfs_chunk_info *chunk)
{
    const struct sums *sums = context;
    fputs("  chunk at ", stdout);
    for (int i = 0; i < sums->info->rank; i++)
        printf("%s%" PRIu64, i ? "," : "", chunk->start[i]);
    printf(": address %" PRIu64 ", %" PRIu64 " bytes, %" PRIu64 " elements, selection %" PRIu64
           " of %" PRIu64 ", values %" PRIu64 " of %" PRIu64,
           chunk->address, chunk->size,
           chunk->unfiltered_size[VALUES_SECTION] / sums->info->type.size,
           chunk->section_size[SELECTION_SECTION], chunk->unfiltered_size[SELECTION_SECTION],
           chunk->section_size[VALUES_SECTION], chunk->unfiltered_size[VALUES_SECTION]);
    if (has_heap(sums->info))
        printf(", heap %" PRIu64 " of %" PRIu64, chunk->section_size[HEAP_SECTION],
               chunk->unfiltered_size[HEAP_SECTION]);
    putchar('\n');
    return 0;
}

static int print_sparse(struct sfs_dataset *dataset, const struct sums *sums)
{
    const struct sfs_dataset_info *info = sums->info;
    double dense = dense_bytes(info), elements = dense / (double)info->type.size;
    uint64_t stored =
        sums->stored[SELECTION_SECTION] + sums->stored[VALUES_SECTION] + sums->stored[HEAP_SECTION];
    printf("  fill value  %s\n", info->fill_json ? info->fill_json : "none");
    print_filters("selections:", info->n_selection_filters, info->selection_filters);
    print_filters("values:", info->n_filters, info->filters);
    if (has_heap(info))
        print_filters("heap:", info->n_heap_filters, info->heap_filters);
    storage_print(info);
    printf("  stored      %" PRIu64 " chunks\n", sums->chunks);
    printf("  defined     %" PRIu64 " of %.0f elements (%.4g %%)\n", sums->defined, elements,
           elements > 0 ? 100 * (double)sums->defined / elements : 0);
    print_section("selections", sums->stored[0], sums->unfiltered[0]);
    print_section("values", sums->stored[1], sums->unfiltered[1]);
    if (has_heap(info))
        print_section("heap", sums->stored[2], sums->unfiltered[2]);
    printf("  in all      %" PRIu64 " bytes; dense %.0f bytes", stored, dense);
    if (stored > 0)
        printf(", %.4g times as many", dense / (double)stored);
    putchar('\n');
    return sums->query->chunks ? sfs_chunk_iterate(dataset, print_chunk, (void *)sums) : 0;
}

/* Of a chunked dataset all is the values of its chunks. */
static int print_dense_chunk(void *context, const struct sfs_chunk_info *chunk)
{
    const struct sums *sums = context;
    fputs("  chunk at ", stdout);
    for (int i = 0; i < sums->info->rank; i++)
        printf("%s%" PRIu64, i ? "," : "", chunk->start[i]);
    printf(": address %" PRIu64 ", %" PRIu64 " bytes of %" PRIu64, chunk->address, chunk->size,
           chunk->unfiltered_size[VALUES_SECTION]);
    if (chunk->filter_mask[VALUES_SECTION])
        printf(", filters left out: mask %#" PRIx32, chunk->filter_mask[VALUES_SECTION]);
    putchar('\n');
    return 0;
}

static bool lists_dense(const struct sums *sums)
{
    return sums->query->chunks && sums->info->layout == SFS_CHUNKED &&
           !sums->info->type.has_pointers;
}

static int print_dense(struct sfs_dataset *dataset, struct sums *sums)
{
    printf("  dense       %.0f bytes\n", dense_bytes(sums->info));
    return lists_dense(sums) ? sfs_chunk_iterate(dataset, print_dense_chunk, sums) : 0;
}

/* ---- As JSON ---- */

static void json_key(const char *key)
{
    printf(",\n      \"%s\": ", key);
}

static void json_number(const char *key, uint64_t number)
{
    json_key(key);
    printf("%" PRIu64, number);
}

/* A dim without limit is null. */
static void json_dims(const char *key, int rank, const uint64_t *dims)
{
    json_key(key);
    putchar('[');
    for (int i = 0; i < rank; i++) {
        fputs(i ? ", " : "", stdout);
        if (dims[i] == SFS_UNLIMITED)
            fputs("null", stdout);
        else
            printf("%" PRIu64, dims[i]);
    }
    putchar(']');
}

static void json_filters(const char *section, size_t n, const struct sfs_filter *filters)
{
    printf("\"%s\": [", section);
    for (size_t i = 0; i < n; i++) {
        printf("%s{\"id\": %d, \"name\": ", i ? ", " : "", filters[i].id);
        json_string(stdout, filters[i].name, strnlen(filters[i].name, sizeof(filters[i].name)));
        fputs(", \"parameters\": [", stdout);
        for (size_t k = 0; k < filters[i].n_values; k++)
            printf("%s%u", k ? ", " : "", filters[i].values[k]);
        fputs("]}", stdout);
    }
    putchar(']');
}

static void json_head(const struct query *query, const char *path,
                      const struct sfs_dataset_info *info)
{
    bool chunked = info->layout == SFS_CHUNKED || info->layout == SFS_SPARSE;
    printf("%s\n    {\n      \"path\": ", query->n ? "," : "");
    json_string(stdout, path, strlen(path));
    json_key("layout");
    printf("\"%s\"", layout_name(info));
    json_dims("dims", info->rank, info->dims);
    json_dims("max_dims", info->rank, info->max_dims);
    if (chunked)
        json_dims("chunk_dims", info->rank, info->chunk_dims);
    json_key("datatype");
    json_string(stdout, info->type.description, strlen(info->type.description));
    json_number("item_size", info->type.size);
    json_key("fill_value");
    fputs(info->fill_json ? info->fill_json : "null", stdout);
    json_key("filters");
    putchar('{');
    if (info->layout == SFS_SPARSE) {
        json_filters("selection", info->n_selection_filters, info->selection_filters);
        fputs(", ", stdout);
    }
    json_filters("values", info->n_filters, info->filters);
    if (has_heap(info)) {
        fputs(", ", stdout);
        json_filters("heap", info->n_heap_filters, info->heap_filters);
    }
    putchar('}');
    json_key("dense_bytes");
    printf("%.0f", dense_bytes(info));
}

static int json_chunk(void *context, const struct sfs_chunk_info *chunk)
{
    struct sums *sums = context;
    printf("%s\n        {\"start\": [", sums->chunks++ ? "," : "");
    for (int i = 0; i < sums->info->rank; i++)
        printf("%s%" PRIu64, i ? ", " : "", chunk->start[i]);
    printf("], \"address\": %" PRIu64 ", \"size\": %" PRIu64 ", \"defined_elements\": %" PRIu64
           ", \"section_size\": [",
           chunk->address, chunk->size, chunk->unfiltered_size[1] / sums->info->type.size);
    int n = has_heap(sums->info) ? SFS_SECTIONS : HEAP_SECTION;
    for (int i = 0; i < n; i++)
        printf("%s%" PRIu64, i ? ", " : "", chunk->section_size[i]);
    fputs("], \"unfiltered_size\": [", stdout);
    for (int i = 0; i < n; i++)
        printf("%s%" PRIu64, i ? ", " : "", chunk->unfiltered_size[i]);
    fputs("], \"filter_mask\": [", stdout);
    for (int i = 0; i < n; i++)
        printf("%s%" PRIu32, i ? ", " : "", chunk->filter_mask[i]);
    fputs("]}", stdout);
    return 0;
}

static int json_dense_chunk(void *context, const struct sfs_chunk_info *chunk)
{
    struct sums *sums = context;
    printf("%s\n        {\"start\": [", sums->chunks++ ? "," : "");
    for (int i = 0; i < sums->info->rank; i++)
        printf("%s%" PRIu64, i ? ", " : "", chunk->start[i]);
    printf("], \"address\": %" PRIu64 ", \"size\": %" PRIu64 ", \"unfiltered_size\": %" PRIu64
           ", \"filter_mask\": %" PRIu32 "}",
           chunk->address, chunk->size, chunk->unfiltered_size[VALUES_SECTION],
           chunk->filter_mask[VALUES_SECTION]);
    return 0;
}

static int json_list(struct sfs_dataset *dataset, const struct sums *sums, sfs_chunk_function each)
{
    struct sums listed = {.query = sums->query, .info = sums->info};
    json_key("chunks");
    putchar('[');
    int error = sfs_chunk_iterate(dataset, each, &listed);
    putchar(']');
    return error;
}

static int json_sparse(struct sfs_dataset *dataset, const struct sums *sums)
{
    uint64_t stored = sums->stored[0] + sums->stored[1] + sums->stored[2];
    int error = 0;
    storage_json(sums->info);
    json_number("stored_chunks", sums->chunks);
    json_number("defined_elements", sums->defined);
    json_number("selection_bytes", sums->stored[0]);
    json_number("selection_bytes_unfiltered", sums->unfiltered[0]);
    json_number("value_bytes", sums->stored[1]);
    json_number("value_bytes_unfiltered", sums->unfiltered[1]);
    if (has_heap(sums->info)) {
        json_number("heap_bytes", sums->stored[2]);
        json_number("heap_bytes_unfiltered", sums->unfiltered[2]);
    }
    json_number("stored_bytes", stored);
    if (sums->query->chunks)
        error = json_list(dataset, sums, json_chunk);
    return error;
}

/* ---- Datasets ---- */

/* An error of one object: others may be read. */
static bool is_of_object(int error)
{
    return error == -EIO || error == -ELOOP || error == -EOPNOTSUPP || error == -EFBIG;
}

/* In place of what cannot be told. */
static int show_unreadable(void *context, const char *path, int error)
{
    struct query *query = context;
    int code = fail(error, "%s:%s", query->target.file, path);
    if (!is_of_object(error))
        return code;
    query->has_unreadable = true;
    if (query->json) {
        printf("%s\n    {\n      \"path\": ", query->n++ ? "," : "");
        json_string(stdout, path, strlen(path));
        json_key("error");
        json_string(stdout, strerror(-error), strlen(strerror(-error)));
        fputs("\n    }", stdout);
    }
    return 0;
}

static int show_dataset(struct query *query, const char *path, struct sfs_dataset *dataset)
{
    const struct sfs_dataset_info *info = sfs_dataset_info(dataset);
    struct sums sums = {
        .query = query, .info = info, .defined = info->is_dense ? info->elements : 0};
    bool is_sparse = info->layout == SFS_SPARSE;
    int error = is_sparse ? sfs_chunk_iterate(dataset, add_chunk, &sums) : 0;
    if (error)
        return show_unreadable(query, path, error);
    if (query->json) {
        json_head(query, path, info);
        error = is_sparse            ? json_sparse(dataset, &sums)
                : lists_dense(&sums) ? json_list(dataset, &sums, json_dense_chunk)
                                     : 0;
        fputs("\n    }", stdout);
    } else {
        print_head(path, info);
        error = is_sparse ? print_sparse(dataset, &sums) : print_dense(dataset, &sums);
    }
    query->n++;
    return error ? fail(error, "%s:%s", query->target.file, path) : 0;
}

static int show_object(void *context, const char *path, uint64_t address, enum sfs_object_type type)
{
    struct query *query = context;
    struct sfs_dataset *dataset;
    if (type != SFS_DATASET)
        return 0;
    int error = sfs_dataset_open(query->file, address, path, &dataset);
    if (error)
        return show_unreadable(query, path, error);
    int code = show_dataset(query, path, dataset);
    sfs_dataset_close(dataset);
    return code;
}

static int show(struct query *query)
{
    struct sfs_dataset *dataset;
    int code;
    if (!query->target.path) {
        code = tree_walk_series(query->file, show_object, show_object, show_unreadable, query);
    } else if (!(code = tree_open(query->file, query->target.path, &dataset))) {
        code = show_dataset(query, query->target.path, dataset);
        sfs_dataset_close(dataset);
    }
    return code || !query->has_unreadable ? code : FAILED;
}

static int show_file(struct query *query)
{
    struct stat st;
    int error = sfs_stat(query->file, &st);
    if (error)
        return fail(error, "%s", query->target.file);
    if (!query->json) {
        printf("%s: %jd bytes\n", query->target.file, (intmax_t)st.st_size);
        return show(query);
    }
    fputs("{\n  \"file\": ", stdout);
    json_string(stdout, query->target.file, strlen(query->target.file));
    printf(",\n  \"size\": %jd,\n  \"datasets\": [", (intmax_t)st.st_size);
    int code = show(query);
    puts(query->n ? "\n  ]\n}" : "]\n}");
    return code;
}

static int show_again(void *context)
{
    struct query query = *(const struct query *)context;
    return show_file(&query);
}

static int take_arguments(int argc, char **argv, struct query *query)
{
    int option;
    while ((option = next_option(argc, argv, options)) != -1) {
        if (option != CHUNKS && option != JSON)
            return USAGE;
        query->chunks = query->chunks || option == CHUNKS;
        query->json = query->json || option == JSON;
    }
    int code = check_arguments(argc, argv, 1, 1, "a FILE is");
    return code ? code : target_parse(argv[0], argv[optind], &query->target);
}

static int run(int argc, char **argv)
{
    struct query query = {0};
    int code = take_arguments(argc, argv, &query);
    if (!code)
        code = target_open(&query.target, &query.file);
    if (!code) {
        code = in_one_state(query.file, show_again, &query);
        sfs_discard(query.file);
    }
    target_free(&query.target);
    return code ? code : finish_output(code);
}

const struct command info_command = {"info", help, run, READ_HDF5};
