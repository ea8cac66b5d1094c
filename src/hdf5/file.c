/* Opening files with libhdf5, flushing and closing them. */
#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <utlist.h>

#include "common/clock.h"
#include "format/superblock.h"
#include "hdf5/local.h"
#include "hdf5/private.h"
#include "hdf5/version.h"
#include "store/store.h"

static struct hdf5 *open_files;

int file_superblock(struct store *store, struct superblock *superblock)
{
    struct why why;
    int error = superblock_read(store, superblock, &why);
    if (error == -EILSEQ)
        library_reason(why.text);
    return error == -EILSEQ ? -EINVAL : error;
}

/* It stays where it is: after the file was opened again nothing changes, and others may be reading
 * it. */
static int keep_root(struct hdf5 *hdf5)
{
    hid_t root = H5Gopen2(hdf5->file, "/", H5P_DEFAULT);
    H5O_info_t info;
    int error = 0;
    if (root < 0 || H5Oget_info2(root, &info, H5O_INFO_BASIC) < 0)
        error = library_failed(-EINVAL);
    else if (hdf5->root != info.addr)
        hdf5->root = info.addr;
    if (root >= 0)
        H5Gclose(root);
    return error;
}

/* How libhdf5 is to work on the store. Its own chunk cache keeps nothing: ours lies above it. (With
 * no slot at all it divides by zero.) What is new is in the formats of version 1.10. */
static hid_t file_access(const struct hdf5 *hdf5)
{
    hid_t fapl = H5Pcreate(H5P_FILE_ACCESS);
    if (fapl < 0)
        return fapl;
    if (driver_set(fapl, hdf5->store) < 0 || H5Pset_cache(fapl, 0, 1, 0, 1.0) < 0 ||
        version_take_all_types(fapl) < 0 ||
        (store_is_writable(hdf5->store) &&
         H5Pset_libver_bounds(fapl, H5F_LIBVER_V110, H5F_LIBVER_LATEST) < 0)) {
        H5Pclose(fapl);
        return H5I_INVALID_HID;
    }
    return fapl;
}

/* Where libhdf5 keeps account of free space in the file, or divides it into pages, it must have the
 * file for itself. */
static int check_strategy(struct hdf5 *hdf5)
{
    H5F_fspace_strategy_t strategy;
    hbool_t persistent;
    hsize_t threshold;
    hid_t fcpl = H5Fget_create_plist(hdf5->file);
    int error = 0;
    if (fcpl < 0 || H5Pget_file_space_strategy(fcpl, &strategy, &persistent, &threshold) < 0)
        error = library_failed(-EIO);
    else if (persistent || strategy == H5F_FSPACE_STRATEGY_PAGE)
        error = library_failed_because(
            -EOPNOTSUPP, "files with paged or persistent free space can only be read");
    if (fcpl >= 0)
        H5Pclose(fcpl);
    return error;
}

static int open_file(struct hdf5 *hdf5)
{
    bool writable = store_is_writable(hdf5->store);
    unsigned flags = writable ? H5F_ACC_RDWR : H5F_ACC_RDONLY;
    bool follows = store_is_following(hdf5->store);
    int looked = follows && !store_has_reader(hdf5->store) ? swmr_writer_look(hdf5->store) : 0;
    if (looked)
        return looked;
    flags |= store_is_live(hdf5->store) ? H5F_ACC_SWMR_READ : 0;
    hid_t fapl = file_access(hdf5);
    if (fapl < 0)
        return library_failed(-EIO);
    hdf5->file = H5Fopen(store_path(hdf5->store), flags, fapl);
    int error = hdf5->file < 0 ? library_failed(-EINVAL)
                : writable     ? check_strategy(hdf5)
                               : swmr_writer_check_mark(hdf5->store);
    H5Pclose(fapl);
    return error ? error : keep_root(hdf5);
}

int file_free_rest(struct store *store)
{
    struct superblock superblock;
    uint64_t end = store_end(store);
    int error = file_superblock(store, &superblock);
    if (!error && superblock.version >= 3 && superblock.flags != 0)
        error = swmr_writer_refused();
    if (!error && superblock.end < end)
        error = store_free(store, superblock.end, end - superblock.end);
    return error;
}

int file_flush_pending(struct store *store)
{
    struct superblock superblock;
    uint64_t end = store_end(store);
    int error = file_superblock(store, &superblock);
    if (!error && (superblock.end != end || superblock.flags != 0 || superblock.is_moved))
        error = superblock_set_end(store, &superblock, end);
    return error;
}

/* When it has been flushed: the store gets all that libhdf5 has written. That is right while it has
 * the file open but for the superblock, which has the mark of a writer, and not our end. */
static int flush_pending(struct hdf5 *hdf5)
{
    int error = driver_write_kept(hdf5->store);
    return error ? error : file_flush_pending(hdf5->store);
}

static int new_hdf5(struct store *store, struct hdf5 **out)
{
    struct hdf5 *hdf5 = calloc(1, sizeof(*hdf5));
    if (!hdf5)
        return -ENOMEM;
    hdf5->file = H5I_INVALID_HID;
    hdf5->store = store;
    pthread_mutex_init(&hdf5->names_lock, NULL);
    *out = hdf5;
    return 0;
}

int local_open(struct store *store, struct hdf5 **out)
{
    struct hdf5 *hdf5;
    int error = new_hdf5(store, &hdf5);
    if (error)
        return error;
    /* For another process that sees to what is there: what it opens is as it was settled last. */
    bool is_ours = store_is_writable(store) && !store_has_reader(store);

    library_enter();
    error = H5open() < 0 ? library_failed(-EIO) : 0;
    if (!error && is_ours)
        error = file_free_rest(store);
    if (!error)
        error = open_file(hdf5);
    if (!error && is_ours)
        error = flush_pending(hdf5);
    if (!error)
        DL_APPEND(open_files, hdf5);
    error = library_leave_with(error);
    if (error) {
        local_close(hdf5);
        return error;
    }
    *out = hdf5;
    return 0;
}

static int create_file(struct hdf5 *hdf5)
{
    hid_t fapl = file_access(hdf5);
    if (fapl < 0)
        return library_failed(-EIO);
    hdf5->file = H5Fcreate(store_path(hdf5->store), H5F_ACC_TRUNC, H5P_DEFAULT, fapl);
    int error = hdf5->file < 0 ? library_failed(-EIO) : keep_root(hdf5);
    H5Pclose(fapl);
    return error;
}

int hdf5_create(struct store *store, struct hdf5 **out)
{
    struct hdf5 *hdf5;
    if (!store_is_writable(store) || store_size(store) > 0)
        return -EINVAL;
    int error = new_hdf5(store, &hdf5);
    if (error)
        return error;
    library_enter();
    error = H5open() < 0 ? library_failed(-EIO) : create_file(hdf5);
    if (!error)
        DL_APPEND(open_files, hdf5);
    library_leave();
    if (!error)
        error = local_flush(hdf5);
    if (error) {
        local_close(hdf5);
        return error;
    }
    *out = hdf5;
    return 0;
}

int file_write_changed(struct hdf5 *hdf5)
{
    library_enter();
    int error = H5Fflush(hdf5->file, H5F_SCOPE_LOCAL) < 0 ? library_failed(-EIO) : 0;
    library_leave();
    return error;
}

int local_flush(struct hdf5 *hdf5)
{
    library_enter();
    int error = H5Fflush(hdf5->file, H5F_SCOPE_LOCAL) < 0 ? library_failed(-EIO) : 0;
    if (!error)
        error = flush_pending(hdf5);
    library_leave();
    return error;
}

/* ---- Opening it again ---- */

/* Space that libhdf5 has freed and keeps for itself as long as the file is open. */
static int free_sections(struct hdf5 *hdf5, H5F_sect_info_t **out, size_t *n)
{
    ssize_t count = H5Fget_free_sections(hdf5->file, H5FD_MEM_DEFAULT, 0, NULL);
    *n = 0;
    *out = NULL;
    if (count <= 0)
        return count < 0 ? library_failed(-EIO) : 0;
    *out = calloc((size_t)count, sizeof(**out));
    if (!*out)
        return -ENOMEM;
    if (H5Fget_free_sections(hdf5->file, H5FD_MEM_DEFAULT, (size_t)count, *out) != count)
        return library_failed(-EIO);
    *n = (size_t)count;
    return 0;
}

/* Its end and base are known only now; sections count from the base. */
static int give_back(struct hdf5 *hdf5, const H5F_sect_info_t *sections, size_t n)
{
    struct superblock superblock;
    int error = file_superblock(hdf5->store, &superblock);
    for (size_t i = 0; i < n && !error; i++)
        error = store_free(hdf5->store, superblock.base + sections[i].addr, sections[i].size);
    return error;
}

/* If libhdf5 does not close it, its file is not fit for anything any more. */
static void close_file(struct hdf5 *hdf5)
{
    if (hdf5->file >= 0) {
        H5Fclose(hdf5->file);
        driver_cut_off(hdf5->store);
        H5Eclear2(H5E_DEFAULT);
    }
    hdf5->file = H5I_INVALID_HID;
}

/* Closes it for libhdf5, so that the store has everything: which it has when it was flushed. */
static int close_flushed(struct hdf5 *hdf5)
{
    H5F_sect_info_t *sections = NULL;
    size_t n = 0;
    int error = H5Fflush(hdf5->file, H5F_SCOPE_LOCAL) < 0 ? library_failed(-EIO)
                                                          : driver_write_kept(hdf5->store);
    if (!error)
        error = free_sections(hdf5, &sections, &n);
    if (!error) {
        datasets_close_all(hdf5);
        close_file(hdf5);
        error = flush_pending(hdf5);
    }
    if (!error)
        error = give_back(hdf5, sections, n);
    free(sections);
    return error;
}

static int reopen(struct hdf5 *hdf5)
{
    int error =
        hdf5->file >= 0 ? close_flushed(hdf5) : flush_pending(hdf5); /* which failed before */
    if (!error)
        error = open_file(hdf5);
    if (!error)
        error = flush_pending(hdf5);
    return error ? error : datasets_open_all(hdf5);
}

int local_reopen(struct hdf5 *hdf5)
{
    library_enter();
    int error = reopen(hdf5);
    hdf5->is_doubtful |= error != 0; /* it may be closed: the next call tries again */
    library_leave();
    return error;
}

static int renew(struct hdf5 *hdf5)
{
    datasets_close_all(hdf5);
    close_file(hdf5);
    names_outdate(hdf5);
    int error = open_file(hdf5);
    return error ? error : datasets_open_all(hdf5);
}

int local_renew(struct hdf5 *hdf5)
{
    library_enter();
    int error = renew(hdf5);
    return library_leave_with(error);
}

/* A read that fails leaves libhdf5 with what it had got before: an object header without its
 * continuation, a buffer that was not filled. It takes them for whole from then on. So what it
 * knows of a file is forgotten after one: by opening the file again, as soon as that can be read.
 * A process of its own that can change the file is ended instead. */
void files_renew_doubtful(void)
{
    struct hdf5 *hdf5;
    if (driver_is_discarding()) /* what others have changed must not be lost */
        return;
    bool failed = driver_read_failed();
    DL_FOREACH (open_files, hdf5) {
        hdf5->is_doubtful |= failed;
        if (!hdf5->is_doubtful || (store_has_reader(hdf5->store) && store_is_writable(hdf5->store)))
            continue;
        int error = store_is_writable(hdf5->store) ? reopen(hdf5) : renew(hdf5);
        hdf5->is_doubtful = error != 0;
    }
    H5Eclear2(H5E_DEFAULT);
}

void local_close(struct hdf5 *hdf5)
{
    if (!hdf5)
        return;
    driver_discard(true);
    while (hdf5->datasets) /* one may be there several times, as often as it was opened */
        local_dataset_close(hdf5, hdf5->datasets->address);
    library_enter();
    if (hdf5->prev)
        DL_DELETE(open_files, hdf5);
    close_file(hdf5);
    driver_forget_kept(hdf5->store);
    library_leave();
    driver_discard(false);
    seen_clear(hdf5);
    types_clear(hdf5);
    names_clear(hdf5);
    pthread_mutex_destroy(&hdf5->names_lock);
    free(hdf5);
}

uint64_t hdf5_root(const struct hdf5 *hdf5)
{
    return hdf5->root;
}

void hdf5_leave_at_exit(void)
{
    (void)H5dont_atexit(); /* the second time is an error */
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
