/* sparsectl info: what is stored, how densely, and in how many bytes, for people and as JSON. */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/external_links.h"
#include "cli/open_source.h"
#include "cli/options.h"
#include "cli/storage_words.h"
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
    FILE *out;
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

static void print_dims(FILE *out, int rank, const uint64_t *dims)
{
    for (int i = 0; i < rank; i++) {
        fputs(i ? " x " : "", out);
        if (dims[i] == SFS_UNLIMITED)
            fputs("inf", out);
        else
            fprintf(out, "%" PRIu64, dims[i]);
    }
    if (rank == 0)
        fputs("scalar", out);
}

static void print_filters(FILE *out, const char *section, size_t n,
                          const struct sfs_filter *filters)
{
    fprintf(out, "  %-11s ", section);
    for (size_t i = 0; i < n; i++) {
        char name[sizeof(filters[i].name) + 1];
        snprintf(name, sizeof(name), "%.*s", (int)sizeof(filters[i].name), filters[i].name);
        fputs(i ? ", " : "", out);
        print_text(out, name);
        fprintf(out, " (%d", filters[i].id);
        for (size_t k = 0; k < filters[i].n_values; k++)
            fprintf(out, "%s%u", k ? "," : ": ", filters[i].values[k]);
        putc(')', out);
    }
    fprintf(out, "%s\n", n ? "" : "none");
}

static void print_head(FILE *out, const char *path, const struct sfs_dataset_info *info)
{
    print_text(out, path);
    fprintf(out, ": %s\n  dims        ", layout_name(info));
    if (info->space == SFS_SPACE_NULL)
        fputs("none", out);
    else
        print_dims(out, info->rank, info->dims);
    if (memcmp(info->dims, info->max_dims, sizeof(*info->dims) * (size_t)info->rank) != 0) {
        fputs(" (max ", out);
        print_dims(out, info->rank, info->max_dims);
        putc(')', out);
    }
    if (info->layout == SFS_CHUNKED || info->layout == SFS_SPARSE) {
        fputs("\n  chunks of   ", out);
        print_dims(out, info->rank, info->chunk_dims);
    }
    fprintf(out, "\n  datatype    %s\n", info->type.description);
}

static void print_section(FILE *out, const char *name, uint64_t stored, uint64_t unfiltered)
{
    fprintf(out, "  %-11s %" PRIu64 " bytes", name, stored);
    if (stored != unfiltered)
        fprintf(out, ", %" PRIu64 " before filters", unfiltered);
    putc('\n', out);
}

/* Whether there is a section of variable-length data. */
static bool has_heap(const struct sfs_dataset_info *info)
{
    return info->layout == SFS_SPARSE && info->type.has_pointers;
}

static int print_chunk(void *context, const struct sfs_chunk_info *chunk)
{
    const struct sums *sums = context;
    FILE *out = sums->query->out;
    fputs("  chunk at ", out);
    for (int i = 0; i < sums->info->rank; i++)
        fprintf(out, "%s%" PRIu64, i ? "," : "", chunk->start[i]);
    fprintf(out,
            ": address %" PRIu64 ", %" PRIu64 " bytes, %" PRIu64 " elements, selection %" PRIu64
            " of %" PRIu64 ", values %" PRIu64 " of %" PRIu64,
            chunk->address, chunk->size,
            chunk->unfiltered_size[VALUES_SECTION] / sums->info->type.size,
            chunk->section_size[SELECTION_SECTION], chunk->unfiltered_size[SELECTION_SECTION],
            chunk->section_size[VALUES_SECTION], chunk->unfiltered_size[VALUES_SECTION]);
    if (has_heap(sums->info))
        fprintf(out, ", heap %" PRIu64 " of %" PRIu64, chunk->section_size[HEAP_SECTION],
                chunk->unfiltered_size[HEAP_SECTION]);
    putc('\n', out);
    return 0;
}

static int print_sparse(struct sfs_dataset *dataset, const struct sums *sums)
{
    FILE *out = sums->query->out;
    const struct sfs_dataset_info *info = sums->info;
    double dense = dense_bytes(info), elements = dense / (double)info->type.size;
    uint64_t stored =
        sums->stored[SELECTION_SECTION] + sums->stored[VALUES_SECTION] + sums->stored[HEAP_SECTION];
    fprintf(out, "  fill value  %s\n",
            info->fill_json ? info->fill_json
            : info->fill    ? "too long to be shown"
                            : "none");
    print_filters(out, "selections:", info->n_selection_filters, info->selection_filters);
    print_filters(out, "values:", info->n_filters, info->filters);
    if (has_heap(info))
        print_filters(out, "heap:", info->n_heap_filters, info->heap_filters);
    storage_print(out, info);
    fprintf(out, "  stored      %" PRIu64 " chunks\n", sums->chunks);
    fprintf(out, "  defined     %" PRIu64 " of %.0f elements (%.4g %%)\n", sums->defined, elements,
            elements > 0 ? 100 * (double)sums->defined / elements : 0);
    print_section(out, "selections", sums->stored[0], sums->unfiltered[0]);
    print_section(out, "values", sums->stored[1], sums->unfiltered[1]);
    if (has_heap(info))
        print_section(out, "heap", sums->stored[2], sums->unfiltered[2]);
    fprintf(out, "  in all      %" PRIu64 " bytes; dense %.0f bytes", stored, dense);
    if (stored > 0)
        fprintf(out, ", %.4g times as many", dense / (double)stored);
    putc('\n', out);
    return sums->query->chunks ? sfs_chunk_iterate(dataset, print_chunk, (void *)sums) : 0;
}

/* Of a chunked dataset all is the values of its chunks. */
static int print_dense_chunk(void *context, const struct sfs_chunk_info *chunk)
{
    const struct sums *sums = context;
    FILE *out = sums->query->out;
    fputs("  chunk at ", out);
    for (int i = 0; i < sums->info->rank; i++)
        fprintf(out, "%s%" PRIu64, i ? "," : "", chunk->start[i]);
    fprintf(out, ": address %" PRIu64 ", %" PRIu64 " bytes of %" PRIu64, chunk->address,
            chunk->size, chunk->unfiltered_size[VALUES_SECTION]);
    if (chunk->filter_mask[VALUES_SECTION])
        fprintf(out, ", filters left out: mask %#" PRIx32, chunk->filter_mask[VALUES_SECTION]);
    putc('\n', out);
    return 0;
}

static bool lists_dense(const struct sums *sums)
{
    return sums->query->chunks && sums->info->layout == SFS_CHUNKED &&
           !sums->info->type.has_pointers;
}

static int print_dense(struct sfs_dataset *dataset, struct sums *sums)
{
    FILE *out = sums->query->out;
    fprintf(out, "  dense       %.0f bytes\n", dense_bytes(sums->info));
    return lists_dense(sums) ? sfs_chunk_iterate(dataset, print_dense_chunk, sums) : 0;
}

/* ---- As JSON ---- */

static void json_key(FILE *out, const char *key)
{
    fprintf(out, ",\n      \"%s\": ", key);
}

static void json_number(FILE *out, const char *key, uint64_t number)
{
    json_key(out, key);
    fprintf(out, "%" PRIu64, number);
}

static void write_dims(FILE *out, const char *key, int rank, const uint64_t *dims)
{
    json_key(out, key);
    json_dims(out, rank, dims);
}

static void json_filters(FILE *out, const char *section, size_t n, const struct sfs_filter *filters)
{
    fprintf(out, "\"%s\": [", section);
    for (size_t i = 0; i < n; i++) {
        fprintf(out, "%s{\"id\": %d, \"name\": ", i ? ", " : "", filters[i].id);
        json_string(out, filters[i].name, strnlen(filters[i].name, sizeof(filters[i].name)));
        fputs(", \"parameters\": [", out);
        for (size_t k = 0; k < filters[i].n_values; k++)
            fprintf(out, "%s%u", k ? ", " : "", filters[i].values[k]);
        fputs("]}", out);
    }
    putc(']', out);
}

static void json_head(const struct query *query, const char *path,
                      const struct sfs_dataset_info *info)
{
    FILE *out = query->out;
    bool chunked = info->layout == SFS_CHUNKED || info->layout == SFS_SPARSE;
    fprintf(out, "%s\n    {\n      \"path\": ", query->n ? "," : "");
    json_string(out, path, strlen(path));
    json_key(out, "layout");
    fprintf(out, "\"%s\"", layout_name(info));
    write_dims(out, "dims", info->rank, info->dims);
    write_dims(out, "max_dims", info->rank, info->max_dims);
    if (chunked)
        write_dims(out, "chunk_dims", info->rank, info->chunk_dims);
    json_key(out, "datatype");
    json_string(out, info->type.description, strlen(info->type.description));
    json_number(out, "item_size", info->type.size);
    json_key(out, "fill_value");
    fputs(info->fill_json ? info->fill_json : "null", out);
    json_key(out, "filters");
    putc('{', out);
    if (info->layout == SFS_SPARSE) {
        json_filters(out, "selection", info->n_selection_filters, info->selection_filters);
        fputs(", ", out);
    }
    json_filters(out, "values", info->n_filters, info->filters);
    if (has_heap(info)) {
        fputs(", ", out);
        json_filters(out, "heap", info->n_heap_filters, info->heap_filters);
    }
    putc('}', out);
    json_key(out, "dense_bytes");
    fprintf(out, "%.0f", dense_bytes(info));
}

static void json_chunk_begin(struct sums *sums, const struct sfs_chunk_info *chunk)
{
    FILE *out = sums->query->out;
    fprintf(out, "%s\n        {\"start\": ", sums->chunks++ ? "," : "");
    json_dims(out, sums->info->rank, chunk->start);
    fprintf(out, ", \"address\": %" PRIu64 ", \"size\": %" PRIu64, chunk->address, chunk->size);
}

static int json_chunk(void *context, const struct sfs_chunk_info *chunk)
{
    struct sums *sums = context;
    FILE *out = sums->query->out;
    json_chunk_begin(sums, chunk);
    fprintf(out, ", \"defined_elements\": %" PRIu64 ", \"section_size\": [",
            chunk->unfiltered_size[1] / sums->info->type.size);
    int n = has_heap(sums->info) ? SFS_SECTIONS : HEAP_SECTION;
    for (int i = 0; i < n; i++)
        fprintf(out, "%s%" PRIu64, i ? ", " : "", chunk->section_size[i]);
    fputs("], \"unfiltered_size\": [", out);
    for (int i = 0; i < n; i++)
        fprintf(out, "%s%" PRIu64, i ? ", " : "", chunk->unfiltered_size[i]);
    fputs("], \"filter_mask\": [", out);
    for (int i = 0; i < n; i++)
        fprintf(out, "%s%" PRIu32, i ? ", " : "", chunk->filter_mask[i]);
    fputs("]}", out);
    return 0;
}

static int json_dense_chunk(void *context, const struct sfs_chunk_info *chunk)
{
    struct sums *sums = context;
    json_chunk_begin(sums, chunk);
    fprintf(sums->query->out, ", \"unfiltered_size\": %" PRIu64 ", \"filter_mask\": %" PRIu32 "}",
            chunk->unfiltered_size[VALUES_SECTION], chunk->filter_mask[VALUES_SECTION]);
    return 0;
}

static int json_list(struct sfs_dataset *dataset, const struct sums *sums, sfs_chunk_function each)
{
    FILE *out = sums->query->out;
    struct sums listed = {.query = sums->query, .info = sums->info};
    json_key(out, "chunks");
    putc('[', out);
    int error = sfs_chunk_iterate(dataset, each, &listed);
    putc(']', out);
    return error;
}

static int json_sparse(struct sfs_dataset *dataset, const struct sums *sums)
{
    FILE *out = sums->query->out;
    uint64_t stored = sums->stored[0] + sums->stored[1] + sums->stored[2];
    int error = 0;
    storage_json(out, sums->info);
    json_number(out, "stored_chunks", sums->chunks);
    json_number(out, "defined_elements", sums->defined);
    json_number(out, "selection_bytes", sums->stored[0]);
    json_number(out, "selection_bytes_unfiltered", sums->unfiltered[0]);
    json_number(out, "value_bytes", sums->stored[1]);
    json_number(out, "value_bytes_unfiltered", sums->unfiltered[1]);
    if (has_heap(sums->info)) {
        json_number(out, "heap_bytes", sums->stored[2]);
        json_number(out, "heap_bytes_unfiltered", sums->unfiltered[2]);
    }
    json_number(out, "stored_bytes", stored);
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
    FILE *out = query->out;
    int code = fail(error, "%s:%s", query->target.file, path);
    if (!is_of_object(error))
        return code;
    query->has_unreadable = true;
    if (query->json) {
        fprintf(out, "%s\n    {\n      \"path\": ", query->n++ ? "," : "");
        json_string(out, path, strlen(path));
        json_key(out, "error");
        json_string(out, strerror(-error), strlen(strerror(-error)));
        fputs("\n    }", out);
    }
    return 0;
}

static int show_dataset(struct query *query, const char *path, struct sfs_dataset *dataset)
{
    FILE *out = query->out;
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
        fputs("\n    }", out);
    } else {
        print_head(out, path, info);
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
    FILE *out = query->out;
    struct stat st;
    int error = sfs_stat(query->file, &st);
    if (error)
        return fail(error, "%s", query->target.file);
    if (!query->json) {
        print_text(out, query->target.file); /* where a link has led to */
        fprintf(out, ": %jd bytes\n", (intmax_t)st.st_size);
        return show(query);
    }
    fputs("{\n  \"file\": ", out);
    json_string(out, query->target.file, strlen(query->target.file));
    fprintf(out, ",\n  \"size\": %jd,\n  \"datasets\": [", (intmax_t)st.st_size);
    int code = show(query);
    fprintf(out, "%s\n", query->n ? "\n  ]\n}" : "]\n}");
    return code;
}

static int show_again(void *context, FILE *out)
{
    struct query query = *(const struct query *)context;
    query.out = out;
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
