/* Filters that the caller runs itself, for libhdf5 where it finds no plugin for them: it wants them
 * to create datasets, and to read those that virtual ones are made of. A plugin that is there comes
 * first. libhdf5 does not say which filter it calls: each has functions of its own. */
#include <string.h>

#include "hdf5/private.h"

#define MOST_VALUES 32

static const struct hdf5_own_filters *own; /* under the library lock */

void hdf5_use_filters(const struct hdf5_own_filters *filters)
{
    library_enter();
    own = filters;
    library_leave();
}

/* For H5Dcreate: the parameters that the datatype and the chunk dims decide. */
static herr_t set_local(int id, hid_t dcpl, hid_t type)
{
    unsigned flags, values[MOST_VALUES];
    size_t n = MOST_VALUES, element = H5Tget_size(type), bytes = element;
    hsize_t chunk_dims[SFS_MAX_RANK];
    int rank = H5Pget_chunk(dcpl, SFS_MAX_RANK, chunk_dims);
    if (rank < 0 || element == 0 ||
        H5Pget_filter_by_id2(dcpl, id, &flags, &n, values, 0, NULL, NULL) < 0 || n > MOST_VALUES)
        return -1;
    for (int i = 0; i < rank; i++)
        bytes *= (size_t)chunk_dims[i];
    if (!own->complete(id, element, bytes, values, &n, MOST_VALUES))
        return -1;
    return H5Pmodify_filter(dcpl, id, flags, n, values) < 0 ? -1 : 1;
}

/* As H5Z_func_t: 0 is failure. The buffer does not get smaller: H5Ocopy has another beside it, of
 * which it believes that it is as large as this one has ever been. */
static size_t run(int id, unsigned flags, size_t n_values, const unsigned *values, size_t n,
                  size_t *buffer_size, void **buffer)
{
    const struct sfs_filter filter = {
        .id = id, .optional = flags & H5Z_FLAG_OPTIONAL, .n_values = n_values, .values = values};
    void *made = NULL;
    size_t made_n = 0;
    int error = flags & H5Z_FLAG_REVERSE ? own->decode(&filter, *buffer, n, &made, &made_n)
                                         : own->encode(&filter, *buffer, n, &made, &made_n);
    size_t room = made_n > *buffer_size ? made_n : *buffer_size;
    void *theirs = error || made_n == 0 ? NULL : H5allocate_memory(room, false);
    if (theirs) {
        memcpy(theirs, made, made_n);
        H5free_memory(*buffer);
        *buffer = theirs;
        *buffer_size = room;
    }
    free(made);
    return theirs ? made_n : 0;
}

#define FUNCTIONS(ID)                                                                              \
    static herr_t set_local_##ID(hid_t dcpl, hid_t type, hid_t space)                              \
    {                                                                                              \
        (void)space;                                                                               \
        return set_local(ID, dcpl, type);                                                          \
    }                                                                                              \
                                                                                                   \
    static size_t run_##ID(unsigned flags, size_t n_values, const unsigned *values, size_t n,      \
                           size_t *buffer_size, void **buffer)                                     \
    {                                                                                              \
        return run(ID, flags, n_values, values, n, buffer_size, buffer);                           \
    }
FUNCTIONS(307)
FUNCTIONS(32000)
FUNCTIONS(32001)
FUNCTIONS(32004)
FUNCTIONS(32008)
FUNCTIONS(32015)
FUNCTIONS(32026)

#define CLASS(ID, NAME)                                                                            \
    {                                                                                              \
        .version = H5Z_CLASS_T_VERS, .id = ID, .encoder_present = 1, .decoder_present = 1,         \
        .name = NAME, .set_local = set_local_##ID, .filter = run_##ID                              \
    }
static const H5Z_class2_t classes[] = {
    CLASS(307, "bzip2"),        CLASS(32000, "lzf"),  CLASS(32001, "blosc"),  CLASS(32004, "lz4"),
    CLASS(32008, "bitshuffle"), CLASS(32015, "zstd"), CLASS(32026, "blosc2"),
};

#define N_CLASSES (sizeof(classes) / sizeof(*classes))
static bool registered[N_CLASSES]; /* under the library lock */

bool filter_has_own(int id)
{
    for (size_t i = 0; own && i < N_CLASSES; i++)
        if (classes[i].id == id && own->has(id))
            return true;
    return false;
}

bool filter_register_own(int id)
{
    for (size_t i = 0; own && i < N_CLASSES; i++)
        if (classes[i].id == id && own->has(id))
            return registered[i] = H5Zregister(&classes[i]) >= 0;
    return false;
}

bool filter_own_lacks(const struct sfs_filter *filter)
{
    for (size_t i = 0; own && i < N_CLASSES; i++)
        if (classes[i].id == filter->id)
            return registered[i] && own->lacks(filter);
    return false;
}

void filter_register_all(void)
{
    for (size_t i = 0; own && i < N_CLASSES; i++)
        filter_is_available(classes[i].id);
}
