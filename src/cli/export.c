/* sparsectl export: dense datasets out of sparse ones, for programs that read nothing else. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "cli/copy_sequences.h"
#include "cli/dense_many_chunks.h"
#include "cli/destination.h"
#include "cli/external_links.h"
#include "cli/options.h"
#include "cli/tree.h"
#include "common/type_references.h"

static const char help[] =
    "usage: sparsectl export [options] SRC[:DATASET] DST[:DATASET]\n"
    "\n"
    "Makes a dense, chunked dataset that any HDF5 program reads out of a sparse one; what is\n"
    "undefined becomes the fill value. DST is made if there is none. Without a dataset SRC must\n"
    "have only one of rank 2 or more; without one DST gets the same path. Attributes are copied.\n"
    "\n"
    "  --filter [values:]NAME[=LEVEL]\n"
    "                         a filter of the dense chunks: deflate (or gzip), shuffle,\n"
    "                         fletcher32, bitshuffle=lz4, lz4, zstd, blosc=zstd:5,\n"
    "                         blosc2=zstd:5, bzip2, lzf, szip, or a registered number with\n"
    "                         its parameters";

enum { FILTER = 256 };

static const struct option options[] = {
    {"filter", required_argument, NULL, FILTER},
    {0},
};

struct export
{
    struct target source, destination;
    struct sfs_file *from, *to;
    struct filters filters;
};

static int take_arguments(int argc, char **argv, struct export *export)
{
    int option, code = 0;
    while (!code && (option = next_option(argc, argv, options)) != -1)
        code = option == FILTER ? filter_parse(argv[0], optarg, VALUES_SECTION, &export->filters)
                                : USAGE;
    if (!code)
        code = check_arguments(argc, argv, 2, 2, "a SRC and a DST are");
    if (!code)
        code = target_parse(argv[0], argv[optind], &export->source);
    if (!code)
        code = target_parse(argv[0], argv[optind + 1], &export->destination);
    return code;
}

static int export_dataset(struct export *export, struct sfs_dataset *from, const char *path)
{
    static const struct pick everything = {0};
    const struct sfs_dataset_info *info = sfs_dataset_info(from);
    struct sfs_dataset_create create = {.rank = info->rank,
                                        .type = info->encoded_type,
                                        .fill = info->fill,
                                        .is_dense = true,
                                        .attributes_file = export->from,
                                        .attributes_address = sfs_dataset_address(from)};
    struct sfs_dataset *to;
    if (type_has_references(&info->type) || info->rank == 0)
        return fail_because("%s:%s: only datasets with axes are exported, and not of elements with "
                            "references",
                            export->source.file, path);
    memcpy(create.dims, info->dims, sizeof(create.dims));
    memcpy(create.max_dims, info->max_dims, sizeof(create.max_dims));
    if (info->layout == SFS_SPARSE || info->layout == SFS_CHUNKED)
        memcpy(create.chunk_dims, info->chunk_dims, sizeof(create.chunk_dims));
    else
        default_chunk(info->rank, info->dims, info->max_dims, info->type.size, create.chunk_dims);
    int code = dense_limit(export->source.file, path, &create);
    if (code)
        return code;
    filters_use(&export->filters, &create);
    int error = sfs_dataset_create(export->to, path, &create, &to);
    if (error)
        return fail(error, "%s:%s", sfs_path(export->to), path);
    struct copy copy = {.from = from, .to = to, .pick = &everything, .what = "exporting"};
    error = info->type.has_pointers ? copy_sequences(&copy) : copy_elements(&copy);
    error = copy_close(to, error);
    return error ? fail(error, "%s:%s", sfs_path(export->to), path) : 0;
}

static int export_one(void *context, struct sfs_file *from_file, struct sfs_file *to, FILE *out)
{
    (void)out;
    struct export *export = context;
    export->from = from_file;
    export->to = to;
    struct sfs_dataset *from;
    char *found = NULL;
    const char *path = export->source.path;
    int code =
        path ? tree_open(export->from, path, &from) : tree_open_only(export->from, &from, &found);
    if (!code) {
        path = path ? path : found;
        code = export_dataset(export, from,
                              export->destination.path ? export->destination.path : path);
        sfs_dataset_close(from);
    }
    free(found);
    return code;
}

static int run(int argc, char **argv)
{
    struct export export = {0};
    int code = take_arguments(argc, argv, &export);
    if (!code)
        code = source_follow(&export.source, &export.destination);
    if (!code) {
        interrupt_catch();
        code = both_copy(export.source.file, export.destination.file, false, MOST_COPIED,
                         export_one, &export);
    }
    target_free(&export.source);
    target_free(&export.destination);
    return code;
}

const struct command export_command = {"export", help, run, COPY_HDF5};
