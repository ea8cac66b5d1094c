/* Sizes that may be what a damaged file claims, of which SIZE_MAX stands for itself and all more. */
#ifndef SPARSEFS_COMMON_SIZE_H
#define SPARSEFS_COMMON_SIZE_H

#include <stddef.h>
#include <stdint.h>

/* Bytes of one element of variable length, at most, that a mount shows, or that libhdf5 reads or writes for us. */
#define SIZE_OF_MOST_ELEMENT ((size_t)128 << 20)

/* Bytes that memory of its own takes besides what is in it, as a rule. */
#define SIZE_OF_ALLOCATION 32

static inline size_t size_of(uint64_t n)
{
    return n < SIZE_MAX ? (size_t)n : SIZE_MAX;
}

static inline size_t size_sum(size_t a, size_t b)
{
    size_t sum;
    return __builtin_add_overflow(a, b, &sum) ? SIZE_MAX : sum;
}

static inline size_t size_product(size_t a, size_t b)
{
    size_t product;
    return __builtin_mul_overflow(a, b, &product) ? SIZE_MAX : product;
}

#endif
