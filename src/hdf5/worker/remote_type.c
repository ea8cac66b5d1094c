/* Asking a worker for what libhdf5 knows of datatypes, and of elements by theirs. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "common/box.h"
#include "common/why.h"
#include "format/stored_layout.h"
#include "hdf5/private.h"
#include "hdf5/worker/remote_private.h"

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

static int unsound(const char *reason)
{
    library_reason(reason);
    return -EINVAL;
}

int remote_measure(const void *type, size_t n, struct datatype_element *element)
{
    struct why why;
    return datatype_measure_encoded(type, n, element, &why) ? unsound(why.text) : 0;
}

/* An answer about a datatype, and what that is by our own measure. */
struct measured {
    struct datatype_element element; /* when only a size is asked for */
    struct sfs_type layout;          /* else */
    struct remote_text encoded;
    struct sfs_type *description;
    uint64_t size;
};

/* Pointers are larger or smaller in memory than in the file. */
static bool is_as_large(const struct measured *measured, uint64_t size)
{
    return measured->element.has_pointers || size == measured->element.size;
}

static int take_encoded(struct cursor *results, void *out)
{
    struct measured *measured = out;
    int error = remote_take_text(results, &measured->encoded);
    if (error)
        return error;
    const struct sfs_encoded encoded = {measured->encoded.bytes, measured->encoded.n};
    error = stored_layout_check_encoded(&measured->layout, &encoded);
    if (error) {
        free(measured->encoded.bytes);
        measured->encoded = (struct remote_text){0};
    }
    return error && error != -ENOMEM ? -EIO : error;
}

int remote_type_of_message(const struct about *of, const void *message, size_t n, void **type,
                           size_t *type_n)
{
    struct why why;
    struct wire request;
    struct measured measured = {0};
    int error = stored_layout(message, n, &measured.layout, &why);
    if (error)
        return error == -ENOMEM ? error : unsound(why.text);
    client_request(&request, WORKER_TYPE_OF_MESSAGE);
    wire_bytes(&request, message, n);
    error = ask_type(of, WORKER_TYPE_OF_MESSAGE, &request, take_encoded, &measured);
    datatype_layout_free(&measured.layout);
    if (!error) {
        *type = measured.encoded.bytes;
        *type_n = measured.encoded.n;
    }
    return error;
}

static int take_description(struct cursor *results, void *out)
{
    struct measured *measured = out;
    int error = take_type(results, measured->description);
    if (error)
        return error;
    error = stored_layout_check(&measured->layout, measured->description);
    if (error)
        hdf5_type_free(measured->description);
    return error && error != -ENOMEM ? -EIO : error;
}

int remote_type_describe(const struct about *of, const void *type, size_t n,
                         struct sfs_type *description)
{
    struct why why;
    struct wire request;
    struct measured measured = {.description = description};
    int error = stored_layout_encoded(&(struct sfs_encoded){type, n}, &measured.layout, &why);
    if (error)
        return error == -ENOMEM ? error : unsound(why.text);
    client_request(&request, WORKER_TYPE_DESCRIBE);
    wire_bytes(&request, type, n);
    error = ask_type(of, WORKER_TYPE_DESCRIBE, &request, take_description, &measured);
    datatype_layout_free(&measured.layout);
    return error;
}

static int take_size(struct cursor *results, void *out)
{
    struct measured *measured = out;
    int error = remote_take_number(results, &measured->size);
    bool is_possible = measured->size > 0 && measured->size <= SIZE_MAX;
    return error || (is_possible && is_as_large(measured, measured->size)) ? error : -EIO;
}

int remote_type_size(const struct about *of, const void *type, size_t n, size_t *size)
{
    struct wire request;
    struct measured measured = {0};
    int error = remote_measure(type, n, &measured.element);
    if (error)
        return error;
    client_request(&request, WORKER_TYPE_SIZE);
    wire_bytes(&request, type, n);
    error = ask_type(of, WORKER_TYPE_SIZE, &request, take_size, &measured);
    if (!error)
        *size = (size_t)measured.size;
    return error;
}

bool remote_type_equal(const struct about *of, const struct sfs_encoded *a,
                       const struct sfs_encoded *b)
{
    uint64_t equal = 0;
    struct wire request;
    struct datatype_element left, right;
    if (remote_measure(a->bytes, a->n, &left) < 0 || remote_measure(b->bytes, b->n, &right) < 0 ||
        left.size != right.size || left.has_pointers != right.has_pointers)
        return false;
    client_request(&request, WORKER_TYPE_EQUAL);
    wire_bytes(&request, a->bytes, a->n);
    wire_bytes(&request, b->bytes, b->n);
    return ask_type(of, WORKER_TYPE_EQUAL, &request, remote_take_number, &equal) == 0 && equal == 1;
}

static int pointers_are_no_bytes(void)
{
    library_reason("elements with pointers are not bytes");
    return -EOPNOTSUPP;
}

int remote_element_json(const struct about *of, const void *type, size_t n, const void *element,
                        char **json)
{
    struct wire request;
    struct datatype_element measured;
    int error = remote_measure(type, n, &measured);
    if (!error && measured.has_pointers)
        error = pointers_are_no_bytes();
    if (error)
        return error;
    client_request(&request, WORKER_ELEMENT_JSON);
    wire_bytes(&request, type, n);
    wire_bytes(&request, element, (size_t)measured.size);
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
    struct remote_text bytes = {0};
    struct wire request;
    struct datatype_element measured;
    int error = remote_measure(type, n, &measured);
    if (!error && measured.has_pointers)
        error = pointers_are_no_bytes();
    if (error)
        return error;
    client_request(&request, WORKER_ELEMENT_PARSE);
    wire_bytes(&request, type, n);
    wire_string(&request, text);
    error = ask_type(of, WORKER_ELEMENT_PARSE, &request, remote_take_text, &bytes);
    if (!error && bytes.n != measured.size)
        error = -EIO;
    if (!error)
        memcpy(element, bytes.bytes, bytes.n);
    free(bytes.bytes);
    return error;
}
