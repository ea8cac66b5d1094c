/* Changed pages that stand in for the file's bytes. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "store/private.h"

struct page *pages_find(struct store *store, uint64_t number)
{
    struct page *page;
    HASH_FIND(hh, store->pages, &number, sizeof(number), page);
    return page;
}

int pages_add(struct store *store, uint64_t number, struct page **out)
{
    struct page *page = malloc(sizeof(*page));
    if (!page)
        return -ENOMEM;
    page->number = number;
    HASH_ADD(hh, store->pages, number, sizeof(page->number), page);
    if (hash_failed()) {
        free(page);
        return -ENOMEM;
    }
    atomic_fetch_add(&store->n_pages, 1);
    *out = page;
    return 0;
}

void pages_clear(struct store *store)
{
    struct page *page, *next;
    HASH_ITER (hh, store->pages, page, next) {
        HASH_DEL(store->pages, page);
        free(page);
    }
    atomic_store(&store->n_pages, 0);
}

/* How many of n bytes at address lie in the page of the first one. */
static size_t in_page(uint64_t address, size_t n)
{
    size_t left = PAGE_BYTES - (size_t)(address % PAGE_BYTES);
    return n < left ? n : left;
}

int pages_read(struct store *store, uint64_t address, void *buffer, size_t n)
{
    char *to = buffer;
    size_t behind = 0; /* bytes before `to` that are still to be read from the file */
    int error = 0;
    pthread_rwlock_rdlock(&store->pages_lock);
    while (n > 0 && !error) {
        size_t part = in_page(address, n);
        const struct page *page = pages_find(store, address / PAGE_BYTES);
        if (page) {
            if (behind > 0)
                error = file_read(store, address - behind, to - behind, behind);
            behind = 0;
            memcpy(to, page->bytes + address % PAGE_BYTES, part);
        } else {
            behind += part;
        }
        to += part;
        address += part;
        n -= part;
    }
    if (!error && behind > 0)
        error = file_read(store, address - behind, to - behind, behind);
    pthread_rwlock_unlock(&store->pages_lock);
    return error;
}

bool pages_touch(struct store *store, uint64_t address, uint64_t n)
{
    bool touched = false;
    uint64_t first = address / PAGE_BYTES, last = (address + n - 1) / PAGE_BYTES;
    if (atomic_load(&store->n_pages) == 0 || n == 0)
        return false;
    pthread_rwlock_rdlock(&store->pages_lock);
    if (last - first < HASH_COUNT(store->pages)) {
        for (uint64_t number = first; number <= last && !touched; number++)
            touched = pages_find(store, number);
    } else {
        for (const struct page *page = store->pages; page && !touched; page = page->hh.next)
            touched = first <= page->number && page->number <= last;
    }
    pthread_rwlock_unlock(&store->pages_lock);
    return touched;
}

/* How many of the n bytes from address on may be written to the file: none of them is committed.
 * While a journal waits, it may still be compared with what is in the file before its end. */
static size_t uncommitted(const struct store *store, uint64_t address, size_t n)
{
    uint64_t start, length;
    if (address >= store->committed_end)
        return n;
    if (store->unapplied || !extents_after(&store->fresh, address, &start, &length) ||
        start > address)
        return 0;
    uint64_t end = start + length;
    return end == store->committed_end || end - address > n ? n : (size_t)(end - address);
}

/* A page with the file's bytes. The caller holds `change`, so that they stay what they are. */
static int copy_page(struct store *store, uint64_t number, struct page **page)
{
    unsigned char bytes[PAGE_BYTES];
    int error = file_read(store, number * PAGE_BYTES, bytes, PAGE_BYTES);
    if (error)
        return error;
    error = pages_add(store, number, page);
    if (!error)
        memcpy((*page)->bytes, bytes, PAGE_BYTES);
    return error;
}

/* Changes bytes of one page that has committed bytes or stands in for the file already. */
static int write_in_page(struct store *store, uint64_t address, const char *bytes, size_t n)
{
    int error = 0;
    pthread_rwlock_wrlock(&store->pages_lock);
    struct page *page = pages_find(store, address / PAGE_BYTES);
    if (!page)
        error = copy_page(store, address / PAGE_BYTES, &page);
    if (!error)
        memcpy(page->bytes + address % PAGE_BYTES, bytes, n);
    pthread_rwlock_unlock(&store->pages_lock);
    return error;
}

static int keep(struct store *store, uint64_t address, const char *bytes, size_t n)
{
    int error = 0;
    for (size_t part; n > 0 && !error; n -= part) {
        part = in_page(address, n);
        error = write_in_page(store, address, bytes, part);
        address += part;
        bytes += part;
    }
    return error;
}

/* The last n bytes before address and bytes, none of which is committed. */
static int write_behind(struct store *store, uint64_t address, const char *bytes, size_t n,
                        bool or_keep)
{
    if (n == 0)
        return 0;
    int error = file_write(store, address - n, bytes - n, n);
    return error && or_keep ? keep(store, address - n, bytes - n, n) : error;
}

/* Only who holds `change` alters the table: it is looked up here without the other lock. */
int pages_write(struct store *store, uint64_t address, const void *bytes, size_t n, bool or_keep)
{
    const char *from = bytes;
    size_t behind = 0; /* bytes before `from` that are still to be written to the file */
    int error = 0;
    while (n > 0 && !error) {
        size_t part = in_page(address, n);
        if (!pages_find(store, address / PAGE_BYTES) && uncommitted(store, address, part) == part) {
            behind += part;
        } else {
            error = write_behind(store, address, from, behind, or_keep);
            behind = 0;
            if (!error)
                error = write_in_page(store, address, from, part);
        }
        from += part;
        address += part;
        n -= part;
    }
    return error ? error : write_behind(store, address, from, behind, or_keep);
}
