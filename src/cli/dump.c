/* sparsectl dump: the coordinates and values of defined elements as text. */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/blocks.h"
#include "cli/external_links.h"
#include "cli/open_source.h"
#include "cli/options.h"
#include "cli/print_element.h"
#include "cli/tree.h"

static const char help[] =
    "usage: sparsectl dump [options] FILE:DATASET\n"
    "\n"
    "Prints the defined elements in row-major order, one a line; what is no number as JSON.\n"
    "\n"
    "  --frame N          only those of frame N\n"
    "  --format csv|coo   csv: a header line, then coordinates and value with commas between\n"
    "                     them; coo: the same with blanks and no header line (default: csv)";

enum { FRAME = 256, FORMAT };

static const struct option options[] = {
    {"frame", required_argument, NULL, FRAME},
    {"format", required_argument, NULL, FORMAT},
    {0},
};

struct dump {
    struct target source;
    bool one_frame, coo;
    uint64_t frame;
};

static int take_arguments(int argc, char **argv, struct dump *dump)
{
    int option, code = 0;
    while (!code && (option = next_option(argc, argv, options)) != -1) {
        switch (option) {
        case FRAME:
            code = number_parse(argv[0], "--frame", optarg, 0, &dump->frame);
            dump->one_frame = true;
            break;
        case FORMAT:
            dump->coo = !strcmp(optarg, "coo");
            if (!dump->coo && strcmp(optarg, "csv") != 0)
                code = refuse(argv[0], "--format %s: csv or coo", optarg);
            break;
        default:
            code = USAGE;
        }
    }
    if (!code)
        code = check_arguments(argc, argv, 1, 1, "a FILE:DATASET is");
    if (!code)
        code = target_parse(argv[0], argv[optind], &dump->source);
    if (!code && !dump->source.path)
        code = refuse(argv[0], "%s: FILE:DATASET is wanted", argv[optind]);
    return code;
}

/* The axes by name: the last two are y and x, the first of three or more is the frame. */
static void write_header(FILE *out, int rank)
{
    if (rank > 2)
        fputs("frame,", out);
    for (int i = 1; i < rank - 2; i++)
        fprintf(out, "axis%d,", i);
    if (rank > 1)
        fputs("y,", out);
    fprintf(out, "%s\n", rank > 0 ? "x,value" : "value");
}

struct printing {
    const struct dump *dump;
    FILE *out;
    struct sfs_dataset *dataset;
    const struct sfs_dataset_info *info;
    char *values; /* of a block, but of elements of variable length */
};

/* Of the element at a row-major position of the slab, with what is between them and the value. */
static void write_coordinates(const struct printing *printing, const struct sfs_slab *slab,
                              uint64_t position)
{
    uint64_t coordinates[SFS_MAX_RANK];
    int rank = printing->info->rank;
    char between = printing->dump->coo ? ' ' : ',';
    for (int i = rank - 1; i >= 0; i--) {
        coordinates[i] = slab->start[i] + position % slab->count[i];
        position /= slab->count[i];
    }
    for (int i = 0; i < rank; i++)
        fprintf(printing->out, "%" PRIu64 "%c", coordinates[i], between);
}

static int write_element(const struct printing *printing, const struct sfs_slab *slab,
                         uint64_t position, const void *value)
{
    FILE *out = printing->out;
    write_coordinates(printing, slab, position);
    int error = value_write(out, printing->info, value, !printing->dump->coo);
    putc('\n', out);
    return error;
}

static int write_values(const struct printing *printing, const struct sfs_slab *slab,
                        const struct sfs_defined *defined)
{
    const char *value = printing->values;
    int error = 0;
    if (defined->elements > 0)
        error = sfs_read_values(printing->dataset, slab, defined, 0, defined->elements,
                                printing->values);
    for (size_t i = 0; i < defined->n && !error; i++) {
        const struct sfs_interval *interval = &defined->interval[i];
        uint64_t n = interval[1].index - interval->index;
        for (uint64_t k = 0; k < n && !error; k++, value += printing->info->type.size)
            error = write_element(printing, slab, interval->first + k, value);
    }
    return error;
}

/* ---- Elements of variable length, whose text is read ---- */

#define MOST_BETWEEN 64                  /* undefined elements that are read for nothing */
#define MOST_TEXT    ((size_t)8 << 20)   /* bytes, if it is of more than one element */
#define MOST_OF_ONE  ((size_t)256 << 20) /* bytes */

/* Positions of a slab whose text is read together: in one row. */
struct stretch {
    const struct sfs_slab *slab;
    const struct sfs_defined *defined;
    size_t interval; /* of `first` */
    uint64_t first, end;
};

static uint64_t end_of(const struct sfs_defined *defined, size_t i)
{
    const struct sfs_interval *interval = &defined->interval[i];
    return interval->first + (interval[1].index - interval->index);
}

/* The element of the dataset at a position. */
static uint64_t element_at(const struct printing *printing, const struct stretch *stretch,
                           uint64_t position)
{
    uint64_t element = 0, stride = 1;
    for (int i = printing->info->rank - 1; i >= 0; i--) {
        uint64_t count = stretch->slab->count[i];
        element += (stretch->slab->start[i] + position % count) * stride;
        position /= count;
        stride *= printing->info->dims[i];
    }
    return element;
}

static int write_lines(const struct printing *printing, struct stretch *stretch, const char *lines,
                       size_t lines_n)
{
    const char *end = lines + lines_n;
    for (; stretch->first < stretch->end; stretch->first++) {
        const char *line_end = memchr(lines, '\n', (size_t)(end - lines));
        if (!line_end)
            return -EIO;
        while (stretch->first >= end_of(stretch->defined, stretch->interval))
            stretch->interval++;
        if (stretch->first >= stretch->defined->interval[stretch->interval].first) {
            size_t n = (size_t)(line_end - lines);
            write_coordinates(printing, stretch->slab, stretch->first);
            if (printing->dump->coo)
                fwrite(lines, 1, n, printing->out);
            else
                field_write_csv(printing->out, lines, n);
            putc('\n', printing->out);
        }
        lines = line_end + 1;
    }
    return 0;
}

/* In halves where it is too much at once. */
static int write_stretch(const struct printing *printing, struct stretch *stretch)
{
    uint64_t first = element_at(printing, stretch, stretch->first);
    uint64_t n = stretch->end - stretch->first, end = stretch->end;
    char *lines;
    size_t lines_n;
    int error = sfs_read_parts(printing->dataset, SFS_JSON, first, n,
                               n > 1 ? MOST_TEXT : MOST_OF_ONE, &lines, &lines_n);
    if (error == -EFBIG && n > 1) {
        stretch->end = stretch->first + n / 2;
        error = write_stretch(printing, stretch);
        stretch->end = end;
        return error ? error : write_stretch(printing, stretch);
    }
    if (error)
        return error;
    error = write_lines(printing, stretch, lines, lines_n);
    free(lines);
    return error;
}

/* Sets where it ends, and to the interval behind. */
static size_t find_end(struct stretch *stretch, uint64_t row)
{
    const struct sfs_defined *defined = stretch->defined;
    uint64_t most = (stretch->first / row + 1) * row;
    size_t next = stretch->interval + 1;
    if (most - stretch->first > SFS_MOST_PARTS)
        most = stretch->first + SFS_MOST_PARTS;
    stretch->end = end_of(defined, stretch->interval);
    for (; next < defined->n && defined->interval[next].first < most &&
           defined->interval[next].first - stretch->end <= MOST_BETWEEN;
         next++)
        stretch->end = end_of(defined, next);
    if (stretch->end <= most)
        return next;
    stretch->end = most;
    return next - 1;
}

static int write_texts(const struct printing *printing, const struct sfs_slab *slab,
                       const struct sfs_defined *defined)
{
    struct stretch stretch = {.slab = slab, .defined = defined};
    uint64_t row = printing->info->rank > 0 ? slab->count[printing->info->rank - 1] : 1;
    int error = 0;
    for (size_t i = 0; i < defined->n && !error;) {
        stretch.interval = i;
        if (stretch.first < defined->interval[i].first)
            stretch.first = defined->interval[i].first;
        i = find_end(&stretch, row);
        error = write_stretch(printing, &stretch);
    }
    return error;
}

static int write_block(const struct printing *printing, const struct sfs_slab *slab)
{
    struct sfs_defined defined;
    int error = sfs_get_defined(printing->dataset, slab, &defined);
    if (error)
        return error;
    error = printing->info->type.has_pointers ? write_texts(printing, slab, &defined)
                                              : write_values(printing, slab, &defined);
    sfs_defined_free(&defined);
    return error ? error : ferror(printing->out) ? -errno : 0;
}

/* All blocks of what is asked for: a dataset, or a frame of it. */
static int write_blocks(struct printing *printing)
{
    struct sfs_dataset_info part = *printing->info;
    const struct dump *dump = printing->dump;
    struct blocks blocks;
    struct block_list stored = {0};
    uint64_t origin[SFS_MAX_RANK] = {0};
    bool is_sparse = part.layout == SFS_SPARSE, cut = dump->one_frame && part.rank > 2;
    if (cut) {
        part.dims[0] = 1;
        origin[0] = dump->frame;
    }
    int error = blocks_in_order(&part, &blocks);
    if (!error && is_sparse)
        error = blocks_stored(&blocks, printing->dataset, origin, &stored);
    if (!error && !part.type.has_pointers &&
        !(printing->values = malloc(blocks.most_elements * part.type.size + 1)))
        error = -ENOMEM;
    for (uint64_t i = 0; !error && i < (is_sparse ? stored.n : blocks.n); i++) {
        struct sfs_slab slab;
        blocks_at(&blocks, is_sparse ? stored.number[i] : i, &slab);
        slab.start[0] += origin[0];
        error = write_block(printing, &slab);
    }
    free(printing->values);
    free(stored.number);
    return error;
}

static int dump_dataset(const struct dump *dump, FILE *out, struct sfs_dataset *dataset)
{
    const struct sfs_dataset_info *info = sfs_dataset_info(dataset);
    const char *file = dump->source.file, *path = dump->source.path;
    if (info->space == SFS_SPACE_NULL)
        return fail_because("%s:%s: it has no dataspace", file, path);
    uint64_t frames = info->rank > 2 ? info->dims[0] : 1;
    if (dump->one_frame && dump->frame >= frames)
        return fail_because("%s:%s: there is no frame %" PRIu64 " of %" PRIu64, file, path,
                            dump->frame, frames);
    if (!dump->coo)
        write_header(out, info->rank);
    struct printing printing = {.dump = dump, .out = out, .dataset = dataset, .info = info};
    int error = write_blocks(&printing);
    return error ? fail(error, "%s:%s", file, path) : 0;
}

struct dumping {
    struct dump *dump;
    struct sfs_file *file;
};

static int dump_file(void *context, FILE *out)
{
    const struct dumping *dumping = context;
    struct sfs_dataset *dataset;
    int code = tree_open(dumping->file, dumping->dump->source.path, &dataset);
    if (code)
        return code;
    code = dump_dataset(dumping->dump, out, dataset);
    sfs_dataset_close(dataset);
    return code;
}

static int run(int argc, char **argv)
{
    struct dump dump = {0};
    struct sfs_file *file;
    int code = take_arguments(argc, argv, &dump);
    if (!code)
        code = target_open(&dump.source, &file);
    if (!code) {
        code = in_one_state(file, dump_file, &(struct dumping){&dump, file});
        sfs_discard(file);
    }
    target_free(&dump.source);
    return code ? code : finish_output(code);
}

const struct command dump_command = {"dump", help, run, READ_HDF5};
