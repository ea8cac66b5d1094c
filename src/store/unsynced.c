/* Bytes written to the file since its last successful sync, page by page. The kernel has them, too,
 * but may lose them: after a failed writeback it takes a page for written, and reads give what was
 * written or, once the page has been dropped, what the disk has. So
 *
 *   a page in the table       is as it was written, whatever the kernel says of it
 *   any other                 is on the disk as the kernel has it
 *
 * Reads combine both (file_read). After a failed sync the whole table is written again before the
 * next one, space that is free by now included: so that bytes read through the kernel, which a
 * journal's sums cover, are those on the disk. A successful sync empties it; one is made early when
 * the table has become large. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/log.h"
#include "store/private.h"

struct unsynced {
    uint64_t number;
    UT_hash_handle hh;
    uint64_t writer; /* the write that has put it here, by its order */
    struct unsynced *next_spare;
    unsigned char bytes[PAGE_BYTES];
};

static struct unsynced *find(const struct store *store, uint64_t number)
{
    struct unsynced *page;
    HASH_FIND(hh, store->unsynced, &number, sizeof(number), page);
    return page;
}

/* ---- Pages ---- */

static struct unsynced *take_spare(struct store *store)
{
    struct unsynced *page = store->spare_pages;
    if (!page)
        return malloc(sizeof(*page));
    store->spare_pages = page->next_spare;
    return page;
}

/* Pages are recycled: new memory costs more than the copy. */
static void give_spare(struct store *store, struct unsynced *page)
{
    page->next_spare = store->spare_pages;
    store->spare_pages = page;
}

/* With the lock held for writing. */
static void remove_page(struct store *store, struct unsynced *page)
{
    HASH_DEL(store->unsynced, page);
    atomic_fetch_sub(&store->n_unsynced, 1);
    give_spare(store, page);
}

/* Adds a page: the part that is about to be written, and the rest from the file. */
static int add_page(struct store *store, uint64_t number, size_t to, const char *from, size_t n)
{
    struct unsynced *page = take_spare(store);
    if (!page)
        return -ENOMEM;
    page->number = number;
    page->writer = store->n_writes;
    int error =
        n < PAGE_BYTES ? file_get(store, number * PAGE_BYTES, page->bytes, PAGE_BYTES, NULL) : 0;
    memcpy(page->bytes + to, from, n);
    if (!error) {
        pthread_rwlock_wrlock(&store->unsynced_lock);
        HASH_ADD(hh, store->unsynced, number, sizeof(page->number), page);
        if (hash_failed())
            error = -ENOMEM;
        else
            atomic_fetch_add(&store->n_unsynced, 1);
        pthread_rwlock_unlock(&store->unsynced_lock);
    }
    if (error)
        give_spare(store, page);
    return error;
}

static size_t in_page(uint64_t address, size_t n)
{
    size_t left = PAGE_BYTES - (size_t)(address % PAGE_BYTES);
    return n < left ? n : left;
}

int unsynced_note(struct store *store, uint64_t address, const char *bytes, size_t n)
{
    int error = 0;
    store->n_writes++;
    for (size_t part; n > 0 && !error; n -= part) {
        uint64_t number = address / PAGE_BYTES;
        size_t to = (size_t)(address % PAGE_BYTES);
        struct unsynced *page = find(store, number); /* `change` is held */
        part = in_page(address, n);
        if (page) {
            pthread_rwlock_wrlock(&store->unsynced_lock);
            memcpy(page->bytes + to, bytes, part);
            pthread_rwlock_unlock(&store->unsynced_lock);
        } else {
            error = add_page(store, number, to, bytes, part);
        }
        address += part;
        bytes += part;
    }
    return error;
}

bool unsynced_revoke(struct store *store, uint64_t address, uint64_t end)
{
    bool is_left = false;
    pthread_rwlock_wrlock(&store->unsynced_lock);
    for (uint64_t number = address / PAGE_BYTES; number * PAGE_BYTES < end; number++) {
        struct unsynced *page = find(store, number);
        if (page && page->writer == store->n_writes)
            remove_page(store, page);
        else
            is_left |= page != NULL;
    }
    pthread_rwlock_unlock(&store->unsynced_lock);
    return is_left;
}

void unsynced_cut(struct store *store, uint64_t end)
{
    struct unsynced *page, *next;
    pthread_rwlock_wrlock(&store->unsynced_lock);
    HASH_ITER (hh, store->unsynced, page, next) {
        uint64_t address = page->number * PAGE_BYTES;
        if (address >= end)
            remove_page(store, page);
        else if (end - address < PAGE_BYTES)
            memset(page->bytes + (end - address), 0, PAGE_BYTES - (end - address));
    }
    pthread_rwlock_unlock(&store->unsynced_lock);
}

void unsynced_clear(struct store *store, uint64_t end)
{
    struct unsynced *page, *next;
    pthread_rwlock_wrlock(&store->unsynced_lock);
    HASH_ITER (hh, store->unsynced, page, next)
        if (page->number * PAGE_BYTES < end)
            remove_page(store, page);
    pthread_rwlock_unlock(&store->unsynced_lock);
}

void unsynced_trim(struct store *store)
{
    for (struct unsynced *page; (page = store->spare_pages);) {
        store->spare_pages = page->next_spare;
        free(page);
    }
}

int unsynced_write_again(struct store *store, uint64_t end)
{
    uint64_t size = store_size(store);
    struct unsynced *page, *next;
    int error = 0;
    HASH_ITER (hh, store->unsynced, page, next) {
        uint64_t address = page->number * PAGE_BYTES;
        size_t done, n = address >= size               ? 0
                         : size - address < PAGE_BYTES ? (size_t)(size - address)
                                                       : PAGE_BYTES;
        if (!error && n > 0 && address < end)
            error = file_put(store, address, page->bytes, n, &done);
    }
    return error;
}

/* ---- Reading ---- */

/* Copies what lies in pages from address on, up to the first byte that does not; how many. */
static size_t copy_inside(const struct store *store, uint64_t address, char *to, size_t n)
{
    size_t done = 0;
    while (done < n) {
        size_t part = in_page(address + done, n - done);
        const struct unsynced *page = find(store, (address + done) / PAGE_BYTES);
        if (!page)
            break;
        memcpy(to + done, page->bytes + (address + done) % PAGE_BYTES, part);
        done += part;
    }
    return done;
}

static size_t count_outside(const struct store *store, uint64_t address, size_t n)
{
    size_t done = 0;
    while (done < n && !find(store, (address + done) / PAGE_BYTES))
        done += in_page(address + done, n - done);
    return done;
}

int unsynced_read(struct store *store, uint64_t address, char *buffer, size_t n, struct why *why)
{
    int error = 0;
    while (n > 0 && !error) {
        pthread_rwlock_rdlock(&store->unsynced_lock);
        size_t inside = copy_inside(store, address, buffer, n);
        size_t outside = count_outside(store, address + inside, n - inside);
        pthread_rwlock_unlock(&store->unsynced_lock);
        if (outside > 0)
            error = file_get(store, address + inside, buffer + inside, outside, why);
        address += inside + outside;
        buffer += inside + outside;
        n -= inside + outside;
    }
    return error;
}

bool unsynced_touch(struct store *store, uint64_t address, uint64_t n)
{
    if (atomic_load(&store->n_unsynced) == 0 || n == 0)
        return false;
    bool touched = false;
    uint64_t first = address / PAGE_BYTES, last = (address + n - 1) / PAGE_BYTES;
    pthread_rwlock_rdlock(&store->unsynced_lock);
    if (last - first < HASH_COUNT(store->unsynced)) {
        for (uint64_t number = first; number <= last && !touched; number++)
            touched = find(store, number);
    } else {
        const struct unsynced *page = store->unsynced;
        for (; page && !touched; page = page->hh.next)
            touched = first <= page->number && page->number <= last;
    }
    pthread_rwlock_unlock(&store->unsynced_lock);
    return touched;
}
