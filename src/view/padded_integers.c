/* Integers that do not fill their bytes are shown as libhdf5 converts them. */
#include "view/private.h"

void show_as_integers(struct views *views)
{
    views->info = sfs_dataset_info(views->dataset);
    views->has_padding = views->info->type.bits > 0;
    if (!views->has_padding)
        return;
    views->shown = *views->info;
    views->shown.type.class = SFS_INTEGER;
    views->info = &views->shown;
}

void show_elements(const struct views *views, void *elements, uint64_t n)
{
    const struct sfs_type *type = &views->info->type;
    unsigned char *element = elements;
    uint64_t mask = type->bits < 64 ? ((uint64_t)1 << type->bits) - 1 : UINT64_MAX;
    if (!views->has_padding)
        return;
    for (uint64_t i = 0; i < n; i++, element += type->size) {
        uint64_t value = 0;
        for (size_t k = 0; k < type->size; k++)
            value |= (uint64_t)element[type->big_endian ? type->size - 1 - k : k] << 8 * k;
        value = value >> type->bit_offset & mask;
        if (type->is_signed && value >> (type->bits - 1))
            value |= ~mask;
        for (size_t k = 0; k < type->size; k++)
            element[type->big_endian ? type->size - 1 - k : k] = (unsigned char)(value >> 8 * k);
    }
}
