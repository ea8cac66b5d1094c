/* Datatype messages that are plain (plain_headers.h): understood, and written as libhdf5 writes them, so
 * that what it would write of them is the same bytes (HDF5 file format specification, section
 * IV.A.2.d). */
#ifndef SPARSEFS_FORMAT_PLAIN_TYPE_H
#define SPARSEFS_FORMAT_PLAIN_TYPE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "sparsefs/sparsefs.h"

struct why;

enum type_class { /* as numbered in the file */
                  TYPE_INTEGER = 0,
                  TYPE_FLOAT = 1,
                  TYPE_STRING = 3,
                  TYPE_BITFIELD = 4,
                  TYPE_OPAQUE = 5,
                  TYPE_COMPOUND = 6,
                  TYPE_REFERENCE = 7,
                  TYPE_ENUM = 8,
                  TYPE_VARIABLE = 9,
                  TYPE_ARRAY = 10,
};

struct plain_member;
struct plain_value;

struct plain_type {
    enum type_class class;
    unsigned version; /* of the message, 1 to 4; none of what it is made of has a newer one */
    size_t size;      /* bytes in the file */
    bool big_endian;  /* integers, floats, bitfields, enumerations; also if they have one byte */
    bool is_signed;   /* integers */
    bool is_space_padded; /* strings */
    bool is_string;       /* of variable length */
    bool is_region;       /* references */
    size_t n_members;     /* of a compound, in their order; they do not overlap */
    struct plain_member *member;
    size_t n_values; /* of an enumeration, all different, in their order */
    struct plain_value *value;
    int rank; /* arrays */
    uint64_t dims[SFS_MAX_RANK];
    struct plain_type *base; /* arrays, enumerations, sequences and strings of variable length */
};

struct plain_member {
    char *name;
    size_t offset;
    struct plain_type type;
};

struct plain_value {
    char *name;
    const unsigned char *bytes; /* in the message */
};

/* Integers, bitfields and enumerations of 1, 2, 4 or 8 bytes that they fill; IEEE floats of 2, 4 or
 * 8 bytes; strings, opaque bytes, references, and arrays and compounds of all these; sequences of
 * what has no pointers, and strings of variable length. message must outlive *type; *used: how many
 * bytes of it are the datatype. -EOPNOTSUPP: it is another, of which why says more; -ENOMEM. The
 * caller frees what type has with plain_type_free. Any thread. */
int plain_type_decode(const unsigned char *message, size_t n, struct plain_type *type, size_t *used,
                      struct why *why);
void plain_type_free(struct plain_type *type);

/* Whether what stands in the file are pointers. */
bool plain_type_has_pointers(const struct plain_type *type);

#endif
