/* One structure of the file's metadata, in the store: bounds, signature and checksum, which are the
 * same for all of them. */
#ifndef SPARSEFS_FORMAT_STRUCTURE_H
#define SPARSEFS_FORMAT_STRUCTURE_H

#include <stddef.h>
#include <stdint.h>

#include "common/why.h"

struct store;
struct superblock;

#define SIGNATURE_BYTES 4
#define CHECKSUM_BYTES  4

/* Whether n bytes at address lie in the store. name is that of the structure, for why. -EILSEQ. */
int structure_within(const struct store *store, const char *name, uint64_t address, uint64_t n,
                     struct why *why);

/* Reads exactly n bytes at address. -EILSEQ: they lie beyond the end of the store; -EIO: the store
 * failed and has logged it, why says where, too; -ETIMEDOUT (common/deadline.h); other errors of
 * store_read (STORE_MOVED, -ESTALE). */
int structure_read(struct store *store, const char *name, uint64_t address, void *bytes, size_t n,
                   struct why *why);

/* Whether n bytes, read from address, begin with this signature. n >= SIGNATURE_BYTES. */
int structure_signed(const char *name, uint64_t address, const unsigned char *bytes,
                     const char signature[SIGNATURE_BYTES], struct why *why);

/* Whether n bytes, read from address, end with the checksum of those before. n >= CHECKSUM_BYTES.
 */
int structure_summed(const char *name, uint64_t address, const unsigned char *bytes, size_t n,
                     struct why *why);

/* Puts the checksum of the bytes before at the end of n bytes. */
void structure_sum(unsigned char *bytes, size_t n);

/* Writes n bytes at address. Errors are those of the store, which has logged them; why says where.
 */
int structure_write(struct store *store, const char *name, uint64_t address, const void *bytes,
                    size_t n, struct why *why);

/* Space for a structure of n bytes. -EFBIG: the addresses of this file are too narrow for where it
 * would be; and the errors of the store. why says which. */
int structure_allocate(struct store *store, const struct superblock *superblock, const char *name,
                       uint64_t n, uint64_t *address, struct why *why);

#endif
