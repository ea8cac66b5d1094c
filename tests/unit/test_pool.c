/* Memory blocks: they do not overlap, and what is counted is what there is. */
#include "support.h"

#include <string.h>

#include "common/pool.h"

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

TEST_MAIN(cmocka_unit_test(blocks_do_not_overlap), cmocka_unit_test(a_block_is_used_again))
