/* The datatype message, walked through without being understood: whether all that it is made of
 * lies in its bytes, and the bits of numbers in theirs (HDF5 file format specification, section
 * IV.A.2.d, versions 1 to 4). libhdf5 decodes it without knowing where it ends, and converts
 * elements without asking whether their bits are in them. */
#ifndef SPARSEFS_FORMAT_DATATYPE_MESSAGE_H
#define SPARSEFS_FORMAT_DATATYPE_MESSAGE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct sfs_type;
struct why;

/* -EILSEQ: it does not; why says what is wrong. Bytes behind it are no error. Any thread. */
int datatype_check(const void *message, size_t n, struct why *why);

/* An element of a datatype, in the file. */
struct datatype_element {
    uint64_t size;     /* bytes, as datatype_stored_size has them */
    bool has_pointers; /* it is or contains a variable-length part or a reference, see sfs_type */
};

/* Of a datatype as H5Tencode has it: a prefix, and a message. -EILSEQ as datatype_check. Any thread. */
int datatype_measure_encoded(const void *type, size_t n, struct datatype_element *element,
                             struct why *why);
/* Of a message by itself. */
int datatype_measure(const void *message, size_t n, struct datatype_element *element,
                     struct why *why);

/* Where the parts of an element lie: class, size, pointers, members by their offsets, arrays with their dims, bases
 * of arrays and sequences, kinds of references; what has no parts is SFS_OPAQUE, and there are no names, nor bases of
 * strings. Sizes are those that the datatype says, which for what points elsewhere are those of a file or of memory
 * (variable_slots.h makes one of these). -EILSEQ as datatype_check; -ENOMEM. datatype_layout_free frees it. Any
 * thread. */
int datatype_layout(const void *message, size_t n, struct sfs_type *layout, struct why *why);
int datatype_layout_encoded(const void *type, size_t n, struct sfs_type *layout, struct why *why);
void datatype_layout_free(struct sfs_type *layout); /* one of 0 is fine */

/* Makes version 3 of all of a message that is of version 4, but for references: files that libhdf5 1.12 or later
 * writes with the newest format have it, and 1.10 knows 3 alone. What is behind unsound bytes stays as it is. */
void datatype_lower(void *message, size_t n);

/* The bytes of an element in the file, of a message that was found sound. In memory those that
 * point elsewhere (variable-length data) may have another size. */
size_t datatype_stored_size(const void *message);

/* The same in structured chunks, where a reference has HEAP_ELEMENT_BYTES, whatever it has elsewhere.
 * 0: it was not found sound. */
uint64_t datatype_size_in_chunks(const void *message, size_t n);

#endif
