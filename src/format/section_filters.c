/* Decoding and encoding the filters of sections. */
#include "format/section_filters.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "format/cursor.h"
#include "format/output.h"

#define OPTIONAL    0x01 /* flag of a filter */
#define FIRST_NAMED 256  /* filters below are HDF5's own and have no name in the file */

#define PROTOTYPE_VERSION 1 /* of message 0x0019 */
#define RFC_VERSION       3 /* of message 0x000b */

static unsigned version_of(const struct message *message)
{
    return message->size > 0 ? message->data[0] : 0;
}

bool section_filters_is(const struct message *message)
{
    return message->type == MESSAGE_SECTION_FILTERS ||
           (message->type == MESSAGE_FILTERS && version_of(message) == RFC_VERSION);
}

void section_filters_free(struct section_filters *filters)
{
    for (int i = 0; i < MAX_SECTIONS; i++)
        free((struct sfs_filter *)filters->section[i].filters);
    free(filters->values);
    *filters = (struct section_filters){0};
}

static int damaged(const struct message *message, const char *field, uint64_t value,
                   struct why *why)
{
    return why_damaged(why, "section filter message at address %" PRIu64 ": %s %" PRIu64,
                       message->address, field, value);
}

/* One filter; its values are appended at *values. */
static int decode_filter(const struct message *message, struct cursor *c, struct sfs_filter *filter,
                         unsigned **values, struct why *why)
{
    static const char *const names[] = {"none", "deflate", "shuffle",    "fletcher32",
                                        "szip", "nbit",    "scaleoffset"};
    filter->id = (int)cursor_uint(c, 2);
    size_t name_bytes = filter->id >= FIRST_NAMED ? (size_t)cursor_uint(c, 2) : 0;
    filter->optional = (cursor_uint(c, 2) & OPTIONAL) != 0;
    filter->n_values = (size_t)cursor_uint(c, 2);
    const unsigned char *name = cursor_bytes(c, name_bytes);
    if (c->failed || filter->n_values > c->left / 4)
        return damaged(message, "too short for filter", (uint64_t)filter->id, why);
    if (filter->id == 0)
        return damaged(message, "filter", 0, why);
    if (filter->id < (int)(sizeof(names) / sizeof(*names)))
        snprintf(filter->name, sizeof(filter->name), "%s", names[filter->id]);
    else if (name)
        snprintf(filter->name, sizeof(filter->name), "%.*s", (int)name_bytes, (const char *)name);
    filter->values = *values;
    for (size_t i = 0; i < filter->n_values; i++)
        *(*values)++ = (unsigned)cursor_uint(c, 4);
    return 0;
}

/* Sections stand in any order: the prototype has that of the calls that gave them filters. */
static int decode_section(const struct message *message, struct cursor *c, int n_sections,
                          struct section_filters *filters, unsigned **values, struct why *why)
{
    int number = filters->first + (int)cursor_uint(c, 1);
    size_t n = (size_t)cursor_uint(c, 1);
    size_t bytes = (size_t)cursor_uint(c, 2);
    const unsigned char *list = cursor_bytes(c, bytes);
    if (c->failed)
        return damaged(message, "too short for section", (uint64_t)number, why);
    if (number >= n_sections || filters->section[number].n > 0)
        return damaged(message, "section", (uint64_t)number, why);
    if (n < 1 || n > MAX_FILTERS)
        return damaged(message, "number of filters", n, why);
    struct sfs_filter *section = calloc(n, sizeof(*section));
    if (!section)
        return -ENOMEM;
    filters->section[number] = (struct filter_pipeline){n, section, 0};
    struct cursor descriptions = cursor_over(list, bytes);
    for (size_t i = 0; i < n; i++) {
        int error = decode_filter(message, &descriptions, &section[i], values, why);
        if (error)
            return error;
    }
    if (descriptions.left > 0)
        return damaged(message, "bytes behind the filters", descriptions.left, why);
    return 0;
}

int section_filters_decode(const struct message *message, int first, int n_sections,
                           struct section_filters *filters, struct why *why)
{
    struct cursor c = cursor_over(message->data, message->size);
    struct section_filters f = {.first = first};
    if (message->flags & MESSAGE_SHARED)
        return why_unsupported(why, "section filter message at address %" PRIu64 " is shared",
                               message->address);
    unsigned version = (unsigned)cursor_uint(&c, 1);
    int n = (int)cursor_uint(&c, 1);
    f.is_rfc = message->type == MESSAGE_FILTERS;
    if (version != (f.is_rfc ? RFC_VERSION : PROTOTYPE_VERSION))
        return damaged(message, "version", version, why);
    if (n < 1 || n > n_sections - first || n_sections > MAX_SECTIONS)
        return damaged(message, "number of sections", (uint64_t)n, why);

    /* There are fewer values than the message has bytes. */
    f.values = calloc(message->size / 4 + 1, sizeof(*f.values));
    if (!f.values)
        return -ENOMEM;
    unsigned *values = f.values;
    int error = 0;
    for (int i = 0; !error && i < n; i++)
        error = decode_section(message, &c, n_sections, &f, &values, why);
    if (error) {
        section_filters_free(&f);
        return error;
    }
    *filters = f;
    return 0;
}

/* ---- Encoding ---- */

#define SECTION_BEGIN 4      /* bytes: number, filters, bytes of the list */
#define FIELD_MOST    0xffff /* in fields of two bytes */
#define MOST_DATA     65528  /* bytes of a message */

bool section_filters_any(const struct section_filters *filters)
{
    bool any = false;
    for (int i = 0; i < MAX_SECTIONS; i++)
        any |= filters->section[i].n > 0;
    return any;
}

/* Of its name in the file, with the byte that ends it. */
static size_t name_bytes_of(const struct sfs_filter *filter)
{
    return filter->id >= FIRST_NAMED && filter->name[0] ? strlen(filter->name) + 1 : 0;
}

static int check_filter(const struct sfs_filter *filter, struct why *why)
{
    if (filter->id < 1 || filter->id > FIELD_MOST)
        return why_refused(why, -EINVAL, "section filters: filter %d", filter->id);
    if (filter->n_values > FIELD_MOST)
        return why_refused(why, -EFBIG, "section filters: filter %d has %zu values", filter->id,
                           filter->n_values);
    return 0;
}

/* Bytes of the list of filters of a section. */
static int list_bytes(const struct section_filters *filters, int section, size_t *bytes,
                      struct why *why)
{
    size_t n = filters->section[section].n;
    if (n > MAX_FILTERS)
        return why_refused(why, -EFBIG, "section filters: %zu filters of section %d", n, section);
    *bytes = 0;
    for (size_t i = 0; i < n; i++) {
        const struct sfs_filter *filter = &filters->section[section].filters[i];
        int error = check_filter(filter, why);
        if (error)
            return error;
        *bytes +=
            (filter->id >= FIRST_NAMED ? 8 : 6) + name_bytes_of(filter) + 4 * filter->n_values;
    }
    if (*bytes > FIELD_MOST)
        return why_refused(why, -EFBIG, "section filters: %zu bytes of section %d", *bytes,
                           section);
    return 0;
}

static void encode_filter(struct output *output, const struct sfs_filter *filter)
{
    size_t name_bytes = name_bytes_of(filter);
    output_uint(output, (uint64_t)filter->id, 2);
    if (filter->id >= FIRST_NAMED)
        output_uint(output, name_bytes, 2);
    output_uint(output, filter->optional ? OPTIONAL : 0, 2);
    output_uint(output, filter->n_values, 2);
    output_bytes(output, filter->name, name_bytes);
    for (size_t i = 0; i < filter->n_values; i++)
        output_uint(output, filter->values[i], 4);
}

int section_filters_encode(const struct section_filters *filters, unsigned char **bytes, size_t *n,
                           struct why *why)
{
    size_t lists[MAX_SECTIONS], size = 2;
    unsigned n_sections = 0;
    for (int i = 0; i < MAX_SECTIONS; i++) {
        int error = list_bytes(filters, i, &lists[i], why);
        if (error)
            return error;
        if (filters->section[i].n > 0) {
            size += SECTION_BEGIN + lists[i];
            n_sections++;
        }
    }
    if (n_sections == 0)
        return why_refused(why, -EINVAL, "section filters: there are none");
    if (size > MOST_DATA)
        return why_refused(why, -EFBIG, "section filters: %zu bytes of all sections", size);
    unsigned char *message = malloc(size);
    if (!message)
        return -ENOMEM;
    struct output output = output_over(message, size);
    output_uint(&output, filters->is_rfc ? RFC_VERSION : PROTOTYPE_VERSION, 1);
    output_uint(&output, n_sections, 1);
    for (int i = 0; i < MAX_SECTIONS; i++) {
        if (filters->section[i].n == 0)
            continue;
        output_uint(&output, (uint64_t)(i - filters->first), 1);
        output_uint(&output, filters->section[i].n, 1);
        output_uint(&output, lists[i], 2);
        for (size_t k = 0; k < filters->section[i].n; k++)
            encode_filter(&output, &filters->section[i].filters[k]);
    }
    *bytes = message;
    *n = size;
    return 0;
}
