/* Where our own decoder finds the parts of elements libhdf5 has them, in datatypes of all kinds; and a description
 * that says otherwise is told. */
#include "support.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include <hdf5.h>

#include "format/datatype_message.h"
#include "format/stored_layout.h"
#include "hdf5/local.h"
#include "sparsefs/sparsefs.h"

#define PATH   "layout.h5"
#define ROUNDS 400
#define DEPTH  4

/* ---- Datatypes ---- */

static hid_t a_string(void)
{
    hid_t string = H5Tcopy(H5T_C_S1);
    H5Tset_size(string, random_below(2) ? H5T_VARIABLE : 1 + random_below(9));
    return string;
}

static hid_t an_opaque(void)
{
    hid_t opaque = H5Tcreate(H5T_OPAQUE, 1 + random_below(20));
    H5Tset_tag(opaque, random_below(2) ? "a tag" : "");
    return opaque;
}

static hid_t an_enum(void)
{
    hid_t type = H5Tenum_create(H5T_STD_I16LE);
    assert_true(H5Tenum_insert(type, "one", (int16_t[]){1}) >= 0);
    assert_true(H5Tenum_insert(type, "many", (int16_t[]){2}) >= 0);
    return type;
}

static hid_t a_type(unsigned depth);

static hid_t an_array(unsigned depth)
{
    hid_t base = a_type(depth);
    unsigned rank = 1 + (unsigned)random_below(3);
    hsize_t dims[3];
    for (int i = 0; i < 3; i++)
        dims[i] = 1 + random_below(3);
    hid_t array = H5Tarray_create2(base, rank, dims);
    H5Tclose(base);
    return array;
}

static hid_t a_sequence(unsigned depth)
{
    hid_t base = a_type(depth), sequence = H5Tvlen_create(base);
    H5Tclose(base);
    return sequence;
}

/* With gaps, and members that are inserted in any order. */
static hid_t a_compound(unsigned depth)
{
    enum { MOST = 5 };
    hid_t member[MOST];
    size_t at[MOST], n = 1 + random_below(MOST), end = 0, first = random_below(n);
    for (size_t i = 0; i < n; i++) {
        member[i] = a_type(depth);
        at[i] = end += random_below(3);
        end += H5Tget_size(member[i]);
    }
    hid_t compound = H5Tcreate(H5T_COMPOUND, end + random_below(5));
    for (size_t i = 0; i < n; i++) {
        size_t k = (i + first) % n;
        const char name[] = {(char)('a' + k), '\0'};
        assert_true(H5Tinsert(compound, name, at[k], member[k]) >= 0);
        H5Tclose(member[k]);
    }
    return compound;
}

static hid_t a_type(unsigned depth)
{
    static hid_t *const plain[] = {&H5T_STD_U8LE_g,      &H5T_STD_I32BE_g,   &H5T_IEEE_F64LE_g,
                                   &H5T_STD_B16LE_g,     &H5T_STD_REF_OBJ_g, &H5T_STD_REF_DSETREG_g,
                                   &H5T_NATIVE_LDOUBLE_g};
    switch (random_below(depth ? 10 : 5)) {
    case 0:
        return an_enum();
    case 1:
        return an_opaque();
    case 2:
        return a_string();
    case 3:
    case 4:
        return H5Tcopy(*plain[random_below(COUNT(plain))]);
    case 5:
    case 6:
        return an_array(depth - 1);
    case 7:
        return a_sequence(depth - 1);
    default:
        return a_compound(depth - 1);
    }
}

/* As libhdf5 encodes and describes it. */
struct described {
    struct sfs_encoded encoded;
    struct sfs_type type, layout;
};

static void describe(hid_t id, struct described *described)
{
    struct why why = {0};
    size_t n = 0;
    assert_true(H5Tencode(id, NULL, &n) >= 0);
    void *bytes = allocate(n);
    assert_true(H5Tencode(id, bytes, &n) >= 0);
    described->encoded = (struct sfs_encoded){bytes, n};
    assert_int_equal(local_type_describe(bytes, n, &described->type), 0);
    if (stored_layout_encoded(&described->encoded, &described->layout, &why))
        fail_msg("%s", why.text);
}

static void forget(struct described *described)
{
    free((void *)described->encoded.bytes);
    datatype_layout_free(&described->layout);
    hdf5_type_free(&described->type);
}

/* ---- Tests ---- */

static void libhdf5_has_the_same(void **state)
{
    (void)state;
    for (unsigned i = 0; i < ROUNDS; i++) {
        struct described described;
        struct why why;
        hid_t id = a_type(DEPTH);
        describe(id, &described);
        assert_int_equal(stored_layout_check(&described.layout, &described.type), 0);
        assert_int_equal(stored_layout_check_encoded(&described.layout, &described.encoded), 0);
        assert_int_equal(slots_as_stored(&described.type, &why), 0);
        assert_int_equal(described.type.size, described.layout.size);
        assert_int_equal(stored_layout_check(&described.layout, &described.type), 0);
        forget(&described);
        H5Tclose(id);
    }
}

/* There sizes are those in the file. It is compared when a dataset is made. */
static void so_it_is_in_headers(void **state)
{
    (void)state;
    static const struct sfs_options writable = {.writable = true};
    struct sfs_file *file;
    unsigned made = 0;
    H5Fclose(H5Fcreate(PATH, H5F_ACC_TRUNC, H5P_DEFAULT, H5P_DEFAULT));
    assert_int_equal(sfs_open(PATH, &writable, &file), 0);
    for (unsigned i = 0; i < 2 * ROUNDS / 10; i++) {
        struct sfs_dataset_create create = {
            .rank = 1, .dims = {4}, .max_dims = {4}, .chunk_dims = {4}, .is_dense = i % 2};
        struct sfs_dataset *dataset;
        struct described described;
        char path[32];
        hid_t id = a_type(DEPTH - 1);
        describe(id, &described);
        create.type = described.encoded;
        snprintf(path, sizeof(path), "/%u", i);
        int error = sfs_dataset_create(file, path, &create, &dataset);
        assert_true(error == 0 || error == -EOPNOTSUPP);
        made += !error;
        if (!error)
            sfs_dataset_close(dataset);
        forget(&described);
        H5Tclose(id);
    }
    assert_int_equal(sfs_close(file), 0);
    assert_true(made > ROUNDS / 20);
}

/* A part of a description: the one that is found after so many, first of all itself. */
static struct sfs_type *part_of(struct sfs_type *type, uint64_t *left)
{
    struct sfs_type *found = *left == 0 ? type : NULL;
    --*left;
    for (size_t i = 0; i < type->n_members && !found; i++)
        found = part_of(&type->members[i].type, left);
    return found || !type->base ? found : part_of(type->base, left);
}

static bool is_plain(const struct sfs_type *type)
{
    return !type->has_pointers && !type->n_members && !type->base;
}

/* Something that changes where parts lie, or how large they are; false: there is no such thing in that part. */
static bool change(struct sfs_type *part)
{
    switch (random_below(4)) {
    case 0:
        if (part->n_members < 2 || part->members[0].type.size == part->members[1].type.size)
            return false;
        struct sfs_type first = part->members[0].type;
        part->members[0].type = part->members[1].type;
        part->members[1].type = first;
        return true;
    case 1:
        if (!part->n_members)
            return false;
        part->members[part->n_members - 1].offset++;
        return true;
    case 2:
        if (!is_plain(part))
            return false;
        part->size = random_below(2) ? part->size + 1 : 2 * part->size;
        return true;
    default:
        if (part->class != SFS_ARRAY)
            return false;
        part->array_dims[random_below((uint64_t)part->array_rank)]++;
        return true;
    }
}

static void another_layout_is_told(void **state)
{
    (void)state;
    unsigned told = 0;
    for (unsigned i = 0; i < ROUNDS; i++) {
        struct described described;
        uint64_t left = random_below(6);
        hid_t id = a_type(DEPTH);
        describe(id, &described);
        struct sfs_type *part = part_of(&described.type, &left);
        if (part && change(part)) {
            assert_int_equal(stored_layout_check(&described.layout, &described.type), -EILSEQ);
            told++;
        }
        forget(&described);
        H5Tclose(id);
    }
    assert_true(told > ROUNDS / 20);
}

/* Members with dims, which libhdf5 makes arrays of, as they were written before there were arrays. */
static void members_of_old_are_arrays(void **state)
{
    (void)state;
    enum { NAME_AT = 10, RANK_AT = 22, DIMS_AT = 34, BYTES = 62 };
    unsigned char bytes[BYTES] = {3, 0, 0x16, 1, 0, 0, 24, 0, 0, 0, 'a'};
    static const unsigned char number[] = {0x10, 0, 0, 0, 4, 0, 0, 0, 0, 0, 32, 0};
    struct why why;
    struct sfs_type layout, type;
    bytes[RANK_AT] = 2;
    bytes[DIMS_AT] = 2;
    bytes[DIMS_AT + 4] = 3;
    memcpy(bytes + BYTES - sizeof(number), number, sizeof(number));
    const struct sfs_encoded encoded = {bytes, sizeof(bytes)};
    assert_int_equal(stored_layout_encoded(&encoded, &layout, &why), 0);
    assert_int_equal(layout.members[0].type.class, SFS_ARRAY);
    assert_int_equal(layout.members[0].type.size, 24);
    assert_int_equal(local_type_describe(bytes, sizeof(bytes), &type), 0);
    assert_int_equal(stored_layout_check(&layout, &type), 0);
    hdf5_type_free(&type);
    datatype_layout_free(&layout);
    bytes[DIMS_AT] = 3; /* which the compound has no room for */
    assert_int_equal(stored_layout_encoded(&encoded, &layout, &why), -EILSEQ);
    bytes[DIMS_AT] = 0;
    assert_int_equal(stored_layout_encoded(&encoded, &layout, &why), -EILSEQ);
    bytes[RANK_AT] = 5;
    assert_int_equal(stored_layout_encoded(&encoded, &layout, &why), -EILSEQ);
}

static int all_tests(void)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(libhdf5_has_the_same),
        cmocka_unit_test(so_it_is_in_headers),
        cmocka_unit_test(another_layout_is_told),
        cmocka_unit_test(members_of_old_are_arrays),
    };
    log_quietly();
    H5open();
    return cmocka_run_group_tests(tests, NULL, NULL);
}

int main(void)
{
    return in_temporary_directory(all_tests);
}
