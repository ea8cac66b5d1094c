/* Opening the header of a sparse dataset. */
#include "format/dataset_header.h"

#include <errno.h>
#include <inttypes.h>
#include <string.h>

#include "format/cursor.h"
#include "format/datatype_message.h"

#define COMMITTED 2 /* kind of a shared message: it stands in the header of another object */

void dataset_header_free(struct dataset_header *dataset)
{
    object_header_free(dataset->header);
    object_header_free(dataset->committed);
    section_filters_free(&dataset->filters);
    *dataset = (struct dataset_header){0};
}

static int need(const struct object_header *header, enum message_type type, const char *name,
                const struct message **message, struct why *why)
{
    *message = object_header_find(header, type);
    if (!*message)
        return why_damaged(why, "object header at address %" PRIu64 ": it has no %s message",
                           header->block[0].address, name);
    return 0;
}

static int read_datatype(struct store *store, const struct superblock *superblock,
                         struct dataset_header *d, struct why *why)
{
    const struct message *message;
    int error = need(d->header, MESSAGE_DATATYPE, "datatype", &message, why);
    if (!error && message->flags & MESSAGE_SHARED) {
        struct cursor c = cursor_over(message->data, message->size);
        uint64_t version = cursor_uint(&c, 1);
        uint64_t kind = cursor_uint(&c, 1);
        uint64_t address = superblock_address(superblock, &c);
        if (c.failed || version < 2 || version > 3 || (version == 3 && kind != COMMITTED))
            return why_unsupported(why,
                                   "datatype message at address %" PRIu64
                                   ": it is shared in a way that is not known",
                                   message->address);
        error = object_header_read(store, superblock, address, &d->committed, why);
        if (!error)
            error = need(d->committed, MESSAGE_DATATYPE, "datatype", &message, why);
    }
    if (!error)
        d->datatype = *message;
    return error;
}

static int decode_fill(struct dataset_header *d, struct why *why)
{
    const struct message *message = object_header_find(d->header, MESSAGE_FILL);
    if (!message)
        message = object_header_find(d->header, MESSAGE_OLD_FILL);
    if (!message)
        return 0;
    int error = fill_decode(message, &d->fill, why);
    if (!error && d->fill.size != 0 && d->fill.size != d->layout.element_size)
        error = why_damaged(
            why, "fill value message at address %" PRIu64 ": size %zu, but elements have %" PRIu64,
            message->address, d->fill.size, d->layout.element_size);
    return error;
}

static int decode_filters(struct dataset_header *d, struct why *why)
{
    const struct message *found = NULL;
    for (size_t i = 0; i < d->header->n_messages; i++) {
        const struct message *message = &d->header->message[i];
        if (message->type != MESSAGE_FILTERS && message->type != MESSAGE_SECTION_FILTERS)
            continue;
        if (found || !section_filters_is(message))
            return why_damaged(
                why, "filter message at address %" PRIu64 ": not one of sections, or the second",
                message->address);
        found = message;
    }
    d->filtered = found != NULL;
    return found ? section_filters_decode(found, d->layout.first_section, d->layout.n_sections,
                                          &d->filters, why)
                 : 0;
}

/* The name of an attribute message, with the byte that ends it. -EILSEQ. */
static int attribute_name(const struct message *message, const unsigned char **name, size_t *n,
                          struct why *why)
{
    struct cursor c = cursor_over(message->data, message->size);
    unsigned version = (unsigned)cursor_uint(&c, 1);
    cursor_skip(&c, 1); /* reserved, or flags */
    *n = (size_t)cursor_uint(&c, 2);
    cursor_skip(&c, 4 + (version == 3)); /* sizes of datatype and dataspace; character set */
    *name = cursor_bytes(&c, *n);
    if (version < 1 || version > 3 || c.failed || *n == 0)
        return why_damaged(
            why, "attribute message at address %" PRIu64 ": version %u, name of %zu bytes",
            message->address, version, *n);
    return 0;
}

static int find_selection_version(struct dataset_header *d, struct why *why)
{
    static const char wanted[] = "sparsefs.selection_version";
    for (size_t i = 0; i < d->header->n_messages; i++) {
        const struct message *message = &d->header->message[i];
        const unsigned char *name;
        size_t n;
        if (message->type != MESSAGE_ATTRIBUTE || message->flags & MESSAGE_SHARED)
            continue;
        int error = attribute_name(message, &name, &n, why);
        if (error)
            return error;
        d->selection_version_1 |= n == sizeof(wanted) && memcmp(name, wanted, n) == 0;
    }
    return 0;
}

static int decode(struct store *store, const struct superblock *superblock,
                  struct dataset_header *d, struct why *why)
{
    const struct message *layout = object_header_find(d->header, MESSAGE_LAYOUT);
    const struct message *dataspace;
    if (!layout || !layout_message_is_structured(layout))
        return -EINVAL;
    int error = layout_message_decode(superblock, layout, &d->layout, why);
    if (!error)
        error = need(d->header, MESSAGE_DATASPACE, "dataspace", &dataspace, why);
    if (!error)
        error = dataspace_decode(superblock, dataspace, &d->dataspace, why);
    if (!error && d->dataspace.rank != d->layout.rank)
        error = why_damaged(
            why, "data layout message at address %" PRIu64 ": rank %d, but the dataspace has %d",
            layout->address, d->layout.rank, d->dataspace.rank);
    if (!error)
        error = read_datatype(store, superblock, d, why);
    uint64_t element_size = 0;
    if (!error)
        error = datatype_check(d->datatype.data, d->datatype.size, why);
    if (!error)
        error = datatype_decode_size(&d->datatype, &element_size, why);
    if (!error && element_size != d->layout.element_size &&
        datatype_size_in_chunks(d->datatype.data, d->datatype.size) != d->layout.element_size)
        error = why_damaged(why,
                            "data layout message at address %" PRIu64 ": element size %" PRIu64
                            ", but that of the datatype is %" PRIu64,
                            layout->address, d->layout.element_size, element_size);
    if (!error)
        error = decode_fill(d, why);
    if (!error)
        error = decode_filters(d, why);
    if (!error)
        error = find_selection_version(d, why);
    return error;
}

int dataset_header_read(struct store *store, const struct superblock *superblock, uint64_t address,
                        struct dataset_header *dataset, struct why *why)
{
    struct dataset_header d = {0};
    int error = object_header_read(store, superblock, address, &d.header, why);
    if (!error)
        error = decode(store, superblock, &d, why);
    if (error) {
        dataset_header_free(&d);
        return error;
    }
    *dataset = d;
    return 0;
}
