/* A small dataset as comma-separated values (RFC 4180, with line ends as they are here): a line for
 * every row of one or two dims, a field for each element, or of compounds for each member, whose
 * names are the first line. What is undefined is an empty field. */
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "common/float_text.h"
#include "common/interrupt.h"
#include "view/pixel.h"

#define MOST_ROWS   10000
#define MOST_FIELDS ((uint64_t)1 << 20)
#define MOST_BYTES  ((uint64_t)64 << 20) /* of elements, and of names */
#define PIECE_BYTES ((size_t)1 << 20)
#define MOST_LEVELS 32 /* of compounds and arrays in each other */

/* In the first line, with what stands between them. */
#define INDEX_BYTES  22
#define QUOTES_BYTES 3

/* ---- Types ---- */

static uint64_t array_elements(const struct sfs_type *type)
{
    uint64_t n = 1;
    for (int i = 0; i < type->array_rank && n <= MOST_FIELDS; i++)
        if (__builtin_mul_overflow(n, type->array_dims[i], &n))
            n = MOST_FIELDS + 1;
    return n;
}

/* Fields of an element; 0, or more than there may be: it has no such form. */
static uint64_t count_fields(const struct sfs_type *type, int level)
{
    uint64_t n = 0;
    if (level > MOST_LEVELS)
        return 0;
    switch (type->class) {
    case SFS_COMPOUND:
        for (size_t i = 0; i < type->n_members; i++) {
            uint64_t here = count_fields(&type->members[i].type, level + 1);
            if (here == 0 || here > MOST_FIELDS || n > MOST_FIELDS)
                return 0;
            n += here;
        }
        return n;
    case SFS_ARRAY:
        n = count_fields(type->base, level + 1);
        return n > MOST_FIELDS || __builtin_mul_overflow(n, array_elements(type), &n) ? 0 : n;
    case SFS_STRING:
    case SFS_OPAQUE:
        return 1;
    default:
        return pixel_is_number(type);
    }
}

/* The most bytes of the names of all fields, or more than there may be. */
static uint64_t names_bytes(const struct sfs_type *type, uint64_t outer)
{
    uint64_t n = 0;
    switch (type->class) {
    case SFS_COMPOUND:
        for (size_t i = 0; i < type->n_members && n <= MOST_BYTES; i++) {
            const struct sfs_member *member = &type->members[i];
            uint64_t here = names_bytes(&member->type, outer + 1 + 2 * strlen(member->name));
            n = here > MOST_BYTES ? here : n + here;
        }
        return n;
    case SFS_ARRAY:
        n = names_bytes(type->base, outer + INDEX_BYTES);
        return __builtin_mul_overflow(n, array_elements(type), &n) ? UINT64_MAX : n;
    default:
        return outer + QUOTES_BYTES;
    }
}

bool csv_exists(const struct views *views)
{
    const struct sfs_dataset_info *info = views->info;
    uint64_t fields;
    if (info->type.has_pointers || info->space == SFS_SPACE_NULL || views->elements == 0 ||
        views->total_bytes > MOST_BYTES)
        return false;
    bool is_table = info->type.class == SFS_COMPOUND ? info->rank < 2 : info->rank == 1;
    if ((!is_table && (info->rank != 2 || info->type.class == SFS_COMPOUND)) ||
        (info->rank > 0 && views->dims[0] > MOST_ROWS))
        return false;
    fields = count_fields(&info->type, 0);
    return fields > 0 && !__builtin_mul_overflow(fields, views->elements, &fields) &&
           fields <= MOST_FIELDS && names_bytes(&info->type, 0) <= MOST_BYTES;
}

/* ---- Names ---- */

/* Of a member of a member ..., from the innermost one on. */
struct name {
    const struct name *outer;
    const char *member; /* NULL: of an array, the index */
    uint64_t index;
};

static void write_quoted(FILE *out, const char *text, size_t n)
{
    for (size_t i = 0; i < n; i++)
        fprintf(out, text[i] == '"' ? "\"\"" : "%c", text[i]);
}

static void write_name(FILE *out, const struct name *name)
{
    if (name->outer)
        write_name(out, name->outer);
    if (!name->member)
        fprintf(out, "[%" PRIu64 "]", name->index);
    else if (name->outer)
        putc('.', out);
    if (name->member)
        write_quoted(out, name->member, strlen(name->member));
}

static void write_names(FILE *out, const struct sfs_type *type, const struct name *outer,
                        bool *first)
{
    if (type->class == SFS_COMPOUND) {
        for (size_t i = 0; i < type->n_members; i++) {
            const struct name name = {.outer = outer, .member = type->members[i].name};
            write_names(out, &type->members[i].type, &name, first);
        }
    } else if (type->class == SFS_ARRAY) {
        struct name name = {.outer = outer};
        for (; name.index < array_elements(type); name.index++)
            write_names(out, type->base, &name, first);
    } else {
        fputs(*first ? "\"" : ",\"", out);
        *first = false;
        write_name(out, outer);
        putc('"', out);
    }
}

/* ---- Values ---- */

static void write_string(FILE *out, const char *text, size_t n)
{
    n = strnlen(text, n);
    bool is_plain = n > 0 && text[0] != ' ' && text[n - 1] != ' ';
    for (size_t i = 0; i < n; i++)
        is_plain &= text[i] != ',' && text[i] != '"' && text[i] != '\n' && text[i] != '\r';
    if (!is_plain)
        putc('"', out);
    write_quoted(out, text, n);
    if (!is_plain)
        putc('"', out);
}

static void write_value(FILE *out, const struct sfs_type *type, const unsigned char *element)
{
    uint64_t bits;
    switch (type->class) {
    case SFS_STRING:
        write_string(out, (const char *)element, type->size);
        break;
    case SFS_OPAQUE:
        for (size_t i = 0; i < type->size; i++)
            fprintf(out, "%02x", element[i]);
        break;
    case SFS_FLOAT:
        float_write(out, number_value(type, element), type->size != sizeof(double));
        break;
    default:
        bits = number_bits(type, element);
        if (type->is_signed)
            fprintf(out, "%" PRId64, number_signed(type, bits));
        else
            fprintf(out, "%" PRIu64, bits);
    }
}

/* element NULL: it is undefined. */
static void write_fields(FILE *out, const struct sfs_type *type, const unsigned char *element,
                         bool *first)
{
    if (type->class == SFS_COMPOUND) {
        for (size_t i = 0; i < type->n_members; i++) {
            const struct sfs_member *member = &type->members[i];
            write_fields(out, &member->type, element ? element + member->offset : NULL, first);
        }
    } else if (type->class == SFS_ARRAY) {
        for (uint64_t i = 0; i < array_elements(type); i++)
            write_fields(out, type->base, element ? element + i * type->base->size : NULL, first);
    } else {
        if (!*first)
            putc(',', out);
        *first = false;
        if (element)
            write_value(out, type, element);
    }
}

/* ---- The table ---- */

struct table {
    struct views *views;
    FILE *out;
    uint64_t columns;           /* elements of a row */
    struct sfs_defined defined; /* of a sparse dataset */
    size_t at;                  /* the interval that the next element is in or before */
};

static bool is_undefined(struct table *table, uint64_t position)
{
    const struct sfs_defined *defined = &table->defined;
    const struct sfs_interval *interval;
    if (!table->views->is_sparse)
        return false;
    for (; table->at < defined->n; table->at++) {
        interval = &defined->interval[table->at];
        if (position < interval->first)
            return true;
        if (position - interval->first < interval[1].index - interval->index)
            return false;
    }
    return true;
}

static void write_elements(struct table *table, uint64_t first, uint64_t n,
                           const unsigned char *elements)
{
    const struct sfs_type *type = &table->views->info->type;
    for (uint64_t i = first; i < first + n; i++, elements += type->size) {
        bool begins = i % table->columns == 0;
        write_fields(table->out, type, is_undefined(table, i) ? NULL : elements, &begins);
        if ((i + 1) % table->columns == 0)
            putc('\n', table->out);
    }
}

static int write_rows(struct table *table)
{
    struct views *views = table->views;
    struct sfs_slab slab = view_whole_slab(views);
    size_t size = views->info->type.size;
    uint64_t most = size < PIECE_BYTES ? PIECE_BYTES / size : 1, n;
    unsigned char *piece = malloc((size_t)most * size);
    int error = piece ? 0 : -ENOMEM;
    for (uint64_t first = 0; first < views->elements && !error; first += n) {
        n = views->elements - first < most ? views->elements - first : most;
        error = interrupt_check();
        if (!error)
            error = sfs_read(views->dataset, &slab, first * size, piece, (size_t)n * size);
        if (!error) {
            show_elements(views, piece, n);
            write_elements(table, first, n, piece);
        }
    }
    free(piece);
    return error;
}

int csv_of_dataset(struct views *views, struct view_head *head)
{
    const struct sfs_dataset_info *info = views->info;
    struct table table = {.views = views, .columns = info->rank == 2 ? views->dims[1] : 1};
    struct sfs_slab slab = view_whole_slab(views);
    bool first = true;
    if (!csv_exists(views))
        return -EINVAL;
    int error = views->is_sparse ? sfs_get_defined(views->dataset, &slab, &table.defined) : 0;
    if (error)
        return error;
    table.out = head_begin(head);
    if (!table.out) {
        sfs_defined_free(&table.defined);
        return -ENOMEM;
    }
    if (info->type.class == SFS_COMPOUND) {
        write_names(table.out, &info->type, NULL, &first);
        putc('\n', table.out);
    }
    error = write_rows(&table);
    int failed = head_end(table.out, head);
    sfs_defined_free(&table.defined);
    if (error && !failed)
        free(head->bytes);
    return error ? error : failed;
}
