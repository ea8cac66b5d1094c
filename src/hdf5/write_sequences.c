/* Writing elements of variable length of datasets of libhdf5: as it has them in memory, pointers to
 * what was given, strings with an end. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "common/box.h"
#include "hdf5/local.h"
#include "hdf5/private.h"

/* n sequences of elements of base_size bytes. */
struct given {
    struct hdf5_sequences all;
    uint64_t n;
    size_t base_size;
};

/* Whether there are as many bytes as the lengths say. */
static bool is_whole(const struct given *given)
{
    uint64_t bytes;
    size_t n = given->all.n;
    for (uint64_t i = 0; i < given->n; i++) {
        if (!box_product(&given->all.lengths[i], 1, given->base_size, &bytes) || bytes > n)
            return false;
        n -= (size_t)bytes;
    }
    return n == 0;
}

static int write_strings(const struct open_dataset *dataset, const uint64_t *start,
                         const uint64_t *count, const struct given *given)
{
    char **strings = calloc(given->n, sizeof(*strings)), *room = malloc(given->all.n + given->n);
    const uint64_t *lengths = given->all.lengths;
    const char *from = given->all.bytes;
    char *to = room;
    int error = strings && room ? 0 : -ENOMEM;
    for (uint64_t i = 0; i < given->n && !error; i++) {
        strings[i] = to;
        memcpy(to, from, lengths[i]);
        to[lengths[i]] = '\0';
        if (strlen(to) < lengths[i])
            error = library_failed_because(-EINVAL, HDF5_CUT_STRING);
        to += lengths[i] + 1;
        from += lengths[i];
    }
    if (!error)
        error = dataset_write_box(dataset, start, count, strings);
    free(strings);
    free(room);
    return error;
}

static int write_sequences(const struct open_dataset *dataset, const uint64_t *start,
                           const uint64_t *count, const struct given *given)
{
    hvl_t *sequences = calloc(given->n, sizeof(*sequences));
    const uint64_t *lengths = given->all.lengths;
    const char *from = given->all.bytes;
    if (!sequences)
        return -ENOMEM;
    for (uint64_t i = 0; i < given->n; i++) {
        sequences[i] = (hvl_t){(size_t)lengths[i], lengths[i] ? (void *)from : NULL};
        from += lengths[i] * given->base_size;
    }
    int error = dataset_write_box(dataset, start, count, sequences);
    free(sequences);
    return error;
}

static int write_stored(const struct open_dataset *dataset, const uint64_t *start,
                        const uint64_t *count, const struct hdf5_sequences *all)
{
    struct box box = {.rank = dataset->rank > 0 ? dataset->rank : 1, .count = {1}};
    for (int i = 0; i < dataset->rank; i++) {
        box.start[i] = start[i];
        box.count[i] = count[i];
    }
    return stored_write(dataset, &box, all->bytes, all->n);
}

/* *size: bytes of what sequences are of; 0: elements are no such sequences. */
static int base_size(hid_t type, size_t *size)
{
    bool has_pointers;
    *size = H5Tis_variable_str(type) > 0 ? 1 : 0;
    if (*size > 0 || H5Tget_class(type) != H5T_VLEN)
        return 0;
    hid_t base = H5Tget_super(type);
    if (base < 0)
        return library_failed(-EIO);
    int error = type_has_pointers(base, &has_pointers);
    if (!error && !has_pointers)
        *size = H5Tget_size(base);
    H5Tclose(base);
    return error;
}

int local_write_sequences(struct hdf5 *hdf5, uint64_t address, const uint64_t *start,
                          const uint64_t *count, const struct hdf5_sequences *sequences)
{
    struct given given = {.all = *sequences};
    library_enter();
    struct open_dataset *dataset = dataset_find(hdf5, address);
    int error = dataset ? dataset_check_storage(dataset) : -EBADF;
    size_t size = 0;
    if (!error)
        error = base_size(dataset->type, &size);
    given.base_size = size ? size : 1;
    if (!error && (!box_product(count, dataset->rank, 1, &given.n) || !is_whole(&given)))
        error = -EINVAL;
    if (!error && given.n > 0)
        error = size == 0 ? write_stored(dataset, start, count, sequences)
                : H5Tis_variable_str(dataset->type) > 0
                    ? write_strings(dataset, start, count, &given)
                    : write_sequences(dataset, start, count, &given);
    return library_leave_with(error);
}
