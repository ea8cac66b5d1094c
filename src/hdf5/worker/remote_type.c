/* Asking a worker for what libhdf5 knows of datatypes, and of elements by theirs. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "common/box.h"
#include "common/why.h"
#include "format/datatype_message.h"
#include "hdf5/private.h"
#include "hdf5/worker/remote_private.h"

#define TYPE_PREFIX 2 /* bytes of an encoded datatype before its message */

static int take_text_of(struct cursor *results, void *out)
{
    return take_string(results, true, out);
}

int remote_datatype_text(struct remote *remote, uint64_t address, char **text)
{
    struct wire request;
    remote_request(&request, WORKER_DATATYPE_TEXT, address);
    return remote_ask(remote, WORKER_DATATYPE_TEXT, address, &request, take_text_of, text);
}

static int ask_type(const struct about *of, enum worker_call call, struct wire *request,
                    take_function take, void *out)
{
    uint64_t number = of->object        ? *of->object
                      : request->failed ? 0
                                        : remote_number(request->bytes, request->n);
    return remote_ask(of->remote, call, number, request, take, out);
}

int remote_type_of_message(const struct about *of, const void *message, size_t n, void **type,
                           size_t *type_n)
{
    struct remote_text bytes = {0};
    struct wire request;
    client_request(&request, WORKER_TYPE_OF_MESSAGE);
    wire_bytes(&request, message, n);
    int error = ask_type(of, WORKER_TYPE_OF_MESSAGE, &request, remote_take_text, &bytes);
    if (!error) {
        *type = bytes.bytes;
        *type_n = bytes.n;
    }
    return error;
}

static int take_type_of(struct cursor *results, void *out)
{
    return take_type(results, out);
}

int remote_type_describe(const struct about *of, const void *type, size_t n,
                         struct sfs_type *description)
{
    struct wire request;
    client_request(&request, WORKER_TYPE_DESCRIBE);
    wire_bytes(&request, type, n);
    return ask_type(of, WORKER_TYPE_DESCRIBE, &request, take_type_of, description);
}

int remote_type_size(const struct about *of, const void *type, size_t n, size_t *size)
{
    uint64_t found;
    struct wire request;
    client_request(&request, WORKER_TYPE_SIZE);
    wire_bytes(&request, type, n);
    int error = ask_type(of, WORKER_TYPE_SIZE, &request, remote_take_number, &found);
    if (!error && found > SIZE_MAX)
        error = -EIO;
    if (!error)
        *size = (size_t)found;
    return error;
}

bool remote_type_equal(const struct about *of, const struct sfs_encoded *a,
                       const struct sfs_encoded *b)
{
    uint64_t equal = 0;
    struct wire request;
    client_request(&request, WORKER_TYPE_EQUAL);
    wire_bytes(&request, a->bytes, a->n);
    wire_bytes(&request, b->bytes, b->n);
    return ask_type(of, WORKER_TYPE_EQUAL, &request, remote_take_number, &equal) == 0 && equal == 1;
}

int remote_element_size(const void *type, size_t n, uint64_t *size)
{
    struct why why;
    const unsigned char *bytes = type;
    int error =
        n < TYPE_PREFIX ? -EINVAL : datatype_check(bytes + TYPE_PREFIX, n - TYPE_PREFIX, &why);
    if (error) {
        library_reason(n < TYPE_PREFIX ? "not an encoded datatype" : why.text);
        return -EINVAL;
    }
    *size = datatype_stored_size(bytes + TYPE_PREFIX);
    return 0;
}

int remote_element_json(const struct about *of, const void *type, size_t n, const void *element,
                        char **json)
{
    uint64_t size;
    struct wire request;
    int error = remote_element_size(type, n, &size);
    if (error)
        return error;
    client_request(&request, WORKER_ELEMENT_JSON);
    wire_bytes(&request, type, n);
    wire_bytes(&request, element, (size_t)size);
    return ask_type(of, WORKER_ELEMENT_JSON, &request, take_text_of, json);
}

int remote_elements_text(const struct about *of, const struct hdf5_elements *elements, char **out,
                         size_t *out_n)
{
    struct remote_text text = {0};
    struct wire request;
    if (elements->elements.n > WIRE_MOST_BYTES)
        return -EFBIG;
    client_request(&request, WORKER_ELEMENTS_TEXT);
    wire_bytes(&request, elements->type->bytes, elements->type->n);
    wire_uints(&request, (uint64_t[]){elements->first, elements->n, elements->row_length}, 3);
    wire_bytes(&request, elements->elements.bytes, elements->elements.n);
    int error = ask_type(of, WORKER_ELEMENTS_TEXT, &request, remote_take_text, &text);
    if (!error) {
        *out = text.bytes;
        *out_n = text.n;
    }
    return error;
}

int remote_element_parse(const struct about *of, const void *type, size_t n, const char *text,
                         void *element)
{
    uint64_t size;
    struct remote_text bytes = {0};
    struct wire request;
    int error = remote_element_size(type, n, &size);
    if (error)
        return error;
    client_request(&request, WORKER_ELEMENT_PARSE);
    wire_bytes(&request, type, n);
    wire_string(&request, text);
    error = ask_type(of, WORKER_ELEMENT_PARSE, &request, remote_take_text, &bytes);
    if (!error && bytes.n != size)
        error = -EIO;
    if (!error)
        memcpy(element, bytes.bytes, bytes.n);
    free(bytes.bytes);
    return error;
}
