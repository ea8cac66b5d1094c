/* The table of nodes: what is in use stays and what nobody uses goes, in a diamond of hard links,
 * which has more paths than there is memory. Listings are shared by those who list the same, and
 * who lists while links come and go finds all others once. */
#include "diamond.h"

#include <errno.h>
#include <limits.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "fs/group_listings.h"
#include "fs/inode.h"
#include "fs/mount.h"
#include "fs/node.h"
#include "fs/node_table.h"
#include "sparsefs/sparsefs.h"

#define LEVELS  14 /* below the root: 2^14 paths to the last */
#define THREADS 4
#define WALKS   1500

struct table {
    struct sfs_file *file;
    struct nodes *nodes;
};

static struct table open_table(void)
{
    struct table table;
    make_diamond("diamond.h5", LEVELS);
    assert_int_equal(sfs_open("diamond.h5", NULL, &table.file), 0);
    assert_int_equal(nodes_create(table.file, false, 0, &table.nodes), 0);
    return table;
}

static void close_table(struct table table)
{
    nodes_destroy(table.nodes);
    sfs_close(table.file);
}

static const struct node *root_of(struct table table)
{
    return node_get(table.nodes, 0);
}

/* As the kernel looks up. */
static const struct node *look_up(struct table table, const struct node *group, const char *name)
{
    const struct node *child;
    struct sfs_link link;
    assert_int_equal(sfs_lookup(node_file(group), group->address, name, &link), 0);
    assert_int_equal(node_child(table.nodes, group, &link, &child), 0);
    sfs_link_free(&link);
    node_looked_up(table.nodes, child->number, 1);
    node_put(table.nodes, child->number);
    return child;
}

/* The kernel walks down a path, of which a bit says a or b at each level, and forgets those above
 * the last, which it keeps. */
static const struct node *walk(struct table table, unsigned path, unsigned levels)
{
    const struct node *node = root_of(table), *child;
    for (unsigned i = 0; i < levels; i++) {
        child = look_up(table, node, path >> i & 1 ? "b" : "a");
        if (i > 0)
            node_forgotten(table.nodes, node->number, 1);
        node = child;
    }
    return node;
}

static void walk_below(struct table table, const struct node *group, unsigned levels)
{
    static const char *const names[] = {"a", "b"};
    for (size_t i = 0; i < COUNT(names) && levels > 0; i++) {
        const struct node *child = look_up(table, group, names[i]);
        walk_below(table, child, levels - 1);
        node_forgotten(table.nodes, child->number, 1);
    }
}

static void walk_everywhere(struct table table)
{
    walk_below(table, root_of(table), LEVELS);
}

static void what_nobody_uses_goes(void **state)
{
    (void)state;
    struct table table = open_table();
    walk_everywhere(table);
    assert_true(nodes_count(table.nodes) <= NODES_UNHELD + 1);
    walk_everywhere(table);
    assert_true(nodes_count(table.nodes) <= NODES_UNHELD + 1);
    close_table(table);
}

static void the_kernel_may_keep_all(void **state)
{
    (void)state;
    struct table table = open_table();
    size_t n = (size_t)1 << LEVELS;
    uint32_t *numbers = allocate(n * sizeof(*numbers));
    for (unsigned path = 0; path < n; path++)
        numbers[path] = walk(table, path, LEVELS)->number;
    assert_int_equal(nodes_count(table.nodes), 2 * n - 1);
    for (unsigned path = 0; path < n; path++) {
        const struct node *node = node_get(table.nodes, numbers[path]);
        assert_non_null(node);
        for (unsigned i = LEVELS; i-- > 0; node = node->parent)
            assert_string_equal(node->name, path >> i & 1 ? "b" : "a");
        assert_null(node->parent);
    }
    for (unsigned path = 0; path < n; path++)
        node_forgotten(table.nodes, numbers[path], 1);
    assert_int_equal(nodes_count(table.nodes), NODES_UNHELD + 1);
    free(numbers);
    close_table(table);
}

/* Each in its own way, all but the last: that goes. */
static void what_is_used_stays(void **state)
{
    (void)state;
    struct table table = open_table();
    struct views *views;
    const struct node *node[4];
    uint32_t number[4];
    for (unsigned i = 0; i < 4; i++) {
        const struct node *group = walk(table, i, LEVELS);
        node[i] = look_up(table, group, "d");
        number[i] = node[i]->number;
        node_forgotten(table.nodes, group->number, 1);
    }
    node_hold(table.nodes, number[1]);
    assert_int_equal(node_get_views(table.nodes, node[2], &views), 0);
    for (unsigned i = 1; i < 4; i++)
        node_forgotten(table.nodes, number[i], 1);
    walk_everywhere(table);
    for (unsigned i = 0; i < 3; i++) {
        assert_ptr_equal(node_get(table.nodes, number[i]), node[i]);
        char *path = node_path(node[i]);
        assert_int_equal(strlen(path), 2 * LEVELS + 2);
        free(path);
    }
    assert_null(node_get(table.nodes, number[3]));
    node_put_views(table.nodes, node[2]);
    node_put(table.nodes, number[1]);
    node_forgotten(table.nodes, number[0], 1);
    walk_everywhere(table);
    for (unsigned i = 0; i < 3; i++)
        assert_null(node_get(table.nodes, number[i]));
    close_table(table);
}

/* What the kernel forgets more often than it was told does not free what others hold. */
static void forgetting_too_much(void **state)
{
    (void)state;
    struct table table = open_table();
    const struct node *group = look_up(table, root_of(table), "a");
    uint32_t number = group->number;
    node_looked_up(table.nodes, number, 2);
    node_hold(table.nodes, number);
    node_forgotten(table.nodes, number, 1000);
    node_forgotten(table.nodes, number, 1);
    walk_everywhere(table);
    assert_ptr_equal(node_get(table.nodes, number), group);
    node_put(table.nodes, number);
    node_forgotten(table.nodes, INODE_MAX_NODES - 1, 1);
    close_table(table);
}

static void a_number_is_not_given_again_at_once(void **state)
{
    (void)state;
    struct table table = open_table();
    uint32_t number = walk(table, 0, LEVELS)->number;
    node_forgotten(table.nodes, number, 1);
    walk_everywhere(table);
    assert_null(node_get(table.nodes, number));
    assert_true(walk(table, 0, LEVELS)->number > number);
    close_table(table);
}

/* And then with another generation: a handle of NFS is of both. */
static void a_number_that_is_given_again_has_another_generation(void **state)
{
    (void)state;
    struct table table = open_table();
    const struct node *node = walk(table, 0, LEVELS);
    uint32_t number = node->number, generation = node->generation;
    node_forgotten(table.nodes, number, 1);
    walk_everywhere(table);
    assert_null(node_hold_any(table.nodes, number));
    table.nodes->next_number = INODE_MAX_NODES - 1; /* as after so many */
    const struct node *again = NULL;
    for (unsigned path = 0; !again; path++) {
        assert_true(path < 1 << LEVELS);
        (void)walk(table, path, LEVELS);
        again = node_hold_any(table.nodes, number);
    }
    assert_int_not_equal(again->generation, generation);
    assert_int_equal(root_of(table)->generation, generation);
    node_put(table.nodes, number);
    close_table(table);
}

/* By it others know when it was written. */
static void an_object_that_is_kept_has_one_number(void **state)
{
    (void)state;
    struct table table = open_table();
    const struct node *group = walk(table, 0, LEVELS), *dataset = look_up(table, group, "d");
    uint64_t object = dataset->object;
    node_keep_object(table.nodes, dataset);
    node_forgotten(table.nodes, dataset->number, 1);
    node_forgotten(table.nodes, group->number, 1);
    walk_everywhere(table);
    group = walk(table, 5, LEVELS);
    assert_true(look_up(table, group, "d")->object == object);
    close_table(table);
}

/* All nodes of a link that was removed are for those who use them only. */
static void removed_while_in_use(void **state)
{
    (void)state;
    struct table table = open_table();
    const struct node *a = look_up(table, root_of(table), "a");
    const struct node *b = look_up(table, root_of(table), "b");
    const struct node *below_a = look_up(table, a, "a"), *below_b = look_up(table, b, "a");
    const struct node *far_below = look_up(table, below_b, "b");
    uint32_t number = below_b->number, far_number = far_below->number;
    node_forgotten(table.nodes, below_a->number, 1);
    size_t n = nodes_count(table.nodes);
    assert_int_equal(node_remove(table.nodes, a, "a"), 0);
    assert_int_equal(nodes_count(table.nodes), n - 1);
    assert_null(node_get(table.nodes, number));
    assert_ptr_equal(node_get(table.nodes, far_number), far_below);
    node_forgotten(table.nodes, number, 1);
    assert_int_equal(nodes_count(table.nodes), n - 1);
    assert_ptr_equal(far_below->parent, below_b);
    assert_int_equal(node_remove(table.nodes, below_b, "b"), 0); /* nothing, of one that is gone */
    node_hold(table.nodes, far_number);
    node_forgotten(table.nodes, far_number, 1);
    node_put(table.nodes, far_number);
    assert_true(look_up(table, b, "a")->number != number);
    close_table(table);
}

static void *walk_at_random(void *data)
{
    const struct table *table = data;
    struct views *views;
    for (unsigned i = 0; i < WALKS; i++) {
        const struct node *group = walk(*table, (unsigned)random_below(1u << LEVELS), LEVELS);
        const struct node *dataset = look_up(*table, group, "d");
        node_forgotten(table->nodes, group->number, 1);
        if (random_below(8) == 0) {
            assert_int_equal(node_get_views(table->nodes, dataset, &views), 0);
            node_put_views(table->nodes, dataset);
        }
        assert_string_equal(dataset->name, "d");
        node_forgotten(table->nodes, dataset->number, 1);
    }
    return NULL;
}

static void by_many_threads(void **state)
{
    (void)state;
    struct table table = open_table();
    pthread_t thread[THREADS];
    for (size_t i = 0; i < THREADS; i++)
        start_thread(&thread[i], walk_at_random, &table);
    for (size_t i = 0; i < THREADS; i++)
        pthread_join(thread[i], NULL);
    assert_true(nodes_count(table.nodes) <= NODES_UNHELD + 1);
    close_table(table);
}

static void listings_are_shared(void **state)
{
    (void)state;
    struct table table = open_table();
    struct listings *listings = listings_create(LISTINGS_MOST_USED_BYTES);
    const struct node *a = look_up(table, root_of(table), "a");
    const struct node *b = look_up(table, root_of(table), "b");
    const struct listing *first, *same, *other, *later;
    assert_int_equal(listing_get(listings, a, 7, true, &first), 0);
    assert_int_equal(listing_get(listings, b, 8, true, &same), 0);
    assert_int_equal(listing_get(listings, root_of(table), 8, true, &other), 0);
    assert_ptr_equal(same, first);
    assert_int_equal(first->removals, 7);
    assert_ptr_not_equal(other, first);
    assert_int_equal(listings_begin_change(listings, b, "x"), 0);
    listings_end_change(listings, b, "x", LINK_UNCHANGED);
    assert_false(listing_is_old(listings, first));
    assert_int_equal(listings_begin_change(listings, b, "x"), 0);
    listings_end_change(listings, b, "x", LINK_MADE);
    assert_true(listing_is_old(listings, first) && !listing_is_old(listings, other));
    assert_int_equal(listing_get(listings, a, 9, false, &later), 0);
    assert_ptr_equal(later, first); /* good enough for who goes on */
    listing_put(listings, later, false);
    assert_int_equal(listing_get(listings, a, 9, true, &later), 0);
    assert_ptr_not_equal(later, first);
    assert_int_equal(later->removals, 9);
    listing_put(listings, first, true);
    assert_int_equal(same->links.n, 2); /* as it was, for who has it still */
    assert_string_equal(same->links.link[1].name, "b");
    listing_put(listings, same, true);
    listing_put(listings, later, true);
    listing_put(listings, other, true);
    listings_destroy(listings);
    close_table(table);
}

/* The number that says by whom the listing of a group was read that is kept, or else read now. */
static unsigned reader_of(struct listings *listings, const struct node *group, unsigned now)
{
    const struct listing *listing;
    assert_int_equal(listing_get(listings, group, now, false, &listing), 0);
    unsigned removals = listing->removals;
    listing_put(listings, listing, false);
    return removals;
}

#define GROUPS (LISTINGS_MOST + 1)

static void listings_are_kept_for_a_while(void **state)
{
    (void)state;
    char name[16];
    const struct listing *listing;
    const struct node *group[GROUPS];
    struct table table;
    assert_int_equal(sfs_create("groups.h5", NULL, &table.file), 0);
    for (unsigned i = 0; i < GROUPS; i++) {
        snprintf(name, sizeof(name), "/%u", i);
        assert_int_equal(sfs_group_create(table.file, name), 0);
    }
    assert_int_equal(nodes_create(table.file, false, 0, &table.nodes), 0);
    struct listings *listings = listings_create(LISTINGS_MOST_USED_BYTES);
    for (unsigned i = 0; i < GROUPS; i++) {
        snprintf(name, sizeof(name), "%u", i);
        group[i] = look_up(table, root_of(table), name);
    }

    /* As long as somebody is on his way through it, and no longer. */
    assert_int_equal(listing_get(listings, group[0], 1, true, &listing), 0);
    listing_put(listings, listing, false);
    assert_int_equal(reader_of(listings, group[0], 2), 1);
    assert_int_equal(listing_get(listings, group[0], 3, true, &listing), 0);
    assert_int_equal(listing->removals, 1);
    listing_put(listings, listing, true);
    assert_int_equal(reader_of(listings, group[0], 4), 1);
    assert_int_equal(listing_get(listings, group[0], 5, false, &listing), 0);
    listing_put(listings, listing, true);
    assert_int_equal(reader_of(listings, group[0], 6), 6);

    /* Of too many that nobody comes to the end of, those go that were not used for longest. */
    for (unsigned i = 0; i < GROUPS; i++) {
        assert_int_equal(listing_get(listings, group[i], 7, true, &listing), 0);
        listing_put(listings, listing, false);
    }
    assert_int_equal(reader_of(listings, group[1], 8), 7);
    assert_int_equal(reader_of(listings, group[GROUPS - 1], 8), 7);
    assert_int_equal(reader_of(listings, group[0], 8), 8);

    /* But what is in use is there for whoever comes, however many these are. */
    const struct listing *used[GROUPS];
    for (unsigned i = 0; i < GROUPS; i++)
        assert_int_equal(listing_get(listings, group[i], 9, true, &used[i]), 0);
    for (unsigned i = 0; i < GROUPS; i++) {
        assert_int_equal(listing_get(listings, group[i], 10, true, &listing), 0);
        assert_ptr_equal(listing, used[i]);
        listing_put(listings, listing, true);
        listing_put(listings, used[i], true);
    }
    listings_destroy(listings);
    close_table(table);
}

static void change_link(struct listings *listings, const struct node *group)
{
    assert_int_equal(listings_begin_change(listings, group, "x"), 0);
    listings_end_change(listings, group, "x", LINK_MADE);
}

#define MOST_USED 2000

/* A group that is another one each time that it is opened. */
static void listings_in_use_have_a_limit(void **state)
{
    (void)state;
    log_quietly();
    struct table table = open_table();
    struct listings *listings = listings_create(MOST_USED);
    const struct node *root = root_of(table);
    const struct node *a = look_up(table, root, "a");
    const struct listing *used[MOST_USED], *same;
    unsigned n = 0, errors = log_errors();
    int error;
    while ((error = listing_get(listings, a, n, true, &used[n])) == 0) {
        assert_int_equal(used[n]->removals, n);
        change_link(listings, a);
        assert_true(++n < MOST_USED);
    }
    assert_int_equal(error, -ENOMEM);
    assert_int_equal(log_errors() - errors, 1);
    /* Two links, of a structure and the least block of malloc each, and what holds them. */
    assert_in_range(n, 2, MOST_USED / (2 * (sizeof(struct sfs_link) + 32)));
    assert_int_equal(listing_get(listings, a, n, false, &same), 0); /* who goes on has one */
    assert_ptr_equal(same, used[n - 1]);
    listing_put(listings, same, false);
    assert_int_equal(listing_get(listings, root, n, true, &same), -ENOMEM);
    assert_int_equal(listings_count(listings, MOST_USED / 4), -ENOMEM);
    for (unsigned i = 0; i < n; i++)
        listing_put(listings, used[i], true);
    assert_int_equal(listings_count(listings, MOST_USED), 0);
    assert_int_equal(listing_get(listings, root, n, true, &same), -ENOMEM);
    listings_uncount(listings, MOST_USED);
    assert_int_equal(listing_get(listings, root, n, true, &same), 0);
    listing_put(listings, same, true);
    listings_destroy(listings);
    close_table(table);
}

static const uint64_t *places_of(struct listings *listings, const struct node *group)
{
    const struct listing *listing;
    assert_int_equal(listing_get(listings, group, 0, true, &listing), 0);
    const uint64_t *places = listing->places;
    listing_put(listings, listing, true);
    return places;
}

static void places_go_with_their_file(void **state)
{
    (void)state;
    struct table table = open_table();
    struct listings *listings = listings_create(LISTINGS_MOST_USED_BYTES);
    const struct node *a = look_up(table, root_of(table), "a");
    change_link(listings, a);
    assert_non_null(places_of(listings, a));
    listings_forget_file(listings, a->mounted);
    assert_null(places_of(listings, a));
    listings_destroy(listings);
    close_table(table);
}

#define LINKS   60
#define CHANGES 1500

struct reader {
    uint64_t at;
    bool is_seen[LINKS], was_away[LINKS]; /* since it began */
};

static void begin_to_read(struct reader *reader, const bool *is_there)
{
    memset(reader, 0, sizeof(*reader));
    for (size_t i = 0; i < LINKS; i++)
        reader->was_away[i] = !is_there[i];
}

/* A few links more; at the end, what was there all the time has been seen. */
static void read_on(struct listings *listings, const struct node *group, struct reader *reader,
                    const bool *is_there)
{
    const struct listing *listing;
    bool forgets = random_below(4) == 0; /* as if others had needed the memory */
    assert_int_equal(listing_get(listings, group, 0, reader->at == 0, &listing), 0);
    size_t i = listing_find(listing, reader->at);
    for (uint64_t n = 1 + random_below(9); n > 0 && i < listing->links.n; n--, i++) {
        unsigned link = (unsigned)atoi(listing->links.link[i].name);
        assert_true(link < LINKS && (reader->was_away[link] || !reader->is_seen[link]));
        reader->is_seen[link] = true;
        reader->at = listing_place(listing, i) + 1;
    }
    bool ends = i == listing->links.n;
    listing_put(listings, listing, ends || forgets);
    for (size_t k = 0; k < LINKS && ends; k++)
        assert_true(reader->is_seen[k] || reader->was_away[k]);
    if (ends)
        begin_to_read(reader, is_there);
}

/* Names that do not come in the order in which they are made. */
static void make_or_remove(struct table table, struct listings *listings, const struct node *group,
                           size_t link, bool *is_there)
{
    char path[16];
    snprintf(path, sizeof(path), "/g/%zu", link);
    const char *name = path + strlen("/g/");
    assert_int_equal(listings_begin_change(listings, group, name), 0);
    assert_int_equal((is_there[link] ? sfs_group_remove : sfs_group_create)(table.file, path), 0);
    listings_end_change(listings, group, name, is_there[link] ? LINK_REMOVED : LINK_MADE);
    is_there[link] = !is_there[link];
}

static void places_hold(void **state)
{
    (void)state;
    struct table table;
    bool is_there[LINKS] = {false};
    struct reader readers[3];
    assert_int_equal(sfs_create("places.h5", NULL, &table.file), 0);
    for (size_t i = 0; i < LINKS; i += 2) {
        char path[16];
        snprintf(path, sizeof(path), "/g/%zu", i);
        assert_int_equal(sfs_group_create(table.file, path), 0);
        is_there[i] = true;
    }
    assert_int_equal(nodes_create(table.file, false, 0, &table.nodes), 0);
    struct listings *listings = listings_create(LISTINGS_MOST_USED_BYTES);
    const struct node *group = look_up(table, root_of(table), "g");
    for (size_t i = 0; i < COUNT(readers); i++)
        begin_to_read(&readers[i], is_there);
    for (unsigned i = 0; i < CHANGES; i++) {
        size_t link = (size_t)random_below(LINKS);
        make_or_remove(table, listings, group, link, is_there);
        for (size_t k = 0; k < COUNT(readers); k++)
            readers[k].was_away[link] = true;
        for (size_t k = 0; k < COUNT(readers); k++)
            if (random_below(3) == 0)
                read_on(listings, group, &readers[k], is_there);
    }
    listings_destroy(listings);
    close_table(table);
}

/* A child of the root, looked up as the kernel does; the number of it. */
static int look_up_soft(struct table table, unsigned i, const char *target, uint32_t *number)
{
    char name[16];
    const struct node *child;
    snprintf(name, sizeof(name), "soft%u", i);
    const struct sfs_link link = {.type = SFS_LINK_SOFT, .name = name, .target = (char *)target};
    int error = node_child(table.nodes, root_of(table), &link, &child);
    if (!error) {
        *number = child->number;
        node_looked_up(table.nodes, *number, 1);
        node_put(table.nodes, *number);
    }
    return error;
}

/* Together no more than the limit while they are known; short ones always are. */
static void long_targets_have_a_limit(void **state)
{
    (void)state;
    enum { MOST = 100 };
    struct table table = open_table();
    char target[1001], longer[PATH_MAX + 1];
    uint32_t numbers[MOST + 1], number = 0;
    for (size_t i = 0; i < sizeof(longer) - 1; i++) /* no part of it is cut */
        longer[i] = i % 100 == 99 ? '/' : 'l';
    for (size_t i = 0; i < sizeof(target) - 1; i++)
        target[i] = i % 100 == 99 ? '/' : 't';
    longer[sizeof(longer) - 1] = target[sizeof(target) - 1] = '\0';
    table.nodes->most_long_texts = MOST * 1000;
    unsigned n = 0;
    while (n <= MOST && look_up_soft(table, n, target, &numbers[n]) == 0)
        n++;
    assert_in_range(n, MOST - 10, MOST);
    assert_int_equal(look_up_soft(table, n, target, &number), -ENOMEM);
    assert_int_equal(look_up_soft(table, MOST + 1, "short", &number), 0);
    assert_int_equal(look_up_soft(table, MOST + 2, longer, &number), 0);
    assert_null(node_get(table.nodes, number)->target);
    assert_true(node_get(table.nodes, number)->target_bytes >= PATH_MAX);
    for (unsigned i = 0; i < n; i++)
        node_forgotten(table.nodes, numbers[i], 1);
    struct node *group = (struct node *)root_of(table);
    assert_int_equal(node_remove(table.nodes, group, "soft0"), 0);
    assert_int_equal(look_up_soft(table, n, target, &number), 0);
    close_table(table);
}

/* What is kept of them is what is shown; the rest is looked up. */
static void long_names_are_kept_as_they_are_shown(void **state)
{
    (void)state;
    char name[1001], *whole;
    struct table table;
    const struct node *child;
    struct sfs_links links;
    memset(name, 'n', sizeof(name) - 1);
    name[sizeof(name) - 1] = '\0';
    assert_int_equal(sfs_create("names.h5", NULL, &table.file), 0);
    char path[sizeof(name) + 1];
    snprintf(path, sizeof(path), "/%s", name);
    assert_int_equal(sfs_group_create(table.file, path), 0);
    assert_int_equal(nodes_create(table.file, false, 0, &table.nodes), 0);
    assert_int_equal(sfs_list(table.file, sfs_root(table.file), &links), 0);
    assert_int_equal(links.n, 1);
    assert_int_equal(node_child(table.nodes, root_of(table), &links.link[0], &child), 0);
    sfs_links_free(&links);
    assert_in_range(strlen(child->name), 1, 255);
    assert_int_equal(node_whole_name(child, &whole), 0);
    assert_string_equal(whole, name);
    free(whole);
    assert_int_equal(node_whole_path(child, &whole), 0);
    assert_string_equal(whole, path);
    free(whole);
    node_put(table.nodes, child->number);
    close_table(table);
}

static void make_shown(void)
{
    const hsize_t dims[] = {4, 5, 6};
    hid_t file = H5Fcreate("shown.h5", H5F_ACC_TRUNC, H5P_DEFAULT, H5P_DEFAULT);
    hid_t space = H5Screate_simple(3, dims, NULL), plane = H5Screate_simple(2, dims + 1, NULL);
    hid_t mapped = H5Pcreate(H5P_DATASET_CREATE);
    assert_true(H5Pset_virtual(mapped, space, ".", "/frames", space) >= 0);
    H5Dclose(
        H5Dcreate2(file, "frames", H5T_STD_U8LE, space, H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT));
    H5Dclose(H5Dcreate2(file, "mask", H5T_STD_U8LE, plane, H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT));
    H5Dclose(H5Dcreate2(file, "virtual", H5T_STD_U8LE, space, H5P_DEFAULT, mapped, H5P_DEFAULT));
    H5Pclose(mapped);
    H5Sclose(plane);
    H5Sclose(space);
    assert_true(H5Fclose(file) >= 0);
}

/* The first of those that may show elements of a dataset, of so many. */
static struct node_told first_told(struct table table, const struct node *node, size_t n)
{
    struct node_told *told, first = {0};
    assert_int_equal(node_told(table.nodes, node, &told), n);
    if (n > 0)
        first = told[0];
    free(told);
    return first;
}

/* Only of what the kernel was told, and has not forgotten, is looked whether it shows what has changed; of what
 * shows a mask only if that can be one. */
static void what_is_forgotten_is_not_looked_at(void **state)
{
    (void)state;
    static const char *const names[] = {"frames", "mask", "virtual"};
    const struct node *node[COUNT(names)];
    struct views *views;
    struct table table;
    make_shown();
    assert_int_equal(sfs_open("shown.h5", NULL, &table.file), 0);
    assert_int_equal(nodes_create(table.file, false, 0, &table.nodes), 0);
    const struct nodes *nodes = table.nodes;
    for (size_t i = 0; i < COUNT(names); i++) {
        node[i] = look_up(table, root_of(table), names[i]);
        assert_int_equal(node_get_views(table.nodes, node[i], &views), 0);
    }
    assert_int_equal(nodes->n_told, 0);
    node_tell(table.nodes, node[0], VIEW_RAW, 0); /* shows no others */
    assert_int_equal(nodes->n_told, 0);
    node_tell(table.nodes, node[0], VIEW_PNG, 2);
    node_tell(table.nodes, node[2], VIEW_RAW, 3);
    node_tell(table.nodes, node[2], VIEW_PNG, 1);
    assert_int_equal(nodes->n_told, 2);
    struct node_told told = first_told(table, node[0], 1);
    assert_int_equal(told.number, node[2]->number);
    assert_int_equal(told.first, 1);
    assert_int_equal(told.last, 3);
    first_told(table, node[1], 2);
    node_tell(table.nodes, node[2], VIEW_RAW, 0);
    node_forgot(table.nodes, &told); /* it was told more since */
    told = first_told(table, node[0], 1);
    assert_int_equal(told.first, 0);
    node_forgot(table.nodes, &told);
    assert_null(nodes->told[NODE_TOLD_OF_ANY]);
    told = first_told(table, node[1], 1);
    assert_int_equal(told.number, node[0]->number);
    assert_int_equal(told.first, 2);
    node_forgot(table.nodes, &told);
    assert_null(nodes->told[NODE_TOLD_OF_PLANES]);
    assert_int_equal(nodes->n_told, 0);
    first_told(table, node[1], 0);
    node_tell(table.nodes, node[2], VIEW_STACK_RAW, UINT64_MAX);
    assert_int_equal(first_told(table, node[0], 1).first, UINT64_MAX);
    for (size_t i = 0; i < COUNT(names); i++)
        node_put_views(table.nodes, node[i]);
    close_table(table);
}

/* How many frames are looked at does not depend on what datasets claim: of more than that the kernel may keep only
 * bytes of what is open. */
static void not_too_many_frames_are_looked_at(void **state)
{
    (void)state;
    struct views *views;
    struct table table;
    make_shown();
    assert_int_equal(sfs_open("shown.h5", NULL, &table.file), 0);
    assert_int_equal(nodes_create(table.file, false, 0, &table.nodes), 0);
    struct nodes *nodes = table.nodes;
    const struct node *node = look_up(table, root_of(table), "virtual");
    const struct node *other = look_up(table, root_of(table), "frames");
    assert_int_equal(node_get_views(nodes, node, &views), 0);
    assert_int_equal(node_get_views(nodes, other, &views), 0);
    assert_true(node_tell(nodes, node, VIEW_RAW, 5));
    assert_true(node_tell(nodes, node, VIEW_RAW, 5 + NODES_TOLD - 2));
    assert_int_equal(nodes->told_frames, NODES_TOLD);
    assert_false(node_tell(nodes, node, VIEW_RAW, 4));
    assert_false(node_tell(nodes, node, VIEW_RAW, INODE_MAX_FRAMES - 1));
    assert_false(node_tell(nodes, other, VIEW_PNG, 0));
    assert_true(node_tell(nodes, other, VIEW_RAW, 0)); /* shows no others */
    struct node_told *told, first = first_told(table, other, 1);
    assert_int_equal(first.first, 5);
    assert_int_equal(first.last, 5 + NODES_TOLD - 2);
    assert_false(node_is_told_open(other));
    node_tell_open(nodes, other);
    assert_true(node_is_told_open(other));
    assert_int_equal(node_told(nodes, other, &told), 2);
    assert_int_equal(told[1].number, NODE_TOLD_OPEN);
    node_forgot(nodes, &told[0]);
    assert_int_equal(nodes->told_frames, 0);
    node_tell_open(nodes, other);
    node_forgot(nodes, &told[1]); /* it was told more since */
    free(told);
    assert_int_equal(node_told(nodes, other, &told), 1);
    node_forgot(nodes, &told[0]);
    free(told);
    assert_int_equal(nodes->n_told, 0);
    assert_true(node_is_told_open(other));
    assert_true(node_tell(nodes, other, VIEW_PNG, 3));
    assert_int_equal(nodes->told_frames, 2);
    node_put_views(nodes, node);
    node_put_views(nodes, other);
    close_table(table);
}

static bool is_wanted_no_more(void *context)
{
    unsigned *left = context;
    return *left == 0 || (--*left, false);
}

/* Each is followed, which may take long: after each it can end. */
static void looking_at_many_external_links_is_interrupted(void **state)
{
    (void)state;
    enum { MANY = 100 };
    struct table table;
    struct mount mount = {0};
    static char target_file[] = "diamond.h5", target[] = "/a";
    unsigned left = UINT_MAX;
    char *text;
    size_t n;
    make_diamond(target_file, 1);
    assert_int_equal(sfs_create("external.h5", NULL, &table.file), 0);
    for (int i = 0; i < MANY; i++) {
        char name[16];
        struct sfs_link link = {
            .type = SFS_LINK_EXTERNAL, .target_file = target_file, .target = target};
        snprintf(name, sizeof(name), "/%d", i);
        assert_int_equal(sfs_link_create(table.file, name, &link), 0);
    }
    assert_int_equal(nodes_create(table.file, false, 0, &table.nodes), 0);
    mount.nodes = table.nodes;
    for (unsigned i = 0; i < MANY; i++) {
        left = i;
        sfs_set_interrupt(is_wanted_no_more, &left);
        assert_int_equal(group_find(&mount, root_of(table)), -EINTR);
        left = i;
        assert_int_equal(group_text(&mount, root_of(table), &text, &n), -EINTR);
        sfs_set_interrupt(NULL, NULL);
    }
    assert_int_equal(group_find(&mount, root_of(table)), -ENOENT); /* as all can be followed */
    assert_int_equal(group_text(&mount, root_of(table), &text, &n), 0);
    assert_non_null(strstr(text, "followed"));
    assert_null(strstr(text, "missing"));
    free(text);
    assert_int_equal(table.nodes->n_linked, 1);
    close_table(table);
}

TEST_MAIN(cmocka_unit_test(not_too_many_frames_are_looked_at),
          cmocka_unit_test(what_is_forgotten_is_not_looked_at),
          cmocka_unit_test(long_targets_have_a_limit),
          cmocka_unit_test(long_names_are_kept_as_they_are_shown),
          cmocka_unit_test(what_nobody_uses_goes), cmocka_unit_test(the_kernel_may_keep_all),
          cmocka_unit_test(what_is_used_stays), cmocka_unit_test(forgetting_too_much),
          cmocka_unit_test(a_number_is_not_given_again_at_once),
          cmocka_unit_test(a_number_that_is_given_again_has_another_generation),
          cmocka_unit_test(an_object_that_is_kept_has_one_number),
          cmocka_unit_test(removed_while_in_use), cmocka_unit_test(by_many_threads),
          cmocka_unit_test(listings_are_shared), cmocka_unit_test(listings_are_kept_for_a_while),
          cmocka_unit_test(listings_in_use_have_a_limit), cmocka_unit_test(places_hold),
          cmocka_unit_test(places_go_with_their_file),
          cmocka_unit_test(looking_at_many_external_links_is_interrupted))
