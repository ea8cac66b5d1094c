/* Names of registered filters and the words and numbers behind them: NAME[=WORD[:NUMBER]] or
 * NAME[=NUMBER]. */
#include "cli/filter_name.h"

#include <stdlib.h>
#include <string.h>

enum {
    SHUFFLE = 2,
    BZIP2 = 307,
    LZF = 32000,
    BLOSC = 32001,
    LZ4 = 32004,
    BITSHUFFLE = 32008,
    ZSTD = 32015,
    BLOSC2 = 32026
};
enum { SZIP = 4, SZIP_ENTROPY = 133, SZIP_NEAREST = 161 }; /* options, as H5Pset_szip puts them */
enum { BITSHUFFLE_LZ4 = 2, BITSHUFFLE_ZSTD = 3 };

struct word {
    const char *text;
    unsigned code;
};

/* Filters whose plugins fail on what does not get smaller are optional. */
static const struct named {
    const char *name;
    int id;
    bool optional;
    struct word words[7];             /* without one it is the first, if that has no text: 0 */
    unsigned least, most, if_missing; /* of the number; most 0: there is none */
    const char *wanted;
} filters[] = {
    {"bitshuffle",
     BITSHUFFLE,
     false,
     {{"", 0}, {"lz4", BITSHUFFLE_LZ4}, {"zstd", BITSHUFFLE_ZSTD}},
     1,
     22,
     3,
     "it is followed by nothing, =lz4, =zstd or =zstd:LEVEL, a level of 1 to 22"},
    {"lz4",
     LZ4,
     false,
     {{"", 0}},
     1,
     1 << 30,
     0,
     "the size of its blocks is a number of bytes, at most 1 GiB"},
    {"zstd", ZSTD, false, {{"", 0}}, 1, 22, 3, "the level is one of 1 to 22"},
    {"blosc",
     BLOSC,
     true,
     {{"blosclz", 0}, {"lz4", 1}, {"lz4hc", 2}, {"snappy", 3}, {"zlib", 4}, {"zstd", 5}},
     0,
     9,
     5,
     "it is followed by nothing, or by =COMPRESSOR or =COMPRESSOR:LEVEL, which are blosclz, lz4, "
     "lz4hc, snappy, zlib or zstd, and 0 to 9"},
    {"blosc2",
     BLOSC2,
     false,
     {{"blosclz", 0}, {"lz4", 1}, {"lz4hc", 2}, {"zlib", 4}, {"zstd", 5}},
     0,
     9,
     5,
     "it is followed by nothing, or by =COMPRESSOR or =COMPRESSOR:LEVEL, which are blosclz, lz4, "
     "lz4hc, zlib or zstd, and 0 to 9"},
    {"bzip2", BZIP2, false, {{"", 0}}, 1, 9, 9, "the level is one of 1 to 9"},
    {"lzf", LZF, true, {{"", 0}}, 0, 0, 0, "it has no parameters"},
    {"szip",
     SZIP,
     true,
     {{"nn", SZIP_NEAREST}, {"ec", SZIP_ENTROPY}},
     2,
     32,
     8,
     "it is followed by nothing, or by =nn or =ec and perhaps :PIXELS, an even number of 2 to 32"},
};

static bool take_word(const struct named *named, const char **text, unsigned *code)
{
    size_t n = strcspn(*text, ":");
    *code = named->words[0].code;
    if (!*named->words[0].text && (n == 0 || strspn(*text, "0123456789") == n))
        return !named->words[1].text || n == 0;
    for (size_t i = 0; i < sizeof(named->words) / sizeof(*named->words); i++)
        if (named->words[i].text && strlen(named->words[i].text) == n &&
            !strncmp(*text, named->words[i].text, n)) {
            *code = named->words[i].code;
            *text += n + ((*text)[n] == ':' && (*text)[n + 1]);
            return true;
        }
    return false;
}

static bool take_number(const struct named *named, const char *text, unsigned *number)
{
    char *end;
    if (*text < '0' || *text > '9' || strlen(text) > 10)
        return false;
    unsigned long long value = strtoull(text, &end, 10);
    *number = (unsigned)value;
    return !*end && value >= named->least && value <= named->most;
}

static bool parse(const struct named *named, const char *text, unsigned *code, unsigned *number,
                  bool *has_number)
{
    *number = named->if_missing;
    *has_number = false;
    *code = named->words[0].code;
    if (!text)
        return true;
    if (!*text || !take_word(named, &text, code))
        return false;
    *has_number = *text != '\0';
    return !*has_number || (named->most > 0 && take_number(named, text, number));
}

/* As the plugins take them. */
static size_t put_values(int id, unsigned code, unsigned number, bool has_number, unsigned *values)
{
    switch (id) {
    case BITSHUFFLE:
        values[0] = 0; /* elements of a block: as many as suit */
        values[1] = code;
        values[2] = number;
        return code == BITSHUFFLE_ZSTD ? 3 : 2;
    case BLOSC:
    case BLOSC2:
        memset(values, 0, 4 * sizeof(*values));
        values[4] = number;
        values[5] = 1; /* shuffled by bytes */
        values[6] = code;
        return 7;
    case SZIP:
        values[0] = code;
        values[1] = number;
        return 2;
    case LZ4:
        values[0] = number;
        return has_number;
    default:
        values[0] = number;
        return id != LZF;
    }
}

bool filter_by_name(const char *name, size_t n, const char *parameters, struct sfs_filter *filter,
                    unsigned *numbers, const char **why)
{
    for (size_t i = 0; i < sizeof(filters) / sizeof(*filters); i++) {
        const struct named *named = &filters[i];
        unsigned code, number;
        bool has_number;
        if (strlen(named->name) != n || strncmp(name, named->name, n) != 0)
            continue;
        *why = NULL;
        if (!parse(named, parameters, &code, &number, &has_number) ||
            (named->id == BITSHUFFLE && has_number && code != BITSHUFFLE_ZSTD) ||
            (named->id == SZIP && number % 2 != 0))
            *why = named->wanted;
        filter->id = named->id;
        filter->optional = named->optional;
        filter->n_values = *why ? 0 : put_values(named->id, code, number, has_number, numbers);
        return true;
    }
    return false;
}

void filter_complete(struct sfs_filter *filter, unsigned *numbers, unsigned together,
                     bool are_elements)
{
    enum { LSB = 8 }; /* option of szip that libhdf5 adds */
    switch (filter->id) {
    case SHUFFLE:
        if (filter->n_values == 0)
            numbers[filter->n_values++] = together;
        return;
    case BITSHUFFLE: /* of bytes: a selection is no number of blocks */
        if (filter->n_values > 3)
            return;
        while (filter->n_values < 2)
            numbers[filter->n_values++] = 0;
        memmove(numbers + 3, numbers, filter->n_values * sizeof(*numbers));
        numbers[0] = 0;
        numbers[1] = 4; /* the version of the filter */
        numbers[2] = are_elements ? together : 1;
        filter->n_values += 3;
        return;
    case BLOSC:
        if (filter->n_values < 7 || numbers[2] > 0)
            return;
        numbers[0] = numbers[1] = 2; /* versions of filter and format */
        numbers[2] = together > 255 ? 1 : together;
        return;
    case BLOSC2:
        if (filter->n_values < 7 || numbers[2] > 0)
            return;
        numbers[0] = 1; /* version of the filter */
        numbers[2] = together;
        return;
    case SZIP:
        if (filter->n_values != 2)
            return;
        numbers[0] |= LSB;
        numbers[2] = are_elements ? 8 * together : 8; /* bits of a pixel */
        numbers[3] = 32 * numbers[1];                 /* pixels of a line */
        filter->n_values = 4;
        return;
    default:
        return;
    }
}
