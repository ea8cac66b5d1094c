/* Elements of datatypes with parts of variable length: strings, sequences, and references, anywhere
 * in compounds and arrays. Such an element has a slot of HEAP_ELEMENT_BYTES, at a place that is fixed,
 * for each:
 *
 *   in section 1 of a chunk   offset and length, in bytes, of what is stored for it (section_heap.h)
 *   in memory                 a struct sfs_sequence, wherever that lies: it may not be aligned
 *
 * What is stored for it are the elements of its sequence without gaps. If these have slots
 * themselves, there is in place of each such slot a number (8 bytes), how many elements that
 * sequence has, and then these elements, stored so in their turn (HDF Group, "Shared Chunk Cache",
 * "Encoded Format of Variable Length Data"). That of a reference are bytes (reference.h). Knows
 * nothing of heaps and files; any thread. */
#ifndef SPARSEFS_FORMAT_VARIABLE_SLOTS_H
#define SPARSEFS_FORMAT_VARIABLE_SLOTS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/why.h"
#include "sparsefs/sparsefs.h"

#define SLOTS_MOST   65536 /* in a datatype, those of arrays counted as often as they are there */
#define SLOTS_COUNT  8     /* bytes, of the number before a sequence in a sequence */
#define SLOTS_FACTOR 4     /* bytes in memory, at most, for one that is stored */

struct slots {
    size_t size;         /* bytes of an element, its slots included */
    size_t n;            /* slots; 0: it is what it is */
    struct slot *slot;   /* ascending, none over another */
    struct slots *next;  /* what else slots_free frees */
    bool has_references; /* an element does, or what it leads to */
    bool is_reference;   /* elements are the bytes of one */
    enum sfs_reference reference;
};

struct slot {
    size_t at;                /* bytes in the element */
    const struct slots *base; /* of the elements of its sequence; of strings, references: bytes */
};

/* Makes sizes and places in the description of a datatype of libhdf5, which are those in memory,
 * those in a file, where slots have HEAP_ELEMENT_BYTES. -EOPNOTSUPP: they overlap or exceed memory.
 */
int slots_as_stored(struct sfs_type *type, struct why *why);

/* The slots of a datatype that is described as it is stored; slots_free frees them. -EOPNOTSUPP: it
 * has references of a kind that is not known, too many slots, or some over others; -ENOMEM. */
int slots_of_type(const struct sfs_type *type, struct slots **slots, struct why *why);
void slots_free(struct slots *slots);          /* NULL is fine */
size_t slots_bytes(const struct slots *slots); /* of memory, with what slots_free frees; NULL: 0 */

/* Whether the slot is all that an element has, and its sequence has no slots. */
bool slots_are_plain(const struct slots *slots);

/* The sequence that a slot in memory has, and putting one there. */
struct sfs_sequence slot_get(const void *slot);
void slot_put(void *slot, const void *elements, uint64_t n);

/* Bytes that are stored for a sequence; SIZE_MAX: more than memory has. */
size_t slot_stored_bytes(const struct slots *base, const struct sfs_sequence *sequence);

/* Stores these, and returns where they end. */
char *slot_store(const struct slots *base, const struct sfs_sequence *sequence, char *to);

/* The sequence that n bytes are stored for: how many elements, and bytes of memory for these and
 * what they lead to, no more than SLOTS_FACTOR times n and a few; SIZE_MAX: more than memory has.
 * -EILSEQ: they are no whole number of elements. */
int slot_measure(const struct slots *base, const void *stored, size_t n, uint64_t *elements,
                 size_t *bytes, struct why *why);

/* Puts these into so many bytes of memory, which are to be aligned as what malloc gives. What their
 * slots lead to is counted from memory on, and `offset` added, until slots_relocate makes pointers
 * of it. */
void slot_load(const struct slots *base, const void *stored, size_t n, uint64_t elements,
               char *memory, size_t offset);

/* Called with a reference: its bytes, which it may replace, also by another number of bytes. An error ends
 * the calls, and is returned. */
typedef int (*slots_reference)(void *context, enum sfs_reference reference,
                               struct sfs_sequence *bytes);

/* Calls this for each reference in n elements in memory, and in all that they lead to. What the call has
 * put in place of the bytes stays in the element. */
int slots_references(const struct slots *slots, const void *elements, uint64_t n,
                     slots_reference call, void *context);

/* The same of what n bytes are stored for, which slot_measure has found sound; nothing is changed.
 */
int slot_references(const struct slots *base, const void *stored, size_t n, slots_reference call,
                    void *context);

/* Adds `to` to the pointers of n elements, and of all that they lead to. */
void slots_relocate(const struct slots *slots, char *elements, uint64_t n, char *to);

#endif
