/* Datatypes with parts of variable length in compounds, arrays and each other, and elements of them
 * as buffers of sparsefs have them: struct sfs_sequence in each such part, aligned or not. */
#ifndef TESTS_UNIT_NESTED_H
#define TESTS_UNIT_NESTED_H

#include "support.h"

#include <hdf5.h>
#include <stdlib.h>
#include <string.h>

#include "sparsefs/sparsefs.h"

/* The first are without references; those and some more are what libhdf5 gives and gets, too. */
enum { N_ORDINARY = 8, N_CONVERTED = 10, N_NESTED = 13 };

static inline hid_t nested_string(void)
{
    hid_t string = H5Tcopy(H5T_C_S1);
    H5Tset_size(string, H5T_VARIABLE);
    return string;
}

static inline hid_t nested_sequence(hid_t base)
{
    hid_t sequence = H5Tvlen_create(base);
    H5Tclose(base);
    return sequence;
}

static inline hid_t nested_array(hid_t base, unsigned rank, const hsize_t *dims)
{
    hid_t array = H5Tarray_create2(base, rank, dims);
    H5Tclose(base);
    return array;
}

/* A compound of members named a, b, ..., with `gap` bytes before each. */
static inline hid_t nested_compound(size_t gap, size_t n, const hid_t *members)
{
    size_t size = 0;
    for (size_t i = 0; i < n; i++)
        size += gap + H5Tget_size(members[i]);
    hid_t compound = H5Tcreate(H5T_COMPOUND, size);
    size = 0;
    for (size_t i = 0; i < n; i++) {
        const char name[] = {(char)('a' + i), '\0'};
        size += gap;
        assert_true(H5Tinsert(compound, name, size, members[i]) >= 0);
        size += H5Tget_size(members[i]);
        H5Tclose(members[i]);
    }
    return compound;
}

/* The k-th of them, which the caller closes. */
static inline hid_t nested_type(unsigned k)
{
    const hsize_t two = 2, square[] = {2, 3};
    hid_t u1 = H5Tcopy(H5T_STD_U8LE), i4 = H5Tcopy(H5T_STD_I32BE), f8 = H5Tcopy(H5T_IEEE_F64LE);
    switch (k) {
    case 0:
        return nested_compound(0, 4,
                               (hid_t[]){u1, nested_string(), nested_sequence(i4),
                                         nested_array(nested_string(), 1, &two)});
    case 1:
        return nested_array(nested_compound(1, 2, (hid_t[]){nested_sequence(f8), u1}), 2, square);
    case 2:
        return nested_sequence(nested_sequence(i4));
    case 3:
        return nested_sequence(
            nested_compound(0, 4, (hid_t[]){u1, nested_string(), i4, nested_sequence(f8)}));
    case 4:
        return nested_array(nested_sequence(nested_string()), 1, &two);
    case 5:
        return nested_compound(
            3, 2,
            (hid_t[]){nested_compound(0, 2, (hid_t[]){i4, nested_string()}),
                      nested_array(nested_compound(0, 2,
                                                   (hid_t[]){u1, nested_sequence(nested_sequence(
                                                                     nested_sequence(f8)))}),
                                   1, &two)});
    case 6:
        return nested_array(nested_string(), 1, &two);
    case 7:
        return nested_compound(0, 2, (hid_t[]){nested_sequence(u1), f8});
    case 8:
        return H5Tcopy(H5T_STD_REF_OBJ);
    case 9:
        return nested_compound(
            0, 3,
            (hid_t[]){u1, H5Tcopy(H5T_STD_REF_OBJ),
                      nested_sequence(nested_array(H5Tcopy(H5T_STD_REF_OBJ), 1, &two))});
    case 10:
        return H5Tcopy(H5T_STD_REF_DSETREG);
    case 11:
        return nested_array(nested_compound(1, 3,
                                            (hid_t[]){H5Tcopy(H5T_STD_REF_DSETREG), nested_string(),
                                                      H5Tcopy(H5T_STD_REF_OBJ)}),
                            2, square);
    default:
        return nested_sequence(nested_compound(
            0, 3, (hid_t[]){i4, nested_sequence(H5Tcopy(H5T_STD_REF_DSETREG)), f8}));
    }
}

static inline void nested_fill(const struct sfs_type *type, char *element);

static inline void nested_fill_sequence(const struct sfs_type *type, char *element)
{
    struct sfs_sequence sequence = {.n = random_below(3) ? random_below(5) : 0};
    size_t size = type->is_string ? 1 : type->base->size;
    char *elements = sequence.n ? allocate(sequence.n * size) : NULL;
    for (uint64_t i = 0; i < sequence.n; i++) {
        if (type->is_string)
            elements[i] = (char)random_between('a', 'z');
        else
            nested_fill(type->base, elements + i * size);
    }
    sequence.elements = elements;
    memcpy(element, &sequence, sizeof(sequence));
}

/* One that leads anywhere: to objects, or to all of datasets; or nowhere. */
static inline void nested_fill_reference(const struct sfs_type *type, char *element)
{
    static const char all[] = {3, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0};
    bool is_region = type->reference == SFS_REFERENCE_REGION;
    struct sfs_sequence sequence = {.n = random_below(4) ? 8 + is_region * sizeof(all) : 0};
    char *bytes = sequence.n ? allocate(sequence.n) : NULL;
    for (size_t i = 0; i < 8 && bytes; i++)
        bytes[i] = (char)random_between(1, 60);
    if (bytes && is_region)
        memcpy(bytes + 8, all, sizeof(all));
    sequence.elements = bytes;
    memcpy(element, &sequence, sizeof(sequence));
}

/* An element at random, whose gaps are zero. */
static inline void nested_fill(const struct sfs_type *type, char *element)
{
    if (type->class == SFS_COMPOUND) {
        memset(element, 0, type->size);
        for (size_t i = 0; i < type->n_members; i++)
            nested_fill(&type->members[i].type, element + type->members[i].offset);
    } else if (type->class == SFS_ARRAY) {
        for (size_t at = 0; at < type->size; at += type->base->size)
            nested_fill(type->base, element + at);
    } else if (type->class == SFS_VARIABLE) {
        nested_fill_sequence(type, element);
    } else if (type->class == SFS_REFERENCE) {
        nested_fill_reference(type, element);
    } else {
        for (size_t i = 0; i < type->size; i++)
            element[i] = (char)random_below(60);
    }
}

/* Frees what it leads to. */
static inline void nested_free(const struct sfs_type *type, const char *element)
{
    if (type->class == SFS_COMPOUND)
        for (size_t i = 0; i < type->n_members; i++)
            nested_free(&type->members[i].type, element + type->members[i].offset);
    for (size_t at = 0; type->class == SFS_ARRAY && at < type->size; at += type->base->size)
        nested_free(type->base, element + at);
    if (type->class != SFS_VARIABLE && type->class != SFS_REFERENCE)
        return;
    struct sfs_sequence sequence;
    memcpy(&sequence, element, sizeof(sequence));
    for (uint64_t i = 0; i < sequence.n && type->base; i++)
        nested_free(type->base, (const char *)sequence.elements + i * type->base->size);
    free((void *)sequence.elements);
}

static inline bool nested_same(const struct sfs_type *type, const char *a, const char *b)
{
    bool same = true;
    if (type->class == SFS_COMPOUND) {
        for (size_t i = 0; i < type->n_members; i++) {
            const struct sfs_member *member = &type->members[i];
            same &= nested_same(&member->type, a + member->offset, b + member->offset);
        }
        return same;
    }
    for (size_t at = 0; type->class == SFS_ARRAY && at < type->size; at += type->base->size)
        same &= nested_same(type->base, a + at, b + at);
    if (type->class == SFS_ARRAY)
        return same;
    if (type->class != SFS_VARIABLE && type->class != SFS_REFERENCE)
        return memcmp(a, b, type->size) == 0;
    struct sfs_sequence left, right;
    memcpy(&left, a, sizeof(left));
    memcpy(&right, b, sizeof(right));
    if (left.n != right.n || (left.n == 0 && right.elements))
        return false;
    if (!type->base)
        return left.n == 0 || memcmp(left.elements, right.elements, left.n) == 0;
    for (uint64_t i = 0; i < left.n; i++)
        same &= nested_same(type->base, (const char *)left.elements + i * type->base->size,
                            (const char *)right.elements + i * type->base->size);
    return same;
}

#endif
