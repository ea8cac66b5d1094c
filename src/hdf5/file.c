/* Opening files with libhdf5, the lock around it, and its reasons for failing. */
#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "format/superblock.h"
#include "hdf5/private.h"
#include "store/store.h"

static pthread_mutex_t library_lock = PTHREAD_MUTEX_INITIALIZER;
static _Thread_local char reason[512];

void library_enter(void)
{
    static _Thread_local bool silenced;
    pthread_mutex_lock(&library_lock);
    driver_ran_out_of_memory(); /* what was before is forgotten */
    if (!silenced)
        silenced = H5Eset_auto2(H5E_DEFAULT, NULL, NULL) >= 0;
}

void library_leave(void)
{
    pthread_mutex_unlock(&library_lock);
}

const char *hdf5_error(void)
{
    return reason;
}

/* Upward from the innermost call: the first reason that is not about looking for plugin files,
 * which only says that one directory of several does not exist. */
static herr_t take_reason(unsigned n, const H5E_error2_t *error, void *data)
{
    (void)data;
    if (n == 0 || error->maj_num != H5E_PLUGIN) {
        snprintf(reason, sizeof(reason), "%s", error->desc ? error->desc : "unknown error");
        if (error->maj_num != H5E_PLUGIN)
            return 1; /* enough */
    }
    return 0;
}

int library_failed(int error)
{
    snprintf(reason, sizeof(reason), "libhdf5 gives no reason");
    H5Ewalk2(H5E_DEFAULT, H5E_WALK_UPWARD, take_reason, NULL);
    H5Eclear2(H5E_DEFAULT);
    return driver_ran_out_of_memory() ? -ENOMEM : error;
}

int library_failed_because(int error, const char *why)
{
    snprintf(reason, sizeof(reason), "%s", why);
    H5Eclear2(H5E_DEFAULT);
    return error;
}

/* libhdf5 minds the mark that a writer leaves in the superblock only over its own drivers. */
static int check_mark(struct hdf5 *hdf5)
{
    unsigned char bytes[SUPERBLOCK_BYTES];
    hsize_t user_block = 0;
    hid_t fcpl = H5Fget_create_plist(hdf5->file);
    int error = fcpl < 0 || H5Pget_userblock(fcpl, &user_block) < 0 ? library_failed(-EIO) : 0;
    if (fcpl >= 0)
        H5Pclose(fcpl);
    if (!error)
        error = store_read(hdf5->store, user_block, bytes, sizeof(bytes));
    if (!error && superblock_is_marked(bytes))
        error = library_failed_because(
            -EBUSY, "it is marked as open for writing: its writer still runs, or has died (then "
                    "h5clear -s clears the mark)");
    return error;
}

static int open_file(struct hdf5 *hdf5)
{
    hid_t fapl = H5Pcreate(H5P_FILE_ACCESS);
    if (fapl < 0)
        return library_failed(-EIO);
    /* libhdf5's own chunk cache keeps nothing: ours lies above it. (With no slot at all libhdf5
     * divides by zero.) */
    if (driver_set(fapl, hdf5->store) >= 0 && H5Pset_cache(fapl, 0, 1, 0, 1.0) >= 0)
        hdf5->file = H5Fopen(store_path(hdf5->store), H5F_ACC_RDONLY, fapl);
    int error = hdf5->file < 0 ? library_failed(-EINVAL) : check_mark(hdf5);
    H5Pclose(fapl);
    if (error)
        return error;

    hid_t root = H5Gopen2(hdf5->file, "/", H5P_DEFAULT);
    H5O_info_t info;
    if (root < 0 || H5Oget_info2(root, &info, H5O_INFO_BASIC) < 0)
        error = library_failed(-EINVAL);
    else
        hdf5->root = info.addr;
    if (root >= 0)
        H5Gclose(root);
    return error;
}

int hdf5_open(struct store *store, struct hdf5 **out)
{
    struct hdf5 *hdf5 = calloc(1, sizeof(*hdf5));
    if (!hdf5)
        return -ENOMEM;
    hdf5->file = H5I_INVALID_HID;
    hdf5->store = store;

    library_enter();
    int error = H5open() < 0 ? library_failed(-EIO) : open_file(hdf5);
    library_leave();
    if (error) {
        hdf5_close(hdf5);
        return error;
    }
    *out = hdf5;
    return 0;
}

void hdf5_close(struct hdf5 *hdf5)
{
    if (!hdf5)
        return;
    struct open_dataset *dataset, *next;
    HASH_ITER (hh, hdf5->datasets, dataset, next) {
        hdf5_dataset_close(hdf5, dataset->address);
    }
    library_enter();
    if (hdf5->file >= 0)
        H5Fclose(hdf5->file);
    library_leave();
    free(hdf5);
}

uint64_t hdf5_root(const struct hdf5 *hdf5)
{
    return hdf5->root;
}

const char *hdf5_version(void)
{
    static char version[32];
    unsigned major, minor, release;
    library_enter();
    if (H5get_libversion(&major, &minor, &release) >= 0)
        snprintf(version, sizeof(version), "%u.%u.%u", major, minor, release);
    library_leave();
    return version;
}
