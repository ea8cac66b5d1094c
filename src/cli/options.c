/* Parsing what the command lines of several commands are made of. */
#include "cli/options.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/filter_name.h"

#define MOST_CHUNK_BYTES ((uint64_t)16 << 20)
#define NEW_AXIS         1024 /* chunk dim along an axis that has no length yet and no limit */

#define DEFLATE    1
#define SHUFFLE    2
#define FLETCHER32 3

/* ---- Targets ---- */

int target_parse(const char *command, const char *text, struct target *target)
{
    const char *colon = NULL;
    for (const char *c = text; *c; c++)
        if (c[0] == ':' && c[1] == '/')
            colon = c;
    if (colon == text || !*text)
        return refuse(command, "%s: the name of a file is missing", text);
    target->file = colon ? strndup(text, (size_t)(colon - text)) : strdup(text);
    target->path = colon ? strdup(colon + 1) : NULL;
    if (target->file && (target->path || !colon))
        return 0;
    target_free(target);
    fail(-ENOMEM, "%s", text);
    return FAILED;
}

void target_free(struct target *target)
{
    free(target->file);
    free(target->path);
    *target = (struct target){0};
}

char *absolute_path(const char *path)
{
    char *absolute = NULL;
    return asprintf(&absolute, "%s%s", *path == '/' ? "" : "/", path) < 0 ? NULL : absolute;
}

/* ---- Numbers ---- */

/* A decimal number at *text, which is moved behind it. */
static bool take_number(const char **text, uint64_t *number)
{
    char *end;
    if (**text < '0' || **text > '9')
        return false;
    errno = 0;
    unsigned long long value = strtoull(*text, &end, 10);
    if (errno || value >= SFS_UNLIMITED)
        return false;
    *number = value;
    *text = end;
    return true;
}

int dims_parse(const char *command, const char *option, const char *text, uint64_t least,
               bool allow_inf, int *rank, uint64_t *dims)
{
    const char *at = text;
    bool good;
    int n = 0;
    do {
        if (n == SFS_MAX_RANK)
            return refuse(command, "%s %s: more than %d axes", option, text, SFS_MAX_RANK);
        if (allow_inf && !strncmp(at, "inf", 3)) {
            dims[n] = SFS_UNLIMITED;
            at += 3;
            good = true;
        } else {
            good = take_number(&at, &dims[n]) && dims[n] >= least;
        }
        n++;
    } while (good && *at++ == ',');
    if (!good || at[-1])
        return refuse(command, "%s %s: not numbers of at least %llu with commas between them%s",
                      option, text, (unsigned long long)least, allow_inf ? ", or inf" : "");
    if (*rank && n != *rank)
        return refuse(command, "%s %s: %d numbers, but there are %d axes", option, text, n, *rank);
    *rank = n;
    return 0;
}

int number_parse(const char *command, const char *option, const char *text, uint64_t least,
                 uint64_t *number)
{
    const char *at = text;
    if (!take_number(&at, number) || *at || *number < least)
        return refuse(command, "%s %s: not a number of at least %llu", option, text,
                      (unsigned long long)least);
    return 0;
}

/* ---- Filters ---- */

/* The numbers behind '=', with commas between them, become the filter's parameters. */
static bool take_values(const char *text, struct sfs_filter *filter, unsigned *values)
{
    for (; text; text++) {
        uint64_t number;
        if (filter->n_values == MOST_FILTER_VALUES || !take_number(&text, &number) ||
            number > UINT_MAX || (*text && *text != ','))
            return false;
        values[filter->n_values++] = (unsigned)number;
        if (!*text)
            return true;
    }
    return true;
}

/* What is optional is what libhdf5's own functions make optional. NULL: it is a filter. */
static const char *set_filter(const char *name, size_t n, const char *parameters,
                              struct sfs_filter *filter, unsigned *numbers)
{
    const char *at = name;
    uint64_t id;
    bool deflate = n == 7 && !strncmp(name, "deflate", n),
         gzip = n == 4 && !strncmp(name, "gzip", n);
    const char *why;
    if (filter_by_name(name, n, parameters, filter, numbers, &why))
        return why;
    if (parameters && !take_values(parameters, filter, numbers))
        return "the parameters are not numbers with commas between them";
    if (deflate || gzip) {
        filter->id = DEFLATE;
        filter->optional = true;
        if (filter->n_values == 0)
            numbers[filter->n_values++] = 4;
        return filter->n_values == 1 && numbers[0] <= 9 ? NULL : "the level is one of 0 to 9";
    }
    if (n == 7 && !strncmp(name, "shuffle", n)) {
        filter->id = SHUFFLE;
        filter->optional = true;
        return filter->n_values <= 1 && (filter->n_values == 0 || numbers[0] > 0)
                   ? NULL
                   : "the size of what is shuffled is a number of bytes";
    }
    if (n == 10 && !strncmp(name, "fletcher32", n)) {
        filter->id = FLETCHER32;
        return parameters ? "it has no parameters" : NULL;
    }
    if (!take_number(&at, &id) || at != name + n || id < 1 || id > 65535)
        return "the filters are deflate, gzip, shuffle, fletcher32, bitshuffle, lz4, zstd, blosc, "
               "blosc2, bzip2, lzf, szip, none and registered numbers";
    filter->id = (int)id;
    return NULL;
}

int filter_parse(const char *command, const char *text, int section, struct filters *filters)
{
    static const char *const names[] = {"selection:", "values:", "heap:"};
    const char *name = text;
    for (int i = 0; i < SFS_SECTIONS; i++)
        if (!strncmp(text, names[i], strlen(names[i]))) {
            if (section >= 0 && section != i)
                return refuse(command, "--filter %s: there is no such section", text);
            section = i;
            name += strlen(names[i]);
            break;
        }
    if (section < 0)
        return refuse(command, "--filter %s: it begins with selection:, values: or heap:", text);
    filters->given[section] = true;
    if (!strcmp(name, "none"))
        return 0;
    size_t i = filters->n[section];
    if (i == MOST_FILTERS)
        return refuse(command, "--filter %s: too many filters", text);
    struct sfs_filter *filter = &filters->filter[section][i];
    size_t n = strcspn(name, "=");
    *filter = (struct sfs_filter){.values = filters->values[section][i]};
    const char *why =
        set_filter(name, n, name[n] ? name + n + 1 : NULL, filter, filters->values[section][i]);
    if (why)
        return refuse(command, "--filter %s: %s", text, why);
    filters->n[section]++;
    return 0;
}

unsigned block_bytes(const struct sfs_dataset_create *create)
{
    unsigned width = create->version_1_selections ? 4 : 2;
    for (int i = 0; i < create->rank; i++)
        if (create->chunk_dims[i] > UINT16_MAX + (uint64_t)1)
            width = 4;
    return 2 * (unsigned)create->rank * width;
}

static void complete(struct filters *filters, int section, unsigned together)
{
    for (size_t i = 0; i < filters->n[section]; i++)
        filter_complete(&filters->filter[section][i], filters->values[section][i], together, false);
}

void filters_use(struct filters *filters, struct sfs_dataset_create *create)
{
    complete(filters, SELECTION_SECTION, block_bytes(create));
    if (filters->heap_unit > 0) {
        complete(filters, VALUES_SECTION, VARIABLE_BYTES);
        complete(filters, HEAP_SECTION, filters->heap_unit);
    }
    for (int i = 0; i < SFS_SECTIONS; i++) {
        create->n_filters[i] = filters->n[i];
        create->filters[i] = filters->filter[i];
        for (size_t k = 0; k < filters->n[i]; k++) /* it may be a copy */
            filters->filter[i][k].values = filters->values[i][k];
    }
}

/* ---- Chunks ---- */

void default_chunk(int rank, const uint64_t *dims, const uint64_t *max_dims, size_t element_size,
                   uint64_t *chunk_dims)
{
    for (int i = 0; i < rank; i++) {
        uint64_t length = dims[i] ? dims[i] : max_dims[i] == SFS_UNLIMITED ? NEW_AXIS : max_dims[i];
        chunk_dims[i] = rank >= 3 && i == 0 ? 1 : length ? length : 1;
    }
    for (;;) {
        uint64_t bytes = element_size;
        int longest = 0;
        bool is_large = false;
        for (int i = 0; i < rank; i++) {
            is_large = is_large || __builtin_mul_overflow(bytes, chunk_dims[i], &bytes);
            if (chunk_dims[i] > chunk_dims[longest])
                longest = i;
        }
        if ((!is_large && bytes <= MOST_CHUNK_BYTES) || chunk_dims[longest] == 1)
            return;
        chunk_dims[longest] = chunk_dims[longest] / 2 + chunk_dims[longest] % 2;
    }
}

/* ---- Options ---- */

int next_option(int argc, char **argv, const struct option *options)
{
    int option = getopt_long(argc, argv, ":", options, NULL);
    if (option == '?')
        refuse(argv[0], "no such option: %s", argv[optind - 1]);
    if (option == ':') {
        refuse(argv[0], "%s: a value is missing", argv[optind - 1]);
        return '?';
    }
    return option;
}

int check_arguments(int argc, char **argv, int least, int most, const char *what)
{
    int n = argc - optind;
    if (n < least)
        return refuse(argv[0], "%s wanted", what);
    if (n > most)
        return refuse(argv[0], "%s wanted, this is too much: %s", what, argv[optind + most]);
    return 0;
}
