/* New groups and datasets. A sparse dataset is made in two steps: libhdf5 makes an ordinary chunked
 * one with all its attributes, then its header is turned into that of a sparse one, which libhdf5
 * never opens again. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "common/interrupt.h"
#include "common/log.h"
#include "common/type_references.h"
#include "dataset/private.h"
#include "dataset/series.h"
#include "filter/filter.h"
#include "format/datatype_message.h"
#include "format/stored_layout.h"
#include "hdf5/hdf5.h"
#include "layout/sparse.h"
#include "store/store.h"

static int refused(const struct sfs_file *file, const char *path, int error, const char *why)
{
    if (error != -ENOMEM && error != -EINTR && error != STORE_MOVED)
        log_error("%s: %s: cannot create it: %s", sfs_path(file), path, why);
    return error == -EILSEQ || error == -EIO ? -EIO : error;
}

int sfs_group_create(struct sfs_file *file, const char *path)
{
    WRITING(file);
    if (writing.error)
        return writing.error;
    int error = interrupt_rdlock(&file->commit_lock);
    if (error)
        return error;
    error = hdf5_create_group(file->hdf5, path);
    pthread_rwlock_unlock(&file->commit_lock);
    return error ? refused(file, path, error, hdf5_error()) : 0;
}

int sfs_group_remove(struct sfs_file *file, const char *path)
{
    WRITING(file);
    if (writing.error)
        return writing.error;
    int error = interrupt_rdlock(&file->commit_lock);
    if (error)
        return error;
    error = hdf5_remove_group(file->hdf5, path);
    pthread_rwlock_unlock(&file->commit_lock);
    if (error == -EIO)
        log_error("%s: %s: cannot remove it: %s", sfs_path(file), path, hdf5_error());
    return error;
}

static int copy_attributes(struct sfs_file *to, uint64_t to_address, struct sfs_file *from,
                           uint64_t from_address)
{
    FOLLOWED(from);
    int error = library_current(from);
    if (error)
        return error;
    pthread_rwlock_rdlock(&to->commit_lock);
    error = hdf5_copy_attributes(to->hdf5, to_address, from->hdf5, from_address);
    pthread_rwlock_unlock(&to->commit_lock);
    return error == -EEXIST
               ? error
               : object_failed(to, "attributes of the object", to_address, error, NULL);
}

int sfs_attributes_copy(struct sfs_file *to, uint64_t to_address, struct sfs_file *from,
                        uint64_t from_address)
{
    WRITING(to);
    if (writing.error)
        return writing.error;
    if (series_is_address(from_address))
        return 0;
    int error = follow_begin_copy(from);
    if (!error)
        error = copy_attributes(to, to_address, from, from_address);
    return follow_end_copy(from, error);
}

/* Filters whose parameters hold the number of elements of a chunk, which sections do not all have.
 * Where they may be left out they are left out of other sections; else they count those of each. */
static bool keeps_count(const struct sfs_filter *filter)
{
    return !filter->optional && (filter->id == FILTER_NBIT || filter->id == FILTER_SCALE);
}

/* Lets the filters of the values section that libhdf5 has completed do so, which takes parameters
 * for other datatypes, too: what they do to one element tells. */
static int count_each_section(struct sfs_dataset_info *info)
{
    struct filter_pipeline first = {1, info->filters, 0};
    size_t place, n;
    void *encoded;
    if (info->n_filters == 0 || !keeps_count(info->filters) ||
        !filter_counts_elements(info->filters, &place))
        return 0;
    ((unsigned *)info->filters->values)[place] = 0;
    void *element = calloc(1, info->type.size);
    if (!element)
        return -ENOMEM;
    int error = filters_encode(&first, element, info->type.size, &encoded, &n);
    if (!error)
        free(encoded);
    free(element);
    return error;
}

/* As chunks store them. */
struct elements {
    size_t size;
    int n_sections;
};

static bool in_structured_chunks(const struct sfs_dataset_create *create)
{
    return !create->is_dense || create->is_structured;
}

/* Those with parts of variable length in structured chunks; others are libhdf5's, and their sizes do
 * not matter. */
static int check_pointers(const struct sfs_file *file, const char *path, bool in_structured_chunks,
                          struct sfs_type *type)
{
    struct slots *slots;
    struct why why;
    if (!in_structured_chunks)
        return hdf5_spoils(type) ? refused(file, path, -EOPNOTSUPP, HDF5_SPOILS)
               : !type_has_references(type)
                   ? 0
                   : refused(file, path, -EOPNOTSUPP,
                             "elements with references cannot be written to dense datasets");
    int error = slots_as_stored(type, &why);
    if (!error)
        error = slots_of_type(type, &slots, &why);
    if (error)
        return refused(file, path, error, why.text);
    slots_free(slots);
    return 0;
}

static bool has_sequences(const struct sfs_type *type)
{
    bool has =
        type->class == SFS_VARIABLE || (type->class == SFS_ARRAY && has_sequences(type->base));
    for (size_t i = 0; i < type->n_members && type->class == SFS_COMPOUND; i++)
        has |= has_sequences(&type->members[i].type);
    return has;
}

static int check_type(const struct sfs_file *file, const char *path,
                      const struct sfs_dataset_create *create, struct elements *elements)
{
    struct sfs_type type;
    int error = hdf5_type_describe(NULL, create->type.bytes, create->type.n, &type);
    if (error)
        return refused(file, path, error, hdf5_error());
    if (type.has_pointers)
        error = check_pointers(file, path, in_structured_chunks(create), &type);
    bool is_unfilled = create->fill_time == SFS_FILL_NEVER && has_sequences(&type);
    bool is_variable = type.has_pointers, has_heap = is_variable && in_structured_chunks(create);
    elements->n_sections = has_heap ? MAX_SECTIONS : MAX_SECTIONS - 1;
    elements->size = type.size;
    hdf5_type_free(&type);
    if (error)
        return error;
    if (create->is_structured && !has_heap)
        return refused(file, path, -EOPNOTSUPP,
                       "structured chunks of dense data are of elements of variable length");
    if (create->is_structured && create->n_filters[0] > 0)
        return refused(file, path, -EINVAL, "there is no section of selections");
    if (is_variable && create->fill)
        return refused(file, path, -EOPNOTSUPP,
                       "elements of variable length have no fill value but the empty one");
    if (is_unfilled)
        return refused(file, path, -EINVAL,
                       "elements of variable length are filled: the fill time cannot be never");
    if (!has_heap && create->n_filters[MAX_SECTIONS - 1] > 0)
        return refused(file, path, -EINVAL, "there is no section of variable-length data");
    return 0;
}

/* A datatype that can be written, and filters that can be run. */
static int check_elements(const struct sfs_file *file, const char *path,
                          const struct sfs_dataset_create *create, struct elements *elements)
{
    int error = check_type(file, path, create, elements);
    if (error)
        return error;
    for (int section = 0; section < MAX_SECTIONS; section++) {
        size_t n = create->n_filters[section];
        const struct sfs_filter *filters = create->filters[section];
        bool native = filter_is_native(&(struct filter_pipeline){n, filters, 0});
        if (n > MAX_FILTERS)
            return refused(file, path, -EINVAL, "too many filters");
        for (size_t i = 0; i < n; i++) {
            if (keeps_count(&filters[i]) && in_structured_chunks(create) &&
                (section != 1 || i != 0))
                return refused(file, path, -EOPNOTSUPP,
                               "nbit and scale-offset must be the first filter of the values, or "
                               "optional");
            if (!filters[i].optional && !native && !hdf5_filter_available(filters[i].id))
                return refused(file, path, -EOPNOTSUPP, "a filter is not available");
        }
    }
    return 0;
}

/* A series has none. */
static bool has_attributes(const struct sfs_dataset_create *create)
{
    return create->attributes_file && !series_is_address(create->attributes_address);
}

/* `given` gets the filters and stays as long as what is returned. */
static struct hdf5_create for_libhdf5(const struct sfs_dataset_create *create,
                                      struct sfs_filter given[MAX_FILTERS])
{
    for (size_t i = 0; i < create->n_filters[1]; i++)
        given[i] = filter_to_create_with(&create->filters[1][i]);
    return (struct hdf5_create){
        .rank = create->rank,
        .dims = create->dims,
        .max_dims = create->max_dims,
        .chunk_dims = create->chunk_dims,
        .type = create->type.bytes,
        .type_size = create->type.n,
        .fill = create->fill,
        .n_filters = create->n_filters[1],
        .filters = given,
        .attributes_from = has_attributes(create) ? create->attributes_file->hdf5 : NULL,
        .attributes_of = create->attributes_address,
        .selection_version_1 = create->version_1_selections,
        .unfiltered_edges = create->unfiltered_edges,
        .allocation = create->allocation,
        .fill_time = create->fill_time,
    };
}

/* The filters of a values section that libhdf5 does not adapt, as it does to elements of so many
 * bytes; `given` stays as long. */
static struct sfs_filter *complete(const struct sfs_dataset_create *create,
                                   const unsigned *together, struct sfs_filter given[MAX_FILTERS])
{
    const int shuffle = 2; /* H5Zpublic.h */
    for (size_t i = 0; i < create->n_filters[1]; i++) {
        given[i] = create->filters[1][i];
        if (given[i].id == shuffle && given[i].n_values == 0) {
            given[i].values = together;
            given[i].n_values = 1;
        }
    }
    return given;
}

#define MOST_LIBRARY_BYTES UINT32_MAX /* of a chunk of libhdf5 */

/* Chunk dims that libhdf5 takes, in place of larger ones that it does not and that the layout
 * message, which will be ours, has. */
static void cut_chunk(const struct sfs_dataset_create *create, uint64_t element_size,
                      uint64_t *chunk_dims)
{
    uint64_t bytes;
    memcpy(chunk_dims, create->chunk_dims, sizeof(create->chunk_dims));
    while (!box_product(chunk_dims, create->rank, element_size, &bytes) ||
           bytes > MOST_LIBRARY_BYTES) {
        int longest = 0;
        for (int i = 1; i < create->rank; i++)
            if (chunk_dims[i] > chunk_dims[longest])
                longest = i;
        if (chunk_dims[longest] <= 1)
            return;
        chunk_dims[longest] /= 2;
    }
}

static int make_layout(const struct sfs_file *file, const struct sfs_dataset_create *create,
                       const struct elements *elements, struct layout_message *layout,
                       struct why *why)
{
    const struct layout_choice choice = {
        .index = create->index,
        .order = create->layout_message,
        .rfc_encoding = create->rfc_encoding,
        .unfiltered_edges = create->unfiltered_edges,
        .is_dense = create->is_dense,
    };
    const struct new_dataset dataset = {
        .rank = create->rank,
        .dims = create->dims,
        .max_dims = create->max_dims,
        .chunk_dims = create->chunk_dims,
        .element_size = elements->size,
        .n_sections = elements->n_sections,
        .filtered =
            create->n_filters[0] > 0 || create->n_filters[1] > 0 || create->n_filters[2] > 0,
    };
    if (elements->n_sections == MAX_SECTIONS && choice.rfc_encoding &&
        choice.order == SFS_LAYOUT_MESSAGE_PROTOTYPE)
        return why_refused(why, -EOPNOTSUPP,
                           "elements of variable length have the encoding of the RFC in layout "
                           "messages of version 22 and sectioned ones only");
    int error = layout_message_init(&dataset, layout, why);
    return error ? error : layout_message_choose(&choice, &file->superblock, &dataset, layout, why);
}

/* What early allocation is in a sparse dataset: the index is made before there are chunks. */
static int make_index(struct sfs_file *file, uint64_t store_address, struct why *why)
{
    struct sparse *sparse;
    int error = sparse_open(file->store, &file->superblock, store_address, &sparse, why);
    if (error)
        return error;
    struct layout_message layout = sparse->header.layout;
    error = index_make(sparse->index, why);
    if (!error)
        error = index_flush(sparse->index, why);
    if (!error && index_layout_changed(sparse->index, &layout)) {
        index_layout(sparse->index, &layout);
        error =
            dataset_header_set_layout(file->store, &file->superblock, store_address, &layout, why);
    }
    sparse_close(sparse);
    return error;
}

/* The messages of a sparse dataset in the header at an address of the store. */
static int write_header(struct sfs_file *file, uint64_t store_address,
                        const struct sfs_dataset_create *create,
                        const struct layout_message *layout, const struct section_filters *filters,
                        struct why *why)
{
    int error = dataset_header_convert(file->store, &file->superblock, store_address, layout,
                                       section_filters_any(filters) ? filters : NULL, why);
    if (!error && create->allocation != SFS_ALLOCATION_INCREMENTAL)
        error = dataset_header_set_allocation(file->store, &file->superblock, store_address,
                                              create->allocation, why);
    if (!error && create->allocation == SFS_ALLOCATION_EARLY)
        error = make_index(file, store_address, why);
    return error;
}

/* Turns the header of the dataset that libhdf5 has made into that of a sparse one. */
static int convert_header(struct sfs_file *file, const char *path, uint64_t address,
                          const struct sfs_dataset_create *create,
                          const struct layout_message *layout)
{
    /* libhdf5 has adapted the parameters of the filters to the datatype. */
    struct sfs_dataset_info info;
    struct hdf5_storage storage;
    struct why why;
    int error = hdf5_dataset_open(file->hdf5, address, &info, &storage);
    if (error)
        return refused(file, path, error, hdf5_error());
    hdf5_dataset_close(file->hdf5, address);
    bool is_adapted = layout->n_sections < MAX_SECTIONS;
    const unsigned together = (unsigned)layout->element_size;
    error = is_adapted ? count_each_section(&info) : 0;
    if (error) {
        hdf5_info_free(&info);
        return refused(file, path, error, hdf5_error());
    }
    struct sfs_filter given[MAX_FILTERS];
    struct section_filters filters = {
        .section = {{create->n_filters[0], create->filters[0], 0},
                    {is_adapted ? info.n_filters : create->n_filters[1],
                     is_adapted ? info.filters : complete(create, &together, given), 0},
                    {create->n_filters[2], create->filters[2], 0}},
        .is_rfc = layout_message_is_rfc(layout),
        .first = layout->first_section};

    error = hdf5_reopen(file->hdf5); /* it must not know the old header */
    if (error) {
        error = refused(file, path, error, hdf5_error());
    } else {
        error = write_header(file, dataset_store_address(file, address), create, layout, &filters,
                             &why);
        if (error)
            error = refused(file, path, error, why.text);
    }
    hdf5_info_free(&info);
    return error;
}

static int create_sparse(struct sfs_file *file, const char *path,
                         const struct sfs_dataset_create *create, const struct elements *elements,
                         uint64_t *address)
{
    struct sfs_filter given[MAX_FILTERS];
    struct hdf5_create ordinary = for_libhdf5(create, given);
    struct layout_message layout;
    struct why why;
    uint64_t chunk_dims[SFS_MAX_RANK];
    if (elements->n_sections == MAX_SECTIONS) /* libhdf5 has none for its kind of such elements */
        ordinary.n_filters = 0;
    int error = make_layout(file, create, elements, &layout, &why);
    if (error)
        return refused(file, path, error, why.text);
    cut_chunk(create, elements->size, chunk_dims);
    ordinary.chunk_dims = chunk_dims;
    ordinary.unfiltered_edges = false;                /* it is the layout message that says so, */
    ordinary.allocation = SFS_ALLOCATION_INCREMENTAL; /* and space is for our chunks only */
    error = hdf5_create_dataset(file->hdf5, path, &ordinary, address);
    if (error)
        return refused(file, path, error, hdf5_error());
    error = convert_header(file, path, *address, create, &layout);
    if (error && hdf5_unlink(file->hdf5, path) < 0)
        log_error("%s: %s: an ordinary dataset is left there", sfs_path(file), path);
    return error;
}

static int create_dense(struct sfs_file *file, const char *path,
                        const struct sfs_dataset_create *create, uint64_t *address)
{
    struct sfs_filter given[MAX_FILTERS];
    struct hdf5_create ordinary = for_libhdf5(create, given);
    int error = hdf5_create_dense(file->hdf5, path, &ordinary, address);
    if (!error)
        error = hdf5_reopen(file->hdf5); /* its header is looked at in the store */
    return error ? refused(file, path, error, hdf5_error()) : 0;
}

static int create_dataset(struct sfs_file *file, const char *path,
                          const struct sfs_dataset_create *create, const struct elements *elements,
                          uint64_t *address)
{
    pthread_rwlock_rdlock(&file->commit_lock);
    int error = in_structured_chunks(create) ? create_sparse(file, path, create, elements, address)
                                             : create_dense(file, path, create, address);
    pthread_rwlock_unlock(&file->commit_lock);
    return error;
}

/* With the attributes of an object in a file that may be followed. */
static int create_copying(struct sfs_file *file, const char *path,
                          const struct sfs_dataset_create *create, const struct elements *elements,
                          uint64_t *address)
{
    FOLLOWED(create->attributes_file);
    int error = library_current(create->attributes_file);
    return error ? error : create_dataset(file, path, create, elements, address);
}

/* As elements are stored, by our own decoder. */
static int check_layout(const struct sfs_encoded *type, const struct sfs_dataset *made)
{
    const struct dataset_header *header = made->sparse ? &made->sparse->header : NULL;
    struct why why;
    struct sfs_type layout, other;
    int error = stored_layout_encoded(type, &layout, &why);
    if (error)
        return error;
    error = header ? stored_layout(header->datatype.data, header->datatype.size, &other, &why)
                   : stored_layout_encoded(&made->info.encoded_type, &other, &why);
    if (!error && !stored_layouts_equal(&layout, &other))
        error = -EIO;
    datatype_layout_free(&layout);
    datatype_layout_free(&other);
    return error;
}

/* Elements of what was asked for are going to be written: libhdf5's process, which has made the dataset,
 * is not believed that it is this one. */
static int check_made(const struct sfs_file *file, const char *path,
                      const struct sfs_dataset_create *create, const struct sfs_dataset *made)
{
    const struct sfs_dataset_info *info = &made->info;
    bool is_asked = info->rank == create->rank && !made->sparse == !in_structured_chunks(create) &&
                    !memcmp(info->dims, create->dims, (size_t)info->rank * sizeof(*info->dims));
    int error = is_asked ? check_layout(&create->type, made) : -EIO;
    return error ? refused(file, path, error == -ENOMEM ? error : -EIO,
                           "libhdf5's process has made another dataset than it was asked for")
                 : 0;
}

static int open_made(struct sfs_file *file, const char *path,
                     const struct sfs_dataset_create *create, uint64_t address,
                     struct sfs_dataset **dataset)
{
    int error = sfs_dataset_open(file, address, path, dataset);
    if (error)
        return error;
    error = check_made(file, path, create, *dataset);
    if (error) {
        sfs_dataset_close(*dataset);
        *dataset = NULL;
    }
    return error;
}

int sfs_dataset_create(struct sfs_file *file, const char *path,
                       const struct sfs_dataset_create *create, struct sfs_dataset **dataset)
{
    uint64_t address, n;
    struct elements elements;
    struct sfs_file *from = create->attributes_file;
    WRITING(file);
    if (writing.error)
        return writing.error;
    if (create->rank < 1 || create->rank > SFS_MAX_RANK)
        return refused(file, path, -EINVAL, "the rank is not 1 to 32");
    if (create->is_structured && !create->is_dense)
        return refused(file, path, -EINVAL,
                       "structured chunks without undefined elements are dense");
    if (!box_product(create->dims, create->rank, 1, &n))
        return refused(file, path, -EINVAL, "the elements exceed 63 bits");
    if ((unsigned)create->allocation > SFS_ALLOCATION_LATE ||
        (unsigned)create->fill_time > SFS_FILL_NEVER)
        return refused(file, path, -EINVAL, "this time of allocation or of filling is not known");
    int error = check_elements(file, path, create, &elements);
    if (!error && from)
        error = follow_begin_copy(from);
    if (!error)
        error = from ? create_copying(file, path, create, &elements, &address)
                     : create_dataset(file, path, create, &elements, &address);
    if (from)
        error = follow_end_copy(from, error);
    return error ? error : open_made(file, path, create, address, dataset);
}
