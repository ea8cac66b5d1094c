/* The structures of hdf5.h in messages. Nothing that is taken out of one is believed: what the rest
 * of the program takes for granted is asked for here. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "common/box.h"
#include "common/why.h"
#include "format/datatype_message.h"
#include "format/stored_layout.h"
#include "hdf5/worker/wire.h"

#define WORD            sizeof(uint64_t)
#define MOST_NESTING    32 /* as libhdf5 is asked for */
#define MOST_SEGMENTS   65535
#define MOST_LISTED     ((size_t)1 << 20) /* attributes, mappings: small ones take little to send */
#define MOST_LINKS      ((size_t)1 << 22) /* libhdf5 lists more than our own reader */
#define MOST_TYPE_BYTES ((uint64_t)1 << 32)

/* Bytes of an encoded datatype: of one that a program has, and of one in a file, of which an object header has 64 KiB,
 * in older versions several times that. Each part of it takes PART_BYTES there, and its name. */
#define MOST_ENCODED        ((size_t)4 << 20)
#define MOST_STORED_ENCODED ((size_t)512 << 10)
#define PART_BYTES          8

/* Bytes of a datatype in words: "array of array of ..." */
#define MOST_WORDS 4096

/* Of a filter: a header has two bytes for how many there are. */
#define MOST_VALUES 65535

static int out_of_memory(const void *made, size_t n)
{
    return made || n == 0 ? 0 : -ENOMEM;
}

/* ---- Links and attributes ---- */

void wire_link(struct wire *wire, const struct sfs_link *link)
{
    wire_uint(wire, link->type);
    wire_uint(wire, link->address);
    wire_string(wire, link->name);
    wire_string(wire, link->target);
    wire_string(wire, link->target_file);
}

int take_link(struct cursor *cursor, struct sfs_link *out)
{
    *out = (struct sfs_link){.type = (enum sfs_link_type)take_uint(cursor, SFS_LINK_USER)};
    bool is_soft = out->type == SFS_LINK_SOFT, is_external = out->type == SFS_LINK_EXTERNAL;
    out->address = take_uint(cursor, UINT64_MAX);
    int error = take_string(cursor, true, &out->name);
    if (!error)
        error = take_string(cursor, is_soft || is_external, &out->target);
    if (!error)
        error = take_string(cursor, is_external, &out->target_file);
    if (!error && strchr(out->name, '/'))
        error = -EIO;
    if (error)
        sfs_link_free(out);
    return error;
}

void wire_links(struct wire *wire, const struct sfs_links *links)
{
    wire_uint(wire, links->n);
    for (size_t i = 0; i < links->n; i++)
        wire_link(wire, &links->link[i]);
}

int take_links(struct cursor *cursor, struct sfs_links *out)
{
    *out = (struct sfs_links){0};
    size_t n = take_count(cursor, 5 * WORD);
    cursor->failed |= n > MOST_LINKS;
    out->link = cursor->failed ? NULL : calloc(n, sizeof(*out->link));
    int error = cursor->failed ? -EIO : out_of_memory(out->link, n);
    for (size_t i = 0; i < n && !error; i++) {
        error = take_link(cursor, &out->link[i]);
        out->n += !error;
        if (!error && i > 0 && strcmp(out->link[i - 1].name, out->link[i].name) >= 0)
            error = -EIO;
    }
    if (error)
        sfs_links_free(out);
    return error;
}

void wire_attributes(struct wire *wire, const struct sfs_attributes *attributes)
{
    wire_uint(wire, attributes->n);
    for (size_t i = 0; i < attributes->n; i++) {
        wire_string(wire, attributes->attribute[i].name);
        wire_string(wire, attributes->attribute[i].text);
        wire_string(wire, attributes->attribute[i].json);
    }
}

int take_attributes(struct cursor *cursor, struct sfs_attributes *out)
{
    *out = (struct sfs_attributes){0};
    size_t n = take_count(cursor, 3 * WORD);
    cursor->failed |= n > MOST_LISTED;
    out->attribute = cursor->failed ? NULL : calloc(n, sizeof(*out->attribute));
    int error = cursor->failed ? -EIO : out_of_memory(out->attribute, n);
    for (size_t i = 0; i < n && !error; i++) {
        struct sfs_attribute *attribute = &out->attribute[out->n++];
        error = take_string(cursor, true, &attribute->name);
        if (!error)
            error = take_string(cursor, false, &attribute->text);
        if (!error)
            error = take_string(cursor, false, &attribute->json);
        if (!error && i > 0 && strcmp(attribute[-1].name, attribute->name) >= 0)
            error = -EIO;
    }
    if (error)
        sfs_attributes_free(out);
    return error;
}

/* ---- Datatypes ---- */

void wire_type(struct wire *wire, const struct sfs_type *type)
{
    wire_uint(wire, type->class);
    wire_uint(wire, type->size);
    wire_uint(wire, type->big_endian);
    wire_uint(wire, type->is_signed);
    wire_uint(wire, type->is_boolean);
    wire_uint(wire, type->is_string);
    wire_uint(wire, type->has_pointers);
    wire_uint(wire, type->bits);
    wire_uint(wire, type->bit_offset);
    wire_uint(wire, type->reference);
    wire_string(wire, type->description);
    wire_uint(wire, (uint64_t)type->array_rank);
    wire_uints(wire, type->array_dims, type->array_rank);
    wire_uint(wire, type->n_members);
    for (size_t i = 0; i < type->n_members; i++) {
        wire_string(wire, type->members[i].name);
        wire_uint(wire, type->members[i].offset);
        wire_type(wire, &type->members[i].type);
    }
    wire_uint(wire, type->base != NULL);
    if (type->base)
        wire_type(wire, type->base);
}

static bool is_machine_size(size_t size, size_t least, size_t most)
{
    return size >= least && size <= most && (size & (size - 1)) == 0;
}

static bool is_array(const struct sfs_type *type)
{
    uint64_t bytes;
    return type->array_rank > 0 && type->base &&
           box_product(type->array_dims, type->array_rank, type->base->size, &bytes) &&
           bytes == type->size;
}

/* Whether its parts make the whole that it says it is. */
static bool is_sound(const struct sfs_type *type)
{
    bool points = type->class == SFS_REFERENCE || type->class == SFS_VARIABLE;
    for (size_t i = 0; i < type->n_members; i++)
        points |= type->members[i].type.has_pointers;
    points |= type->class == SFS_ARRAY && type->base && type->base->has_pointers;
    if (points != type->has_pointers || type->size == 0 ||
        (uint64_t)type->bits + type->bit_offset > 64 ||
        (type->bits &&
         (!is_machine_size(type->size, 1, 8) || type->bits + type->bit_offset > 8 * type->size)) ||
        (type->n_members > 0 && type->class != SFS_COMPOUND) ||
        (type->array_rank > 0 && type->class != SFS_ARRAY) ||
        (type->is_boolean && (type->class != SFS_ENUM || type->size != 1)))
        return false;
    switch (type->class) {
    case SFS_INTEGER:
    case SFS_BITFIELD:
    case SFS_ENUM:
        return is_machine_size(type->size, 1, 8) && !type->base;
    case SFS_FLOAT:
        return is_machine_size(type->size, 2, 16) && !type->base;
    case SFS_ARRAY:
        return is_array(type);
    case SFS_VARIABLE:
        return type->is_string == !type->base;
    default:
        return !type->base;
    }
}

/* `left`: bytes that are left of an encoded one. */
static int take_nested(struct cursor *cursor, int depth, size_t *left, struct sfs_type *out);

static int take_from(size_t *left, size_t n)
{
    if (n > *left)
        return -EIO;
    *left -= n;
    return 0;
}

static int take_members(struct cursor *cursor, int depth, size_t *left, struct sfs_type *out)
{
    size_t n = take_count(cursor, 15 * WORD);
    cursor->failed |= n > *left / PART_BYTES;
    if (cursor->failed)
        return -EIO;
    out->members = calloc(n, sizeof(*out->members));
    int error = out_of_memory(out->members, n);
    for (size_t i = 0; i < n && !error; i++) {
        struct sfs_member *member = &out->members[out->n_members++];
        error = take_string(cursor, true, &member->name);
        member->offset = (size_t)take_uint(cursor, out->size);
        if (!error)
            error = take_from(left, strlen(member->name));
        if (!error)
            error = take_nested(cursor, depth + 1, left, &member->type);
        if (!error && member->type.size > out->size - member->offset)
            error = -EIO;
    }
    return error;
}

static int take_parts(struct cursor *cursor, int depth, size_t *left, struct sfs_type *out)
{
    int error = take_string(cursor, false, &out->description);
    if (!error && out->description && (depth > 0 || strlen(out->description) > MOST_WORDS))
        error = -EIO;
    out->array_rank = (int)take_uint(cursor, SFS_MAX_RANK);
    take_uints(cursor, out->array_dims, out->array_rank);
    if (!error)
        error = take_members(cursor, depth, left, out);
    if (error || !take_bool(cursor))
        return error;
    out->base = calloc(1, sizeof(*out->base));
    return out->base ? take_nested(cursor, depth + 1, left, out->base) : -ENOMEM;
}

static int take_nested(struct cursor *cursor, int depth, size_t *left, struct sfs_type *out)
{
    *out = (struct sfs_type){0};
    if (depth > MOST_NESTING || take_from(left, PART_BYTES))
        cursor->failed = true;
    out->class = (enum sfs_type_class)take_uint(cursor, SFS_ARRAY);
    out->size = (size_t)take_uint(cursor, MOST_TYPE_BYTES < SIZE_MAX ? MOST_TYPE_BYTES : SIZE_MAX);
    out->big_endian = take_bool(cursor);
    out->is_signed = take_bool(cursor);
    out->is_boolean = take_bool(cursor);
    out->is_string = take_bool(cursor);
    out->has_pointers = take_bool(cursor);
    out->bits = (unsigned)take_uint(cursor, 64);
    out->bit_offset = (unsigned)take_uint(cursor, 64);
    out->reference = (enum sfs_reference)take_uint(cursor, SFS_REFERENCE_ANY);
    int error = take_parts(cursor, depth, left, out);
    if (!error)
        error = take_end(cursor, false);
    if (!error && !is_sound(out))
        error = -EIO;
    if (error)
        hdf5_type_free(out);
    return error;
}

static int take_type_of_most(struct cursor *cursor, size_t most_encoded, struct sfs_type *out)
{
    int error = take_nested(cursor, 0, &most_encoded, out);
    if (!error && !out->description) {
        hdf5_type_free(out);
        error = -EIO;
    }
    return error;
}

int take_type(struct cursor *cursor, struct sfs_type *out)
{
    return take_type_of_most(cursor, MOST_ENCODED, out);
}

/* ---- Datasets ---- */

static void wire_filter(struct wire *wire, const struct sfs_filter *filter)
{
    wire_uint(wire, (uint64_t)filter->id);
    wire_uint(wire, filter->optional);
    wire_string(wire, filter->name);
    wire_uint(wire, filter->n_values);
    for (size_t i = 0; i < filter->n_values; i++)
        wire_uint(wire, filter->values[i]);
}

static int take_filter(struct cursor *cursor, struct sfs_filter *out)
{
    char *name;
    out->id = (int)take_uint(cursor, INT32_MAX);
    out->optional = take_bool(cursor);
    int error = take_string(cursor, true, &name);
    if (error)
        return error;
    bool fits = strlen(name) < sizeof(out->name);
    memcpy(out->name, name, fits ? strlen(name) + 1 : 1);
    free(name);
    size_t n = take_count(cursor, WORD);
    if (n > MOST_VALUES)
        return -EIO;
    unsigned *values = calloc(n ? n : 1, sizeof(*values));
    if (!values)
        return -ENOMEM;
    for (size_t i = 0; i < n; i++)
        values[i] = (unsigned)take_uint(cursor, UINT32_MAX);
    out->n_values = n;
    out->values = values;
    return fits ? take_end(cursor, false) : -EIO;
}

void wire_info(struct wire *wire, const struct sfs_dataset_info *info)
{
    wire_uint(wire, info->space);
    wire_uint(wire, (uint64_t)info->rank);
    wire_uints(wire, info->dims, info->rank);
    wire_uints(wire, info->max_dims, info->rank);
    wire_type(wire, &info->type);
    wire_bytes(wire, info->encoded_type.bytes, info->encoded_type.n);
    wire_bytes(wire, info->fill, info->fill ? info->type.size : 0);
    wire_string(wire, info->fill_json);
    wire_uint(wire, info->layout);
    wire_uints(wire, info->chunk_dims, info->rank);
    wire_uint(wire, info->unfiltered_edges);
    wire_uint(wire, info->allocation);
    wire_uint(wire, info->fill_time);
    wire_uint(wire, info->n_filters);
    for (size_t i = 0; i < info->n_filters; i++)
        wire_filter(wire, &info->filters[i]);
}

static void take_space(struct cursor *cursor, struct sfs_dataset_info *out)
{
    out->space = (enum sfs_space)take_uint(cursor, SFS_SPACE_NULL);
    out->rank = (int)take_uint(cursor, SFS_MAX_RANK);
    cursor->failed |= (out->space == SFS_SPACE_SIMPLE) != (out->rank > 0);
    take_uints(cursor, out->dims, out->rank);
    take_uints(cursor, out->max_dims, out->rank);
    for (int i = 0; i < out->rank; i++)
        cursor->failed |= out->dims[i] > out->max_dims[i];
    out->elements = out->space == SFS_SPACE_SCALAR ? 1 : 0;
    if (out->rank > 0 && !box_product(out->dims, out->rank, 1, &out->elements))
        out->elements = UINT64_MAX;
}

/* A copy of the bytes that follow, exactly n unless that is SIZE_MAX. */
static int take_copy(struct cursor *cursor, size_t n, void **out, size_t *out_n)
{
    size_t there = take_count(cursor, 1);
    const unsigned char *bytes = cursor_bytes(cursor, there);
    *out_n = 0;
    if (cursor->failed || (n != SIZE_MAX && there != n))
        return -EIO;
    *out = malloc(there ? there : 1);
    if (!*out)
        return -ENOMEM;
    memcpy(*out, bytes, there);
    *out_n = there;
    return 0;
}

/* Whether the parts of elements lie where their datatype says: memory is given to them, and they are taken
 * from it, by what is said here. */
static int check_layout(const struct sfs_type *type, const struct sfs_encoded *encoded)
{
    struct why why;
    struct sfs_type layout;
    int error = stored_layout_encoded(encoded, &layout, &why);
    if (!error) {
        error = stored_layout_check(&layout, type);
        datatype_layout_free(&layout);
    }
    return error && error != -ENOMEM ? -EIO : error;
}

static int take_elements(struct cursor *cursor, struct sfs_dataset_info *out)
{
    void *encoded = NULL, *fill = NULL;
    char *json = NULL;
    size_t n;
    int error = take_type_of_most(cursor, MOST_STORED_ENCODED, &out->type);
    if (!error)
        error = take_copy(cursor, SIZE_MAX, &encoded, &out->encoded_type.n);
    out->encoded_type.bytes = encoded;
    if (!error && out->encoded_type.n > MOST_STORED_ENCODED)
        error = -EIO;
    if (!error)
        error = check_layout(&out->type, &out->encoded_type);
    if (!error && out->type.has_pointers) /* it has neither fill value nor JSON of it */
        return take_uint(cursor, 0) == 0 && take_uint(cursor, 0) == 0 ? take_end(cursor, false)
                                                                      : -EIO;
    if (!error && out->type.size > HDF5_MOST_ELEMENT_BYTES)
        error = -EIO;
    if (!error)
        error = take_copy(cursor, out->type.size, &fill, &n);
    if (!error) {
        hdf5_info_set_fill(out, fill);
        error = take_string(cursor, false, &json);
    }
    if (!error)
        hdf5_info_set_fill_json(out, json);
    return error;
}

static int take_layout(struct cursor *cursor, struct sfs_dataset_info *out)
{
    out->layout = (enum sfs_layout)take_uint(cursor, SFS_VIRTUAL);
    take_uints(cursor, out->chunk_dims, out->rank);
    for (int i = 0; i < out->rank; i++)
        cursor->failed |= out->layout == SFS_CHUNKED && out->chunk_dims[i] == 0;
    cursor->failed |= out->layout == SFS_CHUNKED && out->rank == 0;
    out->unfiltered_edges = take_bool(cursor);
    out->allocation = (enum sfs_allocation)take_uint(cursor, SFS_ALLOCATION_LATE);
    out->fill_time = (enum sfs_fill_time)take_uint(cursor, SFS_FILL_NEVER);
    size_t n = (size_t)take_uint(cursor, PIPELINE_MOST_FILTERS);
    int error = take_end(cursor, false);
    out->filters = error ? NULL : calloc(n ? n : 1, sizeof(*out->filters));
    if (!error && !out->filters)
        error = -ENOMEM;
    for (size_t i = 0; i < n && !error; i++)
        error = take_filter(cursor, &out->filters[out->n_filters++]);
    return error;
}

int take_info(struct cursor *cursor, struct sfs_dataset_info *out)
{
    *out = (struct sfs_dataset_info){0};
    take_space(cursor, out);
    int error = take_elements(cursor, out);
    if (!error)
        error = take_layout(cursor, out);
    if (!error)
        error = take_end(cursor, false);
    if (error)
        hdf5_info_free(out);
    return error;
}

void wire_storage(struct wire *wire, const struct hdf5_storage *storage)
{
    wire_uint(wire, storage->address);
    wire_uint(wire, storage->bytes);
    wire_uint(wire, storage->in_array);
    wire_uint(wire, storage->unfiltered_edges);
    wire_uint(wire, storage->n_segments);
    for (size_t i = 0; i < storage->n_segments; i++) {
        wire_string(wire, storage->segments[i].name);
        wire_uint(wire, storage->segments[i].offset);
        wire_uint(wire, storage->segments[i].size);
    }
}

int take_storage(struct cursor *cursor, const struct sfs_dataset_info *info,
                 struct hdf5_storage *out)
{
    *out = (struct hdf5_storage){.address = take_uint(cursor, UINT64_MAX)};
    out->bytes = take_uint(cursor, UINT64_MAX);
    out->in_array = take_bool(cursor);
    out->unfiltered_edges = take_bool(cursor);
    size_t n = take_count(cursor, 3 * WORD);
    if (n > MOST_SEGMENTS || (n > 0 && info->layout != SFS_EXTERNAL))
        cursor->failed = true;
    int error = take_end(cursor, false);
    out->segments = error || n == 0 ? NULL : calloc(n, sizeof(*out->segments));
    if (!error)
        error = out_of_memory(out->segments, n);
    for (size_t i = 0; i < n && !error; i++) {
        struct hdf5_segment *segment = &out->segments[out->n_segments++];
        error = take_string(cursor, true, &segment->name);
        segment->offset = take_uint(cursor, INT64_MAX);
        segment->size = take_uint(cursor, UINT64_MAX);
    }
    if (!error)
        error = take_end(cursor, false);
    if (error) {
        hdf5_segments_free(out->n_segments, out->segments);
        *out = (struct hdf5_storage){0};
    }
    return error;
}

void wire_chunk(struct wire *wire, const struct hdf5_chunk *chunk)
{
    wire_uint(wire, chunk->address);
    wire_uint(wire, chunk->size);
    wire_uint(wire, chunk->filter_mask);
}

int take_chunk(struct cursor *cursor, struct hdf5_chunk *out)
{
    out->address = take_uint(cursor, UINT64_MAX);
    out->size = take_uint(cursor, UINT64_MAX);
    out->filter_mask = (uint32_t)take_uint(cursor, UINT32_MAX);
    return take_end(cursor, false);
}

/* ---- Mappings ---- */

static void wire_slab(struct wire *wire, const struct hdf5_slab *slab)
{
    wire_uint(wire, slab->is_all);
    wire_uint(wire, slab->is_all ? 0 : (uint64_t)slab->rank);
    for (int i = 0; !slab->is_all && i < slab->rank; i++) {
        const struct hdf5_axis *axis = &slab->axis[i];
        wire_uints(wire, (uint64_t[]){axis->start, axis->stride, axis->count, axis->block}, 4);
    }
}

/* Blocks of an axis do not overlap; at most one count or block of a slab has no limit. */
static int take_slab(struct cursor *cursor, struct hdf5_slab *out)
{
    unsigned unlimited = 0;
    out->is_all = take_bool(cursor);
    out->rank = (int)take_uint(cursor, SFS_MAX_RANK);
    if (cursor->failed || out->is_all != (out->rank == 0))
        return -EIO;
    if (out->is_all)
        return take_end(cursor, false);
    out->axis = calloc((size_t)out->rank, sizeof(*out->axis));
    if (!out->axis)
        return -ENOMEM;
    for (int i = 0; i < out->rank; i++) {
        uint64_t values[4];
        take_uints(cursor, values, 4);
        struct hdf5_axis axis = {values[0], values[1], values[2], values[3]};
        if (axis.stride == 0 || axis.count == 0 || axis.block == 0 ||
            (axis.count > 1 && axis.block > axis.stride))
            return -EIO;
        unlimited += (axis.count == SFS_UNLIMITED) + (axis.block == SFS_UNLIMITED);
        out->axis[i] = axis;
    }
    return unlimited > 1 ? -EIO : take_end(cursor, false);
}

void wire_mappings(struct wire *wire, const struct hdf5_mappings *mappings)
{
    wire_uint(wire, mappings->n);
    for (size_t i = 0; i < mappings->n; i++) {
        const struct hdf5_mapping *mapping = &mappings->mapping[i];
        wire_string(wire, mapping->file);
        wire_string(wire, mapping->dataset);
        wire_uint(wire, mapping->is_regular);
        wire_slab(wire, &mapping->shown);
        wire_slab(wire, &mapping->source);
    }
}

static int take_mapping(struct cursor *cursor, struct hdf5_mapping *out)
{
    int error = take_string(cursor, true, &out->file);
    if (!error)
        error = take_string(cursor, true, &out->dataset);
    out->is_regular = take_bool(cursor);
    if (!error)
        error = take_slab(cursor, &out->shown);
    if (!error)
        error = take_slab(cursor, &out->source);
    return error ? error : take_end(cursor, false);
}

int take_mappings(struct cursor *cursor, struct hdf5_mappings *out)
{
    *out = (struct hdf5_mappings){0};
    size_t n = take_count(cursor, 7 * WORD);
    cursor->failed |= n > MOST_LISTED;
    out->mapping = cursor->failed ? NULL : calloc(n, sizeof(*out->mapping));
    int error = cursor->failed ? -EIO : out_of_memory(out->mapping, n);
    for (size_t i = 0; i < n && !error; i++)
        error = take_mapping(cursor, &out->mapping[out->n++]);
    if (error)
        hdf5_mappings_free(out);
    return error;
}
