/* libFuzzer: calls as the process of libhdf5 gets them, of a sound file: names, numbers, boxes and
 * datatypes are the input's. Each has a reply, and nothing is read or written outside of buffers.
 * The addresses of objects are those that there are: at others libhdf5 takes any bytes for an
 * object, which it does not bear. */
#include <errno.h>
#include <hdf5.h>
#include <setjmp.h>
#include <stdlib.h>
#include <string.h>

#include "hdf5/worker/serve.h"
#include "peer.h"

#define MOST_OBJECTS 16
#define SOURCE       256 /* number of the file that is copied from: the same bytes */

static jmp_buf end;
static unsigned char *file;
static uint64_t file_n, objects[MOST_OBJECTS];
static size_t n_objects;
static bool is_open;

void __wrap__exit(int status) __attribute__((noreturn));

void __wrap__exit(int status)
{
    (void)status;
    longjmp(end, 1);
}

/* libhdf5 keeps memory for later, and what it has open. */
const char *__asan_default_options(void);

const char *__asan_default_options(void)
{
    return "detect_leaks=0:allocator_may_return_null=1";
}

/* ---- The file ---- */

static herr_t note_object(hid_t id, const char *name, const H5O_info_t *info, void *data)
{
    (void)id, (void)name, (void)data;
    require(n_objects < MOST_OBJECTS);
    objects[n_objects++] = info->addr;
    return 0;
}

static void make_dataset(hid_t in, const char *name, hid_t type, const hsize_t *chunk)
{
    hsize_t dims[] = {20, 6};
    hid_t space = H5Screate_simple(2, dims, NULL), how = H5Pcreate(H5P_DATASET_CREATE);
    if (chunk)
        require(H5Pset_chunk(how, 2, chunk) >= 0 && H5Pset_deflate(how, 1) >= 0);
    hid_t id = H5Dcreate2(in, name, type, space, H5P_DEFAULT, how, H5P_DEFAULT);
    char *bytes = calloc(20 * 6, H5Tget_size(type));
    require(id >= 0 && bytes && H5Dwrite(id, type, H5S_ALL, H5S_ALL, H5P_DEFAULT, bytes) >= 0);
    free(bytes);
    H5Dclose(id);
    H5Pclose(how);
    H5Sclose(space);
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

static void fill_file(hid_t root)
{
    hid_t text = H5Tcopy(H5T_C_S1);
    hid_t compound = H5Tcreate(H5T_COMPOUND, 12);
    require(H5Tset_size(text, H5T_VARIABLE) >= 0);
    require(H5Tinsert(compound, "x", 0, H5T_STD_I32LE) >= 0);
    require(H5Tinsert(compound, "y", 4, H5T_IEEE_F64LE) >= 0);
    hid_t group = H5Gcreate2(root, "g", H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT);
    make_dataset(root, "a", H5T_STD_I32LE, (hsize_t[]){7, 3});
    make_dataset(root, "b", H5T_IEEE_F64BE, NULL);
    make_dataset(group, "c", compound, (hsize_t[]){20, 6});
    make_attribute(group, text);
    require(H5Tcommit2(root, "t", compound, H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT) >= 0);
    require(H5Lcreate_soft("/g/c", root, "s", H5P_DEFAULT, H5P_DEFAULT) >= 0);
    H5Gclose(group);
    H5Tclose(compound);
    H5Tclose(text);
}

static void make_file(void)
{
    hid_t how = H5Pcreate(H5P_FILE_ACCESS);
    require(H5Pset_fapl_core(how, 1 << 16, 0) >= 0);
    hid_t id = H5Fcreate("fuzz", H5F_ACC_TRUNC, H5P_DEFAULT, how);
    require(id >= 0);
    fill_file(id);
    require(H5Ovisit2(id, H5_INDEX_NAME, H5_ITER_INC, note_object, NULL, H5O_INFO_BASIC) >= 0);
    require(H5Fflush(id, H5F_SCOPE_LOCAL) >= 0);
    ssize_t n = H5Fget_file_image(id, NULL, 0);
    file = n > 0 ? malloc((size_t)n) : NULL;
    require(file && H5Fget_file_image(id, file, (size_t)n) == n);
    file_n = (uint64_t)n;
    H5Fclose(id);
    H5Pclose(how);
}

/* ---- What it is told ---- */

/* What a process asks for is answered as it is. */
static void answer(enum message_kind asked, struct cursor *last)
{
    struct wire wire = {0};
    uint64_t number = take_uint(last, UINT64_MAX), address = take_uint(last, UINT64_MAX);
    uint64_t n = take_uint(last, CHANNEL_MOST_READ);
    bool is_of_file = number == 0 || number == SOURCE;
    bool is_there = is_of_file && address <= file_n && n <= file_n - address;
    if (asked == MESSAGE_READ) {
        wire_uint(&wire, is_there ? 0 : EIO);
        wire_put(&wire, file + address, is_there ? (size_t)n : 0);
    } else {
        wire_uint(&wire, asked == MESSAGE_FIND ? ENOENT : 0);
        wire_uint(&wire, asked == MESSAGE_END_OF ? file_n : 0);
    }
    peer_say(MESSAGE_ANSWER, &wire);
    wire_free(&wire);
}

static void open_file(void)
{
    struct wire wire = {0};
    wire_uint(&wire, WORKER_OPEN);
    wire_string(&wire, "fuzz.h5");
    wire_uints(&wire, (uint64_t[]){0, file_n, 1, 2, false, false, false}, 7);
    peer_say(MESSAGE_CALL, &wire);
    wire_free(&wire);
    is_open = true;
}

static void put_box(struct wire *wire, uint64_t call)
{
    static const uint64_t sizes[] = {4, 8, 12};
    uint64_t rank = peer_byte() % 16 ? 2 : peer_number(), count[] = {1, 1};
    wire_uint(wire, rank);
    if (call == WORKER_LOCATE)
        wire_uint(wire, 1 + peer_byte() % 4);
    wire_uints(wire, (uint64_t[]){peer_byte() % 20, peer_byte() % 6}, 2);
    if (call != WORKER_READ && call != WORKER_WRITE)
        return;
    count[0] += peer_byte() % 20;
    count[1] += peer_byte() % 6;
    wire_uints(wire, count, 2);
    if (call == WORKER_READ)
        wire_uint(wire, count[0] * count[1] * sizes[peer_byte() % 3]);
}

static uint64_t any_object(void)
{
    return objects[peer_byte() % n_objects];
}

/* Of a file, the same one, or none. */
static void put_source(struct wire *wire)
{
    unsigned which = peer_byte() % 4;
    wire_uint(wire, which > 2 ? 2 : which);
    if (which < 2)
        return;
    wire_uints(wire, (uint64_t[]){7, peer_byte() % 2}, 2);
    wire_string(wire, "source.h5");
    wire_uints(wire, (uint64_t[]){SOURCE, file_n, 1, 3, false, false, false}, 7);
}

static void put_creation(struct wire *wire)
{
    static const unsigned char type[] = {3, 0, 0x10, 8, 0, 0, 4, 0, 0, 0, 0, 0, 32, 0};
    uint64_t rank = peer_byte() % 16 ? 2 : peer_number(), dims[] = {4, 3};
    wire_uint(wire, peer_byte() % 2);
    wire_string(wire, "/new");
    wire_uint(wire, rank);
    wire_uints(wire, dims, 2);
    wire_uint(wire, false);
    wire_uint(wire, true);
    wire_uints(wire, dims, 2);
    wire_uint(wire, peer_byte() % 2);
    wire_bytes(wire, type, sizeof(type));
    wire_bytes(wire, "1234", peer_byte() % 5);
    wire_uint(wire, 1);
    wire_uints(wire, (uint64_t[]){1 + peer_byte() % 6, peer_byte() % 2, 0, 1, 6}, 5);
    wire_uint(wire, any_object());
    put_source(wire);
}

static void put_arguments(struct wire *wire, uint64_t call)
{
    static const char *const names[] = {"a", "g", "g/c", "s", "t", "/", "g/../a", "nothing"};
    switch (call) {
    case WORKER_CREATE_DATASET:
        put_creation(wire);
        break;
    case WORKER_COPY_ATTRIBUTES:
        wire_uints(wire, (uint64_t[]){any_object(), any_object()}, 2);
        put_source(wire);
        break;
    case WORKER_COPY_OBJECT:
    case WORKER_COPY_GROUP:
    case WORKER_COPY_REFERENCES:
        wire_string(wire, names[peer_byte() % 8]);
        wire_uint(wire, any_object());
        put_source(wire);
        break;
    case WORKER_CREATE_LINK:
    case WORKER_UNLINK:
        wire_string(wire, "/new");
        wire_uints(wire, (uint64_t[]){1 + peer_byte() % 2, 0}, 2);
        wire_string(wire, "");
        wire_string(wire, names[peer_byte() % 8]);
        wire_string(wire, "other.h5");
        break;
    case WORKER_LOOKUP:
    case WORKER_FIND:
        wire_string(wire, names[peer_byte() % 8]);
        break;
    case WORKER_DATASET_RENEW:
        wire_uint(wire, 2);
        break;
    case WORKER_CACHE_SOURCES:
        wire_uint(wire, peer_number());
        wire_string(wire, names[peer_byte() % 8]);
        break;
    case WORKER_TEXT:
        wire_uint(wire, peer_number());
        break;
    case WORKER_LOCATE:
    case WORKER_READ:
    case WORKER_WRITE:
    case WORKER_SET_EXTENT:
    case WORKER_WRITE_CHUNKS:
        put_box(wire, call);
        break;
    default:
        break;
    }
}

/* Of the predefined kind: big and small integers, floats, strings. */
static void put_type_call(struct wire *wire, uint64_t call)
{
    static const unsigned char types[][16] = {
        {3, 0, 0x10, 8, 0, 0, 4, 0, 0, 0, 0, 0, 32, 0},
        {3, 0, 0x10, 0, 0, 0, 2, 0, 0, 0, 3, 0, 9, 0},
        {3, 0, 0x13, 0, 0, 0, 5, 0, 0, 0},
    };
    static const size_t sizes[] = {14, 14, 10};
    unsigned which = peer_byte() % 3;
    bool has_prefix = call != WORKER_TYPE_OF_MESSAGE;
    wire_bytes(wire, types[which] + (has_prefix ? 0 : 2), sizes[which] - (has_prefix ? 0 : 2));
    if (call == WORKER_TYPE_EQUAL)
        wire_bytes(wire, types[1], sizes[1]);
    if (call == WORKER_ELEMENT_PARSE)
        wire_string(wire, peer_byte() % 2 ? "-12.5" : "nan");
    if (call == WORKER_ELEMENTS_TEXT)
        wire_uints(wire, (uint64_t[]){peer_byte(), peer_byte() % 8, peer_byte() % 4}, 3);
    if (call == WORKER_ELEMENT_JSON || call == WORKER_ELEMENTS_TEXT)
        wire_bytes(wire, "0123456789012345678901234567890123456789", peer_byte() % 40);
}

/* Opening the file anew would make something else of it. */
static bool is_allowed(uint64_t call)
{
    return call != WORKER_RENEW && call < WORKER_CALLS;
}

static void call(void)
{
    struct wire wire = {0}, arguments = {0};
    uint64_t which = peer_byte() % WORKER_CALLS;
    unsigned how = peer_byte();
    if (!is_allowed(which))
        which = WORKER_LIST;
    wire_uint(&wire, which);
    if (which >= WORKER_TYPE_OF_MESSAGE && which <= WORKER_ELEMENT_PARSE) {
        put_type_call(&arguments, which);
    } else {
        if (which != WORKER_OPEN && which < WORKER_CREATE_GROUP)
            wire_uint(&wire, any_object());
        put_arguments(&arguments, which);
    }
    if (how & 1)
        peer_content(&arguments);
    if ((how & 6) == 6)
        peer_spoil(&arguments);
    wire_put(&wire, arguments.bytes, arguments.n);
    peer_say(how == 254 ? MESSAGE_KINDS : how == 250 ? MESSAGE_SIZE : MESSAGE_CALL, &wire);
    wire_free(&arguments);
    wire_free(&wire);
}

static bool has_answer(enum message_kind asked)
{
    return asked == MESSAGE_READ || asked == MESSAGE_FIND || asked == MESSAGE_END_OF ||
           asked == MESSAGE_INTERRUPTED;
}

bool peer_speaks(enum message_kind asked, struct cursor *last)
{
    if (has_answer(asked))
        answer(asked, last);
    else if (!is_open)
        open_file();
    else if (!peer_is_over())
        call();
    else
        return false;
    return true;
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n)
{
    be_quiet();
    if (!file)
        make_file();
    peer_begin(bytes, n);
    if (setjmp(end) == 0)
        worker_serve(0);
    return 0;
}
