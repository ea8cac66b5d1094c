/* The virtual file driver that puts libhdf5 on a store. libhdf5 reads and writes metadata, and the
 * raw data of layouts that are left to it, through this; files that it opens by itself (sources of
 * virtual datasets) get a store of their own, which is only read.
 *
 * Space comes from the store, block by block, and lies between that of others. libhdf5 also likes
 * to extend a block that ends where the file ends, in two steps between which others may be given
 * that space. So the end that it is told always lies one byte behind the store's: no block ends
 * there.
 *
 * It can also note a read of raw data instead of doing it. That is how hdf5_locate asks for the
 * address of a chunk: libhdf5 1.10 looks chunks up in O(log n) when it reads one, but its
 * H5Dget_chunk_info_by_coord walks the whole index. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/log.h"
#include "hdf5/private.h"
#include "store/store.h"

struct driver_file {
    H5FD_t public; /* must be first */
    struct store *store;
    bool owns_store;
    haddr_t end_of_allocation;
};

struct driver_info {
    struct store *store;
};

static _Thread_local struct driver_noted *noting;

/* libhdf5 learns only that a callback has failed. */
static _Thread_local int failure;

int driver_failure(void)
{
    int error = failure;
    failure = 0;
    return error;
}

void driver_note_reads(struct driver_noted *noted)
{
    memset(noted, 0, sizeof(*noted));
    noting = noted;
}

void driver_do_reads(void)
{
    noting = NULL;
}

/* What libhdf5 passes on when it opens another file the same way; it frees it itself. */
static void *driver_get_info(H5FD_t *public)
{
    struct driver_info *info = malloc(sizeof(*info));
    if (info)
        info->store = ((struct driver_file *)public)->store;
    else
        failure = -ENOMEM;
    return info;
}

static H5FD_t *driver_open(const char *name, unsigned flags, hid_t fapl, haddr_t max_address)
{
    (void)max_address;
    const struct driver_info *info = H5Pget_driver_info(fapl);
    if (!info || ((flags & H5F_ACC_RDWR) && !store_is_writable(info->store)))
        return NULL;

    struct driver_file *file = calloc(1, sizeof(*file));
    int error = 0;
    if (!file) {
        error = -ENOMEM;
    } else if (!strcmp(name, store_path(info->store))) {
        file->store = info->store;
    } else if (access(name, F_OK) < 0 && errno == ENOENT) {
        /* A virtual dataset reads as its fill value there; those with numbered sources look for one
         * more than there are. */
        error = -ENOENT;
        log_info("%s: no such file, named by %s", name, store_path(info->store));
    } else {
        error = store_open(name, &file->store);
        file->owns_store = !error;
    }
    if (error) {
        failure = error == -ENOMEM ? error : failure;
        free(file);
        return NULL;
    }
    return &file->public;
}

static herr_t driver_close(H5FD_t *public)
{
    struct driver_file *file = (struct driver_file *)public;
    if (file->owns_store)
        store_close(file->store);
    free(file);
    return 0;
}

static int driver_compare(const H5FD_t *a, const H5FD_t *b)
{
    const struct driver_file *left = (const struct driver_file *)a;
    const struct driver_file *right = (const struct driver_file *)b;
    if (store_is_same(left->store, right->store))
        return 0;
    return left->store < right->store ? -1 : 1;
}

/* Raw data is written at once where others read it: the sieve would keep it back. */
static herr_t driver_query(const H5FD_t *public, unsigned long *flags)
{
    const struct driver_file *file = (const struct driver_file *)public;
    *flags = H5FD_FEAT_ACCUMULATE_METADATA;
    if (file && !store_is_writable(file->store))
        *flags |= H5FD_FEAT_DATA_SIEVE;
    return 0;
}

static haddr_t driver_get_eoa(const H5FD_t *public, H5FD_mem_t type)
{
    (void)type;
    const struct driver_file *file = (const struct driver_file *)public;
    uint64_t end = store_size(file->store);
    return store_is_writable(file->store) && end > 0 ? end + 1 : file->end_of_allocation;
}

/* While it opens a file, libhdf5 says step by step how much of it it knows of. */
static herr_t driver_set_eoa(H5FD_t *public, H5FD_mem_t type, haddr_t address)
{
    (void)type;
    ((struct driver_file *)public)->end_of_allocation = address;
    return 0;
}

static haddr_t driver_alloc(H5FD_t *public, H5FD_mem_t type, hid_t dxpl, hsize_t size)
{
    (void)type, (void)dxpl;
    uint64_t address;
    int error = store_allocate(((struct driver_file *)public)->store, size, &address);
    if (error) {
        failure = error;
        return HADDR_UNDEF;
    }
    return address;
}

static herr_t driver_free(H5FD_t *public, H5FD_mem_t type, hid_t dxpl, haddr_t address,
                          hsize_t size)
{
    (void)type, (void)dxpl;
    int error = store_free(((struct driver_file *)public)->store, address, size);
    failure = error ? error : failure;
    return error ? -1 : 0;
}

static haddr_t driver_get_eof(const H5FD_t *public, H5FD_mem_t type)
{
    (void)type;
    return store_size(((const struct driver_file *)public)->store);
}

static herr_t driver_read(H5FD_t *public, H5FD_mem_t type, hid_t dxpl, haddr_t address, size_t size,
                          void *buffer)
{
    (void)dxpl;
    struct driver_file *file = (struct driver_file *)public;
    if (noting && type == H5FD_MEM_DRAW) {
        noting->reads++;
        noting->address = address;
        noting->size = size;
        return 0;
    }
    /* libhdf5 reads ahead past the end of the file and expects zeros there. */
    uint64_t available = address < store_size(file->store) ? store_size(file->store) - address : 0;
    size_t n = size < available ? size : (size_t)available;
    memset((char *)buffer + n, 0, size - n);
    return n > 0 && store_read(file->store, address, buffer, n) < 0 ? -1 : 0;
}

/* A source of virtual datasets is opened as the file is, and marked as open for writing. Nobody
 * sees that; its raw data cannot be written. */
static herr_t driver_write(H5FD_t *public, H5FD_mem_t type, hid_t dxpl, haddr_t address,
                           size_t size, const void *buffer)
{
    (void)dxpl;
    struct driver_file *file = (struct driver_file *)public;
    if (file->owns_store && type != H5FD_MEM_DRAW)
        return 0;
    int error = store_write(file->store, address, buffer, size);
    failure = error ? error : failure;
    return error ? -1 : 0;
}

static const H5FD_class_t driver_class = {
    .name = "sparsefs",
    .maxaddr = INT64_MAX,
    .fc_degree = H5F_CLOSE_STRONG,
    .fapl_size = sizeof(struct driver_info),
    .fapl_get = driver_get_info,
    .open = driver_open,
    .close = driver_close,
    .cmp = driver_compare,
    .query = driver_query,
    .alloc = driver_alloc,
    .free = driver_free,
    .get_eoa = driver_get_eoa,
    .set_eoa = driver_set_eoa,
    .get_eof = driver_get_eof,
    .read = driver_read,
    .write = driver_write,
    .fl_map = H5FD_FLMAP_DICHOTOMY,
};

herr_t driver_set(hid_t fapl, struct store *store)
{
    static hid_t driver = H5I_INVALID_HID; /* under the library lock */
    if (driver < 0)
        driver = H5FDregister(&driver_class);
    struct driver_info info = {.store = store};
    return driver < 0 ? -1 : H5Pset_driver(fapl, driver, &info);
}
