/* libFuzzer: any bytes as an image, in which space that is not in use is looked for (src/dataset/unused_space.c). The
 * first byte says whether checksums count. What is found lies in the image, once; and all that the
 * library itself reads of the same image, links, descriptions, sparse chunks and their indexes, is the same when it
 * was written over. Inputs begin as images that libhdf5 and the library make, with holes. */
#include <errno.h>
#include <hdf5.h>
#include <stdlib.h>
#include <string.h>

#include "dataset/private.h"
#include "format/plain_headers.h"
#include "format/structure.h"
#include "fuzz.h"
#include "hdf5/own_reader.h"
#include "hdf5/worker/wire.h"
#include "layout/sparse.h"
#include "store/store.h"

#define SAMPLES        2
#define MOST_OBJECTS   200
#define MOST_RANGES    4096
#define ROOM           ((size_t)32 << 10)
#define PATIENT        UINT64_C(3600000000000) /* nanoseconds */
#define NEW_SUPERBLOCK 48                      /* bytes */
#define ROWS           8
#define COLUMNS        16
#define LINKS          20
#define ATTRIBUTES     12

static struct {
    unsigned char bytes[ROOM];
    size_t n;
} samples[SAMPLES];

/* What was given back since it was 0. */
struct range {
    uint64_t address, n;
};

static struct range found[MOST_RANGES];
static size_t n_found;

/* ---- Making ---- */

static void make_dataset(hid_t file, const char *name, hid_t type, hsize_t max, hsize_t chunk)
{
    const hsize_t dims = 12;
    const uint16_t values[12] = {1, 2, 3};
    hid_t space = H5Screate_simple(1, &dims, &max), dcpl = H5Pcreate(H5P_DATASET_CREATE);
    if (chunk)
        H5Pset_chunk(dcpl, 1, &chunk);
    hid_t dataset = H5Dcreate2(file, name, type, space, H5P_DEFAULT, dcpl, H5P_DEFAULT);
    require(dataset >= 0);
    if (!H5Tis_variable_str(type))
        require(H5Dwrite(dataset, H5T_NATIVE_UINT16, H5S_ALL, H5S_ALL, H5P_DEFAULT, values) >= 0);
    H5Dclose(dataset);
    H5Pclose(dcpl);
    H5Sclose(space);
}

static void make_attributes(hid_t group)
{
    hid_t space = H5Screate(H5S_SCALAR);
    char name[16];
    for (int i = 0; i < ATTRIBUTES; i++) {
        snprintf(name, sizeof(name), "attribute %d", i);
        H5Aclose(H5Acreate2(group, name, H5T_STD_I32LE, space, H5P_DEFAULT, H5P_DEFAULT));
    }
    H5Adelete(group, "attribute 3");
    H5Sclose(space);
}

static void make_links(hid_t group)
{
    char name[16];
    for (int i = 0; i < LINKS; i++) {
        snprintf(name, sizeof(name), "link %d", i);
        H5Lcreate_soft("/chunked", group, name, H5P_DEFAULT, H5P_DEFAULT);
    }
    H5Ldelete(group, "link 3", H5P_DEFAULT);
}

static void make_text(hid_t file)
{
    const char *text[12] = {"one", "two"};
    hid_t type = H5Tcopy(H5T_C_S1);
    H5Tset_size(type, H5T_VARIABLE);
    make_dataset(file, "text", type, 12, 0);
    hid_t dataset = H5Dopen2(file, "text", H5P_DEFAULT);
    for (int i = 2; i < 12; i++)
        text[i] = "more";
    require(H5Dwrite(dataset, type, H5S_ALL, H5S_ALL, H5P_DEFAULT, text) >= 0);
    H5Dclose(dataset);
    H5Tclose(type);
}

static void make_objects(hid_t file)
{
    make_dataset(file, "chunked", H5T_STD_U16LE, 12, 5);
    make_dataset(file, "grows", H5T_STD_U16LE, H5S_UNLIMITED, 2);
    make_dataset(file, "one", H5T_STD_U16LE, 12, 12);
    make_dataset(file, "plain", H5T_STD_U16LE, 12, 0);
    hid_t group = H5Gcreate2(file, "group", H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT);
    make_attributes(group);
    make_links(group);
    H5Gclose(group);
    make_text(file);
    H5Ldelete(file, "plain", H5P_DEFAULT);
}

/* Rows of other lengths than before, as a session leaves them. */
static void add_sparse(int i)
{
    struct sfs_dataset_create create = {.rank = 2,
                                        .dims = {ROWS, COLUMNS},
                                        .max_dims = {ROWS, COLUMNS},
                                        .chunk_dims = {1, COLUMNS}};
    const uint16_t values[COLUMNS] = {1, 2, 3};
    struct sfs_file *file;
    struct sfs_dataset *dataset;
    void *type;
    require(sfs_type_encode("<u2", &type, &create.type.n) == 0);
    create.type.bytes = type;
    n_found = 0;
    require(sfs_open_image(samples[i].bytes, samples[i].n, SFS_IMAGE_WRITABLE, NULL, &file) == 0 &&
            sfs_dataset_create(file, "/sparse", &create, &dataset) == 0);
    for (uint64_t round = 0; round < 2; round++) {
        for (uint64_t row = 0; row < ROWS; row++) {
            struct sfs_slab slab = {
                .rank = 2, .start = {row}, .count = {1, 1 + (3 * row + 5 * round) % COLUMNS}};
            require(sfs_write(dataset, &slab, values) == 0);
        }
        require(sfs_flush(file) == 0);
    }
    sfs_dataset_close(dataset);
    int64_t n = sfs_get_image(file, samples[i].bytes, ROOM);
    require(n > 0 && sfs_close(file) == 0);
    samples[i].n = (size_t)n;
    free(type);
}

static void make_sample(int i)
{
    hid_t fapl = H5Pcreate(H5P_FILE_ACCESS);
    H5Pset_fapl_core(fapl, 1 << 16, false);
    if (i > 0)
        H5Pset_libver_bounds(fapl, H5F_LIBVER_LATEST, H5F_LIBVER_LATEST);
    hid_t file = H5Fcreate("sample", H5F_ACC_TRUNC, H5P_DEFAULT, fapl);
    require(file >= 0);
    make_objects(file);
    H5Fflush(file, H5F_SCOPE_GLOBAL);
    ssize_t n = H5Fget_file_image(file, samples[i].bytes, ROOM);
    require(n > 0);
    samples[i].n = (size_t)n;
    if (i > 0) /* libhdf5 takes the mark of a writer out of an image, and leaves the checksum */
        structure_sum(samples[i].bytes, NEW_SUPERBLOCK);
    H5Fclose(file);
    H5Pclose(fapl);
    add_sparse(i);
}

static void make_samples(void)
{
    static bool are_made;
    for (int i = 0; i < SAMPLES && !are_made; i++)
        make_sample(i);
    are_made = true;
}

/* ---- What is found ---- */

int __real_store_free_unused(struct store *store, uint64_t address, uint64_t n);
int __wrap_store_free_unused(struct store *store, uint64_t address, uint64_t n);

/* They come in ascending order. */
int __wrap_store_free_unused(struct store *store, uint64_t address, uint64_t n)
{
    const struct range *last = n_found > 0 ? &found[n_found - 1] : NULL;
    require(n > 0 && address <= store_size(store) && n <= store_size(store) - address);
    require(!last || last->address + last->n < address);
    require(n_found < MOST_RANGES);
    found[n_found++] = (struct range){address, n};
    return __real_store_free_unused(store, address, n);
}

/* ---- What is read ---- */

struct reading {
    struct store *store;
    struct superblock superblock;
    struct direct *direct;
    uint64_t queue[MOST_OBJECTS];
    size_t n;
    uint64_t sum;
};

static void add(struct reading *reading, const void *bytes, size_t n)
{
    const unsigned char *byte = bytes;
    for (size_t i = 0; i < n; i++)
        reading->sum = (reading->sum ^ byte[i]) * UINT64_C(1099511628211);
}

static void add_number(struct reading *reading, uint64_t number)
{
    add(reading, &number, sizeof(number));
}

static void add_wire(struct reading *reading, struct wire *wire)
{
    add(reading, wire->bytes, wire->n);
    wire_free(wire);
}

static void read_links(struct reading *reading, uint64_t group)
{
    struct sfs_links links;
    struct wire wire = {0};
    int error = direct_list(reading->direct, group, &links);
    add_number(reading, (uint64_t)error);
    if (error)
        return;
    wire_links(&wire, &links);
    add_wire(reading, &wire);
    for (size_t i = 0; i < links.n && reading->n < MOST_OBJECTS; i++)
        if (links.link[i].type == SFS_LINK_HARD)
            reading->queue[reading->n++] = links.link[i].address;
    sfs_links_free(&links);
}

static void read_bytes(struct reading *reading, uint64_t address, uint64_t n)
{
    uint64_t size = store_size(reading->store);
    if (address > size || n > size - address)
        return;
    void *bytes = malloc(n ? (size_t)n : 1);
    require(bytes && store_read(reading->store, address, bytes, (size_t)n) == 0);
    add(reading, bytes, (size_t)n);
    free(bytes);
}

static void read_dataset(struct reading *reading, uint64_t address)
{
    struct sfs_dataset_info info;
    struct hdf5_storage storage;
    struct wire wire = {0};
    int error = direct_dataset_open(reading->direct, address, &info, &storage);
    add_number(reading, (uint64_t)error);
    if (error)
        return;
    wire_info(&wire, &info);
    wire_storage(&wire, &storage);
    add_wire(reading, &wire);
    if (info.layout == SFS_CONTIGUOUS && storage.address != UINT64_MAX)
        read_bytes(reading, storage.address, storage.bytes);
    hdf5_info_free(&info);
}

static int read_chunk(void *context, const uint64_t *scaled, const struct chunk_record *record)
{
    struct reading *reading = context;
    add_number(reading, scaled[0]);
    add_number(reading, record->address);
    read_bytes(reading, record->address, record->size);
    return 0;
}

static void read_sparse(struct reading *reading, uint64_t address)
{
    struct sparse *sparse;
    struct why why;
    int error = sparse_open(reading->store, &reading->superblock,
                            address + reading->superblock.base, &sparse, &why);
    add_number(reading, (uint64_t)error);
    if (error)
        return;
    add_number(reading, (uint64_t)index_iterate(sparse->index, read_chunk, reading, &why));
    sparse_close(sparse);
}

static void read_all(struct reading *reading)
{
    struct why why;
    add_number(reading, (uint64_t)superblock_read(reading->store, &reading->superblock, &why));
    int error = direct_open(reading->store, PATIENT, &reading->direct, &reading->queue[0]);
    add_number(reading, (uint64_t)error);
    if (error)
        return;
    reading->n = 1;
    for (size_t i = 0; i < reading->n; i++) {
        enum sfs_object_type type = SFS_DATATYPE;
        add_number(reading,
                   (uint64_t)direct_object_type(reading->direct, reading->queue[i], &type));
        add_number(reading, type);
        read_links(reading, reading->queue[i]);
        read_dataset(reading, reading->queue[i]);
        read_sparse(reading, reading->queue[i]);
    }
    direct_close(reading->direct);
}

/* Of all that the library reads of an image. */
static uint64_t sum_of(void *bytes, size_t n)
{
    const struct store_image how = {.name = "image", .writable = false, .fixed = true};
    static struct reading reading;
    memset(&reading, 0, sizeof(reading));
    if (store_open_image(bytes, n, &how, &reading.store) < 0)
        return 0;
    read_all(&reading);
    store_close(reading.store);
    return reading.sum;
}

static void look_for(void *bytes, size_t n)
{
    const struct store_image how = {.name = "image", .writable = true, .fixed = true};
    struct store *store;
    n_found = 0;
    if (store_open_image(bytes, n, &how, &store) < 0)
        return;
    unused_space_find(store);
    store_close(store);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n)
{
    if (n < 2)
        return 0;
    be_quiet();
    ignore_checksums(bytes[0] & 1);
    unsigned char *image = malloc(n - 1);
    require(image);
    memcpy(image, bytes + 1, n - 1);
    look_for(image, n - 1);
    require(memcmp(image, bytes + 1, n - 1) == 0);
    if (n_found > 0) {
        uint64_t sum = sum_of(image, n - 1);
        for (size_t i = 0; i < n_found; i++)
            memset(image + found[i].address, 0xa5, (size_t)found[i].n);
        require(sum_of(image, n - 1) == sum);
    }
    free(image);
    return 0;
}

/* Too short an input becomes a sample. In these there is something to be found. */
size_t LLVMFuzzerCustomMutator(uint8_t *bytes, size_t n, size_t most, unsigned seed)
{
    make_samples();
    size_t i = seed % SAMPLES;
    if (n < 128 && samples[i].n < most) {
        bytes[0] = seed >> 8 & 1;
        memcpy(bytes + 1, samples[i].bytes, samples[i].n);
        n = samples[i].n + 1;
        require(LLVMFuzzerTestOneInput(bytes, n) == 0 && n_found > 0);
    }
    return LLVMFuzzerMutate(bytes, n, most);
}
