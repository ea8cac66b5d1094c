/* What the command lines of several commands are made of. Parsing functions say on stderr what is
 * wrong and return USAGE, or 0; FAILED: no memory. */
#ifndef SPARSEFS_CLI_OPTIONS_H
#define SPARSEFS_CLI_OPTIONS_H

#include <getopt.h>

#include "cli/cli.h"
#include "config.h"

/* What import compresses with. The level at which zlib makes as few bytes as libdeflate is higher;
 * but what it makes of selections at level 3 is inflated twice as fast. */
#if HAVE_LIBDEFLATE
#define DEFAULT_DEFLATE "deflate=4"
#define FAST_DEFLATE    DEFAULT_DEFLATE
#else
#define DEFAULT_DEFLATE "deflate=6"
#define FAST_DEFLATE    "deflate=3"
#endif

/* FILE[:DATASET], split at the last ':' that '/' follows. */
struct target {
    char *file;
    char *path; /* NULL: not given */
};

int target_parse(const char *command, const char *text, struct target *target);
void target_free(struct target *target);

/* A path with the '/' that it must begin with; the caller frees it. NULL: no memory. */
char *absolute_path(const char *path);

/* An option whose value is dims, and what they may be: numbers of at least `least`; or inf, which
 * SFS_UNLIMITED stands for. */
struct dims_option {
    const char *name;
    uint64_t least;
    bool allow_inf;
};

/* Numbers with commas between them: *rank of them, or, if *rank is not 0, exactly so many. */
int dims_parse(const char *command, const struct dims_option *option, const char *text, int *rank,
               uint64_t *dims);

int number_parse(const char *command, const char *option, const char *text, uint64_t least,
                 uint64_t *number);

/* Bytes of an element of variable length in the values section. */
#define VARIABLE_BYTES 16

/* SECTION:NAME[=LEVEL]. */
#define MOST_FILTERS       32 /* of one section, as of a pipeline of libhdf5 */
#define MOST_FILTER_VALUES 16 /* of one filter */

/* A decimal number at *text, which is moved behind it; false: there is none, or no such one. */
bool number_take(const char **text, uint64_t *number);

struct filters {
    bool given[SFS_SECTIONS]; /* also if what was given is that there are none */
    size_t n[SFS_SECTIONS];
    /* Of elements of variable length: bytes that belong together in what they lead to; else 0. */
    unsigned heap_unit;
    struct sfs_filter filter[SFS_SECTIONS][MOST_FILTERS];
    unsigned values[SFS_SECTIONS][MOST_FILTERS][MOST_FILTER_VALUES];
};

enum { SELECTION_SECTION, VALUES_SECTION, HEAP_SECTION };

/* section: the only one that there is, which a text need not begin with; or -1. USAGE. */
int filter_parse(const char *command, const char *text, int section, struct filters *filters);

/* Puts the filters into what is to be created, of which rank and chunk dims are set; it points to
 * them then. */
void filters_use(struct filters *filters, struct sfs_dataset_create *create);

/* Bytes of one block of the selections of a dataset, which are lists of blocks: first and last
 * coordinates, of 2 bytes if that is enough. Bytes of the same meaning are brought together if
 * those of a block are shuffled, which nearly halves what deflate makes of scattered points. */
unsigned block_bytes(const struct sfs_dataset_create *create);

/* The chunk dims where none were asked for: a frame (all but the first axis of three and more, else
 * everything), cut into halves along its longest axis until it has no more than 16 MiB. */
void default_chunk(int rank, const uint64_t *dims, const uint64_t *max_dims, size_t element_size,
                   uint64_t *chunk_dims);

/* The next option of getopt_long; '?' after a message. Options have values of 256 and more. */
int next_option(int argc, char **argv, const struct option *options);

/* Whether there are at least and at most so many arguments besides the options; else USAGE. */
int check_arguments(int argc, char **argv, int least, int most, const char *what);

/* Of a command whose options need no more than to be known, and that has one argument: DONE, with the name of a
 * file in *path, or USAGE. */
int take_file(int argc, char **argv, const struct option *options, const char **path);

#endif
