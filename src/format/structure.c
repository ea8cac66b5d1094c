/* What all structures of the metadata have in common. */
#include "format/structure.h"

#include <inttypes.h>
#include <string.h>

#include "format/checksum.h"
#include "format/cursor.h"
#include "store/store.h"

int structure_within(const struct store *store, const char *name, uint64_t address, uint64_t n,
                     struct why *why)
{
    uint64_t end;
    if (__builtin_add_overflow(address, n, &end) || end > store_size(store))
        return why_damaged(why,
                           "%s at address %" PRIu64 ": its %" PRIu64
                           " bytes reach beyond the end of the file",
                           name, address, n);
    return 0;
}

int structure_read(struct store *store, const char *name, uint64_t address, void *bytes, size_t n,
                   struct why *why)
{
    int error = structure_within(store, name, address, n, why);
    if (error)
        return error;
    error = store_read(store, address, bytes, n);
    if (error)
        why_damaged(why, "%s at address %" PRIu64 ": it cannot be read", name, address);
    return error;
}

int structure_signed(const char *name, uint64_t address, const unsigned char *bytes,
                     const char signature[SIGNATURE_BYTES], struct why *why)
{
    if (memcmp(bytes, signature, SIGNATURE_BYTES) != 0)
        return why_damaged(why, "%s at address %" PRIu64 ": no signature %.4s", name, address,
                           signature);
    return 0;
}

int structure_summed(const char *name, uint64_t address, const unsigned char *bytes, size_t n,
                     struct why *why)
{
    struct cursor c = cursor_over(bytes + n - CHECKSUM_BYTES, CHECKSUM_BYTES);
    if (cursor_uint(&c, CHECKSUM_BYTES) != checksum(bytes, n - CHECKSUM_BYTES))
        return why_damaged(why, "%s at address %" PRIu64 ": wrong checksum", name, address);
    return 0;
}
