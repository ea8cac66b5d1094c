/* libFuzzer: any bytes as a data layout message, and as both messages of section filters. */
#include <stddef.h>
#include <stdint.h>

#include "format/layout_message.h"

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n);

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n)
{
    static const unsigned char sizes[] = {2, 4, 8};
    if (n < 1)
        return 0;
    const struct superblock superblock = {
        .offset_size = sizes[bytes[0] % 3],
        .length_size = sizes[bytes[0] / 3 % 3],
        .base = bytes[0] & 0x80 ? 512 : 0,
    };
    struct message message = {.type = MESSAGE_LAYOUT, .data = bytes + 1, .size = n - 1};
    struct layout_message layout;
    struct chunk_record_format format;
    struct section_filters filters;
    struct why why;
    if (layout_message_is_structured(&message) &&
        layout_message_decode(&superblock, &message, &layout, &why) == 0)
        layout_message_records(&layout, layout.single_filtered, &format, &why);
    message.type = MESSAGE_FILTERS;
    if (section_filters_decode(&message, 2, &filters, &why) == 0)
        section_filters_free(&filters);
    message.type = MESSAGE_SECTION_FILTERS;
    if (section_filters_decode(&message, 3, &filters, &why) == 0)
        section_filters_free(&filters);
    return 0;
}
