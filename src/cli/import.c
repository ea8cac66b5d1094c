/* sparsectl import: sparse datasets out of dense ones. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/copy_sequences.h"
#include "cli/destination.h"
#include "cli/external_links.h"
#include "cli/options.h"
#include "cli/selected_dataset.h"
#include "cli/tree.h"
#include "cli/try_filters.h"
#include "common/type_references.h"

static const char help[] =
    "usage: sparsectl import [options] SRC[:DATASET] DST[:DATASET]\n"
    "\n"
    "Makes a sparse dataset out of a dense one, or out of a sparse one. DST is made if there is\n"
    "none. Without a dataset SRC must have only one of rank 2 or more; without one DST gets the\n"
    "same path. Attributes are copied.\n"
    "\n"
    "  --undefined V|nan|none      elements equal to V become undefined (default: the fill value)\n"
    "  --roi y0:y1,x0:x1|FILE      only these rows and columns of each frame stay defined; FILE\n"
    "                              has lines of \"first:end y0:y1,x0:x1 ...\" for ranges of "
    "frames\n"
    "  --points FILE               only these: lines of \"y x\" or \"frame y x\", # comments\n"
    "  --above V                   only elements above V stay defined\n"
    "  --sigma K                   only elements more than K sigma above what surrounds them\n"
    "  --mask FILE:DATASET|none    masked pixels stay undefined (default, with the two options\n"
    "                              above: NXdetector's pixel_mask, and 2^n - 1)\n"
    "  --full-every N              frames 0, N, 2N ... are stored in full; DATASET_selected has\n"
    "                              what of them the options above select\n"
    "  --chunk N,N,...             elements of a chunk (default: a frame of up to 16 MiB, or\n"
    "                              rows of it with less than 65,536 blocks of elements)\n"
    "  --filter SECTION:NAME[=LEVEL]\n"
    "                              filters as of sparsectl create, or none, instead of the "
    "default\n"
    "                              of that section: shuffle and " DEFAULT_DEFLATE
    "; for selections with\n"
    "                              what suits some chunks of SRC best\n"
    "  --fast                      instead of the default: of all filters that are built in those\n"
    "                              with which some chunks of SRC took the least time to import\n"
    "  --small                     the same, but the fewest bytes, for which import takes long\n"
    "  --dense                     DST has no undefined elements; for elements of variable length\n"
    "  --all                       every numeric dataset of rank 2 or more, with the groups\n"
    "\n"
    "--roi may be given several times; with --points, what is in any of them stays defined. Of\n"
    "other options an element has to meet all.";

enum {
    UNDEFINED = 256,
    ROI,
    POINTS,
    ABOVE,
    SIGMA,
    MASK,
    FULL_EVERY,
    CHUNK,
    FILTER,
    FAST,
    SMALL,
    DENSE,
    ALL
};

static const struct option options[] = {
    {"undefined", required_argument, NULL, UNDEFINED},
    {"roi", required_argument, NULL, ROI},
    {"points", required_argument, NULL, POINTS},
    {"above", required_argument, NULL, ABOVE},
    {"sigma", required_argument, NULL, SIGMA},
    {"mask", required_argument, NULL, MASK},
    {"full-every", required_argument, NULL, FULL_EVERY},
    {"chunk", required_argument, NULL, CHUNK},
    {"filter", required_argument, NULL, FILTER},
    {"fast", no_argument, NULL, FAST},
    {"small", no_argument, NULL, SMALL},
    {"dense", no_argument, NULL, DENSE},
    {"all", no_argument, NULL, ALL},
    {0},
};

struct import {
    struct target source, destination;
    struct sfs_file *from, *to;
    FILE *out; /* what is printed */
    const char *undefined, *chunk;
    bool all, dense, has_choice; /* the last: something is asked for that looks at values */
    enum goal goal;
    struct pick pick;
    struct criteria_asked criteria;
    struct filters filters;
};

static int take_options(int argc, char **argv, struct import *import)
{
    int option, code = 0;
    while (!code && (option = next_option(argc, argv, options)) != -1) {
        import->has_choice |=
            (option > UNDEFINED && option < CHUNK) || option == FAST || option == SMALL;
        switch (option) {
        case UNDEFINED:
            import->undefined = optarg;
            break;
        case ROI:
            code = pick_add_roi(&import->pick, optarg);
            break;
        case POINTS:
            code = pick_read_points(&import->pick, optarg);
            break;
        case ABOVE:
            code = criteria_ask_above(&import->criteria, optarg);
            break;
        case SIGMA:
            code = criteria_ask_sigma(&import->criteria, optarg);
            break;
        case MASK:
            code = criteria_ask_mask(&import->criteria, optarg);
            break;
        case FULL_EVERY:
            code = number_parse(argv[0], "--full-every", optarg, 1, &import->pick.full_every);
            break;
        case CHUNK:
            import->chunk = optarg;
            break;
        case FILTER:
            code = filter_parse(argv[0], optarg, -1, &import->filters);
            break;
        case FAST:
        case SMALL:
            if (import->goal != GOAL_PLAIN)
                return refuse(argv[0], "--fast and --small: only one of them, and once");
            import->goal = option == FAST ? GOAL_FAST : GOAL_SMALL;
            break;
        case DENSE:
            import->dense = true;
            break;
        case ALL:
            import->all = true;
            break;
        default:
            code = USAGE;
        }
    }
    return code;
}

static int take_arguments(int argc, char **argv, struct import *import)
{
    int code = take_options(argc, argv, import);
    if (!code)
        code = check_arguments(argc, argv, 2, 2, "a SRC and a DST are");
    if (!code)
        code = target_parse(argv[0], argv[optind], &import->source);
    if (!code)
        code = target_parse(argv[0], argv[optind + 1], &import->destination);
    if (!code && import->all && (import->source.path || import->destination.path))
        code = refuse(argv[0], "--all takes files without a dataset");
    if (!code && import->all && import->chunk)
        code = refuse(argv[0], "--all and --chunk exclude each other");
    if (!code && import->all && import->dense)
        code = refuse(argv[0], "--all and --dense exclude each other");
    return code;
}

/* ---- One dataset ---- */

/* Sets what is undefined and, if that is a value, the fill value: what is left out reads as before.
 * `element` is the caller's room for an element. */
static int set_undefined(const struct import *import, const char *path,
                         const struct sfs_dataset_info *info, void *element,
                         struct undefined *undefined, const void **fill)
{
    bool from_sparse = info->layout == SFS_SPARSE;
    const char *text = import->undefined;
    *undefined = (struct undefined){.type = &info->type, .value = info->fill};
    *fill = info->fill;
    if (!text)
        undefined->none = from_sparse; /* besides what is so already */
    else if (!strcmp(text, "none"))
        undefined->none = true;
    else if (!strcmp(text, "nan") && info->type.class != SFS_FLOAT)
        return fail_because("%s:%s: --undefined nan wants floating-point elements",
                            import->source.file, path);
    else {
        int error = sfs_element_parse(&info->encoded_type, text, element);
        if (error == -EINVAL)
            return fail_because("%s:%s: --undefined %s: not an element of its datatype (%s)",
                                import->source.file, path, text, info->type.description);
        if (error)
            return fail(error, "%s:%s: --undefined %s", import->source.file, path, text);
        undefined->value = element;
        if (!from_sparse)
            *fill = element;
    }
    /* Not for a fill value by default: a NaN of other bytes would read as that one. */
    undefined->nan = text && !undefined->none && is_nan(&info->type, undefined->value);
    return 0;
}

static int check_source(const struct import *import, const char *path,
                        const struct sfs_dataset_info *info)
{
    if (type_has_references(&info->type))
        return fail_because("%s:%s: elements with references cannot be sparse", import->source.file,
                            path);
    if (import->dense && !info->type.has_pointers)
        return fail_because("%s:%s: --dense is for elements of variable length",
                            import->source.file, path);
    if (info->rank == 0)
        return fail_because("%s:%s: a dataset without axes cannot be sparse", import->source.file,
                            path);
    return 0;
}

static int set_chunk(const struct import *import, const struct sfs_dataset_info *info,
                     struct sfs_dataset_create *create)
{
    create->rank = info->rank;
    memcpy(create->dims, info->dims, sizeof(create->dims));
    memcpy(create->max_dims, info->max_dims, sizeof(create->max_dims));
    static const struct dims_option chunk = {"--chunk", 1, false};
    if (import->chunk)
        return dims_parse("import", &chunk, import->chunk, &create->rank, create->chunk_dims);
    default_chunk(info->rank, info->dims, info->max_dims, sequence_guess(&info->type),
                  create->chunk_dims);
    return 0;
}

/* A line for a dataset that was imported, and what was chosen for it, as options that ask for the
 * same again. */
static void print_done(const struct import *import, const char *path, const struct choice *choice)
{
    static const char *const names[] = {"selection", "values"};
    print_text(import->out, path);
    for (int i = 0; i < TRIED_SECTIONS && import->goal != GOAL_PLAIN; i++) {
        const struct candidate *of = &choice->of[i];
        if (!choice->is_made[i])
            continue;
        if (*of->first)
            fprintf(import->out, " --filter %s:%s", names[i], of->first);
        if (*of->second || !*of->first)
            fprintf(import->out, " --filter %s:%s", names[i], *of->second ? of->second : "none");
    }
    putc('\n', import->out);
}

/* Makes the datasets that the copy goes to, and copies. */
static int import_to(struct import *import, const char *path, struct sfs_dataset_create *create,
                     struct copy *copy)
{
    struct filters filters = import->filters;
    struct choice choice;
    int error = choose(copy, create, !import->chunk, import->goal, &filters, &choice);
    filters_use(&filters, create);
    if (!error)
        error = sfs_dataset_create(import->to, path, create, &copy->to);
    if (error)
        return fail(error, "%s:%s", sfs_path(import->to), path);
    int code =
        copy->pick->full_every > 0 ? selected_create(import->to, path, create, &copy->selected) : 0;
    if (code) {
        sfs_dataset_close(copy->to);
        return code;
    }
    error = copy_close(copy->selected, copy_elements(copy));
    error = copy_close(copy->to, error);
    if (error)
        return fail(error, "%s:%s", sfs_path(import->to), path);
    if (import->all || import->goal != GOAL_PLAIN)
        print_done(import, path, &choice);
    return 0;
}

/* What is empty is undefined unless --undefined none says otherwise; nothing else can be chosen. */
static int check_sequences(const struct import *import, const char *path)
{
    const char *undefined = import->undefined;
    if (undefined && strcmp(undefined, "none") != 0)
        return fail_because("%s:%s: --undefined of elements of variable length is none, or left "
                            "out for those that are empty",
                            import->source.file, path);
    if (import->has_choice)
        return fail_because(
            "%s:%s: elements of variable length take only --undefined, --chunk, --filter and "
            "--dense",
            import->source.file, path);
    return 0;
}

/* Filters for a section that none were given for. */
static int choose_plainly(int section, struct filters *filters)
{
    int code = section == HEAP_SECTION && filters->heap_unit == 1
                   ? 0
                   : filter_parse("import", "shuffle", section, filters);
    return code ? code : filter_parse("import", DEFAULT_DEFLATE, section, filters);
}

/* The same of elements of variable length. */
static int import_sequences(struct import *import, struct sfs_dataset *from, const char *from_path,
                            const char *to_path, struct sfs_dataset_create *create)
{
    struct copy copy = {.from = from,
                        .undefined.none = import->undefined != NULL,
                        .what = "importing",
                        .is_within = import->from == import->to};
    struct filters filters = import->filters;
    int code = check_sequences(import, from_path);
    if (code)
        return code;
    filters.heap_unit = sequence_unit(&sfs_dataset_info(from)->type);
    create->is_dense = create->is_structured = import->dense;
    for (int i = import->dense ? VALUES_SECTION : 0; i < SFS_SECTIONS && !code; i++)
        code = filters.given[i] ? 0 : choose_plainly(i, &filters);
    if (code)
        return code;
    filters_use(&filters, create);
    int error = sfs_dataset_create(import->to, to_path, create, &copy.to);
    if (!error)
        error = copy_close(copy.to, copy_sequences(&copy));
    return error ? fail(error, "%s:%s", sfs_path(import->to), to_path) : 0;
}

static int import_dataset(struct import *import, struct sfs_dataset *from, const char *from_path,
                          const char *to_path)
{
    const struct sfs_dataset_info *info = sfs_dataset_info(from);
    struct sfs_dataset_create create = {.type = info->encoded_type,
                                        .attributes_file = import->from,
                                        .attributes_address = sfs_dataset_address(from)};
    struct criteria criteria = {0};
    struct pick pick;
    struct copy copy = {
        .from = from, .pick = &pick, .what = "importing", .is_within = import->from == import->to};
    int code = check_source(import, from_path, info);
    if (!code)
        code = set_chunk(import, info, &create);
    if (code)
        return code;
    if (info->type.has_pointers)
        return import_sequences(import, from, from_path, to_path, &create);
    void *element = malloc(info->type.size);
    code = element ? set_undefined(import, from_path, info, element, &copy.undefined, &create.fill)
                   : fail(-ENOMEM, "%s", from_path);
    if (!code)
        code = criteria_fit(&import->criteria, import->from, from_path, info, &criteria);
    if (!code)
        code = pick_fit(&import->pick, from_path, info, &pick);
    if (!code) {
        copy.criteria = criteria.is_used ? &criteria : NULL;
        code = import_to(import, to_path, &create, &copy);
        pick_free(&pick);
    }
    criteria_free(&criteria);
    free(element);
    return code;
}

static int import_one(struct import *import)
{
    struct sfs_dataset *from;
    char *found = NULL;
    const char *path = import->source.path;
    int code =
        path ? tree_open(import->from, path, &from) : tree_open_only(import->from, &from, &found);
    if (!code) {
        path = path ? path : found;
        code = import_dataset(import, from, path,
                              import->destination.path ? import->destination.path : path);
        sfs_dataset_close(from);
    }
    free(found);
    return code;
}

/* ---- All datasets ---- */

/* A group that has attributes already keeps them. */
static int copy_attributes(struct import *import, uint64_t from, uint64_t to)
{
    struct sfs_attributes attributes;
    int error = sfs_attributes(import->to, to, &attributes);
    if (error)
        return error;
    size_t n = attributes.n;
    sfs_attributes_free(&attributes);
    return n ? 0 : sfs_attributes_copy(import->to, to, import->from, from);
}

static int import_group(struct import *import, const char *path, uint64_t address)
{
    uint64_t to;
    enum sfs_object_type type;
    int error = strcmp(path, "/") ? sfs_group_create(import->to, path) : 0;
    if (error == -EEXIST) {
        messages_forget();
        error = 0;
    }
    if (!error)
        error = sfs_find(import->to, sfs_root(import->to), path, &to);
    if (!error)
        error = sfs_object_type(import->to, to, &type);
    if (!error && type != SFS_GROUP)
        return fail_because("%s:%s: it is not a group", sfs_path(import->to), path);
    if (!error)
        error = copy_attributes(import, address, to);
    return error ? fail(error, "%s:%s", sfs_path(import->to), path) : 0;
}

static int import_object(void *context, const char *path, uint64_t address,
                         enum sfs_object_type type)
{
    struct import *import = context;
    struct sfs_dataset *from;
    if (interrupted) /* there may be no end of groups, too */
        return fail(-EINTR, "%s:%s", sfs_path(import->to), path);
    if (type == SFS_GROUP)
        return import_group(import, path, address);
    if (type != SFS_DATASET)
        return 0;
    int error = sfs_dataset_open(import->from, address, path, &from);
    if (error)
        return fail(error, "%s:%s", sfs_path(import->from), path);
    const struct sfs_dataset_info *info = sfs_dataset_info(from);
    int code = 0;
    if (info->rank >= 2 && is_numeric(&info->type))
        code = import_dataset(import, from, path, path);
    sfs_dataset_close(from);
    return code;
}

static int import_all(struct import *import)
{
    if (import->from == import->to)
        return fail_because("%s: --all wants two files", import->source.file);
    return tree_walk(import->from, import_object, import);
}

static int import_between(void *context, struct sfs_file *from, struct sfs_file *to, FILE *out)
{
    struct import *import = context;
    import->from = from;
    import->to = to;
    import->out = out;
    return import->all ? import_all(import) : import_one(import);
}

static int run(int argc, char **argv)
{
    struct import import = {0};
    int code = take_arguments(argc, argv, &import);
    if (!code)
        code = source_follow(&import.source, &import.destination);
    if (!code) {
        interrupt_catch();
        code = both_copy(import.source.file, import.destination.file, false, MOST_COPIED,
                         import_between, &import);
    }
    pick_free(&import.pick);
    target_free(&import.source);
    target_free(&import.destination);
    return code;
}

const struct command import_command = {"import", help, run, COPY_HDF5};
