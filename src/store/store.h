/* The store: bytes at addresses of one file, under everything. It knows nothing of HDF5.
 * Today it is read-only over a file; every function may be called from any thread. */
#ifndef SPARSEFS_STORE_STORE_H
#define SPARSEFS_STORE_STORE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/stat.h>
#include <sys/statvfs.h>

struct store;

/* Opens path for reading and takes a shared lock, by the rules of libhdf5 for the environment
 * variable HDF5_USE_FILE_LOCKING: FALSE or 0, no lock; BEST_EFFORT or unset, file systems that have
 * no locks are no error; else they are. Errors are those of open(2); -EBUSY: locked by a writer;
 * -EINVAL: not a regular file. */
int store_open(const char *path, struct store **store);
void store_close(struct store *store);

const char *store_path(const struct store *store);

/* Bytes in the store: as of opening, and what was allocated since. */
uint64_t store_size(const struct store *store);

int store_stat(const struct store *store, struct stat *st);
int store_statvfs(const struct store *store, struct statvfs *st);

/* Reads exactly n bytes at address. -EIO: not all of them are in the file, or the disk failed. */
int store_read(struct store *store, uint64_t address, void *buffer, size_t n);

/* The same bytes where they lie in memory already, mapped from the file; NULL if they cannot be
 * mapped. Only for handing to a system call: if the file shrinks meanwhile, the kernel says EFAULT
 * there, but touching them here would end the process. */
const void *store_view(struct store *store, uint64_t address, size_t n);

/* Whether the two are the same file. */
bool store_is_same(const struct store *a, const struct store *b);

/* Opens for reading and writing; creates an empty store. */
int store_open_writable(const char *path, struct store **store);
int store_create(const char *path, struct store **store);

/* Writes n bytes at address, within the store. Reading sees them at once; they are durable after
 * store_commit. */
int store_write(struct store *store, uint64_t address, const void *bytes, size_t n);

/* Space for n bytes; store_free gives it back, to be used again after the next commit. */
int store_allocate(struct store *store, uint64_t n, uint64_t *address);
int store_free(struct store *store, uint64_t address, uint64_t n);
int store_commit(struct store *store);

/* Read calls and bytes read since the store was opened. */
void store_counters(const struct store *store, uint64_t *reads, uint64_t *bytes);

#endif
