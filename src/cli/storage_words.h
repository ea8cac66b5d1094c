/* Options of commands that make sparse datasets: how a dataset is stored, where HDF5 leaves a
 * choice, and what is said of it. */
#ifndef SPARSEFS_CLI_STORAGE_WORDS_H
#define SPARSEFS_CLI_STORAGE_WORDS_H

#include "cli/options.h"

/* For getopt_long: their numbers, and the entries with which they stand among others. */
enum {
    STORAGE_INDEX = 512,
    STORAGE_LAYOUT_MESSAGE,
    STORAGE_ENCODING,
    STORAGE_ALLOC_TIME,
    STORAGE_FILL_TIME,
    STORAGE_UNFILTERED_EDGES,
    STORAGE_DENSE,
};
/* clang-format off */
#define STORAGE_OPTIONS                                                                            \
    {"index", required_argument, NULL, STORAGE_INDEX},                                             \
    {"layout-message", required_argument, NULL, STORAGE_LAYOUT_MESSAGE},                           \
    {"encoding", required_argument, NULL, STORAGE_ENCODING},                                       \
    {"alloc-time", required_argument, NULL, STORAGE_ALLOC_TIME},                                   \
    {"fill-time", required_argument, NULL, STORAGE_FILL_TIME},                                     \
    {"unfiltered-edges", no_argument, NULL, STORAGE_UNFILTERED_EDGES},                             \
    {"dense", no_argument, NULL, STORAGE_DENSE}
/* clang-format on */

/* What --help says of them. */
#define STORAGE_HELP                                                                               \
    "  --index KIND[,NAME=N...]    the index of the chunks: auto, single, fixed-array,\n"          \
    "                              extensible-array or btree (default: auto, by --maxdims),\n"     \
    "                              with numbers of its own: page-bits of both arrays;\n"           \
    "                              max-bits, index-block, data-block, super-block of the\n"        \
    "                              extensible one; node-size, split, merge of the B-tree\n"        \
    "  --layout-message ORDER      prototype, 22 or sectioned: the order of its fields, as in\n"   \
    "                              the HDF5 prototype or in two designs of version 22 of the\n"    \
    "                              RFC (default: prototype)\n"                                     \
    "  --encoding prototype|rfc    what else the prototype and the RFC encode differently\n"       \
    "                              (default: prototype; rfc with sectioned)\n"                     \
    "  --alloc-time WHEN           incremental, early or late (default: incremental)\n"            \
    "  --fill-time WHEN            ifset, alloc or never (default: ifset)\n"                       \
    "  --unfiltered-edges          chunks that reach over the edge are stored without filters\n"   \
    "  --dense                     no element is ever undefined; for elements of variable\n"       \
    "                              length\n"

/* Takes the value, optarg, of one of these. */
int storage_option(const char *command, int option, struct sfs_dataset_create *create);

/* Makes a dataset like one that is there, as far as these options go. */
void storage_as(const struct sfs_dataset_info *info, struct sfs_dataset_create *create);

/* Prints the index of a sparse dataset, as the option wants it; and as members of a JSON object.
 * Errors of out are left to ferror. */
void storage_print(FILE *out, const struct sfs_dataset_info *info);
void storage_json(FILE *out, const struct sfs_dataset_info *info);

#endif
