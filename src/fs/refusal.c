/* Refusals in words. README has them, too, in its table of errors. */
#include "fs/refusal.h"

#include <errno.h>
#include <stdlib.h>

#include "common/log.h"

static const struct {
    int number;
    const char *text;
} refusals[REFUSALS] = {
    [REFUSAL_NAME] = {EPERM, "new files are frames, as frames/7.raw, npy/7.npy or tiff/7.tif; "
                             "datasets are made by sparsectl create or h5py"},
    [REFUSAL_REMOVAL] = {EPERM, "a frame has its files as long as the dataset is there: "
                                "truncate -s 0 frames/N.raw erases its elements, h5py removes "
                                "datasets"},
    [REFUSAL_RENAMING] = {EPERM, "names of frames, datasets and groups stay: copy a frame onto "
                                 "another one, rename objects with h5py"},
    [REFUSAL_LINK] = {EPERM, "a mount has no links: copy the file"},
    [REFUSAL_DIRECTORY] = {EPERM, "directories can be made and removed in groups only: they are "
                                  "groups of HDF5; rsync makes none without --delay-updates "
                                  "and --partial-dir"},
    [REFUSAL_GROUP_NAME] = {EINVAL, "no group of HDF5 can have this name: in names here % stands "
                                    "before two hexadecimal digits, and is %25 itself"},
    [REFUSAL_MATRIX] = {EPERM, "the files of csr are written in place, and no others are made "
                               "there: cp, rsync --inplace, tar --overwrite"},
    [REFUSAL_EXCHANGE] = {EINVAL, "a frame and another file are not exchanged: rename the file to "
                                  "the frame"},
    [REFUSAL_COMPUTED] = {EPERM, "this file is computed: write frames/N.raw, npy/N.npy, npz/N.npz, "
                                 "tiff/N.tif or a stack instead"},
    [REFUSAL_SELECTION] = {EOPNOTSUPP, "a dense dataset has no selection that could be written: "
                                       "sparsectl import makes a sparse copy"},
    [REFUSAL_HEADER] = {EINVAL,
                        "header bytes can only be what they are: write elements behind them, or "
                        "another NumPy or TIFF file from its first byte on"},
    [REFUSAL_END] = {EFBIG, "files have the size of what they show: write inside of it "
                            "(dd conv=notrunc), not behind; the next frame is a file of its own"},
    [REFUSAL_GROWTH] = {EFBIG, "the dataset has no room for this frame: make it with room, "
                               "sparsectl create --maxdims inf,..."},
    [REFUSAL_ATTRIBUTE] = {EPERM, "attributes can be read here, and set with h5py"},
    [REFUSAL_STRICT] = {EPERM, "modes, owners and times are those of the HDF5 file: without "
                               "-o strict other ones are ignored"},
    [REFUSAL_RANGE] = {EOPNOTSUPP,
                       "selections and files of csr are written whole: fallocate works on files "
                       "of elements"},
    [REFUSAL_FOLDER] = {EROFS,
                        "of a folder only what its HDF5 files contain is written through the "
                        "mount: make, change and remove files in the folder itself"},
    [REFUSAL_SIZE] = {EINVAL, "cache_size takes a number of bytes, with K, M, G or T behind it for "
                              "powers of 1024"},
};

static const char *label_of(const struct mount *mount, const struct node *node)
{
    if (!mount->files)
        return sfs_path(mount->file);
    return node && node_file(node) ? sfs_path(node_file(node))
                                   : folder_path(mounted_files_folder(mount->files));
}

int refusal_say(const struct mount *mount, const struct node *node, enum refusal refusal)
{
    static _Atomic uint64_t said[REFUSALS];
    if (log_is_due(&said[refusal])) {
        char *path = node ? node_path(node) : NULL;
        log_warning("%s: %s%srefused: %s", label_of(mount, node), path ? path : "",
                    path ? ": " : "", refusals[refusal].text);
        free(path);
    }
    return -refusals[refusal].number;
}

int refusal_of_view(const struct mount *mount, const struct node *node, enum view_kind view)
{
    return refusal_say(mount, node, view == VIEW_DEFINED ? REFUSAL_SELECTION : REFUSAL_COMPUTED);
}
