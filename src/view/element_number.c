/* The numbers that elements are, in whatever byte order a file has them. */
#include "view/element_number.h"

#include <endian.h>
#include <math.h>
#include <string.h>

uint64_t number_bits(const struct sfs_type *type, const unsigned char *element)
{
    uint64_t value = 0;
    uint32_t four;
    if (type->size == sizeof(uint16_t)) /* what detectors have, without a loop */
        return element[type->big_endian] | (uint64_t)element[!type->big_endian] << 8;
    if (type->size == sizeof(four)) {
        memcpy(&four, element, sizeof(four));
        return type->big_endian ? be32toh(four) : le32toh(four);
    }
    for (size_t i = 0; i < type->size; i++)
        value |= (uint64_t)element[type->big_endian ? type->size - 1 - i : i] << 8 * i;
    return value;
}

int64_t number_signed(const struct sfs_type *type, uint64_t bits)
{
    unsigned unused = 64 - 8 * (unsigned)type->size;
    return type->is_signed ? (int64_t)(bits << unused) >> unused : (int64_t)bits;
}

/* IEEE 754 of 16 bits. */
static double half(uint64_t bits)
{
    int exponent = (int)(bits >> 10 & 31);
    double fraction = (double)(bits & 1023);
    double value = exponent == 31  ? (bits & 1023 ? NAN : INFINITY)
                   : exponent == 0 ? ldexp(fraction, -24)
                                   : ldexp(fraction + 1024, exponent - 25);
    return bits >> 15 ? -value : value;
}

double number_value(const struct sfs_type *type, const unsigned char *element)
{
    uint64_t bits = number_bits(type, element);
    if (type->class != SFS_FLOAT)
        return type->is_signed ? (double)number_signed(type, bits) : (double)bits;
    if (type->size == sizeof(float)) {
        uint32_t narrow = (uint32_t)bits;
        float value;
        memcpy(&value, &narrow, sizeof(value));
        return value;
    }
    double value;
    memcpy(&value, &bits, sizeof(value));
    return type->size == sizeof(double) ? value : half(bits);
}

bool number_is_marked(const struct sfs_type *type, uint64_t bits)
{
    return type->class == SFS_INTEGER && !type->is_signed &&
           bits == UINT64_MAX >> (64 - 8 * type->size);
}
