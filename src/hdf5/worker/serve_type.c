/* Calls about datatypes, which need no file. */
#include <errno.h>
#include <stdlib.h>

#include "common/box.h"
#include "hdf5/local.h"
#include "hdf5/worker/serve_private.h"

struct sfs_encoded serve_take_encoded(struct cursor *in)
{
    struct sfs_encoded encoded = {.n = take_count(in, 1)};
    encoded.bytes = cursor_bytes(in, encoded.n);
    if (!encoded.bytes)
        encoded.n = 0;
    return encoded;
}

static int do_type_of_message(struct cursor *in, struct wire *out)
{
    struct sfs_encoded message = serve_take_encoded(in);
    void *type;
    size_t n;
    int error = local_type_of_message(message.bytes, message.n, &type, &n);
    if (error)
        return error;
    wire_bytes(out, type, n);
    free(type);
    return 0;
}

static int do_type_describe(struct cursor *in, struct wire *out)
{
    struct sfs_encoded type = serve_take_encoded(in);
    struct sfs_type description;
    int error = local_type_describe(type.bytes, type.n, &description);
    if (error)
        return error;
    wire_type(out, &description);
    hdf5_type_free(&description);
    return 0;
}

static int do_type_size(struct cursor *in, struct wire *out)
{
    struct sfs_encoded type = serve_take_encoded(in);
    size_t size;
    int error = local_type_size(type.bytes, type.n, &size);
    if (!error)
        wire_uint(out, size);
    return error;
}

static int do_type_equal(struct cursor *in, struct wire *out)
{
    struct sfs_encoded a = serve_take_encoded(in), b = serve_take_encoded(in);
    wire_uint(out, local_type_equal(a.bytes, a.n, b.bytes, b.n));
    return 0;
}

static int do_element_json(struct cursor *in, struct wire *out)
{
    struct sfs_encoded type = serve_take_encoded(in), element = serve_take_encoded(in);
    char *json;
    size_t size;
    int error = local_type_size(type.bytes, type.n, &size);
    if (!error && size > element.n)
        error = -EINVAL;
    if (!error)
        error = local_element_json(type.bytes, type.n, element.bytes, &json);
    return serve_put_string(out, error, error ? NULL : json);
}

static int do_elements_text(struct cursor *in, struct wire *out)
{
    struct sfs_encoded type = serve_take_encoded(in);
    struct hdf5_elements elements = {.type = &type};
    elements.first = take_uint(in, UINT64_MAX);
    elements.n = take_uint(in, UINT64_MAX);
    elements.row_length = take_uint(in, UINT64_MAX);
    elements.elements = serve_take_encoded(in);
    char *text;
    size_t text_n;
    int error = local_elements_text(&elements, &text, &text_n);
    if (error)
        return error;
    wire_bytes(out, text, text_n);
    free(text);
    return 0;
}

static int do_element_parse(struct cursor *in, struct wire *out)
{
    struct sfs_encoded type = serve_take_encoded(in);
    char *text;
    size_t size;
    int error = take_string(in, true, &text);
    if (error)
        return error;
    error = local_type_size(type.bytes, type.n, &size);
    bool is_possible = !error && size <= HDF5_MOST_ELEMENT_BYTES; /* a datatype claims any size */
    void *element = is_possible ? calloc(size, 1) : NULL;
    if (!error)
        error = element ? local_element_parse(type.bytes, type.n, text, element) : -ENOMEM;
    if (!error)
        wire_bytes(out, element, size);
    free(element);
    free(text);
    return error;
}

const call_function serve_types[WORKER_CALLS] = {
    [WORKER_TYPE_OF_MESSAGE] = do_type_of_message,
    [WORKER_TYPE_DESCRIBE] = do_type_describe,
    [WORKER_TYPE_SIZE] = do_type_size,
    [WORKER_TYPE_EQUAL] = do_type_equal,
    [WORKER_ELEMENT_JSON] = do_element_json,
    [WORKER_ELEMENTS_TEXT] = do_elements_text,
    [WORKER_ELEMENT_PARSE] = do_element_parse,
};
