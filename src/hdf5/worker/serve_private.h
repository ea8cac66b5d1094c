/* Shared by the files serve*.c only. */
#ifndef SPARSEFS_HDF5_WORKER_SERVE_PRIVATE_H
#define SPARSEFS_HDF5_WORKER_SERVE_PRIVATE_H

#include "hdf5/hdf5.h"
#include "hdf5/worker/wire.h"

/* Each takes the arguments of a call, does it, and puts its results. */
typedef int (*call_function)(struct cursor *in, struct wire *out);

/* The file that is served. */
struct hdf5 *serve_file(void);

/* A store that reads over the socket; its description is what follows in the message. */
int serve_open_store(struct cursor *cursor, const char *name, struct store **store);

/* Whether what names another file is the source of a copy. */
bool serve_is_source(const struct store *store);

/* Where an object of the source is in the copy; NULL: nowhere. Good until the next one. */
const char *serve_path_of_copy(uint64_t address);

/* The result of a call that changes the file; returns the error. */
int serve_put_number(struct wire *out, int error, uint64_t number);

struct sfs_encoded serve_take_encoded(struct cursor *in);

/* New datasets, and what is copied from another file (serve_copy.c). */
int serve_create_dataset(struct cursor *in, struct wire *out);
int serve_copy_attributes(struct cursor *in, struct wire *out);
int serve_copy_object(struct cursor *in, struct wire *out);
int serve_copy_group(struct cursor *in, struct wire *out);
int serve_copy_references(struct cursor *in, struct wire *out);

#endif
