/* The words of the option views=: which views a mount shows. */
#ifndef SPARSEFS_FS_VIEWS_OPTION_H
#define SPARSEFS_FS_VIEWS_OPTION_H

#include <stdbool.h>

#include "view/view.h"

/* Kinds of views that a mount shows: bits, 1 << enum view_kind. */
#define ALL_VIEWS ((1u << VIEW_KINDS) - 1)

/* Views that are shown only if they are asked for (views=): a program that copies a tree reads all
 * that are shown. */
#define ASKED_VIEWS                                                                                \
    (1u << VIEW_STACK_TIFF | 1u << VIEW_PNG | 1u << VIEW_CBF | 1u << VIEW_CSV | 1u << VIEW_CHUNK | \
     1u << VIEW_ZARRAY | 1u << VIEW_ZATTRS)
#define DEFAULT_VIEWS (ALL_VIEWS & ~ASKED_VIEWS)

/* The words, as they are listed for who has used another. */
#define VIEWS_OPTION_WORDS                                                                         \
    "raw, defined, npy, tiff, values, npz, stack, csr, text, ragged, lines, stack.tif, png, cbf, " \
    "csv, zarr, default and all"

/* Kinds that words with + between them stand for ("raw+stack", ..., "default", "all"). false: one of them is
 * none. */
bool views_parse(const char *value, unsigned *views);

#endif
