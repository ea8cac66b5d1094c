/* libhdf5 on a writable store: what it makes and writes is looked at by libhdf5 itself, in a copy
 * of the file on disk, while ours is still open. */
#include "support.h"

#include <endian.h>
#include <errno.h>
#include <fcntl.h>
#include <hdf5.h>
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "format/checksum.h"
#include "format/datatype_message.h"
#include "format/object_header.h"
#include "hdf5/hdf5.h"
#include "store/store.h"

struct opened {
    struct store *store;
    struct hdf5 *hdf5;
};

static struct opened create(const char *path)
{
    struct opened opened;
    assert_int_equal(store_create(path, true, &opened.store), 0);
    assert_int_equal(hdf5_create(opened.store, &opened.hdf5), 0);
    return opened;
}

static struct opened open_file(const char *path)
{
    struct opened opened;
    assert_int_equal(store_open_writable(path, &opened.store), 0);
    assert_int_equal(hdf5_open(opened.store, &opened.hdf5), 0);
    return opened;
}

static void commit(struct opened *opened)
{
    assert_int_equal(hdf5_flush(opened->hdf5), 0);
    assert_int_equal(store_commit(opened->store), 0);
}

static void close_file(struct opened *opened)
{
    hdf5_close(opened->hdf5);
    store_close(opened->store);
}

static void copy(const char *from, const char *to)
{
    char command[100];
    snprintf(command, sizeof(command), "cp %s %s", from, to);
    assert_int_equal(system(command), 0);
}

/* The file as it is on disk, opened by libhdf5 with its own driver. Whoever wrote it had it to
 * himself, and it says nothing of a writer. */
static hid_t open_copy(const char *path)
{
    copy(path, "copy.h5");
    hid_t file = H5Fopen("copy.h5", H5F_ACC_RDONLY, H5P_DEFAULT);
    assert_true(file >= 0);
    return file;
}

static bool opens(const char *path, unsigned flags)
{
    hid_t file;
    H5E_BEGIN_TRY
    {
        file = H5Fopen(path, flags, H5P_DEFAULT);
    }
    H5E_END_TRY
    if (file >= 0)
        H5Fclose(file);
    return file >= 0;
}

static void *type_of(const char *name, size_t *n)
{
    void *type;
    assert_int_equal(hdf5_type_of_name(name, &type, n), 0);
    return type;
}

/* A dataset of two axes that can grow along the first. */
static uint64_t add_dataset(struct opened *opened, const char *path, const char *type_name,
                            bool deflate)
{
    static const uint64_t dims[] = {20, 30}, max_dims[] = {SFS_UNLIMITED, 30},
                          chunk_dims[] = {10, 15};
    static const unsigned level = 4;
    const struct sfs_filter filters[] = {
        {.id = H5Z_FILTER_SHUFFLE, .optional = true},
        {.id = H5Z_FILTER_DEFLATE, .optional = true, .n_values = 1, .values = &level}};
    struct hdf5_create wanted = {
        .rank = 2, .dims = dims, .max_dims = max_dims, .chunk_dims = chunk_dims};
    void *type = type_of(type_name, &wanted.type_size);
    wanted.type = type;
    wanted.filters = filters;
    wanted.n_filters = deflate ? 2 : 0;
    uint64_t address;
    assert_int_equal(hdf5_create_dataset(opened->hdf5, path, &wanted, &address), 0);
    free(type);
    return address;
}

/* ---- Files ---- */

static void a_new_file_is_there_with_its_first_commit(void **state)
{
    (void)state;
    struct opened opened = create("new.h5");
    assert_int_not_equal(access("new.h5", F_OK), 0);
    commit(&opened);
    hid_t file = open_copy("new.h5");
    H5G_info_t info;
    assert_true(H5Gget_info(file, &info) >= 0);
    assert_int_equal(info.nlinks, 0);
    H5Fclose(file);
    unsigned char superblock[12];
    assert_int_equal(store_read(opened.store, 0, superblock, 12), 0);
    assert_int_equal(superblock[8], 3);
    struct hdf5 *second;
    assert_int_equal(hdf5_create(opened.store, &second), -EINVAL);
    close_file(&opened);
}

static void every_commit_leaves_a_whole_file_and_others_are_kept_out(void **state)
{
    (void)state;
    struct opened opened = create("steps.h5");
    for (int i = 0; i < 12; i++) {
        char path[40];
        snprintf(path, sizeof(path), "/a/b%d/c", i);
        assert_int_equal(hdf5_create_group(opened.hdf5, path), 0);
        snprintf(path, sizeof(path), "/d/e%d", i);
        add_dataset(&opened, path, "uint16", i % 2);
        commit(&opened);
        assert_false(opens("steps.h5", H5F_ACC_RDONLY));
        assert_false(opens("steps.h5", H5F_ACC_RDWR));
        hid_t file = open_copy("steps.h5");
        hid_t dataset = H5Dopen2(file, path, H5P_DEFAULT);
        assert_true(dataset >= 0);
        H5Dclose(dataset);
        H5Fclose(file);
        assert_true(opens("copy.h5", H5F_ACC_RDWR));
    }
    close_file(&opened);
    assert_true(opens("steps.h5", H5F_ACC_RDWR));
}

static void without_a_commit_nothing_is_changed(void **state)
{
    (void)state;
    struct opened opened = create("kept.h5");
    add_dataset(&opened, "/x", "uint16", false);
    commit(&opened);
    close_file(&opened);
    copy("kept.h5", "before.h5");
    opened = open_file("kept.h5");
    assert_int_equal(store_commit(opened.store), 0); /* opening it for writing is no change */
    assert_int_equal(system("cmp kept.h5 before.h5"), 0);
    assert_int_equal(hdf5_create_group(opened.hdf5, "/group"), 0);
    assert_int_equal(hdf5_flush(opened.hdf5), 0);
    close_file(&opened);
    assert_int_equal(system("cmp kept.h5 before.h5"), 0);
}

/* Commits one group after the other, says so, and never ends. */
static void commit_for_ever(int said)
{
    struct opened opened = open_file("killed.h5");
    H5G_info_t info;
    hid_t file = open_copy("killed.h5");
    assert_true(H5Gget_info(file, &info) >= 0);
    H5Fclose(file);
    for (unsigned i = (unsigned)info.nlinks;; i++) {
        char path[20];
        snprintf(path, sizeof(path), "/g%u", i);
        assert_int_equal(hdf5_create_group(opened.hdf5, path), 0);
        commit(&opened);
        if (write(said, &i, sizeof(i)) != sizeof(i))
            _exit(1);
    }
}

static void a_process_that_is_killed_leaves_its_last_commit(void **state)
{
    (void)state;
    log_quietly();
    struct opened opened = create("killed.h5");
    commit(&opened);
    close_file(&opened);
    for (int round = 0; round < 20; round++) {
        int pipes[2];
        unsigned last = 0, i;
        assert_int_equal(pipe(pipes), 0);
        pid_t pid = fork();
        if (pid == 0)
            commit_for_ever(pipes[1]);
        close(pipes[1]);
        assert_int_equal(read(pipes[0], &last, sizeof(last)), sizeof(last));
        usleep((useconds_t)random_below(20000));
        kill(pid, SIGKILL);
        waitpid(pid, NULL, 0);
        while (read(pipes[0], &i, sizeof(i)) == sizeof(i))
            last = i;
        close(pipes[0]);
        opened = open_file("killed.h5");
        close_file(&opened);
        hid_t file = H5Fopen("killed.h5", H5F_ACC_RDWR, H5P_DEFAULT);
        H5G_info_t info;
        assert_true(H5Gget_info(file, &info) >= 0);
        assert_in_range(info.nlinks, last + 1, last + 2);
        H5Fclose(file);
    }
}

static void blocks_of_others_lie_between_those_of_libhdf5(void **state)
{
    (void)state;
    enum { N = 60 };
    uint64_t addresses[N];
    unsigned char *blocks[N];
    size_t sizes[N];
    struct opened opened = create("between.h5");
    for (int i = 0; i < N; i++) {
        char path[40];
        snprintf(path, sizeof(path), "/g%d/h%d/i", i % 7, i);
        sizes[i] = (size_t)random_between(1, 3000);
        blocks[i] = allocate(sizes[i]);
        random_fill(blocks[i], sizes[i]);
        assert_int_equal(store_allocate(opened.store, sizes[i], &addresses[i]), 0);
        assert_int_equal(store_write(opened.store, addresses[i], blocks[i], sizes[i]), 0);
        uint64_t dataset = add_dataset(&opened, path, "<u2", true);
        uint16_t elements[30];
        random_fill(elements, sizeof(elements));
        assert_int_equal(
            hdf5_write(opened.hdf5, dataset, (uint64_t[]){3, 0}, (uint64_t[]){1, 30}, elements), 0);
        if (i % 10 == 3)
            commit(&opened);
        if (i % 10 == 7)
            assert_int_equal(hdf5_reopen(opened.hdf5), 0);
    }
    commit(&opened);
    for (int i = 0; i < N; i++) {
        unsigned char *found = allocate(sizes[i]);
        assert_int_equal(store_read(opened.store, addresses[i], found, sizes[i]), 0);
        assert_memory_equal(found, blocks[i], sizes[i]);
        free(found);
        free(blocks[i]);
    }
    hid_t file = open_copy("between.h5");
    for (int i = 0; i < N; i++) {
        char path[40];
        uint16_t elements[600];
        snprintf(path, sizeof(path), "/g%d/h%d/i", i % 7, i);
        hid_t dataset = H5Dopen2(file, path, H5P_DEFAULT);
        assert_true(H5Dread(dataset, H5T_NATIVE_USHORT, H5S_ALL, H5S_ALL, H5P_DEFAULT, elements) >=
                    0);
        H5Dclose(dataset);
    }
    hsize_t size;
    assert_true(H5Fget_filesize(file, &size) >= 0);
    assert_int_equal(size, store_size(opened.store));
    H5Fclose(file);
    close_file(&opened);
}

/* Old formats, a user block, and bytes behind the end that a crash has left. */
static void files_of_libhdf5_are_written(void **state)
{
    (void)state;
    for (int latest = 0; latest < 2; latest++) {
        for (hsize_t user_block = 0; user_block <= 512; user_block += 512) {
            hid_t fapl = H5Pcreate(H5P_FILE_ACCESS), fcpl = H5Pcreate(H5P_FILE_CREATE);
            if (latest)
                H5Pset_libver_bounds(fapl, H5F_LIBVER_LATEST, H5F_LIBVER_LATEST);
            H5Pset_userblock(fcpl, user_block);
            hid_t file = H5Fcreate("old.h5", H5F_ACC_TRUNC, fcpl, fapl);
            H5Gclose(H5Gcreate2(file, "/g", H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT));
            H5Fclose(file);
            H5Pclose(fcpl);
            H5Pclose(fapl);
            struct stat st, now;
            assert_int_equal(stat("old.h5", &st), 0);
            if (user_block > 0)
                assert_int_equal(system("printf user | dd of=old.h5 conv=notrunc status=none"), 0);
            assert_int_equal(system("head -c 100000 /dev/zero >> old.h5"), 0);

            struct opened opened = open_file("old.h5");
            commit(&opened);
            assert_int_equal(stat("old.h5", &now), 0);
            assert_int_equal(now.st_size, st.st_size);
            uint64_t dataset = add_dataset(&opened, "/g/x", "int32", true), block;
            assert_int_equal(store_allocate(opened.store, 100, &block), 0);
            int32_t elements[600];
            random_fill(elements, sizeof(elements));
            assert_int_equal(hdf5_write(opened.hdf5, dataset, (uint64_t[]){0, 0},
                                        (uint64_t[]){20, 30}, elements),
                             0);
            assert_int_equal(hdf5_reopen(opened.hdf5), 0);
            commit(&opened);
            close_file(&opened);

            int32_t found[600];
            file = H5Fopen("old.h5", H5F_ACC_RDWR, H5P_DEFAULT);
            hid_t id = H5Dopen2(file, "/g/x", H5P_DEFAULT);
            assert_true(H5Dread(id, H5T_NATIVE_INT, H5S_ALL, H5S_ALL, H5P_DEFAULT, found) >= 0);
            assert_memory_equal(found, elements, sizeof(found));
            H5Dclose(id);
            H5Fclose(file);
            if (user_block > 0)
                assert_int_equal(system("printf user | cmp -n 4 - old.h5"), 0);
        }
    }
}

static void files_whose_free_space_libhdf5_keeps_are_only_read(void **state)
{
    (void)state;
    for (int paged = 0; paged < 2; paged++) {
        hid_t fcpl = H5Pcreate(H5P_FILE_CREATE);
        H5Pset_file_space_strategy(
            fcpl, paged ? H5F_FSPACE_STRATEGY_PAGE : H5F_FSPACE_STRATEGY_FSM_AGGR, !paged, 1);
        H5Fclose(H5Fcreate("strategy.h5", H5F_ACC_TRUNC, fcpl, H5P_DEFAULT));
        H5Pclose(fcpl);
        struct store *store;
        struct hdf5 *hdf5;
        copy("strategy.h5", "before.h5");
        assert_int_equal(store_open_writable("strategy.h5", &store), 0);
        assert_int_equal(hdf5_open(store, &hdf5), -EOPNOTSUPP);
        store_close(store);
        assert_int_equal(system("cmp strategy.h5 before.h5"), 0);
        assert_int_equal(store_open("strategy.h5", &store), 0);
        assert_int_equal(hdf5_open(store, &hdf5), 0);
        hdf5_close(hdf5);
        store_close(store);
    }
}

static void a_file_marked_by_a_writer_is_not_written(void **state)
{
    (void)state;
    struct opened opened = create("marked.h5");
    commit(&opened);
    unsigned char superblock[48];
    assert_int_equal(store_read(opened.store, 0, superblock, 48), 0);
    close_file(&opened);
    superblock[11] = 1;
    uint32_t sum = checksum(superblock, 44);
    memcpy(superblock + 44, &sum, 4); /* this machine is little-endian, or the file is refused */
    FILE *file = fopen("marked.h5", "r+");
    fwrite(superblock, 1, 48, file);
    fclose(file);
    assert_int_equal(store_open_writable("marked.h5", &opened.store), 0);
    assert_int_equal(hdf5_open(opened.store, &opened.hdf5), -EBUSY);
    store_close(opened.store);
}

static void a_full_disk_is_reported(void **state)
{
    (void)state;
    log_quietly();
    signal(SIGXFSZ, SIG_IGN);
    struct opened opened = create("full.h5");
    uint64_t dataset = add_dataset(&opened, "/x", "float64", false);
    commit(&opened);
    const struct rlimit full = {store_size(opened.store), RLIM_INFINITY};
    const struct rlimit enough = {RLIM_INFINITY, RLIM_INFINITY};
    double *elements = calloc(600, sizeof(*elements));
    setrlimit(RLIMIT_FSIZE, &full);
    assert_int_equal(
        hdf5_write(opened.hdf5, dataset, (uint64_t[]){0, 0}, (uint64_t[]){20, 30}, elements),
        -ENOSPC);
    setrlimit(RLIMIT_FSIZE, &enough);
    assert_int_equal(
        hdf5_write(opened.hdf5, dataset, (uint64_t[]){0, 0}, (uint64_t[]){20, 30}, elements), 0);
    commit(&opened);
    close_file(&opened);
    free(elements);
    assert_true(opens("full.h5", H5F_ACC_RDWR));
}

static void fill_disk(bool repeat)
{
    log_quietly();
    signal(SIGXFSZ, SIG_IGN);
    struct opened opened = create("full.h5");
    commit(&opened);
    const struct rlimit full = {store_size(opened.store), RLIM_INFINITY};
    const struct rlimit enough = {RLIM_INFINITY, RLIM_INFINITY};
    setrlimit(RLIMIT_FSIZE, &full);
    for (int i = 0; i < 30; i++) {
        char path[20];
        snprintf(path, sizeof(path), "/g%d/h", i);
        assert_int_equal(hdf5_create_group(opened.hdf5, path), 0);
    }
    assert_int_equal(hdf5_flush(opened.hdf5), 0);
    assert_int_equal(store_commit(opened.store), -ENOSPC);
    setrlimit(RLIMIT_FSIZE, &enough);
    if (repeat)
        commit(&opened);
    close_file(&opened);
    assert_int_equal(H5Fget_obj_count(H5F_OBJ_ALL, H5F_OBJ_ALL), 0);
    hid_t file = open_copy("full.h5");
    H5G_info_t info;
    assert_true(H5Gget_info(file, &info) >= 0);
    assert_int_equal(info.nlinks, repeat ? 30 : 0);
    H5Fclose(file);
}

/* libhdf5 would never recover from a metadata cache that could not be flushed. */
static void on_a_full_disk_the_commit_fails_and_can_be_repeated_or_not(void **state)
{
    (void)state;
    for (int repeat = 0; repeat < 2; repeat++)
        fill_disk(repeat);
}

static void sources_of_virtual_datasets_are_read_and_not_written(void **state)
{
    (void)state;
    const hsize_t dim = 4;
    const int values[] = {1, 2, 3, 4};
    hid_t fapl = H5Pcreate(H5P_FILE_ACCESS), space = H5Screate_simple(1, &dim, NULL);
    H5Pset_libver_bounds(fapl, H5F_LIBVER_LATEST, H5F_LIBVER_LATEST);
    hid_t file = H5Fcreate("source.h5", H5F_ACC_TRUNC, H5P_DEFAULT, fapl);
    hid_t dataset =
        H5Dcreate2(file, "s", H5T_NATIVE_INT, space, H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT);
    H5Dwrite(dataset, H5T_NATIVE_INT, H5S_ALL, H5S_ALL, H5P_DEFAULT, values);
    H5Dclose(dataset);
    H5Fclose(file);
    hid_t dcpl = H5Pcreate(H5P_DATASET_CREATE);
    H5Pset_virtual(dcpl, space, "source.h5", "s", space);
    file = H5Fcreate("virtual.h5", H5F_ACC_TRUNC, H5P_DEFAULT, fapl);
    H5Dclose(H5Dcreate2(file, "v", H5T_NATIVE_INT, space, H5P_DEFAULT, dcpl, H5P_DEFAULT));
    H5Fclose(file);
    H5Pclose(dcpl);
    H5Pclose(fapl);
    H5Sclose(space);

    copy("source.h5", "before.h5");
    struct opened opened = open_file("virtual.h5");
    struct sfs_dataset_info info;
    struct hdf5_storage storage;
    uint64_t address;
    int found[4];
    const uint64_t start = 0, count = 4;
    assert_int_equal(hdf5_find(opened.hdf5, hdf5_root(opened.hdf5), "/v", &address), 0);
    assert_int_equal(hdf5_dataset_open(opened.hdf5, address, &info, &storage), 0);
    assert_int_equal(hdf5_read(opened.hdf5, address, &start, &count, &count, found), 0);
    assert_memory_equal(found, values, sizeof(values));
    assert_int_equal(hdf5_write(opened.hdf5, address, &start, &count, found), -EOPNOTSUPP);
    hdf5_info_free(&info);
    commit(&opened);
    close_file(&opened);
    assert_int_equal(system("cmp source.h5 before.h5"), 0);
}

/* ---- Groups and datasets ---- */

static void a_dataset_is_made_as_asked(void **state)
{
    (void)state;
    static const uint64_t dims[] = {7, 8, 9}, max_dims[] = {SFS_UNLIMITED, 8, 9},
                          chunk_dims[] = {2, 8, 4};
    const uint16_t fill = 0xfffe;
    const unsigned level = 3;
    const struct sfs_filter filters[] = {
        {.id = H5Z_FILTER_SHUFFLE},
        {.id = H5Z_FILTER_DEFLATE, .n_values = 1, .values = &level},
        {.id = H5Z_FILTER_FLETCHER32},
    };
    struct hdf5_create wanted = {.rank = 3,
                                 .dims = dims,
                                 .max_dims = max_dims,
                                 .chunk_dims = chunk_dims,
                                 .fill = &fill,
                                 .n_filters = 3,
                                 .filters = filters,
                                 .selection_version_1 = true};
    void *type = type_of(">u2", &wanted.type_size);
    wanted.type = type;
    struct opened opened = create("made.h5");
    uint64_t address, found;
    assert_int_equal(hdf5_create_dataset(opened.hdf5, "/entry/data/x", &wanted, &address), 0);
    assert_int_equal(hdf5_find(opened.hdf5, hdf5_root(opened.hdf5), "/entry/data/x", &found), 0);
    assert_int_equal(found, address);

    struct sfs_dataset_info info;
    struct hdf5_storage storage;
    assert_int_equal(hdf5_dataset_open(opened.hdf5, address, &info, &storage), 0);
    assert_int_equal(info.layout, SFS_CHUNKED);
    assert_memory_equal(info.dims, dims, sizeof(dims));
    assert_memory_equal(info.max_dims, max_dims, sizeof(max_dims));
    assert_memory_equal(info.chunk_dims, chunk_dims, sizeof(chunk_dims));
    assert_memory_equal(info.fill, &fill, 2);
    assert_true(info.type.big_endian && info.type.size == 2);
    assert_int_equal(info.n_filters, 3);
    assert_int_equal(info.filters[0].n_values, 1);
    assert_int_equal(info.filters[0].values[0], 2); /* shuffle has learned the element size */
    assert_int_equal(info.filters[1].values[0], 3);
    hdf5_info_free(&info);

    struct sfs_attributes attributes;
    assert_int_equal(hdf5_attributes(opened.hdf5, address, &attributes), 0);
    assert_int_equal(attributes.n, 1);
    assert_string_equal(attributes.attribute[0].name, "sparsefs.selection_version");
    assert_string_equal(attributes.attribute[0].text, "1");
    sfs_attributes_free(&attributes);

    hid_t dcpl, id, attribute;
    H5D_alloc_time_t allocation;
    H5D_fill_time_t filling;
    commit(&opened);
    hid_t file = open_copy("made.h5");
    id = H5Dopen2(file, "/entry/data/x", H5P_DEFAULT);
    dcpl = H5Dget_create_plist(id);
    H5Pget_alloc_time(dcpl, &allocation);
    H5Pget_fill_time(dcpl, &filling);
    assert_int_equal(allocation, H5D_ALLOC_TIME_INCR);
    assert_int_equal(filling, H5D_FILL_TIME_IFSET);
    attribute = H5Aopen(id, "sparsefs.selection_version", H5P_DEFAULT);
    hid_t attribute_type = H5Aget_type(attribute);
    assert_true(H5Tequal(attribute_type, H5T_STD_U8LE) > 0);
    H5Tclose(attribute_type);
    H5Aclose(attribute);
    H5Pclose(dcpl);
    H5Dclose(id);
    H5Fclose(file);
    close_file(&opened);
    free(type);
}

/* The room that is there for the messages of a sparse dataset. */
static void a_header_has_version_2_and_room(void **state)
{
    (void)state;
    struct opened opened = create("room.h5");
    uint64_t address = add_dataset(&opened, "/x", "uint16", false);
    assert_int_equal(hdf5_flush(opened.hdf5), 0);
    struct superblock superblock;
    struct object_header *header;
    struct why why;
    size_t room = 0;
    assert_int_equal(superblock_read(opened.store, &superblock, &why), 0);
    assert_int_equal(object_header_read(opened.store, &superblock, address, &header, &why), 0);
    assert_int_equal(header->version, 2);
    for (size_t i = 0; i < header->n_messages; i++)
        if (header->message[i].type == MESSAGE_NIL)
            room += header->message[i].size;
    printf("room in a header: %zu bytes\n", room);
    assert_true(room >= 100);
    object_header_free(header);
    close_file(&opened);
}

static void what_cannot_be_made_is_refused(void **state)
{
    (void)state;
    static const uint64_t dims[] = {100000, 100000}, chunk_dims[] = {1, 1},
                          large[] = {65536, 65536}, zero[] = {0, 5};
    const struct sfs_filter unknown = {.id = 30000};
    struct opened opened = create("refused.h5");
    struct hdf5_create good = {.rank = 2, .dims = dims, .chunk_dims = chunk_dims}, bad;
    void *type = type_of("u1", &good.type_size);
    uint64_t address;
    good.type = type;
    add_dataset(&opened, "/g/x", "uint16", false);
    static const struct {
        const char *path;
        int error;
    } paths[] = {{"/g/x", -EEXIST}, {"/g", -EEXIST},      {"/", -EINVAL},
                 {"", -EINVAL},     {"x", -EINVAL},       {"/a/", -EINVAL},
                 {"/a/.", -EINVAL}, {"/g/x/y", -ENOTDIR}, {"/g/./y", -EINVAL}};
    for (size_t i = 0; i < COUNT(paths); i++) {
        assert_int_equal(hdf5_create_dataset(opened.hdf5, paths[i].path, &good, &address),
                         paths[i].error);
        assert_int_equal(hdf5_create_group(opened.hdf5, paths[i].path), paths[i].error);
    }
    bad = good;
    bad.chunk_dims = large;
    assert_int_equal(hdf5_create_dataset(opened.hdf5, "/y", &bad, &address), -EFBIG);
    bad.chunk_dims = zero;
    assert_int_equal(hdf5_create_dataset(opened.hdf5, "/y", &bad, &address), -EINVAL);
    bad.chunk_dims = NULL;
    assert_int_equal(hdf5_create_dataset(opened.hdf5, "/y", &bad, &address), -EINVAL);
    bad = good;
    bad.rank = 33;
    assert_int_equal(hdf5_create_dataset(opened.hdf5, "/y", &bad, &address), -EINVAL);
    bad = good;
    bad.filters = &unknown;
    bad.n_filters = 1;
    assert_int_equal(hdf5_create_dataset(opened.hdf5, "/y", &bad, &address), -EOPNOTSUPP);
    bad = good;
    bad.max_dims = chunk_dims;
    assert_int_equal(hdf5_create_dataset(opened.hdf5, "/y", &bad, &address), -EINVAL);
    bad = good;
    bad.type_size--;
    assert_int_equal(hdf5_create_dataset(opened.hdf5, "/y", &bad, &address), -EINVAL);
    assert_int_equal(hdf5_find(opened.hdf5, hdf5_root(opened.hdf5), "/y", &address), -ENOENT);
    assert_int_equal(hdf5_create_dataset(opened.hdf5, "/y", &good, &address), 0);
    close_file(&opened);
    free(type);
}

static void dense_datasets_are_written(void **state)
{
    (void)state;
    static const uint64_t dims[] = {12, 10}, chunk_dims[] = {5, 4};
    const unsigned level = 1;
    const struct sfs_filter deflate = {.id = H5Z_FILTER_DEFLATE, .n_values = 1, .values = &level};
    static const char *const paths[] = {"/contiguous", "/chunked", "/deflate"};
    struct opened opened = create("dense.h5");
    struct hdf5_create wanted = {.rank = 2, .dims = dims, .filters = &deflate};
    void *type = type_of("float32", &wanted.type_size);
    float all[120], box[3 * 10], found[120];
    wanted.type = type;
    for (size_t i = 0; i < COUNT(paths); i++) {
        uint64_t address;
        wanted.chunk_dims = i > 0 ? chunk_dims : NULL;
        wanted.n_filters = i > 1;
        assert_int_equal(hdf5_create_dense(opened.hdf5, paths[i], &wanted, &address), 0);
        for (size_t k = 0; k < 120; k++)
            all[k] = (float)random_below(9);
        for (uint64_t row = 0; row < 12; row += 3) {
            memcpy(box, all + row * 10, sizeof(box));
            assert_int_equal(
                hdf5_write(opened.hdf5, address, (uint64_t[]){row, 0}, (uint64_t[]){3, 10}, box),
                0);
        }
        assert_int_equal(
            hdf5_write(opened.hdf5, address, (uint64_t[]){11, 0}, (uint64_t[]){2, 1}, box),
            -EINVAL);
        assert_int_equal(
            hdf5_write(opened.hdf5, address, (uint64_t[]){11, 0}, (uint64_t[]){0, 1}, box), 0);
        struct sfs_dataset_info info;
        struct hdf5_storage storage;
        hdf5_dataset_close(opened.hdf5, address);
        assert_int_equal(hdf5_dataset_open(opened.hdf5, address, &info, &storage), 0);
        if (info.layout == SFS_CONTIGUOUS) { /* others read it from the store at once */
            assert_int_equal(store_read(opened.store, storage.address, found, sizeof(found)), 0);
            assert_memory_equal(found, all, sizeof(all));
        }
        hdf5_info_free(&info);
        commit(&opened);
        hid_t file = open_copy("dense.h5"), id = H5Dopen2(file, paths[i], H5P_DEFAULT);
        assert_true(H5Dread(id, H5T_NATIVE_FLOAT, H5S_ALL, H5S_ALL, H5P_DEFAULT, found) >= 0);
        assert_memory_equal(found, all, sizeof(all));
        H5Dclose(id);
        H5Fclose(file);
    }
    wanted = (struct hdf5_create){.type = type, .type_size = wanted.type_size};
    uint64_t scalar;
    assert_int_equal(hdf5_create_dense(opened.hdf5, "/scalar", &wanted, &scalar), 0);
    assert_int_equal(hdf5_write(opened.hdf5, scalar, NULL, NULL, all), 0);
    close_file(&opened);
    free(type);
}

static void open_datasets_stay_open_when_libhdf5_opens_the_file_again(void **state)
{
    (void)state;
    struct opened opened = create("again.h5");
    uint64_t address = add_dataset(&opened, "/x", "uint8", true);
    struct sfs_dataset_info info;
    struct hdf5_storage storage;
    unsigned char elements[600], found[600];
    const uint64_t start[] = {0, 0}, count[] = {20, 30};
    random_fill(elements, sizeof(elements));
    assert_int_equal(hdf5_dataset_open(opened.hdf5, address, &info, &storage), 0);
    assert_int_equal(hdf5_write(opened.hdf5, address, start, count, elements), 0);
    for (int i = 0; i < 3; i++) {
        struct hdf5_chunk chunk;
        assert_int_equal(hdf5_reopen(opened.hdf5), 0);
        assert_int_equal(hdf5_read(opened.hdf5, address, start, count, count, found), 0);
        assert_memory_equal(found, elements, sizeof(found));
        assert_int_equal(hdf5_locate(opened.hdf5, address, start, &chunk), 0);
        assert_true(chunk.address < store_size(opened.store));
    }
    hdf5_info_free(&info);
    close_file(&opened);
}

/* A process of libhdf5 is told so again by who has lost its answer. */
static void what_was_opened_several_times_is_closed_with_the_file(void **state)
{
    (void)state;
    struct opened opened = create("several.h5");
    uint64_t addresses[] = {add_dataset(&opened, "/x", "uint8", true),
                            add_dataset(&opened, "/y", "uint8", true)};
    struct sfs_dataset_info info;
    struct hdf5_storage storage;
    for (size_t i = 0; i < 6; i++) {
        assert_int_equal(hdf5_dataset_open(opened.hdf5, addresses[i / 2 % 2], &info, &storage), 0);
        hdf5_info_free(&info);
    }
    close_file(&opened);
}

/* libhdf5 writes a chunk of another size elsewhere. */
static void space_that_libhdf5_gives_up_is_used_again(void **state)
{
    (void)state;
    struct opened opened = create("shrink.h5");
    uint64_t address = add_dataset(&opened, "/x", "uint64", true), size = 0;
    uint64_t *elements = calloc(600, 8);
    for (int i = 0; i < 60; i++) {
        random_fill(elements, (size_t)random_between(0, 4800));
        assert_int_equal(
            hdf5_write(opened.hdf5, address, (uint64_t[]){0, 0}, (uint64_t[]){20, 30}, elements),
            0);
        assert_int_equal(hdf5_reopen(opened.hdf5), 0);
        commit(&opened);
        if (i == 20)
            size = store_size(opened.store);
    }
    assert_true(store_size(opened.store) <= size + 10000);
    close_file(&opened);
    free(elements);
}

/* ---- Attributes ---- */

static unsigned warnings;

static void count_warning(int level, const char *line)
{
    warnings += level == 4 && strstr(line, "left out") != NULL;
}

static void add_attribute(hid_t object, const char *name, hid_t type, const void *value)
{
    hid_t space = H5Screate(H5S_SCALAR);
    hid_t attribute = H5Acreate2(object, name, type, space, H5P_DEFAULT, H5P_DEFAULT);
    assert_true(H5Awrite(attribute, type, value) >= 0);
    H5Aclose(attribute);
    H5Sclose(space);
}

/* A group with attributes of many kinds, one of them a reference. */
static void make_source(const char *path)
{
    hid_t file = H5Fcreate(path, H5F_ACC_TRUNC, H5P_DEFAULT, H5P_DEFAULT);
    hid_t group = H5Gcreate2(file, "/g", H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT);
    hid_t string = H5Tcopy(H5T_C_S1), committed = H5Tcopy(H5T_STD_I16BE);
    const char *text = "of variable length";
    const short number = 7;
    const double real = 2.5;
    hobj_ref_t reference;
    H5Tset_size(string, H5T_VARIABLE);
    H5Tcommit2(file, "/type", committed, H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT);
    H5Rcreate(&reference, file, "/g", H5R_OBJECT, -1);
    add_attribute(group, "text", string, &text);
    add_attribute(group, "real", H5T_NATIVE_DOUBLE, &real);
    add_attribute(group, "reference", H5T_STD_REF_OBJ, &reference);
    hid_t space = H5Screate(H5S_SCALAR);
    hid_t attribute = H5Acreate2(group, "committed", committed, space, H5P_DEFAULT, H5P_DEFAULT);
    H5Awrite(attribute, H5T_NATIVE_SHORT, &number);
    H5Aclose(attribute);
    for (int i = 0; i < 20; i++) {
        char name[20];
        snprintf(name, sizeof(name), "z%02d", i);
        add_attribute(group, name, H5T_NATIVE_DOUBLE, &real);
    }
    H5Sclose(space);
    H5Tclose(committed);
    H5Tclose(string);
    H5Gclose(group);
    H5Fclose(file);
}

static const char *text_of(const struct sfs_attributes *attributes, const char *name)
{
    for (size_t i = 0; i < attributes->n; i++)
        if (!strcmp(attributes->attribute[i].name, name))
            return attributes->attribute[i].text;
    return "missing";
}

static void check_attributes(struct hdf5 *hdf5, uint64_t address)
{
    struct sfs_attributes attributes;
    assert_int_equal(hdf5_attributes(hdf5, address, &attributes), 0);
    assert_int_equal(attributes.n,
                     23 + !strcmp(text_of(&attributes, "sparsefs.selection_version"), "1"));
    assert_string_equal(text_of(&attributes, "text"), "of variable length");
    assert_string_equal(text_of(&attributes, "real"), "2.5");
    assert_string_equal(text_of(&attributes, "committed"), "7");
    assert_string_equal(text_of(&attributes, "z19"), "2.5");
    assert_string_equal(text_of(&attributes, "reference"), "missing");
    sfs_attributes_free(&attributes);
}

static uint64_t add_with_attributes(struct opened *opened, const char *path, struct hdf5 *from,
                                    uint64_t of, bool version_1)
{
    static const uint64_t dims[] = {5}, chunk_dims[] = {5};
    struct hdf5_create wanted = {.rank = 1,
                                 .dims = dims,
                                 .chunk_dims = chunk_dims,
                                 .attributes_from = from,
                                 .attributes_of = of,
                                 .selection_version_1 = version_1};
    void *type = type_of("i4", &wanted.type_size);
    uint64_t address;
    wanted.type = type;
    assert_int_equal(hdf5_create_dataset(opened->hdf5, path, &wanted, &address), 0);
    free(type);
    return address;
}

/* What makes libhdf5 1.10 refuse a sparse dataset: the version of its layout message. */
static void make_unreadable(struct opened *opened, uint64_t address)
{
    struct superblock superblock;
    struct object_header *header;
    struct why why;
    assert_int_equal(hdf5_flush(opened->hdf5), 0);
    assert_int_equal(superblock_read(opened->store, &superblock, &why), 0);
    assert_int_equal(object_header_read(opened->store, &superblock, address, &header, &why), 0);
    const struct message *layout = object_header_find(header, MESSAGE_LAYOUT);
    struct header_block *block = &header->block[layout->block];
    block->bytes[layout->address - block->address] = 5;
    uint32_t sum = checksum(block->bytes, block->n - 4);
    for (int i = 0; i < 4; i++)
        block->bytes[block->n - 4 + (size_t)i] = (unsigned char)(sum >> 8 * i);
    assert_int_equal(store_write(opened->store, block->address, block->bytes, block->n), 0);
    object_header_free(header);
    assert_int_equal(hdf5_reopen(opened->hdf5), 0);
}

static void attributes_are_copied_but_for_references(void **state)
{
    (void)state;
    struct store *store;
    struct hdf5 *from;
    uint64_t group;
    make_source("source.h5");
    assert_int_equal(store_open("source.h5", &store), 0);
    assert_int_equal(hdf5_open(store, &from), 0);
    assert_int_equal(hdf5_find(from, hdf5_root(from), "/g", &group), 0);
    struct opened opened = create("attributes.h5");
    for (int version_1 = 0; version_1 < 2; version_1++) {
        warnings = 0;
        sfs_set_log(count_warning, 7);
        const char *path = version_1 ? "/one/x" : "/x";
        uint64_t address = add_with_attributes(&opened, path, from, group, version_1);
        assert_int_equal(warnings, 1);
        check_attributes(opened.hdf5, address);
        /* From an object of the same file; the mark is not copied. */
        uint64_t second =
            add_with_attributes(&opened, version_1 ? "/one/y" : "/y", opened.hdf5, address, false);
        struct sfs_attributes attributes;
        check_attributes(opened.hdf5, second);
        assert_int_equal(hdf5_attributes(opened.hdf5, second, &attributes), 0);
        assert_int_equal(attributes.n, 23);
        sfs_attributes_free(&attributes);
    }
    commit(&opened);
    hdf5_close(from);
    store_close(store);
    hid_t file = open_copy("attributes.h5"), id = H5Dopen2(file, "/one/x", H5P_DEFAULT);
    assert_int_equal(H5Aget_num_attrs(id), 24);
    H5Dclose(id);
    H5Fclose(file);
    close_file(&opened);
    log_quietly();
}

static void attributes_of_what_libhdf5_cannot_open_are_read_and_copied(void **state)
{
    (void)state;
    log_quietly();
    struct store *store;
    struct hdf5 *from;
    uint64_t group;
    make_source("source.h5");
    assert_int_equal(store_open("source.h5", &store), 0);
    assert_int_equal(hdf5_open(store, &from), 0);
    assert_int_equal(hdf5_find(from, hdf5_root(from), "/g", &group), 0);
    struct opened opened = create("sparse.h5");
    uint64_t few = add_with_attributes(&opened, "/a/one", NULL, 0, true);
    uint64_t many = add_with_attributes(&opened, "/a/b/many", from, group, false);
    hdf5_close(from);
    store_close(store);
    make_unreadable(&opened, few);
    make_unreadable(&opened, many);
    commit(&opened);
    close_file(&opened);

    opened = open_file("sparse.h5");
    struct sfs_dataset_info info;
    struct hdf5_storage storage;
    struct sfs_attributes attributes;
    enum sfs_object_type type;
    uint64_t address;
    assert_int_equal(hdf5_dataset_open(opened.hdf5, many, &info, &storage), -EIO);
    for (int i = 0; i < 2; i++) { /* first by searching, then by the name that was seen */
        assert_int_equal(hdf5_object_type(opened.hdf5, many, &type), 0);
        assert_int_equal(type, SFS_DATASET);
        check_attributes(opened.hdf5, many);
        assert_int_equal(hdf5_attributes(opened.hdf5, few, &attributes), 0);
        assert_int_equal(attributes.n, 1);
        sfs_attributes_free(&attributes);
        assert_int_equal(hdf5_find(opened.hdf5, hdf5_root(opened.hdf5), "/a/b/many", &address), 0);
        assert_int_equal(address, many);
        struct sfs_link link;
        uint64_t group_address;
        assert_int_equal(hdf5_find(opened.hdf5, hdf5_root(opened.hdf5), "a", &group_address), 0);
        assert_int_equal(hdf5_lookup(opened.hdf5, group_address, "one", &link), 0);
        assert_int_equal(link.address, few);
        sfs_link_free(&link);
    }
    check_attributes(opened.hdf5, add_with_attributes(&opened, "/copy", opened.hdf5, many, false));
    assert_int_equal(hdf5_attributes(opened.hdf5, 1, &attributes), -EIO);
    commit(&opened);
    /* The released library minds only that one. */
    hid_t file = open_copy("sparse.h5"), id = H5Dopen2(file, "/copy", H5P_DEFAULT);
    assert_int_equal(H5Aget_num_attrs(id), 23);
    H5Dclose(id);
    H5Fclose(file);
    close_file(&opened);
}

static void files_of_the_prototype_are_found_and_opened(void **state)
{
    (void)state;
    const char *data = getenv("SPARSEFS_TEST_DATA");
    char path[4096];
    static const char *const names[] = {"farray_1d", "bt2_2d", "latest_single_1d_scatter"};
    for (size_t i = 0; i < COUNT(names); i++) {
        snprintf(path, sizeof(path), "%s/prototype/%s.h5", data ? data : EXTRA_DATA, names[i]);
        if (access(path, R_OK) < 0)
            skip();
        struct opened opened;
        enum sfs_object_type type;
        struct sfs_attributes attributes;
        uint64_t address;
        assert_int_equal(store_open(path, &opened.store), 0);
        assert_int_equal(hdf5_open(opened.store, &opened.hdf5), 0);
        assert_int_equal(hdf5_find(opened.hdf5, hdf5_root(opened.hdf5), "/sparse", &address), 0);
        assert_int_equal(hdf5_object_type(opened.hdf5, address, &type), 0);
        assert_int_equal(type, SFS_DATASET);
        assert_int_equal(hdf5_attributes(opened.hdf5, address, &attributes), 0);
        assert_int_equal(attributes.n, 0);
        sfs_attributes_free(&attributes);
        close_file(&opened);
    }
}

/* ---- Datatypes and elements ---- */

static void numpy_names_are_understood(void **state)
{
    (void)state;
    static const struct {
        const char *name;
        enum sfs_type_class class;
        size_t size;
        bool big_endian, is_signed;
    } names[] = {
        {"int8", SFS_INTEGER, 1, false, true},    {"uint16", SFS_INTEGER, 2, false, false},
        {"<u2", SFS_INTEGER, 2, false, false},    {">i4", SFS_INTEGER, 4, true, true},
        {"u8", SFS_INTEGER, 8, false, false},     {"int64", SFS_INTEGER, 8, false, true},
        {">f4", SFS_FLOAT, 4, true, false},       {"f2", SFS_FLOAT, 2, false, false},
        {"float16", SFS_FLOAT, 2, false, false},  {">f2", SFS_FLOAT, 2, true, false},
        {"float64", SFS_FLOAT, 8, false, false},  {"|u1", SFS_INTEGER, 1, false, false},
        {"bool", SFS_ENUM, 1, false, true},       {"?", SFS_ENUM, 1, false, true},
        {"|b1", SFS_ENUM, 1, false, true},        {"complex64", SFS_COMPOUND, 8, false, false},
        {">c16", SFS_COMPOUND, 16, false, false}, {"S10", SFS_STRING, 10, false, false},
        {"|S1", SFS_STRING, 1, false, false},     {"V4", SFS_OPAQUE, 4, false, false},
        {"=i2", SFS_INTEGER, 2, false, true},
    };
    static const char *const wrong[] = {
        "",    "u3",  "uint",  "uint12", "f16", "float8", "x4",   "S",      "S0",          "<",
        "u2 ", "-u2", "int-8", "c4",     "V-1", "b2",     "u02x", "<uint8", "S99999999999"};
    for (size_t i = 0; i < COUNT(names); i++) {
        struct sfs_type described;
        size_t n, size;
        void *type = type_of(names[i].name, &n);
        assert_int_equal(hdf5_type_describe(NULL, type, n, &described), 0);
        assert_int_equal(described.class, names[i].class);
        assert_int_equal(described.size, names[i].size);
        if (names[i].size > 1 && names[i].class <= SFS_FLOAT)
            assert_int_equal(described.big_endian, names[i].big_endian);
        if (names[i].class == SFS_INTEGER)
            assert_int_equal(described.is_signed, names[i].is_signed);
        if (names[i].class == SFS_ENUM)
            assert_true(described.is_boolean);
        if (names[i].class == SFS_COMPOUND)
            assert_int_equal(described.members[1].type.big_endian, names[i].name[0] == '>');
        assert_int_equal(hdf5_type_size(type, n, &size), 0);
        assert_int_equal(size, names[i].size);
        hdf5_type_free(&described);
        free(type);
    }
    for (size_t i = 0; i < COUNT(wrong); i++) {
        void *type;
        size_t n;
        assert_int_equal(hdf5_type_of_name(wrong[i], &type, &n), -EINVAL);
    }
}

static hid_t any_length(H5T_cset_t characters)
{
    hid_t type = H5Tcopy(H5T_C_S1);
    H5Tset_size(type, H5T_VARIABLE);
    H5Tset_cset(type, characters);
    return type;
}

static bool is_type_named(const char *name, hid_t wanted)
{
    size_t n;
    void *bytes = type_of(name, &n), *wanted_bytes;
    size_t wanted_n = 0;
    H5Tencode(wanted, NULL, &wanted_n);
    wanted_bytes = malloc(wanted_n);
    H5Tencode(wanted, wanted_bytes, &wanted_n);
    datatype_lower((char *)wanted_bytes + 2, wanted_n - 2); /* behind the prefix, as ours are */
    bool is_it = n == wanted_n && memcmp(bytes, wanted_bytes, n) == 0;
    free(wanted_bytes);
    free(bytes);
    return is_it;
}

/* Byte for byte what libhdf5 encodes of types that are made by its functions. */
static void names_of_composed_types(void **state)
{
    (void)state;
    const hsize_t dims[] = {2, 3};
    hid_t utf8 = any_length(H5T_CSET_UTF8), ascii = any_length(H5T_CSET_ASCII);
    hid_t strings = H5Tvlen_create(ascii), array = H5Tarray_create2(H5T_IEEE_F32BE, 2, dims);
    hid_t inner = H5Tcreate(H5T_COMPOUND, 24),
          outer = H5Tcreate(H5T_COMPOUND, 8 + 24 + 24 + 8 + 12);
    H5Tinsert(inner, "t", 0, H5T_STD_I64LE);
    H5Tinsert(inner, "s t\"\\", 8, strings);
    H5Tinsert(outer, "name", 0, utf8);
    H5Tinsert(outer, "in", 8, inner);
    H5Tinsert(outer, "a-\xc3\xa9.1", 32, array);
    H5Tinsert(outer, "o", 56, H5T_STD_REF_OBJ);
    H5Tinsert(outer, "r", 64, H5T_STD_REF_DSETREG);
    hid_t sequences = H5Tvlen_create(outer);

    assert_true(is_type_named("str", utf8));
    assert_true(is_type_named("string", utf8));
    assert_true(is_type_named("ascii", ascii));
    assert_true(is_type_named("ref", H5T_STD_REF_OBJ));
    assert_true(is_type_named("regionref", H5T_STD_REF_DSETREG));
    assert_true(is_type_named("vlen:ascii", strings));
    assert_true(is_type_named("vlen : ascii", strings));
    assert_true(is_type_named("(2,3)>f4", array));
    assert_true(is_type_named("( 2 , 3 ) >f4", array));
    assert_true(is_type_named("{t:int64,\"s t\\\"\\\\\":vlen:ascii}", inner));
    assert_true(is_type_named("vlen:{name: str, in: {t: i8, \"s t\\\"\\\\\": vlen: ascii},\n"
                              " a-\xc3\xa9.1: (2, 3)>f4, \"o\" : ref, r: regionref }",
                              sequences));
    const hid_t all[] = {utf8, ascii, strings, array, inner, outer, sequences};
    for (size_t i = 0; i < COUNT(all); i++)
        H5Tclose(all[i]);
}

/* The same of enumerations: as many bytes a value, and in the order, as the datatype of its values. */
static void names_of_enumerations(void **state)
{
    (void)state;
    const signed char bytes[] = {-128, 127, 0};
    const uint64_t largest = htobe64(UINT64_MAX), small = htobe64(1);
    hid_t small_ones = H5Tenum_create(H5T_STD_I8LE), large_ones = H5Tenum_create(H5T_STD_U64BE);
    H5Tenum_insert(small_ones, "low", &bytes[0]);
    H5Tenum_insert(small_ones, "a high: one", &bytes[1]);
    H5Tenum_insert(small_ones, "enum", &bytes[2]);
    H5Tenum_insert(large_ones, "x", &largest);
    H5Tenum_insert(large_ones, "y", &small);
    hid_t sequences = H5Tvlen_create(large_ones);
    hid_t outer = H5Tcreate(H5T_COMPOUND, 17);
    H5Tinsert(outer, "enum", 0, small_ones);
    H5Tinsert(outer, "vlen", 1, sequences);

    assert_true(is_type_named("enum:int8{low:-128,\"a high: one\":127,enum:0}", small_ones));
    assert_true(
        is_type_named("enum : i1 { low : -128 , \"a high: one\" :0x7f,\nenum: 0 }", small_ones));
    assert_true(is_type_named("enum:>u8{x:18446744073709551615,y:1}", large_ones));
    assert_true(is_type_named("{enum:enum:i1{low:-128,\"a high: one\":127,enum:0},"
                              "vlen:vlen:enum:>u8{x:0xffffffffffffffff,y:1}}",
                              outer));
    size_t n, bool_n;
    void *named = type_of("enum:i1{FALSE:0,TRUE:1}", &n), *boolean = type_of("bool", &bool_n);
    assert_true(n == bool_n && memcmp(named, boolean, n) == 0);
    free(boolean);
    free(named);
    const hid_t all[] = {small_ones, large_ones, sequences, outer};
    for (size_t i = 0; i < COUNT(all); i++)
        H5Tclose(all[i]);
}

/* More names than any object header has room for, and than libhdf5 would count. */
static void no_type_has_too_many_names(void **state)
{
    (void)state;
    static const struct {
        const char *begin, *format;
        const char *reason;
    } kinds[] = {{"{", "n%u:u1,", "a compound has up to 16384 members"},
                 {"enum:u4{", "n%u:%u,", "an enumeration has up to 16384 names"}};
    for (size_t i = 0; i < COUNT(kinds); i++) {
        char *name;
        void *type;
        size_t n;
        FILE *out = open_memstream(&name, &n);
        fputs(kinds[i].begin, out);
        for (unsigned k = 0; k < 16385; k++)
            fprintf(out, kinds[i].format, k, k);
        fclose(out);
        name[n - 1] = '}';
        assert_int_equal(hdf5_type_of_name(name, &type, &n), -EINVAL);
        assert_non_null(strstr(hdf5_error(), kinds[i].reason));
        free(name);
    }
}

/* Where, and what, is wrong with it. */
static void wrong_names_of_composed_types(void **state)
{
    (void)state;
    static const struct {
        const char *name, *reason;
    } wrong[] = {
        {"", "at character 1: a datatype is missing"},
        {"float3", "at character 1: no such datatype: float3"},
        {"vlen", "at character 5: vlen wants"},
        {"vlen:", "at character 6: a datatype is missing"},
        {"vlen:{", "at character 7: the name of a member is missing"},
        {"vlen:}", "at character 6: \"}\" where a datatype is expected"},
        {"vlen:u3", "at character 6: no such datatype: u3"},
        {"str:u1", "at character 4: there is more"},
        {"u2,u2", "at character 3: there is more"},
        {"{}", "at character 2: the name of a member is missing"},
        {"{x}", "at character 3: \":\" is missing"},
        {"{x:u1", "at character 6: \",\" or \"}\" is missing"},
        {"{x:u1 y:u1}", "at character 7: \",\" or \"}\" is missing"},
        {"{x:u1,}", "at character 7: the name of a member is missing"},
        {"{x:u1,y:u1,x:u2}", "at character 12: another member has this name"},
        {"{\"x:u1}", "at character 2: the name of a member has no closing quote"},
        {"{\"x\\\":u1}", "at character 2: the name of a member has no closing quote"},
        {"{\"\":u1}", "at character 2: the name of a member is missing"},
        {"{x:{y:u1},z:{y:uu}}", "at character 16: no such datatype: uu"},
        {"()u1", "at character 2: dims of an array are 1 to 4294967295"},
        {"(0)u1", "at character 2: dims of an array are 1 to"},
        {"(-1)u1", "at character 2: dims of an array are 1 to"},
        {"(2,4294967296)u1", "at character 4: dims of an array are 1 to"},
        {"(99999999999999999999)u1", "at character 2: dims of an array are 1 to"},
        {"(2", "at character 3: \",\" or \")\" is missing"},
        {"(2)", "at character 4: a datatype is missing"},
        {"(65536,65536)u1", "at character 2: an element exceeds 4294967295 bytes"},
        {"(4294967295,4294967295,4294967295)u1", "at character 2: an element exceeds"},
        {"(3)(1431655766)u1", "at character 2: an element exceeds"},
        {"{a:(2147483648)u1,b:(2147483648)u1}", "at character 19: an element exceeds"},
        {"(1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1)u1",
         "at character 66: an array has up to 32 dims"},
        {"enum", "at character 5: enum wants"},
        {"enum:", "at character 6: a datatype is missing"},
        {"enum:f4{x:1}", "at character 6: the values of an enumeration are integers"},
        {"enum:str{x:1}", "at character 6: the values of an enumeration are integers"},
        {"enum:vlen:u1{x:1}", "at character 6: no such datatype: vlen"},
        {"enum:u1", "at character 8: \"{\" and names with values are missing"},
        {"enum:u1{}", "at character 9: the name of a value is missing"},
        {"enum:u1{x}", "at character 10: \":\" is missing behind the name of a value"},
        {"enum:u1{x:}", "at character 11: a value of this enumeration is an integer"},
        {"enum:u1{x:256}", "at character 11: a value of this enumeration is an integer"},
        {"enum:u1{x:-1}", "at character 11: a value of this enumeration is an integer"},
        {"enum:i1{x:128}", "at character 11: a value of this enumeration is an integer"},
        {"enum:i8{x:9223372036854775808}", "at character 11: a value of this"},
        {"enum:u1{x:1.0}", "at character 11: a value of this enumeration is an integer"},
        {"enum:u1{x:0000000000000000000000000000000001}", "at character 11: a value of this"},
        {"enum:u1{x:1,x:2}", "at character 13: another value has this name"},
        {"enum:u1{x:1,y:1}", "at character 13: another name has this value"},
        {"enum:u1{x:1", "at character 12: \",\" or \"}\" is missing behind a value"},
        {"enum:u1{x:1,}", "at character 13: the name of a value is missing"},
        {"enum:u1{\"x:1}", "at character 9: the name of a value has no closing quote"},
        {"enum:u1{x:1}y", "at character 13: there is more"},
        {"vlen:vlen:vlen:vlen:vlen:vlen:vlen:vlen:vlen:vlen:vlen:vlen:vlen:vlen:vlen:vlen:u1",
         "at character 81: datatypes are nested more than 16 deep"},
    };
    for (size_t i = 0; i < COUNT(wrong); i++) {
        void *type;
        size_t n;
        assert_int_equal(hdf5_type_of_name(wrong[i].name, &type, &n), -EINVAL);
        if (!strstr(hdf5_error(), wrong[i].reason))
            fail_msg("%s: %s", wrong[i].name, hdf5_error());
    }
}

/* As deep, and as large, as they may be. */
static void the_largest_composed_types(void **state)
{
    (void)state;
    static const char *const names[] = {
        "vlen:vlen:vlen:vlen:vlen:vlen:vlen:vlen:vlen:vlen:vlen:vlen:vlen:vlen:vlen:u1",
        "(1)(1)(1)(1)(1)(1)(1)(1)(1)(1)(1)(1)(1)(1)(1)complex64",
        "{a:(2147483648)u1,b:(2147483647)u1}",
        "(1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1)u1",
    };
    for (size_t i = 0; i < COUNT(names); i++) {
        struct sfs_type described;
        size_t n;
        void *type = type_of(names[i], &n);
        assert_int_equal(hdf5_type_describe(NULL, type, n, &described), 0);
        assert_int_equal(described.size, i == 2 ? UINT32_MAX : i == 1 ? 8 : i == 0 ? 16 : 1);
        hdf5_type_free(&described);
        free(type);
    }
}

static hid_t make_nested_type(void)
{
    const hsize_t dims[] = {2, 3};
    const int one = 1;
    hid_t inner = H5Tcreate(H5T_COMPOUND, 20), array = H5Tarray_create2(H5T_IEEE_F32BE, 2, dims);
    hid_t outer = H5Tcreate(H5T_COMPOUND, 80), named = H5Tenum_create(H5T_NATIVE_INT);
    hid_t opaque = H5Tcreate(H5T_OPAQUE, 5), string = H5Tcopy(H5T_C_S1);
    H5Tset_size(string, 6);
    H5Tset_tag(opaque, "tag");
    H5Tenum_insert(named, "one", &one);
    H5Tinsert(inner, "e", 3, named);
    H5Tinsert(inner, "s", 10, string);
    H5Tinsert(outer, "array", 0, array);
    H5Tinsert(outer, "inner", 24, inner);
    H5Tinsert(outer, "opaque", 50, opaque);
    H5Tinsert(outer, "bits", 60, H5T_STD_B16BE);
    H5Tclose(inner);
    H5Tclose(array);
    H5Tclose(named);
    H5Tclose(opaque);
    H5Tclose(string);
    return outer;
}

static void damaged_datatypes_are_refused_or_harmless(void **state)
{
    (void)state;
    hid_t id = make_nested_type();
    size_t n, copy_n;
    void *copy;
    H5Tencode(id, NULL, &n);
    unsigned char *bytes = allocate(n);
    H5Tencode(id, bytes, &n);
    assert_int_equal(hdf5_type_of_message(NULL, bytes + 2, n - 2, &copy, &copy_n), 0);
    assert_true(hdf5_type_equal(NULL, &(struct sfs_encoded){bytes, n},
                                &(struct sfs_encoded){copy, copy_n}));
    free(copy);
    for (size_t length = 0; length < n - 2; length++) {
        unsigned char *cut = allocate(length); /* exactly as long: the sanitizer watches its end */
        memcpy(cut, bytes + 2, length);
        assert_int_equal(hdf5_type_of_message(NULL, cut, length, &copy, &copy_n), -EINVAL);
        free(cut);
    }
    for (int i = 0; i < 20000; i++) {
        unsigned char *flipped = allocate(n);
        struct sfs_type described;
        memcpy(flipped, bytes, n);
        for (uint64_t k = random_between(1, 3); k > 0; k--)
            flipped[random_below(n)] = (unsigned char)random_below(256);
        int error = hdf5_type_describe(NULL, flipped, n, &described);
        assert_true(error == 0 || error == -EINVAL || error == -EIO);
        if (!error)
            hdf5_type_free(&described);
        free(flipped);
    }
    free(bytes);
    H5Tclose(id);
}

static void elements_are_converted(void **state)
{
    (void)state;
    size_t from_n, to_n, other_n;
    void *from = type_of(">i2", &from_n), *to = type_of("float64", &to_n);
    void *other = type_of("complex64", &other_n);
    const unsigned char input[] = {0x00, 0x01, 0xff, 0xfe, 0x7f, 0xff};
    double buffer[3], background[3];
    memcpy(buffer, input, sizeof(input));
    assert_int_equal(hdf5_convert(&(struct sfs_encoded){from, from_n},
                                  &(struct sfs_encoded){to, to_n}, 3, buffer, background),
                     0);
    assert_true(buffer[0] == 1 && buffer[1] == -2 && buffer[2] == 32767);
    assert_int_equal(hdf5_convert(&(struct sfs_encoded){from, from_n},
                                  &(struct sfs_encoded){other, other_n}, 1, buffer, background),
                     -EOPNOTSUPP);
    assert_false(hdf5_type_equal(NULL, &(struct sfs_encoded){from, from_n},
                                 &(struct sfs_encoded){to, to_n}));
    assert_true(hdf5_type_equal(NULL, &(struct sfs_encoded){from, from_n},
                                &(struct sfs_encoded){from, from_n}));
    assert_false(
        hdf5_type_equal(NULL, &(struct sfs_encoded){from, from_n}, &(struct sfs_encoded){from, 1}));
    free(from);
    free(to);
    free(other);
}

static void elements_come_from_text_and_become_json(void **state)
{
    (void)state;
    static const struct {
        const char *type, *text;
        const char *json; /* NULL: refused */
    } cases[] = {
        {"u1", "255", "255"},
        {"u1", "256", NULL},
        {"u1", "-1", NULL},
        {"i1", "-128", "-128"},
        {">i2", "-129", "-129"},
        {"i8", "-9223372036854775808", "-9223372036854775808"},
        {"u8", "18446744073709551615", "18446744073709551615"},
        {"u8", "18446744073709551616", NULL},
        {"i8", "9223372036854775808", NULL},
        {"u2", "0xfffe", "65534"},
        {"u2", "", NULL},
        {"u2", " 1", NULL},
        {"u2", "1x", NULL},
        {"u2", "1.5", NULL},
        {"i4", "-", NULL},
        {"f4", "nan", "\"nan\""},
        {"f4", "-inf", "\"-inf\""},
        {"f4", "0.1", "0.1"},
        {"f4", "1e300", NULL},
        {">f8", "1e300", "1e+300"},
        {"f8", "1e999", NULL},
        {"f2", "65504", "65504"},
        {"f2", "-0.1", "-0.099975586"},
        {"f2", "6e-8", "5.9604645e-08"},
        {"f2", "6.1e-5", "6.097555e-05"},
        {"f2", "-inf", "\"-inf\""},
        {"f2", "nan", "\"nan\""},
        {">f2", "1.5", "1.5"},
        {"f2", "70000", NULL},
        {"f8", "abc", NULL},
        {"bool", "true", "true"},
        {"bool", "false", "false"},
        {"bool", "TRUE", "true"},
        {"bool", "1", "true"},
        {"bool", "maybe", NULL},
        {"S4", "abcd", "\"abcd\""},
        {"S4", "ab", "\"ab\""},
        {"S4", "abcde", NULL},
    };
    for (size_t i = 0; i < COUNT(cases); i++) {
        size_t n;
        void *type = type_of(cases[i].type, &n);
        char element[16], *json;
        int error = hdf5_element_parse(type, n, cases[i].text, element);
        if (cases[i].json) {
            assert_int_equal(error, 0);
            assert_int_equal(hdf5_element_json(NULL, type, n, element, &json), 0);
            assert_string_equal(json, cases[i].json);
            free(json);
        } else {
            assert_int_equal(error, -EINVAL);
        }
        free(type);
    }
    const float parts[] = {1.5f, -2};
    size_t n;
    char *json;
    void *type = type_of("complex64", &n);
    assert_int_equal(hdf5_element_json(NULL, type, n, parts, &json), 0);
    assert_string_equal(json, "{\"r\": 1.5, \"i\": -2}");
    assert_int_equal(hdf5_element_parse(type, n, "1", (char[8]){0}), -EOPNOTSUPP);
    free(json);
    free(type);
}

TEST_MAIN(cmocka_unit_test(a_new_file_is_there_with_its_first_commit),
          cmocka_unit_test(every_commit_leaves_a_whole_file_and_others_are_kept_out),
          cmocka_unit_test(without_a_commit_nothing_is_changed),
          cmocka_unit_test(a_process_that_is_killed_leaves_its_last_commit),
          cmocka_unit_test(blocks_of_others_lie_between_those_of_libhdf5),
          cmocka_unit_test(files_of_libhdf5_are_written),
          cmocka_unit_test(files_whose_free_space_libhdf5_keeps_are_only_read),
          cmocka_unit_test(a_file_marked_by_a_writer_is_not_written),
          cmocka_unit_test(a_full_disk_is_reported),
          cmocka_unit_test(on_a_full_disk_the_commit_fails_and_can_be_repeated_or_not),
          cmocka_unit_test(sources_of_virtual_datasets_are_read_and_not_written),
          cmocka_unit_test(a_dataset_is_made_as_asked),
          cmocka_unit_test(a_header_has_version_2_and_room),
          cmocka_unit_test(what_cannot_be_made_is_refused),
          cmocka_unit_test(dense_datasets_are_written),
          cmocka_unit_test(open_datasets_stay_open_when_libhdf5_opens_the_file_again),
          cmocka_unit_test(what_was_opened_several_times_is_closed_with_the_file),
          cmocka_unit_test(space_that_libhdf5_gives_up_is_used_again),
          cmocka_unit_test(attributes_are_copied_but_for_references),
          cmocka_unit_test(attributes_of_what_libhdf5_cannot_open_are_read_and_copied),
          cmocka_unit_test(files_of_the_prototype_are_found_and_opened),
          cmocka_unit_test(numpy_names_are_understood), cmocka_unit_test(names_of_composed_types),
          cmocka_unit_test(names_of_enumerations), cmocka_unit_test(no_type_has_too_many_names),
          cmocka_unit_test(wrong_names_of_composed_types),
          cmocka_unit_test(the_largest_composed_types),
          cmocka_unit_test(damaged_datatypes_are_refused_or_harmless),
          cmocka_unit_test(elements_are_converted),
          cmocka_unit_test(elements_come_from_text_and_become_json))
