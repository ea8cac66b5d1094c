/* Reading the superblock. */
#include "format/superblock.h"

#define VERSION_AT         8 /* behind the signature */
#define FLAGS_AT           11
#define OPEN_FOR_WRITING   0x01
#define SINGLE_WRITER_OPEN 0x04

int superblock_is_marked(const unsigned char bytes[SUPERBLOCK_BYTES])
{
    return bytes[VERSION_AT] >= 3 &&
           (bytes[FLAGS_AT] & (OPEN_FOR_WRITING | SINGLE_WRITER_OPEN)) != 0;
}
