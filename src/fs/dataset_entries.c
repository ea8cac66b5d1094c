/* Fixed names in the directory of a dataset, and which of them, and of its views, a mount shows. */
#include "fs/dataset_entries.h"

#include <stddef.h>

#include "fs/mount.h"

static const struct entry_name dataset_names[] = {
    {"dataset.json", ENTRY_VIEW + VIEW_DATASET_JSON, VIEW_DATASET_JSON},
    {"frames", ENTRY_FRAMES, VIEW_DEFINED},
    {"raw", ENTRY_RAW_DIR, VIEW_VALUES},
    {"npy", ENTRY_NPY_DIR, VIEW_NPY},
    {"tiff", ENTRY_TIFF_DIR, VIEW_TIFF},
    {"values", ENTRY_VALUES_DIR, VIEW_VALUES},
    {"npz", ENTRY_NPZ_DIR, VIEW_NPZ},
    {"png", ENTRY_PNG_DIR, VIEW_PNG},
    {"cbf", ENTRY_CBF_DIR, VIEW_CBF},
    {"stack.raw", ENTRY_VIEW + VIEW_STACK_RAW, VIEW_STACK_RAW},
    {"stack.npy", ENTRY_VIEW + VIEW_STACK_NPY, VIEW_STACK_NPY},
    {"stack.tif", ENTRY_VIEW + VIEW_STACK_TIFF, VIEW_STACK_TIFF},
    {"csr", ENTRY_CSR_DIR, VIEW_CSR_DATA},
    {"value.txt", ENTRY_VIEW + VIEW_VALUE_TXT, VIEW_VALUE_TXT},
    {"offsets.npy", ENTRY_VIEW + VIEW_OFFSETS, VIEW_OFFSETS},
    {"values.npy", ENTRY_VIEW + VIEW_RAGGED, VIEW_RAGGED},
    {"lines.txt", ENTRY_VIEW + VIEW_LINES, VIEW_LINES},
    {"zarr", ENTRY_ZARR_DIR, VIEW_ZARRAY},
    {"table.csv", ENTRY_VIEW + VIEW_CSV, VIEW_CSV},
    {NULL, 0, 0},
};

static const struct entry_name csr_names[] = {
    {"indptr.raw", ENTRY_VIEW + VIEW_CSR_INDPTR, VIEW_CSR_INDPTR},
    {"indices.raw", ENTRY_VIEW + VIEW_CSR_INDICES, VIEW_CSR_INDICES},
    {"data.raw", ENTRY_VIEW + VIEW_CSR_DATA, VIEW_CSR_DATA},
    {"raw_csr.toml", ENTRY_VIEW + VIEW_CSR_TOML, VIEW_CSR_TOML},
    {NULL, 0, 0},
};

static const struct entry_name zarr_names[] = {
    {".zarray", ENTRY_VIEW + VIEW_ZARRAY, VIEW_ZARRAY},
    {".zattrs", ENTRY_VIEW + VIEW_ZATTRS, VIEW_ZATTRS},
    {NULL, 0, 0},
};

#define VIEW(kind) (1u << VIEW_##kind)

bool entry_is_of(const struct entry_name *name, unsigned views)
{
    switch (name->entry) {
    case ENTRY_VIEW + VIEW_DATASET_JSON:
        return true;
    case ENTRY_FRAMES:
        return views & (VIEW(RAW) | VIEW(DEFINED));
    case ENTRY_RAW_DIR:
        return views & VIEW(RAW);
    default:
        return views & 1u << name->needs;
    }
}

const struct entry_name *entry_names(unsigned directory)
{
    switch (directory) {
    case ENTRY_NODE:
        return dataset_names;
    case ENTRY_CSR_DIR:
        return csr_names;
    case ENTRY_ZARR_DIR:
        return zarr_names;
    default:
        return NULL;
    }
}

bool mount_shows(const struct mount *mount, struct views *views, enum view_kind view)
{
    bool is_wanted = view == VIEW_DATASET_JSON || mount->options->views & 1u << view;
    return is_wanted && view_exists(views, view);
}

/* For Zarr a chunk without a file is full of the fill value. */
static bool lacks_chunks(struct views *views, enum view_kind view)
{
    return (view == VIEW_ZARRAY || view == VIEW_ZATTRS) && views_frames(views) > INODE_MAX_FRAMES;
}

bool mount_shows_name(const struct mount *mount, struct views *views, const struct entry_name *name)
{
    if (name->entry == ENTRY_FRAMES) /* of which one may have nothing to show */
        return mount_shows(mount, views, VIEW_RAW) || mount_shows(mount, views, VIEW_DEFINED);
    return entry_is_of(name, mount->options->views) && view_exists(views, name->needs) &&
           !lacks_chunks(views, name->needs);
}
