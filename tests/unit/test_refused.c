/* The files of tests/refused, each with one thing wrong, through the library: what is wrong is
 * refused and named, and what is not wrong is read. table.txt there says which is where. */
#include "support.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <syslog.h>

#include "sparsefs/sparsefs.h"

#define MOST_BYTES 4096

struct refusal {
    char name[64];
    char where[16];
    char words[128];
};

/* ---- The log ---- */

static char logged[1 << 16];
static unsigned n_logged;

static void keep(const char *line)
{
    size_t n = strlen(logged);
    snprintf(logged + n, sizeof(logged) - n, "%s\n", line);
}

static void keep_logged(int level, const char *line)
{
    (void)level;
    n_logged++;
    keep(line);
}

static void keep_finding(void *context, enum sfs_finding finding, const char *line)
{
    unsigned *n = context;
    n[finding]++;
    if (finding != SFS_SOUND)
        keep(line);
}

static void assert_named(const struct refusal *refusal)
{
    if (!strstr(logged, refusal->words))
        fail_msg("%s: not \"%s\" but: %s", refusal->name, refusal->words, logged);
}

/* ---- One file ---- */

static int open_file(const char *name, struct sfs_file **file)
{
    char path[512];
    snprintf(path, sizeof(path), "%s/%s.h5", REFUSED, name);
    logged[0] = '\0';
    return sfs_open(path, NULL, file);
}

static int open_dataset(struct sfs_file *file, const char *path, struct sfs_dataset **dataset)
{
    uint64_t address;
    logged[0] = '\0';
    int error = sfs_find(file, sfs_root(file), path, &address);
    return error ? error : sfs_dataset_open(file, address, path, dataset);
}

static int read_all(struct sfs_dataset *dataset, void *elements)
{
    const struct sfs_dataset_info *info = sfs_dataset_info(dataset);
    struct sfs_slab slab = {.rank = info->rank};
    memcpy(slab.count, info->dims, sizeof(slab.count));
    assert_true(info->elements * info->type.size <= MOST_BYTES);
    return sfs_read(dataset, &slab, 0, elements, info->elements * info->type.size);
}

static void check_other(struct sfs_file *file, const char *name)
{
    static const int32_t expected[] = {0, 1, 5, 7, 0};
    struct sfs_dataset *dataset;
    unsigned char elements[MOST_BYTES];
    if (open_dataset(file, "/other", &dataset) != 0)
        fail_msg("%s: /other cannot be opened: %s", name, logged);
    assert_int_equal(read_all(dataset, elements), 0);
    assert_memory_equal(elements, expected, sizeof(expected));
    sfs_dataset_close(dataset);
}

static void check_bad(struct sfs_file *file, const struct refusal *refusal)
{
    struct sfs_dataset *dataset;
    unsigned char elements[MOST_BYTES];
    int error = open_dataset(file, "/bad", &dataset);
    if (!strcmp(refusal->where, "dataset") || !strcmp(refusal->where, "unknown")) {
        assert_int_equal(error, *refusal->where == 'u' ? -EOPNOTSUPP : -EIO);
        assert_named(refusal);
        return;
    }
    if (error)
        fail_msg("%s: it cannot be opened: %s", refusal->name, logged);
    error = read_all(dataset, elements);
    if (!strcmp(refusal->where, "elements") || !strcmp(refusal->where, "missing")) {
        assert_int_equal(error, -EIO);
        assert_named(refusal);
    }
    sfs_dataset_close(dataset);
}

static void check_refusal(const struct refusal *refusal)
{
    struct sfs_file *file;
    unsigned n[SFS_UNKNOWN + 1] = {0};
    bool is_unknown = !strcmp(refusal->where, "unknown") || !strcmp(refusal->where, "missing");
    int error = open_file(refusal->name, &file);
    if (!strcmp(refusal->where, "file")) {
        assert_int_equal(error, -EINVAL);
        assert_named(refusal);
        return;
    }
    assert_int_equal(error, 0);
    check_bad(file, refusal);
    check_other(file, refusal->name);
    logged[0] = '\0';
    n_logged = 0;
    assert_int_equal(sfs_check(file, keep_finding, n), 0);
    if (n_logged > 0) /* what it finds it reports, and does not log */
        fail_msg("%s: logged: %s", refusal->name, logged);
    assert_true(is_unknown ? n[SFS_UNKNOWN] > 0 : n[SFS_DAMAGED] > 0);
    if (is_unknown)
        assert_int_equal(n[SFS_DAMAGED], 0);
    assert_named(refusal);
    check_other(file, refusal->name);
    sfs_discard(file);
}

/* ---- All ---- */

static void test_refused(void **state)
{
    (void)state;
    struct refusal refusal;
    size_t n = 0;
    char line[256];
    FILE *table = fopen(REFUSED "/table.txt", "r");
    assert_non_null(table);
    while (fgets(line, sizeof(line), table)) {
        refusal.words[0] = '\0';
        assert_true(
            sscanf(line, "%63s %15s %127[^\n]", refusal.name, refusal.where, refusal.words) >= 2);
        check_refusal(&refusal);
        n++;
    }
    fclose(table);
    assert_true(n > 100);
}

/* What they were made from. */
static void test_sound(void **state)
{
    (void)state;
    static const char *const names[] = {
        "sound_single",
        "sound_empty",
        "sound_filtered",
        "sound_fixed_array",
        "sound_pages",
        "sound_extensible_array",
        "sound_tree",
        "sound_variable_length",
        "sound_continued",
        "sound_values_first",
        "sound_left_out",
        "sound_sectioned_1",
        "sound_sectioned_4",
        "sound_sectioned_8",
        "sound_sectioned_empty",
        "sound_dense_variable_length",
    };
    for (size_t i = 0; i < COUNT(names); i++) {
        struct sfs_file *file;
        unsigned n[SFS_UNKNOWN + 1] = {0};
        assert_int_equal(open_file(names[i], &file), 0);
        check_other(file, names[i]);
        assert_int_equal(sfs_check(file, keep_finding, n), 0);
        if (n[SFS_DAMAGED] + n[SFS_UNKNOWN] > 0)
            fail_msg("%s: %s", names[i], logged);
        sfs_discard(file);
    }
}

/* Chunks of two sections: all elements, and what they lead to. */
static void test_dense_variable_length(void **state)
{
    (void)state;
    static const char *const words[] = {"ab", "", "cde"};
    struct sfs_file *file;
    struct sfs_dataset *dataset;
    struct sfs_sequence *sequences;
    struct sfs_slab slab = {.rank = 1, .count = {3}};
    uint64_t got, counted;
    assert_int_equal(open_file("sound_dense_variable_length", &file), 0);
    assert_int_equal(open_dataset(file, "/bad", &dataset), 0);
    assert_true(sfs_dataset_info(dataset)->is_dense);
    assert_int_equal(sfs_read_sequences(dataset, NULL, &sequences, &got), 0);
    assert_int_equal(got, COUNT(words));
    for (size_t i = 0; i < COUNT(words); i++) {
        assert_int_equal(sequences[i].n, strlen(words[i]));
        assert_memory_equal(sequences[i].elements, words[i], strlen(words[i]));
    }
    assert_int_equal(sfs_count_defined(dataset, &slab, &counted), 0);
    assert_int_equal(counted, COUNT(words));
    free(sequences);
    sfs_dataset_close(dataset);
    sfs_discard(file);
}

/* More elements than bytes are asked for: that none of them can be read does not come up. */
static void test_long_text(void **state)
{
    (void)state;
    struct sfs_file *file;
    struct sfs_dataset *dataset;
    char *text;
    size_t n;
    assert_int_equal(open_file("values_few", &file), 0);
    assert_int_equal(open_dataset(file, "/bad", &dataset), 0);
    assert_int_equal(sfs_text(dataset, 4, &text, &n), -EFBIG);
    assert_int_equal(sfs_text(dataset, 100, &text, &n), -EIO);
    sfs_dataset_close(dataset);
    sfs_discard(file);
}

/* What the prototype has written becomes what the RFC describes when a part of it is erased. */
static void test_variable_length_is_cut(void **state)
{
    (void)state;
    struct sfs_file *file;
    struct sfs_dataset *dataset;
    struct sfs_sequence *sequences;
    uint64_t got;
    unsigned found[SFS_UNKNOWN + 1] = {0};
    char content[MOST_BYTES];
    FILE *from = fopen(REFUSED "/sound_variable_length.h5", "rb"), *to = fopen("cut.h5", "wb");
    assert_true(from && to);
    size_t n = fread(content, 1, sizeof(content), from);
    assert_int_equal(fwrite(content, 1, n, to), n);
    fclose(from);
    assert_int_equal(fclose(to), 0);
    assert_int_equal(sfs_open("cut.h5", &(struct sfs_options){.writable = true}, &file), 0);
    assert_int_equal(open_dataset(file, "/bad", &dataset), 0);
    assert_int_equal(sfs_set_extent(dataset, &(uint64_t){1}), 0);
    sfs_dataset_close(dataset);
    assert_int_equal(sfs_close(file), 0);
    assert_int_equal(sfs_open("cut.h5", NULL, &file), 0);
    assert_int_equal(sfs_check(file, keep_finding, found), 0);
    if (found[SFS_DAMAGED] + found[SFS_UNKNOWN] > 0)
        fail_msg("%s", logged);
    assert_int_equal(open_dataset(file, "/bad", &dataset), 0);
    assert_int_equal(sfs_read_sequences(dataset, NULL, &sequences, &got), 0);
    assert_int_equal(got, 1);
    assert_int_equal(sequences->n, 0);
    free(sequences);
    sfs_dataset_close(dataset);
    assert_int_equal(sfs_close(file), 0);
}

static int listen(void **state)
{
    (void)state;
    sfs_set_log(keep_logged, LOG_ERR);
    return 0;
}

TEST_MAIN(cmocka_unit_test_setup(test_sound, listen), cmocka_unit_test_setup(test_refused, listen),
          cmocka_unit_test_setup(test_dense_variable_length, listen),
          cmocka_unit_test_setup(test_long_text, listen),
          cmocka_unit_test_setup(test_variable_length_is_cut, listen))
