/* Decoding and encoding the records of chunk indexes. */
#include "format/chunk_record.h"

#include <assert.h>
#include <errno.h>
#include <inttypes.h>

/* What an encoded selection may take besides its coordinates, of at most 8 bytes each, twice per
 * element and axis: head, dataspace, checksum. */
#define SELECTION_HEAD 1024

unsigned floor_log2(uint64_t x)
{
    return x ? 63 - (unsigned)__builtin_clzll(x) : 0;
}

unsigned chunk_record_size_bytes(int n_sections, unsigned offset_size, uint64_t chunk_bytes)
{
    if (n_sections == 3)
        return 8;
    unsigned bytes = 1 + (floor_log2(chunk_bytes) + offset_size) / offset_size;
    return bytes < offset_size ? bytes : offset_size;
}

static bool is_structured(const struct chunk_record_format *format)
{
    return format->form >= CHUNK_STRUCTURED;
}

static bool is_filtered(const struct chunk_record_format *format)
{
    return format->form == CHUNK_DENSE_FILTERED || format->form == CHUNK_STRUCTURED_FILTERED;
}

size_t chunk_record_element(const struct chunk_record_format *format,
                            const struct superblock *superblock)
{
    size_t bytes = superblock->offset_size + format->size_bytes;
    if (is_structured(format))
        bytes += 8 * (size_t)(format->n_sections - format->first_section - 1);
    if (is_filtered(format))
        bytes +=
            is_structured(format) ? 12 * (size_t)(format->n_sections - format->first_section) : 4;
    return bytes;
}

size_t chunk_record_in_tree(const struct chunk_record_format *format,
                            const struct superblock *superblock)
{
    return chunk_record_element(format, superblock) + 8 * (size_t)format->rank;
}

void chunk_record_decode_sections(int first, int n_sections, bool filtered, struct cursor *cursor,
                                  struct chunk_record *record)
{
    for (int i = first + 1; i < n_sections; i++)
        record->section_offset[i] = cursor_uint(cursor, 8);
    for (int i = first; filtered && i < n_sections; i++)
        record->unfiltered_size[i] = cursor_uint(cursor, 8);
    for (int i = first; filtered && i < n_sections; i++)
        record->filter_mask[i] = (uint32_t)cursor_uint(cursor, 4);
}

uint64_t chunk_record_section_size(const struct chunk_record_format *format,
                                   const struct chunk_record *record, int section)
{
    uint64_t end =
        section + 1 < format->n_sections ? record->section_offset[section + 1] : record->size;
    return end - record->section_offset[section];
}

bool chunk_record_is_same(int n_sections, const struct chunk_record *a,
                          const struct chunk_record *b)
{
    if (a->exists != b->exists)
        return false;
    if (!a->exists)
        return true;
    bool same =
        a->address == b->address && a->size == b->size && a->filter_mask[0] == b->filter_mask[0];
    for (int i = 0; i < n_sections; i++)
        same &= a->section_offset[i] == b->section_offset[i] &&
                a->unfiltered_size[i] == b->unfiltered_size[i] &&
                a->filter_mask[i] == b->filter_mask[i];
    return same;
}

static int damaged(const struct chunk_record *record, uint64_t where, const char *what,
                   struct why *why)
{
    return why_damaged(why, "chunk index at address %" PRIu64 ": chunk at address %" PRIu64 ": %s",
                       where, record->address, what);
}

/* The most bytes that a section can have without filters; the heap may have any number. */
static uint64_t most_unfiltered(const struct chunk_record_format *format, int section)
{
    uint64_t bytes;
    if (section == 1 && format->n_sections == 2)
        return format->chunk_bytes;
    if (section == 0 &&
        !__builtin_mul_overflow(format->chunk_elements, 16 * (uint64_t)format->rank, &bytes) &&
        !__builtin_add_overflow(bytes, SELECTION_HEAD, &bytes))
        return bytes;
    return UINT64_MAX;
}

int chunk_record_check(const struct chunk_record_format *format, uint64_t store_size,
                       uint64_t where, const struct chunk_record *record, struct why *why)
{
    uint64_t end;
    if (__builtin_add_overflow(record->address, record->size, &end) || end > store_size)
        return damaged(record, where, "it reaches beyond the end of the file", why);
    for (int i = 0; i < format->n_sections; i++) {
        uint64_t next = i + 1 < format->n_sections ? record->section_offset[i + 1] : record->size;
        if (next < record->section_offset[i] || next > record->size)
            return damaged(record, where, "offsets of its sections are out of order", why);
        if (is_filtered(format) && record->unfiltered_size[i] > most_unfiltered(format, i))
            return damaged(record, where, "unfiltered size of a section is more than it can be",
                           why);
    }
    return 0;
}

int chunk_record_decode(const struct chunk_record_format *format,
                        const struct superblock *superblock, uint64_t store_size, uint64_t where,
                        struct cursor *cursor, uint64_t *scaled, struct chunk_record *record,
                        struct why *why)
{
    struct chunk_record r = {0};
    bool dense = !is_structured(format);
    r.address = superblock_address(superblock, cursor);
    r.size = format->size_bytes ? cursor_uint(cursor, format->size_bytes) : format->chunk_bytes;
    /* The mask of a dense chunk stands before its coordinates, all else of structured ones behind.
     */
    if (dense && is_filtered(format))
        r.filter_mask[0] = (uint32_t)cursor_uint(cursor, 4);
    for (int i = 0; scaled && i < format->rank; i++)
        scaled[i] = cursor_uint(cursor, 8);
    if (!dense)
        chunk_record_decode_sections(format->first_section, format->n_sections, is_filtered(format),
                                     cursor, &r);
    if (cursor->failed)
        return why_damaged(why, "chunk index at address %" PRIu64 ": address of a chunk", where);

    r.exists = r.address != NO_ADDRESS;
    int error = r.exists ? chunk_record_check(format, store_size, where, &r, why) : 0;
    if (error)
        return error;
    if (!r.exists)
        r = (struct chunk_record){0};
    *record = r;
    return 0;
}

void chunk_record_encode_sections(int first, int n_sections, bool filtered, struct output *output,
                                  const struct chunk_record *record)
{
    for (int i = first + 1; i < n_sections; i++)
        output_uint(output, record->section_offset[i], 8);
    for (int i = first; filtered && i < n_sections; i++)
        output_uint(output, record->unfiltered_size[i], 8);
    for (int i = first; filtered && i < n_sections; i++)
        output_uint(output, record->filter_mask[i], 4);
}

int chunk_record_fits(const struct chunk_record_format *format, const struct superblock *superblock,
                      const struct chunk_record *record, struct why *why)
{
    if (!superblock_address_fits(superblock, record->address))
        return why_refused(why, -EFBIG,
                           "chunk at address %" PRIu64
                           ": the addresses of this file have only %u bytes",
                           record->address, superblock->offset_size);
    if (format->size_bytes > 0 && format->size_bytes < 8 &&
        record->size >> 8 * format->size_bytes != 0)
        return why_refused(why, -EFBIG,
                           "chunk at address %" PRIu64 ": its %" PRIu64
                           " stored bytes do not fit the %u bytes that its index has for their "
                           "number",
                           record->address, record->size, format->size_bytes);
    return 0;
}

int chunk_record_encode(const struct chunk_record_format *format,
                        const struct superblock *superblock, const uint64_t *scaled,
                        const struct chunk_record *record, unsigned char *bytes, struct why *why)
{
    static const struct chunk_record nothing = {.address = NO_ADDRESS};
    assert(record->exists || !scaled);
    if (!record->exists)
        record = &nothing;
    int error = chunk_record_fits(format, superblock, record, why);
    if (error)
        return error;
    struct output output = output_over(bytes, scaled ? chunk_record_in_tree(format, superblock)
                                                     : chunk_record_element(format, superblock));
    superblock_put_address(superblock, &output, record->address);
    output_uint(&output, record->size, format->size_bytes);
    if (format->form == CHUNK_DENSE_FILTERED)
        output_uint(&output, record->filter_mask[0], 4);
    for (int i = 0; scaled && i < format->rank; i++)
        output_uint(&output, scaled[i], 8);
    if (is_structured(format))
        chunk_record_encode_sections(format->first_section, format->n_sections, is_filtered(format),
                                     &output, record);
    return 0;
}
