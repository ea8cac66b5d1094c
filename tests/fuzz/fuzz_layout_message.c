/* libFuzzer: any bytes as a data layout message, which is written over itself and then says the
 * same, and as both messages of section filters. */
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "format/layout_message.h"

static void require(bool condition)
{
    if (!condition)
        abort();
}

/* As when its index is changed: there may be no room, or no way to say it in this file. */
static void write_over(const struct superblock *superblock, const struct message *message,
                       const struct layout_message *layout)
{
    struct message written = *message;
    struct layout_message again;
    struct why why;
    unsigned char *bytes = malloc(message->size);
    require(bytes);
    memcpy(bytes, message->data, message->size);
    written.data = bytes;
    if (layout_message_encode_over(superblock, layout, bytes, message->size, &why) == 0) {
        require(layout_message_decode(superblock, &written, &again, &why) == 0);
        require(again.order == layout->order && again.n_sections == layout->n_sections &&
                again.offset_size == layout->offset_size && again.rank == layout->rank &&
                again.element_size == layout->element_size && again.index == layout->index &&
                again.address == layout->address);
    }
    free(bytes);
}

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
        layout_message_decode(&superblock, &message, &layout, &why) == 0) {
        layout_message_records(&layout, layout.single_filtered, &format, &why);
        write_over(&superblock, &message, &layout);
    }
    message.type = MESSAGE_FILTERS;
    if (section_filters_decode(&message, 0, 2, &filters, &why) == 0)
        section_filters_free(&filters);
    message.type = MESSAGE_SECTION_FILTERS;
    if (section_filters_decode(&message, 0, 3, &filters, &why) == 0)
        section_filters_free(&filters);
    return 0;
}
