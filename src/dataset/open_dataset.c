/* Open datasets: what their headers say, and which stay open without a user. */
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <utlist.h>

#include "cache/cache.h"
#include "common/box.h"
#include "common/interrupt.h"
#include "dataset/files_together.h"
#include "dataset/private.h"
#include "dataset/read_ahead.h"
#include "dataset/series.h"
#include "dataset/virtual_dataset.h"
#include "dataset/virtual_mapping.h"
#include "format/datatype_message.h"
#include "format/stored_layout.h"
#include "hdf5/hdf5.h"
#include "layout/sparse.h"
#include "store/store.h"

/* Unused datasets that are kept open, with their chunks in the cache; and bytes of what describes those
 * of a file, of which one that is not sparse may have more. */
#define MAX_UNUSED       256
#define MAX_UNUSED_BYTES ((size_t)8 << 20)

#define SEGMENT_NAME_BYTES 16 /* that memory of its own takes besides what is in it */

/* What header and index of a sparse dataset take as a rule is not counted: many are to stay open. */
#define UNCOUNTED_BYTES ((size_t)64 << 10)

/* The share of the cache's limit for libhdf5's own cache of the sources of a virtual dataset. */
#define SOURCES_SHARE 8

/* What it is, not what it should be by the file: libhdf5's process may have said more. */
static size_t described_bytes(const struct sfs_dataset *dataset)
{
    size_t n = sizeof(*dataset) + strlen(dataset->path) + hdf5_info_bytes(&dataset->info);
    n += slots_bytes(dataset->slots) + dataset->segment_bytes;
    size_t kept = dataset->sparse ? sparse_kept_bytes(dataset->sparse) : 0;
    n += kept > UNCOUNTED_BYTES ? kept - UNCOUNTED_BYTES : 0;
    return n + (dataset->virtual ? virtual_bytes(dataset->virtual) : 0);
}

size_t dataset_described_bytes(struct sfs_dataset *dataset)
{
    USING(dataset);
    return described_bytes(dataset);
}

bool dataset_is_gone(const struct sfs_dataset *dataset)
{
    return dataset->layout.lost == -ESTALE;
}

static void destroy_dataset(struct sfs_dataset *dataset)
{
    ahead_forget(dataset->file->ahead, dataset);
    cache_close_dataset(dataset->cache);
    protected_from_libhdf5_remove(dataset);
    if (dataset->sparse)
        sparse_close(dataset->sparse);
    else if (!series_is_address(dataset->address) && !dataset->is_replaced)
        hdf5_dataset_close(dataset->file->hdf5, dataset->address);
    hdf5_info_free(&dataset->info);
    free(dataset->raw_names);
    hdf5_segments_free(dataset->storage.n_segments, dataset->storage.segments);
    slots_free(dataset->slots);
    use_destroy(&dataset->use);
    series_free(dataset->series);
    free(dataset->path);
    free(dataset);
}

static int cannot_open(const struct sfs_dataset *dataset, int error, const char *reason,
                       struct why *why)
{
    store_say(dataset->file->store, why, "%s: cannot open the dataset at address %" PRIu64 ": %s",
              dataset->path, dataset->address, reason);
    return error;
}

struct hdf5_owner dataset_owner(const struct sfs_dataset *dataset)
{
    return (struct hdf5_owner){dataset->file->hdf5, dataset->address};
}

/* The filters of a section, copied into the description. */
static int copy_filters(const struct sparse *sparse, int section, size_t *n,
                        struct sfs_filter **filters)
{
    size_t count = sparse->header.filters.section[section].n;
    *filters = calloc(count ? count : 1, sizeof(**filters));
    if (!*filters)
        return -ENOMEM;
    for (size_t i = 0; i < count; i++) {
        struct sfs_filter *filter = &(*filters)[i];
        *filter = sparse->header.filters.section[section].filters[i];
        unsigned *values = calloc(filter->n_values ? filter->n_values : 1, sizeof(*values));
        if (!values)
            return -ENOMEM;
        if (filter->n_values > 0)
            memcpy(values, filter->values, filter->n_values * sizeof(*values));
        filter->values = values;
        *n = i + 1;
    }
    return 0;
}

/* Makes the description of a datatype with pointers what it is in the file. Where these are not
 * read, as references that have no slots there, the dataset has none, and members are where they are. Not by libhdf5,
 * which is not to choose where pointers are. */
static int describe_slots(struct sfs_dataset *dataset, struct sfs_dataset_info *info)
{
    struct why why;
    struct sfs_type stored;
    const struct dataset_header *header = &dataset->sparse->header;
    const struct layout_message *layout = &header->layout;
    int error = stored_layout(header->datatype.data, header->datatype.size, &stored, &why);
    bool is_known =
        !error && stored.size == layout->element_size && layout->n_sections == MAX_SECTIONS;
    if (is_known)
        error = slots_as_stored(&info->type, &why);
    if (is_known && !error)
        error = slots_of_type(&stored, &dataset->slots, &why);
    datatype_layout_free(&stored);
    info->type.size = (size_t)layout->element_size;
    return error == -EOPNOTSUPP ? 0 : error;
}

/* Type and fill value. */
static int describe_elements(struct sfs_dataset *dataset, struct sfs_dataset_info *info)
{
    const struct dataset_header *header = &dataset->sparse->header;
    struct hdf5_owner owner = dataset_owner(dataset);
    void *type = NULL;
    int error = hdf5_type_of_message(&owner, header->datatype.data, header->datatype.size, &type,
                                     &info->encoded_type.n);
    info->encoded_type.bytes = type;
    if (!error)
        error = hdf5_type_describe(&owner, type, info->encoded_type.n, &info->type);
    if (!error && info->type.has_pointers)
        error = describe_slots(dataset, info);
    if (error || info->type.has_pointers)
        return error;
    size_t size = (size_t)header->layout.element_size; /* as that of the datatype */
    char *fill = calloc(1, size);
    if (!fill)
        return -ENOMEM;
    if (header->fill.size > 0)
        memcpy(fill, header->fill.value, header->fill.size);
    info->type.size = size;
    hdf5_info_set_fill(info, fill);
    if (size > HDF5_MOST_FILL_JSON)
        return 0;
    char *json = NULL;
    error = hdf5_element_json(&owner, type, info->encoded_type.n, info->fill, &json);
    if (!error)
        hdf5_info_set_fill_json(info, json);
    return error;
}

/* Parameters of the encoding in the file. */
static void describe_encoding(const struct sfs_dataset *dataset, struct sfs_dataset_info *info)
{
    const struct dataset_header *header = &dataset->sparse->header;
    struct layout_message layout = header->layout;
    index_layout(dataset->sparse->index, &layout);
    info->index = layout_message_index(&layout);
    info->layout_message = layout.order;
    info->rfc_encoding = layout_message_is_rfc(&layout);
    info->is_dense = layout.first_section > 0;
    info->unfiltered_edges = layout.unfiltered_edges;
    info->allocation = header->fill.allocation;
    info->fill_time = header->fill.fill_time;
}

static int describe_sparse(struct sfs_dataset *dataset, struct why *why)
{
    const struct dataset_header *header = &dataset->sparse->header;
    struct sfs_dataset_info *info = &dataset->info;
    info->space = header->dataspace.space;
    info->rank = header->dataspace.rank;
    memcpy(info->dims, header->dataspace.dims, sizeof(info->dims));
    memcpy(info->max_dims, header->dataspace.max_dims, sizeof(info->max_dims));
    if (!box_product(info->dims, info->rank, 1, &info->elements))
        info->elements = UINT64_MAX;
    info->layout = SFS_SPARSE;
    memcpy(info->chunk_dims, header->layout.chunk_dims, sizeof(info->chunk_dims));
    describe_encoding(dataset, info);
    if (header->layout.element_size > HDF5_MOST_ELEMENT_BYTES)
        return cannot_open(dataset, -EIO, "its elements have too many bytes", why);
    int error = copy_filters(dataset->sparse, 1, &info->n_filters, &info->filters);
    if (!error)
        error =
            copy_filters(dataset->sparse, 0, &info->n_selection_filters, &info->selection_filters);
    if (!error)
        error = copy_filters(dataset->sparse, 2, &info->n_heap_filters, &info->heap_filters);
    if (!error)
        error = describe_elements(dataset, info);
    if (error == -EIO || error == -EINVAL)
        return cannot_open(dataset, -EIO, hdf5_error(), why);
    if (!error && header->layout.n_sections == MAX_SECTIONS && !info->type.has_pointers)
        return cannot_open(dataset, -EIO, "sections of variable-length data, but it has none", why);
    return error;
}

/* Opens what the header at the dataset's address describes, sparse or dense, and describes it. */
static int open_header(struct sfs_dataset *dataset, struct why *why)
{
    struct sfs_file *file = dataset->file;
    struct why reason;
    int error =
        sparse_open(file->store, &file->superblock, dataset_store_address(file, dataset->address),
                    &dataset->sparse, &reason);
    if (!error)
        return describe_sparse(dataset, why);
    if (error == -EIO || error == -EILSEQ || error == -EOPNOTSUPP)
        return cannot_open(dataset, error == -EOPNOTSUPP ? error : -EIO, reason.text, why);
    if (error != -EINVAL)
        return error;
    error = hdf5_dataset_open(file->hdf5, dataset->address, &dataset->info, &dataset->storage);
    for (size_t i = 0; !error && i < dataset->storage.n_segments; i++)
        dataset->segment_bytes += sizeof(*dataset->storage.segments) + sizeof(*dataset->raw_names) +
                                  SEGMENT_NAME_BYTES + strlen(dataset->storage.segments[i].name);
    if (!error)
        error = external_files_list(dataset);
    if (!error && dataset->info.layout == SFS_VIRTUAL)
        error = virtual_open(dataset, NULL, &dataset->virtual);
    if (!error && dataset->info.layout == SFS_VIRTUAL && !dataset->virtual && !file->follows)
        error = hdf5_cache_sources(file->hdf5, dataset->address, dataset->path,
                                   cache_limit(file->cache) / SOURCES_SHARE);
    return error == -EIO ? cannot_open(dataset, error, hdf5_error(), why) : error;
}

/* The same of a series, whose description is taken over, and all of it if it may grow. */
static int open_series(struct sfs_dataset *dataset, struct series **of)
{
    struct series *series = *of;
    dataset->info = series->info;
    series->info = (struct sfs_dataset_info){0};
    if (dataset->file->follows) {
        dataset->series = series;
        *of = NULL;
    }
    return virtual_open(dataset, series, &dataset->virtual);
}

/* series: *series is NULL, or what it is then, which is taken from the caller if it is NULL after
 * that. Here and in what follows. */
static int open_dataset(struct sfs_file *file, uint64_t address, const char *path,
                        struct series **series, struct sfs_dataset **out, struct why *why)
{
    struct sfs_dataset *dataset = calloc(1, sizeof(*dataset));
    char *own_path = strdup(path);
    if (!dataset || !own_path || use_init(&dataset->use) < 0) {
        free(dataset);
        free(own_path);
        return -ENOMEM;
    }
    dataset->file = file;
    dataset->use.all = &file->use;
    dataset->address = address;
    dataset->path = own_path;
    int error = *series ? open_series(dataset, series) : open_header(dataset, why);
    dataset_look_for_filters(dataset->info.n_filters, dataset->info.filters);
    dataset_look_for_filters(dataset->info.n_selection_filters, dataset->info.selection_filters);
    dataset_look_for_filters(dataset->info.n_heap_filters, dataset->info.heap_filters);
    dataset->layout = (struct layout){
        .store = file->store,
        .hdf5 = file->hdf5,
        .info = &dataset->info,
        .dataset = address,
        .path = own_path,
        .slots = dataset->slots,
        .fill_missing = file->fill_missing,
        .sparse = dataset->sparse,
        .said_missing = sfs_missing_filter(&dataset->info) ? &dataset->said_missing : NULL,
        .commit_lock = &file->commit_lock,
    };
    if (!error && (dataset->sparse || !dataset->info.type.has_pointers))
        error = layout_init(&dataset->layout, &dataset->storage, cache_limit(file->cache), why);
    dataset->committed_end = dataset->flush_end = dataset->layout.dims[0];
    if (!error && dataset->layout.ops) {
        error = cache_open_dataset(file->cache, &dataset->layout, &dataset->cache);
    } else if (!error) { /* so that virtual datasets find the dims of their sources */
        bool is_scalar = dataset->info.space == SFS_SPACE_SCALAR;
        dataset->layout.rank = is_scalar ? 1 : dataset->info.rank;
        memcpy(dataset->layout.dims, dataset->info.dims, sizeof(dataset->layout.dims));
        if (is_scalar)
            dataset->layout.dims[0] = 1;
    }
    if (error) {
        virtual_close(dataset->virtual); /* none of its sources is open */
        destroy_dataset(dataset);
    } else {
        protected_from_libhdf5_add(dataset);
        *out = dataset;
    }
    return error;
}

static bool is_open(struct sfs_file *file, uint64_t address)
{
    struct sfs_dataset *dataset;
    pthread_mutex_lock(&file->lock);
    HASH_FIND(hh, file->datasets, &address, sizeof(address), dataset);
    pthread_mutex_unlock(&file->lock);
    return dataset;
}

static int add_dataset(struct sfs_file *file, uint64_t address, const char *path,
                       struct series **series, struct sfs_dataset **out, struct why *why)
{
    struct sfs_dataset *dataset;
    int error = hard_link_look(file, address);
    if (!error)
        error = open_dataset(file, address, path, series, &dataset, why);
    if (error)
        return error;
    HASH_ADD(hh, file->datasets, address, sizeof(dataset->address), dataset);
    if (hash_failed()) {
        virtual_close(dataset->virtual);
        destroy_dataset(dataset);
        return -ENOMEM;
    }
    if (file->is_committing) /* which leaves out what comes to be from now on */
        unfinished_begin_commit(dataset, false);
    *out = dataset;
    return 0;
}

/* Those who use what is gone keep it, but it is found no more. The file's lock is held. */
static void replace_gone(struct sfs_dataset *dataset)
{
    struct sfs_file *file = dataset->file;
    if (dataset->users == 0) {
        (void)dataset_drop(dataset); /* libhdf5 reads virtual ones of a followed file */
        return;
    }
    HASH_DEL(file->datasets, dataset);
    if (!dataset->sparse)
        hdf5_dataset_close(file->hdf5, dataset->address);
    dataset->is_replaced = true;
}

/* *out is NULL if it is a series that is not open, and was not looked at. */
static int find_or_open(struct sfs_file *file, uint64_t address, const char *path,
                        struct series **series, struct sfs_dataset **out, struct why *why)
{
    struct sfs_dataset *dataset;
    *out = NULL;
    int error = interrupt_lock(&file->lock); /* it is held while one is opened */
    if (error)
        return error;
    HASH_FIND(hh, file->datasets, &address, sizeof(address), dataset);
    if (dataset && dataset_is_gone(dataset)) {
        replace_gone(dataset);
        dataset = NULL;
    }
    if (!dataset && (*series || !series_is_address(address))) {
        error = add_dataset(file, address, path, series, &dataset, why);
    } else if (dataset && dataset->users == 0) {
        dataset_is_used(dataset);
    }
    if (!error && dataset)
        dataset->users++;
    *out = error ? NULL : dataset;
    pthread_mutex_unlock(&file->lock);
    return error;
}

/* Members of a series may be in this file, and are opened without its lock. */
static int open_once(struct sfs_file *file, uint64_t address, const char *path,
                     struct sfs_dataset **dataset, struct why *why)
{
    FOLLOWED(file);
    struct sfs_dataset *found = NULL;
    int error = library_current(file);
    while (!error && !found) {
        struct series *series = NULL;
        if (series_is_address(address) && !is_open(file, address))
            error = series_open(file, address, path, &series, why);
        if (!error)
            error = find_or_open(file, address, path, &series, &found, why);
        series_free(series);
    }
    if (!error)
        *dataset = found;
    return error;
}

int file_dataset(struct sfs_file *file, uint64_t address, const char *path,
                 struct sfs_dataset **dataset, struct why *why)
{
    int error = FOLLOWING(file, open_once(file, address, path, dataset, why));
    if (!error && (*dataset)->info.layout == SFS_EXTERNAL)
        external_files_look_at(*dataset);
    return error;
}

int sfs_dataset_open(struct sfs_file *file, uint64_t address, const char *path,
                     struct sfs_dataset **dataset)
{
    return file_dataset(file, address, path, dataset, NULL);
}

uint64_t sfs_dataset_address(const struct sfs_dataset *dataset)
{
    return dataset->address;
}

/* Whether closing an unused dataset loses nothing, and no commit has it (header_differs). Chunks that cannot be stored
 * now stay in memory, and sfs_flush reports the error. */
static bool can_go(struct sfs_dataset *dataset)
{
    if (!dataset->cache || !store_is_writable(dataset->file->store))
        return true;
    int error = cache_flush(dataset->file->cache, dataset->cache);
    if (!error && dataset->sparse)
        error = hard_link_look(dataset->file, dataset->address);
    if (!error && dataset->sparse) {
        pthread_rwlock_wrlock(&dataset->file->commit_lock);
        error = atomic_load(&dataset->header_differs) ? -EBUSY : sparse_flush(&dataset->layout);
        pthread_rwlock_unlock(&dataset->file->commit_lock);
    }
    return error == 0 && !atomic_load(&dataset->header_differs);
}

void dataset_is_used(struct sfs_dataset *dataset)
{
    struct sfs_file *file = dataset->file;
    DL_DELETE(file->unused, dataset);
    file->n_unused--;
    file->unused_bytes -= dataset->unused_bytes;
}

static void is_unused(struct sfs_dataset *dataset)
{
    struct sfs_file *file = dataset->file;
    DL_APPEND(file->unused, dataset);
    file->n_unused++;
    dataset->unused_bytes = described_bytes(dataset);
    file->unused_bytes += dataset->unused_bytes;
}

/* The last one stays, unless it is sparse: those are soon opened again. */
static bool are_too_many(const struct sfs_file *file)
{
    return file->n_unused > MAX_UNUSED ||
           (file->unused_bytes > MAX_UNUSED_BYTES && (file->n_unused > 1 || file->unused->sparse));
}

struct virtual *dataset_drop(struct sfs_dataset *dataset)
{
    struct sfs_file *file = dataset->file;
    struct virtual *virtual = dataset->virtual;
    dataset_is_used(dataset);
    HASH_DEL(file->datasets, dataset);
    destroy_dataset(dataset);
    return virtual;
}

void sfs_dataset_close(struct sfs_dataset *dataset)
{
    if (!dataset)
        return;
    struct sfs_file *file = dataset->file;
    pthread_mutex_lock(&file->lock);
    bool is_last = --dataset->users == 0;
    if (is_last && dataset->is_replaced)
        destroy_dataset(dataset);
    else if (is_last)
        is_unused(dataset);
    while (is_last && are_too_many(file) && can_go(file->unused)) {
        struct virtual *virtual = dataset_drop(file->unused);
        pthread_mutex_unlock(&file->lock);
        virtual_close(virtual); /* which closes its sources, perhaps in this file */
        pthread_mutex_lock(&file->lock);
    }
    pthread_mutex_unlock(&file->lock);
}

/* Closing one closes its sources, which may be in this file: then others that nobody uses are dropped, also the dataset
 * that it is of. */
void dataset_close_virtual(struct sfs_file *file)
{
    struct sfs_dataset *dataset, *next;
    struct virtual *all = NULL;
    HASH_ITER (hh, file->datasets, dataset, next) {
        ahead_forget(file->ahead, dataset);
        if (dataset->virtual) {
            dataset->virtual->next = all;
            all = dataset->virtual;
            dataset->virtual = NULL;
        }
    }
    while (all) {
        struct virtual *virtual = all;
        all = virtual->next;
        virtual_close(virtual);
    }
}

void dataset_close_all(struct sfs_file *file)
{
    struct sfs_dataset *dataset, *next;
    HASH_ITER (hh, file->datasets, dataset, next) {
        HASH_DEL(file->datasets, dataset);
        destroy_dataset(dataset);
    }
}

const struct sfs_dataset_info *sfs_dataset_info(const struct sfs_dataset *dataset)
{
    return &dataset->info;
}

uint64_t sfs_dataset_dims(struct sfs_dataset *dataset, uint64_t *dims)
{
    if (!dims)
        return atomic_load(&dataset->use.extents);
    USING(dataset);
    memcpy(dims, dataset->info.dims, (size_t)dataset->info.rank * sizeof(*dims));
    return atomic_load(&dataset->use.extents);
}

int sfs_virtual_sources(struct sfs_dataset *dataset, size_t most, struct sfs_sources *sources)
{
    USING(dataset);
    struct sfs_sources found;
    int error = dataset->virtual ? virtual_sources(dataset->virtual, most, &found) : -EOPNOTSUPP;
    if (!error)
        *sources = found;
    return error;
}

void sfs_sources_free(struct sfs_sources *sources)
{
    if (!sources)
        return;
    for (size_t i = 0; i < sources->n; i++) {
        free(sources->source[i].file);
        free(sources->source[i].dataset);
    }
    free(sources->source);
    *sources = (struct sfs_sources){0};
}
