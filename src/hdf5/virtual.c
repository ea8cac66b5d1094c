/* The mappings of virtual datasets, as plain numbers and names. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "common/interrupt.h"
#include "hdf5/local.h"
#include "hdf5/private.h"

#define ASK_EVERY   256   /* mappings, whether the call is to end early */
#define MOST_LISTED 65536 /* boxes of a list, and mappings before lists are split no more */

static void free_slabs(struct hdf5_mapping *mapping)
{
    free(mapping->shown.axis);
    free(mapping->source.axis);
    mapping->shown = mapping->source = (struct hdf5_slab){0};
}

static void free_mapping(struct hdf5_mapping *mapping)
{
    free(mapping->file);
    free(mapping->dataset);
    free_slabs(mapping);
}

void hdf5_mappings_free(struct hdf5_mappings *mappings)
{
    for (size_t i = 0; i < mappings->n; i++)
        free_mapping(&mappings->mapping[i]);
    free(mappings->mapping);
    *mappings = (struct hdf5_mappings){0};
}

/* Both calls of libhdf5 that give a name of a mapping are alike. */
typedef ssize_t (*name_function)(hid_t dcpl, size_t index, char *name, size_t size);

static int read_name(hid_t dcpl, size_t i, name_function get, char **name)
{
    ssize_t n = get(dcpl, i, NULL, 0);
    if (n < 0)
        return library_failed(-EIO);
    *name = malloc((size_t)n + 1);
    if (!*name)
        return -ENOMEM;
    return get(dcpl, i, *name, (size_t)n + 1) < 0 ? library_failed(-EIO) : 0;
}

static uint64_t size_of(hsize_t size)
{
    return size == H5S_UNLIMITED ? SFS_UNLIMITED : size;
}

static int read_axes(hid_t space, struct hdf5_slab *slab)
{
    hsize_t start[SFS_MAX_RANK], stride[SFS_MAX_RANK], count[SFS_MAX_RANK], block[SFS_MAX_RANK];
    slab->rank = H5Sget_simple_extent_ndims(space);
    if (slab->rank < 1 || H5Sis_regular_hyperslab(space) <= 0)
        return -EOPNOTSUPP;
    if (H5Sget_regular_hyperslab(space, start, stride, count, block) < 0)
        return library_failed(-EIO);
    slab->axis = calloc((size_t)slab->rank, sizeof(*slab->axis));
    if (!slab->axis)
        return -ENOMEM;
    for (int i = 0; i < slab->rank; i++) {
        slab->axis[i] =
            (struct hdf5_axis){start[i], stride[i], size_of(count[i]), size_of(block[i])};
        if (stride[i] == 0 || count[i] == 0 || block[i] == 0 ||
            (count[i] > 1 && block[i] > stride[i]))
            return -EOPNOTSUPP;
    }
    return 0;
}

static int read_slab(hid_t space, struct hdf5_slab *slab)
{
    int error = -EOPNOTSUPP;
    H5S_sel_type type = H5Sget_select_type(space);
    slab->is_all = type == H5S_SEL_ALL;
    if (slab->is_all)
        error = 0;
    else if (type == H5S_SEL_HYPERSLABS)
        error = read_axes(space, slab);
    return error;
}

/* Takes over all of a mapping. */
static int add(struct hdf5_mappings *mappings, const struct hdf5_mapping *mapping)
{
    struct hdf5_mapping *grown =
        reallocarray(mappings->mapping, mappings->n + 1, sizeof(*mappings->mapping));
    if (!grown)
        return -ENOMEM;
    mappings->mapping = grown;
    grown[mappings->n++] = *mapping;
    return 0;
}

/* ---- Lists ----
 *
 * Indices that somebody has listed along one axis, as h5py's layout[[0, 3, 5]], are no regular
 * selection. They are given as several mappings, each of a part without a gap. */

/* Boxes that differ along one axis only, without touching, in the order of what is selected. */
struct list {
    int rank, axis; /* axis: -1: there is one box */
    size_t n;
    hsize_t *box; /* of each the first and the last coordinates */
};

static hsize_t first_of(const struct list *list, size_t i, int axis)
{
    return list->box[i * 2 * (size_t)list->rank + (size_t)axis];
}

static hsize_t end_of(const struct list *list, size_t i, int axis)
{
    return list->box[(i * 2 + 1) * (size_t)list->rank + (size_t)axis] + 1;
}

static uint64_t size_along(const struct list *list, int axis)
{
    uint64_t sum = 0;
    for (size_t i = 0; i < (axis == list->axis ? list->n : 1); i++)
        sum += end_of(list, i, axis) - first_of(list, i, axis);
    return sum;
}

static bool find_axis(struct list *list)
{
    list->axis = -1;
    for (size_t i = 1; i < list->n; i++) {
        for (int axis = 0; axis < list->rank; axis++) {
            if (first_of(list, i, axis) == first_of(list, 0, axis) &&
                end_of(list, i, axis) == end_of(list, 0, axis))
                continue;
            if ((list->axis >= 0 && list->axis != axis) ||
                first_of(list, i, axis) < end_of(list, i - 1, axis))
                return false;
            list->axis = axis;
        }
    }
    return list->n == 1 || list->axis >= 0;
}

/* Everything is one box. */
static int read_box(hid_t space, struct list *list)
{
    hsize_t dims[SFS_MAX_RANK];
    if (H5Sget_simple_extent_dims(space, dims, NULL) != list->rank)
        return library_failed(-EIO);
    for (int i = 0; i < list->rank; i++) {
        if (dims[i] == 0)
            return -EOPNOTSUPP;
        list->box[i] = 0;
        list->box[list->rank + i] = dims[i] - 1;
    }
    return 0;
}

/* list->box is the caller's, also after an error. -EOPNOTSUPP: it is no list. */
static int read_list(hid_t space, struct list *list)
{
    H5S_sel_type type = H5Sget_select_type(space);
    bool is_all = type == H5S_SEL_ALL;
    list->rank = H5Sget_simple_extent_ndims(space);
    hssize_t n = is_all ? 1 : type != H5S_SEL_HYPERSLABS ? 0 : H5Sget_select_hyper_nblocks(space);
    if (list->rank < 1 || n < 1 || n > MOST_LISTED)
        return -EOPNOTSUPP;
    list->n = (size_t)n;
    list->box = calloc(list->n * 2 * (size_t)list->rank, sizeof(*list->box));
    if (!list->box)
        return -ENOMEM;
    if (is_all)
        return read_box(space, list);
    if (H5Sget_select_hyper_blocklist(space, 0, (hsize_t)n, list->box) < 0)
        return library_failed(-EIO);
    return find_axis(list) ? 0 : -EOPNOTSUPP;
}

/* Whether elements correspond axis by axis, but for those along which there is only one, and if so
 * along which axes the lists go: -1: neither is one of several boxes. */
static bool correspond(const struct list *shown, const struct list *source, int axis[2])
{
    int i = 0, k = 0;
    axis[0] = axis[1] = -1;
    for (;; i++, k++) {
        while (i < shown->rank && size_along(shown, i) == 1)
            i++;
        while (k < source->rank && size_along(source, k) == 1)
            k++;
        if (i == shown->rank || k == source->rank)
            return i == shown->rank && k == source->rank;
        if (size_along(shown, i) != size_along(source, k))
            return false;
        if (i != shown->axis && k != source->axis)
            continue;
        if ((shown->axis >= 0 && i != shown->axis) || (source->axis >= 0 && k != source->axis))
            return false;
        axis[0] = i;
        axis[1] = k;
    }
}

/* Of a box so many elements along an axis, behind so many. */
static int part_of(const struct list *list, size_t box, int axis, uint64_t behind, uint64_t n,
                   struct hdf5_slab *slab)
{
    slab->rank = list->rank;
    slab->axis = calloc((size_t)list->rank, sizeof(*slab->axis));
    if (!slab->axis)
        return -ENOMEM;
    for (int i = 0; i < list->rank; i++) {
        uint64_t first = first_of(list, box, i);
        uint64_t size = end_of(list, box, i) - first;
        slab->axis[i] = i == axis ? (struct hdf5_axis){first + behind, n, 1, n}
                                  : (struct hdf5_axis){first, size, 1, size};
    }
    return 0;
}

/* Where the next part is in a list: in which box, behind how much of it. */
struct position {
    size_t box;
    uint64_t behind;
};

static uint64_t left_at(const struct list *list, const struct position *position, int axis)
{
    return end_of(list, position->box, axis) - first_of(list, position->box, axis) -
           position->behind;
}

static void move_on(const struct list *list, struct position *position, int axis, uint64_t n)
{
    position->behind += n;
    if (left_at(list, position, axis) == 0)
        *position = (struct position){.box = position->box + 1};
}

static int add_part(struct hdf5_mappings *mappings, const struct hdf5_mapping *names,
                    struct hdf5_mapping **part)
{
    struct hdf5_mapping copy = {
        .file = strdup(names->file), .dataset = strdup(names->dataset), .is_regular = true};
    int error = copy.file && copy.dataset ? add(mappings, &copy) : -ENOMEM;
    if (error)
        free_mapping(&copy);
    else
        *part = &mappings->mapping[mappings->n - 1];
    return error;
}

static int add_parts(struct hdf5_mappings *mappings, const struct hdf5_mapping *names,
                     const struct list *shown, const struct list *source, const int axis[2])
{
    struct position at = {0}, from = {0};
    int error = 0;
    while (at.box < shown->n && from.box < source->n && !error) {
        struct hdf5_mapping *part;
        uint64_t n = left_at(shown, &at, axis[0]), most = left_at(source, &from, axis[1]);
        n = n < most ? n : most;
        error = add_part(mappings, names, &part);
        if (!error)
            error = part_of(shown, at.box, axis[0], at.behind, n, &part->shown);
        if (!error)
            error = part_of(source, from.box, axis[1], from.behind, n, &part->source);
        move_on(shown, &at, axis[0], n);
        move_on(source, &from, axis[1], n);
    }
    return error;
}

/* -EOPNOTSUPP: they are no lists, or too long. */
static int add_lists(hid_t shown_space, hid_t source_space, struct hdf5_mappings *mappings,
                     const struct hdf5_mapping *names)
{
    struct list shown = {0}, source = {0};
    int axis[2];
    int error = read_list(shown_space, &shown);
    if (!error)
        error = read_list(source_space, &source);
    if (!error && (mappings->n > MOST_LISTED || !correspond(&shown, &source, axis) || axis[0] < 0))
        error = -EOPNOTSUPP;
    if (!error)
        error = add_parts(mappings, names, &shown, &source, axis);
    free(shown.box);
    free(source.box);
    return error;
}

/* ---- Mappings ---- */

/* The box that a selection lies in; is_all: nothing is known. */
static int read_bounds(hid_t space, struct hdf5_slab *slab)
{
    hsize_t box[2 * SFS_MAX_RANK];
    struct list list = {.rank = H5Sget_simple_extent_ndims(space), .axis = -1, .n = 1, .box = box};
    slab->is_all = list.rank < 1 || H5Sget_select_type(space) == H5S_SEL_ALL ||
                   H5Sget_select_bounds(space, box, box + list.rank) < 0;
    return slab->is_all ? 0 : part_of(&list, 0, -1, 0, 0, slab);
}

static int read_slabs(hid_t shown, hid_t source, struct hdf5_mapping *mapping)
{
    int error = read_slab(shown, &mapping->shown);
    return error ? error : read_slab(source, &mapping->source);
}

static int read_both_bounds(hid_t shown, hid_t source, struct hdf5_mapping *mapping)
{
    free_slabs(mapping);
    mapping->is_regular = false;
    int error = read_bounds(shown, &mapping->shown);
    return error ? error : read_bounds(source, &mapping->source);
}

/* Takes over the names; on an error they are left. */
static int add_selected(struct hdf5_mappings *mappings, struct hdf5_mapping *mapping, hid_t shown,
                        hid_t source)
{
    if (shown < 0 || source < 0)
        return library_failed(-EIO);
    mapping->is_regular = true;
    int error = read_slabs(shown, source, mapping);
    if (error == -EOPNOTSUPP) {
        error = add_lists(shown, source, mappings, mapping);
        if (!error)
            free_mapping(mapping);
        if (error != -EOPNOTSUPP)
            return error;
        error = read_both_bounds(shown, source, mapping);
    }
    return error ? error : add(mappings, mapping);
}

static int add_mapping(hid_t dcpl, size_t i, struct hdf5_mappings *mappings)
{
    struct hdf5_mapping mapping = {0};
    int error = read_name(dcpl, i, H5Pget_virtual_filename, &mapping.file);
    if (!error)
        error = read_name(dcpl, i, H5Pget_virtual_dsetname, &mapping.dataset);
    hid_t shown = error ? H5I_INVALID_HID : H5Pget_virtual_vspace(dcpl, i);
    hid_t source = error ? H5I_INVALID_HID : H5Pget_virtual_srcspace(dcpl, i);
    if (!error)
        error = add_selected(mappings, &mapping, shown, source);
    if (error)
        free_mapping(&mapping);
    if (shown >= 0)
        H5Sclose(shown);
    if (source >= 0)
        H5Sclose(source);
    return error;
}

static int read_mappings(hid_t dcpl, struct hdf5_mappings *mappings)
{
    size_t n;
    int error = 0;
    if (H5Pget_virtual_count(dcpl, &n) < 0)
        return library_failed(-EIO);
    for (size_t i = 0; i < n && !error; i++) {
        error = add_mapping(dcpl, i, mappings);
        if (!error && i % ASK_EVERY == ASK_EVERY - 1)
            error = interrupt_check();
    }
    return error;
}

int local_mappings(struct hdf5 *hdf5, uint64_t address, struct hdf5_mappings *mappings)
{
    *mappings = (struct hdf5_mappings){0};
    library_enter();
    struct open_dataset *dataset = dataset_find(hdf5, address);
    hid_t dcpl = dataset ? H5Dget_create_plist(dataset->id) : H5I_INVALID_HID;
    int error = !dataset ? -EBADF : dcpl < 0 ? library_failed(-EIO) : read_mappings(dcpl, mappings);
    if (dcpl >= 0)
        H5Pclose(dcpl);
    error = library_leave_with(error);
    if (error)
        hdf5_mappings_free(mappings);
    return error;
}
