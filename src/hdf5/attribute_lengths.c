/* What the variable-length parts of an attribute take, before it is read: libhdf5 allocates
 * whatever their lengths say, though all of them may be the same few bytes of the file, or none.
 *
 * For that they are read as something else: a conversion of ours gets each string or sequence as it
 * stands in the file (HDF5 file format specification, section IV.B: "Variable-length": 4 bytes of
 * length, and where in a global heap it is), and counts. Sequences in sequences are counted in
 * turn, from the outermost on, so that what is allocated for counting was counted before. */
#include <endian.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "common/box.h"
#include "hdf5/private.h"

#define TAG         "sparsefs: bytes in memory"
#define TAG_LENGTHS "sparsefs: lengths"

static _Thread_local struct {
    uint64_t bytes, most;
} count;

static bool is_of_variable_length(hid_t type)
{
    H5T_class_t class = H5Tget_class(type);
    return class == H5T_VLEN || (class == H5T_STRING && H5Tis_variable_str(type) > 0);
}

/* Bytes in memory of one unit of such a type's length; 0: libhdf5 failed. */
static size_t unit(hid_t type)
{
    if (H5Tget_class(type) == H5T_STRING)
        return 1;
    hid_t base = H5Tget_super(type), native = base < 0 ? base : text_memory_type(base);
    size_t size = native < 0 ? 0 : H5Tget_size(native);
    if (native >= 0)
        H5Tclose(native);
    if (base >= 0)
        H5Tclose(base);
    return size;
}

static bool has_tag(hid_t type, const char *wanted)
{
    char *tag = H5Tget_tag(type);
    bool is_it = tag && !strcmp(tag, wanted);
    H5free_memory(tag);
    return is_it;
}

static uint64_t length_at(const char *element)
{
    uint32_t length;
    memcpy(&length, element, sizeof(length));
    return le32toh(length);
}

/* Puts lengths where elements are; they are no longer than these. */
static herr_t put_lengths(hid_t from, size_t n, size_t stride, char *buffer)
{
    size_t step = stride ? stride : H5Tget_size(from), to = stride ? stride : sizeof(uint64_t);
    if (step < sizeof(uint64_t))
        return -1;
    for (size_t i = 0; i < n; i++) {
        uint64_t length = length_at(buffer + i * step);
        memcpy(buffer + i * to, &length, sizeof(length));
    }
    return 0;
}

static int add(uint64_t n, size_t size)
{
    uint64_t bytes;
    if (!box_product(&n, 1, size, &bytes) || bytes > count.most - count.bytes) {
        count.bytes = count.most;
        return -EFBIG;
    }
    count.bytes += bytes;
    return 0;
}

/* stride: bytes from one element to the next; 0: they are packed. What they become is not used. */
static herr_t count_elements(hid_t from, hid_t to, H5T_cdata_t *conversion, size_t n, size_t stride,
                             size_t background_stride, void *buffer, void *background, hid_t dxpl)
{
    (void)background_stride, (void)background, (void)dxpl;
    if (conversion->command == H5T_CONV_FREE)
        return 0;
    if (conversion->command == H5T_CONV_INIT) {
        conversion->need_bkg = H5T_BKG_NO;
        return is_of_variable_length(from) && (has_tag(to, TAG) || has_tag(to, TAG_LENGTHS)) ? 0
                                                                                             : -1;
    }
    if (H5Tget_size(to) == sizeof(uint64_t))
        return put_lengths(from, n, stride, buffer);
    size_t size = unit(from), step = stride ? stride : H5Tget_size(from);
    if (size == 0 || step < sizeof(uint32_t))
        return -1;
    for (size_t i = 0; i < n; i++) {
        if (add(length_at((char *)buffer + i * step), size) < 0)
            return -1;
    }
    return 0;
}

static hid_t make_tagged(size_t size, const char *tag)
{
    hid_t type = H5Tcreate(H5T_OPAQUE, size);
    if (type >= 0)
        H5Tset_tag(type, tag);
    return type;
}

static hid_t make_counter(void)
{
    return make_tagged(1, TAG);
}

/* Under the library lock, once. */
static void announce(void)
{
    static bool is_known;
    if (is_known)
        return;
    hid_t sequence = H5Tvlen_create(H5T_NATIVE_UCHAR), string = H5Tcopy(H5T_C_S1),
          counter = make_counter();
    H5Tset_size(string, H5T_VARIABLE);
    is_known =
        H5Tregister(H5T_PERS_SOFT, "sparsefs: sequences", sequence, counter, count_elements) >= 0 &&
        H5Tregister(H5T_PERS_SOFT, "sparsefs: strings", string, counter, count_elements) >= 0;
    H5Tclose(sequence);
    H5Tclose(string);
    H5Tclose(counter);
}

static hid_t counting_type(hid_t type, unsigned level);

static hid_t count_array(hid_t type, unsigned level)
{
    hsize_t dims[SFS_MAX_RANK];
    hid_t base = H5Tget_super(type), counting = base < 0 ? base : counting_type(base, level);
    int rank = counting < 0 ? -1 : H5Tget_array_dims2(type, dims);
    hid_t array = rank < 0 ? H5I_INVALID_HID : H5Tarray_create2(counting, (unsigned)rank, dims);
    if (counting >= 0)
        H5Tclose(counting);
    if (base >= 0)
        H5Tclose(base);
    return array;
}

static hid_t count_sequence(hid_t type, unsigned level)
{
    hid_t base = H5Tget_super(type), counting = base < 0 ? base : counting_type(base, level - 1);
    hid_t sequence = counting < 0 ? counting : H5Tvlen_create(counting);
    if (counting >= 0)
        H5Tclose(counting);
    if (base >= 0)
        H5Tclose(base);
    return sequence;
}

/* Adds a member to a compound that is made with the first one. */
static hid_t add_member(hid_t compound, const char *name, hid_t member)
{
    size_t size = H5Tget_size(member), at = compound < 0 ? 0 : H5Tget_size(compound);
    if (compound < 0)
        compound = H5Tcreate(H5T_COMPOUND, size);
    else
        H5Tset_size(compound, at + size);
    H5Tinsert(compound, name, at, member);
    return compound;
}

static hid_t count_compound(hid_t type, unsigned level)
{
    hid_t compound = H5I_INVALID_HID;
    int n = H5Tget_nmembers(type);
    for (int i = 0; i < n; i++) {
        hid_t inner = H5Tget_member_type(type, (unsigned)i);
        hid_t member = inner < 0 ? inner : counting_type(inner, level);
        char *name = member < 0 ? NULL : H5Tget_member_name(type, (unsigned)i);
        if (name)
            compound = add_member(compound, name, member);
        H5free_memory(name);
        if (member >= 0)
            H5Tclose(member);
        if (inner >= 0)
            H5Tclose(inner);
    }
    return compound;
}

/* The type to read one as to count what stands so many levels inside; invalid: there is nothing. */
static hid_t counting_type(hid_t type, unsigned level)
{
    H5T_class_t class = H5Tget_class(type);
    if (class == H5T_ARRAY)
        return count_array(type, level);
    if (class == H5T_COMPOUND)
        return count_compound(type, level);
    if (!is_of_variable_length(type))
        return H5I_INVALID_HID;
    if (level == 0)
        return make_counter();
    return class == H5T_VLEN ? count_sequence(type, level) : H5I_INVALID_HID;
}

static int count_level(const struct lengths_source *source, hid_t counting, uint64_t n)
{
    uint64_t bytes;
    if (!box_product(&n, 1, H5Tget_size(counting), &bytes) || bytes > count.most)
        return -EFBIG;
    void *room = calloc(bytes ? bytes : 1, 1);
    if (!room)
        return -ENOMEM;
    int error = source->read(source->context, counting, room);
    if (!error)
        text_reclaim(counting, n, room);
    else if (count.bytes == count.most)
        error = -EFBIG;
    free(room);
    H5Eclear2(H5E_DEFAULT);
    return error;
}

hid_t lengths_type(void)
{
    announce();
    return make_tagged(sizeof(uint64_t), TAG_LENGTHS);
}

int lengths_check(const struct lengths_source *source, hid_t type, uint64_t n, uint64_t most)
{
    int error = 0;
    hid_t counting = H5I_INVALID_HID;
    announce();
    count.bytes = 0;
    count.most = most;
    for (unsigned level = 0; !error && n > 0; level++) {
        counting = counting_type(type, level);
        if (counting < 0)
            break;
        error = count_level(source, counting, n);
        H5Tclose(counting);
    }
    H5Eclear2(H5E_DEFAULT);
    return error;
}
