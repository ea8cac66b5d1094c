/* What holds of a store's space, pages and journal whenever they are not being changed. */
#include "common/invariants.h"
#include "store/private.h"

#define SHARE 64 /* calls for each look at everything */

static void check_apart(const struct extents *a, const struct extents *b)
{
    uint64_t start, length, other, other_length;
    for (uint64_t at = 0; extents_after(a, at, &start, &length); at = start + length)
        SANE(!extents_after(b, start, &other, &other_length) || other >= start + length);
}

static void check_end(const struct extents *extents, uint64_t end)
{
    uint64_t start, length;
    SANE(!extents_after(extents, end, &start, &length));
    SANE(end == 0 || !extents_after(extents, end - 1, &start, &length) || start + length <= end);
}

static void check_space(const struct store *store)
{
    const struct extents *sets[] = {&store->free, &store->pending, &store->fresh, &store->own};
    for (int i = 0; i < 4; i++) {
        extents_check(sets[i]);
        check_end(sets[i], i == 2 ? store->committed_end : store_size(store));
    }
    check_apart(&store->free, &store->pending);
    check_apart(&store->free, &store->fresh);
    check_apart(&store->pending, &store->fresh);
    check_apart(&store->own, &store->free);
    check_apart(&store->own, &store->pending);
}

static void check_standing(const struct standing *standing)
{
    SANE(standing->n <= MOST_STANDING + MAX_WITNESSES);
    for (size_t i = 1; i < standing->n && standing->stands; i++)
        SANE(standing->pages[i - 1] < standing->pages[i]);
}

static void check_pages(struct store *store)
{
    struct page *page, *next;
    size_t n_spilled = 0;
    pthread_rwlock_rdlock(&store->pages_lock);
    SANE(HASH_COUNT(store->pages) == atomic_load(&store->n_pages));
    HASH_ITER (hh, store->pages, page, next) {
        SANE(pages_find(store, page->number) == page);
        n_spilled += page->spilled_at >= 0;
    }
    SANE(n_spilled <= store->n_spilled);
    pthread_rwlock_unlock(&store->pages_lock);
}

void store_check(struct store *store, bool now)
{
    if (!SANITY || store->reader.read || (!now && ++store->checks % SHARE != 0))
        return;
    check_space(store);
    check_standing(&store->standing);
    check_pages(store);
}

void store_check_committed(struct store *store)
{
    store_check(store, true);
    SANE(store->unapplied || atomic_load(&store->n_pages) == 0);
    SANE(!store->fresh.root && !store->pending.root && !store->written);
    SANE(store->committed_end == store_size(store));
}
