/* Damaged indexes and headers: every byte of small files changed, files cut short, bytes changed at
 * random, with and without the checksums that would notice. What is read is refused or is in range;
 * nothing crashes, hangs or reads outside of its buffers (that is for the sanitizers to see). */
#include "support.h"

#include <errno.h>
#include <fcntl.h>
#include <glob.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/machine_memory.h"
#include "format/structure.h"
#include "index_files.h"

#define UNLIMITED    H5S_UNLIMITED
#define DAMAGED      "damaged.h5"
#define MOST_LOOKUPS 50

/* All checksums but that of the superblock go through here (--wrap=structure_summed). */
static bool checksums_are_right;

int __real_structure_summed(const char *name, uint64_t address, const unsigned char *bytes,
                            size_t n, struct why *why);
int __wrap_structure_summed(const char *name, uint64_t address, const unsigned char *bytes,
                            size_t n, struct why *why);

int __wrap_structure_summed(const char *name, uint64_t address, const unsigned char *bytes,
                            size_t n, struct why *why)
{
    int error = __real_structure_summed(name, address, bytes, n, why);
    return checksums_are_right ? 0 : error;
}

/* The memory of this machine; 0: as it is. */
static uint64_t memory;

uint64_t __real_machine_memory(void);
uint64_t __wrap_machine_memory(void);

uint64_t __wrap_machine_memory(void)
{
    return memory ? memory : __real_machine_memory();
}

/* ---- One file ---- */

struct sample {
    unsigned char *bytes;
    size_t n;
    uint64_t header;
    int fd; /* of the damaged copy */
    size_t n_chunks;
    uint64_t scaled[MOST_LOOKUPS][SFS_MAX_RANK];
    struct chunk_record record[MOST_LOOKUPS];
};

static int remember(void *context, const uint64_t *scaled, const struct chunk_record *record)
{
    struct sample *sample = context;
    if (sample->n_chunks == MOST_LOOKUPS)
        return 1;
    memcpy(sample->scaled[sample->n_chunks], scaled, sizeof(uint64_t) * MAX_AXES);
    sample->record[sample->n_chunks++] = *record;
    return 0;
}

static void load(struct sample *sample, const char *path, const char *name)
{
    struct opened opened;
    struct why why;
    FILE *file = fopen(path, "r");
    assert_non_null(file);
    *sample = (struct sample){.header = header_of(path, name)};
    fseek(file, 0, SEEK_END);
    sample->n = (size_t)ftell(file);
    rewind(file);
    sample->bytes = allocate(sample->n);
    assert_int_equal(fread(sample->bytes, 1, sample->n, file), sample->n);
    fclose(file);
    sample->fd = open(DAMAGED, O_RDWR | O_CREAT | O_TRUNC, 0600);
    assert_true(sample->fd >= 0);
    assert_int_equal(pwrite(sample->fd, sample->bytes, sample->n, 0), sample->n);
    assert_int_equal(open_index(path, sample->header, &opened, &why), 0);
    assert_in_range(index_iterate(opened.index, remember, sample, &why), 0, 1);
    close_index(&opened);
}

static void unload(struct sample *sample)
{
    close(sample->fd);
    free(sample->bytes);
}

/* ---- What may come of it ---- */

static void check_refusal(int error, const struct why *why)
{
    assert_true(error == -EILSEQ || error == -EOPNOTSUPP || error == -EIO || error == -ENOMEM);
    assert_int_not_equal(why->text[0], '\0');
}

static void check_range(const struct opened *o, const struct chunk_record *record)
{
    uint64_t end, sections = 0;
    if (!record->exists)
        return;
    assert_false(__builtin_add_overflow(record->address, record->size, &end));
    assert_true(end <= store_size(o->store));
    for (int i = 0; i < o->format.n_sections; i++)
        sections += chunk_record_section_size(&o->format, record, i);
    assert_true(o->format.n_sections == 0 || sections == record->size);
}

static int check_chunk(void *context, const uint64_t *scaled, const struct chunk_record *record)
{
    struct opened *o = context;
    struct why why = {""};
    struct chunk_record found;
    check_range(o, record);
    int error = index_lookup(o->index, scaled, &found, &why);
    if (error)
        check_refusal(error, &why);
    return 0;
}

/* In memory only: the store is not writable, and nothing is flushed. What is refused is refused;
 * what is not can be looked up. */
static void change_index(const struct sample *sample, struct opened *o)
{
    for (size_t k = 0; k < 2 * sample->n_chunks; k++) {
        size_t i = k % sample->n_chunks;
        bool insert = k >= sample->n_chunks;
        struct why why = {""};
        struct chunk_record found = {0};
        int error = insert ? index_insert(o->index, sample->scaled[i], &sample->record[i], &why)
                           : index_remove(o->index, sample->scaled[i], &why);
        if (error)
            assert_int_not_equal(why.text[0], '\0');
        else if (index_lookup(o->index, sample->scaled[i], &found, &why) == 0)
            check_range(o, &found);
    }
}

/* Returns whether anything was refused or came out otherwise. */
static bool use(const struct sample *sample)
{
    struct opened o;
    struct why why = {""};
    bool noticed = false;
    int error = open_index(DAMAGED, sample->header, &o, &why);
    if (error)
        return true;
    for (size_t i = 0; i < sample->n_chunks; i++) {
        struct chunk_record record = {0};
        error = index_lookup(o.index, sample->scaled[i], &record, &why);
        if (error)
            check_refusal(error, &why);
        else
            check_range(&o, &record);
        noticed |= error || memcmp(&record, &sample->record[i], sizeof(record)) != 0;
    }
    error = index_iterate(o.index, check_chunk, &o, &why);
    if (error)
        check_refusal(error, &why);
    change_index(sample, &o);
    close_index(&o);
    return noticed || error;
}

static void restore(const struct sample *sample, size_t at, size_t n)
{
    assert_int_equal(pwrite(sample->fd, sample->bytes + at, n, (off_t)at), n);
}

static void change(const struct sample *sample, size_t at, unsigned char mask)
{
    unsigned char byte = sample->bytes[at] ^ mask;
    assert_int_equal(pwrite(sample->fd, &byte, 1, (off_t)at), 1);
}

/* Some byte of every few, in one of a few ways. */
static void change_every_byte(const struct sample *sample, size_t step)
{
    for (size_t i = (size_t)random_below(step); i < sample->n; i += step) {
        static const unsigned char masks[] = {0x01, 0x80, 0xff};
        change(sample, i, masks[random_below(COUNT(masks))]);
        use(sample);
        restore(sample, i, 1);
    }
}

static void change_at_random(const struct sample *sample, int times)
{
    while (times-- > 0) {
        size_t n = (size_t)random_between(1, 6), at[6];
        for (size_t i = 0; i < n; i++) {
            at[i] = (size_t)random_below(sample->n);
            change(sample, at[i], (unsigned char)random_between(1, 255));
        }
        use(sample);
        for (size_t i = 0; i < n; i++)
            restore(sample, at[i], 1);
    }
}

static void cut_short(const struct sample *sample, size_t step)
{
    for (size_t n = (size_t)random_below(step); n < sample->n; n += step) {
        assert_int_equal(ftruncate(sample->fd, (off_t)n), 0);
        use(sample);
    }
    restore(sample, 0, sample->n);
}

static void damage(const char *path, const char *name)
{
    struct sample sample;
    load(&sample, path, name);
    assert_false(use(&sample));
    size_t step = sample.n / 1000 + 1;
    checksums_are_right = false;
    change_every_byte(&sample, step);
    cut_short(&sample, step);
    checksums_are_right = true;
    change_every_byte(&sample, step);
    change_at_random(&sample, 500);
    checksums_are_right = false;
    unload(&sample);
}

/* ---- Files ---- */

static void test_dense(void **state)
{
    (void)state;
    static const struct grid grids[] = {
        {"fixed array", true, 2, {6, 7}, {6, 7}, {2, 3}},
        {"paged fixed array", false, 1, {9000}, {9000}, {1}},
        {"extensible array", true, 2, {3, 100}, {3, UNLIMITED}, {1, 2}},
        {"super blocks", false, 1, {1100}, {UNLIMITED}, {1}},
        {"leaf", true, 2, {7, 7}, {UNLIMITED, UNLIMITED}, {1, 1}},
        {"tree", false, 2, {300, 70}, {UNLIMITED, UNLIMITED}, {1, 1}},
    };
    static const size_t n_chunks[COUNT(grids)] = {5, 3, 20, 20, 20, 700};
    for (size_t i = 0; i < COUNT(grids); i++) {
        hsize_t positions[2 * 700];
        for (size_t k = 0; k < n_chunks[i] * (size_t)grids[i].rank; k++) {
            size_t axis = k % (size_t)grids[i].rank;
            positions[k] = random_below(grids[i].dims[axis] / grids[i].chunk_dims[axis]);
        }
        make_dense("sound.h5", &grids[i], positions, n_chunks[i]);
        damage("sound.h5", "x");
    }
}

/* The changes where most of an extensible array is: one chunk in a paged data block. */
static void test_paged_data_block(void **state)
{
    (void)state;
    static const struct grid grid = {"pages", false, 1, {140000}, {UNLIMITED}, {1}};
    const hsize_t position = 139999;
    make_dense("sound.h5", &grid, &position, 1);
    damage("sound.h5", "x");
}

static void test_sparse(void **state)
{
    (void)state;
    const char *folder = getenv("SPARSEFS_TEST_DATA");
    char pattern[4096];
    glob_t found;
    snprintf(pattern, sizeof(pattern), "%s/prototype/*.h5", folder ? folder : EXTRA_DATA);
    if (glob(pattern, 0, NULL, &found) != 0)
        skip();
    for (size_t i = 0; i < found.gl_pathc; i++)
        damage(found.gl_pathv[i], "sparse");
    globfree(&found);
}

/* Changes the page bits in the header of a fixed array. */
static void set_page_bits(const char *path, unsigned char bits)
{
    unsigned char bytes[8192];
    int fd = open(path, O_RDWR);
    assert_int_equal(pread(fd, bytes, sizeof(bytes), 0), sizeof(bytes));
    const unsigned char *header = memmem(bytes, sizeof(bytes), "FAHD", 4);
    assert_non_null(header);
    assert_int_equal(pwrite(fd, &bits, 1, header - bytes + 7), 1);
    close(fd);
}

static bool wants_to_end(void *context)
{
    (void)context;
    return true;
}

static const struct grid many = {"of many", false, 1, {800000}, {800000}, {1}};

/* A data block that is one of 6 MiB. */
static void test_large_blocks(void **state)
{
    (void)state;
    struct opened opened[4];
    struct why why = {""};
    make_dense("large.h5", &many, (const hsize_t[]){5}, 1);
    set_page_bits("large.h5", 31);
    uint64_t header = header_of("large.h5", "x");
    checksums_are_right = true;
    memory = 4 * (uint64_t)(20 << 20);
    sfs_set_interrupt(wants_to_end, NULL);
    assert_int_equal(open_index("large.h5", header, &opened[0], &why), -EINTR);
    sfs_set_interrupt(NULL, NULL);
    for (int i = 0; i < 3; i++) {
        assert_int_equal(open_index("large.h5", header, &opened[i], &why), 0);
        assert_in_range(index_kept_bytes(opened[i].index), 6400000, 6400100);
    }
    assert_int_equal(open_index("large.h5", header, &opened[3], &why), -ENOMEM);
    close_index(&opened[0]);
    assert_int_equal(open_index("large.h5", header, &opened[3], &why), 0);
    for (int i = 1; i < 4; i++)
        close_index(&opened[i]);
    memory = 0;
    checksums_are_right = false;
}

static int pass_over(void *context, const uint64_t *scaled, const struct chunk_record *record)
{
    (void)context;
    (void)scaled;
    (void)record;
    return 0;
}

static int count_chunk(void *context, const uint64_t *scaled, const struct chunk_record *record)
{
    size_t *n = context;
    (void)scaled;
    *n += record->exists;
    return 0;
}

/* Has all data blocks say that they are in another place, or the last one stand in all places of its super block. */
static void move_blocks(const char *path, bool are_one)
{
    static const unsigned char none[8] = {0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff};
    struct stat st;
    unsigned char *last = NULL, *at = NULL;
    int fd = open(path, O_RDWR);
    assert_int_equal(fstat(fd, &st), 0);
    size_t n = (size_t)st.st_size;
    unsigned char *bytes = allocate(n);
    assert_int_equal(pread(fd, bytes, n, 0), n);
    for (at = bytes; (at = memmem(at, n - (size_t)(at - bytes), "EADB", 4)); at++) {
        last = at;
        if (!are_one)
            memset(at + 14, 0x55, 4);
    }
    assert_non_null(last);
    uint64_t address = htole64((uint64_t)(last - bytes));
    unsigned char *super = memmem(bytes, n, "EASB", 4);
    if (are_one) {
        assert_non_null(super);
        at = memmem(super, n - (size_t)(super - bytes), &address, sizeof(address));
        assert_non_null(at);
        for (at -= 8; memcmp(at, none, sizeof(none)) == 0; at -= 8)
            memcpy(at, &address, sizeof(address));
    }
    assert_int_equal(pwrite(fd, bytes, n, 0), n);
    assert_int_equal(ftruncate(fd, (off_t)1 << 40), 0);
    free(bytes);
    close(fd);
}

/* Where data blocks of an extensible array say that they are libhdf5 does not look, and one may be in other places, but
 * not in very many. */
static void test_blocks_elsewhere(void **state)
{
    (void)state;
    static const hsize_t few[] = {0, 30, 70, 3000}, far = 67076084;
    const struct grid grid = {"that grows", false, 1, {67076090}, {UNLIMITED}, {1}};
    struct opened opened;
    struct why why = {""};
    size_t n = 0;
    make_dense("elsewhere.h5", &grid, few, COUNT(few));
    move_blocks("elsewhere.h5", false);
    checksums_are_right = true;
    assert_int_equal(open_index("elsewhere.h5", header_of("elsewhere.h5", "x"), &opened, &why), 0);
    assert_int_equal(index_iterate(opened.index, count_chunk, &n, &why), 0);
    assert_int_equal(n, COUNT(few));
    close_index(&opened);
    make_dense("elsewhere.h5", &grid, &far, 1);
    move_blocks("elsewhere.h5", true);
    assert_int_equal(open_index("elsewhere.h5", header_of("elsewhere.h5", "x"), &opened, &why), 0);
    assert_int_equal(index_iterate(opened.index, count_chunk, &n, &why), -EILSEQ);
    assert_non_null(strstr(why.text, "its offset is that of another"));
    close_index(&opened);
    checksums_are_right = false;
}

/* Places in which there is nothing take time, too. */
static void test_walks_are_interrupted(void **state)
{
    (void)state;
    static const hsize_t positions[] = {0, 1, 200000, 300000, 400000, 500000, 600000, 700000};
    static const struct grid grids[] = {
        {"of pages", false, 1, {800000}, {800000}, {1}},
        {"that grows", false, 1, {800000}, {H5S_UNLIMITED}, {1}},
        {"of many axes", false, 2, {4, 4}, {H5S_UNLIMITED, H5S_UNLIMITED}, {1, 1}},
    };
    for (size_t i = 0; i < sizeof(grids) / sizeof(*grids); i++) {
        const struct grid *grid = &grids[i];
        struct opened opened;
        struct why why = {""};
        make_dense("walked.h5", grid, positions, grid->rank == 1 ? 8 : 1);
        assert_int_equal(open_index("walked.h5", header_of("walked.h5", "x"), &opened, &why), 0);
        sfs_set_interrupt(wants_to_end, NULL);
        assert_int_equal(index_iterate(opened.index, pass_over, NULL, &why), -EINTR);
        sfs_set_interrupt(NULL, NULL);
        assert_int_equal(index_iterate(opened.index, pass_over, NULL, &why), 0);
        close_index(&opened);
    }
}

/* Pages of 1 MiB, of which so many may be in memory as take 4 MiB. */
static void test_large_pages(void **state)
{
    (void)state;
    struct opened opened[2];
    struct why why = {""};
    make_dense("large.h5", &many, (const hsize_t[]){0, 1024, 2048, 3072, 4096, 5120, 6144, 7168},
               8);
    set_page_bits("large.h5", 17);
    checksums_are_right = true;
    memory = 4 * (uint64_t)(8 << 20);
    for (int i = 0; i < 2; i++)
        assert_int_equal(open_index("large.h5", header_of("large.h5", "x"), &opened[i], &why), 0);
    for (uint64_t at = 0; at < 800000; at += 10000)
        for (int i = 0; i < 2; i++) {
            struct chunk_record record;
            assert_int_not_equal(index_lookup(opened[i].index, &at, &record, &why), -ENOMEM);
        }
    size_t kept = index_kept_bytes(opened[0].index) + index_kept_bytes(opened[1].index);
    assert_in_range(kept, 3 << 20, 5 << 20);
    for (int i = 0; i < 2; i++)
        close_index(&opened[i]);
    memory = 0;
    checksums_are_right = false;
}

static int quiet(void **state)
{
    (void)state;
    log_quietly();
    return 0;
}

TEST_MAIN(cmocka_unit_test_setup(test_dense, quiet),
          cmocka_unit_test_setup(test_paged_data_block, quiet),
          cmocka_unit_test_setup(test_sparse, quiet),
          cmocka_unit_test_setup(test_large_blocks, quiet),
          cmocka_unit_test_setup(test_blocks_elsewhere, quiet),
          cmocka_unit_test_setup(test_walks_are_interrupted, quiet),
          cmocka_unit_test_setup(test_large_pages, quiet))
