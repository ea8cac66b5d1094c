/* sparsectl create: a new sparse dataset, in a new file or in one that is there. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/copy_sequences.h"
#include "cli/destination.h"
#include "cli/options.h"
#include "cli/storage_words.h"

static const char help[] =
    "usage: sparsectl create [options] FILE DATASET\n"
    "\n"
    "Makes a sparse dataset without any defined elements. FILE is made if there is none.\n"
    "\n"
    "  --dims N,N,...              how many elements along each axis (wanted)\n"
    "  --dtype TYPE                NumPy name of the datatype: uint16, <u2, >f4 ... (wanted);\n"
    "                              str, ascii: strings of any length; vlen:TYPE: sequences;\n"
    "                              ref, regionref: references; (2,3)TYPE: arrays;\n"
    "                              {x:TYPE,y:TYPE}: compounds;\n"
    "                              enum:INTEGER{A:0,B:1}: enumerations\n"
    "  --maxdims N,inf,...         how far it may grow (default: as --dims; inf where that is 0)\n"
    "  --chunk N,N,...             elements of a chunk (default: a frame of up to 16 MiB)\n"
    "  --fill V                    what undefined elements read as (default: 0)\n"
    "  --filter SECTION:NAME[=LEVEL]\n"
    "                              a filter of the chunks' section: SECTION is selection,\n"
    "                              values or heap (what elements of variable length lead to),\n"
    "                              NAME deflate (or gzip), shuffle, fletcher32,\n"
    "                              bitshuffle=lz4, lz4, zstd, blosc=zstd:5,\n"
    "                              blosc2=zstd:5, bzip2, lzf, szip, or a registered number\n"
    "                              with its parameters: 32013=1,2\n"
    "  --selection-version 1|auto  how selections are encoded: as the HDF5 prototype does, or\n"
    "                              in the smallest form (default: auto)\n" STORAGE_HELP
    "  --template FILE             the new file, which must not be there, begins as a copy of\n"
    "                              this one: its groups, attributes and datasets";

enum { DIMS = 256, MAXDIMS, CHUNK, DTYPE, FILL, FILTER, SELECTION_VERSION, TEMPLATE };

static const struct option options[] = {
    {"dims", required_argument, NULL, DIMS},
    {"maxdims", required_argument, NULL, MAXDIMS},
    {"chunk", required_argument, NULL, CHUNK},
    {"dtype", required_argument, NULL, DTYPE},
    {"fill", required_argument, NULL, FILL},
    {"filter", required_argument, NULL, FILTER},
    {"selection-version", required_argument, NULL, SELECTION_VERSION},
    {"template", required_argument, NULL, TEMPLATE},
    STORAGE_OPTIONS,
    {0},
};

struct arguments {
    const char *dims, *max_dims, *chunk, *dtype, *fill, *template;
    bool version_1;
    struct filters filters;
};

static int take_options(int argc, char **argv, struct arguments *arguments,
                        struct sfs_dataset_create *create)
{
    int option, code = 0;
    while (!code && (option = next_option(argc, argv, options)) != -1) {
        switch (option) {
        case DIMS:
            arguments->dims = optarg;
            break;
        case MAXDIMS:
            arguments->max_dims = optarg;
            break;
        case CHUNK:
            arguments->chunk = optarg;
            break;
        case DTYPE:
            arguments->dtype = optarg;
            break;
        case FILL:
            arguments->fill = optarg;
            break;
        case FILTER:
            code = filter_parse(argv[0], optarg, -1, &arguments->filters);
            break;
        case TEMPLATE:
            arguments->template = optarg;
            break;
        case SELECTION_VERSION:
            arguments->version_1 = !strcmp(optarg, "1");
            if (!arguments->version_1 && strcmp(optarg, "auto") != 0)
                code = refuse(argv[0], "--selection-version %s: 1 or auto", optarg);
            break;
        default:
            code = storage_option(argv[0], option, create);
        }
    }
    return code;
}

/* Dims, max dims and chunk dims; those of the last two that are missing as --help says. */
static int take_dims(const char *command, const struct arguments *arguments, size_t element_size,
                     struct sfs_dataset_create *create)
{
    static const struct dims_option dims = {"--dims", 0, false}, max_dims = {"--maxdims", 1, true},
                                    chunk = {"--chunk", 1, false};
    int code = dims_parse(command, &dims, arguments->dims, &create->rank, create->dims);
    for (int i = 0; i < create->rank; i++)
        create->max_dims[i] = create->dims[i] ? create->dims[i] : SFS_UNLIMITED;
    if (!code && arguments->max_dims)
        code = dims_parse(command, &max_dims, arguments->max_dims, &create->rank, create->max_dims);
    for (int i = 0; i < create->rank && !code; i++)
        if (create->max_dims[i] < create->dims[i])
            code = refuse(command, "--maxdims %s: less than --dims", arguments->max_dims);
    if (!code && arguments->chunk)
        return dims_parse(command, &chunk, arguments->chunk, &create->rank, create->chunk_dims);
    if (!code)
        default_chunk(create->rank, create->dims, create->max_dims, element_size,
                      create->chunk_dims);
    return code;
}

/* Room for the largest element that text on a command line can name. */
#define MOST_ELEMENT 65536

/* What the fill value is of, which has `size` bytes. */
static int take_fill(const char *command, const struct arguments *arguments, size_t size,
                     void *fill, struct sfs_dataset_create *create)
{
    int error =
        size > MOST_ELEMENT ? -EINVAL : sfs_element_parse(&create->type, arguments->fill, fill);
    if (!error)
        create->fill = fill;
    else if (error == -EINVAL)
        refuse(command, "--fill %s: not an element of %s", arguments->fill, arguments->dtype);
    else
        fail(error, "--fill %s", arguments->fill);
    return !error ? 0 : error == -EINVAL ? USAGE : FAILED;
}

/* The datatype's bytes, which the caller frees, and what is known by them; *size: of an element, with
 * what it leads to. */
static int take_type(const char *command, struct arguments *arguments, size_t *size,
                     struct sfs_dataset_create *create)
{
    void *bytes;
    size_t n;
    struct sfs_type type;
    int error = sfs_type_encode(arguments->dtype, &bytes, &n);
    if (error == -EINVAL) {
        fail(error, "--dtype %s", arguments->dtype);
        return USAGE;
    }
    if (error)
        return fail(error, "--dtype %s", arguments->dtype);
    create->type = (struct sfs_encoded){bytes, n};
    error = sfs_type_describe(&create->type, &type);
    if (error)
        return fail(error, "--dtype %s", arguments->dtype);
    *size = sequence_guess(&type);
    arguments->filters.heap_unit = sequence_unit(&type);
    bool is_variable = type.has_pointers;
    sfs_type_free(&type);
    if (is_variable && arguments->fill)
        return refuse(command, "--fill: elements of variable length have none");
    if (!is_variable && arguments->filters.given[HEAP_SECTION])
        return refuse(command, "--filter heap: %s has no variable-length data", arguments->dtype);
    return 0;
}

static int create_in(const char *path, const char *name, const char *template,
                     const struct sfs_dataset_create *create)
{
    struct sfs_file *file = NULL;
    struct sfs_dataset *dataset;
    char *absolute = absolute_path(name);
    int code = !absolute  ? fail(-ENOMEM, "%s", name)
               : template ? destination_from_template(template, path, &file)
                          : destination_open(path, 0, &file);
    if (!code) {
        int error = sfs_dataset_create(file, absolute, create, &dataset);
        if (error)
            code = fail(error, "%s:%s", path, absolute);
        else
            sfs_dataset_close(dataset);
    }
    free(absolute);
    return destination_close(file, code);
}

static int run(int argc, char **argv)
{
    struct arguments arguments = {0};
    struct sfs_dataset_create create = {0};
    size_t size = 0;
    int code = take_options(argc, argv, &arguments, &create);
    if (!code)
        code = check_arguments(argc, argv, 2, 2, "a FILE and a DATASET are");
    if (!code && (!arguments.dims || !arguments.dtype))
        code = refuse(argv[0], "%s is wanted", arguments.dims ? "--dtype" : "--dims");
    if (code)
        return code;
    create.version_1_selections = arguments.version_1;
    void *fill = malloc(MOST_ELEMENT);
    code = fill ? take_type(argv[0], &arguments, &size, &create) : fail(-ENOMEM, "create");
    if (!code && arguments.fill)
        code = take_fill(argv[0], &arguments, size, fill, &create);
    if (!code)
        code = take_dims(argv[0], &arguments, size, &create);
    filters_use(&arguments.filters, &create);
    interrupt_catch();
    if (!code)
        code = create_in(argv[optind], argv[optind + 1], arguments.template, &create);
    free(fill);
    free((void *)create.type.bytes);
    return code;
}

const struct command create_command = {"create", help, run, COPY_HDF5};
