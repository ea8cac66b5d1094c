/* Elements of datatypes with parts of variable length of datasets of libhdf5, as structured chunks
 * store them in sequences (format/variable_slots.h): out of libhdf5's form in memory, and into it. */
#include <endian.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "common/box.h"
#include "common/size.h"
#include "format/cursor.h"
#include "format/variable_slots.h"
#include "hdf5/local.h"
#include "hdf5/private.h"

/* ---- Datatypes ---- */

static int compare_offsets(const void *a, const void *b)
{
    const struct sfs_member *left = a, *right = b;
    return left->offset < right->offset ? -1 : left->offset > right->offset;
}

/* Members in the order of their places, none over another; and no references. */
static int arrange(struct sfs_type *type)
{
    size_t end = 0;
    int error = 0;
    if (!type->has_pointers)
        return 0;
    if (type->class == SFS_ARRAY || type->class == SFS_VARIABLE)
        return type->is_string ? 0 : arrange(type->base);
    if (type->class != SFS_COMPOUND)
        return library_failed_because(-EOPNOTSUPP, "elements with references are not copied");
    qsort(type->members, type->n_members, sizeof(*type->members), compare_offsets);
    for (size_t i = 0; i < type->n_members && !error; i++) {
        const struct sfs_member *member = &type->members[i];
        if (member->offset < end)
            return library_failed_because(-EOPNOTSUPP, "members of a compound lie over each other");
        end = member->offset + member->type.size;
        error = arrange(&type->members[i].type);
    }
    return error;
}

int stored_type(hid_t id, struct sfs_type *type)
{
    int error = type_describe(id, type);
    if (error)
        return error;
    error = type->has_pointers
                ? arrange(type)
                : library_failed_because(-EOPNOTSUPP, "elements have no parts of variable length");
    if (error)
        hdf5_type_free(type);
    return error;
}

static bool is_sequence_of_compounds(const struct sfs_type *type)
{
    return type->class == SFS_VARIABLE && !type->is_string && type->base->class == SFS_COMPOUND &&
           type->base->has_pointers;
}

/* libhdf5 1.10 loses what is in an array of compounds with parts of variable length, when such
 * arrays are written more than one at a time, and in an array of two or more sequences of such
 * compounds; read they are right. is_one: what has this datatype is written by itself if its
 * dataset's elements are. */
static bool is_spoiled(const struct sfs_type *type, bool is_one)
{
    if (!type->has_pointers || type->is_string)
        return false;
    if (type->class == SFS_VARIABLE)
        return is_spoiled(type->base, false);
    if (type->class == SFS_ARRAY)
        return (!is_one && type->base->class == SFS_COMPOUND) ||
               (type->size > type->base->size && is_sequence_of_compounds(type->base)) ||
               is_spoiled(type->base, is_one && type->size == type->base->size);
    for (size_t i = 0; i < type->n_members; i++)
        if (is_spoiled(&type->members[i].type, is_one))
            return true;
    return false;
}

bool hdf5_spoils(const struct sfs_type *type)
{
    return is_spoiled(type, true);
}

/* ---- As they are stored ---- */

static void put_count(FILE *out, uint64_t n)
{
    uint64_t stored = htole64(n);
    fwrite(&stored, SLOTS_COUNT, 1, out); /* what fails here, fails in fclose, too */
}

static void put_string(FILE *out, const char *element)
{
    const char *string;
    memcpy(&string, element, sizeof(string));
    size_t n = string ? strlen(string) : 0;
    put_count(out, n);
    fwrite(string ? string : "", 1, n, out);
}

static void put_all(FILE *out, const struct sfs_type *type, const char *elements, size_t n)
{
    for (size_t i = 0; i < n; i++)
        stored_put(out, type, elements + i * type->size);
}

static void put_sequence(FILE *out, const struct sfs_type *type, const char *element)
{
    hvl_t sequence;
    memcpy(&sequence, element, sizeof(sequence));
    size_t n = sequence.p ? sequence.len : 0;
    put_count(out, n);
    if (type->base->has_pointers)
        put_all(out, type->base, sequence.p, n);
    else if (n > 0)
        fwrite(sequence.p, type->base->size, n, out);
}

static void put_compound(FILE *out, const struct sfs_type *type, const char *element)
{
    size_t done = 0;
    for (size_t i = 0; i < type->n_members; i++) {
        const struct sfs_member *member = &type->members[i];
        fwrite(element + done, 1, member->offset - done, out);
        stored_put(out, &member->type, element + member->offset);
        done = member->offset + member->type.size;
    }
    fwrite(element + done, 1, type->size - done, out);
}

void stored_put(FILE *out, const struct sfs_type *type, const char *element)
{
    if (!type->has_pointers)
        fwrite(element, type->size, 1, out);
    else if (type->is_string)
        put_string(out, element);
    else if (type->class == SFS_VARIABLE)
        put_sequence(out, type, element);
    else if (type->class == SFS_ARRAY)
        put_all(out, type->base, element, type->size / type->base->size);
    else
        put_compound(out, type, element);
}

/* ---- Out of what is stored ---- */

struct taking {
    struct cursor in;
    bool is_shown; /* else it is written: a string must not be cut at a zero byte */
};

static int take(struct taking *taking, const struct sfs_type *type, char *element);

static int take_bytes(struct taking *taking, char *to, size_t n)
{
    const unsigned char *bytes = cursor_bytes(&taking->in, n);
    if (!bytes)
        return -EINVAL;
    if (n > 0)
        memcpy(to, bytes, n);
    return 0;
}

static int take_all(struct taking *taking, const struct sfs_type *type, char *elements, size_t n)
{
    int error = 0;
    for (size_t i = 0; i < n && !error; i++)
        error = take(taking, type, elements + i * type->size);
    return error;
}

/* A string, with its end. */
static int take_string(struct taking *taking, char *element)
{
    uint64_t n = cursor_uint(&taking->in, SLOTS_COUNT);
    if (taking->in.failed || n > taking->in.left)
        return -EINVAL;
    char *string = malloc((size_t)n + 1);
    if (!string)
        return -ENOMEM;
    memcpy(element, &string, sizeof(string));
    string[n] = '\0';
    int error = take_bytes(taking, string, (size_t)n);
    return error || taking->is_shown || strlen(string) == n
               ? error
               : library_failed_because(-EINVAL, HDF5_CUT_STRING);
}

/* In memory elements take up to twice as much as they are stored in: a pointer and a length for a
 * number. */
static int take_sequence(struct taking *taking, const struct sfs_type *type, char *element)
{
    uint64_t n = cursor_uint(&taking->in, SLOTS_COUNT);
    size_t size = type->base->size;
    if (taking->in.failed || size_product(size_of(n), size) > size_product(taking->in.left, 2))
        return -EINVAL;
    hvl_t sequence = {.len = (size_t)n, .p = n ? calloc((size_t)n, size) : NULL};
    if (n > 0 && !sequence.p)
        return -ENOMEM;
    memcpy(element, &sequence, sizeof(sequence));
    return type->base->has_pointers ? take_all(taking, type->base, sequence.p, (size_t)n)
                                    : take_bytes(taking, sequence.p, (size_t)n * size);
}

static int take_compound(struct taking *taking, const struct sfs_type *type, char *element)
{
    size_t done = 0;
    int error = 0;
    for (size_t i = 0; i < type->n_members && !error; i++) {
        const struct sfs_member *member = &type->members[i];
        error = take_bytes(taking, element + done, member->offset - done);
        if (!error)
            error = take(taking, &member->type, element + member->offset);
        done = member->offset + member->type.size;
    }
    return error ? error : take_bytes(taking, element + done, type->size - done);
}

static int take(struct taking *taking, const struct sfs_type *type, char *element)
{
    if (!type->has_pointers)
        return take_bytes(taking, element, type->size);
    if (type->is_string)
        return take_string(taking, element);
    if (type->class == SFS_VARIABLE)
        return take_sequence(taking, type, element);
    if (type->class == SFS_ARRAY)
        return take_all(taking, type->base, element, type->size / type->base->size);
    return take_compound(taking, type, element);
}

/* One after the other. */
static int write_each(const struct open_dataset *dataset, const struct box *box, uint64_t n,
                      const char *elements, size_t size)
{
    int error = 0;
    for (uint64_t i = 0; i < n && !error; i++) {
        struct box one;
        (void)box_of_interval(box, i, 1, &one);
        error = dataset_write_box(dataset, one.start, one.count, elements + i * size);
    }
    return error;
}

static int write_elements(const struct open_dataset *dataset, const struct box *box, uint64_t n,
                          const struct sfs_type *type, const char *elements)
{
    if (hdf5_spoils(type))
        return library_failed_because(-EOPNOTSUPP, HDF5_SPOILS);
    return is_spoiled(type, false) ? write_each(dataset, box, n, elements, type->size)
                                   : dataset_write_box(dataset, box->start, box->count, elements);
}

/* *elements are the caller's, who frees what they lead to with text_reclaim, after an error, too. */
static int load(const struct sfs_type *type, uint64_t n, const struct sfs_encoded *stored,
                bool is_shown, char **elements)
{
    struct taking taking = {cursor_over(stored->bytes, stored->n), is_shown};
    *elements = NULL;
    if (size_product(size_of(n), type->size) > size_product(stored->n, 2))
        return -EINVAL;
    *elements = calloc((size_t)n + 1, type->size);
    int error = *elements ? take_all(&taking, type, *elements, (size_t)n) : -ENOMEM;
    return error || taking.in.left == 0 ? error : -EINVAL;
}

static void unload(hid_t id, uint64_t n, char *elements)
{
    if (elements)
        text_reclaim(id, n, elements);
    free(elements);
}

int stored_write(const struct open_dataset *dataset, const struct box *box, const void *stored,
                 size_t stored_n)
{
    struct sfs_type type;
    uint64_t n = box_elements(box);
    char *elements;
    int error = stored_type(dataset->type, &type);
    if (error)
        return error;
    error = load(&type, n, &(struct sfs_encoded){stored, stored_n}, false, &elements);
    if (!error)
        error = write_elements(dataset, box, n, &type, elements);
    unload(dataset->type, n, elements);
    hdf5_type_free(&type);
    return error;
}

/* Converted by themselves, as libhdf5 1.10 may lose something otherwise; in a buffer that has room for
 * the larger of both. */
static int convert_each(hid_t from, hid_t to, uint64_t n, const char *elements, char *converted)
{
    size_t from_size = H5Tget_size(from), to_size = H5Tget_size(to);
    size_t size = from_size > to_size ? from_size : to_size;
    char *one = malloc(size), *background = calloc(1, size);
    int error = one && background ? 0 : -ENOMEM;
    for (uint64_t i = 0; i < n && !error; i++) {
        memcpy(one, elements + i * from_size, from_size);
        memset(background, 0, size);
        if (H5Tconvert(from, to, 1, one, background, H5P_DEFAULT) < 0)
            error = library_failed(-EIO);
        else
            memcpy(converted + i * to_size, one, to_size);
    }
    free(background);
    free(one);
    return error;
}

int stored_native(hid_t id, hid_t native, uint64_t n, const struct sfs_encoded *stored, char **out)
{
    struct sfs_type type;
    char *elements, *converted = NULL;
    int error = stored_type(id, &type);
    if (error)
        return error;
    error = load(&type, n, stored, true, &elements);
    if (!error) {
        converted = calloc((size_t)n + 1, H5Tget_size(native));
        error = converted ? convert_each(id, native, n, elements, converted) : -ENOMEM;
    }
    unload(id, n, elements);
    hdf5_type_free(&type);
    if (error)
        unload(native, n, converted);
    else
        *out = converted;
    return error;
}
