/* How a dataset is stored, as words of a command line. */
#include <errno.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/storage_words.h"

/* Words and what they stand for, ascending from 0. */
static const char *const kinds[] = {
    [SFS_INDEX_AUTOMATIC] = "auto",
    [SFS_INDEX_SINGLE] = "single",
    [SFS_INDEX_FIXED_ARRAY] = "fixed-array",
    [SFS_INDEX_EXTENSIBLE_ARRAY] = "extensible-array",
    [SFS_INDEX_BTREE] = "btree",
    NULL,
};
static const char *const orders[] = {
    [SFS_LAYOUT_MESSAGE_PROTOTYPE] = "prototype",
    [SFS_LAYOUT_MESSAGE_22] = "22",
    [SFS_LAYOUT_MESSAGE_SECTIONED] = "sectioned",
    NULL,
};
static const char *const encodings[] = {"prototype", "rfc", NULL};
static const char *const allocations[] = {
    [SFS_ALLOCATION_INCREMENTAL] = "incremental",
    [SFS_ALLOCATION_EARLY] = "early",
    [SFS_ALLOCATION_LATE] = "late",
    NULL,
};
static const char *const fill_times[] = {
    [SFS_FILL_IF_SET] = "ifset",
    [SFS_FILL_ALLOCATED] = "alloc",
    [SFS_FILL_NEVER] = "never",
    NULL,
};

static const struct number {
    const char *name, *json;
    size_t at; /* in struct sfs_index */
} numbers[] = {
    {"page-bits", "page_bits", offsetof(struct sfs_index, page_bits)},
    {"max-bits", "max_bits", offsetof(struct sfs_index, max_bits)},
    {"index-block", "index_block_elements", offsetof(struct sfs_index, index_block_elements)},
    {"data-block", "data_block_min_elements", offsetof(struct sfs_index, data_block_min_elements)},
    {"super-block", "super_block_min_blocks", offsetof(struct sfs_index, super_block_min_blocks)},
    {"node-size", "node_size", offsetof(struct sfs_index, node_size)},
    {"split", "split_percent", offsetof(struct sfs_index, split_percent)},
    {"merge", "merge_percent", offsetof(struct sfs_index, merge_percent)},
};
#define N_NUMBERS (sizeof(numbers) / sizeof(*numbers))

static unsigned *number_in(struct sfs_index *index, const struct number *number)
{
    return (unsigned *)(void *)((char *)index + number->at);
}

/* Which of the words a text is. */
static int word(const char *command, const char *option, const char *text, const char *const *words,
                int *which)
{
    for (*which = 0; words[*which]; ++*which)
        if (!strcmp(text, words[*which]))
            return 0;
    return refuse(command, "%s %s: it is none of those that --help names", option, text);
}

static int take_number(const char *command, char *text, struct sfs_index *index)
{
    char *value = strchr(text, '=');
    uint64_t n;
    if (value)
        *value++ = '\0';
    for (size_t i = 0; i < N_NUMBERS; i++) {
        if (strcmp(text, numbers[i].name) != 0)
            continue;
        int code = number_parse(command, "--index", value ? value : "", 1, &n);
        if (!code && n > UINT32_MAX)
            code = refuse(command, "--index %s=%s: too large", text, value);
        if (!code)
            *number_in(index, &numbers[i]) = (unsigned)n;
        return code;
    }
    return refuse(command, "--index: %s is no number of an index", text);
}

/* KIND[,NAME=N...]. */
static int take_index(const char *command, const char *text, struct sfs_index *index)
{
    char *copy = strdup(text), *rest = copy;
    if (!copy)
        return fail(-ENOMEM, "%s", command);
    int kind, code = word(command, "--index", strsep(&rest, ","), kinds, &kind);
    *index = (struct sfs_index){.kind = (enum sfs_index_kind)kind};
    while (!code && rest)
        code = take_number(command, strsep(&rest, ","), index);
    free(copy);
    return code;
}

int storage_option(const char *command, int option, struct sfs_dataset_create *create)
{
    int which = 0, code = 0;
    switch (option) {
    case STORAGE_INDEX:
        return take_index(command, optarg, &create->index);
    case STORAGE_LAYOUT_MESSAGE:
        code = word(command, "--layout-message", optarg, orders, &which);
        create->layout_message = (enum sfs_layout_message)which;
        return code;
    case STORAGE_ENCODING:
        code = word(command, "--encoding", optarg, encodings, &which);
        create->rfc_encoding = which == 1;
        return code;
    case STORAGE_ALLOC_TIME:
        code = word(command, "--alloc-time", optarg, allocations, &which);
        create->allocation = (enum sfs_allocation)which;
        return code;
    case STORAGE_FILL_TIME:
        code = word(command, "--fill-time", optarg, fill_times, &which);
        create->fill_time = (enum sfs_fill_time)which;
        return code;
    case STORAGE_UNFILTERED_EDGES:
        create->unfiltered_edges = true;
        return 0;
    case STORAGE_DENSE:
        create->is_dense = create->is_structured = true;
        return 0;
    default:
        return USAGE;
    }
}

/* Whether one of a single chunk may be made depends on its dims, which may have shrunk. */
void storage_as(const struct sfs_dataset_info *info, struct sfs_dataset_create *create)
{
    if (info->index.kind != SFS_INDEX_SINGLE)
        create->index = info->index;
    create->layout_message = info->layout_message;
    create->rfc_encoding = info->rfc_encoding;
    create->unfiltered_edges = info->unfiltered_edges;
    create->allocation = info->allocation;
    create->fill_time = info->fill_time;
    create->is_dense = create->is_structured = info->is_dense;
}

/* ---- What is there ---- */

void storage_print(FILE *out, const struct sfs_dataset_info *info)
{
    struct sfs_index index = info->index;
    fprintf(out, "  index       %s", kinds[index.kind]);
    for (size_t i = 0; i < N_NUMBERS; i++)
        if (*number_in(&index, &numbers[i]))
            fprintf(out, ",%s=%u", numbers[i].name, *number_in(&index, &numbers[i]));
    fprintf(out, "\n  stored as   layout message %s, encoding %s, allocation %s, fill time %s%s\n",
            orders[info->layout_message], encodings[info->rfc_encoding],
            allocations[info->allocation], fill_times[info->fill_time],
            info->unfiltered_edges ? ", edges without filters" : "");
}

void storage_json(FILE *out, const struct sfs_dataset_info *info)
{
    struct sfs_index index = info->index;
    fprintf(out, ",\n      \"index\": {\"kind\": \"%s\"", kinds[index.kind]);
    for (size_t i = 0; i < N_NUMBERS; i++)
        if (*number_in(&index, &numbers[i]))
            fprintf(out, ", \"%s\": %u", numbers[i].json, *number_in(&index, &numbers[i]));
    fprintf(out, "},\n      \"layout_message\": \"%s\",\n      \"encoding\": \"%s\"",
            orders[info->layout_message], encodings[info->rfc_encoding]);
    fprintf(out, ",\n      \"alloc_time\": \"%s\",\n      \"fill_time\": \"%s\"",
            allocations[info->allocation], fill_times[info->fill_time]);
    fprintf(out, ",\n      \"unfiltered_edges\": %s", info->unfiltered_edges ? "true" : "false");
}
