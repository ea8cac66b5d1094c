/* What a file of fixed size must contain when it shows elements of which each is defined or not:
 * the promises of a mount about writing, truncating, punching and zeroing, and nothing about how
 * they are kept. An ordinary file, whose size is put back after it was cut, is the case of elements
 * of one byte and fill value zero. */
#ifndef SPARSEFS_TESTS_EXPECTED_H
#define SPARSEFS_TESTS_EXPECTED_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define PAGE ((size_t)4096) /* what a store into a mapping marks for writing as a whole */

enum state { UNDEFINED, DEFINED, UNKNOWN }; /* of an element; UNKNOWN: as it was found */

struct expected {
    size_t size;           /* bytes, a multiple of element */
    size_t element;        /* bytes of one */
    const uint8_t *fill;   /* element bytes */
    bool erases;           /* elements can be undefined */
    bool sparsify;         /* elements written with the fill value become undefined */
    uint8_t *content;      /* size bytes */
    uint8_t *states;       /* an enum state for each element */
    uint8_t *dirty;        /* pages stored into through a mapping and not flushed since */
    size_t pages, n_dirty; /* of them */
};

/* All bytes of content unknown to the caller are zero, all elements UNKNOWN. False: no memory. */
bool expected_create(struct expected *expected, size_t size, size_t element, const uint8_t *fill);
void expected_destroy(struct expected *expected);

/* bytes were written at offset; NULL stands for zero bytes. */
void expected_write(struct expected *expected, size_t offset, const uint8_t *bytes, size_t n);
/* Elements wholly inside are undefined now. */
void expected_punch(struct expected *expected, size_t offset, size_t n);
/* Elements that begin at or after byte size are undefined now. */
void expected_truncate(struct expected *expected, size_t size);
/* bytes were stored at offset through a shared mapping. Its pages are written as a whole sometime,
 * whereby all their elements become defined. */
void expected_store(struct expected *expected, size_t offset, const uint8_t *bytes, size_t n);
/* All such pages that hold any of these bytes have been written. */
void expected_flush(struct expected *expected, size_t offset, size_t n);

/* Compares bytes that were read at offset; prints the first difference. */
bool expected_same(const struct expected *expected, size_t offset, const uint8_t *bytes, size_t n,
                   const char *how, size_t *difference);

/* The elements that an encoded dataspace selects, as libhdf5 decodes it, must be those that are
 * defined; those found UNKNOWN are known from now on. Prints the first difference. */
bool expected_same_defined(struct expected *expected, const void *encoded);

#endif
