/* libFuzzer: any bytes as a datatype message. What datatype_check lets pass libhdf5 decodes without
 * reading outside of them, its elements can be described and made text of, and it has their parts where
 * our own decoder finds them. */
#include <stdlib.h>
#include <string.h>

#include "common/why.h"
#include "format/datatype_message.h"
#include "format/stored_layout.h"
#include "fuzz.h"
#include "hdf5/hdf5.h"

#define MOST_BYTES ((size_t)1 << 16) /* of an element */

static void use(const void *type, size_t n)
{
    struct sfs_type description;
    char *json;
    if (hdf5_type_describe(NULL, type, n, &description) != 0)
        return;
    struct why why;
    struct sfs_type layout;
    if (stored_layout_encoded(&(struct sfs_encoded){type, n}, &layout, &why) == 0) {
        require(stored_layout_check(&layout, &description) == 0);
        datatype_layout_free(&layout);
    }
    void *element = description.size <= MOST_BYTES ? calloc(1, description.size) : NULL;
    if (element && hdf5_element_json(NULL, type, n, element, &json) == 0)
        free(json);
    free(element);
    hdf5_type_free(&description);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n)
{
    void *message = malloc(n), *type;
    size_t type_n;
    struct why why;
    require(message || n == 0);
    if (n > 0)
        memcpy(message, bytes, n);
    if (datatype_check(message, n, &why) == 0 &&
        hdf5_type_of_message(NULL, message, n, &type, &type_n) == 0) {
        use(type, type_n);
        free(type);
    }
    free(message);
    return 0;
}
