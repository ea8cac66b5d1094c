/* Changed bytes in pages of which only some bytes may be present: other bytes of a page may be
 * changed by other owners meanwhile. */
#include "hdf5/worker/transaction.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "common/growing_array.h"
#include "common/hash.h"
#include "common/interrupt.h"
#include "common/log.h"
#include "format/object_header.h"
#include "store/store.h"

#define PAGE_BYTES  4096
#define MOST_PAGES  ((size_t)64 << 10) /* of one call: 256 MiB */
#define KEPT_RANGES ((size_t)64 << 10) /* whose memory is kept for the next call */
#define MOST_RANGES ((size_t)4 << 20)  /* that are allocated or freed in one call */
#define MOST_SMALL  (MOST_PAGES / 4)   /* pages; then what is not large goes there at once, too */
#define LARGE_BYTES ((size_t)64 << 10) /* to new space: not kept in memory */

/* Bytes: what is less is not compared with the room on the disk. */
#define MUCH_GROWN ((uint64_t)64 << 20)

#define MOST_LOOKED_AT 4096 /* ranges, for each write */

struct page {
    uint64_t number; /* its address / PAGE_BYTES */
    UT_hash_handle hh;
    unsigned char bytes[PAGE_BYTES], is_there[PAGE_BYTES];
};

struct range {
    uint64_t address, n;
};

struct ranges {
    size_t n, room;
    struct range *range;
};

struct transaction {
    struct store *store;
    struct page *pages;                 /* of this call */
    struct page *taken;                 /* of those before, which the store does not have yet */
    struct ranges allocated, freed;     /* in this call */
    const struct object_header *header; /* transaction_let_write */
    uint64_t grown, most_grown; /* bytes, in this call; UINT64_MAX: that was not asked for yet */
};

int transaction_create(struct store *store, struct transaction **out)
{
    struct transaction *transaction = calloc(1, sizeof(*transaction));
    if (!transaction)
        return -ENOMEM;
    transaction->store = store;
    transaction->most_grown = UINT64_MAX;
    *out = transaction;
    return 0;
}

static void free_pages(struct page **pages)
{
    struct page *page, *next;
    HASH_ITER (hh, *pages, page, next) {
        HASH_DEL(*pages, page);
        free(page);
    }
}

void transaction_destroy(struct transaction *transaction)
{
    if (!transaction)
        return;
    transaction_drop(transaction);
    free_pages(&transaction->taken);
    free(transaction->allocated.range);
    free(transaction->freed.range);
    free(transaction);
}

bool transaction_is_empty(const struct transaction *transaction)
{
    return !transaction->pages && transaction->allocated.n == 0 && transaction->freed.n == 0;
}

/* ---- Bytes ---- */

static struct page *find_page(struct page *pages, uint64_t number)
{
    struct page *page;
    HASH_FIND(hh, pages, &number, sizeof(number), page);
    return page;
}

/* How many of n bytes at address lie in the page of the first one. */
static size_t in_page(uint64_t address, size_t n)
{
    size_t left = PAGE_BYTES - (size_t)(address % PAGE_BYTES);
    return n < left ? n : left;
}

static void lay_over(struct page *pages, uint64_t address, unsigned char *to, size_t n)
{
    for (size_t part; pages && n > 0; n -= part, to += part, address += part) {
        size_t at = (size_t)(address % PAGE_BYTES);
        const struct page *page = find_page(pages, address / PAGE_BYTES);
        part = in_page(address, n);
        for (size_t i = 0; page && i < part; i++)
            if (page->is_there[at + i])
                to[i] = page->bytes[at + i];
    }
}

int transaction_read(struct transaction *transaction, uint64_t address, void *buffer, size_t n)
{
    int error = store_read(transaction->store, address, buffer, n);
    if (error)
        return error;
    lay_over(transaction->taken, address, buffer, n);
    lay_over(transaction->pages, address, buffer, n);
    return 0;
}

static int write_in_page(struct transaction *transaction, uint64_t address, const void *bytes,
                         size_t n)
{
    uint64_t number = address / PAGE_BYTES;
    struct page *page = find_page(transaction->pages, number);
    if (!page) {
        if (HASH_COUNT(transaction->pages) >= MOST_PAGES)
            return -EFBIG;
        page = calloc(1, sizeof(*page));
        if (!page)
            return -ENOMEM;
        page->number = number;
        HASH_ADD(hh, transaction->pages, number, sizeof(page->number), page);
        if (hash_failed()) {
            free(page);
            return -ENOMEM;
        }
    }
    memcpy(page->bytes + address % PAGE_BYTES, bytes, n);
    memset(page->is_there + address % PAGE_BYTES, 1, n);
    return 0;
}

/* Whether space was allocated in this call: mostly the last that was. What was allocated long
 * before may be kept in memory as well as anything. */
static bool is_new(const struct transaction *transaction, uint64_t address, size_t n)
{
    const struct ranges *allocated = &transaction->allocated;
    size_t least = allocated->n > MOST_LOOKED_AT ? allocated->n - MOST_LOOKED_AT : 0;
    for (size_t i = allocated->n; i > least; i--) {
        const struct range *range = &allocated->range[i - 1];
        if (address >= range->address && address - range->address < range->n)
            return n <= range->n - (address - range->address);
    }
    return false;
}

/* What was written to it before, in pieces. */
static void forget(struct transaction *transaction, uint64_t address, size_t n)
{
    for (size_t part; n > 0; n -= part, address += part) {
        struct page *page = find_page(transaction->pages, address / PAGE_BYTES);
        part = in_page(address, n);
        if (page)
            memset(page->is_there + address % PAGE_BYTES, 0, part);
    }
}

/* Whether it may be changed; the log says if not. */
static int check(const struct transaction *transaction, uint64_t address, uint64_t n)
{
    int error = store_check_lent(transaction->store, address, n);
    if (error)
        log_error("%s: the process of libhdf5 wanted to change %" PRIu64
                  " bytes at address %" PRIu64 ", which are in use by others, or by nobody",
                  store_path(transaction->store), n, address);
    return error;
}

void transaction_let_write(struct transaction *transaction, const struct object_header *header)
{
    transaction->header = header;
}

/* Whether a byte lies in the header that may be written; *end, behind it, becomes where that changes
 * first, if it does before. */
static bool is_let(const struct transaction *transaction, uint64_t at, uint64_t *end)
{
    const struct object_header *header = transaction->header;
    for (size_t i = 0; header && i < header->n_blocks; i++) {
        uint64_t first = header->block[i].address, n = header->block[i].n;
        if (at >= first && at - first < n) {
            *end = *end - first < n ? *end : first + n;
            return true;
        }
        if (first > at && first < *end)
            *end = first;
    }
    return false;
}

static int check_write(const struct transaction *transaction, uint64_t address, uint64_t n)
{
    uint64_t end;
    int error = 0;
    if (!transaction->header || __builtin_add_overflow(address, n, &end))
        return check(transaction, address, n);
    for (uint64_t at = address, next = end; at < end && !error; at = next, next = end)
        error = is_let(transaction, at, &next) ? 0 : check(transaction, at, next - at);
    return error;
}

/* Into space of this call much may be written, and goes there at once: nothing leads there yet. */
int transaction_write(struct transaction *transaction, uint64_t address, const void *bytes,
                      size_t n)
{
    const char *from = bytes;
    if (n == 0)
        return 0;
    int error = check_write(transaction, address, n);
    bool is_much = n >= LARGE_BYTES || HASH_COUNT(transaction->pages) > MOST_SMALL;
    if (!error && is_much && is_new(transaction, address, n)) {
        forget(transaction, address, n);
        return store_write(transaction->store, address, bytes, n);
    }
    for (size_t part; n > 0 && !error; n -= part, from += part, address += part) {
        part = in_page(address, n);
        error = write_in_page(transaction, address, from, part);
    }
    return error;
}

/* ---- Space ---- */

static int add_range(struct ranges *ranges, uint64_t address, uint64_t n)
{
    if (ranges->n == MOST_RANGES)
        return -EFBIG;
    struct range *grown = room_for_one(ranges->range, ranges->n, &ranges->room, sizeof(*grown));
    if (!grown)
        return -ENOMEM;
    ranges->range = grown;
    ranges->range[ranges->n++] = (struct range){address, n};
    return 0;
}

static void empty(struct ranges *ranges)
{
    ranges->n = 0;
    if (ranges->room > KEPT_RANGES) {
        free(ranges->range);
        *ranges = (struct ranges){0};
    }
}

/* What cannot be given back is lost until the file is copied. Who frees the same again and again
 * does not fill the log by it. */
static void give_back(struct transaction *transaction, struct ranges *ranges)
{
    const struct range *lost = NULL;
    size_t n_lost = 0;
    for (size_t i = 0; i < ranges->n; i++) {
        const struct range *range = &ranges->range[i];
        if (store_free_lent(transaction->store, range->address, range->n) == 0)
            continue;
        lost = lost ? lost : range;
        n_lost++;
    }
    if (lost)
        log_warning("%s: %zu ranges could not be freed, and are lost; the first one has %" PRIu64
                    " bytes at address %" PRIu64,
                    store_path(transaction->store), n_lost, lost->n, lost->address);
    empty(ranges);
}

/* By the room that there was: what has been written meanwhile has taken of it. */
static bool may_grow(struct transaction *transaction, uint64_t n)
{
    uint64_t grown = transaction->grown, most;
    if (n <= MUCH_GROWN && grown <= MUCH_GROWN)
        return true;
    if (transaction->most_grown == UINT64_MAX &&
        !__builtin_add_overflow(grown, store_room(transaction->store), &most))
        transaction->most_grown = most;
    return grown <= transaction->most_grown && n <= transaction->most_grown - grown;
}

static void note_end(struct transaction *transaction)
{
    transaction->grown = 0;
    transaction->most_grown = UINT64_MAX;
}

int transaction_allocate(struct transaction *transaction, uint64_t n, uint64_t *address)
{
    uint64_t end = store_size(transaction->store);
    if (!may_grow(transaction, n))
        return -ENOSPC;
    int error = add_range(&transaction->allocated, 0, 0);
    if (error)
        return error;
    struct range *range = &transaction->allocated.range[transaction->allocated.n - 1];
    error = store_allocate_lent(transaction->store, n, address);
    if (error)
        transaction->allocated.n--;
    else
        *range = (struct range){*address, n};
    if (!error && *address >= end)
        transaction->grown += n;
    return error;
}

int transaction_free(struct transaction *transaction, uint64_t address, uint64_t n)
{
    int error = check(transaction, address, n);
    return error ? error : add_range(&transaction->freed, address, n);
}

/* ---- The end ---- */

void transaction_drop(struct transaction *transaction)
{
    free_pages(&transaction->pages);
    give_back(transaction, &transaction->allocated);
    empty(&transaction->freed);
    note_end(transaction);
}

typedef int (*piece_function)(struct transaction *transaction, uint64_t address,
                              const unsigned char *bytes, size_t n);

/* Calls it for all that is there of a page, until it fails. */
static int each_piece(struct transaction *transaction, const struct page *page,
                      piece_function function)
{
    int error = 0;
    for (size_t at = 0, end; at < PAGE_BYTES && !error; at = end) {
        for (end = at; end < PAGE_BYTES && page->is_there[end] == page->is_there[at]; end++)
            ;
        if (page->is_there[at])
            error =
                function(transaction, page->number * PAGE_BYTES + at, page->bytes + at, end - at);
    }
    return error;
}

static int put_piece(struct transaction *transaction, uint64_t address, const unsigned char *bytes,
                     size_t n)
{
    return store_write_or_keep(transaction->store, address, bytes, n);
}

static int check_piece(struct transaction *transaction, uint64_t address,
                       const unsigned char *bytes, size_t n)
{
    (void)bytes;
    return check_write(transaction, address, n);
}

int transaction_check(struct transaction *transaction)
{
    struct page *page, *next;
    INTERRUPTED_LATE(); /* libhdf5 has done its work, which is not to be in vain at once */
    int error = store_let_claim(transaction->store);
    HASH_ITER (hh, transaction->pages, page, next) {
        if (!error)
            error = each_piece(transaction, page, check_piece);
    }
    for (size_t i = 0; i < transaction->freed.n && !error; i++)
        error =
            check(transaction, transaction->freed.range[i].address, transaction->freed.range[i].n);
    return error;
}

int transaction_put_taken(struct transaction *transaction)
{
    struct page *page, *next;
    HASH_ITER (hh, transaction->taken, page, next) {
        int error = each_piece(transaction, page, put_piece);
        if (error)
            return error;
        HASH_DEL(transaction->taken, page);
        free(page);
    }
    return 0;
}

/* No call begins before all of those before are in the store. What was freed and may still be
 * written to cannot be free. */
void transaction_take(struct transaction *transaction)
{
    transaction->taken = transaction->pages;
    transaction->pages = NULL;
    empty(&transaction->allocated);
    if (transaction_put_taken(transaction) == 0)
        give_back(transaction, &transaction->freed);
    empty(&transaction->freed);
    note_end(transaction);
}
