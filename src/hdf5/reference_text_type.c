/* Datatypes whose references were made text before, as structured chunks have no references that libhdf5
 * could follow: with strings of any length in their places. */
#include <errno.h>
#include <stdlib.h>

#include "hdf5/private.h"

struct place {
    hid_t type; /* shown */
    char *name;
    unsigned number; /* of the member */
    size_t offset, size;
    size_t moved; /* its offset, when members before it have other sizes */
};

static int compare_offsets(const void *a, const void *b)
{
    const struct place *left = a, *right = b;
    return left->offset < right->offset ? -1 : left->offset > right->offset;
}

static int compare_numbers(const void *a, const void *b)
{
    const struct place *left = a, *right = b;
    return left->number < right->number ? -1 : left->number > right->number;
}

static int look_at_member(hid_t id, unsigned number, struct place *place)
{
    hid_t member = H5Tget_member_type(id, number);
    *place = (struct place){.type = H5I_INVALID_HID, .number = number};
    if (member < 0)
        return library_failed(-EIO);
    place->name = H5Tget_member_name(id, number);
    place->offset = H5Tget_member_offset(id, number);
    place->size = H5Tget_size(member);
    int error = place->name ? shown_type(member, &place->type) : library_failed(-EIO);
    H5Tclose(member);
    return error;
}

/* Gaps stay as they are; *size is that of the compound. */
static int move_members(struct place *places, size_t n, size_t *size)
{
    size_t end = 0, moved_end = 0;
    qsort(places, n, sizeof(*places), compare_offsets);
    for (size_t i = 0; i < n; i++) {
        if (places[i].offset < end)
            return library_failed_because(-EOPNOTSUPP, "members of a compound lie over each other");
        places[i].moved = moved_end + (places[i].offset - end);
        end = places[i].offset + places[i].size;
        moved_end = places[i].moved + H5Tget_size(places[i].type);
    }
    *size = moved_end + (*size - end);
    qsort(places, n, sizeof(*places), compare_numbers);
    return 0;
}

static int make_compound(const struct place *places, size_t n, size_t size, hid_t *shown)
{
    *shown = H5Tcreate(H5T_COMPOUND, size);
    int error = *shown < 0 ? library_failed(-EIO) : 0;
    for (size_t i = 0; i < n && !error; i++)
        if (H5Tinsert(*shown, places[i].name, places[i].moved, places[i].type) < 0)
            error = library_failed(-EIO);
    return error;
}

static int shown_compound(hid_t id, hid_t *shown)
{
    int n = H5Tget_nmembers(id);
    size_t size = H5Tget_size(id), looked_at = 0;
    struct place *places = n < 0 ? NULL : calloc((size_t)n + 1, sizeof(*places));
    int error = places ? 0 : n < 0 ? library_failed(-EIO) : -ENOMEM;
    for (int i = 0; i < n && !error; i++)
        error = look_at_member(id, (unsigned)i, &places[looked_at++]);
    if (!error)
        error = move_members(places, looked_at, &size);
    if (!error)
        error = make_compound(places, looked_at, size, shown);
    for (size_t i = 0; i < looked_at; i++) {
        H5free_memory(places[i].name);
        if (places[i].type >= 0)
            H5Tclose(places[i].type);
    }
    free(places);
    return error;
}

/* Of an array or a sequence. */
static int shown_base(hid_t id, hid_t *shown)
{
    hsize_t dims[SFS_MAX_RANK];
    bool is_array = H5Tget_class(id) == H5T_ARRAY;
    int rank = is_array ? H5Tget_array_ndims(id) : 0;
    hid_t super = H5Tget_super(id), base = H5I_INVALID_HID;
    if (super < 0 ||
        (is_array && (rank < 1 || rank > SFS_MAX_RANK || H5Tget_array_dims2(id, dims) < 0))) {
        if (super >= 0)
            H5Tclose(super);
        return library_failed(-EIO);
    }
    int error = shown_type(super, &base);
    if (!error)
        *shown = is_array ? H5Tarray_create2(base, (unsigned)rank, dims) : H5Tvlen_create(base);
    if (!error && *shown < 0)
        error = library_failed(-EIO);
    if (base >= 0)
        H5Tclose(base);
    H5Tclose(super);
    return error;
}

int shown_type(hid_t id, hid_t *shown)
{
    H5T_class_t class = H5Tget_class(id);
    *shown = H5I_INVALID_HID;
    if (H5Tdetect_class(id, H5T_REFERENCE) <= 0) {
        *shown = H5Tcopy(id);
        return *shown < 0 ? library_failed(-EIO) : 0;
    }
    if (class == H5T_COMPOUND)
        return shown_compound(id, shown);
    if (class != H5T_REFERENCE)
        return shown_base(id, shown);
    *shown = H5Tcopy(H5T_C_S1);
    return *shown < 0 || H5Tset_size(*shown, H5T_VARIABLE) < 0 ? library_failed(-EIO) : 0;
}

int shown_mark(hid_t id, struct text_type *type)
{
    int error = 0;
    hid_t part;
    if (H5Tdetect_class(id, H5T_REFERENCE) <= 0)
        return 0;
    if (H5Tget_class(id) == H5T_REFERENCE) {
        type->class = H5T_REFERENCE;
        type->is_text = true;
        return 0;
    }
    for (size_t i = 0; i < type->n_members && !error; i++) {
        part = H5Tget_member_type(id, (unsigned)i);
        error = part < 0 ? library_failed(-EIO) : shown_mark(part, &type->members[i].type);
        if (part >= 0)
            H5Tclose(part);
    }
    if (!type->base)
        return error;
    part = H5Tget_super(id);
    error = part < 0 ? library_failed(-EIO) : shown_mark(part, type->base);
    if (part >= 0)
        H5Tclose(part);
    return error;
}
