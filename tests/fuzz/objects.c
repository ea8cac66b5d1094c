#include "objects.h"

#include <hdf5.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "fuzz.h"

#define ELEMENTS ((size_t)OBJECTS_ROWS * OBJECTS_COLUMNS)

static struct objects objects;

static size_t element_size(hid_t file, const char *name)
{
    hid_t dataset = H5Dopen2(file, name, H5P_DEFAULT);
    hid_t type = dataset < 0 ? H5I_INVALID_HID : H5Dget_type(dataset);
    require(type >= 0);
    size_t size = H5Tget_size(type);
    H5Tclose(type);
    H5Dclose(dataset);
    return size;
}

static herr_t note_object(hid_t id, const char *name, const H5O_info_t *info, void *data)
{
    (void)data;
    require(objects.n < OBJECTS_MOST);
    objects.address[objects.n] = info->addr;
    objects.letter[objects.n] = name[strlen(name) - 1];
    objects.size[objects.n++] = info->type == H5O_TYPE_DATASET ? element_size(id, name) : 0;
    return 0;
}

/* elements: as libhdf5 takes them, or NULL: none are written. Closes how. */
static void make_dataset(hid_t in, const char *name, hid_t type, hid_t how, const void *elements)
{
    const hsize_t dims[] = {OBJECTS_ROWS, OBJECTS_COLUMNS}, most[] = {H5S_UNLIMITED, 8};
    bool is_chunked = H5Pget_layout(how) == H5D_CHUNKED;
    hid_t space = H5Screate_simple(2, dims, is_chunked ? most : NULL);
    hid_t id = H5Dcreate2(in, name, type, space, H5P_DEFAULT, how, H5P_DEFAULT);
    require(id >= 0);
    if (elements)
        require(H5Dwrite(id, type, H5S_ALL, H5S_ALL, H5P_DEFAULT, elements) >= 0);
    H5Dclose(id);
    H5Pclose(how);
    H5Sclose(space);
}

static hid_t contiguous(void)
{
    return H5Pcreate(H5P_DATASET_CREATE);
}

static hid_t chunked(bool is_filtered)
{
    hid_t how = contiguous();
    require(H5Pset_chunk(how, 2, (hsize_t[]){7, 3}) >= 0);
    if (is_filtered)
        require(H5Pset_deflate(how, 1) >= 0);
    return how;
}

static hid_t external(void)
{
    hid_t how = contiguous();
    require(H5Pset_external(how, "raw", 8, 4 * ELEMENTS / 2) >= 0);
    require(H5Pset_external(how, "more", 0, H5F_UNLIMITED) >= 0);
    return how;
}

static hid_t virtual(void)
{
    const hsize_t dims[] = {OBJECTS_ROWS, OBJECTS_COLUMNS};
    hid_t how = contiguous(), space = H5Screate_simple(2, dims, NULL);
    require(H5Pset_virtual(how, space, "other.h5", "/a", space) >= 0);
    H5Sclose(space);
    return how;
}

static void make_attribute(hid_t of, hid_t type)
{
    hid_t space = H5Screate(H5S_SCALAR);
    hid_t id = H5Acreate2(of, "units", type, space, H5P_DEFAULT, H5P_DEFAULT);
    const char *text = "metre";
    require(id >= 0 && H5Awrite(id, type, &text) >= 0);
    H5Aclose(id);
    H5Sclose(space);
}

/* ---- Elements that lead elsewhere ---- */

static void make_references(hid_t root)
{
    hobj_ref_t references[ELEMENTS];
    for (size_t i = 0; i < ELEMENTS; i++)
        require(H5Rcreate(&references[i], root, i % 2 ? "/g/c" : "/a", H5R_OBJECT, -1) >= 0);
    make_dataset(root, "r", H5T_STD_REF_OBJ, contiguous(), references);
}

static void make_strings(hid_t root, hid_t text)
{
    const char *strings[ELEMENTS];
    for (size_t i = 0; i < ELEMENTS; i++)
        strings[i] = i % 3 ? "a line\nand more" : "";
    make_dataset(root, "w", text, contiguous(), strings);
}

static void make_sequences(hid_t root)
{
    static int32_t values[] = {1, 2, 3};
    hvl_t sequences[ELEMENTS];
    hid_t type = H5Tvlen_create(H5T_STD_I32LE);
    for (size_t i = 0; i < ELEMENTS; i++)
        sequences[i] = (hvl_t){i % 4, values};
    make_dataset(root, "l", type, chunked(true), sequences);
    H5Tclose(type);
}

/* ---- All of it ---- */

static void make_groups(hid_t root, hid_t compound, hid_t text)
{
    static const char zeros[ELEMENTS * 12];
    hid_t group = H5Gcreate2(root, "g", H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT);
    H5Gclose(H5Gcreate2(root, "h", H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT));
    make_dataset(group, "c", compound, chunked(false), zeros);
    make_attribute(group, text);
    require(H5Tcommit2(root, "t", compound, H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT) >= 0);
    require(H5Lcreate_soft("/g/c", root, "s", H5P_DEFAULT, H5P_DEFAULT) >= 0);
    require(H5Lcreate_external("o.h5", "/x", root, "x", H5P_DEFAULT, H5P_DEFAULT) >= 0);
    H5Gclose(group);
}

static void fill_file(hid_t root)
{
    static const char zeros[ELEMENTS * 8];
    hid_t text = H5Tcopy(H5T_C_S1), compound = H5Tcreate(H5T_COMPOUND, 12);
    require(H5Tset_size(text, H5T_VARIABLE) >= 0);
    require(H5Tinsert(compound, "x", 0, H5T_STD_I32LE) >= 0);
    require(H5Tinsert(compound, "y", 4, H5T_IEEE_F64LE) >= 0);
    make_dataset(root, "a", H5T_STD_I32LE, chunked(true), zeros);
    make_dataset(root, "b", H5T_IEEE_F64BE, contiguous(), zeros);
    make_dataset(root, "p", H5T_STD_I32LE, contiguous(), NULL);
    make_dataset(root, "e", H5T_STD_I32LE, external(), NULL);
    make_dataset(root, "v", H5T_STD_I32LE, virtual(), NULL);
    make_strings(root, text);
    make_sequences(root);
    make_groups(root, compound, text);
    make_references(root);
    H5Tclose(compound);
    H5Tclose(text);
}

const struct objects *objects_make(void)
{
    if (objects.file)
        return &objects;
    hid_t how = H5Pcreate(H5P_FILE_ACCESS);
    require(H5Pset_fapl_core(how, 1 << 16, 0) >= 0);
    hid_t id = H5Fcreate("fuzz", H5F_ACC_TRUNC, H5P_DEFAULT, how);
    require(id >= 0);
    fill_file(id);
    require(H5Ovisit2(id, H5_INDEX_NAME, H5_ITER_INC, note_object, NULL, H5O_INFO_BASIC) >= 0);
    require(H5Fflush(id, H5F_SCOPE_LOCAL) >= 0);
    ssize_t n = H5Fget_file_image(id, NULL, 0);
    objects.file = n > 0 ? malloc((size_t)n) : NULL;
    require(objects.file && H5Fget_file_image(id, objects.file, (size_t)n) == n);
    objects.file_n = (uint64_t)n;
    H5Fclose(id);
    H5Pclose(how);
    return &objects;
}

size_t objects_choose(const char *letters, unsigned which)
{
    char letter = letters[which % strlen(letters)];
    for (size_t i = 0; i < objects.n; i++)
        if (objects.letter[i] == letter)
            return i;
    require(false);
    return 0;
}

const char *objects_path(unsigned which)
{
    static const char *const paths[] = {"a",      "g",       "g/c", "s",  "t",  "/",
                                        "g/../a", "nothing", "b",   "p",  "/h", "e",
                                        "v",      "/w",      "/l",  "/r", "/x", "/g"};
    return paths[which % (sizeof(paths) / sizeof(*paths))];
}

const char *objects_new_path(unsigned which)
{
    static const char *const paths[] = {"/new", "/new/deep", "/g/new", "/h/new"};
    return which < 192 ? paths[which % 4] : objects_path(which);
}
