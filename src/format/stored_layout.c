#include "format/stored_layout.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "format/datatype_message.h"

static int compare_members(const void *a, const void *b)
{
    const struct sfs_member *left = a, *right = b;
    if (left->offset != right->offset)
        return left->offset < right->offset ? -1 : 1;
    return (left->type.size > right->type.size) - (left->type.size < right->type.size);
}

/* Where there are no pointers nothing is moved, but libhdf5 may have changed the order. */
static void sort_members(struct sfs_type *layout)
{
    for (size_t i = 0; i < layout->n_members; i++)
        sort_members(&layout->members[i].type);
    if (layout->base)
        sort_members(layout->base);
    if (layout->n_members > 0)
        qsort(layout->members, layout->n_members, sizeof(*layout->members), compare_members);
}

/* Of what is in memory, or in a file. */
static int as_stored(struct sfs_type *layout, struct why *why)
{
    int error = slots_as_stored(layout, why);
    if (error)
        datatype_layout_free(layout);
    else
        sort_members(layout);
    return error;
}

int stored_layout(const void *message, size_t n, struct sfs_type *layout, struct why *why)
{
    int error = datatype_layout(message, n, layout, why);
    return error ? error : as_stored(layout, why);
}

int stored_layout_encoded(const struct sfs_encoded *type, struct sfs_type *layout, struct why *why)
{
    int error = datatype_layout_encoded(type->bytes, type->n, layout, why);
    return error ? error : as_stored(layout, why);
}

bool stored_layouts_equal(const struct sfs_type *a, const struct sfs_type *b)
{
    if (a->class != b->class || a->size != b->size || a->has_pointers != b->has_pointers ||
        a->is_string != b->is_string || a->n_members != b->n_members || !a->base != !b->base ||
        a->array_rank != b->array_rank ||
        memcmp(a->array_dims, b->array_dims, sizeof(a->array_dims)) != 0)
        return false;
    for (size_t i = 0; i < a->n_members; i++)
        if (a->members[i].offset != b->members[i].offset ||
            !stored_layouts_equal(&a->members[i].type, &b->members[i].type))
            return false;
    return !a->base || stored_layouts_equal(a->base, b->base);
}

/* What datatype_layout would make of a description. */
static int copy_layout(const struct sfs_type *type, struct sfs_type *copy)
{
    bool has_parts = type->class == SFS_COMPOUND || type->class == SFS_ARRAY ||
                     type->class == SFS_VARIABLE || type->class == SFS_REFERENCE;
    *copy = (struct sfs_type){.class = has_parts ? type->class : SFS_OPAQUE,
                              .size = type->size,
                              .is_string = type->is_string,
                              .has_pointers = type->has_pointers,
                              .array_rank = type->array_rank,
                              .reference = type->reference};
    memcpy(copy->array_dims, type->array_dims,
           (size_t)type->array_rank * sizeof(*type->array_dims));
    if (type->n_members > 0 && !(copy->members = calloc(type->n_members, sizeof(*copy->members))))
        return -ENOMEM;
    int error = 0;
    for (size_t i = 0; i < type->n_members && !error; i++) {
        struct sfs_member *member = &copy->members[copy->n_members++];
        member->offset = type->members[i].offset;
        error = copy_layout(&type->members[i].type, &member->type);
    }
    if (error || !type->base)
        return error;
    copy->base = calloc(1, sizeof(*copy->base));
    return copy->base ? copy_layout(type->base, copy->base) : -ENOMEM;
}

static int check_equal(const struct sfs_type *layout, struct sfs_type *other)
{
    bool is_equal = stored_layouts_equal(layout, other);
    datatype_layout_free(other);
    return is_equal ? 0 : -EILSEQ;
}

int stored_layout_check(const struct sfs_type *layout, const struct sfs_type *type)
{
    struct why why;
    struct sfs_type copy;
    int error = copy_layout(type, &copy);
    if (error) {
        datatype_layout_free(&copy);
        return error;
    }
    error = as_stored(&copy, &why);
    if (error)
        return error == -ENOMEM ? error : -EILSEQ;
    return check_equal(layout, &copy);
}

int stored_layout_check_encoded(const struct sfs_type *layout, const struct sfs_encoded *type)
{
    struct why why;
    struct sfs_type other;
    int error = stored_layout_encoded(type, &other, &why);
    if (error)
        return error == -ENOMEM ? error : -EILSEQ;
    return check_equal(layout, &other);
}

int slots_of_encoded(const struct sfs_encoded *type, struct slots **slots, struct why *why)
{
    struct sfs_type layout;
    int error = stored_layout_encoded(type, &layout, why);
    if (error)
        return error;
    error = slots_of_type(&layout, slots, why);
    datatype_layout_free(&layout);
    return error;
}
