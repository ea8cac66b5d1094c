/* What the targets share: bytes as a file, and checksums that do not stand in the way. */
#ifndef TESTS_FUZZ_FUZZ_H
#define TESTS_FUZZ_FUZZ_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n);
size_t LLVMFuzzerCustomMutator(uint8_t *bytes, size_t n, size_t most, unsigned seed);
size_t LLVMFuzzerMutate(uint8_t *bytes, size_t n, size_t most);

/* Ends the process, which is a finding. */
void require(bool condition);

/* The name of a file in memory that holds these bytes until the next call. */
const char *file_of(const void *bytes, size_t n);

/* Keeps the library's messages away from stderr. */
void be_quiet(void);

/* Whether wrong checksums are taken for right ones, those of the superblock apart (targets that
 * call this are linked with --wrap=structure_summed, and have checksums.c). */
void ignore_checksums(bool ignore);

#endif
