/* libFuzzer: any bytes as a file, of which our own reader is asked what a listing asks, and for the text of elements
 * of any bytes. The first
 * byte says whether checksums count. Whatever it says could have come from libhdf5's process: it
 * goes through the checks for that, and is the same after them. Inputs begin as files that libhdf5
 * makes. */
#include <errno.h>
#include <hdf5.h>
#include <stdlib.h>
#include <string.h>

#include "fuzz.h"
#include "hdf5/own_reader.h"
#include "hdf5/worker/wire.h"
#include "store/store.h"

#define COUNT(array) (sizeof(array) / sizeof(*(array)))
#define SAMPLES      2
#define MOST_OBJECTS 200
#define ROOM         ((size_t)16 << 10)
#define PATIENT      UINT64_C(3600000000000) /* nanoseconds */
#define MOST_BYTES   ((size_t)4 << 10)       /* of elements */

static struct {
    unsigned char bytes[ROOM];
    size_t n;
} samples[SAMPLES];

/* ---- Making ---- */

static void make_dataset(hid_t file, const char *name, hid_t type, const hsize_t *chunk_dims)
{
    const hsize_t dims[] = {6, 4}, max_dims[] = {H5S_UNLIMITED, 4};
    hid_t space = H5Screate_simple(2, dims, chunk_dims ? max_dims : NULL);
    hid_t dcpl = H5Pcreate(H5P_DATASET_CREATE);
    if (chunk_dims) {
        H5Pset_chunk(dcpl, 2, chunk_dims);
        H5Pset_shuffle(dcpl);
        H5Pset_deflate(dcpl, 1);
    }
    hid_t dataset = H5Dcreate2(file, name, type, space, H5P_DEFAULT, dcpl, H5P_DEFAULT);
    require(dataset >= 0);
    H5Dclose(dataset);
    H5Pclose(dcpl);
    H5Sclose(space);
}

static void make_compound(hid_t file)
{
    const signed char no = 0, yes = 1;
    const hsize_t dims[] = {2, 3};
    hid_t type = H5Tcreate(H5T_COMPOUND, 32), boolean = H5Tenum_create(H5T_STD_I8LE);
    hid_t array = H5Tarray_create2(H5T_IEEE_F32BE, 2, dims);
    H5Tenum_insert(boolean, "FALSE", &no);
    H5Tenum_insert(boolean, "TRUE", &yes);
    H5Tinsert(type, "flag", 0, boolean);
    H5Tinsert(type, "array", 4, array);
    H5Tinsert(type, "n", 28, H5T_STD_U16BE);
    make_dataset(file, "compound", type, NULL);
    H5Tclose(array);
    H5Tclose(boolean);
    H5Tclose(type);
}

static void make_links(hid_t file, bool latest)
{
    char name[16];
    hid_t group = H5Gcreate2(file, "group", H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT);
    for (int i = 0; i < 20; i++) {
        snprintf(name, sizeof(name), "soft %d", i);
        H5Lcreate_soft("/compound", group, name, H5P_DEFAULT, H5P_DEFAULT);
    }
    H5Lcreate_hard(file, "compound", group, "hard", H5P_DEFAULT, H5P_DEFAULT);
    if (latest)
        H5Lcreate_external("other.h5", "/x", group, "external", H5P_DEFAULT, H5P_DEFAULT);
    require(group >= 0);
    H5Gclose(group);
}

static void make_sample(int i)
{
    const hsize_t chunk_dims[] = {2, 3};
    hid_t fapl = H5Pcreate(H5P_FILE_ACCESS), text = H5Tcopy(H5T_C_S1);
    H5Pset_fapl_core(fapl, 1 << 16, false);
    if (i > 0)
        H5Pset_libver_bounds(fapl, H5F_LIBVER_LATEST, H5F_LIBVER_LATEST);
    H5Tset_size(text, H5T_VARIABLE);
    hid_t file = H5Fcreate("sample", H5F_ACC_TRUNC, H5P_DEFAULT, fapl);
    require(file >= 0);
    make_compound(file);
    make_dataset(file, "chunked", H5T_STD_I32LE, chunk_dims);
    make_dataset(file, "text", text, NULL);
    make_links(file, i > 0);
    H5Fflush(file, H5F_SCOPE_GLOBAL);
    ssize_t n = H5Fget_file_image(file, samples[i].bytes, ROOM);
    require(n > 0);
    samples[i].n = (size_t)n;
    H5Fclose(file);
    H5Tclose(text);
    H5Pclose(fapl);
}

static void make_samples(void)
{
    static bool are_made;
    for (int i = 0; i < SAMPLES && !are_made; i++)
        make_sample(i);
    are_made = true;
}

/* ---- Asking ---- */

struct walk {
    struct direct *direct;
    struct sfs_encoded bytes; /* of elements */
    uint64_t queue[MOST_OBJECTS];
    size_t n;
};

static void check_error(int error)
{
    require(error == -EAGAIN || error == -ENOMEM);
}

static void require_same(const struct wire *a, const struct wire *b)
{
    require(!a->failed && !b->failed && a->n == b->n && !memcmp(a->bytes, b->bytes, a->n));
}

static void use_links(struct walk *walk, uint64_t group)
{
    struct sfs_links links, taken;
    struct wire a = {0}, b = {0};
    int error = direct_list(walk->direct, group, &links);
    if (error) {
        check_error(error);
        return;
    }
    wire_links(&a, &links);
    struct cursor cursor = cursor_over(a.bytes, a.n);
    require(take_links(&cursor, &taken) == 0);
    wire_links(&b, &taken);
    require_same(&a, &b);
    for (size_t i = 0; i < links.n && walk->n < MOST_OBJECTS; i++)
        if (links.link[i].type == SFS_LINK_HARD)
            walk->queue[walk->n++] = links.link[i].address;
    sfs_links_free(&links);
    sfs_links_free(&taken);
    wire_free(&a);
    wire_free(&b);
}

static void use_text(const struct walk *walk, const struct sfs_dataset_info *info)
{
    static const uint64_t lengths[] = {0, 3, HDF5_LINES, HDF5_JSON};
    size_t size = info->type.size, n = size > 0 ? walk->bytes.n / size : 0;
    for (size_t i = 0; i < COUNT(lengths); i++) {
        const struct hdf5_elements elements = {.type = &info->encoded_type,
                                               .first = 1,
                                               .n = n,
                                               .row_length = lengths[i],
                                               .elements = {walk->bytes.bytes, n * size}};
        char *text;
        size_t text_n;
        int error = direct_elements_text(&elements, &text, &text_n);
        if (error) {
            check_error(error);
            continue;
        }
        require(text_n <= DIRECT_MOST_TEXT && strlen(text) <= text_n);
        free(text);
    }
}

static void use_dataset(struct walk *walk, uint64_t address)
{
    struct sfs_dataset_info info, taken;
    struct hdf5_storage storage, taken_storage;
    struct wire a = {0}, b = {0};
    int error = direct_dataset_open(walk->direct, address, &info, &storage);
    if (error) {
        check_error(error);
        return;
    }
    wire_info(&a, &info);
    wire_storage(&a, &storage);
    struct cursor cursor = cursor_over(a.bytes, a.n);
    require(take_info(&cursor, &taken) == 0 && take_storage(&cursor, &taken, &taken_storage) == 0);
    wire_info(&b, &taken);
    wire_storage(&b, &taken_storage);
    require_same(&a, &b);
    use_text(walk, &info);
    hdf5_info_free(&info);
    hdf5_info_free(&taken);
    wire_free(&a);
    wire_free(&b);
}

static void use(struct store *store, const struct sfs_encoded *bytes)
{
    static struct walk walk;
    walk.n = 1;
    walk.bytes = *bytes;
    int error = direct_open(store, PATIENT, &walk.direct, &walk.queue[0]);
    if (error) {
        check_error(error);
        return;
    }
    for (size_t i = 0; i < walk.n; i++) {
        enum sfs_object_type type = SFS_DATATYPE;
        error = direct_object_type(walk.direct, walk.queue[i], &type);
        if (error)
            check_error(error);
        use_links(&walk, walk.queue[i]);
        use_dataset(&walk, walk.queue[i]);
    }
    direct_close(walk.direct);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n)
{
    struct store *store;
    if (n == 0)
        return 0;
    be_quiet();
    ignore_checksums(bytes[0] & 1);
    if (store_open(file_of(bytes + 1, n - 1), &store) < 0)
        return 0;
    n = n - 1 < MOST_BYTES ? n - 1 : MOST_BYTES;
    use(store, &(struct sfs_encoded){(void *)(uintptr_t)(bytes + 1), n});
    store_close(store);
    return 0;
}

/* Too short an input becomes a sample. */
size_t LLVMFuzzerCustomMutator(uint8_t *bytes, size_t n, size_t most, unsigned seed)
{
    make_samples();
    size_t i = seed % COUNT(samples);
    if (n < 128 && samples[i].n < most) {
        bytes[0] = seed >> 8 & 1;
        memcpy(bytes + 1, samples[i].bytes, samples[i].n);
        n = samples[i].n + 1;
    }
    return LLVMFuzzerMutate(bytes, n, most);
}
