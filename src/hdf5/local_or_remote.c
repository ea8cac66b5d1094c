/* The calls of hdf5.h that read or change: libhdf5 does them here, or a worker where the file was
 * opened so.
 */
#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "hdf5/local.h"
#include "hdf5/own_reader.h"
#include "hdf5/private.h"
#include "hdf5/trusted_plugin_folders.h"
#include "hdf5/worker/answers_kept.h"
#include "hdf5/worker/confine.h"
#include "hdf5/worker/plugin_pool.h"
#include "hdf5/worker/remote.h"
#include "hdf5/worker/serve.h"
#include "hdf5/worker/zygote.h"
#include "store/store.h"

static uint64_t timeout;       /* nanoseconds; set before there are threads, as what follows */
static bool is_direct;         /* what needs no libhdf5 is answered without it */
static struct remote *nothing; /* a worker without a file, for datatypes; NULL: there are none */

/* What workers need of libhdf5 is made once. It reads its variables now, before they are overwritten
 * (confine_environment). There is no folder that those for prefixes could mean, and it would ask for one that it
 * does not have: whoever looks for other files for them knows the variables. libhdf5 may have been used before,
 * and keeps where their values stand: they are made empty there. */
static void prepare(void)
{
    static const char *const folders[] = {"HDF5_EXTFILE_PREFIX", "HDF5_VDS_PREFIX",
                                          "HDF5_EXT_PREFIX"};
    for (size_t i = 0; i < sizeof(folders) / sizeof(*folders); i++) {
        char *value = getenv(folders[i]);
        if (value)
            *value = '\0';
    }
    library_enter();
    (void)H5open(); /* if it fails it does so again in each */
    library_leave();
    nothing = NULL;
}

int hdf5_start_workers(size_t memory, uint64_t nanos)
{
    int error = zygote_start(&zygote_of_libhdf5, prepare, worker_serve, memory);
    if (!error) {
        timeout = nanos;
        error = plugins_start(memory, nanos);
    }
    return error ? error : remote_open(NULL, timeout, false, &nothing, NULL);
}

void hdf5_keep_answers(size_t bytes)
{
    answers_keep_most(bytes);
}

void hdf5_answer_directly(bool on)
{
    is_direct = on && confine_is_allowed();
}

bool hdf5_has_workers(void)
{
    return nothing != NULL;
}

int hdf5_open_in_worker(struct store *store, struct hdf5 **out)
{
    struct hdf5 *hdf5 = calloc(1, sizeof(*hdf5));
    if (!hdf5)
        return -ENOMEM;
    hdf5->file = H5I_INVALID_HID;
    hdf5->store = store;
    int error = store_is_following(store)  ? swmr_writer_look(store)
                : store_is_writable(store) ? file_free_rest(store)
                                           : 0;
    if (!error && store_is_writable(store))
        store_tell_own(store);
    if (!error)
        error = remote_open(store, timeout, is_direct && !store_is_following(store), &hdf5->remote,
                            &hdf5->root);
    if (error)
        free(hdf5);
    else
        *out = hdf5;
    return error;
}

/* Nothing of others is in a new file: ours makes it. */
int hdf5_create_in_worker(struct store *store, struct hdf5 **out)
{
    struct hdf5 *hdf5;
    int error = hdf5_create(store, &hdf5);
    if (error)
        return error;
    hdf5_close(hdf5);
    return hdf5_open_in_worker(store, out);
}

int hdf5_open(struct store *store, struct hdf5 **hdf5)
{
    return local_open(store, hdf5);
}

void hdf5_close(struct hdf5 *hdf5)
{
    if (!hdf5 || !hdf5->remote) {
        local_close(hdf5);
        return;
    }
    remote_close(hdf5->remote);
    free(hdf5);
}

/* Others may be reading the root. */
int hdf5_renew(struct hdf5 *hdf5)
{
    uint64_t root;
    if (!hdf5->remote)
        return local_renew(hdf5);
    int error = swmr_writer_look(hdf5->store);
    if (!error)
        error = remote_renew(hdf5->remote, &root);
    if (!error && hdf5->root != root)
        hdf5->root = root;
    return error;
}

bool hdf5_is_lost(const struct hdf5 *hdf5)
{
    return hdf5->remote && remote_is_lost(hdf5->remote);
}

int hdf5_begin(struct hdf5 *hdf5)
{
    return hdf5->remote ? remote_begin(hdf5->remote) : 0;
}

/* Another process has let go of all that it had changed by the end of each call. */
int hdf5_flush(struct hdf5 *hdf5)
{
    if (!hdf5->remote)
        return local_flush(hdf5);
    int error = remote_flush(hdf5->remote);
    if (!error)
        error = file_flush_pending(hdf5->store);
    return error ? library_failed_because(error, strerror(-error)) : 0;
}

int hdf5_write(struct hdf5 *hdf5, uint64_t dataset, const uint64_t *start, const uint64_t *count,
               const void *buffer)
{
    return hdf5->remote ? remote_write(hdf5->remote, dataset, start, count, buffer)
                        : local_write(hdf5, dataset, start, count, buffer);
}

int hdf5_write_sequences(struct hdf5 *hdf5, uint64_t dataset, const uint64_t *start,
                         const uint64_t *count, const struct hdf5_sequences *sequences)
{
    return hdf5->remote ? remote_write_sequences(hdf5->remote, dataset, start, count, sequences)
                        : local_write_sequences(hdf5, dataset, start, count, sequences);
}

int hdf5_set_extent(struct hdf5 *hdf5, uint64_t dataset, const uint64_t *dims)
{
    return hdf5->remote ? remote_set_extent(hdf5->remote, dataset, dims)
                        : local_set_extent(hdf5, dataset, dims);
}

int hdf5_write_chunks(struct hdf5 *hdf5, uint64_t dataset, const struct hdf5_stored *chunks,
                      unsigned n)
{
    return hdf5->remote ? remote_write_chunks(hdf5->remote, dataset, chunks, n)
                        : local_write_chunks(hdf5, dataset, chunks, n);
}

int hdf5_place(struct hdf5 *hdf5, uint64_t dataset, uint64_t *address, uint64_t n,
               const void *element)
{
    return hdf5->remote ? remote_place(hdf5->remote, dataset, address, n, element)
                        : local_place(hdf5, dataset, address, n, element);
}

int hdf5_create_group(struct hdf5 *hdf5, const char *path)
{
    return hdf5->remote ? remote_create_group(hdf5->remote, path) : local_create_group(hdf5, path);
}

int hdf5_remove_group(struct hdf5 *hdf5, const char *path)
{
    return hdf5->remote ? remote_remove_group(hdf5->remote, path) : local_remove_group(hdf5, path);
}

int hdf5_reopen(struct hdf5 *hdf5)
{
    return hdf5->remote ? remote_reopen(hdf5->remote) : local_reopen(hdf5);
}

int hdf5_unlink(struct hdf5 *hdf5, const char *path)
{
    return hdf5->remote ? remote_unlink(hdf5->remote, path) : local_unlink(hdf5, path);
}

int hdf5_create_link(struct hdf5 *hdf5, const char *path, const struct sfs_link *link,
                     const struct object_header *counted)
{
    if (link->type == SFS_LINK_USER)
        return -EOPNOTSUPP;
    return hdf5->remote ? remote_create_link(hdf5->remote, path, link, counted)
                        : local_create_link(hdf5, path, link);
}

/* One libhdf5 has both files, or none that could break it comes to the other. */
static int check_both(const struct hdf5 *to, const struct hdf5 *from)
{
    if (!from || !to->remote == !from->remote)
        return 0;
    library_reason("libhdf5 has one of the files open in another process, and not the other");
    return -EOPNOTSUPP;
}

static int create_either(struct hdf5 *hdf5, const char *path, bool is_dense,
                         const struct hdf5_create *create, uint64_t *address)
{
    struct hdf5 *from = create->attributes_from;
    int error = check_both(hdf5, from);
    if (error)
        return error;
    if (hdf5->remote)
        return remote_create_dataset(hdf5->remote, path, is_dense, create,
                                     from ? from->remote : NULL, address);
    return is_dense ? local_create_dense(hdf5, path, create, address)
                    : local_create_dataset(hdf5, path, create, address);
}

int hdf5_create_dataset(struct hdf5 *hdf5, const char *path, const struct hdf5_create *create,
                        uint64_t *address)
{
    return create_either(hdf5, path, false, create, address);
}

int hdf5_create_dense(struct hdf5 *hdf5, const char *path, const struct hdf5_create *create,
                      uint64_t *address)
{
    return create_either(hdf5, path, true, create, address);
}

int hdf5_copy_attributes(struct hdf5 *to, uint64_t object, struct hdf5 *from, uint64_t of)
{
    int error = check_both(to, from);
    return error        ? error
           : to->remote ? remote_copy_attributes(to->remote, object, from->remote, of)
                        : local_copy_attributes(to, object, from, of);
}

int hdf5_copy_object(struct hdf5 *to, const char *path, struct hdf5 *from, uint64_t of)
{
    int error = check_both(to, from);
    return error        ? error
           : to->remote ? remote_copy_object(to->remote, path, from->remote, of)
                        : local_copy_object(to, path, from, of);
}

int hdf5_copy_group(struct hdf5 *to, const char *path, struct hdf5 *from, uint64_t of)
{
    int error = check_both(to, from);
    return error        ? error
           : to->remote ? remote_copy_group(to->remote, path, from->remote, of)
                        : local_copy_group(to, path, from, of);
}

int hdf5_copy_references(struct hdf5 *to, const char *path, struct hdf5 *from, uint64_t of,
                         const struct sfs_moved *moved, size_t n)
{
    int error = check_both(to, from);
    return error        ? error
           : to->remote ? remote_copy_references(to->remote, path, from->remote, of, moved, n)
                        : local_copy_references(to, path, from, of,
                                                &(struct copied_paths){.moved = moved, .n = n});
}

int hdf5_list(struct hdf5 *hdf5, uint64_t group, struct sfs_links *links)
{
    return hdf5->remote ? remote_list(hdf5->remote, group, links) : local_list(hdf5, group, links);
}

int hdf5_lookup(struct hdf5 *hdf5, uint64_t group, const char *name, struct sfs_link *link)
{
    return hdf5->remote ? remote_lookup(hdf5->remote, group, name, link)
                        : local_lookup(hdf5, group, name, link);
}

int hdf5_find(struct hdf5 *hdf5, uint64_t group, const char *path, uint64_t *address)
{
    return hdf5->remote ? remote_find(hdf5->remote, group, path, address)
                        : local_find(hdf5, group, path, address);
}

int hdf5_object_type(struct hdf5 *hdf5, uint64_t address, enum sfs_object_type *type)
{
    return hdf5->remote ? remote_object_type(hdf5->remote, address, type)
                        : local_object_type(hdf5, address, type);
}

int hdf5_attributes(struct hdf5 *hdf5, uint64_t address, struct sfs_attributes *attributes)
{
    return hdf5->remote ? remote_attributes(hdf5->remote, address, attributes)
                        : local_attributes(hdf5, address, attributes);
}

int hdf5_dataset_open(struct hdf5 *hdf5, uint64_t address, struct sfs_dataset_info *info,
                      struct hdf5_storage *storage)
{
    return hdf5->remote ? remote_dataset_open(hdf5->remote, address, info, storage)
                        : local_dataset_open(hdf5, address, info, storage);
}

void hdf5_dataset_close(struct hdf5 *hdf5, uint64_t address)
{
    if (hdf5->remote)
        remote_dataset_close(hdf5->remote, address);
    else
        local_dataset_close(hdf5, address);
}

int hdf5_dataset_renew(struct hdf5 *hdf5, uint64_t address, int rank, struct hdf5_renewed *renewed)
{
    int error = hdf5->remote ? remote_dataset_renew(hdf5->remote, address, rank, renewed)
                             : local_dataset_renew(hdf5, address, rank, renewed);
    return error == -EBADF ? -ESTALE : error;
}

int hdf5_cache_sources(struct hdf5 *hdf5, uint64_t address, const char *path, size_t bytes)
{
    return hdf5->remote ? remote_cache_sources(hdf5->remote, address, path, bytes)
                        : local_cache_sources(hdf5, address, path, bytes);
}

int hdf5_mappings(struct hdf5 *hdf5, uint64_t address, struct hdf5_mappings *mappings)
{
    return hdf5->remote ? remote_mappings(hdf5->remote, address, mappings)
                        : local_mappings(hdf5, address, mappings);
}

int hdf5_locate(struct hdf5 *hdf5, uint64_t dataset, const uint64_t *start,
                struct hdf5_chunk *chunk)
{
    return hdf5->remote ? remote_locate(hdf5->remote, dataset, start, chunk)
                        : local_locate(hdf5, dataset, start, chunk);
}

int hdf5_read(struct hdf5 *hdf5, uint64_t dataset, const uint64_t *start, const uint64_t *count,
              const uint64_t *memory_dims, void *buffer)
{
    return hdf5->remote ? remote_read(hdf5->remote, dataset, start, count, memory_dims, buffer)
                        : local_read(hdf5, dataset, start, count, memory_dims, buffer);
}

int hdf5_text(struct hdf5 *hdf5, uint64_t dataset, size_t limit, char **text, size_t *n)
{
    return hdf5->remote ? remote_text(hdf5->remote, dataset, limit, text, n)
                        : local_text(hdf5, dataset, limit, text, n);
}

int hdf5_parts(struct hdf5 *hdf5, uint64_t dataset, const struct hdf5_parts *wanted, char **bytes,
               size_t *bytes_n)
{
    return hdf5->remote ? remote_parts(hdf5->remote, dataset, wanted, bytes, bytes_n)
                        : local_parts(hdf5, dataset, wanted, bytes, bytes_n);
}

int hdf5_paths(struct hdf5 *hdf5, uint64_t dataset, const struct hdf5_addresses *addresses,
               size_t most, char **lines, size_t *lines_n)
{
    return hdf5->remote ? remote_paths(hdf5->remote, dataset, addresses, most, lines, lines_n)
                        : local_paths(hdf5, addresses, most, lines, lines_n);
}

int hdf5_datatype_text(struct hdf5 *hdf5, uint64_t address, char **text)
{
    return hdf5->remote ? remote_datatype_text(hdf5->remote, address, text)
                        : local_datatype_text(hdf5, address, text);
}

/* A worker of the owner's file, or without one; none. */
static struct about about(const struct hdf5_owner *owner)
{
    return owner && owner->hdf5->remote ? (struct about){owner->hdf5->remote, &owner->object}
                                        : (struct about){nothing, NULL};
}

int hdf5_type_of_message(const struct hdf5_owner *owner, const void *message, size_t n, void **type,
                         size_t *type_n)
{
    struct about of = about(owner);
    return of.remote ? remote_type_of_message(&of, message, n, type, type_n)
                     : local_type_of_message(message, n, type, type_n);
}

int hdf5_type_describe(const struct hdf5_owner *owner, const void *type, size_t n,
                       struct sfs_type *description)
{
    struct about of = about(owner);
    return of.remote ? remote_type_describe(&of, type, n, description)
                     : local_type_describe(type, n, description);
}

int hdf5_type_size(const void *type, size_t n, size_t *size)
{
    struct about of = about(NULL);
    return of.remote ? remote_type_size(&of, type, n, size) : local_type_size(type, n, size);
}

bool hdf5_type_equal(const struct hdf5_owner *owner, const struct sfs_encoded *a,
                     const struct sfs_encoded *b)
{
    struct about of = about(owner);
    return of.remote ? remote_type_equal(&of, a, b)
                     : local_type_equal(a->bytes, a->n, b->bytes, b->n);
}

int hdf5_element_json(const struct hdf5_owner *owner, const void *type, size_t n,
                      const void *element, char **json)
{
    struct about of = about(owner);
    return of.remote ? remote_element_json(&of, type, n, element, json)
                     : local_element_json(type, n, element, json);
}

int hdf5_elements_text(const struct hdf5_owner *owner, const struct hdf5_elements *elements,
                       char **text, size_t *text_n)
{
    struct about of = about(owner);
    int error = of.remote ? direct_elements_text(elements, text, text_n) : -EAGAIN;
    return error != -EAGAIN ? error
           : of.remote      ? remote_elements_text(&of, elements, text, text_n)
                            : local_elements_text(elements, text, text_n);
}

int hdf5_element_parse(const void *type, size_t n, const char *text, void *element)
{
    struct about of = about(NULL);
    return of.remote ? remote_element_parse(&of, type, n, text, element)
                     : local_element_parse(type, n, text, element);
}

void hdf5_sift_plugins(void)
{
    plugin_folders_sift();
}

bool hdf5_filter_available(int id)
{
    return plugins_run_apart() ? plugins_available(id) : local_filter_available(id);
}

int hdf5_filter_decode(const struct filter_pipeline *pipeline, const void *in, size_t in_size,
                       void *out, size_t out_size)
{
    return plugins_run_apart() ? plugins_decode(pipeline, in, in_size, out, out_size)
                               : local_filter_decode(pipeline, in, in_size, out, out_size);
}

int hdf5_filter_encode(struct filter_pipeline *pipeline, const void *in, size_t size, void **out,
                       size_t *out_size)
{
    return plugins_run_apart() ? plugins_encode(pipeline, in, size, out, out_size)
                               : local_filter_encode(pipeline, in, size, out, out_size);
}
