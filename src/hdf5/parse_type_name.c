/* Datatypes out of text: names of NumPy, and compounds, arrays, sequences, enumerations, strings of any length and
 * references of and beside these, as sparsectl(1) describes them under --dtype:
 *
 *   type      name | "(" dim { "," dim } ")" type | "vlen" ":" type | "{" member { "," member } "}"
 *             | "enum" ":" name "{" value { "," value } "}"
 *   member    ( name | quoted ) ":" type
 *   value     ( name | quoted ) ":" number
 *
 * Blanks may be beside punctuation. Members have no gaps between them. Knows nothing of files. */
#include <errno.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include "common/size.h"
#include "hdf5/private.h"

/* Of a type in a type in a type: what libhdf5 does with arrays of arrays takes time by 2^n. */
#define MOST_DEPTH 16
#define MOST_SIZE  UINT32_MAX /* bytes of an element */
#define MOST_DIM   UINT32_MAX /* of an array */
#define MOST_NAME  32         /* bytes of a name of NumPy, or of a number, with its end */

/* Members of a compound, names of an enumeration. An object header has no room for so many, as a message has up to
 * 64 KiB, and libhdf5 encodes their number in 16 bits without looking whether it fits. */
#define MOST_MEMBERS 16384

/* ---- Names of NumPy ---- */

/* IEEE 754 binary16, which libhdf5 1.10 has no name for. */
static hid_t half_float(void)
{
    hid_t type = H5Tcopy(H5T_IEEE_F32LE);
    if (type >= 0 && (H5Tset_fields(type, 15, 10, 5, 0, 10) < 0 || H5Tset_size(type, 2) < 0 ||
                      H5Tset_ebias(type, 15) < 0)) {
        H5Tclose(type);
        return H5I_INVALID_HID;
    }
    return type;
}

static hid_t number(char kind, unsigned long size)
{
    if (kind == 'f')
        return size == 2   ? half_float()
               : size == 4 ? H5Tcopy(H5T_IEEE_F32LE)
               : size == 8 ? H5Tcopy(H5T_IEEE_F64LE)
                           : H5I_INVALID_HID;
    switch (size) {
    case 1:
        return H5Tcopy(kind == 'u' ? H5T_STD_U8LE : H5T_STD_I8LE);
    case 2:
        return H5Tcopy(kind == 'u' ? H5T_STD_U16LE : H5T_STD_I16LE);
    case 4:
        return H5Tcopy(kind == 'u' ? H5T_STD_U32LE : H5T_STD_I32LE);
    case 8:
        return H5Tcopy(kind == 'u' ? H5T_STD_U64LE : H5T_STD_I64LE);
    default:
        return H5I_INVALID_HID;
    }
}

/* As h5py writes them. */
static hid_t boolean(void)
{
    const signed char no = 0, yes = 1;
    hid_t type = H5Tenum_create(H5T_STD_I8LE);
    if (type >= 0 &&
        (H5Tenum_insert(type, "FALSE", &no) < 0 || H5Tenum_insert(type, "TRUE", &yes) < 0)) {
        H5Tclose(type);
        return H5I_INVALID_HID;
    }
    return type;
}

static hid_t complex_of(hid_t part)
{
    size_t size = H5Tget_size(part);
    hid_t type = H5Tcreate(H5T_COMPOUND, 2 * size);
    if (type >= 0 && (H5Tinsert(type, "r", 0, part) < 0 || H5Tinsert(type, "i", size, part) < 0)) {
        H5Tclose(type);
        return H5I_INVALID_HID;
    }
    return type;
}

static hid_t string(unsigned long size)
{
    hid_t type = H5Tcopy(H5T_C_S1);
    if (type >= 0 && (H5Tset_size(type, size) < 0 || H5Tset_strpad(type, H5T_STR_NULLPAD) < 0)) {
        H5Tclose(type);
        return H5I_INVALID_HID;
    }
    return type;
}

static hid_t make_type(char kind, unsigned long size, bool big_endian)
{
    hid_t type;
    if (kind == 'b')
        return size == 1 ? boolean() : H5I_INVALID_HID;
    if (kind == 'S')
        return string(size);
    if (kind == 'V')
        return H5Tcreate(H5T_OPAQUE, size);
    type = kind == 'c' ? size == 8 || size == 16 ? number('f', size / 2) : H5I_INVALID_HID
                       : number(kind, size);
    if (type >= 0 && big_endian && H5Tset_order(type, H5T_ORDER_BE) < 0) {
        H5Tclose(type);
        return H5I_INVALID_HID;
    }
    if (type >= 0 && kind == 'c') {
        hid_t part = type;
        type = complex_of(part);
        H5Tclose(part);
    }
    return type;
}

/* "<u2" or "uint16" as kind, bytes and byte order. */
static bool parse_name(const char *name, char *kind, unsigned long *size, bool *big_endian)
{
    static const struct {
        const char *word;
        char kind;
    } words[] = {{"int", 'i'}, {"uint", 'u'}, {"float", 'f'}, {"complex", 'c'}};
    *big_endian = *name == '>';
    bool has_order = *name && strchr("<>=|", *name);
    name += has_order;
    *kind = 'b';
    *size = 1;
    if (!strcmp(name, "?") || (!has_order && (!strcmp(name, "bool") || !strcmp(name, "bool_"))))
        return true;

    unsigned bits = 1;
    const char *digits = name;
    if (*name && strchr("iufcbSV", *name) && strspn(name + 1, "0123456789") > 0) {
        *kind = *name;
        digits = name + 1;
    } else {
        for (size_t i = 0; i < sizeof(words) / sizeof(*words) && bits == 1 && !has_order; i++) {
            size_t n = strlen(words[i].word);
            if (strncmp(name, words[i].word, n) == 0) {
                *kind = words[i].kind;
                digits = name + n;
                bits = 8;
            }
        }
        if (bits == 1)
            return false;
    }
    size_t n = strspn(digits, "0123456789");
    if (n == 0 || n > 9 || digits[n])
        return false;
    *size = strtoul(digits, NULL, 10);
    bool whole = *size % bits == 0;
    *size /= bits;
    return whole && *size > 0;
}

/* A string of any length, as h5py's string_dtype() has it. */
static hid_t variable_string(H5T_cset_t characters)
{
    hid_t type = H5Tcopy(H5T_C_S1);
    if (type >= 0 && (H5Tset_size(type, H5T_VARIABLE) < 0 || H5Tset_cset(type, characters) < 0)) {
        H5Tclose(type);
        return H5I_INVALID_HID;
    }
    return type;
}

/* By a word, whose end is that of the text. */
static hid_t named(const char *word)
{
    char kind;
    unsigned long size;
    bool big_endian;
    if (!strcmp(word, "str") || !strcmp(word, "string"))
        return variable_string(H5T_CSET_UTF8);
    if (!strcmp(word, "ascii"))
        return variable_string(H5T_CSET_ASCII);
    if (!strcmp(word, "ref"))
        return H5Tcopy(H5T_STD_REF_OBJ);
    if (!strcmp(word, "regionref"))
        return H5Tcopy(H5T_STD_REF_DSETREG);
    return parse_name(word, &kind, &size, &big_endian) ? make_type(kind, size, big_endian)
                                                       : H5I_INVALID_HID;
}

/* ---- What is made of types ---- */

struct parsing {
    const char *text, *at; /* all of it, and what is left */
    unsigned depth;
    int error; /* -EINVAL: why has been said */
};

/* Says what is wrong at a place of the text. */
__attribute__((format(printf, 3, 4))) static hid_t refuse(struct parsing *parsing, const char *at,
                                                          const char *format, ...)
{
    char why[160], reason[240];
    va_list args;
    va_start(args, format);
    vsnprintf(why, sizeof(why), format, args);
    va_end(args);
    snprintf(reason, sizeof(reason), "at character %zu: %s", (size_t)(at - parsing->text) + 1, why);
    if (!parsing->error)
        library_reason(reason);
    parsing->error = parsing->error ? parsing->error : -EINVAL;
    return H5I_INVALID_HID;
}

static void skip_blanks(struct parsing *parsing)
{
    parsing->at += strspn(parsing->at, " \t\n");
}

/* Takes this character, and the blanks behind it, if it is next. */
static bool take(struct parsing *parsing, char punctuation)
{
    if (*parsing->at != punctuation)
        return false;
    parsing->at++;
    skip_blanks(parsing);
    return true;
}

static size_t word_length(const struct parsing *parsing)
{
    return strcspn(parsing->at, "{}(),:\" \t\n");
}

static hid_t parse_type(struct parsing *parsing);

/* Behind "vlen". */
static hid_t parse_sequence(struct parsing *parsing)
{
    if (!take(parsing, ':'))
        return refuse(parsing, parsing->at, "vlen wants \":\" and the datatype of its elements");
    hid_t base = parse_type(parsing), type = base < 0 ? base : H5Tvlen_create(base);
    if (base >= 0)
        H5Tclose(base);
    return type;
}

/* A datatype that has a name of its own. */
static hid_t parse_named(struct parsing *parsing)
{
    const char *begin = parsing->at;
    char word[MOST_NAME] = "";
    size_t n = word_length(parsing);
    if (n == 0)
        return refuse(
            parsing, begin,
            *begin ? "\"%.1s\" where a datatype is expected" : "a datatype is missing%.1s", begin);
    if (n < sizeof(word))
        memcpy(word, begin, n);
    hid_t type = named(word);
    parsing->at += n;
    return type < 0
               ? refuse(parsing, begin, "no such datatype: %.*s", (int)(n < 64 ? n : 64), begin)
               : type;
}

static hid_t parse_enumeration(struct parsing *parsing);

/* Takes this word, and the blanks behind it, if it is next. */
static bool take_word(struct parsing *parsing, const char *word)
{
    size_t n = strlen(word);
    if (word_length(parsing) != n || strncmp(parsing->at, word, n) != 0)
        return false;
    parsing->at += n;
    skip_blanks(parsing);
    return true;
}

static hid_t parse_word(struct parsing *parsing)
{
    if (take_word(parsing, "vlen"))
        return parse_sequence(parsing);
    if (take_word(parsing, "enum"))
        return parse_enumeration(parsing);
    return parse_named(parsing);
}

/* Behind "(". */
static int parse_dims(struct parsing *parsing, hsize_t *dims, uint64_t *elements)
{
    int rank = 0;
    *elements = 1;
    do {
        const char *begin = parsing->at;
        size_t n = strspn(begin, "0123456789");
        unsigned long long dim = n > 0 && n < 11 ? strtoull(begin, NULL, 10) : 0;
        if (dim == 0 || dim > MOST_DIM) {
            refuse(parsing, begin, "dims of an array are 1 to %llu", (unsigned long long)MOST_DIM);
            return -1;
        }
        if (rank == SFS_MAX_RANK) {
            refuse(parsing, begin, "an array has up to %d dims", SFS_MAX_RANK);
            return -1;
        }
        dims[rank++] = dim;
        *elements = *elements > MOST_SIZE / dim ? MOST_SIZE + (uint64_t)1 : *elements * dim;
        parsing->at += n;
        skip_blanks(parsing);
    } while (take(parsing, ','));
    if (take(parsing, ')'))
        return rank;
    refuse(parsing, parsing->at, "\",\" or \")\" is missing behind a dim of an array");
    return -1;
}

static hid_t too_large(struct parsing *parsing, const char *at)
{
    return refuse(parsing, at, "an element exceeds %llu bytes", (unsigned long long)MOST_SIZE);
}

/* Behind "(". */
static hid_t parse_array(struct parsing *parsing)
{
    const char *begin = parsing->at;
    hsize_t dims[SFS_MAX_RANK];
    uint64_t elements;
    int rank = parse_dims(parsing, dims, &elements);
    hid_t base = rank < 0 ? H5I_INVALID_HID : parse_type(parsing);
    if (base < 0)
        return base;
    hid_t type = elements > MOST_SIZE / H5Tget_size(base)
                     ? too_large(parsing, begin)
                     : H5Tarray_create2(base, (unsigned)rank, dims);
    H5Tclose(base);
    return type;
}

/* The name of a member, or of a value, with or without quotes; the caller frees it. */
static char *parse_member_name(struct parsing *parsing, const char *of)
{
    const char *begin = parsing->at;
    size_t n = 0;
    char *name = malloc(strlen(begin) + 1);
    if (!name)
        return NULL;
    if (*begin != '"') {
        n = word_length(parsing);
        memcpy(name, begin, n);
        parsing->at += n;
    } else {
        for (parsing->at++; *parsing->at && *parsing->at != '"'; parsing->at++) {
            if (*parsing->at == '\\' && parsing->at[1])
                parsing->at++;
            name[n++] = *parsing->at;
        }
        if (*parsing->at != '"')
            refuse(parsing, begin, "the name of a %s has no closing quote", of);
        else
            parsing->at++;
    }
    name[n] = '\0';
    if (n == 0)
        refuse(parsing, begin, "the name of a %s is missing", of);
    return name;
}

/* Puts a member behind all others; *size: bytes of these. */
static void add_member(struct parsing *parsing, hid_t compound, size_t *size, const char *begin,
                       const char *name)
{
    hid_t member = parse_type(parsing);
    if (member < 0)
        return;
    size_t bytes = H5Tget_size(member), before = *size;
    if (bytes > MOST_SIZE - before)
        too_large(parsing, begin);
    else if (H5Tset_size(compound, before + bytes) < 0 ||
             H5Tinsert(compound, name, before, member) < 0)
        refuse(parsing, begin, "libhdf5 does not take this member");
    else
        *size += bytes;
    H5Tclose(member);
}

static void parse_member(struct parsing *parsing, hid_t compound, size_t *size)
{
    const char *begin = parsing->at;
    char *name = parse_member_name(parsing, "member");
    skip_blanks(parsing);
    if (!name)
        parsing->error = -ENOMEM;
    else if (H5Tget_nmembers(compound) == MOST_MEMBERS)
        refuse(parsing, begin, "a compound has up to %d members", MOST_MEMBERS);
    else if (*size > 0 && H5Tget_member_index(compound, name) >= 0)
        refuse(parsing, begin, "another member has this name");
    else if (!parsing->error && !take(parsing, ':'))
        refuse(parsing, parsing->at, "\":\" is missing behind the name of a member");
    if (!parsing->error)
        add_member(parsing, compound, size, begin, name);
    free(name);
}

/* Behind "{". */
static hid_t parse_compound(struct parsing *parsing)
{
    size_t size = 0;
    hid_t type = H5Tcreate(H5T_COMPOUND, 1);
    if (type < 0)
        return type;
    do {
        parse_member(parsing, type, &size);
        skip_blanks(parsing);
    } while (!parsing->error && take(parsing, ','));
    if (!parsing->error && !take(parsing, '}'))
        refuse(parsing, parsing->at, "\",\" or \"}\" is missing behind a member");
    if (!parsing->error)
        return type;
    H5Tclose(type);
    return H5I_INVALID_HID;
}

/* ---- Enumerations ---- */

/* Why libhdf5 does not take a name with its value. It is asked only then: it sorts all names for an answer. */
static void refuse_value(struct parsing *parsing, hid_t enumeration, const char *begin,
                         const char *name)
{
    unsigned char value[sizeof(uint64_t)];
    if (H5Tenum_valueof(enumeration, name, value) >= 0)
        refuse(parsing, begin, "another value has this name");
    else
        refuse(parsing, begin, "another name has this value");
}

/* Gives a name its value, in the bytes of the base type. */
static void add_value(struct parsing *parsing, hid_t enumeration, const char *begin,
                      const char *name)
{
    unsigned char value[sizeof(uint64_t)];
    char digits[MOST_NAME] = "";
    const char *at = parsing->at;
    size_t n = word_length(parsing);
    hid_t base = H5Tget_super(enumeration);
    if (n < sizeof(digits))
        memcpy(digits, at, n);
    parsing->at += n;
    if (base < 0 || element_parse_integer(base, digits, value) != 0)
        refuse(parsing, at, "a value of this enumeration is an integer of its datatype");
    else if (H5Tenum_insert(enumeration, name, value) < 0)
        refuse_value(parsing, enumeration, begin, name);
    if (base >= 0)
        H5Tclose(base);
}

static void parse_value(struct parsing *parsing, hid_t enumeration)
{
    const char *begin = parsing->at;
    char *name = parse_member_name(parsing, "value");
    skip_blanks(parsing);
    if (!name)
        parsing->error = -ENOMEM;
    else if (H5Tget_nmembers(enumeration) == MOST_MEMBERS)
        refuse(parsing, begin, "an enumeration has up to %d names", MOST_MEMBERS);
    else if (!parsing->error && !take(parsing, ':'))
        refuse(parsing, parsing->at, "\":\" is missing behind the name of a value");
    if (!parsing->error)
        add_value(parsing, enumeration, begin, name);
    free(name);
}

/* Behind "enum". */
static hid_t parse_enumeration(struct parsing *parsing)
{
    if (!take(parsing, ':'))
        return refuse(parsing, parsing->at, "enum wants \":\" and the datatype of its values");
    const char *begin = parsing->at;
    hid_t base = parse_named(parsing), type = base;
    if (base < 0)
        return base;
    if (H5Tget_class(base) != H5T_INTEGER)
        type = refuse(parsing, begin, "the values of an enumeration are integers");
    else
        type = H5Tenum_create(base);
    H5Tclose(base);
    skip_blanks(parsing);
    if (type >= 0 && !take(parsing, '{'))
        refuse(parsing, parsing->at, "\"{\" and names with values are missing");
    do {
        if (!parsing->error && type >= 0)
            parse_value(parsing, type);
        skip_blanks(parsing);
    } while (!parsing->error && take(parsing, ','));
    if (!parsing->error && !take(parsing, '}'))
        refuse(parsing, parsing->at, "\",\" or \"}\" is missing behind a value");
    if (type < 0 || !parsing->error)
        return type;
    H5Tclose(type);
    return H5I_INVALID_HID;
}

/* ---- */

static hid_t parse_type(struct parsing *parsing)
{
    hid_t type;
    const char *begin = parsing->at;
    if (parsing->depth == MOST_DEPTH)
        return refuse(parsing, begin, "datatypes are nested more than %d deep", MOST_DEPTH);
    parsing->depth++;
    if (take(parsing, '('))
        type = parse_array(parsing);
    else if (take(parsing, '{'))
        type = parse_compound(parsing);
    else
        type = parse_word(parsing);
    parsing->depth--;
    return type < 0 ? refuse(parsing, begin, "libhdf5 does not make this datatype") : type;
}

int hdf5_type_of_name(const char *name, void **out, size_t *n)
{
    struct parsing parsing = {.text = name, .at = name};
    library_enter();
    hid_t type = H5open() < 0 ? H5I_INVALID_HID : parse_type(&parsing);
    if (type >= 0 && *parsing.at)
        refuse(&parsing, parsing.at, "there is more behind the datatype");
    int error = parsing.error ? parsing.error : type < 0 ? library_failed(-EINVAL) : 0;
    if (!error)
        error = type_encode(type, out, n);
    if (type >= 0)
        H5Tclose(type);
    H5Eclear2(H5E_DEFAULT);
    library_leave();
    return error;
}
