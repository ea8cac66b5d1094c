/* Bytes of a file that is written piece by piece: what is new is zero, and what is taken of a view is no
 * longer than the view. */
#include "support.h"

#include <stdlib.h>
#include <string.h>

#include "fs/growing_bytes.h"
#include "sparsefs/sparsefs.h"
#include "view/view.h"

#define PATH    "content.h5"
#define PRESENT 4 /* bytes of the view */
#define ASKED   10

static const unsigned char present[PRESENT] = {1, 2, 3, 4};

static struct sfs_file *make_file(void)
{
    const struct sfs_options options = {.replace = true};
    struct sfs_dataset_create create = {
        .rank = 1, .dims = {PRESENT}, .max_dims = {PRESENT}, .chunk_dims = {PRESENT}};
    const struct sfs_slab slab = {.rank = 1, .count = {PRESENT}};
    struct sfs_file *file;
    struct sfs_dataset *dataset;
    void *type;
    assert_int_equal(sfs_type_encode("u1", &type, &create.type.n), 0);
    create.type.bytes = type;
    assert_int_equal(sfs_create(PATH, &options, &file), 0);
    assert_int_equal(sfs_dataset_create(file, "/d", &create, &dataset), 0);
    assert_int_equal(sfs_write(dataset, &slab, present), 0);
    sfs_dataset_close(dataset);
    free(type);
    return file;
}

static struct views *open_views(struct sfs_file *file)
{
    struct views *views;
    struct sfs_link link;
    assert_int_equal(sfs_lookup(file, sfs_root(file), "d", &link), 0);
    assert_int_equal(views_open(file, link.address, "/d", -1, &views), 0);
    sfs_link_free(&link);
    return views;
}

static void assert_zero_behind(const struct content *content, size_t from)
{
    for (size_t i = from; i < content->n; i++)
        assert_int_equal(content->bytes[i], 0);
}

/* As when others have made the view shorter since its size was asked for. */
static void a_shorter_view_makes_a_shorter_content(void **state)
{
    (void)state;
    struct sfs_file *file = make_file();
    struct views *views = open_views(file);
    for (size_t before = 0; before <= ASKED; before += ASKED) {
        struct content content = {0};
        assert_int_equal(content_resize(&content, before, NULL), 0);
        if (before > 0)
            memset(content.bytes, 'x', before);
        assert_int_equal(content_take(&content, views, VIEW_RAW, 0, ASKED, NULL), 0);
        assert_int_equal(content.n, PRESENT);
        assert_memory_equal(content.bytes, present, PRESENT);
        assert_int_equal(content_resize(&content, ASKED, NULL), 0);
        assert_zero_behind(&content, PRESENT);
        content_free(&content, NULL);
    }
    views_close(views);
    assert_int_equal(sfs_close(file), 0);
}

TEST_MAIN(cmocka_unit_test(a_shorter_view_makes_a_shorter_content))
