/* libFuzzer: any text as the name of a datatype. What is refused has a reason with its place; what is taken libhdf5
 * decodes, it can be described, and it passes what is asked of the datatypes of files. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "common/why.h"
#include "format/datatype_message.h"
#include "fuzz.h"
#include "hdf5/hdf5.h"

#define PREFIX 2 /* bytes before the message, in what libhdf5 encodes */

static void use(const void *type, size_t n)
{
    struct sfs_type description;
    struct why why;
    size_t size;
    require(n > PREFIX && datatype_check((const char *)type + PREFIX, n - PREFIX, &why) == 0);
    require(hdf5_type_size(type, n, &size) == 0 && size > 0);
    require(hdf5_type_describe(NULL, type, n, &description) == 0);
    require(description.size > 0);
    hdf5_type_free(&description);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n)
{
    static const char place[] = "at character ";
    char *name = malloc(n + 1);
    void *type;
    size_t type_n;
    require(name != NULL);
    if (n > 0)
        memcpy(name, bytes, n);
    name[n] = '\0';
    int error = hdf5_type_of_name(name, &type, &type_n);
    require(error == 0 || error == -EINVAL);
    if (error) {
        require(strncmp(hdf5_error(), place, strlen(place)) == 0);
    } else {
        use(type, type_n);
        free(type);
    }
    free(name);
    return 0;
}
