/* The sparse-data programming model with HDF5 handles, for programs that use libhdf5 themselves:
 * each call encodes the handles that it is given and does what the call of sparsefs.h does. No
 * handle enters libsparsefs, so that the program's libhdf5 may be another than that of libsparsefs;
 * everything here is compiled into the program. For libhdf5 1.10 and later.
 *
 * Functions return 0 or a negative errno: those of the call of sparsefs.h, -EINVAL for a handle
 * that libhdf5 refuses (its error stack says why), -EOPNOTSUPP for elements that it cannot convert,
 * -ENOMEM; *defined and *dataset are set only if 0 is returned. Handles, buffers and property
 * lists stay the caller's. Each call uses the program's libhdf5 in the calling thread: calls of
 * several threads at once need a thread-safe one. Datatypes are those of the buffer,
 * native ones too. H5S_ALL means what it means in H5Dread and H5Dwrite: as space, all elements; as
 * memory_space, the selection of space in a buffer with the dims of the dataset. Files, datasets,
 * extents and chunks need no handles: their calls are in sparsefs.h. */
#ifndef SPARSEFS_HDF5_H
#define SPARSEFS_HDF5_H

#include <errno.h>
#include <hdf5.h>
#include <stdlib.h>
#include <string.h>

#include <sparsefs/sparsefs.h>

/* ---- Handles as bytes ---- */

static inline int sfs_h5_encode_with(hid_t id, int is_type, void *bytes, size_t *n)
{
    herr_t result;
    if (is_type)
        result = H5Tencode(id, bytes, n);
    else
#if H5_VERSION_GE(1, 12, 0)
        result = H5Sencode2(id, bytes, n, H5P_DEFAULT);
#else
        result = H5Sencode(id, bytes, n);
#endif
    return result < 0 ? -EINVAL : 0;
}

/* The caller frees encoded->bytes, which are NULL after an error. */
static inline int sfs_h5_encode(hid_t id, int is_type, struct sfs_encoded *encoded)
{
    size_t n = 0;
    encoded->bytes = NULL;
    encoded->n = 0;
    int error = sfs_h5_encode_with(id, is_type, NULL, &n);
    void *bytes = error ? NULL : malloc(n);
    if (!error && !bytes)
        error = -ENOMEM;
    if (!error)
        error = sfs_h5_encode_with(id, is_type, bytes, &n);
    if (error) {
        free(bytes);
        return error;
    }
    encoded->bytes = bytes;
    encoded->n = n;
    return 0;
}

/* A dataspace; H5S_ALL becomes no bytes. */
static inline int sfs_h5_encode_space(hid_t space, struct sfs_encoded *encoded)
{
    encoded->bytes = NULL;
    encoded->n = 0;
    return space == H5S_ALL ? 0 : sfs_h5_encode(space, 0, encoded);
}

static inline const struct sfs_encoded *sfs_h5_or_null(const struct sfs_encoded *encoded)
{
    return encoded->bytes ? encoded : NULL;
}

/* ---- Elements with parts of variable length ----
 *
 * hvl_t, or char * for strings of variable length, hobj_ref_t for references to objects, on one
 * side, struct sfs_sequence on the other; all else is converted. A hdset_reg_ref_t is none of them:
 * it is where something stands in a file that libhdf5 has open. */

enum sfs_h5_kind {
    SFS_H5_PLAIN,
    SFS_H5_STRING,
    SFS_H5_SEQUENCE,
    SFS_H5_ARRAY,
    SFS_H5_COMPOUND,
    SFS_H5_OBJECT,
};

#define SFS_H5_ADDRESS_BYTES 8 /* of a hobj_ref_t in a file */

/* Where the same part of an element is on both sides. */
struct sfs_h5_part {
    enum sfs_h5_kind kind;
    size_t memory_at, file_at;     /* bytes in what it is a part of */
    size_t memory_size, file_size; /* bytes */
    hid_t memory, file;            /* plain: its datatypes; else negative */
    size_t n;                      /* elements of an array */
    size_t n_parts;                /* members of a compound; else what it is of, if anything */
    struct sfs_h5_part *parts;
};

static inline void sfs_h5_part_end(struct sfs_h5_part *part)
{
    for (size_t i = 0; i < part->n_parts; i++)
        sfs_h5_part_end(&part->parts[i]);
    free(part->parts);
    if (part->memory >= 0)
        H5Tclose(part->memory);
    if (part->file >= 0)
        H5Tclose(part->file);
    part->n_parts = 0;
    part->parts = NULL;
    part->memory = part->file = -1;
}

static inline int sfs_h5_part_begin(hid_t memory, hid_t file, const struct sfs_type *type,
                                    struct sfs_h5_part *part);

/* The same of two datatypes that are closed then. */
static inline int sfs_h5_part_take(hid_t memory, hid_t file, const struct sfs_type *type,
                                   struct sfs_h5_part *part)
{
    int error = memory < 0 || file < 0 ? -EINVAL : sfs_h5_part_begin(memory, file, type, part);
    if (memory >= 0)
        H5Tclose(memory);
    if (file >= 0)
        H5Tclose(file);
    return error;
}

static inline int sfs_h5_part_member(hid_t memory, hid_t file, const struct sfs_member *member,
                                     struct sfs_h5_part *part)
{
    int index = H5Tget_member_index(memory, member->name);
    int stored = H5Tget_member_index(file, member->name);
    if (index < 0 || stored < 0)
        return -EOPNOTSUPP;
    int error = sfs_h5_part_take(H5Tget_member_type(memory, (unsigned)index),
                                 H5Tget_member_type(file, (unsigned)stored), &member->type, part);
    part->memory_at = H5Tget_member_offset(memory, (unsigned)index);
    part->file_at = member->offset;
    return error;
}

/* Parts of a part, which has room for them. */
static inline int sfs_h5_part_inner(hid_t memory, hid_t file, const struct sfs_type *type,
                                    struct sfs_h5_part *part)
{
    int error = 0;
    if (part->kind != SFS_H5_COMPOUND)
        error = sfs_h5_part_take(H5Tget_super(memory), H5Tget_super(file), type->base, part->parts);
    for (size_t i = 0; part->kind == SFS_H5_COMPOUND && i < part->n_parts && !error; i++)
        error = sfs_h5_part_member(memory, file, &type->members[i], &part->parts[i]);
    if (error || part->kind != SFS_H5_ARRAY)
        return error;
    part->n = part->file_size / part->parts->file_size;
    return part->n == part->memory_size / part->parts->memory_size ? 0 : -EOPNOTSUPP;
}

/* A reference of memory in place of one of the file. */
static inline int sfs_h5_part_reference(hid_t memory, const struct sfs_type *type,
                                        struct sfs_h5_part *part)
{
    part->kind = SFS_H5_OBJECT;
    return type->reference == SFS_REFERENCE_OBJECT && H5Tget_class(memory) == H5T_REFERENCE &&
                   part->memory_size == sizeof(hobj_ref_t)
               ? 0
               : -EOPNOTSUPP;
}

/* Of a datatype of memory, and that of the file as libhdf5 and as sparsefs describe it.
 * -EOPNOTSUPP: one has parts of variable length where the other has not, members of the file are
 * missing, or it has references to regions. */
static inline int sfs_h5_part_begin(hid_t memory, hid_t file, const struct sfs_type *type,
                                    struct sfs_h5_part *part)
{
    H5T_class_t wanted = type->is_string               ? H5T_STRING
                         : type->class == SFS_VARIABLE ? H5T_VLEN
                         : type->class == SFS_ARRAY    ? H5T_ARRAY
                         : type->class == SFS_COMPOUND ? H5T_COMPOUND
                                                       : H5T_NO_CLASS;
    part->kind = type->is_string       ? SFS_H5_STRING
                 : wanted == H5T_VLEN  ? SFS_H5_SEQUENCE
                 : wanted == H5T_ARRAY ? SFS_H5_ARRAY
                                       : SFS_H5_COMPOUND;
    part->memory_at = part->file_at = part->n = part->n_parts = 0;
    part->memory_size = H5Tget_size(memory);
    part->file_size = type->size;
    part->memory = part->file = -1;
    part->parts = NULL;
    if (!type->has_pointers) {
        part->kind = SFS_H5_PLAIN;
        part->memory = H5Tcopy(memory);
        part->file = H5Tcopy(file);
        return part->memory < 0 || part->file < 0 ? -EINVAL : 0;
    }
    if (type->class == SFS_REFERENCE)
        return sfs_h5_part_reference(memory, type, part);
    if (H5Tget_class(memory) != wanted || (type->is_string && H5Tis_variable_str(memory) <= 0))
        return -EOPNOTSUPP;
    if (type->is_string)
        return 0;
    size_t n = wanted == H5T_COMPOUND ? type->n_members : 1;
    part->parts = (struct sfs_h5_part *)calloc(n, sizeof(*part->parts));
    if (!part->parts)
        return -ENOMEM;
    for (size_t i = 0; i < n; i++)
        part->parts[i].memory = part->parts[i].file = -1;
    part->n_parts = n;
    return sfs_h5_part_inner(memory, file, type, part);
}

/* n elements in a block of their own, with room for one more; NULL: no memory, or they cannot be
 * converted, as *error says. Negative types: they are bytes. */
static inline void *sfs_h5_convert(hid_t from, hid_t to, const void *elements, size_t n, int *error)
{
    size_t from_size = from < 0 ? 1 : H5Tget_size(from), to_size = to < 0 ? 1 : H5Tget_size(to);
    size_t size = from_size > to_size ? from_size : to_size;
    char *block = (char *)calloc(n + 1, size);
    void *background = from < 0 ? NULL : calloc(n + 1, size);
    if (!block || (from >= 0 && !background)) {
        *error = -ENOMEM;
    } else {
        if (n > 0)
            memcpy(block, elements, n * from_size);
        if (from >= 0 && n > 0 && H5Tconvert(from, to, n, block, background, H5P_DEFAULT) < 0)
            *error = -EOPNOTSUPP;
    }
    free(background);
    if (*error) {
        free(block);
        block = NULL;
    }
    return block;
}

static inline int sfs_h5_store(const struct sfs_h5_part *part, const char *from, char *to);
static inline int sfs_h5_load(const struct sfs_h5_part *part, const char *from, char *to);

/* One plain element. */
static inline int sfs_h5_plain(hid_t from_type, hid_t to_type, const char *from, char *to,
                               size_t to_size)
{
    int error = 0;
    void *block = sfs_h5_convert(from_type, to_type, from, 1, &error);
    if (block)
        memcpy(to, block, to_size);
    free(block);
    return error;
}

static inline int sfs_h5_store_sequence(const struct sfs_h5_part *part, const char *from, char *to)
{
    const struct sfs_h5_part *base = part->parts;
    struct sfs_sequence sequence;
    hvl_t given;
    int error = 0;
    char *elements;
    memcpy(&given, from, sizeof(given));
    if (base->kind == SFS_H5_PLAIN)
        elements = (char *)sfs_h5_convert(base->memory, base->file, given.p, given.len, &error);
    else
        elements = (char *)calloc(given.len + 1, base->file_size);
    if (!elements)
        return error ? error : -ENOMEM;
    sequence.elements = elements;
    sequence.n = given.len;
    memcpy(to, &sequence, sizeof(sequence));
    for (size_t i = 0; base->kind != SFS_H5_PLAIN && i < given.len && !error; i++)
        error = sfs_h5_store(base, (const char *)given.p + i * base->memory_size,
                             elements + i * base->file_size);
    return error;
}

static inline int sfs_h5_store_string(const char *from, char *to)
{
    struct sfs_sequence sequence;
    const char *text;
    int error = 0;
    memcpy(&text, from, sizeof(text));
    sequence.n = text ? strlen(text) : 0;
    sequence.elements = sfs_h5_convert(-1, -1, text, (size_t)sequence.n, &error);
    if (!error)
        memcpy(to, &sequence, sizeof(sequence));
    return error;
}

static inline int sfs_h5_store_object(const char *from, char *to)
{
    struct sfs_sequence sequence = {{NULL}, 0};
    unsigned char *bytes = NULL;
    hobj_ref_t object;
    memcpy(&object, from, sizeof(object));
    if (object != 0) {
        bytes = (unsigned char *)malloc(SFS_H5_ADDRESS_BYTES);
        if (!bytes)
            return -ENOMEM;
        sequence.elements = bytes;
        sequence.n = SFS_H5_ADDRESS_BYTES;
    }
    for (int i = 0; bytes && i < SFS_H5_ADDRESS_BYTES; i++)
        bytes[i] = (unsigned char)(object >> 8 * i);
    memcpy(to, &sequence, sizeof(sequence));
    return 0;
}

/* An element of memory becomes one of a buffer of sparsefs, of zeros before. sfs_h5_drop frees what
 * it leads to, also after an error. */
static inline int sfs_h5_store(const struct sfs_h5_part *part, const char *from, char *to)
{
    int error = 0;
    if (part->kind == SFS_H5_PLAIN)
        return sfs_h5_plain(part->memory, part->file, from, to, part->file_size);
    if (part->kind == SFS_H5_STRING)
        return sfs_h5_store_string(from, to);
    if (part->kind == SFS_H5_OBJECT)
        return sfs_h5_store_object(from, to);
    if (part->kind == SFS_H5_SEQUENCE)
        return sfs_h5_store_sequence(part, from, to);
    for (size_t i = 0; i < part->n && !error; i++)
        error = sfs_h5_store(part->parts, from + i * part->parts->memory_size,
                             to + i * part->parts->file_size);
    for (size_t i = 0; part->kind == SFS_H5_COMPOUND && i < part->n_parts && !error; i++)
        error = sfs_h5_store(&part->parts[i], from + part->parts[i].memory_at,
                             to + part->parts[i].file_at);
    return error;
}

static inline void sfs_h5_drop(const struct sfs_h5_part *part, const char *element)
{
    struct sfs_sequence sequence;
    for (size_t i = 0; i < part->n; i++)
        sfs_h5_drop(part->parts, element + i * part->parts->file_size);
    for (size_t i = 0; part->kind == SFS_H5_COMPOUND && i < part->n_parts; i++)
        sfs_h5_drop(&part->parts[i], element + part->parts[i].file_at);
    if (part->kind != SFS_H5_STRING && part->kind != SFS_H5_SEQUENCE && part->kind != SFS_H5_OBJECT)
        return;
    memcpy(&sequence, element, sizeof(sequence));
    const char *elements = (const char *)sequence.elements;
    for (size_t i = 0; part->n_parts > 0 && elements && i < sequence.n; i++)
        sfs_h5_drop(part->parts, elements + i * part->parts->file_size);
    free((void *)sequence.elements);
}

static inline int sfs_h5_load_sequence(const struct sfs_h5_part *part,
                                       const struct sfs_sequence *sequence, char *to)
{
    const struct sfs_h5_part *base = part->parts;
    size_t n = (size_t)sequence->n;
    hvl_t given = {0, NULL};
    int error = 0;
    if (n > 0 && base->kind == SFS_H5_PLAIN)
        given.p = sfs_h5_convert(base->file, base->memory, sequence->elements, n, &error);
    else if (n > 0)
        given.p = calloc(n, base->memory_size);
    if (n > 0 && !given.p && !error)
        error = -ENOMEM;
    given.len = given.p ? n : 0;
    memcpy(to, &given, sizeof(given));
    for (size_t i = 0; base->kind != SFS_H5_PLAIN && i < n && !error; i++)
        error = sfs_h5_load(base, (const char *)sequence->elements + i * base->file_size,
                            (char *)given.p + i * base->memory_size);
    return error;
}

static inline int sfs_h5_load_object(const char *from, char *to)
{
    struct sfs_sequence sequence;
    hobj_ref_t object;
    memcpy(&sequence, from, sizeof(sequence));
    object = (hobj_ref_t)sfs_reference_address(&sequence);
    memcpy(to, &object, sizeof(object));
    return 0;
}

/* The other way round; what it leads to is freed by H5Dvlen_reclaim. */
static inline int sfs_h5_load(const struct sfs_h5_part *part, const char *from, char *to)
{
    struct sfs_sequence sequence;
    int error = 0;
    if (part->kind == SFS_H5_PLAIN)
        return sfs_h5_plain(part->file, part->memory, from, to, part->memory_size);
    if (part->kind == SFS_H5_OBJECT)
        return sfs_h5_load_object(from, to);
    if (part->kind == SFS_H5_STRING || part->kind == SFS_H5_SEQUENCE)
        memcpy(&sequence, from, sizeof(sequence));
    if (part->kind == SFS_H5_SEQUENCE)
        return sfs_h5_load_sequence(part, &sequence, to);
    if (part->kind == SFS_H5_STRING) {
        void *text = sfs_h5_convert(-1, -1, sequence.elements, (size_t)sequence.n, &error);
        memcpy(to, &text, sizeof(text));
    }
    for (size_t i = 0; i < part->n && !error; i++)
        error = sfs_h5_load(part->parts, from + i * part->parts->file_size,
                            to + i * part->parts->memory_size);
    for (size_t i = 0; part->kind == SFS_H5_COMPOUND && i < part->n_parts && !error; i++)
        error = sfs_h5_load(&part->parts[i], from + part->parts[i].file_at,
                            to + part->parts[i].memory_at);
    return error;
}

/* ---- Such elements of a selection ---- */

struct sfs_h5_elements {
    struct sfs_h5_part part; /* all of an element */
    char *elements;          /* in the order of a selection */
    size_t n, done;
    int error;
};

static inline int sfs_h5_elements_begin(const struct sfs_dataset *dataset, hid_t type,
                                        struct sfs_h5_elements *all)
{
    const struct sfs_dataset_info *info = sfs_dataset_info(dataset);
    hid_t file = H5Tdecode(info->encoded_type.bytes), memory = H5Tcopy(type);
    memset(all, 0, sizeof(*all));
    all->part.memory = all->part.file = -1;
    int error = sfs_h5_part_take(memory, file, &info->type, &all->part);
    if (error)
        sfs_h5_part_end(&all->part);
    return error;
}

/* A selection whose elements H5Diterate goes through: of memory if that is given, else what it is
 * in a buffer with the dims of the dataset. The caller closes it. */
static inline hid_t sfs_h5_memory(const struct sfs_dataset *dataset, hid_t memory_space,
                                  hid_t space)
{
    const struct sfs_dataset_info *info = sfs_dataset_info(dataset);
    hsize_t dims[SFS_MAX_RANK];
    if (memory_space != H5S_ALL || space != H5S_ALL)
        return H5Scopy(memory_space != H5S_ALL ? memory_space : space);
    for (int i = 0; i < info->rank; i++)
        dims[i] = info->dims[i];
    return info->rank > 0 ? H5Screate_simple(info->rank, dims, NULL) : H5Screate(H5S_SCALAR);
}

static inline herr_t sfs_h5_collect(void *element, hid_t type, unsigned rank, const hsize_t *point,
                                    void *context)
{
    struct sfs_h5_elements *all = (struct sfs_h5_elements *)context;
    char *to = all->elements + all->done++ * all->part.file_size;
    (void)type, (void)rank, (void)point;
    all->error = sfs_h5_store(&all->part, (const char *)element, to);
    return all->error ? -1 : 0;
}

static inline herr_t sfs_h5_spread(void *element, hid_t type, unsigned rank, const hsize_t *point,
                                   void *context)
{
    struct sfs_h5_elements *all = (struct sfs_h5_elements *)context;
    const char *from = all->elements + all->done++ * all->part.file_size;
    (void)type, (void)rank, (void)point;
    all->error = sfs_h5_load(&all->part, from, (char *)element);
    return all->error ? -1 : 0;
}

/* What a function above is told of the selected elements of a buffer. */
static inline int sfs_h5_each(struct sfs_h5_elements *all, hid_t type, hid_t memory, void *buffer,
                              H5D_operator_t each)
{
    herr_t result = all->n > 0 ? H5Diterate(buffer, type, memory, each, all) : 0;
    return all->error ? all->error : result < 0 ? -EINVAL : 0;
}

/* As sfs_h5_write. */
static inline int sfs_h5_write_variable(struct sfs_dataset *dataset, hid_t type, hid_t memory,
                                        hid_t space, void *buffer)
{
    struct sfs_h5_elements all;
    struct sfs_encoded encoded = {NULL, 0}, packed = {NULL, 0};
    hssize_t n = H5Sget_select_npoints(memory);
    hsize_t count = n > 0 ? (hsize_t)n : 0;
    int error = n < 0 ? -EINVAL : sfs_h5_elements_begin(dataset, type, &all);
    if (error)
        return error;
    all.n = (size_t)count;
    all.elements = (char *)calloc(all.n + 1, all.part.file_size);
    error = all.elements ? sfs_h5_each(&all, type, memory, buffer, sfs_h5_collect) : -ENOMEM;
    hid_t one = H5Screate_simple(1, &count, NULL);
    if (!error)
        error = one < 0 ? -EINVAL : sfs_h5_encode_space(one, &packed);
    if (!error)
        error = sfs_h5_encode_space(space, &encoded);
    if (!error)
        error = sfs_dataset_write(dataset, NULL, &packed, sfs_h5_or_null(&encoded), all.elements);
    for (size_t i = 0; all.elements && i < all.done; i++)
        sfs_h5_drop(&all.part, all.elements + i * all.part.file_size);
    if (one >= 0)
        H5Sclose(one);
    free((void *)encoded.bytes);
    free((void *)packed.bytes);
    free(all.elements);
    sfs_h5_part_end(&all.part);
    return error;
}

/* As sfs_h5_read; what the elements lead to is freed by H5Dvlen_reclaim. */
static inline int sfs_h5_read_variable(struct sfs_dataset *dataset, hid_t type, hid_t memory,
                                       hid_t space, void *buffer)
{
    struct sfs_h5_elements all;
    struct sfs_encoded encoded = {NULL, 0};
    void *elements = NULL;
    uint64_t n = 0;
    hssize_t wanted = H5Sget_select_npoints(memory);
    int error = sfs_h5_elements_begin(dataset, type, &all);
    if (error)
        return error;
    error = sfs_h5_encode_space(space, &encoded);
    if (!error)
        error = sfs_read_variable(dataset, sfs_h5_or_null(&encoded), &elements, &n);
    if (!error && (wanted < 0 || (uint64_t)wanted != n))
        error = -EINVAL;
    all.elements = (char *)elements;
    all.n = (size_t)n;
    if (!error)
        error = sfs_h5_each(&all, type, memory, buffer, sfs_h5_spread);
    free(elements);
    free((void *)encoded.bytes);
    sfs_h5_part_end(&all.part);
    return error;
}

typedef int (*sfs_h5_variable_function)(struct sfs_dataset *dataset, hid_t type, hid_t memory,
                                        hid_t space, void *buffer);

/* Calls one of the two. */
static inline int sfs_h5_variable(struct sfs_dataset *dataset, hid_t type, hid_t memory_space,
                                  hid_t space, void *buffer, sfs_h5_variable_function function)
{
    hid_t memory = sfs_h5_memory(dataset, memory_space, space);
    int error = memory < 0 ? -EINVAL : function(dataset, type, memory, space, buffer);
    if (memory >= 0)
        H5Sclose(memory);
    return error;
}

/* ---- Reading, writing, erasing ---- */

struct sfs_h5_transfer {
    struct sfs_encoded type, memory_space, space;
};

static inline void sfs_h5_transfer_end(struct sfs_h5_transfer *transfer)
{
    free((void *)transfer->type.bytes);
    free((void *)transfer->memory_space.bytes);
    free((void *)transfer->space.bytes);
}

static inline int sfs_h5_transfer_begin(hid_t type, hid_t memory_space, hid_t space,
                                        struct sfs_h5_transfer *transfer)
{
    transfer->memory_space.bytes = transfer->space.bytes = NULL;
    int error = sfs_h5_encode(type, 1, &transfer->type);
    if (!error)
        error = sfs_h5_encode_space(memory_space, &transfer->memory_space);
    if (!error)
        error = sfs_h5_encode_space(space, &transfer->space);
    if (error)
        sfs_h5_transfer_end(transfer);
    return error;
}

/* H5Dread. Undefined elements read as the fill value. Of parts of variable length the buffer
 * gets hvl_t, or char *: H5Dvlen_reclaim frees what they lead to, also after an error if the buffer
 * was set to zeros before. */
static inline int sfs_h5_read(struct sfs_dataset *dataset, hid_t type, hid_t memory_space,
                              hid_t space, void *buffer)
{
    struct sfs_h5_transfer transfer;
    if (sfs_dataset_info(dataset)->type.has_pointers)
        return sfs_h5_variable(dataset, type, memory_space, space, buffer, sfs_h5_read_variable);
    int error = sfs_h5_transfer_begin(type, memory_space, space, &transfer);
    if (error)
        return error;
    error = sfs_dataset_read(dataset, &transfer.type, sfs_h5_or_null(&transfer.memory_space),
                             sfs_h5_or_null(&transfer.space), buffer);
    sfs_h5_transfer_end(&transfer);
    return error;
}

/* H5Dwrite. The elements become defined. */
static inline int sfs_h5_write(struct sfs_dataset *dataset, hid_t type, hid_t memory_space,
                               hid_t space, const void *buffer)
{
    struct sfs_h5_transfer transfer;
    if (sfs_dataset_info(dataset)->type.has_pointers)
        return sfs_h5_variable(dataset, type, memory_space, space, (void *)buffer,
                               sfs_h5_write_variable);
    int error = sfs_h5_transfer_begin(type, memory_space, space, &transfer);
    if (error)
        return error;
    error = sfs_dataset_write(dataset, &transfer.type, sfs_h5_or_null(&transfer.memory_space),
                              sfs_h5_or_null(&transfer.space), buffer);
    sfs_h5_transfer_end(&transfer);
    return error;
}

/* H5Derase. The selected elements become undefined. */
static inline int sfs_h5_erase(struct sfs_dataset *dataset, hid_t space)
{
    struct sfs_encoded encoded;
    int error = sfs_h5_encode_space(space, &encoded);
    if (!error)
        error = sfs_dataset_erase(dataset, sfs_h5_or_null(&encoded));
    free((void *)encoded.bytes);
    return error;
}

/* Decodes what H5Sencode gives; the caller closes the dataspace, which is negative after an error. A
 * prefix of seven bytes, of which the last four are the size of the extent, is followed by the extent
 * and the kind of the selection. libhdf5 1.10.6 takes kind 0, "none", for "all". */
static inline hid_t sfs_h5_decode_space(const void *encoded)
{
    const unsigned char *bytes = (const unsigned char *)encoded;
    size_t at = 7 + (bytes[3] | (size_t)bytes[4] << 8);
    hid_t space = H5Sdecode(encoded);
    if (space >= 0 && !(bytes[at] | bytes[at + 1] | bytes[at + 2] | bytes[at + 3]))
        H5Sselect_none(space);
    return space;
}

/* The same of bytes that are freed then. */
static inline int sfs_h5_take_space(void *bytes, hid_t *space)
{
    hid_t decoded = sfs_h5_decode_space(bytes);
    free(bytes);
    if (decoded >= 0)
        *space = decoded;
    return decoded < 0 ? -EINVAL : 0;
}

/* H5Dget_defined: a new dataspace, of the dims of the dataset, which selects those elements of
 * space that are defined, points in the same order. The caller closes *defined, by H5Sclose. */
static inline int sfs_h5_get_defined(struct sfs_dataset *dataset, hid_t space, hid_t *defined)
{
    struct sfs_encoded encoded;
    void *bytes = NULL;
    size_t n;
    int error = sfs_h5_encode_space(space, &encoded);
    if (!error)
        error = sfs_dataset_get_defined(dataset, sfs_h5_or_null(&encoded), &bytes, &n);
    free((void *)encoded.bytes);
    return error ? error : sfs_h5_take_space(bytes, defined);
}

/* ---- References ---- */

/* As sfs_reference_encode, with a dataspace of the dataset at the address; H5S_ALL: to the object. */
static inline int sfs_h5_reference(uint64_t address, hid_t space, void **bytes, size_t *n)
{
    struct sfs_encoded encoded;
    int error = sfs_h5_encode_space(space, &encoded);
    if (!error)
        error = sfs_reference_encode(address, sfs_h5_or_null(&encoded), bytes, n);
    free((void *)encoded.bytes);
    return error;
}

/* As sfs_reference_region. The caller closes *space. */
static inline int sfs_h5_reference_region(struct sfs_dataset *dataset,
                                          const struct sfs_sequence *reference, hid_t *space)
{
    void *bytes;
    size_t n;
    int error = sfs_reference_region(dataset, reference, &bytes, &n);
    return error ? error : sfs_h5_take_space(bytes, space);
}

/* ---- Creating ---- */

#define SFS_H5_FILTER_VALUES 256 /* the most parameters that H5Pget_filter2 gives */

/* A filter with room for its parameters. */
struct sfs_h5_filter {
    unsigned values[SFS_H5_FILTER_VALUES];
};

/* The filters of a dataset creation property list (H5P_DEFAULT: none). *n stays as it is if there are
 * none. The caller frees *filters and *values, also after an error; *filters points into *values. -EINVAL, also
 * for a filter with more than SFS_H5_FILTER_VALUES parameters. */
static inline int sfs_h5_filters(hid_t dcpl, size_t *n, struct sfs_filter **filters,
                                 struct sfs_h5_filter **values)
{
    *filters = NULL;
    *values = NULL;
    int count = dcpl == H5P_DEFAULT ? 0 : H5Pget_nfilters(dcpl);
    if (count <= 0)
        return count < 0 ? -EINVAL : 0;
    *filters = (struct sfs_filter *)calloc((size_t)count, sizeof(**filters));
    *values = (struct sfs_h5_filter *)calloc((size_t)count, sizeof(**values));
    if (!*filters || !*values)
        return -ENOMEM;
    for (int i = 0; i < count; i++) {
        struct sfs_filter *filter = &(*filters)[i];
        unsigned flags = 0;
        size_t n_values = SFS_H5_FILTER_VALUES;
        filter->id = H5Pget_filter2(dcpl, (unsigned)i, &flags, &n_values, (*values)[i].values,
                                    sizeof(filter->name), filter->name, NULL);
        if (filter->id < 0 || n_values > SFS_H5_FILTER_VALUES)
            return -EINVAL;
        filter->optional = (flags & H5Z_FLAG_OPTIONAL) != 0;
        filter->n_values = n_values;
        filter->values = (*values)[i].values;
    }
    *n = (size_t)count;
    return 0;
}

/* Rank, dims, max dims, and chunk dims. */
static inline int sfs_h5_dims(hid_t space, hid_t dcpl, struct sfs_dataset_create *create)
{
    hsize_t dims[SFS_MAX_RANK], max_dims[SFS_MAX_RANK], chunk_dims[SFS_MAX_RANK];
    int rank = H5Sget_simple_extent_ndims(space);
    if (rank < 1 || rank > SFS_MAX_RANK ||
        H5Sget_simple_extent_dims(space, dims, max_dims) != rank ||
        H5Pget_layout(dcpl) != H5D_CHUNKED || H5Pget_chunk(dcpl, rank, chunk_dims) != rank)
        return -EINVAL;
    create->rank = rank;
    for (int i = 0; i < rank; i++) {
        create->dims[i] = dims[i];
        create->max_dims[i] = max_dims[i] == H5S_UNLIMITED ? SFS_UNLIMITED : max_dims[i];
        create->chunk_dims[i] = chunk_dims[i];
    }
    return 0;
}

/* The fill value in the dataset's datatype, NULL if dcpl does not define one; the caller frees it, also
 * after an error. */
static inline int sfs_h5_fill(hid_t type, hid_t dcpl, void **fill)
{
    H5D_fill_value_t status;
    size_t size = H5Tget_size(type);
    *fill = NULL;
    if (size == 0 || H5Pfill_value_defined(dcpl, &status) < 0)
        return -EINVAL;
    if (status != H5D_FILL_VALUE_USER_DEFINED)
        return 0;
    *fill = calloc(1, size);
    if (!*fill)
        return -ENOMEM;
    return H5Pget_fill_value(dcpl, type, *fill) < 0 ? -EINVAL : 0;
}

/* What dcpl says of partial chunks and times. */
static inline int sfs_h5_times(hid_t dcpl, struct sfs_dataset_create *create)
{
    unsigned options;
    H5D_alloc_time_t allocation;
    H5D_fill_time_t fill_time;
    if (H5Pget_chunk_opts(dcpl, &options) < 0 || H5Pget_alloc_time(dcpl, &allocation) < 0 ||
        H5Pget_fill_time(dcpl, &fill_time) < 0)
        return -EINVAL;
    create->unfiltered_edges = (options & H5D_CHUNK_DONT_FILTER_PARTIAL_CHUNKS) != 0;
    create->allocation = allocation == H5D_ALLOC_TIME_EARLY  ? SFS_ALLOCATION_EARLY
                         : allocation == H5D_ALLOC_TIME_LATE ? SFS_ALLOCATION_LATE
                                                             : SFS_ALLOCATION_INCREMENTAL;
    create->fill_time = fill_time == H5D_FILL_TIME_ALLOC   ? SFS_FILL_ALLOCATED
                        : fill_time == H5D_FILL_TIME_NEVER ? SFS_FILL_NEVER
                                                           : SFS_FILL_IF_SET;
    return 0;
}

/* H5Dcreate2 of a sparse dataset, with the groups on the way that are missing. path is absolute.
 * dcpl[1] gives chunk dims (H5Pset_chunk stands for H5Pset_struct_chunk), H5Pset_chunk_opts, times of
 * allocation and of filling, and fill value. The filters of each section are those of its property list
 * (H5Pset_filter2; H5P_DEFAULT: none): of dcpl[0] for selections, of dcpl[1] for values, of dcpl[2] for
 * variable-length data. What else they hold is not looked at. The caller closes *dataset, by
 * sfs_dataset_close. -EINVAL, too: dcpl[1] has no chunks (H5P_DEFAULT has none), they are of another rank
 * than the dataspace, or that is not 1 to SFS_MAX_RANK; dcpl[2] has filters, and the elements no parts of
 * variable length. */
static inline int sfs_h5_create_sections(struct sfs_file *file, const char *path, hid_t type,
                                         hid_t space, const hid_t dcpl[SFS_SECTIONS],
                                         struct sfs_dataset **dataset)
{
    struct sfs_dataset_create create = {0};
    struct sfs_filter *filters[SFS_SECTIONS] = {NULL};
    struct sfs_h5_filter *values[SFS_SECTIONS] = {NULL};
    void *fill = NULL;
    int error = sfs_h5_dims(space, dcpl[1], &create);
    if (!error)
        error = sfs_h5_times(dcpl[1], &create);
    if (!error)
        error = sfs_h5_encode(type, 1, &create.type);
    if (!error)
        error = sfs_h5_fill(type, dcpl[1], &fill);
    for (int i = 0; i < SFS_SECTIONS && !error; i++) {
        error = sfs_h5_filters(dcpl[i], &create.n_filters[i], &filters[i], &values[i]);
        create.filters[i] = filters[i];
    }
    create.fill = fill;
    if (!error)
        error = sfs_dataset_create(file, path, &create, dataset);
    for (int i = 0; i < SFS_SECTIONS; i++) {
        free(filters[i]);
        free(values[i]);
    }
    free(fill);
    free((void *)create.type.bytes);
    return error;
}

/* The same without filters for variable-length data. */
static inline int sfs_h5_create(struct sfs_file *file, const char *path, hid_t type, hid_t space,
                                hid_t dcpl, hid_t selection_dcpl, struct sfs_dataset **dataset)
{
    const hid_t of_sections[SFS_SECTIONS] = {selection_dcpl, dcpl, H5P_DEFAULT};
    return sfs_h5_create_sections(file, path, type, space, of_sections, dataset);
}

#endif
