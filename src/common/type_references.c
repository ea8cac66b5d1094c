#include "common/type_references.h"

bool type_has_references(const struct sfs_type *type)
{
    bool has = type->class == SFS_REFERENCE;
    for (size_t i = 0; i < type->n_members && !has; i++)
        has = type_has_references(&type->members[i].type);
    return has || (type->base && type_has_references(type->base));
}
