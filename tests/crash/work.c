#include "work.h"

#include <errno.h>
#include <hdf5.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "../unit/support.h"

enum kind { SPARSE, DENSE, CONTIGUOUS };

/* The datasets. What libhdf5 makes of one that is there before: contiguous. */
static const struct shape {
    const char *path;
    enum kind kind;
    int rank;
    uint64_t dims[3]; /* when it is made */
    uint64_t most[3];
    bool unlimited[3];
    uint64_t chunk[3];
    const char *type;
    size_t size;
    uint32_t fill;
    bool filtered;
} shapes[SETS] = {
    {"/frames", SPARSE, 3, {1, 10, 12}, {6, 10, 12}, {true}, {1, 5, 12}, "<u2", 2, 7, true},
    {"/deep/down/plane", SPARSE, 2, {6, 5}, {24, 24}, {true, true}, {4, 4}, "<u4", 4, 0, false},
    {"/fixed", SPARSE, 2, {16, 16}, {16, 16}, {false}, {8, 5}, "<u2", 2, 0, true},
    {"/one", SPARSE, 2, {9, 9}, {9, 9}, {false}, {9, 9}, "<u4", 4, 3, false},
    {"/line", SPARSE, 1, {100}, {900}, {true}, {30}, "<u4", 4, 0, false},
    {"/deep/dense", DENSE, 2, {12, 16}, {12, 16}, {false}, {4, 16}, "<u4", 4, 0, false},
    {"/old", CONTIGUOUS, 2, {25, 40}, {25, 40}, {false}, {0}, "<u4", 4, 0, false},
};

static uint64_t most_cells(const struct shape *shape)
{
    uint64_t n = 1;
    for (int i = 0; i < shape->rank; i++)
        n *= shape->most[i];
    return n;
}

/* ---- Files of libhdf5 ---- */

static void add_attribute(hid_t object, const char *name, double value)
{
    hid_t space = H5Screate(H5S_SCALAR);
    hid_t attribute = H5Acreate2(object, name, H5T_NATIVE_DOUBLE, space, H5P_DEFAULT, H5P_DEFAULT);
    assert_true(attribute >= 0 && H5Awrite(attribute, H5T_NATIVE_DOUBLE, &value) >= 0);
    H5Aclose(attribute);
    H5Sclose(space);
}

void work_make_template(const char *path)
{
    hid_t file = H5Fcreate(path, H5F_ACC_TRUNC, H5P_DEFAULT, H5P_DEFAULT);
    hid_t root = H5Gopen2(file, "/", H5P_DEFAULT);
    assert_true(root >= 0);
    for (int i = 0; i < 12; i++) { /* more than an object header keeps by itself */
        char name[16];
        snprintf(name, sizeof(name), "a%d", i);
        add_attribute(root, name, i + 0.5);
    }
    H5Gclose(root);
    H5Fclose(file);
}

static struct set *set_of(struct model *model, const struct shape *shape)
{
    return &model->sets[shape - shapes];
}

static void model_create(struct model *model, const struct shape *shape)
{
    struct set *set = set_of(model, shape);
    set->exists = true;
    memcpy(set->dims, shape->dims, sizeof(set->dims));
    for (uint64_t i = 0; i < most_cells(shape); i++) {
        set->values[i] = shape->fill;
        set->defined[i] = shape->kind != SPARSE;
    }
}

void work_make_old(const char *path, bool oldest, struct model *model)
{
    const struct shape *shape = &shapes[SETS - 1];
    hid_t fapl = H5Pcreate(H5P_FILE_ACCESS);
    if (!oldest)
        H5Pset_libver_bounds(fapl, H5F_LIBVER_V110, H5F_LIBVER_LATEST);
    hid_t file = H5Fcreate(path, H5F_ACC_TRUNC, H5P_DEFAULT, fapl);
    hid_t space = H5Screate_simple(2, (const hsize_t *)shape->dims, NULL);
    hid_t set =
        H5Dcreate2(file, shape->path, H5T_STD_U32LE, space, H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT);
    memset(model, 0, sizeof(*model));
    model_create(model, shape);
    uint32_t *values = set_of(model, shape)->values;
    for (uint64_t i = 0; i < most_cells(shape); i++)
        values[i] = (uint32_t)random_next();
    assert_true(set >= 0 &&
                H5Dwrite(set, H5T_STD_U32LE, H5S_ALL, H5S_ALL, H5P_DEFAULT, values) >= 0);
    add_attribute(set, "unit", 3);
    H5Dclose(set);
    H5Sclose(space);
    assert_true(H5Fclose(file) >= 0);
    H5Pclose(fapl);
}

/* ---- Steps ---- */

static int open_set(struct sfs_file *file, const char *path, struct sfs_dataset **dataset)
{
    uint64_t address;
    int error = sfs_find(file, sfs_root(file), path, &address);
    return error ? error : sfs_dataset_open(file, address, path, dataset);
}

static int create_set(struct work *work, const struct shape *shape)
{
    static const unsigned level = 1;
    static const struct sfs_filter deflate = {.id = 1, .n_values = 1, .values = &level};
    struct sfs_dataset_create create = {.rank = shape->rank, .is_dense = shape->kind == DENSE};
    struct sfs_dataset *dataset;
    unsigned char fill[4] = {(unsigned char)shape->fill};
    void *type;
    for (int i = 0; i < shape->rank; i++) {
        create.dims[i] = shape->dims[i];
        create.max_dims[i] = shape->unlimited[i] ? SFS_UNLIMITED : shape->most[i];
        create.chunk_dims[i] = shape->chunk[i];
    }
    for (int i = 0; i < 2 && shape->filtered; i++) {
        create.n_filters[i] = 1;
        create.filters[i] = &deflate;
    }
    create.fill = fill;
    if (random_below(2)) {
        create.attributes_file = work->template;
        create.attributes_address = sfs_root(work->template);
    }
    int error = sfs_type_encode(shape->type, &type, &create.type.n);
    assert_int_equal(error, 0);
    create.type.bytes = type;
    error = sfs_dataset_create(work->file, shape->path, &create, &dataset);
    free(type);
    if (error)
        return error;
    sfs_dataset_close(dataset);
    model_create(work->model, shape);
    return 0;
}

/* A box inside of the dims; false if there is none. */
static bool choose_slab(const struct shape *shape, const uint64_t *dims, struct sfs_slab *slab)
{
    slab->rank = shape->rank;
    for (int i = 0; i < shape->rank; i++) {
        if (dims[i] == 0)
            return false;
        slab->start[i] = random_below(dims[i]);
        slab->count[i] = 1 + random_below(dims[i] - slab->start[i]);
    }
    return true;
}

static uint64_t count(const struct sfs_slab *slab)
{
    uint64_t n = 1;
    for (int i = 0; i < slab->rank; i++)
        n *= slab->count[i];
    return n;
}

/* The cell at a position of the slab. */
static uint64_t cell(const struct shape *shape, const struct sfs_slab *slab, uint64_t position)
{
    uint64_t result = 0, stride = 1;
    for (int i = shape->rank - 1; i >= 0; i--) {
        result += (slab->start[i] + position % slab->count[i]) * stride;
        position /= slab->count[i];
        stride *= shape->most[i];
    }
    return result;
}

static void put_value(const struct shape *shape, unsigned char *bytes, uint64_t i, uint32_t value)
{
    memcpy(bytes + i * shape->size, &value, shape->size); /* little-endian, as this machine */
}

static uint32_t get_value(const struct shape *shape, const unsigned char *bytes, uint64_t i)
{
    uint32_t value = 0;
    memcpy(&value, bytes + i * shape->size, shape->size);
    return value;
}

static uint32_t random_value(const struct shape *shape)
{
    return (uint32_t)random_next() & (shape->size == 2 ? 0xffff : UINT32_MAX);
}

/* Writes all of a slab, or (some) a part of it. */
static int write_slab(struct sfs_dataset *dataset, const struct shape *shape, struct set *set,
                      bool some)
{
    static struct sfs_interval intervals[MOST_CELLS + 1];
    unsigned char bytes[4 * MOST_CELLS];
    struct sfs_defined defined = {.interval = intervals};
    struct sfs_slab slab;
    struct set after = *set;
    if (!choose_slab(shape, set->dims, &slab))
        return 0;
    for (uint64_t i = 0; i < count(&slab); i++) {
        uint64_t at = cell(shape, &slab, i);
        if (some && random_below(3))
            continue;
        after.values[at] = random_value(shape);
        after.defined[at] = true;
        put_value(shape, bytes, defined.elements, after.values[at]);
        bool joins =
            defined.n > 0 &&
            intervals[defined.n - 1].first + defined.elements - intervals[defined.n - 1].index == i;
        if (!joins)
            intervals[defined.n++] = (struct sfs_interval){i, defined.elements};
        defined.elements++;
    }
    intervals[defined.n] = (struct sfs_interval){0, defined.elements};
    int error =
        some ? sfs_write_values(dataset, &slab, &defined, bytes) : sfs_write(dataset, &slab, bytes);
    if (!error)
        *set = after;
    return error;
}

static int erase_slab(struct sfs_dataset *dataset, const struct shape *shape, struct set *set)
{
    struct sfs_slab slab;
    if (!choose_slab(shape, set->dims, &slab))
        return 0;
    int error = sfs_erase(dataset, &slab);
    for (uint64_t i = 0; i < count(&slab) && !error; i++) {
        uint64_t at = cell(shape, &slab, i);
        set->values[at] = shape->fill;
        set->defined[at] = false;
    }
    return error;
}

static bool is_inside(const struct shape *shape, const uint64_t *dims, uint64_t at)
{
    for (int i = shape->rank - 1; i >= 0; i--) {
        if (at % shape->most[i] >= dims[i])
            return false;
        at /= shape->most[i];
    }
    return true;
}

static int resize(struct sfs_dataset *dataset, const struct shape *shape, struct set *set)
{
    uint64_t dims[3] = {0};
    for (int i = 0; i < shape->rank; i++)
        dims[i] = shape->unlimited[i] ? random_below(shape->most[i] + 1) : set->dims[i];
    int error = sfs_set_extent(dataset, dims);
    if (error)
        return error;
    memcpy(set->dims, dims, sizeof(dims));
    for (uint64_t i = 0; i < most_cells(shape); i++)
        if (!is_inside(shape, dims, i)) {
            set->values[i] = shape->fill;
            set->defined[i] = false;
        }
    return 0;
}

static int create_group(struct work *work)
{
    char path[16];
    if (work->model->groups == MOST_GROUPS)
        return 0;
    snprintf(path, sizeof(path), "/g%d", work->model->groups);
    int error = sfs_group_create(work->file, path);
    if (!error)
        work->model->groups++;
    return error;
}

static int copy_attributes(struct work *work)
{
    char path[16];
    uint64_t address;
    int i = work->model->groups - 1;
    if (i < 0 || work->model->attributes[i])
        return 0;
    snprintf(path, sizeof(path), "/g%d", i);
    int error = sfs_find(work->file, sfs_root(work->file), path, &address);
    if (!error)
        error = sfs_attributes_copy(work->file, address, work->template, sfs_root(work->template));
    if (!error)
        work->model->attributes[i] = true;
    return error;
}

/* A dataset that is there, sparse or not; NULL: there is none. */
static const struct shape *choose_set(const struct model *model, bool sparse)
{
    uint64_t first = random_below(SETS);
    for (uint64_t i = 0; i < SETS; i++) {
        uint64_t at = (first + i) % SETS;
        if (model->sets[at].exists && (shapes[at].kind == SPARSE) == sparse)
            return &shapes[at];
    }
    return NULL;
}

static const struct shape *choose_missing(const struct model *model)
{
    uint64_t first = random_below(SETS);
    for (uint64_t i = 0; i < SETS; i++) {
        uint64_t at = (first + i) % SETS;
        if (!model->sets[at].exists && shapes[at].kind != CONTIGUOUS)
            return &shapes[at];
    }
    return NULL;
}

static int change_set(struct work *work, int kind)
{
    const struct shape *shape = choose_set(work->model, kind != 8);
    struct sfs_dataset *dataset;
    if (!shape)
        return 0;
    struct set *set = set_of(work->model, shape);
    int error = open_set(work->file, shape->path, &dataset);
    if (error)
        return error;
    switch (kind) {
    case 3:
        error = write_slab(dataset, shape, set, false);
        break;
    case 4:
    case 5:
        error = write_slab(dataset, shape, set, true);
        break;
    case 6:
        error = erase_slab(dataset, shape, set);
        break;
    case 7:
        error = resize(dataset, shape, set);
        break;
    default:
        error = write_slab(dataset, shape, set, false);
    }
    sfs_dataset_close(dataset);
    return error;
}

int work_step_of(struct work *work, int kind)
{
    random_seed(work->seed);
    const struct shape *missing;
    int error = 0;
    switch (kind) {
    case 0:
        error = create_group(work);
        break;
    case 1:
        error = copy_attributes(work);
        break;
    case 2:
        missing = choose_missing(work->model);
        error = missing ? create_set(work, missing) : 0;
        break;
    default:
        error = change_set(work, kind);
    }
    if (!error)
        work->seed = random_next();
    return error;
}

int work_step(struct work *work)
{
    random_seed(work->seed ^ 0x5555);
    return work_step_of(work, (int)random_below(WORK_KINDS));
}

/* ---- Comparing ---- */

static bool is_set(struct sfs_dataset *dataset, const struct shape *shape, const struct set *set,
                   const char **why)
{
    unsigned char bytes[4 * MOST_CELLS];
    struct sfs_slab all = {.rank = shape->rank};
    struct sfs_defined defined;
    if (memcmp(sfs_dataset_info(dataset)->dims, set->dims,
               (size_t)shape->rank * sizeof(uint64_t)) != 0) {
        *why = "other dims";
        return false;
    }
    memcpy(all.count, set->dims, sizeof(set->dims));
    uint64_t n = count(&all);
    if (n == 0)
        return true;
    int error = sfs_read(dataset, &all, 0, bytes, n * shape->size);
    if (!error)
        error = sfs_get_defined(dataset, &all, &defined);
    *why = error ? "cannot be read" : NULL;
    if (error)
        return false;
    size_t k = 0;
    for (uint64_t i = 0; i < n && !*why; i++) {
        uint64_t at = cell(shape, &all, i);
        while (k < defined.n && i >= defined.interval[k].first + defined.interval[k + 1].index -
                                         defined.interval[k].index)
            k++;
        bool is_defined = k < defined.n && defined.interval[k].first <= i;
        if (is_defined != set->defined[at])
            *why = "other elements are defined";
        else if (get_value(shape, bytes, i) != set->values[at])
            *why = "other values";
    }
    sfs_defined_free(&defined);
    return !*why;
}

static bool has_set(struct sfs_file *file, const struct model *model, const struct shape *shape,
                    const char **why)
{
    const struct set *set = &model->sets[shape - shapes];
    struct sfs_dataset *dataset;
    int error = open_set(file, shape->path, &dataset);
    if (error) {
        *why = "a dataset is missing or cannot be opened";
        return !set->exists && error == -ENOENT;
    }
    *why = "a dataset that should not be there";
    bool good = set->exists && is_set(dataset, shape, set, why);
    sfs_dataset_close(dataset);
    return good;
}

static bool has_group(struct sfs_file *file, const struct model *model, int i, const char **why)
{
    char path[16];
    uint64_t address;
    struct sfs_attributes attributes;
    snprintf(path, sizeof(path), "/g%d", i);
    int error = sfs_find(file, sfs_root(file), path, &address);
    *why = "a group is missing, or too many";
    if (error)
        return error == -ENOENT && i >= model->groups;
    if (i >= model->groups || sfs_attributes(file, address, &attributes))
        return false;
    *why = "other attributes";
    bool good = attributes.n == (model->attributes[i] ? 12 : 0);
    for (size_t k = 0; k < attributes.n && good; k++) {
        char text[16];
        snprintf(text, sizeof(text), "%d.5", atoi(attributes.attribute[k].name + 1));
        good = attributes.attribute[k].text && !strcmp(attributes.attribute[k].text, text);
    }
    sfs_attributes_free(&attributes);
    return good;
}

bool work_is(struct sfs_file *file, const struct model *model, const char **why)
{
    bool good = true;
    for (int i = 0; i < SETS && good; i++)
        good = has_set(file, model, &shapes[i], why);
    for (int i = 0; i < MOST_GROUPS && good; i++)
        good = has_group(file, model, i, why);
    return good;
}

static bool has_superblock(const char *path)
{
    unsigned char head[64];
    struct stat st;
    FILE *file = fopen(path, "r");
    if (!file || fread(head, 1, sizeof(head), file) < sizeof(head) ||
        fstat(fileno(file), &st) < 0) {
        if (file)
            fclose(file);
        return false;
    }
    fclose(file);
    uint64_t end = 0;
    memcpy(&end, head + (head[8] < 2 ? 40 : 28), 8);
    return end <= (uint64_t)st.st_size && (head[8] < 3 || head[11] == 0);
}

static bool is_dense_set(hid_t file, const struct shape *shape, const struct set *set)
{
    uint32_t values[MOST_CELLS];
    hid_t dataset = H5Dopen2(file, shape->path, H5P_DEFAULT);
    bool good =
        dataset >= 0 && H5Dread(dataset, H5T_STD_U32LE, H5S_ALL, H5S_ALL, H5P_DEFAULT, values) >= 0;
    if (dataset >= 0)
        H5Dclose(dataset);
    return good && memcmp(values, set->values, most_cells(shape) * sizeof(*values)) == 0;
}

bool work_is_for_libhdf5(const char *path, const struct model *model, const char **why)
{
    *why = "the superblock is wrong";
    if (!has_superblock(path))
        return false;
    hid_t file = H5Fopen(path, H5F_ACC_RDONLY, H5P_DEFAULT);
    *why = "libhdf5 finds other dense datasets";
    bool good = file >= 0;
    for (int i = 0; i < SETS && good; i++)
        if (shapes[i].kind != SPARSE && model->sets[i].exists)
            good = is_dense_set(file, &shapes[i], &model->sets[i]);
    if (file >= 0)
        H5Fclose(file);
    return good;
}

static void take_finding(void *context, enum sfs_finding finding, const char *line)
{
    if (finding == SFS_SOUND)
        return;
    *(bool *)context = false;
    printf("check: %s\n", line);
}

bool work_is_sound(struct sfs_file *file)
{
    bool sound = true;
    return sfs_check(file, take_finding, &sound) == 0 && sound;
}
