/* What libhdf5's process changes of a file in one call: nothing of it is in the store before the
 * call has succeeded, all of it after. Bytes are kept in memory, space that it gets is allocated
 * and given back if the call fails, space that it frees is freed at the end.
 *
 * It may write to and free what is lent to it (store.h), and write one header that it is let; nothing
 * else. Not for several threads. */
#ifndef SPARSEFS_HDF5_WORKER_TRANSACTION_H
#define SPARSEFS_HDF5_WORKER_TRANSACTION_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct object_header;
struct store;
struct transaction;

/* Of a store that tells its own space, and outlives it. -ENOMEM. What could not be put into the
 * store is lost when it is destroyed. */
int transaction_create(struct store *store, struct transaction **transaction);
void transaction_destroy(struct transaction *transaction);

/* As the process sees the file. Errors of store_read. */
int transaction_read(struct transaction *transaction, uint64_t address, void *buffer, size_t n);

/* -EACCES: it is not lent, which transaction_write and transaction_free log. After this, errors of the
 * store, -ENOMEM and -EFBIG (too much in one call) the caller drops the transaction. */
int transaction_write(struct transaction *transaction, uint64_t address, const void *bytes,
                      size_t n);

/* From now on what is in these blocks may be written, too, though it is not lent; NULL: nothing. The header stays as
 * long. */
void transaction_let_write(struct transaction *transaction, const struct object_header *header);

/* Errors of store_allocate; -ENOSPC: the file would grow in this call by more than its disk has room for. */
int transaction_allocate(struct transaction *transaction, uint64_t n, uint64_t *address);
int transaction_free(struct transaction *transaction, uint64_t address, uint64_t n);

/* Whether nothing was changed since transaction_take or transaction_drop was last called. */
bool transaction_is_empty(const struct transaction *transaction);

/* Whether all that was written may be taken now: others may have claimed space since (store.h).
 * -EACCES, which is logged; errors of store_let_claim, of which -EINTR comes late (interrupt.h). */
int transaction_check(struct transaction *transaction);

/* All of it is the store's, or none. What the store cannot take for want of memory, or because it
 * cannot read what is beside it, waits here for transaction_put_taken. */
void transaction_take(struct transaction *transaction);
void transaction_drop(struct transaction *transaction);

/* Before a call, and before the store is committed: the store has all of those that were taken.
 * Errors of store_write_or_keep. */
int transaction_put_taken(struct transaction *transaction);

#endif
