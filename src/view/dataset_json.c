/* dataset.json: what a dataset is, in one object. */
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "common/json.h"
#include "view/private.h"

#define MOST_SOURCES 1000 /* that are listed */

static void write_key(FILE *out, const char *key)
{
    fprintf(out, ",\n  \"%s\": ", key);
}

static void write_text(FILE *out, const char *key, const char *text)
{
    write_key(out, key);
    json_string(out, text, strlen(text));
}

static void write_number(FILE *out, const char *key, uint64_t number)
{
    write_key(out, key);
    fprintf(out, "%" PRIu64, number);
}

static void write_json(FILE *out, const char *key, const char *json)
{
    write_key(out, key);
    fputs(json ? json : "null", out);
}

static void write_dims(FILE *out, const char *key, int rank, const uint64_t *dims)
{
    write_key(out, key);
    json_dims(out, rank, dims);
}

static void write_dtype(FILE *out, const struct sfs_type *type)
{
    write_key(out, "dtype");
    if (type->has_pointers) {
        fputs("null", out);
    } else if (type->class == SFS_ARRAY) {
        /* [type, dims], as np.dtype takes it */
        putc('[', out);
        numpy_type(out, type, NUMPY_JSON);
        fputs(", [", out);
        numpy_array_dims(out, type, 0);
        fputs("]]", out);
    } else {
        numpy_type(out, type, NUMPY_JSON);
    }
}

static const char *byte_order(const struct sfs_type *type)
{
    switch (type->class) {
    case SFS_ARRAY:
        return byte_order(type->base);
    case SFS_INTEGER:
    case SFS_FLOAT:
    case SFS_BITFIELD:
    case SFS_ENUM:
        return type->size == 1 ? "none" : type->big_endian ? "big" : "little";
    default:
        return "none";
    }
}

static void write_section(FILE *out, const char *section, size_t n,
                          const struct sfs_filter *filters)
{
    fprintf(out, "\"%s\": [", section);
    for (size_t i = 0; i < n; i++) {
        const struct sfs_filter *filter = &filters[i];
        fprintf(out, "%s{\"id\": %d, \"name\": ", i ? ", " : "", filter->id);
        json_string(out, filter->name, strnlen(filter->name, sizeof(filter->name)));
        fputs(", \"parameters\": [", out);
        for (size_t k = 0; k < filter->n_values; k++)
            fprintf(out, "%s%u", k ? ", " : "", filter->values[k]);
        fputs("]}", out);
    }
    putc(']', out);
}

static void write_filters(FILE *out, const struct sfs_dataset_info *info)
{
    write_key(out, "filters");
    putc('{', out);
    if (info->layout == SFS_SPARSE && !info->is_dense) {
        write_section(out, "selection", info->n_selection_filters, info->selection_filters);
        fputs(", ", out);
    }
    write_section(out, "values", info->n_filters, info->filters);
    putc('}', out);
}

static void write_missing_filter(FILE *out, const struct sfs_filter *filter)
{
    if (!filter)
        return;
    write_key(out, "missing_filter");
    fprintf(out, "{\"id\": %d, \"name\": ", filter->id);
    json_string(out, filter->name, strnlen(filter->name, sizeof(filter->name)));
    putc('}', out);
}

static const char *const state_names[] = {[SFS_SOURCE_OK] = "ok",
                                          [SFS_SOURCE_MISSING] = "missing",
                                          [SFS_SOURCE_SHORT] = "too short",
                                          [SFS_SOURCE_UNREADABLE] = "unreadable",
                                          [SFS_SOURCE_NUMBERED] = "numbered",
                                          [SFS_SOURCE_REFUSED] = "refused"};

static int write_sources(FILE *out, struct views *views)
{
    struct sfs_sources sources;
    if (views->info->layout != SFS_VIRTUAL)
        return 0;
    int error = sfs_virtual_sources(views->dataset, MOST_SOURCES, &sources);
    if (error)
        return error == -EOPNOTSUPP ? 0 : error;
    write_number(out, "source_count", sources.total);
    write_key(out, "sources");
    putc('[', out);
    for (size_t i = 0; i < sources.n; i++) {
        const struct sfs_source *source = &sources.source[i];
        fputs(i ? ",\n    {\"file\": " : "\n    {\"file\": ", out);
        json_string(out, source->file, strlen(source->file));
        fputs(", \"dataset\": ", out);
        json_string(out, source->dataset, strlen(source->dataset));
        fprintf(out, ", \"state\": \"%s\"}", state_names[source->state]);
    }
    fputs(sources.n ? "\n  ]" : "]", out);
    sfs_sources_free(&sources);
    return 0;
}

static void write_attributes(FILE *out, const struct sfs_attributes *attributes)
{
    write_key(out, "attributes");
    putc('{', out);
    for (size_t i = 0; i < attributes->n; i++) {
        const struct sfs_attribute *attribute = &attributes->attribute[i];
        fputs(i ? ",\n    " : "\n    ", out);
        json_string(out, attribute->name, strlen(attribute->name));
        fprintf(out, ": %s", attribute->json ? attribute->json : "null");
    }
    fputs(attributes->n ? "\n  }" : "}", out);
}

static const char *const layout_names[] = {
    [SFS_COMPACT] = "compact", [SFS_CONTIGUOUS] = "contiguous", [SFS_EXTERNAL] = "external",
    [SFS_CHUNKED] = "chunked", [SFS_VIRTUAL] = "virtual",       [SFS_SPARSE] = "sparse",
};

/* What cannot be counted, as the log says then, is null. */
static int write_defined(FILE *out, struct views *views)
{
    uint64_t elements = views->elements;
    int error = views->is_sparse ? count_of_all(views, &elements) : 0;
    if (error == -EIO)
        write_json(out, "defined_elements", NULL);
    else
        write_number(out, "defined_elements", elements);
    return error == -EIO ? 0 : error;
}

int json_of_dataset(struct views *views, struct view_head *head)
{
    const struct sfs_dataset_info *info = views->info;
    struct sfs_attributes attributes;
    int error = sfs_attributes(views->file, views->address, &attributes);
    if (error)
        return error;
    FILE *out = head_begin(head);
    if (!out) {
        sfs_attributes_free(&attributes);
        return -ENOMEM;
    }
    int nav_rank = info->rank - views->frame_rank;

    fputs("{\n  \"path\": ", out);
    json_string(out, views->path, strlen(views->path));
    write_dims(out, "dims", info->rank, views->dims);
    write_dims(out, "max_dims", info->rank, info->max_dims);
    write_key(out, "frame_axis");
    fputs(nav_rank == 0 ? "null" : nav_rank == 1 ? "0" : "", out);
    if (nav_rank > 1) { /* several axes number the frames, in row-major order */
        for (int i = 0; i < nav_rank; i++)
            fprintf(out, "%s%d", i ? ", " : "[", i);
        putc(']', out);
    }
    write_number(out, "frames", views->frames);
    write_dims(out, "frame_dims", views->frame_rank, views->dims + nav_rank);
    write_dtype(out, &info->type);
    write_text(out, "datatype", info->type.description);
    write_text(out, "byte_order", byte_order(&info->type));
    write_number(out, "item_size", info->type.size);
    write_json(out, "fill_value", info->fill_json);
    write_text(out, "layout", info->is_dense ? "structured" : layout_names[info->layout]);
    if (info->layout == SFS_CHUNKED || info->layout == SFS_SPARSE)
        write_dims(out, "chunk_dims", info->rank, info->chunk_dims);
    else
        write_json(out, "chunk_dims", NULL);
    write_filters(out, info);
    write_missing_filter(out, sfs_missing_filter(info));
    error = write_defined(out, views);
    if (!error)
        error = write_sources(out, views);
    write_attributes(out, &attributes);
    fputs("\n}\n", out);
    sfs_attributes_free(&attributes);
    int end_error = head_end(out, head);
    if (error && !end_error) {
        free(head->bytes);
        *head = (struct view_head){0};
    }
    return error ? error : end_error;
}
