/* The virtual file driver that puts libhdf5 on a store. libhdf5 reads and writes metadata, and the
 * raw data of layouts that are left to it, through this; files that it opens by itself (sources of
 * virtual datasets) get a store of their own, which is only read.
 *
 * Space comes from the store, block by block, and lies between that of others. libhdf5 also likes
 * to extend a block that ends where the file ends, in two steps between which others may be given
 * that space. So the end that it is told always lies one byte behind the store's: no block ends
 * there.
 *
 * libhdf5 1.10 cannot even close a file any more after its cache could not be flushed. So metadata
 * that the disk does not take are kept in memory (the commit fails then): by the store or, if that
 * cannot read what it needs for it, here. What libhdf5 still writes when a file is closed for good
 * goes nowhere. Should it fail all the same, for want of memory, the file
 * stays in libhdf5 and is cut off from the store.
 *
 * libhdf5 gives the space of a chunk up before it writes it anew, and when that fails its index
 * names space that others have. So a chunk is put into the store first, and libhdf5 is given that
 * as what it asks for; what it writes elsewhere then does not fail either.
 *
 * It can also note a read of raw data instead of doing it. That is how hdf5_locate asks for the
 * address of a chunk: libhdf5 1.10 looks chunks up in O(log n) when it reads one, but its
 * H5Dget_chunk_info_by_coord walks the whole index. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <utlist.h>

#include "common/log.h"
#include "hdf5/private.h"
#include "hdf5/version.h"
#include "store/store.h"

/* libhdf5 takes 256 to 511 from whom it does not know; no file names it. */
#define DRIVER_NUMBER 300

struct driver_file {
    H5FD_t public;       /* must be first */
    struct store *store; /* NULL: it is cut off */
    bool owns_store;
    bool is_to_be_written; /* libhdf5 has opened it so, whether it is written or not */
    haddr_t end_of_allocation;
    struct driver_file *prev, *next;
};

static struct driver_file *files; /* all open ones; under the library lock */

/* Bytes that a store could not take, which are in their place for libhdf5. */
struct kept_write {
    struct kept_write *prev, *next;
    struct store *store;
    uint64_t address;
    size_t n;
    unsigned char bytes[];
};

static struct kept_write *kept; /* in the order of writing; under the library lock */

struct driver_info {
    struct store *store;
};

static _Thread_local struct driver_noted *noting;
static _Thread_local bool discarding;
static _Thread_local struct driver_placed *placing;
static _Thread_local struct {
    const char *bytes; /* NULL: anything */
    size_t n;
} expected;

/* libhdf5 learns only that a callback has failed. */
static _Thread_local int failure;

/* It may even take that for an answer: that nothing is there. */
static _Thread_local int moved;

/* The same of a file that may not be read. */
static _Thread_local bool refused;

static bool read_failed; /* since it was last queried; under the library lock */

bool driver_read_failed(void)
{
    bool failed = read_failed;
    read_failed = false;
    return failed;
}

int driver_failure(void)
{
    int error = failure;
    failure = 0;
    return error;
}

int driver_moved(void)
{
    int error = moved;
    moved = 0;
    return error;
}

bool driver_refused(void)
{
    bool was_refused = refused;
    refused = false;
    return was_refused;
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

void driver_place(struct driver_placed *placed)
{
    placing = placed;
}

void driver_expect(const void *bytes, size_t n)
{
    expected.bytes = bytes;
    expected.n = n;
}

static bool is_expected(const char *bytes, size_t n)
{
    return !expected.bytes || (bytes >= expected.bytes && n <= expected.n &&
                               (size_t)(bytes - expected.bytes) <= expected.n - n);
}

void driver_discard(bool discard)
{
    discarding = discard;
}

bool driver_is_discarding(void)
{
    return discarding;
}

void driver_cut_off(const struct store *store)
{
    struct driver_file *file;
    DL_FOREACH (files, file) {
        if (file->store == store)
            file->store = NULL;
    }
}

/* ---- What is kept ---- */

int driver_write_kept(struct store *store)
{
    struct kept_write *write, *next;
    DL_FOREACH_SAFE (kept, write, next) {
        int error = write->store != store
                        ? 0
                        : store_write_or_keep(store, write->address, write->bytes, write->n);
        if (error)
            return error;
        if (write->store == store) {
            DL_DELETE(kept, write);
            free(write);
        }
    }
    return 0;
}

void driver_forget_kept(const struct store *store)
{
    struct kept_write *write, *next;
    DL_FOREACH_SAFE (kept, write, next) {
        if (write->store == store) {
            DL_DELETE(kept, write);
            free(write);
        }
    }
}

static int keep(struct store *store, uint64_t address, const void *bytes, size_t n)
{
    struct kept_write *write = malloc(sizeof(*write) + n);
    if (!write)
        return -ENOMEM;
    write->store = store;
    write->address = address;
    write->n = n;
    memcpy(write->bytes, bytes, n);
    DL_APPEND(kept, write);
    read_failed = true; /* tried again when the file is reopened */
    return 0;
}

/* In the order of writing. */
static int write_or_keep(struct store *store, uint64_t address, const void *bytes, size_t n)
{
    int error = driver_write_kept(store);
    if (!error)
        error = store_write_or_keep(store, address, bytes, n);
    return error ? keep(store, address, bytes, n) : 0;
}

/* Reads what of it is in the store, and what is kept over that. */
static int read_with_kept(struct store *store, uint64_t address, char *buffer, size_t n)
{
    const struct kept_write *write;
    int error = n > 0 ? store_read(store, address, buffer, n) : 0;
    DL_FOREACH (kept, write) {
        uint64_t end = address + n, kept_end = write->address + write->n;
        uint64_t from = write->address > address ? write->address : address;
        uint64_t to = kept_end < end ? kept_end : end;
        if (write->store != store || from >= to)
            continue;
        memcpy(buffer + (from - address), write->bytes + (from - write->address), to - from);
        if (from == address && to == end)
            error = 0;
    }
    return error;
}

/* ---- The driver ---- */

static bool is_writable(const struct driver_file *file)
{
    return file->store && store_is_writable(file->store);
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

static int open_found(const struct store *from, const struct store_found *found,
                      struct store **store)
{
    const struct store_opening how = {.found = found, .follows = store_is_following(from)};
    int error = store_open_as(found->path, &how, store);
    if (error)
        return error;
    error = store_share_reach(*store, from, false);
    if (error)
        store_close(*store);
    return error;
}

int driver_find_other(const struct store *from, const char *name, struct store **store,
                      bool *is_refused)
{
    struct store_found found;
    int error = name[0] == '/' ? store_find(from, STORE_AS_IT_IS, name, &found) : -ENOENT;
    /* A virtual dataset reads as its fill value there; those with numbered sources look for one
     * more than there are. */
    if (error == -ENOENT)
        log_info("%s: no such file, named by %s", name, store_path(from));
    const char *why = error ? store_refusal(error) : NULL;
    if (why)
        log_error("%s: named by %s: %s", name, store_path(from), why);
    *is_refused = why != NULL;
    if (error)
        return error;
    error = open_found(from, &found, store);
    store_found_free(&found);
    return error;
}

static int (*find_other)(const struct store *from, const char *name, struct store **store,
                         bool *is_refused) = driver_find_other;

void driver_set_finder(int (*finder)(const struct store *from, const char *name,
                                     struct store **store, bool *is_refused))
{
    find_other = finder;
}

/* Errors of a file itself, for which libhdf5 shows the fill value; callers that want an error have
 * checked before. Other errors say nothing about the file. */
static bool is_of_file(int error)
{
    return error == -ENOENT || error == -ENOTDIR || error == -EACCES || error == -EINVAL ||
           error == -ENAMETOOLONG;
}

static H5FD_t *driver_open(const char *name, unsigned flags, hid_t fapl, haddr_t max_address)
{
    (void)max_address;
    const struct driver_info *info = H5Pget_driver_info(fapl);
    if (!info)
        return NULL;

    struct driver_file *file = calloc(1, sizeof(*file));
    int error = 0;
    if (!file) {
        error = failure = -ENOMEM;
    } else if (!strcmp(name, store_path(info->store))) {
        file->store = info->store;
    } else {
        bool is_refused = false;
        error = find_other(info->store, name, &file->store, &is_refused);
        refused |= is_refused;
        file->owns_store = !error;
        if (error && !is_refused && !is_of_file(error) && !failure) { /* it is said once */
            log_error("%s: named by %s: %s", name, store_path(info->store), strerror(-error));
            failure = error == -ENOMEM ? error : -EIO;
        }
    }
    if (error) {
        free(file);
        return NULL;
    }
    /* Sources are opened so where the file is, and their sources: nothing of them is written. */
    file->is_to_be_written = flags & H5F_ACC_RDWR;
    DL_APPEND(files, file);
    return &file->public;
}

static herr_t driver_close(H5FD_t *public)
{
    struct driver_file *file = (struct driver_file *)public;
    DL_DELETE(files, file);
    if (file->owns_store)
        store_close(file->store);
    free(file);
    return 0;
}

/* Followers see another state of a file than its writer and each other. */
static bool is_same(const struct store *a, const struct store *b)
{
    bool follows = store_is_following(a) || store_is_following(b);
    return a == b || (!follows && store_is_same(a, b));
}

/* libhdf5 shares an open file between openings of the same one, but fails to open for writing what
 * is open for reading. So sources of a file that is written, which it opens in that way
 * (driver_write), are told apart from files that are open for reading. A file that is really
 * written is shared by all openings, with its uncommitted changes. */
static bool can_share(const struct driver_file *a, const struct driver_file *b)
{
    return a->is_to_be_written == b->is_to_be_written || is_writable(a) || is_writable(b);
}

static int driver_compare(const H5FD_t *a, const H5FD_t *b)
{
    const struct driver_file *left = (const struct driver_file *)a;
    const struct driver_file *right = (const struct driver_file *)b;
    if (left->store && right->store && is_same(left->store, right->store) && can_share(left, right))
        return 0;
    return left < right ? -1 : left > right;
}

/* Raw data is written at once where others read it: the sieve would keep it back. Metadata is never
 * gathered: libhdf5's accumulator copies from outside of its buffer when a header names an address
 * near the end of all addresses; without it the end of the allocated space is minded. */
static herr_t driver_query(const H5FD_t *public, unsigned long *flags)
{
    const struct driver_file *file = (const struct driver_file *)public;
    *flags = file && !is_writable(file) ? H5FD_FEAT_DATA_SIEVE : 0;
    if (file && file->store && store_is_following(file->store))
        *flags = H5FD_FEAT_SUPPORTS_SWMR_IO; /* a sieve would hold what was there before */
    return 0;
}

static haddr_t driver_get_eoa(const H5FD_t *public, H5FD_mem_t type)
{
    (void)type;
    const struct driver_file *file = (const struct driver_file *)public;
    if (!is_writable(file))
        return file->end_of_allocation;
    uint64_t end = store_size(file->store);
    return end == 0 || (discarding && file->end_of_allocation > end) ? file->end_of_allocation
                                                                     : end + 1;
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
    (void)dxpl;
    struct driver_file *file = (struct driver_file *)public;
    uint64_t address;
    if (discarding || !file->store) { /* where nothing is */
        address = driver_get_eoa(public, type);
        file->end_of_allocation = address + size;
        return address;
    }
    if (placing && type == H5FD_MEM_DRAW && size == placing->n && !placing->is_taken) {
        placing->is_taken = true;
        return placing->address;
    }
    int error = store_allocate(file->store, size, &address);
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
    struct driver_file *file = (struct driver_file *)public;
    int error = discarding || !file->store ? 0 : store_free(file->store, address, size);
    failure = error ? error : failure;
    return error ? -1 : 0;
}

static haddr_t driver_get_eof(const H5FD_t *public, H5FD_mem_t type)
{
    (void)type;
    const struct driver_file *file = (const struct driver_file *)public;
    return file->store ? store_end_wanted(file->store) : file->end_of_allocation;
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
    if (!file->store)
        return -1;
    /* libhdf5 reads ahead past the end of the file and expects zeros there. */
    uint64_t end = store_end_wanted(file->store);
    uint64_t available = address < end ? end - address : 0;
    size_t n = size < available ? size : (size_t)available;
    memset((char *)buffer + n, 0, size - n);
    int error = read_with_kept(file->store, address, buffer, n);
    if (error == STORE_MOVED || error == -ESTALE)
        moved = error;
    else if (error)
        read_failed = true;
    failure = error ? error : failure;
    return error ? -1 : 0;
}

/* A source of virtual datasets is opened as the file is, and marked as open for writing. Nobody
 * sees that; its raw data cannot be written. */
static herr_t driver_write(H5FD_t *public, H5FD_mem_t type, hid_t dxpl, haddr_t address,
                           size_t size, const void *buffer)
{
    (void)dxpl;
    struct driver_file *file = (struct driver_file *)public;
    bool is_raw = type == H5FD_MEM_DRAW;
    if (discarding || !file->store || (file->owns_store && !is_raw))
        return 0;
    if (is_raw && placing && placing->is_taken && address >= placing->address &&
        address - placing->address < placing->n)
        return 0;
    int error = is_raw && !is_expected(buffer, size) ? -EIO
                : is_raw && !placing ? store_write(file->store, address, buffer, size)
                                     : write_or_keep(file->store, address, buffer, size);
    failure = error ? error : failure;
    return error ? -1 : 0;
}

static const H5FD_class_t driver_class = {
#ifdef H5FD_CLASS_VERSION
    .version = H5FD_CLASS_VERSION,
    .value = DRIVER_NUMBER,
#endif
    .name = "sparsefs",
    .maxaddr = INT64_MAX,
    /* Sources of virtual datasets have it, too, and libhdf5 1.10.6 closes them while it uses what
     * is in them. */
    .fc_degree = H5F_CLOSE_WEAK,
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
