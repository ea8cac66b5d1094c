/* Filters of the sections of a dataset: what is given for them, and what is taken else. */
#include "cli/options.h"

#include <limits.h>
#include <string.h>

#include "cli/filter_name.h"

#define DEFLATE    1
#define SHUFFLE    2
#define FLETCHER32 3

/* The numbers behind '=', with commas between them, become the filter's parameters. */
static bool take_values(const char *text, struct sfs_filter *filter, unsigned *values)
{
    for (; text; text++) {
        uint64_t number;
        if (filter->n_values == MOST_FILTER_VALUES || !number_take(&text, &number) ||
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
    if (!number_take(&at, &id) || at != name + n || id < 1 || id > 65535)
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
