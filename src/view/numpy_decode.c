/* Reading .npy files: the header is a Python dictionary with three keys, of which the one that is
 * shown has the same; both are read here and compared. Nothing of it is trusted. */
#include <errno.h>
#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "view/foreign_files.h"

#define MOST_DIMS 64

struct span {
    const char *at;
    size_t n;
};

struct npy {
    struct span descr; /* as it stands there */
    bool has_descr, has_order, has_shape, is_fortran;
    int rank;
    uint64_t dims[MOST_DIMS];
    size_t head; /* bytes before the elements */
};

/* What is left of the dictionary. */
struct text {
    const char *at, *end;
};

static void skip_spaces(struct text *text)
{
    while (text->at < text->end && strchr(" \t\r\n", *text->at) && *text->at)
        text->at++;
}

static bool take(struct text *text, char c)
{
    skip_spaces(text);
    bool is_there = text->at < text->end && *text->at == c;
    text->at += is_there;
    return is_there;
}

/* A string without escapes, and its quotes. */
static bool take_string(struct text *text, struct span *string)
{
    skip_spaces(text);
    if (text->at == text->end || (*text->at != '\'' && *text->at != '"'))
        return false;
    const char *begin = text->at + 1, *end = memchr(begin, *text->at, (size_t)(text->end - begin));
    if (!end)
        return false;
    *string = (struct span){begin, (size_t)(end - begin)};
    text->at = end + 1;
    return true;
}

static bool is_word(struct span span, const char *word)
{
    return span.n == strlen(word) && memcmp(span.at, word, span.n) == 0;
}

static bool take_word(struct text *text, const char *word)
{
    size_t n = strlen(word);
    skip_spaces(text);
    bool is_there = (size_t)(text->end - text->at) >= n && memcmp(text->at, word, n) == 0;
    text->at += is_there ? n : 0;
    return is_there;
}

/* A string, or a list: up to its bracket, whatever stands in it. */
static bool take_descr(struct text *text, struct npy *npy)
{
    skip_spaces(text);
    if (text->at == text->end || *text->at != '[')
        return take_string(text, &npy->descr);
    const char *begin = text->at;
    char quote = 0;
    size_t depth = 0;
    for (; text->at < text->end; text->at++) {
        char c = *text->at;
        if (quote) {
            quote = c == quote ? 0 : quote;
        } else if (c == '\'' || c == '"') {
            quote = c;
        } else if (c == '[' || c == '(') {
            depth++;
        } else if ((c == ']' || c == ')') && --depth == 0) {
            text->at++;
            npy->descr = (struct span){begin, (size_t)(text->at - begin)};
            return true;
        }
    }
    return false;
}

static bool take_number(struct text *text, uint64_t *number)
{
    skip_spaces(text);
    const char *begin = text->at;
    *number = 0;
    for (; text->at < text->end && *text->at >= '0' && *text->at <= '9'; text->at++)
        if (__builtin_mul_overflow(*number, 10, number) ||
            __builtin_add_overflow(*number, (uint64_t)(*text->at - '0'), number))
            return false;
    bool any = text->at > begin;
    if (any && text->at < text->end && *text->at == 'L') /* Python 2 */
        text->at++;
    return any;
}

static bool take_shape(struct text *text, struct npy *npy)
{
    if (!take(text, '('))
        return false;
    while (!take(text, ')')) {
        if (npy->rank == MOST_DIMS || !take_number(text, &npy->dims[npy->rank++]))
            return false;
        if (!take(text, ','))
            return take(text, ')');
    }
    return true;
}

static bool take_value(struct text *text, struct span key, struct npy *npy)
{
    if (is_word(key, "descr") && !npy->has_descr)
        return npy->has_descr = take_descr(text, npy);
    if (is_word(key, "shape") && !npy->has_shape)
        return npy->has_shape = take_shape(text, npy);
    if (!is_word(key, "fortran_order") || npy->has_order)
        return false;
    npy->is_fortran = take_word(text, "True");
    return npy->has_order = npy->is_fortran || take_word(text, "False");
}

static bool take_dictionary(struct text *text, struct npy *npy)
{
    struct span key;
    if (!take(text, '{'))
        return false;
    while (!take(text, '}')) {
        if (!take_string(text, &key) || !take(text, ':') || !take_value(text, key, npy))
            return false;
        if (!take(text, ',')) {
            if (!take(text, '}'))
                return false;
            break;
        }
    }
    skip_spaces(text);
    return text->at == text->end && npy->has_descr && npy->has_order && npy->has_shape;
}

static bool read_head(const char *bytes, size_t n, struct npy *npy)
{
    const unsigned char *b = (const unsigned char *)bytes;
    *npy = (struct npy){0};
    if (n < 10 || memcmp(bytes, "\x93NUMPY", 6) != 0 || b[6] < 1 || b[6] > 3)
        return false;
    size_t prefix = b[6] == 1 ? 10 : 12;
    if (n < prefix)
        return false;
    uint64_t length = b[8] | (uint64_t)b[9] << 8;
    if (prefix == 12)
        length |= (uint64_t)b[10] << 16 | (uint64_t)b[11] << 24;
    if (length > n - prefix)
        return false;
    struct text text = {bytes + prefix, bytes + prefix + length};
    npy->head = prefix + (size_t)length;
    return take_dictionary(&text, npy);
}

/* ---- Types ---- */

static bool is_little(char order)
{
    return order == '<' || (order != '>' && __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__);
}

static bool has_order(struct span descr)
{
    return descr.n > 0 && strchr("<>|=", *descr.at) && *descr.at;
}

/* Whether both are the same but for their byte order; *swaps: that differs. Lists are compared as
 * they stand there. */
static bool is_same_type(struct span a, struct span b, bool *swaps)
{
    char a_order = has_order(a) ? *a.at : '=', b_order = has_order(b) ? *b.at : '=';
    *swaps = false;
    if (a.n == b.n && memcmp(a.at, b.at, a.n) == 0)
        return true;
    if (a.n == 0 || b.n == 0 || *a.at == '[' || *b.at == '[')
        return false;
    a = (struct span){a.at + has_order(a), a.n - has_order(a)};
    b = (struct span){b.at + has_order(b), b.n - has_order(b)};
    *swaps = is_little(a_order) != is_little(b_order);
    return a.n > 0 && a.n == b.n && memcmp(a.at, b.at, a.n) == 0;
}

/* Bytes that are in one order or the other. */
static size_t unit_of(struct span descr, size_t item)
{
    char kind = descr.at[has_order(descr)];
    return kind == 'c' ? item / 2 : strchr("iufmM", kind) ? item : 1;
}

void swap_units(char *bytes, size_t n, size_t unit)
{
    for (size_t at = 0; unit > 1 && at + unit <= n; at += unit) {
        for (size_t i = 0; i < unit / 2; i++) {
            char c = bytes[at + i];
            bytes[at + i] = bytes[at + unit - 1 - i];
            bytes[at + unit - 1 - i] = c;
        }
    }
}

/* ---- Elements ---- */

/* Out of the first index varying fastest into the last one doing so. */
static void transpose(const struct npy *npy, const char *from, size_t item, size_t n, char *to)
{
    uint64_t index[MOST_DIMS] = {0}, stride[MOST_DIMS], at = 0;
    for (int i = 0; i < npy->rank; i++)
        stride[i] = i == 0 ? item : stride[i - 1] * npy->dims[i - 1];
    for (size_t done = 0; done < n; done += item) {
        memcpy(to + done, from + at, item);
        for (int i = npy->rank - 1; i >= 0; i--) {
            at += stride[i];
            if (++index[i] < npy->dims[i])
                break;
            at -= stride[i] * npy->dims[i];
            index[i] = 0;
        }
    }
}

static int refuse(struct why *why, const char *text)
{
    return why_refused(why, -EINVAL, "%s", text);
}

static int compare_types(struct span descr, struct span shown, struct why *why)
{
    bool swaps;
    if (is_same_type(descr, shown, &swaps))
        return 0;
    why_say(why, "elements are %.*s, not %.*s", descr.n < 40 ? (int)descr.n : 40, descr.at,
            shown.n < 40 ? (int)shown.n : 40, shown.at);
    return -EINVAL;
}

/* As Python writes it; a long one is cut. */
static void write_shape(const struct npy *npy, char *text, size_t room)
{
    size_t n = (size_t)snprintf(text, room, "(");
    for (int i = 0; i < npy->rank && n < room; i++)
        n += (size_t)snprintf(text + n, room - n, "%s%" PRIu64, i ? ", " : "", npy->dims[i]);
    if (n < room)
        snprintf(text + n, room - n, npy->rank == 1 ? ",)" : ")");
}

static int compare(const struct npy *npy, const struct npy *shown, uint64_t frame_bytes, size_t n,
                   struct why *why)
{
    int error = compare_types(npy->descr, shown->descr, why);
    if (error)
        return error;
    if (npy->rank != shown->rank ||
        memcmp(npy->dims, shown->dims, (size_t)npy->rank * sizeof(*npy->dims)) != 0) {
        char is[60], wanted[60];
        write_shape(npy, is, sizeof(is));
        write_shape(shown, wanted, sizeof(wanted));
        return why_refused(why, -EINVAL, "the shape is %s, not %s", is, wanted);
    }
    if (n - npy->head != frame_bytes)
        return refuse(why, n - npy->head < frame_bytes ? "elements are missing"
                                                       : "bytes follow the elements");
    return 0;
}

int numpy_decode(const struct view_head *head, uint64_t frame_bytes, const char *bytes, size_t n,
                 char *dense, struct why *why)
{
    struct npy npy, shown;
    bool swaps;
    uint64_t elements = 1;
    if (!read_head(bytes, n, &npy))
        return refuse(why, "it has no NumPy header of version 1 to 3");
    if (!read_head(head->bytes, head->n, &shown))
        return -EOPNOTSUPP;
    int error = compare(&npy, &shown, frame_bytes, n, why);
    if (error || frame_bytes == 0)
        return error;
    for (int i = 0; i < shown.rank; i++)
        elements *= shown.dims[i]; /* of a frame that has so many bytes */
    size_t item = (size_t)(frame_bytes / elements);
    if (npy.is_fortran && npy.rank > 1)
        transpose(&npy, bytes + npy.head, item, (size_t)frame_bytes, dense);
    else
        memcpy(dense, bytes + npy.head, (size_t)frame_bytes);
    (void)is_same_type(npy.descr, shown.descr, &swaps);
    if (swaps)
        swap_units(dense, (size_t)frame_bytes, unit_of(shown.descr, item));
    return 0;
}

/* ---- Arrays of any length ---- */

bool numpy_array(const char *bytes, size_t n, struct npy_array *array)
{
    struct npy npy;
    if (!read_head(bytes, n, &npy) || npy.rank > 1 || npy.descr.n == 0)
        return false;
    struct span descr = npy.descr;
    *array = (struct npy_array){.descr = descr.at,
                                .n_descr = descr.n,
                                .is_big = has_order(descr) && !is_little(*descr.at),
                                .n = npy.rank > 0 ? npy.dims[0] : 1,
                                .elements = bytes + npy.head};
    if (*descr.at == '[')
        return false;
    size_t at = has_order(descr);
    array->kind = at < descr.n ? descr.at[at++] : 0;
    struct text size = {descr.at + at, descr.at + descr.n};
    uint64_t item, all;
    if (!take_number(&size, &item) || size.at != size.end || item == 0 || item > SIZE_MAX)
        return false;
    array->item = (size_t)item;
    return !__builtin_mul_overflow(array->n, item, &all) && all == n - npy.head;
}

int numpy_is_of_type(const struct view_head *head, const struct npy_array *array, struct why *why)
{
    struct npy shown;
    if (!read_head(head->bytes, head->n, &shown))
        return -EOPNOTSUPP;
    return compare_types((struct span){array->descr, array->n_descr}, shown.descr, why);
}

void numpy_order(const struct view_head *head, const struct npy_array *array, char *bytes, size_t n)
{
    struct npy shown;
    bool swaps;
    if (read_head(head->bytes, head->n, &shown) &&
        is_same_type((struct span){array->descr, array->n_descr}, shown.descr, &swaps) && swaps)
        swap_units(bytes, n, unit_of(shown.descr, array->item));
}
