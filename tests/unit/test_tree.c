/* Groups, links and attributes, in the old format (symbol tables) and the new one (links in the
 * header, or dense). */
#include "support.h"

#include <errno.h>
#include <hdf5.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "sparsefs/sparsefs.h"

static hid_t create_file(const char *path, bool latest)
{
    hid_t fapl = H5Pcreate(H5P_FILE_ACCESS);
    if (latest)
        H5Pset_libver_bounds(fapl, H5F_LIBVER_LATEST, H5F_LIBVER_LATEST);
    hid_t file = H5Fcreate(path, H5F_ACC_TRUNC, H5P_DEFAULT, fapl);
    assert_true(file >= 0);
    H5Pclose(fapl);
    return file;
}

static hid_t create_group(hid_t parent, const char *name)
{
    hid_t group = H5Gcreate2(parent, name, H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT);
    assert_true(group >= 0);
    return group;
}

static void create_scalar(hid_t parent, const char *name)
{
    hid_t space = H5Screate(H5S_SCALAR);
    assert_true(H5Dclose(H5Dcreate2(parent, name, H5T_STD_I32LE, space, H5P_DEFAULT, H5P_DEFAULT,
                                    H5P_DEFAULT)) >= 0);
    H5Sclose(space);
}

static struct sfs_file *open_file(const char *path)
{
    struct sfs_file *file;
    log_quietly();
    assert_int_equal(sfs_open(path, NULL, &file), 0);
    return file;
}

/* ---- Groups of every size ---- */

static const unsigned sizes[] = {0, 1, 10, 5000};

static void make_groups(bool latest)
{
    hid_t file = create_file("groups.h5", latest);
    for (size_t i = 0; i < COUNT(sizes); i++) {
        char name[16];
        snprintf(name, sizeof(name), "%u", sizes[i]);
        hid_t group = create_group(file, name);
        for (unsigned k = sizes[i]; k-- > 0;) { /* not in the order of names */
            snprintf(name, sizeof(name), "%05u", k * 7919 % sizes[i]);
            if (k % 3 == 0)
                H5Gclose(create_group(group, name));
            else if (k % 3 == 1)
                create_scalar(group, name);
            else
                H5Lcreate_soft("/somewhere/else", group, name, H5P_DEFAULT, H5P_DEFAULT);
        }
        H5Gclose(group);
    }
    H5Fclose(file);
}

static haddr_t address_by_libhdf5(hid_t group, const char *name)
{
    H5O_info_t info;
    assert_true(H5Oget_info_by_name2(group, name, &info, H5O_INFO_BASIC, H5P_DEFAULT) >= 0);
    return info.addr;
}

static void check_groups(void)
{
    struct sfs_file *file = open_file("groups.h5");
    hid_t referee = H5Fopen("groups.h5", H5F_ACC_RDONLY, H5P_DEFAULT);
    for (size_t i = 0; i < COUNT(sizes); i++) {
        char name[16];
        struct sfs_link link;
        struct sfs_links links;
        snprintf(name, sizeof(name), "%u", sizes[i]);
        assert_int_equal(sfs_lookup(file, sfs_root(file), name, &link), 0);
        uint64_t address = link.address;
        sfs_link_free(&link);
        assert_int_equal(address, address_by_libhdf5(referee, name));
        hid_t group = H5Gopen2(referee, name, H5P_DEFAULT);

        assert_int_equal(sfs_list(file, address, &links), 0);
        assert_int_equal(links.n, sizes[i]);
        for (unsigned k = 0; k < sizes[i]; k++) {
            const struct sfs_link *listed = &links.link[k];
            snprintf(name, sizeof(name), "%05u", k);
            assert_string_equal(listed->name, name);
            assert_int_equal(sfs_lookup(file, address, name, &link), 0);
            assert_string_equal(link.name, name);
            assert_int_equal(link.type, listed->type);
            if (listed->type == SFS_LINK_HARD) {
                enum sfs_object_type type;
                assert_int_equal(listed->address, address_by_libhdf5(group, name));
                assert_int_equal(link.address, listed->address);
                assert_null(listed->target);
                assert_int_equal(sfs_object_type(file, link.address, &type), 0);
                assert_true(type == SFS_GROUP || type == SFS_DATASET);
            } else {
                assert_int_equal(listed->type, SFS_LINK_SOFT);
                assert_string_equal(listed->target, "/somewhere/else");
                assert_string_equal(link.target, "/somewhere/else");
            }
            assert_null(listed->target_file);
            sfs_link_free(&link);
        }
        sfs_links_free(&links);
        assert_int_equal(sfs_lookup(file, address, "99999", &link), -ENOENT);
        H5Gclose(group);
    }
    H5Fclose(referee);
    sfs_close(file);
}

static void groups_of_symbol_tables_are_listed(void **state)
{
    (void)state;
    make_groups(false);
    check_groups();
}

static void groups_of_the_new_format_are_listed(void **state)
{
    (void)state;
    make_groups(true);
    check_groups();
}

/* ---- Links ---- */

static int make_links(void **state)
{
    (void)state;
    hid_t file = create_file("links.h5", true), outside = create_file("outside.h5", false);
    create_scalar(outside, "there");
    H5Fclose(outside);
    hid_t a = create_group(file, "a"), b = create_group(a, "b");
    create_scalar(b, "d");
    hid_t type = H5Tcopy(H5T_STD_U16BE);
    H5Tcommit2(file, "type", type, H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT);
    H5Lcreate_hard(b, "d", file, "hard", H5P_DEFAULT, H5P_DEFAULT);
    H5Lcreate_hard(file, "a", b, "up", H5P_DEFAULT, H5P_DEFAULT);
    H5Lcreate_soft("a/b/d", file, "soft", H5P_DEFAULT, H5P_DEFAULT);
    H5Lcreate_soft("/a/b", file, "absolute", H5P_DEFAULT, H5P_DEFAULT);
    H5Lcreate_soft("nowhere", file, "dangling", H5P_DEFAULT, H5P_DEFAULT);
    H5Lcreate_soft("circle", file, "circle", H5P_DEFAULT, H5P_DEFAULT);
    H5Lcreate_soft("d", b, "beside", H5P_DEFAULT, H5P_DEFAULT);
    H5Lcreate_external("outside.h5", "/there", file, "external", H5P_DEFAULT, H5P_DEFAULT);
    H5Lcreate_soft("a", file, "..", H5P_DEFAULT, H5P_DEFAULT);
    H5Lcreate_soft("x", file, "n\xc3\xa4me %", H5P_DEFAULT, H5P_DEFAULT);
    char name[2001];
    memset(name, 'n', 2000);
    name[2000] = '\0';
    H5Lcreate_soft(name, file, name, H5P_DEFAULT, H5P_DEFAULT);
    H5Tclose(type);
    H5Gclose(b);
    H5Gclose(a);
    return H5Fclose(file) < 0;
}

static struct sfs_link look_up(struct sfs_file *file, const char *name)
{
    struct sfs_link link;
    assert_int_equal(sfs_lookup(file, sfs_root(file), name, &link), 0);
    return link;
}

static void links_of_every_kind_are_described(void **state)
{
    (void)state;
    struct sfs_file *file = open_file("links.h5");
    static const struct {
        const char *name;
        enum sfs_link_type type;
        const char *target, *target_file;
    } cases[] = {
        {"a", SFS_LINK_HARD, NULL, NULL},
        {"hard", SFS_LINK_HARD, NULL, NULL},
        {"soft", SFS_LINK_SOFT, "a/b/d", NULL},
        {"dangling", SFS_LINK_SOFT, "nowhere", NULL},
        {"circle", SFS_LINK_SOFT, "circle", NULL},
        {"external", SFS_LINK_EXTERNAL, "/there", "outside.h5"},
        {"n\xc3\xa4me %", SFS_LINK_SOFT, "x", NULL},
    };
    for (size_t i = 0; i < COUNT(cases); i++) {
        struct sfs_link link = look_up(file, cases[i].name);
        assert_int_equal(link.type, cases[i].type);
        assert_string_equal(link.name, cases[i].name);
        if (cases[i].target)
            assert_string_equal(link.target, cases[i].target);
        else
            assert_null(link.target);
        if (cases[i].target_file)
            assert_string_equal(link.target_file, cases[i].target_file);
        else
            assert_null(link.target_file);
        sfs_link_free(&link);
    }
    char name[2001];
    memset(name, 'n', 2000);
    name[2000] = '\0';
    struct sfs_link link = look_up(file, name);
    assert_string_equal(link.target, name);
    sfs_link_free(&link);
    sfs_link_free(&link); /* it is empty by now */
    sfs_link_free(NULL);
    sfs_links_free(NULL);
    sfs_close(file);
}

static void names_that_no_link_has_are_not_found(void **state)
{
    (void)state;
    struct sfs_file *file = open_file("links.h5");
    static const char *const names[] = {"", ".", "/", "a/", "/a", "a/b", "A", "aa", "a "};
    struct sfs_link link;
    for (size_t i = 0; i < COUNT(names); i++)
        assert_int_equal(sfs_lookup(file, sfs_root(file), names[i], &link), -ENOENT);
    sfs_close(file);
}

static void objects_have_types(void **state)
{
    (void)state;
    struct sfs_file *file = open_file("links.h5");
    static const struct {
        const char *name;
        enum sfs_object_type type;
    } cases[] = {{"a", SFS_GROUP}, {"hard", SFS_DATASET}, {"type", SFS_DATATYPE}};
    enum sfs_object_type type;
    for (size_t i = 0; i < COUNT(cases); i++) {
        struct sfs_link link = look_up(file, cases[i].name);
        assert_int_equal(sfs_object_type(file, link.address, &type), 0);
        assert_int_equal(type, cases[i].type);
        if (type == SFS_DATATYPE) {
            char *text;
            assert_int_equal(sfs_datatype_text(file, link.address, &text), 0);
            assert_string_equal(text, "16-bit big-endian unsigned integer");
            free(text);
        }
        sfs_link_free(&link);
    }
    assert_int_equal(sfs_object_type(file, sfs_root(file), &type), 0);
    assert_int_equal(type, SFS_GROUP);
    sfs_close(file);
}

static void paths_lead_to_objects(void **state)
{
    (void)state;
    struct sfs_file *file = open_file("links.h5");
    struct sfs_link dataset = look_up(file, "hard"), a = look_up(file, "a");
    const char *const paths[] = {
        "hard",       "/hard",      "a/b/d",           "/a/b/d",     "soft",
        "absolute/d", "a/b/up/b/d", "absolute/beside", "./a/./b//d", "a/b/up/b/up/b/beside"};
    uint64_t address;
    for (size_t i = 0; i < COUNT(paths); i++) {
        address = 0;
        assert_int_equal(sfs_find(file, sfs_root(file), paths[i], &address), 0);
        assert_int_equal(address, dataset.address);
    }
    assert_int_equal(sfs_find(file, a.address, "b/d", &address), 0);
    assert_int_equal(address, dataset.address);
    assert_int_equal(sfs_find(file, a.address, "/", &address), 0);
    assert_int_equal(address, sfs_root(file));
    assert_int_equal(sfs_find(file, a.address, ".", &address), 0);
    assert_int_equal(address, a.address);
    sfs_link_free(&a);
    sfs_link_free(&dataset);
    sfs_close(file);
}

static void paths_to_nowhere_or_out_of_the_file_are_not_found(void **state)
{
    (void)state;
    struct sfs_file *file = open_file("links.h5");
    const char *const paths[] = {"dangling",  "circle", "external", "nothing",
                                 "a/nothing", "hard/x", "",         "a/b/d/e"};
    for (size_t i = 0; i < COUNT(paths); i++) {
        uint64_t address = 7;
        assert_int_equal(sfs_find(file, sfs_root(file), paths[i], &address), -ENOENT);
        assert_int_equal(address, 7);
    }
    sfs_close(file);
}

static void addresses_of_nothing_are_errors(void **state)
{
    (void)state;
    struct sfs_file *file = open_file("links.h5");
    struct sfs_link dataset = look_up(file, "hard");
    const uint64_t nothing[] = {1, 12345678, (uint64_t)1 << 60, UINT64_MAX};
    struct sfs_links links;
    struct sfs_link link;
    struct sfs_attributes attributes;
    enum sfs_object_type type;
    uint64_t address;
    for (size_t i = 0; i < COUNT(nothing); i++) {
        assert_int_equal(sfs_list(file, nothing[i], &links), -EIO);
        assert_int_equal(sfs_lookup(file, nothing[i], "a", &link), -EIO);
        assert_int_equal(sfs_find(file, nothing[i], "a", &address), -EIO);
        assert_int_equal(sfs_object_type(file, nothing[i], &type), -EIO);
        assert_int_equal(sfs_attributes(file, nothing[i], &attributes), -EIO);
    }
    assert_int_equal(sfs_list(file, dataset.address, &links), -EIO); /* no group */
    sfs_link_free(&dataset);
    sfs_close(file);
}

/* ---- Attributes ---- */

static void add_attribute(hid_t object, const char *name, hid_t type, int rank, const hsize_t *dims,
                          const void *elements)
{
    hid_t space = rank ? H5Screate_simple(rank, dims, NULL) : H5Screate(H5S_SCALAR);
    hid_t attribute = H5Acreate2(object, name, type, space, H5P_DEFAULT, H5P_DEFAULT);
    assert_true(attribute >= 0);
    assert_true(H5Awrite(attribute, type, elements) >= 0);
    H5Aclose(attribute);
    H5Sclose(space);
}

static void attributes_are_texts_and_json(void **state)
{
    (void)state;
    hid_t file = create_file("attributes.h5", false), string = H5Tcopy(H5T_C_S1);
    hid_t variable = H5Tcopy(H5T_C_S1);
    const hsize_t dims[] = {2, 3};
    H5Tset_size(string, 8);
    H5Tset_size(variable, H5T_VARIABLE);
    add_attribute(file, "f", H5T_NATIVE_DOUBLE, 0, NULL, &(double){0.1});
    add_attribute(file, "a", H5T_NATIVE_INT, 0, NULL, &(int){-7});
    add_attribute(file, "c", H5T_NATIVE_INT, 2, dims, (int[]){1, 2, 3, 4, 5, 6});
    add_attribute(file, "b", string, 0, NULL, "word\0\0\0");
    add_attribute(file, "d", variable, 0, NULL, &(const char *){"any \"length\""});
    add_attribute(file, "e", variable, 1, dims, (const char *[]){"x", "y"});
    H5Tclose(variable);
    H5Tclose(string);
    H5Fclose(file);

    static const struct {
        const char *name, *text, *json;
    } expected[] = {
        {"a", "-7", "-7"},
        {"b", "word", "\"word\""},
        {"c", "[[1, 2, 3], [4, 5, 6]]", "[[1, 2, 3], [4, 5, 6]]"},
        {"d", "any \"length\"", "\"any \\\"length\\\"\""},
        {"e", "[\"x\", \"y\"]", "[\"x\", \"y\"]"},
        {"f", "0.1", "0.1"},
    };
    struct sfs_file *opened = open_file("attributes.h5");
    struct sfs_attributes attributes;
    assert_int_equal(sfs_attributes(opened, sfs_root(opened), &attributes), 0);
    assert_int_equal(attributes.n, COUNT(expected));
    for (size_t i = 0; i < attributes.n; i++) {
        const struct sfs_attribute *attribute = &attributes.attribute[i];
        assert_string_equal(attribute->name, expected[i].name);
        assert_string_equal(attribute->text, expected[i].text);
        assert_string_equal(attribute->json, expected[i].json);
    }
    sfs_attributes_free(&attributes);
    assert_int_equal(attributes.n, 0);
    sfs_attributes_free(NULL);
    sfs_close(opened);
}

static void an_attribute_that_is_too_large_does_not_hide_the_others(void **state)
{
    (void)state;
    const hsize_t dim = ((hsize_t)64 << 20) + 1;
    char *elements = calloc(dim, 1);
    assert_non_null(elements);
    hid_t file = create_file("large.h5", true);
    add_attribute(file, "a", H5T_NATIVE_INT, 0, NULL, &(int){1});
    add_attribute(file, "b", H5T_NATIVE_INT8, 1, &dim, elements);
    add_attribute(file, "c", H5T_NATIVE_INT, 0, NULL, &(int){3});
    H5Fclose(file);
    free(elements);

    struct sfs_file *opened = open_file("large.h5");
    struct sfs_attributes attributes;
    assert_int_equal(sfs_attributes(opened, sfs_root(opened), &attributes), 0);
    assert_int_equal(attributes.n, 3);
    assert_string_equal(attributes.attribute[0].text, "1");
    assert_string_equal(attributes.attribute[1].name, "b");
    assert_null(attributes.attribute[1].text);
    assert_null(attributes.attribute[1].json);
    assert_string_equal(attributes.attribute[2].json, "3");
    sfs_attributes_free(&attributes);
    sfs_close(opened);
}

static void any_number_of_attributes_is_listed(void **state)
{
    (void)state;
    static const int counts[] = {0, 1, 8, 300};
    for (int latest = 0; latest < 2; latest++) {
        for (size_t c = 0; c < COUNT(counts); c++) {
            hid_t file = create_file("attributes.h5", latest);
            for (int i = counts[c]; i-- > 0;) {
                char name[16];
                snprintf(name, sizeof(name), "%03d", i);
                add_attribute(file, name, H5T_NATIVE_INT, 0, NULL, &i);
            }
            H5Fclose(file);
            struct sfs_file *opened = open_file("attributes.h5");
            struct sfs_attributes attributes;
            assert_int_equal(sfs_attributes(opened, sfs_root(opened), &attributes), 0);
            assert_int_equal(attributes.n, counts[c]);
            for (int i = 0; i < counts[c]; i++) {
                assert_int_equal(atoi(attributes.attribute[i].name), i);
                assert_int_equal(atoi(attributes.attribute[i].text), i);
            }
            sfs_attributes_free(&attributes);
            sfs_close(opened);
        }
    }
}

/* Paths of references follow changes of links. */
static void references_follow_the_tree(void **state)
{
    (void)state;
    hid_t file = create_file("references.h5", false);
    hid_t group = create_group(file, "g"), space = H5Screate(H5S_SCALAR);
    hobj_ref_t reference;
    H5Gclose(create_group(group, "below"));
    assert_true(H5Rcreate(&reference, file, "/g/below", H5R_OBJECT, -1) >= 0);
    hid_t attribute = H5Acreate2(group, "to", H5T_STD_REF_OBJ, space, H5P_DEFAULT, H5P_DEFAULT);
    assert_true(H5Awrite(attribute, H5T_STD_REF_OBJ, &reference) >= 0);
    H5Aclose(attribute);
    H5Sclose(space);
    H5Gclose(group);
    H5Fclose(file);

    struct sfs_file *opened;
    const struct sfs_options options = {.writable = true};
    uint64_t address;
    static const char *const texts[] = {"/g/below", "/g/below", "null"};
    assert_int_equal(sfs_open("references.h5", &options, &opened), 0);
    assert_int_equal(sfs_find(opened, sfs_root(opened), "g", &address), 0);
    for (size_t i = 0; i < COUNT(texts); i++) {
        struct sfs_attributes attributes;
        assert_int_equal(sfs_attributes(opened, address, &attributes), 0);
        assert_int_equal(attributes.n, 1);
        assert_string_equal(attributes.attribute[0].text, texts[i]);
        sfs_attributes_free(&attributes);
        if (i == 0)
            assert_int_equal(sfs_group_create(opened, "/g/another"), 0);
        else if (i == 1)
            assert_int_equal(sfs_group_remove(opened, "/g/below"), 0);
    }
    assert_int_equal(sfs_close(opened), 0);
}

/* The frames of two members: 0, 1 and 2, 3. */
static void make_series(const char *path)
{
    hid_t file = create_file(path, true), group = create_group(file, "g");
    const hsize_t dims[] = {2, 1, 2};
    hid_t space = H5Screate_simple(3, dims, NULL);
    for (int i = 0; i < 2; i++) {
        char name[16];
        int elements[] = {4 * i, 4 * i + 1, 4 * i + 2, 4 * i + 3};
        snprintf(name, sizeof(name), "data_%06d", i + 1);
        hid_t made =
            H5Dcreate2(group, name, H5T_NATIVE_INT, space, H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT);
        assert_true(H5Dwrite(made, H5T_NATIVE_INT, H5S_ALL, H5S_ALL, H5P_DEFAULT, elements) >= 0);
        H5Dclose(made);
    }
    H5Sclose(space);
    H5Gclose(group);
    H5Fclose(file);
}

static void check_series_link(struct sfs_file *file, uint64_t group, uint64_t address)
{
    struct sfs_links links;
    struct sfs_link link;
    assert_int_equal(sfs_list(file, group, &links), 0);
    assert_int_equal(links.n, 3);
    assert_string_equal(links.link[0].name, "data");
    assert_int_equal(links.link[0].type, SFS_LINK_SERIES);
    assert_true(links.link[0].address == address);
    sfs_links_free(&links);
    assert_int_equal(sfs_lookup(file, group, "data", &link), 0);
    assert_int_equal(link.type, SFS_LINK_SERIES);
    assert_true(link.address == address && !link.target && !link.target_file);
    sfs_link_free(&link);
}

static void series_are_read_and_no_more(void **state)
{
    (void)state;
    struct sfs_file *file, *copy;
    struct sfs_dataset *dataset;
    struct sfs_attributes attributes;
    enum sfs_object_type type;
    uint64_t group, address, other;
    int elements[8];
    const struct sfs_slab all = {.rank = 3, .count = {4, 1, 2}};
    make_series("series.h5");
    assert_int_equal(sfs_open("series.h5", &(struct sfs_options){.writable = true}, &file), 0);
    assert_int_equal(sfs_create("series_copy.h5", NULL, &copy), 0);
    assert_int_equal(sfs_find(file, sfs_root(file), "g", &group), 0);
    assert_int_equal(sfs_find(file, group, "data", &address), 0);
    assert_int_equal(sfs_find(file, sfs_root(file), "//g/data//", &other), 0);
    assert_true(address == other && address != group);
    assert_int_equal(sfs_find(file, sfs_root(file), "data", &other), -ENOENT);
    assert_int_equal(sfs_find(file, sfs_root(file), "g/data_000001/data", &other), -ENOENT);
    assert_int_equal(sfs_find(file, sfs_root(file), "g/a data", &other), -ENOENT);
    check_series_link(file, group, address);

    assert_int_equal(sfs_object_type(file, address, &type), 0);
    assert_int_equal(type, SFS_DATASET);
    assert_int_equal(sfs_attributes(file, address, &attributes), 0);
    assert_int_equal(attributes.n, 0);
    assert_int_equal(sfs_attributes_copy(copy, sfs_root(copy), file, address), 0);
    assert_int_equal(sfs_object_copy(copy, "/d", file, address), -EOPNOTSUPP);
    assert_int_equal(sfs_dataset_open(file, address, "/g/data", &dataset), 0);
    assert_int_equal(sfs_read(dataset, &all, 0, elements, sizeof(elements)), 0);
    for (int i = 0; i < 8; i++)
        assert_int_equal(elements[i], i);
    assert_int_equal(sfs_write(dataset, &all, elements), -EOPNOTSUPP);
    assert_int_not_equal(sfs_extend(dataset, (uint64_t[]){5, 1, 2}), 0);
    sfs_dataset_close(dataset);

    assert_int_equal(sfs_group_create(file, "/g/data"), 0);
    assert_int_equal(sfs_find(file, group, "data", &other), 0);
    assert_true(address != other);
    assert_int_equal(sfs_close(copy), 0);
    assert_int_equal(sfs_close(file), 0);
}

#define INNER 77 /* numbers of the last list: no other number of the file is that */

/* An attribute of lists of lists, [[1], [0, 1, ... 76]] being the second of two. */
static void make_nested(const char *path)
{
    int numbers[INNER];
    for (int i = 0; i < INNER; i++)
        numbers[i] = i;
    hvl_t inner[] = {{.len = 1, .p = &numbers[1]}, {.len = INNER, .p = numbers}};
    hvl_t outer[] = {{.len = 1, .p = inner}, {.len = 2, .p = inner}};
    hid_t file = create_file(path, false);
    hid_t list = H5Tvlen_create(H5T_NATIVE_INT), lists = H5Tvlen_create(list);
    hid_t space = H5Screate_simple(1, (hsize_t[]){2}, NULL);
    hid_t attribute = H5Acreate2(file, "nested", lists, space, H5P_DEFAULT, H5P_DEFAULT);
    assert_true(H5Awrite(attribute, lists, outer) >= 0);
    H5Aclose(attribute);
    attribute = H5Acreate2(file, "none", lists, space, H5P_DEFAULT, H5P_DEFAULT);
    H5Aclose(attribute);
    H5Sclose(space);
    H5Tclose(lists);
    H5Tclose(list);
    H5Fclose(file);
}

/* Makes the length of the long list another one. */
static void set_inner_length(const char *path, uint32_t length)
{
    char bytes[1 << 16];
    FILE *file = fopen(path, "r+b");
    size_t n = fread(bytes, 1, sizeof(bytes), file), found = 0;
    const char *heap = memmem(bytes, n, "GCOL", 4);
    uint64_t address = (uint64_t)(heap - bytes);
    for (size_t i = 0; i + 12 < n; i++) {
        if (memcmp(bytes + i, &(uint32_t){INNER}, 4) || memcmp(bytes + i + 4, &address, 8))
            continue;
        found++;
        assert_int_equal(fseek(file, (long)i, SEEK_SET), 0);
        assert_int_equal(fwrite(&length, sizeof(length), 1, file), 1);
    }
    assert_int_equal(fclose(file), 0);
    assert_int_equal(found, 1);
}

static const char *text_of(const struct sfs_attributes *attributes, const char *name)
{
    for (size_t i = 0; i < attributes->n; i++)
        if (!strcmp(attributes->attribute[i].name, name))
            return attributes->attribute[i].text;
    return NULL;
}

/* Of lists in lists, too, lengths are looked at before anything is allocated for them. */
static void lists_in_lists_have_bounds(void **state)
{
    (void)state;
    struct sfs_attributes attributes;
    make_nested("nested.h5");
    struct sfs_file *file = open_file("nested.h5");
    assert_int_equal(sfs_attributes(file, sfs_root(file), &attributes), 0);
    assert_int_equal(strncmp(text_of(&attributes, "nested"), "[[[1]], [[1], [0, 1, 2, ", 24), 0);
    assert_string_equal(text_of(&attributes, "none"), "[[], []]");
    sfs_attributes_free(&attributes);
    assert_int_equal(sfs_close(file), 0);

    set_inner_length("nested.h5", UINT32_MAX / 4);
    file = open_file("nested.h5");
    assert_int_equal(sfs_attributes(file, sfs_root(file), &attributes), 0);
    assert_int_equal(attributes.n, 2);
    assert_null(text_of(&attributes, "nested"));
    assert_string_equal(text_of(&attributes, "none"), "[[], []]");
    sfs_attributes_free(&attributes);
    assert_int_equal(sfs_close(file), 0);
}

static int all_tests(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(groups_of_symbol_tables_are_listed),
        cmocka_unit_test(groups_of_the_new_format_are_listed),
        cmocka_unit_test(links_of_every_kind_are_described),
        cmocka_unit_test(names_that_no_link_has_are_not_found),
        cmocka_unit_test(objects_have_types),
        cmocka_unit_test(paths_lead_to_objects),
        cmocka_unit_test(paths_to_nowhere_or_out_of_the_file_are_not_found),
        cmocka_unit_test(addresses_of_nothing_are_errors),
        cmocka_unit_test(attributes_are_texts_and_json),
        cmocka_unit_test(an_attribute_that_is_too_large_does_not_hide_the_others),
        cmocka_unit_test(any_number_of_attributes_is_listed),
        cmocka_unit_test(references_follow_the_tree),
        cmocka_unit_test(lists_in_lists_have_bounds),
        cmocka_unit_test(series_are_read_and_no_more),
    };
    return cmocka_run_group_tests(tests, make_links, NULL);
}

int main(void)
{
    return in_temporary_directory(all_tests);
}
