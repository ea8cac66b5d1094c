/* Free space, from one opening of a file for writing to the next. HDF5 itself forgets it when a
 * file is closed, and libhdf5 before 1.10 cannot open files that keep it. So the program that
 * closes the file notes it as an extended attribute, where the file system has these, and the next
 * one that opens it for writing removes the note before it writes anything.
 *
 * A note is valid only for the state in which it was made: the same file, size, time of change and
 * first page. Programs that do not know it change the time, and would do no harm otherwise: to
 * them this space is in use. A copy of the file is another file. Without a note only the space is
 * lost. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/xattr.h>

#include "store/private.h"

#define NOTE       "user.sparsefs.free"
#define MAGIC      0x31656572660a6673u /* also tells the byte order */
#define MOST_BYTES ((size_t)64 << 10)  /* of an attribute on Linux */

struct range {
    uint64_t start, length;
};

/* The note, of a file whose members are as these say. */
struct spare {
    uint64_t magic;
    uint64_t size, seconds, nanoseconds, inode, born, first_page;
    struct range range[]; /* ascending, disjoint, within the size; the longest if there are many */
};

#define MOST_RANGES ((MOST_BYTES - sizeof(struct spare)) / sizeof(struct range))

static bool describe(struct store *store, struct spare *spare)
{
    struct stat st;
    struct identity identity;
    unsigned char page[PAGE_BYTES] = {0};
    if (fstat(store->fd, &st) < 0 || !identity_of(store->fd, &identity) ||
        (uint64_t)st.st_size != store->committed_end)
        return false;
    size_t n = st.st_size < PAGE_BYTES ? (size_t)st.st_size : PAGE_BYTES;
    if (file_read(store, 0, page, n, NULL) < 0)
        return false;
    *spare = (struct spare){.magic = MAGIC,
                            .size = (uint64_t)st.st_size,
                            .seconds = (uint64_t)st.st_mtim.tv_sec,
                            .nanoseconds = (uint64_t)st.st_mtim.tv_nsec,
                            .inode = identity.inode,
                            .born = identity.born,
                            .first_page = page_sum(page)};
    return true;
}

static int compare_starts(const void *a, const void *b)
{
    uint64_t first = ((const struct range *)a)->start, second = ((const struct range *)b)->start;
    return first < second ? -1 : first > second;
}

/* The longest first. */
static int compare_lengths(const void *a, const void *b)
{
    uint64_t first = ((const struct range *)a)->length, second = ((const struct range *)b)->length;
    return first > second ? -1 : first < second;
}

/* All free space of the committed file; the caller frees it. NULL: there is none, or no memory. */
static struct range *collect(const struct store *store, size_t *n)
{
    struct range *ranges = NULL;
    uint64_t start, length, end = store->committed_end;
    size_t room = 0;
    *n = 0;
    for (uint64_t at = 0; extents_after(&store->free, at, &start, &length) && start < end;
         at = start + length) {
        if (*n == room) {
            room = room ? 2 * room : 64;
            struct range *more = reallocarray(ranges, room, sizeof(*ranges));
            if (!more)
                break;
            ranges = more;
        }
        ranges[(*n)++] = (struct range){start, length < end - start ? length : end - start};
    }
    return ranges;
}

/* As many extents as the file system takes. */
static void write_note(const struct store *store, struct spare *spare, struct range *ranges,
                       size_t n)
{
    qsort(ranges, n, sizeof(*ranges), compare_lengths);
    for (n = n < MOST_RANGES ? n : MOST_RANGES; n > 0; n /= 2) {
        memcpy(spare->range, ranges, n * sizeof(*ranges));
        qsort(spare->range, n, sizeof(*ranges), compare_starts);
        if (fsetxattr(store->fd, NOTE, spare, sizeof(*spare) + n * sizeof(*ranges), 0) == 0 ||
            (errno != ENOSPC && errno != E2BIG && errno != ERANGE && errno != EDQUOT))
            return;
    }
}

void free_space_note(struct store *store)
{
    size_t n;
    if (store->temporary || store->unapplied || store->stray || store->standing.stands ||
        store->is_lost || !store->free.root)
        return;
    struct range *ranges = collect(store, &n);
    struct spare *spare = n > 0 ? malloc(MOST_BYTES) : NULL;
    if (spare && describe(store, spare))
        write_note(store, spare, ranges, n);
    free(spare);
    free(ranges);
}

static bool is_sound(const struct spare *spare, size_t n)
{
    uint64_t at = 1, end;
    for (size_t i = 0; i < n; i++) {
        const struct range *range = &spare->range[i];
        if (range->start < at || range->length == 0 ||
            __builtin_add_overflow(range->start, range->length, &end) || end > spare->size)
            return false;
        at = end;
    }
    return true;
}

/* The note and the number of its ranges; the caller frees it. NULL: there is none, or no memory. */
static struct spare *read_note(const struct store *store, size_t *n)
{
    struct spare *spare = malloc(MOST_BYTES);
    ssize_t bytes = spare ? fgetxattr(store->fd, NOTE, spare, MOST_BYTES) : -1;
    *n = bytes > (ssize_t)sizeof(*spare) ? ((size_t)bytes - sizeof(*spare)) / sizeof(*spare->range)
                                         : 0;
    if (*n > 0)
        return spare;
    free(spare);
    return NULL;
}

/* Adds what the note of `noted` says to the free space of a store of the same bytes, if it is of the
 * file's present state. -ENOMEM. */
static int use_note(struct store *noted, const struct spare *spare, size_t n, struct extents *space)
{
    struct spare now;
    bool is_valid =
        describe(noted, &now) && memcmp(spare, &now, sizeof(now)) == 0 && is_sound(spare, n);
    int error = is_valid ? extents_reserve(space, n) : 0;
    for (size_t i = 0; i < n && is_valid && !error; i++)
        extents_add(space, spare->range[i].start, spare->range[i].length);
    return error;
}

void free_space_take(struct store *store)
{
    size_t n;
    struct spare *spare = read_note(store, &n);
    bool is_gone = fremovexattr(store->fd, NOTE) == 0;
    if (spare && is_gone && !store->knows_free)
        (void)use_note(store, spare, n, &store->free);
    store->knows_free = true;
    free(spare);
}

int free_space_noted(struct store *store, struct extents *space)
{
    size_t n;
    struct spare *spare = read_note(store, &n);
    int error = spare ? use_note(store, spare, n, space) : 0;
    free(spare);
    return error;
}

void free_space_load(struct store *file, struct store *image)
{
    size_t n;
    struct spare *spare = read_note(file, &n);
    if (spare && spare->size == image->committed_end)
        (void)use_note(file, spare, n, &image->free);
    free(spare);
}

void free_space_hand_on(const struct store *image, struct store *file)
{
    size_t n;
    struct range *ranges = collect(image, &n);
    if (image->committed_end == file->committed_end && extents_reserve(&file->free, n) == 0)
        for (size_t i = 0; i < n; i++)
            extents_add(&file->free, ranges[i].start, ranges[i].length);
    free(ranges);
}
