/* Small files with one sparse dataset each, of every kind of index and of several datatypes and
 * filters, made by the library. An input says which of them (its first byte), what becomes of
 * checksums (its second), and what stands in the places of our own structures. All
 * else, which libhdf5 reads and which it is not safe with, stays as it is. */
#ifndef TESTS_FUZZ_SAMPLES_H
#define TESTS_FUZZ_SAMPLES_H

#include "fuzz.h"

/* Our structures. */
#define HEADER  1 /* of the dataset */
#define INDEX   2
#define CHUNKS  4
#define LONGEST ((size_t)1 << 16) /* bytes of a sample */

/* Flags in the second byte of an input; the other bits are the target's. */
#define IGNORED  1 /* wrong checksums are taken for right ones */
#define REPAIRED 4 /* those of the header are right, so that libhdf5 reads it, too */

struct sample {
    const char *path; /* of the file that the input makes */
    uint64_t header;  /* where the dataset is in it */
};

/* The sample that an input chooses, with the input's bytes in its structures of these kinds, as far
 * as they reach. False: the input is too short. */
bool sample_of(const uint8_t *bytes, size_t n, unsigned kinds, struct sample *sample);

/* A custom mutator: too short an input becomes one that changes nothing of a sample. */
size_t sample_mutate(unsigned kinds, uint8_t *bytes, size_t n, size_t most, unsigned seed);

#endif
