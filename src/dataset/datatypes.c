/* Datatypes outside of files: names, descriptions, elements as text. */
#include <errno.h>

#include "common/log.h"
#include "dataset/private.h"
#include "hdf5/hdf5.h"

int sfs_type_encode(const char *name, void **bytes, size_t *n)
{
    int error = hdf5_type_of_name(name, bytes, n);
    if (error == -EINVAL || error == -EIO)
        log_error("datatype '%.200s': %s", name, hdf5_error());
    return error;
}

int sfs_type_describe(const struct sfs_encoded *type, struct sfs_type *description)
{
    struct sfs_type described;
    int error = hdf5_type_describe(NULL, type->bytes, type->n, &described);
    if (!error)
        *description = described;
    return error;
}

void sfs_type_free(struct sfs_type *description)
{
    hdf5_type_free(description);
}

int sfs_type_size(const struct sfs_encoded *type, size_t *size)
{
    return hdf5_type_size(type->bytes, type->n, size);
}

int sfs_element_parse(const struct sfs_encoded *type, const char *text, void *element)
{
    return hdf5_element_parse(type->bytes, type->n, text, element);
}

int sfs_element_json(const struct sfs_encoded *type, const void *element, char **json)
{
    char *made;
    int error = hdf5_element_json(NULL, type->bytes, type->n, element, &made);
    if (!error)
        *json = made;
    return error;
}
