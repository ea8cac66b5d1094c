/* What all structures of the metadata have in common. */
#include "format/structure.h"

#include <errno.h>
#include <inttypes.h>
#include <string.h>

#include "common/deadline.h"
#include "format/checksum.h"
#include "format/cursor.h"
#include "format/output.h"
#include "format/superblock.h"
#include "store/store.h"

#define PIECE_BYTES ((size_t)1 << 20) /* that are read between two looks at the deadline */

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

static int read_pieces(struct store *store, uint64_t address, char *bytes, size_t n,
                       struct why *disk)
{
    int error = 0;
    for (size_t done = 0, part; done < n && !error; done += part) {
        part = n - done < PIECE_BYTES ? n - done : PIECE_BYTES;
        error = deadline_check();
        if (!error)
            error = store_read_why(store, address + done, bytes + done, part, disk);
    }
    return error;
}

int structure_read(struct store *store, const char *name, uint64_t address, void *bytes, size_t n,
                   struct why *why)
{
    int error = structure_within(store, name, address, n, why);
    if (error)
        return error;
    struct why disk;
    disk.text[0] = 0;
    error = read_pieces(store, address, bytes, n, &disk);
    if (!error)
        return 0;
    if (disk.text[0])
        store_say(store, NULL, "%s", disk.text);
    return why_refused(why, error, "%s at address %" PRIu64 ": %s", name, address,
                       disk.text[0] ? disk.text : "it cannot be read");
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

void structure_sum(unsigned char *bytes, size_t n)
{
    struct output output = output_over(bytes + n - CHECKSUM_BYTES, CHECKSUM_BYTES);
    output_uint(&output, checksum(bytes, n - CHECKSUM_BYTES), CHECKSUM_BYTES);
}

int structure_write(struct store *store, const char *name, uint64_t address, const void *bytes,
                    size_t n, struct why *why)
{
    /* A structure must not be written in half: what the disk refuses now, the commit writes. */
    int error = store_write_or_keep(store, address, bytes, n);
    return error ? why_refused(why, error, "%s at address %" PRIu64 ": it cannot be written", name,
                               address)
                 : 0;
}

int structure_allocate(struct store *store, const struct superblock *superblock, const char *name,
                       uint64_t n, uint64_t *address, struct why *why)
{
    uint64_t found, end;
    int error = store_allocate(store, n, &found);
    if (error)
        return why_refused(why, error, "%s: no space for its %" PRIu64 " bytes", name, n);
    if (__builtin_add_overflow(found, n, &end) || !superblock_address_fits(superblock, end)) {
        store_free(store, found, n); /* it cannot be used either way */
        return why_refused(why, -EFBIG, "%s: the file is full: its addresses have %u bytes", name,
                           superblock->offset_size);
    }
    *address = found;
    return 0;
}
