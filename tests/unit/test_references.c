/* References in elements of sparse datasets: as libhdf5 stores them where it does, refused where they
 * are none, and set to what they name in a copy of their file. */
#include "support.h"

#include <errno.h>
#include <hdf5.h>
#include <stdlib.h>
#include <string.h>

#include "format/structure.h"
#include "sparsefs/hdf5.h"
#include "sparsefs/sparsefs.h"

#define PATH "references.h5"
#define COPY "copy.h5"

enum { N = 8, CHUNK = 4 };

static const struct sfs_slab everything = {.rank = 1, .count = {N}};

/* ---- A file ---- */

/* Objects that references lead to, at addresses that depend on how much is before. */
static void make_objects(const char *path, size_t before)
{
    const hsize_t dims[2] = {6, 10}, many = 1 + before;
    hid_t file = H5Fcreate(path, H5F_ACC_TRUNC, H5P_DEFAULT, H5P_DEFAULT);
    hid_t space = H5Screate_simple(2, dims, NULL), row = H5Screate_simple(1, &many, NULL);
    for (size_t i = 0; i < before; i++)
        H5Gclose(
            H5Gcreate2(file, (char[]){'a' + (char)i, '\0'}, H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT));
    H5Gclose(H5Gcreate2(file, "group", H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT));
    H5Dclose(
        H5Dcreate2(file, "group/x", H5T_STD_I32LE, space, H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT));
    H5Dclose(H5Dcreate2(file, "row", H5T_STD_I8LE, row, H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT));
    H5Sclose(row);
    H5Sclose(space);
    assert_true(H5Fclose(file) >= 0);
}

static uint64_t address_of(struct sfs_file *file, const char *path)
{
    uint64_t address;
    assert_int_equal(sfs_find(file, sfs_root(file), path, &address), 0);
    return address;
}

static struct sfs_file *open_writable(const char *path)
{
    const struct sfs_options options = {.writable = true};
    struct sfs_file *file;
    assert_int_equal(sfs_open(path, &options, &file), 0);
    return file;
}

/* Closes the type. */
static struct sfs_dataset *create(struct sfs_file *file, const char *path, hid_t type)
{
    struct sfs_dataset_create create = {
        .rank = 1, .dims = {N}, .max_dims = {N}, .chunk_dims = {CHUNK}};
    struct sfs_dataset *dataset;
    assert_int_equal(sfs_h5_encode(type, 1, &create.type), 0);
    assert_int_equal(sfs_dataset_create(file, path, &create, &dataset), 0);
    free((void *)create.type.bytes);
    H5Tclose(type);
    return dataset;
}

static struct sfs_sequence object(uint64_t address)
{
    struct sfs_sequence sequence;
    void *bytes;
    size_t n;
    assert_int_equal(sfs_reference_encode(address, NULL, &bytes, &n), 0);
    sequence.elements = bytes;
    sequence.n = n;
    return sequence;
}

static struct sfs_sequence region(uint64_t address, hid_t space)
{
    struct sfs_sequence sequence;
    void *bytes;
    size_t n;
    assert_int_equal(sfs_h5_reference(address, space, &bytes, &n), 0);
    sequence.elements = bytes;
    sequence.n = n;
    return sequence;
}

static void drop(struct sfs_sequence *sequence)
{
    free((void *)sequence->elements);
}

/* Of 6 x 10 elements: 0 a block, 1 every second row, 2 points, 3 all. */
static hid_t space_of(unsigned kind)
{
    const hsize_t dims[2] = {6, 10}, start[2] = {2, 3}, count[2] = {3, 4};
    const hsize_t step[2] = {2, 1}, rows[2] = {3, 10}, origin[2] = {0};
    const hsize_t points[] = {5, 1, 0, 9, 2, 2};
    hid_t space = H5Screate_simple(2, dims, NULL);
    if (kind == 0)
        H5Sselect_hyperslab(space, H5S_SELECT_SET, start, NULL, count, NULL);
    else if (kind == 1)
        H5Sselect_hyperslab(space, H5S_SELECT_SET, origin, step, rows, NULL);
    else if (kind == 2)
        H5Sselect_elements(space, H5S_SELECT_SET, 3, points);
    return space;
}

/* ---- As libhdf5 stores them ---- */

/* Object `index` of a collection of a global heap, as what a reference to a region leads to. */
static size_t heap_object(const char *path, const unsigned char *reference, unsigned char *to)
{
    unsigned char head[16];
    uint64_t address;
    uint32_t index;
    FILE *file = fopen(path, "rb");
    memcpy(&address, reference, sizeof(address));
    memcpy(&index, reference + sizeof(address), sizeof(index));
    fseek(file, (long)address + 16, SEEK_SET);
    for (;;) {
        uint64_t n;
        assert_int_equal(fread(head, 1, sizeof(head), file), sizeof(head));
        memcpy(&n, head + 8, sizeof(n));
        if ((head[0] | head[1] << 8) == (int)index) {
            assert_true(n < 1000);
            assert_int_equal(fread(to, 1, n, file), n);
            fclose(file);
            return n;
        }
        fseek(file, (long)((n + 7) / 8 * 8), SEEK_CUR);
    }
}

static void regions_are_what_libhdf5_stores(void **state)
{
    (void)state;
    hdset_reg_ref_t references[4];
    hobj_ref_t address;
    make_objects(PATH, 0);
    hid_t file = H5Fopen(PATH, H5F_ACC_RDWR, H5P_DEFAULT);
    assert_true(H5Rcreate(&address, file, "group/x", H5R_OBJECT, -1) >= 0);
    for (unsigned k = 0; k < 4; k++) {
        hid_t space = space_of(k);
        assert_true(H5Rcreate(&references[k], file, "group/x", H5R_DATASET_REGION, space) >= 0);
        H5Sclose(space);
    }
    assert_true(H5Fclose(file) >= 0);
    for (unsigned k = 0; k < 4; k++) {
        unsigned char wanted[1000];
        hid_t space = space_of(k);
        struct sfs_sequence made = region(address, space);
        assert_int_equal(heap_object(PATH, (const unsigned char *)&references[k], wanted), made.n);
        assert_memory_equal(made.elements, wanted, made.n);
        assert_int_equal(sfs_reference_address(&made), address);
        drop(&made);
        H5Sclose(space);
    }
    struct sfs_sequence made = object(address);
    assert_int_equal(made.n, sizeof(address));
    assert_memory_equal(made.elements, &address, sizeof(address));
    drop(&made);
}

/* Section 1 leads to section 2, where the address is, and of a region what is selected. */
static void they_stand_in_the_heap(void **state)
{
    (void)state;
    static const unsigned char wanted[] = {0,    0,    0, 0, /* unused */
                                           0x34, 0x12, 0, 0, 0, 0, 0, 0, 3, 0, 0, 0,
                                           1,    0,    0, 0, 0, 0, 0, 0, 0, 0, 0, 0};
    const uint64_t at = 0, slots[] = {4, 8, 0, 0}, of_region[] = {4, 24};
    make_objects(PATH, 0);
    struct sfs_file *file = open_writable(PATH);
    for (int is_region = 0; is_region < 2; is_region++) {
        hid_t all = space_of(3);
        struct sfs_dataset *dataset =
            create(file, is_region ? "/regions" : "/objects",
                   H5Tcopy(is_region ? H5T_STD_REF_DSETREG : H5T_STD_REF_OBJ));
        const struct sfs_slab slab = {.rank = 1, .count = {is_region ? 1 : 2}};
        struct sfs_sequence given[2] = {is_region ? region(0x1234, all) : object(0x1234)};
        struct sfs_chunk_info info;
        unsigned char section[3][200];
        assert_int_equal(sfs_dataset_info(dataset)->type.size, 16);
        assert_int_equal(sfs_write(dataset, &slab, given), 0);
        assert_int_equal(sfs_chunk_info(dataset, &at, &info), 0);
        assert_int_equal(info.section_size[1], (is_region ? 16 : 32) + 4);
        assert_int_equal(info.section_size[2], (is_region ? 28 : 12) + 4);
        assert_int_equal(
            sfs_read_chunk(dataset, &info, (void *const[]){section[0], section[1], section[2]}), 0);
        assert_memory_equal(section[1], is_region ? of_region : slots, is_region ? 16 : 32);
        assert_memory_equal(section[2], wanted, is_region ? 28 : 12);
        drop(given);
        H5Sclose(all);
        sfs_dataset_close(dataset);
    }
    assert_int_equal(sfs_close(file), 0);
}

static void regions_are_selections_of_their_dataset(void **state)
{
    (void)state;
    make_objects(PATH, 0);
    struct sfs_file *file = open_writable(PATH);
    struct sfs_dataset *x, *row;
    uint64_t address = address_of(file, "/group/x");
    hid_t got = H5I_INVALID_HID;
    void *bytes;
    size_t n;
    assert_int_equal(sfs_dataset_open(file, address, "/group/x", &x), 0);
    assert_int_equal(sfs_dataset_open(file, address_of(file, "/row"), "/row", &row), 0);
    for (unsigned k = 0; k < 4; k++) {
        hid_t space = space_of(k);
        struct sfs_sequence reference = region(address, space), cut = reference;
        assert_int_equal(sfs_h5_reference_region(x, &reference, &got), 0);
        assert_int_equal(H5Sget_select_npoints(got), H5Sget_select_npoints(space));
        assert_int_equal(H5Sget_select_type(got), H5Sget_select_type(space));
        assert_int_equal(H5Sget_simple_extent_ndims(got), 2);
        H5Sclose(got);
        if (k < 3)
            assert_int_equal(sfs_h5_reference_region(row, &reference, &got), -EINVAL);
        for (cut.n = 0; cut.n < reference.n; cut.n++)
            assert_int_equal(sfs_h5_reference_region(x, &cut, &got), -EINVAL);
        drop(&reference);
        H5Sclose(space);
    }
    assert_int_equal(
        sfs_reference_encode(address, &(struct sfs_encoded){"no dataspace", 12}, &bytes, &n),
        -EINVAL);
    assert_int_equal(sfs_reference_address(&(struct sfs_sequence){{NULL}, 0}), 0);
    sfs_dataset_close(row);
    sfs_dataset_close(x);
    assert_int_equal(sfs_close(file), 0);
}

/* ---- What is none ---- */

static void refuse(struct sfs_dataset *dataset, const void *element)
{
    const struct sfs_slab slab = {.rank = 1, .start = {1}, .count = {1}};
    struct sfs_interval intervals[] = {{0, 0}, {0, 1}};
    const struct sfs_defined defined = {1, intervals, 1};
    const hsize_t dims = N, one = 1;
    struct sfs_encoded space, memory;
    hid_t all = H5Screate_simple(1, &dims, NULL), packed = H5Screate_simple(1, &one, NULL);
    H5Sselect_elements(all, H5S_SELECT_SET, 1, &one);
    assert_int_equal(sfs_h5_encode_space(all, &space), 0);
    assert_int_equal(sfs_h5_encode_space(packed, &memory), 0);
    assert_int_equal(sfs_write(dataset, &slab, element), -EINVAL);
    assert_int_equal(sfs_write_values(dataset, &slab, &defined, element), -EINVAL);
    assert_int_equal(sfs_dataset_write(dataset, NULL, &memory, &space, element), -EINVAL);
    free((void *)space.bytes);
    free((void *)memory.bytes);
    H5Sclose(packed);
    H5Sclose(all);
}

static void check_unchanged(struct sfs_dataset *dataset, const struct sfs_sequence *wanted)
{
    void *elements;
    uint64_t n;
    assert_int_equal(sfs_count_defined(dataset, &everything, &n), 0);
    assert_int_equal(n, 1);
    assert_int_equal(sfs_read_elements(dataset, &everything, &elements), 0);
    const struct sfs_sequence *got = elements;
    assert_int_equal(got->n, wanted->n);
    assert_memory_equal(got->elements, wanted->elements, wanted->n);
    free(elements);
}

/* What may follow the address of a region, spoilt in one byte each. */
static void refuse_regions(struct sfs_dataset *dataset, const struct sfs_sequence *sound)
{
    static const struct {
        size_t at;
        unsigned char to;
    } changes[] = {{8, 4},  {8, 1},  {12, 0},  {12, 4}, {12, 2},  {16, 1},
                   {20, 1}, {24, 0}, {24, 33}, {28, 2}, {35, 255}};
    unsigned char bytes[100];
    struct sfs_sequence reference = {.elements = bytes};
    assert_true(sound->n <= sizeof(bytes));
    for (size_t i = 0; i < COUNT(changes); i++) {
        memcpy(bytes, sound->elements, sound->n);
        bytes[changes[i].at] = changes[i].to;
        reference.n = sound->n;
        refuse(dataset, &reference);
    }
    memcpy(bytes, sound->elements, sound->n);
    for (reference.n = 1; reference.n < sizeof(bytes); reference.n++)
        if (reference.n != sound->n)
            refuse(dataset, &reference);
}

static void what_is_none_is_refused(void **state)
{
    (void)state;
    static const char bytes[100];
    const struct sfs_slab first = {.rank = 1, .count = {1}};
    log_quietly();
    make_objects(PATH, 0);
    struct sfs_file *file = open_writable(PATH);
    struct sfs_dataset *objects = create(file, "/objects", H5Tcopy(H5T_STD_REF_OBJ));
    struct sfs_dataset *regions = create(file, "/regions", H5Tcopy(H5T_STD_REF_DSETREG));
    struct sfs_dataset *inner = create(file, "/inner", H5Tvlen_create(H5T_STD_REF_OBJ));
    hid_t space = space_of(0);
    struct sfs_sequence sound = region(0x60, space), leads = object(0x60), wrong = {{bytes}, 0};
    assert_int_equal(sfs_write(objects, &first, &leads), 0);
    assert_int_equal(sfs_write(regions, &first, &sound), 0);
    for (wrong.n = 1; wrong.n < 20; wrong.n++) {
        struct sfs_sequence outer = {{&wrong}, 1};
        if (wrong.n != 8)
            refuse(objects, &wrong);
        if (wrong.n != 8)
            refuse(inner, &outer);
    }
    refuse_regions(regions, &sound);
    check_unchanged(objects, &leads);
    check_unchanged(regions, &sound);
    drop(&sound);
    drop(&leads);
    H5Sclose(space);
    sfs_dataset_close(inner);
    sfs_dataset_close(regions);
    sfs_dataset_close(objects);
    assert_int_equal(sfs_close(file), 0);
}

static void count_findings(void *context, enum sfs_finding finding, const char *line)
{
    unsigned *n = context;
    (void)line;
    n[finding]++;
}

/* The first chunk with a number of 8 bytes changed in a section; -EINVAL: it is not taken. */
static void refuse_chunk(struct sfs_dataset *dataset, int number, size_t offset, uint64_t to)
{
    const uint64_t at = 0;
    struct sfs_chunk_info info;
    static unsigned char section[3][1000];
    assert_int_equal(sfs_chunk_info(dataset, &at, &info), 0);
    void *const into[] = {section[0], section[1], section[2]};
    const void *const from[] = {section[0], section[1], section[2]};
    assert_int_equal(sfs_read_chunk(dataset, &info, into), 0);
    memcpy(section[number] + offset, &to, sizeof(to));
    structure_sum(section[number], info.section_size[number]);
    assert_int_equal(sfs_write_chunk(dataset, &info, from), -EINVAL);
}

/* Chunks that others have written, in which lengths and selections are none. */
static void what_is_stored_is_checked(void **state)
{
    (void)state;
    const struct sfs_slab first = {.rank = 1, .count = {1}};
    unsigned n[SFS_UNKNOWN + 1] = {0};
    log_quietly();
    make_objects(PATH, 0);
    struct sfs_file *file = open_writable(PATH);
    struct sfs_dataset *objects = create(file, "/objects", H5Tcopy(H5T_STD_REF_OBJ));
    struct sfs_dataset *regions = create(file, "/regions", H5Tcopy(H5T_STD_REF_DSETREG));
    struct sfs_dataset *inner = create(file, "/inner", H5Tvlen_create(H5T_STD_REF_DSETREG));
    hid_t space = space_of(0);
    struct sfs_sequence sound = region(0x60, space), leads = object(0x60), outer = {{&sound}, 1};
    assert_int_equal(sfs_write(objects, &first, &leads), 0);
    assert_int_equal(sfs_write(regions, &first, &sound), 0);
    assert_int_equal(sfs_write(inner, &first, &outer), 0);
    refuse_chunk(objects, 1, 8, 7);
    refuse_chunk(objects, 1, 0, 5);
    refuse_chunk(regions, 1, 8, 8);
    refuse_chunk(regions, 2, 4 + 8, 7);
    refuse_chunk(inner, 2, 4 + 8 + 8, 7);
    drop(&sound);
    drop(&leads);
    H5Sclose(space);
    sfs_dataset_close(inner);
    sfs_dataset_close(regions);
    sfs_dataset_close(objects);
    assert_int_equal(sfs_close(file), 0);
    assert_int_equal(sfs_open(PATH, NULL, &file), 0);
    assert_int_equal(sfs_check(file, count_findings, n), 0);
    assert_int_equal(n[SFS_DAMAGED] + n[SFS_UNKNOWN], 0);
    assert_int_equal(sfs_close(file), 0);
}

/* ---- Copies ---- */

/* A dataset like another, with its chunks as they are. */
static int copy_chunk(void *context, const struct sfs_chunk_info *info)
{
    struct sfs_dataset **datasets = context;
    static unsigned char section[3][4000];
    void *const into[] = {section[0], section[1], section[2]};
    const void *const from[] = {section[0], section[1], section[2]};
    assert_int_equal(sfs_read_chunk(datasets[0], info, into), 0);
    assert_int_equal(sfs_write_chunk(datasets[1], info, from), 0);
    return 0;
}

static const char *const paths[] = {"/group", "/group/x", "/objects", "/nested", "/regions"};

static int by_address(const void *a, const void *b)
{
    const struct sfs_moved *x = a, *y = b;
    return (x->address > y->address) - (x->address < y->address);
}

/* An object, and a region in a sequence: {object, {region, object}}. */
static hid_t nested(void)
{
    hid_t inner = H5Tcreate(H5T_COMPOUND, 20), outer = H5Tcreate(H5T_COMPOUND, 24);
    H5Tinsert(inner, "region", 0, H5T_STD_REF_DSETREG);
    H5Tinsert(inner, "object", 12, H5T_STD_REF_OBJ);
    hid_t sequence = H5Tvlen_create(inner);
    H5Tinsert(outer, "object", 0, H5T_STD_REF_OBJ);
    H5Tinsert(outer, "parts", 8, sequence);
    H5Tclose(sequence);
    H5Tclose(inner);
    return outer;
}

/* Datasets of references to all of `paths`, and to /row, which is not copied. */
static void write_references(struct sfs_file *file)
{
    hid_t space = space_of(1);
    struct sfs_dataset *objects = create(file, "/objects", H5Tcopy(H5T_STD_REF_OBJ));
    struct sfs_dataset *all = create(file, "/nested", nested());
    struct sfs_dataset *regions = create(file, "/regions", H5Tcopy(H5T_STD_REF_DSETREG));
    struct sfs_sequence to[N] = {{{NULL}, 0}};
    for (size_t i = 0; i < COUNT(paths); i++)
        to[i] = object(address_of(file, paths[i]));
    to[5] = object(address_of(file, "/row"));
    to[6] = object(12345);
    assert_int_equal(sfs_write(objects, &everything, to), 0);
    struct sfs_sequence part[2] = {region(address_of(file, "/group/x"), space), to[3]};
    struct sfs_sequence lost[2] = {region(address_of(file, "/row"), space), {{NULL}, 0}};
    const struct sfs_slab one = {.rank = 1, .start = {5}, .count = {1}};
    struct sfs_sequence parts[4];
    memcpy(parts, part, sizeof(part));
    memcpy(parts + 2, lost, sizeof(lost));
    const struct sfs_sequence element[2] = {to[4], {{parts}, 2}};
    assert_int_equal(sfs_write(all, &one, element), 0);
    assert_int_equal(sfs_write(regions, &one, part), 0);
    for (size_t i = 0; i < 7; i++)
        drop(&to[i]);
    drop(part);
    drop(lost);
    H5Sclose(space);
    sfs_dataset_close(regions);
    sfs_dataset_close(all);
    sfs_dataset_close(objects);
}

/* Copies them with the references as they are, and says where the objects are. */
static void copy_all(struct sfs_file *from, struct sfs_file *to, struct sfs_moved *moved)
{
    for (size_t i = 0; i < COUNT(paths); i++)
        moved[i] = (struct sfs_moved){address_of(from, paths[i]), paths[i]};
    for (size_t i = 2; i < COUNT(paths); i++) {
        struct sfs_dataset *datasets[2];
        assert_int_equal(sfs_dataset_open(from, moved[i].address, paths[i], &datasets[0]), 0);
        datasets[1] =
            create(to, paths[i],
                   i == 3 ? nested() : H5Tcopy(i == 2 ? H5T_STD_REF_OBJ : H5T_STD_REF_DSETREG));
        assert_int_equal(sfs_chunk_iterate(datasets[0], copy_chunk, datasets), 0);
        sfs_dataset_close(datasets[1]);
        sfs_dataset_close(datasets[0]);
    }
    qsort(moved, COUNT(paths), sizeof(*moved), by_address);
}

static void *read_all(struct sfs_file *file, const char *path)
{
    struct sfs_dataset *dataset;
    void *elements;
    assert_int_equal(sfs_dataset_open(file, address_of(file, path), path, &dataset), 0);
    assert_int_equal(sfs_read_elements(dataset, &everything, &elements), 0);
    sfs_dataset_close(dataset);
    return elements;
}

/* What leads nowhere has no bytes at all. */
static void check_leads(struct sfs_file *file, const struct sfs_sequence *reference,
                        const char *path)
{
    assert_int_equal(sfs_reference_address(reference), path ? address_of(file, path) : 0);
    assert_int_equal(reference->n == 0, path == NULL);
}

static void check_copy(struct sfs_file *file)
{
    struct sfs_sequence *objects = read_all(file, "/objects"), inner[4], part[2];
    for (size_t i = 0; i < COUNT(paths); i++)
        check_leads(file, &objects[i], paths[i]);
    check_leads(file, &objects[5], NULL);
    check_leads(file, &objects[6], NULL);
    check_leads(file, &objects[7], NULL);
    struct sfs_sequence *all = read_all(file, "/nested");
    memcpy(part, all + 2 * 5, sizeof(part));
    check_leads(file, &part[0], "/regions");
    assert_int_equal(part[1].n, 2);
    memcpy(inner, part[1].elements, sizeof(inner));
    check_leads(file, &inner[0], "/group/x");
    check_leads(file, &inner[1], "/nested");
    check_leads(file, &inner[2], NULL);
    check_leads(file, &inner[3], NULL);
    struct sfs_sequence *regions = read_all(file, "/regions");
    check_leads(file, &regions[5], "/group/x");
    hid_t space = space_of(1);
    struct sfs_sequence wanted = region(address_of(file, "/group/x"), space);
    assert_int_equal(regions[5].n, wanted.n);
    assert_memory_equal(regions[5].elements, wanted.elements, wanted.n);
    H5Sclose(space);
    drop(&wanted);
    free(regions);
    free(all);
    free(objects);
}

static void they_lead_to_the_copies(void **state)
{
    (void)state;
    struct sfs_moved moved[COUNT(paths)];
    make_objects(PATH, 0);
    make_objects(COPY, 9);
    struct sfs_file *from = open_writable(PATH), *to = open_writable(COPY);
    write_references(from);
    copy_all(from, to, moved);
    assert_int_not_equal(address_of(from, "/group/x"), address_of(to, "/group/x"));
    for (int again = 0; again < 2; again++) {
        for (size_t i = 0; i < COUNT(paths); i++)
            assert_int_equal(
                sfs_references_copy(to, moved[i].path, from, moved[i].address, moved, COUNT(paths)),
                0);
        check_copy(to);
        assert_int_equal(sfs_flush(to), 0);
    }
    assert_int_equal(sfs_references_copy(to, "/missing", from, address_of(from, "/objects"), moved,
                                         COUNT(paths)),
                     -ENOENT);
    for (size_t i = 1; i < 4; i++)
        if (i != 2)
            assert_int_equal(sfs_references_copy(to, paths[i], from, address_of(from, "/objects"),
                                                 moved, COUNT(paths)),
                             -EINVAL);
    check_copy(to);
    assert_int_equal(sfs_close(from), 0);
    assert_int_equal(sfs_close(to), 0);
}

/* ---- A copy that cannot be encoded ---- */

#define FILTER 400 /* of tests */

static bool refuses; /* what is to be encoded */

static size_t refuse_or_keep(unsigned flags, size_t n_values, const unsigned *values, size_t n,
                             size_t *buffer_size, void **buffer)
{
    (void)n_values, (void)values, (void)buffer_size, (void)buffer;
    return refuses && !(flags & H5Z_FLAG_REVERSE) ? 0 : n;
}

/* Else they would be committed as they were copied, with addresses of the source. */
static void they_are_encoded_at_once(void **state)
{
    (void)state;
    static const H5Z_class2_t class = {.version = H5Z_CLASS_T_VERS,
                                       .id = FILTER,
                                       .encoder_present = 1,
                                       .decoder_present = 1,
                                       .name = "refuses or keeps",
                                       .filter = refuse_or_keep};
    static const struct sfs_filter filter = {.id = FILTER};
    struct sfs_dataset_create options = {.rank = 1,
                                         .dims = {N},
                                         .max_dims = {N},
                                         .chunk_dims = {CHUNK},
                                         .n_filters = {0, 1},
                                         .filters = {NULL, &filter}};
    struct sfs_dataset *datasets[2];
    log_quietly();
    assert_true(H5Zregister(&class) >= 0);
    make_objects(PATH, 0);
    make_objects(COPY, 9);
    struct sfs_file *files[] = {open_writable(PATH), open_writable(COPY)};
    assert_int_equal(sfs_h5_encode(H5T_STD_REF_OBJ, 1, &options.type), 0);
    for (int i = 0; i < 2; i++)
        assert_int_equal(sfs_dataset_create(files[i], "/objects", &options, &datasets[i]), 0);
    struct sfs_sequence sequences[N] = {object(address_of(files[0], "/group/x"))};
    assert_int_equal(sfs_write(datasets[0], &everything, sequences), 0);
    assert_int_equal(sfs_flush(files[0]), 0);
    assert_int_equal(sfs_chunk_iterate(datasets[0], copy_chunk, datasets), 0);
    sfs_dataset_close(datasets[1]);
    const struct sfs_moved moved = {address_of(files[0], "/group/x"), "/group/x"};
    for (int i = 0; i < 2; i++) {
        refuses = i == 0;
        assert_int_equal(sfs_references_copy(files[1], "/objects", files[0],
                                             address_of(files[0], "/objects"), &moved, 1),
                         refuses ? -EIO : 0);
    }
    struct sfs_sequence *copied = read_all(files[1], "/objects");
    check_leads(files[1], &copied[0], "/group/x");
    free(copied);
    drop(&sequences[0]);
    free((void *)options.type.bytes);
    sfs_dataset_close(datasets[0]);
    for (int i = 0; i < 2; i++)
        assert_int_equal(sfs_close(files[i]), 0);
    assert_true(H5Zunregister(FILTER) >= 0);
}

/* ---- Kinds ---- */

/* A hdset_reg_ref_t leads into a heap of a file that libhdf5 has open. */
static void regions_have_no_handles(void **state)
{
    (void)state;
    static hdset_reg_ref_t references[N];
    make_objects(PATH, 0);
    struct sfs_file *file = open_writable(PATH);
    struct sfs_dataset *regions = create(file, "/regions", H5Tcopy(H5T_STD_REF_DSETREG));
    assert_int_equal(sfs_h5_write(regions, H5T_STD_REF_DSETREG, H5S_ALL, H5S_ALL, references),
                     -EOPNOTSUPP);
    assert_int_equal(sfs_h5_read(regions, H5T_STD_REF_DSETREG, H5S_ALL, H5S_ALL, references),
                     -EOPNOTSUPP);
    assert_int_equal(sfs_h5_read(regions, H5T_STD_REF_OBJ, H5S_ALL, H5S_ALL, references),
                     -EOPNOTSUPP);
    sfs_dataset_close(regions);
    assert_int_equal(sfs_close(file), 0);
}

/* Nothing of the buffer is taken for references. */
static void elements_of_other_datatypes_are_refused(void **state)
{
    (void)state;
    char bytes[N];
    struct sfs_encoded type;
    memset(bytes, 0x5a, sizeof(bytes));
    make_objects(PATH, 0);
    struct sfs_file *file = open_writable(PATH);
    struct sfs_dataset *regions = create(file, "/regions", H5Tcopy(H5T_STD_REF_DSETREG));
    assert_int_equal(sfs_h5_encode(H5T_STD_U8LE, 1, &type), 0);
    assert_int_equal(sfs_dataset_write(regions, &type, NULL, NULL, bytes), -EOPNOTSUPP);
    free((void *)type.bytes);
    sfs_dataset_close(regions);
    assert_int_equal(sfs_close(file), 0);
}

static void kinds_that_are_not_stored_are_refused(void **state)
{
    (void)state;
#if H5_VERSION_GE(1, 12, 0)
    struct sfs_dataset_create wanted = {
        .rank = 1, .dims = {N}, .max_dims = {N}, .chunk_dims = {CHUNK}};
    struct sfs_dataset *dataset;
    log_quietly();
    make_objects(PATH, 0);
    struct sfs_file *file = open_writable(PATH);
    assert_int_equal(sfs_h5_encode(H5T_STD_REF, 1, &wanted.type), 0);
    assert_int_equal(sfs_dataset_create(file, "/x", &wanted, &dataset), -EOPNOTSUPP);
    free((void *)wanted.type.bytes);
    assert_int_equal(sfs_close(file), 0);
#else
    skip();
#endif
}

/* A dataset of numbers becomes one of references that stand in section 1 themselves, of a file of
 * others. */
static void put_references_in_place(void)
{
    static const unsigned char number[] = {0, 0, 0, 8, 0, 0, 0, 0, 0, 64, 0}; /* behind the class */
    static const unsigned char reference[] = {0, 0, 0, 8, 0, 0, 0, 0, 0, 0, 0};
    static unsigned char content[65536];
    FILE *file = fopen(PATH, "rb+");
    size_t n = fread(content, 1, sizeof(content), file);
    unsigned char *at = memmem(content, n, number, sizeof(number)), *head = NULL, *next = content;
    assert_non_null(at);
    at[-1] |= 7;
    memcpy(at, reference, sizeof(reference));
    while ((next = memmem(next, (size_t)(at - next), "OHDR", 4)))
        head = next++;
    assert_non_null(head);
    size_t bytes = 6 + (head[5] & 0x20 ? 16 : 0) + (head[5] & 0x10 ? 4 : 0),
           width = 1u << (head[5] & 3);
    uint64_t size = 0;
    memcpy(&size, head + bytes, width);
    assert_true(at > head && at < head + bytes + width + size);
    structure_sum(head, bytes + width + size + 4);
    rewind(file);
    assert_int_equal(fwrite(content, 1, n, file), n);
    assert_int_equal(fclose(file), 0);
}

static void those_in_place_are_not_touched(void **state)
{
    (void)state;
    static const uint64_t numbers[N] = {96};
    void *elements = NULL;
    struct sfs_dataset *dataset;
    uint64_t n;
    log_quietly();
    make_objects(PATH, 0);
    struct sfs_file *file = open_writable(PATH);
    dataset = create(file, "/x", H5Tcopy(H5T_STD_U64LE));
    assert_int_equal(sfs_write(dataset, &everything, numbers), 0);
    sfs_dataset_close(dataset);
    assert_int_equal(sfs_close(file), 0);
    put_references_in_place();
    file = open_writable(PATH);
    assert_int_equal(sfs_dataset_open(file, address_of(file, "/x"), "/x", &dataset), 0);
    assert_int_equal(sfs_dataset_info(dataset)->type.class, SFS_REFERENCE);
    assert_int_equal(sfs_dataset_info(dataset)->type.size, 8);
    assert_int_equal(sfs_count_defined(dataset, &everything, &n), 0);
    assert_int_equal(n, N);
    assert_int_equal(sfs_read_elements(dataset, &everything, &elements), -EOPNOTSUPP);
    assert_int_equal(sfs_write(dataset, &everything, numbers), -EOPNOTSUPP);
    assert_int_equal(sfs_set_extent(dataset, &(uint64_t){N - 1}), -EOPNOTSUPP);
    assert_int_equal(sfs_references_copy(file, "/x", file, address_of(file, "/x"), NULL, 0), 0);
    sfs_dataset_close(dataset);
    assert_int_equal(sfs_close(file), 0);
}

TEST_MAIN(cmocka_unit_test(regions_are_what_libhdf5_stores),
          cmocka_unit_test(they_stand_in_the_heap),
          cmocka_unit_test(regions_are_selections_of_their_dataset),
          cmocka_unit_test(what_is_none_is_refused), cmocka_unit_test(what_is_stored_is_checked),
          cmocka_unit_test(they_lead_to_the_copies), cmocka_unit_test(they_are_encoded_at_once),
          cmocka_unit_test(regions_have_no_handles),
          cmocka_unit_test(elements_of_other_datatypes_are_refused),
          cmocka_unit_test(those_in_place_are_not_touched),
          cmocka_unit_test(kinds_that_are_not_stored_are_refused))
