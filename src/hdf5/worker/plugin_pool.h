/* Filters that need plugins of libhdf5, in processes of their own, as many as there are processors:
 * each loads the plugins that are wanted, is confined then, and undoes and applies filters on bytes
 * that it shares with us. All of libhdf5's own filters run there, too. */
#ifndef SPARSEFS_HDF5_WORKER_PLUGIN_POOL_H
#define SPARSEFS_HDF5_WORKER_PLUGIN_POOL_H

#include "hdf5/hdf5.h"

/* Forks the process that those are forked from. memory: bytes of address space of each; timeout:
 * nanoseconds that a chunk, or loading the plugins, may take. hdf5_use_filters comes before.
 * Errors as of zygote_start. Not for threads. */
int plugins_start(size_t memory, uint64_t timeout);
bool plugins_run_apart(void);

/* plugin_available.c and plugin_ask.c: as the hdf5_filter_ functions of these names. -EIO also: the process has ended,
 * or cannot be started; hdf5_error() says which filter and why. -EINVAL of plugins_encode also: a filter makes more
 * than twice as many bytes and 1 MiB of them. Any thread. */
bool plugins_available(int id);
int plugins_decode(const struct filter_pipeline *pipeline, const void *in, size_t in_size,
                   void *out, size_t out_size);
int plugins_encode(struct filter_pipeline *pipeline, const void *in, size_t size, void **out,
                   size_t *out_size);

/* The parameters of a filter for chunks of such elements: as local_filter_complete. */
struct completed;
int plugins_complete(const struct sfs_filter *filter, const struct sfs_encoded *type, int rank,
                     const uint64_t *chunk_dims, struct completed *completed);

/* ---- Between the two processes ----
 *
 * First comes the size of the shared bytes as a size_t, and with it their descriptor; then messages
 * (channel.h), of which every call has one reply: an error, its reason, and what is said here. */
enum plugin_call {
    PLUGINS_LOAD,     /* bytes of address space; folders; ids: which of these there are */
    PLUGINS_DECODE,   /* bytes before and after; mask; filters */
    PLUGINS_ENCODE,   /* bytes before, and the most after; filters: bytes after, mask */
    PLUGINS_COMPLETE, /* bytes of the datatype, and the most after; rank, chunk dims; a filter:
                       * bytes of a struct completed, 0 */
    PLUGINS_CALLS
};

#define PLUGINS_MOST_IDS     64 /* that one process loads */
#define PLUGINS_MOST_FOLDERS 256

/* The bytes stand at the beginning of what is shared, and there is their result. */
static inline size_t plugins_place(size_t n)
{
    return n > SIZE_MAX - 63 ? SIZE_MAX : (n + 63) / 64 * 64;
}

#endif
