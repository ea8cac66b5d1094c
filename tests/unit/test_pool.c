/* Memory blocks: they do not overlap, and what is counted is what there is. */
#include "support.h"

#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "common/memory_pool.h"

#define MIB    ((size_t)1 << 20)
#define BLOCKS 60

struct block {
    unsigned char *memory;
    size_t n;
    unsigned char mark;
};

static void check_marks(const struct block *block)
{
    for (size_t i = 0; i < block->n; i += 4096)
        assert_int_equal(block->memory[i], block->mark);
    assert_int_equal(block->memory[block->n - 1], block->mark);
}

/* Sizes of malloc's, of areas and of mappings of their own. */
static size_t random_size(void)
{
    static const size_t most[] = {64 << 10, 1 << 20, 3 << 20, 20 << 20};
    return 1 + random_below(most[random_below(COUNT(most))]);
}

static void blocks_do_not_overlap(void **state)
{
    (void)state;
    struct pool pool;
    struct block blocks[BLOCKS] = {{0}};
    size_t used = 0;
    pool_init(&pool, 200 * MIB);
    for (int i = 0; i < 3000; i++) {
        struct block *block = &blocks[random_below(BLOCKS)];
        if (block->memory) {
            check_marks(block);
            pool_put(&pool, block->memory, block->n);
            used -= pool_block_size(block->n);
            block->memory = NULL;
        } else {
            block->n = random_size();
            block->mark = (unsigned char)random_next();
            block->memory = pool_get(&pool, block->n);
            assert_non_null(block->memory);
            memset(block->memory, block->mark, block->n);
            used += pool_block_size(block->n);
        }
        if (random_below(8) == 0)
            pool_prepare(&pool);
        assert_in_range(pool_bytes(&pool), used, used > 200 * MIB ? used : 200 * MIB);
    }
    for (struct block *block = blocks; block < blocks + BLOCKS; block++) {
        if (block->memory)
            check_marks(block);
        pool_put(&pool, block->memory, block->n);
    }
    pool_destroy(&pool);
}

static void a_block_is_used_again(void **state)
{
    (void)state;
    struct pool pool;
    pool_init(&pool, 10 * MIB);
    for (size_t n = 100 << 10; n < 5 * MIB; n *= 3) {
        void *first = pool_get(&pool, n);
        pool_put(&pool, first, n);
        void *second = pool_get(&pool, n - 1);
        assert_ptr_equal(first, second);
        pool_put(&pool, second, n - 1);
    }
    pool_destroy(&pool);
}

/* Whether the kernel has given all of its pages. */
static bool is_touched(const void *memory, size_t n)
{
    static unsigned char pages[1 << 16];
    size_t page = (size_t)sysconf(_SC_PAGESIZE), first = (uintptr_t)memory / page * page;
    size_t n_pages = ((uintptr_t)memory + n - first + page - 1) / page;
    assert_in_range(n_pages, 1, sizeof(pages));
    assert_int_equal(mincore((void *)first, n_pages * page, pages), 0);
    for (size_t i = 0; i < n_pages; i++)
        if (!(pages[i] & 1))
            return false;
    return true;
}

/* Blocks of 1 MiB are cut from areas, which are prepared when the last one is half used; of blocks
 * of 20 MiB the third is. */
static void prepared_memory_is_taken(void **state)
{
    (void)state;
    static const struct {
        size_t size, n_before, n_left, n_prepared;
    } cases[] = {{1 * MIB, 9, 7, 16}, {20 * MIB, 2, 0, 1}};
    for (size_t i = 0; i < COUNT(cases); i++) {
        struct pool pool;
        void *blocks[40];
        size_t n = 0, size = cases[i].size, n_before = cases[i].n_before;
        size_t first = n_before + cases[i].n_left, end = first + cases[i].n_prepared;
        pool_init(&pool, 200 * MIB);
        while (n < n_before) {
            assert_false(pool_wants(&pool));
            blocks[n++] = pool_get(&pool, size);
        }
        assert_true(pool_wants(&pool));
        pool_prepare(&pool);
        assert_false(pool_wants(&pool));
        assert_int_equal(pool_bytes(&pool), (n + cases[i].n_prepared) * size);
        while (n < end)
            blocks[n++] = pool_get(&pool, size);
        assert_int_equal(pool_bytes(&pool), n * size);
        for (size_t k = n_before; k < end; k++)
            assert_int_equal(is_touched(blocks[k], size), k >= first);
        while (n > 0)
            pool_put(&pool, blocks[--n], size);
        pool_destroy(&pool);
    }
}

static void what_is_prepared_makes_room(void **state)
{
    (void)state;
    struct pool pool;
    pool_init(&pool, 50 * MIB);
    void *first = pool_get(&pool, 14 * MIB), *second = pool_get(&pool, 14 * MIB);
    pool_prepare(&pool);
    assert_int_equal(pool_bytes(&pool), 42 * MIB);
    void *third = pool_get(&pool, 20 * MIB);
    assert_int_equal(pool_bytes(&pool), 48 * MIB);
    pool_put(&pool, third, 20 * MIB);
    pool_set_limit(&pool, 55 * MIB);
    third = pool_get(&pool, 8 * MIB); /* half of an area */
    void *fourth = pool_get(&pool, 1 * MIB);
    assert_true(pool_wants(&pool));
    pool_prepare(&pool);
    assert_int_equal(pool_bytes(&pool), 53 * MIB);
    pool_set_limit(&pool, 39 * MIB);
    assert_int_equal(pool_bytes(&pool), 37 * MIB);
    pool_put(&pool, fourth, 1 * MIB);
    pool_put(&pool, third, 8 * MIB);
    pool_put(&pool, second, 14 * MIB);
    pool_put(&pool, first, 14 * MIB);
    pool_destroy(&pool);
}

TEST_MAIN(cmocka_unit_test(prepared_memory_is_taken), cmocka_unit_test(what_is_prepared_makes_room),
          cmocka_unit_test(blocks_do_not_overlap), cmocka_unit_test(a_block_is_used_again))
