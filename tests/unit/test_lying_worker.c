/* What libhdf5's process says of datatypes is not believed: after a file has taken it over it says
 * whatever it likes of a file that is sound. Its answers come from here, all else of it is its own. */
#include "support.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include <hdf5.h>

#include "dataset/files_together.h"
#include "format/dataset_header.h"
#include "hdf5/local.h"
#include "hdf5/private.h"
#include "hdf5/worker/channel.h"
#include "sparsefs/sparsefs.h"
#include "store/store.h"

#define PATH "lies.h5"
#define N    4096

static const struct sfs_options apart = {.hdf5_worker = true};
static const struct sfs_options apart_to_write = {.hdf5_worker = true, .writable = true};

/* In memory that the processes share, as they are forked from one that is there already. */
static struct lies {
    bool all_equal;    /* of two datatypes */
    size_t size;       /* of an element, in a description; 0: the truth */
    size_t asked_size; /* the same when only that is asked for */
    bool no_pointers;  /* in a description */
    bool long_strings; /* a datatype of a header is one of these */
    bool are_swapped;  /* the first two members of compounds, in a description */
    bool is_swapped;   /* the datatype of a header is such a compound */
    size_t base_size;  /* of the elements of sequences, in a description */
    bool
        is_opaque; /* a dataset that is opened has opaque elements of `size` bytes, or sequences of them */
    size_t words;     /* bytes of the description in words, */
    size_t name;      /* of the name of a member, */
    size_t values;    /* and values of a filter that a dataset has; 0: as they are */
    bool makes_other; /* a dataset of other dims is made, or one of swapped members */
    /* Of a sparse dataset, by its path, when a link is made: */
    const char *resized; /* it gets other dims */
    const char *moved;   /* its index is elsewhere */
    const char *freed;   /* its header is given back */
    pid_t program;       /* not 0: what any other process says is changed: */
    uint64_t seed;       /* by this, */
    unsigned first;      /* from this message on */
    unsigned of;         /* in one message of so many, a word of it */
    unsigned sent;       /* messages */
} * lies;

void __real_channel_put(struct wire *batch, enum message_kind kind, const struct wire *wire);
void __wrap_channel_put(struct wire *batch, enum message_kind kind, const struct wire *wire);
int __real_channel_send(int socket, enum message_kind kind, const struct wire *wire,
                        uint64_t until);
int __wrap_channel_send(int socket, enum message_kind kind, const struct wire *wire,
                        uint64_t until);
int __real_local_dataset_open(struct hdf5 *hdf5, uint64_t address, struct sfs_dataset_info *info,
                              struct hdf5_storage *storage);
int __real_local_create_dataset(struct hdf5 *hdf5, const char *path,
                                const struct hdf5_create *create, uint64_t *address);
int __real_local_create_dense(struct hdf5 *hdf5, const char *path, const struct hdf5_create *create,
                              uint64_t *address);
int __real_local_create_link(struct hdf5 *hdf5, const char *path, const struct sfs_link *link);
int __real_local_type_of_message(const void *message, size_t n, void **type, size_t *type_n);
int __real_local_type_describe(const void *type, size_t n, struct sfs_type *description);
int __real_local_type_size(const void *type, size_t n, size_t *size);
bool __real_local_type_equal(const void *a, size_t a_n, const void *b, size_t b_n);

int __wrap_local_dataset_open(struct hdf5 *hdf5, uint64_t address, struct sfs_dataset_info *info,
                              struct hdf5_storage *storage);
int __wrap_local_create_dataset(struct hdf5 *hdf5, const char *path,
                                const struct hdf5_create *create, uint64_t *address);
int __wrap_local_create_dense(struct hdf5 *hdf5, const char *path, const struct hdf5_create *create,
                              uint64_t *address);
int __wrap_local_create_link(struct hdf5 *hdf5, const char *path, const struct sfs_link *link);
int __wrap_local_type_of_message(const void *message, size_t n, void **type, size_t *type_n);
int __wrap_local_type_describe(const void *type, size_t n, struct sfs_type *description);
int __wrap_local_type_size(const void *type, size_t n, size_t *size);
bool __wrap_local_type_equal(const void *a, size_t a_n, const void *b, size_t b_n);

static void encode(hid_t type, void **bytes, size_t *n)
{
    *n = 0;
    H5Tencode(type, NULL, n);
    *bytes = malloc(*n);
    H5Tencode(type, *bytes, n);
}

/* The encoded compound of the members of another, which are exchanged. */
static void encode_swapped(const void *type, void **bytes, size_t *n)
{
    hid_t old = H5Tdecode(type), other = H5Tcreate(H5T_COMPOUND, H5Tget_size(old));
    hid_t first = H5Tget_member_type(old, 0), second = H5Tget_member_type(old, 1);
    H5Tinsert(other, "a", 0, second);
    H5Tinsert(other, "b", H5Tget_size(second), first);
    encode(other, bytes, n);
    H5Tclose(first);
    H5Tclose(second);
    H5Tclose(other);
    H5Tclose(old);
}

static void lie_about(struct sfs_type *type)
{
    if (lies->are_swapped && type->n_members > 1) {
        struct sfs_type first = type->members[0].type;
        type->members[0].type = type->members[1].type;
        type->members[1].type = first;
        type->members[1].offset = type->members[0].type.size;
    }
    if (lies->base_size && type->base)
        *type->base = (struct sfs_type){.class = SFS_OPAQUE, .size = lies->base_size};
    if (lies->size && !lies->is_opaque) {
        type->size = lies->size;
        type->class = SFS_OPAQUE;
    }
    if (lies->no_pointers) {
        char *description = type->description;
        type->description = NULL;
        hdf5_type_free(type);
        *type = (struct sfs_type){
            .class = SFS_OPAQUE, .size = lies->size ? lies->size : 8, .description = description};
    }
}

static char *long_text(size_t n)
{
    char *text = malloc(n + 1);
    memset(text, 'a', n);
    text[n] = '\0';
    return text;
}

/* More than there is in the file. */
static void say_much(struct sfs_dataset_info *info)
{
    if (lies->words) {
        free(info->type.description);
        info->type.description = long_text(lies->words);
    }
    if (lies->name && info->type.n_members > 0) {
        free(info->type.members[0].name);
        info->type.members[0].name = long_text(lies->name);
    }
    if (lies->values) {
        info->filters = realloc(info->filters, (info->n_filters + 1) * sizeof(*info->filters));
        info->filters[info->n_filters++] = (struct sfs_filter){
            .id = 1, .n_values = lies->values, .values = calloc(lies->values, sizeof(unsigned))};
    }
}

/* Description and datatype say the same. */
static void make_opaque(struct sfs_dataset_info *info)
{
    void *bytes;
    bool is_sequence = info->type.class == SFS_VARIABLE;
    hid_t opaque = H5Tcreate(H5T_OPAQUE, lies->size), sequence = H5Tvlen_create(opaque);
    H5Tset_tag(opaque, "");
    free((void *)info->encoded_type.bytes);
    hdf5_type_free(&info->type);
    encode(is_sequence ? sequence : opaque, &bytes, &info->encoded_type.n);
    info->encoded_type.bytes = bytes;
    (void)__real_local_type_describe(bytes, info->encoded_type.n, &info->type);
    if (!is_sequence) {
        free((void *)info->fill);
        info->fill = calloc(1, lies->size);
    }
    H5Tclose(opaque);
    H5Tclose(sequence);
}

int __wrap_local_dataset_open(struct hdf5 *hdf5, uint64_t address, struct sfs_dataset_info *info,
                              struct hdf5_storage *storage)
{
    int error = __real_local_dataset_open(hdf5, address, info, storage);
    if (error)
        return error;
    if (lies->is_opaque)
        make_opaque(info);
    lie_about(&info->type);
    say_much(info);
    if (lies->no_pointers) {
        info->fill = calloc(1, info->type.size);
        info->fill_json = info->fill_json ? info->fill_json : strdup("0");
    }
    return 0;
}

typedef int (*make_function)(struct hdf5 *hdf5, const char *path, const struct hdf5_create *create,
                             uint64_t *address);

/* As asked, or something else that takes as much space. */
static int make(make_function function, struct hdf5 *hdf5, const char *path,
                const struct hdf5_create *create, uint64_t *address)
{
    static const uint64_t fewer[] = {N / 2};
    struct hdf5_create other = *create;
    struct sfs_type type;
    void *swapped = NULL;
    if (lies->makes_other) {
        (void)__real_local_type_describe(create->type, create->type_size, &type);
        if (type.n_members > 1) {
            encode_swapped(create->type, &swapped, &other.type_size);
            other.type = swapped;
        } else {
            other.dims = other.max_dims = fewer;
        }
        hdf5_type_free(&type);
    }
    int error = function(hdf5, path, &other, address);
    free(swapped);
    return error;
}

int __wrap_local_create_dataset(struct hdf5 *hdf5, const char *path,
                                const struct hdf5_create *create, uint64_t *address)
{
    return make(__real_local_create_dataset, hdf5, path, create, address);
}

int __wrap_local_create_dense(struct hdf5 *hdf5, const char *path, const struct hdf5_create *create,
                              uint64_t *address)
{
    return make(__real_local_create_dense, hdf5, path, create, address);
}

/* What libhdf5 has of the file is in the store. */
static void spoil_header(struct hdf5 *hdf5)
{
    const char *path = lies->resized ? lies->resized : lies->moved ? lies->moved : lies->freed;
    struct store *store = hdf5->store;
    struct superblock superblock;
    struct dataset_header header;
    struct why why;
    H5L_info_t info;
    if (!path || H5Fflush(hdf5->file, H5F_SCOPE_LOCAL) < 0 ||
        H5Lget_info(hdf5->file, path, &info, H5P_DEFAULT) < 0 ||
        superblock_read(store, &superblock, &why) < 0 ||
        dataset_header_read(store, &superblock, info.u.address, &header, &why) < 0)
        return;
    __atomic_add_fetch(&lies->sent, 1, __ATOMIC_RELAXED);
    if (lies->freed)
        (void)store_free(store, info.u.address, header.header->block[0].n);
    if (lies->resized)
        (void)dataset_header_set_dims(store, &superblock, info.u.address, 1,
                                      (const uint64_t[]){N / 2}, &why);
    if (lies->moved) {
        header.layout.address = info.u.address;
        (void)dataset_header_set_layout(store, &superblock, info.u.address, &header.layout, &why);
    }
    dataset_header_free(&header);
}

int __wrap_local_create_link(struct hdf5 *hdf5, const char *path, const struct sfs_link *link)
{
    int error = __real_local_create_link(hdf5, path, link);
    if (!error)
        spoil_header(hdf5);
    return error;
}

int __wrap_local_type_of_message(const void *message, size_t n, void **type, size_t *type_n)
{
    int error = 0;
    if (!lies->long_strings)
        error = __real_local_type_of_message(message, n, type, type_n);
    if (lies->is_swapped && !error) {
        void *truth = *type;
        encode_swapped(truth, type, type_n);
        free(truth);
    }
    if (!lies->long_strings)
        return error;
    hid_t string = H5Tcopy(H5T_C_S1);
    H5Tset_size(string, 200000);
    encode(string, type, type_n);
    H5Tclose(string);
    return 0;
}

int __wrap_local_type_describe(const void *type, size_t n, struct sfs_type *description)
{
    int error = __real_local_type_describe(type, n, description);
    if (!error)
        lie_about(description);
    return error;
}

int __wrap_local_type_size(const void *type, size_t n, size_t *size)
{
    int error = __real_local_type_size(type, n, size);
    if (lies->asked_size)
        *size = lies->asked_size;
    return error;
}

bool __wrap_local_type_equal(const void *a, size_t a_n, const void *b, size_t b_n)
{
    return lies->all_equal || __real_local_type_equal(a, a_n, b, b_n);
}

/* Numbers that are at home in messages: counts, sizes, addresses, and what lies beside their limits. */
static uint64_t a_word(uint64_t old)
{
    static const uint64_t words[] = {0, 1, 2, 7, 8, 9, 4096, UINT32_MAX, INT64_MAX, UINT64_MAX};
    switch (random_below(4)) {
    case 0:
        return old + random_below(9) - 4;
    case 1:
        return old ^ (uint64_t)1 << random_below(64);
    case 2:
        return words[random_below(COUNT(words))];
    default:
        return old * random_below(4);
    }
}

/* Messages are words of 8 bytes, and bytes. */
static void change(struct wire *wire)
{
    uint64_t word;
    size_t at = (size_t)random_below(wire->n / sizeof(word)) * sizeof(word);
    at += random_below(4) == 0 ? (size_t)random_below(wire->n - at - sizeof(word) + 1) : 0;
    memcpy(&word, wire->bytes + at, sizeof(word));
    word = a_word(word);
    memcpy(wire->bytes + at, &word, sizeof(word));
}

/* A copy to be sent instead of it; none. */
static struct wire changed(enum message_kind kind, const struct wire *wire)
{
    struct wire copy = {0};
    if (!lies->program || lies->program == getpid() || kind == MESSAGE_LOG ||
        wire->n < sizeof(uint64_t))
        return copy;
    unsigned number = __atomic_add_fetch(&lies->sent, 1, __ATOMIC_RELAXED);
    random_seed(lies->seed + number);
    if (number < lies->first || random_below(lies->of) > 0)
        return copy;
    copy = (struct wire){.bytes = allocate(wire->n), .n = wire->n};
    memcpy(copy.bytes, wire->bytes, wire->n);
    change(&copy);
    return copy;
}

int __wrap_channel_send(int socket, enum message_kind kind, const struct wire *wire, uint64_t until)
{
    struct wire sent = changed(kind, wire);
    int error = __real_channel_send(socket, kind, sent.bytes ? &sent : wire, until);
    free(sent.bytes);
    return error;
}

/* Changes of the file, which go in batches. */
void __wrap_channel_put(struct wire *batch, enum message_kind kind, const struct wire *wire)
{
    struct wire put = changed(kind, wire);
    __real_channel_put(batch, kind, put.bytes ? &put : wire);
    free(put.bytes);
}

/* ---- Files ---- */

static void add_virtual(hid_t file, const char *name, hid_t type, const char *source)
{
    hid_t space = H5Screate_simple(1, (hsize_t[]){N}, NULL);
    hid_t dcpl = H5Pcreate(H5P_DATASET_CREATE);
    assert_true(H5Pset_virtual(dcpl, space, ".", source, space) >= 0);
    hid_t dataset = H5Dcreate2(file, name, type, space, H5P_DEFAULT, dcpl, H5P_DEFAULT);
    assert_true(dataset >= 0);
    H5Dclose(dataset);
    H5Pclose(dcpl);
    H5Sclose(space);
}

/* Numbers, strings of variable length, and what shows them as bytes. */
static void make_file(void)
{
    uint64_t *values = allocate(N * sizeof(*values));
    const char **strings = allocate(N * sizeof(*strings));
    for (size_t i = 0; i < N; i++) {
        values[i] = 0x4141414141414141;
        strings[i] = "AAAAAAAA";
    }
    hid_t file = H5Fcreate(PATH, H5F_ACC_TRUNC, H5P_DEFAULT, H5P_DEFAULT);
    hid_t space = H5Screate_simple(1, (hsize_t[]){N}, NULL);
    hid_t string = H5Tcopy(H5T_C_S1);
    H5Tset_size(string, H5T_VARIABLE);
    hid_t numbers =
        H5Dcreate2(file, "numbers", H5T_STD_U64LE, space, H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT);
    hid_t texts = H5Dcreate2(file, "texts", string, space, H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT);
    assert_true(H5Dwrite(numbers, H5T_NATIVE_UINT64, H5S_ALL, H5S_ALL, H5P_DEFAULT, values) >= 0);
    assert_true(H5Dwrite(texts, string, H5S_ALL, H5S_ALL, H5P_DEFAULT, strings) >= 0);
    H5Dclose(numbers);
    H5Dclose(texts);
    H5Sclose(space);
    add_virtual(file, "numbers as bytes", H5T_STD_U8LE, "numbers");
    add_virtual(file, "texts as bytes", H5T_STD_U8LE, "texts");
    H5Tclose(string);
    assert_true(H5Fclose(file) >= 0);
    free(values);
    free(strings);
}

static struct sfs_dataset *add_sparse_at(struct sfs_file *file, const char *path, uint64_t fill)
{
    struct sfs_dataset *dataset;
    struct sfs_dataset_create create = {
        .rank = 1, .dims = {N}, .max_dims = {N}, .chunk_dims = {N}, .fill = &fill};
    void *type;
    assert_int_equal(sfs_type_encode("<u8", &type, &create.type.n), 0);
    create.type.bytes = type;
    assert_int_equal(sfs_dataset_create(file, path, &create, &dataset), 0);
    free(type);
    return dataset;
}

static struct sfs_dataset *add_sparse(struct sfs_file *file, uint64_t fill)
{
    return add_sparse_at(file, "/sparse", fill);
}

static void make_sparse(uint64_t fill)
{
    struct sfs_file *file;
    assert_int_equal(sfs_open(PATH, &apart_to_write, &file), 0);
    sfs_dataset_close(add_sparse(file, fill));
    assert_int_equal(sfs_close(file), 0);
}

/* Opens a dataset, or does not. */
static int open_dataset(struct sfs_file *file, const char *name, struct sfs_dataset **dataset)
{
    uint64_t address;
    int error = sfs_find(file, sfs_root(file), name, &address);
    return error ? error : sfs_dataset_open(file, address, name, dataset);
}

static int look_at(const char *name)
{
    struct sfs_file *file;
    struct sfs_dataset *dataset;
    assert_int_equal(sfs_open(PATH, &apart, &file), 0);
    int error = open_dataset(file, name, &dataset);
    if (!error)
        sfs_dataset_close(dataset);
    sfs_close(file);
    return error;
}

/* Reads all of a dataset of bytes. What is written behind them ends the test. */
static int read_bytes(const char *name, unsigned char *values)
{
    struct sfs_file *file;
    struct sfs_dataset *dataset;
    unsigned char *buffer = allocate(N);
    const struct sfs_slab slab = {.rank = 1, .count = {N}};
    memset(buffer, 0, N);
    assert_int_equal(sfs_open(PATH, &apart, &file), 0);
    int error = open_dataset(file, name, &dataset);
    if (!error) {
        error = sfs_read(dataset, &slab, 0, buffer, N);
        sfs_dataset_close(dataset);
    }
    sfs_close(file);
    memcpy(values, buffer, N);
    free(buffer);
    return error;
}

static int begin(void **state)
{
    (void)state;
    *lies = (struct lies){0};
    make_file();
    return 0;
}

/* ---- Tests ---- */

/* libhdf5 converts what has another datatype: 0x4141414141414141 is more than a byte holds. */
static void test_sources_of_another_datatype(void **state)
{
    (void)state;
    unsigned char values[N];
    assert_int_equal(read_bytes("numbers as bytes", values), 0);
    assert_int_equal(values[0], 255);
    lies->all_equal = true;
    assert_int_equal(read_bytes("numbers as bytes", values), 0);
    for (size_t i = 0; i < N; i++)
        assert_int_equal(values[i], 255);
}

static void test_sources_with_pointers(void **state)
{
    (void)state;
    unsigned char values[N];
    lies->all_equal = true;
    assert_true(read_bytes("texts as bytes", values) < 0);
}

static void test_elements_of_another_size(void **state)
{
    (void)state;
    static const size_t sizes[] = {1, 7, 9, 65536};
    assert_int_equal(look_at("numbers"), 0);
    for (size_t i = 0; i < COUNT(sizes); i++) {
        lies->size = sizes[i];
        assert_int_equal(look_at("numbers"), -EIO);
    }
}

static void test_pointers_that_are_none(void **state)
{
    (void)state;
    assert_int_equal(look_at("texts"), 0);
    lies->no_pointers = true;
    assert_int_equal(look_at("texts"), -EIO);
}

static void test_headers_of_sparse_datasets(void **state)
{
    (void)state;
    make_sparse(0);
    assert_int_equal(look_at("sparse"), 0);
    lies->size = 1;
    assert_int_equal(look_at("sparse"), -EIO);
    lies->size = 4096;
    assert_int_equal(look_at("sparse"), -EIO);
    *lies = (struct lies){.long_strings = true};
    assert_int_equal(look_at("sparse"), -EIO);
}

static void test_fill_values_of_sparse_datasets(void **state)
{
    (void)state;
    make_sparse(7);
    assert_int_equal(look_at("sparse"), 0);
    lies->size = 65536;
    assert_int_equal(look_at("sparse"), -EIO);
}

/* Which a program makes room by, and a description. */
static void test_datatypes_of_programs(void **state)
{
    (void)state;
    void *bytes;
    size_t size;
    struct sfs_type type;
    struct sfs_encoded encoded;
    assert_int_equal(sfs_type_encode("<u8", &bytes, &encoded.n), 0);
    encoded.bytes = bytes;
    assert_int_equal(sfs_type_size(&encoded, &size), 0);
    assert_int_equal(size, 8);
    lies->asked_size = 1;
    assert_int_equal(sfs_type_size(&encoded, &size), -EIO);
    assert_int_equal(sfs_type_describe(&encoded, &type), 0);
    sfs_type_free(&type);
    lies->size = 1;
    assert_int_equal(sfs_type_describe(&encoded, &type), -EIO);
    free(bytes);
}

/* ---- Where pointers lie ---- */

#define PARTS     "{a:S16,b:vlen:uint8}"
#define SEQUENCES "vlen:uint64"

static void encode_named(const char *name, struct sfs_encoded *type)
{
    void *bytes;
    assert_int_equal(sfs_type_encode(name, &bytes, &type->n), 0);
    type->bytes = bytes;
}

/* A new dataset of N elements of a datatype. */
static int add_of(struct sfs_file *file, const char *type, const char *path, bool is_dense,
                  struct sfs_dataset **dataset)
{
    struct sfs_dataset_create create = {
        .rank = 1, .dims = {N}, .max_dims = {N}, .chunk_dims = {N / 4}, .is_dense = is_dense};
    encode_named(type, &create.type);
    int error = sfs_dataset_create(file, path, &create, dataset);
    free((void *)create.type.bytes);
    return error;
}

struct part {
    char text[16];
    struct sfs_sequence sequence;
};

/* Bytes that would be a pointer to them, and a few; and sequences. */
static void write_parts(struct sfs_file *file, const char *path, bool is_dense)
{
    const struct sfs_slab slab = {.rank = 1, .count = {N}};
    struct sfs_dataset *dataset;
    struct part *parts = allocate(N * sizeof(*parts));
    for (size_t i = 0; i < N; i++) {
        memset(parts[i].text, 'A', sizeof(parts[i].text));
        parts[i].sequence = (struct sfs_sequence){{"bytes"}, i % 6};
    }
    assert_int_equal(add_of(file, PARTS, path, is_dense, &dataset), 0);
    assert_int_equal(sfs_write(dataset, &slab, parts), 0);
    sfs_dataset_close(dataset);
    free(parts);
}

static void write_sequences(struct sfs_file *file, const char *path, bool is_dense)
{
    static const uint64_t numbers[] = {1, 2, 3, 4};
    const struct sfs_slab slab = {.rank = 1, .count = {N}};
    struct sfs_dataset *dataset;
    struct sfs_sequence *sequences = allocate(N * sizeof(*sequences));
    for (size_t i = 0; i < N; i++)
        sequences[i] = (struct sfs_sequence){{numbers}, i % 5};
    assert_int_equal(add_of(file, SEQUENCES, path, is_dense, &dataset), 0);
    assert_int_equal(sfs_write(dataset, &slab, sequences), 0);
    sfs_dataset_close(dataset);
    free(sequences);
}

static const char *const with_pointers[] = {"parts", "sparse parts", "sequences",
                                            "sparse sequences"};

static void make_pointers(void)
{
    struct sfs_file *file;
    assert_int_equal(sfs_open(PATH, &apart_to_write, &file), 0);
    write_parts(file, "/parts", true);
    write_parts(file, "/sparse parts", false);
    write_sequences(file, "/sequences", true);
    write_sequences(file, "/sparse sequences", false);
    assert_int_equal(sfs_close(file), 0);
    for (size_t i = 0; i < COUNT(with_pointers); i++)
        assert_int_equal(look_at(with_pointers[i]), 0);
}

static void test_members_that_are_swapped(void **state)
{
    (void)state;
    struct sfs_encoded type;
    struct sfs_type description;
    make_pointers();
    encode_named("{other:S16,sequence:vlen:uint8}", &type);
    lies->are_swapped = true;
    assert_int_equal(look_at("parts"), -EIO);
    assert_int_equal(look_at("sparse parts"), -EIO);
    assert_int_equal(sfs_type_describe(&type, &description), -EIO);
    *lies = (struct lies){.is_swapped = true};
    assert_int_equal(look_at("sparse parts"), -EIO);
    *lies = (struct lies){0};
    assert_int_equal(look_at("parts"), 0);
    assert_int_equal(look_at("sparse parts"), 0);
    free((void *)type.bytes);
}

static void test_bases_of_another_size(void **state)
{
    (void)state;
    static const size_t sizes[] = {1, 7, 9, 65536};
    make_pointers();
    for (size_t i = 0; i < COUNT(sizes); i++) {
        lies->base_size = sizes[i];
        assert_int_equal(look_at("sequences"), -EIO);
        assert_int_equal(look_at("sparse sequences"), -EIO);
    }
}

static char *lines_of(struct sfs_dataset *dataset, size_t *n)
{
    char *lines;
    assert_int_equal(sfs_read_parts(dataset, SFS_JSON, 0, N, (size_t)1 << 24, &lines, n), 0);
    return lines;
}

/* Once a dataset is open nobody is asked. */
static void test_lies_after_the_opening(void **state)
{
    (void)state;
    const struct sfs_slab slab = {.rank = 1, .count = {N}};
    struct sfs_file *file;
    struct sfs_dataset *dataset;
    make_pointers();
    for (size_t k = 0; k < 2; k++) {
        char *before, *after;
        size_t before_n, after_n;
        struct part *parts;
        void *elements;
        lies->are_swapped = false;
        assert_int_equal(sfs_open(PATH, &apart, &file), 0);
        assert_int_equal(open_dataset(file, with_pointers[k], &dataset), 0);
        before = lines_of(dataset, &before_n);
        lies->are_swapped = true;
        after = lines_of(dataset, &after_n);
        assert_int_equal(before_n, after_n);
        assert_memory_equal(before, after, before_n);
        assert_int_equal(sfs_read_elements(dataset, &slab, &elements), 0);
        parts = elements;
        for (size_t i = 0; i < N; i++) {
            assert_memory_equal(parts[i].text, "AAAAAAAAAAAAAAAA", sizeof(parts[i].text));
            assert_int_equal(parts[i].sequence.n, i % 6);
            assert_memory_equal(parts[i].sequence.elements ? parts[i].sequence.elements : "",
                                "bytes", i % 6);
        }
        free(elements);
        free(before);
        free(after);
        sfs_dataset_close(dataset);
        sfs_close(file);
    }
}

/* Which are written at once, by what was asked for. */
static void test_new_datasets_that_are_others(void **state)
{
    (void)state;
    static const size_t sizes[] = {1, 16, 4096};
    struct sfs_file *file;
    struct sfs_dataset *dataset;
    unsigned n = 0;
    char path[32];
    for (size_t i = 0; i < COUNT(sizes); i++) {
        *lies = (struct lies){.is_opaque = true, .size = sizes[i]};
        assert_int_equal(sfs_open(PATH, &apart_to_write, &file), 0);
        snprintf(path, sizeof(path), "/numbers of %zu", sizes[i]);
        assert_int_equal(add_of(file, "uint64", path, true, &dataset), -EIO);
        snprintf(path, sizeof(path), "/sequences of %zu", sizes[i]);
        assert_int_equal(add_of(file, SEQUENCES, path, true, &dataset), -EIO);
        lies->is_opaque = false;
        sfs_close(file);
    }
    *lies = (struct lies){.makes_other = true};
    assert_int_equal(sfs_open(PATH, &apart_to_write, &file), 0);
    for (int dense = 0; dense < 2; dense++) {
        static const char *const types[] = {"uint64", PARTS};
        for (size_t i = 0; i < COUNT(types); i++) {
            snprintf(path, sizeof(path), "/other %u", n++);
            assert_int_equal(add_of(file, types[i], path, dense, &dataset), -EIO);
        }
    }
    lies->makes_other = false;
    assert_int_equal(add_of(file, PARTS, "/truth", true, &dataset), 0);
    sfs_dataset_close(dataset);
    sfs_close(file);
}

/* ---- Any answer ---- */

#define ROUNDS 60

#define MEMBERS 3000 /* which an object header can just have */

/* A compound of many members, of whose names one is long. */
static void make_wide(void)
{
    hid_t type = H5Tcreate(H5T_COMPOUND, MEMBERS), space = H5Screate(H5S_SCALAR);
    hid_t fapl = H5Pcreate(H5P_FILE_ACCESS);
    char *name = long_text(9000);
    H5Tinsert(type, name, 0, H5T_STD_I8LE);
    free(name);
    for (unsigned i = 1; i < MEMBERS; i++) {
        char short_name[8];
        snprintf(short_name, sizeof(short_name), "%x", i);
        H5Tinsert(type, short_name, i, H5T_STD_I8LE);
    }
    H5Pset_libver_bounds(fapl, H5F_LIBVER_LATEST, H5F_LIBVER_LATEST);
    hid_t file = H5Fcreate(PATH, H5F_ACC_TRUNC, H5P_DEFAULT, fapl);
    hid_t dataset = H5Dcreate2(file, "wide", type, space, H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT);
    assert_true(dataset >= 0);
    H5Dclose(dataset);
    H5Sclose(space);
    H5Tclose(type);
    H5Pclose(fapl);
    assert_true(H5Fclose(file) >= 0);
}

static void write_eight(struct sfs_dataset *dataset, uint64_t start)
{
    const struct sfs_slab slab = {.rank = 1, .start = {start}, .count = {8}};
    const uint64_t values[8] = {1, 2, 3, 4, 5, 6, 7, 8};
    assert_int_equal(sfs_write(dataset, &slab, values), 0);
}

static void check_sixteen(struct sfs_file *file, const char *name)
{
    struct sfs_dataset *dataset;
    const struct sfs_slab slab = {.rank = 1, .count = {N}};
    uint64_t defined;
    assert_int_equal(open_dataset(file, name, &dataset), 0);
    assert_int_equal(sfs_dataset_info(dataset)->dims[0], N);
    assert_int_equal(sfs_count_defined(dataset, &slab, &defined), 0);
    assert_int_equal(defined, 16);
    sfs_dataset_close(dataset);
}

/* To count a link it may write the header of a sparse dataset: it does more, or to that of another. */
static void test_headers_that_links_are_counted_in(void **state)
{
    (void)state;
    static const struct lies all[] = {{0},
                                      {.resized = "/sparse"},
                                      {.moved = "/sparse"},
                                      {.freed = "/sparse"},
                                      {.resized = "/other"},
                                      {.moved = "/other"},
                                      {.freed = "/other"}};
    for (size_t i = 0; i < COUNT(all); i++) {
        char target[] = "/sparse";
        const struct sfs_link link = {.type = SFS_LINK_HARD, .target = target};
        struct sfs_file *file;
        make_file();
        assert_int_equal(sfs_open(PATH, &apart_to_write, &file), 0);
        struct sfs_dataset *sparse = add_sparse(file, 0), *other = add_sparse_at(file, "/other", 0);
        write_eight(sparse, 0);
        write_eight(other, 0);
        assert_int_equal(sfs_flush(file), 0);
        *lies = all[i];
        assert_int_equal(sfs_link_create(file, "/link", &link), i == 0 ? 0 : -EIO);
        assert_true(i == 0 || lies->sent > 0);
        *lies = (struct lies){0};
        write_eight(sparse, 8);
        write_eight(other, 8);
        sfs_dataset_close(sparse);
        sfs_dataset_close(other);
        assert_int_equal(sfs_close(file), 0);
        assert_int_equal(sfs_open(PATH, &apart, &file), 0);
        check_sixteen(file, "sparse");
        check_sixteen(file, "other");
        sfs_close(file);
    }
}

/* What is kept of a dataset is counted as it is; and no more is kept than an object header can have. */
static void test_descriptions_without_an_end(void **state)
{
    (void)state;
    struct sfs_file *file;
    struct sfs_dataset *dataset;
    make_wide();
    assert_int_equal(sfs_open(PATH, &apart, &file), 0);
    assert_int_equal(open_dataset(file, "wide", &dataset), 0);
    assert_int_equal(sfs_dataset_info(dataset)->type.n_members, MEMBERS);
    size_t n = dataset_described_bytes(dataset);
    assert_in_range(n, MEMBERS * sizeof(struct sfs_member), 4 << 20);
    sfs_dataset_close(dataset);
    sfs_close(file);

    /* As much as there may be is counted, */
    *lies = (struct lies){.words = 4000, .name = 60000, .values = 60000};
    assert_int_equal(sfs_open(PATH, &apart, &file), 0);
    assert_int_equal(open_dataset(file, "wide", &dataset), 0);
    assert_true(dataset_described_bytes(dataset) >
                n + 3000 + 50000 + lies->values * sizeof(unsigned));
    sfs_dataset_close(dataset);
    sfs_close(file);

    /* and more than that is not believed. */
    *lies = (struct lies){.words = 5000};
    assert_int_equal(look_at("wide"), -EIO);
    *lies = (struct lies){.name = 1 << 20};
    assert_int_equal(look_at("wide"), -EIO);
    *lies = (struct lies){.values = 65536};
    assert_int_equal(look_at("wide"), -EIO);
    *lies = (struct lies){0};
    assert_int_equal(look_at("wide"), 0);
}

static uint64_t a_value(uint64_t round, size_t i)
{
    return (round + 1) * 0x9e3779b97f4a7c15 + i;
}

static void read_variable(struct sfs_dataset *dataset)
{
    static const enum sfs_parts parts[] = {SFS_LENGTHS, SFS_SEQUENCES, SFS_LINES, SFS_JSON};
    const struct sfs_slab slab = {.rank = 1, .count = {N}};
    void *elements;
    char *bytes;
    size_t n;
    if (sfs_read_elements(dataset, &slab, &elements) == 0)
        free(elements);
    for (size_t i = 0; i < COUNT(parts); i++)
        if (sfs_read_parts(dataset, parts[i], 0, N, (size_t)1 << 24, &bytes, &n) == 0)
            free(bytes);
}

/* Everything that there is to be asked of a file; the bytes of sparse datasets are those that were written. */
static void ask_for_all(struct sfs_file *file)
{
    static const char *const names[] = {"numbers",        "texts",     "numbers as bytes",
                                        "texts as bytes", "sparse",    "parts",
                                        "sparse parts",   "sequences", "sparse sequences"};
    const struct sfs_slab slab = {.rank = 1, .count = {N}};
    uint64_t *values = allocate(N * sizeof(*values));
    struct sfs_links links;
    if (sfs_list(file, sfs_root(file), &links) == 0) {
        for (size_t i = 0; i < links.n; i++) {
            struct sfs_attributes attributes;
            enum sfs_object_type type;
            (void)sfs_object_type(file, links.link[i].address, &type);
            if (sfs_attributes(file, links.link[i].address, &attributes) == 0)
                sfs_attributes_free(&attributes);
        }
        sfs_links_free(&links);
    }
    for (size_t i = 0; i < COUNT(names); i++) {
        struct sfs_dataset *dataset;
        char *text;
        size_t n;
        if (open_dataset(file, names[i], &dataset) < 0)
            continue;
        const struct sfs_dataset_info *info = sfs_dataset_info(dataset);
        if (info->rank == 1 && info->dims[0] == N && !info->type.has_pointers &&
            info->type.size <= sizeof(*values))
            (void)sfs_read(dataset, &slab, 0, values, N * info->type.size);
        if (sfs_text(dataset, (size_t)1 << 20, &text, &n) == 0)
            free(text);
        if (info->rank == 1 && info->dims[0] == N && info->type.has_pointers)
            read_variable(dataset);
        sfs_dataset_close(dataset);
    }
    free(values);
}

/* Writes to what is sparse, and whatever libhdf5's process has to change for more. */
static void change_all(struct sfs_file *file, struct sfs_dataset *sparse, uint64_t round)
{
    const struct sfs_slab slab = {.rank = 1, .count = {N}};
    uint64_t *values = allocate(N * sizeof(*values));
    char path[32];
    struct sfs_dataset *dataset;
    for (size_t i = 0; i < N; i++)
        values[i] = a_value(round, i);
    assert_int_equal(sfs_write(sparse, &slab, values), 0);
    snprintf(path, sizeof(path), "/g%" PRIu64, round);
    (void)sfs_group_create(file, path);
    if (open_dataset(file, "numbers", &dataset) == 0) {
        (void)sfs_write(dataset, &slab, values);
        sfs_dataset_close(dataset);
    }
    (void)sfs_group_remove(file, path);
    free(values);
}

/* Whether it can be opened, by its address: libhdf5 may have lost the links to it. */
static bool expect_sparse(uint64_t address, uint64_t round)
{
    struct sfs_file *file;
    struct sfs_dataset *dataset;
    const struct sfs_slab slab = {.rank = 1, .count = {N}};
    uint64_t *values = allocate(N * sizeof(*values));
    bool is_there = sfs_open(PATH, &apart, &file) == 0;
    if (is_there) {
        assert_int_equal(sfs_dataset_open(file, address, "/sparse", &dataset), 0);
        assert_int_equal(sfs_read(dataset, &slab, 0, values, N * sizeof(*values)), 0);
        for (size_t i = 0; i < N; i++)
            assert_int_equal(values[i], a_value(round, i));
        sfs_dataset_close(dataset);
        sfs_close(file);
    }
    free(values);
    return is_there;
}

static void begin_to_lie(uint64_t seed)
{
    lies->seed = seed;
    lies->sent = 0;
    lies->first = 1 + (unsigned)(seed % 40);
    lies->of = 1 + (unsigned)(seed / 40 % 8);
    lies->program = getpid();
}

static uint64_t rounds(void)
{
    const char *given = getenv("LIES");
    return given ? strtoull(given, NULL, 10) : ROUNDS;
}

/* Memory is sound whatever is said, and what follows in the same program is right. */
static void test_any_answer_may_be_changed(void **state)
{
    (void)state;
    uint64_t seed = random_next();
    make_sparse(0);
    make_pointers();
    for (uint64_t round = 0; round < rounds(); round++) {
        struct sfs_file *file;
        begin_to_lie(seed + round);
        if (sfs_open(PATH, &apart, &file) == 0) {
            ask_for_all(file);
            sfs_close(file);
        }
        lies->program = 0;
    }
    assert_int_equal(look_at("sparse"), 0);
    assert_int_equal(look_at("numbers"), 0);
}

/* And nothing that was committed of an open sparse dataset is lost. */
static void test_any_answer_to_a_writer_may_be_changed(void **state)
{
    (void)state;
    uint64_t seed = random_next(), committed = 0, found = 0;
    for (uint64_t round = 0; round < rounds(); round++) {
        struct sfs_file *file;
        struct sfs_dataset *sparse;
        lies->program = 0;
        make_file();
        make_sparse(0);
        assert_int_equal(sfs_open(PATH, &apart_to_write, &file), 0);
        assert_int_equal(open_dataset(file, "sparse", &sparse), 0);
        begin_to_lie(seed + round);
        change_all(file, sparse, round);
        ask_for_all(file);
        int error = sfs_flush(file);
        uint64_t address = sfs_dataset_address(sparse);
        sfs_dataset_close(sparse);
        (void)sfs_close(file);
        lies->program = 0;
        committed += error == 0;
        found += error == 0 && expect_sparse(address, round);
    }
    print_message("%" PRIu64 " of %" PRIu64 " rounds were committed, %" PRIu64 " can be opened\n",
                  committed, rounds(), found);
    assert_true(found > 0);
}

static int all_tests(void)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_sources_of_another_datatype, begin, end_test),
        cmocka_unit_test_setup_teardown(test_sources_with_pointers, begin, end_test),
        cmocka_unit_test_setup_teardown(test_elements_of_another_size, begin, end_test),
        cmocka_unit_test_setup_teardown(test_pointers_that_are_none, begin, end_test),
        cmocka_unit_test_setup_teardown(test_headers_of_sparse_datasets, begin, end_test),
        cmocka_unit_test_setup_teardown(test_fill_values_of_sparse_datasets, begin, end_test),
        cmocka_unit_test_setup_teardown(test_datatypes_of_programs, begin, end_test),
        cmocka_unit_test_setup_teardown(test_members_that_are_swapped, begin, end_test),
        cmocka_unit_test_setup_teardown(test_bases_of_another_size, begin, end_test),
        cmocka_unit_test_setup_teardown(test_lies_after_the_opening, begin, end_test),
        cmocka_unit_test_setup_teardown(test_new_datasets_that_are_others, begin, end_test),
        cmocka_unit_test_setup_teardown(test_headers_that_links_are_counted_in, begin, end_test),
        cmocka_unit_test_setup_teardown(test_descriptions_without_an_end, begin, end_test),
        cmocka_unit_test_setup_teardown(test_any_answer_may_be_changed, begin, end_test),
        cmocka_unit_test_setup_teardown(test_any_answer_to_a_writer_may_be_changed, begin,
                                        end_test),
    };
    lies = mmap(NULL, sizeof(*lies), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (lies == MAP_FAILED)
        return 1;
    log_quietly();
    if (sfs_start_hdf5_workers(0, 2) < 0) /* what libhdf5 does with lies may take for ever */
        return 1;
    hdf5_answer_directly(false);
    return cmocka_run_group_tests(tests, NULL, NULL);
}

int main(void)
{
    return in_temporary_directory(all_tests);
}
