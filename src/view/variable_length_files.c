/* Pieces of elements of variable length: which there are, and the two that were read last. */
#include "view/variable_length_files.h"

#include <endian.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "common/clock.h"
#include "common/cpu_limit.h"
#include "common/interrupt.h"
#include "common/log.h"
#include "common/search.h"
#include "common/size.h"
#include "view/views_memory.h"

#define PIECE_BYTES    ((uint64_t)1 << 20) /* of values or text, but for single elements */
#define PIECE_ELEMENTS 4096
#define MOST_PIECES    ((size_t)4 << 20)
#define FEW_ELEMENTS   ((uint64_t)1 << 20)
#define FEWER          4 /* so many times fewer elements are tried where they are too many */

#define ELEMENTS_OF_BYTE 64 /* 16 bytes each, of which deflate makes a thousandth */

struct parts_piece {
    uint64_t element; /* the first one */
    uint64_t before;  /* values, or bytes of text, before it */
};

struct parts_index {
    uint64_t changes; /* the sfs_dataset_changes that it is of */
    unsigned users;   /* under the lock; 1 more while it is kept */
    size_t n, room;
    struct parts_piece *piece; /* n, and one more where all ends */
    size_t item;               /* bytes of a value; 1 of text */
    uint64_t together;         /* while they are found: elements of which lines are made at once */
    struct view_head head;
};

bool parts_are_ragged(const struct views *views)
{
    const struct sfs_dataset_info *info = views->info;
    return info->type.class == SFS_VARIABLE && !info->type.is_string &&
           !info->type.base->has_pointers && info->layout != SFS_EXTERNAL &&
           info->space == SFS_SPACE_SIMPLE && views->elements < INT64_MAX / sizeof(int64_t) - 1;
}

/* Whether all references lead to something by sequences, as they do in structured chunks. */
static bool references_lead_on(const struct sfs_type *type)
{
    bool lead_on = type->class != SFS_REFERENCE || (type->reference != SFS_REFERENCE_ANY &&
                                                    type->size == sizeof(struct sfs_sequence));
    for (size_t i = 0; i < type->n_members && lead_on; i++)
        lead_on = references_lead_on(&type->members[i].type);
    return lead_on && (!type->base || references_lead_on(type->base));
}

static bool can_be_lines(const struct views *views)
{
    const struct sfs_dataset_info *info = views->info;
    if (!info->type.has_pointers)
        return info->type.class == SFS_STRING;
    return info->layout == SFS_SPARSE ? references_lead_on(&info->type)
                                      : info->layout != SFS_EXTERNAL;
}

bool parts_are_lines(const struct views *views)
{
    return can_be_lines(views) && views->info->space == SFS_SPACE_SIMPLE &&
           views->elements < INT64_MAX && !parts_are_ragged(views);
}

int parts_offsets_head(const struct views *views, struct view_head *head)
{
    const struct sfs_type number = {
        .class = SFS_INTEGER, .size = sizeof(int64_t), .is_signed = true};
    const uint64_t n = views->elements + 1;
    return parts_are_ragged(views) ? numpy_header(&number, 1, &n, head) : 0;
}

/* ---- Finding them ---- */

static void free_index(struct parts_index *index)
{
    if (!index)
        return;
    kept_memory_give_back(index->room * sizeof(*index->piece));
    free(index->piece);
    free(index->head.bytes);
    free(index);
}

/* What the last one that was added begins with, and where the next one will. */
static int add(const struct views *views, struct parts_index *index, uint64_t element,
               uint64_t before)
{
    if (index->n == MOST_PIECES)
        return -EFBIG;
    void *piece = index->piece;
    int error = kept_memory_grow(views, &piece, index->n + 1, &index->room,
                                 sizeof(*index->piece)); /* and for the end */
    index->piece = piece;
    if (!error)
        index->piece[index->n++] = (struct parts_piece){element, before};
    return error;
}

static int lengths_of(struct views *views, uint64_t first, uint64_t n, uint64_t *lengths)
{
    char *bytes;
    size_t bytes_n;
    int error = sfs_read_parts(views->dataset, SFS_LENGTHS, first, n, SIZE_MAX, &bytes, &bytes_n);
    if (error)
        return error;
    if (bytes_n == n * sizeof(*lengths))
        memcpy(lengths, bytes, bytes_n);
    else
        error = -EIO;
    free(bytes);
    return error;
}

static int lines_of(struct views *views, uint64_t first, uint64_t n, char **lines, size_t *bytes)
{
    return sfs_read_parts(views->dataset, SFS_LINES, first, n, SIZE_OF_MOST_ELEMENT, lines, bytes);
}

/* How many of n elements make a piece: at least one. */
static uint64_t fitting(const uint64_t *lengths, uint64_t n, size_t item)
{
    uint64_t bytes = 0, i = 0;
    while (i < n && i < PIECE_ELEMENTS && (i == 0 || bytes + lengths[i] * item <= PIECE_BYTES))
        bytes += lengths[i++] * item; /* lengths have 32 bits, and so has an element's size */
    return i;
}

/* The pieces of some sequences, whose lengths say everything. */
static int add_sequences(struct views *views, struct parts_index *index, const uint64_t *lengths,
                         uint64_t first, uint64_t n, uint64_t *total)
{
    int error = 0;
    for (uint64_t at = 0; at < n && !error;) {
        uint64_t here = fitting(lengths + at, n - at, index->item);
        error = add(views, index, first + at, *total);
        for (uint64_t end = at + here; at < end; at++)
            if (__builtin_add_overflow(*total, lengths[at], total) ||
                *total > (uint64_t)INT64_MAX / index->item - PIECE_BYTES)
                return -EFBIG;
    }
    return error;
}

/* Of so many elements whose lengths are not known lines are made next: so that they are a piece, as far as those before
 * tell, which had so many bytes. */
static uint64_t elements_together(uint64_t elements, size_t bytes)
{
    uint64_t n = bytes > PIECE_BYTES ? elements * PIECE_BYTES / bytes : 2 * elements;
    return n == 0 ? 1 : n < PIECE_ELEMENTS ? n : PIECE_ELEMENTS;
}

/* Lines of no more than *n elements: of fewer if these are too large together, as making them costs much, and is in
 * vain then. */
static int fewer_lines_of(struct views *views, uint64_t first, uint64_t *n, size_t *bytes)
{
    char *lines;
    int error = lines_of(views, first, *n, &lines, bytes);
    while (error == -EFBIG && *n > 1) {
        *n = *n > FEWER ? *n / FEWER : 1;
        error = lines_of(views, first, *n, &lines, bytes);
    }
    if (!error)
        free(lines);
    return error;
}

/* The same of lines, which have to be made; of elements that are no strings in small numbers, as
 * their contents are unknown. */
static int add_lines(struct views *views, struct parts_index *index, const uint64_t *lengths,
                     uint64_t first, uint64_t n, uint64_t *total)
{
    const struct sfs_type *type = &views->info->type;
    bool is_known = type->class == SFS_VARIABLE && type->is_string;
    int error = 0;
    for (uint64_t at = 0, here; at < n && !error; at += here) {
        size_t bytes;
        here = fitting(lengths + at, n - at, 1);
        here = here < index->together ? here : index->together;
        error = fewer_lines_of(views, first + at, &here, &bytes);
        if (!error) {
            index->together = is_known ? PIECE_ELEMENTS : elements_together(here, bytes);
            error = add(views, index, first + at, *total);
            *total += bytes;
        }
        if (!error)
            error = interrupt_check();
    }
    return error;
}

/* About how long their lines are, of elements that are no strings of variable length. */
static void guess_lengths(const struct views *views, uint64_t n, uint64_t *lengths)
{
    const struct sfs_type *type = &views->info->type;
    uint64_t most = PIECE_BYTES / 256, size = type->has_pointers ? most : type->size;
    for (uint64_t i = 0; i < n; i++)
        lengths[i] = size;
}

/* Elements that are not stored take time, too, and the dims may claim any number of them: of those that the file has no
 * room for, at any rate of compression that is seen, they may take as long as a call of libhdf5. */
static bool may_take_long(const struct views *views)
{
    struct stat st;
    return views->elements <= FEW_ELEMENTS ||
           (sfs_stat(views->file, &st) == 0 && st.st_size > 0 &&
            views->elements / ELEMENTS_OF_BYTE < (uint64_t)st.st_size);
}

/* has_to_end: when, of clock_now; 0: at no time. */
static int check_time(const struct views *views, uint64_t has_to_end)
{
    if (has_to_end == 0 || clock_now() < has_to_end)
        return interrupt_check();
    log_error("%s: %s: it takes too long to find where its %llu elements begin, which are more "
              "than the file can hold: "
              "more than the %g s that hdf5_timeout= allows",
              sfs_path(views->file), views->path, (unsigned long long)views->elements, cpu_limit());
    return -EFBIG;
}

static int find_pieces(struct views *views, struct parts_index *index, uint64_t *total)
{
    const struct sfs_type *type = &views->info->type;
    bool is_ragged = parts_are_ragged(views);
    uint64_t *lengths = calloc(SFS_MOST_PARTS, sizeof(*lengths)), first = 0;
    bool is_limited = cpu_limit() > 0 && !may_take_long(views);
    uint64_t has_to_end = is_limited ? clock_now() + (uint64_t)(cpu_limit() * 1e9) : 0;
    int error = lengths ? 0 : -ENOMEM;
    if (!error && views->elements / PIECE_ELEMENTS > MOST_PIECES)
        error = -EFBIG;
    while (first < views->elements && !error) {
        uint64_t left = views->elements - first, n = left < SFS_MOST_PARTS ? left : SFS_MOST_PARTS;
        if (type->class == SFS_VARIABLE && (is_ragged || type->is_string))
            error = lengths_of(views, first, n, lengths);
        else
            guess_lengths(views, n, lengths);
        if (!error)
            error = is_ragged ? add_sequences(views, index, lengths, first, n, total)
                              : add_lines(views, index, lengths, first, n, total);
        if (!error)
            error = check_time(views, has_to_end);
        first += n;
    }
    free(lengths);
    return error;
}

static int make(struct views *views, struct parts_index **out)
{
    const struct sfs_type *type = &views->info->type;
    uint64_t total = 0;
    struct parts_index *index = calloc(1, sizeof(*index));
    if (!index)
        return -ENOMEM;
    index->users = 1;
    index->changes = sfs_dataset_changes(views->dataset);
    index->item = parts_are_ragged(views) ? type->base->size : 1;
    index->together = PIECE_ELEMENTS;
    int error = find_pieces(views, index, &total);
    if (!error)
        error = add(views, index, views->elements, total);
    if (!error && parts_are_ragged(views))
        error = numpy_header(type->base, 1, &total, &index->head);
    if (error) {
        free_index(index);
        return error;
    }
    index->n--; /* the end is none */
    *out = index;
    return 0;
}

/* ---- Keeping them ---- */

static void forget_kept(struct parts_kept *kept)
{
    kept_memory_give_back(kept->n);
    free(kept->bytes);
    *kept = (struct parts_kept){0};
}

/* With the lock held, here and in what follows. */
static void release(struct views *views, struct parts_index *index)
{
    if (!index || --index->users > 0)
        return;
    for (int i = 0; i < 2; i++)
        if (views->parts_kept[i].index == index)
            forget_kept(&views->parts_kept[i]);
    free_index(index);
}

static void drop(struct views *views)
{
    release(views, views->parts);
    views->parts = NULL;
}

int parts_get(struct views *views, struct parts_index **index)
{
    int error = interrupt_lock(&views->parts_lock); /* it is held while they are found */
    if (error)
        return error;
    if (views->parts && !is_current(views, views->parts->changes))
        drop(views);
    uint64_t changes = sfs_dataset_changes(views->dataset);
    if (!views->parts && views->parts_refused != 0 && views->parts_refused == changes)
        error = -EFBIG;
    if (!views->parts && !error)
        error = make(views, &views->parts);
    if (error == -EFBIG) /* which takes as long the next time */
        views->parts_refused = changes;
    if (!error) {
        views->parts->users++;
        *index = views->parts;
    }
    pthread_mutex_unlock(&views->parts_lock);
    return error;
}

void parts_put(struct views *views, struct parts_index *index)
{
    if (!index)
        return;
    pthread_mutex_lock(&views->parts_lock);
    release(views, index);
    if (index == views->parts && index->users == 1 && !kept_memory_may_stay())
        drop(views);
    pthread_mutex_unlock(&views->parts_lock);
}

void parts_drop(struct views *views)
{
    pthread_mutex_lock(&views->parts_lock);
    drop(views);
    pthread_mutex_unlock(&views->parts_lock);
}

size_t parts_kept_bytes(struct views *views)
{
    pthread_mutex_lock(&views->parts_lock);
    size_t n = views->parts ? views->parts->room * sizeof(*views->parts->piece) : 0;
    n += views->parts_kept[0].n + views->parts_kept[1].n;
    pthread_mutex_unlock(&views->parts_lock);
    return n;
}

struct view_head parts_head(const struct parts_index *index)
{
    return index->head;
}

uint64_t parts_bytes(const struct parts_index *index)
{
    return index->piece[index->n].before * index->item;
}

/* ---- Reading ---- */

struct sought {
    const struct parts_index *index;
    uint64_t place;
    bool by_element;
};

static bool begins_behind(const void *context, size_t i)
{
    const struct sought *sought = context;
    const struct parts_piece *piece = &sought->index->piece[i];
    return (sought->by_element ? piece->element : piece->before) > sought->place;
}

/* The last piece that begins at or before a place, which is a number of elements, or of values. */
static size_t find(const struct parts_index *index, uint64_t place, bool by_element)
{
    const struct sought sought = {index, place, by_element};
    return index->n > 0 ? search_between(1, index->n, begins_behind, &sought) - 1 : 0;
}

/* Whether a piece that was read is still what the index says: as many bytes, or elements of as many
 * values. */
static bool is_as_found(const struct parts_kept *kept, const struct parts_piece *piece, size_t item,
                        bool is_offsets)
{
    uint64_t length, values = 0, wanted = piece[1].before - piece->before;
    if (!is_offsets)
        return kept->n == wanted * item;
    for (size_t at = 0; at + sizeof(length) <= kept->n; at += sizeof(length)) {
        memcpy(&length, kept->bytes + at, sizeof(length));
        values += length;
    }
    return kept->n == (size_t)(piece[1].element - piece->element) * sizeof(length) &&
           values == wanted;
}

static int load(struct views *views, const struct parts_index *index, size_t at, bool is_offsets,
                struct parts_kept *kept)
{
    const struct parts_piece *piece = &index->piece[at];
    uint64_t n = piece[1].element - piece->element;
    enum sfs_parts parts = is_offsets                ? SFS_LENGTHS
                           : parts_are_ragged(views) ? SFS_SEQUENCES
                                                     : SFS_LINES;
    forget_kept(kept);
    int error = sfs_read_parts(views->dataset, parts, piece->element, n, SIZE_OF_MOST_ELEMENT,
                               &kept->bytes, &kept->n);
    if (!error && (error = kept_memory_take(views, kept->n)) < 0)
        free(kept->bytes);
    if (error) {
        *kept = (struct parts_kept){0};
        return error;
    }
    kept->index = index;
    kept->piece = at;
    if (is_as_found(kept, piece, index->item, is_offsets))
        return 0;
    forget_kept(kept);
    if (views->parts == index) /* nobody has said that what a virtual dataset shows has changed */
        drop(views);
    return -EAGAIN;
}

/* A piece, by its bytes or lengths; the lock is held then if there is no error. */
static int hold(struct views *views, const struct parts_index *index, size_t at, bool is_offsets,
                const struct parts_kept **out)
{
    struct parts_kept *kept = &views->parts_kept[is_offsets];
    int error = interrupt_lock(&views->parts_lock);
    if (error)
        return error;
    if (!kept->bytes || kept->index != index || kept->piece != at)
        error = load(views, index, at, is_offsets, kept);
    if (error)
        pthread_mutex_unlock(&views->parts_lock);
    *out = kept;
    return error;
}

int parts_read(struct views *views, const struct parts_index *index, uint64_t offset, size_t n,
               char *out)
{
    while (n > 0) {
        const struct parts_kept *kept;
        size_t at = find(index, offset / index->item, false);
        uint64_t begin = index->piece[at].before * index->item;
        int error = hold(views, index, at, false, &kept);
        if (error)
            return error;
        size_t skip = (size_t)(offset - begin), here = kept->n - skip < n ? kept->n - skip : n;
        memcpy(out, kept->bytes + skip, here);
        pthread_mutex_unlock(&views->parts_lock);
        offset += here;
        out += here;
        n -= here;
    }
    return 0;
}

int parts_offsets(struct views *views, const struct parts_index *index, uint64_t first, uint64_t n,
                  char *out)
{
    while (n > 0) {
        const struct parts_kept *kept;
        const struct parts_piece *end = &index->piece[index->n];
        if (first == end->element) {
            uint64_t last = htole64(end->before);
            memcpy(out, &last, sizeof(last));
            return 0;
        }
        size_t at = find(index, first, true);
        const struct parts_piece *piece = &index->piece[at];
        int error = hold(views, index, at, true, &kept);
        if (error)
            return error;
        uint64_t offset = piece->before;
        for (uint64_t element = piece->element; element < piece[1].element && n > 0; element++) {
            uint64_t length, shown = htole64(offset);
            memcpy(&length, kept->bytes + (element - piece->element) * sizeof(length),
                   sizeof(length));
            offset += length;
            if (element < first)
                continue;
            memcpy(out, &shown, sizeof(shown));
            out += sizeof(shown);
            first++;
            n--;
        }
        pthread_mutex_unlock(&views->parts_lock);
    }
    return 0;
}
