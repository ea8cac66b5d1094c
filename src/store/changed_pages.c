/* Changed pages that stand in for the file's bytes: in memory, and if they are many also in a file
 * without a name beside the store's. */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/io.h"
#include "common/machine_memory.h"
#include "store/private.h"

#define MOST_KEPT_BYTES ((uint64_t)1 << 30)

struct page *pages_find(struct store *store, uint64_t number)
{
    struct page *page;
    HASH_FIND(hh, store->pages, &number, sizeof(number), page);
    return page;
}

/* ---- Pages on the disk ---- */

static int open_spill(struct store *store)
{
    if (store->spill < 0 && store->folder >= 0)
        store->spill = openat(store->folder, ".", O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
    return store->spill < 0 ? -EOPNOTSUPP : 0;
}

static int spill_write(struct store *store, uint64_t at, const unsigned char *bytes, size_t n)
{
    size_t done;
    int error = io_write_at(store->spill, at, bytes, n, &done);
    if (error)
        store_say(store, NULL, "cannot put changes aside: %s", strerror(-error));
    return error;
}

static int spill_read(struct store *store, uint64_t at, unsigned char *bytes, size_t n)
{
    size_t done;
    int error = io_read_at(store->spill, at, bytes, n, &done);
    if (!error && done == n)
        return 0;
    store_say(store, NULL, "cannot read changes that were put aside: %s",
              error ? strerror(-error) : "they are not there");
    return -EIO;
}

/* ---- Pages ---- */

/* A spilled page is checked against its sum: it was not synced, and the kernel may have lost it. */
static int read_spilled(struct store *store, const struct page *page, unsigned char *bytes)
{
    int error = spill_read(store, page->spilled_at, bytes, PAGE_BYTES);
    if (error || page_sum(bytes) == page->sum)
        return error;
    store_say(store, NULL, "changes that were put aside are lost: the disk did not keep them");
    return -EIO;
}

static int read_page(struct store *store, const struct page *page, size_t from,
                     unsigned char *bytes, size_t n)
{
    unsigned char all[PAGE_BYTES];
    int error = page->spilled_at >= 0 ? read_spilled(store, page, all) : 0;
    if (!error)
        memcpy(bytes, (page->spilled_at >= 0 ? all : page->bytes) + from, n);
    return error;
}

/* In place of a page that is on the disk, where nothing is put any more: others follow by the number of them. */
static int put_in_memory(struct store *store, struct page *page, const unsigned char *bytes)
{
    struct page *instead = malloc(sizeof(*instead) + PAGE_BYTES);
    if (!instead)
        return -ENOMEM;
    instead->number = page->number;
    instead->spilled_at = -1;
    memcpy(instead->bytes, bytes, PAGE_BYTES);
    HASH_ADD(hh, store->pages, number, sizeof(instead->number), instead);
    if (hash_failed()) {
        free(instead);
        return -ENOMEM;
    }
    HASH_DEL(store->pages, page);
    free(page);
    return 0;
}

/* A write that fails may have overwritten some of the page: it goes on in memory, as it was before if it need not be
 * written. */
static int write_page(struct store *store, struct page *page, size_t to, const unsigned char *bytes,
                      size_t n, bool must)
{
    unsigned char before[PAGE_BYTES], all[PAGE_BYTES];
    if (page->spilled_at < 0) {
        memcpy(page->bytes + to, bytes, n);
        return 0;
    }
    int error = read_spilled(store, page, before);
    if (error && n < PAGE_BYTES)
        return error;
    bool is_known = !error;
    memcpy(all, before, PAGE_BYTES);
    memcpy(all + to, bytes, n);
    error = spill_write(store, page->spilled_at, all, PAGE_BYTES);
    if (error && must)
        return put_in_memory(store, page, all);
    if (error && is_known)
        (void)put_in_memory(store, page, before);
    if (error)
        return error;
    page->sum = page_sum(all);
    return 0;
}

int pages_get(struct store *store, const struct page *page, unsigned char *bytes)
{
    return read_page(store, page, 0, bytes, PAGE_BYTES);
}

/* A new page: spilled to the disk, if many are in memory and that is possible. */
static int new_page(struct store *store, const unsigned char *bytes, bool must, struct page **out)
{
    bool in_memory = atomic_load(&store->n_pages) - store->n_spilled < PAGES_IN_MEMORY ||
                     !store->writable || open_spill(store) < 0;
    off_t at = (off_t)(store->n_spilled * PAGE_BYTES);
    int error = in_memory ? 0 : spill_write(store, at, bytes, PAGE_BYTES);
    if (error && !must)
        return error;
    in_memory |= error != 0;
    struct page *page = malloc(sizeof(*page) + (in_memory ? PAGE_BYTES : 0));
    if (!page)
        return -ENOMEM;
    page->spilled_at = in_memory ? -1 : at;
    if (in_memory)
        memcpy(page->bytes, bytes, PAGE_BYTES);
    else
        page->sum = page_sum(bytes);
    *out = page;
    return 0;
}

static int add(struct store *store, struct page *page, uint64_t number)
{
    page->number = number;
    HASH_ADD(hh, store->pages, number, sizeof(page->number), page);
    if (hash_failed()) {
        free(page);
        return -ENOMEM;
    }
    store->n_spilled += page->spilled_at >= 0;
    atomic_fetch_add(&store->n_pages, 1);
    return 0;
}

int pages_put(struct store *store, uint64_t number, const unsigned char *bytes, bool must)
{
    struct page *page = pages_find(store, number);
    if (page)
        return write_page(store, page, 0, bytes, PAGE_BYTES, must);
    int error = new_page(store, bytes, must, &page);
    return error ? error : add(store, page, number);
}

/* ---- Pages of a journal that is only read ---- */

static int check_memory(struct store *store)
{
    uint64_t memory = machine_memory() / 4, spilled = store->n_spilled;
    uint64_t most = memory > 0 && memory < MOST_KEPT_BYTES ? memory : MOST_KEPT_BYTES;
    uint64_t in_memory = atomic_load(&store->n_pages) - spilled;
    if (in_memory * PAGE_BYTES + spilled * sizeof(struct page) < most)
        return 0;
    store_say(store, NULL,
              "its journal is too large to be read without carrying it out: open the file for "
              "writing once");
    return -ENOMEM;
}

int pages_keep(struct store *store, uint64_t number, const unsigned char *bytes, int journal,
               off_t at)
{
    struct page *page = pages_find(store, number);
    bool in_memory = store->is_following || atomic_load(&store->n_pages) < PAGES_IN_MEMORY;
    int error = check_memory(store);
    if (!error && in_memory)
        return pages_put(store, number, bytes, true);
    if (!error && store->spill < 0 && (store->spill = fcntl(journal, F_DUPFD_CLOEXEC, 0)) < 0)
        error = -errno;
    bool is_new = !page;
    if (!error && is_new && !(page = malloc(sizeof(*page))))
        error = -ENOMEM;
    if (error)
        return error;
    bool was_spilled = !is_new && page->spilled_at >= 0;
    page->spilled_at = at;
    page->sum = page_sum(bytes);
    if (is_new)
        return add(store, page, number);
    store->n_spilled += !was_spilled;
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
    store->n_spilled = 0;
    if (store->spill >= 0) { /* frees its space */
        close(store->spill);
        store->spill = -1;
    }
}

int pages_apply(struct store *store, uint64_t end)
{
    struct page *page, *next;
    unsigned char bytes[PAGE_BYTES];
    int error = 0;
    HASH_ITER (hh, store->pages, page, next) {
        uint64_t at = page->number * PAGE_BYTES;
        size_t n = at >= end ? 0 : end - at < PAGE_BYTES ? (size_t)(end - at) : PAGE_BYTES;
        if (!error)
            error = pages_get(store, page, bytes);
        if (!error && n > 0)
            error = file_write(store, at, bytes, n, false);
    }
    return error;
}

/* How many of n bytes at address lie in the page of the first one. */
static size_t in_page(uint64_t address, size_t n)
{
    size_t left = PAGE_BYTES - (size_t)(address % PAGE_BYTES);
    return n < left ? n : left;
}

int pages_read(struct store *store, uint64_t address, void *buffer, size_t n, struct why *why)
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
                error = file_read(store, address - behind, to - behind, behind, why);
            behind = 0;
            if (!error)
                error = read_page(store, page, address % PAGE_BYTES, (unsigned char *)to, part);
        } else {
            behind += part;
        }
        to += part;
        address += part;
        n -= part;
    }
    if (!error && behind > 0)
        error = file_read(store, address - behind, to - behind, behind, why);
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

/* How many of the n bytes from address on, in one page, may be written to the file: none of them is
 * committed, or lies in the buffer of an image, which stays as it is until the commit. Before its end a
 * journal may still be compared with what is in the file: all of it while it waits, its own pages
 * while it stands. */
static size_t uncommitted(const struct store *store, uint64_t address, size_t n)
{
    uint64_t start, length;
    if (store->is_shared)
        return 0;
    if (address >= store->committed_end)
        return n;
    if (store->image || store->unapplied || journal_has(store, address / PAGE_BYTES) ||
        !extents_after(&store->fresh, address, &start, &length) || start > address)
        return 0;
    uint64_t end = start + length;
    return end == store->committed_end || end - address > n ? n : (size_t)(end - address);
}

/* Changes bytes of a page that has committed bytes or is kept aside already. The caller holds
 * `change`, so that the file does not change. */
static int write_in_page(struct store *store, uint64_t address, const char *from, size_t n,
                         bool must)
{
    unsigned char bytes[PAGE_BYTES];
    uint64_t number = address / PAGE_BYTES;
    int error = 0;
    pthread_rwlock_wrlock(&store->pages_lock);
    struct page *page = pages_find(store, number);
    if (page) {
        error = write_page(store, page, address % PAGE_BYTES, (const unsigned char *)from, n, must);
    } else {
        error = file_read(store, number * PAGE_BYTES, bytes, PAGE_BYTES, NULL);
        memcpy(bytes + address % PAGE_BYTES, from, n);
        if (!error)
            error = pages_put(store, number, bytes, must);
    }
    pthread_rwlock_unlock(&store->pages_lock);
    return error;
}

int pages_prepare(struct store *store, uint64_t address, size_t n, bool must)
{
    unsigned char bytes[PAGE_BYTES];
    int error = 0;
    pthread_rwlock_wrlock(&store->pages_lock);
    for (size_t part; n > 0 && !error; address += part, n -= part) {
        uint64_t number = address / PAGE_BYTES;
        part = in_page(address, n);
        const struct page *page = pages_find(store, number);
        if (page)
            error = must ? pages_get(store, page, bytes) : 0;
        if (page || uncommitted(store, address, part) == part)
            continue;
        error = file_read(store, number * PAGE_BYTES, bytes, PAGE_BYTES, NULL);
        if (!error)
            error = pages_put(store, number, bytes, must);
    }
    pthread_rwlock_unlock(&store->pages_lock);
    return error;
}

/* The table changes under `change` only, so it is looked up here without pages_lock. */
int pages_write(struct store *store, uint64_t address, const void *bytes, size_t n, bool or_keep)
{
    const char *from = bytes;
    size_t behind = 0; /* bytes before `from` that are still to be written to the file */
    bool is_one = in_page(address, n) == n;
    int error = or_keep && !is_one ? pages_prepare(store, address, n, true) : 0;
    while (n > 0 && !error) {
        size_t part = in_page(address, n);
        if (!pages_find(store, address / PAGE_BYTES) && uncommitted(store, address, part) == part) {
            behind += part;
        } else {
            if (behind > 0)
                error = file_write(store, address - behind, from - behind, behind, or_keep);
            behind = 0;
            if (!error)
                error = write_in_page(store, address, from, part, or_keep);
        }
        from += part;
        address += part;
        n -= part;
    }
    if (!error && behind > 0)
        error = file_write(store, address - behind, from - behind, behind, or_keep);
    return error;
}
