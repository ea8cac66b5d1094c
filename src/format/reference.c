#include "format/reference.h"

#include "format/cursor.h"
#include "format/output.h"

bool reference_may_have(enum sfs_reference reference, uint64_t n)
{
    if (n == 0)
        return true;
    return reference == SFS_REFERENCE_OBJECT ? n == REFERENCE_ADDRESS_BYTES
                                             : n > REFERENCE_ADDRESS_BYTES;
}

uint64_t reference_address(const void *stored, size_t n)
{
    struct cursor cursor = cursor_over(stored, n);
    return cursor_uint(&cursor, REFERENCE_ADDRESS_BYTES);
}

size_t reference_set_address(void *stored, size_t n, uint64_t address)
{
    if (n < REFERENCE_ADDRESS_BYTES || address == 0)
        return 0;
    struct output output = output_over(stored, REFERENCE_ADDRESS_BYTES);
    output_uint(&output, address, REFERENCE_ADDRESS_BYTES);
    return n;
}
